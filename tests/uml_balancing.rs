// SPDX-License-Identifier: Apache-2.0
//! The daemon as a router, on a kernel with IPVS: objects in, virtual services and answered requests out.
//!
//! Runs in the guest that `tests/uml` boots, on the stage of `tests/common/stage.rs`.
#![allow(clippy::disallowed_macros, clippy::expect_used, clippy::unwrap_used, reason = "a test fails by panicking, and prints its figures")]

#[path = "common/alike.rs"]
mod alike;
mod common;
#[path = "common/flood.rs"]
mod flood;
#[path = "common/stage.rs"]
mod stage;

use std::process::Command;
use std::time::{Duration, Instant};

use common::wait_until;
use stage::{Connection, PATIENCE, ROUTER, Stage, VIP, eric, service, slice};

#[test]
fn the_table_reads_as_the_customer_wrote_it_and_requests_are_answered() {
    let servers = ["192.168.67.114", "192.168.182.140", "192.168.26.214"];
    let mut stage = Stage::new("table", &servers);
    stage.answer_tcp(1389);
    stage.answer_tcp(4569);
    stage.publish("mscm", &(service("mscm", "{name: ldap, port: 1389}") + &slice("mscm", "{name: ldap, port: 1389}", &servers[..2])));
    stage.publish("nbi", &(service("nbi", "{port: 4569}") + &slice("nbi", "{port: 4569}", &servers[2..])));
    stage.publish("ingress", &eric("mscm", VIP, "mscm", &[("1389", "1389", "protocol: tcp, algo: lc, mode: nat")]));
    stage.publish("corba", &eric("nbi", VIP, "nbi", &[("4569", "4569", "protocol: TCP, algo: sh")]));
    stage.start("");
    stage.wait_for_table(
        "TCP  10.232.35.199:1389 lc
  -> 192.168.67.114:1389          Masq    1      0          0
  -> 192.168.182.140:1389         Masq    1      0          0
TCP  10.232.35.199:4569 sh
  -> 192.168.26.214:4569          Masq    1      0          0",
    );
    stage.wait_for_vip(VIP, true);
    let shared: Vec<String> = stage.show("ipvs").lines().skip(3).map(|line| line.chars().take(70).collect()).collect();
    let customers = [
        "TCP  10.232.35.199:1389 lc                                            ",
        "  -> 192.168.67.114:1389          Masq    1      0          0         ",
        "  -> 192.168.182.140:1389         Masq    1      0          0         ",
        "TCP  10.232.35.199:4569 sh                                            ",
        "  -> 192.168.26.214:4569          Masq    1      0          0         ",
    ];
    assert_eq!(shared, customers);
    let owners: Vec<String> = stage.owners().iter().map(|line| line.rsplit(": ").next().unwrap_or_default().to_owned()).collect();
    let [mscm, nbi] = ["EricIngress default/mscm", "EricIngress default/nbi"];
    assert_eq!(owners, [mscm, mscm, mscm, nbi, nbi]);
    let spread = stage.spread(VIP, 1389, 20);
    assert_eq!(spread.keys().collect::<Vec<_>>(), ["192.168.182.140:1389", "192.168.67.114:1389"]);
    let connection = stage.connect(VIP, 4569).unwrap();
    assert_eq!((connection.server.as_str(), connection.client.as_str()), ("192.168.26.214:4569", ROUTER));
    // Nobody serves it, and the router's own listeners are not meant.
    assert!(stage.connect(VIP, 22).is_err());
    drop(connection);
    stage.drain();
    stage.wait_for_vip(VIP, false);
}

