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
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::{SocketAddr as UnixSocketAddr, UnixListener as StdUnixListener};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use bgp::Prefix;
use ipnetwork::IpNetwork;
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use serde::{Deserialize, Serialize};
use tokio::net::{TcpListener, UnixListener};
use tracing::{debug, error, warn};

use crate::driver::bgp::{Operation, Operator, OperatorError, PeerRoutes, Question, RoutesOf};
use crate::status::{Answer, Envelope, IpvsReader, NodeStatus, Phase, StatusReader, advertised, received};
use crate::telemetry::{Metrics, chain};

pub use client::{ClientError, fetch, fetch_ipvs, order, routes_of};
pub use pulse::Pulse;

/// The socket's name in the state directory.
pub const SOCKET: &str = "admin.sock";

/// A lock held for so long is that of a daemon that runs.
const LOCK_PATIENCE: Duration = Duration::from_secs(1);
/// Between two looks whether the socket is still there.
const SOCKET_CHECK: Duration = Duration::from_secs(1);
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

/// The Unix socket, bound, and the locks on its directory and on the instance. It goes when this is dropped.
#[derive(Debug)]
pub struct AdminSocket {
    bound: Bound,
    state_dir: PathBuf,
    instance: String,
    _instance_lock: InstanceLock,
}

/// The socket in a directory that is locked.
#[derive(Debug)]
struct Bound {
    listener: UnixListener,
    place: Place,
    _lock: Flock<File>,
}

/// Where a socket is, as long as it is there. Unlinks it at its end.
#[derive(Debug)]
struct Place {
    path: PathBuf,
    inode: Option<u64>,
}

impl Place {
    fn of(path: PathBuf) -> Self {
        let inode = inode(&path);
        Self { path, inode }
    }

    fn is_ours(&self) -> bool {
        self.inode.is_some() && inode(&self.path) == self.inode
    }
}

fn inode(path: &Path) -> Option<u64> {
    fs::symlink_metadata(path).ok().map(|metadata| metadata.ino())
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.is_ours() {
            // A socket that stays behind is replaced by the next process.
            fs::remove_file(&self.path).ok();
        }
    }
}

impl Bound {
    /// Makes and locks the directory, and binds the socket in it.
    fn new(state_dir: &Path, instance: &str) -> Result<Self, AdminError> {
        let unusable = |source| AdminError::StateDir { path: state_dir.to_owned(), source };
        DirBuilder::new().recursive(true).mode(0o700).create(state_dir).map_err(unusable)?;
        let directory = File::open(state_dir).map_err(unusable)?;
        let lock = lock(directory).map_err(|errno| match errno {
            Errno::EWOULDBLOCK => AdminError::Running { instance: instance.to_owned(), path: state_dir.to_owned() },
            errno => unusable(errno.into()),
        })?;
        let path = state_dir.join(SOCKET);
        let listener = bind_private(&path).map_err(|source| AdminError::Socket { path: path.clone(), source })?;
        Ok(Self { listener, place: Place::of(path), _lock: lock })
    }

    /// Serves until somebody takes the socket away.
    async fn serve(self, router: Router) -> io::Result<()> {
        let Self { listener, place, _lock } = self;
        tokio::select! {
            served = axum::serve(listener, router) => served,
            () = taken_away(&place) => Ok(()),
        }
    }
}

async fn taken_away(place: &Place) {
    while place.is_ours() {
        tokio::time::sleep(SOCKET_CHECK).await;
    }
}

impl AdminSocket {
    /// Makes and locks the state directory, and binds the socket in it. Needs a tokio runtime.
    ///
    /// # Errors
    /// Another process has the directory, or the system refuses.
    pub fn bind(state_dir: &Path, instance: &str) -> Result<Self, AdminError> {
        let bound = Bound::new(state_dir, instance)?;
        let _instance_lock = InstanceLock::take(instance)?;
        Ok(Self { bound, state_dir: state_dir.to_owned(), instance: instance.to_owned(), _instance_lock })
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.bound.place.path
    }

    /// Answers `GET /state`, `GET /ipvs`, `POST /peer` and `POST /routes` until the future is dropped. A socket that somebody has deleted, alone or
    /// with its directory, is made anew within a second.
    ///
    /// # Errors
    /// The listener fails.
    pub async fn serve(self, desk: Desk) -> io::Result<()> {
        let Self { mut bound, state_dir, instance, _instance_lock } = self;
        let router = Router::new()
            .route("/state", get(async |State(desk): State<Desk>| Json(NodeStatus::clone(&desk.status.read()))))
            .route("/ipvs", get(table))
            .route("/peer", post(peer))
            .route("/routes", post(routes))
            .with_state(desk);
        loop {
            bound.serve(router.clone()).await?;
            warn!(directory = %state_dir.display(), "the admin socket was taken away; making another one");
            bound = bind_again(&state_dir, &instance).await;
        }
    }
}

/// Who answers behind the admin socket.
#[derive(Clone, Debug)]
pub struct Desk {
    /// What the node says of itself.
    pub status: StatusReader,
    /// The table of IPVS.
    pub ipvs: IpvsReader,
    /// Who carries out orders about BGP neighbours.
    pub operator: Operator,
}

