// SPDX-License-Identifier: Apache-2.0
//! What this node should do: compiled from a whole snapshot and the configuration, from scratch, each time.
//!
//! Input: a [`Snapshot`] and the [`Config`]. Output: a [`Desired`] and the [`Rejection`]s of everything that takes no part in it. Pure, total and
//! deterministic: equal inputs give equal outputs, and one bad object never hurts another.

mod addresses;
pub mod cache;
mod claims;
mod endpoints;
mod route_set;
mod routing;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;
use std::time::Duration;

use bgp::peer::RoleConfig;
use bgp::wire::AddPathMode;
use bgp::{Asn, BgpIdentifier, Family, HoldTime, Prefix};
use serde::{Deserialize, Serialize};

use self::addresses::{Reserved, not_allowed, unfit};
use self::claims::{Balanced, Claimant, claimants, settle_conflicts, wanted};
use self::endpoints::{Availability, Slices};
use crate::api::{ObjectRef, POLICY_KEY, quoted};
use crate::config::{Config, Dataplane, WithoutEndpoints};
use crate::source::Snapshot;

pub use self::route_set::{RouteSet, attributes};
pub use self::routing::{Aggregate, Policy, Router, Routing};

/// The whole intent for this node. Equal values wake nobody.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Desired {
    /// Whether every source is complete; while it is not, no stray is removed.
    pub complete: bool,
    /// Run, or leave in order.
    pub lifecycle: Lifecycle,
    /// Each VIP that some accepted object asks for.
    pub vips: BTreeMap<IpAddr, DesiredVip>,
    /// Speaker-only use: addresses inside these prefixes are announced while somebody else has them on `vips.interface`.
    pub found: Vec<Prefix>,
    /// The speaker and its neighbours.
    pub bgp: DesiredBgp,
    /// With what routes are announced to every neighbour, and which of them are aggregated.
    pub routing: Routing,
    /// How long steps on the way out may take.
    pub drain: DrainTimes,
}

/// Whether the node serves or leaves.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Lifecycle {
    /// Serve all VIPs.
    #[default]
    Run,
    /// Leave all as it is for the next start; only the sessions are closed, so that peers with graceful restart go on using the routes.
    Keep,
    /// Withdraw everything, wait, remove everything of ours, stop the speaker.
    Drain,
}

/// One VIP and who wants it.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DesiredVip {
    /// The objects that claim it; never empty.
    pub owners: BTreeSet<ObjectRef>,
    /// Whether it can be served here.
    pub intent: VipIntent,
    /// The policy that the oldest of its owners which asks for one asks for; there may be none of that name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
}

/// What is to be done with an accepted VIP.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum VipIntent {
    /// Place the address and announce it once it is read back.
    Serve {
        /// Nobody stands behind it now, and `vips.withoutEndpoints: announce` waives that.
        without_endpoints: bool,
    },
    /// Neither placed nor announced, for this reason.
    Withhold(WithholdReason),
}

/// Why an accepted VIP is not served on this node.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd, Serialize, Deserialize)]
pub enum WithholdReason {
    /// No endpoint of its Services is usable.
    NoEndpoints,
    /// `externalTrafficPolicy: Local`, and no usable endpoint is on this node.
    NoLocalEndpoints,
    /// Only EricIngress or LvsIngress objects, or headless Services, ask for it, and with this dataplane nobody balances those.
    NeedsDataplane,
}

/// The speaker of this node.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct DesiredBgp {
    /// Our AS.
    pub asn: Asn,
    /// Our BGP Identifier; `None` lets the driver take one from the node's addresses.
    pub router_id: Option<BgpIdentifier>,
    /// Our cluster, as a route reflector (RFC 4456 §7); our BGP Identifier where absent.
    pub cluster_id: Option<BgpIdentifier>,
    /// The name of this node, for display at the neighbours; not told where absent.
    pub host_name: Option<String>,
    /// The neighbours are told what software this is, for display.
    pub send_software_version: bool,
    /// Where neighbours may dial us; nothing listens where absent.
    pub listen: Option<DesiredListen>,
    /// Neighbours by name.
    pub peers: BTreeMap<String, DesiredPeer>,
}

impl DesiredBgp {
    /// A speaker of this AS with nobody to speak to.
    #[must_use]
    pub const fn new(asn: Asn) -> Self {
        Self { asn, router_id: None, cluster_id: None, host_name: None, send_software_version: false, listen: None, peers: BTreeMap::new() }
    }

