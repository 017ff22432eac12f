// SPDX-License-Identifier: Apache-2.0
//! The paths of one session: of each, what the peer holds, and what it is to hold.
//!
//! Input: changes of single paths, of some in order, or of all. Output: which of them are pending. How many the peer holds, and which of ours are about
//! to go, is kept with each change, so that asking costs nothing.

use std::collections::{BTreeMap, BTreeSet, btree_map};
use std::ops::RangeInclusive;
use std::sync::Arc;

use crate::prefix::{Family, Prefix};
use crate::rib::Route;
use crate::wire::Nlri;

/// Entries that are passed over one by one before the next key is looked up from the root.
const NEAR: usize = 8;

/// One path: what the peer holds of it, as far as UPDATEs were written, and what it is to hold. There is none that is neither.
#[derive(Debug, Default)]
pub(super) struct Entry {
    pub(super) told: Option<Arc<Route>>,
    pub(super) wanted: Option<Arc<Route>>,
    /// To be announced again, though nothing changed.
    pub(super) again: bool,
}

impl Entry {
    /// Whether the peer neither holds it nor is to.
    pub(super) const fn is_nothing(&self) -> bool {
        self.told.is_none() && self.wanted.is_none()
    }

    pub(super) const fn is_to_be_withdrawn(&self) -> bool {
        self.told.is_some() && self.wanted.is_none()
    }

    /// Whether the peer holds a route that starts here.
    pub(super) fn is_ours_told(&self) -> bool {
        self.told.as_ref().is_some_and(|route| route.learned.is_none())
    }

    /// Whether the peer holds a route that starts here, and is to hold it no longer.
    pub(super) fn is_leaving(&self) -> bool {
        self.is_ours_told() && self.wanted.as_ref().is_none_or(|route| route.learned.is_some())
    }

    pub(super) fn is_to_be_announced(&self) -> bool {
        self.wanted.is_some() && (self.again || self.told != self.wanted)
    }

    pub(super) fn is_pending(&self) -> bool {
        self.is_to_be_withdrawn() || self.is_to_be_announced()
    }

    /// The peer holds this route by another one that is told with the same octets.
    pub(super) fn is_told_already(&mut self) {
        self.told.clone_from(&self.wanted);
    }

    fn standing(&self) -> Standing {
        match (&self.told, &self.wanted) {
            (Some(_), _) if self.is_leaving() => Standing::Leaving,
            (Some(told), Some(_)) if told.learned.is_some() => Standing::Reflected,
            (Some(_), Some(_)) => Standing::Advertised,
            _ => Standing::Other,
        }
    }
}

/// What the peer has of a path.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Standing {
    Other,
    /// It holds it, and is to hold it.
    Advertised,
    /// It holds one that another peer told, and is to hold it or one in its place.
    Reflected,
    /// It holds a route that starts here, and is to hold it no longer.
    Leaving,
}

/// All paths.
#[derive(Debug, Default)]
pub(super) struct Table {
    entries: BTreeMap<Nlri, Entry>,
    tally: Tally,
}

#[derive(Debug, Default)]
struct Tally {
    advertised: usize,
    reflected: BTreeMap<Family, usize>,
    leaving: BTreeSet<Nlri>,
}

impl Tally {
    fn reflected(&mut self, key: Nlri) -> &mut usize {
        self.reflected.entry(key.prefix.family()).or_default()
    }

    fn moved(&mut self, key: Nlri, before: Standing, after: Standing) {
        if before == after {
            return;
        }
        match before {
            Standing::Other => {}
            Standing::Advertised => self.advertised -= 1,
            Standing::Reflected => *self.reflected(key) -= 1,
            Standing::Leaving => drop(self.leaving.remove(&key)),
        }
        match after {
            Standing::Other => {}
            Standing::Advertised => self.advertised += 1,
            Standing::Reflected => *self.reflected(key) += 1,
            Standing::Leaving => drop(self.leaving.insert(key)),
        }
    }
}

