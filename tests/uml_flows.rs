// SPDX-License-Identifier: Apache-2.0
//! Several routers side by side: they choose alike whatever their history, so that a connection which the fabric moves from one to another goes on.
//!
//! Runs in the guest that `tests/uml` boots. What becomes of connections is seen with real ones: through a ToR that spreads them over four routers.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::disallowed_macros, reason = "figures are shown")]

mod common;
#[path = "common/fabric.rs"]
mod fabric;
#[path = "common/router.rs"]
mod router;
#[path = "common/stage.rs"]
mod stage;

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use common::{Namespace, wait_until};
use fabric::Fabric;
use router::{PATIENCE, Router, VIP};
use socket2::{Domain, Socket, Type};
use stage::{eric, service, slice};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::JoinSet;

/// Pseudo-random numbers, the same each time.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % sides
    }
}

const PORTS: &str = "{name: a, port: 80}, {name: b, port: 81}";
const SOURCES: u16 = 2000;

/// The Service with these real servers, by number; those with `true` are on their way out.
fn pods(servers: &BTreeMap<usize, bool>) -> String {
    let endpoint = |(number, terminates): (&usize, &bool)| {
        let state = if *terminates { " ready: false, serving: true, terminating: true" } else { "" };
        format!("192.168.1.{number}{state}")
    };
    let endpoints: Vec<String> = servers.iter().map(endpoint).collect();
    let endpoints: Vec<&str> = endpoints.iter().map(String::as_str).collect();
    service("pods", PORTS) + &slice("pods", PORTS, &endpoints)
}

/// A SYN from each of 2,000 clients to this port of the VIP: which real server the router chose for each.
fn choices(clients: &Namespace, router: &Router, port: u16) -> BTreeMap<String, String> {
    clients.run(|| {
        for number in 0..SOURCES {
            let client = Ipv4Addr::from(u32::from(Ipv4Addr::new(10, 9, 0, 1)) + u32::from(number));
            let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
            socket.set_nonblocking(true).unwrap();
            socket.bind(&SocketAddr::new(client.into(), 10_000 + number).into()).unwrap();
            let told = socket.connect(&SocketAddr::new(VIP.parse().unwrap(), port).into());
            assert!(told.is_err_and(|error| error.raw_os_error() == Some(nix::errno::Errno::EINPROGRESS as i32)));
        }
    });
    let vip = format!("{VIP}:{port}");
    let entries = router.namespace.output(&["ipvsadm", "-Lnc"]);
    let of_port = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        (words.get(4) == Some(&vip.as_str())).then(|| (words[3].to_owned(), words[5].to_owned()))
    };
    entries.lines().filter_map(of_port).collect()
}

#[test]
fn a_fresh_router_and_one_with_100_changes_behind_it_agree_for_2000_clients() {
    let clients = ["old", "new"].map(|name| Namespace::new(&format!("alike-clients-{name}")));
    let [mut old, mut new] = [&clients[0], &clients[1]].map(|clients| {
        Router::new("alike-router", |router| {
            clients.veth("eth0", router, "front");
            clients.ip("addr add 10.99.0.2/24 dev eth0");
            router.ip("addr add 10.99.0.1/24 dev front");
            clients.ip("route add default via 10.99.0.1");
            clients.ip("route add local 10.9.0.0/16 dev lo");
            router.ip("route add 10.9.0.0/16 via 10.99.0.2");
            // Where packets go to is of no interest: nobody is there.
            router.ip("link add back type dummy");
            router.ip("addr add 192.168.0.1/16 dev back");
            router.ip("link set back up arp off");
        })
    });
    let ingress = eric("web", VIP, "pods", &[("80", "80", "algo: sh"), ("81", "81", "algo: mh")]);
    let mut servers: BTreeMap<usize, bool> = (1..=8).map(|number| (number, false)).collect();
    old.publish("pods", &pods(&servers));
    old.publish("web", &ingress);
    old.start("type: ipvs");
    old.wait_for_vip();
    let mut dice = Dice(4);
    for _ in 0..100 {
        let number = 1 + dice.roll(16);
        match servers.get(&number).copied() {
            Some(false) if dice.roll(2) == 0 => drop(servers.insert(number, true)),
            Some(_) if servers.len() > 2 => drop(servers.remove(&number)),
            _ => drop(servers.insert(number, false)),
        }
        if servers.values().all(|terminates| *terminates) {
            servers.insert(number, false);
        }
        old.publish("pods", &pods(&servers));
        let wanted = servers.iter().map(|(number, terminates)| (number, u8::from(!terminates)));
        let lines = |port: u16| wanted.clone().map(|(number, weight)| format!("192.168.1.{number}:{port} {weight}")).collect::<Vec<_>>();
        let is_there = |port| {
            let (mut wanted, mut found) = (lines(port), old.servers(&format!("{VIP}:{port}")));
            wanted.sort();
            found.sort();
            wanted == found
        };
        wait_until("the change is made", PATIENCE, || is_there(80) && is_there(81));
    }
    new.publish("pods", &pods(&servers));
    new.publish("web", &ingress);
    new.start("type: ipvs");
    new.wait_for_vip();
    for (scheduler, port) in [("sh", 80), ("mh", 81)] {
        let [old, new] = [(&clients[0], &old), (&clients[1], &new)].map(|(clients, router)| choices(clients, router, port));
        assert_eq!(old.len(), usize::from(SOURCES), "{scheduler}");
        let chosen: std::collections::BTreeSet<&String> = old.values().collect();
        assert!(chosen.len() > 1, "{scheduler}: {chosen:?}");
        let other = old.iter().filter(|(client, server)| new.get(*client) != Some(*server)).count();
        println!("{scheduler}: {other} of {SOURCES} clients get another real server, of {servers:?}");
        assert_eq!(other, 0, "{scheduler}");
    }
    old.drain();
    new.drain();
}

