// SPDX-License-Identifier: Apache-2.0
//! Sessions on a link that has only link-local addresses: nobody is told the address of the peer, router advertisements tell of it.
#![allow(dead_code, reason = "each test file uses a part of it")]

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

use bgp::peer::State;
use bgp::{Asn, BgpIdentifier};
use vipherald::desired::{DesiredBgp, DesiredListen, DesiredPeer, PeerAddress, Transport};
use vipherald::driver::bgp::{PeerStatus, Speaker, SpeakerStatus};

use crate::common::{Namespace, wait_until};
use crate::peers::{Router, Software};
use crate::rig::{AS, PATIENCE, Rig, THEIR_AS, set};

/// We dial it.
pub(crate) fn it_is_dialled(software: Software) {
    let rig = Rig::new("dial");
    let configuration = software.unnumbered(None).replace("eth0 timers 3 9", "eth0 passive");
    let _router = Router::start_with(software, &rig.theirs, &configuration);
    let speaker = start(&rig, speaker_of(unnumbered()));
    wait_for("the session is up", &speaker, is_up_with(link_local(&rig.theirs)));
    routes_come_and_go(&rig, &speaker);
}

/// It dials us.
pub(crate) fn it_dials(software: Software) {
    let rig = Rig::new("dialled");
    let speaker = start(&rig, dialled_by_the_peer());
    let _router = Router::start_with(software, &rig.theirs, &software.unnumbered(Some(link_local(&rig.ours))));
    wait_for("the session is up", &speaker, is_up_with(link_local(&rig.theirs)));
    routes_come_and_go(&rig, &speaker);
}

/// The link-local address of `eth0`.
pub(crate) fn link_local(namespace: &Namespace) -> Ipv6Addr {
    let mut found = None;
    wait_until("eth0 has a link-local address", PATIENCE, || {
        let lines = namespace.ip("-6 -o address show dev eth0 scope link");
        found = lines.split_whitespace().find_map(|word| word.split('/').next()?.parse().ok());
        found.is_some()
    });
    found.unwrap()
}

pub(crate) fn neighbour(address: PeerAddress) -> DesiredPeer {
    let base = DesiredPeer::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), Asn::new(THEIR_AS).unwrap());
    DesiredPeer { address, connect_retry: Duration::from_secs(1), ..base }
}

pub(crate) fn unnumbered() -> DesiredPeer {
    neighbour(PeerAddress::Unnumbered("eth0".to_owned()))
}

pub(crate) fn speaker_of(peer: DesiredPeer) -> DesiredBgp {
    DesiredBgp {
        router_id: BgpIdentifier::try_from(Ipv4Addr::new(192, 0, 2, 2)).ok(),
        peers: [("leaf".to_owned(), peer)].into(),
        ..DesiredBgp::new(Asn::new(AS).unwrap())
    }
}

/// The peer dials us, and we never dial it.
pub(crate) fn dialled_by_the_peer() -> DesiredBgp {
    let peer = DesiredPeer { transport: Transport { passive: true, ..Transport::default() }, ..unnumbered() };
    let listen =
        DesiredListen { address: Ipv6Addr::UNSPECIFIED.into(), port: 179, prefixes: BTreeSet::new(), limit: 1, template: peer.clone() };
    DesiredBgp { listen: Some(listen), ..speaker_of(peer) }
}

pub(crate) fn leaf(status: &SpeakerStatus) -> Option<&PeerStatus> {
    status.peers.get("leaf").map(AsRef::as_ref)
}

pub(crate) fn wait_for(what: &str, speaker: &Speaker, wanted: impl Fn(&PeerStatus) -> bool) -> PeerStatus {
    wait_until(what, PATIENCE, || leaf(&speaker.status()).is_some_and(&wanted));
    leaf(&speaker.status()).unwrap().clone()
}

pub(crate) fn is_up_with(address: Ipv6Addr) -> impl Fn(&PeerStatus) -> bool {
    move |peer| peer.state == State::Established && peer.address == Some(IpAddr::V6(address))
}

/// The router's kernel sends what is for this VIP to us over the link, or does not.
pub(crate) fn wait_for_route(router: &Namespace, vip: &str, next_hop: Option<Ipv6Addr>) {
    let family = if vip.contains(':') { "-6" } else { "-4" };
    let mut found = String::new();
    let expected = next_hop.map(|address| format!("{} {address} dev eth0", if family == "-4" { "via inet6" } else { "via" }));
    let what = format!("the route to {vip} is {expected:?}");
    wait_until(&what, PATIENCE, || {
        found = router.ip(&format!("{family} route show {vip}"));
        expected.as_ref().map_or_else(|| found.is_empty(), |expected| found.contains(expected.as_str()))
    });
}

/// Announces and withdraws, once the session is up.
pub(crate) fn routes_come_and_go(rig: &Rig, speaker: &Speaker) {
    let next_hop = link_local(&rig.ours);
    for vip in ["10.0.0.7", "10.0.0.8", "2001:db8:7::7", "2001:db8:7::8"] {
        wait_for_route(&rig.theirs, vip, Some(next_hop));
    }
    speaker.advertise(set(["10.0.0.7", "2001:db8:7::7"]));
    for vip in ["10.0.0.8", "2001:db8:7::8"] {
        wait_for_route(&rig.theirs, vip, None);
    }
    for vip in ["10.0.0.7", "2001:db8:7::7"] {
        wait_for_route(&rig.theirs, vip, Some(next_hop));
    }
    let peer = wait_for("the peer's routes are read", speaker, |peer| peer.counters.received.update >= 2);
    assert_eq!(peer.counters.treated_as_withdraw, 0, "{peer:?}");
    assert!(peer.withheld.is_empty(), "{peer:?}");
}

pub(crate) fn start(rig: &Rig, desired: DesiredBgp) -> Speaker {
    let speaker = rig.speaker();
    speaker.advertise(set(["10.0.0.7", "10.0.0.8", "2001:db8:7::7", "2001:db8:7::8"]));
    speaker.configure(Arc::new(desired), None);
    speaker
}
