// SPDX-License-Identifier: Apache-2.0
//! The ownership record: the nft table `inet <instance>`, whose sets list the addresses that we placed and those that we are about to place.
//!
//! Input: what to add to the record or take out of it. Output: the record as it is. Invariants: every change is one transaction of `nft`, which is
//! made whole or not at all, but that of who balances, which is a few; it says the same whatever the table held before, so that it can be repeated; nothing in the table but our own sets
//! is touched; a table that cannot be read is an error, never an empty record.

mod listing;
mod script;

use std::collections::{BTreeMap, BTreeSet};

use self::listing::Listed;
pub(super) use self::listing::{element, service};
pub(super) use self::script::PLACED;
use self::script::{INTERFACE, PENDING, PENDING_RANGES, PENDING_SERVICES, RANGES, SERVICES};
use super::nft::{NftError, nft, sets};
use crate::desired::{Chain, Filter, Rules, ServiceKey};
use crate::observed::Record;
use crate::plan::{Entries, RangeMove};

/// Why the record cannot be read or changed.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// The instance's name cannot be that of an nft table.
    #[error("the instance name {0:?} cannot name an nft table: it must be 1 to 63 of [a-z0-9-] and start with a letter")]
    Name(String),
    /// The interface's name cannot be written into the table.
    #[error("the interface name {0:?} must be 1 to 15 letters, digits or one of . _ - @ :")]
    Interface(String),
    /// `nft` did not do it.
    #[error(transparent)]
    Nft(#[from] NftError),
    /// `nft` wrote something unexpected.
    #[error("cannot understand what nft lists of table inet {table}; if somebody gave the table flags, delete it: it is made again")]
    Listing {
        /// The table.
        table: String,
        /// Where it went wrong.
        #[source]
        source: serde_json::Error,
    },
    /// Something has the name of a part of the record, and somebody else made it.
    #[error(
        "table inet {table} has a set, map or chain {name} which vipherald did not make, in the place of its own; nothing of the table is changed: give this \
         instance another name, or take {name} out of the table"
    )]
    NotOurs {
        /// The table.
        table: String,
        /// The name of the first of them.
        name: String,
    },
    /// A record that is to be dropped still lists addresses.
    #[error("table inet {table} still lists addresses, so it stays")]
    NotEmpty {
        /// The table.
        table: String,
    },
}

