// SPDX-License-Identifier: Apache-2.0
//! The numbers by which speakers know each other. Each is valid by construction.

use std::fmt;
use std::net::Ipv4Addr;
use std::num::NonZeroU32;
use std::time::Duration;

/// An autonomous system number, four octets (RFC 6793), never 0 (RFC 7607).
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Asn(NonZeroU32);

impl Asn {
    /// AS_TRANS, which stands for a number that does not fit two octets (RFC 6793 §9).
    pub const TRANS: u16 = 23456;

    /// `None` for 0, which no speaker may use (RFC 7607 §2).
    #[must_use]
    pub const fn new(number: u32) -> Option<Self> {
        match NonZeroU32::new(number) {
            Some(number) => Some(Self(number)),
            None => None,
        }
    }

    /// The number.
    #[must_use]
    pub const fn number(self) -> u32 {
        self.0.get()
    }

    /// What the two-octet field holds: the number, or AS_TRANS where it does not fit (RFC 6793 §4.1).
    #[must_use]
    pub fn two_octet(self) -> u16 {
        u16::try_from(self.number()).unwrap_or(Self::TRANS)
    }
}

impl fmt::Display for Asn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The BGP Identifier of a speaker: four octets, not 0 (RFC 6286 §2.1).
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct BgpIdentifier(NonZeroU32);

impl BgpIdentifier {
    /// `None` for 0 (RFC 6286 §2.1).
    #[must_use]
    pub const fn new(number: u32) -> Option<Self> {
        match NonZeroU32::new(number) {
            Some(number) => Some(Self(number)),
            None => None,
        }
    }

    /// The identifier as the unsigned number that collision detection compares (RFC 6286 §2.3).
    #[must_use]
    pub const fn number(self) -> u32 {
        self.0.get()
    }
}

impl TryFrom<Ipv4Addr> for BgpIdentifier {
    type Error = ZeroIdentifier;

    fn try_from(address: Ipv4Addr) -> Result<Self, ZeroIdentifier> {
        Self::new(address.to_bits()).ok_or(ZeroIdentifier)
    }
}

impl fmt::Display for BgpIdentifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Ipv4Addr::from_bits(self.number()).fmt(f)
    }
}

/// 0.0.0.0 was given as a BGP Identifier (RFC 6286 §2.1).
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("a BGP Identifier must not be 0.0.0.0")]
pub struct ZeroIdentifier;

/// A hold time: 0 (no keepalives at all), or 3 to 65,535 seconds (RFC 4271 §4.2).
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct HoldTime(u16);

impl HoldTime {
    /// 90 seconds, as RFC 4271 §10 suggests.
    pub const DEFAULT: Self = Self(90);
    /// No hold timer and no keepalives.
    pub const ZERO: Self = Self(0);

    /// `None` for 1 and 2, which a speaker must refuse (RFC 4271 §6.2).
    #[must_use]
    pub const fn from_secs(seconds: u16) -> Option<Self> {
        match seconds {
            1 | 2 => None,
            _ => Some(Self(seconds)),
        }
    }

    /// The value on the wire, in seconds.
    #[must_use]
    pub const fn secs(self) -> u16 {
        self.0
    }

    /// How long silence may last; `None` where the timer is off.
    #[must_use]
    pub fn duration(self) -> Option<Duration> {
        (self.0 != 0).then(|| Duration::from_secs(self.0.into()))
    }
}
