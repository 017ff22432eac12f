// SPDX-License-Identifier: Apache-2.0
//! What happens in the manifest directory, as the kernel tells it (inotify(7)).
//!
//! Output: a [`Batch`] of all that has happened since the one before. Invariants: only the last event of each name counts, so a file that is
//! being written again is [`Event::Writing`] whatever came before; where events were lost, the batch says so instead of staying silent.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify, InotifyEvent, WatchDescriptor};

/// The name under which a ConfigMap volume switches to its new content (a symbolic link that is renamed into place).
const CONFIG_MAP_LINK: &str = "..data";

/// What happened to a name.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Event {
    /// It is whole now: closed after writing, or renamed into place.
    Whole,
    /// It appeared: a link, or a file that somebody is going to write.
    Created,
    /// It is being written.
    Writing,
    /// It is no longer there.
    Gone,
}

/// All that has happened since the last batch.
#[derive(Debug, Default, Eq, PartialEq)]
pub(super) struct Batch {
    /// What happened last to each manifest file.
    pub(super) names: BTreeMap<OsString, Event>,
    /// All files may have been replaced at once.
    pub(super) switched: bool,
    /// The kernel's queue was full: anything may have happened.
    pub(super) overflowed: bool,
    /// The directory itself is no longer what was watched, for this reason.
    pub(super) lost: Option<&'static str>,
}

impl Batch {
    pub(super) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    fn add(&mut self, event: InotifyEvent, watched: Option<WatchDescriptor>) {
        let mask = event.mask;
        if mask.contains(AddWatchFlags::IN_Q_OVERFLOW) {
            self.overflowed = true;
        }
        if watched != Some(event.wd) {
            return;
        }
        let Some(name) = event.name else {
            self.lost = self.lost.or_else(|| loss(mask));
            return;
        };
        if mask.contains(AddWatchFlags::IN_ISDIR) {
            return;
        }
        if name == CONFIG_MAP_LINK {
            self.switched |= mask.intersects(AddWatchFlags::IN_MOVED_TO | AddWatchFlags::IN_CREATE);
        } else if super::is_manifest(&name)
            && let Some(event) = meaning(mask)
        {
            self.names.insert(name, event);
        }
    }
}

fn loss(mask: AddWatchFlags) -> Option<&'static str> {
    [
        (AddWatchFlags::IN_DELETE_SELF, "the directory was deleted"),
        (AddWatchFlags::IN_MOVE_SELF, "the directory was moved away"),
        (AddWatchFlags::IN_UNMOUNT, "its file system was unmounted"),
        (AddWatchFlags::IN_IGNORED, "the directory is gone"),
    ]
    .into_iter()
    .find_map(|(flag, reason)| mask.contains(flag).then_some(reason))
}

fn meaning(mask: AddWatchFlags) -> Option<Event> {
    [
        (AddWatchFlags::IN_CLOSE_WRITE | AddWatchFlags::IN_MOVED_TO, Event::Whole),
        (AddWatchFlags::IN_MODIFY, Event::Writing),
        (AddWatchFlags::IN_CREATE, Event::Created),
        (AddWatchFlags::IN_DELETE | AddWatchFlags::IN_MOVED_FROM, Event::Gone),
    ]
    .into_iter()
    .find_map(|(flags, event)| mask.intersects(flags).then_some(event))
}

/// Watches one directory at a time.
#[derive(Debug, Default)]
pub(super) struct Watch {
    inotify: Option<Inotify>,
    watched: Option<(WatchDescriptor, Identity)>,
}

/// What tells one directory from another.
type Identity = (u64, u64);

