// SPDX-License-Identifier: Apache-2.0
//! A busy client: 50 long connections, each with a message every 100 ms, and 200 short ones a second, and real servers that answer it.
//!
//! Input: where to connect to. Output: a [`Tally`] of what it saw: every error is counted and told.
#![allow(dead_code, reason = "each test file uses a part of it")]
#![allow(clippy::disallowed_macros, clippy::unwrap_used, reason = "a test fails by panicking, and prints its figures")]

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Error, ErrorKind, Result};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{MissedTickBehavior, interval, timeout};

use crate::common::{Namespace, inside, wait_until};

/// Long connections.
pub(crate) const LONG: usize = 50;
const BETWEEN_MESSAGES: Duration = Duration::from_millis(100);
const BETWEEN_SHORT_ONES: Duration = Duration::from_millis(5);
/// What takes longer is an error. A lost packet is sent again after 1 s, and a busy machine takes its time.
const LIMIT: Duration = Duration::from_secs(30);
/// How long traffic may take to go on.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);
/// Short connections under way at a time: a machine that cannot keep up is not to be told more and more of them.
const AT_A_TIME: usize = 100;

/// What the client saw.
#[derive(Default)]
pub(crate) struct Tally {
    /// Messages answered in each long connection.
    messages: BTreeMap<usize, u64>,
    /// Real servers of the long connections that go on.
    pub(crate) servers: BTreeMap<usize, String>,
    /// Long connections that ended: real server and error.
    pub(crate) ended: Vec<(String, String)>,
    started: u64,
    settled: u64,
    /// Real servers of the short connections that began since the last mark.
    pub(crate) answered_by: BTreeSet<String>,
    mark: u64,
    /// What went wrong with short ones.
    pub(crate) errors: Vec<String>,
    slowest: Duration,
}

/// The client at work.
pub(crate) struct Traffic {
    tally: Arc<Mutex<Tally>>,
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Traffic {
    /// Opens the long connections to these in turn, and goes on with short ones until it is stopped.
    pub(crate) fn to(client: &Namespace, servers: &[SocketAddr]) -> Self {
        let (tally, over) = (Arc::new(Mutex::new(Tally::default())), Arc::new(AtomicBool::new(false)));
        let (name, of_thread, until) = (client.name().to_owned(), Arc::clone(&tally), Arc::clone(&over));
        let servers = servers.to_vec();
        let thread = thread::spawn(move || {
            inside(&name, || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                runtime.block_on(generate(&servers, of_thread, until));
            });
        });
        let traffic = Self { tally, over, thread: Some(thread) };
        wait_until("all long connections are open", PATIENCE, || traffic.tally().servers.len() == LONG);
        traffic
    }

    /// What it has seen.
    pub(crate) fn tally(&self) -> MutexGuard<'_, Tally> {
        self.tally.lock().unwrap()
    }

    /// Waits until 100 more short connections are over, and all that began before, and each long one had two more answers or ended.
    pub(crate) fn goes_on(&self) {
        let (started, before) = {
            let mut tally = self.tally();
            tally.mark = tally.started;
            tally.answered_by.clear();
            (tally.started, tally.messages.clone())
        };
        wait_until("traffic goes on", PATIENCE, || {
            let tally = self.tally();
            let answered = |(number, count): (&usize, &u64)| !tally.servers.contains_key(number) || tally.messages[number] >= count + 2;
            tally.settled >= started + 100 && before.iter().all(answered)
        });
    }

    /// Waits until short connections go to just these real servers.
    pub(crate) fn goes_to(&self, servers: &[&str]) {
        let servers: BTreeSet<String> = servers.iter().map(|server| (*server).to_owned()).collect();
        wait_until(&format!("new connections go to {servers:?}"), PATIENCE, || {
            self.goes_on();
            self.tally().answered_by == servers
        });
        self.goes_on();
    }

    /// Stops it, and makes sure that no long connection ended but to these real servers, and that nothing else went wrong.
    pub(crate) fn finish(mut self, what: &str, removed: &[&str]) {
        self.over.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap();
        let tally = self.tally();
        println!(
            "{what}: {} short connections, {} errors, the slowest took {:?}; {} messages in {LONG} long ones, of which {} ended as expected",
            tally.settled,
            tally.errors.len(),
            tally.slowest,
            tally.messages.values().sum::<u64>(),
            tally.ended.len()
        );
        let unexpected: Vec<_> = tally.ended.iter().filter(|(server, _)| !removed.contains(&server.as_str())).collect();
        assert!(unexpected.is_empty() && tally.errors.is_empty(), "{what}: {unexpected:?} {:?}", tally.errors);
    }
}

