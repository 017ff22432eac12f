// SPDX-License-Identifier: Apache-2.0
//! The decision what to do next, as data: pure, total, deterministic, and printable.
//!
//! Inputs: [`Desired`], [`Observed`] and the time. Output: a [`Plan`]: steps that are independent of one another (each is allowed by what is observed
//! *now*, so they may be carried out in any order and each may fail), and when to look again. All ordering policy of the product is here: a later
//! step of a sequence appears in a later plan, once the earlier one's effect has been read back.
//!
//! - In: record as pending, place, then announce and record as ours.
//! - Out: leave the advertised set, wait for the peers and the fabric, remove, take out of the record.
//! - Start: the sessions open once everything that can be placed is placed and advertised.
//! - Drain: all is announced once more as the last resort for `graceful_shutdown`, where that is wanted; then all of it goes out, then the sessions
//!   close, then the record goes.
//! - Aggregates: announced while a VIP inside is; the last VIP waits for its aggregate as for its own prefix. While others keep the aggregate up, a VIP
//!   does not wait for it: packets go on coming, which is what aggregation means.
//! - Keep: the virtual routers resign, and leave what nobody follows them in; the sessions close, and nothing else happens.
//! - Virtual routers have VIPs instead of `vips.interface`: `virtual_routers.rs`.
//!
//! Invariants: a VIP is in the advertised set only while its address is read back on an interface that is up and its intent is to serve; an address leaves only after
//! its VIP is withdrawn for `fabric_delay`, or a peer has not acknowledged that for `timeout`; only an address proven ours is ever removed; repeated
//! planning converges to no steps.

mod balancing;
mod blocked;
mod connections;
mod expansion;
mod handover;
mod ownership;
mod predict;
mod ranges;
mod services;
mod settings;
mod speaker;
mod step;
mod succession;
mod sync;
mod text;
mod virtual_routers;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bgp::Prefix;
use bgp::rib::Route;

use crate::desired::{
    Desired, DesiredVip, DesiredVirtualService, Filter, Lifecycle, RouteSet, Router, Rules, ServiceKey, VipIntent, routing,
};
use crate::observed::{Announcement, InterfaceState, KernelState, Observed, Since};
use crate::sysctl::Sysctl;

pub use balancing::{RealServerChange, VirtualServiceChange};
use blocked::OfNode;
pub use blocked::{BlockReason, blocked};
pub use ownership::{Ownership, ownership};
pub use predict::predict;
use services::Balanced;
pub use services::{Lack, Unreachable, endpoints_without_host, left_out, unclaimed_services, unserved};
use speaker::SpeakerSteps;
pub use step::{Entries, RangeMove, Step, StepKey};
pub use sync::{daemons_of_others, owns_daemon};
use virtual_routers::RouterSteps;

/// What to do now and when to look again.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// In order of urgency: what leaves the fabric first, what joins it last.
    pub steps: Vec<Step>,
    /// Those of the addresses to remove whose withdrawal a peer has not acknowledged within `timeout`.
    pub forced: BTreeSet<IpAddr>,
    /// When time alone makes a further step possible.
    pub wake_at: Option<Instant>,
}

/// Decides the next steps.
#[must_use]
pub fn plan(desired: &Desired, observed: &Observed, now: Instant) -> Plan {
    let mut planner = Planner::new(desired, observed, now);
    if desired.lifecycle == Lifecycle::Keep {
        return planner.keep();
    }
    planner.decide_services();
    for address in planner.subjects() {
        planner.decide(address);
    }
    planner.decide_daemons();
    planner.aggregate();
    planner.shut_down();
    planner.leave_all();
    planner.finish()
}