    /// Whether we are the route reflector of some neighbour, or of one that may come.
    #[must_use]
    pub fn reflects(&self) -> bool {
        let dynamic = self.listen.as_ref().is_some_and(|listen| !listen.prefixes.is_empty() && listen.template.reflector_client);
        dynamic || self.peers.values().any(|peer| peer.reflector_client)
    }
}

/// A listening socket, and the dynamic neighbours that may come by it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct DesiredListen {
    /// Our address, unspecified for all of its family.
    pub address: IpAddr,
    /// Our TCP port.
    pub port: u16,
    /// Who comes from an address of these is a dynamic neighbour, where no configured one has the address.
    pub prefixes: BTreeSet<Prefix>,
    /// So many dynamic neighbours at most.
    pub limit: u32,
    /// What every dynamic neighbour is like, but for its address.
    pub template: DesiredPeer,
}

impl DesiredListen {
    /// What a neighbour at this address is, if one may come from there.
    #[must_use]
    pub fn dynamic_peer(&self, address: IpAddr) -> Option<DesiredPeer> {
        let contained = self.prefixes.iter().any(|prefix| prefix.contains(address));
        contained.then(|| DesiredPeer { address: PeerAddress::Known(address), ..self.template.clone() })
    }
}

/// Where a neighbour is. Prints as a person would name it.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum PeerAddress {
    /// At this address.
    Known(IpAddr),
    /// It is the default gateway of the node, whichever that is.
    Gateway,
    /// It is the router on the link of this interface; its link-local address is learned from its Router Advertisements (RFC 4861).
    Unnumbered(String),
}

impl PeerAddress {
    /// The address, where it is configured.
    #[must_use]
    pub const fn known(&self) -> Option<IpAddr> {
        match self {
            Self::Known(address) => Some(*address),
            Self::Gateway | Self::Unnumbered(_) => None,
        }
    }
}

impl fmt::Display for PeerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Known(address) => address.fmt(f),
            Self::Gateway => f.write_str("the default gateway"),
            Self::Unnumbered(interface) => f.write_str(interface),
        }
    }
}

/// One neighbour.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct DesiredPeer {
    /// Where it is.
    pub address: PeerAddress,
    /// Its TCP port, 179 by default.
    pub port: u16,
    /// Its AS.
    pub asn: Asn,
    /// How the connection to it is made.
    pub transport: Transport,
    /// What the session carries.
    pub families: BTreeSet<Family>,
    /// The hold time that we offer.
    pub hold_time: HoldTime,
    /// How long it may leave unread what we send (RFC 9687 §5); the core's own default where absent.
    pub send_hold_time: Option<Duration>,
    /// Between two attempts to connect.
    pub connect_retry: Duration,
    /// What it is asked to do while we restart (RFC 4724); nothing where absent.
    pub graceful_restart: Option<DesiredRestart>,
    /// What it may tell us.
    pub import: DesiredImport,
    /// With what routes are announced to it.
    pub export: DesiredExport,
    /// We are its route reflector (RFC 4456 §4).
    pub reflector_client: bool,
    /// Several paths to one destination (RFC 7911), in every family; only one where absent.
    pub add_path: Option<AddPathMode>,
    /// So many of its routes at most are kept, only to be looked at.
    pub keep_received: u32,
    /// What we are to it, where it is an external one (RFC 9234).
    pub role: Option<RoleConfig>,
    /// Messages of up to 65,535 octets (RFC 8654).
    pub extended_messages: bool,
    /// IPv4 routes with IPv6 next hops, where we have no IPv4 address on the link (RFC 8950).
    pub extended_next_hop: bool,
}

/// What a neighbour is asked to do with our routes while we restart.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct DesiredRestart {
    /// Seconds for which it is to keep them (RFC 4724 §3).
    pub restart_time: u16,
    /// It keeps them after a NOTIFICATION too, but for a Hard Reset (RFC 8538 §2).
    pub notification: bool,
    /// Seconds beyond that for which it is to keep them as the last resort (RFC 9494 §3); 0 for not at all.
    pub long_lived_stale_time: u32,
}

/// What a neighbour may tell us. A change of it needs no new session.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct DesiredImport {
    /// How many prefixes of a family at most; no limit where there is none.
    pub max_prefixes: BTreeMap<Family, u32>,
    /// How long it has to stay away after it told more.
    pub restart_delay: Duration,
}

impl Default for DesiredImport {
    /// No limit, and a minute for one that is set.
    fn default() -> Self {
        Self { max_prefixes: BTreeMap::new(), restart_delay: Duration::from_secs(60) }
    }
}

