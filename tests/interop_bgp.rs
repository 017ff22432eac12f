// SPDX-License-Identifier: Apache-2.0
//! The speaker with real routers, each in a network namespace of its own: what they learn is what we meant to tell them.

#![allow(clippy::unwrap_used, reason = "a failed test says where")]

mod common;
#[path = "common/daemons.rs"]
mod daemons;

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

use bgp::peer::State;
use bgp::rib::Withheld;
use bgp::wire::community;
use bgp::{Asn, BgpIdentifier, Family, HoldTime, Prefix};
use common::{Namespace, wait_until};
use daemons::{Learned, Router, Setup, Software};
use vipherald::desired::{DesiredBgp, DesiredExport, DesiredListen, DesiredPeer, PeerAddress, Transport, Ttl};
use vipherald::driver::bgp::{Direction, Operation, PeerRoutes, PeerStatus, Question, RoutesOf, Speaker, SpeakerStatus};

/// How long anything may take, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

const OURS_V4: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 1);
const THEIRS_V4: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 2);
const OURS_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0x99, 0, 0, 0, 0, 1);
const THEIRS_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0x99, 0, 0, 0, 0, 2);

/// Our AS towards external peers: one that takes four octets.
const LARGE_AS: u32 = 4_200_000_001;

/// Our node and the router's, side by side on one link.
struct Rig {
    ours: Namespace,
    theirs: Namespace,
}

impl Rig {
    fn new(tag: &str) -> Self {
        let rig = Self { ours: Namespace::new(&format!("{tag}-n")), theirs: Namespace::new(&format!("{tag}-r")) };
        rig.ours.veth("eth0", &rig.theirs, "eth0");
        rig
    }

    fn dual_stack(tag: &str) -> Self {
        let rig = Self::new(tag);
        for (namespace, v4, v6) in [(&rig.ours, OURS_V4, OURS_V6), (&rig.theirs, THEIRS_V4, THEIRS_V6)] {
            namespace.ip(&format!("address add {v4}/24 dev eth0"));
            namespace.ip(&format!("address add {v6}/64 dev eth0"));
        }
        rig
    }

    fn speaker(&self) -> Speaker {
        self.ours.run(|| Speaker::spawn(7)).unwrap()
    }
}

fn router_of(asn: u32, neighbour_asn: u32) -> Setup {
    Setup {
        asn,
        router_id: THEIRS_V4,
        neighbour_asn,
        neighbours: vec![OURS_V4.into(), OURS_V6.into()],
        password: None,
        ttl_security: None,
        announced: Vec::new(),
        add_paths: false,
    }
}

fn neighbour(address: IpAddr, asn: u32) -> DesiredPeer {
    DesiredPeer {
        address: PeerAddress::Known(address),
        port: 179,
        transport: Transport::default(),
        asn: Asn::new(asn).unwrap(),
        families: BTreeSet::from(Family::ALL),
        hold_time: HoldTime::from_secs(9).unwrap(),
        connect_retry: Duration::from_secs(1),
        restart_time: None,
        export: DesiredExport { local_preference: 200, med: Some(50), ..DesiredExport::default() },
        reflector_client: false,
        add_path: None,
        keep_received: 0,
    }
}

/// Sessions named after the family of their transport.
fn both_sessions(asn: u32, their_asn: u32) -> Arc<DesiredBgp> {
    let peers = [("v4", IpAddr::V4(THEIRS_V4)), ("v6", IpAddr::V6(THEIRS_V6))];
    speaker_of(asn, peers.map(|(name, address)| (name, neighbour(address, their_asn))))
}

fn speaker_of<'a>(asn: u32, peers: impl IntoIterator<Item = (&'a str, DesiredPeer)>) -> Arc<DesiredBgp> {
    Arc::new(DesiredBgp {
        asn: Asn::new(asn).unwrap(),
        router_id: None,
        cluster_id: None,
        listen: None,
        peers: peers.into_iter().map(|(name, peer)| (name.to_owned(), peer)).collect(),
    })
}

fn prefix(address: &str) -> Prefix {
    Prefix::host(address.parse().unwrap())
}

fn set<'a>(addresses: impl IntoIterator<Item = &'a str>) -> Arc<BTreeSet<Prefix>> {
    Arc::new(addresses.into_iter().map(prefix).collect())
}

