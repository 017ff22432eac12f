// SPDX-License-Identifier: Apache-2.0
//! A reflector that restarts, between scripted clients that keep routes.

use bgp::wire::{AsPath, Origin, Update};

use super::fake_peer::Conversation;
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
        let speaker = Speaker::spawn(1).unwrap();
        speaker.advertise(set([]));
        speaker.configure(desired([("a", client(&fakes[0])), ("b", client(&fakes[1])), ("c", client(&fakes[2]))]));
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
