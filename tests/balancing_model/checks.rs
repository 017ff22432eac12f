// SPDX-License-Identifier: Apache-2.0
//! What must hold: of each plan, after each step, and once nothing goes wrong any more. Input: the world, which knows what the planner cannot see.

use vipherald::desired::RouteSet;
use vipherald::observed::{Observed, ObservedRealServer, Record, ServiceMode};
use vipherald::plan::{Entries, Plan, RealServerChange, Step, StepKey, VirtualServiceChange, has_left, plan_churn};

use super::node::{At, InKernel, Node};
use super::*;

/// More rounds than any of these worlds needs to come to rest: who removes a virtual service again and again makes us wait.
const ROUNDS: usize = 120;

/// So often in a row something may fail before others wait for it no longer.
const HOPELESS: u32 = 5;

// What must hold of each plan.
impl World {
    pub(super) fn check_plan(&mut self, made: &Plan, observed: &Observed) {
        let set = self.advertised_vips();
        self.lost = set.iter().filter(|vip| !self.may_be_advertised(**vip)).copied().collect();
        let waiting = observed.failures.contains_key(&StepKey::Advertise);
        if waiting {
            // What should be withdrawn cannot be.
            self.lost = set;
        } else if !self.lost.is_empty() {
            let withdraws = matches!(made.steps.first(), Some(Step::Advertise(next)) if self.lost.iter().all(|vip| !next.serves(*vip)));
            assert!(withdraws, "{:?} must be withdrawn first: {made}", self.lost);
            self.seen.insert("withdraw");
        }
        assert!(made.wake_at.is_none_or(|at| at > self.now), "a time that has come is no time to wait for");
        for step in &made.steps {
            let event = self.check_step(step, made, observed);
            self.seen.insert(event);
        }
        self.check_churn(made, observed);
    }

    /// What may be done before the plan is made is a part of it, and takes from no VIP those who stand behind it.
    fn check_churn(&mut self, made: &Plan, observed: &Observed) {
        let desired = self.desired();
        let services = desired.balancing.iter().flat_map(|balancing| balancing.services.clone()).collect();
        for step in plan_churn(&services, &desired, observed, self.now) {
            assert!(made.steps.contains(&step), "{step} is done early, and is no part of: {made}");
            let Step::ChangeVirtualService(key, _) = &step else { panic!("{step} is no change in place: {made}") };
            assert!(self.is_backed(key.vip), "{step} comes before a withdrawal, as nobody stands behind the VIP: {made}");
            self.seen.insert("change early");
        }
    }

