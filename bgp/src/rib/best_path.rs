// SPDX-License-Identifier: Apache-2.0
//! Which of several paths to one destination is the best (RFC 4271 §9.1.2.2, RFC 4456 §9, RFC 9494 §4.3).
//!
//! Input: paths. Output: the place of the best. It is a function of the set: neither their order nor the past counts.

use std::cmp::{Ordering, Reverse};
use std::net::IpAddr;

use super::{Learned, Path, Route};
use crate::identity::Asn;
use crate::wire::AsPathSegment;

/// LOCAL_PREF of a route that has none.
const DEFAULT_LOCAL_PREFERENCE: u32 = 100;

/// The best path. Each step keeps those that are best by it, until one is left:
///
/// 1. not stale for a long time (RFC 9494 §4.3);
/// 2. one that starts here;
/// 3. the highest LOCAL_PREF (RFC 4271 §9.1.1);
/// 4. the shortest AS_PATH (§9.1.2.2 a);
/// 5. the lowest ORIGIN (§9.1.2.2 b);
/// 6. the lowest MULTI_EXIT_DISC among those of the same neighbouring AS; none counts as 0 (§9.1.2.2 c);
/// 7. one of an external peer (§9.1.2.2 d); costs to the next hop (§9.1.2.2 e) are not known, and all equal;
/// 8. the lowest BGP Identifier of the peer, or ORIGINATOR_ID where there is one (§9.1.2.2 f, RFC 4456 §9);
/// 9. the shortest CLUSTER_LIST (RFC 4456 §9);
/// 10. the lowest address of the peer (§9.1.2.2 g);
/// 11. of two paths of one peer, the lower Path Identifier.
#[must_use]
pub fn best_path(paths: &[Path]) -> Option<usize> {
    let mut best: Vec<(usize, &Path)> = paths.iter().enumerate().collect();
    keep_least(&mut best, |path| (path.route.is_long_lived_stale(), path.route.learned.is_some()));
    keep_least(&mut best, |path| Reverse(path.route.local_preference.unwrap_or(DEFAULT_LOCAL_PREFERENCE)));
    keep_least(&mut best, |path| path.route.as_path.length());
    keep_least(&mut best, |path| path.route.origin);
    keep_lowest_med(&mut best);
    keep_least(&mut best, |path| last_resorts(&path.route));
    best.into_iter().min_by_key(|(_, path)| path.id).map(|(place, _)| place)
}

/// Steps 7 to 10.
fn last_resorts(route: &Route) -> Option<(bool, u32, usize, IpAddr)> {
    route.learned.as_ref().map(|Learned { source, originator_id, cluster_list, .. }| {
        let identifier = originator_id.map_or_else(|| source.identifier.number(), std::net::Ipv4Addr::to_bits);
        (source.internal, identifier, cluster_list.len(), source.address)
    })
}

fn keep_least<K: Ord>(paths: &mut Vec<(usize, &Path)>, key: impl Fn(&Path) -> K) {
    let Some(least) = paths.iter().map(|(_, path)| key(path)).min() else { return };
    paths.retain(|(_, path)| key(path).cmp(&least) == Ordering::Equal);
}

/// The AS that the route was told by; `None` where it starts in our AS, or after a set.
fn neighbouring_as(route: &Route) -> Option<Asn> {
    match route.as_path.0.first() {
        Some(AsPathSegment::Sequence(ases)) => ases.first().copied(),
        _ => None,
    }
}

/// MULTI_EXIT_DISC says nothing of different ASes, so it orders no set: each path with a better one of its own AS goes.
fn keep_lowest_med(paths: &mut Vec<(usize, &Path)>) {
    let mut lowest: Vec<(Option<Asn>, u32)> = Vec::new();
    for (_, path) in &*paths {
        let (neighbour, med) = (neighbouring_as(&path.route), path.route.med.unwrap_or(0));
        match lowest.iter_mut().find(|(other, _)| *other == neighbour) {
            Some((_, least)) => *least = med.min(*least),
            None => lowest.push((neighbour, med)),
        }
    }
    paths.retain(|(_, path)| lowest.contains(&(neighbouring_as(&path.route), path.route.med.unwrap_or(0))));
}

#[cfg(test)]
mod tests;
