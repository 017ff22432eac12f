// SPDX-License-Identifier: Apache-2.0
//! The speaker as the route reflector of a rack (RFC 4456), between real routers in network namespaces of their own, side by side on one switch: two
//! clients, and a ToR that takes every path (RFC 7911).

#![allow(clippy::unwrap_used, reason = "a failed test says where")]

mod common;
#[path = "common/daemons.rs"]
mod daemons;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

use bgp::peer::State;
use bgp::wire::AddPathMode;
use bgp::{Asn, BgpIdentifier, Family, HoldTime, Prefix};
use common::{Namespace, wait_until};
use daemons::{Router, Setup, Software};
use vipherald::desired::{DesiredBgp, DesiredExport, DesiredListen, DesiredPeer, PeerAddress, Transport};
use vipherald::driver::bgp::{Speaker, SpeakerStatus};

/// How long anything may take, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

const AS: u32 = 65001;

/// The last octets of the hosts' addresses.
const REFLECTOR: u8 = 1;
const CLIENT_A: u8 = 2;
const CLIENT_B: u8 = 3;
const TOR: u8 = 254;

const fn v4(host: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 99, 0, host)
}

fn v6(host: u8) -> Ipv6Addr {
    Ipv6Addr::new(0x2001, 0xdb8, 0x99, 0, 0, 0, 0, host.into())
}

/// Next hops in the family of the prefix.
fn hops(prefix: Prefix, hosts: &[u8]) -> BTreeSet<IpAddr> {
    let hop = |host: &u8| if prefix.address().is_ipv4() { IpAddr::V4(v4(*host)) } else { IpAddr::V6(v6(*host)) };
    hosts.iter().map(hop).collect()
}

/// A VIP for each family.
fn vips(number: u8) -> [Prefix; 2] {
    [Ipv4Addr::new(10, 0, 0, number).into(), Ipv6Addr::new(0x2001, 0xdb8, 7, 0, 0, 0, 0, number.into()).into()].map(Prefix::host)
}

/// One switch and who is on it.
struct Rack {
    hosts: BTreeMap<u8, Namespace>,
    _switch: Namespace,
}

impl Rack {
    fn new(hosts: &[u8]) -> Self {
        let switch = Namespace::new("switch");
        switch.ip("link add rack type bridge");
        switch.ip("link set rack up");
        let host = |number: &u8| {
            let namespace = Namespace::new(&format!("rr-{number}"));
            let port = format!("port{number}");
            namespace.veth("eth0", &switch, &port);
            switch.ip(&format!("link set {port} master rack"));
            namespace.ip(&format!("address add {}/24 dev eth0", v4(*number)));
            namespace.ip(&format!("address add {}/64 dev eth0", v6(*number)));
            (*number, namespace)
        };
        Self { hosts: hosts.iter().map(host).collect(), _switch: switch }
    }

    fn speaker(&self) -> Speaker {
        self.hosts[&REFLECTOR].run(|| Speaker::spawn(7)).unwrap()
    }

    /// A router whose only neighbour is the reflector.
    fn router(&self, host: u8, announced: impl IntoIterator<Item = Prefix>, add_paths: bool) -> Router {
        let setup = Setup {
            asn: AS,
            router_id: v4(host),
            neighbour_asn: AS,
            neighbours: vec![v4(REFLECTOR).into()],
            password: None,
            ttl_security: None,
            announced: announced.into_iter().collect(),
            add_paths,
        };
        Router::start(Software::Bird, &self.hosts[&host], setup)
    }
}

fn neighbour(host: u8) -> DesiredPeer {
    DesiredPeer {
        address: PeerAddress::Known(v4(host).into()),
        port: 179,
        transport: Transport::default(),
        asn: Asn::new(AS).unwrap(),
        families: BTreeSet::from(Family::ALL),
        hold_time: HoldTime::from_secs(9).unwrap(),
        connect_retry: Duration::from_secs(1),
        restart_time: None,
        export: DesiredExport::default(),
        reflector_client: false,
        add_path: None,
        keep_received: 0,
    }
}

/// Client A is configured, client B a dynamic one, the ToR no client.
fn reflector() -> Arc<DesiredBgp> {
    let client = DesiredPeer { reflector_client: true, ..neighbour(CLIENT_A) };
    let template = DesiredPeer { transport: Transport { passive: true, ..Transport::default() }, ..client.clone() };
    let prefixes = BTreeSet::from([Prefix::host(v4(CLIENT_B).into())]);
    let tor = DesiredPeer { add_path: Some(AddPathMode::Send), ..neighbour(TOR) };
    Arc::new(DesiredBgp {
        asn: Asn::new(AS).unwrap(),
        router_id: None,
        cluster_id: BgpIdentifier::try_from(Ipv4Addr::new(192, 0, 2, 9)).ok(),
        listen: Some(DesiredListen { address: Ipv4Addr::UNSPECIFIED.into(), port: 179, prefixes, limit: 8, template }),
        peers: [("a", client), ("tor", tor)].map(|(name, peer)| (name.to_owned(), peer)).into(),
    })
}

