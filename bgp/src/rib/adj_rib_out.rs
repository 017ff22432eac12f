// SPDX-License-Identifier: Apache-2.0
//! What one peer was told (RFC 4271 §3.2, Adj-RIBs-Out), and what is still to be told.
//!
//! Input: whole sets of routes, requests for a refresh, how many octets may be written, and how many TCP has acknowledged. Output: UPDATEs in octets.
//! What is pending is not a queue of changes but the difference between the set that is wanted and what was told, so changes that cancel each other
//! out before they are written cost nothing. Work and memory are in proportion to the routes, whatever the peer reads.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use super::export::Exporter;
use super::{Export, LocRib, LocalAddresses, Route, Withheld};
use crate::prefix::{Family, Prefix};
use crate::wire::{EncodeError, MAX_MESSAGE_LENGTH, Message, Negotiated, Nlri, Update, encode_announcement, encode_withdrawal};

/// The routes of one session from us to the peer. It ends with the session.
#[derive(Debug)]
pub struct AdjRibOut {
    exporter: Exporter,
    wanted: Option<Arc<LocRib>>,
    told: BTreeMap<Prefix, Told>,
    pending: Pending,
    withdrawals: Withdrawals,
    refused: BTreeMap<Prefix, Withheld>,
    end_of_rib_owed: BTreeSet<Family>,
    /// Where on the connection the last UPDATE ends.
    written: u64,
    acknowledged: u64,
}

/// What the peer holds of one destination, as far as UPDATEs were written.
#[derive(Debug)]
struct Told {
    route: Arc<Route>,
    /// To be withdrawn.
    leaving: bool,
    /// To be announced again, though nothing changed.
    again: bool,
}

/// Some UPDATEs.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Batch {
    /// Whole messages.
    pub octets: Vec<u8>,
    /// How many.
    pub updates: u64,
}

impl AdjRibOut {
    /// That of a session which has just become Established: the peer holds nothing. Nothing is to be told either, not even that there is nothing,
    /// before the first [`set`](Self::set).
    #[must_use]
    pub fn new(export: Export, negotiated: Negotiated, local: LocalAddresses) -> Self {
        Self {
            end_of_rib_owed: negotiated.families.clone(),
            exporter: Exporter::new(export, negotiated, local),
            wanted: None,
            told: BTreeMap::new(),
            pending: Pending::default(),
            withdrawals: Withdrawals::default(),
            refused: BTreeMap::new(),
            written: 0,
            acknowledged: 0,
        }
    }

    /// From now on the peer is to hold exactly these routes. The same `Arc` again costs nothing, any other set one pass.
    pub fn set(&mut self, rib: &Arc<LocRib>) {
        if self.wanted.as_ref().is_none_or(|wanted| !Arc::ptr_eq(wanted, rib)) {
            self.wanted = Some(Arc::clone(rib));
            self.compare();
        }
    }

    /// The peer asked for all routes of this family (RFC 2918 §4). Ignored where the family was not negotiated.
    pub fn refresh(&mut self, family: Family) {
        for (_, told) in self.told.iter_mut().filter(|(prefix, _)| prefix.family() == family) {
            told.again = true;
        }
        self.compare();
    }

    /// The next UPDATEs, at most `limit` octets of them, to be written where `position` octets of the connection precede them. Withdrawals come first;
    /// End-of-RIB of a family follows its first whole set (RFC 4724 §2). Empty where nothing is pending or `limit` is below a message's greatest length.
    pub fn next(&mut self, position: u64, limit: usize) -> Batch {
        let mut batch = Batch::default();
        while batch.octets.len() + MAX_MESSAGE_LENGTH <= limit && self.next_update(position, &mut batch.octets) {
            batch.updates += 1;
            self.written = position_after(position, &batch.octets);
        }
        batch
    }

    /// TCP has acknowledged the first `octets` octets of the connection: the peer's host has them.
    pub fn acknowledged(&mut self, octets: u64) {
        self.acknowledged = self.acknowledged.max(octets);
        self.withdrawals.acknowledged(self.acknowledged);
    }

    /// The destinations that the peer was told and that are not being withdrawn.
    pub fn advertised(&self) -> impl Iterator<Item = Prefix> {
        self.told.iter().filter(|(_, told)| !told.leaving).map(|(prefix, _)| *prefix)
    }

