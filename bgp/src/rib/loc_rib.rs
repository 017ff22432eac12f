// SPDX-License-Identifier: Apache-2.0
//! The routes of this speaker (RFC 4271 §3.2, Loc-RIB).
//!
//! Input: routes that start here, or the changes that reflection makes. Output: for each destination its paths, the best first.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Route;
use crate::prefix::Prefix;

/// One of the ways to a destination.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Path {
    /// The Path Identifier by which it is told to peers that take several (RFC 7911 §3). It stays the same as long as the path is there.
    pub id: u32,
    /// What is known of it.
    pub route: Arc<Route>,
}

impl Path {
    /// The Path Identifier of the route that starts here.
    pub const LOCAL: u32 = 1;
}

/// The paths to each of some destinations, the best first; none where the destination is gone.
pub type Changes = BTreeMap<Prefix, Arc<[Path]>>;

/// The routes of this speaker by destination.
///
/// Destinations whose routes are equal share UPDATEs; it costs less to find out where they are one and the same `Arc`.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct LocRib {
    destinations: Changes,
}

impl LocRib {
    /// These destinations, all of them here.
    pub fn originated(prefixes: impl IntoIterator<Item = Prefix>) -> Self {
        let route = Arc::new(Route::originated());
        prefixes.into_iter().map(|prefix| (prefix, Arc::clone(&route))).collect()
    }

    /// The destinations with their paths, the best first, in the order of prefixes.
    pub fn destinations(&self) -> impl Iterator<Item = (Prefix, &[Path])> {
        self.destinations.iter().map(|(prefix, paths)| (*prefix, &**paths))
    }

    /// The destinations with their best routes, in the order of prefixes.
    pub fn routes(&self) -> impl Iterator<Item = (Prefix, &Arc<Route>)> {
        self.destinations().filter_map(|(prefix, paths)| Some((prefix, &paths.first()?.route)))
    }

    /// Takes over what has changed.
    pub fn apply(&mut self, changes: &Changes) {
        for (prefix, paths) in changes {
            if paths.is_empty() {
                self.destinations.remove(prefix);
            } else {
                self.destinations.insert(*prefix, Arc::clone(paths));
            }
        }
    }

    /// Whether there is a path to the destination.
    #[must_use]
    pub fn contains(&self, prefix: &Prefix) -> bool {
        self.destinations.contains_key(prefix)
    }

    /// How many destinations there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.destinations.len()
    }

    /// Whether there is no destination.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.destinations.is_empty()
    }
}

impl FromIterator<(Prefix, Arc<Route>)> for LocRib {
    /// One route for each destination.
    fn from_iter<I: IntoIterator<Item = (Prefix, Arc<Route>)>>(routes: I) -> Self {
        let mut last: Option<Arc<[Path]>> = None;
        let destinations = routes.into_iter().map(|(prefix, route)| {
            let same = last.take().filter(|paths| paths.first().is_some_and(|path| Arc::ptr_eq(&path.route, &route)));
            let paths = same.unwrap_or_else(|| Arc::new([Path { id: Path::LOCAL, route }]));
            last = Some(Arc::clone(&paths));
            (prefix, paths)
        });
        Self { destinations: destinations.collect() }
    }
}