#[test]
fn show_ipvs_is_ipvsadm_with_owners() {
    let mut stage = Stage::new("show", &["192.168.1.1", "192.168.1.2", "2001:db8:1::11"]);
    stage.answer_tcp(9000);
    let ports = "{name: a, port: 9000}";
    let slices = slice("pods", ports, &["192.168.1.1", "192.168.1.2"]) + &slice("pods", ports, &["2001:db8:1::11"]);
    stage.publish("pods", &(service("pods", ports) + &slices));
    let mappings = [("7000", "9000", "algo: mh"), ("20000-20999", "20000-20999", "algo: rr")];
    stage.publish("four", &eric("four", VIP, "pods", &mappings));
    stage.publish("six", &eric("six", "2001:db8:7::1", "pods", &[("7000", "9000", "algo: sh, protocol: udp"), mappings[1]]));
    // What we would never say, and what has a mark that we have not recorded.
    for words in [
        "-A -t 10.9.9.9:1 -s wlc -p 60 -M 255.255.255.0",
        "-a -t 10.9.9.9:1 -r 10.8.8.8:1 -i -w 7",
        "-A -u 10.9.9.9:2 -s rr -o",
        "-a -u 10.9.9.9:2 -r 10.8.8.8:2 -g",
        "-A -f 7 -s sh -b sh-port,sh-fallback",
        "-A -f 7 -6 -s lc -p 60 -M 64",
        "-a -f 7 -6 -r [2001:db8:1::11]:0 -m",
        "-A --sctp-service [2001:db8::9]:3 -s fo",
    ] {
        assert!(stage.router.command("ipvsadm").args(words.split(' ')).status().unwrap().success(), "{words}");
    }
    stage.start("");
    stage.wait_for_vip(VIP, true);
    stage.wait_for_vip("2001:db8:7::1", true);
    stage.connect(VIP, 7000).unwrap();
    let owners = stage.owners();
    let of = |start: &str| {
        let found = owners.iter().find(|line| line.starts_with(start)).unwrap_or_else(|| panic!("{start} in {owners:#?}"));
        found.split_once(": ").unwrap().1.to_owned()
    };
    assert_eq!(of(&format!("TCP  {VIP}:7000 mh (mh-fallback,mh-port)")), "EricIngress default/four");
    assert_eq!(of("UDP  [2001:db8:7::1]:7000 sh"), "EricIngress default/six");
    assert_eq!(of("FWM  64 rr"), format!("EricIngress default/four (TCP {VIP}:20000-20999)"));
    for foreign in ["TCP  10.9.9.9:1 wlc persistent 60 mask 255.255.255.0", "UDP  10.9.9.9:2 rr ops", "FWM  7 sh", "FWM  7 IPv6 lc"] {
        assert_eq!(of(foreign), "foreign", "{foreign}");
    }
    let document: serde_json::Value = serde_json::from_str(&stage.show("ipvs -o json")).unwrap();
    let services = document["services"].as_array().unwrap();
    let mh = services.iter().find(|service| service["scheduler"] == "mh").unwrap();
    assert_eq!(
        (&mh["service"], &mh["foreign"], &mh["flags"]),
        (&format!("TCP {VIP}:7000").into(), &false.into(), &serde_json::json!(["mh-fallback", "mh-port"]))
    );
    assert_eq!(mh["realServers"].as_array().unwrap().len(), 2);
    assert_eq!(services.iter().filter(|service| service["foreign"] == true).count(), 5);
    assert_eq!(document["node"], "node-1");
}

/// Where nft balances, IPVS is somebody else's, also a service of our VIP and port.
#[test]
fn show_ipvs_where_nft_balances() {
    let mut stage = Stage::new("shownft", &["192.168.1.1"]);
    stage.publish("pods", &(service("pods", "{port: 80}") + &slice("pods", "{port: 80}", &["192.168.1.1"])));
    stage.publish("web", &eric("web", VIP, "pods", &[("80", "80", "algo: rr")]));
    stage.start_with("type: nftables");
    stage.wait_for_vip(VIP, true);
    assert_eq!(stage.owners(), [""; 0]);
    assert!(stage.router.command("ipvsadm").args(["-A", "-t", &format!("{VIP}:80"), "-s", "rr"]).status().unwrap().success());
    assert_eq!(stage.owners(), [format!("TCP  {VIP}:80 rr: foreign")]);
}

#[test]
fn both_families_short_ranges_with_an_offset_and_long_ones() {
    alike::both_families_short_ranges_with_an_offset_and_long_ones("ipvs");
}

