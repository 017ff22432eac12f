// SPDX-License-Identifier: Apache-2.0
//! The part of the state machine that has no connection yet: when the peer is dialled, and how long it rests (RFC 4271 §8.2.2: Idle, Connect, Active).
//!
//! Input: Start, Stop, ticks and the outcome of dials. Output: Connect and Abort. Invariants: while the peer is stopped or rests there is no connection; a
//! passive peer goes from Idle to Active (RFC 4271 §8.2.2, Events 4 and 5) and is never dialled.

use std::time::{Duration, Instant};

use super::connection::Connection;
use super::{Action, DownReason, LocalAddresses, Peer, Role, State, Stop, Turn};

/// Whether we dial the peer.
#[derive(Debug, Eq, PartialEq)]
pub(super) enum Dial {
    /// Idle until Start.
    Stopped,
    /// Idle until this instant (IdleHoldTimer).
    Resting(Option<Instant>),
    /// A dial is under way; it is given up, and made again, at this instant (ConnectRetryTimer).
    Dialling(Option<Instant>),
    /// The peer is dialled at this instant (ConnectRetryTimer), and may dial us before; `None` for one that is never dialled.
    Waiting(Option<Instant>),
    /// There is a connection that we dialled, or one that is past OpenSent.
    Done,
}

impl Dial {
    pub(super) const fn state(&self) -> State {
        match self {
            Self::Dialling(_) => State::Connect,
            Self::Waiting(_) => State::Active,
            Self::Stopped | Self::Resting(_) | Self::Done => State::Idle,
        }
    }

    pub(super) const fn deadline(&self) -> Option<Instant> {
        match self {
            Self::Resting(at) | Self::Dialling(at) | Self::Waiting(at) => *at,
            Self::Stopped | Self::Done => None,
        }
    }

    pub(super) const fn is_idle(&self) -> bool {
        matches!(self, Self::Stopped | Self::Resting(_))
    }

    const fn is_dialling(&self) -> bool {
        matches!(self, Self::Dialling(_))
    }
}

impl Peer {
    pub(super) fn start(&mut self, turn: &mut Turn) {
        if self.dial == Dial::Stopped {
            self.begin_restart(turn);
            self.dial(turn);
        }
    }

    /// Ends whatever there is. Does not count as a failure.
    pub(super) fn stop(&mut self, stop: &Stop, turn: &mut Turn) {
        let notification = stop.notification();
        let mut reason = None;
        self.challenged_until = None;
        for role in Role::BOTH {
            let keep = *stop == Stop::Keep && self.keeps_routes(role);
            let notification = if stop.is_final() { self.with_emphasis(role, &notification) } else { notification.clone() };
            let Some(connection) = self.connections.take(role) else { continue };
            let ended = if keep {
                turn.push(Action::Close { role });
                DownReason::Kept
            } else {
                self.notify(role, &notification, turn);
                DownReason::Sent { notification, reason: stop.reason().into() }
            };
            self.session_lost(&connection, &ended, turn);
            reason = Some(ended);
        }
        if stop.is_final() {
            self.clear_adj_rib_in(turn);
        }
        self.established_since = None;
        self.abort_dial(turn);
        self.damping.clear();
        self.dial = match stop {
            Stop::AdministrativeReset if self.dial != Dial::Stopped => Dial::Resting(self.after(self.damping.brief(), turn)),
            Stop::AdministrativeReset
            | Stop::AdministrativeShutdown { .. }
            | Stop::Deconfigured
            | Stop::Rejected
            | Stop::ConfigurationChange
            | Stop::Keep => Dial::Stopped,
        };
        if let Some(reason) = reason {
            self.down(reason, turn);
        }
    }

    pub(super) fn tick(&mut self, turn: &mut Turn) {
        for role in Role::BOTH {
            self.tick_connection(role, turn);
        }
        self.tick_restart(turn);
        self.tick_challenge(turn);
        if self.dial.deadline().is_some_and(|at| at <= turn.now) {
            if self.abort_dial(turn) && self.connections.is_empty() {
                self.down(DownReason::ConnectTimedOut, turn);
            }
            self.dial(turn);
        }
    }

    pub(super) fn reachable(&mut self, turn: &mut Turn) {
        if matches!(self.dial, Dial::Dialling(_) | Dial::Waiting(_)) {
            self.abort_dial(turn);
            self.dial(turn);
        }
    }

