// SPDX-License-Identifier: Apache-2.0
//! Real BGP speakers for tests, by the binaries of Debian's packages: one file each, behind [`Implementation`].
//!
//! Input: a namespace and the neighbours that the peer is to have. Output: a running peer, of which a test can ask what it learned from each of them and
//! what it has deleted, and which originates what a test wants. Configuration, sockets, logs and what a peer writes to fixed places are private to it; it
//! ends with its value, and nothing of it stays.
#![allow(dead_code, unused_imports, reason = "each test file uses a part of it")]

mod bird;
mod exabgp;
mod frr;
mod gobgp;
mod openbgpd;

use std::collections::BTreeSet;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use bgp::Prefix;
use serde_json::Value;
use tempfile::TempDir;

pub(crate) use exabgp::with_settings as exabgp_with_settings;

use crate::common::{Namespace, Process, run, wait_until};

/// How long a peer may take to start, on a busy machine.
const START: Duration = Duration::from_secs(60);

/// Which peer.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum Software {
    /// CZ.NIC's BIRD.
    Bird,
    /// FRRouting's zebra and bgpd.
    Frr,
    /// GoBGP.
    GoBgp,
    /// OpenBSD's bgpd, in its portable form.
    OpenBgpd,
    /// ExaBGP, which has no table of routes: what it holds is what its JSON lines tell of.
    ExaBgp,
}

impl Software {
    pub(crate) const ALL: [Self; 5] = [Self::Bird, Self::Frr, Self::GoBgp, Self::OpenBgpd, Self::ExaBgp];

    /// Its name, as its makers write it.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Bird => "BIRD",
            Self::Frr => "FRR",
            Self::GoBgp => "GoBGP",
            Self::OpenBgpd => "OpenBGPD",
            Self::ExaBgp => "ExaBGP",
        }
    }

    /// The version that the installed program tells.
    pub(crate) fn version(self) -> String {
        let [program, option] = self.implementation().version();
        let output = Command::new(program).arg(option).output().unwrap_or_else(|error| panic!("cannot run {program}: {error}"));
        let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        let mut words = text.split(|c: char| c.is_whitespace() || c == ',');
        let version = words.find(|word| word.starts_with(|c: char| c.is_ascii_digit()) && word.contains('.'));
        version.unwrap_or_else(|| panic!("{program} tells no version: {text}")).to_owned()
    }

    /// Its configuration on a link that has only link-local addresses: it is in AS 65000, its neighbour in AS 65001, and BIRD dials only whom it is told.
    pub(crate) fn unnumbered(self, ours: Option<Ipv6Addr>) -> String {
        self.implementation().unnumbered(ours)
    }

    fn implementation(self) -> &'static dyn Implementation {
        match self {
            Self::Bird => &bird::Bird,
            Self::Frr => &frr::Frr,
            Self::GoBgp => &gobgp::GoBgp,
            Self::OpenBgpd => &openbgpd::OpenBgpd,
            Self::ExaBgp => &exabgp::ExaBgp,
        }
    }
}

/// The configuration of a peer: one BGP session, for both families, to each neighbour. It helps neighbours over a graceful restart.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    /// Its AS.
    pub(crate) asn: u32,
    /// Its BGP Identifier.
    pub(crate) router_id: Ipv4Addr,
    /// The AS that it expects its neighbours in.
    pub(crate) neighbour_asn: u32,
    /// The neighbours.
    pub(crate) neighbours: Vec<IpAddr>,
    /// The TCP-MD5 key that it demands (RFC 2385).
    pub(crate) password: Option<&'static str>,
    /// It drops packets of neighbours that are more than so many hops away (RFC 5082).
    pub(crate) ttl_security: Option<u8>,
    /// External neighbours may be so many hops away.
    pub(crate) multihop: Option<u8>,
    /// It dials its neighbours; else it may leave that to them.
    pub(crate) dials: bool,
    /// What it announces to its neighbours.
    pub(crate) announced: BTreeSet<Prefix>,
    /// It takes and tells several paths to one destination (RFC 7911).
    pub(crate) add_paths: bool,
    /// Its neighbours are its clients (RFC 4456).
    pub(crate) reflects: bool,
    /// What it is to its neighbours (RFC 9234).
    pub(crate) role: Option<Role>,
    /// It takes messages of more than 4,096 octets (RFC 8654), where it has to be told.
    pub(crate) extended_messages: bool,
    /// It takes IPv6 next hops of IPv4 routes (RFC 8950).
    pub(crate) extended_next_hop: bool,
    /// It keeps routes beyond the restart time as the last resort (RFC 9494).
    pub(crate) long_lived: bool,
    /// What it learns goes into the kernel of its namespace, and next hops are found there. FRR always does so, and of the others only BIRD can.
    pub(crate) forwards: bool,
}

