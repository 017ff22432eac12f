// SPDX-License-Identifier: Apache-2.0
//! What becomes of a route on its way to one peer: the attributes and the next hop that it is announced with, or why it is not.
//!
//! Input: the policy of the peer, what the session negotiated, and the local addresses of its connection. Output: path attributes without next hop,
//! and a next hop for each family. Invariant: a next hop is an address that packets can be sent to.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::Route;
use crate::identity::Asn;
use crate::prefix::Family;
use crate::wire::{AsPath, AsPathSegment, Negotiated, NextHop, PathAttribute};

/// AS numbers that one segment of an AS_PATH can hold (RFC 4271 §4.3 b).
const SEGMENT_LIMIT: usize = 255;

/// With what routes are announced to a peer.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Export {
    /// LOCAL_PREF, for internal peers (RFC 4271 §5.1.5).
    pub local_preference: u32,
    /// MULTI_EXIT_DISC (RFC 4271 §5.1.4).
    pub med: Option<u32>,
    /// The next hop of IPv4 routes.
    pub next_hop_ipv4: NextHopPolicy,
    /// The next hop of IPv6 routes.
    pub next_hop_ipv6: NextHopPolicy,
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

    /// The next hop of all routes of a family (RFC 4271 §5.1.3, RFC 2545 §3), or why none of them is announced.
    pub(super) fn next_hop(&self, family: Family) -> Result<NextHop, Withheld> {
        if !self.negotiated.families.contains(&family) {
            return Err(Withheld::FamilyNotNegotiated(family));
        }
        let next_hop = match family {
            Family::Ipv4Unicast => self.ipv4().filter(is_usable_ipv4).map(NextHop::V4),
            Family::Ipv6Unicast => self.ipv6().filter(is_usable_ipv6).map(|global| NextHop::V6 { global, link_local: None }),
        };
        next_hop.ok_or(Withheld::NoNextHop(family))
    }

    /// The attributes of a route towards this peer (RFC 4271 §5.1), without those that carry next hop and destinations.
    pub(super) fn attributes(&self, route: &Route) -> Vec<PathAttribute> {
        let mut attributes = vec![PathAttribute::Origin(route.origin)];
        attributes.push(PathAttribute::AsPath(if self.negotiated.internal {
            route.as_path.clone()
        } else {
            prepended(&route.as_path, self.negotiated.local_asn)
        }));
        attributes.extend(self.export.med.map(PathAttribute::MultiExitDisc));
        if self.negotiated.internal {
            attributes.push(PathAttribute::LocalPref(self.export.local_preference));
        }
        attributes
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

/// The path as it leaves our AS (RFC 4271 §5.1.2).
fn prepended(path: &AsPath, asn: Asn) -> AsPath {
    let mut segments = path.0.clone();
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
        assert_eq!(prepended(&AsPath::default(), own), AsPath(vec![AsPathSegment::Sequence(vec![own])]));
        assert_eq!(prepended(&of(254), own).0.len(), 1);
        let long = prepended(&of(255), own);
        assert_eq!(long.0.first(), Some(&AsPathSegment::Sequence(vec![own])));
        assert_eq!(long.0.len(), 2);
        let set = AsPath(vec![AsPathSegment::Set(vec![own])]);
        assert_eq!(prepended(&set, own).0.len(), 2);
    }
}
