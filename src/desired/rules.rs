// SPDX-License-Identifier: Apache-2.0
//! The nft chains that go with balancing, as text: packets to a VIP reach IPVS, and nothing else on the node; answers come back this way.
//!
//! Input: what the configuration says. Output: chains and rules, the same for every VIP: which addresses and ports are meant, and which clients may
//! come, is in the sets of the record. Invariants: each rule carries a comment with a digest of its text, so that the rules that are there can be told
//! from those that should be; instances that share a VIP let each other's ports through.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::sync::LazyLock;

use bgp::Prefix;

use super::BalancerKind;

/// What the rules do.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Rules {
    /// Who balances.
    pub balancer: BalancerKind,
    /// What becomes of traffic to a port of a VIP that nobody serves.
    pub unserved_ports: UnservedPorts,
    /// The first of the firewall marks that are ours.
    pub first_mark: u32,
    /// Real servers and clients whose connections are never masqueraded.
    pub except: BTreeSet<Prefix>,
    /// The largest TCP segments through VIPs.
    pub mss_clamp: MssClamp,
    /// Where this node itself listens on what may be a VIP.
    pub listeners: BTreeSet<SocketAddr>,
    /// Somebody else has new connections: all that is done is to keep clients from the virtual services that do not admit them.
    pub hands_over: bool,
}

/// The comments of the rules between our balancing and that of somebody else.
static HANDING_OVER: LazyLock<Vec<String>> = LazyLock::new(|| Rules::handing_over().fingerprint());

/// `dataplane.mssClamp`.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum MssClamp {
    /// As both ends say.
    #[default]
    Off,
    /// What the route out of this node can carry.
    PathMtu,
    /// So many octets.
    Octets(u16),
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

/// When chains come into force where somebody else balanced before. They go in the opposite order.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Turn {
    /// First: what goes with connections that are ours, such as marks and masquerading.
    Attends,
    /// Then what hands new connections to real servers.
    Dispatches,
    /// Last: what binds new connections to their VIP, where somebody must know what to do with them, and what keeps out those that nobody serves.
    Claims,
}

impl Turn {
    /// All of them, in order.
    pub const ALL: [Self; 3] = [Self::Attends, Self::Dispatches, Self::Claims];
}

