// SPDX-License-Identifier: Apache-2.0
//! A group of two: the virtual routers of IPv4 and IPv6 of one node.

use std::net::IpAddr;
use std::sync::LazyLock;
use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::identity::{Addresses, Interval, Priority, Version};
use crate::router::{Hindrance, Holding, Preempt, Transport};
use crate::wire::{Advertisement, ChecksumForm, Datagram, Endpoints};

/// Where virtual clocks start.
static EPOCH: LazyLock<Instant> = LazyLock::new(
    #[expect(clippy::disallowed_methods, reason = "an instant cannot be made of a number: a virtual clock has to start somewhere")]
    Instant::now,
);

const SECOND: Duration = Duration::from_secs(1);
/// Of priority 100 and an interval of a second.
const ACTIVE_DOWN_INTERVAL: Duration = Duration::from_micros(3_609_375);
const IPV4: MemberId = MemberId { vrid: Vrid::new(51).unwrap(), family: Family::Ipv4 };
const IPV6: MemberId = MemberId { vrid: Vrid::new(51).unwrap(), family: Family::Ipv6 };

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn addresses(texts: &[&str]) -> Addresses {
    Addresses::new(&texts.iter().map(|text| ip(text)).collect::<Vec<_>>()).unwrap()
}

fn ipv4() -> Config {
    Config::new(IPV4.vrid, ip("10.9.0.2"), addresses(&["10.9.0.100"]))
}

fn ipv6() -> Config {
    Config::new(IPV6.vrid, ip("fe80::2"), addresses(&["fe80::64", "2001:db8::64"]))
}

fn of(id: MemberId) -> Config {
    if id == IPV4 { ipv4() } else { ipv6() }
}

/// An advertisement of another router to the group; priority 0 resigns.
fn from(source: &str, number: u8) -> Event {
    let config = of(if ip(source).is_ipv4() { IPV4 } else { IPV6 });
    let advertisement = Advertisement {
        version: Version::V3,
        vrid: config.vrid,
        priority: Priority::new(number),
        interval: config.interval,
        addresses: config.addresses.clone(),
    };
    let endpoints = Endpoints::new(ip(source), config.addresses.family().multicast_group()).unwrap();
    Event::Received(Datagram { endpoints, ttl: 255, octets: advertisement.encode(endpoints, ChecksumForm::MessageOnly) })
}

/// What was done, with advertisements by their priority.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Done {
    Sent(u8),
    Addresses(Holding),
    Announced,
    To(State),
    Other,
}

use Done::{Announced, Sent, To};

const HELD: Done = Done::Addresses(Holding::Held);
const SILENT: Done = Done::Addresses(Holding::Silent);
const RELEASED: Done = Done::Addresses(Holding::Released);

impl From<Action> for Done {
    fn from(action: Action) -> Self {
        match action {
            Action::Send { octets, .. } => Self::Sent(octets[2]),
            Action::Addresses(holding) => Self::Addresses(holding),
            Action::Announce => Self::Announced,
            Action::Transition { to, .. } => Self::To(to),
            Action::Discarded { .. } | Action::AddressesDiffer { .. } => Self::Other,
        }
    }
}

fn done(actions: Vec<(MemberId, Action)>) -> Vec<(MemberId, Done)> {
    actions.into_iter().map(|(id, action)| (id, action.into())).collect()
}

fn each(done: &[Done]) -> Vec<(MemberId, Done)> {
    [IPV4, IPV6].into_iter().flat_map(|id| done.iter().map(move |done| (id, *done))).collect()
}

struct Bench {
    group: Group,
    now: Instant,
}

impl Bench {
    fn new(configs: Vec<Config>) -> Self {
        Self { group: Group::new(configs).unwrap(), now: *EPOCH }
    }

    fn backup() -> Self {
        let mut bench = Self::new(vec![ipv4(), ipv6()]);
        bench.up();
        bench.assert_state(State::Backup);
        bench
    }

    fn active() -> Self {
        let mut bench = Self::backup();
        bench.pass(ACTIVE_DOWN_INTERVAL);
        bench.assert_state(State::Active);
        bench
    }

    fn up(&mut self) -> Vec<(MemberId, Done)> {
        [Event::Start, Event::InterfaceUp].into_iter().flat_map(|event| self.event(event)).collect()
    }

    fn event(&mut self, event: Event) -> Vec<(MemberId, Done)> {
        done(self.group.handle(self.now, event))
    }

    fn member(&mut self, id: MemberId, event: Event) -> Vec<(MemberId, Done)> {
        done(self.group.handle_member(self.now, id, event))
    }

