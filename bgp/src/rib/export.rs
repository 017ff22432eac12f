// SPDX-License-Identifier: Apache-2.0
//! What becomes of a route on its way to one peer: whether it is announced, and with which attributes and next hop.
//!
//! Input: the policy of the peer, what the session negotiated, and the local addresses of its connection. Output: the paths that the peer is to hold,
//! and for each its path attributes and next hop. Invariant: a next hop is an address that packets can be sent to.

mod attributes;

use std::collections::{BTreeMap, BTreeSet};
use std::iter::Chain;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::slice;
use std::sync::Arc;

use super::{Learned, Path, PeerId, Route};
use crate::identity::BgpIdentifier;
use crate::prefix::{Family, Prefix};
use crate::wire::{BgpRole, Negotiated, NextHop, Nlri, PathAttribute, community};

/// With what routes are announced to a peer. Where a [`Route`] says something itself, that counts; communities and prepending add up.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Export {
    /// The name by which routes that start here say which peers are told of them.
    pub name: String,
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
    /// Extended Communities (RFC 4360).
    pub extended_communities: BTreeSet<u64>,
    /// The bandwidth of the link, in octets per second ([`link_bandwidth`](community::link_bandwidth)).
    pub link_bandwidth: Option<u64>,
    /// The next hop of IPv4 routes.
    pub next_hop_ipv4: NextHopPolicy,
    /// The next hop of IPv6 routes.
    pub next_hop_ipv6: NextHopPolicy,
}

impl Default for Export {
    /// LOCAL_PREF 100, and ourselves as the next hop.
    fn default() -> Self {
        Self {
            name: String::new(),
            local_preference: 100,
            med: None,
            prepend: 0,
            communities: BTreeSet::new(),
            large_communities: BTreeSet::new(),
            extended_communities: BTreeSet::new(),
            link_bandwidth: None,
            next_hop_ipv4: NextHopPolicy::SelfAddress,
            next_hop_ipv6: NextHopPolicy::SelfAddress,
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
    /// Of a route that a peer told, the next hop that it came with, towards an external peer where both are on one link (RFC 4271 §5.1.3, the third
    /// party); else ourselves.
    Unchanged,
}

/// Our addresses on the interface of one connection.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct LocalAddresses {
    /// The IPv4 address.
    pub ipv4: Option<Ipv4Addr>,
    /// The global IPv6 address; on a connection between link-local addresses that of this end.
    pub ipv6: Option<Ipv6Addr>,
    /// The link-local IPv6 address, where the peer is on the link too (RFC 2545 §3).
    pub link_local: Option<Ipv6Addr>,
    /// The IPv4 subnet of the link, where the peer is on it.
    pub shared_ipv4: Option<Prefix>,
    /// The global IPv6 subnet of the link, where the peer is on it.
    pub shared_ipv6: Option<Prefix>,
}

impl LocalAddresses {
    /// None at all, on a link that is not shared.
    pub const NONE: Self = Self { ipv4: None, ipv6: None, link_local: None, shared_ipv4: None, shared_ipv6: None };

    /// The IPv4 subnet of the shared link, where this address of it is no host's: the first one means the subnet, and the last one is its broadcast address
    /// (RFC 1122 §3.2.1.3), unless there are no others (RFC 3021).
    pub(super) fn subnet_without(&self, address: Ipv4Addr) -> Option<Prefix> {
        let subnet = self.shared_ipv4.filter(|subnet| subnet.length() < 31 && self.ipv4 != Some(address))?;
        let IpAddr::V4(first) = subnet.address() else { return None };
        let last = Ipv4Addr::from_bits(first.to_bits() | u32::MAX >> subnet.length());
        (address == first || address == last).then_some(subnet)
    }

    /// Whether this is an address of the link that is shared with the peer.
    fn shares(&self, address: IpAddr) -> bool {
        [self.shared_ipv4, self.shared_ipv6].into_iter().flatten().any(|subnet| subnet.contains(address))
    }
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
    /// It is for other peers.
    #[error("its policy names other peers")]
    OtherPeers,
    /// Its next hop would be the peer itself (RFC 4271 §5.1.3).
    #[error("its next hop would be {0}, the peer itself")]
    NextHopOfPeer(IpAddr),
    /// Its next hop would be no host (RFC 1122 §3.2.1.3): the first or the last address of the subnet that we share with the peer.
    #[error("its next hop would be {0}, which is no host: it is the network or the broadcast address of {1}, the link to the peer")]
    NextHopWithoutHost(Ipv4Addr, Prefix),
    /// It is a third party that the external peer does not reach on the link that it shares with us (RFC 4271 §5.1.3). We do not forward for others.
    #[error("its next hop {0} is not on the link that the external peer shares with us; to send its packets elsewhere, set nextHop")]
    ThirdParty(IpAddr),
    /// Its next hop would be the destination itself: nobody could find the way there by it (RFC 4271 §5.1.3, §9.1.2.1).
    #[error("its next hop would be {0}, the destination itself; let nextHop name a router, or leave it out")]
    NextHopOfDestination(IpAddr),
    /// Its attributes leave no room for a destination in one UPDATE (RFC 4271 §9.2).
    #[error("its path attributes do not fit into an UPDATE")]
    TooLong,
}

/// The peer as the target of routes that other peers told.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Target {
    /// Which one: it is not told what it told.
    pub peer: PeerId,
    /// Its address, which is no next hop for it.
    pub address: IpAddr,
    /// We are its route reflector (RFC 4456 §4).
    pub client: bool,
    /// Our cluster (RFC 4456 §7).
    pub cluster_id: BgpIdentifier,
}

