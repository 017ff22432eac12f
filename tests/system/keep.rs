// SPDX-License-Identifier: Apache-2.0
//! A restart that nobody notices: the node goes on serving, the ToR goes on sending (RFC 4724).

use std::collections::BTreeSet;
use std::net::IpAddr;

use nix::sys::signal::Signal;

use crate::common::{Process, wait_until};
use crate::rig::{Daemon, Monitor, PATIENCE, Record, Rig, Settings, addresses, vips, wait_until_equal};
use crate::tor::{assert_no_loss, ping};

fn three() -> BTreeSet<IpAddr> {
    vips(["10.1.0.1", "10.1.0.2", "2001:db8:7::1"])
}

fn settings() -> Settings {
    Settings { restart_time: Some("60s"), on_termination: "keep", fabric_delay: "1s", ..Settings::default() }
}

/// Lets this end the daemon, starts it again, and looks for anything that the ToR or a client of a VIP may notice.
fn unnoticed(tag: &str, end: impl Fn(&mut Rig)) {
    let mut rig = Rig::serving(tag, settings(), &three());
    let (node, tor) = (Monitor::start(&rig.node, "address"), Monitor::start(&rig.tor.namespace, "route"));
    let pings = ["10.1.0.1", "2001:db8:7::1"].map(|vip| ping(&rig.tor.namespace, vip));
    for restarts in 1..=3 {
        end(&mut rig);
        assert_eq!(addresses(&rig.node, "lo"), three());
        assert_eq!(rig.record(), Record { placed: three(), pending: BTreeSet::new() });
        wait_until("BIRD keeps the routes", PATIENCE, || rig.tor.log().matches("Neighbor graceful restart detected").count() == restarts);
        assert_eq!(rig.tor.kernel_routes(), three());
        rig.daemon.start(&rig.node);
        wait_until_equal("sessions", &(restarts + 1), || rig.tor.sessions());
        wait_until("BIRD has heard all", PATIENCE, || rig.tor.log().matches("Neighbor graceful restart done").count() == restarts);
        rig.wait_until_exact(&three());
    }
    pings.iter().for_each(assert_no_loss);
    assert_eq!((node.removals(), tor.removals()), (vec![], vec![]));
    assert_eq!(rig.tor.notifications(), [""; 0]);
}

#[test]
fn rfc4724_sigterm_with_keep_and_a_start() {
    unnoticed("keep", |rig| {
        rig.daemon.process().signal(Signal::SIGTERM);
        assert_eq!(rig.daemon.process().wait(PATIENCE).code(), Some(0));
    });
}

#[test]
fn rfc4724_kill_9_and_a_start() {
    unnoticed("keepkill", |rig| rig.daemon.kill());
}

#[test]
fn vips_move_to_another_interface_and_nobody_notices() {
    let mut rig = Rig::serving("keepmove", settings(), &three());
    rig.node.ip("link add br0 type bridge");
    rig.node.ip("link set br0 up");
    let (node, tor) = (Monitor::start(&rig.node, "address"), Monitor::start(&rig.tor.namespace, "route"));
    let pings = ["10.1.0.1", "2001:db8:7::1"].map(|vip| ping(&rig.tor.namespace, vip));
    for (from, to) in [("lo", "br0"), ("br0", "lo")] {
        rig.daemon.process().signal(Signal::SIGTERM);
        assert_eq!(rig.daemon.process().wait(PATIENCE).code(), Some(0));
        rig.daemon.settings.interface = to.to_owned();
        rig.daemon.write_config();
        rig.daemon.start(&rig.node);
        rig.wait_until_exact(&three());
        assert_eq!(addresses(&rig.node, from), BTreeSet::new());
    }
    pings.iter().for_each(assert_no_loss);
    assert_eq!(tor.removals(), vec![]);
    wait_until("the kernel has told all", PATIENCE, || node.removals().len() == 2 * three().len());
    for vip in three() {
        let events = node.events(&format!(" {vip}/"));
        let place = |words: &str| events.iter().position(|(_, event)| event.contains(words)).unwrap();
        let came = events.iter().position(|(_, event)| event.contains(": br0") && !event.contains("Deleted")).unwrap();
        assert!(came < place("Deleted 1: lo"), "{events:?}");
    }
}

