// SPDX-License-Identifier: Apache-2.0
//! The codec against two others, netgauze-bgp-pkt and bgpkit-parser: what this one encodes the other reads as the same message, and what the other
//! then encodes this one reads as the same message again.
//!
//! Left out is what an oracle does not have: segments of a confederation and the Partial bit of ONLY_TO_CUSTOMER (netgauze), path identifiers of one
//! family only and the N bit of graceful restart (bgpkit), values of Extended Communities other than those of common types, and two-octet AS numbers,
//! which both leave to their caller.
#![expect(clippy::unwrap_used, reason = "a test ends there")]

mod generate;
mod with_bgpkit;
mod with_netgauze;

use std::collections::BTreeSet;

use bgp::wire::{AsPathSegment, Deframer, Message, Negotiated, NextHop, Nlri, PathAttribute, Update};

/// What a message says, one fact a line, in words that do not depend on the codec.
type Facts = BTreeSet<String>;

/// The message of these octets.
fn decode(octets: &[u8], negotiated: &Negotiated) -> Message {
    let mut deframer = Deframer::default();
    deframer.push(octets);
    deframer.next(negotiated).unwrap().unwrap()
}

/// What an UPDATE says according to this codec.
fn facts(update: &Update) -> Facts {
    let mut facts = Facts::new();
    facts.extend(update.withdrawn.iter().map(|route| route_fact("withdrawn", route)));
    facts.extend(update.announced.iter().map(|route| route_fact("announced", route)));
    for attribute in &update.attributes {
        match attribute {
            PathAttribute::MpReach(reach) => {
                facts.extend(reach.announced.iter().map(|route| route_fact("announced", route)));
                facts.insert(match reach.next_hop {
                    NextHop::V4(address) => format!("next hop {address} None"),
                    NextHop::V6 { global, link_local } => format!("next hop {global} {link_local:?}"),
                });
            }
            PathAttribute::MpUnreach(unreach) => facts.extend(unreach.withdrawn.iter().map(|route| route_fact("withdrawn", route))),
            _ => drop(facts.insert(attribute_fact(attribute))),
        }
    }
    facts
}

fn route_fact(what: &str, route: &Nlri) -> String {
    format!("{what} {} path {}", route.prefix, route.path_id)
}

fn attribute_fact(attribute: &PathAttribute) -> String {
    match attribute {
        PathAttribute::Origin(origin) => format!("origin {}", *origin as u8),
        PathAttribute::AsPath(path) => {
            let segment = |segment: &AsPathSegment| {
                let set = matches!(segment, AsPathSegment::Set(_));
                (set, segment.ases().iter().map(|asn| asn.number()).collect::<Vec<_>>())
            };
            path_fact(path.0.iter().map(segment))
        }
        PathAttribute::NextHop(address) => format!("NEXT_HOP {address}"),
        PathAttribute::MultiExitDisc(metric) => format!("metric {metric}"),
        PathAttribute::LocalPref(preference) => format!("preference {preference}"),
        PathAttribute::AtomicAggregate => "atomic aggregate".to_owned(),
        PathAttribute::Aggregator(aggregator) => format!("aggregator {} {}", aggregator.value.asn, aggregator.value.address),
        PathAttribute::Communities(communities) => format!("communities {:?}", communities.value),
        PathAttribute::OriginatorId(identifier) => format!("originator {identifier}"),
        PathAttribute::ClusterList(clusters) => format!("clusters {clusters:?}"),
        PathAttribute::LargeCommunities(communities) => format!("large communities {:?}", communities.value),
        PathAttribute::OnlyToCustomer(asn) => format!("only to customer {}", asn.value),
        PathAttribute::Unknown { type_code, value, .. } => unknown_fact(*type_code, value),
        other => format!("type {}", other.type_code()),
    }
}

fn unknown_fact(type_code: u8, value: &[u8]) -> String {
    format!("type {type_code} {value:02X?}")
}

fn path_fact(segments: impl Iterator<Item = (bool, Vec<u32>)>) -> String {
    let segments = segments.map(|(set, ases)| format!("{} {ases:?}", if set { "set" } else { "sequence" }));
    format!("path {}", segments.collect::<Vec<_>>().join(", "))
}
