// SPDX-License-Identifier: Apache-2.0
//! From objects to virtual services: which ports of a VIP there are, how each is balanced, and which port of which endpoint stands behind it.
//!
//! Input: manifests and the section `dataplane`. Output: the intent about virtual services, and what is rejected. Nothing of it reaches a kernel.
#![expect(clippy::unwrap_used, reason = "a test ends there")]

use std::fs;
use std::time::Duration;

use vipherald::config::{Environment, load};
use vipherald::desired::{DesiredVirtualService, ServiceKey, compile};
use vipherald::source::dir::follow;

const VIP: &str = "10.232.35.199";

/// A line for each virtual service, and one for each rejection. Real servers follow the scheduler and the forwarding method; those that get nothing new are in
/// brackets.
fn compiled(dataplane: &str, manifests: &[String]) -> (Vec<String>, Vec<String>) {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    fs::write(path("config.yaml"), format!("node: {{name: node-1}}\nbgp: {{asn: 1}}\ndataplane: {{{dataplane}}}\n")).unwrap();
    fs::create_dir(path("manifests")).unwrap();
    fs::write(path("manifests").join("all.yaml"), manifests.concat()).unwrap();
    let config = load(&path("config.yaml"), &Environment::new()).unwrap();
    let (snapshots, _follower) = follow(path("manifests"), None).unwrap();
    let snapshot = snapshots.borrow().clone().unwrap();
    let compiled = compile(&snapshot, &config);
    let services = compiled.desired.balancing.unwrap().services;
    let rejection = |rejection: &vipherald::desired::Rejection| format!("{} {}", rejection.subject, rejection.message);
    (services.iter().map(line).collect(), compiled.rejections.iter().map(rejection).collect())
}

fn line((key, service): (&ServiceKey, &DesiredVirtualService)) -> String {
    let server = |(address, weight): (&std::net::SocketAddr, &ipvs::Weight)| match weight.is_quiesced() {
        true => format!(" ({address})"),
        false => format!(" {address}"),
    };
    let scheduling = service.scheduling;
    let remembers = scheduling.persistence.map(|time: Duration| format!(" for {}s", time.as_secs())).unwrap_or_default();
    let by_port = if scheduling.by_port { " by port" } else { "" };
    let servers: String = service.real_servers.iter().map(server).collect();
    format!("{key} {}{by_port}{remembers} {}{servers}", scheduling.scheduler, service.forwarding)
}

#[track_caller]
fn assert_compiles(dataplane: &str, manifests: &[String], services: &[&str], rejections: &[&str]) {
    let (found, rejected) = compiled(dataplane, manifests);
    assert_eq!(found, services);
    assert_eq!(rejected, rejections);
}

fn service(name: &str, spec: &str) -> String {
    format!("---\napiVersion: v1\nkind: Service\nmetadata: {{name: {name}}}\nspec: {{{spec}}}\n")
}

/// A slice, one of several, of the Service `web`.
fn slice(number: u8, ports: &str, endpoints: &str) -> String {
    format!(
        "---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {{name: web-{number}, labels: {{kubernetes.io/service-name: \
         web}}}}\naddressType: IPv4\nports: [{ports}]\nendpoints: [{endpoints}]\n"
    )
}

/// An EricIngress of the Service `web` with mappings from ports of the VIP to ports of the Service, and the rest of each.
fn eric(mappings: &[(&str, &str, &str)]) -> String {
    let range = |text: &str| {
        let (start, end) = text.split_once('-').unwrap_or((text, text));
        format!("{{start: {start}, end: {end}}}")
    };
    let mapping = |(vip, service, more): &(&str, &str, &str)| {
        format!("      - {{portRange: {{vipPortRange: {}, svcPortRange: {}}}{more}}}\n", range(vip), range(service))
    };
    format!(
        "---\napiVersion: routing.ericingress.ericsson.com/v1alpha1\nkind: EricIngress\nmetadata: {{name: web}}\nspec:\n  virtualServiceIP: \
         {VIP}\n  backends:\n    name: web\n    config:\n{}",
        mappings.iter().map(mapping).collect::<String>()
    )
}

const ONE: &str = "{addresses: [192.168.1.1]}";

