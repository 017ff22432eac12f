// SPDX-License-Identifier: Apache-2.0
//! The decisions about virtual services, made before those about addresses: a VIP comes onto the interface, and is announced, only once somebody stands
//! behind it in the kernel; and its virtual services go only after it.
//!
//! Invariants: a service is made only with an entry in the record that has been read back; one is changed or removed only where this process made it, or
//! it is in our own tables of nft, or the record proves it ours, a pending entry only together with the intent, and not where somebody was there before it; what others made is left alone,
//! and is no service of ours; one that equals the intent to the letter is adopted where the record is lost; one that not everybody may come to is made,
//! and let in, only with its filter in force, and keeps that until it is gone; its VIP is withdrawn before the last real server goes; who goes on
//! removing a service is not fought; one that goes while its VIP stays goes only with its ports closed (`succession.rs`), or to whoever has them from then on
//! (`expansion.rs`), and a range of ports becomes another one where it can (`ranges.rs`).

use std::collections::{BTreeMap, BTreeSet};
use std::iter::Peekable;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use bgp::Prefix;

use super::balancing::{RECOUNT, change, creation, is_as_desired, target};
use super::ranges::Moves;
use super::{Planner, Step, StepKey, VirtualServiceChange};
use crate::api::{ForwardingMethod, ObjectRef};
use crate::desired::{Desired, DesiredVirtualService, Filter, Lifecycle, ServiceKey, VipIntent};
use crate::observed::{Announcement, KernelState, Links, Observed, ObservedVirtualService, Record};

/// The wait before a virtual service is made again that somebody else has removed for the second time; each further time doubles it.
const FIRST_REPAIR: Duration = Duration::from_secs(1);

/// The longest of these waits.
const LONGEST_REPAIR: Duration = Duration::from_secs(300);

/// What the decisions about virtual services leave to those about addresses.
#[derive(Debug, Default)]
pub(super) struct Balanced {
    /// VIPs with a virtual service of ours that somebody stands behind.
    pub(super) backed: BTreeSet<IpAddr>,
    /// VIPs of which a virtual service is on its way into the kernel, and nothing has failed about it.
    pub(super) arriving: BTreeSet<IpAddr>,
    /// Some virtual service of ours is in the kernel.
    pub(super) occupied: bool,
    /// Something is served only by the dataplane that balanced before.
    pub(super) succeeding: bool,
    /// The dataplane that balanced before is IPVS, and the record does not name yet what it has.
    pub(super) unnamed: bool,
    /// VIPs of which a virtual service is let in that not everybody may come to, while its filter is not in force, or not known to be.
    pub(super) unguarded: BTreeSet<IpAddr>,
    /// VIPs that somebody else balances, while no rules are there that leave them to that.
    unruled: BTreeSet<IpAddr>,
    /// Virtual services of ours in the kernel that the record does not tell of.
    unrecorded: BTreeSet<ServiceKey>,
    /// The rules of nft are not as they should be.
    pub(super) unruly: bool,
    /// They leave new connections to somebody else.
    pub(super) handing_over: bool,
    /// VIPs that somebody else balances, until we do.
    pub(super) elsewhere: BTreeSet<IpAddr>,
    /// Of one of them, virtual services are still to come.
    pub(super) taking_over: bool,
    /// A VIP is on its way out, and we still balance it.
    pub(super) leaving: bool,
    /// The ranges of ports that become others, and what is closed of them meanwhile.
    pub(super) moves: Moves,
    pub(super) given_up: BTreeSet<ServiceKey>,
    pub(super) steps: Vec<Step>,
}

