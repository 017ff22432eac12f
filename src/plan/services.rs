// SPDX-License-Identifier: Apache-2.0
//! The decisions about virtual services, made before those about addresses: a VIP comes onto the interface, and is announced, only once somebody stands
//! behind it in the kernel; and its virtual services go only after it.
//!
//! Invariants: a service is made only with an entry in the record that has been read back; one is changed or removed only where the record proves it
//! ours, a pending entry only together with the intent, and not where somebody was there before it; what others made is left alone, and is no service
//! of ours; one that equals the intent to the letter is adopted where the record is lost.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use bgp::Prefix;

use super::balancing::{change, creation, target};
use super::{Planner, Step, StepKey};
use crate::desired::{Desired, DesiredVirtualService, Lifecycle, ServiceKey, VipIntent};
use crate::observed::{Announcement, KernelState, Observed, ObservedVirtualService, Record};

/// What the decisions about virtual services leave to those about addresses.
#[derive(Debug, Default)]
pub(super) struct Balanced {
    /// VIPs with a virtual service of ours that somebody stands behind.
    backed: BTreeSet<IpAddr>,
    /// VIPs of which a virtual service is on its way into the kernel, and nothing has failed about it.
    arriving: BTreeSet<IpAddr>,
    /// Some virtual service of ours is in the kernel.
    pub(super) occupied: bool,
    /// Something is served only by the dataplane that balanced before.
    pub(super) succeeding: bool,
    /// The rules of nft are not as they should be.
    unruly: bool,
    pub(super) steps: Vec<Step>,
}

impl Planner<'_> {
    /// Decides about every virtual service that intent or record knows of.
    pub(super) fn decide_services(&mut self) {
        let record = &self.observed.kernel.record;
        self.balanced.unruly = self.desired.balancing.as_ref().is_some_and(|balancing| balancing.rules.fingerprint() != record.rules);
        let desired = self.desired.balancing.iter().flat_map(|balancing| balancing.services.keys());
        let services: BTreeSet<ServiceKey> = desired.chain(&record.pending_services).chain(&record.confirmed_services).copied().collect();
        for service in services {
            self.decide_service(service);
        }
        self.decide_former();
    }

    /// Whether a VIP may be announced, as far as balancing goes.
    pub(super) fn is_backed(&self, vip: IpAddr) -> bool {
        let waived = || self.desired.vips.get(&vip).is_some_and(|vip| vip.intent == VipIntent::Serve { without_endpoints: true });
        self.desired.balancing.is_none() || self.balanced.backed.contains(&vip) || waived()
    }

    /// What the dataplane has that balanced before goes once its successor takes the connections and those that it has are over, or nobody wants it. Until
    /// its successor is there, a VIP is served by it.
    /// Where IPVS is the successor, the rules take all of it away at once.
    fn decide_former(&mut self) {
        let Some(balancing) = &self.desired.balancing else { return };
        for (key, service) in &self.observed.kernel.balancer.former {
            let succeeded = takes_connections(*key, self.observed);
            let wanted = balancing.services.contains_key(key) && (self.is_wanted(key.vip) || self.holds_services(key.vip));
            if service.is_backed() {
                self.balanced.backed.insert(key.vip);
            }
            self.balanced.succeeding |= wanted && !succeeded && balancing.services.get(key).is_some_and(DesiredVirtualService::is_backed);
            if !balancing.rules.translates() {
                continue;
            }
            self.balanced.occupied = true;
            if (!wanted || (succeeded && self.is_drained(*key, service, balancing.drain_timeout)))
                && self.ready(StepKey::VirtualService(*key))
            {
                self.balanced.steps.push(Step::RemoveFormer(*key));
            }
        }
    }

    /// Whether rules or virtual services of the VIP are still to come, so that it had better wait for them.
    pub(super) fn awaits_services(&self, vip: IpAddr) -> bool {
        self.balanced.unruly || self.balanced.arriving.contains(&vip)
    }

    /// Whether they are on their way: nothing has failed about them.
    pub(super) fn services_arrive(&self, vip: IpAddr) -> bool {
        let rules = self.balanced.unruly && !self.observed.failures.contains_key(&StepKey::Record);
        rules || self.balanced.arriving.contains(&vip)
    }

    /// Whether nobody has connections there any more, or their time is over.
    fn is_drained(&mut self, key: ServiceKey, service: &ObservedVirtualService, bound: Duration) -> bool {
        let mut drained = true;
        for server in service.real_servers.iter().filter(|server| server.connections > 0) {
            let since = self.observed.quiesced.get(&(key, server.address)).copied().unwrap_or(self.now);
            drained &= self.due(since, bound);
        }
        drained
    }

    fn decide_service(&mut self, key: ServiceKey) {
        let kernel = &self.observed.kernel;
        let confirmed = kernel.record.confirmed_services.contains(&key);
        let recorded = kernel.record.has_service(key);
        let desired = self.desired.balancing.as_ref().and_then(|balancing| balancing.services.get(&key));
        let wanted = desired.filter(|_| self.is_wanted(key.vip));
        match kernel.balancer.services.get(&key) {
            None => match wanted {
                Some(desired) => self.enter_service(key, desired, recorded),
                None if recorded && !kernel.balancer.former.contains_key(&key) => self.strike(key),
                None => {}
            },
            Some(observed) => {
                let equal = wanted.is_some_and(|desired| change(desired, &desired.real_servers, observed).is_none());
                let claimed = !kernel.balancer.foreign.contains(&key) && (equal || (recorded && wanted.is_some()));
                if !(confirmed || claimed) {
                    return self.disown_service(key, recorded);
                }
                self.balanced.occupied = true;
                if wanted.is_none() && !self.holds_services(key.vip) {
                    return self.leave_service(key);
                }
                if !confirmed {
                    self.confirmed.services.insert(key);
                }
                if let Some(desired) = desired {
                    self.keep_service(key, desired, observed);
                }
            }
        }
    }

    /// One step into the kernel.
    fn enter_service(&mut self, key: ServiceKey, desired: &DesiredVirtualService, recorded: bool) {
        let step = if recorded { StepKey::VirtualService(key) } else { StepKey::Record };
        let mark = if recorded || key.ports.count() == 1 { None } else { self.free_mark() };
        if !recorded && key.ports.count() > 1 && mark.is_none() {
            return;
        }
        if !self.observed.failures.contains_key(&step) {
            self.balanced.arriving.insert(key.vip);
        }
        if !recorded {
            self.pending.services.insert(key);
            self.pending.marks.extend(mark.map(|mark| (key, mark)));
        } else if self.ready(step) {
            self.balanced.steps.push(Step::AddVirtualService(key, creation(desired)));
        }
    }

    fn keep_service(&mut self, key: ServiceKey, desired: &DesiredVirtualService, observed: &ObservedVirtualService) {
        if takes_connections(key, self.observed) {
            self.balanced.backed.insert(key.vip);
        }
        let bound = self.desired.balancing.as_ref().map(|balancing| balancing.drain_timeout).unwrap_or_default();
        let target = target(key, desired, observed, &self.observed.quiesced, bound, self.now);
        self.look_at(target.wake_at);
        if let Some(change) = change(desired, &target.servers, observed)
            && self.ready(StepKey::VirtualService(key))
        {
            self.balanced.steps.push(Step::ChangeVirtualService(key, change));
        }
    }

    fn leave_service(&mut self, key: ServiceKey) {
        if self.strays_leave() && self.ready(StepKey::VirtualService(key)) {
            self.balanced.steps.push(Step::RemoveVirtualService(key));
        }
    }

    /// It may be ours, so its entry stays until the intent is known in full.
    fn disown_service(&mut self, key: ServiceKey, recorded: bool) {
        if recorded && self.strays_leave() {
            self.strike(key);
        }
    }

    /// Takes it out of the record.
    fn strike(&mut self, key: ServiceKey) {
        self.unrecorded.services.insert(key);
        self.unrecorded.marks.extend(self.observed.kernel.record.marks.get(&key).map(|mark| (key, *mark)));
    }

    /// The lowest mark that neither a range of ports nor somebody else has.
    fn free_mark(&self) -> Option<u32> {
        let KernelState { record, balancer, .. } = &self.observed.kernel;
        let taken: BTreeSet<u32> =
            record.marks.values().chain(self.pending.marks.values()).chain(&balancer.foreign_marks).copied().collect();
        let marks = self.desired.balancing.as_ref()?.rules.marks();
        marks.into_iter().find(|mark| !taken.contains(mark))
    }

    /// Whether traffic to a VIP that is not wanted any more may still come: its virtual services stay until it is gone. Those of a VIP that is wanted,
    /// but not this one of them, go at once.
    fn holds_services(&self, vip: IpAddr) -> bool {
        let announced = self.announcement(Prefix::host(vip)).value != Announcement::Withdrawn;
        !self.is_wanted(vip) && (announced || self.observed.kernel.addresses.contains_key(&vip) && self.is_ours(vip))
    }

    /// Whether the VIP is to be served and can be.
    fn is_wanted(&self, vip: IpAddr) -> bool {
        self.desired.lifecycle == Lifecycle::Run
            && super::serves(self.desired, vip)
            && super::blocked::reason(vip, self.desired, self.observed, self.own).is_none()
    }

    fn is_ours(&self, vip: IpAddr) -> bool {
        super::ownership(vip, self.desired, self.observed) == Some(super::Ownership::Ours)
    }
}