    fn check_step(&mut self, step: &Step, made: &Plan, observed: &Observed) -> &'static str {
        let record = &observed.kernel.record;
        match step {
            Step::Advertise(set) => self.check_set(set),
            Step::RecordPending(entries) => self.check_pending(entries, observed),
            Step::RecordConfirmed(entries) => {
                assert!(entries.services.iter().all(|key| self.node.is_ours(*key)), "what is not there, or others', is confirmed: {made}");
                "confirm"
            }
            Step::RecordRemoved(entries) => self.check_removed(entries, record),
            Step::AddAddress(vip) => {
                assert!(self.wanted(*vip) && self.is_backed(*vip), "{vip} is placed and nobody stands behind it: {made}");
                if self.intent_of(*vip) == Some(VipIntent::Serve { without_endpoints: true }) { "waived" } else { "place" }
            }
            Step::AddVirtualService(key, _) => self.check_made(*key, made, observed),
            Step::ChangeVirtualService(key, change) => self.check_change(*key, change),
            Step::RemoveVirtualService(key) => self.check_removal(*key, made),
            Step::WriteRules(Some(rules)) if rules.hands_over => "rules that hand over",
            Step::WriteRules(_) => self.check_rules(made),
            Step::WriteFilters(_) => "filtered",
            Step::ClosePorts(keys) => {
                let goes = |key: &ServiceKey| self.desired_of(*key).is_none_or(|wish| !self.is_in_place(*key, &wish));
                let goes = |key: &ServiceKey| record.confirmed_services.contains(key) && goes(key) && self.group_of(*key).is_none();
                let parts: Vec<&ServiceKey> = keys.iter().filter(|key| !goes(key)).collect();
                let comes = |key: &ServiceKey| self.has_arrived(*key) || self.is_awaited(*key);
                let served = |part: &ServiceKey| self.wishes.keys().any(|key| shares_ports(*key, *part) && comes(key));
                let given_up = |part: &ServiceKey| !served(part) && self.part_of(*part).is_some();
                assert!(parts.iter().all(|part| given_up(part)), "wanted ports are closed: {made}");
                let too_early =
                    |key: &&ServiceKey| !is_range(**key) && self.successors_on(**key).iter().any(|range| self.is_awaited(*range));
                assert_eq!(keys.iter().find(too_early), None, "the range is still to come that has its port: {made}");
                if parts.is_empty() { "close" } else { "close what is given up" }
            }
            Step::MoveRanges(change) => self.check_move(change, made, record),
            Step::RemoveRetired(retired) => self.check_end_of(*retired, made),
            Step::OpenPorts(keys) => {
                let stays = |key: &ServiceKey| self.desired_of(*key).is_some() || (is_range(*key) && self.hands_on(*key));
                let serves = |key: &ServiceKey| !record.has_service(*key) || (self.node.is_ours(*key) && stays(key));
                assert!(keys.iter().all(serves), "ports are opened that nobody serves: {made}");
                "open"
            }
            Step::SetSysctl(_) => "sysctl",
            Step::RemoveAddress(vip) => {
                assert!(!self.advertised_vips().contains(vip), "{vip} is removed while advertised");
                "unplace"
            }
            Step::DropRecord => {
                assert!(!self.node.services.iter().any(|(at, service)| service.ours && !self.unprovable.contains(at)), "drops the proof");
                "drop"
            }
            _ => "speaker",
        }
    }

    /// What is wanted and taken care of is advertised, all of it, and nothing else.
    fn check_set(&self, set: &RouteSet) -> &'static str {
        for vip in VIPS.map(ip) {
            if set.serves(vip) {
                assert!(self.may_be_advertised(vip), "{vip} is to be advertised and takes no connections");
            } else {
                assert!(!self.must_be_advertised(vip), "{vip} takes connections and is not to be advertised");
            }
        }
        "advertise"
    }

    fn check_pending(&mut self, entries: &Entries, observed: &Observed) -> &'static str {
        let record = &observed.kernel.record;
        let mut marks: BTreeSet<u32> = record.marks.values().copied().chain(record.retired.iter().map(|retired| retired.mark)).collect();
        for key in &entries.services {
            assert!(self.desired_of(*key).is_some() && !record.has_service(*key), "{key} is recorded without a wish, or twice");
            assert_eq!(entries.marks.contains_key(key), is_range(*key), "{key} has no mark, or one too many");
        }
        for (key, mark) in &entries.marks {
            assert!(marks.insert(*mark), "mark {mark} of {key} is taken");
            let of_others = [true, false].map(|v4| At::Mark(*mark, v4)).iter().any(|at| self.node.services.contains_key(at));
            assert!(!of_others, "mark {mark} of {key} is that of somebody else");
            let preserves = self.wishes[key].filter.preserves_client;
            assert!(self.rules().marks_of_ranges(preserves).contains(mark), "{mark} is no mark for {key}");
            let first = *self.rules().marks_of_ranges(preserves).start();
            self.seen.insert("marked");
            if self.node.services.iter().any(|(at, service)| !service.ours && matches!(at, At::Mark(mark, _) if *mark == first)) {
                self.seen.insert("mark of others passed by");
            }
        }
        "pending"
    }

    fn check_removed(&self, entries: &Entries, record: &Record) -> &'static str {
        let mut event = "struck";
        for key in &entries.services {
            assert!(record.has_service(*key), "{key} is not in the record");
            let Some(service) = self.node.service(*key) else { continue };
            let at = self.node.at(*key).unwrap();
            assert!(!service.ours || self.unprovable.contains(&at), "{key} is ours and forgotten");
            event = "disowned";
        }
        event
    }

    fn check_made(&mut self, key: ServiceKey, made: &Plan, observed: &Observed) -> &'static str {
        assert!(observed.kernel.record.has_service(key), "{key} is made without an entry: {made}");
        assert!(self.desired_of(key).is_some() && self.node.service(key).is_none(), "{key} is made without a wish, or twice: {made}");
        let Some(loss) = observed.losses.get(&key) else { return "add" };
        if loss.count > 1 {
            let wait = Duration::from_secs(1 << (loss.count - 2).min(8)).min(Duration::from_secs(300));
            assert!(self.now >= loss.last + wait, "{key} was removed {} times, and is fought for", loss.count);
            self.seen.insert("repair that waits");
        }
        "repair"
    }

    /// Who goes has no connections, or has had its time without new ones.
    fn check_change(&self, key: ServiceKey, change: &VirtualServiceChange) -> &'static str {
        let (at, service) = (self.node.at(key).unwrap(), self.node.service(key).expect("changes what is not there"));
        assert!(service.ours, "{key} of somebody else is changed");
        let quiesces = |change: &RealServerChange| matches!(change, RealServerChange::Weigh(_, Weight::QUIESCE));
        assert!(
            key.protocol != Protocol::Udp || !change.real_servers.iter().any(quiesces),
            "{key} knows no connections, and waits for them"
        );
        let comes_back = |address: &SocketAddr| {
            change.real_servers.iter().any(|change| matches!(change, RealServerChange::Add(added, _) if added == address))
        };
        let removed = change.real_servers.iter().filter_map(|change| match change {
            RealServerChange::Remove(address) if !comes_back(address) => Some(*address),
            _ => None,
        });
        for address in removed {
            let server = service.seen.real_servers.iter().find(|server| server.address == address).expect("removes what is not there");
            assert!(self.desired_of(key).is_none_or(|wish| !wish.real_servers.contains_key(&address)), "{address} of {key} stays");
            if key.protocol == Protocol::Udp || server.forwarding != Some(change.forwarding) {
                continue;
            }
            assert!(server.weight.is_quiesced(), "{address} of {key} is removed and was not quiesced");
            let over = self.quiesced.get(&(at, address)).is_some_and(|since| self.now >= *since + DRAIN_TIMEOUT);
            assert!(server.connections == 0 || over, "{address} of {key} is removed with {} connections", server.connections);
            return if server.connections > 0 { "connections outlast the bound" } else { "connections over" };
        }
        "change"
    }

    /// Where somebody else has balanced a VIP, it is claimed only once a virtual service of ours stands, or it is no longer advertised.
    fn check_rules(&self, made: &Plan) -> &'static str {
        let mut event = "rules";
        for vip in self.advertised_vips().into_iter().filter(|vip| self.balancing && self.is_elsewhere(*vip)) {
            if !self.wanted(vip) && !self.awaits_settings(vip) {
                continue;
            }
            if !self.is_waived(vip) {
                let confirmed = |key| self.node.record.confirmed_services.contains(&key) && self.node.is_ours(key);
                assert!(self.backed_keys(vip).any(confirmed), "{vip} is claimed and nobody of ours stands behind it: {made}");
                event = "taken over";
            }
        }
        event
    }

    /// A virtual service goes after its VIP, unless only this port, or its mark, is given up.
    fn check_removal(&self, key: ServiceKey, made: &Plan) -> &'static str {
        assert!(self.node.is_ours(key), "{key} is not there, or somebody else's, and removed: {made}");
        let record = &self.node.record;
        let let_in = self.balancing && !record.is_handing_over() && record.confirmed_services.contains(&key);
        let reaches_node = let_in && self.node.addresses.contains(&key.vip) && !self.is_relieved(key);
        assert!(!reaches_node, "{key} is removed while packets come to its ports: {made}");
        if let Some(wish) = self.desired_of(key) {
            assert!(!self.is_in_place(key, &wish), "{key} is wanted and removed");
            return "remade with another mark";
        }
        assert!(self.is_complete() || self.lifecycle() != Lifecycle::Run, "{key} is removed on partial knowledge");
        if self.wanted(key.vip) && !self.balancing {
            let since = self.handed_over.unwrap_or_else(|| panic!("{key} is removed while nobody else gets its connections: {made}"));
            let connections =
                self.node.service(key).map_or(0, |service| service.seen.real_servers.iter().map(|server| server.connections).sum());
            assert!(connections == 0 || self.now >= since + DRAIN_TIMEOUT, "{key} is removed with {connections} connections: {made}");
            return if connections > 0 { "handed over with connections" } else { "handed over" };
        }
        if self.wanted(key.vip) {
            assert!(self.group_of(key).is_none(), "{key} is removed, and could lead on: {made}");
            let successors = self.successors_on(key);
            if !self.node.addresses.contains(&key.vip) || !successors.iter().any(|successor| self.has_arrived(*successor)) {
                return "given up";
            }
            assert!(!successors.iter().any(|successor| self.is_awaited(*successor)), "{key} is removed before all others came: {made}");
            let connections =
                self.node.service(key).map_or(0, |service| service.seen.real_servers.iter().map(|server| server.connections).sum());
            let over = self.relieved.get(&key).is_some_and(|since| self.now >= *since + DRAIN_TIMEOUT);
            assert!(connections == 0 || over, "{key} is removed with {connections} connections: {made}");
            return if connections > 0 { "handed on with connections" } else { "handed on" };
        }
        assert!(!self.node.addresses.contains(&key.vip) || self.unclaimed.contains(&key.vip), "{key} is removed before its VIP");
        assert!(!self.advertised_vips().contains(&key.vip), "{key} is removed while its VIP is advertised");
        assert!(!self.withdrawing().contains(&key.vip), "{key} is removed while packets still come");
        "remove after the address"
    }
}

