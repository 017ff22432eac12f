// SPDX-License-Identifier: Apache-2.0
//! What the speaker reports: immutable snapshots, and the board on which its tasks post them.
//!
//! Input: whole statuses of single neighbours. Output: one [`SpeakerStatus`], whose waiters wake when more than a counter changed.
//!
//! Invariant: a prefix that left the advertised set is in [`SpeakerStatus::withdrawing`] without a gap from that very moment until no peer may hold it
//! any more; a reader never sees it in neither.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use bgp::peer::{Counters, State, Timers};
use bgp::rib::Withheld;
use bgp::wire::{Negotiated, NextHop, Notification, Open};
use bgp::{Asn, BgpIdentifier, Family, HoldTime, Prefix};
use tokio::sync::watch;

use crate::desired::{DesiredBgp, DesiredPeer, RouteSet};

/// The speaker at one moment.
#[derive(Clone, Debug, Default)]
pub struct SpeakerStatus {
    /// The set that is advertised; `None` before the first.
    pub advertised: Option<Arc<RouteSet>>,
    /// The configuration in force; `None` before the first, and after the speaker was stopped.
    pub configured: Option<Arc<DesiredBgp>>,
    /// Our BGP Identifier; `None` before the first configuration, and while none can be taken from the node's addresses.
    pub router_id: Option<BgpIdentifier>,
    /// Why the configuration that was given is not in force yet.
    pub problem: Option<String>,
    /// Why nothing is listened to though the configuration asks for it.
    pub listen_error: Option<String>,
    /// The neighbours by name, with those that are about to close.
    pub peers: BTreeMap<String, Arc<PeerStatus>>,
    /// Prefixes that left the set and that some neighbour's task has not heard about yet.
    leaving: Arc<BTreeSet<Prefix>>,
    /// What an earlier process has announced, until the neighbours' tasks know of it, and those that have no task yet may not hold it any more.
    inherited: Arc<BTreeSet<Prefix>>,
    /// Counts the sets given.
    generation: u64,
}

impl SpeakerStatus {
    /// Prefixes that are withdrawn while some peer has not acknowledged the UPDATE: it may still hold them.
    #[must_use]
    pub fn withdrawing(&self) -> BTreeSet<Prefix> {
        let of_peers = self.peers.values().flat_map(|peer| peer.withdrawing.iter());
        let wanted = |prefix: &Prefix| self.advertised.as_ref().is_some_and(|set| set.contains(prefix));
        let inherited = self.inherited.iter().filter(|prefix| !wanted(prefix));
        self.leaving.iter().chain(of_peers).chain(inherited).copied().collect()
    }

    /// Sessions that still have a socket, even if only to deliver their last message.
    #[must_use]
    pub fn open_sessions(&self) -> usize {
        self.peers.values().map(|peer| peer.open_sockets).sum()
    }

    /// Forgets `leaving` once every neighbour's task has the current set. Whether that changed anything.
    fn settle(&mut self) -> bool {
        let settled = self.peers.values().all(|peer| peer.generation >= self.generation);
        if !settled || self.leaving.is_empty() {
            return false;
        }
        self.leaving = Arc::default();
        true
    }
}

