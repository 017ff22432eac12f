// SPDX-License-Identifier: Apache-2.0
//! Which failures of a neighbour an operator is told of.
//!
//! Input: why sessions and attempts ended, one after the other. Output: the last that says what is wrong, the last attempt since, and whether one is
//! worth a warning. Where both sides' AS numbers differ, say, the peer refuses connections a second later: that it does must not hide why.
//!
//! Invariants: what says less never takes the place of what says more, until a session is up; each reason is news once until then.

use std::collections::BTreeSet;

use bgp::peer::DownReason;
use bgp::wire::{Cease, Notification};

use crate::driver::bgp::status::{LastError, Moment, Notified};

/// So many reasons are told apart. Some hold words of the peer, who may have new ones each time.
const REASONS: usize = 32;

/// How much a failure says of what is wrong.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) enum Weight {
    /// The peer is not there, or wants no connection now: that follows from everything else.
    Attempt,
    /// Silence, which the settings may explain.
    Hint,
    /// It is what an operator has to know.
    Cause,
}

/// The failures of one neighbour.
#[derive(Debug, Default)]
pub(super) struct History {
    cause: Option<(Weight, LastError)>,
    attempt: Option<LastError>,
    /// What was news since the last session.
    told: BTreeSet<String>,
}

/// What is to be said of a failure.
#[derive(Debug, Eq, PartialEq)]
pub(super) struct Remark {
    /// How often it has come for this reason since the session was last up.
    pub(super) count: u64,
    /// It is the first one for this reason since then.
    pub(super) is_news: bool,
}

impl History {
    /// Takes the next one. `lost`: it has ended a session that was up.
    pub(super) fn add(&mut self, weight: Weight, lost: bool, mut error: LastError) -> Remark {
        let is_cause = weight > Weight::Attempt && self.cause.as_ref().is_none_or(|(before, _)| weight >= *before);
        let before = if is_cause { self.cause.as_ref().map(|(_, error)| error) } else { self.attempt.as_ref() };
        error.count = before.filter(|before| before.reason == error.reason && !lost).map_or(0, |before| before.count) + 1;
        let remark = Remark { count: error.count, is_news: self.is_news(&error.reason) };
        if is_cause {
            self.attempt = None;
            self.cause = Some((weight, error));
        } else {
            self.attempt = Some(error);
        }
        remark
    }

    /// Whether this is the first time that the reason is told since a session was up.
    pub(super) fn is_news(&mut self, reason: &str) -> bool {
        self.told.len() < REASONS && self.told.insert(reason.to_owned())
    }

    /// A session is up: from now on every reason is news again, and the attempts before are of no interest.
    pub(super) fn succeeded(&mut self) {
        self.attempt = None;
        self.told.clear();
    }

    /// The last that says what is wrong, or was before the session that is up.
    pub(super) fn cause(&self) -> Option<&LastError> {
        self.cause.as_ref().map(|(_, error)| error)
    }

    /// How attempts since then have ended.
    pub(super) const fn attempt(&self) -> Option<&LastError> {
        self.attempt.as_ref()
    }
}

/// How much this end says. `lost`: it has ended a session that was up. `ours`: the connection failed for a reason that is to be mended here.
/// `explained`: the settings name a reason for silence.
pub(super) fn weight(down: &DownReason, lost: bool, ours: bool, explained: bool) -> Weight {
    match down {
        DownReason::Received(notification) if !lost && is_refusal(notification) => Weight::Attempt,
        DownReason::Received(_) | DownReason::Sent { .. } | DownReason::SendHoldTimerExpired | DownReason::Kept => Weight::Cause,
        DownReason::ConnectFailed | DownReason::ConnectionClosed | DownReason::ConnectTimedOut if lost || ours => Weight::Cause,
        DownReason::ConnectionClosed | DownReason::ConnectTimedOut if explained => Weight::Hint,
        DownReason::ConnectFailed | DownReason::ConnectionClosed | DownReason::ConnectTimedOut => Weight::Attempt,
    }
}

/// The peer wants no connection at present (RFC 4486 §4): it rests after an error, for one, and the error says more.
fn is_refusal(notification: &Notification) -> bool {
    [Cease::ConnectionRejected, Cease::ConnectionCollisionResolution].into_iter().any(|cease| notification.is_cease(cease))
}

