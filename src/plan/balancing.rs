// SPDX-License-Identifier: Apache-2.0
//! What is to become of one virtual service: what it is set to, and in which order which real servers are added, weighed and removed.
//!
//! Inputs: the service as it is to be and as it is observed. Output: the changes, made as one batch. Invariants: a real server that stays is never away
//! between two batches, so that its connections go on; one that goes is quiesced first, and removed when it has no connections any more or its time is
//! over, at once where the protocol knows no connections; with a scheduler that hashes the client, the kernel's list ends in canonical order, whatever
//! its history, and a quiesced server keeps its place in the hash.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use ipvs::Weight;

use crate::api::{ForwardingMethod, Protocol, Scheduler};
use crate::desired::{DesiredVirtualService, ServiceKey};
use crate::observed::{ObservedRealServer, ObservedVirtualService, Quiesced, ServiceMode};

/// How often the connections of a quiesced real server are counted again.
pub(super) const RECOUNT: Duration = Duration::from_secs(2);

/// One change to the list of real servers of a virtual service.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum RealServerChange {
    /// Put it at the head of the list.
    Add(SocketAddr, Weight),
    /// Give it this weight.
    Weigh(SocketAddr, Weight),
    /// Take it off.
    Remove(SocketAddr),
}

/// What is to be done to a virtual service, in this order, as one batch.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct VirtualServiceChange {
    /// What it is to be set to; `None` where it is that already.
    pub mode: Option<ServiceMode>,
    /// How packets get to the real servers that are added or weighed.
    pub forwarding: ForwardingMethod,
    /// The real servers.
    pub real_servers: Vec<RealServerChange>,
}

/// The real servers that a virtual service is to have now, in canonical order.
pub(super) struct Target {
    pub(super) servers: BTreeMap<SocketAddr, Weight>,
    /// When to look again, where one only waits to be removed.
    pub(super) wake_at: Option<Instant>,
}

/// Those of the intent, and those that still have connections.
pub(super) fn target(
    key: ServiceKey,
    desired: &DesiredVirtualService,
    observed: &ObservedVirtualService,
    quiesced: &Quiesced,
    bound: Duration,
    now: Instant,
) -> Target {
    let mut target = Target { servers: desired.real_servers.clone(), wake_at: None };
    let leaving = observed.real_servers.iter().filter(|server| !desired.real_servers.contains_key(&server.address));
    for server in leaving.filter(|server| key.protocol != Protocol::Udp && server.forwarding == Some(desired.forwarding)) {
        let over = quiesced.get(&(key, server.address)).map(|since| *since + bound);
        if server.weight.is_quiesced() && (server.connections == 0 || over.is_some_and(|over| over <= now)) {
            continue;
        }
        target.servers.insert(server.address, Weight::QUIESCE);
        if server.weight.is_quiesced() {
            let look = over.map_or(now + RECOUNT, |over| over.min(now + RECOUNT));
            target.wake_at = Some(target.wake_at.map_or(look, |earlier| earlier.min(look)));
        }
    }
    target
}

/// All that makes this service.
pub(super) fn creation(desired: &DesiredVirtualService) -> VirtualServiceChange {
    let servers = &desired.real_servers;
    VirtualServiceChange {
        mode: Some(mode(desired, servers)),
        forwarding: desired.forwarding,
        real_servers: changes(desired, servers, &[]),
    }
}

/// What is to be changed of this service, if anything.
pub(super) fn change(
    desired: &DesiredVirtualService,
    servers: &BTreeMap<SocketAddr, Weight>,
    observed: &ObservedVirtualService,
) -> Option<VirtualServiceChange> {
    let wanted = mode(desired, servers);
    let mode = (observed.mode != Some(wanted)).then_some(wanted);
    let real_servers = changes(desired, servers, &observed.real_servers);
    (mode.is_some() || !real_servers.is_empty()).then_some(VirtualServiceChange { mode, forwarding: desired.forwarding, real_servers })
}

/// Whether it is to the letter, and in the canonical order, what [`creation`] makes: the usual case, told without a list of changes.
pub(super) fn is_as_desired(desired: &DesiredVirtualService, observed: &ObservedVirtualService) -> bool {
    let DesiredVirtualService { real_servers, forwarding, .. } = desired;
    let equal = |(server, (address, weight)): (&ObservedRealServer, (&SocketAddr, &Weight))| {
        server.address == *address && server.weight == *weight && server.forwarding == Some(*forwarding)
    };
    real_servers.len() == observed.real_servers.len()
        && observed.real_servers.iter().zip(real_servers).all(equal)
        && observed.mode == Some(mode(desired, real_servers))
}

/// What a virtual service with these real servers is set to.
fn mode(desired: &DesiredVirtualService, servers: &BTreeMap<SocketAddr, Weight>) -> ServiceMode {
    let fallback = match desired.scheduling.scheduler {
        Scheduler::MaglevHashing => true,
        // Said only while it matters: `ipvsadm` prints it.
        Scheduler::SourceHashing => servers.values().any(|weight| weight.is_quiesced()),
        _ => false,
    };
    ServiceMode { scheduling: desired.scheduling, fallback }
}

/// The changes that lead from the observed list to these servers. The kernel puts what is added at the head of its list.
fn changes(
    desired: &DesiredVirtualService,
    servers: &BTreeMap<SocketAddr, Weight>,
    observed: &[ObservedRealServer],
) -> Vec<RealServerChange> {
    let fits = |server: &&ObservedRealServer| server.forwarding == Some(desired.forwarding) && servers.contains_key(&server.address);
    let kept = settled(desired, servers, observed, fits);
    let mut changes = Vec::new();
    for server in observed.iter().filter(|server| !servers.contains_key(&server.address)) {
        changes.push(RealServerChange::Remove(server.address));
    }
    for (address, weight) in servers.iter().rev() {
        match observed.iter().find(|server| server.address == *address) {
            Some(server) if kept.contains_key(address) => {
                if server.weight != *weight {
                    changes.push(RealServerChange::Weigh(*address, *weight));
                }
            }
            there => {
                changes.extend(there.map(|server| RealServerChange::Remove(server.address)));
                add(&mut changes, desired, *address, *weight);
            }
        }
    }
    changes
}

/// The servers that need not be added anew: with a hashing scheduler, those at the end of the list that stand as they are to stand.
fn settled<'a>(
    desired: &DesiredVirtualService,
    servers: &BTreeMap<SocketAddr, Weight>,
    observed: &'a [ObservedRealServer],
    fits: impl Fn(&&'a ObservedRealServer) -> bool,
) -> BTreeMap<SocketAddr, ()> {
    let ordered = desired.scheduling.hashes_client();
    let mut wanted = servers.keys().rev();
    let fitting = observed.iter().rev().filter(|server| servers.contains_key(&server.address));
    let in_place = fitting.take_while(|server| !ordered || (wanted.next() == Some(&server.address) && fits(server)));
    in_place.filter(|server| fits(server)).map(|server| (server.address, ())).collect()
}

/// A quiesced server of `mh` has its share of the hash from the weight that it had; one that is new to this kernel must get that too.
fn add(changes: &mut Vec<RealServerChange>, desired: &DesiredVirtualService, address: SocketAddr, weight: Weight) {
    if weight == Weight::QUIESCE && desired.scheduling.scheduler == Scheduler::MaglevHashing {
        changes.push(RealServerChange::Add(address, Weight::default()));
        changes.push(RealServerChange::Weigh(address, weight));
    } else {
        changes.push(RealServerChange::Add(address, weight));
    }
}

#[cfg(test)]
mod tests;
