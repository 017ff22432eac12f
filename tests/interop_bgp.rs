// SPDX-License-Identifier: Apache-2.0
//! What the speaker makes of its node, with a real router as the witness: addresses, next hops, our BGP Identifier, and VIPs that come and go. What works
//! with which peer is the matrix in `interop/`.

#![allow(clippy::unwrap_used, reason = "a failed test says where")]

mod common;
#[path = "interop/peers/mod.rs"]
mod peers;
#[path = "interop/rig.rs"]
mod rig;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use bgp::rib::Withheld;
use bgp::{BgpIdentifier, Family, Prefix};
use common::wait_until;
use peers::{Router, Setup, Software};
use rig::{
    AS, OURS_V4, OURS_V6, PATIENCE, Rig, SESSIONS, THEIRS_V4, THEIRS_V6, both_sessions, is_up, neighbour, peer, peer_of, prefix, reason,
    set, speaker_of, wait_for, wait_until_up,
};
use vipherald::desired::{DesiredPeer, RouteSet, Transport};

/// `count` VIPs of each family.
fn many(count: u16) -> Arc<RouteSet> {
    let v4 = (0..count).map(|number| Prefix::host(Ipv4Addr::from_bits(0x0A01_0000 + u32::from(number)).into()));
    let v6 = (0..count).map(|number| Prefix::host(Ipv6Addr::new(0x2001, 0xdb8, 7, 0, 0, 0, 0, number).into()));
    Arc::new(v4.chain(v6).collect())
}

#[test]
fn source_and_interface_are_those_configured() {
    let rig = Rig::dual_stack("source");
    rig.ours.ip("address add 10.99.0.9/24 dev eth0");
    let neighbours = vec!["10.99.0.9".parse().unwrap()];
    let router = Router::start(Software::Bird, &rig.theirs, Setup { neighbours, ..peer_of(AS, AS) });
    let transport = |source: Option<&str>, interface: &str| Transport {
        source: source.map(|source| source.parse().unwrap()),
        interface: Some(interface.to_owned()),
        ..Transport::default()
    };
    let configured = |transport| speaker_of(AS, [("v4", DesiredPeer { transport, ..neighbour(THEIRS_V4.into(), AS) })]);
    let speaker = rig.speaker();
    speaker.advertise(set(["10.0.0.7"]));
    speaker.configure(configured(transport(Some("10.99.0.9"), "eth0")), None);
    let status = wait_for("the session is up", &speaker, |status| is_up(status, "v4"));
    assert_eq!(peer(&status, "v4").local_address, Some("10.99.0.9".parse().unwrap()));
    wait_until("the route is learned", PATIENCE, || router.learned("10.99.0.9".parse().unwrap(), prefix("10.0.0.7")).is_some());

    let fails = |words: &str| {
        wait_for(words, &speaker, |status| reason(status, "v4").contains(words));
    };
    speaker.configure(configured(transport(Some("10.99.0.9"), "lo")), None);
    fails("did not answer");
    speaker.configure(configured(transport(Some("10.0.0.7"), "eth0")), None);
    fails("the configured source 10.0.0.7 is a VIP");
}

/// A network plugin of the node speaks BGP with the ToR too: of two sessions between the same two addresses one would have to go (RFC 4271 §6.8).
#[test]
fn beside_another_speaker_of_the_node_we_have_an_address_of_our_own() {
    let rig = Rig::dual_stack("beside");
    let (own, plugin) = (IpAddr::from([10, 99, 0, 9]), IpAddr::V4(OURS_V4));
    rig.ours.ip("address add 10.99.0.9/24 dev eth0");
    // What it dialled to our address would reach the plugin's socket.
    let session = |name: &str, address: IpAddr, more: &str| {
        format!(
            "protocol bgp {name} {{ debug all; local as {AS}; neighbor {address} as {AS}; direct; hold time 9; connect delay time 1; {more}\n\
             \x20 ipv4 {{ import all; export none; }}; ipv6 {{ import all; export none; }}; }}\n"
        )
    };
    let sessions = session("from_10_99_0_1", plugin, "") + &session("from_10_99_0_9", own, "passive;");
    let configuration = format!("router id {THEIRS_V4};\nlog stderr all;\nprotocol device {{}}\n{sessions}");
    let tor = Router::start_with(Software::Bird, &rig.theirs, &configuration);
    let announced = [prefix("198.51.100.7")].into();
    let setup = Setup { announced, ..Setup::new(AS, OURS_V4, AS, vec![THEIRS_V4.into()]) };
    let _plugin = Router::start(Software::Bird, &rig.ours, setup);
    wait_until("all of the plugin's is learned", PATIENCE, || tor.count(plugin) == 1 && tor.end_of_ribs(plugin) == 2);
    let speaker = rig.speaker();
    speaker.advertise(set(["10.0.0.7"]));
    let configured = |source| {
        let transport = Transport { source, ..Transport::default() };
        speaker_of(AS, [("v4", DesiredPeer { transport, ..neighbour(THEIRS_V4.into(), AS) })])
    };
    speaker.configure(configured(None), None);
    wait_for("the ToR has a session with that address", &speaker, |status| !reason(status, "v4").is_empty());
    speaker.configure(configured(Some(own)), None);
    wait_for("the session is up", &speaker, |status| is_up(status, "v4"));
    wait_until("the route is learned", PATIENCE, || tor.learned(own, prefix("10.0.0.7")).is_some());
    assert_eq!((tor.count(plugin), tor.end_of_ribs(plugin)), (1, 2), "the plugin's session is the first one still");
}

