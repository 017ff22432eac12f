// SPDX-License-Identifier: Apache-2.0
//! The table of keys: example, reference and code know the same ones, each is read, and no value of any panics.

use std::collections::BTreeSet;

use proptest::prelude::*;
use vipherald::config::{KEYS, load};

use crate::{environment, read, root};

/// `bgp.peers[].asn`, found in a file that nests `bgp`, `peers`, a list and `asn`.
fn keys_of(value: &serde_json::Value, path: &str, keys: &mut BTreeSet<String>) {
    match value {
        serde_json::Value::Object(map) => {
            for (key, value) in map {
                keys_of(value, &if path.is_empty() { key.clone() } else { format!("{path}.{key}") }, keys);
            }
        }
        serde_json::Value::Array(list) if list.iter().any(serde_json::Value::is_object) => {
            list.iter().for_each(|value| keys_of(value, &format!("{path}[]"), keys));
        }
        _ => {
            keys.insert(path.to_owned());
        }
    }
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

    let reference = std::fs::read_to_string(root("docs/configuration.md")).unwrap();
    let rows: Vec<Vec<&str>> = reference
        .lines()
        .filter(|line| line.starts_with("| `"))
        .map(|line| line.split(" | ").map(|cell| cell.trim_matches(['|', ' ', '`'])).collect())
        .collect();
    let documented: Vec<(&str, &str)> = rows.iter().map(|row| (row[0], row[row.len() - 1])).collect();
    assert_eq!(documented, KEYS.iter().map(|key| (key.path, key.effect.as_str())).collect::<Vec<_>>(), "docs/configuration.md");
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
        let mut json = serde_json::Value::String(value);
        for part in KEYS[key].path.rsplit('.') {
            json = match part.strip_suffix("[]") {
                Some(name) => serde_json::json!({name: [json]}),
                None => serde_json::json!({part: json}),
            };
        }
        drop(read(&json.to_string()));
    }
}
