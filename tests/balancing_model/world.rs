// SPDX-License-Identifier: Apache-2.0
//! The world that a story is told to: the node, one peer, the process with what it remembers, and the intent.

use std::sync::Arc;
use std::time::Instant;

use bgp::{Asn, Prefix};
use ipvs::Timeouts;
use vipherald::actuator::left_between;
use vipherald::desired::{
    Desired, DesiredBalancing, DesiredBgp, DesiredPeer, DesiredVip, DrainTimes, RouteSet, Routing, Rules, VirtualRouting,
};
use vipherald::observed::{
    ADDRESS_PROTOCOL, Balancer, IpvsAvailability, KernelState, Links, Observed, ObservedAddress, ObservedSpeaker, Record, RetiredRange,
    ServiceMode, stamp,
};
use vipherald::plan::{Plan, RealServerChange, Step, StepKey, VirtualServiceChange, plan};

use super::node::{At, InKernel, Node, Refused};
use super::*;

const FABRIC_DELAY: Duration = Duration::from_secs(1);
const TIMEOUT: Duration = Duration::from_secs(5);

pub(super) struct World {
    pub(super) now: Instant,
    /// Without what is balanced, which is below.
    intent: Desired,
    pub(super) wishes: Wishes,
    pub(super) balancing: bool,
    first_mark: u32,
    /// What is listed of the rules with each first mark.
    fingerprints: BTreeMap<u32, Vec<String>>,
    pub(super) node: Node,
    /// What the peer has, while its session is up.
    pub(super) peer: Option<BTreeSet<IpAddr>>,
    // The process.
    pub(super) advertised: Option<Arc<RouteSet>>,
    pub(super) configured: Option<Arc<DesiredBgp>>,
    pub(super) before: Observed,
    wake_at: Option<Instant>,
    known_as_ours: BTreeSet<ServiceKey>,
    made: BTreeSet<ServiceKey>,
    record_was_lost: bool,
    // The truth, for the checks.
    /// Since when real servers of ours are quiesced.
    pub(super) quiesced: BTreeMap<(At, SocketAddr), Instant>,
    /// Since when no new connection comes to virtual services of ours, as others have them.
    pub(super) relieved: BTreeMap<ServiceKey, Instant>,
    /// Since when those of ranges have had no ports.
    pub(super) retired: BTreeMap<RetiredRange, Instant>,
    /// Since when new connections are left to somebody else.
    pub(super) handed_over: Option<Instant>,
    /// Virtual services of ours whose proof was destroyed: they may stay behind.
    pub(super) unprovable: BTreeSet<At>,
    /// Addresses of which the same is true.
    pub(super) unclaimed: BTreeSet<IpAddr>,
    /// Others did something since the last plan looked.
    pub(super) disturbed: bool,
    /// VIPs advertised, of which that was not right any more when the last plan looked, or that others took since.
    pub(super) lost: BTreeSet<IpAddr>,
    pub(super) seen: BTreeSet<&'static str>,
    /// After how many transactions the next change of rules ends that is not carried out as a whole, and more.
    pub(super) transactions: usize,
}

