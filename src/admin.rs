// SPDX-License-Identifier: Apache-2.0
//! The doors of the daemon: the status for `vipherald show` and the orders of `vipherald peer` on a Unix socket that is only ours, metrics and probes
//! over HTTP, which only read.
//!
//! Inputs: a [`StatusReader`], the [`Metrics`] and the [`Pulse`] of the reconcile loop. Outputs: JSON, the text of Prometheus, and status codes.
//!
//! Invariant: one process for each state directory. The directory is locked as long as the socket is served, and the lock ends with the process.

mod client;
mod crowd;
mod pulse;

use std::fs::{self, DirBuilder, File, Permissions};
use std::io;
use std::net::SocketAddr;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::os::unix::net::{SocketAddr as UnixSocketAddr, UnixListener as StdUnixListener};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use serde::{Deserialize, Serialize};
use tokio::net::{TcpListener, UnixListener};
use tracing::error;

use crate::driver::bgp::{Operation, Operator};
use crate::status::{NodeStatus, Phase, StatusReader};
use crate::telemetry::{Metrics, chain};

pub use client::{ClientError, fetch, order};
pub use pulse::Pulse;

/// The socket's name in the state directory.
pub const SOCKET: &str = "admin.sock";

/// A lock held for so long is that of a daemon that runs.
const LOCK_PATIENCE: Duration = Duration::from_secs(1);
/// Between two tries to lock.
const LOCK_POLL: Duration = Duration::from_millis(10);

/// Why a door cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum AdminError {
    /// The state directory cannot be made or locked.
    #[error("cannot use the state directory {}", path.display())]
    StateDir {
        /// The directory.
        path: PathBuf,
        /// What the system says.
        #[source]
        source: io::Error,
    },
    /// A process has the state directory.
    #[error("another vipherald of instance {instance} runs on this node: it holds {}", path.display())]
    Running {
        /// Ours, and its.
        instance: String,
        /// The directory.
        path: PathBuf,
    },
    /// A process of the same instance, with another state directory, runs in this network namespace.
    #[error("another vipherald of instance {instance} runs on this node, with another state directory")]
    InstanceRunning {
        /// Ours, and its.
        instance: String,
    },
    /// The socket cannot be bound.
    #[error("cannot listen on {}", path.display())]
    Socket {
        /// The socket.
        path: PathBuf,
        /// What the system says.
        #[source]
        source: io::Error,
    },
    /// The address cannot be bound.
    #[error("cannot listen on http.address {address}")]
    Http {
        /// The address.
        address: SocketAddr,
        /// What the system says.
        #[source]
        source: io::Error,
    },
}

/// The Unix socket, bound, and the lock on its directory. It goes when this is dropped.
#[derive(Debug)]
pub struct AdminSocket {
    listener: UnixListener,
    path: SocketPath,
    _lock: Flock<File>,
    _instance_lock: StdUnixListener,
}

/// Unlinks the socket at its end.
#[derive(Debug)]
struct SocketPath(PathBuf);

impl Drop for SocketPath {
    fn drop(&mut self) {
        // A socket that stays behind is replaced by the next process.
        fs::remove_file(&self.0).ok();
    }
}

impl AdminSocket {
    /// Makes and locks the state directory, and binds the socket in it. Needs a tokio runtime.
    ///
    /// # Errors
    /// Another process has the directory, or the system refuses.
    pub fn bind(state_dir: &Path, instance: &str) -> Result<Self, AdminError> {
        let unusable = |source| AdminError::StateDir { path: state_dir.to_owned(), source };
        DirBuilder::new().recursive(true).mode(0o700).create(state_dir).map_err(unusable)?;
        let directory = File::open(state_dir).map_err(unusable)?;
        let lock = lock(directory).map_err(|errno| match errno {
            Errno::EWOULDBLOCK => AdminError::Running { instance: instance.to_owned(), path: state_dir.to_owned() },
            errno => unusable(errno.into()),
        })?;
        let instance_lock = lock_instance(instance)?;
        let path = state_dir.join(SOCKET);
        let listener = bind_private(&path).map_err(|source| AdminError::Socket { path: path.clone(), source })?;
        Ok(Self { listener, path: SocketPath(path), _lock: lock, _instance_lock: instance_lock })
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path.0
    }

    /// Answers `GET /state` and `POST /peer` until the future is dropped.
    ///
    /// # Errors
    /// The listener fails.
    pub async fn serve(self, status: StatusReader, operator: Operator) -> io::Result<()> {
        let state = get(async |State(status): State<StatusReader>| Json(NodeStatus::clone(&status.read()))).with_state(status);
        let router = Router::new().route("/state", state).route("/peer", post(peer).with_state(operator));
        axum::serve(self.listener, router).await
    }
}

