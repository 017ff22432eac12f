// SPDX-License-Identifier: Apache-2.0

use super::*;
use crate::wire::tests::{answer, asn, decode, external, hex, with_marker};
use crate::wire::{Message, Negotiated};

/// An OPEN of AS 65001 with a hold time of 90 s, from what stands for the optional parameters, their length included.
fn open_with(parameters: &[u8]) -> Vec<u8> {
    open(&hex("04 FDE9 005A 0A000001"), parameters)
}

fn open(fixed: &[u8], parameters: &[u8]) -> Vec<u8> {
    let length = u8::try_from(HEADER_LENGTH + fixed.len() + parameters.len()).unwrap();
    [&[0xFF; 16][..], &[0, length, 1], fixed, parameters].concat()
}

fn decoded(octets: &[u8]) -> Open {
    match decode(octets, &external()) {
        Ok(Some(Message::Open(open))) => open,
        other => panic!("{other:?}"),
    }
}

fn capabilities(parameters: &str) -> Vec<Capability> {
    decoded(&open_with(&hex(parameters))).capabilities
}

fn answer_to(octets: &[u8]) -> (u8, u8, Vec<u8>) {
    answer(octets, &external())
}

#[test]
fn b04_rfc4271_6_2_version_3() {
    assert_eq!(answer_to(&open(&hex("03 FDE9 005A 0A000001"), &[0])), (2, 1, vec![0, 4]));
    assert_eq!(answer_to(&open(&hex("05 FDE9 005A 0A000001"), &[0])), (2, 1, vec![0, 4]));
}

#[test]
fn b05_rfc6793_4_1_the_as_number_is_that_of_the_capability() {
    let as_trans = decoded(&open(&hex("04 5BA0 005A 0A000001"), &hex("08 0206 4104 00010000")));
    assert_eq!(as_trans.asn, asn(65536));
    let repeated = decoded(&open(&hex("04 FDE9 005A 0A000001"), &hex("10 0206 4104 0000FDE9 0206 4104 00010000")));
    assert_eq!(repeated.asn, asn(65001));
    assert_eq!(decoded(&open_with(&[0])).asn, asn(65001));
}

#[test]
fn b05_rfc7607_2_as_0() {
    assert_eq!(answer_to(&open_with(&hex("08 0206 4104 00000000"))), (2, 2, vec![]));
    assert_eq!(answer_to(&open(&hex("04 0000 005A 0A000001"), &[0])), (2, 2, vec![]));
    assert_eq!(answer_to(&open(&hex("04 0000 005A 0A000001"), &hex("08 0206 4104 0000FDE9"))), (2, 2, vec![]));
}

#[test]
fn b06_rfc6286_2_1_identifier_0() {
    assert_eq!(answer_to(&open(&hex("04 FDE9 005A 00000000"), &[0])), (2, 3, vec![]));
    assert_eq!(decoded(&open(&hex("04 FDE9 005A 00000001"), &[0])).identifier.number(), 1);
    assert_eq!(decoded(&open(&hex("04 FDE9 005A FFFFFFFF"), &[0])).identifier.number(), u32::MAX);
}

#[test]
fn b07_rfc4271_6_2_hold_time() {
    assert_eq!(answer_to(&open(&hex("04 FDE9 0001 0A000001"), &[0])), (2, 6, vec![]));
    assert_eq!(answer_to(&open(&hex("04 FDE9 0002 0A000001"), &[0])), (2, 6, vec![]));
    for (field, seconds) in [("0000", 0), ("0003", 3), ("FFFF", 65535)] {
        let open = decoded(&open(&hex(&format!("04 FDE9 {field} 0A000001")), &[0]));
        assert_eq!(open.hold_time.secs(), seconds);
    }
}

#[test]
fn b07_rfc4271_4_2_the_smaller_hold_time_counts() {
    let open = |seconds| Open { hold_time: HoldTime::from_secs(seconds).unwrap(), ..decoded(&open_with(&[0])) };
    for (ours, theirs, negotiated) in [(90, 30, 30), (30, 90, 30), (90, 0, 0), (0, 90, 0), (3, 3, 3)] {
        assert_eq!(Negotiated::new(&open(ours), &open(theirs)).hold_time.secs(), negotiated);
    }
}

#[test]
fn b09_rfc5492_4_unknown_capabilities_are_kept_aside() {
    let unknown = Capability::Unknown { code: 0xB7, value: hex("0102").into() };
    assert_eq!(
        capabilities("0A 0208 B7020102 0200 4F00"),
        [unknown, Capability::RouteRefresh, Capability::Unknown { code: 79, value: Bytes::new() }]
    );
}

#[test]
fn b09_rfc5492_4_one_parameter_or_many() {
    let expected = [Capability::Multiprotocol(Family::Ipv4Unicast), Capability::RouteRefresh, Capability::FourOctetAs];
    assert_eq!(capabilities("10 020E 010400010001 0200 41040000FDE9"), expected);
    assert_eq!(capabilities("14 0206 010400010001 0202 0200 0206 41040000FDE9"), expected);
    assert_eq!(capabilities("14 0200 0208 010400010001 0200 0206 41040000FDE9"), expected);
}

