// SPDX-License-Identifier: Apache-2.0
//! What must hold: of each plan, after each step, and once nothing goes wrong any more. Input: the world, which knows what the planner cannot see.

use super::*;

// What must hold of each plan and after each step.
impl World {
    pub(super) fn check_plan(&mut self, made: &Plan, observed: &Observed) {
        let set = self.advertised_set();
        let may_stay = |vip: &IpAddr| self.desired.lifecycle == Lifecycle::Run || (self.may_shut_down() && set.serves(*vip));
        let servable = |vip: &IpAddr| self.servable(*vip) && self.is_served(vip) && may_stay(vip);
        self.allowed = VIPS.map(ip).into_iter().filter(servable).collect();
        self.lost = announced(&set).filter(|vip| !self.allowed.contains(vip)).collect();
        let waiting = observed.failures.get(&StepKey::Advertise).is_some_and(|failure| failure.last + back_off(failure.count) > self.now);
        if !self.lost.is_empty() && !waiting {
            let first = made.steps.first();
            let withdraws = matches!(first, Some(Step::Advertise(set)) if announced(set).all(|vip| !self.lost.contains(&vip)));
            assert!(withdraws, "{:?} must be withdrawn first: {made}", self.lost);
            self.seen.insert("withdraw");
        }
        assert!(made.wake_at.is_none_or(|at| at > self.now), "a time that has come is no time to wait for");
        let ranks: Vec<u8> = made.steps.iter().map(|step| rank(step, &set)).collect();
        assert!(ranks.is_sorted(), "out of order: {made}");
        assert!(made.steps.iter().filter(|step| matches!(step, Step::Advertise(_))).count() <= 1, "advertises twice: {made}");
        if !self.protocols {
            let unproven = |vip: &&IpAddr| !self.record.confirmed.contains(vip) && !self.serves(**vip) && self.kernel.contains_key(vip);
            let unproven: Vec<IpAddr> = self.record.pending.iter().filter(unproven).copied().collect();
            self.unprovable.extend(unproven);
        }
        for step in &made.steps {
            self.check_step(step, made, observed);
        }
    }

