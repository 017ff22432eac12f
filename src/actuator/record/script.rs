// SPDX-License-Identifier: Apache-2.0
//! The scripts of `nft` that make, change and remove the table of an instance. Each says the same whatever the table held before.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{Display, Write as _};
use std::net::IpAddr;

use super::Change;
use crate::desired::{Chain, Filter, Rules, ServiceKey};
use crate::observed::{Record, RetiredRange};
use crate::plan::{Entries, RangeMove};

pub(in crate::actuator) const PLACED: Pair = Pair { v4: "placed4", v6: "placed6" };
pub(super) const PENDING: Pair = Pair { v4: "pending4", v6: "pending6" };
pub(super) const SERVICES: Pair = Pair { v4: "services4", v6: "services6" };
pub(super) const PENDING_SERVICES: Pair = Pair { v4: "pending-services4", v6: "pending-services6" };
/// As the two above, for ranges of ports.
pub(super) const RANGES: Pair = Pair { v4: "ranges4", v6: "ranges6" };
pub(super) const PENDING_RANGES: Pair = Pair { v4: "pending-ranges4", v6: "pending-ranges6" };
/// Those of them that are ours in IPVS, while we have tables of nft.
pub(super) const IN_IPVS: Pair = Pair { v4: "in-ipvs4", v6: "in-ipvs6" };
pub(super) const RANGES_IN_IPVS: Pair = Pair { v4: "ranges-in-ipvs4", v6: "ranges-in-ipvs6" };
/// Those of the confirmed ones to whose ports nothing is let in.
pub(super) const CLOSED: Pair = Pair { v4: "closed4", v6: "closed6" };
pub(super) const CLOSED_RANGES: Pair = Pair { v4: "closed-ranges4", v6: "closed-ranges6" };
/// VIPs with virtual services of ours, whoever placed them.
pub(super) const VIPS: Pair = Pair { v4: "vips4", v6: "vips6" };
/// Maps from ranges of ports to firewall marks.
pub(super) const MARKS: Pair = Pair { v4: "marks4", v6: "marks6" };
/// The same of those that are about to be made, which may have ports in common with others that are there.
pub(super) const PENDING_MARKS: Pair = Pair { v4: "pending-marks4", v6: "pending-marks6" };
/// Virtual services of ranges of ports that have no ports any more, by their firewall marks.
pub(super) const RETIRED: Pair = Pair { v4: "retired4", v6: "retired6" };
/// Virtual services that not everybody may come to.
pub(super) const RESTRICTED: Pair = Pair { v4: "restricted4", v6: "restricted6" };
/// As the one above, for ranges of ports.
pub(super) const RESTRICTED_RANGES: Pair = Pair { v4: "restricted-ranges4", v6: "restricted-ranges6" };
/// Who may come to those.
pub(super) const SOURCES: Pair = Pair { v4: "sources4", v6: "sources6" };
/// Virtual services of one port whose packets are not masqueraded. Those of ranges are known by their marks.
pub(super) const PRESERVED: Pair = Pair { v4: "preserved4", v6: "preserved6" };
/// Daemons of connection synchronisation, by their roles.
pub(super) const DAEMONS: &str = "daemons";
pub(super) const PENDING_DAEMONS: &str = "pending-daemons";
/// The interface that the addresses are on.
pub(super) const INTERFACE: &str = "interface";

/// A set for each family.
#[derive(Clone, Copy)]
pub(in crate::actuator) struct Pair {
    pub(in crate::actuator) v4: &'static str,
    pub(in crate::actuator) v6: &'static str,
}

impl Pair {
    pub(super) fn has(self, set: &str) -> bool {
        set == self.v4 || set == self.v6
    }

    const fn of(self, vip: IpAddr) -> &'static str {
        if vip.is_ipv4() { self.v4 } else { self.v6 }
    }
}

