// SPDX-License-Identifier: Apache-2.0
//! Clients of a range of ports that is expanded to virtual services of one port each, becomes one that is balanced as a whole, and back.
//!
//! Input: the dataplane. Invariants: a connection goes on with its real server, also where that gets new ones at another port; a client that sends datagrams from one
//! socket gets the port that is meant now; a scheduler that hashes the client's address chooses alike for both forms. Whoever calls it has a kernel with what
//! that dataplane needs.
#![allow(dead_code, reason = "each test file uses a part of it")]

use std::collections::BTreeMap;
use std::time::Duration;

use super::common::wait_until;
use super::stage::{Connection, PATIENCE, Stage, UdpClient, VIP, eric, service, slice};

const SERVERS: [&str; 3] = ["192.168.1.1", "192.168.1.2", "192.168.1.3"];
/// The first port, and the last of what is expanded.
const ENDS: [u16; 2] = [7_000, 7_063];
/// As long as is expanded, and longer by one.
const EXPANDED: &str = "7000-7063";
const WHOLE: &str = "7000-7064";
/// Where the single ports go.
const SHIFTED: &str = "9000-9063";

fn publish_pods(stage: &Stage, servers: &[&str]) {
    stage.publish("pods", &(service("pods", "{port: 22}") + &slice("pods", "{port: 22}", servers)));
}

/// Single ports lead to others of the same hosts, and the range, which cannot do that, to the same ones.
pub(crate) fn connections_go_on_where_single_ports_with_an_offset_become_a_range(dataplane: &'static str) {
    let mut stage = Stage::with(dataplane, "shifted", &SERVERS);
    for port in ENDS.into_iter().flat_map(|port| [port, port + 2_000]) {
        stage.answer_tcp(port);
        SERVERS.iter().for_each(|server| stage.answer_udp(server, port));
    }
    publish_pods(&stage, &SERVERS);
    let publish = |stage: &Stage, (ports, to): (&str, &str)| {
        stage.publish("web", &eric("web", VIP, "pods", &[(ports, to, "algo: rr"), (ports, to, "algo: rr, protocol: udp")]));
    };
    let forms = [((EXPANDED, SHIFTED), 2_000), ((WHOLE, WHOLE), 0)];
    publish(&stage, forms[0].0);
    stage.start(", drainTimeout: 600s");
    stage.wait_for_vip(VIP, true);
    let client = || stage.udp_client(Duration::from_millis(200));
    let clients: Vec<(UdpClient, u16)> = ENDS.into_iter().flat_map(|port| [port; 3]).map(|port| (client(), port)).collect();
    let mut connections: Vec<Connection> = Vec::new();
    for (round, (form, offset)) in forms.into_iter().cycle().take(5).enumerate() {
        publish(&stage, form);
        let leads_there = |port: u16| stage.connect(VIP, port).is_ok_and(|new| new.server.ends_with(&format!(":{}", port + offset)));
        wait_until(&format!("{round}: {form:?}"), PATIENCE, || ENDS.into_iter().all(leads_there));
        let answered =
            |(client, port): &(UdpClient, u16)| client.ask(*port).is_some_and(|server| server.ends_with(&format!(":{}", port + offset)));
        // Connections have 600 s.
        wait_until(&format!("{round}: datagrams get there"), PATIENCE, || clients.iter().all(answered));
        connections.extend(ENDS.into_iter().flat_map(|port| [port; 6]).map(|port| stage.connect(VIP, port).unwrap()));
        let ended: Vec<&str> = connections.iter_mut().filter_map(|old| (!old.works()).then_some(old.server.as_str())).collect();
        assert!(ended.is_empty(), "{round}: {form:?} has cut connections to {ended:?}");
    }
    // IPVS gives what is no more its time only.
    if dataplane == "nftables" {
        stage.change_dataplane(dataplane, ", drainTimeout: 1s");
        publish_pods(&stage, &SERVERS[1..]);
        let (mut gone, mut others): (Vec<_>, Vec<_>) = connections.into_iter().partition(|old| old.server.starts_with(SERVERS[0]));
        wait_until("whatever had a host that is gone is reset", PATIENCE, || !gone.iter_mut().any(Connection::works));
        assert!(!gone.is_empty() && !others.is_empty() && others.iter_mut().all(Connection::works));
    }
    stage.drain();
}

/// By the address alone: neither the port of the client nor that of the VIP counts.
pub(crate) fn a_client_keeps_its_real_server_while_a_range_is_expanded_and_back(dataplane: &'static str) {
    let clients: Vec<String> = (2..26).map(|host| format!("10.99.0.{host}")).collect();
    let mut stage = Stage::with(dataplane, "kept", &SERVERS);
    clients.iter().skip(1).for_each(|client| drop(stage.client.ip(&format!("addr add {client}/24 dev eth0"))));
    ENDS.into_iter().for_each(|port| stage.answer_tcp(port));
    publish_pods(&stage, &SERVERS);
    let publish = |stage: &Stage, ports: &str| stage.publish("web", &eric("web", VIP, "pods", &[(ports, ports, "algo: sh")]));
    let listed = |stage: &Stage, set: &str| stage.router.output(&["nft", "list", "set", "inet", "vipherald", set]).matches(VIP).count();
    publish(&stage, EXPANDED);
    stage.start(", drainTimeout: 1s");
    stage.wait_for_vip(VIP, true);
    let choices = |stage: &Stage| -> BTreeMap<(String, u16), String> {
        let pairs = clients.iter().flat_map(|client| ENDS.map(|port| (client.clone(), port)));
        let choice = |(client, port): (String, u16)| {
            let server = Stage::connect_in(&stage.client, Some(&client), VIP, port).unwrap().server;
            ((client, port), server.split(':').next().unwrap_or_default().to_owned())
        };
        pairs.map(choice).collect()
    };
    let before = choices(&stage);
    assert!(before.values().collect::<std::collections::BTreeSet<_>>().len() == SERVERS.len(), "{before:?}");
    for (round, (ports, ranges)) in [(WHOLE, 1), (EXPANDED, 0)].into_iter().cycle().take(4).enumerate() {
        publish(&stage, ports);
        // While both forms are there, too.
        let mut seen = choices(&stage);
        let settled = |stage: &Stage| {
            listed(stage, "ranges4") == ranges && listed(stage, "services4") == 64 * (1 - ranges) && listed(stage, "closed4") == 0
        };
        wait_until(&format!("{round}: {ports} and nothing else"), PATIENCE, || {
            assert_eq!(seen, before, "{round}: on the way to {ports}");
            seen = choices(&stage);
            settled(&stage)
        });
        assert_eq!(choices(&stage), before, "{round}: {ports}");
    }
    stage.drain();
}
