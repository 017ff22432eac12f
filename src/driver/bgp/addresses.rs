// SPDX-License-Identifier: Apache-2.0
//! What the node's own addresses decide: the next hops "self" of a connection, and the router id where none is configured.
//!
//! Input: one rtnetlink dump of the network namespace in which the speaker runs. Output: values chosen by pure functions. A VIP is never chosen:
//! neither an address that is advertised, nor, for anything but the connection's own address, one of the loopback interface.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use bgp::peer::LocalAddresses;
use bgp::{BgpIdentifier, Prefix};
use futures_util::TryStreamExt as _;
use netlink_packet_route::AddressFamily;
use netlink_packet_route::address::{AddressAttribute, AddressFlags, AddressMessage, AddressScope};
use netlink_packet_route::link::LinkMessage;
use netlink_packet_route::route::{RouteAttribute, RouteHeader, RouteMessage};
use rtnetlink::Handle;

use super::vrf;
use crate::desired::RouteSet;

/// The loopback interface has this index in every network namespace.
const LOOPBACK: u32 = 1;

/// Why the node's addresses are unknown.
#[derive(Debug, thiserror::Error)]
pub(super) enum AddressError {
    /// No rtnetlink socket.
    #[error("cannot open an rtnetlink socket")]
    Socket(#[source] std::io::Error),
    /// The kernel refused the dump.
    #[error("cannot read the {what} of the node")]
    Dump {
        /// Which dump.
        what: &'static str,
        /// What the kernel said.
        #[source]
        source: rtnetlink::Error,
    },
}

/// One unicast address of an interface.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct InterfaceAddress {
    interface: u32,
    address: IpAddr,
    prefix_length: u8,
    scope: AddressScope,
    standing: Standing,
    /// The VRF that the interface is in.
    vrf: Option<u32>,
}

/// How well an address serves as a next hop, the best first.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Standing {
    Assigned,
    /// Duplicate address detection still runs (RFC 4862 §5.4). A session that comes up together with the link must not do without it.
    Tentative,
    /// It will be replaced by another one (RFC 8981).
    Temporary,
}

impl InterfaceAddress {
    fn from_message(message: &AddressMessage) -> Option<Self> {
        let mut flags = AddressFlags::from_bits_retain(message.header.flags.bits().into());
        let (mut local, mut address) = (None, None);
        for attribute in &message.attributes {
            match attribute {
                AddressAttribute::Local(ip) => local = Some(*ip),
                AddressAttribute::Address(ip) => address = Some(*ip),
                AddressAttribute::Flags(all) => flags = *all,
                _ => {}
            }
        }
        if flags.intersects(AddressFlags::Dadfailed | AddressFlags::Deprecated) {
            return None;
        }
        // On a point-to-point link IFA_ADDRESS is the far end.
        let address = local.or(address)?;
        let standing = if address.is_ipv6() && flags.contains(AddressFlags::Secondary) {
            Standing::Temporary
        } else if flags.contains(AddressFlags::Tentative) {
            Standing::Tentative
        } else {
            Standing::Assigned
        };
        Some(Self {
            interface: message.header.index,
            address,
            prefix_length: message.header.prefix_len,
            scope: message.header.scope,
            standing,
            vrf: None,
        })
    }

    fn is_global(&self) -> bool {
        self.scope == AddressScope::Universe
    }

    /// The link-local address of this interface, once it can be used.
    pub(super) fn usable_link_local(&self, interface: u32) -> Option<Ipv6Addr> {
        self.link_local().filter(|_| self.interface == interface && self.standing == Standing::Assigned)
    }

    fn link_local(&self) -> Option<Ipv6Addr> {
        match self.address {
            IpAddr::V6(address) if address.is_unicast_link_local() => Some(address),
            _ => None,
        }
    }

    fn covers(&self, address: IpAddr) -> bool {
        Prefix::truncated(self.address, self.prefix_length).is_ok_and(|prefix| prefix.contains(address))
    }

    #[cfg(test)]
    pub(super) fn link_local_of_a_test(interface: u32, address: Ipv6Addr) -> Self {
        Self { interface, address: address.into(), prefix_length: 64, scope: AddressScope::Link, standing: Standing::Assigned, vrf: None }
    }

