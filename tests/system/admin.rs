// SPDX-License-Identifier: Apache-2.0
//! What the daemon tells its operator, and that only one daemon has an instance.

use std::collections::BTreeSet;
use std::fs;
use std::net::IpAddr;
use std::os::unix::fs::PermissionsExt as _;

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::common::wait_until;
use crate::rig::{Daemon, Monitor, PATIENCE, Record, Rig, Settings, addresses, get, record, vips, wait_until_equal};
use crate::tor::Tor;

fn both() -> BTreeSet<IpAddr> {
    vips(["10.1.0.1", "2001:db8:7::1"])
}

/// Takes what differs from run to run out of an object: it must be there, and a time.
fn without_times(value: &Value) -> Value {
    let mut value = value.clone();
    for key in ["since", "establishedSince", "observedAt"] {
        if let Some(time) = value.as_object_mut().and_then(|object| object.remove(key)) {
            let time = time.as_str().unwrap();
            assert!(time.len() == 20 && time.ends_with('Z'), "{key}: {time}");
        }
    }
    value
}

#[test]
fn the_daemon_explains_itself() {
    let rig = Rig::serving("admin", Settings::default(), &both());
    let (document, told) = rig.daemon.show("vips");
    assert_eq!(told, "");
    let head = json!({"apiVersion": "vipherald.io/v1alpha1", "instance": "vipherald", "node": "node-1"});
    let mut found = without_times(&document);
    let vips = found.as_object_mut().unwrap().remove("vips").unwrap();
    assert_eq!(
        found,
        json!({
            "apiVersion": head["apiVersion"], "instance": head["instance"], "node": head["node"], "warnings": [], "unclaimed": [], "rejections": [],
        })
    );
    let mut vip = without_times(&vips[0]);
    let conditions = vip.as_object_mut().unwrap().remove("conditions").unwrap();
    assert_eq!(
        vip,
        json!({
            "address": "10.1.0.1", "owners": [{"kind": "Service", "namespace": "default", "name": "web"}], "state": "Announced",
            "reason": "Served", "message": "announced to tor", "placement": "Ours", "peers": ["tor"],
        })
    );
    let conditions: Vec<(&Value, &Value)> = conditions.as_array().unwrap().iter().map(|one| (&one["type"], &one["status"])).collect();
    let expected =
        [("Accepted", "True"), ("Programmed", "Unknown"), ("Advertised", "True")].map(|(kind, status)| (json!(kind), json!(status)));
    assert_eq!(conditions, expected.iter().map(|(kind, status)| (kind, status)).collect::<Vec<_>>());

    let mut peer = without_times(&rig.daemon.peer("tor"));
    for direction in ["sent", "received"] {
        let counts = peer.as_object_mut().unwrap().remove(direction).unwrap();
        let names: Vec<&String> = counts.as_object().unwrap().keys().collect();
        assert_eq!(names, ["keepalive", "notification", "open", "routeRefresh", "update"]);
        assert_eq!((&counts["open"], &counts["notification"]), (&json!(1), &json!(0)));
    }
    let routes = json!([
        {"prefix": "10.1.0.1/32", "family": "ipv4-unicast", "nextHop": "10.99.0.1", "state": "Advertised"},
        {"prefix": "2001:db8:7::1/128", "family": "ipv6-unicast", "nextHop": "2001:db8:99::1", "state": "Advertised"},
    ]);
    let details = ["port", "internal", "connection", "transport", "routerId", "timers", "capabilityExchange", "gracefulRestart", "resets"];
    for key in details.into_iter().chain(["failures", "keepReceived"]) {
        assert!(peer.as_object_mut().unwrap().remove(key).is_some(), "{key} in {peer}");
    }
    peer.as_object_mut().unwrap().remove("lastError");
    assert_eq!(
        peer,
        json!({
            "name": "tor", "address": "10.99.0.2", "asn": 65001, "state": "Established", "establishedCount": 1, "localAddress": "10.99.0.1",
            "holdSeconds": 9, "families": ["ipv4-unicast", "ipv6-unicast"], "routes": routes,
            "capabilities": ["four-octet-as", "route-refresh", "enhanced-route-refresh"], "shut": false, "prefixes": {}, "malformed": {"treatedAsWithdraw": 0, "attributesDiscarded": 0},
        })
    );
    let (document, _) = rig.daemon.show("routes");
    let of_peer = |route: &Value| {
        let mut route = route.clone();
        route.as_object_mut().unwrap().insert("peer".to_owned(), json!("tor"));
        route
    };
    assert_eq!(document["routes"], routes.as_array().unwrap().iter().map(of_peer).collect::<Value>());
    for noun in ["vips", "peers", "routes", "rejections"] {
        for form in ["yaml", "wide"] {
            assert!(rig.daemon.show_as(noun, form).status.success(), "{noun} {form}");
        }
    }
    probes_and_metrics(&rig);
}