#[test]
fn a_node_without_ipv4_has_sessions_and_a_router_id() {
    let rig = Rig::new("v6-only");
    rig.ours.ip(&format!("address add {OURS_V6}/64 dev eth0"));
    rig.theirs.ip(&format!("address add {THEIRS_V6}/64 dev eth0"));
    let router = Router::start(Software::Bird, &rig.theirs, Setup { neighbours: vec![OURS_V6.into()], ..peer_of(AS, AS) });
    let speaker = rig.speaker();
    speaker.advertise(set(["10.0.0.7", "2001:db8:7::7"]));
    speaker.configure(speaker_of(AS, [("v6", neighbour(THEIRS_V6.into(), AS))]), None);
    let status = wait_for("the session is up and told", &speaker, |status| is_up(status, "v6") && peer(status, "v6").advertised == 1);
    assert!(status.router_id.is_some());
    assert_eq!(peer(&status, "v6").withheld.get(&prefix("10.0.0.7")), Some(&Withheld::NoNextHop(Family::Ipv4Unicast)));
    wait_until("the IPv6 route is learned", PATIENCE, || router.learned(OURS_V6.into(), prefix("2001:db8:7::7")).is_some());
    assert_eq!(router.count(OURS_V6.into()), 1);
}

#[test]
fn a_router_id_is_waited_for_and_never_a_vip() {
    let rig = Rig::new("late");
    rig.ours.ip("address add 10.0.0.7/32 dev lo");
    rig.ours.ip("address add 10.0.0.8/32 dev eth0");
    let speaker = rig.speaker();
    speaker.advertise(set(["10.0.0.7", "10.0.0.8"]));
    speaker.configure(speaker_of(AS, [("v4", neighbour(THEIRS_V4.into(), AS))]), None);
    rig.theirs.ip(&format!("address add {THEIRS_V4}/24 dev eth0"));
    let router = Router::start(Software::Bird, &rig.theirs, peer_of(AS, AS));
    assert_eq!(speaker.status().router_id, None);
    assert!(speaker.status().peers.is_empty());
    rig.ours.ip(&format!("address add {OURS_V4}/24 dev eth0"));
    let status = wait_for("the session is up", &speaker, |status| is_up(status, "v4"));
    assert_eq!(status.router_id, BgpIdentifier::try_from(OURS_V4).ok());
    wait_until("the routes are learned", PATIENCE, || router.count(OURS_V4.into()) == 2);
}

#[test]
fn vips_come_and_go_without_touching_the_sessions() {
    let rig = Rig::dual_stack("churn");
    let router = Router::start(Software::Frr, &rig.theirs, peer_of(AS, AS));
    let speaker = rig.speaker();
    speaker.advertise(many(0));
    speaker.configure(both_sessions(AS, AS), None);
    let before = wait_until_up(&speaker);
    for round in 0..20 {
        speaker.advertise(many(500));
        if round % 2 == 0 {
            wait_for("all are told", &speaker, |status| SESSIONS.iter().all(|(name, _)| peer(status, name).advertised == 1000));
        }
        speaker.advertise(many(20));
        wait_for("the others are withdrawn", &speaker, |status| status.withdrawing().is_empty());
    }
    for neighbour in [OURS_V4.into(), OURS_V6.into()] {
        wait_until("exactly the last set is learned", PATIENCE, || router.count(neighbour) == 40);
    }
    let after = speaker.status();
    for (name, _) in SESSIONS {
        assert_eq!(peer(&after, name).established_since, peer(&before, name).established_since);
        assert_eq!(peer(&after, name).counters.sent.notification + peer(&after, name).counters.received.notification, 0);
    }
}

#[test]
fn next_hops_follow_the_nodes_addresses_in_the_same_session() {
    const MOVED_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0x99, 0, 0, 0, 0, 9);
    let rig = Rig::dual_stack("moved");
    let router = Router::start(Software::Bird, &rig.theirs, peer_of(AS, AS));
    let speaker = rig.speaker();
    speaker.advertise(set(["2001:db8:7::7"]));
    speaker.configure(speaker_of(AS, [("v4", neighbour(THEIRS_V4.into(), AS))]), None);
    let status = wait_for("the session is up", &speaker, |status| is_up(status, "v4"));
    let next_hop = || router.learned(OURS_V4.into(), prefix("2001:db8:7::7")).map(|learned| learned.next_hop);
    wait_until("the route is learned", PATIENCE, || next_hop() == Some(OURS_V6.into()));
    rig.ours.ip(&format!("address del {OURS_V6}/64 dev eth0"));
    wait_until("the route without next hop is withdrawn", PATIENCE, || next_hop().is_none());
    rig.ours.ip(&format!("address add {MOVED_V6}/64 dev eth0"));
    wait_until("the route has the new next hop", PATIENCE, || next_hop() == Some(MOVED_V6.into()));
    assert_eq!(peer(&speaker.status(), "v4").established_since, peer(&status, "v4").established_since);
}