#[test]
fn changes_leave_connections_alone_and_quiesced_servers_keep_theirs() {
    let mut stage = Stage::new("change", &["192.168.1.1", "192.168.1.2", "192.168.1.3"]);
    stage.answer_tcp(80);
    let ports = "{port: 80}";
    let pods = |endpoints: &[&str]| service("pods", ports) + &slice("pods", ports, endpoints);
    let ingress = |scheduler: &str| eric("web", VIP, "pods", &[("80", "80", &format!("algo: {scheduler}"))]);
    stage.publish("pods", &pods(&["192.168.1.1", "192.168.1.3"]));
    stage.publish("web", &ingress("mh"));
    stage.start(", drainTimeout: 2s");
    stage.wait_for_vip(VIP, true);
    let mut connections: Vec<Connection> = (0..20).map(|_| stage.connect(VIP, 80).unwrap()).collect();
    let weights = |stage: &Stage| -> Vec<String> {
        let lines = stage.table();
        let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        lines.lines().skip(1).map(words).map(|words| format!("{} {}", words[1], words[3])).collect()
    };
    let header = |stage: &Stage| stage.table().lines().next().unwrap_or_default().to_owned();
    // A newcomer in the middle: those in front of it are added anew.
    stage.publish("pods", &pods(&["192.168.1.1", "192.168.1.2", "192.168.1.3"]));
    wait_until("three servers in order", PATIENCE, || weights(&stage) == ["192.168.1.1:80 1", "192.168.1.2:80 1", "192.168.1.3:80 1"]);
    assert!(connections.iter_mut().all(Connection::works));
    for scheduler in ["sh", "rr", "lc", "mh"] {
        stage.publish("web", &ingress(scheduler));
        wait_until(scheduler, PATIENCE, || header(&stage).starts_with(&format!("TCP  {VIP}:80 {scheduler}")));
        assert!(connections.iter_mut().all(Connection::works));
    }
    // One is on its way out: it keeps what it has, and gets nothing new.
    stage.publish("pods", &pods(&["192.168.1.1 ready: false, serving: true, terminating: true", "192.168.1.2", "192.168.1.3"]));
    wait_until("one is quiesced", PATIENCE, || weights(&stage) == ["192.168.1.1:80 0", "192.168.1.2:80 1", "192.168.1.3:80 1"]);
    assert!(connections.iter_mut().all(Connection::works));
    assert!(!stage.spread(VIP, 80, 20).contains_key("192.168.1.1:80"));
    // It is gone: what is left of its connections ends, the others go on.
    stage.publish("pods", &pods(&["192.168.1.2", "192.168.1.3"]));
    wait_until("it is removed", PATIENCE, || weights(&stage) == ["192.168.1.2:80 1", "192.168.1.3:80 1"]);
    let (mut gone, mut others): (Vec<_>, Vec<_>) =
        connections.into_iter().partition(|connection| connection.server.starts_with("192.168.1.1:"));
    assert!(!gone.is_empty() && !others.is_empty());
    assert!(others.iter_mut().all(Connection::works));
    assert!(!gone.iter_mut().any(Connection::works));
    // With the last one, the VIP goes.
    stage.publish("pods", &pods(&[]));
    stage.wait_for_vip(VIP, false);
    wait_until("nothing is left", PATIENCE, || stage.table().is_empty());
    stage.drain();
}

#[test]
fn a_udp_client_with_one_socket_is_answered_by_the_new_server() {
    alike::a_udp_client_with_one_socket_is_answered_by_the_new_server("ipvs");
}

#[test]
fn a_udp_client_that_sends_on_is_answered_once_its_vip_is_back() {
    alike::a_udp_client_that_sends_on_is_answered_once_its_vip_is_back("ipvs");
}

#[test]
fn a_client_stays_with_its_real_server_until_that_gets_nothing_new() {
    alike::a_client_stays_with_its_real_server_until_that_gets_nothing_new("ipvs");
}

#[test]
fn a_port_that_a_client_takes_again_is_no_old_connection() {
    alike::a_port_that_a_client_takes_again_is_no_old_connection("ipvs");
}

#[test]
fn a_real_server_may_be_the_router_itself() {
    alike::a_real_server_may_be_the_router_itself("ipvs", &["nat", "dr", "tun", "gue"]);
}

