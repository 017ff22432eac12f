// SPDX-License-Identifier: Apache-2.0
//! When things happen: hold, keepalive, connect retry and rest.

use super::*;

const RETRY: Duration = Duration::from_secs(5);

fn with_hold_times(ours: u16, theirs: u16) -> Bench {
    let mut bench = Bench::new(PeerConfig { hold_time: seconds(ours), ..config() });
    bench.event(Event::Start);
    bench.establish(Role::Active, &Open { hold_time: seconds(theirs), ..peer_open() });
    bench
}

/// The times between KEEPALIVEs while the peer keeps the session alive.
fn keepalive_gaps(bench: &mut Bench, count: usize) -> Vec<Duration> {
    let mut gaps = Vec::new();
    while gaps.len() < count {
        let from = bench.now;
        assert_eq!(bench.pass_to_deadline(), [keepalive(Role::Active)]);
        gaps.push(bench.now - from);
        bench.keepalive(Role::Active);
    }
    gaps
}

#[test]
fn rfc4271_section_4_4_keepalives_go_out_at_a_third_of_the_hold_time_with_jitter() {
    let gaps = keepalive_gaps(&mut with_hold_times(9, 90), 100);
    assert!(gaps.iter().all(|gap| *gap >= Duration::from_millis(2250) && *gap <= Duration::from_secs(3)), "{gaps:?}");
    assert!(gaps.iter().any(|gap| *gap != gaps[0]));
}

#[test]
fn rfc4271_section_4_4_a_hold_time_of_three_seconds_means_one_keepalive_a_second() {
    assert_eq!(keepalive_gaps(&mut with_hold_times(3, 3), 20), vec![Duration::from_secs(1); 20]);
}

#[test]
fn rfc4271_section_4_2_a_hold_time_of_zero_means_no_timer_at_all() {
    for (ours, theirs) in [(0, 9), (9, 0)] {
        let mut bench = with_hold_times(ours, theirs);
        // Without it the send hold timer runs, which no hold time stops (RFC 9687).
        let everything_has_arrived = |bench: &mut Bench| bench.event(Event::Acknowledged { role: Role::Active, octets: u64::MAX });
        everything_has_arrived(&mut bench);
        assert_eq!(bench.peer.deadline(), None);
        assert_eq!(bench.pass(Duration::from_secs(1_000_000)), []);
        assert_eq!(bench.peer.counters().sent.keepalive, 1, "the one that accepts the OPEN");
        assert_eq!(bench.event(Event::Routes(rib(&["10.0.0.1"]))).len(), 1);
        everything_has_arrived(&mut bench);
        assert_eq!(bench.peer.deadline(), None);
    }
}

#[test]
fn rfc4271_section_8_2_2_the_hold_timer_is_four_minutes_in_open_sent() {
    let mut bench = Bench::connecting();
    bench.connected(Role::Active);
    assert_eq!(bench.pass(Duration::from_millis(239_999)), []);
    let actions = bench.pass(Duration::from_millis(1));
    assert_eq!(notified(&actions), Some((4, 0)));
    assert_eq!(bench.peer.state(), State::Idle);
}

#[test]
fn rfc4271_section_8_2_2_a_peer_that_falls_silent_in_open_confirm_is_dropped() {
    let mut bench = Bench::connecting();
    bench.connected(Role::Active);
    bench.receive(Role::Active, peer_open().encode());
    let opened = bench.now;
    while bench.peer.state() == State::OpenConfirm {
        let actions = bench.pass_to_deadline();
        assert!(actions == [keepalive(Role::Active)] || notified(&actions) == Some((4, 0)), "{actions:?}");
    }
    assert_eq!(bench.now - opened, Duration::from_secs(9));
    assert_eq!(bench.peer.state(), State::Idle);
}