/// An error that has just come.
pub(super) fn error(reason: String, notification: Option<Notified>) -> LastError {
    LastError { reason, at: Moment::now(), count: 1, notification }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent() -> DownReason {
        DownReason::Sent { notification: Notification::bad_peer_as(), reason: "the peer is in AS 2, not in 1 as configured".into() }
    }

    fn cease(cease: Cease) -> DownReason {
        DownReason::Received(Notification::cease(cease))
    }

    /// Takes failures of these reasons, each with what it weighs; what is left is the cause and the last attempt with their counts.
    fn after(history: &mut History, added: &[(&str, Weight, bool)]) -> [Option<(String, u64)>; 2] {
        for (reason, weight, lost) in added {
            history.add(*weight, *lost, error((*reason).to_owned(), None));
        }
        [history.cause(), history.attempt()].map(|error| error.map(|error| (error.reason.clone(), error.count)))
    }

    fn some(reason: &str, count: u64) -> Option<(String, u64)> {
        Some((reason.to_owned(), count))
    }

    #[test]
    fn what_says_most_stays_until_a_session_is_up() {
        let (refused, bad_as) = (("refused", Weight::Attempt, false), ("bad AS", Weight::Cause, false));
        let (silence, hold) = (("silence; perhaps another key", Weight::Hint, false), ("hold timer", Weight::Cause, true));
        let mut history = History::default();
        assert_eq!(after(&mut history, &[refused, refused]), [None, some("refused", 2)]);
        assert_eq!(after(&mut history, &[silence, refused, silence]), [some("silence; perhaps another key", 2), None]);
        assert_eq!(after(&mut history, &[bad_as, refused, refused]), [some("bad AS", 1), some("refused", 2)]);
        assert_eq!(after(&mut history, &[silence]), [some("bad AS", 1), some("silence; perhaps another key", 1)]);
        assert_eq!(after(&mut history, &[bad_as]), [some("bad AS", 2), None], "counted over what came between");
        history.succeeded();
        assert_eq!(after(&mut history, &[]), [some("bad AS", 2), None], "it is what was before this session");
        assert_eq!(after(&mut history, &[hold, refused]), [some("hold timer", 1), some("refused", 1)]);
        history.succeeded();
        assert_eq!(after(&mut history, &[hold]), [some("hold timer", 1), None], "each session is lost anew");
    }

    #[test]
    fn each_reason_is_news_once_until_a_session_is_up() {
        let mut history = History::default();
        let is_news = |history: &mut History, reason: &str| history.add(Weight::Attempt, false, error(reason.to_owned(), None)).is_news;
        assert_eq!(["a", "b", "a", "b", "a"].map(|reason| is_news(&mut history, reason)), [true, true, false, false, false]);
        history.succeeded();
        assert!(is_news(&mut history, "a"));
        let told = (0..1000_u32).filter(|number| is_news(&mut history, &format!("the peer says {number}"))).count();
        assert_eq!(told, REASONS - 1, "a peer with ever new words does not fill log and memory");
    }

    #[test]
    fn what_weighs_how_much() {
        let of_attempt = |down: &DownReason| weight(down, false, false, false);
        for down in [DownReason::ConnectFailed, DownReason::ConnectTimedOut, DownReason::ConnectionClosed] {
            assert_eq!(of_attempt(&down), Weight::Attempt, "{down}");
            assert_eq!(weight(&down, true, false, false), Weight::Cause, "the loss of a session: {down}");
            assert_eq!(weight(&down, false, true, false), Weight::Cause, "a missing key: {down}");
        }
        assert_eq!(weight(&DownReason::ConnectTimedOut, false, false, true), Weight::Hint);
        for refusal in [Cease::ConnectionRejected, Cease::ConnectionCollisionResolution] {
            assert_eq!(of_attempt(&cease(refusal)), Weight::Attempt, "{refusal:?}");
            assert_eq!(weight(&cease(refusal), true, false, false), Weight::Cause, "{refusal:?}");
        }
        let hold = DownReason::Sent { notification: Notification::hold_timer_expired(), reason: "silence".into() };
        let limit = cease(Cease::MaximumNumberOfPrefixesReached);
        for down in [sent(), hold, limit, cease(Cease::AdministrativeShutdown), DownReason::SendHoldTimerExpired, DownReason::Kept] {
            assert_eq!(of_attempt(&down), Weight::Cause, "{down}");
        }
    }
}
