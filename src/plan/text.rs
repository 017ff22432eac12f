// SPDX-License-Identifier: Apache-2.0
//! Plans in words, one line a step: for `vipherald plan`, logs and golden files. Equal plans print equally.

use std::fmt;
use std::time::{Duration, Instant};

use super::{Plan, Step};

impl Plan {
    /// The steps, and when to look again counted from `now`.
    pub fn display(&self, now: Instant) -> impl fmt::Display {
        fmt::from_fn(move |f| {
            fmt::Display::fmt(self, f)?;
            let Some(wake_at) = self.wake_at else { return Ok(()) };
            let millis = wake_at.saturating_duration_since(now).as_millis();
            let rest = Duration::from_millis(u64::try_from(millis).unwrap_or(u64::MAX));
            writeln!(f, "look again in {}", humantime::format_duration(rest))
        })
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.steps.is_empty() {
            writeln!(f, "nothing to do")?;
        }
        for step in &self.steps {
            match step {
                Step::RemoveAddress(address) if self.forced.contains(address) => {
                    writeln!(f, "{step}, though a peer has not acknowledged its withdrawal")?;
                }
                _ => writeln!(f, "{step}")?,
            }
        }
        Ok(())
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Advertise(prefixes) => write!(f, "advertise {prefixes}"),
            Self::RecordPending(addresses) => write!(f, "record as pending {}", list(addresses)),
            Self::AddAddress(address) => write!(f, "add address {address}"),
            Self::RecordConfirmed(addresses) => write!(f, "record as ours {}", list(addresses)),
            Self::RemoveAddress(address) => write!(f, "remove address {address}"),
            Self::RecordRemoved(addresses) => write!(f, "take out of the record {}", list(addresses)),
            Self::ConfigureSpeaker(bgp) => write!(f, "configure the speaker: AS {}, peers {}", bgp.asn, list(bgp.peers.keys())),
            Self::ReleaseSpeaker => f.write_str("close the sessions; peers keep the routes"),
            Self::StopSpeaker => f.write_str("stop the speaker"),
            Self::DropRecord => f.write_str("drop the record"),
        }
    }
}

/// Items with commas between them, or "nothing".
fn list<T: fmt::Display>(items: impl IntoIterator<Item = T> + Clone) -> impl fmt::Display {
    fmt::from_fn(move |f| {
        let mut items = items.clone().into_iter();
        let Some(first) = items.next() else { return f.write_str("nothing") };
        write!(f, "{first}")?;
        items.try_for_each(|item| write!(f, ", {item}"))
    })
}
