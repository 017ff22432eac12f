// SPDX-License-Identifier: Apache-2.0
//! Virtual routers of ours in the kernel: where their addresses are, who answers for them, and what becomes of both when something goes wrong.

#![allow(clippy::unwrap_used, reason = "a failed test says where")]

mod common;
#[path = "common/groups.rs"]
mod groups;
#[path = "common/link.rs"]
mod link;
#[path = "kernel_vrrp/virtual_mac.rs"]
mod virtual_mac;

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

use common::{Namespace, wait_until};
use groups::{configure, spawn, wait_for};
use link::{Link, PATIENCE, has, mac};
use vipherald::desired::{DesiredGroup, DesiredTransport, NodeTrouble};
use vipherald::driver::vrrp::{GroupStatus, VirtualRouters};
use vrrp::router::{Hindrance, Holding, Preempt, State};
use vrrp::{Family, Interval, Priority, Vrid};

const VIP4: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 97, 0, 100));

fn vip6() -> IpAddr {
    "2001:db8:97::100".parse().unwrap()
}

fn vips() -> Vec<IpAddr> {
    vec![VIP4, vip6()]
}

/// A router of both families that advertises each 50 ms.
fn group(priority: u8) -> DesiredGroup {
    DesiredGroup {
        priority: Priority::new(priority).unwrap(),
        interval: Interval::from_centiseconds(5).unwrap(),
        ..DesiredGroup::new("eth0".to_owned(), Vrid::new(7).unwrap(), vips())
    }
}

fn start(host: &Namespace, group: &DesiredGroup) -> VirtualRouters {
    let routers = spawn(host, "vipherald");
    configure(&routers, group);
    routers
}

fn wait_until_active(routers: &VirtualRouters) {
    wait_for("it is Active with all addresses", routers, |group| {
        let is_complete = |router: &vipherald::driver::vrrp::RouterStatus| router.placed.len() == router.config.addresses.len();
        group.state() == State::Active && group.routers.values().all(is_complete)
    });
}

fn wait_until_backup(routers: &VirtualRouters) {
    wait_for("it is Backup, and hears the other", routers, |group| {
        group.state() == State::Backup && group.routers.values().all(|router| router.heard.is_some())
    });
}

fn has_all(host: &Namespace) -> bool {
    vips().into_iter().all(|vip| has(host, vip))
}

fn has_none(host: &Namespace) -> bool {
    !vips().into_iter().any(|vip| has(host, vip))
}

fn tables(host: &Namespace) -> String {
    host.output(&["nft", "list", "tables"])
}

/// Whether the client gets an answer, without knowing where the address is.
fn is_answered(link: &Link, vip: IpAddr) -> bool {
    link.client.ip("neigh flush dev eth0");
    let mut ping = link.client.command("ping");
    ping.args(["-n", "-c", "1", "-W", "1", &vip.to_string()]).output().unwrap().status.success()
}

#[test]
fn one_router_alone_serves_both_families_and_leaves_nothing() {
    let link = Link::new("alone");
    let routers = start(&link.ours, &group(100));
    wait_until_active(&routers);
    assert!(has_all(&link.ours));
    vips().into_iter().for_each(|vip| link.ping(vip));
    let addresses = link.ours.ip("-o address show dev eth0");
    assert!(addresses.contains("10.97.0.100/32") && addresses.contains("2001:db8:97::100/128"), "{addresses}");
    assert!(addresses.lines().filter(|line| line.contains("::100")).all(|line| line.contains("deprecated")), "never a source: {addresses}");
    assert_eq!(tables(&link.ours).trim(), "table inet vipherald.vrrp");
    routers.stop();
    wait_until("it has stopped", PATIENCE, || routers.status().stopped);
    assert!(has_none(&link.ours));
    assert_eq!(tables(&link.ours), "");
}

#[test]
fn who_stops_keeps_its_addresses_without_a_word_until_another_one_has_them() {
    let link = Link::new("handover");
    let slow = |group: DesiredGroup| DesiredGroup { interval: Interval::from_centiseconds(100).unwrap(), ..group };
    let routers = start(&link.ours, &slow(group(100)));
    wait_until_active(&routers);
    vips().into_iter().for_each(|vip| link.ping(vip));
    routers.stop();
    wait_for("it hands over", &routers, |group| {
        group.leaving && group.routers.values().all(|router| router.holding == Some(Holding::Silent))
    });
    wait_until("nft silences it", PATIENCE, || tables(&link.ours).contains("table arp vipherald.vrrp"));
    assert!(has_all(&link.ours));
    let mac = mac(&link.ours);
    for vip in vips() {
        assert!(!is_answered(&link, vip), "{vip} is asked for in vain");
        link.client.ip(&format!("neigh replace {vip} lladdr {mac} dev eth0"));
        link.ping(vip);
    }
    let other = start(&link.theirs, &group(100));
    wait_until("it has left", PATIENCE, || routers.status().stopped);
    assert!(has_none(&link.ours));
    assert_eq!(tables(&link.ours), "");
    wait_until_active(&other);
}

