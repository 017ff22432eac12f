// SPDX-License-Identifier: Apache-2.0
//! Messages to and from octets. Each of the RFCs' nouns has a file: the plain data with the layout drawn over it, and beside it how it is decoded
//! and encoded.
//!
//! Input of decoding: the octets of one connection, in any pieces ([`Deframer`]), and what was negotiated ([`Negotiated`]). Output: [`Message`]s, or
//! an [`Error`] that is exactly the NOTIFICATION to send. A malformed path attribute ends the session only where RFC 7606 has no milder way: else
//! the [`Update`] tells its [`ErrorHandling`]. Nothing received can make it panic, and lengths are believed only as far as there are octets.
//!
//! Encoding cannot fail but for an UPDATE. Routes are sent by [`encode_announcement`] and [`encode_withdrawal`], which fill messages to the limit.
//!
//! Supported standards: RFC 4271 §4 and §6 (messages and their errors), RFC 1997, 4360, 5701 and 8092 (communities), RFC 2545 and 4760 (IPv6 and
//! multiprotocol), RFC 2918 and 7313 (route refresh), RFC 4456 (attributes of reflection), RFC 4486, 6608, 8538, 9384 and 9687 (codes and subcodes),
//! RFC 4724 and 9494 (capabilities of graceful restart, End-of-RIB), RFC 5065 (segments of a confederation), RFC 5492 and 9072 (capabilities), RFC 6286
//! and 7607 (identifier 0, AS 0), RFC 6793 (four-octet AS numbers, also beside speakers without), RFC 7606 (error handling), RFC 7911 (path
//! identifiers), RFC 8654 (extended messages), RFC 8950 (IPv6 next hops of IPv4), RFC 9003 (shutdown communication), RFC 9234 (roles, only to customer).
#![warn(clippy::indexing_slicing)]

mod as_path;
mod attribute;
mod capability;
pub mod community;
mod error;
mod header;
mod multiprotocol;
mod negotiated;
mod nlri;
mod notification;
mod octets;
mod open;
mod pack;
mod route_refresh;
mod update;

use bytes::Bytes;
use header::MessageType;

pub use as_path::{AsPath, AsPathSegment};
pub use attribute::{Aggregator, Flags, Origin, PathAttribute, Transitive};
pub use capability::{AddPathMode, BgpRole, Capability, GracefulRestart, LongLivedFamily};
pub use error::{AttributeError, EncodeError, Error, ErrorHandling};
pub use header::{Deframer, HEADER_LENGTH, MAX_EXTENDED_MESSAGE_LENGTH, MAX_MESSAGE_LENGTH};
pub use multiprotocol::{MpReach, MpUnreach, NextHop};
pub use negotiated::Negotiated;
pub use nlri::Nlri;
pub use notification::{Cease, Notification};
pub use open::Open;
pub use pack::{encode_announcement, encode_withdrawal};
pub use route_refresh::RouteRefresh;
pub use update::Update;

/// The whole KEEPALIVE message (RFC 4271 §4.4).
pub const KEEPALIVE: [u8; HEADER_LENGTH] =
    [0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x00, 0x13, 0x04];

/// One BGP message (RFC 4271 §4, RFC 2918).
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Message {
    /// Type 1.
    Open(Open),
    /// Type 2.
    Update(Update),
    /// Type 3.
    Notification(Notification),
    /// Type 4.
    Keepalive,
    /// Type 5 (RFC 2918).
    RouteRefresh(RouteRefresh),
}

impl Message {
    /// The whole message. Only an UPDATE can fail; the others have an `encode` of their own that cannot, and [`KEEPALIVE`] is always the same.
    ///
    /// # Errors
    /// The UPDATE is too long, or has a next hop that cannot be sent.
    pub fn encode(&self, negotiated: &Negotiated) -> Result<Bytes, EncodeError> {
        Ok(match self {
            Self::Open(open) => open.encode(),
            Self::Update(update) => {
                let mut out = Vec::new();
                update.encode(negotiated, &mut out)?;
                out.into()
            }
            Self::Notification(notification) => notification.encode(),
            Self::Keepalive => Bytes::from_static(&KEEPALIVE),
            Self::RouteRefresh(refresh) => refresh.encode(),
        })
    }

    /// The message of these octets, of which the header was checked.
    fn decode(message_type: MessageType, message: &[u8], negotiated: &Negotiated) -> Result<Self, Error> {
        let body = message.get(HEADER_LENGTH..).unwrap_or_default();
        let cut = || {
            let length = u16::try_from(message.len()).unwrap_or(u16::MAX);
            Error::new(Notification::bad_message_length(length), "the message is cut")
        };
        Ok(match message_type {
            MessageType::Open => Self::Open(Open::decode(body)?),
            MessageType::Update => Self::Update(Update::decode(message, negotiated)?),
            MessageType::Notification => Self::Notification(Notification::decode(body).ok_or_else(cut)?),
            MessageType::Keepalive => Self::Keepalive,
            MessageType::RouteRefresh => {
                if negotiated.enhanced_route_refresh && RouteRefresh::is_misfit(body) {
                    let notification = Notification::invalid_route_refresh_length(message);
                    return Err(Error::new(notification, "a mark of a route refresh has not its length"));
                }
                Self::RouteRefresh(RouteRefresh::decode(body).ok_or_else(cut)?)
            }
        })
    }
}

#[cfg(test)]
mod tests;
