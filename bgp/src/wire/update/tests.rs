// SPDX-License-Identifier: Apache-2.0

use std::net::Ipv4Addr;

use super::*;
use crate::wire::tests::{
    answer, asn, decode, external, hex, internal, route, sequence, two_octet, update_octets, with_add_path, with_marker, with_next_hops,
};
use crate::wire::{AsPath, Error, Message, Origin};

const MANDATORY: &str = "40010100 400206 0201 0000FDEA 400304 0A000002";
const NLRI: &str = "18 0A0100";
const MP_REACH: &str = "800E16 0002 01 10 20010DB8000000000000000000000001 00 00";
const MP_ORIGIN_AS_PATH: &str = "40010100 400206 0201 0000FDEA";

/// An UPDATE of attributes and NLRI, from an external peer.
fn update(attributes: &str, announced: &str) -> Update {
    update_from(&external(), attributes, announced).unwrap()
}

fn update_from(negotiated: &Negotiated, attributes: &str, announced: &str) -> Result<Update, Error> {
    match decode(&update_octets(&[], &hex(attributes), &hex(announced)), negotiated)? {
        Some(Message::Update(update)) => Ok(update),
        other => panic!("{other:?}"),
    }
}

/// The NOTIFICATION that answers such an UPDATE.
fn answer_to(attributes: &str, announced: &str) -> (u8, u8, Vec<u8>) {
    answer(&update_octets(&[], &hex(attributes), &hex(announced)), &external())
}

/// The mandatory attributes with the one of this type replaced.
fn mandatory_with(attribute: &str) -> String {
    let type_code = hex(attribute)[1];
    let others = [(1, "40010100"), (2, "400206 0201 0000FDEA"), (3, "400304 0A000002")];
    let others: Vec<_> = others.into_iter().filter(|(other, _)| *other != type_code).map(|(_, octets)| octets).collect();
    others.join("") + attribute
}

#[test]
fn rfc7606_7_samples() {
    let (discard, withdraw) = (ErrorHandling::AttributeDiscard, ErrorHandling::TreatAsWithdraw);
    let cases = [
        ("C0 01 01 00", withdraw),
        ("60 01 01 00", withdraw),
        ("40 01 01 03", withdraw),
        ("40 01 02 0000", withdraw),
        ("40 02 06 0201 00000000", withdraw),
        ("40 02 06 0001 0000FDEA", withdraw),
        ("40 02 06 0501 0000FDEA", withdraw),
        ("40 02 02 0200", withdraw),
        ("40 02 06 0202 0000FDEA", withdraw),
        ("40 03 03 0A0000", withdraw),
        ("80 04 03 000000", withdraw),
        ("40 06 01 00", discard),
        ("C0 07 05 0000FDE90A", discard),
        ("C0 07 08 00000000 0A000001", discard),
        ("C0 08 05 FFFF000100", withdraw),
        ("C0 20 0D 00000000000000000000000000", withdraw),
    ];
    for (attribute, handling) in cases {
        let update = update(&mandatory_with(attribute), NLRI);
        let type_code = hex(attribute)[1];
        assert_eq!(update.handling(), Some(handling), "{attribute}");
        assert_eq!(update.errors[0].octets, hex(attribute));
        assert_eq!((update.errors[0].type_code, update.errors[0].flags), (type_code, hex(attribute)[0]));
        // The routes are there to be withdrawn or kept, the attribute is not there to be passed on.
        assert_eq!(update.announced, [route("10.1.0.0/24")]);
        assert!(update.attributes.iter().all(|attribute| attribute.type_code() != type_code));
        assert!(!update.malformed.is_empty());
    }
}

#[test]
fn b40_a_well_formed_update_has_no_errors() {
    let update = update(MANDATORY, NLRI);
    assert_eq!((update.handling(), update.malformed.len(), update.attributes.len()), (None, 0, 3));
}

