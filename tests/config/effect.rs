// SPDX-License-Identifier: Apache-2.0
//! What is accepted takes effect, and what is left out has the documented default.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bgp::peer::RoleConfig;
use bgp::rib::{NextHops, Route};
use bgp::wire::{AddPathMode, BgpRole};
use bgp::{Family, Prefix};
use vipherald::api::{Kind, ObjectRef};
use vipherald::config::{DataplaneType, LogFormat, OnTermination, WithoutEndpoints, Workload, load};
use vipherald::desired::{Aggregate, DesiredExport, DesiredImport, DesiredRestart, Policy, Routing, Transport, Ttl};

use crate::{environment, read, root};

#[test]
fn each_dataplane_has_its_word() {
    let of = |text: &str| {
        read(&format!("node: {{name: n}}\nbgp: {{asn: 1}}\nvips: {{allow: [{{prefix: 10.0.0.0/24}}]}}\n{text}")).unwrap().dataplane.kind
    };
    let words = [
        ("auto", DataplaneType::Auto),
        ("ipvs", DataplaneType::Ipvs),
        ("nftables", DataplaneType::Nftables),
        ("kube-proxy", DataplaneType::KubeProxy),
        ("none", DataplaneType::None),
    ];
    for (word, kind) in words {
        assert_eq!(of(&format!("dataplane: {{type: {word}}}\n")), kind);
    }
    assert_eq!(load(&root("examples/config/balancing.yaml"), &environment()).unwrap().dataplane.kind, DataplaneType::Auto);
}

#[test]
fn the_least_file_gives_the_documented_defaults() {
    let config = load(&root("examples/config/minimal.yaml"), &environment()).unwrap();
    assert_eq!((config.instance.as_str(), config.node_name.as_str()), ("vipherald", "node-1"));
    assert_eq!((config.vips.interface.as_str(), config.vips.allow), ("lo", None));
    assert_eq!((config.vips.without_endpoints, config.dataplane.kind), (WithoutEndpoints::Withdraw, DataplaneType::KubeProxy));
    assert_eq!((config.bgp.asn.number(), config.bgp.router_id), (65_001, None));
    let peer = &config.bgp.peers["tor"];
    assert_eq!((peer.address.known(), peer.port, peer.asn.number()), ("10.211.1.254".parse().ok(), 179, 65_001));
    assert_eq!((peer.families.clone(), peer.transport.clone()), (BTreeSet::from(Family::ALL), Transport::default()));
    assert_eq!((peer.hold_time.secs(), peer.connect_retry, peer.graceful_restart), (9, Duration::from_secs(5), None));
    assert_eq!(config.on_termination, OnTermination::Auto);
    assert_eq!((peer.export.clone(), peer.import.clone()), (DesiredExport::default(), DesiredImport::default()));
    assert_eq!((peer.role, peer.extended_messages, peer.extended_next_hop, peer.send_hold_time), (None, false, false, None));
    assert_eq!((config.bgp.host_name.as_deref(), config.bgp.send_software_version), (Some("node-1"), false));
    assert_eq!((config.drain.fabric_delay, config.drain.timeout), (Duration::from_secs(1), Duration::from_secs(25)));
    assert_eq!(config.startup_patience, Duration::from_secs(5));
    assert_eq!((config.state_dir, config.http_address), ("/run/vipherald/vipherald".into(), "0.0.0.0:9479".parse().unwrap()));
    assert_eq!((config.log.level.as_str(), config.log.format), ("info", LogFormat::Json));
}

#[test]
fn a_node_has_the_peers_that_its_labels_meet() {
    let config = read(
        "bgp:\n  asn: 1\n  peers:\n  - {name: all, address: 192.0.2.9, asn: 1}\n  - {name: a, nodeSelector: rack=a, address: 192.0.2.1, asn: 1}\n  \
         - {name: b, nodeSelector: '!spare,rack=b', address: 192.0.2.1, asn: 2}\n",
    )
    .unwrap();
    let labels = |labels: &[(&str, &str)]| labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    let on_node = |labels: Option<&BTreeMap<String, String>>| config.clone().on_node(labels).bgp.peers.into_keys().collect::<Vec<_>>();
    assert_eq!(on_node(Some(&labels(&[("rack", "a")]))), ["a", "all"]);
    assert_eq!(on_node(Some(&labels(&[("rack", "b")]))), ["all", "b"]);
    assert_eq!(on_node(Some(&labels(&[("rack", "b"), ("spare", "")]))), ["all"]);
    assert_eq!(on_node(None), ["all"], "as long as no labels are known");
}

