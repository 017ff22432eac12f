// SPDX-License-Identifier: Apache-2.0
//! Datagrams of a netlink socket, cut into messages.

use std::io;

use netlink_packet_core::{NLM_F_DUMP_INTR, NLMSG_ALIGNTO, NLMSG_DONE, NLMSG_ERROR, NLMSG_NOOP, NetlinkBuffer};

use super::attribute::attributes;
use super::{DecodeError, Message};

/// Family of the generic-netlink controller.
const CONTROLLER: u16 = 0x10;
const CTRL_ATTR_FAMILY_ID: u16 = 1;
const GENERIC_HEADER: usize = 4;

/// One message of a datagram.
#[derive(Debug)]
pub struct Frame {
    /// Number of the request that this answers.
    pub sequence: u32,
    /// The table changed while it was being dumped: read it again.
    pub interrupted: bool,
    /// What it says.
    pub payload: Payload,
}

/// What a message says.
#[derive(Debug)]
pub enum Payload {
    /// Something that the kernel shows.
    Message(Message),
    /// The number of the family.
    Family(u16),
    /// A request was carried out, or refused with an error of the operating system.
    Acknowledged(Result<(), io::Error>),
    /// A dump is complete, or was broken off with an error of the operating system.
    Done(Result<(), io::Error>),
    /// Nothing.
    Nothing,
}

/// The messages of one datagram.
#[derive(Clone, Copy, Debug)]
pub struct Frames<'a>(&'a [u8]);

impl<'a> Frames<'a> {
    /// Those of this datagram.
    pub const fn new(datagram: &'a [u8]) -> Self {
        Self(datagram)
    }
}

impl Iterator for Frames<'_> {
    type Item = Result<Frame, DecodeError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let message = match NetlinkBuffer::new_checked(self.0) {
            Ok(message) => message,
            Err(error) => {
                self.0 = &[];
                return Some(Err(DecodeError::Framing(error)));
            }
        };
        let length = usize::try_from(message.length()).unwrap_or(usize::MAX).next_multiple_of(usize::from(NLMSG_ALIGNTO));
        self.0 = self.0.get(length..).unwrap_or_default();
        Some(payload(message.message_type(), message.payload()).map(|payload| Frame {
            sequence: message.sequence_number(),
            interrupted: message.flags() & NLM_F_DUMP_INTR != 0,
            payload,
        }))
    }
}

fn payload(kind: u16, octets: &[u8]) -> Result<Payload, DecodeError> {
    Ok(match kind {
        NLMSG_NOOP => Payload::Nothing,
        NLMSG_ERROR => Payload::Acknowledged(outcome(octets)?),
        NLMSG_DONE => Payload::Done(outcome(octets)?),
        CONTROLLER => family(octets)?,
        _ => Payload::Message(Message::decode(octets)?),
    })
}

/// A negative error number, or 0. The end of a dump has none in old kernels.
fn outcome(octets: &[u8]) -> Result<Result<(), io::Error>, DecodeError> {
    match octets.first_chunk() {
        Some(number) => Ok(match i32::from_ne_bytes(*number) {
            0 => Ok(()),
            number => Err(io::Error::from_raw_os_error(number.saturating_neg())),
        }),
        None if octets.is_empty() => Ok(Ok(())),
        None => Err(DecodeError::Short),
    }
}

fn family(octets: &[u8]) -> Result<Payload, DecodeError> {
    for attribute in attributes(octets.get(GENERIC_HEADER..).ok_or(DecodeError::Short)?) {
        let attribute = attribute?;
        if attribute.kind() == CTRL_ATTR_FAMILY_ID {
            return Ok(Payload::Family(attribute.u16("family number")?));
        }
    }
    Err(DecodeError::Missing("family number"))
}
