// SPDX-License-Identifier: Apache-2.0
//! Messages octet by octet, the checks of RFC 9568 §7.1, and round trips.

use std::net::{IpAddr, Ipv6Addr};

use proptest::prelude::*;

use super::*;
use crate::identity::{Addresses, Family, Interval, Priority, Version, Vrid};

fn addresses(texts: &[&str]) -> Addresses {
    Addresses::new(&texts.iter().map(|text| text.parse().unwrap()).collect::<Vec<_>>()).unwrap()
}

fn endpoints(source: &str, destination: &str) -> Endpoints {
    Endpoints::new(source.parse().unwrap(), destination.parse().unwrap()).unwrap()
}

fn advertisement(version: Version, vrid: u8, priority: u8, centiseconds: u16, listed: &[&str]) -> Advertisement {
    Advertisement {
        version,
        vrid: Vrid::new(vrid).unwrap(),
        priority: Priority::new(priority),
        interval: Interval::from_centiseconds(centiseconds).unwrap(),
        addresses: addresses(listed),
    }
}

fn sum(octets: &[u8]) -> u16 {
    u16::from_be_bytes([octets[6], octets[7]])
}

/// VRID 51, priority 100, 1 s, 10.9.0.100.
fn v3() -> Advertisement {
    advertisement(Version::V3, 51, 100, 100, &["10.9.0.100"])
}

/// That advertisement from 10.9.0.1, as RFC 9568 has it.
fn v3_datagram() -> Datagram {
    let endpoints = endpoints("10.9.0.1", "224.0.0.18");
    Datagram { endpoints, ttl: 255, octets: v3().encode(endpoints, ChecksumForm::MessageOnly) }
}

/// With a right checksum again after a change.
fn summed(mut datagram: Datagram) -> Datagram {
    datagram.octets[6..8].fill(0);
    let pseudo_header = (datagram.endpoints.family() == Family::Ipv6).then_some(datagram.endpoints);
    let sum = checksum::checksum(&datagram.octets, PROTOCOL, pseudo_header);
    datagram.octets[6..8].copy_from_slice(&sum.to_be_bytes());
    datagram
}

fn changed(change: impl FnOnce(&mut Vec<u8>)) -> Datagram {
    let mut datagram = v3_datagram();
    change(&mut datagram.octets);
    summed(datagram)
}

fn error(datagram: &Datagram) -> DecodeError {
    Advertisement::decode(datagram, Version::V3, TTL).unwrap_err()
}

#[test]
fn rfc3768_section_5_1_version_2_octet_by_octet() {
    let link = endpoints("10.0.1.2", "224.0.0.18");
    let octets = advertisement(Version::V2, 51, 30, 100, &["10.0.1.5"]).encode(link, ChecksumForm::PseudoHeader);
    let expected = [0x21, 0x33, 0x1E, 0x01, 0x00, 0x01, 0xB5, 0xC5, 0x0A, 0x00, 0x01, 0x05, 0, 0, 0, 0, 0, 0, 0, 0];
    assert_eq!(octets, expected, "no form gives version 2 a pseudo header");
    let octets = advertisement(Version::V2, 51, 100, 100, &["10.9.0.100"]).encode(link, ChecksumForm::MessageOnly);
    assert_eq!(sum(&octets), 0x705D);
}

#[test]
fn rfc9568_section_5_2_8_the_checksum_for_ipv4_in_both_forms() {
    let two = advertisement(Version::V3, 2, 254, 1, &["20.0.1.2", "20.0.1.3"]);
    let link = endpoints("20.0.0.3", "224.0.0.18");
    assert_eq!(sum(&two.encode(link, ChecksumForm::PseudoHeader)), 0xB25E);
    assert_eq!(sum(&two.encode(link, ChecksumForm::MessageOnly)), 0xA6F4);

    let multicast = endpoints("10.9.0.1", "224.0.0.18");
    let unicast = endpoints("10.9.0.1", "10.9.0.2");
    assert_eq!(sum(&v3().encode(multicast, ChecksumForm::MessageOnly)), 0x5FFA);
    assert_eq!(sum(&v3().encode(unicast, ChecksumForm::MessageOnly)), 0x5FFA);
    assert_eq!(sum(&v3().encode(multicast, ChecksumForm::PseudoHeader)), 0x7561);
    assert_eq!(sum(&v3().encode(unicast, ChecksumForm::PseudoHeader)), 0x4B69, "unicast has its real destination in the pseudo header");
}