    /// Lets time pass with a tick at each deadline.
    fn pass(&mut self, time: Duration) -> Vec<(MemberId, Done)> {
        let end = self.now + time;
        let mut all = vec![];
        while let Some(at) = self.group.deadline().filter(|at| *at <= end) {
            self.now = at;
            all.extend(self.event(Event::Tick));
            assert!(self.group.deadline().is_none_or(|at| at > self.now), "a driver would turn without end");
        }
        self.now = end;
        all
    }

    fn configure(&mut self, configs: Vec<Config>) -> Vec<(MemberId, Done)> {
        done(self.group.configure(self.now, configs).unwrap())
    }

    fn state(&self, id: MemberId) -> State {
        self.group.members().find(|(member, _)| *member == id).unwrap().1.state()
    }

    fn assert_state(&self, state: State) {
        for (id, router) in self.group.members() {
            assert_eq!(router.state(), state, "{id}");
        }
    }

    fn hindrances(&self, id: MemberId) -> Vec<Hindrance> {
        self.group.members().find(|(member, _)| *member == id).unwrap().1.hindrances().collect()
    }
}

#[test]
fn the_members_claim_when_the_timers_of_all_have_lapsed() {
    let mut bench = Bench::backup();
    bench.pass(SECOND);
    bench.event(from("fe80::9", 100));
    bench.pass(ACTIVE_DOWN_INTERVAL - SECOND);
    bench.assert_state(State::Backup);
    assert_eq!(bench.pass(SECOND), each(&[Sent(100), HELD, Announced, To(State::Active)]));
}

#[test]
fn a_member_whose_timer_has_lapsed_still_listens() {
    let mut bench = Bench::backup();
    bench.pass(SECOND);
    bench.event(from("fe80::9", 100));
    bench.pass(ACTIVE_DOWN_INTERVAL - SECOND);
    bench.event(from("10.9.0.9", 100));
    bench.pass(SECOND);
    bench.assert_state(State::Backup);
    bench.pass(ACTIVE_DOWN_INTERVAL - SECOND);
    bench.assert_state(State::Active);
}

#[test]
fn a_member_that_is_held_back_holds_all_back() {
    let mut bench = Bench::new(vec![ipv4(), ipv6()]);
    bench.event(Event::Start);
    bench.member(IPV4, Event::InterfaceUp);
    bench.assert_state(State::Initialize);
    assert_eq!(bench.hindrances(IPV4), [Hindrance::Group]);
    assert_eq!(bench.hindrances(IPV6), [Hindrance::InterfaceDown]);
    assert_eq!(bench.pass(Duration::from_secs(60)), []);
    assert_eq!(bench.member(IPV6, Event::InterfaceUp), each(&[SILENT, To(State::Backup)]));
}

#[test]
fn a_member_that_is_lost_takes_all_down_with_one_farewell_each() {
    let mut bench = Bench::active();
    let actions = bench.member(IPV6, Event::InterfaceDown);
    // What still comes for IPv4 can be served until somebody follows.
    let expected = [(IPV4, Sent(0)), (IPV4, SILENT), (IPV4, To(State::Initialize)), (IPV6, RELEASED), (IPV6, To(State::Initialize))];
    assert_eq!(actions, expected);
    assert_eq!(bench.event(from("10.9.0.9", 50)), [(IPV4, RELEASED)]);
    assert_eq!(bench.pass(Duration::from_secs(60)), []);
    assert_eq!(bench.member(IPV6, Event::InterfaceUp), each(&[To(State::Backup)]));

    let mut bench = Bench::active();
    let actions = bench.member(IPV4, Event::InterfaceDown);
    let farewells: Vec<_> = actions.iter().filter(|(_, done)| matches!(done, Sent(_))).collect();
    assert_eq!(farewells, [&(IPV6, Sent(0))]);
    bench.assert_state(State::Initialize);
}

#[test]
fn all_are_stopped_and_started_together() {
    let mut bench = Bench::active();
    assert_eq!(bench.event(Event::Stop), each(&[Sent(0), SILENT, To(State::Initialize)]));
    assert_eq!(bench.event(from("fe80::9", 50)), [(IPV6, RELEASED)]);
    assert_eq!(bench.event(Event::Start), each(&[To(State::Backup)]));
}