/// One neighbour at one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct PeerStatus {
    /// Its address; `None` while it is not known.
    pub address: Option<IpAddr>,
    /// Its AS.
    pub asn: Asn,
    /// Our AS towards it.
    pub local_asn: Asn,
    /// Our BGP Identifier towards it.
    pub local_identifier: BgpIdentifier,
    /// Where the state machine is.
    pub state: State,
    /// Since when it has been in that state.
    pub since: Moment,
    /// Since when the session has been Established, while it is.
    pub established_since: Option<Moment>,
    /// Our address on the connection, while there is one.
    pub local_address: Option<IpAddr>,
    /// The session's hold time, once both OPENs are there.
    pub hold_time: Option<HoldTime>,
    /// Both ends of the connection, ours first, while there is one.
    pub endpoints: Option<(SocketAddr, SocketAddr)>,
    /// What both sides say of themselves.
    pub opens: Arc<Opens>,
    /// What the neighbour is configured to be, but for the policy, which may be another one by now.
    pub settings: Arc<DesiredPeer>,
    /// When its timers expire.
    pub timers: Timers,
    /// How long it may leave unread what we send (RFC 9687).
    pub send_hold_time: Duration,
    /// Until when it may hold routes of a session that is over (RFC 4724).
    pub stale_until: Option<Instant>,
    /// The next hops with which it is told routes that start here and name none, while there is a session.
    pub next_hops: BTreeMap<Family, NextHop>,
    /// The families that both sides have, once both OPENs are there.
    pub families: BTreeSet<Family>,
    /// The other capabilities that both sides have, once both OPENs are there, in words.
    pub capabilities: Vec<&'static str>,
    /// How many prefixes the peer was told and holds.
    pub advertised: usize,
    /// How many routes of the peer are kept, in each family; none where nothing is imported.
    pub held: BTreeMap<Family, u32>,
    /// How many announcements of the peer were not kept because so many were already.
    pub omitted: BTreeMap<Family, u64>,
    /// Prefixes that are withdrawn, but whose UPDATE the peer's host has not acknowledged.
    pub withdrawing: Arc<BTreeSet<Prefix>>,
    /// Prefixes that this peer is not told, and why.
    pub withheld: Arc<BTreeMap<Prefix, Withheld>>,
    /// The set that this peer is told, except for what is withheld.
    pub(super) routes: Arc<RouteSet>,
    /// Messages in both directions.
    pub counters: Counters,
    /// What is wrong, as far as the end of the last session and of attempts has said, or what was before the session that is up: a NOTIFICATION, say.
    pub last_error: Option<LastError>,
    /// How attempts since then have ended, which says less: that the peer refuses connections, say. None while a session is up.
    pub last_attempt_error: Option<LastError>,
    /// How often a session or an attempt ended.
    pub failures: Failures,
    /// What an operator should mend though the session may be up.
    pub warning: Option<String>,
    /// Whether an operator has shut the session down.
    pub shut: bool,
    /// Connections that are not closed yet.
    pub open_sockets: usize,
    /// The number of the set that the neighbour's task has.
    pub(super) generation: u64,
}

impl PeerStatus {
    /// The prefixes that this peer is told: all of the set, less what is withheld from it.
    pub fn told(&self) -> impl Iterator<Item = Prefix> {
        self.routes.prefixes().filter(|prefix| !self.withheld.contains_key(prefix))
    }

    /// Whether more than a counter or a timer differs.
    fn is_news(&self, old: &Self) -> bool {
        *old != Self { counters: old.counters.clone(), omitted: old.omitted.clone(), timers: old.timers, ..self.clone() }
    }
}

/// Why a session or an attempt ended.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct LastError {
    /// In words.
    pub reason: String,
    /// When last.
    pub at: Moment,
    /// How often for this very reason, with none that says as much in between, since a session was last up.
    pub count: u64,
    /// The NOTIFICATION that ended it, if one did.
    pub notification: Option<Notified>,
}

/// A NOTIFICATION and its direction.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Notified {
    /// We sent it.
    Sent(Notification),
    /// The peer did.
    Received(Notification),
}

/// How often sessions and attempts ended, by who ended them.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Failures {
    /// We did, with a NOTIFICATION.
    pub sent: u64,
    /// The peer did, with a NOTIFICATION.
    pub received: u64,
    /// Nobody said a word: no connection, or it broke, or was left without one.
    pub transport: u64,
}

/// What both sides say of themselves.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Opens {
    /// Our OPEN.
    pub local: Open,
    /// The peer's, once it is accepted, and what both agree on.
    pub remote: Option<(Open, Negotiated)>,
}

/// A moment on both clocks: one to show, one to measure with.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Moment {
    /// By the clock that never goes back.
    pub instant: Instant,
    /// By the clock on the wall.
    pub wall: SystemTime,
}

impl Moment {
    /// This moment.
    #[must_use]
    pub fn now() -> Self {
        Self { instant: Instant::now(), wall: SystemTime::now() }
    }
}

/// Where the speaker's tasks post their status.
#[derive(Clone, Debug)]
pub(super) struct Board(Arc<watch::Sender<Arc<SpeakerStatus>>>);

impl Board {
    pub(super) fn new() -> Self {
        Self(Arc::new(watch::Sender::new(Arc::default())))
    }

    pub(super) fn read(&self) -> Arc<SpeakerStatus> {
        Arc::clone(&self.0.borrow())
    }