// What must hold after each step.
impl World {
    pub(super) fn check_after(&mut self, step: &Step, others: &BTreeMap<At, InKernel>, came: &BTreeMap<ServiceKey, BTreeSet<usize>>) {
        assert_eq!(self.node.of_others(), *others, "what others have was changed by: {step}");
        for (key, comes) in self.who_comes() {
            // One that is given up keeps its filter until it is gone.
            let recorded = self.node.record.filters.get(&key).unwrap_or(&Filter::NONE);
            let filter = self.wishes.get(&key).filter(|_| self.balancing).map_or(recorded, |wish| &wish.filter);
            let admitted = admitted(key.vip, filter.sources.as_ref());
            let more: Vec<usize> = comes.into_iter().filter(|client| !came[&key].contains(client) && !admitted.contains(client)).collect();
            let left_behind = self.node.at(key).is_some_and(|at| self.unprovable.contains(&at));
            // What others took, or what nobody knows to be ours any more, is open by that.
            let gone_for_good = !self.balancing && self.node.record.rules.is_empty() && !matches!(step, Step::WriteRules(_));
            let excused = self.disturbed || left_behind || gone_for_good;
            assert!(more.is_empty() || excused, "clients {more:?} come to {key}, which does not admit them, after: {step}");
        }
        for vip in self.advertised_vips() {
            assert!(self.may_be_advertised(vip) || self.lost.contains(&vip), "{vip} is advertised and takes no connections after: {step}");
        }
    }