/// `count` VIPs of each family.
fn many(count: u16) -> Arc<BTreeSet<Prefix>> {
    let v4 = (0..count).map(|number| Prefix::host(Ipv4Addr::from_bits(0x0A01_0000 + u32::from(number)).into()));
    let v6 = (0..count).map(|number| Prefix::host(Ipv6Addr::new(0x2001, 0xdb8, 7, 0, 0, 0, 0, number).into()));
    Arc::new(v4.chain(v6).collect())
}

fn peer<'a>(status: &'a SpeakerStatus, name: &str) -> &'a PeerStatus {
    status.peers.get(name).unwrap_or_else(|| panic!("no peer {name}: {status:#?}"))
}

fn is_up(status: &SpeakerStatus, name: &str) -> bool {
    status.peers.get(name).is_some_and(|peer| peer.state == State::Established)
}

fn wait_for(what: &str, speaker: &Speaker, wanted: impl Fn(&SpeakerStatus) -> bool) -> Arc<SpeakerStatus> {
    wait_until(what, PATIENCE, || wanted(&speaker.status()));
    speaker.status()
}

fn wait_until_up(speaker: &Speaker) -> Arc<SpeakerStatus> {
    wait_for("both sessions are up", speaker, |status| is_up(status, "v4") && is_up(status, "v6"))
}

/// The whole life of two sessions, over IPv4 and over IPv6, each with both families.
fn life_of_two_sessions(software: Software, our_asn: u32, their_asn: u32) {
    let rig = Rig::dual_stack(&format!("{software:?}"));
    let mut router = Router::start(software, &rig.theirs, router_of(their_asn, our_asn));
    let speaker = rig.speaker();
    speaker.advertise(set(["10.0.0.7", "10.0.0.8", "2001:db8:7::7", "2001:db8:7::8"]));
    speaker.configure(both_sessions(our_asn, their_asn));
    let status = wait_until_up(&speaker);
    assert_eq!(status.router_id, BgpIdentifier::try_from(OURS_V4).ok());

    let expected = expected_routes(our_asn, their_asn);
    for neighbour in [OURS_V4.into(), OURS_V6.into()] {
        for (address, route) in &expected {
            wait_until_learned(&router, neighbour, prefix(address), route, our_asn == their_asn);
        }
        wait_until(&format!("End-of-RIB of {neighbour}"), PATIENCE, || router.has_end_of_ribs(neighbour));
    }

    speaker.advertise(set(["10.0.0.7", "2001:db8:7::7"]));
    wait_for("the withdrawals are acknowledged", &speaker, |status| status.withdrawing().is_empty());
    for (neighbour, gone) in
        [(OURS_V4.into(), "10.0.0.8"), (OURS_V6.into(), "10.0.0.8"), (OURS_V4.into(), "2001:db8:7::8"), (OURS_V6.into(), "2001:db8:7::8")]
    {
        wait_until(&format!("{gone} is withdrawn from {neighbour}"), PATIENCE, || router.learned(neighbour, prefix(gone)).is_none());
    }
    if software != Software::GoBgp {
        refresh(&router, &speaker);
    }

    router.restart(&rig.theirs);
    wait_for("the sessions come up again", &speaker, |status| {
        ["v4", "v6"].iter().all(|name| is_up(status, name) && peer(status, name).counters.established > 1)
    });
    for neighbour in [OURS_V4.into(), OURS_V6.into()] {
        wait_until("the routes are back", PATIENCE, || router.count(neighbour) == 2);
    }

    speaker.stop();
    wait_for("all is closed", &speaker, |status| status.configured.is_none() && status.open_sessions() == 0);
    wait_until("the routes are gone", PATIENCE, || [OURS_V4.into(), OURS_V6.into()].iter().all(|neighbour| router.count(*neighbour) == 0));
}

/// What the router is to learn, over either transport.
fn expected_routes(our_asn: u32, their_asn: u32) -> Vec<(&'static str, Learned)> {
    let internal = our_asn == their_asn;
    let route = |next_hop: IpAddr| Learned {
        next_hop,
        as_path: if internal { Vec::new() } else { vec![our_asn] },
        is_igp: true,
        local_preference: internal.then_some(200),
        med: Some(50),
    };
    vec![("10.0.0.7", route(OURS_V4.into())), ("10.0.0.8", route(OURS_V4.into())), ("2001:db8:7::7", route(OURS_V6.into()))]
}

