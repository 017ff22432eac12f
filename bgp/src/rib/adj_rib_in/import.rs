// SPDX-License-Identifier: Apache-2.0
//! From an UPDATE to a route, and whether that can be used.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use crate::identity::BgpIdentifier;
use crate::prefix::Family;
use crate::rib::export::{is_usable_ipv4, is_usable_ipv6};
use crate::rib::{Learned, LocalAddresses, Route, Session, UnknownAttribute};
use crate::wire::{AsPath, AsPathSegment, BgpRole, Flags, Negotiated, NextHop, Nlri, Origin, PathAttribute, Transitive, Update, community};

/// What a peer may tell.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Import {
    /// Its routes may be used; else they are kept only to be counted.
    pub accept: bool,
    /// How many destinations of a family it may tell, those that are not used among them; no limit where there is none.
    pub max_prefixes: BTreeMap<Family, u32>,
    /// How many routes are held at most; those to further destinations are only counted. No bound where absent: a speaker that uses routes needs all.
    pub held_at_most: Option<usize>,
    /// How long a peer that went over the limit has to stay away (RFC 4486 §4), before jitter.
    pub restart_delay: Duration,
    /// An external peer's routes must have its AS in front (RFC 4271 §6.3).
    pub enforce_first_as: bool,
    /// How long stale routes wait for the End-of-RIB of a session that has come back, from the loss of the old one on.
    pub stale_time: Duration,
}

impl Default for Import {
    /// Everything may be used, no limit and a minute for one that is set, first AS enforced, six minutes.
    fn default() -> Self {
        Self {
            accept: true,
            max_prefixes: BTreeMap::new(),
            held_at_most: None,
            restart_delay: Duration::from_secs(60),
            enforce_first_as: true,
            stale_time: Duration::from_secs(360),
        }
    }
}

/// Why a route of a peer is not used.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Ineligible {
    /// Nothing of this peer is used.
    #[error("nothing is imported from this peer")]
    NotImported,
    /// Our AS is in its AS_PATH (RFC 4271 §9.1.2).
    #[error("our AS is in its AS_PATH")]
    OwnAs,
    /// The first AS of its AS_PATH is not that of the external peer (RFC 4271 §6.3).
    #[error("its AS_PATH does not begin with the AS of the peer")]
    FirstAs,
    /// Its ORIGINATOR_ID is our BGP Identifier (RFC 4456 §8).
    #[error("its ORIGINATOR_ID is our BGP Identifier")]
    OriginatorId,
    /// Our cluster is in its CLUSTER_LIST (RFC 4456 §8).
    #[error("our cluster is in its CLUSTER_LIST")]
    ClusterList,
    /// Its next hop is no address of another host (RFC 4271 §6.3, §5.1.3).
    #[error("its next hop is not an address of another host")]
    NextHop,
    /// It comes from where it should not, by its ONLY_TO_CUSTOMER (RFC 9234 §5).
    #[error("its ONLY_TO_CUSTOMER says that it has leaked")]
    Leaked,
}

impl Import {
    /// Whether what is told of a family is held, be it only as far as its limit asks for.
    pub(crate) fn holds(&self, family: Family) -> bool {
        self.held_at_most != Some(0) || self.max_prefixes.contains_key(&family)
    }

    /// Whether both come to the same about every route.
    pub(crate) fn judges_like(&self, other: &Self) -> bool {
        (self.accept, self.enforce_first_as) == (other.accept, other.enforce_first_as)
    }

    /// Whether the route can be used.
    pub(super) fn judge(
        &self,
        route: &Route,
        Session { negotiated, local, .. }: &Session<'_>,
        identifier: BgpIdentifier,
        cluster_id: BgpIdentifier,
    ) -> Option<Ineligible> {
        let learned = route.learned.as_ref()?;
        let ases = || route.as_path.0.iter().flat_map(AsPathSegment::ases);
        let first_as = || match route.as_path.0.first() {
            Some(AsPathSegment::Sequence(ases)) => ases.first() == Some(&negotiated.remote_asn),
            _ => false,
        };
        if !self.accept {
            Some(Ineligible::NotImported)
        } else if ases().any(|asn| *asn == negotiated.local_asn) {
            Some(Ineligible::OwnAs)
        } else if self.enforce_first_as && !negotiated.internal && !first_as() {
            Some(Ineligible::FirstAs)
        } else if learned.originator_id.is_some_and(|originator| originator.to_bits() == identifier.number()) {
            Some(Ineligible::OriginatorId)
        } else if learned.cluster_list.iter().any(|cluster| cluster.to_bits() == cluster_id.number()) {
            Some(Ineligible::ClusterList)
        } else if !is_usable(learned.next_hop, local) {
            Some(Ineligible::NextHop)
        } else if has_leaked(learned, negotiated) {
            Some(Ineligible::Leaked)
        } else {
            None
        }
    }
}

