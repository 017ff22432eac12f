// SPDX-License-Identifier: Apache-2.0
//! What outlives a session: our routes at the peer while it may keep them as stale ones (RFC 4724 §4.2 seen from the other side), and the peer's routes
//! here.
//!
//! Input: the end and the beginning of sessions, UPDATEs and refreshes of the peer, and time. Output: [`Action::Learned`](super::Action::Learned), and what the peer may hold.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::config::Forwarding;
use super::connection::{Connection, Phase};
use super::{DownReason, Peer, Role, State, Turn};
use crate::prefix::{Family, Prefix};
use crate::rib::{AdjRibIn, Import, Learnt, Session, Source};
use crate::wire::{Cease, Negotiated, Notification, RouteRefresh, Update};

/// Our routes that the peer may hold of a session which is over.
#[derive(Debug)]
pub(super) struct Retained {
    /// From this instant on it holds none.
    pub(super) until: Option<Instant>,
    prefixes: BTreeSet<Prefix>,
}

impl Peer {
    /// The instant until which the peer may hold routes of ours from a session that is over, as graceful restart asks of it. `None` where it holds none,
    /// or where a later session has told it a whole set.
    #[must_use]
    pub fn stale_until(&self) -> Option<Instant> {
        self.retained.as_ref()?.until
    }

    /// The destinations that the peer may hold though they are not to be announced any more: they are being withdrawn, or were told in a session that
    /// is over, the routes of which it may keep.
    #[must_use]
    pub fn withdrawing(&self) -> BTreeSet<Prefix> {
        let retained = self.retained.iter().flat_map(|retained| &retained.prefixes).copied();
        let wanted = |prefix: &Prefix| self.routes.as_ref().is_some_and(|rib| rib.contains(prefix));
        let adj_rib_out = self.adj_rib_out();
        retained.filter(|prefix| !wanted(prefix)).chain(adj_rib_out.into_iter().flat_map(|rib| rib.withdrawing())).collect()
    }

    /// A process before this one may have told the peer these. It may keep them until a session has told it a whole set, or for as long as is asked of it,
    /// from the end of that process on. Does nothing without graceful restart.
    pub fn inherit(&mut self, ended: Instant, prefixes: BTreeSet<Prefix>) {
        if let Some(restart) = self.config.graceful_restart {
            let kept = Duration::from_secs(u64::from(restart.restart_time) + u64::from(restart.long_lived_stale_time));
            let until = ended.checked_add(kept + self.config.hold_time.duration().unwrap_or_default());
            self.retained = Some(Retained { until, prefixes });
        }
    }

    /// End-of-RIB is to wait for [`Event::Selected`](super::Event::Selected), but no longer than until then (RFC 4724 §4.1, Selection_Deferral_Timer):
    /// what other peers have told the process before this one stays with the peer until they have told it again. Routes do not wait.
    pub const fn defer_end_of_rib(&mut self, until: Instant) {
        self.deferred_until = Some(until);
    }

    /// Whether nothing of the peer's first set is to be waited for (RFC 4724 §4.1): a session is up, and End-of-RIB of each family has come, or will
    /// not, because the peer lacks the capability or has restarted itself.
    #[must_use]
    pub fn has_told_everything(&self) -> bool {
        let restarts = |negotiated: &Negotiated| negotiated.graceful_restart.as_ref().is_none_or(|restart| restart.restarting);
        let told = || self.adj_rib_in.as_ref().is_none_or(AdjRibIn::is_finished);
        self.state == State::Established && self.negotiated().is_some_and(|negotiated| restarts(negotiated) || told())
    }

    /// What the peer has told, and still counts; `None` where nothing is imported.
    #[must_use]
    pub const fn adj_rib_in(&self) -> Option<&AdjRibIn> {
        self.adj_rib_in.as_ref()
    }

    /// Whether nothing is left of a peer without a connection, so that it may be dropped. Stale routes, the peer's here and ours there, have their time
    /// even where it never returns; and one that has told too much is refused as long as it has to rest.
    #[must_use]
    pub fn is_forgotten(&self) -> bool {
        let has_told_nothing = self.adj_rib_in.as_ref().is_none_or(|adj_rib_in| adj_rib_in.routes().next().is_none());
        has_told_nothing && self.retained.is_none() && !self.stays_away()
    }

    /// Our routes go on being used while we restart: nothing is said, if the peer keeps them only then (RFC 4724 §4).
    pub(super) fn keeps_routes(&self, role: Role) -> bool {
        self.connections.get(role).and_then(Connection::negotiated).is_some_and(|negotiated| negotiated.graceful_restart.is_some())
    }

