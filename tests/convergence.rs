// SPDX-License-Identifier: Apache-2.0
//! The planner against a world that does not cooperate: steps fail before or after they took effect, the process dies between any two of them, the
//! record is flushed, others add, delete and take over addresses, peers come, go and acknowledge late, intent changes at any time. No notification
//! is ever given; the world is read anew for each plan.
//!
//! The world keeps the truth that the planner cannot see (who really placed an address, since when no peer has a route), and checks each plan and
//! each step against it. When the trouble ends, repeated planning must come to rest in exactly the state that the intent asks for.
//!
//! What no program can decide is left out: an address that somebody else places while our entry for it stands, on a kernel that keeps no protocols;
//! an address replaced by somebody else's within the moment between reading and removing it.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "convergence/checks.rs"]
mod checks;
#[path = "common/record.rs"]
mod record;
#[path = "common/story.rs"]
mod story;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bgp::rib::Route;
use bgp::{Asn, Prefix};
use proptest::prelude::*;
use vipherald::desired::{
    Aggregate, Desired, DesiredBgp, DesiredPeer, DesiredVip, DrainTimes, Lifecycle, Policy, RouteSet, Routing, VipIntent, VirtualRouting,
    WithholdReason,
};
use vipherald::observed::{ADDRESS_PROTOCOL, InterfaceState, KernelState, Observed, ObservedAddress, ObservedSpeaker, Record, stamp};
use vipherald::plan::{Ownership, Plan, Step, StepKey, has_left, ownership, plan};

use self::story::tell;

const VIPS: [&str; 5] = ["10.0.0.1", "10.0.0.2", "10.0.0.3", "2001:db8::1", "2001:db8::2"];
const OWN: &str = "192.0.2.10";
const PEERS: [&str; 2] = ["192.0.2.1", "192.0.2.2"];
const FABRIC_DELAY: Duration = Duration::from_secs(1);
const TIMEOUT: Duration = Duration::from_secs(5);
const GRACEFUL_SHUTDOWN: Duration = Duration::from_secs(2);
/// Aggregates that are there in some stories.
const AGGREGATES: [&str; 2] = ["10.0.0.0", "2001:db8::"];
/// Of these policies only the first is always there, and the second never.
const POLICIES: [&str; 2] = ["gold", "lead"];
/// More rounds than any of these worlds needs to come to rest.
const ROUNDS: usize = 40;

#[test]
fn no_step_breaks_the_promise_and_planning_comes_to_rest() {
    let expected = [
        "add",
        "aggregate taken over",
        "aggregated",
        "adopted",
        "advertise",
        "blocked",
        "configure",
        "confirm",
        "crash between steps",
        "drop",
        "failed",
        "failed after effect",
        "force",
        "graceful shutdown",
        "last of its aggregate",
        "lost while planned",
        "pending",
        "policy in force",
        "remove",
        "removed",
        "stop",
        "unclaimed",
        "withdraw",
        "withdraw before a configuration",
        "configure with a set",
    ];
    let story = (any::<bool>(), prop::collection::vec(op(), 1..50));
    tell(&story, 4271, &expected, |(protocols, ops)| {
        let mut world = World::new(protocols);
        for op in ops {
            world.happen(op);
        }
        world.come_to_rest_in_every_lifecycle();
        world.seen
    });
}

