// SPDX-License-Identifier: Apache-2.0
//! Addresses and the ownership record on a real kernel, in namespaces. Needs root, `ip` and `nft`.
#![allow(clippy::disallowed_macros, clippy::expect_used, clippy::unwrap_used, reason = "a test fails by a panic, and prints its figures")]

mod common;
#[path = "kernel_address/hints.rs"]
mod hints;
#[path = "kernel_address/moving.rs"]
mod moving;
#[path = "kernel_address/record.rs"]
mod record;

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::os::unix::process::ExitStatusExt as _;
use std::process::Command;
use std::time::{Duration, Instant};

use common::{Namespace, machine_addresses};
use nix::sys::signal::Signal;
use vipherald::actuator::{Kernel, KernelError, RecordError};
use vipherald::observed::{ADDRESS_PROTOCOL, InterfaceState, KernelState, ObservedAddress, Record};
use vipherald::plan::Step;

const LIMIT: Duration = Duration::from_secs(10);

fn ip(address: &str) -> IpAddr {
    address.parse().unwrap()
}

fn set(addresses: &[&str]) -> BTreeSet<IpAddr> {
    addresses.iter().copied().map(ip).collect()
}

fn ours(address: &str) -> (IpAddr, ObservedAddress) {
    with_protocol(address, Some(ADDRESS_PROTOCOL))
}

fn with_protocol(address: &str, protocol: Option<u8>) -> (IpAddr, ObservedAddress) {
    let address = ip(address);
    (address, ObservedAddress { prefix_length: if address.is_ipv4() { 32 } else { 128 }, protocol })
}

fn on_interface(state: &KernelState) -> Vec<(IpAddr, ObservedAddress)> {
    state.addresses.iter().map(|(address, observed)| (*address, *observed)).collect()
}

async fn kernel() -> Kernel {
    Kernel::new("lo", "vipherald").await.unwrap()
}

async fn all_ok(kernel: &mut Kernel, steps: &[Step]) {
    for (step, result) in steps.iter().zip(kernel.execute_all(steps).await) {
        result.unwrap_or_else(|error| panic!("{step:?}: {error}"));
    }
}

/// The way in of a VIP, as the planner orders it.
async fn place(kernel: &mut Kernel, vips: &BTreeSet<IpAddr>) {
    all_ok(kernel, &[Step::RecordPending(vips.clone().into())]).await;
    all_ok(kernel, &vips.iter().copied().map(Step::AddAddress).collect::<Vec<_>>()).await;
    all_ok(kernel, &[Step::RecordConfirmed(vips.clone().into())]).await;
}

/// What is observed once nothing is being read any more.
async fn settled(kernel: &mut Kernel) -> KernelState {
    loop {
        let state = kernel.observe().await.unwrap();
        if !kernel.is_busy() {
            return state;
        }
        kernel.changed().await;
    }
}

/// Whether nothing is hinted at for a while.
async fn is_quiet(kernel: &mut Kernel) -> bool {
    tokio::time::timeout(Duration::from_millis(100), kernel.changed()).await.is_err()
}

async fn hinted(kernel: &mut Kernel) {
    tokio::time::timeout(LIMIT, kernel.changed()).await.expect("the change was not noticed");
}