/// A BGP role, in the word that RFC 9234 has for it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Role {
    pub(crate) name: &'static str,
    /// Neighbours must have one too (RFC 9234 §4.2).
    pub(crate) strict: bool,
}

impl Setup {
    pub(crate) fn new(asn: u32, router_id: Ipv4Addr, neighbour_asn: u32, neighbours: impl Into<Vec<IpAddr>>) -> Self {
        Self {
            asn,
            router_id,
            neighbour_asn,
            neighbours: neighbours.into(),
            password: None,
            ttl_security: None,
            multihop: None,
            dials: false,
            announced: BTreeSet::new(),
            add_paths: false,
            reflects: false,
            role: None,
            extended_messages: false,
            extended_next_hop: false,
            long_lived: false,
            forwards: false,
        }
    }

    fn is_internal(&self) -> bool {
        self.asn == self.neighbour_asn
    }

    /// The destinations of one family that it announces.
    fn announced(&self, ipv4: bool) -> impl Iterator<Item = &Prefix> {
        self.announced.iter().filter(move |prefix| prefix.address().is_ipv4() == ipv4)
    }
}

/// One path to a destination, as a peer learned it from one neighbour.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Learned {
    /// The global next hop.
    pub(crate) next_hop: IpAddr,
    /// The link-local one beside it (RFC 2545 §3), where the peer shows it.
    pub(crate) link_local: Option<Ipv6Addr>,
    /// AS_PATH, which is one sequence or empty.
    pub(crate) as_path: Vec<u32>,
    /// ORIGIN is IGP.
    pub(crate) is_igp: bool,
    /// LOCAL_PREF; `None` where the peer shows none of an external neighbour. Some show their own default.
    pub(crate) local_preference: Option<u32>,
    /// MULTI_EXIT_DISC; some peers show 0 for none.
    pub(crate) med: Option<u32>,
    /// COMMUNITIES.
    pub(crate) communities: BTreeSet<u32>,
    /// LARGE_COMMUNITY.
    pub(crate) large_communities: BTreeSet<[u32; 3]>,
    /// ORIGINATOR_ID.
    pub(crate) originator: Option<Ipv4Addr>,
    /// CLUSTER_LIST.
    pub(crate) clusters: Vec<Ipv4Addr>,
    /// ONLY_TO_CUSTOMER (RFC 9234 §5).
    pub(crate) only_to_customer: Option<u32>,
}

impl Learned {
    /// A path of no more than a next hop.
    pub(crate) fn by(next_hop: IpAddr) -> Self {
        Self {
            next_hop,
            link_local: None,
            as_path: Vec::new(),
            is_igp: true,
            local_preference: None,
            med: None,
            communities: BTreeSet::new(),
            large_communities: BTreeSet::new(),
            originator: None,
            clusters: Vec::new(),
            only_to_customer: None,
        }
    }
}

/// The community of a route that is kept as the last resort.
const LLGR_STALE: u32 = 0xFFFF_0006;

/// What the tests need of a peer. What an implementation has no word for fails when it is asked, and [`crate`]'s matrix does not ask.
trait Implementation: Sync {
    /// A command that prints the version of what is installed.
    fn version(&self) -> [&'static str; 2];

    /// The setup in its own words.
    fn configuration(&self, host: &Host, setup: &Setup) -> String;

    /// Starts its processes, the one with the log first.
    fn launch(&self, host: &Host, configuration: &str) -> Vec<Process>;

    /// A command that succeeds once it answers; `None` where it answers to nobody.
    fn probe(&self, host: &Host) -> Option<Command>;

    /// Makes `setup.announced` the whole set that it originates, where it was `before`.
    fn announce(&self, host: &Host, setup: &Setup, before: &BTreeSet<Prefix>);

    /// All paths to the destination as the neighbour told them.
    fn paths(&self, host: &Host, neighbour: IpAddr, prefix: Prefix) -> Vec<Learned>;

    /// How many paths of both families it has from the neighbour.
    fn count(&self, host: &Host, neighbour: IpAddr) -> usize;

    /// How many End-of-RIB markers it has seen of the neighbour, one for each family of each session.
    fn end_of_ribs(&self, host: &Host, log: &str, neighbour: IpAddr) -> usize;

    /// How much the neighbour has told it since it was started; what is told again counts again. Some count UPDATEs, some routes.
    fn updates(&self, host: &Host, neighbour: IpAddr) -> u64;

    /// Makes it ask the neighbour for all routes again (RFC 2918).
    fn ask_for_refresh(&self, host: &Host, neighbour: IpAddr);

    /// The line with which it tells its operator why the neighbour has shut the session down (RFC 9003).
    fn farewell(&self, host: &Host, log: &str, neighbour: IpAddr) -> Option<String>;

    /// Whether it keeps a route of the neighbour as the last resort (RFC 9494 §4.2).
    fn is_stale(&self, host: &Host, neighbour: IpAddr, prefix: Prefix) -> bool {
        self.paths(host, neighbour, prefix).iter().any(|path| path.communities.contains(&LLGR_STALE))
    }

    /// How it tells that a destination left its table, in any order.
    fn deletions(&self, host: &Host, log: &str) -> Vec<String>;

    /// The configuration of a router in AS 65000 with a neighbour in AS 65001 on a link that has only link-local addresses. It dials a neighbour whose
    /// address it is told or finds out.
    fn unnumbered(&self, _ours: Option<Ipv6Addr>) -> String {
        panic!("nothing is known of it on such a link")
    }
}

/// Where a peer lives.
struct Host {
    namespace: String,
    directory: TempDir,
}

impl Host {
    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
    }

