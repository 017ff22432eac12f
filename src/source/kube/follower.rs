// SPDX-License-Identifier: Apache-2.0
//! Follows one kind of objects: list, watch, and again, for ever.
//!
//! Inputs: the connection, and what the last good intent rested on. Output: an [`Update`] for each difference, and for each time that the server is lost or
//! found again. Invariants: an error takes nothing away; after an error comes a pause that grows; a watch that broke is taken up from where it was, and
//! only one that the server no longer knows (410), or refuses several times, leads to another list.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, sleep_until};

use super::backoff::Backoff;
use super::connection::Connection;
use super::object::{read, resource};
use super::request::{self, ApiError, Event, version};
use super::store::{Changes, RECHECK, Read, Store};
use crate::api::{Kind, ObjectRef};
use crate::telemetry::chain;

/// A watch lasts so long at most: half a minute after a server has gone silently, that is noticed.
const WATCH_TIME: Duration = Duration::from_secs(45);
/// A watch that ends earlier did not work.
const SHORTEST_WATCH: Duration = Duration::from_secs(1);
/// Between two looks for a kind that is not installed.
const ABSENT_INTERVAL: Duration = Duration::from_secs(4);
/// A server that refuses so many watches in a row may not know the version any more, whatever it says.
const MOST_REFUSALS: u32 = 3;

/// What is new of a kind.
#[derive(Debug)]
pub(super) struct Update {
    pub(super) kind: Kind,
    pub(super) changes: Changes,
    pub(super) standing: Standing,
}

/// How well a kind is known.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct Standing {
    /// Whether it is known of each object whether it is there.
    pub(super) complete: bool,
    /// Whether each that was in force could be read.
    pub(super) whole: bool,
    /// When the server was heard last, while it is not followed.
    pub(super) lost_since: Option<Instant>,
    /// What is wrong.
    pub(super) trouble: Option<String>,
}

/// Nobody takes updates any more.
pub(super) struct Closed;

/// What is wrong, and whether the server is not followed because of it.
struct Trouble {
    message: String,
    lost: bool,
}

#[derive(Clone, Copy, Eq, PartialEq)]
enum Next {
    Watch,
    List,
}

/// See the module.
pub(super) struct Follower {
    kind: Kind,
    connection: Arc<Connection>,
    store: Store,
    backoff: Backoff,
    updates: mpsc::Sender<Update>,
    told: Standing,
    heard: Instant,
    trouble: Option<Trouble>,
    /// Failures of all kinds when lists began to be doubted.
    failures: u64,
    refusals: u32,
}

impl Follower {
    pub(super) fn new(kind: Kind, connection: Arc<Connection>, store: Store, seed: u64, updates: mpsc::Sender<Update>) -> Self {
        Self {
            kind,
            failures: connection.failures(),
            connection,
            store,
            backoff: Backoff::new(seed),
            updates,
            told: Standing::default(),
            heard: Instant::now(),
            trouble: Some(Trouble { message: format!("{} were not read yet", resource(kind)), lost: true }),
            refusals: 0,
        }
    }

    /// Until nobody takes updates any more.
    pub(super) async fn run(mut self) {
        while self.list_and_watch().await.is_ok() {}
    }

    async fn list_and_watch(&mut self) -> Result<(), Closed> {
        let Some(mut version) = self.list().await? else { return Ok(()) };
        while self.watch(&mut version).await? == Next::Watch {}
        Ok(())
    }

    /// Reads all objects; gives the version from which to watch.
    async fn list(&mut self) -> Result<Option<String>, Closed> {
        let (generation, client) = self.connection.client();
        match request::list(&client, self.kind).await {
            Ok(listing) => {
                let changes = self.compare(listing.items);
                self.hear(changes).await?;
                Ok(Some(listing.version))
            }
            Err(error) if error.is_absent() && self.kind.is_installed_by_us() => {
                let changes = self.compare(Vec::new());
                let message = format!(
                    "{} are not known to the API server: install them with 'vipherald crds apply'; until then there are none",
                    resource(self.kind)
                );
                self.trouble = Some(Trouble { message, lost: !self.store.is_complete() || self.store.doubted() > 0 });
                self.tell(changes).await?;
                sleep(self.backoff.jittered(ABSENT_INTERVAL)).await;
                Ok(None)
            }
            Err(error) => {
                self.fail(generation, &error).await?;
                Ok(None)
            }
        }
    }

    /// Compares what is known with a list.
    fn compare(&mut self, listed: Vec<(ObjectRef, Read)>) -> Changes {
        let now = Instant::now();
        if self.connection.failures() != self.failures {
            self.failures = self.connection.failures();
            self.store.distrust(now.into_std());
        }
        self.store.list(listed, now.into_std())
    }