    /// Whether a socket that is bound to this device, or to none, can have the address.
    fn is_of(&self, device: Option<u32>) -> bool {
        device == self.vrf || device == Some(self.interface)
    }

    /// Whether this is the address, on the link on which it is good.
    fn is(&self, address: SocketAddr) -> bool {
        let on_this_link = match address {
            SocketAddr::V6(address) if address.ip().is_unicast_link_local() => address.scope_id() == self.interface,
            SocketAddr::V4(_) | SocketAddr::V6(_) => true,
        };
        self.address == address.ip() && on_this_link
    }
}

/// The ends of a connection, and the interface or VRF that it is bound to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ends {
    pub(super) local: SocketAddr,
    pub(super) remote: IpAddr,
    pub(super) device: Option<u32>,
}

/// The addresses that "self" means on a connection.
///
/// # Errors
/// The node's addresses cannot be read.
pub(super) async fn local_addresses(ends: Ends, advertised: &RouteSet) -> Result<LocalAddresses, AddressError> {
    Ok(local_among(&all().await?, ends, advertised, LocalAddresses::NONE))
}

/// As [`local_addresses`], of addresses that were read before. Those `in_use` stay, though there may be others now.
pub(super) fn local_among(all: &[InterfaceAddress], ends: Ends, advertised: &RouteSet, in_use: LocalAddresses) -> LocalAddresses {
    let mut own: Vec<InterfaceAddress> = all.iter().filter(|address| !advertised.serves(address.address)).copied().collect();
    // But for one that is about to be replaced.
    own.sort_by_key(|address| (address.standing == Standing::Temporary, !is_among(in_use, address.address)));
    choose_local(&own, ends)
}

fn is_among(LocalAddresses { ipv4, ipv6, link_local, .. }: LocalAddresses, address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => ipv4 == Some(address),
        IpAddr::V6(address) => [ipv6, link_local].contains(&Some(address)),
    }
}

/// Every unicast address of the node, the best first.
///
/// # Errors
/// They cannot be read.
pub(super) async fn all() -> Result<Vec<InterfaceAddress>, AddressError> {
    let netlink = Netlink::open()?;
    let mut all = netlink.addresses().await?;
    let vrfs = vrf::by_interface(&netlink.links().await?);
    all.iter_mut().for_each(|address| address.vrf = vrfs.get(&address.interface).copied());
    Ok(all)
}

/// The router id of a node for which none is configured; `None` while the node has no address that could give one.
///
/// It is the first IPv4 address of the interface with the default route, else that of the interface with the lowest index; on a node without IPv4 a
/// number made from its lowest IPv6 address, which stays the same over restarts (RFC 6286 asks for uniqueness within the AS only).
///
/// # Errors
/// Addresses or routes cannot be read.
pub(super) async fn router_id(advertised: &RouteSet) -> Result<Option<BgpIdentifier>, AddressError> {
    let netlink = Netlink::open()?;
    let mut all = netlink.addresses().await?;
    all.retain(|address| !advertised.serves(address.address));
    Ok(choose_router_id(&all, netlink.default_interface().await?))
}

fn choose_local(all: &[InterfaceAddress], Ends { local, remote, device }: Ends) -> LocalAddresses {
    // The same address may be there in a VRF and outside, and on several interfaces: it is that of the link on which the peer is.
    let is_near = |own: &InterfaceAddress| all.iter().any(|candidate| candidate.interface == own.interface && candidate.covers(remote));
    let own =
        all.iter().filter(|candidate| candidate.is(local)).min_by_key(|own| (!own.is_of(device), own.interface == LOOPBACK, !is_near(own)));
    let local = local.ip();
    let beside = || all.iter().filter(|candidate| own.is_some_and(|own| own.interface == candidate.interface));
    let other = |is_wanted: fn(&IpAddr) -> bool| {
        let candidates = beside().filter(|candidate| candidate.interface != LOOPBACK && candidate.is_global());
        candidates.map(|candidate| candidate.address).find(is_wanted)
    };
    let (ipv4, ipv6) = match local {
        IpAddr::V4(_) => (Some(local), other(IpAddr::is_ipv6)),
        IpAddr::V6(_) => (other(IpAddr::is_ipv4), Some(local)),
    };
    // RFC 2545 §3: the link-local address belongs into the next hop if, and only if, both speakers share a link.
    let shares_link = beside().any(|candidate| candidate.covers(remote));
    let shared = |is_wanted: fn(&IpAddr) -> bool| {
        let usable =
            |candidate: &&InterfaceAddress| candidate.interface != LOOPBACK && candidate.is_global() && is_wanted(&candidate.address);
        let candidates = || beside().filter(usable).filter(|_| shares_link);
        let on_it = candidates().find(|candidate| candidate.covers(remote)).or_else(|| candidates().find(|_| !is_wanted(&remote)))?;
        Prefix::truncated(on_it.address, on_it.prefix_length).ok()
    };
    LocalAddresses {
        ipv4: ipv4.and_then(as_ipv4).filter(|address| !address.is_loopback()),
        ipv6: ipv6.and_then(as_ipv6).filter(|address| !address.is_loopback()),
        link_local: if shares_link { beside().find_map(InterfaceAddress::link_local) } else { None },
        shared_ipv4: shared(IpAddr::is_ipv4),
        shared_ipv6: shared(IpAddr::is_ipv6),
    }
}

