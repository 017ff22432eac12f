// SPDX-License-Identifier: Apache-2.0
//! `bgp.policies` and `bgp.aggregates`: with what routes are announced, and which of them as one.
//!
//! Input: the section `bgp` of the file. Output: a [`Routing`] that names no policy that is not there.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use bgp::Prefix;
use bgp::rib::{NextHops, Route};

use super::kinds;
use super::parse::set;
use super::read::{Reader, Section};
use crate::desired::{Aggregate, DesiredBgp, Policy, Routing};

/// Where a mistake is reported, the element that has it is left out.
pub(super) fn routing(reader: &mut Reader<'_>, bgp: &Section<'_>, desired: Option<&DesiredBgp>) -> Routing {
    let policies = policies(reader, bgp, desired);
    let aggregates = aggregates(reader, bgp, &policies);
    Routing { policies, aggregates }
}

fn policies(reader: &mut Reader<'_>, bgp: &Section<'_>, desired: Option<&DesiredBgp>) -> BTreeMap<String, Policy> {
    let elements = reader.list(bgp, "policies").unwrap_or_default();
    let mut policies: BTreeMap<String, Policy> = BTreeMap::new();
    for element in &elements {
        let section = reader.element(element);
        let name = reader.required(&section, "name", &kinds::bgp::POLICY_NAME);
        let policy = policy(reader, &section);
        if let (Some(policy), Some(desired)) = (&policy, desired) {
            check_peers(reader, &section, policy, desired);
        }
        if let Some(policy) = &policy {
            check_next_hops(reader, &section, policy);
        }
        let (Some(name), Some(policy)) = (name, policy) else { continue };
        if policies.contains_key(&name) {
            reader.report(section.place_of("name"), section.key("name"), format!("another policy is named '{name}'"));
        }
        let shared = policies.iter().find_map(|(other, earlier)| Some((other, *earlier.prefixes.intersection(&policy.prefixes).next()?)));
        if let Some((other, prefix)) = shared {
            let message = format!("{prefix} has the policy '{other}' already");
            reader.report(section.place_of("prefixes"), section.key("prefixes"), message);
        }
        policies.entry(name).or_insert(policy);
    }
    policies
}

/// A policy that names a peer that is not there would keep its routes from everybody, or look as if it did.
fn check_peers(reader: &mut Reader<'_>, section: &Section<'_>, policy: &Policy, desired: &DesiredBgp) {
    let named = policy.route.peers.iter().flat_map(|peers| peers.iter());
    for name in named.filter(|name| !desired.peers.contains_key(*name)) {
        reader.report(section.place_of("peers"), section.key("peers"), format!("expected names of bgp.peers, found '{name}'"));
    }
}

/// A destination that is its own next hop is reached by nobody; it would be announced to no peer.
fn check_next_hops(reader: &mut Reader<'_>, section: &Section<'_>, policy: &Policy) {
    let NextHops { ipv4, ipv6 } = policy.route.next_hop;
    let next_hops = ipv4.map(IpAddr::V4).into_iter().chain(ipv6.map(IpAddr::V6));
    for address in next_hops.filter(|address| policy.prefixes.contains(&Prefix::host(*address))) {
        let message = format!("{address} is one of the prefixes of this policy: a destination is not its own next hop (RFC 4271 §5.1.3)");
        reader.report(section.place_of("nextHop"), section.key("nextHop"), message);
    }
}

fn policy(reader: &mut Reader<'_>, section: &Section<'_>) -> Option<Policy> {
    let prefixes = set(reader, section, "prefixes", &kinds::PREFIX);
    let prepend = reader.or(section, "prepend", &kinds::bgp::PREPEND, 0);
    let next_hop = reader.section(section, "nextHop");
    let route = Route {
        prepend: prepend?,
        next_hop: NextHops {
            ipv4: reader.optional(&next_hop, "ipv4", &kinds::bgp::OTHER_NEXT_HOP_IPV4),
            ipv6: reader.optional(&next_hop, "ipv6", &kinds::bgp::OTHER_NEXT_HOP_IPV6),
        },
        med: reader.optional(section, "med", &kinds::bgp::MED),
        local_preference: reader.optional(section, "localPreference", &kinds::bgp::LOCAL_PREFERENCE),
        communities: set(reader, section, "communities", &kinds::bgp::COMMUNITY),
        large_communities: set(reader, section, "largeCommunities", &kinds::bgp::LARGE_COMMUNITY),
        extended_communities: set(reader, section, "extendedCommunities", &kinds::bgp::EXTENDED_COMMUNITY),
        link_bandwidth: reader.optional(section, "linkBandwidth", &kinds::bgp::LINK_BANDWIDTH),
        peers: section.has("peers").then(|| Arc::new(set(reader, section, "peers", &kinds::bgp::PEER_NAME))),
        ..Route::originated()
    };
    Some(Policy { prefixes, route })
}

fn aggregates(reader: &mut Reader<'_>, bgp: &Section<'_>, policies: &BTreeMap<String, Policy>) -> BTreeMap<Prefix, Aggregate> {
    let elements = reader.list(bgp, "aggregates").unwrap_or_default();
    let mut aggregates = BTreeMap::new();
    for element in &elements {
        let section = reader.element(element);
        let prefix = reader.required(&section, "prefix", &kinds::bgp::AGGREGATE);
        let policy = reader.optional(&section, "policy", &kinds::bgp::POLICY_NAME);
        let suppress = reader.or(&section, "vips", &kinds::bgp::SUPPRESS, false);
        if let Some(policy) = policy.as_ref().filter(|policy| !policies.contains_key(*policy)) {
            let message = format!("expected the name of one of bgp.policies, found '{policy}'");
            reader.report(section.place_of("policy"), section.key("policy"), message);
        }
        let (Some(prefix), Some(suppress)) = (prefix, suppress) else { continue };
        if aggregates.insert(prefix, Aggregate { policy, suppress }).is_some() {
            reader.report(section.place_of("prefix"), section.key("prefix"), format!("another aggregate is {prefix}"));
        }
    }
    aggregates
}
