// SPDX-License-Identifier: Apache-2.0
//! A network namespace for one test, with IPVS in it, and `ipvsadm` there.

use std::future::Future;
use std::io::Write as _;
use std::process::{Command, Stdio};
use std::thread;

use ipvs::Client;
use nix::sched::{CloneFlags, unshare};

/// Runs a test in a thread with a network namespace of its own, which lives as long as the thread and what it starts.
pub(crate) fn with_client<T: Send + 'static, F: Future<Output = T>>(test: impl FnOnce(Client) -> F + Send + 'static) -> T {
    let thread = thread::spawn(move || {
        unshare(CloneFlags::CLONE_NEWNET).expect("run as root");
        run("ip", &["link", "set", "lo", "up"]);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async { test(Client::connect().await.expect("a kernel with IPVS: run by cargo test, which boots one")).await })
    });
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Standard output of a program that must succeed.
pub(crate) fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().unwrap();
    assert!(output.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Adds rules as `ipvsadm -Sn` writes them.
pub(crate) fn restore(rules: &str) {
    let mut child = Command::new("ipvsadm").arg("-R").stdin(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(rules.as_bytes()).unwrap();
    assert!(child.wait().unwrap().success(), "{rules}");
}
