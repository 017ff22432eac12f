// SPDX-License-Identifier: Apache-2.0
//! One TCP connection of a peer: how far it has come, its timers, and how much has been sent on it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{LocalAddresses, Role, State};
use crate::identity::{Asn, HoldTime};
use crate::rib::{AdjRibOut, Source};
use crate::wire::{Deframer, Error, MAX_MESSAGE_LENGTH, Message, Negotiated, Open};

/// Octets of UPDATEs that may be sent before the driver has written them, while no message is longer than 4096 octets.
const CREDIT: usize = 64 * 1024;

/// The connections of a peer, at most one of each role.
#[derive(Debug, Default)]
pub(super) struct Connections {
    active: Option<Connection>,
    passive: Option<Connection>,
}

impl Connections {
    pub(super) const fn get(&self, role: Role) -> Option<&Connection> {
        match role {
            Role::Active => self.active.as_ref(),
            Role::Passive => self.passive.as_ref(),
        }
    }

    pub(super) const fn get_mut(&mut self, role: Role) -> Option<&mut Connection> {
        self.slot(role).as_mut()
    }

    pub(super) fn insert(&mut self, role: Role, connection: Connection) {
        *self.slot(role) = Some(connection);
    }

    pub(super) const fn take(&mut self, role: Role) -> Option<Connection> {
        self.slot(role).take()
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.active.is_none() && self.passive.is_none()
    }

    const fn slot(&mut self, role: Role) -> &mut Option<Connection> {
        match role {
            Role::Active => &mut self.active,
            Role::Passive => &mut self.passive,
        }
    }
}

/// How far a connection has come. Our OPEN is sent as soon as it is up.
#[derive(Debug)]
pub(super) enum Phase {
    OpenSent,
    OpenConfirm,
    Established(Box<AdjRibOut>),
}

/// One TCP connection.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) local: LocalAddresses,
    pub(super) phase: Phase,
    pub(super) hold_timer: Option<Instant>,
    pub(super) keepalive_timer: Option<Instant>,
    /// Runs in Established while something that was sent is not acknowledged, from the last time that more of it was (RFC 9687 §3.3). What the sending
    /// host's own buffers take says nothing of the peer: they have room for hours of KEEPALIVEs.
    pub(super) send_hold_timer: Option<Instant>,
    /// When that began to count.
    outstanding_since: Option<Instant>,
    /// All octets sent on it.
    pub(super) sent: u64,
    /// Those of them that TCP has acknowledged.
    acknowledged: u64,
    /// Octets of UPDATEs that may still be sent before it is writable again.
    pub(super) credit: usize,
    pub(super) remote_open: Option<Open>,
    /// Whose routes come on it.
    pub(super) source: Option<Arc<Source>>,
    negotiated: Negotiated,
    deframer: Deframer,
}

impl Connection {
    pub(super) fn new(local: LocalAddresses, local_asn: Asn, open_hold_time: Duration, now: Instant) -> Self {
        Self {
            local,
            phase: Phase::OpenSent,
            hold_timer: now.checked_add(open_hold_time),
            keepalive_timer: None,
            send_hold_timer: None,
            outstanding_since: None,
            sent: 0,
            acknowledged: 0,
            credit: CREDIT,
            remote_open: None,
            source: None,
            negotiated: Negotiated::before_open(local_asn),
            deframer: Deframer::default(),
        }
    }

    pub(super) const fn state(&self) -> State {
        match self.phase {
            Phase::OpenSent => State::OpenSent,
            Phase::OpenConfirm => State::OpenConfirm,
            Phase::Established(_) => State::Established,
        }
    }

    /// What both OPENs agree on, once there are both.
    pub(super) const fn negotiated(&self) -> Option<&Negotiated> {
        match self.phase {
            Phase::OpenSent => None,
            Phase::OpenConfirm | Phase::Established(_) => Some(&self.negotiated),
        }
    }

    pub(super) const fn adj_rib_out(&self) -> Option<&AdjRibOut> {
        match &self.phase {
            Phase::OpenSent | Phase::OpenConfirm => None,
            Phase::Established(adj_rib_out) => Some(adj_rib_out),
        }
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.hold_timer.into_iter().chain(self.keepalive_timer).chain(self.send_hold_timer).min()
    }

    /// The peer's OPEN is good. Without a hold time its KEEPALIVE has what is left of the time for the OPEN, so that no connection waits for ever.
    pub(super) fn confirm(&mut self, negotiated: Negotiated, now: Instant) {
        self.negotiated = negotiated;
        self.phase = Phase::OpenConfirm;
        if self.negotiated.hold_time != HoldTime::ZERO {
            self.restart_hold_timer(now);
        }
    }

    /// Whether no further UPDATE may be sent before it is writable again.
    pub(super) fn is_spent(&self) -> bool {
        matches!(self.phase, Phase::Established(_)) && self.credit < self.negotiated.max_send_length
    }

    /// All that was sent is in the kernel.
    pub(super) const fn written(&mut self) {
        self.credit = CREDIT - MAX_MESSAGE_LENGTH + self.negotiated.max_send_length;
    }

    /// TCP has acknowledged so many octets in all. The peer, which has taken more than before, has the send hold time anew for the rest.
    pub(super) fn acknowledged(&mut self, octets: u64, send_hold_time: Duration, now: Instant) {
        let octets = octets.min(self.sent);
        if octets > self.acknowledged {
            self.acknowledged = octets;
            self.send_hold_timer = None;
            self.outstanding_since = None;
            self.watch_peer(send_hold_time, now);
        }
    }

    /// Starts the SendHoldTimer where it is to run and does not.
    pub(super) fn watch_peer(&mut self, send_hold_time: Duration, now: Instant) {
        let runs = self.outstanding_since.is_some();
        if !runs && self.acknowledged < self.sent && matches!(self.phase, Phase::Established(_)) {
            self.outstanding_since = Some(now);
            self.set_send_hold_time(send_hold_time);
        }
    }

    /// The SendHoldTimer, where it runs, ends so long after it began to count; that may be over.
    pub(super) fn set_send_hold_time(&mut self, send_hold_time: Duration) {
        self.send_hold_timer = self.outstanding_since.and_then(|since| since.checked_add(send_hold_time));
    }

    /// A message came that shows the peer to be alive (RFC 4271 §6.5).
    pub(super) fn restart_hold_timer(&mut self, now: Instant) {
        self.hold_timer = self.negotiated.hold_time.duration().and_then(|hold| now.checked_add(hold));
    }

    /// A KEEPALIVE or UPDATE was sent (RFC 4271 §8.2.2, Established).
    pub(super) fn restart_keepalive_timer(&mut self, interval: Option<Duration>, now: Instant) {
        self.keepalive_timer = interval.and_then(|interval| now.checked_add(interval));
    }

    pub(super) fn push(&mut self, octets: &[u8]) {
        self.deframer.push(octets);
    }

    pub(super) fn next_message(&mut self) -> Result<Option<Message>, Error> {
        self.deframer.next(&self.negotiated)
    }
}
