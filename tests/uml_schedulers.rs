// SPDX-License-Identifier: Apache-2.0
//! Every scheduler of a dataplane with every forwarding method, protocol and family: requests are answered by real servers, in the proportions that the
//! scheduler promises, and these see the client as documented. A ToR sends packets by one of two routers, then by the other one.
//!
//! Runs in the guest that `tests/uml` boots. Of IPVS, pairs of the four are complete here; all combinations are tried where `VIPHERALD_SOAK` is set
//! (`make soak`). Of nftables, which has fewer, all are.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;
#[path = "common/fabric.rs"]
mod fabric;
#[path = "common/router.rs"]
mod router;
#[path = "common/stage.rs"]
mod stage;

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::mem::MaybeUninit;
use std::net::{IpAddr, SocketAddr};
use std::thread;
use std::time::Duration;

use common::{Namespace, wait_until};
use fabric::Fabric;
use router::{PATIENCE, Router, VIP, VIP6};
use socket2::{Domain, Protocol, SockAddr, Socket, Type};
use stage::{ROUTER, Stage, eric, service, slice};

const SCHEDULERS: [&str; 14] = ["rr", "wrr", "lc", "wlc", "lblc", "lblcr", "dh", "sh", "mh", "sed", "nq", "fo", "ovf", "twos"];
const SCHEDULERS_OF_NFT: [&str; 4] = ["rr", "wrr", "sh", "mh"];
const FORWARDING: [&str; 3] = ["nat", "dr", "tun"];
const PROTOCOLS: [&str; 3] = ["tcp", "udp", "sctp"];
const PODS: usize = 3;
/// So many for each pod, were they equal.
const EACH: usize = 3;

/// One combination, which has a port of its own.
#[derive(Clone, Copy, Debug)]
struct Row {
    scheduler: &'static str,
    forwarding: &'static str,
    protocol: &'static str,
    ipv6: bool,
    port: u16,
}

impl Row {
    const fn vip(&self) -> &'static str {
        if self.ipv6 { VIP6 } else { VIP }
    }

    /// The address at which a pod gets packets.
    fn at(&self, pod: usize) -> IpAddr {
        if self.forwarding == "nat" { address(pod, self.ipv6).parse().unwrap() } else { self.vip().parse().unwrap() }
    }

    const fn client(&self) -> &'static str {
        if self.ipv6 { "2001:db8:99::2" } else { "10.99.0.2" }
    }

    /// Whom a pod sees: with nat the router, else the client.
    fn asks(&self, router: usize) -> String {
        match (self.forwarding, self.ipv6) {
            ("nat", false) => format!("192.168.0.1{router}"),
            ("nat", true) => format!("2001:db8:1::1{router}"),
            _ => self.client().to_owned(),
        }
    }

    /// Bound to one address, which is the only one that SCTP then tells the other end of (RFC 9260 §3.3.2.1).
    fn socket(&self, address: SocketAddr) -> Socket {
        socket(self.protocol, address)
    }

    /// The object that asks for it; EricIngress offers no SCTP.
    fn service(&self, endpoints: &[&str]) -> String {
        let Self { scheduler, forwarding, port, .. } = self;
        let (name, ports) = (format!("sctp-{port}"), format!("{{port: {port}, protocol: SCTP}}"));
        let annotations = format!("annotations: {{vipherald.io/scheduler: {scheduler}, vipherald.io/forwarding: {forwarding}}}");
        let service = service(&format!("{name}, {annotations}"), &ports);
        let vip = self.vip();
        service.replace("clusterIP: None", &format!("clusterIP: None, externalIPs: [\"{vip}\"]")) + &slice(&name, &ports, endpoints)
    }

    /// With `ovf` a pod whose connections are more than its weight gets no more, so that a few fill all of them.
    fn connections(&self) -> usize {
        PODS * if self.scheduler == "ovf" { 1 } else { EACH }
    }

    /// Whether so many answers of each pod are what the scheduler promises to one client with several ports, all of them still connected.
    fn is_in_proportion(&self, answers: &BTreeMap<String, usize>) -> bool {
        let equal = answers.len() == PODS && answers.values().all(|count| *count == EACH);
        match self.scheduler {
            "rr" | "wrr" | "lc" | "wlc" => equal,
            // They count connections that are established, as those of TCP are.
            "sed" | "nq" => self.protocol == "udp" || equal,
            "mh" => answers.len() > 1,
            "sh" | "dh" | "fo" => answers.len() == 1,
            // What they do depends on how loaded each one is, or on chance.
            _ => !answers.is_empty(),
        }
    }
}

