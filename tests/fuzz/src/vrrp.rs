// SPDX-License-Identifier: Apache-2.0
//! The decoder of VRRP under arbitrary input. A function panics where the decoder does, or where what it decoded does not survive being sent on.

use std::net::{Ipv4Addr, Ipv6Addr};

use vrrp::Version;
use vrrp::wire::{Advertisement, Datagram, Endpoints};

/// The payload of a packet. Bits of the first octet: version 2, IPv6, to one router, and that the checksum is made right first.
pub fn advertisement(input: &[u8]) {
    let [choice, octets @ ..] = input else { return };
    let bit = |at: u8| choice >> at & 1 == 1;
    let version = if bit(0) { Version::V2 } else { Version::V3 };
    let endpoints = if bit(1) {
        let destination = if bit(2) { 0xFE80 << 112 | 2 } else { 0xFF02 << 112 | 0x12 };
        Endpoints::V6 { source: Ipv6Addr::from_bits(0xFE80 << 112 | 1), destination: Ipv6Addr::from_bits(destination) }
    } else {
        let destination = if bit(2) { Ipv4Addr::new(10, 9, 0, 2) } else { Ipv4Addr::new(224, 0, 0, 18) };
        Endpoints::V4 { source: Ipv4Addr::new(10, 9, 0, 1), destination }
    };
    let mut octets = octets.to_vec();
    if bit(3) && !bit(1) && octets.len() >= 8 {
        let sum = checksum(&octets).to_be_bytes();
        octets[6..8].copy_from_slice(&sum);
    }
    let datagram = Datagram { endpoints, ttl: 255, octets };
    if let Ok((received, form)) = Advertisement::decode(&datagram, version, 255) {
        let octets = received.encode(endpoints, form);
        let (again, _) = Advertisement::decode(&Datagram { octets, ..datagram }, version, 255).unwrap();
        assert_eq!(again.addresses, received.addresses.listed());
        assert_eq!(Advertisement { addresses: received.addresses.clone(), ..again }, received);
    }
}

/// Of the message alone (RFC 1071), without the field of the checksum.
fn checksum(octets: &[u8]) -> u16 {
    let word = |at: usize| u32::from(octets[at]) << 8 | octets.get(at + 1).map_or(0, |octet| u32::from(*octet));
    let sum: u32 = (0..octets.len()).step_by(2).filter(|at| *at != 6).map(word).sum();
    let sum = (sum >> 16) + (sum & 0xFFFF);
    !u16::try_from((sum >> 16) + (sum & 0xFFFF)).unwrap()
}
