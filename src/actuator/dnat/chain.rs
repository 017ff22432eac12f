// SPDX-License-Identifier: Apache-2.0
//! A virtual service as text of nft: the chain that translates the destination of its new connections, and the table by which it chooses.
//!
//! Input: which scheduler and which real servers. Output: a [`ServiceChain`]. Invariants: equal input gives equal text on every router node; the comment of the
//! first rule carries a digest of rule and table, and the table cannot be changed but together with its rule (`flags constant`), so that the comments
//! of a chain tell all that it does; the rules after the first translate nothing: they list the real servers.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::{IpAddr, SocketAddr};

use super::maglev;
use crate::api::{PortRange, Scheduler};
use crate::desired::{Scheduling, ServiceKey, digest};
use crate::observed::{ObservedVirtualService, ServiceMode};

/// All router nodes must choose alike, so that it is neither random nor configurable.
const SEED: &str = "0x76697068";

/// The most places of the table of `wrr`; greater weights are brought down in proportion.
const MOST_PLACES: u32 = 4_096;

/// What differs between the two tables.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Family {
    /// The family of the nft table, and of `dnat`.
    pub(super) ip: &'static str,
    /// The type of an address.
    pub(super) address: &'static str,
    /// The transport protocol where a map has ranges, with which some kernels refuse `meta l4proto`.
    pub(super) protocol: &'static str,
}

/// Both of them.
pub(super) const FAMILIES: [Family; 2] = [
    Family { ip: "ip", address: "ipv4_addr", protocol: "ip protocol" },
    Family { ip: "ip6", address: "ipv6_addr", protocol: "ip6 nexthdr" },
];

impl Family {
    pub(super) const fn of(vip: IpAddr) -> Self {
        let [four, six] = FAMILIES;
        if vip.is_ipv4() { four } else { six }
    }
}

/// What stands in a chain.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct ServiceChain {
    /// The table by which it chooses; none where there is nothing to choose.
    pub(super) table: Option<Table>,
    /// Rules, each with its comment.
    pub(super) rules: Vec<(String, String)>,
}

/// A map from places to real servers.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Table {
    /// Of which type.
    pub(super) kind: String,
    /// `0 : 192.168.1.1 . 80, 1 : ...`
    pub(super) elements: String,
}

/// The chain of a service that is set to this.
pub(super) fn service_chain(key: ServiceKey, mode: ServiceMode, service: &ObservedVirtualService) -> ServiceChain {
    let family = Family::of(key.vip);
    let weights: BTreeMap<SocketAddr, u32> = service.real_servers.iter().map(|server| (server.address, server.weight.0)).collect();
    let active: BTreeMap<SocketAddr, u32> =
        weights.iter().filter(|(_, weight)| **weight > 0).map(|(server, weight)| (*server, *weight)).collect();
    let (table, text) = choice(key, family, mode.scheduling, &active);
    let digested = format!("{text}{}", table.as_ref().map_or("", |table| &table.elements));
    let mut rules = vec![(text, format!("{} [{:08x}]", describe(mode), digest(&digested)))];
    rules.extend(weights.iter().map(|(server, weight)| (roster(family, *server), weight_comment(*weight))));
    ServiceChain { table, rules }
}

/// The rule that sends a new connection somewhere, and its table.
fn choice(key: ServiceKey, family: Family, scheduling: Scheduling, active: &BTreeMap<SocketAddr, u32>) -> (Option<Table>, String) {
    let (ip, protocol) = (family.ip, key.protocol);
    if let [only] = active.keys().collect::<Vec<_>>().as_slice() {
        let target = if only.port() == 0 { only.ip().to_string() } else { only.to_string() };
        return (None, format!("meta l4proto {protocol} dnat {ip} to {target}"));
    }
    let places = match scheduling.scheduler {
        Scheduler::MaglevHashing => maglev::table(active),
        _ => in_turn(active),
    };
    let Some(first) = places.first() else { return (None, "drop".to_owned()) };
    let hashed = if scheduling.by_port { format!("{ip} saddr . th sport") } else { format!("{ip} saddr") };
    let chosen = match scheduling.scheduler {
        Scheduler::MaglevHashing | Scheduler::SourceHashing => format!("jhash {hashed} mod {} seed {SEED}", places.len()),
        _ => format!("numgen inc mod {}", places.len()),
    };
    let port = if first.port() == 0 { "" } else { " . th dport" };
    let kind = format!("typeof numgen inc mod 2 : {ip} daddr{port}; flags constant;");
    let mut elements = String::new();
    for (place, server) in places.iter().enumerate() {
        let separator = if place == 0 { "" } else { ", " };
        let port = if server.port() == 0 { String::new() } else { format!(" . {}", server.port()) };
        // Writing to a String cannot fail.
        let _infallible = write!(elements, "{separator}{place} : {}{port}", server.ip());
    }
    (Some(Table { kind, elements }), format!("meta l4proto {protocol} dnat {ip} to {chosen} map @{}", chain_name(key)))
}

