// SPDX-License-Identifier: Apache-2.0
//! Connections on which the peer, or its whole host, says nothing.

use super::fake_peer::Conversation;
use super::listening::{dial, listening};
use super::*;

/// Somebody who dials from there and takes our OPEN, without a word of its own.
fn silent(from: Ipv4Addr, to: SocketAddr) -> Conversation {
    let mut conversation = dial(from, to);
    conversation.expect_open();
    conversation
}

#[test]
fn who_dials_from_a_prefix_and_says_nothing_takes_no_place_of_a_dynamic_neighbour() {
    let (configuration, address) = listening(&["127.0.0.0/29"], []);
    assert_eq!(configuration.listen.as_ref().unwrap().limit, 1);
    let speaker = Speaker::spawn("vipherald", 1).unwrap();
    speaker.advertise(set([]));
    speaker.configure(configuration, None);
    let mut late = dial(Ipv4Addr::new(127, 0, 0, 2), address);
    let ours = late.expect_open();
    let _others = [3, 4].map(|host| silent(Ipv4Addr::new(127, 0, 0, host), address));
    let hold = || speaker.status().peers.get("dynamic:127.0.0.4").and_then(|peer| peer.timers.hold);
    poll("its time runs", || hold().is_some());
    assert!(hold().unwrap() <= Instant::now() + Duration::from_secs(30), "nobody has configured it");
    let mut conversation = dial(Ipv4Addr::new(127, 0, 0, 5), address);
    conversation.establish(OUR_AS);
    conversation.expect_empty_table();
    let status = wait_for(&speaker, |status| is_up(status, "dynamic:127.0.0.5"));
    assert_eq!((status.dynamic_refused, status.dynamic_full.clone()), (0, None));

    // Its OPEN comes when there is no place any more.
    late.answer(&open(OUR_AS), &ours);
    assert_eq!(late.next(), Some(Message::Keepalive));
    assert_eq!(late.next(), Some(Message::Notification(Notification::cease(Cease::ConnectionRejected))));
    assert_eq!(late.next(), None);
    let status = wait_for(&speaker, |status| status.dynamic_refused == 1);
    let full = "there are 1 dynamic peers, as many as bgp.listen.limit allows: 127.0.0.2 of 127.0.0.0/29 was refused";
    assert_eq!(status.dynamic_full.as_deref(), Some(full));
    assert!(is_up(&status, "dynamic:127.0.0.5"));
}

#[test]
fn of_those_who_say_nothing_the_oldest_makes_room() {
    let (configuration, address) = listening(&["127.0.0.0/24"], []);
    let speaker = Speaker::spawn("vipherald", 1).unwrap();
    speaker.advertise(set([]));
    speaker.configure(configuration, None);
    let mut waiting: Vec<Conversation> = (1..=64).map(|host| silent(Ipv4Addr::new(127, 0, 0, host), address)).collect();
    assert!(waiting.iter_mut().all(|conversation| conversation.is_silent_for(Duration::from_millis(1))));
    let mut conversation = dial(Ipv4Addr::new(127, 0, 0, 65), address);
    let ours = conversation.expect_open();
    assert!(waiting.remove(0).is_closed_without_a_word());
    conversation.establish_as(&open(OUR_AS), &ours);
    conversation.expect_empty_table();
    wait_for(&speaker, |status| is_up(status, "dynamic:127.0.0.65"));
    assert!(waiting.iter_mut().all(|conversation| conversation.is_silent_for(Duration::from_millis(1))), "one was enough");
    let rejected = Message::Notification(Notification::cease(Cease::ConnectionRejected));
    assert_eq!(dial(Ipv4Addr::new(127, 0, 0, 66), address).next(), Some(rejected), "there are as many neighbours as may be");
}

#[test]
fn a_host_that_is_gone_before_the_session_is_up_is_noticed_without_a_hold_timer() {
    let (unheard, heard) = (FakePeer::listening(), FakePeer::listening());
    let speaker = Speaker::spawn("vipherald", 1).unwrap();
    speaker.configure(desired([("unheard", neighbour(unheard.address())), ("heard", neighbour(heard.address()))]), None);
    let mut in_open_sent = unheard.accept();
    in_open_sent.expect_open();
    let mut in_open_confirm = heard.accept();
    let theirs = in_open_confirm.expect_open();
    in_open_confirm.answer(&open(OUR_AS), &theirs);
    assert_eq!(in_open_confirm.next(), Some(Message::Keepalive));
    let status = wait_for(&speaker, |status| peer(status, "heard").state == State::OpenConfirm);
    assert_eq!((peer(&status, "unheard").state, peer(&status, "heard").hold_time), (State::OpenSent, Some(HoldTime::ZERO)));
    in_open_sent.forget();
    in_open_confirm.forget();
    for (name, fake) in [("unheard", &unheard), ("heard", &heard)] {
        let _conversation = fake.establish(OUR_AS);
        wait_for(&speaker, |status| is_up(status, name));
    }
}
