// SPDX-License-Identifier: Apache-2.0
//! A session that is up: routes out, what comes in, and how it ends.

use super::*;
use crate::rib::receiver::Receiver;
use crate::wire::Capability;

/// The UPDATEs of a reply that does nothing else.
fn updates(actions: &[Action]) -> Vec<u8> {
    let mut octets = Vec::new();
    for action in actions {
        let Action::Send { role: Role::Active, bytes } = action else { panic!("{action:?}") };
        octets.extend_from_slice(bytes);
    }
    octets
}

#[test]
fn rfc4271_section_9_2_routes_given_before_the_session_go_out_when_it_comes_up() {
    let mut bench = Bench::new(config());
    assert_eq!(bench.event(Event::Routes(rib(&["10.0.0.1", "2001:db8::1"]))), []);
    bench.event(Event::Start);
    bench.connected(Role::Active);
    bench.receive(Role::Active, peer_open().encode());
    let actions = bench.keepalive(Role::Active);
    assert_eq!(actions[0], to(State::OpenConfirm, State::Established));
    let mut receiver = Receiver::new(bench.peer.negotiated().unwrap());
    receiver.receive(&updates(&actions[1..]));
    assert_eq!(receiver.held(), [host("10.0.0.1"), host("2001:db8::1")].into());
    assert_eq!(receiver.ends_of_rib(), Family::ALL);
}

#[test]
fn rfc4724_section_2_no_end_of_rib_before_routes_are_known() {
    let mut bench = Bench::established();
    assert_eq!(bench.peer.counters().sent.update, 0);
    assert!(!bench.peer.adj_rib_out().unwrap().is_synced());
    let mut receiver = Receiver::new(bench.peer.negotiated().unwrap());
    receiver.receive(&updates(&bench.event(Event::Routes(rib(&[])))));
    assert_eq!(receiver.ends_of_rib(), Family::ALL);
    assert_eq!(bench.peer.counters().sent.update, 2);
}

#[test]
fn acknowledged_octets_are_those_of_the_whole_connection() {
    let mut bench = Bench::established();
    let before = (config().open().encode().len() + KEEPALIVE.len()) as u64;
    let first = updates(&bench.event(Event::Routes(rib(&["10.0.0.1"])))).len() as u64;
    let second = updates(&bench.event(Event::Routes(rib(&[])))).len() as u64;
    let end = before + first + second;
    let withdrawing = |bench: &Bench| bench.peer.adj_rib_out().unwrap().withdrawing().count();
    bench.event(Event::Acknowledged { role: Role::Active, octets: end - 1 });
    assert_eq!(withdrawing(&bench), 1);
    bench.event(Event::Acknowledged { role: Role::Passive, octets: end });
    assert_eq!(withdrawing(&bench), 1, "another connection");
    bench.event(Event::Acknowledged { role: Role::Active, octets: end });
    assert_eq!(withdrawing(&bench), 0);
    assert!(bench.peer.adj_rib_out().unwrap().is_synced());
}

#[test]
fn a_peer_that_does_not_read_costs_no_more_than_the_credit_and_still_gets_keepalives() {
    let mut bench = Bench::established();
    let mut receiver = Receiver::new(bench.peer.negotiated().unwrap());
    let first = updates(&bench.event(Event::Routes(many(100_000))));
    assert!(first.len() <= 64 * 1024 && first.len() > 60 * 1024, "{}", first.len());
    receiver.receive(&first);
    assert_eq!(bench.event(Event::Routes(many(99_999))), [], "no credit");
    let mut keepalives = 0;
    for _ in 0..20 {
        keepalives += bench.pass(Duration::from_secs(3)).iter().filter(|action| **action == keepalive(Role::Active)).count();
        bench.keepalive(Role::Active);
    }
    assert!(keepalives >= 19);
    assert_eq!(bench.event(Event::Writable { role: Role::Passive }), []);
    while let more @ [_, ..] = &updates(&bench.event(Event::Writable { role: Role::Active }))[..] {
        assert!(more.len() <= 64 * 1024);
        receiver.receive(more);
    }
    assert_eq!(receiver.routes.len(), 99_999);
}