/// The paths to one destination in the order of identifiers.
type Ordered<'a> = Chain<Chain<slice::Iter<'a, Path>, slice::Iter<'a, Path>>, slice::Iter<'a, Path>>;

/// The policy of one session.
#[derive(Clone, Debug)]
pub(super) struct Exporter {
    export: Export,
    target: Target,
    negotiated: Negotiated,
    local: LocalAddresses,
}

impl Exporter {
    pub(super) const fn new(export: Export, target: Target, negotiated: Negotiated, local: LocalAddresses) -> Self {
        Self { export, target, negotiated, local }
    }

    pub(super) const fn negotiated(&self) -> &Negotiated {
        &self.negotiated
    }

    /// Whether the peer is told all paths to a destination (RFC 7911 §2), not the best one only.
    pub(super) fn sends_several(&self, family: Family) -> bool {
        self.negotiated.add_path_send.contains(&family)
    }

    /// Changes our addresses; returns what it was.
    pub(super) fn relocate(&mut self, local: LocalAddresses) -> Self {
        let new = Self { local, ..self.clone() };
        std::mem::replace(self, new)
    }

    /// Changes the policy; returns what it was.
    pub(super) fn replace(&mut self, export: Export) -> Self {
        let new = Self { export, ..self.clone() };
        std::mem::replace(self, new)
    }

