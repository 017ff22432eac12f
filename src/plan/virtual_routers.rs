// SPDX-License-Identifier: Apache-2.0
//! The decisions about VIPs that virtual routers have on a link, instead of every node on `vips.interface`, and what the virtual routers are to be told.
//!
//! Inputs: what is intended and observed, and the decisions about virtual services so far. Output: which VIPs are addresses of virtual routers, which of them BGP
//! announces all the same, and one step about the whole set.
//!
//! - In: `RecordPending` -> virtual services as ever, confirmed -> `ConfigureVirtualRouters` with it -> `RecordConfirmed`.
//! - Out: `ConfigureVirtualRouters` without it -> (gone from the link) `RemoveVirtualService` -> `RecordRemoved`.
//! - From BGP: as in, while it stays announced and on `vips.interface` -> (an Active Router has it) out, as where BGP announces it.
//! - To BGP: onto `vips.interface`, announced -> (some peer was told) `ConfigureVirtualRouters` without it.
//! - Start: groups that have VIPs begin once all of them are there that are on their way, so that a node does not take over VIPs that it has not got yet. Until
//!   then, what an earlier process has left on the link stays.
//! - Where something is wrong with this node for the VIPs of a group, which need not be so on another one: `ConfigureVirtualRouters` with that, so that the group hands over. It does
//!   not for what is the same on all nodes, as that nobody stands behind a VIP.
//! - Drain, standby, and what stays for the next start: the virtual routers resign, before all else.
//!
//! Invariants: a VIP is an address of a virtual router only while somebody stands behind it here; its virtual services and its entry in the record, which closes its
//! other ports, are there as long as packets may come; where the mode changes, the new way stands before the old one is taken down.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use super::{Ownership, PATIENCE, Planner, Step, StepKey};
use crate::desired::{DesiredGroup, DesiredVrrp, Lifecycle, Mode, NodeTrouble};
use crate::observed::{Observed, ObservedVirtualRouters};

/// The step of the virtual routers, by its urgency.
#[derive(Default)]
pub(super) struct RouterSteps {
    /// Takes something away, before all else.
    pub(super) first: Option<Step>,
    /// Adds, after what the node is to have for it.
    pub(super) last: Option<Step>,
}

/// The addresses that the virtual routers were told.
pub(super) fn routed(observed: &Observed) -> BTreeSet<IpAddr> {
    let configured = observed.virtual_routers.configured.iter();
    configured.flat_map(|vrrp| vrrp.groups.values()).flat_map(|group| &group.addresses).copied().collect()
}

