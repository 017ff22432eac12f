// SPDX-License-Identifier: Apache-2.0
//! What one neighbour's task tells the world: its status on the board, and its log lines.
//!
//! Input: the core's actions and what the driver knows of the transport. Output: a [`PeerStatus`] after each event. Log: one line at `info` when a
//! session comes up and one when it goes; a failed attempt is a warning once for each reason until a session is up, and `debug` with a count when it
//! repeats. Of a dynamic neighbour, whose report begins anew with each dial, [`Complaints`] remembers that.

mod complaints;
mod history;
mod silence;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bgp::peer::{Counters, DownReason, Peer, State, Timers};
use bgp::rib::AdjRibIn;
use bgp::wire::{MAX_MESSAGE_LENGTH, Negotiated, Notification};
use bgp::{Family, HoldTime};
use tokio::sync::watch;

use super::Routes;
use super::settings::Settings;
use super::status::{Board, Failures, Moment, Notified, Opens, PeerStatus};
use super::whereabouts::Found;
use super::words::Loss;
use crate::desired::Ttl;
pub(super) use complaints::Complaints;
use history::{History, Remark, Weight};
pub use silence::LowTtlDrops;
pub(crate) use silence::silence;
use silence::{unacknowledged, unanswered, unheard};

/// The OPEN Message Error (RFC 4271 §6.2).
const OPEN_MESSAGE_ERROR: u8 = 2;

/// Those who have connected from a prefix of dynamic neighbours and have sent no OPEN, such as a port scanner: of all of them together the same is told once.
const STRANGERS: &str = "dynamic";

/// The status of one neighbour in the making.
pub(super) struct Report {
    name: String,
    board: Board,
    status: PeerStatus,
    /// Why the transport failed, while the core is being told that it did.
    transport: Option<TransportFailure>,
    history: History,
    /// What the address is for a person: where it is known, that, else how it is found.
    place: String,
    /// What an operator should mend of the key, and of where the peer is.
    key_problem: Option<String>,
    place_problem: Option<String>,
    /// Why the peer's connections are not taken.
    claim_problem: Option<String>,
    /// Whether the dial of which the core is told that it failed was none.
    undialled: bool,
    /// It is forgotten when it goes; this outlives it.
    dynamic: Option<Complaints>,
    /// Whether the routes of the status may be out of date.
    stale: bool,
    /// Whether the peer may hold routes of a session that is over.
    retained: bool,
}

/// Why there is no connection, or none any more.
struct TransportFailure {
    loss: Loss,
    /// It is to be mended here: no key, say.
    ours: bool,
}

impl Report {
    pub(super) fn new(name: &str, settings: &Settings, peer: &Peer, board: Board, complaints: Complaints) -> Self {
        let status = PeerStatus {
            address: settings.peer.address.known(),
            asn: settings.peer.asn,
            local_asn: settings.asn,
            local_identifier: settings.identifier,
            state: State::Idle,
            since: Moment::now(),
            established_since: None,
            local_address: None,
            hold_time: None,
            endpoints: None,
            opens: Arc::new(Opens { local: peer.local_open().clone(), remote: None }),
            settings: Arc::new(settings.peer.clone()),
            low_ttl_drops: LowTtlDrops::default(),
            timers: Timers::default(),
            send_hold_time: peer.send_hold_time(),
            stale_until: None,
            next_hops: BTreeMap::new(),
            families: BTreeSet::new(),
            capabilities: Vec::new(),
            advertised: 0,
            reflected: BTreeMap::new(),
            held: BTreeMap::new(),
            omitted: BTreeMap::new(),
            withdrawing: Arc::default(),
            withheld: Arc::default(),
            counters: Counters::default(),
            last_error: None,
            last_attempt_error: None,
            failures: Failures::default(),
            warning: None,
            shut: false,
            open_sockets: 0,
            taken: 0,
            generation: 0,
        };
        Self {
            name: name.to_owned(),
            board,
            status,
            transport: None,
            history: History::default(),
            place: settings.peer.address.to_string(),
            key_problem: None,
            place_problem: None,
            claim_problem: None,
            undialled: false,
            dynamic: settings.dynamic.then_some(complaints),
            stale: false,
            retained: false,
        }
    }