#[test]
fn rfc4271_section_6_5_keepalive_and_update_restart_the_hold_timer_and_other_messages_do_not() {
    for (octets, restarts) in
        [(KEEPALIVE.to_vec(), true), (update(), true), (RouteRefresh::request(Family::Ipv4Unicast).encode().to_vec(), false)]
    {
        let mut bench = Bench::established();
        bench.pass(Duration::from_secs(8));
        bench.receive(Role::Active, octets);
        bench.pass(Duration::from_secs(1));
        assert_eq!(bench.peer.state() == State::Established, restarts);
    }
}

#[test]
fn octets_that_waited_while_we_were_stalled_count_before_the_timer() {
    let mut bench = Bench::established();
    bench.now += Duration::from_secs(60);
    assert_eq!(bench.event_at_last(Event::Received { role: Role::Active, bytes: Bytes::from_static(&KEEPALIVE) }), []);
    assert_eq!(bench.event_at_last(Event::Tick), [keepalive(Role::Active)]);
}

#[test]
fn rfc4271_section_8_2_2_an_update_restarts_the_keepalive_timer() {
    let mut bench = Bench::established();
    bench.pass(Duration::from_secs(2));
    bench.event(Event::Routes(rib(&["10.0.0.1"])));
    assert_eq!(bench.pass(Duration::from_secs(2)), [], "four seconds after the KEEPALIVE, two after the UPDATE");
    assert_eq!(bench.pass(Duration::from_secs(1)), [keepalive(Role::Active)]);
}

#[test]
fn rfc4271_section_8_2_2_a_peer_that_is_down_is_dialled_once_a_retry_time() {
    for answers in [true, false] {
        let mut bench = Bench::connecting();
        let start = bench.now;
        let mut dials = vec![start];
        while bench.now < start + Duration::from_secs(600) {
            if answers {
                let refused = [Action::Down(DownReason::ConnectFailed), to(State::Connect, State::Active)];
                assert_eq!(bench.event(Event::ConnectFailed { role: Role::Active }), refused);
                assert_eq!(bench.pass_to_deadline(), [Action::Connect, to(State::Active, State::Connect)]);
            } else {
                let timed_out = [Action::Abort { role: Role::Active }, Action::Down(DownReason::ConnectTimedOut), Action::Connect];
                assert_eq!(bench.pass_to_deadline(), timed_out);
            }
            dials.push(bench.now);
        }
        assert!(dials.len() > 120 && dials.len() < 162, "{}", dials.len());
        assert!(dials.windows(2).all(|pair| pair[1] - pair[0] >= RETRY * 3 / 4 && pair[1] - pair[0] <= RETRY));
    }
}

/// Time from now to the next dial, with the peer answering no dial before that.
fn rest(bench: &mut Bench) -> Duration {
    assert_eq!(bench.peer.state(), State::Idle);
    let from = bench.now;
    assert_eq!(bench.pass_to_deadline(), [Action::Connect, to(State::Idle, State::Connect)]);
    bench.now - from
}

#[test]
fn rfc4271_section_8_1_1_after_bad_opens_there_is_one_attempt_for_each_longer_rest() {
    let mut bench = Bench::connecting();
    for factor in [1, 2, 4, 8, 12, 12, 12] {
        bench.connected(Role::Active);
        let actions = bench.receive(Role::Active, Open { asn: asn(65002), ..peer_open() }.encode());
        assert!(matches!(down(&actions), Some(DownReason::Sent { .. })));
        assert_eq!(bench.connected(Role::Passive), [Action::Abort { role: Role::Passive }], "refused while resting");
        assert_eq!(bench.event(Event::Start), [], "a repeated Start does not shorten the rest");
        let rest = rest(&mut bench);
        assert!(rest >= RETRY * factor * 3 / 4 && rest <= RETRY * factor, "{rest:?} for {factor}");
    }
    assert_eq!(bench.peer.counters().established, 0);
    assert_eq!(bench.peer.counters().received.open, 7);
}

