// SPDX-License-Identifier: Apache-2.0
//! When the neighbours are told where the addresses are. Input: the instants at which an Active Router became so, or met a contender. Output: when it is due.
//!
//! The times are their own, and do not hang on advertisements.

use std::time::{Duration, Instant};

use super::Announcing;
use super::next;

/// A contender makes them no more frequent: one that advertises each 10 ms would cost an ARP packet for each address each time.
const LEAST_GAP: Duration = Duration::from_millis(100);

/// The announcements of an Active Router.
#[derive(Debug)]
pub(super) struct Announcements {
    /// When the next one is due.
    at: Option<Instant>,
    /// How many are left of this series; the others refresh.
    left: u32,
    /// The last one.
    last: Option<Instant>,
}

impl Announcements {
    /// A series that begins now.
    pub(super) const fn new(now: Instant, announcing: &Announcing) -> Self {
        Self { at: Some(now), left: announcing.times, last: None }
    }

    /// A new series, which begins now or, after the last announcement, as soon as it may.
    pub(super) fn restart(&mut self, now: Instant, announcing: &Announcing) {
        let soonest = self.last.map_or(now, |last| now.max(last + LEAST_GAP));
        self.at = Some(self.at.map_or(soonest, |at| at.min(soonest)));
        self.left = announcing.times;
    }

    /// A new series, which begins then.
    pub(super) const fn postpone(&mut self, until: Instant, announcing: &Announcing) {
        self.at = Some(until);
        self.left = announcing.times;
    }

    /// Whether one is due now, which counts as made.
    pub(super) fn is_due(&mut self, now: Instant, announcing: &Announcing) -> bool {
        let Some(at) = self.at.filter(|at| now >= *at) else { return false };
        self.left = self.left.saturating_sub(1);
        self.last = Some(now);
        let period = if self.left > 0 { Some(announcing.spacing) } else { announcing.refresh };
        self.at = period.map(|period| next(at, period, now));
        true
    }

    pub(super) const fn deadline(&self) -> Option<Instant> {
        self.at
    }
}
