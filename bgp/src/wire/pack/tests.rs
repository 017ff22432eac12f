// SPDX-License-Identifier: Apache-2.0

use std::net::{Ipv4Addr, Ipv6Addr};

use super::*;
use crate::Prefix;
use crate::wire::tests::{
    asn, decode_all, external, hex, internal, route, sequence, with_add_path, with_extended_messages, with_marker, with_next_hops,
};
use crate::wire::{AsPath, MAX_MESSAGE_LENGTH, Message, Origin, Update};

const NEXT_HOP: NextHop = NextHop::V4(Ipv4Addr::new(10, 0, 1, 254));
const NEXT_HOP_V6: NextHop = NextHop::V6 { global: Ipv6Addr::new(0x2001, 0xDB8, 0, 0, 0, 0, 0, 1), link_local: None };

fn originated() -> Vec<PathAttribute> {
    vec![PathAttribute::Origin(Origin::Igp), PathAttribute::AsPath(sequence([asn(65001)]))]
}

fn hosts(count: u32) -> Vec<Nlri> {
    (0..count).map(|host| Prefix::host(Ipv4Addr::from_bits(0x0A00_0000 + host).into()).into()).collect()
}

fn hosts_v6(count: u32) -> Vec<Nlri> {
    (0..count).map(|host| Prefix::host(Ipv6Addr::from_bits(0x2001_0DB8 << 96 | u128::from(host)).into()).into()).collect()
}

/// All messages that announce the routes.
fn announced(attributes: &[PathAttribute], next_hop: NextHop, family: Family, routes: &[Nlri]) -> Vec<u8> {
    let (mut out, mut rest) = (Vec::new(), routes);
    while !rest.is_empty() {
        rest = &rest[encode_announcement(attributes, next_hop, family, rest, &external(), &mut out).unwrap()..];
    }
    out
}

/// All messages that withdraw the routes.
fn withdrawn(family: Family, routes: &[Nlri]) -> Vec<u8> {
    let (mut out, mut rest) = (Vec::new(), routes);
    while !rest.is_empty() {
        rest = &rest[encode_withdrawal(family, rest, &external(), &mut out)..];
    }
    out
}

/// The lengths of the messages.
fn lengths(mut octets: &[u8]) -> Vec<usize> {
    let mut lengths = Vec::new();
    while !octets.is_empty() {
        let length = usize::from(u16::from_be_bytes([octets[16], octets[17]]));
        lengths.push(length);
        octets = &octets[length..];
    }
    lengths
}

fn updates(octets: &[u8]) -> Vec<Update> {
    let update = |message| if let Message::Update(update) = message { update } else { panic!("{message:?}") };
    decode_all(octets, &external()).into_iter().map(update).collect()
}

fn mp_reach(update: &Update) -> &MpReach {
    match &update.attributes[0] {
        PathAttribute::MpReach(reach) => reach,
        other => panic!("{other:?}"),
    }
}

#[test]
fn b30_rfc4271_5_1_announcements_to_external_and_internal_peers() {
    let external_octets = announced(&originated(), NEXT_HOP, Family::Ipv4Unicast, &[route("10.0.0.0/24")]);
    assert_eq!(external_octets, with_marker("002F 02 0000 0014 40010100 40020602010000FDE9 4003040A0001FE 180A0000"));
    let attributes = [PathAttribute::LocalPref(100), PathAttribute::AsPath(AsPath::default()), PathAttribute::Origin(Origin::Igp)];
    let mut out = Vec::new();
    encode_announcement(&attributes, NEXT_HOP, Family::Ipv4Unicast, &[route("10.0.0.7/32")], &internal(), &mut out).unwrap();
    assert_eq!(out, with_marker("0031 02 0000 0015 40010100 400200 4003040A0001FE 40050400000064 200A000007"));
}

#[test]
fn b31_rfc7606_5_1_mp_reach_comes_first() {
    let octets = announced(&originated(), NEXT_HOP_V6, Family::Ipv6Unicast, &[route("2001:db8::7/128")]);
    let reach = "900E0026 0002 01 10 20010DB8000000000000000000000001 00 80 20010DB8000000000000000000000007";
    assert_eq!(octets, with_marker(&format!("004E 02 0000 0037 {reach} 40010100 40020602010000FDE9")));
}

#[test]
fn b32_100_000_hosts_take_at_most_130_messages() {
    let routes = hosts(100_000);
    let octets = announced(&originated(), NEXT_HOP, Family::Ipv4Unicast, &routes);
    let lengths = lengths(&octets);
    assert!(lengths.len() <= 130, "{}", lengths.len());
    assert!(lengths.iter().all(|length| *length <= MAX_MESSAGE_LENGTH));
    let told: Vec<_> = updates(&octets).into_iter().flat_map(|update| update.announced).collect();
    assert_eq!(told, routes);

    let octets = withdrawn(Family::Ipv4Unicast, &routes);
    assert!(self::lengths(&octets).len() <= 130);
    let told: Vec<_> = updates(&octets).into_iter().flat_map(|update| update.withdrawn).collect();
    assert_eq!(told, routes);
}

