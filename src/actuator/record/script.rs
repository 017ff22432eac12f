// SPDX-License-Identifier: Apache-2.0
//! The scripts of `nft` that make, change and remove the table of an instance. Each says the same whatever the table held before.

use std::collections::BTreeMap;
use std::fmt::{Display, Write as _};
use std::net::IpAddr;

use super::Change;
use crate::desired::{Rules, ServiceKey};

pub(super) const PLACED: Pair = Pair { v4: "placed4", v6: "placed6" };
pub(super) const PENDING: Pair = Pair { v4: "pending4", v6: "pending6" };
pub(super) const SERVICES: Pair = Pair { v4: "services4", v6: "services6" };
pub(super) const PENDING_SERVICES: Pair = Pair { v4: "pending-services4", v6: "pending-services6" };
/// Maps from ranges of ports to firewall marks.
pub(super) const MARKS: Pair = Pair { v4: "marks4", v6: "marks6" };
/// The interface that the addresses are on.
pub(super) const INTERFACE: &str = "interface";

/// A set for each family.
#[derive(Clone, Copy)]
pub(super) struct Pair {
    pub(super) v4: &'static str,
    pub(super) v6: &'static str,
}

impl Pair {
    pub(super) fn has(self, set: &str) -> bool {
        set == self.v4 || set == self.v6
    }

    const fn of(self, vip: IpAddr) -> &'static str {
        if vip.is_ipv4() { self.v4 } else { self.v6 }
    }
}

/// Table and sets, made where they are not there yet.
pub(super) fn layout(table: &str, interface: &str) -> String {
    let mut script = String::new();
    line(&mut script, format_args!("add table inet {table} {{ comment \"vipherald: which addresses it placed\"; }}"));
    for (pair, meaning) in [(PLACED, "placed by vipherald"), (PENDING, "about to be placed by vipherald")] {
        line(&mut script, format_args!("add set inet {table} {} {{ type ipv4_addr; comment \"{meaning}\"; }}", pair.v4));
        line(&mut script, format_args!("add set inet {table} {} {{ type ipv6_addr; comment \"{meaning}\"; }}", pair.v6));
    }
    for (pair, meaning) in [(SERVICES, "virtual services of vipherald"), (PENDING_SERVICES, "about to be made by vipherald")] {
        for (set, address) in [(pair.v4, "ipv4_addr"), (pair.v6, "ipv6_addr")] {
            let kind = format!("type {address} . inet_proto . inet_service; flags interval; comment \"{meaning}\";");
            line(&mut script, format_args!("add set inet {table} {set} {{ {kind} }}"));
        }
    }
    for (map, address) in [(MARKS.v4, "ipv4_addr"), (MARKS.v6, "ipv6_addr")] {
        let kind = format!("type {address} . inet_proto . inet_service : mark; flags interval; comment \"ranges of ports\";");
        line(&mut script, format_args!("add map inet {table} {map} {{ {kind} }}"));
    }
    line(&mut script, format_args!("add set inet {table} {INTERFACE} {{ type ifname; comment \"where the addresses are\"; }}"));
    line(&mut script, format_args!("add element inet {table} {INTERFACE} {{ \"{interface}\" }}"));
    script
}

/// The lines for a change. Adding an element that is there changes nothing; adding it before deleting it lets the deletion of one that is not there
/// succeed.
pub(super) fn change(table: &str, change: Change<'_>) -> String {
    let mut script = String::new();
    let (entries, added, deleted): (_, &[_], &[_]) = match change {
        Change::Pending(entries) => (entries, &[(PENDING, PENDING_SERVICES)], &[]),
        Change::Confirmed(entries) => {
            (entries, &[(PLACED, SERVICES), (PENDING, PENDING_SERVICES)], &[(PENDING, PENDING_SERVICES)])
        }
        Change::Removed(entries) => {
            const ALL: &[(Pair, Pair)] = &[(PLACED, SERVICES), (PENDING, PENDING_SERVICES)];
            (entries, ALL, ALL)
        }
        Change::Rules(rules) => return chains(table, rules),
    };
    for (verb, sets) in [("add", added), ("delete", deleted)] {
        for (addresses, services) in sets {
            let addresses = entries.addresses.iter().map(|address| (addresses.of(*address), address.to_string()));
            let services = entries.services.iter().map(|service| (services.of(service.vip), element(*service)));
            let marks = entries.marks.iter().map(|(service, mark)| {
                // An element of a map that was added in the same transaction cannot be deleted together with its value.
                let value = if verb == "add" { format!(" : {mark}") } else { String::new() };
                (MARKS.of(service.vip), element(*service) + &value)
            });
            for (set, elements) in by_set(addresses.chain(services).chain(marks)) {
                line(&mut script, format_args!("{verb} element inet {table} {set} {{ {elements} }}"));
            }
        }
    }
    script
}

/// The chains anew, so that whatever was in them is gone, or gone altogether.
fn chains(table: &str, rules: Option<&Rules>) -> String {
    let mut script = String::new();
    for chain in Rules::CHAINS {
        line(&mut script, format_args!("add chain inet {table} {chain}"));
        line(&mut script, format_args!("delete chain inet {table} {chain}"));
    }
    for chain in rules.iter().flat_map(|rules| rules.chains()) {
        line(&mut script, format_args!("add chain inet {table} {} {{ {} }}", chain.name, chain.hook));
        for rule in chain.rules {
            line(&mut script, format_args!("add rule inet {table} {} {} comment \"{}\"", chain.name, rule.text, rule.comment()));
        }
    }
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

/// The elements of each set.
fn by_set(elements: impl Iterator<Item = (&'static str, String)>) -> BTreeMap<&'static str, String> {
    let mut sets: BTreeMap<&str, String> = BTreeMap::new();
    for (set, element) in elements {
        let list = sets.entry(set).or_default();
        if !list.is_empty() {
            list.push_str(", ");
        }
        list.push_str(&element);
    }
    sets
}

fn element(service: ServiceKey) -> String {
    format!("{} . {} . {}", service.vip, service.protocol, service.ports)
}

fn line(script: &mut String, text: impl Display) {
    // Writing to a String cannot fail.
    let _infallible = writeln!(script, "{text}");
}
