// SPDX-License-Identifier: Apache-2.0
//! Addresses behind the virtual router MAC (RFC 9568 §7.3).

use super::*;
use crate::link::{announce_own_address, macvlans};

fn link_of(tag: &str) -> Link {
    let link = Link::new(tag);
    announce_own_address([&link.ours, &link.theirs]);
    link
}

/// With the virtual router MAC.
fn behind_mac(priority: u8) -> DesiredGroup {
    DesiredGroup { virtual_mac: true, ..group(priority) }
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
    let are = |host: &Namespace, up: bool| macvlans(host).into_iter().map(|(_, is_up)| is_up).eq([up, up]);
    wait_until("the links of the Active Router are up", PATIENCE, || are(&link.ours, false) && are(&link.theirs, true));
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
    assert_eq!(macvlans(&link.theirs), [], "nothing is left of it");
    ours.stop();
    wait_until("it has stopped", PATIENCE, || ours.status().stopped);
    assert_eq!((macvlans(&link.ours), tables(&link.ours).as_str()), (vec![], ""));
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
        || matches!(macvlans(&link.ours).as_slice(), [(name, false)] if name.starts_with("v4-7-")),
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
        wait_until("they are on the interface", PATIENCE, || has_all(&link.ours) && macvlans(&link.ours).is_empty());
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
    let expected = format!("there is no link {name} of this instance, which is to have the virtual router MAC");
    wait_until("it is told", PATIENCE, || routers.status().group("main").is_some_and(|group| group.problem.as_deref() == Some(&expected)));
    link.ours.ip(&format!("link del {name}"));
    wait_until_active(&routers);
    assert!(on_links(&link.ours));
}

/// The name of the link that the addresses of a family are on.
fn name(host: &Namespace, family: u8) -> String {
    let index = host.ip("-o link show eth0").split(':').next().unwrap().parse::<u32>().unwrap();
    format!("v{family}-7-{index:x}")
}

/// A link without an address, as a process of this instance leaves it that is killed before it has recorded one.
fn leave_link(host: &Namespace, instance: &str) {
    let name = name(host, 4);
    host.ip(&format!("link add link eth0 name {name} address 00:00:5e:00:01:07 type macvlan mode bridge"));
    host.output(&["ip", "link", "set", &name, "alias", &format!("vipherald instance {instance}")]);
}

#[test]
fn a_link_that_no_record_tells_of_goes_or_is_used() {
    for (number, uses_it) in [false, true].into_iter().enumerate() {
        let link = link_of(&format!("vmacbare{number}"));
        leave_link(&link.ours, "vipherald");
        let routers = start(&link.ours, &if uses_it { behind_mac(100) } else { group(100) });
        wait_until_active(&routers);
        if uses_it {
            assert!(on_links(&link.ours));
        } else {
            wait_until("it is gone", PATIENCE, || has_all(&link.ours) && macvlans(&link.ours).is_empty());
        }
        assert_answered_and_gone_with(&link, &routers);
    }
}

/// The addresses are answered for, and a stop leaves nothing.
fn assert_answered_and_gone_with(link: &Link, routers: &VirtualRouters) {
    vips().into_iter().for_each(|vip| assert!(is_answered(link, vip)));
    routers.stop();
    wait_until("it has stopped", PATIENCE, || routers.status().stopped);
    assert_eq!((macvlans(&link.ours), tables(&link.ours).as_str()), (vec![], ""));
}

#[test]
fn what_was_behind_the_mac_goes_with_its_link_where_the_record_is_lost() {
    for (number, next) in [group(100), behind_mac(100)].into_iter().enumerate() {
        let link = link_of(&format!("vmaclost{number}"));
        let routers = start(&link.ours, &behind_mac(100));
        wait_until_active(&routers);
        drop(routers);
        link.ours.nft("delete table inet vipherald.vrrp");
        let routers = start(&link.ours, &next);
        wait_until_active(&routers);
        wait_until("they are where they are to be", PATIENCE, || {
            if next.virtual_mac {
                on_links(&link.ours) && has_none(&link.ours)
            } else {
                has_all(&link.ours) && macvlans(&link.ours).is_empty()
            }
        });
        let foreign =
            |routers: &VirtualRouters| routers.status().group("main").unwrap().routers.values().any(|router| !router.foreign.is_empty());
        assert!(!foreign(&routers), "they are ours");
        assert_answered_and_gone_with(&link, &routers);
    }
}