    pub(super) fn check_step(&mut self, step: &Step, made: &Plan, observed: &Observed) {
        let ours = |vip: &IpAddr| self.kernel.get(vip).is_some_and(|placed| placed.ours);
        let recorded = |vip: &IpAddr| observed.kernel.record.pending.contains(vip) || observed.kernel.record.confirmed.contains(vip);
        let event = match step {
            Step::Advertise(set)
                if made.steps.iter().any(|step| matches!(step, Step::ConfigureSpeaker(..))) && self.configured.is_some() =>
            {
                self.check_withdrawal(set);
                "withdraw before a configuration"
            }
            Step::Advertise(set) => {
                self.check_set(set);
                "advertise"
            }
            Step::RecordPending(set) => {
                assert!(set.addresses.iter().all(|vip| self.wanted(*vip) && !self.kernel.contains_key(vip) && !recorded(vip)), "{made}");
                "pending"
            }
            Step::AddAddress(vip) => {
                assert!(self.wanted(*vip) && !self.kernel.contains_key(vip) && recorded(vip), "places {vip} without entry or wish");
                "add"
            }
            Step::RecordConfirmed(set) => {
                assert!(set.addresses.iter().all(ours), "somebody else's address is recorded as ours: {made}");
                if set.addresses.iter().any(|vip| !recorded(vip)) { "adopted" } else { "confirm" }
            }
            Step::RecordRemoved(set) => {
                assert!(
                    set.addresses.iter().all(|vip| recorded(vip) && (!ours(vip) || self.unprovable.contains(vip))),
                    "forgets what is ours: {made}"
                );
                "removed"
            }
            Step::RemoveAddress(vip) => {
                assert!(ours(vip), "somebody else's {vip} is removed");
                assert!(!self.wanted(*vip), "{vip} is wanted and removed");
                assert!(self.desired.complete || self.desired.lifecycle != Lifecycle::Run, "{vip} is removed on partial knowledge");
                self.check_withdrawn(*vip, made)
            }
            Step::ConfigureSpeaker(bgp, set) => {
                if let Some(set) = set {
                    self.check_set(set);
                    self.seen.insert("configure with a set");
                }
                assert!(**bgp == self.desired.bgp && self.desired.lifecycle != Lifecycle::Keep);
                if self.configured.is_none() {
                    self.check_first_plan_applied(observed);
                }
                "configure"
            }
            Step::ReleaseSpeaker => {
                assert_eq!(self.desired.lifecycle, Lifecycle::Keep);
                "release"
            }
            Step::StopSpeaker => {
                assert!(self.desired.lifecycle == Lifecycle::Drain && self.advertised_set() == RouteSet::default());
                assert!(
                    !self.kernel.iter().any(|(vip, placed)| placed.ours && !self.unprovable.contains(vip)),
                    "stops before all is removed"
                );
                let late = |prefix: &Prefix| self.now >= self.in_set[prefix] + TIMEOUT;
                assert!(self.withdrawing().iter().all(late), "stops before peers know");
                "stop"
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
            | Step::ForgetConnections(_) => panic!("nobody balances here: {made}"),
            Step::ConfigureVirtualRouters(_) | Step::StopVirtualRouters | Step::SuspendVirtualRouters => {
                panic!("there are no virtual routers: {made}")
            }
            Step::DropRecord => {
                assert_eq!(self.record, Record { exists: true, ..Record::default() }, "drops a record that holds something");
                assert!(self.desired.lifecycle == Lifecycle::Drain && self.open_sessions() == 0 && self.configured.is_none());
                "drop"
            }
        };
        self.seen.insert(event);
    }

    /// Either no peer has had a route for as long as the fabric needs, or one has had the bound to give it up.
    pub(super) fn check_withdrawn(&self, vip: IpAddr, made: &Plan) -> &'static str {
        let set = self.advertised_set();
        assert!(!set.serves(vip), "{vip} is removed while advertised");
        let next = made.steps.iter().find_map(|step| if let Step::Advertise(set) = step { Some(&**set) } else { None }).unwrap_or(&set);
        let leaving = self.desired.lifecycle != Lifecycle::Run;
        // While others keep an aggregate up, nothing is withdrawn that could be waited for.
        let around: Vec<Prefix> =
            AGGREGATES.map(aggregate).into_iter().filter(|prefix| prefix.contains(vip) && (leaving || !next.contains(prefix))).collect();

        let passed = |times: &BTreeMap<Prefix, Instant>, prefix, delay| times.get(&prefix).is_none_or(|since| self.now >= *since + delay);
        for prefix in around.iter().copied().chain([Prefix::host(vip)]) {
            assert!(!set.contains(&prefix), "{vip} is removed while {prefix} is advertised");
            let in_time = passed(&self.reachable, prefix, FABRIC_DELAY);
            let late = made.forced.contains(&vip) && passed(&self.in_set, prefix, TIMEOUT);
            assert!(in_time || late, "{vip} is removed before {prefix} could be forgotten: {made}");
        }
        match (made.forced.contains(&vip), around.iter().any(|prefix| self.in_set.contains_key(prefix))) {
            (true, _) => "force",
            (false, true) => "last of its aggregate",
            (false, false) => "remove",
        }
    }

    /// What is served is advertised, all of it, with what it asks for; in a drain, what was advertised before, as the last resort and for its time.
    pub(super) fn check_set(&mut self, next: &RouteSet) {
        let whole = self.expected();
        if self.desired.lifecycle == Lifecycle::Run {
            assert_eq!(*next, whole, "advertises what is served, all of it");
            self.seen.extend((!next.covered.is_empty()).then_some("aggregated"));
            return;
        }
        let set = self.advertised_set();
        for (prefix, route) in &next.routes {
            let expected = whole.routes.get(prefix).map(|route| route.shutting_down());
            assert!(self.may_shut_down() && set.contains(prefix) && Some(&**route) == expected.as_ref(), "{prefix} is added in a drain");
            self.seen.insert("graceful shutdown");
        }
        self.check_last_resort(next, &whole);
    }

