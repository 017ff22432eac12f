// SPDX-License-Identifier: Apache-2.0

use super::*;
use crate::wire::Message;
use crate::wire::tests::{decode, external, hex};

fn shutdown(data: &[u8]) -> Notification {
    Notification { data: Bytes::copy_from_slice(data), ..Notification::cease(Cease::AdministrativeShutdown) }
}

#[test]
fn every_code_and_subcode_in_use_is_shown_by_its_name() {
    let cases = [
        (Notification::connection_not_synchronized(), "Message Header Error/Connection Not Synchronized"),
        (Notification::bad_message_length(18), "Message Header Error/Bad Message Length, data 0012"),
        (Notification::bad_message_type(255), "Message Header Error/Bad Message Type, data FF"),
        (Notification::open_unspecific(), "OPEN Message Error"),
        (Notification::unsupported_version_number(), "OPEN Message Error/Unsupported Version Number, data 0004"),
        (Notification::bad_peer_as(), "OPEN Message Error/Bad Peer AS"),
        (Notification::bad_bgp_identifier(), "OPEN Message Error/Bad BGP Identifier"),
        (Notification::unsupported_optional_parameter(), "OPEN Message Error/Unsupported Optional Parameter"),
        (Notification::unacceptable_hold_time(), "OPEN Message Error/Unacceptable Hold Time"),
        (Notification::hold_timer_expired(), "Hold Timer Expired"),
        (Notification::unexpected_message_in_open_sent(), "Finite State Machine Error/Receive Unexpected Message in OpenSent State"),
        (Notification::unexpected_message_in_open_confirm(), "Finite State Machine Error/Receive Unexpected Message in OpenConfirm State"),
        (Notification::unexpected_message_in_established(), "Finite State Machine Error/Receive Unexpected Message in Established State"),
        (Notification::cease(Cease::ConnectionCollisionResolution), "Cease/Connection Collision Resolution"),
        (Notification::cease(Cease::BfdDown), "Cease/BFD Down"),
        (Notification::new(3, 11), "UPDATE Message Error/Malformed AS_PATH"),
        (Notification::new(8, 0), "Send Hold Timer Expired"),
        (Notification::new(6, 99), "Cease/subcode 99"),
        (Notification::new(200, 3), "code 200/subcode 3"),
    ];
    for (notification, words) in cases {
        assert_eq!(notification.to_string(), words);
    }
}

#[test]
fn long_data_are_shown_in_part() {
    let notification = Notification::update_error(UpdateError::OptionalAttribute, vec![0xAB; 100].into());
    assert_eq!(notification.to_string(), format!("UPDATE Message Error/Optional Attribute Error, data {}…", "AB".repeat(16)));
}

#[test]
fn b27_rfc9003_2_a_communication_is_sent() {
    let notification = Notification::cease(Cease::AdministrativeShutdown).with_communication("Wartung bis 4 Uhr, größer");
    assert_eq!(notification.data[0], 27);
    assert_eq!(notification.to_string(), "Cease/Administrative Shutdown: Wartung bis 4 Uhr, größer");
    assert_eq!(decode(&notification.encode(), &external()).unwrap(), Some(Message::Notification(notification)));
    let reset = Notification::cease(Cease::AdministrativeReset).with_communication("again");
    assert_eq!(reset.communication().unwrap(), "again");
}

#[test]
fn b27_rfc9003_2_a_long_communication_is_cut_between_characters() {
    let notification = Notification::cease(Cease::AdministrativeShutdown).with_communication(&"ü".repeat(200));
    assert_eq!((notification.data[0], notification.data.len()), (254, 255));
    assert_eq!(notification.communication().unwrap(), "ü".repeat(127));
}

#[test]
fn b27_rfc9003_2_only_shutdown_and_reset_have_a_communication() {
    let collision = Notification::cease(Cease::ConnectionCollisionResolution);
    assert_eq!(collision.clone().with_communication("text"), collision);
    assert_eq!(Notification { data: Bytes::from_static(b"\x04text"), ..collision }.communication(), None);
}

