// SPDX-License-Identifier: Apache-2.0
//! How the TCP connection comes to be, and what protects it.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use bgp::Prefix;
use tempfile::NamedTempFile;
use vipherald::desired::{DesiredBgp, DesiredPeer, Transport, Ttl};
use vipherald::driver::bgp::Speaker;

use crate::common::{Namespace, wait_until};
use crate::peers::{Router, Setup, Software};
use crate::rig::{
    AS, OURS, OURS_V4, OURS_V6, PATIENCE, Rig, SESSIONS, THEIR_AS, THEIRS_V4, THEIRS_V6, both_sessions_over, is_up, listening, neighbour,
    peer, peer_of, prefix, reason, set, speaker_of, wait_for, wait_until_up,
};

const KEY: &str = "very-secret";
const OTHER_KEY: &str = "very-Secret";

/// Packets of TCP by which we dial.
const FROM_US_SYN: &str = "ip saddr 10.99.0.1 tcp flags & (syn | ack) == syn";
/// Packets with octets of BGP.
const DATA: &str = "tcp flags & psh == psh";
/// Packets with one KEEPALIVE: 19 octets behind the header of TCP with its time stamps.
const KEEPALIVE: &str = "ip length 71";

fn wait_until_learned(router: &Router) {
    for ours in OURS {
        wait_until("the route is learned", PATIENCE, || router.learned(ours, prefix("10.0.0.7")).is_some());
    }
}

/// RFC 2385: no session with another key; one as soon as the file has the right one, and so again when the peer has a new one.
pub(crate) fn tcp_md5(software: Software) {
    let rig = Rig::dual_stack("md5");
    let mut router = Router::start(software, &rig.theirs, Setup { password: Some(KEY), ..peer_of(THEIR_AS, AS) });
    let file = NamedTempFile::new().unwrap();
    std::fs::write(&file, OTHER_KEY).unwrap();
    let speaker = rig.speaker();
    speaker.advertise(set(["10.0.0.7"]));
    speaker.configure(both_sessions_over(&Transport { password_file: Some(file.path().to_owned()), ..Transport::default() }));
    for (name, _) in SESSIONS {
        let status = wait_for("the attempt fails", &speaker, |status| reason(status, name).contains("TCP-MD5"));
        assert_eq!(peer(&status, name).counters.established, 0);
    }
    std::fs::write(&file, format!("{KEY}\n")).unwrap();
    wait_until_up(&speaker);
    wait_until_learned(&router);

    router.restart_as(|setup| setup.password = Some(OTHER_KEY));
    std::fs::write(&file, OTHER_KEY).unwrap();
    wait_for("both sessions are up again", &speaker, |status| {
        SESSIONS.iter().all(|(name, _)| is_up(status, name) && peer(status, name).counters.established == 2)
    });
    wait_until_learned(&router);
}

/// RFC 5082: its host drops our packets while they say that they may have come from far away; else it takes ours, and we take its.
pub(crate) fn ttl_security(software: Software) {
    let with_peer = |tag: &str, ttl: Ttl| {
        let rig = Rig::dual_stack(tag);
        let router = Router::start(software, &rig.theirs, Setup { ttl_security: Some(1), ..peer_of(THEIR_AS, AS) });
        let speaker = rig.speaker();
        speaker.advertise(set(["10.0.0.7"]));
        speaker.configure(both_sessions_over(&Transport { ttl, ..Transport::default() }));
        (rig, router, speaker)
    };
    let (rig, router, _speaker) = with_peer("far", Ttl::Customary);
    wait_until("packets are dropped", PATIENCE, || counter(&rig.theirs, "TcpExtTCPMinTTLDrop") > 0);
    assert!(OURS.iter().all(|ours| router.count(*ours) == 0));
    let (_rig, router, speaker) = with_peer("near", Ttl::Security { hops: 1 });
    wait_until_up(&speaker);
    wait_until_learned(&router);
}

