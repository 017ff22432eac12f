// SPDX-License-Identifier: Apache-2.0
//! Pods that `vipherald target` has set up answer clients themselves, whatever way packets come to them.
//!
//! Runs in the guest that `tests/uml` boots, on the stage of `tests/common/stage.rs`; pods are namespaces on a bridge of the router.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;
#[path = "common/stage.rs"]
mod stage;

use std::collections::BTreeSet;
use std::io::Write as _;
use std::net::{Ipv6Addr, TcpListener};
use std::process::Command;
use std::thread;

use common::{Namespace, wait_until};
use stage::{PATIENCE, Stage, VIP, eric, service, slice};

const VIP6: &str = "2001:db8:7::1";
/// One by itself, and one of a range that is balanced as a whole.
const PORTS: [u16; 2] = [80, 20_500];

/// Pods behind a bridge of the router, on which their answers come back.
fn pods(stage: &Stage, tag: &str) -> Vec<Namespace> {
    stage.router.ip("link add pods type bridge");
    stage.router.ip("link set pods up");
    stage.router.ip("addr add 10.77.0.1/24 dev pods");
    stage.router.ip("addr add 2001:db8:77::1/64 dev pods");
    // Here the router forwards answers that have an address of its own for their source; elsewhere a ToR does.
    stage.router.sysctl("net/ipv4/conf/pods/accept_local", "1");
    let pod = |number: u8| {
        let pod = Namespace::new(&format!("{tag}-pod{number}"));
        pod.veth("eth0", &stage.router, &format!("pod{number}"));
        stage.router.ip(&format!("link set pod{number} master pods"));
        pod.ip(&format!("addr add 10.77.0.1{number}/24 dev eth0"));
        pod.ip(&format!("addr add 2001:db8:77::1{number}/64 dev eth0"));
        pod.ip("route add default via 10.77.0.1");
        pod.ip("-6 route add default via 2001:db8:77::1");
        answer(&pod, number);
        pod
    };
    (1..=2).map(pod).collect()
}

/// Tells each client which pod this is, and who asked.
fn answer(pod: &Namespace, number: u8) {
    for port in PORTS {
        let listener = pod.run(|| TcpListener::bind((Ipv6Addr::UNSPECIFIED, port)).unwrap());
        thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let client = stream.peer_addr().unwrap().ip().to_canonical();
                stream.write_all(format!("pod{number} {client}\n").as_bytes()).ok();
            }
        });
    }
}

/// `vipherald target` in a pod, for both VIPs.
fn target(pod: &Namespace, more: &[&str]) -> String {
    let words = [env!("CARGO_BIN_EXE_vipherald"), "target", "--vip", VIP, VIP6];
    pod.output(&[&words, more].concat())
}

fn publish(stage: &Stage, forwarding: &str) {
    let ports = "{port: 80}";
    let pods = service("pods", ports) + &slice("pods", ports, &["10.77.0.11", "10.77.0.12"]);
    stage.publish("pods", &(pods + &slice("pods", ports, &["2001:db8:77::11", "2001:db8:77::12"])));
    let words = format!("algo: rr, mode: {forwarding}");
    for (name, vip) in [("four", VIP), ("six", VIP6)] {
        stage.publish(name, &eric(name, vip, "pods", &["80", "20000-20999"].map(|ports| (ports, ports, words.as_str()))));
    }
}

/// Both pods answer each VIP, and see who asked.
fn answers_of_both(stage: &Stage) {
    for (vip, client) in [(VIP, "10.99.0.2"), (VIP6, "2001:db8:99::2")] {
        stage.wait_for_vip(vip, true);
        wait_until("both ports are there", PATIENCE, || stage.table().lines().filter(|line| line.contains("->")).count() == 8);
        for port in PORTS {
            let answers: Vec<_> =
                (0..6).map(|_| stage.connect(vip, port).unwrap_or_else(|error| panic!("{vip} {port}: {error}"))).collect();
            let of_pods: BTreeSet<&str> = answers.iter().map(|answer| answer.server.as_str()).collect();
            assert_eq!(of_pods, BTreeSet::from(["pod1", "pod2"]), "{vip} {port}");
            assert!(answers.iter().all(|answer| answer.client == client), "{vip} {port}: {:?}", answers[0].client);
        }
    }
}

