// SPDX-License-Identifier: Apache-2.0

use super::*;
use crate::Family;
use crate::wire::tests::{asn, external, hex, internal, route, two_octet};
use crate::wire::{ErrorHandling, NextHop, Nlri};

/// The flags are checked and the value decoded, as the UPDATE does it.
fn decode(octets: &str, negotiated: &Negotiated) -> Result<PathAttribute, Malformed> {
    let octets = hex(octets);
    let (flags, type_code) = (Flags(octets[0]), octets[1]);
    let value = if flags.contains(Flags::EXTENDED_LENGTH) { &octets[4..] } else { &octets[3..] };
    PathAttribute::check_flags(type_code, flags, negotiated)?;
    match PathAttribute::decode(type_code, flags, value, negotiated)? {
        (attribute, None) => Ok(attribute),
        (_, Some(malformed)) => Err(malformed),
    }
}

#[test]
fn attributes_and_their_octets() {
    let v6 = NextHop::V6 { global: "2001:db8::1".parse().unwrap(), link_local: None };
    let link_local = NextHop::V6 { global: "2001:db8::1".parse().unwrap(), link_local: Some("fe80::1".parse().unwrap()) };
    let reach = |next_hop, announced: &[Nlri]| {
        PathAttribute::MpReach(MpReach { family: Family::Ipv6Unicast, next_hop, announced: announced.to_vec() })
    };
    let cases = [
        ("40 01 01 02", PathAttribute::Origin(Origin::Incomplete)),
        ("40 02 00", PathAttribute::AsPath(AsPath::default())),
        ("40 03 04 0A000001", PathAttribute::NextHop(Ipv4Addr::new(10, 0, 0, 1))),
        ("80 04 04 00000005", PathAttribute::MultiExitDisc(5)),
        ("40 05 04 00000064", PathAttribute::LocalPref(100)),
        ("40 06 00", PathAttribute::AtomicAggregate),
        (
            "C0 07 08 00011170 0A000001",
            PathAttribute::Aggregator(Aggregator { asn: asn(70000), address: Ipv4Addr::new(10, 0, 0, 1) }.into()),
        ),
        ("C0 08 08 FFFF0000 FDE90064", PathAttribute::Communities(vec![0xFFFF_0000, 65001 << 16 | 100].into())),
        ("80 09 04 0A000002", PathAttribute::OriginatorId(Ipv4Addr::new(10, 0, 0, 2))),
        ("80 0A 04 0A000003", PathAttribute::ClusterList(vec![Ipv4Addr::new(10, 0, 0, 3)])),
        ("90 0E 001A 0002 01 10 20010DB8000000000000000000000001 00 20 20010DB8", reach(v6, &[route("2001:db8::/32")])),
        ("90 0E 0025 0002 01 20 20010DB8000000000000000000000001 FE800000000000000000000000000001 00", reach(link_local, &[])),
        (
            "90 0F 0008 0002 01 20 20010DB8",
            PathAttribute::MpUnreach(MpUnreach { family: Family::Ipv6Unicast, withdrawn: vec![route("2001:db8::/32")] }),
        ),
        ("C0 10 08 0002FDE900000064", PathAttribute::ExtendedCommunities(vec![0x0002_FDE9_0000_0064].into())),
        (
            "C0 19 14 0002 20010DB8000000000000000000000001 0064",
            PathAttribute::Ipv6ExtendedCommunities(vec![hex("0002 20010DB8000000000000000000000001 0064").try_into().unwrap()].into()),
        ),
        ("C0 20 0C 0000FDE9 00000001 00000002", PathAttribute::LargeCommunities(vec![[65001, 1, 2]].into())),
        ("E0 63 02 0102", PathAttribute::Unknown { flags: Flags(0xE0), type_code: 99, value: hex("0102").into() }),
        ("80 63 00", PathAttribute::Unknown { flags: Flags(0x80), type_code: 99, value: Bytes::new() }),
    ];
    for (octets, attribute) in cases {
        assert_eq!(decode(octets, &internal()).as_ref(), Ok(&attribute), "{octets}");
        let mut encoded = Vec::new();
        attribute.encode(&internal(), &mut encoded);
        assert_eq!(encoded, hex(octets), "{attribute:?}");
    }
}

