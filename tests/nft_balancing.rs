// SPDX-License-Identifier: Apache-2.0
//! The daemon as a router on a kernel without IPVS: objects in, nft chains and answered requests out. Runs on the machine's own kernel.
#![allow(clippy::disallowed_macros, clippy::expect_used, clippy::unwrap_used, reason = "a test fails by panicking, and prints its figures")]

#[path = "common/alike.rs"]
mod alike;
#[path = "common/client.rs"]
mod client;
mod common;
#[path = "common/expanded.rs"]
mod expanded;
#[path = "common/filters.rs"]
mod filters;
#[path = "common/flood.rs"]
mod flood;
#[path = "common/stage.rs"]
mod stage;
#[path = "common/traffic.rs"]
mod traffic;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use common::{Namespace, wait_until};
use nix::sys::signal::Signal;
use stage::{Connection, PATIENCE, ROUTER, Stage, VIP, eric, service, slice};

const PORT: &str = "{port: 80}";

fn pods(endpoints: &[&str]) -> String {
    service("pods", PORT) + &slice("pods", PORT, endpoints)
}

fn web(scheduler: &str) -> String {
    eric("web", VIP, "pods", &[("80", "80", &format!("algo: {scheduler}"))])
}

/// The rules of a chain of ours, with their tables.
fn chain(router: &Namespace, chain: &str) -> String {
    let listed = router.command("nft").args(["list", "table", "ip", "vipherald"]).output().unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    let of = |word: &str| {
        listed.split_once(&format!("\t{word} {chain} {{\n")).map(|(_, rest)| rest.split("\n\t}").next().unwrap_or_default().to_owned())
    };
    format!("{}\n{}", of("map").unwrap_or_default(), of("chain").unwrap_or_default())
}

/// The real server that each of these source ports gets.
fn choices(stage: &Stage, ports: impl IntoIterator<Item = u16>) -> BTreeMap<u16, String> {
    ports.into_iter().map(|port| (port, stage.connect_from(port, VIP, 80).unwrap().server)).collect()
}

#[test]
fn each_scheduler_spreads_as_it_says_and_requests_are_answered() {
    let servers = ["192.168.1.1", "192.168.1.2", "192.168.1.3"];
    let mut stage = Stage::with("nftables", "spread", &servers);
    stage.answer_tcp(80);
    stage.publish("pods", &pods(&servers));
    for scheduler in ["rr", "wrr", "sh", "mh"] {
        stage.publish("web", &web(scheduler));
        if stage.daemon.is_none() {
            stage.start("");
            stage.wait_for_vip(VIP, true);
        }
        wait_until(scheduler, PATIENCE, || chain(&stage.router, &format!("tcp/{VIP}/80")).contains(&format!("comment \"{scheduler}")));
        let spread = stage.spread(VIP, 80, 60);
        match scheduler {
            "rr" | "wrr" => assert_eq!(spread.values().copied().collect::<Vec<_>>(), [20, 20, 20], "{scheduler}: {spread:?}"),
            "sh" => assert_eq!(spread.len(), 1, "one client has one server: {spread:?}"),
            _ => assert!(spread.len() == 3 && spread.values().all(|count| *count >= 8), "{spread:?}"),
        }
    }
    let connection = stage.connect(VIP, 80).unwrap();
    assert_eq!(connection.client, ROUTER);
    // Nobody serves them, and neither a listener of the node nor a node port is meant.
    for port in [22, 30_080, 32_767] {
        assert!(stage.connect(VIP, port).is_err(), "{port}");
    }
    drop(connection);
    stage.drain();
    stage.wait_for_vip(VIP, false);
}

#[test]
fn both_families_short_ranges_with_an_offset_and_long_ones() {
    alike::both_families_short_ranges_with_an_offset_and_long_ones("nftables");
}

