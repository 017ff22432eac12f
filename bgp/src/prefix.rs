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
///
/// The address is in two words, which copies and comparisons keep in registers: RIBs do little else. They are as compact as its octets.
#[derive(Clone, Copy, Eq, Hash, PartialEq)]
#[repr(Rust, packed(4))]
pub struct Prefix {
    /// The first 64 bits of the address; of IPv4 all 32.
    high: u64,
    /// The others.
    low: u64,
    length: u8,
    family: Family,
}

impl Prefix {
    /// A prefix of exactly these bits.
    ///
    /// # Errors
    /// The length is over that of the family, or a bit beyond it is set.
    pub fn new(address: IpAddr, length: u8) -> Result<Self, PrefixError> {
        let prefix = Self::truncated(address, length)?;
        if prefix.address() == address { Ok(prefix) } else { Err(PrefixError::HostBits { address, length }) }
    }

    /// A prefix of which bits beyond the length are cleared, as a receiver does (RFC 4271 §4.3: their value is irrelevant).
    ///
    /// # Errors
    /// The length is over that of the family.
    pub fn truncated(address: IpAddr, length: u8) -> Result<Self, PrefixError> {
        let host = Self::host(address);
        if length > host.length {
            return Err(PrefixError::Length { address, length });
        }
        let mask = u128::MAX.checked_shl(128 - u32::from(length)).unwrap_or(0);
        let (high, low) = halves(mask);
        Ok(Self { high: host.high & high, low: host.low & low, length, ..host })
    }

    /// The /32 or /128 of one address.
    #[must_use]
    pub const fn host(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(address) => Self { high: (address.to_bits() as u64) << 32, low: 0, length: 32, family: Family::Ipv4Unicast },
            IpAddr::V6(address) => {
                let (high, low) = halves(address.to_bits());
                Self { high, low, length: 128, family: Family::Ipv6Unicast }
            }
        }
    }

    /// Its first address.
    #[must_use]
    pub const fn address(&self) -> IpAddr {
        match self.family {
            Family::Ipv4Unicast => IpAddr::V4(Ipv4Addr::from_bits((self.high >> 32) as u32)),
            Family::Ipv6Unicast => IpAddr::V6(Ipv6Addr::from_bits((self.high as u128) << 64 | self.low as u128)),
        }
    }

    /// How many bits count.
    #[must_use]
    pub const fn length(&self) -> u8 {
        self.length
    }

    /// The family in which it is announced.
    #[must_use]
    pub const fn family(&self) -> Family {
        self.family
    }

    /// Whether the address lies in it; never across families.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        Self::truncated(address, self.length).is_ok_and(|other| other == *self)
    }
}

/// The two halves of an address of 128 bits.
const fn halves(bits: u128) -> (u64, u64) {
    ((bits >> 64) as u64, (bits & u64::MAX as u128) as u64)
}

impl Ord for Prefix {
    /// By family, address and length.
    fn cmp(&self, other: &Self) -> Ordering {
        let order = |prefix: &Self| (prefix.family, prefix.high, prefix.low, prefix.length);
        order(self).cmp(&order(other))
    }
}

impl PartialOrd for Prefix {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address(), self.length)
    }
}

impl fmt::Debug for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
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

    #[test]
    fn they_are_ordered_by_family_address_and_length() {
        let texts = [
            "0.0.0.0/0",
            "10.0.0.0/8",
            "10.0.0.0/24",
            "10.0.0.0/32",
            "10.0.0.1/32",
            "::/0",
            "0:0:0:1::/64",
            "2001:db8::/32",
            "2001:db8::/64",
            "2001:db8::1/128",
        ];
        let prefixes: Vec<_> = texts
            .iter()
            .map(|text| {
                text.split_once('/')
                    .map(|(address, length)| Prefix::new(address.parse().unwrap(), length.parse().unwrap()).unwrap())
                    .unwrap()
            })
            .collect();
        assert!(prefixes.is_sorted_by(|one, another| one < another), "{prefixes:?}");
        assert_eq!(prefixes.iter().map(ToString::to_string).collect::<Vec<_>>(), texts);
    }
}
