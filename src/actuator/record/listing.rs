// SPDX-License-Identifier: Apache-2.0
//! Reads what `nft -j list table` prints of the table of an instance: the record, the rules by their comments, and whether others put something there.

use std::collections::BTreeMap;
use std::net::IpAddr;

use bgp::Prefix;
use ipvs::SyncRole;
use serde::Deserialize;
use serde_json::Value;

use super::script::{
    CLOSED, CLOSED_RANGES, DAEMONS, IN_IPVS, INTERFACE, MARKS, PENDING, PENDING_DAEMONS, PENDING_MARKS, PENDING_RANGES, PENDING_SERVICES,
    PLACED, PRESERVED, RANGES, RANGES_IN_IPVS, RESTRICTED, RESTRICTED_RANGES, RETIRED, SERVICES, SOURCES, VIPS, comment,
};
use crate::api::PortRange;
use crate::desired::{Filter, Rules, ServiceKey};
use crate::observed::{Record, RetiredRange};

/// What the listing of a table holds.
#[derive(Debug, Default, Eq, PartialEq)]
pub(super) struct Listed {
    pub(super) record: Record,
    /// What is in the set [`INTERFACE`].
    pub(super) interfaces: Vec<String>,
    /// Those of our sets that are there.
    pub(super) sets: Vec<String>,
    /// Those of our maps that are there.
    pub(super) maps: Vec<String>,
    /// Those that have a name of ours and were not made by us.
    pub(super) not_ours: Vec<String>,
    /// Whether the table holds anything that is not ours.
    pub(super) foreign: bool,
    /// Those of our chains that are there.
    pub(super) chains: Vec<String>,
}

#[derive(Deserialize)]
struct Listing {
    nftables: Vec<serde_json::Map<String, Value>>,
}

/// A set or a map.
#[derive(Deserialize)]
struct Set {
    name: String,
    comment: Option<String>,
    #[serde(default)]
    elem: Vec<Value>,
}

impl Set {
    /// Whether we made it; `None` where it has no name of ours.
    fn is_ours(&self) -> Option<bool> {
        comment(&self.name).map(|expected| self.comment.as_deref() == Some(expected))
    }
}

pub(super) fn parse(json: &[u8], table: &str) -> Result<Listed, serde_json::Error> {
    let mut listed = Listed::default();
    let mut rules: Vec<(usize, String)> = Vec::new();
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
                if set.is_ours() == Some(false) {
                    listed.not_ours.push(set.name);
                    continue;
                }
                let elements = set.elem.iter().filter_map(element);
                let addresses = elements.clone().filter_map(|address| address.parse::<IpAddr>().ok());
                let services = set.elem.iter().filter_map(service);
                match set.name.as_str() {
                    name if PLACED.has(name) => listed.record.confirmed.extend(addresses),
                    name if PENDING.has(name) => listed.record.pending.extend(addresses),
                    name if SERVICES.has(name) || RANGES.has(name) => listed.record.confirmed_services.extend(services),
                    name if PENDING_SERVICES.has(name) || PENDING_RANGES.has(name) => listed.record.pending_services.extend(services),
                    name if IN_IPVS.has(name) || RANGES_IN_IPVS.has(name) => listed.record.in_ipvs.extend(services),
                    name if CLOSED.has(name) || CLOSED_RANGES.has(name) => listed.record.closed.extend(services),
                    name if VIPS.has(name) => {}
                    name if RETIRED.has(name) => listed.record.retired.extend(set.elem.iter().filter_map(retired)),
                    DAEMONS => listed.record.confirmed_daemons.extend(elements.filter_map(role)),
                    PENDING_DAEMONS => listed.record.pending_daemons.extend(elements.filter_map(role)),
                    name if RESTRICTED.has(name) || RESTRICTED_RANGES.has(name) || SOURCES.has(name) || PRESERVED.has(name) => {
                        set.elem.iter().for_each(|element| read_filter(name, element, &mut listed.record.filters));
                    }
                    INTERFACE => listed.interfaces.extend(elements.map(ToOwned::to_owned)),
                    _ => {
                        listed.foreign = true;
                        continue;
                    }
                }
                listed.sets.push(set.name);
            }
            "map" => {
                let map: Set = serde_json::from_value(object)?;
                match map.is_ours().filter(|_| MARKS.has(&map.name) || PENDING_MARKS.has(&map.name)) {
                    Some(true) => {}
                    Some(false) => {
                        listed.not_ours.push(map.name);
                        continue;
                    }
                    None => {
                        listed.foreign = true;
                        continue;
                    }
                }
                let pairs = map.elem.iter().filter_map(|pair| Some((service(pair.get(0)?)?, u32::try_from(pair.get(1)?.as_u64()?).ok()?)));
                listed.record.marks.extend(pairs);
                listed.maps.push(map.name);
            }
            "chain" => match object.get("name").and_then(Value::as_str) {
                Some(name) if Rules::CHAINS.contains(&name) => listed.chains.push(name.to_owned()),
                _ => listed.foreign = true,
            },
            "rule" => {
                let chain = object.get("chain").and_then(Value::as_str).unwrap_or_default();
                let comment = object.get("comment").and_then(Value::as_str).unwrap_or_default();
                if let Some(place) = Rules::CHAINS.iter().position(|name| *name == chain) {
                    rules.push((place, format!("{chain}: {comment}")));
                }
            }
            _ => listed.foreign = true,
        }
    }
    // Chains are listed in the order in which they came, which says nothing of what they do.
    rules.sort_by_key(|(place, _)| *place);
    listed.record.rules.extend(rules.into_iter().map(|(_, rule)| rule));
    if listed.sets.is_empty() {
        // Chains tell nothing of who made them; ours are never without our sets.
        listed.not_ours.append(&mut listed.chains);
    }
    // A table with other things only is somebody else's.
    listed.record.exists &= !(listed.foreign && listed.sets.is_empty());
    Ok(listed)
}

