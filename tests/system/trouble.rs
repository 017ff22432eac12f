// SPDX-License-Identifier: Apache-2.0
//! Our own trouble: files that are bad or gone. Nothing that is in force changes, every one is explained, and what is mended counts again.

use std::collections::BTreeSet;
use std::fs;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use crate::common::wait_until;
use crate::rig::{Daemon, Monitor, PATIENCE, Rig, Settings, addresses, endpoints, get, service, vips};

fn four() -> BTreeSet<IpAddr> {
    vips(["10.1.0.1", "10.1.0.2", "2001:db8:7::1", "2001:db8:7::2"])
}

/// Watches for a while that nothing changes at node and ToR.
fn assert_nothing_changes(rig: &Rig, during: Duration) {
    let start = Instant::now();
    while start.elapsed() < during {
        assert_eq!((rig.tor.learned(), addresses(&rig.node, "lo")), (four(), four()));
    }
}

fn rejections(daemon: &Daemon) -> String {
    let (json, _) = daemon.show("rejections");
    json["rejections"].to_string()
}

fn is_told(daemon: &Daemon, words: &str) -> bool {
    daemon.show("vips").1.contains(words)
}

fn bad_manifests(rig: &Rig) {
    let bad = [
        ("not-yaml.yaml", "{{{ nobody\n\t can: read\n"),
        ("empty.yaml", ""),
        ("no-kind.yaml", "metadata: {name: web}\n"),
        ("no-name.yaml", "apiVersion: v1\nkind: Service\nmetadata: {}\nspec: {externalIPs: [\"10.1.0.1\"]}\n"),
        ("wrong-type.yml", "apiVersion: v1\nkind: Service\nmetadata: {name: other}\nspec: {externalIPs: 7}\n"),
        ("half.json", "{\"apiVersion\": \"v1\", \"kind\": \"Serv"),
    ];
    for (name, text) in bad {
        rig.daemon.replace(&format!("manifests/{name}"), text);
        wait_until(&format!("{name} is explained"), PATIENCE, || rejections(&rig.daemon).contains(name));
    }
    assert!(is_told(&rig.daemon, " rejections: see 'vipherald show rejections'"));
    // A stolen address, and one that no host can have.
    rig.daemon.replace("manifests/greedy.yaml", &(service("greedy", &vips(["10.99.0.2", "127.0.0.9"])) + &endpoints("greedy")));
    for words in ["10.99.0.2 is the address of the BGP peer tor", "127.0.0.9 is a loopback address"] {
        wait_until(&format!("it is said that {words}"), PATIENCE, || rejections(&rig.daemon).contains(words));
    }
    // The file with the VIPs itself.
    for text in ["apiVersion: v1\nkind: Service\n  metadata: {{{", "", "\0\0\0"] {
        rig.daemon.replace("manifests/vips.yaml", text);
        let words = "the last good content of the file stays in force";
        wait_until("vips.yaml is explained", PATIENCE, || {
            let rejections = rejections(&rig.daemon);
            rejections.contains("vips.yaml") && rejections.contains(words)
        });
        assert_nothing_changes(rig, Duration::from_millis(300));
        rig.daemon.publish(&four());
        wait_until("it counts again", PATIENCE, || !rejections(&rig.daemon).contains("vips.yaml"));
    }
    for (name, _) in bad {
        fs::remove_file(rig.daemon.manifests().join(name)).unwrap();
    }
    fs::remove_file(rig.daemon.manifests().join("greedy.yaml")).unwrap();
    wait_until("all is mended", PATIENCE, || rejections(&rig.daemon) == "[]");
}