#[test]
fn reflection_takes_effect() {
    let peers = [
        ("both", "reflectorClient: true, addPath: {send: true, receive: true}"),
        ("send", "addPath: {send: true}"),
        ("receive", "addPath: {receive: true, send: false}"),
        ("none", "addPath: {}"),
    ];
    let peer = |(index, (name, keys)): (usize, &(&str, &str))| format!("{{name: {name}, address: 192.0.2.{}, asn: 1, {keys}}}", index + 1);
    let peers: Vec<String> = peers.iter().enumerate().map(peer).collect();
    let config = read(&format!("bgp: {{asn: 1, clusterId: 192.0.2.9, peers: [{}]}}\n", peers.join(", "))).unwrap().bgp;
    assert_eq!(config.cluster_id.unwrap().to_string(), "192.0.2.9");
    let modes: Vec<_> = config.peers.iter().map(|(name, peer)| (name.as_str(), peer.reflector_client, peer.add_path)).collect();
    let expected = [
        ("both", true, Some(AddPathMode::Both)),
        ("none", false, None),
        ("receive", false, Some(AddPathMode::Receive)),
        ("send", false, Some(AddPathMode::Send)),
    ];
    assert_eq!(modes, expected);
    assert!(config.reflects());

    let listening = |keys: &str| read(&format!("bgp: {{asn: 1, listen: {{address: 192.0.2.1, {keys}}}}}\n")).unwrap().bgp;
    assert!(listening("prefixes: [192.0.2.0/24], reflectorClient: true").reflects());
    assert!(!listening("prefixes: [192.0.2.0/24]").reflects());
}

