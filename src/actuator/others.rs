// SPDX-License-Identifier: Apache-2.0
//! What other instances on this node have recorded: addresses that carry the same protocol number as ours, and virtual services.
//!
//! Input: the records of all tables of nft. Output: [`Claims`], from the tables of our layout that are not our own. What another instance has on another
//! interface is not on ours.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use serde::Deserialize;
use serde_json::Value;

use super::nft::{self, NamedSet, NftError};
use super::record::{RecordError, SetKind, element, service, set_kind};
use crate::desired::ServiceKey;
use crate::observed::Record;

/// What all other instances have.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct Claims {
    /// Addresses that they placed, or are about to place, on the same interface.
    pub(super) addresses: BTreeSet<IpAddr>,
    /// Of each virtual service the entry that goes first.
    services: BTreeMap<ServiceKey, Rank>,
    /// Their tables.
    pub(super) tables: BTreeSet<String>,
}

/// Of two instances that want the same virtual service, the lower one has it: the one that made it already, else the one whose name comes first.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
struct Rank {
    pending: bool,
    instance: String,
}

impl Claims {
    /// The virtual services that are another instance's, and not those of the one with this record. Two that have a port in common are for one of both.
    pub(super) fn taken(&self, record: &Record, own: &str) -> BTreeSet<ServiceKey> {
        let has_part_of = |keys: &BTreeSet<ServiceKey>, service: &ServiceKey| service.overlapping(keys).next().is_some();
        let is_theirs = |(service, theirs): &(&ServiceKey, &Rank)| {
            let pending = !has_part_of(&record.confirmed_services, service);
            let is_recorded = !pending || has_part_of(&record.pending_services, service);
            !is_recorded || (theirs.pending, theirs.instance.as_str()) < (pending, own)
        };
        self.services.iter().filter(is_theirs).map(|(service, _)| *service).collect()
    }
}

/// Reads what other instances than `own`, which has its addresses on this interface, have.
pub(super) async fn read(own: &str, interface: &str) -> Result<Claims, RecordError> {
    Ok(claims(records(|instance| instance != own).await?, interface))
}

fn claims(records: BTreeMap<String, Recorded>, interface: &str) -> Claims {
    let mut claims = Claims::default();
    for (table, Recorded { addresses, interfaces, services }) in records {
        for (service, pending) in services {
            let rank = Rank { pending, instance: table.clone() };
            let first = claims.services.entry(service).or_insert_with(|| rank.clone());
            if rank < *first {
                *first = rank;
            }
        }
        // While its addresses move it names both.
        if interfaces.is_empty() || interfaces.contains(interface) {
            claims.addresses.extend(addresses);
        }
        claims.tables.insert(table);
    }
    claims
}

/// What the record of one instance has.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct Recorded {
    /// Addresses that it placed, or is about to place.
    pub(super) addresses: BTreeSet<IpAddr>,
    /// Where those are.
    pub(super) interfaces: BTreeSet<String>,
    /// Virtual services, and whether it is only about to make them.
    pub(super) services: BTreeMap<ServiceKey, bool>,
}

/// What the records of those instances have that are `asked_for`, by their names. Their tables are read one by one: all sets of all tables are far more.
pub(super) async fn records(asked_for: impl Fn(&str) -> bool) -> Result<BTreeMap<String, Recorded>, RecordError> {
    let of_record = |set: NamedSet| set_kind(&set.name, set.comment.as_deref()).map(|_| set.table);
    let tables = || async { Ok::<BTreeSet<String>, NftError>(nft::sets().await?.into_iter().filter_map(of_record).collect()) };
    let mut records = BTreeMap::new();
    for table in tables().await?.into_iter().filter(|table| asked_for(table)) {
        let listed = match nft::nft(&["-j", "list", "table", "inet", &table], "", &format!("list table inet {table}")).await {
            // It has left.
            Err(NftError::Refused { .. }) if !tables().await?.contains(&table) => continue,
            listed => listed?,
        };
        records.extend(recorded(&listed.stdout).map_err(|source| RecordError::Listing { table, source })?);
    }
    Ok(records)
}