#[derive(Clone, Debug)]
enum Op {
    Intent(IpAddr, Option<VipIntent>, Option<&'static str>),
    /// Which of the aggregates there are, and whether they suppress their VIPs.
    Aggregates([Option<bool>; AGGREGATES.len()]),
    GracefulShutdown(bool),
    Complete(bool),
    Lifecycle(Lifecycle),
    Peers(usize),
    Plan(Trouble),
    Advance(u64),
    AdvanceToWake,
    Acknowledge(usize),
    SessionUp(usize),
    SessionDown(usize),
    Outside(Outside),
    Crash,
}

/// What goes wrong while a plan is carried out.
#[derive(Clone, Debug, Default)]
struct Trouble {
    faults: Vec<Fault>,
    crash_before: Option<usize>,
    outside_before: Option<(usize, Outside)>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Fault {
    None,
    WithoutEffect,
    AfterEffect,
}

/// What others do to the node.
#[derive(Clone, Copy, Debug)]
enum Outside {
    Delete(IpAddr),
    Add(IpAddr, Setter),
    /// As `ip address change` does: the address stays, its protocol goes.
    TakeOver(IpAddr),
    Elsewhere(IpAddr, bool),
    OwnAddress(Place),
    Interface(InterfaceState),
    FlushRecord,
}

/// How somebody else's address differs from ours.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Setter {
    NoProtocol,
    OtherProtocol,
    WiderPrefix,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Place {
    Nowhere,
    Elsewhere,
    Interface,
}

fn op() -> impl Strategy<Value = Op> {
    let intent = prop_oneof![
        1 => Just(None),
        3 => Just(Some(VipIntent::Serve { without_endpoints: false })),
        1 => Just(Some(VipIntent::Withhold(WithholdReason::NoEndpoints))),
    ];
    let policy = prop_oneof![3 => Just(None), 1 => prop::sample::select(POLICIES.to_vec()).prop_map(Some)];
    let aggregate = prop::option::weighted(0.6, any::<bool>());
    let lifecycle = prop_oneof![6 => Just(Lifecycle::Run), 2 => Just(Lifecycle::Drain), 1 => Just(Lifecycle::Standby)];
    prop_oneof![
        5 => (vip(), intent, policy).prop_map(|(vip, intent, policy)| Op::Intent(vip, intent, policy)),
        1 => [aggregate.clone(), aggregate].prop_map(Op::Aggregates),
        1 => any::<bool>().prop_map(Op::GracefulShutdown),
        1 => prop::bool::weighted(0.7).prop_map(Op::Complete),
        1 => lifecycle.prop_map(Op::Lifecycle),
        1 => (0..=PEERS.len()).prop_map(Op::Peers),
        10 => trouble().prop_map(Op::Plan),
        2 => (1_u64..3_000).prop_map(Op::Advance),
        4 => Just(Op::AdvanceToWake),
        2 => (0..PEERS.len()).prop_map(Op::Acknowledge),
        3 => (0..PEERS.len()).prop_map(Op::SessionUp),
        1 => (0..PEERS.len()).prop_map(Op::SessionDown),
        4 => outside().prop_map(Op::Outside),
        1 => Just(Op::Crash),
    ]
}

fn trouble() -> impl Strategy<Value = Trouble> {
    let fault = prop_oneof![6 => Just(Fault::None), 1 => Just(Fault::WithoutEffect), 1 => Just(Fault::AfterEffect)];
    let faults = prop::collection::vec(fault, 0..5);
    let crash = prop::option::weighted(0.08, 0_usize..5);
    let outside = prop::option::weighted(0.15, (0_usize..4, outside()));
    (faults, crash, outside).prop_map(|(faults, crash_before, outside_before)| Trouble { faults, crash_before, outside_before })
}

fn outside() -> impl Strategy<Value = Outside> {
    let setter = prop::sample::select(vec![Setter::NoProtocol, Setter::OtherProtocol, Setter::WiderPrefix]);
    let place = prop_oneof![1 => Just(Place::Nowhere), 4 => Just(Place::Elsewhere), 1 => Just(Place::Interface)];
    let interface = prop::sample::select(vec![InterfaceState::Up, InterfaceState::Up, InterfaceState::Down, InterfaceState::Missing]);
    prop_oneof![
        6 => vip().prop_map(Outside::Delete),
        4 => (vip(), setter).prop_map(|(vip, setter)| Outside::Add(vip, setter)),
        1 => vip().prop_map(Outside::TakeOver),
        2 => (vip(), prop::bool::weighted(0.3)).prop_map(|(vip, there)| Outside::Elsewhere(vip, there)),
        1 => place.prop_map(Outside::OwnAddress),
        1 => interface.prop_map(Outside::Interface),
        1 => Just(Outside::FlushRecord),
    ]
}

fn vip() -> impl Strategy<Value = IpAddr> {
    prop::sample::select(VIPS.map(ip).to_vec())
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// One address in the kernel, and the truth about it.
#[derive(Clone, Copy, Debug)]
struct Placed {
    attributes: ObservedAddress,
    ours: bool,
}

/// One neighbour, as far as the fabric behind it goes.
#[derive(Clone, Debug, Default)]
struct Peer {
    open: bool,
    routes: BTreeSet<Prefix>,
}

struct World {
    now: Instant,
    desired: Desired,
    // The node, which outlives the process.
    protocols: bool,
    interface: InterfaceState,
    kernel: BTreeMap<IpAddr, Placed>,
    elsewhere: BTreeSet<IpAddr>,
    record: Record,
    peers: [Peer; 2],
    // The process.
    advertised: Option<Arc<RouteSet>>,
    configured: Option<Arc<DesiredBgp>>,
    before: Observed,
    wake_at: Option<Instant>,
    // The truth, for the checks.
    /// When a prefix was last advertised or known to a peer.
    reachable: BTreeMap<Prefix, Instant>,
    /// When a prefix was last in the advertised set.
    in_set: BTreeMap<Prefix, Instant>,
    /// Since when a prefix has been advertised as the last resort.
    last_resort: BTreeMap<Prefix, Instant>,
    /// What the last plan was allowed to have advertised, and what it found advertised wrongly or lost since.
    allowed: BTreeSet<IpAddr>,
    lost: BTreeSet<IpAddr>,
    /// Addresses of ours whose proof was destroyed: they may stay behind.
    unprovable: BTreeSet<IpAddr>,
    seen: BTreeSet<&'static str>,
}

impl World {
    fn new(protocols: bool) -> Self {
        let now = Instant::now();
        Self {
            now,
            desired: Desired {
                complete: true,
                lifecycle: Lifecycle::Run,
                vips: BTreeMap::new(),
                balancing: None,
                found: Vec::new(),
                bgp: neighbours(PEERS.len()),
                routing: routing([None; AGGREGATES.len()]),
                vrrp: VirtualRouting::default(),
                real_server_drain: Duration::ZERO,
                drain: DrainTimes { graceful_shutdown: Duration::ZERO, fabric_delay: FABRIC_DELAY, timeout: TIMEOUT },
            },
            protocols,
            interface: InterfaceState::Up,
            kernel: BTreeMap::new(),
            elsewhere: BTreeSet::from([ip(OWN), ip("2001:db8:ffff::10")]),
            record: Record::default(),
            peers: Default::default(),
            advertised: None,
            configured: None,
            before: Observed::default(),
            wake_at: None,
            reachable: BTreeMap::new(),
            in_set: BTreeMap::new(),
            last_resort: BTreeMap::new(),
            allowed: BTreeSet::new(),
            lost: BTreeSet::new(),
            unprovable: BTreeSet::new(),
            seen: BTreeSet::new(),
        }
    }

    fn happen(&mut self, op: Op) {
        match op {
            Op::Intent(vip, None, _) => {
                self.desired.vips.remove(&vip);
            }
            Op::Intent(vip, Some(intent), policy) => {
                let policy = policy.map(ToOwned::to_owned);
                self.desired.vips.insert(vip, DesiredVip { owners: BTreeSet::new(), intent, policy });
            }
            Op::Aggregates(aggregates) => self.desired.routing = routing(aggregates),
            Op::GracefulShutdown(on) => self.desired.drain.graceful_shutdown = if on { GRACEFUL_SHUTDOWN } else { Duration::ZERO },
            Op::Complete(complete) => self.desired.complete = complete,
            Op::Lifecycle(lifecycle) => self.desired.lifecycle = lifecycle,
            Op::Peers(count) => self.desired.bgp = neighbours(count),
            Op::Plan(trouble) => {
                self.round(&trouble);
            }
            Op::Advance(millis) => self.advance(self.now + Duration::from_millis(millis)),
            Op::AdvanceToWake => self.advance(self.wake_at.unwrap_or(self.now)),
            Op::Acknowledge(peer) => self.acknowledge(peer),
            Op::SessionUp(peer) => self.session_up(peer),
            Op::SessionDown(peer) => self.peers[peer] = Peer::default(),
            Op::Outside(outside) => self.outside(outside, &Plan::default()),
            Op::Crash => self.crash(),
        }
        self.stamp();
    }

    fn advance(&mut self, to: Instant) {
        self.now = self.now.max(to);
    }

    fn acknowledge(&mut self, peer: usize) {
        let advertised = self.advertised_set();
        let closing = self.configured.is_none();
        let peer = &mut self.peers[peer];
        if closing {
            *peer = Peer::default();
        } else {
            peer.routes.retain(|prefix| advertised.contains(prefix));
        }
    }

    fn session_up(&mut self, peer: usize) {
        let configured = self.configured.as_ref().is_some_and(|bgp| peer < bgp.peers.len());
        if configured && !self.peers[peer].open {
            self.peers[peer] = Peer { open: true, routes: self.advertised_set().prefixes().collect() };
        }
    }

    fn crash(&mut self) {
        self.peers = Default::default();
        self.advertised = None;
        self.configured = None;
        self.before = Observed::default();
        self.wake_at = None;
    }

    /// What others do, also while this plan is carried out.
    fn outside(&mut self, outside: Outside, during: &Plan) {
        let removing = |vip| during.steps.contains(&Step::RemoveAddress(vip));
        match outside {
            Outside::Delete(vip) => {
                self.kernel.remove(&vip);
                self.unprovable.remove(&vip);
                self.lost.insert(vip);
                if !during.steps.is_empty() {
                    self.seen.insert("lost while planned");
                }
            }
            Outside::Add(vip, setter) => {
                let recording = during.steps.iter().any(|step| matches!(step, Step::RecordPending(set) if set.addresses.contains(&vip)));
                let recorded = recording || self.record.pending.contains(&vip) || self.record.confirmed.contains(&vip);
                let undecidable = !self.protocols && recorded && setter != Setter::WiderPrefix;
                let possible = self.interface != InterfaceState::Missing && !self.kernel.contains_key(&vip);
                if possible && !undecidable && !removing(vip) {
                    self.kernel.insert(vip, Placed { attributes: self.attributes(vip, setter), ours: false });
                }
            }
            Outside::TakeOver(vip) => {
                if let Some(placed) = self.kernel.get_mut(&vip).filter(|_| self.protocols && !removing(vip)) {
                    placed.attributes.protocol = None;
                    placed.ours = false;
                    self.unprovable.remove(&vip);
                }
            }
            Outside::Elsewhere(vip, true) => {
                self.elsewhere.insert(vip);
            }
            Outside::Elsewhere(vip, false) => {
                self.elsewhere.remove(&vip);
            }
            Outside::OwnAddress(place) => {
                self.elsewhere.remove(&ip(OWN));
                self.kernel.remove(&ip(OWN));
                if place == Place::Elsewhere {
                    self.elsewhere.insert(ip(OWN));
                } else if place == Place::Interface && self.interface != InterfaceState::Missing {
                    self.kernel.insert(ip(OWN), Placed { attributes: self.attributes(ip(OWN), Setter::NoProtocol), ours: false });
                }
            }
            Outside::Interface(state) => {
                self.interface = state;
                // The kernel takes IPv6 addresses off an interface that goes down.
                self.kernel.retain(|vip, _| state == InterfaceState::Up || (state == InterfaceState::Down && vip.is_ipv4()));
                self.unprovable.retain(|vip| self.kernel.contains_key(vip));
                if state != InterfaceState::Up {
                    self.lost.extend(VIPS.map(ip));
                }
            }
            Outside::FlushRecord => {
                self.record = Record::default();
                self.unprovable.extend(self.kernel.iter().filter(|(_, placed)| placed.ours).map(|(vip, _)| *vip));
            }
        }
    }

    fn attributes(&self, vip: IpAddr, setter: Setter) -> ObservedAddress {
        let prefix_length = if setter == Setter::WiderPrefix { 24 } else { Prefix::host(vip).length() };
        ObservedAddress { prefix_length, protocol: (self.protocols && setter == Setter::OtherProtocol).then_some(16) }
    }

    /// Keeps the times of the truth; called after everything that happens.
    fn stamp(&mut self) {
        let set = self.advertised_set();
        for prefix in VIPS.map(ip).map(Prefix::host).into_iter().chain(AGGREGATES.map(aggregate)) {
            let advertised = set.contains(&prefix) || set.covered.iter().any(|vip| Prefix::host(*vip) == prefix);
            if advertised {
                self.in_set.insert(prefix, self.now);
            }
            if advertised || self.peers.iter().any(|peer| peer.routes.contains(&prefix)) {
                self.reachable.insert(prefix, self.now);
            }
            if set.routes.get(&prefix).is_some_and(|route| route.is_shutting_down()) {
                self.last_resort.entry(prefix).or_insert(self.now);
            } else {
                self.last_resort.remove(&prefix);
            }
        }
    }

    fn advertised_set(&self) -> RouteSet {
        self.advertised.as_deref().cloned().unwrap_or_default()
    }

    fn withdrawing(&self) -> BTreeSet<Prefix> {
        let set = self.advertised_set();
        self.peers.iter().flat_map(|peer| &peer.routes).filter(|prefix| !set.contains(prefix)).copied().collect()
    }

    fn open_sessions(&self) -> usize {
        self.peers.iter().filter(|peer| peer.open).count()
    }

    fn observe(&mut self) -> Observed {
        let kernel = KernelState {
            interface: self.interface,
            addresses: self.kernel.iter().map(|(address, placed)| (*address, placed.attributes)).collect(),
            address_protocols: self.protocols,
            claimed_by_others: BTreeSet::new(),
            gateways: BTreeSet::new(),
            unusable: BTreeSet::new(),
            elsewhere: self.elsewhere.clone(),
            record: self.record.clone(),
            ..KernelState::default()
        };
        let speaker = ObservedSpeaker {
            advertised: self.advertised.clone(),
            configured: self.configured.clone(),
            withdrawing: self.withdrawing(),
            open_sessions: self.open_sessions(),
            behind: false,
            established: self.open_sessions() > 0,
        };
        self.before = stamp(&self.before, kernel, speaker, self.now);
        self.before.clone()
    }

    /// Reads, plans, and carries out, with this trouble; true where there was nothing to do.
    fn round(&mut self, trouble: &Trouble) -> bool {
        let observed = self.observe();
        let made = plan(&self.desired, &observed, self.now);
        assert_eq!(made, plan(&self.desired.clone(), &observed.clone(), self.now), "equal inputs give equal plans");
        self.check_plan(&made, &observed);
        for (number, step) in made.steps.iter().enumerate() {
            if trouble.crash_before == Some(number) {
                self.seen.insert("crash between steps");
                self.crash();
                return false;
            }
            if let Some((_, outside)) = trouble.outside_before.filter(|(before, _)| *before == number) {
                self.outside(outside, &made);
            }
            self.attempt(step, trouble.faults.get(number).copied().unwrap_or(Fault::None));
            self.stamp();
            self.check_advertised(step);
        }
        self.wake_at = made.wake_at;
        made.steps.is_empty()
    }

    fn attempt(&mut self, step: &Step, fault: Fault) {
        let missing = matches!(step, Step::AddAddress(_) | Step::RemoveAddress(_)) && self.interface == InterfaceState::Missing;
        if fault != Fault::WithoutEffect && !missing {
            self.carry_out(step);
        }
        if fault == Fault::None && !missing {
            self.before.succeed(step.key());
        } else {
            self.seen.insert(if fault == Fault::AfterEffect { "failed after effect" } else { "failed" });
            self.before.fail(step.key(), &std::io::Error::other("refused"), self.now);
        }
    }

    fn carry_out(&mut self, step: &Step) {
        match step {
            Step::Advertise(set) => {
                self.advertised = Some(Arc::clone(set));
                for peer in self.peers.iter_mut().filter(|peer| peer.open) {
                    peer.routes.extend(set.prefixes());
                }
            }
            Step::RecordPending(_) | Step::RecordConfirmed(_) | Step::RecordRemoved(_) | Step::DropRecord => {
                record::carry_out(&mut self.record, step);
            }
            // Who balances is another matter: this world has no virtual services.
            Step::WriteRules(_)
            | Step::WriteFilters(_)
            | Step::ClosePorts(_)
            | Step::OpenPorts(_)
            | Step::MoveRanges(_)
            | Step::SetSysctl(_)
            | Step::SetInterfaces(_)
            | Step::SetTimeouts(_)
            | Step::StartDaemon(_)
            | Step::StopDaemon(_)
            | Step::AddVirtualService(..)
            | Step::ChangeVirtualService(..)
            | Step::RemoveVirtualService(_)
            | Step::RemoveFormer(_)
            | Step::RemoveRetired(_)
            | Step::ForgetConnections(_) => panic!("nobody balances here: {step}"),
            // Those have a model of their own.
            Step::ConfigureVirtualRouters(_) | Step::StopVirtualRouters | Step::SuspendVirtualRouters => {
                panic!("there are no virtual routers: {step}")
            }
            Step::AddAddress(vip) => {
                let protocol = self.protocols.then_some(ADDRESS_PROTOCOL);
                let attributes = ObservedAddress { prefix_length: Prefix::host(*vip).length(), protocol };
                // NLM_F_EXCL: an address that exists is left as it is.
                let ours = self.kernel.entry(*vip).or_insert(Placed { attributes, ours: true }).ours;
                if ours && !self.record.pending.contains(vip) && !self.record.confirmed.contains(vip) {
                    self.unprovable.insert(*vip);
                }
            }
            Step::RemoveAddress(vip) => {
                self.kernel.remove(vip);
                self.unprovable.remove(vip);
            }
            Step::ConfigureSpeaker(bgp, set) => {
                if let Some(set) = set {
                    self.carry_out(&Step::Advertise(Arc::clone(set)));
                }
                for peer in self.peers.iter_mut().skip(bgp.peers.len()) {
                    *peer = Peer::default();
                }
                self.configured = Some(Arc::clone(bgp));
            }
            Step::StopSpeaker | Step::ReleaseSpeaker => self.configured = None,
        }
    }
}

fn aggregate(address: &str) -> Prefix {
    Prefix::new(ip(address), if ip(address).is_ipv4() { 24 } else { 64 }).unwrap()
}

fn gold() -> Route {
    Route { communities: BTreeSet::from([1]), ..Route::originated() }
}

fn routing(aggregates: [Option<bool>; AGGREGATES.len()]) -> Routing {
    let gold = Policy { prefixes: BTreeSet::new(), route: gold() };
    let there = AGGREGATES.into_iter().zip(aggregates);
    let aggregates = there.filter_map(|(address, suppress)| Some((aggregate(address), Aggregate { policy: None, suppress: suppress? })));
    Routing { policies: BTreeMap::from([("gold".to_owned(), gold)]), aggregates: aggregates.collect() }
}

fn back_off(count: u32) -> Duration {
    Duration::from_millis(100 * 2_u64.pow(count.saturating_sub(1).min(10))).min(Duration::from_secs(30))
}

fn neighbours(count: usize) -> DesiredBgp {
    let peer = |address: &&str| DesiredPeer::new(ip(address), Asn::new(65001).unwrap());
    let peers = PEERS.iter().take(count).map(|address| ((*address).to_owned(), peer(address))).collect();
    DesiredBgp { peers, ..DesiredBgp::new(Asn::new(65001).unwrap()) }
}
