// SPDX-License-Identifier: Apache-2.0
//! What an operator says of a virtual router, and what cannot be said.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use crate::identity::{Addresses, Family, Interval, Priority, Version, Vrid};
use crate::wire::{ChecksumForm, TTL};

/// No time that is configured may be longer.
const LONGEST: Duration = Duration::from_secs(86_400);
/// Announcements come no closer.
const SHORTEST_SPACING: Duration = Duration::from_millis(10);

/// One virtual router on one interface (RFC 9568 §6.1).
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Config {
    /// The protocol. Messages of the other version are discarded.
    pub version: Version,
    /// Virtual Router Identifier.
    pub vrid: Vrid,
    /// Priority. 255 is for the router that owns the addresses: it is Active as soon as it can.
    pub priority: Priority,
    /// Advertisement_Interval. A Backup Router of version 3 goes by what it hears.
    pub interval: Interval,
    /// The source of advertisements: the primary IPv4 address of the interface, or its IPv6 link-local address. Of equal priorities the higher address wins.
    pub primary: IpAddr,
    /// The virtual addresses. RFC 9568 §5.2.9 wants a link-local address at the head of those of IPv6.
    pub addresses: Addresses,
    /// To whom advertisements are sent, and from whom they are accepted.
    pub transport: Transport,
    /// Preempt_Mode.
    pub preempt: Preempt,
    /// Accept_Mode: whether the Active Router takes packets to the addresses for its own even where it does not own them.
    pub accept: bool,
    /// Of version 3 and IPv4.
    pub checksum: ChecksumChoice,
    /// How the neighbours are told where the addresses are.
    pub announcing: Announcing,
    /// The least TTL or Hop Limit that is accepted: 255, unless peers are not on the link.
    pub least_ttl: u8,
}

impl Config {
    /// With everything else as the standard has it: version 3, priority 100, an advertisement per second, multicast, preemption. But packets to the addresses
    /// are accepted, for a balancer that does not is of no use.
    #[must_use]
    pub const fn new(vrid: Vrid, primary: IpAddr, addresses: Addresses) -> Self {
        Self {
            version: Version::V3,
            vrid,
            priority: Priority::DEFAULT,
            interval: Interval::DEFAULT,
            primary,
            addresses,
            transport: Transport::Multicast,
            preempt: Preempt::After(Duration::ZERO),
            accept: true,
            checksum: ChecksumChoice::AsHeard,
            announcing: Announcing::DEFAULT,
            least_ttl: TTL,
        }
    }

    /// Whether a virtual router can be so.
    ///
    /// # Errors
    /// It contradicts itself or the standard.
    pub fn check(&self) -> Result<(), ConfigError> {
        let family = self.addresses.family();
        if self.version == Version::V2 && family == Family::Ipv6 {
            return Err(ConfigError::Version2Ipv6);
        }
        if !self.interval.fits(self.version) {
            return Err(ConfigError::Interval { interval: self.interval, version: self.version });
        }
        self.check_primary()?;
        if let Transport::Unicast { peers, .. } = &self.transport {
            if let Some(peer) = peers.iter().find(|peer| Family::of(**peer) != family) {
                return Err(ConfigError::Family { address: *peer, family });
            }
            if peers.contains(&self.primary) {
                return Err(ConfigError::OwnPeer(self.primary));
            }
        }
        self.check_times()
    }

    fn check_times(&self) -> Result<(), ConfigError> {
        let Announcing { times, spacing, refresh } = self.announcing;
        if times == 0 {
            return Err(ConfigError::NoAnnouncement);
        }
        let delay = match self.preempt {
            Preempt::After(delay) => Some(delay),
            Preempt::Never => None,
        };
        let ranges = [
            ("spacing of announcements", Some(spacing), SHORTEST_SPACING),
            ("refresh interval of announcements", refresh, SHORTEST_SPACING),
            ("delay of preemption", delay, Duration::ZERO),
        ];
        for (what, time, least) in ranges {
            if let Some(time) = time.filter(|time| *time < least || *time > LONGEST) {
                return Err(ConfigError::Time { what, time, least });
            }
        }
        Ok(())
    }

    fn check_primary(&self) -> Result<(), ConfigError> {
        let family = self.addresses.family();
        if Family::of(self.primary) != family {
            return Err(ConfigError::Family { address: self.primary, family });
        }
        if let IpAddr::V6(primary) = self.primary
            && self.transport == Transport::Multicast
            && !primary.is_unicast_link_local()
        {
            return Err(ConfigError::NotLinkLocal(self.primary));
        }
        if !self.priority.is_owner() && self.addresses.iter().any(|address| address == self.primary) {
            return Err(ConfigError::VirtualPrimary(self.primary));
        }
        Ok(())
    }

