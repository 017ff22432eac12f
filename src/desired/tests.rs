// SPDX-License-Identifier: Apache-2.0
mod churn;
mod filters;
mod refusals;
mod termination;

use std::fmt::Write;
use std::time::Instant;

use bgp::Asn;
use proptest::prelude::*;

use super::*;
use crate::api::{ForwardingMethod, Scheduler};
use crate::config::{Allowed, Dataplane, DataplaneType, LocalPolicy, Log, LogFormat, OnTermination, Vips};
use crate::source::dir::snapshot_of;

fn config() -> Config {
    let peer = DesiredPeer::new("10.211.1.1".parse().unwrap(), Asn::new(65001).unwrap());
    Config {
        instance: "vipherald".into(),
        node_name: "node1".into(),
        scope: Scope::default(),
        external_interface: None,
        vips: Vips { interface: "lo".into(), allow: None, without_endpoints: WithoutEndpoints::Withdraw },
        dataplane: Dataplane {
            kind: DataplaneType::KubeProxy,
            scheduler: Scheduler::MaglevHashing,
            forwarding: ForwardingMethod::Masquerade,
            drain_timeout: Duration::from_secs(30),
            unserved_ports: UnservedPorts::Drop,
            not_masqueraded: BTreeSet::new(),
            preserves_client: false,
            local: LocalPolicy::EndpointNodes,
            mss_clamp: MssClamp::Off,
            first_mark: 64,
            set_sysctls: true,
            timeouts: ipvs::Timeouts::default(),
            tunnel: ForwardingMethod::Tunnel,
            gue_port: 6080,
            connection_sync: None,
        },
        bgp: DesiredBgp { peers: [("rr1".into(), peer)].into(), ..DesiredBgp::new(Asn::new(65001).unwrap()) },
        routing: Routing::default(),
        on_termination: OnTermination::Auto,
        workload: None,
        drain: DrainTimes { graceful_shutdown: Duration::ZERO, fabric_delay: Duration::from_secs(1), timeout: Duration::from_secs(25) },
        startup_patience: Duration::from_secs(5),
        state_dir: "/nowhere".into(),
        http_address: "127.0.0.1:0".parse().unwrap(),
        log: Log { level: "info".into(), format: LogFormat::Json },
    }
}

/// A Service with these external IPs and further fields of its spec; it has a port 80 without a name.
fn service(name: &str, external_ips: &str, more: &str) -> String {
    format!(
        "---\napiVersion: v1\nkind: Service\nmetadata: {{name: {name}}}\nspec:\n  externalIPs: [{external_ips}]\n  ports: [{{port: 80}}]\n  {more}\n"
    )
}

/// A slice of the Service of this name with port 80 and these endpoints.
fn slice(service: &str, family: &str, endpoints: &str) -> String {
    format!(
        "---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\n\
         metadata: {{name: {service}-{}, labels: {{kubernetes.io/service-name: {service}}}}}\n\
         addressType: {family}\nports: [{{port: 8080}}]\nendpoints: [{endpoints}]\n",
        family.to_lowercase()
    )
}

fn eric(name: &str, vip: &str, service: &str, port: u16) -> String {
    format!(
        "---\napiVersion: routing.ericingress.ericsson.com/v1alpha1\nkind: EricIngress\nmetadata: {{name: {name}}}\nspec:\n  \
         virtualServiceIP: {vip}\n  backends:\n    name: {service}\n    config: [{{portRange: {{vipPortRange: {{start: {port}, end: {port}}}, \
         svcPortRange: {{start: 1, end: 1}}}}}}]\n"
    )
}

/// `VIP intent` of each VIP, and `subject reason message` of each rejection.
fn outcome(compiled: &Compiled) -> (Vec<String>, Vec<String>) {
    let intent = |intent: &VipIntent| match intent {
        VipIntent::Serve { without_endpoints: false } => "Serve".to_owned(),
        VipIntent::Serve { without_endpoints: true } => "Serve without endpoints".to_owned(),
        VipIntent::Withhold(reason) => format!("{reason:?}"),
    };
    let vips = compiled.desired.vips.iter().map(|(vip, desired)| format!("{vip} {}", intent(&desired.intent))).collect();
    let rejection = |rejection: &Rejection| format!("{} {:?} {}", rejection.subject, rejection.reason, rejection.message);
    (vips, compiled.rejections.iter().map(rejection).collect())
}

