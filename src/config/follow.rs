// SPDX-License-Identifier: Apache-2.0
//! Follows the configuration file while the daemon runs.
//!
//! Input: the file, the directories it and each symbolic link on the way to it stand in (a ConfigMap is replaced by swapping a link), SIGHUP. Output: what is
//! [`InForce`]. Notifications are hints: whatever they say, the whole file is read again, and once in a while without any. A file that cannot be
//! read or holds a mistake changes nothing but the report.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures_util::StreamExt as _;
use inotify::{EventStream, Inotify, WatchDescriptor, WatchMask};
use tokio::signal::unix::Signal;
use tokio::sync::watch;
use tokio::time::sleep;
use tracing::{error, info, warn};

use super::change::succeed;
use super::{Config, Environment, Origin, changes, load};

/// From the first hint to reading: writers that are no single rename are given time to finish.
const SETTLE: Duration = Duration::from_millis(100);

/// Between two readings without any hint.
const RESYNC: Duration = Duration::from_secs(30);

/// Longer chains of symbolic links are taken for a loop, as the kernel does (path_resolution(7)).
const MOST_LINKS: usize = 40;

/// What counts, and what the file says otherwise.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct InForce {
    /// The configuration that is in force.
    pub config: Arc<Config>,
    /// When it came into force.
    pub since: SystemTime,
    /// Why the file as it is now is not; it is a valid one where this is `None`.
    pub fault: Option<String>,
    /// Keys of which the file has another value that is in force after a restart only.
    pub waiting: Vec<String>,
}

/// The file cannot be followed.
#[derive(Debug, thiserror::Error)]
pub enum FollowError {
    /// inotify gives no instance or no watch: mostly a limit of the system.
    #[error("cannot watch {}", path.display())]
    Watch {
        /// The directory, or the file at the start.
        path: PathBuf,
        /// What inotify says.
        #[source]
        source: io::Error,
    },
}

/// Follows the file from which `config` was [`load`]ed until the receiver is dropped; `hangup` (SIGHUP) has it read at once. Needs a tokio runtime with time.
///
/// # Errors
/// Nothing can be watched.
pub fn follow(
    path: &Path,
    environment: Environment,
    config: Config,
    origin: Origin,
    hangup: Signal,
) -> Result<watch::Receiver<Arc<InForce>>, FollowError> {
    let start = InForce { config: Arc::new(config), since: SystemTime::now(), fault: None, waiting: Vec::new() };
    let (sender, receiver) = watch::channel(Arc::new(start));
    let mut watches = Watches::new(path)?;
    watches.renew(path)?;
    let source = Source { path: path.to_owned(), environment, origin };
    tokio::spawn(run(source, watches, hangup, sender));
    Ok(receiver)
}

/// What is read, and for what.
#[derive(Clone)]
struct Source {
    path: PathBuf,
    environment: Environment,
    origin: Origin,
}

impl Source {
    fn load(&self) -> Result<Config, String> {
        let config = load(&self.path, &self.environment).map_err(|errors| crate::telemetry::chain(&errors))?;
        match config.unfit_for(self.origin) {
            Some(lack) => Err(format!("{}: {lack}", self.path.display())),
            None => Ok(config),
        }
    }
}

async fn run(source: Source, mut watches: Watches, mut hangup: Signal, sender: watch::Sender<Arc<InForce>>) {
    loop {
        tokio::select! {
            () = watches.hint() => sleep(SETTLE).await,
            _ = hangup.recv() => {}
            () = sleep(RESYNC) => {}
            () = sender.closed() => return,
        }
        if let Err(error) = watches.renew(&source.path) {
            warn!(error = %error, "changes of the configuration file are found late");
        }
        let source = source.clone();
        match tokio::task::spawn_blocking(move || source.load()).await {
            Ok(read) => publish(&sender, read),
            Err(error) => error!(error = %error, "the reading of the configuration file ended"),
        }
    }
}

