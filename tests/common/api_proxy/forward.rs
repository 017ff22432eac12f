// SPDX-License-Identifier: Apache-2.0
//! The way to the server and back.
//!
//! Input: a request. Output: the server's answer, changed where a fault says so, whose body obeys a [`Flow`] frame by frame.

use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream;
use http::header::{ACCEPT_ENCODING, CONTENT_LENGTH};
use http::{Request, Response, Uri};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio_rustls::TlsConnector;

use super::Flow;
use crate::apiserver::ApiServer;

/// Why a connection is closed.
pub(super) type Closed = Box<dyn Error + Send + Sync>;
/// What an answer carries.
pub(super) type Body = UnsyncBoxBody<Bytes, Closed>;

/// The server behind.
#[derive(Clone)]
pub(super) struct Upstream {
    address: SocketAddr,
    connector: TlsConnector,
}

impl Upstream {
    pub(super) fn new(server: &ApiServer) -> Self {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(server.authority().certificate().as_bytes()).unwrap()).unwrap();
        let config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
        Self { address: server.address(), connector: TlsConnector::from(Arc::new(config)) }
    }

    /// Asks the server. Each request has a connection of its own, so that an end of one is no matter of another.
    pub(super) async fn ask(&self, mut request: Request<Incoming>) -> Result<Response<Incoming>, Closed> {
        // What comes back may have to be changed.
        request.headers_mut().remove(ACCEPT_ENCODING);
        let stream = TcpStream::connect(self.address).await?;
        stream.set_nodelay(true)?;
        let stream = self.connector.connect(ServerName::from(self.address.ip()), stream).await?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        // It ends with the answer, or when that is dropped.
        drop(tokio::spawn(connection));
        Ok(sender.send_request(request).await?)
    }
}

/// The body that arrives only as far as it is let.
pub(super) fn let_through(body: Incoming, told: watch::Receiver<Flow>) -> Body {
    let frames = stream::unfold((body, told), |(mut body, mut told)| async move {
        loop {
            let flow = *told.borrow_and_update();
            match flow {
                Flow::Pass => {}
                Flow::Hold => {
                    told.changed().await.ok()?;
                    continue;
                }
                Flow::End => return None,
                Flow::Break => return Some((Err(Closed::from(io::Error::from(io::ErrorKind::ConnectionReset))), (body, told))),
            }
            tokio::select! {
                biased;
                changed = told.changed() => changed.ok()?,
                frame = body.frame() => return Some((frame?.map_err(Closed::from), (body, told))),
            }
        }
    });
    StreamBody::new(frames).boxed_unsync()
}

/// A list without what is in it.
pub(super) async fn emptied(response: Response<Incoming>) -> Result<Response<Body>, Closed> {
    let (mut parts, body) = response.into_parts();
    let mut list: Value = serde_json::from_slice(&body.collect().await?.to_bytes())?;
    if let Some(items) = list.get_mut("items") {
        *items = json!([]);
    }
    parts.headers.remove(CONTENT_LENGTH);
    Ok(Response::from_parts(parts, text(list.to_string())))
}

/// A body of this text.
pub(super) fn text(text: String) -> Body {
    Full::from(text).map_err(|never| match never {}).boxed_unsync()
}

/// The URL with another resourceVersion.
pub(super) fn at_version(uri: &Uri, version: &str) -> Uri {
    let query =
        uri.query().unwrap_or_default().split('&').filter(|parameter| !parameter.is_empty() && !parameter.starts_with("resourceVersion="));
    let parameters: Vec<&str> = query.collect();
    format!("{}?{}&resourceVersion={version}", uri.path(), parameters.join("&")).parse().unwrap()
}

/// The frames of an answer that no server gave.
pub(super) fn once(event: &Value) -> Body {
    let frame = Frame::data(Bytes::from(format!("{event}\n")));
    StreamBody::new(stream::once(async { Ok(frame) })).boxed_unsync()
}
