// SPDX-License-Identifier: Apache-2.0
//! What stands in the way of serving VIPs on this node, found without a daemon: the first thing to run on a new node.
//!
//! Inputs: a [`Node`], as [`observe`] reads it, and the configuration where there is one. Output: one [`Finding`] for each check, with a remedy where
//! something is to be done. [`examine`] is pure. Invariants: nothing on the node is changed, and the kernel is not made to load IPVS; a check of which the
//! outcome cannot be seen says so and is no problem.

mod intent;
mod kernel;
mod node;
mod observe;

use serde::{Deserialize, Serialize};

use crate::config::Config;

pub use node::{Capability, Interface, InterfaceAddress, IpvsModule, Node, Setting};
pub use observe::observe;

/// The outcome of one check.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    /// What was looked at.
    pub check: String,
    /// Whether it is as it should be.
    pub state: State,
    /// What was found, and what it means.
    pub detail: String,
    /// What is to be done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
}

/// Whether something is as it should be.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// It is, as far as can be seen.
    Ok,
    /// Somebody should know of it.
    Warning,
    /// Some VIP will not be served, or something else that is asked for will not work.
    Problem,
}

impl State {
    /// Its name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warning => "warning",
            Self::Problem => "problem",
        }
    }
}

impl Finding {
    fn ok(check: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { check: check.into(), state: State::Ok, detail: detail.into(), remedy: None }
    }

    fn new(state: State, check: impl Into<String>, detail: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { check: check.into(), state, detail: detail.into(), remedy: Some(remedy.into()) }
    }
}

/// All checks, in the order in which a person would go through them. Without a configuration it is assumed that this node is to balance by IPVS, and what
/// may not be needed is a warning at most.
#[must_use]
pub fn examine(node: &Node, config: Option<&Config>) -> Vec<Finding> {
    let mut findings = kernel::examine(node, config);
    findings.extend(intent::own_addresses(node, config));
    findings.extend(config.map(|config| intent::examine(node, config)).unwrap_or_default());
    findings
}

#[cfg(test)]
mod tests;
