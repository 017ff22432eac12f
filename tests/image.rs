// SPDX-License-Identifier: Apache-2.0
//! The image: what its root file system holds, and the daemon in it, with nothing else of this machine but its kernel.
//!
//! Needs root and `make build`.
#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

#[path = "image/bundle.rs"]
mod bundle;
mod common;
#[path = "common/stage.rs"]
mod stage;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::run;
use stage::{PATIENCE, Stage, VIP, eric, service, slice};

const PORT: &str = "{port: 80}";

/// The shipped binary.
fn binary() -> PathBuf {
    let binary = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/bin/vipherald");
    assert!(binary.exists(), "there is no {}: make build", binary.display());
    binary
}

/// Puts it together in a new directory.
fn root() -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    run(Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("image/rootfs")).arg(binary()).arg(root.path()));
    root
}

/// What `find` prints for these words below a root, without the root.
fn found(root: &Path, words: &[&str]) -> BTreeSet<String> {
    let output = run(Command::new("find").arg(root).args(words).args(["-printf", "%P\\n"]));
    output.lines().map(str::to_owned).collect()
}

#[test]
fn it_holds_two_programs_and_no_shell() {
    let root = root();
    let programs = found(root.path(), &["-type", "f", "-perm", "/111", "-not", "-name", "*.so*"]);
    assert_eq!(programs, ["usr/bin/vipherald", "usr/sbin/nft"].map(str::to_owned).into());
    assert_eq!(found(root.path(), &["-perm", "/6000"]), BTreeSet::new(), "nobody's identity is changed by a program");
    assert_eq!(found(root.path(), &["-not", "-user", "root"]), BTreeSet::new());
    let libraries = found(root.path(), &["-name", "*.so*"]);
    let licences = found(&root.path().join("usr/share/doc"), &["-type", "f"]);
    assert!(libraries.iter().any(|name| name.ends_with("/libnftables.so.1")), "{libraries:?}");
    assert!(["vipherald/LICENSE", "nftables/copyright", "libc6/copyright"].iter().all(|name| licences.contains(*name)), "{licences:?}");
    let says = |words: &[&str]| run(Command::new("chroot").arg(root.path()).args(words));
    assert_eq!(says(&["/usr/bin/vipherald", "--version"]), format!("vipherald {}\n", env!("CARGO_PKG_VERSION")));
    assert!(says(&["/usr/sbin/nft", "--version"]).starts_with("nftables v"));
}

#[test]
fn the_same_files_give_the_same_image() {
    let list = |root: &Path| run(Command::new("find").current_dir(root).args([".", "-printf", "%p %m %s %T@ %l\\n"]));
    let sums = |root: &Path| run(Command::new("sh").current_dir(root).args(["-c", "find . -type f -exec sha256sum {} + | sort"]));
    let (first, second) = (root(), root());
    let sorted = |text: String| text.lines().map(str::to_owned).collect::<BTreeSet<_>>();
    assert_eq!(sorted(list(first.path())), sorted(list(second.path())));
    assert_eq!(sums(first.path()), sums(second.path()));
}

#[test]
fn a_binary_with_shared_libraries_is_refused() {
    let root = tempfile::tempdir().unwrap();
    let mut command = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("image/rootfs"));
    let output = command.arg("/usr/bin/find").arg(root.path()).output().unwrap();
    assert!(!output.status.success());
    assert_eq!(String::from_utf8(output.stderr).unwrap(), "rootfs: /usr/bin/find is linked with shared libraries: make build\n");
}

#[test]
fn the_daemon_serves_with_nothing_but_the_image() {
    let root = root();
    let mut stage = Stage::with("nftables", "image", &["192.168.1.1", "192.168.1.2"]);
    stage.root = Some(root.path().to_owned());
    stage.answer_tcp(80);
    let pods = |endpoints: &[&str]| service("pods", PORT) + &slice("pods", PORT, endpoints);
    stage.publish("pods", &pods(&["192.168.1.1", "192.168.1.2"]));
    stage.publish("web", &eric("web", VIP, "pods", &[("80", "80", "")]));
    stage.start("");
    stage.wait_for_vip(VIP, true);
    assert_eq!(stage.spread(VIP, 80, 20).len(), 2);
    assert!(stage.connect(VIP, 81).is_err());
    stage.publish("pods", &pods(&["192.168.1.2"]));
    common::wait_until("one server is left", PATIENCE, || stage.spread(VIP, 80, 8).keys().eq(["192.168.1.2:80"]));
    stage.drain();
    stage.wait_for_vip(VIP, false);
}