#[test]
fn the_loss_of_the_session_clears_everything() {
    let mut bench = Bench::established();
    let first = updates(&bench.event(Event::Routes(rib(&["10.0.0.1"]))));
    bench.event(Event::Closed { role: Role::Active });
    assert!(bench.peer.adj_rib_out().is_none());
    bench.pass_to_deadline();
    bench.connected(Role::Active);
    bench.receive(Role::Active, peer_open().encode());
    let again = updates(&bench.keepalive(Role::Active)[1..]);
    assert_eq!(again, first, "all routes and End-of-RIB once more");
    let acknowledged = |bench: &Bench| bench.peer.adj_rib_out().unwrap().is_synced();
    assert!(!acknowledged(&bench));
}

#[test]
fn rfc2918_section_4_a_refresh_sends_everything_again() {
    let mut bench = Bench::established();
    let mut receiver = Receiver::new(bench.peer.negotiated().unwrap());
    receiver.receive(&updates(&bench.event(Event::Routes(rib(&["10.0.0.1", "2001:db8::1"])))));
    receiver.routes.clear();
    for (family, held) in [(Family::Ipv4Unicast, 1), (Family::Ipv6Unicast, 2)] {
        receiver.receive(&updates(&bench.receive(Role::Active, RouteRefresh::request(family).encode())));
        assert_eq!(receiver.routes.len(), held);
    }
    assert_eq!(bench.peer.state(), State::Established);
    assert_eq!(bench.peer.counters().received.route_refresh, 2);
}

#[test]
fn rfc7313_section_4_a_refresh_initiated_locally_sends_everything_again_between_marks() {
    let mut bench = Bench::established();
    assert_eq!(bench.event(Event::Readvertise(Family::Ipv4Unicast)), [], "nothing is known yet");
    let mut receiver = Receiver::new(bench.peer.negotiated().unwrap());
    receiver.receive(&updates(&bench.event(Event::Routes(rib(&["10.0.0.1", "2001:db8::1"])))));
    let told = receiver.updates.len();
    let marks = bench.peer.counters().sent.route_refresh;
    receiver.receive(&updates(&bench.event(Event::Readvertise(Family::Ipv6Unicast))));
    assert_eq!((receiver.updates.len(), receiver.routes.len()), (told + 1, 2));
    assert_eq!(bench.peer.counters().sent.route_refresh, marks + 2);
    assert_eq!(Bench::connecting().event(Event::Readvertise(Family::Ipv4Unicast)), [], "there is no session");
}

#[test]
fn rfc2918_section_4_refreshes_that_wait_are_one_and_what_is_asked_during_one_is_exactly_one_more() {
    let mut plain = peer_open();
    plain.capabilities.retain(|capability| *capability != Capability::EnhancedRouteRefresh);
    for (open, marks) in [(plain, 0), (peer_open(), 2)] {
        let mut bench = Bench::connecting();
        bench.establish(Role::Active, &open);
        // Three times as much as may be sent at once.
        bench.event(Event::Routes(many(40_000)));
        let all = |bench: &mut Bench| {
            while bench.peer.is_behind() {
                bench.event_at_last(Event::Writable { role: Role::Active });
            }
        };
        all(&mut bench);
        bench.event_at_last(Event::Writable { role: Role::Active });
        let first = bench.peer.counters().sent;
        let flood = Bytes::from(RouteRefresh::request(Family::Ipv4Unicast).encode().repeat(2849));
        let received = |bytes| Event::Received { role: Role::Active, bytes };
        for _ in 0..3 {
            assert_eq!(bench.peer.handle(bench.now, received(flood.clone())), [], "it waits");
        }
        assert!(bench.peer.is_to_tell());
        bench.peer.handle(bench.now, Event::Tell);
        assert!(!bench.peer.is_to_tell() && bench.peer.is_behind(), "it has begun");
        let begun = bench.peer.counters().sent.update - first.update;
        for _ in 0..3 {
            assert_eq!(bench.peer.handle(bench.now, received(flood.clone())), []);
        }
        assert!(!bench.peer.is_to_tell(), "after the one that is under way");
        while !bench.peer.is_to_tell() {
            assert!(bench.peer.is_behind());
            bench.peer.handle(bench.now, Event::Writable { role: Role::Active });
        }
        bench.peer.handle(bench.now, Event::Writable { role: Role::Active });
        let once = bench.peer.counters().sent.update - first.update;
        assert!(once > begun);
        bench.peer.handle(bench.now, Event::Tell);
        all(&mut bench);
        let sent = bench.peer.counters().sent;
        assert!(!bench.peer.is_to_tell());
        assert_eq!((sent.update - first.update, sent.route_refresh - first.route_refresh), (2 * once, 2 * marks));
    }
}

