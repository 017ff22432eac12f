// SPDX-License-Identifier: Apache-2.0
//! VIPs behind the virtual router MAC (RFC 9568 §7.3), under traffic.

use super::*;
use crate::link::{announce_own_address, device_of, macvlans};
use crate::neighbours::Listener;

/// With VRID 106.
const MAC: &str = "00:00:5e:00:01:6a";

fn keys(host: u8, virtual_mac: bool) -> String {
    format!("priority: {}, preempt: false, virtualMac: {virtual_mac}", 201 - host)
}

fn pair_of(site: &Site, virtual_mac: bool) -> [(Node<'_>, Process); 2] {
    announce_own_address([&site.link.ours, &site.link.theirs]);
    super::pair_of(site, |host| keys(host, virtual_mac))
}

fn is_behind_mac(node: &Node<'_>) -> bool {
    device_of(node.host, VIP).is_some_and(|device| device.starts_with("v4-106-"))
}

#[test]
fn who_stops_is_followed_at_the_same_mac() {
    let site = Site::new("nftables", "vmacstop");
    let listener = Listener::start(&site.link.client);
    let [(first, running), (second, _other)] = pair_of(&site, true);
    assert!(is_behind_mac(&first) && !is_behind_mac(&second));
    let stream = Stream::start(&site.link.client, SocketAddr::new(VIP, 7));
    running.signal(Signal::SIGTERM);
    assert!(running.wait(PATIENCE).success());
    wait_until("the second one is Active", PATIENCE, || serves(&second, "Active") && is_behind_mac(&second));
    stream.goes_on();
    assert!(site.asks(VIP));
    let outcome = stream.end();
    // The first advertisement moves the switch, and the VIP is placed after it.
    assert!(outcome.longest < Duration::from_millis(500), "{outcome:?}");
    assert_eq!(macvlans(first.host), []);
    assert_eq!(first.host.output(&["nft", "list", "tables"]), "");
    assert_eq!(listener.end().get(&VIP), Some(&[MAC.to_owned()].into()));
}

#[test]
fn who_is_killed_is_followed_at_the_same_mac_and_comes_back_without_a_loss() {
    let site = Site::new("nftables", "vmackill");
    let listener = Listener::start(&site.link.client);
    let [(first, running), (second, _other)] = pair_of(&site, true);
    let stream = Stream::start(&site.link.client, SocketAddr::new(VIP, 7));
    running.kill();
    wait_until("the second one is Active", PATIENCE, || serves(&second, "Active"));
    stream.goes_on();
    let outcome = stream.end();
    assert!(outcome.longest < Duration::from_secs(2), "{outcome:?}");
    assert!(is_behind_mac(&first), "the leftover");
    let stream = Stream::start(&site.link.client, SocketAddr::new(VIP, 7));
    let _again = first.run();
    wait_until("it is Backup", PATIENCE, || serves(&first, "Backup"));
    wait_until("the leftover is gone", PATIENCE, || !is_behind_mac(&first) && macvlans(first.host).iter().all(|(_, up)| !up));
    stream.goes_on();
    let outcome = stream.end();
    assert_eq!(outcome.lost, 0, "{outcome:?}");
    assert_eq!(listener.end().get(&VIP), Some(&[MAC.to_owned()].into()));
}

#[test]
fn a_reload_puts_the_vip_behind_the_mac_and_back_and_one_node_has_it() {
    let site = Site::new("nftables", "vmacload");
    let mut nodes = pair_of(&site, false);
    let probes = Probes::start(&site.link.client, VIP);
    for virtual_mac in [true, false, true, false] {
        for (host, (node, running)) in [1, 2].into_iter().zip(&mut nodes).rev() {
            node.group = keys(host, virtual_mac);
            node.switch(running, "vrrp");
            wait_until("it has another MAC, or the other one has it", PATIENCE, || {
                (serves(node, "Active") && is_behind_mac(node) == virtual_mac && device_of(node.host, VIP).is_some())
                    || serves(node, "Backup") && device_of(node.host, VIP).is_none() && macvlans(node.host).is_empty() != virtual_mac
            });
            probes.go_on();
        }
        wait_until("one has it", PATIENCE, || nodes.iter().filter(|(node, _)| device_of(node.host, VIP).is_some()).count() == 1);
        assert!(site.asks(VIP));
    }
    for (node, _) in &nodes {
        wait_until("no link is left", PATIENCE, || macvlans(node.host).is_empty());
    }
    let (asked, lost) = probes.lost();
    assert!(lost.len() <= 8, "{} of {asked} lost: {lost:?}", lost.len());
}
