// SPDX-License-Identifier: Apache-2.0
//! How fast is written: the first change at once, those after it together, and after errors ever more rarely. A value.

use std::time::{Duration, Instant};

/// Between two writes while there is always something to write.
const SHORTEST: Duration = Duration::from_secs(2);
/// Where that goes on.
const LONGEST: Duration = Duration::from_secs(30);
/// After the first error.
const FIRST_RETRY: Duration = Duration::from_secs(1);
const LONGEST_RETRY: Duration = Duration::from_secs(60);

/// See the module.
#[derive(Debug)]
pub(super) struct Pace {
    /// Not before this.
    next: Instant,
    pause: Duration,
    retry: Duration,
    seed: u64,
}

impl Pace {
    pub(super) const fn new(now: Instant, seed: u64) -> Self {
        Self { next: now, pause: SHORTEST, retry: FIRST_RETRY, seed }
    }

    /// When the next write may begin.
    pub(super) const fn next(&self) -> Instant {
        self.next
    }

    /// Something is not to be written before this.
    pub(super) fn not_before(&mut self, then: Instant) {
        self.next = self.next.max(then);
    }

    /// Something was written.
    pub(super) fn written(&mut self, now: Instant) {
        let rested = now.saturating_duration_since(self.next) > self.pause;
        self.pause = if rested { SHORTEST } else { (self.pause * 2).min(LONGEST) };
        self.next = now + self.pause;
        self.succeeded();
    }

    /// No error any more.
    pub(super) const fn succeeded(&mut self) {
        self.retry = FIRST_RETRY;
    }

    /// Something could not be; the server may say how long it wants to be left alone.
    pub(super) fn failed(&mut self, now: Instant, retry_after: Option<Duration>) {
        let jittered = self.retry + self.retry.mul_f64(self.random());
        self.next = now + retry_after.unwrap_or_default().clamp(jittered, LONGEST_RETRY.max(jittered));
        self.retry = (self.retry * 2).min(LONGEST_RETRY / 2);
    }

    /// From 0 to 1 (xorshift64).
    fn random(&mut self) -> f64 {
        self.seed = self.seed.max(1);
        self.seed ^= self.seed << 13;
        self.seed ^= self.seed >> 7;
        self.seed ^= self.seed << 17;
        f64::from(u32::try_from(self.seed >> 32).unwrap_or_default()) / f64::from(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_change_is_written_at_once_and_a_storm_ever_more_rarely() {
        let start = Instant::now();
        let mut pace = Pace::new(start, 7);
        let mut times = Vec::new();
        while times.len() < 7 {
            times.push((pace.next() - start).as_secs());
            pace.written(pace.next());
        }
        assert_eq!(times, [0, 4, 12, 28, 58, 88, 118]);
        let later = pace.next() + Duration::from_secs(600);
        pace.written(later);
        assert_eq!(pace.next() - later, SHORTEST, "after a rest it begins anew");
    }

    #[test]
    fn after_errors_it_waits_longer_and_as_long_as_it_is_told() {
        let start = Instant::now();
        let mut pace = Pace::new(start, 7);
        for at_least in [1, 2, 4, 8, 16, 30, 30] {
            pace.failed(start, None);
            let wait = pace.next() - start;
            assert!((Duration::from_secs(at_least)..=Duration::from_secs(2 * at_least)).contains(&wait), "{wait:?}");
        }
        pace.succeeded();
        pace.failed(start, Some(Duration::from_secs(20)));
        assert_eq!(pace.next() - start, Duration::from_secs(20));
        pace.failed(start, Some(Duration::from_secs(7200)));
        assert_eq!(pace.next() - start, LONGEST_RETRY);
    }
}
