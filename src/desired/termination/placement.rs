// SPDX-License-Identifier: Apache-2.0
//! Whether a DaemonSet goes on having its pod on a node, by the rules of its controller: node selector, required node affinity, and taints that evict.
//!
//! Inputs: the pod of the template, and the node. Output: what keeps the pod off, or nothing. Invariant: what Kubernetes calls invalid, such as an
//! operator that nobody knows, matches nothing there and keeps nothing off here.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Node, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, PodSpec, Taint, Toleration};

/// What keeps the pods of the template off the node.
pub(super) fn refusal(pod: &PodSpec, node: &Node) -> Option<String> {
    let none = BTreeMap::new();
    let labels = node.metadata.labels.as_ref().unwrap_or(&none);
    if let Some((key, value)) = pod.node_selector.iter().flatten().find(|(key, value)| labels.get(*key) != Some(*value)) {
        return Some(format!("its nodeSelector asks for the label {key}={value}"));
    }
    let required = pod.affinity.as_ref().and_then(|affinity| affinity.node_affinity.as_ref());
    let required = required.and_then(|affinity| affinity.required_during_scheduling_ignored_during_execution.as_ref());
    if required.is_some_and(|selector| !selects(selector, node, labels)) {
        return Some("its required node affinity does not match".to_owned());
    }
    let taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    let mut evicting =
        taints.filter(|taint| taint.effect == "NoExecute" && !is_tolerated(taint, pod.tolerations.as_deref().unwrap_or(&[])));
    evicting.next().map(|taint| format!("it does not tolerate the taint {}:NoExecute", taint.key))
}

/// Terms are alternatives; an empty one matches nothing.
fn selects(selector: &NodeSelector, node: &Node, labels: &BTreeMap<String, String>) -> bool {
    selector.node_selector_terms.iter().any(|term| matches(term, node, labels))
}

fn matches(term: &NodeSelectorTerm, node: &Node, labels: &BTreeMap<String, String>) -> bool {
    let expressions = term.match_expressions.as_deref().unwrap_or(&[]);
    let fields = term.match_fields.as_deref().unwrap_or(&[]);
    let field = |requirement: &NodeSelectorRequirement| {
        let value = node.metadata.name.as_deref().filter(|_| requirement.key == "metadata.name");
        meets(requirement, value)
    };
    (!expressions.is_empty() || !fields.is_empty())
        && expressions.iter().all(|requirement| meets(requirement, labels.get(&requirement.key).map(String::as_str)))
        && fields.iter().all(field)
}

fn meets(requirement: &NodeSelectorRequirement, value: Option<&str>) -> bool {
    let values = requirement.values.as_deref().unwrap_or(&[]);
    let is_among = || value.is_some_and(|value| values.iter().any(|one| one == value));
    let compare = |holds: fn(i64, i64) -> bool| {
        let (value, bound) = (value.and_then(|value| value.parse().ok()), values.first().and_then(|bound| bound.parse().ok()));
        value.zip(bound).is_some_and(|(value, bound)| holds(value, bound))
    };
    match requirement.operator.as_str() {
        "In" => is_among(),
        "NotIn" => !is_among(),
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => compare(|value, bound| value > bound),
        "Lt" => compare(|value, bound| value < bound),
        _ => true,
    }
}

/// The DaemonSet controller lets its pods tolerate these for ever.
const ALWAYS_TOLERATED: [&str; 2] = ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"];

fn is_tolerated(taint: &Taint, tolerations: &[Toleration]) -> bool {
    let tolerates = |toleration: &Toleration| {
        let key = toleration.key.as_deref().unwrap_or_default();
        let effect = toleration.effect.as_deref().unwrap_or_default();
        let exists = toleration.operator.as_deref() == Some("Exists");
        let value = exists || toleration.value.as_deref().unwrap_or_default() == taint.value.as_deref().unwrap_or_default();
        (effect.is_empty() || effect == taint.effect) && (if key.is_empty() { exists } else { key == taint.key }) && value
    };
    ALWAYS_TOLERATED.contains(&taint.key.as_str()) || tolerations.iter().any(tolerates)
}
