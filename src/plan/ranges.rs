// SPDX-License-Identifier: Apache-2.0
//! The decisions where long ranges of ports become others that have ports in common with them: one grows, shrinks or moves, is split, or several become one.
//! Virtual services stay, with their firewall marks and all their connections, and other ports lead to them.
//!
//! Inputs: intent, and what is observed. Output: which ranges become which. Ranges that overlap, directly or by way of others, change together:
//!
//! - A range goes on as one of the new ones, if none other does: as the one that has most of its real servers.
//! - Any other new range is made beside: with a mark of its own, by which no packet comes yet.
//! - A former range that none goes on as is left without ports, and goes once its connections are over, or have had their time; those of nft need nothing for that.
//!
//! `ClosePorts` of the ports that no longer lead anywhere -> (read back) [`Step::MoveRanges`], which is one change for ports that stay, and opens the closed
//! ones, which nobody serves from then on. Where one range becomes one other, it has the filter and the real servers of that before; else filters change with
//! the ports, and real servers after them. Invariants: ports that are served before and after are served all the while, by real servers of the former range or of
//! the new one, for whom it admits; nothing that comes to a port which only a former one has reaches this node itself. One that a crash has left unconfirmed is ours together with the
//! intent of the other one; one that was made beside others and is left so is ours as any that is about to be made.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use super::balancing::{RECOUNT, creation};
use super::expansion::without;
use super::services::without_the_unreachable;
use super::{Planner, RangeMove, Step, StepKey};
use crate::api::{PortRange, Protocol};
use crate::desired::{DesiredBalancing, DesiredVirtualService, Lifecycle, ServiceKey};
use crate::observed::{KernelState, ObservedVirtualService, RetiredRange};

/// Which ranges become which.
#[derive(Debug, Default)]
pub(super) struct Moves(Vec<Group>);

/// Ranges that change together.
#[derive(Debug, Default)]
struct Group {
    /// By what each becomes, those that go on.
    moved: BTreeMap<ServiceKey, ServiceKey>,
    /// New ones that are made beside them.
    made: BTreeSet<ServiceKey>,
    /// Former ones that none goes on as.
    retired: BTreeSet<ServiceKey>,
}

impl Group {
    fn leaving(&self) -> impl Iterator<Item = ServiceKey> {
        self.moved.keys().chain(&self.retired).copied()
    }

    fn arriving(&self) -> impl Iterator<Item = ServiceKey> {
        self.moved.values().chain(&self.made).copied()
    }

    /// Whether one range becomes one other.
    fn is_plain(&self) -> bool {
        self.moved.len() == 1 && self.made.is_empty() && self.retired.is_empty()
    }
}

impl Moves {
    /// The others with which this one changes, if it is one that goes.
    fn of(&self, from: ServiceKey) -> Option<&Group> {
        self.0.iter().find(|group| group.leaving().any(|key| key == from))
    }

    /// What a range becomes that becomes one other.
    fn successor(&self, from: ServiceKey) -> Option<ServiceKey> {
        self.of(from).filter(|group| group.is_plain())?.moved.get(&from).copied()
    }
}

impl<'a> Planner<'a> {
    /// Which ranges become which.
    pub(super) fn decide_moves(&mut self) {
        let Some(balancing) = self.desired.balancing.as_ref().filter(|_| self.desired.lifecycle == Lifecycle::Run) else { return };
        let record = &self.observed.kernel.record;
        let mut overlapping: Vec<[BTreeSet<ServiceKey>; 2]> = Vec::new();
        for from in record.marks.keys().copied().filter(|from| self.may_leave(*from, balancing)) {
            let arriving: BTreeSet<ServiceKey> = balancing.overlapping(from).filter(|to| self.may_arrive(**to)).copied().collect();
            match (arriving.is_empty(), overlapping.last_mut()) {
                (true, _) => {}
                // Ports are in order, and of the former ranges none overlap, nor of the new ones.
                (false, Some([leaving, others])) if !others.is_disjoint(&arriving) => {
                    leaving.insert(from);
                    others.extend(arriving);
                }
                (false, _) => overlapping.push([[from].into(), arriving]),
            }
        }
        let groups = overlapping.into_iter().map(|[leaving, arriving]| self.group(leaving, arriving, balancing));
        self.balanced.moves = Moves(groups.filter(|group| group.arriving().next().is_some() && group.leaving().next().is_some()).collect());
    }

