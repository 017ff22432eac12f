// SPDX-License-Identifier: Apache-2.0
//! The numbers by which routers know a virtual router, and its addresses. Each is valid by construction.

use std::collections::BTreeSet;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::num::NonZeroU8;
use std::time::Duration;

/// The protocol on the wire.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Version {
    /// RFC 3768: IPv4 only, intervals in whole seconds.
    V2,
    /// RFC 9568: IPv4 and IPv6, intervals in centiseconds.
    V3,
}

impl Version {
    /// The field of the message.
    #[must_use]
    pub const fn number(self) -> u8 {
        match self {
            Self::V2 => 2,
            Self::V3 => 3,
        }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.number().fmt(f)
    }
}

/// The address family of a virtual router: routers of both families with one VRID are two (RFC 9568 §1).
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Family {
    /// IPv4.
    Ipv4,
    /// IPv6.
    Ipv6,
}

impl Family {
    /// Of this address.
    #[must_use]
    pub const fn of(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(_) => Self::Ipv4,
            IpAddr::V6(_) => Self::Ipv6,
        }
    }

    /// Where advertisements are multicast to (RFC 9568 §5.1.1.2, §5.1.2.2).
    #[must_use]
    pub const fn multicast_group(self) -> IpAddr {
        match self {
            Self::Ipv4 => IpAddr::V4(Ipv4Addr::new(224, 0, 0, 18)),
            Self::Ipv6 => IpAddr::V6(Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0x12)),
        }
    }

    /// How many addresses an advertisement lists at most: what the count can say, and what fits a packet of 1,500 octets.
    #[must_use]
    pub const fn most_listed(self) -> usize {
        match self {
            Self::Ipv4 => 255,
            Self::Ipv6 => 90,
        }
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ipv4 => "IPv4",
            Self::Ipv6 => "IPv6",
        })
    }
}

/// Virtual Router Identifier, 1 to 255 (RFC 9568 §5.2.3).
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Vrid(NonZeroU8);

impl Vrid {
    /// `None` for 0.
    #[must_use]
    pub const fn new(number: u8) -> Option<Self> {
        match NonZeroU8::new(number) {
            Some(number) => Some(Self(number)),
            None => None,
        }
    }

    /// The number.
    #[must_use]
    pub const fn number(self) -> u8 {
        self.0.get()
    }

    /// The MAC address that goes with the virtual router (RFC 9568 §7.3).
    #[must_use]
    pub const fn mac(self, family: Family) -> [u8; 6] {
        let block = match family {
            Family::Ipv4 => 1,
            Family::Ipv6 => 2,
        };
        [0x00, 0x00, 0x5E, 0x00, block, self.number()]
    }
}

impl fmt::Display for Vrid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The priority of a router that takes part, 1 to 255 (RFC 9568 §5.2.4). The 0 of one that leaves is not a priority here.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Priority(NonZeroU8);

impl Priority {
    /// What a router has that is told nothing else.
    pub const DEFAULT: Self = Self(NonZeroU8::new(100).unwrap());
    /// Of a router whose node does not do what the addresses are there for, as long as it takes part all the same: anybody else is better.
    pub const LOWEST: Self = Self(NonZeroU8::MIN);
    /// Of the router that owns the addresses: they are its own.
    pub const OWNER: Self = Self(NonZeroU8::MAX);

    /// `None` for 0.
    #[must_use]
    pub const fn new(number: u8) -> Option<Self> {
        match NonZeroU8::new(number) {
            Some(number) => Some(Self(number)),
            None => None,
        }
    }

    /// The number.
    #[must_use]
    pub const fn number(self) -> u8 {
        self.0.get()
    }

    /// Whether the router owns the addresses.
    #[must_use]
    pub fn is_owner(self) -> bool {
        self == Self::OWNER
    }
}

impl fmt::Display for Priority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Advertisement_Interval, in centiseconds: the time between two advertisements (RFC 9568 §6.1).
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Interval(u16);

impl Interval {
    /// One second.
    pub const DEFAULT: Self = Self(100);
    /// The longest that version 3 can say: 40.95 seconds.
    pub const LONGEST_V3: Self = Self(0x0FFF);
    /// The longest that version 2 can say: 255 seconds.
    pub const LONGEST: Self = Self(25_500);