    /// A real server that was there and is to be there is there.
    pub(super) fn check_who_stays(&self, key: ServiceKey, before: &[SocketAddr]) {
        let Some(wish) = self.desired_of(key) else { return };
        let after = &self.node.service(key).unwrap().seen.real_servers;
        for address in before.iter().filter(|address| wish.real_servers.contains_key(address)) {
            assert!(after.iter().any(|server| server.address == *address), "{address} of {key} stays, and is away");
        }
    }
}

// What is right.
impl World {
    /// Whether the VIP is to be here, and can be.
    pub(super) fn wanted(&self, vip: IpAddr) -> bool {
        let required = [Sysctl::Ipv4Forward, Sysctl::VsConntrack];
        let possible = self.node.ipvs && required.iter().all(|setting| !self.node.unset.contains(setting));
        let serve = matches!(self.intent_of(vip), Some(VipIntent::Serve { .. }));
        self.lifecycle() == Lifecycle::Run && serve && (possible || !self.balancing)
    }

    /// What a virtual service of a VIP that is wanted is to be.
    pub(super) fn desired_of(&self, key: ServiceKey) -> Option<DesiredVirtualService> {
        let mut wish = self.wishes.get(&key).filter(|_| self.balancing && self.wanted(key.vip))?.clone();
        let distant = |server: &SocketAddr| *server == address(key, 0) && !self.node.on_link;
        if wish.forwarding == ForwardingMethod::DirectRouting {
            wish.real_servers.retain(|server, _| !distant(server));
        }
        Some(wish)
    }