impl Planner<'_> {
    /// Decides about every virtual service that intent or record knows of.
    pub(super) fn decide_services(&mut self) {
        let (desired, KernelState { record, balancer, .. }) = (self.desired, &self.observed.kernel);
        self.look_at_rules();
        self.decide_moves();
        self.balanced.unnamed = self.translates() && balancer.former.keys().any(|key| !record.in_ipvs.contains(key));
        let wanted = || desired.balancing.iter().flat_map(|balancing| &balancing.services);
        let known = record.pending_services.iter().chain(&record.confirmed_services).chain(&balancer.made);
        let mut services: Vec<ServiceKey> = wanted().map(|(key, _)| key).chain(known).copied().collect();
        services.sort();
        services.dedup();
        let mut desired = Following::new(wanted());
        let mut observed = Following::new(&balancer.services);
        let mut confirmed = Following::new(record.confirmed_services.iter().map(|key| (key, ())));
        let mut pending = Following::new(record.pending_services.iter().map(|key| (key, ())));
        let is_about_to_balance = super::blocked::is_about_to_balance(self.desired, self.observed);
        for of_vip in services.chunk_by(|one, other| one.vip == other.vip) {
            let vip_is_wanted = of_vip.first().is_some_and(|service| self.is_wanted(service.vip));
            let unruled = vip_is_wanted && self.is_unruled(of_vip);
            self.balanced.unruled.extend(of_vip.first().filter(|_| unruled).map(|service| service.vip));
            for key in of_vip.iter().copied() {
                let (confirmed, pending) = (confirmed.at(key).is_some(), pending.at(key).is_some());
                let wish = desired.at(key).or_else(|| self.successor(key));
                let service = Known { key, desired: wish, observed: observed.at(key), confirmed, recorded: confirmed || pending };
                self.decide_service(service, vip_is_wanted);
            }
            if vip_is_wanted {
                self.decide_takeover(of_vip);
            } else if is_about_to_balance {
                self.await_settings(of_vip);
            }
        }
        self.decide_former();
        self.decide_retired();
        self.forget_names();
        self.forget_filters();
        self.move_ranges();
        self.forget_closed();
    }

    /// The changes in place of those of these virtual services behind whose VIPs somebody stands all the while.
    pub(super) fn decide_churn(mut self, churn: &BTreeMap<ServiceKey, DesiredVirtualService>) -> Vec<Step> {
        let KernelState { record, balancer, .. } = &self.observed.kernel;
        self.look_at_rules();
        for (key, desired) in churn {
            if !self.is_wanted(key.vip) {
                continue;
            }
            let confirmed = record.confirmed_services.contains(key);
            let recorded = confirmed || record.pending_services.contains(key);
            let service = Known { key: *key, desired: Some(desired), observed: balancer.services.get(key), confirmed, recorded };
            self.decide_service(service, true);
        }
        let Balanced { mut steps, backed, .. } = self.balanced;
        steps.retain(|step| matches!(step, Step::ChangeVirtualService(key, _) if backed.contains(&key.vip)));
        steps
    }

    fn look_at_rules(&mut self) {
        let (balancing, record) = (self.desired.balancing.as_ref(), &self.observed.kernel.record);
        self.balanced.unruly = balancing.is_some_and(|balancing| balancing.rules.fingerprint() != record.rules);
        self.balanced.handing_over = record.is_handing_over();
    }

    /// Whether nft balances.
    pub(super) fn translates(&self) -> bool {
        self.desired.balancing.as_ref().is_some_and(|balancing| balancing.rules.translates())
    }

    /// A filter without an entry is that of a service that is to get one; where there is none any more, the filter goes.
    fn forget_filters(&mut self) {
        let record = &self.observed.kernel.record;
        for key in record.filters.keys().filter(|key| !record.has_service(**key) && !self.balanced.unrecorded.contains(key)) {
            self.filters.insert(*key, Filter::NONE);
        }
    }

    /// Whether a VIP may be announced, as far as balancing goes.
    pub(super) fn is_backed(&self, vip: IpAddr) -> bool {
        let waived = || self.desired.vips.get(&vip).is_some_and(|vip| vip.intent == VipIntent::Serve { without_endpoints: true });
        let Balanced { backed, elsewhere, .. } = &self.balanced;
        self.desired.balancing.is_none() || backed.contains(&vip) || elsewhere.contains(&vip) || waived()
    }

    /// What the dataplane has that balanced before goes once its successor takes the connections and those that it has are over, or nobody wants it. Until
    /// its successor is there, a VIP is served by it.
    /// Where IPVS is the successor, the rules take all of it away at once. Where neither is, it is IPVS that balanced before, and somebody else succeeds it.
    fn decide_former(&mut self) {
        let KernelState { record, balancer, .. } = &self.observed.kernel;
        let balancing = self.desired.balancing.as_ref();
        for (key, service) in &balancer.former {
            let takes = |successor| takes_connections(*key, successor, record.confirmed_services.contains(key), record);
            let succeeded = balancer.services.get(key).is_some_and(takes);
            let desired = balancing.and_then(|balancing| balancing.services.get(key));
            let wanted = match desired {
                Some(_) => self.is_wanted(key.vip) || self.holds_services(key.vip),
                None => balancing.is_none() && self.holds_services(key.vip),
            };
            if service.is_backed() && balancing.is_some() {
                self.balanced.backed.insert(key.vip);
            }
            self.balanced.succeeding |= wanted && !succeeded && desired.is_some_and(DesiredVirtualService::is_backed);
            if balancing.is_some() && !self.translates() {
                continue;
            }
            self.balanced.occupied = true;
            if self.balanced.unnamed && self.desired.lifecycle.goes_on() && !record.in_ipvs.contains(key) {
                self.confirmed.in_ipvs.insert(*key);
            }
            self.balanced.leaving |= wanted && balancing.is_none() && !super::serves(self.desired, key.vip);
            let left = self.is_left_to_others(key.vip);
            let over = if left { self.balanced.handing_over } else { !wanted || succeeded };
            if over && (!(left || wanted) || self.is_drained(*key, service)) && self.ready(StepKey::VirtualService(*key)) {
                self.balanced.steps.push(Step::RemoveFormer(*key));
            }
        }
    }

    /// Whether the record tells of what is to be made in IPVS, or is there, apart from what is in tables of nft: else nothing would prove it ours after a
    /// crash in which both are there.
    fn is_named(&self, key: ServiceKey) -> bool {
        let KernelState { record, balancer, .. } = &self.observed.kernel;
        if self.translates() { !self.balanced.unnamed } else { balancer.former.is_empty() || record.in_ipvs.contains(&key) }
    }

    /// Names of what IPVS does not have any more go, and all of them where nft has nothing any more.
    fn forget_names(&mut self) {
        let KernelState { record, balancer, .. } = &self.observed.kernel;
        let by_ipvs = self.desired.balancing.is_some() && !self.translates();
        let is_over = |key: &&ServiceKey| {
            if by_ipvs { balancer.former.is_empty() && !self.balanced.unruly } else { !balancer.former.contains_key(key) }
        };
        let over: Vec<ServiceKey> = record.in_ipvs.iter().filter(is_over).copied().collect();
        self.unrecorded.in_ipvs.extend(over);
    }

    /// Whether rules, filters or virtual services of the VIP are still to come, so that it had better wait for them.
    pub(super) fn awaits_services(&self, vip: IpAddr) -> bool {
        self.awaits_nft(vip) || self.balanced.arriving.contains(&vip)
    }

    fn awaits_nft(&self, vip: IpAddr) -> bool {
        self.balanced.unruly || self.balanced.unguarded.contains(&vip)
    }

    /// Whether they are on their way: nothing has failed about them.
    pub(super) fn services_arrive(&self, vip: IpAddr) -> bool {
        let is_to_be = self.desired.balancing.is_some() || self.may_hand_over();
        let written = self.awaits_nft(vip) && is_to_be && !self.observed.failures.contains_key(&StepKey::Record);
        written || self.balanced.arriving.contains(&vip)
    }

    /// Whether nobody has connections there any more, or their time is over.
    pub(super) fn is_drained(&mut self, key: ServiceKey, service: &ObservedVirtualService) -> bool {
        let mut drained = true;
        for server in service.real_servers.iter().filter(|server| server.connections > 0) {
            let since = self.observed.quiesced.get(&(key, server.address)).copied().unwrap_or(self.now);
            drained &= self.due(since, self.desired.real_server_drain);
        }
        if !drained {
            self.look_at(Some(self.now + RECOUNT));
        }
        drained
    }

    /// Whether a virtual service may be let in: nobody comes whom it does not admit.
    fn is_guarded(&self, key: ServiceKey, desired: &DesiredVirtualService) -> bool {
        desired.filter.sources.is_none() || (self.has_filter(key, desired) && (!self.balanced.unruly || self.balanced.handing_over))
    }

    /// Whether one that nobody asks for may be let in: nobody comes whom its filter does not admit. Whether rules are ours is not known without an intent for
    /// them, unless they leave new connections to somebody else; without any, everybody comes anyway.
    pub(super) fn stays_guarded(&self, key: ServiceKey) -> bool {
        let are_ours = self.desired.balancing.is_some() && !self.balanced.unruly;
        let filter = self.observed.kernel.record.filters.get(&key);
        are_ours || self.lets_others_in() || filter.is_none_or(|filter| filter.sources.is_none())
    }

    fn has_filter(&self, key: ServiceKey, desired: &DesiredVirtualService) -> bool {
        desired.is_filtered_by(key, self.observed.kernel.record.filters.get(&key))
    }

    /// The filter follows the intent, and stays as it was where there is none any more: nobody comes while a service leaves who could not come before.
    /// One that has ports of another range yet gets its filter together with these: no set has both.
    fn decide_filter(&mut self, key: ServiceKey, desired: &DesiredVirtualService) {
        if !self.has_filter(key, desired) && self.others_on(key).next().is_none() {
            self.filters.insert(key, desired.recorded_filter(key));
        }
    }

    fn decide_service(&mut self, known: Known<'_>, vip_is_wanted: bool) {
        let reachable = known.desired.and_then(|desired| without_the_unreachable(desired, &self.observed.kernel.links));
        let Known { key, desired, observed, confirmed, recorded } = Known { desired: reachable.as_ref().or(known.desired), ..known };
        let wanted = desired.filter(|_| vip_is_wanted && !self.observed.kernel.balancer.is_taken(key));
        match observed {
            None => match wanted {
                Some(desired) if recorded && self.is_misplaced(key, desired) => self.strike(key),
                Some(desired) => {
                    if recorded {
                        self.decide_filter(key, desired);
                    }
                    self.enter_service(key, desired, recorded);
                }
                None if recorded && self.is_left_to_others(key.vip) && !self.lets_others_in() => {}
                None if recorded && !self.is_left_in_former(key) => self.strike(key),
                None => {}
            },
            Some(observed) => {
                let balancer = &self.observed.kernel.balancer;
                let proven = confirmed || balancer.made.contains(&key);
                let equal = || wanted.is_some_and(|desired| change(desired, &desired.real_servers, observed).is_none());
                let claimed = proven || (recorded && wanted.is_some()) || equal();
                if balancer.foreign.contains(&key) || !claimed {
                    return self.disown_service(key, recorded);
                }
                self.balanced.occupied = true;
                if !recorded {
                    self.balanced.unrecorded.insert(key);
                }
                if self.await_others(key, observed) {
                    return;
                }
                if let Some(desired) = desired {
                    self.decide_filter(key, desired);
                }
                let guarded = desired.map_or_else(|| self.stays_guarded(key), |desired| self.is_guarded(key, desired));
                if confirmed && !guarded {
                    self.balanced.unguarded.insert(key.vip);
                }
                match wanted {
                    // It comes back, so that it does not matter what else is wanted.
                    Some(desired) if self.is_misplaced(key, desired) => return self.retire_service(key),
                    None if self.is_left_to_others(key.vip) => self.let_go(key, observed),
                    None if !self.holds_services(key.vip) && self.strays_leave() => {
                        if !self.hand_on(key, observed) {
                            self.retire_service(key);
                        }
                        return;
                    }
                    None if !self.holds_services(key.vip) => return,
                    None if desired.is_none() => self.balanced.leaving |= !super::serves(self.desired, key.vip),
                    Some(_) if guarded => self.reopen_service(key),
                    Some(_) | None => {}
                }
                if !confirmed && guarded && self.others_on(key).next().is_none() {
                    self.confirmed.services.insert(key);
                }
                if let Some(desired) = desired {
                    self.keep_service(key, desired, observed, confirmed);
                }
            }
        }
    }

    /// Whether the dataplane that balanced before has it still, and it takes a step of its own to remove it there. In a drain the chains of nft go with the
    /// record.
    fn is_left_in_former(&self, key: ServiceKey) -> bool {
        let by_nft = self.desired.balancing.as_ref().is_some_and(|balancing| !balancing.rules.translates());
        let goes_with_record = by_nft && self.desired.lifecycle == Lifecycle::Drain;
        !goes_with_record && self.observed.kernel.balancer.former.contains_key(&key)
    }

    /// Whether a virtual service that somebody else removed may be made again. Whoever goes on removing it is not fought: each time it waits twice as long.
    fn is_repairable(&mut self, key: ServiceKey) -> bool {
        let Some(loss) = self.observed.losses.get(&key).filter(|loss| loss.count > 1) else { return true };
        let doublings = loss.count.saturating_sub(2).min(16);
        self.due(loss.last, FIRST_REPAIR.saturating_mul(1 << doublings).min(LONGEST_REPAIR))
    }

    /// One step into the kernel.
    fn enter_service(&mut self, key: ServiceKey, desired: &DesiredVirtualService, recorded: bool) {
        let named = self.is_named(key);
        // One that is made beside others is let in, with its filter, together with what they leave to it.
        let beside = self.is_made_beside(key);
        let admitted = if beside { !self.translates() } else { self.is_guarded(key, desired) && self.others_on(key).next().is_none() };
        let makes = recorded && named && admitted && !self.balanced.unruled.contains(&key.vip);
        let step = if makes { StepKey::VirtualService(key) } else { StepKey::Record };
        let mark = if recorded || key.ports.count() == 1 { None } else { self.free_mark(desired.filter.preserves_client) };
        if !recorded && key.ports.count() > 1 && mark.is_none() {
            return;
        }
        let repairable = !recorded || self.is_repairable(key);
        let waits = !recorded && !beside && self.others_on(key).next().is_some();
        // While not all is known that is wanted, the old range does not go: others do not wait for this one.
        if repairable && !self.observed.failures.contains_key(&step) && (!waits || self.strays_leave()) {
            self.balanced.arriving.insert(key.vip);
        }
        if waits {
            return;
        }
        if !named && !self.translates() {
            self.pending.in_ipvs.insert(key);
        }
        if !recorded {
            self.pending.services.insert(key);
            self.pending.marks.extend(mark.map(|mark| (key, mark)));
        } else if makes && repairable {
            let change = creation(desired);
            if self.may_try(key, &change) {
                self.balanced.steps.push(Step::AddVirtualService(key, change));
            }
        }
    }

    fn keep_service(&mut self, key: ServiceKey, desired: &DesiredVirtualService, observed: &ObservedVirtualService, confirmed: bool) {
        // One whose last real server is to go, or that the rules will hold up until its filter is in force, is withdrawn before that.
        let stays_open = desired.is_backed() && (confirmed || self.is_guarded(key, desired));
        if stays_open && takes_connections(key, observed, confirmed, &self.observed.kernel.record) {
            self.balanced.backed.insert(key.vip);
        }
        self.set_real_servers(key, desired, observed);
    }

    /// The change that leads to these real servers, if one is needed.
    pub(super) fn set_real_servers(&mut self, key: ServiceKey, desired: &DesiredVirtualService, observed: &ObservedVirtualService) {
        if is_as_desired(desired, observed) {
            return;
        }
        let bound = self.desired.real_server_drain;
        let target = target(key, desired, observed, &self.observed.quiesced, bound, self.now);
        self.look_at(target.wake_at);
        if let Some(change) = change(desired, &target.servers, observed)
            && self.may_try(key, &change)
        {
            self.balanced.steps.push(Step::ChangeVirtualService(key, change));
        }
    }

    /// Whether this may be done to a virtual service now: what failed waits, not what has come after it.
    fn may_try(&mut self, key: ServiceKey, change: &VirtualServiceChange) -> bool {
        self.observed.refused.get(&key).is_some_and(|refused| refused != change) || self.ready(StepKey::VirtualService(key))
    }

    pub(super) fn remove_service(&mut self, key: ServiceKey) {
        if self.observed.refused.contains_key(&key) || self.ready(StepKey::VirtualService(key)) {
            self.balanced.steps.push(Step::RemoveVirtualService(key));
        }
    }

    /// Where in IPVS a crash came between making it and confirming it, nothing proves it ours: it stays, and so does its entry, so that it is ours again once it is
    /// wanted. The entry goes where somebody was there before it, where another range of ports that is wanted cannot stand beside it, and with the whole record.
    fn disown_service(&mut self, key: ServiceKey, recorded: bool) {
        let balancer = &self.observed.kernel.balancer;
        let theirs = balancer.foreign.contains(&key) || balancer.is_taken(key);
        if recorded && (theirs || self.is_in_the_way(key) || self.desired.lifecycle == Lifecycle::Drain) {
            self.strike(key);
        }
    }

    /// Whether a range of ports is recorded without a mark, or with one that is not, or no longer, for such a range: it has to be made anew.
    fn is_misplaced(&self, key: ServiceKey, desired: &DesiredVirtualService) -> bool {
        let mark = self.observed.kernel.record.marks.get(&key);
        let rules = self.desired.balancing.as_ref().map(|balancing| &balancing.rules);
        let fits = |mark| rules.is_none_or(|rules| rules.marks_of_ranges(desired.filter.preserves_client).contains(mark));
        key.ports.count() > 1 && !mark.is_some_and(fits)
    }

    /// Takes it out of the record.
    fn strike(&mut self, key: ServiceKey) {
        // As long as its entry is there, what it gave up stays closed.
        self.balanced.given_up.extend(self.observed.kernel.record.given_up(key));
        self.unrecorded.services.insert(key);
        self.unrecorded.marks.extend(self.observed.kernel.record.marks.get(&key).map(|mark| (key, *mark)));
    }

    /// The lowest mark that neither a range of ports nor somebody else has.
    pub(super) fn free_mark(&self, preserves_client: bool) -> Option<u32> {
        let KernelState { record, balancer, .. } = &self.observed.kernel;
        let retired = record.retired.iter().map(|retired| &retired.mark);
        let taken: BTreeSet<u32> =
            record.marks.values().chain(self.pending.marks.values()).chain(&balancer.foreign_marks).chain(retired).copied().collect();
        let mut marks = self.desired.balancing.as_ref()?.rules.marks_of_ranges(preserves_client);
        marks.find(|mark| !taken.contains(mark))
    }

    /// Whether traffic to a VIP that is not wanted any more may still come: its virtual services stay until it is gone. Those of a VIP that is wanted,
    /// but not this one of them, go at once.
    pub(super) fn holds_services(&self, vip: IpAddr) -> bool {
        let announced = self.announcement(Prefix::host(vip)).value != Announcement::Withdrawn;
        let is_here = || self.observed.kernel.addresses.contains_key(&vip) && self.is_ours(vip);
        !self.is_wanted(vip) && (announced || is_here() || self.routers_have(vip))
    }

    /// Whether the VIP is to be served and can be.
    pub(super) fn is_wanted(&self, vip: IpAddr) -> bool {
        self.desired.lifecycle == Lifecycle::Run
            && super::serves(self.desired, vip)
            && super::blocked::reason(vip, self.desired, self.observed, &self.node).is_none()
    }

    fn is_ours(&self, vip: IpAddr) -> bool {
        super::ownership(vip, self.desired, self.observed) == Some(super::Ownership::Ours)
    }
}