    /// Why the session has no key, or keeps an old one.
    pub(super) fn key(&mut self, problem: Option<String>) {
        if let Some(problem) = problem.as_ref().filter(|problem| self.key_problem.as_ref() != Some(problem) && self.is_untold(problem)) {
            let (peer, address) = (&self.name, &self.place);
            if self.status.established_since.is_some() {
                tracing::warn!(%peer, %address, %problem, "the session that is up goes on, a new one needs the key");
            } else {
                tracing::warn!(%peer, %address, %problem, "there is no session without the key");
            }
        }
        self.key_problem = problem;
        self.warn();
    }

    /// Why the peer is nowhere, or that it is in several places.
    pub(super) fn place(&mut self, problem: Option<String>) {
        if let Some(problem) = problem.as_ref().filter(|problem| self.place_problem.as_ref() != Some(problem)) {
            tracing::warn!(peer = %self.name, address = %self.place, %problem, "the peer is looked for; a session that is up goes on");
        }
        self.place_problem = problem;
        self.warn();
    }

    /// Why the peer, which has dialled us, is not spoken to: somebody else has the session.
    pub(super) fn claim(&mut self, problem: Option<String>) {
        if let Some(problem) = &problem {
            self.refused(problem);
        }
        self.claim_problem = problem;
        self.warn();
    }

    fn warn(&mut self) {
        let problems = self.key_problem.iter().chain(&self.place_problem).chain(&self.claim_problem);
        let problems: Vec<&str> = problems.map(String::as_str).collect();
        self.status.warning = (!problems.is_empty()).then(|| problems.join("; "));
    }

    /// The peer is dialled there.
    pub(super) fn dialled(&mut self, peer: Found) {
        self.status.address = Some(peer.address);
        self.place = peer.address.to_string();
        if matches!(self.status.settings.transport.ttl, Ttl::Security { .. }) && self.status.state < State::OpenSent {
            self.status.low_ttl_drops = LowTtlDrops::so_far();
        }
    }

    /// The dial of which the core is told next that it failed was none.
    pub(super) const fn undialled(&mut self) {
        self.undialled = true;
    }

    /// Whether the operator wants no session.
    pub(super) const fn shut(&mut self, shut: bool) {
        self.status.shut = shut;
    }

    /// Whether it is so at present.
    pub(super) const fn is_shut(&self) -> bool {
        self.status.shut
    }

    /// A connection of the peer was closed before anything was said.
    pub(super) fn refused(&mut self, reason: &str) {
        let (peer, address) = (&self.name, &self.place);
        if self.history.is_news(reason) && self.is_untold(reason) {
            tracing::warn!(%peer, %address, reason, "a connection of the peer is refused");
        } else {
            tracing::debug!(%peer, %address, reason, "a connection of the peer is refused again");
        }
    }

    /// A connection from the peer's address comes from too far away. Beside a session that is up it says nothing of that.
    pub(super) fn too_far(&mut self, reason: String) {
        self.refused(&reason);
        if self.status.established_since.is_none() {
            self.history.add(Weight::Hint, false, history::error(reason, None));
            self.post_errors();
        }
    }

    /// TCP is up, between these ends.
    pub(super) fn connected(&mut self, endpoints: Option<(SocketAddr, SocketAddr)>) {
        self.claim(None);
        self.status.endpoints = endpoints;
        self.status.local_address = endpoints.map(|(local, _)| local.ip());
        if let Some((_, peer)) = endpoints {
            self.dialled(Found::of(peer));
        }
    }

    /// Why there is no session.
    pub(super) fn last_error(&self) -> Option<&str> {
        self.history.cause().or_else(|| self.history.attempt()).map(|error| error.reason.as_str())
    }

    /// TCP failed for this reason; the core, which is told next, knows only that it did.
    pub(super) fn transport_failed(&mut self, reason: String) {
        self.connection_lost(Loss { reason, timed_out: false });
    }