/// Dropping a router does what a kill does: nothing.
#[test]
fn what_a_killed_process_has_left_goes_when_another_router_has_it() {
    let link = Link::new("killed");
    let routers = start(&link.ours, &group(200));
    wait_until_active(&routers);
    vips().into_iter().for_each(|vip| link.ping(vip));
    let other = start(&link.theirs, &group(100));
    wait_until_backup(&other);
    drop(routers);
    assert!(has_all(&link.ours), "both have the addresses");
    wait_until_active(&other);
    vips().into_iter().for_each(|vip| link.wait_until_known_at(vip, &link.theirs));
    let again = start(&link.ours, &DesiredGroup { preempt: Preempt::Never, ..group(200) });
    wait_until_backup(&again);
    wait_until("the leftovers are gone", PATIENCE, || has_none(&link.ours));
    for vip in vips() {
        assert!(is_answered(&link, vip));
        link.wait_until_known_at(vip, &link.theirs);
    }
}

#[test]
fn a_process_that_was_killed_alone_goes_on_without_a_gap() {
    let link = Link::new("restart");
    let routers = start(&link.ours, &group(100));
    wait_until_active(&routers);
    drop(routers);
    let monitor = link.ours.spawn(link.ours.command("ip").args(["monitor", "address"]));
    let routers = start(&link.ours, &group(100));
    wait_for("the leftovers wait", &routers, |group| group.routers.values().any(|router| router.holding == Some(Holding::Silent)));
    wait_until_active(&routers);
    assert!(!monitor.log().contains("Deleted"), "{}", monitor.log());
    vips().into_iter().for_each(|vip| assert!(is_answered(&link, vip)));
}

/// What a former configuration has placed on any interface goes, too.
#[test]
fn leftovers_of_another_configuration_go() {
    let link = Link::new("former");
    let routers = start(&link.ours, &group(100));
    wait_until_active(&routers);
    drop(routers);
    let former = VIP4;
    let other: IpAddr = "10.97.0.101".parse().unwrap();
    let routers = start(&link.ours, &DesiredGroup { addresses: vec![other], ..group(100) });
    wait_until_active(&routers);
    wait_until("the former addresses are gone", PATIENCE, || !has(&link.ours, former) && !has(&link.ours, vip6()));
    assert!(has(&link.ours, other));
    assert!(!link.ours.output(&["nft", "list", "ruleset"]).contains("10.97.0.100"));
}

#[test]
fn what_others_have_placed_is_used_and_never_removed() {
    let link = Link::new("theirs");
    link.ours.ip(&format!("address add {VIP4}/32 dev eth0"));
    let routers = start(&link.ours, &group(100));
    wait_until_active(&routers);
    wait_for("it is told", &routers, |group| group.routers[&Family::Ipv4].foreign.contains(&VIP4));
    assert!(routers.status().group("main").unwrap().routers[&Family::Ipv6].foreign.is_empty());
    routers.stop();
    wait_until("it has stopped", PATIENCE, || routers.status().stopped);
    assert!(has(&link.ours, VIP4) && !has(&link.ours, vip6()));
}

#[test]
fn what_others_place_before_it_is_active_is_not_taken_for_its_own() {
    let link = Link::new("early");
    let other = start(&link.theirs, &group(200));
    wait_until_active(&other);
    let routers = start(&link.ours, &group(100));
    wait_until_backup(&routers);
    link.ours.ip(&format!("address add {VIP4}/32 dev eth0"));
    other.stop();
    wait_until_active(&routers);
    wait_for("it is told", &routers, |group| group.routers[&Family::Ipv4].foreign.contains(&VIP4));
    routers.stop();
    wait_until("it has stopped", PATIENCE, || routers.status().stopped);
    assert!(has(&link.ours, VIP4) && !has(&link.ours, vip6()));
}

