// SPDX-License-Identifier: Apache-2.0
//! The other end of the admin socket, for `vipherald show` and `vipherald peer`.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use http_body_util::{BodyExt as _, Full};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::http::request::Builder;
use hyper::{Request, StatusCode, header};
use hyper_util::rt::TokioIo;
use serde::de::DeserializeOwned;
use tokio::net::UnixStream;
use tokio::time::timeout;

use super::{PeerOrder, RoutesQuestion};
use crate::status::{Answer, IpvsStatus, NodeStatus, PeerRoutesStatus};

/// Why there is no status to be had.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Nobody listens there, or not for us.
    #[error("no vipherald answers at {}", path.display())]
    Connect {
        /// The socket.
        path: PathBuf,
        /// What the system says.
        #[source]
        source: io::Error,
    },
    /// The daemon hangs.
    #[error("vipherald at {} has not answered within {}", path.display(), humantime::format_duration(*patience))]
    Silent {
        /// The socket.
        path: PathBuf,
        /// How long it was waited for.
        patience: Duration,
    },
    /// The connection broke.
    #[error("the connection to {} broke", path.display())]
    Http {
        /// The socket.
        path: PathBuf,
        /// How.
        #[source]
        source: hyper::Error,
    },
    /// It answers something else.
    #[error("what listens at {} is no vipherald: it answers {code}", path.display())]
    Answer {
        /// The socket.
        path: PathBuf,
        /// Its answer.
        code: StatusCode,
    },
    /// It does not do what was asked, and says why.
    #[error("{0}")]
    Refused(String),
    /// It is of another version.
    #[error("the answer of {} is not understood", path.display())]
    Json {
        /// The socket.
        path: PathBuf,
        /// Where it ends to make sense.
        #[source]
        source: serde_json::Error,
    },
}

/// Asks the daemon at this socket for its status. Needs a tokio runtime.
///
/// # Errors
/// Nobody answers, or not in time, or not in a form that is understood.
pub async fn fetch(socket: &Path, patience: Duration) -> Result<NodeStatus, ClientError> {
    read(socket, &ask(socket, patience, Request::get("/state"), Bytes::new()).await?)
}

/// Asks the daemon at this socket for the table of IPVS. Needs a tokio runtime.
///
/// # Errors
/// As of [`fetch`]; or the daemon has none to show.
pub async fn fetch_ipvs(socket: &Path, patience: Duration) -> Result<Answer<IpvsStatus>, ClientError> {
    read(socket, &ask(socket, patience, Request::get("/ipvs"), Bytes::new()).await?)
}

fn read<T: DeserializeOwned>(socket: &Path, body: &Bytes) -> Result<T, ClientError> {
    serde_json::from_slice(body).map_err(|source| ClientError::Json { path: socket.to_owned(), source })
}

/// Gives an order about a BGP neighbour to the daemon at this socket. The answer says in words what has become of it, after the name of the peer. Needs a tokio runtime.
///
/// # Errors
/// As of [`fetch`]; or the daemon refuses.
pub async fn order(socket: &Path, patience: Duration, order: &PeerOrder) -> Result<String, ClientError> {
    let json = serde_json::to_vec(order).map_err(|source| ClientError::Json { path: socket.to_owned(), source })?;
    let request = Request::post("/peer").header(header::CONTENT_TYPE, "application/json");
    let done = ask(socket, patience, request, json.into()).await?;
    Ok(String::from_utf8_lossy(&done).into_owned())
}

/// Asks the daemon at this socket for the routes of a BGP neighbour. Needs a tokio runtime.
///
/// # Errors
/// As of [`fetch`]; or there is no such neighbour.
pub async fn routes_of(socket: &Path, patience: Duration, question: &RoutesQuestion) -> Result<Answer<PeerRoutesStatus>, ClientError> {
    let json = serde_json::to_vec(question).map_err(|source| ClientError::Json { path: socket.to_owned(), source })?;
    let request = Request::post("/routes").header(header::CONTENT_TYPE, "application/json");
    read(socket, &ask(socket, patience, request, json.into()).await?)
}

async fn ask(socket: &Path, patience: Duration, request: Builder, body: Bytes) -> Result<Bytes, ClientError> {
    let answer = timeout(patience, exchange(socket, request, body)).await.ok();
    answer.ok_or_else(|| ClientError::Silent { path: socket.to_owned(), patience })?
}

async fn exchange(socket: &Path, request: Builder, body: Bytes) -> Result<Bytes, ClientError> {
    let path = || socket.to_owned();
    let broke = |source| ClientError::Http { path: path(), source };
    let stream = UnixStream::connect(socket).await.map_err(|source| ClientError::Connect { path: path(), source })?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(broke)?;
    let request = request.header(header::HOST, "vipherald").body(Full::new(body));
    let request = request.map_err(|error| ClientError::Refused(error.to_string()))?;
    let answer = async {
        let response = sender.send_request(request).await.map_err(broke)?;
        let code = response.status();
        if !code.is_success() && code != StatusCode::CONFLICT {
            return Err(ClientError::Answer { path: path(), code });
        }
        let body = response.into_body().collect().await.map_err(broke)?.to_bytes();
        if code.is_success() { Ok(body) } else { Err(ClientError::Refused(String::from_utf8_lossy(&body).into_owned())) }
    };
    tokio::pin!(answer);
    let mut connection = std::pin::pin!(connection);
    tokio::select! {
        answer = &mut answer => answer,
        ended = &mut connection => {
            ended.map_err(broke)?;
            answer.await
        }
    }
}