/// One chain.
pub struct Chain {
    /// Its name.
    pub name: &'static str,
    /// Type, hook and priority.
    pub hook: &'static str,
    /// When it comes and goes.
    pub turn: Turn,
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

impl Chain {
    /// The lines that make it in this table, where it is not there yet, and put these rules in the place of those that it has. A packet meets all of the
    /// former rules of a chain or all of these; one that is deleted with its rules would keep them until the kernel has come to take it off its hook.
    #[must_use]
    pub fn script(&self, family: &str, table: &str) -> String {
        let Self { name, hook, rules, .. } = self;
        let mut script = format!("add chain {family} {table} {name} {{ {hook} policy accept; }}\nflush chain {family} {table} {name}\n");
        for rule in rules {
            // Writing to a String cannot fail.
            let _infallible = writeln!(script, "add rule {family} {table} {name} {} comment \"{}\"", rule.text, rule.comment());
        }
        script
    }
}

impl Rules {
    /// The names of all chains that an instance may have, in the order of [`Self::chains`].
    pub const CHAINS: [&'static str; 9] =
        ["served", "unserved", "passed", "claim", "claim-local", "to-mark", "answers", "from-mark", "segments"];

    /// How many firewall marks are ours. Half of them are for ranges of ports whose real servers see the client's address.
    const MARKS: u32 = 1024;

    /// The rules while somebody else has new connections, and virtual services of ours are there: what they have goes on, or they are about to take over.
    #[must_use]
    pub fn handing_over() -> Self {
        Self { hands_over: true, ..Self::default() }
    }

    /// Whether these comments are those of [`Self::handing_over`].
    #[must_use]
    pub fn are_handing_over(comments: &[String]) -> bool {
        comments == *HANDING_OVER
    }

    /// The firewall marks that are ours.
    #[must_use]
    pub const fn marks(&self) -> RangeInclusive<u32> {
        self.first_mark..=self.first_mark.saturating_add(Self::MARKS - 1)
    }

    /// Those of them that a range of ports may have; the packets of the second half are not masqueraded.
    #[must_use]
    pub const fn marks_of_ranges(&self, preserves_client: bool) -> RangeInclusive<u32> {
        let (first, preserving) = (self.first_mark, self.first_mark.saturating_add(Self::MARKS / 2));
        if preserves_client { preserving..=self.unmasqueraded() - 1 } else { first..=preserving - 1 }
    }

    /// The mark of packets to single ports that are not masqueraded. IPVS has no service by it, and looks at address and port.
    const fn unmasqueraded(&self) -> u32 {
        self.first_mark.saturating_add(Self::MARKS - 1)
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
        if self.hands_over {
            let admission = FAMILIES.into_iter().flat_map(|family| self.admission(family)).collect();
            return vec![Chain { name: "served", hook: SERVED_HOOK, turn: Turn::Attends, rules: admission }];
        }
        let mut chains = vec![
            // Before anything translates addresses, or a node port of a VIP would be open. Every instance first says what it serves, so that none drops
            // what another one serves at a VIP that they share.
            Chain { name: "served", hook: SERVED_HOOK, turn: Turn::Attends, rules: self.served() },
            Chain { name: "unserved", hook: "type filter hook prerouting priority -148;", turn: Turn::Claims, rules: self.unserved() },
            Chain { name: "passed", hook: "type filter hook prerouting priority -147;", turn: Turn::Attends, rules: self.passed() },
            // Before kube-proxy (dstnat), which would take the connection away from IPVS.
            Chain { name: "claim", hook: "type nat hook prerouting priority -110;", turn: Turn::Claims, rules: claim() },
            Chain { name: "claim-local", hook: "type nat hook output priority -110;", turn: Turn::Claims, rules: claim() },
            // Just before IPVS, which compares the whole mark: whatever others have set in it is in the way.
            Chain { name: "to-mark", hook: "type filter hook input priority 90;", turn: Turn::Attends, rules: self.mark() },
            Chain { name: "answers", hook: "type nat hook postrouting priority 90;", turn: Turn::Attends, rules: self.masquerade() },
            // After all nat chains, which the kernel runs at 100 whatever their own priorities, and which look at our marks.
            Chain { name: "from-mark", hook: "type filter hook postrouting priority 105;", turn: Turn::Attends, rules: self.unmark() },
        ];
        if self.mss_clamp != MssClamp::Off {
            chains.push(Chain {
                name: "segments",
                hook: "type filter hook postrouting priority -150;",
                turn: Turn::Attends,
                rules: self.clamp(),
            });
        }
        chains
    }

    /// The mark has done its work, and must not mean something to others.
    fn unmark(&self) -> Vec<Rule> {
        let marks = self.marks();
        vec![Rule::new("marks end here", format!("meta mark {}-{} meta mark set 0", marks.start(), marks.end()))]
    }

    const fn verdicts(&self) -> &'static [(&'static str, &'static str)] {
        match self.unserved_ports {
            UnservedPorts::Drop => &[("", "drop")],
            UnservedPorts::Reject => &[("meta l4proto tcp ", "reject with tcp reset"), ("", "reject")],
        }
    }

    /// Whom a virtual service does not admit goes no further.
    fn admission(&self, Family { ip, protocol, restricted, restricted_ranges, sources, .. }: Family) -> Vec<Rule> {
        let mut rules = Vec::new();
        // A packet with extension headers is found among the ports, and not among the clients: it goes no further, nor does one to a range.
        let admitted = format!("{ip} daddr . {protocol} . th dport . {ip} saddr");
        for port in [format!("meta l4proto . th dport @{restricted}"), format!("{protocol} . th dport @{restricted_ranges}")] {
            for (which, verdict) in self.verdicts() {
                let text = format!("{ip} daddr . {port} {admitted} != @{sources} {which}{verdict}");
                rules.push(Rule::new("clients that a Service does not admit", text));
            }
        }
        rules
    }