/// An external peer behind another router.
pub(crate) fn multihop(software: Software) {
    let rig = Rig::two_hops("hops");
    let router = Router::start(software, &rig.theirs, Setup { multihop: Some(2), ..peer_of(THEIR_AS, AS) });
    let speaker = rig.speaker();
    speaker.advertise(set(["10.0.0.7"]));
    speaker.configure(both_sessions_over(&Transport { ttl: Ttl::Multihop(2), ..Transport::default() }));
    wait_until_up(&speaker);
    wait_until_learned(&router);
}

/// It dials us; who comes from a prefix is a peer, and is forgotten when it goes.
pub(crate) fn dynamic_over_ipv4(software: Software) {
    dynamic(software, OURS_V4.into(), THEIRS_V4.into());
}

/// As [`dynamic_over_ipv4`].
pub(crate) fn dynamic_over_ipv6(software: Software) {
    dynamic(software, OURS_V6.into(), THEIRS_V6.into());
}

fn dynamic(software: Software, ours: IpAddr, theirs: IpAddr) {
    let rig = Rig::dual_stack("dynamic");
    let file = NamedTempFile::new().unwrap();
    std::fs::write(&file, OTHER_KEY).unwrap();
    let transport = Transport { passive: true, password_file: Some(file.path().to_owned()), ..Transport::default() };
    let template = DesiredPeer { transport, ..neighbour(theirs, THEIR_AS) };
    let (any, length) = if ours.is_ipv4() { (IpAddr::from([0; 4]), 24) } else { (IpAddr::from([0; 16]), 64) };
    let speaker = rig.speaker();
    let vip = if ours.is_ipv4() { "10.0.0.7" } else { "2001:db8:7::7" };
    speaker.advertise(set([vip]));
    let listen = listening(any, Prefix::truncated(theirs, length), template);
    speaker.configure(Arc::new(DesiredBgp { listen, ..DesiredBgp::clone(&speaker_of(AS, [])) }));
    let setup = Setup { neighbours: vec![ours], password: Some(KEY), dials: true, ..peer_of(THEIR_AS, AS) };
    let mut router = Router::start(software, &rig.theirs, setup);
    let refused = || counter(&rig.ours, "TcpExtTCPMD5Failure") > 0;
    wait_until("the peer has dialled in vain", PATIENCE, || refused() || !speaker.status().peers.is_empty());
    assert!(speaker.status().peers.is_empty());

    std::fs::write(&file, KEY).unwrap();
    let name = format!("dynamic:{theirs}");
    wait_for("the session is up", &speaker, |status| is_up(status, &name));
    wait_until("the route is learned", PATIENCE, || router.learned(ours, prefix(vip)).is_some());
    router.kill();
    wait_for("it is forgotten", &speaker, |status| status.peers.is_empty());
}

/// The peer dials first, and nobody can speak until we have dialled too: one connection becomes the session.
pub(crate) fn both_dial(software: Software) {
    let crossed = Crossed::new(software, THEIRS_V4);
    hold_back(&crossed.rig.ours, &[]);
    crossed.wait_until_it_is_a_session();
}

/// RFC 4271 §6.8: no KEEPALIVE passes until both connections have seen their OPENs; that of the side with the higher identifier stays.
pub(crate) fn collision(software: Software) {
    for (identifier, theirs_is_higher) in [(THEIRS_V4, true), (Ipv4Addr::new(1, 1, 1, 1), false)] {
        let crossed = Crossed::new(software, identifier);
        let ours = &crossed.rig.ours;
        assert_eq!(connections(ours).len(), 2);
        hold_back(ours, &[KEEPALIVE]);
        wait_until("one of them is given up", PATIENCE, || connections(ours).len() == 1);
        // The other one, which not both sides may have closed yet, stays without a KEEPALIVE.
        let Connection { port, dialled_by_it } = connections(ours).pop().unwrap();
        hold_back_except(port, ours, &[KEEPALIVE]);
        assert_eq!(dialled_by_it, theirs_is_higher);
        crossed.wait_until_it_is_a_session();
        assert_eq!(connections(ours), [Connection { port, dialled_by_it }]);
        assert_eq!(peer(&crossed.speaker.status(), "v4").counters.established, 1);
    }
}