#[test]
fn the_first_whole_set_of_a_session_waits_until_it_may_take_its_time() {
    let mut bench = Bench::connecting();
    bench.event(Event::Routes(rib(&["10.0.0.1"])));
    bench.connected(Role::Active);
    bench.receive(Role::Active, peer_open().encode());
    let up = bench.peer.handle(bench.now, Event::Received { role: Role::Active, bytes: Bytes::from_static(&KEEPALIVE) });
    assert_eq!(up, [to(State::OpenConfirm, State::Established)]);
    let paths = rib(&["10.0.0.2"]).paths(&host("10.0.0.2")).into();
    let changes = Arc::new(Changes::from([(host("10.0.0.2"), paths)]));
    let change = Event::Changes { changes, rib: rib(&["10.0.0.1", "10.0.0.2"]) };
    assert_eq!(bench.peer.handle(bench.now, change), [], "it comes with the whole");
    let mut receiver = Receiver::new(bench.peer.negotiated().unwrap());
    receiver.receive(&updates(&bench.peer.handle(bench.now, Event::Tell)));
    assert_eq!((receiver.routes.len(), receiver.ends_of_rib().len()), (2, 2));
    assert_eq!(bench.peer.handle(bench.now, Event::Tell), [], "there is nothing more");
}

#[test]
fn rfc2918_section_4_a_refresh_of_an_unknown_family_is_ignored() {
    let mut bench = Bench::new(PeerConfig { families: [Family::Ipv4Unicast].into(), ..config() });
    bench.event(Event::Start);
    bench.event(Event::Routes(rib(&["10.0.0.1", "2001:db8::1"])));
    bench.establish(Role::Active, &peer_open());
    let request = RouteRefresh::request(Family::Ipv6Unicast);
    for request in
        [request, RouteRefresh { safi: 128, ..request }, RouteRefresh { afi: 0, ..request }, RouteRefresh { subtype: 9, ..request }]
    {
        assert_eq!(bench.receive(Role::Active, request.encode()), []);
        assert_eq!(bench.peer.state(), State::Established);
    }
}

#[test]
fn received_routes_are_counted_and_not_kept() {
    let mut bench = Bench::established();
    bench.receive(Role::Active, [update(), update()].concat());
    let mut withdrawal = Vec::new();
    let negotiated = bench.peer.negotiated().unwrap();
    crate::wire::encode_withdrawal(Family::Ipv6Unicast, &[host("2001:db8::9").into()], negotiated, &mut withdrawal);
    bench.receive(Role::Active, withdrawal);
    let counters = bench.peer.counters();
    assert_eq!(counters.received.update, 3);
    assert_eq!(counters.prefixes[&Family::Ipv4Unicast], PrefixCounts { announced: 2, withdrawn: 0 });
    assert_eq!(counters.prefixes[&Family::Ipv6Unicast], PrefixCounts { announced: 0, withdrawn: 1 });
    assert_eq!((counters.treated_as_withdraw, counters.attributes_discarded), (0, 0));
}

#[test]
fn rfc8212_section_2_without_a_policy_nothing_of_an_external_peer_is_imported() {
    let external = PeerConfig { remote_asn: asn(65002), ..config() };
    let mut bench = Bench::new(external.clone());
    bench.event(Event::Start);
    let open = Open { asn: asn(65002), ..peer_open() };
    bench.establish(Role::Active, &open);
    let path = crate::wire::AsPath(vec![crate::wire::AsPathSegment::Sequence(vec![asn(65002)])]);
    let attributes = [PathAttribute::Origin(Origin::Igp), PathAttribute::AsPath(path)];
    let (next_hop, negotiated) = (NextHop::V4(Ipv4Addr::new(10, 211, 1, 9)), Negotiated::new(&external.open(), &open));
    let mut octets = Vec::new();
    encode_announcement(&attributes, next_hop, Family::Ipv4Unicast, &[host("10.9.0.0").into()], &negotiated, &mut octets).unwrap();
    assert_eq!(bench.receive(Role::Active, octets), [], "nobody is told");
    assert_eq!(bench.peer.counters().prefixes[&Family::Ipv4Unicast], PrefixCounts { announced: 1, withdrawn: 0 });
    assert!(bench.peer.adj_rib_in().is_none());
}