#[test]
fn a_crash_is_repaired_and_what_others_made_is_left_alone() {
    let mut stage = Stage::new("crash", &["192.168.1.1"]);
    stage.answer_tcp(80);
    let ports = "{port: 80}";
    stage.publish("pods", &(service("pods", ports) + &slice("pods", ports, &["192.168.1.1"])));
    stage.publish("web", &eric("web", VIP, "pods", &[("80-81", "80-81", "algo: rr")]));
    for words in [["-A", "-t", "10.9.9.9:1"].as_slice(), &["-a", "-t", "10.9.9.9:1", "-r", "10.8.8.8:1", "-m"]] {
        assert!(stage.router.command("ipvsadm").args(words).status().unwrap().success());
    }
    let foreign = "TCP  10.9.9.9:1 wlc\n  -> 10.8.8.8:1                   Masq    1      0          0\n";
    stage.start("");
    stage.wait_for_vip(VIP, true);
    stage.daemon.take().unwrap().kill();
    // While nobody looks, one port is given up, and somebody clears a service.
    stage.publish("web", &eric("web", VIP, "pods", &[("80", "80", "algo: rr")]));
    let ours = format!("TCP  {VIP}:80 rr\n  -> 192.168.1.1:80               Masq    1      0          0\n");
    stage.start("");
    wait_until("only what is wanted, and what is foreign", PATIENCE, || {
        let table = stage.table();
        table == format!("{foreign}{ours}") || table == format!("{ours}{foreign}")
    });
    assert!(
        Command::new("ip")
            .args(["netns", "exec", stage.router.name(), "ipvsadm", "-D", "-t", &format!("{VIP}:80")])
            .status()
            .unwrap()
            .success()
    );
    // No notification tells of it; the next look at the whole table does.
    wait_until("it is made again", PATIENCE, || stage.table().contains(&ours));
    assert!(stage.connect(VIP, 80).is_ok());
    stage.drain_beside(foreign);
}

/// Without a record, only what the intent asks for to the letter is taken for ours.
#[test]
fn a_service_of_which_the_record_is_lost_is_told_and_kept() {
    let mut stage = Stage::new("unclaimed", &["192.168.1.1"]);
    stage.answer_tcp(80);
    let web = |ports| eric("web", VIP, "pods", &[(ports, ports, "algo: rr")]);
    stage.publish("pods", &(service("pods", "{port: 80}") + &slice("pods", "{port: 80}", &["192.168.1.1"])));
    stage.publish("web", &web("80-81"));
    stage.start("");
    stage.wait_for_vip(VIP, true);
    let kept = format!("TCP  {VIP}:81 rr\n  -> 192.168.1.1:81               Masq    1      0          0\n");
    wait_until("both are there", PATIENCE, || stage.table().contains(&kept));
    stage.daemon.take().unwrap().kill();
    stage.router.output(&["nft", "flush", "ruleset"]);
    stage.publish("web", &web("80"));
    stage.start("");
    let told = format!("IPVS: TCP {VIP}:81 looks like ours and nothing proves it: kept");
    wait_until("it is told", PATIENCE, || stage.said_aside("vips").contains(&told));
    wait_until("the other one serves again", PATIENCE, || stage.connect(VIP, 80).is_ok());
    assert!(stage.table().contains(&kept), "{}", stage.table());
    assert!(stage.connect(VIP, 81).is_err());
    stage.drain_beside(&kept);
}

#[test]
fn a_port_that_somebody_else_has_is_told_and_left_alone() {
    let mut stage = Stage::new("taken", &["192.168.1.1"]);
    stage.answer_tcp(80);
    let ports = "{port: 80}";
    stage.publish("pods", &(service("pods", ports) + &slice("pods", ports, &["192.168.1.1"])));
    stage.publish("web", &eric("web", VIP, "pods", &[("80", "80", "algo: rr")]));
    let foreign = format!("{VIP}:80");
    for words in [["-A", "-t", &foreign].as_slice(), &["-a", "-t", &foreign, "-r", "10.8.8.8:1", "-m"]] {
        assert!(stage.router.command("ipvsadm").args(words).status().unwrap().success());
    }
    let theirs = stage.table();
    stage.start("");
    wait_until("it says whose the port is", PATIENCE, || {
        stage.said().contains("TCP 10.232.35.199:80 is a virtual service of somebody else, and is left alone")
    });
    assert_eq!(stage.table(), theirs);
    assert!(!stage.router.ip("-o addr show dev lo").contains(VIP));
    assert!(stage.router.command("ipvsadm").args(["-D", "-t", &foreign]).status().unwrap().success());
    stage.wait_for_vip(VIP, true);
    assert!(stage.connect(VIP, 80).is_ok());
    stage.drain();
}