#[test]
fn where_one_gives_way_the_others_resign() {
    let mut bench = Bench::active();
    // What still comes for IPv4 is served until somebody follows there, too.
    let expected = [(IPV4, Sent(0)), (IPV4, SILENT), (IPV4, To(State::Backup)), (IPV6, RELEASED), (IPV6, To(State::Backup))];
    assert_eq!(bench.event(from("fe80::9", 101)), expected);
    assert_eq!(bench.event(from("10.9.0.9", 101)), [(IPV4, RELEASED)]);
    // And takes over again from that router when it resigns in both.
    bench.event(from("fe80::9", 0));
    bench.event(from("10.9.0.9", 0));
    bench.pass(Duration::from_micros(609_375));
    bench.assert_state(State::Active);
}

#[test]
fn the_owner_is_active_in_all_at_once() {
    let owner = |config: Config| Config { priority: Priority::OWNER, ..config };
    let mut bench = Bench::new(vec![owner(ipv4()), owner(ipv6())]);
    bench.event(Event::Start);
    bench.member(IPV6, Event::InterfaceUp);
    bench.assert_state(State::Initialize);
    assert_eq!(bench.member(IPV4, Event::InterfaceUp), each(&[Sent(255), HELD, Announced, To(State::Active)]));
}

#[test]
fn all_resign_where_the_node_does_not_serve_and_take_over_together_where_nobody_else_does() {
    let mut bench = Bench::active();
    assert_eq!(bench.event(Event::NotServing), each(&[Sent(0), SILENT, To(State::Backup)]));
    let claimed = bench.pass(Duration::from_secs(4));
    assert_eq!(claimed, each(&[Sent(1), HELD, Announced, To(State::Active)]));
    // Who joins is told so.
    bench.configure(vec![ipv4()]);
    bench.configure(vec![ipv4(), ipv6()]);
    assert!(bench.group.members().all(|(_, router)| !router.is_serving()));
    assert_eq!(bench.event(from("10.9.0.1", 2)).first(), Some(&(IPV4, RELEASED)));
    bench.assert_state(State::Backup);
}

#[test]
fn a_member_that_joins_an_active_group_follows_it_by_its_own_timer() {
    let mut bench = Bench::new(vec![ipv6()]);
    bench.up();
    bench.pass(ACTIVE_DOWN_INTERVAL);
    assert_eq!(bench.configure(vec![ipv6(), ipv4()]), [(IPV4, SILENT), (IPV4, To(State::Backup))]);
    bench.pass(ACTIVE_DOWN_INTERVAL / 2);
    assert_eq!((bench.state(IPV4), bench.state(IPV6)), (State::Backup, State::Active));
    bench.pass(ACTIVE_DOWN_INTERVAL / 2);
    bench.assert_state(State::Active);
    // From then on it counts.
    bench.event(from("10.9.0.9", 101));
    bench.assert_state(State::Backup);
}

#[test]
fn a_member_that_joins_an_active_group_does_not_pull_it_down() {
    let mut bench = Bench::new(vec![ipv6()]);
    bench.up();
    bench.pass(ACTIVE_DOWN_INTERVAL);
    bench.configure(vec![ipv4(), ipv6()]);
    // Another router is Active there.
    for _ in 0..20 {
        bench.event(from("10.9.0.9", 200));
        bench.pass(SECOND);
        assert_eq!((bench.state(IPV4), bench.state(IPV6)), (State::Backup, State::Active));
    }
    // Nor when it cannot be Active.
    bench.member(IPV4, Event::InterfaceDown);
    assert_eq!((bench.state(IPV4), bench.state(IPV6)), (State::Initialize, State::Active));
    // Once the group is not Active any more, it counts like any other.
    bench.event(from("fe80::9", 200));
    bench.assert_state(State::Initialize);
    assert_eq!((bench.hindrances(IPV4), bench.hindrances(IPV6)), (vec![Hindrance::InterfaceDown], vec![Hindrance::Group]));
    bench.member(IPV4, Event::InterfaceUp);
    bench.assert_state(State::Backup);
}

#[test]
fn a_member_that_leaves_resigns_and_the_others_stay() {
    let mut bench = Bench::active();
    let actions = bench.configure(vec![ipv4()]);
    assert_eq!(actions, [(IPV6, Sent(0)), (IPV6, RELEASED), (IPV6, To(State::Initialize))]);
    bench.assert_state(State::Active);
    assert_eq!(bench.group.members().count(), 1);
    // The last one that counted makes room for one that had joined.
    let mut bench = Bench::new(vec![ipv6()]);
    bench.up();
    bench.pass(ACTIVE_DOWN_INTERVAL);
    bench.configure(vec![ipv4(), ipv6()]);
    bench.configure(vec![ipv4()]);
    bench.pass(ACTIVE_DOWN_INTERVAL);
    bench.assert_state(State::Active);
}

