// SPDX-License-Identifier: Apache-2.0
//! A peer that has restarted before its session was known to be lost (RFC 4724 §5).

use super::*;
use crate::rib::Learnt;
use crate::wire::{Capability, GracefulRestart, Message};

fn restarting(notification: bool) -> PeerConfig {
    let graceful_restart = Some(RestartConfig { restart_time: 60, notification, ..RestartConfig::default() });
    PeerConfig { graceful_restart, import: Some(Import::default()), ..config() }
}

/// The OPEN of the peer, before or after its restart.
fn open_of_peer(restarting_now: bool) -> Open {
    let config = restarting(true);
    let graceful_restart = config.graceful_restart.map(|restart| RestartConfig { restarting: restarting_now, ..restart });
    Open { identifier: peer_open().identifier, ..PeerConfig { graceful_restart, ..config }.open() }
}

/// A session on a connection of this role, with a route each way.
fn established(role: Role, config: PeerConfig, open: &Open) -> Bench {
    let mut bench = Bench::new(config);
    bench.event(Event::Start);
    bench.establish(role, open);
    bench.event(Event::Routes(rib(&["10.0.0.1"])));
    bench.receive(role, update());
    bench
}

fn learned(actions: &[Action]) -> Vec<Learnt> {
    let all = actions.iter().filter_map(|action| if let Action::Learned(learnt) = action { Some(learnt) } else { None });
    all.flatten().cloned().collect()
}

#[test]
fn rfc4724_section_5_a_new_connection_takes_the_place_of_the_session_that_the_peer_has_lost() {
    for role in [Role::Active, Role::Passive] {
        let mut bench = established(role, restarting(true), &open_of_peer(false));
        bench.now += Duration::from_secs(2);
        assert!(bench.peer.accepts());
        let mut actions = bench.connected(Role::Passive);
        actions.extend(bench.receive(Role::Passive, open_of_peer(true).encode()));
        assert_eq!(notified(&actions), None, "no NOTIFICATION to a session that is not there");
        assert_eq!(down(&actions), Some(&DownReason::ConnectionClosed));
        assert_eq!(learned(&actions), [], "the routes stay");
        assert_eq!(actions.contains(&Action::Abort { role: Role::Active }), role == Role::Active, "of its own role the driver replaces it");
        assert_eq!(bench.peer.stale_until(), Some(bench.now + Duration::from_secs(69)), "the peer may hold ours");
        bench.keepalive(Role::Passive);
        assert_eq!((bench.peer.state(), bench.peer.counters().established), (State::Established, 2));
        assert_eq!(bench.peer.established_since(), Some(bench.now));
        bench.receive(Role::Passive, update());
        let end = Message::Update(crate::wire::Update::end_of_rib(Family::Ipv4Unicast)).encode(bench.peer.negotiated().unwrap()).unwrap();
        assert_eq!(learned(&bench.receive(Role::Passive, end)), [], "told again");
    }
}

#[test]
fn rfc4724_section_5_a_session_of_a_peer_without_the_capability_is_kept() {
    let none = GracefulRestart { restart_time: 60, ..GracefulRestart::default() };
    let helper_only = Open { capabilities: vec![Capability::GracefulRestart(none)], ..peer_open() };
    for (config, open) in [(restarting(true), peer_open()), (config(), open_of_peer(false)), (restarting(true), helper_only)] {
        let mut bench = established(Role::Active, config.clone(), &open);
        bench.connected(Role::Passive);
        let actions = bench.receive(Role::Passive, open.encode());
        assert_eq!(notified(&actions), Some((6, 7)));
        assert_eq!((bench.peer.state(), bench.peer.counters().established), (State::Established, 1));
        let bench = established(Role::Passive, config, &open);
        assert!(!bench.peer.accepts());
    }
}

#[test]
fn rfc4724_section_5_a_second_connection_that_says_nothing_sensible_does_not_touch_the_session() {
    let mut bench = established(Role::Active, restarting(true), &open_of_peer(false));
    bench.connected(Role::Passive);
    let actions = bench.receive(Role::Passive, Open { asn: asn(65002), ..open_of_peer(true) }.encode());
    assert_eq!(notified(&actions), Some((2, 2)));
    bench.connected(Role::Passive);
    bench.event(Event::Closed { role: Role::Passive });
    assert_eq!((bench.peer.state(), bench.peer.counters().established), (State::Established, 1));
}

#[test]
fn rfc4724_section_5_a_peer_that_goes_again_before_it_is_back_is_dialled() {
    let mut bench = established(Role::Passive, restarting(true), &open_of_peer(false));
    bench.connected(Role::Passive);
    assert_eq!(bench.peer.state(), State::OpenSent);
    bench.event(Event::Closed { role: Role::Passive });
    assert_eq!(bench.peer.state(), State::Active);
    assert!(bench.peer.accepts());
    let restart_time = bench.now + Duration::from_secs(60);
    let mut gone = Vec::new();
    while bench.now < restart_time {
        gone = learned(&bench.pass_to_deadline());
    }
    assert_eq!(gone, [(host("10.9.0.0").into(), None)], "the time runs from the loss on");
}
