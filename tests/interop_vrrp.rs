// SPDX-License-Identifier: Apache-2.0
//! Virtual routers beside keepalived (Debian's 2.2.7) on one link: each of both is Active and Backup, in each version, family and transport.

#![allow(clippy::unwrap_used, reason = "a failed test says where")]

mod common;
#[path = "common/groups.rs"]
mod groups;
#[path = "interop_vrrp/keepalived.rs"]
mod keepalived;
#[path = "common/link.rs"]
mod link;

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use common::{Namespace, wait_until};
use groups::{configure, spawn, wait_for};
use keepalived::{Keepalived, Setup};
use link::{Link, PATIENCE, has, link_local};
use vipherald::desired::{DesiredGroup, DesiredTransport};
use vipherald::driver::vrrp::GroupStatus;
use vrrp::router::{ChecksumChoice, Preempt, State};
use vrrp::wire::ChecksumForm;
use vrrp::{Family, Interval, Priority, Version, Vrid};

const VRID: u8 = 106;

#[derive(Clone, Copy)]
enum Travel {
    Multicast,
    Unicast,
}

fn vip(family: Family) -> IpAddr {
    match family {
        Family::Ipv4 => "10.97.0.100".parse().unwrap(),
        Family::Ipv6 => "2001:db8:97::100".parse().unwrap(),
    }
}

fn address(family: Family, host: u8) -> IpAddr {
    match family {
        Family::Ipv4 => format!("10.97.0.{host}").parse().unwrap(),
        Family::Ipv6 => format!("2001:db8:97::{host}").parse().unwrap(),
    }
}

/// Ours and theirs: equal but for who is whose peer.
fn routers(version: Version, family: Family, travel: Travel) -> (DesiredGroup, Setup) {
    let interval = if version == Version::V2 { 100 } else { 10 };
    let transport = match travel {
        Travel::Multicast => DesiredTransport::Multicast,
        Travel::Unicast => DesiredTransport::Unicast { peers: BTreeSet::from([address(family, 2)]), single: false },
    };
    let ours = DesiredGroup {
        version,
        interval: Interval::from_centiseconds(interval).unwrap(),
        transport,
        checksum: ChecksumChoice::Always(ChecksumForm::PseudoHeader),
        ..DesiredGroup::new("eth0".to_owned(), Vrid::new(VRID).unwrap(), vec![vip(family)])
    };
    let unicast = matches!(travel, Travel::Unicast).then(|| (address(family, 2), address(family, 1)));
    let theirs = Setup { version: version.number(), centiseconds: interval, unicast, ..Setup::new(VRID, vec![vip(family)]) };
    (ours, theirs)
}

fn is(state: State) -> impl Fn(&GroupStatus) -> bool {
    move |group| group.state() == state
}

fn priority(number: u8) -> Priority {
    Priority::new(number).unwrap()
}

/// Keepalived is better, and Active; it leaves, and comes back.
fn we_are_backup(version: Version, family: Family, travel: Travel, tag: &str) {
    let link = Link::new(tag);
    let (ours, theirs) = routers(version, family, travel);
    let vip = vip(family);
    let better = Setup { priority: 150, ..theirs };
    let keepalived = Keepalived::start(&link.theirs, &better);
    wait_until("keepalived has the address", PATIENCE, || has(&link.theirs, vip));
    let routers = spawn(&link.ours, "vipherald");
    configure(&routers, &ours);
    wait_for("we are Backup", &routers, is(State::Backup));
    let hears = |group: &GroupStatus| group.routers[&family].heard.is_some_and(|heard| heard.priority == Some(priority(150)));
    wait_for("we hear keepalived", &routers, hears);
    link.ping(vip);
    link.wait_until_known_at(vip, &link.theirs);

    keepalived.end();
    wait_for("we follow", &routers, is(State::Active));
    wait_until("we have the address", PATIENCE, || has(&link.ours, vip));
    link.wait_until_known_at(vip, &link.ours);
    link.ping(vip);
    let group = routers.status().group("main").unwrap().clone();
    assert_eq!(group.routers[&family].counters.received_priority_zero, 1, "keepalived resigned");

    let _keepalived = Keepalived::start(&link.theirs, &better);
    wait_for("we give way", &routers, is(State::Backup));
    wait_until("we have the address no more", PATIENCE, || !has(&link.ours, vip) && has(&link.theirs, vip));
    link.wait_until_known_at(vip, &link.theirs);
    link.ping(vip);
}

