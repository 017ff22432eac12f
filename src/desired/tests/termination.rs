// SPDX-License-Identifier: Apache-2.0
//! Each evidence by itself, and none.

use super::*;
use crate::api::{Kind, ObjectRef};
use crate::config::Workload;
use crate::source::Snapshot;

const NODE: &str = "apiVersion: v1\nkind: Node\nmetadata: {name: node1, labels: {role: router, rack: '7'}}\n";
const DAEMON_SET: &str = "apiVersion: apps/v1\nkind: DaemonSet\nmetadata: {name: vipherald, namespace: vip}\n\
                          spec: {selector: {matchLabels: {a: b}}, template: {spec: {containers: []}}}\n";
const STATEFUL_SET: &str = "apiVersion: apps/v1\nkind: StatefulSet\nmetadata: {name: vipherald, namespace: vip}\n\
                            spec: {serviceName: x, replicas: 2, selector: {matchLabels: {a: b}}, template: {spec: {containers: []}}}\n";

fn workload(kind: Kind, ordinal: Option<i32>) -> Workload {
    Workload { object: ObjectRef { kind, namespace: "vip".to_owned(), name: "vipherald".to_owned() }, ordinal }
}

fn of_daemon_set() -> Config {
    Config { workload: Some(workload(Kind::DaemonSet, None)), ..config() }
}

fn snapshot(objects: &[&str]) -> Snapshot {
    Snapshot { complete: true, ..snapshot_of(&objects.join("---\n")) }
}

fn at(config: &Config, snapshot: &Snapshot) -> (Lifecycle, String) {
    let Termination { lifecycle, reason } = termination(config, Some(snapshot));
    (lifecycle, reason)
}

fn assert_leaves(snapshot: &Snapshot, why: &str) {
    assert_eq!(at(&of_daemon_set(), snapshot), (Lifecycle::Drain, why.to_owned()));
}

fn pod_with(text: &str) -> String {
    DAEMON_SET.replace("containers: []", &format!("containers: [], {text}"))
}

#[test]
fn a_word_of_the_configuration_is_the_last_word() {
    let cordoned = snapshot(&[&format!("{NODE}spec: {{unschedulable: true}}\n"), DAEMON_SET]);
    let with = |on_termination| Config { on_termination, ..of_daemon_set() };
    assert_eq!(at(&with(OnTermination::Keep), &cordoned).0, Lifecycle::Keep);
    assert_eq!(at(&with(OnTermination::Drain), &snapshot(&[NODE, DAEMON_SET])).0, Lifecycle::Drain);
    let (lifecycle, reason) = at(&config(), &snapshot(&[NODE, DAEMON_SET]));
    assert_eq!(lifecycle, Lifecycle::Drain);
    assert!(reason.contains("no drain.workload"), "{reason}");
}

#[test]
fn a_restart_keeps() {
    let expected = (Lifecycle::Keep, "DaemonSet vip/vipherald is to start it again on this node".to_owned());
    assert_eq!(at(&of_daemon_set(), &snapshot(&[NODE, DAEMON_SET])), expected);
    let not_ready = format!("{NODE}status: {{conditions: [{{type: Ready, status: 'False', message: 'container runtime is down'}}]}}\n");
    assert_eq!(at(&of_daemon_set(), &snapshot(&[&not_ready, DAEMON_SET])), expected);
    let once = format!("{NODE}status: {{conditions: [{{type: Ready, status: 'True', message: 'node is shutting down'}}]}}\n");
    assert_eq!(at(&of_daemon_set(), &snapshot(&[&once, DAEMON_SET])), expected);
}

#[test]
fn a_source_that_is_away_or_not_complete_is_no_evidence() {
    assert_eq!(termination(&of_daemon_set(), None).lifecycle, Lifecycle::Keep);
    let incomplete = |objects: &[&str]| Snapshot { complete: false, ..snapshot(objects) };
    for objects in [&[NODE], &[DAEMON_SET]] {
        assert_eq!(at(&of_daemon_set(), &incomplete(objects)).0, Lifecycle::Keep, "{objects:?}");
    }
    let cordoned = format!("{NODE}spec: {{unschedulable: true}}\n");
    assert_eq!(at(&of_daemon_set(), &incomplete(&[&cordoned])).0, Lifecycle::Drain);
}

#[test]
fn a_node_that_goes_leaves() {
    let deleted = NODE.replace("name: node1", "name: node1, deletionTimestamp: '2026-01-02T03:04:05Z'");
    let down = format!("{NODE}status: {{conditions: [{{type: Ready, status: 'False', message: 'node is shutting down'}}]}}\n");
    for (node, why) in [
        (format!("{NODE}spec: {{unschedulable: true}}\n"), "Node node1 is cordoned (spec.unschedulable)"),
        (deleted, "Node node1 is being deleted"),
        (down, "Node node1 is shutting down"),
        (NODE.replace("node1", "node2"), "there is no Node node1 any more"),
    ] {
        assert_leaves(&snapshot(&[&node, DAEMON_SET]), why);
    }
}

#[test]
fn a_daemon_set_that_goes_leaves() {
    assert_leaves(&snapshot(&[NODE]), "there is no DaemonSet vip/vipherald any more");
    let deleted = DAEMON_SET.replace("name: vipherald", "name: vipherald, deletionTimestamp: '2026-01-02T03:04:05Z'");
    assert_leaves(&snapshot(&[NODE, &deleted]), "DaemonSet vip/vipherald is being deleted");
}

