// SPDX-License-Identifier: Apache-2.0
//! Route reflection either way (RFC 4456), and several paths to one destination (RFC 7911). The other nodes of the rack are speakers of ours.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use bgp::wire::AddPathMode;
use bgp::{BgpIdentifier, Family, Prefix};
use vipherald::desired::{DesiredBgp, DesiredPeer, Transport};
use vipherald::driver::bgp::Speaker;

use crate::common::wait_until;
use crate::peers::{Router, Setup, Software};
use crate::rig::{AS, PATIENCE, Rack, is_up, listening, neighbour, speaker_of, v4, v6, wait_for};

/// We, as the node that the test is about.
const US: u8 = 1;
/// The peer.
const IT: u8 = 2;
/// Two more nodes.
const A: u8 = 3;
const B: u8 = 4;

const CLUSTER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 9);

/// A VIP of each family.
fn vips(number: u8) -> [Prefix; 2] {
    [v4_vip(number).into(), std::net::Ipv6Addr::new(0x2001, 0xdb8, 7, 0, 0, 0, 0, number.into()).into()].map(Prefix::host)
}

const fn v4_vip(number: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, 0, number)
}

/// Next hops in the family of the prefix.
fn hops(prefix: Prefix, hosts: &[u8]) -> BTreeSet<IpAddr> {
    let hop = |host: &u8| if prefix.address().is_ipv4() { IpAddr::V4(v4(*host)) } else { IpAddr::V6(v6(*host)) };
    hosts.iter().map(hop).collect()
}

fn internal(host: u8) -> DesiredPeer {
    neighbour(v4(host).into(), AS)
}

/// A client of ours.
fn client(host: u8) -> DesiredPeer {
    DesiredPeer { reflector_client: true, ..internal(host) }
}

/// The peer, with these neighbours.
fn it(software: Software, rack: &Rack, neighbours: &[u8], setup: impl FnOnce(Setup) -> Setup) -> Router {
    let neighbours: Vec<IpAddr> = neighbours.iter().map(|host| v4(*host).into()).collect();
    Router::start(software, rack.host(IT), setup(Setup::new(AS, v4(IT), AS, neighbours)))
}

/// A node that announces these VIPs to one internal peer, the host `to`.
fn announcer(rack: &Rack, host: u8, to: u8, vips: impl IntoIterator<Item = Prefix>) -> Speaker {
    let speaker = rack.speaker(host);
    speaker.advertise(Arc::new(vips.into_iter().collect()));
    speaker.configure(speaker_of(AS, [("reflector", internal(to))]), None);
    speaker
}

/// We reflect to A, which is a configured client, and to B, a dynamic one.
fn reflector(it: DesiredPeer) -> Arc<DesiredBgp> {
    let template = DesiredPeer { transport: Transport { passive: true, ..Transport::default() }, ..client(B) };
    let listen = listening(Ipv4Addr::UNSPECIFIED.into(), [Prefix::host(v4(B).into())], template);
    let cluster_id = BgpIdentifier::try_from(CLUSTER).ok();
    Arc::new(DesiredBgp { cluster_id, listen, ..DesiredBgp::clone(&speaker_of(AS, [("a", client(A)), ("it", it)])) })
}

fn wait_until_learned(router: &Router, from: u8, prefix: Prefix, hosts: &[u8]) {
    let expected = hops(prefix, hosts);
    let learned = || router.next_hops(v4(from).into(), prefix);
    wait_until(&format!("{prefix} has the next hops {expected:?}"), PATIENCE, || learned() == expected);
}

fn wait_until_held(speaker: &Speaker, name: &str, each: u32) {
    let expected = BTreeMap::from(Family::ALL.map(|family| (family, each)));
    wait_for(&format!("{each} routes of {name} in each family"), speaker, |status| {
        status.peers.get(name).is_some_and(|peer| peer.held == expected)
    });
}

/// The peer is a client of ours: it hears of the other client with the attributes of a reflector, and the other client of it.
pub(crate) fn by_us(software: Software) {
    let rack = Rack::new("we-reflect", &[US, IT, A]);
    let (of_a, of_it, shared) = (vips(7), vips(8), vips(9));
    let mut router = it(software, &rack, &[US], |setup| setup);
    router.announce(of_it.into());
    let a = announcer(&rack, A, US, of_a.into_iter().chain(shared));
    // It keeps what it hears only if it is a reflector itself.
    a.configure(speaker_of(AS, [("reflector", internal(US)), ("absent", client(77))]), None);
    let us = rack.speaker(US);
    us.advertise(Arc::new(shared.into_iter().collect()));
    us.configure(reflector(client(IT)), None);
    for prefix in of_a {
        wait_until_learned(&router, US, prefix, &[A]);
        let learned = router.learned(v4(US).into(), prefix).unwrap();
        assert_eq!((learned.originator, learned.clusters), (Some(v4(A)), vec![CLUSTER]));
    }
    wait_until_held(&us, "it", 1);
    // Its routes and the shared ones, which are ours first.
    wait_until_held(&a, "reflector", 2);
    for prefix in shared {
        wait_until_learned(&router, US, prefix, &[US]);
    }
    us.advertise(Arc::default());
    wait_for("nothing is withdrawing", &us, |status| status.withdrawing().is_empty());
    for prefix in shared {
        wait_until_learned(&router, US, prefix, &[A]);
    }
    wait_until_held(&a, "reflector", 1);
    router.announce(BTreeSet::new());
    wait_until_held(&a, "reflector", 0);
}

