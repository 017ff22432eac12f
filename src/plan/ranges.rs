// SPDX-License-Identifier: Apache-2.0
//! The decisions where a long range of ports becomes another one that has ports in common with it: the virtual service stays, with its firewall mark and all
//! its connections, and other ports lead to it.
//!
//! Inputs: intent, and what is observed. Output: which range becomes which, and `ClosePorts` of the ports that no longer lead anywhere -> (read back)
//! [`Step::MoveRange`], which is one change for ports that stay, and opens the closed ones, which nobody serves from then on. Until then the former range
//! has the filter and the real servers of the new one. Invariants: ports that both have are served all the while; nothing that comes to a port which only
//! the former has reaches this node itself; what cannot move, as it needs another mark, goes and is made anew. One that a crash has left unconfirmed is ours
//! together with the intent of the other one.

use std::collections::{BTreeMap, BTreeSet};

use super::expansion::without;
use super::{Planner, Step, StepKey};
use crate::api::PortRange;
use crate::desired::{DesiredVirtualService, Lifecycle, ServiceKey};
use crate::observed::KernelState;

/// By what each becomes, the former ranges.
pub(super) type Moves = BTreeMap<ServiceKey, ServiceKey>;

impl<'a> Planner<'a> {
    /// Which ranges become which.
    pub(super) fn decide_moves(&mut self) {
        let Some(balancing) = self.desired.balancing.as_ref().filter(|_| self.desired.lifecycle == Lifecycle::Run) else { return };
        let record = &self.observed.kernel.record;
        let mut moves = Moves::new();
        for (from, mark) in &record.marks {
            let is_new = |to: &&ServiceKey| !record.has_service(**to) && !moves.values().any(|taken| taken == *to);
            let wanted = balancing.overlapping(*from).filter(|to| to.is_range()).find(is_new);
            let Some((to, desired)) = wanted.and_then(|to| Some((*to, balancing.services.get(to)?))) else { continue };
            let fits = balancing.rules.marks_of_ranges(desired.filter.preserves_client).contains(mark);
            if fits && self.may_move(*from, to) {
                moves.insert(*from, to);
            }
        }
        self.balanced.moves = moves;
    }

    /// What this virtual service is to be: one of a range that becomes another is what that one is to be.
    pub(super) fn successor(&self, key: ServiceKey) -> Option<&'a DesiredVirtualService> {
        let to = self.balanced.moves.get(&key)?;
        self.desired.balancing.as_ref()?.services.get(to)
    }

    /// The steps by which ranges become others, and what is to be closed before. All else about them has been decided.
    pub(super) fn move_ranges(&mut self) {
        for (from, to) in std::mem::take(&mut self.balanced.moves) {
            let parts = self.parts_given_up(from, to);
            let record = &self.observed.kernel.record;
            self.balanced.given_up.extend(&parts);
            if !self.is_ready_to_move(from, to) {
                continue;
            }
            if parts.iter().all(|part| record.closed.contains(part)) {
                self.moving.push(Step::MoveRange { from, to });
            } else {
                self.close_parts(&parts);
            }
        }
    }

    /// Whether the virtual service of this range is there and ours, and can lead on.
    fn may_move(&self, from: ServiceKey, to: ServiceKey) -> bool {
        let KernelState { record, balancer, .. } = &self.observed.kernel;
        let is_there = record.has_service(from) && balancer.services.contains_key(&from) && !balancer.foreign.contains(&from);
        let is_unwanted = self.desired.balancing.as_ref().is_some_and(|balancing| !balancing.services.contains_key(&from));
        let is_settled = !record.closed.contains(&from) && !record.in_ipvs.contains(&from) && !balancer.former.contains_key(&from);
        is_there && is_unwanted && is_settled && self.strays_leave() && self.is_wanted(to.vip) && !balancer.is_taken(to)
    }

    /// Whether it is as the new one is to be, nothing else is in the way of that, and what takes over other ports of it is there.
    fn is_ready_to_move(&self, from: ServiceKey, to: ServiceKey) -> bool {
        let record = &self.observed.kernel.record;
        let of_rules = !record.rules.is_empty() && !self.balanced.unruly && !self.balanced.handing_over;
        let confirmed = record.confirmed_services.contains(&from);
        let filtered = !self.filters.contains_key(&from);
        let unchanged = !self.balanced.steps.iter().any(|step| step.key() == StepKey::VirtualService(from));
        let recorded = || to.overlapping(&record.confirmed_services).chain(to.overlapping(&record.pending_services));
        let alone = recorded().filter(|key| key.is_range()).all(|key| *key == from);
        let arrives = |key: &&ServiceKey| !key.is_range() && !record.confirmed_services.contains(key);
        let fails = |key: &ServiceKey| self.observed.failures.contains_key(&StepKey::VirtualService(*key));
        let awaits = |key: &ServiceKey| !fails(key) && !self.observed.kernel.balancer.is_taken(*key);
        let awaited = self.desired.balancing.iter().flat_map(|balancing| balancing.overlapping(from)).filter(arrives).any(awaits);
        of_rules && confirmed && filtered && unchanged && alone && !awaited
    }

    /// Whether another range of ports that is wanted cannot be made as long as the record has this one.
    pub(super) fn is_in_the_way(&self, key: ServiceKey) -> bool {
        key.is_range() && self.desired.balancing.as_ref().is_some_and(|balancing| balancing.overlapping(key).any(|other| other.is_range()))
    }

    /// The ports of a range that the one which it becomes has not, nor a virtual service of one port.
    fn parts_given_up(&self, from: ServiceKey, to: ServiceKey) -> BTreeSet<ServiceKey> {
        let record = &self.observed.kernel.record;
        let desired = self.desired.balancing.iter().flat_map(|balancing| balancing.overlapping(from));
        let served = desired.chain(from.overlapping(&record.confirmed_services)).chain(from.overlapping(&record.pending_services));
        let served: BTreeSet<PortRange> = served.filter(|key| !key.is_range()).map(|key| key.ports).chain([to.ports]).collect();
        without(from, &served)
    }
}
