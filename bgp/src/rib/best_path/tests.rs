// SPDX-License-Identifier: Apache-2.0
//! Each step of the decision against a path that is better by all steps after it.

use std::net::Ipv4Addr;
use std::sync::Arc;

use super::*;
use crate::identity::BgpIdentifier;
use crate::rib::{PeerId, Source};
use crate::wire::{AsPath, NextHop, Origin, community};

fn asn(number: u32) -> Asn {
    Asn::new(number).unwrap()
}

fn source(last: u8, internal: bool) -> Source {
    Source {
        peer: PeerId(last.into()),
        address: IpAddr::V4(Ipv4Addr::new(10, 0, 0, last)),
        identifier: BgpIdentifier::new(last.into()).unwrap(),
        internal,
        client: false,
    }
}

/// Of an internal peer with this last octet in its address and identifier.
fn path(last: u8, change: impl FnOnce(&mut Route, &mut Learned)) -> Path {
    let mut learned = Learned::new(Arc::new(source(last, true)), NextHop::V4(Ipv4Addr::new(10, 0, 0, last)));
    let mut route = Route { as_path: path_of(&[7, 8]), ..Route::originated() };
    change(&mut route, &mut learned);
    route.learned.get_or_insert(learned);
    Path { id: last.into(), received: Some((PeerId(last.into()), 0)), route: Arc::new(route) }
}

fn path_of(ases: &[u32]) -> AsPath {
    AsPath(vec![AsPathSegment::Sequence(ases.iter().map(|number| asn(*number)).collect())])
}

/// Whichever order they come in.
fn assert_best(best: &Path, other: &Path) {
    for paths in [[best.clone(), other.clone()], [other.clone(), best.clone()]] {
        assert_eq!(paths[best_path(&paths).unwrap()], *best);
    }
}

fn external(last: u8) -> impl FnOnce(&mut Route, &mut Learned) {
    move |_, learned| learned.source = Arc::new(source(last, false))
}

#[test]
fn rfc9494_section_4_3_a_stale_path_is_the_last_resort() {
    let stale = path(1, |route, _| {
        route.local_preference = Some(900);
        route.communities.insert(community::LLGR_STALE);
    });
    assert_best(&path(2, |_, _| ()), &stale);
}

#[test]
fn a_route_that_starts_here_counts_before_any_other() {
    let own = Path::originated(Arc::new(Route::originated()));
    assert_best(&own, &path(1, |route, _| route.local_preference = Some(900)));
}

#[test]
fn rfc4271_section_9_1_1_local_preference_counts_before_the_length_of_the_path() {
    assert_best(&path(2, |route, _| route.local_preference = Some(101)), &path(1, |route, _| route.as_path = AsPath::default()));
}

#[test]
fn rfc4271_section_9_1_2_2_a_the_shorter_path_counts_before_origin_and_a_set_is_one() {
    let set = path(2, |route, _| {
        route.as_path = AsPath(vec![AsPathSegment::Set(vec![asn(1), asn(2), asn(3)])]);
        route.origin = Origin::Incomplete;
    });
    assert_best(&set, &path(1, |_, _| ()));
}

#[test]
fn rfc4271_section_9_1_2_2_b_origin_counts_before_med() {
    let egp = path(1, |route, _| route.origin = Origin::Egp);
    assert_best(&path(2, |route, _| route.med = Some(9)), &egp);
}

#[test]
fn rfc4271_section_9_1_2_2_c_med_counts_between_paths_of_one_neighbouring_as_only() {
    assert_best(&path(2, |_, _| ()), &path(1, |route, _| route.med = Some(1)));
    let other_as = path(1, |route, _| (route.as_path, route.med) = (path_of(&[9, 8]), Some(1)));
    assert_best(&other_as, &path(2, |_, _| ()));
}

#[test]
fn rfc4271_section_9_1_2_2_c_the_best_does_not_depend_on_the_order_of_paths() {
    let of = |last, neighbour, med| path(last, move |route, _| (route.as_path, route.med) = (path_of(&[neighbour, 8]), Some(med)));
    // The first beats the second by identifier, the second the third too, the third the first by MED.
    let paths = [of(1, 7, 9), of(2, 9, 5), of(3, 7, 0)];
    for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        let ordered = order.map(|place| paths[place].clone());
        assert_eq!(ordered[best_path(&ordered).unwrap()], paths[1], "{order:?}");
    }
}

#[test]
fn rfc4271_section_9_1_2_2_d_an_external_peer_counts_before_identifiers() {
    assert_best(&path(2, external(2)), &path(1, |_, _| ()));
}

#[test]
fn rfc4456_section_9_originator_counts_instead_of_the_identifier() {
    let reflected = path(1, |_, learned| learned.originator_id = Some(Ipv4Addr::from_bits(9)));
    assert_best(&path(2, |_, _| ()), &reflected);
}

#[test]
fn rfc4456_section_9_a_shorter_cluster_list_counts_before_the_address() {
    let clusters = |last, count| {
        path(last, move |_, learned| {
            learned.originator_id = Some(Ipv4Addr::from_bits(9));
            learned.cluster_list = vec![Ipv4Addr::from_bits(7); count];
        })
    };
    assert_best(&clusters(2, 1), &clusters(1, 2));
    assert_best(&clusters(1, 1), &clusters(2, 1));
}

#[test]
fn no_path_is_the_best_of_none() {
    assert_eq!(best_path(&[]), None);
}