    /// In a drain nothing is withdrawn that has not been the last resort for its time.
    fn check_last_resort(&self, next: &RouteSet, whole: &RouteSet) {
        let set = self.advertised_set();
        for prefix in whole.prefixes().filter(|prefix| set.contains(prefix) && !next.contains(prefix)) {
            let over = self.last_resort.get(&prefix).is_some_and(|since| self.now >= *since + GRACEFUL_SHUTDOWN);
            assert!(over || !self.may_shut_down(), "{prefix} is withdrawn without its time as the last resort");
        }
    }

    /// Before another configuration what is not served any more is withdrawn, and the rest stays as it is.
    fn check_withdrawal(&mut self, next: &RouteSet) {
        let (now, whole) = (self.advertised_set(), self.expected());
        for (prefix, route) in &next.routes {
            assert_eq!(now.routes.get(prefix), Some(route), "{prefix} is told before its configuration");
        }
        if self.desired.lifecycle != Lifecycle::Run {
            return self.check_last_resort(next, &whole);
        }
        for vip in VIPS.map(ip) {
            assert_eq!(next.serves(vip), now.serves(vip) && whole.serves(vip), "{vip} in {next} instead of {now}, before {whole}");
        }
        let kept = |prefix: &Prefix| now.contains(prefix) && whole.contains(prefix);
        assert!(
            AGGREGATES.map(aggregate).iter().all(|prefix| next.contains(prefix) || !kept(prefix)),
            "an aggregate is withdrawn and announced"
        );
    }

    pub(super) fn may_shut_down(&self) -> bool {
        !self.desired.drain.graceful_shutdown.is_zero() && self.open_sessions() > 0
    }

    /// What would be advertised were the node to stay.
    pub(super) fn expected(&mut self) -> RouteSet {
        let now = self.advertised_set();
        let mut set = RouteSet::default();
        let servable: Vec<IpAddr> = VIPS.map(ip).into_iter().filter(|vip| self.servable(*vip) && self.is_served(vip)).collect();
        for vip in servable {
            let route = match self.desired.vips.get(&vip).and_then(|desired| desired.policy.as_deref()) {
                None => Arc::new(Route::originated()),
                Some("gold") => Arc::new(gold()),
                Some(_) => {
                    self.seen.insert("policy in force");
                    Arc::clone(now.announces(vip).unwrap().1)
                }
            };
            set.routes.insert(Prefix::host(vip), route);
        }
        for (prefix, aggregate) in &self.desired.routing.aggregates {
            let inside: Vec<IpAddr> = announced(&set).filter(|vip| prefix.contains(*vip)).collect();
            if !inside.is_empty() {
                set.routes.insert(*prefix, Arc::new(Route::originated()));
            }
            if aggregate.suppress {
                // One is announced before the other is withdrawn.
                let covered = inside.into_iter().filter(|vip| now.contains(prefix) || !now.contains(&Prefix::host(*vip)));
                set.covered.extend(covered);
            }
        }
        for (prefix, route) in AGGREGATES.map(aggregate).into_iter().filter_map(|prefix| Some((prefix, now.routes.get(&prefix)?))) {
            if now.covered.iter().any(|vip| prefix.contains(*vip) && set.contains(&Prefix::host(*vip)) && !set.covered.contains(vip)) {
                set.routes.entry(prefix).or_insert_with(|| Arc::clone(route));
                self.seen.insert("aggregate taken over");
            }
        }
        set.covered.iter().for_each(|vip| drop(set.routes.remove(&Prefix::host(*vip))));
        set
    }