/// We are better, and Active; we leave, and come back.
fn we_are_active(version: Version, family: Family, travel: Travel, tag: &str) {
    let link = Link::new(tag);
    let (ours, theirs) = routers(version, family, travel);
    let vip = vip(family);
    let ours = DesiredGroup { priority: priority(150), ..ours };
    let routers = spawn(&link.ours, "vipherald");
    configure(&routers, &ours);
    wait_for("we are Active", &routers, is(State::Active));
    let keepalived = Keepalived::start(&link.theirs, &theirs);
    keepalived.wait_until_backup();
    link.ping(vip);
    link.wait_until_known_at(vip, &link.ours);

    routers.stop();
    wait_until("keepalived follows", PATIENCE, || has(&link.theirs, vip));
    link.wait_until_known_at(vip, &link.theirs);
    wait_until("we have left", PATIENCE, || routers.status().stopped);
    assert!(!has(&link.ours, vip));
    link.ping(vip);

    configure(&routers, &ours);
    wait_for("we are back", &routers, is(State::Active));
    wait_until("keepalived gives way", PATIENCE, || !has(&link.theirs, vip));
    link.wait_until_known_at(vip, &link.ours);
    link.ping(vip);
    assert!(keepalived.is_running());
}

macro_rules! roles {
    ($($name:ident: $version:ident $family:ident $travel:ident;)*) => {$(
        mod $name {
            use super::*;

            #[test]
            fn we_are_backup() {
                super::we_are_backup(Version::$version, Family::$family, Travel::$travel, concat!(stringify!($name), "-b"));
            }

            #[test]
            fn we_are_active() {
                super::we_are_active(Version::$version, Family::$family, Travel::$travel, concat!(stringify!($name), "-a"));
            }
        }
    )*};
}

roles! {
    v2_multicast: V2 Ipv4 Multicast;
    v2_unicast: V2 Ipv4 Unicast;
    v3_ipv4_multicast: V3 Ipv4 Multicast;
    v3_ipv4_unicast: V3 Ipv4 Unicast;
    v3_ipv6_multicast: V3 Ipv6 Multicast;
    v3_ipv6_unicast: V3 Ipv6 Unicast;
}

/// Sums with a pseudo header are what keepalived sends and, for unicast, all that it takes: the two of them are Active until we have heard it.
#[test]
fn the_form_of_the_checksum_is_learned() {
    let link = Link::new("form");
    let (ours, theirs) = routers(Version::V3, Family::Ipv4, Travel::Multicast);
    let ours = DesiredGroup { checksum: ChecksumChoice::AsHeard, priority: priority(150), ..ours };
    let routers = spawn(&link.ours, "vipherald");
    configure(&routers, &ours);
    wait_for("we are Active", &routers, is(State::Active));
    let keepalived = Keepalived::start(&link.theirs, &theirs);
    let form = |group: &GroupStatus| group.routers[&Family::Ipv4].checksums[&Family::Ipv4.multicast_group()];
    keepalived.wait_until_active();
    wait_for("we send what keepalived does", &routers, |group| form(group) == ChecksumForm::PseudoHeader);
    wait_until("keepalived gives way", PATIENCE, || !has(&link.theirs, vip(Family::Ipv4)));
    assert_eq!(routers.status().group("main").unwrap().state(), State::Active);
    link.ping(vip(Family::Ipv4));
    link.wait_until_known_at(vip(Family::Ipv4), &link.ours);
}