#[test]
fn changes_leave_connections_alone_and_quiesced_servers_keep_theirs() {
    let servers = ["192.168.1.1", "192.168.1.2", "192.168.1.3"];
    let mut stage = Stage::with("nftables", "change", &servers);
    stage.answer_tcp(80);
    stage.publish("pods", &pods(&["192.168.1.1", "192.168.1.3"]));
    stage.publish("web", &web("mh"));
    stage.start(", drainTimeout: 2s");
    stage.wait_for_vip(VIP, true);
    let mut connections: Vec<Connection> = (0..50).map(|_| stage.connect(VIP, 80).unwrap()).collect();
    let service = format!("tcp/{VIP}/80");
    let has = |stage: &Stage, text: &str| chain(&stage.router, &service).contains(text);
    stage.publish("pods", &pods(&servers));
    wait_until("three servers", PATIENCE, || has(&stage, "ip daddr 192.168.1.2 th dport 80 drop comment \"weight 1\""));
    assert!(connections.iter_mut().all(Connection::works));
    for scheduler in ["sh", "rr", "wrr", "mh"] {
        stage.publish("web", &web(scheduler));
        wait_until(scheduler, PATIENCE, || has(&stage, &format!("comment \"{scheduler}")));
        assert!(connections.iter_mut().all(Connection::works));
    }
    stage.publish("pods", &pods(&["192.168.1.1 ready: false, serving: true, terminating: true", "192.168.1.2", "192.168.1.3"]));
    wait_until("one is quiesced", PATIENCE, || has(&stage, "ip daddr 192.168.1.1 th dport 80 drop comment \"weight 0\""));
    assert!(connections.iter_mut().all(Connection::works));
    assert!(!stage.spread(VIP, 80, 40).contains_key("192.168.1.1:80"));
    stage.publish("pods", &pods(&["192.168.1.2", "192.168.1.3"]));
    wait_until("it is removed", PATIENCE, || !has(&stage, "192.168.1.1"));
    let (mut gone, mut others): (Vec<_>, Vec<_>) =
        connections.into_iter().partition(|connection| connection.server.starts_with("192.168.1.1:"));
    assert!(!gone.is_empty() && !others.is_empty());
    assert!(others.iter_mut().all(Connection::works));
    // Reset, not left hanging, once the connection table has forgotten them.
    let since = Instant::now();
    wait_until("they are reset", PATIENCE, || !gone.iter_mut().any(Connection::works));
    assert!(since.elapsed() < Duration::from_secs(5), "{:?}", since.elapsed());
    stage.publish("pods", &pods(&[]));
    stage.wait_for_vip(VIP, false);
    wait_until("nothing is left", PATIENCE, || chain(&stage.router, &service).trim().is_empty());
    stage.drain();
}

#[test]
fn a_restart_gives_a_real_server_that_leaves_no_more_time() {
    let mut stage = Stage::with("nftables", "leaving", &["192.168.1.1", "192.168.1.2"]);
    stage.publish("pods", &pods(&["192.168.1.1", "192.168.1.2"]));
    stage.publish("web", &web("rr"));
    stage.start(", drainTimeout: 8s");
    stage.wait_for_vip(VIP, true);
    let has = |stage: &Stage, text: &str| chain(&stage.router, &format!("tcp/{VIP}/80")).contains(text);
    stage.publish("pods", &pods(&["192.168.1.2"]));
    wait_until("it is quiesced", PATIENCE, || has(&stage, "ip daddr 192.168.1.1 th dport 80 drop comment \"weight 0\""));
    let since = Instant::now();
    wait_until("most of its time is over", PATIENCE, || since.elapsed() > Duration::from_secs(6));
    stage.daemon.take().unwrap().kill();
    stage.start(", drainTimeout: 8s");
    wait_until("it is removed", PATIENCE, || !has(&stage, "192.168.1.1"));
    let took = since.elapsed();
    assert!(took > Duration::from_secs(7) && took < Duration::from_secs(13), "{took:?}");
    stage.drain();
}

#[test]
fn what_a_dead_instance_balanced_is_taken_away() {
    let servers = ["192.168.1.1", "192.168.1.2"];
    let mut stage = Stage::with("nftables", "dead", &servers);
    let before = stage.router.output(&["nft", "list", "ruleset"]);
    stage.publish("pods", &pods(&servers));
    stage.publish("web", &eric("web", VIP, "pods", &[("80", "80", "algo: mh"), ("1000-1999", "1000-1999", "algo: rr")]));
    stage.start("");
    stage.wait_for_vip(VIP, true);
    stage.daemon.take().unwrap().kill();
    let done = stage.router.output(&[env!("CARGO_BIN_EXE_vipherald"), "cleanup", "--instance", "vipherald"]);
    assert!(done.contains(&format!("remove virtual service TCP {VIP}:80")) && done.contains(&format!("remove address {VIP}")), "{done}");
    assert_eq!(stage.router.output(&["nft", "list", "ruleset"]), before, "{done}");
    stage.wait_for_vip(VIP, false);
}

