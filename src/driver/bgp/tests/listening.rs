// SPDX-License-Identifier: Apache-2.0
//! Neighbours that dial us: configured ones, dynamic ones, and nobody we know.

use std::net::{Ipv6Addr, TcpListener};
use std::sync::atomic::{AtomicU32, Ordering};

use bgp::wire::{Negotiated, Update};

use super::fake_peer::Conversation;
use super::*;
use crate::desired::DesiredListen;

const LOCALHOST: Ipv4Addr = Ipv4Addr::LOCALHOST;

/// A configuration that listens, and where. Dynamic neighbours come from these prefixes, and there is at most one.
pub(super) fn listening<'a>(prefixes: &[&str], peers: impl IntoIterator<Item = (&'a str, DesiredPeer)>) -> (Arc<DesiredBgp>, SocketAddr) {
    listening_on(address_of_its_own(), prefixes, peers)
}

/// A loopback address that no other test uses, so that none takes the port before the speaker does.
pub(super) fn address_of_its_own() -> SocketAddr {
    static USED: AtomicU32 = AtomicU32::new(0);
    let host = ((std::process::id() & 0x1_FFFF) << 6) | (USED.fetch_add(1, Ordering::Relaxed) & 0x3F);
    SocketAddr::from((Ipv4Addr::from(0x7F80_0000 | host), 20_179))
}

pub(super) fn listening_on<'a>(
    address: SocketAddr,
    prefixes: &[&str],
    peers: impl IntoIterator<Item = (&'a str, DesiredPeer)>,
) -> (Arc<DesiredBgp>, SocketAddr) {
    let prefixes = prefixes.iter().map(|text| {
        let (address, length) = text.split_once('/').unwrap();
        Prefix::new(address.parse().unwrap(), length.parse().unwrap()).unwrap()
    });
    let template = passive(SocketAddr::from((LOCALHOST, 179)));
    let listen = DesiredListen { address: address.ip(), port: address.port(), prefixes: prefixes.collect(), limit: 1, template };
    let configuration = DesiredBgp { listen: Some(listen), ..(*desired(peers)).clone() };
    (Arc::new(configuration), address)
}

fn passive(address: SocketAddr) -> DesiredPeer {
    DesiredPeer { transport: Transport { passive: true, ..Transport::default() }, ..neighbour(address) }
}

