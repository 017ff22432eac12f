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

use super::Routes;

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
    /// That there are as many dynamic neighbours as may be, and who was refused last; `None` while there is room for one more.
    pub dynamic_full: Option<String>,
    /// Connections that were refused for that reason, since the speaker began.
    pub dynamic_refused: u64,
    /// The neighbours by name, with those that are about to close.
    pub peers: BTreeMap<String, Arc<PeerStatus>>,
    /// Prefixes that came into the set or left it, of which some neighbour's task has not heard yet.
    moved: Arc<BTreeMap<Prefix, Moved>>,
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
        let leaving = self.moved.keys().filter(|prefix| !wanted(prefix));
        leaving.chain(of_peers).chain(inherited).copied().collect()
    }

    /// The prefixes that this peer is told: all of the set, less what its task has not heard of yet, and what is withheld from it.
    pub fn told(&self, peer: &PeerStatus) -> impl Iterator<Item = Prefix> {
        let heard = |prefix: &Prefix| self.moved.get(prefix).is_none_or(|moved| moved.came <= peer.generation);
        let prefixes = self.advertised.iter().filter(|_| peer.generation > 0).flat_map(|set| set.prefixes());
        prefixes.filter(move |prefix| heard(prefix) && !peer.withheld.contains_key(prefix))
    }

    /// Sessions that still have a socket, even if only to deliver their last message.
    #[must_use]
    pub fn open_sessions(&self) -> usize {
        self.peers.values().map(|peer| peer.open_sockets).sum()
    }

    /// Takes over the next set, in which these prefixes have come or are gone.
    fn moved(&mut self, came: &[Prefix], left: &[Prefix]) {
        let (generation, moved) = (self.generation, Arc::make_mut(&mut self.moved));
        for prefix in came {
            let since = moved.get(prefix).map_or(generation, |moved| moved.since);
            moved.insert(*prefix, Moved { since, came: generation, left: None });
        }
        for prefix in left {
            // What is not remembered came before any set that matters.
            let Moved { since, came, .. } = moved.get(prefix).copied().unwrap_or(Moved { since: 1, came: 1, left: None });
            moved.insert(*prefix, Moved { since, came, left: Some(generation) });
        }
        self.forget();
    }

    /// Forgets of what has moved all that no neighbour's task could be behind with. A set that no task has taken, or that all have left behind, is no reason
    /// to remember anything: what is remembered grows with the tasks and with the prefixes of a set, and not with the number of sets. Whether there was any.
    fn forget(&mut self) -> bool {
        let sets: BTreeSet<u64> = self.peers.values().flat_map(|peer| [peer.generation, peer.taken]).collect();
        let oldest = sets.first().copied().unwrap_or(u64::MAX);
        let matters = |Moved { since, came, left }: &Moved| match left {
            Some(left) => sets.range(*since..*left).next().is_some(),
            None => *came > oldest,
        };
        let forgets = !self.moved.values().all(matters);
        if forgets {
            Arc::make_mut(&mut self.moved).retain(|_, moved| matters(moved));
        }
        forgets
    }
}

/// When a prefix came into the set and left it, by the numbers of sets.
#[derive(Clone, Copy, Debug)]
struct Moved {
    /// It may have been in each set from here on: in between it may have left and come again.
    since: u64,
    /// It came last in this one.
    came: u64,
    /// It is not in this one any more; `None` where it is in the current one.
    left: Option<u64>,
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
    /// How many of those other peers have told, by family.
    pub reflected: BTreeMap<Family, usize>,
    /// How many routes of the peer are kept, in each family; none where nothing is imported.
    pub held: BTreeMap<Family, u32>,
    /// How many announcements of the peer were not kept because so many were already.
    pub omitted: BTreeMap<Family, u64>,
    /// Prefixes that are withdrawn, but whose UPDATE the peer's host has not acknowledged.
    pub withdrawing: Arc<BTreeSet<Prefix>>,
    /// Prefixes that this peer is not told, and why.
    pub withheld: Arc<BTreeMap<Prefix, Withheld>>,
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
    /// The number of the set that the neighbour's task has taken last.
    pub(super) taken: u64,
    /// The number of the set of which it has told the core everything.
    pub(super) generation: u64,
}

