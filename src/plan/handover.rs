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
//! while no virtual service of ours would. Where something fails on the way in, the VIP is withdrawn, as it is where nobody has balanced it; until it is,
//! the other balancer has its connections, and those of all others.

use std::net::IpAddr;

use super::Planner;
use super::blocked::BlockReason;
use super::services::takes_connections;
use crate::api::{PortRange, Protocol};
use crate::desired::{DesiredVirtualService, Lifecycle, Rules, ServiceKey};
use crate::observed::{KernelState, Observed, ObservedVirtualService};

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
        let ours = |key: &ServiceKey| balancer.services.get(key).filter(|_| !balancer.foreign.contains(key));
        let takes = |key: &ServiceKey| ours(key).is_some_and(|service| takes_connections(*key, service, true, record));
        self.balanced.taking_over |= arrives;
        if arrives || of_vip.iter().any(takes) {
            self.balanced.elsewhere.insert(vip);
        }
    }

    /// Whether somebody else balances the VIP of these virtual services, and no rules are there that leave it to that: were one of ours there first, nothing
    /// would tell so any more. Where rules wait for what is to succeed the dataplane that balanced before, it may be.
    pub(super) fn is_unruled(&self, of_vip: &[ServiceKey]) -> bool {
        let KernelState { record, balancer, .. } = &self.observed.kernel;
        record.rules.is_empty() && balancer.former.is_empty() && self.balanced_elsewhere(of_vip).is_some()
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

    /// Whether these rules would keep connections from somebody else to a VIP behind which nobody of ours stands, and which is still advertised.
    pub(super) fn claims_too_early(&self, rules: &Rules) -> bool {
        let Observed { kernel: KernelState { record, .. }, speaker, .. } = self.observed;
        let Some(advertised) = speaker.advertised.as_deref().filter(|_| !rules.hands_over && self.lets_others_in()) else { return false };
        let is_there = |vip: IpAddr| {
            let first = ServiceKey { vip, protocol: Protocol::Tcp, ports: PortRange::LOWEST };
            record.confirmed_services.range(first..).next().is_some_and(|key| key.vip == vip)
        };
        let is_elsewhere = |vip: IpAddr| self.balanced.handing_over || !is_there(vip);
        record.confirmed.iter().any(|vip| advertised.serves(*vip) && !self.announced.serves(*vip) && is_elsewhere(*vip))
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
