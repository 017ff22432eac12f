// SPDX-License-Identifier: Apache-2.0
//! The decisions where balancing passes from us to somebody else, such as kube-proxy, or from somebody else to us, while VIPs stay where they are.
//!
//! Inputs: what is observed, and the decisions about virtual services so far. Output: which VIPs somebody else balances, and when our virtual services go.
//! Between the two balancers are rules that leave new connections to whoever else has rules for them, and only keep out whom a virtual service does not admit:
//!
//! - Out: once no VIP is on its way out, such rules -> (what a virtual service of IPVS has is over, or has had its time) `RemoveVirtualService` -> out of the
//!   record -> no rules.
//! - In: kernel settings without which we could not balance -> such rules -> virtual services as ever, confirmed -> our rules.
//!
//! Invariants: a VIP stays announced all the while; no new connection meets rules that drop it while the other balancer would take it, nor rules that claim it
//! while no virtual service of ours would. Where something fails on the way in, the VIP is withdrawn, as it is where nobody has balanced it.

use std::net::IpAddr;

use super::Planner;
use super::blocked::BlockReason;
use super::services::takes_connections;
use crate::desired::{DesiredVirtualService, Lifecycle, ServiceKey};
use crate::observed::{KernelState, ObservedVirtualService};

impl Planner<'_> {
    /// Whether the VIP stays, and somebody else is to balance it.
    pub(super) fn is_left_to_others(&self, vip: IpAddr) -> bool {
        self.desired.balancing.is_none() && self.strays_leave() && self.is_wanted(vip)
    }

    /// Whether no rule of ours keeps connections from somebody else.
    pub(super) fn lets_others_in(&self) -> bool {
        self.balanced.handing_over || self.observed.kernel.record.rules.is_empty()
    }

    /// Whether new connections may be left to somebody else, who has no rules for a VIP that is on its way out.
    pub(super) fn may_hand_over(&self) -> bool {
        self.strays_leave() && !self.balanced.leaving
    }

    /// A virtual service goes once somebody else has new connections, and those that it has are over.
    pub(super) fn let_go(&mut self, key: ServiceKey, service: &ObservedVirtualService) {
        if self.balanced.handing_over && self.is_drained(key, service) {
            self.remove_service(key);
        }
    }

    /// Where somebody else balances a VIP until its virtual services, which are these, are there.
    pub(super) fn decide_takeover(&mut self, of_vip: &[ServiceKey]) {
        let KernelState { record, balancer, .. } = &self.observed.kernel;
        let Some(vip) = self.balanced_elsewhere(of_vip) else { return };
        let arrives = self.balanced.arriving.contains(&vip) && self.are_to_serve(of_vip);
        let arrives = arrives || of_vip.iter().any(|key| self.confirmed.services.contains(key));
        let takes = |key: &ServiceKey| balancer.services.get(key).is_some_and(|service| takes_connections(*key, service, true, record));
        self.balanced.taking_over |= arrives;
        if arrives || of_vip.iter().any(takes) {
            self.balanced.elsewhere.insert(vip);
        }
    }

    /// Until a setting that keeps us from balancing is set, nothing changes for a VIP of which these are the virtual services, and which somebody else balances.
    pub(super) fn await_settings(&mut self, of_vip: &[ServiceKey]) {
        let Some(vip) = self.balanced_elsewhere(of_vip) else { return };
        let stays = super::serves(self.desired, vip) && self.desired.lifecycle == Lifecycle::Run;
        let block = super::blocked::reason(vip, self.desired, self.observed, &self.node);
        if stays && block == Some(BlockReason::SysctlMissing) && self.are_to_serve(of_vip) {
            self.balanced.taking_over = true;
            self.balanced.elsewhere.insert(vip);
        }
    }

    /// Whether somebody is to stand behind one of these virtual services.
    fn are_to_serve(&self, of_vip: &[ServiceKey]) -> bool {
        let mut desired = self.desired.balancing.iter().flat_map(|balancing| of_vip.iter().filter_map(|key| balancing.services.get(key)));
        desired.any(DesiredVirtualService::is_backed)
    }

    /// The VIP of these virtual services, if somebody else balances it. The record tells so: it has the VIP, and rules that leave new connections to others, or
    /// none where no virtual service is. One that has been withdrawn is not announced on the strength of that.
    fn balanced_elsewhere(&self, of_vip: &[ServiceKey]) -> Option<IpAddr> {
        let KernelState { record, balancer, .. } = &self.observed.kernel;
        let vip = of_vip.first().filter(|_| self.desired.balancing.is_some())?.vip;
        let is_ours = |key: &ServiceKey| balancer.services.contains_key(key) && !balancer.foreign.contains(key);
        let is_there = |key: &ServiceKey| record.confirmed_services.contains(key) || is_ours(key) || balancer.former.contains_key(key);
        let elsewhere = self.balanced.handing_over || (record.rules.is_empty() && !of_vip.iter().any(is_there));
        let stays = self.observed.speaker.advertised.as_ref().is_none_or(|set| set.serves(vip));
        (elsewhere && stays && record.confirmed.contains(&vip)).then_some(vip)
    }
}
