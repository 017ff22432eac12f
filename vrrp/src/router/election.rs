// SPDX-License-Identifier: Apache-2.0
//! Who is to be Active: the timer of a Backup Router, and what each router makes of an advertisement (RFC 9568 §6.1, §6.4.2, §6.4.3).

use std::net::IpAddr;
use std::time::{Duration, Instant};

use super::{Holding, Mode, State, Ties, Turn, VirtualRouter};
use crate::identity::{Interval, Priority, Version};
use crate::wire::Advertisement;

/// What of a router decides how long it waits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Standing {
    priority: Priority,
    version: Version,
}

/// A router that waits.
#[derive(Debug)]
pub(super) struct Backup {
    /// When Active_Down_Timer was set.
    since: Instant,
    /// To what.
    wait: Wait,
    /// Active_Adver_Interval, as learned.
    interval: Interval,
    /// When a router of lower priority, which is Active, has been left so for long enough.
    pub(super) preempt_at: Option<Instant>,
    /// A late tick was not believed, and nothing was heard since.
    spared: bool,
    /// The timer has lapsed.
    willing: bool,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Wait {
    /// Active_Down_Interval.
    ActiveDownInterval,
    /// Skew_Time, after the Active Router has resigned.
    SkewTime,
}

impl Backup {
    pub(super) const fn new(now: Instant, interval: Interval) -> Self {
        Self { since: now, wait: Wait::ActiveDownInterval, interval, preempt_at: None, spared: false, willing: false }
    }

    /// An advertisement of a router that is to stay Active.
    const fn reset(&mut self, now: Instant, interval: Interval) {
        *self = Self::new(now, interval);
    }

    /// When Active_Down_Timer lapses.
    pub(super) fn active_down_timer(&self, router: Standing) -> Instant {
        let skew_time = skew_time(router.priority, self.interval, router.version);
        self.since
            + match self.wait {
                Wait::ActiveDownInterval => self.interval.duration() * 3 + skew_time,
                Wait::SkewTime => skew_time,
            }
    }

    fn due(&self, router: Standing) -> Instant {
        let lapses = self.active_down_timer(router);
        self.preempt_at.map_or(lapses, |at| at.min(lapses))
    }

    /// `None` once there is nothing to wait for.
    pub(super) fn deadline(&self, router: Standing) -> Option<Instant> {
        (!self.willing).then(|| self.due(router))
    }

    pub(super) const fn interval(&self) -> Interval {
        self.interval
    }
}

/// Skew_Time: the better the priority, the sooner (RFC 9568 §6.1; RFC 3768 §6.1, where the interval does not matter). Exact to the nanosecond, so that it orders
/// the routers at short intervals, too.
pub(super) fn skew_time(priority: Priority, interval: Interval, version: Version) -> Duration {
    let unit = match version {
        Version::V2 => Duration::from_secs(1),
        Version::V3 => interval.duration(),
    };
    unit * (256 - u32::from(priority.number())) / 256
}

impl VirtualRouter {
    /// Its own, unless the node does not do what the addresses are there for.
    #[must_use]
    pub const fn priority(&self) -> Priority {
        if self.serving { self.config.priority } else { Priority::LOWEST }
    }

    pub(super) const fn standing(&self) -> Standing {
        Standing { priority: self.priority(), version: self.config.version }
    }

    /// After which delay a router of this priority is not left Active, if it is not (RFC 9568 §6.1). The owner of the addresses leaves nobody so; nor does whoever is of
    /// use one that is not.
    fn preempts(&self, priority: Priority) -> Option<Duration> {
        let at_once = self.priority().is_owner() || priority == Priority::LOWEST;
        let delay = if at_once { Some(Duration::ZERO) } else { self.config.preempt.delay() };
        delay.filter(|_| priority < self.priority())
    }

    /// Whether it is to become Active, as far as it is concerned.
    pub(crate) const fn is_willing(&self) -> bool {
        matches!(self.mode, Mode::Backup(Backup { willing: true, .. }))
    }