#[test]
fn rfc9568_section_5_2_8_the_checksum_for_ipv6_has_a_pseudo_header_in_every_form() {
    let one = advertisement(Version::V3, 2, 254, 1, &["2001:db8::2", "2001:db8::3"]);
    let other = advertisement(Version::V3, 51, 100, 100, &["fe80::64", "2001:db8::64"]);
    for form in [ChecksumForm::MessageOnly, ChecksumForm::PseudoHeader] {
        assert_eq!(sum(&one.encode(endpoints("2001:db8::1", "ff02::12"), form)), 0x481B);
        assert_eq!(sum(&other.encode(endpoints("fe80::1", "ff02::12"), form)), 0x3F35);
    }
}

#[test]
fn rfc9568_section_5_2_version_3_octet_by_octet() {
    let expected = [0x31, 0x33, 0x64, 0x01, 0x00, 0x64, 0x5F, 0xFA, 0x0A, 0x09, 0x00, 0x64];
    assert_eq!(v3_datagram().octets, expected);
    let resigned = Advertisement { priority: None, ..v3() };
    assert_eq!(resigned.encode(endpoints("10.9.0.1", "224.0.0.18"), ChecksumForm::MessageOnly)[2], 0);
}

#[test]
fn both_forms_are_accepted_and_told_apart() {
    for form in [ChecksumForm::MessageOnly, ChecksumForm::PseudoHeader] {
        for destination in ["224.0.0.18", "10.9.0.2"] {
            let endpoints = endpoints("10.9.0.1", destination);
            let datagram = Datagram { endpoints, ttl: 255, octets: v3().encode(endpoints, form) };
            assert_eq!(Advertisement::decode(&datagram, Version::V3, TTL), Ok((v3(), form)));
        }
    }
    // What was summed up for the multicast group is wrong for one router.
    let unicast = endpoints("10.9.0.1", "10.9.0.2");
    let octets = v3().encode(endpoints("10.9.0.1", "224.0.0.18"), ChecksumForm::PseudoHeader);
    let error = error(&Datagram { endpoints: unicast, ttl: 255, octets });
    assert_eq!(error, DecodeError::Checksum { received: 0x7561, expected: 0x5FFA });
}

#[test]
fn rfc9568_section_7_1_ttl_or_hop_limit_255() {
    let far = Datagram { ttl: 254, ..v3_datagram() };
    assert_eq!(error(&far), DecodeError::Ttl { received: 254, least: 255 });
    assert_eq!(Advertisement::decode(&far, Version::V3, 250).unwrap().0, v3(), "the operator may say otherwise");
}

#[test]
fn rfc9568_section_7_1_the_version_is_the_configured_one() {
    assert_eq!(Advertisement::decode(&v3_datagram(), Version::V2, TTL), Err(DecodeError::Version { received: 3, expected: Version::V2 }));
    assert_eq!(error(&changed(|octets| octets[0] = 0x41)), DecodeError::Version { received: 4, expected: Version::V3 });
    let nothing = Datagram { octets: vec![], ..v3_datagram() };
    assert_eq!(error(&nothing), DecodeError::Version { received: 0, expected: Version::V3 });
}

#[test]
fn rfc9568_section_7_1_the_type_is_advertisement() {
    assert_eq!(error(&changed(|octets| octets[0] = 0x32)), DecodeError::Type(2));
}

