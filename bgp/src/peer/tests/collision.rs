// SPDX-License-Identifier: Apache-2.0
//! RFC 4271 §6.8: two connections at once.

use super::*;

fn loser(role: Role) -> [Action; 2] {
    [send(role, Notification::cease(Cease::ConnectionCollisionResolution).encode()), Action::Close { role }]
}

/// Both sides have dialled; no OPEN has come yet.
fn both_connected(config: PeerConfig, first: Role) -> Bench {
    let mut bench = Bench::new(config);
    bench.event(Event::Start);
    for role in [first, first.other()] {
        let actions = bench.connected(role);
        assert!(matches!(actions[0], Action::Send { .. }), "{actions:?}");
    }
    bench
}

/// All orders of TCP and of OPEN, in which `winner` must be left.
fn resolved(config: &PeerConfig, open: &Open, winner: Role) {
    for first_up in Role::BOTH {
        for first_open in Role::BOTH {
            let mut bench = both_connected(config.clone(), first_up);
            let first = bench.receive(first_open, open.encode());
            assert_eq!(first, [keepalive(first_open), to(State::OpenSent, State::OpenConfirm)]);
            let mut expected = loser(winner.other()).to_vec();
            if first_open != winner {
                expected.push(keepalive(winner));
            }
            assert_eq!(bench.receive(first_open.other(), open.encode()), expected, "{first_up:?} {first_open:?}");
            assert_eq!(bench.keepalive(winner.other()), [], "the closed one is not listened to");
            assert_eq!(bench.keepalive(winner), [to(State::OpenConfirm, State::Established)]);
            assert_eq!(bench.peer.last_error(), None, "no attempt failed");
        }
    }
}

fn with_identifier(identifier: u32) -> Open {
    Open { identifier: BgpIdentifier::new(identifier).unwrap(), ..peer_open() }
}

#[test]
fn rfc4271_section_6_8_the_connection_of_the_higher_identifier_is_left() {
    resolved(&config(), &with_identifier(0x0a00_0009), Role::Passive);
    resolved(&config(), &with_identifier(0x0a00_0001), Role::Active);
    // Compared as unsigned numbers.
    resolved(&config(), &with_identifier(0xf000_0001), Role::Passive);
}

#[test]
fn rfc6286_section_2_3_the_higher_as_decides_where_identifiers_are_equal() {
    for (remote, winner) in [(65000, Role::Active), (65002, Role::Passive)] {
        let config = PeerConfig { remote_asn: asn(remote), ..config() };
        let open = Open { asn: asn(remote), identifier: config.identifier, ..peer_open() };
        resolved(&config, &open, winner);
    }
}

#[test]
fn rfc4271_section_6_8_a_session_that_is_up_is_kept() {
    for (identifier, session) in [(0x0a00_0009, Role::Active), (0x0a00_0001, Role::Active), (0x0a00_0009, Role::Passive)] {
        let open = with_identifier(identifier);
        let mut bench = Bench::connecting();
        bench.establish(session, &open);
        if session == Role::Active {
            let expected = [send(Role::Passive, config().open().encode()), keepalive(Role::Active)];
            assert_eq!(bench.connected(Role::Passive), expected, "and asked for a sign of life");
            assert_eq!(bench.receive(Role::Passive, open.encode()), loser(Role::Passive));
            assert_eq!(bench.connected(Role::Passive).len(), 1, "and again, with no KEEPALIVE more than once a second");
        } else {
            assert_eq!(bench.connected(Role::Active), [Action::Abort { role: Role::Active }], "it is not dialled any more");
        }
        assert_eq!(bench.peer.state(), State::Established);
    }
}

#[test]
fn rfc4271_section_6_8_a_session_that_comes_up_ends_the_other_connection() {
    let mut bench = both_connected(config(), Role::Active);
    bench.receive(Role::Active, peer_open().encode());
    let mut expected = loser(Role::Passive).to_vec();
    expected.push(to(State::OpenConfirm, State::Established));
    assert_eq!(bench.keepalive(Role::Active), expected);
}

