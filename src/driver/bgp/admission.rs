// SPDX-License-Identifier: Apache-2.0
//! How many dynamic neighbours there may be.
//!
//! Input: the limit, who dials, and who sends an OPEN. Output: who has a place. A place belongs to who has sent an OPEN: whatever else connects from the
//! prefixes, a port scanner or a host that is gone before it spoke, takes none. Such connections are bounded by themselves, in number here and in time by
//! the hold timer of OpenSent (RFC 4271 §8.2.2).
//!
//! Invariants: never more places are taken than the limit was when the last one was; a place is free once its neighbour's task has ended.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bgp::Prefix;
use tokio::sync::Notify;

use super::status::Board;
use crate::desired::DesiredListen;

/// So many may be connected at once that have not sent their OPEN, or as many as there may be neighbours where that is more: all of them may come at once. An
/// OPEN is the first that a speaker sends, at once, so that who has been silent for longest is the least likely to send one at all.
const SILENT: usize = 64;

/// How long a neighbour that nobody has configured may take for its OPEN; four minutes are suggested where somebody has (RFC 4271 §8.2.2).
pub(super) const OPEN_HOLD_TIME: Duration = Duration::from_secs(30);

/// The places. Clones share them.
#[derive(Clone, Debug)]
pub(super) struct Admission {
    state: Arc<Mutex<State>>,
    board: Board,
}

#[derive(Debug, Default)]
struct State {
    /// `None` where nobody may come.
    limit: Option<u32>,
    taken: u32,
    prefixes: BTreeSet<Prefix>,
}

/// What becomes of one dynamic neighbour. Its place is free again when the last clone is gone.
#[derive(Debug)]
pub(super) struct Seat {
    admission: Admission,
    address: IpAddr,
    since: Instant,
    taken: AtomicBool,
    /// It was given up by an order.
    left: AtomicBool,
    dismissed: AtomicBool,
    dismissal: Notify,
}

impl Admission {
    pub(super) fn new(board: Board) -> Self {
        Self { state: Arc::default(), board }
    }

    /// From where dynamic neighbours come, and how many. Those that there are stay.
    pub(super) fn configure(&self, listen: Option<&DesiredListen>) {
        let (limit, prefixes) = listen.map(|listen| (listen.limit, listen.prefixes.clone())).unzip();
        let prefixes = prefixes.unwrap_or_default();
        let is_new = self.with(|state| {
            let is_new = (state.limit, &state.prefixes) != (limit, &prefixes);
            (state.limit, state.prefixes) = (limit, prefixes);
            is_new
        });
        if is_new {
            // What was told of the last refusal goes by what was.
            self.board.admit_dynamic();
        }
    }

    /// Where there is room again, that is told.
    fn admit(&self) {
        if !self.is_full() {
            self.board.admit_dynamic();
        }
    }

    fn free(&self) {
        self.with(|state| state.taken -= 1);
        self.admit();
    }

    /// Whether there are as many dynamic neighbours as may be.
    pub(super) fn is_full(&self) -> bool {
        self.with(|state| !state.has_room())
    }

    /// How many may be connected at once that have not sent their OPEN.
    pub(super) fn most_silent(&self) -> usize {
        let limit = self.with(|state| state.limit.unwrap_or_default());
        usize::try_from(limit).unwrap_or(usize::MAX).max(SILENT)
    }

    /// Somebody is refused for that: told once until there is room again, however many dial and how often.
    pub(super) fn refuse(&self, address: IpAddr) {
        let (limit, range) = self.with(|state| {
            let ranges = state.prefixes.iter().filter(|range| range.contains(address));
            (state.limit.unwrap_or_default(), ranges.max_by_key(|range| range.length()).map(ToString::to_string).unwrap_or_default())
        });
        let reason = format!("there are {limit} dynamic peers, as many as bgp.listen.limit allows: {address} of {range} was refused");
        if self.board.refuse_dynamic(reason) {
            tracing::warn!(%address, %range, limit, "there are as many dynamic peers as bgp.listen.limit allows: connections of others are closed");
        } else {
            tracing::debug!(%address, %range, limit, "another connection of a dynamic peer is closed");
        }
    }