fn choose_router_id(all: &[InterfaceAddress], default_interface: Option<u32>) -> Option<BgpIdentifier> {
    let global = || all.iter().filter(|candidate| candidate.interface != LOOPBACK && candidate.is_global());
    let ipv4 = || global().filter_map(|candidate| as_ipv4(candidate.address).map(|address| (candidate.interface, address)));
    let preferred = ipv4().find(|(interface, _)| Some(*interface) == default_interface);
    let chosen = preferred.or_else(|| ipv4().min_by_key(|(interface, _)| *interface));
    if let Some((_, address)) = chosen {
        return BgpIdentifier::try_from(address).ok();
    }
    let lasting = global().filter(|candidate| candidate.standing != Standing::Temporary);
    let lowest = lasting.filter_map(|candidate| as_ipv6(candidate.address)).min()?;
    BgpIdentifier::new(fnv1a(&lowest.octets()).max(1))
}

/// The FNV-1a hash: the same on every build and every node.
fn fnv1a(octets: &[u8]) -> u32 {
    octets.iter().fold(0x811c_9dc5, |hash, octet| (hash ^ u32::from(*octet)).wrapping_mul(0x0100_0193))
}

fn as_ipv4(address: IpAddr) -> Option<Ipv4Addr> {
    match address {
        IpAddr::V4(address) => Some(address),
        IpAddr::V6(_) => None,
    }
}

fn as_ipv6(address: IpAddr) -> Option<Ipv6Addr> {
    match address {
        IpAddr::V6(address) => Some(address),
        IpAddr::V4(_) => None,
    }
}

/// A short-lived rtnetlink connection, closed when dropped.
pub(super) struct Netlink {
    handle: Handle,
    connection: tokio::task::JoinHandle<()>,
}

impl Netlink {
    pub(super) fn open() -> Result<Self, AddressError> {
        let (connection, handle, _notifications) = rtnetlink::new_connection().map_err(AddressError::Socket)?;
        Ok(Self { handle, connection: tokio::spawn(connection) })
    }

    /// The addresses, the best first, otherwise in the order of the kernel.
    pub(super) async fn addresses(&self) -> Result<Vec<InterfaceAddress>, AddressError> {
        let dump = self.handle.address().get().execute();
        let messages: Vec<AddressMessage> = dump.try_collect().await.map_err(|source| AddressError::Dump { what: "addresses", source })?;
        let mut all: Vec<_> = messages.iter().filter_map(InterfaceAddress::from_message).collect();
        all.sort_by_key(|address| address.standing);
        Ok(all)
    }

    /// The links.
    pub(super) async fn links(&self) -> Result<Vec<LinkMessage>, AddressError> {
        let dump = self.handle.link().get().execute();
        dump.try_collect().await.map_err(|source| AddressError::Dump { what: "links", source })
    }

    /// The routes of a family.
    pub(super) async fn routes(&self, family: AddressFamily) -> Result<Vec<RouteMessage>, AddressError> {
        let mut request = RouteMessage::default();
        request.header.address_family = family;
        let dump = self.handle.route().get(request).execute();
        dump.try_collect().await.map_err(|source| AddressError::Dump { what: "routes", source })
    }

