// SPDX-License-Identifier: Apache-2.0
//! Which routes of one peer another one is told, and with which next hop: roles, stale routes, third parties, confederations.

use super::*;
use crate::rib::{NextHopPolicy, Withheld};
use crate::wire::{BgpRole, LongLivedFamily};

const EXTERNAL: u32 = 65002;

fn external() -> Negotiated {
    negotiated(EXTERNAL, false)
}

fn external_told(export: Export, negotiated: Negotiated) -> Told {
    let mut told = Told::new(9, false, negotiated.clone());
    let target = Target { peer: PeerId(9), address: Ipv4Addr::new(10, 0, 0, 9).into(), client: false, cluster_id: identifier(0xC1) };
    let local = LocalAddresses {
        ipv4: Some(Ipv4Addr::new(10, 9, 9, 9)),
        ipv6: Some("2001:db8::9".parse().unwrap()),
        shared_ipv4: Prefix::new(Ipv4Addr::new(10, 0, 0, 0).into(), 24).ok(),
        shared_ipv6: Prefix::new("2001:db8::".parse().unwrap(), 64).ok(),
        ..LocalAddresses::NONE
    };
    told.adj_rib_out = AdjRibOut::new(export, target, negotiated, local);
    told.adj_rib_out.set(&LocRib::default());
    told
}

fn only_to_customer(attributes: &[PathAttribute]) -> Option<Asn> {
    attributes.iter().find_map(|attribute| if let PathAttribute::OnlyToCustomer(asn) = attribute { Some(asn.value) } else { None })
}

/// What a peer of ours in this role is told of a route that has ONLY_TO_CUSTOMER of that AS, or none; `None` where it is not told.
fn told_in_role(role: Option<BgpRole>, route: Arc<Route>) -> Option<Option<Asn>> {
    let mut reflector = Reflector::default();
    let mut peer = external_told(Export::default(), Negotiated { local_role: role, ..external() });
    let changes = match &route.learned {
        Some(learned) => reflector.learn(learned.source.peer, &[(one(vip(1)), Some(Arc::clone(&route)))]),
        None => reflector.originate([(vip(1), Some(route))]),
    };
    peer.take(&changes);
    peer.paths.get(&one(vip(1))).map(|(attributes, _)| only_to_customer(attributes))
}

#[test]
fn b54_rfc9234_section_5_what_goes_down_or_sideways_is_marked_and_what_is_marked_does_not_go_up() {
    let learned = |marked: Option<u32>| route_of(1, false, false, |_, learned| learned.only_to_customer = marked.map(asn));
    let own = Some(Some(asn(65001)));
    let theirs = Some(Some(asn(64999)));
    for (role, unmarked, marked) in [
        (Some(BgpRole::Provider), own, theirs),
        (Some(BgpRole::RouteServer), own, theirs),
        (Some(BgpRole::Peer), own, None),
        (Some(BgpRole::Customer), Some(None), None),
        (Some(BgpRole::RouteServerClient), Some(None), None),
        (None, Some(None), theirs),
    ] {
        assert_eq!(told_in_role(role, learned(None)), unmarked, "{role:?}");
        assert_eq!(told_in_role(role, learned(Some(64999))), marked, "{role:?}");
        assert_eq!(told_in_role(role, Arc::new(Route::originated())), unmarked, "one that starts here, {role:?}");
    }
}

#[test]
fn b54_rfc9234_section_5_the_mark_stays_inside_the_as_and_the_partial_bit_with_it() {
    let mut reflector = Reflector::default();
    let marked = route_of(1, false, false, |_, learned| {
        learned.only_to_customer = Some(asn(64999));
        learned.partial.insert(35);
    });
    let mut internal = Told::client(2);
    internal.take(&reflector.learn(PeerId(1), &[(one(vip(1)), Some(marked))]));
    let (attributes, _) = &internal.paths[&one(vip(1))];
    let expected = PathAttribute::OnlyToCustomer(crate::wire::Transitive { value: asn(64999), partial: true });
    assert!(attributes.contains(&expected), "{attributes:?}");
}

#[test]
fn b69_rfc9494_section_4_3_a_stale_route_goes_only_to_peers_with_the_capability_and_stays_marked() {
    let long_lived = BTreeMap::from([(Family::Ipv4Unicast, LongLivedFamily { forwarding: true, stale_time: 3600 })]);
    let stale = || route_of(1, true, true, |route, _| route.communities.extend([community::LLGR_STALE, 0xFDE9_0001]));
    for (mut with, mut without) in [
        (Told::new(2, true, Negotiated { long_lived: long_lived.clone(), ..negotiated(65001, false) }), Told::client(3)),
        (
            external_told(Export::default(), Negotiated { long_lived, ..external() }),
            external_told(Export { communities: BTreeSet::from([7]), ..Export::default() }, external()),
        ),
    ] {
        let mut reflector = Reflector::default();
        let fresh = reflector.learn(PeerId(1), &[(one(vip(1)), Some(of_client(1)))]);
        with.take(&fresh);
        without.take(&fresh);
        assert_eq!((with.paths.len(), without.paths.len()), (1, 1));
        let changes = reflector.learn(PeerId(1), &[(one(vip(1)), Some(stale()))]);
        with.take(&changes);
        without.take(&changes);
        assert_eq!(without.paths, BTreeMap::new(), "it is withdrawn");
        let (attributes, _) = &with.paths[&one(vip(1))];
        let communities = PathAttribute::Communities(vec![0xFDE9_0001, community::LLGR_STALE].into());
        assert!(attributes.contains(&communities), "{attributes:?}");
    }
}

