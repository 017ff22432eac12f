// SPDX-License-Identifier: Apache-2.0
//! The routes of this speaker (RFC 4271 §3.2, Loc-RIB).
//!
//! Input: routes that start here, or the changes that reflection makes. Output: for each destination its paths, the best first.
//!
//! Invariant: a clone shares with the original all that neither of them changes afterwards, so that each peer can keep the whole as it was told it, and
//! a change costs in proportion to itself.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{PeerId, Route};
use crate::prefix::Prefix;

/// Destinations in one part, which is shared or copied as a whole.
const IN_ONE_PART: usize = 128;

/// One of the ways to a destination.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Path {
    /// The Path Identifier by which it is told to peers that take several (RFC 7911 §3). It stays the same as long as the path is there.
    pub id: u32,
    /// The peer that told it, and the Path Identifier that it has there; `None` where it starts here.
    pub received: Option<(PeerId, u32)>,
    /// What is known of it.
    pub route: Arc<Route>,
}

impl Path {
    /// The Path Identifier of the route that starts here.
    pub const LOCAL: u32 = 1;

    /// The path of a route that starts here.
    #[must_use]
    pub const fn originated(route: Arc<Route>) -> Self {
        Self { id: Self::LOCAL, received: None, route }
    }
}

/// The paths to each of some destinations, the best first; none where the destination is gone.
pub type Changes = BTreeMap<Prefix, Arc<[Path]>>;

/// The routes of this speaker by destination.
///
/// Destinations whose routes are equal share UPDATEs; it costs less to find out where they are one and the same `Arc`.
#[derive(Clone, Debug, Default)]
pub struct LocRib {
    /// In the order of prefixes; none is empty.
    parts: Vec<Arc<Part>>,
    length: usize,
}

/// Some neighbouring destinations in order.
type Part = Vec<(Prefix, Arc<[Path]>)>;

impl LocRib {
    /// These destinations, all of them here.
    pub fn originated(prefixes: impl IntoIterator<Item = Prefix>) -> Self {
        let route = Arc::new(Route::originated());
        prefixes.into_iter().map(|prefix| (prefix, Arc::clone(&route))).collect()
    }

    /// The destinations with their paths, the best first, in the order of prefixes.
    pub fn destinations(&self) -> impl Iterator<Item = (Prefix, &[Path])> {
        self.parts.iter().flat_map(|part| part.iter()).map(|(prefix, paths)| (*prefix, &**paths))
    }

    /// The destinations with their best routes, in the order of prefixes.
    pub fn routes(&self) -> impl Iterator<Item = (Prefix, &Arc<Route>)> {
        self.destinations().filter_map(|(prefix, paths)| Some((prefix, &paths.first()?.route)))
    }

    /// The paths to a destination, the best first; none where it is not known.
    #[must_use]
    pub fn paths(&self, prefix: &Prefix) -> &[Path] {
        let part = self.parts.get(self.part_of(prefix));
        let found = part.and_then(|part| part.get(part.binary_search_by_key(prefix, |(prefix, _)| *prefix).ok()?));
        found.map(|(_, paths)| &**paths).unwrap_or_default()
    }

    /// Takes over what has changed.
    pub fn apply(&mut self, changes: &Changes) {
        if self.is_empty() {
            *self = Self::from_sorted(
                changes.iter().filter(|(_, paths)| !paths.is_empty()).map(|(prefix, paths)| (*prefix, Arc::clone(paths))),
            );
            return;
        }
        for (prefix, paths) in changes {
            if paths.is_empty() {
                self.remove(prefix);
            } else {
                self.insert(*prefix, Arc::clone(paths));
            }
        }
    }

    /// What [`apply`](Self::apply) would take over to make these routes those: one pass over both.
    #[must_use]
    pub fn changes_to(&self, other: &Self) -> Changes {
        let (mut here, mut there) = (self.entries().peekable(), other.entries().peekable());
        std::iter::from_fn(|| {
            loop {
                let next = here.peek().into_iter().chain(there.peek()).map(|(prefix, _)| *prefix).min()?;
                let before = here.next_if(|(prefix, _)| *prefix == next).map(|(_, paths)| paths);
                match (before, there.next_if(|(prefix, _)| *prefix == next)) {
                    (Some(before), Some((_, after))) if Arc::ptr_eq(before, after) || before == after => {}
                    (_, Some((_, after))) => return Some((next, Arc::clone(after))),
                    (_, None) => return Some((next, Arc::default())),
                }
            }
        })
        .collect()
    }

    fn entries(&self) -> impl Iterator<Item = &(Prefix, Arc<[Path]>)> {
        self.parts.iter().flat_map(|part| part.iter())
    }

    /// Whether there is a path to the destination.
    #[must_use]
    pub fn contains(&self, prefix: &Prefix) -> bool {
        !self.paths(prefix).is_empty()
    }