#[test]
fn addresses_look_as_the_customer_wants_them() {
    let namespace = Namespace::new("look");
    namespace.enter(async || {
        let mut kernel = kernel().await;
        all_ok(&mut kernel, &["10.0.0.7", "10.0.0.8", "2001:db8:7::7"].map(|address| Step::AddAddress(ip(address)))).await;
        let shown = namespace.ip("addr show dev lo");
        let lines: Vec<&str> = shown.lines().map(str::trim).collect();
        assert!(lines.contains(&"inet 10.0.0.7/32 scope global lo") && lines.contains(&"inet 10.0.0.8/32 scope global lo"), "{shown}");
        let v6 = lines.iter().find(|line| line.starts_with("inet6 2001:db8:7::7/128 scope global "));
        assert!(v6.is_some_and(|line| line.contains("deprecated")), "{shown}");
        assert!(!shown.contains("tentative"), "{shown}");

        let state = kernel.observe().await.unwrap();
        assert_eq!(on_interface(&state), [ours("10.0.0.7"), ours("10.0.0.8"), ours("2001:db8:7::7")]);
        assert_eq!(state.interface, InterfaceState::Up);

        all_ok(&mut kernel, &["10.0.0.7", "2001:db8:7::7"].map(|address| Step::RemoveAddress(ip(address)))).await;
        assert_eq!(on_interface(&kernel.observe().await.unwrap()), [ours("10.0.0.8")]);
    });
}

/// The kernel tells of an IPv6 address later than it acknowledges the request.
#[test]
fn what_was_added_or_removed_is_seen_at_once() {
    let namespace = Namespace::new("at-once");
    namespace.enter(async || {
        let mut kernel = kernel().await;
        for round in 1..=200_u16 {
            let vip = IpAddr::from([0x2001, 0xdb8, 7, 0, 0, 0, 0, round]);
            all_ok(&mut kernel, &[Step::AddAddress(vip)]).await;
            assert_eq!(on_interface(&kernel.observe().await.unwrap()), [ours(&vip.to_string())]);
            all_ok(&mut kernel, &[Step::RemoveAddress(vip)]).await;
            assert_eq!(on_interface(&kernel.observe().await.unwrap()), []);
        }
    });
}

#[test]
fn there_already_and_gone_already_are_success() {
    let namespace = Namespace::new("twice");
    namespace.enter(async || {
        let mut kernel = kernel().await;
        for address in ["10.0.0.7", "2001:db8:7::7"].map(ip) {
            for step in [Step::AddAddress(address), Step::AddAddress(address), Step::RemoveAddress(address), Step::RemoveAddress(address)] {
                kernel.execute(&step).await.unwrap_or_else(|error| panic!("{step:?}: {error}"));
            }
        }
        assert_eq!(on_interface(&kernel.observe().await.unwrap()), []);
    });
}

#[test]
fn a_foreign_address_is_used_and_not_changed() {
    let namespace = Namespace::new("foreign");
    namespace.ip("addr add 10.0.0.7/32 dev lo label lo:theirs scope link");
    namespace.ip("addr add 2001:db8:7::7/128 dev lo");
    let before = namespace.ip("addr show dev lo");
    namespace.enter(async || {
        let mut kernel = kernel().await;
        all_ok(&mut kernel, &["10.0.0.7", "2001:db8:7::7"].map(|address| Step::AddAddress(ip(address)))).await;
        let expected = [with_protocol("10.0.0.7", None), with_protocol("2001:db8:7::7", None)];
        assert_eq!(on_interface(&kernel.observe().await.unwrap()), expected);
    });
    assert_eq!(namespace.ip("addr show dev lo"), before);
}

#[test]
fn a_foreign_address_of_another_length_stays() {
    let namespace = Namespace::new("length");
    namespace.ip("addr add 10.0.0.7/24 dev lo");
    namespace.enter(async || {
        let mut kernel = kernel().await;
        let foreign = ObservedAddress { prefix_length: 24, protocol: None };
        assert_eq!(on_interface(&kernel.observe().await.unwrap()), [(ip("10.0.0.7"), foreign)]);
        kernel.execute(&Step::AddAddress(ip("10.0.0.7"))).await.unwrap();
        assert_eq!(on_interface(&kernel.observe().await.unwrap()), [ours("10.0.0.7")]);
        kernel.execute(&Step::RemoveAddress(ip("10.0.0.7"))).await.unwrap();
        kernel.execute(&Step::RemoveAddress(ip("10.0.0.7"))).await.unwrap();
        assert_eq!(on_interface(&kernel.observe().await.unwrap()), [(ip("10.0.0.7"), foreign)]);
    });
}

