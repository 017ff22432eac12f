// SPDX-License-Identifier: Apache-2.0
//! All paths that this speaker knows: its own, and those that its peers are let to give (RFC 4456, RFC 7911).
//!
//! Input: the routes that start here, and what each peer's Adj-RIB-In says. Output: [`Changes`] of the Loc-RIB for every peer; which of the paths a peer
//! is told is decided there. Work is in proportion to what changes.
//!
//! Invariant: a path keeps its Path Identifier as long as it is there, whatever else comes and goes, and no two paths to a destination share one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::{Changes, LocRib, Path, PeerId, Route, best_path};
use crate::prefix::Prefix;
use crate::wire::Nlri;

/// One change of an Adj-RIB-In: a route, or that there is none any more. The Path Identifier is the peer's.
pub type Learnt = (Nlri, Option<Arc<Route>>);

/// The paths of this speaker and where they come from.
#[derive(Debug, Default)]
pub struct Reflector {
    destinations: BTreeMap<Prefix, Vec<Candidate>>,
    /// What each peer has here.
    of_peer: BTreeMap<PeerId, BTreeSet<Nlri>>,
    loc_rib: Arc<LocRib>,
}

/// One path to a destination.
#[derive(Debug)]
struct Candidate {
    /// Whose it is, and the identifier that it has there; `None` where it starts here.
    origin: Option<(PeerId, u32)>,
    path: Path,
}

impl Reflector {
    /// All of it, for a peer that is told the first time.
    #[must_use]
    pub fn loc_rib(&self) -> Arc<LocRib> {
        Arc::clone(&self.loc_rib)
    }

    /// From now on exactly these routes start here.
    pub fn originate(&mut self, routes: impl IntoIterator<Item = (Prefix, Arc<Route>)>) -> Changes {
        let new: BTreeMap<_, _> = routes.into_iter().collect();
        let gone = self
            .destinations
            .iter()
            .filter(|(prefix, candidates)| !new.contains_key(prefix) && candidates.iter().any(|candidate| candidate.origin.is_none()));
        let gone: Vec<_> = gone.map(|(prefix, _)| (*prefix, None)).collect();
        let all = gone.into_iter().chain(new.into_iter().map(|(prefix, route)| (prefix, Some(route))));
        let changed = all.filter(|(prefix, route)| self.replace(*prefix, None, route.as_ref())).map(|(prefix, _)| prefix).collect();
        self.changes(changed)
    }

    /// The Adj-RIB-In of a peer has changed.
    pub fn learn(&mut self, peer: PeerId, learnt: &[Learnt]) -> Changes {
        let mut changed = BTreeSet::new();
        for (nlri, route) in learnt {
            let known = self.of_peer.entry(peer).or_default();
            if route.is_some() {
                known.insert(*nlri);
            } else {
                known.remove(nlri);
            }
            if self.replace(nlri.prefix, Some((peer, nlri.path_id)), route.as_ref()) {
                changed.insert(nlri.prefix);
            }
        }
        self.changes(changed)
    }

    /// The peer is no longer configured.
    pub fn forget(&mut self, peer: PeerId) -> Changes {
        let known = self.of_peer.remove(&peer).unwrap_or_default();
        let changed = known.into_iter().filter(|nlri| self.replace(nlri.prefix, Some((peer, nlri.path_id)), None));
        let changed = changed.map(|nlri| nlri.prefix).collect();
        self.changes(changed)
    }

    /// Puts a path in its place; says whether anything has changed.
    fn replace(&mut self, prefix: Prefix, origin: Option<(PeerId, u32)>, route: Option<&Arc<Route>>) -> bool {
        let candidates = self.destinations.entry(prefix).or_default();
        let place = candidates.iter().position(|candidate| candidate.origin == origin);
        let changed = match (place.and_then(|place| candidates.get_mut(place)), route) {
            (Some(candidate), Some(route)) => {
                let changed = candidate.path.route != *route;
                candidate.path.route = Arc::clone(route);
                changed
            }
            (Some(_), None) => {
                candidates.retain(|candidate| candidate.origin != origin);
                true
            }
            (None, Some(route)) => {
                let id = if origin.is_some() { free_id(candidates) } else { Path::LOCAL };
                candidates.push(Candidate { origin, path: Path { id, route: Arc::clone(route) } });
                true
            }
            (None, None) => false,
        };
        if candidates.is_empty() {
            self.destinations.remove(&prefix);
        }
        changed
    }

    /// What these destinations are now.
    fn changes(&mut self, changed: BTreeSet<Prefix>) -> Changes {
        let changes: Changes = changed.into_iter().map(|prefix| (prefix, self.paths(prefix))).collect();
        if !changes.is_empty() {
            Arc::make_mut(&mut self.loc_rib).apply(&changes);
        }
        changes
    }

    /// The paths to a destination, the best first, then in the order of their identifiers.
    fn paths(&self, prefix: Prefix) -> Arc<[Path]> {
        let candidates = self.destinations.get(&prefix);
        let mut paths: Vec<_> = candidates.into_iter().flatten().map(|candidate| candidate.path.clone()).collect();
        paths.sort_by_key(|path| path.id);
        if let Some(best) = best_path(&paths) {
            paths.get_mut(..=best).unwrap_or_default().rotate_right(1);
        }
        paths.into()
    }
}

/// The lowest identifier that no other path to the destination has.
fn free_id(candidates: &[Candidate]) -> u32 {
    let taken: BTreeSet<_> = candidates.iter().map(|candidate| candidate.path.id).collect();
    (Path::LOCAL + 1..).find(|id| !taken.contains(id)).unwrap_or(Path::LOCAL)
}

#[cfg(test)]
mod tests;