/// The sets of one half of the record.
struct Sets {
    addresses: Pair,
    services: Pair,
    ranges: Pair,
    marks: Pair,
    daemons: &'static str,
}

const THERE: Sets = Sets { addresses: PLACED, services: SERVICES, ranges: RANGES, marks: MARKS, daemons: DAEMONS };
const WAITING: Sets =
    Sets { addresses: PENDING, services: PENDING_SERVICES, ranges: PENDING_RANGES, marks: PENDING_MARKS, daemons: PENDING_DAEMONS };

/// The comments of sets and maps, which nobody else gives them: they tell that one of such a name is ours.
const COMMENTS: [(Pair, &str); 18] = [
    (PLACED, "placed by vipherald"),
    (PENDING, "about to be placed by vipherald"),
    (VIPS, "with virtual services of vipherald"),
    (SERVICES, "virtual services of vipherald"),
    (PENDING_SERVICES, "about to be made by vipherald"),
    (RANGES, "virtual services of vipherald"),
    (PENDING_RANGES, "about to be made by vipherald"),
    (IN_IPVS, "virtual services of vipherald in IPVS"),
    (RANGES_IN_IPVS, "virtual services of vipherald in IPVS"),
    (CLOSED, "about to go"),
    (CLOSED_RANGES, "about to go"),
    (RESTRICTED, "not for everybody"),
    (RESTRICTED_RANGES, "not for everybody"),
    (PRESERVED, "real servers see the client"),
    (SOURCES, "who may come"),
    (MARKS, "ranges of ports"),
    (PENDING_MARKS, "ranges of ports that are about to be made"),
    (RETIRED, "without ports, with connections"),
];

/// The comment of our set or map of this name; `None` where we have none of that name.
pub(super) fn comment(name: &str) -> Option<&'static str> {
    match name {
        DAEMONS => Some("daemons of IPVS that vipherald started"),
        PENDING_DAEMONS => Some("about to be started by vipherald"),
        INTERFACE => Some("where the addresses are"),
        _ => COMMENTS.iter().find(|(pair, _)| pair.has(name)).map(|(_, comment)| *comment),
    }
}

/// Table and sets, made where they are not there yet.
pub(super) fn layout(table: &str, interface: &str) -> String {
    let mut script = String::new();
    line(&mut script, format_args!("add table inet {table} {{ comment \"vipherald: which addresses it placed\"; }}"));
    let mut add = |kind: &str, name: &str, shape: &str| {
        let comment = comment(name).unwrap_or_default();
        line(&mut script, format_args!("add {kind} inet {table} {name} {{ {shape} comment \"{comment}\"; }}"));
    };
    let families = |pair: Pair| [(pair.v4, "ipv4_addr"), (pair.v6, "ipv6_addr")];
    for (set, address) in [PLACED, PENDING, VIPS].into_iter().flat_map(families) {
        add("set", set, &format!("type {address};"));
    }
    for (set, address) in [SERVICES, PENDING_SERVICES, IN_IPVS, CLOSED, RESTRICTED, PRESERVED].into_iter().flat_map(families) {
        add("set", set, &format!("type {address} . inet_proto . inet_service;"));
    }
    for (set, address) in [RANGES, PENDING_RANGES, RANGES_IN_IPVS, CLOSED_RANGES, RESTRICTED_RANGES].into_iter().flat_map(families) {
        add("set", set, &format!("type {address} . inet_proto . inet_service; flags interval;"));
    }
    for (set, address) in families(SOURCES) {
        add("set", set, &format!("type {address} . inet_proto . inet_service . {address}; flags interval;"));
    }
    for (set, address) in families(RETIRED) {
        add("set", set, &format!("type {address} . inet_proto . mark;"));
    }
    for (map, address) in [MARKS, PENDING_MARKS].into_iter().flat_map(families) {
        add("map", map, &format!("type {address} . inet_proto . inet_service : mark; flags interval;"));
    }
    // There is no type for words but this one.
    for set in [DAEMONS, PENDING_DAEMONS, INTERFACE] {
        add("set", set, "type ifname;");
    }
    line(&mut script, format_args!("add element inet {table} {INTERFACE} {{ \"{interface}\" }}"));
    script
}