#[test]
fn pods_answer_clients_themselves_by_dr_tun_and_gue() {
    for (forwarding, tunnel) in [("dr", &[][..]), ("tun", &["--tunnel", "ipip"]), ("gue", &["--tunnel", "gue", "--port", "6090"])] {
        let mut stage = Stage::new(&format!("target-{forwarding}"), &[]);
        let pods = pods(&stage, forwarding);
        let with = |more: &[&'static str]| [tunnel, more].concat();
        for pod in &pods {
            let before = pod.ip("addr show");
            let foreseen = target(pod, &with(&["--dry-run"]));
            assert_eq!(pod.ip("addr show"), before);
            assert_eq!(target(pod, tunnel), foreseen);
            assert_eq!(target(pod, tunnel), "nothing to do\n", "{forwarding}");
            assert!(foreseen.contains(&format!("add address {VIP} to lo\n")), "{foreseen}");
        }
        publish(&stage, forwarding);
        stage.start(", tunnel: {port: 6090}");
        answers_of_both(&stage);
        stage.drain();
        for pod in &pods {
            target(pod, &with(&["--remove"]));
            assert_eq!(target(pod, &with(&["--remove"])), "nothing to do\n");
            assert!(!pod.ip("addr show dev lo").contains(VIP));
        }
    }
}

#[test]
fn tun_is_gue_where_the_configuration_says_so() {
    let mut stage = Stage::new("target-type", &[]);
    let pods = pods(&stage, "type");
    pods.iter().for_each(|pod| drop(target(pod, &["--tunnel", "gue"])));
    publish(&stage, "tun");
    stage.start(", tunnel: {type: gue}");
    answers_of_both(&stage);
    stage.drain();
}

#[test]
fn a_pod_that_lacks_a_right_is_told_which() {
    let pod = Namespace::new("target-rights");
    let words = ["-u", "nobody", "--", env!("CARGO_BIN_EXE_vipherald"), "target", "--vip", "10.0.0.1"];
    let output = pod.command("runuser").args(words).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.starts_with("vipherald: target: cannot set net.ipv4.conf.all.arp_ignore to 1: this needs a privileged init container"),
        "{said}"
    );
}

/// Without NET_ADMIN the root of a container may still write settings, so that the addresses are what fails.
#[test]
fn what_was_done_before_an_error_is_taken_back() {
    let pod = Namespace::new("target-halfway");
    pod.sysctl("net/ipv4/conf/all/arp_announce", "1");
    let words = ["--bounding-set=-net_admin", "--inh-caps=-net_admin", env!("CARGO_BIN_EXE_vipherald"), "target", "--vip", VIP];
    let (code, done, said) = ended(pod.command("setpriv").args(words));
    assert_eq!(code, Some(1), "{said}");
    let set = |name: &str, value: u8| format!("set net.ipv4.conf.all.{name} to {value}\n");
    let expected = [
        set("arp_ignore", 1),
        set("arp_announce", 2),
        format!("undone: {}", set("arp_announce", 1)),
        format!("undone: {}", set("arp_ignore", 0)),
    ];
    assert_eq!(done, expected.concat(), "{said}");
    assert!(said.starts_with(&format!("vipherald: target: cannot add address {VIP} to lo: this needs the capability NET_ADMIN")), "{said}");
    // The same where the last of all is what fails.
    pod.sysctl("net/ipv6/conf/lo/disable_ipv6", "1");
    let before = pod.ip("-o addr show");
    let words = ["target", "--vip", VIP, VIP6, "--tunnel", "gue"];
    let (code, done, said) = ended(pod.command(env!("CARGO_BIN_EXE_vipherald")).args(words));
    assert_eq!(code, Some(1), "{done}");
    let reason =
        format!("vipherald: target: cannot add address {VIP6} to lo: IPv6 is disabled on lo (sysctl net.ipv6.conf.lo.disable_ipv6)");
    assert!(said.starts_with(&reason), "{said}");
    assert!(done.contains(&format!("undone: remove address {VIP} from lo\n")), "{done}");
    assert_eq!((pod.ip("-o addr show"), pod.output(&["ip", "fou", "show"])), (before, String::new()), "{done}");
    assert!(["tunl0", "ip6tnl0"].iter().all(|device| !pod.ip(&format!("link show {device}")).contains(",UP")), "{done}");
}