#[test]
fn a_udp_client_with_one_socket_is_answered_by_the_new_server() {
    alike::a_udp_client_with_one_socket_is_answered_by_the_new_server("nftables");
}

#[test]
fn a_udp_client_that_sends_on_is_answered_once_its_vip_is_back() {
    alike::a_udp_client_that_sends_on_is_answered_once_its_vip_is_back("nftables");
}

#[test]
fn a_client_stays_with_its_real_server_until_that_gets_nothing_new() {
    alike::a_client_stays_with_its_real_server_until_that_gets_nothing_new("nftables");
}

#[test]
fn a_port_that_a_client_takes_again_is_no_old_connection() {
    alike::a_port_that_a_client_takes_again_is_no_old_connection("nftables");
}

#[test]
fn a_real_server_may_be_the_router_itself() {
    alike::a_real_server_may_be_the_router_itself("nftables", &["nat"]);
}

#[test]
fn what_somebody_breaks_by_hand_is_repaired_and_a_crash_leaves_nothing() {
    let mut stage = Stage::with("nftables", "hand", &["192.168.1.1", "192.168.1.2"]);
    stage.answer_tcp(80);
    stage.publish("pods", &pods(&["192.168.1.1", "192.168.1.2"]));
    stage.publish("web", &eric("web", VIP, "pods", &[("80-81", "80-81", "algo: mh")]));
    stage.start("");
    stage.wait_for_vip(VIP, true);
    let (one, whole) = (format!("tcp/{VIP}/80"), chain(&stage.router, &format!("tcp/{VIP}/80")));
    let element = format!("{VIP} . tcp . 80");
    for (what, script) in [
        (
            "the chain is deleted",
            format!(
                "delete element ip vipherald services {{ {element} }}\nflush chain ip vipherald {one}\ndelete chain ip vipherald {one}\n"
            ),
        ),
        ("the chain is emptied", format!("flush chain ip vipherald {one}\n")),
        ("somebody adds a rule", format!("insert rule ip vipherald {one} drop\n")),
        ("it is not dispatched any more", format!("delete element ip vipherald services {{ {element} }}\n")),
        (
            "it is dispatched to another",
            format!(
                "delete element ip vipherald services {{ {element} }}\nadd element ip vipherald services {{ {element} : goto tcp/{VIP}/81 }}\n"
            ),
        ),
        ("nothing is dispatched any more", "flush chain ip vipherald balance\n".to_owned()),
        ("the table is deleted", "delete table ip vipherald\n".to_owned()),
    ] {
        stage.router.nft(&script);
        wait_until(what, PATIENCE, || chain(&stage.router, &one) == whole && stage.connect(VIP, 80).is_ok());
    }
    stage.wait_for_vip(VIP, true);
    let unserved = || stage.router.output(&["nft", "-y", "list", "chain", "inet", "vipherald", "unserved"]);
    let before = unserved();
    stage.router.nft(
        "delete chain inet vipherald unserved\nadd chain inet vipherald unserved { type filter hook prerouting priority -10; policy drop; }\n",
    );
    wait_until("a chain is moved to another hook", PATIENCE, || unserved() == before);
    // While nobody looks, one port is given up.
    stage.daemon.take().unwrap().kill();
    stage.publish("web", &eric("web", VIP, "pods", &[("80", "80", "algo: mh")]));
    stage.start("");
    wait_until("the other is gone", PATIENCE, || chain(&stage.router, &format!("tcp/{VIP}/81")).trim().is_empty());
    assert_eq!(chain(&stage.router, &one), whole);
    assert!(stage.connect(VIP, 80).is_ok());
    stage.drain();
}

