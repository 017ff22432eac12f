// SPDX-License-Identifier: Apache-2.0
//! Which VIPs are served, by the objects that ask for them and the endpoints behind these.

use super::*;

#[test]
fn a_service_with_an_endpoint_is_served_and_one_without_external_ips_is_no_concern() {
    let compiled = compile(
        &snapshot_of(
            &[
                service("a", "10.0.0.7, 10.0.0.8", ""),
                slice("a", "IPv4", READY),
                service("b", "", ""),
                service("c", "", "type: ExternalName"),
            ]
            .concat(),
        ),
        &config(),
    );
    assert_eq!(outcome(&compiled), (vec!["10.0.0.7 Serve".into(), "10.0.0.8 Serve".into()], vec![]));
    assert!(compiled.desired.complete);
    assert_eq!((compiled.desired.bgp, compiled.desired.drain, compiled.desired.lifecycle), (config().bgp, config().drain, Lifecycle::Run));
    let owners = &compiled.desired.vips.values().next().unwrap().owners;
    assert_eq!(owners.iter().map(ToString::to_string).collect::<Vec<_>>(), ["Service default/a"]);
}

#[test]
fn a_snapshot_that_is_not_complete_gives_an_intent_that_is_not() {
    let mut snapshot = snapshot_of(&service("a", "10.0.0.7", ""));
    snapshot.complete = false;
    assert!(!compile(&snapshot, &config()).desired.complete);
}

#[test]
fn a_vip_needs_an_endpoint_of_its_family() {
    let both = service("a", "10.0.0.7, '2001:db8:7::7'", "");
    let v6 = slice("a", "IPv6", "{addresses: ['2001:db8:233::1']}");
    assert_compiles(&config(), &[both.clone(), v6.clone()], &["10.0.0.7 NoEndpoints", "2001:db8:7::7 Serve"], &[]);
    assert_compiles(&config(), &[both.clone(), slice("a", "IPv4", READY)], &["10.0.0.7 Serve", "2001:db8:7::7 NoEndpoints"], &[]);
    assert_compiles(&config(), &[both, v6, slice("a", "IPv4", READY)], &["10.0.0.7 Serve", "2001:db8:7::7 Serve"], &[]);
}

#[test]
fn one_port_with_an_endpoint_is_enough_and_ports_go_by_name_and_protocol() {
    let ports = "---\napiVersion: v1\nkind: Service\nmetadata: {name: a}\nspec:\n  externalIPs: [10.0.0.7]\n  \
                 ports: [{name: web, port: 1}, {name: dns, port: 2, protocol: UDP}]\n"
        .to_owned();
    let with_port = |port: &str| slice("a", "IPv4", READY).replace("{port: 8080}", port);
    for (port, intent) in [
        ("{name: web, port: 8080}", "Serve"),
        ("{name: dns, port: 8080, protocol: UDP}", "Serve"),
        ("{name: dns, port: 8080}", "NoEndpoints"),
        ("{name: other, port: 8080}", "NoEndpoints"),
        ("{port: 8080}", "NoEndpoints"),
        ("{name: web}", "NoEndpoints"),
    ] {
        assert_compiles(&config(), &[ports.clone(), with_port(port)], &[&format!("10.0.0.7 {intent}")], &[]);
    }
}

#[test]
fn slices_belong_to_the_service_of_their_label_and_namespace() {
    let manifests = [service("a", "10.0.0.7", ""), slice("a", "IPv4", READY)];
    for (from, to) in
        [("service-name: a", "service-name: b"), ("service-name: a", "other: a"), ("{name: a-ipv4,", "{name: a-ipv4, namespace: b,")]
    {
        let [service, slice] = manifests.clone();
        assert_compiles(&config(), &[service, slice.replace(from, to)], &["10.0.0.7 NoEndpoints"], &[]);
    }
}

#[test]
fn the_traffic_policy_local_wants_an_endpoint_on_this_node() {
    let local = service("a", "10.0.0.7", "externalTrafficPolicy: Local");
    let at = |node: &str| slice("a", "IPv4", &format!("{{addresses: [10.233.1.1], nodeName: {node}}}"));
    assert_compiles(&config(), &[local.clone(), at("node1")], &["10.0.0.7 Serve"], &[]);
    assert_compiles(&config(), &[local.clone(), at("node2")], &["10.0.0.7 NoLocalEndpoints"], &[]);
    assert_compiles(&config(), &[local, slice("a", "IPv4", "")], &["10.0.0.7 NoEndpoints"], &[]);
}

#[test]
fn an_endpoint_on_its_way_out_serves_while_there_is_no_better_one() {
    let endpoints = "{addresses: [10.233.1.1], conditions: {ready: false, serving: true, terminating: true}}";
    assert_compiles(&config(), &[service("a", "10.0.0.7", ""), slice("a", "IPv4", endpoints)], &["10.0.0.7 Serve"], &[]);
    let endpoints = "{addresses: [10.233.1.1], conditions: {ready: false}}";
    assert_compiles(&config(), &[service("a", "10.0.0.7", ""), slice("a", "IPv4", endpoints)], &["10.0.0.7 NoEndpoints"], &[]);
}

