// SPDX-License-Identifier: Apache-2.0
//! A map by path whose entries stand in order in parts of bounded length.
//!
//! Input: keys that come in order, many at once. Output: the entries there. What many keys ask for is one walk over the parts that they are in; the rest
//! is not touched.
//!
//! Invariants: the entries are in order, none has the key of another, and no part is empty or longer than [`IN_ONE_PART`].

use std::ops::RangeInclusive;

use crate::wire::Nlri;

/// Entries in one part: what is moved to put one in.
const IN_ONE_PART: usize = 128;

/// Entries that are passed over one by one before the next key is searched for.
const NEAR: usize = 8;

type Part<V> = Vec<(Nlri, V)>;

/// The map.
#[derive(Debug)]
pub(super) struct Parts<V> {
    parts: Vec<Part<V>>,
    length: usize,
}

impl<V> Default for Parts<V> {
    fn default() -> Self {
        Self { parts: Vec::new(), length: 0 }
    }
}

impl<V> Parts<V> {
    /// How many entries there are.
    pub(super) const fn len(&self) -> usize {
        self.length
    }

    /// All entries, in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&Nlri, &V)> {
        self.parts.iter().flatten().map(|(key, value)| (key, value))
    }

    /// All entries, in order.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (Nlri, &mut V)> {
        self.parts.iter_mut().flatten().map(|(key, value)| (*key, value))
    }

    /// The entry of this key.
    pub(super) fn get(&self, key: &Nlri) -> Option<&V> {
        self.range(*key..=*key).next().map(|(_, value)| value)
    }

    /// The entries of these keys, in order.
    pub(super) fn range(&self, keys: RangeInclusive<Nlri>) -> impl Iterator<Item = (&Nlri, &V)> {
        let behind = self.parts.get(part_of(&self.parts, keys.start())..).unwrap_or_default();
        let first = behind.first().map_or(0, |part| part.partition_point(|(key, _)| key < keys.start()));
        behind.iter().flatten().skip(first).take_while(move |(key, _)| key <= keys.end()).map(|(key, value)| (key, value))
    }

    /// Finds entries whose keys come in order.
    pub(super) const fn cursor(&mut self) -> Cursor<'_, V> {
        Cursor { parts: self.parts.as_mut_slice(), part: 0, place: 0 }
    }

    /// Puts in entries that come in order, and whose keys have none.
    pub(super) fn put_in(&mut self, new: Vec<(Nlri, V)>) {
        self.length += new.len();
        let mut new = new.into_iter();
        let mut at = 0;
        while let Some((first, _)) = new.as_slice().first() {
            // Behind the last part there is no other, and what comes there goes into that.
            let last_part = self.parts.len().saturating_sub(1);
            at = (at + part_of(self.parts.get(at..).unwrap_or_default(), first)).min(last_part);
            let next = self.parts.get(at + 1).and_then(|part| part.first()).map(|(key, _)| *key);
            let count = next.map_or_else(|| new.len(), |next| new.as_slice().partition_point(|(key, _)| *key < next));
            let here = new.by_ref().take(count);
            match self.parts.get_mut(at) {
                Some(part) => {
                    let part = std::mem::take(part);
                    let length = part.len() + count;
                    self.parts.splice(at..=at, in_parts(merge(part, here), length));
                }
                None => self.parts.extend(in_parts(here, count)),
            }
        }
    }

    /// Removes those that have become nothing of the entries with these keys, which come in order. Their neighbours may go as well.
    pub(super) fn sweep(&mut self, keys: &[Nlri], is_nothing: impl Fn(&V) -> bool) {
        let mut keys = keys.iter().peekable();
        let (mut at, mut is_empty) = (0, false);
        while let Some(key) = keys.next() {
            at += part_of(self.parts.get(at..).unwrap_or_default(), key);
            let Some((before, part)) = self.parts.split_at_mut_checked(at).and_then(|(before, behind)| Some((before, behind.first_mut()?)))
            else {
                break;
            };
            let last = part.last().map(|(key, _)| *key);
            while keys.next_if(|key| Some(**key) <= last).is_some() {}
            let length = part.len();
            part.retain(|(_, value)| !is_nothing(value));
            self.length -= length - part.len();
            // Few that are left go to their neighbours.
            if let Some(neighbour) = before.last_mut().filter(|neighbour| neighbour.len() + part.len() <= IN_ONE_PART / 2) {
                neighbour.append(part);
            }
            is_empty |= part.is_empty();
            at += 1;
        }
        if is_empty {
            self.parts.retain(|part| !part.is_empty());
        }
    }

    /// Removes all entries that have become nothing.
    pub(super) fn sweep_all(&mut self, is_nothing: impl Fn(&V) -> bool) {
        self.parts.iter_mut().for_each(|part| part.retain(|(_, value)| !is_nothing(value)));
        self.parts.retain(|part| !part.is_empty());
        self.length = self.parts.iter().map(Vec::len).sum();
    }
}

/// A place among the entries, which moves on only.
pub(super) struct Cursor<'a, V> {
    parts: &'a mut [Part<V>],
    part: usize,
    place: usize,
}

