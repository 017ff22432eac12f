// SPDX-License-Identifier: Apache-2.0
//! Since when real servers are quiesced, kept in the state directory: a restart gives none of them its time anew.
//!
//! Input and output: a [`Quiesced`] in `quiesced.json`, replaced as a whole, with times since the kernel was booted: those of the wall may be set. What is
//! kept counts only where the next process finds the real server quiesced still. The file is disposable: without it, or after a reboot, with which what it
//! tells of has gone, the time is counted from the start of the process.

use std::path::Path;
use std::time::{Duration, Instant};
use std::{fs, io};

use serde::{Deserialize, Serialize};
use tracing::warn;

use crate::observed::Quiesced;

const FILE: &str = "quiesced.json";
const VERSION: u32 = 1;

#[derive(Serialize, Deserialize)]
struct Kept<S> {
    version: u32,
    boot: String,
    quiesced: S,
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
pub(super) fn load(state_dir: &Path) -> Quiesced {
    let read = Clock::read().and_then(|clock| read(state_dir, &clock));
    read.unwrap_or_else(|error| {
        if error.kind() != io::ErrorKind::NotFound {
            warn!(%error, "it is not known since when real servers are quiesced; they get their time anew");
        }
        Quiesced::new()
    })
}

fn read(state_dir: &Path, clock: &Clock) -> io::Result<Quiesced> {
    let Kept { version, boot, quiesced } = serde_json::from_slice::<Kept<Vec<_>>>(&fs::read(state_dir.join(FILE))?)?;
    if version != VERSION || boot != clock.boot {
        return Ok(Quiesced::new());
    }
    Ok(quiesced.into_iter().map(|(service, server, since_boot)| ((service, server), clock.instant(since_boot))).collect())
}

/// Keeps this.
///
/// # Errors
/// The directory cannot be made, or the file not be written.
pub(super) fn save(state_dir: &Path, quiesced: &Quiesced, clock: &Clock) -> io::Result<()> {
    fs::create_dir_all(state_dir)?;
    let unfinished = state_dir.join(format!(".{FILE}"));
    let quiesced: Vec<_> = quiesced.iter().map(|((service, server), since)| (service, server, clock.since_boot(*since))).collect();
    fs::write(&unfinished, serde_json::to_vec(&Kept { version: VERSION, boot: clock.boot.clone(), quiesced })?)?;
    fs::rename(unfinished, state_dir.join(FILE))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{PortRange, Protocol};
    use crate::desired::ServiceKey;

    #[test]
    fn moments_survive_a_start_and_not_a_reboot() {
        let state_dir = tempfile::TempDir::new().unwrap();
        let path = state_dir.path().join("state");
        let service = ServiceKey { vip: "10.0.0.7".parse().unwrap(), protocol: Protocol::Tcp, ports: PortRange::LOWEST };
        let first = Clock { boot: "a".to_owned(), uptime: Duration::from_secs(1000), now: Instant::now() };
        let since = first.now.checked_sub(Duration::from_secs(7)).unwrap();
        save(&path, &Quiesced::from([((service, "10.1.0.1:80".parse().unwrap()), since)]), &first).unwrap();
        let later = |clock: Clock| read(&path, &clock).unwrap().into_values().map(|since| clock.now - since).collect::<Vec<_>>();
        assert_eq!(later(Clock { uptime: Duration::from_secs(1005), ..first.clone() }), [Duration::from_secs(12)]);
        assert_eq!(later(Clock { uptime: Duration::from_secs(1), ..first.clone() }), [Duration::ZERO], "the clock of a container");
        assert_eq!(later(Clock { boot: "b".to_owned(), ..first }).len(), 0);
        fs::write(path.join(FILE), "{").unwrap();
        assert!(read(&path, &first).is_err());
        assert!(Clock::read().unwrap().uptime > Duration::ZERO);
    }
}