/// Two speakers that have both dialled, and cannot speak.
struct Crossed {
    speaker: Speaker,
    router: Router,
    rig: Rig,
}

impl Crossed {
    fn new(software: Software, its_identifier: Ipv4Addr) -> Self {
        let rig = Rig::dual_stack("crossed");
        hold_back(&rig.ours, &[FROM_US_SYN, DATA]);
        let setup = Setup { neighbours: vec![OURS_V4.into()], router_id: its_identifier, dials: true, ..peer_of(AS, AS) };
        let router = Router::start(software, &rig.theirs, setup);
        let speaker = rig.speaker();
        speaker.advertise(set(["10.0.0.7"]));
        let known = neighbour(THEIRS_V4.into(), AS);
        let listen = listening(Ipv4Addr::UNSPECIFIED.into(), [], known.clone());
        speaker.configure(Arc::new(DesiredBgp { listen, ..DesiredBgp::clone(&speaker_of(AS, [("v4", known)])) }));
        wait_until("it has dialled us", PATIENCE, || connections(&rig.ours).len() == 1);
        hold_back(&rig.ours, &[DATA]);
        wait_until("we have dialled it", PATIENCE, || counter(&rig.theirs, "TcpPassiveOpens") > 0);
        Self { speaker, router, rig }
    }

    fn wait_until_it_is_a_session(&self) {
        wait_for("the session is up", &self.speaker, |status| is_up(status, "v4"));
        wait_until("the route is learned", PATIENCE, || self.router.learned(OURS_V4.into(), prefix("10.0.0.7")).is_some());
        wait_until("one connection is left", PATIENCE, || connections(&self.rig.ours).len() == 1);
        assert!(is_up(&self.speaker.status(), "v4"));
    }
}

/// Drops packets of BGP that match any of these, either way, and no others any more.
fn hold_back(namespace: &Namespace, matching: &[&str]) {
    hold_back_except(0, namespace, matching);
}

/// As [`hold_back`], but for the connection whose other port is this.
fn hold_back_except(port: u16, namespace: &Namespace, matching: &[&str]) {
    let rule = |words| format!("th sport 179 th dport != {port} {words} drop; th dport 179 th sport != {port} {words} drop; ");
    let rules: String = matching.iter().map(rule).collect();
    let chains = ["input", "output"].map(|hook| format!("chain {hook} {{ type filter hook {hook} priority 0; {rules} }}; ")).concat();
    namespace.nft(&format!("table ip held_back\ndelete table ip held_back\ntable ip held_back {{ {chains} }}"));
}

/// A connection that is open.
#[derive(Debug, Eq, PartialEq)]
struct Connection {
    /// That of the side that dialled; the other one is 179.
    port: u16,
    dialled_by_it: bool,
}

/// The connections of BGP that are open at our end.
fn connections(ours: &Namespace) -> Vec<Connection> {
    let output = ours.output(&["ss", "-Htn", "state", "established", "( sport = :179 or dport = :179 )"]);
    let port = |end: Option<&str>| end.and_then(|end| end.rsplit(':').next()?.parse::<u16>().ok());
    let connection = |line: &str| {
        let mut ends = line.split_whitespace().skip(2);
        let (near, far) = (port(ends.next())?, port(ends.next())?);
        Some(Connection { port: if near == 179 { far } else { near }, dialled_by_it: near == 179 })
    };
    output.lines().filter_map(connection).collect()
}

/// A counter of the kernel in this namespace.
fn counter(namespace: &Namespace, name: &str) -> u64 {
    namespace.output(&["nstat", "-asz", name]).split_whitespace().nth(2).unwrap_or_default().parse().unwrap_or_default()
}
