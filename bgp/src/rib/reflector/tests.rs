// SPDX-License-Identifier: Apache-2.0
//! What a reflector makes of what its peers tell; and what those peers are told of it.

mod egress;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::*;
use crate::identity::{Asn, BgpIdentifier, HoldTime};
use crate::prefix::Family;
use crate::rib::receiver::{Receiver, changes};
use crate::rib::{AdjRibOut, Export, Learned, LocalAddresses, Source, Target};
use crate::wire::{AsPath, AsPathSegment, Negotiated, NextHop, PathAttribute, community};

fn asn(number: u32) -> Asn {
    Asn::new(number).unwrap()
}

fn identifier(number: u32) -> BgpIdentifier {
    BgpIdentifier::new(number).unwrap()
}

fn vip(last: u8) -> Prefix {
    Prefix::host(IpAddr::V4(Ipv4Addr::new(192, 0, 2, last)))
}

fn one(prefix: Prefix) -> Nlri {
    Nlri::from(prefix)
}

/// What one peer told: the next hop is its address.
fn route_of(peer: u32, internal: bool, client: bool, change: impl FnOnce(&mut Route, &mut Learned)) -> Arc<Route> {
    let address = Ipv4Addr::from_bits(0x0a00_0000 + peer);
    let source = Source { peer: PeerId(peer), address: address.into(), identifier: identifier(peer), internal, client };
    let mut learned = Learned::new(Arc::new(source), NextHop::V4(address));
    let mut route = Route { local_preference: Some(100), ..Route::originated() };
    change(&mut route, &mut learned);
    route.learned = Some(learned);
    Arc::new(route)
}

fn of_client(peer: u32) -> Arc<Route> {
    route_of(peer, true, true, |_, _| ())
}

fn negotiated(remote_asn: u32, add_path: bool) -> Negotiated {
    Negotiated {
        four_octet_as: true,
        families: Family::ALL.into(),
        add_path_send: if add_path { Family::ALL.into() } else { [].into() },
        hold_time: HoldTime::from_secs(9).unwrap(),
        remote_asn: asn(remote_asn),
        internal: remote_asn == 65001,
        ..Negotiated::before_open(asn(65001))
    }
}

/// A peer of the reflector that is told things.
struct Told {
    adj_rib_out: AdjRibOut,
    receiver: Receiver,
    /// Every path it holds, by what the octets say.
    paths: BTreeMap<Nlri, (Vec<PathAttribute>, NextHop)>,
}

impl Told {
    fn new(peer: u32, client: bool, negotiated: Negotiated) -> Self {
        let target =
            Target { peer: PeerId(peer), address: Ipv4Addr::from_bits(0x0a00_0000 + peer).into(), client, cluster_id: identifier(0xC1) };
        let local = LocalAddresses { ipv4: Some(Ipv4Addr::new(10, 9, 9, 9)), ipv6: Some(Ipv6Addr::LOCALHOST), ..LocalAddresses::NONE };
        let receiver = Receiver::new(&negotiated);
        let mut adj_rib_out = AdjRibOut::new(Export::default(), target, negotiated, local);
        adj_rib_out.set(&LocRib::default());
        Self { adj_rib_out, receiver, paths: BTreeMap::new() }
    }

    fn client(peer: u32) -> Self {
        Self::new(peer, true, negotiated(65001, false))
    }

    fn take(&mut self, changes: &Changes) {
        self.adj_rib_out.apply(changes);
        self.flush();
    }

    fn flush(&mut self) {
        let batch = self.adj_rib_out.next(0, usize::MAX);
        let known = self.receiver.updates.len();
        self.receiver.receive(&batch.octets);
        for update in &self.receiver.updates[known..] {
            for nlri in &update.withdrawn {
                assert!(self.paths.remove(nlri).is_some(), "withdrawn, but never told: {nlri}");
            }
            for nlri in &update.announced {
                let next_hop = changes(update).0[0].1;
                let attributes = update.attributes.iter().filter(|attribute| !matches!(attribute, PathAttribute::NextHop(_)));
                self.paths.insert(*nlri, (attributes.cloned().collect(), next_hop));
            }
        }
    }

    /// The next hops by which it reaches a destination.
    fn next_hops(&self, prefix: Prefix) -> Vec<NextHop> {
        let mut next_hops: Vec<_> =
            self.paths.iter().filter(|(nlri, _)| nlri.prefix == prefix).map(|(_, (_, next_hop))| *next_hop).collect();
        next_hops.sort();
        next_hops
    }
}

