// SPDX-License-Identifier: Apache-2.0
//! The node's links, as far as an unnumbered session needs them.
//!
//! Input: rtnetlink dumps. Output: for each interface by name what router discovery needs, or why it cannot be used now, in words that follow its name.

use std::collections::BTreeMap;

use netlink_packet_route::link::{LinkAttribute, LinkFlags, LinkMessage};

use super::addresses::{AddressError, InterfaceAddress, Netlink};
use super::discovery::Link;

/// Reads them.
///
/// # Errors
/// They cannot be read.
pub(super) async fn read(netlink: &Netlink) -> Result<BTreeMap<String, Result<Link, &'static str>>, AddressError> {
    let links = netlink.links().await?;
    let addresses = netlink.addresses().await?;
    Ok(links.iter().filter_map(|link| Some((name(link)?, state(link, &addresses)))).collect())
}

pub(super) fn name(link: &LinkMessage) -> Option<String> {
    link.attributes.iter().find_map(|attribute| match attribute {
        LinkAttribute::IfName(name) => Some(name.clone()),
        _ => None,
    })
}

fn state(link: &LinkMessage, addresses: &[InterfaceAddress]) -> Result<Link, &'static str> {
    let index = link.header.index;
    let flags = link.header.flags;
    if !flags.contains(LinkFlags::Up) {
        return Err("is down");
    }
    if !flags.contains(LinkFlags::LowerUp) {
        return Err("has no carrier");
    }
    let address = addresses.iter().find_map(|address| address.usable_link_local(index));
    let address = address.ok_or("has no IPv6 link-local address")?;
    let link_layer = link.attributes.iter().find_map(|attribute| match attribute {
        LinkAttribute::Address(octets) => octets.as_slice().try_into().ok(),
        _ => None,
    });
    Ok(Link { index, link_layer, address })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_is_usable_once_it_is_up_and_has_an_address() {
        let mut link = LinkMessage::default();
        link.header.index = 7;
        link.attributes = vec![LinkAttribute::IfName("eth1".to_owned()), LinkAttribute::Address(vec![2, 0, 0, 0, 0, 7])];
        let address = InterfaceAddress::link_local_of_a_test(7, "fe80::7".parse().unwrap());
        assert_eq!(state(&link, &[address]), Err("is down"));
        link.header.flags = LinkFlags::Up;
        assert_eq!(state(&link, &[address]), Err("has no carrier"));
        link.header.flags = LinkFlags::Up | LinkFlags::LowerUp;
        assert_eq!(state(&link, &[]), Err("has no IPv6 link-local address"));
        let elsewhere = InterfaceAddress::link_local_of_a_test(8, "fe80::8".parse().unwrap());
        assert_eq!(state(&link, &[elsewhere]), Err("has no IPv6 link-local address"));
        let usable = Link { index: 7, link_layer: Some([2, 0, 0, 0, 0, 7]), address: "fe80::7".parse().unwrap() };
        assert_eq!(state(&link, &[elsewhere, address]), Ok(usable));
        assert_eq!(name(&link).as_deref(), Some("eth1"));
    }
}