#[test]
fn vips_stay_where_they_are_while_the_other_interface_is_not_there() {
    let mut rig = Rig::serving("keepnowhere", settings(), &three());
    let (node, tor) = (Monitor::start(&rig.node, "address"), Monitor::start(&rig.tor.namespace, "route"));
    rig.daemon.kill();
    rig.daemon.settings.interface = "nowhere".to_owned();
    rig.daemon.write_config();
    rig.daemon.start(&rig.node);
    wait_until_equal("VIPs that are announced", &Some(three()), || rig.daemon.announced());
    let told = "cannot be moved; they stay there until they can";
    wait_until("it is told", PATIENCE, || rig.daemon.logged(told).iter().any(|line| line.contains("there is no interface nowhere")));
    assert_eq!((addresses(&rig.node, "lo"), rig.tor.kernel_routes()), (three(), three()));
    assert_eq!((node.removals(), tor.removals()), (vec![], vec![]));
    rig.node.ip("link add nowhere type bridge");
    rig.node.ip("link set nowhere up");
    rig.wait_until_exact(&three());
    wait_until_equal("addresses that have not moved", &BTreeSet::new(), || addresses(&rig.node, "lo"));
    assert_eq!(tor.removals(), vec![]);
}

#[test]
fn rfc4724_what_is_not_wanted_any_more_leaves_the_tor_before_the_node() {
    let mut rig = Rig::serving("keepless", settings(), &three());
    rig.daemon.process().signal(Signal::SIGTERM);
    assert_eq!(rig.daemon.process().wait(PATIENCE).code(), Some(0));
    let (node, tor) = (Monitor::start(&rig.node, "address"), Monitor::start(&rig.tor.namespace, "route"));
    let fewer = vips(["10.1.0.1"]);
    rig.daemon.publish(&fewer);
    rig.daemon.start(&rig.node);
    rig.wait_until_exact(&fewer);
    wait_until("the kernels have told it", PATIENCE, || node.removals().len() >= 2 && tor.removals().len() >= 2);
    for vip in ["10.1.0.2", "2001:db8:7::1"] {
        let ([(withdrawn, _)], [(removed, _)]) = (&tor.events(&format!("Deleted {vip} "))[..], &node.events(&format!(" {vip}/"))[..])
        else {
            panic!("{vip} left more than once, or not")
        };
        assert!(withdrawn < removed, "{vip} left the node at {removed} and the ToR at {withdrawn}");
    }
    assert_eq!((node.removals().len(), tor.removals().len()), (2, 2));
}

#[test]
fn keep_without_graceful_restart_leaves_the_node_as_it_is_and_the_tor_is_told() {
    let mut rig = Rig::serving("keepplain", Settings { restart_time: None, ..settings() }, &three());
    rig.daemon.process().signal(Signal::SIGTERM);
    assert_eq!(rig.daemon.process().wait(PATIENCE).code(), Some(0));
    wait_until_equal("routes of BIRD", &BTreeSet::new(), || rig.tor.learned());
    assert_eq!(addresses(&rig.node, "lo"), three());
    assert!(rig.tor.notifications()[0].contains("node: Received: Administrative shutdown"), "{:?}", rig.tor.notifications());
    rig.daemon.start(&rig.node);
    rig.wait_until_exact(&three());
}