/// Dials until somebody answers.
pub(super) fn dial(from: Ipv4Addr, to: SocketAddr) -> Conversation {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(conversation) = Conversation::dial(from, to, b"") {
            return conversation;
        }
        assert!(Instant::now() < deadline, "nobody listens at {to}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_passive_neighbour_is_never_dialled_and_may_dial() {
    let fake = FakePeer::listening();
    let speaker = Speaker::spawn("vipherald", 1).unwrap();
    speaker.advertise(set(["10.0.0.7"]));
    let (configuration, address) = listening(&[], [("tor", passive(fake.address()))]);
    speaker.configure(configuration, None);
    let status = wait_for(&speaker, |status| status.peers.get("tor").is_some_and(|tor| tor.state == State::Active));
    assert_eq!(peer(&status, "tor").last_error, None);
    assert!(fake.accept_within(Duration::from_millis(1500)).is_none());
    assert_eq!(last_error(&speaker.status(), "tor"), "", "that nobody dials it is no error");

    for _ in 0..2 {
        let mut conversation = dial(LOCALHOST, address);
        conversation.establish(OUR_AS);
        assert_eq!(conversation.expect_update().announced, [prefix("10.0.0.7").into()]);
        wait_for(&speaker, |status| is_up(status, "tor"));
        drop(conversation);
        wait_for(&speaker, |status| peer(status, "tor").state == State::Active);
    }
}

#[test]
fn nobody_we_know_is_closed_without_an_open() {
    let elsewhere = passive(SocketAddr::from(([127, 0, 0, 9], 179)));
    let (configuration, address) = listening(&["192.0.2.0/24"], [("tor", elsewhere)]);
    let speaker = Speaker::spawn("vipherald", 1).unwrap();
    speaker.configure(configuration, None);
    assert_eq!(dial(LOCALHOST, address).next(), None);
    assert_eq!(speaker.status().peers.len(), 1);
}

#[test]
fn dynamic_neighbours_come_and_go_within_the_limit() {
    let (configuration, address) = listening(&["127.0.0.0/30"], []);
    let speaker = Speaker::spawn("vipherald", 1).unwrap();
    speaker.advertise(set([]));
    speaker.configure(Arc::clone(&configuration), None);
    let (first, second) = (Ipv4Addr::new(127, 0, 0, 2), Ipv4Addr::new(127, 0, 0, 3));
    let mut conversation = dial(first, address);
    conversation.establish(OUR_AS);
    conversation.expect_empty_table();
    wait_for(&speaker, |status| is_up(status, "dynamic:127.0.0.2"));
    assert_eq!(speaker.status().dynamic_full, None);
    for refused in 1..=3 {
        let rejected = Message::Notification(Notification::cease(Cease::ConnectionRejected));
        assert_eq!(dial(second, address).next(), Some(rejected), "one too many");
        assert_eq!(speaker.status().dynamic_refused, refused);
    }
    let full = "there are 1 dynamic peers, as many as bgp.listen.limit allows: 127.0.0.3 of 127.0.0.0/30 was refused";
    assert_eq!(speaker.status().dynamic_full.as_deref(), Some(full));
    assert_eq!(dial(Ipv4Addr::new(127, 0, 0, 4), address).next(), None, "of no prefix");
    speaker.configure(Arc::new((*configuration).clone()), None);
    assert!(conversation.is_silent_for(Duration::from_millis(100)));

    drop(conversation);
    wait_for(&speaker, |status| status.peers.is_empty() && status.dynamic_full.is_none());
    let mut conversation = dial(second, address);
    conversation.establish(OUR_AS);
    conversation.expect_empty_table();
    wait_for(&speaker, |status| is_up(status, "dynamic:127.0.0.3"));

    let (fewer, _) = listening_on(address, &["127.0.0.2/32"], []);
    speaker.configure(fewer, None);
    assert_eq!(conversation.next(), Some(Message::Notification(Notification::cease(Cease::PeerDeconfigured))));
    drop(conversation);
    wait_for(&speaker, |status| status.peers.is_empty());
}

#[test]
fn a_reset_without_a_session_says_what_comes_of_it() {
    let (closed, fake) = (FakePeer::closed(), FakePeer::closed());
    let (configuration, _) = listening(&[], [("refuses", neighbour(closed.address())), ("tor", passive(fake.address()))]);
    let speaker = Speaker::spawn("vipherald", 1).unwrap();
    speaker.configure(configuration, None);
    let status = wait_for(&speaker, |status| !last_error(status, "refuses").is_empty() && peer(status, "tor").state == State::Active);
    assert_eq!(peer(&status, "tor").timers.connect_retry, None, "it is never dialled");
    let dialled = operate(&speaker, "refuses", Operation::Reset).unwrap();
    assert_eq!(dialled, "has no session to reset; it is dialled again within a second");
    let waited = operate(&speaker, "tor", Operation::Reset).unwrap();
    assert_eq!(waited, "has no session to reset; it is waited for, since it is passive");
    let status = wait_for(&speaker, |status| peer(status, "tor").state == State::Active);
    assert_eq!(peer(&status, "tor").last_error, None);
}

/// A neighbour that may be passive (false) or dynamic (true), with a session that it has dialled.
fn dialled_session(dynamic: bool) -> (Speaker, SocketAddr, &'static str, Conversation) {
    let fake = FakePeer::closed();
    let (configuration, address) =
        if dynamic { listening(&["127.0.0.0/30"], []) } else { listening(&[], [("tor", passive(fake.address()))]) };
    let name = if dynamic { "dynamic:127.0.0.1" } else { "tor" };
    let speaker = Speaker::spawn("vipherald", 1).unwrap();
    speaker.advertise(set(["10.0.0.7"]));
    speaker.configure(configuration, None);
    let mut conversation = dial(LOCALHOST, address);
    conversation.establish(OUR_AS);
    assert_eq!(conversation.expect_update().announced, [prefix("10.0.0.7").into()]);
    wait_for(&speaker, |status| is_up(status, name));
    (speaker, address, name, conversation)
}

#[test]
fn rfc4271_6_8_a_session_that_gives_a_sign_of_life_is_kept_and_the_new_connection_refused() {
    for dynamic in [false, true] {
        let (speaker, address, name, mut first) = dialled_session(dynamic);
        let begun = Instant::now();
        let mut second = dial(LOCALHOST, address);
        assert_eq!(second.next(), Some(Message::Notification(Notification::cease(Cease::ConnectionCollisionResolution))));
        assert_eq!(second.next(), None);
        assert!(begun.elapsed() >= Duration::from_millis(900), "{:?}", begun.elapsed());
        first.expect_rest_of_table();
        assert_eq!(first.next(), Some(Message::Keepalive), "the session was asked for a sign of life");
        let status = speaker.status();
        assert_eq!((is_up(&status, name), peer(&status, name).counters.established), (true, 1));
    }
}

#[test]
fn rfc4271_6_8_a_session_of_which_the_peers_host_knows_nothing_gives_way_at_once() {
    for dynamic in [false, true] {
        let (speaker, address, name, mut first) = dialled_session(dynamic);
        first.expect_rest_of_table();
        first.forget();
        assert!(is_up(&speaker.status(), name), "nothing has told us");
        let begun = Instant::now();
        let mut second = dial(LOCALHOST, address);
        second.establish(OUR_AS);
        assert_eq!(second.expect_update().announced, [prefix("10.0.0.7").into()]);
        assert!(begun.elapsed() < Duration::from_millis(900), "{:?}", begun.elapsed());
        let status = wait_for(&speaker, |status| is_up(status, name));
        assert_eq!(peer(&status, name).counters.established, 2, "with what was before it");
        assert_eq!(peer(&status, name).last_error.as_ref().unwrap().reason, "the peer reset the connection");
    }
}

#[test]
fn rfc4486_4_a_neighbour_that_is_shut_down_is_told_that_its_connection_is_refused() {
    let fake = FakePeer::closed();
    let (configuration, address) = listening(&[], [("tor", passive(fake.address()))]);
    let speaker = Speaker::spawn("vipherald", 1).unwrap();
    speaker.configure(configuration, None);
    wait_for(&speaker, |status| status.peers.get("tor").is_some_and(|tor| tor.state == State::Active));
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(speaker.operator().operate("tor", Operation::Shutdown { message: None })).unwrap();
    let mut conversation = dial(LOCALHOST, address);
    assert_eq!(conversation.next(), Some(Message::Notification(Notification::cease(Cease::ConnectionRejected))));
    assert_eq!(conversation.next(), None);
}

/// RFC 4271 §6.8: of two connections the one stays that was dialled by the speaker with the higher BGP Identifier.
fn collision(their_identifier: u32) {
    let fake = FakePeer::listening();
    let (configuration, address) = listening(&[], [("tor", neighbour(fake.address()))]);
    let speaker = Speaker::spawn("vipherald", 1).unwrap();
    speaker.configure(configuration, None);
    let mut dialled_by_us = fake.accept();
    let mut dialled_by_them = dial(LOCALHOST, address);
    let ours = dialled_by_us.expect_open();
    assert_eq!(dialled_by_them.expect_open(), ours);
    let theirs = Open { identifier: BgpIdentifier::new(their_identifier).unwrap(), ..open(OUR_AS) };
    dialled_by_us.answer(&theirs, &ours);
    assert_eq!(dialled_by_us.next(), Some(Message::Keepalive));
    dialled_by_them.answer(&theirs, &ours);
    let (winner, loser) = if theirs.identifier > ours.identifier {
        assert_eq!(dialled_by_them.next(), Some(Message::Keepalive));
        (&mut dialled_by_them, &mut dialled_by_us)
    } else {
        (&mut dialled_by_us, &mut dialled_by_them)
    };
    assert_eq!(loser.next(), Some(Message::Notification(Notification::cease(Cease::ConnectionCollisionResolution))));
    winner.send(&Message::Keepalive);
    let status = wait_for(&speaker, |status| is_up(status, "tor"));
    assert_eq!(peer(&status, "tor").counters.established, 1);
    speaker.advertise(set(["10.0.0.7"]));
    assert_eq!(winner.expect_update().announced, [prefix("10.0.0.7").into()]);
}

#[test]
fn rfc4271_6_8_collision_won_by_the_peer() {
    collision(0xC000_02FE);
}

#[test]
fn rfc4271_6_8_collision_won_by_us() {
    collision(1);
}

#[test]
fn rfc2385_who_dials_us_needs_the_key() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("key");
    let fake = FakePeer::closed();
    let signed = DesiredPeer {
        transport: Transport { passive: true, password_file: Some(file.clone()), ..Transport::default() },
        ..neighbour(fake.address())
    };
    let (configuration, address) = listening(&[], [("tor", signed)]);
    let speaker = Speaker::spawn("vipherald", 1).unwrap();
    speaker.configure(configuration, None);
    assert_eq!(dial(LOCALHOST, address).next(), None, "no key means no session");

    std::fs::write(&file, "secret\n").unwrap();
    let dial_with = |key: &[u8]| {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(mut conversation) = Conversation::dial(LOCALHOST, address, key) {
                conversation.establish(OUR_AS);
                return conversation;
            }
            assert!(Instant::now() < deadline);
        }
    };
    let conversation = dial_with(b"secret");
    wait_for(&speaker, |status| is_up(status, "tor"));
    for wrong in [&b""[..], b"other"] {
        assert!(Conversation::dial(LOCALHOST, address, wrong).is_none());
    }
    drop(conversation);
    wait_for(&speaker, |status| peer(status, "tor").state == State::Active);
    std::fs::write(&file, "other\n").unwrap();
    let _conversation = dial_with(b"other");
    wait_for(&speaker, |status| is_up(status, "tor"));
}