impl DesiredPeer {
    /// The TCP port of BGP.
    pub const PORT: u16 = 179;
    /// The hold time that we offer, where none is configured.
    pub const HOLD_TIME: HoldTime = match HoldTime::from_secs(9) {
        Some(hold_time) => hold_time,
        None => HoldTime::DEFAULT,
    };
    /// Between two attempts to connect, where nothing is configured.
    pub const CONNECT_RETRY: Duration = Duration::from_secs(5);

    /// A neighbour of which nothing else is configured.
    #[must_use]
    pub fn new(address: IpAddr, asn: Asn) -> Self {
        Self {
            address: PeerAddress::Known(address),
            port: Self::PORT,
            asn,
            transport: Transport::default(),
            families: BTreeSet::from(Family::ALL),
            hold_time: Self::HOLD_TIME,
            send_hold_time: None,
            connect_retry: Self::CONNECT_RETRY,
            graceful_restart: None,
            import: DesiredImport::default(),
            export: DesiredExport::default(),
            reflector_client: false,
            add_path: None,
            keep_received: 0,
            role: None,
            extended_messages: false,
            extended_next_hop: false,
        }
    }
}

impl DesiredPeer {
    /// The only interface, or VRF, that the session uses.
    #[must_use]
    pub fn interface(&self) -> Option<&str> {
        match &self.address {
            PeerAddress::Unnumbered(interface) => Some(interface),
            PeerAddress::Known(_) | PeerAddress::Gateway => self.transport.interface.as_deref(),
        }
    }
}

/// With what routes are announced to a neighbour. A change of it needs no new session.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct DesiredExport {
    /// LOCAL_PREF towards an internal peer.
    pub local_preference: u32,
    /// MULTI_EXIT_DISC; not sent where absent.
    pub med: Option<u32>,
    /// How often our AS stands in the path once more, towards an external peer.
    pub prepend: u8,
    /// COMMUNITIES (RFC 1997).
    pub communities: BTreeSet<u32>,
    /// LARGE_COMMUNITY (RFC 8092).
    pub large_communities: BTreeSet<[u32; 3]>,
    /// Extended Communities (RFC 4360).
    pub extended_communities: BTreeSet<u64>,
    /// The bandwidth of the link, in octets per second; not sent where absent.
    pub link_bandwidth: Option<u64>,
    /// Next hop of IPv4 routes; the session's own address where absent.
    pub next_hop_ipv4: Option<Ipv4Addr>,
    /// Next hop of IPv6 routes; the node's own global address where absent.
    pub next_hop_ipv6: Option<Ipv6Addr>,
}

impl Default for DesiredExport {
    /// LOCAL_PREF 100, as is customary; RFC 4271 §5.1.5 leaves it to us.
    fn default() -> Self {
        Self {
            local_preference: 100,
            med: None,
            prepend: 0,
            communities: BTreeSet::new(),
            large_communities: BTreeSet::new(),
            extended_communities: BTreeSet::new(),
            link_bandwidth: None,
            next_hop_ipv4: None,
            next_hop_ipv6: None,
        }
    }
}

/// How the TCP connection to a peer is made.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Transport {
    /// Our address on it; the kernel chooses where absent.
    pub source: Option<IpAddr>,
    /// The only interface, or VRF, that it uses; routing decides where absent. That of an unnumbered peer is part of its address.
    pub interface: Option<String>,
    /// How far away the peer may be.
    pub ttl: Ttl,
    /// The peer dials us, we never dial it.
    pub passive: bool,
    /// The file with the TCP-MD5 key (RFC 2385); segments are not signed where absent.
    pub password_file: Option<PathBuf>,
    /// The keys of TCP-AO (RFC 5925), the preferred one first; not together with TCP-MD5. Segments are not signed where there is none.
    pub ao_keys: Vec<AoKey>,
}

impl Transport {
    /// The files with the keys of the connection.
    pub fn key_files(&self) -> impl Iterator<Item = &PathBuf> {
        self.password_file.iter().chain(self.ao_keys.iter().map(|key| &key.password_file))
    }
}

/// A master key tuple (RFC 5925 §3.1).
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct AoKey {
    /// SendID: the KeyID of our segments.
    pub send_id: u8,
    /// RecvID: the KeyID of the peer's.
    pub recv_id: u8,
    /// How segments are signed.
    pub algorithm: AoAlgorithm,
    /// The file with the master key.
    pub password_file: PathBuf,
}

/// How segments are signed with TCP-AO (RFC 5926 §2.2).
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum AoAlgorithm {
    /// HMAC-SHA-1-96.
    #[default]
    HmacSha1,
    /// AES-128-CMAC-96.
    Aes128Cmac,
}