#[test]
fn b46_rfc7606_7_9_attributes_of_reflection_by_kind_of_peer() {
    for attribute in ["80 09 03 0A0000", "80 0A 05 0A00000100", "40 05 03 000000"] {
        let attributes = mandatory_with(attribute);
        let handling = |negotiated| update_from(&negotiated, &attributes, NLRI).unwrap().handling();
        assert_eq!(handling(internal()), Some(ErrorHandling::TreatAsWithdraw));
        assert_eq!(handling(external()), Some(ErrorHandling::AttributeDiscard));
    }
}

#[test]
fn b48_rfc7606_7_11_malformed_multiprotocol_routes_end_the_session() {
    let cases = [
        ("80 0E 0E 000201 09 200100000000000000 00", 9),
        ("80 0E 05 000201 40 00", 9),
        ("80 0E 40 000201 10 20", 1),
        ("80 0F 02 0002", 9),
        ("80 0F 05 000201 2020", 9),
        ("80 0F 40 000201", 1),
        ("80 0F", 1),
        ("C0 0F 03 000201", 4),
        ("80 0E 16 000201 10 20010DB8000000000000000000000001 00 81", 10),
    ];
    for (attribute, subcode) in cases {
        assert_eq!(answer_to(&format!("{MP_ORIGIN_AS_PATH}{attribute}"), NLRI), (3, subcode, hex(attribute)), "{attribute}");
    }
}

#[test]
fn b59_rfc8950_an_ipv6_next_hop_of_ipv4_is_not_agreed_on() {
    let attribute = "800E1A 0001 01 10 0BADCAFE0BADCAFE0BADCAFE0BADCAFE 00 20 99999999";
    assert_eq!(answer_to(&format!("{attribute}{MP_ORIGIN_AS_PATH}"), ""), (3, 9, hex(attribute)));
}

#[test]
fn b57_a_link_local_next_hop_alone() {
    let attribute = "800E26 0002 01 10 FE80000000000000000000000000CAFE 00 80 20010DB8000100000000000000000001";
    let update = update(&format!("{attribute}{MP_ORIGIN_AS_PATH}"), "");
    let PathAttribute::MpReach(reach) = &update.attributes[0] else { panic!("{update:?}") };
    assert_eq!(reach.next_hop, NextHop::V6 { global: "fe80::cafe".parse().unwrap(), link_local: None });
    assert_eq!(reach.announced, [route("2001:db8:1::1/128")]);
    assert_eq!(update.handling(), None);
}

#[test]
fn b49_rfc7606_3_d_missing_mandatory_attributes() {
    for (attributes, missing) in
        [("400206 0201 0000FDEA 400304 0A000002", 1), ("40010100 400304 0A000002", 2), ("40010100 400206 0201 0000FDEA", 3)]
    {
        let update = update(attributes, NLRI);
        assert_eq!(update.handling(), Some(ErrorHandling::TreatAsWithdraw));
        assert_eq!(update.errors.iter().map(|error| error.type_code).collect::<Vec<_>>(), [missing]);
    }
    let nothing = update("", NLRI);
    assert_eq!(nothing.errors.len(), 3);
    let multiprotocol = update(MP_REACH, "");
    assert_eq!(multiprotocol.errors.iter().map(|error| error.type_code).collect::<Vec<_>>(), [1, 2]);
}

#[test]
fn b49_rfc4271_6_3_field_lengths_past_the_message() {
    for body in ["0018 02 0002 0000 00", "0018 02 0000 0002 00", "0019 02 0004 0000 0000", "0017 02 FFFF FFFF", "0017 02 0000 FFFF"] {
        assert_eq!(answer(&with_marker(body), &external()), (3, 1, vec![]), "{body}");
    }
}

#[test]
fn b50_rfc4271_6_3_prefixes() {
    assert_eq!(answer_to(MANDATORY, "21 0A00000100"), (3, 10, vec![]));
    assert_eq!(answer_to(MANDATORY, "FF 0A00000100"), (3, 10, vec![]));
    assert_eq!(answer_to(MANDATORY, "20 0A0000"), (3, 10, vec![]));
    assert_eq!(answer(&update_octets(&hex("21 0A00000100"), &[], &[]), &external()), (3, 10, vec![]));
    assert_eq!(answer(&update_octets(&hex("18 0A00"), &[], &[]), &external()), (3, 10, vec![]));
    let update = update(MANDATORY, "18 0A0000 00 19 0A0001FF 20 0A000201");
    assert_eq!(update.announced, [route("10.0.0.0/24"), route("0.0.0.0/0"), route("10.0.1.128/25"), route("10.0.2.1/32")]);
}