    pub(super) const fn set_willing(&mut self) {
        if let Mode::Backup(backup) = &mut self.mode {
            backup.willing = true;
        }
    }

    /// Active_Down_Timer may have lapsed. Where that is noticed late by more than the time in which an Active Router speaks, this process was suspended, and
    /// has yet to read what was said.
    pub(super) fn judge_silence(&mut self, now: Instant) {
        let standing = self.standing();
        let Mode::Backup(backup) = &mut self.mode else { return };
        let due = backup.due(standing);
        if now < due || backup.willing {
            return;
        }
        if now.saturating_duration_since(due) > backup.interval.duration() && !backup.spared {
            *backup = Backup { spared: true, ..Backup::new(now, backup.interval) };
        } else {
            backup.willing = true;
        }
    }

    /// What an advertisement of another router means.
    pub(super) fn elect(&mut self, turn: &mut Turn, source: IpAddr, advertisement: &Advertisement) {
        // Another router has the addresses: the one that follows us, or that has followed an earlier process.
        if self.state() != State::Active && advertisement.priority.is_some() {
            self.hold(turn, Holding::Released);
        }
        match &mut self.mode {
            Mode::Initialize { handover_until } if advertisement.priority.is_some() => *handover_until = None,
            Mode::Initialize { .. } => {}
            Mode::Backup(_) => self.heard_in_backup(turn.now, advertisement),
            Mode::Active(_) => self.heard_in_active(turn, source, advertisement),
        }
    }

    /// RFC 9568 §6.4.2.
    fn heard_in_backup(&mut self, now: Instant, advertisement: &Advertisement) {
        let (standing, delay) = (self.standing(), advertisement.priority.and_then(|priority| self.preempts(priority)));
        let Mode::Backup(backup) = &mut self.mode else { return };
        let Some(_) = advertisement.priority else {
            backup.since = now;
            backup.wait = Wait::SkewTime;
            backup.preempt_at = None;
            return;
        };
        match delay {
            None => backup.reset(now, advertisement.interval),
            Some(delay) => {
                let lapses = backup.active_down_timer(standing);
                let preempt_at = *backup.preempt_at.get_or_insert_with(|| lapses.max(now + delay));
                // Until then that router is to stay Active; from then on it is ignored.
                if preempt_at > lapses {
                    backup.since = now;
                    backup.wait = Wait::ActiveDownInterval;
                    backup.interval = advertisement.interval;
                }
            }
        }
    }

    /// RFC 9568 §6.4.3.
    fn heard_in_active(&mut self, turn: &mut Turn, source: IpAddr, advertisement: &Advertisement) {
        let own = self.priority();
        match advertisement.priority {
            None => self.assert(turn),
            Some(priority) if priority == own && source > self.config.primary && matches!(self.ties, Ties::Left(_)) => {
                self.ties = Ties::Left(true);
            }
            Some(priority) if (priority, source) > (own, self.config.primary) => self.yield_to(turn, advertisement.interval),
            Some(_) => self.contend(turn),
        }
    }

    /// A router has resigned, which was Active like us, and may have told the neighbours so.
    fn assert(&mut self, turn: &mut Turn) {
        self.send(turn, Some(self.priority()));
        let interval = self.config.interval.duration();
        if let Mode::Active(active) = &mut self.mode {
            active.adver_timer = turn.now + interval;
            active.announcements.restart(turn.now, &self.config.announcing);
        }
        self.announce_if_due(turn);
    }

    /// A router that is not to be Active is: it and the neighbours are told. Once in an interval, so that two that disagree on that do not answer each other without
    /// end; the neighbours as often as they may have to be.
    fn contend(&mut self, turn: &mut Turn) {
        let interval = self.config.interval.duration();
        let Mode::Active(active) = &mut self.mode else { return };
        active.contended = Some(turn.now);
        active.announcements.restart(turn.now, &self.config.announcing);
        if active.answered.is_none_or(|at| turn.now.saturating_duration_since(at) >= interval) {
            active.answered = Some(turn.now);
            self.send(turn, Some(self.priority()));
        }
        self.announce_if_due(turn);
    }
}
