// SPDX-License-Identifier: Apache-2.0
//! What differs between two configurations, and how much of it may be put in force while the daemon runs.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{Debug, Display};
use std::time::Duration;

use bgp::Family;
use bgp::wire::AddPathMode;
use ipvs::Timeouts;
use vrrp::router::Preempt;

use super::keys::effect;
use super::{Config, DataplaneType, Effect, LogFormat, WithoutEndpoints};
use crate::desired::{
    AoKey, DesiredExport, DesiredGroup, DesiredListen, DesiredPeer, DesiredTransport, PeerAddress, Routing, Transport, Ttl,
};

/// A key whose value differs.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Change {
    /// From the top, with the peer's name in brackets: `bgp.peers[rr1].timers.hold`; `bgp.peers[rr1]` for one that came or went, and `bgp.listen`
    /// likewise.
    pub key: String,
    /// What the change costs.
    pub effect: Effect,
}

/// All keys in which two configurations differ, in order.
#[must_use]
pub fn changes(old: &Config, new: &Config) -> Vec<Change> {
    let came_or_went: Vec<String> = {
        let listen = (old.bgp.listen.is_some() != new.bgp.listen.is_some()).then(|| "bgp.listen".to_owned());
        elements(old).symmetric_difference(&elements(new)).cloned().chain(listen).collect()
    };
    let (old, new) = (values(old), values(new));
    let keys: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    let differing = keys.into_iter().filter(|key| old.get(*key) != new.get(*key)).cloned();
    let differing = differing.filter(|key| !came_or_went.iter().any(|element| key.starts_with(element)));
    let mut changes: Vec<Change> = differing.chain(came_or_went.iter().cloned()).map(|key| Change { effect: effect(&key), key }).collect();
    changes.sort();
    changes
}

/// Each element of a list that has a name.
fn elements(config: &Config) -> BTreeSet<String> {
    let peers = config.bgp.peers.keys().map(|name| format!("bgp.peers[{name}]"));
    let policies = config.routing.policies.keys().map(|name| format!("bgp.policies[{name}]"));
    let aggregates = config.routing.aggregates.keys().map(|prefix| format!("bgp.aggregates[{prefix}]"));
    let groups = config.vrrp.groups.keys().map(|name| format!("vrrp.groups[{name}]"));
    peers.chain(policies).chain(aggregates).chain(groups).collect()
}

/// What is in force once `new` replaces `old`: `new`, but for the keys that need a restart, which are returned too.
pub(super) fn succeed(old: &Config, new: Config) -> (Config, Vec<String>) {
    let waiting = changes(old, &new).into_iter().filter(|change| change.effect == Effect::Restart).map(|change| change.key).collect();
    let mut config = new;
    config.instance.clone_from(&old.instance);
    config.node_name.clone_from(&old.node_name);
    config.bgp.host_name = config.bgp.host_name.map(|_| old.node_name.clone());
    config.vips.interface.clone_from(&old.vips.interface);
    config.state_dir.clone_from(&old.state_dir);
    config.http_address = old.http_address;
    (config, waiting)
}

