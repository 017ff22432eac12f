// SPDX-License-Identifier: Apache-2.0
//! What a malformed message leads to: the end of the session ([`Error`]), or less ([`ErrorHandling`], RFC 7606). Also why a message cannot be sent.

use bytes::Bytes;

use super::notification::UpdateError;
use super::{NextHop, Notification};
use crate::Family;

/// A message that ends the session, as the NOTIFICATION that tells the peer (RFC 4271 §6) and the reason in words.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{reason} ({notification})")]
pub struct Error {
    /// What to send to the peer before the connection is closed.
    pub notification: Notification,
    /// What was wrong, for the log.
    pub reason: &'static str,
}

impl Error {
    pub(super) const fn new(notification: Notification, reason: &'static str) -> Self {
        Self { notification, reason }
    }
}

/// How an UPDATE with a malformed attribute is handled short of ending the session (RFC 7606 §2), the weaker first.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum ErrorHandling {
    /// The attribute is left out, the routes stay.
    AttributeDiscard,
    /// All routes that the UPDATE announces count as withdrawn.
    TreatAsWithdraw,
}

/// One attribute that was malformed or missing, for the log (RFC 7606 §8).
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct AttributeError {
    /// Attribute Type Code.
    pub type_code: u8,
    /// Attribute Flags as received; 0 where the attribute is missing.
    pub flags: u8,
    /// What it leads to.
    pub handling: ErrorHandling,
    /// What was wrong.
    pub reason: &'static str,
    /// The attribute as received, from its flags on; empty where it is missing.
    pub octets: Bytes,
    /// The subcode under which it ends the session where that cannot be avoided.
    pub(super) subcode: UpdateError,
}

impl AttributeError {
    /// The end of the session for this attribute.
    pub(super) fn session_reset(&self) -> Error {
        Error::new(Notification::update_error(self.subcode, self.octets.clone()), self.reason)
    }
}

/// What is wrong with the value or the flags of an attribute.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Malformed {
    /// `None` where the session ends.
    pub(super) handling: Option<ErrorHandling>,
    pub(super) subcode: UpdateError,
    pub(super) reason: &'static str,
}

impl Malformed {
    pub(super) const fn attribute_discard(subcode: UpdateError, reason: &'static str) -> Self {
        Self { handling: Some(ErrorHandling::AttributeDiscard), subcode, reason }
    }

    pub(super) const fn treat_as_withdraw(subcode: UpdateError, reason: &'static str) -> Self {
        Self { handling: Some(ErrorHandling::TreatAsWithdraw), subcode, reason }
    }

    pub(super) const fn session_reset(subcode: UpdateError, reason: &'static str) -> Self {
        Self { handling: None, subcode, reason }
    }
}

/// Why a message cannot be sent.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum EncodeError {
    /// It is longer than the peer accepts (RFC 4271 §4.1, RFC 8654 §4).
    #[error("the message would take {length} octets, more than {limit}")]
    TooLong {
        /// The length that it would have.
        length: usize,
        /// The greatest length that the peer accepts.
        limit: usize,
    },
    /// The next hop is unspecified, or the session cannot carry one of its kind for the family.
    #[error("{next_hop} cannot be sent as next hop of {family}")]
    NextHop {
        /// The next hop given.
        next_hop: NextHop,
        /// The family of the routes.
        family: Family,
    },
}
