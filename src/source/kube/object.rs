// SPDX-License-Identifier: Apache-2.0
//! From what an API server sends to typed objects that hold only what is used.
//!
//! Input: one object as JSON. Output: its name, and its typed and trimmed form or why it cannot be read. Invariant: whatever changes without meaning
//! anything to us (heartbeats, `managedFields`, resource versions, statuses of others) is not in the trimmed form, so that it compares equal.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::apps::v1::{DaemonSet, DaemonSetSpec, StatefulSet, StatefulSetSpec};
use k8s_openapi::api::core::v1::{Affinity, Namespace, Node, NodeSpec, NodeStatus, PodSpec, PodTemplateSpec, Service, ServiceStatus};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::store::{Read, Unreadable};
use crate::api::{EricIngress, Kind, LvsIngress, ObjectRef, TOPOLOGY_MODE_KEY};
use crate::source::Object;

/// Annotations of this group are ours; of the others only [`TOPOLOGY_MODE_KEY`] is looked at.
const OUR_ANNOTATIONS: &str = "vipherald.io/";

/// The path of all objects of a kind.
pub(crate) fn path(kind: Kind) -> String {
    let root = if kind.api_version().contains('/') { "/apis" } else { "/api" };
    format!("{root}/{}/{}", kind.api_version(), plural(kind))
}

/// The resource of a kind in messages and rules, as `kubectl auth can-i` takes it.
pub(crate) fn resource(kind: Kind) -> String {
    match kind.api_version().split_once('/') {
        Some((group, _)) => format!("{}.{group}", plural(kind)),
        None => plural(kind).to_owned(),
    }
}

const fn plural(kind: Kind) -> &'static str {
    match kind {
        Kind::Service => "services",
        Kind::EndpointSlice => "endpointslices",
        Kind::Node => "nodes",
        Kind::Namespace => "namespaces",
        Kind::DaemonSet => "daemonsets",
        Kind::StatefulSet => "statefulsets",
        Kind::EricIngress => "ericingresses",
        Kind::LvsIngress => "lvsingresses",
    }
}

/// Reads one object. `None` for something without a name, which no API server sends.
pub(super) fn read(kind: Kind, value: Value) -> Option<(ObjectRef, Read)> {
    let word = |field: &str| Some(value.get("metadata")?.get(field)?.as_str()?.to_owned());
    let name = word("name").filter(|name| !name.is_empty())?;
    let namespace = if kind.is_namespaced() { word("namespace").unwrap_or_default() } else { String::new() };
    let generation = value.get("metadata").and_then(|metadata| metadata.get("generation")?.as_i64());
    let uid = word("uid");
    let read = typed(kind, value).map_err(|message| match generation {
        Some(generation) => Unreadable { uid, message: format!("generation {generation}: {message}") },
        None => Unreadable { uid, message },
    });
    Some((ObjectRef { kind, namespace, name }, read))
}

fn typed(kind: Kind, value: Value) -> Result<Object, String> {
    Ok(match kind {
        Kind::Service => Object::Service(Arc::new(trim_service(parse(value)?))),
        Kind::EndpointSlice => Object::EndpointSlice(Arc::new(trim_slice(parse(value)?))),
        Kind::Node => Object::Node(Arc::new(trim_node(parse(value)?))),
        Kind::Namespace => {
            let Namespace { metadata, .. } = parse(value)?;
            Object::Namespace(Arc::new(Namespace { metadata: trim_metadata(metadata), ..Namespace::default() }))
        }
        Kind::DaemonSet => Object::DaemonSet(Arc::new(trim_daemon_set(parse(value)?))),
        Kind::StatefulSet => Object::StatefulSet(Arc::new(trim_stateful_set(parse(value)?))),
        Kind::EricIngress => {
            let mut ingress: EricIngress = parse(value)?;
            ingress.metadata = trim_metadata(ingress.metadata);
            Object::EricIngress(Arc::new(ingress))
        }
        Kind::LvsIngress => {
            let mut ingress: LvsIngress = parse(value)?;
            ingress.metadata = trim_metadata(ingress.metadata);
            Object::LvsIngress(Arc::new(ingress))
        }
    })
}

/// With the path of the field that is wrong, where it is not in the message already.
fn parse<T: DeserializeOwned>(value: Value) -> Result<T, String> {
    serde_path_to_error::deserialize(value).map_err(|error| match error.path().to_string() {
        path if path == "." => error.inner().to_string(),
        path => format!("{path}: {}", error.inner()),
    })
}

