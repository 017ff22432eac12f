// SPDX-License-Identifier: Apache-2.0
//! The node configuration: YAML to typed values, once.
//!
//! Input: the text of one file, with `${NAME}` taken from the environment. Output: a [`Config`] in which every field is valid, or [`ConfigErrors`]:
//! all mistakes, each with file, line, key, what was expected and, for an unknown key, the nearest valid one. [`follow()`] keeps reading the file
//! while the daemon runs; a reload that fails leaves the old configuration in force. `docs/configuration.md` is the reference of all [`KEYS`].

mod change;
mod follow;
mod keys;
mod kinds;
mod nft_words;
mod parse;
mod peers;
mod policy;
mod pools;
mod read;
mod speaker;
mod tree;
mod virtual_routers;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs::OpenOptions;
use std::io::{self, Read as _};
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bgp::Prefix;
use ipvs::{SyncDaemon, SyncRole, Timeouts};
use nix::fcntl::OFlag;

use crate::api::{ForwardingMethod, LabelSelector, ObjectRef, Scheduler};
use crate::desired::{BalancerKind, DesiredBgp, DrainTimes, KnownPeers, MssClamp, Routing, Scope, UnservedPorts, VirtualRouting};

pub use change::{Change, changes};
pub use follow::{FollowError, InForce, follow};
pub use keys::{Effect, KEYS, Key};

/// More than any configuration needs; keeps a wrong path from filling the memory.
const LARGEST_FILE: u64 = 1 << 20;

/// Reads and checks the configuration file at `path`.
///
/// # Errors
/// The file cannot be read, or is not a valid configuration; then all its mistakes are returned.
pub fn load(path: &Path, environment: &Environment) -> Result<Config, ConfigErrors> {
    let text = read_file(path).map_err(|source| ConfigErrors::Unreadable { file: path.to_owned(), source })?;
    parse::parse(&text, environment).map_err(|errors| ConfigErrors::Invalid { file: path.to_owned(), errors })
}

/// Where objects come from, which tells what a configuration must say.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Origin {
    /// An API server, whose users need not be trusted with every address.
    Cluster,
    /// A directory.
    Directory,
    /// Nowhere: speaker-only use.
    Nowhere,
}

impl Config {
    /// With what is known of the other nodes of the instance, where it says that they are to be found.
    #[must_use]
    pub fn with_peers(mut self, known: &KnownPeers) -> Self {
        self.vrrp = self.vrrp.with_peers(known);
        self
    }

    /// With the peers that a node with these labels has. While no labels are known it has none of those that depend on them.
    #[must_use]
    pub fn on_node(mut self, labels: Option<&NodeLabels>) -> Self {
        let selectors = &self.peer_selectors;
        let is_for_us = |name: &str| selectors.get(name).is_none_or(|selector| labels.is_some_and(|labels| selector.matches(labels)));
        self.bgp.peers.retain(|name, _| is_for_us(name));
        self
    }

    /// What this configuration lacks for objects that come from there, if anything.
    #[must_use]
    pub fn unfit_for(&self, origin: Origin) -> Option<String> {
        match origin {
            Origin::Cluster if self.vips.allow.is_none() => Some(
                "vips.allow: is required with Kubernetes: whoever may write a Service could draw the traffic of any address to it; list the prefixes that may \
                 be VIPs"
                    .to_owned(),
            ),
            Origin::Directory | Origin::Nowhere if self.vrrp.needs_peers() => {
                Some("vrrp.groups: 'peers: auto' takes the peers from the RouterNodes of a cluster; without one list their addresses".to_owned())
            }
            Origin::Nowhere if self.dataplane.kind != DataplaneType::None => {
                Some("dataplane.type: without --manifests and API server only none is possible; another one needs a restart".to_owned())
            }
            Origin::Cluster | Origin::Directory | Origin::Nowhere => None,
        }
    }
}

fn read_file(path: &Path) -> io::Result<String> {
    // A pipe must not make us wait for its writer.
    let file = OpenOptions::new().read(true).custom_flags(OFlag::O_NONBLOCK.bits()).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no regular file"));
    }
    let mut text = String::new();
    file.take(LARGEST_FILE + 1).read_to_string(&mut text)?;
    if text.len() as u64 > LARGEST_FILE {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("it is longer than {LARGEST_FILE} octets")));
    }
    Ok(text)
}

