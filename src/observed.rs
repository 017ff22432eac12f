// SPDX-License-Identifier: Apache-2.0
//! What is: the addresses in the kernel, the ownership record in the instance's nft table, and the speaker, as read in one pass.
//!
//! Invariants: nothing here is remembered intent. Each `since` is stamped when the observed value changed, at process start for what was there
//! already, so that [`plan`](crate::plan) only compares times.

mod balancer;
mod virtual_routers;

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bgp::Prefix;
use ipvs::SyncRole;

pub use self::balancer::{
    Balancer, Forgotten, IpvsAvailability, Loss, Losses, ObservedRealServer, ObservedVirtualService, Quiesced, RetiredRange, Retirements,
    ServiceMode, Translated,
};
pub use self::virtual_routers::ObservedVirtualRouters;
use crate::desired::{Filter, RouteSet, Rules, ServiceKey};
use crate::plan::{Entries, RangeMove, Step, StepKey, VirtualServiceChange};
use crate::sysctl::{InterfaceSetting, Sysctl};
use crate::telemetry::chain;

/// The address protocol (`IFA_PROTO`, kernel 5.18 and newer) that our addresses carry.
pub const ADDRESS_PROTOCOL: u8 = 118;

/// How long a withdrawal is remembered whose VIP is nowhere any more: longer than any `drain.fabricDelay` that is of use.
const FORGET_AFTER: Duration = Duration::from_secs(600);

/// Everything read in one pass.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Observed {
    /// The kernel.
    pub kernel: KernelState,
    /// The speaker.
    pub speaker: ObservedSpeaker,
    /// The virtual routers.
    pub virtual_routers: ObservedVirtualRouters,
    /// When the [`Announcement`] of each VIP and each aggregate last changed; what was never announced since process start is withdrawn since then.
    pub announcements: BTreeMap<Prefix, Since<Announcement>>,
    /// Since when real servers are quiesced.
    pub quiesced: Quiesced,
    /// Since when virtual services have had no ports.
    pub retirements: Retirements,
    /// Which virtual services of ours somebody else removed.
    pub losses: Losses,
    /// Of which virtual services the connection table has nothing any more from before they served.
    pub forgotten: Forgotten,
    /// When this process started: `since` of all that is not in a map above.
    pub started: Option<Instant>,
    /// Since when the kernel cannot be read, so that what is known of it is from before.
    pub unreadable_since: Option<Instant>,
    /// Steps that failed and have not succeeded since.
    pub failures: BTreeMap<StepKey, Failure>,
    /// What this process itself removed, as long as it is missing and recorded as ours.
    pub removed: BTreeSet<StepKey>,
    /// What was to be done to a virtual service when a step about it failed last, where it was not to be removed.
    pub refused: BTreeMap<ServiceKey, VirtualServiceChange>,
}

/// The kernel, as the actuator reads it in one pass.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct KernelState {
    /// How `vips.interface` is.
    pub interface: InterfaceState,
    /// Addresses on it, loopback and link-local ones left out.
    pub addresses: BTreeMap<IpAddr, ObservedAddress>,
    /// Addresses on all other interfaces of the node.
    pub elsewhere: BTreeSet<IpAddr>,
    /// Addresses whose duplicate address detection has failed or still runs: the kernel does not deliver to them.
    pub unusable: BTreeSet<IpAddr>,
    /// Whether the kernel is known to keep the protocol of an address (`IFA_PROTO`): then one that carries none is not ours.
    pub address_protocols: bool,
    /// Addresses with our protocol that another instance on this node has in its record.
    pub claimed_by_others: BTreeSet<IpAddr>,
    /// Addresses with our protocol that this process has left to another instance which has them no more.
    pub orphaned: BTreeSet<IpAddr>,
    /// The virtual services.
    pub balancer: Balancer,
    /// Whether kube-proxy manages IPVS on this node too.
    pub kube_proxy_in_ipvs_mode: bool,
    /// Kernel settings that balancing needs; empty where nobody asked.
    pub sysctls: BTreeMap<Sysctl, String>,
    /// The settings of the external interfaces, as they take effect; empty where nobody asked.
    pub external: BTreeMap<String, BTreeMap<InterfaceSetting, u8>>,
    /// The next hops of the node's routes.
    pub gateways: BTreeSet<IpAddr>,
    /// Which hosts are on a link of this node.
    pub links: Links,
    /// The ownership record.
    pub record: Record,
}