#[test]
fn the_first_member_decides_ties() {
    let mut bench = Bench::active();
    // The other group has the higher address in IPv6 and the lower one in IPv4.
    for _ in 0..20 {
        bench.event(from("fe80::9", 100));
        assert!(bench.event(from("10.9.0.1", 100)).iter().any(|(id, done)| (*id, *done) == (IPV4, Sent(100))));
        bench.pass(SECOND);
        bench.assert_state(State::Active);
    }
    // The other way round it is lost in IPv4, whatever IPv6 says.
    bench.event(from("10.9.0.9", 100));
    bench.assert_state(State::Backup);
}

#[test]
fn another_member_gives_way_where_the_first_meets_nobody() {
    let mut bench = Bench::active();
    let mut seconds = 0;
    while bench.state(IPV6) == State::Active {
        bench.event(from("fe80::9", 100));
        bench.pass(SECOND);
        seconds += 1;
    }
    bench.assert_state(State::Backup);
    assert_eq!(seconds, 5, "four of silence, as long as any Backup Router would wait");
    // What was long ago does not count.
    let mut bench = Bench::active();
    for _ in 0..3 {
        bench.event(from("fe80::9", 100));
        bench.assert_state(State::Active);
        bench.pass(Duration::from_secs(10));
    }
}

#[test]
fn another_priority_is_no_tie() {
    let mut bench = Bench::active();
    bench.event(from("10.9.0.1", 50));
    bench.event(from("fe80::1", 101));
    bench.assert_state(State::Backup);
}

#[test]
fn a_datagram_goes_to_its_member() {
    let mut bench = Bench::backup();
    bench.event(from("fe80::9", 100));
    let heard: Vec<_> = bench.group.members().map(|(_, router)| router.heard().map(|heard| heard.source)).collect();
    assert_eq!(heard, [None, Some(ip("fe80::9"))]);
    let Event::Received(datagram) = from("10.9.0.9", 100) else { unreachable!() };
    for vrid in [0, 52] {
        let mut other = datagram.clone();
        other.octets[1] = vrid;
        assert_eq!(bench.event(Event::Received(other)), []);
    }
    assert_eq!(bench.event(Event::Received(Datagram { octets: vec![], ..datagram })), []);
}

#[test]
fn all_are_changed_or_none_is() {
    let slow = |config: Config| Config { interval: Interval::from_centiseconds(200).unwrap(), ..config };
    let refused = [
        (vec![], GroupError::Empty),
        (vec![ipv4(), ipv4()], GroupError::Twice(IPV4)),
        (vec![ipv4(), slow(ipv6())], GroupError::Unequal(IPV6)),
        (vec![ipv4(), Config { preempt: Preempt::Never, ..ipv6() }], GroupError::Unequal(IPV6)),
        (
            vec![ipv4(), Config { primary: ip("10.9.0.2"), ..ipv6() }],
            GroupError::Member { id: IPV6, error: ConfigError::Family { address: ip("10.9.0.2"), family: Family::Ipv6 } },
        ),
        (vec![Config { version: Version::V2, ..ipv4() }], GroupError::Member { id: IPV4, error: ConfigError::OtherRouter }),
    ];
    let mut bench = Bench::active();
    for (configs, error) in refused {
        assert_eq!(bench.group.configure(bench.now, configs), Err(error));
        let configs: Vec<_> = bench.group.members().map(|(_, router)| router.config().clone()).collect();
        assert_eq!(configs, [ipv4(), ipv6()]);
    }
    let urgent = |config: Config| Config { priority: Priority::new(200).unwrap(), ..config };
    assert_eq!(bench.configure(vec![urgent(ipv4()), urgent(ipv6())]), []);
    bench.pass(SECOND);
    assert_eq!(bench.event(from("10.9.0.9", 150)), [(IPV4, Sent(200))]);
    assert_eq!(
        GroupError::Unequal(IPV6).to_string(),
        "IPv6 of VRID 51 differs from the first router of the group in priority, interval, version or preemption"
    );
}

#[test]
fn peers_that_are_known_in_one_family_alone_hold_the_group_back() {
    let unicast = |peers: &[&str]| Transport::Unicast { peers: peers.iter().map(|peer| ip(peer)).collect(), single: false };
    let with = |config: Config, transport| Config { transport, ..config };
    let mut bench = Bench::new(vec![with(ipv4(), unicast(&["10.9.0.1"])), with(ipv6(), unicast(&[]))]);
    bench.up();
    bench.assert_state(State::Initialize);
    bench.configure(vec![with(ipv4(), unicast(&["10.9.0.1"])), with(ipv6(), unicast(&["fe80::1"]))]);
    bench.assert_state(State::Backup);
}

