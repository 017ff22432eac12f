// SPDX-License-Identifier: Apache-2.0
//! `vipherald crds apply`: puts the CustomResourceDefinitions into a cluster.
//!
//! Input: a client and the definitions. Output: what was done with each. It is server-side apply with our field manager, so that several releases may do
//! it at once and again. Invariants: a definition with a higher revision than ours is left as it is; one without a revision, which somebody else made,
//! becomes ours; it is done only when the API server serves the kind.

use std::time::Duration;

use http::{Request, header};
use kube::Client;
use serde_json::Value;
use tokio::time::{Instant, sleep};

use crate::api::crd::{REVISION, REVISION_ANNOTATION, definitions};

const PATH: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
/// The field manager of server-side apply.
const MANAGER: &str = "vipherald-crds";
/// All definitions are there by then, or it has failed.
const PATIENCE: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(250);

/// What became of one definition.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Outcome {
    /// It was not there.
    Created,
    /// It was there, with another content.
    Updated,
    /// It was there as it should be.
    Unchanged,
    /// It is of a later revision, and stays.
    Newer,
}

impl Outcome {
    /// In a word, or some.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Updated => "updated",
            Self::Unchanged => "unchanged",
            Self::Newer => "is of a later version and stays as it is",
        }
    }
}

/// Why a definition is not in force.
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    /// The API server does not take it, or is not there.
    #[error("{name}")]
    Refused {
        /// Of the definition.
        name: String,
        /// What it says.
        #[source]
        source: Box<kube::Error>,
    },
    /// Its names collide with those of another definition, or the server is slow.
    #[error("{name}: not established within {}: {state}", humantime::format_duration(PATIENCE))]
    NotEstablished {
        /// Of the definition.
        name: String,
        /// Its conditions.
        state: String,
    },
}

/// Installs or updates all definitions; gives the name and the outcome of each.
///
/// # Errors
/// One of them is not in force after a minute, or is refused.
pub async fn install(client: &Client) -> Result<Vec<(String, Outcome)>, InstallError> {
    let deadline = Instant::now() + PATIENCE;
    let mut outcomes = Vec::new();
    for definition in definitions() {
        let name = definition.get("metadata").and_then(|metadata| metadata.get("name")).and_then(Value::as_str).unwrap_or_default();
        let outcome = apply(client, name, &definition, deadline).await?;
        outcomes.push((name.to_owned(), outcome));
    }
    for (name, _) in &outcomes {
        establish(client, name, deadline).await?;
    }
    Ok(outcomes)
}

async fn apply(client: &Client, name: &str, definition: &Value, deadline: Instant) -> Result<Outcome, InstallError> {
    loop {
        match try_apply(client, name, definition).await {
            Ok(outcome) => return Ok(outcome),
            Err(error) if is_passing(&error) && Instant::now() < deadline => sleep(PAUSE).await,
            Err(source) => return Err(InstallError::Refused { name: name.to_owned(), source: source.into() }),
        }
    }
}

/// Reads and writes once. Whoever writes in between makes it a conflict, since the version that was read is part of what is written.
async fn try_apply(client: &Client, name: &str, definition: &Value) -> Result<Outcome, kube::Error> {
    let found = get(client, name).await?;
    let revision =
        found.as_ref().and_then(|found| found.get("metadata")?.get("annotations")?.get(REVISION_ANNOTATION)?.as_str()?.parse().ok());
    if revision.is_some_and(|revision: u64| revision > REVISION) {
        return Ok(Outcome::Newer);
    }
    let version = |object: &Value| Some(object.get("metadata")?.get("resourceVersion")?.clone());
    let before = found.as_ref().and_then(version);
    let mut definition = definition.clone();
    if let (Some(version), Some(metadata)) = (&before, definition.get_mut("metadata").and_then(Value::as_object_mut)) {
        metadata.insert("resourceVersion".to_owned(), version.clone());
    }
    let request = Request::patch(format!("{PATH}/{name}?fieldManager={MANAGER}&force=true"))
        .header(header::CONTENT_TYPE, "application/apply-patch+yaml")
        .body(definition.to_string().into_bytes());
    let written: Value = client.request(request.map_err(kube::Error::HttpError)?).await?;
    Ok(match before {
        None => Outcome::Created,
        Some(_) if version(&written) == before => Outcome::Unchanged,
        Some(_) => Outcome::Updated,
    })
}

async fn get(client: &Client, name: &str) -> Result<Option<Value>, kube::Error> {
    let request = Request::get(format!("{PATH}/{name}")).body(Vec::new()).map_err(kube::Error::HttpError)?;
    match client.request(request).await {
        Ok(found) => Ok(Some(found)),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whether it may be another answer soon.
pub(super) fn is_passing(error: &kube::Error) -> bool {
    match error {
        kube::Error::Api(status) => matches!(status.code, 409 | 429 | 500..=599),
        kube::Error::Service(_) | kube::Error::HyperError(_) => true,
        _ => false,
    }
}

/// Waits until the kind is served.
async fn establish(client: &Client, name: &str, deadline: Instant) -> Result<(), InstallError> {
    loop {
        let state = match get(client, name).await {
            Ok(Some(found)) if condition(&found, "Established") == Some("True") => return Ok(()),
            Ok(found) => found.and_then(|found| found.get("status")?.get("conditions").map(ToString::to_string)).unwrap_or_default(),
            Err(error) if is_passing(&error) => error.to_string(),
            Err(source) => return Err(InstallError::Refused { name: name.to_owned(), source: source.into() }),
        };
        if Instant::now() >= deadline {
            return Err(InstallError::NotEstablished { name: name.to_owned(), state });
        }
        sleep(PAUSE).await;
    }
}

fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a str> {
    let conditions = object.get("status")?.get("conditions")?.as_array()?;
    conditions.iter().find(|condition| condition.get("type").is_some_and(|found| found == kind))?.get("status")?.as_str()
}
