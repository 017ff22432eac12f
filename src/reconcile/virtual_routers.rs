// SPDX-License-Identifier: Apache-2.0
//! The loop and the virtual routers: what it reads of them, how it tells them, what there are of them before an intent, and how they leave.
//!
//! Inputs: their status, the configuration, steps of a plan. Output: an [`ObservedVirtualRouters`]; whole sets for [`VirtualRouters`], which nobody waits for but the end
//! of the daemon.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::signal::unix::{SignalKind, signal};
use tokio::time::timeout;
use vrrp::router::State;

use super::Reconciler;
use crate::desired::{DesiredVrrp, NodeDrain, VirtualRouting};
use crate::driver::vrrp::{RouterStatus, VirtualRouters, VrrpStatus};
use crate::observed::ObservedVirtualRouters;
use crate::plan::Step;

/// What a hand-over may take beyond the longest that any router waits for another one.
const SLACK: Duration = Duration::from_secs(5);

/// How long they may take to take a whole set; they do so at once unless they cannot.
const PATIENCE: Duration = Duration::from_secs(1);

/// A whole set that they cannot take yet.
#[derive(Debug, thiserror::Error)]
#[error("the virtual routers have not taken it yet: {0}")]
struct NotTaken(String);

/// What matters of them to the planner.
pub(super) fn observed(status: &VrrpStatus, now: Instant) -> ObservedVirtualRouters {
    let mut settled = BTreeSet::new();
    for router in status.groups.iter().filter(|group| !group.leaving).flat_map(|group| group.routers.values()) {
        settled.extend(router.config.addresses.iter().filter(|address| is_settled(*address, router, now)));
    }
    ObservedVirtualRouters {
        configured: status.configured.clone(),
        stopping: status.stopping,
        recorded: status.recorded.as_ref().map(|recorded| recorded.values().flatten().copied().collect()),
        settled,
    }
}

/// Whether packets to an address of this virtual router find it: here, or at the Active Router that is heard. One that lists as many as it can may have more.
fn is_settled(address: IpAddr, router: &RouterStatus, now: Instant) -> bool {
    match router.state {
        State::Initialize => false,
        State::Active => router.placed.contains(&address),
        State::Backup => {
            let lists =
                |listed: &vrrp::Addresses| listed.iter().any(|listed| listed == address) || listed.len() >= listed.family().most_listed();
            router.heard_lately(now).is_some() && router.listed.as_ref().is_some_and(lists)
        }
    }
}

/// Those that there are before the first intent, for which nobody is waited: those with addresses of their own. `None` where the node was drained, as far
/// as is known, and so has none.
fn before_intent(configured: &VirtualRouting, node_drain: &NodeDrain) -> Option<DesiredVrrp> {
    let groups = configured.with_addresses().map(|(name, group)| (name.clone(), group.clone())).collect();
    match node_drain {
        NodeDrain::Drained { .. } => None,
        NodeDrain::None | NodeDrain::Waiting { .. } => Some(DesiredVrrp { groups, complete: false }),
    }
}

impl Reconciler {
    /// What is intended for VIPs is not known yet.
    pub(super) fn route_before_intent(&self) {
        match before_intent(&self.intent.virtual_routing(), &self.intent.node_drain()) {
            Some(desired) if desired.groups.is_empty() => {}
            Some(desired) => self.routers.configure(Arc::new(desired)),
            None => self.routers.stop(),
        }
    }

    pub(super) async fn execute_on_routers(&mut self, steps: &[Step]) {
        for step in steps {
            match step {
                Step::ConfigureVirtualRouters(desired) => self.routers.configure(Arc::clone(desired)),
                Step::SuspendVirtualRouters => self.routers.suspend(),
                _ => self.routers.stop(),
            }
            let is_taken = |status: &Arc<VrrpStatus>| match step {
                Step::ConfigureVirtualRouters(desired) => status.configured.as_ref() == Some(desired),
                _ => status.stopping,
            };
            let taken = matches!(timeout(PATIENCE, self.router_status.wait_for(is_taken)).await, Ok(Ok(_)));
            let problem = self.router_status.borrow().record_problem.clone().unwrap_or_else(|| "they are busy".to_owned());
            self.account(step, (!taken).then_some(&NotTaken(problem) as &dyn Error));
        }
    }
}

/// Hands over, and waits until that is done, where there is anything; a signal says not to. Where nobody follows, the addresses stay where they are `kept` for the next process.
pub(super) async fn leave(routers: &VirtualRouters, kept: bool) {
    let mut status = routers.subscribe();
    let has_nothing = |status: &VrrpStatus| status.configured.is_none() && status.recorded.as_ref().is_some_and(BTreeMap::is_empty);
    if has_nothing(&status.borrow()) {
        return;
    }
    if kept {
        routers.suspend();
    } else {
        routers.stop();
    }
    let bound = longest_hand_over(&status.borrow()) + SLACK;
    let Ok(mut terminate) = signal(SignalKind::terminate()) else { return };
    tokio::select! {
        stopped = timeout(bound, status.wait_for(|status| status.stopped)) => {
            if !matches!(stopped, Ok(Ok(_))) {
                tracing::warn!(after = ?bound, "virtual routers have not left in time; what is left of their addresses the next start takes away");
            }
        }
        _ = terminate.recv() => {
            tracing::warn!("second signal: leaving at once: addresses of virtual routers stay as they are; the next start takes them over");
        }
    }
}

/// The longest that another router waits before it takes over (RFC 9568 §6.1; RFC 3768 §6.1 adds up to a second).
pub(super) fn longest_hand_over(status: &VrrpStatus) -> Duration {
    let intervals = status.groups.iter().flat_map(|group| group.routers.values()).map(|router| router.config.interval.duration());
    intervals.max().unwrap_or_default() * 4
}

#[cfg(test)]
mod tests {
    use bgp::Prefix;

    use super::*;
    use crate::desired::DesiredGroup;

    #[test]
    fn nobody_is_waited_for_to_have_addresses_of_the_configuration_but_a_node_that_was_drained_stays_so() {
        let group = |addresses| DesiredGroup::new("eth1".to_owned(), vrrp::Vrid::new(7).unwrap(), addresses);
        let own = group(vec!["10.0.0.9".parse().unwrap()]);
        let configured = VirtualRouting {
            groups: [("own".to_owned(), own.clone()), ("vips".to_owned(), group(vec![]))].into(),
            vips: [("vips".to_owned(), BTreeSet::from([Prefix::new(std::net::Ipv4Addr::UNSPECIFIED.into(), 0).unwrap()]))].into(),
            ..VirtualRouting::default()
        };
        let expected = DesiredVrrp { groups: [("own".to_owned(), own)].into(), complete: false };
        assert_eq!(before_intent(&configured, &NodeDrain::None), Some(expected));
        assert_eq!(before_intent(&configured, &NodeDrain::Drained { reason: "it is cordoned".to_owned() }), None);
    }
}
