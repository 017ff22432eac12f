// SPDX-License-Identifier: Apache-2.0
//! RouterNode (`vipherald.io/v1alpha1`, cluster-scoped): what one node of one instance says of itself, for people and for the node that writes the status
//! of what all share.
//!
//! It has no spec. Invariants: it is as large as what differs, not as what is alike: VIPs of which the same is to be said are one [`VipGroup`]; nothing in it
//! counts or ticks, so that a node at rest writes nothing.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

/// The name of the object of a node.
#[must_use]
pub fn router_node_name(instance: &str, node: &str) -> String {
    format!("{instance}-{node}")
}

/// The label that says to which instance a RouterNode belongs.
pub const INSTANCE_LABEL: &str = "vipherald.io/instance";

/// Its `status`.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RouterNodeStatus {
    /// `instance` of the configuration.
    pub instance: String,
    /// The Node.
    pub node: String,
    /// Of the program.
    pub version: String,
    /// How VIPs get into the fabric.
    pub mode: String,
    /// How many VIPs are wanted here.
    pub vip_count: u32,
    /// How many of them are announced.
    pub announced_count: u32,
    /// The BGP peers in order.
    pub peers: Vec<RouterNodePeer>,
    /// From where it advertises as a virtual router, for the other nodes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub virtual_routers: Vec<RouterNodeVirtualRouter>,
    /// The VIPs.
    pub vips: Vec<VipGroup>,
    /// Ready and the like.
    pub conditions: Vec<ObjectCondition>,
}

/// One BGP peer of a node.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RouterNodePeer {
    /// Its name in the configuration.
    pub name: String,
    /// Its address; absent while it is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<IpAddr>,
    /// Its AS.
    pub asn: u32,
    /// Whether its session is Established (RFC 4271 §8.2.2).
    pub established: bool,
    /// Since when it is, or is not.
    pub since: String,
    /// Why there is no session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
}

/// The virtual routers of a node with one VRID.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RouterNodeVirtualRouter {
    /// Their VRID.
    pub virtual_router_id: u8,
    /// From where they advertise, one address of each family that the interface has.
    pub addresses: Vec<IpAddr>,
}

/// VIPs of which the same is to be said.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VipGroup {
    /// Withheld, Pending, Announced, Withdrawing or Draining.
    pub state: String,
    /// Whether the node takes their packets: True, False or Unknown.
    pub programmed: String,
    /// Why, for machines.
    pub reason: String,
    /// Why, for persons.
    pub message: String,
    /// The peers that were told.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub peers: Vec<String>,
    /// Which ones, in order.
    pub addresses: Vec<IpAddr>,
}

/// A condition as all objects of Kubernetes have them (`metav1.Condition`).
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ObjectCondition {
    /// Which one.
    #[serde(rename = "type")]
    pub kind: String,
    /// True, False or Unknown.
    pub status: String,
    /// The generation of the object that it is about, where it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// When `status` changed last.
    pub last_transition_time: String,
    /// A CamelCase word for machines.
    pub reason: String,
    /// For persons.
    pub message: String,
}
