// SPDX-License-Identifier: Apache-2.0
//! The chart as a part of another one, twice.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::chart::{KUBERNETES, chart, helm, list, objects};
use crate::common::run;

/// A chart that has this one twice, with what it says for all of its parts.
fn umbrella() -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let part = |alias: &str| json!({"name": "vipherald", "alias": alias, "version": "0.1.0", "condition": format!("{alias}.enabled")});
    let chart_yaml = json!({"apiVersion": "v2", "name": "site", "version": "1.0.0", "dependencies": [part("services"), part("scripting")]});
    fs::write(path("Chart.yaml"), chart_yaml.to_string()).unwrap();
    let part = |domain: &str, port: u16| {
        json!({
            "enabled": true,
            "config": {
                "domain": domain,
                "vips": {"allow": [{"prefix": "10.0.0.0/24"}]},
                "bgp": {"asn": 65001},
                "http": {"address": format!("0.0.0.0:{port}")},
            },
        })
    };
    let values = json!({
        "global": {"imageRegistry": "registry.example.com/site", "imagePullSecrets": ["site-registry"], "timezone": "UTC"},
        "services": part("enm", 9479),
        "scripting": part("scripting", 9480),
    });
    fs::write(path("values.yaml"), values.to_string()).unwrap();
    fs::create_dir(path("charts")).unwrap();
    run(Command::new("cp").arg("-r").arg(chart()).arg(path("charts/vipherald")));
    directory
}

fn render(umbrella: &Path, words: &[&str]) -> Vec<Value> {
    objects(&run(helm().args(["template", "site"]).arg(umbrella).args(["--namespace=routing", KUBERNETES]).args(words)))
}

/// What of it belongs to which part, by the label that its alias gives.
fn parts(objects: &[Value]) -> BTreeMap<&str, Vec<&Value>> {
    let mut parts: BTreeMap<&str, Vec<&Value>> = BTreeMap::new();
    for object in objects {
        parts.entry(object["metadata"]["labels"]["app.kubernetes.io/name"].as_str().unwrap()).or_default().push(object);
    }
    parts
}

#[test]
fn two_of_them_in_one_chart_share_nothing() {
    let umbrella = umbrella();
    let objects = render(umbrella.path(), &[]);
    let name = |object: &Value| (object["kind"].to_string(), object["metadata"]["name"].to_string());
    assert_eq!(objects.iter().map(name).collect::<BTreeSet<_>>().len(), objects.len(), "an object is there twice");
    let parts = parts(&objects);
    assert_eq!(parts.keys().copied().collect::<Vec<_>>(), ["scripting", "services"]);
    assert_eq!(parts["scripting"].len(), parts["services"].len());
    for (part, objects) in parts {
        let daemon = objects.iter().find(|object| object["kind"] == "DaemonSet").unwrap();
        assert_eq!(daemon["metadata"]["name"], format!("site-{part}"));
        let map = objects
            .iter()
            .find(|object| object["kind"] == "ConfigMap" && object["metadata"]["name"] == daemon["metadata"]["name"])
            .unwrap();
        let config: Value = serde_saphyr::from_str(map["data"]["vipherald.yaml"].as_str().unwrap()).unwrap();
        assert_eq!(config["instance"], format!("site-{part}"));
        assert_eq!(config["drain"]["workload"], format!("DaemonSet/routing/site-{part}"));
    }
}

#[test]
fn what_is_said_for_all_parts_holds_for_each() {
    let umbrella = umbrella();
    let mut pods = 0;
    for object in render(umbrella.path(), &["--set", "services.imagePullSecrets={own},services.image.registry=other.example.com"]) {
        let pod = &object["spec"]["template"]["spec"];
        if pod.is_null() {
            continue;
        }
        pods += 1;
        for container in list(&pod["containers"]) {
            assert_eq!(container["image"], "registry.example.com/site/vipherald/vipherald:0.1.0", "{}", object["metadata"]["name"]);
        }
        let own = object["metadata"]["labels"]["app.kubernetes.io/name"] == "services";
        let expected = if own { json!([{"name": "site-registry"}, {"name": "own"}]) } else { json!([{"name": "site-registry"}]) };
        assert_eq!(pod["imagePullSecrets"], expected, "{}", object["metadata"]["name"]);
    }
    assert!(pods >= 4, "only {pods} pods");
}

#[test]
fn a_part_can_be_switched_off() {
    let umbrella = umbrella();
    let objects = render(umbrella.path(), &["--set", "scripting.enabled=false"]);
    assert_eq!(parts(&objects).keys().copied().collect::<Vec<_>>(), ["services"]);
}

#[test]
fn a_digest_counts_more_than_a_tag() {
    let digest = format!("sha256:{}", "0".repeat(64));
    let umbrella = umbrella();
    let objects = render(umbrella.path(), &["--set-string", &format!("services.image.tag=1,services.image.digest={digest}")]);
    let of_services = parts(&objects)["services"].iter().find(|object| object["kind"] == "DaemonSet").unwrap()["spec"]["template"]["spec"]
        ["containers"][0]["image"]
        .clone();
    assert_eq!(of_services, format!("registry.example.com/site/vipherald/vipherald@{digest}"));
}
