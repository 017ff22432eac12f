// SPDX-License-Identifier: Apache-2.0
//! The ownership record: the nft table `inet <instance>`, whose sets list the addresses that we placed and those that we are about to place.
//!
//! Input: what to add to the record or take out of it. Output: the record as it is. Invariants: every change is one transaction of `nft`, which is
//! made whole or not at all; it says the same whatever the table held before, so that it can be repeated; nothing in the table but our own sets
//! is touched; a table that cannot be read is an error, never an empty record.

use std::collections::BTreeSet;
use std::fmt::{Display, Write as _};
use std::net::IpAddr;

use serde::Deserialize;
use serde_json::Value;

use super::nft::{NftError, nft};
use crate::observed::Record;

const PLACED: Pair = Pair { v4: "placed4", v6: "placed6" };
const PENDING: Pair = Pair { v4: "pending4", v6: "pending6" };
/// The interface that the addresses are on.
const INTERFACE: &str = "interface";

/// A set for each family.
#[derive(Clone, Copy)]
struct Pair {
    v4: &'static str,
    v6: &'static str,
}

impl Pair {
    fn has(self, set: &str) -> bool {
        set == self.v4 || set == self.v6
    }
}

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
    #[error("cannot understand what nft lists of table inet {table}")]
    Listing {
        /// The table.
        table: String,
        /// Where it went wrong.
        #[source]
        source: serde_json::Error,
    },
    /// The record tells of addresses on another interface.
    #[error(
        "table inet {table} records addresses on interface {recorded}, which would stay behind: drain with vips.interface {recorded} first, or \
         remove them by hand, then the table"
    )]
    OtherInterface {
        /// The table.
        table: String,
        /// Where the addresses are.
        recorded: String,
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
    Pending(&'a BTreeSet<IpAddr>),
    /// These are placed, and ours.
    Confirmed(&'a BTreeSet<IpAddr>),
    /// These are gone, or not ours.
    Removed(&'a BTreeSet<IpAddr>),
}

/// The table of one instance, and what is known of it.
#[derive(Debug)]
pub(super) struct Table {
    name: String,
    interface: String,
    known: Record,
    /// Whether the table may differ from what is known.
    stale: bool,
    /// The processes that changed the table for us and were not forgotten yet.
    processes: BTreeSet<u32>,
}

impl Table {
    /// Checks that `nft` can make the table, and reads it.
    pub(super) async fn open(instance: &str, interface: &str) -> Result<Self, RecordError> {
        if !is_table_name(instance) {
            return Err(RecordError::Name(instance.to_owned()));
        }
        if !is_interface_name(interface) {
            return Err(RecordError::Interface(interface.to_owned()));
        }
        let (name, interface) = (instance.to_owned(), interface.to_owned());
        let mut table = Self { name, interface, known: Record::default(), stale: true, processes: BTreeSet::new() };
        nft(&["-c", "-f", "-"], &table.layout(), &format!("make table inet {instance}")).await?;
        let listed = table.list().await?;
        if let Some(recorded) = listed.interfaces.iter().find(|recorded| **recorded != table.interface) {
            if !listed.record.pending.is_empty() || !listed.record.confirmed.is_empty() {
                return Err(RecordError::OtherInterface { table: table.name, recorded: recorded.clone() });
            }
            table.transact(&format!("flush set inet {instance} {INTERFACE}\n")).await?;
        }
        table.known = listed.record;
        table.stale = false;
        Ok(table)
    }

    /// Its name, which is that of the instance.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// The record as last read, with the changes that were made since.
    pub(super) const fn known(&self) -> &Record {
        &self.known
    }

    /// The ids, and netlink ports, of the processes whose changes are known.
    pub(super) const fn processes(&self) -> &BTreeSet<u32> {
        &self.processes
    }

    /// All notifications of the known changes were taken.
    pub(super) fn forget_processes(&mut self) {
        self.processes.clear();
    }

    /// Somebody else may have changed the table.
    pub(super) const fn suspect(&mut self) {
        self.stale = true;
    }

    /// Reads the table where it may differ from what is known.
    pub(super) async fn refresh(&mut self) -> Result<(), RecordError> {
        if self.stale {
            self.known = self.list().await?.record;
            self.stale = false;
        }
        Ok(())
    }

    /// Makes one change in one transaction.
    pub(super) async fn change(&mut self, change: Change<'_>) -> Result<(), RecordError> {
        let mut script = self.layout();
        write_change(&mut script, &self.name, change);
        self.transact(&script).await?;
        apply(&mut self.known, change);
        Ok(())
    }

    /// Removes the table, or only our sets where somebody put other things into it.
    pub(super) async fn remove(&mut self) -> Result<(), RecordError> {
        let listed = self.list().await?;
        if !listed.record.confirmed.is_empty() || !listed.record.pending.is_empty() {
            self.stale = true;
            return Err(RecordError::NotEmpty { table: self.name.clone() });
        }
        let mut script = String::new();
        if listed.foreign {
            for set in &listed.sets {
                line(&mut script, format_args!("delete set inet {} {set}", self.name));
            }
        } else if listed.record.exists {
            line(&mut script, format_args!("delete table inet {}", self.name));
        }
        if !script.is_empty() {
            self.transact(&script).await?;
        }
        self.known = Record::default();
        Ok(())
    }

    /// Table and sets, made where they are not there yet.
    fn layout(&self) -> String {
        let Self { name, interface, .. } = self;
        let mut script = String::new();
        line(&mut script, format_args!("add table inet {name} {{ comment \"vipherald: which addresses it placed\"; }}"));
        for (pair, meaning) in [(PLACED, "placed by vipherald"), (PENDING, "about to be placed by vipherald")] {
            line(&mut script, format_args!("add set inet {name} {} {{ type ipv4_addr; comment \"{meaning}\"; }}", pair.v4));
            line(&mut script, format_args!("add set inet {name} {} {{ type ipv6_addr; comment \"{meaning}\"; }}", pair.v6));
        }
        line(&mut script, format_args!("add set inet {name} {INTERFACE} {{ type ifname; comment \"where the addresses are\"; }}"));
        line(&mut script, format_args!("add element inet {name} {INTERFACE} {{ \"{interface}\" }}"));
        script
    }

    /// Carries out a script as one transaction. Until that is known to be done, nothing is known.
    async fn transact(&mut self, script: &str) -> Result<(), RecordError> {
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
                // Whether it is refused because there is no such table is told by the list of all tables, not by words.
                let tables = nft(&["-j", "list", "tables"], "", "list tables").await?;
                if self.parse(&tables.stdout)?.record.exists { Err(refused.into()) } else { Ok(Listed::default()) }
            }
            Err(error) => Err(error.into()),
        }
    }

    fn parse(&self, json: &[u8]) -> Result<Listed, RecordError> {
        parse(json, &self.name).map_err(|source| RecordError::Listing { table: self.name.clone(), source })
    }
}

/// What the listing of a table holds.
#[derive(Debug, Default, Eq, PartialEq)]
struct Listed {
    record: Record,
    /// What is in the set [`INTERFACE`].
    interfaces: Vec<String>,
    /// Those of our sets that are there.
    sets: Vec<String>,
    /// Whether the table holds anything that is not ours.
    foreign: bool,
}

fn parse(json: &[u8], table: &str) -> Result<Listed, serde_json::Error> {
    #[derive(Deserialize)]
    struct Listing {
        nftables: Vec<serde_json::Map<String, Value>>,
    }
    #[derive(Deserialize)]
    struct Set {
        name: String,
        #[serde(default)]
        elem: Vec<Value>,
    }

    let mut listed = Listed::default();
    let listing: Listing = serde_json::from_slice(json)?;
    for (kind, object) in listing.nftables.into_iter().flatten() {
        match kind.as_str() {
            "metainfo" => {}
            "table" => {
                let is_it =
                    object.get("family").is_some_and(|family| family == "inet") && object.get("name").is_some_and(|name| name == table);
                listed.record.exists |= is_it;
            }
            "set" => {
                let set: Set = serde_json::from_value(object)?;
                let elements = set.elem.iter().filter_map(element);
                match set.name.as_str() {
                    name if PLACED.has(name) => {
                        listed.record.confirmed.extend(elements.filter_map(|address| address.parse::<IpAddr>().ok()))
                    }
                    name if PENDING.has(name) => {
                        listed.record.pending.extend(elements.filter_map(|address| address.parse::<IpAddr>().ok()))
                    }
                    INTERFACE => listed.interfaces.extend(elements.map(ToOwned::to_owned)),
                    _ => {
                        listed.foreign = true;
                        continue;
                    }
                }
                listed.sets.push(set.name);
            }
            _ => listed.foreign = true,
        }
    }
    // A table with other things only is somebody else's.
    listed.record.exists &= !(listed.foreign && listed.sets.is_empty());
    Ok(listed)
}

/// The value of an element, which is an object where somebody gave it a comment or the like.
pub(super) fn element(element: &Value) -> Option<&str> {
    element.as_str().or_else(|| element.get("elem")?.get("val")?.as_str())
}

/// The lines for a change. Adding an element that is there changes nothing; adding it before deleting it lets the deletion of one that is not there
/// succeed.
fn write_change(script: &mut String, table: &str, change: Change<'_>) {
    let (added, deleted): (&[Pair], &[Pair]) = match change {
        Change::Pending(_) => (&[PENDING], &[]),
        Change::Confirmed(_) => (&[PLACED, PENDING], &[PENDING]),
        Change::Removed(_) => (&[PLACED, PENDING], &[PLACED, PENDING]),
    };
    let (Change::Pending(addresses) | Change::Confirmed(addresses) | Change::Removed(addresses)) = change;
    for (verb, pairs) in [("add", added), ("delete", deleted)] {
        for pair in pairs {
            for (set, elements) in [(pair.v4, list(addresses, IpAddr::is_ipv4)), (pair.v6, list(addresses, IpAddr::is_ipv6))] {
                if !elements.is_empty() {
                    line(script, format_args!("{verb} element inet {table} {set} {{ {elements} }}"));
                }
            }
        }
    }
}

fn list(addresses: &BTreeSet<IpAddr>, of_family: fn(&IpAddr) -> bool) -> String {
    addresses.iter().filter(|address| of_family(address)).map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

fn line(script: &mut String, text: impl Display) {
    // Writing to a String cannot fail.
    let _infallible = writeln!(script, "{text}");
}

fn apply(record: &mut Record, change: Change<'_>) {
    record.exists = true;
    match change {
        Change::Pending(addresses) => record.pending.extend(addresses),
        Change::Confirmed(addresses) => {
            record.pending.retain(|address| !addresses.contains(address));
            record.confirmed.extend(addresses);
        }
        Change::Removed(addresses) => {
            record.pending.retain(|address| !addresses.contains(address));
            record.confirmed.retain(|address| !addresses.contains(address));
        }
    }
}

/// Whether a record keeps addresses in a set of this name.
pub(super) fn is_address_set(name: &str) -> bool {
    PLACED.has(name) || PENDING.has(name)
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

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(addresses: &[&str]) -> BTreeSet<IpAddr> {
        addresses.iter().map(|address| address.parse().unwrap()).collect()
    }

    fn script(change: Change<'_>) -> String {
        let mut script = String::new();
        write_change(&mut script, "t", change);
        script
    }

    #[test]
    fn a_change_is_written_by_family() {
        assert_eq!(
            script(Change::Pending(&addresses(&["10.0.0.8", "10.0.0.7", "2001:db8::7"]))),
            "add element inet t pending4 { 10.0.0.7, 10.0.0.8 }\nadd element inet t pending6 { 2001:db8::7 }\n"
        );
        assert_eq!(script(Change::Pending(&addresses(&[]))), "");
    }

    #[test]
    fn nothing_is_deleted_that_was_not_added_before() {
        assert_eq!(
            script(Change::Confirmed(&addresses(&["10.0.0.7"]))),
            "add element inet t placed4 { 10.0.0.7 }\nadd element inet t pending4 { 10.0.0.7 }\ndelete element inet t pending4 { 10.0.0.7 }\n"
        );
        assert_eq!(
            script(Change::Removed(&addresses(&["2001:db8::7"]))),
            "add element inet t placed6 { 2001:db8::7 }\nadd element inet t pending6 { 2001:db8::7 }\n\
             delete element inet t placed6 { 2001:db8::7 }\ndelete element inet t pending6 { 2001:db8::7 }\n"
        );
    }

    #[test]
    fn what_a_change_makes_is_known() {
        let mut record = Record::default();
        apply(&mut record, Change::Pending(&addresses(&["10.0.0.7", "10.0.0.8"])));
        apply(&mut record, Change::Confirmed(&addresses(&["10.0.0.7"])));
        assert_eq!(record, Record { exists: true, pending: addresses(&["10.0.0.8"]), confirmed: addresses(&["10.0.0.7"]) });
        apply(&mut record, Change::Removed(&addresses(&["10.0.0.7", "10.0.0.8"])));
        assert_eq!(record, Record { exists: true, ..Record::default() });
    }

    #[test]
    fn a_listing_is_read_with_what_others_put_there() {
        let listing = r#"{"nftables": [
            {"metainfo": {"version": "1.0.6", "json_schema_version": 1}},
            {"table": {"family": "inet", "name": "t", "handle": 1}},
            {"set": {"family": "inet", "name": "placed4", "table": "t", "type": "ipv4_addr", "handle": 1,
                     "elem": ["10.0.0.7", {"elem": {"val": "10.0.0.8", "comment": "by hand"}}, {"range": ["10.0.1.0", "10.0.1.9"]}]}},
            {"set": {"family": "inet", "name": "pending6", "table": "t", "type": "ipv6_addr", "handle": 4, "elem": ["2001:db8::7"]}},
            {"set": {"family": "inet", "name": "interface", "table": "t", "type": "ifname", "handle": 5, "elem": ["lo"]}}
        ]}"#;
        let expected = Listed {
            record: Record { exists: true, pending: addresses(&["2001:db8::7"]), confirmed: addresses(&["10.0.0.7", "10.0.0.8"]) },
            interfaces: vec!["lo".to_owned()],
            sets: vec!["placed4".to_owned(), "pending6".to_owned(), "interface".to_owned()],
            foreign: false,
        };
        assert_eq!(parse(listing.as_bytes(), "t").unwrap(), expected);
        let chain =
            r#"{"nftables": [{"table": {"family": "inet", "name": "t"}}, {"chain": {"family": "inet", "table": "t", "name": "c"}}]}"#;
        assert_eq!(parse(chain.as_bytes(), "t").unwrap(), Listed { foreign: true, ..Listed::default() });
    }

    #[test]
    fn a_table_of_another_name_or_family_is_not_ours() {
        let tables = r#"{"nftables": [{"table": {"family": "ip", "name": "t"}}, {"table": {"family": "inet", "name": "u"}}]}"#;
        assert_eq!(parse(tables.as_bytes(), "t").unwrap(), Listed::default());
        assert!(parse(b"nft: nonsense", "t").is_err());
    }

    #[test]
    fn names_that_cannot_be_written_are_refused() {
        for good in ["vipherald", "a", "a-1"] {
            assert!(is_table_name(good), "{good}");
        }
        for bad in ["", "7up", "-a", "A", "a b", "a{", "a\n", "\u{e4}"] {
            assert!(!is_table_name(bad), "{bad}");
        }
        assert!(is_interface_name("eth1.100") && is_interface_name("lo"));
        assert!(
            !is_interface_name("eth*") && !is_interface_name("a\"b") && !is_interface_name("") && !is_interface_name("sixteen-letters-")
        );
    }
}
