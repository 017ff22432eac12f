// SPDX-License-Identifier: Apache-2.0
//! VIPs of virtual routers in words: which node has each, as far as this one knows.
//!
//! Invariant: one is called Announced only where packets to it find a node: this one is the Active Router and has it, or hears one that does.

use std::collections::BTreeMap;
use std::net::IpAddr;

use vrrp::Family;

use super::vip::Why;
use super::{VipState, VirtualRouterStatus, VrrpGroupStatus};

/// Why a VIP is called Announced on a node that is Backup.
pub(super) const BACKUP: &str = "Backup";

/// The virtual router of which a VIP is an address.
#[derive(Clone, Copy)]
pub(super) struct Routed<'a> {
    group: &'a VrrpGroupStatus,
    router: &'a VirtualRouterStatus,
}

/// By address; of a group that goes only where no other one has it.
pub(super) fn routed(groups: &[VrrpGroupStatus]) -> BTreeMap<IpAddr, Routed<'_>> {
    let mut routed = BTreeMap::new();
    let (going, staying): (Vec<_>, Vec<_>) = groups.iter().partition(|group| group.leaving);
    for group in staying.into_iter().chain(going) {
        for router in &group.routers {
            for address in &router.addresses {
                routed.entry(*address).or_insert(Routed { group, router });
            }
        }
    }
    routed
}

impl Routed<'_> {
    /// Where a VIP of it stands.
    pub(super) fn standing(&self, vip: IpAddr) -> (VipState, Why) {
        let Self { group, router } = self;
        let name = self.name();
        match (router.state.as_str(), router.active_router) {
            ("Active", _) if router.placed.contains(&vip) => {
                (VipState::Announced, Why::new("Active", format!("this node has it, as the Active Router of {name}")))
            }
            ("Active", _) => (VipState::Pending, Why::new("Placing", format!("its address is on its way onto {}", group.interface))),
            ("Backup", Some(active)) if !self.is_listed_by(active, vip) => {
                let message =
                    format!("{active} is the Active Router of {name}, and does not list it: that node does not serve it, or not yet");
                (VipState::Pending, Why::new("NotListed", message))
            }
            ("Backup", Some(active)) => {
                (VipState::Announced, Why::new(BACKUP, format!("{active} has it, as the Active Router of {name}; this node is Backup")))
            }
            ("Backup", None) => (VipState::Pending, Why::new("Electing", format!("no Active Router of {name} is heard"))),
            _ => {
                let why = group.problems.iter().chain(&router.hindrances).cloned().collect::<Vec<_>>().join("; ");
                (VipState::Pending, Why::new("Initialize", format!("{name} takes no part here: {why}")))
            }
        }
    }

    /// The group, for persons.
    pub(super) fn name(&self) -> String {
        let VrrpGroupStatus { name, virtual_router_id, interface, .. } = self.group;
        format!("group {name} (VRID {virtual_router_id} on {interface})")
    }

    /// Whether another router has the VIP, as far as it tells: one that lists what we do is not asked, and one that lists as many as it can may have more.
    fn is_listed_by(&self, other: IpAddr, vip: IpAddr) -> bool {
        let listed = self.router.others.iter().find(|router| router.address == other).map(|router| &router.lists);
        listed.is_none_or(|listed| listed.is_empty() || listed.contains(&vip) || listed.len() >= Family::of(vip).most_listed())
    }
}
