// SPDX-License-Identifier: Apache-2.0
//! What one peer was told (RFC 4271 §3.2, Adj-RIBs-Out), and what is still to be told.
//!
//! Input: whole sets of routes, changes of them, the policy of the peer, requests for a refresh, how many octets may be written, and how many TCP has
//! acknowledged. Output: UPDATEs in octets. What is pending is not a queue of changes but the difference between what is wanted and what was told,
//! so changes that cancel each other out before they are written cost nothing. Work and memory are in proportion to the routes, whatever the peer
//! reads; a change costs in proportion to itself.

mod entry;
mod parts;
mod pending;
mod table;
mod told;
mod withdrawals;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::export::{Exporter, Refusals};
use super::{Changes, Export, LocRib, LocalAddresses, Route, Target, Withheld};
use crate::prefix::{Family, Prefix};
use crate::wire::{EncodeError, Message, Negotiated, Nlri, RouteRefresh, Update, encode_announcement, encode_withdrawal};

pub use told::{Advertisement, Outgoing, Progress};

use entry::Entry;
use pending::Pending;
use table::Table;
use withdrawals::Withdrawals;

/// The routes of one session from us to the peer. It ends with the session.
#[derive(Debug)]
pub struct AdjRibOut {
    exporter: Exporter,
    /// Whether a whole set was given.
    complete: bool,
    /// Whether End-of-RIB waits for what others have yet to tell.
    deferred: bool,
    table: Table,
    pending: Pending,
    withdrawals: Withdrawals,
    /// What the batch in the making withdraws; empty between batches.
    withdrawn: Vec<Nlri>,
    refusals: Refusals,
    end_of_rib_owed: BTreeSet<Family>,
    /// Families that the peer asked to hear again, and for which that has not begun.
    asked: BTreeSet<Family>,
    /// Refreshes under way.
    refreshes: BTreeMap<Family, Refresh>,
    /// Where on the connection the last UPDATE ends.
    written: u64,
    acknowledged: u64,
}

/// How far a refresh has come (RFC 7313 §4.1). Both ends are marked where the peer takes marks.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Refresh {
    /// Nothing is told yet.
    Begin,
    /// It ends once all is told.
    End,
}

/// Some UPDATEs.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Batch {
    /// Whole messages.
    pub octets: Vec<u8>,
    /// How many of them are UPDATEs.
    pub updates: u64,
    /// How many mark the beginning or the end of a refresh (RFC 7313 §3.2); there is no other message.
    pub marks: u64,
}

impl AdjRibOut {
    /// That of a session which has just become Established: the peer holds nothing. Nothing is to be told either, not even that there is nothing,
    /// before the first [`set`](Self::set).
    #[must_use]
    pub fn new(export: Export, target: Target, negotiated: Negotiated, local: LocalAddresses) -> Self {
        Self {
            end_of_rib_owed: negotiated.families.clone(),
            exporter: Exporter::new(export, target, negotiated, local),
            complete: false,
            deferred: false,
            table: Table::default(),
            pending: Pending::default(),
            withdrawals: Withdrawals::default(),
            withdrawn: Vec::new(),
            refusals: Refusals::default(),
            asked: BTreeSet::new(),
            refreshes: BTreeMap::new(),
            written: 0,
            acknowledged: 0,
        }
    }

    /// From now on the peer is to hold exactly what policy leaves of these routes: one pass over two sorted sets.
    pub fn set(&mut self, rib: &LocRib) {
        self.set_told_by(None, rib);
    }

    /// `old`: by which the peer was told what it holds, where that is another one.
    fn set_told_by(&mut self, old: Option<&Exporter>, rib: &LocRib) {
        self.complete = true;
        self.refusals = Refusals::default();
        let selected = self.exporter.select(rib.destinations(), &mut self.refusals);
        // All entries are shown, whatever is pending now.
        self.pending = Pending::default();
        let mut changed = self.pending.begin();
        let mut same = Sameness::new(old, &self.exporter);
        self.table.want(selected, |key, entry| {
            same.settle(key, entry);
            changed.add(key, entry);
        });
        self.pending.end(changed);
    }

    /// From now on the peer is to hold what policy leaves of these routes to their destinations; nothing else changes.
    pub fn apply(&mut self, changes: &Changes) {
        self.refusals.remove(changes.keys());
        let changed_paths = changes.iter().map(|(prefix, paths)| (*prefix, &**paths));
        let selected = self.exporter.select(changed_paths, &mut self.refusals);
        let mut changed = self.pending.begin();
        let mut same = Sameness::new(None, &self.exporter);
        self.table.want_some(changes.keys().copied(), selected, |key, entry| {
            same.settle(key, entry);
            changed.add(key, entry);
        });
        self.pending.end(changed);
        self.bound_pending();
    }