#[test]
fn b32_a_message_of_4096_octets_is_filled_and_none_of_4097() {
    // 23 octets of UPDATE, 20 of attributes; 810 hosts of 5 octets leave 3, which take 3 octets of prefix and no 4.
    let (whole, slack) = (hosts(810), 4096 - 23 - 20 - 810 * 5);
    assert_eq!(slack, 3);
    for (last, expected) in [("10.1.0.0/16", vec![4096]), ("10.1.1.0/24", vec![4093, 47])] {
        let routes = [&whole[..], &[route(last)]].concat();
        assert_eq!(lengths(&announced(&originated(), NEXT_HOP, Family::Ipv4Unicast, &routes)), expected);
    }
    // Withdrawn: 23 octets of UPDATE, 814 hosts leave 3.
    for (last, expected) in [("10.1.0.0/16", vec![4096]), ("10.1.1.0/24", vec![4093, 27])] {
        let routes = [&hosts(814)[..], &[route(last)]].concat();
        assert_eq!(lengths(&withdrawn(Family::Ipv4Unicast, &routes)), expected);
    }
    // IPv6: 23 octets of UPDATE, 25 of MP_REACH_NLRI, 13 of attributes; 237 hosts of 17 octets leave 6.
    for (last, expected) in [("2001:db8::/40", vec![4096]), ("2001:db8::/41", vec![4090, 68])] {
        let routes = [&hosts_v6(237)[..], &[route(last)]].concat();
        assert_eq!(lengths(&announced(&originated(), NEXT_HOP_V6, Family::Ipv6Unicast, &routes)), expected);
    }
    // IPv6 withdrawn: 23 octets of UPDATE, 7 of MP_UNREACH_NLRI; 239 hosts leave 3.
    for (last, expected) in [("2001::/16", vec![4096]), ("2001::/17", vec![4093, 34])] {
        let routes = [&hosts_v6(239)[..], &[route(last)]].concat();
        assert_eq!(lengths(&withdrawn(Family::Ipv6Unicast, &routes)), expected);
    }
}

#[test]
fn b32_ipv6_routes_are_packed() {
    let routes = hosts_v6(10_000);
    let octets = announced(&originated(), NEXT_HOP_V6, Family::Ipv6Unicast, &routes);
    assert_eq!(lengths(&octets).len(), 10_000_usize.div_ceil(237));
    let told: Vec<_> = updates(&octets).iter().flat_map(|update| mp_reach(update).announced.clone()).collect();
    assert_eq!(told, routes);
    assert!(updates(&octets).iter().all(|update| update.errors.is_empty() && update.announced.is_empty()));
}

#[test]
fn b33_rfc4760_4_a_withdrawal_carries_no_attributes() {
    assert_eq!(withdrawn(Family::Ipv4Unicast, &[route("10.0.0.7/32")]), with_marker("001C 02 0005 20 0A000007 0000"));
    let unreach = "900F0014 0002 01 80 20010DB8000000000000000000000007";
    assert_eq!(withdrawn(Family::Ipv6Unicast, &[route("2001:db8::7/128")]), with_marker(&format!("002F 02 0000 0018 {unreach}")));
}

#[test]
fn routes_of_another_family_are_passed_over() {
    let routes = [hosts_v6(2), hosts(3), hosts_v6(1)].concat();
    let octets = announced(&originated(), NEXT_HOP, Family::Ipv4Unicast, &routes);
    assert_eq!(updates(&octets)[0].announced, hosts(3));
    assert_eq!(announced(&originated(), NEXT_HOP_V6, Family::Ipv6Unicast, &hosts(5)), []);
    assert_eq!(withdrawn(Family::Ipv6Unicast, &hosts(5)), []);
    let octets = withdrawn(Family::Ipv4Unicast, &routes);
    assert_eq!(updates(&octets)[0].withdrawn, hosts(3));
}

#[test]
fn attributes_that_go_with_the_routes_are_not_taken_over() {
    let reach = MpReach { family: Family::Ipv6Unicast, next_hop: NEXT_HOP_V6, announced: hosts_v6(1) };
    let unreach = MpUnreach { family: Family::Ipv6Unicast, withdrawn: hosts_v6(1) };
    let stray = [PathAttribute::NextHop(Ipv4Addr::new(10, 9, 9, 9)), PathAttribute::MpReach(reach), PathAttribute::MpUnreach(unreach)];
    let attributes = [&stray[..], &originated()].concat();
    for (next_hop, family, routes) in [(NEXT_HOP, Family::Ipv4Unicast, hosts(3)), (NEXT_HOP_V6, Family::Ipv6Unicast, hosts_v6(3))] {
        assert_eq!(announced(&attributes, next_hop, family, &routes), announced(&originated(), next_hop, family, &routes));
    }
}