#[test]
fn rfc4271_section_8_1_1_a_shorter_retry_time_ends_a_rest_that_is_longer() {
    let timers = |seconds| Event::Timers { connect_retry: Duration::from_secs(seconds), send_hold_time: None };
    for passive in [false, true] {
        let mut bench = Bench::new(PeerConfig { connect_retry: Duration::from_secs(3600), passive, ..config() });
        bench.event(Event::Start);
        let role = if passive { Role::Passive } else { Role::Active };
        bench.connected(role);
        bench.receive(role, Open { asn: asn(65002), ..peer_open() }.encode());
        let rest = bench.peer.timers().idle_hold;
        assert!(rest.unwrap() - bench.now >= Duration::from_secs(2700));
        for same in [3600, 4000] {
            bench.event(timers(same));
            assert_eq!(bench.peer.timers().idle_hold, rest, "a longer one changes nothing");
        }
        assert_eq!(bench.event(timers(4)), []);
        assert!(bench.peer.timers().idle_hold.unwrap() - bench.now <= Duration::from_secs(4));
        bench.pass_to_deadline();
        assert_eq!(bench.peer.state(), if passive { State::Active } else { State::Connect });
    }

    // After the fifth error in a row it is twelve times as long.
    let mut bench = Bench::connecting();
    for _ in 0..4 {
        bench.connected(Role::Active);
        bench.receive(Role::Active, Notification::bad_peer_as().encode());
        bench.pass_to_deadline();
    }
    bench.connected(Role::Active);
    bench.receive(Role::Active, Notification::bad_peer_as().encode());
    let rest = bench.peer.deadline();
    assert!(rest.unwrap() - bench.now >= RETRY * 9);
    bench.event(timers(6));
    assert_eq!(bench.peer.deadline(), rest, "a longer one makes no rest shorter");
    bench.event(timers(5));
    assert!(bench.peer.deadline().unwrap() - bench.now <= Duration::from_secs(5));
    bench.event(Event::Stop(Stop::AdministrativeShutdown { communication: None }));
    bench.event(timers(1));
    assert_eq!((bench.peer.state(), bench.peer.deadline()), (State::Idle, None), "the operator has said when it ends");
}

#[test]
fn rfc4271_section_8_1_1_a_refused_open_of_ours_counts_too_and_a_stop_clears_the_count() {
    let mut bench = Bench::connecting();
    for factor in [1, 2, 4] {
        bench.connected(Role::Active);
        bench.receive(Role::Active, Notification::bad_peer_as().encode());
        assert!(rest(&mut bench) > RETRY * factor / 2);
    }
    bench.event(Event::Stop(Stop::AdministrativeReset));
    assert!(rest(&mut bench) <= Duration::from_secs(1));
    bench.connected(Role::Active);
    bench.receive(Role::Active, Notification::bad_peer_as().encode());
    assert!(rest(&mut bench) <= RETRY);
}

#[test]
fn rfc4271_section_8_1_1_a_peer_that_goes_and_comes_is_tried_within_one_retry_time() {
    let cease = Notification::cease(Cease::AdministrativeShutdown).encode();
    for _ in 0..5 {
        let mut bench = Bench::established();
        for _ in 0..6 {
            bench.receive(Role::Active, cease.clone());
            assert!(rest(&mut bench) <= RETRY, "never longer");
            bench.establish(Role::Active, &peer_open());
        }
        for _ in 0..10 {
            bench.pass_to_deadline();
            bench.keepalive(Role::Active);
        }
        bench.event(Event::Closed { role: Role::Active });
        assert!(rest(&mut bench) <= Duration::from_secs(1), "a session that was stable is tried again soon");
    }
}

#[test]
fn rfc4724_section_4_2_a_peer_that_only_dials_us_may_come_back_a_second_after_its_connection_was_lost() {
    let mut bench = Bench::new(PeerConfig { passive: true, connect_retry: Duration::from_secs(3600), ..config() });
    bench.event(Event::Start);
    let rest = |bench: &mut Bench| {
        assert!(!bench.peer.accepts());
        let since = bench.now;
        bench.pass_to_deadline();
        assert!(bench.peer.accepts());
        bench.now - since
    };
    for _ in 0..3 {
        bench.establish(Role::Passive, &peer_open());
        bench.event(Event::Closed { role: Role::Passive });
        assert!(rest(&mut bench) <= Duration::from_secs(1));
    }
    bench.connected(Role::Passive);
    bench.receive(Role::Passive, Open { asn: asn(65002), ..peer_open() }.encode());
    assert!(rest(&mut bench) > Duration::from_secs(1800), "not after an error of the protocol");
}

