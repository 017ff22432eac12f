// SPDX-License-Identifier: Apache-2.0
//! Which objects of the manifest files are in force.
//!
//! Input: what was seen of the directory, and the contents of files. Output: a [`Snapshot`].
//!
//! - A file that cannot be read, is not YAML, is empty, or has a document that does not say which object it is, changes nothing: the last good
//!   content of the file stays in force. Where there is none, what can be read of it is in force.
//! - An object with a fault keeps its own last good content; the other objects of its file are taken as they are now.
//! - An object that is missing now keeps its last good content too while a document may be what a cut has left of it.
//! - A file that is gone takes its objects with it, [`GONE_GRACE`] later, since some editors and tools delete a file and write it anew.
//! - A directory that is gone or cannot be read takes nothing with it, and one that is empty when it comes back (a mount point without its volume)
//!   is not believed.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::fs::{self, Metadata, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::fcntl::OFlag;
use tracing::warn;

use super::kept::Kept;
use super::parse::{Fault, Parsed, Place, Scope, parse};
use super::watch::Event;
use crate::api::ObjectRef;
use crate::desired::{Rejection, RejectionReason, Subject};
use crate::source::{Object, Snapshot};

/// How long a file must be gone before that is believed.
pub(super) const GONE_GRACE: Duration = Duration::from_millis(100);
/// The same for files that are missing from a directory that has just come back, and may still be filling.
const RETURN_GRACE: Duration = Duration::from_secs(2);
/// After this, a file that was written to and never closed is read all the same.
const ABANDONED: Duration = Duration::from_secs(60);
/// The largest file that is read.
const MAX_BYTES: u64 = 16 << 20;

/// The manifest files of a directory.
#[derive(Debug)]
pub(super) struct Files {
    dir: PathBuf,
    kept: Kept,
    files: BTreeMap<OsString, File>,
    /// Files that are being written, and since when nothing was heard of them.
    writing: BTreeMap<OsString, Instant>,
    /// Files that are gone, and when that is to be believed.
    gone: BTreeMap<OsString, Instant>,
    /// Changes that no event told of, as they looked at the last scan.
    unannounced: BTreeMap<OsString, Option<Stamp>>,
    /// Whether the directory was read as a whole once.
    read_once: bool,
    /// Why the directory cannot be read now.
    fault: Option<String>,
    changed: bool,
}

/// What is in force of one file.
#[derive(Debug, Default)]
struct File {
    stamp: Option<Stamp>,
    objects: BTreeMap<ObjectRef, Object>,
    rejections: Vec<Rejection>,
    /// Those of its objects that are not as they stand there now.
    kept: BTreeSet<ObjectRef>,
    /// Whether its objects are a content that stays in force when the file turns bad.
    good: bool,
    /// Whether it is known what the file holds, or last held when it was good.
    known: bool,
    /// Whether the objects are to be kept in the state directory.
    unsaved: bool,
}

/// Tells one content of a file from another without reading it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Stamp {
    dev: u64,
    ino: u64,
    size: u64,
    modified: (i64, i64),
}

impl Stamp {
    fn of(metadata: &Metadata) -> Self {
        Self { dev: metadata.dev(), ino: metadata.ino(), size: metadata.size(), modified: (metadata.mtime(), metadata.mtime_nsec()) }
    }
}

/// What to do with a change that a scan finds and no event has told of.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Unannounced {
    /// It is whole: read it.
    Read,
    /// Somebody may be in the middle of writing: read it once it looks the same in two scans.
    ReadOnceStill,
}

/// A file as it was read.
#[derive(Debug)]
pub(super) enum Content {
    /// There is no such file.
    Gone,
    /// It is there, but cannot be read, for this reason.
    Unreadable(String),
    /// Its text.
    Text(Stamp, String),
}

impl Files {
    pub(super) fn new(dir: PathBuf, kept: Kept) -> Self {
        Self {
            dir,
            kept,
            files: BTreeMap::new(),
            writing: BTreeMap::new(),
            gone: BTreeMap::new(),
            unannounced: BTreeMap::new(),
            read_once: false,
            fault: None,
            changed: false,
        }
    }

    /// Whether something is known of the directory from before this start.
    pub(super) fn has_kept(&self) -> bool {
        !self.kept.files().is_empty()
    }

    /// Whether the directory could be read when it was last tried.
    pub(super) const fn is_readable(&self) -> bool {
        self.fault.is_none()
    }

    /// Whether a scan found something that is to be looked at again soon.
    pub(super) fn is_unsettled(&self) -> bool {
        !self.unannounced.is_empty()
    }

