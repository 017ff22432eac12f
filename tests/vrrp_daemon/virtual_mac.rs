// SPDX-License-Identifier: Apache-2.0
//! Daemons whose addresses are behind the virtual router MAC (RFC 9568 §7.3).

use std::net::Ipv6Addr;

use super::*;
use crate::link::{announce_own_address, device_of, macvlans};
use crate::neighbours::Listener;

const VIP6: IpAddr = IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0x97, 0, 0, 0, 0, 0x100));
/// With VRID 106.
const VIPS: [(IpAddr, &str); 2] = [(VIP, "00:00:5e:00:01:6a"), (VIP6, "00:00:5e:00:02:6a")];

fn group(priority: u8, virtual_mac: bool) -> String {
    format!("addresses: [{VIP}, '{VIP6}'], priority: {priority}, advertisementInterval: 100ms, virtualMac: {virtual_mac}")
}

fn link_of(tag: &str) -> Link {
    let link = Link::new(tag);
    announce_own_address([&link.ours, &link.theirs]);
    link
}

/// Waits until both families have this state.
fn wait_until_both(node: &Node<'_>, state: &str) {
    wait_until(state, PATIENCE, || {
        let routers = node.shown().map(|shown| shown["vrrp"][0]["routers"].clone()).unwrap_or_default();
        routers.as_array().is_some_and(|routers| routers.len() == 2 && routers.iter().all(|router| router["state"] == state))
    });
}

fn tables(host: &Namespace) -> String {
    host.output(&["nft", "list", "tables"])
}

fn has_nothing(host: &Namespace) -> bool {
    macvlans(host).is_empty() && tables(host).is_empty() && !has_any(host)
}

fn has_any(host: &Namespace) -> bool {
    VIPS.iter().any(|(vip, _)| device_of(host, *vip).is_some())
}

/// Whether the addresses are behind the virtual router MAC; `None` while they are not all on the same side.
fn is_behind_mac(host: &Namespace) -> Option<bool> {
    let devices: Vec<bool> = VIPS.iter().filter_map(|(vip, _)| Some(device_of(host, *vip)? != "eth0")).collect();
    let [one, other] = devices.try_into().ok()?;
    (one == other).then_some(one)
}

fn cleanup(host: &Namespace, arguments: &[&str]) -> String {
    host.output(&[&[env!("CARGO_BIN_EXE_vipherald"), "cleanup", "--instance", "vipherald"], arguments].concat())
}

#[test]
fn rfc9568_7_3_neighbours_are_told_one_mac_whoever_is_active() {
    let link = link_of("vmac");
    let known = |vip: IpAddr| link.client.ip(&format!("neigh show {vip} dev eth0"));
    let is_found = |at: &str| {
        for (vip, mac) in VIPS {
            link.ping(vip);
            assert!(known(vip).contains(mac), "{vip} {at}: {}", known(vip));
        }
    };
    let listener = Listener::start(&link.client);
    let ours = Node::new(&link.ours, &group(200, true));
    let running = ours.run();
    wait_until_both(&ours, "Active");
    let theirs = Node::new(&link.theirs, &group(100, true));
    let _other = theirs.run();
    theirs.wait_for("it hears ours", |router| router["state"] == "Backup" && router["activeRouter"] == "10.97.0.1");
    wait_until("ours has them", PATIENCE, || is_behind_mac(&link.ours) == Some(true));
    assert_eq!(macvlans(&link.theirs).into_iter().map(|(_, up)| up).collect::<Vec<_>>(), [false, false]);
    is_found("at first");
    running.signal(Signal::SIGTERM);
    assert!(running.wait(PATIENCE).success());
    assert!(has_nothing(&link.ours));
    wait_until_both(&theirs, "Active");
    wait_until("theirs has them", PATIENCE, || is_behind_mac(&link.theirs) == Some(true));
    is_found("after a stop");
    let again = ours.run();
    wait_until_both(&ours, "Active");
    wait_until("theirs has given them up", PATIENCE, || is_behind_mac(&link.ours) == Some(true) && is_behind_mac(&link.theirs).is_none());
    is_found("after it has come back");
    again.kill();
    wait_until_both(&theirs, "Active");
    wait_until("theirs has them again", PATIENCE, || is_behind_mac(&link.theirs) == Some(true));
    is_found("after a kill");
    // Nobody but the links has answered for them, asked or not.
    link.client.ip("neigh flush dev eth0");
    VIPS.iter().for_each(|(vip, _)| link.ping(*vip));
    let told = listener.end();
    for (vip, mac) in VIPS {
        assert_eq!(told.get(&vip), Some(&[mac.to_owned()].into()), "{vip}");
    }
}