/// What nft balances is recorded as what IPVS balances is: that proves nothing about a service of IPVS of the same name.
#[test]
fn what_somebody_has_in_ipvs_stays_where_nft_balances() {
    let mut stage = Stage::with("nftables", "theirs", &["192.168.1.1"]);
    stage.answer_tcp(80);
    let ports = "{port: 80}";
    stage.publish("pods", &(service("pods", ports) + &slice("pods", ports, &["192.168.1.1"])));
    let web = |name: &str, vip: &str| eric(name, vip, "pods", &[("80", "80", "algo: rr")]);
    stage.publish("web", &web("web", VIP));
    let foreign = format!("{VIP}:80");
    for words in [["-A", "-t", &foreign].as_slice(), &["-a", "-t", &foreign, "-r", "10.8.8.8:1", "-m"]] {
        assert!(stage.router.command("ipvsadm").args(words).status().unwrap().success());
    }
    let theirs = stage.table();
    for later in ["10.232.35.200", "10.232.35.201"] {
        stage.start(", drainTimeout: 1s");
        stage.wait_for_vip(VIP, true);
        wait_until("the VIP is served", PATIENCE, || stage.connect(VIP, 80).is_ok());
        // Time for what would come after that.
        stage.publish(later, &web(&later.replace('.', "-"), later));
        wait_until("a later VIP is served", PATIENCE, || stage.connect(later, 80).is_ok());
        assert_eq!(stage.table(), theirs);
        stage.daemon.take().unwrap().kill();
    }
    stage.start(", drainTimeout: 1s");
    stage.wait_for_vip(VIP, true);
    stage.change_dataplane("ipvs", "");
    wait_until("it says whose the port is", PATIENCE, || {
        stage.said().contains("TCP 10.232.35.199:80 is a virtual service of somebody else, and is left alone")
    });
    assert!(stage.table().contains(&theirs), "{}", stage.table());
    stage.drain_beside(&theirs);
    assert_eq!(stage.table(), theirs);
}

/// What IPVS has of ours while nft balances already is ours after a crash, drains on and goes, and what others have beside it stays.
#[test]
fn a_crash_amid_a_change_to_nft_leaves_nothing_in_ipvs() {
    let mut stage = Stage::new("amid", &["192.168.1.1"]);
    stage.answer_tcp(80);
    stage.answer_tcp(20_500);
    let ports = "{port: 80}";
    stage.publish("pods", &(service("pods", ports) + &slice("pods", ports, &["192.168.1.1"])));
    let mappings = [("80", "80", "algo: mh"), ("20000-20999", "20000-20999", "algo: rr"), ("81", "80", "algo: rr")];
    stage.publish("web", &eric("web", VIP, "pods", &mappings[..2]));
    let foreign = format!("{VIP}:81");
    for words in [["-A", "-t", &foreign].as_slice(), &["-a", "-t", &foreign, "-r", "10.8.8.8:1", "-m"]] {
        assert!(stage.router.command("ipvsadm").args(words).status().unwrap().success());
    }
    let theirs = stage.table();
    let times = ", drainTimeout: 8s";
    stage.start(times);
    stage.wait_for_vip(VIP, true);
    let mut connections: Vec<Connection> = [80, 20_500].map(|port| stage.connect(VIP, port).unwrap()).into();
    stage.change_dataplane("nftables", times);
    wait_until("nft balances", PATIENCE, || stage.router.output(&["nft", "list", "tables"]).contains("table ip vipherald"));
    // From now on an entry of the record has the name of what others have in IPVS.
    stage.publish("web", &eric("web", VIP, "pods", &mappings));
    wait_until("the new port is served", PATIENCE, || stage.connect(VIP, 81).is_ok());
    stage.daemon.take().unwrap().kill();
    let both = stage.table();
    assert!(both.contains("TCP  10.232.35.199:80 mh") && both.contains("FWM  64 rr"), "{both}");
    stage.dataplane = "nftables";
    stage.start(times);
    wait_until("the new port is served again", PATIENCE, || stage.connect(VIP, 81).is_ok());
    assert!(connections.iter_mut().all(Connection::works));
    wait_until("IPVS has given up what was ours", PATIENCE, || stage.table() == theirs);
    assert!([80, 81, 20_500].iter().all(|port| stage.connect(VIP, *port).is_ok()));
    let names = |set: &str| stage.router.output(&["nft", "list", "set", "inet", "vipherald", set]);
    wait_until("their names go", PATIENCE, || !(names("in-ipvs4") + &names("ranges-in-ipvs4")).contains("elements"));
    stage.drain();
    assert_eq!(stage.table(), theirs);
}