    pub(super) fn subscribe(&self) -> watch::Receiver<Arc<SpeakerStatus>> {
        self.0.subscribe()
    }

    /// Takes the next whole set, unless it is the one in force. `pass_on` gives it, with its number and what differs from the one before, to the
    /// neighbours' tasks before any reader sees the new status.
    pub(super) fn advertise(&self, set: &Arc<RouteSet>, pass_on: impl FnOnce(u64, Option<Arc<[Prefix]>>)) {
        let mut pass_on = Some(pass_on);
        loop {
            // Large sets are compared while others post: a session that waits for this cannot send a KEEPALIVE.
            let before = self.read().advertised.clone();
            let changed: Option<Arc<[Prefix]>> = before.as_ref().map(|old| old.differences(set).into());
            if changed.as_ref().is_some_and(|changed| changed.is_empty()) && before.as_ref().is_some_and(|old| old.covered == set.covered) {
                return;
            }
            let left: Vec<Prefix> =
                changed.iter().flat_map(|changed| changed.iter()).filter(|prefix| !set.contains(prefix)).copied().collect();
            self.0.send_if_modified(|status| {
                let is_before = before.as_ref().map(Arc::as_ptr) == status.advertised.as_ref().map(Arc::as_ptr);
                let Some(pass_on) = pass_on.take_if(|_| is_before) else { return false };
                let status = Arc::make_mut(status);
                status.advertised = Some(Arc::clone(set));
                let leaving = Arc::make_mut(&mut status.leaving);
                leaving.retain(|prefix| !set.contains(prefix));
                leaving.extend(left);
                status.generation += 1;
                pass_on(status.generation, changed);
                status.settle();
                true
            });
            if pass_on.is_none() {
                return;
            }
        }
    }

    /// There are tasks for all neighbours of this configuration. `inherited`: some that have none may still hold what an earlier process has announced.
    pub(super) fn set_configured(&self, configured: Option<&Arc<DesiredBgp>>, router_id: Option<BgpIdentifier>, inherited: bool) {
        self.0.send_if_modified(|status| {
            let forget = !inherited && !status.inherited.is_empty();
            if status.configured.as_ref() == configured && status.router_id == router_id && !forget {
                return false;
            }
            let status = Arc::make_mut(status);
            status.configured = configured.cloned();
            status.router_id = router_id;
            if forget {
                status.inherited = Arc::default();
            }
            true
        });
    }

    pub(super) fn set_problem(&self, problem: Option<&str>) {
        self.0.send_if_modified(|status| {
            let changed = status.problem.as_deref() != problem;
            if changed {
                Arc::make_mut(status).problem = problem.map(ToOwned::to_owned);
            }
            changed
        });
    }

    /// What peers may hold before there are tasks that know.
    pub(super) fn inherit(&self, prefixes: &Arc<BTreeSet<Prefix>>) {
        self.0.send_modify(|status| Arc::make_mut(status).inherited = Arc::clone(prefixes));
    }

    pub(super) fn router_id(&self) -> Option<BgpIdentifier> {
        self.0.borrow().router_id
    }

    pub(super) fn set_listen_error(&self, error: Option<&String>) {
        self.0.send_if_modified(|status| {
            let changed = status.listen_error.as_ref() != error;
            if changed {
                Arc::make_mut(status).listen_error = error.cloned();
            }
            changed
        });
    }

    /// Posts the status of one neighbour.
    pub(super) fn post(&self, name: &str, peer: PeerStatus) {
        self.0.send_if_modified(|status| {
            let status = Arc::make_mut(status);
            let news = status.peers.get(name).is_none_or(|old| peer.is_news(old));
            status.peers.insert(name.to_owned(), Arc::new(peer));
            status.settle() || news
        });
    }