    fn is_waived(&self, vip: IpAddr) -> bool {
        !self.balancing || self.intent_of(vip) == Some(VipIntent::Serve { without_endpoints: true })
    }

    fn is_backed(&self, vip: IpAddr) -> bool {
        let is_wish_backed = |wish: &ServiceKey| self.wishes.get(wish).is_some_and(DesiredVirtualService::is_backed);
        let hands_on = |key: &ServiceKey| self.hands_on(*key) && self.successors_on(*key).iter().any(is_wish_backed);
        let mut leaving = services().into_iter().filter(|key| key.vip == vip && hands_on(key));
        self.is_waived(vip)
            || self.is_elsewhere(vip)
            || self.backed_keys(vip).any(|key| self.node.takes_connections(key))
            || leaving.any(|key| self.node.takes_connections(key))
            || self.is_backed_by_ranges(vip)
    }

    /// Whether somebody else balances the VIP until we do.
    fn is_elsewhere(&self, vip: IpAddr) -> bool {
        let record = &self.node.record;
        let is_proven = |key: &ServiceKey| self.node.at(*key).is_some_and(|at| !self.unprovable.contains(&at));
        let is_known = |key: &ServiceKey| self.wishes.contains_key(key) || record.has_service(*key) || is_proven(key);
        let is_there = |key: &ServiceKey| record.confirmed_services.contains(key) || (self.node.is_ours(*key) && is_known(key));
        let is_new = record.rules.is_empty() && !services().iter().any(|key| key.vip == vip && is_there(key));
        record.confirmed.contains(&vip) && (record.is_handing_over() || is_new)
    }

    /// Those of its virtual services that somebody is to stand behind.
    fn backed_keys(&self, vip: IpAddr) -> impl Iterator<Item = ServiceKey> {
        let of_vip = services().into_iter().filter(move |key| key.vip == vip);
        let wish = |key: ServiceKey| self.desired_of(key).filter(|wish| self.is_in_place(key, wish)).or_else(|| self.successor_of(key));
        of_vip.filter(move |key| wish(*key).is_some_and(|wish| wish.is_backed()))
    }

    /// The range of ports that becomes another one, or single ones, and has these.
    fn part_of(&self, part: ServiceKey) -> Option<ServiceKey> {
        let gives_up = |key: &ServiceKey| self.group_of(*key).is_some() || (is_range(*key) && self.hands_on(*key));
        services().into_iter().find(|key| shares_ports(*key, part) && gives_up(key))
    }

