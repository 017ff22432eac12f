// SPDX-License-Identifier: Apache-2.0
//! Advertisements as whole Ethernet frames, for a sender whose link-layer address is the virtual router's (RFC 9568 §5.1, §7.2).

use std::net::{Ipv4Addr, Ipv6Addr};

use super::checksum::checksum;
use super::{Endpoints, PROTOCOL, TTL};

const ETHERTYPE_IPV4: [u8; 2] = [0x08, 0x00];
const ETHERTYPE_IPV6: [u8; 2] = [0x86, 0xDD];
/// Precedence "internetwork control" (RFC 791 §3.1), as routing protocols have it.
const TRAFFIC_CLASS: u8 = 0xC0;
/// Don't Fragment: an identification means nothing then (RFC 6864 §4.1).
const DONT_FRAGMENT: u8 = 0x40;
const IPV4_HEADER: u16 = 20;

/// The frame in which `payload`, of protocol 112, goes from `mac` to a multicast group; `None` where the destination is none: its link-layer address is not known.
#[must_use]
pub fn multicast_frame(mac: [u8; 6], endpoints: Endpoints, payload: &[u8]) -> Option<Vec<u8>> {
    let length = u16::try_from(payload.len()).ok()?;
    match endpoints {
        Endpoints::V4 { source, destination } => {
            let total = IPV4_HEADER.checked_add(length)?.to_be_bytes();
            let header = |checksum: u16| {
                let head = [0x45, TRAFFIC_CLASS, total[0], total[1], 0, 0, DONT_FRAGMENT, 0, TTL, PROTOCOL];
                [&head[..], &checksum.to_be_bytes(), &source.octets(), &destination.octets()].concat()
            };
            let header = header(checksum(&header(0), PROTOCOL, None));
            Some([&mac_of_v4(destination)?[..], &mac, &ETHERTYPE_IPV4, &header, payload].concat())
        }
        Endpoints::V6 { source, destination } => {
            let length = length.to_be_bytes();
            let head = [0x60 | TRAFFIC_CLASS >> 4, TRAFFIC_CLASS << 4, 0, 0, length[0], length[1], PROTOCOL, TTL];
            let header = [&head[..], &source.octets(), &destination.octets()].concat();
            Some([&mac_of_v6(destination)?[..], &mac, &ETHERTYPE_IPV6, &header, payload].concat())
        }
    }
}

/// RFC 1112 §6.4.
fn mac_of_v4(group: Ipv4Addr) -> Option<[u8; 6]> {
    let [_, second, third, last] = group.octets();
    group.is_multicast().then_some([0x01, 0x00, 0x5E, second & 0x7F, third, last])
}

/// RFC 2464 §7.
fn mac_of_v6(group: Ipv6Addr) -> Option<[u8; 6]> {
    let [.., first, second, third, last] = group.octets();
    group.is_multicast().then_some([0x33, 0x33, first, second, third, last])
}