    /// The destinations that are to be withdrawn, or are withdrawn by an UPDATE that TCP has not acknowledged: the peer may still hold them.
    pub fn withdrawing(&self) -> impl Iterator<Item = Prefix> {
        let leaving = self.told.iter().filter(|(_, told)| told.leaving).map(|(prefix, _)| *prefix);
        leaving.chain(self.withdrawals.last.keys().copied())
    }

    /// The destinations of the wanted set that are not announced, and why.
    #[must_use]
    pub fn withheld(&self) -> BTreeMap<Prefix, Withheld> {
        let reason = |prefix: Prefix| self.exporter.next_hop(prefix.family()).err().or_else(|| self.refused.get(&prefix).copied());
        let wanted = self.wanted.iter().flat_map(|rib| rib.routes());
        wanted.filter_map(|(prefix, _)| Some((prefix, reason(prefix)?))).collect()
    }

    /// Whether the peer's host has everything: a set was given, nothing is pending, and every UPDATE is acknowledged.
    #[must_use]
    pub fn is_synced(&self) -> bool {
        self.wanted.is_some() && self.pending.is_empty() && self.end_of_rib_owed.is_empty() && self.written <= self.acknowledged
    }

    /// Makes `pending` the difference between what is wanted and what was told: one pass over two sorted sets.
    fn compare(&mut self) {
        let Some(rib) = &self.wanted else { return };
        self.pending = Pending::default();
        self.refused.clear();
        let mut announce = Announcements::default();
        let sendable = Family::ALL.map(|family| (family, self.exporter.next_hop(family).is_ok()));
        let mut wanted = rib.routes().filter(|(prefix, _)| sendable.contains(&(prefix.family(), true))).peekable();
        for (&prefix, told) in &mut self.told {
            while let Some((new, route)) = wanted.next_if(|(other, _)| *other < prefix) {
                announce.add(new, route);
            }
            let same = wanted.next_if(|(other, _)| *other == prefix);
            told.leaving = same.is_none();
            match same {
                Some((_, route)) if told.again || *told.route != **route => announce.add(prefix, route),
                Some(_) => {}
                None => self.pending.withdraw.entry(prefix.family()).or_default().push(prefix),
            }
        }
        for (new, route) in wanted {
            announce.add(new, route);
        }
        self.pending.announce = announce.groups;
    }

    /// Appends the next UPDATE; false where none is pending.
    fn next_update(&mut self, position: u64, out: &mut Vec<u8>) -> bool {
        for family in Family::ALL {
            if self.withdraw(family, position, out) {
                return true;
            }
        }
        for family in Family::ALL {
            if self.announce(family, position, out) || self.end_of_rib(family, out) {
                return true;
            }
        }
        false
    }

    /// Appends an UPDATE that withdraws as many of the pending destinations as fit.
    fn withdraw(&mut self, family: Family, position: u64, out: &mut Vec<u8>) -> bool {
        let Some(run) = self.pending.withdraw.get_mut(&family).filter(|run| !run.is_empty()) else { return false };
        let count = encode_withdrawal(family, run.rest(), self.exporter.negotiated(), out);
        let withdrawn: Vec<_> = run.take(count).iter().map(|route| route.prefix).collect();
        for prefix in &withdrawn {
            self.told.remove(prefix);
        }
        self.withdrawals.written(position_after(position, out), withdrawn);
        true
    }

    /// Appends an UPDATE that announces as many of the pending destinations of one route as fit.
    fn announce(&mut self, family: Family, position: u64, out: &mut Vec<u8>) -> bool {
        let Ok(next_hop) = self.exporter.next_hop(family) else { return false };
        while let Some(group) = self.pending.announce.get_mut(&family).and_then(VecDeque::front_mut) {
            let attributes = self.exporter.attributes(&group.route);
            match encode_announcement(&attributes, next_hop, family, group.run.rest(), self.exporter.negotiated(), out) {
                Ok(count) if count > 0 => {
                    for &Nlri { prefix, .. } in group.run.take(count) {
                        self.told.insert(prefix, Told { route: Arc::clone(&group.route), leaving: false, again: false });
                        self.withdrawals.last.remove(&prefix);
                    }
                    return true;
                }
                // The group is done.
                Ok(_) => drop(self.pending.announce.get_mut(&family).and_then(VecDeque::pop_front)),
                Err(error) => {
                    self.refuse(family, error);
                    if self.withdraw(family, position, out) {
                        return true;
                    }
                }
            }
        }
        false
    }

