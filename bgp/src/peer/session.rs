// SPDX-License-Identifier: Apache-2.0
//! The part of the state machine that has a connection: messages, timers, collision, and the end (RFC 4271 §8.2.2: OpenSent, OpenConfirm, Established).
//!
//! Input: octets and the end of connections, and routes. Output: messages, Close, and where it all ends a Down.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::connection::{Connection, Phase};
use super::dial::Dial;
use super::timing::{Ending, keepalive_interval};
use super::{Action, DownReason, Peer, Role, State, Turn};
use crate::prefix::Family;
use crate::rib::{AdjRibOut, Changes, Export, LocRib, LocalAddresses};
use crate::wire::{Cease, KEEPALIVE, Message, Negotiated, Notification, Open};

/// So long the host of a peer that dials again may take to say that it knows nothing of the connection that is there.
const CHALLENGE: Duration = Duration::from_secs(1);

impl Peer {
    pub(super) fn received(&mut self, role: Role, octets: &[u8], turn: &mut Turn) {
        if let Some(connection) = self.connections.get_mut(role) {
            connection.push(octets);
        }
        // Each message may end the connection.
        while let Some(connection) = self.connections.get_mut(role) {
            match connection.next_message() {
                Ok(Some(message)) => self.message(role, message, turn),
                Ok(None) => return,
                Err(error) => self.fail(role, error.notification, error.reason.into(), turn),
            }
            self.settle(turn);
        }
    }

    pub(super) fn closed(&mut self, role: Role, turn: &mut Turn) {
        if self.connections.get(role).is_some() {
            turn.push(Action::Abort { role });
            self.ended(role, DownReason::ConnectionClosed, turn);
        }
    }

    pub(super) fn writable(&mut self, role: Role, turn: &mut Turn) {
        if let Some(connection) = self.connections.get_mut(role) {
            connection.written();
            self.send_updates(role, turn);
        }
    }

    pub(super) fn acknowledged(&mut self, role: Role, octets: u64, turn: &Turn) {
        let send_hold_time = self.send_hold_time();
        if let Some(connection) = self.connections.get_mut(role) {
            connection.acknowledged(octets, send_hold_time, turn.now);
        }
        if let Some(adj_rib_out) = self.adj_rib_out_mut(role) {
            adj_rib_out.acknowledged(octets);
            self.check_restart(role);
        }
    }

    pub(super) fn set_routes(&mut self, rib: Arc<LocRib>, turn: &mut Turn) {
        if self.routes.as_ref().is_some_and(|routes| Arc::ptr_eq(routes, &rib)) {
            return;
        }
        for role in Role::BOTH {
            if let Some(adj_rib_out) = self.adj_rib_out_mut(role) {
                adj_rib_out.set(&rib);
                self.send_updates(role, turn);
            }
        }
        self.routes = Some(rib);
    }

    /// Some destinations have other paths now.
    pub(super) fn change_routes(&mut self, changes: &Changes, rib: Arc<LocRib>, turn: &mut Turn) {
        if self.routes.is_none() {
            return;
        }
        self.routes = Some(rib);
        for role in Role::BOTH {
            // Who has nothing yet is given all of it.
            if let Some(adj_rib_out) = self.adj_rib_out_mut(role).filter(|adj_rib_out| adj_rib_out.is_complete()) {
                adj_rib_out.apply(changes);
                self.send_updates(role, turn);
            }
        }
    }

    /// The policy of this peer is another one, perhaps of other routes: what changes by that is sent again, in the same session.
    pub(super) fn set_export(&mut self, export: Export, routes: Option<Arc<LocRib>>, turn: &mut Turn) {
        if self.config.export == export {
            return routes.into_iter().for_each(|rib| self.set_routes(rib, turn));
        }
        self.config.export = export.clone();
        self.routes = routes.or_else(|| self.routes.take());
        let routes = self.routes.clone().unwrap_or_default();
        for role in Role::BOTH {
            if let Some(adj_rib_out) = self.adj_rib_out_mut(role) {
                adj_rib_out.set_export(export.clone(), &routes);
                self.send_updates(role, turn);
            }
        }
    }

    /// End-of-RIB may go.
    pub(super) fn end_deferral(&mut self, turn: &mut Turn) {
        for role in Role::BOTH {
            if let Some(adj_rib_out) = self.adj_rib_out_mut(role) {
                adj_rib_out.defer_end_of_rib(false);
                self.send_updates(role, turn);
            }
        }
    }

