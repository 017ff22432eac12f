// SPDX-License-Identifier: Apache-2.0
//! The virtual routers, as far as they matter to the planner.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use crate::desired::DesiredVrrp;

/// What the virtual routers report.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ObservedVirtualRouters {
    /// What they were told last; `None` before the first time, and once they are stopped.
    pub configured: Option<Arc<DesiredVrrp>>,
    /// They were told to resign, and nothing since.
    pub stopping: bool,
    /// The addresses that are theirs where they are there, by their record; `None` until that was read.
    pub recorded: Option<BTreeSet<IpAddr>>,
    /// Addresses that packets find: this node is Active and has them, or hears an Active Router that does.
    pub settled: BTreeSet<IpAddr>,
}

impl ObservedVirtualRouters {
    /// Whether an address is theirs where it is on another interface than `vips.interface`, as far as that is known.
    #[must_use]
    pub fn has_recorded(&self, address: IpAddr) -> bool {
        self.recorded.as_ref().is_some_and(|recorded| recorded.contains(&address))
    }

    /// What would be were they told this, and everybody else too: whoever is Active has all of it at once.
    pub(crate) fn predict(&mut self, desired: &Arc<DesiredVrrp>) {
        let addresses: BTreeSet<IpAddr> = desired.groups.values().flat_map(|group| &group.addresses).copied().collect();
        let kept = self.recorded.take().filter(|_| !desired.complete).unwrap_or_default();
        self.recorded = Some(kept.union(&addresses).copied().collect());
        self.settled = addresses;
        self.configured = Some(Arc::clone(desired));
        self.stopping = false;
    }
}
