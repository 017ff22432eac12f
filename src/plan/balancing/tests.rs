// SPDX-License-Identifier: Apache-2.0
use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::api::{Kind, ObjectRef, PortRange};
use crate::desired::Scheduling;

const SERVERS: [&str; 6] = ["10.1.0.1:80", "10.1.0.2:80", "10.1.0.3:80", "10.1.0.4:80", "10.1.0.5:80", "10.1.0.6:80"];
const BOUND: Duration = Duration::from_secs(30);

fn server(index: usize) -> SocketAddr {
    SERVERS[index].parse().unwrap()
}

fn desired(scheduler: Scheduler, servers: &[(usize, u32)]) -> DesiredVirtualService {
    DesiredVirtualService {
        owner: ObjectRef { kind: Kind::EricIngress, namespace: "default".into(), name: "a".into() },
        scheduling: Scheduling::of(scheduler),
        forwarding: ForwardingMethod::Masquerade,
        real_servers: servers.iter().map(|(index, weight)| (server(*index), Weight(*weight))).collect(),
        filter: crate::desired::Filter::NONE,
    }
}

/// In the order of the kernel's list.
fn observed(scheduler: Scheduler, servers: &[(usize, u32, u64)]) -> ObservedVirtualService {
    let real_server = |(index, weight, connections): &(usize, u32, u64)| ObservedRealServer {
        address: server(*index),
        forwarding: Some(ForwardingMethod::Masquerade),
        weight: Weight(*weight),
        connections: *connections,
    };
    let fallback = scheduler == Scheduler::MaglevHashing;
    let mode = Some(ServiceMode { scheduling: Scheduling::of(scheduler), fallback });
    ObservedVirtualService { mode, real_servers: servers.iter().map(real_server).collect() }
}

fn key(protocol: Protocol) -> ServiceKey {
    ServiceKey { vip: "10.0.0.1".parse().unwrap(), protocol, ports: PortRange::new(80, 80).unwrap() }
}

/// `+1:1` for an addition with weight 1, `=1:0` for a weight, `-1` for a removal; servers counted from 1.
fn words(changes: &[RealServerChange]) -> String {
    let number = |address: SocketAddr| SERVERS.iter().position(|server| *server == address.to_string()).unwrap() + 1;
    let word = |change: &RealServerChange| match change {
        RealServerChange::Add(address, weight) => format!("+{}:{weight}", number(*address)),
        RealServerChange::Weigh(address, weight) => format!("={}:{weight}", number(*address)),
        RealServerChange::Remove(address) => format!("-{}", number(*address)),
    };
    changes.iter().map(word).collect::<Vec<_>>().join(" ")
}

#[track_caller]
fn assert_changes(scheduler: Scheduler, wanted: &[(usize, u32)], there: &[(usize, u32, u64)], expected: &str) {
    let desired = desired(scheduler, wanted);
    let found = changes(&desired, &desired.real_servers, &observed(scheduler, there).real_servers);
    assert_eq!(words(&found), expected);
}

#[test]
fn a_new_list_is_filled_from_its_end() {
    assert_changes(Scheduler::RoundRobin, &[(0, 1), (1, 1)], &[], "+2:1 +1:1");
    assert_changes(Scheduler::MaglevHashing, &[(0, 1), (1, 0)], &[], "+2:1 =2:0 +1:1");
}

#[test]
fn what_is_as_it_should_be_is_left_alone() {
    for scheduler in [Scheduler::LeastConnection, Scheduler::SourceHashing, Scheduler::MaglevHashing] {
        assert_changes(scheduler, &[(0, 1), (1, 1), (2, 0)], &[(0, 1, 0), (1, 1, 5), (2, 0, 1)], "");
    }
}

#[test]
fn without_hashing_the_order_does_not_matter() {
    assert_changes(Scheduler::LeastConnection, &[(0, 1), (1, 1), (2, 1)], &[(2, 1, 0), (0, 1, 0)], "+2:1");
}

#[test]
fn with_hashing_only_what_stands_in_front_of_a_newcomer_is_added_anew() {
    assert_changes(Scheduler::SourceHashing, &[(0, 1), (1, 1), (2, 1)], &[(0, 1, 9), (2, 1, 9)], "+2:1 -1 +1:1");
    assert_changes(Scheduler::SourceHashing, &[(0, 1), (1, 1), (2, 1)], &[(0, 1, 9), (1, 1, 9)], "+3:1 -2 +2:1 -1 +1:1");
    assert_changes(Scheduler::SourceHashing, &[(0, 1), (1, 1), (2, 1)], &[(1, 1, 9), (2, 1, 9)], "+1:1");
    assert_changes(Scheduler::SourceHashing, &[(0, 1), (2, 1)], &[(0, 1, 9), (1, 0, 0), (2, 1, 9)], "-2");
}

#[test]
fn another_forwarding_method_needs_a_new_entry() {
    let mut wanted = desired(Scheduler::RoundRobin, &[(0, 1)]);
    wanted.forwarding = ForwardingMethod::DirectRouting;
    let there = observed(Scheduler::RoundRobin, &[(0, 1, 3)]);
    assert_eq!(words(&changes(&wanted, &wanted.real_servers, &there.real_servers)), "-1 +1:1");
}

