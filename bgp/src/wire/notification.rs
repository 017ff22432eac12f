// SPDX-License-Identifier: Apache-2.0
//! NOTIFICATION: why a session ends (RFC 4271 §4.5 and §6, RFC 4486, RFC 6608, RFC 8538, RFC 9003, RFC 9234, RFC 9687).
//!
//! What is received is data of a stranger: nothing in it is refused, and nothing of it is shown unescaped.

use std::fmt;
use std::fmt::Write as _;

use bytes::{BufMut, Bytes};

use super::header::{MessageType, encode_message};
use super::octets::Reader;
use super::{HEADER_LENGTH, MAX_MESSAGE_LENGTH};
use crate::Family;

/// Why the sender ends the session (RFC 4271 §4.5).
///
/// ```text
///  0                   1                   2                   3
///  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// | Error code    | Error subcode |   Data (variable)             |
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// ```
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Notification {
    /// Error code.
    pub code: u8,
    /// Error subcode.
    pub subcode: u8,
    /// Its meaning depends on code and subcode.
    pub data: Bytes,
}

/// The subcodes of Cease, code 6 (RFC 4486 §3).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u8)]
pub enum Cease {
    /// The peer announced more prefixes than it may.
    MaximumNumberOfPrefixesReached = 1,
    /// The operator took the session out of service.
    AdministrativeShutdown = 2,
    /// The peer is no longer configured.
    PeerDeconfigured = 3,
    /// The operator resets the session.
    AdministrativeReset = 4,
    /// The connection is not accepted.
    ConnectionRejected = 5,
    /// Another change of the configuration needs a new session.
    OtherConfigurationChange = 6,
    /// The other connection to this peer is kept (RFC 4271 §6.8).
    ConnectionCollisionResolution = 7,
    /// The speaker lacks a resource.
    OutOfResources = 8,
    /// Routes are not to be kept although graceful restart was agreed on (RFC 8538 §3.1).
    HardReset = 9,
    /// BFD has lost the peer (RFC 9384).
    BfdDown = 10,
}

/// The subcodes of UPDATE Message Error, code 3 (RFC 4271 §6.3), that are in use.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u8)]
pub(super) enum UpdateError {
    MalformedAttributeList = 1,
    UnrecognizedWellKnownAttribute = 2,
    MissingWellKnownAttribute = 3,
    AttributeFlags = 4,
    AttributeLength = 5,
    InvalidOrigin = 6,
    InvalidNextHop = 8,
    OptionalAttribute = 9,
    InvalidNetworkField = 10,
    MalformedAsPath = 11,
}

/// The longest Shutdown Communication, in octets (RFC 9003 §2).
const MAX_COMMUNICATION_LENGTH: usize = 255;

impl Notification {
    const fn new(code: u8, subcode: u8) -> Self {
        Self { code, subcode, data: Bytes::new() }
    }

    /// Message Header Error, the marker is not all ones (RFC 4271 §6.1).
    pub(super) const fn connection_not_synchronized() -> Self {
        Self::new(1, 1)
    }

    /// Message Header Error; the data are the Length field received (RFC 4271 §6.1).
    pub(super) fn bad_message_length(length: u16) -> Self {
        Self { data: Bytes::copy_from_slice(&length.to_be_bytes()), ..Self::new(1, 2) }
    }

    /// Message Header Error; the data are the Type field received (RFC 4271 §6.1).
    pub(super) fn bad_message_type(message_type: u8) -> Self {
        Self { data: Bytes::copy_from_slice(&[message_type]), ..Self::new(1, 3) }
    }

    /// OPEN Message Error without a more specific subcode (RFC 4271 §6.2).
    pub(super) const fn open_unspecific() -> Self {
        Self::new(2, 0)
    }

    /// OPEN Message Error; the data are the version that is supported (RFC 4271 §6.2).
    pub(super) fn unsupported_version_number() -> Self {
        Self { data: Bytes::from_static(&[0, super::open::VERSION]), ..Self::new(2, 1) }
    }

    /// OPEN Message Error: the peer is not in the AS it should be in, or in AS 0 (RFC 4271 §6.2, RFC 7607 §2).
    #[must_use]
    pub const fn bad_peer_as() -> Self {
        Self::new(2, 2)
    }

    /// OPEN Message Error: the BGP Identifier is 0, or inside an AS the same as ours (RFC 6286 §2.2).
    #[must_use]
    pub const fn bad_bgp_identifier() -> Self {
        Self::new(2, 3)
    }

    /// OPEN Message Error: a parameter that is not Capabilities (RFC 4271 §6.2).
    pub(super) const fn unsupported_optional_parameter() -> Self {
        Self::new(2, 4)
    }

    /// OPEN Message Error: a hold time of 1 or 2 s, or one that our configuration refuses (RFC 4271 §6.2).
    #[must_use]
    pub const fn unacceptable_hold_time() -> Self {
        Self::new(2, 6)
    }

