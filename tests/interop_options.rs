// SPDX-License-Identifier: Apache-2.0
//! What becomes of a session that ends for a reason, and names for display, with the routers that show it. What works with which peer is the matrix in
//! `interop/`.

#![allow(clippy::unwrap_used, reason = "a failed test says where")]

mod common;
#[path = "interop/peers/mod.rs"]
mod peers;
#[path = "interop/rig.rs"]
mod rig;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bgp::Family;
use common::wait_until;
use peers::{Router, Setup, Software};
use rig::{
    AS, LARGE_AS, OURS_V4, PATIENCE, Rig, THEIR_AS, THEIRS_V4, is_up, neighbour, operate, peer, peer_of, prefix, reason, set, speaker_of,
    wait_for,
};
use vipherald::desired::{DesiredBgp, DesiredExport, DesiredImport, DesiredPeer, DesiredRestart};
use vipherald::driver::bgp::{Operation, Speaker};

const VIP: &str = "10.0.0.7";

fn tor() -> DesiredPeer {
    neighbour(THEIRS_V4.into(), THEIR_AS)
}

fn configure(speaker: &Speaker, peer: DesiredPeer) {
    speaker.configure(speaker_of(AS, [("tor", peer)]), None);
}

/// A speaker whose session is up, and that announces the VIP.
fn speaker(rig: &Rig, peer: DesiredPeer) -> Speaker {
    let speaker = rig.speaker();
    speaker.advertise(set([VIP]));
    configure(&speaker, peer);
    wait_for("the session is up", &speaker, |status| is_up(status, "tor"));
    speaker
}

fn setup() -> Setup {
    Setup { neighbours: vec![OURS_V4.into()], ..peer_of(THEIR_AS, AS) }
}

#[test]
fn rfc8538_with_frr_a_reset_keeps_the_routes_and_a_hard_reset_does_not() {
    let rig = Rig::dual_stack("nbit-frr");
    let configuration = format!(
        "router bgp {THEIR_AS}\n bgp router-id {THEIRS_V4}\n no bgp ebgp-requires-policy\n bgp graceful-restart\n bgp graceful-restart notification\n \
         neighbor {OURS_V4} remote-as {AS}\n neighbor {OURS_V4} timers 3 9\n neighbor {OURS_V4} timers connect 1\n"
    );
    let router = Router::start_with(Software::Frr, &rig.theirs, &configuration);
    let restart = DesiredRestart { restart_time: 60, notification: true, long_lived_stale_time: 0 };
    let speaker = speaker(&rig, DesiredPeer { graceful_restart: Some(restart), ..tor() });
    wait_until("the route is in the kernel", PATIENCE, || !rig.kernel_route(VIP).is_empty());
    let monitor = rig.theirs.spawn(rig.theirs.command("ip").args(["monitor", "route"]));
    operate(&speaker, "tor", Operation::Reset);
    wait_for("the session comes back", &speaker, |status| is_up(status, "tor") && peer(status, "tor").counters.established == 2);
    wait_until("FRR has heard all", PATIENCE, || router.end_of_ribs(OURS_V4.into()) == 2);
    assert!(!monitor.log().contains("Deleted 10.0.0.7"), "{}", monitor.log());

    operate(&speaker, "tor", Operation::Shutdown { message: None });
    wait_until("the route is gone", PATIENCE, || rig.kernel_route(VIP).is_empty());
    wait_until("it was deleted", PATIENCE, || monitor.log().contains("Deleted 10.0.0.7"));
}

#[test]
fn rfc4486_4_bird_is_told_that_it_announced_too_much() {
    let rig = Rig::dual_stack("limit-bird");
    let announced = ["198.51.100.1", "198.51.100.2", "198.51.100.3"].map(prefix).into();
    let router = Router::start(Software::Bird, &rig.theirs, Setup { announced, ..setup() });
    let limited = |limit| {
        let import =
            DesiredImport { max_prefixes: BTreeMap::from([(Family::Ipv4Unicast, limit)]), restart_delay: Duration::from_secs(3600) };
        DesiredPeer { import, ..tor() }
    };
    let speaker = speaker(&rig, tor());
    wait_for("all is told", &speaker, |status| peer(status, "tor").counters.prefixes.values().any(|counts| counts.announced == 3));
    configure(&speaker, limited(2));
    wait_for("it is too much", &speaker, |status| reason(status, "tor").contains("more than 2 prefixes of ipv4-unicast"));
    wait_until("BIRD was told why", PATIENCE, || router.log().contains("Received: Maximum number of prefixes reached"));
    assert!(!is_up(&speaker.status(), "tor"));
    configure(&speaker, limited(3));
    wait_for("the session is back", &speaker, |status| {
        is_up(status, "tor") && peer(status, "tor").held.get(&Family::Ipv4Unicast) == Some(&3)
    });
}