#[test]
fn a_port_is_one_of_the_service_by_protocol_and_each_slice_has_its_own_number_for_it() {
    let ports = "clusterIP: None, ports: [{name: ldap, port: 1389, targetPort: x}, {name: ldap-udp, port: 1389, protocol: UDP}]";
    let manifests = [
        service("web", ports),
        slice(1, "{name: ldap, port: 3890}, {name: ldap-udp, port: 3891, protocol: UDP}", ONE),
        slice(2, "{name: ldap, port: 4890}", "{addresses: [192.168.1.2]}, {addresses: [192.168.1.3], conditions: {ready: false}}"),
        eric(&[("389", "1389", ", algo: lc"), ("389", "1389", ", protocol: UDP, algo: sh")]),
    ];
    assert_compiles(
        "type: ipvs",
        &manifests,
        &[
            "TCP 10.232.35.199:389 lc nat 192.168.1.1:3890 192.168.1.2:4890 (192.168.1.3:4890)",
            "UDP 10.232.35.199:389 sh nat 192.168.1.1:3891",
        ],
        &[],
    );
}

#[test]
fn a_number_that_the_service_does_not_have_is_that_of_the_endpoints() {
    let manifests = [
        service("web", "ports: [{name: a, port: 80}, {name: b, port: 81, protocol: UDP}]"),
        slice(1, "{name: a, port: 8080}, {name: b, port: 8081, protocol: UDP}", ONE),
        eric(&[("1080-1082", "80-82", "")]),
    ];
    assert_compiles(
        "type: ipvs",
        &manifests,
        &[
            "TCP 10.232.35.199:1080 rr nat 192.168.1.1:8080",
            "TCP 10.232.35.199:1081 rr nat 192.168.1.1:81",
            "TCP 10.232.35.199:1082 rr nat 192.168.1.1:82",
        ],
        &[],
    );
}

#[test]
fn a_range_of_64_ports_is_so_many_services_and_a_longer_one_is_a_single_one_that_cannot_change_the_port() {
    let web = |mapping| [service("web", "ports: [{name: a, port: 9}]"), slice(1, "{name: a, port: 9}", ONE), eric(&[mapping])];
    let (services, rejections) = compiled("type: ipvs", &web(("20000-20063", "30000-30063", "")));
    assert_eq!((services.len(), rejections), (64, vec![]));
    assert_eq!(services[63], "TCP 10.232.35.199:20063 rr nat 192.168.1.1:30063");
    let whole = ["TCP 10.232.35.199:20000-20064 rr nat 192.168.1.1:0"];
    assert_compiles("type: ipvs", &web(("20000-20064", "20000-20064", "")), &whole, &[]);
    let moved = "EricIngress default/web 10.232.35.199 65 ports, 20000-20064 to 30000-30064: a range of more than 64 ports cannot change the port; make both ranges \
                 equal, or divide it";
    assert_compiles("type: ipvs", &web(("20000-20064", "30000-30064", "")), &[], &[moved]);
}

#[test]
fn a_long_range_is_refused_where_endpoints_have_another_number_for_one_of_its_ports() {
    let manifests = [
        service("web", "ports: [{name: a, port: 20007}, {name: b, port: 20008}]"),
        slice(1, "{name: a, port: 20007}, {name: b, port: 8080}", ONE),
        eric(&[("20000-20999", "20000-20999", "")]),
    ];
    let moved = "EricIngress default/web 10.232.35.199 TCP 10.232.35.199:20000-20999: in a range of this length a packet keeps its port, but the endpoints \
                 have 8080 for 20008; take 20008 out of the range";
    assert_compiles("type: ipvs", &manifests, &["TCP 10.232.35.199:20000-20999 rr nat"], &[moved]);
}

#[test]
fn only_nat_changes_the_port() {
    for (mode, name) in [("dr", "dr"), ("tun", "tun"), ("gue", "gue")] {
        let mappings = [("80", "80", format!(", mode: {mode}")), ("8080", "81", format!(", mode: {mode}"))];
        let mappings = mappings.each_ref().map(|(vip, service, more)| (*vip, *service, more.as_str()));
        let manifests = [service("web", "ports: [{port: 80}]"), slice(1, "{port: 80}", ONE), eric(&mappings)];
        let refused = format!(
            "EricIngress default/web 10.232.35.199 TCP 10.232.35.199:8080: with forwarding {name} a packet keeps its port, but the endpoints have 81; make both \
             equal, or use nat"
        );
        let served = format!("TCP 10.232.35.199:80 rr {name} 192.168.1.1:80");
        assert_compiles("type: ipvs", &manifests, &[&served, &format!("TCP 10.232.35.199:8080 rr {name}")], &[&refused]);
    }
}

