// SPDX-License-Identifier: Apache-2.0
//! The rights to write are enough, and none of them is too much: each verb that is taken away is missed, and named, and all else goes on.

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::accounts::RIGHTS;
use crate::cluster::{Cluster, LIMIT, NFTABLES, OBJECTS, RouterNode, stays};
use crate::common::wait_until;

/// The role of this kind and name that the daemon has.
fn role(kind: &str, name: &str) -> Value {
    let roles: Vec<Value> = serde_saphyr::from_multiple(RIGHTS).unwrap();
    roles.into_iter().find(|role| role["kind"] == kind && role["metadata"]["name"] == name).unwrap()
}

fn words(value: &Value) -> Vec<String> {
    value.as_array().unwrap().iter().map(|word| word.as_str().unwrap().to_owned()).collect()
}

/// A resource with its group behind, as messages have it.
fn full(group: &str, resource: &str) -> String {
    if group.is_empty() { resource.to_owned() } else { format!("{resource}.{group}") }
}

/// Each right of a role, as verb and resource.
fn rights(role: &Value) -> Vec<(String, String)> {
    let of_rule = |rule: &Value| {
        let group = words(&rule["apiGroups"]).remove(0);
        let resources: Vec<String> = words(&rule["resources"]).iter().map(|resource| full(&group, resource)).collect();
        let verbs = words(&rule["verbs"]);
        resources
            .into_iter()
            .flat_map(|resource| verbs.iter().map(|verb| (verb.clone(), resource.clone())).collect::<Vec<_>>())
            .collect::<Vec<_>>()
    };
    role["rules"].as_array().unwrap().iter().flat_map(of_rule).collect()
}

/// The role without this right: each resource has a rule of its own.
fn without(role: &Value, verb: &str, resource: &str) -> Value {
    let mut rules = Vec::new();
    for rule in role["rules"].as_array().unwrap() {
        let group = words(&rule["apiGroups"]).remove(0);
        for plural in words(&rule["resources"]) {
            let mut own = rule.clone();
            if full(&group, &plural) == resource {
                own["verbs"].as_array_mut().unwrap().retain(|other| other != verb);
            }
            own["resources"] = vec![plural].into();
            if !words(&own["verbs"]).is_empty() {
                rules.push(own);
            }
        }
    }
    let mut role = role.clone();
    role["rules"] = rules.into();
    role
}

#[test]
fn each_right_to_write_is_missed_by_name() {
    let cluster = Cluster::new();
    let mut node = RouterNode::new(&cluster, "n1", NFTABLES);
    let mut tried = 0;
    // What it is to label its Node with.
    let address = r#"{"status": {"addresses": [{"type": "InternalIP", "address": "192.0.2.11"}]}}"#;
    cluster.server.kubectl(&["patch", "node", "n1", "--subresource=status", "--type=merge", "--patch", address], "");
    for (kind, name) in [("ClusterRole", "vipherald"), ("ClusterRole", "vipherald-node-label"), ("Role", "vipherald")] {
        let role = role(kind, name);
        // Those by which objects are read are missed in tests/kubernetes_source/rights.rs.
        let read_only = |verb: &str, resource: &str| matches!(verb, "list" | "watch") && !resource.starts_with("routernodes");
        for (verb, resource) in rights(&role).into_iter().filter(|(verb, resource)| !read_only(verb, resource)) {
            cluster.server.kubectl(&["apply", "--namespace=vip", "-f", "-"], &without(&role, &verb, &resource).to_string());
            wait_until(&format!("{verb} {resource} is not allowed"), LIMIT, || !cluster.may(&verb, &resource));
            cluster.apply(OBJECTS);
            node.start();
            // What the API server calls a new object by way of a patch is a matter of its own words.
            let (plural, group) = resource.split_once('.').map_or((resource.as_str(), ""), |(plural, rest)| (plural, rest));
            let words = format!("cannot {verb} resource \"{plural}\" in API group \"{group}\"");
            let told = || node.said().contains(&format!("may not {verb} {resource}")) || node.said().contains(&words);
            wait_until(&format!("it is missed: {verb} {resource}"), LIMIT, told);
            node.until_learned(&["10.0.0.7", "10.0.0.8", "10.0.0.9"]);
            if matches!(verb.as_str(), "list" | "watch") {
                let before = node.processor_time();
                let began = Instant::now();
                stays("the daemon runs", Duration::from_secs(2), || node.daemon.as_ref().unwrap().is_running());
                let busy = node.processor_time() - before;
                assert!(busy < began.elapsed() / 2, "it is busy in vain for {busy:?} of {:?}", began.elapsed());
            }
            node.kill();
            cluster.server.kubectl(&["apply", "--namespace=vip", "-f", "-"], &role.to_string());
            wait_until(&format!("{verb} {resource} is allowed"), LIMIT, || cluster.may(&verb, &resource));
            // All is to be written again.
            cluster.server.kubectl(&["delete", "--ignore-not-found", "-f", "-"], OBJECTS);
            cluster.server.kubectl(&["delete", "--ignore-not-found", "routernode", "vipherald-n1"], "");
            cluster.server.kubectl(&["delete", "--ignore-not-found", "--namespace=vip", "lease", "vipherald"], "");
            cluster.server.kubectl(&["label", "node", "n1", "externalIP-"], "");
            tried += 1;
        }
    }
    assert_eq!(tried, 13);
    cluster.apply(OBJECTS);
    node.start();
    cluster.until_conditions("ericingress", "eric", ["True=Accepted", "True=Programmed", "True=Announced"]);
    wait_until("nothing is missed", LIMIT, || !node.said().contains("may not"));
}