impl World {
    pub(super) fn new() -> Self {
        let peer = DesiredPeer::new(ip("192.0.2.1"), Asn::new(65001).unwrap());
        let peers = BTreeMap::from([("tor".to_owned(), peer)]);
        Self {
            now: Instant::now(),
            intent: Desired {
                complete: true,
                lifecycle: Lifecycle::Run,
                vips: BTreeMap::new(),
                balancing: None,
                found: Vec::new(),
                bgp: DesiredBgp { peers, ..DesiredBgp::new(Asn::new(65001).unwrap()) },
                routing: Routing::default(),
                vrrp: VirtualRouting::default(),
                real_server_drain: DRAIN_TIMEOUT,
                drain: DrainTimes { graceful_shutdown: Duration::ZERO, fabric_delay: FABRIC_DELAY, timeout: TIMEOUT },
            },
            wishes: Wishes::new(),
            balancing: true,
            first_mark: FIRST_MARKS[0],
            fingerprints: FIRST_MARKS.map(|first_mark| (first_mark, Rules { first_mark, ..Rules::default() }.fingerprint())).into(),
            node: Node::new(),
            peer: None,
            advertised: None,
            configured: None,
            before: Observed::default(),
            wake_at: None,
            known_as_ours: BTreeSet::new(),
            made: BTreeSet::new(),
            record_was_lost: true,
            quiesced: BTreeMap::new(),
            relieved: BTreeMap::new(),
            retired: BTreeMap::new(),
            handed_over: None,
            unprovable: BTreeSet::new(),
            unclaimed: BTreeSet::new(),
            disturbed: false,
            lost: BTreeSet::new(),
            seen: BTreeSet::new(),
            transactions: 0,
        }
    }

    pub(super) fn desired(&self) -> Desired {
        let balancing = DesiredBalancing {
            services: self.wishes.clone(),
            rules: self.rules(),
            set_sysctls: true,
            timeouts: Timeouts::default(),
            gue_port: 6080,
            sync: BTreeMap::new(),
            external_interface: None,
        };
        Desired { balancing: self.balancing.then_some(balancing), ..self.intent.clone() }
    }

    pub(super) fn rules(&self) -> Rules {
        Rules { first_mark: self.first_mark, ..Rules::default() }
    }

    pub(super) fn fingerprint(&self) -> &[String] {
        &self.fingerprints[&self.first_mark]
    }

    pub(super) fn is_complete(&self) -> bool {
        self.intent.complete
    }

    pub(super) fn lifecycle(&self) -> Lifecycle {
        self.intent.lifecycle
    }

    pub(super) fn intent_of(&self, vip: IpAddr) -> Option<VipIntent> {
        Some(self.intent.vips.get(&vip)?.intent.clone())
    }

    pub(super) fn happen(&mut self, op: Op) {
        match op {
            Op::Vip(vip, None) => drop(self.intent.vips.remove(&vip)),
            Op::Vip(vip, Some(intent)) => {
                self.intent.vips.insert(vip, DesiredVip { owners: BTreeSet::new(), intent, policy: None });
            }
            Op::Service(key, None) => drop(self.wishes.remove(&key)),
            Op::Service(key, Some(wish)) => {
                self.wishes.retain(|other, _| !shares_ports(*other, key));
                self.wishes.insert(key, wish);
            }
            Op::Ranges(ranges, servers) => self.ask_for(&ranges, &servers),
            Op::Server(key, server, weight) => self.wish(key, |wish| {
                match weight {
                    Some(weight) => wish.real_servers.insert(address(key, server), Weight(weight)),
                    None => wish.real_servers.remove(&address(key, server)),
                };
            }),
            Op::Filter(key, filter) => self.wish(key, |wish| wish.filter = filter),
            Op::Balancing(on) => self.balancing = on,
            Op::FirstMark(first) => self.first_mark = first,
            Op::Complete(complete) => self.intent.complete = complete,
            Op::Lifecycle(lifecycle) => self.intent.lifecycle = lifecycle,
            Op::Plan(trouble) => drop(self.round(&trouble)),
            Op::Advance(millis) => self.now += Duration::from_millis(millis),
            Op::AdvanceToWake => self.now = self.now.max(self.wake_at.unwrap_or(self.now)),
            Op::Acknowledge => self.acknowledge(),
            Op::Session(true) => self.session_up(),
            Op::Session(false) => self.peer = None,
            Op::Connect(vip) => services().into_iter().filter(|key| key.vip == vip).for_each(|key| self.connect(key)),
            Op::Disconnect(key) => {
                let servers = self.node.service_mut(key).into_iter().flat_map(|service| &mut service.seen.real_servers);
                servers.for_each(|server| server.connections = 0);
                for retired in self.node.record.retired.iter().filter(|retired| (retired.vip, retired.protocol) == (key.vip, key.protocol))
                {
                    let service = self.node.services.get_mut(&Node::of_retired(*retired));
                    service.into_iter().flat_map(|service| &mut service.seen.real_servers).for_each(|server| server.connections = 0);
                }
            }
            Op::Outside(outside) => self.outside(outside),
            Op::Flush(failing) => {
                self.outside(Outside::FlushRecord);
                let mut faults = vec![Fault::None; failing];
                faults.push(Fault::WithoutEffect);
                self.round(&Trouble { faults, ..Trouble::default() });
            }
            Op::Fight(key) => {
                for _ in 0..3 {
                    self.outside(Outside::RemoveService(key));
                    self.round(&Trouble::default());
                    self.now = self.wake_at.unwrap_or(self.now);
                    self.round(&Trouble::default());
                }
            }
            Op::Crash => self.crash(),
        }
        self.stamp();
    }