#[test]
fn a_port_that_is_taken_is_told_and_concerns_nobody_whom_we_dial() {
    let other = TcpListener::bind((LOCALHOST, 0)).unwrap();
    let fake = FakePeer::listening();
    let speaker = Speaker::spawn("vipherald", 1).unwrap();
    speaker.advertise(set([]));
    let (configuration, address) = listening_on(other.local_addr().unwrap(), &["127.0.0.2/32"], [("tor", neighbour(fake.address()))]);
    speaker.configure(configuration, None);
    let mut conversation = fake.establish(OUR_AS);
    conversation.expect_empty_table();
    let status = wait_for(&speaker, |status| is_up(status, "tor") && status.listen_error.is_some());
    assert_eq!(status.listen_error, Some(format!("cannot listen on {address}: Address already in use (os error 98)")));
    let since = peer(&status, "tor").established_since;

    drop(other);
    let status = wait_for(&speaker, |status| status.listen_error.is_none());
    dial(Ipv4Addr::new(127, 0, 0, 2), address).establish(OUR_AS);
    assert_eq!(peer(&status, "tor").established_since, since);
    assert!(conversation.is_silent_for(Duration::from_millis(100)));
}

/// A neighbour that may be passive (false) or dynamic (true), of which one hop is demanded; where it is dialled from, and what it is called.
fn near_neighbour(listener: SocketAddr, dynamic: bool) -> (Arc<DesiredBgp>, IpAddr, String) {
    let from: IpAddr = if listener.is_ipv4() { LOCALHOST.into() } else { Ipv6Addr::LOCALHOST.into() };
    let near = |peer: DesiredPeer| {
        let transport = Transport { ttl: Ttl::Security { hops: 1 }, ..peer.transport };
        DesiredPeer { transport, ..peer }
    };
    let configured = (!dynamic).then(|| ("tor", near(passive(SocketAddr::from((from, 179))))));
    let (mut configuration, _) = listening_on(listener, if dynamic { &["127.0.0.0/30", "::1/128"] } else { &[] }, configured);
    let listen = Arc::make_mut(&mut configuration).listen.as_mut().unwrap();
    listen.template = near(listen.template.clone());
    (configuration, from, if dynamic { format!("dynamic:{from}") } else { "tor".to_owned() })
}

