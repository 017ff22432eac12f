// SPDX-License-Identifier: Apache-2.0
//! The checksum (RFC 9568 §5.2.8), and the two ways to read that for IPv4.
//!
//! Version 2 and, by RFC 9568, version 3 for IPv4 sum up the message alone. RFC 5798 could be read to want a pseudo header there as well, and several
//! implementations have one. For IPv6 there always is one (RFC 8200 §8.1).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::identity::Family;

/// What the checksum of a version 3 message for IPv4 goes over.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum ChecksumForm {
    /// The message alone (RFC 9568 §5.2.8).
    MessageOnly,
    /// The message and a pseudo header (RFC 5798 §5.2.8, as many read it).
    PseudoHeader,
}

/// Source and destination of a packet, of one family.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Endpoints {
    /// IPv4.
    V4 {
        /// The primary address of the sender.
        source: Ipv4Addr,
        /// The multicast group, or one router.
        destination: Ipv4Addr,
    },
    /// IPv6.
    V6 {
        /// The link-local address of the sender.
        source: Ipv6Addr,
        /// The multicast group, or one router.
        destination: Ipv6Addr,
    },
}

impl Endpoints {
    /// `None` where the addresses are of two families.
    #[must_use]
    pub const fn new(source: IpAddr, destination: IpAddr) -> Option<Self> {
        match (source, destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => Some(Self::V4 { source, destination }),
            (IpAddr::V6(source), IpAddr::V6(destination)) => Some(Self::V6 { source, destination }),
            (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => None,
        }
    }

    /// Who sent it.
    #[must_use]
    pub const fn source(self) -> IpAddr {
        match self {
            Self::V4 { source, .. } => IpAddr::V4(source),
            Self::V6 { source, .. } => IpAddr::V6(source),
        }
    }

    /// To whom.
    #[must_use]
    pub const fn destination(self) -> IpAddr {
        match self {
            Self::V4 { destination, .. } => IpAddr::V4(destination),
            Self::V6 { destination, .. } => IpAddr::V6(destination),
        }
    }

    /// Of both.
    #[must_use]
    pub const fn family(self) -> Family {
        match self {
            Self::V4 { .. } => Family::Ipv4,
            Self::V6 { .. } => Family::Ipv6,
        }
    }

    /// The sum of the pseudo header: source, destination, length and protocol (RFC 9293 §3.1 for IPv4, RFC 8200 §8.1 for IPv6).
    fn pseudo_header(self, length: usize, protocol: u8) -> Sum {
        let mut sum = Sum::default();
        match self {
            Self::V4 { source, destination } => {
                sum.add(&source.octets());
                sum.add(&destination.octets());
            }
            Self::V6 { source, destination } => {
                sum.add(&source.octets());
                sum.add(&destination.octets());
            }
        }
        sum.add(&u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes());
        sum.add(&[0, protocol]);
        sum
    }
}

/// The checksum of a message of this protocol, whose checksum field is 0; with a pseudo header or without.
pub(super) fn checksum(message: &[u8], protocol: u8, pseudo_header: Option<Endpoints>) -> u16 {
    let mut sum = pseudo_header.map(|endpoints| endpoints.pseudo_header(message.len(), protocol)).unwrap_or_default();
    sum.add(message);
    sum.complement()
}

/// A one's complement sum of 16-bit words (RFC 1071), before the carries are added.
#[derive(Default)]
struct Sum(u64);

impl Sum {
    /// An odd last octet counts as if a 0 followed.
    fn add(&mut self, octets: &[u8]) {
        let (words, last) = octets.as_chunks::<2>();
        self.0 += words.iter().map(|word| u64::from(u16::from_be_bytes(*word))).sum::<u64>();
        self.0 += last.iter().map(|octet| u64::from(*octet) << 8).sum::<u64>();
    }

    fn complement(mut self) -> u16 {
        while self.0 > 0xFFFF {
            self.0 = (self.0 >> 16) + (self.0 & 0xFFFF);
        }
        !u16::try_from(self.0).unwrap_or(u16::MAX)
    }
}
