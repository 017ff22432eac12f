// SPDX-License-Identifier: Apache-2.0
//! A router that is not alone on its node: kube-proxy in its several forms, another instance, listeners of the node, and who removes our services.
//!
//! Runs in the guest that `tests/uml` boots, on the stage of `tests/common/stage.rs`.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;
#[path = "common/stage.rs"]
mod stage;

use std::fs;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use common::{run, wait_until};
use nix::sys::signal::Signal;
use stage::{Connection, PATIENCE, Stage, VIP, eric, service, slice};

/// Behind our virtual services, and where kube-proxy would go.
const OURS: &str = "192.168.1.1";
const THEIRS: &str = "192.168.1.9";
/// The router for its clients.
const NODE: &str = "10.99.0.1";

fn stage(tag: &str) -> Stage {
    let stage = Stage::new(tag, &[OURS, THEIRS]);
    stage.answer_tcp(80);
    stage.servers.ip("route add default via 192.168.0.1");
    stage
}

/// A Service of one real server, and an object that gives it this port of the VIP.
fn web(port: &str) -> String {
    let ports = "{port: 80}";
    service("pods", ports) + &slice("pods", ports, &[OURS]) + &eric("web", VIP, "pods", &[(port, "80", "algo: rr")])
}

fn server(stage: &Stage, address: &str, port: u16) -> Option<String> {
    stage.connect(address, port).ok().map(|connection| connection.server)
}

/// Rules as kube-proxy in mode nftables has them: for an external IP and for a node port.
fn kube_proxy_nft(stage: &Stage) {
    stage.router.nft(&format!(
        "table ip kube-proxy {{
            map service-ips {{
                type ipv4_addr . inet_proto . inet_service : verdict
                elements = {{ {VIP} . tcp . 80 : goto service-web }}
            }}
            map service-nodeports {{ type inet_proto . inet_service : verdict; elements = {{ tcp . 30080 : goto service-web }} }}
            chain service-web {{ meta l4proto tcp dnat to {THEIRS}:80; }}
            chain services {{
                ip daddr . meta l4proto . th dport vmap @service-ips
                fib daddr type local ip daddr != 127.0.0.0/8 meta l4proto . th dport vmap @service-nodeports
            }}
            chain nat-prerouting {{ type nat hook prerouting priority dstnat; jump services; }}
            chain nat-output {{ type nat hook output priority -100; jump services; }}
        }}"
    ));
}

/// As [`kube_proxy_nft`], with this variant of `iptables`.
fn kube_proxy_iptables(stage: &Stage, program: &str) {
    let run = |words: &str| {
        let words: Vec<&str> = [program, "-t", "nat"].into_iter().chain(words.split_whitespace()).collect();
        stage.router.output(&words);
    };
    run("-N KUBE-SERVICES");
    run(&format!("-A KUBE-SERVICES -d {VIP}/32 -p tcp --dport 80 -j DNAT --to-destination {THEIRS}:80"));
    run(&format!("-A KUBE-SERVICES -m addrtype --dst-type LOCAL -p tcp --dport 30080 -j DNAT --to-destination {THEIRS}:80"));
    run("-A PREROUTING -j KUBE-SERVICES");
    run("-A OUTPUT -j KUBE-SERVICES");
}

#[test]
fn ipvs_decides_beside_the_rules_of_kube_proxy() {
    for form in ["nft", "iptables-nft", "iptables-legacy"] {
        let mut stage = stage(form);
        // A listener of the node itself.
        Stage::answer_tcp_in(&stage.router, 22);
        stage.router.sysctl("net/ipv4/ip_forward", "1");
        match form {
            "nft" => kube_proxy_nft(&stage),
            program => kube_proxy_iptables(&stage, program),
        }
        // What they do is real: without us the VIP is theirs.
        stage.router.ip(&format!("addr add {VIP}/32 dev lo"));
        assert_eq!(server(&stage, VIP, 80), Some(format!("{THEIRS}:80")), "{form}");
        assert_eq!(server(&stage, VIP, 30_080), Some(format!("{THEIRS}:80")), "{form}");
        stage.router.ip(&format!("addr del {VIP}/32 dev lo"));
        stage.publish("web", &web("80"));
        stage.start("");
        stage.wait_for_vip(VIP, true);
        assert_eq!(server(&stage, VIP, 80), Some(format!("{OURS}:80")), "{form}");
        let local = Stage::connect_in(&stage.router, None, VIP, 80).unwrap().server;
        assert_eq!(local, format!("{OURS}:80"), "{form}: a connection of the node itself");
        for port in [22, 30_080] {
            assert_eq!(server(&stage, VIP, port), None, "{form}: {VIP}:{port} is open");
        }
        assert_eq!(server(&stage, NODE, 22), Some(format!("{NODE}:22")), "{form}");
        assert_eq!(server(&stage, NODE, 30_080), Some(format!("{THEIRS}:80")), "{form}");
        let daemon = stage.daemon.take().unwrap();
        daemon.signal(Signal::SIGTERM);
        assert!(daemon.wait(PATIENCE).success());
    }
}

