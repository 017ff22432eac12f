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
//! - Drain: all of it goes out, then the sessions close, then the record goes.
//! - Keep: the sessions close, and nothing else happens.
//!
//! Invariants: a VIP is in the advertised set only while its address is read back on an interface that is up and its intent is to serve; an address leaves only after
//! its VIP is withdrawn for `fabric_delay`, or a peer has not acknowledged that for `timeout`; only an address proven ours is ever removed; repeated
//! planning converges to no steps.

mod blocked;
mod ownership;
mod predict;
mod text;

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bgp::Prefix;

use crate::desired::{Desired, DesiredBgp, Lifecycle, VipIntent};
use crate::observed::{Announcement, InterfaceState, KernelState, Observed, Since};

use blocked::OwnAddresses;
pub use blocked::{BlockReason, blocked, blocked_vips};
pub use ownership::{Ownership, ownership};
pub use predict::predict;

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

/// One change to the node. Steps that carry a whole set can be repeated without effect.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Step {
    /// Make this the whole set that the speaker advertises.
    Advertise(Arc<BTreeSet<Prefix>>),
    /// Write into the record that these addresses are about to be placed.
    RecordPending(BTreeSet<IpAddr>),
    /// Place one address on `vips.interface`.
    AddAddress(IpAddr),
    /// Write into the record that these addresses are placed and ours.
    RecordConfirmed(BTreeSet<IpAddr>),
    /// Remove one address, which is ours, from `vips.interface`.
    RemoveAddress(IpAddr),
    /// Take these addresses, which are gone or not ours, out of the record.
    RecordRemoved(BTreeSet<IpAddr>),
    /// Make this the speaker's whole configuration of neighbours; the first one starts the sessions.
    ConfigureSpeaker(Arc<DesiredBgp>),
    /// Close all sessions with Cease, Administrative Shutdown.
    StopSpeaker,
    /// Close all sessions so that peers which agreed on graceful restart keep our routes.
    ReleaseSpeaker,
    /// Remove the instance's nft table, which is empty.
    DropRecord,
}

impl Step {
    /// What its failures are counted under.
    #[must_use]
    pub const fn key(&self) -> StepKey {
        match self {
            Self::Advertise(_) => StepKey::Advertise,
            Self::RecordPending(_) | Self::RecordConfirmed(_) | Self::RecordRemoved(_) | Self::DropRecord => StepKey::Record,
            Self::AddAddress(address) | Self::RemoveAddress(address) => StepKey::Address(*address),
            Self::ConfigureSpeaker(_) | Self::StopSpeaker | Self::ReleaseSpeaker => StepKey::Speaker,
        }
    }
}

/// What a step is about, for counting failures and spacing retries.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum StepKey {
    /// The advertised set.
    Advertise,
    /// The record.
    Record,
    /// One address.
    Address(IpAddr),
    /// The neighbours.
    Speaker,
}

/// Decides the next steps.
#[must_use]
pub fn plan(desired: &Desired, observed: &Observed, now: Instant) -> Plan {
    let mut planner = Planner::new(desired, observed, now);
    if desired.lifecycle == Lifecycle::Keep {
        return planner.keep();
    }
    for address in planner.subjects() {
        planner.decide(address);
    }
    planner.finish()
}

