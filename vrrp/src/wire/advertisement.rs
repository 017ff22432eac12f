// SPDX-License-Identifier: Apache-2.0
//! The one message of VRRP (RFC 9568 §5.2, RFC 3768 §5.1).

use std::net::{Ipv4Addr, Ipv6Addr};

use super::checksum::checksum;
use super::{ChecksumForm, DecodeError, Endpoints, PROTOCOL};
use crate::identity::{Addresses, Family, Interval, Priority, Version, Vrid};

/// Type 1: an advertisement.
const ADVERTISEMENT: u8 = 1;
/// Octets before the addresses.
const FIXED: usize = 8;
/// Octets of Authentication Data behind the addresses of version 2, which say nothing (RFC 3768 §5.3.10).
const AUTHENTICATION_DATA: usize = 8;
/// Where the checksum is.
const CHECKSUM: std::ops::Range<usize> = 6..8;

/// The payload of an IP packet of protocol 112, and what the header of that packet says.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Datagram {
    /// Who sent it, and to whom.
    pub endpoints: Endpoints,
    /// TTL or Hop Limit.
    pub ttl: u8,
    /// The payload.
    pub octets: Vec<u8>,
}

impl Datagram {
    /// The VRID that it names, unchecked: which of several virtual routers on an interface is to have it. `None` for 0, or where it is not in there.
    #[must_use]
    pub fn vrid(&self) -> Option<Vrid> {
        self.octets.get(1).copied().and_then(Vrid::new)
    }
}

/// That a router is there and how much it wants to be Active (RFC 9568 §5.2).
///
/// ```text
///  0                   1                   2                   3
///  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
/// +-------+-------+---------------+---------------+---------------+
/// |Version| Type  |     VRID      |   Priority    |     Count     |
/// +-------+-------+---------------+---------------+---------------+
/// |  0    |   interval, in cs     |           Checksum            |   version 3
/// +-------+-------+---------------+---------------+---------------+
/// |   Auth Type   |  interval, s  |           Checksum            |   version 2
/// +---------------+---------------+---------------+---------------+
/// |       Addresses, and in version 2 eight octets of 0 ...       |
/// +---------------------------------------------------------------+
/// ```
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Advertisement {
    /// The protocol.
    pub version: Version,
    /// Of which virtual router.
    pub vrid: Vrid,
    /// `None` is 0 on the wire: the Active Router has stopped to take part, and a Backup Router is to follow at once.
    pub priority: Option<Priority>,
    /// Time between advertisements: Max Advertise Interval (RFC 9568 §5.2.7), Adver Int (RFC 3768 §5.3.7).
    pub interval: Interval,
    /// Of the virtual router, as far as they are [listed](Addresses::listed).
    pub addresses: Addresses,
}

impl Advertisement {
    /// The message for these endpoints. `form` matters for version 3 and IPv4 alone.
    #[must_use]
    pub fn encode(&self, endpoints: Endpoints, form: ChecksumForm) -> Vec<u8> {
        let addresses = self.addresses.listed();
        let count = u8::try_from(addresses.len()).unwrap_or(u8::MAX);
        let interval = match self.version {
            Version::V2 => self.interval.centiseconds() / 100,
            Version::V3 => self.interval.centiseconds().min(Interval::LONGEST_V3.centiseconds()),
        };
        let priority = self.priority.map_or(0, Priority::number);
        let mut octets = vec![self.version.number() << 4 | ADVERTISEMENT, self.vrid.number(), priority, count];
        octets.extend(interval.to_be_bytes());
        octets.extend([0; 2]);
        for address in addresses.iter() {
            match address {
                std::net::IpAddr::V4(address) => octets.extend(address.octets()),
                std::net::IpAddr::V6(address) => octets.extend(address.octets()),
            }
        }
        if self.version == Version::V2 {
            octets.extend([0; AUTHENTICATION_DATA]);
        }
        let pseudo_header = has_pseudo_header(self.version, endpoints.family(), form).then_some(endpoints);
        let checksum = checksum(&octets, PROTOCOL, pseudo_header).to_be_bytes();
        if let Some(field) = octets.get_mut(CHECKSUM) {
            field.copy_from_slice(&checksum);
        }
        octets
    }

