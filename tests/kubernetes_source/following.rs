// SPDX-License-Identifier: Apache-2.0
//! What changes in the cluster arrives, what means nothing does not, and nothing before all is known.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use vipherald::config::{Config, Environment, load};
use vipherald::desired::compile;

use crate::api_proxy::{Fault, Requests, Verb};
use crate::apiserver::block_on;
use crate::common::wait_until_async;
use crate::scene::{LIMIT, Scene, services};

#[test]
fn objects_come_change_and_go() {
    block_on(async || {
        let scene = Scene::new().await;
        let mut followed = scene.follow().await;
        followed.until_well().await;
        let first = followed.until_service("web", true).await;
        assert!(first.complete && first.rejections.is_empty(), "{:?}", first.rejections);
        assert_eq!(first.nodes.len(), 1);

        scene.add_service("other", "10.0.0.8");
        let second = followed.until_service("other", true).await;
        let (name, web) = first.services.iter().find(|(name, _)| name.name == "web").unwrap();
        assert!(Arc::ptr_eq(web, &second.services[name]), "what did not change is the same in memory");

        scene.add_service("other", "10.0.0.9");
        followed
            .until("the other address", |snapshot| {
                let mut specs =
                    snapshot.services.iter().filter(|(name, _)| name.name == "other").filter_map(|(_, other)| other.spec.as_ref());
                specs.any(|spec| spec.external_ips.as_deref() == Some(&["10.0.0.9".to_owned()]))
            })
            .await;

        let example = std::fs::read_to_string(crate::scene::root("examples/manifests/eric-ingress.yaml")).unwrap();
        scene.apply(&example);
        followed.until("the EricIngress", |snapshot| snapshot.eric_ingresses.len() == 1).await;

        scene.server.kubectl(&["-n", "enm", "delete", "service", "other"], "");
        let last = followed.until_service("other", false).await;
        assert_eq!(services(&last), ["web"]);
    });
}

#[test]
fn nothing_is_published_before_every_kind_is_read() {
    block_on(async || {
        let scene = Scene::new().await;
        scene.proxy.fault(Requests::verb(Verb::List).of("endpointslices"), Fault::Status(503));
        let mut followed = scene.follow().await;
        wait_until_async("all kinds are asked for, that one again and again", LIMIT, async || {
            let seen = scene.proxy.seen();
            let lists: Vec<&str> = seen.iter().filter(|seen| seen.verb == Verb::List).map(|seen| seen.resource.as_str()).collect();
            let watched: BTreeSet<&str> = seen.iter().filter(|seen| seen.verb == Verb::Watch).map(|seen| seen.resource.as_str()).collect();
            lists.iter().filter(|resource| **resource == "endpointslices").count() >= 3 && watched.len() == 7
        })
        .await;
        assert!(followed.snapshots.borrow().is_none());
        followed.until_health("the trouble is told", |health| health.troubles().iter().any(|trouble| trouble.contains("503"))).await;
        scene.proxy.heal();
        let first = followed.until_service("web", true).await;
        assert!(first.complete && first.endpoint_slices.keys().any(|name| name.name == "web-1"));
    });
}

#[test]
fn heartbeats_make_no_snapshot() {
    block_on(async || {
        let scene = Scene::new().await;
        let nodes = Api::<Node>::all(scene.server.administrator().await);
        let beat = async |second: u32| {
            let time = format!("2026-11-28T12:00:{second:02}Z");
            let ready = json!({"type": "Ready", "status": "True", "lastHeartbeatTime": time, "reason": "KubeletReady", "message": time});
            nodes
                .patch_status("node-1", &PatchParams::default(), &Patch::Strategic(json!({"status": {"conditions": [ready]}})))
                .await
                .unwrap();
        };
        beat(0).await;
        let mut followed = scene.follow().await;
        followed.until_well().await;
        let ready = |node: &Node| node.status.as_ref().and_then(|status| status.conditions.as_ref()).is_some_and(|all| !all.is_empty());
        followed.until("the node is ready", |snapshot| snapshot.nodes.values().any(|node| ready(node))).await;
        followed.snapshots.mark_unchanged();
        for second in 1..=20 {
            beat(second).await;
        }
        // Of the same stream, after them.
        nodes.patch("node-1", &PatchParams::default(), &Patch::Merge(json!({"spec": {"unschedulable": true}}))).await.unwrap();
        tokio::time::timeout(LIMIT, followed.snapshots.changed()).await.unwrap().unwrap();
        let next = followed.snapshots.borrow_and_update().clone().unwrap();
        let cordoned = next.nodes.values().any(|node| node.spec.as_ref().is_some_and(|spec| spec.unschedulable == Some(true)));
        assert!(cordoned, "a heartbeat has made a snapshot");
    });
}

#[test]
fn two_releases_share_a_cluster_by_domain() {
    const MARKED: &str = r#"
apiVersion: v1
kind: Namespace
metadata: {name: scripting, labels: {vipherald.io/domain: scripting}}
---
apiVersion: v1
kind: Service
metadata: {name: by-namespace, namespace: scripting}
spec: {externalIPs: [10.0.0.20], ports: [{port: 80}]}
---
apiVersion: v1
kind: Service
metadata: {name: by-object, namespace: enm, labels: {vipherald.io/domain: scripting}}
spec: {externalIPs: [10.0.0.21], ports: [{port: 80}]}
"#;
    block_on(async || {
        let scene = Scene::new().await;
        scene.apply(MARKED);
        let mut followed = scene.follow().await;
        let snapshot = followed.until("both Services are there", |snapshot| has_all(&wanted(snapshot, ""), &["10.0.0.7"])).await;
        assert_eq!(wanted(&snapshot, ""), ["10.0.0.7"]);
        assert_eq!(wanted(&snapshot, "scripting"), ["10.0.0.20", "10.0.0.21"]);

        scene.server.kubectl(&["label", "namespace", "scripting", "vipherald.io/domain-"], "");
        followed.until("the namespace has left", |snapshot| wanted(snapshot, "") == ["10.0.0.20", "10.0.0.7"]).await;
        scene.server.kubectl(&["label", "--overwrite", "namespace", "enm", "vipherald.io/domain=scripting"], "");
        let snapshot = followed.until("the other one has come", |snapshot| wanted(snapshot, "") == ["10.0.0.20"]).await;
        assert_eq!(wanted(&snapshot, "scripting"), ["10.0.0.21", "10.0.0.7"]);
    });
}

/// The VIPs that a release of this domain serves or withholds.
fn wanted(snapshot: &vipherald::source::Snapshot, domain: &str) -> Vec<String> {
    let vips = compile(snapshot, &config(domain)).desired.vips;
    let mut vips: Vec<String> = vips.keys().map(ToString::to_string).collect();
    vips.sort();
    vips
}

fn has_all(vips: &[String], expected: &[&str]) -> bool {
    expected.iter().all(|one| vips.iter().any(|vip| vip == one))
}

fn config(domain: &str) -> Config {
    let file = tempfile::NamedTempFile::new().unwrap();
    let text = format!(
        "domain: '{domain}'\nnode: {{name: node-1}}\nvips: {{allow: [{{prefix: 10.0.0.0/24}}], withoutEndpoints: announce}}\nbgp: {{asn: 65001}}\n"
    );
    std::fs::write(file.path(), text).unwrap();
    load(file.path(), &Environment::new()).unwrap()
}