#[test]
fn parts_can_be_done_one_by_one_and_vips_that_are_not_named_go_where_asked() {
    let pod = Namespace::new("target-parts");
    pod.ip("addr add 10.0.0.9/32 dev lo");
    let whole = target(&pod, &["--tunnel", "ipip", "--dry-run"]);
    let parts = ["settings", "tunnel", "addresses"].map(|part| target(&pod, &["--tunnel", "ipip", "--only", part]));
    assert_eq!(parts.concat(), whole);
    assert!(parts[0].contains("arp_ignore") && parts[1].contains("tunl0 up") && parts[2].contains(VIP), "{parts:?}");
    assert_eq!(target(&pod, &["--tunnel", "ipip"]), "nothing to do\n");
    let exact = |vips: &[&str]| pod.output(&[&[env!("CARGO_BIN_EXE_vipherald"), "target", "--exact", "--vip"], vips].concat());
    let expected = format!("add address 10.0.0.1 to lo\nremove address {VIP} from lo\n");
    assert_eq!(exact(&["10.0.0.1", VIP6]), expected);
    assert_eq!(exact(&["10.0.0.1", VIP6]), "nothing to do\n");
    assert!(pod.ip("addr show dev lo").contains("10.0.0.9/32"), "somebody else placed it");
    assert_eq!(target(&pod, &["--tunnel", "ipip", "--remove", "--only", "addresses"]), format!("remove address {VIP6} from lo\n"));
    let (code, _, said) = ended(pod.command(env!("CARGO_BIN_EXE_vipherald")).args(["target", "--vip", VIP, "--port", "6090"]));
    assert_eq!((code, said.as_str()), (Some(2), "vipherald: target: --port is that of --tunnel gue, which is missing\n"));
}

#[test]
fn beside_a_daemon_no_vip_is_taken_away() {
    let mut stage = Stage::new("target-daemon", &["192.168.1.1"]);
    let ports = "{port: 80}";
    stage.publish("pods", &(service("pods", ports) + &slice("pods", ports, &["192.168.1.1"])));
    stage.publish("web", &eric("web", VIP, "pods", &[("80", "80", "algo: rr")]));
    stage.start("");
    stage.wait_for_vip(VIP, true);
    for more in [["--vip", VIP, "--remove"], ["--vip", "10.0.0.1", "--exact"]] {
        let (code, done, said) = ended(stage.router.command(env!("CARGO_BIN_EXE_vipherald")).arg("target").args(more));
        assert_eq!((code, done.as_str()), (Some(1), ""), "{said}");
        assert!(said.starts_with("vipherald: target: a vipherald daemon runs in this network namespace"), "{said}");
    }
    stage.drain();
}