    /// # Errors
    /// The configuration that is to follow contradicts itself or the standard, or is not that of the same virtual router.
    pub(crate) fn check_change(&self, next: &Self) -> Result<(), ConfigError> {
        next.check()?;
        if (self.version, self.vrid, self.addresses.family()) == (next.version, next.vrid, next.addresses.family()) {
            Ok(())
        } else {
            Err(ConfigError::OtherRouter)
        }
    }
}

/// How advertisements travel.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Transport {
    /// To the group of the family, and from it alone.
    Multicast,
    /// To each of these, and from them alone.
    Unicast {
        /// The other routers of the virtual router.
        peers: BTreeSet<IpAddr>,
        /// Whether it starts without peers: there are none. Else none are known yet, and each of them could be Active.
        single: bool,
    },
}

impl Transport {
    pub(super) fn destinations(&self, family: Family) -> Vec<IpAddr> {
        match self {
            Self::Multicast => vec![family.multicast_group()],
            Self::Unicast { peers, .. } => peers.iter().copied().collect(),
        }
    }

    pub(super) fn has(&self, peer: IpAddr) -> bool {
        match self {
            Self::Multicast => false,
            Self::Unicast { peers, .. } => peers.contains(&peer),
        }
    }

    /// Whether there is somebody who could follow.
    pub(super) fn has_others(&self) -> bool {
        !matches!(self, Self::Unicast { peers, .. } if peers.is_empty())
    }

    /// Whether those are not known yet that could be Active.
    pub(super) fn is_without_peers(&self) -> bool {
        matches!(self, Self::Unicast { peers, single: false } if peers.is_empty())
    }
}

/// Whether a router that is Active is left so by one of higher priority (RFC 9568 §6.1, Preempt_Mode). One of the lowest priority never is: its node does not serve.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Preempt {
    /// It is, until it is heard no more. The owner of the addresses does not mind.
    Never,
    /// It is until it has been heard for this long. With zero its advertisements are ignored, as the standard has it: Active_Down_Timer lapses.
    After(Duration),
}

impl Preempt {
    pub(super) const fn delay(self) -> Option<Duration> {
        match self {
            Self::After(delay) => Some(delay),
            Self::Never => None,
        }
    }
}

/// The form of the checksum that is sent, where there are two.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ChecksumChoice {
    /// As the peer sends it, or as was heard last; before that as RFC 9568 has it, without pseudo header.
    AsHeard,
    /// This one.
    Always(ChecksumForm),
}

/// How neighbours are told where the addresses are, on becoming Active and after contention.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Announcing {
    /// So many times; at least once.
    pub times: u32,
    /// The time between those.
    pub spacing: Duration,
    /// And again after this, for as long as the router is Active.
    pub refresh: Option<Duration>,
}

impl Announcing {
    /// Five times, a second apart, and then each minute.
    pub const DEFAULT: Self = Self { times: 5, spacing: Duration::from_secs(1), refresh: Some(Duration::from_secs(60)) };
}

/// Why this cannot be a virtual router.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum ConfigError {
    /// Version 2 is of IPv4 (RFC 3768 §1).
    #[error("version 2 has no IPv6: use version 3")]
    Version2Ipv6,
    /// The version cannot say this interval.
    #[error("an interval of {interval} cannot be told in version {version}: expected {}", match version {
        Version::V2 => "whole seconds, 1s to 255s",
        Version::V3 => "10ms to 40.95s",
    })]
    Interval {
        /// As configured.
        interval: Interval,
        /// As configured.
        version: Version,
    },
    /// A primary address or peer of the other family.
    #[error("{address} is not {family}, as the virtual addresses are")]
    Family {
        /// As configured.
        address: IpAddr,
        /// Of the virtual addresses.
        family: Family,
    },
    /// IPv6 advertisements to the group come from a link-local address (RFC 9568 §5.1.2.1).
    #[error("{0} is not link-local, as the source of multicast IPv6 advertisements is")]
    NotLinkLocal(IpAddr),
    /// Advertisements would come from a virtual address, which the routers have in common.
    #[error("{0} is a virtual address, and cannot be the source of advertisements")]
    VirtualPrimary(IpAddr),
    /// The router is listed as its own peer.
    #[error("{0} is the own address, and cannot be a peer")]
    OwnPeer(IpAddr),
    /// Neighbours would never be told.
    #[error("neighbours are to be told 0 times where the addresses are: expected 1 or more")]
    NoAnnouncement,
    /// A spacing, refresh interval or delay out of range.
    #[error("a {what} of {time:?}: expected {least:?} to {LONGEST:?}")]
    Time {
        /// Which of them.
        what: &'static str,
        /// As configured.
        time: Duration,
        /// The least that there may be.
        least: Duration,
    },
    /// VRID, version and family cannot change.
    #[error("another VRID, version or family is another virtual router")]
    OtherRouter,
}
