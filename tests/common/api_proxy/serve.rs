// SPDX-License-Identifier: Apache-2.0
//! The side of the proxy that clients see.
//!
//! Input: connections, and what the proxy is told to be. Output: answers, of the server or of a fault. Invariant: away means that no
//! connection is left and none is taken.

use std::sync::Arc;

use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use super::forward::{Body, Closed, Upstream, at_version, emptied, let_through, once, text};
use super::request::Seen;
use super::{Fault, Shared, State};
use crate::certificates::Authority;

/// What a client needs to see to believe that it talks to the server.
pub(super) fn tls(authority: &Authority) -> TlsAcceptor {
    let pair = authority.server();
    let certificate = CertificateDer::from_pem_slice(pair.public.as_bytes()).unwrap();
    let key = PrivateKeyDer::from_pem_slice(pair.private.as_bytes()).unwrap();
    TlsAcceptor::from(Arc::new(ServerConfig::builder().with_no_client_auth().with_single_cert(vec![certificate], key).unwrap()))
}

/// Is what it is told, until it is over.
pub(super) async fn serve(shared: &Arc<Shared>, mut told: watch::Receiver<State>, tls: &TlsAcceptor, upstream: &Upstream) {
    loop {
        let state = *told.borrow_and_update();
        match state {
            State::Here => listen(shared, &mut told, tls, upstream).await,
            State::Away | State::Over => {
                shared.state.send_replace(state);
                if state == State::Over || told.changed().await.is_err() {
                    return;
                }
            }
        }
    }
}

/// Takes connections until it is told something else; then none is left.
async fn listen(shared: &Arc<Shared>, told: &mut watch::Receiver<State>, tls: &TlsAcceptor, upstream: &Upstream) {
    let listener = TcpListener::from_std(shared.port.listen()).unwrap();
    shared.state.send_replace(State::Here);
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            changed = told.changed() => if changed.is_err() || *told.borrow() != State::Here { break },
            accepted = listener.accept() => if let Ok((stream, _)) = accepted {
                connections.spawn(converse(Arc::clone(shared), stream, tls.clone(), upstream.clone()));
            },
            Some(ended) = connections.join_next() => ended.unwrap(),
        }
    }
    connections.shutdown().await;
}

/// One connection. It may end in any way: what the client makes of that is what is tested.
async fn converse(shared: Arc<Shared>, stream: TcpStream, tls: TlsAcceptor, upstream: Upstream) {
    let answering = service_fn(|request| answer(&shared, &upstream, request));
    if stream.set_nodelay(true).is_ok()
        && let Ok(stream) = tls.accept(stream).await
    {
        hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), answering).await.ok();
    }
}

async fn answer(shared: &Shared, upstream: &Upstream, mut request: Request<Incoming>) -> Result<Response<Body>, Closed> {
    let (parts, body) = request.into_parts();
    let seen = Seen::new(&parts);
    request = Request::from_parts(parts, body);
    let mut healed = shared.healed.subscribe();
    match shared.meets(&seen) {
        Some(Fault::Status(code)) => Ok(refusal(code, None)),
        Some(Fault::TooManyRequests { retry_after }) => Ok(refusal(StatusCode::TOO_MANY_REQUESTS.as_u16(), Some(retry_after))),
        Some(Fault::EmptyList) => emptied(upstream.ask(request).await?).await,
        Some(Fault::Stall) => {
            healed.changed().await?;
            Err("stalled".into())
        }
        Some(Fault::Expired) => Ok(Response::new(once(&json!({"type": "ERROR", "object": status(410)})))),
        Some(Fault::ResourceVersion(version)) => {
            *request.uri_mut() = at_version(request.uri(), &version);
            Ok(upstream.ask(request).await?.map(|body| let_through(body, shared.under_way(&seen))))
        }
        None => Ok(upstream.ask(request).await?.map(|body| let_through(body, shared.under_way(&seen)))),
    }
}

/// An answer as the API server gives it to what it does not do.
fn refusal(code: u16, retry_after: Option<u32>) -> Response<Body> {
    let mut response = Response::builder().status(code).header(CONTENT_TYPE, "application/json");
    if let Some(seconds) = retry_after {
        response = response.header(RETRY_AFTER, seconds);
    }
    response.body(text(status(code).to_string())).unwrap()
}

/// The object that explains it.
fn status(code: u16) -> Value {
    let reason = match code {
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "NotFound",
        409 => "Conflict",
        410 => "Expired",
        429 => "TooManyRequests",
        500 => "InternalError",
        503 => "ServiceUnavailable",
        504 => "Timeout",
        _ => "Unknown",
    };
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": "the proxy says so", "reason": reason, "code": code})
}
