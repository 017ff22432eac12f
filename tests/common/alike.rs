// SPDX-License-Identifier: Apache-2.0
//! What IPVS and nftables do alike: ranges of ports in both families, UDP clients that go on with one socket, clients that are remembered.
//!
//! Input: the dataplane. Whoever calls it has a kernel with what that needs.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use socket2::{Domain, Socket, Type};

use super::common::wait_until;
use super::stage::{PATIENCE, Stage, VIP, eric, service, slice};

const VIP6: &str = "2001:db8:7::1";

pub(crate) fn both_families_short_ranges_with_an_offset_and_long_ones(dataplane: &'static str) {
    let mut stage = Stage::with(dataplane, "ranges", &["192.168.1.1", "192.168.1.2", "2001:db8:1::11", "2001:db8:1::12"]);
    for port in [9000, 9001, 20_000, 20_999] {
        stage.answer_tcp(port);
    }
    let ports = "{name: a, port: 9000}";
    let of = |endpoints: &[&str]| slice("pods", ports, endpoints);
    stage.publish("pods", &(service("pods", ports) + &of(&["192.168.1.1", "192.168.1.2"]) + &of(&["2001:db8:1::11", "2001:db8:1::12"])));
    let mappings = [
        ("7000-7001", "9000-9001", "algo: rr"),
        ("20000-20999", "20000-20999", "algo: rr"),
        ("20000-20999", "20000-20999", "algo: sh, protocol: udp"),
    ];
    for server in ["192.168.1.1", "192.168.1.2", "2001:db8:1::11", "2001:db8:1::12"] {
        stage.answer_udp(server, 20_500);
    }
    stage.publish("four", &eric("four", VIP, "pods", &mappings));
    stage.publish("six", &eric("six", VIP6, "pods", &mappings));
    stage.start("");
    stage.wait_for_vip(VIP, true);
    stage.wait_for_vip(VIP6, true);
    for (vip, port, server) in [
        (VIP, 7000, "192.168.1.1:9000"),
        (VIP, 7001, "192.168.1.2:9001"),
        (VIP, 20_000, "192.168.1.1:20000"),
        (VIP, 20_999, "192.168.1.2:20999"),
        (VIP6, 7001, "[2001:db8:1::11]:9001"),
        (VIP6, 20_999, "[2001:db8:1::12]:20999"),
    ] {
        let spread = stage.spread(vip, port, 4);
        assert_eq!(spread.get(server), Some(&2), "{vip} {port}: {spread:?}");
    }
    assert!(stage.connect(VIP, 21_000).is_err());
    // One client has one real server, from whatever port.
    for (vip, any) in [(VIP, "0.0.0.0:0"), (VIP6, "[::]:0")] {
        let ask = || {
            let socket = stage.client.run(|| UdpSocket::bind(any).unwrap());
            socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
            let mut octets = [0; 64];
            socket.send_to(b"?", (vip, 20_500)).unwrap();
            let length = socket.recv(&mut octets).unwrap_or_else(|error| panic!("{vip}: {error}"));
            String::from_utf8_lossy(&octets[..length]).into_owned()
        };
        let server = ask();
        assert!((0..4).all(|_| ask() == server) && server.ends_with(":20500"), "{vip}: {server}");
    }
    stage.drain();
}

pub(crate) fn a_udp_client_with_one_socket_is_answered_by_the_new_server(dataplane: &'static str) {
    let mut stage = Stage::with(dataplane, "udp", &["192.168.1.1", "192.168.1.2"]);
    stage.answer_udp("192.168.1.1", 162);
    stage.answer_udp("192.168.1.2", 162);
    let ports = "{port: 162, protocol: UDP}";
    let pods = |endpoints: &[&str]| service("traps", ports) + &slice("traps", ports, endpoints);
    stage.publish("pods", &pods(&["192.168.1.1"]));
    stage.publish("traps", &eric("traps", VIP, "traps", &[("162", "162", "protocol: udp, algo: rr")]));
    stage.start("");
    stage.wait_for_vip(VIP, true);
    let client = stage.udp_client(Duration::from_millis(100));
    let ask = || client.ask(162);
    wait_until("the first one answers", PATIENCE, || ask().is_some_and(|answer| answer == "192.168.1.1:162"));
    stage.publish("pods", &pods(&["192.168.1.2"]));
    let since = Instant::now();
    wait_until("the second one answers", PATIENCE, || ask().is_some_and(|answer| answer == "192.168.1.2:162"));
    assert!(since.elapsed() < Duration::from_secs(2), "{:?}", since.elapsed());
    stage.drain();
}