const ROUTERS: usize = 4;
const SERVERS: usize = 4;

/// A ToR that spreads over four routers, and four real servers.
fn fabric(forwarding: &str) -> Fabric {
    Fabric::new("move", ROUTERS, SERVERS, forwarding, |_, host| echo(host))
}

/// All routers balance this way.
fn serve(fabric: &mut Fabric, scheduler: &str, forwarding: &str) {
    serve_as(fabric, "type: ipvs", scheduler, forwarding);
    fabric.route(&[1, 2, 3, 4]);
}

/// The same with these keys of the section `dataplane`, and without a route to them.
fn serve_as(fabric: &mut Fabric, dataplane: &str, scheduler: &str, forwarding: &str) {
    let servers = (1..=SERVERS).map(|number| (number, false)).collect();
    for router in &mut fabric.routers {
        router.publish("pods", &pods(&servers));
        router.publish("web", &eric("web", VIP, "pods", &[("80", "80", &format!("algo: {scheduler}, mode: {forwarding}"))]));
        if router.daemon.is_none() {
            router.start(dataplane);
        }
        router.wait_for_vip();
        let header = format!("TCP  {VIP}:80 {scheduler}");
        wait_until(&header, PATIENCE, || router.namespace.output(&["ipvsadm", "-Ln"]).contains(&header));
        wait_until("the real servers are there", PATIENCE, || router.servers(&format!("{VIP}:80")).len() == SERVERS);
    }
}

/// Opens so many connections, takes one router out of the ToR's route, and asks in each connection: how many were answered, reset, and met silence.
/// The client's address is a new one each time: what a connection of before has left at routers and servers would be met by one with the same port.
fn fates(fabric: &Fabric, client: Ipv4Addr, flows: usize) -> Fates {
    fabric.client.ip(&format!("addr add {client}/24 dev eth0"));
    let moved = || fabric.route(&[1, 3, 4]);
    fabric.client.enter(async || {
        let mut connections = open(client, flows).await;
        assert_eq!(ask(&mut connections).await, Fates { answered: flows, ..Fates::default() }, "before");
        moved();
        ask(&mut connections).await
    })
}

/// What became of connections.
#[derive(Debug, Default, Eq, PartialEq)]
struct Fates {
    answered: usize,
    reset: usize,
    silent: usize,
    slowest_reset: Duration,
}

/// Answers all connections to port 80.
fn echo(host: &Namespace) {
    let listener = host.run(|| std::net::TcpListener::bind("0.0.0.0:80").unwrap());
    listener.set_nonblocking(true).unwrap();
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let listener = TcpListener::from_std(listener).unwrap();
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                tokio::spawn(async move {
                    let mut octet = [0];
                    while stream.read_exact(&mut octet).await.is_ok() && stream.write_all(&octet).await.is_ok() {}
                });
            }
        });
    });
}

async fn open(client: Ipv4Addr, flows: usize) -> Vec<TcpStream> {
    let mut streams = Vec::with_capacity(flows);
    while streams.len() < flows {
        let mut opening = JoinSet::new();
        for _ in 0..50.min(flows - streams.len()) {
            opening.spawn(async move {
                let socket = TcpSocket::new_v4().unwrap();
                socket.bind(SocketAddr::new(client.into(), 0)).unwrap();
                tokio::time::timeout(PATIENCE, socket.connect(SocketAddr::new(VIP.parse().unwrap(), 80))).await.unwrap().unwrap()
            });
        }
        streams.extend(opening.join_all().await);
    }
    streams
}

/// A question in each connection. One that gets no answer within a second has met silence, unless the whole machine is slow.
async fn ask(connections: &mut [TcpStream]) -> Fates {
    let mut fates = Fates::default();
    for some in connections.chunks_mut(50) {
        let asked = Instant::now();
        for stream in some.iter_mut() {
            stream.write_all(b"?").await.ok();
        }
        for stream in some {
            let mut octet = [0];
            match tokio::time::timeout(Duration::from_secs(3), stream.read_exact(&mut octet)).await {
                Ok(Ok(_)) => fates.answered += 1,
                Ok(Err(error)) => {
                    assert!(matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::UnexpectedEof), "{error}");
                    fates.reset += 1;
                    fates.slowest_reset = fates.slowest_reset.max(asked.elapsed());
                }
                Err(_) => fates.silent += 1,
            }
        }
    }
    fates
}

