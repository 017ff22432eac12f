// SPDX-License-Identifier: Apache-2.0
//! How the TCP connection comes to be, and what protects it.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use bgp::Prefix;
use tempfile::NamedTempFile;
use vipherald::desired::{DesiredBgp, DesiredPeer, Transport, Ttl};

use crate::common::{Namespace, wait_until};
use crate::peers::{Router, Setup, Software};
use crate::rig::{
    AS, OURS, OURS_V4, OURS_V6, PATIENCE, Rig, SESSIONS, THEIR_AS, THEIRS_V4, THEIRS_V6, both_sessions_over, is_up, listening, neighbour,
    peer, peer_of, prefix, reason, set, speaker_of, wait_for, wait_until_up,
};

const KEY: &str = "very-secret";
const OTHER_KEY: &str = "very-Secret";

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
    speaker.configure(both_sessions_over(&Transport { password_file: Some(file.path().to_owned()), ..Transport::default() }), None);
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
        speaker.configure(both_sessions_over(&Transport { ttl, ..Transport::default() }), None);
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
    speaker.configure(both_sessions_over(&Transport { ttl: Ttl::Multihop(2), ..Transport::default() }), None);
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
    speaker.configure(Arc::new(DesiredBgp { listen, ..DesiredBgp::clone(&speaker_of(AS, [])) }), None);
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

/// RFC 4271 §6.8: the peer dials first, and nobody can speak until we have dialled too. Whatever either side makes of that, it ends with one session.
pub(crate) fn both_dial(software: Software) {
    let rig = Rig::dual_stack("crossed");
    let data = ["sport", "dport"].map(|port| format!("tcp {port} 179 tcp flags & psh == psh drop; ")).concat();
    drop_packets(&rig.ours, &data, &format!("{data} tcp dport 179 tcp flags & (syn | ack) == syn drop;"));
    let setup = Setup { neighbours: vec![OURS_V4.into()], dials: true, ..peer_of(AS, AS) };
    let router = Router::start(software, &rig.theirs, setup);
    let speaker = rig.speaker();
    speaker.advertise(set(["10.0.0.7"]));
    let known = neighbour(THEIRS_V4.into(), AS);
    let listen = listening(Ipv4Addr::UNSPECIFIED.into(), [], known.clone());
    speaker.configure(Arc::new(DesiredBgp { listen, ..DesiredBgp::clone(&speaker_of(AS, [("v4", known)])) }), None);
    wait_until("it has dialled us", PATIENCE, || connections(&rig.ours) == 1);
    drop_packets(&rig.ours, &data, &data);
    wait_until("we have dialled it", PATIENCE, || counter(&rig.theirs, "TcpPassiveOpens") > 0);
    drop_packets(&rig.ours, "", "");
    wait_until("one connection is a session", PATIENCE, || {
        let is_learned = router.learned(OURS_V4.into(), prefix("10.0.0.7")).is_some();
        is_learned && connections(&rig.ours) == 1 && is_up(&speaker.status(), "v4")
    });
}

/// Drops at a host what these rules say of packets that come in and that go out, and nothing else any more.
fn drop_packets(host: &Namespace, incoming: &str, outgoing: &str) {
    let chain = |hook, rules| format!("chain {hook} {{ type filter hook {hook} priority 0; {rules} }}; ");
    let chains = chain("input", incoming) + &chain("output", outgoing);
    host.nft(&format!("table ip dropped\ndelete table ip dropped\ntable ip dropped {{ {chains} }}"));
}

/// How many connections of BGP are open at a host.
fn connections(host: &Namespace) -> usize {
    host.output(&["ss", "-Htn", "state", "established", "( sport = :179 or dport = :179 )"]).lines().count()
}

/// A counter of the kernel in this namespace.
fn counter(namespace: &Namespace, name: &str) -> u64 {
    namespace.output(&["nstat", "-asz", name]).split_whitespace().nth(2).unwrap_or_default().parse().unwrap_or_default()
}
