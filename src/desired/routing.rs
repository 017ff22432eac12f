// SPDX-License-Identifier: Apache-2.0
//! Routing policy: with what each route is announced, before what each peer's own policy says, and which routes are aggregated.
//!
//! Input: the policies of the configuration, and which of them an object asks for by name. Output: a [`Route`]. Of the policy of the longest prefix
//! around a VIP and the one that its object names, the latter counts; communities and prepending of both add up, so that an object cannot take away
//! what its prefix has.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bgp::Prefix;
use bgp::rib::{NextHops, Route};

/// `bgp.policies` and `bgp.aggregates`.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Routing {
    /// Policies by name.
    pub policies: BTreeMap<String, Policy>,
    /// Aggregates, each shorter than an address.
    pub aggregates: BTreeMap<Prefix, Aggregate>,
}

/// One policy.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Policy {
    /// What lies in one of them has this policy without being asked; no two policies have the same one.
    pub prefixes: BTreeSet<Prefix>,
    /// What it announces routes with.
    pub route: Route,
}

/// A prefix that is announced while a VIP inside it is announced, served and all.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Aggregate {
    /// The policy that it has besides that of the longest prefix around it.
    pub policy: Option<String>,
    /// The VIPs inside it are not announced by themselves.
    pub suppress: bool,
}

/// Makes the routes of one set: equal ones are one and the same.
#[derive(Debug)]
pub struct Router<'a> {
    routing: &'a Routing,
    made: BTreeMap<(Option<&'a str>, Option<&'a str>), Arc<Route>>,
}

impl<'a> Router<'a> {
    /// With these policies.
    #[must_use]
    pub const fn new(routing: &'a Routing) -> Self {
        Self { routing, made: BTreeMap::new() }
    }

    /// The route to this prefix, for which an object asks for this policy; `None` where there is no such policy.
    pub fn route(&mut self, prefix: Prefix, named: Option<&'a str>) -> Option<Arc<Route>> {
        let routing = self.routing;
        let named = match named {
            Some(name) => Some(routing.policies.get_key_value(name)?),
            None => None,
        };
        let around = routing.around(prefix);
        let key = (around.map(|(name, _)| name.as_str()), named.map(|(name, _)| name.as_str()));
        let made = self.made.entry(key).or_insert_with(|| {
            let policies = [around, named].into_iter().flatten().map(|(_, policy)| &policy.route);
            Arc::new(policies.fold(Route::originated(), |below, policy| joined(&below, policy)))
        });
        Some(Arc::clone(made))
    }
}

impl Routing {
    /// The policy of the longest prefix around this one.
    fn around(&self, prefix: Prefix) -> Option<(&String, &Policy)> {
        let contains = |outer: &Prefix| outer.length() <= prefix.length() && outer.contains(prefix.address());
        let longest = |policy: &Policy| policy.prefixes.iter().filter(|outer| contains(outer)).map(Prefix::length).max();
        let found = self.policies.iter().filter_map(|policy| Some((longest(policy.1)?, policy)));
        found.max_by_key(|(length, _)| *length).map(|(_, policy)| policy)
    }
}

/// The route of an aggregate as it is announced while these stand behind it: a peer is told of it only where it may be told of at least one of them.
pub(crate) fn standing_for<'r>(aggregate: Arc<Route>, vips: impl IntoIterator<Item = &'r Route>) -> Arc<Route> {
    let mut may_know: BTreeSet<String> = BTreeSet::new();
    for vip in vips {
        match &vip.peers {
            None => return aggregate,
            Some(peers) if peers.is_subset(&may_know) => {}
            Some(peers) => may_know.extend(peers.iter().cloned()),
        }
    }
    let peers = match &aggregate.peers {
        Some(own) => own.intersection(&may_know).cloned().collect(),
        None => may_know,
    };
    Arc::new(Route { peers: Some(Arc::new(peers)), ..Route::clone(&aggregate) })
}

/// Whether every peer that may be told of the VIP is told of the aggregate.
pub(crate) fn reaches_all_of(aggregate: &Route, vip: &Route) -> bool {
    match (&aggregate.peers, &vip.peers) {
        (None, _) => true,
        (Some(_), None) => false,
        (Some(aggregate), Some(vip)) => vip.is_subset(aggregate),
    }
}