/// The addresses are on these interfaces no more.
pub(super) fn leave(table: &str, interfaces: &BTreeSet<String>) -> String {
    let mut script = String::new();
    for verb in ["add", "delete"] {
        interfaces.iter().for_each(|left| line(&mut script, format_args!("{verb} element inet {table} {INTERFACE} {{ \"{left}\" }}")));
    }
    script
}

/// The lines for a change. Adding an element that is there changes nothing; adding it before deleting it lets the deletion of one that is not there
/// succeed.
/// `known` is the record before it.
pub(super) fn change(table: &str, change: Change<'_>, known: &Record) -> String {
    let mut script = String::new();
    let (entries, added, deleted): (_, &[_], &[_]) = match change {
        Change::Pending(entries) => (entries, &[WAITING], &[]),
        Change::Confirmed(entries) => (entries, &[THERE, WAITING], &[WAITING]),
        Change::Removed(entries) => (entries, &[THERE, WAITING], &[THERE, WAITING]),
        Change::Closed(services) => return change_closed(table, services, &["add"]),
        Change::Opened(services) => return change_closed(table, services, &["add", "delete"]),
        Change::Moved(change) => return move_ranges(table, change, known),
        Change::Filters(filters) => return change_filters(table, filters, known),
        Change::Rules(rules) => return chains(table, &rules.map(Rules::chains).unwrap_or_default(), false),
        Change::RulesAnew(rules) => return chains(table, &rules.map(Rules::chains).unwrap_or_default(), true),
    };
    for (verb, sets) in [("add", added), ("delete", deleted)] {
        let mut elements: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for set in sets {
            let Sets { addresses, services, ranges, marks, daemons } = set;
            for role in &entries.daemons {
                elements.entry(daemons).or_default().push(format!("\"{role}\""));
            }
            for address in &entries.addresses {
                elements.entry(addresses.of(*address)).or_default().push(address.to_string());
            }
            let may_have = |service: ServiceKey| !matches!(change, Change::Removed(_)) || may_be_in(set, service, known);
            for service in entries.services.iter().filter(|service| may_have(**service)) {
                let sets = if service.ports.count() == 1 { services } else { ranges };
                elements.entry(sets.of(service.vip)).or_default().push(element(*service));
            }
            for (service, mark) in marks_of(entries, change, known).into_iter().filter(|(service, _)| may_have(*service)) {
                // An element that was added in the same transaction cannot be deleted together with its value.
                let value = if verb == "add" { format!(" : {mark}") } else { String::new() };
                elements.entry(marks.of(service.vip)).or_default().push(element(service) + &value);
            }
        }
        for retired in entries.retired.iter().filter(|_| matches!(change, Change::Removed(_))) {
            elements.entry(RETIRED.of(retired.vip)).or_default().push(retired_element(*retired));
        }
        for service in in_ipvs(entries, change, verb, known) {
            let sets = if service.ports.count() == 1 { IN_IPVS } else { RANGES_IN_IPVS };
            elements.entry(sets.of(service.vip)).or_default().push(element(service));
        }
        for vip in vips(entries, change, verb, known) {
            elements.entry(VIPS.of(vip)).or_default().push(vip.to_string());
        }
        for (set, elements) in elements {
            line(&mut script, format_args!("{verb} element inet {table} {set} {{ {} }}", elements.join(", ")));
        }
    }
    if let Change::Removed(entries) = change {
        let none = entries.services.iter().map(|service| (*service, Filter::NONE)).collect();
        script.push_str(&change_filters(table, &none, known));
        script.push_str(&change_closed(table, &entries.services.intersection(&known.closed).copied().collect(), &["add", "delete"]));
    }
    script
}