/// Which hosts are on a link of this node, by its main routing table, and which addresses are no hosts there, by the local one.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Links {
    /// Prefixes that a route without next hop has.
    pub direct: BTreeSet<Prefix>,
    /// Prefixes inside these that are behind a next hop all the same.
    pub routed: BTreeSet<Prefix>,
    /// Addresses that mean all hosts of a link.
    pub broadcast: BTreeSet<IpAddr>,
}

impl Links {
    /// Whether a frame can be sent to this host.
    #[must_use]
    pub fn reach(&self, host: IpAddr) -> bool {
        let longest = |prefixes: &BTreeSet<Prefix>| prefixes.iter().filter(|prefix| prefix.contains(host)).map(Prefix::length).max();
        longest(&self.direct).is_some_and(|direct| longest(&self.routed).is_none_or(|routed| routed < direct))
    }
}

/// How an interface is.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum InterfaceState {
    /// It is up.
    #[default]
    Up,
    /// An administrator has set it down: the kernel delivers nothing to its addresses, although they can be read.
    Down,
    /// There is none of that name, so it has no addresses.
    Missing,
}

/// A value and when it came to be.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Since<T> {
    /// The value.
    pub value: T,
    /// When it became this.
    pub since: Instant,
}

/// One address of `vips.interface`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ObservedAddress {
    /// Length of its prefix.
    pub prefix_length: u8,
    /// Who set it (`IFA_PROTO`); `None` where kernel or setter gave none.
    pub protocol: Option<u8>,
}

/// The nft table of the instance, which lives and dies with the kernel state that it tells of.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Record {
    /// Whether the table exists, and is not one in which others have put all there is.
    pub exists: bool,
    /// Addresses that we are about to place; alone never a licence to remove one.
    pub pending: BTreeSet<IpAddr>,
    /// Addresses that we placed.
    pub confirmed: BTreeSet<IpAddr>,
    /// Virtual services that we are about to make; alone never a licence to remove one.
    pub pending_services: BTreeSet<ServiceKey>,
    /// Virtual services that we made.
    pub confirmed_services: BTreeSet<ServiceKey>,
    /// Those of them to whose ports nothing is let in any more, as they are about to go while their VIPs stay, and such parts of ranges of ports.
    pub closed: BTreeSet<ServiceKey>,
    /// Those virtual services that are ours in IPVS, or about to be made there, while we have tables of nft: where both dataplanes have something, an entry
    /// above proves nothing about IPVS.
    pub in_ipvs: BTreeSet<ServiceKey>,
    /// Daemons of connection synchronisation that we are about to start; alone never a licence to stop one.
    pub pending_daemons: BTreeSet<SyncRole>,
    /// Those that we started.
    pub confirmed_daemons: BTreeSet<SyncRole>,
    /// The firewall mark under which each range of ports is known to IPVS.
    pub marks: BTreeMap<ServiceKey, u32>,
    /// Virtual services that we made, of ranges of ports, which have no ports any more.
    pub retired: BTreeSet<RetiredRange>,
    /// What nft does with the packets of virtual services, other than with those of all.
    pub filters: BTreeMap<ServiceKey, Filter>,
    /// The rules of our chains, as [`Rules::fingerprint`](crate::desired::Rules::fingerprint) tells them.
    pub rules: Vec<String>,
}

