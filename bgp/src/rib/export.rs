// SPDX-License-Identifier: Apache-2.0
//! What becomes of a route on its way to one peer: the attributes and the next hop that it is announced with, or why it is not.
//!
//! Input: the policy of the peer, what the session negotiated, and the local addresses of its connection. Output: path attributes without next hop,
//! and a next hop for each family. Invariant: a next hop is an address that packets can be sent to.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use super::route::is_link_bandwidth;
use super::{Path, PathKey, Route, well_known};
use crate::identity::Asn;
use crate::prefix::{Family, Prefix};
use crate::wire::{AsPath, AsPathSegment, Negotiated, NextHop, PathAttribute};

/// AS numbers that one segment of an AS_PATH can hold (RFC 4271 §4.3 b).
const SEGMENT_LIMIT: usize = 255;

/// With what routes are announced to a peer. Where a [`Route`] says something itself, that counts; communities and prepending add up.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Export {
    /// LOCAL_PREF, for internal peers (RFC 4271 §5.1.5).
    pub local_preference: u32,
    /// MULTI_EXIT_DISC (RFC 4271 §5.1.4).
    pub med: Option<u32>,
    /// How often our AS is put in front once more, towards an external peer.
    pub prepend: u8,
    /// COMMUNITIES (RFC 1997).
    pub communities: BTreeSet<u32>,
    /// LARGE_COMMUNITY (RFC 8092).
    pub large_communities: BTreeSet<[u32; 3]>,
    /// Extended Communities (RFC 4360). A link bandwidth counts where the route has none.
    pub extended_communities: BTreeSet<u64>,
    /// The next hop of IPv4 routes.
    pub next_hop_ipv4: NextHopPolicy,
    /// The next hop of IPv6 routes.
    pub next_hop_ipv6: NextHopPolicy,
    /// Our routes are about to go: others are to be preferred (RFC 8326 §4).
    pub graceful_shutdown: bool,
}

impl Default for Export {
    /// LOCAL_PREF 100, and ourselves as the next hop.
    fn default() -> Self {
        Self {
            local_preference: 100,
            med: None,
            prepend: 0,
            communities: BTreeSet::new(),
            large_communities: BTreeSet::new(),
            extended_communities: BTreeSet::new(),
            next_hop_ipv4: NextHopPolicy::SelfAddress,
            next_hop_ipv6: NextHopPolicy::SelfAddress,
            graceful_shutdown: false,
        }
    }
}

/// Where the next hop of announced routes comes from (RFC 4271 §5.1.3).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum NextHopPolicy {
    /// Our address on the connection, or for the other family the one beside it: [`LocalAddresses`].
    SelfAddress,
    /// This address.
    Address(IpAddr),
}

/// Our addresses on the interface of one connection.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct LocalAddresses {
    /// The IPv4 address.
    pub ipv4: Option<Ipv4Addr>,
    /// The global IPv6 address.
    pub ipv6: Option<Ipv6Addr>,
    /// The link-local IPv6 address.
    pub link_local: Option<Ipv6Addr>,
}

/// Why a route of the Loc-RIB is not announced to a peer.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Withheld {
    /// One side or both did not offer the family (RFC 4760 §8).
    #[error("the session does not carry {0}")]
    FamilyNotNegotiated(Family),
    /// Neither the connection nor the configuration gives a usable next hop.
    #[error("there is no local address to be the next hop of {0}")]
    NoNextHop(Family),
    /// Its attributes leave no room for a destination in one UPDATE (RFC 4271 §9.2).
    #[error("its path attributes do not fit into an UPDATE")]
    TooLong,
}

/// The policy of one session.
#[derive(Debug)]
pub(super) struct Exporter {
    export: Export,
    negotiated: Negotiated,
    local: LocalAddresses,
}

impl Exporter {
    pub(super) const fn new(export: Export, negotiated: Negotiated, local: LocalAddresses) -> Self {
        Self { export, negotiated, local }
    }

    pub(super) const fn negotiated(&self) -> &Negotiated {
        &self.negotiated
    }

    /// Changes the policy; returns what it was.
    pub(super) fn replace(&mut self, export: Export) -> Self {
        let export = std::mem::replace(&mut self.export, export);
        Self { export, negotiated: self.negotiated.clone(), local: self.local }
    }