/// What identifies an object and says whose it is.
fn trim_metadata(metadata: ObjectMeta) -> ObjectMeta {
    let ObjectMeta { name, namespace, uid, generation, creation_timestamp, deletion_timestamp, labels, annotations, .. } = metadata;
    let annotations: Option<BTreeMap<_, _>> =
        annotations.map(|all| all.into_iter().filter(|(key, _)| key.starts_with(OUR_ANNOTATIONS) || key == TOPOLOGY_MODE_KEY).collect());
    ObjectMeta {
        name,
        namespace,
        uid,
        generation,
        creation_timestamp,
        deletion_timestamp,
        labels: labels.filter(|labels| !labels.is_empty()),
        annotations: annotations.filter(|annotations| !annotations.is_empty()),
        ..ObjectMeta::default()
    }
}

/// The load-balancer part of its status is kept for those who write it.
fn trim_service(service: Service) -> Service {
    let load_balancer = service.status.and_then(|status| status.load_balancer).filter(|status| status.ingress.is_some());
    let status = load_balancer.map(|load_balancer| ServiceStatus { load_balancer: Some(load_balancer), conditions: None });
    Service { metadata: trim_metadata(service.metadata), spec: service.spec, status }
}

fn trim_slice(slice: EndpointSlice) -> EndpointSlice {
    let mut slice = slice;
    slice.metadata = trim_metadata(slice.metadata);
    // The controller counts every change of the slice there.
    slice.metadata.generation = None;
    for endpoint in &mut slice.endpoints {
        endpoint.hints = None;
        endpoint.hostname = None;
        endpoint.zone = None;
        endpoint.deprecated_topology = None;
        endpoint.target_ref = None;
    }
    slice
}

/// Addresses, networks, taints, and whether it is ready and may be used, without the times of heartbeats.
fn trim_node(node: Node) -> Node {
    let spec = node.spec.map(|spec| NodeSpec {
        pod_cidr: spec.pod_cidr,
        pod_cidrs: spec.pod_cidrs,
        taints: spec.taints,
        unschedulable: spec.unschedulable,
        ..NodeSpec::default()
    });
    let status = node.status.map(|status| NodeStatus {
        addresses: status.addresses,
        conditions: status.conditions.map(|conditions| {
            let mut conditions: Vec<_> = conditions.into_iter().filter(|condition| condition.type_ == "Ready").collect();
            for condition in &mut conditions {
                condition.last_heartbeat_time = None;
                // Why it is not ready counts: it may be going down.
                condition.message = condition.message.take().filter(|_| condition.status != "True");
            }
            conditions
        }),
        ..NodeStatus::default()
    });
    Node { metadata: trim_metadata(node.metadata), spec, status }
}

/// On which nodes it has pods.
fn trim_daemon_set(set: DaemonSet) -> DaemonSet {
    let pod = |pod: PodSpec| PodSpec {
        affinity: pod.affinity.map(|affinity| Affinity { node_affinity: affinity.node_affinity, ..Affinity::default() }),
        node_selector: pod.node_selector,
        tolerations: pod.tolerations,
        ..PodSpec::default()
    };
    let template = |template: PodTemplateSpec| PodTemplateSpec { metadata: None, spec: template.spec.map(pod) };
    let spec = set.spec.map(|spec| DaemonSetSpec { template: template(spec.template), ..DaemonSetSpec::default() });
    DaemonSet { metadata: trim_metadata(set.metadata), spec, status: None }
}

