// SPDX-License-Identifier: Apache-2.0
//! What each mistake in a file is answered with: its place, what was expected there, and what was found.

use std::path::Path;

use vipherald::config::{self, Environment, load};

use crate::{environment, read, root};

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
        "c.yaml:1:1: expected a map with the keys instance, domain, namespaces, namespaceSelector, mode, node, vips, dataplane, bgp, vrrp, drain, startup, stateDir, http, log, found a list",
    ),
    (
        "@drain: 5s\n",
        "c.yaml:2:8: drain: expected a map with the keys onTermination, workload, onCordon, taints, gracefulShutdown, fabricDelay, timeout, found '5s'",
    ),
    (
        "@vips:\n  pools:\n  - {prefixes: [10.0.0.0/24, 10.0.0.128/25]}\n  - {name: a, prefixes: []}\n  - {name: a, prefixes: [10.0.0.0/8, x]}\n",
        "c.yaml:4:5: vips.pools[0].name: this key is missing, expected the name of a pool (1 to 63 of letters, digits, '-', '_' and '.')\nc.yaml:4:30: vips.pools[0].prefixes[1]: 10.0.0.128/25 has addresses of 10.0.0.0/24, which is in a pool already\nc.yaml:5:25: vips.pools[1].prefixes: expected at least one prefix such as 10.0.0.128/25\nc.yaml:6:12: vips.pools[2].name: another pool is named 'a'\nc.yaml:6:38: vips.pools[2].prefixes[1]: expected a prefix such as 10.0.0.0/24 or 2001:db8::/64, found 'x'",
    ),
    ("@vips: {allow: 10.0.0.0/8}\n", "c.yaml:2:15: vips.allow: expected a list, found '10.0.0.0/8'"),
    ("@? [x]\n: 1\n", "c.yaml:2:3: expected a key, found a list"),
    ("@1: 2\n", "c.yaml:2:1: expected a key, found the number 1"),
    ("bgp: {asn: 1, peers: {name: a}}\n", "c.yaml:1:22: bgp.peers: expected a list, found a map"),
    (
        "bgp: {asn: 1, peers: [a]}\n",
        "c.yaml:1:23: bgp.peers[0]: expected a map with the keys name, nodeSelector, address, gateway, port, asn, passwordFile, tcpAo, ttlSecurity, multihop, source, interface, passive, families, reflectorClient, addPath, keepReceived, localRole, strictRole, extendedMessages, extendedNextHop, timers, gracefulRestart, import, export, found 'a'",
    ),
    ("@instnace: a\n", "c.yaml:2:1: instnace: unknown key; did you mean 'instance'?"),
    ("@mdoe: vrrp\n", "c.yaml:2:1: mdoe: unknown key; did you mean 'mode'?"),
    ("@mode: vrrp\n", "c.yaml:2:7: mode: with 'vrrp' a group of vrrp.groups has to say by 'vips' which VIPs are its own"),
    (
        "@mode: vrrp\nvrrp: {groups: [{name: a, interface: e1, virtualRouterId: 0, vips: [10.97.0.9/24]}]}\n",
        "c.yaml:3:59: vrrp.groups[0].virtualRouterId: expected a number from 1 to 255, found '0'\nc.yaml:3:69: vrrp.groups[0].vips[0]: expected a prefix such as 10.0.0.0/24 or 2001:db8::/64, found '10.97.0.9/24': 10.97.0.9/24 has bits set beyond its length; the prefix is 10.97.0.0/24",
    ),
    (
        "@mode: vrrp\nvips: {allow: [{prefix: 10.0.0.0/24}]}\ndataplane: {type: none}\nvrrp: {groups: [{name: a, interface: e1, virtualRouterId: 1, vips: [10.0.0.0/24]}]}\n",
        "c.yaml:2:7: mode: with dataplane.type 'none' there are no VIPs that a virtual router could have; 'bgp' announces what is found on vips.interface",
    ),
    (
        "@vrrp:\n  groups:\n  - {name: a, interface: e1, virtualRouterId: 1, vips: [10.0.0.0/8], addresses: [10.0.0.9]}\n  - {name: b, interface: e1, virtualRouterId: 2, vips: [10.0.0.0/8, '::/0'], version: 2}\n  - {name: c, interface: e1, virtualRouterId: 3, vips: []}\n",
        "c.yaml:4:81: vrrp.groups[0].addresses: the group has 'vips': its addresses are those of them that are served; leave one of both out\nc.yaml:5:56: vrrp.groups[1].vips: VIPs in 10.0.0.0/8 are those of group 'a' already\nc.yaml:6:56: vrrp.groups[2].vips: expected at least one prefix such as 0.0.0.0/0",
    ),
    ("bgp: {asn: 1, Peers: []}\n", "c.yaml:1:15: bgp.Peers: unknown key; did you mean 'peers'?"),
    (
        "bgp:\n  asn: 1\n  peers:\n    - name: a\n      adress: 192.0.2.1\n      asn: 2\n      bfd: {interval: 50ms}\n      password: x\n",
        "c.yaml:4:7: bgp.peers[0].address: this key is missing, expected the IPv4 or IPv6 address of the peer, or instead of it gateway: true, or interface alone (unnumbered)\nc.yaml:5:7: bgp.peers[0].adress: unknown key; did you mean 'address'?\nc.yaml:7:7: bgp.peers[0].bfd: unknown key; expected one of name, nodeSelector, address, gateway, port, asn, passwordFile, tcpAo, ttlSecurity, multihop, source, interface, passive, families, reflectorClient, addPath, keepReceived, localRole, strictRole, extendedMessages, extendedNextHop, timers, gracefulRestart, import, export\nc.yaml:8:7: bgp.peers[0].password: unknown key; expected one of name, nodeSelector, address, gateway, port, asn, passwordFile, tcpAo, ttlSecurity, multihop, source, interface, passive, families, reflectorClient, addPath, keepReceived, localRole, strictRole, extendedMessages, extendedNextHop, timers, gracefulRestart, import, export",
    ),
    (
        "@vrrp: {groups: [{}]}\n",
        "c.yaml:2:17: vrrp.groups[0].name: this key is missing, expected the name of a group (1 to 63 of letters, digits, '-', '_' and '.')\nc.yaml:2:17: vrrp.groups[0].interface: this key is missing, expected the name of an interface (1 to 15 octets, without '/', ':' and spaces)\nc.yaml:2:17: vrrp.groups[0].virtualRouterId: this key is missing, expected a number from 1 to 255\nc.yaml:2:17: vrrp.groups[0].addresses: expected at least one address such as 10.0.0.9, or 'vips' instead",
    ),
    (
        "@vrrp:\n  groups:\n  - {name: a, interface: lo, virtualRouterId: 0, addresses: [127.0.0.1], priority: 256}\n",
        "c.yaml:4:47: vrrp.groups[0].virtualRouterId: expected a number from 1 to 255, found '0'\nc.yaml:4:62: vrrp.groups[0].addresses[0]: expected an IPv4 or IPv6 address, found '127.0.0.1': it is a loopback address\nc.yaml:4:84: vrrp.groups[0].priority: expected a number from 1 to 255, found '256'",
    ),
    (
        "@vrrp:\n  groups:\n  - {name: a, interface: lo, virtualRouterId: 1, addresses: [10.0.0.9], advertisementInterval: 15ms, preempt: false, preemptDelay: 1s}\n",
        "c.yaml:4:96: vrrp.groups[0].advertisementInterval: expected a time from 10ms to 40.95s (version 2: 1s to 255s), found '15ms': advertisements carry hundredths of a second (RFC 9568 §5.2.7)\nc.yaml:4:132: vrrp.groups[0].preemptDelay: without preempt there is nothing to delay; leave one of both out",
    ),
    (
        "@vrrp:\n  groups:\n  - {name: a, interface: lo, virtualRouterId: 1, addresses: [10.0.0.9]}\n",
        "c.yaml:4:26: vrrp.groups[0].interface: lo is vips.interface: an address there is placed while it is served, not while a router is Active",
    ),
    (
        "@vrrp:\n  groups:\n  - {name: a, interface: e1, virtualRouterId: 1, addresses: [10.0.0.9, '2001:db8::9'], version: 2}\n",
        "c.yaml:4:97: vrrp.groups[0].version: its virtual router of IPv6 cannot be so: version 2 has no IPv6: use version 3",
    ),
    (
        "@vrrp:\n  groups:\n  - {name: a, interface: e1, virtualRouterId: 1, addresses: [10.0.0.9]}\n  - {name: a, interface: e1, virtualRouterId: 1, addresses: [10.0.0.9, '2001:db8::9'], peers: [10.0.0.2]}\n",
        "c.yaml:5:12: vrrp.groups[1].name: another group is named 'a'\nc.yaml:5:47: vrrp.groups[1].virtualRouterId: group 'a' is virtual router 1 on e1 already\nc.yaml:5:61: vrrp.groups[1].addresses: 10.0.0.9 is an address of group 'a' already\nc.yaml:5:95: vrrp.groups[1].peers: none of them is an IPv6 address, as some of addresses are",
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
    (
        "@domain: '-'\n",
        "c.yaml:2:9: domain: expected the name of a domain (a label value: at most 63 letters, digits, '-', '_' and '.'), found '-'",
    ),
    ("@namespaces: [A]\n", "c.yaml:2:14: namespaces[0]: expected the name of a namespace (1 to 63 of a-z, 0-9 and '-'), found 'A'"),
    (
        "@namespaceSelector: 'a in (b)'\n",
        "c.yaml:2:20: namespaceSelector: expected a label selector such as 'team=enm,tier!=test,!legacy', found 'a in (b)': \"a in (b)\" is none of KEY=VALUE, KEY!=VALUE, KEY and !KEY",
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
    (
        "@dataplane: {type: nftables, scheduler: lc, forwarding: dr}\n",
        "c.yaml:2:40: dataplane.scheduler: scheduler lc needs IPVS, which dataplane nftables does without, since nft does not count connections; use rr, wrr, sh or mh, or dataplane.type ipvs\nc.yaml:2:56: dataplane.forwarding: forwarding dr needs IPVS, which dataplane nftables does without; use nat, or dataplane.type ipvs",
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
        "c.yaml:1:12: bgp.asn: expected an AS number from 1 to 4294967294, found '1.10': write it as one number (asplain, RFC 5396)",
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
        "bgp:\n  asn: 1\n  peers:\n  - {name: a, address: 192.0.2.1, asn: 1}\n  - {name: a, address: 192.0.2.2, asn: 1}\n  - {name: b, address: 192.0.2.1, asn: 2, port: 179}\n  - {name: c, address: 192.0.2.1, asn: 1, interface: red}\n  - {name: d, address: 192.0.2.1, asn: 1, interface: red}\n",
        "c.yaml:5:12: bgp.peers[1].name: another peer is named 'a'\nc.yaml:6:24: bgp.peers[2].address: bgp.peers[0] has 192.0.2.1 and port 179 too: of two sessions between the same two addresses one is closed as a collision (RFC 4271 §6.8)\nc.yaml:8:24: bgp.peers[4].address: bgp.peers[3] has 192.0.2.1 and port 179 too: of two sessions between the same two addresses one is closed as a collision (RFC 4271 §6.8)",
    ),
    (
        "bgp:\n  asn: 1\n  peers:\n  - {name: a, address: 192.0.2.1, asn: 1, nodeSelector: rack=a}\n  - {name: b, address: 192.0.2.1, asn: 2, nodeSelector: rack=b}\n  - {name: c, address: 192.0.2.1, asn: 3, nodeSelector: row=b}\n  - {name: d, address: 192.0.2.2, asn: 3, nodeSelector: rack in (a)}\n",
        "c.yaml:6:24: bgp.peers[2].address: bgp.peers[0] has 192.0.2.1 and port 179 too: of two sessions between the same two addresses one is closed as a collision (RFC 4271 §6.8)\nc.yaml:7:57: bgp.peers[3].nodeSelector: expected a label selector such as 'team=enm,tier!=test,!legacy', found 'rack in (a)': \"rack in (a)\" is none of KEY=VALUE, KEY!=VALUE, KEY and !KEY",
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
        "bgp:\n  asn: 1\n  listen: {address: 0.0.0.0, prefixes: [192.0.2.0/24, 192.0.2.0/25], passwordFile: /k}\n  peers:\n  - {name: a, address: 192.0.2.1, asn: 1, passive: true}\n  - {name: b, address: 192.0.2.2, asn: 1, passive: true, tcpAo: {keys: [{sendId: 1, passwordFile: /k}]}}\n  - {name: c, address: 192.0.2.3, asn: 1}\n  - {name: d, address: 192.0.2.4, asn: 1, passive: true, passwordFile: /l}\n  - {name: e, address: 198.51.100.1, asn: 1, passive: true}\n  - {name: f, address: 192.0.2.5, asn: 1, passive: true, interface: in-a-vrf}\n",
        "c.yaml:5:52: bgp.peers[0].passive: the peer cannot dial us: 192.0.2.1 is in 192.0.2.0/25 of bgp.listen.prefixes, from where the kernel takes only what is signed with TCP-MD5 (bgp.listen.passwordFile), and the peer does not sign; give it a passwordFile too, or prefixes without its address\nc.yaml:6:52: bgp.peers[1].passive: the peer cannot dial us: 192.0.2.2 is in 192.0.2.0/25 of bgp.listen.prefixes, from where the kernel takes only what is signed with TCP-MD5 (bgp.listen.passwordFile), and the peer signs with TCP-AO; give it a passwordFile too, or prefixes without its address",
    ),
    (
        "bgp:\n  asn: 1\n  listen: {address: '::', prefixes: ['2001:db8::/64'], tcpAo: {keys: [{sendId: 1, passwordFile: /k}]}}\n  peers:\n  - {name: a, address: '2001:db8::1', asn: 1, passive: true, passwordFile: /k}\n",
        "c.yaml:5:56: bgp.peers[0].passive: the peer cannot dial us: 2001:db8::1 is in 2001:db8::/64 of bgp.listen.prefixes, from where the kernel takes only what is signed with TCP-AO (bgp.listen.tcpAo), and the peer signs with TCP-MD5; give it a tcpAo too, or prefixes without its address",
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
    (
        "bgp: {asn: 1, peers: [{name: a, address: 192.0.2.1, asn: 1, export: {nextHop: {ipv4: 0.0.0.1}}}], policies: [{name: a, nextHop: {ipv4: 255.255.255.255}},\n  {name: b, nextHop: {ipv4: 240.0.0.1}}, {name: c, nextHop: {ipv4: 169.254.0.1}}, {name: d, nextHop: {ipv4: 224.0.0.1, ipv6: 'ff02::1'}}, {name: e, nextHop: {ipv4: 0.0.0.0, ipv6: 'fe80::1'}}]}\n",
        "c.yaml:1:86: bgp.peers[0].export.nextHop.ipv4: expected self or an IPv4 address, found '0.0.0.1': no host has an address in 0.0.0.0/8\nc.yaml:1:136: bgp.policies[0].nextHop.ipv4: expected an IPv4 address, found '255.255.255.255': it is the broadcast address\nc.yaml:2:29: bgp.policies[1].nextHop.ipv4: expected an IPv4 address, found '240.0.0.1': no host has an address in 240.0.0.0/4\nc.yaml:2:68: bgp.policies[2].nextHop.ipv4: expected an IPv4 address, found '169.254.0.1': it is a link-local address\nc.yaml:2:109: bgp.policies[3].nextHop.ipv4: expected an IPv4 address, found '224.0.0.1': it is a multicast address\nc.yaml:2:126: bgp.policies[3].nextHop.ipv6: expected an IPv6 address, found 'ff02::1': it is a multicast address\nc.yaml:2:165: bgp.policies[4].nextHop.ipv4: expected an IPv4 address, found '0.0.0.0': it is the unspecified address\nc.yaml:2:180: bgp.policies[4].nextHop.ipv6: expected an IPv6 address, found 'fe80::1': it is a link-local address",
    ),
    ("@drain: {fabricDelay: 25s}\n", "c.yaml:2:8: drain.timeout: expected a time longer than drain.fabricDelay, which is 25s, found 25s"),
    (
        "@drain: {fabricDelay: 2s, timeout: 2s}\n",
        "c.yaml:2:35: drain.timeout: expected a time longer than drain.fabricDelay, which is 2s, found 2s",
    ),
    ("@drain: {fabricDelay: 30s, timeout: 40}\n", "c.yaml:2:36: drain.timeout: expected a time from 0s to 1h, found the number 40"),
    ("@drain: {onCordon: yes}\n", "c.yaml:2:19: drain.onCordon: expected auto, always or never, found 'yes'"),
    (
        "@drain: {taints: [{effect: NoExecute}, {key: a/b/c}, {key: a, value: 'b c', effect: Evict}]}\n",
        "c.yaml:2:18: drain.taints[0].key: this key is missing, expected the key of a taint such as maintenance or example.com/maintenance\nc.yaml:2:45: drain.taints[1].key: expected the key of a taint such as maintenance or example.com/maintenance, found 'a/b/c'\nc.yaml:2:69: drain.taints[2].value: expected the value of a taint (at most 63 letters, digits, '-', '_' and '.'), found 'b c'\nc.yaml:2:84: drain.taints[2].effect: expected NoSchedule, PreferNoSchedule or NoExecute, found 'Evict'",
    ),
    (
        "@drain: {workload: Deployment/a/b}\n",
        "c.yaml:2:19: drain.workload: expected DaemonSet/NAMESPACE/NAME or StatefulSet/NAMESPACE/NAME/POD, found 'Deployment/a/b'",
    ),
    (
        "@drain: {workload: DaemonSet/a/B}\n",
        "c.yaml:2:19: drain.workload: expected DaemonSet/NAMESPACE/NAME or StatefulSet/NAMESPACE/NAME/POD, found 'DaemonSet/a/B'",
    ),
    (
        "@drain: {workload: StatefulSet/a/b/c-1}\n",
        "c.yaml:2:19: drain.workload: expected DaemonSet/NAMESPACE/NAME or StatefulSet/NAMESPACE/NAME/POD, found 'StatefulSet/a/b/c-1': the pods of b are named b-0, b-1 and so on",
    ),
    ("@drain: {onTermination: stay}\n", "c.yaml:2:24: drain.onTermination: expected auto, keep or drain, found 'stay'"),
    (
        "bgp: {asn: 1, peers: [{name: a, address: 192.0.2.1, asn: 1, gracefulRestart: {restartTime: 2h}}, {name: b, address: 192.0.2.2, asn: 1, gracefulRestart: {}}]}\n",
        "c.yaml:1:92: bgp.peers[0].gracefulRestart.restartTime: expected a time from 1s to 4095s, found '2h'\nc.yaml:1:153: bgp.peers[1].gracefulRestart.restartTime: this key is missing, expected a time from 1s to 4095s",
    ),
    (
        "bgp: {asn: 1, peers: [{name: a, address: 192.0.2.1, asn: 1, export: {extendedCommunities: ['rt:1', '0x12', 'rt:65536:65536'], linkBandwidth: 10G}}]}\n",
        "c.yaml:1:92: bgp.peers[0].export.extendedCommunities[0]: expected an extended community such as rt:65001:100 or ro:65001:100, or its eight octets such as 0x0002fde900000064, found 'rt:1'\nc.yaml:1:100: bgp.peers[0].export.extendedCommunities[1]: expected an extended community such as rt:65001:100 or ro:65001:100, or its eight octets such as 0x0002fde900000064, found '0x12'\nc.yaml:1:108: bgp.peers[0].export.extendedCommunities[2]: expected an extended community such as rt:65001:100 or ro:65001:100, or its eight octets such as 0x0002fde900000064, found 'rt:65536:65536': beside an AS number over 65535 there are two octets (RFC 5668)\nc.yaml:1:142: bgp.peers[0].export.linkBandwidth: expected a bandwidth such as 10Gbit (8bit at least; bit, kbit, Mbit, Gbit or Tbit per second), found '10G'",
    ),
    (
        "bgp: {asn: 1, policies: [{name: a, prefixes: [10.0.0.0/8]}, {name: a, nextHop: {ipv4: self}}, {name: b, prefixes: [10.0.0.0/8]}, {med: 1}]}\n",
        "c.yaml:1:68: bgp.policies[1].name: another policy is named 'a'\nc.yaml:1:87: bgp.policies[1].nextHop.ipv4: expected an IPv4 address, found 'self'\nc.yaml:1:115: bgp.policies[2].prefixes: 10.0.0.0/8 has the policy 'a' already\nc.yaml:1:130: bgp.policies[3].name: this key is missing, expected the name of a policy (1 to 63 of letters, digits, '-', '_' and '.')",
    ),
    (
        "bgp:\n  asn: 1\n  policies:\n  - {name: a, prefixes: [10.1.0.1/32, '2001:db8::1/128'], nextHop: {ipv4: 10.1.0.1, ipv6: '2001:db8::1'}}\n  - {name: b, prefixes: [10.1.0.0/24], nextHop: {ipv4: 10.1.0.2}}\n",
        "c.yaml:4:68: bgp.policies[0].nextHop: 10.1.0.1 is one of the prefixes of this policy: a destination is not its own next hop (RFC 4271 §5.1.3)\nc.yaml:4:68: bgp.policies[0].nextHop: 2001:db8::1 is one of the prefixes of this policy: a destination is not its own next hop (RFC 4271 §5.1.3)",
    ),
    (
        "bgp:\n  asn: 1\n  listen: {address: 0.0.0.0}\n  peers:\n  - {name: a, address: 192.0.2.1, asn: 1}\n  - {name: b, address: 192.0.2.1, asn: 1, port: 1790}\n  - {name: c, address: 192.0.2.1, asn: 1, port: 1791, passive: true}\n  - {name: d, address: 192.0.2.1, asn: 1, port: 1792}\n  - {name: e, address: 192.0.2.1, asn: 1, interface: red, passive: true}\n",
        "c.yaml:7:24: bgp.peers[2].address: bgp.peers[0] has 192.0.2.1 too, and one of both is passive: a connection that is dialled from there could be of either, whatever their ports\nc.yaml:8:24: bgp.peers[3].address: bgp.peers[2] has 192.0.2.1 too, and one of both is passive: a connection that is dialled from there could be of either, whatever their ports",
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
    (
        "bgp: {asn: 1e3, peers: [{name: a, address: 192.0.2.1, asn: 0x10, multihop: 0b11, port: +179}, {name: b, address: 192.0.2.2, asn: 1.5}, {name: c, address: 192.0.2.3, asn: 0o17}]}\n",
        "c.yaml:1:12: bgp.asn: expected an AS number from 1 to 4294967294, found '1e3': write it as one number (asplain, RFC 5396)\nc.yaml:1:60: bgp.peers[0].asn: expected an AS number from 1 to 4294967294, found '0x10': write it as one number (asplain, RFC 5396)\nc.yaml:1:76: bgp.peers[0].multihop: expected a number of hops from 1 to 254, found '0b11'\nc.yaml:1:88: bgp.peers[0].port: expected a TCP port from 1 to 65535, found '+179'\nc.yaml:1:130: bgp.peers[1].asn: expected an AS number from 1 to 4294967294, found '1.5': write it as one number (asplain, RFC 5396)\nc.yaml:1:171: bgp.peers[2].asn: expected an AS number from 1 to 4294967294, found '0o17': write it as one number (asplain, RFC 5396)",
    ),
    (
        "bgp: {asn: &n 0x10, peers: [{name: a, address: 192.0.2.1, asn: *n}]}\n",
        "c.yaml:1:15: bgp.asn: expected an AS number from 1 to 4294967294, found '0x10': write it as one number (asplain, RFC 5396)\nc.yaml:1:64: bgp.peers[0].asn: expected an AS number from 1 to 4294967294, found '0x10': write it as one number (asplain, RFC 5396)",
    ),
    (
        "@vips: {x: &a [1, 1, 1, 1, 1, 1, 1, 1, 1], y: &b [*a, *a, *a, *a, *a, *a, *a, *a, *a], z: &c [*b, *b, *b, *b, *b, *b, *b, *b, *b], u: &d [*c, *c, *c, *c, *c, *c, *c, *c, *c], v: &e [*d, *d, *d, *d, *d, *d, *d, *d, *d], w: [*e, *e, *e, *e, *e, *e, *e, *e, *e]}\n",
        "c.yaml:2:231: expected a file whose aliases stand for little: written out, this one is too large",
    ),
    (
        "bgp:\n  asn: 1\n  peers:\n  - {name: a, address: 192.0.2.1, asn: 2, source: 192.0.2.1, export: {linkBandwidth: 7bit, nextHop: {\n    ipv4: 192.0.2.1}}}\n  - {name: b, address: '2001:db8::1', asn: 2, export: {nextHop: {ipv4: 192.0.2.1, ipv6: '2001:db8::1'}}}\n  - {name: c, interface: eth0, asn: 2, multihop: 2}\n",
        "c.yaml:4:51: bgp.peers[0].source: 192.0.2.1 is the peer's own address; expected one of this node\nc.yaml:4:86: bgp.peers[0].export.linkBandwidth: expected a bandwidth such as 10Gbit (8bit at least; bit, kbit, Mbit, Gbit or Tbit per second), found '7bit': routers are told whole octets per second, and this is less than one\nc.yaml:5:11: bgp.peers[0].export.nextHop.ipv4: 192.0.2.1 is the peer's own address, which it is not told as a next hop (RFC 4271 §5.1.3)\nc.yaml:6:89: bgp.peers[1].export.nextHop.ipv6: 2001:db8::1 is the peer's own address, which it is not told as a next hop (RFC 4271 §5.1.3)\nc.yaml:7:50: bgp.peers[2].multihop: an unnumbered session is between the link-local addresses of its link; leave multihop out",
    ),
    (
        "bgp: {asn: 1, aggregates: [{prefix: 224.0.0.0/4}, {prefix: 127.0.0.0/8}, {prefix: 'fe80::/10'}, {prefix: 'ff02::/16'}, {prefix: 0.0.0.0/0}, {prefix: 0.0.0.0/8}, {prefix: '::ffff:0:0/96'}, {prefix: 169.254.0.0/16}, {prefix: '::/0'}, {prefix: 240.0.0.0/4}]}\n",
        "c.yaml:1:37: bgp.aggregates[0].prefix: expected a prefix such as 10.0.0.0/24 or 2001:db8::/64, found '224.0.0.0/4': no VIP can be in it: 224.0.0.0 is a multicast address\nc.yaml:1:60: bgp.aggregates[1].prefix: expected a prefix such as 10.0.0.0/24 or 2001:db8::/64, found '127.0.0.0/8': no VIP can be in it: 127.0.0.0 is a loopback address\nc.yaml:1:83: bgp.aggregates[2].prefix: expected a prefix such as 10.0.0.0/24 or 2001:db8::/64, found 'fe80::/10': no VIP can be in it: fe80:: is a link-local address\nc.yaml:1:106: bgp.aggregates[3].prefix: expected a prefix such as 10.0.0.0/24 or 2001:db8::/64, found 'ff02::/16': no VIP can be in it: ff02:: is a multicast address\nc.yaml:1:150: bgp.aggregates[5].prefix: expected a prefix such as 10.0.0.0/24 or 2001:db8::/64, found '0.0.0.0/8': no VIP can be in it: 0.0.0.0 is in 0.0.0.0/8, which names no host\nc.yaml:1:171: bgp.aggregates[6].prefix: expected a prefix such as 10.0.0.0/24 or 2001:db8::/64, found '::ffff:0:0/96': no VIP can be in it: ::ffff:0.0.0.0 is an IPv4 address in IPv6 form\nc.yaml:1:198: bgp.aggregates[7].prefix: expected a prefix such as 10.0.0.0/24 or 2001:db8::/64, found '169.254.0.0/16': no VIP can be in it: 169.254.0.0 is a link-local address",
    ),
    ("@instance: $NODE_NAME\n", "c.yaml:2:11: instance: expected ${NAME}, or $$ for the character itself, after the $ in '$NODE_NAME'"),
    ("@instance: ${node-name}\n", "c.yaml:2:11: instance: expected the name of a variable in ${ }, found 'node-name'"),
    (
        "@\"a\\e[31m\": 1\ninstance: \"\\0\"\n",
        "c.yaml:2:1: a\\u{1b}[31m: unknown key; expected one of instance, domain, namespaces, namespaceSelector, mode, node, vips, dataplane, bgp, vrrp, drain, startup, stateDir, http, log\nc.yaml:3:11: instance: expected 1 to 63 of a-z, 0-9 and '-', beginning with a letter and ending with a letter or digit, found '\\u{0}'",
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
