// SPDX-License-Identifier: Apache-2.0
//! What is accepted of the peer's OPEN, and what both sides then agree on.

use super::*;

/// The reply to an OPEN on a connection that we dialled.
fn opened(config: PeerConfig, open: &Open) -> (Bench, Vec<Action>) {
    let mut bench = Bench::new(config);
    bench.event(Event::Start);
    bench.connected(Role::Active);
    let actions = bench.receive(Role::Active, open.encode());
    (bench, actions)
}

#[test]
fn rfc4271_section_6_2_the_peer_must_be_in_the_configured_as() {
    let (bench, actions) = opened(config(), &Open { asn: asn(65002), ..peer_open() });
    assert_eq!(notified(&actions), Some((2, 2)));
    assert_eq!(bench.peer.state(), State::Idle);
    let reason = bench.peer.last_error().unwrap().to_string();
    assert!(reason.contains("65002") && reason.contains("65001"), "{reason}");
}

#[test]
fn rfc6793_section_4_2_as_trans_stands_for_the_as_of_the_capability() {
    let big = asn(4_200_000_001);
    let open = Open { asn: big, ..peer_open() };
    assert_eq!(open.encode()[20..22], 23456_u16.to_be_bytes());
    let (bench, actions) = opened(PeerConfig { remote_asn: big, ..config() }, &open);
    assert_eq!(actions, [keepalive(Role::Active), to(State::OpenSent, State::OpenConfirm)]);
    assert_eq!(bench.peer.negotiated().unwrap().remote_asn, big);

    let (_, actions) = opened(PeerConfig { remote_asn: asn(4_200_000_002), ..config() }, &open);
    assert_eq!(notified(&actions), Some((2, 2)));
}

#[test]
fn rfc6793_section_4_1_a_peer_without_the_capability_is_known_by_two_octets() {
    let open = Open { capabilities: vec![], ..peer_open() };
    let (bench, _) = opened(config(), &open);
    let negotiated = bench.peer.negotiated().unwrap();
    assert!(!negotiated.four_octet_as && !negotiated.route_refresh);
    assert_eq!(negotiated.families, [Family::Ipv4Unicast].into(), "RFC 4760 §8: IPv4 unicast where nothing is said");
}

#[test]
fn rfc6286_section_2_2_an_internal_peer_must_not_have_our_identifier() {
    let same = Open { identifier: config().identifier, ..peer_open() };
    let (bench, actions) = opened(config(), &same);
    assert_eq!(notified(&actions), Some((2, 3)));
    assert_eq!(bench.peer.state(), State::Idle);

    let external = PeerConfig { remote_asn: asn(65000), ..config() };
    let (bench, _) = opened(external, &Open { asn: asn(65000), ..same });
    assert_eq!(bench.peer.state(), State::OpenConfirm);
}

#[test]
fn rfc4271_section_4_2_the_smaller_hold_time_counts() {
    for (ours, theirs, agreed) in [(9, 90, 9), (90, 3, 3), (0, 9, 0), (9, 0, 0), (30, 30, 30)] {
        let (bench, _) = opened(PeerConfig { hold_time: seconds(ours), ..config() }, &Open { hold_time: seconds(theirs), ..peer_open() });
        assert_eq!(bench.peer.negotiated().unwrap().hold_time, seconds(agreed), "{ours} and {theirs}");
    }
}

#[test]
fn rfc4271_section_6_2_hold_times_of_one_and_two_seconds_are_refused() {
    for hold_time in [1_u8, 2] {
        let mut octets = peer_open().encode().to_vec();
        octets[22..24].copy_from_slice(&[0, hold_time]);
        let mut bench = Bench::connecting();
        bench.connected(Role::Active);
        assert_eq!(notified(&bench.receive(Role::Active, octets)), Some((2, 6)));
    }
}

#[test]
fn open_and_keepalive_in_one_piece_and_octet_by_octet() {
    let octets = [&peer_open().encode()[..], &KEEPALIVE].concat();
    let mut whole = Bench::connecting();
    whole.connected(Role::Active);
    let actions = whole.receive(Role::Active, octets.clone());
    let expected = [keepalive(Role::Active), to(State::OpenSent, State::OpenConfirm), to(State::OpenConfirm, State::Established)];
    assert_eq!(actions, expected);

    let mut pieces = Bench::connecting();
    pieces.connected(Role::Active);
    let actions: Vec<_> = octets.iter().flat_map(|octet| pieces.receive(Role::Active, vec![*octet])).collect();
    assert_eq!(actions, expected);
}

#[test]
fn what_follows_a_fatal_message_is_not_read() {
    let mut bench = Bench::connecting();
    bench.connected(Role::Active);
    let octets = [&Open { asn: asn(65002), ..peer_open() }.encode()[..], &KEEPALIVE, &[0; 50]].concat();
    let actions = bench.receive(Role::Active, octets);
    assert_eq!(actions.len(), 4, "{actions:?}");
    assert_eq!(bench.peer.counters().received, MessageCounts { open: 1, ..MessageCounts::default() });
}