impl Watch {
    /// Watches the directory that this path names now.
    ///
    /// # Errors
    /// There is no such directory, or the kernel has no watch left for us.
    pub(super) fn attach(&mut self, dir: &Path) -> io::Result<()> {
        self.detach();
        let inotify = match self.inotify.take() {
            Some(inotify) => inotify,
            None => Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK)?,
        };
        let flags = AddWatchFlags::IN_CLOSE_WRITE
            | AddWatchFlags::IN_MODIFY
            | AddWatchFlags::IN_CREATE
            | AddWatchFlags::IN_MOVE
            | AddWatchFlags::IN_DELETE
            | AddWatchFlags::IN_DELETE_SELF
            | AddWatchFlags::IN_MOVE_SELF
            | AddWatchFlags::IN_ONLYDIR;
        let inotify = self.inotify.insert(inotify);
        let descriptor = inotify.add_watch(dir, flags)?;
        self.watched = Some((descriptor, identity(dir)?));
        Ok(())
    }

    /// Ends the watch; what it has told and nobody has read yet is forgotten.
    pub(super) fn detach(&mut self) {
        let watched = self.watched.take();
        if let (Some(inotify), Some((descriptor, _))) = (&self.inotify, watched) {
            // Where the directory is gone, the kernel has ended the watch already.
            inotify.rm_watch(descriptor).ok();
        }
    }

    /// Whether events come.
    pub(super) const fn is_attached(&self) -> bool {
        self.watched.is_some()
    }

    /// Whether the path still names the directory that is watched.
    pub(super) fn is_at(&self, dir: &Path) -> bool {
        self.watched.is_some_and(|(_, watched)| identity(dir).is_ok_and(|found| found == watched))
    }

    /// What has happened since the last call. Does not wait.
    pub(super) fn drain(&self) -> Batch {
        let mut batch = Batch::default();
        let Some(inotify) = &self.inotify else { return batch };
        let watched = self.watched.map(|(descriptor, _)| descriptor);
        loop {
            match inotify.read_events() {
                Ok(events) => events.into_iter().for_each(|event| batch.add(event, watched)),
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) => return batch,
                Err(_) => {
                    batch.overflowed = true;
                    return batch;
                }
            }
        }
    }

    /// Waits until something happened, the time is over, or somebody wants us to stop, which is what `true` says.
    pub(super) fn wait(&self, stop: &impl AsFd, at_most: Duration) -> bool {
        let mut fds = vec![PollFd::new(stop.as_fd(), PollFlags::POLLIN)];
        fds.extend(self.inotify.as_ref().map(|inotify| PollFd::new(inotify.as_fd(), PollFlags::POLLIN)));
        // Rounded up, so that a wait does not end just before what it waits for.
        let timeout = PollTimeout::try_from(at_most + Duration::from_millis(1)).unwrap_or(PollTimeout::MAX);
        // An interrupted wait is one that ends early.
        poll(&mut fds, timeout).is_ok_and(|ready| ready > 0) && fds.first().and_then(PollFd::any).unwrap_or_default()
    }
}

fn identity(dir: &Path) -> io::Result<Identity> {
    dir.metadata().map(|metadata| (metadata.dev(), metadata.ino()))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use tempfile::TempDir;

    use super::*;

    fn watched() -> (TempDir, Watch) {
        let dir = TempDir::new().unwrap();
        let mut watch = Watch::default();
        watch.attach(dir.path()).unwrap();
        (dir, watch)
    }

    #[test]
    fn the_last_event_of_a_name_counts() {
        let (dir, watch) = watched();
        let path = |name: &str| dir.path().join(name);
        fs::write(path("whole.yaml"), "a").unwrap();
        let mut open = fs::File::create(path("writing.yaml")).unwrap();
        io::Write::write_all(&mut open, b"a").unwrap();
        fs::write(path("gone.yaml"), "a").unwrap();
        fs::remove_file(path("gone.yaml")).unwrap();
        fs::write(path("moved.tmp"), "a").unwrap();
        fs::rename(path("moved.tmp"), path("moved.yaml")).unwrap();
        std::os::unix::fs::symlink("x", path("link.yaml")).unwrap();
        for ignored in ["text.txt", ".hidden.yaml"] {
            fs::write(path(ignored), "a").unwrap();
        }
        fs::create_dir(path("directory.yaml")).unwrap();
        fs::read(path("whole.yaml")).unwrap();
        let expected = [
            ("gone.yaml", Event::Gone),
            ("link.yaml", Event::Created),
            ("moved.yaml", Event::Whole),
            ("whole.yaml", Event::Whole),
            ("writing.yaml", Event::Writing),
        ];
        let names = expected.into_iter().map(|(name, event)| (name.into(), event)).collect();
        assert_eq!(watch.drain(), Batch { names, ..Batch::default() });
        assert!(watch.drain().is_empty());
    }

    #[test]
    fn a_switch_and_a_loss_are_told() {
        let (dir, mut watch) = watched();
        std::os::unix::fs::symlink("x", dir.path().join("..data_tmp")).unwrap();
        assert!(watch.drain().is_empty());
        fs::rename(dir.path().join("..data_tmp"), dir.path().join("..data")).unwrap();
        assert!(watch.drain().switched);
        let away = dir.path().with_extension("away");
        fs::rename(dir.path(), &away).unwrap();
        assert_eq!(watch.drain().lost, Some("the directory was moved away"));
        assert!(!watch.is_at(dir.path()));
        watch.attach(&away).unwrap();
        fs::remove_dir_all(&away).unwrap();
        assert_eq!(watch.drain().lost, Some("the directory was deleted"));
        assert!(watch.attach(dir.path()).is_err());
    }

    #[test]
    fn a_queue_that_was_full_is_told() {
        let (_dir, watch) = watched();
        let (descriptor, _) = watch.watched.unwrap();
        let mut batch = Batch::default();
        batch.add(InotifyEvent { wd: descriptor, mask: AddWatchFlags::IN_Q_OVERFLOW, cookie: 0, name: None }, None);
        assert_eq!(batch, Batch { overflowed: true, ..Batch::default() });
    }
}