    /// The interface of the IPv4 default route with the lowest metric.
    async fn default_interface(&self) -> Result<Option<u32>, AddressError> {
        let routes = self.routes(AddressFamily::Inet).await?;
        Ok(routes.iter().filter_map(default_route).min().map(|(_, interface)| interface))
    }
}

impl Drop for Netlink {
    fn drop(&mut self) {
        self.connection.abort();
    }
}

/// Metric and interface of a default route in the main table.
fn default_route(route: &RouteMessage) -> Option<(u32, u32)> {
    if route.header.destination_prefix_length != 0 || route.header.table != RouteHeader::RT_TABLE_MAIN {
        return None;
    }
    let (mut metric, mut interface) = (0, None);
    for attribute in &route.attributes {
        match attribute {
            RouteAttribute::Priority(value) => metric = *value,
            RouteAttribute::Oif(index) => interface = Some(*index),
            RouteAttribute::MultiPath(next_hops) => interface = next_hops.first().map(|next_hop| next_hop.interface_index),
            _ => {}
        }
    }
    Some((metric, interface?))
}

#[cfg(test)]
mod tests {
    use super::super::whereabouts::Found;
    use super::*;

    fn address(interface: u32, address: &str, prefix_length: u8) -> InterfaceAddress {
        let address: IpAddr = address.parse().unwrap();
        let link_local = as_ipv6(address).is_some_and(|address| address.is_unicast_link_local());
        let scope = if link_local {
            AddressScope::Link
        } else if address.is_loopback() {
            AddressScope::Host
        } else {
            AddressScope::Universe
        };
        InterfaceAddress { interface, address, prefix_length, scope, standing: Standing::Assigned, vrf: None }
    }