#[test]
fn rfc9568_section_7_1_the_message_is_complete() {
    assert_eq!(error(&changed(|octets| octets.truncate(11))), DecodeError::Length { received: 11, expected: 12 });
    assert_eq!(error(&changed(|octets| octets[3] = 2)), DecodeError::Length { received: 12, expected: 16 });
    let cut = Datagram { octets: v3_datagram().octets[..7].to_vec(), ..v3_datagram() };
    assert_eq!(error(&cut), DecodeError::Length { received: 7, expected: 8 });

    let link = endpoints("fe80::1", "ff02::12");
    let octets = advertisement(Version::V3, 51, 100, 100, &["fe80::64"]).encode(link, ChecksumForm::MessageOnly);
    let datagram = summed(Datagram { endpoints: link, ttl: 255, octets: octets[..20].to_vec() });
    assert_eq!(error(&datagram), DecodeError::Length { received: 20, expected: 24 });

    let octets = advertisement(Version::V2, 51, 100, 100, &["10.9.0.100"]).encode(v3_datagram().endpoints, ChecksumForm::MessageOnly);
    let datagram = summed(Datagram { octets: octets[..12].to_vec(), ..v3_datagram() });
    let result = Advertisement::decode(&datagram, Version::V2, TTL);
    assert_eq!(result, Err(DecodeError::Length { received: 12, expected: 20 }), "version 2 ends with eight octets of authentication");
}

#[test]
fn rfc9568_section_5_2_5_a_count_of_0_is_ignored() {
    assert_eq!(error(&changed(|octets| octets[3] = 0)), DecodeError::NoAddress);
}

#[test]
fn rfc9568_section_7_1_the_checksum_is_right() {
    let mut datagram = v3_datagram();
    datagram.octets[6] ^= 1;
    assert_eq!(error(&datagram), DecodeError::Checksum { received: 0x5EFA, expected: 0x5FFA });
}

#[test]
fn rfc9568_section_5_2_3_vrid_0_is_none() {
    assert_eq!(error(&changed(|octets| octets[1] = 0)), DecodeError::Vrid);
    assert_eq!(changed(|octets| octets[1] = 0).vrid(), None);
    assert_eq!(v3_datagram().vrid(), Vrid::new(51));
}

#[test]
fn rfc9568_section_5_2_6_reserved_bits_are_ignored() {
    let (decoded, _) = Advertisement::decode(&changed(|octets| octets[4] |= 0xF0), Version::V3, TTL).unwrap();
    assert_eq!(decoded, v3());
}

#[test]
fn an_interval_of_0_is_refused() {
    assert_eq!(error(&changed(|octets| octets[5] = 0)), DecodeError::Interval);
}

#[test]
fn rfc3768_section_5_3_6_authentication_is_refused_and_its_data_ignored() {
    let link = endpoints("10.9.0.1", "224.0.0.18");
    let sent = advertisement(Version::V2, 51, 100, 100, &["10.9.0.100"]);
    let octets = sent.encode(link, ChecksumForm::MessageOnly);
    let with = |at: usize, octet: u8| {
        let mut octets = octets.clone();
        octets[at] = octet;
        Advertisement::decode(&summed(Datagram { endpoints: link, ttl: 255, octets }), Version::V2, TTL)
    };
    assert_eq!(with(4, 1), Err(DecodeError::Authentication(1)));
    assert_eq!(with(19, 7).map(|(received, _)| received), Ok(sent));
}

#[test]
fn a_message_lists_what_fits_and_no_more() {
    let many: Vec<IpAddr> = (1..=400_u128).map(|n| Ipv6Addr::from_bits(0xFE80 << 112 | n).into()).collect();
    let sent = Advertisement { addresses: Addresses::new(&many).unwrap(), ..v3() };
    let endpoints = endpoints("fe80::1", "ff02::12");
    let octets = sent.encode(endpoints, ChecksumForm::MessageOnly);
    assert_eq!((octets[3], octets.len()), (90, 8 + 90 * 16));
    let (received, _) = Advertisement::decode(&Datagram { endpoints, ttl: 255, octets }, Version::V3, TTL).unwrap();
    assert_eq!(received.addresses, sent.addresses.listed());
}

