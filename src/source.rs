// SPDX-License-Identifier: Apache-2.0
//! Where intent comes from. A source delivers whole, immutable [`Snapshot`]s over a watch channel; each replaces the one before.
//!
//! Invariants: no snapshot before the source has been read once as a whole; an object that cannot be read is a [`Rejection`] while its last good
//! content stays in force; objects come in the order of their [`ObjectRef`].

pub mod dir;
pub mod kube;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::apps::v1::{DaemonSet, StatefulSet};
use k8s_openapi::api::core::v1::{Namespace, Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Serialize, Serializer};
use tokio::sync::watch;

use crate::api::{EricIngress, Kind, LvsIngress, ObjectRef};
use crate::desired::Rejection;

/// The latest snapshot; `None` until there is one.
pub type Snapshots = watch::Receiver<Option<Arc<Snapshot>>>;

/// All objects of one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Snapshot {
    /// Whether it is known of every part of the source what it holds, or last held when it could be read; while it is not, nothing is removed
    /// as a stray.
    pub complete: bool,
    /// Services by namespace and name.
    pub services: BTreeMap<ObjectRef, Arc<Service>>,
    /// EndpointSlices by namespace and name.
    pub endpoint_slices: BTreeMap<ObjectRef, Arc<EndpointSlice>>,
    /// Nodes by name.
    pub nodes: BTreeMap<ObjectRef, Arc<Node>>,
    /// Namespaces by name.
    pub namespaces: BTreeMap<ObjectRef, Arc<Namespace>>,
    /// DaemonSets by namespace and name: of one of them we may be a pod.
    pub daemon_sets: BTreeMap<ObjectRef, Arc<DaemonSet>>,
    /// StatefulSets by namespace and name, likewise.
    pub stateful_sets: BTreeMap<ObjectRef, Arc<StatefulSet>>,
    /// EricIngresses by namespace and name.
    pub eric_ingresses: BTreeMap<ObjectRef, Arc<EricIngress>>,
    /// LvsIngresses by namespace and name.
    pub lvs_ingresses: BTreeMap<ObjectRef, Arc<LvsIngress>>,
    /// What the source could not read, and what is kept in force instead.
    pub rejections: Vec<Rejection>,
    /// Objects that are here with their last good content, while the source has a newer one that cannot be read.
    pub kept: BTreeSet<ObjectRef>,
}

impl Snapshot {
    /// The snapshot with these contents of objects in place of those that it has.
    pub(crate) fn with(&self, contents: &BTreeMap<ObjectRef, Object>) -> Cow<'_, Self> {
        let mut snapshot = Cow::Borrowed(self);
        for (name, object) in contents.iter().filter(|(name, _)| self.object(name).is_some()) {
            let snapshot = snapshot.to_mut();
            snapshot.insert(name.clone(), object.clone());
            snapshot.kept.insert(name.clone());
        }
        snapshot
    }

    /// An object of a kind that claims VIPs.
    pub(crate) fn object(&self, name: &ObjectRef) -> Option<Object> {
        match name.kind {
            Kind::Service => self.services.get(name).cloned().map(Object::Service),
            Kind::EricIngress => self.eric_ingresses.get(name).cloned().map(Object::EricIngress),
            Kind::LvsIngress => self.lvs_ingresses.get(name).cloned().map(Object::LvsIngress),
            Kind::EndpointSlice | Kind::Node | Kind::Namespace | Kind::DaemonSet | Kind::StatefulSet => None,
        }
    }

    /// Takes an object in, in place of an earlier one of this name.
    pub(crate) fn insert(&mut self, name: ObjectRef, object: Object) {
        match object {
            Object::Service(service) => drop(self.services.insert(name, service)),
            Object::EndpointSlice(slice) => drop(self.endpoint_slices.insert(name, slice)),
            Object::Node(node) => drop(self.nodes.insert(name, node)),
            Object::Namespace(namespace) => drop(self.namespaces.insert(name, namespace)),
            Object::DaemonSet(set) => drop(self.daemon_sets.insert(name, set)),
            Object::StatefulSet(set) => drop(self.stateful_sets.insert(name, set)),
            Object::EricIngress(ingress) => drop(self.eric_ingresses.insert(name, ingress)),
            Object::LvsIngress(ingress) => drop(self.lvs_ingresses.insert(name, ingress)),
        }
    }

    /// The labels of the Node of this name; `None` where that is not there.
    pub(crate) fn labels_of_node(&self, name: &str) -> Option<BTreeMap<String, String>> {
        let node = ObjectRef { kind: Kind::Node, namespace: String::new(), name: name.to_owned() };
        Some(self.nodes.get(&node)?.metadata.labels.clone().unwrap_or_default())
    }

    /// How often the content of an object was changed until it was as it is here, where an API server counts that.
    pub(crate) fn generation(&self, name: &ObjectRef) -> Option<i64> {
        let metadata = match name.kind {
            Kind::Service => &self.services.get(name)?.metadata,
            Kind::EndpointSlice => &self.endpoint_slices.get(name)?.metadata,
            Kind::Node => &self.nodes.get(name)?.metadata,
            Kind::Namespace => &self.namespaces.get(name)?.metadata,
            Kind::DaemonSet => &self.daemon_sets.get(name)?.metadata,
            Kind::StatefulSet => &self.stateful_sets.get(name)?.metadata,
            Kind::EricIngress => &self.eric_ingresses.get(name)?.metadata,
            Kind::LvsIngress => &self.lvs_ingresses.get(name)?.metadata,
        };
        metadata.generation
    }

    /// Takes an object out.
    fn remove(&mut self, name: &ObjectRef) {
        match name.kind {
            Kind::Service => drop(self.services.remove(name)),
            Kind::EndpointSlice => drop(self.endpoint_slices.remove(name)),
            Kind::Node => drop(self.nodes.remove(name)),
            Kind::Namespace => drop(self.namespaces.remove(name)),
            Kind::DaemonSet => drop(self.daemon_sets.remove(name)),
            Kind::StatefulSet => drop(self.stateful_sets.remove(name)),
            Kind::EricIngress => drop(self.eric_ingresses.remove(name)),
            Kind::LvsIngress => drop(self.lvs_ingresses.remove(name)),
        }
    }
}