#[test]
fn without_endpoints_announce_waives_them_but_no_dataplane() {
    let config = Config { vips: Vips { without_endpoints: WithoutEndpoints::Announce, ..config().vips }, ..config() };
    let manifests = [service("a", "10.0.0.7", ""), eric("e", "10.0.0.8", "a", 80), service("b", "10.0.0.9", ""), slice("b", "IPv4", READY)];
    assert_compiles(&config, &manifests, &["10.0.0.7 Serve without endpoints", "10.0.0.8 NeedsDataplane", "10.0.0.9 Serve"], &[]);
}

#[test]
fn ingress_objects_and_headless_services_need_a_dataplane() {
    let lvs = "---\napiVersion: routing.lvsingress.ericsson.com/v1alpha1\nkind: LvsIngress\nmetadata: {name: l}\nspec:\n  \
               virtualServiceIP: 10.0.0.9\n  backendService: {serviceName: a, portMappings: [{lbPort: 1, svcPort: 80}]}\n";
    let manifests =
        [eric("e", "10.0.0.8", "a", 80), service("a", "10.0.0.7", "clusterIP: None"), slice("a", "IPv4", READY), lvs.to_owned()];
    assert_compiles(&config(), &manifests, &["10.0.0.7 NeedsDataplane", "10.0.0.8 NeedsDataplane", "10.0.0.9 NeedsDataplane"], &[]);
    // For the ports of a Service the address is served.
    let shared = [eric("e", "10.0.0.8", "a", 81), service("a", "10.0.0.8", ""), slice("a", "IPv4", READY)];
    let compiled = compile(&snapshot_of(&shared.concat()), &config());
    assert_eq!(outcome(&compiled), (vec!["10.0.0.8 Serve".into()], vec![]));
    assert_eq!(compiled.desired.vips.values().next().unwrap().owners.len(), 2);
}

#[test]
fn an_ingress_object_whose_service_is_missing_is_listed_and_told() {
    assert_compiles(
        &config(),
        &[eric("e", "10.0.0.8", "a", 80)],
        &["10.0.0.8 NeedsDataplane"],
        &["EricIngress default/e ServiceNotFound spec.backends.name: there is no Service default/a"],
    );
    assert_compiles(
        &config(),
        &[eric("e", "10.0.0.8", "a", 80), service("a", "", "type: ExternalName")],
        &["10.0.0.8 NeedsDataplane"],
        &["EricIngress default/e Invalid spec.backends.name: Service default/a is an ExternalName Service, which has no endpoints; \
           use a Service without selector and an EndpointSlice with the addresses"],
    );
}

#[test]
fn what_a_service_cannot_have_is_told_and_the_rest_of_it_lives() {
    assert_compiles(
        &config(),
        &[service("a", "10.0.0.7/32, 10.0.0.300, 10.0.0.7", ""), slice("a", "IPv4", READY)],
        &["10.0.0.7 Serve"],
        &[
            "Service default/a Invalid spec.externalIPs[0]: \"10.0.0.7/32\" has a prefix length; write 10.0.0.7 only",
            "Service default/a Invalid spec.externalIPs[1]: \"10.0.0.300\" is no IPv4 or IPv6 address",
        ],
    );
    assert_compiles(
        &config(),
        &[service("a", "10.0.0.7", "type: ExternalName")],
        &[],
        &["Service default/a Invalid spec.type: an ExternalName Service has no endpoints; \
           use a Service without selector and an EndpointSlice with the addresses"],
    );
    assert_compiles(
        &config(),
        &[service("a", "10.0.0.7", "").replace("[{port: 80}]", "[]")],
        &[],
        &["Service default/a Invalid spec.ports: there is no port to serve"],
    );
    assert_compiles(
        &config(),
        &[
            service("a", "10.0.0.7", "").replace("[{port: 80}]", "[{port: 0}, {port: 80, protocol: ICMP}, {port: 80}]"),
            slice("a", "IPv4", READY),
        ],
        &["10.0.0.7 Serve"],
        &[
            "Service default/a Invalid spec.ports[0].port: 0 is no port, which is 1 to 65535",
            "Service default/a Invalid spec.ports[1].protocol: \"icmp\" is unknown; expected one of tcp, udp, sctp",
        ],
    );
}

#[test]
fn a_service_that_is_being_deleted_is_served_until_it_is_gone() {
    let deleted =
        service("a", "10.0.0.7", "").replacen("{name: a}", "{name: a, deletionTimestamp: '2026-01-01T00:00:00Z', finalizers: [x/y]}", 1);
    assert_compiles(&config(), &[deleted, slice("a", "IPv4", READY)], &["10.0.0.7 Serve"], &[]);
}