    /// What becomes of a NOTIFICATION that means to end our routes at a peer which would keep them after it (RFC 8538 §3.1).
    pub(super) fn with_emphasis(&self, role: Role, notification: &Notification) -> Notification {
        let keeps = self.connections.get(role).and_then(Connection::negotiated).is_some_and(|negotiated| negotiated.graceful_notification);
        if keeps { notification.clone().into_hard_reset() } else { notification.clone() }
    }

    /// An Established session is over.
    pub(super) fn session_lost(&mut self, connection: &Connection, reason: &DownReason, turn: &mut Turn) {
        let (Phase::Established(adj_rib_out), Some(negotiated)) = (&connection.phase, connection.negotiated()) else { return };
        if self.config.graceful_restart.is_some() && negotiated.graceful_restart.is_some() && peer_may_keep(reason, negotiated) {
            let told = adj_rib_out.advertised().chain(adj_rib_out.withdrawing());
            let before = self.retained.take().map(|retained| retained.prefixes).unwrap_or_default();
            let prefixes = before.into_iter().chain(told).collect();
            self.retained = Some(Retained { until: turn.now.checked_add(self.longest_keep(negotiated)), prefixes });
        } else if !matches!(reason, DownReason::Received(_)) {
            // Who ends a session that is not Established at its end, as in a collision, has still what it kept of the one before.
            self.retained = None;
        }
        if let Some(adj_rib_in) = &mut self.adj_rib_in {
            let kept = Some(negotiated).filter(|_| self.config.graceful_restart.is_some() && we_keep(reason, negotiated));
            let learnt = adj_rib_in.session_lost(kept, turn.now);
            learned(learnt, turn);
        }
    }

    /// Whether the peer of this session restarts gracefully: a new connection of it then means that the session is over (RFC 4724 §5).
    pub(super) fn may_have_restarted(&self, role: Role) -> bool {
        let restart = self.connections.get(role).filter(|connection| connection.adj_rib_out().is_some()).and_then(Connection::negotiated);
        restart.and_then(|negotiated| negotiated.graceful_restart.as_ref()).is_some_and(|restart| !restart.families.is_empty())
    }

    /// Another connection of the peer takes the place of this one, which ends without a word: its session is lost as if TCP had failed (RFC 4724 §5).
    pub(super) fn replaced(&mut self, role: Role, turn: &mut Turn) {
        let Some(connection) = self.connections.take(role) else { return };
        self.challenged_until = None;
        if connection.state() == State::Established {
            self.session_lost(&connection, &DownReason::ConnectionClosed, turn);
            self.established_since = None;
            self.down(DownReason::ConnectionClosed, turn);
        }
    }

    /// The peer is not to come back: nothing of it counts any more.
    pub(super) fn clear_adj_rib_in(&mut self, turn: &mut Turn) {
        if let Some(adj_rib_in) = &mut self.adj_rib_in {
            learned(adj_rib_in.clear(), turn);
        }
    }

    /// A session is Established.
    pub(super) fn session_returned(&mut self, negotiated: &Negotiated, turn: &mut Turn) {
        if let Some(adj_rib_in) = &mut self.adj_rib_in {
            learned(adj_rib_in.session_returned(negotiated), turn);
        }
    }

    /// What was told or acknowledged may end our restart, and what the peer holds of former sessions.
    pub(super) fn check_restart(&mut self, role: Role) {
        let Some(adj_rib_out) = self.connections.get(role).and_then(Connection::adj_rib_out) else { return };
        let (told, synced) = (adj_rib_out.is_told(), adj_rib_out.is_synced());
        if told {
            self.restart_is_over(true);
        }
        if synced {
            self.retained = None;
        }
    }

    pub(super) fn tick_restart(&mut self, turn: &mut Turn) {
        let due = |at: Option<Instant>| at.is_some_and(|at| at <= turn.now);
        if due(self.restart_until) {
            self.restart_is_over(false);
        }
        if self.retained.as_ref().is_some_and(|retained| due(retained.until)) {
            self.retained = None;
        }
        if due(self.deferred_until) {
            self.selected(turn);
        }
        if let Some(adj_rib_in) = &mut self.adj_rib_in {
            learned(adj_rib_in.expire(turn.now), turn);
        }
    }

    /// End-of-RIB waits no longer.
    pub(super) fn selected(&mut self, turn: &mut Turn) {
        if self.deferred_until.take().is_some() {
            self.end_deferral(turn);
        }
    }

    pub(super) fn restart_deadline(&self) -> Option<Instant> {
        let stale = self.adj_rib_in.as_ref().and_then(AdjRibIn::deadline);
        stale.into_iter().chain(self.stale_until()).chain(self.restart_until).chain(self.deferred_until).min()
    }