    /// Which of the paths to a destination, the best first, the peer is to hold, or why it gets none.
    pub(super) fn select<'a>(
        &self,
        prefix: Prefix,
        paths: &'a [Path],
    ) -> impl Iterator<Item = (PathKey, Result<&'a Arc<Route>, Withheld>)> + use<'a> {
        let key = PathKey { prefix, id: None };
        let selected = paths.first().map(|path| self.next_hop(&path.route, prefix.family()).map(|_| &path.route));
        selected.map(|selected| (key, selected)).into_iter()
    }

    /// What a route is announced with in a family: the attributes (RFC 4271 §5.1) without those that carry next hop and destinations, and the next
    /// hop.
    pub(super) fn outgoing(&self, route: &Route, family: Family) -> Result<(Vec<PathAttribute>, NextHop), Withheld> {
        Ok((self.attributes(route), self.next_hop(route, family)?))
    }

    /// The next hop of a route (RFC 4271 §5.1.3, RFC 2545 §3).
    fn next_hop(&self, route: &Route, family: Family) -> Result<NextHop, Withheld> {
        if !self.negotiated.families.contains(&family) {
            return Err(Withheld::FamilyNotNegotiated(family));
        }
        let next_hop = match family {
            Family::Ipv4Unicast => {
                let address = route.next_hop.ipv4.or_else(|| self.ipv4());
                address.filter(is_usable_ipv4).map(NextHop::V4)
            }
            Family::Ipv6Unicast => {
                let address = route.next_hop.ipv6.or_else(|| self.ipv6());
                address.filter(is_usable_ipv6).map(|global| NextHop::V6 { global, link_local: None })
            }
        };
        next_hop.ok_or(Withheld::NoNextHop(family))
    }

    fn attributes(&self, route: &Route) -> Vec<PathAttribute> {
        let export = &self.export;
        let mut attributes = vec![PathAttribute::Origin(route.origin), PathAttribute::AsPath(self.as_path(route))];
        attributes.extend(route.med.or(export.med).map(PathAttribute::MultiExitDisc));
        if self.negotiated.internal {
            let local_preference = route.local_preference.unwrap_or(export.local_preference);
            attributes.push(PathAttribute::LocalPref(if export.graceful_shutdown { 0 } else { local_preference }));
        }
        let shutdown = export.graceful_shutdown.then_some(&well_known::GRACEFUL_SHUTDOWN);
        let communities: BTreeSet<_> = route.communities.iter().chain(&export.communities).chain(shutdown).copied().collect();
        if !communities.is_empty() {
            attributes.push(PathAttribute::Communities(communities.into_iter().collect()));
        }
        let own_bandwidth = route.extended_communities.iter().any(|community| is_link_bandwidth(*community));
        let added = export.extended_communities.iter().filter(|community| !(own_bandwidth && is_link_bandwidth(**community)));
        let extended: BTreeSet<_> = route.extended_communities.iter().chain(added).copied().collect();
        if !extended.is_empty() {
            attributes.push(PathAttribute::ExtendedCommunities(extended.into_iter().collect()));
        }
        let large = &route.large_communities | &export.large_communities;
        if !large.is_empty() {
            attributes.push(PathAttribute::LargeCommunities(large.into_iter().collect()));
        }
        attributes
    }

    /// AS_PATH towards this peer (RFC 4271 §5.1.2).
    fn as_path(&self, route: &Route) -> AsPath {
        if self.negotiated.internal {
            return route.as_path.clone();
        }
        let times = 1 + u16::from(route.prepend) + u16::from(self.export.prepend);
        (0..times).fold(route.as_path.clone(), |path, _| prepended(path, self.negotiated.local_asn))
    }

    const fn ipv4(&self) -> Option<Ipv4Addr> {
        match self.export.next_hop_ipv4 {
            NextHopPolicy::SelfAddress => self.local.ipv4,
            NextHopPolicy::Address(IpAddr::V4(address)) => Some(address),
            NextHopPolicy::Address(IpAddr::V6(_)) => None,
        }
    }

    const fn ipv6(&self) -> Option<Ipv6Addr> {
        match self.export.next_hop_ipv6 {
            NextHopPolicy::SelfAddress => self.local.ipv6,
            NextHopPolicy::Address(IpAddr::V6(address)) => Some(address),
            NextHopPolicy::Address(IpAddr::V4(_)) => None,
        }
    }
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

const fn is_usable_ipv4(address: &Ipv4Addr) -> bool {
    !(address.is_unspecified() || address.is_multicast() || address.is_broadcast())
}

/// An IPv4 address in disguise is none, and neither is one that is valid on a single link only.
const fn is_usable_ipv6(address: &Ipv6Addr) -> bool {
    !(address.is_unspecified() || address.is_multicast() || address.is_unicast_link_local() || address.to_ipv4_mapped().is_some())
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
