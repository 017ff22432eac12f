// SPDX-License-Identifier: Apache-2.0
//! The whole set of routes that this node announces: the value that planner, speaker and status share.
//!
//! Invariants: prefixes that are announced alike may share a route, so that sets of many are cheap to make and to compare; a VIP is either a route of its
//! own, or covered by an aggregate among the routes, or not announced. It prints as text, in the order of its prefixes.

use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use bgp::Prefix;
use bgp::rib::Route;
use bgp::wire::community;
use litemap::LiteMap;

/// Which prefixes are announced, and with what.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct RouteSet {
    /// Each prefix, and what is known of the way to it before the policy of any peer.
    pub routes: LiteMap<Prefix, Arc<Route>>,
    /// VIPs that are served, and for which only an aggregate among the routes stands.
    pub covered: BTreeSet<IpAddr>,
}

impl RouteSet {
    /// Whether this prefix is announced.
    #[must_use]
    pub fn contains(&self, prefix: &Prefix) -> bool {
        self.routes.contains_key(prefix)
    }

    /// Whether this VIP is announced, by itself or as part of an aggregate.
    #[must_use]
    pub fn serves(&self, vip: IpAddr) -> bool {
        self.contains(&Prefix::host(vip)) || self.covered.contains(&vip)
    }

    /// The prefix by which this VIP is announced.
    #[must_use]
    pub fn announces(&self, vip: IpAddr) -> Option<(Prefix, &Arc<Route>)> {
        let found = |prefix| Some((prefix, self.routes.get(&prefix)?));
        let host = Prefix::host(vip);
        if !self.covered.contains(&vip) {
            return found(host);
        }
        (0..host.length()).rev().find_map(|length| found(Prefix::truncated(vip, length).ok()?))
    }

    /// Whether nothing is announced.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.routes.is_empty()
    }

    /// All prefixes, in order.
    pub fn prefixes(&self) -> impl Iterator<Item = Prefix> {
        self.routes.keys().copied()
    }

    /// The prefixes that are announced by one set and not by the other, or with other attributes: one pass over both.
    #[must_use]
    pub fn differences(&self, other: &Self) -> Vec<Prefix> {
        let (mut here, mut there) = (self.routes.as_slice(), other.routes.as_slice());
        // Nearly all of two sets of which one follows the other is alike.
        while let ([one, here_behind @ ..], [other, there_behind @ ..]) = (here, there)
            && one == other
        {
            (here, there) = (here_behind, there_behind);
        }
        while let ([here_before @ .., one], [there_before @ .., other]) = (here, there)
            && one == other
        {
            (here, there) = (here_before, there_before);
        }
        let (mut here, mut there) = (here.iter(), there.iter());
        let (mut one, mut other) = (here.next(), there.next());
        let mut differences = Vec::new();
        while let (Some((prefix, route)), Some((other_prefix, other_route))) = (one, other) {
            let order = prefix.cmp(other_prefix);
            if order.is_ne() || route != other_route {
                differences.push(*prefix.min(other_prefix));
            }
            one = if order.is_gt() { one } else { here.next() };
            other = if order.is_lt() { other } else { there.next() };
        }
        differences.extend(one.into_iter().chain(here).chain(other).chain(there).map(|(prefix, _)| *prefix));
        differences
    }

    /// What is announced here, as it is, as far as its VIPs are announced there as well, perhaps by other prefixes.
    #[must_use]
    pub fn staying_in(&self, other: &Self) -> Self {
        let covered: BTreeSet<IpAddr> = self.covered.iter().copied().filter(|vip| other.serves(*vip)).collect();
        let stays = |prefix: &Prefix| {
            let is_served_vip = *prefix == Prefix::host(prefix.address()) && other.serves(prefix.address());
            is_served_vip || other.contains(prefix) || covered.iter().any(|vip| prefix.contains(*vip))
        };
        let routes = self.routes.iter().filter(|(prefix, _)| stays(prefix));
        Self { routes: routes.map(|(prefix, route)| (*prefix, Arc::clone(route))).collect(), covered }
    }

    /// Whether whatever is announced here is announced there as well, perhaps with other attributes.
    #[must_use]
    pub fn is_within(&self, other: &Self) -> bool {
        self.routes.keys().all(|prefix| other.contains(prefix)) && self.covered.iter().all(|vip| other.serves(*vip))
    }
}

impl FromIterator<Prefix> for RouteSet {
    /// These prefixes, of which nothing is known but that their way ends here.
    fn from_iter<I: IntoIterator<Item = Prefix>>(prefixes: I) -> Self {
        let route = Arc::new(Route::originated());
        Self { routes: prefixes.into_iter().map(|prefix| (prefix, Arc::clone(&route))).collect(), covered: BTreeSet::new() }
    }
}

impl fmt::Display for RouteSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return f.write_str("nothing");
        }
        for (number, (prefix, route)) in self.routes.iter().enumerate() {
            let separator = if number == 0 { "" } else { ", " };
            write!(f, "{separator}{prefix}")?;
            let attributes = attributes(route);
            if !attributes.is_empty() {
                write!(f, " ({attributes})")?;
            }
        }
        let covered: Vec<String> = self.covered.iter().map(ToString::to_string).collect();
        if covered.is_empty() { Ok(()) } else { write!(f, "; aggregated {}", covered.join(", ")) }
    }
}