#[test]
fn b50_rfc4271_6_3_multicast_prefixes_are_ignored() {
    let update = update(MANDATORY, "20 E0000001 18 0A0100 04 E0");
    assert_eq!(update.announced, [route("10.1.0.0/24")]);
    assert_eq!(update.ignored, [route("224.0.0.1/32"), route("224.0.0.0/4")]);
    assert_eq!((update.handling(), update.is_end_of_rib()), (None, None));
    let attributes = format!("800E17 0002 01 10 20010DB8000000000000000000000001 00 08FF {MP_ORIGIN_AS_PATH}");
    let update = update_from(&external(), &attributes, "").unwrap();
    assert_eq!(update.ignored, [route("ff00::/8")]);
}

#[test]
fn b58_rfc4760_3_next_hop_beside_mp_reach_is_ignored() {
    for next_hop in ["400304 00000000", "400304 0A000001", "400303 0A0000", "C00304 0A000001"] {
        let update = update(&format!("{MP_REACH}{MP_ORIGIN_AS_PATH}{next_hop}"), "");
        assert_eq!(update.handling(), None, "{next_hop}");
        assert_eq!(update.attributes.len(), 3);
    }
    // Routes of both kinds: it is that of the NLRI field.
    let both = update(&format!("{MP_REACH}{MANDATORY}"), NLRI);
    assert_eq!((both.handling(), both.attributes.len()), (None, 4));
    let wrong = update(&format!("{MP_REACH}{MP_ORIGIN_AS_PATH}400304 00000000"), NLRI);
    assert_eq!(wrong.handling(), Some(ErrorHandling::TreatAsWithdraw));
}

#[test]
fn b60_routes_of_a_family_that_is_not_negotiated_are_ignored() {
    let ipv4_only = Negotiated { families: [Family::Ipv4Unicast].into(), ..external() };
    let reach = hex(MP_REACH);
    let update = update_from(&ipv4_only, &format!("{MP_REACH}{MP_ORIGIN_AS_PATH}"), "").unwrap();
    let unknown = PathAttribute::Unknown { flags: Flags::OPTIONAL, type_code: 14, value: Bytes::copy_from_slice(&reach[3..]) };
    assert_eq!((update.attributes[0].clone(), update.handling()), (unknown, None));
    // Another AFI, with a next hop of whatever length; and routes withdrawn, which are no End-of-RIB of IPv4 unicast.
    let other = update_from(&external(), &format!("800E0A 0019 46 03 0A0000 00 FFFF {MP_ORIGIN_AS_PATH}"), "").unwrap();
    assert_eq!(other.handling(), None);
    for negotiated in [&ipv4_only, &external()] {
        assert_eq!(update_from(negotiated, "800F03 0019 46", "").unwrap().is_end_of_rib(), None);
    }
    let ipv6_only = Negotiated { families: [Family::Ipv6Unicast].into(), ..external() };
    let update = update_from(&ipv6_only, MANDATORY, NLRI).unwrap();
    assert_eq!((update.announced, update.withdrawn), (vec![], vec![]));
}

#[test]
fn rfc7606_3_g_repeated_attributes() {
    let update = update(&format!("{MANDATORY} 40010102 C06301AA C06301BB"), NLRI);
    assert_eq!(update.handling(), Some(ErrorHandling::AttributeDiscard));
    assert_eq!(update.attributes.len(), 4);
    assert_eq!(update.attributes[0], PathAttribute::Origin(Origin::Igp));
    let unreach = "800F03 000201";
    assert_eq!(answer_to(&format!("{MP_REACH}{MP_ORIGIN_AS_PATH}{MP_REACH}"), "").1, 1);
    assert_eq!(answer_to(&format!("{unreach}{unreach}"), ""), (3, 1, hex(unreach)));
    // The one that is malformed is the first: the second does not mend it.
    let first_malformed = update_from(&external(), &format!("40010103 {MANDATORY}"), NLRI).unwrap();
    assert_eq!(first_malformed.handling(), Some(ErrorHandling::TreatAsWithdraw));
}