    /// What a virtual service takes from whom it admits is told to the chains of all instances; not so what comes to one that is about to go.
    fn served(&self) -> Vec<Rule> {
        let mut rules = Vec::new();
        for family in FAMILIES {
            rules.extend(self.admission(family));
            let Family { ip, services, ranges, closed, closed_ranges, protocol, .. } = family;
            // A single port that is about to go may have a range to go to.
            let single = format!("{ip} daddr . meta l4proto . th dport");
            let unlisted = format!("@{closed} {single} != @{services}");
            let not_in_range = format!("@{closed} {ip} daddr . {protocol} . th dport != @{ranges}");
            for closed in [unlisted, not_in_range].map(|closed| format!("meta l4proto . th dport {closed}")) {
                rules.push(Rule::new("ports of VIPs that are about to go", format!("{ip} daddr . {closed} accept")));
            }
            let closed = format!("{ip} daddr . {protocol} . th dport @{closed_ranges} accept");
            rules.push(Rule::new("ports of VIPs that are about to go", closed));
            for served in [format!("meta l4proto . th dport @{services}"), format!("{protocol} . th dport @{ranges}")] {
                let text = format!("{ip} daddr . {served} meta mark set meta mark or {SERVED:#x}");
                rules.push(Rule::new("served ports of VIPs", text));
            }
        }
        rules
    }

    fn unserved(&self) -> Vec<Rule> {
        let mut rules = Vec::new();
        for Family { ip, placed, pending, icmp, .. } in FAMILIES {
            let version = if ip == "ip" { "ipv4" } else { "ipv6" };
            // Also those that are about to be placed: not a packet is to slip through.
            let others = format!("meta nfproto {version} {ip} daddr != @{placed} {ip} daddr != @{pending} accept");
            rules.push(Rule::new("what is for no VIP", others));
            // Errors and neighbour discovery are never held up; echo is, above what tests of reachability need.
            let echo = if ip == "ip" { "icmp type echo-request" } else { "icmpv6 type echo-request" };
            rules.push(Rule::new("too many echo requests", format!("{echo} limit rate over 1000/second drop")));
            rules.push(Rule::new("ICMP to VIPs", format!("meta nfproto {version} meta l4proto {icmp} accept")));
            rules.push(Rule::new("served ports of VIPs", format!("meta nfproto {version} meta mark & {SERVED:#x} == {SERVED:#x} accept")));
            rules.push(Rule::new("answers to this node", format!("meta nfproto {version} ct direction reply accept")));
            let listeners = self.listeners.iter().filter(|listener| listener.is_ipv4() == (ip == "ip"));
            let listeners: Vec<String> = listeners.map(|listener| format!("{} . {}", listener.ip(), listener.port())).collect();
            if !listeners.is_empty() {
                let text = format!("{ip} daddr . tcp dport {{ {} }} accept", listeners.join(", "));
                rules.push(Rule::new("where this node listens", text));
            }
            for (which, verdict) in self.verdicts() {
                rules.push(Rule::new("ports of VIPs that nobody serves", format!("meta nfproto {version} {which}{verdict}")));
            }
        }
        rules
    }

    /// What was told has been heard. What nft translates from here on has its marks now: it does not come to the input of this node, as what IPVS takes.
    fn passed(&self) -> Vec<Rule> {
        let heard = format!("meta mark & {SERVED:#x} == {SERVED:#x} meta mark set meta mark and {:#x}", !SERVED);
        let mut rules = vec![Rule::new("no mark stays", heard)];
        if self.translates() {
            rules.extend(self.mark());
        }
        rules
    }

    /// IPVS knows a range of ports by a mark, and looks at that first: a port that has a virtual service of its own gets none, as long as that is not about to
    /// go; the rule about masquerading knows by one what to leave alone.
    fn mark(&self) -> Vec<Rule> {
        let mut rules = Vec::new();
        for Family { ip, protocol, marks, preserved, services, closed, .. } in FAMILIES {
            for single in [format!("!= @{services}"), format!("@{closed}")] {
                let port = format!("{ip} daddr . meta l4proto . th dport {single}");
                let ranges = format!("{port} meta mark set {ip} daddr . {protocol} . th dport map @{marks}");
                rules.push(Rule::new("ranges of ports by their marks", ranges));
            }
            let preserved = format!("{ip} daddr . meta l4proto . th dport @{preserved} meta mark set {}", self.unmasqueraded());
            rules.push(Rule::new("ports whose real servers see the client", preserved));
        }
        rules
    }