fn probes_and_metrics(rig: &Rig) {
    for (path, words) in [("/healthz", "the reconcile loop and the speaker are alive"), ("/readyz", "the first plan is carried out")] {
        let (code, body) = get(&rig.node, 9479, path).unwrap();
        assert_eq!((code, serde_json::from_str::<Value>(&body).unwrap()), (200, json!({"ok": true, "message": words})));
    }
    let (code, metrics) = get(&rig.node, 9479, "/metrics").unwrap();
    assert_eq!(code, 200);
    for line in [
        "vipherald_vips{state=\"Announced\"} 2",
        "vipherald_vip_announced{vip=\"10.1.0.1\"} 1",
        "vipherald_bgp_session_up{peer=\"tor\"} 1",
        "vipherald_bgp_prefixes_advertised{family=\"ipv6-unicast\",peer=\"tor\"} 1",
        "vipherald_bgp_messages_total{direction=\"sent\",peer=\"tor\",type=\"notification\"} 0",
        "vipherald_reconcile_steps_total{result=\"ok\",step=\"add_address\"} 2",
        "vipherald_source_complete 1",
        "vipherald_config_reload_success 1",
    ] {
        assert!(metrics.lines().any(|found| found == line), "{line} in\n{metrics}");
    }
    assert_eq!(get(&rig.node, 9479, "/state").unwrap().0, 404);
    let socket = fs::metadata(rig.daemon.path("state/admin.sock")).unwrap();
    assert_eq!(socket.permissions().mode() & 0o777, 0o600);
}

#[test]
fn ready_once_the_first_plan_is_carried_out() {
    let mut rig = Rig::serving("ready", Settings { patience: "30s", ..Settings::default() }, &both());
    rig.daemon.kill();
    fs::rename(rig.daemon.manifests(), rig.daemon.path("away")).unwrap();
    rig.daemon.start(&rig.node);
    wait_until("it answers", PATIENCE, || get(&rig.node, 9479, "/readyz").is_some());
    let (code, body) = get(&rig.node, 9479, "/readyz").unwrap();
    assert_eq!((code, body.contains("what is wanted is not known yet")), (503, true), "{body}");
    assert_eq!(get(&rig.node, 9479, "/healthz").unwrap().0, 200);
    assert_eq!(rig.tor.learned(), BTreeSet::new(), "no session before the first plan");
    fs::rename(rig.daemon.path("away"), rig.daemon.manifests()).unwrap();
    rig.wait_until_exact(&both());
    assert_eq!(get(&rig.node, 9479, "/readyz").unwrap().0, 200);
}

#[test]
fn a_second_daemon_of_the_instance_is_refused() {
    let rig = Rig::serving("twice", Settings::default(), &both());
    let session = rig.session();
    let second = Daemon::with_state_of(&rig.daemon, Settings { http_port: 9480, ..Settings::default() });
    let refused = second.command(&rig.node).output().unwrap();
    let words = format!(
        "vipherald: run: another vipherald of instance vipherald runs on this node: it holds {}\n",
        rig.daemon.path("state").display()
    );
    assert_eq!((refused.status.code(), String::from_utf8(refused.stderr).unwrap()), (Some(1), words));

    // The same instance with another state directory: what it would write is the same nft table.
    let twin = Daemon::new(Settings { http_port: 9480, ..Settings::default() });
    let refused = twin.command(&rig.node).output().unwrap();
    let words = "vipherald: run: another vipherald of instance vipherald runs on this node, with another state directory\n";
    assert_eq!((refused.status.code(), String::from_utf8(refused.stderr).unwrap().as_str()), (Some(1), words));

    // Another instance that would take a port that is taken.
    let other = Daemon::new(Settings { instance: "other".to_owned(), ..Settings::default() });
    let refused = other.command(&rig.node).output().unwrap();
    let words = "vipherald: run: cannot listen on http.address 127.0.0.1:9479: Address in use (os error 98)\n";
    let told = String::from_utf8(refused.stderr).unwrap().replace("Address already in use", "Address in use");
    assert_eq!((refused.status.code(), told.as_str()), (Some(1), words));
    rig.wait_until_exact(&both());
    assert_eq!(rig.session(), session);
}

