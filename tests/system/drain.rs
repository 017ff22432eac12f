// SPDX-License-Identifier: Apache-2.0
//! The way out: withdraw, wait for the peer, wait for the fabric, remove, say goodbye; and the ways to be quicker.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use crate::common::wait_until;
use crate::rig::{Daemon, Monitor, PATIENCE, Random, Record, Rig, Settings, addresses, get, many, now, vips, wait_until_equal};

fn three() -> BTreeSet<IpAddr> {
    vips(["10.1.0.1", "10.1.0.2", "2001:db8:7::1"])
}

pub(crate) fn assert_nothing_is_left(rig: &Rig) {
    assert_eq!(addresses(&rig.node, "lo"), BTreeSet::new());
    assert!(!rig.has_record());
    assert_eq!(rig.node.output(&["nft", "list", "ruleset"]), "");
}

#[test]
fn sigterm_withdraws_waits_removes_and_says_goodbye() {
    let rig = Rig::serving("sigterm", Settings { fabric_delay: "2s", ..Settings::default() }, &three());
    let node = Monitor::start(&rig.node, "address");
    let tor = Monitor::start(&rig.tor.namespace, "route");
    let start = now();
    rig.daemon.process().signal(Signal::SIGTERM);
    wait_until("all VIPs drain", PATIENCE, || {
        let (shown, _) = rig.daemon.show("vips");
        shown["vips"].as_array().unwrap().iter().all(|vip| vip["state"] == "Draining" && vip["reason"] == "NodeDrains")
    });
    let (code, body) = get(&rig.node, 9479, "/readyz").unwrap();
    assert_eq!((code, body.contains("the node is leaving")), (503, true), "{body}");
    assert_eq!(rig.daemon.process().wait(PATIENCE).code(), Some(0));
    assert_nothing_is_left(&rig);

    for vip in three() {
        let [(removed, _)] = &node.events(&format!(" {vip}/"))[..] else { panic!("{vip} was removed more than once, or not") };
        let routes = tor.events(&format!("Deleted {vip} "));
        let [(withdrawn, _)] = &routes[..] else { panic!("{vip} was withdrawn more than once, or not: {routes:?}") };
        assert!(withdrawn < removed, "{vip} left the node at {removed} and the ToR at {withdrawn}");
        assert!(removed - start >= 2.0, "{vip} left {} s after the signal, before the fabric had its time", removed - start);
    }
    wait_until("BIRD was told why", PATIENCE, || !rig.tor.notifications().is_empty());
    let told = rig.tor.notifications();
    assert!(told.len() == 1 && told[0].contains("node: Received: Administrative shutdown"), "{told:?}");
}

#[test]
fn a_second_sigterm_leaves_at_once_and_the_next_start_takes_over() {
    let mut rig = Rig::serving("second", Settings { fabric_delay: "30m", drain_timeout: "1h", ..Settings::default() }, &three());
    rig.daemon.process().signal(Signal::SIGTERM);
    wait_until_equal("routes of BIRD", &BTreeSet::new(), || rig.tor.learned());
    assert_eq!(addresses(&rig.node, "lo"), three());
    let start = Instant::now();
    rig.daemon.process().signal(Signal::SIGTERM);
    let status = rig.daemon.process().wait(PATIENCE);
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    assert_eq!(status.code(), Some(0));
    assert_eq!(rig.daemon.logged("second signal: leaving at once; addresses, nft tables, virtual services and settings stay").len(), 1);
    assert_eq!((addresses(&rig.node, "lo"), rig.record().placed), (three(), three()));

    rig.daemon.settings.fabric_delay = "100ms";
    rig.daemon.write_config();
    rig.daemon.start(&rig.node);
    rig.wait_until_exact(&three());
    rig.daemon.process().signal(Signal::SIGINT);
    assert_eq!(rig.daemon.process().wait(PATIENCE).code(), Some(0));
    assert_nothing_is_left(&rig);
}

