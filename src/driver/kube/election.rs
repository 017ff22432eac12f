// SPDX-License-Identifier: Apache-2.0
//! Who of all nodes of an instance writes what they share, as a value: the holder of a Lease (`coordination.k8s.io/v1`).
//!
//! Inputs: what the API server answered, and the time. Outputs: [`Action`]s to carry out, one at a time, and whether this node holds the Lease.
//!
//! Nobody's clock on the wall decides anything. A record counts as given up when it has not changed for its duration since this node first saw it; the holder
//! stops earlier, [`RENEW_DEADLINE`] after it sent the last renewal that was taken. So there are never two holders, as long as clocks run equally fast
//! within a third. Of two that take it at once the API server refuses one, since each write names the version that it replaces.
//!
//! ```text
//!            Read: none, given up, ours          Written
//!  Follower ----------------------------> Write ---------> Holder --- Conflict, and a Read shows another; or the deadline --> Follower
//! ```

use std::time::{Duration, Instant};

/// How long a record holds after its last change.
pub(super) const LEASE_DURATION: Duration = Duration::from_secs(15);

/// A holder that could not renew it for so long stops to write. What it sent before is answered or given up by [`LEASE_DURATION`].
pub(super) const RENEW_DEADLINE: Duration = Duration::from_secs(10);

/// Between two renewals, and between two looks of the others.
const INTERVAL: Duration = Duration::from_secs(5);

/// After an answer that was none.
const RETRY: Duration = Duration::from_secs(2);

/// A Lease as it is stored.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Record {
    /// Who holds it; empty where it was given up in order.
    pub(super) holder: String,
    /// How long it holds after its last change.
    pub(super) duration: Duration,
    /// How often the holder has changed.
    pub(super) transitions: i32,
    /// `metadata.resourceVersion`, which changes with it.
    pub(super) version: String,
}

/// What happened.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Event {
    /// The deadline has come.
    Tick,
    /// The Lease as it is; `None` where there is none.
    Read(Option<Record>),
    /// What was to be written is.
    Written(Record),
    /// Somebody else wrote in between.
    Conflict,
    /// There was no answer, or another error.
    Failed,
    /// This node leaves.
    Release,
}

/// What to do.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Action {
    /// Read the Lease.
    Read,
    /// Write it: create it, or replace this version.
    Write {
        /// What it replaces.
        replaces: Option<String>,
        /// Who holds it then; empty to give it up.
        holder: String,
        /// How often the holder has changed then.
        transitions: i32,
        /// Whether somebody else held it before, so that it is acquired now.
        acquires: bool,
    },
}

/// See the module.
#[derive(Debug)]
pub(super) struct Election {
    identity: String,
    /// What was read last, and when that was seen first.
    seen: Option<(Record, Instant)>,
    /// When the last renewal that was taken was sent; `None` for a follower.
    renewed: Option<Instant>,
    /// When the request that has no answer yet was sent.
    sent: Option<Instant>,
    next: Instant,
    /// Somebody else wrote, so that what was seen is old.
    outdated: bool,
    leaving: bool,
}

impl Election {
    /// A candidate of this name, which no other candidate has.
    pub(super) fn new(identity: impl Into<String>, now: Instant) -> Self {
        Self { identity: identity.into(), seen: None, renewed: None, sent: None, next: now, outdated: false, leaving: false }
    }

    /// Whether this node holds the Lease.
    pub(super) fn holds(&self, now: Instant) -> bool {
        self.renewed.is_some_and(|renewed| now < renewed + RENEW_DEADLINE)
    }

    /// Who holds it, as far as is known.
    pub(super) fn holder(&self) -> Option<&str> {
        self.seen.as_ref().map(|(record, _)| record.holder.as_str()).filter(|holder| !holder.is_empty())
    }

    /// When the next [`Event::Tick`] is due; `None` while an answer is awaited, or nothing is to be done any more.
    pub(super) fn deadline(&self) -> Option<Instant> {
        (self.sent.is_none() && !self.leaving).then_some(self.next)
    }

    /// Takes what happened and says what to do. While a request has no answer there is no other.
    pub(super) fn handle(&mut self, now: Instant, event: Event) -> Option<Action> {
        let sent = if matches!(event, Event::Tick | Event::Release) { None } else { self.sent.take() };
        match event {
            Event::Tick if self.leaving || self.sent.is_some() || now < self.next => None,
            Event::Tick if self.holds(now) && !self.outdated => Some(self.write(now)),
            Event::Tick => Some(self.read(now)),
            Event::Read(found) => self.look(now, found),
            Event::Written(record) => {
                self.renewed = (record.holder == self.identity).then(|| sent.unwrap_or(now));
                self.see(now, Some(record));
                self.next = now + INTERVAL;
                None
            }
            Event::Conflict | Event::Failed => {
                self.outdated |= event == Event::Conflict;
                self.next = now + RETRY;
                None
            }
            Event::Release => self.release(now),
        }
    }

    fn look(&mut self, now: Instant, found: Option<Record>) -> Option<Action> {
        self.see(now, found);
        self.outdated = false;
        if self.leaving {
            return None;
        }
        match &self.seen {
            Some((record, since)) if record.holder != self.identity && !record.holder.is_empty() && now < *since + record.duration => {
                self.renewed = None;
                self.next = (now + INTERVAL).min(*since + record.duration);
                None
            }
            _ => Some(self.write(now)),
        }
    }

    fn see(&mut self, now: Instant, found: Option<Record>) {
        let known = |record: &Record| self.seen.as_ref().filter(|(seen, _)| seen.version == record.version).map(|(_, since)| *since);
        self.seen = found.map(|record| {
            let since = known(&record).unwrap_or(now);
            (record, since)
        });
    }

    const fn read(&mut self, now: Instant) -> Action {
        self.sent = Some(now);
        Action::Read
    }

    fn write(&mut self, now: Instant) -> Action {
        self.sent = Some(now);
        let record = self.seen.as_ref().map(|(record, _)| record);
        let acquires = record.is_none_or(|record| record.holder != self.identity);
        let transitions = record.map_or(0, |record| record.transitions.saturating_add(i32::from(acquires)));
        Action::Write { replaces: record.map(|record| record.version.clone()), holder: self.identity.clone(), transitions, acquires }
    }

    /// Whoever does not hold it has nothing to give up.
    fn release(&mut self, now: Instant) -> Option<Action> {
        self.leaving = true;
        let held = self.holds(now);
        self.renewed = None;
        let (record, _) = self.seen.as_ref().filter(|_| held)?;
        let (replaces, transitions) = (Some(record.version.clone()), record.transitions);
        self.sent = Some(now);
        Some(Action::Write { replaces, holder: String::new(), transitions, acquires: false })
    }
}

#[cfg(test)]
mod tests;
