// SPDX-License-Identifier: Apache-2.0
//! Next hops that a route which starts here may not have.

use super::*;
use crate::rib::NextHops;

#[test]
fn rfc4271_section_5_1_3_a_route_of_ours_never_has_the_address_of_the_peer_as_next_hop() {
    let IpAddr::V4(peer) = TARGET.address else { panic!("the peer has an IPv4 address") };
    let by_policy = Export { next_hop_ipv4: NextHopPolicy::Address(peer.into()), ..export() };
    let by_route = Route { next_hop: NextHops { ipv4: Some(peer), ipv6: None }, ..Route::originated() };
    for negotiated in [internal(), negotiated(65000, &Family::ALL)] {
        for (export, route) in [(by_policy.clone(), Route::originated()), (export(), by_route.clone())] {
            let mut pair = Pair::new(export, negotiated.clone(), LOCAL);
            pair.sender.set(&LocRib::from_iter([(prefix("10.0.0.1"), Arc::new(route))]));
            pair.flush();
            assert_eq!(pair.receiver.held(), BTreeSet::new());
            assert_eq!(*pair.sender.withheld(), BTreeMap::from([(prefix("10.0.0.1"), Withheld::NextHopOfPeer(peer.into()))]));
        }
    }
}

#[test]
fn rfc4271_section_5_1_3_a_route_told_before_is_withdrawn_where_policy_turns_to_the_peer() {
    let mut pair = Pair::internal();
    pair.set(&["10.0.0.1", "2001:db8::1"]);
    let by_policy = Export { next_hop_ipv4: NextHopPolicy::Address(TARGET.address), ..export() };
    pair.sender.set_export(by_policy, &rib(&["10.0.0.1", "2001:db8::1"]));
    pair.flush();
    assert_eq!(pair.receiver.held(), [prefix("2001:db8::1")].into());
    pair.sender.set_export(export(), &rib(&["10.0.0.1", "2001:db8::1"]));
    pair.flush();
    assert_eq!(pair.receiver.held(), [prefix("10.0.0.1"), prefix("2001:db8::1")].into());
}

#[test]
fn rfc1122_section_3_2_1_3_the_first_and_the_last_address_of_the_link_to_the_peer_are_no_next_hops() {
    let link = Prefix::new(Ipv4Addr::new(10, 211, 1, 0).into(), 24).unwrap();
    let local = LocalAddresses { shared_ipv4: Some(link), ..LOCAL };
    let by_policy = |address: Ipv4Addr| Export { next_hop_ipv4: NextHopPolicy::Address(address.into()), ..export() };
    for no_host in [Ipv4Addr::new(10, 211, 1, 0), Ipv4Addr::new(10, 211, 1, 255)] {
        let mut pair = Pair::new(by_policy(no_host), internal(), local);
        pair.set(&["10.0.0.1", "2001:db8::1"]);
        assert_eq!(pair.receiver.held(), [prefix("2001:db8::1")].into());
        let withheld = BTreeMap::from([(prefix("10.0.0.1"), Withheld::NextHopWithoutHost(no_host, link))]);
        assert_eq!(*pair.sender.withheld(), withheld);
        let by_route = Route { next_hop: NextHops { ipv4: Some(no_host), ipv6: None }, ..Route::originated() };
        let mut pair = Pair::new(export(), negotiated(65000, &Family::ALL), local);
        pair.sender.set(&LocRib::from_iter([(prefix("10.0.0.1"), Arc::new(by_route))]));
        assert_eq!(*pair.sender.withheld(), withheld);

        // Elsewhere, or where the link is another one, nobody knows what it is.
        for shared_ipv4 in [None, Prefix::new(Ipv4Addr::new(10, 211, 0, 0).into(), 16).ok()] {
            let routes = rib(&["10.0.0.1", "2001:db8::1"]);
            let mut pair = Pair::new(by_policy(no_host), internal(), local);
            pair.sender.set(&routes);
            pair.sender.set_local(LocalAddresses { shared_ipv4, ..LOCAL }, &routes);
            pair.flush();
            assert_eq!(pair.receiver.routes[&prefix("10.0.0.1")].1, NextHop::V4(no_host));
            pair.sender.set_local(local, &routes);
            pair.flush();
            assert_eq!((pair.receiver.held(), pair.sender.withheld()), ([prefix("2001:db8::1")].into(), &withheld));
        }
    }
}

#[test]
fn rfc3021_section_2_2_both_addresses_of_a_link_of_two_are_hosts() {
    for (length, own) in [(31, LOCAL.ipv4), (31, Some(Ipv4Addr::new(10, 211, 1, 9))), (32, None)] {
        let link = Prefix::truncated(TARGET.address, length).unwrap();
        let other = Ipv4Addr::new(10, 211, 1, 8);
        let local = LocalAddresses { ipv4: own, shared_ipv4: Some(link), ..LOCAL };
        let mut pair = Pair::new(Export { next_hop_ipv4: NextHopPolicy::Address(other.into()), ..export() }, internal(), local);
        pair.set(&["10.0.0.1"]);
        assert_eq!(pair.receiver.held(), [prefix("10.0.0.1")].into());
    }
}

#[test]
fn rfc4271_section_5_1_3_a_destination_is_never_its_own_next_hop() {
    let vip = Ipv4Addr::new(10, 0, 0, 1);
    let by_policy = Export { next_hop_ipv4: NextHopPolicy::Address(vip.into()), ..export() };
    let mut pair = Pair::internal();
    let routes = ["10.0.0.0", "10.0.0.1", "10.0.0.2", "2001:db8::1"];
    pair.set(&routes);
    pair.sender.set_export(by_policy, &rib(&routes));
    pair.flush();
    // Others go by that address, which may be a router's.
    assert_eq!(pair.receiver.held(), ["10.0.0.0", "10.0.0.2", "2001:db8::1"].map(prefix).into());
    let withheld = BTreeMap::from([(prefix("10.0.0.1"), Withheld::NextHopOfDestination(vip.into()))]);
    assert_eq!(*pair.sender.withheld(), withheld);
    pair.sender.set_export(export(), &rib(&routes));
    pair.flush();
    assert_eq!(pair.receiver.held(), routes.map(prefix).into());
    assert_eq!(*pair.sender.withheld(), BTreeMap::new());

    let by_route = Route { next_hop: NextHops { ipv4: Some(vip), ipv6: None }, ..Route::originated() };
    let aggregate = Prefix::new(Ipv4Addr::new(10, 0, 0, 0).into(), 24).unwrap();
    let mut pair = Pair::internal();
    let by_route = Arc::new(by_route);
    pair.sender.set(&LocRib::from_iter([(prefix("10.0.0.1"), Arc::clone(&by_route)), (aggregate, by_route)]));
    pair.flush();
    assert_eq!((pair.receiver.held(), pair.sender.withheld()), ([aggregate].into(), &withheld));
}