    pub(super) fn check_first_plan_applied(&self, observed: &Observed) {
        let set = self.advertised.as_deref().expect("sessions open before there is a set");
        for vip in VIPS.map(ip).into_iter().filter(|vip| self.wanted(*vip)) {
            let failing = observed.failures.contains_key(&StepKey::Address(vip)) || observed.failures.contains_key(&StepKey::Record);
            let served = self.kernel.contains_key(&vip) && set.serves(vip);
            assert!(served || failing, "sessions open before {vip} is served");
        }
    }

    /// The promise: what is advertised is on the interface and wanted, but for what others took away since the plan looked.
    pub(super) fn check_advertised(&mut self, step: &Step) {
        if let Step::Advertise(_) | Step::ConfigureSpeaker(_, Some(_)) = step {
            let set = self.advertised_set();
            self.lost.retain(|vip| set.serves(*vip));
        }
        let set = self.advertised_set();
        for prefix in AGGREGATES.map(aggregate).into_iter().filter(|prefix| set.contains(prefix)) {
            assert!(announced(&set).any(|vip| prefix.contains(vip)), "{prefix} is advertised, and no VIP inside: {step}");
        }
        for vip in announced(&set) {
            let served = self.allowed.contains(&vip) && self.is_served(&vip);
            assert!(served || self.lost.contains(&vip), "{vip} is advertised and not served after: {step}");
        }
    }

    pub(super) fn serves(&self, vip: IpAddr) -> bool {
        matches!(self.desired.vips.get(&vip), Some(DesiredVip { intent: VipIntent::Serve { .. }, .. }))
    }

    /// Whether traffic to the address arrives.
    pub(super) fn is_served(&self, vip: &IpAddr) -> bool {
        self.interface == InterfaceState::Up && self.kernel.contains_key(vip)
    }

    pub(super) fn wanted(&self, vip: IpAddr) -> bool {
        self.desired.lifecycle == Lifecycle::Run && self.servable(vip)
    }

    /// Whether the node would serve it were it to stay.
    pub(super) fn servable(&self, vip: IpAddr) -> bool {
        let policy = self.desired.vips.get(&vip).and_then(|desired| desired.policy.as_deref());
        let known = policy != Some("lead") || self.advertised_set().serves(vip);
        let only_elsewhere = self.elsewhere.contains(&vip) && !self.kernel.contains_key(&vip);
        let sourceless = vip.is_ipv4() && !self.has_own_ipv4();
        let up = self.interface == InterfaceState::Up;
        known && self.serves(vip) && up && !only_elsewhere && !sourceless
    }

    pub(super) fn has_own_ipv4(&self) -> bool {
        let looks_foreign = |(vip, placed): (&IpAddr, &Placed)| {
            let recorded = self.record.pending.contains(vip) || self.record.confirmed.contains(vip);
            let proven = placed.attributes.protocol == Some(ADDRESS_PROTOCOL) || (!self.protocols && recorded);
            (!proven || placed.attributes.prefix_length == 24).then_some(*vip)
        };
        let foreign = self.kernel.iter().filter_map(looks_foreign);
        let recorded = |vip: &IpAddr| self.record.pending.contains(vip) || self.record.confirmed.contains(vip);
        self.elsewhere.iter().any(|address| address.is_ipv4() && !recorded(address))
            || foreign.into_iter().any(|address| address.is_ipv4() && !self.desired.vips.contains_key(&address))
    }
}

// What must hold once nothing goes wrong any more.
impl World {
    pub(super) fn come_to_rest_in_every_lifecycle(&mut self) {
        self.come_to_rest();
        self.desired.complete = true;
        self.come_to_rest();
        for lifecycle in [Lifecycle::Drain, Lifecycle::Standby, Lifecycle::Run] {
            self.desired.lifecycle = lifecycle;
            self.come_to_rest();
        }
    }