#[test]
fn an_address_that_somebody_takes_away_comes_back() {
    let link = Link::new("taken");
    let routers = start(&link.ours, &group(100));
    wait_until_active(&routers);
    for (vip, length) in [(VIP4, 32), (vip6(), 128)] {
        link.ours.ip(&format!("address del {vip}/{length} dev eth0"));
        wait_until("it is back", PATIENCE, || has(&link.ours, vip));
    }
    let group = routers.status().group("main").unwrap().clone();
    assert!(group.routers.values().all(|router| router.counters.became_active == 1 && router.foreign.is_empty()));
}

#[test]
fn without_a_cable_it_takes_no_part() {
    let link = Link::new("cable");
    let routers = start(&link.ours, &group(200));
    wait_until_active(&routers);
    let other = start(&link.theirs, &group(100));
    wait_until_backup(&other);
    link.plug(1, false);
    wait_for("it takes no part", &routers, |group| {
        group.routers.values().all(|router| router.hindrances.contains(&Hindrance::InterfaceDown) && router.placed.is_empty())
    });
    wait_until_active(&other);
    link.plug(1, true);
    wait_until_active(&routers);
    wait_until_backup(&other);
    wait_until("one has the addresses", PATIENCE, || has_all(&link.ours) && has_none(&link.theirs));
}

#[test]
fn an_interface_may_go_and_come_again() {
    let link = Link::new("again");
    let routers = start(&link.ours, &group(100));
    wait_until_active(&routers);
    link.ours.ip("link del eth0");
    wait_for("it is missed", &routers, |group| group.problem.as_deref() == Some("there is no interface eth0"));
    link.replug(1, &link.ours);
    wait_until_active(&routers);
    assert!(has_all(&link.ours));
    link.ping(VIP4);
}

#[test]
fn addresses_and_priority_change_in_its_state() {
    let link = Link::new("change");
    let routers = start(&link.ours, &group(200));
    wait_until_active(&routers);
    let other = start(&link.theirs, &group(100));
    wait_until_backup(&other);
    let added: IpAddr = "10.97.0.101".parse().unwrap();
    configure(&routers, &DesiredGroup { addresses: vec![added, vip6()], ..group(150) });
    wait_until("they are exchanged", PATIENCE, || has(&link.ours, added) && !has(&link.ours, VIP4));
    wait_for("the priority is heard", &other, |group| {
        group.routers.values().all(|router| router.heard.is_some_and(|heard| heard.priority == Priority::new(150)))
    });
    wait_for("the other list is told", &other, |group| group.routers[&Family::Ipv4].others.values().any(|other| other.lists.is_some()));
    let became_active = |routers: &VirtualRouters| {
        let status = routers.status();
        status.group("main").unwrap().routers.values().map(|router| router.counters.became_active).sum::<u64>()
    };
    assert_eq!((became_active(&routers), became_active(&other)), (2, 0));
    // The one of IPv6 goes, and that of IPv4 stays as it is.
    configure(&routers, &DesiredGroup { addresses: vec![added], ..group(150) });
    wait_until("the address of IPv6 is gone", PATIENCE, || !has(&link.ours, vip6()));
    assert_eq!(became_active(&routers), 1);
}

#[test]
fn a_node_that_does_not_serve_hands_over() {
    let link = Link::new("serving");
    let routers = start(&link.ours, &group(200));
    wait_until_active(&routers);
    let other = start(&link.theirs, &group(100));
    wait_until_backup(&other);
    let unserving = |trouble| DesiredGroup { troubles: BTreeSet::from([trouble]), ..group(200) };
    configure(&routers, &unserving(NodeTrouble::NotProgrammed));
    wait_until_active(&other);
    wait_until("its addresses are gone", PATIENCE, || has_none(&link.ours));
    assert!(other.status().group("main").unwrap().routers.values().all(|router| router.counters.received_priority_zero == 1));
    let problem = "this node has priority 1: its dataplane is not programmed as it is to be";
    assert_eq!(routers.status().group("main").unwrap().unserving.as_deref(), Some(problem));
    // It is better than nobody.
    other.stop();
    wait_until_active(&routers);
    wait_until("the other has stopped", PATIENCE, || other.status().stopped);
    // And gives way to whoever serves.
    configure(&other, &DesiredGroup { preempt: Preempt::Never, ..group(100) });
    wait_until_active(&other);
    wait_until("its addresses are gone again", PATIENCE, || has_none(&link.ours));
    configure(&routers, &group(200));
    wait_until_active(&routers);
    wait_until("the other has none", PATIENCE, || has_none(&link.theirs));
    assert_eq!(routers.status().group("main").unwrap().unserving, None);
}

