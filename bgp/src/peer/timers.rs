// SPDX-License-Identifier: Apache-2.0
//! The timers of a peer for a reader. Input: the state machine as it is. Output: the instants at which its timers expire.

use std::time::{Duration, Instant};

use super::dial::Dial;
use super::{Peer, Role};

/// When the timers that run expire, and when the peer was last heard and spoken to.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Timers {
    /// HoldTimer: the session ends unless a message comes before (RFC 4271 §6.5).
    pub hold: Option<Instant>,
    /// KeepaliveTimer: the next KEEPALIVE (RFC 4271 §4.4).
    pub keepalive: Option<Instant>,
    /// SendHoldTimer: the session ends unless TCP acknowledges more before (RFC 9687 §4). Runs while something is outstanding.
    pub send_hold: Option<Instant>,
    /// ConnectRetryTimer: the next dial (RFC 4271 §8.2.2).
    pub connect_retry: Option<Instant>,
    /// IdleHoldTimer: the end of the rest in Idle (RFC 4271 §8.1.1).
    pub idle_hold: Option<Instant>,
    /// The last message of the peer.
    pub last_received: Option<Instant>,
    /// The last message to the peer.
    pub last_sent: Option<Instant>,
}

impl Peer {
    /// The timers as they run; those of the connection that is furthest.
    #[must_use]
    pub fn timers(&self) -> Timers {
        let connections = Role::BOTH.iter().filter_map(|role| self.connections.get(*role));
        let connection = connections.max_by_key(|connection| connection.state());
        let (connect_retry, idle_hold) = match self.dial {
            Dial::Dialling(at) | Dial::Waiting(at) => (at, None),
            Dial::Resting(at) => (None, at),
            Dial::Stopped | Dial::Done => (None, None),
        };
        Timers {
            hold: connection.and_then(|connection| connection.hold_timer),
            keepalive: connection.and_then(|connection| connection.keepalive_timer),
            send_hold: connection.and_then(|connection| connection.send_hold_timer),
            connect_retry,
            idle_hold,
            last_received: self.last_received,
            last_sent: self.last_sent,
        }
    }

    /// How long the peer may take nothing of what we send (RFC 9687 §5), in the session or, without one, as we would have it.
    #[must_use]
    pub fn send_hold_time(&self) -> Duration {
        let hold_time = self.negotiated().map_or(self.config.hold_time, |negotiated| negotiated.hold_time);
        self.config.send_hold_time(hold_time)
    }
}
