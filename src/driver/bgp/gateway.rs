// SPDX-License-Identifier: Apache-2.0
//! The default gateway of the node, for a peer that is it.
//!
//! Input: the routes of the main table. Output: the gateway of the default route with the lowest metric, of IPv4, or of IPv6 where IPv4 has none; of several
//! equal ones that with the lowest address, so that the choice stays the same.

use std::net::IpAddr;

use netlink_packet_route::AddressFamily;
use netlink_packet_route::route::{RouteAddress, RouteAttribute, RouteHeader, RouteMessage, RouteType, RouteVia};

use super::addresses::{AddressError, Netlink};
use super::whereabouts::Found;

/// Reads it; `None` where there is no default route by a gateway.
///
/// # Errors
/// The routes cannot be read.
pub(super) async fn read(netlink: &Netlink) -> Result<Option<Found>, AddressError> {
    for family in [AddressFamily::Inet, AddressFamily::Inet6] {
        let routes = netlink.routes(family).await?;
        if let Some(found) = choose(&routes) {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

fn choose(routes: &[RouteMessage]) -> Option<Found> {
    let found =
        routes.iter().filter(|route| is_default(route)).flat_map(|route| gateways(route).into_iter().map(|found| (metric(route), found)));
    found.min_by_key(|(metric, found)| (*metric, found.address, found.scope)).map(|(_, found)| found)
}

fn is_default(route: &RouteMessage) -> bool {
    let header = &route.header;
    header.destination_prefix_length == 0 && header.table == RouteHeader::RT_TABLE_MAIN && header.kind == RouteType::Unicast
}

fn metric(route: &RouteMessage) -> u32 {
    let metric = route.attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::Priority(metric) => Some(*metric),
        _ => None,
    });
    metric.unwrap_or(0)
}

/// That of the route, or those of its next hops.
fn gateways(route: &RouteMessage) -> Vec<Found> {
    let interface = route.attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::Oif(index) => Some(*index),
        _ => None,
    });
    let mut found: Vec<Found> =
        route.attributes.iter().filter_map(gateway).map(|address| Found::new(address, interface.unwrap_or(0))).collect();
    for attribute in &route.attributes {
        if let RouteAttribute::MultiPath(hops) = attribute {
            let of = |hop: &netlink_packet_route::route::RouteNextHop| {
                let address = hop.attributes.iter().find_map(gateway)?;
                Some(Found::new(address, hop.interface_index))
            };
            found.extend(hops.iter().filter_map(of));
        }
    }
    found
}

fn gateway(attribute: &RouteAttribute) -> Option<IpAddr> {
    match attribute {
        RouteAttribute::Gateway(RouteAddress::Inet(address)) | RouteAttribute::Via(RouteVia::Inet(address)) => Some((*address).into()),
        RouteAttribute::Gateway(RouteAddress::Inet6(address)) | RouteAttribute::Via(RouteVia::Inet6(address)) => Some((*address).into()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use netlink_packet_route::route::RouteNextHop;

    use super::*;

    fn route(metric: u32, attributes: Vec<RouteAttribute>) -> RouteMessage {
        let mut route = RouteMessage::default();
        route.header.table = RouteHeader::RT_TABLE_MAIN;
        route.header.kind = RouteType::Unicast;
        route.attributes = attributes;
        route.attributes.push(RouteAttribute::Priority(metric));
        route
    }

    fn via(address: &str, interface: u32) -> Vec<RouteAttribute> {
        let gateway = match address.parse().unwrap() {
            IpAddr::V4(address) => RouteAddress::Inet(address),
            IpAddr::V6(address) => RouteAddress::Inet6(address),
        };
        vec![RouteAttribute::Oif(interface), RouteAttribute::Gateway(gateway)]
    }

    fn chosen(routes: &[RouteMessage]) -> Option<(String, u32)> {
        choose(routes).map(|found| (found.address.to_string(), found.scope))
    }

    #[test]
    fn the_lowest_metric_and_then_the_lowest_address_is_the_gateway() {
        let of = |address: &str, scope| Some((address.to_owned(), scope));
        assert_eq!(chosen(&[route(200, via("192.0.2.1", 2)), route(100, via("192.0.2.9", 3))]), of("192.0.2.9", 0));
        assert_eq!(chosen(&[route(0, via("192.0.2.9", 2)), route(0, via("192.0.2.1", 3))]), of("192.0.2.1", 0));
        assert_eq!(chosen(&[route(1024, via("fe80::1", 4))]), of("fe80::1", 4), "a link-local gateway is one of its interface");
        assert_eq!(chosen(&[route(0, vec![RouteAttribute::Oif(2)])]), None, "a link without a gateway");
        assert_eq!(chosen(&[]), None);
    }

    #[test]
    fn of_several_next_hops_the_lowest_address_counts() {
        let hop = |address: &str, index| {
            let mut hop = RouteNextHop::default();
            hop.interface_index = index;
            hop.attributes = via(address, index);
            hop
        };
        let several = route(0, vec![RouteAttribute::MultiPath(vec![hop("192.0.2.9", 2), hop("192.0.2.3", 3)])]);
        assert_eq!(chosen(&[several]), Some(("192.0.2.3".to_owned(), 0)));
    }

    #[test]
    fn only_default_routes_of_the_main_table_count() {
        let mut narrow = route(0, via("192.0.2.1", 2));
        narrow.header.destination_prefix_length = 8;
        let mut elsewhere = route(0, via("192.0.2.1", 2));
        elsewhere.header.table = 77;
        let mut unreachable = route(0, via("192.0.2.1", 2));
        unreachable.header.kind = RouteType::Unreachable;
        assert_eq!(chosen(&[narrow, elsewhere, unreachable]), None);
    }
}