    pub(super) fn come_to_rest(&mut self) {
        let mut rounds = 0;
        loop {
            rounds += 1;
            assert!(rounds <= ROUNDS, "no rest after {ROUNDS} rounds: {}", plan(&self.desired.clone(), &self.observe(), self.now));
            let idle = self.round(&Trouble::default());
            let quiet = self.withdrawing().is_empty() && (self.configured.is_some() || self.open_sessions() == 0);
            for peer in 0..PEERS.len() {
                self.acknowledge(peer);
                self.session_up(peer);
            }
            self.stamp();
            match self.wake_at {
                Some(at) if idle => self.advance(at),
                None if idle && quiet => break,
                _ => {}
            }
        }
        self.check_exact();
        self.advance(self.now + Duration::from_secs(3600));
        self.stamp();
        assert_eq!(plan(&self.desired.clone(), &self.observe(), self.now), Plan::default(), "rest is rest");
    }

    pub(super) fn check_exact(&mut self) {
        let observed = self.observe();
        let leaving = self.desired.lifecycle != Lifecycle::Run;
        let served = if leaving { RouteSet::default() } else { self.expected() };
        assert_eq!(self.advertised_set(), served, "what is wanted is advertised");
        for vip in VIPS.map(ip) {
            let blocked = self.serves(vip) && !leaving && !self.wanted(vip);
            let Some(placed) = self.kernel.get(&vip).copied() else {
                assert!(!self.wanted(vip), "{vip} is wanted and missing");
                let renamed = self.desired.lifecycle.goes_on()
                    && observed.kernel.interface == InterfaceState::Missing
                    && observed.kernel.elsewhere.contains(&vip);
                let recorded = self.record.confirmed.contains(&vip) || self.record.pending.contains(&vip);
                assert!(renamed || !recorded, "{vip} is recorded and missing");
                self.seen.extend(blocked.then_some("blocked"));
                continue;
            };
            let confirmed = self.record.confirmed.contains(&vip);
            let unprovable = self.unprovable.contains(&vip);
            if !placed.ours {
                assert!(!confirmed && !self.record.pending.contains(&vip), "somebody else's {vip} is in the record");
            } else if confirmed {
                let kept = self.serves(vip) && !leaving && self.interface == InterfaceState::Down;
                assert!(self.wanted(vip) || kept || !self.desired.complete, "{vip} is not wanted and left behind");
            } else {
                assert!(unprovable, "{vip} is ours and not recorded");
                // With protocols, what nobody can prove is reported; and what is wanted is proven by that.
                if self.protocols {
                    assert_eq!(ownership(vip, &self.desired, &observed), Some(Ownership::Unclaimed));
                    self.seen.insert("unclaimed");
                }
            }
        }
        let undecided = |vip: &IpAddr| !self.protocols && !self.desired.complete && self.kernel.contains_key(vip);
        assert!(self.record.pending.iter().all(undecided), "{:?} is pending for ever", self.record.pending);
        let over = self.desired.lifecycle == Lifecycle::Drain;
        assert_eq!(has_left(&self.desired, &observed), over);
        if over {
            assert_eq!((&self.record, self.open_sessions()), (&Record::default(), 0));
        } else {
            assert_eq!(self.configured.as_deref(), Some(&self.desired.bgp));
        }
    }
}

/// Where a step stands in a plan: what leaves comes before what arrives.
pub(super) fn rank(step: &Step, advertised: &RouteSet) -> u8 {
    match step {
        Step::Advertise(set) if !advertised.is_within(set) => 0,
        Step::RemoveAddress(_) => 1,
        Step::RecordPending(_) | Step::RecordConfirmed(_) | Step::RecordRemoved(_) => 2,
        Step::AddAddress(_) => 3,
        Step::Advertise(_) => 4,
        Step::ConfigureSpeaker(..) | Step::StopSpeaker | Step::ReleaseSpeaker => 5,
        Step::DropRecord => 6,
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
        | Step::ForgetConnections(_)
        | Step::ConfigureVirtualRouters(_)
        | Step::StopVirtualRouters
        | Step::SuspendVirtualRouters => 2,
    }
}

/// The VIPs of a set, by themselves or as part of an aggregate.
pub(super) fn announced(set: &RouteSet) -> impl Iterator<Item = IpAddr> {
    VIPS.map(ip).into_iter().filter(|vip| set.serves(*vip))
}