    /// A connection that was up is lost.
    pub(super) fn connection_lost(&mut self, loss: Loss) {
        self.transport = Some(TransportFailure { loss, ours: false });
    }

    /// There is no connection for this reason, which is to be mended here.
    pub(super) fn unusable(&mut self, reason: String) {
        self.transport = Some(TransportFailure { loss: Loss { reason, timed_out: false }, ours: true });
    }

    /// The next set, if there is one: the task begins to tell it.
    pub(super) fn take(&mut self, routes: &mut watch::Receiver<Option<Routes>>) -> Option<Routes> {
        if !routes.has_changed().unwrap_or(false) {
            return None;
        }
        let routes = self.board.take(&self.name, || routes.borrow_and_update().clone())?;
        self.status.taken = routes.generation;
        Some(routes)
    }

    /// The core has all of the set that was taken last.
    pub(super) const fn reached(&mut self) {
        self.stale |= self.status.generation != self.status.taken;
        self.status.generation = self.status.taken;
    }

    /// The session goes on with other settings: routes may be withheld, and this time is between two attempts.
    pub(super) fn adjusted(&mut self, connect_retry: Duration) {
        Arc::make_mut(&mut self.status.settings).connect_retry = connect_retry;
        self.policy_changed();
    }

    /// Other routes may be withheld now.
    pub(super) const fn policy_changed(&mut self) {
        self.stale = true;
    }

    /// TCP has acknowledged more.
    pub(super) const fn acknowledged(&mut self) {
        self.stale = true;
    }

    /// The state has changed.
    pub(super) fn transition(&mut self, from: State, to: State) {
        let now = Moment::now();
        tracing::debug!(peer = %self.name, address = %self.place, %from, %to, "BGP state");
        if to == State::Established {
            tracing::info!(peer = %self.name, address = %self.place, asn = %self.status.asn, "BGP session is up");
            self.status.established_since = Some(now);
            self.history.succeeded();
            if let Some(complaints) = &self.dynamic {
                complaints.forget(&self.name);
            }
            self.post_errors();
        } else if let Some(since) = self.status.established_since.take() {
            let reason = self.status.last_error.as_ref().map_or("", |error| error.reason.as_str());
            let uptime = now.instant.saturating_duration_since(since.instant).as_secs();
            tracing::info!(peer = %self.name, address = %self.place, uptime, reason, "BGP session is down");
        }
        self.status.state = to;
        self.status.since = now;
        self.stale = true;
    }

    /// A session was lost, or an attempt failed. Comes before the transition that it leads to.
    pub(super) fn down(&mut self, down: &DownReason) {
        if std::mem::take(&mut self.undialled) && *down == DownReason::ConnectFailed {
            return;
        }
        let lost = self.status.established_since.is_some();
        let ours = self.transport.as_ref().is_some_and(|failure| failure.ours);
        let hints = self.hints(down);
        let weight = history::weight(down, lost, ours, !hints.is_empty());
        let reason = std::iter::once(self.in_words(down)).chain(hints.iter().cloned()).collect::<Vec<_>>().join("; ");
        let notification = notified(down);
        let remark = self.history.add(weight, lost, history::error(reason.clone(), notification.clone()));
        if !lost {
            self.log_attempt(down, &reason, &remark);
        }
        if *down == DownReason::SendHoldTimerExpired {
            // RFC 9687 §4: an error, with the name of its code.
            tracing::error!(peer = %self.name, address = %self.place, %reason, "the peer is given up");
        }
        let failures = &mut self.status.failures;
        match notification {
            Some(Notified::Sent(_)) => failures.sent += 1,
            Some(Notified::Received(_)) => failures.received += 1,
            None => failures.transport += 1,
        }
        self.post_errors();
    }

