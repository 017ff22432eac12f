// SPDX-License-Identifier: Apache-2.0
//! What the speaker is to be told: the set that it advertises, its configuration, and the end.
//!
//! Input: the set that was decided, the configuration that is wanted, and what the speaker has. Output: steps, with their places in the plan.
//!
//! Invariants: what leaves is withdrawn first, whatever else there is to do; an attribute that moves between a route and the policy of a peer is given up by
//! the one and taken over by the other in one step.

use std::collections::BTreeSet;
use std::sync::Arc;

use bgp::Prefix;

use super::Planner;
use super::step::{Step, StepKey};
use crate::desired::Lifecycle;
use crate::observed::{Announcement, Observed, Since};

/// The steps of the speaker.
#[derive(Default)]
pub(super) struct SpeakerSteps {
    /// Withdraws, before all else.
    pub(super) first: Option<Step>,
    /// Announces, after what the node is to have for it.
    pub(super) last: Option<Step>,
    /// Configures, or ends.
    pub(super) speaker: Option<Step>,
}

impl Planner<'_> {
    /// What leaves is withdrawn first, and what arrives is announced last. Where the configuration changes too, all but the withdrawals waits for it.
    pub(super) fn speaker_steps(&mut self) -> SpeakerSteps {
        let Observed { speaker, .. } = self.observed;
        // One that was not taken is still tried, though another one is wanted by now.
        let tried = self.observed.failures.contains_key(&StepKey::Speaker);
        let differs = speaker.configured.as_ref().is_some_and(|configured| tried || **configured != self.desired.bgp);
        // In a drain policies count as long as something is announced; they are with the peers, too.
        let goes_on = match self.desired.lifecycle {
            Lifecycle::Run | Lifecycle::Standby => true,
            Lifecycle::Drain => !self.announced.is_empty(),
            Lifecycle::Keep => false,
        };
        let configures = goes_on && differs;
        let Some(advertised) = speaker.advertised.as_ref().filter(|_| configures) else {
            let withdraws = speaker.advertised.as_ref().is_some_and(|set| !set.is_within(&self.announced));
            let (advertise, speaker) = (self.advertise(), self.speaker());
            let (first, last) = if withdraws { (advertise, None) } else { (None, advertise) };
            return SpeakerSteps { first, last, speaker };
        };
        let staying = advertised.staying_in(&self.announced);
        let withdraws = staying != **advertised;
        // Where something is withdrawn, a set that waits for the configuration is given up.
        // Nothing waits for one that is in force by now.
        let in_force = speaker.configured.as_ref().is_some_and(|configured| **configured == self.desired.bgp);
        let due = if withdraws { self.ready(StepKey::Advertise) } else { in_force || self.ready(StepKey::Speaker) };
        let first = (withdraws && due).then(|| Step::Advertise(Arc::new(staying)));
        SpeakerSteps { first, last: None, speaker: due.then(|| self.configure()) }
    }

    fn advertise(&mut self) -> Option<Step> {
        let in_force = match &self.observed.speaker.advertised {
            Some(set) => **set == self.announced,
            // A first set, even an empty one, is what the start of the sessions waits for; a drain has nothing to withdraw.
            None => self.desired.lifecycle == Lifecycle::Drain,
        };
        (!in_force && self.ready(StepKey::Advertise)).then(|| Step::Advertise(Arc::new(self.announced.clone())))
    }

    fn speaker(&mut self) -> Option<Step> {
        let speaker = &self.observed.speaker;
        let step = match (self.desired.lifecycle, &speaker.configured) {
            (Lifecycle::Run | Lifecycle::Standby, None) => self.first_plan_applied().then(|| self.configure()),
            (Lifecycle::Run | Lifecycle::Standby, Some(configured)) => (**configured != self.desired.bgp).then(|| self.configure()),
            (Lifecycle::Drain, Some(_)) => self.quiet().then_some(Step::StopSpeaker),
            (Lifecycle::Drain, None) | (Lifecycle::Keep, _) => None,
        };
        step.filter(|_| self.ready(StepKey::Speaker))
    }

    fn configure(&self) -> Step {
        let set = Some(&self.announced).filter(|set| self.observed.speaker.advertised.as_deref() != Some(*set));
        Step::ConfigureSpeaker(Arc::new(self.desired.bgp.clone()), set.cloned().map(Arc::new))
    }

    /// Whether peers may see this node: an address that fails does not keep the others from them.
    fn first_plan_applied(&self) -> bool {
        !self.arriving && self.observed.speaker.advertised.as_deref() == Some(&self.announced)
    }

    /// Whether no peer needs its session any more: nothing of ours is reachable, and each withdrawal is acknowledged or out of time.
    fn quiet(&mut self) -> bool {
        let Observed { announcements, speaker, .. } = self.observed;
        let prefixes: BTreeSet<Prefix> = announcements.keys().chain(&speaker.withdrawing).copied().collect();
        let mut quiet = !self.occupied && speaker.advertised.as_ref().is_none_or(|set| set.is_empty());
        for prefix in prefixes {
            let Since { value, since } = self.announcement(prefix);
            quiet &= match value {
                Announcement::Advertised | Announcement::ShuttingDown => false,
                Announcement::Withdrawing => self.due(since, self.desired.drain.timeout),
                Announcement::Withdrawn => true,
            };
        }
        quiet
    }
}