    /// A command in its namespace.
    fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.namespace]).arg(program);
        command
    }

    /// A program with mounts that only it sees: `ip netns exec` gives each command a mount namespace.
    fn with_mounts(&self, mounts: &str, program: &str) -> Command {
        let mut command = self.command("sh");
        command.arg("-c").arg(format!("{mounts} && exec \"$0\" \"$@\"")).arg(program);
        command
    }

    /// Its own address on the way to a neighbour. A new one of IPv6 may take a moment to be usable.
    fn address_towards(&self, neighbour: IpAddr) -> IpAddr {
        let mut address = None;
        wait_until(&format!("an address towards {neighbour}"), START, || {
            let routes = json(&run(Command::new("ip").args(["-n", &self.namespace, "-j", "route", "get", &neighbour.to_string()])));
            address =
                parsed::<IpAddr>(&routes[0]["prefsrc"]).filter(|address| !matches!(address, IpAddr::V6(v6) if v6.is_unicast_link_local()));
            address.is_some()
        });
        address.unwrap()
    }

    /// Its own address, as the next hop of a destination that it announces.
    fn next_hop(&self, prefix: Prefix) -> IpAddr {
        let family = if prefix.address().is_ipv4() { "-4" } else { "-6" };
        let links =
            json(&run(Command::new("ip").args(["-n", &self.namespace, "-j", family, "address", "show", "dev", "eth0", "scope", "global"])));
        parsed(&links[0]["addr_info"][0]["local"]).unwrap_or_else(|| panic!("{links}"))
    }
}

/// A running peer.
pub(crate) struct Router {
    software: Software,
    implementation: &'static dyn Implementation,
    configuration: String,
    /// What the configuration was made of, where it is ours.
    setup: Option<Setup>,
    host: Host,
    /// The one with the log first.
    processes: Vec<Process>,
}

impl Router {
    /// Starts it, and waits until it answers.
    pub(crate) fn start(software: Software, namespace: &Namespace, setup: Setup) -> Self {
        let mut router = Self::idle(software, namespace);
        router.configuration = router.implementation.configuration(&router.host, &setup);
        router.setup = Some(setup);
        router.launch();
        router
    }

    /// As [`Self::start`], with a configuration in its own words.
    pub(crate) fn start_with(software: Software, namespace: &Namespace, configuration: &str) -> Self {
        let mut router = Self { configuration: configuration.to_owned(), ..Self::idle(software, namespace) };
        router.launch();
        router
    }

    fn idle(software: Software, namespace: &Namespace) -> Self {
        let directory = TempDir::new().unwrap();
        // FRR's daemons give up root before they make their sockets.
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let host = Host { namespace: namespace.name().to_owned(), directory };
        let implementation = software.implementation();
        Self { software, implementation, configuration: String::new(), setup: None, host, processes: Vec::new() }
    }

    /// Ends it, without any farewell, and starts it again.
    pub(crate) fn restart(&mut self) {
        self.kill();
        self.launch();
    }

    /// As [`Self::restart`], with another setup.
    pub(crate) fn restart_as(&mut self, change: impl FnOnce(&mut Setup)) {
        self.kill();
        let setup = self.setup.as_mut().unwrap();
        change(setup);
        self.configuration = self.implementation.configuration(&self.host, setup);
        self.launch();
    }

    /// Ends it as `kill -9` does.
    pub(crate) fn kill(&mut self) {
        for process in self.processes.drain(..) {
            process.kill();
        }
    }

    /// Makes this the whole set that it announces. It has no configuration of the test's own.
    pub(crate) fn announce(&mut self, set: BTreeSet<Prefix>) {
        let setup = self.setup.as_mut().unwrap();
        let before = std::mem::replace(&mut setup.announced, set);
        self.implementation.announce(&self.host, setup, &before);
    }

    /// All paths to the destination that it learned from the neighbour.
    pub(crate) fn paths(&self, neighbour: IpAddr, prefix: Prefix) -> Vec<Learned> {
        self.implementation.paths(&self.host, neighbour, prefix)
    }

