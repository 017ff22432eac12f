// SPDX-License-Identifier: Apache-2.0
//! The planner where virtual routers have VIPs, or have had them: the mode changes at any time, steps fail before or after they took effect, the process dies between any two of them,
//! the election goes this way and that, the virtual routers take their time, peers come, go and acknowledge late.
//!
//! The world knows what the planner cannot see, and checks each step against it: a VIP that is wanted is not taken from where packets find it before they find it the new way;
//! what may have packets is in the record, which closes its other ports. When the trouble ends, repeated planning comes to rest in the state that mode and intent ask for.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "common/record.rs"]
mod record;
#[path = "common/routers.rs"]
mod routers;
#[path = "common/story.rs"]
mod story;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bgp::{Asn, Prefix};
use proptest::prelude::*;
use vipherald::desired::{
    Desired, DesiredBgp, DesiredPeer, DesiredVip, DesiredVrrp, DrainTimes, Lifecycle, Mode, RouteSet, Routing, VipIntent, WithholdReason,
};
use vipherald::observed::{
    ADDRESS_PROTOCOL, KernelState, Observed, ObservedAddress, ObservedSpeaker, ObservedVirtualRouters, Record, stamp,
};
use vipherald::plan::{Plan, Step, has_left, plan};

use self::story::tell;

const VIPS: [&str; 3] = ["10.0.0.1", "10.0.0.2", "2001:db8::1"];
const OWN: [&str; 2] = ["192.0.2.10", "2001:db8:ffff::10"];
/// More rounds than any of these worlds needs to come to rest.
const ROUNDS: usize = 60;

#[test]
fn the_new_way_stands_before_the_old_one_is_taken_down_and_planning_comes_to_rest() {
    let expected = [
        "crash between steps",
        "failed",
        "failed after effect",
        "left to the virtual router",
        "left to peers",
        "left of an earlier process",
        "one more VIP",
        "resign",
        "waits for all",
    ];
    let story = prop::collection::vec(op(), 1..60);
    tell(&story, 9568, &expected, |ops| {
        let mut world = World::new();
        for op in ops {
            world.happen(op);
        }
        world.come_to_rest_in_every_way();
        world.seen
    });
}

