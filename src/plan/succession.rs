// SPDX-License-Identifier: Apache-2.0
//! The decisions where a virtual service goes while its VIP stays on the node: between its end in the kernel and that of its entry in the record, packets to its
//! ports would be let in, and reach whoever listens on the node itself.
//!
//! Input: what is observed. Output: `ClosePorts` -> (read back) `RemoveVirtualService` -> (gone) `RecordRemoved`, with which the ports are no longer on the
//! list of the closed ones. One that is wanted again meanwhile is made again, where it is gone, and then `OpenPorts`. Invariants: the entry that proves it ours
//! stays all the while; nothing is let in to a port that nobody serves; whose ports are closed does not count as served.

use super::{Planner, StepKey};
use crate::desired::ServiceKey;

impl Planner<'_> {
    /// The next step towards its end.
    pub(super) fn retire_service(&mut self, key: ServiceKey) {
        let record = &self.observed.kernel.record;
        // Rules of before need not know of closed ports. If they cannot be written, that is no reason to keep what nobody wants.
        let awaits_rules = self.balanced.unruly && !self.observed.failures.contains_key(&StepKey::Record);
        if !self.is_exposed(key) || (record.closed.contains(&key) && !awaits_rules) {
            self.remove_service(key);
        } else if !record.closed.contains(&key) {
            self.closing.insert(key);
        }
    }

    /// It serves, is wanted, and its filter is in force.
    pub(super) fn reopen_service(&mut self, key: ServiceKey) {
        if self.observed.kernel.record.closed.contains(&key) {
            self.opening.insert(key);
            if !self.observed.failures.contains_key(&StepKey::Record) {
                self.balanced.arriving.insert(key.vip);
            }
        }
    }

    /// What is closed has an entry, or is what a range of ports gives up.
    pub(super) fn forget_closed(&mut self) {
        let record = &self.observed.kernel.record;
        let stays = |key: &ServiceKey| record.has_service(*key) || self.balanced.given_up.contains(key);
        self.opening.extend(record.closed.iter().filter(|key| !stays(key)));
    }

    /// Whether packets to its ports would come to the node itself without it.
    pub(super) fn is_exposed(&self, key: ServiceKey) -> bool {
        let kernel = &self.observed.kernel;
        let let_in = self.desired.balancing.is_some() && !self.balanced.handing_over && kernel.record.confirmed_services.contains(&key);
        let_in && kernel.addresses.contains_key(&key.vip)
    }
}