/// The other way: what IPVS has got while nft still has something is ours after a crash.
#[test]
fn a_crash_amid_a_change_to_ipvs_ends_in_ipvs() {
    let mut stage = Stage::with("nftables", "back", &["192.168.1.1"]);
    stage.answer_tcp(80);
    stage.answer_tcp(20_500);
    let ports = "{port: 80}";
    stage.publish("pods", &(service("pods", ports) + &slice("pods", ports, &["192.168.1.1"])));
    let mappings = [("80-81", "80-81", "algo: mh"), ("20000-20999", "20000-20999", "algo: rr")];
    stage.answer_tcp(81);
    stage.publish("web", &eric("web", VIP, "pods", &mappings));
    stage.start("");
    stage.wait_for_vip(VIP, true);
    // This port cannot be had by IPVS, so that nft keeps what it has.
    assert!(stage.router.command("ipvsadm").args(["-A", "-t", &format!("{VIP}:81"), "-s", "wlc"]).status().unwrap().success());
    stage.change_dataplane("ipvs", "");
    stage.dataplane = "ipvs";
    let ours = ["TCP  10.232.35.199:80 mh (mh-fallback,mh-port)\n  -> 192.168.1.1:80 ", "FWM  64 rr\n  -> 192.168.1.1:0 "];
    let has_ours = |stage: &Stage| ours.iter().all(|service| stage.table().contains(service));
    wait_until("IPVS has ours", PATIENCE, || has_ours(&stage));
    let has_tables = |stage: &Stage| stage.router.output(&["nft", "list", "tables"]).contains("table ip vipherald");
    assert!(has_tables(&stage));
    stage.daemon.take().unwrap().kill();
    stage.start("");
    wait_until("it says whose the port is", PATIENCE, || {
        stage.said().contains("TCP 10.232.35.199:81 is a virtual service of somebody else, and is left alone")
    });
    let said = stage.said();
    assert!(!said.contains("199:80 is a virtual service of somebody else"), "{said}");
    assert!(stage.router.command("ipvsadm").args(["-D", "-t", &format!("{VIP}:81")]).status().unwrap().success());
    wait_until("nft has given up", PATIENCE, || !has_tables(&stage));
    assert!(has_ours(&stage), "{}", stage.table());
    wait_until("all is served", PATIENCE, || [80, 81, 20_500].iter().all(|port| stage.connect(VIP, *port).is_ok()));
    stage.drain();
}

#[test]
fn a_port_that_somebody_takes_between_our_look_and_our_change_is_left_alone() {
    let mut stage = Stage::new("race", &["192.168.1.1"]);
    stage.answer_tcp(80);
    let ports = "{port: 80}";
    let web = |ports| eric("web", VIP, "pods", &[(ports, ports, "algo: rr")]);
    stage.publish("pods", &(service("pods", ports) + &slice("pods", ports, &["192.168.1.1"])));
    stage.publish("web", &web("80"));
    stage.start("");
    stage.wait_for_vip(VIP, true);
    // IPVS tells nobody of it, so that it is not known when the object asks for these ports, a single one and a range by the first mark.
    for words in [["-A", "-t", "10.232.35.199:81", "-s", "wlc"].as_slice(), &["-A", "-f", "64", "-s", "wlc"]] {
        assert!(stage.router.command("ipvsadm").args(words).status().unwrap().success());
    }
    stage.publish("web", &eric("web", VIP, "pods", &[("80-81", "80-81", "algo: rr"), ("20000-20999", "20000-20999", "algo: rr")]));
    let range = "FWM  65 rr\n  -> 192.168.1.1:0                Masq    1      0          0\n";
    wait_until("the range has another mark", PATIENCE, || stage.table().contains(range));
    wait_until("it says whose the port is", PATIENCE, || {
        stage.said().contains("TCP 10.232.35.199:81 is a virtual service of somebody else, and is left alone")
    });
    let table = stage.table();
    assert!(table.contains("TCP  10.232.35.199:80 rr\n  -> 192.168.1.1:80 "), "{table}");
    for theirs in ["TCP  10.232.35.199:81 wlc\n", "FWM  64 wlc\n"] {
        let after = table.split_once(theirs).unwrap_or_else(|| panic!("{theirs} is gone: {table}")).1;
        assert!(!after.starts_with("  ->"), "somebody got a real server of ours: {table}");
    }
    assert!(stage.connect(VIP, 80).is_ok());
    stage.drain_beside("TCP  10.232.35.199:81 wlc\nFWM  64 wlc\n");
}

