// SPDX-License-Identifier: Apache-2.0
//! The path attributes of a route towards one peer (RFC 4271 §5.1), without those that carry next hop and destinations.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use super::Exporter;
use crate::identity::Asn;
use crate::rib::{Learned, Route};
use crate::wire::community;
use crate::wire::{AsPath, AsPathSegment, BgpRole, Flags, PathAttribute, Transitive};

/// AS numbers that one segment of an AS_PATH can hold (RFC 4271 §4.3 b).
const SEGMENT_LIMIT: usize = 255;
/// The bit of an extended community that says that it stays in the AS (RFC 4360 §3.3).
const NOT_TRANSITIVE: u64 = 0x4000 << 48;

impl Exporter {
    /// What a route is announced with.
    pub(super) fn attributes(&self, route: &Route) -> Vec<PathAttribute> {
        let mut attributes = vec![PathAttribute::Origin(route.origin)];
        match &route.learned {
            None => self.originated(route, &mut attributes),
            Some(learned) => self.passed_on(route, learned, &mut attributes),
        }
        attributes
    }

    /// One that starts here.
    fn originated(&self, route: &Route, attributes: &mut Vec<PathAttribute>) {
        let export = &self.export;
        let internal = self.negotiated.internal;
        let times = if internal { 0 } else { 1 + u16::from(route.prepend) + u16::from(export.prepend) };
        attributes.push(PathAttribute::AsPath(self.prepended(&route.as_path, times)));
        attributes.extend(route.med.or(export.med).map(PathAttribute::MultiExitDisc));
        if internal {
            let local_preference = route.local_preference.unwrap_or(export.local_preference);
            attributes.push(PathAttribute::LocalPref(local_preference));
        }
        let communities = &route.communities | &export.communities;
        // What is not transitive does not cross the border of an AS (RFC 4360 §6).
        let bandwidth = route.link_bandwidth.or(export.link_bandwidth);
        let bandwidth = bandwidth.map(|octets| community::link_bandwidth(!internal, self.negotiated.local_asn, octets));
        let extended = route.extended_communities.iter().chain(&export.extended_communities).copied().chain(bandwidth).collect();
        let large = &route.large_communities | &export.large_communities;
        attributes.extend(lists(communities, extended, large, None));
        attributes.extend(self.only_to_customer(None));
    }

    /// One that another peer told: towards an internal peer as it came (RFC 4456 §10), towards an external one with our AS in front, and without
    /// what stays in an AS.
    fn passed_on(&self, route: &Route, learned: &Learned, attributes: &mut Vec<PathAttribute>) {
        let internal = self.negotiated.internal;
        attributes
            .push(PathAttribute::AsPath(self.prepended(&route.as_path, if internal { 0 } else { 1 + u16::from(self.export.prepend) })));
        if internal {
            attributes.extend(route.med.map(PathAttribute::MultiExitDisc));
            attributes.push(PathAttribute::LocalPref(route.local_preference.unwrap_or(self.export.local_preference)));
        } else {
            attributes.extend(self.export.med.map(PathAttribute::MultiExitDisc));
        }
        if learned.atomic_aggregate {
            attributes.push(PathAttribute::AtomicAggregate);
        }
        attributes
            .extend(learned.aggregator.map(|value| PathAttribute::Aggregator(Transitive { value, partial: learned.partial.contains(&7) })));
        if internal && learned.source.internal {
            let originator = learned.originator_id.unwrap_or_else(|| Ipv4Addr::from_bits(learned.source.identifier.number()));
            attributes.push(PathAttribute::OriginatorId(originator));
            let own = Ipv4Addr::from_bits(self.target.cluster_id.number());
            attributes.push(PathAttribute::ClusterList(std::iter::once(own).chain(learned.cluster_list.iter().copied()).collect()));
        }
        let goes_on = |community: &&u64| internal || **community & NOT_TRANSITIVE == 0;
        let extended = route.extended_communities.iter().filter(goes_on).copied().collect();
        let (mut communities, mut large) = (route.communities.clone(), route.large_communities.clone());
        if !internal {
            communities.extend(&self.export.communities);
            large.extend(&self.export.large_communities);
        }
        attributes.extend(lists(communities, extended, large, Some(learned)));
        attributes.extend(self.only_to_customer(Some(learned)));
        attributes.extend(learned.unknown.iter().map(|unknown| PathAttribute::Unknown {
            flags: Flags(Flags::OPTIONAL.0 | Flags::TRANSITIVE.0 | Flags::PARTIAL.0),
            type_code: unknown.type_code,
            value: unknown.value.clone(),
        }));
    }