    fn wish(&mut self, key: ServiceKey, change: impl FnOnce(&mut DesiredVirtualService)) {
        if let Some(wish) = self.wishes.get_mut(&key) {
            change(wish);
            make_possible(key, wish);
        }
    }

    /// A client comes, to each real server that gets new connections.
    fn connect(&mut self, key: ServiceKey) {
        if self.node.takes_connections(key) && self.node.addresses.contains(&key.vip) {
            let servers = self.node.service_mut(key).into_iter().flat_map(|service| &mut service.seen.real_servers);
            servers.filter(|server| !server.weight.is_quiesced()).for_each(|server| server.connections += 1);
        }
    }

    fn acknowledge(&mut self) {
        let (set, closing) = (self.advertised_vips(), self.configured.is_none());
        self.peer = self.peer.take().filter(|_| !closing).map(|routes| &routes & &set);
    }

    fn session_up(&mut self) {
        if self.configured.is_some() && self.peer.is_none() {
            self.peer = Some(self.advertised_vips());
        }
    }

    fn crash(&mut self) {
        (self.peer, self.advertised, self.configured, self.wake_at) = (None, None, None, None);
        self.before = Observed::default();
        let record = &self.node.record;
        self.known_as_ours = record.pending_services.union(&record.confirmed_services).copied().collect();
        self.record_was_lost = !record.exists;
        self.made.clear();
        // A service that others made where our entry stands is taken for ours from here on.
        for key in self.known_as_ours.clone() {
            if let Some(service) = self.node.service_mut(key) {
                service.ours = true;
            }
        }
        let confirmed: BTreeSet<At> = self.node.record.confirmed_services.iter().filter_map(|key| self.node.at(*key)).collect();
        self.forget_proof_of(|at| !confirmed.contains(at));
    }

    fn forget_proof_of(&mut self, lost: impl Fn(&At) -> bool) {
        let ours = self.node.services.iter().filter(|(at, service)| service.ours && lost(at));
        self.unprovable.extend(ours.map(|(at, _)| *at));
    }

