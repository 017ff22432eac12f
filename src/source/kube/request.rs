// SPDX-License-Identifier: Apache-2.0
//! The two requests that are made: a whole list, and a watch from a version on (Kubernetes API Concepts, "Efficient detection of changes").
//!
//! Input: a client and a kind. Output: objects as they are used, or as JSON, or an [`ApiError`] that says what was asked for, what the server answered, and what helps. Lists are
//! read with a quorum (no `resourceVersion`) in pages. A watch asks for bookmarks, ends by itself after a while, and counts as broken when it is silent
//! for longer than that.

use std::error::Error;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{Request, Response, StatusCode, header};
use http_body_util::BodyExt as _;
use kube::Client;
use kube::client::Body;
use serde::Deserialize;
use serde_json::Value;
use tokio::time::timeout;

use super::object::{path, read, resource};
use super::store::Read;
use crate::api::{Kind, ObjectRef};

/// A page of a list takes no longer.
const LIST_TIME: Duration = Duration::from_secs(30);
/// Until a watch begins.
const ANSWER_TIME: Duration = Duration::from_secs(10);
/// What a watch that the server should have ended is given beyond its time.
const GRACE: Duration = Duration::from_secs(5);
const PAGE: u32 = 500;
/// More than an object may have (1.5 MiB in etcd), so that a broken stream cannot fill the memory.
const LONGEST_LINE: usize = 16 << 20;

/// Why a request gave nothing.
#[derive(Debug, thiserror::Error)]
pub(super) enum ApiError {
    /// Nobody answers there, or not to us.
    #[error("cannot {verb} {resource}: the API server cannot be reached")]
    Unreachable {
        verb: &'static str,
        resource: String,
        #[source]
        source: Box<dyn Error + Send + Sync>,
    },
    /// It takes too long.
    #[error("cannot {verb} {resource}: no answer within {}", humantime::format_duration(*after))]
    Silent { verb: &'static str, resource: String, after: Duration },
    /// The server says no.
    #[error("cannot {verb} {resource}: the API server answers {status}{}: {message}", remedy(*status, verb, resource))]
    Refused { verb: &'static str, resource: String, status: StatusCode, message: String, retry_after: Option<Duration> },
    /// The server says something else.
    #[error("cannot {verb} {resource}: the answer cannot be read: {message}")]
    Unreadable { verb: &'static str, resource: String, message: String },
}

fn remedy(status: StatusCode, verb: &str, resource: &str) -> String {
    match status {
        StatusCode::FORBIDDEN => format!(" (the right to {verb} {resource} is missing: compare the ClusterRole with docs/kubernetes.md)"),
        StatusCode::UNAUTHORIZED => " (the credentials are refused: they are read again)".to_owned(),
        _ => String::new(),
    }
}

impl ApiError {
    const fn status(&self) -> Option<StatusCode> {
        match self {
            Self::Refused { status, .. } => Some(*status),
            Self::Unreachable { .. } | Self::Silent { .. } | Self::Unreadable { .. } => None,
        }
    }

    /// The version to watch from, or the rest of a list, is no longer known there.
    pub(super) fn is_gone(&self) -> bool {
        self.status() == Some(StatusCode::GONE)
    }

    /// The kind is not known there.
    pub(super) fn is_absent(&self) -> bool {
        self.status() == Some(StatusCode::NOT_FOUND)
    }

    /// What the server asks for.
    pub(super) const fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Refused { retry_after, .. } => *retry_after,
            Self::Unreachable { .. } | Self::Silent { .. } | Self::Unreadable { .. } => None,
        }
    }

    /// New credentials, certificates or connections may help.
    pub(super) fn asks_for_another_client(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::Silent { .. } => true,
            Self::Refused { status, .. } => *status == StatusCode::UNAUTHORIZED,
            Self::Unreadable { .. } => false,
        }
    }
}