    fn log_attempt(&self, down: &DownReason, reason: &str, remark: &Remark) {
        let (peer, address, count) = (&self.name, &self.place, remark.count);
        let is_news = remark.is_news && if self.is_stranger(down) { self.is_untold_of(STRANGERS, reason) } else { self.is_untold(reason) };
        match (is_news, self.dynamic.is_some()) {
            (true, true) => {
                tracing::warn!(%peer, %address, reason, "BGP session does not come up; the dynamic neighbour is forgotten until it dials again");
            }
            (true, false) => tracing::warn!(%peer, %address, reason, "BGP session does not come up; trying again"),
            (false, _) => tracing::debug!(%peer, %address, reason, count, "BGP session still does not come up"),
        }
    }

    /// Whether earlier reports of a dynamic neighbour have not said that.
    fn is_untold(&self, reason: &str) -> bool {
        self.is_untold_of(&self.name, reason)
    }

    fn is_untold_of(&self, name: &str, reason: &str) -> bool {
        self.dynamic.as_ref().is_none_or(|complaints| complaints.is_news(name, reason))
    }

    /// Whether nothing says that it is a BGP speaker: it has only connected.
    fn is_stranger(&self, down: &DownReason) -> bool {
        let is_silent = match down {
            DownReason::ConnectionClosed => true,
            DownReason::Sent { notification, .. } => *notification == Notification::hold_timer_expired(),
            _ => false,
        };
        self.dynamic.is_some() && is_silent && self.status.counters.received.open == 0
    }

    fn post_errors(&mut self) {
        self.status.last_error = self.history.cause().cloned();
        self.status.last_attempt_error = self.history.attempt().cloned();
    }

    /// Takes over what the core knows.
    pub(super) fn update(&mut self, peer: &Peer, open_sockets: usize) {
        self.transport = None;
        self.undialled = false;
        let status = &mut self.status;
        status.open_sockets = open_sockets;
        if peer.state() < State::OpenSent {
            status.local_address = None;
            status.endpoints = None;
        }
        update_opens(status, peer);
        status.timers = peer.timers();
        status.send_hold_time = peer.send_hold_time();
        status.stale_until = peer.stale_until();
        status.hold_time = peer.negotiated().map(|negotiated| negotiated.hold_time);
        status.families = peer.negotiated().map(|negotiated| negotiated.families.clone()).unwrap_or_default();
        status.capabilities = peer.negotiated().map(capabilities).unwrap_or_default();
        let held = |rib: &AdjRibIn| Family::ALL.into_iter().map(|family| (family, rib.count(family))).collect();
        status.held = peer.adj_rib_in().map(held).unwrap_or_default();
        let omitted = |rib: &AdjRibIn| Family::ALL.into_iter().map(|family| (family, rib.omitted(family))).collect();
        status.omitted = peer.adj_rib_in().map(omitted).unwrap_or_default();
        self.stale |= status.counters.sent.update != peer.counters().sent.update;
        status.counters = peer.counters().clone();
        let retained = peer.stale_until().is_some();
        self.stale |= std::mem::replace(&mut self.retained, retained) || retained;
        if std::mem::take(&mut self.stale) {
            update_routes(status, peer);
        }
    }

    /// Whether some withdrawal is not acknowledged.
    pub(super) fn is_withdrawing(&self) -> bool {
        !self.status.withdrawing.is_empty()
    }

    pub(super) fn post(&self) {
        self.board.post(&self.name, self.status.clone());
    }

    /// The reason, or what the transport said about it.
    fn in_words(&self, down: &DownReason) -> String {
        match (down, &self.transport) {
            (DownReason::ConnectFailed | DownReason::ConnectionClosed, Some(failure)) => failure.loss.reason.clone(),
            (DownReason::Received(notification), _) if notification.code == OPEN_MESSAGE_ERROR => {
                format!("the peer refused our OPEN: {notification}")
            }
            _ => down.to_string(),
        }
    }