#[test]
fn the_protocol_number_of_another_program_is_read() {
    let namespace = Namespace::new("proto");
    namespace.enter(async || {
        add_with_protocol("10.0.0.7", 200).await;
        let mut kernel = kernel().await;
        kernel.execute(&Step::AddAddress(ip("10.0.0.7"))).await.unwrap();
        assert_eq!(on_interface(&kernel.observe().await.unwrap()), [with_protocol("10.0.0.7", Some(200))]);
    });
}

/// As kernels below 5.18 do it: no address has a protocol number, the record has to suffice.
/// Each new [`Kernel`] is a process that was killed and started again.
#[test]
fn what_a_killed_process_left_is_read_by_the_next() {
    let namespace = Namespace::new("kill");
    namespace.enter(async || {
        let vips = set(&["10.0.0.7", "2001:db8:7::7"]);
        let addresses = vec![ours("10.0.0.7"), ours("2001:db8:7::7")];
        let pending = Record { exists: true, pending: vips.clone(), ..Record::default() };
        let confirmed = Record { exists: true, confirmed: vips.clone(), ..Record::default() };
        let empty = Record { exists: true, ..Record::default() };
        let add = vips.iter().copied().map(Step::AddAddress).collect::<Vec<_>>();
        let remove = vips.iter().copied().map(Step::RemoveAddress).collect::<Vec<_>>();
        let lives = [
            (vec![Step::RecordPending(vips.clone().into())], vec![], &pending),
            (add, addresses.clone(), &pending),
            (vec![Step::RecordConfirmed(vips.clone().into())], addresses, &confirmed),
            (remove, vec![], &confirmed),
            (vec![Step::RecordRemoved(vips.clone().into())], vec![], &empty),
            (vec![Step::DropRecord], vec![], &Record::default()),
        ];
        for (steps, addresses, record) in lives {
            all_ok(&mut kernel().await, &steps).await;
            let state = kernel().await.observe().await.unwrap();
            assert_eq!((on_interface(&state), &state.record), (addresses, record), "after {steps:?}");
        }
    });
}

#[test]
fn a_step_that_is_cut_off_leaves_no_false_knowledge() {
    let namespace = Namespace::new("cut");
    namespace.enter(async || {
        let mut kernel = kernel().await;
        for round in 0..40 {
            let vips = set(&["10.0.0.7", "10.0.0.8"]);
            let step = if round % 2 == 0 { Step::RecordConfirmed(vips.into()) } else { Step::RecordRemoved(vips.into()) };
            let _cut_off = tokio::time::timeout(Duration::from_micros(250 * round), kernel.execute(&step)).await;
            let known = settled(&mut kernel).await.record;
            assert!(known.confirmed.is_empty() || known.confirmed.len() == 2, "half a transaction: {known:?}");
            // The process that was cut off may still do its last act; the kernel then hints at it.
            common::wait_until_async("what is known is what is there", LIMIT, async || {
                let known = settled(&mut kernel).await.record;
                known == kernel.observe_fresh().await.unwrap().record
            })
            .await;
        }
    });
}