    /// Single ports that are wanted out of a range, or a range that is wanted and has a single one; none where another range has some of a range.
    fn successors_on(&self, key: ServiceKey) -> Vec<ServiceKey> {
        let wanted = self.balancing && self.is_complete() && self.wanted(key.vip) && !self.wishes.contains_key(&key);
        let wishes: Vec<ServiceKey> = self.wishes.keys().filter(|wish| wanted && shares_ports(**wish, key)).copied().collect();
        if wishes.iter().any(|wish| is_range(*wish) == is_range(key)) { Vec::new() } else { wishes }
    }

    /// Whether it is not wanted, there, and others are to have ports of it.
    fn hands_on(&self, key: ServiceKey) -> bool {
        self.node.record.confirmed_services.contains(&key) && self.node.is_ours(key) && !self.successors_on(key).is_empty()
    }

    fn has_arrived(&self, key: ServiceKey) -> bool {
        let record = &self.node.record;
        self.node.is_ours(key) && record.confirmed_services.contains(&key) && !record.closed.contains(&key)
    }

    /// Whether it failed so often that nobody waits for it.
    pub(super) fn is_hopeless(&self, key: ServiceKey) -> bool {
        self.before.failures.get(&StepKey::VirtualService(key)).is_some_and(|failure| failure.count >= HOPELESS)
    }

    /// Whether it is still to come, and does not keep on failing.
    pub(super) fn is_awaited(&self, key: ServiceKey) -> bool {
        let of_others = self.node.service(key).is_some_and(|service| !service.ours);
        !self.has_arrived(key) && !of_others && !self.is_hopeless(key)
    }

    /// Whether no new connection comes to it: each of its ports is closed, or has a virtual service of its own.
    pub(super) fn is_relieved(&self, key: ServiceKey) -> bool {
        let record = &self.node.record;
        let mut of_others =
            record.closed.iter().filter(|closed| **closed == key || !record.has_service(**closed)).copied().collect::<Vec<_>>();
        of_others.extend(services().into_iter().filter(|other| is_range(key) && !is_range(*other) && self.has_arrived(*other)));
        let has = |other: &ServiceKey, port: u16| (other.vip, other.protocol) == (key.vip, key.protocol) && other.ports.contains(port);
        // If there is a gap, it begins at one of these.
        let after = of_others.iter().filter_map(|other| other.ports.end().checked_add(1));
        let mut begins = after.chain([key.ports.start()]).filter(|port| key.ports.contains(*port));
        begins.all(|port| of_others.iter().any(|other| has(other, port)))
    }

    /// Whether a range of ports has a mark of its kind.
    pub(super) fn is_in_place(&self, key: ServiceKey, wish: &DesiredVirtualService) -> bool {
        let fits = |mark: &u32| self.rules().marks_of_ranges(wish.filter.preserves_client).contains(mark);
        !is_range(key) || self.node.record.marks.get(&key).is_some_and(fits)
    }

    /// Whether only settings keep us from balancing what somebody else does until then, and nothing has failed about them.
    fn awaits_settings(&self, vip: IpAddr) -> bool {
        let required = [Sysctl::Ipv4Forward, Sysctl::VsConntrack].into_iter().filter(|setting| self.node.unset.contains(setting));
        let fails = required.clone().any(|setting| self.before.failures.contains_key(&StepKey::Sysctl(setting)));
        let serve = self.lifecycle() == Lifecycle::Run && matches!(self.intent_of(vip), Some(VipIntent::Serve { .. }));
        let backed = self.wishes.iter().any(|(key, wish)| key.vip == vip && wish.is_backed());
        self.balancing && self.node.ipvs && serve && backed && required.count() > 0 && !fails && self.is_elsewhere(vip)
    }

