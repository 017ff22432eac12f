// SPDX-License-Identifier: Apache-2.0
//! Goldens of the planner: each directory of `tests/plan` holds an `input.yaml` (the rule in a comment, intent and observation, times counted from
//! now) and the plan that must come of it, `expected.txt`. `UPDATE_GOLDENS=1` writes the latter anew; the difference is reviewed like code.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "common/policies.rs"]
mod policies;
#[path = "common/routers.rs"]
mod routers;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bgp::rib::Route;
use bgp::{Asn, Family, Prefix};
use ipvs::{Timeouts, Weight};
use policies::PolicyInput;
use routers::RoutersInput;
use serde::Deserialize;
use vipherald::api::{Kind, ObjectRef, PortRange, Scheduler};
use vipherald::desired::{
    BalancerKind, Desired, DesiredBalancing, DesiredBgp, DesiredPeer, DesiredVip, DesiredVirtualService, DrainTimes, Filter, Lifecycle,
    RouteSet, Rules, Scheduling, ServiceKey, UnservedPorts, VipIntent, WithholdReason,
};
use vipherald::observed::{
    ADDRESS_PROTOCOL, Announcement, Balancer, Failure, Forgotten, InterfaceState, IpvsAvailability, KernelState, Links, Loss, Observed,
    ObservedAddress, ObservedRealServer, ObservedSpeaker, ObservedVirtualService, Record, RetiredRange, ServiceMode, Since,
};
use vipherald::plan::{StepKey, has_left, plan};
use vipherald::sysctl::{InterfaceSetting, Sysctl};

#[test]
fn every_case_plans_as_written() {
    let update = std::env::var_os("UPDATE_GOLDENS").is_some();
    let cases = cases();
    assert!(cases.len() >= 20, "only {} cases found", cases.len());
    let mut failed = Vec::new();
    for case in cases {
        let printed = run(&case);
        let golden = case.join("expected.txt");
        if update {
            fs::write(&golden, &printed).unwrap();
        } else if fs::read_to_string(&golden).unwrap_or_default() != printed {
            failed.push(format!("{}:\n{printed}", golden.display()));
        }
    }
    assert!(failed.is_empty(), "these plans are not as written (UPDATE_GOLDENS=1 accepts them):\n{}", failed.join("\n"));
}

fn cases() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/plan");
    let mut cases: Vec<PathBuf> = fs::read_dir(root).unwrap().map(|entry| entry.unwrap().path()).collect();
    cases.sort();
    cases
}

fn run(case: &Path) -> String {
    let text = fs::read_to_string(case.join("input.yaml")).unwrap_or_else(|error| panic!("{}: {error}", case.display()));
    let input: Input = serde_saphyr::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", case.display()));
    // Times before now must not fall before the clock's own beginning.
    let now = Instant::now() + Duration::from_secs(3600);
    let desired = input.desired.typed();
    let observed = input.observed.typed(&desired, now);
    let over = if has_left(&desired, &observed) { "drained\n" } else { "" };
    format!("{}{over}", plan(&desired, &observed, now).display(now))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Input {
    #[serde(default)]
    desired: DesiredInput,
    #[serde(default)]
    observed: ObservedInput,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "camelCase")]
struct DesiredInput {
    /// Where given, we balance.
    services: Option<BTreeMap<String, String>>,
    /// By nft.
    nftables: bool,
    /// Of some of them.
    filters: BTreeMap<String, String>,
    fwmark_from: Option<u32>,
    /// tcp, tcpFin and udp, in seconds.
    timeouts: [u32; 3],
    serve: Vec<IpAddr>,
    withhold: Vec<IpAddr>,
    found: Vec<IpAddr>,
    complete: bool,
    drain: bool,
    standby: bool,
    keep: bool,
    /// Where given, there is a group of virtual routers for VIPs.
    mode: Option<String>,
    peers: Vec<String>,
    graceful_shutdown: Time,
    fabric_delay: Time,
    timeout: Time,
    /// Each policy has one community, and may be for some peers only.
    policies: BTreeMap<String, PolicyInput>,
    /// What each of these VIPs asks for.
    asks: BTreeMap<IpAddr, String>,
    /// `announce` or `suppress`, and a policy.
    aggregates: BTreeMap<String, String>,
}