#[test]
fn the_interface_may_be_made_again_renamed_or_gone() {
    let namespace = Namespace::new("remade");
    namespace.enter(async || {
        let vips = set(&["10.0.0.7"]);
        let mut kernel = Kernel::new("br0", "vipherald").await.unwrap();
        let state = kernel.observe().await.unwrap();
        assert_eq!((state.interface, on_interface(&state)), (InterfaceState::Missing, vec![]));
        let error = kernel.execute(&Step::AddAddress(ip("10.0.0.7"))).await.unwrap_err();
        assert_eq!(error.to_string(), "there is no interface br0");
        kernel.execute(&Step::RemoveAddress(ip("10.0.0.7"))).await.unwrap();

        namespace.ip("link add br0 type bridge");
        hinted(&mut kernel).await;
        assert_eq!(kernel.observe().await.unwrap().interface, InterfaceState::Down);
        namespace.ip("link set br0 up");
        hinted(&mut kernel).await;
        place(&mut kernel, &vips).await;
        let state = kernel.observe().await.unwrap();
        assert_eq!((state.interface, on_interface(&state)), (InterfaceState::Up, vec![ours("10.0.0.7")]));

        namespace.ip("link del br0");
        hinted(&mut kernel).await;
        let state = kernel.observe().await.unwrap();
        assert_eq!((state.interface, on_interface(&state), state.record.confirmed), (InterfaceState::Missing, vec![], vips.clone()));
        namespace.ip("link add br0 type bridge");
        namespace.ip("link set br0 up");
        kernel.execute(&Step::AddAddress(ip("10.0.0.7"))).await.expect("a new index before it was observed");
        assert_eq!(on_interface(&kernel.observe().await.unwrap()), [ours("10.0.0.7")]);

        namespace.ip("link set br0 down");
        namespace.ip("link set br0 name br1");
        hinted(&mut kernel).await;
        let state = kernel.observe().await.unwrap();
        assert_eq!((state.interface, on_interface(&state)), (InterfaceState::Missing, vec![]));
        assert!(state.elsewhere.contains(&ip("10.0.0.7")));
        namespace.ip("link set br1 name br0");
        hinted(&mut kernel).await;
        let state = kernel.observe().await.unwrap();
        assert_eq!((state.interface, on_interface(&state)), (InterfaceState::Down, vec![ours("10.0.0.7")]));
    });
}

#[test]
fn addresses_elsewhere_are_told_apart() {
    let (node, fabric) = (Namespace::new("node"), Namespace::new("fabric"));
    node.veth("eth1", &fabric, "node");
    node.ip("addr add 192.0.2.11/24 dev eth1");
    node.ip("addr add 10.0.0.7/32 dev eth1");
    node.enter(async || {
        let mut kernel = kernel().await;
        let state = kernel.observe().await.unwrap();
        assert_eq!(on_interface(&state), []);
        assert!(state.elsewhere.is_superset(&set(&["192.0.2.11", "10.0.0.7"])), "{:?}", state.elsewhere);
        node.ip("addr del 10.0.0.7/32 dev eth1");
        hinted(&mut kernel).await;
        assert!(!kernel.observe().await.unwrap().elsewhere.contains(&ip("10.0.0.7")));
    });
}

#[test]
fn ipv6_that_is_disabled_is_said_for_each_address() {
    let namespace = Namespace::new("no-v6");
    namespace.ip("link add br0 type bridge");
    namespace.ip("link set br0 up");
    namespace.sysctl("net/ipv6/conf/br0/disable_ipv6", "1");
    namespace.enter(async || {
        let mut kernel = Kernel::new("br0", "vipherald").await.unwrap();
        let steps = ["2001:db8:7::7", "10.0.0.7", "2001:db8:7::8"].map(|address| Step::AddAddress(ip(address)));
        let results: Vec<_> =
            kernel.execute_all(&steps).await.into_iter().map(|result| result.map_err(|error| error.to_string())).collect();
        let disabled = |address| Err(format!("cannot add {address}: IPv6 is disabled on br0 (sysctl net.ipv6.conf.br0.disable_ipv6)"));
        assert_eq!(results, [disabled("2001:db8:7::7"), Ok(()), disabled("2001:db8:7::8")]);
        kernel.execute(&Step::RemoveAddress(ip("2001:db8:7::7"))).await.unwrap();
    });
}

