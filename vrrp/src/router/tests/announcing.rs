// SPDX-License-Identifier: Apache-2.0
//! When the neighbours are told where the addresses are.

use super::*;

fn announcing(times: u32, spacing: Duration, refresh: Option<Duration>) -> Config {
    Config { announcing: Announcing { times, spacing, refresh }, ..config() }
}

fn announced(bench: &mut Bench, time: Duration) -> Vec<Duration> {
    when(&bench.run(time), |action| *action == Action::Announce)
}

#[test]
fn they_are_told_as_often_as_said_and_not_at_advertisements() {
    let mut bench = Bench::active(announcing(4, ms(300), None));
    assert_eq!(announced(&mut bench, HOUR), [ms(300), ms(600), ms(900)], "the first time was on becoming Active");
}

#[test]
fn they_are_told_again_at_the_refresh_interval_and_that_may_be_long() {
    let refresh = Duration::from_secs(14_400);
    let mut bench = Bench::active(Config { interval: interval(300), ..announcing(2, SECOND, Some(refresh)) });
    assert_eq!(announced(&mut bench, 3 * refresh), [SECOND, SECOND + refresh, SECOND + 2 * refresh]);
    let mut bench = Bench::active(Config { interval: interval(300), ..announcing(1, SECOND, Some(SECOND)) });
    assert_eq!(announced(&mut bench, Duration::from_secs(5)), [1, 2, 3, 4, 5].map(Duration::from_secs));
}

#[test]
fn nothing_is_told_once_another_router_is_active() {
    let mut bench = Bench::active(announcing(9, ms(300), Some(SECOND)));
    bench.hear("10.9.0.9", 200);
    for _ in 0..100 {
        bench.pass(SECOND);
        bench.hear("10.9.0.9", 200);
    }
    assert_eq!(bench.router.timers().announce, None);
    assert_eq!((bench.router.state(), bench.router.holding()), (State::Backup, Some(Holding::Released)));
}

#[test]
fn after_contention_they_are_told_after_the_last_that_was_heard_of_it() {
    let mut bench = Bench::active(Config { interval: interval(1), ..announcing(2, SECOND, None) });
    bench.run(Duration::from_secs(10));
    let mut told = vec![];
    for _ in 0..100 {
        let start = bench.now;
        told.extend(bench.hear("10.9.0.1", 50).contains(&Action::Announce).then_some(start));
        told.extend(announced(&mut bench, ms(10)).into_iter().map(|at| start + at));
    }
    let last_heard = bench.now - ms(10);
    assert!((10..=11).contains(&told.len()), "each 10 ms would be too much: {}", told.len());
    let start = bench.now;
    told.extend(announced(&mut bench, HOUR).into_iter().map(|at| start + at));
    let after: Vec<_> = told.into_iter().filter(|at| *at >= last_heard).collect();
    assert!(after.len() >= 2 && after[0] - last_heard <= ms(100), "{after:?}");
}

#[test]
fn another_router_that_resigns_had_told_them_otherwise() {
    let mut bench = Bench::active(config());
    bench.run(Duration::from_secs(10));
    let mut expected = bench.sent(100);
    expected.push(Action::Announce);
    assert_eq!(bench.hear("10.9.0.1", 0), expected);
}

#[test]
fn other_addresses_are_told_at_once() {
    let mut bench = Bench::active(config());
    bench.run(Duration::from_secs(10));
    let actions = bench.configure(|config| config.addresses = addresses(&["10.9.0.100", "10.9.0.101"]));
    assert_eq!(actions, [Action::Addresses(Holding::Held), Action::Announce]);
    assert_eq!(bench.router.addresses().len(), 2);
    // The same again changes nothing.
    assert_eq!(bench.configure(|_| {}), []);
    // Without being Active there is nobody to tell.
    let mut bench = Bench::backup(config());
    assert_eq!(bench.configure(|config| config.addresses = addresses(&["10.9.0.101"])), []);
}
