// SPDX-License-Identifier: Apache-2.0
//! Traffic while intent changes: a client with 50 long connections, each with a message every 100 ms, and 200 short ones a second.
//!
//! Input: the dataplane. Invariants: every error that the client sees is counted and told; the only long connections that may end are those to a real
//! server that was removed, and these only when its time to drain is over; short connections, in flight or new, have no error at all. Whoever calls it
//! has a kernel with what that dataplane needs.
#![allow(dead_code, reason = "each test file uses a part of it")]

pub(crate) mod halfway;
mod ranges;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Instant;

pub(crate) use self::halfway::no_error_where_a_hand_over_ends_halfway;
pub(crate) use self::ranges::no_error_while_ranges_are_split_and_joined;
use super::client::{LONG, PATIENCE, Traffic, answer, bounded, short};
use super::common::wait_until;
use super::stage::{Stage, VIP, eric, service, slice};

/// A single port, and one out of a long range.
const PORTS: [u16; 2] = [80, 20_500];

impl Traffic {
    /// To both ports of the VIP.
    fn start(client: &crate::common::Namespace) -> Self {
        Self::to(client, &PORTS.map(vip_port))
    }
}

fn vip_port(port: u16) -> SocketAddr {
    SocketAddr::new(VIP.parse().unwrap(), port)
}

const SERVERS: [&str; 4] = ["192.168.1.1", "192.168.1.2", "192.168.1.3", "192.168.1.4"];

/// What the object and its Service are changed to, one after the other, under one client's traffic.
struct Scene {
    stage: Stage,
    schedulers: &'static [&'static str],
}