/// What a route that starts here is announced with, beyond what every route has, in words.
#[must_use]
pub fn attributes(route: &Route) -> String {
    let mut words = Vec::new();
    words.extend(route.local_preference.map(|preference| format!("LOCAL_PREF {preference}")));
    words.extend(route.med.map(|med| format!("MED {med}")));
    words.extend((route.prepend > 0).then(|| format!("prepend {}", route.prepend)));
    words.extend(route.next_hop.ipv4.map(|address| format!("next hop {address}")));
    words.extend(route.next_hop.ipv6.map(|address| format!("next hop {address}")));
    words.extend(route.communities.iter().map(|community| community_word(*community)));
    words.extend(route.large_communities.iter().map(|[global, first, second]| format!("{global}:{first}:{second}")));
    words.extend(route.extended_communities.iter().map(|community| format!("0x{community:016x}")));
    words.extend(route.link_bandwidth.map(|octets| format!("bandwidth {octets} octets/s")));
    words.extend(route.peers.iter().map(|peers| format!("to {}", peers.iter().cloned().collect::<Vec<_>>().join("+"))));
    words.join(" ")
}

fn community_word(community: u32) -> String {
    let named = community::NAMES.iter().find(|(_, value)| *value == community);
    named.map_or_else(|| format!("{}:{}", community >> 16, community & 0xFFFF), |(name, _)| (*name).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefix(text: &str) -> Prefix {
        let (address, length) = text.split_once('/').unwrap();
        Prefix::new(address.parse().unwrap(), length.parse().unwrap()).unwrap()
    }

    #[test]
    fn a_vip_is_announced_by_itself_or_by_the_longest_aggregate_around_it() {
        let mut set: RouteSet = ["10.0.0.0/8", "10.0.0.0/24", "10.0.0.1/32"].map(prefix).into_iter().collect();
        set.covered.insert("10.0.0.2".parse().unwrap());
        let by = |vip: &str| set.announces(vip.parse().unwrap()).map(|(prefix, _)| prefix.to_string());
        assert_eq!(by("10.0.0.1").as_deref(), Some("10.0.0.1/32"));
        assert_eq!(by("10.0.0.2").as_deref(), Some("10.0.0.0/24"));
        assert_eq!(by("10.0.0.3"), None, "nobody serves it");
    }

    #[test]
    fn two_sets_differ_in_what_one_of_them_lacks_or_says_otherwise() {
        let otherwise = Arc::new(Route { med: Some(1), ..Route::originated() });
        // Each of five prefixes is absent, there, or there with other attributes.
        let set = |number: usize| {
            let mut set = RouteSet::default();
            for (place, text) in ["10.0.0.0/8", "10.0.0.0/24", "10.0.0.1/32", "2001:db8::/32", "2001:db8::1/128"].into_iter().enumerate() {
                let route = [None, Some(Arc::new(Route::originated())), Some(Arc::clone(&otherwise))]
                    [number / 3_usize.pow(place as u32) % 3]
                    .clone();
                set.routes.extend(route.map(|route| (prefix(text), route)));
            }
            set
        };
        for (one, other) in (0..243).flat_map(|one| (0..243).map(move |other| (set(one), set(other)))) {
            let prefixes: BTreeSet<Prefix> = one.prefixes().chain(other.prefixes()).collect();
            let differ = prefixes.into_iter().filter(|prefix| one.routes.get(prefix) != other.routes.get(prefix));
            assert_eq!(one.differences(&other), differ.collect::<Vec<_>>(), "{one} / {other}");
        }
    }

    #[test]
    fn sets_print_with_what_is_special_about_their_routes() {
        assert_eq!(RouteSet::default().to_string(), "nothing");
        let mut set: RouteSet = ["10.0.0.0/24", "10.0.0.1/32"].map(prefix).into_iter().collect();
        assert_eq!(set.to_string(), "10.0.0.0/24, 10.0.0.1/32");
        let route = Route {
            med: Some(7),
            prepend: 2,
            communities: BTreeSet::from([0xFDE9_0064, community::NO_EXPORT]),
            large_communities: BTreeSet::from([[65001, 1, 2]]),
            link_bandwidth: Some(125),
            peers: Some(Arc::new(BTreeSet::from(["rr1".to_owned(), "rr2".to_owned()]))),
            ..Route::originated()
        };
        set.routes.insert(prefix("10.0.0.1/32"), Arc::new(route.shutting_down()));
        set.covered.insert("10.0.0.2".parse().unwrap());
        assert_eq!(
            set.to_string(),
            "10.0.0.0/24, 10.0.0.1/32 (LOCAL_PREF 0 MED 7 prepend 2 65001:100 GRACEFUL_SHUTDOWN NO_EXPORT 65001:1:2 bandwidth 125 octets/s to rr1+rr2); \
             aggregated 10.0.0.2"
        );
    }
}