    /// Our addresses on this connection are others: next hops that change by it are told again, in the same session.
    pub(super) fn set_local(&mut self, role: Role, local: LocalAddresses, turn: &mut Turn) {
        let routes = self.routes.clone().unwrap_or_default();
        let Some(connection) = self.connections.get_mut(role) else { return };
        if connection.local != local {
            connection.local = local;
            if let Some(adj_rib_out) = self.adj_rib_out_mut(role) {
                adj_rib_out.set_local(local, &routes);
                self.send_updates(role, turn);
            }
        }
    }

    /// The timers of one connection.
    pub(super) fn tick_connection(&mut self, role: Role, turn: &mut Turn) {
        let Some(connection) = self.connections.get(role) else { return };
        let due = |timer: Option<_>| timer.is_some_and(|at| at <= turn.now);
        let (hold, keepalive) = (due(connection.hold_timer), due(connection.keepalive_timer));
        let send_hold = due(connection.send_hold_timer);
        if hold {
            self.fail(role, Notification::hold_timer_expired(), "nothing was heard within the hold time".into(), turn);
        } else if send_hold {
            turn.push(Action::Abort { role });
            self.ended(role, DownReason::SendHoldTimerExpired, turn);
        } else if keepalive {
            self.send_keepalive(role, turn);
        }
    }

    /// Sends whole messages on a connection.
    pub(super) fn send(&mut self, role: Role, bytes: Bytes, turn: &mut Turn) {
        self.last_sent = Some(turn.now);
        let send_hold_time = self.send_hold_time();
        if let Some(connection) = self.connections.get_mut(role) {
            connection.sent += u64::try_from(bytes.len()).unwrap_or(u64::MAX);
            connection.watch_peer(send_hold_time, turn.now);
        }
        turn.push(Action::Send { role, bytes });
    }

    /// Asks for a sign of life where the peer dials though there is this connection. Once a second is enough (RFC 4271 §4.4).
    pub(super) fn challenge(&mut self, role: Role, turn: &mut Turn) {
        let is_past_open_sent = self.connections.get(role).is_some_and(|connection| connection.state() > State::OpenSent);
        if is_past_open_sent && self.challenged_until.is_none() {
            self.challenged_until = turn.now.checked_add(CHALLENGE);
            self.send_keepalive(role, turn);
        }
    }

    pub(super) fn probe(&mut self, role: Role, turn: &mut Turn) {
        if self.connections.get(role).is_some_and(|connection| connection.state() > State::OpenSent) {
            self.send_keepalive(role, turn);
        }
    }

    pub(super) fn tick_challenge(&mut self, turn: &Turn) {
        self.challenged_until = self.challenged_until.filter(|until| *until > turn.now);
    }

    /// The last words on a connection that is no longer the peer's.
    pub(super) fn notify(&mut self, role: Role, notification: &Notification, turn: &mut Turn) {
        self.counters.sent.notification += 1;
        self.last_sent = Some(turn.now);
        turn.push(Action::Send { role, bytes: notification.encode() });
        turn.push(Action::Close { role });
    }

    fn adj_rib_out_mut(&mut self, role: Role) -> Option<&mut AdjRibOut> {
        match &mut self.connections.get_mut(role)?.phase {
            Phase::OpenSent | Phase::OpenConfirm => None,
            Phase::Established(adj_rib_out) => Some(adj_rib_out),
        }
    }

    fn message(&mut self, role: Role, message: Message, turn: &mut Turn) {
        self.counters.received.count(&message);
        self.last_received = Some(turn.now);
        let Some(state) = self.connections.get(role).map(Connection::state) else { return };
        match message {
            Message::Open(open) if state == State::OpenSent => self.opened(role, &open, turn),
            Message::Keepalive if state == State::OpenConfirm => {
                self.restart_hold_timer(role, turn);
                self.established(role, turn);
            }
            Message::Keepalive if state == State::Established => self.restart_hold_timer(role, turn),
            Message::Update(update) if state == State::Established => {
                self.restart_hold_timer(role, turn);
                self.counters.count_update(&update);
                self.import(role, &update, turn);
            }
            Message::RouteRefresh(request) if state == State::Established => {
                request.requested().into_iter().for_each(|family| self.refresh(family));
                self.refresh_mark(role, request, turn);
            }
            Message::Notification(notification) => {
                turn.push(Action::Close { role });
                self.ended(role, DownReason::Received(notification), turn);
            }
            Message::Open(_) => self.unexpected(role, state, 1, turn),
            Message::Update(_) => self.unexpected(role, state, 2, turn),
            Message::Keepalive => self.unexpected(role, state, 4, turn),
            Message::RouteRefresh(_) => self.unexpected(role, state, 5, turn),
        }
    }

