// SPDX-License-Identifier: Apache-2.0
//! Settings of the kernel, which are set or left to others: where the configuration forbids them, where nothing is served without one, timeouts that another
//! instance wants longer; and real servers to which no frame gets.
//!
//! Runs in the guest that `tests/uml` boots, on the stage of `tests/common/stage.rs`.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;
#[path = "common/stage.rs"]
mod stage;
#[path = "common/tor.rs"]
mod tor;

use common::{Process, wait_until};
use nix::sys::signal::Signal;
use stage::{PATIENCE, Stage, VIP, eric, service, slice};
use tor::Tor;

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

/// Without connection tracking nobody would masquerade, and answers would not come back.
#[test]
fn a_vip_is_not_served_while_a_setting_is_missing_that_nobody_may_set() {
    let mut stage = stage("missing");
    stage.router.sysctl("net/ipv4/ip_forward", "1");
    stage.router.sysctl("net/ipv4/vs/conntrack", "0");
    stage.start(", setSysctls: false");
    let missing = "net.ipv4.vs.conntrack is 0 and must be 1: nft sees, and masquerades, what IPVS translates";
    wait_until("it says what is missing", PATIENCE, || stage.said().contains(missing) && stage.said().contains("SysctlMissing"));
    assert!(!stage.router.ip("-o addr show dev lo").contains(VIP));
    stage.router.sysctl("net/ipv4/vs/conntrack", "1");
    stage.wait_for_vip(VIP, true);
    wait_until("nothing is missing any more", PATIENCE, || !stage.said().contains("SysctlMissing"));
    assert!(stage.connect(VIP, 80).is_ok());
    stage.drain();
}

/// A host on the link that takes the VIP for one of its neighbours.
#[test]
fn nobody_on_an_external_link_is_told_where_the_vip_is() {
    let mut stage = stage("arp");
    stage.router.ip("route add default via 10.99.0.2");
    // As it is without us, an address on lo is answered for on every link.
    stage.client.ip(&format!("route add {VIP}/32 dev eth0"));
    let neighbour = |stage: &Stage, wanted: &str| {
        stage.client.command("ping").args(["-c", "1", "-W", "1", VIP]).output().unwrap();
        let found = stage.client.ip(&format!("neigh show {VIP}"));
        stage.client.ip("neigh flush all");
        found.contains(wanted)
    };
    stage.router.ip(&format!("addr add {VIP}/32 dev lo"));
    wait_until("the router answers by itself", PATIENCE, || neighbour(&stage, "lladdr"));
    stage.router.ip(&format!("addr del {VIP}/32 dev lo"));
    stage.start("");
    stage.wait_for_vip(VIP, true);
    wait_until("the external link is set", PATIENCE, || settings(&stage, "front")[0] == "1");
    assert!(neighbour(&stage, "FAILED") || neighbour(&stage, "INCOMPLETE"), "somebody answers for the VIP");
    stage.client.ip(&format!("route replace {VIP}/32 via 10.99.0.1"));
    assert!(stage.connect(VIP, 80).is_ok(), "routed it is served");
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

/// The ToR loses the route together with the last real server that a frame reaches, and has it again with the first.
#[test]
fn dr_is_tried_only_where_a_frame_gets_there() {
    let mut stage = Stage::new("distant", &[SERVER]);
    let tor = Tor::new("distant", &stage.router, 1);
    stage.bgp = ", peers: [{name: tor, address: 10.99.1.2, asn: 65001}]";
    let announced = |wanted: bool| {
        wait_until(&format!("the ToR has a route to the VIP: {wanted}"), PATIENCE, || {
            tor.learned().contains(&VIP.parse().unwrap()) == wanted && tor.kernel_routes() == tor.learned()
        });
    };
    stage.router.ip("route add 10.50.0.0/24 via 192.168.1.1");
    stage.publish("pods", &(service("pods", PORT) + &slice("pods", PORT, &["10.50.0.1", SERVER])));
    stage.publish("web", &eric("web", VIP, "pods", &[("80", "80", "algo: rr, mode: dr")]));
    stage.start("");
    let served = format!("TCP  {VIP}:80 rr\n  -> {SERVER}:80               Route   1      0          0\n");
    stage.wait_for_table(&served);
    stage.wait_for_vip(VIP, true);
    announced(true);
    stage.router.ip("route add 192.168.1.1/32 via 192.168.0.9");
    let nobody = "dr sends frames to real servers over a link of this node";
    wait_until("it says why nobody is reached", PATIENCE, || stage.said().contains(nobody));
    announced(false);
    stage.wait_for_table(&format!("TCP  {VIP}:80 rr\n"));
    // What the node lacks for a while takes no address away, as where others remove a virtual service.
    assert!(stage.router.ip("-o addr show dev lo").contains(&format!(" {VIP}/")));
    stage.router.ip("route del 192.168.1.1/32 via 192.168.0.9");
    announced(true);
    stage.wait_for_table(&served);
    wait_until("nothing is wrong any more", PATIENCE, || !stage.said().contains(nobody));
    assert_eq!((tor.withdrawals(), tor.sessions()), (1, 1), "it was told once, by the one session that there was");
    stage.drain();
}