/// Why packets cannot be sent to a real server from this node.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Unreachable {
    /// They have to get there unchanged over a link, and it is behind a next hop.
    Distant,
    /// It is no host: the address means all hosts of a link. IPVS refuses it, and nft would lose its share of connections there.
    Broadcast,
}

/// The same service without the real servers to which nothing can be sent, where it has some.
pub(super) fn without_the_unreachable(desired: &DesiredVirtualService, links: &Links) -> Option<DesiredVirtualService> {
    all_unreachable(desired, links).next()?;
    let real_servers = desired.real_servers.iter().filter(|(server, _)| unreachable(desired, server.ip(), links).is_none());
    Some(DesiredVirtualService { real_servers: real_servers.map(|(server, weight)| (*server, *weight)).collect(), ..desired.clone() })
}

fn all_unreachable(desired: &DesiredVirtualService, links: &Links) -> impl Iterator<Item = (IpAddr, Unreachable)> {
    desired.real_servers.keys().map(SocketAddr::ip).filter_map(move |server| Some((server, unreachable(desired, server, links)?)))
}

fn unreachable(desired: &DesiredVirtualService, server: IpAddr, links: &Links) -> Option<Unreachable> {
    if links.broadcast.contains(&server) {
        return Some(Unreachable::Broadcast);
    }
    (desired.forwarding == ForwardingMethod::DirectRouting && !links.reach(server)).then_some(Unreachable::Distant)
}

