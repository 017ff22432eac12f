// SPDX-License-Identifier: Apache-2.0
//! Objects from a Kubernetes API server, followed as they change.
//!
//! Input: the API server. Output: a [`Snapshot`] for each change that makes a difference, once all kinds have been read, and how well the server
//! is followed. Invariants: a single change is passed on at once, and only while more stream in do they wait for one another; nothing that an
//! error or a doubtful list says takes an object away (`kube/store.rs`); an object that did not change keeps its `Arc`.
//!
//! The lists and watches are our own rather than those of kube's runtime, since that one tells neither that a watch has been taken up again, without
//! which nobody can say how stale the node's knowledge is, nor `Retry-After`, and cannot hold back an incredible list.

mod backoff;
mod connection;
mod follower;
mod install;
mod object;
mod request;
mod store;
#[cfg(test)]
mod tests;
mod uninstall;

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::{sleep_until, timeout_at};

use self::connection::Connection;
pub use self::connection::{Access, AccessError};
use self::follower::{Follower, Standing, Update};
pub use self::install::{InstallError, Outcome, install};
pub(crate) use self::object::{path, resource};
use self::store::Store;
pub use self::uninstall::{NoWorkload, UninstallError, Workload, uninstall};
use super::{Object, Snapshot, Snapshots};
use crate::api::{Kind, ObjectRef};
use crate::desired::{LastGood, Rejection, Subject};

/// Between two snapshots while changes stream in.
const QUIET: Duration = Duration::from_millis(20);
/// Updates that wait for the gathering; when it is behind, the followers wait, and the server keeps what they did not read.
const QUEUE: usize = 64;
/// How long [`read`] waits for all kinds.
const READ_TIME: Duration = Duration::from_secs(30);

/// Follows all kinds in a thread of its own, until the [`Following`] is dropped.
///
/// `last_intent` names the objects on which the last good intent of this node rested: where most of them are missing in the first lists, those need
/// to be confirmed. What cannot be read at the start has its content in `last_good`. The receiver holds `None` until all kinds have been read. It is
/// closed if the thread ends.
///
/// # Errors
/// It is not known how to reach an API server, or the thread cannot be started. One that does not answer is no error.
pub async fn follow(access: Access, last_intent: BTreeSet<ObjectRef>, last_good: &LastGood) -> Result<(Snapshots, Following), FollowError> {
    // The client belongs to the runtime it is made in; this one tells whether it can be made.
    access.client().await?;
    let last_good = last_good.contents().clone();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(FollowError::Start)?;
    let (snapshots, receiver) = watch::channel(None);
    let (health, health_receiver) = watch::channel(Arc::new(ApiHealth::default()));
    let (stop, stopped) = oneshot::channel::<()>();
    let gathering = move || {
        runtime.block_on(async {
            tokio::select! {
                () = run(access, &last_intent, &last_good, snapshots, health) => {}
                _ = stopped => {}
            }
        });
        runtime.shutdown_background();
    };
    thread::Builder::new().name("kubernetes".into()).spawn(gathering).map_err(FollowError::Start)?;
    Ok((receiver, Following { health: health_receiver, _stop: stop }))
}

/// Reads all kinds once.
///
/// # Errors
/// As [`follow`], or some kind cannot be read in time.
pub async fn read(access: Access) -> Result<Arc<Snapshot>, FollowError> {
    let (mut snapshots, following) = follow(access, BTreeSet::new(), &LastGood::default()).await?;
    let snapshot = timeout_at((Instant::now() + READ_TIME).into(), snapshots.wait_for(Option::is_some)).await;
    match snapshot {
        Ok(Ok(snapshot)) if snapshot.is_some() => Ok(snapshot.clone().unwrap_or_default()),
        Ok(_) | Err(_) => Err(FollowError::Unread { troubles: following.health.borrow().troubles().join("; ") }),
    }
}

/// What the API server holds of some kinds now, read with a quorum: what is followed may be behind.
///
/// # Errors
/// The server cannot be asked, or does not answer as it should.
pub async fn read_now(access: &Access, kinds: &[Kind]) -> Result<Snapshot, Box<dyn Error + Send + Sync>> {
    let client = access.client().await?;
    let mut snapshot = Snapshot { complete: true, ..Snapshot::default() };
    for kind in kinds {
        for (name, read) in request::list(&client, *kind).await?.items {
            match read {
                Ok(object) => snapshot.insert(name, object),
                // It is there, whatever it is.
                Err(_) => snapshot.complete = false,
            }
        }
    }
    Ok(snapshot)
}

/// Keeps the API server followed while it lives.
#[derive(Debug)]
pub struct Following {
    /// How well that goes.
    pub health: watch::Receiver<Arc<ApiHealth>>,
    _stop: oneshot::Sender<()>,
}

