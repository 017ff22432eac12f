// SPDX-License-Identifier: Apache-2.0
//! The routes that a session is to tell its peer, and when it may take them.
//!
//! Input: the set that starts here, what the neighbours have told, and whether this peer takes anything. Output: the moment for the next step. A step
//! that takes long waits for its turn among all sessions; others are made at once.

use tokio::sync::watch;

use crate::driver::bgp::Routes;
use crate::driver::bgp::gate::{MANY, Turn};
use crate::driver::bgp::rib::Member;

/// The routes of one session.
pub(in crate::driver::bgp) struct Feed {
    pub(in crate::driver::bgp) routes: watch::Receiver<Option<Routes>>,
    /// The routes of this speaker.
    pub(in crate::driver::bgp) rib: Member,
    pub(in crate::driver::bgp) turn: Turn,
}

impl Feed {
    /// Waits for other routes, or, where the session `resumes` to tell those that it has, for nothing; then, if the step is a long one, until it is its
    /// turn. `stuck`: the peer takes nothing at present. Cancelling the wait loses nothing.
    pub(super) async fn next(&mut self, stuck: bool, resumes: bool) {
        if !resumes {
            if !self.rib.is_amid() && !self.are_many() {
                self.turn.leave();
            }
            tokio::select! {
                Ok(()) = self.routes.changed() => self.routes.mark_changed(),
                () = self.rib.changed() => {}
            }
        }
        if resumes || self.rib.is_amid() || self.are_many() {
            // What has begun is finished.
            self.turn.come(stuck && !self.rib.is_amid()).await;
        }
    }

    /// Whether many routes have changed.
    fn are_many(&self) -> bool {
        let routes = self.routes.borrow();
        let given = routes.as_ref().filter(|_| routes.has_changed());
        let changed = given.map_or(0, |routes| routes.changed.as_ref().map_or(routes.set.routes.len(), |changed| changed.len()));
        changed.max(self.rib.behind()) > MANY
    }
}