/// What is known of a virtual service.
struct Known<'a> {
    key: ServiceKey,
    desired: Option<&'a DesiredVirtualService>,
    observed: Option<&'a ObservedVirtualService>,
    confirmed: bool,
    /// Confirmed or pending.
    recorded: bool,
}

/// A sorted map that is asked for keys in their order: at many thousand services a search for each is what planning would spend its time with.
struct Following<'a, I: Iterator<Item = (&'a ServiceKey, V)>, V>(Peekable<I>);

impl<'a, I: Iterator<Item = (&'a ServiceKey, V)>, V> Following<'a, I, V> {
    fn new(map: impl IntoIterator<IntoIter = I>) -> Self {
        Self(map.into_iter().peekable())
    }

    /// What it has of this key, which is not lower than the one before.
    fn at(&mut self, key: ServiceKey) -> Option<V> {
        while self.0.next_if(|(next, _)| **next < key).is_some() {}
        self.0.next_if(|(next, _)| **next == key).map(|(_, value)| value)
    }
}

/// Whether somebody stands behind a virtual service in the kernel, and packets get there: what the record does not list is dropped on its way in, where
/// the rules are there, and so is what comes to ports that are closed; where they are not, or leave that to somebody else, no packet has the mark of its range
/// of ports.
pub(super) fn takes_connections(key: ServiceKey, service: &ObservedVirtualService, confirmed: bool, record: &Record) -> bool {
    let unmarked = record.rules.is_empty() || record.is_handing_over();
    let listed = if unmarked { key.ports.count() == 1 } else { confirmed && !record.closed.contains(&key) };
    service.is_backed() && listed
}

