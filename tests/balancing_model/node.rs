// SPDX-License-Identifier: Apache-2.0
//! The node, which outlives the process: the table of IPVS with the kernel's own semantics, addresses, settings and the record, and the truth about who
//! made what.

use std::time::Instant;

use vipherald::observed::{KernelState, Observed, ObservedRealServer, ObservedVirtualService, Record, RetiredRange, ServiceMode};
use vipherald::plan::{RealServerChange, Step, VirtualServiceChange, predict};

use super::*;

/// What the kernel knows a virtual service by: a range of ports by a firewall mark, for each family.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) enum At {
    Port(ServiceKey),
    Mark(u32, bool),
}

/// A virtual service, and the truth about it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct InKernel {
    pub(super) ours: bool,
    pub(super) seen: ObservedVirtualService,
}

/// The kernel did not do all of it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Refused;

pub(super) struct Node {
    pub(super) addresses: BTreeSet<IpAddr>,
    pub(super) services: BTreeMap<At, InKernel>,
    pub(super) record: Record,
    /// Whether the kernel has IPVS.
    pub(super) ipvs: bool,
    pub(super) unset: BTreeSet<Sysctl>,
    /// Whether the first real server is on a link of this node.
    pub(super) on_link: bool,
}

impl Node {
    pub(super) const fn new() -> Self {
        Self {
            addresses: BTreeSet::new(),
            services: BTreeMap::new(),
            record: empty_record(),
            ipvs: true,
            unset: BTreeSet::new(),
            on_link: true,
        }
    }

    /// Where the kernel has the service; none for a range of ports without a mark.
    pub(super) fn at(&self, key: ServiceKey) -> Option<At> {
        if is_range(key) { Some(At::Mark(*self.record.marks.get(&key)?, key.vip.is_ipv4())) } else { Some(At::Port(key)) }
    }

    pub(super) fn key(&self, at: At) -> Option<ServiceKey> {
        match at {
            At::Port(key) => Some(key),
            At::Mark(..) => self.record.marks.keys().copied().find(|key| self.at(*key) == Some(at)),
        }
    }

    pub(super) fn service(&self, key: ServiceKey) -> Option<&InKernel> {
        self.services.get(&self.at(key)?)
    }

    pub(super) fn service_mut(&mut self, key: ServiceKey) -> Option<&mut InKernel> {
        self.services.get_mut(&self.at(key)?)
    }

    pub(super) fn is_ours(&self, key: ServiceKey) -> bool {
        self.service(key).is_some_and(|service| service.ours)
    }

    /// Where the kernel has the virtual service of a range that has no ports any more.
    pub(super) const fn of_retired(retired: RetiredRange) -> At {
        At::Mark(retired.mark, retired.vip.is_ipv4())
    }

    /// Those that the record tells of, and the kernel has.
    pub(super) fn retired(&self) -> BTreeMap<RetiredRange, &InKernel> {
        self.record.retired.iter().filter_map(|retired| Some((*retired, self.services.get(&Self::of_retired(*retired))?))).collect()
    }

    /// What others have.
    pub(super) fn of_others(&self) -> BTreeMap<At, InKernel> {
        self.services.iter().filter(|(_, service)| !service.ours).map(|(at, service)| (*at, service.clone())).collect()
    }

    /// Whether packets to the service come to our virtual service.
    pub(super) fn lets_in(&self, key: ServiceKey) -> bool {
        let unmarked = self.record.rules.is_empty() || self.record.is_handing_over();
        let listed = if unmarked { !is_range(key) } else { self.record.confirmed_services.contains(&key) };
        self.is_ours(key) && listed && (unmarked || !self.record.closed.contains(&key))
    }

    /// The clients whose packets come to our virtual service, whether or not somebody stands behind it: rules that are not ours hold nobody up.
    pub(super) fn who_comes(&self, key: ServiceKey, rules_are_ours: bool) -> BTreeSet<usize> {
        if !self.addresses.contains(&key.vip) || !self.lets_in(key) {
            return BTreeSet::new();
        }
        let filter = self.record.filters.get(&key).filter(|_| rules_are_ours).unwrap_or(&Filter::NONE);
        admitted(key.vip, filter.sources.as_ref())
    }

    /// Whether the service gives new connections to somebody.
    pub(super) fn takes_connections(&self, key: ServiceKey) -> bool {
        let backed = |service: &InKernel| service.seen.real_servers.iter().any(|server| !server.weight.is_quiesced());
        self.lets_in(key) && self.service(key).is_some_and(backed)
    }

    /// A change of the record, in one transaction.
    pub(super) fn write(&mut self, step: &Step, now: Instant) {
        let kernel = KernelState { record: self.record.clone(), ..KernelState::default() };
        self.record = predict(&Observed { kernel, ..Observed::default() }, std::slice::from_ref(step), now).kernel.record;
    }

    pub(super) fn add_service(&mut self, key: ServiceKey, mode: Option<ServiceMode>, ours: bool) -> Result<(), Refused> {
        let at = self.at(key).filter(|at| self.ipvs && !self.services.contains_key(at)).ok_or(Refused)?;
        self.services.insert(at, InKernel { ours, seen: ObservedVirtualService { mode, real_servers: Vec::new() } });
        Ok(())
    }

    pub(super) fn edit_service(&mut self, key: ServiceKey, mode: ServiceMode) -> Result<(), Refused> {
        self.service_mut(key).ok_or(Refused)?.seen.mode = Some(mode);
        Ok(())
    }

    /// Each change by itself: one that is refused holds up none of the others. A server that is removed and added again keeps its connections.
    pub(super) fn change_servers(&mut self, key: ServiceKey, change: &VirtualServiceChange, count: usize) -> Result<(), Refused> {
        let servers = &mut self.service_mut(key).ok_or(Refused)?.seen.real_servers;
        let mut removed: BTreeMap<SocketAddr, u64> = BTreeMap::new();
        let mut done = Ok(());
        for change_of_server in change.real_servers.iter().take(count) {
            let found = |address| servers.iter().position(|server: &ObservedRealServer| server.address == address);
            match *change_of_server {
                RealServerChange::Add(address, weight) => match found(address) {
                    Some(_) => done = Err(Refused),
                    None => {
                        let connections = removed.remove(&address).unwrap_or(0);
                        servers.insert(0, ObservedRealServer { address, forwarding: Some(change.forwarding), weight, connections });
                    }
                },
                RealServerChange::Weigh(address, weight) => match found(address) {
                    Some(place) => (servers[place].weight, servers[place].forwarding) = (weight, Some(change.forwarding)),
                    None => done = Err(Refused),
                },
                RealServerChange::Remove(address) => match found(address) {
                    Some(place) => {
                        let server = servers.remove(place);
                        removed.insert(address, server.connections);
                    }
                    None => done = Err(Refused),
                },
            }
        }
        done
    }
}

/// [`Record::default`], for a constant.
pub(super) const fn empty_record() -> Record {
    Record {
        exists: false,
        pending: BTreeSet::new(),
        confirmed: BTreeSet::new(),
        pending_services: BTreeSet::new(),
        confirmed_services: BTreeSet::new(),
        closed: BTreeSet::new(),
        in_ipvs: BTreeSet::new(),
        pending_daemons: BTreeSet::new(),
        confirmed_daemons: BTreeSet::new(),
        marks: BTreeMap::new(),
        retired: BTreeSet::new(),
        filters: BTreeMap::new(),
        rules: Vec::new(),
    }
}
