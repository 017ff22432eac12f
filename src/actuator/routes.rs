// SPDX-License-Identifier: Apache-2.0
//! What the node's routes say: who its gateways are, which depend on nobody's VIP; which hosts are on its links, and which addresses there are no hosts; which interfaces lead outside.
//!
//! Input: a netlink connection. Output: [`Routes`], from every route of both families.

use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use bgp::Prefix;
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::route::{RouteAddress, RouteAttribute, RouteHeader, RouteMessage, RouteType, RouteVia};
use nix::net::if_::if_indextoname;
use rtnetlink::{Handle, RouteMessageBuilder};

use super::address::each;
use crate::observed::Links;

/// What is read.
#[derive(Clone, Debug, Default)]
pub(super) struct Routes {
    /// Every next hop: addresses of others that this node depends on, so none of them may become a VIP.
    pub(super) gateways: BTreeSet<IpAddr>,
    pub(super) links: Links,
    /// Those of default routes.
    pub(super) default_interfaces: BTreeSet<String>,
}

/// Reads them.
pub(super) async fn routes(handle: &Handle) -> io::Result<Routes> {
    let mut routes = Routes::default();
    for request in [RouteMessageBuilder::<Ipv4Addr>::new().build(), RouteMessageBuilder::<Ipv6Addr>::new().build()] {
        // One that is missed, since routes changed meanwhile, is seen next time.
        each(handle, RouteNetlinkMessage::GetRoute(request), |message| {
            if let RouteNetlinkMessage::NewRoute(route) = message {
                routes.take(&route);
            }
        })
        .await?;
    }
    let Links { direct, routed, .. } = &mut routes.links;
    routed.retain(|prefix| direct.iter().any(|direct| direct.length() <= prefix.length() && direct.contains(prefix.address())));
    Ok(routes)
}

impl Routes {
    fn take(&mut self, route: &RouteMessage) {
        let next_hops = next_hops(route);
        let in_main = route.header.table == RouteHeader::RT_TABLE_MAIN && route.header.kind == RouteType::Unicast;
        if let Some(prefix) = destination(route).filter(|_| in_main) {
            if prefix.length() == 0 {
                self.default_interfaces.extend(interfaces(route));
            }
            let on_link = next_hops.is_empty();
            if on_link { &mut self.links.direct } else { &mut self.links.routed }.insert(prefix);
        }
        self.gateways.extend(next_hops);
        if route.header.kind == RouteType::Broadcast {
            self.links.broadcast.extend(destination(route).map(|prefix| prefix.address()));
        }
    }
}

fn destination(route: &RouteMessage) -> Option<Prefix> {
    let address = route.attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::Destination(RouteAddress::Inet(address)) => Some(IpAddr::V4(*address)),
        RouteAttribute::Destination(RouteAddress::Inet6(address)) => Some(IpAddr::V6(*address)),
        _ => None,
    });
    let any = match route.header.address_family {
        netlink_packet_route::AddressFamily::Inet => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        _ => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    };
    Prefix::new(address.unwrap_or(any), route.header.destination_prefix_length).ok()
}

fn interfaces(route: &RouteMessage) -> Vec<String> {
    let one = route.attributes.iter().filter_map(|attribute| match attribute {
        RouteAttribute::Oif(index) => Some(*index),
        _ => None,
    });
    let several = route.attributes.iter().filter_map(|attribute| match attribute {
        RouteAttribute::MultiPath(hops) => Some(hops.iter().map(|hop| hop.interface_index)),
        _ => None,
    });
    let name = |index: u32| if_indextoname(index).ok()?.into_string().ok();
    one.chain(several.flatten()).filter_map(name).collect()
}

fn next_hops(route: &RouteMessage) -> Vec<IpAddr> {
    let of = |attribute: &RouteAttribute| match attribute {
        RouteAttribute::Gateway(RouteAddress::Inet(address)) | RouteAttribute::Via(RouteVia::Inet(address)) => Some(IpAddr::V4(*address)),
        RouteAttribute::Gateway(RouteAddress::Inet6(address)) | RouteAttribute::Via(RouteVia::Inet6(address)) => Some(IpAddr::V6(*address)),
        _ => None,
    };
    let several = route.attributes.iter().filter_map(|attribute| match attribute {
        RouteAttribute::MultiPath(hops) => Some(hops.iter().flat_map(|hop| &hop.attributes)),
        _ => None,
    });
    route.attributes.iter().chain(several.flatten()).filter_map(of).collect()
}