impl PeerStatus {
    /// Whether more than a counter or a timer differs.
    fn is_news(&self, old: &Self) -> bool {
        *old != Self { counters: old.counters.clone(), omitted: old.omitted.clone(), timers: old.timers, taken: old.taken, ..self.clone() }
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
            let was = |prefix: &Prefix| before.as_ref().is_some_and(|old| old.contains(prefix));
            let differing = || changed.iter().flat_map(|changed| changed.iter()).copied();
            let left: Vec<Prefix> = differing().filter(|prefix| !set.contains(prefix)).collect();
            let came: Vec<Prefix> = differing().filter(|prefix| !was(prefix)).collect();
            self.0.send_if_modified(|status| {
                let is_before = before.as_ref().map(Arc::as_ptr) == status.advertised.as_ref().map(Arc::as_ptr);
                let Some(pass_on) = pass_on.take_if(|_| is_before) else { return false };
                let status = Arc::make_mut(status);
                status.advertised = Some(Arc::clone(set));
                status.generation += 1;
                status.moved(&came, &left);
                pass_on(status.generation, changed);
                true
            });
            if pass_on.is_none() {
                return;
            }
        }
    }

    /// The task of a neighbour takes the set that is in force now, if any, as `routes` gives it.
    pub(super) fn take(&self, name: &str, routes: impl FnOnce() -> Option<Routes>) -> Option<Routes> {
        let mut taken = None;
        // No set comes in between: what this one has that the next one has not is remembered from now on.
        self.0.send_if_modified(|status| {
            taken = routes();
            let status = Arc::make_mut(status);
            if let (Some(peer), Some(routes)) = (status.peers.get_mut(name), &taken) {
                Arc::make_mut(peer).taken = routes.generation;
            }
            false
        });
        taken
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

    /// One more dynamic neighbour was refused. Says whether that is the first since there was room.
    pub(super) fn refuse_dynamic(&self, reason: String) -> bool {
        let mut first = false;
        self.0.send_if_modified(|status| {
            let status = Arc::make_mut(status);
            status.dynamic_refused = status.dynamic_refused.saturating_add(1);
            first = status.dynamic_full.replace(reason).is_none();
            first
        });
        first
    }

    /// There is room for another dynamic neighbour.
    pub(super) fn admit_dynamic(&self) {
        self.0.send_if_modified(|status| {
            let full = status.dynamic_full.is_some();
            if full {
                Arc::make_mut(status).dynamic_full = None;
            }
            full
        });
    }

    /// Posts the status of one neighbour.
    pub(super) fn post(&self, name: &str, peer: PeerStatus) {
        self.0.send_if_modified(|status| {
            let status = Arc::make_mut(status);
            let old = status.peers.insert(name.to_owned(), Arc::new(peer.clone()));
            let goes_on = old.as_ref().is_none_or(|old| (old.taken, old.generation) != (peer.taken, peer.generation));
            goes_on && status.forget() || old.is_none_or(|old| peer.is_news(&old))
        });
    }

    /// A neighbour whose task has ended.
    pub(super) fn remove(&self, name: &str) {
        self.0.send_if_modified(|status| {
            let status = Arc::make_mut(status);
            let known = status.peers.remove(name).is_some();
            status.forget() || known
        });
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

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
            reflected: BTreeMap::new(),
            held: BTreeMap::new(),
            omitted: BTreeMap::new(),
            withdrawing,
            withheld: Arc::default(),
            counters: Counters::default(),
            last_error: None,
            last_attempt_error: None,
            failures: Failures::default(),
            warning: None,
            shut: false,
            open_sockets: 0,
            taken: generation,
            generation,
        }
    }

    /// The task takes this set, which is in force.
    fn take(board: &Board, name: &str, generation: u64) {
        board.take(name, || Some(Routes { generation, set: Arc::default(), changed: None }));
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
        take(&board, "a", 1);
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
    fn a_set_counts_from_the_moment_at_which_a_task_takes_it() {
        let board = Board::new();
        board.post("a", peer(0, Arc::default()));
        board.advertise(&set([1]), |_, _| {});
        board.advertise(&set([2]), |_, _| {});
        take(&board, "a", 2);
        board.advertise(&set([1]), |_, _| {});
        assert_eq!(withdrawing(&board), *set([2]), "the task may have passed 2 on");
        board.advertise(&set([3]), |_, _| {});
        assert_eq!(withdrawing(&board), *set([2]), "no task has seen 1");
        board.post("a", peer(4, Arc::default()));
        assert_eq!(withdrawing(&board), *set([]));
    }

    #[test]
    fn what_is_told_is_what_the_task_has_heard_of() {
        let board = Board::new();
        board.post("a", peer(0, Arc::default()));
        board.post("b", peer(0, Arc::default()));
        let told = |name: &str| -> BTreeSet<Prefix> {
            let status = board.read();
            status.told(&status.peers[name]).collect()
        };
        board.advertise(&set([1, 2]), |_, _| {});
        assert_eq!(told("a"), *set([]));
        board.post("a", peer(1, Arc::default()));
        board.advertise(&set([2, 3]), |_, _| {});
        assert_eq!(told("a"), *set([2]));
        assert_eq!(told("b"), *set([]));
        board.post("b", peer(2, Arc::default()));
        board.advertise(&set([2, 3, 1]), |_, _| {});
        assert_eq!(told("a"), *set([2]));
        assert_eq!(told("b"), *set([2, 3]));
        board.post("a", peer(3, Arc::default()));
        assert_eq!(told("a"), *set([1, 2, 3]));
    }

    #[test]
    fn tasks_that_lag_cost_no_more_than_two_sets_each_whatever_the_churn() {
        const LAGGING: usize = 4;
        let board = Board::new();
        let names: Vec<String> = (0..LAGGING).map(|number| format!("lagging{number}")).collect();
        names.iter().for_each(|name| board.post(name, peer(0, Arc::default())));
        board.post("brisk", peer(0, Arc::default()));
        let mut sets = Vec::new();
        for number in 1..=1000_u32 {
            let next: Arc<RouteSet> =
                Arc::new((0..8).map(|step| Prefix::host(IpAddr::from((0x0A00_0000 + number * 4 + step).to_be_bytes()))).collect());
            board.advertise(&next, |_, _| {});
            sets.push(Arc::downgrade(&next));
            board.post("brisk", peer(number.into(), Arc::default()));
            // Each at another time; what they began to tell they are slow to finish.
            if let Some(name) = names.get(usize::try_from(number / 10).unwrap()) {
                take(&board, name, number.into());
            }
            assert!(board.read().moved.len() <= 8 * (1 + 2 * (names.len() + 1)), "after {number} sets");
        }
        assert_eq!(sets.iter().filter(|set| set.strong_count() > 0).count(), 1);
        assert_eq!(withdrawing(&board).len(), 8 * names.len(), "what each of them may have told");
    }

    #[test]
    fn without_neighbours_nothing_is_ever_withdrawing() {
        let board = Board::new();
        board.advertise(&set([1]), |_, _| {});
        board.advertise(&set([]), |_, _| {});
        assert_eq!(withdrawing(&board), *set([]));
        board.post("a", peer(0, Arc::default()));
        board.advertise(&set([1]), |_, _| {});
        take(&board, "a", 3);
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

    const NEIGHBOURS: usize = 3;
    const NUMBERS: u8 = 6;

    fn prefixes(numbers: impl IntoIterator<Item = u8>) -> BTreeSet<Prefix> {
        Arc::unwrap_or_clone(set(numbers))
    }

    /// A neighbour's task and its peer.
    #[derive(Debug, Default)]
    struct Neighbour {
        taken: (u64, BTreeSet<Prefix>),
        generation: u64,
        /// What the peer was told and was not told to be gone.
        told: BTreeSet<Prefix>,
        /// What it was told to be gone and has not acknowledged.
        unacknowledged: BTreeSet<Prefix>,
    }

    impl Neighbour {
        /// Tells the peer of these what the set says that was taken.
        fn tell(&mut self, prefixes: &BTreeSet<Prefix>) {
            for prefix in prefixes {
                if self.taken.1.contains(prefix) {
                    self.told.insert(*prefix);
                    self.unacknowledged.remove(prefix);
                } else if self.told.remove(prefix) {
                    self.unacknowledged.insert(*prefix);
                }
            }
        }

        fn status(&self) -> PeerStatus {
            let withdrawing = Arc::new(self.unacknowledged.clone());
            PeerStatus { taken: self.taken.0, ..peer(self.generation, withdrawing) }
        }
    }

    #[derive(Clone, Debug)]
    enum Step {
        Advertise(BTreeSet<Prefix>),
        /// A task takes the newest set, unless it is amid another.
        Take(usize),
        /// It tells its peer of some prefixes.
        Tell(usize, BTreeSet<Prefix>),
        /// It tells the rest.
        Reach(usize),
        Acknowledge(usize),
        Post(usize),
        /// The session is over, and with it what the peer holds; another begins.
        Restart(usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        let some = || proptest::collection::btree_set(0..NUMBERS, 0..usize::from(NUMBERS)).prop_map(prefixes);
        prop_oneof![
            3 => some().prop_map(Step::Advertise),
            3 => (0..NEIGHBOURS).prop_map(Step::Take),
            2 => (0..NEIGHBOURS, some()).prop_map(|(number, prefixes)| Step::Tell(number, prefixes)),
            2 => (0..NEIGHBOURS).prop_map(Step::Reach),
            1 => (0..NEIGHBOURS).prop_map(Step::Acknowledge),
            1 => (0..NEIGHBOURS).prop_map(Step::Post),
            1 => (0..NEIGHBOURS).prop_map(Step::Restart),
        ]
    }

    proptest! {
        #[test]
        fn what_a_peer_may_hold_is_advertised_or_withdrawing_at_every_moment(steps in proptest::collection::vec(step(), 1..60)) {
            let board = Board::new();
            let (mut neighbours, mut newest) = ([(); NEIGHBOURS].map(|()| Neighbour::default()), (0, BTreeSet::new()));
            let name = |number: usize| format!("neighbour{number}");
            neighbours.iter().enumerate().for_each(|(number, neighbour)| board.post(&name(number), neighbour.status()));
            for step in steps {
                match step {
                    Step::Advertise(prefixes) => {
                        let set: Arc<RouteSet> = Arc::new(prefixes.iter().copied().collect());
                        board.advertise(&set, |generation, _| newest = (generation, prefixes));
                    }
                    Step::Take(number) => {
                        let neighbour = &mut neighbours[number];
                        if neighbour.generation == neighbour.taken.0 {
                            neighbour.taken = newest.clone();
                            take(&board, &name(number), newest.0);
                        }
                    }
                    Step::Tell(number, prefixes) => neighbours[number].tell(&prefixes),
                    Step::Reach(number) => {
                        let neighbour = &mut neighbours[number];
                        neighbour.tell(&prefixes(0..NUMBERS));
                        neighbour.generation = neighbour.taken.0;
                        board.post(&name(number), neighbour.status());
                    }
                    Step::Acknowledge(number) => {
                        neighbours[number].unacknowledged.clear();
                        board.post(&name(number), neighbours[number].status());
                    }
                    Step::Post(number) => board.post(&name(number), neighbours[number].status()),
                    Step::Restart(number) => {
                        board.remove(&name(number));
                        neighbours[number] = Neighbour::default();
                        board.post(&name(number), neighbours[number].status());
                    }
                }
                let mut known = withdrawing(&board);
                known.extend(newest.1.iter().copied());
                for neighbour in &neighbours {
                    let held = neighbour.told.union(&neighbour.unacknowledged);
                    let unknown: Vec<_> = held.filter(|prefix| !known.contains(prefix)).collect();
                    prop_assert!(unknown.is_empty(), "{unknown:?} of {neighbour:?}");
                }
            }
            for (number, neighbour) in neighbours.iter_mut().enumerate() {
                neighbour.tell(&prefixes(0..NUMBERS));
                neighbour.taken = newest.clone();
                neighbour.tell(&prefixes(0..NUMBERS));
                neighbour.generation = newest.0;
                neighbour.unacknowledged.clear();
                board.post(&name(number), neighbour.status());
            }
            prop_assert_eq!(withdrawing(&board), BTreeSet::new(), "all is told and acknowledged");
            prop_assert!(board.read().moved.is_empty());
        }
    }
}