#[test]
fn rfc4271_4_3_a_long_value_takes_the_extended_length() {
    for (count, header) in [(63, "C0 08 FC"), (64, "D0 08 0100")] {
        let attribute = PathAttribute::Communities(vec![1; count].into());
        let mut encoded = vec![9];
        attribute.encode(&internal(), &mut encoded);
        let header = hex(header);
        assert_eq!(encoded[1..=header.len()], header);
        assert_eq!(encoded.len(), 1 + header.len() + 4 * count);
    }
}

#[test]
fn rfc7606_3_a_flags_that_conflict_with_the_type() {
    let (withdraw, reset) = (Some(ErrorHandling::TreatAsWithdraw), None);
    let cases = [
        ("C0 01 01 00", withdraw),
        ("00 01 01 00", withdraw),
        ("60 01 01 00", withdraw),
        ("80 02 00", withdraw),
        ("C0 03 04 0A000001", withdraw),
        ("40 04 04 00000000", withdraw),
        ("C0 04 04 00000000", withdraw),
        ("A0 04 04 00000000", withdraw),
        ("C0 05 04 00000064", withdraw),
        ("C0 06 00", withdraw),
        ("80 07 08 0000FDE9 0A000001", withdraw),
        ("40 08 04 00000001", withdraw),
        ("40 09 04 0A000001", withdraw),
        ("C0 0A 04 0A000001", withdraw),
        ("80 10 08 0000000000000001", withdraw),
        ("80 20 0C 000000010000000100000001", withdraw),
        ("40 0E 05 0002010000", reset),
        ("C0 0E 05 0002010000", reset),
        ("C0 0F 03 000201", reset),
    ];
    for (octets, handling) in cases {
        let malformed = decode(octets, &internal()).unwrap_err();
        assert_eq!((malformed.handling, malformed.subcode), (handling, UpdateError::AttributeFlags), "{octets}");
    }
    for octets in ["E0 08 04 00000001", "50 01 0001 00", "4F 01 01 00", "A0 0F 03 000201"] {
        assert!(decode(octets, &internal()).is_ok(), "{octets}");
    }
}

#[test]
fn rfc4271_6_3_an_unknown_well_known_attribute_ends_the_session() {
    let malformed = decode("40 63 01 00", &external()).unwrap_err();
    assert_eq!((malformed.handling, malformed.subcode), (None, UpdateError::UnrecognizedWellKnownAttribute));
}

#[test]
fn rfc7606_7_values_that_are_malformed() {
    let (discard, withdraw, reset) = (Some(ErrorHandling::AttributeDiscard), Some(ErrorHandling::TreatAsWithdraw), None);
    let cases = [
        ("40 01 00", withdraw),
        ("40 01 02 0000", withdraw),
        ("40 01 01 03", withdraw),
        ("40 02 06 0201 00000000", withdraw),
        ("40 03 03 0A0000", withdraw),
        ("40 03 05 0A00000100", withdraw),
        ("40 03 04 00000000", withdraw),
        ("40 03 04 7F000001", withdraw),
        ("40 03 04 E0000001", withdraw),
        ("40 03 04 F0000001", withdraw),
        ("40 03 04 FFFFFFFF", withdraw),
        ("80 04 03 000000", withdraw),
        ("40 05 03 000000", withdraw),
        ("40 06 01 00", discard),
        ("C0 07 05 0000FDE90A", discard),
        ("C0 07 06 FDE9 0A000001", discard),
        ("C0 07 08 00000000 0A000001", discard),
        ("C0 08 00", withdraw),
        ("C0 08 05 FFFF000100", withdraw),
        ("80 09 03 0A0000", withdraw),
        ("80 0A 00", withdraw),
        ("80 0A 05 0A00000100", withdraw),
        ("C0 10 00", withdraw),
        ("C0 10 09 000000000000000000", withdraw),
        ("C0 19 00", withdraw),
        ("C0 19 08 0000000000000001", withdraw),
        ("C0 20 00", withdraw),
        ("C0 20 0D 00000000000000000000000000", withdraw),
        // MP_REACH_NLRI: too short, next hop of 9, past the end, without what follows, prefix of 129, prefix cut.
        ("80 0E 04 00020100", reset),
        ("80 0E 0E 000201 09 200100000000000000 00", reset),
        ("80 0E 05 000201 40 00", reset),
        ("80 0E 14 000201 10 20010DB8000000000000000000000001", reset),
        ("80 0E 16 000201 10 20010DB8000000000000000000000001 00 81", reset),
        ("80 0E 17 000201 10 20010DB8000000000000000000000001 00 2020", reset),
        ("80 0F 02 0002", reset),
        ("80 0F 05 000201 2020", reset),
        ("80 0F 05 000201 8120", reset),
    ];
    for (octets, handling) in cases {
        let malformed = decode(octets, &internal()).unwrap_err();
        assert_eq!(malformed.handling, handling, "{octets}: {}", malformed.reason);
    }
}

