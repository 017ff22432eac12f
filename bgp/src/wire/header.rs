// SPDX-License-Identifier: Apache-2.0
//! The message header (RFC 4271 §4.1), and how the octets of a connection are cut into messages.
//!
//! A header is judged as soon as it is complete, so that a peer that announces nonsense is answered without waiting for the rest of it.

use bytes::{BufMut, Bytes, BytesMut};

use super::octets::{Reader, set_u16};
use super::{Error, Message, Negotiated, Notification};

/// Octets of a message header.
pub const HEADER_LENGTH: usize = 19;
/// Octets that a message has at most (RFC 4271 §4.1), and an OPEN or KEEPALIVE always.
pub const MAX_MESSAGE_LENGTH: usize = 4096;
/// Octets that another message has at most where extended messages are agreed on (RFC 8654 §4).
pub const MAX_EXTENDED_MESSAGE_LENGTH: usize = 65_535;

const MARKER: [u8; 16] = [0xFF; 16];

/// Cuts the octets of one connection into messages, in whatever pieces they come.
#[derive(Debug, Default)]
pub struct Deframer {
    buffer: BytesMut,
}

impl Deframer {
    /// Takes the next octets of the connection.
    pub fn push(&mut self, octets: &[u8]) {
        self.buffer.extend_from_slice(octets);
    }

    /// The next whole message; `None` when more octets are needed.
    ///
    /// # Errors
    /// The message ends the session. The connection is to be closed; what follows on it is of no use.
    pub fn next(&mut self, negotiated: &Negotiated) -> Result<Option<Message>, Error> {
        let Some(header) = Header::decode(&self.buffer, negotiated)? else { return Ok(None) };
        if self.buffer.len() < header.length {
            return Ok(None);
        }
        let message = self.buffer.split_to(header.length);
        Message::decode(header.message_type, &message, negotiated).map(Some)
    }
}

/// The types of messages (RFC 4271 §4.1, RFC 2918 §3).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u8)]
pub(super) enum MessageType {
    Open = 1,
    Update = 2,
    Notification = 3,
    Keepalive = 4,
    RouteRefresh = 5,
}

impl MessageType {
    const fn from_number(number: u8) -> Option<Self> {
        Some(match number {
            1 => Self::Open,
            2 => Self::Update,
            3 => Self::Notification,
            4 => Self::Keepalive,
            5 => Self::RouteRefresh,
            _ => return None,
        })
    }

    /// Whether a message of this type can have this length (RFC 4271 §6.1, RFC 2918 §3, RFC 8654 §4). A ROUTE-REFRESH of which only the subtype is there is
    /// told in another way (RFC 7313 §5).
    const fn admits(self, length: usize) -> bool {
        match self {
            Self::Open => length >= 29 && length <= MAX_MESSAGE_LENGTH,
            Self::Update => length >= 23,
            Self::RouteRefresh => length >= 22,
            Self::Notification => length >= 21,
            Self::Keepalive => length == HEADER_LENGTH,
        }
    }
}

/// What precedes every message (RFC 4271 §4.1).
///
/// ```text
///  0                   1                   2                   3
///  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// |                                                               |
/// +                                                               +
/// |                            Marker                             |
/// +                     (16 octets, all ones)                     +
/// |                                                               |
/// +                                                               +
/// |                                                               |
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// |          Length               |      Type     |
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// ```
struct Header {
    /// Octets of the message, with this header.
    length: usize,
    message_type: MessageType,
}

impl Header {
    /// The header at the start of `octets`, checked by RFC 4271 §6.1; `None` where it is not complete.
    fn decode(octets: &[u8], negotiated: &Negotiated) -> Result<Option<Self>, Error> {
        let mut reader = Reader::new(octets);
        let (Some(marker), Some(length), Some(number)) = (reader.array(), reader.u16(), reader.u8()) else { return Ok(None) };
        if marker != MARKER {
            return Err(Error::new(Notification::connection_not_synchronized(), "the marker is not all ones"));
        }
        let bad_length = |reason| Error::new(Notification::bad_message_length(length), reason);
        let message_length = usize::from(length);
        if !(HEADER_LENGTH..=negotiated.max_receive_length).contains(&message_length) {
            return Err(bad_length("no message has this length"));
        }
        let Some(message_type) = MessageType::from_number(number) else {
            return Err(Error::new(Notification::bad_message_type(number), "no message is of this type"));
        };
        if !message_type.admits(message_length) {
            return Err(bad_length("no message of its type has this length"));
        }
        Ok(Some(Self { length: message_length, message_type }))
    }
}

/// The whole message of which `write_body` appends all after the header. The caller sees to it that the body fits.
pub(super) fn encode_message(message_type: MessageType, write_body: impl FnOnce(&mut Vec<u8>)) -> Bytes {
    let mut out = Vec::with_capacity(64);
    append_message(&mut out, message_type, write_body);
    out.into()
}

/// Appends a message to `out` and returns its length, which can be over the limit: then the caller takes it back.
pub(super) fn append_message(out: &mut Vec<u8>, message_type: MessageType, write_body: impl FnOnce(&mut Vec<u8>)) -> usize {
    let start = out.len();
    out.put_slice(&MARKER);
    out.put_u16(0);
    out.put_u8(message_type as u8);
    write_body(out);
    let length = out.len() - start;
    set_u16(out, start + MARKER.len(), length);
    length
}

#[cfg(test)]
mod tests;