#[track_caller]
fn assert_compiles(config: &Config, manifests: &[String], vips: &[&str], rejections: &[&str]) {
    let compiled = compile(&snapshot_of(&manifests.concat()), config);
    let (found_vips, found_rejections) = outcome(&compiled);
    assert_eq!(found_vips, vips);
    assert_eq!(found_rejections, rejections);
}

const READY: &str = "{addresses: [10.233.1.1]}";

/// Puts this into the metadata of a manifest.
fn with_metadata(manifest: &str, more: &str) -> String {
    manifest.replacen("metadata: {", &format!("metadata: {{{more}, "), 1)
}

/// A configuration with these policies.
fn with_policies(names: &[&str]) -> Config {
    let policy = || Policy { prefixes: BTreeSet::new(), route: bgp::rib::Route::originated() };
    let policies = names.iter().map(|name| ((*name).to_owned(), policy())).collect();
    Config { routing: Routing { policies, ..Routing::default() }, ..config() }
}

fn policies(compiled: &Compiled) -> Vec<(String, Option<&str>)> {
    compiled.desired.vips.iter().map(|(vip, desired)| (vip.to_string(), desired.policy.as_deref())).collect()
}

#[test]
fn an_object_names_the_policy_of_its_vips_by_annotation_or_else_by_label() {
    let (annotation, label) = ("annotations: {vipherald.io/bgp-policy: gold}", "labels: {vipherald.io/bgp-policy: silver}");
    let a = with_metadata(&service("a", "10.0.0.7", ""), annotation);
    let b = with_metadata(&eric("b", "10.0.0.8", "a", 80), label);
    let c = with_metadata(&with_metadata(&eric("c", "10.0.0.9", "a", 80), label), annotation);
    let compiled = compile(&snapshot_of(&[a, b, c, eric("d", "10.0.0.10", "a", 80)].concat()), &with_policies(&["gold", "silver"]));
    let expected = [("10.0.0.7", Some("gold")), ("10.0.0.8", Some("silver")), ("10.0.0.9", Some("gold")), ("10.0.0.10", None)];
    assert_eq!(policies(&compiled), expected.map(|(vip, policy)| (vip.to_owned(), policy)));
    assert_eq!(compiled.rejections, []);
}

#[test]
fn of_two_objects_that_want_different_policies_for_one_vip_the_older_one_has_its_way() {
    let asks = |manifest: String, policy: &str, second: u32| {
        let more = format!("creationTimestamp: '2026-01-01T00:00:0{second}Z', annotations: {{vipherald.io/bgp-policy: {policy}}}");
        with_metadata(&manifest, &more)
    };
    let silent = with_metadata(&eric("oldest", "10.0.0.7", "a", 82), "creationTimestamp: '2026-01-01T00:00:01Z'");
    let older = asks(eric("z", "10.0.0.7", "a", 81), "silver", 2);
    let same = asks(eric("same", "10.0.0.7", "a", 83), "silver", 3);
    let younger = asks(service("a", "10.0.0.7", ""), "gold", 4);
    let compiled = compile(&snapshot_of(&[silent, younger, same, older].concat()), &with_policies(&["gold", "silver"]));
    assert_eq!(policies(&compiled), [("10.0.0.7".to_owned(), Some("silver"))]);
    let rejected = "Service default/a 10.0.0.7 Conflict vipherald.io/bgp-policy: EricIngress default/z asks for policy \"silver\" of 10.0.0.7, and comes first";
    assert_eq!(outcome(&compiled).1, [rejected]);
}