#[test]
fn rfc4271_section_6_8_a_dial_under_way_is_given_up_once_the_peer_is_known() {
    let mut bench = Bench::connecting();
    bench.connected(Role::Passive);
    let expected = [Action::Abort { role: Role::Active }, keepalive(Role::Passive), to(State::OpenSent, State::OpenConfirm)];
    assert_eq!(bench.receive(Role::Passive, peer_open().encode()), expected);
    assert_eq!(bench.connected(Role::Active), [Action::Abort { role: Role::Active }]);
    assert_eq!(bench.keepalive(Role::Passive), [to(State::OpenConfirm, State::Established)]);
}

#[test]
fn a_connection_that_says_nothing_does_not_keep_us_from_dialling() {
    let mut bench = Bench::connecting();
    bench.connected(Role::Passive);
    assert_eq!(bench.event(Event::ConnectFailed { role: Role::Active }), [], "the other connection may still become the session");
    assert_eq!(bench.pass_to_deadline(), [Action::Connect]);
    assert_eq!(bench.pass_to_deadline(), [Action::Abort { role: Role::Active }, Action::Connect]);
    assert_eq!(bench.peer.state(), State::OpenSent);
    bench.establish(Role::Active, &peer_open());
}

#[test]
fn a_peer_that_dials_again_has_given_up_its_first_dial() {
    let mut bench = Bench::connecting();
    assert!(bench.peer.accepts());
    bench.connected(Role::Passive);
    bench.receive(Role::Passive, peer_open().encode().slice(..20));
    assert!(bench.peer.accepts());
    assert_eq!(bench.connected(Role::Passive), [send(Role::Passive, config().open().encode())]);
    assert_eq!(bench.receive(Role::Passive, peer_open().encode()).len(), 3, "nothing is left of the first");
    assert!(!bench.peer.accepts());
    assert_eq!(bench.connected(Role::Passive), [], "one that has sent its OPEN is kept");
    bench.keepalive(Role::Passive);
    assert!(!bench.peer.accepts());
    bench.event(Event::Closed { role: Role::Passive });
    assert!(!bench.peer.accepts(), "resting");
}

#[test]
fn rfc4271_section_6_8_a_session_whose_peer_dials_again_is_asked_for_a_sign_of_life_and_kept_where_it_gives_one() {
    for confirmed in [false, true] {
        let mut bench = Bench::connecting();
        bench.connected(Role::Passive);
        bench.receive(Role::Passive, peer_open().encode());
        if confirmed {
            bench.keepalive(Role::Passive);
        }
        let state = bench.peer.state();
        assert!(!bench.peer.accepts() && !bench.peer.is_challenged());
        assert_eq!(bench.event(Event::Redialled), [keepalive(Role::Passive)]);
        assert!(bench.peer.is_challenged());
        assert_eq!(bench.event(Event::Redialled), [], "once a second is enough");
        assert_eq!(bench.pass(Duration::from_millis(999)), []);
        assert!(bench.peer.is_challenged());
        bench.pass(Duration::from_millis(1));
        assert!(!bench.peer.is_challenged(), "the new connection is refused");
        assert_eq!((bench.peer.state(), bench.peer.accepts()), (state, false));
        assert_eq!(bench.event(Event::Redialled)[0], keepalive(Role::Passive), "and again");
    }
}

#[test]
fn rfc4271_section_6_8_a_session_that_turns_out_to_be_lost_makes_room_for_the_new_connection_at_once() {
    let mut bench = Bench::connecting();
    bench.establish(Role::Passive, &peer_open());
    bench.event(Event::Redialled);
    let lost = [Action::Abort { role: Role::Passive }, Action::Down(DownReason::ConnectionClosed), to(State::Established, State::Active)];
    assert_eq!(bench.event(Event::Closed { role: Role::Passive }), lost);
    assert!(bench.peer.accepts() && !bench.peer.is_challenged(), "no rest");
    bench.establish(Role::Passive, &peer_open());
}

#[test]
fn a_challenged_session_that_ends_by_an_error_rests_all_the_same() {
    let mut bench = Bench::connecting();
    bench.establish(Role::Passive, &peer_open());
    bench.event(Event::Redialled);
    bench.receive(Role::Passive, peer_open().encode());
    assert_eq!((bench.peer.state(), bench.peer.accepts(), bench.peer.is_challenged()), (State::Idle, false, false));
    for event in [Event::Redialled, Event::Stop(Stop::Deconfigured)] {
        assert_eq!(bench.event(event), []);
        assert!(!bench.peer.is_challenged(), "there is nothing to challenge");
    }
}

