// SPDX-License-Identifier: Apache-2.0
//! Daemons whose VIPs virtual routers have, beside a ToR with BIRD and real servers on the same link: fail-over, who has a VIP, and changes of the mode under
//! traffic. nft balances, on the machine's own kernel.

#![allow(clippy::unwrap_used, reason = "a failed test says where")]

mod common;
#[path = "common/link.rs"]
mod link;
#[path = "common/neighbours.rs"]
mod neighbours;
#[path = "common/site.rs"]
mod site;
#[path = "common/stage.rs"]
mod stage;
#[path = "common/stream.rs"]
mod stream;
#[path = "vrrp_mode/virtual_mac.rs"]
mod virtual_mac;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use common::{Namespace, Process, wait_until};
use link::{PATIENCE, has};
use nix::sys::signal::Signal;
use site::{Node, Probes, Site};
use stage::Stage;
use stream::Stream;

const VIP: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 97, 0, 100));
const VIP6: IpAddr = IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0x97, 0, 0, 0, 0, 0x100));
const ADDED: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 97, 0, 101));

/// Whether the VIP is on `vips.interface`.
fn is_on_lo(host: &Namespace, vip: IpAddr) -> bool {
    host.ip(&format!("-o address show dev lo to {vip}")).contains(&vip.to_string())
}

fn serves(node: &Node<'_>, reason: &str) -> bool {
    node.vip(VIP).is_some_and(|vip| vip["state"] == "Announced" && vip["reason"] == reason)
}

/// The keys of the group for a node: everybody but itself is a peer.
fn peers_of(host: u8) -> String {
    let other = 3 - host;
    format!("peers: [10.97.0.{other}, \"2001:db8:97::{other}\"], ")
}

#[test]
fn one_node_has_the_vips_and_both_balance_and_it_moves_when_that_node_stops() {
    let site = Site::new("nftables", "pair");
    let nodes = [1, 2].map(|host| site.node(host, "vrrp", &format!("{}priority: {}", peers_of(host), 201 - host)));
    nodes.iter().for_each(|node| node.publish("web", &[VIP, VIP6]));
    let [first, second] = nodes;
    let running = first.run();
    wait_until("the first one is Active", PATIENCE, || serves(&first, "Active"));
    let _other = second.run();
    wait_until("the second one is Backup", PATIENCE, || serves(&second, "Backup"));
    let message = second.vip(VIP).unwrap()["message"].to_string();
    assert!(message.contains("10.97.0.1 has it, as the Active Router of group vips (VRID 106 on eth0)"), "{message}");
    for vip in [VIP, VIP6] {
        assert!(has(first.host, vip) && !has(second.host, vip) && ![&first, &second].iter().any(|node| is_on_lo(node.host, vip)), "{vip}");
        wait_until("the VIP answers", PATIENCE, || site.asks(vip));
    }
    assert!(second.host.output(&["nft", "list", "table", "ip", "vipherald"]).contains("10.97.0.100"), "who is Backup balances, too");
    assert!(site.learned().is_empty(), "BGP announces none of them");
    // A VIP that comes is at once where the others are.
    [&first, &second].iter().for_each(|node| node.publish("more", &[ADDED]));
    wait_until("one more", PATIENCE, || has(first.host, ADDED) && site.asks(ADDED));
    running.signal(Signal::SIGTERM);
    assert!(running.wait(PATIENCE).success());
    wait_until("the second one is Active", PATIENCE, || serves(&second, "Active"));
    for vip in [VIP, VIP6, ADDED] {
        assert!(!has(first.host, vip) && has(second.host, vip), "{vip}");
        wait_until("the VIP answers", PATIENCE, || site.asks(vip));
    }
    assert_eq!(first.host.output(&["nft", "list", "tables"]), "", "the one that left has nothing left");
}