#[test]
fn a_table_of_somebody_else_that_has_our_name_is_left_alone() {
    let mut stage = Stage::with("nftables", "namesake", &["192.168.1.1"]);
    stage.answer_tcp(80);
    let with_vip = service("pods", PORT).replace("clusterIP: None", &format!("externalIPs: [{VIP}]"));
    stage.publish("pods", &(with_vip + &slice("pods", PORT, &["192.168.1.1"])));
    stage.router.nft("table ip vipherald {\n chain balance { type filter hook prerouting priority 0; ip daddr 192.0.2.1 drop comment \"theirs\";\n }\n}\n");
    let listed = || stage.router.output(&["nft", "list", "table", "ip", "vipherald"]);
    let theirs = listed();
    stage.daemon = Some(stage.start_instance("vipherald", "type: kube-proxy"));
    stage.wait_for_vip(VIP, true);
    let log = || stage.daemon.as_ref().unwrap().log();
    wait_until("all is done", PATIENCE, || log().contains("done step=advertise 10"));
    assert_eq!(listed(), theirs);
    stage.change_dataplane("nftables", "");
    wait_until("it says why it cannot balance", PATIENCE, || log().contains("a map, set or chain balance which vipherald did not make"));
    assert_eq!(listed(), theirs);
    stage.router.nft("delete chain ip vipherald balance\n");
    wait_until("it balances", PATIENCE, || stage.connect(VIP, 80).is_ok());
    stage.drain();
}

#[test]
fn what_comes_and_goes_faster_than_it_is_made_leaves_nothing() {
    let mut stage = Stage::with("nftables", "toggled", &["192.168.1.1"]);
    stage.answer_tcp(80);
    stage.publish("pods", &pods(&["192.168.1.1"]));
    stage.start("");
    for pause in [0, 5, 10, 20, 30, 50, 80, 120].into_iter().cycle().take(48) {
        stage.publish("web", &web("mh"));
        thread::sleep(Duration::from_millis(pause));
        stage.publish("web", "# nothing\n");
        thread::sleep(Duration::from_millis(pause / 2));
    }
    stage.wait_for_vip(VIP, false);
    wait_until("the virtual service is gone", PATIENCE, || chain(&stage.router, &format!("tcp/{VIP}/80")).trim().is_empty());
    assert!(stage.connect(VIP, 80).is_err());
    assert!(!stage.show("rejections").contains("nothing proves"));
    stage.publish("web", &web("mh"));
    stage.wait_for_vip(VIP, true);
    wait_until("it is served again", PATIENCE, || stage.connect(VIP, 80).is_ok());
    stage.drain();
}

#[test]
fn a_port_that_another_instance_has_is_left_to_it() {
    let mut stage = Stage::with("nftables", "taken", &["192.168.1.1"]);
    stage.answer_tcp(80);
    let socket = stage.path("state-other").join("admin.sock");
    let said = || {
        let output = Command::new(env!("CARGO_BIN_EXE_vipherald")).args(["show", "vips", "-o", "wide", "--socket"]).arg(&socket).output();
        String::from_utf8(output.unwrap().stdout).unwrap()
    };
    for instance in ["vipherald", "other"] {
        stage.publish_for(instance, "pods", &pods(&["192.168.1.1"]));
        stage.publish_for(instance, "web", &web("mh"));
    }
    stage.start("");
    stage.wait_for_vip(VIP, true);
    let other = stage.start_instance("other", "type: nftables");
    wait_until("the other says whose it is", PATIENCE, || said().contains("80 is a virtual service of somebody else"));
    assert!(!stage.said().contains("somebody else"), "{}", stage.said());
    assert!(stage.connect(VIP, 80).is_ok());
    // It has the port once the first gives it up.
    stage.publish("web", "# nothing\n");
    wait_until("the other has it", PATIENCE, || {
        let listed = stage.router.command("nft").args(["list", "table", "ip", "other"]).output().unwrap();
        String::from_utf8(listed.stdout).unwrap().contains(&format!("chain tcp/{VIP}/80"))
    });
    stage.wait_for_vip(VIP, true);
    wait_until("it is served", PATIENCE, || stage.connect(VIP, 80).is_ok());
    other.signal(Signal::SIGTERM);
    assert!(other.wait(PATIENCE).success());
    stage.drain();
}

