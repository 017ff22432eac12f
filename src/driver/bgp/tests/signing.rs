// SPDX-License-Identifier: Apache-2.0
//! What is demanded of signatures is had, or there is no session: TCP-MD5 (RFC 2385), whose key changes, and TCP-AO (RFC 5925), on whichever kernel this is.

use super::fake_peer::Conversation;
use super::listening::listening;
use super::*;
use crate::desired::{AoAlgorithm, AoKey};

/// The peer of the test signs nothing. A kernel without TCP-AO says so; one with it takes no unsigned answer.
#[test]
fn rfc5925_7_3_a_peer_that_is_to_sign_is_never_spoken_to_without() {
    let directory = tempfile::tempdir().unwrap();
    let password_file = directory.path().join("key");
    std::fs::write(&password_file, "secret\n").unwrap();
    let fake = FakePeer::listening();
    let key = AoKey { send_id: 1, recv_id: 1, algorithm: AoAlgorithm::HmacSha1, password_file };
    let speaker = Speaker::spawn("vipherald", 1).unwrap();
    let transport = Transport { ao_keys: vec![key.clone()], ..Transport::default() };
    speaker.configure(desired([("tor", DesiredPeer { transport, ..neighbour(fake.address()) })]), None);
    let available = sys::has_tcp_ao().unwrap();
    let lacks = "this kernel lacks TCP-AO (CONFIG_TCP_AO, Linux 6.7 and newer)";
    let expected = if available { "did not answer" } else { lacks };
    let status = wait_for(&speaker, |status| last_error(status, "tor").contains(expected));
    assert_eq!(peer(&status, "tor").warning.as_deref(), (!available).then_some(lacks));
    assert!(fake.accept_within(Duration::from_millis(200)).is_none(), "a connection without a signature");

    let missing = AoKey { send_id: 2, recv_id: 2, password_file: directory.path().join("missing"), ..key };
    let transport = Transport { ao_keys: vec![key, missing], ..Transport::default() };
    speaker.configure(desired([("tor", DesiredPeer { transport, ..neighbour(fake.address()) })]), None);
    let expected = if available { "no TCP-AO key in" } else { lacks };
    wait_for(&speaker, |status| last_error(status, "tor").contains(expected));
    assert!(fake.accept_within(Duration::from_millis(1200)).is_none(), "a connection without a signature");
}

/// A session that is up with the key "secret".
fn signed_session(restart: bool) -> (tempfile::TempDir, FakePeer, Speaker, Conversation) {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("key");
    std::fs::write(&file, "secret\n").unwrap();
    let fake = FakePeer::listening();
    fake.demand_key(b"secret");
    let speaker = Speaker::spawn("vipherald", 1).unwrap();
    speaker.advertise(set(["10.0.0.7"]));
    let graceful_restart = restart.then_some(DesiredRestart { restart_time: 60, notification: true, long_lived_stale_time: 0 });
    speaker.configure(desired([("tor", DesiredPeer { graceful_restart, ..signed(&fake, &file) })]), None);
    let mut conversation = fake.accept();
    let theirs = conversation.expect_open();
    let mut ours = open(OUR_AS);
    assert_eq!(ours.hold_time, HoldTime::ZERO, "no KEEPALIVE is due");
    if restart {
        let families = Family::ALL.map(|family| (family, true)).into();
        ours.capabilities.push(Capability::GracefulRestart(GracefulRestart {
            restarting: false,
            notification: true,
            restart_time: 60,
            families,
        }));
    }
    conversation.establish_as(&ours, &theirs);
    conversation.expect_update();
    wait_for(&speaker, |status| is_up(status, "tor"));
    (directory, fake, speaker, conversation)
}

#[test]
fn rfc2385_a_key_that_only_we_have_changed_ends_the_session_within_five_seconds() {
    let (directory, fake, speaker, conversation) = signed_session(false);
    let changed = Instant::now();
    std::fs::write(directory.path().join("key"), "other\n").unwrap();
    let status = wait_for(&speaker, |status| !is_up(status, "tor"));
    assert!(changed.elapsed() < Duration::from_secs(5), "{:?}", changed.elapsed());
    let reason = last_error(&status, "tor");
    assert!(reason.starts_with("the key was changed here, and the peer does not use it"), "{reason}");
    drop(conversation);
    fake.demand_key(b"other");
    let _conversation = fake.establish(OUR_AS);
    wait_for(&speaker, |status| is_up(status, "tor"));
}

#[test]
fn rfc2385_a_peer_that_has_the_new_key_soon_after_us_keeps_its_session() {
    let (directory, _fake, speaker, conversation) = signed_session(false);
    let since = peer(&speaker.status(), "tor").established_since;
    let sent = || peer(&speaker.status(), "tor").counters.sent.keepalive;
    let before = sent();
    std::fs::write(directory.path().join("key"), "other\n").unwrap();
    poll("the peer is asked for a sign of life", || sent() > before);
    std::thread::sleep(Duration::from_secs(1));
    conversation.change_key(b"other");
    let asked = Instant::now();
    while asked.elapsed() < Duration::from_secs(5) {
        assert_eq!(peer(&speaker.status(), "tor").established_since, since);
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn rfc4724_4_2_a_session_that_ends_for_want_of_the_new_key_is_lost_as_by_tcp() {
    let (directory, _fake, speaker, conversation) = signed_session(true);
    std::fs::write(directory.path().join("key"), "other\n").unwrap();
    let status = wait_for(&speaker, |status| !is_up(status, "tor"));
    let tor = peer(&status, "tor");
    assert_eq!((tor.failures.sent, tor.failures.transport), (0, 1), "without a NOTIFICATION");
    assert!(tor.stale_until.is_some(), "the peer may keep our routes");
    drop(conversation);
}

/// The kernel goes by the longest prefix that has a key; an address without one cannot be taken out of a prefix with one.
#[test]
fn rfc2385_what_a_prefix_has_to_sign_with_counts_for_a_passive_neighbour_without_a_key_among_its_addresses() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("key");
    std::fs::write(&file, "secret\n").unwrap();
    let from = Ipv4Addr::new(127, 0, 0, 2);
    let unsigned =
        DesiredPeer { transport: Transport { passive: true, ..Transport::default() }, ..neighbour(SocketAddr::from((from, 179))) };
    let (mut configuration, address) = listening(&["127.0.0.0/30"], [("tor", unsigned)]);
    let template = &mut Arc::make_mut(&mut configuration).listen.as_mut().unwrap().template;
    template.transport.password_file = Some(file);
    let speaker = Speaker::spawn("vipherald", 1).unwrap();
    speaker.configure(configuration, None);
    poll("somebody with the key is answered", || Conversation::dial(Ipv4Addr::LOCALHOST, address, b"secret").is_some());
    for unsigned in [from, Ipv4Addr::LOCALHOST] {
        assert!(Conversation::dial(unsigned, address, b"").is_none(), "{unsigned}");
    }
    assert_eq!(peer(&speaker.status(), "tor").state, State::Active);
}