    /// For one that has dialled, and has said nothing yet.
    pub(super) fn seat(&self, address: IpAddr) -> Arc<Seat> {
        let [taken, left, dismissed] = std::array::from_fn(|_| AtomicBool::new(false));
        Arc::new(Seat { admission: self.clone(), address, since: Instant::now(), taken, left, dismissed, dismissal: Notify::new() })
    }

    fn with<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        act(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl State {
    fn has_room(&self) -> bool {
        self.limit.is_none_or(|limit| self.taken < limit)
    }
}

impl Seat {
    /// The neighbour has sent an OPEN. False where there is no place for it, which is told.
    pub(super) fn take(&self) -> bool {
        if self.taken.load(Ordering::Relaxed) {
            return true;
        }
        let is_free = self.admission.with(|state| {
            let is_free = state.has_room();
            state.taken += u32::from(is_free);
            is_free
        });
        if is_free {
            self.left.store(false, Ordering::Relaxed);
            self.taken.store(true, Ordering::Relaxed);
        } else {
            self.admission.refuse(self.address);
        }
        is_free
    }

    /// Whether it counts among those that have said nothing.
    pub(super) fn is_silent(&self) -> bool {
        ![&self.taken, &self.dismissed, &self.left].iter().any(|flag| flag.load(Ordering::Relaxed))
    }

    /// The neighbour is shut down: others may have its place.
    pub(super) fn leave(&self) {
        self.left.store(true, Ordering::Relaxed);
        if self.taken.swap(false, Ordering::Relaxed) {
            self.admission.free();
        }
    }

    /// When it dialled.
    pub(super) const fn since(&self) -> Instant {
        self.since
    }

    /// It is to make room for somebody else, unless it speaks before it hears of that.
    pub(super) fn dismiss(&self) {
        self.dismissed.store(true, Ordering::Relaxed);
        self.dismissal.notify_one();
    }

    /// Waits until it has to go.
    pub(super) async fn dismissed(&self) {
        loop {
            self.dismissal.notified().await;
            if !self.taken.load(Ordering::Relaxed) {
                return;
            }
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        if self.taken.load(Ordering::Relaxed) {
            self.admission.free();
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    fn admission(limit: u32) -> Admission {
        let admission = Admission::new(Board::new());
        admission.with(|state| state.limit = Some(limit));
        admission
    }

    fn seat(admission: &Admission) -> Arc<Seat> {
        admission.seat(IpAddr::from([192, 0, 2, 1]))
    }

    #[test]
    fn places_are_taken_by_an_open_and_free_again_when_its_sender_is_gone() {
        let admission = admission(1);
        let (first, second) = (seat(&admission), seat(&admission));
        assert!(!admission.is_full(), "nobody has said anything");
        assert!(first.take() && first.take() && admission.is_full());
        assert!(!second.take() && second.is_silent());
        assert_eq!(admission.board.read().dynamic_refused, 1);
        let other = Arc::clone(&first);
        drop(first);
        assert!(admission.is_full());
        drop(other);
        assert!(!admission.is_full() && second.take());
        assert!(!seat(&admission).take() && admission.board.read().dynamic_full.is_some());
        second.leave();
        assert!(!admission.is_full() && !second.is_silent() && admission.board.read().dynamic_full.is_none(), "it is shut down");
        assert!(second.take() && admission.is_full());
        admission.with(|state| state.limit = Some(0));
        assert!(second.take(), "who has one keeps it");
        assert!(admission.is_full());
        admission.configure(None);
        assert!(!admission.is_full(), "there is nothing to be full of");
    }

    #[test]
    fn all_neighbours_may_come_at_once() {
        assert_eq!([1, 64, 500].map(|limit| admission(limit).most_silent()), [64, 64, 500]);
    }

    #[test]
    fn who_speaks_before_it_is_dismissed_stays() {
        let admission = admission(2);
        let (first, second) = (seat(&admission), seat(&admission));
        first.dismiss();
        assert!(!first.is_silent() && first.dismissed().now_or_never().is_some());
        second.dismiss();
        assert!(second.take());
        assert!(second.dismissed().now_or_never().is_none());
    }
}
