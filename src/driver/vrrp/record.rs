// SPDX-License-Identifier: Apache-2.0
//! The record of the virtual addresses that are ours where they are found, and the rules by which some are not answered for: text of `nft`, and its listing.
//!
//! Both are in a table of the instance beside the one of [`actuator::record`](crate::actuator), which has another writer: `inet <instance>.vrrp`, and
//! `arp <instance>.vrrp` while IPv4 addresses are silent, or behind a virtual router MAC, which the interface is not to answer for with its own. They live and die with the kernel state that they speak of.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::net::IpAddr;

use serde::Deserialize;
use serde_json::Value;

use super::virtual_link::VirtualLink;

/// Addresses by the interface that they are on.
pub(super) type Recorded = BTreeMap<String, BTreeSet<IpAddr>>;

/// Addresses that are not answered for: on the interface of this name, or on none. Each link with a virtual router MAC is among them, also without one.
pub(super) type Silent = BTreeMap<Option<String>, BTreeSet<IpAddr>>;

const COMMENT: &str = "virtual addresses that vipherald places";
/// The sets, and the types of their addresses.
const SETS: [(&str, &str); 2] = [("held4", "ipv4_addr"), ("held6", "ipv6_addr")];
/// Before whoever else drops or answers.
const PRIORITY: i32 = -400;

/// The name of the table. No instance has a dot in its name.
pub(super) fn table(instance: &str) -> String {
    format!("{instance}.vrrp")
}

/// Makes the record say this, whatever it said before.
pub(super) fn write(table: &str, recorded: &Recorded) -> String {
    let mut script = format!("add table inet {table}\n");
    for (set, kind) in SETS {
        let of_set = |address: &&IpAddr| address.is_ipv4() == (kind == "ipv4_addr");
        let elements = recorded
            .iter()
            .flat_map(|(interface, addresses)| addresses.iter().filter(of_set).map(move |address| format!("\"{interface}\" . {address}")));
        let elements: Vec<String> = elements.collect();
        line(&mut script, &format!("add set inet {table} {set} {{ type ifname . {kind}; comment \"{COMMENT}\"; }}"));
        line(&mut script, &format!("flush set inet {table} {set}"));
        if !elements.is_empty() {
            line(&mut script, &format!("add element inet {table} {set} {{ {} }}", elements.join(", ")));
        }
    }
    script
}

/// Lets nobody be told where these are: neither by an answer (RFC 826; RFC 4861 §7.2.4), nor, where that is on no interface, by a question in which one of
/// them asks.
pub(super) fn silence(table: &str, silent: &Silent) -> String {
    let mut script = format!("add table inet {table}\n");
    chains(&mut script, "inet", table);
    line(&mut script, &format!("add table arp {table}"));
    if silent.values().flatten().any(IpAddr::is_ipv4) {
        chains(&mut script, "arp", table);
    } else {
        line(&mut script, &format!("delete table arp {table}"));
    }
    for (interface, addresses) in silent {
        let on = interface.as_ref().map(|name| format!("iifname \"{name}\" ")).unwrap_or_default();
        let (mut ipv4, mut ipv6, mut targets) = (vec![], vec![], vec![]);
        for address in addresses {
            match address {
                IpAddr::V4(address) => ipv4.push(address.to_string()),
                IpAddr::V6(address) => {
                    ipv6.push(address.to_string());
                    targets.push(format!("{:#034x}", address.to_bits()));
                }
            }
        }
        let (ipv4, ipv6, targets) = (ipv4.join(", "), ipv6.join(", "), targets.join(", "));
        let mut rule = |text: String| line(&mut script, &format!("add rule {text} drop"));
        if !ipv6.is_empty() {
            // The target of a solicitation follows eight octets of header.
            rule(format!("inet {table} in {on}icmpv6 type nd-neighbor-solicit @th,64,128 {{ {targets} }}"));
        }
        if !ipv4.is_empty() {
            rule(format!("arp {table} in {on}arp operation request arp daddr ip {{ {ipv4} }}"));
        }
        // Such a link is a way in for the addresses on it, and no interface of the node that has addresses and routes of its own (RFC 4861 §6.3.4).
        if interface.as_deref().is_some_and(|name| VirtualLink::named(name).is_some()) {
            rule(format!("inet {table} in {on}icmpv6 type nd-router-advert"));
        }
        if interface.is_none() && !ipv6.is_empty() {
            rule(format!("inet {table} out icmpv6 type nd-neighbor-solicit ip6 saddr {{ {ipv6} }}"));
        }
        if interface.is_none() && !ipv4.is_empty() {
            rule(format!("arp {table} out arp saddr ip {{ {ipv4} }}"));
        }
    }
    script
}

fn chains(script: &mut String, family: &str, table: &str) {
    for (chain, hook) in [("in", "input"), ("out", "output")] {
        line(script, &format!("add chain {family} {table} {chain} {{ type filter hook {hook} priority {PRIORITY}; }}"));
        line(script, &format!("flush chain {family} {table} {chain}"));
    }
}

