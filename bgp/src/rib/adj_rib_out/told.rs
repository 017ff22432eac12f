// SPDX-License-Identifier: Apache-2.0
//! An Adj-RIB-Out for a reader: each path with the attributes that stand in the UPDATE.
//!
//! Input: the entries and the policy as they are. Output: values of their own, which can leave the thread of the session. Routes that are equal share
//! their attributes, so the work is one walk over the entries asked for.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::AdjRibOut;
use super::entry::Entry;
use crate::prefix::{Family, Prefix};
use crate::rib::Route;
use crate::wire::{NextHop, Nlri, PathAttribute};

/// One path towards the peer.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Advertisement {
    /// The destination, and the Path Identifier where the session has those (RFC 7911 §3).
    pub nlri: Nlri,
    /// How far it has come.
    pub progress: Progress,
    /// What it is told with; `None` where it is withdrawn.
    pub outgoing: Option<Arc<Outgoing>>,
}

/// Where a path is between us and the peer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Progress {
    /// The UPDATE is written.
    Told,
    /// It, or a change of it, waits to be written.
    ToBeTold,
    /// It is to be withdrawn.
    ToBeWithdrawn,
}

/// What an UPDATE says of its destinations.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Outgoing {
    /// The path attributes, without those that carry next hop and destinations.
    pub attributes: Vec<PathAttribute>,
    /// Where packets go.
    pub next_hop: NextHop,
}

impl AdjRibOut {
    /// The paths to one destination, or all, in the order of destinations. In proportion to what is asked for.
    #[must_use]
    pub fn advertisements(&self, only: Option<Prefix>) -> Vec<Advertisement> {
        let mut outgoing: BTreeMap<(Family, *const Route), Option<Arc<Outgoing>>> = BTreeMap::new();
        let mut advertisement = |nlri: &Nlri, entry: &Entry| {
            let family = nlri.prefix.family();
            let shared = |route: &Arc<Route>| {
                let made = || self.outgoing(route, family).map(Arc::new);
                outgoing.entry((family, Arc::as_ptr(route))).or_insert_with(made).clone()
            };
            Advertisement { nlri: *nlri, progress: progress(entry), outgoing: entry.wanted().and_then(shared) }
        };
        match only {
            Some(prefix) => self.table.of(prefix).map(|(nlri, entry)| advertisement(nlri, entry)).collect(),
            None => self.table.iter().map(|(nlri, entry)| advertisement(nlri, entry)).collect(),
        }
    }

    /// The next hop of the routes of a family that start here and do not name another one; `None` where they cannot be told.
    #[must_use]
    pub fn own_next_hop(&self, family: Family) -> Option<NextHop> {
        self.outgoing(&Route::originated(), family).map(|outgoing| outgoing.next_hop)
    }

    fn outgoing(&self, route: &Route, family: Family) -> Option<Outgoing> {
        let (attributes, next_hop) = self.exporter.outgoing(route, family).ok()?;
        Some(Outgoing { attributes, next_hop })
    }
}

fn progress(entry: &Entry) -> Progress {
    if entry.is_to_be_withdrawn() {
        Progress::ToBeWithdrawn
    } else if entry.is_to_be_announced() {
        Progress::ToBeTold
    } else {
        Progress::Told
    }
}
