// SPDX-License-Identifier: Apache-2.0
//! Conditions on their way to an object: what is to be said now, and what becomes of it beside what the object says already.
//!
//! Invariant: `lastTransitionTime` moves only when `status` does.

use super::{Time, Truth};
use crate::api::ObjectCondition;

/// More than anybody reads, and far less than an API server takes (32,768 octets).
const LONGEST_MESSAGE: usize = 1024;

/// What is to be said now.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Verdict {
    /// Which condition.
    pub kind: &'static str,
    /// Whether it holds.
    pub status: Truth,
    /// A CamelCase word for machines.
    pub reason: String,
    /// For persons.
    pub message: String,
}

impl Verdict {
    pub(super) fn new(kind: &'static str, status: Truth, reason: impl Into<String>, message: impl Into<String>) -> Self {
        Self { kind, status, reason: reason.into(), message: shortened(message.into()) }
    }

    /// The condition under this name, of this generation, where the object has `before` already.
    pub(super) fn condition(&self, name: &str, generation: Option<i64>, before: Option<&ObjectCondition>, now: Time) -> ObjectCondition {
        let status = self.status.as_str();
        let same = before.filter(|condition| condition.status == status);
        ObjectCondition {
            kind: name.to_owned(),
            status: status.to_owned(),
            observed_generation: generation,
            last_transition_time: same.map_or_else(|| now.to_string(), |condition| condition.last_transition_time.clone()),
            reason: self.reason.clone(),
            message: self.message.clone(),
        }
    }
}

fn shortened(message: String) -> String {
    match message.char_indices().nth(LONGEST_MESSAGE) {
        None => message,
        Some((end, _)) => format!("{}…", message.get(..end).unwrap_or_default()),
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;

    #[test]
    fn the_time_moves_with_the_status_only() {
        let at = |seconds| Time::from(UNIX_EPOCH + Duration::from_secs(seconds));
        let first = Verdict::new("Ready", Truth::True, "Fine", "").condition("Ready", Some(1), None, at(0));
        assert_eq!((first.status.as_str(), first.last_transition_time.as_str()), ("True", "1970-01-01T00:00:00Z"));
        let second = Verdict::new("Ready", Truth::True, "Better", "").condition("Ready", Some(2), Some(&first), at(7));
        assert_eq!((second.observed_generation, second.reason.as_str()), (Some(2), "Better"));
        assert_eq!(second.last_transition_time, first.last_transition_time);
        let third = Verdict::new("Ready", Truth::Unknown, "Better", "").condition("Ready", Some(2), Some(&second), at(7));
        assert_eq!(third.last_transition_time, "1970-01-01T00:00:07Z");
    }

    #[test]
    fn a_message_that_nobody_would_read_is_cut() {
        let verdict = Verdict::new("Ready", Truth::True, "", "ä".repeat(2000));
        assert_eq!(verdict.message.chars().count(), LONGEST_MESSAGE + 1);
    }
}
