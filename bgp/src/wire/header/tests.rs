// SPDX-License-Identifier: Apache-2.0

use super::*;
use crate::wire::tests::{answer, decode, decode_all, external, with_extended_messages, with_marker};

#[test]
fn b01_rfc4271_6_1_marker_not_all_ones() {
    for at in 0..16 {
        let mut octets = with_marker("0013 04");
        octets[at] = 0xFE;
        assert_eq!(answer(&octets, &external()), (1, 1, vec![]));
    }
}

#[test]
fn b02_rfc4271_6_1_bad_message_length() {
    let cases = [
        ("0000 04", vec![0, 0]),
        ("0012 04", vec![0, 18]),
        ("0012 01", vec![0, 18]),
        ("0012 FF", vec![0, 18]),
        ("1001 02", vec![0x10, 0x01]),
        ("FFFF 02", vec![0xFF, 0xFF]),
        ("0014 04 00", vec![0, 20]),
        ("001C 01", vec![0, 28]),
        ("0016 02", vec![0, 22]),
        ("0014 03 06", vec![0, 20]),
        ("0015 05", vec![0, 21]),
    ];
    for (octets, length) in cases {
        assert_eq!(answer(&with_marker(octets), &external()), (1, 2, length), "{octets}");
    }
}

#[test]
fn b03_rfc4271_6_1_bad_message_type() {
    for message_type in [0, 6, 255] {
        let octets = [with_marker("0013"), vec![message_type]].concat();
        assert_eq!(answer(&octets, &external()), (1, 3, vec![message_type]));
    }
}

#[test]
fn a_message_waits_for_its_last_octet() {
    let octets = [with_marker("0017 05 0001 00 01"), with_marker("0013 04")].concat();
    for end in 0..23 {
        assert_eq!(decode(&octets[..end], &external()), Ok(None));
    }
    assert_eq!(decode_all(&octets, &external()).len(), 2);
    assert_eq!(decode_all(&octets[..41], &external()).len(), 1);
}

#[test]
fn rfc4271_4_1_a_message_of_4096_octets() {
    let mut octets = with_marker("1000 03 06 02");
    octets.resize(MAX_MESSAGE_LENGTH, b'x');
    assert_eq!(decode_all(&octets, &external()).len(), 1);
}

/// A message of this type and length, all octets after the header 0.
fn message(message_type: u8, length: u16) -> Vec<u8> {
    let mut octets = [&[0xFF; 16][..], &length.to_be_bytes(), &[message_type]].concat();
    octets.resize(length.into(), 0);
    octets
}

#[test]
fn b38_rfc8654_4_long_messages_where_we_said_so() {
    let extended = with_extended_messages(external());
    for (message_type, length) in [(2, 4097), (3, 4097), (5, 4097), (2, u16::MAX), (3, u16::MAX)] {
        let octets = message(message_type, length);
        assert_eq!(answer(&octets, &external()), (1, 2, length.to_be_bytes().to_vec()), "{message_type} {length}");
        let read = decode(&octets, &extended);
        assert!(!matches!(&read, Err(error) if error.notification.code == 1), "{message_type} {length}: {read:?}");
    }
    // OPEN and KEEPALIVE stay short.
    for message_type in [1, 4] {
        assert_eq!(answer(&message(message_type, 4097), &extended), (1, 2, vec![0x10, 0x01]));
    }
}
