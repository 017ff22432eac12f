// SPDX-License-Identifier: Apache-2.0
//! What the rest of the speaker hears of a peer's routes.

use super::*;
use crate::rib::{Learnt, Reflector};
use crate::wire::{Deframer, Message, Update, encode_withdrawal};

fn importing(import: Import) -> Bench {
    let mut bench = Bench::new(PeerConfig { import: Some(import), ..config() });
    bench.event(Event::Start);
    bench.establish(Role::Active, &peer_open());
    bench
}

fn learned(actions: &[Action]) -> Vec<&Learnt> {
    let all = actions.iter().filter_map(|action| if let Action::Learned(learnt) = action { Some(learnt) } else { None });
    all.flatten().collect()
}

fn negotiated() -> Negotiated {
    Negotiated::new(&config().open(), &peer_open())
}

/// An UPDATE that withdraws one host and announces others.
fn exchange(withdrawn: &str, announced: &[&str]) -> Vec<u8> {
    let mut deframer = Deframer::default();
    deframer.push(&update());
    let Ok(Some(Message::Update(told))) = deframer.next(&negotiated()) else { panic!("no UPDATE") };
    let announced = announced.iter().map(|address| host(address).into()).collect();
    let exchange = Update { withdrawn: vec![host(withdrawn).into()], announced, ..told };
    Message::Update(exchange).encode(&negotiated()).unwrap().to_vec()
}

#[test]
fn rfc4486_section_4_what_an_update_over_the_limit_withdraws_is_gone() {
    let mut bench = importing(Import { max_prefixes: [(Family::Ipv4Unicast, 1)].into(), ..Import::default() });
    let mut reflector = Reflector::default();
    for octets in [update(), exchange("10.9.0.0", &["10.9.0.1", "10.9.0.2"])] {
        for action in bench.receive(Role::Active, octets) {
            if let Action::Learned(learnt) = action {
                reflector.learn(PeerId(9), &learnt);
            }
        }
    }
    assert_eq!(bench.peer.state(), State::Idle);
    assert_eq!(reflector.loc_rib().routes().collect::<Vec<_>>(), [], "the session is over and nothing is kept");
}

#[test]
fn rfc7313_section_3_2_marks_mean_nothing_without_the_capability() {
    let without = |open: Open| Open {
        capabilities: open.capabilities.into_iter().filter(|it| *it != crate::wire::Capability::EnhancedRouteRefresh).collect(),
        ..open
    };
    for (open, gone) in [(peer_open(), true), (without(peer_open()), false)] {
        let mut bench = Bench::new(PeerConfig { import: Some(Import::default()), ..config() });
        bench.event(Event::Start);
        bench.establish(Role::Active, &open);
        bench.receive(Role::Active, update());
        bench.receive(Role::Active, RouteRefresh::beginning(Family::Ipv4Unicast).encode());
        let actions = bench.receive(Role::Active, RouteRefresh::end(Family::Ipv4Unicast).encode());
        assert_eq!(!learned(&actions).is_empty(), gone);
        assert_eq!(bench.peer.state(), State::Established);
    }
}

#[test]
fn rfc4271_section_4_3_a_destination_that_is_withdrawn_and_announced_at_once_is_announced() {
    let mut bench = importing(Import::default());
    bench.receive(Role::Active, update());
    let mut again = exchange("10.9.0.0", &["10.9.0.0"]);
    let mut reflector = Reflector::default();
    let actions = bench.receive(Role::Active, again.clone());
    for learnt in learned(&actions) {
        reflector.learn(PeerId(9), std::slice::from_ref(learnt));
    }
    assert_eq!(reflector.loc_rib().len(), 1);
    again.clear();
    encode_withdrawal(Family::Ipv4Unicast, &[host("10.9.0.0").into()], &negotiated(), &mut again);
    assert_eq!(learned(&bench.receive(Role::Active, again)), [&(host("10.9.0.0").into(), None)]);
}