/// Publishes and logs what is new, and nothing where nothing is.
fn publish(sender: &watch::Sender<Arc<InForce>>, read: Result<Config, String>) {
    let old = Arc::clone(&sender.borrow());
    let new = next(&old, read, SystemTime::now());
    if new == *old {
        return;
    }
    match &new.fault {
        Some(fault) => error!(error = %fault, "the configuration file is refused; the one before stays in force"),
        None => log_changes(&old, &new),
    }
    sender.send_replace(Arc::new(new));
}

/// What a good file changes: what is in force now, and what is not before a restart.
fn log_changes(old: &InForce, new: &InForce) {
    let keys: Vec<String> = changes(&old.config, &new.config).into_iter().map(|change| change.key).collect();
    if !keys.is_empty() {
        info!(changed = %keys.join(" "), "the configuration file was read again");
    }
    if old.fault.is_some() {
        info!("the configuration file is good again");
    }
    if new.waiting == old.waiting {
        return;
    }
    if new.waiting.is_empty() {
        info!(keys = %old.waiting.join(" "), "these keys have the values again that are in force; no restart is needed");
    } else {
        warn!(keys = %new.waiting.join(" "), "a restart is needed for these keys; until then their old values stay in force");
    }
}

fn next(old: &InForce, read: Result<Config, String>, now: SystemTime) -> InForce {
    match read {
        Err(fault) => InForce { fault: Some(fault), ..old.clone() },
        Ok(config) => {
            let (config, waiting) = succeed(&old.config, config);
            if config == *old.config {
                InForce { fault: None, waiting, ..old.clone() }
            } else {
                InForce { config: Arc::new(config), since: now, fault: None, waiting }
            }
        }
    }
}

/// The inotify watches on all directories in which a change can mean another content.
struct Watches {
    events: EventStream<[u8; 1024]>,
    watched: BTreeMap<PathBuf, WatchDescriptor>,
    /// The file may have changed between its first reading and the first watch.
    hinted: bool,
}

impl Watches {
    fn new(path: &Path) -> Result<Self, FollowError> {
        let events = Inotify::init().and_then(|inotify| inotify.into_event_stream([0; 1024]));
        let events = events.map_err(|source| FollowError::Watch { path: path.to_owned(), source })?;
        Ok(Self { events, watched: BTreeMap::new(), hinted: true })
    }

    /// Resolves when something happened in a directory that counts. Cancel safe.
    async fn hint(&mut self) {
        if !std::mem::take(&mut self.hinted) && self.events.next().await.is_none() {
            // No event will come any more.
            std::future::pending().await
        }
    }

    /// Watches the directories that count now, and no others.
    fn renew(&mut self, path: &Path) -> Result<(), FollowError> {
        let mask =
            WatchMask::CLOSE_WRITE | WatchMask::CREATE | WatchMask::DELETE | WatchMask::MOVE | WatchMask::ATTRIB | WatchMask::ONLYDIR;
        let wanted = directories(path);
        for (_, gone) in self.watched.extract_if(.., |directory, _| !wanted.contains(directory)) {
            // A directory that was removed took its watch along.
            self.events.watches().remove(gone).ok();
        }
        for directory in wanted {
            // Also one that is watched: it may be another directory of the same name by now.
            let watch = self.events.watches().add(&directory, mask);
            let watch = watch.map_err(|source| FollowError::Watch { path: directory.clone(), source })?;
            self.watched.insert(directory, watch);
        }
        Ok(())
    }
}