#[test]
fn each_key_takes_effect() {
    let config = read(
        "
instance: a-1
domain: enm
namespaces: [enm, b-2]
namespaceSelector: 'team=a, !legacy'
node: {name: n.example}
vips: {interface: eth0.7, allow: [{prefix: 10.0.0.0/24}, {prefix: '2001:db8::/32', namespaces: [enm]}], withoutEndpoints: announce,
  pools: [{name: b, prefixes: [10.0.0.0/25]}, {name: a_1, prefixes: [10.0.0.128/25, '2001:db8::/112']}]}
dataplane: {type: kube-proxy}
bgp:
  asn: ${ASN}
  routerId: 192.0.2.9
  sendHostName: false
  sendSoftwareVersion: true
  listen:
    address: '::'
    port: 1179
    prefixes: ['2001:db8::/32']
    limit: 7
    asn: 65009
    passwordFile: /keys/d
    timers: {hold: 30s}
    gracefulRestart: {restartTime: 20s}
    export: {med: 7}
  peers:
    - name: p_1.a
      address: ::1
      port: 1179
      asn: 4294967294
      passwordFile: /keys/p
      ttlSecurity: {hops: 2}
      source: '::1'
      interface: lo
      passive: true
      families: [ipv6-unicast]
      localRole: customer
      strictRole: true
      extendedMessages: true
      extendedNextHop: true
      timers: {hold: 1m30s, sendHold: 10m, connectRetry: 2s}
      gracefulRestart: {restartTime: 1m, notification: false, longLivedStaleTime: 1d}
      import: {maxPrefixes: {ipv4: 1000, ipv6: 0}, restartDelay: 2m}
      export:
        localPreference: 0
        med: 4294967295
        prepend: 3
        communities: [65001:100, NO_EXPORT, BLACKHOLE, GRACEFUL_SHUTDOWN]
        largeCommunities: ['4200000001:7:0']
        extendedCommunities: ['rt:65001:100', 'ro:4200000001:7', '0x8000ffff00000001']
        linkBandwidth: 10Gbit
        nextHop: {ipv4: 192.0.2.1, ipv6: '2001:db8::1'}
drain: {onTermination: keep, workload: StatefulSet/vip/router/router-1, fabricDelay: 0s, timeout: 1h}
startup: {patience: 0s}
stateDir: /tmp/$$x
http: {address: '[::1]:1'}
log: {level: 'warn,bgp=trace', format: text}
",
    )
    .unwrap();
    assert_eq!((config.instance.as_str(), config.node_name.as_str()), ("a-1", "n.example"));
    let scope = &config.scope;
    assert_eq!((scope.domain.as_str(), scope.namespaces.len()), ("enm", 2));
    assert_eq!(scope.namespace_selector.as_ref().unwrap().to_string(), "team=a,!legacy");
    let allow = config.vips.allow.unwrap();
    assert_eq!(allow.iter().map(|allowed| allowed.prefix.to_string()).collect::<Vec<_>>(), ["10.0.0.0/24", "2001:db8::/32"]);
    assert_eq!((allow[0].namespaces.len(), allow[1].namespaces.as_slice()), (0, ["enm".to_owned()].as_slice()));
    let pools =
        config.vips.pools.iter().map(|pool| format!("{} {:?}", pool.name, pool.prefixes.iter().map(Prefix::to_string).collect::<Vec<_>>()));
    assert_eq!(
        pools.collect::<Vec<_>>(),
        [r#"b ["10.0.0.0/25"]"#, r#"a_1 ["10.0.0.128/25", "2001:db8::/112"]"#],
        "in the order of the file"
    );
    assert_eq!((config.vips.interface.as_str(), config.vips.without_endpoints), ("eth0.7", WithoutEndpoints::Announce));
    assert_eq!((config.bgp.asn.number(), config.bgp.router_id.unwrap().to_string().as_str()), (65_001, "192.0.2.9"));
    let peer = &config.bgp.peers["p_1.a"];
    assert_eq!((peer.address.known(), peer.port, peer.asn.number()), ("::1".parse().ok(), 1179, 4_294_967_294));
    let transport = Transport {
        source: Some("::1".parse().unwrap()),
        interface: Some("lo".to_owned()),
        ttl: Ttl::Security { hops: 2 },
        passive: true,
        password_file: Some("/keys/p".into()),
        ao_keys: Vec::new(),
    };
    assert_eq!(peer.transport, transport);
    let listen = config.bgp.listen.as_ref().unwrap();
    assert_eq!((listen.address, listen.port, listen.limit), ("::".parse().unwrap(), 1179, 7));
    assert_eq!(listen.prefixes.iter().map(ToString::to_string).collect::<Vec<_>>(), ["2001:db8::/32"]);
    let client = listen.dynamic_peer("2001:db8::9".parse().unwrap(), None).unwrap();
    assert_eq!((client.asn.number(), client.transport.passive, client.hold_time.secs()), (65_009, true, 30));
    let restart = DesiredRestart { restart_time: 20, notification: true, long_lived_stale_time: 0 };
    assert_eq!((client.graceful_restart, client.export.med), (Some(restart), Some(7)));
    assert_eq!(client.transport.password_file, Some("/keys/d".into()));
    assert_eq!(listen.dynamic_peer("2001:db9::9".parse().unwrap(), None), None);
    assert_eq!(peer.families, BTreeSet::from([Family::Ipv6Unicast]));
    assert_eq!((peer.hold_time.secs(), peer.connect_retry), (90, Duration::from_secs(2)));
    assert_eq!(peer.send_hold_time, Some(Duration::from_secs(600)));
    let restart = DesiredRestart { restart_time: 60, notification: false, long_lived_stale_time: 86_400 };
    assert_eq!(peer.graceful_restart, Some(restart));
    assert_eq!(peer.role, Some(RoleConfig { local: BgpRole::Customer, strict: true }));
    assert!(peer.extended_messages && peer.extended_next_hop);
    let limits = BTreeMap::from([(Family::Ipv4Unicast, 1000), (Family::Ipv6Unicast, 0)]);
    assert_eq!(peer.import, DesiredImport { max_prefixes: limits, restart_delay: Duration::from_secs(120) });
    assert_eq!((config.bgp.host_name, config.bgp.send_software_version), (None, true));
    assert_eq!(config.on_termination, OnTermination::Keep);
    let router = ObjectRef { kind: Kind::StatefulSet, namespace: "vip".to_owned(), name: "router".to_owned() };
    assert_eq!(config.workload, Some(Workload { object: router, ordinal: Some(1) }));
    let export = DesiredExport {
        local_preference: 0,
        med: Some(u32::MAX),
        prepend: 3,
        communities: BTreeSet::from([65_001 << 16 | 100, 0xFFFF_FF01, 0xFFFF_029A, 0xFFFF_0000]),
        large_communities: BTreeSet::from([[4_200_000_001, 7, 0]]),
        extended_communities: BTreeSet::from([0x0002_FDE9_0000_0064, 0x0203_FA56_EA01_0007, 0x8000_FFFF_0000_0001]),
        link_bandwidth: Some(1_250_000_000),
        next_hop_ipv4: Some("192.0.2.1".parse().unwrap()),
        next_hop_ipv6: Some("2001:db8::1".parse().unwrap()),
    };
    assert_eq!(peer.export, export);
    assert_eq!((config.drain.fabric_delay, config.drain.timeout), (Duration::ZERO, Duration::from_secs(3600)));
    assert_eq!((config.startup_patience, config.state_dir), (Duration::ZERO, "/tmp/$x".into()));
    assert_eq!((config.http_address, config.log.level.as_str()), ("[::1]:1".parse().unwrap(), "warn,bgp=trace"));
    assert_eq!(config.log.format, LogFormat::Text);
}

#[test]
fn policies_and_aggregates_are_read() {
    let config = read(
        "bgp:
  asn: 65001
  policies:
    - {name: plain}
    - name: gold
      prefixes: [10.0.0.0/25, '2001:db8:7::/64']
      localPreference: 200
      med: 0
      prepend: 2
      communities: [65001:200]
      largeCommunities: ['65001:200:7']
      extendedCommunities: ['rt:65001:100']
      linkBandwidth: 800Mbit
      nextHop: {ipv4: 192.0.2.1, ipv6: '2001:db8::1'}
      peers: [rr1]
  peers: [{name: rr1, address: 192.0.2.9, asn: 65001}]
  aggregates:
    - {prefix: 10.0.0.0/24, policy: gold, vips: suppress}
    - {prefix: '2001:db8:7::/64'}
drain: {gracefulShutdown: 5s}
",
    )
    .unwrap();
    let Routing { policies, aggregates } = config.routing;
    assert_eq!(policies["plain"], Policy { prefixes: BTreeSet::new(), route: Route::originated() });
    let prefix = |address: &str, length| Prefix::new(address.parse().unwrap(), length).unwrap();
    assert_eq!(policies["gold"].prefixes, BTreeSet::from([prefix("10.0.0.0", 25), prefix("2001:db8:7::", 64)]));
    let route = Route {
        local_preference: Some(200),
        med: Some(0),
        prepend: 2,
        communities: BTreeSet::from([65_001 << 16 | 200]),
        large_communities: BTreeSet::from([[65_001, 200, 7]]),
        extended_communities: BTreeSet::from([0x0002_FDE9_0000_0064]),
        link_bandwidth: Some(100_000_000),
        peers: Some(Arc::new(BTreeSet::from(["rr1".to_owned()]))),
        next_hop: NextHops { ipv4: Some("192.0.2.1".parse().unwrap()), ipv6: Some("2001:db8::1".parse().unwrap()) },
        ..Route::originated()
    };
    assert_eq!(policies["gold"].route, route);
    let expected = [
        (prefix("10.0.0.0", 24), Aggregate { policy: Some("gold".to_owned()), suppress: true }),
        (prefix("2001:db8:7::", 64), Aggregate::default()),
    ];
    assert_eq!(aggregates, BTreeMap::from(expected));
    assert_eq!(config.drain.graceful_shutdown, Duration::from_secs(5));
    assert_eq!(read("bgp: {asn: 1}\n").unwrap().drain.graceful_shutdown, Duration::ZERO);
}

#[test]
fn yaml_is_not_a_matter_of_form() {
    let block =
        read("bgp:\n  asn: 1\n  peers:\n    - name: a\n      address: 192.0.2.1\n      asn: 2\n      timers: &t\n        hold: 30s\n")
            .unwrap();
    assert_eq!(
        read("bgp: {asn: '1', peers: [{name: a, address: 192.0.2.1, asn: '2', timers: {hold: 30s}}]}\ndrain:\nlog: {}\n").unwrap(),
        block
    );
    let aliased = read("bgp:\n  asn: 1\n  peers:\n  - &p {name: a, address: 192.0.2.1, asn: 2, timers: &t {hold: 30s}}\n  - {<<: *p, name: b, port: 180}\n").unwrap();
    assert_eq!((aliased.bgp.peers["a"].clone(), aliased.bgp.peers["b"].hold_time.secs()), (block.bgp.peers["a"].clone(), 30));
}
