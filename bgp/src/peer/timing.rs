// SPDX-License-Identifier: Apache-2.0
//! How long the timers of one peer run: jitter, the keepalive interval, and how long a peer rests after a failure.
//!
//! Input: the configured and negotiated times, and a seed. Output: durations. The same seed gives the same durations; nothing here reads a clock.

use std::time::Duration;

use crate::identity::HoldTime;

/// A peer that is down is not dialled more often than about once a second.
const SHORTEST_CONNECT_RETRY: Duration = Duration::from_secs(1);

/// The rest after the loss of a session that had been stable: short, because a peer that restarted is usually back at once.
const BRIEF_REST: Duration = Duration::from_secs(1);

/// The longest rest after repeated protocol errors, in ConnectRetryTimes.
const LONGEST_REST: u32 = 12;

/// A seeded sequence of numbers (splitmix64) that spreads timers (RFC 4271 §10), so that two speakers started on one tick do not stay in step.
#[derive(Debug)]
pub(super) struct Jitter(u64);

impl Jitter {
    pub(super) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// 75 % to 100 % of the period (RFC 4271 §10).
    pub(super) fn apply(&mut self, period: Duration) -> Duration {
        let nanoseconds = u64::try_from(period.as_nanos()).unwrap_or(u64::MAX);
        let spread = u128::from(nanoseconds / 4);
        let reduction = (spread * u128::from(self.next())) >> 64;
        Duration::from_nanos(nanoseconds - u64::try_from(reduction).unwrap_or(0))
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

/// The time to the next KEEPALIVE: a third of the hold time less jitter, but never under a second (RFC 4271 §4.4). `None` with a hold time of 0.
pub(super) fn keepalive_interval(hold_time: HoldTime, jitter: &mut Jitter) -> Option<Duration> {
    hold_time.duration().map(|hold| jitter.apply(hold / 3).max(Duration::from_secs(1)))
}

/// How an attempt or a session ended, as far as the rest after it is concerned.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Ending {
    /// The two speakers do not understand each other: another attempt will most likely end the same way.
    ProtocolError,
    /// Transport, silence or a decision of an operator: the peer may be back at any time.
    Other,
}

/// The rest in Idle after a failure (RFC 4271 §8.1.1, IdleHoldTime and DampPeerOscillations).
///
/// After protocol errors it doubles from one ConnectRetryTime to twelve. After any other ending it is one ConnectRetryTime, or a second where the
/// session had been up for longer than that, or where only the peer dials: no attempts of ours are spread by a longer rest, and the peer's are refused
/// meanwhile. A session that outlasts the longest rest clears the count.
#[derive(Debug)]
pub(super) struct Damping {
    connect_retry: Duration,
    passive: bool,
    protocol_errors: u32,
}

impl Damping {
    pub(super) fn new(connect_retry: Duration, passive: bool) -> Self {
        Self { connect_retry: connect_retry.max(SHORTEST_CONNECT_RETRY), passive, protocol_errors: 0 }
    }

    /// ConnectRetryTime.
    pub(super) const fn connect_retry(&self) -> Duration {
        self.connect_retry
    }

    pub(super) fn set_connect_retry(&mut self, connect_retry: Duration) {
        self.connect_retry = connect_retry.max(SHORTEST_CONNECT_RETRY);
    }

    pub(super) const fn clear(&mut self) {
        self.protocol_errors = 0;
    }

    /// The rest, before jitter, after a session that was Established for `lasted` (zero for a failed attempt).
    pub(super) fn rest(&mut self, ending: Ending, lasted: Duration) -> Duration {
        let longest = self.connect_retry.saturating_mul(LONGEST_REST);
        if lasted >= longest {
            self.clear();
        }
        match ending {
            Ending::ProtocolError => {
                let factor = 1_u32.checked_shl(self.protocol_errors).unwrap_or(LONGEST_REST).min(LONGEST_REST);
                self.protocol_errors = (self.protocol_errors + 1).min(LONGEST_REST);
                self.connect_retry.saturating_mul(factor)
            }
            Ending::Other if self.passive || lasted > self.connect_retry => self.brief(),
            Ending::Other => self.connect_retry,
        }
    }

    /// The rest, before jitter, where nothing failed: the operator asked for a new session.
    pub(super) fn brief(&self) -> Duration {
        self.connect_retry.min(BRIEF_REST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RETRY: Duration = Duration::from_secs(5);

    #[test]
    fn rfc4271_section_10_jitter_is_between_three_quarters_and_all_and_differs_by_seed() {
        for seed in 0..200 {
            let mut jitter = Jitter::new(seed);
            for _ in 0..50 {
                let period = jitter.apply(RETRY);
                assert!(period > RETRY * 3 / 4 && period <= RETRY, "{period:?}");
            }
        }
        assert_ne!(Jitter::new(1).apply(RETRY), Jitter::new(2).apply(RETRY));
        assert_eq!(Jitter::new(7).apply(RETRY), Jitter::new(7).apply(RETRY));
        assert!(Jitter::new(1).apply(Duration::MAX) > Duration::from_secs(400 * 365 * 86_400));
        assert_eq!(Jitter::new(1).apply(Duration::ZERO), Duration::ZERO);
    }

    #[test]
    fn rfc4271_section_4_4_keepalive_is_a_third_of_the_hold_time_and_at_least_a_second() {
        let mut jitter = Jitter::new(0);
        let mut interval = |seconds| keepalive_interval(HoldTime::from_secs(seconds).unwrap(), &mut jitter);
        assert_eq!(interval(0), None);
        for _ in 0..100 {
            assert_eq!(interval(3), Some(Duration::from_secs(1)));
            let of_nine = interval(9).unwrap();
            assert!(of_nine >= Duration::from_millis(2250) && of_nine <= Duration::from_secs(3), "{of_nine:?}");
            let longest = interval(u16::MAX).unwrap();
            assert!(longest >= Duration::from_secs(16_383) && longest <= Duration::from_secs(21_845), "{longest:?}");
        }
    }

    #[test]
    fn rfc4271_section_8_1_1_rest_doubles_after_protocol_errors_and_not_otherwise() {
        let mut damping = Damping::new(RETRY, false);
        let rests: Vec<_> = (0..40).map(|_| damping.rest(Ending::ProtocolError, Duration::ZERO)).collect();
        assert_eq!(rests[..6], [RETRY, RETRY * 2, RETRY * 4, RETRY * 8, RETRY * 12, RETRY * 12]);
        assert_eq!(rests[39], RETRY * 12);
        assert_eq!(damping.rest(Ending::Other, Duration::ZERO), RETRY);
        assert_eq!(damping.rest(Ending::Other, RETRY * 2), Duration::from_secs(1));
        assert_eq!(damping.rest(Ending::ProtocolError, RETRY * 11), RETRY * 12, "a session that died early does not clear the count");
        assert_eq!(damping.rest(Ending::ProtocolError, RETRY * 12), RETRY, "a stable one does");
    }

    #[test]
    fn extreme_retry_times_do_not_overflow() {
        let mut damping = Damping::new(Duration::MAX, false);
        assert_eq!(damping.rest(Ending::ProtocolError, Duration::ZERO), Duration::MAX);
        assert_eq!(damping.rest(Ending::ProtocolError, Duration::ZERO), Duration::MAX);
        let mut damping = Damping::new(Duration::ZERO, false);
        assert_eq!(damping.rest(Ending::ProtocolError, Duration::ZERO), Duration::from_secs(1));
    }
}
