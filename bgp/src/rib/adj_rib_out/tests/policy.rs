// SPDX-License-Identifier: Apache-2.0
//! What policy makes of a route on its way out, and what a change of policy sends.

use super::*;
use crate::rib::NextHops;
use crate::wire::community;

fn route(change: impl FnOnce(&mut Route)) -> Arc<Route> {
    let mut route = Route::originated();
    change(&mut route);
    Arc::new(route)
}

fn one(address: &str, route: Arc<Route>) -> LocRib {
    LocRib::from_iter([(prefix(address), route)])
}

/// What the peer holds of one route.
fn told(export: Export, negotiated: Negotiated, route: Arc<Route>) -> Vec<PathAttribute> {
    let mut pair = Pair::new(export, negotiated, LOCAL);
    pair.sender.set(&one("10.0.0.1", route));
    pair.flush();
    pair.receiver.routes[&prefix("10.0.0.1")].0.clone()
}

fn external() -> Negotiated {
    negotiated(65000, &Family::ALL)
}

#[test]
fn rfc4271_section_5_1_4_what_a_route_says_itself_counts_before_what_the_peer_has() {
    let of_peer = Export { med: Some(7), local_preference: 150, ..export() };
    let own = told(of_peer.clone(), internal(), route(|route| (route.med, route.local_preference) = (Some(9), Some(200))));
    assert_eq!(own[2..], [PathAttribute::MultiExitDisc(9), PathAttribute::LocalPref(200)]);
    let plain = told(of_peer, internal(), route(|_| ()));
    assert_eq!(plain[2..], [PathAttribute::MultiExitDisc(7), PathAttribute::LocalPref(150)]);
}

#[test]
fn rfc4271_section_5_1_2_prepending_adds_up_and_is_for_external_peers() {
    let path = |attributes: Vec<PathAttribute>| attributes[1].clone();
    let prepend = Export { prepend: 2, ..export() };
    let own = asn(65001);
    let expected = AsPath(vec![AsPathSegment::Sequence(vec![own; 4])]);
    assert_eq!(path(told(prepend.clone(), external(), route(|route| route.prepend = 1))), PathAttribute::AsPath(expected));
    assert_eq!(path(told(prepend, internal(), route(|route| route.prepend = 1))), PathAttribute::AsPath(AsPath::default()));
    let most = Export { prepend: u8::MAX, ..export() };
    let PathAttribute::AsPath(long) = path(told(most, external(), route(|route| route.prepend = u8::MAX))) else { panic!() };
    assert_eq!(long.0.iter().map(|segment| segment.ases().len()).sum::<usize>(), 511);
}

#[test]
fn rfc1997_communities_of_peer_and_route_are_joined_also_no_export_of_our_own_routes() {
    let export = Export {
        communities: BTreeSet::from([0xFDE9_0001, community::NO_EXPORT]),
        large_communities: BTreeSet::from([[65001, 1, 1]]),
        extended_communities: BTreeSet::from([0x0002_FDE9_0000_0001]),
        ..export()
    };
    let attributes = told(
        export,
        external(),
        route(|route| {
            route.communities = BTreeSet::from([0xFDE9_0001, 0xFDE9_0000]);
            route.large_communities = BTreeSet::from([[65001, 0, 0]]);
            route.extended_communities = BTreeSet::from([0x0002_FDE9_0000_0000]);
        }),
    );
    let expected = [
        PathAttribute::Communities(vec![0xFDE9_0000, 0xFDE9_0001, community::NO_EXPORT].into()),
        PathAttribute::ExtendedCommunities(vec![0x0002_FDE9_0000_0000, 0x0002_FDE9_0000_0001].into()),
        PathAttribute::LargeCommunities(vec![[65001, 0, 0], [65001, 1, 1]].into()),
    ];
    assert_eq!(attributes[2..], expected);
}

#[test]
fn a_route_has_one_link_bandwidth() {
    let export = Export { link_bandwidth: Some(125_000_000), ..export() };
    let own = told(export.clone(), internal(), route(|route| route.link_bandwidth = Some(1_250_000_000)));
    assert_eq!(own.last(), Some(&PathAttribute::ExtendedCommunities(vec![0x4004_FDE9_4E95_02F9].into())));
    let of_peer = told(export, internal(), route(|_| ()));
    assert_eq!(of_peer.last(), Some(&PathAttribute::ExtendedCommunities(vec![0x4004_FDE9_4CEE_6B28].into())));
}

#[test]
fn rfc4360_section_6_a_link_bandwidth_that_crosses_the_border_of_an_as_is_transitive() {
    let attributes = told(export(), external(), route(|route| route.link_bandwidth = Some(1_250_000_000)));
    assert_eq!(attributes.last(), Some(&PathAttribute::ExtendedCommunities(vec![0x0004_FDE9_4E95_02F9].into())));
}

