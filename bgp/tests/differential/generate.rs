// SPDX-License-Identifier: Apache-2.0
//! Messages that all three codecs know, and the session that they are of.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use bgp::wire::{
    AddPathMode, Aggregator, AsPath, AsPathSegment, Capability, Flags, GracefulRestart, LongLivedFamily, Message, MpReach, MpUnreach,
    Negotiated, NextHop, Nlri, Notification, Open, Origin, PathAttribute, RouteRefresh, Transitive, Update,
};
use bgp::{Asn, BgpIdentifier, Family, HoldTime, Prefix};
use proptest::collection::vec;
use proptest::option::of;
use proptest::prelude::*;

/// How often each test tries; failures are printed and not kept.
pub(crate) fn config() -> ProptestConfig {
    ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() }
}

/// A session inside an AS that has agreed on everything, with path identifiers in both directions or without.
pub(crate) fn session(add_path: bool) -> Negotiated {
    let mut capabilities: Vec<_> = Family::ALL.into_iter().map(Capability::Multiprotocol).collect();
    capabilities.extend([
        Capability::RouteRefresh,
        Capability::FourOctetAs,
        Capability::ExtendedMessage,
        Capability::ExtendedNextHop(BTreeSet::from([Family::Ipv4Unicast])),
        Capability::LinkLocalNextHop,
    ]);
    if add_path {
        capabilities.push(Capability::AddPath(Family::ALL.map(|family| (family, AddPathMode::Both)).into()));
    }
    let (asn, identifier) = (Asn::new(65001).unwrap(), BgpIdentifier::new(1).unwrap());
    let open = Open { asn, hold_time: HoldTime::ZERO, identifier, capabilities };
    Negotiated::new(&open, &open)
}

pub(crate) fn any_update(add_path: bool) -> impl Strategy<Value = Update> {
    let (ipv4, ipv6) = (|| vec(any_ipv4(add_path), 1..30), || vec(any_ipv6(add_path), 1..30));
    let in_fields = (vec(any_ipv4(add_path), 0..30), ipv4(), any_host(), any_attributes());
    let in_fields = in_fields.prop_map(|(withdrawn, announced, next_hop, mut attributes)| {
        attributes.insert(2, PathAttribute::NextHop(next_hop));
        Update { withdrawn, announced, attributes, ..Update::default() }
    });
    let ipv6_reach =
        (any_ipv6_next_hop(), ipv6()).prop_map(|(next_hop, announced)| MpReach { family: Family::Ipv6Unicast, next_hop, announced });
    let ipv4_reach =
        (any_ipv6_next_hop(), ipv4()).prop_map(|(next_hop, announced)| MpReach { family: Family::Ipv4Unicast, next_hop, announced });
    let in_attributes = (prop_oneof![3 => ipv6_reach, 1 => ipv4_reach], any_attributes()).prop_map(|(reach, mut attributes)| {
        attributes.insert(0, PathAttribute::MpReach(reach));
        Update { attributes, ..Update::default() }
    });
    let withdrawn = ipv4().prop_map(|withdrawn| Update { withdrawn, ..Update::default() });
    let unreach = vec(any_ipv6(add_path), 0..30).prop_map(|withdrawn| {
        let unreach = MpUnreach { family: Family::Ipv6Unicast, withdrawn };
        Update { attributes: vec![PathAttribute::MpUnreach(unreach)], ..Update::default() }
    });
    prop_oneof![3 => in_fields, 3 => in_attributes, 1 => withdrawn, 1 => unreach, 1 => Just(Update::default())]
}