/// IPVS, nft, IPVS, and what the kernel has: a VIP stays placed, connections go on, new ones are answered all the time.
#[test]
fn the_dataplane_changes_under_open_connections() {
    let mut stage = Stage::new("switch", &["192.168.1.1", "192.168.1.2"]);
    stage.answer_tcp(80);
    stage.answer_tcp(20_500);
    let ports = "{port: 80}";
    stage.publish("pods", &(service("pods", ports) + &slice("pods", ports, &["192.168.1.1", "192.168.1.2"])));
    stage.publish("web", &eric("web", VIP, "pods", &[("80", "80", "algo: mh"), ("20000-20999", "20000-20999", "algo: rr")]));
    stage.start(", drainTimeout: 5s");
    stage.wait_for_vip(VIP, true);
    let has_table = |stage: &Stage| stage.router.output(&["nft", "list", "tables"]).contains("table ip vipherald");
    let mut connections: Vec<Connection> = Vec::new();
    for kind in ["nftables", "ipvs", "auto", "nftables"] {
        connections.extend((0..10).map(|number| stage.connect(VIP, if number % 2 == 0 { 80 } else { 20_500 }).unwrap()));
        stage.change_dataplane(kind, ", drainTimeout: 5s");
        let by_nft = kind == "nftables";
        let answered =
            |stage: &Stage, port| stage.connect(VIP, port).unwrap_or_else(|error| panic!("{kind}: {port} is not answered: {error}"));
        wait_until(kind, PATIENCE, || {
            drop(answered(&stage, 80));
            has_table(&stage) == by_nft && (by_nft || !stage.table().is_empty())
        });
        assert!(stage.router.ip("-o addr show dev lo").contains(&format!(" {VIP}/")), "{kind}");
        drop(answered(&stage, 20_500));
        assert!(connections.iter_mut().all(Connection::works), "{kind}");
        if by_nft {
            // What came by IPVS has had its time.
            wait_until("IPVS has given up", PATIENCE, || stage.table().is_empty());
            drop(answered(&stage, 80));
            connections.clear();
        }
    }
    stage.drain();
}

/// IPVS does not see the packets of a connection that nft has translated: what becomes of it when its real server goes is for the connection table to know.
#[test]
fn a_udp_client_of_nft_gets_another_server_when_its_own_leaves_ipvs() {
    let mut stage = Stage::new("former", &["192.168.1.1", "192.168.1.2"]);
    ["192.168.1.1", "192.168.1.2"].iter().for_each(|server| stage.answer_udp(server, 162));
    let ports = "{port: 162, protocol: UDP}";
    let publish = |stage: &Stage, server: &str| stage.publish("pods", &(service("traps", ports) + &slice("traps", ports, &[server])));
    publish(&stage, "192.168.1.1");
    stage.publish("traps", &eric("traps", VIP, "traps", &[("162", "162", "protocol: udp, algo: rr")]));
    stage.start_with("type: nftables");
    stage.wait_for_vip(VIP, true);
    let client = stage.udp_client(Duration::from_millis(100));
    let is_answered_by = |server: &str| client.ask(162).is_some_and(|answer| answer == format!("{server}:162"));
    wait_until("nft has it", PATIENCE, || is_answered_by("192.168.1.1"));
    stage.change_dataplane("ipvs", "");
    wait_until("IPVS balances", PATIENCE, || {
        let has_table = stage.router.output(&["nft", "list", "tables"]).contains("table ip vipherald");
        is_answered_by("192.168.1.1") && stage.table().contains("192.168.1.1:162") && !has_table
    });
    let untouched = stage.table();
    assert!(untouched.contains(" 0          0"), "IPVS knows nothing of it: {untouched}");
    publish(&stage, "192.168.1.2");
    let since = Instant::now();
    wait_until("the other one answers", PATIENCE, || is_answered_by("192.168.1.2"));
    assert!(since.elapsed() < Duration::from_secs(2), "{:?}", since.elapsed());
    stage.drain();
}