/// An object of some kind. It serialises as that kind, with `apiVersion` and `kind`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Object {
    Service(Arc<Service>),
    EndpointSlice(Arc<EndpointSlice>),
    Node(Arc<Node>),
    Namespace(Arc<Namespace>),
    DaemonSet(Arc<DaemonSet>),
    StatefulSet(Arc<StatefulSet>),
    EricIngress(Arc<EricIngress>),
    LvsIngress(Arc<LvsIngress>),
}

impl Object {
    /// Its metadata.
    pub(crate) fn metadata(&self) -> &ObjectMeta {
        match self {
            Self::Service(service) => &service.metadata,
            Self::EndpointSlice(slice) => &slice.metadata,
            Self::Node(node) => &node.metadata,
            Self::Namespace(namespace) => &namespace.metadata,
            Self::DaemonSet(set) => &set.metadata,
            Self::StatefulSet(set) => &set.metadata,
            Self::EricIngress(ingress) => &ingress.metadata,
            Self::LvsIngress(ingress) => &ingress.metadata,
        }
    }

    /// Whether it is the object of this uid, as far as that is known: its name may be another one's since.
    pub(crate) fn is_that_of(&self, uid: Option<&str>) -> bool {
        let own = self.metadata().uid.as_deref();
        own.is_none() || uid.is_none() || own == uid
    }

    /// This content, with what the other one of the same object says of the addresses that a load balancer was given: that is no content of its author.
    pub(crate) fn with_status_of(&self, other: &Self) -> Self {
        match (self, other) {
            (Self::Service(service), Self::Service(other)) if service.status != other.status => {
                let mut service = Service::clone(service);
                service.status.clone_from(&other.status);
                Self::Service(service.into())
            }
            _ => self.clone(),
        }
    }
}

impl Serialize for Object {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Service(service) => service.as_ref().serialize(serializer),
            Self::EndpointSlice(slice) => slice.as_ref().serialize(serializer),
            Self::Node(node) => node.as_ref().serialize(serializer),
            Self::Namespace(namespace) => namespace.as_ref().serialize(serializer),
            Self::DaemonSet(set) => set.as_ref().serialize(serializer),
            Self::StatefulSet(set) => set.as_ref().serialize(serializer),
            Self::EricIngress(ingress) => ingress.as_ref().serialize(serializer),
            Self::LvsIngress(ingress) => ingress.as_ref().serialize(serializer),
        }
    }
}