    /// What it learned of the destination from the neighbour.
    pub(crate) fn learned(&self, neighbour: IpAddr, prefix: Prefix) -> Option<Learned> {
        self.paths(neighbour, prefix).into_iter().next()
    }

    /// The global next hops of all paths to the destination that it learned from the neighbour.
    pub(crate) fn next_hops(&self, neighbour: IpAddr, prefix: Prefix) -> BTreeSet<IpAddr> {
        self.paths(neighbour, prefix).into_iter().map(|path| path.next_hop).collect()
    }

    /// How many paths of both families it learned from the neighbour.
    pub(crate) fn count(&self, neighbour: IpAddr) -> usize {
        self.implementation.count(&self.host, neighbour)
    }

    /// How many End-of-RIB markers it has seen of the neighbour since it was started, one for each family of each session.
    pub(crate) fn end_of_ribs(&self, neighbour: IpAddr) -> usize {
        self.implementation.end_of_ribs(&self.host, &self.log(), neighbour)
    }

    /// How much the neighbour has told it; what is told again counts again.
    pub(crate) fn updates(&self, neighbour: IpAddr) -> u64 {
        self.implementation.updates(&self.host, neighbour)
    }

    /// What FRR answers in JSON.
    pub(crate) fn vtysh(&self, line: &str) -> Value {
        frr::vtysh(&self.host, line)
    }

    /// Makes it ask the neighbour for all routes again (RFC 2918).
    pub(crate) fn ask_for_refresh(&self, neighbour: IpAddr) {
        self.implementation.ask_for_refresh(&self.host, neighbour);
    }

    /// What it tells its operator of why the neighbour has shut the session down.
    pub(crate) fn farewell(&self, neighbour: IpAddr) -> Option<String> {
        self.implementation.farewell(&self.host, &self.log(), neighbour)
    }

    /// Whether it keeps a route of the neighbour as the last resort (RFC 9494 §4.2).
    pub(crate) fn is_stale(&self, neighbour: IpAddr, prefix: Prefix) -> bool {
        self.implementation.is_stale(&self.host, neighbour, prefix)
    }

    /// How it tells that destinations left its table.
    pub(crate) fn deletions(&self) -> Vec<String> {
        self.implementation.deletions(&self.host, &self.log())
    }

    /// What it logged since it was started.
    pub(crate) fn log(&self) -> String {
        self.processes.first().map_or_else(String::new, Process::log)
    }

    fn launch(&mut self) {
        self.processes = self.implementation.launch(&self.host, &self.configuration);
        wait_until(&format!("{:?} answers", self.software), START, || {
            for process in &self.processes {
                assert!(process.is_running(), "{:?} has ended:\n{}", self.software, process.log());
            }
            self.implementation
                .probe(&self.host)
                .is_none_or(|mut probe| probe.output().unwrap_or_else(|error| panic!("{probe:?}: {error}")).status.success())
        });
        if let Some(setup) = &self.setup {
            self.implementation.announce(&self.host, setup, &BTreeSet::new());
        }
    }
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

fn items(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn number(value: &Value) -> Option<u32> {
    value.as_u64().and_then(|number| u32::try_from(number).ok())
}

fn numbers(text: &str) -> Vec<u32> {
    text.split_whitespace().map(|number| number.parse().unwrap()).collect()
}

/// A value of JSON that is text and has this form.
fn parsed<T: std::str::FromStr>(value: &Value) -> Option<T> {
    value.as_str().and_then(|text| text.parse().ok())
}

/// A community as `65001:100`, or by the names of those that tests meet.
fn community(text: &str) -> u32 {
    const GRACEFUL_SHUTDOWN: u32 = 0xFFFF_0000;
    let halves = text.split_once(':').and_then(|(high, low)| Some((high.parse::<u16>().ok()?, low.parse::<u16>().ok()?)));
    match (halves, text) {
        (Some((high, low)), _) => u32::from(high) << 16 | u32::from(low),
        (None, "GRACEFUL_SHUTDOWN" | "gracefulShutdown") => GRACEFUL_SHUTDOWN,
        (None, "llgrStale") => LLGR_STALE,
        (None, _) => panic!("{text} is no community"),
    }
}

/// A large community as `4200000001:1:2`.
fn large_community(text: &str) -> [u32; 3] {
    let parts: Vec<u32> = text.split(':').map(|part| part.trim().parse().unwrap()).collect();
    parts.try_into().unwrap_or_else(|_| panic!("{text} is no large community"))
}

/// Lines of a log that contain these words.
fn lines_with(log: &str, words: &[&str]) -> Vec<String> {
    log.lines().filter(|line| words.iter().all(|word| line.contains(word))).map(str::to_owned).collect()
}