impl Record {
    /// Whether it has no entry.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let Self { pending, confirmed, pending_services, confirmed_services, .. } = self;
        let no_services = pending_services.is_empty() && confirmed_services.is_empty();
        pending.is_empty() && confirmed.is_empty() && no_services && self.retired.is_empty() && !self.has_daemons()
    }

    /// Whether it has an entry of a daemon of connection synchronisation.
    #[must_use]
    pub fn has_daemons(&self) -> bool {
        !self.pending_daemons.is_empty() || !self.confirmed_daemons.is_empty()
    }

    /// Adds these entries as pending ones.
    pub(crate) fn expect(&mut self, entries: &Entries) {
        self.pending.extend(&entries.addresses);
        self.pending_services.extend(&entries.services);
        self.in_ipvs.extend(&entries.in_ipvs);
        self.pending_daemons.extend(&entries.daemons);
        self.marks.extend(&entries.marks);
    }

    /// Makes these entries confirmed ones.
    pub(crate) fn confirm(&mut self, entries: &Entries) {
        self.pending_daemons.retain(|role| !entries.daemons.contains(role));
        self.confirmed_daemons.extend(&entries.daemons);
        self.pending.retain(|address| !entries.addresses.contains(address));
        self.pending_services.retain(|service| !entries.services.contains(service));
        self.in_ipvs.extend(&entries.in_ipvs);
        self.confirmed.extend(&entries.addresses);
        self.confirmed_services.extend(&entries.services);
    }

    /// Takes these entries out.
    pub(crate) fn forget(&mut self, entries: &Entries) {
        for set in [&mut self.pending, &mut self.confirmed] {
            set.retain(|address| !entries.addresses.contains(address));
        }
        for set in [&mut self.pending_services, &mut self.confirmed_services] {
            set.retain(|service| !entries.services.contains(service));
        }
        self.closed.retain(|service| !entries.services.contains(service));
        self.in_ipvs.retain(|service| !entries.in_ipvs.contains(service) && !entries.services.contains(service));
        for set in [&mut self.pending_daemons, &mut self.confirmed_daemons] {
            set.retain(|role| !entries.daemons.contains(role));
        }
        self.marks.retain(|service, _| self.pending_services.contains(service) || self.confirmed_services.contains(service));
        self.filters.retain(|service, _| !entries.services.contains(service));
        self.retired.retain(|retired| !entries.retired.contains(retired));
    }

    /// Closes the ports of these.
    pub(crate) fn close(&mut self, services: &BTreeSet<ServiceKey>) {
        self.closed.extend(services);
    }

    /// Opens them again.
    pub(crate) fn open(&mut self, services: &BTreeSet<ServiceKey>) {
        self.closed.retain(|service| !services.contains(service));
    }

    /// Lets ranges of ports take the places of others, and opens what these had besides.
    pub(crate) fn move_ranges(&mut self, change: &RangeMove) {
        let arriving: Vec<(ServiceKey, Option<u32>)> = change.arriving(&self.marks).collect();
        for from in change.leaving() {
            let given_up = self.given_up(from);
            self.closed.retain(|part| !given_up.contains(part));
            self.confirmed_services.remove(&from);
            self.marks.remove(&from);
            self.filters.remove(&from);
        }
        for (to, mark) in arriving {
            self.pending_services.remove(&to);
            self.confirmed_services.insert(to);
            self.marks.extend(mark.map(|mark| (to, mark)));
        }
        self.filter(&change.filters);
        self.retired.extend(change.retired.values().flatten());
    }

    /// The closed ports of a range that belong to nothing by themselves: it gives them up.
    pub(crate) fn given_up(&self, range: ServiceKey) -> BTreeSet<ServiceKey> {
        range.overlapping(&self.closed).filter(|part| !self.has_service(**part)).copied().collect()
    }

    /// Whether no new connection comes to a virtual service of ours: it is closed, or each of the ports of a range is closed or one of their own.
    pub(crate) fn is_relieved(&self, service: ServiceKey) -> bool {
        if self.closed.contains(&service) || !service.is_range() {
            return self.closed.contains(&service);
        }
        let single = service.overlapping(&self.confirmed_services).filter(|key| !key.is_range() && !self.closed.contains(key));
        let parts = self.given_up(service);
        single.chain(&parts).map(|key| key.ports.count()).sum::<u32>() == service.ports.count()
    }

    /// Those of the confirmed ones of which [`Self::is_relieved`] is true.
    pub(crate) fn relieved(&self) -> BTreeSet<ServiceKey> {
        let may_be = self.closed.iter().chain(self.marks.keys());
        may_be.filter(|key| self.confirmed_services.contains(key) && self.is_relieved(**key)).copied().collect()
    }

    /// Makes these the filters of their services.
    pub(crate) fn filter(&mut self, filters: &BTreeMap<ServiceKey, Filter>) {
        self.filters.extend(filters.iter().map(|(service, filter)| (*service, filter.clone())));
        self.filters.retain(|_, filter| *filter != Filter::NONE);
    }

    /// Whether somebody else has new connections, while virtual services of ours may be there.
    #[must_use]
    pub fn is_handing_over(&self) -> bool {
        Rules::are_handing_over(&self.rules)
    }

    /// Whether it has an entry of this virtual service.
    #[must_use]
    pub fn has_service(&self, service: ServiceKey) -> bool {
        self.pending_services.contains(&service) || self.confirmed_services.contains(&service)
    }
}