/// A change to the record.
#[derive(Clone, Copy, Debug)]
pub(super) enum Change<'a> {
    /// These are about to be placed.
    Pending(&'a Entries),
    /// These are placed, and ours.
    Confirmed(&'a Entries),
    /// These are gone, or not ours.
    Removed(&'a Entries),
    /// Nothing more comes to the ports of these.
    Closed(&'a BTreeSet<ServiceKey>),
    /// It does again.
    Opened(&'a BTreeSet<ServiceKey>),
    /// Ranges of ports take the places of others.
    Moved(&'a RangeMove),
    /// These are to be the filters of their virtual services.
    Filters(&'a BTreeMap<ServiceKey, Filter>),
    /// The chains are to do this, or to be gone.
    Rules(Option<&'a Rules>),
    /// The same, where a chain that is there has another type, hook or priority.
    RulesAnew(Option<&'a Rules>),
}

/// The table of one instance, and what is known of it.
#[derive(Debug)]
pub(super) struct Table {
    name: String,
    interface: String,
    known: Record,
    /// Whether the table may differ from what is known.
    stale: bool,
    /// What somebody has put in the place of a part of it, as read last: until that is gone, nothing is changed.
    not_ours: Option<String>,
    /// The processes that changed the table for us and were not taken yet.
    processes: BTreeSet<u32>,
}

impl Table {
    /// Checks that `nft` can make the table, and reads it. Gives the other interfaces on which it has addresses.
    pub(super) async fn open(instance: &str, interface: &str) -> Result<(Self, BTreeSet<String>), RecordError> {
        if !is_table_name(instance) {
            return Err(RecordError::Name(instance.to_owned()));
        }
        if !is_interface_name(interface) {
            return Err(RecordError::Interface(interface.to_owned()));
        }
        let (name, interface) = (instance.to_owned(), interface.to_owned());
        let mut table = Self { name, interface, known: Record::default(), stale: true, not_ours: None, processes: BTreeSet::new() };
        let listed = table.list().await?;
        nft(&["-c", "-f", "-"], &script::layout(&table.name, &table.interface), &format!("make table inet {instance}")).await?;
        let former: BTreeSet<String> = listed.interfaces.into_iter().filter(|recorded| *recorded != table.interface).collect();
        table.known = listed.record;
        table.stale = false;
        Ok((table, former))
    }

    /// Its name, which is that of the instance.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// The interface that the addresses are on.
    pub(super) fn interface(&self) -> &str {
        &self.interface
    }

    /// The record as last read, with the changes that were made since.
    pub(super) const fn known(&self) -> &Record {
        &self.known
    }

    /// The ids, and netlink ports, of the processes that changed the table for us since the last call.
    pub(super) fn take_processes(&mut self) -> BTreeSet<u32> {
        std::mem::take(&mut self.processes)
    }

    /// Somebody else may have changed the table.
    pub(super) const fn suspect(&mut self) {
        self.stale = true;
    }

    /// Whether the table may differ from what is known.
    pub(super) const fn is_suspect(&self) -> bool {
        self.stale
    }

    /// Reads the table where it may differ from what is known.
    pub(super) async fn refresh(&mut self) -> Result<(), RecordError> {
        if self.stale {
            let listed = self.list().await;
            self.not_ours = match &listed {
                Err(RecordError::NotOurs { name, .. }) => Some(name.clone()),
                _ => None,
            };
            self.known = listed?.record;
            self.stale = false;
        }
        Ok(())
    }

    /// Names the interface as one that the addresses are on, and those that are `left` no more.
    pub(super) async fn name_interface(&mut self, left: &BTreeSet<String>) -> Result<(), RecordError> {
        let script = script::layout(&self.name, &self.interface) + &script::leave(&self.name, left);
        self.transact(&script).await
    }

    /// Makes one change in one transaction.
    pub(super) async fn change(&mut self, change: Change<'_>) -> Result<(), RecordError> {
        self.change_with(change, "").await
    }

    /// As [`Self::change`], in one transaction with other tables, of which `more` is the script.
    pub(super) async fn change_with(&mut self, change: Change<'_>, more: &str) -> Result<(), RecordError> {
        let script = script::layout(&self.name, &self.interface) + &script::change(&self.name, change, &self.known) + more;
        self.transact(&script).await?;
        apply(&mut self.known, change);
        Ok(())
    }

    /// Carries out a part of a change of the rules, of which [`Self::change_with`] is the last: the lines of these chains, and those of other tables. Until
    /// then, what is known of the rules stays as it was.
    pub(super) async fn prepare(&mut self, chains: &[Chain], more: &str) -> Result<(), RecordError> {
        let chains: String = chains.iter().map(|chain| chain.script("inet", &self.name)).collect();
        self.transact(&(script::layout(&self.name, &self.interface) + &chains + more)).await
    }

    /// Removes the table, or only our sets where somebody put other things into it, or nothing where somebody's rules use our sets.
    pub(super) async fn remove(&mut self) -> Result<(), RecordError> {
        let listed = self.list().await?;
        if !listed.record.is_empty() {
            self.stale = true;
            return Err(RecordError::NotEmpty { table: self.name.clone() });
        }
        let script = if listed.foreign {
            script::remove_ours(&self.name, &listed.chains, &listed.sets, &listed.maps)
        } else if listed.record.exists {
            script::remove_all(&self.name)
        } else {
            String::new()
        };
        let done = if script.is_empty() { Ok(()) } else { self.transact(&script).await };
        if let Err(RecordError::Nft(NftError::Refused { message, .. })) = &done {
            // A rule of somebody else's refers to a set: what is empty may stay, and must not keep the node from leaving.
            tracing::warn!(table = self.name, message, "somebody uses the empty sets of the ownership record; they stay");
            self.stale = false;
        } else {
            done?;
        }
        self.known = Record::default();
        Ok(())
    }

    /// Carries out a script as one transaction. Until that is known to be done, nothing is known.
    async fn transact(&mut self, script: &str) -> Result<(), RecordError> {
        if let Some(name) = &self.not_ours {
            return Err(RecordError::NotOurs { table: self.name.clone(), name: name.clone() });
        }
        let was_stale = std::mem::replace(&mut self.stale, true);
        let done = nft(&["-f", "-"], script, &format!("change table inet {}", self.name)).await?;
        self.processes.extend(done.process);
        self.stale = was_stale;
        Ok(())
    }

    async fn list(&self) -> Result<Listed, RecordError> {
        let action = format!("list table inet {}", self.name);
        match nft(&["-j", "list", "table", "inet", &self.name], "", &action).await {
            Ok(done) => self.parse(&done.stdout),
            Err(refused @ NftError::Refused { .. }) => {
                // Whether it is refused because there is no such table is told by what there is, not by words.
                let is_there = sets().await?.iter().any(|set| set.table == self.name);
                if is_there { Err(refused.into()) } else { Ok(Listed::default()) }
            }
            Err(error) => Err(error.into()),
        }
    }

    fn parse(&self, json: &[u8]) -> Result<Listed, RecordError> {
        let listed = listing::parse(json, &self.name).map_err(|source| RecordError::Listing { table: self.name.clone(), source })?;
        match listed.not_ours.first() {
            Some(name) => Err(RecordError::NotOurs { table: self.name.clone(), name: name.clone() }),
            None => Ok(listed),
        }
    }
}

fn apply(record: &mut Record, change: Change<'_>) {
    record.exists = true;
    match change {
        Change::Pending(entries) => {
            record.expect(entries);
        }
        Change::Confirmed(entries) => {
            record.confirm(entries);
        }
        Change::Removed(entries) => record.forget(entries),
        Change::Closed(services) => record.close(services),
        Change::Opened(services) => record.open(services),
        Change::Moved(change) => record.move_ranges(change),
        Change::Filters(filters) => record.filter(filters),
        Change::Rules(rules) | Change::RulesAnew(rules) => record.rules = rules.map(Rules::fingerprint_of_record).unwrap_or_default(),
    }
}

/// What a record keeps in a set.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum SetKind {
    /// Addresses that are placed, or are about to be.
    Addresses,
    /// The interface that these are on.
    Interface,
    /// Virtual services.
    Services {
        /// They are about to be made.
        pending: bool,
    },
}

/// What a record keeps in a set of this name with this comment, as far as it concerns other instances.
pub(super) fn set_kind(name: &str, comment: Option<&str>) -> Option<SetKind> {
    comment.filter(|comment| script::comment(name) == Some(comment))?;
    let is_of = |pairs: [script::Pair; 2]| pairs.iter().any(|pair| pair.has(name));
    if is_of([PLACED, PENDING]) {
        Some(SetKind::Addresses)
    } else if name == INTERFACE {
        Some(SetKind::Interface)
    } else if is_of([SERVICES, RANGES]) {
        Some(SetKind::Services { pending: false })
    } else {
        is_of([PENDING_SERVICES, PENDING_RANGES]).then_some(SetKind::Services { pending: true })
    }
}

/// nft reads a table's name as a word that starts with a letter. Its keywords it refuses itself.
fn is_table_name(instance: &str) -> bool {
    (1..=63).contains(&instance.len())
        && instance.starts_with(|first: char| first.is_ascii_lowercase())
        && instance.bytes().all(|octet| octet.is_ascii_lowercase() || octet.is_ascii_digit() || octet == b'-')
}

fn is_interface_name(interface: &str) -> bool {
    (1..=15).contains(&interface.len()) && interface.bytes().all(|octet| octet.is_ascii_alphanumeric() || b"._-@:".contains(&octet))
}
