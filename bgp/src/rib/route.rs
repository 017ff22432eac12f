// SPDX-License-Identifier: Apache-2.0
//! One route: what is known of the way to a destination, before the policy of any session is applied to it.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use bytes::Bytes;

use crate::identity::{Asn, BgpIdentifier};
use crate::wire::{Aggregator, AsPath, NextHop, Origin, community};

/// What is known of the way to a destination (RFC 4271 §3.1). Two that are equal are announced together.
///
/// What is `None` or empty here is as the policy of each peer says.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Route {
    /// How it came into BGP (RFC 4271 §5.1.1).
    pub origin: Origin,
    /// The ASes that it has passed, without ours (RFC 4271 §5.1.2).
    pub as_path: AsPath,
    /// How often our AS is put in front once more, towards external peers.
    pub prepend: u8,
    /// Where packets go, where that is not us.
    pub next_hop: NextHops,
    /// MULTI_EXIT_DISC (RFC 4271 §5.1.4).
    pub med: Option<u32>,
    /// LOCAL_PREF, for internal peers (RFC 4271 §5.1.5).
    pub local_preference: Option<u32>,
    /// COMMUNITIES (RFC 1997).
    pub communities: BTreeSet<u32>,
    /// LARGE_COMMUNITY (RFC 8092).
    pub large_communities: BTreeSet<[u32; 3]>,
    /// Extended Communities (RFC 4360).
    pub extended_communities: BTreeSet<u64>,
    /// The bandwidth of the way, in octets per second, of a route that starts here ([`link_bandwidth`](community::link_bandwidth)).
    pub link_bandwidth: Option<u64>,
    /// The only peers that are told of a route that starts here, by the names in [`Export::name`](super::Export::name); all where `None`.
    pub peers: Option<Arc<BTreeSet<String>>>,
    /// What a peer told besides; `None` for a route that starts here.
    pub learned: Option<Learned>,
}

/// A next hop for each family.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub struct NextHops {
    /// Of IPv4 routes.
    pub ipv4: Option<Ipv4Addr>,
    /// Of IPv6 routes.
    pub ipv6: Option<Ipv6Addr>,
}

impl Route {
    /// A route that starts here: origin IGP, empty path.
    #[must_use]
    pub const fn originated() -> Self {
        Self {
            origin: Origin::Igp,
            as_path: AsPath(Vec::new()),
            prepend: 0,
            next_hop: NextHops { ipv4: None, ipv6: None },
            med: None,
            local_preference: None,
            communities: BTreeSet::new(),
            large_communities: BTreeSet::new(),
            extended_communities: BTreeSet::new(),
            link_bandwidth: None,
            peers: None,
            learned: None,
        }
    }

    /// The same on a speaker that is about to withdraw it: others are to be preferred (RFC 8326 §4).
    #[must_use]
    pub fn shutting_down(&self) -> Self {
        let mut route = Self { local_preference: Some(0), ..self.clone() };
        route.communities.insert(community::GRACEFUL_SHUTDOWN);
        route
    }

    /// Whether peers are told of it as the last resort, as [`shutting_down`](Self::shutting_down) makes it.
    #[must_use]
    pub fn is_shutting_down(&self) -> bool {
        self.local_preference == Some(0) && self.communities.contains(&community::GRACEFUL_SHUTDOWN)
    }

    /// Whether it has outlived the restart time of a speaker on the way: it is the last resort (RFC 9494 §4.3).
    #[must_use]
    pub fn is_long_lived_stale(&self) -> bool {
        self.communities.contains(&community::LLGR_STALE)
    }
}

/// A number by which the driver knows a peer: no two peers have the same.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub struct PeerId(pub u32);

/// The peer that told a route, as far as choosing and reflecting it depends on that.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Source {
    /// Which one.
    pub peer: PeerId,
    /// Its address.
    pub address: IpAddr,
    /// Its BGP Identifier.
    pub identifier: BgpIdentifier,
    /// It is in our AS.
    pub internal: bool,
    /// We are its route reflector (RFC 4456 §4).
    pub client: bool,
}

/// What a route has that a peer told.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Learned {
    /// Who told it.
    pub source: Arc<Source>,
    /// Where packets go (RFC 4271 §5.1.3).
    pub next_hop: NextHop,
    /// ATOMIC_AGGREGATE (RFC 4271 §5.1.6).
    pub atomic_aggregate: bool,
    /// AGGREGATOR (RFC 4271 §5.1.7).
    pub aggregator: Option<Aggregator>,
    /// ORIGINATOR_ID (RFC 4456 §8).
    pub originator_id: Option<Ipv4Addr>,
    /// CLUSTER_LIST (RFC 4456 §8).
    pub cluster_list: Vec<Ipv4Addr>,
    /// IPv6 Address Specific Extended Communities (RFC 5701).
    pub ipv6_extended_communities: BTreeSet<[u8; 20]>,
    /// ONLY_TO_CUSTOMER (RFC 9234 §5).
    pub only_to_customer: Option<Asn>,
    /// Optional transitive attributes that this speaker does not know.
    pub unknown: Vec<UnknownAttribute>,
    /// Types of the attributes above that a speaker on the way did not know.
    pub partial: BTreeSet<u8>,
}

/// An optional transitive attribute of another type than this speaker knows; it is passed on with Partial set (RFC 4271 §9).
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct UnknownAttribute {
    /// Attribute Type Code.
    pub type_code: u8,
    /// Attribute Value.
    pub value: Bytes,
}

impl Learned {
    /// One without any optional attribute.
    #[must_use]
    pub const fn new(source: Arc<Source>, next_hop: NextHop) -> Self {
        Self {
            source,
            next_hop,
            atomic_aggregate: false,
            aggregator: None,
            originator_id: None,
            cluster_list: Vec::new(),
            ipv6_extended_communities: BTreeSet::new(),
            only_to_customer: None,
            unknown: Vec::new(),
            partial: BTreeSet::new(),
        }
    }
}