/// Why a virtual service that is wanted does not serve.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Lack {
    /// It is not in the kernel.
    Absent,
    /// Somebody else has removed it so often that it is not made again at once.
    Removed(u32),
    /// Somebody else has one for the same port.
    TakenByOthers,
    /// Nothing can be sent to its real servers, of which this is one.
    Unreachable(IpAddr, Unreachable),
    /// Nobody stands behind it there, or it is not recorded as ours yet.
    Nobody,
}

/// The virtual services of a VIP that is to be served which take no connections in the kernel, and why each does not.
#[must_use]
pub fn unserved(vip: IpAddr, desired: &Desired, observed: &Observed) -> Vec<(ServiceKey, Lack)> {
    let serves = desired.vips.get(&vip).is_some_and(|vip| matches!(vip.intent, VipIntent::Serve { .. }));
    let services = desired.balancing.iter().filter(|_| serves).flat_map(|balancing| balancing.of(vip));
    services.filter_map(|key| Some((key, lack(key, desired, observed)?))).collect()
}

/// The real servers of a VIP that is to be served to which nothing can be sent, while others of the same virtual service serve.
#[must_use]
pub fn left_out(vip: IpAddr, desired: &Desired, observed: &Observed) -> Vec<(ServiceKey, IpAddr, Unreachable)> {
    let serves = desired.vips.get(&vip).is_some_and(|vip| matches!(vip.intent, VipIntent::Serve { .. }));
    let balancing = desired.balancing.iter().filter(|_| serves);
    let services = balancing.flat_map(|balancing| balancing.of(vip).filter_map(|key| Some((key, balancing.services.get(&key)?))));
    let serving = services.filter(|(key, _)| lack(*key, desired, observed).is_none());
    serving
        .flat_map(|(key, service)| all_unreachable(service, &observed.kernel.links).map(move |(server, why)| (key, server, why)))
        .collect()
}