/// Each server as often as it weighs, the turns of one spread over those of the others.
fn in_turn(active: &BTreeMap<SocketAddr, u32>) -> Vec<SocketAddr> {
    let divisor = active.values().copied().fold(0, greatest_common_divisor).max(1);
    let sum: u64 = active.values().map(|weight| u64::from(weight / divisor)).sum();
    let scaled = |weight: u32| {
        let weight = weight / divisor;
        if sum <= u64::from(MOST_PLACES) {
            return weight;
        }
        u32::try_from(u64::from(weight) * u64::from(MOST_PLACES) / sum).unwrap_or(MOST_PLACES).max(1)
    };
    let scaled: Vec<(SocketAddr, u32)> = active.iter().map(|(server, weight)| (*server, scaled(*weight))).collect();
    let heaviest = scaled.iter().map(|(_, weight)| *weight).max().unwrap_or(0);
    (0..heaviest).flat_map(|turn| scaled.iter().filter(move |(_, weight)| *weight > turn).map(|(server, _)| *server)).collect()
}

const fn greatest_common_divisor(one: u32, other: u32) -> u32 {
    let (mut one, mut other) = (one, other);
    while other != 0 {
        (one, other) = (other, one % other);
    }
    one
}

/// Says that the server is there. No new connection to the VIP comes from its translation to here.
fn roster(family: Family, server: SocketAddr) -> String {
    let port = if server.port() == 0 { String::new() } else { format!(" th dport {}", server.port()) };
    format!("{} daddr {}{port} drop", family.ip, server.ip())
}

pub(super) fn weight_comment(weight: u32) -> String {
    format!("weight {weight}")
}

/// The name of chain and table, such as `tcp/10.0.0.7/80` or `udp/2001_db8__7/1000-2000`: nft has no colon in names.
pub(super) fn chain_name(key: ServiceKey) -> String {
    format!("{}/{}/{}", key.protocol, key.vip, key.ports).replace(':', "_")
}

/// What a chain of this name is for.
pub(super) fn service_of(chain: &str) -> Option<ServiceKey> {
    let mut words = chain.splitn(3, '/');
    let protocol = words.next()?.parse().ok()?;
    let vip = words.next()?.replace('_', ":").parse().ok()?;
    let ports = words.next()?;
    let (first, last) = ports.split_once('-').unwrap_or((ports, ports));
    let key = ServiceKey { vip, protocol, ports: PortRange::new(first.parse().ok()?, last.parse().ok()?).ok()? };
    (chain_name(key) == chain).then_some(key)
}

/// A mode in words: `mh port fallback`.
fn describe(mode: ServiceMode) -> String {
    let ServiceMode { scheduling: Scheduling { scheduler, by_port, persistence: _ }, fallback } = mode;
    let word = |on, word| if on { word } else { "" };
    format!("{}{}{}", scheduler.word(), word(by_port, " port"), word(fallback, " fallback"))
}

/// The mode in the comment of a first rule.
pub(super) fn mode_of(comment: &str) -> Option<ServiceMode> {
    let (words, _digest) = comment.rsplit_once(" [")?;
    let modes = Scheduler::ALL.iter().flat_map(|scheduler| {
        let all = [(false, false), (false, true), (true, false), (true, true)];
        all.map(|(by_port, fallback)| ServiceMode {
            scheduling: Scheduling { scheduler: *scheduler, by_port, persistence: None },
            fallback,
        })
    });
    modes.into_iter().find(|mode| describe(*mode) == words)
}