/// A client that sends on while nobody serves it, as agents that send traps do: what the connection table says of it by then is about no real server.
pub(crate) fn a_udp_client_that_sends_on_is_answered_once_its_vip_is_back(dataplane: &'static str) {
    let mut stage = Stage::with(dataplane, "away", &["192.168.1.1"]);
    stage.answer_udp("192.168.1.1", 162);
    stage.answer_tcp(80);
    // As others do, so that connections are tracked without us.
    stage.router.nft("table ip others { chain forward { type filter hook forward priority 0; ct state invalid drop; }\n}");
    // As a fabric does that knows no other way.
    stage.router.ip("route add default via 10.99.0.2");
    stage.router.ip("-6 route add default via 2001:db8:99::2");
    let ports = "{name: traps, port: 162, protocol: UDP}, {name: web, port: 80}";
    stage.publish("pods", &(service("pods", ports) + &slice("pods", ports, &["192.168.1.1"])));
    let (traps, web) = (("162", "162", "protocol: udp, algo: rr"), ("80", "80", "algo: rr"));
    let both = eric("both", VIP, "pods", &[traps, web]);
    stage.publish("both", &both);
    stage.start("");
    stage.wait_for_vip(VIP, true);
    let open = |stage: &Stage| {
        let socket = stage.client.run(|| UdpSocket::bind("0.0.0.0:0").unwrap());
        socket.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        socket
    };
    let asks = |socket: &UdpSocket| {
        socket.send_to(b"?", (VIP, 162)).unwrap();
        socket.recv(&mut [0; 64]).is_ok()
    };
    let socket = open(&stage);
    let ask = || asks(&socket);
    let untranslated = |stage: &Stage| {
        let entries = stage.router.output(&["conntrack", "-L", "-p", "udp", "--orig-dst", VIP]);
        entries.lines().any(|entry| entry.contains(&format!("src={VIP} dst=")))
    };
    let is_there = |stage: &Stage| stage.router.ip("-o addr show dev lo").contains(&format!(" {VIP}/"));
    let is_back_for = |socket: &UdpSocket, stage: &Stage, what: &str| {
        wait_until(what, PATIENCE, || asks(socket) || (is_there(stage) && stage.connect(VIP, 80).is_ok()));
        let since = Instant::now();
        wait_until(&format!("{what}: it is answered"), PATIENCE, || asks(socket));
        assert!(since.elapsed() < Duration::from_secs(1), "{what}: {:?}", since.elapsed());
    };
    let is_back = |stage: &Stage, what: &str| is_back_for(&socket, stage, what);
    is_back(&stage, "at the beginning");
    for round in 0..2 {
        stage.publish("both", "# nothing\n");
        wait_until("the VIP is away", PATIENCE, || !ask() && !is_there(&stage) && untranslated(&stage));
        stage.publish("both", &both);
        is_back(&stage, &format!("the VIP is back, {round}"));
        stage.publish("both", &eric("both", VIP, "pods", &[web]));
        wait_until("the port is away", PATIENCE, || !(0..3).any(|_| ask()));
        stage.publish("both", &both);
        is_back(&stage, &format!("the port is back, {round}"));
        stage.router.ip(&format!("addr del {VIP}/32 dev lo"));
        is_back(&stage, &format!("the address is back, {round}"));
        let daemon = stage.daemon.take().unwrap();
        daemon.signal(Signal::SIGTERM);
        assert!(daemon.wait(PATIENCE).success());
        // What was translated before goes on; one that comes now is not.
        let late = open(&stage);
        wait_until("nobody balances", PATIENCE, || !asks(&late) && untranslated(&stage));
        stage.start("");
        is_back_for(&late, &stage, &format!("the daemon is back, {round}"));
    }
    stage.router.nft("delete table ip others");
    stage.drain();
}

