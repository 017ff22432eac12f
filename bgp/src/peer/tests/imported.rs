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

/// The families of which the peer is asked for everything.
fn asked(actions: &[Action]) -> Vec<Family> {
    let requests = Family::ALL.map(|family| (family, RouteRefresh::request(family).encode()));
    let sent = actions.iter().filter_map(|action| if let Action::Send { bytes, .. } = action { Some(bytes) } else { None });
    sent.filter_map(|bytes| requests.iter().find(|(_, request)| request == bytes)).map(|(family, _)| *family).collect()
}

fn limited(limits: &[(Family, u32)], held_at_most: Option<usize>) -> Import {
    Import { accept: false, max_prefixes: limits.iter().copied().collect(), held_at_most, ..Import::default() }
}

#[test]
fn rfc4486_section_4_a_limit_below_what_is_held_counts_at_once() {
    let mut bench = importing(limited(&[(Family::Ipv4Unicast, 7)], Some(0)));
    bench.receive(Role::Active, exchange("10.9.0.9", &["10.9.0.1", "10.9.0.2"]));
    let actions = bench.event(Event::Import(Some(limited(&[(Family::Ipv4Unicast, 2)], Some(0)))));
    assert_eq!(actions, [], "all that it told is known, and as much as it may");
    let actions = bench.event(Event::Import(Some(limited(&[(Family::Ipv4Unicast, 1)], Some(0)))));
    assert_eq!(notified(&actions), Some((6, 1)));
    assert_eq!(bench.peer.state(), State::Idle);
}

#[test]
fn rfc4486_section_4_a_limit_that_is_new_counts_what_was_told_before_and_not_kept() {
    let other = (Family::Ipv6Unicast, 7);
    for (before, keeps) in [(limited(&[], Some(1)), 1), (limited(&[other], Some(0)), 0)] {
        let mut bench = importing(before);
        let told = exchange("10.9.0.9", &["10.9.0.1", "10.9.0.2", "10.9.0.3"]);
        bench.receive(Role::Active, told.clone());
        let import = limited(&[(Family::Ipv4Unicast, 2), other], Some(keeps));
        let actions = bench.event(Event::Import(Some(import.clone())));
        assert_eq!(asked(&actions), [Family::Ipv4Unicast], "it is asked for what nobody has kept");
        assert_eq!(bench.event(Event::Import(Some(Import { restart_delay: Duration::from_secs(1), ..import }))), [], "once");
        let actions = bench.receive(Role::Active, told);
        assert_eq!(notified(&actions), Some((6, 1)));
    }
}

#[test]
fn a_limit_that_is_new_asks_for_nothing_where_all_is_known() {
    let mut bench = importing(limited(&[], Some(9)));
    bench.receive(Role::Active, exchange("10.9.0.9", &["10.9.0.1", "10.9.0.2"]));
    assert_eq!(bench.event(Event::Import(Some(limited(&[(Family::Ipv4Unicast, 2)], Some(9))))), []);
    let actions = bench.event(Event::Import(Some(limited(&[(Family::Ipv4Unicast, 1)], Some(9)))));
    assert_eq!(notified(&actions), Some((6, 1)));
}

#[test]
fn rfc2918_section_4_only_what_is_limited_is_asked_for_where_nothing_else_is_kept() {
    let (v4, v6) = ((Family::Ipv4Unicast, 2), (Family::Ipv6Unicast, 2));
    let set = |bench: &mut Bench, import| asked(&bench.event(Event::Import(Some(import))));
    for (first, second) in [(v4, v6), (v6, v4)] {
        let mut bench = Bench::established();
        assert_eq!(set(&mut bench, limited(&[first], Some(0))), [first.0]);
        let lower = (first.0, 1);
        assert_eq!(set(&mut bench, limited(&[lower], Some(0))), [], "it is counted");
        assert_eq!(set(&mut bench, limited(&[lower, second], Some(0))), [second.0], "what was told before the first limit was not counted");
        assert_eq!(set(&mut bench, limited(&[second], Some(0))), []);
        assert_eq!(set(&mut bench, limited(&[lower, second], Some(0))), [], "nothing was omitted");
    }
    // All of it is to be looked at.
    let mut bench = Bench::established();
    assert_eq!(set(&mut bench, limited(&[], Some(9))), Family::ALL);
    assert_eq!(set(&mut bench, limited(&[v4, v6], Some(9))), [], "it has been asked");

    // A session that begins with a limit counts all of it.
    let mut bench = importing(limited(&[v4], Some(0)));
    assert_eq!(set(&mut bench, limited(&[v4, v6], Some(0))), []);
}