    fn node() -> Vec<InterfaceAddress> {
        vec![
            address(1, "127.0.0.1", 8),
            address(1, "10.0.0.7", 32),
            address(2, "172.17.0.1", 16),
            address(3, "10.211.1.2", 24),
            address(1, "::1", 128),
            address(1, "2001:db8:7::7", 128),
            address(3, "fe80::2", 64),
            address(3, "2001:db8:1::2", 64),
        ]
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    /// A local end; a link-local one on interface 3.
    fn at(text: &str) -> SocketAddr {
        Found::new(ip(text), 3).socket_address(179)
    }

    fn ends(local: &str, remote: &str) -> Ends {
        Ends { local: at(local), remote: ip(remote), device: None }
    }

    #[test]
    fn next_hop_of_the_other_family_is_on_the_same_interface() {
        let chosen = choose_local(&node(), ends("10.211.1.2", "10.211.1.254"));
        assert_eq!(chosen.ipv4, as_ipv4(ip("10.211.1.2")));
        assert_eq!(chosen.ipv6, as_ipv6(ip("2001:db8:1::2")));
        let chosen = choose_local(&node(), ends("2001:db8:1::2", "2001:db8:1::fe"));
        assert_eq!(chosen.ipv4, as_ipv4(ip("10.211.1.2")));
        assert_eq!(chosen.ipv6, as_ipv6(ip("2001:db8:1::2")));
    }

    #[test]
    fn rfc2545_3_link_local_next_hop_only_where_the_link_is_shared() {
        let on_link = choose_local(&node(), ends("10.211.1.2", "10.211.1.254"));
        assert_eq!(on_link.link_local, as_ipv6(ip("fe80::2")));
        assert!(on_link.shared_ipv4.is_some_and(|subnet| subnet.contains(ip("10.211.1.254")) && !subnet.contains(ip("10.211.200.1"))));
        assert!(on_link.shared_ipv6.is_some_and(|subnet| subnet.contains(ip("2001:db8:1::fe"))));
        let far = choose_local(&node(), ends("10.211.1.2", "192.0.2.1"));
        assert_eq!((far.link_local, far.shared_ipv4, far.shared_ipv6), (None, None, None));
    }

    #[test]
    fn next_hop_is_absent_rather_than_taken_from_loopback_or_another_interface() {
        let chosen = choose_local(&node(), ends("127.0.0.1", "127.0.0.1"));
        assert_eq!(chosen, LocalAddresses::default());
        let chosen = choose_local(&node(), ends("172.17.0.1", "172.17.0.2"));
        assert_eq!(chosen.ipv6, None);
    }

    #[test]
    fn link_local_session_has_the_link_local_address_as_its_next_hop() {
        let chosen = choose_local(&node(), ends("fe80::2", "fe80::1"));
        assert_eq!((chosen.ipv6, chosen.link_local), (as_ipv6(ip("fe80::2")), as_ipv6(ip("fe80::2"))));
        assert_eq!(chosen.ipv4, as_ipv4(ip("10.211.1.2")));
    }

    #[test]
    fn an_address_that_the_loopback_interface_has_too_is_that_of_the_link_of_the_peer() {
        for (local, remote) in [("10.211.1.2", "10.211.1.254"), ("2001:db8:1::2", "2001:db8:1::fe")] {
            let mut everywhere = node();
            // One as a VIP has it, and one of another link as a host route.
            for interface in [2, LOOPBACK] {
                let length = if ip(local).is_ipv4() { 32 } else { 128 };
                everywhere.insert(0, address(interface, local, length));
            }
            assert_eq!(choose_local(&everywhere, ends(local, remote)), choose_local(&node(), ends(local, remote)), "{local}");
        }
    }

    #[test]
    fn a_link_local_address_on_two_interfaces_is_that_of_the_connection() {
        let mut node = node();
        node.insert(0, address(2, "fe80::2", 64));
        let chosen = choose_local(&node, ends("fe80::2", "fe80::1"));
        assert_eq!(chosen.ipv4, as_ipv4(ip("10.211.1.2")));
    }

    #[test]
    fn an_address_that_is_in_a_vrf_too_is_that_of_the_device_of_the_connection() {
        let mut node = node();
        let of_vrf = |address| InterfaceAddress { vrf: Some(9), ..address };
        node.splice(0..0, [of_vrf(address(4, "10.211.1.2", 24)), of_vrf(address(4, "2001:db8:4::2", 64))]);
        let ipv6 = |device| choose_local(&node, Ends { device, ..ends("10.211.1.2", "10.211.1.254") }).ipv6;
        let (inside, outside) = (as_ipv6(ip("2001:db8:4::2")), as_ipv6(ip("2001:db8:1::2")));
        assert_eq!([None, Some(3), Some(4), Some(9)].map(ipv6), [outside, outside, inside, inside]);
        assert_eq!(ipv6(Some(7)), inside, "of a device that is gone the first is as good as any");
    }

    #[test]
    fn the_next_hop_in_use_stays_while_it_is_there_unless_it_is_about_to_be_replaced() {
        let mut node = node();
        let with = |node: &[InterfaceAddress], in_use| {
            local_among(
                node,
                ends("10.211.1.2", "10.211.1.254"),
                &RouteSet::default(),
                LocalAddresses { ipv6: as_ipv6(ip(in_use)), ..LocalAddresses::NONE },
            )
            .ipv6
        };
        node.splice(
            0..0,
            [address(3, "2001:db8:1::1", 64), InterfaceAddress { standing: Standing::Temporary, ..address(3, "2001:db8:1::77", 64) }],
        );
        for (in_use, next) in [
            ("2001:db8:1::2", "2001:db8:1::2"),
            ("2001:db8:1::1", "2001:db8:1::1"),
            ("2001:db8:1::77", "2001:db8:1::1"),
            ("2001:db8:1::99", "2001:db8:1::1"),
        ] {
            assert_eq!(with(&node, in_use), as_ipv6(ip(next)), "{in_use}");
        }
    }

    #[test]
    fn router_id_prefers_the_default_route_then_the_lowest_interface() {
        assert_eq!(choose_router_id(&node(), Some(3)).unwrap().to_string(), "10.211.1.2");
        assert_eq!(choose_router_id(&node(), None).unwrap().to_string(), "172.17.0.1");
        assert_eq!(choose_router_id(&node(), Some(1)).unwrap().to_string(), "172.17.0.1");
    }

    #[test]
    fn router_id_without_ipv4_is_a_stable_number() {
        let ipv6: Vec<_> = node().into_iter().filter(|address| address.address.is_ipv6()).collect();
        let id = choose_router_id(&ipv6, None).unwrap();
        assert_eq!(id, choose_router_id(&ipv6, None).unwrap());
        assert_ne!(id, choose_router_id(&[address(2, "2001:db8:1::3", 64)], None).unwrap());
        assert_eq!(choose_router_id(&[address(1, "10.0.0.7", 32)], None), None);
    }
}
