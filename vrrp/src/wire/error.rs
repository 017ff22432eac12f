// SPDX-License-Identifier: Apache-2.0
//! Why a datagram is no advertisement.

use crate::identity::Version;

/// The first check of RFC 9568 §7.1 that a datagram did not pass, in their order; those of RFC 3768 §7.1 where version 2 has others.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum DecodeError {
    /// It may have come from another link.
    #[error("TTL {received}, expected {least} or more: it may come from another link")]
    Ttl {
        /// TTL or Hop Limit as received.
        received: u8,
        /// The least that is accepted: 255, unless the operator says otherwise.
        least: u8,
    },
    /// Another version of the protocol, or none at all.
    #[error("version {received}, expected {expected}")]
    Version {
        /// As received; 0 where there is no octet.
        received: u8,
        /// What this virtual router speaks.
        expected: Version,
    },
    /// Not an advertisement.
    #[error("message of type {0}, expected 1 (advertisement)")]
    Type(u8),
    /// Shorter than it says, or than any message.
    #[error("{received} octets, expected {expected}")]
    Length {
        /// Octets of the payload.
        received: usize,
        /// Octets that the fixed fields and the listed addresses take.
        expected: usize,
    },
    /// Count IPvX Addr is 0 (RFC 9568 §5.2.5).
    #[error("it lists no address")]
    NoAddress,
    /// Neither with nor, where there are two readings, without the pseudo header.
    #[error("checksum {received:#06x}, expected {expected:#06x}")]
    Checksum {
        /// As received.
        received: u16,
        /// As the standard says.
        expected: u16,
    },
    /// VRID 0, which no virtual router has (RFC 9568 §5.2.3).
    #[error("VRID 0")]
    Vrid,
    /// Authentication, which version 2 has done without since RFC 3768 (§5.3.6).
    #[error("authentication of type {0}, expected 0 (none)")]
    Authentication(u8),
    /// An interval of 0, at which the router would be taken for dead between any two of its advertisements.
    #[error("an advertisement interval of 0")]
    Interval,
}