/// A whole list.
#[derive(Debug)]
pub(super) struct Listing {
    pub(super) items: Vec<(ObjectRef, Read)>,
    /// From where to watch.
    pub(super) version: String,
}

#[derive(Deserialize)]
struct Page {
    metadata: PageMetadata,
    /// Go servers write an empty list as null.
    items: Option<Vec<Value>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PageMetadata {
    #[serde(default)]
    resource_version: String,
    #[serde(default, rename = "continue")]
    more: String,
}

/// Reads all objects of a kind.
pub(super) async fn list(client: &Client, kind: Kind) -> Result<Listing, ApiError> {
    let mut listing = Listing { items: Vec::new(), version: String::new() };
    let mut more = String::new();
    loop {
        let query = if more.is_empty() { format!("limit={PAGE}") } else { format!("limit={PAGE}&continue={}", escape(&more)) };
        let page = timeout(LIST_TIME, page(client, kind, &query)).await;
        let page = page.map_err(|_late| ApiError::Silent { verb: "list", resource: resource(kind), after: LIST_TIME })??;
        // What is trimmed at once needs no room for the whole beside it.
        listing.items.extend(page.items.unwrap_or_default().into_iter().filter_map(|item| read(kind, item)));
        listing.version = page.metadata.resource_version;
        more = page.metadata.more;
        if more.is_empty() {
            return Ok(listing);
        }
    }
}

async fn page(client: &Client, kind: Kind, query: &str) -> Result<Page, ApiError> {
    let response = send(client, kind, "list", query).await?;
    let unreachable = |source: kube::Error| ApiError::Unreachable { verb: "list", resource: resource(kind), source: source.into() };
    let body = response.into_body().collect().await.map_err(unreachable)?.to_bytes();
    let unreadable = |error: serde_json::Error| ApiError::Unreadable { verb: "list", resource: resource(kind), message: error.to_string() };
    serde_json::from_slice(&body).map_err(unreadable)
}

/// What a watch says.
#[derive(Debug)]
pub(super) enum Event {
    /// An object came, or is different.
    Applied(Value),
    /// An object is gone.
    Deleted(Value),
    /// Nothing but how far the server has come.
    Bookmark(Value),
}

/// A watch that has begun.
pub(super) struct Watch {
    kind: Kind,
    body: Body,
    buffer: BytesMut,
    /// So much of the buffer holds no end of a line.
    searched: usize,
    silence: Duration,
}

impl std::fmt::Debug for Watch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watch").field("kind", &self.kind).finish_non_exhaustive()
    }
}

/// Begins to watch a kind from a version on. The server ends the watch after `time`.
pub(super) async fn watch(client: &Client, kind: Kind, version: &str, time: Duration) -> Result<Watch, ApiError> {
    let query = format!("watch=true&allowWatchBookmarks=true&timeoutSeconds={}&resourceVersion={}", time.as_secs(), escape(version));
    let response = timeout(ANSWER_TIME, send(client, kind, "watch", &query)).await;
    let response = response.map_err(|_late| ApiError::Silent { verb: "watch", resource: resource(kind), after: ANSWER_TIME })??;
    Ok(Watch { kind, body: response.into_body(), buffer: BytesMut::new(), searched: 0, silence: time + GRACE })
}

impl Watch {
    /// The next event; `None` once the server has ended the watch. Cancel safe.
    pub(super) async fn next(&mut self) -> Result<Option<Event>, ApiError> {
        loop {
            if let Some(line) = self.line() {
                if line.iter().all(u8::is_ascii_whitespace) {
                    continue;
                }
                return self.event(&line).map(Some);
            }
            if self.buffer.len() > LONGEST_LINE {
                return Err(self.unreadable(format!("an event has more than {LONGEST_LINE} octets")));
            }
            let frame = timeout(self.silence, self.body.frame()).await;
            let frame = frame.map_err(|_late| ApiError::Silent { verb: "watch", resource: resource(self.kind), after: self.silence })?;
            match frame {
                // What was cut off comes again with the next watch.
                None => return Ok(None),
                Some(Ok(frame)) => self.buffer.extend_from_slice(frame.data_ref().map_or(&[][..], Bytes::as_ref)),
                Some(Err(source)) => {
                    return Err(ApiError::Unreachable { verb: "watch", resource: resource(self.kind), source: source.into() });
                }
            }
        }
    }

