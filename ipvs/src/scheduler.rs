// SPDX-License-Identifier: Apache-2.0
//! Schedulers by the names that the kernel and `ipvsadm` give them.

use std::fmt;
use std::str::FromStr;

/// How a new connection finds its real server.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Scheduler {
    /// Round robin.
    Rr,
    /// Weighted round robin.
    Wrr,
    /// Least connections.
    Lc,
    /// Least connections relative to the weight.
    Wlc,
    /// Locality-based least connections: by destination address.
    Lblc,
    /// The same with a set of servers for each destination.
    Lblcr,
    /// Destination hashing.
    Dh,
    /// Source hashing.
    Sh,
    /// Maglev hashing of the source.
    Mh,
    /// Shortest expected delay.
    Sed,
    /// Never queue: an idle server, else the shortest expected delay.
    Nq,
    /// Weighted fail-over: the available server of the highest weight.
    Fo,
    /// Weighted overflow: the server of the highest weight with fewer connections than its weight.
    Ovf,
    /// The better of two random ones.
    Twos,
    /// Another one, as the kernel shows it; `none` is a service without a scheduler. Never one of the names above.
    Other(String),
}

impl Scheduler {
    /// All that have a name here.
    pub const ALL: [Self; 14] = [
        Self::Rr,
        Self::Wrr,
        Self::Lc,
        Self::Wlc,
        Self::Lblc,
        Self::Lblcr,
        Self::Dh,
        Self::Sh,
        Self::Mh,
        Self::Sed,
        Self::Nq,
        Self::Fo,
        Self::Ovf,
        Self::Twos,
    ];

    /// The scheduler of a name that the kernel showed, known or not.
    pub fn named(name: &str) -> Self {
        name.parse().unwrap_or_else(|UnknownScheduler(name)| Self::Other(name))
    }

    /// Its name in the kernel; that of its module is `ip_vs_` and this.
    pub fn name(&self) -> &str {
        match self {
            Self::Rr => "rr",
            Self::Wrr => "wrr",
            Self::Lc => "lc",
            Self::Wlc => "wlc",
            Self::Lblc => "lblc",
            Self::Lblcr => "lblcr",
            Self::Dh => "dh",
            Self::Sh => "sh",
            Self::Mh => "mh",
            Self::Sed => "sed",
            Self::Nq => "nq",
            Self::Fo => "fo",
            Self::Ovf => "ovf",
            Self::Twos => "twos",
            Self::Other(name) => name,
        }
    }
}

impl fmt::Display for Scheduler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A name that no scheduler known here has.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("no IPVS scheduler is called '{0}'")]
pub struct UnknownScheduler(pub String);

impl FromStr for Scheduler {
    type Err = UnknownScheduler;

    fn from_str(name: &str) -> Result<Self, UnknownScheduler> {
        Self::ALL.into_iter().find(|scheduler| scheduler.name() == name).ok_or_else(|| UnknownScheduler(name.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written() {
        for scheduler in Scheduler::ALL {
            assert_eq!(scheduler.to_string().parse(), Ok(scheduler.clone()));
            assert_eq!(Scheduler::named(scheduler.name()), scheduler);
        }
        assert_eq!(Scheduler::named("none"), Scheduler::Other("none".to_owned()));
        assert_eq!("RR".parse::<Scheduler>(), Err(UnknownScheduler("RR".to_owned())));
    }
}