#[test]
fn rfc7606_3_h_the_strongest_handling_counts() {
    let both = update(&mandatory_with("C0 08 01 00 40 06 01 00"), NLRI);
    assert_eq!((both.handling(), both.errors.len()), (Some(ErrorHandling::TreatAsWithdraw), 2));
    assert_eq!(answer_to(&format!("{} 800F02 0002", mandatory_with("40 01 01 03")), NLRI), (3, 9, hex("800F02 0002")));
}

#[test]
fn rfc7606_4_an_attribute_past_the_end_of_the_list() {
    for truncated in ["C00808 00000001", "C008", "C0", "D00800", "D0080008 00000001"] {
        let update = update(&format!("{MANDATORY}{truncated}"), NLRI);
        assert_eq!(update.handling(), Some(ErrorHandling::TreatAsWithdraw), "{truncated}");
        assert_eq!(update.announced, [route("10.1.0.0/24")]);
        assert_eq!(update.errors[0].octets, hex(truncated));
    }
}

#[test]
fn rfc7606_5_2_malformed_attributes_without_routes_end_the_session() {
    assert_eq!(answer_to("40010103", ""), (3, 6, hex("40010103")));
    assert_eq!(answer_to("800F03000201 40010103", ""), (3, 6, hex("40010103")));
    let withdrawing = update_octets(&hex("18 0A0100"), &hex("C00805 FFFF000100"), &[]);
    assert_eq!(answer(&withdrawing, &external()), (3, 5, hex("C00805 FFFF000100")));
    // Discarding an attribute needs no routes.
    let discarded = update("40060100", "");
    assert_eq!((discarded.handling(), discarded.is_end_of_rib()), (Some(ErrorHandling::AttributeDiscard), None));
}

#[test]
fn rfc4271_6_3_an_unknown_well_known_attribute_ends_the_session() {
    assert_eq!(answer_to(&format!("{MANDATORY} 40630100"), NLRI), (3, 2, hex("40630100")));
}

#[test]
fn rfc7606_5_3_the_next_hop_of_ipv6_is_no_host() {
    let update = update(&format!("800E16 0002 01 10 00000000000000000000000000000000 00 00 {MP_ORIGIN_AS_PATH}"), "");
    assert_eq!(update.handling(), Some(ErrorHandling::TreatAsWithdraw));
    let PathAttribute::MpReach(reach) = &update.attributes[0] else { panic!("{update:?}") };
    assert_eq!(reach.announced, [route("::/0")]);
}

/// AS_PATH and AGGREGATOR of an UPDATE from a peer with two-octet numbers.
fn from_two_octet_peer(attributes: &str) -> (Vec<u32>, Option<u32>, Option<ErrorHandling>) {
    let update = update_from(&two_octet(external()), &format!("40010100 400304 0A000002 {attributes}"), NLRI).unwrap();
    let path = update.attributes.iter().find_map(|attribute| match attribute {
        PathAttribute::AsPath(path) => Some(path.0.iter().flat_map(|segment| segment.ases()).map(|asn| asn.number()).collect()),
        _ => None,
    });
    let aggregator = update.attributes.iter().find_map(|attribute| match attribute {
        PathAttribute::Aggregator(aggregator) => Some(aggregator.value.asn.number()),
        _ => None,
    });
    (path.unwrap_or_default(), aggregator, update.handling())
}