#[test]
fn the_loss_of_one_connection_leaves_the_other_alone() {
    for cease in [false, true] {
        for phase in 0..3 {
            let mut bench = both_connected(config(), Role::Active);
            if phase > 0 {
                bench.receive(Role::Active, peer_open().encode());
            }
            let expected = if phase == 0 { vec![] } else { vec![to(State::OpenConfirm, State::OpenSent)] };
            let mut actions = if cease {
                bench.receive(Role::Active, Notification::cease(Cease::ConnectionCollisionResolution).encode())
            } else {
                bench.event(Event::Closed { role: Role::Active })
            };
            let end = actions.remove(0);
            assert_eq!(end, if cease { Action::Close { role: Role::Active } } else { Action::Abort { role: Role::Active } });
            assert_eq!(actions, expected);
            assert!(bench.peer.deadline().unwrap() < bench.now + Duration::from_secs(6), "the peer will be dialled again");
            bench.receive(Role::Passive, peer_open().encode());
            bench.keepalive(Role::Passive);
            assert_eq!(bench.peer.state(), State::Established);
        }
    }
}

#[test]
fn a_bad_open_on_a_second_connection_does_not_touch_the_session() {
    for established in [false, true] {
        let mut bench = Bench::connecting();
        bench.connected(Role::Active);
        bench.receive(Role::Active, peer_open().encode());
        if established {
            bench.keepalive(Role::Active);
        }
        let state = bench.peer.state();
        bench.connected(Role::Passive);
        let actions = bench.receive(Role::Passive, Open { asn: asn(65002), ..peer_open() }.encode());
        assert_eq!(actions, [send(Role::Passive, Notification::bad_peer_as().encode()), Action::Close { role: Role::Passive }]);
        assert_eq!(bench.peer.state(), state);
        assert_eq!(bench.peer.last_error(), None);
    }
}

#[test]
fn a_bad_open_ends_both_attempts_before_the_rest() {
    let mut bench = both_connected(config(), Role::Active);
    let actions = bench.receive(Role::Active, Open { asn: asn(65002), ..peer_open() }.encode());
    let reason = DownReason::Sent {
        notification: Notification::bad_peer_as(),
        reason: "the peer is in AS 65002, not in 65001 as configured".into(),
    };
    let expected = [
        send(Role::Active, Notification::bad_peer_as().encode()),
        Action::Close { role: Role::Active },
        send(Role::Passive, Notification::cease(Cease::ConnectionRejected).encode()),
        Action::Close { role: Role::Passive },
        Action::Down(reason),
        to(State::OpenSent, State::Idle),
    ];
    assert_eq!(actions, expected);
}

#[test]
fn the_loss_of_a_session_is_reported_though_another_connection_lives() {
    let mut bench = Bench::established();
    assert_eq!(bench.connected(Role::Passive)[1], keepalive(Role::Active), "asked for a sign of life");
    let actions = bench.event(Event::Closed { role: Role::Active });
    let expected =
        [Action::Abort { role: Role::Active }, Action::Down(DownReason::ConnectionClosed), to(State::Established, State::OpenSent)];
    assert_eq!(actions, expected);
    assert_eq!((bench.peer.established_since(), bench.peer.adj_rib_out().is_some()), (None, false));
}

#[test]
fn rfc4486_section_4_stop_tells_every_connection() {
    let mut bench = both_connected(config(), Role::Active);
    let cease = Notification::cease(Cease::PeerDeconfigured);
    let actions = bench.event(Event::Stop(Stop::Deconfigured));
    let expected = [
        send(Role::Active, cease.encode()),
        Action::Close { role: Role::Active },
        send(Role::Passive, cease.encode()),
        Action::Close { role: Role::Passive },
        Action::Down(DownReason::Sent { notification: cease, reason: "as the operator decided".into() }),
        to(State::OpenSent, State::Idle),
    ];
    assert_eq!(actions, expected);
    assert_eq!(bench.peer.deadline(), None);
}