/// Why an API server cannot be followed.
#[derive(Debug, thiserror::Error)]
pub enum FollowError {
    /// Nobody knows where it is.
    #[error(transparent)]
    Access(#[from] AccessError),
    /// The system has no thread left.
    #[error("cannot start to follow the API server")]
    Start(#[source] std::io::Error),
    /// It does not answer, or not well.
    #[error("not all objects could be read in {}: {troubles}", humantime::format_duration(READ_TIME))]
    Unread {
        /// What is wrong with each kind.
        troubles: String,
    },
}

/// How well the API server is followed.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ApiHealth {
    kinds: BTreeMap<Kind, Standing>,
}

impl ApiHealth {
    /// When the server was heard last of the kind that is known worst; `None` while all are followed.
    #[must_use]
    pub fn lost_since(&self) -> Option<Instant> {
        self.kinds.values().filter_map(|standing| standing.lost_since).min().map(tokio::time::Instant::into_std)
    }

    /// What is wrong, in words, without repetition.
    #[must_use]
    pub fn troubles(&self) -> Vec<String> {
        let mut troubles: Vec<String> = self.kinds.values().filter_map(|standing| standing.trouble.clone()).collect();
        troubles.dedup();
        troubles
    }
}

async fn run(
    access: Access,
    last_intent: &BTreeSet<ObjectRef>,
    last_good: &BTreeMap<ObjectRef, Object>,
    snapshots: watch::Sender<Option<Arc<Snapshot>>>,
    health: watch::Sender<Arc<ApiHealth>>,
) {
    let client = match access.client().await {
        Ok(client) => client,
        Err(error) => {
            tracing::error!(error = %crate::telemetry::chain(&error), "the API server cannot be followed");
            return;
        }
    };
    let connection = Arc::new(Connection::new(access, client));
    let (sender, updates) = mpsc::channel(QUEUE);
    let random = RandomState::new();
    let mut followers = JoinSet::new();
    for kind in Kind::ALL {
        let store = Store::new(kind, last_intent, last_good);
        followers.spawn(Follower::new(kind, Arc::clone(&connection), store, random.hash_one(kind.name()), sender.clone()).run());
    }
    drop(sender);
    let gathering = Gathering { snapshot: Snapshot::default(), health: ApiHealth::default(), rejections: BTreeMap::new(), changed: false };
    tokio::select! {
        () = gathering.run(updates, snapshots, health) => {}
        // A follower ends only when it has panicked.
        _ = followers.join_next() => {}
    }
}

/// What the followers have told so far.
struct Gathering {
    snapshot: Snapshot,
    health: ApiHealth,
    rejections: BTreeMap<Kind, Vec<Rejection>>,
    /// Whether the last snapshot that was published is no longer true.
    changed: bool,
}

impl Gathering {
    async fn run(
        mut self,
        mut updates: mpsc::Receiver<Update>,
        snapshots: watch::Sender<Option<Arc<Snapshot>>>,
        health: watch::Sender<Arc<ApiHealth>>,
    ) {
        let mut quiet_until = tokio::time::Instant::now();
        loop {
            let is_due = self.changed && self.is_complete();
            tokio::select! {
                biased;
                update = updates.recv() => {
                    let Some(update) = update else { return };
                    self.take(update);
                    while let Ok(update) = updates.try_recv() {
                        self.take(update);
                    }
                    health.send_if_modified(|told| {
                        let differs = **told != self.health;
                        if differs {
                            *told = Arc::new(self.health.clone());
                        }
                        differs
                    });
                    if !(self.changed && self.is_complete() && quiet_until <= tokio::time::Instant::now()) {
                        continue;
                    }
                }
                () = sleep_until(quiet_until), if is_due => {}
                () = snapshots.closed() => return,
            }
            snapshots.send_replace(Some(Arc::new(self.publish())));
            quiet_until = tokio::time::Instant::now() + QUIET;
        }
    }

    fn take(&mut self, update: Update) {
        let Update { kind, changes, standing } = update;
        self.changed |= !changes.is_empty();
        for (name, object) in changes.objects {
            match object {
                Some(object) => self.snapshot.insert(name, object),
                None => self.snapshot.remove(&name),
            }
        }
        if let Some(rejections) = changes.rejections {
            self.rejections.insert(kind, rejections);
        }
        let before = self.health.kinds.insert(kind, standing.clone()).unwrap_or_default();
        self.changed |= (before.complete, before.whole) != (standing.complete, standing.whole);
    }

    fn is_complete(&self) -> bool {
        Kind::ALL.iter().all(|kind| self.health.kinds.get(kind).is_some_and(|standing| standing.complete))
    }

    fn publish(&mut self) -> Snapshot {
        self.changed = false;
        self.snapshot.complete = self.health.kinds.values().all(|standing| standing.whole);
        self.snapshot.rejections = self.rejections.values().flatten().cloned().collect();
        let refused = self.snapshot.rejections.iter().filter_map(|rejection| match &rejection.subject {
            Subject::Object { object, .. } => Some(object),
            Subject::File { .. } => None,
        });
        // One that never was good is not there.
        self.snapshot.kept = refused.cloned().collect();
        self.snapshot.clone()
    }
}
