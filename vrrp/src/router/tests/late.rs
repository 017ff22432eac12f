// SPDX-License-Identifier: Apache-2.0
//! A process that was suspended, and others that took its place meanwhile.

use super::*;

/// 0.1 s.
fn fast() -> Config {
    Config { interval: interval(10), ..config() }
}

#[test]
fn a_backup_router_that_was_suspended_reads_first_what_was_said() {
    let mut bench = Bench::backup(fast());
    bench.hear("10.9.0.9", 200);
    assert_eq!(bench.pass(Duration::from_secs(2)), []);
    assert_eq!(bench.router.state(), State::Backup);
    for _ in 0..19 {
        bench.hear("10.9.0.9", 200);
    }
    assert_eq!(bench.wait(), Duration::from_nanos(360_937_500));
}

#[test]
fn a_backup_router_that_was_suspended_claims_when_nothing_was_said() {
    let mut bench = Bench::backup(fast());
    bench.pass(Duration::from_secs(2));
    assert_eq!(bench.wait(), Duration::from_nanos(360_937_500));
    bench.pass_to_deadline();
    assert_eq!(bench.router.state(), State::Active);
}

#[test]
fn a_backup_router_on_a_slow_machine_claims_even_so() {
    let mut bench = Bench::backup(fast());
    // Each tick is late.
    bench.pass(Duration::from_secs(1));
    bench.pass(Duration::from_secs(1));
    assert_eq!(bench.router.state(), State::Active);
    // One that has heard something since is patient again.
    let mut bench = Bench::backup(fast());
    bench.pass(Duration::from_secs(1));
    bench.hear("10.9.0.9", 200);
    bench.pass(Duration::from_secs(1));
    assert_eq!(bench.router.state(), State::Backup);
}

#[test]
fn a_tick_that_is_a_little_late_counts() {
    let mut bench = Bench::backup(fast());
    bench.pass(Duration::from_nanos(360_937_500) + ms(100));
    assert_eq!(bench.router.state(), State::Active);
}

#[test]
fn an_active_router_that_was_suspended_speaks_up_once_and_claims_caches_only_later() {
    let mut bench = Bench::active(Config { announcing: Announcing { times: 1, ..config().announcing }, ..fast() });
    bench.pass(ms(50));
    assert_eq!(bench.pass(Duration::from_secs(2)), bench.sent(100));
    // Alone, it is as before an interval later.
    let done = bench.run(ms(100));
    assert_eq!(when(&done, is_send), [ms(100)]);
    assert_eq!(when(&done, |action| *action == Action::Announce), [ms(100)]);
}

#[test]
fn an_active_router_that_was_suspended_gives_way_to_the_one_that_followed() {
    let mut bench = Bench::active(fast());
    bench.pass(Duration::from_secs(2));
    let actions = bench.hear("10.9.0.9", 100);
    assert_eq!(actions, [Action::Addresses(Holding::Released), to(State::Active, State::Backup)]);
    // Where what was said meanwhile is read first, without a word.
    let mut bench = Bench::active(fast());
    bench.now += Duration::from_secs(2);
    let Event::Received(datagram) = from("10.9.0.9", &advertisement(&fast(), 100)) else { unreachable!() };
    let actions = bench.router.handle(bench.now, Event::Received(datagram));
    assert_eq!(actions, [Action::Addresses(Holding::Released), to(State::Active, State::Backup)]);
}

#[test]
fn a_time_before_the_last_one_does_no_harm() {
    let mut bench = Bench::active(fast());
    bench.now -= Duration::from_secs(1);
    assert_eq!(bench.event(Event::Tick), []);
    bench.hear("10.9.0.1", 50);
    bench.hear("10.9.0.9", 200);
    bench.event(Event::Stop);
    bench.event(Event::Start);
}