impl Default for DesiredInput {
    fn default() -> Self {
        Self {
            services: None,
            nftables: false,
            filters: BTreeMap::new(),
            fwmark_from: None,
            timeouts: [0; 3],
            serve: Vec::new(),
            withhold: Vec::new(),
            found: Vec::new(),
            complete: true,
            drain: false,
            standby: false,
            keep: false,
            mode: None,
            peers: vec!["rr1".to_owned()],
            graceful_shutdown: Time(Duration::ZERO),
            fabric_delay: Time(Duration::from_secs(1)),
            timeout: Time(Duration::from_secs(25)),
            policies: BTreeMap::new(),
            asks: BTreeMap::new(),
            aggregates: BTreeMap::new(),
        }
    }
}

impl DesiredInput {
    fn typed(self) -> Desired {
        let routing = policies::routing(self.policies, &self.aggregates);
        let vip = |intent| DesiredVip { owners: BTreeSet::new(), intent, policy: None };
        let serve = self.serve.into_iter().map(|address| (address, vip(VipIntent::Serve { without_endpoints: false })));
        let withhold = self.withhold.into_iter().map(|address| (address, vip(VipIntent::Withhold(WithholdReason::NoEndpoints))));
        let mut vips: BTreeMap<_, _> = serve.chain(withhold).collect();
        for (address, policy) in self.asks {
            vips.get_mut(&address).unwrap().policy = Some(policy);
        }
        Desired {
            complete: self.complete,
            lifecycle: match (self.drain, self.standby, self.keep) {
                (true, ..) => Lifecycle::Drain,
                (false, true, _) => Lifecycle::Standby,
                (false, false, true) => Lifecycle::Keep,
                (false, false, false) => Lifecycle::Run,
            },
            vips,
            balancing: self.services.map(|services| DesiredBalancing {
                timeouts: timeouts(self.timeouts),
                ..balancing(services, &self.filters, self.fwmark_from, self.nftables)
            }),
            found: self.found.into_iter().map(Prefix::host).collect(),
            bgp: neighbours(&self.peers),
            routing,
            vrrp: routers::routing(self.mode.as_deref()),
            real_server_drain: Duration::from_secs(30),
            drain: DrainTimes { graceful_shutdown: self.graceful_shutdown.0, fabric_delay: self.fabric_delay.0, timeout: self.timeout.0 },
        }
    }
}

/// A prefix, or the host prefix of an address.
const fn timeouts([tcp, tcp_fin, udp]: [u32; 3]) -> Timeouts {
    Timeouts { tcp, tcp_fin, udp }
}

fn settings(values: [u8; 3]) -> BTreeMap<InterfaceSetting, u8> {
    InterfaceSetting::ALL.into_iter().zip(values).collect()
}

fn prefix(text: &str) -> Prefix {
    match text.split_once('/') {
        Some((address, length)) => Prefix::new(address.parse().unwrap(), length.parse().unwrap()).unwrap(),
        None => Prefix::host(text.parse().unwrap()),
    }
}

/// `10.0.0.1`, `10.0.0.1 with 65001` (a community), `10.0.0.1 to rr1` (only), `10.0.0.1 shutting down`, or `10.0.0.1 aggregated`.
fn advertised(texts: &[String]) -> RouteSet {
    let mut set = RouteSet::default();
    for text in texts {
        let (announced, how) = text.split_once(' ').unwrap_or((text, ""));
        let route = match how.split_once(' ') {
            _ if how == "aggregated" => {
                set.covered.insert(announced.parse().unwrap());
                continue;
            }
            Some(("with", community)) => Route { communities: BTreeSet::from([community.parse().unwrap()]), ..Route::originated() },
            Some(("to", peer)) => Route { peers: Some(Arc::new(BTreeSet::from([peer.to_owned()]))), ..Route::originated() },
            Some(("shutting", "down")) => Route::originated().shutting_down(),
            _ => Route::originated(),
        };
        set.routes.insert(prefix(announced), Arc::new(route));
    }
    set
}

fn neighbours(names: &[String]) -> DesiredBgp {
    let peer = DesiredPeer {
        families: BTreeSet::from([Family::Ipv4Unicast]),
        ..DesiredPeer::new("192.0.2.254".parse().unwrap(), Asn::new(65001).unwrap())
    };
    let peers = names.iter().map(|name| (name.clone(), peer.clone())).collect();
    DesiredBgp { peers, ..DesiredBgp::new(Asn::new(65001).unwrap()) }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "camelCase")]