#[test]
fn b27_rfc9003_6_a_wrong_communication_is_shown_escaped() {
    let cases: [(&[u8], Option<&str>); 9] = [
        (b"", None),
        (b"\x00", None),
        (b"\xFF", None),
        (b"\x02ab", Some("ab")),
        (b"\xFFab", Some("ab")),
        (b"\x01ab", Some("a")),
        (b"\x04\xC3\x28ab", Some("\u{FFFD}(ab")),
        (b"\x0A\x1B[31m\r\n\0'\\", Some(r"\u{1b}[31m\r\n\0'\\")),
        ("\x06\u{202E}\u{200B}".as_bytes(), Some(r"\u{202e}\u{200b}")),
    ];
    for (data, shown) in cases {
        assert_eq!(shutdown(data).communication().as_deref(), shown, "{data:02X?}");
    }
    assert_eq!(shutdown(b"\x00").to_string(), "Cease/Administrative Shutdown, data 00");
}

#[test]
fn rfc4271_4_5_data_over_the_limit_are_cut() {
    let notification = Notification { data: vec![1; 5000].into(), ..Notification::cease(Cease::OutOfResources) };
    assert_eq!(notification.encode().len(), MAX_MESSAGE_LENGTH);
}

#[test]
fn b26_rfc4486_3_subcodes() {
    let subcodes = [
        (Cease::MaximumNumberOfPrefixesReached, "0601"),
        (Cease::AdministrativeShutdown, "0602"),
        (Cease::PeerDeconfigured, "0603"),
        (Cease::AdministrativeReset, "0604"),
        (Cease::ConnectionRejected, "0605"),
        (Cease::OtherConfigurationChange, "0606"),
        (Cease::ConnectionCollisionResolution, "0607"),
        (Cease::OutOfResources, "0608"),
        (Cease::HardReset, "0609"),
        (Cease::BfdDown, "060A"),
    ];
    for (cease, octets) in subcodes {
        assert_eq!(Notification::cease(cease).encode()[19..], hex(octets));
    }
}

#[test]
fn b26_rfc4486_4_the_data_of_maximum_prefixes() {
    let notification = Notification::maximum_number_of_prefixes_reached(Family::Ipv6Unicast, 1000);
    assert_eq!(notification.encode()[19..], hex("06 01 0002 01 000003E8"));
    assert_eq!(notification.to_string(), "Cease/Maximum Number of Prefixes Reached, data 000201000003E8");
}

#[test]
fn b26_rfc4486_3_the_subcodes_of_cease() {
    use Cease::*;
    let all = [
        (MaximumNumberOfPrefixesReached, 1),
        (AdministrativeShutdown, 2),
        (PeerDeconfigured, 3),
        (AdministrativeReset, 4),
        (ConnectionRejected, 5),
        (OtherConfigurationChange, 6),
        (ConnectionCollisionResolution, 7),
        (OutOfResources, 8),
        (HardReset, 9),
        (BfdDown, 10),
    ];
    for (subcode, number) in all {
        assert_eq!(Notification::cease(subcode).encode()[19..], [6, number]);
    }
}

#[test]
fn b65_rfc8538_3_1_a_hard_reset_carries_the_reason() {
    let shutdown = Notification::cease(Cease::AdministrativeShutdown).with_communication("bye");
    let hard = shutdown.clone().into_hard_reset();
    assert_eq!(hard.encode()[19..], hex("06 09 06 02 03 627965"));
    assert_eq!(hard.hard_reset_reason(), Some(shutdown.clone()));
    assert_eq!(hard.to_string(), "Cease/Hard Reset: Cease/Administrative Shutdown: bye");
    assert_eq!((shutdown.is_hard_reset(), shutdown.hard_reset_reason()), (false, None));
}

#[test]
fn b65_rfc8538_3_1_a_hard_reset_without_a_reason_or_with_another_inside() {
    for data in [&[][..], &[6]] {
        let bare = Notification { data: Bytes::copy_from_slice(data), ..Notification::cease(Cease::HardReset) };
        assert!(bare.is_hard_reset());
        assert_eq!(bare.hard_reset_reason(), None);
    }
    let nested = (0..1000).fold(Notification::hold_timer_expired(), |inner, _| inner.into_hard_reset());
    assert_eq!(nested.to_string(), "Cease/Hard Reset");
}

#[test]
fn b54_rfc9234_4_2_and_b22_rfc9687_4_role_mismatch_and_send_hold_timer() {
    assert_eq!(Notification::role_mismatch().encode()[19..], [2, 11]);
    assert_eq!(Notification::role_mismatch().to_string(), "OPEN Message Error/Role Mismatch");
    assert_eq!(Notification::send_hold_timer_expired().encode()[19..], [8, 0]);
}