    /// Real servers answer to this node, but where their way back leads here anyway. What is forwarded with its destination as it came (dr), or in a
    /// tunnel (tun), is left alone.
    fn masquerade(&self) -> Vec<Rule> {
        let mut rules = Vec::new();
        for Family { ip, vips, .. } in FAMILIES {
            let to_vips = format!("ct original {ip} daddr @{vips}");
            let kept = format!("{to_vips} meta mark {}-{} accept", self.marks_of_ranges(true).start(), self.unmasqueraded());
            rules.push(Rule::new("real servers see the client", kept));
            let except = self.except.iter().filter(|prefix| prefix.address().is_ipv4() == (ip == "ip")).map(ToString::to_string);
            let except = except.collect::<Vec<_>>().join(", ");
            if !except.is_empty() {
                for end in ["saddr", "daddr"] {
                    rules.push(Rule::new("exceptions from masquerading", format!("{to_vips} {ip} {end} {{ {except} }} accept")));
                }
            }
            let text = format!("{to_vips} {ip} daddr != @{vips} masquerade");
            rules.push(Rule::new("answers of real servers come back here", text));
        }
        rules
    }

    /// Both directions of a translated connection leave this node here; a packet in a tunnel does not show its segment size.
    fn clamp(&self) -> Vec<Rule> {
        let size = match self.mss_clamp {
            MssClamp::Off => return Vec::new(),
            MssClamp::PathMtu => "rt mtu".to_owned(),
            MssClamp::Octets(octets) => octets.to_string(),
        };
        let rule = |Family { ip, vips, .. }: Family| {
            let text = format!("ct original {ip} daddr @{vips} tcp flags & (syn | rst) == syn tcp option maxseg size set {size}");
            Rule::new("segments that fit", text)
        };
        FAMILIES.map(rule).into()
    }
}

/// Where the chain begins that looks at packets first.
const SERVED_HOOK: &str = "type filter hook prerouting priority -149;";

/// The bit of the mark by which the chains of all instances tell each other, between two priorities, that one of them serves a packet.
const SERVED: u32 = 0x0800_0000;

/// Binds a new connection to the VIP that it is for, so that no later rule translates it to somewhere else.
fn claim() -> Vec<Rule> {
    let rules = |Family { ip, services, ranges, protocol, .. }: Family| {
        [format!("meta l4proto . th dport @{services}"), format!("{protocol} . th dport @{ranges}")]
            .map(|served| Rule::new("IPVS balances this, nobody else", format!("{ip} daddr . {served} dnat {ip} to {ip} daddr")))
    };
    FAMILIES.into_iter().flat_map(rules).collect()
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
    closed: &'static str,
    closed_ranges: &'static str,
    marks: &'static str,
    restricted: &'static str,
    restricted_ranges: &'static str,
    sources: &'static str,
    preserved: &'static str,
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
        closed: "closed4",
        closed_ranges: "closed-ranges4",
        marks: "marks4",
        restricted: "restricted4",
        restricted_ranges: "restricted-ranges4",
        sources: "sources4",
        preserved: "preserved4",
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
        closed: "closed6",
        closed_ranges: "closed-ranges6",
        marks: "marks6",
        restricted: "restricted6",
        restricted_ranges: "restricted-ranges6",
        sources: "sources6",
        preserved: "preserved6",
        protocol: "ip6 nexthdr",
        icmp: "ipv6-icmp",
    },
];

/// FNV-1a, 32 bits: tells texts apart, and need not withstand anybody.
pub(crate) fn digest(text: &str) -> u32 {
    text.bytes().fold(0x811c_9dc5, |digest, octet| (digest ^ u32::from(octet)).wrapping_mul(0x0100_0193))
}
