// SPDX-License-Identifier: Apache-2.0
//! What is still to be told, in the order and the grouping in which UPDATEs carry it.
//!
//! Input: entries that have changed. Output: runs of destinations to withdraw, and groups of destinations that share one route. What changes while
//! nothing is pending is grouped at once. While something is, changes are collected and grouped only when something can be written, so many of them
//! cost no more than one.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use super::entry::Entry;
use super::table::Table;
use crate::prefix::Family;
use crate::rib::Route;
use crate::wire::Nlri;

/// What is to be told.
#[derive(Debug, Default)]
pub(super) struct Pending {
    /// Entries that changed since the grouping, in any order, some of them more than once or for nothing.
    changed: Vec<Nlri>,
    /// Whether the grouping may be out of date.
    stale: bool,
    withdraw: BTreeMap<Family, Run>,
    announce: BTreeMap<Family, VecDeque<Group>>,
}

impl Pending {
    /// This entry has changed, and may be pending now.
    pub(super) fn push(&mut self, key: Nlri) {
        self.changed.push(key);
        self.stale = true;
    }

    /// Many entries are about to change, and may be pending no longer: takes them in order.
    pub(super) fn begin(&mut self) -> Intake {
        let idle = self.keys().next().is_none();
        self.stale = !idle;
        if idle { Intake::Grouped(Grouping::default()) } else { Intake::Collected(std::mem::take(&mut self.changed)) }
    }

    /// They have changed.
    pub(super) fn end(&mut self, intake: Intake) {
        match intake {
            Intake::Grouped(grouping) => self.take_over(grouping),
            Intake::Collected(keys) => self.changed = keys,
        }
    }

    fn take_over(&mut self, grouping: Grouping) {
        self.withdraw = grouping.withdraw;
        self.announce = grouping.groups.groups;
    }

    /// Whether it would be much smaller after grouping, whatever is pending of so many entries.
    pub(super) const fn is_overfull(&self, entries: usize) -> bool {
        /// Below so many it is not worth the while.
        const FEW: usize = 1024;
        self.changed.len() > entries + FEW
    }

    /// The keys of which some may be pending.
    pub(super) fn keys(&self) -> impl Iterator<Item = &Nlri> {
        let withdraw = self.withdraw.values().flat_map(Run::rest);
        let announce = self.announce.values().flatten().flat_map(|group| group.run.rest());
        self.changed.iter().chain(withdraw).chain(announce)
    }

    /// Groups anew where something has changed since.
    pub(super) fn group(&mut self, table: &mut Table) {
        if !self.stale {
            return;
        }
        let mut before = std::mem::take(self);
        let mut keys = std::mem::take(&mut before.changed);
        keys.extend(before.keys());
        drop(before);
        // They are runs in order for the most part, which a stable sort merges.
        keys.sort();
        keys.dedup();
        let mut grouping = Grouping::default();
        table.change_each(&keys, |key, entry| grouping.add(key, entry));
        self.take_over(grouping);
    }

    /// What is to be withdrawn of a family.
    pub(super) fn withdrawals(&mut self, family: Family) -> Option<&mut Run> {
        self.withdraw.get_mut(&family).filter(|run| !run.is_empty())
    }

    /// The first group that is to be announced of a family.
    pub(super) fn first_group(&mut self, family: Family) -> Option<&mut Group> {
        self.announce.get_mut(&family)?.front_mut()
    }

    /// Takes that group away.
    pub(super) fn pop_group(&mut self, family: Family) -> Option<Group> {
        self.announce.get_mut(&family)?.pop_front()
    }

    /// To be withdrawn before all else.
    pub(super) fn withdraw(&mut self, key: Nlri) {
        self.withdraw.entry(key.prefix.family()).or_default().push(key);
    }
}

/// Takes entries that have changed, in order.
#[derive(Debug)]
pub(super) enum Intake {
    /// Nothing else is pending.
    Grouped(Grouping),
    Collected(Vec<Nlri>),
}

impl Intake {
    /// This entry has changed, and may be pending now.
    pub(super) fn add(&mut self, key: Nlri, entry: &Entry) {
        match self {
            Self::Grouped(grouping) => grouping.add(key, entry),
            Self::Collected(keys) if entry.is_pending() => keys.push(key),
            Self::Collected(_) => {}
        }
    }
}

/// Sorts entries by what is to be done with them.
#[derive(Debug, Default)]
pub(super) struct Grouping {
    withdraw: BTreeMap<Family, Run>,
    groups: Groups,
}

impl Grouping {
    fn add(&mut self, key: Nlri, entry: &Entry) {
        if entry.is_to_be_withdrawn() {
            self.withdraw.entry(key.prefix.family()).or_default().push(key);
        } else if let Some(route) = entry.wanted().filter(|_| entry.is_to_be_announced()) {
            self.groups.add(key, route);
        }
    }
}

/// Destinations of one family with the same route.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) route: Arc<Route>,
    pub(super) run: Run,
}

/// Destinations that are taken from the front.
#[derive(Debug, Default)]
pub(super) struct Run {
    keys: Vec<Nlri>,
    taken: usize,
}

impl Run {
    fn push(&mut self, key: Nlri) {
        self.keys.push(key);
    }

    pub(super) fn rest(&self) -> &[Nlri] {
        self.keys.get(self.taken..).unwrap_or_default()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rest().is_empty()
    }

    /// The next `count`, which are then no longer in the rest.
    pub(super) fn take(&mut self, count: usize) -> &[Nlri] {
        let from = self.taken;
        self.taken = from.saturating_add(count).min(self.keys.len());
        self.keys.get(from..self.taken).unwrap_or_default()
    }
}

/// Collects destinations into groups: one for each route, whatever `Arc` it is in.
#[derive(Debug, Default)]
struct Groups {
    groups: BTreeMap<Family, VecDeque<Group>>,
    by_pointer: BTreeMap<(Family, *const Route), usize>,
    by_value: BTreeMap<(Family, Arc<Route>), usize>,
    /// Where the last one was put: its neighbours tend to have the same route.
    last: Option<((Family, *const Route), usize)>,
}

impl Groups {
    fn add(&mut self, key: Nlri, route: &Arc<Route>) {
        let family = key.prefix.family();
        let groups = self.groups.entry(family).or_default();
        let pointer = (family, Arc::as_ptr(route));
        let at = match self.last {
            Some((last, at)) if last == pointer => at,
            _ => *self.by_pointer.entry(pointer).or_insert_with(|| {
                *self.by_value.entry((family, Arc::clone(route))).or_insert_with(|| {
                    groups.push_back(Group { route: Arc::clone(route), run: Run::default() });
                    groups.len() - 1
                })
            }),
        };
        self.last = Some((pointer, at));
        if let Some(group) = groups.get_mut(at) {
            group.run.push(key);
        }
    }
}