/// A node on which kube-proxy has balanced until now.
#[test]
fn connections_that_kube_proxy_has_placed_go_on_when_ipvs_takes_over() {
    for form in ["nft", "iptables-legacy"] {
        let mut stage = stage(&format!("over-{form}"));
        stage.router.sysctl("net/ipv4/ip_forward", "1");
        match form {
            "nft" => kube_proxy_nft(&stage),
            program => kube_proxy_iptables(&stage, program),
        }
        let ports = "{port: 80}";
        let with_vip = service("web", ports).replace("clusterIP: None", &format!("externalIPs: [{VIP}]"));
        stage.publish("web", &(with_vip + &slice("web", ports, &[OURS])));
        stage.start_with("type: kube-proxy");
        stage.wait_for_vip(VIP, true);
        let mut theirs: Vec<_> = (0..10).map(|_| stage.connect(VIP, 80).unwrap()).collect();
        assert!(theirs.iter().all(|connection| connection.server == format!("{THEIRS}:80")), "{form}");
        stage.change_dataplane("ipvs", "");
        wait_until("IPVS decides", PATIENCE, || server(&stage, VIP, 80) == Some(format!("{OURS}:80")));
        assert!(theirs.iter_mut().all(Connection::works), "{form}: a connection ended");
        let daemon = stage.daemon.take().unwrap();
        daemon.signal(Signal::SIGTERM);
        assert!(daemon.wait(PATIENCE).success());
    }
}

#[test]
fn listeners_of_the_node_on_a_vip_and_its_own_connections_are_let_through() {
    let mut stage = stage("listen");
    Stage::answer_tcp_in(&stage.client, 7);
    Stage::answer_tcp_in(&stage.router, 22);
    stage.bgp = ", listen: {address: 10.232.35.199, prefixes: [10.99.0.0/24]}";
    stage.publish("web", &web("80"));
    stage.start("");
    stage.wait_for_vip(VIP, true);
    let reaches = || stage.client.run(|| TcpStream::connect((VIP, 179)).is_ok());
    wait_until("the speaker is reached", PATIENCE, reaches);
    let answer = Stage::connect_in(&stage.router, Some(VIP), "10.99.0.2", 7).unwrap();
    assert_eq!(answer.client, VIP);
    assert!(stage.connect(VIP, 22).is_err());
    stage.client.output(&["ping", "-c", "1", "-W", "2", VIP]);
    stage.drain();
}

#[test]
fn two_instances_share_a_vip() {
    let mut stage = stage("two");
    stage.answer_tcp(90);
    let ports = "{port: 90}";
    stage.publish("web", &web("80"));
    stage.publish_for("second", "pods", &(service("pods", ports) + &slice("pods", ports, &[OURS])));
    let second = |mapping| eric("corba", VIP, "pods", &[(mapping, mapping, "algo: sh")]);
    stage.publish_for("second", "corba", &second("90"));
    stage.start(", unservedPorts: reject");
    stage.wait_for_vip(VIP, true);
    let other = stage.start_instance("second", "type: ipvs, unservedPorts: reject");
    wait_until("both are served", PATIENCE, || server(&stage, VIP, 80).is_some() && server(&stage, VIP, 90).is_some());
    assert_eq!(server(&stage, VIP, 91), None);
    // The one that placed the address leaves: the other one goes on.
    let daemon = stage.daemon.take().unwrap();
    daemon.signal(Signal::SIGTERM);
    assert!(daemon.wait(PATIENCE).success());
    wait_until("the other one has the address", PATIENCE, || server(&stage, VIP, 90).is_some());
    assert_eq!(server(&stage, VIP, 80), None);
    // The first one is back, and uses what the other one placed.
    stage.start("");
    wait_until("both are served again", PATIENCE, || server(&stage, VIP, 80).is_some() && server(&stage, VIP, 90).is_some());
    assert_eq!(server(&stage, VIP, 91), None);
    other.signal(Signal::SIGTERM);
    assert!(other.wait(PATIENCE).success());
    wait_until("the first one has the address", PATIENCE, || server(&stage, VIP, 80).is_some());
    stage.drain();
}

/// The kernel tells nobody, and all is read again each ten seconds only.
#[test]
fn a_table_that_somebody_empties_is_full_again_in_no_time() {
    const SOON: Duration = Duration::from_secs(5);
    let mut stage = stage("emptied");
    stage.start("");
    // One that is removed for the second time is not made again at once.
    for port in ["80", "81", "82", "83"] {
        stage.publish("web", &web(port));
        let is_served = || server(&stage, VIP, port.parse().unwrap()).is_some();
        wait_until("it is served", PATIENCE, is_served);
        let since = Instant::now();
        run(stage.router.command("ipvsadm").arg("-C"));
        wait_until("it is served again", PATIENCE, is_served);
        let took = since.elapsed();
        assert!(took < SOON, "port {port} was not served for {took:?}");
    }
    stage.drain();
}