/// The directories, with their real names, that hold the file or any symbolic link on the way to it, found as the kernel walks there
/// (path_resolution(7)). Where the way ends early, the last directory of it is among them.
fn directories(path: &Path) -> BTreeSet<PathBuf> {
    let mut directories = BTreeSet::new();
    let mut links = 0;
    // Without any link in it.
    let mut here = PathBuf::from(".").canonicalize().unwrap_or_else(|_| PathBuf::from("."));
    let mut ahead: VecDeque<PathBuf> = steps(path).collect();
    while let Some(step) = ahead.pop_front() {
        // An absolute step is the root, from which it goes on.
        let there = here.join(&step);
        if step.as_os_str() == ".." {
            here.pop();
        } else if let Ok(target) = std::fs::read_link(&there) {
            directories.insert(here.clone());
            links += 1;
            if links > MOST_LINKS {
                break;
            }
            steps(&target).rev().for_each(|step| ahead.push_front(step));
        } else if ahead.is_empty() || !there.is_dir() {
            directories.insert(here);
            break;
        } else {
            here = there;
        }
    }
    directories
}

/// The components of a path.
fn steps(path: &Path) -> impl DoubleEndedIterator<Item = PathBuf> {
    path.components().filter(|component| *component != Component::CurDir).map(|component| PathBuf::from(component.as_os_str()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use tokio::signal::unix::{SignalKind, signal};

    use super::*;

    const FIRST: &str = "bgp: {asn: 65001}\n";

    struct Followed {
        directory: tempfile::TempDir,
        receiver: watch::Receiver<Arc<InForce>>,
    }

    fn environment() -> Environment {
        Environment::from([("NODE_NAME".to_owned(), "node-1".to_owned())])
    }

    fn hangup() -> Signal {
        signal(SignalKind::hangup()).unwrap()
    }

    /// As the kubelet lays out a ConfigMap.
    fn config_map() -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir(directory.path().join("..1")).unwrap();
        std::fs::write(directory.path().join("..1/config.yaml"), FIRST).unwrap();
        symlink("..1", directory.path().join("..data")).unwrap();
        symlink("..data/config.yaml", directory.path().join("config.yaml")).unwrap();
        directory
    }

    impl Followed {
        fn new(directory: tempfile::TempDir) -> Self {
            let path = directory.path().join("config.yaml");
            let receiver = follow(&path, environment(), load(&path, &environment()).unwrap(), Origin::Directory, hangup()).unwrap();
            Self { directory, receiver }
        }

        /// Replaced in one step, as editors and configuration management do.
        fn replace(&self, text: &str) {
            std::fs::write(self.directory.path().join("new"), text).unwrap();
            std::fs::rename(self.directory.path().join("new"), self.directory.path().join("config.yaml")).unwrap();
        }

        async fn until(&mut self, condition: impl FnMut(&Arc<InForce>) -> bool) -> Arc<InForce> {
            let found = tokio::time::timeout(Duration::from_secs(20), self.receiver.wait_for(condition)).await;
            Arc::clone(&found.expect("in time").expect("still followed"))
        }
    }

    #[tokio::test]
    async fn a_swapped_config_map_is_read() {
        let mut followed = Followed::new(config_map());
        let directory = followed.directory.path();
        for generation in 2..5_u32 {
            let name = format!("..{generation}");
            std::fs::create_dir(directory.join(&name)).unwrap();
            std::fs::write(directory.join(&name).join("config.yaml"), format!("bgp: {{asn: 6500{generation}}}\n")).unwrap();
            symlink(&name, directory.join("..data_tmp")).unwrap();
            std::fs::rename(directory.join("..data_tmp"), directory.join("..data")).unwrap();
            std::fs::remove_dir_all(directory.join(format!("..{}", generation - 1))).unwrap();
            let condition = |state: &Arc<InForce>| state.config.bgp.asn.number() == 65_000 + generation;
            let found = tokio::time::timeout(Duration::from_secs(20), followed.receiver.wait_for(condition)).await;
            assert_eq!(found.expect("in time").expect("still followed").fault, None);
        }
    }

    #[tokio::test]
    async fn a_mistake_keeps_the_old_one_and_is_told() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("config.yaml"), FIRST).unwrap();
        let mut followed = Followed::new(directory);

        followed.replace("bgp: {asn: 0}\n");
        let state = followed.until(|state| state.fault.is_some()).await;
        assert!(state.fault.as_ref().unwrap().contains("config.yaml:1:12: bgp.asn: expected an AS number"), "{:?}", state.fault);
        assert_eq!(state.config.bgp.asn.number(), 65_001);

        std::fs::remove_file(followed.directory.path().join("config.yaml")).unwrap();
        followed.until(|state| state.fault.as_ref().is_some_and(|fault| fault.contains("cannot be read: No such file"))).await;

        followed.replace("bgp: {asn: 65001}\nlog: {level: debug}\ninstance: other\n");
        let state = followed.until(|state| state.fault.is_none()).await;
        assert_eq!(state.config.log.level, "debug");
        assert_eq!(state.config.instance, "vipherald");
        assert_eq!(state.waiting, ["instance", "stateDir"]);
    }

    /// Follows `path`, swaps `link` to `target`, and waits for what is there, for less than it takes to look without a hint.
    async fn swapped(path: &Path, link: &Path, target: &str) {
        let mut receiver = follow(path, environment(), load(path, &environment()).unwrap(), Origin::Directory, hangup()).unwrap();
        // The first look is over, whose hint comes from the start.
        sleep(SETTLE * 5).await;
        symlink(target, link.with_extension("new")).unwrap();
        std::fs::rename(link.with_extension("new"), link).unwrap();
        let condition = |state: &Arc<InForce>| state.config.bgp.asn.number() == 65_002;
        tokio::time::timeout(RESYNC / 2, receiver.wait_for(condition)).await.expect("in time").expect("still followed");
    }

    fn two_versions(directory: &Path) {
        for (name, text) in [("1", FIRST), ("2", "bgp: {asn: 65002}\n")] {
            std::fs::create_dir(directory.join(name)).unwrap();
            std::fs::write(directory.join(name).join("config.yaml"), text).unwrap();
        }
        symlink("1", directory.join("current")).unwrap();
    }

    #[tokio::test]
    async fn a_swapped_link_to_the_directory_of_the_file_is_noticed() {
        let directory = tempfile::tempdir().unwrap();
        two_versions(directory.path());
        let link = directory.path().join("current");
        swapped(&link.join("config.yaml"), &link, "2").await;
    }

    #[tokio::test]
    async fn a_swapped_link_within_the_target_of_a_link_is_noticed() {
        let (outside, directory) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        two_versions(directory.path());
        let link = directory.path().join("current");
        let path = outside.path().join("config.yaml");
        symlink(link.join("config.yaml"), &path).unwrap();
        swapped(&path, &link, "2").await;
    }

    #[test]
    fn each_directory_with_a_link_on_the_way_counts() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().canonicalize().unwrap().join(name);
        for name in ["a/deep", "b", "c"] {
            std::fs::create_dir_all(at(name)).unwrap();
        }
        std::fs::write(at("c/file"), FIRST).unwrap();
        symlink("../b/hop/./file", at("a/file")).unwrap();
        symlink(at("c"), at("b/hop")).unwrap();
        symlink("deep/..", at("a/up")).unwrap();
        let found = |path: &str| directories(&at(path));
        let all = BTreeSet::from([at("a"), at("b"), at("c")]);
        assert_eq!(found("a/file"), all);
        assert_eq!(found("a/up/file"), all);
        assert_eq!(found("c/file"), [at("c")].into());
        assert_eq!(found("b/hop/absent"), [at("b"), at("c")].into());
        assert_eq!(found("c/absent/file"), [at("c")].into());
        symlink("loop", at("c/loop")).unwrap();
        assert_eq!(found("c/loop"), [at("c")].into());
    }

    /// One that is written by its name in another directory, of which this one is not told.
    #[tokio::test]
    async fn sighup_reads_the_file_again() {
        let (directory, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (path, other) = (directory.path().join("config.yaml"), elsewhere.path().join("config.yaml"));
        std::fs::write(&path, FIRST).unwrap();
        std::fs::hard_link(&path, &other).unwrap();
        let mut receiver = follow(&path, environment(), load(&path, &environment()).unwrap(), Origin::Directory, hangup()).unwrap();
        sleep(SETTLE * 5).await;
        std::fs::write(&other, "bgp: {asn: 65002}\n").unwrap();
        nix::sys::signal::raise(nix::sys::signal::Signal::SIGHUP).unwrap();
        let condition = |state: &Arc<InForce>| state.config.bgp.asn.number() == 65_002;
        tokio::time::timeout(RESYNC / 2, receiver.wait_for(condition)).await.expect("in time").expect("still followed");
    }

    /// What is logged where the file says this after [`FIRST`], a line for each event.
    fn logged(texts: &[&str]) -> Vec<String> {
        let environment = environment();
        let read = |text: &str| super::super::parse::parse(text, &environment).map_err(|_mistakes| "it is bad".to_owned());
        let start = InForce { config: Arc::new(read(FIRST).unwrap()), since: SystemTime::UNIX_EPOCH, fault: None, waiting: Vec::new() };
        let (sender, _receiver) = watch::channel(Arc::new(start));
        let written = Arc::new(std::sync::Mutex::new(Vec::new()));
        let lines = Arc::clone(&written);
        let writer = move || Lines(Arc::clone(&lines));
        let subscriber =
            tracing_subscriber::fmt().with_writer(writer).with_ansi(false).without_time().with_target(false).with_level(true).finish();
        tracing::subscriber::with_default(subscriber, || texts.iter().for_each(|text| publish(&sender, read(text))));
        let text = String::from_utf8(written.lock().unwrap().clone()).unwrap();
        text.lines().map(|line| line.trim().to_owned()).collect()
    }

    struct Lines(Arc<std::sync::Mutex<Vec<u8>>>);

    impl io::Write for Lines {
        fn write(&mut self, octets: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend(octets);
            Ok(octets.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn the_log_names_what_changed_and_what_needs_a_restart() {
        let restart = "bgp: {asn: 65001}\ninstance: other\nhttp: {address: '127.0.0.1:1'}\n";
        let needed =
            "WARN a restart is needed for these keys; until then their old values stay in force keys=http.address instance stateDir";
        assert_eq!(logged(&[restart]), [needed]);
        let hot = "bgp: {asn: 65001}\nlog: {level: debug}\n";
        let changed = "INFO the configuration file was read again changed=log.level";
        assert_eq!(logged(&[hot]), [changed]);
        assert_eq!(logged(&[&format!("{restart}log: {{level: debug}}\n")]), [changed, needed]);
        let taken_back =
            "INFO these keys have the values again that are in force; no restart is needed keys=http.address instance stateDir";
        assert_eq!(logged(&[restart, FIRST]), [needed, taken_back]);
        let refused = "ERROR the configuration file is refused; the one before stays in force error=it is bad";
        assert_eq!(logged(&["", FIRST]), [refused, "INFO the configuration file is good again"]);
        assert_eq!(logged(&[FIRST]), [""; 0]);
    }

    #[test]
    fn equal_content_changes_nothing() {
        let environment = environment();
        let config = super::super::parse::parse(FIRST, &environment).unwrap();
        let old = InForce { config: Arc::new(config.clone()), since: SystemTime::UNIX_EPOCH, fault: None, waiting: Vec::new() };
        assert_eq!(next(&old, Ok(config.clone()), SystemTime::now()), old);
        let refused = next(&old, Err("no".to_owned()), SystemTime::now());
        assert_eq!((refused.fault.as_deref(), &refused.config), (Some("no"), &old.config));
        assert_eq!(next(&refused, Ok(config), SystemTime::now()), old);
    }
}
