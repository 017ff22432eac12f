// SPDX-License-Identifier: Apache-2.0
//! Octets. What a router says to its like ([`Advertisement`]) and to its neighbours ([`gratuitous_arp`], [`unsolicited_neighbor_advertisement`]).
//!
//! Input of decoding: a [`Datagram`], which is the payload of an IP packet with what its header says. Output: an [`Advertisement`] and the
//! [`ChecksumForm`] that it came with, or the [`DecodeError`] of the first check that failed, in the order of RFC 9568 §7.1. What a message alone does not
//! tell, as the VRID that is expected, is for the virtual router to check. Nothing received can make it panic. Encoding cannot fail.
//!
//! Supported standards: RFC 9568 §5, §7.1 and §8 (version 3 for IPv4 and IPv6), RFC 3768 §5 and §7.1 (version 2), RFC 5798 §5.2.8 as it is read by those
//! who include a pseudo header for IPv4, RFC 826 and RFC 5227 §3 (ARP), RFC 4861 §4.4 (Neighbor Advertisement).
#![warn(clippy::indexing_slicing)]

mod advertisement;
mod checksum;
mod error;
mod frame;
mod neighbor;

pub use advertisement::{Advertisement, Datagram};
pub use checksum::{ChecksumForm, Endpoints};
pub use error::DecodeError;
pub use frame::multicast_frame;
pub use neighbor::{gratuitous_arp, unsolicited_neighbor_advertisement};

/// The IP protocol number of VRRP (RFC 9568 §5.1.1.4).
pub const PROTOCOL: u8 = 112;

/// The TTL or Hop Limit of everything that is sent, and of what is accepted (RFC 9568 §5.1.1.3): who is not on the link cannot send it.
pub const TTL: u8 = 255;

#[cfg(test)]
mod tests;
