// SPDX-License-Identifier: Apache-2.0
//! The directory source on a real file system: what is in force after each thing that people, editors and kubelets do to files.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use vipherald::api::Kind;
use vipherald::desired::{Rejection, RejectionReason, Subject};
use vipherald::source::dir::{DirError, Follower, follow};
use vipherald::source::{Snapshot, Snapshots};

/// Longer than anything here takes, the look of every 10 seconds included.
const DEADLINE: Duration = Duration::from_secs(30);

/// In the order in which they go: nobody writes into the directory any more when it is removed.
struct Followed {
    snapshots: Snapshots,
    following: Following,
    root: TempDir,
}

impl Followed {
    /// Follows a directory that holds these files at the start.
    fn new(files: &[(&str, &str)]) -> Self {
        let root = TempDir::new().unwrap();
        fs::create_dir(root.path().join("manifests")).unwrap();
        for (name, text) in files {
            fs::write(root.path().join("manifests").join(name), text).unwrap();
        }
        Self::start(root)
    }

    fn start(root: TempDir) -> Self {
        let (snapshots, follower) = follow(root.path().join("manifests"), Some(root.path().join("state"))).unwrap();
        let following = Following { ends: snapshots.clone(), follower: Some(follower) };
        Self { snapshots, following, root }
    }

    /// The same directory and state with a new process, after something was done to them.
    fn restart(self, between: impl FnOnce()) -> Self {
        let Self { following, root, .. } = self;
        drop(following);
        between();
        Self::start(root)
    }

    fn dir(&self) -> PathBuf {
        self.root.path().join("manifests")
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
    }

    fn rename_into(&self, name: &str, text: &str) {
        let unfinished = self.root.path().join("unfinished");
        fs::write(&unfinished, text).unwrap();
        fs::rename(unfinished, self.path(name)).unwrap();
    }

    fn now(&self) -> Arc<Snapshot> {
        self.snapshots.borrow().clone().unwrap()
    }

    /// Waits for a snapshot of which this holds, and looks at each one until then.
    async fn until(&mut self, what: &str, holds: impl Fn(&Snapshot) -> bool) -> Arc<Snapshot> {
        self.until_always(what, |_| true, holds).await
    }

    /// The same, while something else holds all the time.
    async fn until_always(&mut self, what: &str, always: impl Fn(&Snapshot) -> bool, holds: impl Fn(&Snapshot) -> bool) -> Arc<Snapshot> {
        let wait = async {
            loop {
                if let Some(snapshot) = self.snapshots.borrow_and_update().clone() {
                    assert!(always(&snapshot), "{what}: {snapshot:#?}");
                    if holds(&snapshot) {
                        return snapshot;
                    }
                }
                self.snapshots.changed().await.unwrap();
            }
        };
        match tokio::time::timeout(DEADLINE, wait).await {
            Ok(snapshot) => snapshot,
            Err(_) => panic!("{what}: not within {DEADLINE:?}; the last snapshot: {:#?}", self.now()),
        }
    }

    /// Waits until all that was done so far has been seen.
    async fn barrier(&mut self, always: impl Fn(&Snapshot) -> bool) -> Arc<Snapshot> {
        let name = format!("barrier-{}", self.now().nodes.len());
        self.rename_into(&format!("{name}.yaml"), &node(&name, "x"));
        self.until_always(&name, always, |snapshot| version(snapshot, &name).is_some()).await
    }
}

/// A follower whose thread has ended, and writes no state any more, when this is dropped.
struct Following {
    follower: Option<Follower>,
    ends: Snapshots,
}

impl Drop for Following {
    fn drop(&mut self) {
        drop(self.follower.take());
        let deadline = Instant::now() + DEADLINE;
        let is_running = || self.ends.has_changed().is_ok();
        while is_running() && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(1));
        }
        assert!(!is_running() || thread::panicking(), "the follower has not ended within {DEADLINE:?}");
    }
}

fn node(name: &str, version: &str) -> String {
    format!("apiVersion: v1\nkind: Node\nmetadata: {{name: {name}, labels: {{v: '{version}'}}}}\n")
}

/// The label of the node of this name.
fn version<'a>(snapshot: &'a Snapshot, name: &str) -> Option<&'a str> {
    let (_, node) = snapshot.nodes.iter().find(|(reference, _)| reference.name == name)?;
    node.metadata.labels.as_ref()?.get("v").map(String::as_str)
}

