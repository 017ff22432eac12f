// SPDX-License-Identifier: Apache-2.0
//! What every document of the node begins with: whose it is, from when, and what a reader should know before believing the rest.
//!
//! Input: a [`NodeStatus`]. Output: an [`Envelope`]. The same warnings stand on standard error above a table.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{NodeStatus, SourceState, Time};

/// The beginning of a document.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Envelope {
    /// [`API_VERSION`](super::API_VERSION).
    pub api_version: String,
    /// `instance`.
    pub instance: String,
    /// `node.name`.
    pub node: String,
    /// From when the rest is.
    pub observed_at: Time,
    /// What keeps the node from doing what its files say.
    pub warnings: Vec<String>,
}

/// An answer of the daemon and its envelope, side by side so that an answer of any size is read in one go.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Answer<T> {
    /// Whose it is.
    pub envelope: Envelope,
    /// What was asked for.
    pub content: T,
}

impl Envelope {
    /// Of this node.
    #[must_use]
    pub fn of(status: &NodeStatus) -> Self {
        let rejections = status.rejections.len();
        let mut warnings = warnings(status);
        if rejections > 0 {
            warnings.push(format!("{rejections} rejections: see 'vipherald show rejections'"));
        }
        Self { warnings, ..Self::without_rejections(status) }
    }

    /// Of this node, in front of the rejections themselves.
    #[must_use]
    pub fn without_rejections(status: &NodeStatus) -> Self {
        Self {
            api_version: status.api_version.clone(),
            instance: status.identity.instance.clone(),
            node: status.identity.node.clone(),
            observed_at: status.observed_at,
            warnings: warnings(status),
        }
    }
}

fn warnings(status: &NodeStatus) -> Vec<String> {
    let mut warnings = Vec::new();
    if let Some(error) = &status.config.error {
        warnings.extend(error.lines().map(|line| format!("config: refused, the one before stays in force: {line}")));
    }
    if !status.config.waiting_for_restart.is_empty() {
        warnings.push(format!("config: a restart is needed for {}", status.config.waiting_for_restart.join(", ")));
    }
    if let Some(chosen) = status.config.dataplane.as_ref().filter(|chosen| chosen.starts_with("nftables")) {
        warnings.push(format!("dataplane.type auto: {chosen}"));
    }
    if status.source.state != SourceState::Complete {
        let stale = status.source.api_stale_seconds.filter(|seconds| *seconds > 0);
        let stale = stale.map(|seconds| format!(" for {}", humantime::format_duration(Duration::from_secs(seconds)))).unwrap_or_default();
        warnings.push(format!("source: {:?}{stale}: {}", status.source.state, status.source.message));
    }
    warnings.extend(status.node_drain.message().map(|message| format!("drain: {message}")));
    warnings.extend(status.source.troubles.iter().map(|trouble| format!("source: {trouble}")));
    warnings.extend(status.source.unwritten.iter().map(|trouble| format!("status: {trouble}")));
    for failure in &status.failures {
        warnings.push(format!("{}: failed {} times: {}", failure.step, failure.count, failure.error));
    }
    for address in &status.unclaimed {
        warnings.push(format!("{}: {address} looks like ours and nothing proves it: kept", status.identity.interface));
    }
    warnings.extend(status.notes.iter().cloned());
    if let Some(error) = &status.speaker.listen_error {
        warnings.push(format!("bgp.listen: {error}"));
    }
    warnings.extend(status.speaker.dynamic_full.iter().map(|full| format!("bgp.listen: {full}")));
    for peer in &status.peers {
        warnings.extend(peer.warning.iter().map(|warning| format!("peer {}: {warning}", peer.name)));
    }
    warnings
}