/// A name of an instance, as it was written.
///
/// # Errors
/// It is none; says in words what was expected.
pub fn instance_name(text: &str) -> Result<String, String> {
    kinds::INSTANCE.read(text)
}

/// The variables of this process. Where `NODE_NAME` is not among them, the name of the host stands in for it.
#[must_use]
pub fn process_environment() -> Environment {
    let text = |(name, value): (std::ffi::OsString, std::ffi::OsString)| Some((name.into_string().ok()?, value.into_string().ok()?));
    let mut environment: Environment = std::env::vars_os().filter_map(text).collect();
    if !environment.contains_key("NODE_NAME")
        && let Ok(hostname) = std::fs::read_to_string("/proc/sys/kernel/hostname")
    {
        environment.insert("NODE_NAME".to_owned(), hostname.trim_end().to_lowercase());
    }
    environment
}

/// Why there is no configuration to be had from a file.
#[derive(Debug, thiserror::Error)]
pub enum ConfigErrors {
    /// It cannot be read at all.
    #[error("{}: cannot be read", file.display())]
    Unreadable {
        /// As it was named.
        file: PathBuf,
        /// What the system says.
        #[source]
        source: io::Error,
    },
    /// It holds mistakes. Prints one a line.
    #[error("{}", lines(file, errors))]
    Invalid {
        /// As it was named.
        file: PathBuf,
        /// All of them, in the order of their places.
        errors: Vec<ConfigError>,
    },
}

fn lines(file: &Path, errors: &[ConfigError]) -> String {
    let line = |error: &ConfigError| match error.place {
        Some(place) => format!("{}:{place}: {error}", file.display()),
        None => format!("{}: {error}", file.display()),
    };
    errors.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// One mistake.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ConfigError {
    /// Where, if it has a place.
    pub place: Option<Place>,
    /// The key, from the top; empty where it is about no key.
    pub key: String,
    /// What was expected and what was found.
    pub message: String,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.key.is_empty() { f.write_str(&self.message) } else { write!(f, "{}: {}", self.key, self.message) }
    }
}

/// A place in a file. Prints as `LINE:COLUMN`.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Place {
    /// Counted from 1.
    pub line: u64,
    /// In characters, counted from 1.
    pub column: u64,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.line, self.column)
    }
}

/// By the name of the peer: what the labels of a Node have to meet for the node to have it.
pub type PeerSelectors = BTreeMap<String, LabelSelector>;

/// The labels of a Node.
pub type NodeLabels = BTreeMap<String, String>;

/// The configuration of one instance on one node.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Config {
    /// Names the nft table and the state directory; 1 to 63 of `[a-z0-9-]`.
    pub instance: String,
    /// `domain`, `namespaces` and `namespaceSelector`: which objects are ours.
    pub scope: Scope,
    /// This node's name in Kubernetes.
    pub node_name: String,
    /// `node.externalInterface`: where routers and clients are; `None` for those with a default route.
    pub external_interface: Option<String>,
    /// `node.labelExternalIP`: whether its address is kept on the Node as a label.
    pub label_external_ip: bool,
    /// Where VIPs go and which are allowed.
    pub vips: Vips,
    /// Who balances.
    pub dataplane: Dataplane,
    /// Speaker and neighbours.
    pub bgp: DesiredBgp,
    /// `bgp.peers[].nodeSelector`: which of the peers only some nodes have.
    pub peer_selectors: PeerSelectors,
    /// `bgp.policies` and `bgp.aggregates`.
    pub routing: Routing,
    /// `mode` and `vrrp`: how packets to VIPs get here, and the virtual routers.
    pub vrrp: VirtualRouting,
    /// What SIGTERM means.
    pub on_termination: OnTermination,
    /// Of which workload we are a pod; `None` where none is known.
    pub workload: Option<Workload>,
    /// Whether VIPs leave the node while its Node is cordoned.
    pub on_cordon: OnCordon,
    /// `drain.taints`: with which taints of the Node they do as well.
    pub drain_taints: Vec<DrainTaint>,
    /// Times of the way out.
    pub drain: DrainTimes,
    /// How long a start waits for a complete source before it takes the last good intent from the state directory.
    pub startup_patience: Duration,
    /// Disposable state, and the admin socket (`admin.sock`).
    pub state_dir: PathBuf,
    /// Where metrics and probes are served.
    pub http_address: SocketAddr,
    /// Logging.
    pub log: Log,
}