/// Whether the record may have it in these sets: where a range of ports is known to be only pending, or only confirmed, and has ports of another one, that one may be in
/// the way of it in the sets that are not meant.
fn may_be_in(set: &Sets, service: ServiceKey, known: &Record) -> bool {
    let [here, elsewhere] = if set.ranges.v4 == RANGES.v4 {
        [&known.confirmed_services, &known.pending_services]
    } else {
        [&known.pending_services, &known.confirmed_services]
    };
    let alone =
        || [here, elsewhere].into_iter().flat_map(|keys| service.overlapping(keys)).all(|other| *other == service || !other.is_range());
    !service.is_range() || here.contains(&service) || !elsewhere.contains(&service) || alone()
}

/// The ranges of ports that a change is about, with their marks.
fn marks_of(entries: &Entries, change: Change<'_>, known: &Record) -> BTreeMap<ServiceKey, u32> {
    if matches!(change, Change::Confirmed(_)) {
        let known = |service: &ServiceKey| Some((*service, *known.marks.get(service)?));
        return entries.services.iter().filter_map(known).collect();
    }
    entries.marks.clone()
}

/// The lines that let ranges of ports take the places of others, with their marks and filters. No packet meets both, or none.
fn move_ranges(table: &str, change: &RangeMove, known: &Record) -> String {
    let mut script = String::new();
    let mut on_element =
        |verb: &str, set: &str, element: &str| line(&mut script, format_args!("{verb} element inet {table} {set} {{ {element} }}"));
    for from in change.leaving() {
        [RANGES, MARKS].iter().for_each(|set| on_element("delete", set.of(from.vip), &element(from)));
    }
    for made in change.made.keys() {
        let mark = known.marks.get(made).map(|mark| format!(" : {mark}")).unwrap_or_default();
        for (set, value) in [(PENDING_RANGES, ""), (PENDING_MARKS, mark.as_str())] {
            on_element("add", set.of(made.vip), &(element(*made) + value));
            on_element("delete", set.of(made.vip), &element(*made));
        }
    }
    for (to, mark) in change.arriving(&known.marks) {
        on_element("add", RANGES.of(to.vip), &element(to));
        mark.iter().for_each(|mark| on_element("add", MARKS.of(to.vip), &format!("{} : {mark}", element(to))));
    }
    for retired in change.retired.values().flatten() {
        on_element("add", RETIRED.of(retired.vip), &retired_element(*retired));
    }
    let none = change.leaving().map(|from| (from, Filter::NONE));
    let filters = none.chain(change.filters.iter().map(|(to, filter)| (*to, filter.clone()))).collect();
    script.push_str(&change_filters(table, &filters, known));
    let given_up = change.leaving().flat_map(|from| known.given_up(from)).collect();
    script.push_str(&change_closed(table, &given_up, &["delete"]));
    script
}

/// The lines that do this to what stands for these services among those of which the ports are closed.
fn change_closed(table: &str, services: &BTreeSet<ServiceKey>, verbs: &[&str]) -> String {
    let mut elements: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for service in services {
        let sets = if service.ports.count() == 1 { CLOSED } else { CLOSED_RANGES };
        elements.entry(sets.of(service.vip)).or_default().push(element(*service));
    }
    let mut script = String::new();
    for verb in verbs {
        for (set, elements) in &elements {
            line(&mut script, format_args!("{verb} element inet {table} {set} {{ {} }}", elements.join(", ")));
        }
    }
    script
}

/// What was in the sets before is deleted, and what is to be there is added; a range of clients may be inside one that was there.
fn change_filters(table: &str, filters: &BTreeMap<ServiceKey, Filter>, known: &Record) -> String {
    let mut script = String::new();
    let before = filters.keys().filter_map(|service| Some((*service, known.filters.get(service)?)));
    let after = filters.iter().map(|(service, filter)| (*service, filter));
    for (verb, elements) in [("delete", filter_elements(before)), ("add", filter_elements(after))] {
        for (set, elements) in elements {
            line(&mut script, format_args!("{verb} element inet {table} {set} {{ {} }}", elements.join(", ")));
        }
    }
    script
}

