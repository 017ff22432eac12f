// SPDX-License-Identifier: Apache-2.0
//! Datagrams while balancing passes from us to kube-proxy and back, or while ports and ranges of ports come, change and go: thousands of flows a second, of one datagram each, so that
//! some of them are on their way at every moment of a change of rules.
//!
//! Input: the dataplane. Invariant: each datagram reaches a real server, whoever chose it, as long as somebody serves its port: none is dropped, and none stays
//! on the router. Whoever calls it has a kernel with what that dataplane needs.
#![allow(dead_code, reason = "each test file uses a part of it")]

use std::iter;
use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::common::{Namespace, POLL, inside, wait_until};
use super::stage::{PATIENCE, Stage, VIP, eric, service, slice};

const SERVERS: [&str; 3] = ["192.168.1.1", "192.168.1.2", "192.168.1.4"];
const PORT: u16 = 53;
/// How long what was sent may take.
const IN_FLIGHT: Duration = Duration::from_secs(2);
/// Evenly, and no more than the connection table has room for.
const BETWEEN_FLOWS: Duration = Duration::from_micros(25);
/// So many that the connection table has forgotten a flow before its port comes again.
const CLIENTS: [&str; 8] = ["10.99.0.2", "10.99.0.3", "10.99.0.4", "10.99.0.5", "10.99.0.6", "10.99.0.7", "10.99.0.8", "10.99.0.9"];
const SOURCE_PORTS: std::ops::Range<u16> = 1_024..65_535;

/// The client at work.
struct Flood {
    sent: Arc<AtomicU64>,
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Flood {
    fn start(client: &Namespace, ports: &'static [u16]) -> Self {
        let (sent, over) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let (name, count, until) = (client.name().to_owned(), Arc::clone(&sent), Arc::clone(&over));
        let thread = thread::spawn(move || {
            inside(&name, || {
                let sources = CLIENTS.iter().flat_map(|client| SOURCE_PORTS.map(move |port| (*client, port)));
                let mut due = Instant::now();
                for (source, port) in sources.cycle().zip(ports.iter().cycle()).take_while(|_| !until.load(Ordering::Relaxed)) {
                    while Instant::now() < due {
                        thread::yield_now();
                    }
                    due = due.max(Instant::now()) + BETWEEN_FLOWS;
                    UdpSocket::bind(source).unwrap().send_to(b"?", (VIP, *port)).unwrap();
                    count.fetch_add(1, Ordering::Relaxed);
                }
            });
        });
        Self { sent, over, thread: Some(thread) }
    }

    /// Ends it, and says how many datagrams there were.
    fn finish(mut self) -> u64 {
        self.over.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap();
        self.sent.load(Ordering::Relaxed)
    }
}

impl Drop for Flood {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
    }
}

/// A daemon that balances what the client sends.
fn stage(dataplane: &'static str, tag: &str) -> Stage {
    let mut stage = Stage::with(dataplane, tag, &SERVERS);
    CLIENTS.iter().skip(1).for_each(|client| drop(stage.client.ip(&format!("addr add {client}/24 dev eth0"))));
    stage.router.sysctl("net/ipv4/ip_forward", "1");
    // Who answers with ICMP would make packets that this is not about.
    let count = format!("table ip count {{ chain input {{ type filter hook input priority 0; udp dport {PORT} counter drop; }}\n}}");
    stage.servers.nft(&count);
    let ports = format!("{{name: dns, port: {PORT}, protocol: UDP}}");
    let with_vip = service("dns", &ports).replace("clusterIP: None", &format!("externalIPs: [{VIP}]"));
    stage.publish("dns", &(with_vip + &slice("dns", &ports, &SERVERS[..2])));
    stage.start("");
    stage.wait_for_vip(VIP, true);
    wait_until("it is announced", PATIENCE, || done(&stage, "advertise 10") == 1);
    stage.router.sysctl("net/netfilter/nf_conntrack_udp_timeout", "1");
    stage
}

/// How often the daemon has done this.
fn done(stage: &Stage, step: &str) -> usize {
    stage.daemon.as_ref().unwrap().log().matches(&format!("done step={step}")).count()
}

/// Ends it all, and makes sure that the real servers got each datagram.
fn finish(mut stage: Stage, flood: Flood, what: &str) {
    let sent = flood.finish();
    assert!(sent > 0);
    let deadline = Instant::now() + IN_FLIGHT;
    while count(&stage.servers) < sent && Instant::now() < deadline {
        thread::sleep(POLL);
    }
    let arrived = count(&stage.servers);
    println!("{what}: {arrived} of {sent} flows have a server");
    assert_eq!(arrived, sent, "{what}: some were dropped, or are still on the router");
    stage.drain();
}

/// How many datagrams the real servers got.
fn count(servers: &Namespace) -> u64 {
    let listed = servers.output(&["nft", "list", "chain", "ip", "count", "input"]);
    let (_, counted) = listed.split_once("counter packets ").unwrap();
    counted.split(' ').next().unwrap().parse().unwrap()
}