    /// What others do.
    fn outside(&mut self, outside: Outside) {
        self.disturbed = true;
        let of_others =
            InKernel { ours: false, seen: vipherald::observed::ObservedVirtualService { mode: None, real_servers: Vec::new() } };
        match outside {
            Outside::MakeService(key) if self.node.ipvs => {
                let at = At::Port(key);
                if !is_range(key) && !self.known_as_ours.contains(&key) {
                    self.node.services.entry(at).or_insert(of_others);
                }
            }
            Outside::MakeMark(mark, v4) if self.node.ipvs => {
                let at = At::Mark(mark, v4);
                if self.node.key(at).is_none_or(|key| !self.known_as_ours.contains(&key)) {
                    self.node.services.entry(at).or_insert(of_others);
                }
            }
            Outside::MakeService(_) | Outside::MakeMark(..) => {}
            Outside::RemoveService(key) => {
                self.node.at(key).map(|at| self.node.services.remove(&at));
            }
            Outside::RemoveTheirs => self.node.services.retain(|_, service| service.ours),
            Outside::SetScheduler(key, scheduler) => {
                let mode = ServiceMode { scheduling: Scheduling::of(scheduler), fallback: false };
                if self.node.is_ours(key) {
                    self.node.edit_service(key, mode).unwrap();
                }
            }
            Outside::Weigh(key, server, weight) => {
                self.change(key, RealServerChange::Weigh(address(key, server), Weight(weight)));
            }
            Outside::AddServer(key, server) => self.change(key, RealServerChange::Add(address(key, server), Weight(1))),
            Outside::RemoveServer(key, server) => self.change(key, RealServerChange::Remove(address(key, server))),
            Outside::RemoveAddress(vip) => drop(self.node.addresses.remove(&vip)),
            Outside::FlushRecord => {
                self.node.record = Record::default();
                self.unclaimed.extend(&self.node.addresses);
                let made = self.made.clone();
                self.forget_proof_of(|at| !matches!(at, At::Port(key) if made.contains(key)));
            }
            Outside::Rules(RulesOf::Nobody) => self.node.record.rules.clear(),
            Outside::Rules(RulesOf::Somebody) if !self.node.record.rules.is_empty() => self.node.record.rules.truncate(1),
            Outside::Rules(RulesOf::Somebody) => {}
            Outside::RemoveMark(key) => {
                let at = self.node.at(key).filter(|_| is_range(key));
                self.forget_proof_of(|ours| Some(*ours) == at);
                self.node.record.marks.remove(&key);
            }
            Outside::Ipvs(there) => {
                self.node.ipvs = there;
                if !there {
                    self.node.services.clear();
                }
            }
            Outside::Unset(setting) => drop(self.node.unset.insert(setting)),
            Outside::OnLink(on) => self.node.on_link = on,
        }
        self.lost.extend(VIPS.map(ip));
    }

    /// Somebody changes a real server of ours.
    fn change(&mut self, key: ServiceKey, change: RealServerChange) {
        if self.node.is_ours(key) {
            let change = VirtualServiceChange { mode: None, forwarding: ForwardingMethod::Masquerade, real_servers: vec![change] };
            self.node.change_servers(key, &change, 1).unwrap_or(());
        }
    }

    /// Keeps the times of the truth; called after everything that happens.
    fn stamp(&mut self) {
        let ours = self.node.services.iter().filter(|(_, service)| service.ours);
        let servers = ours.flat_map(|(at, service)| service.seen.real_servers.iter().map(|server| (*at, server)));
        let quiesced = servers.filter(|(_, server)| server.weight.is_quiesced()).map(|(at, server)| (at, server.address));
        self.quiesced = quiesced.map(|key| (key, self.quiesced.get(&key).copied().unwrap_or(self.now))).collect();
        let relieved = self.node.record.confirmed_services.iter().filter(|key| self.node.is_ours(**key) && self.is_relieved(**key));
        self.relieved = relieved.map(|key| (*key, self.relieved.get(key).copied().unwrap_or(self.now))).collect();
        let retired = self.node.retired().into_keys();
        self.retired = retired.map(|retired| (retired, self.retired.get(&retired).copied().unwrap_or(self.now))).collect();
        self.handed_over = self.node.record.is_handing_over().then(|| self.handed_over.unwrap_or(self.now));
        self.unclaimed.retain(|vip| self.node.addresses.contains(vip) && !self.node.record.confirmed.contains(vip));
        self.unprovable.retain(|at| self.node.services.get(at).is_some_and(|service| service.ours));
    }

    pub(super) fn advertised_vips(&self) -> BTreeSet<IpAddr> {
        self.advertised.iter().flat_map(|set| set.prefixes()).map(|prefix| prefix.address()).collect()
    }

    pub(super) fn withdrawing(&self) -> BTreeSet<IpAddr> {
        let set = self.advertised_vips();
        self.peer.iter().flatten().filter(|vip| !set.contains(vip)).copied().collect()
    }

