// SPDX-License-Identifier: Apache-2.0
use proptest::prelude::*;

use super::*;

fn record(holder: &str, version: u64) -> Record {
    Record { holder: holder.into(), duration: LEASE_DURATION, transitions: 3, version: version.to_string() }
}

fn take(replaces: Option<u64>, transitions: i32, acquires: bool) -> Option<Action> {
    let replaces = replaces.map(|version| version.to_string());
    Some(Action::Write { replaces, holder: "a".into(), transitions, acquires })
}

fn seconds(start: Instant, seconds: u64) -> Instant {
    start + Duration::from_secs(seconds)
}

/// Candidate `a`, which has asked for the Lease.
fn candidate(now: Instant) -> Election {
    let mut election = Election::new("a", now);
    assert_eq!(election.handle(now, Event::Tick), Some(Action::Read));
    assert_eq!((election.deadline(), election.handle(now, Event::Tick)), (None, None), "one request at a time");
    election
}

/// Candidate `a`, which holds the Lease from now on.
fn holder(now: Instant) -> Election {
    let mut election = candidate(now);
    assert_eq!(election.handle(now, Event::Read(None)), take(None, 0, true));
    assert_eq!(election.handle(now, Event::Written(record("a", 1))), None);
    assert!(election.holds(now));
    election
}

#[test]
fn what_nobody_holds_is_taken() {
    let now = Instant::now();
    for (found, action) in [
        (None, take(None, 0, true)),
        (Some(record("", 7)), take(Some(7), 4, true)),
        (Some(record("a", 7)), take(Some(7), 3, false)),
        (Some(record("b", 7)), None),
    ] {
        assert_eq!(candidate(now).handle(now, Event::Read(found.clone())), action, "{found:?}");
    }
}

#[test]
fn a_record_that_does_not_change_for_its_duration_is_given_up() {
    let start = Instant::now();
    let mut election = candidate(start);
    let mut look = |second: u64, version: u64| {
        let now = seconds(start, second);
        election.handle(now, Event::Tick);
        (election.handle(now, Event::Read(Some(record("b", version)))), election.deadline().map(|next| next - start))
    };
    assert_eq!(look(0, 7), (None, Some(Duration::from_secs(5))));
    assert_eq!(look(5, 8), (None, Some(Duration::from_secs(10))), "it is renewed");
    assert_eq!(look(10, 8), (None, Some(Duration::from_secs(15))));
    assert_eq!(look(18, 8), (None, Some(Duration::from_secs(20))), "not before it is over");
    assert_eq!(look(20, 8), (take(Some(8), 4, true), None));
}

#[test]
fn a_holder_renews_and_stops_in_time_where_it_cannot() {
    let start = Instant::now();
    let mut election = holder(start);
    assert_eq!(election.deadline(), Some(seconds(start, 5)));
    assert_eq!(election.handle(seconds(start, 4), Event::Tick), None, "a spurious tick does nothing");
    assert_eq!(election.handle(seconds(start, 5), Event::Tick), take(Some(1), 3, false));
    assert_eq!(election.handle(seconds(start, 9), Event::Failed), None);
    assert!(election.holds(seconds(start, 9)) && !election.holds(seconds(start, 10)));
    assert_eq!(election.handle(seconds(start, 11), Event::Tick), Some(Action::Read), "it is a follower now");
}

#[test]
fn the_deadline_counts_from_when_the_renewal_was_sent() {
    let start = Instant::now();
    let mut election = holder(start);
    election.handle(seconds(start, 5), Event::Tick);
    election.handle(seconds(start, 9), Event::Written(record("a", 2)));
    assert!(election.holds(seconds(start, 14)) && !election.holds(seconds(start, 15)));
}

#[test]
fn a_conflict_is_looked_at_and_not_at_once() {
    let start = Instant::now();
    let mut election = holder(start);
    election.handle(seconds(start, 5), Event::Tick);
    assert_eq!(election.handle(seconds(start, 5), Event::Conflict), None);
    assert_eq!(election.deadline(), Some(seconds(start, 7)), "an API server that answers nothing else is not asked all the time");
    assert!(election.holds(seconds(start, 7)));
    assert_eq!(election.handle(seconds(start, 7), Event::Tick), Some(Action::Read));
    assert_eq!(
        election.handle(seconds(start, 7), Event::Read(Some(record("a", 2)))),
        take(Some(2), 3, false),
        "somebody else annotated it"
    );
    assert_eq!(election.handle(seconds(start, 7), Event::Conflict), None);
    assert_eq!(election.handle(seconds(start, 9), Event::Tick), Some(Action::Read));
    assert_eq!(election.handle(seconds(start, 9), Event::Read(Some(record("b", 3)))), None);
    assert!(!election.holds(seconds(start, 9)));
    assert_eq!(election.holder(), Some("b"));
}