/// kube-proxy, whose rules are there all the time, takes over and gives back.
pub(crate) fn every_flow_has_a_server_while_kube_proxy_takes_over_and_gives_back(dataplane: &'static str) {
    let stage = stage(dataplane, "flood-proxy");
    let theirs = SERVERS[2];
    stage.router.nft(&format!(
        "table ip kube-proxy {{
            map service-ips {{ type ipv4_addr . inet_proto . inet_service : verdict; elements = {{ {VIP} . udp . {PORT} : goto service-dns }} }}
            chain service-dns {{ meta l4proto udp dnat to {theirs}; }}
            chain nat-prerouting {{ type nat hook prerouting priority dstnat; ip daddr . meta l4proto . th dport vmap @service-ips; }}
        }}"
    ));
    let flood = Flood::start(&stage.client, &[PORT]);
    for _ in 0..4 {
        for (kind, step) in [("kube-proxy", "remove the rules"), (dataplane, "write the rules")] {
            let before = done(&stage, step);
            stage.change_dataplane(kind, "");
            wait_until(&format!("{kind}: {step}"), PATIENCE, || done(&stage, step) > before);
        }
    }
    stage.router.nft("delete table ip kube-proxy");
    finish(stage, flood, &format!("{dataplane} and kube-proxy"));
}

/// A long range of ports grows, shrinks and moves, with ports that it keeps.
pub(crate) fn every_flow_has_a_server_while_a_long_range_changes(dataplane: &'static str) {
    const KEPT: [u16; 2] = [15_000, 19_999];
    let mut stage = Stage::with(dataplane, "flood-range", &SERVERS);
    CLIENTS.iter().skip(1).for_each(|client| drop(stage.client.ip(&format!("addr add {client}/24 dev eth0"))));
    stage.servers.nft("table ip count { chain input { type filter hook input priority 0; meta l4proto udp counter drop; }\n}");
    stage.publish("pods", &(service("pods", "{port: 53, protocol: UDP}") + &slice("pods", "{port: 53, protocol: UDP}", &SERVERS[..2])));
    let publish =
        |stage: &Stage, ports: &str| stage.publish("all", &eric("all", VIP, "pods", &[(ports, ports, "algo: rr, protocol: udp")]));
    publish(&stage, "10000-20000");
    stage.start("");
    stage.wait_for_vip(VIP, true);
    wait_until("it is announced", PATIENCE, || done(&stage, "advertise 10") == 1);
    stage.router.sysctl("net/netfilter/nf_conntrack_udp_timeout", "1");
    let flood = Flood::start(&stage.client, &KEPT);
    for ports in ["10000-21000", "9000-20000", "12000-30000", "15000-19999", "10000-20000"].into_iter().cycle().take(20) {
        publish(&stage, ports);
        let record = || stage.router.output(&["nft", "list", "set", "inet", "vipherald", "ranges4"]);
        wait_until(ports, PATIENCE, || record().contains(&format!("{VIP} . udp . {ports} }}")));
    }
    finish(stage, flood, &format!("{dataplane}: a long range"));
}

/// Long ranges are split and become one again, with ports that some range has all the while.
pub(crate) fn every_flow_has_a_server_while_ranges_are_split_and_joined(dataplane: &'static str) {
    const KEPT: [u16; 2] = [15_000, 19_999];
    const STORIES: [&[&str]; 5] = [
        &["10000-17000", "17001-20000"],
        &["10000-20000"],
        &["9000-15999", "16001-21000"],
        &["15000-19998", "19999-29999"],
        &["10000-20000"],
    ];
    let mut stage = Stage::with(dataplane, "flood-split", &SERVERS);
    CLIENTS.iter().skip(1).for_each(|client| drop(stage.client.ip(&format!("addr add {client}/24 dev eth0"))));
    stage.servers.nft("table ip count { chain input { type filter hook input priority 0; meta l4proto udp counter drop; }\n}");
    stage.publish("pods", &(service("pods", "{port: 53, protocol: UDP}") + &slice("pods", "{port: 53, protocol: UDP}", &SERVERS[..2])));
    let publish = |stage: &Stage, ranges: &[&str]| {
        let mappings: Vec<_> = ranges.iter().map(|ports| (*ports, *ports, "algo: rr, protocol: udp")).collect();
        stage.publish("all", &eric("all", VIP, "pods", &mappings));
    };
    publish(&stage, &["10000-20000"]);
    stage.start(", drainTimeout: 1s");
    stage.wait_for_vip(VIP, true);
    wait_until("it is announced", PATIENCE, || done(&stage, "advertise 10") == 1);
    stage.router.sysctl("net/netfilter/nf_conntrack_udp_timeout", "1");
    let flood = Flood::start(&stage.client, &KEPT);
    for ranges in STORIES.into_iter().cycle().take(15) {
        publish(&stage, ranges);
        let listed = || stage.router.output(&["nft", "-y", "list", "set", "inet", "vipherald", "ranges4"]);
        let settled =
            |listed: &str| listed.matches(VIP).count() == ranges.len() && ranges.iter().all(|ports| listed.contains(&format!(" {ports}")));
        wait_until(&format!("{ranges:?}"), PATIENCE, || settled(&listed()));
    }
    assert_eq!(done(&stage, "advertise 10"), 1, "the VIP was withdrawn");
    finish(stage, flood, &format!("{dataplane}: long ranges are split and joined"));
}