/// Dials from so far away, with all that makes a session and a route, sent at once.
fn dial_from_afar(from: IpAddr, to: SocketAddr, ttl: u32) -> Conversation {
    let mut conversation = Conversation::dial_with_ttl(from, to, ttl).unwrap();
    let mut octets = Vec::new();
    let negotiated = Negotiated::before_open(Asn::new(1).unwrap());
    for message in [Message::Open(open(OUR_AS)), Message::Keepalive, Message::Update(Update::end_of_rib(Family::Ipv4Unicast))] {
        octets.extend_from_slice(&message.encode(&negotiated).unwrap());
    }
    conversation.send_octets(&octets);
    conversation
}

#[test]
fn rfc5082_3_who_dials_from_too_far_away_gets_no_session_whatever_is_sent_at_once() {
    let ipv6 = TcpListener::bind("[::1]:0").unwrap().local_addr().unwrap();
    for (listener, dynamic) in [(address_of_its_own(), false), (address_of_its_own(), true), (ipv6, false), (ipv6, true)] {
        let (configuration, from, name) = near_neighbour(listener, dynamic);
        let speaker = Speaker::spawn("vipherald", 1).unwrap();
        speaker.advertise(set([]));
        speaker.configure(configuration, None);
        let deadline = Instant::now() + PATIENCE;
        while Conversation::dial_with_ttl(from, listener, 64).is_none() {
            assert!(Instant::now() < deadline, "nobody listens at {listener}");
        }
        for ttl in [64, 254, 1, 64, 64] {
            assert!(dial_from_afar(from, listener, ttl).is_closed_without_a_word(), "{name} at {listener} with TTL {ttl}");
        }
        let status = speaker.status();
        assert_eq!(status.dynamic_refused, 0);
        if dynamic {
            assert_eq!(status.peers.len(), 0, "it is no neighbour");
        } else {
            let error = last_error(&status, &name);
            let reason = "with ttlSecurity, the first packet of the peer has to come with a TTL of 255 at least, and came with 64";
            assert!(error.starts_with(reason), "{error}");
        }

        let mut near = Conversation::dial_with_ttl(from, listener, 255).unwrap();
        near.establish(OUR_AS);
        near.expect_empty_table();
        wait_for(&speaker, |status| is_up(status, &name));
        for _ in 0..5 {
            assert!(dial_from_afar(from, listener, 64).is_closed_without_a_word(), "{name} at {listener}");
        }
        assert!(near.is_silent_for(Duration::from_millis(1500)), "the session is not even asked for a sign of life");
        let status = speaker.status();
        assert_eq!((is_up(&status, &name), peer(&status, &name).counters.established), (true, 1));
    }
}

#[test]
fn rfc5082_3_ttl_security_counts_for_who_dials_us() {
    let fake = FakePeer::closed();
    let secure = |hops| {
        let transport = Transport { passive: true, ttl: Ttl::Security { hops }, ..Transport::default() };
        DesiredPeer { transport, ..neighbour(fake.address()) }
    };
    // On loopback packets have TTL 64, as from a peer that is 192 hops away.
    let (configuration, address) = listening(&[], [("tor", secure(191))]);
    let speaker = Speaker::spawn("vipherald", 1).unwrap();
    speaker.configure(configuration, None);
    assert!(dial(LOCALHOST, address).is_closed_without_a_word());

    let (configuration, address) = listening_on(address, &[], [("tor", secure(192))]);
    speaker.configure(configuration, None);
    let deadline = Instant::now() + PATIENCE;
    loop {
        // While the old session ends, a connection is closed at once.
        let mut conversation = dial(LOCALHOST, address);
        if conversation.next().is_some() {
            conversation.send(&Message::Open(open(OUR_AS)));
            assert_eq!(conversation.next(), Some(Message::Keepalive));
            return;
        }
        assert!(Instant::now() < deadline);
    }
}