    /// What may be wrong besides that the peer is not there.
    fn hints(&self, down: &DownReason) -> Vec<String> {
        let (transport, drops) = (&self.status.settings.transport, self.status.low_ttl_drops);
        let is_new = self.status.established_since.is_none_or(|since| self.is_within_hold_time(since));
        match down {
            DownReason::ConnectTimedOut => unanswered(transport, drops),
            // A session may come up by what has passed before the peer's daemon set the options of its socket.
            DownReason::Sent { notification, .. } if is_new && *notification == Notification::hold_timer_expired() => {
                vec![unheard(transport, drops)]
            }
            DownReason::ConnectionClosed if is_new && self.transport.as_ref().is_some_and(|failure| failure.loss.timed_out) => {
                vec![unacknowledged(transport, drops)]
            }
            _ => Vec::new(),
        }
    }

    /// Whether a session that is up since then has been for not much longer than what begins it lasts.
    fn is_within_hold_time(&self, since: Moment) -> bool {
        let hold = self.status.hold_time.and_then(HoldTime::duration).unwrap_or_default();
        since.instant.elapsed() <= hold + Duration::from_secs(1)
    }
}

/// Our OPEN as it is for the next session, or as it was sent in this one, and the peer's.
fn update_opens(status: &mut PeerStatus, peer: &Peer) {
    let known = status.opens.remote.as_ref().map(|(open, _)| open);
    let current = match peer.remote_open() {
        Some(remote) => known == Some(remote),
        None => known.is_none() && status.opens.local == *peer.local_open(),
    };
    if !current {
        let remote = peer.remote_open().cloned().zip(peer.negotiated().cloned());
        status.opens = Arc::new(Opens { local: peer.local_open().clone(), remote });
    }
}

fn notified(down: &DownReason) -> Option<Notified> {
    match down {
        DownReason::Sent { notification, .. } => Some(Notified::Sent(notification.clone())),
        DownReason::Received(notification) => Some(Notified::Received(notification.clone())),
        DownReason::ConnectFailed
        | DownReason::ConnectTimedOut
        | DownReason::ConnectionClosed
        | DownReason::SendHoldTimerExpired
        | DownReason::Kept => None,
    }
}

/// What both sides can do besides their families.
fn capabilities(negotiated: &Negotiated) -> Vec<&'static str> {
    let agreed = [
        (negotiated.four_octet_as, "four-octet-as"),
        (negotiated.route_refresh, "route-refresh"),
        (negotiated.enhanced_route_refresh, "enhanced-route-refresh"),
        (negotiated.max_send_length > MAX_MESSAGE_LENGTH, "extended-message"),
        (!negotiated.extended_next_hop.is_empty(), "extended-next-hop"),
        (negotiated.link_local_next_hop, "link-local-next-hop"),
        (!negotiated.add_path_send.is_empty(), "add-path-send"),
        (!negotiated.add_path_receive.is_empty(), "add-path-receive"),
        (negotiated.graceful_restart.is_some(), "graceful-restart"),
        (!negotiated.long_lived.is_empty(), "long-lived-graceful-restart"),
        (negotiated.local_role.is_some() && negotiated.remote_role.is_some(), "role"),
    ];
    agreed.into_iter().filter(|(agreed, _)| *agreed).map(|(_, name)| name).collect()
}

/// What the peer holds: in proportion to what it is about to lose or is not told, so only after a change.
fn update_routes(status: &mut PeerStatus, peer: &Peer) {
    let withdrawing = peer.withdrawing();
    if withdrawing != *status.withdrawing {
        status.withdrawing = Arc::new(withdrawing);
    }
    let own_next_hop = |family: Family| Some((family, peer.adj_rib_out()?.own_next_hop(family)?));
    status.next_hops = Family::ALL.into_iter().filter_map(own_next_hop).collect();
    let Some(adj_rib_out) = peer.adj_rib_out() else {
        status.advertised = 0;
        status.reflected.clear();
        status.withheld = Arc::default();
        return;
    };
    status.advertised = adj_rib_out.advertised_count();
    let reflected = Family::ALL.map(|family| (family, adj_rib_out.reflected_count(family)));
    status.reflected = reflected.into_iter().filter(|(_, count)| *count > 0).collect();
    let withheld = adj_rib_out.withheld();
    if *withheld != *status.withheld {
        status.withheld = Arc::new(withheld.clone());
    }
}
