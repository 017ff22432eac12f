// SPDX-License-Identifier: Apache-2.0
//! What would be observed were a step to succeed: for `vipherald plan`, which carries out none.
//!
//! Input: [`Observed`] and a [`Step`]. Output: the observation after it, in a world in which nobody else changes anything and every peer acknowledges
//! at once.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use super::{RealServerChange, Step, VirtualServiceChange};
use crate::desired::{Rules, ServiceKey};
use crate::observed::{
    ADDRESS_PROTOCOL, Observed, ObservedAddress, ObservedRealServer, ObservedVirtualRouters, ObservedVirtualService, Record, stamp,
};

/// The observation after all of these steps succeeded.
#[must_use]
pub fn predict(observed: &Observed, steps: &[Step], now: Instant) -> Observed {
    let mut before = observed.clone();
    let mut kernel = observed.kernel.clone();
    let mut speaker = observed.speaker.clone();
    let mut forgotten: BTreeSet<ServiceKey> = BTreeSet::new();
    let mut routers = observed.virtual_routers.clone();
    for step in steps {
        match step {
            Step::Advertise(set) => speaker.advertised = Some(Arc::clone(set)),
            Step::RecordPending(entries) => {
                kernel.record.exists = true;
                kernel.record.expect(entries);
            }
            Step::AddAddress(address) => {
                let prefix_length = bgp::Prefix::host(*address).length();
                kernel.addresses.entry(*address).or_insert(ObservedAddress { prefix_length, protocol: Some(ADDRESS_PROTOCOL) });
            }
            Step::RecordConfirmed(entries) => {
                kernel.record.exists = true;
                kernel.record.confirm(entries);
            }
            Step::RemoveAddress(address) => {
                kernel.addresses.remove(address);
            }
            Step::RecordRemoved(entries) => kernel.record.forget(entries),
            Step::ClosePorts(services) => kernel.record.close(services),
            Step::OpenPorts(services) => kernel.record.open(services),
            Step::MoveRanges(change) => {
                let balancer = &mut kernel.balancer;
                let moved = change.moved.iter().filter_map(|(from, to)| Some((*to, balancer.services.remove(from)?)));
                let moved: Vec<(ServiceKey, ObservedVirtualService)> = moved.collect();
                balancer.services.extend(moved);
                for (from, retired) in &change.retired {
                    let service = balancer.services.remove(from);
                    balancer.retired.extend(retired.zip(service));
                }
                for (made, settings) in &change.made {
                    if !balancer.services.contains_key(made) {
                        carry_out(settings, balancer.services.entry(*made).or_insert_with(ObservedVirtualService::empty));
                    }
                }
                kernel.record.move_ranges(change);
                before.complete(step);
            }
            Step::WriteFilters(filters) => kernel.record.filter(filters),
            Step::WriteRules(rules) => {
                let hands_over = rules.as_ref().is_some_and(|rules| rules.hands_over);
                if hands_over && Rules::dispatches("ip", &kernel.record.rules) {
                    kernel.balancer.services.clear();
                }
                kernel.record.exists = true;
                kernel.record.rules = rules.as_ref().map(Rules::fingerprint).unwrap_or_default();
                if !hands_over && !rules.as_ref().is_some_and(Rules::translates) {
                    kernel.balancer.former.clear();
                }
            }
            Step::SetSysctl(setting) => drop(kernel.sysctls.insert(*setting, setting.wanted().to_owned())),
            Step::SetInterfaces(settings) => {
                for (interface, settings) in settings {
                    let values = settings.iter().map(|setting| (*setting, setting.wanted()));
                    kernel.external.entry(interface.clone()).or_default().extend(values);
                }
            }
            Step::SetTimeouts(given) => {
                let given_before = &mut kernel.balancer.given_timeouts;
                for timeouts in kernel.balancer.timeouts.iter_mut().chain([given_before]) {
                    timeouts.give(*given);
                }
            }
            Step::StartDaemon(daemon) => drop(kernel.balancer.daemons.insert(daemon.role, daemon.clone())),
            Step::StopDaemon(role) => drop(kernel.balancer.daemons.remove(role)),
            Step::AddVirtualService(service, change) | Step::ChangeVirtualService(service, change) => {
                carry_out(change, kernel.balancer.services.entry(*service).or_insert_with(ObservedVirtualService::empty));
            }
            Step::RemoveVirtualService(service) => {
                kernel.balancer.services.remove(service);
            }
            Step::RemoveFormer(service) => {
                kernel.balancer.former.remove(service);
            }
            Step::RemoveRetired(retired) => {
                kernel.balancer.retired.remove(retired);
            }
            Step::ForgetConnections(services) => forgotten.extend(services.keys()),
            Step::ConfigureSpeaker(desired, set) => {
                speaker.configured = Some(Arc::clone(desired));
                speaker.advertised = set.clone().or_else(|| speaker.advertised.take());
            }
            Step::StopSpeaker | Step::ReleaseSpeaker => (speaker.configured, speaker.open_sessions) = (None, 0),
            Step::ConfigureVirtualRouters(desired) => routers.predict(desired),
            Step::StopVirtualRouters => {
                routers = ObservedVirtualRouters { stopping: true, recorded: Some(BTreeSet::new()), ..ObservedVirtualRouters::default() };
            }
            Step::SuspendVirtualRouters => (routers.configured, routers.stopping) = (None, true),
            Step::DropRecord => kernel.record = Record::default(),
        }
    }
    let mut after = stamp(&before, kernel, speaker, now);
    after.forgotten.note(forgotten, &after.kernel.record);
    steps.iter().for_each(|step| after.forgotten.lose(step));
    after.virtual_routers = routers;
    after
}

/// As the kernel does it: a new server comes first in the list.
fn carry_out(change: &VirtualServiceChange, service: &mut ObservedVirtualService) {
    service.mode = change.mode.or(service.mode);
    for change_of_server in &change.real_servers {
        match *change_of_server {
            RealServerChange::Add(address, weight) => {
                let server = ObservedRealServer { address, forwarding: Some(change.forwarding), weight, connections: 0 };
                service.real_servers.insert(0, server);
            }
            RealServerChange::Weigh(address, weight) => {
                let found = service.real_servers.iter_mut().filter(|server| server.address == address);
                found.for_each(|server| server.weight = weight);
            }
            RealServerChange::Remove(address) => service.real_servers.retain(|server| server.address != address),
        }
    }
}