/// Between two readings of the table: what is there under our name need not be ours.
#[test]
fn a_service_that_somebody_makes_in_the_place_of_ours_is_left_alone() {
    let mut stage = stage("replaced");
    stage.publish("web", &web("80"));
    stage.start("");
    stage.wait_for_vip(VIP, true);
    let ipvsadm = |stage: &Stage, words: &str| stage.router.output(&["ipvsadm"].into_iter().chain(words.split(' ')).collect::<Vec<_>>());
    let at_80 = |stage: &Stage| {
        let of_port = |line: &&str| line.contains(&format!("{VIP}:80 "));
        ipvsadm(stage, "-Sn").lines().filter(of_port).map(str::to_owned).collect::<Vec<_>>()
    };
    // One process, or ours may be there again in between.
    let make_theirs = |stage: &Stage| {
        let rules = stage.path("theirs");
        fs::write(&rules, format!("-D -t {VIP}:80\n-A -t {VIP}:80 -s wlc -p 77\n-a -t {VIP}:80 -r {THEIRS}:80 -m -w 9\n")).unwrap();
        run(stage.router.command("ipvsadm").arg("-R").stdin(fs::File::open(&rules).unwrap()));
    };
    let is_ours_again = |stage: &Stage| {
        ipvsadm(stage, &format!("-D -t {VIP}:80"));
        wait_until("it is ours again", PATIENCE, || server(stage, VIP, 80) == Some(format!("{OURS}:80")));
    };
    let is_told = |stage: &Stage| stage.said().contains("is a virtual service of somebody else");

    make_theirs(&stage);
    let theirs = at_80(&stage);
    wait_until("it is told", PATIENCE, || is_told(&stage));
    assert_eq!(at_80(&stage), theirs);
    is_ours_again(&stage);

    // Somebody waits for it to be free.
    let make = format!("until ipvsadm -A -t {VIP}:80 -s wlc -p 77 2>/dev/null; do :; done");
    let mut waiting = stage.router.command("sh").args(["-c", &make]).spawn().unwrap();
    stage.publish("web", &web("81"));
    wait_until("the other one is served", PATIENCE, || server(&stage, VIP, 81).is_some());
    assert!(waiting.wait().unwrap().success());
    let theirs_alone = at_80(&stage);
    stage.publish("web", &web("80"));
    wait_until("it is told", PATIENCE, || is_told(&stage));
    assert_eq!((at_80(&stage), theirs_alone.len()), (theirs_alone, 1));
    is_ours_again(&stage);

    // By the time the node leaves nobody has told of it.
    make_theirs(&stage);
    let table = stage.table();
    stage.drain_beside(&table);
    assert_eq!(at_80(&stage), theirs);
}

/// Whoever removes our services again and again, as kube-proxy in IPVS mode does, is told about and not fought.
#[test]
fn who_goes_on_removing_a_service_is_not_fought() {
    let mut stage = stage("fight");
    stage.router.ip("link add kube-ipvs0 type dummy");
    stage.publish("web", &web("80"));
    stage.start("");
    stage.wait_for_vip(VIP, true);
    let script = format!("while sleep 0.1; do ipvsadm -D -t {VIP}:80 2>/dev/null; done");
    let remover = stage.router.spawn(stage.router.command("sh").args(["-c", &script]));
    let since = Instant::now();
    wait_until("it says what happens, and what to do", Duration::from_secs(60), || {
        let said = stage.said();
        said.contains("somebody else removed TCP 10.232.35.199:80 ") && said.contains("--ipvs-exclude-cidrs")
    });
    let done = |step: &str| stage.daemon.as_ref().unwrap().log().matches(&format!("done step={step}")).count();
    // The first set, before the VIP was served, was empty too.
    wait_until("it is withdrawn meanwhile", PATIENCE, || done("advertise nothing\n") >= 2);
    let made = done("add virtual service");
    let seconds = since.elapsed().as_secs();
    // At first, once more at once, and then after one second, two more, four more, and so on.
    let most = 2 + usize::try_from((seconds + 1).ilog2()).unwrap();
    assert!((2..=most).contains(&made), "made {made} times in {seconds} s");
    remover.kill();
    wait_until("it is served again", Duration::from_secs(60), || server(&stage, VIP, 80).is_some());
    stage.drain();
}

#[test]
fn a_port_that_somebody_else_has_beside_kube_proxy_in_ipvs_mode_says_what_to_do() {
    let mut stage = stage("taken");
    stage.router.ip("link add kube-ipvs0 type dummy");
    stage.router.output(&["ipvsadm", "-A", "-t", &format!("{VIP}:80")]);
    stage.publish("web", &web("80"));
    stage.start("");
    wait_until("it says so", PATIENCE, || {
        let said = stage.said();
        said.contains("is a virtual service of somebody else") && said.contains("service.kubernetes.io/service-proxy-name")
    });
    stage.router.ip(&format!("addr add {VIP}/32 dev kube-ipvs0"));
    wait_until("it says so of the address too", PATIENCE, || {
        let said = stage.said();
        said.contains("another interface of the node has the address") && said.contains("service.kubernetes.io/service-proxy-name")
    });
    stage.drain_beside(&format!("TCP  {VIP}:80 wlc\n"));
}