    /// Which of the ranges that go becomes which of those that come.
    fn group(&self, mut leaving: BTreeSet<ServiceKey>, arriving: BTreeSet<ServiceKey>, balancing: &DesiredBalancing) -> Group {
        let record = &self.observed.kernel.record;
        if leaving.len() + arriving.len() > 2 {
            leaving.retain(|from| record.confirmed_services.contains(from));
        }
        let mut group = Group::default();
        for from in &leaving {
            let Some(mark) = record.marks.get(from) else { continue };
            let fits = |desired: &DesiredVirtualService| balancing.rules.marks_of_ranges(desired.filter.preserves_client).contains(mark);
            let is_free = |to: &ServiceKey| !record.has_service(*to) && !group.moved.values().any(|taken| taken == to);
            let candidates = from.overlapping(&arriving).filter(|to| is_free(to) && balancing.services.get(to).is_some_and(fits));
            let candidates: Vec<ServiceKey> = candidates.copied().collect();
            // Of several with as many, the first.
            match candidates.into_iter().rev().max_by_key(|to| self.servers_in_common(*from, *to)) {
                Some(to) => drop(group.moved.insert(*from, to)),
                None if record.confirmed_services.contains(from) => drop(group.retired.insert(*from)),
                None => {}
            }
        }
        let is_heir = |to: &ServiceKey| group.moved.values().any(|heir| heir == to);
        let made = arriving.iter().filter(|to| !is_heir(to) && self.can_come(**to)).copied().collect();
        Group { made, ..group }
    }

    /// How many hosts behind a range that is there are to stand behind this one.
    fn servers_in_common(&self, from: ServiceKey, to: ServiceKey) -> usize {
        let desired = self.desired_service(to).into_iter().flat_map(|desired| desired.real_servers.keys());
        let hosts: BTreeSet<IpAddr> = desired.map(SocketAddr::ip).collect();
        let observed = self.observed.kernel.balancer.services.get(&from).into_iter().flat_map(|service| &service.real_servers);
        observed.filter(|server| hosts.contains(&server.address.ip())).count()
    }