    /// The first pending group cannot be told: what the peer holds of its destinations is out of date, and is withdrawn.
    fn refuse(&mut self, family: Family, error: EncodeError) {
        let reason = match error {
            EncodeError::TooLong { .. } => Withheld::TooLong,
            EncodeError::NextHop { .. } => Withheld::NoNextHop(family),
        };
        let group = self.pending.announce.get_mut(&family).and_then(VecDeque::pop_front);
        for &Nlri { prefix, .. } in group.iter().flat_map(|group| group.run.rest()) {
            self.refused.insert(prefix, reason);
            if let Some(told) = self.told.get_mut(&prefix) {
                told.leaving = true;
                self.pending.withdraw.entry(family).or_default().push(prefix);
            }
        }
    }

    /// Appends the End-of-RIB of a family that has nothing pending, once a session (RFC 4724 §2).
    fn end_of_rib(&mut self, family: Family, out: &mut Vec<u8>) -> bool {
        if self.wanted.is_none() || !self.end_of_rib_owed.remove(&family) {
            return false;
        }
        Message::Update(Update::end_of_rib(family)).encode(self.exporter.negotiated()).is_ok_and(|octets| {
            out.extend_from_slice(&octets);
            true
        })
    }
}

/// Where `out` ends, when it begins at `position`.
fn position_after(position: u64, out: &[u8]) -> u64 {
    position.saturating_add(u64::try_from(out.len()).unwrap_or(u64::MAX))
}

/// What is to be told.
#[derive(Debug, Default)]
struct Pending {
    withdraw: BTreeMap<Family, Run>,
    announce: BTreeMap<Family, VecDeque<Group>>,
}

impl Pending {
    fn is_empty(&self) -> bool {
        self.withdraw.values().all(Run::is_empty) && self.announce.values().flatten().all(|group| group.run.is_empty())
    }
}

/// Destinations of one family with the same route.
#[derive(Debug)]
struct Group {
    route: Arc<Route>,
    run: Run,
}

/// Destinations that are taken from the front.
#[derive(Debug, Default)]
struct Run {
    routes: Vec<Nlri>,
    taken: usize,
}

impl Run {
    fn push(&mut self, prefix: Prefix) {
        self.routes.push(prefix.into());
    }

    fn rest(&self) -> &[Nlri] {
        self.routes.get(self.taken..).unwrap_or_default()
    }

    fn is_empty(&self) -> bool {
        self.rest().is_empty()
    }

    /// The next `count`, which are then no longer in the rest.
    fn take(&mut self, count: usize) -> &[Nlri] {
        let from = self.taken;
        self.taken = from.saturating_add(count).min(self.routes.len());
        self.routes.get(from..self.taken).unwrap_or_default()
    }
}

/// Collects destinations into groups. Routes are one where their `Arc` is.
#[derive(Debug, Default)]
struct Announcements {
    groups: BTreeMap<Family, VecDeque<Group>>,
    index: BTreeMap<(Family, *const Route), usize>,
}

impl Announcements {
    fn add(&mut self, prefix: Prefix, route: &Arc<Route>) {
        let groups = self.groups.entry(prefix.family()).or_default();
        let at = *self.index.entry((prefix.family(), Arc::as_ptr(route))).or_insert_with(|| {
            groups.push_back(Group { route: Arc::clone(route), run: Run::default() });
            groups.len() - 1
        });
        if let Some(group) = groups.get_mut(at) {
            group.run.push(prefix);
        }
    }
}

/// The withdrawals that were written and that TCP has not acknowledged.
#[derive(Debug, Default)]
struct Withdrawals {
    /// What each UPDATE withdrew, with its end on the connection, in the order written.
    updates: VecDeque<(u64, Vec<Prefix>)>,
    /// The end of the last UPDATE that withdrew the destination, unless it was announced again after that.
    last: BTreeMap<Prefix, u64>,
}

impl Withdrawals {
    fn written(&mut self, end: u64, prefixes: Vec<Prefix>) {
        self.last.extend(prefixes.iter().map(|prefix| (*prefix, end)));
        self.updates.push_back((end, prefixes));
    }

    fn acknowledged(&mut self, octets: u64) {
        while let Some((end, prefixes)) = self.updates.pop_front_if(|(end, _)| *end <= octets) {
            for prefix in prefixes {
                if self.last.get(&prefix) == Some(&end) {
                    self.last.remove(&prefix);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