/// Starts the daemon, ends it in both ways, starts it again, and looks for anything that BIRD may notice of VIPs that others have placed.
fn unnoticed_where_others_placed(rig: &Rig, start: impl Fn() -> Process, routes: &BTreeSet<IpAddr>) {
    let mut process = start();
    wait_until_equal("routes of BIRD", routes, || rig.tor.learned());
    wait_until_equal("routes in the ToR's kernel", routes, || rig.tor.kernel_routes());
    let tor = Monitor::start(&rig.tor.namespace, "route");
    let counted = |words: &str| rig.tor.log().matches(words).count();
    for restarts in 1..=2 {
        if restarts == 1 {
            process.signal(Signal::SIGTERM);
            assert_eq!(process.wait(PATIENCE).code(), Some(0));
        } else {
            process.kill();
        }
        wait_until("BIRD keeps the routes", PATIENCE, || counted("Neighbor graceful restart detected") == restarts);
        process = start();
        wait_until_equal("sessions", &(restarts + 1), || rig.tor.sessions());
        wait_until("BIRD has heard all", PATIENCE, || counted("Neighbor graceful restart done") == restarts);
        wait_until_equal("routes of BIRD", routes, || rig.tor.learned());
    }
    // What comes after all that is seen last.
    rig.tor.namespace.ip("route add blackhole 198.51.100.1/32");
    rig.tor.namespace.ip("route del blackhole 198.51.100.1/32");
    wait_until("the kernel has told all", PATIENCE, || !tor.events("Deleted blackhole 198.51.100.1").is_empty());
    assert_eq!(tor.removals().len(), 1, "{:?}", tor.removals());
}

#[test]
fn rfc4724_vips_that_others_have_placed_are_kept_as_well() {
    let mut rig = Rig::new("keepused");
    rig.daemon = Daemon::new(settings());
    rig.daemon.publish(&three());
    for vip in three() {
        rig.node.ip(&format!("address add {vip} dev lo"));
    }
    unnoticed_where_others_placed(&rig, || rig.node.spawn(&mut rig.daemon.command(&rig.node)), &three());
}

#[test]
fn rfc4724_a_speaker_only_restarts_unnoticed() {
    let mut rig = Rig::new("keepspeak");
    rig.daemon = Daemon::new(settings());
    let config = std::fs::read_to_string(rig.daemon.path("config.yaml")).unwrap();
    let allowed = "dataplane: {type: none}\nvips: {allow: [{prefix: 10.1.0.0/24}, {prefix: \"2001:db8:7::/64\"}], interface: lo";
    rig.daemon.replace("config.yaml", &config.replace("vips: {interface: lo", allowed));
    for vip in three() {
        rig.node.ip(&format!("address add {vip} dev lo"));
    }
    let start = || {
        let mut command = rig.node.command(env!("CARGO_BIN_EXE_vipherald"));
        rig.node.spawn(command.arg("run").arg("--config").arg(rig.daemon.path("config.yaml")))
    };
    unnoticed_where_others_placed(&rig, start, &three());
}

#[test]
fn rfc4724_section_4_1_a_process_without_vips_follows_another_one_but_for_one_that_has_drained() {
    let mut rig = Rig::serving("keepnone", Settings { on_termination: "keep", ..settings() }, &BTreeSet::new());
    wait_until_equal("sessions", &1, || rig.tor.sessions());
    for (start, (on_termination, follows)) in [("keep", false), ("drain", true), ("keep", false)].into_iter().enumerate() {
        if start > 0 {
            rig.daemon.start(&rig.node);
            wait_until_equal("sessions", &(start + 1), || rig.tor.sessions());
        }
        assert_eq!(rig.daemon.logged("goes on from an earlier process").len(), usize::from(follows), "start {start}");
        rig.daemon.settings.on_termination = on_termination;
        rig.daemon.write_config();
        wait_until("the daemon has the configuration", PATIENCE, || {
            on_termination == "keep" || !rig.daemon.logged("onTermination").is_empty()
        });
        rig.daemon.process().signal(Signal::SIGTERM);
        assert_eq!(rig.daemon.process().wait(PATIENCE).code(), Some(0));
    }
}