impl<V> Cursor<'_, V> {
    /// Moves on to the first entry that is not before this key.
    pub(super) fn seek(&mut self, key: &Nlri) {
        let behind = self.parts.get(self.part..).unwrap_or_default();
        let parts = part_of(behind, key);
        if parts > 0 {
            self.part += parts;
            self.place = 0;
        }
        let rest = behind.get(parts).and_then(|part| part.get(self.place..)).unwrap_or_default();
        let near = rest.iter().take(NEAR).take_while(|(other, _)| other < key).count();
        self.place += if near < NEAR { near } else { rest.partition_point(|(other, _)| other < key) };
    }

    /// The entry there, unless it is behind this key: then the place is behind that entry.
    pub(super) fn next_to(&mut self, last: &Nlri) -> Option<(Nlri, &mut V)> {
        if self.parts.get(self.part).is_some_and(|part| part.len() <= self.place) {
            self.part += 1;
            self.place = 0;
        }
        let (key, value) = self.parts.get_mut(self.part)?.get_mut(self.place).filter(|(key, _)| key <= last)?;
        self.place += 1;
        Some((*key, value))
    }
}

/// How many of these parts are before the one where the key is or would be put, which may be none of them.
fn part_of<V>(parts: &[Part<V>], key: &Nlri) -> usize {
    let ends_before = |part: &Part<V>| part.last().is_some_and(|(last, _)| last < key);
    match parts {
        [first, ..] if !ends_before(first) => 0,
        _ => parts.partition_point(ends_before),
    }
}

/// Both in order; no key is in both.
fn merge<V>(old: Part<V>, new: impl Iterator<Item = (Nlri, V)>) -> impl Iterator<Item = (Nlri, V)> {
    let (mut old, mut new) = (old.into_iter().peekable(), new.peekable());
    std::iter::from_fn(move || match new.peek() {
        Some((key, _)) => old.next_if(|(other, _)| other < key).or_else(|| new.next()),
        None => old.next(),
    })
}

/// So many entries in parts that are about equal.
fn in_parts<V>(mut entries: impl Iterator<Item = (Nlri, V)>, count: usize) -> impl Iterator<Item = Part<V>> {
    let each = count.div_ceil(count.div_ceil(IN_ONE_PART).max(1));
    let mut rest = count;
    std::iter::from_fn(move || {
        let here = each.min(rest);
        rest -= here;
        let mut part = Vec::with_capacity(here);
        part.extend(entries.by_ref().take(here));
        Some(part).filter(|part| !part.is_empty())
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::net::IpAddr;

    use proptest::prelude::*;

    use super::*;
    use crate::prefix::Prefix;

    /// Two paths to each destination.
    fn key(number: u16) -> Nlri {
        let address = IpAddr::from((0x0A00_0000 + u32::from(number / 2)).to_be_bytes());
        Nlri { prefix: Prefix::host(address), path_id: u32::from(number % 2) }
    }

    proptest! {
        #[test]
        fn it_is_the_map_that_all_steps_make(
            steps in proptest::collection::vec((proptest::collection::btree_set(0..900_u16, 0..400), 0..3_u8), 1..16),
            ranges in proptest::collection::vec((0..900_u16, 0..5_u16), 1..40),
        ) {
            let (mut parts, mut model) = (Parts::default(), BTreeMap::new());
            for (step, (numbers, kind)) in steps.into_iter().enumerate() {
                let keys: Vec<_> = numbers.into_iter().map(key).collect();
                match kind {
                    0 => {
                        let new: Vec<_> = keys.into_iter().filter(|key| !model.contains_key(key)).map(|key| (key, Some(step))).collect();
                        model.extend(new.iter().copied());
                        parts.put_in(new);
                    }
                    1 => {
                        let mut cursor = parts.cursor();
                        for key in &keys {
                            cursor.seek(key);
                            if let Some((found, value)) = cursor.next_to(key) {
                                prop_assert_eq!(found, *key);
                                *value = None;
                            }
                            prop_assert_eq!(cursor.next_to(key), None);
                        }
                        parts.sweep(&keys, Option::is_none);
                        model.retain(|key, _| !keys.contains(key));
                    }
                    _ => {
                        for (key, value) in parts.iter_mut() {
                            *value = value.filter(|_| !keys.contains(&key));
                        }
                        parts.sweep_all(Option::is_none);
                        model.retain(|key, _| !keys.contains(key));
                    }
                }
                prop_assert!(parts.iter().eq(model.iter()));
                prop_assert_eq!(parts.len(), model.len());
                prop_assert!(parts.parts.iter().all(|part| (1..=IN_ONE_PART).contains(&part.len())));
            }
            let mut ranges: Vec<_> = ranges.into_iter().map(|(first, more)| key(first)..=key(first + more)).collect();
            for range in &ranges {
                prop_assert!(parts.range(range.clone()).eq(model.range(range.clone())));
                prop_assert_eq!(parts.get(range.start()), model.get(range.start()));
            }
            ranges.sort_by_key(|range| *range.start());
            ranges.dedup_by(|later, earlier| later.start() <= earlier.end());
            let mut cursor = parts.cursor();
            for range in ranges {
                cursor.seek(range.start());
                let mut found = Vec::new();
                while let Some((key, value)) = cursor.next_to(range.end()) {
                    found.push((key, *value));
                }
                prop_assert!(found.into_iter().eq(model.range(range).map(|(key, value)| (*key, *value))));
            }
        }
    }
}
