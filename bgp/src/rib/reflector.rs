// SPDX-License-Identifier: Apache-2.0
//! All paths that this speaker knows: its own, and those that its peers are let to give (RFC 4456, RFC 7911).
//!
//! Input: the routes that start here, and what each peer's Adj-RIB-In says. Output: [`Changes`] of the Loc-RIB for every peer; which of the paths a peer
//! is told is decided there. Work is in proportion to what changes.
//!
//! Invariant: a path keeps its Path Identifier as long as it is there, whatever else comes and goes, and no two paths to a destination share one.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::loc_rib::Shared;
use super::{Changes, LocRib, Path, PeerId, Route, best_path};
use crate::prefix::Prefix;
use crate::wire::Nlri;

/// One change of an Adj-RIB-In: a route, or that there is none any more. The Path Identifier is the peer's.
pub type Learnt = (Nlri, Option<Arc<Route>>);

/// The paths of this speaker and where they come from.
#[derive(Debug, Default)]
pub struct Reflector {
    loc_rib: Arc<LocRib>,
}

impl Reflector {
    /// All of it, for a peer that is told the first time.
    #[must_use]
    pub fn loc_rib(&self) -> Arc<LocRib> {
        Arc::clone(&self.loc_rib)
    }

    /// These routes start here now, in place of others to their destinations; or none does any more.
    pub fn originate(&mut self, routes: impl IntoIterator<Item = (Prefix, Option<Arc<Route>>)>) -> Changes {
        let mut shared = Shared::default();
        let changes = routes.into_iter().filter_map(|(prefix, route)| {
            let paths = match (self.loc_rib.paths(&prefix), route) {
                ([], None) => return None,
                ([], Some(route)) => shared.paths(Path::originated(route)),
                (before, route) => replaced(before, None, route.as_ref())?.into(),
            };
            Some((prefix, paths))
        });
        let changes = changes.collect();
        self.take_over(changes)
    }

    /// The Adj-RIB-In of a peer has changed.
    pub fn learn(&mut self, peer: PeerId, learnt: &[Learnt]) -> Changes {
        let mut learnt: Vec<&Learnt> = learnt.iter().collect();
        learnt.sort_by_key(|(nlri, _)| nlri.prefix);
        let mut shared = Shared::default();
        let changes = learnt.chunk_by(|(one, _), (other, _)| one.prefix == other.prefix).filter_map(|of_one| {
            let (Nlri { prefix, .. }, _) = of_one.first()?;
            let mut after = None;
            for (Nlri { path_id, .. }, route) in of_one {
                let received = Some((peer, *path_id));
                let before = after.as_deref().unwrap_or_else(|| self.loc_rib.paths(prefix));
                after = match (before, route) {
                    ([], Some(route)) => Some(shared.paths(Path { id: free_id(&[]), received, route: Arc::clone(route) })),
                    _ => replaced(before, received, route.as_ref()).map(Arc::from).or(after),
                };
            }
            Some((*prefix, after?))
        });
        let changes = changes.collect();
        self.take_over(changes)
    }

    /// The peer is no longer configured.
    pub fn forget(&mut self, peer: PeerId) -> Changes {
        let is_of_peer = |path: &Path| path.received.is_some_and(|(other, _)| other == peer);
        let affected = self.loc_rib.destinations().filter(|(_, paths)| paths.iter().any(is_of_peer));
        let changes =
            affected.map(|(prefix, paths)| (prefix, in_order(paths.iter().filter(|path| !is_of_peer(path)).cloned().collect()).into()));
        let changes = changes.collect();
        self.take_over(changes)
    }

    fn take_over(&mut self, changes: Changes) -> Changes {
        if !changes.is_empty() {
            Arc::make_mut(&mut self.loc_rib).apply(&changes);
        }
        changes
    }
}

/// The paths to a destination with another one in its place; `None` where nothing changes.
fn replaced(before: &[Path], received: Option<(PeerId, u32)>, route: Option<&Arc<Route>>) -> Option<Vec<Path>> {
    let place = before.iter().position(|path| path.received == received);
    let mut paths = before.to_vec();
    match (place.and_then(|place| paths.get_mut(place)), route) {
        (Some(path), Some(route)) if path.route == *route => return None,
        (Some(path), Some(route)) => path.route = Arc::clone(route),
        (Some(_), None) => paths.retain(|path| path.received != received),
        (None, Some(route)) => {
            let id = if received.is_some() { free_id(before) } else { Path::LOCAL };
            paths.push(Path { id, received, route: Arc::clone(route) });
        }
        (None, None) => return None,
    }
    Some(in_order(paths))
}

/// The best first, then in the order of identifiers.
fn in_order(mut paths: Vec<Path>) -> Vec<Path> {
    if paths.len() > 1 {
        paths.sort_by_key(|path| path.id);
        if let Some(best) = best_path(&paths) {
            paths.get_mut(..=best).unwrap_or_default().rotate_right(1);
        }
    }
    paths
}

/// The lowest identifier that no other path to the destination has.
fn free_id(paths: &[Path]) -> u32 {
    let taken: BTreeSet<_> = paths.iter().map(|path| path.id).collect();
    (Path::LOCAL + 1..).find(|id| !taken.contains(id)).unwrap_or(Path::LOCAL)
}

#[cfg(test)]
mod tests;
