// SPDX-License-Identifier: Apache-2.0
//! What values are refused, and with which words. The part of `values.schema.json` below `config` is made from the keys that the daemon knows.

use std::fs;

use serde_json::{Map, Value, json};
use vipherald::config::KEYS;

use crate::chart::{chart, refusal, root, template, update};

/// Keys of a peer that say who it is and how it is reached: dynamic peers have all others.
const OF_CONFIGURED_PEERS: [&str; 8] = ["name", "nodeSelector", "address", "gateway", "port", "source", "interface", "passive"];

/// An example of every key tells which ones are lists.
fn example() -> Value {
    serde_saphyr::from_str(&fs::read_to_string(root("examples/config/all-keys.yaml")).unwrap()).unwrap()
}

/// The value at a path such as `bgp.peers[].tcpAo.keys[].sendId`, from the first element of a list that has it.
fn at<'a>(value: &'a Value, path: &str) -> Option<&'a Value> {
    let Some((step, rest)) = path.split_once('.') else { return value.get(path) };
    match step.strip_suffix("[]") {
        Some(key) => value.get(key)?.as_array()?.iter().find_map(|element| at(element, rest)),
        None => at(value.get(step)?, rest),
    }
}

/// A value that is no list: what it has to be is the daemon's to say, and it may be a variable.
fn leaf(example: &Value) -> Value {
    let scalar = json!({"type": ["string", "number", "boolean"]});
    if example.is_array() { json!({"type": "array", "items": scalar}) } else { scalar }
}

fn object() -> Value {
    json!({"type": "object", "additionalProperties": false, "properties": {}})
}

fn insert(schema: &mut Value, path: &str, leaf: Value) {
    let properties = schema["properties"].as_object_mut().unwrap();
    let Some((step, rest)) = path.split_once('.') else {
        properties.insert(path.to_owned(), leaf);
        return;
    };
    match step.strip_suffix("[]") {
        Some(key) => {
            let list = properties.entry(key).or_insert_with(|| json!({"type": "array", "items": object()}));
            insert(&mut list["items"], rest, leaf);
        }
        None => insert(properties.entry(step).or_insert_with(object), rest, leaf),
    }
}

/// The schema of the value `config`.
fn config_schema() -> Value {
    let example = example();
    let mut schema = object();
    for key in KEYS {
        let leaf = leaf(at(&example, key.path).unwrap_or_else(|| panic!("examples/config/all-keys.yaml has no {}", key.path)));
        insert(&mut schema, key.path, leaf);
    }
    let peers = schema["properties"]["bgp"]["properties"]["peers"]["items"]["properties"].as_object().unwrap().clone();
    let dynamic: Map<String, Value> = peers.into_iter().filter(|(key, _)| !OF_CONFIGURED_PEERS.contains(&key.as_str())).collect();
    schema["properties"]["bgp"]["properties"]["listen"]["properties"].as_object_mut().unwrap().extend(dynamic);
    // A list, or the word 'auto'.
    schema["properties"]["vrrp"]["properties"]["groups"]["items"]["properties"]["peers"]["type"] = json!(["array", "string"]);
    schema["properties"]["vips"]["required"] = json!(["allow"]);
    schema["properties"]["vips"]["properties"]["allow"]["items"]["required"] = json!(["prefix"]);
    schema["required"] = json!(["vips"]);
    schema["description"] =
        "The configuration of the daemon: docs/configuration.md. The daemon itself says what is wrong with a value.".into();
    schema
}

#[test]
fn the_schema_knows_the_keys_that_the_daemon_knows() {
    let path = chart().join("values.schema.json");
    let written: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    let mut expected = written.clone();
    expected["properties"]["config"] = config_schema();
    if update() {
        fs::write(&path, format!("{expected:#}\n")).unwrap();
    } else {
        assert!(written == expected, "{}: keys of the daemon have changed (UPDATE_GOLDENS=1 writes it anew)", path.display());
    }
}

/// The keys of values.yaml, with a section's keys below it. What is empty there has keys of the user's own.
fn keys(value: &Value, path: &str, found: &mut Vec<String>) {
    match value.as_object() {
        Some(map) if !map.is_empty() => map.iter().for_each(|(key, value)| keys(value, &format!("{path}.{key}"), found)),
        _ => found.push(path.trim_start_matches('.').to_owned()),
    }
}