/// Each key and its value in words, fit to compare.
fn values(config: &Config) -> BTreeMap<String, String> {
    let mut values = BTreeMap::new();
    let mut put = |key: &str, value: String| values.insert(key.to_owned(), value);
    put("instance", config.instance.clone());
    put("domain", config.scope.domain.clone());
    put("namespaces", words(&config.scope.namespaces));
    put("namespaceSelector", config.scope.namespace_selector.as_ref().map(ToString::to_string).unwrap_or_default());
    put("mode", config.vrrp.mode.as_str().to_owned());
    put("node.name", config.node_name.clone());
    put("node.externalInterface", config.external_interface.clone().unwrap_or_else(|| "that of the default route".to_owned()));
    put("node.labelExternalIP", config.label_external_ip.to_string());
    put("vips.interface", config.vips.interface.clone());
    let allow = config.vips.allow.as_ref();
    put("vips.allow[].prefix", format!("{:?}", allow.map(|all| all.iter().map(|allowed| allowed.prefix).collect::<Vec<_>>())));
    put("vips.allow[].namespaces", format!("{:?}", allow.map(|all| all.iter().map(|allowed| &allowed.namespaces).collect::<Vec<_>>())));
    let pools = &config.vips.pools;
    put("vips.pools[].name", format!("{:?}", pools.iter().map(|pool| &pool.name).collect::<Vec<_>>()));
    put("vips.pools[].prefixes", format!("{:?}", pools.iter().map(|pool| &pool.prefixes).collect::<Vec<_>>()));
    put(
        "vips.withoutEndpoints",
        match config.vips.without_endpoints {
            WithoutEndpoints::Withdraw => "withdraw".to_owned(),
            WithoutEndpoints::Announce => "announce".to_owned(),
        },
    );
    put(
        "dataplane.type",
        match config.dataplane.kind {
            DataplaneType::Auto => "auto".to_owned(),
            DataplaneType::Ipvs => "ipvs".to_owned(),
            DataplaneType::Nftables => "nftables".to_owned(),
            DataplaneType::KubeProxy => "kube-proxy".to_owned(),
            DataplaneType::None => "none".to_owned(),
        },
    );
    put("dataplane.scheduler", config.dataplane.scheduler.to_string());
    put("dataplane.forwarding", config.dataplane.forwarding.to_string());
    put("dataplane.drainTimeout", format!("{:?}", config.dataplane.drain_timeout));
    put("dataplane.unservedPorts", format!("{:?}", config.dataplane.unserved_ports));
    put("dataplane.masquerade.exceptPrefixes", format!("{:?}", config.dataplane.not_masqueraded));
    put("dataplane.preserveClientAddress", config.dataplane.preserves_client.to_string());
    put("dataplane.localPolicy", format!("{:?}", config.dataplane.local));
    put("dataplane.mssClamp", format!("{:?}", config.dataplane.mss_clamp));
    let Timeouts { tcp, tcp_fin, udp } = config.dataplane.timeouts;
    for (key, seconds) in [("dataplane.timeouts.tcp", tcp), ("dataplane.timeouts.tcpFin", tcp_fin), ("dataplane.timeouts.udp", udp)] {
        put(key, if seconds == 0 { "as it is".to_owned() } else { format!("{seconds}s") });
    }
    put("dataplane.tunnel.type", config.dataplane.tunnel.to_string());
    put("dataplane.tunnel.port", config.dataplane.gue_port.to_string());
    let sync = config.dataplane.connection_sync.as_ref();
    put("dataplane.connectionSync.interface", format!("{:?}", sync.map(|sync| &sync.interface)));
    put("dataplane.connectionSync.roles", format!("{:?}", sync.map(|sync| &sync.roles)));
    put("dataplane.connectionSync.syncId", format!("{:?}", sync.map(|sync| sync.sync_id)));
    put("dataplane.connectionSync.group", format!("{:?}", sync.map(|sync| sync.group)));
    put("dataplane.connectionSync.port", format!("{:?}", sync.map(|sync| sync.port)));
    put("dataplane.connectionSync.ttl", format!("{:?}", sync.map(|sync| sync.ttl)));
    put("dataplane.connectionSync.maxLength", format!("{:?}", sync.map(|sync| sync.max_length)));
    put("dataplane.fwmarkFrom", config.dataplane.first_mark.to_string());
    put("dataplane.setSysctls", config.dataplane.set_sysctls.to_string());
    put("bgp.asn", config.bgp.asn.to_string());
    put("bgp.routerId", config.bgp.router_id.map_or_else(|| "auto".to_owned(), |id| id.to_string()));
    put("bgp.sendHostName", config.bgp.host_name.is_some().to_string());
    put("bgp.sendSoftwareVersion", config.bgp.send_software_version.to_string());
    put("bgp.clusterId", config.bgp.cluster_id.map_or_else(|| "routerId".to_owned(), |id| id.to_string()));
    put("drain.onTermination", format!("{:?}", config.on_termination));
    put("drain.workload", format!("{:?}", config.workload));
    put("drain.onCordon", format!("{:?}", config.on_cordon));
    let taints = &config.drain_taints;
    put("drain.taints[].key", format!("{:?}", taints.iter().map(|taint| &taint.key).collect::<Vec<_>>()));
    put("drain.taints[].value", format!("{:?}", taints.iter().map(|taint| &taint.value).collect::<Vec<_>>()));
    put("drain.taints[].effect", format!("{:?}", taints.iter().map(|taint| &taint.effect).collect::<Vec<_>>()));
    put("drain.gracefulShutdown", format!("{:?}", config.drain.graceful_shutdown));
    put("drain.fabricDelay", format!("{:?}", config.drain.fabric_delay));
    put("drain.timeout", format!("{:?}", config.drain.timeout));
    put("startup.patience", format!("{:?}", config.startup_patience));
    put("stateDir", config.state_dir.display().to_string());
    put("http.address", config.http_address.to_string());
    put("log.level", config.log.level.clone());
    put(
        "log.format",
        match config.log.format {
            LogFormat::Json => "json".to_owned(),
            LogFormat::Text => "text".to_owned(),
        },
    );
    if let Some(listen) = &config.bgp.listen {
        listen_values(listen, &mut put);
    }
    for (name, peer) in &config.bgp.peers {
        peer_values(name, peer, &mut put);
        put(&format!("bgp.peers[{name}].nodeSelector"), config.peer_selectors.get(name).map(ToString::to_string).unwrap_or_default());
    }
    routing_values(&config.routing, &mut put);
    for (name, group) in &config.vrrp.groups {
        group_values(name, group, &mut put);
        put(&format!("vrrp.groups[{name}].vips"), format!("{:?}", config.vrrp.vips.get(name).map(words)));
    }
    values
}