#[test]
fn a_reload_puts_them_behind_the_mac_and_back_and_one_node_has_them() {
    let link = link_of("vmacload");
    let [(ours, _running), (theirs, _other)] = pair_of(&link, &group(200, false), &group(100, false));
    for virtual_mac in [true, false, true, false] {
        // A rolling change, which the Backup Router begins.
        theirs.configure(&group(100, virtual_mac));
        ours.configure(&group(200, virtual_mac));
        let is_there = || is_behind_mac(&link.ours) == Some(virtual_mac) && !has_any(&link.theirs);
        let links = if virtual_mac { [(2, true), (2, false)] } else { [(0, true), (0, false)] };
        let of_host = |host: &Namespace, (count, up): (usize, bool)| {
            let found = macvlans(host);
            found.len() == count && found.iter().all(|(_, is_up)| *is_up == up)
        };
        wait_until("ours has them, and theirs does not", PATIENCE, || {
            is_there() && of_host(&link.ours, links[0]) && of_host(&link.theirs, links[1])
        });
        wait_until_both(&ours, "Active");
        wait_until_both(&theirs, "Backup");
        assert!(is_there(), "and it stays so");
        for (vip, mac) in VIPS {
            link.ping(vip);
            if virtual_mac {
                let known = link.client.ip(&format!("neigh show {vip} dev eth0"));
                assert!(known.contains(mac), "{known}");
            } else {
                link.wait_until_known_at(vip, &link.ours);
            }
        }
    }
    for host in [&link.ours, &link.theirs] {
        wait_until("the rules are gone", PATIENCE, || !tables(host).contains("table arp"));
        let rules = host.output(&["nft", "list", "ruleset"]);
        assert!(!rules.contains("drop") && !rules.contains("v4-106"), "{rules}");
    }
}

#[test]
fn what_a_kill_has_left_behind_the_mac_is_taken_over_without_it() {
    let link = link_of("vmackill");
    let ours = Node::new(&link.ours, &group(100, true));
    let running = ours.run();
    wait_until_both(&ours, "Active");
    wait_until("it has them", PATIENCE, || is_behind_mac(&link.ours) == Some(true));
    running.kill();
    assert_eq!(is_behind_mac(&link.ours), Some(true), "the leftover");
    ours.configure(&group(100, false));
    let running = ours.run();
    wait_until_both(&ours, "Active");
    wait_until("they are on the interface alone", PATIENCE, || is_behind_mac(&link.ours) == Some(false) && macvlans(&link.ours).is_empty());
    VIPS.iter().for_each(|(vip, _)| link.ping(*vip));
    running.signal(Signal::SIGTERM);
    assert!(running.wait(PATIENCE).success());
    assert!(has_nothing(&link.ours));
}

/// At each of these moments the process is killed while it does something else.
#[test]
fn whenever_it_is_killed_cleanup_leaves_nothing() {
    type Moment = (&'static str, fn(&Namespace) -> bool);
    let starting: [Moment; 4] = [
        ("with its links", |host| !macvlans(host).is_empty()),
        ("with its record", |host| tables(host).contains("vipherald.vrrp")),
        ("with an address", has_any),
        ("with all", |host| is_behind_mac(host) == Some(true)),
    ];
    let stopping: [Moment; 3] = [
        ("before it has left the address", |_| true),
        ("after an address has gone", |host| is_behind_mac(host) != Some(true)),
        ("after all of them have gone", |host| !has_any(host)),
    ];
    let link = link_of("vmacclean");
    let ours = Node::new(&link.ours, &group(100, true));
    for ((moment, is_reached), stops) in starting.map(|moment| (moment, false)).into_iter().chain(stopping.map(|moment| (moment, true))) {
        let running = ours.run();
        if stops {
            wait_until_both(&ours, "Active");
            wait_until("it has them", PATIENCE, || is_behind_mac(&link.ours) == Some(true));
            running.signal(Signal::SIGTERM);
        }
        wait_until(moment, PATIENCE, || is_reached(&link.ours));
        running.kill();
        let before = macvlans(&link.ours);
        let foreseen = cleanup(&link.ours, &["--dry-run"]);
        assert_eq!(macvlans(&link.ours), before, "killed {moment}: nothing is done yet");
        for (name, _) in &before {
            assert!(foreseen.contains(&format!("remove {name}, a link with a virtual router MAC\n")), "killed {moment}: {foreseen}");
        }
        assert_eq!(cleanup(&link.ours, &[]), foreseen, "killed {moment}");
        assert!(has_nothing(&link.ours), "killed {moment}: {:?} {}", macvlans(&link.ours), tables(&link.ours));
        assert_eq!(cleanup(&link.ours, &[]), "nothing to do\n");
    }
}

/// A stop for the next process, as [`what_is_kept_stays_where_nobody_follows`] has it.
#[test]
fn what_is_kept_behind_the_mac_stays_where_nobody_follows() {
    let link = link_of("vmackeep");
    let ours = Node::new(&link.ours, &group(100, true));
    ours.keep_on_termination();
    let monitor = link.ours.spawn(link.ours.command("ip").args(["monitor", "address"]));
    for _ in 0..2 {
        let running = ours.run();
        wait_until_both(&ours, "Active");
        wait_until("it has them", PATIENCE, || is_behind_mac(&link.ours) == Some(true));
        running.signal(Signal::SIGTERM);
        assert!(running.wait(PATIENCE).success());
        assert_eq!(is_behind_mac(&link.ours), Some(true));
        link.client.ip("neigh flush dev eth0");
        VIPS.iter().for_each(|(vip, _)| link.ping(*vip));
    }
    assert!(!monitor.log().contains("Deleted"), "{}", monitor.log());
    let running = ours.run();
    wait_until_both(&ours, "Active");
    let theirs = Node::new(&link.theirs, &group(50, true));
    let _other = theirs.run();
    theirs.wait_for("it hears ours", |router| router["state"] == "Backup" && router["activeRouter"] == "10.97.0.1");
    wait_until_both(&theirs, "Backup");
    running.signal(Signal::SIGTERM);
    assert!(running.wait(PATIENCE).success());
    wait_until_both(&theirs, "Active");
    assert!(has_nothing(&link.ours), "{:?} {}", macvlans(&link.ours), tables(&link.ours));
    VIPS.iter().for_each(|(vip, _)| link.ping(*vip));
}