/// Two policies for one route, of which `above` counts where both say something that only one can.
fn joined(below: &Route, above: &Route) -> Route {
    Route {
        prepend: below.prepend.saturating_add(above.prepend),
        next_hop: NextHops { ipv4: above.next_hop.ipv4.or(below.next_hop.ipv4), ipv6: above.next_hop.ipv6.or(below.next_hop.ipv6) },
        med: above.med.or(below.med),
        local_preference: above.local_preference.or(below.local_preference),
        communities: &below.communities | &above.communities,
        large_communities: &below.large_communities | &above.large_communities,
        extended_communities: &below.extended_communities | &above.extended_communities,
        link_bandwidth: above.link_bandwidth.or(below.link_bandwidth),
        peers: above.peers.clone().or_else(|| below.peers.clone()),
        ..Route::originated()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefix(text: &str) -> Prefix {
        let (address, length) = text.split_once('/').unwrap();
        Prefix::new(address.parse().unwrap(), length.parse().unwrap()).unwrap()
    }

    fn policy(prefixes: &[&str], change: impl FnOnce(&mut Route)) -> Policy {
        let mut route = Route::originated();
        change(&mut route);
        Policy { prefixes: prefixes.iter().map(|text| prefix(text)).collect(), route }
    }

    fn routing() -> Routing {
        let floor = policy(&["10.0.0.0/8"], |route| (route.med, route.prepend, route.communities) = (Some(1), 1, BTreeSet::from([1])));
        let inner = policy(&["10.1.0.0/16"], |route| (route.local_preference, route.communities) = (Some(300), BTreeSet::from([2])));
        let gold = policy(&[], |route| (route.med, route.prepend, route.communities) = (Some(5), 2, BTreeSet::from([3])));
        let policies = [("floor", floor), ("inner", inner), ("gold", gold)].map(|(name, policy)| (name.to_owned(), policy));
        Routing { policies: policies.into(), aggregates: BTreeMap::new() }
    }

    #[test]
    fn the_longest_prefix_counts_and_what_the_object_asks_for_counts_more() {
        let routing = routing();
        let mut router = Router::new(&routing);
        let mut of = |text, named| {
            let route = router.route(prefix(text), named).unwrap();
            (route.med, route.prepend, route.local_preference, route.communities.iter().copied().collect::<Vec<_>>())
        };
        assert_eq!(of("192.0.2.1/32", None), (None, 0, None, vec![]));
        assert_eq!(of("10.0.0.1/32", None), (Some(1), 1, None, vec![1]));
        assert_eq!(of("10.1.0.1/32", None), (None, 0, Some(300), vec![2]), "not of a shorter prefix");
        assert_eq!(of("10.0.0.1/32", Some("gold")), (Some(5), 3, None, vec![1, 3]), "communities and prepending add up");
        assert_eq!(of("10.1.0.1/32", Some("gold")), (Some(5), 2, Some(300), vec![2, 3]));
        assert_eq!(of("10.0.0.0/9", None), (Some(1), 1, None, vec![1]), "an aggregate inside it");
        assert_eq!(of("8.0.0.0/5", None), (None, 0, None, vec![]), "not one around it");
    }

    #[test]
    fn equal_routes_are_one_and_the_same() {
        let routing = routing();
        let mut router = Router::new(&routing);
        let first = router.route(prefix("10.0.0.1/32"), None).unwrap();
        assert!(Arc::ptr_eq(&first, &router.route(prefix("10.0.0.2/32"), None).unwrap()));
    }

    fn to(peers: Option<&[&str]>) -> Route {
        let peers = peers.map(|peers| Arc::new(peers.iter().map(|peer| (*peer).to_owned()).collect()));
        Route { peers, ..Route::originated() }
    }

    #[test]
    fn an_aggregate_is_for_peers_that_may_know_of_a_vip_inside() {
        let told = |aggregate: Option<&[&str]>, vips: &[Option<&[&str]>]| {
            let vips: Vec<Route> = vips.iter().map(|peers| to(*peers)).collect();
            let route = standing_for(Arc::new(to(aggregate)), &vips);
            route.peers.as_ref().map(|peers| peers.iter().cloned().collect::<Vec<_>>().join(" "))
        };
        assert_eq!(told(None, &[None]), None);
        assert_eq!(told(None, &[Some(&["a"]), None]), None, "one VIP is for everybody");
        assert_eq!(told(None, &[Some(&["a"]), Some(&["b"])]).as_deref(), Some("a b"));
        assert_eq!(told(Some(&["b", "c"]), &[Some(&["a", "b"])]).as_deref(), Some("b"));
        assert_eq!(told(Some(&["c"]), &[None]).as_deref(), Some("c"));
        assert_eq!(told(Some(&["c"]), &[Some(&["a"])]).as_deref(), Some(""), "nobody");
    }

    #[test]
    fn an_aggregate_hides_a_vip_only_where_all_that_may_know_the_vip_know_the_aggregate() {
        assert!(reaches_all_of(&to(None), &to(None)) && reaches_all_of(&to(None), &to(Some(&["a"]))));
        assert!(reaches_all_of(&to(Some(&["a", "b"])), &to(Some(&["a"]))));
        assert!(!reaches_all_of(&to(Some(&["a"])), &to(None)));
        assert!(!reaches_all_of(&to(Some(&["a"])), &to(Some(&["a", "b"]))));
    }

    #[test]
    fn what_is_asked_for_and_not_there_is_nothing() {
        let routing = routing();
        assert_eq!(Router::new(&routing).route(prefix("10.0.0.1/32"), Some("silver")), None);
    }
}