    /// OPEN Message Error: the roles of both sides do not match, or the peer has none and should (RFC 9234 §4.2).
    #[must_use]
    pub const fn role_mismatch() -> Self {
        Self::new(2, 11)
    }

    /// UPDATE Message Error; for most subcodes the data are the attribute (RFC 4271 §6.3).
    pub(super) fn update_error(subcode: UpdateError, data: Bytes) -> Self {
        Self { data, ..Self::new(3, subcode as u8) }
    }

    /// Hold Timer Expired (RFC 4271 §6.5).
    #[must_use]
    pub const fn hold_timer_expired() -> Self {
        Self::new(4, 0)
    }

    /// Finite State Machine Error (RFC 6608 §3).
    #[must_use]
    pub const fn unexpected_message_in_open_sent() -> Self {
        Self::new(5, 1)
    }

    /// Finite State Machine Error (RFC 6608 §3).
    #[must_use]
    pub const fn unexpected_message_in_open_confirm() -> Self {
        Self::new(5, 2)
    }

    /// Finite State Machine Error (RFC 6608 §3).
    #[must_use]
    pub const fn unexpected_message_in_established() -> Self {
        Self::new(5, 3)
    }

    /// ROUTE-REFRESH Message Error, a mark has not its length; the data are the whole message (RFC 7313 §5).
    pub(super) fn invalid_route_refresh_length(message: &[u8]) -> Self {
        Self { data: Bytes::copy_from_slice(message), ..Self::new(7, 1) }
    }

    /// Send Hold Timer Expired. It is for the log: the peer does not read, so nobody sends it (RFC 9687 §4).
    #[must_use]
    pub const fn send_hold_timer_expired() -> Self {
        Self::new(8, 0)
    }

    /// Whether it is this Cease, whatever data come with it (RFC 4486 §3).
    #[must_use]
    pub const fn is_cease(&self, cease: Cease) -> bool {
        self.code == 6 && self.subcode == cease as u8
    }

    /// Cease: the peer announced more than `limit` prefixes of the family; these are the data (RFC 4486 §4).
    #[must_use]
    pub fn maximum_number_of_prefixes_reached(family: Family, limit: u32) -> Self {
        let mut data = Vec::with_capacity(7);
        data.put_u16(family.afi());
        data.put_u8(family.safi());
        data.put_u32(limit);
        Self { data: data.into(), ..Self::cease(Cease::MaximumNumberOfPrefixesReached) }
    }

    /// Cease, Hard Reset, with this notification inside: the peer is to drop our routes although it would keep them after `self` (RFC 8538 §3.1).
    /// Only for a peer with which [`Negotiated::graceful_notification`](super::Negotiated::graceful_notification) holds.
    #[must_use]
    pub fn into_hard_reset(self) -> Self {
        let mut data = Vec::with_capacity(2 + self.data.len());
        data.put_slice(&[self.code, self.subcode]);
        data.put_slice(&self.data);
        Self { data: data.into(), ..Self::cease(Cease::HardReset) }
    }

    /// The notification inside a Hard Reset, which says why (RFC 8538 §3.1); `None` where this is another one, or none is inside.
    #[must_use]
    pub fn hard_reset_reason(&self) -> Option<Self> {
        if !self.is_hard_reset() {
            return None;
        }
        Self::decode(&self.data)
    }

    /// Whether routes are to be dropped even where graceful restart with NOTIFICATIONs was agreed on (RFC 8538 §3.1).
    #[must_use]
    pub const fn is_hard_reset(&self) -> bool {
        self.code == 6 && self.subcode == Cease::HardReset as u8
    }

    /// Cease (RFC 4486 §4).
    #[must_use]
    pub const fn cease(subcode: Cease) -> Self {
        Self::new(6, subcode as u8)
    }

    /// Adds a Shutdown Communication for the peer's operator, cut between two characters to 255 octets. It is for
    /// Administrative Shutdown and Administrative Reset; other notifications stay as they are (RFC 9003 §2).
    #[must_use]
    pub fn with_communication(self, text: &str) -> Self {
        if !self.may_have_communication() {
            return self;
        }
        let text = text.get(..text.floor_char_boundary(MAX_COMMUNICATION_LENGTH)).unwrap_or_default();
        let mut data = Vec::with_capacity(1 + text.len());
        data.put_u8(u8::try_from(text.len()).unwrap_or(u8::MAX));
        data.put_slice(text.as_bytes());
        Self { data: data.into(), ..self }
    }

    /// The Shutdown Communication, fit to be shown: invalid UTF-8 is replaced, everything that is not printable is escaped, and a length that
    /// is wrong is overlooked (RFC 9003 §2 and §6).
    #[must_use]
    pub fn communication(&self) -> Option<String> {
        if !self.may_have_communication() {
            return None;
        }
        let mut reader = Reader::new(&self.data);
        let length = reader.u8()?.into();
        let rest = reader.rest();
        let text = reader.take(length).unwrap_or(rest);
        if text.is_empty() { None } else { Some(printable(&String::from_utf8_lossy(text))) }
    }