/// Those of all combinations of which this holds, given each one's place in its column; protocol and family have one together.
fn rows(schedulers: &[&'static str], forwarding: &[&'static str], holds: impl Fn([usize; 3]) -> bool) -> Vec<Row> {
    let mut rows = Vec::new();
    for (first, scheduler) in schedulers.iter().enumerate() {
        for (second, forwarding) in forwarding.iter().enumerate() {
            for third in (0..6).filter(|third| holds([first, second, *third])) {
                let port = 1000 + u16::try_from(rows.len()).unwrap();
                rows.push(Row { scheduler, forwarding, protocol: PROTOCOLS[third % 3], ipv6: third % 2 == 1, port });
            }
        }
    }
    rows
}

/// So many of IPVS that each two values of two columns meet.
fn pairs() -> Vec<Row> {
    rows(&SCHEDULERS, &FORWARDING, |[first, second, third]| third == (first + second) % 6)
}

fn address(pod: usize, ipv6: bool) -> String {
    if ipv6 { format!("2001:db8:1::2{pod}") } else { format!("192.168.1.{pod}") }
}

/// Answers on the ports of all rows with the pod's name and who asked.
fn serve(pod: usize, host: &Namespace, rows: &[Row]) {
    for row in rows {
        let socket = host.run(|| row.socket(SocketAddr::new(row.at(pod), row.port)));
        answer(socket, format!("pod{pod}"));
    }
}

fn socket(protocol: &str, address: SocketAddr) -> Socket {
    let (kind, protocol) = match protocol {
        "udp" => (Type::DGRAM, Protocol::UDP),
        "sctp" => (Type::STREAM, Protocol::SCTP),
        _ => (Type::STREAM, Protocol::TCP),
    };
    let socket = Socket::new(Domain::for_address(address), kind, Some(protocol)).unwrap();
    socket.bind(&address.into()).unwrap();
    socket
}

/// Tells everybody who asks its name, and who asked. Connections stay open.
fn answer(socket: Socket, name: String) {
    let words = move |client: SockAddr| format!("{name} {}\n", client.as_socket().unwrap().ip());
    if socket.r#type().unwrap() == Type::DGRAM {
        thread::spawn(move || {
            while let Ok((_, client)) = socket.recv_from(&mut [MaybeUninit::uninit(); 64]) {
                socket.send_to(words(client.clone()).as_bytes(), &client).ok();
            }
        });
    } else {
        socket.listen(128).unwrap();
        thread::spawn(move || {
            let mut held = Vec::new();
            while let Ok((mut stream, client)) = socket.accept() {
                stream.write_all(words(client).as_bytes()).ok();
                held.push(stream);
            }
        });
    }
}

/// What the server at this address answers, and the socket, which is still connected.
fn ask(mut socket: Socket, server: SocketAddr) -> std::io::Result<(Socket, String)> {
    socket.set_read_timeout(Some(Duration::from_secs(5)))?;
    socket.connect_timeout(&server.into(), Duration::from_secs(5))?;
    if socket.r#type()? == Type::DGRAM {
        socket.send(b"?")?;
    }
    let mut octets = [0; 64];
    let length = socket.read(&mut octets)?;
    Ok((socket, String::from_utf8_lossy(&octets[..length]).trim().to_owned()))
}

#[test]
fn each_scheduler_does_what_it_promises_with_each_forwarding_protocol_and_family() {
    let all = std::env::var_os("VIPHERALD_SOAK").is_some();
    promises_are_kept("ipvs", &if all { rows(&SCHEDULERS, &FORWARDING, |_| true) } else { pairs() });
}

#[test]
fn each_scheduler_of_nft_does_what_it_promises_with_each_protocol_and_family() {
    promises_are_kept("nftables", &rows(&SCHEDULERS_OF_NFT, &["nat"], |_| true));
}

fn promises_are_kept(dataplane: &'static str, rows: &[Row]) {
    let mut fabric = Fabric::new(dataplane, 2, PODS, "tun", |pod, host| serve(pod, host, rows));
    for router in &mut fabric.routers {
        publish(router, rows);
        router.start(&format!("type: {dataplane}"));
    }
    for router in &fabric.routers {
        router.wait_for(VIP);
        router.wait_for(VIP6);
        wait_until("all real servers are there", PATIENCE, || real_servers(router, dataplane) == rows.len() * PODS);
    }
    let [of_one, of_other] = [1, 2].map(|router| {
        fabric.route(&[router]);
        rows.iter().map(|row| keeps_promise(&fabric, router, row)).collect::<Vec<_>>()
    });
    for ((row, one), other) in rows.iter().zip(of_one).zip(of_other).filter(|((row, _), _)| row.scheduler == "sh") {
        assert_eq!(one, other, "both routers choose alike: {row:?}");
    }
    for router in &mut fabric.routers {
        router.drain();
        assert_eq!((real_servers(router, dataplane), router.namespace.output(&["nft", "list", "tables"])), (0, String::new()));
    }
}

