// SPDX-License-Identifier: Apache-2.0
//! The paths of one session: of each, what the peer holds, and what it is to hold.
//!
//! Input: changes of single paths, of some in order, or of all. Output: which of them are pending. How many the peer holds, and which of them are
//! about to go, is kept with each change, so that asking costs nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::sync::Arc;

use crate::prefix::Prefix;
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
    pub(super) const fn is_to_be_withdrawn(&self) -> bool {
        self.told.is_some() && self.wanted.is_none()
    }

    /// Whether the peer holds a route that starts here, and is to hold it no longer.
    pub(super) fn is_leaving(&self) -> bool {
        let starts_here = |route: &Option<Arc<Route>>| route.as_ref().is_some_and(|route| route.learned.is_none());
        starts_here(&self.told) && !starts_here(&self.wanted)
    }

    pub(super) fn is_to_be_announced(&self) -> bool {
        self.wanted.is_some() && (self.again || self.told != self.wanted)
    }

    pub(super) fn is_pending(&self) -> bool {
        self.is_to_be_withdrawn() || self.is_to_be_announced()
    }

    fn standing(&self) -> Standing {
        match (&self.told, &self.wanted) {
            (Some(_), None) => Standing::Leaving,
            (Some(_), Some(_)) if self.is_leaving() => Standing::Leaving,
            (Some(_), Some(_)) => Standing::Advertised,
            (None, _) => Standing::Untold,
        }
    }
}

/// What the peer has of a path.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Standing {
    Untold,
    /// It holds it, and is to hold it.
    Advertised,
    /// It holds it, and is to hold it no longer.
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
    leaving: BTreeSet<Nlri>,
}

impl Tally {
    fn moved(&mut self, key: Nlri, before: Standing, after: Standing) {
        if before == after {
            return;
        }
        match before {
            Standing::Untold => {}
            Standing::Advertised => self.advertised -= 1,
            Standing::Leaving => drop(self.leaving.remove(&key)),
        }
        match after {
            Standing::Untold => {}
            Standing::Advertised => self.advertised += 1,
            Standing::Leaving => drop(self.leaving.insert(key)),
        }
    }
}

impl Table {
    pub(super) fn get(&self, key: &Nlri) -> Option<&Entry> {
        self.entries.get(key)
    }

    /// The paths to a destination.
    pub(super) fn keys_of(&self, prefix: Prefix) -> impl Iterator<Item = Nlri> {
        self.entries.range(all_of(prefix)).map(|(key, _)| *key)
    }

    /// The paths that the peer holds and is to hold.
    pub(super) fn advertised(&self) -> impl Iterator<Item = Nlri> {
        self.entries.iter().filter(|(_, entry)| entry.standing() == Standing::Advertised).map(|(key, _)| *key)
    }

    /// How many those are.
    pub(super) const fn advertised_count(&self) -> usize {
        self.tally.advertised
    }

    /// The paths that the peer holds and is to hold no longer.
    pub(super) fn leaving(&self) -> impl Iterator<Item = Nlri> {
        self.tally.leaving.iter().copied()
    }

    /// Changes one path, which need not have been there. Whether it is pending now.
    pub(super) fn change(&mut self, key: Nlri, change: impl FnOnce(&mut Entry)) -> bool {
        let entry = self.entries.entry(key).or_default();
        let before = entry.standing();
        change(entry);
        self.tally.moved(key, before, entry.standing());
        let pending = entry.is_pending();
        if entry.told.is_none() && entry.wanted.is_none() {
            self.entries.remove(&key);
        }
        pending
    }

    /// Changes those of these paths, which come in order, that are there: at the most what is told or wanted, never to nothing.
    pub(super) fn change_each(&mut self, keys: &[Nlri], mut change: impl FnMut(Nlri, &mut Entry)) {
        let mut keys = keys.iter().copied().peekable();
        while let Some(first) = keys.peek().copied() {
            let mut behind = self.entries.range_mut(first..);
            let mut key = first;
            loop {
                let found = behind.by_ref().take(NEAR).find(|(other, _)| **other >= key);
                let reached = found.is_some();
                if let Some((_, entry)) = found.filter(|(other, _)| **other == key) {
                    let before = entry.standing();
                    change(key, entry);
                    self.tally.moved(key, before, entry.standing());
                    keys.next();
                } else {
                    // It is farther away; or it is not there, if that was the nearest one.
                    if reached || key == first {
                        keys.next();
                    }
                    break;
                }
                let Some(next) = keys.peek() else { break };
                key = *next;
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

    /// From now on exactly these routes, which come in order, are wanted: one pass. Returns what is pending now.
    pub(super) fn want<'a>(&mut self, routes: impl Iterator<Item = (Nlri, &'a Arc<Route>)>) -> Vec<Nlri> {
        let mut routes = routes.peekable();
        let (mut pending, mut new) = (Vec::new(), Vec::new());
        let wanted = |(key, route): (Nlri, &Arc<Route>)| (key, Entry { wanted: Some(Arc::clone(route)), ..Entry::default() });
        for (&key, entry) in &mut self.entries {
            while let Some(route) = routes.next_if(|(other, _)| *other < key) {
                new.push(wanted(route));
            }
            let before = entry.standing();
            entry.wanted = routes.next_if(|(other, _)| *other == key).map(|(_, route)| Arc::clone(route));
            self.tally.moved(key, before, entry.standing());
            if entry.is_pending() {
                pending.push(key);
            }
        }
        self.entries.retain(|_, entry| entry.told.is_some() || entry.wanted.is_some());
        if self.entries.is_empty() {
            self.entries = new.into_iter().chain(routes.map(wanted)).collect();
            pending.extend(self.entries.keys());
        } else {
            new.extend(routes.map(wanted));
            pending.extend(new.iter().map(|(key, _)| *key));
            self.entries.extend(new);
        }
        pending
    }
}

/// All paths to a destination.
const fn all_of(prefix: Prefix) -> RangeInclusive<Nlri> {
    Nlri { prefix, path_id: 0 }..=Nlri { prefix, path_id: u32::MAX }
}
