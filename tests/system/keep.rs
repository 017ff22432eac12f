// SPDX-License-Identifier: Apache-2.0
//! A restart that nobody notices: the node goes on serving, the ToR goes on sending (RFC 4724).

use std::collections::BTreeSet;
use std::net::IpAddr;

use nix::sys::signal::Signal;

use crate::common::wait_until;
use crate::rig::{Monitor, PATIENCE, Record, Rig, Settings, addresses, vips, wait_until_equal};
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
