// SPDX-License-Identifier: Apache-2.0
//! What differs between two configurations, and how much of it may be put in force while the daemon runs.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{Debug, Display};

use bgp::wire::AddPathMode;

use super::keys::effect;
use super::{Config, Dataplane, Effect, LogFormat, WithoutEndpoints};
use crate::desired::{AoKey, DesiredListen, DesiredPeer, PeerAddress, Transport, Ttl};

/// A key whose value differs.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Change {
    /// From the top, with the peer's name in brackets: `bgp.peers[rr1].timers.hold`; `bgp.peers[rr1]` for one that came or went.
    pub key: String,
    /// What the change costs.
    pub effect: Effect,
}

/// All keys in which two configurations differ, in order.
#[must_use]
pub fn changes(old: &Config, new: &Config) -> Vec<Change> {
    let came_or_went: Vec<String> = {
        let names = |config: &Config| config.bgp.peers.keys().cloned().collect::<BTreeSet<_>>();
        names(old).symmetric_difference(&names(new)).map(|name| format!("bgp.peers[{name}]")).collect()
    };
    let (old, new) = (values(old), values(new));
    let keys: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    let differing = keys.into_iter().filter(|key| old.get(*key) != new.get(*key)).cloned();
    let differing = differing.filter(|key| !came_or_went.iter().any(|peer| key.starts_with(peer)));
    let mut changes: Vec<Change> = differing.chain(came_or_went.iter().cloned()).map(|key| Change { effect: effect(&key), key }).collect();
    changes.sort();
    changes
}

/// What is in force once `new` replaces `old`: `new`, but for the keys that need a restart, which are returned too.
pub(super) fn succeed(old: &Config, new: Config) -> (Config, Vec<String>) {
    let waiting = changes(old, &new).into_iter().filter(|change| change.effect == Effect::Restart).map(|change| change.key).collect();
    let mut config = new;
    config.instance.clone_from(&old.instance);
    config.node_name.clone_from(&old.node_name);
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
    put("node.name", config.node_name.clone());
    put("vips.interface", config.vips.interface.clone());
    let allow = config.vips.allow.as_ref();
    put("vips.allow[].prefix", format!("{:?}", allow.map(|all| all.iter().map(|allowed| allowed.prefix).collect::<Vec<_>>())));
    put("vips.allow[].namespaces", format!("{:?}", allow.map(|all| all.iter().map(|allowed| &allowed.namespaces).collect::<Vec<_>>())));
    put(
        "vips.withoutEndpoints",
        match config.vips.without_endpoints {
            WithoutEndpoints::Withdraw => "withdraw".to_owned(),
            WithoutEndpoints::Announce => "announce".to_owned(),
        },
    );
    put(
        "dataplane.type",
        match config.dataplane {
            Dataplane::KubeProxy => "kube-proxy".to_owned(),
            Dataplane::None => "none".to_owned(),
        },
    );
    put("bgp.asn", config.bgp.asn.to_string());
    put("bgp.routerId", config.bgp.router_id.map_or_else(|| "auto".to_owned(), |id| id.to_string()));
    put("bgp.clusterId", config.bgp.cluster_id.map_or_else(|| "routerId".to_owned(), |id| id.to_string()));
    put("drain.onTermination", format!("{:?}", config.on_termination));
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
    listen_values(config.bgp.listen.as_ref(), &mut put);
    for (name, peer) in &config.bgp.peers {
        peer_values(name, peer, &mut put);
    }
    values
}

fn listen_values<R>(listen: Option<&DesiredListen>, put: &mut impl FnMut(&str, String) -> R) {
    put("bgp.listen.address", format!("{:?}", listen.map(|listen| listen.address)));
    put("bgp.listen.port", format!("{:?}", listen.map(|listen| listen.port)));
    put("bgp.listen.prefixes", listen.map(|listen| words(&listen.prefixes)).unwrap_or_default());
    put("bgp.listen.limit", format!("{:?}", listen.map(|listen| listen.limit)));
    put("bgp.listen.asn", format!("{:?}", listen.map(|listen| listen.template.asn)));
    put("bgp.listen.passwordFile", format!("{:?}", listen.and_then(|listen| listen.template.transport.password_file.as_ref())));
    ao_values("bgp.listen.tcpAo.keys[]", listen.map_or(&[], |listen| &listen.template.transport.ao_keys), put);
    put("bgp.listen.reflectorClient", listen.is_some_and(|listen| listen.template.reflector_client).to_string());
}

fn peer_values<R>(name: &str, peer: &DesiredPeer, put: &mut impl FnMut(&str, String) -> R) {
    let mut put = |key: &str, value: String| put(&format!("bgp.peers[{name}].{key}"), value);
    put("name", name.to_owned());
    put("address", format!("{:?}", peer.address.known()));
    put("gateway", (peer.address == PeerAddress::Gateway).to_string());
    put("interface", format!("{:?}", peer.interface()));
    put("port", peer.port.to_string());
    put("asn", peer.asn.to_string());
    transport_values(&peer.transport, &mut put);
    put("families", words(&peer.families));
    put("reflectorClient", peer.reflector_client.to_string());
    put("addPath.send", peer.add_path.is_some_and(AddPathMode::sends).to_string());
    put("addPath.receive", peer.add_path.is_some_and(AddPathMode::receives).to_string());
    put("keepReceived", peer.keep_received.to_string());
    put("timers.hold", format!("{}s", peer.hold_time.secs()));
    put("timers.connectRetry", format!("{:?}", peer.connect_retry));
    let export = &peer.export;
    put("gracefulRestart.restartTime", format!("{:?}", peer.restart_time));
    put("export.localPreference", export.local_preference.to_string());
    put("export.med", format!("{:?}", export.med));
    put("export.prepend", export.prepend.to_string());
    put("export.communities", format!("{:?}", export.communities));
    put("export.largeCommunities", format!("{:?}", export.large_communities));
    put("export.nextHop.ipv4", own_or(export.next_hop_ipv4));
    put("export.nextHop.ipv6", own_or(export.next_hop_ipv6));
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
    put("source", format!("{:?}", transport.source));
    put("passive", transport.passive.to_string());
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
}