    /// When a file that is gone has to be believed to be.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.gone.values().min().copied()
    }

    /// The directory is gone or cannot be read.
    pub(super) fn lose(&mut self, reason: &str) {
        if self.fault.as_deref() != Some(reason) {
            warn!(dir = %self.dir.display(), reason, "the manifest directory cannot be read; what was last read stays in force");
            self.fault = Some(reason.to_owned());
            self.changed = true;
        }
        self.gone.clear();
        self.writing.clear();
        self.unannounced.clear();
    }

    /// Takes note of an event; says whether the file is to be read.
    pub(super) fn note(&mut self, name: &OsStr, event: Event, now: Instant) -> bool {
        let written_to = event == Event::Writing || (event == Event::Created && !is_link(&self.dir.join(name)));
        if written_to {
            self.writing.insert(name.to_owned(), now);
        } else {
            self.writing.remove(name);
        }
        if event == Event::Gone {
            self.miss(name, now + GONE_GRACE);
            return false;
        }
        self.gone.remove(name);
        !written_to
    }

    /// Events were lost: it is no longer known which files are being written.
    pub(super) fn forget_writers(&mut self) {
        self.writing.clear();
    }

    /// Looks through the directory; gives the files that are to be read.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub(super) fn scan(&mut self, unannounced: Unannounced, now: Instant) -> io::Result<Vec<OsString>> {
        let names = list(&self.dir)?;
        let returned = self.fault.is_some() && self.read_once;
        if returned && names.is_empty() && !self.files.is_empty() {
            self.lose("it is empty since it came back; the first manifest in it is believed");
            return Ok(Vec::new());
        }
        self.changed |= self.fault.take().is_some();
        let grace = if returned { RETURN_GRACE } else { GONE_GRACE };
        let missing: Vec<_> = self.files.keys().filter(|name| !names.contains(*name)).cloned().collect();
        missing.iter().for_each(|name| self.miss(name, now + grace));
        self.writing.retain(|_, since| now.saturating_duration_since(*since) < ABANDONED);

        let before = std::mem::take(&mut self.unannounced);
        let mut reads = Vec::new();
        for name in names {
            self.gone.remove(&name);
            let stamp = fs::metadata(self.dir.join(&name)).ok().map(|metadata| Stamp::of(&metadata));
            let read = self.files.get(&name).and_then(|file| file.stamp);
            if self.writing.contains_key(&name) || (read.is_some() && read == stamp) {
                continue;
            }
            if unannounced == Unannounced::Read || before.get(&name) == Some(&stamp) {
                reads.push(name);
            } else {
                self.unannounced.insert(name, stamp);
            }
        }
        Ok(reads)
    }

    /// Reads a file.
    pub(super) fn read(&self, name: &OsStr) -> Content {
        let path = self.dir.join(name);
        match read(&path) {
            Ok(content) => content,
            Err(error) if error.kind() == io::ErrorKind::NotFound && !is_there(&path) => Content::Gone,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Content::Unreadable("it is a link to a file that does not exist".into())
            }
            Err(error) => Content::Unreadable(error.to_string()),
        }
    }

    /// Takes what was read of a file.
    pub(super) fn take(&mut self, name: OsString, content: Content, now: Instant) {
        let (stamp, parsed) = match content {
            Content::Gone => return self.miss(&name, now + GONE_GRACE),
            Content::Unreadable(message) => {
                let fault = Fault { place: None, scope: Scope::File, reason: RejectionReason::Unreadable, message };
                (None, Parsed { objects: Vec::new(), faults: vec![fault] })
            }
            Content::Text(stamp, text) => (Some(stamp), parse(&text)),
        };
        let cold = !self.read_once;
        let file = match self.files.entry(name.clone()) {
            Entry::Occupied(entry) => entry.into_mut(),
            // A file that appears while we follow the directory has left nothing behind that we would not know of.
            Entry::Vacant(entry) => entry.insert(File { known: !cold, ..File::default() }),
        };
        if cold && !file.good && !parsed.faults.is_empty() {
            file.restore(&self.kept, &name);
        }
        self.changed |= file.take(&name, stamp, parsed);
    }

    /// A file is there, but will be read later only: at the start, its kept content is in force until then.
    pub(super) fn expect(&mut self, name: &OsStr) {
        if !self.read_once && !self.files.contains_key(name) {
            let mut file = File::default();
            file.restore(&self.kept, name);
            self.files.insert(name.to_owned(), file);
        }
    }

    /// The directory has been read as a whole.
    pub(super) fn finish_scan(&mut self) {
        if !self.read_once {
            self.read_once = true;
            self.changed = true;
            self.kept.files().iter().filter(|name| !self.files.contains_key(*name)).for_each(|name| self.kept.remove(name));
        }
    }

    /// Believes that files are gone which have been for long enough.
    pub(super) fn believe_gone(&mut self, now: Instant) {
        let due: Vec<_> = self.gone.extract_if(.., |_, when| *when <= now).map(|(name, _)| name).collect();
        for name in due {
            if is_there(&self.dir.join(&name)) {
                // It is back; an event or the next scan tells when it is whole.
                continue;
            }
            self.changed |= self.files.remove(&name).is_some();
            self.kept.remove(&name);
        }
    }

    /// The snapshot, if it may differ from the last one, and the directory has been read as a whole.
    pub(super) fn snapshot_if_changed(&mut self) -> Option<Snapshot> {
        (self.read_once && std::mem::take(&mut self.changed)).then(|| self.snapshot())
    }

    /// Keeps in the state directory what has become good.
    pub(super) fn save(&mut self) {
        for (name, file) in &mut self.files {
            if std::mem::take(&mut file.unsaved) {
                self.kept.save(name, file.objects.values());
            }
        }
    }

    fn miss(&mut self, name: &OsStr, when: Instant) {
        if self.files.contains_key(name) {
            self.gone.entry(name.to_owned()).or_insert(when);
        }
    }

    fn snapshot(&self) -> Snapshot {
        let complete = self.fault.is_none() && self.files.values().all(|file| file.known);
        let mut snapshot = Snapshot { complete, ..Snapshot::default() };
        let mut places: BTreeMap<&ObjectRef, &OsStr> = BTreeMap::new();
        // Files that may be gone come last: what was moved to another file counts as it is there.
        let (gone, there): (Vec<_>, Vec<_>) = self.files.iter().partition(|(name, _)| self.gone.contains_key(*name));
        for (name, file) in there.into_iter().chain(gone) {
            snapshot.rejections.extend(file.rejections.iter().cloned());
            for (reference, object) in &file.objects {
                match places.entry(reference) {
                    Entry::Vacant(entry) => {
                        entry.insert(name);
                        snapshot.insert(reference.clone(), object.clone());
                        snapshot.kept.extend(file.kept.get(reference).cloned());
                    }
                    Entry::Occupied(_) if self.gone.contains_key(name) => {}
                    Entry::Occupied(first) => {
                        let message = format!("is in {} and in {}; the first one is in force", first.get().display(), name.display());
                        snapshot.rejections.push(Rejection::object(reference, RejectionReason::Duplicate, message));
                    }
                }
            }
        }
        snapshot.rejections.extend(self.fault.as_ref().map(|fault| Rejection {
            subject: Subject::File { file: self.dir.display().to_string(), document: None },
            reason: RejectionReason::Unreadable,
            message: format!("the directory cannot be read: {fault}; what was last read of it stays in force"),
        }));
        snapshot.rejections.sort();
        snapshot
    }
}