impl KernelState {
    /// Whether packets to this virtual service get there, as far as address, entry and service go.
    pub(crate) fn serves(&self, service: ServiceKey, routers: &ObservedVirtualRouters) -> bool {
        let vip = service.vip;
        let is_recorded = self.record.confirmed_services.contains(&service);
        let is_there = || self.addresses.contains_key(&vip) || (self.elsewhere.contains(&vip) && routers.has_recorded(vip));
        is_recorded && self.balancer.services.contains_key(&service) && is_there()
    }

    /// What an earlier process may have announced: what it has confirmed, and what it has placed while its end came before the confirmation.
    #[must_use]
    pub fn left_behind(&self) -> BTreeSet<IpAddr> {
        let placed = self.record.pending.iter().filter(|address| self.addresses.contains_key(address));
        self.record.confirmed.iter().chain(placed).copied().collect()
    }
}

/// What the speaker reports.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ObservedSpeaker {
    /// The set it advertises; `None` before the first.
    pub advertised: Option<Arc<RouteSet>>,
    /// Its neighbours' configuration in force; `None` before the first, and after it was stopped.
    pub configured: Option<Arc<crate::desired::DesiredBgp>>,
    /// Prefixes withdrawn whose UPDATE some peer has not acknowledged yet.
    pub withdrawing: BTreeSet<Prefix>,
    /// Sessions that are not closed yet (a stopped speaker still writes its Cease).
    pub open_sessions: usize,
    /// Whether some neighbour is yet to be told of the set.
    pub behind: bool,
    /// Whether some session is Established (RFC 4271 §8.2.2).
    pub established: bool,
}

impl ObservedSpeaker {
    /// How this prefix is advertised, if it is, by itself or as that of a VIP for which an aggregate stands.
    #[must_use]
    pub fn announced(&self, prefix: Prefix) -> Option<Announcement> {
        let set = self.advertised.as_ref()?;
        match set.routes.get(&prefix) {
            Some(route) if route.is_shutting_down() => Some(Announcement::ShuttingDown),
            Some(_) => Some(Announcement::Advertised),
            None => {
                (prefix == Prefix::host(prefix.address()) && set.covered.contains(&prefix.address())).then_some(Announcement::Advertised)
            }
        }
    }
}

