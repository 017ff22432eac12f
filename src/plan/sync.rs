// SPDX-License-Identifier: Apache-2.0
//! The decisions about the kernel's daemons of connection synchronisation, by which routers tell each other of connections.
//!
//! Inputs: intent and observation. Output: steps, and entries of the record. Invariants: one is started only with an entry in the record that has been
//! read back, and stopped only where this process started it or the record proves it ours; one that somebody else runs is left alone, even where it is
//! what the intent asks for; one of ours that differs from the intent is stopped, and started again once it is gone; where the node leaves, they go last
//! of all in the kernel, as other routers are to know of the connections that they take over.

use ipvs::{SyncDaemon, SyncRole};

use super::{Planner, Step, StepKey};
use crate::desired::{Desired, Lifecycle};
use crate::observed::{IpvsAvailability, Observed};

impl Planner<'_> {
    /// Decides about each of the two. What stays of addresses and virtual services has been decided.
    pub(super) fn decide_daemons(&mut self) {
        let leaves = self.desired.lifecycle == Lifecycle::Drain;
        for role in SyncRole::ALL {
            let record = &self.observed.kernel.record;
            let (confirmed, pending) = (record.confirmed_daemons.contains(&role), record.pending_daemons.contains(&role));
            let wanted = wanted(role, self.desired).filter(|_| !leaves);
            let found = self.observed.kernel.balancer.daemons.get(&role);
            let ours = is_ours(role, self.desired, self.observed);
            match (wanted, found) {
                (Some(_), None) if self.observed.kernel.balancer.availability != IpvsAvailability::Available => {}
                (Some(wanted), None) => {
                    if !(confirmed || pending) {
                        self.pending.daemons.insert(role);
                    } else if self.ready(StepKey::Daemon(role)) {
                        self.daemons.push(Step::StartDaemon(wanted.clone()));
                    }
                }
                (Some(wanted), Some(found)) if ours && wanted.is_shown_as(found) => {
                    self.confirmed.daemons.extend((!confirmed).then_some(role));
                }
                (_, Some(_)) if ours => {
                    let last = !leaves || !(self.occupied || self.balanced.occupied);
                    if last && self.ready(StepKey::Daemon(role)) {
                        self.daemons.push(Step::StopDaemon(role));
                    }
                }
                _ if confirmed || pending => drop(self.unrecorded.daemons.insert(role)),
                _ => {}
            }
        }
    }
}

fn wanted(role: SyncRole, desired: &Desired) -> Option<&SyncDaemon> {
    desired.balancing.as_ref()?.sync.get(&role)
}

/// Whether the daemon of this role that runs is ours: a pending entry says so only together with the intent.
fn is_ours(role: SyncRole, desired: &Desired, observed: &Observed) -> bool {
    let (record, balancer) = (&observed.kernel.record, &observed.kernel.balancer);
    let as_wanted = || {
        let found = balancer.daemons.get(&role);
        wanted(role, desired).is_some_and(|wanted| found.is_some_and(|found| wanted.is_shown_as(found)))
    };
    !balancer.foreign_daemons.contains(&role)
        && (record.confirmed_daemons.contains(&role)
            || balancer.started_daemons.contains(&role)
            || (record.pending_daemons.contains(&role) && as_wanted()))
}

/// Daemons of connection synchronisation that are asked for, and of which somebody else runs one in that place.
#[must_use]
pub fn daemons_of_others<'a>(desired: &'a Desired, observed: &'a Observed) -> Vec<&'a SyncDaemon> {
    let asked = desired.balancing.iter().flat_map(|balancing| balancing.sync.keys());
    let others = asked.filter(|role| !is_ours(**role, desired, observed));
    others.filter_map(|role| observed.kernel.balancer.daemons.get(role)).collect()
}

/// Whether this daemon that runs is ours, as far as intent and record tell.
#[must_use]
pub fn owns_daemon(role: SyncRole, desired: &Desired, observed: &Observed) -> bool {
    is_ours(role, desired, observed)
}

#[cfg(test)]
mod tests;