/// Open, Notification, Keepalive and Route-Refresh.
pub(crate) fn any_other_message() -> impl Strategy<Value = Message> {
    let notifications = [(1, 1), (1, 3), (2, 2), (2, 3), (2, 4), (2, 6), (3, 1), (3, 9), (3, 10), (4, 0), (5, 1), (6, 2), (6, 4), (6, 9)];
    let notification = (prop::sample::select(notifications.to_vec()), vec(any::<u8>(), 0..40))
        .prop_map(|((code, subcode), data)| Notification { code, subcode, data: data.into() });
    let family = || prop::sample::select(Family::ALL.to_vec());
    let refresh = (family(), prop::sample::select(vec![RouteRefresh::request, RouteRefresh::beginning, RouteRefresh::end]));
    prop_oneof![
        4 => any_open().prop_map(Message::Open),
        2 => notification.prop_map(Message::Notification),
        1 => Just(Message::Keepalive),
        1 => refresh.prop_map(|(family, make)| Message::RouteRefresh(make(family))),
    ]
}

pub(crate) fn any_open() -> impl Strategy<Value = Open> {
    let hold_time = any::<u16>().prop_filter_map("1 or 2", HoldTime::from_secs);
    (any_asn(), hold_time, any_host(), vec(any_capability(), 0..8)).prop_map(|(asn, hold_time, identifier, mut capabilities)| {
        capabilities.push(Capability::FourOctetAs);
        Open { asn, hold_time, identifier: identifier.try_into().unwrap(), capabilities }
    })
}

fn any_capability() -> impl Strategy<Value = Capability> {
    let families = || prop::sample::subsequence(Family::ALL.to_vec(), 1..=2);
    let restart = (any::<[bool; 3]>(), 0..=GracefulRestart::MAX_RESTART_TIME, families()).prop_map(
        |([restarting, notification, forwarding], restart_time, families)| {
            let families = families.into_iter().map(|family| (family, forwarding)).collect();
            Capability::GracefulRestart(GracefulRestart { restarting, notification, restart_time, families })
        },
    );
    let modes = prop::sample::select(vec![AddPathMode::Receive, AddPathMode::Send, AddPathMode::Both]);
    let add_path = (families(), modes).prop_map(|(families, mode)| families.into_iter().map(|family| (family, mode)).collect());
    let long_lived = (families(), any::<bool>(), 0..=LongLivedFamily::MAX_STALE_TIME).prop_map(|(families, forwarding, stale_time)| {
        families.into_iter().map(|family| (family, LongLivedFamily { forwarding, stale_time })).collect::<BTreeMap<_, _>>()
    });
    let roles = vec![
        bgp::wire::BgpRole::Provider,
        bgp::wire::BgpRole::RouteServer,
        bgp::wire::BgpRole::RouteServerClient,
        bgp::wire::BgpRole::Customer,
        bgp::wire::BgpRole::Peer,
    ];
    prop_oneof![
        prop::sample::select(Family::ALL.to_vec()).prop_map(Capability::Multiprotocol),
        Just(Capability::RouteRefresh),
        Just(Capability::EnhancedRouteRefresh),
        Just(Capability::ExtendedMessage),
        Just(Capability::ExtendedNextHop(BTreeSet::from([Family::Ipv4Unicast]))),
        prop::sample::select(roles).prop_map(Capability::Role),
        restart,
        add_path.prop_map(Capability::AddPath),
        long_lived.prop_map(Capability::LongLivedGracefulRestart),
    ]
}