#[test]
fn rfc4271_section_5_1_3_a_route_with_a_next_hop_of_its_own_needs_none_of_ours() {
    let mut pair = Pair::new(export(), internal(), LocalAddresses::default());
    let elsewhere = NextHops { ipv4: Some("10.9.9.9".parse().unwrap()), ipv6: None };
    let own = route(|route| route.next_hop = elsewhere);
    pair.sender.set(&LocRib::from_iter([(prefix("10.0.0.1"), Arc::clone(&own)), (prefix("2001:db8::1"), own)]));
    pair.flush();
    assert_eq!(pair.receiver.routes[&prefix("10.0.0.1")].1, NextHop::V4("10.9.9.9".parse().unwrap()));
    assert_eq!(*pair.sender.withheld(), BTreeMap::from([(prefix("2001:db8::1"), Withheld::NoNextHop(Family::Ipv6Unicast))]));
}

#[test]
fn rfc4271_section_4_3_routes_that_are_equal_share_an_update_whatever_they_are_made_of() {
    let mut pair = Pair::internal();
    let of = |med| route(|route| route.med = Some(med));
    let routes = (0..100_u8).map(|n| (prefix(&format!("10.0.0.{n}")), of(u32::from(n % 2))));
    pair.sender.set(&LocRib::from_iter(routes));
    let updates = pair.flush();
    assert_eq!(updates.iter().filter(|update| !update.announced.is_empty()).count(), 2);
    assert_eq!(pair.receiver.held().len(), 100);
}

#[test]
fn a_change_of_policy_sends_what_differs_and_nothing_else() {
    let mut pair = Pair::internal();
    let own = route(|route| route.med = Some(9));
    let rib = LocRib::from_iter([(prefix("10.0.0.1"), own), (prefix("10.0.0.2"), route(|_| ())), (prefix("2001:db8::1"), route(|_| ()))]);
    pair.sender.set(&rib);
    pair.flush();

    pair.sender.set_export(Export { med: Some(9), ..export() }, &rib);
    let announced: Vec<_> =
        pair.flush().iter().flat_map(|update| crate::rib::receiver::changes(update).0).map(|(prefix, _)| prefix).collect();
    assert_eq!(announced, [prefix("10.0.0.2"), prefix("2001:db8::1")], "the first has the MED already");

    let next_hop_ipv6 = NextHopPolicy::Address("2001:db8:ff::1".parse().unwrap());
    pair.sender.set_export(Export { med: Some(9), next_hop_ipv6, ..export() }, &rib);
    assert_eq!(pair.flush().len(), 1, "only IPv6");

    let unusable = NextHopPolicy::Address("::".parse().unwrap());
    pair.sender.set_export(Export { med: Some(9), next_hop_ipv6: unusable, ..export() }, &rib);
    pair.flush();
    assert_eq!(pair.receiver.held().len(), 2);
    assert_eq!(pair.sender.withheld().len(), 1);
    pair.sender.set_export(Export { med: Some(9), ..export() }, &rib);
    pair.flush();
    assert_eq!(pair.receiver.held().len(), 3);
    pair.sender.set_export(Export { med: Some(9), ..export() }, &rib);
    assert_eq!(pair.flush(), vec![]);
    assert_eq!(pair.receiver.ends_of_rib().len(), 2);
}

#[test]
fn what_routes_give_up_and_the_policy_of_the_peer_takes_over_is_not_told_again() {
    let tagged = || BTreeSet::from([community::NO_EXPORT]);
    let by_route = || one("10.0.0.1", route(|route| (route.med, route.communities) = (Some(7), tagged())));
    let by_peer = || Export { med: Some(7), communities: tagged(), ..export() };
    let plain = || one("10.0.0.1", route(|_| ()));
    for to_peer in [true, false] {
        let (before, after) = if to_peer { (export(), by_peer()) } else { (by_peer(), export()) };
        let (routes, then) = if to_peer { (by_route(), plain()) } else { (plain(), by_route()) };
        let mut pair = Pair::new(before.clone(), external(), LOCAL);
        pair.sender.set(&routes);
        pair.flush();
        pair.sender.set_export(after, &then);
        assert_eq!((pair.flush(), pair.sender.is_to_refresh()), (vec![], false), "to the peer: {to_peer}");
        // What the peer holds is known by the policy of now.
        pair.sender.set(&one("10.0.0.1", route(|route| route.med = Some(9))));
        assert_eq!(pair.flush().len(), 1);
        pair.sender.set_export(before, &routes);
        assert_eq!(pair.flush().len(), 1);
    }
}

#[test]
fn a_policy_that_the_peer_was_never_told_by_is_no_reason_to_be_silent() {
    let with = |med| one("10.0.0.1", route(|route| route.med = med));
    let of_peer = |med| Export { med, ..export() };
    let mut pair = Pair::new(of_peer(Some(7)), internal(), LOCAL);
    pair.sender.set(&with(None));
    pair.flush();
    // The peer reads nothing meanwhile. By the policy in between the first route would have been told as the last one is.
    pair.sender.set_export(of_peer(Some(9)), &with(Some(8)));
    pair.sender.set_export(of_peer(Some(9)), &with(Some(9)));
    pair.sender.set_export(of_peer(None), &with(Some(9)));
    let updates = pair.flush();
    assert!(updates.len() == 1 && updates[0].attributes.contains(&PathAttribute::MultiExitDisc(9)), "{updates:?}");
}