    pub(super) fn connected(&mut self, role: Role, local: LocalAddresses, turn: &mut Turn) {
        let wanted = match role {
            Role::Active => self.dial.is_dialling(),
            Role::Passive => self.accepts(),
        };
        if !wanted {
            // What is there already must not be taken for the new one.
            if self.connections.get(role).is_none() {
                turn.push(Action::Abort { role });
            }
            return;
        }
        if role == Role::Active {
            self.dial = Dial::Done;
        }
        self.replaced(role, turn);
        self.connections.insert(role, Connection::new(local, self.config.local_asn, self.config.open_hold_time, turn.now));
        self.counters.sent.open += 1;
        self.send(role, self.open.encode(), turn);
        if role == Role::Passive && self.adj_rib_out().is_some() && !self.may_have_restarted(Role::Active) {
            self.challenge(Role::Active, turn);
        }
    }

    pub(super) fn connect_failed(&mut self, role: Role, turn: &mut Turn) {
        if role == Role::Active && self.dial.is_dialling() {
            self.wait(turn);
            if self.connections.is_empty() {
                self.down(DownReason::ConnectFailed, turn);
            }
        }
    }

    /// Idle, before the next dial.
    pub(super) fn rest(&mut self, period: Duration, turn: &mut Turn) {
        self.abort_dial(turn);
        self.dial = Dial::Resting(self.after(period, turn));
    }

    /// Idle, until a rest is over.
    const fn rests(&self) -> bool {
        matches!(self.dial, Dial::Resting(_))
    }

    /// Whether the peer rests because it has told too much: for its [`Import::restart_delay`](crate::rib::Import::restart_delay).
    pub(super) fn stays_away(&self) -> bool {
        self.rests() && self.last_error.as_ref().is_some_and(DownReason::is_over_limit)
    }

    /// Other times. The SendHoldTimer of a peer that takes nothing ends so long after it last took something. What waits for
    /// the next dial or for the end of one waits no longer than a new ConnectRetryTime, and neither does a rest that goes by that where the new one is
    /// shorter.
    pub(super) fn set_timers(&mut self, connect_retry: Duration, send_hold_time: Option<Duration>, turn: &Turn) {
        self.config.send_hold_time = send_hold_time;
        let send_hold_time = self.send_hold_time();
        for role in Role::BOTH {
            if let Some(connection) = self.connections.get_mut(role) {
                connection.set_send_hold_time(send_hold_time);
            }
        }
        let before = std::mem::replace(&mut self.config.connect_retry, connect_retry);
        if before != connect_retry {
            self.damping.set_connect_retry(connect_retry);
            let rest_goes_by_it = connect_retry < before && !self.stays_away();
            let latest = self.after(self.damping.connect_retry(), turn);
            match &mut self.dial {
                Dial::Dialling(at) | Dial::Waiting(at) if !self.config.passive => *at = earlier(*at, latest),
                Dial::Resting(at) if rest_goes_by_it => *at = earlier(*at, latest),
                Dial::Stopped | Dial::Resting(_) | Dial::Dialling(_) | Dial::Waiting(_) | Dial::Done => {}
            }
        }
    }

    /// A rest is over after this period, unless it is before.
    pub(super) fn shorten_rest(&mut self, period: Duration, turn: &Turn) {
        let latest = self.after(period, turn);
        if let Dial::Resting(at) = &mut self.dial {
            *at = earlier(*at, latest);
        }
    }

    /// A rest is over before its time.
    pub(super) fn end_rest(&mut self, turn: &mut Turn) {
        if self.rests() {
            self.damping.clear();
            self.dial(turn);
        }
    }

    /// Active: the next dial comes after ConnectRetryTime.
    pub(super) fn wait(&mut self, turn: &Turn) {
        self.dial = Dial::Waiting(if self.config.passive { None } else { self.after(self.damping.connect_retry(), turn) });
    }

    /// A connection is past OpenSent: no other is needed.
    pub(super) fn dial_done(&mut self, turn: &mut Turn) {
        self.abort_dial(turn);
        self.dial = Dial::Done;
    }

    fn dial(&mut self, turn: &mut Turn) {
        if self.config.passive {
            return self.wait(turn);
        }
        self.dial = Dial::Dialling(self.after(self.damping.connect_retry(), turn));
        turn.push(Action::Connect);
    }

    /// Gives up a dial that is under way, and says whether there was one. What is next is for the caller to say.
    fn abort_dial(&mut self, turn: &mut Turn) -> bool {
        let dialling = self.dial.is_dialling();
        if dialling {
            turn.push(Action::Abort { role: Role::Active });
        }
        dialling
    }

    /// The instant when a period with jitter is over; `None` beyond the end of time.
    fn after(&mut self, period: Duration, turn: &Turn) -> Option<Instant> {
        turn.now.checked_add(self.jitter.apply(period))
    }
}

/// The earlier of two instants, where `None` is beyond the end of time.
fn earlier(one: Option<Instant>, other: Option<Instant>) -> Option<Instant> {
    one.into_iter().chain(other).min()
}