fn no_directory(rig: &Rig) {
    let (manifests, away) = (rig.daemon.manifests(), rig.daemon.path("away"));
    fs::rename(&manifests, &away).unwrap();
    wait_until("its absence is told", PATIENCE, || is_told(&rig.daemon, "source: Incomplete"));
    assert!(rejections(&rig.daemon).contains("what was last read of it stays in force"));
    assert_nothing_changes(rig, Duration::from_millis(300));
    // As a mount point looks without its volume. For longer than missing files of a directory that came back are waited for.
    fs::create_dir(&manifests).unwrap();
    assert_nothing_changes(rig, Duration::from_millis(3500));
    assert!(is_told(&rig.daemon, "source: Incomplete"));
    fs::rename(&away, &manifests).unwrap();
    wait_until("it counts again", PATIENCE, || !is_told(&rig.daemon, "source: "));
    assert_eq!(rejections(&rig.daemon), "[]");
}

fn bad_configuration(rig: &Rig) {
    let reload = |value: u8| {
        let line = format!("\nvipherald_config_reload_success {value}\n");
        wait_until(&line, PATIENCE, || get(&rig.node, 9479, "/metrics").unwrap().1.contains(&line));
    };
    let good = fs::read_to_string(rig.daemon.path("config.yaml")).unwrap();
    let bad = [
        (good.replace("asn: 65001\n  peers", "asn: 0\n  peers"), "bgp.asn: expected an AS number"),
        (good.replace("interface: lo", "interfase: lo"), "vips.interfase: unknown key; did you mean 'interface'?"),
        (String::new(), "bgp"),
        ("{".to_owned(), "config.yaml"),
    ];
    for (text, words) in bad {
        rig.daemon.replace("config.yaml", &text);
        wait_until(&format!("it is told: {words}"), PATIENCE, || {
            let (_, told) = rig.daemon.show("peers");
            told.contains("config: refused, the one before stays in force: ") && told.contains(words)
        });
        reload(0);
        rig.daemon.process().signal(Signal::SIGHUP);
        assert_nothing_changes(rig, Duration::from_millis(300));
    }
    fs::remove_file(rig.daemon.path("config.yaml")).unwrap();
    wait_until("its absence is told", PATIENCE, || rig.daemon.show("vips").1.contains("cannot be read: No such file"));
    assert_nothing_changes(rig, Duration::from_millis(300));
    rig.daemon.replace("config.yaml", &good);
    reload(1);
    assert_eq!(rig.daemon.show("vips").1, "");
}

#[test]
fn nothing_is_withdrawn_by_our_own_trouble() {
    let rig = Rig::serving("trouble", Settings::default(), &four());
    let node = Monitor::start(&rig.node, "address");
    let tor = Monitor::start(&rig.tor.namespace, "route");
    let session = rig.session();
    bad_manifests(&rig);
    no_directory(&rig);
    bad_configuration(&rig);
    for _ in 0..10 {
        rig.daemon.process().signal(Signal::SIGHUP);
    }
    rig.wait_until_exact(&four());
    assert_eq!((node.removals(), tor.removals()), (Vec::new(), Vec::new()));
    assert_eq!((rig.session(), rig.tor.withdrawals()), (session, 0));

    let other = vips(["10.1.0.1", "10.1.0.9"]);
    rig.daemon.publish(&other);
    rig.wait_until_exact(&other);
}

#[test]
fn a_start_with_a_bad_file_uses_its_last_good_content() {
    let mut rig = Rig::serving("bad-start", Settings::default(), &four());
    let node = Monitor::start(&rig.node, "address");
    rig.daemon.kill();
    rig.daemon.replace("manifests/vips.yaml", "{{{");
    rig.daemon.start(&rig.node);
    rig.wait_until_exact(&four());
    assert!(rejections(&rig.daemon).contains("the last good content of the file stays in force"));
    let (_, told) = rig.daemon.show("vips");
    assert_eq!(told, "vipherald: 1 rejections: see 'vipherald show rejections'\n");
    assert_eq!(node.removals(), []);
    rig.daemon.publish(&vips(["10.1.0.1"]));
    rig.wait_until_exact(&vips(["10.1.0.1"]));
}

