// SPDX-License-Identifier: Apache-2.0
//! EricIngress and LvsIngress objects, good and bad, as our own checks judge them. `tests/objects/ingress.yaml` is the table.
#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

use serde_json::Value;
use vipherald::api::{EricIngress, LvsIngress};

#[test]
fn our_own_checks_judge_as_the_table_says() {
    let table: Vec<Value> = serde_saphyr::from_str(include_str!("objects/ingress.yaml")).unwrap();
    assert!(table.len() > 50);
    let mut wrong = Vec::new();
    for row in table {
        let object = row["object"].clone();
        let name = object["metadata"]["name"].as_str().unwrap().to_owned();
        let judged = match object["kind"].as_str() {
            Some("EricIngress") => serde_json::from_value::<EricIngress>(object).err().map(|error| error.to_string()),
            _ => serde_json::from_value::<LvsIngress>(object).err().map(|error| error.to_string()),
        };
        if judged.is_none() != row["good"] {
            wrong.push(format!("{name}: {judged:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