#[test]
fn rfc9568_6_1_without_preemption_a_better_router_waits() {
    let link = Link::new("nopre");
    let (ours, theirs) = routers(Version::V3, Family::Ipv4, Travel::Unicast);
    let keepalived = Keepalived::start(&link.theirs, &theirs);
    keepalived.wait_until_active();
    let ours = DesiredGroup { preempt: Preempt::Never, priority: priority(200), ..ours };
    let routers = spawn(&link.ours, "vipherald");
    configure(&routers, &ours);
    let heard = |group: &GroupStatus| group.routers[&Family::Ipv4].counters.received > 20;
    wait_for("we have heard keepalived for some down intervals", &routers, heard);
    assert_eq!(routers.status().group("main").unwrap().routers[&Family::Ipv4].counters.became_active, 0);
    keepalived.end();
    wait_for("we follow", &routers, is(State::Active));
    // The same the other way round.
    let keepalived = Keepalived::start(&link.theirs, &Setup { no_preempt: true, priority: 250, ..theirs });
    keepalived.wait_until_backup();
    let sent = routers.status().group("main").unwrap().routers[&Family::Ipv4].counters.sent;
    wait_for("some down intervals", &routers, |group| group.routers[&Family::Ipv4].counters.sent > sent + 20);
    assert_eq!(routers.status().group("main").unwrap().state(), State::Active);
    assert!(!has(&link.theirs, vip(Family::Ipv4)));
}

/// Another virtual router, of others, has taken our VRID.
#[test]
fn a_foreign_router_with_our_vrid_is_told_with_its_address() {
    let link = Link::new("foreign");
    let (ours, theirs) = routers(Version::V3, Family::Ipv4, Travel::Multicast);
    let foreign: IpAddr = "10.97.0.200".parse().unwrap();
    let _keepalived = Keepalived::start(&link.theirs, &Setup { vips: vec![foreign], priority: 200, ..theirs });
    wait_until("it has its address", PATIENCE, || has(&link.theirs, foreign));
    let routers = spawn(&link.ours, "vipherald");
    configure(&routers, &ours);
    let told = |group: &GroupStatus| {
        let other = group.routers[&Family::Ipv4].others.get(&address(Family::Ipv4, 2));
        other.and_then(|other| other.lists.as_ref()).is_some_and(|lists| lists.iter().eq([foreign]))
    };
    wait_for("it is told what it lists", &routers, told);
}

/// Peers that are on the link may be named by their link-local addresses.
#[test]
fn unicast_between_link_local_addresses() {
    let link = Link::new("ll");
    let (ours, theirs) = routers(Version::V3, Family::Ipv6, Travel::Unicast);
    let peers = BTreeSet::from([link_local(&link.theirs)]);
    let ours = DesiredGroup { transport: DesiredTransport::Unicast { peers, single: false }, ..ours };
    let unicast = Some((link_local(&link.theirs), link_local(&link.ours)));
    let keepalived = Keepalived::start(&link.theirs, &Setup { unicast, priority: 150, ..theirs });
    keepalived.wait_until_active();
    let routers = spawn(&link.ours, "vipherald");
    configure(&routers, &ours);
    wait_for("we hear keepalived", &routers, |group| group.routers[&Family::Ipv6].counters.received > 10);
    assert_eq!(routers.status().group("main").unwrap().state(), State::Backup);
    link.ping(vip(Family::Ipv6));
    keepalived.end();
    wait_for("we follow", &routers, is(State::Active));
    link.wait_until_known_at(vip(Family::Ipv6), &link.ours);
}