fn wait_until_learned(router: &Router, neighbour: IpAddr, prefix: Prefix, expected: &Learned, internal: bool) {
    wait_until(&format!("{prefix} is learned from {neighbour}"), PATIENCE, || router.learned(neighbour, prefix).is_some());
    let mut learned = router.learned(neighbour, prefix).unwrap();
    if !internal {
        // Some routers show their own default for an external peer's route.
        assert_ne!(learned.local_preference, Some(200), "LOCAL_PREF went to an external peer");
        learned.local_preference = None;
    }
    assert_eq!(learned, *expected, "{prefix} from {neighbour}");
}

/// RFC 2918: the router asks for everything again, and gets it on the session that there is.
fn refresh(router: &Router, speaker: &Speaker) {
    let before = speaker.status();
    for neighbour in [OURS_V4.into(), OURS_V6.into()] {
        router.ask_for_refresh(neighbour);
    }
    for name in ["v4", "v6"] {
        let old = peer(&before, name);
        let status = wait_for("the refresh is answered", speaker, |status| {
            let counters = &peer(status, name).counters;
            counters.received.route_refresh >= 2 && counters.sent.update >= old.counters.sent.update + 2
        });
        assert_eq!(peer(&status, name).established_since, old.established_since);
    }
    for neighbour in [OURS_V4.into(), OURS_V6.into()] {
        wait_until("the routes are still there", PATIENCE, || router.count(neighbour) == 2);
    }
}

/// RFC 2918, RFC 7313: everything is exchanged anew on the session that there is; what the peer tells is kept to be looked at.
fn soft_reset(software: Software) {
    let rig = Rig::dual_stack(&format!("soft-{software:?}"));
    let announced = vec![prefix("192.0.2.77"), prefix("2001:db8:77::1")];
    let router = Router::start(software, &rig.theirs, Setup { announced: announced.clone(), ..router_of(65001, 65001) });
    let speaker = rig.speaker();
    speaker.advertise(set(["10.0.0.7", "2001:db8:7::7"]));
    // FRR 8.4 answers a refresh only after its End-of-RIB, and sends that only to who has graceful restart.
    let keeping = |peer: DesiredPeer| DesiredPeer { keep_received: 10, restart_time: Some(120), ..peer };
    speaker.configure(speaker_of(65001, [("v4", keeping(neighbour(THEIRS_V4.into(), 65001)))]));
    wait_for("the session is up", &speaker, |status| is_up(status, "v4"));
    let ours = IpAddr::from(OURS_V4);
    wait_until("the routes are learned", PATIENCE, || router.count(ours) == 2);
    let held = || peer(&speaker.status(), "v4").held.values().sum::<u32>();
    wait_until("the peer's routes are kept", PATIENCE, || held() as usize == announced.len());
    let since = peer(&speaker.status(), "v4").established_since;
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let soft = |direction| {
        let order = speaker.operator();
        runtime.block_on(order.operate("v4", Operation::SoftReset { direction })).unwrap()
    };

    let before = router.updates_received(ours);
    assert_eq!(soft(Direction::Out), "is told all of ipv4-unicast and ipv6-unicast again, between BoRR and EoRR (RFC 7313)");
    wait_until("the peer was told again", PATIENCE, || router.updates_received(ours) >= before + 2);
    assert_eq!(router.count(ours), 2);

    let before = peer(&speaker.status(), "v4").counters.clone();
    assert_eq!(soft(Direction::In), "is asked for all of ipv4-unicast and ipv6-unicast (ROUTE-REFRESH, RFC 2918)");
    wait_for("the peer tells again, between marks", &speaker, |status| {
        let received = &peer(status, "v4").counters.received;
        let updates = u64::try_from(announced.len()).unwrap();
        received.route_refresh >= before.received.route_refresh + 2 && received.update >= before.received.update + updates
    });
    let question = Question { of: RoutesOf::Received, only: None };
    let PeerRoutes::Received { routes: Some(routes), omitted: 0, .. } =
        runtime.block_on(speaker.operator().routes("v4", question)).unwrap()
    else {
        panic!("nothing is kept")
    };
    assert_eq!(routes.iter().map(|(nlri, _)| nlri.prefix).collect::<Vec<_>>(), announced);
    assert!(routes.iter().all(|(_, held)| !held.stale), "{routes:?}");
    let status = speaker.status();
    assert_eq!((peer(&status, "v4").established_since, peer(&status, "v4").counters.established), (since, 1));
}

