// SPDX-License-Identifier: Apache-2.0
//! What the daemon sets of the kernel beside virtual services, and where others set it too: interfaces that lead outside, timeouts of IPVS; and that dr is
//! only tried where a frame gets there.
//!
//! Runs in the guest that `tests/uml` boots, on the stage of `tests/common/stage.rs`.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;
#[path = "common/stage.rs"]
mod stage;

use common::{Process, wait_until};
use nix::sys::signal::Signal;
use stage::{PATIENCE, Stage, VIP, eric, service, slice};

const SERVER: &str = "192.168.1.1";
const PORT: &str = "{port: 80}";

/// A stage whose VIP of this name is served by nat.
fn stage(tag: &str) -> Stage {
    let stage = Stage::new(tag, &[SERVER]);
    stage.answer_tcp(80);
    stage.publish("web", &web("web", VIP));
    stage
}

fn web(name: &str, vip: &str) -> String {
    service("pods", PORT) + &slice("pods", PORT, &[SERVER]) + &eric(name, vip, "pods", &[("80", "80", "algo: rr")])
}

fn settings(stage: &Stage, interface: &str) -> [String; 3] {
    let read = |name| std::fs::read_to_string(format!("/proc/sys/net/ipv4/conf/{interface}/{name}")).unwrap().trim().to_owned();
    stage.router.run(|| ["arp_ignore", "arp_announce", "rp_filter"].map(read))
}

#[test]
fn interfaces_that_lead_outside_are_set_and_no_others() {
    let mut stage = stage("outside");
    stage.router.ip("route add default via 10.99.0.2");
    for interface in ["front", "back"] {
        stage.router.sysctl(&format!("net/ipv4/conf/{interface}/rp_filter"), "1");
    }
    let before = settings(&stage, "back");
    assert_eq!(before, ["0", "0", "1"]);
    stage.start("");
    stage.wait_for_vip(VIP, true);
    wait_until("the interface of the default route is set", PATIENCE, || settings(&stage, "front") == ["1", "2", "2"]);
    assert_eq!(settings(&stage, "back"), before);
    // Whoever needs it more or less strict decides; what breaks VIPs is set again.
    for (name, value) in [("arp_ignore", "2"), ("arp_announce", "0"), ("rp_filter", "0")] {
        stage.router.sysctl(&format!("net/ipv4/conf/front/{name}"), value);
    }
    wait_until("it is set again", PATIENCE, || settings(&stage, "front") == ["2", "2", "0"]);
    assert!(stage.connect(VIP, 80).is_ok());
    stage.drain();
    assert_eq!(settings(&stage, "front"), ["2", "2", "0"], "others may rely on it");
}

#[test]
fn nothing_is_set_where_the_configuration_forbids_it() {
    let mut stage = stage("forbidden");
    stage.router.ip("route add default via 10.99.0.2");
    for name in ["net/ipv4/ip_forward", "net/ipv4/vs/conntrack"] {
        stage.router.sysctl(name, "1");
    }
    stage.router.sysctl("net/ipv4/conf/front/rp_filter", "1");
    stage.start(", setSysctls: false");
    stage.wait_for_vip(VIP, true);
    wait_until("timeouts are no sysctl", PATIENCE, || timeouts(&stage) == "1800 120 300");
    assert_eq!(settings(&stage, "front"), ["0", "0", "1"]);
    stage.drain();
}

fn timeouts(stage: &Stage) -> String {
    let text = stage.router.output(&["ipvsadm", "-L", "--timeout"]);
    text.trim().rsplit_once(": ").unwrap().1.to_owned()
}

/// How often it has set timeouts.
fn times(daemon: &Process) -> usize {
    daemon.log().lines().filter(|line| line.contains("done") && line.contains("set timeouts")).count()
}

#[test]
fn of_two_instances_the_one_with_longer_timeouts_wins() {
    let mut stage = stage("timeouts");
    stage.start("");
    wait_until("TCP is remembered longer than the kernel does", PATIENCE, || timeouts(&stage) == "1800 120 300");
    stage.publish_for("second", "web", &web("second", "10.232.35.200"));
    let second = stage.start_instance("second", "type: ipvs, timeouts: {tcp: 1200s, udp: 600s}");
    wait_until("each has what it wants at least", PATIENCE, || timeouts(&stage) == "1800 120 600");
    assert!(stage.router.command("ipvsadm").args(["--set", "1000", "60", "100"]).status().unwrap().success());
    wait_until("it is set again, but for what nobody has asked for", PATIENCE, || timeouts(&stage) == "1800 60 600");
    // A longer one is nobody's business, until the configuration wants a still longer one.
    assert!(stage.router.command("ipvsadm").args(["--set", "3600", "0", "0"]).status().unwrap().success());
    stage.configure("vipherald", "type: ipvs, timeouts: {tcp: 4000s}");
    wait_until("it is taken at once", PATIENCE, || timeouts(&stage) == "4000 60 600");
    // At its start, when the second one came, when others set less (and, if both saw that at the same time, once more), and now.
    let (first, second_times) = (times(stage.daemon.as_ref().unwrap()), times(&second));
    assert!((3..=5).contains(&first) && (2..=3).contains(&second_times), "they take turns: {first} {second_times}");
    second.signal(Signal::SIGTERM);
    assert!(second.wait(PATIENCE).success());
    stage.drain();
}

#[test]
fn dr_is_tried_only_where_a_frame_gets_there() {
    let mut stage = Stage::new("distant", &[SERVER]);
    stage.router.ip("route add 10.50.0.0/24 via 192.168.1.1");
    let pods = |servers: &[&str]| service("pods", PORT) + &slice("pods", PORT, servers);
    stage.publish("pods", &pods(&["10.50.0.1"]));
    let web = |mode: &str| eric("web", VIP, "pods", &[("80", "80", &format!("algo: rr, mode: {mode}"))]);
    stage.publish("web", &web("dr"));
    stage.start("");
    wait_until("it says who cannot be reached", PATIENCE, || {
        stage.said().contains("forwarding dr sends frames to real servers over a link of this node, and 10.50.0.1 is behind a next hop")
    });
    assert!(!stage.router.ip("-o addr show dev lo").contains(VIP));
    let route = |server: &str| format!("TCP  {VIP}:80 rr\n  -> {:<28} Route   1      0          0\n", format!("{server}:80"));
    stage.publish("pods", &pods(&["10.50.0.1", SERVER]));
    stage.wait_for_table(&route(SERVER));
    stage.wait_for_vip(VIP, true);
    // A route without next hop, as a CNI has it to a pod of this node.
    stage.publish("pods", &pods(&["10.50.0.1"]));
    stage.wait_for_vip(VIP, false);
    stage.router.ip("route add 10.50.0.1/32 dev back");
    stage.wait_for_vip(VIP, true);
    stage.wait_for_table(&route("10.50.0.1"));
    stage.router.ip("route del 10.50.0.1/32 dev back");
    stage.publish("web", &web("tun"));
    stage.wait_for_table(&route("10.50.0.1").replace("Route ", "Tunnel"));
    stage.wait_for_vip(VIP, true);
    stage.drain();
}
