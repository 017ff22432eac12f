// SPDX-License-Identifier: Apache-2.0
//! What the daemon leaves to others: settings where the configuration forbids them, timeouts that another instance wants longer, real servers to which no
//! frame gets.
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
fn nothing_is_set_where_the_configuration_forbids_it() {
    let mut stage = stage("forbidden");
    stage.router.ip("route add default via 10.99.0.2");
    for name in ["net/ipv4/ip_forward", "net/ipv4/vs/conntrack"] {
        stage.router.sysctl(name, "1");
    }
    stage.router.sysctl("net/ipv4/conf/front/rp_filter", "1");
    let doctor = stage.router.output(&[env!("CARGO_BIN_EXE_vipherald"), "doctor"]);
    let line = doctor.lines().find(|line| line.starts_with("sysctl net.ipv4.conf.front.rp_filter ")).unwrap();
    assert!(line.contains(" 1, and the daemon sets it to 2: "), "{line}");
    assert!(doctor.contains("sysctl net.ipv6.conf.all.forwarding") && !doctor.contains("conf.back."), "{doctor}");
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
    wait_until("each has what it wants at least", 2 * PATIENCE, || timeouts(&stage) == "1800 120 600");
    assert!(stage.router.command("ipvsadm").args(["--set", "1000", "60", "100"]).status().unwrap().success());
    wait_until("it is set again, but for what nobody has asked for", 2 * PATIENCE, || timeouts(&stage) == "1800 60 600");
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
    stage.publish("pods", &(service("pods", PORT) + &slice("pods", PORT, &["10.50.0.1", SERVER])));
    stage.publish("web", &eric("web", VIP, "pods", &[("80", "80", "algo: rr, mode: dr")]));
    stage.start("");
    let served = format!("TCP  {VIP}:80 rr\n  -> {SERVER}:80               Route   1      0          0\n");
    stage.wait_for_table(&served);
    stage.wait_for_vip(VIP, true);
    // The address stays, as where others remove a virtual service; the announcement is given up before the real server is.
    stage.router.ip("route add 192.168.1.1/32 via 192.168.0.9");
    let nobody = "dr sends frames to real servers over a link of this node";
    wait_until("it says why nobody is reached", PATIENCE, || stage.said().contains(nobody));
    stage.wait_for_table(&format!("TCP  {VIP}:80 rr\n"));
    stage.router.ip("route del 192.168.1.1/32 via 192.168.0.9");
    stage.wait_for_table(&served);
    wait_until("nothing is wrong any more", PATIENCE, || !stage.said().contains(nobody));
    stage.drain();
}