/// What a switch hears last from a MAC tells it where that is.
#[test]
fn who_hands_over_says_nothing_more_from_the_virtual_router_mac() {
    // A report of Multicast Listener Discovery that a group is left (RFC 3810 §5.2.12, CHANGE_TO_INCLUDE_MODE) follows a Hop-by-Hop Options header.
    let program = "import socket as s\nr = s.socket(s.AF_PACKET, s.SOCK_RAW, s.htons(3))\nwhile True:\n f, a = r.recvfrom(2048)\n \
        if a[2] != s.PACKET_OUTGOING and f[6:12] == bytes([0, 0, 0x5e, 0, 2, 7]): \
        print(a[0], 'leaves' if f[20] == 0 and f[62] == 143 and f[70] == 3 else 'speaks', flush=True)";
    // So many that the kernel has time to tell of the first one before the last one has gone.
    let many: Vec<IpAddr> = (1..=80).map(|number| format!("2001:db8:97::1:{number}").parse().unwrap()).collect();
    let of = |priority| DesiredGroup { addresses: many.clone(), ..behind_mac(priority) };
    for turn in 0..3 {
        // A link that comes up again may still tell of what it has left before, from where it is right then.
        let link = link_of(&format!("vmaclast{turn}"));
        let switch = link.switch.spawn(link.switch.command("python3").args(["-c", program]));
        let hears = |port: &str| {
            let heard = switch.log().len();
            wait_until("the switch hears the Active Router", PATIENCE, || {
                switch.log()[heard..].matches(&format!("{port} speaks")).count() > 10
            });
            assert!(!switch.log().contains("leaves"), "turn {turn}: {}", switch.log());
        };
        let ours = start(&link.ours, &of(100));
        wait_until_active(&ours);
        let theirs = start(&link.theirs, &of(50));
        wait_until_backup(&theirs);
        ours.stop();
        wait_until_active(&theirs);
        wait_until("ours has stopped", PATIENCE, || ours.status().stopped);
        hears("port2");
        // And who gives way.
        configure(&ours, &of(100));
        wait_until_active(&ours);
        wait_until("the link of theirs is down", PATIENCE, || macvlans(&link.theirs).iter().all(|(_, up)| !up));
        hears("port1");
    }
}

/// Else the node would have an address, and a way out, by that MAC.
#[test]
fn rfc4861_6_3_4_a_link_with_the_mac_takes_nothing_from_other_routers_on_the_link() {
    let link = link_of("vmacra");
    let routers = start(&link.ours, &behind_mac(100));
    wait_until_active(&routers);
    let advertise = "import socket as s, struct as t; r = s.socket(s.AF_INET6, s.SOCK_RAW, s.IPPROTO_ICMPV6); \
        r.setsockopt(s.IPPROTO_IPV6, s.IPV6_MULTICAST_HOPS, 255); r.setsockopt(s.IPPROTO_IPV6, s.IPV6_MULTICAST_IF, s.if_nametoindex('eth0')); \
        r.sendto(t.pack('!BBHBBHIIBBBBIII', 134, 0, 0, 64, 0, 1800, 0, 0, 3, 4, 64, 192, 3600, 3600, 0) + s.inet_pton(s.AF_INET6, PREFIX), ('ff02::1', 0))";
    // What the second one finds, the first one has found before: they come in their order.
    for prefix in ["2001:db8:5::", "2001:db8:6::"] {
        let program = advertise.replace("PREFIX", &format!("'{prefix}'"));
        link.client.output(&["python3", "-c", &program]);
        let address = || link.ours.ip("-6 -o address show dev eth0").contains(prefix.trim_end_matches(':'));
        wait_until("the interface has an address by it", PATIENCE, address);
        vips().into_iter().for_each(|vip| link.ping(vip));
    }
    for name in macvlans(&link.ours).into_iter().map(|(name, _)| name) {
        let addresses = link.ours.ip(&format!("-6 -o address show dev {name}"));
        let routes = link.ours.ip(&format!("-6 route show dev {name}"));
        assert!(
            !addresses.contains("2001:db8:5:") && !addresses.contains("2001:db8:6:") && !routes.contains("default"),
            "{addresses}{routes}"
        );
    }
    // Whatever else somebody has put on the link does not keep it up.
    let link6 = name(&link.ours, 6);
    link.ours.ip(&format!("address add 2001:db8:7::1/64 dev {link6} nodad"));
    let other = start(&link.theirs, &behind_mac(200));
    wait_until_active(&other);
    wait_until("its links are down", PATIENCE, || macvlans(&link.ours).iter().all(|(_, up)| !up));
}

