// SPDX-License-Identifier: Apache-2.0
//! The virtual services in the kernel, as read in one pass.
//!
//! Invariants: real servers stand in the order of the kernel's list, which its hashing schedulers depend on; a service that we cannot express is there,
//! so that nobody takes its place, and equals nothing that we would make.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use ipvs::{SyncDaemon, SyncRole, Timeouts, Weight};
use serde::{Deserialize, Serialize};

use super::{KernelState, Observed, Record};
use crate::api::{ForwardingMethod, Protocol};
use crate::desired::{Scheduling, ServiceKey};
use crate::plan::{RealServerChange, Step, StepKey};

/// How long a virtual service has to be there until it is forgotten that somebody had removed it.
const AT_PEACE: Duration = Duration::from_secs(600);

/// Virtual services of ours that somebody else removed.
pub type Losses = BTreeMap<ServiceKey, Loss>;

/// How a virtual service was lost.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Loss {
    /// How often.
    pub count: u32,
    /// When it was last found missing.
    pub last: Instant,
}

/// IPVS in the kernel.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Balancer {
    /// Whether it can be used at all.
    pub availability: IpvsAvailability,
    /// By what they take in; those of firewall marks that we have not recorded are left out.
    pub services: BTreeMap<ServiceKey, ObservedVirtualService>,
    /// Those of them that cannot be ours: this process made them not, and found no entry of them; a pending entry came after them.
    pub foreign: BTreeSet<ServiceKey>,
    /// Those of them that are ours whatever the record says: this process made them in IPVS, and has not found them missing since, or they are in our own
    /// tables of nft.
    pub made: BTreeSet<ServiceKey>,
    /// Virtual services that another instance on this node has, whether they are in the kernel or not.
    pub taken: BTreeSet<ServiceKey>,
    /// Firewall marks of services that we have not recorded.
    pub foreign_marks: BTreeSet<u32>,
    /// How long idle connections are remembered; `None` where IPVS was not asked.
    pub timeouts: Option<Timeouts>,
    /// What this process last gave them; 0 for what it never gave.
    pub given_timeouts: Timeouts,
    /// The daemons of connection synchronisation, whoever started them.
    pub daemons: BTreeMap<SyncRole, SyncDaemon>,
    /// Those of them that this process started.
    pub started_daemons: BTreeSet<SyncRole>,
    /// Those of them that have taken the place of one that this process started.
    pub foreign_daemons: BTreeSet<SyncRole>,
    /// Those of ours that the dataplane still has which balanced before.
    pub former: BTreeMap<ServiceKey, ObservedVirtualService>,
    /// Those in IPVS that the record tells to have no ports any more.
    pub retired: BTreeMap<RetiredRange, ObservedVirtualService>,
}

impl Balancer {
    /// Whether another instance on this node has the virtual service, or one with a port in common.
    pub(crate) fn is_taken(&self, key: ServiceKey) -> bool {
        key.overlapping(&self.taken).next().is_some()
    }
}

/// A virtual service of a range of ports that has no ports any more, as others have them, and goes on with the connections that it has. Prints as
/// `TCP 10.0.0.7 by mark 64`.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd, Serialize, Deserialize)]
pub struct RetiredRange {
    /// Its VIP.
    pub vip: IpAddr,
    /// TCP, UDP or SCTP.
    pub protocol: Protocol,
    /// The firewall mark by which IPVS knows it, and which no packet gets any more.
    pub mark: u32,
}

impl fmt::Display for RetiredRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} by mark {}", self.protocol.word().to_uppercase(), self.vip, self.mark)
    }
}

/// Since when each of them has had no ports.
pub type Retirements = BTreeMap<RetiredRange, Instant>;

/// The virtual services in nft tables.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Translated {
    /// One of our tables is there.
    pub exists: bool,
    /// Others have put something in one.
    pub foreign: bool,
    /// By what they take in, real servers in canonical order.
    pub services: BTreeMap<ServiceKey, ObservedVirtualService>,
    /// The rules that dispatch to them, as [`Rules::dispatch_fingerprint`](crate::desired::Rules::dispatch_fingerprint) tells them.
    pub rules: Vec<String>,
}

