// SPDX-License-Identifier: Apache-2.0
//! Which objects are this release's, where several share one cluster.
//!
//! Inputs: the labels of an object and of its namespace, and `domain`, `namespaces` and `namespaceSelector` of the configuration. Output: whether the object
//! may ask for VIPs. What others ask for is still seen: their Services are balanced over where an object of ours names them, and their addresses are
//! reserved.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::api::{DOMAIN_LABEL, Kind, LabelSelector, ObjectRef};
use crate::source::Snapshot;

/// The label that a namespace has of its own with its name (Kubernetes 1.22 and newer).
const NAME_LABEL: &str = "kubernetes.io/metadata.name";

/// See the module.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Scope {
    /// Objects of this domain; empty for those without one.
    pub domain: String,
    /// Only objects of these namespaces; empty for all.
    pub namespaces: BTreeSet<String>,
    /// Only objects of namespaces with such labels.
    pub namespace_selector: Option<LabelSelector>,
}

impl Scope {
    /// Whether the object is this release's. Its own label says so, else that of its namespace.
    pub(crate) fn covers(&self, object: &ObjectRef, metadata: &ObjectMeta, snapshot: &Snapshot) -> bool {
        let labels = labels(&object.namespace, snapshot);
        let domain = metadata.labels.as_ref().and_then(|labels| labels.get(DOMAIN_LABEL)).or_else(|| labels?.get(DOMAIN_LABEL));
        domain.map_or("", String::as_str) == self.domain
            && (self.namespaces.is_empty() || self.namespaces.contains(&object.namespace))
            && self.namespace_selector.as_ref().is_none_or(|selector| match labels {
                Some(labels) => selector.matches(labels),
                None => selector.matches(&BTreeMap::from([(NAME_LABEL.to_owned(), object.namespace.clone())])),
            })
    }
}

/// The labels of a namespace; none where nobody told of it.
fn labels<'a>(namespace: &str, snapshot: &'a Snapshot) -> Option<&'a BTreeMap<String, String>> {
    let name = ObjectRef { kind: Kind::Namespace, namespace: String::new(), name: namespace.to_owned() };
    snapshot.namespaces.get(&name)?.metadata.labels.as_ref()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::dir::snapshot_of;

    const OBJECTS: &str = "
apiVersion: v1
kind: Namespace
metadata: {name: enm, labels: {vipherald.io/domain: enm, team: a}}
---
apiVersion: v1
kind: Service
metadata: {name: plain, namespace: enm}
---
apiVersion: v1
kind: Service
metadata: {name: marked, namespace: enm, labels: {vipherald.io/domain: scripting}}
---
apiVersion: v1
kind: Service
metadata: {name: emptied, namespace: enm, labels: {vipherald.io/domain: ''}}
---
apiVersion: v1
kind: Service
metadata: {name: elsewhere}
";

    fn covered(scope: &Scope) -> Vec<String> {
        let snapshot = snapshot_of(OBJECTS);
        let covered = snapshot.services.iter().filter(|(name, service)| scope.covers(name, &service.metadata, &snapshot));
        covered.map(|(name, _)| name.name.clone()).collect()
    }

    #[test]
    fn the_label_of_an_object_counts_before_that_of_its_namespace() {
        let of = |domain: &str| covered(&Scope { domain: domain.into(), ..Scope::default() });
        assert_eq!(of("enm"), ["plain"]);
        assert_eq!(of("scripting"), ["marked"]);
        assert_eq!(of(""), ["elsewhere", "emptied"]);
    }

    #[test]
    fn namespaces_are_named_or_selected() {
        let mut scope = Scope { namespaces: BTreeSet::from(["default".to_owned()]), ..Scope::default() };
        assert_eq!(covered(&scope), ["elsewhere"]);
        scope = Scope { domain: "enm".into(), namespace_selector: Some("team=a".parse().unwrap()), ..Scope::default() };
        assert_eq!(covered(&scope), ["plain"]);
        scope.namespace_selector = Some("team=b".parse().unwrap());
        assert_eq!(covered(&scope), [""; 0]);
        scope = Scope { namespace_selector: Some("kubernetes.io/metadata.name=default".parse().unwrap()), ..Scope::default() };
        assert_eq!(covered(&scope), ["elsewhere"], "a namespace of which no object tells");
    }
}