#[test]
fn the_schema_knows_the_values_that_there_are() {
    let values: Value = serde_saphyr::from_str(&fs::read_to_string(chart().join("values.yaml")).unwrap()).unwrap();
    let schema: Value = serde_json::from_str(&fs::read_to_string(chart().join("values.schema.json")).unwrap()).unwrap();
    let mut expected = Vec::new();
    keys(&values, "", &mut expected);
    expected.retain(|key| !key.starts_with("config"));
    let mut known = Vec::new();
    collect(&schema, "", &mut known);
    known.retain(|key| !key.starts_with("config") && key != "enabled" && !key.contains(".limits") && !key.contains(".requests"));
    for (key, section) in
        [("nodeSelector", "node"), ("resources", "limits"), ("hooks.resources", "limits"), ("nodeSetup.resources", "limits")]
    {
        // Keys of Kubernetes', of which there are many.
        expected.retain(|found| !found.starts_with(&format!("{key}.{section}")) && !found.starts_with(&format!("{key}.requests")));
        expected.push(key.to_owned());
    }
    known.extend(["resources", "hooks.resources", "nodeSetup.resources"].map(str::to_owned));
    expected.sort();
    known.sort();
    assert_eq!(known, expected);
}

fn collect(schema: &Value, path: &str, found: &mut Vec<String>) {
    match schema["properties"].as_object() {
        Some(properties) => properties.iter().for_each(|(key, schema)| collect(schema, &format!("{path}.{key}"), found)),
        None => found.push(path.trim_start_matches('.').to_owned()),
    }
}

/// Every value has its comment right before it, but for those whose name is Kubernetes' own.
#[test]
fn every_value_is_explained() {
    let text = fs::read_to_string(chart().join("values.yaml")).unwrap();
    let known = ["requests", "limits", "cpu", "memory", "node", "repository", "pullPolicy", "resources", "key", "operator", "value"];
    let mut explained = false;
    for line in text.lines().map(|line| line.trim().trim_start_matches("- ")).filter(|line| !line.is_empty()) {
        let comment = line.starts_with('#');
        let key = line.split(':').next().unwrap();
        assert!(comment || explained || line.ends_with(':') || known.contains(&key), "nothing explains '{line}'");
        // What is said of a section holds for its first value.
        explained = comment || explained && line.ends_with(':');
    }
}

#[test]
fn a_slip_of_the_pen_is_refused_with_the_name_of_the_key() {
    let good = ["--set", "config.vips.allow[0].prefix=10.0.0.0/24"];
    assert!(template(&good).status.success());
    let typos = [
        ("nodeSelecter.a=b", "nodeSelecter"),
        ("image.tags=1", "tags"),
        ("workload.kind=Deployment", "kind"),
        ("realtime=ja", "realtime"),
        ("hooks.timeout=1", "timeout"),
        ("resources.limits.cpu=1,resources.limits.memory=null", "memory"),
        ("podDisruptionBudget.minAvailable=50%", "minAvailable"),
        ("env.NODE_NAME=x", "NODE_NAME"),
        ("config.bpg.asn=1", "bpg"),
        ("config.bgp.peers[0].adress=10.0.0.1", "adress"),
        ("config.bgp.peers[0].timers.holt=9s", "holt"),
        ("config.bgp.listen.passive=true", "passive"),
        ("config.vips.allow[0].prefixes=1", "prefixes"),
        ("config.drain.gracefulShutDown=5s", "gracefulShutDown"),
        ("config.bgp=65001", "bgp"),
        ("config.dataplane.setSysctls[0]=x", "setSysctls"),
    ];
    for (typo, named) in typos {
        let said = refusal(&[&good[..], &["--set", typo]].concat());
        assert!(said.contains("don't meet the specifications of the schema") && said.contains(named), "{typo}: {said}");
    }
}

#[test]
fn which_vips_are_allowed_has_to_be_said() {
    for words in [&[][..], &["--set", "config.bgp.asn=65001"], &["--set", "config.vips.withoutEndpoints=announce"]] {
        let said = refusal(words);
        assert!(said.contains("allow") || said.contains("vips"), "{words:?}: {said}");
    }
    assert!(template(&["--set-json", "config.vips.allow=[]"]).status.success(), "none at all are an answer");
}

#[test]
fn an_instance_that_cannot_be_is_refused() {
    let said = refusal(&["--set", "config.vips.allow[0].prefix=10.0.0.0/24,config.instance=9a"]);
    assert!(said.contains("config.instance: expected 1 to 63 of a-z"), "{said}");
}
