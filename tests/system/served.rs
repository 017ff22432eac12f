// SPDX-License-Identifier: Apache-2.0
//! Announced only while somebody stands behind it.

use std::collections::BTreeSet;
use std::net::IpAddr;

use nix::sys::signal::Signal;

use crate::common::wait_until;
use crate::rig::{Monitor, PATIENCE, Rig, Settings, addresses, endpoints, service, vips, wait_until_equal};

fn both() -> BTreeSet<IpAddr> {
    vips(["10.1.0.1", "2001:db8:7::1"])
}

/// Waits until each of them is withheld for this reason, and nothing of ours is on the node or in BIRD.
fn wait_until_withheld(rig: &Rig, vips: &BTreeSet<IpAddr>, reason: &str) {
    wait_until(&format!("{vips:?} are withheld: {reason}"), PATIENCE, || {
        vips.iter().map(|vip| rig.daemon.vip(*vip)).all(|vip| vip["state"] == "Withheld" && vip["reason"] == reason)
    });
    wait_until_equal("addresses on lo", &BTreeSet::new(), || addresses(&rig.node, "lo"));
    wait_until_equal("the record", &BTreeSet::new(), || rig.record().placed);
    wait_until_equal("routes of BIRD", &BTreeSet::new(), || rig.tor.learned());
}

#[test]
fn without_endpoints_a_vip_is_withdrawn_then_removed_and_comes_back_with_them() {
    let mut rig = Rig::serving("endpoints", Settings { fabric_delay: "500ms", ..Settings::default() }, &both());
    let session = rig.session();
    let node = Monitor::start(&rig.node, "address");
    let tor = Monitor::start(&rig.tor.namespace, "route");
    let not_ready = endpoints("web").replace("endpoints: [{", "endpoints: [{conditions: {ready: false, serving: false}, ");
    rig.daemon.replace("manifests/vips.yaml", &(service("web", &both()) + &not_ready));
    wait_until_withheld(&rig, &both(), "NoEndpoints");
    for vip in both() {
        let withdrawn = tor.events(&format!("Deleted {vip} "))[0].0;
        let removed = node.events(&format!(" {vip}/"))[0].0;
        assert!(withdrawn < removed, "{vip} left the node at {removed} and the ToR at {withdrawn}");
    }
    rig.daemon.publish(&both());
    rig.wait_until_exact(&both());

    // Each family needs endpoints of its own, and a deleted Service takes its VIPs with it.
    let only_v4 = endpoints("web").split("---\n").next().unwrap().to_owned();
    rig.daemon.replace("manifests/vips.yaml", &(service("web", &both()) + &only_v4));
    wait_until("IPv6 has no endpoint", PATIENCE, || rig.daemon.vip("2001:db8:7::1".parse().unwrap())["reason"] == "NoEndpoints");
    wait_until_equal("routes of BIRD", &vips(["10.1.0.1"]), || rig.tor.learned());
    wait_until_equal("addresses on lo", &vips(["10.1.0.1"]), || addresses(&rig.node, "lo"));
    rig.daemon.replace("manifests/vips.yaml", &endpoints("web"));
    rig.wait_until_exact(&BTreeSet::new());

    // Without endpoints, but announced all the same where the configuration says so.
    rig.daemon.replace("manifests/vips.yaml", &service("web", &both()));
    wait_until_withheld(&rig, &both(), "NoEndpoints");
    rig.daemon.settings.without_endpoints = "announce";
    rig.daemon.write_config();
    rig.wait_until_exact(&both());
    assert_eq!(rig.daemon.vip("10.1.0.1".parse().unwrap())["reason"], "WithoutEndpoints");
    rig.daemon.settings.without_endpoints = "withdraw";
    rig.daemon.write_config();
    wait_until_withheld(&rig, &both(), "NoEndpoints");
    assert_eq!(rig.session(), session);
}

#[test]
fn a_vip_that_needs_a_dataplane_is_shown_and_not_announced() {
    let rig = Rig::serving("ingress", Settings::default(), &vips(["10.1.0.1"]));
    let example = |name: &str| std::fs::read_to_string(format!("{}/examples/manifests/{name}.yaml", env!("CARGO_MANIFEST_DIR"))).unwrap();
    rig.daemon.replace("manifests/eric.yaml", &example("eric-ingress"));
    rig.daemon.replace("manifests/lvs.yaml", &example("lvs-ingress"));
    for vip in vips(["10.232.35.199", "10.32.184.59"]) {
        let needs = || rig.daemon.vip(vip)["reason"] == "NeedsDataplane";
        wait_until(&format!("{vip} is shown to need a dataplane"), PATIENCE, needs);
        let shown = rig.daemon.vip(vip);
        assert_eq!((&shown["state"], &shown["peers"]), (&"Withheld".into(), &serde_json::json!([])), "{shown}");
    }
    rig.daemon.publish(&vips(["10.1.0.2"]));
    wait_until_equal("routes of BIRD", &vips(["10.1.0.2"]), || rig.tor.learned());
    wait_until_equal("addresses on lo", &vips(["10.1.0.2"]), || addresses(&rig.node, "lo"));
}

#[test]
fn speaker_only_announces_what_others_placed_inside_the_allowed_prefix() {
    let rig = Rig::new("speaker-only");
    rig.node.ip("link add vips0 type bridge");
    rig.node.ip("link set vips0 up");
    let config = std::fs::read_to_string(rig.daemon.path("config.yaml")).unwrap();
    let allowed = "dataplane: {type: none}\nvips: {allow: [{prefix: 10.1.0.0/24}, {prefix: \"2001:db8:7::/64\"}], interface: vips0";
    let config = config.replace("vips: {interface: lo", allowed);
    rig.daemon.replace("config.yaml", &config);
    let mut command = rig.node.command(env!("CARGO_BIN_EXE_vipherald"));
    let process = rig.node.spawn(command.arg("run").arg("--config").arg(rig.daemon.path("config.yaml")));
    for (address, device) in [
        ("10.1.0.1/32", "vips0"),
        ("10.1.0.2/32", "vips0"),
        ("2001:db8:7::1/128", "vips0"),
        ("10.2.0.1/32", "vips0"),
        ("10.1.0.3/32", "lo"),
    ] {
        rig.node.ip(&format!("address add {address} dev {device}"));
    }
    let allowed = vips(["10.1.0.1", "10.1.0.2", "2001:db8:7::1"]);
    wait_until_equal("routes of BIRD", &allowed, || rig.tor.learned());
    let shown = rig.daemon.vip("10.1.0.1".parse().unwrap());
    assert_eq!((&shown["state"], &shown["reason"]), (&"Announced".into(), &"FoundOnInterface".into()), "{shown}");
    rig.node.ip("address del 10.1.0.2/32 dev vips0");
    wait_until_equal("routes of BIRD", &vips(["10.1.0.1", "2001:db8:7::1"]), || rig.tor.learned());
    process.signal(Signal::SIGTERM);
    assert_eq!(process.wait(PATIENCE).code(), Some(0));
    assert_eq!(rig.tor.learned(), vips([]));
    assert_eq!(addresses(&rig.node, "vips0"), vips(["10.1.0.1", "2001:db8:7::1", "10.2.0.1"]), "what others placed stays");
    assert!(!rig.has_record());
}