#[test]
fn rfc4271_section_8_2_2_a_passive_peer_waits_in_active_and_is_never_dialled() {
    let mut bench = Bench::new(PeerConfig { passive: true, ..config() });
    assert_eq!(bench.event(Event::Start), [Action::Transition { from: State::Idle, to: State::Active }]);
    assert_eq!((bench.peer.deadline(), bench.peer.timers().connect_retry), (None, None));
    let timers = Event::Timers { connect_retry: Duration::from_secs(5), send_hold_time: None };
    for event in [Event::Tick, Event::Reachable, timers, Event::Start] {
        bench.now += Duration::from_secs(3600);
        assert_eq!(bench.event(event), []);
    }
    bench.connected(Role::Passive);
    // A connection that is lost before an OPEN has come.
    bench.event(Event::Closed { role: Role::Passive });
    assert_eq!((bench.peer.state(), bench.peer.deadline()), (State::Active, None));
    bench.event(Event::Stop(Stop::AdministrativeReset));
    assert_eq!(bench.peer.state(), State::Idle);
    assert_eq!(bench.pass_to_deadline(), [Action::Transition { from: State::Idle, to: State::Active }]);
}

#[test]
fn rfc4486_section_4_a_peer_that_wants_no_connection_now_may_dial_and_is_dialled_after_one_retry_time() {
    let rejected = Notification::cease(Cease::ConnectionRejected).encode();
    let with_data = Notification { data: Bytes::from_static(b"later"), ..Notification::cease(Cease::ConnectionRejected) }.encode();
    let mut bench = Bench::connecting();
    for refusal in [&rejected, &with_data, &rejected, &with_data] {
        bench.connected(Role::Active);
        bench.receive(Role::Active, refusal.clone());
        assert_eq!((bench.peer.state(), bench.peer.accepts()), (State::Active, true));
        let from = bench.now;
        assert_eq!(bench.pass_to_deadline(), [Action::Connect, to(State::Active, State::Connect)]);
        assert!(bench.now - from >= RETRY * 3 / 4 && bench.now - from <= RETRY);
    }
    bench.connected(Role::Active);
    bench.receive(Role::Active, rejected);
    bench.establish(Role::Passive, &peer_open());
    assert_eq!(bench.peer.state(), State::Established);
}

#[test]
fn rfc4486_section_4_only_some_ceases_lengthen_the_rest() {
    let cases = [
        (Notification::cease(Cease::MaximumNumberOfPrefixesReached), true),
        (Notification::cease(Cease::OutOfResources), true),
        (Notification::cease(Cease::AdministrativeReset), false),
        (Notification::cease(Cease::ConnectionCollisionResolution), false),
        (Notification::hold_timer_expired(), false),
        (Notification::unacceptable_hold_time(), true),
    ];
    for (notification, lengthens) in cases {
        let mut bench = Bench::connecting();
        for _ in 0..3 {
            bench.connected(Role::Active);
            bench.receive(Role::Active, notification.encode());
            bench.pass_to_deadline();
        }
        bench.connected(Role::Active);
        bench.receive(Role::Active, notification.encode());
        assert_eq!(rest(&mut bench) > RETRY, lengthens, "{notification}");
    }
}

#[test]
fn rfc4271_section_8_1_1_a_session_that_dies_of_bad_updates_again_and_again_is_damped() {
    let mut bench = Bench::connecting();
    let mut bad = update();
    bad[19..21].copy_from_slice(&[0xff, 0xff]);
    for factor in [1, 2, 4] {
        bench.establish(Role::Active, &peer_open());
        assert_eq!(notified(&bench.receive(Role::Active, bad.clone())), Some((3, 1)));
        assert!(rest(&mut bench) >= RETRY * factor * 3 / 4);
    }
}

