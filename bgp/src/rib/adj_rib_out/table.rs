// SPDX-License-Identifier: Apache-2.0
//! The paths of one session: of each, what the peer holds, and what it is to hold.
//!
//! Input: changes of single paths, of some in order, or of all. Output: which of them are pending. How many the peer holds, and which of ours are about
//! to go, is kept with each change, so that asking costs nothing.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::sync::Arc;

use super::entry::{Entry, Standing};
use super::parts::Parts;
use crate::prefix::{Family, Prefix};
use crate::rib::Route;
use crate::wire::Nlri;

/// All paths.
#[derive(Debug, Default)]
pub(super) struct Table {
    entries: Parts<Entry>,
    tally: Tally,
}

#[derive(Debug, Default)]
struct Tally {
    advertised: usize,
    reflected_ipv4: usize,
    reflected_ipv6: usize,
    leaving: BTreeSet<Nlri>,
}

impl Tally {
    const fn reflected(&mut self, key: Nlri) -> &mut usize {
        match key.prefix.family() {
            Family::Ipv4Unicast => &mut self.reflected_ipv4,
            Family::Ipv6Unicast => &mut self.reflected_ipv6,
        }
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
        self.tally.advertised + self.tally.reflected_ipv4 + self.tally.reflected_ipv6
    }

    /// How many of them, of one family, other peers have told.
    pub(super) const fn reflected_count(&self, family: Family) -> usize {
        match family {
            Family::Ipv4Unicast => self.tally.reflected_ipv4,
            Family::Ipv6Unicast => self.tally.reflected_ipv6,
        }
    }

    /// The paths that start here, and that the peer holds and is to hold no longer.
    pub(super) fn leaving(&self) -> impl Iterator<Item = Nlri> {
        self.tally.leaving.iter().copied()
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
            let mut entry = Entry::New(Arc::clone(route));
            changed(key, &mut entry);
            new.push((key, entry));
        };
        self.meet(destinations.map(|prefix| (all_of(prefix), prefix)), |prefix, entry| match entry {
            Some((key, entry)) => {
                while let Some(route) = routes.next_if(|(other, _)| *other < key) {
                    add(route, &mut changed);
                }
                entry.want(routes.next_if(|(other, _)| *other == key).map(|(_, route)| route));
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
        self.entries.put_in(new);
    }

    /// Removes those of these entries, which come in order, that have become nothing.
    pub(super) fn sweep(&mut self, keys: &[Nlri]) {
        self.entries.sweep(keys, Entry::is_nothing);
    }

    /// Brings values with ranges of keys, which come in order, together with the entries in these: shows each entry with its value, and then none once.
    fn meet<T: Copy>(
        &mut self,
        values: impl Iterator<Item = (RangeInclusive<Nlri>, T)>,
        mut visit: impl FnMut(T, Option<(Nlri, &mut Entry)>),
    ) {
        let mut entries = self.entries.cursor();
        for (range, value) in values {
            entries.seek(range.start());
            while let Some((key, entry)) = entries.next_to(range.end()) {
                let before = entry.standing();
                visit(value, Some((key, entry)));
                self.tally.moved(key, before, entry.standing());
            }
            visit(value, None);
        }
    }

    /// Changes all paths.
    pub(super) fn change_all(&mut self, mut change: impl FnMut(Nlri, &mut Entry)) {
        for (key, entry) in self.entries.iter_mut() {
            let before = entry.standing();
            change(key, entry);
            self.tally.moved(key, before, entry.standing());
        }
    }

    /// From now on exactly these routes, which come in order, are wanted: one pass. Shows, in order, each entry that may be pending by that.
    pub(super) fn want<'a>(&mut self, routes: impl Iterator<Item = (Nlri, &'a Arc<Route>)>, mut changed: impl FnMut(Nlri, &mut Entry)) {
        let mut routes = routes.peekable();
        let mut new = Vec::new();
        let mut add = |(key, route): (Nlri, &Arc<Route>), changed: &mut dyn FnMut(Nlri, &mut Entry)| {
            let mut entry = Entry::New(Arc::clone(route));
            changed(key, &mut entry);
            new.push((key, entry));
        };
        for (key, entry) in self.entries.iter_mut() {
            while let Some(route) = routes.next_if(|(other, _)| *other < key) {
                add(route, &mut changed);
            }
            let before = entry.standing();
            entry.want(routes.next_if(|(other, _)| *other == key).map(|(_, route)| route));
            changed(key, entry);
            self.tally.moved(key, before, entry.standing());
        }
        routes.for_each(|route| add(route, &mut changed));
        self.entries.sweep_all(Entry::is_nothing);
        self.entries.put_in(new);
    }
}

/// All paths to a destination.
const fn all_of(prefix: Prefix) -> RangeInclusive<Nlri> {
    Nlri { prefix, path_id: 0 }..=Nlri { prefix, path_id: u32::MAX }
}