impl Scene {
    fn new(dataplane: &'static str, tag: &str, schedulers: &'static [&'static str], drain_timeout: &str) -> Self {
        let mut stage = Stage::with(dataplane, tag, &SERVERS);
        answer(&stage.servers, &[80, 81, 20_500]);
        Self::publish_pods(&stage, &[SERVERS[0], SERVERS[2], SERVERS[3]]);
        Self::publish_web(&stage, "mh", &[]);
        stage.start(&format!(", drainTimeout: {drain_timeout}"));
        stage.wait_for_vip(VIP, true);
        Self { stage, schedulers }
    }

    fn publish_pods(stage: &Stage, endpoints: &[&str]) {
        let ports = "{port: 80}";
        stage.publish("pods", &(service("pods", ports) + &slice("pods", ports, endpoints)));
    }

    fn publish_web(stage: &Stage, scheduler: &str, more: &[&str]) {
        let words = format!("algo: {scheduler}");
        let ports = ["80", "20000-20999"].into_iter().chain(more.iter().copied());
        let mappings: Vec<_> = ports.map(|ports| (ports, ports, words.as_str())).collect();
        stage.publish("web", &eric("web", VIP, "pods", &mappings));
    }

    fn change_drain_timeout(&self, time: &str) {
        self.stage.change_dataplane(self.stage.dataplane, &format!(", drainTimeout: {time}"));
    }

    /// Waits until both virtual services have this scheduler and these real servers, of those weights, in any order.
    fn wait_for(&self, scheduler: &str, servers: &[(&str, u8)]) {
        wait_until(&format!("{scheduler} {servers:?}"), PATIENCE, || {
            let services = if self.stage.dataplane == "ipvs" { self.in_ipvs() } else { self.in_nft() };
            let mut servers: Vec<(String, u8)> = servers.iter().map(|(server, weight)| ((*server).to_owned(), *weight)).collect();
            servers.sort();
            services.len() == PORTS.len() && services.iter().all(|found| *found == (scheduler.to_owned(), servers.clone()))
        });
    }

    fn in_ipvs(&self) -> Vec<(String, Vec<(String, u8)>)> {
        let mut services: Vec<(String, Vec<(String, u8)>)> = Vec::new();
        let table = self.stage.table();
        let lines = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        for words in lines.skip_while(|words| words.is_empty()) {
            match (words.as_slice(), services.last_mut()) {
                (["->", server, _, weight, ..], Some((_, servers))) => {
                    servers.push((server.split(':').next().unwrap().to_owned(), weight.parse().unwrap()));
                }
                (["TCP" | "FWM", _, scheduler, ..], _) => services.push(((*scheduler).to_owned(), Vec::new())),
                other => panic!("{other:?} in {table}"),
            }
        }
        services.iter_mut().for_each(|(_, servers)| servers.sort());
        services
    }

    fn in_nft(&self) -> Vec<(String, Vec<(String, u8)>)> {
        let listed = self.stage.router.command("nft").args(["list", "table", "ip", "vipherald"]).output().unwrap();
        let listed = String::from_utf8(listed.stdout).unwrap();
        let chains = listed.split("\tchain tcp/").skip(1).map(|chain| chain.split("\n\t}").next().unwrap_or_default());
        let after =
            |line: &str, word: &str| line.split_once(word).map(|(_, rest)| rest.split(['"', ' ']).next().unwrap_or_default().to_owned());
        let service = |chain: &str| {
            let scheduler = chain.lines().find_map(|line| after(line, "comment \"")).unwrap_or_default();
            let server = |line: &str| Some((after(line, "ip daddr ")?, after(line, "comment \"weight ")?.parse().ok()?));
            let mut servers: Vec<(String, u8)> = chain.lines().filter_map(server).collect();
            servers.sort();
            (scheduler, servers)
        };
        chains.map(service).collect()
    }
}

/// The scheduler is changed, a back end is added, terminates and is removed, another one terminates under its long connections, and a port is added. What
/// only terminates has no time after which it is removed.
pub(crate) fn no_error_while_schedulers_back_ends_and_ports_change(dataplane: &'static str, schedulers: &'static [&'static str]) {
    let mut scene = Scene::new(dataplane, "churn", schedulers, "1s");
    let [one, two, three, four] = SERVERS;
    scene.wait_for("mh", &[(one, 1), (three, 1), (four, 1)]);
    let traffic = Traffic::start(&scene.stage.client);
    traffic.goes_on();
    for scheduler in scene.schedulers {
        Scene::publish_web(&scene.stage, scheduler, &[]);
        scene.wait_for(scheduler, &[(one, 1), (three, 1), (four, 1)]);
        traffic.goes_on();
        // In the middle: where their order matters, those in front of it are put there again.
        Scene::publish_pods(&scene.stage, &SERVERS);
        scene.wait_for(scheduler, &SERVERS.map(|server| (server, 1)));
        traffic.goes_on();
        let terminating = format!("{two} ready: false, serving: true, terminating: true");
        Scene::publish_pods(&scene.stage, &[one, &terminating, three, four]);
        scene.wait_for(scheduler, &[(one, 1), (two, 0), (three, 1), (four, 1)]);
        traffic.goes_on();
        assert!(!traffic.tally().answered_by.contains(two), "{scheduler}: {two} gets new connections while it terminates");
        Scene::publish_pods(&scene.stage, &[one, three, four]);
        scene.wait_for(scheduler, &[(one, 1), (three, 1), (four, 1)]);
        traffic.goes_on();
    }
    let last = scene.schedulers.last().unwrap();
    // Long connections to a back end that terminates go on.
    let terminating = format!("{one} ready: false, serving: true, terminating: true");
    Scene::publish_pods(&scene.stage, &[&terminating, three, four]);
    scene.wait_for(last, &[(one, 0), (three, 1), (four, 1)]);
    traffic.goes_on();
    assert!(traffic.tally().servers.values().any(|server| server == one), "no long connection is to {one}");
    assert!(!traffic.tally().answered_by.contains(one), "{one} gets new connections while it terminates");
    Scene::publish_web(&scene.stage, last, &["81"]);
    let since = Instant::now();
    while let Err(error) = scene.stage.client.enter(async || bounded(short(vip_port(81))).await) {
        assert!(since.elapsed() < PATIENCE, "the new port is not served: {error}");
    }
    traffic.goes_on();
    traffic.finish(dataplane, &[]);
    scene.stage.drain();
}

/// Back ends are removed, one that has terminated and one without a word, while both still answer: what they have goes on while their time to drain lasts.
/// When it is over, their own long connections end, and nothing else does.
pub(crate) fn only_connections_of_removed_back_ends_end(dataplane: &'static str) {
    let mut scene = Scene::new(dataplane, "removed", &[], "600s");
    let [one, _, three, four] = SERVERS;
    scene.wait_for("mh", &[(one, 1), (three, 1), (four, 1)]);
    let traffic = Traffic::start(&scene.stage.client);
    let of = |server: &str| traffic.tally().servers.values().filter(|other| *other == server).count();
    assert!([one, three, four].iter().all(|server| of(server) > 0), "{:?}", traffic.tally().servers);
    let terminating = format!("{one} ready: false, serving: true, terminating: true");
    Scene::publish_pods(&scene.stage, &[&terminating, three, four]);
    scene.wait_for("mh", &[(one, 0), (three, 1), (four, 1)]);
    traffic.goes_on();
    Scene::publish_pods(&scene.stage, &[four]);
    scene.wait_for("mh", &[(one, 0), (three, 0), (four, 1)]);
    traffic.goes_on();
    assert_eq!(traffic.tally().answered_by, BTreeSet::from([four.to_owned()]));
    assert!(traffic.tally().ended.is_empty(), "{:?}", traffic.tally().ended);
    scene.change_drain_timeout("1s");
    scene.wait_for("mh", &[(four, 1)]);
    wait_until("connections to the removed ones have ended", PATIENCE, || of(one) + of(three) == 0);
    traffic.goes_on();
    let going_on = traffic.tally().servers.len();
    let ended = traffic.tally().ended.len();
    assert_eq!(going_on + ended, LONG);
    traffic.finish(dataplane, &[one, three]);
    scene.stage.drain();
}

/// A long range of ports grows, shrinks and moves, at either end, while its VIP has nothing else: nothing happens to the ports that it keeps, and what leaves
/// it is closed.
pub(crate) fn no_error_while_a_long_range_of_ports_changes(dataplane: &'static str) {
    let mut stage = Stage::with(dataplane, "range", &SERVERS);
    answer(&stage.servers, &PORTS);
    let publish = |stage: &Stage, ports: &str| stage.publish("web", &eric("web", VIP, "pods", &[(ports, ports, "algo: rr")]));
    Scene::publish_pods(&stage, &SERVERS);
    publish(&stage, "70-20999");
    stage.start(", drainTimeout: 600s");
    stage.wait_for_vip(VIP, true);
    let traffic = Traffic::start(&stage.client);
    traffic.goes_on();
    let before = advertised(&stage);
    for ports in ["70-21999", "80-30000", "1-20500", "75-20700", "70-20999"] {
        publish(&stage, ports);
        let record = || stage.router.output(&["nft", "list", "set", "inet", "vipherald", "ranges4"]);
        wait_until(ports, PATIENCE, || record().contains(&format!("{VIP} . tcp . {ports} }}")));
        traffic.goes_on();
    }
    assert_eq!(advertised(&stage), before, "the VIP was withdrawn");
    let closed = |set: &str| stage.router.output(&["nft", "list", "set", "inet", "vipherald", set]).contains(VIP);
    wait_until("nothing is closed", PATIENCE, || !closed("closed4") && !closed("closed-ranges4"));
    traffic.finish(dataplane, &[]);
    stage.drain();
}

/// A range of ports loses one, so that each of the others has its own virtual service, and gets it back, again and again: connections to those that it has all the
/// while go on, and so do those that it had before.
pub(crate) fn no_error_while_a_range_is_expanded_and_back(dataplane: &'static str) {
    let mut stage = Stage::with(dataplane, "expanded", &SERVERS);
    answer(&stage.servers, &PORTS);
    let publish = |stage: &Stage, last: u16| {
        let (web, range) = (("80", "80", "algo: rr"), format!("20500-{last}"));
        stage.publish("web", &eric("web", VIP, "pods", &[web, (&range, &range, "algo: rr")]));
    };
    Scene::publish_pods(&stage, &SERVERS);
    publish(&stage, 20_564);
    stage.start(", drainTimeout: 600s");
    stage.wait_for_vip(VIP, true);
    let traffic = Traffic::start(&stage.client);
    traffic.goes_on();
    let before = advertised(&stage);
    let has = |stage: &Stage, set: &str, ports: &str| {
        let listed = stage.router.output(&["nft", "list", "set", "inet", "vipherald", set]);
        listed.contains(&format!("{VIP} . tcp . {ports},")) || listed.contains(&format!("{VIP} . tcp . {ports} }}"))
    };
    let takes = |stage: &Stage, port: &str| has(stage, "services4", port) && !has(stage, "closed4", port);
    for _ in 0..4 {
        publish(&stage, 20_563);
        wait_until("each port has its own", PATIENCE, || takes(&stage, "20500") && takes(&stage, "20563") && !takes(&stage, "20564"));
        traffic.goes_on();
        publish(&stage, 20_564);
        let closed = |stage: &Stage| has(stage, "closed4", "20564") || takes(stage, "20500") || takes(stage, "20563");
        wait_until("they are one again", PATIENCE, || has(&stage, "ranges4", "20500-20564") && !closed(&stage));
        traffic.goes_on();
    }
    assert_eq!(advertised(&stage), before, "the VIP was withdrawn");
    traffic.finish(&format!("{dataplane}: a range and its single ports"), &[]);
    stage.drain();
}

/// kube-proxy takes the connections of a Service and gives them back, with its own real server, while its rules are there all the time. Then the daemon is
/// killed at each step of a change.
pub(crate) fn no_error_while_kube_proxy_takes_over_and_gives_back(dataplane: &'static str) {
    let [ours, theirs] = OF_BOTH;
    let mut stage = beside_kube_proxy(dataplane, "proxy");
    stage.start(", drainTimeout: 600s");
    stage.wait_for_vip(VIP, true);
    let traffic = Traffic::start(&stage.client);
    let wait_for = |servers: &[&str]| traffic.goes_to(servers);
    wait_for(ours);
    let before = advertised(&stage);
    for _ in 0..2 {
        stage.change_dataplane("kube-proxy", ", drainTimeout: 600s");
        wait_for(theirs);
        stage.change_dataplane(dataplane, ", drainTimeout: 600s");
        wait_for(ours);
    }
    assert_eq!(advertised(&stage), before, "the VIP was withdrawn");
    traffic.finish(&format!("{dataplane} and kube-proxy"), &[]);
    for step in ["leave new connections", "take out of the record", "remove the rules"] {
        stage.change_dataplane("kube-proxy", ", drainTimeout: 100ms");
        let done = format!("done step={step}");
        wait_until(&done, PATIENCE, || stage.daemon.as_ref().unwrap().log().contains(&done));
        stage.daemon.take().unwrap().kill();
        stage.start_with("type: kube-proxy, drainTimeout: 100ms");
        wait_until("nothing of ours balances", PATIENCE, || has_nothing(&stage));
        stage.daemon.take().unwrap().kill();
        stage.start(", drainTimeout: 100ms");
        let claims = || stage.router.output(&["nft", "list", "ruleset"]).contains("chain claim ");
        wait_until("it balances again", PATIENCE, claims);
    }
    stage.router.nft("delete table ip kube-proxy");
    stage.drain();
}

/// kube-proxy balances from the beginning, and gives back where IPVS cannot balance before the daemon has set what is missing.
pub(crate) fn no_error_while_kube_proxy_gives_back_and_a_setting_is_missing(dataplane: &'static str, setting: &str) {
    let [ours, theirs] = OF_BOTH;
    let mut stage = beside_kube_proxy(dataplane, "unset");
    stage.router.sysctl(setting, "0");
    stage.start_with("type: kube-proxy, drainTimeout: 600s");
    stage.wait_for_vip(VIP, true);
    let traffic = Traffic::start(&stage.client);
    traffic.goes_to(theirs);
    let before = advertised(&stage);
    stage.change_dataplane(dataplane, ", drainTimeout: 600s");
    traffic.goes_to(ours);
    assert_eq!(advertised(&stage), before, "the VIP was withdrawn");
    traffic.finish(&format!("{setting} is 0"), &[]);
    stage.router.nft("delete table ip kube-proxy");
    stage.drain();
}

/// Our real servers of a Service, and those of kube-proxy.
const OF_BOTH: [&[&str]; 2] = [&[SERVERS[0], SERVERS[1]], &[SERVERS[3]]];

/// A Service of which kube-proxy has rules, too.
fn beside_kube_proxy(dataplane: &'static str, tag: &str) -> Stage {
    let [ours, theirs] = OF_BOTH;
    let stage = Stage::with(dataplane, tag, &SERVERS);
    answer(&stage.servers, &PORTS);
    stage.servers.ip("route add default via 192.168.0.1");
    stage.router.sysctl("net/ipv4/ip_forward", "1");
    kube_proxy(&stage, theirs[0]);
    let ports = PORTS.map(|port| format!("{{name: port-{port}, port: {port}}}")).join(", ");
    let with_vip = service("web", &ports).replace("clusterIP: None", &format!("externalIPs: [{VIP}]"));
    stage.publish("web", &(with_vip + &slice("web", &ports, ours)));
    stage
}

/// How often the daemon has changed what it advertises.
fn advertised(stage: &Stage) -> usize {
    stage.daemon.as_ref().unwrap().log().matches("done step=advertise").count()
}

/// Rules as kube-proxy in mode nftables has them for an external IP.
fn kube_proxy(stage: &Stage, server: &str) {
    let elements = PORTS.map(|port| format!("{VIP} . tcp . {port} : goto service-web")).join(", ");
    stage.router.nft(&format!(
        "table ip kube-proxy {{
            map service-ips {{ type ipv4_addr . inet_proto . inet_service : verdict; elements = {{ {elements} }} }}
            chain service-web {{ meta l4proto tcp dnat to {server}; }}
            chain nat-prerouting {{ type nat hook prerouting priority dstnat; ip daddr . meta l4proto . th dport vmap @service-ips; }}
            chain nat-output {{ type nat hook output priority -100; ip daddr . meta l4proto . th dport vmap @service-ips; }}
        }}"
    ));
}

/// Whether neither rules nor virtual services of ours are left.
fn has_nothing(stage: &Stage) -> bool {
    let listed = stage.router.output(&["nft", "list", "ruleset"]);
    let ours: Vec<&str> = listed.split("\ntable ").filter(|table| table.contains(" vipherald {")).collect();
    let lists_none = |table: &&str| table.starts_with("inet") || table.starts_with("table inet");
    let empty = ours.iter().all(|table| lists_none(table) && !table.contains("chain ") && !table.contains(&format!("{VIP} . tcp")));
    empty && (stage.dataplane != "ipvs" || stage.table().is_empty())
}