    /// A neighbour whose task has ended.
    pub(super) fn remove(&self, name: &str) {
        self.0.send_if_modified(|status| {
            let status = Arc::make_mut(status);
            let known = status.peers.remove(name).is_some();
            status.settle() || known
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set<S: FromIterator<Prefix>>(numbers: impl IntoIterator<Item = u8>) -> Arc<S> {
        Arc::new(numbers.into_iter().map(|number| Prefix::host(IpAddr::from([10, 0, 0, number]))).collect())
    }

    fn opens() -> Arc<Opens> {
        let (asn, identifier) = (Asn::new(65001).unwrap(), BgpIdentifier::new(1).unwrap());
        Arc::new(Opens { local: Open { asn, hold_time: HoldTime::ZERO, identifier, capabilities: Vec::new() }, remote: None })
    }

    fn settings() -> DesiredPeer {
        DesiredPeer::new(IpAddr::from([192, 0, 2, 1]), Asn::new(65001).unwrap())
    }

    fn peer(generation: u64, withdrawing: Arc<BTreeSet<Prefix>>) -> PeerStatus {
        PeerStatus {
            address: Some(IpAddr::from([192, 0, 2, 1])),
            asn: Asn::new(65001).unwrap(),
            local_asn: Asn::new(65001).unwrap(),
            local_identifier: BgpIdentifier::new(1).unwrap(),
            state: State::Established,
            since: Moment::now(),
            established_since: None,
            local_address: None,
            hold_time: None,
            endpoints: None,
            opens: opens(),
            settings: Arc::new(settings()),
            timers: Timers::default(),
            send_hold_time: Duration::from_secs(480),
            stale_until: None,
            next_hops: BTreeMap::new(),
            families: BTreeSet::new(),
            capabilities: Vec::new(),
            advertised: 0,
            held: BTreeMap::new(),
            omitted: BTreeMap::new(),
            withdrawing,
            withheld: Arc::default(),
            routes: Arc::default(),
            counters: Counters::default(),
            last_error: None,
            last_attempt_error: None,
            failures: Failures::default(),
            warning: None,
            shut: false,
            open_sockets: 0,
            generation,
        }
    }

    fn withdrawing(board: &Board) -> BTreeSet<Prefix> {
        board.read().withdrawing()
    }

    #[test]
    fn what_leaves_the_set_is_withdrawing_until_every_task_has_taken_it_over() {
        let board = Board::new();
        board.post("a", peer(0, Arc::default()));
        board.post("b", peer(0, Arc::default()));
        board.advertise(&set([1, 2]), |_, _| {});
        board.advertise(&set([2]), |_, _| {});
        assert_eq!(withdrawing(&board), *set([1]));
        board.post("a", peer(2, set([1])));
        board.post("b", peer(1, Arc::default()));
        assert_eq!(withdrawing(&board), *set([1]));
        board.post("b", peer(2, Arc::default()));
        assert_eq!(withdrawing(&board), *set([1]), "the session of a has not acknowledged");
        board.post("a", peer(2, Arc::default()));
        assert_eq!(withdrawing(&board), *set([]));
    }

    #[test]
    fn a_set_that_no_task_saw_still_counts() {
        let board = Board::new();
        board.post("a", peer(0, Arc::default()));
        board.advertise(&set([1]), |_, _| {});
        board.advertise(&set([2]), |_, _| {});
        board.advertise(&set([1]), |_, _| {});
        assert_eq!(withdrawing(&board), *set([2]), "the task may have passed 2 on");
        board.post("a", peer(3, Arc::default()));
        assert_eq!(withdrawing(&board), *set([]));
    }

    #[test]
    fn without_neighbours_nothing_is_ever_withdrawing() {
        let board = Board::new();
        board.advertise(&set([1]), |_, _| {});
        board.advertise(&set([]), |_, _| {});
        assert_eq!(withdrawing(&board), *set([]));
        board.post("a", peer(0, Arc::default()));
        board.advertise(&set([1]), |_, _| {});
        board.advertise(&set([]), |_, _| {});
        assert_eq!(withdrawing(&board), *set([1]));
        board.remove("a");
        assert_eq!(withdrawing(&board), *set([]));
    }

    #[test]
    fn a_counter_wakes_nobody() {
        let board = Board::new();
        let first = peer(0, Arc::default());
        board.post("a", first.clone());
        let mut waiter = board.subscribe();
        waiter.mark_unchanged();
        let mut counted = first;
        counted.counters.established = 7;
        counted.timers.last_received = Some(Instant::now());
        board.post("a", counted.clone());
        assert!(!waiter.has_changed().unwrap());
        assert_eq!(board.read().peers.get("a").unwrap().counters.established, 7);
        board.post("a", PeerStatus { state: State::Idle, ..counted });
        assert!(waiter.has_changed().unwrap());
    }
}
