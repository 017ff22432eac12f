// SPDX-License-Identifier: Apache-2.0
//! How a router leaves Active by itself, and comes back.

use super::*;

#[test]
fn the_addresses_stay_until_the_next_active_router_is_heard() {
    let mut bench = Bench::active(config());
    let actions = bench.event(Event::Stop);
    assert_eq!(actions[1..], [Action::Addresses(Holding::Silent), to(State::Active, State::Initialize)]);
    bench.pass(ms(600));
    assert_eq!(bench.hear("10.9.0.9", 0), [], "one that resigns does not follow");
    assert_eq!(bench.hear("10.9.0.9", 50), [Action::Addresses(Holding::Released)]);
    assert_eq!(bench.router.deadline(), None);
}

#[test]
fn the_addresses_stay_no_longer_than_any_router_would_wait() {
    let mut bench = Bench::active(config());
    bench.event(Event::Stop);
    assert_eq!(bench.wait(), Duration::from_secs(4));
    assert_eq!(bench.pass_to_deadline(), [Action::Addresses(Holding::Released)]);
    assert_eq!(bench.router.deadline(), None);
}

#[test]
fn what_is_for_the_next_process_stays_where_nobody_follows() {
    let mut bench = Bench::active(config());
    let mut expected = bench.sent(0);
    expected.extend([Action::Addresses(Holding::Silent), to(State::Active, State::Initialize)]);
    assert_eq!(bench.event(Event::Suspend), expected);
    assert_eq!(bench.wait(), Duration::from_secs(4));
    assert_eq!(bench.pass_to_deadline(), [Action::Addresses(Holding::Left)]);
    assert_eq!(bench.router.deadline(), None);
    // Until there is somebody.
    assert_eq!(bench.hear("10.9.0.9", 50), [Action::Addresses(Holding::Released)]);
    // Who follows in time has them.
    let mut bench = Bench::active(config());
    bench.event(Event::Suspend);
    assert_eq!(bench.hear("10.9.0.9", 50), [Action::Addresses(Holding::Released)]);
    // Who is alone has nobody to wait for.
    let mut bench = Bench::active(Config { transport: Transport::Unicast { peers: BTreeSet::new(), single: true }, ..config() });
    assert_eq!(bench.event(Event::Suspend), [Action::Addresses(Holding::Left), to(State::Active, State::Initialize)]);
    assert_eq!(bench.event(Event::Suspend), []);
    // What was for the next process is for nobody after all.
    assert_eq!(bench.event(Event::Stop), [Action::Addresses(Holding::Released)]);
}

#[test]
fn a_backup_router_leaves_the_next_process_what_an_earlier_one_has_left() {
    let mut bench = Bench::new(config());
    bench.up();
    assert_eq!(bench.event(Event::Suspend), [Action::Addresses(Holding::Left), to(State::Backup, State::Initialize)]);
    // Not where another router is Active.
    let mut bench = Bench::new(config());
    bench.up();
    bench.hear("10.9.0.9", 150);
    assert_eq!(bench.event(Event::Suspend), [to(State::Backup, State::Initialize)]);
    assert_eq!(bench.router.holding(), Some(Holding::Released));
}

#[test]
fn without_others_the_addresses_are_released_at_once() {
    let mut bench = Bench::active(Config { transport: Transport::Unicast { peers: BTreeSet::new(), single: true }, ..config() });
    assert_eq!(bench.event(Event::Stop), [Action::Addresses(Holding::Released), to(State::Active, State::Initialize)]);
}

#[test]
fn a_node_that_does_not_serve_resigns_and_takes_over_where_nobody_else_does() {
    let mut bench = Bench::active(config());
    let mut expected = bench.sent(0);
    // What still comes can be served as far as that goes.
    expected.extend([Action::Addresses(Holding::Silent), to(State::Active, State::Backup)]);
    assert_eq!(bench.event(Event::NotServing), expected);
    assert_eq!(bench.wait(), Duration::from_nanos(3_996_093_750), "as long as any router would wait");
    let claimed = bench.pass_to_deadline();
    assert_eq!((&claimed[..1], bench.router.state()), (&bench.sent(1)[..], State::Active));
    // It goes on so, until somebody else is there.
    assert_eq!(bench.run(ms(10_500)).iter().filter(|(_, action)| is_send(action)).count(), 10);
    assert_eq!(bench.event(Event::Serving), []);
    bench.pass_to_deadline();
    assert_eq!(bench.hear("10.9.0.1", 99)[..1], bench.sent(100), "its own priority counts again");
}

