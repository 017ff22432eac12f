// SPDX-License-Identifier: Apache-2.0
//! What both sides agree on in their OPENs, and what comes of it.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv6Addr};

use bgp::Family;
use bgp::peer::RoleConfig;
use bgp::rib::Withheld;
use bgp::wire::BgpRole;
use vipherald::desired::{DesiredExport, DesiredPeer, Transport, Ttl};
use vipherald::driver::bgp::Speaker;

use crate::common::wait_until;
use crate::peers::{Role, Router, Setup, Software};
use crate::rig::{
    AS, OURS_V4, OURS_V6, PATIENCE, Rig, THEIR_AS, THEIRS_V4, THEIRS_V6, is_up, neighbour, peer, peer_of, prefix, reason, set, speaker_of,
    wait_for,
};

const VIPS: [&str; 2] = ["10.0.0.7", "2001:db8:7::7"];

/// Addresses that are on no link.
const OUR_LOOPBACK: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0xff, 0, 0, 0, 0, 1);
const THEIR_LOOPBACK: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0xff, 0, 0, 0, 0, 2);

/// The external peer, which has one session with us.
fn it(software: Software, rig: &Rig, ours: impl Into<IpAddr>, setup: impl FnOnce(Setup) -> Setup) -> Router {
    Router::start(software, &rig.theirs, setup(Setup { neighbours: vec![ours.into()], ..peer_of(THEIR_AS, AS) }))
}

fn external(address: impl Into<IpAddr>) -> DesiredPeer {
    neighbour(address.into(), THEIR_AS)
}

fn configure(speaker: &Speaker, peer: DesiredPeer) {
    speaker.configure(speaker_of(AS, [("it", peer)]), None);
}

/// A speaker of ours that has told both VIPs to the peer.
fn speaker(rig: &Rig, peer: DesiredPeer) -> Speaker {
    let speaker = rig.speaker();
    speaker.advertise(set(VIPS));
    configure(&speaker, peer);
    speaker
}

fn wait_until_learned(router: &Router, ours: impl Into<IpAddr>) {
    let ours = ours.into();
    VIPS.iter().for_each(|vip| wait_until(&format!("{vip} is learned"), PATIENCE, || router.learned(ours, prefix(vip)).is_some()));
}

/// RFC 9234: roles that do not fit are refused (§4.2), and towards a peer our routes are marked with our AS (§5), not towards a provider.
pub(crate) fn roles(software: Software) {
    let rig = Rig::dual_stack("role");
    let start_as = |name, strict| it(software, &rig, OURS_V4, |setup| Setup { role: Some(Role { name, strict }), ..setup });
    let ours = |local, strict| DesiredPeer { role: Some(RoleConfig { local, strict }), ..external(THEIRS_V4) };
    let mark = |router: &Router| router.learned(OURS_V4.into(), prefix(VIPS[0])).unwrap().only_to_customer;

    let router = start_as("provider", true);
    let us = speaker(&rig, external(THEIRS_V4));
    wait_for("we have no role", &us, |status| reason(status, "it").contains("Role Mismatch"));
    configure(&us, ours(BgpRole::Peer, false));
    wait_for("our role does not fit", &us, |status| reason(status, "it").contains("Role Mismatch"));
    configure(&us, ours(BgpRole::Customer, true));
    wait_for("the session is up", &us, |status| is_up(status, "it"));
    wait_until_learned(&router, OURS_V4);
    assert_eq!(mark(&router), None, "our routes may go up");
    drop((us, router));

    let router = start_as("peer", false);
    let us = speaker(&rig, ours(BgpRole::Peer, true));
    wait_for("the session is up", &us, |status| is_up(status, "it"));
    wait_until_learned(&router, OURS_V4);
    assert_eq!(mark(&router), Some(AS));
}

/// RFC 8654: a route with 1,500 communities fits where both sides take long messages.
pub(crate) fn extended_messages(software: Software) {
    let rig = Rig::dual_stack("long");
    let router = it(software, &rig, OURS_V4, |setup| Setup { extended_messages: true, ..setup });
    let communities: BTreeSet<u32> = (1..=1500).collect();
    let export = DesiredExport { communities: communities.clone(), ..DesiredExport::default() };
    let with = |extended_messages| DesiredPeer { extended_messages, export: export.clone(), ..external(THEIRS_V4) };
    let us = speaker(&rig, with(false));
    let status = wait_for("the session is up", &us, |status| is_up(status, "it") && peer(status, "it").withheld.len() == 2);
    assert!(peer(&status, "it").withheld.values().all(|reason| *reason == Withheld::TooLong));
    configure(&us, with(true));
    wait_until_learned(&router, OURS_V4);
    for vip in VIPS {
        let shown = router.learned(OURS_V4.into(), prefix(vip)).unwrap().communities;
        // BIRD shows no more than the first of them.
        assert!(!shown.is_empty() && shown.is_subset(&communities) && (software == Software::Bird || shown == communities), "{shown:?}");
    }
    assert_eq!(peer(&us.status(), "it").advertised, 2);
}