#[test]
fn two_routers_choose_alike_whatever_their_history() {
    let servers = ["192.168.1.1", "192.168.1.2", "192.168.1.3", "192.168.1.4"];
    let [mut fresh, mut old] = ["fresh", "old"].map(|tag| Stage::with("nftables", tag, &servers));
    for stage in [&fresh, &old] {
        stage.answer_tcp(80);
        stage.publish("web", &web("mh"));
        stage.publish("pods", &pods(&servers));
    }
    old.start("");
    old.wait_for_vip(VIP, true);
    let service = format!("tcp/{VIP}/80");
    for some in [&servers[1..], &servers[..1], &servers[2..], &servers[..2], &servers[..]] {
        old.publish("pods", &pods(some));
        let there =
            |server: &&str| chain(&old.router, &service).contains(&format!("ip daddr {server} th dport 80 drop comment \"weight 1\""));
        wait_until("the change", PATIENCE, || some.iter().all(there));
    }
    fresh.start("");
    fresh.wait_for_vip(VIP, true);
    wait_until("equal chains", PATIENCE, || chain(&fresh.router, &service) == chain(&old.router, &service));
    let (of_fresh, of_old) = (choices(&fresh, 20_000..20_060), choices(&old, 20_000..20_060));
    assert_eq!(of_fresh, of_old);
    assert_eq!(of_fresh.values().collect::<BTreeSet<_>>().len(), 4);
    // One that leaves moves few of the others.
    fresh.publish("pods", &pods(&servers[1..]));
    wait_until("it takes nothing", PATIENCE, || !chain(&fresh.router, &service).contains("192.168.1.1 . 80"));
    let after = choices(&fresh, 21_000..21_060);
    let before = choices(&old, 21_000..21_060);
    let moved = before.iter().filter(|(port, server)| *server != "192.168.1.1:80" && after.get(port) != Some(server)).count();
    assert!(moved <= 8, "{moved} of 60");
    fresh.drain();
    old.drain();
}

#[test]
fn what_nft_cannot_do_is_refused_with_the_reason() {
    let mut stage = Stage::with("nftables", "refused", &["192.168.1.1"]);
    stage.publish("pods", &pods(&["192.168.1.1"]));
    stage.publish("lc", &eric("lc", VIP, "pods", &[("80", "80", "algo: lc")]));
    stage.publish("dr", &eric("dr", "10.232.35.200", "pods", &[("80", "80", "algo: mh, mode: dr")]));
    stage.publish("web", &eric("web", "10.232.35.201", "pods", &[("80", "80", "algo: rr")]));
    stage.start("");
    stage.wait_for_vip("10.232.35.201", true);
    let said = stage.show("rejections -o wide");
    for words in ["scheduler lc needs IPVS", "forwarding dr needs IPVS"] {
        assert!(said.contains(words), "{said}");
    }
    assert!(!stage.router.ip("-o addr show dev lo").contains(&format!(" {VIP}/")));
    stage.drain();
}

#[test]
fn the_dataplane_can_be_changed_while_it_runs() {
    let mut stage = Stage::with("nftables", "switch", &["192.168.1.1"]);
    stage.answer_tcp(80);
    stage.publish("pods", &pods(&["192.168.1.1"]));
    stage.publish("web", &web("mh"));
    // This kernel has no IPVS.
    stage.dataplane = "auto";
    stage.start("");
    stage.wait_for_vip(VIP, true);
    assert!(stage.connect(VIP, 80).is_ok());
    assert!(
        stage.said_aside("vips -o wide").contains("dataplane.type auto: nftables, since the kernel has no IPVS"),
        "{}",
        stage.said_aside("vips -o wide")
    );
    // Nobody balances EricIngress any more.
    stage.change_dataplane("kube-proxy", "");
    stage.wait_for_vip(VIP, false);
    wait_until("no table of services", PATIENCE, || !stage.router.output(&["nft", "list", "tables"]).contains("table ip vipherald"));
    stage.change_dataplane("nftables", "");
    stage.wait_for_vip(VIP, true);
    wait_until("it is served again", PATIENCE, || stage.connect(VIP, 80).is_ok());
    // Without IPVS, it does not take over.
    stage.change_dataplane("ipvs", "");
    stage.wait_for_vip(VIP, false);
    wait_until("it says why", PATIENCE, || stage.said().contains("load or install its modules ip_vs and ip_vs_mh"));
    stage.change_dataplane("nftables", "");
    stage.wait_for_vip(VIP, true);
    assert!(stage.connect(VIP, 80).is_ok());
    stage.drain();
}

#[test]
fn connections_that_the_router_makes_itself_are_balanced_too() {
    let mut stage = Stage::with("nftables", "local", &["192.168.1.1", "192.168.1.2"]);
    stage.answer_tcp(80);
    stage.publish("pods", &pods(&["192.168.1.1", "192.168.1.2"]));
    stage.publish("web", &web("rr"));
    stage.start("");
    stage.wait_for_vip(VIP, true);
    let connect = || TcpStream::connect_timeout(&SocketAddr::new(VIP.parse().unwrap(), 80), Duration::from_secs(2));
    wait_until("the router reaches its own VIP", PATIENCE, || stage.router.run(connect).is_ok());
    stage.drain();
}