fn hop(peer: u32) -> NextHop {
    NextHop::V4(Ipv4Addr::from_bits(0x0a00_0000 + peer))
}

#[test]
fn rfc4456_section_6_client_to_all_non_client_to_clients_and_never_back() {
    let mut reflector = Reflector::default();
    let mut told =
        [Told::client(1), Told::client(2), Told::new(3, false, negotiated(65001, false)), Told::new(4, false, negotiated(65001, false))];
    let from_client = reflector.learn(PeerId(1), &[(one(vip(1)), Some(of_client(1)))]);
    let from_other = reflector.learn(PeerId(3), &[(one(vip(3)), Some(route_of(3, true, false, |_, _| ())))]);
    for peer in &mut told {
        peer.take(&from_client);
        peer.take(&from_other);
    }
    let held = told.map(|peer| peer.receiver.held());
    assert_eq!(held, [[vip(3)].into(), [vip(1), vip(3)].into(), [vip(1)].into(), [vip(1)].into()]);
}

#[test]
fn rfc4456_section_8_and_10_originator_once_cluster_in_front_and_all_else_as_it_came() {
    let mut reflector = Reflector::default();
    let path = AsPath(vec![AsPathSegment::Sequence(vec![asn(65009)])]);
    let as_told = |route: &mut Route, _: &mut Learned| {
        (route.med, route.local_preference, route.as_path) = (Some(7), Some(150), path.clone());
        route.communities.insert(0xFDE9_0001);
        route.extended_communities.insert(0x4004_FDE9_4E95_02F9);
    };
    let mut peer = Told::client(2);
    peer.take(&reflector.learn(PeerId(1), &[(one(vip(1)), Some(route_of(1, true, true, as_told)))]));
    let (attributes, next_hop) = &peer.paths[&one(vip(1))];
    let expected = [
        PathAttribute::Origin(crate::wire::Origin::Igp),
        PathAttribute::AsPath(path.clone()),
        PathAttribute::MultiExitDisc(7),
        PathAttribute::LocalPref(150),
        PathAttribute::Communities(vec![0xFDE9_0001].into()),
        PathAttribute::OriginatorId(Ipv4Addr::from_bits(1)),
        PathAttribute::ClusterList(vec![Ipv4Addr::from_bits(0xC1)]),
        PathAttribute::ExtendedCommunities(vec![0x4004_FDE9_4E95_02F9].into()),
    ];
    assert_eq!((attributes.as_slice(), *next_hop), (&expected[..], hop(1)));

    let again = route_of(1, true, true, |_, learned| {
        learned.originator_id = Some(Ipv4Addr::from_bits(77));
        learned.cluster_list = vec![Ipv4Addr::from_bits(0xC2)];
    });
    peer.take(&reflector.learn(PeerId(1), &[(one(vip(1)), Some(again))]));
    let (attributes, _) = &peer.paths[&one(vip(1))];
    assert!(attributes.contains(&PathAttribute::OriginatorId(Ipv4Addr::from_bits(77))));
    assert!(attributes.contains(&PathAttribute::ClusterList(vec![Ipv4Addr::from_bits(0xC1), Ipv4Addr::from_bits(0xC2)])));
}

#[test]
fn rfc4456_section_8_an_external_peer_is_told_nothing_of_reflection_nor_what_stays_in_the_as() {
    let mut reflector = Reflector::default();
    let mut peer = Told::new(9, false, negotiated(65002, false));
    let inside = route_of(1, true, true, |route, learned| {
        learned.originator_id = Some(Ipv4Addr::from_bits(77));
        learned.cluster_list = vec![Ipv4Addr::from_bits(0xC2)];
        (route.med, route.extended_communities) = (Some(7), BTreeSet::from([0x4004_FDE9_4E95_02F9, 0x0002_FDE9_0000_0001]));
    });
    peer.take(&reflector.learn(PeerId(1), &[(one(vip(1)), Some(inside))]));
    let (attributes, next_hop) = &peer.paths[&one(vip(1))];
    let expected = [
        PathAttribute::Origin(crate::wire::Origin::Igp),
        PathAttribute::AsPath(AsPath(vec![AsPathSegment::Sequence(vec![asn(65001)])])),
        PathAttribute::ExtendedCommunities(vec![0x0002_FDE9_0000_0001].into()),
    ];
    assert_eq!((attributes.as_slice(), *next_hop), (&expected[..], NextHop::V4(Ipv4Addr::new(10, 9, 9, 9))));
}