/// One node alone, and a TCP connection that goes on all the while.
#[test]
fn the_mode_of_a_node_alone_changes_ten_times_each_way_and_nothing_is_lost() {
    let site = Site::new("nftables", "alone");
    let node = site.node(1, "bgp", "peers: []");
    node.publish("web", &[VIP]);
    let running = node.run();
    wait_until("BIRD has learned it", PATIENCE, || site.learned() == [VIP]);
    wait_until("it answers", PATIENCE, || site.asks(VIP));
    let probes = Probes::start(&site.link.client, VIP);
    let mut connection = Stage::connect_in(&site.link.client, None, &VIP.to_string(), 80).unwrap();
    for _ in 0..10 {
        node.switch(&running, "vrrp");
        wait_until("the virtual router has it", PATIENCE, || {
            serves(&node, "Active") && site.learned().is_empty() && !is_on_lo(node.host, VIP)
        });
        assert!(has(node.host, VIP));
        probes.go_on();
        assert!(connection.works());
        node.switch(&running, "bgp");
        wait_until("BGP has it", PATIENCE, || site.learned() == [VIP] && serves(&node, "Served") && !has(node.host, VIP));
        assert!(is_on_lo(node.host, VIP));
        probes.go_on();
        assert!(connection.works());
    }
    let (asked, lost) = probes.lost();
    assert!(lost.is_empty(), "{} of {asked} lost: {lost:?}", lost.len());
}

/// A rolling change: one node after the other, each way.
#[test]
fn the_mode_of_two_nodes_changes_one_after_the_other_and_nothing_is_lost() {
    let site = Site::new("nftables", "rolling");
    let nodes = [1, 2].map(|host| site.node(host, "bgp", &format!("{}preempt: false", peers_of(host))));
    nodes.iter().for_each(|node| node.publish("web", &[VIP]));
    let running = nodes.each_ref().map(Node::run);
    for node in &nodes {
        wait_until("it is announced", PATIENCE, || serves(node, "Served"));
    }
    wait_until("it answers", PATIENCE, || site.asks(VIP));
    let probes = Probes::start(&site.link.client, VIP);
    for _ in 0..3 {
        for (node, running) in nodes.iter().zip(&running) {
            node.switch(running, "vrrp");
            wait_until("a virtual router has it", PATIENCE, || {
                (serves(node, "Active") || serves(node, "Backup")) && !is_on_lo(node.host, VIP)
            });
            probes.go_on();
        }
        assert_eq!(nodes.iter().filter(|node| has(node.host, VIP)).count(), 1);
        assert!(site.learned().is_empty());
        for (node, running) in nodes.iter().zip(&running) {
            node.switch(running, "bgp");
            wait_until("BGP has it", PATIENCE, || serves(node, "Served") && !has(node.host, VIP));
            probes.go_on();
        }
    }
    let (asked, lost) = probes.lost();
    assert!(lost.is_empty(), "{} of {asked} lost: {lost:?}", lost.len());
}