    fn observe(&mut self) -> Observed {
        let record = self.node.record.clone();
        let recorded = !record.confirmed_services.is_empty() || !record.pending_services.is_empty();
        let needed = self.balancing || recorded || !self.made.is_empty();
        let balancer = self.read_services(needed);
        let address =
            |vip: &IpAddr| (*vip, ObservedAddress { prefix_length: Prefix::host(*vip).length(), protocol: Some(ADDRESS_PROTOCOL) });
        let is_there = |setting: &Sysctl| self.node.ipvs || *setting == Sysctl::Ipv4Forward;
        let value = |setting: Sysctl| (setting, if self.node.unset.contains(&setting) { "0" } else { "1" }.to_owned());
        let routed = [0, 5].map(|key| Prefix::host(super::address(services()[key], 0).ip()));
        let kernel = KernelState {
            addresses: self.node.addresses.iter().map(address).collect(),
            elsewhere: ["192.0.2.10", "2001:db8:ffff::10"].map(ip).into(),
            address_protocols: true,
            balancer,
            sysctls: Sysctl::ALL.into_iter().filter(|setting| needed && is_there(setting)).map(value).collect(),
            links: Links {
                direct: [ip("0.0.0.0"), ip("::")].map(|any| Prefix::new(any, 0).unwrap()).into(),
                routed: routed.into_iter().filter(|_| !self.node.on_link).collect(),
                broadcast: BTreeSet::new(),
            },
            record,
            ..KernelState::default()
        };
        let speaker = ObservedSpeaker {
            advertised: self.advertised.clone(),
            configured: self.configured.clone(),
            withdrawing: self.withdrawing().into_iter().map(Prefix::host).collect(),
            open_sessions: usize::from(self.peer.is_some()),
            behind: false,
            established: self.peer.is_some(),
        };
        self.before = stamp(&self.before, kernel, speaker, self.now);
        self.before.clone()
    }

    /// As the actuator reads IPVS.
    fn read_services(&mut self, needed: bool) -> Balancer {
        if !needed {
            return Balancer::default();
        }
        if !self.node.ipvs {
            return Balancer { availability: IpvsAvailability::Missing, ..Balancer::default() };
        }
        let services: BTreeMap<_, _> =
            self.node.services.iter().filter_map(|(at, service)| Some((self.node.key(*at)?, service.seen.clone()))).collect();
        let retired: BTreeMap<_, _> = self.node.retired().into_iter().map(|(retired, service)| (retired, service.seen.clone())).collect();
        let is_retired = |at: &At| retired.keys().any(|retired| Node::of_retired(*retired) == *at);
        let unknown = self.node.services.keys().filter(|at| self.node.key(**at).is_none() && !is_retired(at));
        if std::mem::take(&mut self.record_was_lost) {
            self.known_as_ours.extend(services.keys());
        }
        for ours in [&mut self.known_as_ours, &mut self.made] {
            ours.retain(|key| services.contains_key(key));
        }
        Balancer {
            availability: IpvsAvailability::Available,
            foreign: services.keys().filter(|key| !self.known_as_ours.contains(key)).copied().collect(),
            made: self.made.clone(),
            foreign_marks: unknown.filter_map(|at| if let At::Mark(mark, _) = at { Some(*mark) } else { None }).collect(),
            services,
            retired,
            ..Balancer::default()
        }
    }