fn listen_values<R>(listen: &DesiredListen, put: &mut impl FnMut(&str, String) -> R) {
    let mut put = |key: &str, value: String| put(&format!("bgp.listen.{key}"), value);
    put("address", listen.address.to_string());
    put("port", listen.port.to_string());
    put("prefixes", words(&listen.prefixes));
    put("limit", listen.limit.to_string());
    neighbour_values(&listen.template, &mut put);
}

fn peer_values<R>(name: &str, peer: &DesiredPeer, put: &mut impl FnMut(&str, String) -> R) {
    let mut put = |key: &str, value: String| put(&format!("bgp.peers[{name}].{key}"), value);
    put("name", name.to_owned());
    put("address", format!("{:?}", peer.address.known()));
    put("gateway", (peer.address == PeerAddress::Gateway).to_string());
    put("interface", format!("{:?}", peer.interface()));
    put("port", peer.port.to_string());
    put("source", format!("{:?}", peer.transport.source));
    put("passive", peer.transport.passive.to_string());
    neighbour_values(peer, &mut put);
}

/// The keys that configured and dynamic peers share.
fn neighbour_values<R>(peer: &DesiredPeer, put: &mut impl FnMut(&str, String) -> R) {
    put("asn", peer.asn.to_string());
    transport_values(&peer.transport, put);
    put("families", words(&peer.families));
    put("reflectorClient", peer.reflector_client.to_string());
    put("addPath.send", peer.add_path.is_some_and(AddPathMode::sends).to_string());
    put("addPath.receive", peer.add_path.is_some_and(AddPathMode::receives).to_string());
    put("keepReceived", peer.keep_received.to_string());
    put("timers.hold", format!("{}s", peer.hold_time.secs()));
    put("timers.sendHold", format!("{:?}", peer.send_hold_time));
    put("timers.connectRetry", format!("{:?}", peer.connect_retry));
    put("localRole", format!("{:?}", peer.role.map(|role| role.local)));
    put("strictRole", peer.role.is_some_and(|role| role.strict).to_string());
    put("extendedMessages", peer.extended_messages.to_string());
    put("extendedNextHop", peer.extended_next_hop.to_string());
    let restart = peer.graceful_restart;
    put("gracefulRestart.restartTime", format!("{:?}", restart.map(|restart| restart.restart_time)));
    put("gracefulRestart.notification", restart.is_none_or(|restart| restart.notification).to_string());
    put("gracefulRestart.longLivedStaleTime", restart.map_or(0, |restart| restart.long_lived_stale_time).to_string());
    let limit = |family| format!("{:?}", peer.import.max_prefixes.get(&family));
    put("import.maxPrefixes.ipv4", limit(Family::Ipv4Unicast));
    put("import.maxPrefixes.ipv6", limit(Family::Ipv6Unicast));
    put("import.restartDelay", format!("{:?}", peer.import.restart_delay));
    export_values(&peer.export, put);
}