#[test]
fn a_node_that_the_daemon_set_does_not_select_leaves() {
    let prefix = "DaemonSet vip/vipherald wants no pod on this node any more: ";
    let affinity = |term: &str| {
        pod_with(&format!(
            "affinity: {{nodeAffinity: {{requiredDuringSchedulingIgnoredDuringExecution: {{nodeSelectorTerms: [{term}]}}}}}}"
        ))
    };
    let expression = |text: &str| affinity(&format!("{{matchExpressions: [{{{text}}}]}}"));
    let selected = [
        pod_with("nodeSelector: {role: router}"),
        expression("key: role, operator: In, values: [x, router]"),
        expression("key: role, operator: NotIn, values: [x]"),
        expression("key: other, operator: NotIn, values: [x]"),
        expression("key: role, operator: Exists"),
        expression("key: other, operator: DoesNotExist"),
        expression("key: rack, operator: Gt, values: ['6']"),
        expression("key: rack, operator: Lt, values: ['8']"),
        expression("key: rack, operator: Unheard, values: ['8']"),
        affinity("{matchFields: [{key: metadata.name, operator: In, values: [node1]}]}"),
        affinity("{matchExpressions: [{key: other, operator: Exists}]}, {matchExpressions: [{key: role, operator: Exists}]}"),
    ];
    for set in selected {
        assert_eq!(at(&of_daemon_set(), &snapshot(&[NODE, &set])).0, Lifecycle::Keep, "{set}");
    }
    assert_leaves(
        &snapshot(&[NODE, &pod_with("nodeSelector: {role: other}")]),
        &format!("{prefix}its nodeSelector asks for the label role=other"),
    );
    let unselected = [
        expression("key: role, operator: In, values: [x]"),
        expression("key: other, operator: In, values: [x]"),
        expression("key: role, operator: NotIn, values: [router]"),
        expression("key: other, operator: Exists"),
        expression("key: role, operator: DoesNotExist"),
        expression("key: rack, operator: Gt, values: ['7']"),
        expression("key: rack, operator: Lt, values: ['7']"),
        expression("key: role, operator: Gt, values: ['7']"),
        affinity("{matchFields: [{key: metadata.name, operator: In, values: [node2]}]}"),
        affinity("{}"),
        affinity("{matchExpressions: [{key: role, operator: Exists}, {key: other, operator: Exists}]}"),
    ];
    for set in unselected {
        assert_leaves(&snapshot(&[NODE, &set]), &format!("{prefix}its required node affinity does not match"));
    }
}

#[test]
fn a_taint_that_evicts_leaves() {
    let tainted = |taint: &str| format!("{NODE}spec: {{taints: [{taint}]}}\n");
    let evicting = tainted("{key: maintenance, value: now, effect: NoExecute}");
    let why = "DaemonSet vip/vipherald wants no pod on this node any more: it does not tolerate the taint maintenance:NoExecute";
    for tolerations in
        ["[]", "[{key: other, operator: Exists}]", "[{key: maintenance, value: then}]", "[{operator: Exists, effect: NoSchedule}]"]
    {
        assert_leaves(&snapshot(&[&evicting, &pod_with(&format!("tolerations: {tolerations}"))]), why);
    }
    for tolerations in
        ["[{operator: Exists}]", "[{key: maintenance, operator: Exists, effect: NoExecute}]", "[{key: maintenance, value: now}]"]
    {
        let set = pod_with(&format!("tolerations: {tolerations}"));
        assert_eq!(at(&of_daemon_set(), &snapshot(&[&evicting, &set])).0, Lifecycle::Keep, "{tolerations}");
    }
    for taint in ["{key: maintenance, effect: NoSchedule}", "{key: node.kubernetes.io/not-ready, effect: NoExecute}"] {
        assert_eq!(at(&of_daemon_set(), &snapshot(&[&tainted(taint), DAEMON_SET])).0, Lifecycle::Keep, "{taint}");
    }
}

#[test]
fn a_pod_that_the_stateful_set_has_no_more_leaves() {
    let of = |ordinal| Config { workload: Some(workload(Kind::StatefulSet, Some(ordinal))), ..config() };
    let two = snapshot(&[NODE, STATEFUL_SET]);
    assert_eq!([0, 1].map(|ordinal| at(&of(ordinal), &two).0), [Lifecycle::Keep; 2]);
    assert_eq!(at(&of(2), &two), (Lifecycle::Drain, "StatefulSet vip/vipherald has 2 replicas, and no pod 2 any more".to_owned()));
    let later = snapshot(&[NODE, &STATEFUL_SET.replace("replicas: 2", "replicas: 2, ordinals: {start: 5}")]);
    assert_eq!([4, 5, 6, 7].map(|ordinal| at(&of(ordinal), &later).0 == Lifecycle::Keep), [false, true, true, false]);
    let deleted = STATEFUL_SET.replace("name: vipherald,", "name: vipherald, deletionTimestamp: '2026-01-02T03:04:05Z',");
    assert_eq!(at(&of(0), &snapshot(&[NODE, &deleted])).1, "StatefulSet vip/vipherald is being deleted");
    assert_eq!(at(&of(0), &snapshot(&[NODE])).1, "there is no StatefulSet vip/vipherald any more");
}