/// We are a client of the peer, and so is A: what A announces reaches us, and leaves us again.
pub(crate) fn by_it(software: Software) {
    let rack = Rack::new("it-reflects", &[US, IT, A]);
    let _router = it(software, &rack, &[US, A], |setup| Setup { reflects: true, ..setup });
    let a = announcer(&rack, A, IT, vips(7).into_iter().chain(vips(8)));
    let us = rack.speaker(US);
    // FRR would reflect ours to us, to be ignored.
    us.advertise(Arc::default());
    us.configure(speaker_of(AS, [("it", internal(IT)), ("absent", client(77))]), None);
    wait_until_held(&us, "it", 2);
    a.advertise(Arc::new(vips(8).into_iter().collect()));
    wait_until_held(&us, "it", 1);
    a.stop();
    wait_until_held(&us, "it", 0);
}

/// RFC 7911: the peer, no client, has the paths of both clients and ours; when a client dies it loses exactly that client's.
pub(crate) fn add_path_to_it(software: Software) {
    let rack = Rack::new("paths-out", &[US, IT, A, B]);
    let shared = vips(7);
    let router = it(software, &rack, &[US], |setup| Setup { add_paths: true, ..setup });
    let a = announcer(&rack, A, US, shared);
    let b = announcer(&rack, B, US, shared);
    let us = rack.speaker(US);
    us.advertise(Arc::new(shared.into_iter().collect()));
    us.configure(reflector(DesiredPeer { add_path: Some(AddPathMode::Send), ..internal(IT) }), None);
    let dynamic = format!("dynamic:{}", v4(B));
    let before = wait_for("all sessions are up", &us, |status| ["a", "it", dynamic.as_str()].iter().all(|name| is_up(status, name)));
    for prefix in shared {
        wait_until_learned(&router, US, prefix, &[US, A, B]);
        let path = router.paths(v4(US).into(), prefix).into_iter().find(|path| hops(prefix, &[A]).contains(&path.next_hop)).unwrap();
        assert_eq!((path.originator, path.clusters), (Some(v4(A)), vec![CLUSTER]));
    }

    drop(a);
    for prefix in shared {
        let left = hops(prefix, &[US, B]);
        wait_until("the path of A is gone", PATIENCE, || {
            let now = router.next_hops(v4(US).into(), prefix);
            assert!(now.is_superset(&left), "another path went too: {now:?}");
            now == left
        });
    }
    // A VIP of ours goes; routes of others do not hold up its withdrawal.
    us.advertise(Arc::default());
    wait_for("the withdrawal is acknowledged", &us, |status| status.withdrawing().is_empty());
    for prefix in shared {
        wait_until_learned(&router, US, prefix, &[B]);
    }
    for name in ["it", &dynamic] {
        assert_eq!(us.status().peers[name].established_since, before.peers[name].established_since, "{name}");
    }
    drop(b);
}

/// RFC 7911: the peer tells us two paths to each VIP, and withdraws them one by one.
pub(crate) fn add_path_to_us(software: Software) {
    let rack = Rack::new("paths-in", &[US, IT, A, B]);
    let shared = vips(7);
    let us = rack.speaker(US);
    us.advertise(Arc::default());
    us.configure(
        speaker_of(AS, [("it", DesiredPeer { add_path: Some(AddPathMode::Receive), ..internal(IT) }), ("absent", client(77))]),
        None,
    );
    if software == Software::ExaBgp {
        // It reflects nothing, and announces two paths of its own.
        let mut router = it(software, &rack, &[US], |setup| Setup { add_paths: true, ..setup });
        router.announce(shared.into());
        wait_until_held(&us, "it", 2);
        router.announce(BTreeSet::new());
        wait_until_held(&us, "it", 0);
        return;
    }
    let _router = it(software, &rack, &[US, A, B], |setup| Setup { add_paths: true, reflects: true, ..setup });
    let _a = announcer(&rack, A, IT, shared);
    let b = announcer(&rack, B, IT, shared);
    wait_until_held(&us, "it", 2);
    b.advertise(Arc::default());
    wait_until_held(&us, "it", 1);
}