#[test]
fn real_servers_see_the_client_where_object_or_configuration_say_so() {
    filters::real_servers_see_the_client_where_object_or_configuration_say_so("nftables");
}

#[test]
fn exceptions_from_masquerading_are_clients_or_real_servers() {
    filters::exceptions_from_masquerading_are_clients_or_real_servers("nftables");
}

#[test]
fn only_clients_that_a_service_admits_are_let_in() {
    filters::only_clients_that_a_service_admits_are_let_in("nftables");
}

#[test]
fn every_router_serves_a_local_service_whose_real_servers_see_the_client() {
    filters::every_router_serves_a_local_service_whose_real_servers_see_the_client("nftables");
}

#[test]
fn segments_of_translated_connections_are_clamped() {
    filters::segments_of_translated_connections_are_clamped("nftables");
}

#[test]
fn ports_that_nobody_serves_are_silent_or_refused() {
    filters::ports_that_nobody_serves_are_silent_or_refused("nftables");
}

#[test]
fn echo_is_answered_up_to_a_bound() {
    filters::echo_is_answered_up_to_a_bound("nftables");
}

#[test]
fn marks_of_others_are_in_nobodys_way_and_ours_do_not_leave() {
    filters::marks_of_others_are_in_nobodys_way_and_ours_do_not_leave("nftables");
}

#[test]
fn large_answers_pass_a_link_that_is_narrower_than_others() {
    filters::large_answers_pass_a_link_that_is_narrower_than_others("nftables");
}

#[test]
fn no_error_while_schedulers_back_ends_and_ports_change() {
    traffic::no_error_while_schedulers_back_ends_and_ports_change("nftables", &["rr", "wrr", "sh", "mh"]);
}

#[test]
fn only_connections_of_removed_back_ends_end() {
    traffic::only_connections_of_removed_back_ends_end("nftables");
}

#[test]
fn no_error_while_kube_proxy_takes_over_and_gives_back() {
    traffic::no_error_while_kube_proxy_takes_over_and_gives_back("nftables");
}

#[test]
fn every_flow_has_a_server_while_kube_proxy_takes_over_and_gives_back() {
    flood::every_flow_has_a_server_while_kube_proxy_takes_over_and_gives_back("nftables");
}

#[test]
fn nothing_reaches_the_router_itself_while_ports_come_and_go() {
    flood::nothing_reaches_the_router_itself_while_ports_come_and_go("nftables");
}

#[test]
fn no_error_while_a_long_range_of_ports_changes() {
    traffic::no_error_while_a_long_range_of_ports_changes("nftables");
}

#[test]
fn every_flow_has_a_server_while_a_long_range_changes() {
    flood::every_flow_has_a_server_while_a_long_range_changes("nftables");
}

#[test]
fn no_error_where_a_hand_over_ends_halfway() {
    traffic::no_error_where_a_hand_over_ends_halfway("nftables");
}

#[test]
fn no_error_while_a_range_is_expanded_and_back() {
    traffic::no_error_while_a_range_is_expanded_and_back("nftables");
}

#[test]
fn every_flow_has_a_server_while_a_range_is_expanded_and_back() {
    flood::every_flow_has_a_server_while_a_range_is_expanded_and_back("nftables");
}

#[test]
fn no_error_while_ranges_are_split_and_joined() {
    traffic::no_error_while_ranges_are_split_and_joined("nftables");
}

#[test]
fn every_flow_has_a_server_while_ranges_are_split_and_joined() {
    flood::every_flow_has_a_server_while_ranges_are_split_and_joined("nftables");
}

#[test]
fn connections_go_on_where_single_ports_with_an_offset_become_a_range() {
    expanded::connections_go_on_where_single_ports_with_an_offset_become_a_range("nftables");
}

#[test]
fn a_client_keeps_its_real_server_while_a_range_is_expanded_and_back() {
    expanded::a_client_keeps_its_real_server_while_a_range_is_expanded_and_back("nftables");
}

#[test]
fn a_udp_client_is_answered_where_the_daemon_dies_once_its_server_is_replaced() {
    traffic::halfway::a_udp_client_is_answered_where_the_daemon_dies_once_its_server_is_replaced("nftables");
}