/// The elements that stand for these filters, by set.
fn filter_elements<'a>(filters: impl Iterator<Item = (ServiceKey, &'a Filter)>) -> BTreeMap<&'static str, Vec<String>> {
    let mut elements: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (service, filter) in filters {
        if let Some(sources) = &filter.sources {
            let restricted = if service.ports.count() == 1 { RESTRICTED } else { RESTRICTED_RANGES };
            elements.entry(restricted.of(service.vip)).or_default().push(element(service));
            for source in sources {
                elements.entry(SOURCES.of(service.vip)).or_default().push(format!("{} . {source}", element(service)));
            }
        }
        if filter.preserves_client && service.ports.count() == 1 {
            elements.entry(PRESERVED.of(service.vip)).or_default().push(element(service));
        }
    }
    elements
}

/// The virtual services that come to be ours in IPVS, or are so no more.
fn in_ipvs(entries: &Entries, change: Change<'_>, verb: &str, known: &Record) -> BTreeSet<ServiceKey> {
    let of_entries = entries.in_ipvs.iter();
    match (change, verb) {
        (Change::Removed(_), _) => of_entries.chain(entries.services.intersection(&known.in_ipvs)).copied().collect(),
        (_, "add") => of_entries.copied().collect(),
        _ => BTreeSet::new(),
    }
}

/// The VIPs that get their first virtual service, or lose their last one.
fn vips(entries: &Entries, change: Change<'_>, verb: &str, known: &Record) -> BTreeSet<IpAddr> {
    let of_entries = entries.services.iter().map(|service| service.vip);
    match (change, verb) {
        (Change::Confirmed(_), "add") => of_entries.collect(),
        (Change::Removed(_), _) => {
            let left = |service: &&ServiceKey| !entries.services.contains(service);
            let left: BTreeSet<IpAddr> = known.confirmed_services.iter().filter(left).map(|service| service.vip).collect();
            of_entries.filter(|vip| !left.contains(vip)).collect()
        }
        _ => BTreeSet::new(),
    }
}

/// These chains and no others: what they have now is replaced by this. `anew` where one of them stands where it should not, and must go first.
fn chains(table: &str, chains: &[Chain], anew: bool) -> String {
    let mut script = String::new();
    for name in Rules::CHAINS.into_iter().filter(|name| anew || !chains.iter().any(|chain| chain.name == *name)) {
        line(&mut script, format_args!("add chain inet {table} {name}"));
        line(&mut script, format_args!("delete chain inet {table} {name}"));
    }
    chains.iter().for_each(|chain| script.push_str(&chain.script("inet", table)));
    script
}

/// Takes ours out of a table in which somebody else has something.
pub(super) fn remove_ours(table: &str, chains: &[String], sets: &[String], maps: &[String]) -> String {
    let mut script = String::new();
    for (kind, names) in [("chain", chains), ("set", sets), ("map", maps)] {
        for name in names {
            line(&mut script, format_args!("delete {kind} inet {table} {name}"));
        }
    }
    script
}

/// Removes the whole table.
pub(super) fn remove_all(table: &str) -> String {
    format!("delete table inet {table}\n")
}

fn element(service: ServiceKey) -> String {
    format!("{} . {} . {}", service.vip, service.protocol, service.ports)
}

fn retired_element(RetiredRange { vip, protocol, mark }: RetiredRange) -> String {
    format!("{vip} . {protocol} . {mark}")
}

fn line(script: &mut String, text: impl Display) {
    // Writing to a String cannot fail.
    let _infallible = writeln!(script, "{text}");
}