    /// Whether a virtual service of the VIP is let in that not everybody may come to, and nobody knows whose rules are there until all is known that is wanted.
    fn is_unguarded(&self, vip: IpAddr) -> bool {
        let record = &self.node.record;
        let lets_in = |key: &ServiceKey| key.vip == vip && record.confirmed_services.contains(key) && self.node.is_ours(*key);
        let is_filtered = |key: &ServiceKey| record.filters.get(key).is_some_and(|filter| filter.sources.is_some());
        let unknown = !self.balancing && !self.is_complete() && !record.is_handing_over() && !record.rules.is_empty();
        unknown && services().iter().any(|key| lets_in(key) && is_filtered(key))
    }

    fn may_be_advertised(&self, vip: IpAddr) -> bool {
        (self.wanted(vip) || self.awaits_settings(vip)) && self.node.addresses.contains(&vip) && self.is_backed(vip)
    }

    fn must_be_advertised(&self, vip: IpAddr) -> bool {
        let proven = |key| self.node.record.confirmed_services.contains(&key) && self.node.takes_connections(key);
        let backed = self.is_waived(vip) || self.backed_keys(vip).any(proven);
        // What others have under the name of ours may be taken for ours.
        let of_others = |key: &ServiceKey| key.vip == vip && self.node.service(*key).is_some_and(|service| !service.ours);
        let stays = self.awaits_settings(vip) && self.advertised_vips().contains(&vip) && !services().iter().any(of_others);
        self.node.addresses.contains(&vip) && ((self.wanted(vip) && backed) || stays)
    }
}

// What must hold once nothing goes wrong any more.
impl World {
    pub(super) fn come_to_rest_in_every_lifecycle(&mut self) {
        self.come_to_rest();
        self.node.ipvs = true;
        self.set(self.lifecycle(), true);
        self.come_to_rest();
        for lifecycle in [Lifecycle::Drain, Lifecycle::Standby, Lifecycle::Run] {
            self.set(lifecycle, true);
            self.come_to_rest();
        }
    }

    fn come_to_rest(&mut self) {
        self.settle(ROUNDS);
        self.check_exact();
        self.now += Duration::from_secs(3600);
        let next = self.next_plan();
        assert_eq!(next, Plan::default(), "rest is rest: {next}");
    }

    fn check_exact(&mut self) {
        for key in services() {
            self.check_service(key);
        }
        self.check_record();
        for vip in VIPS.map(ip) {
            let (set, placed) = (self.advertised_vips(), self.node.addresses.contains(&vip));
            assert_eq!(set.contains(&vip), self.may_be_advertised(vip), "{vip} is advertised just where it takes connections");
            let waits = !self.is_backed(vip) || self.is_unguarded(vip);
            assert!(placed || !self.wanted(vip) || waits, "{vip} is backed and not placed");
            let kept = self.wanted(vip) || !self.is_complete() || !self.node.unset.is_empty() || self.unclaimed.contains(&vip);
            assert!(!placed || kept, "{vip} is left behind");
        }
        let unknown =
            self.node.services.iter().filter(|(at, service)| service.ours && self.node.key(**at).is_none() && !self.is_retired(**at));
        let unknown: Vec<At> = unknown.map(|(at, _)| *at).collect();
        assert!(unknown.iter().all(|at| self.unprovable.contains(at)), "left behind: {unknown:?}");
        if !self.node.of_others().is_empty() {
            self.seen.insert("foreign at rest");
        }
        if !self.node.ipvs {
            self.seen.insert("without IPVS at rest");
        }
        let leaving = self.lifecycle() == Lifecycle::Drain;
        assert_eq!(has_left(&self.desired(), &self.before), leaving);
    }

    fn is_retired(&self, at: At) -> bool {
        self.node.record.retired.iter().any(|retired| Node::of_retired(*retired) == at)
    }