    /// What a peer that does not read has still to be told grows with the routes, not with the changes.
    fn bound_pending(&mut self) {
        if self.pending.is_overfull(self.table.len()) {
            self.pending.group(&mut self.table);
        }
    }

    /// Whether a whole set was given.
    #[must_use]
    pub const fn is_complete(&self) -> bool {
        self.complete
    }

    /// Whether End-of-RIB waits (RFC 4724 §4.1); else it follows the first whole set.
    pub const fn defer_end_of_rib(&mut self, deferred: bool) {
        self.deferred = deferred;
    }

    /// The policy is another one, and these are the routes: of what the peer holds already nothing is told again.
    pub fn set_export(&mut self, export: Export, rib: &LocRib) {
        let old = self.exporter.replace(export);
        self.tell_changed(&old, rib);
    }

    /// Our addresses are others: what changes by it is told again, of these routes.
    pub fn set_local(&mut self, local: LocalAddresses, rib: &LocRib) {
        let old = self.exporter.relocate(local);
        self.tell_changed(&old, rib);
    }

    fn tell_changed(&mut self, old: &Exporter, rib: &LocRib) {
        // Before the first whole set nothing is told.
        if self.complete {
            self.set_told_by(Some(old), rib);
        }
    }

    /// The peer asked for all routes of this family (RFC 2918 §4): that [begins](Self::begin_refreshes) later. One that has not begun answers all that ask
    /// until then; whoever asks after that gets exactly one more. Ignored where the family was not negotiated.
    pub fn refresh(&mut self, family: Family) {
        let negotiated = self.exporter.negotiated();
        // Where nothing is told yet there is nothing to tell again, but perhaps an answer to mark.
        if negotiated.families.contains(&family) && (self.complete || negotiated.enhanced_route_refresh) {
            self.asked.insert(family);
        }
    }

    /// Whether a refresh could begin: after End-of-RIB of its family, and after the one before it.
    #[must_use]
    pub fn is_to_refresh(&self) -> bool {
        self.asked.iter().any(|family| self.may_begin(*family))
    }

    fn may_begin(&self, family: Family) -> bool {
        self.complete && !self.end_of_rib_owed.contains(&family) && !self.refreshes.contains_key(&family)
    }

    /// Begins the refreshes that could: one pass over all routes, however many were asked for.
    pub fn begin_refreshes(&mut self) {
        let begun: BTreeSet<Family> = self.asked.iter().copied().filter(|family| self.may_begin(*family)).collect();
        if begun.is_empty() {
            return;
        }
        self.asked.retain(|family| !begun.contains(family));
        self.refreshes.extend(begun.iter().map(|family| (*family, Refresh::Begin)));
        let pending = &mut self.pending;
        self.table.change_all(|key, entry| {
            if begun.contains(&key.prefix.family()) {
                entry.tell_again();
                if entry.is_pending() {
                    pending.push(key);
                }
            }
        });
    }

    /// The next UPDATEs, at most `limit` octets of them, to be written where `position` octets of the connection precede them. Withdrawals come first;
    /// End-of-RIB of a family follows its first whole set (RFC 4724 §2). Empty where nothing is pending or `limit` is below a message's greatest length.
    pub fn next(&mut self, position: u64, limit: usize) -> Batch {
        let mut batch = Batch::default();
        let longest = self.exporter.negotiated().max_send_length;
        if limit < longest {
            return batch;
        }
        self.pending.group(&mut self.table);
        while batch.octets.len() + longest <= limit {
            match self.next_message(position, &mut batch.octets) {
                Some(Written::Update) => batch.updates += 1,
                Some(Written::Mark) => batch.marks += 1,
                None => break,
            }
            self.written = position_after(position, &batch.octets);
        }
        let mut withdrawn = std::mem::take(&mut self.withdrawn);
        withdrawn.sort();
        self.table.sweep(&withdrawn);
        batch
    }

    /// TCP has acknowledged the first `octets` octets of the connection: the peer's host has them.
    pub fn acknowledged(&mut self, octets: u64) {
        self.acknowledged = self.acknowledged.max(octets);
        self.withdrawals.acknowledged(self.acknowledged);
    }

    /// The destinations that the peer was told and that are not being withdrawn.
    pub fn advertised(&self) -> impl Iterator<Item = Prefix> {
        self.table.advertised().map(|key| key.prefix)
    }

    /// How many paths those are.
    #[must_use]
    pub fn advertised_count(&self) -> usize {
        self.table.advertised_count()
    }