/// The value of an element, which is an object where somebody gave it a comment or the like.
pub(in crate::actuator) fn element(element: &Value) -> Option<&str> {
    element.as_str().or_else(|| element.get("elem")?.get("val")?.as_str())
}

fn role(word: &str) -> Option<SyncRole> {
    SyncRole::ALL.into_iter().find(|role| role.word() == word)
}

/// An element such as `10.0.0.7 . tcp . 64`.
fn retired(element: &Value) -> Option<RetiredRange> {
    let [vip, protocol, mark] = element.get("concat")?.as_array()?.as_slice() else { return None };
    let mark = u32::try_from(mark.as_u64()?).ok()?;
    Some(RetiredRange { vip: vip.as_str()?.parse().ok()?, protocol: protocol.as_str()?.parse().ok()?, mark })
}

/// What an element of a set of this name says of a virtual service.
fn read_filter(set: &str, element: &Value, filters: &mut BTreeMap<ServiceKey, Filter>) {
    let Some(service) = service(element) else { return };
    let filter = filters.entry(service).or_default();
    if PRESERVED.has(set) {
        filter.preserves_client = true;
    } else {
        filter.sources.get_or_insert_default().extend(source(element).filter(|_| SOURCES.has(set)));
    }
}

/// The clients of an element such as `10.0.0.7 . tcp . 80 . 192.0.2.0/24`.
fn source(element: &Value) -> Option<Prefix> {
    let value = element.get("elem").and_then(|element| element.get("val")).unwrap_or(element);
    let source = value.get("concat")?.get(3)?;
    if let Some(prefix) = source.get("prefix") {
        let length = u8::try_from(prefix.get("len")?.as_u64()?).ok()?;
        return Prefix::new(prefix.get("addr")?.as_str()?.parse().ok()?, length).ok();
    }
    source.as_str()?.parse().ok().map(Prefix::host)
}

/// The virtual service of an element, such as `10.0.0.7 . tcp . 80` or `10.0.0.7 . tcp . 1000-2000`.
pub(in crate::actuator) fn service(element: &Value) -> Option<ServiceKey> {
    let value = element.get("elem").and_then(|element| element.get("val")).unwrap_or(element);
    let [vip, protocol, ports, ..] = value.get("concat")?.as_array()?.as_slice() else { return None };
    let number = |value: &Value| value.as_i64();
    let (first, last) = match ports.get("range").and_then(Value::as_array).map(Vec::as_slice) {
        Some([first, last]) => (number(first)?, number(last)?),
        _ => (number(ports)?, number(ports)?),
    };
    Some(ServiceKey {
        vip: vip.as_str()?.parse().ok()?,
        protocol: protocol.as_str()?.parse().ok()?,
        ports: PortRange::new(first, last).ok()?,
    })
}
