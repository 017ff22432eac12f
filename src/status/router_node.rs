// SPDX-License-Identifier: Apache-2.0
//! What a node writes into its RouterNode object.
//!
//! Inputs: the node's status, what the object said before, and the time. Output: a [`RouterNodeStatus`]. Pure. Invariant: equal states give equal values,
//! whatever is counted or tried again meanwhile, so that a node at rest writes nothing.

use std::collections::BTreeMap;
use std::net::IpAddr;

use super::condition::Verdict;
use super::{ConditionKind, NodeStatus, PeerStatus, Phase, SourceState, Time, Truth, VipState, VipStatus};
use crate::api::{RouterNodePeer, RouterNodeStatus, RouterNodeVirtualRouter, VipGroup};
use crate::desired::{Mode, NodeDrain};

/// So many different things are said of VIPs at most; what is beyond is one more thing.
const MOST_GROUPS: usize = 200;

/// See the module. `routers`: from where this node advertises. `denied` is what the node would write and may not. That the API server is lost is said only where
/// that `is_lost` for long enough to be news.
#[must_use]
pub fn router_node_status(
    node: &NodeStatus,
    routers: &[RouterNodeVirtualRouter],
    before: Option<&RouterNodeStatus>,
    denied: &[String],
    is_lost: bool,
    now: Time,
) -> RouterNodeStatus {
    let wanted = node.vips.iter().filter(|vip| !vip.owners.is_empty());
    let announced = node.vips.iter().filter(|vip| vip.state == VipState::Announced);
    let peer = |peer: &PeerStatus| router_node_peer(peer, before, now);
    let condition = |verdict: &Verdict| {
        let same = before.and_then(|before| before.conditions.iter().find(|condition| condition.kind == verdict.kind));
        let stays = verdict.kind == API_FRESH && node.source.state == SourceState::Stale && !is_lost;
        same.filter(|_| stays).cloned().unwrap_or_else(|| verdict.condition(verdict.kind, None, same, now))
    };
    let verdicts =
        [ready(node), peers_established(node), dataplane_programmed(node), api_fresh(node), api_writable(denied), configured(node)];
    RouterNodeStatus {
        instance: node.identity.instance.clone(),
        node: node.identity.node.clone(),
        version: node.identity.version.clone(),
        mode: node.mode.as_str().to_owned(),
        vip_count: count(wanted.count()),
        announced_count: count(announced.count()),
        peers: node.peers.iter().map(peer).collect(),
        virtual_routers: routers.to_vec(),
        vips: groups(&node.vips),
        conditions: verdicts.iter().map(condition).collect(),
    }
}

/// Whether what is in force is what the API server says.
const API_FRESH: &str = "ApiFresh";

/// Why a node is not Ready that is in standby, and has no VIP on its way out any more.
const NODE_DRAINED: &str = "NodeDrained";

/// Whether a node says that it announces VIPs, and does not say that it is about to stop.
#[must_use]
pub fn announces(node: &RouterNodeStatus) -> bool {
    node.announced_count > 0 && node.conditions.iter().any(|condition| condition.kind == "Ready" && condition.status == "True")
}

/// The VIPs that a node says it announces, or that the virtual routers have which it is in.
pub fn announced(node: &RouterNodeStatus) -> impl Iterator<Item = IpAddr> {
    node.vips.iter().filter(|group| group.state == VipState::Announced.as_str()).flat_map(|group| group.addresses.iter().copied())
}

/// Whether a node says that its VIPs have left it, while it goes on.
#[must_use]
pub fn is_drained(node: &RouterNodeStatus) -> bool {
    node.conditions.iter().any(|condition| condition.kind == "Ready" && condition.reason == NODE_DRAINED)
}

fn count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// The states without a session follow one another every few seconds where nobody answers, and are one here.
fn router_node_peer(peer: &PeerStatus, before: Option<&RouterNodeStatus>, now: Time) -> RouterNodePeer {
    let established = peer.established_since.is_some();
    let same = before.and_then(|before| before.peers.iter().find(|before| before.name == peer.name && before.established == established));
    let since = peer.established_since.map(|since| since.to_string()).or_else(|| same.map(|before| before.since.clone()));
    RouterNodePeer {
        name: peer.name.clone(),
        address: peer.address,
        asn: peer.asn,
        established,
        since: since.unwrap_or_else(|| now.to_string()),
        last_error: peer.last_error.as_ref().filter(|_| !established).map(|error| error.reason.clone()),
    }
}

/// State, whether it is programmed, reason, message and peers of a VIP.
type Said<'a> = (VipState, Truth, &'a str, String, &'a [String]);

fn groups(vips: &[VipStatus]) -> Vec<VipGroup> {
    let mut groups: BTreeMap<Said<'_>, Vec<IpAddr>> = BTreeMap::new();
    for vip in vips {
        let programmed = vip.conditions.iter().find(|condition| condition.kind == ConditionKind::Programmed);
        let programmed = programmed.map_or(Truth::Unknown, |condition| condition.status);
        let key = (vip.state, programmed, vip.reason.as_str(), without_counts(&vip.message), vip.peers.as_slice());
        groups.entry(key).or_default().push(vip.address);
    }
    let mut said: Vec<VipGroup> = Vec::new();
    for ((state, programmed, reason, message, peers), addresses) in groups {
        let state = state.as_str();
        let more = said.len() >= MOST_GROUPS;
        let similar = |group: &&mut VipGroup| group.state == state && group.programmed == programmed.as_str() && group.reason == reason;
        if let Some(group) = said.iter_mut().rev().find(similar).filter(|_| more) {
            group.message = "several reasons; see vipherald show vips -o wide on the node".to_owned();
            group.peers.retain(|peer| peers.contains(peer));
            group.addresses.extend(addresses);
            group.addresses.sort_unstable();
            continue;
        }
        said.push(VipGroup {
            state: state.to_owned(),
            programmed: programmed.as_str().to_owned(),
            reason: reason.to_owned(),
            message,
            peers: peers.to_vec(),
            addresses,
        });
    }
    said
}