    /// A message that has no place in this state (RFC 6608 §3): its type is the data.
    fn unexpected(&mut self, role: Role, state: State, message_type: u8, turn: &mut Turn) {
        let notification = match state {
            State::OpenConfirm => Notification::unexpected_message_in_open_confirm(),
            State::Established => Notification::unexpected_message_in_established(),
            State::Idle | State::Connect | State::Active | State::OpenSent => Notification::unexpected_message_in_open_sent(),
        };
        let notification = Notification { data: Bytes::copy_from_slice(&[message_type]), ..notification };
        self.fail(role, notification, format!("message type {message_type} is not expected in {state}").into(), turn);
    }

    /// The peer's OPEN is well-formed (RFC 4271 §8.2.2, OpenSent, Event 19).
    fn opened(&mut self, role: Role, open: &Open, turn: &mut Turn) {
        if let Err((notification, reason)) = self.check(open) {
            self.fail(role, notification, reason, turn);
            return;
        }
        if self.may_have_restarted(role.other()) {
            turn.push(Action::Abort { role: role.other() });
            self.replaced(role.other(), turn);
        }
        if let Some(loser) = self.collision(role, open) {
            self.resolve(loser, turn);
            if loser == role {
                return;
            }
        }
        self.dial_done(turn);
        let negotiated = Negotiated::new(&self.open, open);
        let source = self.source(open);
        if let Some(connection) = self.connections.get_mut(role) {
            connection.remote_open = Some(open.clone());
            connection.source = Some(source);
            connection.confirm(negotiated, turn.now);
        }
        self.send_keepalive(role, turn);
    }

    /// What of an OPEN depends on the configuration (RFC 4271 §6.2, RFC 6286 §2.2).
    fn check(&self, open: &Open) -> Result<(), (Notification, Cow<'static, str>)> {
        if open.asn != self.config.remote_asn {
            let reason = format!("the peer is in AS {}, not in {} as configured", open.asn, self.config.remote_asn);
            return Err((Notification::bad_peer_as(), reason.into()));
        }
        if open.asn == self.config.local_asn && open.identifier == self.config.identifier {
            let reason = format!("the internal peer has our own BGP Identifier {}", open.identifier);
            return Err((Notification::bad_bgp_identifier(), reason.into()));
        }
        self.check_role(open)?;
        Ok(())
    }

    /// RFC 9234 §4.2: on external sessions; several different roles are as wrong as one that does not match.
    fn check_role(&self, open: &Open) -> Result<(), (Notification, Cow<'static, str>)> {
        let Some(role) = self.config.role.filter(|_| self.config.is_external()) else { return Ok(()) };
        let roles = open.roles();
        let reason = match (roles.first(), roles.len()) {
            (None, _) if role.strict => "the peer does not say what it is to us",
            (Some(_), 2..) => "the peer says that it is several things to us",
            (Some(remote), _) if !role.local.matches(*remote) => "the peer is not to us what we are configured for",
            _ => return Ok(()),
        };
        Err((Notification::role_mismatch(), reason.into()))
    }

    /// Which connection the peer's OPEN on `role` makes redundant (RFC 4271 §6.8): the one dialled by the speaker with the lower BGP Identifier, or AS
    /// where identifiers are equal (RFC 6286 §2.3). A session that is up is kept, unless the peer restarts gracefully. `None` while the other has not
    /// seen an OPEN.
    fn collision(&self, role: Role, open: &Open) -> Option<Role> {
        let ours = (self.config.identifier, self.config.local_asn);
        let theirs = (open.identifier, open.asn);
        match self.connections.get(role.other())?.phase {
            Phase::OpenSent => None,
            Phase::OpenConfirm => Some(if ours > theirs { Role::Passive } else { Role::Active }),
            Phase::Established(_) => Some(role),
        }
    }

    /// Closes the redundant connection.
    fn resolve(&mut self, loser: Role, turn: &mut Turn) {
        if self.connections.take(loser).is_some() {
            self.notify(loser, &Notification::cease(Cease::ConnectionCollisionResolution), turn);
        }
    }

    /// The peer has accepted our OPEN: routes can flow.
    fn established(&mut self, role: Role, turn: &mut Turn) {
        self.resolve(role.other(), turn);
        let Some(connection) = self.connections.get_mut(role) else { return };
        let Some(negotiated) = connection.negotiated().cloned() else { return };
        let mut adj_rib_out = AdjRibOut::new(self.config.export.clone(), self.config.target(), negotiated.clone(), connection.local);
        adj_rib_out.defer_end_of_rib(self.deferred_until.is_some());
        connection.phase = Phase::Established(Box::new(adj_rib_out));
        connection.watch_peer(self.config.send_hold_time(negotiated.hold_time), turn.now);
        self.established_since = Some(turn.now);
        self.counters.established += 1;
        self.settle(turn);
        self.session_returned(&negotiated, turn);
    }