struct ObservedInput {
    started: Time,
    /// `address[/length] setter`, the setter being `ours`, `none` or a protocol number.
    interface: Vec<String>,
    /// `up`, `down` or `missing`.
    state: String,
    protocols: bool,
    elsewhere: BTreeSet<IpAddr>,
    /// Whether the table exists; of itself where something is in it.
    record: bool,
    pending: BTreeSet<IpAddr>,
    confirmed: BTreeSet<IpAddr>,
    advertised: Option<Vec<String>>,
    withdrawing: Vec<String>,
    /// The neighbours in force.
    peers: Option<Vec<String>>,
    open_sessions: usize,
    /// `withdrawn 3s`: for how long; what is advertised is so since the start.
    announcements: BTreeMap<String, String>,
    /// `address 10.0.0.1: 3 1s 2s`: how often, how long ago, and, where that is something else, how long ago first.
    failures: BTreeMap<String, String>,
    ipvs: bool,
    services: BTreeMap<String, String>,
    pending_services: Vec<String>,
    confirmed_services: Vec<String>,
    /// To the ports of which nothing is let in.
    closed: Vec<String>,
    /// Recorded as ours in IPVS, beside what nft has.
    in_ipvs: Vec<String>,
    marks: BTreeMap<String, u32>,
    /// What the record has of them, `TCP 10.0.0.1 by 64`.
    record_retired: BTreeSet<String>,
    /// What IPVS has of them.
    retired: BTreeMap<String, String>,
    /// How long they have had no ports.
    retirements: BTreeMap<String, Time>,
    foreign: Vec<String>,
    /// By this process.
    made: Vec<String>,
    foreign_marks: BTreeSet<u32>,
    /// Whether they are as they should be; where we do not balance, there are none by default.
    rules: Option<bool>,
    /// Whether they are those of the other dataplane.
    former_rules: bool,
    /// Whether they leave new connections to somebody else.
    handing_over: bool,
    /// What that one has.
    former: BTreeMap<String, String>,
    sysctls: BTreeMap<String, String>,
    /// tcp, tcpFin and udp, in seconds: as they are, and as this process gave them.
    timeouts: Option<[u32; 3]>,
    given: [u32; 3],
    /// arp_ignore, arp_announce and rp_filter of external interfaces.
    external: BTreeMap<String, [u8; 3]>,
    /// What is behind a next hop; all else is on a link.
    routed: Vec<String>,
    broadcast: BTreeSet<IpAddr>,
    /// What another instance has recorded.
    claimed: BTreeSet<IpAddr>,
    taken: Vec<String>,
    /// What was left to another instance which has it no more.
    orphaned: BTreeSet<IpAddr>,
    quiesced: BTreeMap<String, Time>,
    /// `3 1s`: how often, and how long ago.
    losses: BTreeMap<String, String>,
    /// What of a virtual service nft admits, as `sources` of the intent.
    filters: BTreeMap<String, String>,
    /// Of which the connection table may have something from before they served.
    begun: BTreeSet<String>,
    routers: RoutersInput,
    /// For how long the kernel cannot be read.
    unreadable: Option<Time>,
    /// Some peer is yet to be told of the set.
    behind: bool,
}

impl Default for ObservedInput {
    fn default() -> Self {
        Self {
            started: Time(Duration::from_secs(60)),
            interface: Vec::new(),
            state: "up".to_owned(),
            protocols: true,
            elsewhere: ["192.0.2.10", "2001:db8:ffff::10"].map(|own| own.parse().unwrap()).into(),
            record: false,
            pending: BTreeSet::new(),
            confirmed: BTreeSet::new(),
            advertised: None,
            withdrawing: Vec::new(),
            peers: None,
            open_sessions: 0,
            announcements: BTreeMap::new(),
            failures: BTreeMap::new(),
            ipvs: true,
            services: BTreeMap::new(),
            pending_services: Vec::new(),
            confirmed_services: Vec::new(),
            in_ipvs: Vec::new(),
            closed: Vec::new(),
            marks: BTreeMap::new(),
            record_retired: BTreeSet::new(),
            retired: BTreeMap::new(),
            retirements: BTreeMap::new(),
            foreign: Vec::new(),
            made: Vec::new(),
            foreign_marks: BTreeSet::new(),
            rules: None,
            former_rules: false,
            handing_over: false,
            former: BTreeMap::new(),
            sysctls: BTreeMap::new(),
            timeouts: None,
            given: [0; 3],
            external: BTreeMap::new(),
            routed: Vec::new(),
            broadcast: BTreeSet::new(),
            claimed: BTreeSet::new(),
            taken: Vec::new(),
            orphaned: BTreeSet::new(),
            quiesced: BTreeMap::new(),
            losses: BTreeMap::new(),
            filters: BTreeMap::new(),
            begun: BTreeSet::new(),
            routers: RoutersInput::default(),
            unreadable: None,
            behind: false,
        }
    }
}

