// SPDX-License-Identifier: Apache-2.0
//! Points in time as they are written: RFC 3339, UTC, whole seconds.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Where no calendar can write a year of four digits (RFC 3339 §5.6).
const LAST_SECOND: u64 = 253_402_300_799;

/// A point in time, cut to whole seconds, from 1970 to 9999.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Time(SystemTime);

impl Time {
    /// In seconds since 1970.
    #[must_use]
    pub fn seconds(self) -> u64 {
        self.0.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
    }

    /// How much later `now` is; nothing where it is earlier.
    #[must_use]
    pub fn until(self, now: SystemTime) -> Duration {
        now.duration_since(self.0).unwrap_or_default()
    }
}

impl From<SystemTime> for Time {
    fn from(time: SystemTime) -> Self {
        let seconds = time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        Self(UNIX_EPOCH + Duration::from_secs(seconds.min(LAST_SECOND)))
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        humantime::format_rfc3339_seconds(self.0).fmt(f)
    }
}

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        humantime::parse_rfc3339(&text).map(Self::from).map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_and_read() {
        let time = Time::from(UNIX_EPOCH + Duration::from_millis(1_795_824_000_999));
        assert_eq!(serde_json::to_string(&time).unwrap(), "\"2026-11-28T00:00:00Z\"");
        assert_eq!(serde_json::from_str::<Time>("\"2026-11-28T00:00:00Z\"").unwrap(), time);
        assert!(serde_json::from_str::<Time>("\"yesterday\"").is_err());
    }

    #[test]
    fn no_clock_is_too_wrong() {
        assert_eq!(Time::from(UNIX_EPOCH - Duration::from_secs(1)).to_string(), "1970-01-01T00:00:00Z");
        assert_eq!(Time::from(UNIX_EPOCH + Duration::from_secs(1 << 62)).to_string(), "9999-12-31T23:59:59Z");
        assert_eq!(Time::from(SystemTime::now()).until(UNIX_EPOCH), Duration::ZERO);
    }
}
