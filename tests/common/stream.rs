// SPDX-License-Identifier: Apache-2.0
//! A question to a VIP every millisecond, by UDP, whether the one before was answered or not.
//!
//! Input: the client, the VIP and its port. Output: how many were not answered, and for how long at most none was.
#![allow(dead_code, reason = "each test file uses a part of it")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::common::{Namespace, inside, wait_until};

const EVERY: Duration = Duration::from_millis(1);
/// An answer that takes longer is none.
const LATE: Duration = Duration::from_secs(1);
const PATIENCE: Duration = Duration::from_secs(60);

/// See the module.
pub(crate) struct Stream {
    over: Arc<AtomicBool>,
    answered: Arc<AtomicU64>,
    thread: Option<JoinHandle<Outcome>>,
}

/// What has become of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outcome {
    pub(crate) sent: u64,
    pub(crate) lost: u64,
    /// From the last question before the longest silence that was answered to the first one after it.
    pub(crate) longest: Duration,
}

impl Stream {
    /// Begins, and waits until it is answered.
    pub(crate) fn start(client: &Namespace, vip: SocketAddr) -> Self {
        let (over, answered) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (until, count, name) = (Arc::clone(&over), Arc::clone(&answered), client.name().to_owned());
        let thread = thread::spawn(move || inside(&name, || ask(vip, &until, &count)));
        let stream = Self { over, answered, thread: Some(thread) };
        stream.goes_on();
        stream
    }

    /// Waits until so many more were answered that an interruption is over.
    pub(crate) fn goes_on(&self) {
        let before = self.answered.load(Ordering::Relaxed);
        wait_until("questions are answered", PATIENCE, || self.answered.load(Ordering::Relaxed) >= before + 300);
    }

    /// Ends it.
    pub(crate) fn end(mut self) -> Outcome {
        self.over.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap()
    }
}

fn ask(vip: SocketAddr, over: &AtomicBool, answered: &AtomicU64) -> Outcome {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
    socket.connect(vip).unwrap();
    socket.set_nonblocking(true).unwrap();
    let mut sent: Vec<(Instant, bool)> = Vec::new();
    let take = |sent: &mut Vec<(Instant, bool)>| {
        let mut octets = [0; 8];
        // What the network says of lost questions is no answer.
        while matches!(socket.recv(&mut octets), Ok(8)) {
            let number = usize::try_from(u64::from_be_bytes(octets)).unwrap();
            if !std::mem::replace(&mut sent[number].1, true) {
                answered.fetch_add(1, Ordering::Relaxed);
            }
        }
    };
    // Until the first answer comes, the client may not know yet where the VIP is.
    let mut due = Instant::now();
    while !over.load(Ordering::Relaxed) {
        due += EVERY;
        thread::sleep(due.saturating_duration_since(Instant::now()));
        socket.send(&(sent.len() as u64).to_be_bytes()).ok();
        sent.push((Instant::now(), false));
        take(&mut sent);
    }
    let end = Instant::now();
    while end.elapsed() < LATE && sent.iter().any(|(_, is_answered)| !is_answered) {
        take(&mut sent);
        thread::sleep(EVERY);
    }
    outcome(&sent)
}

fn outcome(sent: &[(Instant, bool)]) -> Outcome {
    let first = sent.iter().position(|(_, is_answered)| *is_answered).unwrap_or(sent.len());
    let sent = sent.get(first..).unwrap_or_default();
    let answered: Vec<Instant> = sent.iter().filter(|(_, is_answered)| *is_answered).map(|(at, _)| *at).collect();
    let longest = answered.array_windows().map(|[before, after]| *after - *before).max().unwrap_or_default();
    Outcome { sent: sent.len() as u64, lost: (sent.len() - answered.len()) as u64, longest }
}