fn is(name: &str, expected: &str) -> impl Fn(&Snapshot) -> bool {
    let (name, expected) = (name.to_owned(), expected.to_owned());
    move |snapshot| version(snapshot, &name) == Some(&expected)
}

#[tokio::test]
async fn the_examples_are_read_without_a_fault() {
    let examples = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("examples/manifests");
    let (snapshots, _follower) = follow(examples.clone(), None).unwrap();
    let snapshot = snapshots.borrow().clone().unwrap();
    assert_eq!(snapshot.rejections, []);
    assert!(snapshot.complete);
    let names = |kind| -> Vec<String> {
        let all = snapshot.services.keys().chain(snapshot.endpoint_slices.keys()).chain(snapshot.nodes.keys());
        let all = all.chain(snapshot.eric_ingresses.keys()).chain(snapshot.lvs_ingresses.keys());
        all.filter(|name| name.kind == kind).map(ToString::to_string).collect()
    };
    assert_eq!(names(Kind::Service), ["Service default/mscm", "Service default/nginx", "Service default/tcpserver7", "Service enm/web"]);
    assert_eq!(names(Kind::EndpointSlice).len(), 5);
    assert_eq!(names(Kind::Node), ["Node node-01-002"]);
    assert_eq!(names(Kind::EricIngress), ["EricIngress default/mscm"]);
    assert_eq!(names(Kind::LvsIngress), ["LvsIngress default/tcpserver7"]);

    for entry in fs::read_dir(examples).unwrap() {
        let alone = Followed::new(&[("example.yaml", &fs::read_to_string(entry.unwrap().path()).unwrap())]);
        assert_eq!(alone.now().rejections, []);
    }
}