    /// Begins what takes long: the first whole set of a session, or what is to be told again.
    pub(super) fn tell(&mut self, turn: &mut Turn) {
        let routes = self.routes.clone();
        for role in Role::BOTH {
            let Some(adj_rib_out) = self.adj_rib_out_mut(role) else { continue };
            match &routes {
                Some(rib) if !adj_rib_out.is_complete() => adj_rib_out.set(rib),
                _ if adj_rib_out.is_to_refresh() => adj_rib_out.begin_refreshes(),
                _ => continue,
            }
            self.send_updates(role, turn);
        }
    }

    /// Somebody wants the peer to hear everything of a family again: the peer (RFC 2918 §4), or the operator (RFC 7313 §4).
    pub(super) fn refresh(&mut self, family: Family) {
        for role in Role::BOTH {
            if let Some(adj_rib_out) = self.adj_rib_out_mut(role) {
                adj_rib_out.refresh(family);
            }
        }
    }

    fn restart_hold_timer(&mut self, role: Role, turn: &Turn) {
        if let Some(connection) = self.connections.get_mut(role) {
            connection.restart_hold_timer(turn.now);
        }
    }

    fn send_keepalive(&mut self, role: Role, turn: &mut Turn) {
        self.counters.sent.keepalive += 1;
        self.send(role, Bytes::from_static(&KEEPALIVE), turn);
        self.restart_keepalive_timer(role, turn);
    }

    fn restart_keepalive_timer(&mut self, role: Role, turn: &Turn) {
        if let Some(connection) = self.connections.get_mut(role)
            && let Some(negotiated) = connection.negotiated()
        {
            let interval = keepalive_interval(negotiated.hold_time, &mut self.jitter);
            connection.restart_keepalive_timer(interval, turn.now);
        }
    }

    /// Sends what is pending of the Adj-RIB-Out, as far as the credit goes.
    fn send_updates(&mut self, role: Role, turn: &mut Turn) {
        let Some(connection) = self.connections.get_mut(role) else { return };
        let Phase::Established(adj_rib_out) = &mut connection.phase else { return };
        let batch = adj_rib_out.next(connection.sent, connection.credit);
        if batch.octets.is_empty() {
            return;
        }
        connection.credit = connection.credit.saturating_sub(batch.octets.len());
        self.counters.sent.update += batch.updates;
        self.counters.sent.route_refresh += batch.marks;
        self.send(role, batch.octets.into(), turn);
        self.restart_keepalive_timer(role, turn);
        self.check_restart(role);
    }

    /// Ends a connection for a reason of ours.
    pub(super) fn fail(&mut self, role: Role, notification: Notification, reason: Cow<'static, str>, turn: &mut Turn) {
        self.notify(role, &notification, turn);
        self.ended(role, DownReason::Sent { notification, reason }, turn);
    }

    /// The connection is gone: what becomes of the session and of the other connection.
    fn ended(&mut self, role: Role, reason: DownReason, turn: &mut Turn) {
        let Some(connection) = self.connections.take(role) else { return };
        let is_replaced = self.challenged_until.take().is_some() && role == Role::Passive;
        self.session_lost(&connection, &reason, turn);
        let lasted = match connection.phase {
            Phase::Established(_) => self.established_since.take().map(|since| turn.now.saturating_duration_since(since)),
            Phase::OpenSent | Phase::OpenConfirm => None,
        };
        let ending = reason.ending();
        match self.connections.get(role.other()).map(Connection::state) {
            // The other one is the session.
            Some(State::OpenConfirm | State::Established) => {}
            // The other one may still become the session.
            Some(_) if ending == Ending::Other => {
                if self.dial == Dial::Done && role == Role::Active {
                    self.wait(turn);
                }
                if lasted.is_some() {
                    self.down(reason, turn);
                }
            }
            // The peer is back already.
            None if is_replaced && ending == Ending::Other => {
                self.wait(turn);
                self.down(reason, turn);
            }
            // The peer may dial us meanwhile (RFC 4271 §8.2.2, OpenSent, Event 18).
            None if reason.is_refusal() && matches!(connection.phase, Phase::OpenSent) => {
                if self.dial == Dial::Done {
                    self.wait(turn);
                }
                self.down(reason, turn);
            }
            _ => {
                if self.connections.take(role.other()).is_some() {
                    self.notify(role.other(), &Notification::cease(Cease::ConnectionRejected), turn);
                }
                let rest = match &self.config.import {
                    Some(import) if reason.is_over_limit() => import.restart_delay,
                    _ => self.damping.rest(ending, lasted.unwrap_or(Duration::ZERO)),
                };
                self.rest(rest, turn);
                self.down(reason, turn);
            }
        }
    }
}