#[test]
fn rfc6793_4_2_3_as4_attributes_of_a_two_octet_peer() {
    const PATH: &str = "400206 0202 FDEA 5BA0";
    const AS4_PATH: &str = "C01106 0201 00011170";
    const AS4_AGGREGATOR: &str = "C01208 00011171 0A000001";
    let discard = Some(ErrorHandling::AttributeDiscard);
    let cases = [
        (vec![PATH], vec![65002, 23456], None, None),
        (vec![PATH, AS4_PATH], vec![65002, 70000], None, None),
        (vec![AS4_PATH, PATH], vec![65002, 70000], None, None),
        (vec![PATH, AS4_PATH, "C00706 5BA0 0A000009", AS4_AGGREGATOR], vec![65002, 70000], Some(70001), None),
        (vec![PATH, AS4_PATH, "C00706 FDEA 0A000009", AS4_AGGREGATOR], vec![65002, 23456], Some(65002), None),
        (vec![PATH, AS4_PATH, "C00706 FDEA 0A000009"], vec![65002, 70000], Some(65002), None),
        (vec![PATH, AS4_PATH, AS4_AGGREGATOR], vec![65002, 70000], None, None),
        // Segments of a confederation do not count (§6).
        (vec![PATH, "C0110C 0301 0000FE4D 0201 00011170"], vec![65002, 70000], None, None),
        // Malformed: discarded (§6, RFC 7607 §2).
        (vec![PATH, "C01100"], vec![65002, 23456], None, discard),
        (vec![PATH, "C01105 0201 000111"], vec![65002, 23456], None, discard),
        (vec![PATH, "C01106 0201 00000000"], vec![65002, 23456], None, discard),
        (vec![PATH, "C01106 0501 00011170"], vec![65002, 23456], None, discard),
        (vec![PATH, "C00706 5BA0 0A000009", "C01206 00011171 0A00"], vec![65002, 23456], Some(23456), discard),
        (vec![PATH, "C00706 5BA0 0A000009", "C01208 00000000 0A000001"], vec![65002, 23456], Some(23456), discard),
    ];
    for (attributes, path, aggregator, handling) in cases {
        assert_eq!(from_two_octet_peer(&attributes.concat()), (path, aggregator, handling), "{attributes:?}");
    }
}

#[test]
fn rfc9774_3_a_path_with_a_set_withdraws_its_routes_and_the_session_stays() {
    const SET: &str = "0101 0000FDEA";
    const CONFED_SET: &str = "0401 0000FDEA";
    let withdraw = Some(ErrorHandling::TreatAsWithdraw);
    for negotiated in [internal(), external()] {
        for set in [SET, CONFED_SET] {
            let update = update_from(&negotiated, &format!("40010100 400206 {set} 400304 0A000002 400504 00000064"), NLRI).unwrap();
            assert_eq!(update.handling(), withdraw, "{set}");
            assert!(update.errors.iter().any(|error| error.reason.contains("RFC 9774")), "{:?}", update.errors);
        }
    }
    // Of a two-octet peer, whose AS4_PATH counts too: also where it would not be used, since it is too long, or somebody has aggregated since.
    for set in [SET, CONFED_SET] {
        let aggregated = format!("C00706 FDEA 0A000009 C01208 00011171 0A000001 C01106 {set}");
        for beside in [format!("C01106 {set}"), format!("C01114 0203 00000001 00000002 00000003 {set}"), aggregated] {
            assert_eq!(from_two_octet_peer(&format!("400206 0202 FDEA 5BA0 {beside}")).2, withdraw, "{beside}");
        }
    }
    // RFC 6793 §6: of a four-octet peer it is discarded unread, and a sequence of a confederation is passed over.
    let update = update(&format!("{MANDATORY} C01106 {SET}"), NLRI);
    assert_eq!(update.handling(), Some(ErrorHandling::AttributeDiscard));
    assert_eq!(from_two_octet_peer("400206 0202 FDEA 5BA0 C0110C 0301 0000FE4D 0201 00011170"), (vec![65002, 70000], None, None));
}

#[test]
fn rfc6793_4_1_as4_attributes_of_a_four_octet_peer_are_discarded() {
    let update = update(&format!("{MANDATORY} C01106 0201 00011170 C01208 00011171 0A000001"), NLRI);
    assert_eq!((update.handling(), update.errors.len(), update.attributes.len()), (Some(ErrorHandling::AttributeDiscard), 2, 3));
}