/// `vips:`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Vips {
    /// The interface that carries them, `lo` by default.
    pub interface: String,
    /// The allowed prefixes, each with the namespaces that may use it (empty: all). `None` where the key is absent: everything that is not reserved.
    pub allow: Option<Vec<Allowed>>,
    /// From where Services of our load balancer class get addresses, in the order in which they are tried.
    pub pools: Vec<Pool>,
    /// `withoutEndpoints`.
    pub without_endpoints: WithoutEndpoints,
}

/// One entry of `vips.pools`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Pool {
    /// By which a Service may ask for it.
    pub name: String,
    /// Every address in them is given out, in ascending order; no address is in two of all pools.
    pub prefixes: Vec<Prefix>,
}

/// One entry of `vips.allow`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Allowed {
    /// VIPs inside it are allowed.
    pub prefix: Prefix,
    /// Which namespaces may use it; empty means all.
    pub namespaces: Vec<String>,
}

/// `vips.withoutEndpoints`: what to do with a VIP that nobody stands behind.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum WithoutEndpoints {
    /// Withdraw it and take it off the interface, so that the node's own clients follow the fabric too.
    #[default]
    Withdraw,
    /// Keep announcing it, visibly.
    Announce,
}

/// `dataplane:`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Dataplane {
    /// `type`.
    pub kind: DataplaneType,
    /// The scheduler of Services that ask for none.
    pub scheduler: Scheduler,
    /// The forwarding method of Services that ask for none.
    pub forwarding: ForwardingMethod,
    /// How long connections to a real server that is gone may go on.
    pub drain_timeout: Duration,
    /// What becomes of traffic to a port of a VIP that nobody serves.
    pub unserved_ports: UnservedPorts,
    /// `masquerade.exceptPrefixes`: clients and real servers whose connections are not masqueraded.
    pub not_masqueraded: BTreeSet<Prefix>,
    /// `preserveClientAddress`, for objects that do not say so themselves.
    pub preserves_client: bool,
    /// `localPolicy`.
    pub local: LocalPolicy,
    /// `mssClamp`.
    pub mss_clamp: MssClamp,
    /// `timeouts`: how long idle connections are remembered; 0 is as the kernel has it.
    pub timeouts: Timeouts,
    /// `tunnel.type`: what the forwarding method `tun` of objects stands for.
    pub tunnel: ForwardingMethod,
    /// `tunnel.port`: the UDP port of endpoints with forwarding method `gue`.
    pub gue_port: u16,
    /// `connectionSync`; `None` where routers tell each other nothing.
    pub connection_sync: Option<ConnectionSync>,
    /// `fwmarkFrom`: the first of the firewall marks that are ours.
    pub first_mark: u32,
    /// `setSysctls`: kernel settings that balancing needs are set, not only reported.
    pub set_sysctls: bool,
}

impl Dataplane {
    /// Whether this daemon balances.
    #[must_use]
    pub const fn balances(&self) -> bool {
        match self.kind {
            DataplaneType::Auto | DataplaneType::Ipvs | DataplaneType::Nftables => true,
            DataplaneType::KubeProxy | DataplaneType::None => false,
        }
    }

    /// What balances, where this daemon does. What `auto` stands for is decided before this is asked; IPVS until then.
    #[must_use]
    pub const fn balancer(&self) -> BalancerKind {
        match self.kind {
            DataplaneType::Nftables => BalancerKind::Nftables,
            DataplaneType::Auto | DataplaneType::Ipvs | DataplaneType::KubeProxy | DataplaneType::None => BalancerKind::Ipvs,
        }
    }

    /// The forwarding method that an object's one stands for.
    #[must_use]
    pub const fn tunnelled(&self, asked: ForwardingMethod) -> ForwardingMethod {
        if matches!(asked, ForwardingMethod::Tunnel) { self.tunnel } else { asked }
    }

