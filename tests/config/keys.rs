// SPDX-License-Identifier: Apache-2.0
//! The table of keys: example, reference and code know the same ones, each is read, and no value of any panics.

use std::collections::BTreeSet;

use proptest::prelude::*;
use serde_json::{Value, json};
use vipherald::config::{KEYS, changes, load};

use crate::{environment, read, root};

/// `bgp.peers[].asn`, found in a file that nests `bgp`, `peers`, a list and `asn`.
fn keys_of(value: &Value, path: &str, keys: &mut BTreeSet<String>) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                keys_of(value, &if path.is_empty() { key.clone() } else { format!("{path}.{key}") }, keys);
            }
        }
        Value::Array(list) if list.iter().any(Value::is_object) => {
            list.iter().for_each(|value| keys_of(value, &format!("{path}[]"), keys));
        }
        _ => {
            keys.insert(path.to_owned());
        }
    }
}

/// The cells of each row of the table of keys.
fn rows(reference: &str) -> impl Iterator<Item = Vec<&str>> {
    reference.lines().filter(|line| line.starts_with("| `")).map(|line| line.split(" | ").collect())
}

fn word(cell: &str) -> &str {
    cell.trim_matches(['|', ' ', '`'])
}

#[test]
fn example_reference_and_code_know_the_same_keys() {
    let code: BTreeSet<String> = KEYS.iter().map(|key| key.path.to_owned()).collect();
    assert_eq!(code.len(), KEYS.len(), "no key twice");
    // Dynamic peers have keys of peers.
    let known = |key: String| if code.contains(&key) { key } else { key.replace("bgp.listen.", "bgp.peers[].") };

    let mut keys = BTreeSet::new();
    let example = root("examples/config/all-keys.yaml");
    load(&example, &environment()).unwrap();
    keys_of(&serde_saphyr::from_str(&std::fs::read_to_string(example).unwrap()).unwrap(), "", &mut keys);
    assert_eq!(keys.into_iter().map(known).collect::<BTreeSet<_>>(), code, "examples/config/all-keys.yaml");

    let text = std::fs::read_to_string(root("docs/configuration.md")).unwrap();
    let documented: Vec<(&str, &str)> = rows(&text).map(|row| (word(row[0]), word(row[row.len() - 1]))).collect();
    assert_eq!(documented, KEYS.iter().map(|key| (key.path, key.effect.as_str())).collect::<Vec<_>>(), "docs/configuration.md");
}

/// Values that are the default and that the reference does not write as they stand in a file.
fn in_other_words(key: &str, default: &str) -> Option<Value> {
    Some(match key {
        "bgp.clusterId" => json!("192.0.2.1"),
        "bgp.peers[].tcpAo.keys[].recvId" => json!(1),
        "bgp.peers[].families" => json!(["ipv6-unicast", "ipv4-unicast"]),
        "dataplane.mssClamp" => json!("off"),
        "vrrp.groups[].peers" | "vrrp.groups[].source.ipv4" | "vrrp.groups[].source.ipv6" => return None,
        "stateDir" => json!("/run/vipherald/vipherald"),
        "bgp.policies[].prefixes" => json!([]),
        _ if key.to_lowercase().ends_with("communities") => json!([]),
        _ => serde_saphyr::from_str(default.strip_prefix('`')?.split('`').next()?).unwrap(),
    })
}

/// What a key needs around it. The peers are external ones.
fn around(key: &str) -> Value {
    let peer = json!({"name": "tor", "address": "192.0.2.9", "asn": 65_002});
    let mut peers = json!([peer]);
    if key.contains("gracefulRestart") {
        merge(&mut peers, &json!([{"gracefulRestart": {"restartTime": "60s"}}]));
    }
    if key.contains("tcpAo") {
        merge(&mut peers, &json!([{"tcpAo": {"keys": [{"sendId": 1, "passwordFile": "/k"}]}}]));
    }
    let mut listen = peers[0].clone();
    listen.as_object_mut().unwrap().retain(|key, _| key != "name" && key != "address");
    merge(&mut listen, &json!({"address": "0.0.0.0", "prefixes": ["192.0.2.0/25"]}));
    let bgp =
        json!({"asn": 65_001, "listen": listen, "peers": peers, "policies": [{"name": "gold"}], "aggregates": [{"prefix": "10.0.0.0/24"}]});
    let mut file = json!({"bgp": bgp});
    if key.starts_with("vrrp.") {
        let group = json!({"name": "main", "interface": "eth1", "virtualRouterId": 7, "addresses": ["10.0.0.9"]});
        merge(&mut file, &json!({"vrrp": {"groups": [group]}}));
    }
    if key == "bgp.clusterId" {
        merge(&mut file, &json!({"bgp": {"routerId": "192.0.2.1"}}));
    }
    if key.contains("connectionSync") {
        merge(&mut file, &json!({"dataplane": {"type": "ipvs", "connectionSync": {"interface": "eth1"}}}));
    }
    file
}