#[test]
fn rfc6793_4_2_2_as4_attributes_are_sent_to_a_two_octet_peer() {
    let aggregator = |number| PathAttribute::Aggregator(Aggregator { asn: asn(number), address: Ipv4Addr::new(10, 0, 0, 1) }.into());
    let encoded = |path: &[u32], number| {
        let path = PathAttribute::AsPath(sequence(path.iter().copied().map(asn)));
        let unknown = PathAttribute::Unknown { flags: Flags::OPTIONAL, type_code: 99, value: Bytes::new() };
        let mut out = Vec::new();
        put_attributes(&[unknown, aggregator(number), path, PathAttribute::Communities(vec![1].into())], &two_octet(external()), &mut out);
        out
    };
    let as_trans =
        "400206 0202 0001 5BA0 C00706 5BA0 0A000001 C00804 00000001 C0110A 0202 00000001 00011170 C01208 00011171 0A000001 806300";
    assert_eq!(encoded(&[1, 70000], 70001), hex(as_trans));
    assert_eq!(encoded(&[1, 65535], 65535), hex("400206 0202 0001 FFFF C00706 FFFF 0A000001 C00804 00000001 806300"));
}

#[test]
fn b31_rfc7606_5_1_the_order_of_attributes() {
    let update = Update {
        attributes: vec![
            PathAttribute::Unknown { flags: Flags::OPTIONAL, type_code: 11, value: Bytes::new() },
            PathAttribute::LocalPref(100),
            PathAttribute::AsPath(AsPath::default()),
            PathAttribute::MpUnreach(MpUnreach { family: Family::Ipv6Unicast, withdrawn: vec![] }),
            PathAttribute::Origin(Origin::Igp),
        ],
        ..Update::default()
    };
    let octets = Message::Update(update).encode(&internal()).unwrap();
    assert_eq!(octets[23..], hex("900F0003 000201 40010100 400200 400504 00000064 800B00"));
}

#[test]
fn b32_rfc4271_4_1_an_update_over_the_limit_is_not_sent() {
    let withdrawn = |count| Update { withdrawn: vec![route("10.0.0.1/32"); count], ..Update::default() };
    assert_eq!(Message::Update(withdrawn(814)).encode(&external()).unwrap().len(), 4093);
    let too_long = Message::Update(withdrawn(815)).encode(&external());
    assert_eq!(too_long, Err(EncodeError::TooLong { length: 4098, limit: 4096 }));
    assert!(Message::Update(withdrawn(20_000)).encode(&external()).is_err());
}

#[test]
fn b39_an_unspecified_next_hop_is_not_sent() {
    let update = |attribute| Message::Update(Update { attributes: vec![attribute], ..Update::default() });
    let ipv4 = update(PathAttribute::NextHop(Ipv4Addr::UNSPECIFIED)).encode(&external()).unwrap_err();
    assert_eq!(ipv4.to_string(), "0.0.0.0 cannot be sent as next hop of ipv4-unicast");
    let next_hop = NextHop::V6 { global: "::".parse().unwrap(), link_local: None };
    let reach = crate::wire::MpReach { family: Family::Ipv6Unicast, next_hop, announced: vec![] };
    assert!(update(PathAttribute::MpReach(reach)).encode(&external()).is_err());
}