#[test]
fn bird_soft_reset() {
    soft_reset(Software::Bird);
}

#[test]
fn frr_soft_reset() {
    soft_reset(Software::Frr);
}

#[test]
fn bird_internal() {
    life_of_two_sessions(Software::Bird, 65001, 65001);
}

#[test]
fn bird_external_with_four_octet_as() {
    life_of_two_sessions(Software::Bird, LARGE_AS, 65000);
}

#[test]
fn frr_internal() {
    life_of_two_sessions(Software::Frr, 65001, 65001);
}

#[test]
fn frr_external_with_four_octet_as() {
    life_of_two_sessions(Software::Frr, LARGE_AS, 65000);
}

#[test]
fn gobgp_internal() {
    life_of_two_sessions(Software::GoBgp, 65001, 65001);
}

#[test]
fn gobgp_external_with_four_octet_as() {
    life_of_two_sessions(Software::GoBgp, LARGE_AS, 65000);
}

#[test]
fn openbgpd_internal() {
    life_of_two_sessions(Software::OpenBgpd, 65001, 65001);
}

#[test]
fn openbgpd_external_with_four_octet_as() {
    life_of_two_sessions(Software::OpenBgpd, LARGE_AS, 65000);
}

/// RFC 4271 §6.2: neither side takes a peer of another AS than configured, and the status names the reason.
fn wrong_as(software: Software, expected_by_them: u32, expected_by_us: u32, reason: &str) {
    let rig = Rig::dual_stack("wrong-as");
    let _router = Router::start(software, &rig.theirs, router_of(65000, expected_by_them));
    let speaker = rig.speaker();
    speaker.advertise(set(["10.0.0.7"]));
    speaker.configure(both_sessions(65001, expected_by_us));
    for name in ["v4", "v6"] {
        let status = wait_for("the attempt fails", &speaker, |status| {
            status.peers.get(name).and_then(|peer| peer.last_error.as_ref()).is_some_and(|error| error.reason.contains("Bad Peer AS"))
        });
        let error = &peer(&status, name).last_error.as_ref().unwrap().reason;
        assert!(error.contains(reason), "{error}");
        assert_eq!(peer(&status, name).counters.established, 0);
    }
}

#[test]
fn bird_expects_another_as() {
    wrong_as(Software::Bird, 65009, 65000, "the peer refused our OPEN: OPEN Message Error/Bad Peer AS");
}

#[test]
fn frr_expects_another_as() {
    wrong_as(Software::Frr, 65009, 65000, "the peer refused our OPEN: OPEN Message Error/Bad Peer AS");
}

#[test]
fn bird_is_in_another_as() {
    wrong_as(Software::Bird, 65001, 65009, "the peer is in AS 65000, not in 65009 as configured");
}

/// Both sessions, each with this transport.
fn both_sessions_over(transport: &Transport) -> Arc<DesiredBgp> {
    let mut desired = (*both_sessions(65001, 65000)).clone();
    desired.peers.values_mut().for_each(|peer| peer.transport = transport.clone());
    Arc::new(desired)
}

/// RFC 2385: no session with another key, one with the same.
fn tcp_md5(software: Software) {
    let rig = Rig::dual_stack("md5");
    let router = Router::start(software, &rig.theirs, Setup { password: Some("very-secret"), ..router_of(65000, 65001) });
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(&file, "very-Secret\n").unwrap();
    let speaker = rig.speaker();
    speaker.advertise(set(["10.0.0.7"]));
    speaker.configure(both_sessions_over(&Transport { password_file: Some(file.path().to_owned()), ..Transport::default() }));
    for name in ["v4", "v6"] {
        let status = wait_for("the attempt fails", &speaker, |status| {
            status.peers.get(name).and_then(|peer| peer.last_error.as_ref()).is_some_and(|error| error.reason.contains("TCP-MD5"))
        });
        assert_eq!(peer(&status, name).counters.established, 0);
    }
    std::fs::write(&file, "very-secret\n").unwrap();
    wait_until_up(&speaker);
    for neighbour in [OURS_V4.into(), OURS_V6.into()] {
        wait_until("the route is learned", PATIENCE, || router.learned(neighbour, prefix("10.0.0.7")).is_some());
    }
}