#[derive(Clone, Debug)]
enum Op {
    Intent(IpAddr, Option<VipIntent>),
    Mode(Mode),
    Lifecycle(Lifecycle),
    Complete(bool),
    Plan(Vec<Fault>, Option<usize>),
    Advance(u64),
    Acknowledge,
    Session(bool),
    Election(Role),
    /// The virtual routers do what they were told.
    Routers,
    Crash,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Fault {
    None,
    WithoutEffect,
    AfterEffect,
}

/// Who is the Active Router.
#[derive(Clone, Debug, Eq, PartialEq)]
enum Role {
    Nobody,
    Here,
    /// Another node, which lists these.
    Elsewhere(BTreeSet<IpAddr>),
}

fn op() -> impl Strategy<Value = Op> {
    let intent = prop_oneof![
        1 => Just(None),
        4 => Just(Some(VipIntent::Serve { without_endpoints: false })),
        1 => Just(Some(VipIntent::Withhold(WithholdReason::NoEndpoints))),
    ];
    let lifecycle = prop_oneof![8 => Just(Lifecycle::Run), 1 => Just(Lifecycle::Drain), 1 => Just(Lifecycle::Standby)];
    let fault = prop_oneof![6 => Just(Fault::None), 1 => Just(Fault::WithoutEffect), 1 => Just(Fault::AfterEffect)];
    let listed = prop::collection::btree_set(vip(), 0..=VIPS.len());
    let role = prop_oneof![1 => Just(Role::Nobody), 2 => Just(Role::Here), 2 => listed.prop_map(Role::Elsewhere)];
    prop_oneof![
        5 => (vip(), intent).prop_map(|(vip, intent)| Op::Intent(vip, intent)),
        3 => prop::sample::select(vec![Mode::Bgp, Mode::Vrrp]).prop_map(Op::Mode),
        1 => lifecycle.prop_map(Op::Lifecycle),
        1 => prop::bool::weighted(0.7).prop_map(Op::Complete),
        12 => (prop::collection::vec(fault, 0..4), prop::option::weighted(0.08, 0_usize..4)).prop_map(|(faults, crash)| Op::Plan(faults, crash)),
        4 => (1_u64..3_000).prop_map(Op::Advance),
        3 => Just(Op::Acknowledge),
        3 => any::<bool>().prop_map(Op::Session),
        4 => role.prop_map(Op::Election),
        6 => Just(Op::Routers),
        1 => Just(Op::Crash),
    ]
}

fn vip() -> impl Strategy<Value = IpAddr> {
    prop::sample::select(VIPS.map(ip).to_vec())
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

struct World {
    now: Instant,
    desired: Desired,
    // The node, which outlives the process.
    on_lo: BTreeSet<IpAddr>,
    on_link: BTreeSet<IpAddr>,
    record: Record,
    /// The record of the virtual routers.
    recorded: BTreeSet<IpAddr>,
    role: Role,
    /// What the peer has, while there is a session.
    peer: Option<BTreeSet<Prefix>>,
    // The process.
    told: Option<Arc<DesiredVrrp>>,
    stopping: bool,
    advertised: Option<Arc<RouteSet>>,
    configured: Option<Arc<DesiredBgp>>,
    before: Observed,
    wake_at: Option<Instant>,
    seen: BTreeSet<&'static str>,
}

impl World {
    fn new() -> Self {
        let peer = DesiredPeer::new(ip("192.0.2.1"), Asn::new(65001).unwrap());
        let bgp = DesiredBgp { peers: [("tor".to_owned(), peer)].into(), ..DesiredBgp::new(Asn::new(65001).unwrap()) };
        let (fabric_delay, timeout) = (Duration::from_secs(1), Duration::from_secs(5));
        Self {
            now: Instant::now(),
            desired: Desired {
                complete: true,
                lifecycle: Lifecycle::Run,
                vips: BTreeMap::new(),
                balancing: None,
                found: Vec::new(),
                bgp,
                routing: Routing::default(),
                vrrp: routers::routing(Some("bgp")),
                real_server_drain: Duration::ZERO,
                drain: DrainTimes { graceful_shutdown: Duration::ZERO, fabric_delay, timeout },
            },
            on_lo: BTreeSet::new(),
            on_link: BTreeSet::new(),
            record: Record::default(),
            recorded: BTreeSet::new(),
            role: Role::Nobody,
            peer: None,
            told: None,
            stopping: false,
            advertised: None,
            configured: None,
            before: Observed::default(),
            wake_at: None,
            seen: BTreeSet::new(),
        }
    }

    fn happen(&mut self, op: Op) {
        match op {
            Op::Intent(vip, None) => drop(self.desired.vips.remove(&vip)),
            Op::Intent(vip, Some(intent)) => {
                self.desired.vips.insert(vip, DesiredVip { owners: BTreeSet::new(), intent, policy: None });
            }
            Op::Mode(mode) => self.desired.vrrp.mode = mode,
            Op::Lifecycle(lifecycle) => self.desired.lifecycle = lifecycle,
            Op::Complete(complete) => self.desired.complete = complete,
            Op::Plan(faults, crash) => drop(self.round(&faults, crash)),
            Op::Advance(millis) => self.now += Duration::from_millis(millis),
            Op::Acknowledge => self.acknowledge(),
            Op::Session(up) => self.session(up),
            Op::Election(role) => self.role = role,
            Op::Routers => self.run_routers(),
            Op::Crash => self.crash(),
        }
    }

    fn serves(&self, vip: IpAddr) -> bool {
        matches!(self.desired.vips.get(&vip), Some(DesiredVip { intent: VipIntent::Serve { .. }, .. }))
    }

    /// Whether the VIP is to be served, here and now.
    fn wanted(&self, vip: IpAddr) -> bool {
        self.desired.lifecycle == Lifecycle::Run && self.serves(vip)
    }

    fn told_addresses(&self) -> BTreeSet<IpAddr> {
        self.told.iter().flat_map(|told| told.groups.values()).flat_map(|group| &group.addresses).copied().collect()
    }

    fn advertises(&self, vip: IpAddr) -> bool {
        self.advertised.as_ref().is_some_and(|set| set.serves(vip))
    }

    /// Whether packets find an Active Router that has the VIP.
    fn is_settled(&self, vip: IpAddr) -> bool {
        match &self.role {
            Role::Nobody => false,
            Role::Here => self.on_link.contains(&vip),
            Role::Elsewhere(listed) => listed.contains(&vip),
        }
    }

    fn acknowledge(&mut self) {
        let advertised = self.advertised.as_deref().cloned().unwrap_or_default();
        match &mut self.peer {
            Some(_) if self.configured.is_none() => self.peer = None,
            Some(routes) => routes.retain(|prefix| advertised.contains(prefix)),
            None => {}
        }
    }

    fn session(&mut self, up: bool) {
        if !up {
            self.peer = None;
        } else if self.configured.is_some() && self.peer.is_none() {
            self.peer = Some(self.advertised.iter().flat_map(|set| set.prefixes()).collect());
        }
    }

    /// As the driver does: what it was told is recorded, and on the link of the Active Router alone; what is left goes where these are all.
    fn run_routers(&mut self) {
        if self.stopping {
            self.on_link.clear();
            self.recorded.clear();
            return;
        }
        let Some(told) = self.told.clone() else { return };
        let addresses = self.told_addresses();
        let held = if self.role == Role::Here { addresses.clone() } else { BTreeSet::new() };
        let left: BTreeSet<IpAddr> = self.on_link.difference(&addresses).copied().filter(|_| !told.complete).collect();
        self.seen.extend((!left.is_empty()).then_some("left of an earlier process"));
        self.on_link = held.union(&left).copied().collect();
        self.recorded = addresses.union(&left).copied().collect();
        self.check_record();
    }

    fn crash(&mut self) {
        (self.told, self.stopping, self.advertised, self.configured) = (None, false, None, None);
        (self.before, self.wake_at, self.peer) = (Observed::default(), None, None);
    }

    fn observe(&mut self) -> Observed {
        let address =
            |vip: &IpAddr| (*vip, ObservedAddress { prefix_length: Prefix::host(*vip).length(), protocol: Some(ADDRESS_PROTOCOL) });
        let kernel = KernelState {
            addresses: self.on_lo.iter().map(address).collect(),
            address_protocols: true,
            elsewhere: OWN.map(ip).into_iter().chain(self.on_link.iter().copied()).collect(),
            record: self.record.clone(),
            ..KernelState::default()
        };
        let set = self.advertised.as_deref().cloned().unwrap_or_default();
        let speaker = ObservedSpeaker {
            advertised: self.advertised.clone(),
            configured: self.configured.clone(),
            withdrawing: self.peer.iter().flatten().filter(|prefix| !set.contains(prefix)).copied().collect(),
            open_sessions: usize::from(self.peer.is_some()),
            behind: false,
            established: self.peer.is_some(),
        };
        let mut observed = stamp(&self.before, kernel, speaker, self.now);
        observed.virtual_routers = ObservedVirtualRouters {
            configured: self.told.clone(),
            stopping: self.stopping,
            recorded: Some(self.recorded.clone()),
            settled: self.told_addresses().into_iter().filter(|vip| self.is_settled(*vip)).collect(),
        };
        self.before = observed.clone();
        observed
    }

    /// Reads, plans, and carries out, with this trouble; true where there was nothing to do.
    fn round(&mut self, faults: &[Fault], crash_before: Option<usize>) -> bool {
        let observed = self.observe();
        let made = plan(&self.desired, &observed, self.now);
        for step in &made.steps {
            self.check(step, &made);
        }
        for (number, step) in made.steps.iter().enumerate() {
            if crash_before == Some(number) {
                self.seen.insert("crash between steps");
                self.crash();
                return false;
            }
            let fault = faults.get(number).copied().unwrap_or(Fault::None);
            if fault != Fault::WithoutEffect {
                self.carry_out(step);
            }
            if fault == Fault::None {
                self.before.succeed(step.key());
            } else {
                self.seen.insert(if fault == Fault::AfterEffect { "failed after effect" } else { "failed" });
                self.before.fail(step.key(), &std::io::Error::other("refused"), self.now);
            }
            self.check_record();
        }
        self.wake_at = made.wake_at;
        made.steps.is_empty()
    }

    fn carry_out(&mut self, step: &Step) {
        match step {
            Step::Advertise(set) => {
                self.advertised = Some(Arc::clone(set));
                self.peer.iter_mut().for_each(|routes| routes.extend(set.prefixes()));
            }
            Step::RecordPending(_) | Step::RecordConfirmed(_) | Step::RecordRemoved(_) | Step::DropRecord => {
                record::carry_out(&mut self.record, step);
            }
            Step::AddAddress(vip) => drop(self.on_lo.insert(*vip)),
            Step::RemoveAddress(vip) => drop(self.on_lo.remove(vip)),
            Step::ConfigureSpeaker(bgp, set) => {
                self.configured = Some(Arc::clone(bgp));
                set.iter().for_each(|set| self.carry_out(&Step::Advertise(Arc::clone(set))));
            }
            Step::StopSpeaker | Step::ReleaseSpeaker => self.configured = None,
            Step::ConfigureVirtualRouters(set) => (self.told, self.stopping) = (Some(Arc::clone(set)), false),
            Step::StopVirtualRouters => (self.told, self.stopping) = (None, true),
            other => panic!("nobody balances here: {other}"),
        }
    }

    fn check(&mut self, step: &Step, made: &Plan) {
        let mode = self.desired.vrrp.mode;
        let is_recorded = |vip: &IpAddr| self.record.pending.contains(vip) || self.record.confirmed.contains(vip);
        match step {
            Step::Advertise(set) => {
                let goes = |vip: &IpAddr| self.advertises(*vip) && !set.serves(*vip) && self.wanted(*vip);
                let going: Vec<IpAddr> = VIPS.map(ip).into_iter().filter(goes).collect();
                for vip in going {
                    let is_there = mode == Mode::Bgp && self.on_lo.contains(&vip);
                    assert!(
                        !is_there && (self.is_settled(vip) || !self.on_lo.contains(&vip)),
                        "{vip} is withdrawn, and no router has it: {made}"
                    );
                    self.seen.insert("left to the virtual router");
                }
                let lost = VIPS.map(ip).into_iter().find(|vip| set.serves(*vip) && !(self.on_lo.contains(vip) && self.serves(*vip)));
                assert_eq!(lost, None, "is announced and not there: {made}");
            }
            Step::ConfigureVirtualRouters(set) => {
                let told = self.told_addresses();
                let to_tell: BTreeSet<IpAddr> = set.groups.values().flat_map(|group| &group.addresses).copied().collect();
                assert!(to_tell.iter().all(|vip| is_recorded(vip) && self.wanted(*vip)), "has what is not recorded, or not wanted: {made}");
                let going: Vec<IpAddr> = told.difference(&to_tell).copied().filter(|vip| self.wanted(*vip) && mode == Mode::Bgp).collect();
                for vip in going {
                    let is_told = self.on_lo.contains(&vip) && self.peer.iter().flatten().any(|prefix| *prefix == Prefix::host(vip));
                    assert!(self.advertises(vip) && is_told, "{vip} leaves its virtual router, and no peer has it: {made}");
                    self.seen.insert("left to peers");
                }
                let waits = VIPS
                    .map(ip)
                    .into_iter()
                    .any(|vip| mode == Mode::Vrrp && self.wanted(vip) && is_recorded(&vip) && !to_tell.contains(&vip));
                self.seen.extend((waits && told.is_empty()).then_some("waits for all"));
                self.seen.extend((!told.is_empty() && to_tell.len() > told.len()).then_some("one more VIP"));
                if set.complete {
                    let lost: Vec<_> = self.on_link.iter().filter(|vip| self.wanted(**vip) && !to_tell.contains(*vip)).collect();
                    assert!(lost.iter().all(|vip| mode == Mode::Bgp && self.on_lo.contains(*vip)), "{lost:?} go from the link: {made}");
                }
            }
            Step::StopVirtualRouters => {
                assert_ne!(self.desired.lifecycle, Lifecycle::Run);
                assert_eq!(made.steps.first(), Some(step), "nothing comes before");
                self.seen.insert("resign");
            }
            Step::RecordRemoved(entries) => {
                let found = entries.addresses.iter().find(|vip| self.on_link.contains(*vip) || self.told_addresses().contains(*vip));
                assert_eq!(found, None, "packets may come to it: {made}");
            }
            Step::AddAddress(vip) => assert!(mode == Mode::Bgp && self.wanted(*vip) && is_recorded(vip), "{made}"),
            Step::RemoveAddress(vip) => {
                assert!(!self.advertises(*vip), "{vip} is removed while announced: {made}");
                assert!(!(self.wanted(*vip) && mode == Mode::Bgp), "{vip} is wanted: {made}");
            }
            _ => {}
        }
    }

    /// What has packets is in the record.
    fn check_record(&self) {
        let unrecorded = self.on_link.iter().find(|vip| !self.record.pending.contains(*vip) && !self.record.confirmed.contains(*vip));
        assert_eq!(unrecorded, None, "is on the link, and its other ports are open");
    }

    fn come_to_rest_in_every_way(&mut self) {
        self.desired.complete = true;
        for mode in [Mode::Vrrp, Mode::Bgp, Mode::Vrrp] {
            self.desired.vrrp.mode = mode;
            for lifecycle in [Lifecycle::Run, Lifecycle::Standby, Lifecycle::Run, Lifecycle::Drain, Lifecycle::Run] {
                self.desired.lifecycle = lifecycle;
                self.come_to_rest();
            }
        }
    }

    fn come_to_rest(&mut self) {
        self.role = Role::Here;
        for _ in 0..ROUNDS {
            let idle = self.round(&[], None);
            self.run_routers();
            self.acknowledge();
            self.session(true);
            match self.wake_at.filter(|_| idle) {
                Some(at) => self.now = self.now.max(at),
                None if !idle => {}
                None => {
                    let rests = self.round(&[], None);
                    if rests && self.wake_at.is_none() {
                        return self.check_exact();
                    }
                }
            }
        }
        panic!("no rest after {ROUNDS} rounds: {}", plan(&self.desired.clone(), &self.observe(), self.now));
    }

    fn check_exact(&mut self) {
        let serving: BTreeSet<IpAddr> = VIPS.map(ip).into_iter().filter(|vip| self.wanted(*vip)).collect();
        let (none, by_routers) = (BTreeSet::new(), self.desired.vrrp.mode == Mode::Vrrp);
        let (here, there) = if by_routers { (&none, &serving) } else { (&serving, &none) };
        assert_eq!((&self.on_lo, &self.on_link, &self.told_addresses()), (here, there, there));
        assert_eq!(VIPS.map(ip).into_iter().filter(|vip| self.advertises(*vip)).collect::<BTreeSet<_>>(), *here);
        assert_eq!((&self.record.confirmed, &self.record.pending), (&serving, &none));
        let observed = self.observe();
        assert_eq!(has_left(&self.desired, &observed), self.desired.lifecycle == Lifecycle::Drain);
    }
}
