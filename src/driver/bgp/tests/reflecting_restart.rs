// SPDX-License-Identifier: Apache-2.0
//! A reflector that restarts, between scripted clients that keep routes.

use bgp::wire::{AsPath, Origin, Update};

use super::fake_peer::Conversation;
use bgp::peer::Forwarding;

use super::*;

/// A client that keeps our routes while we restart.
fn client(fake: &FakePeer) -> DesiredPeer {
    DesiredPeer { reflector_client: true, ..restartable(fake) }
}

fn establish(fake: &FakePeer) -> Conversation {
    let mut conversation = fake.accept();
    let theirs = conversation.expect_open();
    conversation.establish_as(&keeping_open(), &theirs);
    conversation
}

fn announcement(address: &str) -> Message {
    let attributes = vec![
        PathAttribute::Origin(Origin::Igp),
        PathAttribute::AsPath(AsPath(Vec::new())),
        PathAttribute::NextHop(Ipv4Addr::new(192, 0, 2, 77)),
        PathAttribute::LocalPref(100),
    ];
    Message::Update(Update { attributes, announced: vec![prefix(address).into()], ..Update::default() })
}

/// Which session ends first is chance: it is tried as often as makes chance improbable.
#[test]
fn rfc4724_4_what_clients_have_told_stays_with_the_others_while_the_reflector_restarts() {
    for _ in 0..12 {
        let fakes: Vec<_> = (0..3).map(|_| FakePeer::listening()).collect();
        let speaker = Speaker::spawn("vipherald", 1).unwrap();
        speaker.advertise(set([]));
        speaker.configure(desired([("a", client(&fakes[0])), ("b", client(&fakes[1])), ("c", client(&fakes[2]))]), None);
        let mut conversations: Vec<_> = fakes.iter().map(establish).collect();
        for conversation in &mut conversations {
            conversation.expect_empty_table();
        }
        for teller in 0..3 {
            let address = format!("10.0.0.{teller}");
            conversations[teller].send(&announcement(&address));
            for other in (0..3).filter(|other| *other != teller) {
                assert_eq!(conversations[other].expect_update().announced, [prefix(&address).into()]);
            }
        }
        speaker.release();
        for conversation in &mut conversations {
            assert_eq!(conversation.next(), None, "closed without a word");
        }
    }
}

fn end_of_rib(conversation: &mut Conversation) {
    for family in Family::ALL {
        conversation.send(&Message::Update(Update::end_of_rib(family)));
    }
}

#[test]
fn rfc4724_4_1_end_of_rib_of_a_restarted_reflector_comes_after_those_of_its_clients() {
    let (first, second) = (FakePeer::listening(), FakePeer::listening());
    let speaker = Speaker::spawn("vipherald", 1).unwrap();
    speaker.inherit(prefixes(["10.0.0.9"]), Forwarding::ALL);
    speaker.advertise(set(["10.0.0.9"]));
    speaker.configure(desired([("first", client(&first)), ("second", client(&second))]), None);
    let mut early = establish(&first);
    assert_eq!(early.expect_update().announced, [prefix("10.0.0.9").into()], "routes do not wait");
    end_of_rib(&mut early);
    assert!(early.is_silent_for(Duration::from_millis(200)), "what the second client has told before is not known again");
    let mut late = establish(&second);
    late.send(&announcement("10.0.0.1"));
    assert_eq!(early.expect_update().announced, [prefix("10.0.0.1").into()]);
    end_of_rib(&mut late);
    early.expect_empty_table();
    assert_eq!(late.expect_update().announced, [prefix("10.0.0.9").into()]);
    late.expect_empty_table();
}