#[test]
fn sigterm_at_random_points_leaves_nothing() {
    let mut random = Random::new();
    let pool = many(6);
    let mut rig = Rig::serving("anytime", Settings::default(), &three());
    let mut drained = 0;
    for round in 1..=10 {
        // Something is left of a crash, and something else is wanted now.
        rig.daemon.kill();
        let desired = random.subset(&pool, 50);
        rig.daemon.publish(&desired);
        rig.daemon.start(&rig.node);
        random.pause(Duration::from_millis(200));
        rig.daemon.process().signal(Signal::SIGTERM);
        let status = rig.daemon.process().wait(PATIENCE);
        println!("round {round}: {status}");
        match (status.code(), status.signal()) {
            (Some(0), None) => {
                drained += 1;
                assert_nothing_is_left(&rig);
            }
            // It came before the daemon listened to signals, so that it has done nothing yet.
            (None, Some(15)) => assert_eq!(rig.daemon.process().log(), ""),
            _ => panic!("{status}"),
        }
        rig.daemon.start(&rig.node);
        rig.wait_until_exact(&desired);
    }
    assert!(drained > 0);
}

#[test]
fn a_vip_that_comes_back_while_it_drains_never_left() {
    let rig = Rig::serving("back", Settings { fabric_delay: "30m", drain_timeout: "1h", ..Settings::default() }, &three());
    let node = Monitor::start(&rig.node, "address");
    let two = vips(["10.1.0.2", "2001:db8:7::1"]);
    for _ in 0..5 {
        rig.daemon.publish(&two);
        wait_until("it drains", PATIENCE, || rig.daemon.vip("10.1.0.1".parse().unwrap())["state"] == "Draining");
        wait_until_equal("routes of BIRD", &two, || rig.tor.learned());
        rig.daemon.publish(&three());
        rig.wait_until_exact(&three());
    }
    assert_eq!(node.removals(), []);
    assert_eq!(rig.tor.withdrawals(), 5);
}

#[test]
fn a_withdrawal_counts_once_it_is_acknowledged_or_the_session_is_down() {
    let rig = Rig::serving("unheard", Settings { drain_timeout: "2m", ..Settings::default() }, &three());
    let node = Monitor::start(&rig.node, "address");
    let cut = now();
    rig.tor.namespace.nft("table inet cut { chain input { type filter hook input priority 0; policy drop; }; }");
    rig.daemon.publish(&vips(["10.1.0.2", "2001:db8:7::1"]));
    let vip = || rig.daemon.vip("10.1.0.1".parse().unwrap());
    wait_until("it waits for the peer", PATIENCE, || {
        let vip = vip();
        vip["state"] == "Withdrawing" && vip["message"].as_str().unwrap().contains("tor has not acknowledged the withdrawal")
    });
    wait_until("the session is down", PATIENCE, || rig.daemon.peer("tor")["establishedSince"].is_null());
    wait_until("it is gone", PATIENCE, || vip().is_null());
    wait_until("it is told to be gone", PATIENCE, || !node.removals().is_empty());
    let removals = node.removals();
    let [(removed, event)] = &removals[..] else { panic!("{removals:?}") };
    // A hold time of 9 s, of which a third may have passed, and a bit more where BIRD was late.
    assert!(event.contains(" 10.1.0.1/") && removed - cut >= 4.0, "{event} after {} s", removed - cut);
    assert_eq!(rig.daemon.vip("10.1.0.2".parse().unwrap())["reason"], "NoSession");
    rig.tor.namespace.nft("delete table inet cut");
    rig.wait_until_exact(&vips(["10.1.0.2", "2001:db8:7::1"]));
    assert_eq!(node.removals().len(), 1);
}

/// Drains with a peer that has just stopped to acknowledge anything.
fn drain_bounded(rig: &Rig) -> (Duration, ExitStatus) {
    let node = Monitor::start(&rig.node, "address");
    let (start, clock) = (Instant::now(), now());
    rig.daemon.process().signal(Signal::SIGTERM);
    let status = rig.daemon.process().wait(PATIENCE);
    let took = start.elapsed();
    for (removed, event) in node.removals() {
        assert!(removed - clock >= 1.0, "removed before drain.timeout: {event}");
    }
    assert_nothing_is_left(rig);
    (took, status)
}