/// How far away a peer may be.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Ttl {
    /// An external peer on a common link, TTL 1; an internal peer anywhere, the TTL of the system.
    #[default]
    Customary,
    /// So many hops: our packets have this TTL.
    Multihop(u8),
    /// At most so many hops, and packets from farther away are dropped: ours have TTL 255 (RFC 5082).
    Security {
        /// 1 on a common link.
        hops: u8,
    },
}

/// Times of the way out.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct DrainTimes {
    /// From the announcement of all as the last resort (RFC 8326) to the withdrawal; 0 where there is no such announcement.
    pub graceful_shutdown: Duration,
    /// From the acknowledged withdrawal to the removal of the address: how long the fabric needs to move the flows.
    pub fabric_delay: Duration,
    /// After this a peer that does not acknowledge no longer holds up the removal.
    pub timeout: Duration,
}

/// Something that takes no part, and why. Shown on the object, in an Event and in `vipherald show vips`.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Rejection {
    /// What is refused: an object, or a place in a file.
    pub subject: Subject,
    /// A CamelCase word for machines.
    pub reason: RejectionReason,
    /// For the person who has to mend it: what was found, what was expected, what stays in force.
    pub message: String,
}

impl Rejection {
    /// A rejection of a whole object, or of some part of it that the message names.
    #[must_use]
    pub fn object(object: &ObjectRef, reason: RejectionReason, message: impl Into<String>) -> Self {
        Self { subject: Subject::Object { object: object.clone(), vip: None }, reason, message: message.into() }
    }
}

/// What a rejection is about. Prints as `Service default/nginx 10.0.0.7` or `nginx.yaml document 2`.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Subject {
    /// A whole object or, with a VIP, one address of it.
    Object {
        /// The object.
        object: ObjectRef,
        /// The address refused, where it is not the whole object.
        vip: Option<IpAddr>,
    },
    /// A document of a manifest file, counted from 1; without one the whole file.
    File {
        /// Path below the manifest directory.
        file: String,
        /// Which document.
        document: Option<usize>,
    },
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Object { object, vip: None } => write!(f, "{object}"),
            Self::Object { object, vip: Some(vip) } => write!(f, "{object} {vip}"),
            Self::File { file, document: None } => f.write_str(file),
            Self::File { file, document: Some(document) } => write!(f, "{file} document {document}"),
        }
    }
}

/// The machine's word for a rejection. More appear with what they are about.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd, Serialize, Deserialize)]
pub enum RejectionReason {
    /// The file or the directory cannot be read.
    Unreadable,
    /// The file or document is not YAML, or not an object of its kind.
    Malformed,
    /// Two documents of the same kind, namespace and name.
    Duplicate,
    /// A field holds what this version cannot honour.
    Invalid,
    /// `vips.allow` does not cover the address.
    NotAllowed,
    /// The address is one of a node, pod, Service, peer or gateway, or one that no VIP may be.
    ReservedAddress,
    /// An older object has the same VIP and port.
    Conflict,
    /// The object names a Service that is not there.
    ServiceNotFound,
    /// The object names a policy that is not in `bgp.policies`.
    PolicyNotFound,
}

/// What [`compile`] makes of a snapshot.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Compiled {
    /// What this node should do.
    pub desired: Desired,
    /// What takes no part in it, in order and without repetition; those of the source are among them.
    pub rejections: Vec<Rejection>,
}

/// Compiles the intent for this node.
#[must_use]
pub fn compile(snapshot: &Snapshot, config: &Config) -> Compiled {
    let mut rejections = snapshot.rejections.clone();
    let mut claimants = claimants(snapshot, config.dataplane, &mut rejections);
    refuse_addresses(&mut claimants, snapshot, config, &mut rejections);
    settle_conflicts(&mut claimants, &mut rejections);
    let mut vips = intents(&claimants, snapshot, config, &mut rejections);
    choose_policies(&claimants, &config.routing, &mut vips, &mut rejections);
    rejections.sort();
    rejections.dedup();
    let desired = Desired {
        complete: snapshot.complete,
        lifecycle: Lifecycle::Run,
        vips,
        found: found(config),
        bgp: config.bgp.clone(),
        routing: config.routing.clone(),
        drain: config.drain,
    };
    Compiled { desired, rejections }
}

/// What is announced as it is found: with dataplane `none`, what `vips.allow` gives to every namespace.
fn found(config: &Config) -> Vec<Prefix> {
    match config.dataplane {
        Dataplane::KubeProxy => Vec::new(),
        Dataplane::None => {
            let allowed = config.vips.allow.iter().flatten();
            allowed.filter(|allowed| allowed.namespaces.is_empty()).map(|allowed| allowed.prefix).collect()
        }
    }
}

