// SPDX-License-Identifier: Apache-2.0
//! The definitions in a real API server: installed by whoever comes, and refusing what our own checks refuse.

use std::process::Output;

use kube::Api;
use kube::api::{ApiResource, DeleteParams, DynamicObject, GroupVersionKind, PostParams};
use serde_json::Value;

use crate::apiserver::block_on;
use crate::scene::{Scene, documents, root};

fn outcomes(ended: &Output) -> Vec<String> {
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    let text = String::from_utf8(ended.stdout.clone()).unwrap();
    text.lines().filter_map(|line| line.split_once(": ")).map(|(_, outcome)| outcome.to_owned()).collect()
}

fn api(client: &kube::Client, object: &Value) -> Api<DynamicObject> {
    let (group, version) = object["apiVersion"].as_str().unwrap().split_once('/').unwrap();
    let kind = object["kind"].as_str().unwrap();
    let plural = format!("{}es", kind.to_lowercase());
    let resource = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), &plural);
    Api::namespaced_with(client.clone(), "default", &resource)
}

#[test]
fn they_are_installed_once_and_stay_when_they_are_newer() {
    block_on(async || {
        let scene = Scene::bare().await;
        let (one, other) = (scene.apply_definitions().await, scene.apply_definitions().await);
        assert_eq!(outcomes(&one), ["created"; 3]);
        assert_eq!(outcomes(&other), ["unchanged"; 3]);

        let name = "lvsingresses.routing.lvsingress.ericsson.com";
        scene.server.kubectl(&["annotate", "--overwrite", "crd", name, "vipherald.io/crd-revision=1000"], "");
        scene.server.kubectl(&["annotate", "--overwrite", "crd", "routernodes.vipherald.io", "vipherald.io/crd-revision=0"], "");
        assert_eq!(outcomes(&scene.apply_definitions().await), ["unchanged", "is of a later version and stays as it is", "updated"]);
        assert_eq!(scene.server.kubectl(&["get", "lvsi,eri,rn", "--all-namespaces"], ""), "");
    });
}

#[test]
fn the_server_judges_objects_as_our_own_checks_do() {
    let table: Vec<Value> = serde_saphyr::from_str(include_str!("../objects/ingress.yaml")).unwrap();
    block_on(async || {
        let scene = Scene::new().await;
        let client = scene.server.administrator().await;
        let mut wrong = Vec::new();
        for row in table {
            let mut object = row["object"].clone();
            object["metadata"]["namespace"] = "default".into();
            let answer = api(&client, &object).create(&PostParams { dry_run: true, ..PostParams::default() }, &parsed(&object)).await;
            if answer.is_ok() != row["good"].as_bool().unwrap() {
                wrong.push(format!("{}: {:?}", object["metadata"]["name"], answer.err().map(|error| error.to_string())));
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    });
}

#[test]
fn examples_are_accepted_and_columns_shown() {
    block_on(async || {
        let scene = Scene::new().await;
        let client = scene.server.administrator().await;
        let mut stored = 0;
        for file in ["eric-ingress.yaml", "lvs-ingress.yaml", "dual-stack.yaml", "nginx.yaml"] {
            let text = std::fs::read_to_string(root("examples/manifests").join(file)).unwrap();
            let ours = documents(&text).into_iter().filter(|object| object["kind"].as_str().is_some_and(|kind| kind.ends_with("Ingress")));
            for object in ours {
                api(&client, &object).create(&PostParams::default(), &parsed(&object)).await.unwrap();
                stored += 1;
            }
        }
        assert!(stored >= 2);
        let table = scene.server.kubectl(&["get", "eri", "mscm"], "");
        assert!(table.contains("10.232.35.199") && table.contains("mscm"), "{table}");

        let object = serde_json::json!({"apiVersion": "routing.lvsingress.ericsson.com/v1alpha1", "kind": "LvsIngress"});
        api(&client, &object).delete("tcpserver7", &DeleteParams::default()).await.unwrap();
    });
}

fn parsed(object: &Value) -> DynamicObject {
    serde_json::from_value(object.clone()).unwrap()
}