/// How many pods it has.
fn trim_stateful_set(set: StatefulSet) -> StatefulSet {
    let spec = set.spec.map(|spec| StatefulSetSpec { ordinals: spec.ordinals, replicas: spec.replicas, ..StatefulSetSpec::default() });
    StatefulSet { metadata: trim_metadata(set.metadata), spec, status: None }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read_good(kind: Kind, value: Value) -> Object {
        read(kind, value).unwrap().1.unwrap()
    }

    #[test]
    fn paths_and_resources() {
        assert_eq!(path(Kind::Service), "/api/v1/services");
        assert_eq!(path(Kind::EricIngress), "/apis/routing.ericingress.ericsson.com/v1alpha1/ericingresses");
        assert_eq!(resource(Kind::EndpointSlice), "endpointslices.discovery.k8s.io");
        assert_eq!(resource(Kind::Node), "nodes");
    }

    #[test]
    fn a_heartbeat_is_no_change() {
        let node = |beat: &str, version: &str| {
            json!({
                "apiVersion": "v1", "kind": "Node",
                "metadata": {"name": "node-1", "resourceVersion": version, "labels": {"rack": "1"},
                    "annotations": {"projectcalico.org/x": version}, "managedFields": [{"time": beat}]},
                "spec": {"podCIDRs": ["10.1.0.0/24"], "taints": [{"key": "node", "effect": "NoSchedule"}]},
                "status": {"addresses": [{"type": "InternalIP", "address": "10.211.1.2"}], "images": [{"names": [version]}],
                    "conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": beat},
                        {"type": "DiskPressure", "status": "False", "lastHeartbeatTime": beat}]},
            })
        };
        let (old, new) = (node("2026-11-28T12:00:00Z", "1"), node("2026-11-28T12:00:10Z", "2"));
        assert_eq!(read_good(Kind::Node, old), read_good(Kind::Node, new.clone()));
        let mut cordoned = new.clone();
        cordoned["spec"]["unschedulable"] = json!(true);
        assert_ne!(read_good(Kind::Node, cordoned), read_good(Kind::Node, new));
    }

    #[test]
    fn that_a_node_goes_down_is_seen() {
        let node = json!({"metadata": {"name": "node-1"}, "status": {"conditions": [
            {"type": "Ready", "status": "False", "message": "node is shutting down", "lastHeartbeatTime": "2026-11-28T12:00:00Z"}]}});
        let Object::Node(node) = read_good(Kind::Node, node) else { panic!() };
        let conditions = node.status.as_ref().unwrap().conditions.as_ref().unwrap();
        assert_eq!(conditions[0].message.as_deref(), Some("node is shutting down"));
    }

    #[test]
    fn what_a_roll_out_reports_is_no_change_of_a_workload() {
        let set = |replicas: u32, ready: u32| {
            json!({"metadata": {"name": "vipherald", "namespace": "vip"}, "spec": {"replicas": replicas, "selector": {},
                "template": {"metadata": {"labels": {"x": ready.to_string()}}, "spec": {"containers": [], "nodeSelector": {"rack": "1"}}}},
                "status": {"replicas": ready, "numberReady": ready, "currentNumberScheduled": 1, "desiredNumberScheduled": 1, "numberMisscheduled": 0}})
        };
        for kind in [Kind::DaemonSet, Kind::StatefulSet] {
            assert_eq!(read_good(kind, set(2, 1)), read_good(kind, set(2, 2)), "{kind:?}");
        }
        assert_ne!(read_good(Kind::StatefulSet, set(2, 1)), read_good(Kind::StatefulSet, set(1, 1)));
        let Object::DaemonSet(set) = read_good(Kind::DaemonSet, set(2, 1)) else { panic!() };
        let pod = set.spec.as_ref().unwrap().template.spec.as_ref().unwrap();
        assert_eq!(pod.node_selector.as_ref().unwrap()["rack"], "1");
    }

    #[test]
    fn our_annotations_and_all_labels_stay() {
        let service = json!({"metadata": {"name": "web", "namespace": "enm", "labels": {"a": "b"},
            "annotations": {"vipherald.io/bgp-policy": "gold", "kubectl.kubernetes.io/last-applied-configuration": "{}"}}});
        let (name, read) = read(Kind::Service, service).unwrap();
        assert_eq!(name.to_string(), "Service enm/web");
        let Object::Service(service) = read.unwrap() else { panic!() };
        let annotations = service.metadata.annotations.as_ref().unwrap();
        assert_eq!(annotations.keys().collect::<Vec<_>>(), ["vipherald.io/bgp-policy"]);
        assert_eq!(service.metadata.labels.as_ref().unwrap()["a"], "b");
    }

    #[test]
    fn a_mistake_names_its_field() {
        let ingress = json!({"metadata": {"name": "mscm", "namespace": "enm"}, "spec": {"virtualServiceIP": 7}});
        let (name, read) = read(Kind::EricIngress, ingress).unwrap();
        assert_eq!(name.to_string(), "EricIngress enm/mscm");
        assert_eq!(read.unwrap_err().message, "spec.virtualServiceIP: invalid type: integer `7`, expected a string");
        assert!(super::read(Kind::Node, json!({"kind": "Node"})).is_none());
    }
}