pub(crate) fn a_client_stays_with_its_real_server_until_that_gets_nothing_new(dataplane: &'static str) {
    let servers = ["192.168.1.1", "192.168.1.2", "192.168.1.3"];
    let mut stage = Stage::with(dataplane, "affinity", &servers);
    stage.answer_tcp(80);
    let ports = "{port: 80}";
    let remembers = format!("clusterIP: None, sessionAffinity: ClientIP, externalIPs: [{VIP}]");
    let web = service("web", ports).replace("clusterIP: None", &remembers);
    stage.publish("web", &(web.clone() + &slice("web", ports, &servers)));
    stage.start(", scheduler: rr");
    stage.wait_for_vip(VIP, true);
    let spread = stage.spread(VIP, 80, 12);
    let (first, 12) = spread.first_key_value().map(|(server, count)| (server.clone(), *count)).unwrap() else { panic!("{spread:?}") };
    let leaves = |server: &&str| match first == format!("{server}:80") {
        true => format!("{server} ready: false, serving: true, terminating: true"),
        false => (*server).to_owned(),
    };
    let endpoints: Vec<String> = servers.iter().map(leaves).collect();
    stage.publish("web", &(web + &slice("web", ports, &endpoints.iter().map(String::as_str).collect::<Vec<_>>())));
    wait_until("it gets another one", PATIENCE, || stage.connect(VIP, 80).unwrap().server != first);
    let spread = stage.spread(VIP, 80, 12);
    assert!(spread.len() == 1 && !spread.contains_key(&first), "{first} and then {spread:?}");
    stage.drain();
}

/// As a client does that has used up all of its ports.
pub(crate) fn a_port_that_a_client_takes_again_is_no_old_connection(dataplane: &'static str) {
    let servers = ["192.168.1.1", "192.168.1.2", "192.168.1.3"];
    let mut stage = Stage::with(dataplane, "reuse", &servers);
    let listener = stage.servers.run(|| TcpListener::bind("0.0.0.0:80").unwrap());
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let address = stream.local_addr().unwrap().ip().to_string();
            stream.write_all(address.as_bytes()).ok();
        }
    });
    let ports = "{port: 80}";
    let publish = |stage: &Stage, endpoints: &[&str]| stage.publish("pods", &(service("pods", ports) + &slice("pods", ports, endpoints)));
    publish(&stage, &servers);
    stage.publish("web", &eric("web", VIP, "pods", &[("80", "80", "algo: mh")]));
    stage.start("");
    stage.wait_for_vip(VIP, true);
    // The real server ends the connection, so that the client may take the port again once its own end is acknowledged.
    let connect = || {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.set_reuse_address(true).unwrap();
        socket.bind(&SocketAddr::from(([10, 99, 0, 2], 5000)).into()).unwrap();
        let since = Instant::now();
        match socket.connect_timeout(&SocketAddr::new(VIP.parse().unwrap(), 80).into(), PATIENCE) {
            Err(error) if error.kind() == ErrorKind::AddrNotAvailable => None,
            connected => connected.map(|()| Some((TcpStream::from(socket), since))).unwrap(),
        }
    };
    let ask = |stage: &Stage| {
        stage.client.run(|| {
            let mut connected = None;
            wait_until("the client has its port again", PATIENCE, || {
                connected = connect();
                connected.is_some()
            });
            let (mut stream, since) = connected.unwrap();
            let mut server = String::new();
            stream.read_to_string(&mut server).unwrap();
            (server, since.elapsed())
        })
    };
    // A SYN that is dropped is sent again after a second. A busy machine may take as long now and then.
    let are_prompt =
        |asked: &[(String, Duration)]| asked.iter().filter(|(_, time)| *time > Duration::from_secs(1)).count() < asked.len() / 10;
    let (first, _) = ask(&stage);
    let again: Vec<_> = (0..50).map(|_| ask(&stage)).collect();
    assert!(again.iter().all(|(server, _)| *server == first) && are_prompt(&again), "{first} and then {again:?}");
    let leaves = format!("{first} ready: false, serving: true, terminating: true");
    let endpoints = servers.map(|server| if server == first { leaves.as_str() } else { server });
    publish(&stage, &endpoints);
    wait_until("it gets nothing new", PATIENCE, || ask(&stage).0 != first);
    let again: Vec<_> = (0..50).map(|_| ask(&stage)).collect();
    assert!(again.iter().all(|(server, _)| *server != first) && are_prompt(&again), "{first} and then {again:?}");
    stage.drain();
}

