// SPDX-License-Identifier: Apache-2.0
//! What operators were told of dynamic neighbours.
//!
//! A dynamic neighbour is forgotten when it goes, and with it what was said of it; but one that cannot come up dials again and again. Input: who it is, and
//! what is wrong. Output: whether that is worth a warning.
//!
//! Invariants: the same of the same neighbour is news once an hour, unless a session was up meanwhile; and of all together there are no more than
//! [`LIMIT`] in that time, whatever the peers say and from however many addresses they dial.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// For so long nobody needs to be told again.
const MEMORY: Duration = Duration::from_secs(3600);

/// So many complaints are remembered. Beyond that there is no news until some have grown old.
const LIMIT: usize = 256;

/// When each reason of each neighbour was told. Clones share it.
#[derive(Clone, Debug, Default)]
pub(in crate::driver::bgp) struct Complaints(Arc<Mutex<BTreeMap<(String, String), Instant>>>);

impl Complaints {
    /// Whether nobody was told lately that this is wrong with this neighbour; from now on somebody was.
    pub(in crate::driver::bgp) fn is_news(&self, name: &str, reason: &str) -> bool {
        self.is_news_at(name, reason, Instant::now())
    }

    fn is_news_at(&self, name: &str, reason: &str, now: Instant) -> bool {
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        told.retain(|_, at| now.saturating_duration_since(*at) < MEMORY);
        let complaint = (name.to_owned(), reason.to_owned());
        if told.len() >= LIMIT || told.contains_key(&complaint) {
            return false;
        }
        told.insert(complaint, now);
        true
    }

    /// A session of the neighbour is up: whatever is wrong later is news.
    pub(super) fn forget(&self, name: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).retain(|(of, _), _| of != name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_neighbour_that_dials_again_and_again_is_news_once_an_hour_or_after_a_session() {
        let (complaints, start) = (Complaints::default(), Instant::now());
        let shared = complaints.clone();
        assert!(complaints.is_news_at("dynamic:192.0.2.1", "bad AS", start));
        assert!(!shared.is_news_at("dynamic:192.0.2.1", "bad AS", start + MEMORY / 2), "its next report");
        assert!(shared.is_news_at("dynamic:192.0.2.1", "no key", start));
        assert!(shared.is_news_at("dynamic:192.0.2.2", "bad AS", start));
        assert!(shared.is_news_at("dynamic:192.0.2.1", "bad AS", start + MEMORY));
        complaints.forget("dynamic:192.0.2.1");
        assert!(shared.is_news_at("dynamic:192.0.2.1", "bad AS", start + MEMORY), "a session was up");
    }

    #[test]
    fn peers_with_ever_new_words_do_not_fill_the_log() {
        let (complaints, start) = (Complaints::default(), Instant::now());
        let news = |at: Instant| (0..10 * LIMIT).filter(|words| complaints.is_news_at("dynamic:192.0.2.1", &words.to_string(), at)).count();
        assert_eq!([news(start), news(start + MEMORY / 2), news(start + MEMORY)], [LIMIT, 0, LIMIT]);
    }
}