/// A range of ports that is one virtual service, and loses a port, so that each has its own, and back.
pub(crate) fn every_flow_has_a_server_while_a_range_is_expanded_and_back(dataplane: &'static str) {
    const KEPT: [u16; 2] = [15_000, 15_063];
    let mut stage = Stage::with(dataplane, "flood-expanded", &SERVERS);
    CLIENTS.iter().skip(1).for_each(|client| drop(stage.client.ip(&format!("addr add {client}/24 dev eth0"))));
    stage.servers.nft("table ip count { chain input { type filter hook input priority 0; meta l4proto udp counter drop; }\n}");
    stage.publish("pods", &(service("pods", "{port: 53, protocol: UDP}") + &slice("pods", "{port: 53, protocol: UDP}", &SERVERS[..2])));
    let publish =
        |stage: &Stage, ports: &str| stage.publish("all", &eric("all", VIP, "pods", &[(ports, ports, "algo: rr, protocol: udp")]));
    publish(&stage, "15000-15064");
    stage.start(", drainTimeout: 200ms");
    stage.wait_for_vip(VIP, true);
    wait_until("it is announced", PATIENCE, || done(&stage, "advertise 10") == 1);
    stage.router.sysctl("net/netfilter/nf_conntrack_udp_timeout", "1");
    let flood = Flood::start(&stage.client, &KEPT);
    for _ in 0..6 {
        for (ports, ranges, single) in [("15000-15063", 0, 64), ("15000-15064", 1, 0)] {
            publish(&stage, ports);
            let listed = |set: &str| stage.router.output(&["nft", "list", "set", "inet", "vipherald", set]).matches(VIP).count();
            let settled = || listed("services4") == single && listed("ranges4") == ranges && listed("closed4") == 0;
            wait_until(&format!("{ports} and nothing else"), PATIENCE, settled);
        }
    }
    assert_eq!(done(&stage, "advertise 10"), 1, "the VIP was withdrawn");
    finish(stage, flood, &format!("{dataplane}: a range and its single ports"));
}

/// A port comes and goes, by itself and in a long range, while the VIP stays for another one: who listens on the router itself gets nothing.
pub(crate) fn nothing_reaches_the_router_itself_while_ports_come_and_go(dataplane: &'static str) {
    const RANGED: u16 = 20_500;
    let mut stage = Stage::with(dataplane, "flood-ports", &SERVERS);
    CLIENTS.iter().skip(1).for_each(|client| drop(stage.client.ip(&format!("addr add {client}/24 dev eth0"))));
    stage.servers.nft("table ip count { chain input { type filter hook input priority 0; meta l4proto udp counter drop; }\n}");
    let listeners = [PORT, RANGED].map(|port| stage.router.run(|| UdpSocket::bind(("0.0.0.0", port)).unwrap()));
    listeners.iter().for_each(|listener| listener.set_nonblocking(true).unwrap());
    let ports = "{name: web, port: 80}, {name: dns, port: 53, protocol: UDP}";
    stage.publish("pods", &(service("pods", ports) + &slice("pods", ports, &SERVERS[..2])));
    let (web, dns) = (("80", "80", "algo: rr"), ("53", "53", "algo: rr, protocol: udp"));
    let all = eric("all", VIP, "pods", &[web, dns, ("20000-20999", "20000-20999", "algo: rr, protocol: udp")]);
    let some = eric("all", VIP, "pods", &[web]);
    stage.publish("all", &all);
    stage.start("");
    stage.wait_for_vip(VIP, true);
    stage.router.sysctl("net/netfilter/nf_conntrack_udp_timeout", "1");
    let record = |stage: &Stage| stage.router.output(&["nft", "list", "table", "inet", "vipherald"]);
    let flood = Flood::start(&stage.client, &[PORT, RANGED]);
    for round in 0..6 {
        for (manifest, served) in [(&some, false), (&all, true)] {
            let before = count(&stage.servers);
            stage.publish("all", manifest);
            let settled = |stage: &Stage| {
                let record = record(stage);
                let listed = [format!("{VIP} . udp . 53"), format!("{VIP} . udp . 20000-20999")];
                listed.iter().all(|service| record.contains(service) == served)
            };
            wait_until(&format!("{round}: served {served}"), PATIENCE, || settled(&stage));
            if served {
                wait_until("datagrams reach real servers", PATIENCE, || count(&stage.servers) > before + 1_000);
            }
        }
    }
    let sent = flood.finish();
    let reached: Vec<usize> = listeners.iter().map(|listener| iter::from_fn(|| listener.recv(&mut [0; 8]).ok()).count()).collect();
    println!("{dataplane}: {reached:?} of {sent} datagrams reached the router itself");
    assert_eq!(reached, [0, 0], "of {sent}");
    stage.drain();
}
