// SPDX-License-Identifier: Apache-2.0
//! A virtual service as text of nft: the chain that translates the destination of its new connections, and the table by which it chooses.
//!
//! Input: which scheduler and which real servers. Output: a [`ServiceChain`]. Invariants: equal input gives equal text on every router node; the comment of the
//! first rule carries a digest of rule and table, and the table cannot be changed but together with its rule (`flags constant`), so that the comments
//! of a chain tell all that it does; where it chooses by a table, a rule without one follows for packets that a change overtakes between rule and table; the
//! rules after these translate nothing: they list the real servers.

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

/// The comment of the rule for packets that find a table replaced.
const INSTEAD_OF_TABLE: &str = "while the table is replaced";

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
    // The elements of a table that is replaced count no more as soon as the new rules are in force, also for a packet that still meets the former ones.
    let instead = active.keys().next().filter(|_| table.is_some());
    rules.extend(instead.map(|server| (translation(key, family, *server), INSTEAD_OF_TABLE.to_owned())));
    rules.extend(weights.iter().map(|(server, weight)| (roster(family, *server), weight_comment(*weight))));
    ServiceChain { table, rules }
}

/// The rule that sends a new connection somewhere, and its table.
fn choice(key: ServiceKey, family: Family, scheduling: Scheduling, active: &BTreeMap<SocketAddr, u32>) -> (Option<Table>, String) {
    let (ip, protocol) = (family.ip, key.protocol);
    if let [only] = active.keys().collect::<Vec<_>>().as_slice() {
        return (None, translation(key, family, **only));
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

/// The rule that sends each new connection to this server.
fn translation(key: ServiceKey, family: Family, server: SocketAddr) -> String {
    let target = if server.port() == 0 { server.ip().to_string() } else { server.to_string() };
    format!("meta l4proto {} dnat {} to {target}", key.protocol, family.ip)
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

#[cfg(test)]
mod tests {
    use ipvs::Weight;

    use super::*;

    fn key(vip: &str, protocol: &str, ports: (i64, i64)) -> ServiceKey {
        ServiceKey { vip: vip.parse().unwrap(), protocol: protocol.parse().unwrap(), ports: PortRange::new(ports.0, ports.1).unwrap() }
    }

    fn mode(scheduler: Scheduler) -> ServiceMode {
        ServiceMode { scheduling: Scheduling::of(scheduler), fallback: false }
    }

    fn service(servers: &[(&str, u32)]) -> ObservedVirtualService {
        let server = |(server, weight): &(&str, u32)| super::super::real_server(server.parse().unwrap(), Weight(*weight));
        ObservedVirtualService { mode: None, real_servers: servers.iter().map(server).collect() }
    }

    fn text(key: ServiceKey, scheduler: Scheduler, servers: &[(&str, u32)]) -> (Option<String>, Vec<String>) {
        let ServiceChain { table, rules } = service_chain(key, mode(scheduler), &service(servers));
        (table.map(|table| table.elements), rules.into_iter().map(|(rule, _)| rule).collect())
    }

    #[test]
    fn names_are_read_as_they_are_written() {
        for (key, name) in [
            (key("10.0.0.7", "tcp", (80, 80)), "tcp/10.0.0.7/80"),
            (key("2001:db8::7", "udp", (1000, 2000)), "udp/2001_db8__7/1000-2000"),
            (key("::1", "sctp", (1, 1)), "sctp/__1/1"),
        ] {
            assert_eq!(chain_name(key), name);
            assert_eq!(service_of(name), Some(key));
        }
        for name in [
            "",
            "balance",
            "tcp/10.0.0.7",
            "tcp/10.0.0.7/0",
            "icmp/10.0.0.7/80",
            "tcp/10.0.0.7/80-80",
            "tcp/10.0.0.7/80/1",
            "TCP/10.0.0.7/80",
        ] {
            assert_eq!(service_of(name), None, "{name}");
        }
    }

    #[test]
    fn every_mode_is_known_again_by_its_comment() {
        for scheduler in Scheduler::ALL {
            for (by_port, fallback) in [(false, false), (false, true), (true, false), (true, true)] {
                let mode = ServiceMode { scheduling: Scheduling { scheduler: *scheduler, by_port, persistence: None }, fallback };
                assert_eq!(mode_of(&format!("{} [00000000]", describe(mode))), Some(mode));
            }
        }
        for comment in ["", "mh", "mh port", "nothing [00000000]", " [00000000]"] {
            assert_eq!(mode_of(comment), None, "{comment}");
        }
    }

    #[test]
    fn a_chain_chooses_and_then_lists() {
        let four = key("10.0.0.7", "tcp", (80, 80));
        let (table, rules) = text(four, Scheduler::WeightedRoundRobin, &[("10.1.0.1:80", 2), ("10.1.0.2:8080", 4), ("10.1.0.3:80", 0)]);
        assert_eq!(table.as_deref(), Some("0 : 10.1.0.1 . 80, 1 : 10.1.0.2 . 8080, 2 : 10.1.0.2 . 8080"));
        let listed = ["ip daddr 10.1.0.1 th dport 80 drop", "ip daddr 10.1.0.2 th dport 8080 drop", "ip daddr 10.1.0.3 th dport 80 drop"];
        assert_eq!(rules[0], "meta l4proto tcp dnat ip to numgen inc mod 3 map @tcp/10.0.0.7/80");
        assert_eq!(rules[1], "meta l4proto tcp dnat ip to 10.1.0.1:80");
        assert_eq!(rules[2..], listed);
        let range = key("2001:db8::7", "udp", (1000, 2000));
        let (table, rules) = text(range, Scheduler::SourceHashing, &[("[2001:db8:1::1]:0", 1), ("[2001:db8:1::2]:0", 1)]);
        assert_eq!(table.as_deref(), Some("0 : 2001:db8:1::1, 1 : 2001:db8:1::2"));
        assert_eq!(rules[0], "meta l4proto udp dnat ip6 to jhash ip6 saddr mod 2 seed 0x76697068 map @udp/2001_db8__7/1000-2000");
        assert_eq!(rules[1], "meta l4proto udp dnat ip6 to 2001:db8:1::1");
        let (table, rules) = text(four, Scheduler::MaglevHashing, &[("10.1.0.1:80", 1), ("10.1.0.2:80", 1)]);
        assert_eq!(table.unwrap().split(", ").count(), 251);
        assert_eq!(rules[0], "meta l4proto tcp dnat ip to jhash ip saddr . th sport mod 251 seed 0x76697068 map @tcp/10.0.0.7/80");
    }

    #[test]
    fn who_stands_there_alone_needs_no_table_and_nobody_gets_nothing() {
        let four = key("10.0.0.7", "tcp", (80, 80));
        let (table, rules) = text(four, Scheduler::MaglevHashing, &[("10.1.0.1:80", 1), ("10.1.0.2:80", 0)]);
        assert_eq!((table, rules[0].as_str()), (None, "meta l4proto tcp dnat ip to 10.1.0.1:80"));
        let (table, rules) = text(key("2001:db8::7", "tcp", (80, 80)), Scheduler::RoundRobin, &[("[2001:db8:1::1]:80", 1)]);
        assert_eq!((table, rules[0].as_str()), (None, "meta l4proto tcp dnat ip6 to [2001:db8:1::1]:80"));
        for servers in [&[][..], &[("10.1.0.1:80", 0)]] {
            assert_eq!(text(four, Scheduler::SourceHashing, servers).1[0], "drop");
        }
    }

    #[test]
    fn great_weights_are_brought_down_and_nobody_is_left_out() {
        let weights = |servers: &[(&str, u32)]| servers.iter().map(|(server, weight)| (server.parse().unwrap(), *weight)).collect();
        let turns: BTreeMap<SocketAddr, u32> = weights(&[("10.1.0.1:80", 65_535), ("10.1.0.2:80", 1)]);
        let turns = in_turn(&turns);
        assert!(turns.len() <= 4_097, "{}", turns.len());
        assert_eq!(turns.iter().filter(|server| server.ip() == IpAddr::from([10, 1, 0, 2])).count(), 1);
    }

    #[test]
    fn the_comment_tells_of_every_change_of_the_table() {
        let four = key("10.0.0.7", "tcp", (80, 80));
        let comment = |servers: &[(&str, u32)]| service_chain(four, mode(Scheduler::RoundRobin), &service(servers)).rules[0].1.clone();
        assert_ne!(comment(&[("10.1.0.1:80", 1), ("10.1.0.2:80", 1)]), comment(&[("10.1.0.1:80", 1), ("10.1.0.3:80", 1)]));
    }
}