#[derive(Clone, Debug)]
enum Happening {
    All(Event),
    One(MemberId, Event),
    Lapse(u64),
    Members(Vec<MemberId>),
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        3 => Just(Event::Start),
        1 => Just(Event::Stop),
        1 => Just(Event::Suspend),
        3 => Just(Event::Serving),
        1 => Just(Event::NotServing),
        3 => Just(Event::InterfaceUp),
        1 => Just(Event::InterfaceDown),
        2 => Just(Event::Tick),
    ]
}

fn received() -> impl Strategy<Value = Event> {
    let source = prop_oneof![Just("10.9.0.1"), Just("10.9.0.9"), Just("fe80::1"), Just("fe80::9")];
    (source, prop_oneof![Just(0_u8), Just(50), Just(100), Just(150)]).prop_map(|(source, number)| from(source, number))
}

fn happening() -> impl Strategy<Value = Happening> {
    let id = prop_oneof![Just(IPV4), Just(IPV6)];
    let members = prop_oneof![Just(vec![IPV4]), Just(vec![IPV6]), Just(vec![IPV4, IPV6])];
    prop_oneof![
        4 => event().prop_map(Happening::All),
        2 => (id, event()).prop_map(|(id, event)| Happening::One(id, event)),
        6 => received().prop_map(Happening::All),
        9 => prop_oneof![4 => Just(0_u64), 1 => 0..5000_u64].prop_map(Happening::Lapse),
        1 => members.prop_map(Happening::Members),
    ]
}

/// What holds after every call.
fn assert_together(group: &Group, now: Instant) {
    let counting: Vec<_> = group.counting().map(|member| member.router.state()).collect();
    assert!(!counting.is_empty(), "somebody counts");
    assert!(counting.iter().all(|state| *state == counting[0]), "the members disagree: {counting:?}");
    assert!(group.members.values().all(|member| !member.joining || counting[0] == State::Active), "nothing is there to join");
    for (_, router) in group.members() {
        assert_eq!(router.state() == State::Active, router.holding() == Some(Holding::Held));
        assert_eq!(router.state() == State::Initialize, router.hindrances().next().is_some());
    }
    assert!(group.deadline().is_none_or(|at| at > now), "a driver would turn without end");
}

proptest! {
    #[test]
    fn the_members_agree_after_anything(happenings in proptest::collection::vec(happening(), 1..80)) {
        let mut group = Group::new(vec![ipv4(), ipv6()]).unwrap();
        let mut now = *EPOCH;
        for event in [Event::Start, Event::InterfaceUp] {
            group.handle(now, event);
        }
        for happening in happenings {
            let farewells = match happening {
                Happening::All(event) => group.handle(now, event),
                Happening::One(id, event) => group.handle_member(now, id, event),
                Happening::Lapse(later) => {
                    now = group.deadline().unwrap_or(now).max(now) + Duration::from_millis(later);
                    group.handle(now, Event::Tick)
                }
                Happening::Members(ids) => group.configure(now, ids.into_iter().map(of).collect()).unwrap(),
            };
            for id in [IPV4, IPV6] {
                let count = farewells.iter().filter(|(of, action)| *of == id && Done::from(action.clone()) == Sent(0)).count();
                prop_assert!(count <= 1, "one farewell each");
            }
            group.handle(now, Event::Tick);
            assert_together(&group, now);
        }
    }

    #[test]
    fn a_group_of_one_is_like_its_router_alone(events in proptest::collection::vec((prop_oneof![event(), received()], 0..4000_u64, any::<bool>()), 1..80)) {
        let mut group = Group::new(vec![ipv4()]).unwrap();
        let mut router = VirtualRouter::new(ipv4()).unwrap();
        let mut now = *EPOCH;
        for (event, later, lapse) in events {
            now = if lapse { router.deadline().unwrap_or(now).max(now) } else { now + Duration::from_millis(later) };
            let event = if lapse { Event::Tick } else { event };
            if matches!(&event, Event::Received(datagram) if datagram.endpoints.family() == Family::Ipv6) {
                continue;
            }
            let of_group: Vec<_> = group.handle(now, event.clone()).into_iter().map(|(_, action)| action).collect();
            prop_assert_eq!(of_group, router.handle(now, event));
            prop_assert_eq!(group.deadline(), router.deadline());
        }
    }
}