impl ObservedInput {
    /// As it must be, where nothing else is said.
    fn sysctl(&self, setting: Sysctl) -> String {
        self.sysctls.get(&setting.to_string()).cloned().unwrap_or_else(|| setting.wanted().to_owned())
    }

    fn typed(self, desired: &Desired, now: Instant) -> Observed {
        let started = now - self.started.0;
        let set = self.advertised.as_deref().map(advertised);
        let since_the_start = set.iter().flat_map(|set| {
            let hosts = set.covered.iter().copied().map(Prefix::host);
            set.prefixes().chain(hosts).map(|prefix| (prefix, Since { value: Announcement::Advertised, since: started }))
        });
        let others = self.announcements.iter().map(|(text, state)| (prefix(text), announcement(state, now)));
        let announcements = since_the_start.chain(others).collect();
        let interface = match self.state.as_str() {
            "up" => InterfaceState::Up,
            "down" => InterfaceState::Down,
            "missing" => InterfaceState::Missing,
            other => panic!("{other} is no state"),
        };
        let serve_on: BTreeSet<ServiceKey> =
            self.services.keys().filter(|text| !self.begun.contains(*text)).map(|text| service_key(text)).collect();
        let mut observed = Observed {
            kernel: KernelState {
                external: self.external.iter().map(|(name, values)| (name.clone(), settings(*values))).collect(),
                links: Links {
                    direct: ["0.0.0.0/0", "::/0"].map(prefix).into(),
                    routed: self.routed.iter().map(|text| prefix(text)).collect(),
                    broadcast: self.broadcast.clone(),
                },
                sysctls: Sysctl::ALL.into_iter().chain(Sysctl::FOR_MOVED_FLOWS).map(|setting| (setting, self.sysctl(setting))).collect(),
                interface,
                addresses: self.interface.iter().map(|text| address(text)).collect(),
                address_protocols: self.protocols,
                claimed_by_others: self.claimed,
                orphaned: self.orphaned,
                gateways: BTreeSet::new(),
                unusable: BTreeSet::new(),
                elsewhere: self.elsewhere,
                record: Record {
                    exists: self.record || !self.pending.is_empty() || !self.confirmed.is_empty() || !self.confirmed_services.is_empty(),
                    pending: self.pending,
                    confirmed: self.confirmed,
                    pending_services: self.pending_services.iter().map(|text| service_key(text)).collect(),
                    confirmed_services: self.confirmed_services.iter().map(|text| service_key(text)).collect(),
                    closed: self.closed.iter().map(|text| service_key(text)).collect(),
                    in_ipvs: self.in_ipvs.iter().map(|text| service_key(text)).collect(),
                    filters: self.filters.iter().map(|(text, words)| (service_key(text), filter(words))).collect(),
                    retired: self.record_retired.iter().map(|text| retired(text)).collect(),
                    marks: self.marks.iter().map(|(text, mark)| (service_key(text), *mark)).collect(),
                    pending_daemons: BTreeSet::new(),
                    confirmed_daemons: BTreeSet::new(),
                    rules: if self.handing_over {
                        Rules::handing_over().fingerprint()
                    } else if self.rules.unwrap_or_else(|| desired.balancing.is_some()) {
                        let nftables = desired.balancing.as_ref().is_some_and(|balancing| balancing.rules.translates());
                        rules(nftables != self.former_rules).fingerprint()
                    } else {
                        Vec::new()
                    },
                },
                kube_proxy_in_ipvs_mode: false,
                balancer: Balancer {
                    availability: if self.ipvs { IpvsAvailability::Available } else { IpvsAvailability::Missing },
                    foreign: self.foreign.iter().map(|text| service_key(text)).collect(),
                    made: self.made.iter().map(|text| service_key(text)).collect(),
                    taken: self.taken.iter().map(|text| service_key(text)).collect(),
                    foreign_marks: self.foreign_marks,
                    timeouts: self.timeouts.map(timeouts),
                    given_timeouts: timeouts(self.given),
                    daemons: BTreeMap::new(),
                    started_daemons: BTreeSet::new(),
                    foreign_daemons: BTreeSet::new(),
                    retired: self.retired.iter().map(|(text, service)| (retired(text), observed_service(service))).collect(),
                    former: self.former.iter().map(|(text, service)| (service_key(text), observed_service(service))).collect(),
                    services: self.services.iter().map(|(text, service)| (service_key(text), observed_service(service))).collect(),
                },
            },
            retirements: self.retirements.iter().map(|(text, since)| (retired(text), now - since.0)).collect(),
            quiesced: self.quiesced.iter().map(|(text, since)| quiesced(text, since.0, now)).collect(),
            forgotten: Forgotten::default(),
            losses: self.losses.iter().map(|(text, loss)| (service_key(text), typed_loss(loss, now))).collect(),
            announcements,
            started: Some(started),
            unreadable_since: self.unreadable.map(|Time(time)| now - time),
            failures: self.failures.iter().map(|(key, text)| failure(key, text, now)).collect(),
            removed: BTreeSet::new(),
            refused: BTreeMap::new(),
            speaker: ObservedSpeaker {
                advertised: set.map(Arc::new),
                configured: self.peers.map(|names| Arc::new(DesiredBgp { asn: desired.bgp.asn, ..neighbours(&names) })),
                withdrawing: self.withdrawing.iter().map(|text| prefix(text)).collect(),
                open_sessions: self.open_sessions,
                behind: self.behind,
                established: true,
            },
            virtual_routers: self.routers.typed(desired),
        };
        observed.forgotten.note(serve_on, &observed.kernel.record);
        observed
    }
}