/// Whether the node has left: no session is open and, after a drain, nothing of ours is in the kernel.
#[must_use]
pub fn has_left(desired: &Desired, observed: &Observed) -> bool {
    let speaker = &observed.speaker;
    let silent = speaker.configured.is_none() && speaker.open_sessions == 0;
    match desired.lifecycle {
        Lifecycle::Run => false,
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

/// One decision in the making.
struct Planner<'a> {
    desired: &'a Desired,
    observed: &'a Observed,
    now: Instant,
    own: OwnAddresses,
    /// What the advertised set shall be.
    announced: BTreeSet<Prefix>,
    removals: Vec<IpAddr>,
    forced: BTreeSet<IpAddr>,
    pending: BTreeSet<IpAddr>,
    confirmed: BTreeSet<IpAddr>,
    unrecorded: BTreeSet<IpAddr>,
    additions: Vec<IpAddr>,
    /// A VIP is still on its way onto the interface, and nothing has failed about it.
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
            own: OwnAddresses::of(desired, observed),
            announced: BTreeSet::new(),
            removals: Vec::new(),
            forced: BTreeSet::new(),
            pending: BTreeSet::new(),
            confirmed: BTreeSet::new(),
            unrecorded: BTreeSet::new(),
            additions: Vec::new(),
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
        let serves = self.desired.lifecycle == Lifecycle::Run && serves(self.desired, address);
        let block = blocked::reason(address, self.observed, self.own);
        let wanted = serves && block.is_none();
        let ownership = ownership(address, self.desired, self.observed);
        if (wanted && ownership.is_some()) || found(address, self.desired, self.observed) {
            self.announced.insert(Prefix::host(address));
        }
        match ownership {
            None if wanted => self.enter(address, recorded),
            Some(Ownership::Ours) => {
                self.occupied = true;
                let stays = serves && block.is_none_or(BlockReason::keeps_address);
                if !stays && self.strays_leave() {
                    self.leave(address);
                } else if !confirmed {
                    self.confirmed.insert(address);
                }
            }
            // It may be ours, so its entry stays until the intent is known in full.
            Some(Ownership::Unclaimed) if recorded && !self.strays_leave() => {}
            // The interface was renamed under it: it is still ours once the interface has its name back.
            None if self.desired.lifecycle == Lifecycle::Run && self.may_be_renamed(address) => {}
            None | Some(Ownership::Used | Ownership::Unclaimed | Ownership::Foreign) if recorded => {
                self.unrecorded.insert(address);
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
        self.desired.complete || self.desired.lifecycle == Lifecycle::Drain
    }

    /// Nothing changes but that the sessions close.
    fn keep(mut self) -> Plan {
        let open = self.observed.speaker.configured.is_some();
        let step = (open && self.ready(StepKey::Speaker)).then_some(Step::ReleaseSpeaker);
        Plan { steps: step.into_iter().collect(), forced: BTreeSet::new(), wake_at: self.wake_at }
    }

    /// One step onto the interface: never without an entry in the record that has been read back.
    fn enter(&mut self, address: IpAddr, recorded: bool) {
        let key = if recorded { StepKey::Address(address) } else { StepKey::Record };
        self.arriving |= !self.observed.failures.contains_key(&key);
        if !recorded {
            self.pending.insert(address);
        } else if self.ready(key) {
            self.additions.push(address);
        }
    }

    /// One step off the interface: only once the fabric has had its time, or a peer has let the bound pass.
    fn leave(&mut self, address: IpAddr) {
        let Since { value, since } = self.announcement(address);
        let forced = value == Announcement::Withdrawing;
        let delay = if forced { self.desired.drain.timeout } else { self.desired.drain.fabric_delay };
        if value == Announcement::Advertised || !self.due(since, delay) || !self.ready(StepKey::Address(address)) {
            return;
        }
        self.removals.push(address);
        if forced {
            self.forced.insert(address);
        }
    }

    /// Where a VIP stands towards the fabric; in doubt what keeps its address longer.
    fn announcement(&self, vip: IpAddr) -> Since<Announcement> {
        let speaker = &self.observed.speaker;
        let prefix = Prefix::host(vip);
        let known = self
            .observed
            .announcements
            .get(&vip)
            .copied()
            .unwrap_or_else(|| Since { value: Announcement::Withdrawn, since: self.observed.started.unwrap_or(self.now) });
        let value = if speaker.advertised.as_ref().is_some_and(|set| set.contains(&prefix)) {
            Announcement::Advertised
        } else if speaker.withdrawing.contains(&prefix) && known.value == Announcement::Withdrawn {
            Announcement::Withdrawing
        } else {
            known.value
        };
        Since { value, since: if value == known.value { known.since } else { self.now } }
    }

    fn finish(mut self) -> Plan {
        let withdraws = self.observed.speaker.advertised.as_ref().is_some_and(|set| !set.is_subset(&self.announced));
        let advertise = self.advertise();
        let (first, last) = if withdraws { (advertise, None) } else { (None, advertise) };
        let record = self.record();
        let speaker = self.speaker();
        let drop_record = self.drop_record();
        let mut steps = Vec::new();
        steps.extend(first);
        steps.extend(self.removals.into_iter().map(Step::RemoveAddress));
        steps.extend(record);
        steps.extend(self.additions.into_iter().map(Step::AddAddress));
        steps.extend(last);
        steps.extend(speaker);
        steps.extend(drop_record);
        Plan { steps, forced: self.forced, wake_at: self.wake_at }
    }

    fn advertise(&mut self) -> Option<Step> {
        let in_force = match &self.observed.speaker.advertised {
            Some(set) => **set == self.announced,
            // A first set, even an empty one, is what the start of the sessions waits for; a drain has nothing to withdraw.
            None => self.desired.lifecycle == Lifecycle::Drain,
        };
        (!in_force && self.ready(StepKey::Advertise)).then(|| Step::Advertise(Arc::new(self.announced.clone())))
    }

    fn record(&mut self) -> Vec<Step> {
        let sets = [
            (std::mem::take(&mut self.pending), Step::RecordPending as fn(_) -> _),
            (std::mem::take(&mut self.confirmed), Step::RecordConfirmed),
            (std::mem::take(&mut self.unrecorded), Step::RecordRemoved),
        ];
        let steps: Vec<Step> = sets.into_iter().filter(|(set, _)| !set.is_empty()).map(|(set, step)| step(set)).collect();
        if steps.is_empty() || self.ready(StepKey::Record) { steps } else { Vec::new() }
    }

    fn speaker(&mut self) -> Option<Step> {
        let speaker = &self.observed.speaker;
        let step = match (self.desired.lifecycle, &speaker.configured) {
            (Lifecycle::Run, None) => self.first_plan_applied().then(|| self.configure()),
            (Lifecycle::Run, Some(configured)) => (**configured != self.desired.bgp).then(|| self.configure()),
            (Lifecycle::Drain, Some(_)) => self.quiet().then_some(Step::StopSpeaker),
            (Lifecycle::Drain, None) | (Lifecycle::Keep, _) => None,
        };
        step.filter(|_| self.ready(StepKey::Speaker))
    }

    fn configure(&self) -> Step {
        Step::ConfigureSpeaker(Arc::new(self.desired.bgp.clone()))
    }

    /// Whether peers may see this node: an address that fails does not keep the others from them.
    fn first_plan_applied(&self) -> bool {
        !self.arriving && self.observed.speaker.advertised.as_deref() == Some(&self.announced)
    }

    /// Whether no peer needs its session any more: nothing of ours is reachable, and each withdrawal is acknowledged or out of time.
    fn quiet(&mut self) -> bool {
        let Observed { announcements, speaker, .. } = self.observed;
        let vips: BTreeSet<IpAddr> = announcements.keys().copied().chain(speaker.withdrawing.iter().map(Prefix::address)).collect();
        let mut quiet = !self.occupied && speaker.advertised.as_ref().is_none_or(|set| set.is_empty());
        for vip in vips {
            let Since { value, since } = self.announcement(vip);
            quiet &= match value {
                Announcement::Advertised => false,
                Announcement::Withdrawing => self.due(since, self.desired.drain.timeout),
                Announcement::Withdrawn => true,
            };
        }
        quiet
    }

    fn drop_record(&mut self) -> Option<Step> {
        let Observed { kernel: KernelState { record, .. }, speaker, .. } = self.observed;
        let over = self.desired.lifecycle == Lifecycle::Drain
            && record.exists
            && record.pending.is_empty()
            && record.confirmed.is_empty()
            && !self.occupied
            && speaker.configured.is_none()
            && speaker.open_sessions == 0;
        (over && self.ready(StepKey::Record)).then_some(Step::DropRecord)
    }

    /// Whether a step may be tried now, as far as its failures go.
    fn ready(&mut self, key: StepKey) -> bool {
        let Some(failure) = self.observed.failures.get(&key) else { return true };
        let doublings = failure.count.saturating_sub(1).min(16);
        self.due(failure.last, FIRST_RETRY.saturating_mul(1 << doublings).min(LONGEST_RETRY))
    }

    /// Whether this much time has passed; if not, the plan is looked at again when it has.
    fn due(&mut self, since: Instant, delay: Duration) -> bool {
        let Some(at) = since.checked_add(delay) else { return false };
        if at > self.now {
            self.wake_at = Some(self.wake_at.map_or(at, |earlier| earlier.min(at)));
        }
        at <= self.now
    }
}

/// Whether this address is announced as somebody else put it on the interface (speaker-only use).
#[must_use]
pub fn found(address: IpAddr, desired: &Desired, observed: &Observed) -> bool {
    desired.lifecycle == Lifecycle::Run
        && observed.kernel.interface == InterfaceState::Up
        && desired.found.iter().any(|prefix| prefix.contains(address))
        && ownership(address, desired, observed).is_some_and(|ownership| ownership != Ownership::Ours)
}

/// Whether the intent for this VIP is to serve it here.
fn serves(desired: &Desired, vip: IpAddr) -> bool {
    desired.vips.get(&vip).is_some_and(|vip| matches!(vip.intent, VipIntent::Serve { .. }))
}

#[cfg(test)]
mod tests;
