// SPDX-License-Identifier: Apache-2.0
//! Since when real servers are quiesced, and ranges of ports have no ports any more, kept in the state directory: a restart gives none of them its time anew.
//!
//! Input and output: a [`Leaving`] in `quiesced.json`, replaced as a whole, with times since the kernel was booted: those of the wall may be set. What is
//! kept counts only where the next process finds the real server quiesced still, or the range without ports. The file is disposable: without it, or after a
//! reboot, with which what it tells of has gone, the time is counted from the start of the process.

use std::path::Path;
use std::time::{Duration, Instant};
use std::{fs, io};

use serde::{Deserialize, Serialize};
use tracing::warn;

use crate::observed::{Observed, Quiesced, Retirements};

const FILE: &str = "quiesced.json";
const VERSION: u32 = 1;

/// Since when what only has its connections to end has had no new ones.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct Leaving {
    pub(super) quiesced: Quiesced,
    pub(super) retirements: Retirements,
}

impl Leaving {
    /// What a process knows of it that has read nothing yet.
    pub(super) fn observed(&self) -> Observed {
        Observed { quiesced: self.quiesced.clone(), retirements: self.retirements.clone(), ..Observed::default() }
    }

    /// Whether it is what is observed.
    pub(super) fn is_of(&self, observed: &Observed) -> bool {
        self.quiesced == observed.quiesced && self.retirements == observed.retirements
    }
}

impl From<&Observed> for Leaving {
    fn from(observed: &Observed) -> Self {
        Self { quiesced: observed.quiesced.clone(), retirements: observed.retirements.clone() }
    }
}

#[derive(Serialize, Deserialize)]
struct Kept<S, R> {
    version: u32,
    boot: String,
    quiesced: S,
    /// A process of before did not know them.
    #[serde(default)]
    retired: R,
}

/// A moment as it is since the kernel was booted, and as the clock of this process has it.
#[derive(Clone, Debug)]
pub(super) struct Clock {
    boot: String,
    uptime: Duration,
    now: Instant,
}

impl Clock {
    /// Now.
    ///
    /// # Errors
    /// `/proc` does not tell.
    pub(super) fn read() -> io::Result<Self> {
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_owned();
        let uptime = fs::read_to_string("/proc/uptime")?;
        let seconds = uptime.split_whitespace().next().and_then(|seconds| seconds.parse().ok());
        let uptime = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()).ok_or(io::ErrorKind::InvalidData)?;
        Ok(Self { boot, uptime, now: Instant::now() })
    }

    fn since_boot(&self, at: Instant) -> Duration {
        self.uptime.saturating_sub(self.now.saturating_duration_since(at))
    }

    /// Never later than now.
    fn instant(&self, since_boot: Duration) -> Instant {
        self.now.checked_sub(self.uptime.saturating_sub(since_boot)).unwrap_or(self.now)
    }
}

/// What an earlier process has kept since the same boot.
#[must_use]
pub(super) fn load(state_dir: &Path) -> Leaving {
    let read = Clock::read().and_then(|clock| read(state_dir, &clock));
    read.unwrap_or_else(|error| {
        if error.kind() != io::ErrorKind::NotFound {
            warn!(%error, "it is not known since when real servers are quiesced, and ranges without ports; they get their time anew");
        }
        Leaving::default()
    })
}

fn read(state_dir: &Path, clock: &Clock) -> io::Result<Leaving> {
    let kept: Kept<Vec<_>, Vec<_>> = serde_json::from_slice(&fs::read(state_dir.join(FILE))?)?;
    if kept.version != VERSION || kept.boot != clock.boot {
        return Ok(Leaving::default());
    }
    let quiesced = kept.quiesced.into_iter().map(|(service, server, since_boot)| ((service, server), clock.instant(since_boot)));
    let retirements = kept.retired.into_iter().map(|(range, since_boot)| (range, clock.instant(since_boot)));
    Ok(Leaving { quiesced: quiesced.collect(), retirements: retirements.collect() })
}

/// Keeps this.
///
/// # Errors
/// The directory cannot be made, or the file not be written.
pub(super) fn save(state_dir: &Path, leaving: &Leaving, clock: &Clock) -> io::Result<()> {
    fs::create_dir_all(state_dir)?;
    let unfinished = state_dir.join(format!(".{FILE}"));
    let quiesced: Vec<_> = leaving.quiesced.iter().map(|((service, server), since)| (service, server, clock.since_boot(*since))).collect();
    let retired: Vec<_> = leaving.retirements.iter().map(|(range, since)| (range, clock.since_boot(*since))).collect();
    let kept = Kept { version: VERSION, boot: clock.boot.clone(), quiesced, retired };
    fs::write(&unfinished, serde_json::to_vec(&kept)?)?;
    fs::rename(unfinished, state_dir.join(FILE))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{PortRange, Protocol};
    use crate::desired::ServiceKey;
    use crate::observed::RetiredRange;

    #[test]
    fn moments_survive_a_start_and_not_a_reboot() {
        let state_dir = tempfile::TempDir::new().unwrap();
        let path = state_dir.path().join("state");
        let service = ServiceKey { vip: "10.0.0.7".parse().unwrap(), protocol: Protocol::Tcp, ports: PortRange::LOWEST };
        let range = RetiredRange { vip: service.vip, protocol: service.protocol, mark: 64 };
        let first = Clock { boot: "a".to_owned(), uptime: Duration::from_secs(1000), now: Instant::now() };
        let since = |seconds| first.now.checked_sub(Duration::from_secs(seconds)).unwrap();
        let quiesced = Quiesced::from([((service, "10.1.0.1:80".parse().unwrap()), since(7))]);
        let leaving = Leaving { quiesced, retirements: [(range, since(9))].into() };
        save(&path, &leaving, &first).unwrap();
        assert_eq!(read(&path, &first).unwrap(), leaving);
        let later = |clock: Clock| {
            let Leaving { quiesced, retirements } = read(&path, &clock).unwrap();
            quiesced.into_values().chain(retirements.into_values()).map(|since| (clock.now - since).as_secs()).collect::<Vec<_>>()
        };
        assert_eq!(later(Clock { uptime: Duration::from_secs(1005), ..first.clone() }), [12, 14]);
        assert_eq!(later(Clock { uptime: Duration::from_secs(1), ..first.clone() }), [0, 0], "the clock of a container");
        assert_eq!(later(Clock { boot: "b".to_owned(), ..first.clone() }).len(), 0);
        let of_before = serde_json::json!({"version": VERSION, "boot": "a", "quiesced": []});
        fs::write(path.join(FILE), of_before.to_string()).unwrap();
        assert_eq!(read(&path, &first).unwrap(), Leaving::default());
        fs::write(path.join(FILE), "{").unwrap();
        assert!(read(&path, &first).is_err());
        assert!(Clock::read().unwrap().uptime > Duration::ZERO);
    }
}
