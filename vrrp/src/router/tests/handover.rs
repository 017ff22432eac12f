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
fn without_others_the_addresses_are_released_at_once() {
    let mut bench = Bench::active(Config { transport: Transport::Unicast { peers: BTreeSet::new(), single: true }, ..config() });
    assert_eq!(bench.event(Event::Stop), [Action::Addresses(Holding::Released), to(State::Active, State::Initialize)]);
}

#[test]
fn a_node_that_does_not_serve_has_the_addresses_no_longer() {
    let mut bench = Bench::active(config());
    let mut expected = bench.sent(0);
    expected.extend([Action::Addresses(Holding::Released), to(State::Active, State::Initialize)]);
    assert_eq!(bench.event(Event::NotServing), expected);
    assert_eq!(bench.router.hindrances().collect::<Vec<_>>(), [Hindrance::NotServing]);
    // And claims nothing until it serves again, and has heard that nobody else has them.
    assert_eq!(bench.run(HOUR), []);
    assert_eq!(bench.event(Event::Serving), [to(State::Initialize, State::Backup)]);
    assert_eq!(bench.wait(), Duration::from_micros(3_609_375));
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
fn whatever_comes_first_all_three_are_needed() {
    for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        let mut bench = Bench::new(config());
        for (count, index) in order.into_iter().enumerate() {
            assert_eq!(bench.router.hindrances().count(), 3 - count);
            assert_eq!(bench.router.state(), State::Initialize);
            bench.event([Event::Start, Event::Serving, Event::InterfaceUp][index].clone());
        }
        assert_eq!(bench.router.state(), State::Backup);
    }
}