#[test]
fn peers_that_are_not_known_yet_keep_it_waiting() {
    let link = Link::new("peers");
    let unicast = |peers: &[&str], single| DesiredGroup {
        transport: DesiredTransport::Unicast { peers: peers.iter().map(|peer| peer.parse().unwrap()).collect(), single },
        ..group(100)
    };
    let routers = start(&link.ours, &unicast(&[], false));
    wait_for("it waits", &routers, |group| {
        !group.routers.is_empty() && group.routers.values().all(|router| router.hindrances.contains(&Hindrance::NoPeers))
    });
    configure(&routers, &unicast(&["10.97.0.2", "2001:db8:97::2"], false));
    wait_until_active(&routers);
    // Their loss is no reason to stop.
    configure(&routers, &unicast(&[], false));
    link.ping(VIP4);
    assert_eq!(routers.status().group("main").unwrap().state(), State::Active);
}

/// One-way: the better one is not heard, and both are Active. When it is heard again, one is left, and the client finds it.
#[test]
fn of_two_that_are_active_one_is_left() {
    let link = Link::new("split");
    let routers = start(&link.ours, &group(200));
    wait_until_active(&routers);
    let other = start(&link.theirs, &group(100));
    wait_until_backup(&other);
    link.ping(VIP4);
    link.cut(1, 2, true);
    wait_until_active(&other);
    link.wait_until_known_at(VIP4, &link.theirs);
    link.cut(1, 2, false);
    wait_until_backup(&other);
    link.wait_until_known_at(VIP4, &link.ours);
    assert!(has_none(&link.theirs) && has_all(&link.ours));
    assert_eq!(routers.status().group("main").unwrap().state(), State::Active);
}

/// They take longer to place than three advertisement intervals of 10 ms last.
#[test]
fn a_thousand_addresses_do_not_keep_it_from_advertising() {
    let link = Link::new("many");
    let many: Vec<IpAddr> = (0..1000).map(|number: u16| Ipv4Addr::new(10, 96, (number >> 8) as u8, number as u8).into()).collect();
    let fast = |priority| DesiredGroup { interval: Interval::from_centiseconds(2).unwrap(), addresses: many.clone(), ..group(priority) };
    let other = start(&link.theirs, &fast(200));
    wait_until_active(&other);
    let routers = start(&link.ours, &fast(100));
    wait_until_backup(&routers);
    let begun = Instant::now();
    other.stop();
    wait_until_active(&routers);
    let took = begun.elapsed();
    wait_until("the other has stopped", PATIENCE, || other.status().stopped);
    assert!(took < Duration::from_secs(2), "{took:?}");
    configure(&other, &fast(200));
    wait_until_active(&other);
    wait_until_backup(&routers);
    let count = |host: &Namespace| host.ip("-4 -o address show dev eth0 to 10.96.0.0/16").lines().count();
    wait_until("they are where they belong", PATIENCE, || (count(&link.ours), count(&link.theirs)) == (0, 1000));
    let group = other.status().group("main").unwrap().clone();
    assert_eq!(group.routers[&Family::Ipv4].counters.became_active, 1, "nobody took over while it placed them");
}

#[test]
fn a_family_without_a_source_keeps_only_itself_away() {
    let link = Link::new("part");
    let own = "address del 2001:db8:97::1/64 dev eth0";
    link.ours.ip(own);
    let transport = DesiredTransport::Unicast { peers: BTreeSet::new(), single: true };
    let routers = start(&link.ours, &DesiredGroup { transport, ..group(100) });
    wait_for("IPv4 is Active", &routers, |group| group.state() == State::Active && group.routers.len() == 1);
    assert_eq!(routers.status().group("main").unwrap().problem.as_deref(), Some("eth0 has no IPv6 address to advertise from"));
    wait_until("it has the address", PATIENCE, || has(&link.ours, VIP4) && !has(&link.ours, vip6()));
    link.ours.ip("address add 2001:db8:97::1/64 dev eth0 nodad");
    wait_until_active(&routers);
    wait_until("it has both", PATIENCE, || has_all(&link.ours));
    link.ours.ip(own);
    wait_for("IPv4 is Active alone", &routers, |group| group.state() == State::Active && group.routers.len() == 1);
    wait_until("it has one", PATIENCE, || has(&link.ours, VIP4) && !has(&link.ours, vip6()));
    assert_eq!(routers.status().group("main").unwrap().routers[&Family::Ipv4].counters.became_active, 1, "IPv4 was never left");
}

