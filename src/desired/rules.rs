// SPDX-License-Identifier: Apache-2.0
//! The nft chains that go with balancing, as text: packets to a VIP reach IPVS, and nothing else on the node; answers come back this way.
//!
//! Input: what the configuration says. Output: chains and rules, the same for every VIP: which addresses and ports are meant is in the sets of the
//! record. Invariant: each rule carries a comment with a digest of its text, so that the rules that are there can be told from those that should be.

use std::ops::RangeInclusive;

use super::BalancerKind;

/// What the rules do.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Rules {
    /// Who balances.
    pub balancer: BalancerKind,
    /// What becomes of traffic to a port of a VIP that nobody serves.
    pub unserved_ports: UnservedPorts,
    /// The first of the firewall marks that are ours.
    pub first_mark: u32,
}

/// `dataplane.unservedPorts`.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum UnservedPorts {
    /// It is dropped in silence.
    #[default]
    Drop,
    /// It is refused: TCP by a reset, all else by ICMP.
    Reject,
}

/// One chain.
pub struct Chain {
    /// Its name.
    pub name: &'static str,
    /// Type, hook and priority.
    pub hook: &'static str,
    /// Its rules in order.
    pub rules: Vec<Rule>,
}

/// One rule.
pub struct Rule {
    /// What it is for.
    purpose: &'static str,
    /// As `nft` reads it.
    pub text: String,
}

impl Rule {
    pub(super) const fn new(purpose: &'static str, text: String) -> Self {
        Self { purpose, text }
    }

    /// The comment that it carries.
    #[must_use]
    pub fn comment(&self) -> String {
        format!("{} [{:08x}]", self.purpose, digest(&self.text))
    }
}

