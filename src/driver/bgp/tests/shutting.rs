// SPDX-License-Identifier: Apache-2.0
//! For whom an operator's shutdown holds while the configuration changes, with scripted neighbours.

use super::listening::{dial, listening, listening_on};
use super::*;

/// No session, and none is tried: an attempt comes within a second else.
fn expect_shut(speaker: &Speaker, fake: &FakePeer, name: &str) {
    wait_for(speaker, |status| status.peers.get(name).is_some_and(|peer| peer.shut && peer.state == State::Idle));
    assert!(fake.accept_within(Duration::from_millis(1500)).is_none(), "{name} is dialled");
}

/// A speaker with this neighbour, under the name `tor`, shut down.
fn shut(fake: &FakePeer) -> Speaker {
    let speaker = Speaker::spawn("vipherald", 1).unwrap();
    speaker.advertise(set([]));
    speaker.configure(desired([("tor", neighbour(fake.address()))]), None);
    let mut conversation = fake.establish(OUR_AS);
    conversation.expect_empty_table();
    operate(&speaker, "tor", Operation::Shutdown { message: None }).unwrap();
    while conversation.next().is_some() {}
    expect_shut(&speaker, fake, "tor");
    speaker
}

#[test]
fn a_neighbour_that_is_renamed_stays_shut_down() {
    let fake = FakePeer::listening();
    let speaker = shut(&fake);
    speaker.configure(desired([("spine", neighbour(fake.address()))]), None);
    expect_shut(&speaker, &fake, "spine");
    assert_eq!(operate(&speaker, "tor", Operation::Start).unwrap_err(), "there is no peer 'tor'; there is spine");
    assert_eq!(operate(&speaker, "spine", Operation::Start).unwrap(), "is started");
    fake.establish(OUR_AS).expect_empty_table();
}

#[test]
fn a_neighbour_stays_shut_down_whatever_else_changes_of_it() {
    let fake = FakePeer::listening();
    let speaker = shut(&fake);
    let changed = DesiredPeer { asn: Asn::new(65_002).unwrap(), hold_time: HoldTime::from_secs(30).unwrap(), ..neighbour(fake.address()) };
    speaker.configure(desired([("tor", changed)]), None);
    expect_shut(&speaker, &fake, "tor");
}

#[test]
fn another_neighbour_with_the_name_of_one_that_was_shut_down_is_not() {
    let [old, new] = [FakePeer::listening(), FakePeer::listening()];
    let speaker = shut(&old);
    speaker.configure(desired([("tor", neighbour(new.address()))]), None);
    new.establish(OUR_AS).expect_empty_table();
    assert!(!peer(&speaker.status(), "tor").shut);
    // The order has ended with the neighbour.
    speaker.configure(desired([("tor", neighbour(old.address()))]), None);
    old.establish(OUR_AS).expect_empty_table();
}

#[test]
fn an_order_ends_with_the_neighbour() {
    let fake = FakePeer::listening();
    let speaker = shut(&fake);
    speaker.configure(desired([]), None);
    wait_for(&speaker, |status| status.peers.is_empty());
    assert_eq!(operate(&speaker, "tor", Operation::Start).unwrap_err(), "there is no peer 'tor'; there is none");
    speaker.configure(desired([("tor", neighbour(fake.address()))]), None);
    fake.establish(OUR_AS).expect_empty_table();
}

#[test]
fn two_neighbours_that_swap_their_names_keep_their_orders() {
    let [shut_down, other] = [FakePeer::listening(), FakePeer::listening()];
    let speaker = shut(&shut_down);
    speaker.configure(desired([("tor", neighbour(shut_down.address())), ("rr1", neighbour(other.address()))]), None);
    let mut before = other.establish(OUR_AS);
    before.expect_empty_table();
    speaker.configure(desired([("tor", neighbour(other.address())), ("rr1", neighbour(shut_down.address()))]), None);
    while before.next().is_some() {}
    drop(before);
    let mut after = other.establish(OUR_AS);
    after.expect_empty_table();
    expect_shut(&speaker, &shut_down, "rr1");
    assert!(!peer(&speaker.status(), "tor").shut);
}

#[test]
fn a_dynamic_neighbour_stays_shut_down_until_its_prefix_goes() {
    const NAME: &str = "dynamic:127.0.0.2";
    let from = Ipv4Addr::new(127, 0, 0, 2);
    let (configuration, address) = listening(&["127.0.0.2/32"], []);
    let speaker = Speaker::spawn("vipherald", 1).unwrap();
    speaker.advertise(set([]));
    speaker.configure(Arc::clone(&configuration), None);
    let mut conversation = dial(from, address);
    conversation.establish(OUR_AS);
    conversation.expect_empty_table();
    operate(&speaker, NAME, Operation::Shutdown { message: None }).unwrap();
    while conversation.next().is_some() {}
    drop(conversation);
    let rejected = Message::Notification(Notification::cease(Cease::ConnectionRejected));
    let closed = || {
        let status = wait_for(&speaker, |status| status.peers.get(NAME).is_some_and(|peer| peer.shut && peer.open_sockets == 0));
        peer(&status, NAME).state == State::Idle && dial(from, address).next() == Some(rejected.clone())
    };
    assert!(closed());
    let (wider, _) = listening_on(address, &["127.0.0.0/30"], []);
    speaker.configure(Arc::clone(&wider), None);
    wait_for(&speaker, |status| status.configured.as_ref() == Some(&wider));
    assert!(closed());
    // It takes nobody's place.
    let mut other = dial(Ipv4Addr::new(127, 0, 0, 1), address);
    other.establish(OUR_AS);
    other.expect_empty_table();
    assert!(closed());
    drop(other);

    let (none, _) = listening_on(address, &["127.0.0.3/32"], []);
    speaker.configure(Arc::clone(&none), None);
    wait_for(&speaker, |status| status.configured.as_ref() == Some(&none) && status.peers.is_empty());
    speaker.configure(Arc::clone(&configuration), None);
    wait_for(&speaker, |status| status.configured.as_ref() == Some(&configuration));
    dial(from, address).establish(OUR_AS);
}