#[test]
fn b69_rfc9494_section_4_3_a_fresh_path_takes_the_place_of_a_stale_one_for_everybody() {
    let mut reflector = Reflector::default();
    let mut plain = Told::client(9);
    let stale = route_of(1, true, true, |route, _| {
        route.communities.insert(community::LLGR_STALE);
        route.local_preference = Some(1000);
    });
    plain.take(&reflector.learn(PeerId(1), &[(one(vip(1)), Some(stale))]));
    assert_eq!(plain.paths.len(), 0);
    plain.take(&reflector.learn(PeerId(2), &[(one(vip(1)), Some(of_client(2)))]));
    assert_eq!(plain.next_hops(vip(1)), [hop(2)]);
    let mut all_paths = Told::new(99, true, negotiated(65001, true));
    all_paths.adj_rib_out.set(&reflector.loc_rib());
    all_paths.flush();
    assert_eq!(all_paths.next_hops(vip(1)), [hop(2)], "with path identifiers it is left out too");
}

#[test]
fn rfc4271_section_5_1_3_an_unchanged_next_hop_goes_to_an_external_peer_where_policy_says_so() {
    let unchanged = Export { next_hop_ipv4: NextHopPolicy::Unchanged, next_hop_ipv6: NextHopPolicy::Unchanged, ..Export::default() };
    let ours = NextHop::V4(Ipv4Addr::new(10, 9, 9, 9));
    for (policy, expected) in [(unchanged.clone(), hop(1)), (Export::default(), ours)] {
        for internal in [true, false] {
            let mut reflector = Reflector::default();
            let mut peer = external_told(policy.clone(), external());
            peer.take(&reflector.learn(PeerId(1), &[(one(vip(1)), Some(route_of(1, internal, internal, |_, _| ())))]));
            assert_eq!(peer.next_hops(vip(1)), [expected]);
        }
    }
    // One that starts here has none but ours.
    let mut reflector = Reflector::default();
    let mut peer = external_told(unchanged.clone(), external());
    peer.take(&reflector.originate([(vip(1), Some(Arc::new(Route::originated())))]));
    assert_eq!(peer.next_hops(vip(1)), [ours]);
    // An unspecified or foreign one never leaves.
    for next_hop in [NextHop::V4(Ipv4Addr::UNSPECIFIED), NextHop::V6 { global: "2001:db8::1".parse().unwrap(), link_local: None }] {
        let mut reflector = Reflector::default();
        let mut peer = external_told(unchanged.clone(), external());
        let route = route_of(1, true, true, |_, learned| learned.next_hop = next_hop);
        peer.take(&reflector.learn(PeerId(1), &[(one(vip(1)), Some(route))]));
        assert_eq!(peer.paths, BTreeMap::new());
    }
}

#[test]
fn rfc4271_section_5_1_3_an_external_peer_hears_of_a_third_party_on_the_link_only() {
    let unchanged = Export { next_hop_ipv4: NextHopPolicy::Unchanged, next_hop_ipv6: NextHopPolicy::Unchanged, ..Export::default() };
    let far = Ipv4Addr::new(10, 0, 1, 1);
    for (next_hop, reason) in
        [(NextHop::V4(far), Withheld::ThirdParty(far.into())), (hop(9), Withheld::NextHopOfPeer(Ipv4Addr::new(10, 0, 0, 9).into()))]
    {
        let mut reflector = Reflector::default();
        let mut peer = external_told(unchanged.clone(), external());
        peer.take(&reflector.learn(PeerId(1), &[(one(vip(1)), Some(of_client(1)))]));
        assert_eq!(peer.next_hops(vip(1)), [hop(1)]);
        let elsewhere = route_of(1, true, true, |_, learned| learned.next_hop = next_hop);
        let changes = reflector.learn(PeerId(1), &[(one(vip(1)), Some(elsewhere))]);
        peer.take(&changes);
        assert_eq!(peer.paths, BTreeMap::new(), "it is withdrawn");
        assert_eq!(*peer.adj_rib_out.withheld_learned(), BTreeMap::from([(vip(1), reason)]));
        assert!(peer.adj_rib_out.withheld().is_empty(), "it is none of ours");
        let mut internal = Told::client(2);
        internal.take(&changes);
        assert_eq!(internal.next_hops(vip(1)), [next_hop]);
        peer.take(&reflector.learn(PeerId(1), &[(one(vip(1)), None)]));
        assert!(peer.adj_rib_out.withheld_learned().is_empty());
    }
}