#[test]
fn a_service_says_by_annotation_how_it_is_balanced_and_else_the_configuration_does() {
    let web = |annotations: &str| {
        let spec = format!("externalIPs: [{VIP}], ports: [{{port: 80}}, {{name: s6a, port: 3868, protocol: SCTP}}]");
        let annotated = service("web", &spec).replace("{name: web}", &format!("{{name: web, annotations: {{{annotations}}}}}"));
        [annotated, slice(1, "{port: 80}, {name: s6a, port: 3869, protocol: SCTP}", ONE)]
    };
    let both = |words: &str| ["TCP 10.232.35.199:80", "SCTP 10.232.35.199:3868"].map(|service| format!("{service} {words}"));
    let [tcp, sctp] = both("mh by port nat 192.168.1.1:");
    assert_compiles("type: ipvs", &web(""), &[&format!("{tcp}80"), &format!("{sctp}3869")], &[]);
    let [tcp, sctp] = both("lc nat 192.168.1.1:");
    assert_compiles("type: ipvs, scheduler: lc", &web(""), &[&format!("{tcp}80"), &format!("{sctp}3869")], &[]);
    let [tcp, sctp] = both("sh nat 192.168.1.1:");
    assert_compiles("type: ipvs", &web("vipherald.io/scheduler: sh"), &[&format!("{tcp}80"), &format!("{sctp}3869")], &[]);
    let unknown = "Service default/web metadata.annotations[vipherald.io/scheduler]: \"shh\" is unknown; expected one of rr, wrr, lc, wlc, lblc, lblcr, dh, sh, \
                   sed, nq, fo, ovf, mh, twos; did you mean sh?; what the configuration says is used";
    let [tcp, sctp] = both("mh by port nat 192.168.1.1:");
    assert_compiles("type: ipvs", &web("vipherald.io/scheduler: shh"), &[&format!("{tcp}80"), &format!("{sctp}3869")], &[unknown]);
}

#[test]
fn session_affinity_is_persistence_or_a_hash_of_the_address_alone() {
    let web = |more: &str| [service("web", &format!("externalIPs: [{VIP}], ports: [{{port: 80}}], {more}")), slice(1, "{port: 80}", ONE)];
    let affinity = "sessionAffinity: ClientIP";
    let with_timeout = "sessionAffinity: ClientIP, sessionAffinityConfig: {clientIP: {timeoutSeconds: 60}}";
    for (dataplane, more, words) in [
        ("type: ipvs", "sessionAffinity: None", "mh by port"),
        ("type: ipvs", affinity, "mh"),
        ("type: ipvs, scheduler: sh", with_timeout, "sh"),
        ("type: ipvs, scheduler: lc", affinity, "lc for 10800s"),
        ("type: ipvs, scheduler: lc", with_timeout, "lc for 60s"),
        ("type: nftables", affinity, "mh"),
        ("type: nftables, scheduler: rr", affinity, "sh"),
    ] {
        assert_compiles(dataplane, &web(more), &[&format!("TCP 10.232.35.199:80 {words} nat 192.168.1.1:80")], &[]);
    }
}

#[test]
fn quiesced_endpoints_of_udp_are_none_and_the_last_ones_that_still_serve_take_all() {
    let web = |endpoints: &str| {
        let ports = "{name: tcp, port: 162}, {name: udp, port: 162, protocol: UDP}";
        [service("web", &format!("externalIPs: [{VIP}], ports: [{ports}]")), slice(1, ports, endpoints)]
    };
    let leaving = "{addresses: [192.168.1.2], conditions: {ready: false, serving: true, terminating: true}}";
    let tcp = "TCP 10.232.35.199:162 rr nat 192.168.1.1:162 (192.168.1.2:162)";
    let udp = "UDP 10.232.35.199:162 rr nat 192.168.1.1:162";
    assert_compiles("type: ipvs, scheduler: rr", &web(&format!("{ONE}, {leaving}")), &[tcp, udp], &[]);
    let [tcp, udp] = ["TCP", "UDP"].map(|protocol| format!("{protocol} 10.232.35.199:162 rr nat 192.168.1.2:162"));
    assert_compiles("type: ipvs, scheduler: rr", &web(leaving), &[&tcp, &udp], &[]);
}