    /// How many of them, of one family, other peers have told.
    #[must_use]
    pub const fn reflected_count(&self, family: Family) -> usize {
        self.table.reflected_count(family)
    }

    /// The destinations of routes that start here and are to be withdrawn, or are withdrawn by an UPDATE that TCP has not acknowledged: the peer may
    /// still hold them. One for which a route of another peer takes the place of ours is among them.
    pub fn withdrawing(&self) -> impl Iterator<Item = Prefix> {
        self.table.leaving().map(|key| key.prefix).chain(self.withdrawals.prefixes())
    }

    /// The destinations of the routes that start here and are not announced, and why.
    #[must_use]
    pub const fn withheld(&self) -> &BTreeMap<Prefix, Withheld> {
        &self.refusals.own
    }

    /// The destinations of routes of other peers that this one might have and cannot be told, and why.
    #[must_use]
    pub const fn withheld_learned(&self) -> &BTreeMap<Prefix, Withheld> {
        &self.refusals.learned
    }

    /// Whether all of the first whole set is written.
    #[must_use]
    pub fn is_told(&self) -> bool {
        self.complete && self.end_of_rib_owed.is_empty()
    }

    /// Whether the peer's host has everything: a set was given, nothing is pending, and every UPDATE is acknowledged.
    #[must_use]
    pub fn is_synced(&self) -> bool {
        let pending = |key| self.table.get(key).is_some_and(Entry::is_pending);
        self.is_told()
            && self.asked.is_empty()
            && self.refreshes.is_empty()
            && self.written <= self.acknowledged
            && !self.pending.keys().any(pending)
    }

    /// Appends the next message; `None` where none is pending.
    fn next_message(&mut self, position: u64, out: &mut Vec<u8>) -> Option<Written> {
        for family in Family::ALL {
            if self.withdraw(family, position, out) {
                return Some(Written::Update);
            }
        }
        for family in Family::ALL {
            if self.mark(family, Refresh::Begin, out) {
                return Some(Written::Mark);
            }
            if self.announce(family, position, out) || self.end_of_rib(family, out) {
                return Some(Written::Update);
            }
            if self.mark(family, Refresh::End, out) {
                return Some(Written::Mark);
            }
        }
        None
    }

    /// A refresh that has come to this point goes on. Whether a mark was appended for that.
    fn mark(&mut self, family: Family, point: Refresh, out: &mut Vec<u8>) -> bool {
        if self.refreshes.get(&family) != Some(&point) {
            return false;
        }
        let mark = if point == Refresh::Begin {
            self.refreshes.insert(family, Refresh::End);
            RouteRefresh::beginning(family)
        } else {
            self.refreshes.remove(&family);
            RouteRefresh::end(family)
        };
        let marked = self.exporter.negotiated().enhanced_route_refresh;
        if marked {
            out.extend_from_slice(&mark.encode());
        }
        marked
    }

    /// Appends an UPDATE that withdraws as many of the pending destinations as fit.
    fn withdraw(&mut self, family: Family, position: u64, out: &mut Vec<u8>) -> bool {
        let Some(run) = self.pending.withdrawals(family) else { return false };
        let count = encode_withdrawal(family, run.rest(), self.exporter.negotiated(), out);
        let withdrawn = run.take(count);
        let mut ours = Vec::new();
        self.table.change_each(withdrawn, |key, entry| {
            if entry.is_ours_told() {
                ours.push(key);
            }
            *entry = Entry::default();
        });
        self.withdrawn.extend_from_slice(withdrawn);
        if !ours.is_empty() {
            self.withdrawals.written(position_after(position, out), ours);
        }
        true
    }

    /// Appends an UPDATE that announces as many of the pending destinations of one route as fit.
    fn announce(&mut self, family: Family, position: u64, out: &mut Vec<u8>) -> bool {
        while let Some(group) = self.pending.first_group(family) {
            if group.run.is_empty() {
                self.pending.pop_group(family);
                continue;
            }
            let written = self.exporter.outgoing(&group.route, family).and_then(|(attributes, next_hop)| {
                encode_announcement(&attributes, next_hop, family, group.run.rest(), self.exporter.negotiated(), out)
                    .map_err(|error| withheld(error, family))
            });
            match written {
                Ok(count) => {
                    let mut replaced = Vec::new();
                    let (table, route, withdrawals) = (&mut self.table, &group.route, &mut self.withdrawals);
                    table.change_each(group.run.take(count), |key, entry| {
                        if route.learned.is_none() {
                            withdrawals.announced(&key);
                        } else if entry.is_leaving() {
                            replaced.push(key);
                        }
                        entry.is_written();
                    });
                    if !replaced.is_empty() {
                        self.withdrawals.written(position_after(position, out), replaced);
                    }
                    return true;
                }
                Err(reason) => {
                    self.refuse(family, reason);
                    if self.withdraw(family, position, out) {
                        return true;
                    }
                }
            }
        }
        false
    }