#[test]
fn bird_tcp_md5() {
    tcp_md5(Software::Bird);
}

#[test]
fn frr_tcp_md5() {
    tcp_md5(Software::Frr);
}

/// RFC 5082: the router takes our packets, and we take its.
fn ttl_security(software: Software) {
    let rig = Rig::dual_stack("gtsm");
    let router = Router::start(software, &rig.theirs, Setup { ttl_security: Some(1), ..router_of(65000, 65001) });
    let speaker = rig.speaker();
    speaker.advertise(set(["10.0.0.7"]));
    speaker.configure(both_sessions_over(&Transport { ttl: Ttl::Security { hops: 1 }, ..Transport::default() }));
    wait_until_up(&speaker);
    for neighbour in [OURS_V4.into(), OURS_V6.into()] {
        wait_until("the route is learned", PATIENCE, || router.learned(neighbour, prefix("10.0.0.7")).is_some());
    }
}

#[test]
fn bird_ttl_security() {
    ttl_security(Software::Bird);
}

#[test]
fn frr_ttl_security() {
    ttl_security(Software::Frr);
}

/// The router dials us, signed with the key of a whole prefix: a dynamic peer; with another key there is none.
fn dynamic_peer(software: Software, ours: IpAddr, theirs: IpAddr) {
    let rig = Rig::dual_stack("dynamic");
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(&file, "very-Secret\n").unwrap();
    let transport = Transport { passive: true, password_file: Some(file.path().to_owned()), ..Transport::default() };
    let template = DesiredPeer { transport, ..neighbour(theirs, 65000) };
    let (any, length) = if ours.is_ipv4() { (IpAddr::from([0; 4]), 24) } else { (IpAddr::from([0; 16]), 64) };
    let prefixes = BTreeSet::from([Prefix::truncated(theirs, length).unwrap()]);
    let listen = DesiredListen { address: any, port: 179, prefixes, limit: 8, template };
    let speaker = rig.speaker();
    speaker.advertise(set(["10.0.0.7", "2001:db8:7::7"]));
    speaker.configure(Arc::new(DesiredBgp { listen: Some(listen), ..(*speaker_of(65001, [])).clone() }));
    let setup = Setup { neighbours: vec![ours], password: Some("very-secret"), ..router_of(65000, 65001) };
    let mut router = Router::start(software, &rig.theirs, setup);
    let dials = || {
        let drops = rig.ours.output(&["nstat", "-asz", "TcpExtTCPMD5Failure"]);
        drops.split_whitespace().nth(2).is_some_and(|count| count != "0")
    };
    wait_until("the router has dialled in vain", PATIENCE, || dials() || !speaker.status().peers.is_empty());
    assert!(speaker.status().peers.is_empty());

    std::fs::write(&file, "very-secret\n").unwrap();
    let name = format!("dynamic:{theirs}");
    wait_for("the session is up", &speaker, |status| is_up(status, &name));
    for address in ["10.0.0.7", "2001:db8:7::7"] {
        wait_until("the route is learned", PATIENCE, || router.learned(ours, prefix(address)).is_some());
    }
    router.kill();
    wait_for("it is forgotten", &speaker, |status| status.peers.is_empty());
}

#[test]
fn bird_dynamic_peer() {
    dynamic_peer(Software::Bird, OURS_V4.into(), THEIRS_V4.into());
}

#[test]
fn bird_dynamic_peer_over_ipv6() {
    dynamic_peer(Software::Bird, OURS_V6.into(), THEIRS_V6.into());
}

#[test]
fn frr_dynamic_peer() {
    dynamic_peer(Software::Frr, OURS_V4.into(), THEIRS_V4.into());
}

#[test]
fn frr_dynamic_peer_over_ipv6() {
    dynamic_peer(Software::Frr, OURS_V6.into(), THEIRS_V6.into());
}