fn export_values<R>(export: &DesiredExport, put: &mut impl FnMut(&str, String) -> R) {
    put("export.localPreference", export.local_preference.to_string());
    put("export.med", format!("{:?}", export.med));
    put("export.prepend", export.prepend.to_string());
    put("export.communities", format!("{:?}", export.communities));
    put("export.largeCommunities", format!("{:?}", export.large_communities));
    put("export.extendedCommunities", format!("{:?}", export.extended_communities));
    put("export.linkBandwidth", format!("{:?}", export.link_bandwidth));
    put("export.nextHop.ipv4", own_or(export.next_hop_ipv4));
    put("export.nextHop.ipv6", own_or(export.next_hop_ipv6));
}

fn routing_values<R>(routing: &Routing, put: &mut impl FnMut(&str, String) -> R) {
    for (name, policy) in &routing.policies {
        let mut put = |key: &str, value: String| put(&format!("bgp.policies[{name}].{key}"), value);
        let route = &policy.route;
        put("name", name.clone());
        put("prefixes", words(&policy.prefixes));
        put("peers", format!("{:?}", route.peers));
        put("localPreference", format!("{:?}", route.local_preference));
        put("med", format!("{:?}", route.med));
        put("prepend", route.prepend.to_string());
        put("communities", format!("{:?}", route.communities));
        put("largeCommunities", format!("{:?}", route.large_communities));
        put("extendedCommunities", format!("{:?}", route.extended_communities));
        put("linkBandwidth", format!("{:?}", route.link_bandwidth));
        put("nextHop.ipv4", format!("{:?}", route.next_hop.ipv4));
        put("nextHop.ipv6", format!("{:?}", route.next_hop.ipv6));
    }
    for (prefix, aggregate) in &routing.aggregates {
        let mut put = |key: &str, value: String| put(&format!("bgp.aggregates[{prefix}].{key}"), value);
        put("prefix", prefix.to_string());
        put("policy", format!("{:?}", aggregate.policy));
        put("vips", if aggregate.suppress { "suppress" } else { "announce" }.to_owned());
    }
}

fn group_values<R>(name: &str, group: &DesiredGroup, put: &mut impl FnMut(&str, String) -> R) {
    let mut put = |key: &str, value: String| put(&format!("vrrp.groups[{name}].{key}"), value);
    put("name", name.to_owned());
    put("interface", group.interface.clone());
    put("virtualRouterId", group.vrid.to_string());
    put("addresses", format!("{:?}", group.addresses));
    put("version", group.version.to_string());
    put("priority", group.priority.to_string());
    put("advertisementInterval", group.interval.to_string());
    let (preempts, delay) = match group.preempt {
        Preempt::After(delay) => (true, delay),
        Preempt::Never => (false, Duration::ZERO),
    };
    put("preempt", preempts.to_string());
    put("preemptDelay", format!("{delay:?}"));
    put(
        "peers",
        match &group.transport {
            DesiredTransport::Multicast => "multicast".to_owned(),
            transport if *transport == DesiredTransport::AUTO => "auto".to_owned(),
            DesiredTransport::Unicast { peers, .. } => words(peers),
        },
    );
    put("source.ipv4", format!("{:?}", group.source_ipv4));
    put("source.ipv6", format!("{:?}", group.source_ipv6));
    put("checksum", format!("{:?}", group.checksum));
    put("leastTtl", group.least_ttl.to_string());
    put("virtualMac", group.virtual_mac.to_string());
    put("gratuitousArp.repeats", group.announcing.times.to_string());
    put("gratuitousArp.interval", format!("{:?}", group.announcing.spacing));
    put("gratuitousArp.refresh", format!("{:?}", group.announcing.refresh));
}