#[test]
fn who_leaves_gives_it_up() {
    let now = Instant::now();
    let mut election = holder(now);
    let release = Action::Write { replaces: Some("1".into()), holder: String::new(), transitions: 3, acquires: false };
    assert_eq!(election.handle(now, Event::Release), Some(release));
    assert!(!election.holds(now));
    assert_eq!(election.handle(now, Event::Conflict), None);
    assert_eq!(election.deadline(), None);
    assert_eq!(candidate(now).handle(now, Event::Release), None, "a follower has nothing to give up");
}

/// One candidate of the simulation, and the answer that is on its way to it.
struct Candidate {
    election: Election,
    answer: Option<(Instant, Event)>,
}

/// The API server: the Lease and its version.
#[derive(Default)]
struct Server {
    record: Option<Record>,
    version: u64,
}

impl Server {
    fn answer(&mut self, action: Action) -> Event {
        let Action::Write { replaces, holder, transitions, .. } = action else { return Event::Read(self.record.clone()) };
        if self.record.as_ref().map(|record| &record.version) != replaces.as_ref() {
            return Event::Conflict;
        }
        self.version += 1;
        let record = Record { holder, duration: LEASE_DURATION, transitions, version: self.version.to_string() };
        Event::Written(self.record.insert(record).clone())
    }
}

/// What happens to a request: how long it is on its way there and back, in milliseconds, and whether it is lost on one of both.
type Fate = (u8, u64, u64);

const NAMES: [&str; 3] = ["a", "b", "c"];
const STEP: usize = 250;

/// Who holds the Lease at each [`STEP`] milliseconds, while `runs` says which candidates are there in which second.
fn simulate(length: usize, fates: &[Fate], runs: impl Fn(&str, usize) -> bool) -> Vec<Vec<&'static str>> {
    let start = Instant::now();
    let mut server = Server::default();
    let mut candidates: Vec<Candidate> =
        NAMES.iter().map(|name| Candidate { election: Election::new(*name, start), answer: None }).collect();
    let mut fates = fates.iter().copied().cycle();
    let mut on_the_way: Vec<(Instant, usize, Action, Fate)> = Vec::new();
    let mut holders = Vec::new();
    for millis in (0..length * 1000).step_by(STEP) {
        let now = start + Duration::from_millis(millis.try_into().unwrap());
        let arrived: Vec<_> = on_the_way.extract_if(.., |(at, ..)| *at <= now).collect();
        for (_, index, action, (loss, _, back)) in arrived {
            let event = if loss == 0 { Event::Failed } else { server.answer(action) };
            let event = if loss == 1 { Event::Failed } else { event };
            candidates[index].answer = Some((now + Duration::from_millis(back), event));
        }
        let there = |index: usize| runs(NAMES[index], millis / 1000);
        for (index, candidate) in candidates.iter_mut().enumerate().filter(|(index, _)| there(*index)) {
            let event = match candidate.answer.take() {
                Some((at, event)) if at <= now => event,
                later => {
                    candidate.answer = later;
                    Event::Tick
                }
            };
            if let Some(action) = candidate.election.handle(now, event) {
                let fate = fates.next().unwrap();
                on_the_way.push((now + Duration::from_millis(fate.1), index, action, fate));
            }
        }
        let holding = |index: &usize| there(*index) && candidates[*index].election.holds(now);
        holders.push((0..NAMES.len()).filter(holding).map(|index| NAMES[index]).collect());
    }
    holders
}

#[test]
fn one_that_is_gone_is_followed_by_another_in_time() {
    let gone = |name: &str, second: usize| name == "a" && second >= 30;
    let holders = simulate(120, &[(9, 50, 50)], |name, second| !gone(name, second));
    let per_second = 1000 / STEP;
    assert!(holders[2 * per_second..30 * per_second].iter().all(|holders| *holders == ["a"]), "{holders:?}");
    let vacant = holders.iter().skip(30 * per_second).take_while(|holders| holders.is_empty()).count();
    assert!((5 * per_second..=21 * per_second).contains(&vacant), "{vacant}");
    let next = holders[30 * per_second + vacant].clone();
    assert!(holders[30 * per_second + vacant..].iter().all(|holders| *holders == next), "{holders:?}");
}

proptest! {
    /// Requests and answers are late by up to five seconds, or lost; nobody ever holds it beside another.
    #[test]
    fn there_is_never_more_than_one_holder(fates in prop::collection::vec((0_u8..10, 0_u64..2500, 0_u64..2500), 600)) {
        for (step, holders) in simulate(240, &fates, |_, _| true).into_iter().enumerate() {
            prop_assert!(holders.len() <= 1, "{holders:?} after {} ms", step * STEP);
        }
    }
}