    /// How many destinations there are.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.length
    }

    /// Whether there is no destination.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// The part in which the destination is, or would be put.
    fn part_of(&self, prefix: &Prefix) -> usize {
        let behind = self.parts.partition_point(|part| part.first().is_some_and(|(first, _)| first <= prefix));
        behind.saturating_sub(1)
    }

    fn insert(&mut self, prefix: Prefix, paths: Arc<[Path]>) {
        let at = self.part_of(&prefix);
        let Some(part) = self.parts.get_mut(at) else {
            self.parts.push(Arc::new(vec![(prefix, paths)]));
            self.length += 1;
            return;
        };
        let part = Arc::make_mut(part);
        match part.binary_search_by_key(&prefix, |(prefix, _)| *prefix) {
            Ok(place) => part.iter_mut().skip(place).take(1).for_each(|(_, before)| *before = Arc::clone(&paths)),
            Err(place) => {
                part.insert(place, (prefix, paths));
                self.length += 1;
                if part.len() > IN_ONE_PART {
                    let behind = part.split_off(IN_ONE_PART / 2);
                    self.parts.insert(at + 1, Arc::new(behind));
                }
            }
        }
    }

    fn remove(&mut self, prefix: &Prefix) {
        let at = self.part_of(prefix);
        let Some(part) = self.parts.get_mut(at) else { return };
        let Ok(place) = part.binary_search_by_key(prefix, |(prefix, _)| *prefix) else { return };
        self.length -= 1;
        if part.len() == 1 {
            self.parts.remove(at);
        } else {
            Arc::make_mut(part).remove(place);
        }
    }

    /// Of destinations that come in order, and once.
    fn from_sorted(destinations: impl Iterator<Item = (Prefix, Arc<[Path]>)>) -> Self {
        let mut rib = Self::default();
        let mut part = Part::new();
        for destination in destinations {
            if part.len() == IN_ONE_PART {
                rib.parts.push(Arc::new(std::mem::replace(&mut part, Part::with_capacity(IN_ONE_PART))));
            }
            part.push(destination);
            rib.length += 1;
        }
        if !part.is_empty() {
            part.shrink_to_fit();
            rib.parts.push(Arc::new(part));
        }
        rib
    }
}

impl PartialEq for LocRib {
    /// Whether they have the same paths to the same destinations.
    fn eq(&self, other: &Self) -> bool {
        self.length == other.length && self.destinations().eq(other.destinations())
    }
}

impl Eq for LocRib {}

impl FromIterator<(Prefix, Arc<Route>)> for LocRib {
    /// One route for each destination.
    fn from_iter<I: IntoIterator<Item = (Prefix, Arc<Route>)>>(routes: I) -> Self {
        let mut shared = Shared::default();
        let destinations: Changes = routes.into_iter().map(|(prefix, route)| (prefix, shared.paths(Path::originated(route)))).collect();
        Self::from_sorted(destinations.into_iter())
    }
}

/// Makes the paths to destinations that have a single one: one value for all in a row for which it is the same.
#[derive(Debug, Default)]
pub(super) struct Shared(Option<Arc<[Path]>>);

impl Shared {
    pub(super) fn paths(&mut self, path: Path) -> Arc<[Path]> {
        let is_same = |other: &Path| Arc::ptr_eq(&other.route, &path.route) && (other.id, other.received) == (path.id, path.received);
        let same = self.0.take().filter(|paths| paths.first().is_some_and(is_same));
        let paths = same.unwrap_or_else(|| Arc::new([path]));
        self.0 = Some(Arc::clone(&paths));
        paths
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use proptest::prelude::*;

    use super::*;

    fn prefix(number: u16) -> Prefix {
        Prefix::host(IpAddr::from((0x0A00_0000 + u32::from(number)).to_be_bytes()))
    }

    fn paths(med: Option<u32>) -> Arc<[Path]> {
        med.into_iter().map(|med| Path::originated(Arc::new(Route { med: Some(med), ..Route::originated() }))).collect()
    }

    proptest! {
        #[test]
        fn it_is_the_map_that_all_changes_make_and_a_clone_stays_as_it_was(
            steps in proptest::collection::vec(proptest::collection::btree_map(0..600_u16, proptest::option::weighted(0.7, 0..3_u32), 0..200), 1..12),
        ) {
            let (mut rib, mut model) = (LocRib::default(), Changes::new());
            for step in steps {
                let changes: Changes = step.into_iter().map(|(number, med)| (prefix(number), paths(med))).collect();
                let (before, model_before) = (rib.clone(), model.clone());
                rib.apply(&changes);
                model.extend(changes);
                model.retain(|_, paths| !paths.is_empty());
                for (rib, model) in [(&rib, &model), (&before, &model_before)] {
                    prop_assert!(rib.destinations().eq(model.iter().map(|(prefix, paths)| (*prefix, &**paths))));
                    prop_assert_eq!(rib.len(), model.len());
                }
                let mut after = before.clone();
                after.apply(&before.changes_to(&rib));
                prop_assert_eq!(&after, &rib);
                prop_assert_eq!(rib.changes_to(&after), Changes::new());
                for number in 0..600 {
                    prop_assert_eq!(rib.paths(&prefix(number)), model.get(&prefix(number)).map(|paths| &**paths).unwrap_or_default());
                }
                prop_assert!(rib.parts.iter().all(|part| (1..=IN_ONE_PART).contains(&part.len())));
            }
        }
    }
}
