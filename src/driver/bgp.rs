// SPDX-License-Identifier: Apache-2.0
//! The BGP speaker: [`bgp::peer::Peer`] for each neighbour, on TCP, on one thread of its own.
//!
//! ```text
//!   slow loop ---- whole sets (watch) ---->  neighbours: keeps the set of tasks equal to the configuration
//!       ^                                        | one task each: session = one Peer
//!       +-- SpeakerStatus (watch) -- board <-----+-- connection: octets of one TCP connection
//! ```
//!
//! Inputs: [`Speaker::configure`], [`Speaker::advertise`] and [`Speaker::stop`], each a whole value that replaces the one before, taken when the
//! speaker gets to it; nobody waits. Output: [`SpeakerStatus`]. Connections are dialled by us; nothing listens unless the
//! configuration says so. A task that panics ends the process, since the state of its session would be unknown.

mod addresses;
mod admission;
mod claim;
mod connection;
mod destination;
mod dial;
mod discovery;
mod gate;
mod gateway;
mod keyring;
mod link;
mod links;
mod listener;
mod listening;
mod location;
mod neighbours;
mod orders;
mod report;
mod rib;
mod session;
mod settings;
mod shut;
mod signature;
mod socket;
mod status;
mod vrf;
mod whereabouts;
mod words;

use std::collections::BTreeSet;
use std::future::Future;
use std::io;
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::Instant;

use bgp::Prefix;
use bgp::peer::Forwarding;
use tokio::sync::{mpsc, watch};

pub use orders::{Direction, Operation, Operator, OperatorError, PeerRoutes, Question, RoutesOf};
pub use report::LowTtlDrops;
pub(crate) use report::silence;
pub use status::{Failures, LastError, Moment, Notified, Opens, PeerStatus, SpeakerStatus};

use crate::desired::{DesiredBgp, RouteSet};
use neighbours::Neighbours;
use status::Board;

/// The BGP speaker of this node. Dropping it closes all sessions at once; [`stop`](Self::stop) first to close them in order.
#[derive(Debug)]
pub struct Speaker {
    routes: watch::Sender<Option<Routes>>,
    target: watch::Sender<Target>,
    operator: Operator,
    inheritance: Arc<OnceLock<Inheritance>>,
    board: Board,
    thread: Option<JoinHandle<()>>,
}

impl Speaker {
    /// Starts the thread, in the network namespace of the caller. It does nothing before the first [`configure`](Self::configure). The name of the
    /// instance is what others are told that want a session which this one has. The seed spreads the timers.
    ///
    /// # Errors
    /// The thread or its runtime cannot be started.
    pub fn spawn(instance: &str, seed: u64) -> io::Result<Self> {
        // A step of one session over a large table is long: clock and sockets are looked at after each. Who was woken by another thread must not wait for a
        // moment at which nobody else has anything to do: no timer wakes it meanwhile.
        let runtime = tokio::runtime::Builder::new_current_thread().event_interval(1).global_queue_interval(1).enable_all().build()?;
        let board = Board::new();
        let routes = watch::Sender::new(None);
        let target = watch::Sender::new(Target::Nothing);
        let (requests, incoming) = mpsc::channel(1);
        let inheritance = Arc::new(OnceLock::new());
        let neighbours =
            Neighbours::new(instance.into(), seed, target.subscribe(), incoming, routes.clone(), Arc::clone(&inheritance), board.clone());
        let thread = std::thread::Builder::new().name("bgp".to_owned()).spawn(move || {
            runtime.block_on(fatal_panics(neighbours.run()));
            // The reading of a key file may hang.
            runtime.shutdown_background();
        })?;
        Ok(Self { routes, target, operator: Operator(requests), inheritance, board, thread: Some(thread) })
    }

    /// Makes this the whole set that every peer is told. A session that comes up before the first call is told nothing, not even End-of-RIB.
    pub fn advertise(&self, set: Arc<RouteSet>) {
        self.board.advertise(&set, None, &self.routes);
    }