/// The real servers have the VIP themselves, and answer the client directly.
#[test]
fn direct_routing_and_tunnels_keep_the_address_of_the_client() {
    for mode in ["dr", "tun"] {
        let mut stage = Stage::new(mode, &["192.168.1.1"]);
        stage.answer_tcp(80);
        stage.servers.ip(&format!("addr add {VIP}/32 dev lo"));
        stage.servers.ip("route add default via 192.168.0.1");
        if mode == "tun" {
            stage.servers.ip("link set tunl0 up");
            stage.servers.ip("addr add 192.168.1.1/32 dev tunl0");
        }
        for device in ["all", "eth0", "lo"] {
            stage.servers.sysctl(&format!("net/ipv4/conf/{device}/arp_ignore"), "1");
            stage.servers.sysctl(&format!("net/ipv4/conf/{device}/rp_filter"), "0");
            stage.servers.sysctl(&format!("net/ipv4/conf/{device}/arp_announce"), "2");
        }
        if mode == "tun" {
            stage.servers.sysctl("net/ipv4/conf/tunl0/rp_filter", "0");
        }
        // The answers pass the router, on which the VIP is a local address.
        for device in ["all", "back", "front"] {
            stage.router.sysctl(&format!("net/ipv4/conf/{device}/accept_local"), "1");
            stage.router.sysctl(&format!("net/ipv4/conf/{device}/rp_filter"), "0");
        }
        let ports = "{port: 80}";
        stage.publish("pods", &(service("pods", ports) + &slice("pods", ports, &["192.168.1.1"])));
        let on = |name: &str, vip: &str, port: &str| eric(name, vip, "pods", &[(port, "80", &format!("algo: mh, mode: {mode}"))]);
        stage.publish("web", &on("web", VIP, "80"));
        stage.publish("other", &on("other", "10.232.35.200", "8080"));
        stage.start("");
        stage.wait_for_vip(VIP, true);
        let is_served = || {
            let connection = stage.connect(VIP, 80).unwrap();
            assert_eq!((connection.server.as_str(), connection.client.as_str()), ("10.232.35.199:80", "10.99.0.2"), "{mode}");
        };
        is_served();
        // A packet keeps its port, so another one cannot be asked for.
        let said = stage.show("rejections -o wide");
        assert!(said.contains(&format!("with forwarding {mode} a packet keeps its port")), "{said}");
        assert!(!stage.router.ip("-o addr show dev lo").contains(" 10.232.35.200/"));
        stage.publish("web", &on("web", VIP, "8080"));
        wait_until("it is refused", PATIENCE, || stage.show("rejections -o wide").contains("its last good content stays in force instead"));
        stage.wait_for_vip(VIP, true);
        is_served();
        assert!(!stage.table().contains("8080"), "{}", stage.table());
        stage.drain();
    }
}

#[test]
fn nothing_reaches_the_router_itself_while_ports_come_and_go() {
    flood::nothing_reaches_the_router_itself_while_ports_come_and_go("ipvs");
}

#[test]
fn every_flow_has_a_server_while_a_long_range_changes() {
    flood::every_flow_has_a_server_while_a_long_range_changes("ipvs");
}

#[test]
fn every_flow_has_a_server_while_a_range_is_expanded_and_back() {
    flood::every_flow_has_a_server_while_a_range_is_expanded_and_back("ipvs");
}

#[test]
fn every_flow_has_a_server_while_ranges_are_split_and_joined() {
    flood::every_flow_has_a_server_while_ranges_are_split_and_joined("ipvs");
}

#[test]
fn a_restart_gives_a_range_without_ports_no_more_time() {
    let mut stage = Stage::new("retired", &["192.168.1.1"]);
    stage.answer_tcp(20_500);
    stage.publish("pods", &(service("pods", "{port: 22}") + &slice("pods", "{port: 22}", &["192.168.1.1"])));
    let publish = |stage: &Stage, ranges: &[&str]| {
        let mappings: Vec<_> = ranges.iter().map(|ports| (*ports, *ports, "algo: rr")).collect();
        stage.publish("web", &eric("web", VIP, "pods", &mappings));
    };
    publish(&stage, &["70-9999", "10000-20999"]);
    stage.start(", drainTimeout: 20s");
    stage.wait_for_vip(VIP, true);
    let mut connection = stage.connect(VIP, 20_500).unwrap();
    let is_left = |stage: &Stage| stage.router.output(&["nft", "list", "set", "inet", "vipherald", "retired4"]).contains(VIP);
    publish(&stage, &["70-20999"]);
    wait_until("one of both has its connections only", PATIENCE, || is_left(&stage));
    let since = Instant::now();
    wait_until("most of its time is over", PATIENCE, || since.elapsed() > Duration::from_secs(12));
    assert!(is_left(&stage) && connection.works());
    stage.daemon.take().unwrap().kill();
    let again = Instant::now();
    stage.start(", drainTimeout: 20s");
    wait_until("it is removed", PATIENCE, || !is_left(&stage));
    assert!(
        since.elapsed() > Duration::from_secs(19) && again.elapsed() < Duration::from_secs(20),
        "{:?} {:?}",
        since.elapsed(),
        again.elapsed()
    );
    stage.drain();
}