#[test]
fn a_policy_that_is_not_there_is_told_and_takes_nothing_away() {
    let manifest = with_metadata(&service("a", "10.0.0.7", ""), "annotations: {vipherald.io/bgp-policy: gulden}");
    let told = |known: &str| {
        format!(
            "Service default/a 10.0.0.7 PolicyNotFound vipherald.io/bgp-policy: there is no policy \"gulden\" in bgp.policies, which has {known}; 10.0.0.7 stays announced as it is, and is not announced anew"
        )
    };
    let manifests = [manifest, slice("a", "IPv4", READY)];
    assert_compiles(&with_policies(&["gold", "silver"]), &manifests, &["10.0.0.7 Serve"], &[&told("gold, silver")]);
    assert_compiles(&config(), &manifests, &["10.0.0.7 Serve"], &[&told("none")]);
}

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
metadata: {name: inner-1, labels: {kubernetes.io/service-name: inner}}
addressType: IPv4
ports: [{port: 53}]
endpoints: [{addresses: [10.5.5.5]}]
";
    let bad_cidr = "Node node1 Invalid spec.podCIDRs: \"10.233.2.0\" is no prefix; VIPs in it are not refused";
    for (vip, why) in [
        ("10.211.1.2", "is an address of Node node1"),
        ("192.0.2.2", "is an address of Node node1"),
        ("10.233.1.77", "is in the pod network 10.233.1.0/24 of Node node1"),
        ("2001:db8:233:1::77", "is in the pod network 2001:db8:233:1::/64 of Node node1"),
        ("10.96.0.10", "is the cluster IP of Service default/inner"),
        ("2001:db8:96::10", "is the cluster IP of Service default/inner"),
        ("10.211.1.1", "is the address of the BGP peer rr1"),
        ("10.5.5.5", "is an endpoint in EndpointSlice default/inner-1"),
    ] {
        let rejection = format!("Service default/a {vip} ReservedAddress spec.externalIPs[1]: {vip} {why}");
        let manifests = [others.to_owned(), service("a", &format!("10.0.0.7, '{vip}'"), ""), slice("a", "IPv4", "{addresses: [10.9.9.9]}")];
        assert_compiles(&config(), &manifests, &["10.0.0.7 Serve"], &[&rejection, bad_cidr]);
    }
}