    /// What this virtual service is to be: one of a range that becomes one other is what that one is to be.
    pub(super) fn successor(&self, key: ServiceKey) -> Option<&'a DesiredVirtualService> {
        let to = self.balanced.moves.successor(key)?;
        self.desired.balancing.as_ref()?.services.get(&to)
    }

    /// Keeps the virtual service of a range as it is until its ports pass to several others, but for real servers that none of these has. False where they do not.
    pub(super) fn await_others(&mut self, key: ServiceKey, observed: &ObservedVirtualService) -> bool {
        let Some(group) = self.balanced.moves.of(key).filter(|group| !group.is_plain()) else { return false };
        let successors: Vec<ServiceKey> = group.arriving().collect();
        if !self.stays_guarded(key) {
            self.balanced.unguarded.insert(key.vip);
        }
        self.serve_until_then(key, observed, &successors);
        if let Some(staying) = self.with_servers_that_stay(key, observed, &successors, false) {
            self.set_real_servers(key, &staying, observed);
        }
        true
    }

    /// Whether it is made beside ranges whose ports it is to have, which have nothing else of the record in their way.
    pub(super) fn is_made_beside(&self, key: ServiceKey) -> bool {
        let group = self.balanced.moves.0.iter().find(|group| group.made.contains(&key));
        group.is_some_and(|group| self.others_on(key).all(|other| group.leaving().any(|from| from == other)))
    }

    /// The other ranges of the record that have ports in common with this one.
    pub(super) fn others_on(&self, key: ServiceKey) -> impl Iterator<Item = ServiceKey> {
        let record = &self.observed.kernel.record;
        let recorded = key.overlapping(&record.confirmed_services).chain(key.overlapping(&record.pending_services));
        recorded.copied().filter(move |other| *other != key && other.is_range() && key.is_range())
    }

    /// The steps by which ranges become others, and what is to be closed before. All else about them has been decided.
    pub(super) fn move_ranges(&mut self) {
        for group in std::mem::take(&mut self.balanced.moves).0 {
            let parts: BTreeSet<ServiceKey> = group.leaving().flat_map(|from| self.parts_given_up(from, &group)).collect();
            self.balanced.given_up.extend(&parts);
            if !self.is_ready_to_move(&group) {
                continue;
            }
            if parts.iter().all(|part| self.observed.kernel.record.closed.contains(part)) {
                self.moving.extend(self.range_move(&group).map(Step::MoveRanges));
            } else {
                self.close_parts(&parts);
            }
        }
    }

    fn range_move(&self, group: &Group) -> Option<RangeMove> {
        let services = &self.desired.balancing.as_ref()?.services;
        let record = &self.observed.kernel.record;
        let reachable = |desired: &DesiredVirtualService| without_the_unreachable(desired, &self.observed.kernel.links);
        let made = |key: &ServiceKey| {
            let desired = services.get(key)?;
            Some((*key, reachable(desired).as_ref().map_or_else(|| creation(desired), creation)))
        };
        let left = |from: &ServiceKey| {
            let mark = record.marks.get(from).filter(|_| !self.translates());
            (*from, mark.map(|mark| RetiredRange { vip: from.vip, protocol: from.protocol, mark: *mark }))
        };
        Some(RangeMove {
            moved: group.moved.clone(),
            made: group.made.iter().filter_map(made).collect(),
            retired: group.retired.iter().map(left).collect(),
            filters: group.arriving().filter_map(|key| Some((key, services.get(&key)?.recorded_filter(key)))).collect(),
        })
    }

    /// Whether the virtual service of this range is there and ours, nobody wants it, and it can lead on. What is only pending can where nothing else is in the way of
    /// that.
    fn may_leave(&self, from: ServiceKey, balancing: &DesiredBalancing) -> bool {
        let KernelState { record, balancer, .. } = &self.observed.kernel;
        let is_there = record.has_service(from) && balancer.services.contains_key(&from) && !balancer.foreign.contains(&from);
        let is_unwanted = !balancing.services.contains_key(&from);
        let is_settled = !record.closed.contains(&from) && !record.in_ipvs.contains(&from) && !balancer.former.contains_key(&from);
        let is_alone = record.confirmed_services.contains(&from) || self.others_on(from).next().is_none();
        is_there && is_unwanted && is_settled && is_alone && self.strays_leave() && self.is_wanted(from.vip)
    }

    /// Whether a range that is wanted may get ports from others.
    fn may_arrive(&self, to: ServiceKey) -> bool {
        let KernelState { record, balancer, .. } = &self.observed.kernel;
        to.is_range() && !record.confirmed_services.contains(&to) && !balancer.is_taken(to)
    }

    /// Whether others wait for it to be made.
    fn can_come(&self, made: ServiceKey) -> bool {
        let preserves = self.desired_service(made).is_some_and(|desired| desired.filter.preserves_client);
        let has_mark = || self.observed.kernel.record.has_service(made) || self.free_mark(preserves).is_some();
        !self.is_hopeless(made) && has_mark()
    }

    /// Whether all is there that is to take over ports, and nothing else is in the way of that.
    fn is_ready_to_move(&self, group: &Group) -> bool {
        let KernelState { record, balancer, .. } = &self.observed.kernel;
        let of_rules = !record.rules.is_empty() && !self.balanced.unruly && !self.balanced.handing_over;
        let confirmed = group.leaving().all(|from| record.confirmed_services.contains(&from));
        let filtered = !group.is_plain() || !group.leaving().any(|from| self.filters.contains_key(&from));
        let is_changed = |key: ServiceKey| self.balanced.steps.iter().any(|step| step.key() == StepKey::VirtualService(key));
        let unchanged = !group.leaving().chain(group.made.iter().copied()).any(is_changed);
        let mut others = group.arriving().flat_map(|to| self.others_on(to));
        let alone = others.all(|other| group.leaving().any(|from| from == other));
        let is_made = |made: &ServiceKey| {
            let is_ours = record.pending_services.contains(made) && !balancer.foreign.contains(made);
            is_ours && (self.translates() || balancer.services.contains_key(made))
        };
        let arrives = |key: &&ServiceKey| !key.is_range() && !record.confirmed_services.contains(key);
        let awaits = |key: &ServiceKey| !self.is_hopeless(*key) && !balancer.is_taken(*key);
        let wanted = |from: ServiceKey| self.desired.balancing.iter().flat_map(move |balancing| balancing.overlapping(from));
        let awaited = group.leaving().any(|from| wanted(from).filter(arrives).any(awaits));
        of_rules && confirmed && filtered && unchanged && alone && group.made.iter().all(is_made) && !awaited
    }

    /// Whether another range of ports that is wanted cannot be made as long as the record has this one.
    pub(super) fn is_in_the_way(&self, key: ServiceKey) -> bool {
        key.is_range() && self.desired.balancing.as_ref().is_some_and(|balancing| balancing.overlapping(key).any(|other| other.is_range()))
    }

    /// The ports of a range that none of those has which it changes with, nor a virtual service of one port.
    fn parts_given_up(&self, from: ServiceKey, group: &Group) -> BTreeSet<ServiceKey> {
        let record = &self.observed.kernel.record;
        let desired = self.desired.balancing.iter().flat_map(|balancing| balancing.overlapping(from));
        let served = desired.chain(from.overlapping(&record.confirmed_services)).chain(from.overlapping(&record.pending_services));
        let served = served.copied().filter(|key| !key.is_range()).chain(group.arriving());
        let served: BTreeSet<PortRange> = served.map(|key| key.ports).collect();
        without(from, &served)
    }

    /// What is left of ranges that have no ports any more goes with its VIP, and once its connections are over or have had their time. Where datagrams go to a host that
    /// stands behind none of the ports any more, they had better be balanced anew.
    pub(super) fn decide_retired(&mut self) {
        let KernelState { record, balancer, .. } = &self.observed.kernel;
        for retired in &record.retired {
            let Some(service) = balancer.retired.get(retired) else {
                self.unrecorded.retired.insert(*retired);
                continue;
            };
            self.balanced.occupied = true;
            let left = self.is_left_to_others(retired.vip);
            let stays = self.is_wanted(retired.vip) || self.holds_services(retired.vip) || !self.strays_leave();
            let astray = retired.protocol == Protocol::Udp && !left && self.has_lost_servers(*retired, service);
            let may_be_over = !left || self.balanced.handing_over;
            let goes = !stays || astray || (may_be_over && self.has_had_its_time(*retired, service));
            if goes && self.ready(StepKey::Retired(*retired)) {
                self.balanced.steps.push(Step::RemoveRetired(*retired));
            }
        }
    }

    fn has_had_its_time(&mut self, retired: RetiredRange, service: &ObservedVirtualService) -> bool {
        if service.real_servers.iter().all(|server| server.connections == 0) {
            return true;
        }
        let since = self.observed.retirements.get(&retired).copied().unwrap_or(self.now);
        let over = self.due(since, self.desired.real_server_drain);
        if !over {
            self.look_at(Some(self.now + RECOUNT));
        }
        over
    }

    /// Whether some of its hosts stands behind no port of its VIP any more.
    fn has_lost_servers(&self, retired: RetiredRange, service: &ObservedVirtualService) -> bool {
        let balancing = self.desired.balancing.as_ref();
        let of_vip =
            balancing.into_iter().flat_map(|balancing| balancing.of(retired.vip).filter_map(|key| balancing.services.get_key_value(&key)));
        let desired = of_vip.filter(|(key, _)| key.protocol == retired.protocol).flat_map(|(_, desired)| desired.real_servers.keys());
        let hosts: BTreeSet<IpAddr> = desired.map(SocketAddr::ip).collect();
        service.real_servers.iter().any(|server| !hosts.contains(&server.address.ip()))
    }
}
