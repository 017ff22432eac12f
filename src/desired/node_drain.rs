// SPDX-License-Identifier: Apache-2.0
//! Whether the Node of this daemon asks for its VIPs to leave, by `spec.unschedulable` or a taint, and what is to become of that.
//!
//! Inputs: `drain.onCordon` and `drain.taints`, and the last snapshot. Output: what is [`Asked`]. What comes of it is a [`NodeDrain`], which is decided beside the
//! loop, since other nodes have a say (`src/driver/kube/drain.rs`). Pure. Invariants: a Node that is not known asks for nothing and takes nothing back;
//! that it is not Ready is no reason.

use k8s_openapi::api::core::v1::{Node, Taint};
use serde::{Deserialize, Serialize};

use crate::api::{Kind, ObjectRef};
use crate::config::{Config, DrainTaint, OnCordon};
use crate::source::Snapshot;

/// Taints that Kubernetes sets by itself, and those of control planes, make no dedicated router node.
const NOT_DEDICATED: [&str; 4] =
    ["node.kubernetes.io/", "node.cloudprovider.kubernetes.io/", "node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master"];

/// What the Node says.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Asked {
    /// It is not known: nothing changes.
    Unknown,
    /// VIPs may be served.
    Nothing,
    /// They are to leave, for this reason.
    Leave(String),
}

/// Whether VIPs leave the node while it goes on running.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase", tag = "state")]
pub enum NodeDrain {
    /// Nothing asks for it.
    #[default]
    None,
    /// Something does, and it is not its turn, or may not be: VIPs stay.
    Waiting {
        /// What asks for it.
        reason: String,
        /// What it waits for.
        obstacle: String,
    },
    /// They are withdrawn and removed, and stay away.
    Drained {
        /// What asks for it.
        reason: String,
    },
}

impl NodeDrain {
    /// What a person should know of it.
    #[must_use]
    pub fn message(&self) -> Option<String> {
        match self {
            Self::None => None,
            Self::Waiting { reason, obstacle } => Some(format!("{reason}; VIPs stay all the same: {obstacle}")),
            Self::Drained { reason } => Some(format!("{reason}: VIPs are withdrawn and removed until that is over")),
        }
    }
}

/// See the module.
#[must_use]
pub fn asked(config: &Config, snapshot: Option<&Snapshot>) -> Asked {
    let name = ObjectRef { kind: Kind::Node, namespace: String::new(), name: config.node_name.clone() };
    let Some(node) = snapshot.and_then(|snapshot| snapshot.nodes.get(&name)) else { return Asked::Unknown };
    let cordoned = node.spec.as_ref().is_some_and(|spec| spec.unschedulable == Some(true));
    let counts = match config.on_cordon {
        OnCordon::Auto => is_dedicated(node, &config.drain_taints),
        OnCordon::Always => true,
        OnCordon::Never => false,
    };
    if cordoned && counts {
        return Asked::Leave("the Node is cordoned".to_owned());
    }
    let matching = taints(node).find(|taint| config.drain_taints.iter().any(|wanted| is_meant(wanted, taint)));
    matching.map_or(Asked::Nothing, |taint| Asked::Leave(format!("the Node has the taint {}", words(taint))))
}

/// Whether the node is for routing alone: by a taint that keeps application pods away, and is not for the time of some work only.
fn is_dedicated(node: &Node, of_work: &[DrainTaint]) -> bool {
    let keeps_away = |taint: &Taint| matches!(taint.effect.as_str(), "NoSchedule" | "NoExecute");
    let lasts = |taint: &Taint| {
        !NOT_DEDICATED.iter().any(|known| taint.key.starts_with(known)) && !of_work.iter().any(|wanted| wanted.key == taint.key)
    };
    taints(node).any(|taint| keeps_away(taint) && lasts(taint))
}

fn taints(node: &Node) -> impl Iterator<Item = &Taint> {
    node.spec.iter().flat_map(|spec| spec.taints.iter().flatten())
}

fn is_meant(wanted: &DrainTaint, taint: &Taint) -> bool {
    wanted.key == taint.key
        && wanted.value.as_deref().is_none_or(|value| value == taint.value.as_deref().unwrap_or_default())
        && wanted.effect.as_deref().is_none_or(|effect| effect == taint.effect)
}

/// As `kubectl taint` has it.
fn words(Taint { key, value, effect, .. }: &Taint) -> String {
    match value.as_deref().filter(|value| !value.is_empty()) {
        Some(value) => format!("{key}={value}:{effect}"),
        None => format!("{key}:{effect}"),
    }
}