#[tokio::test]
async fn files_come_change_and_go() {
    let mut followed = Followed::new(&[("a.yaml", &node("a", "1"))]);
    assert_eq!(version(&followed.now(), "a"), Some("1"));
    followed.write("b.yml", &node("b", "1"));
    followed.write("c.json", r#"{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "c", "labels": {"v": "1"}}}"#);
    followed.write("d.txt", "not ours");
    followed.until("b and c come", |snapshot| is("b", "1")(snapshot) && is("c", "1")(snapshot)).await;
    followed.rename_into("a.yaml", &node("a", "2"));
    followed.until("a changes", is("a", "2")).await;
    fs::rename(followed.path("b.yml"), followed.path("b.yml.off")).unwrap();
    fs::remove_file(followed.path("c.json")).unwrap();
    let snapshot = followed.until("b and c go", |snapshot| snapshot.nodes.len() == 1).await;
    assert_eq!((snapshot.rejections.len(), snapshot.complete), (0, true));
}

#[tokio::test]
async fn a_half_written_file_is_not_read() {
    let mut followed = Followed::new(&[("f.yaml", &[node("a", "1"), node("b", "1")].join("---\n"))]);
    let whole = |snapshot: &Snapshot| {
        snapshot.rejections.is_empty() && [("1", "1"), ("2", "2")].iter().any(|(a, b)| is("a", a)(snapshot) && is("b", b)(snapshot))
    };
    let mut file = File::create(followed.path("f.yaml")).unwrap();
    followed.barrier(whole).await;
    file.write_all(node("a", "2").as_bytes()).unwrap();
    followed.barrier(whole).await;
    file.write_all(b"---\napiVersion: v1\nkind: No").unwrap();
    followed.barrier(whole).await;
    file.write_all(b"de\nmetadata: {name: b, labels: {v: '2'}}\n").unwrap();
    let snapshot = followed.barrier(whole).await;
    assert_eq!(version(&snapshot, "a"), Some("1"));
    drop(file);
    followed.until_always("it is closed", whole, is("b", "2")).await;
}

#[tokio::test]
async fn a_file_that_was_emptied_keeps_its_content_until_it_is_filled() {
    let mut followed = Followed::new(&[("f.yaml", &node("a", "1"))]);
    File::create(followed.path("f.yaml")).unwrap();
    let snapshot = followed.until("it is empty", |snapshot| !snapshot.rejections.is_empty()).await;
    assert_eq!(version(&snapshot, "a"), Some("1"));
    assert!(snapshot.complete);
    let mut file = OpenOptions::new().append(true).open(followed.path("f.yaml")).unwrap();
    file.write_all(node("a", "2").as_bytes()).unwrap();
    drop(file);
    let snapshot = followed.until_always("it is filled", |snapshot| version(snapshot, "a").is_some(), is("a", "2")).await;
    assert_eq!(snapshot.rejections, []);
}

#[tokio::test]
async fn an_editor_that_moves_the_file_away_and_writes_it_anew_takes_nothing_away() {
    let mut followed = Followed::new(&[("f.yaml", &node("a", "0"))]);
    for save in 1..20 {
        fs::rename(followed.path("f.yaml"), followed.path("f.yaml~")).unwrap();
        followed.write("f.yaml", &node("a", &save.to_string()));
        fs::remove_file(followed.path("f.yaml~")).unwrap();
        followed.until_always("it is saved", |snapshot| version(snapshot, "a").is_some(), is("a", &save.to_string())).await;
    }
}

#[tokio::test]
async fn a_bad_file_keeps_its_last_good_content_and_hurts_no_other() {
    let mut followed = Followed::new(&[("f.yaml", &node("a", "1")), ("g.yaml", &node("b", "1"))]);
    followed.write("f.yaml", &format!("{}---\na: [\n", node("a", "2")));
    let snapshot = followed.until("f is bad", |snapshot| !snapshot.rejections.is_empty()).await;
    assert_eq!(
        snapshot.rejections,
        [Rejection {
            subject: Subject::File { file: "f.yaml".into(), document: Some(2) },
            reason: RejectionReason::Malformed,
            message: "f.yaml, document 2, line 5: unclosed bracket '['; the last good content of the file stays in force".into(),
        }]
    );
    assert_eq!(version(&snapshot, "a"), Some("1"));
    assert!(snapshot.complete);
    followed.write("g.yaml", &node("b", "2"));
    let snapshot = followed.until("g changes", is("b", "2")).await;
    assert_eq!(version(&snapshot, "a"), Some("1"));
    // A new process knows the last good content too.
    let followed = followed.restart(|| {});
    let snapshot = followed.now();
    assert_eq!((version(&snapshot, "a"), snapshot.complete, snapshot.rejections.len()), (Some("1"), true, 1));
    // Without the state directory it does not, but the rest runs.
    let (state, file) = (followed.root.path().join("state"), followed.path("f.yaml"));
    let between = || {
        fs::remove_dir_all(state).unwrap();
        fs::write(file, "a: [\n").unwrap();
    };
    let mut followed = followed.restart(between);
    let snapshot = followed.now();
    assert_eq!((version(&snapshot, "a"), version(&snapshot, "b"), snapshot.complete), (None, Some("2"), false));
    followed.write("f.yaml", &node("a", "3"));
    let snapshot = followed.until("f is good again", is("a", "3")).await;
    assert_eq!((snapshot.rejections.len(), snapshot.complete), (0, true));
}

#[tokio::test]
async fn a_config_map_volume_is_switched_as_a_whole() {
    let root = TempDir::new().unwrap();
    let dir = root.path().join("manifests");
    fs::create_dir(&dir).unwrap();
    // As the kubelet does it: a new directory, a link to it renamed into place, links of new files made, links of old ones removed.
    let switch = |version: &str, files: &[&str]| {
        let data = dir.join(format!("..2026_11_28_{version}"));
        fs::create_dir(&data).unwrap();
        for name in files {
            fs::write(data.join(format!("{name}.yaml")), node(name, version)).unwrap();
        }
        symlink(data.file_name().unwrap(), dir.join("..data_tmp")).unwrap();
        let old = fs::read_link(dir.join("..data"));
        fs::rename(dir.join("..data_tmp"), dir.join("..data")).unwrap();
        for name in ["a", "b", "c"] {
            let link = dir.join(format!("{name}.yaml"));
            match (files.contains(&name), link.symlink_metadata().is_ok()) {
                (true, false) => symlink(format!("..data/{name}.yaml"), link).unwrap(),
                (false, true) => fs::remove_file(link).unwrap(),
                _ => {}
            }
        }
        if let Ok(old) = old {
            fs::remove_dir_all(dir.join(old)).unwrap();
        }
    };
    switch("1", &["a", "b"]);
    let mut followed = Followed::start(root);
    let snapshot = followed.now();
    assert_eq!((version(&snapshot, "a"), version(&snapshot, "b")), (Some("1"), Some("1")));
    switch("2", &["a", "b"]);
    let together = |snapshot: &Snapshot| version(snapshot, "a") == version(snapshot, "b") && snapshot.rejections.is_empty();
    followed.until_always("both are switched", together, is("a", "2")).await;
    switch("3", &["b", "c"]);
    let snapshot = followed.until("a goes", |snapshot| version(snapshot, "a").is_none()).await;
    assert_eq!((version(&snapshot, "b"), version(&snapshot, "c"), snapshot.rejections.len()), (Some("3"), Some("3"), 0));
}

#[tokio::test]
async fn links_are_followed() {
    let mut followed = Followed::new(&[]);
    let elsewhere = followed.root.path().join("elsewhere.yaml");
    fs::write(&elsewhere, node("a", "1")).unwrap();
    symlink(&elsewhere, followed.path("a.yaml")).unwrap();
    followed.until("a symbolic link", is("a", "1")).await;
    let other = followed.root.path().join("other.yaml");
    fs::write(&other, node("b", "1")).unwrap();
    fs::hard_link(other, followed.path("b.yaml")).unwrap();
    followed.until("a hard link", is("b", "1")).await;
    // No event tells of this one; the look of every 10 seconds does.
    fs::write(&elsewhere, node("a", "twenty-two")).unwrap();
    followed.until("its target changes", is("a", "twenty-two")).await;
    fs::remove_file(&elsewhere).unwrap();
    let snapshot = followed.until("its target goes", |snapshot| !snapshot.rejections.is_empty()).await;
    assert_eq!(version(&snapshot, "a"), Some("twenty-two"));
    fs::remove_file(followed.path("a.yaml")).unwrap();
    followed.until("the link goes", |snapshot| version(snapshot, "a").is_none() && snapshot.rejections.is_empty()).await;
}

#[tokio::test]
async fn a_directory_that_is_gone_takes_nothing_with_it() {
    let mut followed = Followed::new(&[("a.yaml", &node("a", "1")), ("b.yaml", &node("b", "1"))]);
    let keeps = |snapshot: &Snapshot| version(snapshot, "a").is_some() && version(snapshot, "b").is_some();
    let away = followed.root.path().join("away");

    fs::rename(followed.dir(), &away).unwrap();
    let snapshot = followed.until_always("it is moved away", keeps, |snapshot| !snapshot.complete).await;
    assert_eq!(snapshot.rejections[0].subject, Subject::File { file: followed.dir().display().to_string(), document: None });
    fs::rename(&away, followed.dir()).unwrap();
    let snapshot = followed.until_always("it is back", keeps, |snapshot| snapshot.complete).await;
    assert_eq!(snapshot.rejections, []);
    followed.write("a.yaml", &node("a", "2"));
    followed.until_always("it is followed again", keeps, is("a", "2")).await;

    // Deleted, made anew, empty for a while, then filled.
    fs::remove_dir_all(followed.dir()).unwrap();
    followed.until_always("it is deleted", keeps, |snapshot| !snapshot.complete).await;
    fs::create_dir(followed.dir()).unwrap();
    let empty = |snapshot: &Snapshot| snapshot.rejections.iter().any(|rejection| rejection.message.contains("is empty since it came back"));
    followed.until_always("it is empty", keeps, empty).await;
    followed.write("b.yaml", &node("b", "3"));
    followed.until_always("b is back", |snapshot| version(snapshot, "b").is_some(), is("b", "3")).await;
    let snapshot = followed.until("a is not", |snapshot| version(snapshot, "a").is_none()).await;
    assert!(snapshot.complete);

    // Replaced by another one in one step, as a link to a release is.
    let next = followed.root.path().join("next");
    fs::create_dir(&next).unwrap();
    fs::write(next.join("b.yaml"), node("b", "4")).unwrap();
    fs::rename(followed.dir(), &away).unwrap();
    fs::rename(next, followed.dir()).unwrap();
    followed.until_always("the other one", |snapshot| version(snapshot, "b").is_some(), is("b", "4")).await;
}

#[tokio::test]
async fn a_start_needs_the_directory_or_what_was_kept_of_it() {
    let root = TempDir::new().unwrap();
    let missing = follow(root.path().join("manifests"), Some(root.path().join("state")));
    assert!(matches!(missing, Err(DirError::Unreadable { .. })), "{missing:?}");

    let mut followed = Followed::new(&[("a.yaml", &node("a", "1"))]);
    followed.until("kept", is("a", "1")).await;
    let (dir, away) = (followed.dir(), followed.root.path().join("away"));
    let mut followed = followed.restart(|| fs::rename(dir, away).unwrap());
    assert!(followed.snapshots.borrow().is_none());
    fs::rename(followed.root.path().join("away"), followed.dir()).unwrap();
    let snapshot = followed.until("the directory comes", |_| true).await;
    assert_eq!((version(&snapshot, "a"), snapshot.complete), (Some("1"), true));
}

#[test]
fn a_mount_point_without_its_volume_is_not_an_empty_directory() {
    // A mount namespace belongs to a thread and to those that it starts.
    let body = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(mount_and_unmount());
    thread::spawn(body).join().unwrap();
}

async fn mount_and_unmount() {
    let run = |command: &str, arguments: &[&str]| {
        let output = std::process::Command::new(command).args(arguments).output().unwrap();
        assert!(output.status.success(), "{command} {arguments:?}: {output:?}");
    };
    nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNS).unwrap();
    run("mount", &["--make-rprivate", "/"]);
    let root = TempDir::new().unwrap();
    let dir = root.path().join("manifests");
    fs::create_dir(&dir).unwrap();
    let path = dir.to_str().unwrap();
    run("mount", &["-t", "tmpfs", "none", path]);
    fs::write(dir.join("a.yaml"), node("a", "1")).unwrap();
    let mut followed = Followed::start(root);
    let keeps = |snapshot: &Snapshot| version(snapshot, "a").is_some();

    run("umount", &[path]);
    followed.until_always("it is unmounted", keeps, |snapshot| !snapshot.complete).await;
    let empty = |snapshot: &Snapshot| snapshot.rejections.iter().any(|rejection| rejection.message.contains("is empty since it came back"));
    followed.until_always("the mount point is empty", keeps, empty).await;
    run("mount", &["-t", "tmpfs", "none", path]);
    followed.write("a.yaml", &node("a", "2"));
    let snapshot = followed.until_always("it is mounted", keeps, is("a", "2")).await;
    let snapshot = if snapshot.complete { snapshot } else { followed.until("it is believed", |snapshot| snapshot.complete).await };
    assert_eq!(snapshot.rejections, []);
    run("umount", &[path]);
}