/// What the records have that `nft -j` lists, by the names of their instances.
pub(super) fn recorded(json: &[u8]) -> Result<BTreeMap<String, Recorded>, serde_json::Error> {
    #[derive(Deserialize)]
    struct Listing {
        nftables: Vec<Object>,
    }
    #[derive(Deserialize)]
    struct Object {
        set: Option<Set>,
    }
    #[derive(Deserialize)]
    struct Set {
        table: String,
        name: String,
        comment: Option<String>,
        #[serde(default)]
        elem: Vec<Value>,
    }

    let listing: Listing = serde_json::from_slice(json)?;
    let mut instances: BTreeMap<String, Recorded> = BTreeMap::new();
    for Set { table, name, comment, elem } in listing.nftables.into_iter().filter_map(|object| object.set) {
        let Some(kind) = set_kind(&name, comment.as_deref()) else { continue };
        let recorded = instances.entry(table).or_default();
        let elements = elem.iter().filter_map(element);
        match kind {
            SetKind::Addresses => recorded.addresses.extend(elements.filter_map(|text| text.parse::<IpAddr>().ok())),
            SetKind::Interface => recorded.interfaces.extend(elements.map(ToOwned::to_owned)),
            SetKind::Services { pending } => {
                for service in elem.iter().filter_map(service) {
                    *recorded.services.entry(service).or_insert(pending) &= pending;
                }
            }
        }
    }
    Ok(instances)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{PortRange, Protocol};

    fn range(start: i64, end: i64) -> ServiceKey {
        ServiceKey { vip: "10.0.0.7".parse().unwrap(), protocol: Protocol::Tcp, ports: PortRange::new(start, end).unwrap() }
    }

    fn key(port: i64) -> ServiceKey {
        range(port, port)
    }

    #[test]
    fn only_sets_of_our_layout_in_other_tables_count() {
        let json = br#"{"nftables": [{"metainfo": {"version": "1.0.6"}},
            {"set": {"family": "inet", "table": "a", "name": "placed4", "comment": "placed by vipherald", "type": "ipv4_addr", "elem": ["10.0.0.7", {"elem": {"val": "10.0.0.8"}}]}},
            {"set": {"family": "inet", "table": "a", "name": "pending6", "comment": "about to be placed by vipherald", "type": "ipv6_addr", "elem": ["2001:db8::7"]}},
            {"set": {"family": "inet", "table": "a", "name": "services4", "comment": "virtual services of vipherald", "elem": [{"concat": ["10.0.0.7", "tcp", 80]}]}},
            {"set": {"family": "inet", "table": "a", "name": "interface", "comment": "where the addresses are", "type": "ifname", "elem": ["lo"]}},
            {"set": {"family": "inet", "table": "b", "name": "placed4", "comment": "placed by vipherald", "type": "ipv4_addr", "elem": ["10.0.0.11"]}},
            {"set": {"family": "inet", "table": "b", "name": "interface", "comment": "where the addresses are", "type": "ifname", "elem": ["dummy0"]}},
            {"set": {"family": "inet", "table": "own", "name": "placed4", "comment": "placed by vipherald", "type": "ipv4_addr", "elem": ["10.0.0.9"]}},
            {"set": {"family": "inet", "table": "own", "name": "services4", "comment": "virtual services of vipherald", "elem": [{"concat": ["10.0.0.9", "tcp", 80]}]}},
            {"set": {"family": "inet", "table": "theirs", "name": "placed4", "type": "ipv4_addr", "elem": ["10.0.0.12"]}},
            {"set": {"family": "inet", "table": "theirs", "name": "services4", "comment": "mine", "elem": [{"concat": ["10.0.0.12", "tcp", 80]}]}},
            {"set": {"family": "inet", "table": "filter", "name": "blocked", "type": "ipv4_addr", "elem": ["10.0.0.10"]}}]}"#;
        let mut records = recorded(json).unwrap();
        assert!(records.remove("own").is_some());
        let claims = claims(records, "lo");
        let claimed: Vec<String> = claims.addresses.iter().map(ToString::to_string).collect();
        assert_eq!(claimed, ["10.0.0.7", "10.0.0.8", "2001:db8::7"]);
        assert_eq!(claims.tables, ["a", "b"].map(ToOwned::to_owned).into());
        assert_eq!(claims.taken(&Record::default(), "own"), BTreeSet::from([key(80)]));
    }

    #[test]
    fn one_of_two_instances_has_a_virtual_service() {
        let theirs = |pending| Claims { services: [(key(80), Rank { pending, instance: "b".to_owned() })].into(), ..Claims::default() };
        let none = Record { confirmed_services: [key(79), range(81, 200)].into(), ..Record::default() };
        let pending = Record { pending_services: [key(80)].into(), ..Record::default() };
        let confirmed = Record { confirmed_services: [key(70), range(20, 80)].into(), ..Record::default() };
        // Our record, whether theirs is pending, and whether it is theirs, we being lower and higher.
        for (record, is_pending, taken) in [
            (&none, false, [true, true]),
            (&none, true, [true, true]),
            (&pending, false, [true, true]),
            (&pending, true, [false, true]),
            (&confirmed, false, [false, true]),
            (&confirmed, true, [false, false]),
        ] {
            assert_eq!(["a", "c"].map(|own| !theirs(is_pending).taken(record, own).is_empty()), taken, "{record:?} {is_pending}");
        }
    }
}
