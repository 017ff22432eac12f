// SPDX-License-Identifier: Apache-2.0
//! What readers of the board see while sets come and go.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use bgp::peer::{Counters, State, Timers};
use bgp::wire::Open;
use bgp::{Asn, HoldTime};
use proptest::prelude::*;

use super::*;
use crate::desired::DesiredPeer;
use crate::driver::bgp::LowTtlDrops;

fn set<S: FromIterator<Prefix>>(numbers: impl IntoIterator<Item = u8>) -> Arc<S> {
    Arc::new(numbers.into_iter().map(|number| Prefix::host(IpAddr::from([10, 0, 0, number]))).collect())
}

/// What the tasks are given, with a sign that there is something.
fn advertise(board: &Board, set: &Arc<RouteSet>) -> Option<Routes> {
    let (routes, tasks) = watch::channel(None);
    board.advertise(set, None, &routes);
    let given = tasks.borrow().clone();
    assert_eq!(tasks.has_changed().unwrap(), given.is_some());
    given
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
        low_ttl_drops: LowTtlDrops::default(),
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
    advertise(&board, &set([1, 2]));
    take(&board, "a", 1);
    advertise(&board, &set([2]));
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
    advertise(&board, &set([1]));
    advertise(&board, &set([2]));
    take(&board, "a", 2);
    advertise(&board, &set([1]));
    assert_eq!(withdrawing(&board), *set([2]), "the task may have passed 2 on");
    advertise(&board, &set([3]));
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
    advertise(&board, &set([1, 2]));
    assert_eq!(told("a"), *set([]));
    board.post("a", peer(1, Arc::default()));
    advertise(&board, &set([2, 3]));
    assert_eq!(told("a"), *set([2]));
    assert_eq!(told("b"), *set([]));
    board.post("b", peer(2, Arc::default()));
    advertise(&board, &set([2, 3, 1]));
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
        advertise(&board, &next);
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
    advertise(&board, &set([1]));
    advertise(&board, &set([]));
    assert_eq!(withdrawing(&board), *set([]));
    board.post("a", peer(0, Arc::default()));
    advertise(&board, &set([1]));
    take(&board, "a", 3);
    advertise(&board, &set([]));
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
                    let given = advertise(&board, &set);
                    newest = given.map_or(newest, |routes| (routes.generation, prefixes));
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