/// Those steps of a plan that only give some virtual services other real servers, for an intent in which these services are as `churn` says, and all else
/// as in `desired`. Somebody stands behind their VIPs before and after, so that nothing has to be withdrawn first; the steps of a plan do not depend on
/// each other, so that these may be carried out before the others are known.
#[must_use]
pub fn plan_churn(churn: &BTreeMap<ServiceKey, DesiredVirtualService>, desired: &Desired, observed: &Observed, now: Instant) -> Vec<Step> {
    match desired.lifecycle {
        Lifecycle::Run => Planner::new(desired, observed, now).decide_churn(churn),
        Lifecycle::Standby | Lifecycle::Keep | Lifecycle::Drain => Vec::new(),
    }
}

/// Whether the node has left: no session is open and, after a drain, nothing of ours is in the kernel.
#[must_use]
pub fn has_left(desired: &Desired, observed: &Observed) -> bool {
    let speaker = &observed.speaker;
    let silent = speaker.configured.is_none() && speaker.open_sessions == 0;
    match desired.lifecycle {
        Lifecycle::Run | Lifecycle::Standby => false,
        Lifecycle::Keep => silent,
        Lifecycle::Drain => silent && is_clean(desired, observed),
    }
}

/// Whether nothing of ours is in the kernel, or announced.
fn is_clean(desired: &Desired, observed: &Observed) -> bool {
    let speaker = &observed.speaker;
    !observed.kernel.record.exists
        && speaker.advertised.as_ref().is_none_or(|set| set.is_empty())
        && !observed.kernel.addresses.keys().any(|address| ownership(*address, desired, observed) == Some(Ownership::Ours))
}

/// The wait before the first retry of a step; each further failure doubles it.
const FIRST_RETRY: Duration = Duration::from_millis(100);

/// The longest wait before a retry.
const LONGEST_RETRY: Duration = Duration::from_secs(30);

/// What fails for this long is taken for a trouble of this node, which another one need not have.
const PATIENCE: Duration = Duration::from_secs(2);

/// One decision in the making.
struct Planner<'a> {
    desired: &'a Desired,
    observed: &'a Observed,
    now: Instant,
    node: OfNode,
    router: Router<'a>,
    /// Aggregates that are advertised, or have been.
    aggregates: Vec<Prefix>,
    /// What the advertised set shall be.
    announced: RouteSet,
    /// Addresses of ours that are to leave the interface.
    leaving: Vec<IpAddr>,
    removals: Vec<IpAddr>,
    forced: BTreeSet<IpAddr>,
    pending: Entries,
    confirmed: Entries,
    unrecorded: Entries,
    filters: BTreeMap<ServiceKey, Filter>,
    /// Virtual services whose ports are to be closed, and those whose are to be opened again.
    closing: BTreeSet<ServiceKey>,
    opening: BTreeSet<ServiceKey>,
    /// The steps by which ranges of ports become others.
    moving: Vec<Step>,
    balanced: Balanced,
    daemons: Vec<Step>,
    additions: Vec<IpAddr>,
    /// The addresses that the virtual routers were told.
    routed: BTreeSet<IpAddr>,
    /// VIPs that are to be among them.
    held: BTreeSet<IpAddr>,
    /// VIPs that somebody stands behind, and that cannot be had here for what else is on this node.
    kept_off: BTreeSet<IpAddr>,
    /// What is to be done, and has failed for a while.
    failing: BTreeSet<StepKey>,
    /// A VIP is still on its way onto the interface, or to a virtual router, and nothing has failed about it.
    arriving: bool,
    /// An address of ours is on the interface.
    occupied: bool,
    wake_at: Option<Instant>,
}