    /// What a datagram says in this version of the protocol, and the form of its checksum. Of IPv6 packets and of version 2 that is the only one there is.
    ///
    /// # Errors
    /// The first check of RFC 9568 §7.1 that it did not pass.
    pub fn decode(datagram: &Datagram, version: Version, least_ttl: u8) -> Result<(Self, ChecksumForm), DecodeError> {
        if datagram.ttl < least_ttl {
            return Err(DecodeError::Ttl { received: datagram.ttl, least: least_ttl });
        }
        let octets = datagram.octets.as_slice();
        let family = datagram.endpoints.family();
        let first = octets.first().copied().unwrap_or_default();
        if first >> 4 != version.number() {
            return Err(DecodeError::Version { received: first >> 4, expected: version });
        }
        if first & 0x0F != ADVERTISEMENT {
            return Err(DecodeError::Type(first & 0x0F));
        }
        let Some((&[_, vrid, priority, count, high, low, ..], rest)) = octets.split_first_chunk::<FIXED>() else {
            return Err(DecodeError::Length { received: octets.len(), expected: FIXED });
        };
        let expected = length(version, family, count);
        if octets.len() < expected {
            return Err(DecodeError::Length { received: octets.len(), expected });
        }
        let addresses = addresses(family, rest, count).ok_or(DecodeError::NoAddress)?;
        let form = verify(datagram, version)?;
        let vrid = Vrid::new(vrid).ok_or(DecodeError::Vrid)?;
        let interval = match version {
            Version::V2 if high != 0 => return Err(DecodeError::Authentication(high)),
            Version::V2 => u16::from(low) * 100,
            Version::V3 => u16::from_be_bytes([high & 0x0F, low]),
        };
        let interval = Interval::from_centiseconds(interval).ok_or(DecodeError::Interval)?;
        Ok((Self { version, vrid, priority: Priority::new(priority), interval, addresses }, form))
    }
}

/// How long a message is that lists so many addresses.
fn length(version: Version, family: Family, count: u8) -> usize {
    let address = match family {
        Family::Ipv4 => size_of::<Ipv4Addr>(),
        Family::Ipv6 => size_of::<Ipv6Addr>(),
    };
    let behind = match version {
        Version::V2 => AUTHENTICATION_DATA,
        Version::V3 => 0,
    };
    FIXED + usize::from(count) * address + behind
}

/// The first so many addresses; `None` for none.
fn addresses(family: Family, octets: &[u8], count: u8) -> Option<Addresses> {
    let count = usize::from(count);
    match family {
        Family::Ipv4 => {
            let (addresses, _) = octets.as_chunks::<4>();
            Addresses::of_v4(addresses.iter().take(count).copied().map(Ipv4Addr::from_octets).collect())
        }
        Family::Ipv6 => {
            let (addresses, _) = octets.as_chunks::<16>();
            Addresses::of_v6(addresses.iter().take(count).copied().map(Ipv6Addr::from_octets).collect())
        }
    }
}

/// Whether the checksum of such a message, in this form where there is a choice, goes over a pseudo header.
fn has_pseudo_header(version: Version, family: Family, form: ChecksumForm) -> bool {
    match (version, family) {
        (Version::V2, _) => false,
        (Version::V3, Family::Ipv4) => form == ChecksumForm::PseudoHeader,
        (Version::V3, Family::Ipv6) => true,
    }
}

/// The form in which the checksum is right.
fn verify(datagram: &Datagram, version: Version) -> Result<ChecksumForm, DecodeError> {
    let mut message = datagram.octets.clone();
    let mut received = [0; 2];
    if let Some(field) = message.get_mut(CHECKSUM) {
        received.swap_with_slice(field);
    }
    let received = u16::from_be_bytes(received);
    let family = datagram.endpoints.family();
    let sum = |form| {
        let pseudo_header = has_pseudo_header(version, family, form).then_some(datagram.endpoints);
        checksum(&message, PROTOCOL, pseudo_header)
    };
    let forms = [ChecksumForm::MessageOnly, ChecksumForm::PseudoHeader];
    let expected = sum(ChecksumForm::MessageOnly);
    forms.into_iter().find(|form| sum(*form) == received).ok_or(DecodeError::Checksum { received, expected })
}
