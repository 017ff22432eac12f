// SPDX-License-Identifier: Apache-2.0
//! Writes this node's RouterNode object.
//!
//! Inputs: the node's status, its Node object. Output: the object in the API, created where it is not there, owned by the Node so that it goes with it; a Node
//! that comes again under the same name, with another UID, owns it anew. Invariant: nothing is written that is there already.

use serde_json::{Value, json};

use super::request::{ApiServer, Place, RequestError};
use crate::api::{INSTANCE_LABEL, RouterNodeStatus, RouterNodeVirtualRouter, router_node_name};
use crate::status::{API_VERSION, NodeStatus, Time, router_node_status};

/// All RouterNodes.
pub(super) fn router_nodes() -> Place {
    Place::other(format!("/apis/{API_VERSION}/routernodes"), "routernodes.vipherald.io")
}

/// See the module.
pub(super) struct NodeWriter {
    instance: String,
    node: String,
    /// What the API server holds, once that is known, and by whom it is owned.
    stored: Option<(RouterNodeStatus, Option<String>)>,
}

/// What a node has to say of itself.
pub(super) struct OwnWords<'a> {
    pub(super) status: &'a NodeStatus,
    /// From where it advertises as a virtual router.
    pub(super) routers: &'a [RouterNodeVirtualRouter],
    /// Whether the API server has been lost for long enough to be said.
    pub(super) is_lost: bool,
    /// What it would write and may not.
    pub(super) denied: &'a [String],
}

impl NodeWriter {
    pub(super) fn new(instance: &str, node: &str) -> Self {
        Self { instance: instance.to_owned(), node: node.to_owned(), stored: None }
    }

    /// From now on nothing is taken for granted.
    pub(super) fn forget(&mut self) {
        self.stored = None;
    }

    /// What the API server holds, as far as is known.
    pub(super) fn stored(&self) -> Option<&RouterNodeStatus> {
        self.stored.as_ref().map(|(stored, _)| stored)
    }

    /// Writes what differs; `owner` is the UID of the Node. True where something was written.
    pub(super) async fn write(
        &mut self,
        server: &ApiServer,
        said: &OwnWords<'_>,
        owner: Option<&str>,
        now: Time,
    ) -> Result<bool, RequestError> {
        let mut written = false;
        if self.stored.as_ref().is_none_or(|(_, stored)| stored.as_deref() != owner) {
            self.stored = Some((self.take(server, owner).await?, owner.map(ToOwned::to_owned)));
            written = true;
        }
        let before = self.stored.as_ref().map(|(before, _)| before);
        let wanted = router_node_status(said.status, said.routers, before, said.denied, said.is_lost, now);
        if before == Some(&wanted) {
            return Ok(written);
        }
        let body = json!({"apiVersion": API_VERSION, "kind": "RouterNode", "metadata": {"name": self.name()}, "status": wanted});
        match server.apply(&self.place().status(), &self.manager(), &body).await {
            Ok(_) => {
                self.stored = Some((wanted, owner.map(ToOwned::to_owned)));
                Ok(true)
            }
            Err(error) => {
                // Somebody has deleted it, or else: it is looked at again.
                self.forget();
                Err(error)
            }
        }
    }

    /// Makes the object, or takes the one that is there, with its status.
    async fn take(&self, server: &ApiServer, owner: Option<&str>) -> Result<RouterNodeStatus, RequestError> {
        let owner = owner.map(|uid| json!({"apiVersion": "v1", "kind": "Node", "name": self.node, "uid": uid}));
        let owners: Vec<Value> = owner.into_iter().collect();
        let metadata = json!({"name": self.name(), "labels": {INSTANCE_LABEL: self.instance}, "ownerReferences": owners});
        let body = json!({"apiVersion": API_VERSION, "kind": "RouterNode", "metadata": metadata});
        let object = server.apply(&self.place(), &self.manager(), &body).await?;
        Ok(object.get("status").cloned().and_then(|status| serde_json::from_value(status).ok()).unwrap_or_default())
    }

    fn name(&self) -> String {
        router_node_name(&self.instance, &self.node)
    }

    fn place(&self) -> Place {
        let all = router_nodes();
        Place::other(format!("{}/{}", all.path, self.name()), &all.resource)
    }

    fn manager(&self) -> String {
        self.name()
    }
}
