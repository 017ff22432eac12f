// SPDX-License-Identifier: Apache-2.0
//! Objects from a directory of Kubernetes YAML, followed as it changes. It stands in for the API server where there is none.
//!
//! Input: the files `*.yaml`, `*.yml` and `*.json` of one directory (not of those below it, not hidden ones; symbolic links are followed), each with
//! one or more documents. Output: a [`Snapshot`] for each change that makes a difference. What is in force when something is wrong is told in `dir/files.rs`.
//!
//! When a file is read: after it was closed by its writer, renamed or linked into the directory, or, all files together, when the link `..data` of a
//! ConfigMap volume was renamed into place. What is read while a writer opens the file once more is thrown away. So a content that is written in
//! place is never seen half written, with three exceptions: at the start, when a file is opened again after it was closed half written, and where
//! no event comes because another machine writes on a shared file system; then a file is read when it has kept still for half a second. Rename a
//! finished file into place to be safe in each case. Every 10 seconds the directory is looked through, in case an event was lost.

mod files;
mod kept;
mod locate;
mod parse;
mod watch;

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use tokio::sync::watch as latest;
use tracing::warn;

use self::files::{Files, Unannounced};
use self::kept::Kept;
use self::watch::{Batch, Watch};
use super::{Snapshot, Snapshots};

/// Between two looks through a directory of which events come.
const LOOK_INTERVAL: Duration = Duration::from_secs(10);
/// The same while no events come, or something is to be looked at again.
const SOON: Duration = Duration::from_millis(500);

/// Follows the directory in a thread of its own, since a file system may make its readers wait, until the [`Follower`] is dropped.
///
/// The receiver holds `None` until the directory has been read as a whole, which is before this returns unless the directory cannot be read and
/// earlier contents are in the state directory. It is closed if the thread ends.
///
/// # Errors
/// The directory cannot be read and nothing is kept of it, or the thread cannot be started.
pub fn follow(dir: PathBuf, state_dir: Option<PathBuf>) -> Result<(Snapshots, Follower), DirError> {
    let (sender, receiver) = latest::channel(None);
    let (stop, stopped) = UnixStream::pair().map_err(DirError::Start)?;
    let files = Files::new(dir.clone(), Kept::below(state_dir.as_deref()));
    let mut directory = Directory { dir, files, watch: Watch::default(), sender, next_look: Instant::now(), unwatched: false };
    if let Err(source) = directory.look(Unannounced::Read)
        && !directory.files.has_kept()
    {
        return Err(DirError::Unreadable { dir: directory.dir, source });
    }
    thread::Builder::new().name("manifests".into()).spawn(move || directory.run(&stopped)).map_err(DirError::Start)?;
    Ok((receiver, Follower { _stop: stop }))
}

/// Reads the directory once, as a daemon with this state directory would at its start, and changes nothing.
///
/// # Errors
/// The directory cannot be read and nothing is kept of it.
pub fn read(dir: PathBuf, state_dir: &Path) -> Result<Option<Arc<Snapshot>>, DirError> {
    let (sender, receiver) = latest::channel(None);
    let files = Files::new(dir.clone(), Kept::of_another(state_dir));
    let mut directory = Directory { dir, files, watch: Watch::default(), sender, next_look: Instant::now(), unwatched: false };
    if let Err(source) = directory.look(Unannounced::Read)
        && !directory.files.has_kept()
    {
        return Err(DirError::Unreadable { dir: directory.dir, source });
    }
    let snapshot = receiver.borrow().clone();
    Ok(snapshot)
}

/// Keeps the directory followed while it lives.
#[derive(Debug)]
pub struct Follower {
    _stop: UnixStream,
}