#[test]
fn two_instances_leave_each_others_alone() {
    let mut rig = Rig::serving("one", Settings::default(), &both());
    let other_tor = Tor::new("other", &rig.node, 1);
    let settings = Settings {
        instance: "other".to_owned(),
        peers: vec![("tor".to_owned(), other_tor.address())],
        http_port: 9480,
        ..Settings::default()
    };
    let theirs = vips(["10.1.0.2", "2001:db8:7::2"]);
    let mut other = Daemon::new(settings);
    other.publish(&theirs);
    let monitor = Monitor::start(&rig.node, "address");
    other.start(&rig.node);
    let placed = |vips: &BTreeSet<IpAddr>| Some(Record { placed: vips.clone(), pending: BTreeSet::new() });
    let each_has_its_own = |rig: &Rig, ours: &BTreeSet<IpAddr>| {
        wait_until_equal("VIPs of the other", &Some(theirs.clone()), || other.announced());
        wait_until_equal("routes of the other's router", &theirs, || other_tor.learned());
        wait_until_equal("record of the other", &placed(&theirs), || record(&rig.node, "other"));
        wait_until_equal("VIPs of the one", &Some(ours.clone()), || rig.daemon.announced());
        wait_until_equal("routes of the one's router", ours, || rig.tor.learned());
        wait_until_equal("record of the one", &placed(ours), || record(&rig.node, "vipherald"));
        wait_until_equal("addresses on lo", &(ours | &theirs), || addresses(&rig.node, "lo"));
    };
    each_has_its_own(&rig, &both());
    for daemon in [&rig.daemon, &other] {
        assert_eq!(daemon.show("vips").1, "", "what the other one placed is no riddle");
    }
    rig.daemon.kill();
    rig.daemon.publish(&vips(["10.1.0.3"]));
    rig.daemon.start(&rig.node);
    each_has_its_own(&rig, &vips(["10.1.0.3"]));
    rig.daemon.process().signal(Signal::SIGTERM);
    assert_eq!(rig.daemon.process().wait(PATIENCE).code(), Some(0));
    assert_eq!((addresses(&rig.node, "lo"), record(&rig.node, "vipherald")), (theirs.clone(), None));
    assert_eq!((other.announced(), other_tor.withdrawals()), (Some(theirs.clone()), 0));
    for (_, event) in monitor.removals() {
        assert!(!theirs.iter().any(|vip| event.contains(&format!(" {vip}/"))), "{event}");
    }
}

#[test]
fn a_vip_of_two_instances_stays_as_long_as_one_of_them_wants_it() {
    let shared: IpAddr = "10.1.0.1".parse().unwrap();
    let wanted = BTreeSet::from([shared]);
    let rig = Rig::serving("shared", Settings::default(), &wanted);
    let other_tor = Tor::new("shared", &rig.node, 1);
    let mut other = Daemon::new(Settings {
        instance: "other".to_owned(),
        peers: vec![("tor".to_owned(), other_tor.address())],
        http_port: 9480,
        ..Settings::default()
    });
    let monitor = Monitor::start(&rig.node, "address");
    other.publish(&wanted);
    other.start(&rig.node);
    wait_until_equal("routes of the other's router", &wanted, || other_tor.learned());
    let both_have_it = || {
        let is_ours = |daemon: &Daemon| daemon.vip(shared)["placement"] == "Ours";
        wait_until("both have it", PATIENCE, || is_ours(&rig.daemon) && is_ours(&other));
    };
    both_have_it();
    other.publish(&BTreeSet::new());
    wait_until_equal("VIPs of the other", &Some(BTreeSet::new()), || other.announced());
    other.publish(&wanted);
    wait_until_equal("routes of the other's router", &wanted, || other_tor.learned());
    both_have_it();
    assert_eq!((monitor.removals(), rig.tor.withdrawals()), (Vec::new(), 0));

    // It goes with the last of them, whoever placed it.
    let withdrawals = other_tor.withdrawals();
    rig.daemon.publish(&BTreeSet::new());
    let nothing = Some(Record { placed: BTreeSet::new(), pending: BTreeSet::new() });
    wait_until_equal("record of the one", &nothing, || record(&rig.node, "vipherald"));
    rig.daemon.process().signal(Signal::SIGTERM);
    assert_eq!(rig.daemon.process().wait(PATIENCE).code(), Some(0));
    assert_eq!((monitor.removals(), other_tor.withdrawals()), (Vec::new(), withdrawals));
    assert_eq!((addresses(&rig.node, "lo"), other_tor.learned()), (wanted.clone(), wanted));
    other.publish(&BTreeSet::new());
    wait_until_equal("addresses on lo", &BTreeSet::new(), || addresses(&rig.node, "lo"));
}

#[test]
fn two_instances_that_leave_at_once_leave_nothing() {
    let shared: IpAddr = "10.1.0.1".parse().unwrap();
    let wanted = BTreeSet::from([shared]);
    let rig = Rig::serving("both", Settings::default(), &wanted);
    let other_tor = Tor::new("both", &rig.node, 1);
    let mut other = Daemon::new(Settings {
        instance: "other".to_owned(),
        peers: vec![("tor".to_owned(), other_tor.address())],
        http_port: 9480,
        ..Settings::default()
    });
    other.publish(&wanted);
    other.start(&rig.node);
    wait_until_equal("routes of the other's router", &wanted, || other_tor.learned());
    wait_until("both have it", PATIENCE, || [&rig.daemon, &other].iter().all(|daemon| daemon.vip(shared)["placement"] == "Ours"));
    for daemon in [&rig.daemon, &other] {
        daemon.process().signal(Signal::SIGTERM);
    }
    for daemon in [&rig.daemon, &other] {
        assert_eq!(daemon.process().wait(PATIENCE).code(), Some(0));
    }
    assert_eq!((addresses(&rig.node, "lo"), record(&rig.node, "vipherald"), record(&rig.node, "other")), (BTreeSet::new(), None, None));
}