    /// Makes this the whole configuration. Sessions of unchanged neighbours are not touched; one with another policy is told it in its session; one that
    /// changed otherwise is closed and started again. `set`: the whole set that every peer is told as soon as the configuration is in force, where that is
    /// another one, unless [`advertise`](Self::advertise) is called before: what one of them gives up and the other takes over is not told in between.
    pub fn configure(&self, desired: Arc<DesiredBgp>, set: Option<Arc<RouteSet>>) {
        let after = self.board.generation();
        self.set_target(Target::Run { desired, with: set.map(|set| Successor { after, set }) });
    }

    /// Closes all sessions with Cease, Administrative Shutdown (RFC 4486). It is done when [`SpeakerStatus::open_sessions`] is 0 and
    /// [`SpeakerStatus::configured`] is `None`.
    pub fn stop(&self) {
        self.set_target(Target::Stop);
    }

    /// Says, before the first [`configure`](Self::configure), that an earlier process has announced these prefixes and has not withdrawn them: peers with
    /// graceful restart may hold them. `forwarding`: of which families the node has gone on serving them all. Without this call nothing was left.
    pub fn inherit(&self, prefixes: BTreeSet<Prefix>, forwarding: Forwarding) {
        let prefixes = Arc::new(prefixes);
        self.board.inherit(&prefixes);
        if self.inheritance.set(Inheritance { prefixes, forwarding, at: Instant::now() }).is_err() {
            tracing::error!("what an earlier process has left was told twice; the first time counts");
        }
    }

    /// Closes all sessions so that peers which agreed on graceful restart keep our routes; others are told as by [`stop`](Self::stop). Done as that is.
    pub fn release(&self) {
        self.set_target(Target::Release);
    }

    /// The door for an operator's orders.
    #[must_use]
    pub fn operator(&self) -> Operator {
        self.operator.clone()
    }

    /// The speaker now.
    #[must_use]
    pub fn status(&self) -> Arc<SpeakerStatus> {
        self.board.read()
    }

    /// Wakes its holder when more than a counter changed.
    #[must_use]
    pub fn subscribe(&self) -> watch::Receiver<Arc<SpeakerStatus>> {
        self.board.subscribe()
    }

    /// Tells at any time whether the thread still runs.
    pub fn liveness(&self) -> impl Fn() -> bool + Send + Sync + 'static {
        let target = self.target.clone();
        move || !target.is_closed()
    }

    fn set_target(&self, target: Target) {
        self.target.send_if_modified(|current| {
            let changed = *current != target;
            *current = target;
            changed
        });
    }
}

impl Drop for Speaker {
    fn drop(&mut self) {
        self.target.send_replace(Target::Quit);
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the BGP thread ended in a panic");
        }
    }
}

/// What the slow loop wants of the neighbours.
#[derive(Clone, Debug, Eq, PartialEq)]
enum Target {
    /// It has not said.
    Nothing,
    /// Sessions with these, and with them this set.
    Run { desired: Arc<DesiredBgp>, with: Option<Successor> },
    /// No session.
    Stop,
    /// No session, though our routes stay in use.
    Release,
    /// The end of the thread.
    Quit,
}

/// What an earlier process has left.
#[derive(Clone, Debug)]
struct Inheritance {
    prefixes: Arc<BTreeSet<Prefix>>,
    /// Of which families the node has gone on serving them all.
    forwarding: Forwarding,
    /// When this process began.
    at: Instant,
}

/// A whole set that waits for a configuration.
#[derive(Clone, Debug, Eq, PartialEq)]
struct Successor {
    /// The number of the set that it is to follow.
    after: u64,
    set: Arc<RouteSet>,
}

/// A whole set to advertise, in the form shared by all sessions.
#[derive(Clone, Debug)]
struct Routes {
    /// Counts the sets.
    generation: u64,
    set: Arc<RouteSet>,
    /// What differs from the set before; `None` for the first one.
    changed: Option<Arc<[Prefix]>>,
}

/// Runs a task of the speaker; a panic in it ends the process.
async fn fatal_panics<T>(task: impl Future<Output = T>) -> T {
    struct Guard;
    impl Drop for Guard {
        fn drop(&mut self) {
            if std::thread::panicking() {
                tracing::error!("a task of the BGP speaker panicked; the process ends");
                std::process::abort();
            }
        }
    }
    let _guard = Guard;
    task.await
}

#[cfg(test)]
mod tests;
