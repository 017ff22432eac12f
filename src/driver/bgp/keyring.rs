// SPDX-License-Identifier: Apache-2.0
//! The TCP-MD5 keys of all neighbours, read from their files and followed.
//!
//! Input: the paths that the configuration names. Output: for each of them its key, or why there is none. A file is read again every second, so that
//! it does not matter how its content is replaced. Invariant: no key is a reason, never an empty key.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::io::AsyncReadExt as _;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::timeout;

use super::fatal_panics;

/// Between two readings of a file.
const INTERVAL: Duration = Duration::from_secs(1);

/// How long a configuration waits for the first reading of its files.
const PATIENCE: Duration = Duration::from_secs(1);

/// The key of each file, or why it has none.
pub(super) type Keys = BTreeMap<PathBuf, Result<Key, Arc<str>>>;

/// A key of 1 to 80 octets.
#[derive(Clone, Eq, PartialEq)]
pub(super) struct Key(Arc<[u8]>);

impl Key {
    /// The content of a file; one newline at its end does not count.
    fn new(content: &[u8]) -> Result<Self, Arc<str>> {
        let line = content.strip_suffix(b"\n").unwrap_or(content);
        let octets = line.strip_suffix(b"\r").unwrap_or(line);
        match octets.len() {
            0 => Err("it is empty".into()),
            length if length > sys::LONGEST_KEY => Err(format!("it holds more than {} octets", sys::LONGEST_KEY).into()),
            _ => Ok(Self(octets.into())),
        }
    }

    pub(super) fn octets(&self) -> &[u8] {
        &self.0
    }

    #[cfg(test)]
    pub(super) fn of_a_test(key: &str) -> Self {
        Self(key.as_bytes().into())
    }

    /// Longer than any that a file gives: no kernel takes it.
    #[cfg(test)]
    pub(super) fn unusable() -> Self {
        Self([7; sys::LONGEST_KEY + 1].into())
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key")
    }
}

/// The task that reads the files.
pub(super) struct Keyring {
    paths: watch::Sender<BTreeSet<PathBuf>>,
    keys: watch::Receiver<Arc<Keys>>,
    task: JoinHandle<()>,
}

impl Keyring {
    /// Needs a runtime.
    pub(super) fn new() -> Self {
        let paths = watch::Sender::new(BTreeSet::new());
        let (publish, keys) = watch::channel(Arc::default());
        let task = tokio::spawn(fatal_panics(follow(paths.subscribe(), publish)));
        Self { paths, keys, task }
    }

    /// Follows these files from now on, and waits for their first reading, but not for ever.
    pub(super) async fn follow(&mut self, paths: BTreeSet<PathBuf>) {
        self.paths.send_if_modified(|current| {
            let changed = *current != paths;
            current.clone_from(&paths);
            changed
        });
        let read = self.keys.wait_for(|keys| paths.iter().all(|path| keys.contains_key(path)));
        if timeout(PATIENCE, read).await.is_err() {
            tracing::warn!("the key files of some peers cannot be read in time; these peers stay down until they are");
        }
    }

    /// As they are now.
    pub(super) fn keys(&self) -> Arc<Keys> {
        Arc::clone(&self.keys.borrow())
    }

    /// Wakes its holder when some key is another one.
    pub(super) fn subscribe(&self) -> watch::Receiver<Arc<Keys>> {
        self.keys.clone()
    }
}

impl Drop for Keyring {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn follow(mut paths: watch::Receiver<BTreeSet<PathBuf>>, publish: watch::Sender<Arc<Keys>>) {
    // One file may hang, that of a network file system for example: the others are followed all the same.
    let (mut readings, mut reading) = (JoinSet::new(), BTreeSet::new());
    // A session that is about to end still has its key.
    let mut before = BTreeSet::new();
    loop {
        let wanted = paths.borrow_and_update().clone();
        publish.send_if_modified(|current| {
            let stays = |path: &PathBuf| wanted.contains(path) || before.contains(path);
            let leaves = !current.keys().all(stays);
            if leaves {
                Arc::make_mut(current).retain(|path, _| stays(path));
            }
            leaves
        });
        before.clone_from(&wanted);
        for path in wanted.iter().filter(|path| reading.insert(PathBuf::clone(path))).cloned() {
            readings.spawn(fatal_panics(async move { (read(&path).await, path) }));
        }
        let round = tokio::time::sleep(INTERVAL);
        tokio::pin!(round);
        loop {
            tokio::select! {
                Some(done) = readings.join_next() => {
                    let Ok((key, path)) = done else { return };
                    reading.remove(&path);
                    let is_news = wanted.contains(&path) && publish.borrow().get(&path) != Some(&key);
                    if is_news {
                        publish.send_modify(|current| drop(Arc::make_mut(current).insert(path, key)));
                    }
                }
                changed = paths.changed() => match changed {
                    Ok(()) => break,
                    Err(_) => return,
                },
                () = &mut round, if !wanted.is_empty() || !publish.borrow().is_empty() => break,
            }
        }
    }
}

async fn read(path: &Path) -> Result<Key, Arc<str>> {
    let content = content(path).await.map_err(|error| Arc::<str>::from(error.to_string()))?;
    Key::new(&content)
}

/// No more of it than shows that it is too long; a pipe would never end.
async fn content(path: &Path) -> io::Result<Vec<u8>> {
    let limit = u64::try_from(sys::LONGEST_KEY + "\r\n".len() + 1).unwrap_or(u64::MAX);
    if !tokio::fs::metadata(path).await?.is_file() {
        return Err(io::Error::other("it is no file"));
    }
    let mut content = Vec::new();
    tokio::fs::File::open(path).await?.take(limit).read_to_end(&mut content).await?;
    Ok(content)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_newline_at_the_end_does_not_count_and_the_rest_does() {
        let octets = |content: &[u8]| Key::new(content).map(|key| key.octets().to_vec());
        assert_eq!(octets(b"secret\n").unwrap(), b"secret");
        assert_eq!(octets(b"secret\r\n").unwrap(), b"secret");
        assert_eq!(octets(b" s\n\n").unwrap(), b" s\n");
        assert_eq!(octets(&[0xff; 80]).unwrap(), [0xff; 80]);
        assert_eq!(octets(b"").unwrap_err().as_ref(), "it is empty");
        assert_eq!(octets(b"\n").unwrap_err().as_ref(), "it is empty");
        assert_eq!(octets(&[7; 81]).unwrap_err().as_ref(), "it holds more than 80 octets");
        assert_eq!(format!("{:?}", Key::new(b"secret").unwrap()), "Key", "a key is in no log");
    }

    #[tokio::test]
    async fn what_is_no_key_is_a_reason_and_files_are_followed() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        std::fs::write(path("good"), "secret\n").unwrap();
        std::fs::write(path("long"), [7; 5000]).unwrap();
        let mut keyring = Keyring::new();
        let mut keys = keyring.subscribe();
        keyring.follow(["good", "long", "absent", ""].map(path).into()).await;
        let reasons: Vec<String> =
            keys.borrow_and_update().values().filter_map(|key| key.as_ref().err().map(ToString::to_string)).collect();
        assert_eq!(reasons, ["it is no file", "No such file or directory (os error 2)", "it holds more than 80 octets"]);
        assert_eq!(keys.borrow()[&path("good")], Key::new(b"secret"));

        std::fs::write(path("new"), "other").unwrap();
        std::fs::rename(path("new"), path("good")).unwrap();
        let changed = keys.wait_for(|keys| keys[&path("good")] == Key::new(b"other"));
        drop(timeout(Duration::from_secs(30), changed).await.expect("in time").unwrap());
    }
}