/// Why a directory cannot be followed.
#[derive(Debug, thiserror::Error)]
pub enum DirError {
    /// There is no such directory, or it may not be read.
    #[error("cannot read the manifest directory {}", dir.display())]
    Unreadable {
        /// The directory.
        dir: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The system has no thread or socket left.
    #[error("cannot start to follow the manifest directory")]
    Start(#[source] io::Error),
}

/// Whether a file of this name is read.
fn is_manifest(name: &OsStr) -> bool {
    let name = name.as_encoded_bytes();
    !name.starts_with(b".") && [&b".yaml"[..], b".yml", b".json"].iter().any(|extension| name.ends_with(extension))
}

struct Directory {
    dir: PathBuf,
    files: Files,
    watch: Watch,
    sender: latest::Sender<Option<Arc<Snapshot>>>,
    next_look: Instant,
    /// Whether it was said that no events come.
    unwatched: bool,
}

impl Directory {
    fn run(mut self, stop: &UnixStream) {
        while !self.sender.is_closed() {
            let deadline = self.files.deadline().map_or(self.next_look, |deadline| deadline.min(self.next_look));
            if self.watch.wait(stop, deadline.saturating_duration_since(Instant::now())) {
                return;
            }
            let batch = self.watch.drain();
            self.handle(batch);
            if self.next_look <= Instant::now() {
                // An error is in the snapshot, and it is tried again soon.
                self.look(Unannounced::ReadOnceStill).ok();
            }
            self.files.believe_gone(Instant::now());
            self.publish();
        }
    }

    /// Looks through the directory, and watches it from before that on.
    fn look(&mut self, unannounced: Unannounced) -> io::Result<()> {
        let mut unannounced = unannounced;
        if !self.watch.is_at(&self.dir) {
            let replaced = self.watch.is_attached();
            if self.attach() {
                unannounced = Unannounced::Read;
                if replaced {
                    self.files.lose("another directory has taken its place");
                }
            }
        }
        self.next_look = Instant::now() + LOOK_INTERVAL;
        let scanned = self.scan(unannounced);
        if !self.watch.is_attached() || !self.files.is_readable() || self.files.is_unsettled() {
            self.next_look = self.next_look.min(Instant::now() + SOON);
        }
        scanned
    }

    /// Lets events come; says whether they will.
    fn attach(&mut self) -> bool {
        let attached = self.watch.attach(&self.dir);
        if let Err(error) = &attached
            && !self.unwatched
        {
            warn!(dir = %self.dir.display(), %error, "cannot watch the manifest directory; looking through it instead");
        }
        self.unwatched = attached.is_err();
        attached.is_ok()
    }

    fn scan(&mut self, unannounced: Unannounced) -> io::Result<()> {
        match self.files.scan(unannounced, Instant::now()) {
            Ok(names) => {
                let later = self.read(names);
                self.files.finish_scan();
                self.publish();
                self.handle(later);
                Ok(())
            }
            Err(error) => {
                self.files.lose(&error.to_string());
                self.watch.detach();
                self.publish();
                Err(error)
            }
        }
    }

    /// Acts on what happened, and on what happens meanwhile.
    fn handle(&mut self, batch: Batch) {
        let mut batch = batch;
        while !batch.is_empty() {
            if let Some(reason) = batch.lost {
                // It may stand there again already, which the next look tells.
                self.files.lose(reason);
                self.watch.detach();
                self.next_look = Instant::now();
                return;
            }
            let now = Instant::now();
            let mut names: BTreeSet<_> =
                batch.names.into_iter().filter(|(name, event)| self.files.note(name, *event, now)).map(|(name, _)| name).collect();
            if batch.switched {
                match self.files.scan(Unannounced::Read, now) {
                    Ok(found) => names.extend(found),
                    // The next look says what is wrong with the directory.
                    Err(_) => self.next_look = now,
                }
            }
            if batch.overflowed {
                self.files.forget_writers();
                self.next_look = now;
            }
            batch = self.read(names);
            self.publish();
        }
    }

    /// Reads files and takes their contents, except those to which something happens meanwhile; gives what happened.
    fn read(&mut self, names: impl IntoIterator<Item = OsString>) -> Batch {
        let contents: Vec<_> = names.into_iter().map(|name| (self.files.read(&name), name)).collect();
        let later = self.watch.drain();
        let now = Instant::now();
        for (content, name) in contents {
            if later.names.contains_key(&name) {
                self.files.expect(&name);
            } else {
                self.files.take(name, content, now);
            }
        }
        later
    }

    fn publish(&mut self) {
        if let Some(snapshot) = self.files.snapshot_if_changed() {
            self.sender.send_if_modified(|current| {
                let differs = current.as_deref() != Some(&snapshot);
                if differs {
                    *current = Some(Arc::new(snapshot));
                }
                differs
            });
            self.files.save();
        }
    }
}

/// The objects of this text as a complete snapshot, for the tests of what is made of snapshots.
#[cfg(test)]
pub(crate) fn snapshot_of(text: &str) -> Snapshot {
    let parsed = parse::parse(text);
    assert!(parsed.faults.is_empty(), "{:?}", parsed.faults);
    let mut snapshot = Snapshot { complete: true, ..Snapshot::default() };
    parsed.objects.into_iter().for_each(|found| snapshot.insert(found.name, found.object));
    snapshot
}
