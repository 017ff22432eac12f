// SPDX-License-Identifier: Apache-2.0
//! Whether a group has its own priority, or the lowest, and why.
//!
//! Input: what is wrong with the node, and the families without a virtual router. Output: what the group is told, and the reason in words. Each new reason makes it
//! hand over; that there is none any more counts after a while.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use vrrp::router::Event;
use vrrp::{Family, Priority};

use super::{Identity, Running};
use crate::desired::NodeTrouble;

/// What is missed for that long is no passing state, as an address whose uniqueness is still looked at (RFC 4862 §5.4).
const GRACE: Duration = Duration::from_secs(3);
/// The priority of the configuration counts again once nothing has been wrong for that long: what comes and goes is not to move addresses each time.
const STEADY: Duration = Duration::from_secs(10);

/// Why a group has the lowest priority.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) enum Reason {
    Node(NodeTrouble),
    /// A family of its addresses has no virtual router here.
    Lacks(Family),
}

impl Running {
    /// Tells the group whether it has its own priority. Each new reason makes it hand over; that there is none any more counts after a while.
    pub(super) fn tell_health(&mut self, now: Instant) {
        let lasting = self.lacking.iter().filter(|(_, lack)| lack.since + GRACE <= now).map(|(family, _)| Reason::Lacks(*family));
        let found: BTreeSet<Reason> = self.desired.troubles.iter().copied().map(Reason::Node).chain(lasting).collect();
        let before = self.unserving();
        let is_worse = found.iter().any(|reason| !self.reasons.contains(reason));
        if found.is_empty() {
            let restored_at = self.restored_at.get_or_insert(now + STEADY);
            if *restored_at <= now {
                self.reasons.clear();
            }
        } else {
            self.reasons = found;
            self.restored_at = None;
        }
        let serving = self.reasons.is_empty();
        if serving {
            self.restored_at = None;
        }
        if is_worse || self.routers().any(|(_, router)| router.is_serving() != serving) {
            self.handle(now, if serving { &Event::Serving } else { &Event::NotServing });
        }
        let passing = self.lacking.values().map(|lack| lack.since + GRACE).filter(|at| *at > now);
        self.review_at = passing.chain(self.restored_at).min();
        let unserving = self.unserving();
        if unserving != before {
            self.news = true;
            let Identity { name, interface, vrid, .. } = &self.identity;
            match unserving {
                Some(reason) => {
                    tracing::warn!(group = name, %interface, %vrid, reason, "the virtual router hands over where another one follows")
                }
                None => tracing::info!(group = name, %interface, %vrid, "the virtual router has its own priority again"),
            }
        }
    }

    /// Why it has the lowest priority, in words.
    pub(super) fn unserving(&self) -> Option<String> {
        if self.reasons.is_empty() {
            return None;
        }
        let word = |reason: &Reason| match reason {
            Reason::Node(trouble) => trouble.to_string(),
            Reason::Lacks(family) => format!("it has no virtual router of {family}"),
        };
        let reasons = self.reasons.iter().map(word).collect::<Vec<_>>().join(", ");
        Some(match self.restored_at {
            None => format!("this node has priority {}: {reasons}", Priority::LOWEST),
            Some(_) => {
                format!("this node has priority {} until {STEADY:?} have passed without trouble; it was: {reasons}", Priority::LOWEST)
            }
        })
    }
}
