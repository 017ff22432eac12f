// SPDX-License-Identifier: Apache-2.0
//! The table of all keys: what may be written, and what a change of it costs while the daemon runs.
//!
//! The parser takes from it which keys are known, the reload what it may put in force, and `docs/configuration.md` is tested against it.

/// One key of the configuration file.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Key {
    /// From the top, `[]` for each element of a list: `bgp.peers[].timers.hold`.
    pub path: &'static str,
    /// What a change of it costs.
    pub effect: Effect,
}

/// What it costs to change a key while the daemon runs.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Effect {
    /// Nothing: it is in force at once.
    Hot,
    /// What the peers that it is about were told is told again as it is now; the session stays.
    Soft,
    /// The BGP sessions that it is about are closed and opened again.
    Session,
    /// It is in force after a restart; until then the old value stays.
    Restart,
}

impl Effect {
    /// In the words of the reference table.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Hot => "hot",
            Self::Soft => "re-sends routes, no reset",
            Self::Session => "resets a session",
            Self::Restart => "needs a restart",
        }
    }
}

/// Every key, in the order of the reference.
pub const KEYS: &[Key] = &[
    restart("instance"),
    hot("domain"),
    hot("namespaces"),
    hot("namespaceSelector"),
    hot("mode"),
    restart("node.name"),
    hot("node.externalInterface"),
    hot("node.labelExternalIP"),
    restart("vips.interface"),
    hot("vips.allow[].prefix"),
    hot("vips.allow[].namespaces"),
    hot("vips.pools[].name"),
    hot("vips.pools[].prefixes"),
    hot("vips.withoutEndpoints"),
    hot("dataplane.type"),
    hot("dataplane.scheduler"),
    hot("dataplane.forwarding"),
    hot("dataplane.drainTimeout"),
    hot("dataplane.unservedPorts"),
    hot("dataplane.masquerade.exceptPrefixes"),
    hot("dataplane.preserveClientAddress"),
    hot("dataplane.localPolicy"),
    hot("dataplane.mssClamp"),
    hot("dataplane.timeouts.tcp"),
    hot("dataplane.timeouts.tcpFin"),
    hot("dataplane.timeouts.udp"),
    hot("dataplane.tunnel.type"),
    hot("dataplane.tunnel.port"),
    hot("dataplane.connectionSync.interface"),
    hot("dataplane.connectionSync.roles"),
    hot("dataplane.connectionSync.syncId"),
    hot("dataplane.connectionSync.group"),
    hot("dataplane.connectionSync.port"),
    hot("dataplane.connectionSync.ttl"),
    hot("dataplane.connectionSync.maxLength"),
    hot("dataplane.fwmarkFrom"),
    hot("dataplane.setSysctls"),
    session("bgp.asn"),
    session("bgp.routerId"),
    session("bgp.clusterId"),
    session("bgp.sendHostName"),
    session("bgp.sendSoftwareVersion"),
    hot("bgp.listen.address"),
    hot("bgp.listen.port"),
    session("bgp.listen.prefixes"),
    hot("bgp.listen.limit"),
    session("bgp.peers[].name"),
    session("bgp.peers[].nodeSelector"),
    session("bgp.peers[].address"),
    session("bgp.peers[].gateway"),
    session("bgp.peers[].port"),
    session("bgp.peers[].asn"),
    session("bgp.peers[].passwordFile"),
    session("bgp.peers[].tcpAo.keys[].sendId"),
    session("bgp.peers[].tcpAo.keys[].recvId"),
    session("bgp.peers[].tcpAo.keys[].algorithm"),
    session("bgp.peers[].tcpAo.keys[].passwordFile"),
    session("bgp.peers[].ttlSecurity.hops"),
    session("bgp.peers[].multihop"),
    session("bgp.peers[].source"),
    session("bgp.peers[].interface"),
    session("bgp.peers[].passive"),
    session("bgp.peers[].families"),
    session("bgp.peers[].reflectorClient"),
    session("bgp.peers[].addPath.send"),
    session("bgp.peers[].addPath.receive"),
    session("bgp.peers[].keepReceived"),
    session("bgp.peers[].localRole"),
    session("bgp.peers[].strictRole"),
    session("bgp.peers[].extendedMessages"),
    session("bgp.peers[].extendedNextHop"),
    session("bgp.peers[].timers.hold"),
    hot("bgp.peers[].timers.sendHold"),
    hot("bgp.peers[].timers.connectRetry"),
    session("bgp.peers[].gracefulRestart.restartTime"),
    session("bgp.peers[].gracefulRestart.notification"),
    session("bgp.peers[].gracefulRestart.longLivedStaleTime"),
    hot("bgp.peers[].import.maxPrefixes.ipv4"),
    hot("bgp.peers[].import.maxPrefixes.ipv6"),
    hot("bgp.peers[].import.restartDelay"),
    soft("bgp.peers[].export.localPreference"),
    soft("bgp.peers[].export.med"),
    soft("bgp.peers[].export.prepend"),
    soft("bgp.peers[].export.communities"),
    soft("bgp.peers[].export.largeCommunities"),
    soft("bgp.peers[].export.extendedCommunities"),
    soft("bgp.peers[].export.linkBandwidth"),
    soft("bgp.peers[].export.nextHop.ipv4"),
    soft("bgp.peers[].export.nextHop.ipv6"),
    soft("bgp.policies[].name"),
    soft("bgp.policies[].prefixes"),
    soft("bgp.policies[].peers"),
    soft("bgp.policies[].localPreference"),
    soft("bgp.policies[].med"),
    soft("bgp.policies[].prepend"),
    soft("bgp.policies[].communities"),
    soft("bgp.policies[].largeCommunities"),
    soft("bgp.policies[].extendedCommunities"),
    soft("bgp.policies[].linkBandwidth"),
    soft("bgp.policies[].nextHop.ipv4"),
    soft("bgp.policies[].nextHop.ipv6"),
    soft("bgp.aggregates[].prefix"),
    soft("bgp.aggregates[].policy"),
    soft("bgp.aggregates[].vips"),
    hot("vrrp.groups[].name"),
    hot("vrrp.groups[].interface"),
    hot("vrrp.groups[].virtualRouterId"),
    hot("vrrp.groups[].addresses"),
    hot("vrrp.groups[].vips"),
    hot("vrrp.groups[].version"),
    hot("vrrp.groups[].priority"),
    hot("vrrp.groups[].advertisementInterval"),
    hot("vrrp.groups[].preempt"),
    hot("vrrp.groups[].preemptDelay"),
    hot("vrrp.groups[].peers"),
    hot("vrrp.groups[].source.ipv4"),
    hot("vrrp.groups[].source.ipv6"),
    hot("vrrp.groups[].checksum"),
    hot("vrrp.groups[].leastTtl"),
    hot("vrrp.groups[].virtualMac"),
    hot("vrrp.groups[].gratuitousArp.repeats"),
    hot("vrrp.groups[].gratuitousArp.interval"),
    hot("vrrp.groups[].gratuitousArp.refresh"),
    hot("drain.onTermination"),
    hot("drain.workload"),
    hot("drain.onCordon"),
    hot("drain.taints[].key"),
    hot("drain.taints[].value"),
    hot("drain.taints[].effect"),
    hot("drain.gracefulShutdown"),
    hot("drain.fabricDelay"),
    hot("drain.timeout"),
    hot("startup.patience"),
    restart("stateDir"),
    restart("http.address"),
    hot("log.level"),
    hot("log.format"),
];