    /// Code and subcode by their names in the RFCs, or by number where they have none.
    #[must_use]
    pub fn name(&self) -> String {
        let code = code_name(self.code).map_or_else(|| format!("code {}", self.code), ToOwned::to_owned);
        match subcode_name(self.code, self.subcode) {
            Some(subcode) => format!("{code}/{subcode}"),
            None if self.subcode == 0 => code,
            None => format!("{code}/subcode {}", self.subcode),
        }
    }

    fn may_have_communication(&self) -> bool {
        self.code == 6 && [Cease::AdministrativeShutdown as u8, Cease::AdministrativeReset as u8].contains(&self.subcode)
    }

    /// The whole message. Data over the limit of a message are cut.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        const MAX_DATA_LENGTH: usize = MAX_MESSAGE_LENGTH - HEADER_LENGTH - 2;
        encode_message(MessageType::Notification, |out| {
            out.put_u8(self.code);
            out.put_u8(self.subcode);
            out.put_slice(self.data.get(..MAX_DATA_LENGTH).unwrap_or(&self.data));
        })
    }

    /// The body of the message; `None` where it lacks code or subcode.
    pub(super) fn decode(body: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(body);
        Some(Self { code: reader.u8()?, subcode: reader.u8()?, data: Bytes::copy_from_slice(reader.rest()) })
    }
}

impl fmt::Display for Notification {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name())?;
        if let Some(reason) = self.hard_reset_reason() {
            // One inside another says no more than its data: the depth is bounded.
            return if reason.is_hard_reset() { Ok(()) } else { write!(f, ": {reason}") };
        }
        if let Some(communication) = self.communication() {
            return write!(f, ": {communication}");
        }
        const SHOWN: usize = 16;
        if !self.data.is_empty() {
            f.write_str(", data ")?;
            self.data.iter().take(SHOWN).try_for_each(|octet| write!(f, "{octet:02X}"))?;
            if self.data.len() > SHOWN {
                f.write_char('…')?;
            }
        }
        Ok(())
    }
}

/// The name of an error code in its RFC (RFC 4271 §4.5, RFC 7313 §5, RFC 9687 §3).
const fn code_name(code: u8) -> Option<&'static str> {
    Some(match code {
        1 => "Message Header Error",
        2 => "OPEN Message Error",
        3 => "UPDATE Message Error",
        4 => "Hold Timer Expired",
        5 => "Finite State Machine Error",
        6 => "Cease",
        7 => "ROUTE-REFRESH Message Error",
        8 => "Send Hold Timer Expired",
        _ => return None,
    })
}

/// The name of an error subcode in its RFC.
const fn subcode_name(code: u8, subcode: u8) -> Option<&'static str> {
    Some(match (code, subcode) {
        (1, 1) => "Connection Not Synchronized",
        (1, 2) => "Bad Message Length",
        (1, 3) => "Bad Message Type",
        (2, 1) => "Unsupported Version Number",
        (2, 2) => "Bad Peer AS",
        (2, 3) => "Bad BGP Identifier",
        (2, 4) => "Unsupported Optional Parameter",
        (2, 5) => "Authentication Failure",
        (2, 6) => "Unacceptable Hold Time",
        (2, 7) => "Unsupported Capability",
        (2, 11) => "Role Mismatch",
        (3, 1) => "Malformed Attribute List",
        (3, 2) => "Unrecognized Well-known Attribute",
        (3, 3) => "Missing Well-known Attribute",
        (3, 4) => "Attribute Flags Error",
        (3, 5) => "Attribute Length Error",
        (3, 6) => "Invalid ORIGIN Attribute",
        (3, 7) => "AS Routing Loop",
        (3, 8) => "Invalid NEXT_HOP Attribute",
        (3, 9) => "Optional Attribute Error",
        (3, 10) => "Invalid Network Field",
        (3, 11) => "Malformed AS_PATH",
        (5, 1) => "Receive Unexpected Message in OpenSent State",
        (5, 2) => "Receive Unexpected Message in OpenConfirm State",
        (5, 3) => "Receive Unexpected Message in Established State",
        (6, 1) => "Maximum Number of Prefixes Reached",
        (6, 2) => "Administrative Shutdown",
        (6, 3) => "Peer De-configured",
        (6, 4) => "Administrative Reset",
        (6, 5) => "Connection Rejected",
        (6, 6) => "Other Configuration Change",
        (6, 7) => "Connection Collision Resolution",
        (6, 8) => "Out of Resources",
        (6, 9) => "Hard Reset",
        (6, 10) => "BFD Down",
        (7, 1) => "Invalid Message Length",
        _ => return None,
    })
}

/// The text with every character that is not printable (control, format and direction marks among them) escaped, and the backslash, so that
/// nothing in it can pass for an escape.
pub(super) fn printable(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '"' | '\'' => shown.push(character),
            _ => shown.extend(character.escape_debug()),
        }
    }
    shown
}

#[cfg(test)]
mod tests;