    /// Which of the paths to these destinations, the best first and then in the order of identifiers, the peer is to hold: of each the best one, or all
    /// where the session has Path Identifiers (RFC 7911 §2). They come in the order of destinations and identifiers. Also why it does not get some.
    pub(super) fn select<'a>(
        &self,
        mut destinations: impl Iterator<Item = (Prefix, &'a [Path])>,
        refusals: &mut Refusals,
    ) -> impl Iterator<Item = (Nlri, &'a Arc<Route>)> {
        // Those of one destination of which several are told.
        let mut several: Option<(Prefix, Ordered<'a>)> = None;
        let paths = std::iter::from_fn(move || {
            loop {
                if let Some((prefix, paths)) = &mut several
                    && let Some(path) = paths.next()
                {
                    return Some((Nlri { prefix: *prefix, path_id: path.id }, &path.route));
                }
                let (prefix, paths) = destinations.next()?;
                let Some((best, others)) = paths.split_first() else { continue };
                if !self.sends_several(prefix.family()) {
                    return Some((Nlri::from(prefix), &best.route));
                }
                let (before, behind) = others.split_at(others.partition_point(|path| path.id < best.id));
                several = Some((prefix, before.iter().chain(slice::from_ref(best)).chain(behind)));
            }
        });
        // Neighbouring paths tend to have the same route.
        let mut last = None;
        paths.filter(move |(Nlri { prefix, .. }, route)| {
            let about = (prefix.family(), Arc::as_ptr(route));
            let verdict = match last {
                Some((known, verdict)) if known == about => verdict,
                _ => self.judge(route, prefix.family()),
            };
            last = Some((about, verdict));
            match verdict {
                Some(Ok(next_hop))
                    if route.learned.is_none() && next_hop.is(prefix.address()) && *prefix == Prefix::host(prefix.address()) =>
                {
                    refusals.insert(*prefix, route, Withheld::NextHopOfDestination(prefix.address()));
                    false
                }
                Some(Err(reason)) => {
                    refusals.insert(*prefix, route, reason);
                    false
                }
                verdict => verdict.is_some(),
            }
        })
    }

    /// Whether the peer is to hold a route that is selected for it, and then its next hop: `None` where it is not meant for this peer, and why not where
    /// one that is cannot be told.
    fn judge(&self, route: &Route, family: Family) -> Option<Result<NextHop, Withheld>> {
        match (&route.learned, self.next_hop(route, family)) {
            (
                Some(learned),
                verdict @ (Ok(_) | Err(Withheld::ThirdParty(_) | Withheld::NextHopOfPeer(_) | Withheld::NextHopWithoutHost(..))),
            ) if self.permits(route, learned) => Some(verdict),
            (Some(_), _) => None,
            (None, Ok(_)) if route.peers.as_ref().is_some_and(|peers| !peers.contains(&self.export.name)) => {
                Some(Err(Withheld::OtherPeers))
            }
            (None, next_hop) => Some(next_hop),
        }
    }

    /// What a route is announced with in a family: the attributes (RFC 4271 §5.1) without those that carry next hop and destinations, and the next
    /// hop.
    pub(super) fn outgoing(&self, route: &Route, family: Family) -> Result<(Vec<PathAttribute>, NextHop), Withheld> {
        Ok((self.attributes(route), self.next_hop(route, family)?))
    }

    /// Whether this peer may be told what another one told.
    fn permits(&self, route: &Route, learned: &Learned) -> bool {
        let internal = self.negotiated.internal;
        let has = |community| route.communities.contains(&community);
        // RFC 4456 §6: what a non-client told goes to clients only; between other internal peers nothing is passed on.
        let reflected = !internal || !learned.source.internal || learned.source.client || self.target.client;
        // RFC 1997.
        let kept_inside = has(community::NO_EXPORT) || has(community::NO_EXPORT_SUBCONFED);
        // RFC 9494 §4.3: not to a peer that does not know what it is.
        let unknown_stale = route.is_long_lived_stale() && self.negotiated.long_lived.is_empty();
        // RFC 9234 §5, the rule of egress 2.
        let upwards = matches!(self.role(), Some(BgpRole::Customer | BgpRole::Peer | BgpRole::RouteServerClient));
        learned.source.peer != self.target.peer
            && reflected
            && !has(community::NO_ADVERTISE)
            && (internal || !kept_inside)
            && !unknown_stale
            && !(upwards && learned.only_to_customer.is_some())
    }

    /// What we are to an external peer.
    fn role(&self) -> Option<BgpRole> {
        self.negotiated.local_role.filter(|_| !self.negotiated.internal)
    }

    /// The next hop of a route (RFC 4271 §5.1.3, RFC 2545 §3).
    fn next_hop(&self, route: &Route, family: Family) -> Result<NextHop, Withheld> {
        if !self.negotiated.families.contains(&family) {
            return Err(Withheld::FamilyNotNegotiated(family));
        }
        let policy = match family {
            Family::Ipv4Unicast => self.export.next_hop_ipv4,
            Family::Ipv6Unicast => self.export.next_hop_ipv6,
        };
        let next_hop = match &route.learned {
            Some(learned) if self.negotiated.internal => self.third_party(learned.next_hop, family),
            Some(learned) if policy == NextHopPolicy::Unchanged => {
                self.third_party(learned.next_hop, family).map(|next_hop| self.on_the_link(next_hop)).transpose()?
            }
            _ => self.own(route, policy, family),
        };
        match next_hop {
            // RFC 4271 §5.1.3: never the peer's own address.
            Some(next_hop) if route.learned.is_none() && next_hop.is(self.target.address) => {
                Err(Withheld::NextHopOfPeer(self.target.address))
            }
            Some(NextHop::V4(address)) => match self.local.subnet_without(address) {
                Some(subnet) => Err(Withheld::NextHopWithoutHost(address, subnet)),
                None => Ok(NextHop::V4(address)),
            },
            Some(next_hop) => Ok(next_hop),
            None => Err(Withheld::NoNextHop(family)),
        }
    }

    /// The next hop of a route for which packets come to us, or where policy sends them.
    fn own(&self, route: &Route, policy: NextHopPolicy, family: Family) -> Option<NextHop> {
        match (family, policy) {
            (Family::Ipv4Unicast, NextHopPolicy::SelfAddress | NextHopPolicy::Unchanged) => {
                let extended = self.negotiated.extended_next_hop.contains(&family);
                let ipv4 = route.next_hop.ipv4.or(self.local.ipv4).filter(is_usable_ipv4).map(NextHop::V4);
                // RFC 8950: where there is no IPv4 address on the link.
                ipv4.or_else(|| self.own_ipv6(self.local.ipv6).filter(|_| extended))
            }
            (Family::Ipv4Unicast, NextHopPolicy::Address(IpAddr::V4(address))) => {
                Some(route.next_hop.ipv4.unwrap_or(address)).filter(is_usable_ipv4).map(NextHop::V4)
            }
            (Family::Ipv4Unicast, NextHopPolicy::Address(IpAddr::V6(_))) => route.next_hop.ipv4.filter(is_usable_ipv4).map(NextHop::V4),
            (Family::Ipv6Unicast, NextHopPolicy::SelfAddress | NextHopPolicy::Unchanged) => match route.next_hop.ipv6 {
                Some(address) => usable_ipv6(address),
                None => self.own_ipv6(self.local.ipv6),
            },
            (Family::Ipv6Unicast, NextHopPolicy::Address(IpAddr::V6(address))) => usable_ipv6(route.next_hop.ipv6.unwrap_or(address)),
            (Family::Ipv6Unicast, NextHopPolicy::Address(IpAddr::V4(_))) => route.next_hop.ipv6.and_then(usable_ipv6),
        }
    }

    /// Our address on the link, and beside it the link-local one where an external peer is on that link too (RFC 2545 §3). Where there is no global one, the
    /// link-local one alone, if the peer takes that (draft-ietf-idr-linklocal-capability). On a session that is itself link-local that address, and to a peer
    /// that does not take it alone in both places.
    fn own_ipv6(&self, own: Option<Ipv6Addr>) -> Option<NextHop> {
        let (link_local, lonely) = (self.local.link_local, self.negotiated.link_local_next_hop);
        match own {
            Some(global) if global.is_unicast_link_local() => Some(NextHop::V6 { global, link_local: (!lonely).then_some(global) }),
            _ => {
                // An internal peer may pass it on unchanged to links on which it means somebody else, or nobody (RFC 4456 §10).
                let beside = link_local.filter(|_| !self.negotiated.internal);
                let both = |global| NextHop::V6 { global, link_local: beside };
                let alone = || link_local.filter(|_| lonely).map(|global| NextHop::V6 { global, link_local: None });
                own.filter(is_usable_ipv6).map(both).or_else(alone)
            }
        }
    }

    /// The next hop that another peer told, which is not on this link: without its link-local address (RFC 2545 §3).
    fn third_party(&self, next_hop: NextHop, family: Family) -> Option<NextHop> {
        match (family, next_hop) {
            (Family::Ipv4Unicast, NextHop::V4(address)) => Some(address).filter(is_usable_ipv4).map(NextHop::V4),
            (Family::Ipv4Unicast, NextHop::V6 { global, .. }) if self.negotiated.extended_next_hop.contains(&family) => usable_ipv6(global),
            (Family::Ipv6Unicast, NextHop::V6 { global, .. }) => usable_ipv6(global),
            (Family::Ipv4Unicast, NextHop::V6 { .. }) | (Family::Ipv6Unicast, NextHop::V4(_)) => None,
        }
    }

    /// RFC 4271 §5.1.3: what an external peer may be told of a third party.
    fn on_the_link(&self, next_hop: NextHop) -> Result<NextHop, Withheld> {
        let address = match next_hop {
            NextHop::V4(address) => address.into(),
            NextHop::V6 { global, .. } => global.into(),
        };
        if next_hop.is(self.target.address) {
            Err(Withheld::NextHopOfPeer(self.target.address))
        } else if self.local.shares(address) {
            Ok(next_hop)
        } else {
            Err(Withheld::ThirdParty(address))
        }
    }
}

/// The destinations that are not announced to a peer that could be, and why.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    /// Of routes that start here.
    pub(super) own: BTreeMap<Prefix, Withheld>,
    /// Of routes that other peers told.
    pub(super) learned: BTreeMap<Prefix, Withheld>,
}

