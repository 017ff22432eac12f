// SPDX-License-Identifier: Apache-2.0
//! Entries of the connection table on a real kernel, in a namespace: those of a real server that is gone are forgotten, no others. Needs root, `ip` and
//! `conntrack`.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::collections::BTreeSet;

use common::Namespace;
use vipherald::actuator::conntrack::{Flows, forget, forget_untranslated};
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
    Flows { service, server: server.parse().unwrap() }
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
fn only_connections_that_nobody_has_translated_are_forgotten() {
    let namespace = Namespace::new("conntrack-itself");
    let (vip, server, other) = ("10.232.35.199", "192.168.1.1", "10.232.35.200");
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
    let untranslated = |services: &[Flows]| {
        let services: BTreeSet<ServiceKey> = services.iter().map(|flows| flows.service).collect();
        namespace.enter(|| async { forget_untranslated(&services).await.unwrap() })
    };
    let udp = |vip, ports| flows(vip, Protocol::Udp, ports, "192.168.1.1:0");
    assert_eq!(untranslated(&[]), 0);
    assert_eq!(untranslated(&[udp(vip, (162, 162))]), 1);
    assert_eq!(left(&namespace), ["tcp 4", "tcp 9", "udp 2", "udp 3", "udp 5", "udp 6", "udp 7", "udp 8"]);
    assert_eq!(untranslated(&[udp(vip, (162, 162)), udp(other, (1_000, 1_999)), udp(vip6, (53, 53))]), 2);
    assert_eq!(left(&namespace), ["tcp 4", "tcp 9", "udp 2", "udp 3", "udp 6", "udp 8"]);
    assert_eq!(untranslated(&[flows(vip, Protocol::Tcp, (1, 65_535), "192.168.1.1:0"), udp(vip, (163, 163))]), 2);
    assert_eq!(left(&namespace), ["tcp 9", "udp 2", "udp 6", "udp 8"]);
}
