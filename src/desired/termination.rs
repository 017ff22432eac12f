// SPDX-License-Identifier: Apache-2.0
//! What a stop is for: whether this node is to go on serving until we are started again, or to leave.
//!
//! Inputs: `drain.onTermination`, the workload of which we are a pod, and the last snapshot of the source, if there ever was one. Output: the
//! [`Lifecycle`] from SIGTERM on, and why. Invariants: with `auto` a node leaves only on evidence: it is to take no pods or is going down, or the workload
//! wants no pod here any more. A source that is away is no evidence, and neither is what a source that is not complete does not have.

mod placement;

use k8s_openapi::api::core::v1::Node;

use super::Lifecycle;
use crate::api::{Kind, ObjectRef};
use crate::config::{Config, OnTermination, Workload};
use crate::source::Snapshot;

/// What SIGTERM starts, and why.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Termination {
    /// [`Lifecycle::Keep`] or [`Lifecycle::Drain`].
    pub lifecycle: Lifecycle,
    /// In words.
    pub reason: String,
}

/// Decides it for a stop now.
#[must_use]
pub fn termination(config: &Config, snapshot: Option<&Snapshot>) -> Termination {
    let (lifecycle, reason) = match (config.on_termination, &config.workload) {
        (OnTermination::Keep, _) => (Lifecycle::Keep, "drain.onTermination is keep".to_owned()),
        (OnTermination::Drain, _) => (Lifecycle::Drain, "drain.onTermination is drain".to_owned()),
        (OnTermination::Auto, None) => {
            (Lifecycle::Drain, "drain.onTermination is auto, and no drain.workload says who would start it again".to_owned())
        }
        (OnTermination::Auto, Some(workload)) => match departure(config, workload, snapshot) {
            Some(reason) => (Lifecycle::Drain, reason),
            None => (Lifecycle::Keep, format!("{} is to start it again on this node", workload.object)),
        },
    };
    Termination { lifecycle, reason }
}

/// Why the node is to leave, where anything says so.
fn departure(config: &Config, workload: &Workload, snapshot: Option<&Snapshot>) -> Option<String> {
    let snapshot = snapshot?;
    let name = ObjectRef { kind: Kind::Node, namespace: String::new(), name: config.node_name.clone() };
    let Some(node) = snapshot.nodes.get(&name) else {
        return snapshot.complete.then(|| format!("there is no {name} any more"));
    };
    of_node(&name, node).or_else(|| of_workload(workload, node, snapshot))
}

fn of_node(name: &ObjectRef, node: &Node) -> Option<String> {
    if node.metadata.deletion_timestamp.is_some() {
        return Some(format!("{name} is being deleted"));
    }
    if node.spec.as_ref().is_some_and(|spec| spec.unschedulable == Some(true)) {
        return Some(format!("{name} is cordoned (spec.unschedulable)"));
    }
    is_shutting_down(node).then(|| format!("{name} is shutting down"))
}

/// As the kubelet says of a graceful node shutdown in the condition Ready.
fn is_shutting_down(node: &Node) -> bool {
    let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let mut ready = conditions.filter(|condition| condition.type_ == "Ready" && condition.status != "True");
    ready.any(|condition| condition.message.as_deref().is_some_and(|message| message.contains("node is shutting down")))
}

fn of_workload(Workload { object, ordinal }: &Workload, node: &Node, snapshot: &Snapshot) -> Option<String> {
    let gone = || snapshot.complete.then(|| format!("there is no {object} any more"));
    match object.kind {
        Kind::StatefulSet => {
            let Some(set) = snapshot.stateful_sets.get(object) else { return gone() };
            if set.metadata.deletion_timestamp.is_some() {
                return Some(format!("{object} is being deleted"));
            }
            let spec = set.spec.as_ref()?;
            let first = spec.ordinals.as_ref().and_then(|ordinals| ordinals.start).unwrap_or(0);
            let replicas = spec.replicas.unwrap_or(1);
            let ordinal = (*ordinal)?;
            let wanted = (first..first.saturating_add(replicas)).contains(&ordinal);
            (!wanted).then(|| format!("{object} has {replicas} replicas, and no pod {} any more", ordinal))
        }
        _ => {
            let Some(set) = snapshot.daemon_sets.get(object) else { return gone() };
            if set.metadata.deletion_timestamp.is_some() {
                return Some(format!("{object} is being deleted"));
            }
            let pod = set.spec.as_ref()?.template.spec.as_ref()?;
            placement::refusal(pod, node).map(|why| format!("{object} wants no pod on this node any more: {why}"))
        }
    }
}