    /// Whose endpoints count for a Service with `externalTrafficPolicy: Local`. Others balance as they like.
    #[must_use]
    pub const fn local_policy(&self) -> LocalPolicy {
        if self.balances() { self.local } else { LocalPolicy::EndpointNodes }
    }
}

/// `dataplane.connectionSync`: the kernel's daemons that tell other routers of connections, or are told.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ConnectionSync {
    /// `interface`: where they speak.
    pub interface: String,
    /// `roles`: which of them run.
    pub roles: BTreeSet<SyncRole>,
    /// `syncId`: those of another number are not listened to.
    pub sync_id: u8,
    /// `group`: to which multicast group they speak.
    pub group: IpAddr,
    /// `port`: to which UDP port.
    pub port: u16,
    /// `ttl`: over how many hops less one.
    pub ttl: u8,
    /// `maxLength`: the largest message in octets; `None` is what the interface can carry.
    pub max_length: Option<u16>,
}

impl ConnectionSync {
    /// The daemons.
    #[must_use]
    pub fn daemons(&self) -> BTreeMap<SyncRole, SyncDaemon> {
        let Self { interface, roles, sync_id, group, port, ttl, max_length } = self;
        let daemon = |role: SyncRole| SyncDaemon {
            role,
            interface: interface.clone(),
            sync_id: u32::from(*sync_id),
            max_length: *max_length,
            group: Some(*group),
            port: Some(*port),
            ttl: Some(*ttl),
        };
        roles.iter().map(|role| (*role, daemon(*role))).collect()
    }
}

/// `dataplane.localPolicy`: what `externalTrafficPolicy: Local` of a Service means.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum LocalPolicy {
    /// Nodes with endpoints serve it, each by its own ones.
    #[default]
    EndpointNodes,
    /// All nodes serve it by all endpoints, which see the address of the client.
    PreserveSource,
}

/// `dataplane.type`.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum DataplaneType {
    /// [`Ipvs`](Self::Ipvs) where the kernel has it or can load it, else [`Nftables`](Self::Nftables).
    Auto,
    /// The kernel's IPVS balances, as we program it.
    Ipvs,
    /// nft translates the destination of new connections, as we program it.
    Nftables,
    /// kube-proxy, or another program, balances Services; addresses are placed and announced only.
    #[default]
    KubeProxy,
    /// Speaker only: addresses that another program put on `vips.interface` are announced, inside `vips.allow`; none is placed.
    None,
}

/// `drain.workload`: of what we are a pod.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Workload {
    /// A DaemonSet or a StatefulSet.
    pub object: ObjectRef,
    /// Which pod of a StatefulSet.
    pub ordinal: Option<i32>,
}

/// `drain.onTermination`: what becomes of the VIPs at SIGTERM.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum OnTermination {
    /// [`Keep`](Self::Keep) where `drain.workload` is to start us again on this node, else [`Drain`](Self::Drain).
    #[default]
    Auto,
    /// All stays as it is for the next start: peers that agreed on graceful restart go on using the routes.
    Keep,
    /// Everything of ours is withdrawn and removed.
    Drain,
}

/// `drain.onCordon`: whether VIPs leave the node while its Node is cordoned.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum OnCordon {
    /// On a dedicated router node, which is one with a taint that is not Kubernetes' own.
    #[default]
    Auto,
    /// On each node.
    Always,
    /// On none.
    Never,
}

/// One entry of `drain.taints`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct DrainTaint {
    /// Of a taint with this key.
    pub key: String,
    /// And this value; any where it is absent.
    pub value: Option<String>,
    /// And this effect; any where it is absent.
    pub effect: Option<String>,
}

/// `log:`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Log {
    /// A filter of tracing-subscriber, `info` by default.
    pub level: String,
    /// `json` by default.
    pub format: LogFormat,
}

/// `log.format`.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum LogFormat {
    /// One JSON object a line.
    #[default]
    Json,
    /// For a person at a terminal.
    Text,
}

/// Variables that `${NAME}` may refer to.
pub type Environment = BTreeMap<String, String>;
