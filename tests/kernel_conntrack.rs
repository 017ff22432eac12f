// SPDX-License-Identifier: Apache-2.0
//! Entries of the connection table on a real kernel, in a namespace: those of a real server that is gone are forgotten, no others. Needs root, `ip` and
//! `conntrack`.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use common::Namespace;
use vipherald::actuator::conntrack::{Flows, ServerPort, forget, forget_strays};
use vipherald::api::{PortRange, Protocol};
use vipherald::desired::ServiceKey;

/// Makes an entry as destination NAT does: a client's connection to a VIP that a real server answers.
fn connection(namespace: &Namespace, protocol: &str, client: &str, port: u16, vip: (&str, u16), server: (&str, u16)) {
    let (port, vip_port, server_port) = (port.to_string(), vip.1.to_string(), server.1.to_string());
    let mut words = vec!["conntrack", "-I", "-p", protocol, "-s", client, "-d", vip.0, "--sport", &port, "--dport", &vip_port];
    words.extend(["--reply-src", server.0, "--reply-dst", client, "--reply-port-src", &server_port, "--reply-port-dst", &port]);
    words.extend(["-t", "300"]);
    if protocol == "tcp" {
        words.extend(["--state", "ESTABLISHED"]);
    }
    if protocol == "sctp" {
        words.extend(["--state", "ESTABLISHED", "--orig-vtag", "1", "--reply-vtag", "2"]);
    }
    namespace.output(&words);
}

/// Protocol and source port of each entry.
fn left(namespace: &Namespace) -> Vec<String> {
    let mut left = Vec::new();
    for family in ["ipv4", "ipv6"] {
        let listed = namespace.output(&["conntrack", "-L", "-f", family]);
        left.extend(listed.lines().map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let port = words.iter().find_map(|word| word.strip_prefix("sport=")).unwrap();
            format!("{} {port}", words[0])
        }));
    }
    left.sort();
    left
}

fn flows(vip: &str, protocol: Protocol, ports: (i64, i64), server: &str) -> Flows {
    let service = ServiceKey { vip: vip.parse().unwrap(), protocol, ports: PortRange::new(ports.0, ports.1).unwrap() };
    let server: SocketAddr = server.parse().unwrap();
    let port = if server.port() == 0 { ServerPort::Any } else { ServerPort::Is(server.port()) };
    Flows { service, host: server.ip(), port }
}

fn forgotten(namespace: &Namespace, gone: impl IntoIterator<Item = Flows>) -> usize {
    let gone: BTreeSet<Flows> = gone.into_iter().collect();
    namespace.enter(|| async { forget(&gone, &BTreeSet::new()).await.unwrap() })
}

#[test]
fn only_connections_to_the_service_that_the_server_answers_are_forgotten() {
    let namespace = Namespace::new("conntrack");
    let (vip, one, two) = ("10.232.35.199", "192.168.1.1", "192.168.1.2");
    connection(&namespace, "udp", "10.99.0.2", 1, (vip, 162), (one, 10_162));
    connection(&namespace, "udp", "10.99.0.2", 2, (vip, 162), (two, 10_162));
    connection(&namespace, "udp", "10.99.0.2", 3, (vip, 163), (one, 10_162));
    connection(&namespace, "udp", "10.99.0.2", 4, (vip, 162), (one, 10_163));
    connection(&namespace, "udp", "10.99.0.2", 5, ("10.232.35.200", 162), (one, 10_162));
    connection(&namespace, "tcp", "10.99.0.2", 6, (vip, 162), (one, 10_162));
    connection(&namespace, "sctp", "10.99.0.2", 7, (vip, 162), (one, 10_162));
    connection(&namespace, "udp", "10.99.0.2", 8, (one, 10_162), (one, 10_162));
    assert_eq!(forgotten(&namespace, []), 0);
    assert_eq!(forgotten(&namespace, [flows(vip, Protocol::Udp, (162, 162), "192.168.1.1:10162")]), 1);
    assert_eq!(left(&namespace), ["sctp 7", "tcp 6", "udp 2", "udp 3", "udp 4", "udp 5", "udp 8"]);
    assert_eq!(forgotten(&namespace, [flows(vip, Protocol::Udp, (162, 162), "192.168.1.1:10162")]), 0, "they are gone already");
    let of_two_vips =
        [flows(vip, Protocol::Sctp, (162, 162), "192.168.1.1:10162"), flows("10.232.35.200", Protocol::Udp, (1, 65_535), "192.168.1.1:0")];
    assert_eq!(forgotten(&namespace, of_two_vips), 2);
    assert_eq!(left(&namespace), ["tcp 6", "udp 2", "udp 3", "udp 4", "udp 8"]);
    // Where the port of the VIP is that of the real server.
    connection(&namespace, "udp", "10.99.0.2", 9, (vip, 164), (one, 164));
    let as_of_vip = Flows { port: ServerPort::AsOfVip, ..flows(vip, Protocol::Udp, (1, 65_535), "192.168.1.1:0") };
    assert_eq!(forgotten(&namespace, [as_of_vip]), 1);
    assert_eq!(left(&namespace), ["tcp 6", "udp 2", "udp 3", "udp 4", "udp 8"]);
}