#[test]
fn b38_attributes_that_leave_no_room_are_refused() {
    let announce = |communities, out: &mut Vec<u8>| {
        let attributes = [originated(), vec![PathAttribute::Communities(vec![1; communities].into())]].concat();
        encode_announcement(&attributes, NEXT_HOP, Family::Ipv4Unicast, &hosts(2), &external(), out)
    };
    // 23 octets of UPDATE, 20 of the other attributes, 4 before the communities: 4,044 octets of them leave room for one host.
    let mut out = vec![0xAA];
    assert_eq!(announce(1011, &mut out), Ok(1));
    assert_eq!(lengths(&out[1..]), [4096]);
    assert_eq!(announce(1012, &mut out), Err(EncodeError::TooLong { length: 4100, limit: 4096 }));
    assert_eq!(out.len(), 4097);
    assert!(announce(100_000, &mut out).is_err());
}

#[test]
fn b39_next_hops_that_are_not_sent() {
    let unspecified = NextHop::V4(Ipv4Addr::UNSPECIFIED);
    let unspecified_v6 = NextHop::V6 { global: Ipv6Addr::UNSPECIFIED, link_local: None };
    let cases = [
        (unspecified, Family::Ipv4Unicast),
        (unspecified_v6, Family::Ipv6Unicast),
        (NEXT_HOP, Family::Ipv6Unicast),
        (NEXT_HOP_V6, Family::Ipv4Unicast),
    ];
    for (next_hop, family) in cases {
        let mut out = Vec::new();
        let refused = encode_announcement(&originated(), next_hop, family, &hosts(1), &external(), &mut out);
        assert_eq!(refused, Err(EncodeError::NextHop { next_hop, family }));
        assert_eq!(out, []);
    }
}

#[test]
fn b56_rfc2545_3_the_link_local_address_goes_with_the_global_one() {
    let NextHop::V6 { global, .. } = NEXT_HOP_V6 else { panic!() };
    let next_hop = NextHop::V6 { global, link_local: Some("fe80::1".parse().unwrap()) };
    let octets = announced(&originated(), next_hop, Family::Ipv6Unicast, &hosts_v6(1));
    assert_eq!(octets[27..64], hex("0002 01 20 20010DB8000000000000000000000001 FE800000000000000000000000000001 00"));
    assert_eq!(mp_reach(&updates(&octets)[0]).next_hop, next_hop);
}

#[test]
fn b38_rfc8654_4_extended_messages_are_filled() {
    let routes = hosts(20_000);
    let mut out = Vec::new();
    let count = encode_announcement(&originated(), NEXT_HOP, Family::Ipv4Unicast, &routes, &with_extended_messages(external()), &mut out);
    // 43 octets of UPDATE and attributes.
    assert_eq!((count, lengths(&out)), (Ok((65_535 - 43) / 5), vec![43 + (65_535 - 43) / 5 * 5]));
    out.clear();
    let count = encode_withdrawal(Family::Ipv6Unicast, &hosts_v6(20_000), &with_extended_messages(external()), &mut out);
    assert_eq!((count, lengths(&out)), ((65_535 - 30) / 17, vec![30 + (65_535 - 30) / 17 * 17]));
}

#[test]
fn b72_rfc7911_3_paths_of_one_destination_go_with_their_identifiers() {
    let negotiated = with_add_path(external());
    let paths: Vec<_> = (1..=2000).map(|path_id| Nlri { path_id, ..route("193.0.2.1/32") }).collect();
    let (mut out, mut rest) = (Vec::new(), &paths[..]);
    while !rest.is_empty() {
        rest = &rest[encode_announcement(&originated(), NEXT_HOP, Family::Ipv4Unicast, rest, &negotiated, &mut out).unwrap()..];
    }
    // 43 octets of UPDATE and attributes, 9 of each path.
    assert_eq!(lengths(&out), [43 + 9 * 450, 43 + 9 * 450, 43 + 9 * 450, 43 + 9 * 450, 43 + 9 * 200]);
    let told: Vec<_> = decode_all(&out, &negotiated).into_iter().flat_map(|message| announced_by(&message)).collect();
    assert_eq!(told, paths);
    out.clear();
    assert_eq!(encode_withdrawal(Family::Ipv4Unicast, &paths[..1], &negotiated, &mut out), 1);
    assert_eq!(out[19..], hex("0009 00000001 20 C1000201 0000"));
}

fn announced_by(message: &Message) -> Vec<Nlri> {
    match message {
        Message::Update(update) => update.announced.clone(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn b59_rfc8950_4_ipv4_routes_with_an_ipv6_next_hop_are_packed() {
    let mut out = Vec::new();
    let told = encode_announcement(&originated(), NEXT_HOP_V6, Family::Ipv4Unicast, &hosts(2), &with_next_hops(external()), &mut out);
    assert_eq!(told, Ok(2));
    let reach = "900E001F 0001 01 10 20010DB8000000000000000000000001 00 20 0A000000 20 0A000001";
    assert_eq!(out, with_marker(&format!("0047 02 0000 0030 {reach} 40010100 40020602010000FDE9")));
}