/// Both ends of thousands of connections are in this process.
fn allow_many_files() {
    let process = std::process::id().to_string();
    assert!(Command::new("prlimit").args(["--nofile=16384", "--pid", &process]).status().unwrap().success());
}

#[test]
fn connections_that_the_fabric_moves_go_on_with_dr_and_tun() {
    allow_many_files();
    const FLOWS: usize = 2000;
    for forwarding in ["dr", "tun"] {
        let mut fabric = fabric(forwarding);
        for (number, scheduler) in (0..).zip(["rr", "mh"]) {
            serve(&mut fabric, scheduler, forwarding);
            let sloppy = |wanted: &str| fabric.routers.iter().all(|router| router.sysctl("net/ipv4/vs/sloppy_tcp") == wanted);
            let wanted = if scheduler == "mh" { "1" } else { "0" };
            wait_until(&format!("sloppy_tcp is {wanted}"), PATIENCE, || sloppy(wanted));
            let fates = fates(&fabric, Ipv4Addr::new(10, 99, 0, 10 + number), FLOWS);
            println!("{forwarding} {scheduler}: {fates:?}");
            assert_eq!(fates.silent, 0, "{forwarding} {scheduler}: {fates:?}");
            assert_eq!(fates.reset * 50 > FLOWS, scheduler == "rr", "{forwarding} {scheduler}: {fates:?}");
        }
        fabric.routers.iter_mut().for_each(Router::drain);
    }
}

/// Says much at once to whoever connects to port 80.
fn pour(host: &Namespace) {
    let listener = host.run(|| std::net::TcpListener::bind("0.0.0.0:80").unwrap());
    thread::spawn(move || {
        for stream in listener.incoming() {
            thread::spawn(move || stream.unwrap().write_all(&[b'!'; MUCH]).ok());
        }
    });
}

const MUCH: usize = 100_000;

/// How many of so many connections get all that is said.
fn read_whole(fabric: &Fabric, connections: usize) -> usize {
    fabric.client.run(|| {
        let connect = |_| {
            let mut stream = std::net::TcpStream::connect(SocketAddr::new(VIP.parse().unwrap(), 80)).unwrap();
            stream.set_read_timeout(Some(Duration::from_secs(3))).unwrap();
            thread::spawn(move || stream.read_exact(&mut [0; MUCH]).is_ok())
        };
        let readers: Vec<_> = (0..connections).map(connect).collect();
        readers.into_iter().filter_map(|reader| reader.join().ok()).filter(|whole| *whole).count()
    })
}

/// The link to the client takes smaller packets than the servers send, and what the ToR says of that goes to another router than the connections do.
#[test]
fn a_server_hears_by_another_router_that_its_packets_are_too_large() {
    const CONNECTIONS: usize = 20;
    for forwarding in ["dr", "tun"] {
        for (dataplane, icmp, expected) in [("type: ipvs, setSysctls: false", "0", 0), ("type: ipvs", "1", CONNECTIONS)] {
            let mut fabric = Fabric::new("pmtu", 2, SERVERS, forwarding, |_, host| pour(host));
            for router in &fabric.routers {
                for name in ["net/ipv4/ip_forward", "net/ipv4/vs/conntrack", "net/ipv4/vs/sloppy_tcp"] {
                    router.namespace.sysctl(name, "1");
                }
            }
            serve_as(&mut fabric, dataplane, "mh", forwarding);
            let set = |wanted: &str| fabric.routers.iter().all(|router| router.sysctl("net/ipv4/vs/schedule_icmp") == wanted);
            wait_until(&format!("schedule_icmp is {icmp}"), PATIENCE, || set(icmp));
            fabric.route(&[1]);
            fabric.tor.ip(&format!("rule add to {VIP} ipproto icmp lookup 100"));
            fabric.tor.ip(&format!("route add {VIP} via 192.168.0.12 table 100"));
            fabric.tor.ip("link set front mtu 1300");
            assert_eq!(read_whole(&fabric, CONNECTIONS), expected, "{forwarding} {dataplane}");
            fabric.routers.iter_mut().for_each(Router::drain);
        }
    }
}

#[test]
fn a_moved_connection_is_reset_within_a_second_with_nat() {
    allow_many_files();
    let mut fabric = fabric("nat");
    for (number, sloppy) in (0..).zip(["0", "1"]) {
        serve(&mut fabric, "mh", "nat");
        for router in &fabric.routers {
            router.namespace.sysctl("net/ipv4/vs/sloppy_tcp", sloppy);
        }
        let fates = fates(&fabric, Ipv4Addr::new(10, 99, 0, 10 + number), 200);
        println!("nat, sloppy_tcp {sloppy}: {fates:?}");
        assert!(fates.reset > 0 && fates.silent == 0 && fates.slowest_reset < Duration::from_secs(1), "{fates:?}");
    }
    fabric.routers.iter_mut().for_each(Router::drain);
}