    fn line(&mut self) -> Option<BytesMut> {
        let unsearched = self.buffer.get(self.searched..)?;
        match unsearched.iter().position(|byte| *byte == b'\n') {
            Some(position) => {
                let line = self.buffer.split_to(self.searched + position + 1);
                self.searched = 0;
                Some(line)
            }
            None => {
                self.searched = self.buffer.len();
                None
            }
        }
    }

    fn event(&self, line: &[u8]) -> Result<Event, ApiError> {
        #[derive(Deserialize)]
        struct Line {
            #[serde(rename = "type")]
            kind: String,
            object: Value,
        }
        let Line { kind, object } = serde_json::from_slice(line).map_err(|error| self.unreadable(error.to_string()))?;
        match kind.as_str() {
            "ADDED" | "MODIFIED" => Ok(Event::Applied(object)),
            "DELETED" => Ok(Event::Deleted(object)),
            "BOOKMARK" => Ok(Event::Bookmark(object)),
            "ERROR" => Err(refusal(self.kind, "watch", None, &object)),
            other => Err(self.unreadable(format!("an event of type {other:?}"))),
        }
    }

    fn unreadable(&self, message: String) -> ApiError {
        ApiError::Unreadable { verb: "watch", resource: resource(self.kind), message }
    }
}

/// How far an object, a list or a bookmark is.
pub(super) fn version(value: &Value) -> Option<&str> {
    value.get("metadata")?.get("resourceVersion")?.as_str()
}

async fn send(client: &Client, kind: Kind, verb: &'static str, query: &str) -> Result<Response<Body>, ApiError> {
    let request = Request::get(format!("{}?{query}", path(kind))).header(header::ACCEPT, "application/json");
    let unreachable = |source| ApiError::Unreachable { verb, resource: resource(kind), source };
    let request = request.body(Body::empty()).map_err(|error| unreachable(error.into()))?;
    let response = client.send(request).await.map_err(|error| unreachable(error.into()))?;
    if response.status().is_success() {
        return Ok(response);
    }
    let status = response.status();
    let seconds = response.headers().get(header::RETRY_AFTER).and_then(|value| value.to_str().ok()?.trim().parse().ok());
    let body = response.into_body().collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    let text = || Value::from(String::from_utf8_lossy(&body).chars().take(200).collect::<String>());
    let value: Value = serde_json::from_slice(&body).unwrap_or_else(|_not_json| text());
    match refusal(kind, verb, Some(status), &value) {
        ApiError::Refused { verb, resource, status, message, retry_after } => {
            Err(ApiError::Refused { verb, resource, status, message, retry_after: seconds.map(Duration::from_secs).or(retry_after) })
        }
        other => Err(other),
    }
}

/// What a Status object, or a text in its place, says.
fn refusal(kind: Kind, verb: &'static str, http: Option<StatusCode>, object: &Value) -> ApiError {
    let code = object.get("code").and_then(Value::as_u64).and_then(|code| StatusCode::from_u16(u16::try_from(code).ok()?).ok());
    let status = http.or(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let message = object.get("message").unwrap_or(object);
    let message = message.as_str().map_or_else(|| message.to_string(), |text| text.trim().to_owned());
    let seconds = object.get("details").and_then(|details| details.get("retryAfterSeconds")).and_then(Value::as_u64);
    ApiError::Refused { verb, resource: resource(kind), status, message, retry_after: seconds.map(Duration::from_secs) }
}

/// Percent-encodes all that is not unreserved (RFC 3986 §2.3).
fn escape(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~');
    text.bytes().map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }).collect()
}
