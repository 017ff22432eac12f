// SPDX-License-Identifier: Apache-2.0
//! What the nodes of an instance report of their VIPs, together.
//!
//! Input: the status of each RouterNode whose Node is there and Ready; what others say is not counted, since nobody there may be able to change it. Output:
//! for each VIP a [`Standing`], and of that what holds for all nodes together.

use std::collections::BTreeMap;
use std::net::IpAddr;

use super::objects::listed;
use super::routed::BACKUP;
use super::{Truth, VipState};
use crate::api::{RouterNodeStatus, VipGroup};

/// See the module.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Reports {
    /// By node; `None` for one that is not heard.
    nodes: BTreeMap<String, Option<RouterNodeStatus>>,
    /// Where a VIP is found: of each node the number of its group.
    vips: BTreeMap<IpAddr, Vec<(String, usize)>>,
}

impl Reports {
    /// Of these nodes; `None` for one that is not heard.
    #[must_use]
    pub fn new(nodes: BTreeMap<String, Option<RouterNodeStatus>>) -> Self {
        let mut vips: BTreeMap<IpAddr, Vec<(String, usize)>> = BTreeMap::new();
        for (node, status) in &nodes {
            for (number, group) in status.iter().flat_map(|status| &status.vips).enumerate() {
                group.addresses.iter().for_each(|vip| vips.entry(*vip).or_default().push((node.clone(), number)));
            }
        }
        Self { nodes, vips }
    }

    /// Where a VIP stands.
    pub(super) fn standing(&self, vip: IpAddr) -> Standing<'_> {
        let mut standing =
            Standing { announcing: BTreeMap::new(), backup: Vec::new(), groups: BTreeMap::new(), silent: Vec::new(), unheard: Vec::new() };
        for (node, status) in &self.nodes {
            match status {
                None => standing.unheard.push(node),
                Some(_) => standing.silent.push(node),
            }
        }
        for (node, number) in self.vips.get(&vip).into_iter().flatten() {
            let Some(group) = self.nodes.get(node).and_then(|status| status.as_ref()?.vips.get(*number)) else { continue };
            standing.silent.retain(|silent| silent != node);
            standing.groups.insert(node, group);
            if group.state == VipState::Announced.as_str() && group.reason == BACKUP {
                standing.backup.push(node);
            } else if group.state == VipState::Announced.as_str() {
                standing.announcing.insert(node, &group.peers);
            }
        }
        standing
    }
}

/// One VIP on all nodes.
pub(super) struct Standing<'a> {
    /// The nodes that announce it, or have it as Active Routers, each with the peers that were told.
    pub(super) announcing: BTreeMap<&'a str, &'a [String]>,
    /// Those that hear an Active Router which has it.
    backup: Vec<&'a str>,
    /// What each node says that knows it.
    groups: BTreeMap<&'a str, &'a VipGroup>,
    /// Nodes that do not know it yet.
    silent: Vec<&'a str>,
    /// Nodes that are not there to ask.
    unheard: Vec<&'a str>,
}

impl Standing<'_> {
    /// Whether some node takes its packets.
    pub(super) fn programmed(&self) -> (Truth, String, String) {
        let of = |status: Truth| self.groups.iter().filter(move |(_, group)| group.programmed == status.as_str()).map(|(node, _)| *node);
        let programmed: Vec<&str> = of(Truth::True).collect();
        let unseen = of(Truth::Unknown).count();
        let others = self.others(|group| group.programmed != Truth::True.as_str());
        if !programmed.is_empty() {
            let reason = if others.is_empty() { "Programmed" } else { "ProgrammedOnSome" };
            return (Truth::True, reason.to_owned(), self.on("on", &programmed, &others));
        }
        match self.groups.values().find(|group| unseen == 0 || group.programmed == Truth::Unknown.as_str()) {
            None => self.unreported(),
            // Where others balance, how far it is announced says nothing of that.
            Some(_) if unseen > 0 => {
                let message = "in place; kube-proxy, or another program, balances it".to_owned();
                (
                    Truth::Unknown,
                    "BalancedElsewhere".to_owned(),
                    self.with_others(message, &self.others(|group| group.programmed == Truth::False.as_str())),
                )
            }
            Some(group) => (Truth::False, group.reason.clone(), self.with_others("on no node".to_owned(), &others)),
        }
    }

    /// Whether some node announces it.
    pub(super) fn advertised(&self) -> (Truth, String, String) {
        let others = self.others(|group| group.state != VipState::Announced.as_str());
        if !self.announcing.is_empty() {
            let reason = if others.is_empty() { "Announced" } else { "AnnouncedBySome" };
            let nodes: Vec<&str> = self.announcing.keys().copied().collect();
            return (Truth::True, reason.to_owned(), self.on("announced by", &nodes, &others));
        }
        // Such as one that is none of ours.
        if let Some(group) = self.backup.first().and_then(|node| self.groups.get(node)) {
            let reason = if others.is_empty() { "Announced" } else { "AnnouncedBySome" };
            return (Truth::True, reason.to_owned(), self.with_others(group.message.clone(), &others));
        }
        match self.groups.values().next() {
            None => self.unreported(),
            Some(group) => (Truth::False, group.reason.clone(), self.with_others("announced by no node".to_owned(), &others)),
        }
    }

    fn unreported(&self) -> (Truth, String, String) {
        let message = if !self.silent.is_empty() {
            format!("{} has not reported it yet", listed(self.silent.iter(), self.silent.len()))
        } else if !self.unheard.is_empty() {
            format!("no router node can be asked: {} is not Ready", listed(self.unheard.iter(), self.unheard.len()))
        } else {
            "there is no router node".to_owned()
        };
        (Truth::Unknown, "NotReported".to_owned(), message)
    }

    fn on(&self, how: &str, nodes: &[&str], others: &[String]) -> String {
        let all = self.groups.len() + self.silent.len() + self.unheard.len();
        self.with_others(format!("{how} {} ({} of {all} nodes)", listed(nodes.iter(), nodes.len()), nodes.len()), others)
    }

    fn with_others(&self, message: String, others: &[String]) -> String {
        let unheard = (!self.unheard.is_empty())
            .then(|| format!("{} is not Ready, and not counted", listed(self.unheard.iter(), self.unheard.len())));
        let all: Vec<String> = [message].into_iter().chain(others.iter().cloned()).chain(unheard).collect();
        all.join("; ")
    }

    /// What other nodes say, those together that say the same.
    fn others(&self, differs: impl Fn(&VipGroup) -> bool) -> Vec<String> {
        let mut said: BTreeMap<(&str, &str), Vec<&str>> = BTreeMap::new();
        for (node, group) in self.groups.iter().filter(|(_, group)| differs(group)) {
            said.entry((group.reason.as_str(), group.message.as_str())).or_default().push(node);
        }
        said.into_iter().map(|((reason, message), nodes)| format!("{}: {reason}, {message}", listed(nodes.iter(), nodes.len()))).collect()
    }
}
