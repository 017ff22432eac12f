// SPDX-License-Identifier: Apache-2.0
//! The sections of RFC 9568 about the protocol state machine.

use super::*;

fn with(change: impl FnOnce(&mut Config)) -> Config {
    let mut config = config();
    change(&mut config);
    config
}

/// How long a router of this priority and interval waits for the first advertisement.
fn active_down_interval(number: u8, centiseconds: u16) -> Duration {
    let config = with(|config| (config.priority, config.interval) = (priority(number), interval(centiseconds)));
    Bench::backup(config).wait()
}

#[test]
fn section_6_1_active_down_interval_is_three_intervals_and_skew_time() {
    assert_eq!(active_down_interval(100, 100), Duration::from_micros(3_609_375));
    assert_eq!(active_down_interval(254, 1), Duration::from_nanos(30_078_125), "not rounded to centiseconds");
    assert_eq!(active_down_interval(1, 1), Duration::from_nanos(39_960_937));
    assert_eq!(active_down_interval(1, 4095), Duration::from_nanos(163_640_039_062));
}

#[test]
fn section_6_1_priorities_next_to_each_other_wait_differently_at_every_interval() {
    for centiseconds in [1, 2, 10, 100, 4095] {
        let waits: Vec<_> = (1..=254).map(|number| active_down_interval(number, centiseconds)).collect();
        assert!(waits.is_sorted_by(|one, next| one > next), "{centiseconds} cs");
    }
}

#[test]
fn section_6_4_1_the_owner_is_active_at_once() {
    let mut bench = Bench::new(with(|config| config.priority = Priority::OWNER));
    let actions = bench.up();
    let mut expected = bench.sent(255);
    expected.extend([Action::Addresses(Holding::Held), Action::Announce, to(State::Initialize, State::Active)]);
    assert_eq!(actions, expected);
}

#[test]
fn section_6_4_1_others_listen_first() {
    let bench = Bench::backup(with(|config| config.priority = priority(254)));
    assert_eq!(bench.router.active_adver_interval(), Some(interval(100)));
}

#[test]
fn section_6_4_2_the_interval_of_the_active_router_is_learned() {
    let mut bench = Bench::backup(config());
    let heard = Advertisement { interval: interval(10), ..advertisement(&config(), 200) };
    assert_eq!(bench.event(from("10.9.0.9", &heard)), []);
    assert_eq!(bench.router.active_adver_interval(), Some(interval(10)));
    assert_eq!(bench.wait(), Duration::from_nanos(360_937_500));
    // Once Active, it keeps to its own.
    bench.pass_to_deadline();
    assert_eq!(bench.wait(), SECOND);
}

#[test]
fn section_6_4_2_priority_0_is_followed_after_skew_time() {
    let mut bench = Bench::backup(config());
    bench.hear("10.9.0.9", 200);
    bench.pass(ms(500));
    assert_eq!(bench.hear("10.9.0.9", 0), []);
    assert_eq!(bench.wait(), Duration::from_micros(609_375));
    bench.pass_to_deadline();
    assert_eq!(bench.router.state(), State::Active);
}

#[test]
fn section_6_4_2_a_lower_priority_does_not_reset_the_timer_of_one_that_preempts() {
    let mut bench = Bench::backup(config());
    let lapses = bench.router.deadline();
    for _ in 0..3 {
        bench.pass(SECOND);
        assert_eq!(bench.hear("10.9.0.9", 99), []);
        assert_eq!(bench.router.deadline(), lapses);
    }
    bench.pass_to_deadline();
    assert_eq!(bench.router.state(), State::Active);
}

#[test]
fn section_6_4_2_a_lower_priority_resets_the_timer_of_one_that_does_not() {
    let mut bench = Bench::backup(with(|config| config.preempt = Preempt::Never));
    for _ in 0..100 {
        bench.pass(SECOND);
        // The lowest priority is told by whoever does not serve.
        assert_eq!(bench.hear("10.9.0.9", 2), []);
        assert_eq!(bench.wait(), Duration::from_micros(3_609_375));
    }
}