    /// `None` for 0, and for more than [`LONGEST`](Self::LONGEST).
    #[must_use]
    pub const fn from_centiseconds(centiseconds: u16) -> Option<Self> {
        if centiseconds == 0 || centiseconds > Self::LONGEST.0 { None } else { Some(Self(centiseconds)) }
    }

    /// In centiseconds.
    #[must_use]
    pub const fn centiseconds(self) -> u16 {
        self.0
    }

    /// Whether this version can say it.
    #[must_use]
    pub const fn fits(self, version: Version) -> bool {
        match version {
            Version::V2 => self.0.is_multiple_of(100),
            Version::V3 => self.0 <= Self::LONGEST_V3.0,
        }
    }

    /// As a time.
    #[must_use]
    pub const fn duration(self) -> Duration {
        Duration::from_millis(self.0 as u64 * 10)
    }
}

impl fmt::Display for Interval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.duration())
    }
}

/// The addresses of a virtual router: at least one, all of one family, in the order in which they are listed.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Addresses(Kind);

#[derive(Clone, Debug, Eq, PartialEq)]
enum Kind {
    V4(Vec<Ipv4Addr>),
    V6(Vec<Ipv6Addr>),
}

/// Why these are no [`Addresses`].
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum AddressesError {
    /// There is none.
    #[error("a virtual router needs at least one address")]
    Empty,
    /// They are of both families.
    #[error("{0} is not of the family of the first address: a virtual router is of IPv4 or of IPv6")]
    Mixed(IpAddr),
    /// One is there twice.
    #[error("{0} is listed twice")]
    Twice(IpAddr),
}

impl Addresses {
    /// # Errors
    /// There is none, one is there twice, or they are not of one family.
    pub fn new(addresses: &[IpAddr]) -> Result<Self, AddressesError> {
        let mut sorted = addresses.to_vec();
        sorted.sort_unstable();
        if let Some([twice, _]) = sorted.array_windows().find(|[one, next]| one == next) {
            return Err(AddressesError::Twice(*twice));
        }
        let kind = match addresses.first() {
            None => return Err(AddressesError::Empty),
            Some(IpAddr::V4(_)) => Kind::V4(addresses.iter().map(|address| ipv4(*address)).collect::<Result<_, _>>()?),
            Some(IpAddr::V6(_)) => Kind::V6(addresses.iter().map(|address| ipv6(*address)).collect::<Result<_, _>>()?),
        };
        Ok(Self(kind))
    }

    /// As listed by a message, which may say the same twice. `None` where there is none.
    pub(crate) fn of_v4(addresses: Vec<Ipv4Addr>) -> Option<Self> {
        (!addresses.is_empty()).then_some(Self(Kind::V4(addresses)))
    }

    /// As listed by a message, which may say the same twice. `None` where there is none.
    pub(crate) fn of_v6(addresses: Vec<Ipv6Addr>) -> Option<Self> {
        (!addresses.is_empty()).then_some(Self(Kind::V6(addresses)))
    }

    /// Their family.
    #[must_use]
    pub const fn family(&self) -> Family {
        match self.0 {
            Kind::V4(_) => Family::Ipv4,
            Kind::V6(_) => Family::Ipv6,
        }
    }

    /// How many there are.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "there is always one")]
    pub fn len(&self) -> usize {
        match &self.0 {
            Kind::V4(addresses) => addresses.len(),
            Kind::V6(addresses) => addresses.len(),
        }
    }

    /// In their order.
    pub fn iter(&self) -> impl Iterator<Item = IpAddr> {
        let (v4, v6) = match &self.0 {
            Kind::V4(addresses) => (addresses.as_slice(), [].as_slice()),
            Kind::V6(addresses) => ([].as_slice(), addresses.as_slice()),
        };
        v4.iter().copied().map(IpAddr::V4).chain(v6.iter().copied().map(IpAddr::V6))
    }

    /// Whether the same addresses are there, in any order.
    pub(crate) fn is_same_set(&self, other: &Self) -> bool {
        let sorted = |addresses: &Self| addresses.iter().collect::<BTreeSet<_>>();
        self == other || sorted(self) == sorted(other)
    }

