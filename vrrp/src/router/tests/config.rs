// SPDX-License-Identifier: Apache-2.0
//! What cannot be configured, and what a change leads to.

use super::*;
use crate::identity::Family;

fn error(change: impl FnOnce(&mut Config)) -> ConfigError {
    let mut config = config();
    change(&mut config);
    let error = config.check().unwrap_err();
    assert_eq!(VirtualRouter::new(config).unwrap_err(), error);
    error
}

#[test]
fn what_contradicts_itself_or_the_standard_is_refused() {
    assert_eq!(error(|config| config.primary = ip("fe80::1")), ConfigError::Family { address: ip("fe80::1"), family: Family::Ipv4 });
    let with_ipv6 = unicast(&["10.9.0.1", "fe80::1"]);
    assert_eq!(error(|config| config.transport = with_ipv6), ConfigError::Family { address: ip("fe80::1"), family: Family::Ipv4 });
    assert_eq!(error(|config| config.transport = unicast(&["10.9.0.2"])), ConfigError::OwnPeer(ip("10.9.0.2")));
    assert_eq!(error(|config| config.addresses = addresses(&["10.9.0.2"])), ConfigError::VirtualPrimary(ip("10.9.0.2")));
    let long = interval(4096);
    assert_eq!(error(|config| config.interval = long), ConfigError::Interval { interval: long, version: Version::V3 });
    assert_eq!(error(|config| config.announcing.times = 0), ConfigError::NoAnnouncement);
    let out_of_range = |what, time, least| ConfigError::Time { what, time, least };
    let spacing = out_of_range("spacing of announcements", ms(9), ms(10));
    assert_eq!(spacing.to_string(), "a spacing of announcements of 9ms: expected 10ms to 86400s");
    assert_eq!(error(|config| config.announcing.spacing = ms(9)), spacing);
    for time in [Duration::ZERO, Duration::MAX] {
        let refresh = out_of_range("refresh interval of announcements", time, ms(10));
        assert_eq!(error(|config| config.announcing.refresh = Some(time)), refresh);
    }
    let delay = out_of_range("delay of preemption", Duration::MAX, Duration::ZERO);
    assert_eq!(error(|config| config.preempt = Preempt::After(Duration::MAX)), delay);
    let ipv6 = |config: &mut Config| (config.addresses, config.primary) = (addresses(&["fe80::64"]), ip("fe80::1"));
    let version_2 = error(|config| {
        ipv6(config);
        config.version = Version::V2;
    });
    assert_eq!(version_2, ConfigError::Version2Ipv6);
    let global = error(|config| {
        ipv6(config);
        config.primary = ip("2001:db8::1");
    });
    assert_eq!(global, ConfigError::NotLinkLocal(ip("2001:db8::1")));
}

#[test]
fn the_owner_advertises_from_its_address_and_unicast_ipv6_from_any() {
    let owner = Config { priority: Priority::OWNER, addresses: addresses(&["10.9.0.2"]), ..config() };
    assert_eq!(owner.check(), Ok(()));
    let ipv6 = Config::new(Vrid::new(1).unwrap(), ip("2001:db8::1"), addresses(&["2001:db8::64"]));
    assert_eq!(Config { transport: unicast(&["2001:db8::2"]), ..ipv6 }.check(), Ok(()));
}

#[test]
fn a_change_that_is_refused_changes_nothing() {
    let mut bench = Bench::active(config());
    let before = bench.router.config().clone();
    let refused = [
        (Config { vrid: Vrid::new(52).unwrap(), ..config() }, ConfigError::OtherRouter),
        (Config { version: Version::V2, ..config() }, ConfigError::OtherRouter),
        (Config::new(Vrid::new(51).unwrap(), ip("fe80::2"), addresses(&["fe80::64"])), ConfigError::OtherRouter),
        (Config { primary: ip("10.9.0.100"), ..config() }, ConfigError::VirtualPrimary(ip("10.9.0.100"))),
    ];
    for (config, error) in refused {
        assert_eq!(bench.router.configure(bench.now, config), Err(error));
        assert_eq!((bench.router.config(), bench.router.state()), (&before, State::Active));
    }
}

#[test]
fn a_shorter_interval_holds_at_once() {
    let mut bench = Bench::active(config());
    bench.configure(|config| config.interval = interval(10));
    assert_eq!(bench.wait(), ms(100));
    assert_eq!(bench.pass_to_deadline(), bench.sent(100));
    assert_eq!(bench.wait(), ms(100));
}

#[test]
fn without_known_peers_it_waits_unless_it_is_single() {
    let mut bench = Bench::new(Config { transport: unicast(&[]), ..config() });
    assert_eq!(bench.up(), []);
    assert_eq!(bench.router.hindrances().collect::<Vec<_>>(), [Hindrance::NoPeers]);
    let actions = bench.configure(|config| config.transport = unicast(&["10.9.0.1"]));
    assert_eq!(actions, [Action::Addresses(Holding::Silent), to(State::Initialize, State::Backup)]);

    let single = Config { transport: Transport::Unicast { peers: BTreeSet::new(), single: true }, ..config() };
    let mut bench = Bench::active(single);
    assert_eq!(when(&bench.run(HOUR), is_send), [], "there is nobody to send to");
}

#[test]
fn peers_that_are_no_longer_known_do_not_stop_a_router_that_runs() {
    let mut bench = Bench::active(Config { transport: unicast(&["10.9.0.1"]), ..config() });
    assert_eq!(bench.configure(|config| config.transport = unicast(&[])), []);
    assert_eq!(bench.router.state(), State::Active);
    // But it does not start again without.
    bench.event(Event::InterfaceDown);
    bench.configure(|config| config.priority = priority(99));
    bench.event(Event::InterfaceUp);
    assert_eq!(bench.router.hindrances().collect::<Vec<_>>(), [Hindrance::NoPeers]);
}