const fn hot(path: &'static str) -> Key {
    Key { path, effect: Effect::Hot }
}

const fn soft(path: &'static str) -> Key {
    Key { path, effect: Effect::Soft }
}

const fn session(path: &'static str) -> Key {
    Key { path, effect: Effect::Session }
}

const fn restart(path: &'static str) -> Key {
    Key { path, effect: Effect::Restart }
}

/// The keys of a peer that dynamic peers do not have: they say who one peer is, and how it is reached.
const OF_ONE_PEER: [&str; 8] = ["name", "nodeSelector", "address", "gateway", "port", "source", "interface", "passive"];

/// The names that may stand directly below `path` (empty: at the top), where elements of lists may be written with or without what is in brackets.
pub(super) fn children(path: &str) -> Vec<&'static str> {
    let parent = pattern(path);
    let mut names = names_below(&parent);
    if parent == "bgp.listen" {
        names.extend(names_below("bgp.peers[]").into_iter().filter(|name| !OF_ONE_PEER.contains(name)));
    }
    names
}

fn names_below(parent: &str) -> Vec<&'static str> {
    let mut names: Vec<&'static str> = Vec::new();
    for key in KEYS {
        let below = if parent.is_empty() { Some(key.path) } else { key.path.strip_prefix(parent).and_then(|rest| rest.strip_prefix('.')) };
        let Some(name) = below.and_then(|below| below.split(['.', '[']).next()) else { continue };
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

/// What a change of the key at `path` costs. An element that comes or goes as a whole costs what the worst of its keys costs.
pub(super) fn effect(path: &str) -> Effect {
    let pattern = pattern(path);
    KEYS.iter().filter(|key| key.path.starts_with(&pattern)).map(|key| key.effect).max().unwrap_or(Effect::Restart)
}

/// `bgp.peers[3].asn` and `bgp.peers[rr1].asn` are `bgp.peers[].asn`; so is `bgp.listen.asn`, by which dynamic peers are like all others.
pub(super) fn pattern(path: &str) -> String {
    if let Some(below) = path.strip_prefix("bgp.listen.")
        && !names_below("bgp.listen").into_iter().any(|own| below.split(['.', '[']).next() == Some(own))
    {
        return pattern(&format!("bgp.peers[].{below}"));
    }
    let mut pattern = String::with_capacity(path.len());
    let mut inside = false;
    for character in path.chars() {
        inside = (inside || character == '[') && character != ']';
        if !inside || character == '[' {
            pattern.push(character);
        }
    }
    pattern
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn children_follow_the_table() {
        assert_eq!(
            children(""),
            [
                "instance",
                "domain",
                "namespaces",
                "namespaceSelector",
                "mode",
                "node",
                "vips",
                "dataplane",
                "bgp",
                "vrrp",
                "drain",
                "startup",
                "stateDir",
                "http",
                "log"
            ]
        );
        assert_eq!(
            children("bgp"),
            ["asn", "routerId", "clusterId", "sendHostName", "sendSoftwareVersion", "listen", "peers", "policies", "aggregates"]
        );
        assert_eq!(
            children("bgp.peers[7]"),
            [
                "name",
                "nodeSelector",
                "address",
                "gateway",
                "port",
                "asn",
                "passwordFile",
                "tcpAo",
                "ttlSecurity",
                "multihop",
                "source",
                "interface",
                "passive",
                "families",
                "reflectorClient",
                "addPath",
                "keepReceived",
                "localRole",
                "strictRole",
                "extendedMessages",
                "extendedNextHop",
                "timers",
                "gracefulRestart",
                "import",
                "export"
            ]
        );
        let own = ["address", "port", "prefixes", "limit"];
        let inherited = children("bgp.peers[7]").into_iter().filter(|name| !OF_ONE_PEER.contains(name));
        assert_eq!(children("bgp.listen"), own.into_iter().chain(inherited).collect::<Vec<_>>());
        assert_eq!(children("bgp.listen.timers"), ["hold", "sendHold", "connectRetry"]);
        assert_eq!(children("bgp.peers[7].export.nextHop"), ["ipv4", "ipv6"]);
        assert_eq!(children("bgp.asn"), [""; 0]);
    }

    #[test]
    fn effects_follow_the_table() {
        assert_eq!(effect("log.level"), Effect::Hot);
        assert_eq!(effect("bgp.peers[rr1].timers.hold"), Effect::Session);
        assert_eq!(effect("bgp.listen.timers.connectRetry"), Effect::Hot);
        assert_eq!(effect("bgp.listen.port"), Effect::Hot);
        assert_eq!(effect("bgp.peers[rr1].export.communities"), Effect::Soft);
        assert_eq!(effect("bgp.peers[rr1]"), Effect::Session);
        assert_eq!(effect("bgp.policies[gold]"), Effect::Soft);
        assert_eq!(effect("stateDir"), Effect::Restart);
    }
}
