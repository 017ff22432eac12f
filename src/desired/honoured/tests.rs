// SPDX-License-Identifier: Apache-2.0
use k8s_openapi::api::core::v1::{ClientIPConfig, ServicePort, SessionAffinityConfig};
use serde_json::{Value, json};

use super::*;
use crate::api::LOAD_BALANCER_CLASS;
use crate::desired::tests::config;

const DATAPLANES: [DataplaneType; 5] =
    [DataplaneType::Auto, DataplaneType::Ipvs, DataplaneType::Nftables, DataplaneType::KubeProxy, DataplaneType::None];

/// Which dataplanes leave undone what this Service asks for, each with the message.
fn undone(metadata: Value, spec: Value) -> Vec<(DataplaneType, String)> {
    let service: Service = serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap();
    let of = |kind: DataplaneType| {
        let dataplane = Dataplane { kind, ..config().dataplane };
        not_honoured(&service, service.spec.as_ref().unwrap(), &dataplane).into_iter().map(move |message| (kind, message))
    };
    DATAPLANES.into_iter().flat_map(of).collect()
}

/// That exactly these dataplanes leave it undone, and that the field is named.
fn assert_undone(by: &[DataplaneType], field: &str, metadata: Value, spec: Value) {
    let undone = undone(metadata, spec);
    assert_eq!(undone.iter().map(|(kind, _)| *kind).collect::<Vec<_>>(), by, "{undone:?}");
    assert!(undone.iter().all(|(_, message)| message.starts_with(&format!("{field}: "))), "{undone:?}");
}

fn annotated(key: &str, value: &str) -> Value {
    json!({"annotations": {key: value}})
}

const BALANCING: [DataplaneType; 3] = [DataplaneType::Auto, DataplaneType::Ipvs, DataplaneType::Nftables];

#[test]
fn traffic_distribution() {
    assert_undone(&BALANCING, "spec.trafficDistribution", json!({}), json!({"trafficDistribution": "PreferClose"}));
}

#[test]
fn topology_mode() {
    let field = "metadata.annotations[service.kubernetes.io/topology-mode]";
    assert_undone(&BALANCING, field, annotated(TOPOLOGY_MODE_KEY, "Auto"), json!({}));
    assert_undone(&[], field, annotated(TOPOLOGY_MODE_KEY, "Disabled"), json!({}));
}

#[test]
fn source_ranges_of_external_addresses() {
    let field = "spec.loadBalancerSourceRanges";
    let ranges = |external: &[&str]| json!({"loadBalancerSourceRanges": ["10.0.0.0/8"], "externalIPs": external});
    assert_undone(&[DataplaneType::KubeProxy, DataplaneType::None], field, json!({}), ranges(&["10.0.0.7"]));
    assert_undone(&[DataplaneType::None], field, json!({}), ranges(&[]));
    assert_undone(&[], field, json!({}), json!({"loadBalancerSourceRanges": []}));
}

#[test]
fn external_traffic_policy() {
    let field = "spec.externalTrafficPolicy";
    assert_undone(&[DataplaneType::None], field, json!({}), json!({"externalTrafficPolicy": "Local"}));
    assert_undone(&[], field, json!({}), json!({"externalTrafficPolicy": "Cluster"}));
}

#[test]
fn what_only_we_can_balance() {
    for (key, value) in [(SCHEDULER, "rr"), (FORWARDING, "dr"), (PRESERVE_CLIENT_KEY, "true")] {
        assert_undone(&[DataplaneType::KubeProxy], &format!("metadata.annotations[{key}]"), annotated(key, value), json!({}));
    }
    assert_undone(&[], "", annotated(PRESERVE_CLIENT_KEY, "false"), json!({}));
}

#[test]
fn addresses_for_what_is_no_load_balancer_of_ours() {
    let ours = json!({"type": "LoadBalancer", "loadBalancerClass": LOAD_BALANCER_CLASS});
    for key in [IPS_KEY, POOL_KEY, SHARING_KEY] {
        assert_undone(&DATAPLANES, &format!("metadata.annotations[{key}]"), annotated(key, "a"), json!({"type": "LoadBalancer"}));
        assert_undone(&[], "", annotated(key, "a"), ours.clone());
    }
    assert!(NO_BALANCER.contains(LOAD_BALANCER_CLASS));
}

#[test]
fn a_pool_beside_addresses_by_name() {
    let field = format!("metadata.annotations[{POOL_KEY}]");
    let spec = json!({"type": "LoadBalancer", "loadBalancerClass": LOAD_BALANCER_CLASS, "loadBalancerIP": "10.0.0.7"});
    assert_undone(&DATAPLANES, &field, annotated(POOL_KEY, "a"), spec);
}

/// A field that a later version of Kubernetes adds is an error here until somebody has decided what becomes of it.
#[test]
fn the_documentation_says_what_becomes_of_each_field() {
    let client_ip = Some(ClientIPConfig { timeout_seconds: Some(7) });
    let all = ServiceSpec {
        allocate_load_balancer_node_ports: Some(true),
        cluster_ip: Some("None".into()),
        cluster_ips: Some(vec!["None".into()]),
        external_ips: Some(vec!["10.0.0.7".into()]),
        external_name: Some("a".into()),
        external_traffic_policy: Some("Local".into()),
        health_check_node_port: Some(1),
        internal_traffic_policy: Some("Local".into()),
        ip_families: Some(vec!["IPv4".into()]),
        ip_family_policy: Some("SingleStack".into()),
        load_balancer_class: Some("a".into()),
        load_balancer_ip: Some("10.0.0.7".into()),
        load_balancer_source_ranges: Some(vec!["10.0.0.0/8".into()]),
        ports: Some(Vec::new()),
        publish_not_ready_addresses: Some(true),
        selector: Some([("a".to_owned(), "b".to_owned())].into()),
        session_affinity: Some("ClientIP".into()),
        session_affinity_config: Some(SessionAffinityConfig { client_ip }),
        traffic_distribution: Some("PreferClose".into()),
        type_: Some("LoadBalancer".into()),
    };
    let port = ServicePort {
        app_protocol: Some("a".into()),
        name: Some("a".into()),
        node_port: Some(1),
        port: 1,
        protocol: Some("TCP".into()),
        target_port: Some(k8s_openapi::apimachinery::pkg::util::intstr::IntOrString::Int(1)),
    };
    let text = include_str!("../../../docs/kubernetes.md");
    let rows: Vec<&str> = text.lines().skip_while(|line| !line.starts_with("| field |")).take_while(|line| line.starts_with('|')).collect();
    let mut missing = Vec::new();
    for (prefix, object) in [("", json!(all)), ("ports[].", json!(port))] {
        let names = object.as_object().unwrap().keys().map(|name| format!("`{prefix}{name}`"));
        missing.extend(names.filter(|name| !rows.iter().any(|row| row.contains(name))));
    }
    assert!(missing.is_empty(), "{missing:?}");
    let named: Vec<&str> = FIELDS.iter().map(|field| field.path.trim_start_matches("spec.")).collect();
    let unnamed: Vec<_> = named.into_iter().filter(|name| !rows.iter().any(|row| row.contains(&format!("`{name}`")))).collect();
    assert!(unnamed.is_empty(), "{unnamed:?}");
}