#[test]
fn a_node_that_does_not_serve_gives_way_to_any_other() {
    let mut bench = Bench::active(config());
    bench.event(Event::NotServing);
    assert_eq!(bench.hear("10.9.0.1", 2), [Action::Addresses(Holding::Released)]);
    bench.pass(SECOND);
    bench.hear("10.9.0.1", 2);
    assert_eq!(bench.wait(), Duration::from_nanos(3_996_093_750), "nor does it preempt");
    // What it was is forgotten where it serves again: it preempts as it would.
    bench.event(Event::Serving);
    assert_eq!(bench.wait(), Duration::from_micros(3_609_375));
}

#[test]
fn one_more_reason_makes_it_resign_again() {
    let mut bench = Bench::active(config());
    bench.event(Event::NotServing);
    bench.pass_to_deadline();
    let mut expected = bench.sent(0);
    expected.extend([Action::Addresses(Holding::Silent), to(State::Active, State::Backup)]);
    assert_eq!(bench.event(Event::NotServing), expected);
}

#[test]
fn a_node_that_is_alone_keeps_the_addresses_though_it_does_not_serve() {
    let mut bench = Bench::active(Config { transport: Transport::Unicast { peers: BTreeSet::new(), single: true }, ..config() });
    assert_eq!(bench.event(Event::NotServing), []);
    assert_eq!(bench.router.state(), State::Active);
}

#[test]
fn whoever_does_not_serve_is_preempted_whatever_the_others_are_told() {
    for preempt in [Preempt::Never, Preempt::After(HOUR)] {
        let mut bench = Bench::backup(Config { preempt, ..config() });
        bench.hear("10.9.0.9", 1);
        for _ in 0..3 {
            bench.pass(SECOND);
            assert_eq!(bench.hear("10.9.0.9", 1), []);
        }
        assert_eq!(bench.wait(), Duration::from_micros(609_375), "{preempt:?}");
        bench.pass_to_deadline();
        assert_eq!(bench.router.state(), State::Active);
        // One of the same kind does not.
        let mut bench = Bench::backup(Config { preempt, ..config() });
        bench.event(Event::NotServing);
        bench.pass(SECOND);
        bench.hear("10.9.0.9", 1);
        assert_eq!(bench.wait(), Duration::from_nanos(3_996_093_750));
    }
}

#[test]
fn an_interface_that_is_down_carries_no_farewell() {
    let mut bench = Bench::active(config());
    let actions = bench.event(Event::InterfaceDown);
    assert_eq!(actions, [Action::Addresses(Holding::Released), to(State::Active, State::Initialize)]);
    assert_eq!(bench.run(HOUR), []);
    assert_eq!(bench.event(Event::InterfaceUp), [to(State::Initialize, State::Backup)]);
}

#[test]
fn a_start_during_hand_over_waits_like_any_other_and_drops_nothing_meanwhile() {
    let mut bench = Bench::active(config());
    bench.event(Event::Stop);
    bench.pass(ms(100));
    assert_eq!(bench.event(Event::Start), [to(State::Initialize, State::Backup)]);
    assert_eq!((bench.wait(), bench.router.holding()), (Duration::from_micros(3_609_375), Some(Holding::Silent)));
    bench.pass_to_deadline();
    assert_eq!(bench.router.holding(), Some(Holding::Held));
}

#[test]
fn what_an_earlier_process_has_left_serves_until_somebody_is_active() {
    let mut bench = Bench::new(config());
    assert_eq!(bench.up(), [Action::Addresses(Holding::Silent), to(State::Initialize, State::Backup)]);
    bench.pass(SECOND);
    assert_eq!(bench.hear("10.9.0.9", 0), [], "one that resigns is not");
    assert_eq!(bench.hear("10.9.0.9", 50), [Action::Addresses(Holding::Released)], "one that is to be preempted is, too");
    assert_eq!(bench.hear("10.9.0.9", 50), []);
    // Without another one it never stopped serving.
    let mut bench = Bench::new(config());
    bench.up();
    assert_eq!(bench.pass_to_deadline()[1..3], [Action::Addresses(Holding::Held), Action::Announce]);
    // A router that has not started leaves nothing either where another one is Active.
    let mut bench = Bench::new(config());
    assert_eq!(bench.hear("10.9.0.9", 50), [Action::Addresses(Holding::Released)]);
    assert_eq!(bench.up(), [to(State::Initialize, State::Backup)]);
}

#[test]
fn whatever_comes_first_both_are_needed() {
    for order in [[Event::Start, Event::InterfaceUp], [Event::InterfaceUp, Event::Start]] {
        let mut bench = Bench::new(config());
        for (count, event) in order.into_iter().enumerate() {
            assert_eq!(bench.router.hindrances().count(), 2 - count);
            assert_eq!(bench.router.state(), State::Initialize);
            bench.event(event);
        }
        assert_eq!(bench.router.state(), State::Backup);
    }
}
