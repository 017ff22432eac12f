// SPDX-License-Identifier: Apache-2.0
//! How sessions end with a neighbour that keeps routes after a NOTIFICATION too (RFC 8538): what it is to drop, and what it may keep.

use super::fake_peer::Conversation;
use super::listening::{dial, listening, listening_on};
use bgp::peer::Forwarding;

use super::*;
use crate::desired::DesiredListen;

/// An OPEN of a neighbour with graceful restart and the N bit.
fn notified_open() -> Open {
    let mut open = open(OUR_AS);
    let families = Family::ALL.into_iter().map(|family| (family, true)).collect();
    open.capabilities.push(Capability::GracefulRestart(GracefulRestart {
        restarting: false,
        notification: true,
        restart_time: 60,
        families,
    }));
    open
}

/// Up to the End-of-RIBs.
fn establish(conversation: &mut Conversation) {
    let theirs = conversation.expect_open();
    conversation.establish_as(&notified_open(), &theirs);
    while conversation.expect_update().is_end_of_rib() != Some(Family::Ipv6Unicast) {}
}

/// A session with such a neighbour, which was told a route.
fn session() -> (FakePeer, Speaker, Conversation) {
    let fake = FakePeer::listening();
    let speaker = Speaker::spawn("vipherald", 1).unwrap();
    speaker.advertise(set(["10.0.0.7"]));
    speaker.configure(desired([("tor", restartable(&fake))]), None);
    let mut conversation = fake.accept();
    establish(&mut conversation);
    wait_for(&speaker, |status| is_up(status, "tor") && peer(status, "tor").advertised == 1);
    (fake, speaker, conversation)
}

fn expect_last(conversation: &mut Conversation, expected: Notification) {
    assert_eq!(conversation.next(), Some(Message::Notification(expected)));
    assert_eq!(conversation.next(), None);
}

fn hard(cease: Cease) -> Notification {
    Notification::cease(cease).into_hard_reset()
}

#[test]
fn rfc8538_5_1_a_drain_ends_in_a_hard_reset() {
    let (_fake, speaker, mut conversation) = session();
    speaker.advertise(set([]));
    assert_eq!(conversation.expect_update().withdrawn, [prefix("10.0.0.7").into()]);
    speaker.stop();
    expect_last(&mut conversation, hard(Cease::AdministrativeShutdown));
}

#[test]
fn rfc4724_4_a_release_says_nothing_though_the_peer_would_keep_the_routes_after_a_notification() {
    let (_fake, speaker, mut conversation) = session();
    speaker.release();
    assert_eq!(conversation.next(), None);
}

#[test]
fn rfc8538_5_1_an_operators_shutdown_is_a_hard_reset_and_a_reset_is_none() {
    let (fake, speaker, mut conversation) = session();
    operate(&speaker, "tor", Operation::Reset).unwrap();
    expect_last(&mut conversation, Notification::cease(Cease::AdministrativeReset));
    drop(conversation);
    speaker.advertise(set([]));
    wait_for(&speaker, |status| status.withdrawing() == prefixes(["10.0.0.7"]));
    let mut conversation = fake.accept();
    establish(&mut conversation);
    wait_for(&speaker, |status| status.withdrawing().is_empty());

    speaker.advertise(set(["10.0.0.7"]));
    conversation.expect_update();
    operate(&speaker, "tor", Operation::Shutdown { message: Some("moved".to_owned()) }).unwrap();
    expect_last(&mut conversation, Notification::cease(Cease::AdministrativeShutdown).with_communication("moved").into_hard_reset());
    drop(conversation);
    speaker.advertise(set([]));
    wait_for(&speaker, |status| peer(status, "tor").state == State::Idle && status.withdrawing().is_empty());
}

#[test]
fn rfc8538_5_1_another_configuration_is_a_hard_reset_because_the_next_session_does_not_know_what_was_told() {
    let (fake, speaker, mut conversation) = session();
    let shorter = DesiredPeer { hold_time: HoldTime::from_secs(30).unwrap(), ..restartable(&fake) };
    speaker.configure(desired([("tor", shorter)]), None);
    expect_last(&mut conversation, hard(Cease::OtherConfigurationChange));
    drop(conversation);
    let mut conversation = fake.accept();
    establish(&mut conversation);
    speaker.configure(desired([]), None);
    expect_last(&mut conversation, hard(Cease::PeerDeconfigured));
}

/// A configuration by which dynamic neighbours are asked to keep our routes for a second, and where they dial.
fn keeping_listener() -> (Arc<DesiredBgp>, SocketAddr) {
    let (configuration, address) = listening(&["127.0.0.2/32"], []);
    (with_restart(&configuration, 1), address)
}

fn with_restart(configuration: &DesiredBgp, restart_time: u16) -> Arc<DesiredBgp> {
    let listen = configuration.listen.clone().unwrap();
    let restart = DesiredRestart { restart_time, notification: true, long_lived_stale_time: 0 };
    let template = DesiredPeer { graceful_restart: Some(restart), hold_time: HoldTime::from_secs(3).unwrap(), ..listen.template };
    Arc::new(DesiredBgp { listen: Some(DesiredListen { template, ..listen }), ..configuration.clone() })
}

#[test]
fn a_dynamic_neighbour_that_may_keep_our_routes_is_remembered_for_that_time() {
    let (configuration, address) = keeping_listener();
    let speaker = Speaker::spawn("vipherald", 1).unwrap();
    speaker.advertise(set(["10.0.0.7"]));
    speaker.configure(configuration, None);
    let mut conversation = dial(Ipv4Addr::new(127, 0, 0, 2), address);
    establish(&mut conversation);
    wait_for(&speaker, |status| is_up(status, "dynamic:127.0.0.2"));
    drop(conversation);
    wait_for(&speaker, |status| !is_up(status, "dynamic:127.0.0.2"));
    speaker.advertise(set([]));
    wait_for(&speaker, |status| status.withdrawing() == prefixes(["10.0.0.7"]) && !status.peers.is_empty());
    wait_for(&speaker, |status| status.withdrawing().is_empty() && status.peers.is_empty());
}

#[test]
fn rfc4724_4_1_a_dynamic_neighbour_that_is_not_back_yet_may_hold_what_an_earlier_process_announced() {
    let (configuration, address) = keeping_listener();
    let speaker = Speaker::spawn("vipherald", 1).unwrap();
    let started = Instant::now();
    speaker.inherit(prefixes(["10.0.0.7", "10.0.0.8"]), Forwarding::ALL);
    speaker.advertise(set(["10.0.0.7"]));
    speaker.configure(configuration, None);
    let status = wait_for(&speaker, |status| status.configured.is_some());
    assert_eq!(status.withdrawing(), prefixes(["10.0.0.8"]));
    wait_for(&speaker, |status| status.withdrawing().is_empty());
    assert!(started.elapsed() >= Duration::from_secs(4), "hold time and restart time");

    let (plain, _) = listening_on(address, &["127.0.0.2/32"], []);
    let speaker = Speaker::spawn("vipherald", 1).unwrap();
    speaker.inherit(prefixes(["10.0.0.8"]), Forwarding::ALL);
    speaker.advertise(set([]));
    speaker.configure(plain, None);
    wait_for(&speaker, |status| status.configured.is_some() && status.withdrawing().is_empty());
}