async fn table(State(Desk { status, ipvs, .. }): State<Desk>) -> Response {
    match ipvs.read().await {
        Ok(content) => Json(Answer { envelope: Envelope::of(&status.read()), content }).into_response(),
        Err(reason) => refused(reason),
    }
}

/// Tries until it succeeds; complains once.
async fn bind_again(state_dir: &Path, instance: &str) -> Bound {
    let mut complained = false;
    loop {
        match Bound::new(state_dir, instance) {
            Ok(bound) => return bound,
            Err(error) if complained => debug!(error = %chain(&error), "still no admin socket"),
            Err(error) => {
                error!(error = %chain(&error), "no admin socket, so that 'vipherald show' has no answer; trying again each second");
                complained = true;
            }
        }
        tokio::time::sleep(SOCKET_CHECK).await;
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

async fn peer(State(Desk { operator, .. }): State<Desk>, Json(order): Json<PeerOrder>) -> Response {
    match operator.operate(&order.peer, order.operation).await {
        Ok(done) => done.into_response(),
        Err(OperatorError::Impossible(reason)) => refused(format!("{}: {reason}", order.peer)),
        Err(error) => refused(error.to_string()),
    }
}

/// A question about the routes of one BGP neighbour, as it is sent.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RoutesQuestion {
    /// The neighbour's name.
    pub peer: String,
    /// Which of its routes.
    pub of: RoutesOf,
    /// Only those to this destination: an address, or a prefix.
    pub only: Option<String>,
}

async fn routes(State(desk): State<Desk>, Json(RoutesQuestion { peer, of, only }): Json<RoutesQuestion>) -> Response {
    let Desk { status, operator, .. } = desk;
    let only = match only.as_deref().map(destination).transpose() {
        Ok(only) => only,
        Err(reason) => return refused(reason),
    };
    let found = match operator.routes(&peer, Question { of, only }).await {
        Ok(found) => found,
        Err(error) => return refused(error.to_string()),
    };
    // There may be very many.
    let written = tokio::task::spawn_blocking(move || {
        let mut content = match found {
            PeerRoutes::Advertised(routes, withheld) => advertised(&peer, routes.as_deref(), &withheld),
            PeerRoutes::Received { routes, announced, omitted } => received(&peer, routes.as_deref(), announced, omitted),
        };
        if let Some(only) = only.filter(|_| content.routes.is_empty()) {
            let absent = match of {
                RoutesOf::Advertised => format!(
                    "{only} is not for it: this node does not announce it ('vipherald show vips' says why), or has it from elsewhere and may not pass it on"
                ),
                RoutesOf::Received => format!("{only} is not among its routes"),
            };
            content.note.get_or_insert(absent);
        }
        let mut envelope = Envelope::of(&status.read());
        envelope.warnings.extend(content.note.iter().map(|note| format!("peer {}: {note}", content.peer)));
        serde_json::to_vec(&Answer { envelope, content })
    });
    match written.await {
        Ok(Ok(json)) => ([(header::CONTENT_TYPE, "application/json")], json).into_response(),
        Ok(Err(error)) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

/// A whole prefix, or an address for the prefix of one address.
///
/// # Errors
/// It is neither; says so in words.
pub fn destination(text: &str) -> Result<Prefix, String> {
    let network: IpNetwork = text.parse().map_err(|_not_one| format!("'{text}' is no address and no prefix"))?;
    Prefix::new(network.ip(), network.prefix()).map_err(|error| format!("'{text}': {error}"))
}

fn refused(reason: String) -> Response {
    (StatusCode::CONFLICT, reason).into_response()
}

/// The instance's name in this network namespace, where its kernel objects are: a name without a file, which goes with the process and which nobody can
/// delete.
#[derive(Debug)]
pub(crate) struct InstanceLock(#[expect(dead_code, reason = "held, not used")] StdUnixListener);

impl InstanceLock {
    /// Takes it.
    ///
    /// # Errors
    /// Another process has it.
    pub(crate) fn take(instance: &str) -> Result<Self, AdminError> {
        lock_instance(instance).map(Self)
    }
}

/// Whether some process in this network namespace has the instance's name.
pub(crate) fn is_running(instance: &str) -> bool {
    let sockets = fs::read_to_string("/proc/thread-self/net/unix").unwrap_or_default();
    let name = format!("@vipherald/{instance}");
    sockets.lines().any(|line| line.split_whitespace().last() == Some(&name))
}

/// Whether some daemon has a name in this network namespace.
pub(crate) fn is_any_running() -> bool {
    let sockets = fs::read_to_string("/proc/thread-self/net/unix").unwrap_or_default();
    sockets.lines().any(|line| line.contains(" @vipherald/"))
}

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
        Some(Phase::Serving | Phase::Standby) if status.speaker.started => Ok(()),
        Some(Phase::Serving | Phase::Standby) => Err("the first plan is not carried out yet".to_owned()),
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
