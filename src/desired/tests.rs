// SPDX-License-Identifier: Apache-2.0
//! Objects in, intent and rejections out: what the tests below share, and those of the whole.

mod churn;
mod claims;
mod endpoint_rules;
mod filters;
mod last_good;
mod load_balancer;
mod node;
mod node_drain;
mod policies;
mod refusals;
mod serving;
mod termination;

use std::fmt::Write;
use std::time::Instant;

use bgp::Asn;
use proptest::prelude::*;

use super::*;
use crate::api::{ForwardingMethod, Scheduler};
use crate::config::{Allowed, Dataplane, DataplaneType, LocalPolicy, Log, LogFormat, OnCordon, OnTermination, PeerSelectors, Vips};
use crate::source::dir::snapshot_of;

pub(crate) fn config() -> Config {
    let peer = DesiredPeer::new("10.211.1.1".parse().unwrap(), Asn::new(65001).unwrap());
    Config {
        peer_selectors: PeerSelectors::new(),
        instance: "vipherald".into(),
        node_name: "node1".into(),
        scope: Scope::default(),
        external_interface: None,
        label_external_ip: false,
        vips: Vips { interface: "lo".into(), allow: None, pools: Vec::new(), without_endpoints: WithoutEndpoints::Withdraw },
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
        vrrp: VirtualRouting::default(),
        routing: Routing::default(),
        on_termination: OnTermination::Auto,
        on_cordon: OnCordon::Auto,
        drain_taints: Vec::new(),
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
    assert_eq!(cache::load(&path, &config()), Some(Desired { complete: false, ..desired.clone() }));
    // A drain is remembered.
    let drained = Desired { lifecycle: Lifecycle::Drain, ..desired };
    cache::save(&path, &drained).unwrap();
    assert_eq!(cache::load(&path, &config()), Some(Desired { complete: false, ..drained }));
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

#[test]
fn that_vips_have_left_survives_a_start() {
    let state_dir = tempfile::TempDir::new().unwrap();
    let path = state_dir.path().join("state");
    assert_eq!(cache::load_drain(&path), NodeDrain::None);
    cache::save_drain(&path, &NodeDrain::None).unwrap();
    let drained = NodeDrain::Drained { reason: "the Node is cordoned".to_owned() };
    cache::save_drain(&path, &drained).unwrap();
    assert_eq!(cache::load_drain(&path), drained);
    let waiting = NodeDrain::Waiting { reason: "the Node is cordoned".to_owned(), obstacle: "it is the last one".to_owned() };
    cache::save_drain(&path, &waiting).unwrap();
    assert_eq!(cache::load_drain(&path), NodeDrain::None);
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