impl Table {
    pub(super) fn get(&self, key: &Nlri) -> Option<&Entry> {
        self.entries.get(key)
    }

    /// The paths to a destination.
    pub(super) fn of(&self, prefix: Prefix) -> impl Iterator<Item = (&Nlri, &Entry)> {
        self.entries.range(all_of(prefix))
    }

    /// How many paths there are.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// All paths, in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&Nlri, &Entry)> {
        self.entries.iter()
    }

    /// The paths that the peer holds and is to hold.
    pub(super) fn advertised(&self) -> impl Iterator<Item = Nlri> {
        self.entries.iter().filter(|(_, entry)| matches!(entry.standing(), Standing::Advertised | Standing::Reflected)).map(|(key, _)| *key)
    }

    /// How many those are.
    pub(super) fn advertised_count(&self) -> usize {
        self.tally.advertised + self.tally.reflected.values().sum::<usize>()
    }

    /// How many of them other peers have told, by family.
    pub(super) const fn reflected_counts(&self) -> &BTreeMap<Family, usize> {
        &self.tally.reflected
    }

    /// The paths that start here, and that the peer holds and is to hold no longer.
    pub(super) fn leaving(&self) -> impl Iterator<Item = Nlri> {
        self.tally.leaving.iter().copied()
    }

    /// Changes one path, which need not have been there. Whether it is pending now.
    pub(super) fn change(&mut self, key: Nlri, change: impl FnOnce(&mut Entry)) -> bool {
        let mut occupied = match self.entries.entry(key) {
            btree_map::Entry::Occupied(occupied) => occupied,
            btree_map::Entry::Vacant(vacant) => vacant.insert_entry(Entry::default()),
        };
        let entry = occupied.get_mut();
        let before = entry.standing();
        change(entry);
        self.tally.moved(key, before, entry.standing());
        let pending = entry.is_pending();
        if entry.is_nothing() {
            occupied.remove();
        }
        pending
    }

    /// Changes those of these paths, which come in order, that are there. One that becomes nothing stays until the next [`sweep`](Self::sweep).
    pub(super) fn change_each(&mut self, keys: &[Nlri], mut change: impl FnMut(Nlri, &mut Entry)) {
        self.meet(keys.iter().map(|key| (*key..=*key, ())), |(), entry| {
            if let Some((key, entry)) = entry {
                change(key, entry);
            }
        });
    }

    /// From now on exactly these routes to these destinations are wanted; both come in order. Shows, in order, each entry that may be pending by that.
    pub(super) fn want_some<'a>(
        &mut self,
        destinations: impl Iterator<Item = Prefix>,
        routes: impl Iterator<Item = (Nlri, &'a Arc<Route>)>,
        mut changed: impl FnMut(Nlri, &mut Entry),
    ) {
        let mut routes = routes.peekable();
        let (mut new, mut gone) = (Vec::new(), Vec::new());
        let mut add = |(key, route): (Nlri, &Arc<Route>), changed: &mut dyn FnMut(Nlri, &mut Entry)| {
            let mut entry = Entry { wanted: Some(Arc::clone(route)), ..Entry::default() };
            changed(key, &mut entry);
            new.push((key, entry));
        };
        self.meet(destinations.map(|prefix| (all_of(prefix), prefix)), |prefix, entry| match entry {
            Some((key, entry)) => {
                while let Some(route) = routes.next_if(|(other, _)| *other < key) {
                    add(route, &mut changed);
                }
                entry.wanted = routes.next_if(|(other, _)| *other == key).map(|(_, route)| Arc::clone(route));
                changed(key, entry);
                if entry.is_nothing() {
                    gone.push(key);
                }
            }
            None => {
                while let Some(route) = routes.next_if(|(other, _)| other.prefix <= prefix) {
                    add(route, &mut changed);
                }
            }
        });
        self.sweep(&gone);
        self.put_in(new);
    }

    /// Puts in entries that are not there yet, which come in order.
    fn put_in(&mut self, new: Vec<(Nlri, Entry)>) {
        // To put them together in one pass costs about as much as to put in some one by one, which also leaves nodes half empty.
        if new.len() * 16 > self.entries.len() {
            self.entries.append(&mut new.into_iter().collect());
        } else {
            self.entries.extend(new);
        }
    }

    /// Removes those of these entries, which come in order, that have become nothing.
    pub(super) fn sweep(&mut self, keys: &[Nlri]) {
        /// From so many on it costs less to pass over what is between them than to look each of them up.
        const MANY: usize = 16;
        match (keys, keys.last()) {
            ([first, ..], Some(last)) if keys.len() >= MANY && first <= last => {
                if self.entries.values().all(Entry::is_nothing) {
                    self.entries.clear();
                } else {
                    self.entries.extract_if(*first..=*last, |_, entry| entry.is_nothing()).for_each(drop);
                }
            }
            _ => keys.iter().for_each(|key| self.entries.extract_if(*key..=*key, |_, entry| entry.is_nothing()).for_each(drop)),
        }
    }

    /// Brings values with ranges of keys, which come in order, together with the entries in these: shows each entry with its value, and then none once.
    /// Entries that are near to one another are reached by walking, the others are looked up.
    fn meet<T: Copy>(
        &mut self,
        values: impl Iterator<Item = (RangeInclusive<Nlri>, T)>,
        mut visit: impl FnMut(T, Option<(Nlri, &mut Entry)>),
    ) {
        let mut values = values.peekable();
        while let Some(first) = values.peek().map(|(range, _)| *range.start()) {
            let mut behind = self.entries.range_mut(first..).peekable();
            while let Some((range, _)) = values.peek() {
                let start = *range.start();
                let steps = std::iter::from_fn(|| behind.next_if(|(other, _)| **other < start)).take(NEAR).count();
                if steps == NEAR && start != first {
                    break;
                }
                let Some((range, value)) = values.next() else { return };
                while let Some((key, entry)) = behind.next_if(|(key, _)| *key <= range.end()) {
                    let before = entry.standing();
                    visit(value, Some((*key, entry)));
                    self.tally.moved(*key, before, entry.standing());
                }
                visit(value, None);
            }
        }
    }

    /// Changes all paths.
    pub(super) fn change_all(&mut self, mut change: impl FnMut(&Nlri, &mut Entry)) {
        for (key, entry) in &mut self.entries {
            let before = entry.standing();
            change(key, entry);
            self.tally.moved(*key, before, entry.standing());
        }
    }

    /// From now on exactly these routes, which come in order, are wanted: one pass. Shows, in order, each entry that may be pending by that.
    pub(super) fn want<'a>(&mut self, routes: impl Iterator<Item = (Nlri, &'a Arc<Route>)>, mut changed: impl FnMut(Nlri, &mut Entry)) {
        let mut routes = routes.peekable();
        let mut new = Vec::new();
        let mut add = |(key, route): (Nlri, &Arc<Route>), changed: &mut dyn FnMut(Nlri, &mut Entry)| {
            let mut entry = Entry { wanted: Some(Arc::clone(route)), ..Entry::default() };
            changed(key, &mut entry);
            new.push((key, entry));
        };
        for (&key, entry) in &mut self.entries {
            while let Some(route) = routes.next_if(|(other, _)| *other < key) {
                add(route, &mut changed);
            }
            let before = entry.standing();
            entry.wanted = routes.next_if(|(other, _)| *other == key).map(|(_, route)| Arc::clone(route));
            changed(key, entry);
            self.tally.moved(key, before, entry.standing());
        }
        routes.for_each(|route| add(route, &mut changed));
        self.entries.retain(|_, entry| !entry.is_nothing());
        if self.entries.is_empty() {
            self.entries = new.into_iter().collect();
        } else {
            self.put_in(new);
        }
    }
}

/// All paths to a destination.
const fn all_of(prefix: Prefix) -> RangeInclusive<Nlri> {
    Nlri { prefix, path_id: 0 }..=Nlri { prefix, path_id: u32::MAX }
}