/// Whether the kernel has IPVS.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum IpvsAvailability {
    /// It was not asked, since neither intent nor record needs it.
    #[default]
    NotNeeded,
    /// It has.
    Available,
    /// It has not, and cannot load it.
    Missing,
}

/// A virtual service.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ObservedVirtualService {
    /// How it chooses; `None` where we would never say so.
    pub mode: Option<ServiceMode>,
    /// In the order of the kernel's list.
    pub real_servers: Vec<ObservedRealServer>,
}

impl ObservedVirtualService {
    /// Whether some real server of it gets new connections.
    pub(crate) fn is_backed(&self) -> bool {
        self.real_servers.iter().any(|server| !server.weight.is_quiesced())
    }

    /// Whether this one, which is where the other one was, was made by somebody who removed that: nothing of it is as it was. Who edits a service leaves
    /// something of it.
    pub(crate) fn has_replaced(&self, before: &Self) -> bool {
        let in_common = |server: &ObservedRealServer| before.real_servers.iter().any(|other| other.address == server.address);
        self.mode != before.mode && !before.real_servers.is_empty() && !self.real_servers.iter().any(in_common)
    }

    /// One that nothing has been set of.
    pub(crate) const fn empty() -> Self {
        Self { mode: None, real_servers: Vec::new() }
    }
}

/// What is set of a virtual service beside its real servers.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ServiceMode {
    /// What the object asks for.
    pub scheduling: Scheduling,
    /// A hashing scheduler that meets a quiesced real server takes another one; without this it refuses the connection.
    pub fallback: bool,
}

/// A real server.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ObservedRealServer {
    /// Its address; port 0 where packets keep theirs.
    pub address: SocketAddr,
    /// How packets get there; `None` where we would never say so.
    pub forwarding: Option<ForwardingMethod>,
    /// Its share of new connections.
    pub weight: Weight,
    /// Connections that it has, active and inactive.
    pub connections: u64,
}

/// Since when each real server has been quiesced, or has got nothing new because another dataplane takes the connections.
pub type Quiesced = BTreeMap<(ServiceKey, SocketAddr), Instant>;

/// The virtual services whose connections that no real server of theirs answers are forgotten, as long as they serve by the rules of that time, with all of these:
/// where one of them was away, or one is gone, others may be there.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Forgotten {
    services: BTreeSet<ServiceKey>,
    rules: Vec<String>,
}

impl Forgotten {
    /// Whether that has been done for this one.
    #[must_use]
    pub fn contains(&self, service: ServiceKey) -> bool {
        self.services.contains(&service)
    }

    /// Notes that it has been done for these while the record was so.
    pub fn note(&mut self, services: impl IntoIterator<Item = ServiceKey>, record: &Record) {
        if self.rules != record.rules {
            *self = Self { services: BTreeSet::new(), rules: record.rules.clone() };
        }
        self.services.extend(services);
    }

    /// It is to be done again where a real server goes by this step.
    pub(crate) fn lose(&mut self, step: &Step) {
        if let Step::ChangeVirtualService(service, change) = step
            && change.real_servers.iter().any(|server| matches!(server, RealServerChange::Remove(_)))
        {
            self.services.remove(service);
        }
    }
}

/// Those that serve on.
pub(super) fn forgotten(previous: &Observed, kernel: &KernelState) -> Forgotten {
    if previous.forgotten.rules != kernel.record.rules {
        return Forgotten::default();
    }
    let mut forgotten = previous.forgotten.clone();
    forgotten.services.retain(|service| kernel.serves(*service, &previous.virtual_routers));
    forgotten
}

