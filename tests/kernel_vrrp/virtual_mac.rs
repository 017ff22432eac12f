// SPDX-License-Identifier: Apache-2.0
//! Addresses behind the virtual router MAC (RFC 9568 §7.3).

use super::*;

/// Hosts that ask for neighbours in the name of the address that they have on that link, as the daemon sets it.
fn link_of(tag: &str) -> Link {
    let link = Link::new(tag);
    for host in [&link.ours, &link.theirs] {
        host.output(&["sysctl", "-w", "net.ipv4.conf.eth0.arp_announce=2"]);
    }
    link
}

/// With the virtual router MAC.
fn behind_mac(priority: u8) -> DesiredGroup {
    DesiredGroup { virtual_mac: true, ..group(priority) }
}

/// The macvlans of a host, each with whether it is up.
fn links(host: &Namespace) -> Vec<(String, bool)> {
    let links = host.ip("-o link show type macvlan");
    let of_line = |line: &str| {
        let name = line.split_whitespace().nth(1)?.split('@').next()?.to_owned();
        Some((name, line.contains(",UP") || line.contains("<UP")))
    };
    links.lines().filter_map(of_line).collect()
}

fn on_links(host: &Namespace) -> bool {
    vips().into_iter().all(|vip| host.ip(&format!("-o address show to {vip}")).contains("-7-"))
}

/// What the client knows of an address.
fn known(link: &Link, vip: IpAddr) -> String {
    link.client.ip(&format!("neigh show {vip} dev eth0"))
}

fn virtual_mac(vip: IpAddr) -> &'static str {
    if vip.is_ipv4() { "00:00:5e:00:01:07" } else { "00:00:5e:00:02:07" }
}

#[test]
fn rfc9568_7_3_neighbours_know_the_virtual_router_mac_before_and_after_another_router_takes_over() {
    let link = link_of("vmac");
    let [ours, theirs] = [(&link.ours, 100), (&link.theirs, 200)].map(|(host, priority)| start(host, &behind_mac(priority)));
    wait_until_active(&theirs);
    wait_until_backup(&ours);
    assert!(links(&link.ours).iter().all(|(_, up)| !up) && links(&link.theirs).iter().all(|(_, up)| *up));
    assert_eq!((links(&link.ours).len(), links(&link.theirs).len()), (2, 2));
    assert!(on_links(&link.theirs));
    for vip in vips() {
        assert!(is_answered(&link, vip));
        assert!(known(&link, vip).contains(virtual_mac(vip)), "{}", known(&link, vip));
    }
    theirs.stop();
    wait_until_active(&ours);
    for vip in vips() {
        // The client does not ask, and the switch has learned where the MAC is.
        link.client.ip(&format!("neigh replace {vip} lladdr {} nud permanent dev eth0", virtual_mac(vip)));
        link.ping(vip);
    }
    wait_until("the other one has left", PATIENCE, || theirs.status().stopped);
    assert_eq!(links(&link.theirs), [], "nothing is left of it");
    ours.stop();
    wait_until("it has stopped", PATIENCE, || ours.status().stopped);
    assert_eq!((links(&link.ours), tables(&link.ours).as_str()), (vec![], ""));
}

#[test]
fn rfc9568_7_2_by_advertisements_the_switch_learns_where_the_virtual_router_mac_is() {
    let link = link_of("vmacadv");
    let routers = start(&link.ours, &behind_mac(100));
    wait_until_active(&routers);
    vips().into_iter().for_each(|vip| link.ping(vip));
    link.forget_macs();
    for vip in vips() {
        wait_until("it is learned again", PATIENCE, || link.has_learned(virtual_mac(vip), 1));
    }
}

#[test]
fn what_a_killed_process_has_left_behind_its_mac_is_taken_over_or_goes() {
    let link = link_of("vmackill");
    let routers = start(&link.ours, &behind_mac(100));
    wait_until_active(&routers);
    drop(routers);
    assert!(on_links(&link.ours));
    let monitor = link.ours.spawn(link.ours.command("ip").args(["monitor", "address"]));
    let routers = start(&link.ours, &behind_mac(100));
    wait_until_active(&routers);
    assert!(!monitor.log().contains("Deleted"), "{}", monitor.log());
    drop(routers);
    let other = start(&link.theirs, &behind_mac(200));
    wait_until_active(&other);
    let routers = start(&link.ours, &DesiredGroup { addresses: vec![VIP4], ..behind_mac(100) });
    wait_until_backup(&routers);
    wait_until(
        "one link is left, which is down",
        PATIENCE,
        || matches!(links(&link.ours).as_slice(), [(name, false)] if name.starts_with("v4-7-")),
    );
    vips().into_iter().for_each(|vip| assert!(is_answered(&link, vip)));
}

#[test]
fn the_virtual_router_mac_comes_and_goes_while_it_runs() {
    let link = link_of("vmaclive");
    let routers = start(&link.ours, &group(100));
    wait_until_active(&routers);
    for turn in 0..2 {
        configure(&routers, &behind_mac(100));
        wait_until("they are behind the MAC", PATIENCE, || on_links(&link.ours) && has_none(&link.ours));
        vips().into_iter().for_each(|vip| assert!(is_answered(&link, vip), "{vip} in turn {turn}"));
        configure(&routers, &group(100));
        wait_until("they are on the interface", PATIENCE, || has_all(&link.ours) && links(&link.ours).is_empty());
        vips().into_iter().for_each(|vip| assert!(is_answered(&link, vip), "{vip} in turn {turn}"));
    }
}

#[test]
fn a_link_of_that_name_that_somebody_else_has_made_is_told_and_left_alone() {
    let link = link_of("vmacother");
    let index = link.ours.ip("-o link show eth0").split(':').next().unwrap().parse::<u32>().unwrap();
    let name = format!("v4-7-{index:x}");
    link.ours.ip(&format!("link add link eth0 name {name} type macvlan"));
    let routers = spawn(&link.ours, "vipherald");
    configure(&routers, &behind_mac(100));
    let expected = format!("there is no link {name}, which is to have the virtual router MAC");
    wait_until("it is told", PATIENCE, || routers.status().group("main").is_some_and(|group| group.problem.as_deref() == Some(&expected)));
    link.ours.ip(&format!("link del {name}"));
    wait_until_active(&routers);
    assert!(on_links(&link.ours));
}
