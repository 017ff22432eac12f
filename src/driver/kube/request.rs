// SPDX-License-Identifier: Apache-2.0
//! The requests that write, and the few that read what was written.
//!
//! Input: a way to the API server, a verb and an object. Output: its answer as JSON, or a [`RequestError`] that says what was tried and what helps.
//! Credentials and certificates are read again after a failure that this may mend. No request takes longer than [`ANSWER_TIME`].

use std::error::Error;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::{Method, Request, header};
use kube::Client;
use serde_json::Value;
use tokio::time::timeout;

use crate::api::{Kind, ObjectRef};
use crate::source::kube::{Access, path, resource};

/// Answers are awaited so long, which is less than a holder of the Lease has left after it has stopped.
pub(super) const ANSWER_TIME: Duration = Duration::from_secs(4);

/// A page of a list.
const PAGE: u32 = 500;
const LIST_TIME: Duration = Duration::from_secs(30);

/// Why a request came to nothing.
#[derive(Debug, thiserror::Error)]
pub(super) enum RequestError {
    /// Nobody answers.
    #[error("cannot {verb} {resource}: the API server cannot be reached")]
    Unreachable {
        verb: &'static str,
        resource: String,
        #[source]
        source: Box<dyn Error + Send + Sync>,
    },
    /// It takes too long.
    #[error("cannot {verb} {resource}: no answer in time")]
    Silent { verb: &'static str, resource: String },
    /// 403.
    #[error("may not {verb} {resource}: {message}; add the right to the role of this ServiceAccount (docs/kubernetes.md)")]
    Forbidden { verb: &'static str, resource: String, message: String },
    /// The definition of the kind has no field for a part of it.
    #[error("cannot {verb} {resource}: {message}: the definition is older than this program, 'vipherald crds apply' brings it up to date")]
    Outdated { verb: &'static str, resource: String, message: String },
    /// Any other refusal.
    #[error("cannot {verb} {resource}: the API server answers {code}: {message}")]
    Refused { verb: &'static str, resource: String, code: u16, message: String, retry_after: Option<Duration> },
}

impl RequestError {
    /// It is not there.
    pub(super) const fn is_absent(&self) -> bool {
        matches!(self, Self::Refused { code: 404, .. })
    }

    /// Somebody else wrote in between, or it is another object of this name.
    pub(super) const fn is_conflict(&self) -> bool {
        matches!(self, Self::Refused { code: 409, .. })
    }

    /// It is about this object only: the next one may be written.
    pub(super) const fn is_about_the_object(&self) -> bool {
        matches!(self, Self::Refused { code: 400 | 404 | 409 | 413 | 422, .. })
    }

    /// How long the server asks to be left alone.
    pub(super) const fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Refused { retry_after, .. } => *retry_after,
            Self::Unreachable { .. } | Self::Silent { .. } | Self::Forbidden { .. } | Self::Outdated { .. } => None,
        }
    }

    /// The right that is missing, in words.
    pub(super) fn missing_right(&self) -> Option<String> {
        match self {
            Self::Forbidden { verb, resource, .. } => Some(format!("may not {verb} {resource}")),
            Self::Unreachable { .. } | Self::Silent { .. } | Self::Outdated { .. } | Self::Refused { .. } => None,
        }
    }
}

/// Where something is, and how messages and roles call it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Place {
    /// The path of the URL.
    pub(super) path: String,
    /// As `kubectl auth can-i` takes it, such as `services/status`.
    pub(super) resource: String,
}

impl Place {
    /// All objects of a kind.
    pub(super) fn list(kind: Kind) -> Self {
        Self { path: path(kind), resource: resource(kind) }
    }

    /// One object.
    pub(super) fn object(object: &ObjectRef) -> Self {
        let all = path(object.kind);
        let (version, plural) = all.rsplit_once('/').unwrap_or_default();
        Self { path: format!("{version}/namespaces/{}/{plural}/{}", object.namespace, object.name), resource: resource(object.kind) }
    }

    /// Its subresource `status`.
    pub(super) fn status(&self) -> Self {
        Self { path: format!("{}/status", self.path), resource: subresource(&self.resource) }
    }

    /// Something that is no [`Kind`].
    pub(super) fn other(path: String, resource: &str) -> Self {
        Self { path, resource: resource.to_owned() }
    }
}

/// `services/status`, and `ericingresses/status.GROUP` with the group behind.
fn subresource(resource: &str) -> String {
    match resource.split_once('.') {
        Some((plural, group)) => format!("{plural}/status.{group}"),
        None => format!("{resource}/status"),
    }
}

/// The API server.
pub(super) struct ApiServer {
    access: Access,
    client: Mutex<Option<Client>>,
}

impl ApiServer {
    pub(super) const fn new(access: Access) -> Self {
        Self { access, client: Mutex::new(None) }
    }

    /// One object.
    pub(super) async fn get(&self, place: &Place) -> Result<Value, RequestError> {
        self.call("get", place, Request::builder().method(Method::GET).uri(&place.path), Vec::new()).await
    }