fn rules(nftables: bool) -> Rules {
    let balancer = if nftables { BalancerKind::Nftables } else { BalancerKind::Ipvs };
    Rules { balancer, unserved_ports: UnservedPorts::Drop, first_mark: 64, ..Rules::default() }
}

fn balancing(
    services: BTreeMap<String, String>,
    filters: &BTreeMap<String, String>,
    first_mark: Option<u32>,
    nftables: bool,
) -> DesiredBalancing {
    let filter_of = |text: &String| filters.get(text).map(|words| filter(words)).unwrap_or_default();
    let service = |text: &String, service: &String| DesiredVirtualService { filter: filter_of(text), ..desired_service(service) };
    let services = services.iter().map(|(text, words)| (service_key(text), service(text, words))).collect();
    let rules = Rules { first_mark: first_mark.unwrap_or(64), ..rules(nftables) };
    DesiredBalancing {
        services,
        rules,
        set_sysctls: true,
        timeouts: Timeouts::default(),
        gue_port: 6080,
        sync: BTreeMap::new(),
        external_interface: None,
    }
}

fn typed_loss(text: &str, now: Instant) -> Loss {
    let (count, last) = text.split_once(' ').unwrap();
    Loss { count: count.parse().unwrap(), last: now - humantime::parse_duration(last).unwrap() }
}

/// `preserving`, or prefixes, with spaces between; `nobody` for none.
fn filter(text: &str) -> Filter {
    let mut filter = Filter::NONE;
    for word in text.split_whitespace() {
        match word {
            "preserving" => filter.preserves_client = true,
            "nobody" => drop(filter.sources.get_or_insert_default()),
            _ => drop(filter.sources.get_or_insert_default().insert(prefix(word))),
        }
    }
    filter
}

/// `TCP 10.0.0.1:80` or `UDP [2001:db8::1]:1000-1999`.
fn service_key(text: &str) -> ServiceKey {
    let (protocol, at) = text.split_once(' ').unwrap();
    let (vip, ports) = at.rsplit_once(':').unwrap();
    let (first, last) = ports.split_once('-').unwrap_or((ports, ports));
    ServiceKey {
        vip: vip.trim_matches(['[', ']']).parse().unwrap(),
        protocol: protocol.to_lowercase().parse().unwrap(),
        ports: PortRange::new(first.parse().unwrap(), last.parse().unwrap()).unwrap(),
    }
}

/// `TCP 10.0.0.1 by 64`.
fn retired(text: &str) -> RetiredRange {
    let words: Vec<&str> = text.split(' ').collect();
    let [protocol, vip, "by", mark] = words.as_slice() else { panic!("{text} is none") };
    RetiredRange { vip: vip.parse().unwrap(), protocol: protocol.to_lowercase().parse().unwrap(), mark: mark.parse().unwrap() }
}