    /// Our restart begins to count with the first Start.
    pub(super) fn begin_restart(&mut self, turn: &Turn) {
        if let Some(restart) = self.config.graceful_restart.filter(|restart| restart.restarting) {
            self.restart_until = self.restart_until.or_else(|| turn.now.checked_add(Duration::from_secs(restart.restart_time.into())));
        }
    }

    /// From now on an OPEN says nothing of a restart of ours.
    fn restart_is_over(&mut self, told: bool) {
        self.restart_until = None;
        if let Some(restart) = &mut self.config.graceful_restart
            && (restart.restarting || (told && restart.forwarding_preserved != Forwarding::ALL))
        {
            restart.restarting = false;
            if told {
                restart.forwarding_preserved = Forwarding::ALL;
            }
            self.open = self.config.open();
        }
    }

    /// The peer notices the loss within the hold time, then keeps our routes for as long as we asked for.
    fn longest_keep(&self, negotiated: &Negotiated) -> Duration {
        let Some(restart) = self.config.graceful_restart else { return Duration::ZERO };
        let long_lived = if negotiated.long_lived.is_empty() { 0 } else { restart.long_lived_stale_time };
        let kept = Duration::from_secs(u64::from(restart.restart_time) + u64::from(long_lived));
        kept + negotiated.hold_time.duration().unwrap_or_default()
    }

    /// An UPDATE of an Established session.
    pub(super) fn import(&mut self, role: Role, update: &Update, turn: &mut Turn) {
        let (Some(connection), Some(adj_rib_in)) = (self.connections.get(role), &mut self.adj_rib_in) else { return };
        let (Some(negotiated), Some(source)) = (connection.negotiated(), &connection.source) else { return };
        let learnt = adj_rib_in.update(update, &Session { source, negotiated, local: &connection.local });
        let exceeded = self.check_limits(role, turn);
        // What went over the limit is not handed out: the end of the session takes all back that is held, and what is held no longer goes here.
        learned(learnt.into_iter().filter(|(_, route)| !exceeded || route.is_none()).collect(), turn);
    }

    /// Ends the session of a peer that has told too much, for a while (RFC 4486 §4, RFC 8538 §5.1). Whether that was so.
    fn check_limits(&mut self, role: Role, turn: &mut Turn) -> bool {
        let exceeded = self.adj_rib_in.as_ref().and_then(AdjRibIn::exceeded);
        if let Some((family, limit)) = exceeded {
            let notification = self.with_emphasis(role, &Notification::maximum_number_of_prefixes_reached(family, limit));
            let reason = format!("the peer announced more than {limit} prefixes of {family}");
            self.fail(role, notification, reason.into(), turn);
        }
        exceeded.is_some()
    }

    /// A mark of a refresh that the peer answers (RFC 7313 §4); without the capability it means nothing.
    pub(super) fn refresh_mark(&mut self, role: Role, mark: RouteRefresh, turn: &mut Turn) {
        let negotiated = self.connections.get(role).and_then(Connection::negotiated);
        let Some(adj_rib_in) = self.adj_rib_in.as_mut().filter(|_| negotiated.is_some_and(|it| it.enhanced_route_refresh)) else { return };
        if let Some(family) = mark.begun() {
            adj_rib_in.refresh_begins(family);
        } else if let Some(family) = mark.ended() {
            learned(adj_rib_in.refresh_ends(family), turn);
        }
    }

    /// Asks the peer for everything of a family (RFC 2918 §3): never one that does not understand.
    pub(super) fn request_refresh(&mut self, family: Family, turn: &mut Turn) {
        for role in Role::BOTH {
            let Some(connection) = self.connections.get(role).filter(|connection| connection.adj_rib_out().is_some()) else { continue };
            if connection.negotiated().is_some_and(|negotiated| negotiated.route_refresh && negotiated.families.contains(&family)) {
                self.counters.sent.route_refresh += 1;
                self.send(role, RouteRefresh::request(family).encode(), turn);
            }
        }
    }