/// Where a VIP, or an aggregate of VIPs, stands towards the fabric.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Announcement {
    /// In the advertised set.
    Advertised,
    /// In it as the last resort (RFC 8326).
    ShuttingDown,
    /// No longer in it, but some peer may not know yet.
    Withdrawing,
    /// Every peer has acknowledged the withdrawal or has no session.
    Withdrawn,
}

/// A step that did not work.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Failure {
    /// In words, with all causes.
    pub error: String,
    /// How often in a row.
    pub count: u32,
    /// When first.
    pub since: Instant,
    /// When last.
    pub last: Instant,
}

impl Observed {
    /// Notes that a step failed, with all causes of its error.
    pub fn fail(&mut self, key: StepKey, error: &dyn Error, now: Instant) {
        let failure = self.failures.entry(key).or_insert_with(|| Failure { error: String::new(), count: 0, since: now, last: now });
        failure.error = chain(error);
        failure.count = failure.count.saturating_add(1);
        failure.last = now;
    }

    /// As [`Self::fail`], and notes what it is that could not be done to a virtual service.
    pub fn refuse(&mut self, step: &Step, error: &dyn Error, now: Instant) {
        self.fail(step.key(), error, now);
        // A part of it may have been done.
        self.forgotten.lose(step);
        match step {
            Step::AddVirtualService(service, change) | Step::ChangeVirtualService(service, change) => {
                self.refused.insert(*service, change.clone());
            }
            Step::RemoveVirtualService(service) => {
                self.refused.remove(service);
            }
            _ => {}
        }
    }

    /// Notes that a step succeeded: its failures are over.
    pub fn succeed(&mut self, key: StepKey) {
        self.failures.remove(&key);
    }

    /// As [`Self::succeed`], and notes what is gone by our own hand, virtual services and connections; what is known of a range of ports is known of what it
    /// has become.
    pub fn complete(&mut self, step: &Step) {
        self.succeed(step.key());
        if matches!(step, Step::RemoveAddress(_) | Step::RemoveVirtualService(_)) {
            self.removed.insert(step.key());
        }
        for (from, to) in step.moved() {
            let moved = self.quiesced.extract_if(.., |(key, _), _| key == from);
            let moved: Quiesced = moved.map(|((_, server), since)| ((*to, server), since)).collect();
            self.quiesced.extend(moved);
            let loss = self.losses.remove(from);
            self.losses.extend(loss.map(|loss| (*to, loss)));
        }
        if let Step::ForgetConnections(services) = step {
            self.forgotten.note(services.keys().copied(), &self.kernel.record);
        }
        self.forgotten.lose(step);
    }

    fn is_known(&self, vip: IpAddr) -> bool {
        let prefix = Prefix::host(vip);
        self.kernel.addresses.contains_key(&vip)
            || self.kernel.record.pending.contains(&vip)
            || self.kernel.record.confirmed.contains(&vip)
            || self.speaker.withdrawing.contains(&prefix)
            || self.speaker.advertised.as_ref().is_some_and(|advertised| advertised.serves(vip))
    }

    /// Where the speaker has this prefix now.
    fn announcement(&self, prefix: Prefix) -> Announcement {
        self.speaker
            .announced(prefix)
            .unwrap_or_else(|| if self.speaker.withdrawing.contains(&prefix) { Announcement::Withdrawing } else { Announcement::Withdrawn })
    }
}