    /// ONLY_TO_CUSTOMER as it is, or ours towards those who are not to pass the route up again (RFC 9234 §5, the rule of egress 1).
    fn only_to_customer(&self, learned: Option<&Learned>) -> Option<PathAttribute> {
        let downwards = matches!(self.role(), Some(BgpRole::Provider | BgpRole::Peer | BgpRole::RouteServer));
        let own = || downwards.then_some(self.negotiated.local_asn);
        let value = learned.and_then(|learned| learned.only_to_customer).or_else(own)?;
        let partial = learned.is_some_and(|learned| learned.partial.contains(&35));
        Some(PathAttribute::OnlyToCustomer(Transitive { value, partial }))
    }

    /// The path with our AS so many times in front (RFC 4271 §5.1.2); what is of a confederation does not leave it (RFC 5065 §5).
    fn prepended(&self, path: &AsPath, times: u16) -> AsPath {
        let path = if self.negotiated.internal { path.clone() } else { path.without_confederation() };
        (0..times).fold(path, |path, _| prepended(path, self.negotiated.local_asn))
    }
}

/// The attributes that are lists of communities, but for the empty ones.
fn lists(
    communities: BTreeSet<u32>,
    extended: BTreeSet<u64>,
    large: BTreeSet<[u32; 3]>,
    learned: Option<&Learned>,
) -> impl Iterator<Item = PathAttribute> {
    let partial = |type_code| learned.is_some_and(|learned| learned.partial.contains(&type_code));
    let ipv6 = learned.map(|learned| learned.ipv6_extended_communities.clone()).unwrap_or_default();
    let communities = list(communities, partial(8)).map(PathAttribute::Communities);
    let extended = list(extended, partial(16)).map(PathAttribute::ExtendedCommunities);
    let ipv6 = list(ipv6, partial(25)).map(PathAttribute::Ipv6ExtendedCommunities);
    let large = list(large, partial(32)).map(PathAttribute::LargeCommunities);
    [communities, extended, ipv6, large].into_iter().flatten()
}

fn list<T>(values: BTreeSet<T>, partial: bool) -> Option<Transitive<Vec<T>>> {
    (!values.is_empty()).then(|| Transitive { value: values.into_iter().collect(), partial })
}

/// The path with one more AS in front (RFC 4271 §5.1.2).
fn prepended(path: AsPath, asn: Asn) -> AsPath {
    let mut segments = path.0;
    match segments.first_mut() {
        Some(AsPathSegment::Sequence(numbers)) if numbers.len() < SEGMENT_LIMIT => numbers.insert(0, asn),
        _ => segments.insert(0, AsPathSegment::Sequence(vec![asn])),
    }
    AsPath(segments)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rfc4271_section_5_1_2_a_full_segment_is_not_prepended_to() {
        let own = Asn::new(65001).unwrap();
        let of = |count| AsPath(vec![AsPathSegment::Sequence(vec![Asn::new(7).unwrap(); count])]);
        assert_eq!(prepended(AsPath::default(), own), AsPath(vec![AsPathSegment::Sequence(vec![own])]));
        assert_eq!(prepended(of(254), own).0.len(), 1);
        let long = prepended(of(255), own);
        assert_eq!(long.0.first(), Some(&AsPathSegment::Sequence(vec![own])));
        assert_eq!(long.0.len(), 2);
        let set = AsPath(vec![AsPathSegment::Set(vec![own])]);
        assert_eq!(prepended(set, own).0.len(), 2);
    }
}