/// A message without how often something was tried.
fn without_counts(message: &str) -> String {
    let mut kept = String::with_capacity(message.len());
    let mut rest = message;
    while let Some((before, after)) = rest.split_once(" (tried ") {
        let counted = after.split_once(" times)").filter(|(count, _)| count.bytes().all(|byte| byte.is_ascii_digit()));
        kept.push_str(before);
        rest = match counted {
            Some((_, after)) => after,
            None => {
                kept.push_str(" (tried ");
                after
            }
        };
    }
    kept.push_str(rest);
    kept
}

fn ready(node: &NodeStatus) -> Verdict {
    let verdict = |status, reason, message| Verdict::new("Ready", status, reason, message);
    match (node.lifecycle, node.source.state) {
        (Some(Phase::Draining), _) => verdict(Truth::False, "NodeDrains", "all VIPs are withdrawn and removed"),
        (Some(Phase::Standby), _) => {
            let left = node.vips.iter().all(|vip| vip.state == VipState::Withheld);
            verdict(Truth::False, if left { NODE_DRAINED } else { "NodeDraining" }, &node.node_drain.message().unwrap_or_default())
        }
        (Some(Phase::Leaving), _) => verdict(Truth::False, "NodeLeaves", "the daemon stops; VIPs stay for the next start"),
        (None, _) | (_, SourceState::Waiting) => verdict(Truth::False, "SourceNotRead", "what is wanted is not known yet"),
        (Some(Phase::Serving), _) if !node.speaker.started => {
            verdict(Truth::False, "SpeakerNotStarted", "BGP sessions are not started yet")
        }
        (Some(Phase::Serving), _) => match &node.node_drain {
            waiting @ NodeDrain::Waiting { .. } => verdict(Truth::True, "DrainWaits", &waiting.message().unwrap_or_default()),
            NodeDrain::None | NodeDrain::Drained { .. } => verdict(Truth::True, "Serving", "VIPs are served and announced"),
        },
    }
}

fn peers_established(node: &NodeStatus) -> Verdict {
    let verdict = |status, reason, message: String| Verdict::new("PeersEstablished", status, reason, message);
    let down: Vec<&str> = node.peers.iter().filter(|peer| peer.established_since.is_none()).map(|peer| peer.name.as_str()).collect();
    if node.peers.is_empty() && node.mode == Mode::Vrrp {
        verdict(Truth::True, "NotNeeded", "virtual routers have the VIPs, and no peer is configured".to_owned())
    } else if node.peers.is_empty() {
        verdict(Truth::False, "NoPeers", "no peer in bgp.peers is for this node".to_owned())
    } else if down.is_empty() {
        verdict(Truth::True, "AllEstablished", format!("{} of {0}", node.peers.len()))
    } else {
        let reason = if down.len() == node.peers.len() { "NoSession" } else { "SomeDown" };
        verdict(Truth::False, reason, format!("{} of {} have no session: {}", down.len(), node.peers.len(), down.join(", ")))
    }
}

fn dataplane_programmed(node: &NodeStatus) -> Verdict {
    let failures: Vec<String> = node.failures.iter().map(|failure| format!("{}: {}", failure.step, failure.error)).collect();
    if failures.is_empty() {
        Verdict::new("DataplaneProgrammed", Truth::True, "Programmed", "no step fails")
    } else {
        Verdict::new("DataplaneProgrammed", Truth::False, "StepFailed", failures.join("; "))
    }
}

fn api_fresh(node: &NodeStatus) -> Verdict {
    let (status, reason) = match node.source.state {
        SourceState::Complete => (Truth::True, "Complete"),
        SourceState::Stale => (Truth::False, "Stale"),
        SourceState::Incomplete => (Truth::False, "Incomplete"),
        SourceState::Cached => (Truth::False, "Cached"),
        SourceState::Waiting => (Truth::False, "Waiting"),
    };
    Verdict::new(API_FRESH, status, reason, node.source.message.clone())
}

fn api_writable(denied: &[String]) -> Verdict {
    if denied.is_empty() {
        Verdict::new("ApiWritable", Truth::True, "Allowed", "nothing that was to be written was forbidden")
    } else {
        Verdict::new("ApiWritable", Truth::False, "Forbidden", denied.join("; "))
    }
}

fn configured(node: &NodeStatus) -> Verdict {
    let verdict = |status, reason, message: String| Verdict::new("ConfigurationInForce", status, reason, message);
    match (&node.config.error, node.config.waiting_for_restart.as_slice()) {
        (Some(error), _) => verdict(Truth::False, "Invalid", format!("the configuration before stays in force: {error}")),
        (None, []) => verdict(Truth::True, "InForce", "the file is in force".to_owned()),
        (None, keys) => verdict(Truth::False, "WaitsForRestart", format!("a restart is needed for {}", keys.join(", "))),
    }
}

#[cfg(test)]
mod tests;