    /// Reads, plans, and carries out, with this trouble; true where there was nothing to do.
    pub(super) fn round(&mut self, trouble: &Trouble) -> bool {
        let observed = self.observe();
        let made = plan(&self.desired(), &observed, self.now);
        self.disturbed = false;
        self.check_plan(&made, &observed);
        let mut steps: Vec<&Step> = made.steps.iter().collect();
        if trouble.nft_last {
            steps.sort_by_key(|step| u8::from(matches!(step.key(), StepKey::Record)) + 2 * u8::from(is_last(step, &made)));
            self.seen.insert("nft last");
        }
        for (number, step) in steps.into_iter().enumerate() {
            if trouble.crash_before == Some(number) {
                self.seen.insert("crash between steps");
                self.crash();
                return false;
            }
            if let Some((_, outside)) = trouble.outside_before.as_ref().filter(|(before, _)| *before == number) {
                self.outside(outside.clone());
                self.seen.insert("lost while planned");
            }
            let (others, came) = (self.node.of_others(), self.who_comes());
            self.attempt(step, trouble.faults.get(number).copied().unwrap_or(Fault::None));
            self.stamp();
            self.check_after(step, &others, &came);
        }
        self.wake_at = made.wake_at;
        made.steps.is_empty()
    }

    pub(super) fn who_comes(&self) -> BTreeMap<ServiceKey, BTreeSet<usize>> {
        // Those with another first mark filter as well.
        let record = &self.node.record;
        let rules_are_ours = record.is_handing_over() || self.fingerprints.values().any(|fingerprint| *fingerprint == record.rules);
        services().into_iter().map(|key| (key, self.node.who_comes(key, rules_are_ours))).collect()
    }

    fn attempt(&mut self, step: &Step, fault: Fault) {
        let done = if fault == Fault::WithoutEffect { Ok(()) } else { self.carry_out(step, fault) };
        if done.is_err() {
            assert!(self.disturbed, "the kernel refuses a part of {step}");
            self.seen.insert("refused");
        }
        if fault == Fault::None && done.is_ok() {
            match step {
                Step::ForgetConnections(_) | Step::MoveRanges(_) => self.before.complete(step),
                _ => self.before.succeed(step.key()),
            }
        } else {
            self.seen.insert(match fault {
                Fault::None | Fault::WithoutEffect => "failed",
                Fault::AfterEffect => "failed after effect",
                Fault::Halfway => "failed halfway",
            });
            if matches!(step, Step::Advertise(_) | Step::SetSysctl(_)) {
                self.lost.extend(self.advertised_vips());
            }
            self.before.fail(step.key(), &std::io::Error::other("refused"), self.now);
        }
    }