/// Puts what was read just now together with when it came to be. Pure: equal inputs give equal outputs.
///
/// An [`Announcement`] is kept for each VIP on the interface or in the record, and for each VIP and aggregate advertised or being withdrawn. One that is
/// nowhere any more is kept for a while where it was withdrawn while this process ran: were its address to come back, the delay since then would still
/// count. What the virtual routers report is as before. The kernel was read.
#[must_use]
pub fn stamp(previous: &Observed, kernel: KernelState, speaker: ObservedSpeaker, now: Instant) -> Observed {
    let started = previous.started.unwrap_or(now);
    let quiesced = balancer::quiesced(previous, &kernel, now);
    let losses = balancer::losses(previous, &kernel, now);
    let forgotten = balancer::forgotten(previous, &kernel);
    let retirements = balancer::retirements(previous, &kernel, now);
    let removed = previous.removed.iter().filter(|key| is_missing(**key, &kernel)).copied().collect();
    let mut observed = Observed {
        kernel,
        speaker,
        virtual_routers: previous.virtual_routers.clone(),
        announcements: BTreeMap::new(),
        quiesced,
        retirements,
        losses,
        forgotten,
        started: Some(started),
        unreadable_since: None,
        failures: BTreeMap::new(),
        removed,
        refused: BTreeMap::new(),
    };
    let since = |prefix| announced_since(previous.announcements.get(&prefix), observed.announcement(prefix), started, now);
    let known: BTreeMap<_, _> = known_prefixes(&observed).map(|prefix| (prefix, since(prefix))).collect();
    let gone = previous.announcements.keys().filter(|prefix| !known.contains_key(prefix)).map(|prefix| (*prefix, since(*prefix)));
    let remembered: BTreeMap<_, _> = gone.filter(|(_, announcement)| is_remembered(*announcement, started, now)).collect();
    observed.announcements = known.into_iter().chain(remembered).collect();
    let is_current = |key: &StepKey| match key {
        StepKey::Address(vip) => observed.is_known(*vip),
        StepKey::VirtualService(service) => observed.kernel.record.has_service(*service),
        StepKey::Retired(retired) => observed.kernel.record.retired.contains(retired),
        StepKey::Advertise
        | StepKey::Record
        | StepKey::Speaker
        | StepKey::VirtualRouters
        | StepKey::Sysctl(_)
        | StepKey::Interfaces
        | StepKey::Timeouts
        | StepKey::Daemon(_)
        | StepKey::Connections => true,
    };
    observed.failures = previous.failures.iter().filter(|(key, _)| is_current(key)).map(|(key, failure)| (*key, failure.clone())).collect();
    let refused = previous.refused.iter().filter(|(service, _)| observed.failures.contains_key(&StepKey::VirtualService(**service)));
    observed.refused = refused.map(|(service, change)| (*service, change.clone())).collect();
    observed
}

/// Whether it is recorded as ours, and is not there.
fn is_missing(key: StepKey, kernel: &KernelState) -> bool {
    let KernelState { addresses, balancer, record, .. } = kernel;
    match key {
        StepKey::Address(address) => record.confirmed.contains(&address) && !addresses.contains_key(&address),
        StepKey::VirtualService(service) => record.confirmed_services.contains(&service) && !balancer.services.contains_key(&service),
        _ => false,
    }
}

/// Every VIP and aggregate that is somewhere; some more than once.
fn known_prefixes(observed: &Observed) -> impl Iterator<Item = Prefix> {
    let Observed { kernel: KernelState { addresses, record, .. }, speaker, .. } = observed;
    let covered = speaker.advertised.iter().flat_map(|advertised| &advertised.covered);
    let vips = addresses.keys().chain(&record.pending).chain(&record.confirmed).chain(covered).copied().map(Prefix::host);
    let advertised = speaker.advertised.iter().flat_map(|advertised| advertised.prefixes());
    vips.chain(advertised).chain(speaker.withdrawing.iter().copied())
}

fn announced_since(before: Option<&Since<Announcement>>, value: Announcement, started: Instant, now: Instant) -> Since<Announcement> {
    match before {
        Some(before) if before.value == value => *before,
        // What is not in the map has been withdrawn since the start.
        None if value == Announcement::Withdrawn => Since { value, since: started },
        _ => Since { value, since: now },
    }
}

/// Whether it says more than an entry that is not there.
fn is_remembered(announcement: Since<Announcement>, started: Instant, now: Instant) -> bool {
    announcement.since > started && now.saturating_duration_since(announcement.since) < FORGET_AFTER
}

#[cfg(test)]
mod tests;
