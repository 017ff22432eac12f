// SPDX-License-Identifier: Apache-2.0
//! ROUTE-REFRESH (RFC 2918 §3, RFC 7313 §3.2).

use bytes::{BufMut, Bytes};

use super::header::{MessageType, encode_message};
use super::octets::Reader;
use crate::Family;

/// A request to send the whole Adj-RIB-Out of a family again.
///
/// ```text
///  0                   1                   2                   3
///  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// |             AFI               |    Subtype    |     SAFI      |
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// ```
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct RouteRefresh {
    /// Address Family Identifier.
    pub afi: u16,
    /// Message Subtype (RFC 7313 §3.2): 0 is the request, the others are marks that only speakers with that capability send.
    pub subtype: u8,
    /// Subsequent Address Family Identifier.
    pub safi: u8,
}

impl RouteRefresh {
    const REQUEST: u8 = 0;
    const BEGINNING: u8 = 1;
    const END: u8 = 2;
    const BODY_LENGTH: usize = 4;

    /// The request for all routes of a family.
    #[must_use]
    pub const fn request(family: Family) -> Self {
        Self { afi: family.afi(), subtype: Self::REQUEST, safi: family.safi() }
    }

    /// The mark before the routes that answer a request (RFC 7313 §4, BoRR). Only where enhanced route refresh was agreed on.
    #[must_use]
    pub const fn beginning(family: Family) -> Self {
        Self { subtype: Self::BEGINNING, ..Self::request(family) }
    }

    /// The mark behind the routes that answer a request (RFC 7313 §4, EoRR). Only where enhanced route refresh was agreed on.
    #[must_use]
    pub const fn end(family: Family) -> Self {
        Self { subtype: Self::END, ..Self::request(family) }
    }

    /// The family requested; `None` where this is no request, or one for a family that this speaker does not have: both are ignored.
    #[must_use]
    pub const fn requested(&self) -> Option<Family> {
        self.family_of(Self::REQUEST)
    }

    /// The family of which the refresh begins (RFC 7313 §4).
    #[must_use]
    pub const fn begun(&self) -> Option<Family> {
        self.family_of(Self::BEGINNING)
    }

    /// The family of which the refresh is complete (RFC 7313 §4).
    #[must_use]
    pub const fn ended(&self) -> Option<Family> {
        self.family_of(Self::END)
    }

    const fn family_of(&self, subtype: u8) -> Option<Family> {
        if self.subtype == subtype { Family::from_numbers(self.afi, self.safi) } else { None }
    }

    /// The whole message.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        encode_message(MessageType::RouteRefresh, |out| {
            out.put_u16(self.afi);
            out.put_u8(self.subtype);
            out.put_u8(self.safi);
        })
    }

    /// The body of the message; `None` where it is cut. What follows (RFC 5291) is not read: this speaker never asks for it.
    pub(super) fn decode(body: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(body);
        Some(Self { afi: reader.u16()?, subtype: reader.u8()?, safi: reader.u8()? })
    }

    /// Whether this body is that of a mark, but has not its length (RFC 7313 §5).
    pub(super) fn is_misfit(body: &[u8]) -> bool {
        matches!(body.get(2), Some(&(Self::BEGINNING | Self::END))) && body.len() != Self::BODY_LENGTH
    }
}
