// SPDX-License-Identifier: Apache-2.0
//! Traffic while long ranges of ports are split, become one again, and pass from one object to another.
//!
//! Input: the dataplane. Invariants: a connection goes on with its real server, whichever range has its port from then on, and so does a client that sends
//! datagrams from one socket; nothing is refused meanwhile. Whoever calls it has a kernel with what that dataplane needs.

use std::collections::BTreeSet;
use std::net::UdpSocket;
use std::thread;
use std::time::Duration;

use super::{PATIENCE, PORTS, SERVERS, Scene, Traffic, advertised, answer};
use crate::common::{Namespace, wait_until};
use crate::stage::{Stage, VIP, eric};

/// Which ranges the two objects of a VIP have, one after the other.
const STORIES: [[&[&str]; 2]; 9] = [
    [&["70-9999", "10000-20999"], &[]],
    [&["70-20999"], &[]],
    // A part of it passes to the other object.
    [&["70-9999"], &["10000-20999"]],
    [&["1-20449"], &["20450-21000"]],
    [&[], &["70-20999"]],
    // One port is taken out of the middle.
    [&["70-15000", "15002-20999"], &[]],
    [&["70-9999", "10000-19999", "20000-30000"], &[]],
    [&["60-15000"], &["15001-20999"]],
    [&["70-20999"], &[]],
];

/// TCP connections, and a socket for UDP in either half of the ports.
pub(crate) fn no_error_while_ranges_are_split_and_joined(dataplane: &'static str) {
    let mut stage = Stage::with(dataplane, "split", &SERVERS);
    answer(&stage.servers, &PORTS);
    echo(&stage.servers);
    Scene::publish_pods(&stage, &SERVERS);
    publish(&stage, [&["70-20999"], &[]]);
    // Whoever meets a port that nobody serves is told so at once.
    stage.start(", drainTimeout: 600s, unservedPorts: reject");
    stage.wait_for_vip(VIP, true);
    let traffic = Traffic::start(&stage.client);
    let mut clients: Vec<Datagrams> = PORTS.iter().flat_map(|port| [*port; 4]).map(|port| Datagrams::start(&stage.client, port)).collect();
    traffic.goes_on();
    let before = advertised(&stage);
    for ranges in STORIES {
        publish(&stage, ranges);
        let wanted: BTreeSet<String> =
            ranges.into_iter().flatten().flat_map(|ports| ["tcp", "udp"].map(|protocol| format!("{VIP} . {protocol} . {ports}"))).collect();
        wait_until(&format!("{wanted:?} and nothing else"), PATIENCE, || elements(&stage, "ranges4") == wanted);
        traffic.goes_on();
        clients.iter_mut().for_each(|client| client.goes_on(&format!("{ranges:?}")));
    }
    assert_eq!(advertised(&stage), before, "the VIP was withdrawn");
    let nothing = |set: &str| elements(&stage, set).is_empty();
    wait_until("nothing is pending or closed", PATIENCE, || {
        ["pending-ranges4", "pending-marks4", "closed4", "closed-ranges4"].into_iter().all(nothing)
    });
    traffic.finish(&format!("{dataplane}: ranges are split and joined"), &[]);
    stage.change_dataplane(dataplane, ", drainTimeout: 100ms");
    wait_until("what has no ports any more is gone", PATIENCE, || nothing("retired4"));
    if dataplane == "ipvs" {
        wait_until("nothing of it is left", PATIENCE, || stage.table().matches("FWM").count() == 2);
    }
    stage.drain();
}

/// The elements of a set or map of the record.
fn elements(stage: &Stage, name: &str) -> BTreeSet<String> {
    let kind = if name.contains("marks") { "map" } else { "set" };
    let listed = stage.router.output(&["nft", "-y", "list", kind, "inet", "vipherald", name]);
    let elements = listed.split_once("elements = {").map(|(_, rest)| rest.split('}').next().unwrap_or_default()).unwrap_or_default();
    elements.split(',').map(|element| element.trim().to_owned()).filter(|element| !element.is_empty()).collect()
}

fn publish(stage: &Stage, [web, other]: [&[&str]; 2]) {
    let object = |name: &str, ranges: &[&str]| {
        let mappings = ranges.iter().flat_map(|ports| [(*ports, *ports, "algo: rr"), (*ports, *ports, "algo: rr, protocol: udp")]);
        if ranges.is_empty() { String::new() } else { eric(name, VIP, "pods", &mappings.collect::<Vec<_>>()) }
    };
    stage.publish("web", &(object("web", web) + &object("other", other)));
}

/// Each real server answers datagrams with its address.
fn echo(servers: &Namespace) {
    for (server, port) in SERVERS.into_iter().flat_map(|server| PORTS.map(|port| (server, port))) {
        let socket = servers.run(|| UdpSocket::bind((server, port)).unwrap());
        thread::spawn(move || {
            while let Ok((_, client)) = socket.recv_from(&mut [0; 8]) {
                socket.send_to(server.as_bytes(), client).ok();
            }
        });
    }
}

/// A client that sends from one socket.
struct Datagrams {
    socket: UdpSocket,
    server: String,
}

impl Datagrams {
    fn start(client: &Namespace, port: u16) -> Self {
        let socket = client.run(|| UdpSocket::bind("0.0.0.0:0").unwrap());
        socket.connect((VIP, port)).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        let mut client = Self { socket, server: String::new() };
        client.server = client.ask().unwrap();
        client
    }

    fn ask(&self) -> std::io::Result<String> {
        let mut answer = [0; 32];
        self.socket.send(b"?")?;
        let length = self.socket.recv(&mut answer)?;
        Ok(String::from_utf8_lossy(answer.get(..length).unwrap_or_default()).into_owned())
    }

    /// The same real server answers.
    fn goes_on(&mut self, when: &str) {
        let answer = self.ask();
        assert!(answer.as_ref().is_ok_and(|server| *server == self.server), "{when}: {answer:?} instead of {}", self.server);
    }
}