#[test]
fn rfc7606_section_2_a_malformed_attribute_ends_no_session() {
    let mut bench = Bench::established();
    let mut octets = update();
    // ORIGIN comes first: flags, type, length, value.
    let at = octets.windows(4).position(|window| window == [0x40, 1, 1, 0]).unwrap();
    octets[at + 3] = 9;
    assert_eq!(bench.receive(Role::Active, octets), []);
    let counters = bench.peer.counters();
    assert_eq!(counters.treated_as_withdraw, 1);
    assert_eq!(counters.prefixes[&Family::Ipv4Unicast], PrefixCounts { announced: 0, withdrawn: 1 });
}

#[test]
fn rfc6608_section_3_an_update_before_open_reaches_nothing() {
    let mut bench = Bench::connecting();
    bench.connected(Role::Active);
    let actions = bench.receive(Role::Active, update());
    assert_eq!(notified(&actions), Some((5, 1)));
    assert_eq!(bench.peer.counters().prefixes, Default::default());
    assert_eq!(bench.peer.state(), State::Idle);
}

#[test]
fn rfc9003_section_2_shutdown_carries_the_text_of_the_operator() {
    let mut bench = Bench::established();
    let text = "rack 2 is moved; back at 18:00";
    let actions = bench.event(Event::Stop(Stop::AdministrativeShutdown { communication: Some(text.to_owned()) }));
    let Some(DownReason::Sent { notification, .. }) = down(&actions) else { panic!("{actions:?}") };
    assert_eq!((notification.code, notification.subcode), (6, 2));
    assert_eq!(notification.communication().as_deref(), Some(text));
    assert_eq!(actions[0], send(Role::Active, notification.encode()));
    assert_eq!(actions[1], Action::Close { role: Role::Active }, "a NOTIFICATION is written before the connection is closed");
    assert_eq!(bench.peer.deadline(), None);
    assert_eq!(bench.event(Event::Start), [Action::Connect, to(State::Idle, State::Connect)]);
}

#[test]
fn rfc4486_section_4_reset_brings_the_session_back() {
    let mut bench = Bench::established();
    bench.event(Event::Stop(Stop::AdministrativeReset));
    let from = bench.now;
    assert_eq!(bench.pass_to_deadline(), [Action::Connect, to(State::Idle, State::Connect)]);
    assert!(bench.now - from <= Duration::from_secs(1));
}

#[test]
fn counters_follow_the_messages() {
    let mut bench = Bench::established();
    bench.event(Event::Routes(rib(&["10.0.0.1"])));
    bench.receive(Role::Active, Notification::hold_timer_expired().encode());
    let counters = bench.peer.counters();
    assert_eq!(counters.sent, MessageCounts { open: 1, keepalive: 1, update: 3, ..MessageCounts::default() });
    assert_eq!(counters.received, MessageCounts { open: 1, keepalive: 1, notification: 1, ..MessageCounts::default() });
    assert_eq!(counters.established, 1);
    assert_eq!(bench.peer.last_error(), Some(&DownReason::Received(Notification::hold_timer_expired())));
}

#[test]
fn events_of_connections_that_are_not_there_do_nothing() {
    let mut bench = Bench::established();
    let role = Role::Passive;
    let events = [
        Event::Received { role, bytes: Bytes::from_static(&KEEPALIVE) },
        Event::Closed { role },
        Event::Writable { role },
        Event::Acknowledged { role, octets: u64::MAX },
        Event::ConnectFailed { role },
    ];
    for event in events {
        assert_eq!(bench.event(event), []);
    }
}