#[test]
fn results_come_in_the_order_of_the_steps() {
    let namespace = Namespace::new("order");
    namespace.enter(async || {
        let mut kernel = kernel().await;
        let vips = set(&["10.0.0.7", "10.0.0.8"]);
        let steps = [
            Step::RecordPending(vips.clone().into()),
            Step::AddAddress(ip("10.0.0.7")),
            Step::StopSpeaker,
            Step::ReleaseSpeaker,
            Step::AddAddress(ip("224.0.0.1")),
            Step::AddAddress(ip("10.0.0.8")),
            Step::DropRecord,
            Step::RecordConfirmed(vips.clone().into()),
        ];
        let succeeded: Vec<bool> = kernel.execute_all(&steps).await.iter().map(Result::is_ok).collect();
        assert_eq!(succeeded, [true, true, false, false, false, true, false, true]);
        let state = kernel.observe().await.unwrap();
        assert_eq!((on_interface(&state), state.record.confirmed), (vec![ours("10.0.0.7"), ours("10.0.0.8")], vips));
    });
}

#[test]
fn no_connection_of_the_node_comes_from_a_vip() {
    let (node, fabric) = (Namespace::new("node"), Namespace::new("fabric"));
    node.veth("eth1", &fabric, "node");
    node.ip("addr add 192.0.2.11/24 dev eth1");
    node.ip("addr add 2001:db8:1::11/64 dev eth1");
    node.ip("route add default via 192.0.2.1");
    node.ip("route add default via 2001:db8:1::1");
    let destinations = ["198.51.100.9:53", "192.0.2.1:53", "10.0.0.9:53", "[2001:db8:9::9]:53", "[2001:db8:1::1]:53", "[2001:db8:7::9]:53"];
    node.enter(async || {
        // In every order in which a node may come up, and with VIPs that share more leading bits with a destination than the node's address.
        place(&mut kernel().await, &set(&["10.0.0.7", "10.0.0.8", "192.0.2.2", "2001:db8:7::7", "2001:db8:7::8", "2001:db8:9::8"])).await;
        for destination in destinations {
            let source = source_towards(destination);
            assert!(source == ip("192.0.2.11") || source == ip("2001:db8:1::11"), "{source} towards {destination}");
        }
    });
}

#[test]
fn an_own_address_of_the_node_on_lo_comes_before_the_vips() {
    let (node, fabric) = (Namespace::new("node"), Namespace::new("fabric"));
    node.veth("eth1", &fabric, "node");
    node.ip("addr add 203.0.113.11/32 dev lo");
    node.ip("addr add 2001:db8:113::11/128 dev lo");
    node.ip("route add default dev eth1");
    node.ip("-6 route add default dev eth1");
    node.enter(async || {
        place(&mut kernel().await, &set(&["10.0.0.7", "203.0.113.7", "2001:db8:7::7", "2001:db8:9::8"])).await;
        for (destination, expected) in [("198.51.100.9:53", "203.0.113.11"), ("[2001:db8:9::9]:53", "2001:db8:113::11")] {
            assert_eq!(source_towards(destination), ip(expected), "towards {destination}");
        }
    });
}

