// SPDX-License-Identifier: Apache-2.0
//! Who may have which address, and who has it where several want it.

use super::*;

#[test]
fn addresses_that_no_host_has_are_refused() {
    for (vip, why) in [
        ("0.0.0.1", "is in 0.0.0.0/8, which names no host"),
        ("127.0.0.1", "is a loopback address"),
        ("169.254.1.1", "is a link-local address"),
        ("224.0.0.18", "is a multicast address"),
        ("255.255.255.255", "is the broadcast address"),
        ("::", "is the unspecified address"),
        ("::1", "is the loopback address"),
        ("fe80::1", "is a link-local address"),
        ("ff02::1", "is a multicast address"),
        ("::ffff:10.0.0.7", "is an IPv4 address in IPv6 form"),
    ] {
        let rejection = format!("Service default/a {vip} ReservedAddress spec.externalIPs[0]: {vip} {why}");
        assert_compiles(&config(), &[service("a", &format!("'{vip}'"), "")], &[], &[&rejection]);
    }
}

#[test]
fn addresses_of_others_are_refused() {
    let others = "---
apiVersion: v1
kind: Node
metadata: {name: node1}
spec: {podCIDR: 10.233.1.0/24, podCIDRs: [10.233.1.0/24, '2001:db8:233:1::/64', 10.233.2.0]}
status: {addresses: [{type: InternalIP, address: 10.211.1.2}, {type: ExternalIP, address: 192.0.2.2}, {type: Hostname, address: node1}]}
---
apiVersion: v1
kind: Service
metadata: {name: inner}
spec: {clusterIP: 10.96.0.10, clusterIPs: [10.96.0.10, '2001:db8:96::10'], ports: [{port: 53}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: inner-1, creationTimestamp: '2026-01-01T00:00:00Z', labels: {kubernetes.io/service-name: inner}}
addressType: IPv4
ports: [{port: 53}]
endpoints: [{addresses: [10.5.5.5]}]
";
    let bad_cidr = "Node node1 Invalid spec.podCIDRs: \"10.233.2.0\" is no prefix; VIPs in it are not refused";
    let mut config = config();
    let group = DesiredGroup::new("eth1".to_owned(), vrrp::Vrid::new(7).unwrap(), vec!["10.0.0.99".parse().unwrap()]);
    config.vrrp.groups.insert("reflector".to_owned(), DesiredGroup { source_ipv4: Some("10.0.0.97".parse().unwrap()), ..group.clone() });
    // One peer is in the file, and those of the other group are known from their nodes.
    let unicast = DesiredTransport::Unicast { peers: ["10.0.0.98".parse().unwrap()].into(), single: false };
    config.vrrp.groups.insert("services".to_owned(), DesiredGroup { transport: unicast, addresses: Vec::new(), ..group.clone() });
    let vrid = vrrp::Vrid::new(8).unwrap();
    config
        .vrrp
        .groups
        .insert("others".to_owned(), DesiredGroup { transport: DesiredTransport::AUTO, addresses: Vec::new(), vrid, ..group });
    let known = KnownPeers::from([(8, ["2001:db8::98".parse().unwrap()].into())]);
    let config = config.with_peers(&known);
    for (vip, why) in [
        ("10.211.1.2", "is an address of Node node1"),
        ("192.0.2.2", "is an address of Node node1"),
        ("10.233.1.77", "is in the pod network 10.233.1.0/24 of Node node1"),
        ("2001:db8:233:1::77", "is in the pod network 2001:db8:233:1::/64 of Node node1"),
        ("10.96.0.10", "is the cluster IP of Service default/inner"),
        ("2001:db8:96::10", "is the cluster IP of Service default/inner"),
        ("10.211.1.1", "is the address of the BGP peer rr1"),
        ("10.0.0.99", "is an address of the virtual router reflector (vrrp.groups)"),
        ("10.0.0.97", "is the source of advertisements of the virtual router reflector (vrrp.groups)"),
        ("10.0.0.98", "is the address of a peer of the virtual router services (vrrp.groups)"),
        ("2001:db8::98", "is the address of a peer of the virtual router others (vrrp.groups)"),
        ("10.5.5.5", "is an endpoint in EndpointSlice default/inner-1"),
    ] {
        let rejection = format!("Service default/a {vip} ReservedAddress spec.externalIPs[1]: {vip} {why}");
        let manifests = [others.to_owned(), service("a", &format!("10.0.0.7, '{vip}'"), ""), slice("a", "IPv4", "{addresses: [10.9.9.9]}")];
        assert_compiles(&config, &manifests, &["10.0.0.7 Serve"], &[&rejection, bad_cidr]);
    }
}

#[test]
fn neither_a_slice_nor_a_claim_takes_an_address_from_the_older_one() {
    let dated = |text: String, created: &str| text.replacen("metadata: {", &format!("metadata: {{creationTimestamp: '{created}', "), 1);
    let (old, new) = ("2026-01-01T00:00:00Z", "2026-02-01T00:00:00Z");
    let claim = || service("a", "10.0.0.7", "");
    let behind = || slice("a", "IPv4", READY);
    let refused = "Service default/a 10.0.0.7 ReservedAddress spec.externalIPs[0]: 10.0.0.7 is an endpoint in EndpointSlice default/b-ipv4";
    for targetted in ["", ", targetRef: {kind: Pod, name: p, namespace: default}", ", conditions: {ready: false}"] {
        let other = || slice("b", "IPv4", &format!("{{addresses: [10.0.0.7]{targetted}}}"));
        for manifests in [[claim(), behind(), dated(other(), old)], [dated(claim(), new), behind(), dated(other(), old)]] {
            assert_compiles(&config(), &manifests, &[], &[refused]);
        }
        for manifests in [
            [claim(), behind(), other()],
            [dated(claim(), old), behind(), other()],
            [dated(claim(), old), behind(), dated(other(), new)],
            [dated(claim(), old), behind(), dated(other(), old)],
        ] {
            assert_compiles(&config(), &manifests, &["10.0.0.7 Serve"], &[]);
        }
    }
}

#[test]
fn an_endpoint_that_is_a_vip_of_another_object_is_left_out_and_all_else_serves() {
    let beside = "{addresses: [10.0.0.7], targetRef: {kind: Pod, name: p, namespace: other}}, {addresses: [10.233.1.1]}";
    let of_others = (service("b", "10.0.0.8", "") + &slice("b", "IPv4", beside)).replace("metadata: {", "metadata: {namespace: other, ");
    let rejection = "EndpointSlice other/b-ipv4 Invalid endpoints[0].addresses: 10.0.0.7 is a VIP, so that traffic would come back to the router; \
         the endpoint is not used";
    let manifests = [service("a", "10.0.0.7", "") + &slice("a", "IPv4", READY), of_others];
    assert_compiles(&config(), &manifests, &["10.0.0.7 Serve", "10.0.0.8 Serve"], &[rejection]);
}

#[test]
fn endpoints_that_no_traffic_may_be_sent_to_are_refused() {
    for (endpoint, why) in [
        ("127.0.0.1", "127.0.0.1 is a loopback address"),
        ("169.254.169.254", "169.254.169.254 is a link-local address"),
        ("224.0.0.1", "224.0.0.1 is a multicast address"),
        ("0.0.0.0", "0.0.0.0 is in 0.0.0.0/8, which names no host"),
        ("'2001:db8::1'", "2001:db8::1 is not of the family of the slice"),
        ("www.example.org", "\"www.example.org\" is no IPv4 or IPv6 address"),
        ("", "there is none"),
        ("10.0.0.7", "10.0.0.7 is a VIP, so that traffic would come back to the router"),
    ] {
        let rejection = format!("EndpointSlice default/a-ipv4 Invalid endpoints[0].addresses: {why}; the endpoint is not used");
        let endpoints = format!("{{addresses: [{endpoint}]}}, {{addresses: [10.233.1.1], conditions: {{ready: false}}}}");
        let manifests = [service("a", "10.0.0.7", ""), slice("a", "IPv4", &endpoints)];
        assert_compiles(&config(), &manifests, &["10.0.0.7 NoEndpoints"], &[&rejection]);
    }
    assert_compiles(
        &config(),
        &[service("a", "10.0.0.7", ""), slice("a", "FQDN", "{addresses: [www.example.org]}")],
        &["10.0.0.7 NoEndpoints"],
        &[
            "EndpointSlice default/a-fqdn Invalid addressType: FQDN endpoints are not followed; give their addresses in slices of IPv4 and IPv6",
        ],
    );
    assert_compiles(
        &config(),
        &[service("a", "10.0.0.7", ""), slice("a", "ipv4", READY)],
        &["10.0.0.7 NoEndpoints"],
        &["EndpointSlice default/a-ipv4 Invalid addressType: \"ipv4\" is unknown; expected IPv4 or IPv6"],
    );
}

#[test]
fn the_configuration_says_who_may_have_which_vip() {
    let entry = |prefix: &str, length, namespaces: &[&str]| Allowed {
        prefix: Prefix::new(prefix.parse().unwrap(), length).unwrap(),
        namespaces: namespaces.iter().map(ToString::to_string).collect(),
    };
    let allow =
        vec![entry("10.0.0.0", 24, &[]), entry("10.0.1.0", 24, &["enm", "default"]), entry("2001:db8:7::", 64, &["scripting", "enm"])];
    let with = |allow| Config { vips: Vips { allow: Some(allow), ..config().vips }, ..config() };
    assert_compiles(
        &with(allow),
        &[service("a", "10.0.0.7, 10.0.1.7, 10.0.2.7, '2001:db8:7::7'", ""), slice("a", "IPv4", READY)],
        &["10.0.0.7 Serve", "10.0.1.7 Serve"],
        &[
            "Service default/a 10.0.2.7 NotAllowed spec.externalIPs[2]: 10.0.2.7 is outside of vips.allow, which has 10.0.0.0/24, 10.0.1.0/24, \
             2001:db8:7::/64",
            "Service default/a 2001:db8:7::7 NotAllowed spec.externalIPs[3]: vips.allow gives 2001:db8:7::7 to the namespaces enm, scripting, \
             not to default",
        ],
    );
    assert_compiles(
        &with(vec![]),
        &[service("a", "10.0.0.7", "")],
        &[],
        &["Service default/a 10.0.0.7 NotAllowed spec.externalIPs[0]: 10.0.0.7 is outside of vips.allow, which has none"],
    );
}

#[test]
fn the_older_of_two_objects_has_the_port() {
    let dated = |text: String, created: &str| text.replacen("metadata: {", &format!("metadata: {{creationTimestamp: '{created}', "), 1);
    let (old, new) = ("2026-01-01T00:00:00Z", "2026-02-01T00:00:00Z");
    let b_loses = |why| {
        format!("Service default/b 10.0.0.7 Conflict spec.externalIPs[0]: 80/tcp of 10.0.0.7 belongs to Service default/a, which {why}")
    };
    let (a, b) = (|| service("a", "10.0.0.7", ""), || service("b", "10.0.0.7", ""));
    let ends = [slice("a", "IPv4", READY), slice("b", "IPv4", "{addresses: [10.233.1.2]}")].concat();
    assert_compiles(&config(), &[b(), a(), ends.clone()], &["10.0.0.7 Serve"], &[&b_loses("comes first by namespace and name")]);
    assert_compiles(&config(), &[dated(b(), new), dated(a(), old), ends.clone()], &["10.0.0.7 Serve"], &[&b_loses("is older")]);
    assert_compiles(&config(), &[b(), dated(a(), new), ends.clone()], &["10.0.0.7 Serve"], &[&b_loses("is older")]);
    assert_compiles(
        &config(),
        &[dated(b(), old), dated(a(), new), ends.clone()],
        &["10.0.0.7 Serve"],
        &["Service default/a 10.0.0.7 Conflict spec.externalIPs[0]: 80/tcp of 10.0.0.7 belongs to Service default/b, which is older"],
    );
    // Other ports of the same address are shared, and so is the same port of the other protocol.
    assert_compiles(&config(), &[a(), b().replace("{port: 80}", "{port: 81}"), ends.clone()], &["10.0.0.7 Serve"], &[]);
    assert_compiles(&config(), &[a(), b().replace("{port: 80}", "{port: 80, protocol: UDP}"), ends.clone()], &["10.0.0.7 Serve"], &[]);
    // The same rule between kinds.
    assert_compiles(
        &config(),
        &[dated(eric("e", "10.0.0.7", "a", 80), old), dated(a(), new), ends],
        &["10.0.0.7 NeedsDataplane"],
        &["Service default/a 10.0.0.7 Conflict spec.externalIPs[0]: 80/tcp of 10.0.0.7 belongs to EricIngress default/e, which is older"],
    );
}

#[test]
fn who_lost_takes_nothing_from_a_third() {
    let ports = |ports: &str, name| service(name, "10.0.0.7", "").replace("{port: 80}", ports);
    let manifests = [ports("{port: 1}", "a"), ports("{port: 1}, {name: x, port: 2}", "b"), ports("{port: 2}", "c")];
    let compiled = compile(&snapshot_of(&manifests.concat()), &config());
    let owners = &compiled.desired.vips.values().next().unwrap().owners;
    assert_eq!(owners.iter().map(|owner| owner.name.as_str()).collect::<Vec<_>>(), ["a", "c"]);
    assert_eq!(compiled.rejections.len(), 1);
}
