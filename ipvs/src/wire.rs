// SPDX-License-Identifier: Apache-2.0
//! The kernel's generic-netlink family `IPVS`, version 1 (`linux/ip_vs.h`), between values and octets.
//!
//! Out: a [`Command`](crate::Command) or a [`Query`] becomes one netlink message. In: a datagram is cut into [`Frame`]s. Invariants: no input panics; what
//! is decoded and encoded again says the same, attributes without a name included; attributes stand in the order in which `ipvsadm` writes them.
#![warn(clippy::indexing_slicing)]

mod attribute;
mod frame;
mod message;
mod request;
mod server;
mod service;
mod settings;
mod statistics;
#[cfg(test)]
mod tests;

pub use frame::{Frame, Frames, Payload};
pub use message::Message;
pub use request::{Query, encode_barrier, encode_command, encode_family_query, encode_query};

/// Why octets are not what the family sends.
#[derive(Debug, thiserror::Error)]
pub enum DecodeError {
    /// The netlink framing is broken.
    #[error("not netlink messages or attributes")]
    Framing(#[source] netlink_packet_core::DecodeError),
    /// A message ends before what it must have.
    #[error("a message is too short")]
    Short,
    /// An attribute that must be there is not.
    #[error("the attribute {0} is missing")]
    Missing(&'static str),
    /// An attribute has a length or value that its type does not have.
    #[error("the attribute {name} has the value {value:02x?}")]
    Value {
        /// Which attribute.
        name: &'static str,
        /// What it holds.
        value: Vec<u8>,
    },
}

/// Commands of the family, the first octet of the generic-netlink header.
mod command {
    pub(super) const NEW_SERVICE: u8 = 1;
    pub(super) const SET_SERVICE: u8 = 2;
    pub(super) const DEL_SERVICE: u8 = 3;
    pub(super) const GET_SERVICE: u8 = 4;
    pub(super) const NEW_DEST: u8 = 5;
    pub(super) const SET_DEST: u8 = 6;
    pub(super) const DEL_DEST: u8 = 7;
    pub(super) const GET_DEST: u8 = 8;
    pub(super) const NEW_DAEMON: u8 = 9;
    pub(super) const DEL_DAEMON: u8 = 10;
    pub(super) const GET_DAEMON: u8 = 11;
    pub(super) const SET_CONFIG: u8 = 12;
    pub(super) const GET_CONFIG: u8 = 13;
    pub(super) const SET_INFO: u8 = 14;
    pub(super) const GET_INFO: u8 = 15;
    pub(super) const ZERO: u8 = 16;
    pub(super) const FLUSH: u8 = 17;
}

/// Attributes of the first level.
mod top {
    pub(super) const SERVICE: u16 = 1;
    pub(super) const DEST: u16 = 2;
    pub(super) const DAEMON: u16 = 3;
}

/// Version of the family.
const VERSION: u8 = 1;