/// Takes from each claimant the VIPs that it may not have.
fn refuse_addresses(claimants: &mut [Claimant<'_>], snapshot: &Snapshot, config: &Config, rejections: &mut Vec<Rejection>) {
    let reserved = Reserved::new(snapshot, config, &wanted(claimants), rejections);
    for claimant in claimants {
        for vip in claimant.vips.keys().copied().collect::<Vec<_>>() {
            let holder = || reserved.holder(vip, claimant.object, claimant.created);
            if let Some(why) = unfit(vip).map(Into::into).or_else(holder) {
                claimant.refuse(vip, RejectionReason::ReservedAddress, &format!("{vip} {why}"), rejections);
            } else if let Some(why) = not_allowed(vip, &claimant.object.namespace, &config.vips) {
                claimant.refuse(vip, RejectionReason::NotAllowed, &why, rejections);
            }
        }
    }
}

/// The intent for each VIP that some claimant has.
fn intents(
    claimants: &[Claimant<'_>],
    snapshot: &Snapshot,
    config: &Config,
    rejections: &mut Vec<Rejection>,
) -> BTreeMap<IpAddr, DesiredVip> {
    let slices = Slices::new(snapshot, &config.node_name);
    let ours = wanted(claimants);
    let mut owners: BTreeMap<IpAddr, BTreeSet<ObjectRef>> = BTreeMap::new();
    let mut available: BTreeMap<IpAddr, Availability> = BTreeMap::new();
    for claimant in claimants.iter().filter(|claimant| !claimant.vips.is_empty()) {
        let behind = match &claimant.balanced {
            Balanced::Elsewhere(service, ports) => Some(slices.behind(claimant.object, service, ports, &ours, rejections)),
            Balanced::Nowhere => None,
        };
        for vip in claimant.vips.keys() {
            owners.entry(*vip).or_default().insert(claimant.object.clone());
            if let Some(found) = behind.map(|behind| behind.address(*vip)) {
                let best = available.entry(*vip).or_insert(found);
                *best = found.max(*best);
            }
        }
    }
    let intent = |vip| match available.get(&vip).map(|available| available.reason()) {
        None => VipIntent::Withhold(WithholdReason::NeedsDataplane),
        Some(None) => VipIntent::Serve { without_endpoints: false },
        Some(Some(_)) if config.vips.without_endpoints == WithoutEndpoints::Announce => VipIntent::Serve { without_endpoints: true },
        Some(Some(reason)) => VipIntent::Withhold(reason),
    };
    owners.into_iter().map(|(vip, owners)| (vip, DesiredVip { owners, intent: intent(vip), policy: None })).collect()
}

/// Gives each VIP the policy that its oldest claimant asks for which asks for any.
fn choose_policies(
    claimants: &[Claimant<'_>],
    routing: &Routing,
    vips: &mut BTreeMap<IpAddr, DesiredVip>,
    rejections: &mut Vec<Rejection>,
) {
    let mut asking: Vec<_> = claimants.iter().filter_map(|claimant| Some((claimant, claimant.policy?))).collect();
    asking.sort_by_key(|(claimant, _)| claimant.age());
    let mut chosen: BTreeMap<IpAddr, &Claimant<'_>> = BTreeMap::new();
    for (claimant, policy) in asking {
        for vip in claimant.vips.keys() {
            let Some(desired) = vips.get_mut(vip) else { continue };
            let winner = *chosen.entry(*vip).or_insert(claimant);
            let subject = Subject::Object { object: claimant.object.clone(), vip: Some(*vip) };
            let asked = desired.policy.get_or_insert_with(|| policy.to_owned());
            if asked != policy {
                let message = format!("{POLICY_KEY}: {} asks for policy {} of {vip}, and comes first", winner.object, quoted(asked));
                rejections.push(Rejection { subject, reason: RejectionReason::Conflict, message });
            } else if !routing.policies.contains_key(policy) {
                let message = unknown_policy(policy, *vip, routing);
                rejections.push(Rejection { subject, reason: RejectionReason::PolicyNotFound, message });
            }
        }
    }
}

fn unknown_policy(policy: &str, vip: IpAddr, routing: &Routing) -> String {
    let known: Vec<&str> = routing.policies.keys().map(String::as_str).collect();
    let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
    format!(
        "{POLICY_KEY}: there is no policy {} in bgp.policies, which has {known}; {vip} stays announced as it is, and is not announced anew",
        quoted(policy)
    )
}

#[cfg(test)]
mod tests;
