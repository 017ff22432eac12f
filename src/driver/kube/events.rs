// SPDX-License-Identifier: Apache-2.0
//! Events (`events.k8s.io/v1`): what has changed on an object, for `kubectl describe` and for those who collect them.
//!
//! Input: what has changed. Output: the object of an Event. Its name is made of all that it says, so that the same thing is never told twice, by whichever node,
//! while the API server still has it.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash as _, Hasher as _};
use std::time::SystemTime;

use serde_json::{Value, json};

use super::request::Place;
use crate::api::ObjectRef;

/// More is refused (`note` of `events.k8s.io/v1`).
const LONGEST_NOTE: usize = 1000;

/// What is told.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(super) struct News {
    /// What it is about.
    pub(super) object: ObjectRef,
    /// Its `metadata.uid`.
    pub(super) uid: Option<String>,
    /// Whether a person may have to act.
    pub(super) is_warning: bool,
    /// What was looked at: the name of a condition.
    pub(super) action: String,
    /// A CamelCase word.
    pub(super) reason: String,
    /// In words.
    pub(super) note: String,
}

impl News {
    /// The resource, as `kubectl auth can-i` takes it.
    pub(super) const RESOURCE: &'static str = "events.events.k8s.io";

    /// Where it is to be created.
    pub(super) fn place(&self) -> Place {
        Place::other(format!("/apis/events.k8s.io/v1/namespaces/{}/events", self.namespace()), Self::RESOURCE)
    }

    /// Events on what has no namespace are in `default`.
    fn namespace(&self) -> &str {
        if self.object.namespace.is_empty() { "default" } else { &self.object.namespace }
    }

    /// The object, told by this node of this instance, of a change at `moment`, which is something that is different for each change and equal for all who
    /// may tell of it.
    pub(super) fn event(&self, instance: &str, node: &str, moment: &str) -> Value {
        let mut hasher = DefaultHasher::new();
        (self, moment).hash(&mut hasher);
        let name: String = self.object.name.chars().take(200).collect();
        let kind = self.object.kind;
        let mut regarding = json!({"apiVersion": kind.api_version(), "kind": kind.name(), "name": self.object.name, "uid": self.uid});
        if !self.object.namespace.is_empty()
            && let Some(fields) = regarding.as_object_mut()
        {
            fields.insert("namespace".to_owned(), json!(self.object.namespace));
        }
        json!({
            "apiVersion": "events.k8s.io/v1", "kind": "Event",
            "metadata": {"name": format!("{name}.{:016x}", hasher.finish()), "namespace": self.namespace()},
            "eventTime": humantime::format_rfc3339_micros(SystemTime::now()).to_string(),
            "type": if self.is_warning { "Warning" } else { "Normal" },
            "reason": self.reason, "action": self.action, "note": self.note.chars().take(LONGEST_NOTE).collect::<String>(),
            "reportingController": format!("vipherald.io/{instance}"), "reportingInstance": node,
            "regarding": regarding,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::Kind;

    #[test]
    fn the_same_news_have_the_same_name() {
        let object = ObjectRef { kind: Kind::Service, namespace: "enm".into(), name: "web".into() };
        let news =
            News { object, uid: None, is_warning: true, action: "Accepted".into(), reason: "Conflict".into(), note: "ä".repeat(2000) };
        let name = |news: &News, node, moment| news.event("vipherald", node, moment)["metadata"]["name"].clone();
        assert_eq!(name(&news, "n1", "1"), name(&news, "n2", "1"));
        assert_ne!(name(&news, "n1", "1"), name(&news, "n1", "2"), "it has changed back and again");
        assert_eq!(news.event("vipherald", "n1", "1")["note"].as_str().unwrap().chars().count(), LONGEST_NOTE);
        assert_eq!(news.place().path, "/apis/events.k8s.io/v1/namespaces/enm/events");
        let node = News { object: ObjectRef { kind: Kind::Node, namespace: String::new(), name: "n1".into() }, ..news };
        assert_eq!(node.event("vipherald", "n1", "1")["regarding"].get("namespace"), None);
        assert_eq!(node.place().path, "/apis/events.k8s.io/v1/namespaces/default/events");
    }
}
