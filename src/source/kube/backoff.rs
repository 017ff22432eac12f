// SPDX-License-Identifier: Apache-2.0
//! How long to wait before an API server that has failed is asked again.
//!
//! Input: a seed, each failure, and what the server asks for (`Retry-After`). Output: the wait. Invariant: after the fault has ended the next attempt
//! comes within 4 seconds, unless the server itself asked for more; jitter keeps the router nodes of a cluster from coming back all at once.

use std::time::Duration;

const FIRST: Duration = Duration::from_millis(200);
const LONGEST: Duration = Duration::from_secs(4);
/// What a server may ask for; more would leave the node without news for too long.
const LONGEST_ASKED: Duration = Duration::from_secs(60);

/// See the module.
#[derive(Clone, Copy, Debug)]
pub(super) struct Backoff {
    bound: Duration,
    random: u64,
}

impl Backoff {
    pub(super) const fn new(seed: u64) -> Self {
        Self { bound: FIRST, random: seed }
    }

    /// The last attempt has worked.
    pub(super) const fn succeed(&mut self) {
        self.bound = FIRST;
    }

    /// The last attempt has failed: half of the bound at least, and not less than the server asks for.
    pub(super) fn fail(&mut self, asked: Option<Duration>) -> Duration {
        let wait = self.jittered(self.bound);
        self.bound = (self.bound * 2).min(LONGEST);
        wait.max(asked.unwrap_or_default().min(LONGEST_ASKED))
    }

    /// Between half of this time and all of it.
    pub(super) fn jittered(&mut self, time: Duration) -> Duration {
        // SplitMix64: good enough to spread, and needs no state but a number.
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.random ^ (self.random >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let [high, ..] = (mixed ^ (mixed >> 31)).to_be_bytes();
        time / 2 + time / 2 * u32::from(high) / 255
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_to_a_bound_and_begin_anew_after_success() {
        let mut backoff = Backoff::new(7);
        let waits: Vec<Duration> = (0..20).map(|_| backoff.fail(None)).collect();
        for (index, wait) in waits.iter().enumerate() {
            let bound = FIRST.saturating_mul(1 << index.min(10)).min(LONGEST);
            assert!(bound / 2 <= *wait && *wait <= bound, "{index}: {wait:?}");
        }
        backoff.succeed();
        assert!(backoff.fail(None) <= FIRST);
    }

    #[test]
    fn the_server_is_heeded_within_reason() {
        let mut backoff = Backoff::new(7);
        assert_eq!(backoff.fail(Some(Duration::from_secs(9))), Duration::from_secs(9));
        assert_eq!(backoff.fail(Some(Duration::from_secs(3600))), LONGEST_ASKED);
    }

    #[test]
    fn nodes_differ() {
        let first = |seed| Backoff::new(seed).fail(None);
        let distinct: std::collections::BTreeSet<Duration> = (0..50).map(first).collect();
        assert!(distinct.len() > 25, "{distinct:?}");
    }
}