    /// Other rules for what the peer may tell. With other limits a peer that rests because it told too much is dialled at once; a shorter delay ends its
    /// rest where that is longer. The session of one that has told more than it may ends at once (RFC 4486 §4). What it told before the rules asked for
    /// it, it is asked to tell again.
    pub(super) fn set_import(&mut self, import: Option<Import>, turn: &mut Turn) {
        if self.config.import == import {
            return;
        }
        let before = std::mem::replace(&mut self.config.import, import.clone());
        match (&mut self.adj_rib_in, import) {
            (Some(adj_rib_in), Some(import)) => adj_rib_in.set_import(import),
            (Some(adj_rib_in), None) => {
                learned(adj_rib_in.clear(), turn);
                self.adj_rib_in = None;
            }
            (None, _) => self.adj_rib_in = self.config.adj_rib_in(),
        }
        self.limited_anew(before.as_ref(), turn);
        let is_up = |role: &Role| self.connections.get(*role).is_some_and(|connection| connection.adj_rib_out().is_some());
        if let Some(role) = Role::BOTH.into_iter().find(is_up)
            && self.check_limits(role, turn)
        {
            return;
        }
        for family in Family::ALL.into_iter().filter(|family| self.is_unknown(*family, before.as_ref())).collect::<Vec<_>>() {
            self.request_refresh(family, turn);
            if let Some(adj_rib_in) = &mut self.adj_rib_in {
                adj_rib_in.refresh_requested(family);
            }
        }
    }

    /// A peer that rests because it told too much: what other rules change about that.
    fn limited_anew(&mut self, before: Option<&Import>, turn: &mut Turn) {
        if !self.stays_away() {
            return;
        }
        let now = self.config.import.as_ref();
        let limits = |import: Option<&Import>| import.map(|import| import.max_prefixes.clone()).unwrap_or_default();
        let delay = |import: Option<&Import>| import.map(|import| import.restart_delay);
        if limits(before) != limits(now) {
            self.end_rest(turn);
        } else if let Some(delay) = delay(now).filter(|now| delay(before).is_some_and(|before| *now < before)) {
            self.shorten_rest(delay, turn);
        }
    }

    /// Whether the peer may have told something of a family that these other rules do not know: it was judged by others, or not kept and not counted.
    fn is_unknown(&self, family: Family, before: Option<&Import>) -> bool {
        let (Some(import), Some(adj_rib_in)) = (&self.config.import, &self.adj_rib_in) else { return false };
        let limits_anew = |before: &Import| import.max_prefixes.contains_key(&family) && !before.max_prefixes.contains_key(&family);
        match before {
            None => import.holds(family),
            Some(before) => !import.judges_like(before) || limits_anew(before) && !adj_rib_in.is_whole(family),
        }
    }

    /// The peer in the session that its OPEN begins.
    pub(super) fn source(&self, remote: &crate::wire::Open) -> Arc<Source> {
        Arc::new(Source {
            peer: self.config.id,
            address: self.config.address,
            identifier: remote.identifier,
            internal: !self.config.is_external(),
            client: self.config.client,
        })
    }
}

/// Reports what has changed of the peer's routes.
pub(super) fn learned(learnt: Vec<Learnt>, turn: &mut Turn) {
    turn.learnt.extend(learnt);
}

/// Whether we keep the peer's routes after this (RFC 4724 §4.2, RFC 8538 §4).
fn we_keep(reason: &DownReason, negotiated: &Negotiated) -> bool {
    let graceful = |notification: &Notification| negotiated.graceful_notification && !notification.is_hard_reset();
    match reason {
        DownReason::ConnectionClosed | DownReason::SendHoldTimerExpired => true,
        // We were told too much, or understood nothing: what is held is not to be trusted.
        DownReason::Sent { notification, .. } => graceful(notification) && notification.code != 3 && !reason.is_over_limit(),
        DownReason::Received(notification) => graceful(notification),
        DownReason::ConnectFailed | DownReason::ConnectTimedOut | DownReason::Kept => false,
    }
}

/// Whether the peer may keep our routes after this: also where our last words may not have reached it, so that it finds out by its hold timer.
fn peer_may_keep(reason: &DownReason, negotiated: &Negotiated) -> bool {
    let graceful = |notification: &Notification| negotiated.graceful_notification && !notification.is_hard_reset();
    match reason {
        DownReason::ConnectionClosed | DownReason::SendHoldTimerExpired | DownReason::Kept => true,
        DownReason::Sent { notification, .. } if is_final(notification) => graceful(notification),
        DownReason::Sent { notification, .. } => !notification.is_hard_reset(),
        DownReason::Received(notification) => graceful(notification),
        DownReason::ConnectFailed | DownReason::ConnectTimedOut => false,
    }
}

/// Whether the operator wants the session no more, or another one: what the peer may keep where it does not hear that is not waited for.
fn is_final(notification: &Notification) -> bool {
    [Cease::AdministrativeShutdown, Cease::PeerDeconfigured, Cease::OtherConfigurationChange]
        .into_iter()
        .any(|cease| notification.is_cease(cease))
}