#[test]
fn both_families_ranges_of_ports_and_more_connections_than_one_datagram_takes() {
    let namespace = Namespace::new("conntrack-many");
    let (vip, server) = ("2001:db8:7::1", "2001:db8:1::1");
    for port in 1..=400 {
        connection(&namespace, "tcp", "2001:db8:99::2", port, (vip, 20_000 + port), (server, 20_000 + port));
    }
    connection(&namespace, "tcp", "10.99.0.2", 1, ("10.232.35.199", 80), ("192.168.1.1", 80));
    let of_both = [
        flows(vip, Protocol::Tcp, (20_000, 20_300), "[2001:db8:1::1]:0"),
        flows("10.232.35.199", Protocol::Tcp, (80, 80), "192.168.1.1:80"),
    ];
    assert_eq!(forgotten(&namespace, of_both), 301);
    assert_eq!(left(&namespace).len(), 100);
}

/// Others of the same VIP, and those that a real server answers, go on.
#[test]
fn only_connections_that_no_real_server_answers_are_forgotten() {
    let namespace = Namespace::new("conntrack-strays");
    let (vip, server, gone, other) = ("10.232.35.199", "192.168.1.1", "192.168.1.2", "10.232.35.200");
    let (vip6, server6) = ("2001:db8:7::1", "2001:db8:1::1");
    connection(&namespace, "udp", "10.99.0.2", 1, (vip, 162), (vip, 162));
    connection(&namespace, "udp", "10.99.0.2", 2, (vip, 162), (server, 162));
    connection(&namespace, "udp", "10.99.0.2", 3, (vip, 163), (vip, 163));
    connection(&namespace, "tcp", "10.99.0.2", 4, (vip, 162), (vip, 162));
    connection(&namespace, "udp", "10.99.0.2", 5, (other, 1_999), (other, 1_999));
    connection(&namespace, "udp", "10.99.0.2", 6, (other, 2_000), (other, 2_000));
    connection(&namespace, "udp", "2001:db8:99::2", 7, (vip6, 53), (vip6, 53));
    connection(&namespace, "udp", "2001:db8:99::2", 8, (vip6, 53), (server6, 53));
    connection(&namespace, "tcp", "2001:db8:99::2", 9, (vip6, 53), (vip6, 53));
    connection(&namespace, "udp", "10.99.0.2", 10, (vip, 162), (gone, 162));
    connection(&namespace, "udp", "10.99.0.2", 11, (vip, 162), (server, 163));
    connection(&namespace, "udp", "10.99.0.2", 12, (other, 1_500), (server, 1_500));
    connection(&namespace, "udp", "10.99.0.2", 13, (other, 1_500), (server, 1_501));
    let forgotten = |services: &[Flows]| {
        let mut of: BTreeMap<ServiceKey, BTreeSet<SocketAddr>> = BTreeMap::new();
        for Flows { service, host, port } in services {
            let port = if let ServerPort::Is(port) = port { *port } else { 0 };
            of.entry(*service).or_default().insert(SocketAddr::new(*host, port));
        }
        namespace.enter(|| async { forget_strays(&of).await.unwrap() })
    };
    let udp = |vip, ports, server| flows(vip, Protocol::Udp, ports, server);
    let traps = udp(vip, (162, 162), "192.168.1.1:162");
    assert_eq!(forgotten(&[]), 0);
    assert_eq!(forgotten(&[traps, udp(vip, (162, 162), "192.168.1.2:162")]), 2);
    let rest = ["udp 12", "udp 13", "udp 2", "udp 3", "udp 5", "udp 6", "udp 7", "udp 8"];
    assert_eq!(left(&namespace), [&["tcp 4", "tcp 9", "udp 10"], &rest[..]].concat());
    // One whose host is gone, and of a range whatever keeps not its port.
    assert_eq!(forgotten(&[traps, udp(other, (1_000, 1_999), "192.168.1.1:0"), udp(vip6, (53, 53), "[2001:db8:1::1]:53")]), 4);
    assert_eq!(left(&namespace), ["tcp 4", "tcp 9", "udp 12", "udp 2", "udp 3", "udp 6", "udp 8"]);
    // Where two of them have the port, it is of either.
    let [one, two] = [udp(vip, (1, 65_535), "192.168.1.9:0"), traps];
    assert_eq!(forgotten(&[flows(vip, Protocol::Tcp, (1, 65_535), "192.168.1.1:0"), one, two]), 2);
    assert_eq!(left(&namespace), ["tcp 9", "udp 12", "udp 2", "udp 6", "udp 8"]);
}
