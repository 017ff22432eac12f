// SPDX-License-Identifier: Apache-2.0
//! What the API server holds of what we say on an object, and what has to be written so that it holds what is to be said now.
//!
//! Inputs: an object as the API server has it, and an [`ObjectStatus`]. Output: a [`Difference`], or nothing where both agree. Pure. Invariants: only what
//! is ours is looked at and written: our condition types (on Services they carry our name), `status.loadBalancer` of Services of our class, and all of
//! the status of our own kinds; only who wrote it takes it back, since another release may have the object.

use std::net::IpAddr;

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::objects::ObjectStatus;
use super::{Time, Truth, Verdict};
use crate::api::{Kind, ObjectCondition};

/// Before the names of our conditions on kinds that are not ours.
const OUR_PREFIX: &str = "vipherald.io/";

/// What the API server holds, as far as it is ours.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stored {
    /// `metadata.uid`.
    pub uid: Option<String>,
    /// Whether something in it was written by us, as its `metadata.managedFields` say (Server-Side Apply).
    pub by_us: bool,
    /// Ours, or those of another release.
    pub conditions: Vec<ObjectCondition>,
    /// `status.loadBalancer.ingress` of a Service.
    pub ingress: Vec<Ingress>,
    /// Whether that was written by us.
    owns_ingress: bool,
    /// `status.changeId` of an LvsIngress.
    pub change_id: Option<i64>,
    /// `status.announcing` of our kinds.
    pub announcing: Vec<String>,
}

/// One address of `status.loadBalancer.ingress`.
#[derive(Clone, Debug, Eq, PartialEq, Deserialize)]
pub struct Ingress {
    /// The address; somebody else may have put a name there.
    #[serde(default)]
    pub ip: Option<IpAddr>,
    /// `VIP` or `Proxy`.
    #[serde(default, rename = "ipMode")]
    pub mode: Option<String>,
}

/// What has to be written.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// The whole of our part of `status`.
    pub status: Value,
    /// Conditions of which `status` or `reason` is another one than before, for Events.
    pub transitions: Vec<Verdict>,
}

impl Stored {
    /// Of an object of this kind; `manager` is the name under which we write.
    #[must_use]
    pub fn read(kind: Kind, object: &Value, manager: &str) -> Self {
        let status = object.get("status");
        let part = |name: &str| status.and_then(|status| status.get(name)).cloned().unwrap_or_default();
        let conditions: Vec<ObjectCondition> = part("conditions").as_array().into_iter().flatten().filter_map(condition).collect();
        let ours = |condition: &ObjectCondition| kind != Kind::Service || condition.kind.starts_with(OUR_PREFIX);
        let conditions: Vec<ObjectCondition> = conditions.into_iter().filter(ours).collect();
        let ingress = part("loadBalancer").get("ingress").cloned().unwrap_or_default();
        let managed = managed(object, manager);
        Self {
            uid: object.pointer("/metadata/uid").and_then(Value::as_str).map(ToOwned::to_owned),
            by_us: managed.is_some(),
            owns_ingress: managed.is_some_and(|fields| fields.pointer("/f:status/f:loadBalancer").is_some()),
            conditions,
            ingress: serde_json::from_value(ingress).unwrap_or_default(),
            change_id: part("changeId").as_i64(),
            announcing: serde_json::from_value(part("announcing")).unwrap_or_default(),
        }
    }

    /// The addresses that a Service of our class was given.
    #[must_use]
    pub fn addresses(&self) -> Vec<IpAddr> {
        self.ingress.iter().filter_map(|ingress| ingress.ip).collect()
    }
}

/// Which fields of the status were applied under this name, if any were.
fn managed<'a>(object: &'a Value, manager: &str) -> Option<&'a Value> {
    let managers = object.pointer("/metadata/managedFields").and_then(Value::as_array).into_iter().flatten();
    let is = |entry: &Value, name: &str, word: &str| entry.get(name).and_then(Value::as_str) == Some(word);
    let mut ours =
        managers.filter(|entry| is(entry, "manager", manager) && is(entry, "operation", "Apply") && is(entry, "subresource", "status"));
    ours.next().and_then(|entry| entry.get("fieldsV1"))
}

fn condition(value: &Value) -> Option<ObjectCondition> {
    serde_json::from_value(value.clone()).ok()
}

/// What has to be written on an object, of which `wanted` is to be said, or nothing any more. `ip_mode` is that of the addresses of load balancers.
#[must_use]
pub fn difference(kind: Kind, stored: &Stored, wanted: Option<&ObjectStatus>, ip_mode: &str, now: Time) -> Option<Difference> {
    let Some(wanted) = wanted else {
        // Takes back what was said.
        return stored.by_us.then(|| Difference { status: json!({}), transitions: Vec::new() });
    };
    let name = |verdict: &Verdict| if kind == Kind::Service { format!("{OUR_PREFIX}{}", verdict.kind) } else { verdict.kind.to_owned() };
    let mut transitions = Vec::new();
    let mut conditions = Vec::new();
    for verdict in &wanted.verdicts {
        let name = name(verdict);
        let before = stored.conditions.iter().find(|condition| condition.kind == name);
        let has_changed = match before {
            Some(before) => before.status != verdict.status.as_str() || before.reason != verdict.reason,
            // That nothing is known yet is no news.
            None => verdict.status != Truth::Unknown,
        };
        if has_changed {
            transitions.push(verdict.clone());
        }
        conditions.push(verdict.condition(&name, wanted.generation, before, now));
    }
    let ingress = wanted.addresses.as_ref().map(|addresses| addresses.iter().map(|address| ingress(*address, ip_mode)).collect::<Vec<_>>());
    let change_id = if wanted.is_accepted() { wanted.generation } else { stored.change_id }.filter(|_| kind == Kind::LvsIngress);
    let announcing: Vec<String> = wanted.announcing.iter().filter(|_| kind != Kind::Service).cloned().collect();
    // What a Service is not given by us is somebody else's.
    let same_ingress = ingress.as_ref().map_or(!stored.owns_ingress, |ingress| *ingress == stored.ingress);
    if conditions == stored.conditions && same_ingress && change_id == stored.change_id && announcing == stored.announcing {
        return None;
    }
    let mut status = Map::new();
    status.insert("conditions".to_owned(), json!(conditions));
    if let Some(ingress) = ingress {
        let ingress: Vec<Value> = ingress.iter().map(|one| json!({"ip": one.ip, "ipMode": one.mode})).collect();
        status.insert("loadBalancer".to_owned(), if ingress.is_empty() { json!({}) } else { json!({"ingress": ingress}) });
    }
    if let Some(change_id) = change_id {
        status.insert("changeId".to_owned(), json!(change_id));
    }
    if kind != Kind::Service {
        status.insert("announcing".to_owned(), json!(announcing));
        if let Some(generation) = wanted.generation {
            status.insert("observedGeneration".to_owned(), json!(generation));
        }
    }
    Some(Difference { status: Value::Object(status), transitions })
}

fn ingress(address: IpAddr, mode: &str) -> Ingress {
    Ingress { ip: Some(address), mode: Some(mode.to_owned()) }
}

#[cfg(test)]
mod tests;