#[tokio::test]
async fn who_follows_no_longer_is_told_nothing_more() {
    let Followed { mut snapshots, following, root } = Followed::new(&[("a.yaml", &node("a", "1"))]);
    snapshots.borrow_and_update();
    drop(following);
    assert!(tokio::time::timeout(DEADLINE, snapshots.changed()).await.unwrap().is_err());
    drop(root);
}

#[tokio::test]
async fn two_hundred_rapid_rewrites_end_exactly() {
    let names: Vec<String> = (0..10).map(|index| format!("n{index}")).collect();
    let mut followed = Followed::new(&[]);
    for rewrite in 0..200 {
        let name = &names[rewrite % names.len()];
        let file = format!("{name}.yaml");
        match rewrite % 3 {
            0 => followed.rename_into(&file, &node(name, &rewrite.to_string())),
            1 => followed.write(&file, &node(name, &rewrite.to_string())),
            _ => {
                drop(fs::remove_file(followed.path(&file)));
                followed.write(&file, &node(name, &rewrite.to_string()));
            }
        }
    }
    let exact = |snapshot: &Snapshot| {
        snapshot.nodes.len() == names.len() && (190..200).all(|rewrite| is(&names[rewrite % names.len()], &rewrite.to_string())(snapshot))
    };
    let snapshot = followed.until("all are as written last", exact).await;
    assert_eq!((snapshot.rejections.len(), snapshot.complete), (0, true));
}