/// The client's traffic, until it is over and nothing is in flight any more.
async fn generate(servers: &[SocketAddr], tally: Arc<Mutex<Tally>>, over: Arc<AtomicBool>) {
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..LONG {
        tasks.spawn(long(number, servers[number % servers.len()], Arc::clone(&tally), Arc::clone(&over)));
    }
    let mut next = interval(BETWEEN_SHORT_ONES);
    next.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while !over.load(Ordering::Relaxed) {
        next.tick().await;
        while tasks.try_join_next().is_some() || (tasks.len() > LONG + AT_A_TIME && tasks.join_next().await.is_some()) {}
        let number = {
            let mut tally = tally.lock().unwrap();
            tally.started += 1;
            tally.started
        };
        let (tally, server) = (Arc::clone(&tally), servers[usize::try_from(number).unwrap() % servers.len()]);
        tasks.spawn(async move {
            let since = Instant::now();
            let outcome = bounded(short(server)).await;
            let mut tally = tally.lock().unwrap();
            tally.settled += 1;
            tally.slowest = tally.slowest.max(since.elapsed());
            match outcome {
                Ok(server) if number > tally.mark => drop(tally.answered_by.insert(server)),
                Ok(_) => {}
                Err(error) => tally.errors.push(format!("short connection {number} after {:?}: {error}", since.elapsed())),
            }
        });
    }
    tasks.join_all().await;
}

/// A request and its whole answer, up to the end of the connection.
pub(crate) async fn short(server: SocketAddr) -> Result<String> {
    let mut stream = TcpStream::connect(server).await?;
    stream.write_all(b"?").await?;
    stream.shutdown().await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    answer.strip_suffix('\n').map(str::to_owned).ok_or_else(|| Error::other(format!("the answer is {answer:?}")))
}

/// A message every 100 ms.
async fn long(number: usize, to: SocketAddr, tally: Arc<Mutex<Tally>>, over: Arc<AtomicBool>) {
    let mut server = String::new();
    let outcome = talk(number, to, &mut server, &tally, &over).await;
    let mut tally = tally.lock().unwrap();
    tally.servers.remove(&number);
    if let Err(error) = outcome {
        tally.ended.push((server, error.to_string()));
    }
}

async fn talk(number: usize, to: SocketAddr, server: &mut String, tally: &Mutex<Tally>, over: &AtomicBool) -> Result<()> {
    let mut stream = bounded(TcpStream::connect(to)).await?;
    let mut next = interval(BETWEEN_MESSAGES);
    while !over.load(Ordering::Relaxed) {
        next.tick().await;
        let answer = bounded(ask(&mut stream)).await?;
        if server.is_empty() {
            server.clone_from(&answer);
            tally.lock().unwrap().servers.insert(number, answer.clone());
        } else if *server != answer {
            return Err(Error::other(format!("{answer} answers instead of {server}")));
        }
        *tally.lock().unwrap().messages.entry(number).or_default() += 1;
    }
    Ok(())
}

async fn ask(stream: &mut TcpStream) -> Result<String> {
    stream.write_all(b"?").await?;
    let mut line = Vec::new();
    loop {
        match stream.read_u8().await? {
            b'\n' => return Ok(String::from_utf8_lossy(&line).into_owned()),
            octet => line.push(octet),
        }
    }
}

/// With an end.
pub(crate) async fn bounded<T>(body: impl Future<Output = Result<T>>) -> Result<T> {
    timeout(LIMIT, body).await.unwrap_or_else(|_| Err(Error::new(ErrorKind::TimedOut, "silence")))
}

/// Answers each octet that comes to one of these ports with the address that it came to, until the client has no more.
pub(crate) fn answer(host: &Namespace, ports: &[u16]) {
    let bind = |port: &u16| host.run(|| std::net::TcpListener::bind(("0.0.0.0", *port)).unwrap());
    let listeners: Vec<_> = ports.iter().map(bind).collect();
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let mut tasks = tokio::task::JoinSet::new();
            for listener in listeners {
                listener.set_nonblocking(true).unwrap();
                tasks.spawn(accept(TcpListener::from_std(listener).unwrap()));
            }
            tasks.join_all().await;
        });
    });
}

async fn accept(listener: TcpListener) {
    loop {
        let (mut stream, _) = listener.accept().await.unwrap();
        tokio::spawn(async move {
            let words = format!("{}\n", stream.local_addr().unwrap().ip());
            let mut octet = [0];
            while stream.read_exact(&mut octet).await.is_ok() && stream.write_all(words.as_bytes()).await.is_ok() {}
        });
    }
}