/// In the order of their types, without those of routes and next hop.
fn any_attributes() -> impl Strategy<Value = Vec<PathAttribute>> {
    let aggregator = (any_asn(), any_host()).prop_map(|(asn, address)| Aggregator { asn, address });
    // Route targets of the three kinds, and a bandwidth.
    let extended = (prop::sample::select(vec![0x0002_u64, 0x0102, 0x0202, 0x4004]), any::<u32>(), any::<u16>())
        .prop_map(|(kind, high, low)| kind << 48 | u64::from(high) << 16 | u64::from(low));
    let ipv6_target = any::<[u8; 18]>().prop_map(|value| {
        let mut community = [0; 20];
        community[1] = 2;
        community[2..].copy_from_slice(&value);
        community
    });
    let unknown = (prop::sample::select(vec![0x80, 0xC0, 0xE0]), vec(any::<u8>(), 0..300))
        .prop_map(|(flags, value)| PathAttribute::Unknown { flags: Flags(flags), type_code: 200, value: value.into() });
    let first = (
        prop::sample::select(vec![Origin::Igp, Origin::Egp, Origin::Incomplete]).prop_map(PathAttribute::Origin),
        any_path().prop_map(PathAttribute::AsPath),
        of(any::<u32>().prop_map(PathAttribute::MultiExitDisc)),
        of(any::<u32>().prop_map(PathAttribute::LocalPref)),
        of(Just(PathAttribute::AtomicAggregate)),
        of(any_partial(aggregator).prop_map(PathAttribute::Aggregator)),
        of(any_partial(vec(any::<u32>(), 1..80)).prop_map(PathAttribute::Communities)),
    );
    let second = (
        of(any::<Ipv4Addr>().prop_map(PathAttribute::OriginatorId)),
        of(vec(any::<Ipv4Addr>(), 1..5).prop_map(PathAttribute::ClusterList)),
        of(any_partial(vec(extended, 1..8)).prop_map(PathAttribute::ExtendedCommunities)),
        of(any_partial(vec(any::<[u32; 3]>(), 1..8)).prop_map(PathAttribute::LargeCommunities)),
        of(any_partial(vec(ipv6_target, 1..4)).prop_map(PathAttribute::Ipv6ExtendedCommunities)),
        of(any_asn().prop_map(|asn| PathAttribute::OnlyToCustomer(asn.into()))),
        of(unknown),
    );
    (first, second).prop_map(|((origin, path, med, preference, atomic, aggregator, communities), second)| {
        let (originator, clusters, extended, large, ipv6, only_to_customer, unknown) = second;
        let first = [med, preference, atomic, aggregator, communities, originator, clusters];
        let optional = first.into_iter().chain([extended, ipv6, large, only_to_customer, unknown]);
        [origin, path].into_iter().chain(optional.flatten()).collect()
    })
}

fn any_partial<T: std::fmt::Debug>(value: impl Strategy<Value = T>) -> impl Strategy<Value = Transitive<T>> {
    (value, any::<bool>()).prop_map(|(value, partial)| Transitive { value, partial })
}

fn any_path() -> impl Strategy<Value = AsPath> {
    vec(vec(any_asn(), 1..20).prop_map(AsPathSegment::Sequence), 0..4).prop_map(AsPath)
}

fn any_asn() -> impl Strategy<Value = Asn> {
    prop_oneof![1..=u32::from(u16::MAX), 1..=u32::MAX].prop_map(|number| Asn::new(number).unwrap())
}

fn any_host() -> impl Strategy<Value = Ipv4Addr> {
    (1..=126_u8, any::<[u8; 3]>()).prop_map(|(first, [b, c, d])| Ipv4Addr::new(first, b, c, d))
}

fn any_ipv6_next_hop() -> impl Strategy<Value = NextHop> {
    let global = any::<u64>().prop_map(|host| Ipv6Addr::from_bits(0x2001_0DB8 << 96 | u128::from(host)));
    let link_local = any::<u64>().prop_map(|host| Ipv6Addr::from_bits(0xFE80 << 112 | u128::from(host)));
    (global, of(link_local)).prop_map(|(global, link_local)| NextHop::V6 { global, link_local })
}

fn any_ipv4(add_path: bool) -> impl Strategy<Value = Nlri> {
    (any_host(), 8..=32_u8, any::<u32>()).prop_map(move |(address, length, path_id)| nlri(address.into(), length, path_id, add_path))
}

fn any_ipv6(add_path: bool) -> impl Strategy<Value = Nlri> {
    let address = any::<u128>().prop_map(|bits| Ipv6Addr::from_bits(0x2 << 124 | bits >> 4));
    (address, 4..=128_u8, any::<u32>()).prop_map(move |(address, length, path_id)| nlri(address.into(), length, path_id, add_path))
}

fn nlri(address: IpAddr, length: u8, path_id: u32, add_path: bool) -> Nlri {
    Nlri { prefix: Prefix::truncated(address, length).unwrap(), path_id: if add_path { path_id } else { 0 } }
}