/// Packets can be sent there, and it is not us.
fn is_usable(next_hop: NextHop, local: &LocalAddresses) -> bool {
    match next_hop {
        NextHop::V4(address) => {
            let is_host = is_usable_ipv4(&address) && !address.is_loopback() && local.subnet_without(address).is_none();
            is_host && local.ipv4 != Some(address)
        }
        NextHop::V6 { global, link_local } => {
            let usable = is_usable_ipv6(&global) && !global.is_loopback() && local.ipv6 != Some(global);
            usable || link_local.is_some() || global.is_unicast_link_local()
        }
    }
}

/// RFC 9234 §5, the rules of ingress 1 and 2.
fn has_leaked(learned: &Learned, negotiated: &Negotiated) -> bool {
    let Some(only_to_customer) = learned.only_to_customer else { return false };
    match negotiated.local_role {
        Some(BgpRole::Provider | BgpRole::RouteServer) => true,
        Some(BgpRole::Peer) => only_to_customer != negotiated.remote_asn,
        _ => false,
    }
}

/// The runs of routes that an UPDATE announces, with their next hops.
pub(super) fn announced(update: &Update) -> Vec<(Option<NextHop>, &[Nlri])> {
    let in_nlri_field = update.attributes.iter().find_map(|attribute| match attribute {
        PathAttribute::NextHop(address) => Some(NextHop::V4(*address)),
        _ => None,
    });
    let mut runs = vec![(in_nlri_field, update.announced.as_slice())];
    for attribute in &update.attributes {
        if let PathAttribute::MpReach(reach) = attribute {
            runs.push((Some(reach.next_hop), reach.announced.as_slice()));
        }
    }
    runs
}

/// The route of an UPDATE (RFC 4271 §9), before it is judged.
pub(super) fn route(update: &Update, next_hop: NextHop, Session { source, negotiated, .. }: &Session<'_>) -> Route {
    let mut learned = Learned::new(Arc::clone(source), next_hop);
    let mut route = Route { as_path: AsPath::default(), origin: Origin::Incomplete, ..Route::originated() };
    for attribute in &update.attributes {
        take(attribute, &mut route, &mut learned);
    }
    if !negotiated.internal {
        // RFC 8326 §4: the receiver of the community makes the route the last resort.
        route.local_preference = route.communities.contains(&community::GRACEFUL_SHUTDOWN).then_some(0);
        // RFC 9234 §5, the rule of ingress 3.
        if matches!(negotiated.local_role, Some(BgpRole::Customer | BgpRole::Peer | BgpRole::RouteServerClient)) {
            learned.only_to_customer.get_or_insert(negotiated.remote_asn);
        }
    }
    route.learned = Some(learned);
    route
}

fn take(attribute: &PathAttribute, route: &mut Route, learned: &mut Learned) {
    match attribute {
        PathAttribute::Origin(origin) => route.origin = *origin,
        PathAttribute::AsPath(path) => route.as_path = path.clone(),
        PathAttribute::MultiExitDisc(med) => route.med = Some(*med),
        PathAttribute::LocalPref(preference) => route.local_preference = Some(*preference),
        PathAttribute::AtomicAggregate => learned.atomic_aggregate = true,
        PathAttribute::OriginatorId(originator) => learned.originator_id = Some(*originator),
        PathAttribute::ClusterList(clusters) => learned.cluster_list.clone_from(clusters),
        PathAttribute::Aggregator(aggregator) => learned.aggregator = Some(aggregator.value),
        PathAttribute::Communities(communities) => route.communities = set(communities),
        PathAttribute::ExtendedCommunities(communities) => route.extended_communities = set(communities),
        PathAttribute::LargeCommunities(communities) => route.large_communities = set(communities),
        PathAttribute::Ipv6ExtendedCommunities(communities) => learned.ipv6_extended_communities = set(communities),
        PathAttribute::OnlyToCustomer(asn) => learned.only_to_customer = Some(asn.value),
        PathAttribute::Unknown { flags, type_code, value } => {
            // RFC 4271 §9: one that is not transitive goes no further; of another, Partial is set.
            if flags.contains(Flags::TRANSITIVE) {
                learned.unknown.push(UnknownAttribute { type_code: *type_code, value: value.clone() });
            }
        }
        PathAttribute::NextHop(_) | PathAttribute::MpReach(_) | PathAttribute::MpUnreach(_) => {}
    }
    if is_partial(attribute) {
        learned.partial.insert(attribute.type_code());
    }
}

fn set<T: Clone + Ord>(values: &Transitive<Vec<T>>) -> BTreeSet<T> {
    values.value.iter().cloned().collect()
}

const fn is_partial(attribute: &PathAttribute) -> bool {
    match attribute {
        PathAttribute::Aggregator(Transitive { partial, .. }) => *partial,
        PathAttribute::Communities(Transitive { partial, .. }) => *partial,
        PathAttribute::ExtendedCommunities(Transitive { partial, .. }) => *partial,
        PathAttribute::Ipv6ExtendedCommunities(Transitive { partial, .. }) => *partial,
        PathAttribute::LargeCommunities(Transitive { partial, .. }) => *partial,
        PathAttribute::OnlyToCustomer(Transitive { partial, .. }) => *partial,
        _ => false,
    }
}