#[test]
fn a_gratuitous_arp_octet_by_octet() {
    let mac = Vrid::new(106).unwrap().mac(Family::Ipv4);
    let expected = [
        [0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x00, 0x00, 0x5E, 0x00, 0x01, 0x6A, 0x08, 0x06].as_slice(),
        &[0x00, 0x01, 0x08, 0x00, 0x06, 0x04, 0x00, 0x01],
        &[0x00, 0x00, 0x5E, 0x00, 0x01, 0x6A, 10, 9, 0, 100],
        &[0x00, 0x00, 0x5E, 0x00, 0x01, 0x6A, 10, 9, 0, 100],
    ];
    assert_eq!(gratuitous_arp(mac, "10.9.0.100".parse().unwrap()), expected.concat());
}

#[test]
fn an_unsolicited_neighbor_advertisement_octet_by_octet() {
    let mac = [0x02, 0x00, 0x00, 0x00, 0x00, 0x01];
    let address: Ipv6Addr = "2001:db8::64".parse().unwrap();
    let frame = unsolicited_neighbor_advertisement(mac, address);
    let (ethernet, packet) = frame.split_at(14);
    assert_eq!(ethernet, [0x33, 0x33, 0x00, 0x00, 0x00, 0x01, 0x02, 0x00, 0x00, 0x00, 0x00, 0x01, 0x86, 0xDD]);
    let (header, message) = packet.split_at(40);
    assert_eq!(header[..8], [0x60, 0x00, 0x00, 0x00, 0x00, 0x20, 58, 255]);
    assert_eq!((&header[8..24], &header[24..]), (&address.octets()[..], &"ff02::1".parse::<Ipv6Addr>().unwrap().octets()[..]));
    // 136, code 0, Router and Override without Solicited, the target, option 2 of eight octets.
    assert_eq!((&message[..2], &message[4..8], &message[8..24]), (&[136, 0][..], &[0xA0, 0, 0, 0][..], &address.octets()[..]));
    assert_eq!(message[24..], [2, 1, 0x02, 0x00, 0x00, 0x00, 0x00, 0x01]);
    let all = checksum::checksum(message, 58, Endpoints::new(address.into(), "ff02::1".parse().unwrap()));
    assert_eq!(all, 0, "the sum over everything, the checksum included");
}

/// Read off the wire, of keepalived 2.2.7: source, destination and payload.
const OF_KEEPALIVED: [(&str, &str, &str); 4] = [
    ("10.9.0.1", "224.0.0.18", "31336401000a75bb0a090064"),
    ("10.9.0.1", "10.9.0.2", "31346401000a4bc10a090065"),
    ("10.9.0.1", "224.0.0.18", "21351e020001abe80a0900660a0900670000000000000000"),
    ("fe80::9cdb:2dff:feb9:a78e", "ff02::12", "31366402000ace69fe80000000000000000000000000006420010db8000000000000000000000064"),
];