fn source_towards(destination: &str) -> IpAddr {
    let destination: SocketAddr = destination.parse().unwrap();
    let socket = UdpSocket::bind(if destination.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" }).unwrap();
    socket.connect(destination).unwrap();
    socket.local_addr().unwrap().ip()
}

#[test]
fn two_instances_leave_each_other_alone() {
    let namespace = Namespace::new("two");
    namespace.enter(async || {
        let (first_vips, second_vips) = (set(&["10.0.0.7", "10.0.0.8"]), set(&["10.0.1.7", "10.0.0.8"]));
        let placed = [("vipherald", first_vips.clone()), ("vipherald-2", second_vips.clone())].map(|(instance, vips)| {
            tokio::spawn(async move {
                let mut kernel = Kernel::new("lo", instance).await.unwrap();
                place(&mut kernel, &vips).await;
                kernel
            })
        });
        let [first, second] = placed;
        let (mut first, mut second) = (first.await.unwrap(), second.await.unwrap());
        assert_eq!(first.observe_fresh().await.unwrap().record.confirmed, first_vips);
        assert_eq!(second.observe_fresh().await.unwrap().record.confirmed, second_vips);
        all_ok(&mut first, &[Step::RemoveAddress(ip("10.0.0.7")), Step::RecordRemoved(first_vips.into()), Step::DropRecord]).await;
        let state = second.observe_fresh().await.unwrap();
        assert_eq!((on_interface(&state), state.record.confirmed), (vec![ours("10.0.0.8"), ours("10.0.1.7")], second_vips));
        assert_eq!(first.observe_fresh().await.unwrap().record, Record::default());
    });
}

#[test]
fn an_address_that_another_instance_recorded_is_reported_as_claimed() {
    let namespace = Namespace::new("claimed");
    namespace.enter(async || {
        let vips = set(&["10.0.0.7", "2001:db8::7"]);
        let mut first = Kernel::new("lo", "vipherald").await.unwrap();
        let mut second = Kernel::new("lo", "vipherald-2").await.unwrap();
        place(&mut first, &vips).await;
        assert_eq!(second.observe().await.unwrap().claimed_by_others, vips);
        assert_eq!(first.observe().await.unwrap().claimed_by_others, BTreeSet::new());
        all_ok(&mut first, &[Step::RecordRemoved(vips.into())]).await;
        assert_eq!(second.observe_fresh().await.unwrap().claimed_by_others, BTreeSet::new(), "the record of the first is lost");
    });
}

#[test]
fn what_another_instance_records_is_noticed_at_once() {
    let namespace = Namespace::new("beside");
    namespace.enter(async || {
        let vips = set(&["10.0.0.7"]);
        let mut first = Kernel::new("lo", "vipherald").await.unwrap();
        place(&mut first, &vips).await;
        assert_eq!(settled(&mut first).await.claimed_by_others, BTreeSet::new());
        let mut second = Kernel::new("lo", "vipherald-2").await.unwrap();
        all_ok(&mut second, &[Step::RecordPending(vips.clone().into())]).await;
        hinted(&mut first).await;
        assert_eq!(settled(&mut first).await.claimed_by_others, vips);
        all_ok(&mut second, &[Step::RecordRemoved(vips.into())]).await;
        hinted(&mut first).await;
        assert_eq!(settled(&mut first).await.claimed_by_others, BTreeSet::new());
    });
}

#[test]
fn what_two_instances_leave_to_each_other_is_orphaned() {
    let namespace = Namespace::new("orphaned");
    namespace.enter(async || {
        let vips = set(&["10.0.0.7"]);
        for at_once in [false, true] {
            let mut first = Kernel::new("lo", "vipherald").await.unwrap();
            place(&mut first, &vips).await;
            let mut second = Kernel::new("lo", "vipherald-2").await.unwrap();
            all_ok(&mut second, &[Step::RecordConfirmed(vips.clone().into())]).await;
            for kernel in [&mut first, &mut second] {
                common::wait_until_async("each knows of the other", LIMIT, async || settled(kernel).await.claimed_by_others == vips).await;
            }
            all_ok(&mut first, &[Step::RecordRemoved(vips.clone().into())]).await;
            if !at_once {
                let left = settled(&mut first).await;
                assert_eq!((left.claimed_by_others, left.orphaned), (vips.clone(), BTreeSet::new()));
                let second = &mut second;
                common::wait_until_async("it is alone", LIMIT, async || settled(second).await.claimed_by_others.is_empty()).await;
            }
            all_ok(&mut second, &[Step::RecordRemoved(vips.clone().into())]).await;
            let last = settled(&mut second).await;
            assert_eq!(last.orphaned, if at_once { vips.clone() } else { BTreeSet::new() });
            all_ok(&mut second, &[Step::RemoveAddress(ip("10.0.0.7"))]).await;
            assert_eq!(settled(&mut second).await.orphaned, BTreeSet::new());
        }
    });
}

#[test]
fn a_set_that_somebody_uses_keeps_nobody_from_leaving() {
    let namespace = Namespace::new("used");
    namespace.enter(async || {
        let vips = set(&["10.0.0.7"]);
        let mut kernel = Kernel::new("lo", "vipherald").await.unwrap();
        place(&mut kernel, &vips).await;
        namespace.nft(
            "add chain inet vipherald mine { type filter hook input priority 0; }\nadd rule inet vipherald mine ip daddr @placed4 accept",
        );
        all_ok(&mut kernel, &[Step::RemoveAddress(ip("10.0.0.7")), Step::RecordRemoved(vips.into())]).await;
        settled(&mut kernel).await;
        all_ok(&mut kernel, &[Step::DropRecord]).await;
        assert!(!kernel.observe().await.unwrap().record.exists);
        assert!(namespace.output(&["nft", "list", "table", "inet", "vipherald"]).contains("@placed4 accept"));
    });
}

#[test]
fn an_address_under_duplicate_detection_is_not_usable_yet() {
    let namespace = Namespace::new("tentative");
    let far = Namespace::new("tentative-far");
    namespace.veth("eth1", &far, "eth1");
    namespace.sysctl("net/ipv6/conf/eth1/accept_dad", "1");
    far.ip("addr add 2001:db8:7::1/64 dev eth1");
    namespace.ip("addr add 2001:db8:7::1/128 dev eth1");
    namespace.enter(async || {
        let mut kernel = Kernel::new("eth1", "vipherald").await.unwrap();
        let vips = set(&["2001:db8:7::1"]);
        assert_eq!(kernel.observe().await.unwrap().unusable.intersection(&vips).count(), 1);
        namespace.ip("addr del 2001:db8:7::1/128 dev eth1");
        assert_eq!(kernel.observe().await.unwrap().unusable.intersection(&vips).count(), 0);
    });
}

#[test]
fn the_next_hops_of_all_routes_are_gateways() {
    let namespace = Namespace::new("gateways");
    namespace.ip("link add eth1 type veth peer name far");
    for words in ["link set eth1 up", "link set far up", "addr add 192.0.2.1/24 dev eth1", "addr add 2001:db8:1::1/64 dev eth1"] {
        namespace.ip(words);
    }
    namespace.enter(async || {
        let mut kernel = Kernel::new("lo", "vipherald").await.unwrap();
        assert_eq!(kernel.observe().await.unwrap().gateways, BTreeSet::new());
        namespace.ip("route add default via 192.0.2.254");
        namespace.ip("route add 198.51.100.0/24 nexthop via 192.0.2.253 nexthop via 192.0.2.252");
        namespace.ip("route add default via 2001:db8:1::fe");
        let found = kernel.observe_fresh().await.unwrap().gateways;
        assert_eq!(found, set(&["192.0.2.252", "192.0.2.253", "192.0.2.254", "2001:db8:1::fe"]));
    });
}

#[test]
fn the_address_that_means_all_hosts_of_a_link_is_told() {
    let namespace = Namespace::new("broadcast");
    namespace.ip("link add eth1 type veth peer name far");
    for words in ["link set eth1 up", "link set far up", "addr add 192.0.2.1/25 dev eth1", "addr add 198.51.100.0/31 dev eth1"] {
        namespace.ip(words);
    }
    namespace.enter(async || {
        let mut kernel = Kernel::new("lo", "vipherald").await.unwrap();
        let links = kernel.observe().await.unwrap().links;
        let of_links: Vec<&IpAddr> = links.broadcast.iter().filter(|address| !address.is_loopback()).collect();
        assert_eq!(of_links, [&ip("192.0.2.127")]);
        assert!(links.reach(ip("192.0.2.126")));
    });
}

#[test]
fn five_thousand_addresses_are_quick() {
    const COUNT: u32 = 5000;
    /// What is expected of an idle machine, and how much longer a busy one may take.
    const TARGET: Duration = Duration::from_millis(1500);
    const SLACK: u32 = 10;
    let namespace = Namespace::new("many");
    namespace.enter(async || {
        let vips: BTreeSet<IpAddr> = (0..COUNT).map(|n| IpAddr::V4(Ipv4Addr::from_bits(0x0a01_0000 + n))).collect();
        let mut kernel = kernel().await;
        let mut timed = async |what: &str, steps: Vec<Step>| {
            let begin = Instant::now();
            all_ok(&mut kernel, &steps).await;
            let took = begin.elapsed();
            let begin = Instant::now();
            let state = kernel.observe().await.unwrap();
            let observed = begin.elapsed();
            let begin = Instant::now();
            kernel.observe_fresh().await.unwrap();
            println!("{COUNT} addresses: {what} {took:?}; observe {observed:?}, with the record read again {:?}", begin.elapsed());
            assert!(took < TARGET * SLACK && observed < TARGET * SLACK, "{what}: {took:?}, observe: {observed:?}");
            state
        };
        timed("recorded as pending", vec![Step::RecordPending(vips.clone().into())]).await;
        let state = timed("placed", vips.iter().copied().map(Step::AddAddress).collect()).await;
        assert_eq!(state.addresses.len(), COUNT as usize);
        let state = timed("recorded as confirmed", vec![Step::RecordConfirmed(vips.clone().into())]).await;
        assert_eq!((state.record.confirmed.len(), state.record.pending.len()), (COUNT as usize, 0));
        let state = timed("removed", vips.iter().copied().map(Step::RemoveAddress).collect()).await;
        assert!(state.addresses.is_empty());
        let state = timed("taken out of the record", vec![Step::RecordRemoved(vips.clone().into())]).await;
        assert_eq!(state.record, Record { exists: true, ..Record::default() });
    });
}

#[test]
fn the_machines_own_addresses_stay_as_they_are() {
    let before = machine_addresses();
    let namespace = Namespace::new("machine");
    namespace.enter(async || place(&mut kernel().await, &set(&["10.0.0.7", "2001:db8:7::7"])).await);
    assert!(namespace.ip("addr show dev lo").contains("10.0.0.7"));
    assert_eq!(machine_addresses(), before);
    drop(namespace);
    assert_eq!(machine_addresses(), before);
}

#[test]
fn what_a_test_starts_ends_with_it() {
    let namespace = Namespace::new("processes");
    let first = namespace.spawn(namespace.command("sh").args(["-c", "ip -br link; echo done; exec sleep 1000"]));
    common::wait_until("the log is written", LIMIT, || first.log().ends_with("done\n"));
    assert!(first.log().starts_with("lo ") && !first.log().contains("eth0"), "{}", first.log());
    first.signal(Signal::SIGTERM);
    assert_eq!(first.wait(LIMIT).signal(), Some(Signal::SIGTERM as i32));
    let second = namespace.spawn(namespace.command("sleep").arg("1000"));
    assert!(second.is_running() && !first.is_running());
    second.kill();
    assert!(!second.is_running());
    let third = namespace.spawn(namespace.command("sleep").arg("1000"));
    let name = namespace.name().to_owned();
    drop(namespace);
    assert!(!third.is_running());
    assert!(!common::run(Command::new("ip").args(["netns", "list"])).contains(&name));
}

/// Adds a /32 to `lo` as a program does that has this protocol number; `ip` of Debian 12 cannot.
async fn add_with_protocol(address: &str, protocol: u8) {
    use netlink_packet_route::address::{AddressAttribute, AddressProtocol};
    let (connection, handle, _unsolicited) = rtnetlink::new_connection().unwrap();
    tokio::spawn(connection);
    let mut request = handle.address().add(1, ip(address), 32);
    request.message_mut().attributes.push(AddressAttribute::Protocol(AddressProtocol::Other(protocol)));
    request.execute().await.unwrap();
}