fn disable_ipv6(host: &Namespace, is_disabled: bool) {
    host.sysctl("net/ipv6/conf/eth0/disable_ipv6", if is_disabled { "1" } else { "0" });
}

#[test]
fn where_a_node_loses_a_family_both_go_to_one_that_has_both_and_come_back() {
    let link = Link::new("family");
    let routers = start(&link.ours, &DesiredGroup { preempt: Preempt::Never, ..group(200) });
    wait_until_active(&routers);
    let other = start(&link.theirs, &DesiredGroup { preempt: Preempt::Never, ..group(100) });
    wait_until_backup(&other);
    disable_ipv6(&link.ours, true);
    wait_until_active(&other);
    wait_until("all is there", PATIENCE, || has_all(&link.theirs) && has_none(&link.ours));
    wait_for("it takes part in IPv4 with the lowest priority", &routers, |group| {
        group.routers.keys().eq([&Family::Ipv4]) && group.routers.values().all(|router| router.priority == Priority::LOWEST)
    });
    disable_ipv6(&link.ours, false);
    wait_for("it has its own priority", &routers, |group| {
        group.routers.len() == 2 && group.routers.values().all(|router| router.priority.number() == 200 && router.state == State::Backup)
    });
    other.stop();
    wait_until_active(&routers);
}

#[test]
fn a_family_that_no_node_can_have_takes_nothing_with_it() {
    let link = Link::new("nobody");
    let routers = start(&link.ours, &group(200));
    wait_until_active(&routers);
    let other = start(&link.theirs, &group(100));
    wait_until_backup(&other);
    [&link.ours, &link.theirs].into_iter().for_each(|host| disable_ipv6(host, true));
    let is_lowest =
        |group: &GroupStatus| group.routers.len() == 1 && group.routers.values().all(|router| router.priority == Priority::LOWEST);
    wait_for("ours has the lowest priority", &routers, is_lowest);
    wait_for("so has theirs", &other, is_lowest);
    let active = |routers: &VirtualRouters| routers.status().group("main").is_some_and(|group| group.state() == State::Active);
    wait_until("one is Active", PATIENCE, || active(&routers) != active(&other));
    wait_until("IPv4 is at one of them", PATIENCE, || has(&link.ours, VIP4) != has(&link.theirs, VIP4));
    link.ping(VIP4);
}

#[test]
fn a_record_that_somebody_deletes_is_written_again() {
    let link = Link::new("erased");
    let routers = start(&link.ours, &group(100));
    wait_until_active(&routers);
    link.ours.nft("delete table inet vipherald.vrrp");
    wait_until("it is back", PATIENCE, || tables(&link.ours).contains("table inet vipherald.vrrp"));
    let listed = link.ours.output(&["nft", "list", "table", "inet", "vipherald.vrrp"]);
    assert!(vips().iter().all(|vip| listed.contains(&vip.to_string())), "{listed}");
    assert!(has_all(&link.ours));
}

/// They would not hear each other: what comes from the own address is not taken.
#[test]
fn one_instance_of_a_node_has_a_vrid_on_a_link() {
    let link = Link::new("two");
    let routers = start(&link.ours, &group(100));
    wait_until_active(&routers);
    let other = spawn(&link.ours, "another");
    let others: Vec<IpAddr> = vec!["10.97.0.101".parse().unwrap()];
    configure(&other, &DesiredGroup { addresses: others.clone(), ..group(200) });
    let refused = "the instance vipherald has this VRID on the link: give one of the instances another virtualRouterId";
    let problem = || other.status().group("main").and_then(|group| group.problem.clone());
    wait_until("it is refused", PATIENCE, || problem().as_deref() == Some(refused));
    assert!(has_all(&link.ours) && !has(&link.ours, others[0]));
    configure(&other, &DesiredGroup { addresses: others.clone(), ..DesiredGroup { vrid: Vrid::new(8).unwrap(), ..group(200) } });
    wait_until_active(&other);
    configure(&other, &DesiredGroup { addresses: others, ..group(200) });
    wait_until("it is refused again", PATIENCE, || problem().as_deref() == Some(refused));
    drop(routers);
    wait_until_active(&other);
}