    fn check_service(&mut self, key: ServiceKey) {
        let record = &self.node.record;
        let (at, wish) = (self.node.at(key), self.desired_of(key));
        let confirmed = record.confirmed_services.contains(&key);
        let service = match (self.node.service(key).cloned(), &wish) {
            (Some(service), _) if !service.ours => {
                assert!(!record.has_service(key), "{key} of somebody else is in the record");
                return;
            }
            (Some(_), _) if at.is_some_and(|at| self.unprovable.contains(&at)) => {
                assert!(!confirmed);
                self.seen.insert("left behind without proof");
                return;
            }
            (None, None) => {
                assert!(!record.has_service(key), "{key} is recorded and not there");
                return;
            }
            (None, Some(_)) => {
                // While not all is known that is wanted, the range of ports stays that was there before.
                let before = services().into_iter().any(|other| is_range(key) && shares_ports(key, other) && record.has_service(other));
                assert!(before && !self.is_complete(), "{key} is wanted and missing");
                return;
            }
            (Some(_), None) => {
                assert!(!self.is_complete(), "{key} is not wanted and left behind");
                return;
            }
            (Some(service), Some(_)) => service,
        };
        let wish = wish.unwrap();
        assert!(confirmed, "{key} is there and not confirmed");
        let server = |server: &ObservedRealServer| (server.address, server.weight, server.forwarding);
        let mut servers: Vec<_> = service.seen.real_servers.iter().map(server).collect();
        if wish.scheduling.hashes_client() {
            self.seen.extend((servers.len() > 2).then_some("hashed at rest"));
        } else {
            servers.sort_unstable_by_key(|(address, ..)| *address);
        }
        let wanted: Vec<_> = wish.real_servers.iter().map(|(address, weight)| (*address, *weight, Some(wish.forwarding))).collect();
        assert_eq!(servers, wanted, "{key} has these real servers");
        let quiesced = wish.real_servers.values().any(|weight| weight.is_quiesced());
        let scheduler = wish.scheduling.scheduler;
        let fallback = scheduler == Scheduler::MaglevHashing || (scheduler == Scheduler::SourceHashing && quiesced);
        assert_eq!(service.seen.mode, Some(ServiceMode { scheduling: wish.scheduling, fallback }), "{key} is set to this");
        assert_eq!(self.node.record.filters.get(&key).unwrap_or(&Filter::NONE), &wish.recorded_filter(key), "who may come to {key}");
        assert!(self.is_in_place(key, &wish), "{key} has a mark of its kind");
    }

    fn check_record(&self) {
        let record = &self.node.record;
        if self.lifecycle() == Lifecycle::Drain {
            assert_eq!(*record, Record::default());
            return;
        }
        let in_force = if self.balancing { self.fingerprint() } else { &[] };
        let strays = !self.is_complete() && !self.balancing;
        assert!(record.rules == in_force || strays, "the rules are as they should be");
        let unproven = |key: &ServiceKey| !self.is_complete() || self.node.at(*key).is_some_and(|at| self.unprovable.contains(&at));
        assert!(record.pending_services.iter().all(unproven), "{:?} are pending for ever", record.pending_services);
        assert!(record.retired.is_empty() || !self.is_complete(), "{:?} have no ports for ever", record.retired);
        assert!(record.closed.is_empty() || !self.is_complete(), "{:?} are closed for ever", record.closed);
        assert!(record.marks.keys().all(|key| record.has_service(*key)), "marks of nothing: {:?}", record.marks);
        let of_something = |key: &ServiceKey| record.has_service(*key) || !self.is_complete();
        assert!(record.filters.keys().all(of_something), "filters of nothing: {:?}", record.filters);
        let waits = |vip: &IpAddr| !self.is_backed(*vip) || self.is_unguarded(*vip);
        let awaited = |vip: &IpAddr| self.wanted(*vip) && waits(vip) && !self.node.addresses.contains(vip);
        assert!(record.pending.iter().all(awaited), "{:?} are pending for ever", record.pending);
        let there = |vip: &IpAddr| self.node.addresses.contains(vip) || awaited(vip);
        assert!(record.confirmed.iter().all(there), "{:?} are recorded and missing", record.confirmed);
    }
}