impl<'a> Planner<'a> {
    fn new(desired: &'a Desired, observed: &'a Observed, now: Instant) -> Self {
        Self {
            desired,
            observed,
            now,
            node: OfNode::of(desired, observed),
            router: Router::new(&desired.routing),
            aggregates: observed.announcements.keys().filter(|prefix| !is_host(**prefix)).copied().collect(),
            announced: RouteSet::default(),
            leaving: Vec::new(),
            removals: Vec::new(),
            forced: BTreeSet::new(),
            pending: Entries::default(),
            confirmed: Entries::default(),
            unrecorded: Entries::default(),
            filters: BTreeMap::new(),
            closing: BTreeSet::new(),
            opening: BTreeSet::new(),
            moving: Vec::new(),
            balanced: Balanced::default(),
            daemons: Vec::new(),
            additions: Vec::new(),
            routed: virtual_routers::routed(observed),
            held: BTreeSet::new(),
            kept_off: BTreeSet::new(),
            failing: BTreeSet::new(),
            arriving: false,
            occupied: false,
            wake_at: None,
        }
    }

    /// Every address that intent, kernel or record knows of.
    fn subjects(&self) -> BTreeSet<IpAddr> {
        let KernelState { addresses, record, .. } = &self.observed.kernel;
        self.desired.vips.keys().chain(addresses.keys()).chain(&record.pending).chain(&record.confirmed).copied().collect()
    }

    /// Decides about one address; what it is for the others does not matter.
    fn decide(&mut self, address: IpAddr) {
        let record = &self.observed.kernel.record;
        let confirmed = record.confirmed.contains(&address);
        let recorded = confirmed || record.pending.contains(&address);
        let intended = serves(self.desired, address);
        let serves = self.desired.lifecycle == Lifecycle::Run && intended;
        let block = blocked::reason(address, self.desired, self.observed, &self.node);
        let wanted = serves && block.is_none();
        let announceable = block.is_none() || (block == Some(BlockReason::SysctlMissing) && self.balanced.elsewhere.contains(&address));
        let ownership = ownership(address, self.desired, self.observed);
        let served = intended && announceable && self.is_backed(address);
        let is_for_peers = served && ownership.is_some() && self.is_for_peers(address, ownership);
        if is_for_peers || is_found(address, self.desired, self.observed) {
            self.announce(address);
        }
        if served && serves && recorded {
            self.route(address);
        }
        if serves && block.is_some_and(BlockReason::is_of_the_node) {
            self.keep_off(address);
        }
        match ownership {
            None if wanted && self.is_by_routers() => self.prepare(address, recorded, confirmed),
            None if wanted => self.enter(address, recorded),
            Some(Ownership::Ours) => {
                self.occupied = true;
                let is_placed = !self.is_by_routers() && block.is_none_or(BlockReason::keeps_address);
                let stays = serves && (is_placed || is_for_peers);
                if !stays && self.strays_leave() {
                    self.leaving.push(address);
                } else if !confirmed {
                    self.confirmed.addresses.insert(address);
                }
            }
            // Packets come to it on the link of a virtual router.
            _ if recorded && self.routers_have(address) => {}
            // It may be ours, so its entry stays until the intent is known in full.
            Some(Ownership::Unclaimed) if recorded && !self.strays_leave() => {}
            // Another instance placed it: entered in our record, too, it stays when that one leaves.
            Some(Ownership::Used) if wanted && !recorded && self.is_backed(address) && self.is_shared(address) => {
                self.pending.addresses.insert(address);
            }
            // The interface was renamed under it: it is still ours once the interface has its name back.
            None if self.desired.lifecycle.goes_on() && self.may_be_renamed(address) => {}
            None | Some(Ownership::Used | Ownership::Unclaimed | Ownership::Foreign) if recorded => {
                self.unrecorded.addresses.insert(address);
            }
            None | Some(Ownership::Used | Ownership::Unclaimed | Ownership::Foreign) => {}
        }
    }

    /// Whether the address may stand on `vips.interface` under another name.
    fn may_be_renamed(&self, address: IpAddr) -> bool {
        self.observed.kernel.interface == InterfaceState::Missing && self.observed.kernel.elsewhere.contains(&address)
    }

    /// Whether what is ours and not wanted leaves the interface: not while the intent is known in part only.
    fn strays_leave(&self) -> bool {
        self.desired.complete || self.desired.lifecycle != Lifecycle::Run
    }