#[test]
fn a_route_that_differs_in_nothing_that_the_peer_is_told_is_not_told_again() {
    let named = |peers: &[&str]| Some(Arc::new(peers.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>()));
    let of_peer = Export { name: "rr1".to_owned(), med: Some(7), communities: BTreeSet::from([1]), ..export() };
    for negotiated in [internal(), external()] {
        let mut pair = Pair::new(of_peer.clone(), negotiated.clone(), LOCAL);
        let mut same = vec![
            route(|_| ()),
            route(|route| route.peers = named(&["rr1"])),
            route(|route| route.peers = named(&["rr1", "rr2"])),
            route(|route| route.med = Some(7)),
            route(|route| route.communities = BTreeSet::from([1])),
            route(|route| route.next_hop.ipv4 = LOCAL.ipv4),
        ];
        same.extend(negotiated.internal.then(|| route(|route| (route.prepend, route.local_preference) = (3, Some(100)))));
        pair.sender.set(&one("10.0.0.1", Arc::clone(&same[0])));
        assert_eq!(pair.flush().len(), 3, "and twice End-of-RIB");
        for route in same.iter().rev() {
            pair.sender.set(&one("10.0.0.1", Arc::clone(route)));
            assert_eq!(pair.flush(), [], "{route:?}");
            let path = Path::originated(Arc::clone(&same[0]));
            pair.sender.apply(&Changes::from([(prefix("10.0.0.1"), [path].into())]));
            assert_eq!(pair.flush(), [], "back from {route:?}");
        }
        pair.sender.refresh(Family::Ipv4Unicast);
        pair.sender.begin_refreshes();
        pair.sender.set(&one("10.0.0.1", Arc::clone(&same[1])));
        assert_eq!(pair.flush().len(), 1, "who asks is told");
        assert!(pair.sender.withdrawing().next().is_none());
    }
}

#[test]
fn rfc8326_section_4_graceful_shutdown_announces_all_again_as_the_last_resort() {
    for (negotiated, local_preference) in [(internal(), Some(0)), (external(), None)] {
        let mut pair = Pair::new(export(), negotiated, LOCAL);
        let rib = rib(&["10.0.0.1", "2001:db8::1"]);
        pair.sender.set(&rib);
        pair.flush();
        let leaving = rib.routes().map(|(prefix, route)| (prefix, Arc::new(route.shutting_down())));
        pair.sender.set(&leaving.collect());
        assert_eq!(pair.flush().len(), 2);
        for (attributes, _) in pair.receiver.routes.values() {
            assert!(attributes.contains(&PathAttribute::Communities(vec![community::GRACEFUL_SHUTDOWN].into())));
            let preference = attributes.iter().find_map(|attribute| match attribute {
                PathAttribute::LocalPref(preference) => Some(*preference),
                _ => None,
            });
            assert_eq!(preference, local_preference);
        }
    }
}

#[test]
fn a_route_for_other_peers_is_withheld_and_withdrawn() {
    let mut pair = Pair::new(Export { name: "rr1".to_owned(), ..export() }, internal(), LOCAL);
    let of = |peers: &[&str]| route(|route| route.peers = Some(Arc::new(peers.iter().map(|name| (*name).to_owned()).collect())));
    let address = prefix("10.0.0.1");
    pair.sender.set(&one("10.0.0.1", of(&["rr1", "rr2"])));
    pair.flush();
    assert_eq!(pair.receiver.held(), BTreeSet::from([address]));
    pair.sender.set(&one("10.0.0.1", of(&["rr2"])));
    assert_eq!(*pair.sender.withheld(), BTreeMap::from([(address, Withheld::OtherPeers)]));
    assert_eq!(pair.sender.withdrawing().collect::<Vec<_>>(), [address]);
    pair.flush();
    assert!(pair.receiver.held().is_empty());
}

#[test]
fn one_change_costs_one_update_however_many_routes_there_are() {
    let mut pair = Pair::internal();
    let prefixes = (0..10_000).map(|n| Prefix::host(IpAddr::V4(Ipv4Addr::from_bits(0x0b00_0000 + n))));
    pair.sender.set(&LocRib::originated(prefixes));
    pair.flush();
    let path = Path::originated(route(|_| ()));
    pair.sender.apply(&Changes::from([(prefix("10.0.0.1"), [path].into()), (prefix("11.0.0.7"), [].into())]));
    let updates = pair.flush();
    assert_eq!(updates.len(), 2);
    assert_eq!((&updates[0].withdrawn, &updates[1].announced), (&vec![prefix("11.0.0.7").into()], &vec![prefix("10.0.0.1").into()]));
}
