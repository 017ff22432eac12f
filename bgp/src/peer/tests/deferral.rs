// SPDX-License-Identifier: Apache-2.0
//! A reflector that has restarted: what it says before it knows everything again (RFC 4724 §4.1).

use super::*;
use crate::rib::receiver::Receiver;
use crate::wire::{Message, Update};

fn graceful(restarting: bool) -> PeerConfig {
    let graceful_restart = Some(RestartConfig { restart_time: 60, restarting, ..RestartConfig::default() });
    PeerConfig { graceful_restart, import: Some(Import::default()), client: true, ..config() }
}

fn open_of_peer(restarting: bool) -> Open {
    Open { identifier: peer_open().identifier, ..graceful(restarting).open() }
}

/// Has restarted, and waits for 10 s at most.
fn deferred(open: &Open) -> Bench {
    let mut bench = Bench::new(graceful(true));
    bench.peer.defer_end_of_rib(bench.now + Duration::from_secs(10));
    bench.event(Event::Start);
    bench.establish(Role::Active, open);
    bench
}

fn read(receiver: &mut Receiver, actions: Vec<Action>) {
    for action in actions {
        if let Action::Send { bytes, .. } = action {
            receiver.receive(&bytes);
        }
    }
}

fn end_of_rib(bench: &mut Bench, family: Family) {
    let message = Message::Update(Update::end_of_rib(family)).encode(bench.peer.negotiated().unwrap()).unwrap();
    bench.receive(Role::Active, message);
}

#[test]
fn rfc4724_section_4_1_routes_do_not_wait_and_end_of_rib_waits_for_the_other_peers() {
    for by_time in [false, true] {
        let mut bench = deferred(&open_of_peer(false));
        let mut receiver = Receiver::new(bench.peer.negotiated().unwrap());
        read(&mut receiver, bench.event(Event::Routes(rib(&["10.0.0.1"]))));
        assert_eq!((receiver.held(), receiver.ends_of_rib()), ([host("10.0.0.1")].into(), vec![]));
        assert!(!bench.peer.adj_rib_out().unwrap().is_told());
        if by_time {
            while receiver.ends_of_rib().is_empty() {
                bench.keepalive(Role::Active);
                let actions = bench.pass_to_deadline();
                let updates = actions.into_iter().filter(|action| *action != keepalive(Role::Active));
                read(&mut receiver, updates.collect());
            }
            assert_eq!(bench.now - *EPOCH, Duration::from_secs(10));
        } else {
            read(&mut receiver, bench.event(Event::Selected));
        }
        assert_eq!(receiver.ends_of_rib(), Family::ALL);
        assert_eq!(bench.event(Event::Selected), [], "once");
    }
}

#[test]
fn rfc4724_section_4_1_a_session_that_comes_later_waits_too() {
    let mut bench = Bench::new(graceful(true));
    bench.peer.defer_end_of_rib(bench.now + Duration::from_secs(10));
    bench.event(Event::Start);
    bench.event(Event::Selected);
    bench.event(Event::Routes(rib(&[])));
    bench.connected(Role::Active);
    bench.receive(Role::Active, open_of_peer(false).encode());
    let actions = bench.keepalive(Role::Active);
    let mut receiver = Receiver::new(bench.peer.negotiated().unwrap());
    read(&mut receiver, actions);
    assert_eq!(receiver.ends_of_rib(), Family::ALL, "nobody is waited for any more");
}

#[test]
fn rfc4724_section_4_1_whom_the_others_wait_for() {
    let mut bench = deferred(&open_of_peer(false));
    assert!(!bench.peer.has_told_everything());
    end_of_rib(&mut bench, Family::Ipv4Unicast);
    assert!(!bench.peer.has_told_everything());
    end_of_rib(&mut bench, Family::Ipv6Unicast);
    assert!(bench.peer.has_told_everything());
    bench.event(Event::Closed { role: Role::Active });
    assert!(!bench.peer.has_told_everything());
    assert!(deferred(&open_of_peer(true)).peer.has_told_everything(), "one that restarts itself is not waited for");
    assert!(deferred(&peer_open()).peer.has_told_everything(), "one without the capability is not waited for");
    assert!(!Bench::new(graceful(true)).peer.has_told_everything(), "no session");
}
