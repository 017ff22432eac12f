// SPDX-License-Identifier: Apache-2.0
//! A peer that only dials us, without graceful restart: BIRD ends by `kill -9`, or its whole host is gone without a word, and it is back at once.
//! RFC 4271 §6.8: what it dials then meets the session that we still believe in. Needs root, and BIRD.

#![allow(clippy::unwrap_used, reason = "a failed test says where")]

mod common;

use std::collections::BTreeSet;
use std::io::Read as _;
use std::net::{Ipv4Addr, TcpListener};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bgp::peer::State;
use bgp::{Asn, BgpIdentifier, HoldTime, Prefix};
use common::{Namespace, Process, wait_until};
use tempfile::TempDir;
use vipherald::desired::{DesiredBgp, DesiredListen, DesiredPeer, RouteSet, Transport};
use vipherald::driver::bgp::{PeerStatus, Speaker};

const PATIENCE: Duration = Duration::from_secs(30);

/// The session is to be back long before a third of it, when a KEEPALIVE is due.
const HOLD: u16 = 90;

const OURS: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 1);
const THEIRS: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 2);

/// A host with BIRD, on a port of the switch.
struct Host {
    bird: Process,
    port: &'static str,
    files: TempDir,
    namespace: Namespace,
}

impl Host {
    fn new(switch: &Namespace, port: &'static str) -> Self {
        let namespace = Namespace::new(port);
        switch.veth(port, &namespace, "eth0");
        switch.ip(&format!("link set {port} master br0"));
        namespace.ip(&format!("address add {THEIRS}/24 dev eth0"));
        let files = TempDir::new().unwrap();
        let configuration = format!(
            "router id {THEIRS};\nlog stderr all;\nprotocol device {{}}\nprotocol bgp node {{\n  debug {{ states, events, packets }};\n\
             \x20 local {THEIRS} as 65001;\n  neighbor {OURS} as 65001;\n  direct;\n  graceful restart off;\n  hold time {HOLD};\n\
             \x20 connect delay time 1;\n  error wait time 1, 1;\n  ipv4 {{ import all; export none; }};\n}}\n"
        );
        std::fs::write(files.path().join("bird.conf"), configuration).unwrap();
        let bird = start(&namespace, &files);
        Self { bird, port, files, namespace }
    }

    /// Power is lost: nothing more comes from it.
    fn crash(self, switch: &Namespace) {
        switch.ip(&format!("link set {} down", self.port));
        drop(self);
    }

    fn kill_and_start_again(&mut self) {
        self.bird.kill();
        self.bird = start(&self.namespace, &self.files);
    }
}

fn start(namespace: &Namespace, files: &TempDir) -> Process {
    let mut command = namespace.command("bird");
    let path = |name: &str| files.path().join(name);
    command.arg("-f").arg("-c").arg(path("bird.conf")).arg("-s").arg(path("bird.ctl")).arg("-P").arg(path("bird.pid"));
    namespace.spawn(&mut command)
}

/// Us: whoever dials from the network is a neighbour.
fn speaker(node: &Namespace) -> Speaker {
    let speaker = node.run(|| Speaker::spawn("vipherald", 7)).unwrap();
    let template = DesiredPeer {
        transport: Transport { passive: true, ..Transport::default() },
        hold_time: HoldTime::from_secs(HOLD).unwrap(),
        graceful_restart: None,
        ..DesiredPeer::new(THEIRS.into(), Asn::new(65001).unwrap())
    };
    let prefixes = BTreeSet::from([Prefix::truncated(THEIRS.into(), 24).unwrap()]);
    let listen = DesiredListen { address: OURS.into(), port: 179, prefixes, limit: 8, template };
    let identifier = BgpIdentifier::try_from(OURS).ok();
    speaker
        .configure(Arc::new(DesiredBgp { router_id: identifier, listen: Some(listen), ..DesiredBgp::new(Asn::new(65001).unwrap()) }), None);
    let vip: RouteSet = [Prefix::host(Ipv4Addr::new(10, 1, 0, 1).into())].into_iter().collect();
    speaker.advertise(Arc::new(vip));
    speaker
}