/// The losses so far, with those of confirmed services that were there and are not, and that we have not removed ourselves.
pub(super) fn losses(previous: &Observed, kernel: &KernelState, now: Instant) -> Losses {
    let mut losses = Losses::new();
    let mut services = kernel.balancer.services.keys().peekable();
    for key in &kernel.record.confirmed_services {
        while services.next_if(|service| *service < key).is_some() {}
        let there = services.next_if_eq(&key).is_some();
        if there && previous.losses.is_empty() {
            continue;
        }
        let was_there = previous.kernel.balancer.services.contains_key(key);
        // Where another dataplane, or somebody else, is to have it, nobody took it.
        let by_us = || previous.removed.contains(&StepKey::VirtualService(*key));
        let lost = !there && was_there && !kernel.balancer.former.contains_key(key) && !kernel.record.is_handing_over() && !by_us();
        match previous.losses.get(key) {
            before if lost => {
                let count = before.map_or(0, |loss| loss.count).saturating_add(1);
                losses.insert(*key, Loss { count, last: now });
            }
            Some(before) if !there || now.saturating_duration_since(before.last) < AT_PEACE => drop(losses.insert(*key, *before)),
            _ => {}
        }
    }
    losses
}

/// Since when each of those that the record has is there.
pub(super) fn retirements(previous: &Observed, kernel: &KernelState, now: Instant) -> Retirements {
    let since = |retired: &RetiredRange| previous.retirements.get(retired).copied().unwrap_or(now);
    kernel.record.retired.iter().map(|retired| (*retired, since(retired))).collect()
}

/// As [`super::stamp`], for what has weight 0, what no new connection comes to, and what is left of a dataplane; for all while somebody else has new connections.
pub(super) fn quiesced(previous: &Observed, kernel: &KernelState, now: Instant) -> Quiesced {
    let KernelState { balancer, record, .. } = kernel;
    let handing_over = record.is_handing_over();
    let relieved = record.relieved();
    let quiesced = balancer.services.iter().flat_map(|(key, service)| {
        let all = handing_over || relieved.contains(key);
        service.real_servers.iter().filter(move |server| all || server.weight.is_quiesced()).map(|server| (*key, server.address))
    });
    let former = balancer.former.iter().filter(|(key, _)| handing_over || balancer.services.contains_key(key));
    let former = former.flat_map(|(key, service)| service.real_servers.iter().map(|server| (*key, server.address)));
    quiesced.chain(former).map(|key| (key, previous.quiesced.get(&key).copied().unwrap_or(now))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::Scheduler;

    /// As somebody finds it: its scheduler, and the last octets of its real servers.
    fn service(scheduler: Scheduler, servers: &[u8]) -> ObservedVirtualService {
        let server = |last: &u8| ObservedRealServer {
            address: (IpAddr::from([192, 168, 0, *last]), 80).into(),
            forwarding: Some(ForwardingMethod::Masquerade),
            weight: Weight(1),
            connections: 0,
        };
        let mode = ServiceMode { scheduling: Scheduling::of(scheduler), fallback: false };
        ObservedVirtualService { mode: Some(mode), real_servers: servers.iter().map(server).collect() }
    }

    #[test]
    fn a_service_of_which_nothing_is_as_it_was_has_replaced_the_one_that_was_there() {
        use Scheduler::{RoundRobin as Rr, SourceHashing as Sh};
        let before = service(Rr, &[1, 2]);
        for (after, replaced) in [
            (service(Sh, &[3]), true),
            (service(Sh, &[]), true),
            (ObservedVirtualService { mode: None, ..service(Rr, &[3]) }, true),
            // Edited: by somebody, or made again as it was.
            (service(Sh, &[2, 3]), false),
            (service(Rr, &[3]), false),
            (service(Rr, &[]), false),
        ] {
            assert_eq!(after.has_replaced(&before), replaced, "{after:?}");
        }
        // Of one without real servers nobody can tell.
        assert!(!service(Sh, &[3]).has_replaced(&service(Rr, &[])));
    }
}