/// keepalived sends IPv6 unicast with the hop limit of any other packet, unless it is told otherwise: then we have to be.
#[test]
fn a_lower_hop_limit_is_accepted_where_it_is_allowed() {
    let link = Link::new("hops");
    let (ours, theirs) = routers(Version::V3, Family::Ipv6, Travel::Unicast);
    let keepalived = Keepalived::start(&link.theirs, &Setup { unicast_ttl: None, priority: 150, ..theirs });
    keepalived.wait_until_active();
    let routers = spawn(&link.ours, "vipherald");
    configure(&routers, &ours);
    let refused = |group: &GroupStatus| group.routers[&Family::Ipv6].counters.discarded.ttl > 0;
    wait_for("its packets are dropped", &routers, refused);
    let other =
        |group: &GroupStatus| group.routers[&Family::Ipv6].others[&address(Family::Ipv6, 2)].discarded.map(|reason| reason.to_string());
    let reason = "TTL 64, expected 255 or more: it may come from another link";
    assert_eq!(routers.status().group("main").and_then(other).as_deref(), Some(reason));
    configure(&routers, &DesiredGroup { least_ttl: 64, ..ours });
    wait_for("we are Backup", &routers, |group| group.state() == State::Backup && group.routers[&Family::Ipv6].heard.is_some());
}

/// Priority 0 is followed in Skew_Time, not in Active_Down_Interval (RFC 9568 §6.4.2): 0.6 s instead of 3.6.
#[test]
fn rfc9568_6_4_2_who_resigns_is_followed_at_once() {
    let link = Link::new("zero");
    let (ours, theirs) = routers(Version::V3, Family::Ipv4, Travel::Multicast);
    let interval = Interval::DEFAULT;
    let keepalived = Keepalived::start(&link.theirs, &Setup { priority: 150, centiseconds: 100, ..theirs });
    keepalived.wait_until_active();
    let routers = spawn(&link.ours, "vipherald");
    configure(&routers, &DesiredGroup { interval, ..ours });
    wait_for("we hear keepalived", &routers, |group| group.routers[&Family::Ipv4].heard.is_some());
    let start = Instant::now();
    keepalived.end();
    wait_for("we follow", &routers, is(State::Active));
    assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
}

/// The client knows the virtual router MAC, and is never told another one.
fn behind_the_virtual_router_mac(family: Family, tag: &str) {
    let link = Link::new(tag);
    let (ours, theirs) = routers(Version::V3, family, Travel::Multicast);
    let vip = vip(family);
    let theirs = Setup { priority: 150, virtual_mac: true, ..theirs };
    for (host, setting) in [(&link.ours, "arp_announce=2"), (&link.theirs, "arp_announce=2"), (&link.theirs, "arp_ignore=1")] {
        host.output(&["sysctl", "-w", &format!("net.ipv4.conf.eth0.{setting}")]);
    }
    let keepalived = Keepalived::start(&link.theirs, &theirs);
    keepalived.wait_until_active();
    let routers = spawn(&link.ours, "vipherald");
    configure(&routers, &DesiredGroup { virtual_mac: true, ..ours });
    wait_for("we are Backup, and hear it", &routers, |group| is(State::Backup)(group) && group.routers[&family].heard.is_some());
    link.ping(vip);
    let mac = Vrid::new(VRID).unwrap().mac(family).map(|octet| format!("{octet:02x}")).join(":");
    let known = link.client.ip(&format!("neigh show {vip} dev eth0"));
    assert!(known.contains(&mac), "{known}");
    link.client.ip(&format!("neigh replace {vip} lladdr {mac} nud permanent dev eth0"));
    keepalived.end();
    wait_for("we follow", &routers, |group| is(State::Active)(group) && group.routers[&family].placed.contains(&vip));
    link.ping(vip);
    let _keepalived = Keepalived::start(&link.theirs, &theirs);
    wait_for("we give way", &routers, |group| is(State::Backup)(group) && group.routers[&family].placed.is_empty());
    link.ping(vip);
}

#[test]
fn rfc9568_7_3_the_virtual_router_mac_of_ipv4_goes_from_one_to_the_other() {
    behind_the_virtual_router_mac(Family::Ipv4, "kvmac4");
}

#[test]
fn rfc9568_7_3_the_virtual_router_mac_of_ipv6_goes_from_one_to_the_other() {
    behind_the_virtual_router_mac(Family::Ipv6, "kvmac6");
}
