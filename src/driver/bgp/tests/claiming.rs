// SPDX-License-Identifier: Apache-2.0
//! A session that goes from one neighbour of the speaker to another one.

use super::listening::{dial, listening, listening_on};
use super::*;

/// One that is dialled once within the test, unless that comes to nothing at once.
fn unhurried(fake: &FakePeer) -> DesiredPeer {
    DesiredPeer { connect_retry: 4 * PATIENCE, ..neighbour(fake.address()) }
}

#[test]
fn a_neighbour_with_another_name_has_the_session_at_once() {
    let fake = FakePeer::listening();
    let speaker = Speaker::spawn("vipherald", 1).unwrap();
    speaker.advertise(set(["10.0.0.7"]));
    speaker.configure(desired([("tor", unhurried(&fake))]), None);
    let mut before = fake.establish(OUR_AS);
    wait_for(&speaker, |status| is_up(status, "tor"));
    speaker.configure(desired([("spine", unhurried(&fake))]), None);
    wait_for(&speaker, |status| status.peers.contains_key("spine"));
    assert!(fake.accept_within(Duration::from_millis(100)).is_none(), "the old session is not closed yet");
    while before.next().is_some() {}
    drop(before);
    let mut after = fake.establish(OUR_AS);
    assert_eq!(after.expect_update().announced, [prefix("10.0.0.7").into()]);
    let status = wait_for(&speaker, |status| is_up(status, "spine"));
    assert_eq!((last_error(&status, "spine").as_str(), status.peers.len()), ("", 1));
}

#[test]
fn neighbours_that_swap_their_addresses_wait_for_each_other() {
    let [first, second] = [FakePeer::listening(), FakePeer::listening()];
    let speaker = Speaker::spawn("vipherald", 1).unwrap();
    speaker.advertise(set([]));
    speaker.configure(desired([("a", unhurried(&first)), ("b", unhurried(&second))]), None);
    let before = [first.establish(OUR_AS), second.establish(OUR_AS)];
    wait_for(&speaker, |status| is_up(status, "a") && is_up(status, "b"));
    speaker.configure(desired([("a", unhurried(&second)), ("b", unhurried(&first))]), None);
    for mut conversation in before {
        while conversation.next().is_some() {}
    }
    let _after = [first.establish(OUR_AS), second.establish(OUR_AS)];
    let status = wait_for(&speaker, |status| is_up(status, "a") && is_up(status, "b"));
    assert_eq!((last_error(&status, "a"), last_error(&status, "b")), (String::new(), String::new()));
}

#[test]
fn rfc4486_4_a_configured_neighbour_takes_the_place_of_a_dynamic_one() {
    let at = SocketAddr::from(([127, 0, 0, 2], 179));
    let (configuration, address) = listening(&["127.0.0.0/30"], []);
    let speaker = Speaker::spawn("vipherald", 1).unwrap();
    speaker.advertise(set([]));
    speaker.configure(configuration, None);
    let mut dynamic = dial(Ipv4Addr::new(127, 0, 0, 2), address);
    dynamic.establish(OUR_AS);
    dynamic.expect_empty_table();
    wait_for(&speaker, |status| is_up(status, "dynamic:127.0.0.2"));
    let passive = DesiredPeer { transport: Transport { passive: true, ..Transport::default() }, ..neighbour(at) };
    // Its name comes after that of the dynamic one.
    let (configuration, _) = listening_on(address, &["127.0.0.0/30"], [("tor", passive)]);
    speaker.configure(configuration, None);
    assert_eq!(dynamic.next(), Some(Message::Notification(Notification::cease(Cease::PeerDeconfigured))));
    wait_for(&speaker, |status| status.peers.get("tor").is_some_and(|tor| tor.state == State::Active));
    let mut configured = dial(Ipv4Addr::new(127, 0, 0, 2), address);
    drop(dynamic);
    configured.establish(OUR_AS);
    configured.expect_empty_table();
    let status = wait_for(&speaker, |status| is_up(status, "tor"));
    assert_eq!(status.peers.len(), 1);
    drop(configured);
    let (configuration, _) = listening_on(address, &["127.0.0.0/30"], []);
    speaker.configure(configuration, None);
    wait_for(&speaker, |status| status.peers.is_empty());
    let mut again = dial(Ipv4Addr::new(127, 0, 0, 2), address);
    again.establish(OUR_AS);
    wait_for(&speaker, |status| is_up(status, "dynamic:127.0.0.2"));
}