impl Rules {
    /// The names of all chains that an instance may have.
    pub const CHAINS: [&'static str; 6] = ["unserved", "claim", "claim-local", "to-mark", "from-mark", "answers"];

    /// How many firewall marks are ours, and so how many long ranges of ports there can be.
    const MARKS: u32 = 1024;

    /// The firewall marks that are ours.
    #[must_use]
    pub const fn marks(&self) -> RangeInclusive<u32> {
        self.first_mark..=self.first_mark.saturating_add(Self::MARKS - 1)
    }

    /// The comments of all rules, each after the name of its chain: what a listing shows where the rules are these.
    #[must_use]
    pub fn fingerprint(&self) -> Vec<String> {
        let dispatch = if self.translates() { Self::dispatch_fingerprint() } else { Vec::new() };
        self.fingerprint_of_record().into_iter().chain(dispatch).collect()
    }

    /// Those of the chains that stand beside the record.
    #[must_use]
    pub fn fingerprint_of_record(&self) -> Vec<String> {
        self.chains().iter().flat_map(|chain| chain.rules.iter().map(|rule| format!("{}: {}", chain.name, rule.comment()))).collect()
    }

    /// The chains.
    #[must_use]
    pub fn chains(&self) -> Vec<Chain> {
        vec![
            // Before anything translates addresses, or a node port of a VIP would be open.
            Chain { name: "unserved", hook: "type filter hook prerouting priority -150;", rules: self.unserved() },
            // Before kube-proxy (dstnat), which would take the connection away from IPVS.
            Chain { name: "claim", hook: "type nat hook prerouting priority -110;", rules: claim() },
            Chain { name: "claim-local", hook: "type nat hook output priority -110;", rules: claim() },
            // Just before IPVS, which compares the whole mark: whatever others have set in it is in the way.
            Chain { name: "to-mark", hook: "type filter hook input priority 90;", rules: mark() },
            Chain { name: "from-mark", hook: "type filter hook postrouting priority -150;", rules: self.unmark() },
            Chain { name: "answers", hook: "type nat hook postrouting priority 90;", rules: masquerade() },
        ]
    }

    /// The mark has done its work, and must not mean something to others.
    fn unmark(&self) -> Vec<Rule> {
        let marks = self.marks();
        vec![Rule::new("marks end here", format!("meta mark {}-{} meta mark set 0", marks.start(), marks.end()))]
    }

    fn unserved(&self) -> Vec<Rule> {
        let verdicts: &[(&str, &str)] = match self.unserved_ports {
            UnservedPorts::Drop => &[("", "drop")],
            UnservedPorts::Reject => &[("meta l4proto tcp ", "reject with tcp reset"), ("", "reject")],
        };
        let mut rules = Vec::new();
        for Family { ip, placed, pending, services, ranges, protocol, icmp, .. } in FAMILIES {
            let version = if ip == "ip" { "ipv4" } else { "ipv6" };
            // Also those that are about to be placed: not a packet is to slip through.
            let others = format!("meta nfproto {version} {ip} daddr != @{placed} {ip} daddr != @{pending} accept");
            rules.push(Rule::new("what is for no VIP", others));
            // Errors and neighbour discovery are never held up; echo is, above what tests of reachability need.
            let echo = if ip == "ip" { "icmp type echo-request" } else { "icmpv6 type echo-request" };
            rules.push(Rule::new("too many echo requests", format!("{echo} limit rate over 1000/second drop")));
            rules.push(Rule::new("ICMP to VIPs", format!("meta nfproto {version} meta l4proto {icmp} accept")));
            for served in [format!("meta l4proto . th dport @{services}"), format!("{protocol} . th dport @{ranges}")] {
                rules.push(Rule::new("served ports of VIPs", format!("{ip} daddr . {served} accept")));
            }
            for (which, verdict) in verdicts {
                rules.push(Rule::new("ports of VIPs that nobody serves", format!("meta nfproto {version} {which}{verdict}")));
            }
        }
        rules
    }
}

/// IPVS knows a range of ports by a mark.
fn mark() -> Vec<Rule> {
    let rule = |Family { ip, protocol, marks, .. }: Family| {
        Rule::new("ranges of ports by their marks", format!("meta mark set {ip} daddr . {protocol} . th dport map @{marks}"))
    };
    FAMILIES.map(rule).into()
}

/// Binds a new connection to the VIP that it is for, so that no later rule translates it to somewhere else.
fn claim() -> Vec<Rule> {
    let rules = |Family { ip, services, ranges, protocol, .. }: Family| {
        [format!("meta l4proto . th dport @{services}"), format!("{protocol} . th dport @{ranges}")]
            .map(|served| Rule::new("IPVS balances this, nobody else", format!("{ip} daddr . {served} dnat {ip} to {ip} daddr")))
    };
    FAMILIES.into_iter().flat_map(rules).collect()
}

/// Real servers answer to this node. What is forwarded with its destination as it came (dr), or in a tunnel (tun), is left alone.
fn masquerade() -> Vec<Rule> {
    let rule = |Family { ip, vips, .. }: Family| {
        let text = format!("ct original {ip} daddr @{vips} {ip} daddr != @{vips} masquerade");
        Rule::new("answers of real servers come back here", text)
    };
    FAMILIES.map(rule).into()
}

/// What the rules of one address family are made of.
#[derive(Clone, Copy)]
struct Family {
    ip: &'static str,
    placed: &'static str,
    pending: &'static str,
    vips: &'static str,
    services: &'static str,
    ranges: &'static str,
    marks: &'static str,
    /// The transport protocol where a set has ranges, with which some kernels refuse `meta l4proto`.
    protocol: &'static str,
    icmp: &'static str,
}

const FAMILIES: [Family; 2] = [
    Family {
        ip: "ip",
        placed: "placed4",
        pending: "pending4",
        vips: "vips4",
        services: "services4",
        ranges: "ranges4",
        marks: "marks4",
        protocol: "ip protocol",
        icmp: "icmp",
    },
    Family {
        ip: "ip6",
        placed: "placed6",
        pending: "pending6",
        vips: "vips6",
        services: "services6",
        ranges: "ranges6",
        marks: "marks6",
        protocol: "ip6 nexthdr",
        icmp: "ipv6-icmp",
    },
];

/// FNV-1a, 32 bits: tells texts apart, and need not withstand anybody.
pub(crate) fn digest(text: &str) -> u32 {
    text.bytes().fold(0x811c_9dc5, |digest, octet| (digest ^ u32::from(octet)).wrapping_mul(0x0100_0193))
}
