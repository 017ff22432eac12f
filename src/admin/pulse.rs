// SPDX-License-Identifier: Apache-2.0
//! Whether the daemon lives: a beat from each pass of the reconcile loop, and the speaker's thread.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A loop that is silent for so long hangs: it passes at least every few seconds, and no single step of it may take longer.
const LONGEST_SILENCE: Duration = Duration::from_secs(60);

/// Clones share one pulse.
#[derive(Clone)]
pub struct Pulse(Arc<Inner>);

struct Inner {
    started: Instant,
    /// Milliseconds from the start to the last beat.
    beat: AtomicU64,
    speaker_lives: Box<dyn Fn() -> bool + Send + Sync>,
}

impl Pulse {
    /// Beats for the first time. `speaker_lives` tells whether the speaker's thread does.
    #[must_use]
    pub fn new(speaker_lives: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(Inner { started: Instant::now(), beat: AtomicU64::new(0), speaker_lives: Box::new(speaker_lives) }))
    }

    /// To be called by each pass of the reconcile loop, and at least every few seconds while it waits.
    pub fn beat(&self) {
        self.0.beat.store(self.milliseconds(Instant::now()), Ordering::Relaxed);
    }

    /// Why the daemon does not live.
    pub(super) fn health(&self) -> Result<(), String> {
        self.health_at(Instant::now())
    }

    fn health_at(&self, now: Instant) -> Result<(), String> {
        let silence = Duration::from_millis(self.milliseconds(now).saturating_sub(self.0.beat.load(Ordering::Relaxed)));
        if silence > LONGEST_SILENCE {
            return Err(format!("the reconcile loop has been silent for {} s", silence.as_secs()));
        }
        if !(self.0.speaker_lives)() {
            return Err("the thread of the BGP speaker has ended".to_owned());
        }
        Ok(())
    }

    fn milliseconds(&self, now: Instant) -> u64 {
        u64::try_from(now.duration_since(self.0.started).as_millis()).unwrap_or(u64::MAX)
    }
}

impl fmt::Debug for Pulse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Pulse")
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;

    #[test]
    fn silence_is_death() {
        let alive = Arc::new(AtomicBool::new(true));
        let speaker = Arc::clone(&alive);
        let pulse = Pulse::new(move || speaker.load(Ordering::Relaxed));
        assert_eq!(pulse.health(), Ok(()));
        let later = Instant::now() + LONGEST_SILENCE + Duration::from_secs(7);
        assert_eq!(pulse.health_at(later), Err("the reconcile loop has been silent for 67 s".to_owned()));
        pulse.beat();
        assert_eq!(pulse.health_at(Instant::now() + LONGEST_SILENCE), Ok(()));
        alive.store(false, Ordering::Relaxed);
        assert_eq!(pulse.health(), Err("the thread of the BGP speaker has ended".to_owned()));
    }
}