#[track_caller]
fn assert_target(
    protocol: Protocol,
    there: &[(usize, u32, u64)],
    quiesced_for: Option<u64>,
    expected: &[(usize, u32)],
    wakes: Option<u64>,
) {
    let now = Instant::now() + Duration::from_secs(3600);
    let wanted = desired(Scheduler::RoundRobin, &[(0, 1)]);
    let key = key(protocol);
    let quiesced = quiesced_for.map(|seconds| ((key, server(1)), now - Duration::from_secs(seconds))).into_iter().collect();
    let found = target(key, &wanted, &observed(Scheduler::RoundRobin, there), &quiesced, BOUND, now);
    assert_eq!(found.servers, expected.iter().map(|(index, weight)| (server(*index), Weight(*weight))).collect());
    assert_eq!(found.wake_at.map(|at| (at - now).as_secs()), wakes);
}

#[test]
fn a_real_server_that_goes_is_quiesced_until_it_is_idle_or_its_time_is_over() {
    use Protocol::{Sctp, Tcp, Udp};
    assert_target(Tcp, &[(0, 1, 0), (1, 1, 0)], None, &[(0, 1), (1, 0)], None);
    assert_target(Tcp, &[(0, 1, 0), (1, 0, 4)], Some(1), &[(0, 1), (1, 0)], Some(2));
    assert_target(Sctp, &[(0, 1, 0), (1, 0, 4)], Some(29), &[(0, 1), (1, 0)], Some(1));
    assert_target(Tcp, &[(0, 1, 0), (1, 0, 4)], Some(30), &[(0, 1)], None);
    assert_target(Tcp, &[(0, 1, 0), (1, 0, 0)], Some(0), &[(0, 1)], None);
    assert_target(Udp, &[(0, 1, 0), (1, 1, 4)], None, &[(0, 1)], None);
}

#[test]
fn source_hashing_falls_back_only_while_somebody_is_quiesced() {
    let fallback = |scheduler, weight| {
        let wanted = desired(scheduler, &[(0, 1), (1, weight)]);
        mode(&wanted, &wanted.real_servers).fallback
    };
    assert!(!fallback(Scheduler::SourceHashing, 1) && fallback(Scheduler::SourceHashing, 0));
    assert!(fallback(Scheduler::MaglevHashing, 1) && fallback(Scheduler::MaglevHashing, 0));
    assert!(!fallback(Scheduler::RoundRobin, 0));
}

/// As the kernel does it, with what a hashing scheduler remembers of each server: the last weight that was not 0.
fn carry_out(list: &mut Vec<(SocketAddr, Weight, Weight)>, changes: &[RealServerChange]) {
    for change in changes {
        match *change {
            RealServerChange::Add(address, weight) => {
                assert!(list.iter().all(|(there, ..)| *there != address), "{address} is there already");
                list.insert(0, (address, weight, weight));
            }
            RealServerChange::Weigh(address, weight) => {
                let found = list.iter_mut().find(|(there, ..)| *there == address).expect("it is there");
                found.1 = weight;
                if !weight.is_quiesced() {
                    found.2 = weight;
                }
            }
            RealServerChange::Remove(address) => {
                assert!(list.iter().any(|(there, ..)| *there == address), "{address} is not there");
                list.retain(|(there, ..)| *there != address);
            }
        }
    }
}

fn some_servers() -> impl Strategy<Value = Vec<(usize, u32)>> {
    prop::collection::btree_map(0..SERVERS.len(), 0..2_u32, 0..SERVERS.len()).prop_map(|map| map.into_iter().collect())
}

proptest! {
    /// A router that has seen many changes and one that starts now end with the same list, so that they hash alike.
    #[test]
    fn any_history_ends_in_the_list_of_a_fresh_start(history in prop::collection::vec(some_servers(), 1..20), source_hashing: bool) {
        let scheduler = if source_hashing { Scheduler::SourceHashing } else { Scheduler::MaglevHashing };
        let mut list = Vec::new();
        for step in &history {
            let wanted = desired(scheduler, step);
            let there: Vec<_> = list
                .iter()
                .map(|(address, weight, _)| ObservedRealServer {
                    address: *address,
                    forwarding: Some(ForwardingMethod::Masquerade),
                    weight: *weight,
                    connections: 1,
                })
                .collect();
            let changes = changes(&wanted, &wanted.real_servers, &there);
            // Who stays is away only between two commands of one batch.
            let stays: BTreeSet<SocketAddr> = there.iter().map(|server| server.address).filter(|address| wanted.real_servers.contains_key(address)).collect();
            for pair in changes.windows(2) {
                if let RealServerChange::Remove(address) = pair[0] && stays.contains(&address) {
                    prop_assert!(matches!(pair[1], RealServerChange::Add(next, _) if next == address));
                }
            }
            carry_out(&mut list, &changes);
            let mut fresh = Vec::new();
            carry_out(&mut fresh, &creation(&wanted).real_servers);
            let order = |list: &[(SocketAddr, Weight, Weight)]| list.iter().map(|(address, weight, _)| (*address, *weight)).collect::<Vec<_>>();
            prop_assert_eq!(order(&list), order(&fresh));
            if !source_hashing {
                prop_assert_eq!(&list, &fresh);
            }
        }
    }
}