/// Two nodes, of which the first one is Active; they take nothing back.
fn pair(site: &Site) -> [(Node<'_>, Process); 2] {
    pair_of(site, |host| format!("{}priority: {}, preempt: false", peers_of(host), 201 - host))
}

/// The first one is Active, and has the VIP; the second one is Backup. `keys`: of the group of each.
fn pair_of(site: &Site, keys: impl Fn(u8) -> String) -> [(Node<'_>, Process); 2] {
    let nodes = [1, 2].map(|host| site.node(host, "vrrp", &keys(host)));
    nodes.iter().for_each(|node| node.publish("web", &[VIP]));
    let [first, second] = nodes;
    let running = first.run();
    wait_until("the first one is Active", PATIENCE, || serves(&first, "Active"));
    let other = second.run();
    wait_until("the second one is Backup", PATIENCE, || serves(&second, "Backup"));
    wait_until("the VIP answers", PATIENCE, || site.asks(VIP));
    [(first, running), (second, other)]
}

#[test]
fn who_stops_loses_no_more_than_five_of_a_thousand_questions_a_second() {
    let site = Site::new("nftables", "stops");
    let [(first, running), (second, _other)] = pair(&site);
    let stream = Stream::start(&site.link.client, SocketAddr::new(VIP, 7));
    running.signal(Signal::SIGTERM);
    assert!(running.wait(PATIENCE).success());
    wait_until("the second one is Active", PATIENCE, || serves(&second, "Active"));
    stream.goes_on();
    let outcome = stream.end();
    assert!(outcome.lost <= 5, "{outcome:?}");
    assert!(!has(first.host, VIP) && has(second.host, VIP));
}

/// What a kill has left on the link answers nobody while the node starts again, and goes.
#[test]
fn who_is_killed_is_followed_and_comes_back_without_a_loss() {
    let site = Site::new("nftables", "killed");
    let [(first, running), (second, _other)] = pair(&site);
    let stream = Stream::start(&site.link.client, SocketAddr::new(VIP, 7));
    running.kill();
    wait_until("the second one is Active", PATIENCE, || serves(&second, "Active"));
    stream.goes_on();
    let outcome = stream.end();
    // Three advertisement intervals and the skew time, and what a busy machine takes.
    assert!(outcome.longest < Duration::from_secs(2), "{outcome:?}");
    assert!(has(first.host, VIP), "the leftover");
    let stream = Stream::start(&site.link.client, SocketAddr::new(VIP, 7));
    let _again = first.run();
    wait_until("it is Backup", PATIENCE, || serves(&first, "Backup"));
    wait_until("the leftover is gone", PATIENCE, || !has(first.host, VIP));
    stream.goes_on();
    let outcome = stream.end();
    assert_eq!(outcome.lost, 0, "{outcome:?}");
    site.link.wait_until_known_at(VIP, second.host);
}

/// The groups of a node, as it shows them.
fn shown(node: &Node<'_>) -> String {
    node.shown("vrrp").map(|shown| shown["vrrp"].to_string()).unwrap_or_default()
}

#[test]
fn who_cannot_program_its_dataplane_hands_over_and_is_better_than_nobody() {
    let site = Site::new("nftables", "broken");
    let [(first, running), (second, other)] = pair(&site);
    let stream = Stream::start(&site.link.client, SocketAddr::new(VIP, 7));
    first.break_nft(true);
    [&first, &second].iter().for_each(|node| node.publish("more", &[ADDED]));
    wait_until("the second one is Active", PATIENCE, || serves(&second, "Active") && has(second.host, ADDED));
    wait_until("what came meanwhile is served", PATIENCE, || site.asks(ADDED));
    stream.goes_on();
    let outcome = stream.end();
    assert!(outcome.longest < Duration::from_secs(1), "{outcome:?}");
    assert!(shown(&first).contains("this node has priority 1: "), "{}", shown(&first));
    // Where nobody else is, it has what it could have before.
    other.signal(Signal::SIGTERM);
    assert!(other.wait(PATIENCE).success());
    wait_until("the first one has it again", PATIENCE, || has(first.host, VIP) && site.asks(VIP));
    assert!(shown(&first).contains("this node has priority 1: "), "{}", shown(&first));
    first.break_nft(false);
    wait_until("it is well again", PATIENCE, || has(first.host, ADDED) && site.asks(ADDED) && !shown(&first).contains("priority 1: "));
    wait_until("its own priority counts again", PATIENCE, || !shown(&first).contains("this node has priority 1"));
    let said = |text: &str| running.log().matches(text).count();
    assert_eq!((said("cannot read the ownership record"), said("can be read again")), (1, 1), "{}", running.log());
}

/// Its packets make an entry of the connection table while the VIP is away, which lives as long as it sends.
#[test]
fn a_udp_client_that_goes_on_while_the_vip_is_away_is_answered_once_it_is_back() {
    let site = Site::new("nftables", "udp");
    let node = site.node(1, "vrrp", "peers: []");
    node.host.sysctl("net/ipv4/ip_forward", "1");
    node.host.ip("route add default via 10.97.0.2");
    node.publish("web", &[VIP]);
    let _running = node.run();
    wait_until("it is Active", PATIENCE, || serves(&node, "Active"));
    let socket = site.link.client.run(|| UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap());
    socket.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    let asks = || {
        socket.send_to(b"?", SocketAddr::new(VIP, 7)).unwrap();
        socket.recv(&mut [0; 8]).is_ok()
    };
    wait_until("it is answered", PATIENCE, asks);
    node.unpublish("web");
    wait_until("the VIP is away", PATIENCE, || !asks() && !has(node.host, VIP));
    let untranslated =
        || node.host.output(&["conntrack", "-L", "-p", "udp", "--orig-dst", "10.97.0.100"]).contains("src=10.97.0.100 dst=10.97.0.3");
    wait_until("there is an entry of it", PATIENCE, || !asks() && untranslated());
    node.publish("web", &[VIP]);
    wait_until("it is answered again", PATIENCE, asks);
}
