// SPDX-License-Identifier: Apache-2.0
//! Network namespaces for tests, and the processes in them.
//!
//! Input: a tag. Output: a namespace of its own, in which a closure or a command runs. Invariants: nothing is ever made in the machine's own
//! namespace; what a test started ends with it, and nothing else does; what a test needs and does not have is a failure with plain words.
#![allow(dead_code, reason = "each test file uses a part of it")]
#![allow(clippy::disallowed_macros, clippy::expect_used, clippy::unwrap_used, reason = "a test fails by a panic, and shows logs")]

use std::fs::File;
use std::future::Future;
use std::io::Write as _;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use nix::sched::{CloneFlags, setns};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::NamedTempFile;

/// Between two looks at a condition.
pub(crate) const POLL: Duration = Duration::from_millis(5);

/// A network namespace of a test, with `lo` up. Dropping it ends what was started in it, and removes it.
pub(crate) struct Namespace {
    name: String,
    processes: Mutex<Vec<Arc<Mutex<Child>>>>,
}

impl Namespace {
    /// Makes one; the tag tells a person what it is for.
    pub(crate) fn new(tag: &str) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        assert!(nix::unistd::geteuid().is_root(), "this test makes network namespaces: run it as root");
        let name = format!("vht-{}-{}-{tag}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        run(Command::new("ip").args(["netns", "add", &name]));
        let namespace = Self { name, processes: Mutex::default() };
        // Addresses are usable at once: a link of a test has no second host that could own them.
        namespace.sysctl("net/ipv6/conf/all/accept_dad", "0");
        namespace.sysctl("net/ipv6/conf/default/accept_dad", "0");
        namespace.ip("link set lo up");
        namespace
    }

    /// Its name, as in `ip netns exec NAME`.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Runs a closure on a thread in it.
    pub(crate) fn run<T: Send>(&self, body: impl FnOnce() -> T + Send) -> T {
        inside(&self.name, body)
    }

    /// Runs a future on a thread in it, on a Tokio runtime of its own.
    pub(crate) fn enter<T: Send, F: Future<Output = T>>(&self, body: impl FnOnce() -> F + Send) -> T {
        self.run(|| tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async { body().await }))
    }

    /// `ip` with these words in it; its output. It must succeed.
    pub(crate) fn ip(&self, words: &str) -> String {
        run(Command::new("ip").args(["-n", &self.name]).args(words.split_whitespace()))
    }

    /// `nft -f -` with this script in it. It must succeed.
    pub(crate) fn nft(&self, script: &str) {
        let mut child = self.command("nft").args(["-f", "-"]).stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "nft: {}\n{script}", String::from_utf8_lossy(&output.stderr));
    }

    /// A command in it, to be given more arguments and run.
    pub(crate) fn command(&self, program: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name, program]);
        command
    }

    /// The output of a command in it, which must succeed.
    pub(crate) fn output(&self, words: &[&str]) -> String {
        run(self.command(words.first().unwrap()).args(words.iter().skip(1)))
    }

    /// Sets a sysctl, named as below `/proc/sys`.
    pub(crate) fn sysctl(&self, name: &str, value: &str) {
        self.run(|| std::fs::write(format!("/proc/sys/{name}"), value)).unwrap_or_else(|error| panic!("sysctl {name}: {error}"));
    }

    /// Links it to another by a pair of devices, which are up.
    pub(crate) fn veth(&self, device: &str, peer: &Self, peer_device: &str) {
        self.ip(&format!("link add {device} type veth peer name {peer_device} netns {}", peer.name));
        self.ip(&format!("link set {device} up"));
        peer.ip(&format!("link set {peer_device} up"));
    }

    /// Starts a process made by [`Namespace::command`], with its output in a log.
    pub(crate) fn spawn(&self, command: &mut Command) -> Process {
        let process = Process::start(command);
        locked(&self.processes).push(Arc::clone(&process.child));
        process
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        for child in locked(&self.processes).drain(..) {
            end(&child);
        }
        let removed = Command::new("ip").args(["netns", "del", &self.name]).status();
        if !removed.as_ref().is_ok_and(ExitStatus::success) {
            eprintln!("namespace {} stays behind: {removed:?}", self.name);
        }
    }
}