    fn carry_out(&mut self, step: &Step, fault: Fault) -> Result<(), Refused> {
        match step {
            Step::Advertise(set) => {
                self.advertised = Some(Arc::clone(set));
                let vips = self.advertised_vips();
                self.peer.iter_mut().for_each(|routes| routes.extend(&vips));
            }
            Step::WriteRules(wanted) if fault == Fault::Halfway => {
                let between = left_between(&self.node.record.rules, wanted.as_ref());
                let done = self.transactions % between.len().max(1);
                self.transactions += 1;
                if let Some(left) = between.get(done) {
                    self.node.record.rules.clone_from(left);
                    self.node.record.exists = true;
                    self.seen.insert("rules halfway");
                }
            }
            Step::RecordPending(_)
            | Step::RecordRemoved(_)
            | Step::ClosePorts(_)
            | Step::OpenPorts(_)
            | Step::WriteFilters(_)
            | Step::WriteRules(_)
            | Step::DropRecord => {
                self.node.write(step, self.now);
            }
            Step::MoveRanges(change) => {
                self.node.write(step, self.now);
                for ours in [&mut self.known_as_ours, &mut self.made] {
                    // The actuator knows by the mark that it is the same service.
                    let moved: Vec<ServiceKey> = change.moved.iter().filter_map(|(from, to)| ours.remove(from).then_some(*to)).collect();
                    ours.extend(moved);
                    ours.retain(|key| !change.retired.contains_key(key));
                }
            }
            Step::RemoveRetired(retired) => drop(self.node.services.remove(&Node::of_retired(*retired))),
            Step::RecordConfirmed(entries) => {
                self.node.write(step, self.now);
                let proven: Vec<At> = entries.services.iter().filter_map(|key| self.node.at(*key)).collect();
                self.unprovable.retain(|at| !proven.contains(at));
            }
            Step::AddAddress(vip) => {
                self.node.addresses.insert(*vip);
                if !self.node.record.pending.contains(vip) && !self.node.record.confirmed.contains(vip) {
                    self.unclaimed.insert(*vip);
                }
            }
            Step::RemoveAddress(vip) => drop(self.node.addresses.remove(vip)),
            Step::SetSysctl(setting) => drop(self.node.unset.remove(setting)),
            Step::ForgetConnections(_) => {}
            Step::AddVirtualService(key, change) => {
                self.node.add_service(*key, change.mode, true)?;
                self.known_as_ours.insert(*key);
                // Where the answer of the kernel got lost, nobody knows who made it.
                if fault == Fault::AfterEffect && !self.node.record.confirmed_services.contains(key) {
                    self.unprovable.extend(self.node.at(*key));
                } else {
                    self.made.insert(*key);
                }
                return self.change_servers(*key, change, fault);
            }
            Step::ChangeVirtualService(key, change) => {
                let edited = change.mode.map_or(Ok(()), |mode| self.node.edit_service(*key, mode));
                return edited.and_then(|()| self.change_servers(*key, change, fault));
            }
            Step::RemoveVirtualService(key) => {
                self.node.at(*key).map(|at| self.node.services.remove(&at));
            }
            Step::ConfigureSpeaker(bgp, set) => {
                self.configured = Some(Arc::clone(bgp));
                return set.iter().try_for_each(|set| self.carry_out(&Step::Advertise(Arc::clone(set)), fault));
            }
            Step::StopSpeaker | Step::ReleaseSpeaker => self.configured = None,
            Step::SetInterfaces(_)
            | Step::SetTimeouts(_)
            | Step::RemoveFormer(_)
            | Step::StartDaemon(_)
            | Step::StopDaemon(_)
            | Step::ConfigureVirtualRouters(_)
            | Step::StopVirtualRouters
            | Step::SuspendVirtualRouters => {
                panic!("this world has none: {step}")
            }
        }
        Ok(())
    }

    fn change_servers(&mut self, key: ServiceKey, change: &VirtualServiceChange, fault: Fault) -> Result<(), Refused> {
        let stays: Vec<SocketAddr> =
            self.node.service(key).into_iter().flat_map(|service| &service.seen.real_servers).map(|server| server.address).collect();
        let count = change.real_servers.len();
        self.node.change_servers(key, change, if fault == Fault::Halfway { count / 2 } else { count })?;
        if fault == Fault::Halfway {
            self.lost.insert(key.vip);
        } else {
            self.check_who_stays(key, &stays);
        }
        Ok(())
    }

    /// What happens once nothing goes wrong any more, until nothing does.
    pub(super) fn settle(&mut self, rounds: usize) {
        for _ in 0..rounds {
            let idle = self.round(&Trouble::default());
            let quiet = self.withdrawing().is_empty() && (self.configured.is_some() || self.peer.is_none());
            self.acknowledge();
            self.session_up();
            self.stamp();
            match self.wake_at {
                Some(at) if idle => self.now = self.now.max(at),
                None if idle && quiet => return,
                _ => {}
            }
        }
        panic!("no rest after {rounds} rounds: {}", self.next_plan());
    }

    pub(super) fn next_plan(&mut self) -> Plan {
        let observed = self.observe();
        plan(&self.desired(), &observed, self.now)
    }

    pub(super) fn set(&mut self, lifecycle: Lifecycle, complete: bool) {
        (self.intent.lifecycle, self.intent.complete) = (lifecycle, complete);
    }
}

/// Whether the speaker does it after all that is done to the node.
fn is_last(step: &Step, made: &Plan) -> bool {
    match step {
        Step::Advertise(_) => made.steps.first() != Some(step),
        Step::ConfigureSpeaker(..) | Step::StopSpeaker | Step::ReleaseSpeaker => true,
        _ => false,
    }
}
