// SPDX-License-Identifier: Apache-2.0
//! A Lease of an instance in the API: carries out what the [`Election`] says.
//!
//! Input: the API server. Output: whether this node holds the Lease, which is asked before each act that is for its holder. The times in the object are for people; nobody
//! decides by them.

use std::time::{Duration, Instant, SystemTime};

use serde_json::{Value, json};

use super::election::{Action, Election, Event, LEASE_DURATION, Record};
use super::request::{ApiServer, Place, RequestError};
use crate::telemetry::chain;

/// See the module.
pub(super) struct Lease {
    election: Election,
    collection: Place,
    name: String,
    manager: String,
    held: bool,
    /// A right that is missing.
    denied: Option<String>,
    /// Why the last request failed.
    trouble: Option<String>,
}

impl Lease {
    /// The Lease of this name, for which this node is a candidate.
    pub(super) fn new(namespace: &str, name: &str, node: &str) -> Self {
        let path = format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases");
        Self {
            election: Election::new(node, Instant::now()),
            collection: Place::other(path, "leases.coordination.k8s.io"),
            name: name.to_owned(),
            manager: name.to_owned(),
            held: false,
            denied: None,
            trouble: None,
        }
    }

    /// Whether this node holds it.
    pub(super) fn is_held(&self) -> bool {
        self.election.holds(Instant::now())
    }

    /// The right that is missing, if one is.
    pub(super) fn denied(&self) -> Option<&str> {
        self.denied.as_deref()
    }

    /// Who has it, as far as is known.
    pub(super) fn holder(&self) -> Option<&str> {
        self.election.holder()
    }

    /// Why it is not had, or not known who has it.
    pub(super) fn trouble(&self) -> Option<&str> {
        self.trouble.as_deref()
    }

    /// When [`Self::turn`] has something to do.
    pub(super) fn deadline(&self) -> Instant {
        self.election.deadline().unwrap_or_else(|| Instant::now() + LEASE_DURATION)
    }

    /// Does what is due. Not cancel safe.
    pub(super) async fn turn(&mut self, server: &ApiServer) {
        self.carry_out(server, Event::Tick).await;
    }

    /// Gives it up, where it is held.
    pub(super) async fn release(&mut self, server: &ApiServer) {
        self.carry_out(server, Event::Release).await;
    }

    async fn carry_out(&mut self, server: &ApiServer, event: Event) {
        let mut next = self.election.handle(Instant::now(), event);
        while let Some(action) = next {
            let answer = self.ask(server, &action).await;
            self.denied = answer.as_ref().err().and_then(RequestError::missing_right);
            // That somebody else was faster is no trouble.
            let trouble = answer.as_ref().err().filter(|error| !error.is_conflict()).map(|error| chain(error));
            if let Some(error) = trouble.as_ref().filter(|_| self.trouble.is_none()) {
                tracing::warn!(lease = self.name, error, "the Lease is not had: another node has it, or none");
            }
            self.trouble = trouble;
            let event = match answer {
                Ok(event) => event,
                Err(error) if error.is_conflict() => Event::Conflict,
                Err(_) => Event::Failed,
            };
            next = self.election.handle(Instant::now(), event);
        }
        let held = self.is_held();
        if std::mem::replace(&mut self.held, held) != held {
            let holder = self.election.holder().unwrap_or("nobody");
            tracing::info!(
                lease = self.name,
                holder,
                "{}",
                if held { "this node has the Lease" } else { "this node does not have the Lease any more" }
            );
        }
    }

    async fn ask(&self, server: &ApiServer, action: &Action) -> Result<Event, RequestError> {
        let place = Place::other(format!("{}/{}", self.collection.path, self.name), &self.collection.resource);
        let Action::Write { replaces, holder, transitions, acquires } = action else {
            return match server.get(&place).await {
                Ok(lease) => Ok(Event::Read(Some(record(&lease)))),
                Err(error) if error.is_absent() => Ok(Event::Read(None)),
                Err(error) => Err(error),
            };
        };
        let now = humantime::format_rfc3339_micros(SystemTime::now()).to_string();
        let mut spec = json!({
            // A Lease has no empty holder: what is given up has none.
            "holderIdentity": (!holder.is_empty()).then_some(holder),
            "leaseDurationSeconds": LEASE_DURATION.as_secs(),
            "renewTime": now,
            "leaseTransitions": transitions,
        });
        if *acquires && let Some(fields) = spec.as_object_mut() {
            fields.insert("acquireTime".to_owned(), Value::String(now));
        }
        let written = match replaces {
            Some(version) => server.merge(&place, &self.manager, &json!({"metadata": {"resourceVersion": version}, "spec": spec})).await,
            None => {
                let lease = json!({
                    "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": self.name}, "spec": spec,
                });
                server.create(&self.collection, &lease).await
            }
        };
        match written {
            Ok(lease) => Ok(Event::Written(record(&lease))),
            // Somebody has deleted it.
            Err(error) if error.is_absent() && replaces.is_some() => Ok(Event::Conflict),
            Err(error) => Err(error),
        }
    }
}

fn record(lease: &Value) -> Record {
    let field = |name: &str| lease.get("spec").and_then(|spec| spec.get(name));
    let seconds = field("leaseDurationSeconds").and_then(Value::as_u64);
    Record {
        holder: field("holderIdentity").and_then(Value::as_str).unwrap_or_default().to_owned(),
        duration: seconds.map_or(LEASE_DURATION, Duration::from_secs),
        transitions: field("leaseTransitions").and_then(Value::as_i64).and_then(|count| i32::try_from(count).ok()).unwrap_or_default(),
        version: lease.pointer("/metadata/resourceVersion").and_then(Value::as_str).unwrap_or_default().to_owned(),
    }
}
