// SPDX-License-Identifier: Apache-2.0
//! The rights of the chart are enough, and none of them is too much: each verb that is taken away is missed, and named.

use serde_json::Value;

use crate::accounts::RIGHTS;
use crate::apiserver::block_on;
use crate::scene::{Scene, documents};

/// The role with this name.
fn role(name: &str) -> Value {
    documents(RIGHTS).into_iter().find(|role| role["metadata"]["name"] == name).unwrap()
}

/// Each right of a role, as verb and resource.
fn rights(role: &Value) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let list = |value: &Value| -> Vec<String> { value.as_array().unwrap().iter().map(text).collect() };
    let mut rights = Vec::new();
    for rule in role["rules"].as_array().unwrap() {
        for group in list(&rule["apiGroups"]) {
            for resource in list(&rule["resources"]) {
                let resource = if group.is_empty() { resource } else { format!("{resource}.{group}") };
                rights.extend(list(&rule["verbs"]).into_iter().map(|verb| (verb, resource.clone())));
            }
        }
    }
    rights
}

/// The role without this right: each resource has a rule of its own.
fn without(role: &Value, verb: &str, resource: &str) -> Value {
    let mut role = role.clone();
    let mut rules = Vec::new();
    for rule in role["rules"].as_array().unwrap() {
        let group = rule["apiGroups"][0].as_str().unwrap();
        for plural in rule["resources"].as_array().unwrap() {
            let mut own = rule.clone();
            own["resources"] = Value::from(vec![plural.clone()]);
            let full = if group.is_empty() { plural.as_str().unwrap().to_owned() } else { format!("{}.{group}", plural.as_str().unwrap()) };
            if full == resource {
                own["verbs"].as_array_mut().unwrap().retain(|other| other != verb);
            }
            if !own["verbs"].as_array().unwrap().is_empty() {
                rules.push(own);
            }
        }
    }
    role["rules"] = Value::from(rules);
    role
}

#[test]
fn each_right_of_the_daemon_is_missed_by_name() {
    block_on(async || {
        let scene = Scene::new().await;
        let role = role("vipherald");
        // Those to write, and to read what was written, are missed in tests/kubernetes_status/rights.rs.
        let reads = |verb: &str, resource: &str| matches!(verb, "list" | "watch") && !resource.starts_with("routernodes");
        let rights: Vec<_> = rights(&role).into_iter().filter(|(verb, resource)| reads(verb, resource)).collect();
        assert_eq!(rights.len(), 16);
        for (verb, resource) in rights {
            scene.apply(&without(&role, &verb, &resource).to_string());
            scene.until_allowed("vipherald", &verb, &resource, false).await;
            let mut followed = scene.follow().await;
            let expected = format!("the right to {verb} {resource} is missing");
            followed.until_health(&expected, |health| health.troubles().iter().any(|trouble| trouble.contains(&expected))).await;
            if verb == "list" {
                assert!(followed.snapshots.borrow().is_none(), "{verb} {resource}");
            }
            scene.apply(&role.to_string());
            scene.until_allowed("vipherald", &verb, &resource, true).await;
            followed.until_well().await;
        }
    });
}

#[test]
fn each_right_of_the_hook_is_missed() {
    block_on(async || {
        let scene = Scene::bare().await;
        let role = role("vipherald-crds");
        let verbs: Vec<(String, String)> = rights(&role);
        assert_eq!(verbs.iter().map(|(verb, _)| verb.as_str()).collect::<Vec<_>>(), ["create", "get", "patch"]);
        for (verb, resource) in verbs {
            scene.apply(&without(&role, &verb, &resource).to_string());
            // The rules with resourceNames show in what is refused, and nowhere else.
            crate::common::wait_until_async(&format!("{verb} is missed"), crate::scene::LIMIT, async || {
                let ended = scene.apply_definitions().await;
                let forbidden = String::from_utf8_lossy(&ended.stderr).contains("forbidden");
                ended.status.code() == Some(1) && forbidden
            })
            .await;
            assert_eq!(scene.server.kubectl(&["get", "crd", "--output=name"], ""), "", "{verb}");
        }
        scene.apply(&role.to_string());
        crate::common::wait_until_async("with all of them it works", crate::scene::LIMIT, async || {
            scene.apply_definitions().await.status.success()
        })
        .await;
    });
}