#[test]
fn what_keepalived_sends_is_read_and_written_octet_by_octet() {
    let expected = [
        (advertisement(Version::V3, 51, 100, 10, &["10.9.0.100"]), ChecksumForm::PseudoHeader),
        (advertisement(Version::V3, 52, 100, 10, &["10.9.0.101"]), ChecksumForm::PseudoHeader),
        (advertisement(Version::V2, 53, 30, 100, &["10.9.0.102", "10.9.0.103"]), ChecksumForm::MessageOnly),
        (advertisement(Version::V3, 54, 100, 10, &["fe80::64", "2001:db8::64"]), ChecksumForm::MessageOnly),
    ];
    for ((source, destination, hex), (message, form)) in OF_KEEPALIVED.into_iter().zip(expected) {
        let octets: Vec<u8> = (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect();
        let endpoints = endpoints(source, destination);
        assert_eq!(message.encode(endpoints, form), octets, "{hex}");
        let datagram = Datagram { endpoints, ttl: 255, octets };
        assert_eq!(Advertisement::decode(&datagram, message.version, TTL), Ok((message, form)), "{hex}");
    }
}

#[test]
fn rfc9568_section_7_2_an_advertisement_for_ipv4_in_its_frame_octet_by_octet() {
    let datagram = v3_datagram();
    let frame = multicast_frame([0x00, 0x00, 0x5E, 0x00, 0x01, 51], datagram.endpoints, &datagram.octets).unwrap();
    let (ethernet, rest) = frame.split_at(14);
    assert_eq!(ethernet, [0x01, 0x00, 0x5E, 0x00, 0x00, 0x12, 0x00, 0x00, 0x5E, 0x00, 0x01, 0x33, 0x08, 0x00]);
    let (header, payload) = rest.split_at(20);
    let expected = [0x45, 0xC0, 0x00, 0x20, 0x00, 0x00, 0x40, 0x00, 0xFF, 0x70, 0x90, 0x91, 0x0A, 0x09, 0x00, 0x01, 0xE0, 0x00, 0x00, 0x12];
    assert_eq!(header, expected);
    assert_eq!(payload, datagram.octets);
}

#[test]
fn rfc9568_section_7_2_an_advertisement_for_ipv6_in_its_frame_octet_by_octet() {
    let endpoints = endpoints("fe80::1", "ff02::12");
    let octets = advertisement(Version::V3, 51, 100, 100, &["fe80::64", "2001:db8::64"]).encode(endpoints, ChecksumForm::MessageOnly);
    let frame = multicast_frame([0x00, 0x00, 0x5E, 0x00, 0x02, 51], endpoints, &octets).unwrap();
    let (ethernet, rest) = frame.split_at(14);
    assert_eq!(ethernet, [0x33, 0x33, 0x00, 0x00, 0x00, 0x12, 0x00, 0x00, 0x5E, 0x00, 0x02, 0x33, 0x86, 0xDD]);
    let (header, payload) = rest.split_at(40);
    assert_eq!(header[..8], [0x6C, 0x00, 0x00, 0x00, 0x00, 0x28, 0x70, 0xFF]);
    assert_eq!(header[8..24], [0xFE, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x01]);
    assert_eq!(header[24..], [0xFF, 0x02, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x12]);
    assert_eq!(payload, octets);
    let datagram = Datagram { endpoints, ttl: header[7], octets: payload.to_vec() };
    assert!(Advertisement::decode(&datagram, Version::V3, TTL).is_ok(), "the checksum goes over the addresses of the header");
}

#[test]
fn of_a_group_the_last_octets_are_its_link_layer_address() {
    let to = |destination: &str| {
        let source = if destination.contains(':') { "fe80::1" } else { "10.9.0.1" };
        multicast_frame([0; 6], endpoints(source, destination), &[]).map(|frame| frame[..6].to_vec())
    };
    // RFC 1112 §6.4: of IPv4 the last 23 bits.
    for (group, mac) in [("239.129.2.3", [0x01, 0x00, 0x5E, 0x01, 0x02, 0x03]), ("224.127.255.254", [0x01, 0x00, 0x5E, 0x7F, 0xFF, 0xFE])] {
        assert_eq!(to(group).as_deref(), Some(&mac[..]), "{group}");
    }
    // RFC 2464 §7: of IPv6 the last four octets.
    assert_eq!(to("ff05::1:ff01:fe02").as_deref(), Some(&[0x33, 0x33, 0xFF, 0x01, 0xFE, 0x02][..]));
    for other in ["10.9.0.2", "223.255.255.255", "240.0.0.1", "255.255.255.255", "fe80::2", "2001:db8::2"] {
        assert_eq!(to(other), None, "{other} is no group");
    }
}

#[test]
fn what_fits_in_no_packet_is_in_no_frame() {
    let frame = |destination: &str, length: usize| {
        let source = if destination.contains(':') { "fe80::1" } else { "10.9.0.1" };
        multicast_frame([0; 6], endpoints(source, destination), &vec![0; length]).map(|frame| frame.len())
    };
    // Total Length counts the header of IPv4 (RFC 791 §3.1), Payload Length that of IPv6 not (RFC 8200 §3).
    assert_eq!((frame("224.0.0.18", 65_515), frame("224.0.0.18", 65_516)), (Some(14 + 65_535), None));
    assert_eq!((frame("ff02::12", 65_535), frame("ff02::12", 65_536)), (Some(14 + 40 + 65_535), None));
}

fn any_advertisement() -> impl Strategy<Value = (Advertisement, Endpoints, ChecksumForm)> {
    let v4 =
        (proptest::collection::btree_set(any::<[u8; 4]>(), 1..9), any::<[[u8; 4]; 2]>(), any::<bool>()).prop_map(|(all, ends, two)| {
            let version = if two { Version::V2 } else { Version::V3 };
            (version, all.into_iter().map(IpAddr::from).collect::<Vec<_>>(), ends.map(IpAddr::from))
        });
    let v6 = (proptest::collection::btree_set(any::<[u8; 16]>(), 1..9), any::<[[u8; 16]; 2]>())
        .prop_map(|(all, ends)| (Version::V3, all.into_iter().map(IpAddr::from).collect(), ends.map(IpAddr::from)));
    let form = prop_oneof![Just(ChecksumForm::MessageOnly), Just(ChecksumForm::PseudoHeader)];
    (prop_oneof![v4, v6], 1..=255_u8, any::<u8>(), 1..=255_u16, form).prop_map(
        |((version, all, [source, destination]), vrid, priority, interval, form)| {
            let advertisement = Advertisement {
                version,
                vrid: Vrid::new(vrid).unwrap(),
                priority: Priority::new(priority),
                interval: Interval::from_centiseconds(if version == Version::V2 { interval * 100 } else { interval * 16 }).unwrap(),
                addresses: Addresses::new(&all).unwrap(),
            };
            (advertisement, Endpoints::new(source, destination).unwrap(), form)
        },
    )
}

proptest! {
    #[test]
    fn what_is_sent_is_received((advertisement, endpoints, form) in any_advertisement()) {
        let datagram = Datagram { endpoints, ttl: 255, octets: advertisement.encode(endpoints, form) };
        let (received, of_form) = Advertisement::decode(&datagram, advertisement.version, TTL).unwrap();
        prop_assert_eq!(&received, &advertisement);
        prop_assert_eq!(received.encode(endpoints, of_form), datagram.octets);
    }

    /// RFC 1071 §1: the sum over a header with its checksum is all ones.
    #[test]
    fn rfc791_section_3_1_the_header_of_each_frame_has_a_right_checksum(source: [u8; 4], group in (224..240_u8, any::<[u8; 3]>()), length in 0..2000_usize) {
        let (first, [second, third, last]) = group;
        let endpoints = Endpoints::new(source.into(), [first, second, third, last].into()).unwrap();
        let frame = multicast_frame([0; 6], endpoints, &vec![0xA5; length]).unwrap();
        let sum: u32 = frame[14..34].chunks(2).map(|word| u32::from(word[0]) << 8 | u32::from(word[1])).sum();
        prop_assert_eq!((sum & 0xFFFF) + (sum >> 16), 0xFFFF);
        prop_assert_eq!(usize::from(frame[16]) << 8 | usize::from(frame[17]), frame.len() - 14);
    }

    #[test]
    fn one_wrong_bit_is_never_taken_for_something_else((advertisement, endpoints, form) in any_advertisement(), at: prop::sample::Index, bit in 0..8_u8) {
        let mut octets = advertisement.encode(endpoints, form);
        let at = at.index(octets.len());
        octets[at] ^= 1 << bit;
        let datagram = Datagram { endpoints, ttl: 255, octets };
        if let Ok((_, received)) = Advertisement::decode(&datagram, advertisement.version, TTL) {
            // The sum of the pseudo header can be what that bit makes of difference.
            prop_assert!(received != form && advertisement.version == Version::V3 && endpoints.family() == Family::Ipv4);
        }
    }

    #[test]
    fn nothing_received_panics(octets in proptest::collection::vec(any::<u8>(), 0..64), v6: bool, v2: bool) {
        let endpoints = if v6 { endpoints("fe80::1", "ff02::12") } else { endpoints("10.9.0.1", "224.0.0.18") };
        let version = if v2 { Version::V2 } else { Version::V3 };
        drop(Advertisement::decode(&Datagram { endpoints, ttl: 255, octets }, version, TTL));
    }
}