impl Planner<'_> {
    pub(super) fn is_by_routers(&self) -> bool {
        self.desired.vrrp.mode == Mode::Vrrp
    }

    /// Whether a virtual router of this node has the address on its link, or may have it at any moment.
    pub(super) fn routers_have(&self, address: IpAddr) -> bool {
        let Observed { kernel, virtual_routers, .. } = self.observed;
        self.routed.contains(&address) || (kernel.elsewhere.contains(&address) && virtual_routers.has_recorded(address))
    }

    /// Whether BGP is to announce a VIP that is on `vips.interface`: where virtual routers are to have it, what is left of the other mode, until one has.
    pub(super) fn is_for_peers(&self, vip: IpAddr, ownership: Option<Ownership>) -> bool {
        let Observed { speaker, virtual_routers, .. } = self.observed;
        let is_announced = || speaker.advertised.as_ref().is_some_and(|set| set.serves(vip));
        let is_left = || ownership == Some(Ownership::Ours) || is_announced();
        !self.is_by_routers() || (!virtual_routers.settled.contains(&vip) && is_left())
    }

    /// Puts a VIP that is served here among the addresses of the virtual routers, where it is to be there.
    pub(super) fn route(&mut self, vip: IpAddr) {
        let is_there = self.was_routed(vip);
        let stays = if self.is_by_routers() { is_there || !self.awaits_services(vip) } else { is_there && !self.is_told(vip) };
        if stays {
            self.held.insert(vip);
        }
    }

    /// Whether virtual routers of this process have the VIP, or those of an earlier one, of which this one has not taken over all yet.
    fn was_routed(&self, vip: IpAddr) -> bool {
        let routers = &self.observed.virtual_routers;
        let goes_on = routers.configured.as_ref().is_some_and(|vrrp| vrrp.complete);
        self.routed.contains(&vip) || (!goes_on && routers.has_recorded(vip))
    }

    /// Whether packets come by BGP: some peer has a session and has been told.
    fn is_told(&self, vip: IpAddr) -> bool {
        let speaker = &self.observed.speaker;
        speaker.established && !speaker.behind && speaker.advertised.as_ref().is_some_and(|set| set.serves(vip))
    }

    /// One step of a VIP to a virtual router: never without an entry in the record that has been read back.
    pub(super) fn prepare(&mut self, vip: IpAddr, recorded: bool, confirmed: bool) {
        let is_written = !recorded && !self.observed.failures.contains_key(&StepKey::Record);
        self.arriving |= self.services_arrive(vip) || is_written;
        if !recorded {
            self.pending.addresses.insert(vip);
        } else if !confirmed && self.routed.contains(&vip) {
            self.confirmed.addresses.insert(vip);
        }
    }

    /// A VIP that this node cannot have, and another one may: where somebody stands behind it.
    pub(super) fn keep_off(&mut self, vip: IpAddr) {
        let services = self.desired.balancing.iter().flat_map(|balancing| &balancing.services);
        let is_backed = self.is_by_routers() && services.into_iter().any(|(key, service)| key.vip == vip && service.is_backed());
        self.kept_off.extend(is_backed.then_some(vip));
    }

    /// What is wrong with this node for the VIPs of a group. That nobody stands behind a VIP is the same on all nodes, and nothing wrong with one.
    fn troubles(&mut self, group: &str) -> BTreeSet<NodeTrouble> {
        let unreadable = self.observed.unreadable_since;
        let unreadable = unreadable.is_some_and(|since| self.due(since, PATIENCE));
        let is_of_group = |vip: IpAddr| self.desired.vrrp.group_of(vip) == Some(group);
        let concerns = |key: &StepKey| match key {
            StepKey::Record | StepKey::Sysctl(_) => true,
            StepKey::VirtualService(service) => is_of_group(service.vip),
            StepKey::Advertise
            | StepKey::Address(_)
            | StepKey::Speaker
            | StepKey::VirtualRouters
            | StepKey::Interfaces
            | StepKey::Timeouts
            | StepKey::Daemon(_)
            | StepKey::Connections
            | StepKey::Retired(_) => false,
        };
        let found = [
            (NodeTrouble::Unreadable, unreadable),
            (NodeTrouble::NotProgrammed, self.failing.iter().any(concerns)),
            (NodeTrouble::Blocked, self.kept_off.iter().any(|vip| is_of_group(*vip))),
        ];
        found.into_iter().filter(|(_, is_found)| *is_found).map(|(trouble, _)| trouble).collect()
    }

    /// All that there are to be.
    fn virtual_routers(&mut self) -> DesiredVrrp {
        let configured = self.observed.virtual_routers.configured.as_deref();
        let (vrrp, begins) = (&self.desired.vrrp, !self.arriving);
        let mut set = DesiredVrrp {
            groups: vrrp.with_addresses().map(|(name, group)| (name.clone(), group.clone())).collect(),
            complete: self.strays_leave() && (begins || configured.is_some_and(|vrrp| vrrp.complete)),
        };
        for vip in &self.held {
            let Some((name, group)) = vrrp.group_of(*vip).and_then(|name| vrrp.groups.get_key_value(name)) else { continue };
            if begins || configured.is_some_and(|vrrp| vrrp.groups.contains_key(name)) {
                let of_group = set.groups.entry(name.clone()).or_insert_with(|| DesiredGroup { addresses: Vec::new(), ..group.clone() });
                of_group.addresses.push(*vip);
            }
        }
        for (name, group) in set.groups.iter_mut().filter(|(name, _)| vrrp.vips.contains_key(*name)) {
            group.troubles = self.troubles(name);
        }
        set
    }

    /// What is to go is told before all else.
    pub(super) fn router_steps(&mut self) -> RouterSteps {
        if self.desired.lifecycle != Lifecycle::Run {
            return RouterSteps { first: self.stop_routers(), last: None };
        }
        let ObservedVirtualRouters { configured, recorded, .. } = &self.observed.virtual_routers;
        let set = self.virtual_routers();
        let in_force = match configured {
            Some(configured) => **configured == set,
            None => set.groups.is_empty() && recorded.as_ref().is_none_or(BTreeSet::is_empty),
        };
        if in_force || !self.ready(StepKey::VirtualRouters) {
            return RouterSteps::default();
        }
        let takes_away = configured.as_ref().is_some_and(|configured| !set.covers(configured) || set.is_in_more_trouble_than(configured));
        let step = Some(Step::ConfigureVirtualRouters(Arc::new(set)));
        if takes_away { RouterSteps { first: step, last: None } } else { RouterSteps { first: None, last: step } }
    }

    /// They resign, where there are any, or something that an earlier process has left.
    pub(super) fn stop_routers(&mut self) -> Option<Step> {
        let ObservedVirtualRouters { configured, stopping, recorded, .. } = &self.observed.virtual_routers;
        let is_there = configured.is_some() || recorded.as_ref().is_some_and(|recorded| !recorded.is_empty());
        (is_there && !stopping && self.ready(StepKey::VirtualRouters)).then_some(Step::StopVirtualRouters)
    }
}