    /// Nothing changes but that the virtual routers resign and the sessions close.
    fn keep(mut self) -> Plan {
        let resign = self.stop_routers().map(|_| Step::SuspendVirtualRouters);
        let open = self.observed.speaker.configured.is_some();
        let release = (open && self.ready(StepKey::Speaker)).then_some(Step::ReleaseSpeaker);
        Plan { steps: resign.into_iter().chain(release).collect(), forced: BTreeSet::new(), wake_at: self.wake_at }
    }

    /// One step onto the interface: never without an entry in the record that has been read back.
    fn enter(&mut self, address: IpAddr, recorded: bool) {
        let key = if recorded { StepKey::Address(address) } else { StepKey::Record };
        let backed = self.is_backed(address) && !self.awaits_services(address);
        self.arriving |= self.services_arrive(address) || (backed && !self.observed.failures.contains_key(&key));
        if !recorded {
            self.pending.addresses.insert(address);
        } else if backed && self.ready(key) {
            self.additions.push(address);
        }
    }

    /// Puts a VIP into the set. Where the policy that it asks for is not there, it stays as it is.
    fn announce(&mut self, vip: IpAddr) {
        let policy = self.desired.vips.get(&vip).and_then(|desired| desired.policy.as_deref());
        let advertised = self.observed.speaker.advertised.as_deref();
        let in_force = || Some(Arc::clone(advertised?.announces(vip)?.1));
        let route = self.router.route(Prefix::host(vip), policy).or_else(in_force);
        if let Some(route) = route {
            self.announced.routes.insert(Prefix::host(vip), route);
        }
    }

    /// Adds the aggregates of what is in the set, and takes out those for which an aggregate is to stand with every peer that may know of them. Where one takes over from the other, both are
    /// announced first, to all of them, so that the peers are never without a route.
    fn aggregate(&mut self) {
        let Observed { speaker, .. } = self.observed;
        let advertised = speaker.advertised.as_deref();
        let in_force = |prefix: &Prefix| advertised?.routes.get(prefix);
        let vips: Vec<(IpAddr, Arc<Route>)> =
            self.announced.routes.iter().map(|(prefix, route)| (prefix.address(), Arc::clone(route))).collect();
        for (prefix, aggregate) in &self.desired.routing.aggregates {
            let inside: Vec<(IpAddr, Arc<Route>)> = vips.iter().filter(|(vip, _)| prefix.contains(*vip)).cloned().collect();
            let Some(route) = self.router.route(*prefix, aggregate.policy.as_deref()) else { continue };
            if inside.is_empty() {
                continue;
            }
            let route = routing::standing_for(route, inside.iter().map(|(_, vip)| &**vip));
            if aggregate.suppress {
                let stands =
                    |own: &Route| !speaker.behind && in_force(prefix).is_some_and(|aggregate| routing::reaches_all_of(aggregate, own));
                let taken_over = |vip: IpAddr, own: &Route| stands(own) || in_force(&Prefix::host(vip)).is_none();
                let covered = inside.into_iter().filter(|(vip, own)| taken_over(*vip, own) && routing::reaches_all_of(&route, own));
                self.announced.covered.extend(covered.map(|(vip, _)| vip));
            }
            self.announced.routes.insert(*prefix, route);
        }
        let RouteSet { routes, covered } = &mut self.announced;
        routes.retain(|prefix, _| !is_host(*prefix) || !covered.contains(&prefix.address()));
        for (prefix, route) in advertised.iter().flat_map(|set| &set.routes).filter(|(prefix, _)| !is_host(**prefix)) {
            let mut covered = advertised.iter().flat_map(|set| &set.covered).filter(|vip| prefix.contains(**vip));
            let takes_over = covered.any(|vip| self.announced.contains(&Prefix::host(*vip)));
            let is_to_be_told = || speaker.behind && self.announced.prefixes().any(|host| is_host(host) && prefix.contains(host.address()));
            if takes_over || !self.announced.contains(prefix) && is_to_be_told() {
                self.announced.routes.insert(*prefix, Arc::clone(route));
            }
        }
    }