/// What an UPDATE announces by MP_REACH_NLRI.
fn reached(negotiated: &Negotiated, attributes: &str) -> (NextHop, Vec<Nlri>) {
    let update = update_from(negotiated, &format!("{attributes}{MP_ORIGIN_AS_PATH}"), "").unwrap();
    assert_eq!(update.handling(), None, "{attributes}");
    match update.attributes.first() {
        Some(PathAttribute::MpReach(reach)) => (reach.next_hop, reach.announced.clone()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn b59_rfc8950_4_an_ipv6_next_hop_of_ipv4() {
    let agreed = with_next_hops(external());
    let v6 = |global: &str, link_local: Option<&str>| NextHop::V6 {
        global: global.parse().unwrap(),
        link_local: link_local.map(|address| address.parse().unwrap()),
    };
    let (global, link_local) = ("0BADCAFE0BADCAFE0BADCAFE0BADCAFE", "FE800000000000000000000000000001");
    let global_only = reached(&agreed, &format!("800E1A 0001 01 10 {global} 00 20 99999999"));
    assert_eq!(global_only, (v6("bad:cafe:bad:cafe:bad:cafe:bad:cafe", None), vec![route("153.153.153.153/32")]));
    let both = reached(&agreed, &format!("800E2A 0001 01 20 {global}{link_local} 00 20 99999999"));
    assert_eq!(both.0, v6("bad:cafe:bad:cafe:bad:cafe:bad:cafe", Some("fe80::1")));
    assert_eq!(reached(&agreed, &format!("800E1A 0001 01 10 {link_local} 00 20 99999999")).0, v6("fe80::1", None));
    assert_eq!(reached(&agreed, "800E0E 0001 01 04 0A000002 00 20 99999999").0, NextHop::V4(Ipv4Addr::new(10, 0, 0, 2)));
    // 24 and 48 octets are next hops of VPN routes.
    for (length, next_hop) in [(24, format!("{:016}{global}", 0)), (48, format!("{:016}{global}{:016}{link_local}", 0, 0))] {
        let attribute = format!("800E{:02X} 0001 01 {length:02X} {next_hop} 00", length + 5);
        let octets = update_octets(&[], &hex(&format!("{attribute}{MP_ORIGIN_AS_PATH}")), &[]);
        assert_eq!(answer(&octets, &agreed), (3, 9, hex(&attribute)));
    }
}

#[test]
fn b59_rfc8950_4_an_ipv6_next_hop_of_ipv4_is_sent_where_agreed_on() {
    let next_hop = NextHop::V6 { global: "2001:db8::1".parse().unwrap(), link_local: None };
    let reach = crate::wire::MpReach { family: Family::Ipv4Unicast, next_hop, announced: vec![route("192.0.2.1/32")] };
    let update = Message::Update(Update { attributes: vec![PathAttribute::MpReach(reach)], ..Update::default() });
    let octets = update.encode(&with_next_hops(external())).unwrap();
    assert_eq!(octets[23..], hex("900E001A 0001 01 10 20010DB8000000000000000000000001 00 20 C0000201"));
    assert_eq!(update.encode(&external()), Err(EncodeError::NextHop { next_hop, family: Family::Ipv4Unicast }));
}

#[test]
fn b57_next_hops_of_a_link() {
    let (zero, first, second) = ("0".repeat(32), "FE80000000000000000000000000CAFE", "FE80000000000000000000000000BEEF");
    let v6 = |global: &str, link_local: &str| NextHop::V6 { global: global.parse().unwrap(), link_local: link_local.parse().ok() };
    let next_hop = |length: u8, octets: String| reached(&external(), &format!("800E{:02X} 0002 01 {length:02X} {octets} 00", length + 5)).0;
    assert_eq!(next_hop(16, first.into()), v6("fe80::cafe", ""));
    assert_eq!(next_hop(32, format!("{zero}{first}")), v6("::", "fe80::cafe"));
    assert_eq!(next_hop(32, format!("{first}{second}")), v6("fe80::cafe", "fe80::beef"));
    let sent = |next_hop, negotiated: &Negotiated| {
        let reach = crate::wire::MpReach { family: Family::Ipv6Unicast, next_hop, announced: vec![] };
        Message::Update(Update { attributes: vec![PathAttribute::MpReach(reach)], ..Update::default() }).encode(negotiated).ok()
    };
    assert!(sent(v6("fe80::cafe", ""), &with_next_hops(external())).is_some());
    assert_eq!(sent(v6("fe80::cafe", ""), &external()), None, "alone only where agreed on");
    assert_eq!(sent(v6("fe80::cafe", "fe80::cafe"), &external()).unwrap()[30], 32);
    assert_eq!(sent(v6("::", "fe80::cafe"), &with_next_hops(external())), None);
}

#[test]
fn b72_rfc7911_3_path_identifiers_are_read_by_family_and_direction() {
    let path = |text, path_id| Nlri { path_id, ..route(text) };
    let receive = Negotiated { add_path_send: [].into(), ..with_add_path(external()) };
    let update = update_from(&receive, MANDATORY, "01020304 20 C1000201 00000000 18 0A0100").unwrap();
    assert_eq!(update.announced, [path("193.0.2.1/32", 0x0102_0304), path("10.1.0.0/24", 0)]);
    let withdrawn = decode(&update_octets(&hex("00000007 20 C1000201"), &[], &[]), &receive).unwrap();
    assert!(matches!(withdrawn, Some(Message::Update(update)) if update.withdrawn == [path("193.0.2.1/32", 7)]));
    let next_hop = "20010DB8000000000000000000000001";
    let reach = reached(&receive, &format!("800E1D 0002 01 10 {next_hop} 00 00000009 18 20010D"));
    assert_eq!(reach.1, [path("2001:d00::/24", 9)]);
    // Of one family only; and not where only we may send them.
    let ipv6_only = Negotiated { add_path_receive: [Family::Ipv6Unicast].into(), ..receive.clone() };
    assert_eq!(update_from(&ipv6_only, MANDATORY, NLRI).unwrap().announced, [route("10.1.0.0/24")]);
    let send = Negotiated { add_path_receive: [].into(), ..with_add_path(external()) };
    assert_eq!(update_from(&send, MANDATORY, NLRI).unwrap().announced, [route("10.1.0.0/24")]);
    // Cut in the identifier, and behind it.
    for cut in ["01020304 20 C1000201 000000", "01020304", "010203"] {
        assert_eq!(answer(&update_octets(&[], &hex(MANDATORY), &hex(cut)), &receive), (3, 10, vec![]), "{cut}");
    }
    let cut = format!("800E17 0002 01 10 {next_hop} 00 0000");
    assert_eq!(answer(&update_octets(&[], &hex(&format!("{cut}{MP_ORIGIN_AS_PATH}")), &[]), &receive), (3, 9, hex(&cut)));
}

#[test]
fn b72_rfc7911_3_path_identifiers_are_sent_by_direction() {
    let path = Nlri { path_id: 0x0102_0304, ..route("193.0.2.1/32") };
    let withdrawal = Message::Update(Update { withdrawn: vec![path], ..Update::default() });
    let send = Negotiated { add_path_receive: [].into(), ..with_add_path(external()) };
    assert_eq!(withdrawal.encode(&send).unwrap()[19..], hex("0009 01020304 20 C1000201 0000"));
    let receive = Negotiated { add_path_send: [].into(), ..with_add_path(external()) };
    assert_eq!(withdrawal.encode(&receive).unwrap()[19..], hex("0005 20 C1000201 0000"));
}

#[test]
fn rfc4271_5_the_partial_bit_is_sent_on() {
    let partial = "E00708 0000FDEA 0A000001 E00804 FDE90001 E01008 0002FDE900000064 E0200C 0000FDE90000000100000002 E02304 0000FDEA";
    let update = update(&format!("{MANDATORY}{partial}"), NLRI);
    assert_eq!(update.handling(), None);
    let octets = Message::Update(update).encode(&external()).unwrap();
    assert_eq!(octets[23..], [hex(MANDATORY), hex(partial), hex(NLRI)].concat());
}

#[test]
fn b54_rfc9234_5_only_to_customer() {
    let attributes = |attribute: &str| update(&format!("{MANDATORY}{attribute}"), NLRI);
    let only_to_customer = attributes("C02304 0000FDEA");
    assert_eq!(only_to_customer.attributes[3], PathAttribute::OnlyToCustomer(asn(65002).into()));
    for malformed in ["C02300", "C02303 00FDEA", "C02305 0000FDEA00", "C02304 00000000"] {
        assert_eq!(attributes(malformed).handling(), Some(ErrorHandling::TreatAsWithdraw), "{malformed}");
    }
}