#[test]
fn rfc1997_no_export_and_no_advertise_are_obeyed() {
    for (community, to_internal, to_external) in
        [(community::NO_EXPORT, 1, 0), (community::NO_EXPORT_SUBCONFED, 1, 0), (community::NO_ADVERTISE, 0, 0), (0xFDE9_0001, 1, 1)]
    {
        let mut reflector = Reflector::default();
        let route = route_of(1, true, true, |route, _| route.communities.extend([community]));
        let changes = reflector.learn(PeerId(1), &[(one(vip(1)), Some(route))]);
        for (mut peer, expected) in [(Told::client(2), to_internal), (Told::new(9, false, negotiated(65002, false)), to_external)] {
            peer.take(&changes);
            assert_eq!(peer.paths.len(), expected, "{community:08X}");
        }
    }
}

#[test]
fn rfc7911_section_3_eight_clients_with_one_vip_are_eight_paths_and_each_death_removes_one() {
    let mut reflector = Reflector::default();
    let mut with_paths = Told::new(99, true, negotiated(65001, true));
    let mut plain = Told::client(98);
    for peer in 1..=8 {
        let changes = reflector.learn(PeerId(peer), &[(one(vip(1)), Some(of_client(peer)))]);
        with_paths.take(&changes);
        plain.take(&changes);
    }
    assert_eq!(with_paths.next_hops(vip(1)), (1..=8).map(hop).collect::<Vec<_>>());
    assert_eq!(plain.next_hops(vip(1)), [hop(1)]);
    for (deaths, peer) in [3, 1, 8, 2, 7, 4, 6, 5].into_iter().enumerate() {
        let changes = reflector.forget(PeerId(peer));
        let updates = with_paths.receiver.updates.len();
        with_paths.take(&changes);
        plain.take(&changes);
        assert_eq!(with_paths.receiver.updates.len(), updates + 1, "one withdrawal and nothing else");
        assert_eq!(with_paths.paths.len(), 7 - deaths);
        assert!(!with_paths.next_hops(vip(1)).contains(&hop(peer)));
        assert_eq!(plain.paths.len(), usize::from(deaths < 7));
    }
    assert!(reflector.loc_rib().is_empty());
}

#[test]
fn rfc7911_section_3_identifiers_stay_as_others_come_and_go_and_after_a_refresh() {
    let mut reflector = Reflector::default();
    let mut peer = Told::new(99, true, negotiated(65001, true));
    for other in [1, 2, 3] {
        peer.take(&reflector.learn(PeerId(other), &[(one(vip(1)), Some(of_client(other)))]));
    }
    let id_of = |peer: &Told, other| peer.paths.iter().find(|(_, (_, next_hop))| *next_hop == hop(other)).map(|(nlri, _)| nlri.path_id);
    let third = id_of(&peer, 3);
    peer.take(&reflector.learn(PeerId(1), &[(one(vip(1)), None)]));
    peer.take(&reflector.learn(PeerId(3), &[(one(vip(1)), Some(route_of(3, true, true, |route, _| route.med = Some(5))))]));
    peer.adj_rib_out.refresh(Family::Ipv4Unicast);
    peer.adj_rib_out.begin_refreshes();
    peer.flush();
    assert_eq!(id_of(&peer, 3), third);
    // Policy rejects a path that was sent: it is withdrawn by the same identifier, which `take` checks.
    let hidden = route_of(3, true, true, |route, _| route.communities.extend([community::NO_ADVERTISE]));
    peer.take(&reflector.learn(PeerId(3), &[(one(vip(1)), Some(hidden))]));
    peer.take(&reflector.learn(PeerId(2), &[(one(vip(1)), None)]));
    assert_eq!(peer.paths, BTreeMap::new());
}

#[test]
fn rfc7911_section_3_the_whole_set_again_changes_nothing_though_the_best_path_has_not_the_lowest_identifier() {
    let mut reflector = Reflector::default();
    let mut peer = Told::new(99, true, negotiated(65001, true));
    for (other, preference) in [(1, 100), (2, 300), (3, 200)] {
        let route = route_of(other, true, true, |route, _| route.local_preference = Some(preference));
        peer.take(&reflector.learn(PeerId(other), &[(one(vip(1)), Some(route))]));
    }
    let (paths, updates) = (peer.paths.clone(), peer.receiver.updates.len());
    peer.adj_rib_out.set(&reflector.loc_rib());
    peer.flush();
    assert_eq!((&peer.paths, peer.receiver.updates.len(), peer.adj_rib_out.advertised_count()), (&paths, updates, 3));
    let mut late = Told::new(98, true, negotiated(65001, true));
    late.adj_rib_out.set(&reflector.loc_rib());
    late.flush();
    assert_eq!(late.next_hops(vip(1)), [1, 2, 3].map(hop));
}