    /// In a drain, and on the way to standby, what is advertised stays so for a while as the last resort (RFC 8326 §4), as long as there is somebody to tell; nothing is added.
    fn shut_down(&mut self) {
        if self.desired.lifecycle == Lifecycle::Run {
            return;
        }
        let RouteSet { routes, covered } = std::mem::take(&mut self.announced);
        let hosts = routes.keys().filter(|prefix| is_host(**prefix)).map(Prefix::address);
        let vips: BTreeSet<IpAddr> = hosts.chain(covered).collect();
        let speaker = &self.observed.speaker;
        let Some(advertised) = speaker.advertised.as_deref().filter(|_| speaker.open_sessions > 0) else { return };
        let mut made: BTreeMap<Arc<Route>, Arc<Route>> = BTreeMap::new();
        for (prefix, route) in routes.into_iter().filter(|(prefix, _)| advertised.contains(prefix)) {
            if self.has_time(prefix) {
                let last_resort = made.entry(route).or_insert_with_key(|route| Arc::new(route.shutting_down()));
                self.announced.routes.insert(prefix, Arc::clone(last_resort));
            }
        }
        let aggregates: Vec<Prefix> = self.announced.prefixes().filter(|prefix| !is_host(*prefix)).collect();
        let around = |vip: &IpAddr| aggregates.iter().any(|prefix| prefix.contains(*vip));
        let alone = |vip: &IpAddr| self.announced.contains(&Prefix::host(*vip));
        self.announced.covered = vips.into_iter().filter(|vip| advertised.serves(*vip) && around(vip) && !alone(vip)).collect();
    }

    /// Whether a prefix is not withdrawn yet in a drain.
    fn has_time(&mut self, prefix: Prefix) -> bool {
        let time = self.desired.drain.graceful_shutdown;
        match self.announcement(prefix) {
            Since { value: Announcement::Advertised, .. } => !time.is_zero(),
            Since { value: Announcement::ShuttingDown, since } => !self.due(since, time),
            Since { value: Announcement::Withdrawing | Announcement::Withdrawn, .. } => false,
        }
    }

    fn leave_all(&mut self) {
        for address in std::mem::take(&mut self.leaving) {
            self.leave(address);
        }
    }

    /// One step off the interface: only once the fabric has had its time, or a peer has let the bound pass, for each prefix that brings packets here. What
    /// another instance has too is left to it.
    fn leave(&mut self, address: IpAddr) {
        let goes = |prefix: &Prefix| self.desired.lifecycle != Lifecycle::Run || !self.announced.contains(prefix);
        let around = self.aggregates.iter().filter(|prefix| prefix.contains(address) && goes(prefix));
        let prefixes: Vec<Prefix> = around.copied().chain([Prefix::host(address)]).collect();
        let mut forced = false;
        for prefix in prefixes {
            let Since { value, since } = self.announcement(prefix);
            let delay = match value {
                Announcement::Advertised | Announcement::ShuttingDown => return,
                Announcement::Withdrawing => self.desired.drain.timeout,
                Announcement::Withdrawn => self.desired.drain.fabric_delay,
            };
            if !self.due(since, delay) {
                return;
            }
            forced |= value == Announcement::Withdrawing;
        }
        if !self.ready(StepKey::Address(address)) {
            return;
        }
        if self.is_shared(address) {
            self.unrecorded.addresses.insert(address);
            return;
        }
        self.removals.push(address);
        if forced {
            self.forced.insert(address);
        }
    }

    /// Whether another instance has the address too.
    fn is_shared(&self, address: IpAddr) -> bool {
        self.observed.kernel.claimed_by_others.contains(&address)
    }