#[test]
fn b44_rfc7606_7_7_aggregator_of_a_two_octet_peer() {
    let negotiated = two_octet(external());
    let aggregator = PathAttribute::Aggregator(Aggregator { asn: asn(65001), address: Ipv4Addr::new(10, 0, 0, 1) }.into());
    assert_eq!(decode("C0 07 06 FDE9 0A000001", &negotiated), Ok(aggregator));
    for octets in ["C0 07 08 0000FDE9 0A000001", "C0 07 06 0000 0A000001"] {
        assert_eq!(decode(octets, &negotiated).unwrap_err().handling, Some(ErrorHandling::AttributeDiscard));
    }
}

#[test]
fn b46_rfc7606_7_9_what_an_external_peer_must_not_send() {
    for octets in ["40 05 04 00000064", "C0 05 00", "80 09 03 0A0000", "80 09 04 0A000001", "80 0A 05 0A00000100", "80 0A 04 0A000001"] {
        assert_eq!(decode(octets, &external()).unwrap_err().handling, Some(ErrorHandling::AttributeDiscard), "{octets}");
    }
}

#[test]
fn rfc5065_5_confederation_segments_from_outside() {
    let octets = "40 02 06 0301 0000FDE9";
    assert_eq!(decode(octets, &external()).unwrap_err().handling, Some(ErrorHandling::TreatAsWithdraw));
    assert!(decode(octets, &internal()).is_ok());
}

#[test]
fn b56_rfc2545_3_next_hops() {
    let next_hop = |address: &str, length: u8| {
        let octets = hex(&format!("000201 {length:02X} {address} 00"));
        let (reach, malformed) = MpReach::decode(&octets, &external()).unwrap();
        (reach.unwrap().next_hop, malformed.and_then(|malformed| malformed.handling))
    };
    let (discard, withdraw) = (Some(ErrorHandling::AttributeDiscard), Some(ErrorHandling::TreatAsWithdraw));
    let (global, second) = ("20010DB8000000000000000000000001", "FE800000000000000000000000000001");
    let v6 = |global: &str, link_local: Option<&str>| NextHop::V6 {
        global: global.parse().unwrap(),
        link_local: link_local.map(|address| address.parse().unwrap()),
    };
    let (zero, one) = ("0".repeat(32), format!("{}1", "0".repeat(31)));
    assert_eq!(next_hop(global, 16), (v6("2001:db8::1", None), None));
    assert_eq!(next_hop(second, 16), (v6("fe80::1", None), None));
    assert_eq!(next_hop(&format!("{global}{second}"), 32), (v6("2001:db8::1", Some("fe80::1")), None));
    assert_eq!(next_hop(&format!("{zero}{second}"), 32), (v6("::", Some("fe80::1")), None));
    assert_eq!(next_hop(&format!("{global}{global}"), 32), (v6("2001:db8::1", None), discard));
    assert_eq!(next_hop(&format!("{zero}{global}"), 32), (v6("::", None), withdraw));
    assert_eq!(next_hop(&zero, 16), (v6("::", None), withdraw));
    assert_eq!(next_hop(&one, 16), (v6("::1", None), withdraw));
    assert_eq!(next_hop("FF020000000000000000000000000001", 16), (v6("ff02::1", None), withdraw));
}
