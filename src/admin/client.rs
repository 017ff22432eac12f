// SPDX-License-Identifier: Apache-2.0
//! The other end of the admin socket, for `vipherald show`.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use http_body_util::{BodyExt as _, Empty};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tokio::time::timeout;

use crate::status::NodeStatus;

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
    let body = timeout(patience, exchange(socket)).await.ok();
    let body = body.ok_or_else(|| ClientError::Silent { path: socket.to_owned(), patience })??;
    serde_json::from_slice(&body).map_err(|source| ClientError::Json { path: socket.to_owned(), source })
}

async fn exchange(socket: &Path) -> Result<Bytes, ClientError> {
    let path = || socket.to_owned();
    let broke = |source| ClientError::Http { path: path(), source };
    let stream = UnixStream::connect(socket).await.map_err(|source| ClientError::Connect { path: path(), source })?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(broke)?;
    let mut request = Request::new(Empty::<Bytes>::new());
    *request.uri_mut() = hyper::Uri::from_static("/state");
    request.headers_mut().insert(hyper::header::HOST, hyper::header::HeaderValue::from_static("vipherald"));
    let answer = async {
        let response = sender.send_request(request).await.map_err(broke)?;
        if response.status() != StatusCode::OK {
            return Err(ClientError::Answer { path: path(), code: response.status() });
        }
        Ok(response.into_body().collect().await.map_err(broke)?.to_bytes())
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