#[test]
fn two_sessions_of_one_router_are_two_paths() {
    let mut reflector = Reflector::default();
    let same_router = |peer| {
        route_of(peer, true, true, |_, learned| {
            learned.source = Arc::new(Source { identifier: identifier(1), ..Source::clone(&learned.source) })
        })
    };
    let mut plain = Told::client(98);
    for peer in [1, 2] {
        plain.take(&reflector.learn(PeerId(peer), &[(one(vip(1)), Some(same_router(peer)))]));
    }
    plain.take(&reflector.learn(PeerId(1), &[(one(vip(1)), None)]));
    assert_eq!(plain.next_hops(vip(1)), [hop(2)]);
    plain.take(&reflector.learn(PeerId(2), &[(one(vip(1)), None)]));
    assert_eq!(plain.paths, BTreeMap::new());
}

#[test]
fn rfc4271_section_9_1_what_starts_here_comes_first_and_goes_alone() {
    let mut reflector = Reflector::default();
    let mut peer = Told::client(2);
    peer.take(&reflector.learn(PeerId(1), &[(one(vip(1)), Some(of_client(1)))]));
    let own = Arc::new(Route::originated());
    peer.take(&reflector.originate([(vip(1), Some(Arc::clone(&own))), (vip(2), Some(own))]));
    assert_eq!(peer.next_hops(vip(1)), [NextHop::V4(Ipv4Addr::new(10, 9, 9, 9))]);
    assert_eq!(peer.adj_rib_out.withdrawing().count(), 0);

    let changes = reflector.originate([(vip(1), None), (vip(2), None)]);
    peer.adj_rib_out.apply(&changes);
    assert_eq!(
        peer.adj_rib_out.withdrawing().collect::<BTreeSet<_>>(),
        [vip(1), vip(2)].into(),
        "ours, though the client's takes its place"
    );
    peer.flush();
    assert_eq!(peer.next_hops(vip(1)), [hop(1)]);
    assert_eq!(peer.adj_rib_out.withdrawing().count(), 2, "not acknowledged");
    peer.adj_rib_out.acknowledged(u64::MAX);
    assert_eq!(peer.adj_rib_out.withdrawing().count(), 0);
    assert!(reflector.originate([(vip(1), None)]).is_empty(), "nothing changed");
}

#[test]
fn rfc8950_section_4_an_ipv6_next_hop_of_ipv4_goes_only_where_both_sides_have_it() {
    let mut reflector = Reflector::default();
    let global = "2001:db8::1".parse().unwrap();
    let route =
        route_of(1, true, true, |_, learned| learned.next_hop = NextHop::V6 { global, link_local: Some("fe80::1".parse().unwrap()) });
    let changes = reflector.learn(PeerId(1), &[(one(vip(1)), Some(route))]);
    let mut plain = Told::client(2);
    plain.take(&changes);
    assert_eq!(plain.receiver.held(), [].into());
    let mut extended = Told::new(3, true, Negotiated { extended_next_hop: [Family::Ipv4Unicast].into(), ..negotiated(65001, false) });
    extended.take(&changes);
    assert_eq!(
        extended.receiver.routes[&vip(1)].1,
        NextHop::V6 { global, link_local: None },
        "without the link-local address of another link"
    );
}

#[test]
fn a_burst_of_sixteen_thousand_paths_costs_what_it_carries() {
    let mut reflector = Reflector::default();
    let mut clients: Vec<_> = (1..=8).map(Told::client).collect();
    for peer in 1..=8_u32 {
        let routes = of_client(peer);
        for block in 0..20_u32 {
            let prefixes = (0..100).map(|n| Prefix::host(IpAddr::V4(Ipv4Addr::from_bits(0x0b00_0000 + peer * 10_000 + block * 100 + n))));
            let learnt: Vec<_> = prefixes.map(|prefix| (one(prefix), Some(Arc::clone(&routes)))).collect();
            let changes = reflector.learn(PeerId(peer), &learnt);
            clients.iter_mut().for_each(|client| client.adj_rib_out.apply(&changes));
        }
    }
    for client in &mut clients {
        client.flush();
        assert_eq!(client.paths.len(), 14_000);
        assert!(client.receiver.updates.len() < 7 * 4, "{}", client.receiver.updates.len());
    }
}