/// A scheduler, and servers with their weights: `lc 10.1.0.1:80=1 10.1.0.2:80=0`.
fn desired_service(text: &str) -> DesiredVirtualService {
    let (scheduler, servers) = text.split_once(' ').unwrap_or((text, ""));
    let (scheduler, forwarding) = scheduler.split_once('/').unwrap_or((scheduler, "nat"));
    let server = |text: &str| {
        let (address, weight) = text.split_once('=').unwrap();
        (address.parse().unwrap(), Weight(weight.parse().unwrap()))
    };
    DesiredVirtualService {
        owner: ObjectRef { kind: Kind::EricIngress, namespace: "default".to_owned(), name: "a".to_owned() },
        scheduling: Scheduling::of(scheduler.parse().unwrap()),
        forwarding: forwarding.parse().unwrap(),
        real_servers: servers.split_whitespace().map(server).collect(),
        filter: Filter::NONE,
    }
}

/// As [`desired_service`], in the order of the kernel; after a slash the connections of a server: `lc 10.1.0.1:80=0/5`. `foreign` is a mode that is never
/// ours.
fn observed_service(text: &str) -> ObservedVirtualService {
    let (scheduler, servers) = text.split_once(' ').unwrap_or((text, ""));
    let (scheduler, forwarding) = scheduler.split_once('/').unwrap_or((scheduler, "nat"));
    let server = |text: &str| {
        let (address, state) = text.split_once('=').unwrap();
        let (weight, connections) = state.split_once('/').unwrap_or((state, "0"));
        ObservedRealServer {
            address: address.parse().unwrap(),
            forwarding: Some(forwarding.parse().unwrap()),
            weight: Weight(weight.parse().unwrap()),
            connections: connections.parse().unwrap(),
        }
    };
    let mode = (scheduler != "foreign").then(|| {
        let scheduler = scheduler.parse().unwrap();
        ServiceMode { scheduling: Scheduling::of(scheduler), fallback: scheduler == Scheduler::MaglevHashing }
    });
    ObservedVirtualService { mode, real_servers: servers.split_whitespace().map(server).collect() }
}

/// A service and a server with an arrow between: `TCP 10.0.0.1:80 -> 10.1.0.1:80`.
fn quiesced(text: &str, ago: Duration, now: Instant) -> ((ServiceKey, SocketAddr), Instant) {
    let (service, server) = text.split_once(" -> ").unwrap();
    ((service_key(service), server.parse().unwrap()), now - ago)
}

fn address(text: &str) -> (IpAddr, ObservedAddress) {
    let (address, setter) = text.split_once(' ').unwrap();
    let (address, length) = address.split_once('/').unwrap_or((address, ""));
    let address: IpAddr = address.parse().unwrap();
    let prefix_length = if length.is_empty() { Prefix::host(address).length() } else { length.parse().unwrap() };
    let protocol = match setter {
        "ours" => Some(ADDRESS_PROTOCOL),
        "none" => None,
        number => Some(number.parse().unwrap()),
    };
    (address, ObservedAddress { prefix_length, protocol })
}

fn announcement(text: &str, now: Instant) -> Since<Announcement> {
    let (value, since) = text.split_once(' ').unwrap();
    let value = match value {
        "shutting-down" => Announcement::ShuttingDown,
        "withdrawing" => Announcement::Withdrawing,
        "withdrawn" => Announcement::Withdrawn,
        other => panic!("{other} is no announcement"),
    };
    Since { value, since: now - humantime::parse_duration(since).unwrap() }
}

fn failure(key: &str, text: &str, now: Instant) -> (StepKey, Failure) {
    let key = match key.split_once(' ') {
        Some(("address", address)) => StepKey::Address(address.parse().unwrap()),
        Some(("sysctl", name)) => StepKey::Sysctl(Sysctl::each().find(|setting| setting.to_string() == name).unwrap()),
        Some(("service", service)) => StepKey::VirtualService(service_key(service)),
        None if key == "advertise" => StepKey::Advertise,
        None if key == "record" => StepKey::Record,
        None if key == "speaker" => StepKey::Speaker,
        _ => panic!("{key} is no key"),
    };
    let mut words = text.split(' ');
    let count = words.next().unwrap().parse().unwrap();
    let [last, since] = [words.next(), words.next()].map(|time| time.map(|time| now - humantime::parse_duration(time).unwrap()));
    let last = last.unwrap();
    (key, Failure { error: "refused".to_owned(), count, since: since.unwrap_or(last), last })
}

/// A length of time as `1s 500ms`.
#[derive(Clone, Copy, Deserialize)]
#[serde(try_from = "String")]
struct Time(Duration);

impl TryFrom<String> for Time {
    type Error = humantime::DurationError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        humantime::parse_duration(&text).map(Self)
    }
}