/// Puts one value over another; of lists of maps, element over element.
fn merge(into: &mut Value, from: &Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            from.iter().for_each(|(key, value)| merge(into.entry(key).or_insert(json!({})), value))
        }
        (Value::Array(into), Value::Array(from)) if from.iter().any(Value::is_object) => {
            into.iter_mut().zip(from).for_each(|(into, from)| merge(into, from));
        }
        (into, from) => *into = from.clone(),
    }
}

/// A value in a file that has nothing else.
fn alone(key: &str, value: Value) -> Value {
    key.rsplit('.').fold(value, |below, name| match name.strip_suffix("[]") {
        Some(list) => json!({list: [below]}),
        None => json!({name: below}),
    })
}

/// Whoever writes down what is in force anyway must not lose a session by it.
#[test]
fn a_default_that_is_written_down_changes_nothing() {
    const OF_ONE_PEER: [&str; 6] = ["name", "nodeSelector", "address", "gateway", "port", "passive"];
    let reference = std::fs::read_to_string(root("docs/configuration.md")).unwrap();
    let (mut written, mut changed) = (0, Vec::new());
    for row in rows(&reference) {
        let key = word(row[0]);
        let Some(default) = in_other_words(key, row[1]) else { continue };
        let of_dynamic_peers = key.strip_prefix("bgp.peers[].").filter(|name| !OF_ONE_PEER.contains(name));
        for key in [key.to_owned()].into_iter().chain(of_dynamic_peers.map(|name| format!("bgp.listen.{name}"))) {
            let without = around(&key);
            let mut with = without.clone();
            merge(&mut with, &alone(&key, default.clone()));
            let [old, new] = [without, with].map(|file| read(&file.to_string()).unwrap_or_else(|error| panic!("{error}: {file}")));
            if old != new || !changes(&old, &new).is_empty() {
                changed.push(format!("{key}: {default}"));
            }
            written += 1;
        }
    }
    assert_eq!(changed, [""; 0]);
    assert!(written > 90, "{written}");
}

/// A key that the table has and nobody reads would be silently ignored.
#[test]
fn each_key_of_the_table_is_read() {
    for key in KEYS {
        let mut text = "!wrong".to_owned();
        for part in key.path.rsplit('.') {
            text = match part.strip_suffix("[]") {
                Some(name) => format!("{{\"{name}\": [{text}]}}"),
                None => format!("{{\"{part}\": {text}}}"),
            };
        }
        let answer = read(&text.replace("!wrong", "{x: 1}")).unwrap_err();
        assert!(answer.contains(&format!("{}: expected ", key.path.replace("[]", "[0]"))), "{}: {answer}", key.path);
    }
}

proptest! {
    #[test]
    fn no_text_panics(text in any::<String>()) {
        drop(read(&text));
    }

    #[test]
    fn no_text_of_yaml_panics(text in "([a-z]{1,4}|bgp|peers|asn|- |: |\n|  |\\{|\\}|\\[|\\]|\\$\\{|'|\"|[0-9]{1,4}|&a |\\*a|<<: |!!int |\\.nan|\t|#|\\||>|-){0,60}") {
        drop(read(&text));
    }

    #[test]
    fn no_value_of_any_key_panics(key in 0..KEYS.len(), value in any::<String>()) {
        let mut json = Value::String(value);
        for part in KEYS[key].path.rsplit('.') {
            json = match part.strip_suffix("[]") {
                Some(name) => json!({name: [json]}),
                None => json!({part: json}),
            };
        }
        drop(read(&json.to_string()));
    }
}