fn transport_values<R>(transport: &Transport, put: &mut impl FnMut(&str, String) -> R) {
    put("passwordFile", format!("{:?}", transport.password_file));
    ao_values("tcpAo.keys[]", &transport.ao_keys, put);
    let (hops, multihop) = match transport.ttl {
        Ttl::Customary => (None, None),
        Ttl::Multihop(ttl) => (None, Some(ttl)),
        Ttl::Security { hops } => (Some(hops), None),
    };
    put("ttlSecurity.hops", format!("{hops:?}"));
    put("multihop", format!("{multihop:?}"));
}

fn ao_values<R>(path: &str, keys: &[AoKey], put: &mut impl FnMut(&str, String) -> R) {
    put(&format!("{path}.sendId"), format!("{:?}", keys.iter().map(|key| key.send_id).collect::<Vec<_>>()));
    put(&format!("{path}.recvId"), format!("{:?}", keys.iter().map(|key| key.recv_id).collect::<Vec<_>>()));
    put(&format!("{path}.algorithm"), format!("{:?}", keys.iter().map(|key| key.algorithm).collect::<Vec<_>>()));
    put(&format!("{path}.passwordFile"), format!("{:?}", keys.iter().map(|key| &key.password_file).collect::<Vec<_>>()));
}

fn words<T: Display>(set: &BTreeSet<T>) -> String {
    set.iter().map(T::to_string).collect::<Vec<_>>().join(" ")
}