#[test]
fn neither_a_slice_nor_a_claim_takes_an_address_from_the_older_one() {
    let dated = |text: String, created: &str| text.replacen("metadata: {", &format!("metadata: {{creationTimestamp: '{created}', "), 1);
    let (old, new) = ("2026-01-01T00:00:00Z", "2026-02-01T00:00:00Z");
    let claim = || service("a", "10.0.0.7", "");
    let behind = || slice("a", "IPv4", READY);
    let other = |more: &str| slice("b", "IPv4", &format!("{{addresses: [10.0.0.7]{more}}}"));
    let refused = "Service default/a 10.0.0.7 ReservedAddress spec.externalIPs[0]: 10.0.0.7 is an endpoint in EndpointSlice default/b-ipv4";
    for manifests in [
        [claim(), behind(), other("")],
        [claim(), behind(), dated(other(""), old)],
        [dated(claim(), new), behind(), dated(other(""), old)],
        // The address of a pod is nobody's to take.
        [dated(claim(), old), behind(), dated(other(", targetRef: {kind: Pod, name: p}"), new)],
    ] {
        assert_compiles(&config(), &manifests, &[], &[refused]);
    }
    for manifests in [[dated(claim(), old), behind(), dated(other(""), new)], [dated(claim(), old), behind(), other("")]] {
        assert_compiles(&config(), &manifests, &["10.0.0.7 Serve"], &[]);
    }
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

#[test]
fn a_service_that_is_being_deleted_is_served_until_it_is_gone() {
    let deleted =
        service("a", "10.0.0.7", "").replacen("{name: a}", "{name: a, deletionTimestamp: '2026-01-01T00:00:00Z', finalizers: [x/y]}", 1);
    assert_compiles(&config(), &[deleted, slice("a", "IPv4", READY)], &["10.0.0.7 Serve"], &[]);
}

#[test]
fn the_examples_are_served_as_far_as_kube_proxy_balances() {
    let read = |name: &str| std::fs::read_to_string(format!("{}/examples/manifests/{name}.yaml", env!("CARGO_MANIFEST_DIR"))).unwrap();
    let manifests = ["nginx", "dual-stack", "node", "eric-ingress", "lvs-ingress"].map(read).join("---\n");
    assert_compiles(
        &config(),
        &[manifests],
        &[
            "10.0.0.7 Serve",
            "10.0.0.8 Serve",
            "10.0.0.9 Serve",
            "10.32.184.59 NeedsDataplane",
            "10.232.35.199 NeedsDataplane",
            "2001:db8:7::9 Serve",
        ],
        &[],
    );
}

#[test]
fn the_last_good_intent_survives_a_start() {
    let state_dir = tempfile::TempDir::new().unwrap();
    let path = state_dir.path().join("state");
    assert_eq!(cache::load(&path, &config()), None);
    let web = with_metadata(&service("a", "10.0.0.7, '2001:db8:7::7'", ""), "annotations: {vipherald.io/bgp-policy: gold}");
    let manifests = [web, slice("a", "IPv4", READY), eric("e", "10.0.1.8", "a", 80)].concat();
    let desired = compile(&snapshot_of(&manifests), &config()).desired;
    cache::save(&path, &desired).unwrap();
    assert_eq!(cache::load(&path, &config()), Some(Desired { complete: false, ..desired }));
    // What is no longer allowed is left out.
    let allow = Some(vec![Allowed { prefix: Prefix::new("10.0.1.0".parse().unwrap(), 24).unwrap(), namespaces: vec![] }]);
    let narrower = Config { vips: Vips { allow, ..config().vips }, ..config() };
    let vips = cache::load(&path, &narrower).unwrap().vips;
    assert_eq!(vips.keys().map(ToString::to_string).collect::<Vec<_>>(), ["10.0.1.8"]);
    // What is damaged or of another version is as good as nothing.
    for text in ["", "{", "{\"version\": 2, \"vips\": {}}", "{\"version\": 1, \"vips\": {\"x\": {}}}"] {
        std::fs::write(path.join("desired.json"), text).unwrap();
        assert_eq!(cache::load(&path, &config()), None);
    }
}

/// Objects with numbers of their own, so that they have nothing to do with one another.
fn good_object(number: u8) -> String {
    let name = format!("good{number}");
    match number % 4 {
        0 => {
            [service(&name, &format!("10.0.0.{number}"), ""), slice(&name, "IPv4", &format!("{{addresses: [10.233.0.{number}]}}"))].concat()
        }
        1 => service(&name, &format!("10.0.0.{number}, '2001:db8:7::{number}'"), ""),
        2 => eric(&name, &format!("10.0.0.{number}"), "none", 80),
        _ => [
            service(&name, &format!("10.0.0.{number}"), "externalTrafficPolicy: Local"),
            slice(&name, "IPv4", &format!("{{addresses: [10.233.0.{number}], nodeName: node{}}}", number % 3)),
        ]
        .concat(),
    }
}

/// Objects that are wrong or want what is not theirs; `victim` is the number of a good one.
fn bad_object(number: u8, victim: u8) -> String {
    let name = format!("zbad{number}");
    match number % 8 {
        0 => service(&name, &format!("10.0.0.{victim}"), ""),
        1 => service(&name, "127.0.0.1, x, 10.0.0.0/24", ""),
        2 => service(&name, &format!("10.0.0.{victim}"), "type: ExternalName"),
        3 => service(&name, &format!("10.0.0.{victim}"), "").replace("{port: 80}", "{port: 99999}"),
        4 => eric(&name, &format!("10.0.0.{victim}"), "none", 80),
        5 => slice(&name, "FQDN", "{addresses: [a.example.org]}"),
        6 => slice(&name, "IPv4", "{addresses: [127.0.0.1]}, {addresses: []}"),
        _ => format!("---\napiVersion: v1\nkind: Node\nmetadata: {{name: {name}}}\nspec: {{podCIDR: x}}\n"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn one_bad_object_changes_nothing_for_the_others(
        good in proptest::collection::btree_set(1u8..250, 1..12), bad in proptest::collection::btree_set(0u8..250, 0..6),
    ) {
        let victim = *good.first().unwrap();
        let alone: String = good.iter().map(|number| good_object(*number)).collect();
        // Good objects are the older ones.
        let mut both = alone.replace("metadata: {", "metadata: {creationTimestamp: '2026-01-01T00:00:00Z', ");
        both.extend(bad.iter().map(|number| bad_object(*number, victim)));
        let (alone, both) = (compile(&snapshot_of(&alone), &config()), compile(&snapshot_of(&both), &config()));
        prop_assert_eq!(alone.desired, both.desired);
        prop_assert!(alone.rejections.iter().all(|rejection| both.rejections.contains(rejection)));
    }

    #[test]
    fn equal_input_gives_equal_output_in_any_order(
        numbers in proptest::collection::vec((any::<bool>(), 1u8..20), 0..12), seed in any::<u8>(),
    ) {
        let object = |(good, number): &(bool, u8)| if *good { good_object(*number) } else { bad_object(*number, seed % 20) };
        let numbers: BTreeSet<_> = numbers.into_iter().collect();
        let forwards = numbers.iter().map(object).fold("# objects\n".to_owned(), |text, object| text + &object);
        let backwards = numbers.iter().rev().map(object).fold("# objects\n".to_owned(), |text, object| text + &object);
        let compiled = compile(&snapshot_of(&forwards), &config());
        prop_assert_eq!(&compiled, &compile(&snapshot_of(&backwards), &config()));
        prop_assert!(compiled.rejections.is_sorted());
        prop_assert!(compiled.rejections.windows(2).all(|pair| pair[0] != pair[1]));
        prop_assert!(compiled.desired.vips.values().all(|vip| !vip.owners.is_empty()));
    }

    #[test]
    fn any_words_in_services_and_slices_have_an_answer(
        ip in "\\PC{0,12}|[0-9a-f:.]{0,20}", endpoint in "\\PC{0,12}|[0-9a-f:.]{0,20}", word in "\\PC{0,8}|TCP|Local|None|IPv4", port in any::<i32>(),
    ) {
        let mut snapshot = snapshot_of(&[service("a", "10.0.0.7", ""), slice("a", "IPv4", READY)].concat());
        for service in snapshot.services.values_mut() {
            let spec = std::sync::Arc::make_mut(service).spec.as_mut().unwrap();
            spec.external_ips.as_mut().unwrap().push(ip.clone());
            spec.external_traffic_policy = Some(word.clone());
            spec.cluster_ip = Some(word.clone());
            let ports = spec.ports.as_mut().unwrap();
            ports.push(k8s_openapi::api::core::v1::ServicePort { port, protocol: Some(word.clone()), ..ports[0].clone() });
        }
        for slice in snapshot.endpoint_slices.values_mut() {
            let slice = std::sync::Arc::make_mut(slice);
            slice.address_type = word.clone();
            slice.endpoints[0].addresses = vec![endpoint.clone()];
        }
        let compiled = compile(&snapshot, &config());
        prop_assert_eq!(&compiled, &compile(&snapshot, &config()));
    }
}

#[test]
#[allow(clippy::disallowed_macros, reason = "the figure is for whoever runs the test")]
fn five_thousand_services_compile_quickly() {
    let mut text = String::new();
    for number in 0..5000_u32 {
        let (name, [_, _, high, low]) = (format!("s{number}"), number.to_be_bytes());
        text += &service(&name, &format!("10.1.{high}.{low}"), "");
        let endpoints = (0..4).fold(String::new(), |mut endpoints, index| {
            write!(endpoints, "{{addresses: [10.{}.{high}.{low}], nodeName: node{index}}}, ", 128 + index).unwrap();
            endpoints
        });
        text += &slice(&name, "IPv4", &endpoints);
    }
    let snapshot = snapshot_of(&text);
    let start = Instant::now();
    let compiled = compile(&snapshot, &config());
    let elapsed = start.elapsed();
    eprintln!("5,000 Services with 20,000 endpoints: {elapsed:?}");
    assert_eq!((compiled.desired.vips.len(), compiled.rejections.len()), (5000, 0));
    assert!(compiled.desired.vips.values().all(|vip| vip.intent == VipIntent::Serve { without_endpoints: false }));
    assert!(elapsed < Duration::from_secs(2), "{elapsed:?}");
}