#[test]
fn source_and_interface_are_those_configured() {
    let rig = Rig::dual_stack("source");
    rig.ours.ip("address add 10.99.0.9/24 dev eth0");
    let neighbours = vec!["10.99.0.9".parse().unwrap()];
    let router = Router::start(Software::Bird, &rig.theirs, Setup { neighbours, ..router_of(65001, 65001) });
    let transport = |source: Option<&str>, interface: &str| Transport {
        source: source.map(|source| source.parse().unwrap()),
        interface: Some(interface.to_owned()),
        ..Transport::default()
    };
    let configured = |transport| speaker_of(65001, [("v4", DesiredPeer { transport, ..neighbour(THEIRS_V4.into(), 65001) })]);
    let speaker = rig.speaker();
    speaker.advertise(set(["10.0.0.7"]));
    speaker.configure(configured(transport(Some("10.99.0.9"), "eth0")));
    let status = wait_for("the session is up", &speaker, |status| is_up(status, "v4"));
    assert_eq!(peer(&status, "v4").local_address, Some("10.99.0.9".parse().unwrap()));
    wait_until("the route is learned", PATIENCE, || router.learned("10.99.0.9".parse().unwrap(), prefix("10.0.0.7")).is_some());

    let fails = |reason: &str| {
        wait_for(reason, &speaker, |status| {
            let error = status.peers.get("v4").and_then(|peer| peer.last_error.as_ref());
            error.is_some_and(|error| error.reason.contains(reason))
        });
    };
    speaker.configure(configured(transport(Some("10.99.0.9"), "lo")));
    fails("did not answer");
    speaker.configure(configured(transport(Some("10.0.0.7"), "eth0")));
    fails("the configured source 10.0.0.7 is a VIP");
}

#[test]
fn a_node_without_ipv4_has_sessions_and_a_router_id() {
    let rig = Rig::new("v6-only");
    rig.ours.ip(&format!("address add {OURS_V6}/64 dev eth0"));
    rig.theirs.ip(&format!("address add {THEIRS_V6}/64 dev eth0"));
    let router = Router::start(Software::Bird, &rig.theirs, Setup { neighbours: vec![OURS_V6.into()], ..router_of(65001, 65001) });
    let speaker = rig.speaker();
    speaker.advertise(set(["10.0.0.7", "2001:db8:7::7"]));
    speaker.configure(speaker_of(65001, [("v6", neighbour(THEIRS_V6.into(), 65001))]));
    let status = wait_for("the session is up and told", &speaker, |status| is_up(status, "v6") && peer(status, "v6").advertised == 1);
    assert!(status.router_id.is_some());
    assert_eq!(peer(&status, "v6").withheld.get(&prefix("10.0.0.7")), Some(&Withheld::NoNextHop(Family::Ipv4Unicast)));
    wait_until("the IPv6 route is learned", PATIENCE, || router.learned(OURS_V6.into(), prefix("2001:db8:7::7")).is_some());
    assert_eq!(router.count(OURS_V6.into()), 1);
}

#[test]
fn a_router_id_is_waited_for_and_never_a_vip() {
    let rig = Rig::new("late");
    rig.ours.ip("address add 10.0.0.7/32 dev lo");
    rig.ours.ip("address add 10.0.0.8/32 dev eth0");
    let speaker = rig.speaker();
    speaker.advertise(set(["10.0.0.7", "10.0.0.8"]));
    speaker.configure(speaker_of(65001, [("v4", neighbour(THEIRS_V4.into(), 65001))]));
    rig.theirs.ip(&format!("address add {THEIRS_V4}/24 dev eth0"));
    let router = Router::start(Software::Bird, &rig.theirs, router_of(65001, 65001));
    assert_eq!(speaker.status().router_id, None);
    assert!(speaker.status().peers.is_empty());
    rig.ours.ip(&format!("address add {OURS_V4}/24 dev eth0"));
    let status = wait_for("the session is up", &speaker, |status| is_up(status, "v4"));
    assert_eq!(status.router_id, BgpIdentifier::try_from(OURS_V4).ok());
    wait_until("the routes are learned", PATIENCE, || router.count(OURS_V4.into()) == 2);
}

