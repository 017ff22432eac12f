// SPDX-License-Identifier: Apache-2.0
//! What a neighbour may announce (RFC 4486 §4), counted whether it is used or not.

use bgp::wire::{AsPath, AsPathSegment, Origin, RouteRefresh, Update};

use super::fake_peer::Conversation;
use super::listening::{dial, listening};
use super::*;
use crate::desired::{DesiredImport, DesiredListen};

/// The neighbour's AS: nothing of it is ever used.
const THEIR_AS: u32 = 65002;

fn limited(peer: DesiredPeer, limit: u32) -> DesiredPeer {
    let import = DesiredImport { max_prefixes: BTreeMap::from([(Family::Ipv4Unicast, limit)]), restart_delay: Duration::from_secs(3600) };
    DesiredPeer { asn: Asn::new(THEIR_AS).unwrap(), import, ..peer }
}

fn announce(conversation: &mut Conversation, address: &str) {
    let attributes = vec![
        PathAttribute::Origin(Origin::Igp),
        PathAttribute::AsPath(AsPath(vec![AsPathSegment::Sequence(vec![Asn::new(THEIR_AS).unwrap()])])),
        PathAttribute::NextHop(Ipv4Addr::new(192, 0, 2, 77)),
    ];
    conversation.send(&Message::Update(Update { attributes, announced: vec![prefix(address).into()], ..Update::default() }));
}

fn expect_too_many(conversation: &mut Conversation, limit: u32) {
    let expected = Notification::maximum_number_of_prefixes_reached(Family::Ipv4Unicast, limit);
    while let Some(message) = conversation.next() {
        match message {
            Message::Notification(last) => return assert_eq!(last, expected),
            Message::Update(_) | Message::RouteRefresh(_) => {}
            other => panic!("{other:?}"),
        }
    }
    panic!("closed without a word");
}

#[test]
fn rfc4486_4_too_many_prefixes_end_the_session_until_the_limit_is_another() {
    let fake = FakePeer::listening();
    let speaker = Speaker::spawn("vipherald", 1).unwrap();
    speaker.advertise(set([]));
    speaker.configure(desired([("tor", limited(neighbour(fake.address()), 2))]), None);
    let mut conversation = fake.establish(THEIR_AS);
    for address in ["198.51.100.1", "198.51.100.2", "198.51.100.2"] {
        announce(&mut conversation, address);
    }
    let status = wait_for(&speaker, |status| is_up(status, "tor") && peer(status, "tor").held.get(&Family::Ipv4Unicast) == Some(&2));
    assert!(status.advertised.as_ref().unwrap().is_empty());
    announce(&mut conversation, "198.51.100.3");
    expect_too_many(&mut conversation, 2);
    drop(conversation);
    let status = wait_for(&speaker, |status| last_error(status, "tor").contains("more than 2 prefixes of ipv4-unicast"));
    assert!(!is_up(&status, "tor"));
    assert!(fake.accept_within(Duration::from_millis(1500)).is_none(), "it stays away for an hour");

    speaker.configure(desired([("tor", limited(neighbour(fake.address()), 3))]), None);
    let mut conversation = fake.establish(THEIR_AS);
    for address in ["198.51.100.1", "198.51.100.2", "198.51.100.3"] {
        announce(&mut conversation, address);
    }
    wait_for(&speaker, |status| peer(status, "tor").held.get(&Family::Ipv4Unicast) == Some(&3));
    speaker.configure(desired([("tor", limited(neighbour(fake.address()), 1))]), None);
    expect_too_many(&mut conversation, 1);
}

#[test]
fn a_limit_that_is_new_counts_what_the_neighbour_tells_again() {
    let fake = FakePeer::listening();
    let speaker = Speaker::spawn("vipherald", 1).unwrap();
    speaker.advertise(set([]));
    let unlimited = DesiredPeer { asn: Asn::new(THEIR_AS).unwrap(), ..neighbour(fake.address()) };
    speaker.configure(desired([("tor", unlimited)]), None);
    let mut conversation = fake.establish(THEIR_AS);
    conversation.expect_empty_table();
    announce(&mut conversation, "198.51.100.1");
    // A counter wakes nobody, but what is asked for after the UPDATE is answered after it.
    speaker.advertise(set(["10.0.0.7"]));
    assert_eq!(conversation.expect_update().announced, [prefix("10.0.0.7").into()]);
    conversation.send(&Message::RouteRefresh(RouteRefresh::request(Family::Ipv4Unicast)));
    assert_eq!(conversation.expect_update().announced, [prefix("10.0.0.7").into()]);
    speaker.configure(desired([("tor", limited(neighbour(fake.address()), 0))]), None);
    assert!(matches!(conversation.next(), Some(Message::RouteRefresh(_))));
    announce(&mut conversation, "198.51.100.1");
    expect_too_many(&mut conversation, 0);
}

#[test]
fn a_limit_that_is_new_counts_what_was_not_kept() {
    let fake = FakePeer::listening();
    let speaker = Speaker::spawn("vipherald", 1).unwrap();
    speaker.advertise(set([]));
    let keeping = |peer| DesiredPeer { keep_received: 1, asn: Asn::new(THEIR_AS).unwrap(), ..peer };
    speaker.configure(desired([("tor", keeping(neighbour(fake.address())))]), None);
    let mut conversation = fake.establish(THEIR_AS);
    conversation.expect_empty_table();
    let addresses = ["198.51.100.1", "198.51.100.2", "198.51.100.3"];
    addresses.iter().for_each(|address| announce(&mut conversation, address));
    poll("two are not kept", || peer(&speaker.status(), "tor").omitted.get(&Family::Ipv4Unicast) == Some(&2));
    speaker.configure(desired([("tor", keeping(limited(neighbour(fake.address()), 2)))]), None);
    assert!(matches!(conversation.next(), Some(Message::RouteRefresh(_))), "it is asked for what was not kept");
    addresses.iter().for_each(|address| announce(&mut conversation, address));
    expect_too_many(&mut conversation, 2);
}

#[test]
fn rfc4486_4_a_dynamic_neighbour_that_told_too_much_does_not_get_in_again_at_once() {
    let (configuration, address) = listening(&["127.0.0.2/32"], []);
    let listen = configuration.listen.clone().unwrap();
    let listen = DesiredListen { template: limited(listen.template.clone(), 0), ..listen };
    let speaker = Speaker::spawn("vipherald", 1).unwrap();
    speaker.advertise(set([]));
    speaker.configure(Arc::new(DesiredBgp { listen: Some(listen), ..(*configuration).clone() }), None);
    let from = Ipv4Addr::new(127, 0, 0, 2);
    let mut conversation = dial(from, address);
    conversation.establish(THEIR_AS);
    announce(&mut conversation, "198.51.100.1");
    expect_too_many(&mut conversation, 0);
    drop(conversation);
    wait_for(&speaker, |status| status.open_sessions() == 0);
    assert_eq!(dial(from, address).next(), Some(Message::Notification(Notification::cease(Cease::ConnectionRejected))));
    assert!(speaker.status().peers.contains_key("dynamic:127.0.0.2"), "it is remembered for an hour");
}