    /// The first pending group cannot be told: what the peer holds of its destinations is out of date, and is withdrawn.
    fn refuse(&mut self, family: Family, reason: Withheld) {
        let Some(group) = self.pending.pop_group(family) else { return };
        let keys = group.run.rest();
        for key in keys {
            self.refusals.insert(key.prefix, &group.route, reason);
        }
        let pending = &mut self.pending;
        self.table.change_each(keys, |key, entry| {
            entry.want(None);
            if entry.is_pending() {
                pending.withdraw(key);
            }
        });
        self.table.sweep(keys);
    }

    /// Appends the End-of-RIB of a family that has nothing pending, once a session (RFC 4724 §2).
    fn end_of_rib(&mut self, family: Family, out: &mut Vec<u8>) -> bool {
        if !self.complete || self.deferred || !self.end_of_rib_owed.remove(&family) {
            return false;
        }
        let Ok(octets) = Message::Update(Update::end_of_rib(family)).encode(self.exporter.negotiated()) else { return false };
        out.extend_from_slice(&octets);
        true
    }
}

/// Finds what the peer holds already with the same octets: a route of ours that differs only in what it is not told, such as which peers are told at all,
/// or LOCAL_PREF for an external one; and what it holds with others, though the route is the same.
struct Sameness<'a> {
    /// By which it was told what it holds, where that is another one.
    old: Option<&'a Exporter>,
    exporter: &'a Exporter,
    /// The last comparison: its neighbours tend to be between the same two routes.
    last: Option<(Compared, Held)>,
}

/// What is compared: the route that was told, and the one that is wanted, by where they are in memory.
type Compared = (Family, *const Route, Option<*const Route>);

/// The octets that the peer holds.
#[derive(Clone, Copy)]
enum Held {
    /// They are those that are wanted.
    Wanted,
    /// They are those of the route that was told.
    Told,
    /// They are of no route by the policy of now.
    Former,
}

impl<'a> Sameness<'a> {
    const fn new(old: Option<&'a Exporter>, exporter: &'a Exporter) -> Self {
        Self { old, exporter, last: None }
    }

    /// What the peer holds already is not told once more.
    fn settle(&mut self, key: Nlri, entry: &mut Entry) {
        if entry.is_again() {
            return;
        }
        let Some(told) = entry.told() else { return };
        let wanted = entry.wanted();
        if self.old.is_none() && wanted.is_none_or(|wanted| told == wanted || !self.may_be_the_same(told, wanted)) {
            return;
        }
        let family = key.prefix.family();
        let about = (family, Arc::as_ptr(told), wanted.map(Arc::as_ptr));
        let held = match self.last {
            Some((known, held)) if known == about => held,
            _ => self.compare(family, told, wanted),
        };
        self.last = Some((about, held));
        match held {
            Held::Wanted => entry.is_written(),
            Held::Told => {}
            Held::Former => entry.tell_again(),
        }
    }

    fn may_be_the_same(&self, told: &Route, wanted: &Route) -> bool {
        let stays_ours = told.learned.is_none() == wanted.learned.is_none();
        // An internal peer is told all that a route of another peer has.
        let is_told_whole = self.exporter.negotiated().internal && wanted.learned.is_some();
        stays_ours && !is_told_whole
    }

    fn compare(&self, family: Family, told: &Arc<Route>, wanted: Option<&Arc<Route>>) -> Held {
        let held = self.old.unwrap_or(self.exporter).outgoing(told, family);
        let settles =
            |wanted: &Arc<Route>| (told == wanted || self.may_be_the_same(told, wanted)) && held == self.exporter.outgoing(wanted, family);
        if wanted.is_some_and(settles) {
            Held::Wanted
        } else if self.old.is_none() || held == self.exporter.outgoing(told, family) {
            Held::Told
        } else {
            Held::Former
        }
    }
}

/// What was appended.
enum Written {
    Update,
    Mark,
}

/// Why a route cannot be told, in the words of policy.
const fn withheld(error: EncodeError, family: Family) -> Withheld {
    match error {
        EncodeError::TooLong { .. } => Withheld::TooLong,
        EncodeError::NextHop { .. } => Withheld::NoNextHop(family),
    }
}

/// Where `out` ends, when it begins at `position`.
fn position_after(position: u64, out: &[u8]) -> u64 {
    position.saturating_add(u64::try_from(out.len()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests;