fn own_or<T: Debug + Display>(address: Option<T>) -> String {
    address.map_or_else(|| "self".to_owned(), |address| address.to_string())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use super::super::keys::pattern;
    use super::super::{Environment, KEYS, load, parse};
    use super::*;

    fn example() -> Config {
        let environment = Environment::from([("NODE_NAME".to_owned(), "node-1".to_owned())]);
        load(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/config/all-keys.yaml")), &environment).unwrap()
    }

    fn parsed(text: &str) -> Config {
        let environment = Environment::from([("NODE_NAME".to_owned(), "node-1".to_owned())]);
        parse::parse(text, &environment).unwrap()
    }

    #[test]
    fn policies_and_aggregates_come_and_go_as_a_whole() {
        let old = BASE.to_owned() + "  policies: [{name: gold, med: 5}, {name: silver}]\n  aggregates: [{prefix: 10.0.0.0/24}]\n";
        let new = BASE.to_owned()
            + "  policies: [{name: gold, med: 6}]\n  aggregates: [{prefix: 10.0.0.0/24, vips: suppress}, {prefix: 10.0.1.0/24}]\n";
        let change = |key: &str| Change { key: key.to_owned(), effect: Effect::Soft };
        let expected =
            ["bgp.aggregates[10.0.0.0/24].vips", "bgp.aggregates[10.0.1.0/24]", "bgp.policies[gold].med", "bgp.policies[silver]"];
        assert_eq!(changes(&parsed(&old), &parsed(&new)), expected.map(change));
    }

    const BASE: &str = "
bgp:
  asn: 65001
  peers:
    - {name: rr1, address: 192.0.2.1, asn: 65001}
    - {name: rr10, address: 192.0.2.2, asn: 65001}
";

    #[test]
    fn each_key_of_the_table_is_compared() {
        let compared: BTreeSet<String> = values(&example()).into_keys().map(|key| pattern(&key)).collect();
        assert_eq!(compared, KEYS.iter().map(|key| key.path.to_owned()).collect());
    }

    #[test]
    fn equal_files_differ_in_nothing() {
        assert_eq!(changes(&example(), &example()), []);
        assert_eq!(
            changes(&parsed(BASE), &parsed(&BASE.replace("asn: 65001}", "asn: 65001, port: 179, timers: {hold: 9s}}"))),
            [],
            "defaults"
        );
    }

    #[test]
    fn changes_name_key_and_cost() {
        let change = |key: &str, effect| Change { key: key.to_owned(), effect };
        let new =
            BASE.replace("name: rr1,", "name: rr1, export: {med: 0}, timers: {hold: 30s},").replace("rr10", "rr2") + "stateDir: /tmp/x\n";
        let expected = [
            change("bgp.peers[rr10]", Effect::Session),
            change("bgp.peers[rr1].export.med", Effect::Soft),
            change("bgp.peers[rr1].timers.hold", Effect::Session),
            change("bgp.peers[rr2]", Effect::Session),
            change("stateDir", Effect::Restart),
        ];
        assert_eq!(changes(&parsed(BASE), &parsed(&new)), expected);
    }

    #[test]
    fn what_needs_a_restart_stays_as_it_was() {
        let old = parsed(BASE);
        let new = parsed(
            &(BASE.replace("65001}", "65002}")
                + "instance: other\nnode: {name: n}\nvips: {interface: eth7}\nhttp: {address: '[::1]:1'}\nlog: {level: debug}\n"),
        );
        let (config, waiting) = succeed(&old, new.clone());
        assert_eq!(waiting, ["http.address", "instance", "node.name", "stateDir", "vips.interface"]);
        assert!(changes(&old, &config).iter().all(|change| change.effect != Effect::Restart));
        assert!(changes(&config, &new).iter().all(|change| change.effect == Effect::Restart));
        assert_eq!(config.log.level, "debug");
    }

    /// A change of each key outside `bgp`, under whose keys the speaker's own tests change the rest.
    const OUTSIDE_BGP: &[(&str, &str)] = &[
        ("instance", "instance: other"),
        ("domain", "domain: enm"),
        ("namespaces", "namespaces: [enm]"),
        ("namespaceSelector", "namespaceSelector: team=enm"),
        ("mode", "mode: vrrp"),
        ("node.name", "node: {name: n}"),
        ("node.externalInterface", "node: {externalInterface: eth7}"),
        ("node.labelExternalIP", "node: {labelExternalIP: false}"),
        ("vips.interface", "vips: {interface: eth7, allow: [{prefix: 10.0.0.0/24}]}"),
        ("vips.allow[].prefix", "vips: {allow: [{prefix: 10.0.1.0/24}]}"),
        ("vips.allow[].namespaces", "vips: {allow: [{prefix: 10.0.0.0/24, namespaces: [a]}]}"),
        ("vips.pools[].name", "vips: {allow: [{prefix: 10.0.0.0/24}], pools: [{name: b, prefixes: [10.0.0.128/25]}]}"),
        ("vips.pools[].prefixes", "vips: {allow: [{prefix: 10.0.0.0/24}], pools: [{name: a, prefixes: [10.0.0.0/25]}]}"),
        ("vips.withoutEndpoints", "vips: {withoutEndpoints: announce, allow: [{prefix: 10.0.0.0/24}]}"),
        ("dataplane.type", "dataplane: {type: none}"),
        ("dataplane.scheduler", "dataplane: {scheduler: rr}"),
        ("dataplane.forwarding", "dataplane: {forwarding: dr}"),
        ("dataplane.drainTimeout", "dataplane: {drainTimeout: 5s}"),
        ("dataplane.unservedPorts", "dataplane: {unservedPorts: reject}"),
        ("dataplane.masquerade.exceptPrefixes", "dataplane: {masquerade: {exceptPrefixes: [10.1.0.0/16]}}"),
        ("dataplane.preserveClientAddress", "dataplane: {preserveClientAddress: true}"),
        ("dataplane.localPolicy", "dataplane: {localPolicy: preserveSource}"),
        ("dataplane.mssClamp", "dataplane: {mssClamp: 1400}"),
        ("dataplane.timeouts.tcp", "dataplane: {timeouts: {tcp: 900s}}"),
        ("dataplane.timeouts.tcpFin", "dataplane: {timeouts: {tcpFin: 60s}}"),
        ("dataplane.timeouts.udp", "dataplane: {timeouts: {udp: 60s}}"),
        ("dataplane.tunnel.type", "dataplane: {tunnel: {type: gue}}"),
        ("dataplane.tunnel.port", "dataplane: {tunnel: {port: 6081}}"),
        ("dataplane.connectionSync.interface", "dataplane: {type: ipvs, connectionSync: {interface: eth7}}"),
        ("dataplane.connectionSync.roles", "dataplane: {type: ipvs, connectionSync: {interface: eth1, roles: [backup]}}"),
        ("dataplane.connectionSync.syncId", "dataplane: {type: ipvs, connectionSync: {interface: eth1, syncId: 2}}"),
        ("dataplane.connectionSync.group", "dataplane: {type: ipvs, connectionSync: {interface: eth1, group: 239.0.0.1}}"),
        ("dataplane.connectionSync.port", "dataplane: {type: ipvs, connectionSync: {interface: eth1, port: 8849}}"),
        ("dataplane.connectionSync.ttl", "dataplane: {type: ipvs, connectionSync: {interface: eth1, ttl: 2}}"),
        ("dataplane.connectionSync.maxLength", "dataplane: {type: ipvs, connectionSync: {interface: eth1, maxLength: 1400}}"),
        ("dataplane.fwmarkFrom", "dataplane: {fwmarkFrom: 1024}"),
        ("dataplane.setSysctls", "dataplane: {setSysctls: false}"),
        ("drain.onTermination", "drain: {onTermination: keep}"),
        ("drain.workload", "drain: {workload: DaemonSet/vip/vipherald}"),
        ("drain.onCordon", "drain: {onCordon: never}"),
        ("drain.taints[].key", "drain: {taints: [{key: b}]}"),
        ("drain.taints[].value", "drain: {taints: [{key: a, value: b}]}"),
        ("drain.taints[].effect", "drain: {taints: [{key: a, effect: NoExecute}]}"),
        ("drain.gracefulShutdown", "drain: {gracefulShutdown: 2s}"),
        ("drain.fabricDelay", "drain: {fabricDelay: 2s}"),
        ("drain.timeout", "drain: {timeout: 20s}"),
        ("startup.patience", "startup: {patience: 1s}"),
        ("stateDir", "stateDir: /tmp/x"),
        ("http.address", "http: {address: '[::1]:1'}"),
        ("log.level", "log: {level: debug}"),
        ("log.format", "log: {format: text}"),
    ];

    #[test]
    fn keys_outside_bgp_leave_the_speaker_alone_and_are_in_force_or_wait() {
        let known: Vec<&str> =
            KEYS.iter().map(|key| key.path).filter(|path| !path.starts_with("bgp.") && !path.starts_with("vrrp.")).collect();
        assert_eq!(OUTSIDE_BGP.iter().map(|(key, _)| *key).collect::<Vec<_>>(), known);
        let allow = "vips: {allow: [{prefix: 10.0.0.0/24}]}\n";
        let old = parsed(&(BASE.to_owned() + allow));
        let with_group = "vrrp: {groups: [{name: a, interface: eth1, virtualRouterId: 7, vips: [10.0.0.0/24]}]}\n";
        for (key, text) in OUTSIDE_BGP {
            let text = match *key {
                "mode" => format!("{allow}{with_group}{text}"),
                _ if text.starts_with("vips") => (*text).to_owned(),
                _ => format!("{allow}{text}"),
            };
            // What is below it can only change where it is.
            let with_sync = "dataplane: {type: ipvs, connectionSync: {interface: eth1}}\n";
            let with_pool = "vips: {allow: [{prefix: 10.0.0.0/24}], pools: [{name: a, prefixes: [10.0.0.128/25]}]}\n";
            let old = match *key {
                "mode" => parsed(&format!("{BASE}{allow}{with_group}")),
                key if key.starts_with("dataplane.connectionSync") => parsed(&format!("{BASE}{allow}{with_sync}")),
                key if key.starts_with("vips.pools") => parsed(&format!("{BASE}{with_pool}")),
                key if key.starts_with("drain.taints") => parsed(&format!("{BASE}{allow}drain: {{taints: [{{key: a}}]}}\n")),
                _ => old.clone(),
            };
            let new = parsed(&format!("{BASE}{text}\n"));
            let effect = effect(key);
            let own = changes(&old, &new).into_iter().filter(|change| change.key != "stateDir" || *key != "instance");
            assert_eq!(own.collect::<Vec<_>>(), [Change { key: (*key).to_owned(), effect }]);
            let (config, waiting) = succeed(&old, new.clone());
            assert_eq!(config.bgp, old.bgp, "{key}");
            match effect {
                Effect::Hot => assert_eq!((config, waiting.len()), (new, 0)),
                Effect::Restart => assert_eq!((config, waiting.is_empty()), (old.clone(), false)),
                Effect::Soft | Effect::Session => panic!("{key} is nothing of a session"),
            }
        }
    }

    /// A change of each key of a group.
    const OF_A_GROUP: &[(&str, &str)] = &[
        ("interface", "interface: eth8"),
        ("virtualRouterId", "virtualRouterId: 8"),
        ("addresses", "addresses: [10.0.1.9, 2001:db8::9, 2001:db8::8]"),
        ("vips", "vips: [10.0.0.0/24]"),
        ("version", "version: 2, addresses: [10.0.1.9], peers: [10.9.0.2]"),
        ("priority", "priority: 101"),
        ("advertisementInterval", "advertisementInterval: 10ms"),
        ("preempt", "preempt: false"),
        ("preemptDelay", "preemptDelay: 5s"),
        ("peers", "peers: [10.9.0.3, 2001:db8::2]"),
        ("source.ipv4", "source: {ipv4: 10.9.0.1}"),
        ("source.ipv6", "source: {ipv6: '2001:db8::1'}"),
        ("checksum", "checksum: pseudo-header"),
        ("leastTtl", "leastTtl: 64"),
        ("virtualMac", "virtualMac: true"),
        ("gratuitousArp.repeats", "gratuitousArp: {repeats: 1}"),
        ("gratuitousArp.interval", "gratuitousArp: {interval: 2s}"),
        ("gratuitousArp.refresh", "gratuitousArp: {refresh: 0s}"),
    ];

    #[test]
    fn a_change_of_a_group_names_its_key_and_costs_no_session() {
        let known: Vec<&str> = KEYS.iter().filter_map(|key| key.path.strip_prefix("vrrp.groups[].")).filter(|key| *key != "name").collect();
        assert_eq!(OF_A_GROUP.iter().map(|(key, _)| *key).collect::<Vec<_>>(), known);
        let group = |name: &str, change: &str| {
            let defaults = [
                ("interface", "eth1"),
                ("virtualRouterId", "7"),
                ("addresses", "[10.0.1.9, '2001:db8::9']"),
                ("peers", "[10.9.0.2, '2001:db8::2']"),
            ];
            let has = |key: &str| change.contains(&format!("{key}:"));
            let written = defaults.iter().filter(|(key, _)| !has(if *key == "addresses" && has("vips") { "vips" } else { key }));
            let written: String = written.map(|(key, value)| format!(", {key}: {value}")).collect();
            let change = if change.is_empty() { String::new() } else { format!(", {change}") };
            parsed(&format!("{BASE}vrrp: {{groups: [{{name: {name}{written}{change}}}]}}\n"))
        };
        let old = group("main", "");
        for (key, change) in OF_A_GROUP {
            let new = group("main", change);
            let changed = changes(&old, &new);
            let expected = Change { key: format!("vrrp.groups[main].{key}"), effect: Effect::Hot };
            assert!(changed.contains(&expected) && changed.iter().all(|change| change.effect == Effect::Hot), "{key}: {changed:?}");
            assert_eq!(succeed(&old, new.clone()), (new, vec![]));
        }
        let came_and_went = ["vrrp.groups[main]", "vrrp.groups[other]"].map(|key| Change { key: key.to_owned(), effect: Effect::Hot });
        assert_eq!(changes(&old, &group("other", "")), came_and_went);
    }
}