/// An order about one BGP neighbour, as it is sent.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PeerOrder {
    /// The neighbour's name.
    pub peer: String,
    /// What is to be done.
    pub operation: Operation,
}

async fn peer(State(operator): State<Operator>, Json(order): Json<PeerOrder>) -> Response {
    match operator.operate(&order.peer, order.operation).await {
        Ok(()) => StatusCode::NO_CONTENT.into_response(),
        Err(error) => (StatusCode::CONFLICT, error.to_string()).into_response(),
    }
}

/// Takes the instance's name in this network namespace, where its kernel objects are: a name without a file, which goes with the process and which
/// nobody can delete.
fn lock_instance(instance: &str) -> Result<StdUnixListener, AdminError> {
    let running = || AdminError::InstanceRunning { instance: instance.to_owned() };
    let name = UnixSocketAddr::from_abstract_name(format!("vipherald/{instance}")).map_err(|_too_long| running())?;
    let deadline = Instant::now() + LOCK_PATIENCE;
    loop {
        match StdUnixListener::bind_addr(&name) {
            Ok(lock) => return Ok(lock),
            Err(_) if Instant::now() < deadline => std::thread::sleep(LOCK_POLL),
            Err(_in_use) => return Err(running()),
        }
    }
}

/// Locks the directory. A daemon that was killed while it started a command leaves a child that holds the lock until it has become that command, so
/// that a lock is believed only once it has been held for a while.
fn lock(mut directory: File) -> Result<Flock<File>, Errno> {
    let deadline = Instant::now() + LOCK_PATIENCE;
    loop {
        match Flock::lock(directory, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => return Ok(lock),
            Err((again, Errno::EWOULDBLOCK)) if Instant::now() < deadline => directory = again,
            Err((_, errno)) => return Err(errno),
        }
        std::thread::sleep(LOCK_POLL);
    }
}

/// Nobody but our user can connect, not even before the mode is set: the socket gets its name afterwards, in place of one left by a crash.
fn bind_private(path: &Path) -> io::Result<UnixListener> {
    let unnamed = path.with_extension("new");
    match fs::remove_file(&unnamed) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let listener = UnixListener::bind(&unnamed)?;
    fs::set_permissions(&unnamed, Permissions::from_mode(0o600))?;
    fs::rename(&unnamed, path)?;
    Ok(listener)
}

/// Metrics and probes.
#[derive(Clone, Debug)]
pub struct Http {
    /// Read at each scrape.
    pub metrics: Metrics,
    /// Read at each probe.
    pub status: StatusReader,
    /// Whether the daemon lives.
    pub pulse: Pulse,
}

impl Http {
    /// Listens on `http.address`. Needs a tokio runtime.
    ///
    /// # Errors
    /// The system refuses.
    pub async fn bind(address: SocketAddr) -> Result<TcpListener, AdminError> {
        TcpListener::bind(address).await.map_err(|source| AdminError::Http { address, source })
    }

    /// Answers `GET` of `/metrics`, `/healthz` and `/readyz` until the future is dropped.
    ///
    /// # Errors
    /// The listener fails.
    pub async fn serve(self, listener: TcpListener) -> io::Result<()> {
        let router = Router::new().route("/metrics", get(metrics)).route("/healthz", get(healthz)).route("/readyz", get(readyz));
        crowd::serve(listener, router.with_state(self)).await
    }
}

async fn metrics(State(http): State<Http>) -> Response {
    match http.metrics.text() {
        Ok(text) => ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text).into_response(),
        Err(error) => {
            error!(error = %chain(&error), "the metrics cannot be written");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}

async fn healthz(State(http): State<Http>) -> Response {
    verdict(http.pulse.health(), "the reconcile loop and the speaker are alive")
}

async fn readyz(State(http): State<Http>) -> Response {
    verdict(readiness(&http.status.read()), "the first plan is carried out")
}

/// Whether this node takes part in serving.
fn readiness(status: &NodeStatus) -> Result<(), String> {
    match status.lifecycle {
        None => Err(format!("what is wanted is not known yet: {}", status.source.message)),
        Some(Phase::Draining | Phase::Leaving) => Err("the node is leaving".to_owned()),
        Some(Phase::Serving) if status.speaker.started => Ok(()),
        Some(Phase::Serving) => Err("the first plan is not carried out yet".to_owned()),
    }
}

/// The body of a probe.
#[derive(Debug, Serialize)]
struct Verdict {
    ok: bool,
    message: String,
}

fn verdict(result: Result<(), String>, good: &str) -> Response {
    let (code, ok, message) = match result {
        Ok(()) => (StatusCode::OK, true, good.to_owned()),
        Err(reason) => (StatusCode::SERVICE_UNAVAILABLE, false, reason),
    };
    (code, Json(Verdict { ok, message })).into_response()
}

#[cfg(test)]
mod tests;