    /// Those that an advertisement lists: as many of the first as [fit](Family::most_listed). The others belong to the virtual router no less.
    #[must_use]
    pub fn listed(&self) -> Self {
        let most = self.family().most_listed();
        Self(match &self.0 {
            Kind::V4(addresses) => Kind::V4(addresses.iter().take(most).copied().collect()),
            Kind::V6(addresses) => Kind::V6(addresses.iter().take(most).copied().collect()),
        })
    }
}

fn ipv4(address: IpAddr) -> Result<Ipv4Addr, AddressesError> {
    match address {
        IpAddr::V4(address) => Ok(address),
        IpAddr::V6(_) => Err(AddressesError::Mixed(address)),
    }
}

fn ipv6(address: IpAddr) -> Result<Ipv6Addr, AddressesError> {
    match address {
        IpAddr::V6(address) => Ok(address),
        IpAddr::V4(_) => Err(AddressesError::Mixed(address)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_of_their_range() {
        assert_eq!((Vrid::new(0), Priority::new(0), Interval::from_centiseconds(0)), (None, None, None));
        assert_eq!(Interval::from_centiseconds(25_501), None);
        assert_eq!((Priority::DEFAULT.number(), Priority::OWNER.number()), (100, 255));
        assert!(Priority::OWNER.is_owner() && !Priority::DEFAULT.is_owner());
        assert_eq!(Interval::from_centiseconds(1).unwrap().duration(), Duration::from_millis(10));
    }

    #[test]
    fn an_interval_fits_what_the_version_can_say() {
        let fits = |centiseconds| {
            let interval = Interval::from_centiseconds(centiseconds).unwrap();
            (interval.fits(Version::V2), interval.fits(Version::V3))
        };
        assert_eq!(fits(40), (false, true), "0.4 s would be 0 in version 2");
        assert_eq!(fits(100), (true, true));
        assert_eq!(fits(4095), (false, true));
        assert_eq!(fits(4100), (true, false));
        assert_eq!(fits(25_500), (true, false));
    }

    #[test]
    fn rfc9568_section_7_3_the_mac_address_holds_family_and_vrid() {
        let vrid = Vrid::new(106).unwrap();
        assert_eq!(vrid.mac(Family::Ipv4), [0x00, 0x00, 0x5E, 0x00, 0x01, 0x6A]);
        assert_eq!(vrid.mac(Family::Ipv6), [0x00, 0x00, 0x5E, 0x00, 0x02, 0x6A]);
    }

    #[test]
    fn addresses_are_of_one_family_and_not_none() {
        let addresses = |texts: &[&str]| Addresses::new(&texts.iter().map(|text| text.parse().unwrap()).collect::<Vec<_>>());
        assert_eq!(addresses(&[]), Err(AddressesError::Empty));
        assert_eq!(addresses(&["10.0.0.1", "fe80::1"]), Err(AddressesError::Mixed("fe80::1".parse().unwrap())));
        assert_eq!(addresses(&["fe80::1", "10.0.0.1"]), Err(AddressesError::Mixed("10.0.0.1".parse().unwrap())));
        assert_eq!(addresses(&["10.0.0.1", "10.0.0.2", "10.0.0.1"]), Err(AddressesError::Twice("10.0.0.1".parse().unwrap())));
        let two = addresses(&["10.0.0.9", "10.0.0.1"]).unwrap();
        assert_eq!((two.len(), two.family()), (2, Family::Ipv4));
        assert_eq!(two.iter().map(|address| address.to_string()).collect::<Vec<_>>(), ["10.0.0.9", "10.0.0.1"]);
    }

    #[test]
    fn what_does_not_fit_a_packet_is_not_listed() {
        let many = |family| -> Vec<IpAddr> {
            (0..300_u32)
                .map(|n| match family {
                    Family::Ipv4 => IpAddr::V4(Ipv4Addr::from_bits(0x0A00_0000 + n)),
                    Family::Ipv6 => IpAddr::V6(Ipv6Addr::from_bits(0xFE80 << 112 | u128::from(n))),
                })
                .collect()
        };
        assert_eq!(Addresses::new(&many(Family::Ipv4)).unwrap().listed().len(), 255);
        assert_eq!(Addresses::new(&many(Family::Ipv6)).unwrap().listed().len(), 90);
    }
}