/// RFC 8950: on a link without IPv4, routes to IPv4 VIPs have our IPv6 address as the next hop; and where the peer's kernel has them, packets arrive.
pub(crate) fn extended_next_hop(software: Software) {
    let rig = Rig::ipv6_only("next-hop");
    rig.put_vips(&VIPS);
    // Answers to a ping come from some IPv4 address of the router.
    rig.theirs.ip("address add 192.0.2.2/32 dev lo");
    rig.ours.ip(&format!("route add 192.0.2.2/32 via inet6 {THEIRS_V6} dev eth0"));
    let forwards = matches!(software, Software::Bird | Software::Frr);
    let router = it(software, &rig, OURS_V6, |setup| Setup { extended_next_hop: true, forwards, ..setup });
    // FRR sends router advertisements with this capability, so that the node has an address more, from which it must not dial.
    let transport = Transport { source: Some(OURS_V6.into()), ..Transport::default() };
    let with = |extended_next_hop| DesiredPeer { extended_next_hop, transport: transport.clone(), ..external(THEIRS_V6) };
    let us = speaker(&rig, with(false));
    let status = wait_for("the session is up", &us, |status| is_up(status, "it") && peer(status, "it").withheld.len() == 1);
    assert_eq!(peer(&status, "it").withheld.get(&prefix(VIPS[0])), Some(&Withheld::NoNextHop(Family::Ipv4Unicast)));
    configure(&us, with(true));
    wait_until_learned(&router, OURS_V6);
    for vip in VIPS {
        assert_eq!(router.learned(OURS_V6.into(), prefix(vip)).unwrap().next_hop, IpAddr::from(OURS_V6));
        if forwards {
            rig.wait_until_reached(vip);
        }
    }
    assert!(!forwards || rig.kernel_route(VIPS[0]).contains("via inet6"), "{}", rig.kernel_route(VIPS[0]));
}

/// RFC 2545 §3: on a shared link, over either family, the next hop has our link-local address beside the global one; otherwise it has not. Where the peer
/// has a kernel its route works each time.
pub(crate) fn link_local_next_hop(software: Software) {
    let forwards = matches!(software, Software::Bird | Software::Frr);
    let addresses: [(IpAddr, IpAddr); 3] =
        [(OURS_V4.into(), THEIRS_V4.into()), (OURS_V6.into(), THEIRS_V6.into()), (OUR_LOOPBACK.into(), THEIR_LOOPBACK.into())];
    for (ours, theirs) in addresses {
        let far = ours == IpAddr::from(OUR_LOOPBACK);
        let rig = Rig::dual_stack("rfc2545");
        rig.put_vips(&VIPS);
        rig.ours.ip(&format!("address add {OUR_LOOPBACK} dev lo nodad"));
        rig.theirs.ip(&format!("address add {THEIR_LOOPBACK} dev lo nodad"));
        rig.ours.ip(&format!("route add {THEIR_LOOPBACK} via {THEIRS_V6}"));
        rig.theirs.ip(&format!("route add {OUR_LOOPBACK} via {OURS_V6} src {THEIR_LOOPBACK}"));
        let router = it(software, &rig, ours, |setup| Setup { multihop: far.then_some(2), forwards, ..setup });
        let ttl = if far { Ttl::Multihop(2) } else { Ttl::Customary };
        let us =
            speaker(&rig, DesiredPeer { transport: Transport { source: Some(ours), ttl, ..Transport::default() }, ..external(theirs) });
        wait_for("the session is up", &us, |status| is_up(status, "it"));
        wait_until("the route is learned", PATIENCE, || router.learned(ours, prefix(VIPS[1])).is_some());
        assert_eq!(router.learned(ours, prefix(VIPS[1])).unwrap().link_local.is_some(), !far, "over {ours}");
        if forwards {
            rig.wait_until_reached(VIPS[1]);
        }
    }
}