/// Exit code, standard output and standard error.
fn ended(command: &mut Command) -> (Option<i32>, String, String) {
    let output = command.output().unwrap();
    (output.status.code(), String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn an_end_leaves_what_others_placed_and_what_is_still_in_use() {
    let pod = Namespace::new("target-others");
    let target = |vip: &str, more: &[&str]| {
        let words = [env!("CARGO_BIN_EXE_vipherald"), "target", "--vip", vip, "--tunnel", "gue"];
        pod.output(&[&words, more].concat())
    };
    let fou = || pod.output(&["ip", "fou", "show"]).trim().to_owned();
    let is_up = |device: &str| pod.ip(&format!("link show {device}")).contains(",UP");
    pod.ip("addr add 10.0.0.3/32 dev lo");
    for vip in ["10.0.0.1", "10.0.0.2", "10.0.0.3"] {
        target(vip, &[]);
    }
    // Another one may come by the tunnel.
    assert_eq!(target("10.0.0.1", &["--remove"]), "remove address 10.0.0.1 from lo\n");
    assert!(is_up("tunl0") && fou().starts_with("port 6080 gue"), "{}", fou());
    assert_eq!(target("10.0.0.2", &["--remove", "--dry-run"]), target("10.0.0.2", &["--remove"]));
    assert!(!is_up("tunl0") && fou().is_empty(), "{}", fou());
    // Somebody else placed this one.
    assert_eq!(target("10.0.0.3", &["--remove"]), "nothing to do\n");
    assert!(pod.ip("addr show dev lo").contains("10.0.0.3/32"));
    // With an address the device is somebody else's too.
    target("10.0.0.1", &[]);
    pod.ip("addr add 10.9.0.1/32 dev tunl0");
    target("10.0.0.1", &["--remove"]);
    assert!(is_up("tunl0") && fou().is_empty(), "{}", fou());
    assert_eq!(target("10.0.0.1", &["--remove"]), "nothing to do\n");
}

#[test]
fn dr_to_a_pod_behind_a_gateway_is_refused_with_the_reason() {
    let mut stage = Stage::new("target-distant", &[]);
    let _pods = pods(&stage, "distant");
    stage.router.ip("route add 10.77.0.12/32 via 10.77.0.11");
    let ports = "{port: 80}";
    stage.publish("pods", &(service("pods", ports) + &slice("pods", ports, &["10.77.0.12"])));
    stage.publish("web", &eric("web", VIP, "pods", &[("80", "80", "algo: rr, mode: dr")]));
    stage.start("");
    let reason = "dr sends frames to real servers over a link of this node, and 10.77.0.12 is behind a next hop";
    wait_until("the reason is told", PATIENCE, || stage.said().contains(reason));
    stage.wait_for_vip(VIP, false);
    // One that is reached serves, and the other one is still told of.
    let both = ["10.77.0.11", "10.77.0.12"];
    stage.publish("pods", &(service("pods", ports) + &slice("pods", ports, &both)));
    stage.wait_for_vip(VIP, true);
    let told = "TCP 10.232.35.199:80 of EricIngress default/web does without 10.77.0.12, which is behind a next hop";
    wait_until("it says who is left out", PATIENCE, || stage.said().contains(told));
    assert!(!stage.table().contains("10.77.0.12"), "{}", stage.table());
    // Of the other one alone the reason is told again, until the route goes.
    stage.publish("pods", &(service("pods", ports) + &slice("pods", ports, &both[1..])));
    wait_until("the reason is told again", PATIENCE, || stage.said().contains(reason));
    stage.router.ip("route del 10.77.0.12/32 via 10.77.0.11");
    wait_until("it is reached", PATIENCE, || stage.table().contains("10.77.0.12"));
    wait_until("nothing is wrong any more", PATIENCE, || !stage.said().contains(reason));
    stage.drain();
}

#[test]
fn timeouts_and_settings_of_external_interfaces_are_kept() {
    let mut stage = Stage::new("target-settings", &["192.168.1.1"]);
    stage.router.ip("route add default via 10.99.0.2");
    stage.router.sysctl("net/ipv4/conf/front/rp_filter", "1");
    stage.router.sysctl("net/ipv4/conf/back/rp_filter", "1");
    let ports = "{port: 80}";
    stage.publish("pods", &(service("pods", ports) + &slice("pods", ports, &["192.168.1.1"])));
    stage.publish("web", &eric("web", VIP, "pods", &[("80", "80", "algo: rr")]));
    stage.start(", timeouts: {udp: 60s}");
    stage.wait_for_vip(VIP, true);
    let timeouts = |wanted: &str| {
        let found = || stage.router.output(&["ipvsadm", "-L", "--timeout"]).trim().to_owned();
        wait_until(wanted, 2 * PATIENCE, || found().ends_with(&format!(": {wanted}")));
    };
    timeouts("1800 120 60");
    let settings = |interface: &str| {
        let value = |name| std::fs::read_to_string(format!("/proc/sys/net/ipv4/conf/{interface}/{name}")).unwrap().trim().to_owned();
        stage.router.run(|| ["arp_ignore", "arp_announce", "rp_filter"].map(value))
    };
    wait_until("the external interface is set", PATIENCE, || settings("front") == ["1", "2", "2"]);
    assert_eq!(settings("back"), ["0", "0", "1"], "an interface that leads to pods is not touched");
    let set = |words: [&str; 3]| drop(stage.router.output(&["ipvsadm", "--set", words[0], words[1], words[2]]));
    // What somebody lowers is set again, with the next reading of the whole table.
    set(["900", "0", "0"]);
    timeouts("1800 120 60");
    // What somebody raises stays, also where something else is lowered.
    set(["3600", "60", "30"]);
    timeouts("3600 60 60");
    let raised = "dataplane.timeouts.tcp: somebody has raised it to 3600s; the configuration says 1800s, and the longer one stays";
    wait_until("it says what was raised", PATIENCE, || stage.said_aside("vips").contains(raised));
    stage.drain();
}