    /// Where a prefix stands towards the fabric; in doubt what keeps addresses longer.
    fn announcement(&self, prefix: Prefix) -> Since<Announcement> {
        let speaker = &self.observed.speaker;
        let known = self
            .observed
            .announcements
            .get(&prefix)
            .copied()
            .unwrap_or_else(|| Since { value: Announcement::Withdrawn, since: self.observed.started.unwrap_or(self.now) });
        let value = if let Some(announced) = speaker.announced(prefix) {
            announced
        } else if speaker.withdrawing.contains(&prefix) && known.value == Announcement::Withdrawn {
            Announcement::Withdrawing
        } else {
            known.value
        };
        Since { value, since: if value == known.value { known.since } else { self.now } }
    }

    fn finish(mut self) -> Plan {
        let rules = self.rules();
        let sysctls = self.sysctls();
        let settings = self.settings();
        let record = self.record();
        let forget = self.forget_connections();
        let RouterSteps { first: resign, last: route } = self.router_steps();
        let SpeakerSteps { first, last, speaker } = self.speaker_steps();
        let drop_record = self.drop_record();
        let mut steps = Vec::new();
        steps.extend(resign);
        steps.extend(first);
        steps.extend(self.removals.into_iter().map(Step::RemoveAddress));
        steps.extend(sysctls.into_iter().map(Step::SetSysctl));
        steps.extend(settings);
        steps.extend(record);
        // What the record does not list yet would be dropped.
        steps.extend(rules);
        steps.extend(self.daemons);
        steps.extend(self.balanced.steps);
        steps.extend(forget);
        steps.extend(self.additions.into_iter().map(Step::AddAddress));
        steps.extend(route);
        steps.extend(last);
        steps.extend(speaker);
        steps.extend(drop_record);
        Plan { steps, forced: self.forced, wake_at: self.wake_at }
    }

    /// The rules go with the whole table where the node leaves. Where somebody else balances from now on, they first leave new connections to it, and go
    /// with the last virtual service.
    fn rules(&mut self) -> Option<Step> {
        let record = &self.observed.kernel.record;
        let wanted = match (&self.desired.balancing, self.desired.lifecycle.goes_on()) {
            (Some(_), true) if self.balanced.taking_over => Some(Rules::handing_over()),
            (Some(balancing), true) => Some(balancing.rules.clone()),
            (None, true) if record.confirmed_services.is_empty() && !self.balanced.occupied => None,
            (None, true) if self.may_hand_over() => Some(Rules::handing_over()),
            _ => return None,
        };
        let in_force = match &wanted {
            Some(rules) if rules.hands_over => self.balanced.handing_over,
            Some(_) => !self.balanced.unruly,
            None => record.rules.is_empty(),
        };
        // With other rules, what is in tables of nft would be gone before IPVS has it.
        let takes_away = self.balanced.succeeding && wanted.as_ref().is_some_and(|rules| !rules.translates());
        // Without rules, what is not recorded as ours yet takes connections all the same, and a range of ports takes none, whoever is to come.
        let holds_up = record.rules.is_empty() && !(self.confirmed.services.is_empty() && self.filters.is_empty());
        let too_early =
            takes_away || holds_up || self.balanced.unnamed || wanted.as_ref().is_some_and(|rules| self.claims_too_early(rules));
        (!in_force && !too_early && self.ready(StepKey::Record)).then_some(Step::WriteRules(wanted))
    }

    /// The kernel settings that are not what they must be, where we may set them.
    fn sysctls(&mut self) -> Vec<Sysctl> {
        let Some(balancing) = self.desired.balancing.as_ref().filter(|_| self.desired.lifecycle.goes_on()) else {
            return Vec::new();
        };
        let needed = |setting: &Sysctl| {
            (!Sysctl::FOR_MOVED_FLOWS.contains(setting) || balancing.keeps_moved_flows())
                && (!Sysctl::FOR_CONNECTION_SYNC.contains(setting) || !balancing.sync.is_empty())
        };
        let wrong = |setting: &Sysctl, value: &str| balancing.set_sysctls && value != setting.wanted() && needed(setting);
        let found = self.observed.kernel.sysctls.iter().filter(|(setting, value)| wrong(setting, value));
        let wrong: Vec<Sysctl> = found.map(|(setting, _)| *setting).collect();
        wrong.into_iter().filter(|setting| self.ready(StepKey::Sysctl(*setting))).collect()
    }