#[test]
fn section_6_1_a_router_that_does_not_preempt_stays_backup_after_an_interface_flap_and_a_restart() {
    let config = with(|config| (config.preempt, config.priority) = (Preempt::Never, priority(254)));
    let mut bench = Bench::active(config.clone());
    bench.event(Event::InterfaceDown);
    bench.pass(Duration::from_secs(30));
    bench.event(Event::InterfaceUp);
    let mut restarted = Bench::backup(config);
    for bench in [&mut bench, &mut restarted] {
        for _ in 0..10 {
            bench.hear("10.9.0.9", 100);
            bench.pass(SECOND);
            assert_eq!(bench.router.state(), State::Backup);
        }
    }
}

#[test]
fn section_6_1_the_owner_always_preempts() {
    let mut bench = Bench::backup(with(|config| config.preempt = Preempt::Never));
    bench.configure(|config| config.priority = Priority::OWNER);
    let lapses = bench.router.deadline();
    bench.pass(SECOND);
    bench.hear("10.9.0.9", 100);
    assert_eq!(bench.router.deadline(), lapses);
}

#[test]
fn section_6_4_3_the_active_router_advertises_at_its_interval_without_drift() {
    let mut bench = Bench::active(with(|config| config.interval = interval(1)));
    let times = when(&bench.run(Duration::from_secs(60)), is_send);
    assert_eq!(times.len(), 6000);
    assert_eq!(times.last(), Some(&Duration::from_secs(60)));
    // Nor where each tick comes a little late.
    let mut late = Bench::active(with(|config| config.interval = interval(1)));
    let start = late.now;
    let mut count = 0;
    while late.now < start + Duration::from_secs(60) {
        late.now = late.router.deadline().unwrap() + ms(3);
        count += late.event(Event::Tick).iter().filter(|action| is_send(action)).count();
    }
    assert_eq!(count, 6000);
}

#[test]
fn section_6_4_3_priority_0_is_answered_at_once() {
    let mut bench = Bench::active(config());
    bench.pass(ms(700));
    let actions = bench.hear("10.9.0.9", 0);
    assert_eq!(actions[..1], bench.sent(100));
    assert_eq!((bench.router.state(), bench.router.timers().adver), (State::Active, Some(bench.now + SECOND)));
}

#[test]
fn section_6_4_3_a_higher_priority_is_given_way_to_at_its_interval() {
    let mut bench = Bench::active(config());
    let heard = Advertisement { interval: interval(200), ..advertisement(&config(), 101) };
    let actions = bench.event(from("10.9.0.1", &heard));
    assert_eq!(actions, [Action::Addresses(Holding::Released), to(State::Active, State::Backup)]);
    assert_eq!(bench.wait(), Duration::from_micros(7_218_750));
}

#[test]
fn section_6_4_3_of_equal_priorities_the_higher_address_stays_active() {
    for (source, state) in
        [("10.9.0.1", State::Active), ("10.9.0.3", State::Backup), ("9.255.255.255", State::Active), ("200.0.0.1", State::Backup)]
    {
        let mut bench = Bench::active(config());
        bench.hear(source, 100);
        assert_eq!(bench.router.state(), state, "{source}");
    }
    let ipv6 = Config::new(Vrid::new(51).unwrap(), ip("fe80::2"), addresses(&["fe80::64", "2001:db8::64"]));
    for (source, state) in [("fe80::1", State::Active), ("fe80::3", State::Backup), ("fe80:0:0:1::", State::Backup)] {
        let mut bench = Bench::active(ipv6.clone());
        bench.hear(source, 100);
        assert_eq!(bench.router.state(), state, "{source}");
    }
}

#[test]
fn section_6_4_2_of_equal_priorities_the_address_does_not_matter_to_a_backup_router() {
    let mut bench = Bench::backup(config());
    for _ in 0..10 {
        bench.pass(SECOND);
        bench.hear("10.9.0.1", 100);
        assert_eq!(bench.router.state(), State::Backup);
    }
}

