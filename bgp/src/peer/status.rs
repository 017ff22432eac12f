// SPDX-License-Identifier: Apache-2.0
//! What can be told of a peer: its state, what it counted, and why it went down.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use super::timing::Ending;
use crate::prefix::Family;
use crate::wire::{Cease, ErrorHandling, Message, Notification, PathAttribute, Update};

/// Cease for a reason that will most likely last (RFC 4486 §4).
const TOO_MANY_PREFIXES: (u8, u8) = (6, Cease::MaximumNumberOfPrefixesReached as u8);
const OUT_OF_RESOURCES: (u8, u8) = (6, Cease::OutOfResources as u8);

/// The states of RFC 4271 §8.2.2, in the order of progress.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum State {
    /// Stopped, or resting after a failure. Connections are refused.
    Idle,
    /// Our dial is under way.
    Connect,
    /// Between two dials; the peer may dial us.
    Active,
    /// TCP is up and our OPEN is sent.
    OpenSent,
    /// The peer's OPEN is accepted.
    OpenConfirm,
    /// Routes are exchanged.
    Established,
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Idle => "Idle",
            Self::Connect => "Connect",
            Self::Active => "Active",
            Self::OpenSent => "OpenSent",
            Self::OpenConfirm => "OpenConfirm",
            Self::Established => "Established",
        })
    }
}

/// Why a session was lost or an attempt to bring it up failed.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum DownReason {
    /// TCP could not connect.
    #[error("the TCP connection could not be made")]
    ConnectFailed,
    /// TCP did not connect within ConnectRetryTime.
    #[error("the peer did not answer the TCP connection attempt in time")]
    ConnectTimedOut,
    /// The connection ended without a NOTIFICATION.
    #[error("the TCP connection was closed without a NOTIFICATION")]
    ConnectionClosed,
    /// We ended it.
    #[error("sent NOTIFICATION {notification}: {reason}")]
    Sent {
        /// What the peer was told.
        notification: Notification,
        /// What was wrong, in words.
        reason: Cow<'static, str>,
    },
    /// The peer took nothing of what we sent for the send hold time (RFC 9687 §4).
    #[error("Send Hold Timer Expired (8/0): the peer has taken nothing of what it was sent: it does not read, or nothing reaches it")]
    SendHoldTimerExpired,
    /// We closed the connection without a word, so that the peer keeps our routes while we restart (RFC 4724 §4).
    #[error("closed without a NOTIFICATION, so that the peer keeps our routes")]
    Kept,
    /// The peer ended it.
    #[error("received NOTIFICATION {0}")]
    Received(Notification),
}

impl DownReason {
    /// Whether the next attempt is likely to end in the same way.
    pub(super) fn ending(&self) -> Ending {
        match self {
            Self::ConnectFailed | Self::ConnectTimedOut | Self::ConnectionClosed | Self::SendHoldTimerExpired | Self::Kept => Ending::Other,
            Self::Sent { notification, .. } | Self::Received(notification) => match cause(notification) {
                // Hold Timer Expired, and Send Hold Timer Expired (RFC 9687).
                (4 | 8, _) => Ending::Other,
                TOO_MANY_PREFIXES | OUT_OF_RESOURCES => Ending::ProtocolError,
                (6, _) => Ending::Other,
                _ => Ending::ProtocolError,
            },
        }
    }

    /// Whether the peer only wanted no connection at present, as one that rests: it closed without a word, or said no more than that (RFC 4486 §4). Where we
    /// rested too, each of two speakers would refuse the other while that one does not rest.
    pub(super) fn is_refusal(&self) -> bool {
        match self {
            Self::ConnectionClosed => true,
            Self::Received(notification) => notification.is_cease(Cease::ConnectionRejected),
            Self::ConnectFailed | Self::ConnectTimedOut | Self::Sent { .. } | Self::SendHoldTimerExpired | Self::Kept => false,
        }
    }

    /// Whether we ended the session because the peer had told too much.
    pub(super) fn is_over_limit(&self) -> bool {
        matches!(self, Self::Sent { notification, .. } if cause(notification) == TOO_MANY_PREFIXES)
    }
}

/// Code and subcode, of what is inside where it is a Hard Reset (RFC 8538 §3.1).
fn cause(notification: &Notification) -> (u8, u8) {
    let inside = notification.hard_reset_reason();
    let cause = inside.as_ref().unwrap_or(notification);
    (cause.code, cause.subcode)
}

/// What was counted of a peer since it was made.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Counters {
    /// Messages that the peer sent.
    pub received: MessageCounts,
    /// Messages that were sent to the peer.
    pub sent: MessageCounts,
    /// How often the session came up.
    pub established: u64,
    /// What the peer's UPDATEs said of each family.
    pub prefixes: BTreeMap<Family, PrefixCounts>,
    /// UPDATEs whose routes counted as withdrawn because an attribute was malformed (RFC 7606).
    pub treated_as_withdraw: u64,
    /// Malformed attributes that were left out (RFC 7606).
    pub attributes_discarded: u64,
}

/// Messages by type.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct MessageCounts {
    /// OPEN.
    pub open: u64,
    /// UPDATE.
    pub update: u64,
    /// NOTIFICATION.
    pub notification: u64,
    /// KEEPALIVE.
    pub keepalive: u64,
    /// ROUTE-REFRESH.
    pub route_refresh: u64,
}

/// Destinations in UPDATEs of the peer. They are counted, not kept.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct PrefixCounts {
    /// Announced, again or for the first time.
    pub announced: u64,
    /// Withdrawn, with or without need.
    pub withdrawn: u64,
}

impl MessageCounts {
    pub(super) const fn count(&mut self, message: &Message) {
        match message {
            Message::Open(_) => self.open += 1,
            Message::Update(_) => self.update += 1,
            Message::Notification(_) => self.notification += 1,
            Message::Keepalive => self.keepalive += 1,
            Message::RouteRefresh(_) => self.route_refresh += 1,
        }
    }
}

impl Counters {
    /// Counts what an UPDATE of an Established session says.
    pub(super) fn count_update(&mut self, update: &Update) {
        let as_withdraw = update.handling() == Some(ErrorHandling::TreatAsWithdraw);
        self.treated_as_withdraw += u64::from(as_withdraw);
        let discarded = update.errors.iter().filter(|error| error.handling == ErrorHandling::AttributeDiscard);
        self.attributes_discarded += amount(discarded.count());
        self.count_prefixes(Family::Ipv4Unicast, update.announced.len(), update.withdrawn.len(), as_withdraw);
        for attribute in &update.attributes {
            if let PathAttribute::MpReach(reach) = attribute {
                self.count_prefixes(reach.family, reach.announced.len(), 0, as_withdraw);
            } else if let PathAttribute::MpUnreach(unreach) = attribute {
                self.count_prefixes(unreach.family, 0, unreach.withdrawn.len(), as_withdraw);
            }
        }
    }

    fn count_prefixes(&mut self, family: Family, announced: usize, withdrawn: usize, as_withdraw: bool) {
        if announced + withdrawn > 0 {
            let counts = self.prefixes.entry(family).or_default();
            *(if as_withdraw { &mut counts.withdrawn } else { &mut counts.announced }) += amount(announced);
            counts.withdrawn += amount(withdrawn);
        }
    }
}

fn amount(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}
