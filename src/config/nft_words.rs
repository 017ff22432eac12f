// SPDX-License-Identifier: Apache-2.0
//! The words that `nft` cannot take for the name of a table, since they mean something in its language; quotes do not help.
//!
//! An instance's table has its name, so that such an instance would fail at its first start and on no earlier day. Which words these are depends on the
//! version of `nft`, and the node that reads a configuration is not always the one that was asked: those of all versions count.

/// Whether some `nft` has another meaning for this word.
pub(super) fn is_nft_word(word: &str) -> bool {
    WORDS.contains(&word) || NEWER_WORDS.contains(&word)
}

/// Up to 1.0.6, in its commands that add and list tables.
const WORDS: &[&str] = &[
    "accept",
    "add",
    "ah",
    "all",
    "and",
    "arp",
    "auto-merge",
    "bridge",
    "cgroup",
    "chain",
    "chains",
    "comment",
    "comp",
    "constant",
    "continue",
    "counter",
    "counters",
    "cpu",
    "create",
    "ct",
    "day",
    "dccp",
    "define",
    "delete",
    "describe",
    "device",
    "devices",
    "dnat",
    "drop",
    "dst",
    "dup",
    "dynamic",
    "ecn",
    "element",
    "elements",
    "eq",
    "esp",
    "ether",
    "exists",
    "expires",
    "export",
    "exthdr",
    "fib",
    "flags",
    "flow",
    "flowtable",
    "flowtables",
    "flush",
    "frag",
    "fwd",
    "gc-interval",
    "ge",
    "get",
    "goto",
    "gt",
    "handle",
    "hbh",
    "hook",
    "hooks",
    "hour",
    "ibriport",
    "ibrname",
    "icmp",
    "icmpv6",
    "igmp",
    "iif",
    "iifgroup",
    "iifname",
    "iiftype",
    "import",
    "include",
    "index",
    "inet",
    "insert",
    "interval",
    "ip",
    "ip6",
    "ipsec",
    "jhash",
    "jump",
    "le",
    "limit",
    "limits",
    "list",
    "log",
    "lshift",
    "lt",
    "map",
    "maps",
    "mark",
    "masquerade",
    "meta",
    "meter",
    "meters",
    "mh",
    "missing",
    "monitor",
    "ne",
    "netdev",
    "nftrace",
    "not",
    "notrack",
    "numgen",
    "obriport",
    "obrname",
    "offload",
    "oif",
    "oifgroup",
    "oifname",
    "oiftype",
    "or",
    "osf",
    "pkttype",
    "policy",
    "position",
    "priority",
    "queue",
    "quota",
    "quotas",
    "random",
    "redefine",
    "redirect",
    "reject",
    "rename",
    "replace",
    "reset",
    "return",
    "rshift",
    "rt",
    "rt0",
    "rt2",
    "rtclassid",
    "rule",
    "ruleset",
    "sctp",
    "secmark",
    "secmarks",
    "set",
    "sets",
    "size",
    "skgid",
    "skuid",
    "snat",
    "socket",
    "srh",
    "symhash",
    "synproxy",
    "synproxys",
    "table",
    "tables",
    "tcp",
    "th",
    "time",
    "timeout",
    "tproxy",
    "type",
    "typeof",
    "udp",
    "udplite",
    "undefine",
    "update",
    "vlan",
    "vmap",
    "xor",
    "xt",
];

/// Of later versions.
const NEWER_WORDS: &[&str] = &["destroy", "geneve", "gre", "gretap", "last", "rules", "tunnel", "tunnels", "vni", "vxlan"];

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// Whether the `nft` of this machine understands the commands that we give it with this name. Nothing is changed by them.
    fn takes(name: &str) -> bool {
        let commands = [vec!["-c", "add", "table", "inet", name], vec!["list", "table", "inet", name]];
        commands.iter().all(|command| {
            let output = Command::new("nft").args(command).output().expect("nft is installed");
            !String::from_utf8_lossy(&output.stderr).contains("syntax error")
        })
    }

    #[test]
    fn nft_takes_none_of_these_words_for_the_name_of_a_table() {
        for word in WORDS {
            assert!(!takes(word), "nft takes {word}");
        }
    }

    #[test]
    fn what_else_an_instance_may_be_called_nft_takes() {
        for name in ["vipherald", "enm", "scripting", "a", "ip-1", "table-2", "rack1", "lvs", "service", "input", "default"] {
            assert!(takes(name) && !is_nft_word(name), "{name}");
        }
    }
}