#[test]
fn section_6_4_3_a_lower_priority_is_told_at_once_and_so_are_the_neighbours() {
    let mut bench = Bench::active(config());
    bench.run(Duration::from_millis(2500));
    let mut expected = bench.sent(100);
    expected.push(Action::Announce);
    assert_eq!(bench.hear("10.9.0.3", 99), expected);
    // The timer of regular advertisements runs on.
    assert_eq!(bench.router.timers().adver, Some(bench.now + ms(500)));
    // It goes on while the other does not hear, but once in an interval.
    bench.pass(ms(100));
    assert_eq!(bench.hear("10.9.0.3", 99), [Action::Announce]);
    bench.pass(ms(900));
    assert!(bench.hear("10.9.0.3", 99).iter().any(is_send));
}

#[test]
fn section_6_4_3_shutdown_of_the_active_router_is_told_once_with_priority_0() {
    let mut bench = Bench::active(config());
    let actions = bench.event(Event::Stop);
    assert_eq!(actions.iter().filter(|action| is_send(action)).count(), 1);
    assert_eq!(actions[..1], bench.sent(0));
    assert_eq!(when(&bench.run(HOUR), is_send), []);
    assert_eq!((bench.router.counters().sent_priority_zero, bench.router.state()), (1, State::Initialize));
}

#[test]
fn section_6_4_2_shutdown_of_a_backup_router_is_not_told() {
    let mut bench = Bench::backup(config());
    assert_eq!(bench.event(Event::Stop), [to(State::Backup, State::Initialize)]);
    assert_eq!(bench.router.deadline(), None);
}

#[test]
fn section_6_4_3_accept_mode_is_of_the_active_router_and_of_the_owner_always() {
    assert!(!Bench::backup(config()).router.accepts());
    assert!(Bench::active(config()).router.accepts());
    let without = with(|config| config.accept = false);
    assert!(!Bench::active(without.clone()).router.accepts());
    let mut owner = Bench::new(Config { priority: Priority::OWNER, ..without });
    owner.up();
    assert!(owner.router.accepts());
}

#[test]
fn section_6_4_3_another_priority_is_in_the_next_advertisement() {
    let mut bench = Bench::active(config());
    assert_eq!(bench.configure(|config| config.priority = priority(50)), []);
    assert_eq!(bench.pass_to_deadline()[..1], bench.sent(50));
    // Before it has told that, an equal one yields to what it says now.
    bench.hear("10.9.0.1", 60);
    assert_eq!(bench.router.state(), State::Backup);
}

#[test]
fn section_6_1_another_priority_is_another_skew_time_at_once() {
    let mut bench = Bench::backup(config());
    bench.pass(SECOND);
    bench.configure(|config| config.priority = priority(200));
    assert_eq!(bench.wait(), Duration::from_micros(2_218_750));
}

#[test]
fn a_delay_of_preemption_counts_from_the_first_advertisement_of_the_lower_router() {
    let mut bench = Bench::backup(with(|config| config.preempt = Preempt::After(Duration::from_secs(30))));
    bench.pass(ms(500));
    let mut heard_for = Duration::ZERO;
    while bench.router.state() == State::Backup {
        bench.hear("10.9.0.9", 50);
        let left = bench.wait().min(SECOND);
        heard_for += left;
        bench.pass(left);
    }
    assert_eq!(heard_for, Duration::from_secs(30));
    // One that falls silent meanwhile is followed as ever.
    let mut bench = Bench::backup(with(|config| config.preempt = Preempt::After(Duration::from_secs(30))));
    bench.hear("10.9.0.9", 50);
    assert_eq!(bench.wait(), Duration::from_micros(3_609_375));
    // The count begins again after one that is not to be preempted.
    bench.pass(SECOND);
    bench.hear("10.9.0.9", 150);
    bench.pass(SECOND);
    bench.hear("10.9.0.9", 50);
    assert_eq!(bench.router.timers().preempt, Some(bench.now + Duration::from_secs(30)));
}

#[test]
fn a_priority_that_falls_below_that_of_the_active_router_preempts_it_no_longer() {
    let mut bench = Bench::backup(with(|config| config.preempt = Preempt::After(Duration::from_secs(30))));
    for _ in 0..29 {
        bench.hear("10.9.0.9", 50);
        bench.pass(SECOND);
    }
    bench.configure(|config| config.priority = priority(40));
    for _ in 0..9 {
        bench.hear("10.9.0.9", 50);
        bench.pass(SECOND);
        assert_eq!(bench.router.state(), State::Backup);
    }
}