/// And with the record, no address is at two places, and none is lost.
#[test]
fn what_a_killed_process_has_left_behind_its_mac_is_on_the_interface_without_one() {
    let link = link_of("vmacoff");
    let routers = start(&link.ours, &behind_mac(100));
    wait_until_active(&routers);
    drop(routers);
    let routers = start(&link.ours, &group(100));
    wait_until_active(&routers);
    wait_until("they are on the interface alone", PATIENCE, || has_all(&link.ours) && macvlans(&link.ours).is_empty());
    vips().into_iter().for_each(|vip| assert!(is_answered(&link, vip)));
}

#[test]
fn a_link_of_another_instance_is_told_and_left_alone_until_that_one_takes_it_away() {
    let link = link_of("vmacinst");
    leave_link(&link.ours, "another");
    let routers = start(&link.ours, &behind_mac(100));
    let expected = format!("there is no link {} of this instance, which is to have the virtual router MAC", name(&link.ours, 4));
    wait_until("it is told", PATIENCE, || routers.status().group("main").is_some_and(|group| group.problem.as_deref() == Some(&expected)));
    let another = spawn(&link.ours, "another");
    another.stop();
    wait_until("another has nothing left", PATIENCE, || another.status().stopped);
    wait_until_active(&routers);
    assert!(on_links(&link.ours));
    // Who has nothing of its own touches nothing.
    another.configure(std::sync::Arc::new(vipherald::desired::DesiredVrrp { complete: true, ..Default::default() }));
    another.stop();
    wait_until("another has nothing", PATIENCE, || another.status().stopped);
    assert!(on_links(&link.ours));
}

/// Another process of the instance that lives has the VRID, by which it is known.
#[test]
fn a_link_of_a_process_that_lives_stays() {
    use std::os::linux::net::SocketAddrExt as _;
    use std::os::unix::net::{SocketAddr, UnixDatagram};
    let link = link_of("vmacalive");
    leave_link(&link.ours, "vipherald");
    let of = name(&link.ours, 4).replace("v4-7-", "") + "/7";
    let claim = ["vipherald-vrrp/".to_owned() + &of, format!("vipherald-vrrp-owner/{of}/vipherald")];
    let bind = |name: &String| UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(name).unwrap()).unwrap();
    let held = link.ours.run(|| claim.each_ref().map(bind));
    let routers = start(&link.ours, &DesiredGroup { vrid: Vrid::new(8).unwrap(), ..group(100) });
    wait_until_active(&routers);
    let before = routers.status().group("main").unwrap().routers[&Family::Ipv4].counters;
    wait_until("it has looked again", PATIENCE, || {
        routers.status().group("main").unwrap().routers[&Family::Ipv4].counters.sent > before.sent + 40
    });
    assert_eq!(macvlans(&link.ours), [(name(&link.ours, 4), false)]);
    drop(held);
    wait_until("it is gone", PATIENCE, || macvlans(&link.ours).is_empty());
}