#[test]
fn a_peer_that_has_stopped_reading_holds_up_no_drain() {
    let vips: BTreeSet<IpAddr> = many(500).into_iter().collect();
    let mut rig = Rig::new("stopped");
    // So little room that withdrawals of a thousand VIPs fill it.
    rig.tor.namespace.sysctl("net/ipv4/tcp_rmem", "4096 4096 4096");
    rig.tor.restart();
    rig.daemon.settings.drain_timeout = "1s";
    rig.daemon.write_config();
    rig.daemon.publish(&vips);
    rig.daemon.start(&rig.node);
    rig.wait_until_exact(&vips);
    rig.tor.signal(Signal::SIGSTOP);
    let (took, status) = drain_bounded(&rig);
    println!("left after {took:?}");
    assert_eq!(status.code(), Some(0));
    assert!(took < Duration::from_secs(20), "{took:?}");
    assert!(!rig.daemon.logged("a peer has not acknowledged the withdrawal in time").is_empty());
    rig.tor.signal(Signal::SIGCONT);
    wait_until_equal("routes of BIRD", &BTreeSet::new(), || rig.tor.learned());
}

#[test]
fn a_peer_that_is_cut_off_holds_up_no_drain() {
    let rig = Rig::serving("cut-off", Settings { drain_timeout: "1s", ..Settings::default() }, &three());
    rig.tor.namespace.nft("table inet cut { chain input { type filter hook input priority 0; policy drop; }; }");
    let (took, status) = drain_bounded(&rig);
    println!("left after {took:?}");
    assert_eq!(status.code(), Some(0));
    assert!(took < Duration::from_secs(20), "{took:?}");
    assert_eq!(rig.daemon.logged("a peer has not acknowledged the withdrawal in time").len(), three().len());
}

#[test]
fn a_hanging_nft_holds_up_neither_withdrawal_nor_removal_nor_exit() {
    let mut rig = Rig::new("hanging");
    rig.daemon = Daemon::new(Settings { drain_timeout: "1s", ..Settings::default() });
    rig.daemon.publish(&three());
    let flag = rig.daemon.path("hang");
    let real = rig.node.output(&["sh", "-c", "command -v nft"]);
    let script = format!("#!/bin/sh\n[ ! -e {} ] || exec sleep 1000\nexec {} \"$@\"\n", flag.display(), real.trim());
    rig.daemon.start_with_nft(&rig.node, &script);
    rig.wait_until_exact(&three());

    std::fs::write(&flag, "").unwrap();
    let two = vips(["10.1.0.2", "2001:db8:7::1"]);
    let start = Instant::now();
    rig.daemon.publish(&two);
    wait_until_equal("routes of BIRD", &two, || rig.tor.learned());
    wait_until_equal("addresses on the interface", &two, || addresses(&rig.node, "lo"));
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());

    let start = Instant::now();
    rig.daemon.process().signal(Signal::SIGTERM);
    wait_until_equal("routes of BIRD", &BTreeSet::new(), || rig.tor.learned());
    wait_until_equal("addresses on the interface", &BTreeSet::new(), || addresses(&rig.node, "lo"));
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    assert_eq!(rig.daemon.process().wait(PATIENCE).code(), Some(1));
    assert!(start.elapsed() < Duration::from_secs(24), "not at its bound, but after {:?}", start.elapsed());
    let log = rig.daemon.process().log();
    assert!(log.contains("the drain is given up after 21s 100ms; what is left stays, and the next start goes on from there"), "{log}");

    std::fs::remove_file(&flag).unwrap();
    rig.daemon.publish(&BTreeSet::new());
    rig.daemon.start(&rig.node);
    wait_until_equal("the record", &Record::default(), || rig.record());
}