/// Inside an AS the bandwidth does not leave it, across its border it is transitive; FRR weighs paths by it.
#[test]
fn frr_reads_the_bandwidth_of_the_link() {
    for their_as in [AS, THEIR_AS] {
        let rig = Rig::dual_stack("bandwidth");
        let router = Router::start(Software::Frr, &rig.theirs, Setup { neighbours: vec![OURS_V4.into()], ..peer_of(their_as, AS) });
        let export = DesiredExport { link_bandwidth: Some(1_250_000_000), ..DesiredExport::default() };
        let _speaker = speaker(&rig, DesiredPeer { export, ..neighbour(THEIRS_V4.into(), their_as) });
        let mut shown = serde_json::Value::Null;
        wait_until("FRR has the route", PATIENCE, || {
            shown = router.vtysh(&format!("show bgp ipv4 unicast {VIP}/32 json"))["paths"][0].take();
            shown.is_object()
        });
        assert_eq!(shown["extendedCommunity"]["string"], format!("LB:{AS}:1250000000 (10.000 Gbps)"), "{shown:#}");
    }
}

/// RFC 6793 §4.2.2: a router that says nothing of AS numbers of four octets is told AS_TRANS. FRR takes ours from the capability all the same, and then no
/// notice of AS4_PATH.
#[test]
fn frr_that_negotiates_no_capabilities_has_a_session_and_the_route() {
    let rig = Rig::dual_stack("old-frr");
    let configuration = format!(
        "router bgp {THEIR_AS}\n bgp router-id {THEIRS_V4}\n no bgp ebgp-requires-policy\n neighbor {OURS_V4} remote-as {LARGE_AS}\n \
         neighbor {OURS_V4} dont-capability-negotiate\n neighbor {OURS_V4} timers connect 1\n"
    );
    let router = Router::start_with(Software::Frr, &rig.theirs, &configuration);
    let speaker = rig.speaker();
    speaker.advertise(set([VIP]));
    speaker.configure(speaker_of(LARGE_AS, [("tor", tor())]), None);
    let status = wait_for("the session is up", &speaker, |status| is_up(status, "tor"));
    let theirs = peer(&status, "tor").opens.remote.as_ref().map(|(open, _)| open.capabilities.clone());
    assert_eq!(theirs, Some(Vec::new()));
    assert_eq!(peer(&status, "tor").families, BTreeSet::from([Family::Ipv4Unicast]), "RFC 4760 §8: what there was before");
    let mut learned = None;
    wait_until("the route is learned", PATIENCE, || {
        learned = router.learned(OURS_V4.into(), prefix(VIP));
        learned.is_some()
    });
    assert_eq!(learned.unwrap().as_path, [23456]);
}

#[test]
fn names_for_display_are_shown_by_frr_and_harm_nobody() {
    for software in [Software::Frr, Software::Bird] {
        let rig = Rig::dual_stack("names");
        let router = Router::start(software, &rig.theirs, setup());
        let speaker = rig.speaker();
        let named = DesiredBgp {
            host_name: Some("node-7.rack.example".to_owned()),
            send_software_version: true,
            ..DesiredBgp::clone(&speaker_of(AS, [("tor", tor())]))
        };
        speaker.configure(Arc::new(named), None);
        wait_for("the session is up", &speaker, |status| is_up(status, "tor"));
        if software == Software::Frr {
            let neighbour = router.vtysh(&format!("show bgp neighbors {OURS_V4} json"));
            assert_eq!(neighbour[OURS_V4.to_string()]["hostname"], "node-7", "{neighbour:#}");
        }
    }
}