#[test]
fn vips_come_and_go_without_touching_the_sessions() {
    let rig = Rig::dual_stack("churn");
    let router = Router::start(Software::Frr, &rig.theirs, router_of(65001, 65001));
    let speaker = rig.speaker();
    speaker.advertise(many(0));
    speaker.configure(both_sessions(65001, 65001));
    let before = wait_until_up(&speaker);
    for round in 0..20 {
        speaker.advertise(many(500));
        if round % 2 == 0 {
            wait_for("all are told", &speaker, |status| ["v4", "v6"].iter().all(|name| peer(status, name).advertised == 1000));
        }
        speaker.advertise(many(20));
        wait_for("the others are withdrawn", &speaker, |status| status.withdrawing().is_empty());
    }
    for neighbour in [OURS_V4.into(), OURS_V6.into()] {
        wait_until("exactly the last set is learned", PATIENCE, || router.count(neighbour) == 40);
    }
    let after = speaker.status();
    for name in ["v4", "v6"] {
        assert_eq!(peer(&after, name).established_since, peer(&before, name).established_since);
        assert_eq!(peer(&after, name).counters.sent.notification + peer(&after, name).counters.received.notification, 0);
    }
}

#[test]
fn bird_sees_another_policy_in_the_same_session() {
    let rig = Rig::dual_stack("policy");
    let router = Router::start(Software::Bird, &rig.theirs, router_of(65000, LARGE_AS));
    let speaker = rig.speaker();
    speaker.advertise(set(["10.0.0.7", "2001:db8:7::7"]));
    speaker.configure(both_sessions(LARGE_AS, 65000));
    let before = wait_until_up(&speaker);
    let routes = [(OURS_V4.into(), prefix("10.0.0.7")), (OURS_V6.into(), prefix("2001:db8:7::7"))];
    for (neighbour, prefix) in routes {
        wait_until("the route is learned", PATIENCE, || router.learned(neighbour, prefix).is_some());
        assert_eq!(router.bird_attribute(neighbour, prefix, "BGP.community"), None);
    }

    let mut desired = (*both_sessions(LARGE_AS, 65000)).clone();
    for peer in desired.peers.values_mut() {
        peer.export = DesiredExport {
            med: Some(7),
            prepend: 2,
            communities: BTreeSet::from([65_001 << 16 | 100, community::GRACEFUL_SHUTDOWN]),
            large_communities: BTreeSet::from([[LARGE_AS, 1, 2]]),
            ..DesiredExport::default()
        };
    }
    speaker.configure(Arc::new(desired));
    for (neighbour, prefix) in routes {
        wait_until("the community is seen", PATIENCE, || {
            router.bird_attribute(neighbour, prefix, "BGP.community").as_deref() == Some("(65001,100) (65535,0)")
        });
        let large = router.bird_attribute(neighbour, prefix, "BGP.large_community");
        assert_eq!(large.as_deref(), Some(format!("({LARGE_AS}, 1, 2)").as_str()));
        let learned = router.learned(neighbour, prefix).unwrap();
        assert_eq!((learned.as_path, learned.med), (vec![LARGE_AS; 3], Some(7)));
    }
    for name in ["v4", "v6"] {
        assert_eq!(peer(&speaker.status(), name).established_since, peer(&before, name).established_since);
    }
}

#[test]
fn next_hops_follow_the_nodes_addresses_in_the_same_session() {
    const MOVED_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0x99, 0, 0, 0, 0, 9);
    let rig = Rig::dual_stack("moved");
    let router = Router::start(Software::Bird, &rig.theirs, router_of(65001, 65001));
    let speaker = rig.speaker();
    speaker.advertise(set(["2001:db8:7::7"]));
    speaker.configure(speaker_of(65001, [("v4", neighbour(THEIRS_V4.into(), 65001))]));
    let status = wait_for("the session is up", &speaker, |status| is_up(status, "v4"));
    let next_hop = || router.learned(OURS_V4.into(), prefix("2001:db8:7::7")).map(|learned| learned.next_hop);
    wait_until("the route is learned", PATIENCE, || next_hop() == Some(OURS_V6.into()));
    rig.ours.ip(&format!("address del {OURS_V6}/64 dev eth0"));
    wait_until("the route without next hop is withdrawn", PATIENCE, || next_hop().is_none());
    rig.ours.ip(&format!("address add {MOVED_V6}/64 dev eth0"));
    wait_until("the route has the new next hop", PATIENCE, || next_hop() == Some(MOVED_V6.into()));
    assert_eq!(peer(&speaker.status(), "v4").established_since, peer(&status, "v4").established_since);
}