/// Endpoints may be on the router itself, in its own network namespace, whatever way packets get to them: there they are delivered where they are.
pub(crate) fn a_real_server_may_be_the_router_itself(dataplane: &'static str, forwarding: &[&str]) {
    for forwarding in forwarding {
        let mut stage = Stage::with(dataplane, &format!("self-{forwarding}"), &[]);
        Stage::answer_tcp_in(&stage.router, 80);
        // Its address on a link, and one that no other route than the local one leads to.
        stage.router.ip("addr add 10.55.0.1/32 dev lo");
        let nat = *forwarding == "nat";
        let port = if nat { 8080 } else { 80 };
        let service_port = "{name: tcp, port: 80}, {name: udp, port: 53, protocol: UDP}";
        for (name, endpoints) in [("link", ["192.168.0.1", "2001:db8:1::1"]), ("lo", ["10.55.0.1", ""])] {
            let slices: String =
                endpoints.iter().filter(|endpoint| !endpoint.is_empty()).map(|endpoint| slice(name, service_port, &[endpoint])).collect();
            stage.publish(name, &(service(name, service_port) + &slices));
        }
        let port_of_vip = port.to_string();
        let (tcp, udp) = (format!("algo: rr, mode: {forwarding}"), format!("algo: rr, mode: {forwarding}, protocol: udp"));
        let mappings = [(port_of_vip.as_str(), "80", tcp.as_str()), ("53", "53", udp.as_str())];
        let vips = [(VIP, "link", "192.168.0.1"), (VIP6, "link", "2001:db8:1::1"), ("10.232.35.200", "lo", "10.55.0.1")];
        for (number, (vip, service, _)) in vips.iter().enumerate() {
            stage.publish(&format!("web{number}"), &eric(&format!("web{number}"), vip, service, &mappings));
        }
        stage.start("");
        for (vip, _, own) in vips {
            stage.wait_for_vip(vip, true);
            let mut answer = None;
            wait_until(&format!("{forwarding}: {vip} is answered"), PATIENCE, || {
                answer = stage.connect(vip, port).ok();
                answer.is_some()
            });
            let answer = answer.unwrap();
            // Packets that end here are not masqueraded.
            let client = if vip.contains(':') { "2001:db8:99::2" } else { "10.99.0.2" };
            let server = SocketAddr::new((if nat { own } else { vip }).parse().unwrap(), 80);
            assert_eq!((answer.server.as_str(), answer.client.as_str()), (server.to_string().as_str(), client), "{forwarding} {vip}");
            drop(answer);
            // A datagram is answered from the address to which it came.
            let at = SocketAddr::new(server.ip(), 53);
            let socket = stage.router.run(|| UdpSocket::bind(at).unwrap());
            thread::spawn(move || {
                let mut octets = [0; 64];
                while let Ok((_, client)) = socket.recv_from(&mut octets) {
                    socket.send_to(b"it is me", client).ok();
                }
            });
            let any = if vip.contains(':') { "[::]:0" } else { "0.0.0.0:0" };
            let client = stage.client.run(|| UdpSocket::bind(any).unwrap());
            client.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
            client.connect((vip, 53)).unwrap();
            client.send(b"?").unwrap();
            let mut octets = [0; 64];
            assert_eq!(client.recv(&mut octets).unwrap_or_else(|error| panic!("{forwarding} {vip}: {error}")), 8);
        }
        stage.drain();
    }
}
