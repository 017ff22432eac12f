// SPDX-License-Identifier: Apache-2.0
//! The decisions where ports pass between virtual services of one port each, as short ranges are expanded to, and one of a long range: for a while both are there.
//!
//! Inputs: intent, and what is observed. A virtual service of one port has the new connections of that port, whatever range has it too, unless it is closed: then
//! the range has them. So:
//!
//! - To single ports: each is made and confirmed -> ports that none of them has are closed -> (what the range has is over, or has had its time)
//!   `RemoveVirtualService` -> out of the record -> `OpenPorts`.
//! - To a range: it is made and confirmed -> the single ports are closed -> (the same) -> out of the record.
//!
//! Invariants: a port that both forms have is served all the while; who is let in to what is about to go is whoever its successor lets in; what a successor that
//! keeps on failing, or that somebody else has, would have served is given up.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use super::services::takes_connections;
use super::{Planner, StepKey};
use crate::api::{PortRange, Protocol};
use crate::desired::{DesiredVirtualService, Filter, Lifecycle, ServiceKey};
use crate::observed::{KernelState, ObservedVirtualService};

/// So often in a row something about a virtual service may fail, in about 1.5 s, before others that it is to succeed wait for it no longer.
const HOPELESS: u32 = 5;

impl Planner<'_> {
    /// The next step towards the end of a virtual service of which others are to have ports. False where that is not so, or none of them comes.
    pub(super) fn hand_on(&mut self, key: ServiceKey, observed: &ObservedVirtualService) -> bool {
        let successors = self.successors(key);
        let has_one = successors.iter().any(|successor| self.has_arrived(*successor));
        let awaited = successors.iter().any(|successor| self.is_awaited(*successor));
        if !self.is_exposed(key) || !(has_one || awaited) {
            return false;
        }
        // If rules of before cannot be replaced, that is no reason to keep what nobody wants.
        if awaited || (self.balanced.unruly && !self.observed.failures.contains_key(&StepKey::Record)) {
            self.serve_until_then(key, observed, &successors);
            return true;
        }
        if key.is_range() && self.observed.kernel.record.closed.contains(&key) {
            // It was to go before any of them came.
            self.opening.insert(key);
            return true;
        }
        let parts = if key.is_range() { self.ports_left(key, &successors) } else { BTreeSet::from([key]) };
        self.follow_filter(key, &successors);
        self.close_parts(&parts);
        let is_closed = |part: &ServiceKey| self.observed.kernel.record.closed.contains(part);
        let is_relieved = parts.iter().all(is_closed);
        if is_relieved && self.is_drained(key, observed) {
            self.remove_service(key);
        } else if let Some(staying) = self.with_servers_that_stay(key, observed, &successors, is_relieved) {
            self.set_real_servers(key, &staying, observed);
        }
        true
    }

    /// What it is, with those of its real servers that its successors have, too: others leave it as any virtual service. Once nothing new comes to it, a client
    /// that knows no connections has to get the port of the host that is meant now.
    pub(super) fn with_servers_that_stay(
        &self,
        key: ServiceKey,
        observed: &ObservedVirtualService,
        successors: &[ServiceKey],
        is_relieved: bool,
    ) -> Option<DesiredVirtualService> {
        let desired = || successors.iter().filter_map(|successor| Some((*successor, self.desired_service(*successor)?)));
        let by_port = is_relieved && key.protocol == Protocol::Udp;
        let goes_on = |server: SocketAddr, successor: ServiceKey, other: SocketAddr| {
            // Where one of them is a single port, that is the only one that both have.
            let port = key.ports.start().max(successor.ports.start());
            let at = |server: SocketAddr| if server.port() == 0 { port } else { server.port() };
            server.ip() == other.ip() && (!by_port || at(server) == at(other))
        };
        let of_successor = |server: SocketAddr| {
            desired().any(|(successor, desired)| desired.real_servers.keys().any(|other| goes_on(server, successor, *other)))
        };
        let stays = observed.real_servers.iter().filter(|server| of_successor(server.address));
        Some(DesiredVirtualService {
            owner: desired().next()?.1.owner.clone(),
            scheduling: observed.mode?.scheduling,
            forwarding: observed.real_servers.first()?.forwarding?,
            real_servers: stays.map(|server| (server.address, server.weight)).collect(),
            filter: Filter::NONE,
        })
    }

    /// Closes these ports, which a range gives up, or which another virtual service has, as far as they are not closed.
    pub(super) fn close_parts(&mut self, parts: &BTreeSet<ServiceKey>) {
        let record = &self.observed.kernel.record;
        self.balanced.given_up.extend(parts.iter().filter(|part| !record.has_service(**part)));
        // No set has two ranges that overlap: others are opened first.
        let in_the_way = |part: &&ServiceKey| part.overlapping(&record.closed).any(|other| part.is_range() && !parts.contains(other));
        self.closing.extend(parts.iter().filter(|part| !record.closed.contains(part) && !in_the_way(part)));
    }

    /// The virtual services of the other form that are to have ports of this one; none where another range is to have some of a range.
    fn successors(&self, key: ServiceKey) -> Vec<ServiceKey> {
        let run = self.desired.lifecycle == Lifecycle::Run && self.is_wanted(key.vip);
        let wanted: Vec<ServiceKey> =
            self.desired.balancing.iter().filter(|_| run).flat_map(|balancing| balancing.overlapping(key)).copied().collect();
        let alike = wanted.iter().any(|other| other.is_range() == key.is_range());
        if alike { Vec::new() } else { wanted }
    }

    /// Whether it takes the connections that come to it.
    fn has_arrived(&self, key: ServiceKey) -> bool {
        let KernelState { record, balancer, .. } = &self.observed.kernel;
        let is_there = balancer.services.contains_key(&key) && !balancer.foreign.contains(&key);
        is_there && record.confirmed_services.contains(&key) && !record.closed.contains(&key)
    }

    /// Whether it is still to come, and does not keep on failing.
    fn is_awaited(&self, key: ServiceKey) -> bool {
        let KernelState { record, balancer, .. } = &self.observed.kernel;
        let preserves = self.desired_service(key).is_some_and(|desired| desired.filter.preserves_client);
        let is_ours = record.has_service(key) || balancer.made.contains(&key);
        let of_others = balancer.foreign.contains(&key) || (balancer.services.contains_key(&key) && !is_ours);
        let can_come = !of_others && !balancer.is_taken(key);
        let has_mark = !key.is_range() || record.has_service(key) || self.free_mark(preserves).is_some();
        !self.has_arrived(key) && can_come && has_mark && !self.is_hopeless(key)
    }

    /// Whether others wait no longer for what keeps on failing.
    pub(super) fn is_hopeless(&self, key: ServiceKey) -> bool {
        self.observed.failures.get(&StepKey::VirtualService(key)).is_some_and(|failure| failure.count >= HOPELESS)
    }

    pub(super) fn desired_service(&self, key: ServiceKey) -> Option<&DesiredVirtualService> {
        self.desired.balancing.as_ref()?.services.get(&key)
    }

    /// It stands behind its VIP until they come, if somebody is to stand behind them.
    pub(super) fn serve_until_then(&mut self, key: ServiceKey, observed: &ObservedVirtualService, successors: &[ServiceKey]) {
        let is_backed = |successor: &ServiceKey| self.desired_service(*successor).is_some_and(DesiredVirtualService::is_backed);
        if takes_connections(key, observed, true, &self.observed.kernel.record) && successors.iter().any(is_backed) {
            self.balanced.backed.insert(key.vip);
        }
    }

    /// Whoever a single port's range lets in passes by it; a range that no new connection comes to holds up nobody.
    fn follow_filter(&mut self, key: ServiceKey, successors: &[ServiceKey]) {
        let record = &self.observed.kernel.record;
        let filter = if key.is_range() {
            if !record.is_relieved(key) {
                return;
            }
            Filter::NONE
        } else {
            let sources = successors.iter().find_map(|range| self.desired_service(*range)?.filter.sources.clone());
            Filter { sources, preserves_client: false }
        };
        if record.filters.get(&key).unwrap_or(&Filter::NONE) != &filter {
            self.filters.insert(key, filter);
        }
    }

    /// The ports of a range that none of its successors has.
    fn ports_left(&self, range: ServiceKey, successors: &[ServiceKey]) -> BTreeSet<ServiceKey> {
        let arrived = successors.iter().filter(|successor| self.has_arrived(**successor));
        without(range, &arrived.map(|successor| successor.ports).collect())
    }
}

/// What is left of a range without these.
pub(super) fn without(range: ServiceKey, others: &BTreeSet<PortRange>) -> BTreeSet<ServiceKey> {
    let mut parts = BTreeSet::new();
    let mut rest = Some(range.ports);
    for ports in others {
        let Some(left) = rest else { break };
        let (before, after) = left.without(*ports);
        parts.extend(before);
        rest = after;
    }
    parts.into_iter().chain(rest).map(|ports| ServiceKey { ports, ..range }).collect()
}