#[test]
fn retry_times_at_the_ends_of_the_scale_neither_spin_nor_overflow() {
    let mut bench = Bench::new(PeerConfig { connect_retry: Duration::ZERO, ..config() });
    bench.event(Event::Start);
    bench.event(Event::ConnectFailed { role: Role::Active });
    assert!(bench.peer.deadline().unwrap() - bench.now >= Duration::from_millis(750));

    let mut bench = Bench::new(PeerConfig { connect_retry: Duration::MAX, ..config() });
    bench.event(Event::Start);
    bench.event(Event::ConnectFailed { role: Role::Active });
    bench.pass(Duration::from_secs(1));
    assert_eq!(bench.peer.state(), State::Active);
}

#[test]
fn a_reader_sees_the_timers_that_run_and_the_last_messages() {
    let mut bench = Bench::connecting();
    let timers = bench.peer.timers();
    assert_eq!(timers.connect_retry, bench.peer.deadline());
    assert_eq!((timers.hold, timers.last_sent, timers.last_received), (None, None, None));
    bench.establish(Role::Active, &peer_open());
    let (start, timers) = (bench.now, bench.peer.timers());
    assert_eq!((timers.connect_retry, timers.idle_hold), (None, None));
    assert_eq!(timers.hold, start.checked_add(Duration::from_secs(9)));
    assert_eq!((timers.last_sent, timers.last_received), (Some(start), Some(start)));
    assert_eq!(timers.keepalive, bench.peer.deadline());
    assert_eq!(bench.peer.send_hold_time(), Duration::from_secs(480));
    bench.pass_to_deadline();
    assert_eq!((bench.peer.timers().last_sent, bench.peer.timers().last_received), (Some(bench.now), Some(start)));
    bench.event(Event::Stop(Stop::AdministrativeReset));
    assert_eq!((bench.peer.timers().idle_hold, bench.peer.timers().hold), (bench.peer.deadline(), None));
}

#[test]
fn rfc4271_section_8_2_2_a_connection_without_an_open_and_one_without_a_keepalive_after_it_end_in_time() {
    let limit = Duration::from_secs(30);
    for configured in [PeerConfig { open_hold_time: limit, ..config() }, config()] {
        let limit = configured.open_hold_time;
        // Its OPEN does not come.
        let mut bench = Bench::new(PeerConfig { passive: true, ..configured.clone() });
        bench.event(Event::Start);
        bench.connected(Role::Passive);
        assert_eq!(bench.peer.timers().hold, Some(bench.now + limit));
        assert_eq!(notified(&bench.pass(limit)), Some((4, 0)));

        // Its KEEPALIVE does not come, though both sides want no hold timer; in Established there is none then.
        for confirmed in [false, true] {
            let mut bench = Bench::new(PeerConfig { hold_time: HoldTime::ZERO, passive: true, ..configured.clone() });
            bench.event(Event::Start);
            bench.connected(Role::Passive);
            bench.pass(limit / 3);
            bench.receive(Role::Passive, peer_open().encode());
            assert_eq!(bench.peer.timers().hold, Some(bench.now + limit * 2 / 3));
            if confirmed {
                bench.keepalive(Role::Passive);
                bench.event(Event::Acknowledged { role: Role::Passive, octets: u64::MAX });
                assert_eq!((bench.peer.state(), bench.peer.deadline()), (State::Established, None));
            } else {
                assert_eq!(notified(&bench.pass(limit * 2 / 3)), Some((4, 0)));
            }
        }
    }
}

#[test]
fn rfc4486_section_4_a_peer_for_which_there_is_no_room_is_told_so() {
    let mut bench = Bench::connecting();
    bench.connected(Role::Passive);
    bench.receive(Role::Passive, peer_open().encode());
    assert_eq!(notified(&bench.event(Event::Stop(Stop::Rejected))), Some((6, 5)));
    assert_eq!((bench.peer.state(), bench.peer.deadline()), (State::Idle, None));
}
