// SPDX-License-Identifier: Apache-2.0
//! Runs `nft` for the virtual routers, on a thread of its own: their timers wait for no other program.
//!
//! Input: [`Order`]s, of which the newest counts. Output: what the record says, and which addresses are silent, as far as that is done. What fails is
//! tried again; what somebody else has changed is written again.

use std::collections::BTreeSet;
use std::error::Error;
use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;

use super::bell::Bell;
use super::record::{self, Recorded, Silent};
use crate::actuator::{nft, sets};
use crate::telemetry::chain;

/// After a failure.
const RETRY: Duration = Duration::from_secs(1);
/// Between two looks at what the table says: what somebody else has taken out of it is not known as ours to a next process.
const AUDIT: Duration = Duration::from_secs(10);

/// What is to be.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct Order {
    /// Both tables go where this is empty and nothing is silent.
    pub(super) recorded: Recorded,
    pub(super) silent: Silent,
}

impl Order {
    /// These are not to be answered for on that interface, or on none.
    pub(super) fn silence(&mut self, on: Option<&String>, addresses: BTreeSet<IpAddr>) {
        if !addresses.is_empty() {
            self.silent.entry(on.cloned()).or_default().extend(addresses);
        }
    }
}

/// What is.
#[derive(Clone, Debug, Default)]
pub(super) struct Done {
    /// `None` until that was read.
    pub(super) recorded: Option<Recorded>,
    /// `None` until that was written.
    pub(super) silent: Option<Silent>,
    /// Why something is not as ordered.
    pub(super) problem: Option<String>,
}

#[derive(Default)]
struct Desk {
    order: Option<Order>,
    done: Done,
    quit: bool,
}

/// See the module.
pub(super) struct Clerk {
    shared: Arc<(Mutex<Desk>, Condvar)>,
    thread: Option<JoinHandle<()>>,
}

impl Clerk {
    /// Starts the thread in the network namespace of the caller; it rings when something is done.
    pub(super) fn spawn(instance: &str, bell: Bell) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let shared: Arc<(Mutex<Desk>, Condvar)> = Arc::default();
        let writer = Writer { table: record::table(instance), runtime, done: Done::default(), failed: false };
        let desk = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("vrrp-nft".to_owned()).spawn(move || writer.run(&desk, &bell))?;
        Ok(Self { shared, thread: Some(thread) })
    }

    pub(super) fn order(&self, order: Order) {
        let mut desk = locked(&self.shared.0);
        if desk.order.as_ref() != Some(&order) {
            desk.order = Some(order);
            self.shared.1.notify_one();
        }
    }

    pub(super) fn done(&self) -> Done {
        locked(&self.shared.0).done.clone()
    }
}

impl Drop for Clerk {
    fn drop(&mut self) {
        locked(&self.shared.0).quit = true;
        self.shared.1.notify_one();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread that records virtual addresses ended in a panic");
        }
    }
}

struct Writer {
    table: String,
    runtime: Runtime,
    done: Done,
    failed: bool,
}

impl Writer {
    fn run(mut self, (desk, changed): &(Mutex<Desk>, Condvar), bell: &Bell) {
        let mut audit_at = Instant::now() + AUDIT;
        loop {
            let order = locked(desk).order.clone();
            let result = self.work(order.as_ref(), Instant::now() >= audit_at);
            if Instant::now() >= audit_at {
                audit_at = Instant::now() + AUDIT;
            }
            self.failed = result.is_err();
            let problem = result.err().map(|error| chain(error.as_ref()));
            if let Some(problem) = problem.as_ref().filter(|_| problem != self.done.problem) {
                tracing::warn!(table = self.table, problem, "virtual addresses cannot be recorded; it is tried again");
            }
            if problem.is_none() && self.done.problem.is_some() {
                tracing::info!(table = self.table, "virtual addresses are recorded again");
            }
            self.done.problem = problem;
            let mut current = locked(desk);
            current.done = self.done.clone();
            bell.ring();
            let until = if self.failed { Instant::now() + RETRY } else { audit_at };
            while current.order == order && !current.quit && Instant::now() < until {
                let wait = until.saturating_duration_since(Instant::now());
                current = changed.wait_timeout(current, wait).unwrap_or_else(PoisonError::into_inner).0;
            }
            if current.quit {
                return;
            }
        }
    }

    fn work(&mut self, order: Option<&Order>, audit: bool) -> Result<(), Box<dyn Error>> {
        if self.done.recorded.is_none() {
            self.done.recorded = Some(self.list()?);
        }
        let Some(order) = order else { return Ok(()) };
        let nothing = order.recorded.is_empty() && order.silent.is_empty();
        // What somebody else has taken out of the record is ours all the same.
        let differs = |found: Option<&Recorded>| found != Some(&order.recorded);
        let rewrite = differs(self.done.recorded.as_ref()) || audit && differs(Some(&self.list()?));
        if nothing && (rewrite || self.done.silent.is_none() || self.done.silent.as_ref().is_some_and(|silent| !silent.is_empty())) {
            self.transact(&record::remove(&self.table))?;
        } else if rewrite {
            self.transact(&record::write(&self.table, &order.recorded))?;
        }
        self.done.recorded = Some(order.recorded.clone());
        if !nothing && (audit || self.done.silent.as_ref() != Some(&order.silent)) {
            self.transact(&record::silence(&self.table, &order.silent))?;
        }
        self.done.silent = Some(order.silent.clone());
        Ok(())
    }

    fn transact(&self, script: &str) -> Result<(), Box<dyn Error>> {
        self.runtime.block_on(nft(&["-f", "-"], script, &format!("change table {}", self.table)))?;
        Ok(())
    }

    fn list(&self) -> Result<Recorded, Box<dyn Error>> {
        if !self.runtime.block_on(sets())?.iter().any(|set| set.table == self.table) {
            return Ok(Recorded::new());
        }
        let action = format!("list table inet {}", self.table);
        let listed = self.runtime.block_on(nft(&["-j", "list", "table", "inet", &self.table], "", &action))?;
        Ok(record::read(&listed.stdout)?)
    }
}

/// Each change under the lock is whole.
fn locked(desk: &Mutex<Desk>) -> MutexGuard<'_, Desk> {
    desk.lock().unwrap_or_else(PoisonError::into_inner)
}
