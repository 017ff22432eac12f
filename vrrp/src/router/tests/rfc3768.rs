// SPDX-License-Identifier: Apache-2.0
//! Where version 2 differs (RFC 3768).

use super::*;

fn version_2() -> Config {
    Config { version: Version::V2, interval: interval(200), ..config() }
}

#[test]
fn section_6_1_skew_time_does_not_depend_on_the_interval() {
    assert_eq!(Bench::backup(version_2()).wait(), Duration::from_micros(6_609_375));
}

#[test]
fn section_7_1_another_interval_is_discarded() {
    let mut bench = Bench::backup(version_2());
    bench.pass(SECOND);
    let other = Advertisement { interval: interval(100), ..advertisement(&version_2(), 200) };
    let reason = Discard::Interval { received: interval(100), expected: interval(200) };
    assert_eq!(bench.event(from("10.9.0.9", &other)), [Action::Discarded { source: ip("10.9.0.9"), reason }]);
    assert_eq!(bench.wait(), Duration::from_micros(5_609_375));
    assert_eq!(bench.router.counters().discarded.interval, 1);
}

#[test]
fn section_6_4_a_pair_hands_over() {
    let mut bench = Bench::active(version_2());
    let actions = bench.hear("10.9.0.9", 150);
    assert_eq!(actions, [Action::Addresses(Holding::Released), to(State::Active, State::Backup)]);
    bench.hear("10.9.0.9", 0);
    assert_eq!(bench.wait(), Duration::from_micros(609_375));
    bench.pass_to_deadline();
    assert_eq!(bench.router.state(), State::Active);
}

#[test]
fn intervals_that_are_not_whole_seconds_are_refused() {
    let config = Config { interval: interval(40), ..version_2() };
    assert_eq!(config.check(), Err(ConfigError::Interval { interval: interval(40), version: Version::V2 }));
    assert_eq!(
        config.check().unwrap_err().to_string(),
        "an interval of 400ms cannot be told in version 2: expected whole seconds, 1s to 255s"
    );
}