/// The endpoints of each object that are no hosts on this node.
#[must_use]
pub fn endpoints_without_host(desired: &Desired, observed: &Observed) -> BTreeSet<(ObjectRef, IpAddr)> {
    let broadcast = &observed.kernel.links.broadcast;
    let services = desired.balancing.iter().flat_map(|balancing| balancing.services.values());
    let of_service = |service: &DesiredVirtualService| {
        let servers: Vec<IpAddr> = service.real_servers.keys().map(SocketAddr::ip).filter(|server| broadcast.contains(server)).collect();
        let owner = service.owner.clone();
        servers.into_iter().map(move |server| (owner.clone(), server))
    };
    services.flat_map(of_service).collect()
}

/// Virtual services that a crash has left, or of which the record is lost: they may be ours, nobody asks for them, and they are kept.
#[must_use]
pub fn unclaimed_services(desired: &Desired, observed: &Observed) -> Vec<ServiceKey> {
    let KernelState { record, balancer, .. } = &observed.kernel;
    let is_wanted = |key: &ServiceKey| desired.balancing.as_ref().is_some_and(|balancing| balancing.services.contains_key(key));
    let is_proven = |key: &ServiceKey| record.confirmed_services.contains(key) || balancer.made.contains(key);
    let is_of_others = |key: &ServiceKey| balancer.foreign.contains(key) || balancer.is_taken(*key);
    let may_be_ours = |key: &ServiceKey| record.pending_services.contains(key) || desired.vips.contains_key(&key.vip);
    let keys = balancer.services.keys().filter(|key| may_be_ours(key));
    keys.filter(|key| !is_wanted(key) && !is_proven(key) && !is_of_others(key)).copied().collect()
}

fn lack(key: ServiceKey, desired: &Desired, observed: &Observed) -> Option<Lack> {
    let KernelState { record, balancer, .. } = &observed.kernel;
    match balancer.services.get(&key) {
        _ if balancer.is_taken(key) => Some(Lack::TakenByOthers),
        None => Some(observed.losses.get(&key).filter(|loss| loss.count > 1).map_or(Lack::Absent, |loss| Lack::Removed(loss.count))),
        Some(_) if balancer.foreign.contains(&key) => Some(Lack::TakenByOthers),
        Some(_) if !record.has_service(key) && !balancer.made.contains(&key) => Some(Lack::TakenByOthers),
        Some(service) => {
            let wanted = desired.balancing.as_ref().and_then(|balancing| balancing.services.get(&key));
            let unreachable = wanted.and_then(|wanted| all_unreachable(wanted, &observed.kernel.links).next());
            let serves = takes_connections(key, service, record.confirmed_services.contains(&key), record);
            (!serves).then(|| unreachable.map_or(Lack::Nobody, |(server, why)| Lack::Unreachable(server, why)))
        }
    }
}
