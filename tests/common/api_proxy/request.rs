// SPDX-License-Identifier: Apache-2.0
//! Requests in Kubernetes' words.
//!
//! Input: method and URL of an HTTP request. Output: verb, resource, namespace and name as RBAC knows them, and whether a description fits.

use std::time::Instant;

use http::request::Parts;
use http::{Method, Uri};

/// What is done, as in an RBAC rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    /// One object.
    Get,
    /// All objects.
    List,
    /// Changes of objects as they come.
    Watch,
    /// A new object.
    Create,
    /// A whole object in place of another.
    Update,
    /// A part of an object.
    Patch,
    /// Objects go.
    Delete,
}

/// A request that was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    /// When it arrived.
    pub(crate) at: Instant,
    /// What is to be done.
    pub(crate) verb: Verb,
    /// To what: `services`, `services/status`; or the path where it is no resource, `/readyz`.
    pub(crate) resource: String,
    /// Where, unless it is in no namespace, or in all.
    pub(crate) namespace: Option<String>,
    /// To which one, unless to all.
    pub(crate) name: Option<String>,
    /// The parameters of the URL.
    pub(crate) query: String,
}

/// Which requests are meant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Requests {
    verb: Option<Verb>,
    resource: Option<&'static str>,
}

impl Requests {
    /// All.
    pub(crate) fn all() -> Self {
        Self::default()
    }

    /// Those of this verb.
    pub(crate) fn verb(verb: Verb) -> Self {
        Self { verb: Some(verb), ..Self::default() }
    }

    /// Of these, only those of this resource, in any API group.
    pub(crate) fn of(self, resource: &'static str) -> Self {
        Self { resource: Some(resource), ..self }
    }

    /// Whether this one is meant.
    pub(crate) fn hit(&self, seen: &Seen) -> bool {
        self.verb.is_none_or(|verb| verb == seen.verb) && self.resource.is_none_or(|resource| resource == seen.resource)
    }
}

impl Seen {
    /// Reads a request.
    pub(super) fn new(parts: &Parts) -> Self {
        let (resource, namespace, name) = target(&parts.uri);
        let query = parts.uri.query().unwrap_or_default().to_owned();
        let watches = query.split('&').any(|parameter| matches!(parameter, "watch=true" | "watch=1"));
        let verb = match parts.method {
            Method::POST => Verb::Create,
            Method::PUT => Verb::Update,
            Method::PATCH => Verb::Patch,
            Method::DELETE => Verb::Delete,
            _ if watches => Verb::Watch,
            _ if name.is_some() || resource.starts_with('/') => Verb::Get,
            _ => Verb::List,
        };
        Self { at: Instant::now(), verb, resource, namespace, name, query }
    }
}

/// Resource, namespace and name of `/api/v1/...` and `/apis/GROUP/VERSION/...`.
fn target(uri: &Uri) -> (String, Option<String>, Option<String>) {
    let words: Vec<&str> = uri.path().split('/').skip(1).collect();
    let within = match words.as_slice() {
        ["api", _, within @ ..] | ["apis", _, _, within @ ..] if !within.is_empty() => within,
        _ => return (uri.path().to_owned(), None, None),
    };
    let (namespace, within) = match within {
        ["namespaces", namespace, within @ ..] if !matches!(within, [] | ["status" | "finalize"]) => {
            (Some((*namespace).to_owned()), within)
        }
        _ => (None, within),
    };
    match within {
        [resource, name, subresource, ..] => (format!("{resource}/{subresource}"), namespace, Some((*name).to_owned())),
        [resource, name] => ((*resource).to_owned(), namespace, Some((*name).to_owned())),
        _ => (within.concat(), namespace, None),
    }
}
