// SPDX-License-Identifier: Apache-2.0
//! A proxy before an API server that misbehaves on command, as API servers and what stands before them do.
//!
//! Inputs: a server, and faults with the requests that they hit. Output: an address that a client takes for the API server, and a list of what
//! was asked. Invariants: what no fault hits reaches the server and comes back as it is, tokens included (client certificates do not); a
//! command has taken effect when its call returns; the latest fault that hits a request decides.
#![allow(dead_code, reason = "each test file uses a part of it")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tokio::sync::watch;

use crate::apiserver::{ApiServer, client, kubeconfig};
use crate::common::wait_until;
use crate::port::Port;

#[path = "api_proxy/forward.rs"]
mod forward;
#[path = "api_proxy/request.rs"]
mod request;
#[path = "api_proxy/serve.rs"]
mod serve;

pub(crate) use request::{Requests, Seen, Verb};

/// How long a command may take.
const LIMIT: Duration = Duration::from_secs(10);

/// What a request gets instead of the server's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// This HTTP status, with a Kubernetes `Status` as the body.
    Status(u16),
    /// The status 429 with `Retry-After` in seconds.
    TooManyRequests {
        /// After how many seconds to come again.
        retry_after: u32,
    },
    /// The server's list with nothing in it.
    EmptyList,
    /// Nothing, until the client gives up or the proxy is healed; then the connection is closed.
    Stall,
    /// HTTP 200, then one event ERROR with the code 410, then the end: what a watch from a resourceVersion gets that is compacted.
    Expired,
    /// The server's answer, asked for with this resourceVersion.
    ResourceVersion(String),
}

/// What happens to answers under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flow {
    /// They arrive.
    Pass,
    /// Nothing arrives, and nothing ends.
    Hold,
    /// They end, as a watch does when its time is over.
    End,
    /// Their connections close in the middle.
    Break,
}

/// The proxy. Dropping it closes everything.
pub(crate) struct ApiProxy {
    shared: Arc<Shared>,
    state: watch::Sender<State>,
    thread: Option<JoinHandle<()>>,
    authority: PathBuf,
}

/// What the proxy is told to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Here,
    Away,
    Over,
}

/// What the commands and the connections both use.
struct Shared {
    port: Port,
    /// What it is, after it was told.
    state: watch::Sender<State>,
    faults: Mutex<Vec<Hit>>,
    /// How often the faults were taken away.
    healed: watch::Sender<u64>,
    seen: Mutex<Vec<Seen>>,
    streams: Mutex<Vec<Under>>,
}

/// A fault, the requests that it hits, and how many more.
struct Hit {
    requests: Requests,
    fault: Fault,
    left: Option<u32>,
}

/// An answer under way.
struct Under {
    seen: Seen,
    flow: watch::Sender<Flow>,
}

impl ApiProxy {
    /// Starts one before this server. It has a certificate of the server's authority.
    pub(crate) fn start(server: &ApiServer) -> Self {
        let shared = Arc::new(Shared {
            port: Port::reserve(),
            state: watch::Sender::new(State::Away),
            faults: Mutex::default(),
            healed: watch::Sender::new(0),
            seen: Mutex::default(),
            streams: Mutex::default(),
        });
        let state = watch::Sender::new(State::Here);
        let (told, own) = (state.subscribe(), Arc::clone(&shared));
        let (tls, upstream) = (serve::tls(server.authority()), forward::Upstream::new(server));
        let body = move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(serve::serve(&own, told, &tls, &upstream));
        };
        let proxy = Self { shared, state, thread: Some(thread::spawn(body)), authority: server.path("ca.crt") };
        proxy.is(State::Here);
        proxy
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.shared.port.address()
    }

    /// A kubeconfig for whoever has this token.
    pub(crate) fn kubeconfig(&self, token: &str) -> String {
        kubeconfig(self.address(), &self.authority, token)
    }

    /// A client for whoever has this token.
    pub(crate) async fn client(&self, token: &str) -> kube::Client {
        client(&self.kubeconfig(token)).await
    }

    /// From now on, these requests meet this fault.
    pub(crate) fn fault(&self, requests: Requests, fault: Fault) {
        self.add(Hit { requests, fault, left: None });
    }

    /// The next so many of these requests meet this fault.
    pub(crate) fn fault_times(&self, times: u32, requests: Requests, fault: Fault) {
        self.add(Hit { requests, fault, left: Some(times) });
    }

    fn add(&self, hit: Hit) {
        locked(&self.shared.faults).push(hit);
    }

    /// No request meets a fault any more, and answers arrive; those that are broken or ended stay so.
    pub(crate) fn heal(&self) {
        locked(&self.shared.faults).clear();
        self.shared.healed.send_modify(|times| *times += 1);
        self.streams(&Requests::all(), Flow::Pass);
    }

    /// Does this to the answers under way to these requests, and tells how many they are. Answers to come pass.
    pub(crate) fn streams(&self, requests: &Requests, flow: Flow) -> usize {
        let mut streams = locked(&self.shared.streams);
        streams.retain(|stream| !stream.flow.is_closed());
        let hit: Vec<&Under> = streams.iter().filter(|stream| requests.hit(&stream.seen)).collect();
        hit.iter().for_each(|stream| {
            stream.flow.send_replace(flow);
        });
        hit.len()
    }

    /// Closes every connection and refuses new ones.
    pub(crate) fn go_away(&self) {
        self.is(State::Away);
    }

    /// Listens again.
    pub(crate) fn come_back(&self) {
        self.is(State::Here);
    }

    /// What was asked so far, faults included, in the order of arrival.
    pub(crate) fn seen(&self) -> Vec<Seen> {
        locked(&self.shared.seen).clone()
    }

    fn is(&self, state: State) {
        self.state.send_replace(state);
        wait_until(&format!("the proxy is {state:?}"), LIMIT, || *self.shared.state.borrow() == state);
    }
}

impl Drop for ApiProxy {
    fn drop(&mut self) {
        self.state.send_replace(State::Over);
        let ended = self.thread.take().map(JoinHandle::join);
        assert!(thread::panicking() || matches!(ended, Some(Ok(()))), "the proxy has panicked");
    }
}

impl Shared {
    /// Notes a request, and the fault that it meets.
    fn meets(&self, seen: &Seen) -> Option<Fault> {
        locked(&self.seen).push(seen.clone());
        let mut faults = locked(&self.faults);
        let hit = faults.iter_mut().rev().find(|hit| hit.left != Some(0) && hit.requests.hit(seen))?;
        hit.left = hit.left.map(|left| left - 1);
        Some(hit.fault.clone())
    }

    /// Notes an answer under way; what is to happen to it.
    fn under_way(&self, seen: &Seen) -> watch::Receiver<Flow> {
        let flow = watch::Sender::new(Flow::Pass);
        let told = flow.subscribe();
        locked(&self.streams).push(Under { seen: seen.clone(), flow });
        told
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