fn publish(router: &Router, rows: &[Row]) {
    let [four, six] = [false, true].map(|ipv6| (1..=PODS).map(|pod| address(pod, ipv6)).collect::<Vec<_>>());
    let [four, six] = [&four, &six].map(|servers| servers.iter().map(String::as_str).collect::<Vec<_>>());
    let slices = [&four, &six].map(|servers| slice("pods", "{port: 9}", servers));
    router.publish("pods", &(service("pods", "{port: 9}") + &slices.concat()));
    for (name, ipv6, vip) in [("four", false, VIP), ("six", true, VIP6)] {
        let of_family = rows.iter().filter(|row| row.ipv6 == ipv6 && row.protocol != "sctp");
        let words =
            |row: &Row| (row.port.to_string(), format!("protocol: {}, algo: {}, mode: {}", row.protocol, row.scheduler, row.forwarding));
        let mappings: Vec<_> = of_family.map(words).collect();
        let mappings: Vec<(&str, &str, &str)> =
            mappings.iter().map(|(port, words)| (port.as_str(), port.as_str(), words.as_str())).collect();
        router.publish(name, &eric(name, vip, "pods", &mappings));
    }
    for row in rows.iter().filter(|row| row.protocol == "sctp") {
        router.publish(&format!("sctp-{}", row.port), &row.service(if row.ipv6 { &six } else { &four }));
    }
}

fn real_servers(router: &Router, dataplane: &str) -> usize {
    match dataplane {
        "ipvs" => router.namespace.output(&["ipvsadm", "-Ln"]).lines().skip(3).filter(|line| line.contains("->")).count(),
        _ => router.namespace.output(&["nft", "list", "ruleset"]).matches("comment \"weight 1\"").count(),
    }
}

/// How many answers there are of each pod.
fn keeps_promise(fabric: &Fabric, router: usize, row: &Row) -> BTreeMap<String, usize> {
    let vip = SocketAddr::new(row.vip().parse().unwrap(), row.port);
    let from = SocketAddr::new(row.client().parse().unwrap(), 0);
    let ask = |_| ask(row.socket(from), vip);
    let asked = fabric.client.run(|| (0..row.connections()).map(ask).collect::<std::io::Result<Vec<_>>>());
    let asked = asked.unwrap_or_else(|error| panic!("router {router}, {row:?}: {error}"));
    let mut answers: BTreeMap<String, usize> = BTreeMap::new();
    for (_, answer) in &asked {
        let (pod, client) = answer.split_once(' ').unwrap();
        assert_eq!(client, row.asks(router), "{row:?}");
        *answers.entry(pod.to_owned()).or_default() += 1;
    }
    assert!(row.is_in_proportion(&answers), "router {router}, {row:?}: {answers:?}");
    answers
}

#[test]
fn an_association_comes_to_another_port() {
    for dataplane in ["ipvs", "nftables"] {
        let servers = ["192.168.1.1", "192.168.1.2"];
        let mut stage = Stage::with(dataplane, &format!("sctp-{dataplane}"), &servers);
        for server in servers {
            answer(stage.servers.run(|| socket("sctp", SocketAddr::new(server.parse().unwrap(), 3868))), server.to_owned());
        }
        let ports = "{name: s6a, port: 2905, protocol: SCTP}";
        let service = service("hss", ports).replace("clusterIP: None", &format!("clusterIP: None, externalIPs: [{VIP}]"));
        stage.publish("hss", &(service + &slice("hss", "{name: s6a, port: 3868, protocol: SCTP}", &servers)));
        stage.start(", scheduler: rr");
        stage.wait_for_vip(VIP, true);
        let ask = || ask(socket("sctp", SocketAddr::new([10, 99, 0, 2].into(), 0)), SocketAddr::new(VIP.parse().unwrap(), 2905));
        let mut asked: Vec<_> = (0..4).map(|_| stage.client.run(ask).unwrap().1).collect();
        asked.sort();
        let twice = |server| [format!("{server} {ROUTER}"), format!("{server} {ROUTER}")];
        assert_eq!(asked, servers.map(twice).concat(), "{dataplane}");
        stage.drain();
    }
}

#[test]
fn each_two_values_of_two_columns_meet() {
    let rows = pairs();
    let columns = |row: &Row| [row.scheduler, row.forwarding, row.protocol, if row.ipv6 { "v6" } else { "v4" }];
    let values = [SCHEDULERS.to_vec(), FORWARDING.to_vec(), PROTOCOLS.to_vec(), vec!["v4", "v6"]];
    for (one, other) in [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)] {
        for (left, right) in values[one].iter().flat_map(|left| values[other].iter().map(move |right| (*left, *right))) {
            assert!(rows.iter().any(|row| columns(row)[one] == left && columns(row)[other] == right), "{left} {right}");
        }
    }
}