/// Whether somebody stands behind a virtual service in the kernel, and packets get there: what the record does not list is dropped on its way in, where
/// the rules are there.
fn takes_connections(key: ServiceKey, observed: &Observed) -> bool {
    let Record { rules, confirmed_services, .. } = &observed.kernel.record;
    let service = observed.kernel.balancer.services.get(&key);
    let backed = service.is_some_and(|service| service.real_servers.iter().any(|server| !server.weight.is_quiesced()));
    backed && (rules.is_empty() || confirmed_services.contains(&key))
}

/// Why a virtual service that is wanted does not serve.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Lack {
    /// It is not in the kernel.
    Absent,
    /// Somebody else has one for the same port.
    TakenByOthers,
    /// Nobody stands behind it there, or it is not recorded as ours yet.
    Nobody,
}

/// The virtual services of a VIP that is to be served which take no connections in the kernel, and why each does not.
#[must_use]
pub fn unserved(vip: IpAddr, desired: &Desired, observed: &Observed) -> Vec<(ServiceKey, Lack)> {
    let serves = desired.vips.get(&vip).is_some_and(|vip| matches!(vip.intent, VipIntent::Serve { .. }));
    let services = desired.balancing.iter().filter(|_| serves).flat_map(|balancing| balancing.of(vip));
    services.filter_map(|key| Some((key, lack(key, observed)?))).collect()
}

fn lack(key: ServiceKey, observed: &Observed) -> Option<Lack> {
    let KernelState { record, balancer, .. } = &observed.kernel;
    match balancer.services.get(&key) {
        None => Some(Lack::Absent),
        Some(_) if !record.has_service(key) || balancer.foreign.contains(&key) => Some(Lack::TakenByOthers),
        Some(_) => (!takes_connections(key, observed)).then_some(Lack::Nobody),
    }
}
