// SPDX-License-Identifier: Apache-2.0
//! What tells the hosts and switches of a link where a virtual address is from now on: whole Ethernet frames (RFC 9568 §6.4.1, §6.4.2).

use std::net::{Ipv4Addr, Ipv6Addr};

use super::checksum::checksum;
use super::{Endpoints, TTL};

const BROADCAST: [u8; 6] = [0xFF; 6];
/// Where packets for ff02::1 go (RFC 2464 §7).
const ALL_NODES_MAC: [u8; 6] = [0x33, 0x33, 0x00, 0x00, 0x00, 0x01];
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
const ETHERTYPE_ARP: [u8; 2] = [0x08, 0x06];
const ETHERTYPE_IPV6: [u8; 2] = [0x86, 0xDD];
/// Next Header of ICMPv6 (RFC 4443 §1).
const ICMPV6: u8 = 58;
/// Type of a Neighbor Advertisement (RFC 4861 §4.4).
const NEIGHBOR_ADVERTISEMENT: u8 = 136;
/// Router and Override, not Solicited (RFC 4861 §4.4).
const ROUTER_OVERRIDE: u8 = 0xA0;
/// Option 2, Target Link-Layer Address, of one unit of eight octets (RFC 4861 §4.6.1).
const TARGET_LINK_LAYER_ADDRESS: [u8; 2] = [2, 1];

/// A broadcast ARP request in which `address` asks for itself: sender and target are the address, at `mac` (RFC 9568 §6.4.1, RFC 826).
#[must_use]
pub fn gratuitous_arp(mac: [u8; 6], address: Ipv4Addr) -> Vec<u8> {
    // Ethernet, IPv4, lengths of their addresses, request.
    const HEADER: [u8; 8] = [0x00, 0x01, 0x08, 0x00, 6, 4, 0x00, 0x01];
    let address = address.octets();
    [&BROADCAST, &mac, &ETHERTYPE_ARP[..], &HEADER, &mac, &address, &mac, &address].concat()
}

/// A Neighbor Advertisement to all nodes that nobody asked for: `address` is at `mac`, whatever was known before, and is a router (RFC 9568 §6.4.2,
/// RFC 4861 §4.4). It comes from the address itself.
#[must_use]
pub fn unsolicited_neighbor_advertisement(mac: [u8; 6], address: Ipv6Addr) -> Vec<u8> {
    let target = address.octets();
    let message = |checksum: u16| {
        let header = [NEIGHBOR_ADVERTISEMENT, 0];
        [&header[..], &checksum.to_be_bytes(), &[ROUTER_OVERRIDE, 0, 0, 0], &target, &TARGET_LINK_LAYER_ADDRESS, &mac].concat()
    };
    let endpoints = Endpoints::V6 { source: address, destination: ALL_NODES };
    let message = message(checksum(&message(0), ICMPV6, Some(endpoints)));
    let length = u16::try_from(message.len()).unwrap_or(u16::MAX).to_be_bytes();
    let header = [&[0x60, 0, 0, 0], &length[..], &[ICMPV6, TTL], &target, &ALL_NODES.octets()].concat();
    [&ALL_NODES_MAC, &mac, &ETHERTYPE_IPV6[..], &header, &message].concat()
}