impl File {
    /// Takes the content that was kept of it as its last good one.
    fn restore(&mut self, kept: &Kept, name: &OsStr) {
        if let Some(found) = kept.load(name) {
            self.objects = found.into_iter().map(|found| (found.name, found.object)).collect();
            (self.good, self.known) = (true, true);
        }
    }

    /// Takes what was read of it; says whether that changes anything.
    fn take(&mut self, name: &OsStr, stamp: Option<Stamp>, parsed: Parsed) -> bool {
        let mut objects: BTreeMap<ObjectRef, Object> = BTreeMap::new();
        let mut rejections = Vec::new();
        for found in parsed.objects {
            match objects.entry(found.name) {
                Entry::Vacant(entry) => drop(entry.insert(found.object)),
                Entry::Occupied(entry) => {
                    let message = format!("{}: stands there already; the first one is in force", place(name, Some(found.place)));
                    rejections.push(Rejection::object(entry.key(), RejectionReason::Duplicate, message));
                }
            }
        }
        let whole = parsed.faults.iter().any(|fault| fault.scope == Scope::File);
        let mut unknown = whole && !self.good;
        let mut kept = BTreeSet::new();
        if whole && self.good {
            objects.clone_from(&self.objects);
            kept.extend(objects.keys().cloned());
        }
        let doubted = if whole { BTreeMap::new() } else { self.keep_doubted(&parsed.faults, &mut objects, &mut kept) };
        for (index, fault) in parsed.faults.into_iter().enumerate() {
            let in_force = match &fault.scope {
                Scope::File if self.good => "; the last good content of the file stays in force",
                Scope::File if objects.is_empty() => "; nothing of the file is in force",
                Scope::File => "; what can be read of the file is in force",
                Scope::Object(reference) if kept.contains(reference) => "; its last good content stays in force",
                Scope::Object(_) if whole && self.good => "",
                Scope::Object(reference) => match self.objects.get(reference) {
                    _ if objects.contains_key(reference) => "",
                    Some(last_good) => {
                        objects.insert(reference.clone(), last_good.clone());
                        kept.insert(reference.clone());
                        "; its last good content stays in force"
                    }
                    None => {
                        unknown = true;
                        "; it is not in force"
                    }
                },
                Scope::Aside(stub) => {
                    unknown |= stub.may_be_ours() && !doubted.contains_key(&index);
                    ""
                }
            };
            let in_force = match doubted.get(&index) {
                Some(object) => format!("{in_force}; it may be the beginning of {object}, whose last good content stays in force"),
                None => in_force.to_owned(),
            };
            rejections.push(fault_rejection(name, fault, &in_force));
        }
        let learned = !self.known && !unknown;
        self.known |= learned;
        self.settle(stamp, objects, rejections, kept, whole) || learned
    }

