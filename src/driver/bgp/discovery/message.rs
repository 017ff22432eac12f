// SPDX-License-Identifier: Apache-2.0
//! The two messages of router discovery (RFC 4861 §4.1 and §4.2), as octets.
//!
//! Input: an ICMPv6 message with its source and hop limit; the kernel has checked its checksum. Output: what of it counts, where RFC 4861 §6.1 finds it
//! valid; and our own messages, with a checksum that the kernel fills in.

use std::net::Ipv6Addr;

use super::Event;

pub(super) const ROUTER_SOLICITATION: u8 = 133;
pub(super) const ROUTER_ADVERTISEMENT: u8 = 134;

/// Before the options.
const SOLICITATION_LENGTH: usize = 8;
const ADVERTISEMENT_LENGTH: usize = 16;

const SOURCE_LINK_LAYER_ADDRESS: u8 = 1;

/// What no router on the way lets through (RFC 4861 §6.1).
const HOP_LIMIT: u8 = 255;

/// The message, where it is valid.
pub(super) fn read(octets: &[u8], source: Ipv6Addr, hop_limit: Option<u8>) -> Option<Event> {
    let [message_type, code, ..] = *octets else { return None };
    if hop_limit != Some(HOP_LIMIT) || code != 0 {
        return None;
    }
    match message_type {
        ROUTER_ADVERTISEMENT => {
            let valid = source.is_unicast_link_local() && options(octets.get(ADVERTISEMENT_LENGTH..)?).is_some();
            valid.then_some(Event::Advertisement(source))
        }
        ROUTER_SOLICITATION => {
            let options = options(octets.get(SOLICITATION_LENGTH..)?)?;
            let nobody = source.is_unspecified();
            let valid = !(nobody && options.contains(&SOURCE_LINK_LAYER_ADDRESS)) && (nobody || source.is_unicast_link_local());
            valid.then_some(Event::Solicitation(Some(source).filter(|_| !nobody)))
        }
        _ => None,
    }
}

/// A solicitation of a host with this link-layer address.
pub(super) fn solicitation(link_layer: Option<[u8; 6]>) -> Vec<u8> {
    let mut octets = vec![0; SOLICITATION_LENGTH];
    octets[0] = ROUTER_SOLICITATION;
    put_source(link_layer, &mut octets);
    octets
}

/// An advertisement that says nothing but that we are here: no default router, no prefix, no parameter of the link (RFC 4861 §4.2: all zero).
pub(super) fn advertisement(link_layer: Option<[u8; 6]>) -> Vec<u8> {
    let mut octets = vec![0; ADVERTISEMENT_LENGTH];
    octets[0] = ROUTER_ADVERTISEMENT;
    put_source(link_layer, &mut octets);
    octets
}

/// The option of an Ethernet address is one unit of eight octets (RFC 4861 §4.6.1).
fn put_source(link_layer: Option<[u8; 6]>, octets: &mut Vec<u8>) {
    if let Some(link_layer) = link_layer {
        octets.extend([SOURCE_LINK_LAYER_ADDRESS, 1]);
        octets.extend(link_layer);
    }
}

/// The types of the options; `None` where one has no length, or goes beyond the end (RFC 4861 §4.6).
fn options(mut octets: &[u8]) -> Option<Vec<u8>> {
    let mut types = Vec::new();
    while !octets.is_empty() {
        let (option_type, units) = (*octets.first()?, *octets.get(1)?);
        let length = usize::from(units) * 8;
        octets = octets.get(length..).filter(|_| length > 0)?;
        types.push(option_type);
    }
    Some(types)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAC: [u8; 6] = [2, 0, 0, 0, 0, 7];

    fn address(text: &str) -> Ipv6Addr {
        text.parse().unwrap()
    }

    #[test]
    fn our_own_messages_are_valid() {
        let router = address("fe80::1");
        for link_layer in [None, Some(MAC)] {
            assert_eq!(read(&advertisement(link_layer), router, Some(255)), Some(Event::Advertisement(router)));
            assert_eq!(read(&solicitation(link_layer), router, Some(255)), Some(Event::Solicitation(Some(router))));
        }
        assert_eq!(read(&solicitation(None), Ipv6Addr::UNSPECIFIED, Some(255)), Some(Event::Solicitation(None)));
        assert_eq!(advertisement(Some(MAC))[6..8], [0, 0], "RFC 4861 §4.2: the Router Lifetime; we are nobody's default router");
    }

    #[test]
    fn rfc4861_6_1_2_an_advertisement_that_is_not_valid_is_dropped() {
        let router = address("fe80::1");
        let good = advertisement(Some(MAC));
        let refused = |octets: &[u8], source: &str, hop_limit| read(octets, address(source), hop_limit).is_none();
        assert!(refused(&good, "fe80::1", Some(254)), "it came through a router");
        assert!(refused(&good, "fe80::1", None));
        assert!(refused(&good, "2001:db8::1", Some(255)), "not link-local");
        assert!(refused(&good[..15], "fe80::1", Some(255)), "too short");
        assert!(refused(&good[..20], "fe80::1", Some(255)), "an option is cut");
        let changed = |index: usize, value: u8| {
            let mut octets = good.clone();
            octets[index] = value;
            octets
        };
        assert!(refused(&changed(1, 1), "fe80::1", Some(255)), "code");
        assert!(refused(&changed(17, 0), "fe80::1", Some(255)), "an option without length");
        assert!(refused(&changed(17, 2), "fe80::1", Some(255)), "an option beyond the end");
        assert!(refused(&changed(0, 135), "fe80::1", Some(255)), "a Neighbor Solicitation");
        assert_eq!(
            read(&changed(16, 200), router, Some(255)),
            Some(Event::Advertisement(router)),
            "options that nobody knows are overlooked"
        );
    }

    #[test]
    fn rfc4861_6_1_1_a_solicitation_that_is_not_valid_is_dropped() {
        let refused = |octets: &[u8], source: &str, hop_limit| read(octets, address(source), hop_limit).is_none();
        assert!(refused(&solicitation(None), "fe80::1", Some(64)));
        assert!(refused(&solicitation(None)[..7], "fe80::1", Some(255)));
        assert!(refused(&solicitation(Some(MAC)), "::", Some(255)), "nobody has a link-layer address");
        assert!(refused(&[], "fe80::1", Some(255)));
        assert!(refused(&[133], "fe80::1", Some(255)));
    }
}