fn is_up(status: &SpeakerStatus, name: &str) -> bool {
    status.peers.get(name).is_some_and(|peer| peer.state == State::Established)
}

fn wait_until_learned(router: &Router, prefix: Prefix, hosts: &[u8]) {
    let expected = hops(prefix, hosts);
    wait_until(&format!("{prefix} has the next hops {expected:?}"), PATIENCE, || {
        router.next_hops(v4(REFLECTOR).into(), prefix) == expected
    });
}

#[test]
fn tor_has_every_path_with_its_next_hop_and_loses_exactly_that_of_the_client_that_dies() {
    let rack = Rack::new(&[REFLECTOR, CLIENT_A, CLIENT_B, TOR]);
    let (shared, of_a, ours) = (vips(7), vips(8), vips(9));
    let mut a = rack.router(CLIENT_A, shared.into_iter().chain(of_a), false);
    let b = rack.router(CLIENT_B, shared, false);
    let tor = rack.router(TOR, [], true);
    let speaker = rack.speaker();
    speaker.advertise(Arc::new(BTreeSet::from(ours)));
    speaker.configure(reflector());
    let dynamic = format!("dynamic:{}", v4(CLIENT_B));
    let names = ["a", "tor", &dynamic];
    wait_until("the sessions are up", PATIENCE, || names.iter().all(|name| is_up(&speaker.status(), name)));
    for family in 0..2 {
        wait_until_learned(&tor, shared[family], &[CLIENT_A, CLIENT_B]);
        wait_until_learned(&tor, of_a[family], &[CLIENT_A]);
        wait_until_learned(&b, of_a[family], &[CLIENT_A]);
        for router in [&a, &b, &tor] {
            wait_until_learned(router, ours[family], &[REFLECTOR]);
        }
    }
    let details = tor.details(v4(REFLECTOR).into(), of_a[0]);
    assert!(details.contains(&format!("BGP.originator_id: {}", v4(CLIENT_A))), "{details}");
    assert!(details.contains("BGP.cluster_list: 192.0.2.9"), "{details}");
    let before = speaker.status();
    assert_eq!(before.peers["a"].held, BTreeMap::from([(Family::Ipv4Unicast, 2), (Family::Ipv6Unicast, 2)]));

    a.kill();
    for family in 0..2 {
        let left = hops(shared[family], &[CLIENT_B]);
        wait_until("the path of the client is gone", PATIENCE, || {
            let now = tor.next_hops(v4(REFLECTOR).into(), shared[family]);
            assert!(now.is_superset(&left), "the other path went too: {now:?}");
            now == left
        });
        wait_until_learned(&tor, of_a[family], &[]);
        wait_until_learned(&b, of_a[family], &[]);
        wait_until_learned(&tor, ours[family], &[REFLECTOR]);
    }

    // A VIP of ours goes; routes of others do not hold up its withdrawal.
    speaker.advertise(Arc::default());
    wait_until("the withdrawal is acknowledged", PATIENCE, || speaker.status().withdrawing().is_empty());
    for family in 0..2 {
        wait_until_learned(&tor, ours[family], &[]);
        wait_until_learned(&tor, shared[family], &[CLIENT_B]);
    }
    let after = speaker.status();
    for name in ["tor", &dynamic] {
        assert_eq!(after.peers[name].established_since, before.peers[name].established_since, "{name}");
    }
}

#[test]
fn a_route_of_ours_gives_way_to_that_of_a_client() {
    let rack = Rack::new(&[REFLECTOR, CLIENT_A, TOR]);
    let shared = vips(7);
    let _a = rack.router(CLIENT_A, shared, false);
    let tor = rack.router(TOR, [], false);
    let speaker = rack.speaker();
    speaker.advertise(Arc::new(BTreeSet::from(shared)));
    let mut desired = DesiredBgp::clone(&reflector());
    desired.listen = None;
    desired.peers.get_mut("tor").unwrap().add_path = None;
    speaker.configure(Arc::new(desired));
    wait_until("the sessions are up", PATIENCE, || ["a", "tor"].iter().all(|name| is_up(&speaker.status(), name)));
    wait_until("the client's routes are held", PATIENCE, || speaker.status().peers["a"].held.values().all(|count| *count == 1));
    for prefix in shared {
        wait_until_learned(&tor, prefix, &[REFLECTOR]);
    }
    speaker.advertise(Arc::default());
    wait_until("nothing is withdrawing", PATIENCE, || speaker.status().withdrawing().is_empty());
    for prefix in shared {
        wait_until_learned(&tor, prefix, &[CLIENT_A]);
    }
}
