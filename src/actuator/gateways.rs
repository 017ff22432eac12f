// SPDX-License-Identifier: Apache-2.0
//! The gateways of the node's routes: addresses of others that this node depends on, so none of them may become a VIP.
//!
//! Input: a netlink connection. Output: every next hop of every unicast route, of both families.

use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::route::{RouteAddress, RouteAttribute, RouteMessage, RouteVia};
use rtnetlink::{Handle, RouteMessageBuilder};

use super::address::each;

/// Reads them.
pub(super) async fn gateways(handle: &Handle) -> io::Result<BTreeSet<IpAddr>> {
    let mut gateways = BTreeSet::new();
    for request in [RouteMessageBuilder::<Ipv4Addr>::new().build(), RouteMessageBuilder::<Ipv6Addr>::new().build()] {
        // One that is missed, since routes changed meanwhile, is seen next time.
        each(handle, RouteNetlinkMessage::GetRoute(request), |message| {
            if let RouteNetlinkMessage::NewRoute(route) = message {
                gateways.extend(next_hops(&route));
            }
        })
        .await?;
    }
    Ok(gateways)
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