/// From the socket on, which is there before anything is followed.
#[test]
fn sighup_does_not_end_a_daemon_that_starts() {
    let mut rig = Rig::serving("early-hup", Settings::default(), &four());
    let socket = rig.daemon.path("state/admin.sock");
    for _ in 0..5 {
        rig.daemon.kill();
        fs::remove_file(&socket).unwrap();
        rig.daemon.start(&rig.node);
        let deadline = Instant::now() + PATIENCE;
        while !socket.exists() {
            assert!(Instant::now() < deadline, "no socket");
        }
        rig.daemon.process().signal(Signal::SIGHUP);
        wait_until("it announces", PATIENCE, || rig.daemon.announced() == Some(four()));
    }
}

#[test]
fn a_start_without_the_directory_uses_the_last_good_intent() {
    let mut rig = Rig::serving("no-dir", Settings { patience: "500ms", ..Settings::default() }, &four());
    let node = Monitor::start(&rig.node, "address");
    rig.daemon.kill();
    fs::rename(rig.daemon.manifests(), rig.daemon.path("away")).unwrap();
    rig.daemon.start(&rig.node);
    rig.wait_until_exact(&four());
    assert!(is_told(&rig.daemon, "source: Cached"));
    // The VIPs that are gone since are removed only on the word of a complete source.
    rig.daemon.replace("away/vips.yaml", &(service("web", &vips(["10.1.0.1"])) + &endpoints("web")));
    assert_nothing_changes(&rig, Duration::from_millis(300));
    assert_eq!(node.removals(), []);
    fs::rename(rig.daemon.path("away"), rig.daemon.manifests()).unwrap();
    rig.wait_until_exact(&vips(["10.1.0.1"]));
    assert!(!is_told(&rig.daemon, "source: "));
}

#[test]
fn a_bad_value_keeps_what_was_good_over_a_restart_too() {
    let mut rig = Rig::serving("bad-value", Settings { restart_time: Some("60s"), on_termination: "keep", ..Settings::default() }, &four());
    let (node, tor) = (Monitor::start(&rig.node, "address"), Monitor::start(&rig.tor.namespace, "route"));
    let good = service("web", &four()) + &endpoints("web");
    let in_force = "; its last good content stays in force instead";
    let bad = [
        ("\"10.1.0.2\"", "\"10.1.0.300\"", "spec.externalIPs[1]: \\\"10.1.0.300\\\""),
        ("\"10.1.0.2\"", "\"10.99.0.2\"", "10.99.0.2 is the address of the BGP peer tor"),
        ("spec:", "spec:\n  type: ExternalName", "an ExternalName Service has no endpoints"),
    ];
    for (from, to, words) in bad {
        rig.daemon.replace("manifests/vips.yaml", &good.replacen(from, to, 1));
        let is_explained = |daemon: &Daemon| {
            let rejections = rejections(daemon);
            rejections.contains(words) && rejections.contains(in_force)
        };
        wait_until(&format!("it is said that {words}"), PATIENCE, || is_explained(&rig.daemon));
        assert_nothing_changes(&rig, Duration::from_millis(300));
        rig.daemon.kill();
        rig.daemon.start(&rig.node);
        rig.wait_until_exact(&four());
        assert!(is_explained(&rig.daemon), "{}", rejections(&rig.daemon));
    }
    assert_eq!((node.removals(), tor.removals()), (Vec::new(), Vec::new()));
    // What is mended counts, and an object that is deleted leaves nothing to fall back to.
    let other = vips(["10.1.0.1", "10.1.0.9"]);
    rig.daemon.publish(&other);
    rig.wait_until_exact(&other);
    fs::remove_file(rig.daemon.manifests().join("vips.yaml")).unwrap();
    rig.wait_until_exact(&BTreeSet::new());
    rig.daemon.replace("manifests/vips.yaml", &(service("web", &other) + &endpoints("web")).replacen("\"10.1.0.9\"", "\"10.99.0.2\"", 1));
    rig.wait_until_exact(&vips(["10.1.0.1"]));
}