#[test]
fn b09_rfc5492_4_a_repeated_capability_is_no_error() {
    assert_eq!(capabilities("0C 020A 010400010001 0200 0200").len(), 3);
}

#[test]
fn b10_rfc4271_6_2_a_parameter_that_is_not_capabilities() {
    assert_eq!(answer_to(&open_with(&hex("04 0102 0000"))), (2, 4, vec![]));
    assert_eq!(answer_to(&open_with(&hex("08 0202 0200 FF02 0000"))), (2, 4, vec![]));
}

#[test]
fn b10_rfc4271_6_2_lengths_past_the_end() {
    let cases = [
        "05 0206 0104",             // the parameters end after the message
        "00 0202 0200",             // the message ends after the parameters
        "04 0206 0104",             // a parameter
        "01 02",                    // a parameter without a length
        "08 0206 0105 0001 0001",   // a capability
        "03 0201 02",               // a capability without a length
        "08 0206 0103 0001 00 01",  // families of 3, 5 and 0 octets
        "09 0207 0105 0001 000100", //
        "04 0202 0100",
        "05 0203 0201 00",     // route refresh with a value
        "07 0205 4103 0000FD", // an AS number of 3 octets
        "FF FF",               // extended lengths, cut
        "FF FF 00",
        "FF FF 0001",
        "FF FF 0003 02 00",
        "FF FF 0003 02 0001",
    ];
    for parameters in cases {
        assert_eq!(answer_to(&open_with(&hex(parameters))), (2, 0, vec![]), "{parameters}");
    }
}

#[test]
fn rfc9072_2_extended_lengths() {
    let expected = [Capability::Multiprotocol(Family::Ipv6Unicast), Capability::RouteRefresh];
    assert_eq!(capabilities("FF FF 000E 02 0006 010400020001 02 0002 0200"), expected);
    // The first length only must not be 0.
    assert_eq!(capabilities("04 FF 000E 02 0006 010400020001 02 0002 0200"), expected);
    assert_eq!(answer_to(&open_with(&hex("FF FF 0005 03 0002 0000"))), (2, 4, vec![]));
}

#[test]
fn rfc9072_2_many_capabilities_are_sent_with_extended_lengths() {
    for octets in [100, 249, 250, 251, 255] {
        let capabilities = vec![Capability::Unknown { code: 200, value: vec![7; octets].into() }, Capability::RouteRefresh];
        let open = Open { capabilities, ..decoded(&open_with(&[0])) };
        let encoded = open.encode();
        assert_eq!(encoded[28] == 255, octets > 248, "{octets}");
        assert_eq!(decoded(&encoded), open);
    }
}

#[test]
fn rfc4271_4_1_an_open_is_never_over_4096_octets() {
    let capabilities = (1..=20).map(|code| Capability::Unknown { code: 200 + code, value: vec![code; 255].into() }).collect();
    let open = Open { capabilities, ..decoded(&open_with(&[0])) };
    let encoded = open.encode();
    assert!(encoded.len() <= MAX_MESSAGE_LENGTH);
    assert_eq!(decoded(&encoded).capabilities, open.capabilities[..15]);
}

#[test]
fn b12_rfc4760_8_families() {
    let families = |parameters: &str| decoded(&open_with(&hex(parameters))).families().into_iter().collect::<Vec<_>>();
    assert_eq!(families("00"), [Family::Ipv4Unicast]);
    assert_eq!(families("04 0202 0200"), [Family::Ipv4Unicast]);
    assert_eq!(families("08 0206 0104 0002 0001"), [Family::Ipv6Unicast]);
    assert_eq!(families("0E 020C 0104 0001 0001 0104 0019 0046"), [Family::Ipv4Unicast]);
    assert_eq!(families("08 0206 0104 0019 0046"), []);
    assert_eq!(families("08 0206 0104 0001 0080"), []);
}

#[test]
fn b12_rfc4760_8_what_both_sides_have_is_negotiated() {
    let open = |parameters: &str| decoded(&open_with(&hex(parameters)));
    let ours = open("16 0214 0104 0001 0001 0104 0002 0001 0200 4104 0000FDE9");
    let plain = Negotiated::new(&ours, &open("00"));
    assert_eq!(plain.families, [Family::Ipv4Unicast].into());
    assert!(!plain.four_octet_as && !plain.route_refresh && plain.internal);
    let full = Negotiated::new(&ours, &open("16 0214 0104 0002 0001 0104 0019 0046 0200 4104 0000FDEA"));
    assert_eq!(full.families, [Family::Ipv6Unicast].into());
    assert!(full.four_octet_as && full.route_refresh && !full.internal);
    assert_eq!((full.local_asn, full.remote_asn), (asn(65001), asn(65002)));
}

#[test]
fn rfc4271_6_2_every_cut_of_an_open_is_an_error() {
    let whole = open_with(&hex("10 020E 010400010001 0200 41040000FDE9"));
    for end in HEADER_LENGTH + 10..whole.len() {
        let mut cut = whole[..end].to_vec();
        cut[17] = u8::try_from(end).unwrap();
        assert_eq!(answer(&cut, &external()), (2, 0, vec![]), "{end}");
    }
    assert!(decode(&with_marker("001D 01 04 FDE9 005A 0A000001 00"), &external()).is_ok());
}