impl Refusals {
    pub(super) fn insert(&mut self, prefix: Prefix, route: &Route, reason: Withheld) {
        let refusals = if route.learned.is_none() { &mut self.own } else { &mut self.learned };
        refusals.insert(prefix, reason);
    }

    /// Of these destinations nothing is known.
    pub(super) fn remove<'a>(&mut self, prefixes: impl Iterator<Item = &'a Prefix>) {
        if self.own.is_empty() && self.learned.is_empty() {
            return;
        }
        for prefix in prefixes {
            self.own.remove(prefix);
            self.learned.remove(prefix);
        }
    }
}

fn usable_ipv6(address: Ipv6Addr) -> Option<NextHop> {
    Some(address).filter(is_usable_ipv6).map(|global| NextHop::V6 { global, link_local: None })
}

pub(super) const fn is_usable_ipv4(address: &Ipv4Addr) -> bool {
    !(address.is_unspecified() || address.is_multicast() || address.octets()[0] >= 240)
}

/// An IPv4 address in disguise is none, and neither is one that is valid on a single link only.
pub(super) const fn is_usable_ipv6(address: &Ipv6Addr) -> bool {
    !(address.is_unspecified() || address.is_multicast() || address.is_unicast_link_local() || address.to_ipv4_mapped().is_some())
}