/// A process of a test. Dropping it kills it; where the test failed, its log is shown.
pub(crate) struct Process {
    program: String,
    id: Pid,
    child: Arc<Mutex<Child>>,
    log: NamedTempFile,
}

impl Process {
    /// Starts a process in the namespace of this thread, with its output in a log.
    pub(crate) fn start(command: &mut Command) -> Self {
        let log = tempfile::Builder::new().append(true).tempfile().unwrap();
        command.stdin(Stdio::null()).stdout(log.as_file().try_clone().unwrap()).stderr(log.as_file().try_clone().unwrap());
        let program = format!("{command:?}");
        let child = command.spawn().unwrap_or_else(|error| panic!("cannot start {program}: {error}"));
        let id = Pid::from_raw(i32::try_from(child.id()).unwrap());
        Self { program, id, child: Arc::new(Mutex::new(child)), log }
    }

    /// Its process id.
    pub(crate) fn id(&self) -> Pid {
        self.id
    }

    /// What it wrote so far.
    pub(crate) fn log(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(self.log.path()).unwrap()).into_owned()
    }

    /// Sends it a signal. It must not have ended.
    pub(crate) fn signal(&self, signal: Signal) {
        let mut child = locked(&self.child);
        assert!(child.try_wait().unwrap().is_none(), "{} has ended:\n{}", self.program, self.log());
        kill(self.id, signal).unwrap();
    }

    /// Whether it still runs.
    pub(crate) fn is_running(&self) -> bool {
        locked(&self.child).try_wait().unwrap().is_none()
    }

    /// Waits for its end.
    pub(crate) fn wait(&self, limit: Duration) -> ExitStatus {
        let mut status = None;
        wait_until(&format!("{} ends", self.program), limit, || {
            status = locked(&self.child).try_wait().unwrap();
            status.is_some()
        });
        status.unwrap()
    }

    /// Kills it, as `kill -9` does, and waits for its end.
    pub(crate) fn kill(&self) {
        end(&self.child);
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        end(&self.child);
        if thread::panicking() {
            eprintln!("--- {}\n{}---", self.program, self.log());
        }
    }
}

/// Runs a closure on a thread in the namespace of this name.
pub(crate) fn inside<T: Send>(namespace: &str, body: impl FnOnce() -> T + Send) -> T {
    let file = File::open(format!("/run/netns/{namespace}")).unwrap();
    let entered = move || {
        setns(&file, CloneFlags::CLONE_NEWNET).unwrap();
        body()
    };
    thread::scope(|scope| scope.spawn(entered).join()).unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Waits until the condition holds; fails with these words where it does not in time.
pub(crate) fn wait_until(what: &str, limit: Duration, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + limit;
    while !condition() {
        assert!(Instant::now() < deadline, "not within {limit:?}: {what}");
        thread::sleep(POLL);
    }
}

/// As [`wait_until`], on a runtime.
pub(crate) async fn wait_until_async(what: &str, limit: Duration, mut condition: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + limit;
    while !condition().await {
        assert!(Instant::now() < deadline, "not within {limit:?}: {what}");
        tokio::time::sleep(POLL).await;
    }
}

/// Every address of the machine itself, one a line, without lifetimes.
pub(crate) fn machine_addresses() -> Vec<String> {
    let lines = run(Command::new("ip").args(["-o", "addr", "show"]));
    lines.lines().map(|line| line.split('\\').next().unwrap_or_default().trim().to_owned()).collect()
}

/// The output of a command, which must succeed.
pub(crate) fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("cannot run {command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn end(child: &Mutex<Child>) {
    let mut child = locked(child);
    if matches!(child.try_wait(), Ok(None)) {
        child.kill().unwrap_or_else(|error| eprintln!("cannot kill process {}: {error}", child.id()));
    }
    child.wait().map_or_else(|error| eprintln!("cannot wait for process {}: {error}", child.id()), drop);
}

/// A test that failed while it held the lock left nothing half done.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