    /// Watches until the server ends it or something is wrong.
    async fn watch(&mut self, from: &mut String) -> Result<Next, Closed> {
        let (generation, client) = self.connection.client();
        let time = self.backoff.jittered(WATCH_TIME);
        let begun = Instant::now();
        let mut watch = match request::watch(&client, self.kind, from, time).await {
            Ok(watch) => watch,
            Err(error) => return self.fail_to_watch(generation, &error).await,
        };
        self.hear(Changes::default()).await?;
        let mut recheck = begun + RECHECK;
        loop {
            tokio::select! {
                event = watch.next() => match event {
                    Ok(Some(event)) => {
                        self.backoff.succeed();
                        self.refusals = 0;
                        self.take(event, from).await?;
                    }
                    Ok(None) if begun.elapsed() < SHORTEST_WATCH => {
                        sleep(self.backoff.fail(None)).await;
                        return Ok(Next::Watch);
                    }
                    Ok(None) => {
                        self.backoff.succeed();
                        return Ok(Next::Watch);
                    }
                    Err(error) => return self.fail_to_watch(generation, &error).await,
                },
                () = sleep_until(recheck), if self.store.doubted() > 0 => {
                    self.recheck().await?;
                    recheck = Instant::now() + RECHECK;
                }
            }
        }
    }

    async fn take(&mut self, event: Event, from: &mut String) -> Result<(), Closed> {
        let (Event::Applied(value) | Event::Deleted(value) | Event::Bookmark(value)) = &event;
        if let Some(version) = version(value) {
            version.clone_into(from);
        }
        let changes = match event {
            Event::Applied(value) => read(self.kind, value).map(|(name, read)| self.store.apply(name, read)),
            Event::Deleted(value) => read(self.kind, value).map(|(name, _)| self.store.delete(&name)),
            Event::Bookmark(_) => None,
        };
        self.hear(changes.unwrap_or_default()).await
    }

    /// One more list while one is doubted.
    async fn recheck(&mut self) -> Result<(), Closed> {
        let (generation, client) = self.connection.client();
        match request::list(&client, self.kind).await {
            Ok(listing) => {
                let changes = self.compare(listing.items);
                self.hear(changes).await
            }
            Err(error) => self.fail(generation, &error).await,
        }
    }

    async fn fail_to_watch(&mut self, generation: u64, error: &ApiError) -> Result<Next, Closed> {
        if error.is_gone() {
            tracing::debug!(kind = self.kind.name(), %error, "listing again");
            sleep(self.backoff.fail(None)).await;
            return Ok(Next::List);
        }
        self.fail(generation, error).await?;
        self.refusals = if matches!(error, ApiError::Refused { .. }) { self.refusals + 1 } else { 0 };
        if self.refusals >= MOST_REFUSALS {
            self.refusals = 0;
            return Ok(Next::List);
        }
        Ok(Next::Watch)
    }

    /// Says what is wrong, and waits.
    async fn fail(&mut self, generation: u64, error: &ApiError) -> Result<(), Closed> {
        self.connection.count_failure();
        self.store.distrust(Instant::now().into_std());
        self.trouble = Some(Trouble { message: chain(error), lost: true });
        self.tell(Changes::default()).await?;
        if error.asks_for_another_client() {
            self.connection.renew(generation).await;
        }
        sleep(self.backoff.fail(error.retry_after())).await;
        Ok(())
    }

    /// The server has answered, and follows what it is asked to.
    async fn hear(&mut self, changes: Changes) -> Result<(), Closed> {
        self.heard = Instant::now();
        let doubted = self.store.doubted();
        self.trouble = (doubted > 0).then(|| {
            let resource = resource(self.kind);
            let message =
                format!("a list of {resource} misses {doubted} that were there, most of them; they stay in force until more lists agree");
            Trouble { message, lost: true }
        });
        self.tell(changes).await
    }

    /// Sends what is new.
    async fn tell(&mut self, changes: Changes) -> Result<(), Closed> {
        let standing = Standing {
            complete: self.store.is_complete(),
            whole: self.store.misses_nothing(),
            lost_since: self.trouble.as_ref().filter(|trouble| trouble.lost).map(|_| self.heard),
            trouble: self.trouble.as_ref().map(|trouble| trouble.message.clone()),
        };
        if changes.is_empty() && standing == self.told {
            return Ok(());
        }
        if standing.trouble != self.told.trouble {
            match &standing.trouble {
                Some(trouble) => tracing::warn!(kind = self.kind.name(), "{trouble}"),
                None => tracing::info!(kind = self.kind.name(), "followed"),
            }
        }
        self.told = standing.clone();
        self.updates.send(Update { kind: self.kind, changes, standing }).await.map_err(|_closed| Closed)
    }
}