fn session(speaker: &Speaker) -> Option<PeerStatus> {
    let status = speaker.status();
    status.peers.values().find(|peer| peer.state == State::Established).map(|peer| (**peer).clone())
}

/// Waits for a session that has come up after that, and says how long it took.
fn wait_for_session(speaker: &Speaker, after: Instant) -> Duration {
    let is_new = || session(speaker).is_some_and(|peer| peer.established_since.unwrap().instant > after);
    wait_until("a session", PATIENCE, is_new);
    after.elapsed()
}

#[test]
fn rfc4271_6_8_a_peer_that_is_back_after_a_crash_has_a_session_at_once() {
    let (node, switch) = (Namespace::new("node"), Namespace::new("switch"));
    switch.ip("link add br0 type bridge");
    switch.ip("link set br0 up");
    switch.veth("node", &node, "eth0");
    switch.ip("link set node master br0");
    node.ip(&format!("address add {OURS}/24 dev eth0"));
    let speaker = speaker(&node);
    let mut host = Host::new(&switch, "first");
    wait_for_session(&speaker, Instant::now());

    let killed = Instant::now();
    host.kill_and_start_again();
    let took = wait_for_session(&speaker, killed);
    // One second of BIRD's, in which our rest passes as well.
    assert!(took < Duration::from_secs(10), "after kill -9: {took:?}");

    host.crash(&switch);
    assert!(session(&speaker).is_some(), "nothing has told us");
    let crashed = Instant::now();
    let host = Host::new(&switch, "second");
    let took = wait_for_session(&speaker, crashed);
    assert!(took < Duration::from_secs(10), "after a crash of the host: {took:?}");
    let peer = session(&speaker).unwrap();
    assert_eq!(peer.last_error.unwrap().reason, "the peer reset the connection");
    assert_eq!(host.bird.log().matches("Connecting to").count(), 1, "it was taken at the first attempt:\n{}", host.bird.log());
}

/// What TCP is asked of a connection that is no session yet: the hold timer takes four minutes then (RFC 4271 §8.2.2, OpenSent).
#[test]
fn rfc1122_4_2_3_6_a_host_that_vanishes_before_its_open_is_noticed_within_a_minute() {
    let (node, switch, host) = (Namespace::new("node"), Namespace::new("switch"), Namespace::new("host"));
    switch.ip("link add br0 type bridge");
    switch.ip("link set br0 up");
    for (port, namespace, address) in [("node", &node, OURS), ("host", &host, THEIRS)] {
        switch.veth(port, namespace, "eth0");
        switch.ip(&format!("link set {port} master br0"));
        namespace.ip(&format!("address add {address}/24 dev eth0"));
    }
    let listener = host.run(|| TcpListener::bind((THEIRS, 179))).unwrap();
    let speaker = node.run(|| Speaker::spawn("vipherald", 7)).unwrap();
    let peers = [("host".to_owned(), DesiredPeer::new(THEIRS.into(), Asn::new(65001).unwrap()))].into();
    let identifier = BgpIdentifier::try_from(OURS).ok();
    speaker.configure(Arc::new(DesiredBgp { router_id: identifier, peers, ..DesiredBgp::new(Asn::new(65001).unwrap()) }), None);
    let (mut silent, _) = listener.accept().unwrap();
    // Our OPEN is there: nothing is outstanding.
    silent.read_exact(&mut [0; 29]).unwrap();
    let state = || speaker.status().peers.get("host").map(|peer| peer.state);
    wait_until("OpenSent", PATIENCE, || state() == Some(State::OpenSent));
    switch.ip("link set host down");
    let gone = Instant::now();
    wait_until("it is noticed", 2 * PATIENCE, || state() != Some(State::OpenSent));
    assert!(gone.elapsed() > Duration::from_secs(20), "a pause is survived: {:?}", gone.elapsed());
}