/// Removes all of it.
pub(super) fn remove(table: &str) -> String {
    ["inet", "arp"].map(|family| format!("add table {family} {table}\ndelete table {family} {table}\n")).concat()
}

fn line(script: &mut String, text: &str) {
    // Writing to a String cannot fail.
    let _infallible = writeln!(script, "{text}");
}

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
    name: String,
    comment: Option<String>,
    #[serde(default)]
    elem: Vec<Element>,
}

#[derive(Deserialize)]
struct Element {
    concat: (String, Value),
}

/// Why a listing of the record says nothing.
#[derive(Debug, thiserror::Error)]
pub(super) enum ListingError {
    #[error("cannot understand what nft lists")]
    Json(#[from] serde_json::Error),
    #[error("the set {0} was not made by vipherald; give this instance another name, or take the table away")]
    NotOurs(String),
}

/// What `nft -j list table inet TABLE` says.
pub(super) fn read(json: &[u8]) -> Result<Recorded, ListingError> {
    let listing: Listing = serde_json::from_slice(json)?;
    let mut recorded = Recorded::new();
    for set in listing.nftables.into_iter().filter_map(|object| object.set) {
        if !SETS.iter().any(|(name, _)| *name == set.name) || set.comment.as_deref() != Some(COMMENT) {
            return Err(ListingError::NotOurs(set.name));
        }
        for Element { concat: (interface, address) } in set.elem {
            if let Some(address) = address.as_str().and_then(|text| text.parse().ok()) {
                recorded.entry(interface).or_default().insert(address);
            }
        }
    }
    Ok(recorded)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recorded() -> Recorded {
        let addresses = ["10.0.0.7", "10.0.0.8", "2001:db8::7"].map(|text| text.parse().unwrap());
        Recorded::from([("eth0".to_owned(), addresses.into())])
    }

    #[test]
    fn the_record_is_written_whole() {
        insta::assert_snapshot!(write("vipherald.vrrp", &recorded()), @r#"
        add table inet vipherald.vrrp
        add set inet vipherald.vrrp held4 { type ifname . ipv4_addr; comment "virtual addresses that vipherald places"; }
        flush set inet vipherald.vrrp held4
        add element inet vipherald.vrrp held4 { "eth0" . 10.0.0.7, "eth0" . 10.0.0.8 }
        add set inet vipherald.vrrp held6 { type ifname . ipv6_addr; comment "virtual addresses that vipherald places"; }
        flush set inet vipherald.vrrp held6
        add element inet vipherald.vrrp held6 { "eth0" . 2001:db8::7 }
        "#);
    }

    #[test]
    fn what_is_silent_on_one_interface_is_answered_for_on_others_and_asks() {
        let of = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect::<BTreeSet<IpAddr>>();
        let silent = Silent::from([(None, of(&["10.0.0.7"])), (Some("eth0".to_owned()), of(&["10.0.0.8", "2001:db8::8"]))]);
        let rules: Vec<String> = silence("t", &silent).lines().filter(|line| line.starts_with("add rule")).map(str::to_owned).collect();
        assert_eq!(
            rules,
            [
                "add rule arp t in arp operation request arp daddr ip { 10.0.0.7 } drop",
                "add rule arp t out arp saddr ip { 10.0.0.7 } drop",
                "add rule inet t in iifname \"eth0\" icmpv6 type nd-neighbor-solicit @th,64,128 { 0x20010db8000000000000000000000008 } drop",
                "add rule arp t in iifname \"eth0\" arp operation request arp daddr ip { 10.0.0.8 } drop",
            ]
        );
        let of_link = silence("t", &Silent::from([(Some("v6-7-a".to_owned()), BTreeSet::new())]));
        assert!(of_link.ends_with("\nadd rule inet t in iifname \"v6-7-a\" icmpv6 type nd-router-advert drop\n"), "{of_link}");
        assert!(silence("t", &Silent::new()).ends_with("add table arp t\ndelete table arp t\n"));
    }

    #[test]
    fn a_listing_is_read() {
        let json = br#"{"nftables": [{"metainfo": {"version": "1.0.6"}}, {"table": {"family": "inet", "name": "vipherald.vrrp", "handle": 1}},
            {"set": {"family": "inet", "name": "held4", "table": "vipherald.vrrp", "type": ["ifname", "ipv4_addr"], "handle": 3,
              "comment": "virtual addresses that vipherald places", "elem": [{"concat": ["eth0", "10.0.0.7"]}, {"concat": ["eth0", "10.0.0.8"]}]}},
            {"set": {"family": "inet", "name": "held6", "table": "vipherald.vrrp", "type": ["ifname", "ipv6_addr"], "handle": 4,
              "comment": "virtual addresses that vipherald places", "elem": [{"concat": ["eth0", "2001:db8::7"]}]}}]}"#;
        assert_eq!(read(json).unwrap(), recorded());
        let foreign = String::from_utf8_lossy(json).replace("virtual addresses that vipherald places", "mine");
        assert_eq!(read(foreign.as_bytes()).unwrap_err().to_string().split(';').next(), Some("the set held4 was not made by vipherald"));
    }
}