#[test]
fn b56_rfc2545_section_3_a_link_local_address_of_another_link_is_not_passed_on() {
    let prefix = Prefix::host("2001:db8:7::7".parse().unwrap());
    let (global, link_local): (Ipv6Addr, Ipv6Addr) = ("2001:db8::1".parse().unwrap(), "fe80::1".parse().unwrap());
    let unchanged = Export { next_hop_ipv6: NextHopPolicy::Unchanged, ..Export::default() };
    for (next_hop, passed_on) in [
        (NextHop::V6 { global, link_local: Some(link_local) }, true),
        (NextHop::V6 { global, link_local: None }, true),
        (NextHop::V6 { global: link_local, link_local: None }, false),
        (NextHop::V6 { global: link_local, link_local: Some(link_local) }, false),
        (NextHop::V6 { global: Ipv6Addr::UNSPECIFIED, link_local: Some(link_local) }, false),
    ] {
        let mut reflector = Reflector::default();
        let route = route_of(1, true, true, |_, learned| learned.next_hop = next_hop);
        let changes = reflector.learn(PeerId(1), &[(one(prefix), Some(route))]);
        for mut peer in [Told::client(2), external_told(unchanged.clone(), external())] {
            peer.take(&changes);
            let expected = passed_on.then_some(NextHop::V6 { global, link_local: None });
            assert_eq!(peer.receiver.routes.get(&prefix).map(|(_, next_hop)| *next_hop), expected, "{next_hop}");
        }
    }
}

#[test]
fn rfc5065_section_5_segments_of_a_confederation_do_not_leave_the_as() {
    let path = AsPath(vec![
        AsPathSegment::ConfedSequence(vec![asn(64601)]),
        AsPathSegment::ConfedSequence(vec![asn(64602)]),
        AsPathSegment::Sequence(vec![asn(65009)]),
    ]);
    let route = route_of(1, true, true, |route, _| route.as_path = path.clone());
    let mut reflector = Reflector::default();
    let changes = reflector.learn(PeerId(1), &[(one(vip(1)), Some(route))]);
    let path_of = |peer: &Told| peer.paths[&one(vip(1))].0[1].clone();
    let mut internal = Told::client(2);
    internal.take(&changes);
    assert_eq!(path_of(&internal), PathAttribute::AsPath(path));
    let mut external = external_told(Export::default(), external());
    external.take(&changes);
    assert_eq!(path_of(&external), PathAttribute::AsPath(AsPath(vec![AsPathSegment::Sequence(vec![asn(65001), asn(65009)])])));
}

#[test]
fn b59_rfc8950_section_4_a_plain_external_peer_gets_a_next_hop_that_it_understands() {
    let ours = NextHop::V4(Ipv4Addr::new(10, 9, 9, 9));
    let told_over_ipv6 = route_of(1, true, true, |_, learned| {
        learned.next_hop = NextHop::V6 { global: "2001:db8::1".parse().unwrap(), link_local: None };
    });
    let mut reflector = Reflector::default();
    let mut plain = external_told(Export::default(), external());
    plain.take(&reflector.learn(PeerId(1), &[(one(vip(1)), Some(told_over_ipv6))]));
    assert_eq!(plain.next_hops(vip(1)), [ours]);
    let mandatory = |type_code| plain.paths[&one(vip(1))].0.iter().any(|attribute| attribute.type_code() == type_code);
    assert!(mandatory(1) && mandatory(2));
}

#[test]
fn what_differs_only_in_what_an_external_peer_is_not_told_is_not_told_again() {
    let preferred =
        |preference: u32, med: u32| route_of(1, true, true, |route, _| (route.local_preference, route.med) = (Some(preference), Some(med)));
    let mut reflector = Reflector::default();
    let (mut external, mut internal) = (external_told(Export { med: Some(5), ..Export::default() }, external()), Told::client(2));
    let mut tell = |route: Option<Arc<Route>>| {
        let changes = reflector.learn(PeerId(1), &[(one(vip(1)), route)]);
        external.take(&changes);
        internal.take(&changes);
        assert_eq!(external.paths.len(), internal.paths.len());
        assert_eq!(external.adj_rib_out.advertised_count(), external.paths.len());
        assert_eq!(external.adj_rib_out.reflected_count(Family::Ipv4Unicast), external.paths.len());
        (external.receiver.updates.len(), internal.receiver.updates.len())
    };
    let (first, of_internal) = tell(Some(preferred(100, 1)));
    assert_eq!(tell(Some(preferred(200, 1))), (first, of_internal + 1));
    let (other, of_internal) = tell(Some(route_of(1, true, true, |route, _| route.communities.extend([7]))));
    assert_eq!(other, first + 1);
    assert_eq!(tell(None), (first + 2, of_internal + 1));
}
