// SPDX-License-Identifier: Apache-2.0
//! The configuration file from the outside: what is accepted, what each mistake is answered with, and that documents and code agree.
#![expect(clippy::unwrap_used, reason = "a test ends there")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bgp::peer::RoleConfig;
use bgp::rib::{NextHops, Route};
use bgp::wire::{AddPathMode, BgpRole};
use bgp::{Family, Prefix};
use proptest::prelude::*;
use vipherald::config::{self, Config, DataplaneType, Environment, KEYS, LogFormat, OnTermination, WithoutEndpoints, load};
use vipherald::desired::{Aggregate, DesiredExport, DesiredImport, DesiredRestart, Policy, Routing, Transport, Ttl};

fn root(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn environment() -> Environment {
    let variables = [("NODE_NAME", "node-1"), ("ASN", "65001"), ("YAML", "a: {b: c}"), ("EMPTY", "")];
    variables.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

/// What `load` says of a file with this text, its path left out.
fn read(text: &str) -> Result<Config, String> {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("c.yaml");
    std::fs::write(&file, text).unwrap();
    load(&file, &environment()).map_err(|error| error.to_string().replace(&format!("{}/", directory.path().display()), ""))
}

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
    assert!(!listening("prefixes: [192.0.2.0/24]").reflects());
}

#[test]
fn each_key_takes_effect() {
    let config = read(
        "
instance: a-1
node: {name: n.example}
vips: {interface: eth0.7, allow: [{prefix: 10.0.0.0/24}, {prefix: '2001:db8::/32', namespaces: [enm]}], withoutEndpoints: announce}
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
drain: {onTermination: keep, fabricDelay: 0s, timeout: 1h}
startup: {patience: 0s}
stateDir: /tmp/$$x
http: {address: '[::1]:1'}
log: {level: 'warn,bgp=trace', format: text}
",
    )
    .unwrap();
    assert_eq!((config.instance.as_str(), config.node_name.as_str()), ("a-1", "n.example"));
    let allow = config.vips.allow.unwrap();
    assert_eq!(allow.iter().map(|allowed| allowed.prefix.to_string()).collect::<Vec<_>>(), ["10.0.0.0/24", "2001:db8::/32"]);
    assert_eq!((allow[0].namespaces.len(), allow[1].namespaces.as_slice()), (0, ["enm".to_owned()].as_slice()));
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
    let client = listen.dynamic_peer("2001:db8::9".parse().unwrap()).unwrap();
    assert_eq!((client.asn.number(), client.transport.passive, client.hold_time.secs()), (65_009, true, 30));
    let restart = DesiredRestart { restart_time: 20, notification: true, long_lived_stale_time: 0 };
    assert_eq!((client.graceful_restart, client.export.med), (Some(restart), Some(7)));
    assert_eq!(client.transport.password_file, Some("/keys/d".into()));
    assert_eq!(listen.dynamic_peer("2001:db9::9".parse().unwrap()), None);
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

/// Each wrong file, and the whole answer.
const MISTAKES: &[(&str, &str)] = &[
    ("bgp: {asn: 1\n", "c.yaml:1:6: not valid YAML: unclosed bracket '{'"),
    ("bgp: 'x\n", "c.yaml:1:6: not valid YAML: unclosed quote"),
    ("@---\n@", "c.yaml:3:1: a second YAML document begins here, expected one document"),
    ("a: *b\n", "c.yaml:1:4: not valid YAML: alias references unknown anchor"),
    (
        "@node: {name: ${NODE_NAME}}\n",
        "c.yaml:2:15: not valid YAML: while parsing a flow mapping, did not find expected ',' or '}' (inside { } and [ ] a ${NAME} needs quotes)",
    ),
    ("", "c.yaml:1:1: bgp.asn: this key is missing, expected an AS number from 1 to 4294967294"),
    (
        "- 1\n",
        "c.yaml:1:1: expected a map with the keys instance, node, vips, dataplane, bgp, drain, startup, stateDir, http, log, found a list",
    ),
    ("@drain: 5s\n", "c.yaml:2:8: drain: expected a map with the keys onTermination, gracefulShutdown, fabricDelay, timeout, found '5s'"),
    ("@vips: {allow: 10.0.0.0/8}\n", "c.yaml:2:15: vips.allow: expected a list, found '10.0.0.0/8'"),
    ("@? [x]\n: 1\n", "c.yaml:2:3: expected a key, found a list"),
    ("@1: 2\n", "c.yaml:2:1: expected a key, found the number 1"),
    ("bgp: {asn: 1, peers: {name: a}}\n", "c.yaml:1:22: bgp.peers: expected a list, found a map"),
    (
        "bgp: {asn: 1, peers: [a]}\n",
        "c.yaml:1:23: bgp.peers[0]: expected a map with the keys name, address, gateway, port, asn, passwordFile, tcpAo, ttlSecurity, multihop, source, interface, passive, families, reflectorClient, addPath, keepReceived, localRole, strictRole, extendedMessages, extendedNextHop, timers, gracefulRestart, import, export, found 'a'",
    ),
    ("@instnace: a\n", "c.yaml:2:1: instnace: unknown key; did you mean 'instance'?"),
    ("@mode: vrrp\n", "c.yaml:2:1: mode: unknown key; did you mean 'node'?"),
    ("bgp: {asn: 1, Peers: []}\n", "c.yaml:1:15: bgp.Peers: unknown key; did you mean 'peers'?"),
    (
        "bgp:\n  asn: 1\n  peers:\n    - name: a\n      adress: 192.0.2.1\n      asn: 2\n      bfd: {interval: 50ms}\n      password: x\n",
        "c.yaml:4:7: bgp.peers[0].address: this key is missing, expected the IPv4 or IPv6 address of the peer, or instead of it gateway: true, or interface alone (unnumbered)\nc.yaml:5:7: bgp.peers[0].adress: unknown key; did you mean 'address'?\nc.yaml:7:7: bgp.peers[0].bfd: unknown key; expected one of name, address, gateway, port, asn, passwordFile, tcpAo, ttlSecurity, multihop, source, interface, passive, families, reflectorClient, addPath, keepReceived, localRole, strictRole, extendedMessages, extendedNextHop, timers, gracefulRestart, import, export\nc.yaml:8:7: bgp.peers[0].password: unknown key; expected one of name, address, gateway, port, asn, passwordFile, tcpAo, ttlSecurity, multihop, source, interface, passive, families, reflectorClient, addPath, keepReceived, localRole, strictRole, extendedMessages, extendedNextHop, timers, gracefulRestart, import, export",
    ),
    ("@instance: a\ninstance: b\n", "c.yaml:3:1: instance: this key is here twice"),
    ("bgp:\n", "c.yaml:1:4: bgp.asn: this key is missing, expected an AS number from 1 to 4294967294"),
    ("log: {}\n", "c.yaml:1:1: bgp.asn: this key is missing, expected an AS number from 1 to 4294967294"),
    (
        "bgp: {asn: 1, peers: [{}]}\n",
        "c.yaml:1:23: bgp.peers[0].name: this key is missing, expected 1 to 63 of letters, digits, '-', '_' and '.'\nc.yaml:1:23: bgp.peers[0].address: this key is missing, expected the IPv4 or IPv6 address of the peer, or instead of it gateway: true, or interface alone (unnumbered)\nc.yaml:1:23: bgp.peers[0].asn: this key is missing, expected an AS number from 1 to 4294967294",
    ),
    (
        "@vips: {allow: [{namespaces: [a]}]}\n",
        "c.yaml:2:16: vips.allow[0].prefix: this key is missing, expected a prefix such as 10.0.0.0/24 or 2001:db8::/64",
    ),
    ("@stateDir:\n", "c.yaml:2:9: stateDir: expected an absolute path of at most 96 octets, found nothing"),
    (
        "bgp: {asn: 1, peers: [{name: a, address: 192.0.2.1, asn: 1, families: []}]}\n",
        "c.yaml:1:71: bgp.peers[0].families: expected at least one of ipv4-unicast, ipv6-unicast",
    ),
    (
        "@instance: A_b\n",
        "c.yaml:2:11: instance: expected 1 to 63 of a-z, 0-9 and '-', beginning with a letter and ending with a letter or digit, found 'A_b'",
    ),
    (
        "@instance: table\n",
        "c.yaml:2:11: instance: expected 1 to 63 of a-z, 0-9 and '-', beginning with a letter and ending with a letter or digit, found 'table': the instance's nft table has its name, and this is a word of nft's own language",
    ),
    (
        "bgp: {asn: 1, clusterId: 0.0.0.0}\n",
        "c.yaml:1:26: bgp.clusterId: expected an IPv4 address, found '0.0.0.0': a cluster id must not be 0.0.0.0",
    ),
    (
        "bgp: {asn: 1, listen: {address: '::', prefixes: [], limit: 3, asn: 2, timers: {hold: 3s}}}\n",
        "c.yaml:1:60: bgp.listen.limit: it is about dynamic peers, and without bgp.listen.prefixes there are none; a configured peer has keys of its own\nc.yaml:1:68: bgp.listen.asn: it is about dynamic peers, and without bgp.listen.prefixes there are none; a configured peer has keys of its own\nc.yaml:1:79: bgp.listen.timers: it is about dynamic peers, and without bgp.listen.prefixes there are none; a configured peer has keys of its own",
    ),
    (
        "@instance: '-a'\n",
        "c.yaml:2:11: instance: expected 1 to 63 of a-z, 0-9 and '-', beginning with a letter and ending with a letter or digit, found '-a'",
    ),
    (
        "@instance: 7\n",
        "c.yaml:2:11: instance: expected 1 to 63 of a-z, 0-9 and '-', beginning with a letter and ending with a letter or digit, found the number 7",
    ),
    (
        "@node: {name: 'Node 1'}\n",
        "c.yaml:2:14: node.name: expected the name of a Kubernetes Node (labels of a-z, 0-9 and '-', joined by dots, 253 at most), found 'Node 1'",
    ),
    (
        "@vips: {interface: abcdefghijklmnop}\n",
        "c.yaml:2:19: vips.interface: expected the name of an interface (1 to 15 octets, without '/', ':' and spaces), found 'abcdefghijklmnop'",
    ),
    (
        "@vips: {interface: a/b}\n",
        "c.yaml:2:19: vips.interface: expected the name of an interface (1 to 15 octets, without '/', ':' and spaces), found 'a/b'",
    ),
    (
        "@vips: {interface: ''}\n",
        "c.yaml:2:19: vips.interface: expected the name of an interface (1 to 15 octets, without '/', ':' and spaces), found ''",
    ),
    (
        "@vips: {allow: [{prefix: 10.0.0.7/24}]}\n",
        "c.yaml:2:25: vips.allow[0].prefix: expected a prefix such as 10.0.0.0/24 or 2001:db8::/64, found '10.0.0.7/24': 10.0.0.7/24 has bits set beyond its length; the prefix is 10.0.0.0/24",
    ),
    (
        "@vips: {allow: [{prefix: 10.0.0.7}]}\n",
        "c.yaml:2:25: vips.allow[0].prefix: expected a prefix such as 10.0.0.0/24 or 2001:db8::/64, found '10.0.0.7'",
    ),
    (
        "@vips: {allow: [{prefix: 10.0.0.0/33}]}\n",
        "c.yaml:2:25: vips.allow[0].prefix: expected a prefix such as 10.0.0.0/24 or 2001:db8::/64, found '10.0.0.0/33'",
    ),
    (
        "@vips: {allow: [{prefix: '2001:db8::1/64', namespaces: [A]}]}\n",
        "c.yaml:2:25: vips.allow[0].prefix: expected a prefix such as 10.0.0.0/24 or 2001:db8::/64, found '2001:db8::1/64': 2001:db8::1/64 has bits set beyond its length; the prefix is 2001:db8::/64\nc.yaml:2:56: vips.allow[0].namespaces[0]: expected the name of a namespace (1 to 63 of a-z, 0-9 and '-'), found 'A'",
    ),
    ("@vips: {withoutEndpoints: keep}\n", "c.yaml:2:26: vips.withoutEndpoints: expected withdraw or announce, found 'keep'"),
    (
        "@instance: 1brk\n",
        "c.yaml:2:11: instance: expected 1 to 63 of a-z, 0-9 and '-', beginning with a letter and ending with a letter or digit, found '1brk'",
    ),
    (
        "@dataplane: {mssClamp: 100, localPolicy: local, masquerade: {exceptPrefixes: [10.0.0.1/8]}, preserveClientAddress: maybe}\n",
        "c.yaml:2:23: dataplane.mssClamp: expected off, pmtu, or a segment size from 536 to 65495 octets, found '100'\nc.yaml:2:41: dataplane.localPolicy: expected endpointNodes or preserveSource, found 'local'\nc.yaml:2:78: dataplane.masquerade.exceptPrefixes[0]: expected a prefix such as 10.0.0.0/24 or 2001:db8::/64, found '10.0.0.1/8': 10.0.0.1/8 has bits set beyond its length; the prefix is 10.0.0.0/8\nc.yaml:2:115: dataplane.preserveClientAddress: expected true or false, found 'maybe'",
    ),
    (
        "@dataplane: {type: ipvs, connectionSync: {roles: [boss], syncId: 256, group: 10.0.0.1, ttl: 0, maxLength: 100}}\n",
        "c.yaml:2:41: dataplane.connectionSync.interface: this key is missing, expected the name of an interface (1 to 15 octets, without '/', ':' and spaces)\nc.yaml:2:50: dataplane.connectionSync.roles[0]: expected master or backup, found 'boss'\nc.yaml:2:65: dataplane.connectionSync.syncId: expected a number from 0 to 255, found '256'\nc.yaml:2:77: dataplane.connectionSync.group: expected a multicast group such as 224.0.0.81 or ff02::81, found '10.0.0.1'\nc.yaml:2:92: dataplane.connectionSync.ttl: expected a number of hops from 1 to 255, found '0'\nc.yaml:2:106: dataplane.connectionSync.maxLength: expected a number of octets from 576 to 65507, found '100'",
    ),
    (
        "@dataplane: {connectionSync: {interface: eth1}}\n",
        "c.yaml:2:29: dataplane.connectionSync: only IPVS tells other routers of connections: dataplane.type ipvs, or auto",
    ),
    (
        "@dataplane: {scheduler: rrr, forwarding: masq, unservedPorts: accept, fwmarkFrom: 0}\n",
        "c.yaml:2:24: dataplane.scheduler: expected a scheduler of IPVS such as rr, lc, sh or mh, found 'rrr': \"rrr\" is unknown; expected one of rr, wrr, lc, wlc, lblc, lblcr, dh, sh, sed, nq, fo, ovf, mh, twos; did you mean rr?\nc.yaml:2:41: dataplane.forwarding: expected nat, dr, tun or gue, found 'masq'\nc.yaml:2:62: dataplane.unservedPorts: expected drop or reject, found 'accept'\nc.yaml:2:82: dataplane.fwmarkFrom: expected a firewall mark from 1 to 4294966272, found '0'",
    ),
    (
        "@dataplane: {timeouts: {tcp: 0s, tcpFin: 1500ms, udp: 25h}, tunnel: {type: gre, port: 0}}\nnode: {externalInterface: a/b}\n",
        "c.yaml:2:29: dataplane.timeouts.tcp: expected a time from 1s to 24h in whole seconds, found '0s'\nc.yaml:2:41: dataplane.timeouts.tcpFin: expected a time from 1s to 24h in whole seconds, found '1500ms'\nc.yaml:2:54: dataplane.timeouts.udp: expected a time from 1s to 24h in whole seconds, found '25h'\nc.yaml:2:75: dataplane.tunnel.type: expected ipip or gue, found 'gre'\nc.yaml:2:86: dataplane.tunnel.port: expected a UDP port from 1 to 65535, found '0'\nc.yaml:3:27: node.externalInterface: expected the name of an interface (1 to 15 octets, without '/', ':' and spaces), found 'a/b'",
    ),
    (
        "@dataplane: {type: none}\n",
        "c.yaml:2:19: dataplane.type: 'none' announces what it finds on vips.interface, so it needs vips.allow to say which prefixes",
    ),
    ("@dataplane: {type: iptables}\n", "c.yaml:2:19: dataplane.type: expected auto, ipvs, nftables, kube-proxy or none, found 'iptables'"),
    ("bgp: {asn: 0}\n", "c.yaml:1:12: bgp.asn: expected an AS number from 1 to 4294967294, found '0': no speaker may use it (RFC 7607)"),
    (
        "bgp: {asn: 23456}\n",
        "c.yaml:1:12: bgp.asn: expected an AS number from 1 to 4294967294, found '23456': it is AS_TRANS, which stands for numbers over 65535 (RFC 6793 §9)",
    ),
    ("bgp: {asn: 65535}\n", "c.yaml:1:12: bgp.asn: expected an AS number from 1 to 4294967294, found '65535': it is reserved (RFC 7300)"),
    ("bgp: {asn: 4294967296}\n", "c.yaml:1:12: bgp.asn: expected an AS number from 1 to 4294967294, found '4294967296'"),
    (
        "bgp: {asn: 1.10}\n",
        "c.yaml:1:12: bgp.asn: expected an AS number from 1 to 4294967294, found '1.1': write it as one number (asplain, RFC 5396)",
    ),
    ("bgp: {asn: -1}\n", "c.yaml:1:12: bgp.asn: expected an AS number from 1 to 4294967294, found '-1'"),
    ("bgp: {asn: AS1}\n", "c.yaml:1:12: bgp.asn: expected an AS number from 1 to 4294967294, found 'AS1'"),
    ("bgp: {asn: true}\n", "c.yaml:1:12: bgp.asn: expected an AS number from 1 to 4294967294, found the boolean true"),
    ("bgp: {asn: [1]}\n", "c.yaml:1:12: bgp.asn: expected an AS number from 1 to 4294967294, found a list"),
    (
        "bgp: {asn: 1, routerId: 0.0.0.0}\n",
        "c.yaml:1:25: bgp.routerId: expected auto or an IPv4 address, found '0.0.0.0': a BGP Identifier must not be 0.0.0.0",
    ),
    ("bgp: {asn: 1, routerId: 7}\n", "c.yaml:1:25: bgp.routerId: expected auto or an IPv4 address, found the number 7"),
    ("bgp: {asn: 1, routerId: '::1'}\n", "c.yaml:1:25: bgp.routerId: expected auto or an IPv4 address, found '::1'"),
    (
        "bgp: {asn: 1, peers: [{name: a b, address: rr1.example, asn: 2}]}\n",
        "c.yaml:1:30: bgp.peers[0].name: expected 1 to 63 of letters, digits, '-', '_' and '.', found 'a b'\nc.yaml:1:44: bgp.peers[0].address: expected the IPv4 or IPv6 address of the peer, found 'rr1.example'",
    ),
    (
        "bgp:\n  asn: 1\n  peers:\n  - {name: a, address: 0.0.0.0, asn: 1}\n  - {name: b, address: 224.0.0.1, asn: 1}\n  - {name: c, address: 255.255.255.255, asn: 1}\n  - {name: d, address: 'fe80::1', asn: 1}\n  - {name: e, address: '::ffff:192.0.2.1', asn: 1}\n",
        "c.yaml:4:24: bgp.peers[0].address: expected the IPv4 or IPv6 address of the peer, found '0.0.0.0': it is the unspecified address\nc.yaml:5:24: bgp.peers[1].address: expected the IPv4 or IPv6 address of the peer, found '224.0.0.1': it is a multicast address\nc.yaml:6:24: bgp.peers[2].address: expected the IPv4 or IPv6 address of the peer, found '255.255.255.255': it is the broadcast address\nc.yaml:7:24: bgp.peers[3].address: this link-local address is good on one link only: say on which by interface\nc.yaml:8:24: bgp.peers[4].address: expected the IPv4 or IPv6 address of the peer, found '::ffff:192.0.2.1': it is an IPv4 address in IPv6 form; write it as IPv4",
    ),
    (
        "bgp:\n  asn: 1\n  peers:\n  - {name: a, address: 192.0.2.1, asn: 1}\n  - {name: a, address: 192.0.2.2, asn: 1}\n  - {name: b, address: 192.0.2.1, asn: 2, port: 179}\n",
        "c.yaml:5:12: bgp.peers[1].name: another peer is named 'a'\nc.yaml:6:24: bgp.peers[2].address: bgp.peers[0] has 192.0.2.1 and port 179 too: of two sessions between the same two addresses one is closed as a collision (RFC 4271 §6.8)",
    ),
    (
        "bgp:\n  asn: 1\n  listen: {address: 0.0.0.0, prefixes: [192.0.2.0/24], gateway: true}\n",
        "c.yaml:3:56: bgp.listen.gateway: unknown key; expected one of address, port, prefixes, limit, asn, passwordFile, tcpAo, ttlSecurity, multihop, families, reflectorClient, addPath, keepReceived, localRole, strictRole, extendedMessages, extendedNextHop, timers, gracefulRestart, import, export",
    ),
    (
        "bgp:\n  asn: 1\n  peers:\n  - {name: a, address: 192.0.2.1, gateway: true, asn: 1}\n  - {name: b, gateway: true, interface: eth1, asn: 1}\n  - {name: c, interface: a/b, asn: 1}\n  - {name: d, gateway: no, asn: 1}\n",
        "c.yaml:4:44: bgp.peers[0].gateway: expected either address or gateway: the peer is at an address, or is the node's default gateway\nc.yaml:5:41: bgp.peers[1].interface: expected either gateway or interface: routing says by which interface the default gateway is reached\nc.yaml:6:26: bgp.peers[2].interface: expected the name of an interface (1 to 15 octets, without '/', ':' and spaces), found 'a/b'\nc.yaml:7:24: bgp.peers[3].gateway: expected true or false, found 'no'",
    ),
    (
        "bgp:\n  asn: 1\n  listen: {address: 0.0.0.0}\n  peers:\n  - {name: a, interface: eth1, asn: 1, passive: true, source: 'fe80::1'}\n  - {name: b, interface: eth1, asn: 1}\n  - {name: c, gateway: true, asn: 1, passive: true}\n  - {name: d, gateway: true, asn: 1}\n",
        "c.yaml:5:49: bgp.peers[0].passive: the peer cannot dial us: bgp.listen.address 0.0.0.0 is of the other family, unnumbered sessions are over IPv6\nc.yaml:5:63: bgp.peers[0].source: an unnumbered session is between the link-local addresses of its link; leave source out\nc.yaml:6:26: bgp.peers[1].interface: bgp.peers[0] has eth1 and port 179 too: of two sessions between the same two addresses one is closed as a collision (RFC 4271 §6.8)\nc.yaml:8:24: bgp.peers[3].gateway: bgp.peers[2] has the default gateway and port 179 too: of two sessions between the same two addresses one is closed as a collision (RFC 4271 §6.8)",
    ),
    (
        "bgp:\n  asn: 1\n  peers:\n  - name: a\n    address: 192.0.2.1\n    asn: 1\n    passwordFile: /k\n    tcpAo: {keys: [{sendId: 256, passwordFile: k}, {algorithm: md5}]}\n  - {name: b, address: 192.0.2.2, asn: 1, tcpAo: {keys: [{sendId: 1, passwordFile: /k}, {sendId: 2, recvId: 1, passwordFile: /l}, {sendId: 2, recvId: 3, passwordFile: /m}]}}\n  - {name: c, address: 192.0.2.3, asn: 1, tcpAo: {}}\n",
        "c.yaml:8:12: bgp.peers[0].tcpAo: expected either tcpAo or passwordFile: TCP-MD5 and TCP-AO do not go together (RFC 5925 §2.2)\nc.yaml:8:29: bgp.peers[0].tcpAo.keys[0].sendId: expected a KeyID from 0 to 255, found '256'\nc.yaml:8:48: bgp.peers[0].tcpAo.keys[0].passwordFile: expected an absolute path of a file, found 'k'\nc.yaml:8:52: bgp.peers[0].tcpAo.keys[1].sendId: this key is missing, expected a KeyID from 0 to 255\nc.yaml:8:52: bgp.peers[0].tcpAo.keys[1].passwordFile: this key is missing, expected an absolute path of a file\nc.yaml:8:64: bgp.peers[0].tcpAo.keys[1].algorithm: expected hmac-sha-1-96 or aes-128-cmac-96, found 'md5'\nc.yaml:9:109: bgp.peers[1].tcpAo.keys[1].recvId: another key has 1 (RFC 5925 §3.1)\nc.yaml:9:140: bgp.peers[1].tcpAo.keys[2].sendId: another key has 2 (RFC 5925 §3.1)\nc.yaml:10:50: bgp.peers[2].tcpAo.keys: expected at least one key",
    ),
    (
        "bgp: {asn: 1, peers: [{name: a, address: 192.0.2.1, asn: 1, port: 0}]}\n",
        "c.yaml:1:67: bgp.peers[0].port: expected a TCP port from 1 to 65535, found '0'",
    ),
    (
        "bgp: {asn: 1, peers: [{name: a, address: 192.0.2.1, asn: 1, passwordFile: key, ttlSecurity: {hops: 0}, multihop: 255, source: '::1'}]}\n",
        "c.yaml:1:75: bgp.peers[0].passwordFile: expected an absolute path of a file, found 'key'\nc.yaml:1:100: bgp.peers[0].ttlSecurity.hops: expected a number of hops from 1 to 254, found '0'\nc.yaml:1:114: bgp.peers[0].multihop: expected a number of hops from 1 to 254, found '255'\nc.yaml:1:114: bgp.peers[0].multihop: expected either multihop or ttlSecurity: with ttlSecurity the TTL is 255 (RFC 5082), and its hops say how far the peer is\nc.yaml:1:127: bgp.peers[0].source: expected an address of the same family as the peer's, which is 192.0.2.1, found ::1",
    ),
    (
        "bgp: {asn: 1, peers: [{name: a, address: 192.0.2.1, asn: 1, ttlSecurity: {}, interface: a/b}]}\n",
        "c.yaml:1:74: bgp.peers[0].ttlSecurity.hops: this key is missing, expected a number of hops from 1 to 254\nc.yaml:1:89: bgp.peers[0].interface: expected the name of an interface (1 to 15 octets, without '/', ':' and spaces), found 'a/b'",
    ),
    (
        "bgp: {asn: 1, listen: {port: 0, prefixes: [10.0.0.1/24], limit: 0}, peers: [{name: a, address: 192.0.2.1, asn: 1, passive: 7}]}\n",
        "c.yaml:1:23: bgp.listen.address: this key is missing, expected an IPv4 or IPv6 address of this node, or 0.0.0.0 or '::' for all of one family\nc.yaml:1:30: bgp.listen.port: expected a TCP port from 1 to 65535, found '0'\nc.yaml:1:44: bgp.listen.prefixes[0]: expected a prefix such as 10.0.0.0/24 or 2001:db8::/64, found '10.0.0.1/24': 10.0.0.1/24 has bits set beyond its length; the prefix is 10.0.0.0/24\nc.yaml:1:65: bgp.listen.limit: expected a number from 1 to 10000, found '0'\nc.yaml:1:124: bgp.peers[0].passive: expected true or false, found the number 7",
    ),
    (
        "bgp: {asn: 1, listen: {address: '::', prefixes: [10.0.0.0/24]}, peers: [{name: a, address: 192.0.2.1, asn: 1, passive: true}]}\n",
        "c.yaml:1:49: bgp.listen.prefixes: expected a prefix of the same family as bgp.listen.address, found 10.0.0.0/24\nc.yaml:1:120: bgp.peers[0].passive: the peer cannot dial us: bgp.listen.address :: is of the other family",
    ),
    (
        "bgp: {asn: 1, peers: [{name: a, address: 192.0.2.1, asn: 1, passive: true}]}\n",
        "c.yaml:1:70: bgp.peers[0].passive: the peer cannot dial us: there is no bgp.listen",
    ),
    (
        "bgp: {asn: 1, clusterId: auto, listen: {address: '::', prefixes: ['::/0'], asn: 3, reflectorClient: true}, peers: [{name: a, address: 192.0.2.1, asn: 2, reflectorClient: true, addPath: {send: both}, keepReceived: 100001}]}\n",
        "c.yaml:1:26: bgp.clusterId: expected an IPv4 address, found 'auto'\nc.yaml:1:101: bgp.listen.reflectorClient: a client of a route reflector is in its AS, 1; this peer is in 3\nc.yaml:1:171: bgp.peers[0].reflectorClient: a client of a route reflector is in its AS, 1; this peer is in 2\nc.yaml:1:193: bgp.peers[0].addPath.send: expected true or false, found 'both'\nc.yaml:1:214: bgp.peers[0].keepReceived: expected a number from 0 to 100000, found '100001'",
    ),
    (
        "bgp: {asn: 1, peers: [{name: a, address: 192.0.2.1, asn: 2, reflectorClient: true}]}\n",
        "c.yaml:1:78: bgp.peers[0].reflectorClient: a client of a route reflector is in its AS, 1; this peer is in 2",
    ),
    (
        "bgp: {asn: 1, peers: [{name: a, address: 192.0.2.1, asn: 1, families: [ipv4]}]}\n",
        "c.yaml:1:72: bgp.peers[0].families[0]: expected ipv4-unicast or ipv6-unicast, found 'ipv4'",
    ),
    (
        "bgp: {asn: 1, peers: [{name: a, address: 192.0.2.1, asn: 1, timers: {hold: 9, connectRetry: 0s}}]}\n",
        "c.yaml:1:76: bgp.peers[0].timers.hold: expected a hold time of 0s (off) or 3s to 65535s, found the number 9\nc.yaml:1:93: bgp.peers[0].timers.connectRetry: expected a time from 1s to 1h, found '0s'",
    ),
    (
        "bgp: {asn: 1, peers: [{name: a, address: 192.0.2.1, asn: 1, timers: {hold: 2s, connectRetry: 5}}]}\n",
        "c.yaml:1:76: bgp.peers[0].timers.hold: expected a hold time of 0s (off) or 3s to 65535s, found '2s': 1 and 2 seconds are refused by every speaker (RFC 4271 §6.2)\nc.yaml:1:94: bgp.peers[0].timers.connectRetry: expected a time from 1s to 1h, found the number 5",
    ),
    (
        "bgp: {asn: 1, peers: [{name: a, address: 192.0.2.1, asn: 1, timers: {hold: 3500ms, connectRetry: 2h}}]}\n",
        "c.yaml:1:76: bgp.peers[0].timers.hold: expected a hold time of 0s (off) or 3s to 65535s, found '3500ms': the OPEN message carries whole seconds (RFC 4271 §4.2)\nc.yaml:1:98: bgp.peers[0].timers.connectRetry: expected a time from 1s to 1h, found '2h'",
    ),
    (
        "bgp: {asn: 1, peers: [{name: a, address: 192.0.2.1, asn: 1, timers: {hold: 1d}}]}\n",
        "c.yaml:1:76: bgp.peers[0].timers.hold: expected a hold time of 0s (off) or 3s to 65535s, found '1d'",
    ),
    (
        "bgp: {asn: 1, peers: [{name: a, address: 192.0.2.1, asn: 1, export: {localPreference: -1, med: high}}]}\n",
        "c.yaml:1:87: bgp.peers[0].export.localPreference: expected a number from 0 to 4294967295, found '-1'\nc.yaml:1:96: bgp.peers[0].export.med: expected a number from 0 to 4294967295, found 'high'",
    ),
    (
        "bgp: {asn: 1, peers: [{name: a, address: 192.0.2.1, asn: 1, export: {prepend: 33, communities: [no-export, 65536:1, 7], largeCommunities: ['1:2', '1:2:+3']}}]}\n",
        "c.yaml:1:79: bgp.peers[0].export.prepend: expected a number from 0 to 32, found '33'\nc.yaml:1:97: bgp.peers[0].export.communities[0]: expected a community such as 65001:100 (each number up to 65535), or one of NO_EXPORT, NO_ADVERTISE, NO_EXPORT_SUBCONFED, GRACEFUL_SHUTDOWN, NO_LLGR, BLACKHOLE, found 'no-export'\nc.yaml:1:108: bgp.peers[0].export.communities[1]: expected a community such as 65001:100 (each number up to 65535), or one of NO_EXPORT, NO_ADVERTISE, NO_EXPORT_SUBCONFED, GRACEFUL_SHUTDOWN, NO_LLGR, BLACKHOLE, found '65536:1'\nc.yaml:1:117: bgp.peers[0].export.communities[2]: expected a community such as 65001:100 (each number up to 65535), or one of NO_EXPORT, NO_ADVERTISE, NO_EXPORT_SUBCONFED, GRACEFUL_SHUTDOWN, NO_LLGR, BLACKHOLE, found the number 7\nc.yaml:1:140: bgp.peers[0].export.largeCommunities[0]: expected a large community such as 65001:100:7 (each number up to 4294967295), found '1:2'\nc.yaml:1:147: bgp.peers[0].export.largeCommunities[1]: expected a large community such as 65001:100:7 (each number up to 4294967295), found '1:2:+3'",
    ),
    (
        "bgp: {asn: 1, peers: [{name: a, address: 192.0.2.1, asn: 1, export: {nextHop: {ipv4: '::1', ipv6: 192.0.2.1}}}]}\n",
        "c.yaml:1:86: bgp.peers[0].export.nextHop.ipv4: expected self or an IPv4 address, found '::1'\nc.yaml:1:99: bgp.peers[0].export.nextHop.ipv6: expected self or an IPv6 address, found '192.0.2.1'",
    ),
    (
        "bgp: {asn: 1, peers: [{name: a, address: 192.0.2.1, asn: 1, export: {nextHop: {ipv4: 127.0.0.1, ipv6: '::'}}}]}\n",
        "c.yaml:1:86: bgp.peers[0].export.nextHop.ipv4: expected self or an IPv4 address, found '127.0.0.1': it is a loopback address\nc.yaml:1:103: bgp.peers[0].export.nextHop.ipv6: expected self or an IPv6 address, found '::': it is the unspecified address",
    ),
    ("@drain: {fabricDelay: 25s}\n", "c.yaml:2:8: drain.timeout: expected a time longer than drain.fabricDelay, which is 25s, found 25s"),
    (
        "@drain: {fabricDelay: 2s, timeout: 2s}\n",
        "c.yaml:2:35: drain.timeout: expected a time longer than drain.fabricDelay, which is 2s, found 2s",
    ),
    ("@drain: {fabricDelay: 30s, timeout: 40}\n", "c.yaml:2:36: drain.timeout: expected a time from 0s to 1h, found the number 40"),
    ("@drain: {onTermination: stay}\n", "c.yaml:2:24: drain.onTermination: expected auto, keep or drain, found 'stay'"),
    (
        "bgp: {asn: 1, peers: [{name: a, address: 192.0.2.1, asn: 1, gracefulRestart: {restartTime: 2h}}, {name: b, address: 192.0.2.2, asn: 1, gracefulRestart: {}}]}\n",
        "c.yaml:1:92: bgp.peers[0].gracefulRestart.restartTime: expected a time from 1s to 4095s, found '2h'\nc.yaml:1:153: bgp.peers[1].gracefulRestart.restartTime: this key is missing, expected a time from 1s to 4095s",
    ),
    (
        "bgp: {asn: 1, peers: [{name: a, address: 192.0.2.1, asn: 1, export: {extendedCommunities: ['rt:1', '0x12', 'rt:65536:65536'], linkBandwidth: 10G}}]}\n",
        "c.yaml:1:92: bgp.peers[0].export.extendedCommunities[0]: expected an extended community such as rt:65001:100 or ro:65001:100, or its eight octets such as 0x0002fde900000064, found 'rt:1'\nc.yaml:1:100: bgp.peers[0].export.extendedCommunities[1]: expected an extended community such as rt:65001:100 or ro:65001:100, or its eight octets such as 0x0002fde900000064, found '0x12'\nc.yaml:1:108: bgp.peers[0].export.extendedCommunities[2]: expected an extended community such as rt:65001:100 or ro:65001:100, or its eight octets such as 0x0002fde900000064, found 'rt:65536:65536': beside an AS number over 65535 there are two octets (RFC 5668)\nc.yaml:1:142: bgp.peers[0].export.linkBandwidth: expected a bandwidth such as 10Gbit (bit, kbit, Mbit, Gbit or Tbit per second), found '10G'",
    ),
    (
        "bgp: {asn: 1, policies: [{name: a, prefixes: [10.0.0.0/8]}, {name: a, nextHop: {ipv4: self}}, {name: b, prefixes: [10.0.0.0/8]}, {med: 1}]}\n",
        "c.yaml:1:68: bgp.policies[1].name: another policy is named 'a'\nc.yaml:1:87: bgp.policies[1].nextHop.ipv4: expected an IPv4 address, found 'self'\nc.yaml:1:115: bgp.policies[2].prefixes: 10.0.0.0/8 has the policy 'a' already\nc.yaml:1:130: bgp.policies[3].name: this key is missing, expected the name of a policy (1 to 63 of letters, digits, '-', '_' and '.')",
    ),
    (
        "bgp: {asn: 1, policies: [{name: a, peers: [rr1]}]}\n",
        "c.yaml:1:43: bgp.policies[0].peers: expected names of bgp.peers, found 'rr1'",
    ),
    (
        "bgp: {asn: 1, aggregates: [{prefix: 10.0.0.7/32}, {prefix: 10.0.0.0/24, policy: a, vips: hide}, {prefix: 10.0.1.0/24}, {prefix: 10.0.1.0/24}, {}]}\n",
        "c.yaml:1:37: bgp.aggregates[0].prefix: expected a prefix such as 10.0.0.0/24 or 2001:db8::/64, found '10.0.0.7/32': it is a single address, which aggregates nothing\nc.yaml:1:81: bgp.aggregates[1].policy: expected the name of one of bgp.policies, found 'a'\nc.yaml:1:90: bgp.aggregates[1].vips: expected announce or suppress, found 'hide'\nc.yaml:1:129: bgp.aggregates[3].prefix: another aggregate is 10.0.1.0/24\nc.yaml:1:143: bgp.aggregates[4].prefix: this key is missing, expected a prefix such as 10.0.0.0/24 or 2001:db8::/64",
    ),
    (
        "bgp: {asn: 1, peers: [{name: a, address: 192.0.2.1, asn: 1, localRole: customer, strictRole: true}, {name: b, address: 192.0.2.2, asn: 2, strictRole: true}, {name: c, address: 192.0.2.3, asn: 2, localRole: transit}]}\n",
        "c.yaml:1:72: bgp.peers[0].localRole: roles are for external peers (RFC 9234 §4), and this one is in our own AS\nc.yaml:1:151: bgp.peers[1].strictRole: expected localRole too: the peer's role can be demanded only where ours is said\nc.yaml:1:207: bgp.peers[2].localRole: expected provider, customer, peer, route-server or route-server-client, found 'transit'",
    ),
    (
        "bgp: {asn: 1, peers: [{name: a, address: 192.0.2.1, asn: 1, timers: {sendHold: 9s}, import: {maxPrefixes: {ipv4: -1}, restartDelay: 0s}}]}\n",
        "c.yaml:1:80: bgp.peers[0].timers.sendHold: expected a time longer than timers.hold, which is 9s, found 9s\nc.yaml:1:114: bgp.peers[0].import.maxPrefixes.ipv4: expected a number from 0 to 4294967295, found '-1'\nc.yaml:1:133: bgp.peers[0].import.restartDelay: expected a time from 1s to 1h, found '0s'",
    ),
    (
        "bgp: {asn: 1, listen: {address: 192.0.2.1, prefixes: [192.0.2.0/24], timer: a, timers: {sendHold: 1d}, gracefulRestart: {restartTime: 1s, longLivedStaleTime: 195d}}}\n",
        "c.yaml:1:70: bgp.listen.timer: unknown key; did you mean 'timers'?\nc.yaml:1:99: bgp.listen.timers.sendHold: expected a time from 1s to 65535s, found '1d'\nc.yaml:1:159: bgp.listen.gracefulRestart.longLivedStaleTime: expected a time from 0s (off) to 16777215s, found '195d'",
    ),
    ("@drain: {timeout: 2h}\n", "c.yaml:2:18: drain.timeout: expected a time from 0s to 1h, found '2h'"),
    (
        "@startup: {patience: soon}\n",
        "c.yaml:2:21: startup.patience: expected a time from 0s to 1h, found 'soon': a time is a number and a unit, such as 500ms, 9s or 2m",
    ),
    ("@stateDir: run\n", "c.yaml:2:11: stateDir: expected an absolute path of at most 96 octets, found 'run'"),
    (
        "@stateDir: /xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\n",
        "c.yaml:2:11: stateDir: expected an absolute path of at most 96 octets, found '/xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx…'",
    ),
    (
        "@http: {address: '9479'}\n",
        "c.yaml:2:17: http.address: expected an address and a port such as 0.0.0.0:9479 or [::]:9479, found '9479'",
    ),
    (
        "@http: {address: localhost:9479}\n",
        "c.yaml:2:17: http.address: expected an address and a port such as 0.0.0.0:9479 or [::]:9479, found 'localhost:9479'",
    ),
    (
        "@log: {level: loud, format: xml}\n",
        "c.yaml:2:14: log.level: expected off, error, warn, info, debug or trace, or a list such as info,vipherald::driver=debug, found 'loud'\nc.yaml:2:28: log.format: expected json or text, found 'xml'",
    ),
    (
        "@log: {level: 'info,bgp=loud'}\n",
        "c.yaml:2:14: log.level: expected off, error, warn, info, debug or trace, or a list such as info,vipherald::driver=debug, found 'info,bgp=loud'",
    ),
    ("bgp: {asn: '${NONE}'}\n", "c.yaml:1:12: bgp.asn: the variable NONE is not set"),
    (
        "@instance: ${YAML}\n",
        "c.yaml:2:11: instance: expected 1 to 63 of a-z, 0-9 and '-', beginning with a letter and ending with a letter or digit, found 'a: {b: c}'",
    ),
    (
        "@instance: ${EMPTY}\n",
        "c.yaml:2:11: instance: expected 1 to 63 of a-z, 0-9 and '-', beginning with a letter and ending with a letter or digit, found ''",
    ),
    ("@instance: $NODE_NAME\n", "c.yaml:2:11: instance: expected ${NAME}, or $$ for the character itself, after the $ in '$NODE_NAME'"),
    ("@instance: ${node-name}\n", "c.yaml:2:11: instance: expected the name of a variable in ${ }, found 'node-name'"),
    (
        "@\"a\\e[31m\": 1\ninstance: \"\\0\"\n",
        "c.yaml:2:1: a\\u{1b}[31m: unknown key; expected one of instance, node, vips, dataplane, bgp, drain, startup, stateDir, http, log\nc.yaml:3:11: instance: expected 1 to 63 of a-z, 0-9 and '-', beginning with a letter and ending with a letter or digit, found '\\u{0}'",
    ),
];

#[test]
fn each_mistake_is_named() {
    for (text, expected) in MISTAKES {
        let text = text.replace('@', "bgp: {asn: 65001}\n");
        assert_eq!(read(&text).unwrap_err(), *expected, "answer to:\n{text}");
    }
    assert!(MISTAKES.len() >= 30);
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let error = load(Path::new("/nonexistent/c.yaml"), &environment()).unwrap_err();
    assert_eq!(vipherald::telemetry::chain(&error), "/nonexistent/c.yaml: cannot be read: No such file or directory (os error 2)");
    let error = load(Path::new("/dev/zero"), &environment()).unwrap_err();
    assert_eq!(vipherald::telemetry::chain(&error), "/dev/zero: cannot be read: it is no regular file");
}

#[test]
fn a_pipe_without_writer_is_refused_at_once_and_a_file_that_is_too_long_too() {
    let directory = tempfile::tempdir().unwrap();
    let pipe = directory.path().join("pipe.yaml");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let error = load(&pipe, &environment()).unwrap_err();
    assert!(vipherald::telemetry::chain(&error).ends_with("pipe.yaml: cannot be read: it is no regular file"));
    let long = directory.path().join("long.yaml");
    std::fs::write(&long, "#".repeat(1_048_577)).unwrap();
    let error = load(&long, &environment()).unwrap_err();
    assert!(vipherald::telemetry::chain(&error).ends_with("long.yaml: cannot be read: it is longer than 1048576 octets"));
}

#[test]
fn without_a_name_of_the_node_there_is_no_configuration() {
    let error = load(&root("examples/config/minimal.yaml"), &Environment::new()).unwrap_err();
    assert!(error.to_string().ends_with("minimal.yaml:2:1: node.name: the variable NODE_NAME is not set"), "{error}");
    assert!(!config::process_environment()["NODE_NAME"].is_empty());
}

/// `bgp.peers[].asn`, found in a file that nests `bgp`, `peers`, a list and `asn`.
fn keys_of(value: &serde_json::Value, path: &str, keys: &mut BTreeSet<String>) {
    match value {
        serde_json::Value::Object(map) => {
            for (key, value) in map {
                keys_of(value, &if path.is_empty() { key.clone() } else { format!("{path}.{key}") }, keys);
            }
        }
        serde_json::Value::Array(list) if list.iter().any(serde_json::Value::is_object) => {
            list.iter().for_each(|value| keys_of(value, &format!("{path}[]"), keys));
        }
        _ => {
            keys.insert(path.to_owned());
        }
    }
}

#[test]
fn example_reference_and_code_know_the_same_keys() {
    let code: BTreeSet<String> = KEYS.iter().map(|key| key.path.to_owned()).collect();
    assert_eq!(code.len(), KEYS.len(), "no key twice");
    // Dynamic peers have keys of peers.
    let known = |key: String| if code.contains(&key) { key } else { key.replace("bgp.listen.", "bgp.peers[].") };

    let mut keys = BTreeSet::new();
    let example = root("examples/config/all-keys.yaml");
    load(&example, &environment()).unwrap();
    keys_of(&serde_saphyr::from_str(&std::fs::read_to_string(example).unwrap()).unwrap(), "", &mut keys);
    assert_eq!(keys.into_iter().map(known).collect::<BTreeSet<_>>(), code, "examples/config/all-keys.yaml");

    let reference = std::fs::read_to_string(root("docs/configuration.md")).unwrap();
    let rows: Vec<Vec<&str>> = reference
        .lines()
        .filter(|line| line.starts_with("| `"))
        .map(|line| line.split(" | ").map(|cell| cell.trim_matches(['|', ' ', '`'])).collect())
        .collect();
    let documented: Vec<(&str, &str)> = rows.iter().map(|row| (row[0], row[row.len() - 1])).collect();
    assert_eq!(documented, KEYS.iter().map(|key| (key.path, key.effect.as_str())).collect::<Vec<_>>(), "docs/configuration.md");
}

/// A key that the table has and nobody reads would be silently ignored.
#[test]
fn each_key_of_the_table_is_read() {
    for key in KEYS {
        let mut text = "!wrong".to_owned();
        for part in key.path.rsplit('.') {
            text = match part.strip_suffix("[]") {
                Some(name) => format!("{{\"{name}\": [{text}]}}"),
                None => format!("{{\"{part}\": {text}}}"),
            };
        }
        let answer = read(&text.replace("!wrong", "{x: 1}")).unwrap_err();
        assert!(answer.contains(&format!("{}: expected ", key.path.replace("[]", "[0]"))), "{}: {answer}", key.path);
    }
}

proptest! {
    #[test]
    fn no_text_panics(text in any::<String>()) {
        drop(read(&text));
    }

    #[test]
    fn no_text_of_yaml_panics(text in "([a-z]{1,4}|bgp|peers|asn|- |: |\n|  |\\{|\\}|\\[|\\]|\\$\\{|'|\"|[0-9]{1,4}|&a |\\*a|<<: |!!int |\\.nan|\t|#|\\||>|-){0,60}") {
        drop(read(&text));
    }

    #[test]
    fn no_value_of_any_key_panics(key in 0..KEYS.len(), value in any::<String>()) {
        let mut json = serde_json::Value::String(value);
        for part in KEYS[key].path.rsplit('.') {
            json = match part.strip_suffix("[]") {
                Some(name) => serde_json::json!({name: [json]}),
                None => serde_json::json!({part: json}),
            };
        }
        drop(read(&json.to_string()));
    }
}
