// SPDX-License-Identifier: Apache-2.0
//! Routes (RFC 4271 §3.2): [`LocRib`], those that this speaker has, and [`AdjRibOut`], what one peer was told of them.
//!
//! Input: whole sets of routes, what a session negotiated, the addresses of its connection, and TCP's acknowledgements. Output: UPDATEs in octets,
//! and which destinations the peer may hold. Nothing is imported: there is no Adj-RIB-In.
//!
//! Invariants: a destination that the peer may hold is either advertised or being withdrawn, never neither and never both. What is told to a peer
//! ends with its session.
//!
//! Supported standards: RFC 4271 §5, §9.1.3, §9.2; RFC 4724 §2 (End-of-RIB); RFC 2545, RFC 4760 (IPv6 unicast); RFC 2918 §4 (answer to a refresh).

mod adj_rib_out;
mod export;
#[cfg(test)]
pub(crate) mod receiver;

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::prefix::Prefix;
use crate::wire::{AsPath, Origin};

pub use adj_rib_out::{AdjRibOut, Batch};
pub use export::{Export, LocalAddresses, NextHopPolicy, Withheld};

/// What is known of the way to a destination, before the policy of any session is applied to it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Route {
    /// How it came into BGP (RFC 4271 §5.1.1).
    pub origin: Origin,
    /// The ASes that it has passed, without ours (RFC 4271 §5.1.2).
    pub as_path: AsPath,
}

impl Route {
    /// A route that starts here: origin IGP, empty path.
    #[must_use]
    pub const fn originated() -> Self {
        Self { origin: Origin::Igp, as_path: AsPath(Vec::new()) }
    }
}

/// The routes of this speaker, one for each destination (RFC 4271 §3.2, Loc-RIB).
///
/// Destinations whose routes are one and the same `Arc` share UPDATEs.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct LocRib {
    routes: BTreeMap<Prefix, Arc<Route>>,
}

impl LocRib {
    /// These destinations, all of them here.
    pub fn originated(prefixes: impl IntoIterator<Item = Prefix>) -> Self {
        let route = Arc::new(Route::originated());
        prefixes.into_iter().map(|prefix| (prefix, Arc::clone(&route))).collect()
    }

    /// The destinations with their routes, in the order of prefixes.
    pub fn routes(&self) -> impl Iterator<Item = (Prefix, &Arc<Route>)> {
        self.routes.iter().map(|(prefix, route)| (*prefix, route))
    }

    /// How many destinations there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.routes.len()
    }

    /// Whether there is no destination.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.routes.is_empty()
    }
}

impl FromIterator<(Prefix, Arc<Route>)> for LocRib {
    fn from_iter<I: IntoIterator<Item = (Prefix, Arc<Route>)>>(routes: I) -> Self {
        Self { routes: routes.into_iter().collect() }
    }
}