    fn record(&mut self) -> Vec<Step> {
        let sets = [
            (std::mem::take(&mut self.pending), Step::RecordPending as fn(_) -> _),
            (std::mem::take(&mut self.confirmed), Step::RecordConfirmed),
            (std::mem::take(&mut self.unrecorded), Step::RecordRemoved),
        ];
        let mut steps: Vec<Step> = sets.into_iter().filter(|(set, _)| !set.is_empty()).map(|(set, step)| step(set)).collect();
        for (services, step) in [(&mut self.closing, Step::ClosePorts as fn(_) -> _), (&mut self.opening, Step::OpenPorts)] {
            steps.extend(Some(std::mem::take(services)).filter(|services| !services.is_empty()).map(step));
        }
        let filters = std::mem::take(&mut self.filters);
        if !filters.is_empty() {
            steps.push(Step::WriteFilters(filters));
        }
        steps.append(&mut self.moving);
        if steps.is_empty() || self.ready(StepKey::Record) { steps } else { Vec::new() }
    }

    fn drop_record(&mut self) -> Option<Step> {
        let Observed { kernel: KernelState { record, .. }, speaker, .. } = self.observed;
        let over = self.desired.lifecycle == Lifecycle::Drain
            && record.exists
            && record.is_empty()
            && !self.occupied
            && !self.balanced.occupied
            && speaker.configured.is_none()
            && speaker.open_sessions == 0;
        (over && self.ready(StepKey::Record)).then_some(Step::DropRecord)
    }

    /// Whether a step may be tried now, as far as its failures go.
    fn ready(&mut self, key: StepKey) -> bool {
        let Some(failure) = self.observed.failures.get(&key) else { return true };
        if self.is_by_routers() && self.due(failure.since, PATIENCE) {
            self.failing.insert(key);
        }
        let doublings = failure.count.saturating_sub(1).min(16);
        self.due(failure.last, FIRST_RETRY.saturating_mul(1 << doublings).min(LONGEST_RETRY))
    }

    /// Whether this much time has passed; if not, the plan is looked at again when it has.
    fn due(&mut self, since: Instant, delay: Duration) -> bool {
        let Some(at) = since.checked_add(delay) else { return false };
        self.look_at(Some(at).filter(|at| *at > self.now));
        at <= self.now
    }

    fn look_at(&mut self, at: Option<Instant>) {
        self.wake_at = self.wake_at.into_iter().chain(at).min();
    }
}

/// Whether this address is announced as somebody else put it on the interface (speaker-only use).
#[must_use]
pub fn found(address: IpAddr, desired: &Desired, observed: &Observed) -> bool {
    desired.lifecycle == Lifecycle::Run && is_found(address, desired, observed)
}

fn is_found(address: IpAddr, desired: &Desired, observed: &Observed) -> bool {
    observed.kernel.interface == InterfaceState::Up
        && desired.found.iter().any(|prefix| prefix.contains(address))
        && ownership(address, desired, observed).is_some_and(|ownership| ownership != Ownership::Ours)
}

/// Whether the intent for this VIP is to serve it here.
fn serves(desired: &Desired, vip: IpAddr) -> bool {
    matches!(desired.vips.get(&vip), Some(DesiredVip { intent: VipIntent::Serve { .. }, .. }))
}

fn is_host(prefix: Prefix) -> bool {
    prefix == Prefix::host(prefix.address())
}

#[cfg(test)]
mod tests;
