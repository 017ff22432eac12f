// SPDX-License-Identifier: Apache-2.0
//! Whose turn it is: long steps of the sessions, which share one thread, go one at a time.
//!
//! Input: sessions that have a long step before them: their first whole set, a refresh, a change of many routes, or the next part of a large backlog.
//! Output: a turn for each, in the order in which they asked. Between two turns every other task of the thread runs that has something to do, so that a
//! KEEPALIVE waits for one long step at most, however many sessions have one to do.
//!
//! Invariants: at most one session has the turn; one that waits keeps its place when the wait is cancelled, and must ask again or [leave](Turn::leave).

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::yield_now;
use tokio::time::sleep_until;

/// A step is long from so many destinations on, and is made in parts of so many: some milliseconds.
pub(super) const MANY: usize = 8192;

/// A session whose peer takes nothing can tell it nothing of what it works out: it does so this often, if only to know what the peer may still hold.
const UNHURRIED: Duration = Duration::from_secs(2);

/// The gate of one thread.
#[derive(Clone, Debug)]
pub(super) struct Gate(Arc<Semaphore>);

/// One session at the gate.
pub(super) struct Turn {
    gate: Arc<Semaphore>,
    /// Its place in the queue.
    place: Option<Pin<Box<dyn Future<Output = Option<OwnedSemaphorePermit>> + Send>>>,
    permit: Option<OwnedSemaphorePermit>,
    /// When its last turn ended.
    last: Option<Instant>,
}

impl Default for Gate {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(1)))
    }
}

impl Gate {
    /// One more session.
    pub(super) fn turn(&self) -> Turn {
        Turn { gate: Arc::clone(&self.0), place: None, permit: None, last: None }
    }
}

impl Turn {
    /// Waits until it is this session's turn. `stuck`: its peer takes nothing, so that there is no hurry.
    pub(super) async fn come(&mut self, stuck: bool) {
        if stuck && let Some(at) = self.last.and_then(|last| last.checked_add(UNHURRIED)) {
            self.place = None;
            sleep_until(at.into()).await;
        }
        let gate = &self.gate;
        // The gate is never closed.
        let place = self.place.get_or_insert_with(|| {
            let acquired = Arc::clone(gate).acquire_owned();
            Box::pin(async move { acquired.await.ok() })
        });
        self.permit = place.await;
        self.place = None;
    }

    /// There is no long step any more.
    pub(super) fn leave(&mut self) {
        self.place = None;
    }

    /// The long step, if it was one, is done: all others go first, and then the next in the queue.
    pub(super) async fn end(&mut self) {
        if let Some(permit) = self.permit.take() {
            self.last = Some(Instant::now());
            yield_now().await;
            drop(permit);
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    fn comes(turn: &mut Turn) -> bool {
        turn.come(false).now_or_never().is_some()
    }

    #[tokio::test]
    async fn one_at_a_time_in_the_order_of_asking_though_the_wait_is_cancelled() {
        let gate = Gate::default();
        let [mut a, mut b, mut c] = [gate.turn(), gate.turn(), gate.turn()];
        assert!(comes(&mut a));
        assert!(!comes(&mut b) && !comes(&mut c) && !comes(&mut b));
        a.end().await;
        assert!(!comes(&mut a) && !comes(&mut c), "b was the first");
        assert!(comes(&mut b));
        b.end().await;
        c.leave();
        assert!(comes(&mut a), "c has left");
        drop(a);
        assert!(comes(&mut b), "one that is gone has no turn");
    }

    #[tokio::test]
    async fn who_waits_for_a_keepalive_goes_before_the_next_long_step() {
        let gate = Gate::default();
        let (mut a, mut b) = (gate.turn(), gate.turn());
        let (steps, mut done) = tokio::sync::mpsc::unbounded_channel();
        a.come(false).await;
        let (next, light) = (steps.clone(), steps);
        assert!(!comes(&mut b));
        tokio::spawn(async move {
            b.come(false).await;
            next.send("long").unwrap();
        });
        yield_now().await;
        tokio::spawn(async move { light.send("light").unwrap() });
        a.end().await;
        assert_eq!((done.recv().await, done.recv().await), (Some("light"), Some("long")));
    }

    #[tokio::test]
    async fn whose_peer_takes_nothing_has_fewer_turns() {
        let mut turn = Gate::default().turn();
        turn.come(true).await;
        turn.end().await;
        assert!(turn.come(true).now_or_never().is_none());
        assert!(comes(&mut turn), "it takes something again");
    }
}
