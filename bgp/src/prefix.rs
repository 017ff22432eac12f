// SPDX-License-Identifier: Apache-2.0
//! Destinations: an address family, and a prefix in which no host bit is set.

use std::cmp::Ordering;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// An address family together with a subsequent one (RFC 4760 §3): what a session can carry.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Family {
    /// AFI 1, SAFI 1.
    Ipv4Unicast,
    /// AFI 2, SAFI 1.
    Ipv6Unicast,
}

impl Family {
    /// All families of this speaker, in the order of their numbers.
    pub const ALL: [Self; 2] = [Self::Ipv4Unicast, Self::Ipv6Unicast];

    /// The Address Family Identifier.
    #[must_use]
    pub const fn afi(self) -> u16 {
        match self {
            Self::Ipv4Unicast => 1,
            Self::Ipv6Unicast => 2,
        }
    }

    /// The Subsequent Address Family Identifier.
    #[must_use]
    pub const fn safi(self) -> u8 {
        1
    }

    /// The family of these numbers, where this speaker has it.
    #[must_use]
    pub const fn from_numbers(afi: u16, safi: u8) -> Option<Self> {
        match (afi, safi) {
            (1, 1) => Some(Self::Ipv4Unicast),
            (2, 1) => Some(Self::Ipv6Unicast),
            _ => None,
        }
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ipv4Unicast => "ipv4-unicast",
            Self::Ipv6Unicast => "ipv6-unicast",
        })
    }
}

/// A destination: an address and how many of its leading bits count. Bits beyond are 0.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Prefix {
    address: IpAddr,
    length: u8,
}

impl Prefix {
    /// A prefix of exactly these bits.
    ///
    /// # Errors
    /// The length is over that of the family, or a bit beyond it is set.
    pub fn new(address: IpAddr, length: u8) -> Result<Self, PrefixError> {
        let prefix = Self::truncated(address, length)?;
        if prefix.address == address { Ok(prefix) } else { Err(PrefixError::HostBits { address, length }) }
    }

    /// A prefix of which bits beyond the length are cleared, as a receiver does (RFC 4271 §4.3: their value is irrelevant).
    ///
    /// # Errors
    /// The length is over that of the family.
    pub fn truncated(address: IpAddr, length: u8) -> Result<Self, PrefixError> {
        let too_long = PrefixError::Length { address, length };
        let address = match address {
            IpAddr::V4(v4) if length <= 32 => {
                let mask = u32::MAX.checked_shl(32 - u32::from(length)).unwrap_or(0);
                IpAddr::V4(Ipv4Addr::from_bits(v4.to_bits() & mask))
            }
            IpAddr::V6(v6) if length <= 128 => {
                let mask = u128::MAX.checked_shl(128 - u32::from(length)).unwrap_or(0);
                IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & mask))
            }
            _ => return Err(too_long),
        };
        Ok(Self { address, length })
    }

    /// The /32 or /128 of one address.
    #[must_use]
    pub const fn host(address: IpAddr) -> Self {
        let length = if address.is_ipv4() { 32 } else { 128 };
        Self { address, length }
    }

    /// Its first address.
    #[must_use]
    pub const fn address(&self) -> IpAddr {
        self.address
    }

    /// How many bits count.
    #[must_use]
    pub const fn length(&self) -> u8 {
        self.length
    }

    /// The family in which it is announced.
    #[must_use]
    pub const fn family(&self) -> Family {
        if self.address.is_ipv4() { Family::Ipv4Unicast } else { Family::Ipv6Unicast }
    }

    /// Whether the address lies in it; never across families.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        address.is_ipv4() == self.address.is_ipv4() && Self::truncated(address, self.length).is_ok_and(|other| other == *self)
    }
}

impl Ord for Prefix {
    /// By family, address and length. As numbers, because every look-up in a RIB compares many.
    fn cmp(&self, other: &Self) -> Ordering {
        let packed = |address: Ipv4Addr, length| u64::from(address.to_bits()) << 8 | u64::from(length);
        match (self.address, other.address) {
            (IpAddr::V4(one), IpAddr::V4(another)) => packed(one, self.length).cmp(&packed(another, other.length)),
            (IpAddr::V6(one), IpAddr::V6(another)) => (one.to_bits(), self.length).cmp(&(another.to_bits(), other.length)),
            (IpAddr::V4(_), IpAddr::V6(_)) => Ordering::Less,
            (IpAddr::V6(_), IpAddr::V4(_)) => Ordering::Greater,
        }
    }
}

impl PartialOrd for Prefix {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.length)
    }
}

/// Why an address and a length make no prefix.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum PrefixError {
    /// The length is over 32 or 128.
    #[error("/{length} is longer than the address {address}")]
    Length {
        /// The address given.
        address: IpAddr,
        /// The length given.
        length: u8,
    },
    /// A bit beyond the length is set.
    #[error("{address}/{length} has bits set beyond its length")]
    HostBits {
        /// The address given.
        address: IpAddr,
        /// The length given.
        length: u8,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_bits_are_refused_or_cleared() {
        let address = "10.0.0.7".parse().unwrap();
        assert_eq!(Prefix::new(address, 24), Err(PrefixError::HostBits { address, length: 24 }));
        assert_eq!(Prefix::truncated(address, 24).unwrap().to_string(), "10.0.0.0/24");
        assert_eq!(Prefix::truncated(address, 0).unwrap().to_string(), "0.0.0.0/0");
        assert_eq!(Prefix::truncated(address, 33), Err(PrefixError::Length { address, length: 33 }));
        assert_eq!(Prefix::truncated("2001:db8::1".parse().unwrap(), 0).unwrap().to_string(), "::/0");
    }

    #[test]
    fn contains_only_its_own_family() {
        let prefix = Prefix::new("0.0.0.0".parse().unwrap(), 0).unwrap();
        assert!(prefix.contains("192.0.2.1".parse().unwrap()));
        assert!(!prefix.contains("2001:db8::1".parse().unwrap()));
    }
}