    /// Keeps in force what is missing now, where some document may be what is left of it: that is no evidence that it is wanted no more. Gives the first
    /// such object for each of these faults.
    fn keep_doubted(
        &self,
        faults: &[Fault],
        objects: &mut BTreeMap<ObjectRef, Object>,
        kept: &mut BTreeSet<ObjectRef>,
    ) -> BTreeMap<usize, ObjectRef> {
        let mut doubted = BTreeMap::new();
        for (reference, last_good) in &self.objects {
            let is_own = |scope: &Scope| matches!(scope, Scope::Object(found) if self.objects.contains_key(found));
            let cut = faults.iter().position(|fault| !is_own(&fault.scope) && fault.scope.may_be(reference));
            if let Some(cut) = cut.filter(|_| !objects.contains_key(reference)) {
                objects.insert(reference.clone(), last_good.clone());
                kept.insert(reference.clone());
                doubted.entry(cut).or_insert_with(|| reference.clone());
            }
        }
        doubted
    }

    fn settle(
        &mut self,
        stamp: Option<Stamp>,
        objects: BTreeMap<ObjectRef, Object>,
        rejections: Vec<Rejection>,
        kept: BTreeSet<ObjectRef>,
        whole: bool,
    ) -> bool {
        for rejection in rejections.iter().filter(|rejection| !self.rejections.contains(rejection)) {
            warn!(subject = %rejection.subject, reason = ?rejection.reason, "{}", rejection.message);
        }
        let changed = self.objects != objects || self.rejections != rejections;
        self.unsaved |= !whole && (!self.good || self.objects != objects);
        self.good |= !whole;
        (self.stamp, self.objects, self.rejections, self.kept) = (stamp, objects, rejections, kept);
        changed
    }
}

fn fault_rejection(name: &OsStr, fault: Fault, in_force: &str) -> Rejection {
    let message = format!("{}: {}{in_force}", place(name, fault.place), fault.message);
    if let Scope::Object(object) = &fault.scope {
        return Rejection::object(object, fault.reason, message);
    }
    let subject = Subject::File { file: name.display().to_string(), document: fault.place.map(|place| place.document) };
    Rejection { subject, reason: fault.reason, message }
}

fn place(name: &OsStr, place: Option<Place>) -> String {
    let name = name.display();
    place.map_or_else(|| name.to_string(), |Place { document, line }| format!("{name}, document {document}, line {line}"))
}

fn list(dir: &Path) -> io::Result<BTreeSet<OsString>> {
    let mut names = BTreeSet::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if super::is_manifest(&entry.file_name()) && !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            names.insert(entry.file_name());
        }
    }
    Ok(names)
}

/// Whether something stands there that is not a directory, be it a link that leads nowhere.
fn is_there(path: &Path) -> bool {
    path.symlink_metadata().is_ok() && !path.is_dir()
}

/// Whether the file came to its name without being written there: a symbolic link, or one more name of a file that is elsewhere too.
fn is_link(path: &Path) -> bool {
    path.symlink_metadata().is_ok_and(|metadata| metadata.is_symlink() || metadata.nlink() > 1)
}

fn read(path: &Path) -> io::Result<Content> {
    // A pipe must not make us wait for its writer.
    let file = OpenOptions::new().read(true).custom_flags(OFlag::O_NONBLOCK.bits()).open(path)?;
    let metadata = file.metadata()?;
    if metadata.is_dir() {
        return Ok(Content::Gone);
    }
    if !metadata.is_file() {
        return Ok(Content::Unreadable("it is no regular file".into()));
    }
    let mut bytes = Vec::new();
    file.take(MAX_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_BYTES {
        return Ok(Content::Unreadable(format!("it is larger than {} MiB", MAX_BYTES >> 20)));
    }
    Ok(match String::from_utf8(bytes) {
        Ok(text) => Content::Text(Stamp::of(&metadata), text),
        Err(error) => Content::Unreadable(format!("it is not UTF-8 from byte {} on", error.utf8_error().valid_up_to() + 1)),
    })
}

#[cfg(test)]
mod tests;
