// SPDX-License-Identifier: Apache-2.0
//! What of a Node asks for its VIPs to leave.

use super::*;
use crate::config::{DrainTaint, OnCordon};

fn node(spec: &str) -> Snapshot {
    snapshot_of(&format!("apiVersion: v1\nkind: Node\nmetadata: {{name: node1}}\nspec: {spec}\n"))
}

fn taint(key: &str, value: Option<&str>, effect: Option<&str>) -> DrainTaint {
    DrainTaint { key: key.to_owned(), value: value.map(ToOwned::to_owned), effect: effect.map(ToOwned::to_owned) }
}

#[test]
fn a_cordoned_node_asks_where_it_is_dedicated_or_the_configuration_says_so() {
    let cordoned = |taints: &str| node(&format!("{{unschedulable: true, taints: [{taints}]}}"));
    let leave = Asked::Leave("the Node is cordoned".to_owned());
    for (on_cordon, taints, expected) in [
        (OnCordon::Auto, "{key: node, value: routing, effect: NoSchedule}", &leave),
        (OnCordon::Auto, "{key: node-role.kubernetes.io/router, effect: NoExecute}", &leave),
        (OnCordon::Auto, "", &Asked::Nothing),
        // What a cordon itself brings, and what a Node that is not Ready gets.
        (OnCordon::Auto, "{key: node.kubernetes.io/unschedulable, effect: NoSchedule}", &Asked::Nothing),
        (OnCordon::Auto, "{key: node.kubernetes.io/not-ready, effect: NoExecute}", &Asked::Nothing),
        (OnCordon::Auto, "{key: node-role.kubernetes.io/control-plane, effect: NoSchedule}", &Asked::Nothing),
        // It keeps no pod away.
        (OnCordon::Auto, "{key: node, effect: PreferNoSchedule}", &Asked::Nothing),
        (OnCordon::Always, "", &leave),
        (OnCordon::Never, "{key: node, effect: NoSchedule}", &Asked::Nothing),
    ] {
        let config = Config { on_cordon, ..config() };
        assert_eq!(&asked(&config, Some(&cordoned(taints))), expected, "{on_cordon:?} {taints}");
    }
    let with_work = Config { drain_taints: vec![taint("work", Some("disk"), None)], ..config() };
    let tainted = cordoned("{key: work, effect: NoSchedule}");
    assert_eq!(asked(&with_work, Some(&tainted)), Asked::Nothing, "a taint for some work does not make it dedicated");
    let open = node("{taints: [{key: node, effect: NoSchedule}]}");
    assert_eq!(asked(&config(), Some(&open)), Asked::Nothing);
}

#[test]
fn taints_ask_by_key_and_where_given_by_value_and_effect() {
    let tainted = node("{taints: [{key: node, effect: NoSchedule}, {key: work, value: disk, effect: NoExecute}]}");
    let asked_with = |taint| asked(&Config { drain_taints: vec![taint], ..config() }, Some(&tainted));
    let leave = Asked::Leave("the Node has the taint work=disk:NoExecute".to_owned());
    assert_eq!(asked_with(taint("work", None, None)), leave);
    assert_eq!(asked_with(taint("work", Some("disk"), Some("NoExecute"))), leave);
    assert_eq!(asked_with(taint("work", Some("fan"), None)), Asked::Nothing);
    assert_eq!(asked_with(taint("work", None, Some("NoSchedule"))), Asked::Nothing);
    assert_eq!(asked_with(taint("node", Some(""), None)), Asked::Leave("the Node has the taint node:NoSchedule".to_owned()));
    assert_eq!(asked_with(taint("disk", None, None)), Asked::Nothing);
}

#[test]
fn a_node_that_is_not_known_or_not_ready_asks_for_nothing() {
    assert_eq!(asked(&config(), None), Asked::Unknown);
    assert_eq!(asked(&config(), Some(&Snapshot::default())), Asked::Unknown);
    let text = "apiVersion: v1\nkind: Node\nmetadata: {name: node1}\nspec: {taints: [{key: node, effect: NoSchedule}, \
                {key: node.kubernetes.io/unreachable, effect: NoExecute}]}\nstatus: {conditions: [{type: Ready, status: Unknown}]}\n";
    assert_eq!(asked(&Config { on_cordon: OnCordon::Always, ..config() }, Some(&snapshot_of(text))), Asked::Nothing);
}