#[tokio::test]
async fn what_makes_no_difference_wakes_nobody() {
    let mut followed = Followed::new(&[("a.yaml", &node("a", "1"))]);
    followed.snapshots.borrow_and_update();
    followed.write("a.yaml", &format!("# a comment\n{}", node("a", "1")));
    File::open(followed.path("a.yaml")).unwrap();
    followed.write("b.yaml", "# nothing\n");
    followed.rename_into("c.yaml", &node("c", "1"));
    tokio::time::timeout(DEADLINE, followed.snapshots.changed()).await.unwrap().unwrap();
    assert_eq!(version(&followed.now(), "c"), Some("1"));
}

#[tokio::test]
#[allow(clippy::disallowed_macros, reason = "the figure is for whoever runs the test")]
async fn a_file_is_in_the_snapshot_at_once() {
    let mut followed = Followed::new(&[]);
    let mut times = Vec::new();
    for round in 0..50 {
        let start = Instant::now();
        followed.write("a.yaml", &node("a", &round.to_string()));
        followed.until("it is read", is("a", &round.to_string())).await;
        times.push(start.elapsed());
    }
    times.sort();
    let median = times[times.len() / 2];
    eprintln!("from write to snapshot: median {median:?}, slowest {:?}", times[times.len() - 1]);
    assert!(median < Duration::from_millis(50), "{times:?}");
}
