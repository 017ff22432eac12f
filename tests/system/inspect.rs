// SPDX-License-Identifier: Apache-2.0
//! What the command line shows of a peer, the reset that keeps the session, and a state directory that somebody deletes.

use std::fs;
use std::process::{Command, Output};

use serde_json::Value;

use crate::common::{Namespace, wait_until};
use crate::rig::{Daemon, PATIENCE, Rig, Settings, service, vips};

/// Runs `vipherald WORDS` with the daemon of this rig.
pub(crate) fn vipherald(rig: &Rig, words: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_vipherald"));
    command.args(words.split(' ')).arg("--socket").arg(rig.daemon.path("state/admin.sock")).output().unwrap()
}

/// What it prints; it must succeed.
pub(crate) fn told(rig: &Rig, words: &str) -> String {
    let output = vipherald(rig, words);
    assert!(output.status.success(), "{words}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_plan_names_the_vips_that_are_not_served_in_the_end() {
    let node = Namespace::new("planned");
    let daemon = Daemon::new(Settings::default());
    daemon.publish(&vips(["10.1.0.1"]));
    daemon.replace("manifests/other.yaml", &service("other", &vips(["10.1.0.2"])));
    let planned = || {
        let mut command = node.command(env!("CARGO_BIN_EXE_vipherald"));
        let output = command
            .arg("plan")
            .arg("--config")
            .arg(daemon.path("config.yaml"))
            .arg("--manifests")
            .arg(daemon.manifests())
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let without_address = planned();
    let [empty, unserved] = [
        "not served here: 10.1.0.2: NoEndpoints: no endpoint of its Services is usable",
        "not served here: 10.1.0.1: NoOwnIpv4Address: the node has no IPv4 address of its own, ",
    ];
    assert!(without_address.contains(empty) && without_address.contains(unserved), "{without_address}");
    node.ip("address add 192.0.2.1/32 dev lo");
    let with_address = planned();
    assert!(with_address.contains(empty) && !with_address.contains("10.1.0.1: No"), "{with_address}");
    assert!(with_address.contains("  advertise 10.1.0.1/32\n"), "{with_address}");
}

#[test]
fn a_peer_is_shown_in_full_and_reset_softly() {
    let rig = Rig::serving("inspect", Settings::default(), &vips(["10.1.0.1", "2001:db8:7::1"]));
    let session = rig.session();
    let peer = told(&rig, "show peer tor");
    for line in [
        "Address:        10.99.0.2:179, AS 65001 (internal)",
        "BGP Identifier: 10.99.0.2",
        "Sessions:       1 established, 0 lost",
        "Times:          hold 9s offered, 9s by the peer, 9s in force, keepalive 3s, send hold 480s, connect retry 1s",
        "4-octet AS number (RFC 6793)            AS 65001                    AS 65001                    yes",
        "ipv6-unicast  1           0         0                0                -     -",
    ] {
        assert!(peer.lines().any(|found| found == line), "'{line}' in\n{peer}");
    }
    assert!(told(&rig, "show peers tor -o wide").contains("Established"));
    let absent = vipherald(&rig, "show peer rot");
    assert_eq!(
        (absent.status.code(), String::from_utf8_lossy(&absent.stderr).as_ref()),
        (Some(1), "vipherald: show: there is no peer 'rot'; there is tor\n")
    );

    let reset = told(&rig, "peer reset tor --soft");
    let expected = "tor is told all of ipv4-unicast and ipv6-unicast again, between BoRR and EoRR (RFC 7313); \
                    is asked for all of ipv4-unicast and ipv6-unicast (ROUTE-REFRESH, RFC 2918)\n";
    assert_eq!(reset, expected);
    wait_until("BIRD has answered", PATIENCE, || rig.daemon.peer("tor")["received"]["routeRefresh"] == 4);
    assert_eq!(rig.session(), session);

    let advertised: Value = serde_json::from_str(&told(&rig, "show routes advertised tor -o json")).unwrap();
    for document in [&advertised, &serde_json::from_str(&told(&rig, "show routes received tor -o json")).unwrap()] {
        assert_eq!(
            (&document["apiVersion"], &document["instance"]),
            (&"vipherald.io/v1alpha1".into(), &rig.daemon.show("vips").0["instance"])
        );
        assert!(document["node"].is_string() && document["observedAt"].is_string() && document["warnings"].is_array(), "{document}");
        assert_eq!(document["peer"], "tor");
    }
    let hops: Vec<(&Value, &Value)> =
        advertised["routes"].as_array().unwrap().iter().map(|route| (&route["prefix"], &route["nextHop"])).collect();
    assert_eq!(hops, [(&"10.1.0.1/32".into(), &"10.99.0.1".into()), (&"2001:db8:7::1/128".into(), &"2001:db8:99::1".into())]);
    assert_eq!((&advertised["routes"][0]["localPreference"], &advertised["routes"][0]["asPath"]), (&100.into(), &"".into()));
    let nothing = vipherald(&rig, "show routes advertised tor 10.1.0.77");
    assert!(nothing.status.success() && String::from_utf8_lossy(&nothing.stderr).contains("10.1.0.77/32 is not for it"), "{nothing:?}");
    let received = vipherald(&rig, "show routes received tor");
    assert!(String::from_utf8_lossy(&received.stderr).contains("bgp.peers[].keepReceived"), "{received:?}");
}

#[test]
fn rfc9003_an_operator_shuts_a_peer_down_and_starts_it_again() {
    let rig = Rig::serving("shut", Settings::default(), &vips(["10.1.0.1"]));
    assert_eq!(told(&rig, "peer shutdown tor --message line-card"), "tor is shut down\n");
    wait_until("BIRD is told why", PATIENCE, || {
        rig.tor.notifications().iter().any(|line| line.contains("node: Received: Administrative shutdown: \"line-card\""))
    });
    wait_until("BIRD has forgotten the route", PATIENCE, || rig.tor.learned().is_empty());
    let shown = rig.daemon.peer("tor");
    assert_eq!((&shown["state"], &shown["shut"]), (&"Idle".into(), &true.into()), "{shown}");
    assert_eq!(rig.daemon.vip("10.1.0.1".parse().unwrap())["state"], "Pending");
    assert_eq!(told(&rig, "peer shutdown tor"), "tor is shut down already\n");
    for reset in ["peer reset tor", "peer reset --soft tor"] {
        let refused = vipherald(&rig, reset);
        let reason = "tor: it is administratively shut down, there is no session to reset: 'peer start' ends that";
        assert!(!refused.status.success() && String::from_utf8_lossy(&refused.stderr).contains(reason), "{refused:?}");
    }
    assert_eq!(told(&rig, "peer start tor"), "tor is started\n");
    wait_until("BIRD has the route again", PATIENCE, || rig.tor.learned() == vips(["10.1.0.1"]));
    assert_eq!(told(&rig, "peer start tor"), "tor is not shut down: it is in Established\n");
    assert_eq!(
        told(&rig, "peer reset --soft=out tor"),
        "tor is told all of ipv4-unicast and ipv6-unicast again, between BoRR and EoRR (RFC 7313)\n"
    );
    assert_eq!(told(&rig, "peer reset tor"), "tor is reset\n");
    wait_until("the session is another one", PATIENCE, || rig.tor.sessions() == 3);
    rig.wait_until_exact(&vips(["10.1.0.1"]));
}

#[test]
fn a_deleted_state_directory_is_made_anew() {
    let rig = Rig::serving("deleted", Settings::default(), &vips(["10.1.0.1"]));
    let session = rig.session();
    for _ in 0..2 {
        fs::remove_dir_all(rig.daemon.path("state")).unwrap();
        wait_until("it answers again", PATIENCE, || vipherald(&rig, "show peers").status.success());
    }
    fs::remove_file(rig.daemon.path("state/admin.sock")).unwrap();
    wait_until("it answers again", PATIENCE, || vipherald(&rig, "show peers").status.success());
    assert_eq!(rig.session(), session);
    assert_eq!(rig.daemon.logged("the admin socket was taken away").len(), 3);
}