    /// What is `read` of all of a list, which is asked for with a quorum, page by page; and the version of the list.
    pub(super) async fn list<T>(
        &self,
        place: &Place,
        query: &str,
        read: impl Fn(&Value) -> Option<T>,
    ) -> Result<(Vec<T>, String), RequestError> {
        let mut items = Vec::new();
        let mut more = String::new();
        loop {
            let uri = format!("{}?limit={PAGE}{query}{more}", place.path);
            let page = self.call("list", place, Request::builder().method(Method::GET).uri(uri), Vec::new()).await?;
            let word = |pointer: &str| page.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
            let (version, rest) = (word("/metadata/resourceVersion"), word("/metadata/continue"));
            items.extend(page.get("items").and_then(Value::as_array).into_iter().flatten().filter_map(&read));
            if rest.is_empty() {
                return Ok((items, version));
            }
            more = format!("&continue={rest}");
        }
    }

    /// A new object.
    pub(super) async fn create(&self, place: &Place, body: &Value) -> Result<Value, RequestError> {
        let request = Request::builder().method(Method::POST).uri(&place.path).header(header::CONTENT_TYPE, "application/json");
        self.call("create", place, request, body.to_string().into_bytes()).await
    }

    /// Server-side apply: what is ours becomes this, whoever has written it.
    pub(super) async fn apply(&self, place: &Place, manager: &str, body: &Value) -> Result<Value, RequestError> {
        let uri = format!("{}?fieldManager={manager}&force=true", place.path);
        let request = Request::builder().method(Method::PATCH).uri(uri).header(header::CONTENT_TYPE, "application/apply-patch+yaml");
        self.call("patch", place, request, body.to_string().into_bytes()).await
    }

    /// JSON merge patch.
    pub(super) async fn merge(&self, place: &Place, manager: &str, body: &Value) -> Result<Value, RequestError> {
        let uri = format!("{}?fieldManager={manager}", place.path);
        let request = Request::builder().method(Method::PATCH).uri(uri).header(header::CONTENT_TYPE, "application/merge-patch+json");
        self.call("patch", place, request, body.to_string().into_bytes()).await
    }

    /// A client for requests that are made elsewhere.
    pub(super) async fn client(&self, verb: &'static str, resource: &str) -> Result<Client, RequestError> {
        if let Some(client) = self.cached().clone() {
            return Ok(client);
        }
        let unreachable = |source| RequestError::Unreachable { verb, resource: resource.to_owned(), source };
        let client = self.access.client().await.map_err(|error| unreachable(error.into()))?;
        *self.cached() = Some(client.clone());
        Ok(client)
    }

    fn cached(&self) -> MutexGuard<'_, Option<Client>> {
        self.client.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn call(&self, verb: &'static str, place: &Place, request: http::request::Builder, body: Vec<u8>) -> Result<Value, RequestError> {
        let client = self.client(verb, &place.resource).await?;
        let resource = || place.resource.clone();
        let request =
            request.body(body).map_err(|source| RequestError::Unreachable { verb, resource: resource(), source: source.into() })?;
        let bound = if verb == "list" { LIST_TIME } else { ANSWER_TIME };
        let answer = match timeout(bound, client.request::<Value>(request)).await {
            Ok(Ok(value)) => return Ok(value),
            Ok(Err(error)) => of_client(error, verb, resource()),
            Err(_late) => RequestError::Silent { verb, resource: resource() },
        };
        if matches!(answer, RequestError::Unreachable { .. } | RequestError::Silent { .. } | RequestError::Refused { code: 401, .. }) {
            *self.cached() = None;
        }
        Err(answer)
    }
}

pub(super) fn of_client(error: kube::Error, verb: &'static str, resource: String) -> RequestError {
    match error {
        kube::Error::Api(status) if status.code == 403 => RequestError::Forbidden { verb, resource, message: status.message.clone() },
        // Server-Side Apply of a field that is not in the schema; the code is 500.
        kube::Error::Api(status) if status.message.contains("field not declared in schema") => {
            RequestError::Outdated { verb, resource, message: status.message.clone() }
        }
        kube::Error::Api(status) => {
            let seconds = status.details.as_ref().map(|details| details.retry_after_seconds).filter(|seconds| *seconds > 0);
            let retry_after = seconds.map(|seconds| Duration::from_secs(seconds.into()));
            RequestError::Refused { verb, resource, code: status.code, message: status.message.clone(), retry_after }
        }
        other => RequestError::Unreachable { verb, resource, source: other.into() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_have_the_names_of_roles() {
        let place = |kind| Place::object(&ObjectRef { kind, namespace: "enm".into(), name: "a".into() }).status();
        let service = place(Kind::Service);
        assert_eq!((service.path.as_str(), service.resource.as_str()), ("/api/v1/namespaces/enm/services/a/status", "services/status"));
        let ingress = place(Kind::LvsIngress);
        assert_eq!(ingress.path, "/apis/routing.lvsingress.ericsson.com/v1alpha1/namespaces/enm/lvsingresses/a/status");
        assert_eq!(ingress.resource, "lvsingresses/status.routing.lvsingress.ericsson.com");
    }
}
