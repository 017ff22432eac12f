// SPDX-License-Identifier: Apache-2.0
//! What SIGTERM is for, as the API server has it at that moment.
//!
//! Inputs: the configuration, and what is known of the objects. Output: the [`Termination`]. A pod gets SIGTERM because a Node or a workload has changed, and
//! may get it before it hears of that change; so where nothing known says that the node is to leave, the server is asked once more. Invariants: it is
//! asked for a bounded time; one that does not answer is no evidence; the node leaves only where two answers say so.

use std::time::Duration;

use tokio::time::timeout;

use crate::api::Kind;
use crate::config::{Config, OnTermination};
use crate::desired::{Lifecycle, Termination, termination};
use crate::source::Snapshot;
use crate::source::kube::{Access, read_now};

/// How long the server has for its answers, of the grace period of the pod.
const PATIENCE: Duration = Duration::from_secs(3);
/// What the decision depends on.
const KINDS: [Kind; 3] = [Kind::Node, Kind::DaemonSet, Kind::StatefulSet];

/// Who can be asked.
#[derive(Clone, Debug)]
pub(super) struct Purpose {
    /// The API server, where objects come from one.
    pub(super) access: Option<Access>,
}

impl Purpose {
    /// What a stop now is for.
    pub(super) async fn of_stop(&self, config: &Config, known: Option<&Snapshot>) -> Termination {
        let as_known = termination(config, known);
        let is_restart = config.on_termination == OnTermination::Auto && as_known.lifecycle == Lifecycle::Keep;
        let Some(access) = self.access.as_ref().filter(|_| is_restart) else { return as_known };
        match timeout(PATIENCE, ask(access, config)).await {
            Ok(Some(departure)) => departure,
            Ok(None) => as_known,
            Err(_) => {
                tracing::warn!("the API server does not say what the stop is for: what was known before decides");
                as_known
            }
        }
    }
}

/// A drain, if two answers say so.
async fn ask(access: &Access, config: &Config) -> Option<Termination> {
    let mut departure = None;
    for _ in 0..2 {
        let now = read_now(access, &KINDS).await.inspect_err(|error| {
            tracing::warn!(%error, "the API server does not say what the stop is for: what was known before decides");
        });
        departure = Some(termination(config, Some(&now.ok()?))).filter(|found| found.lifecycle == Lifecycle::Drain);
        departure.as_ref()?;
    }
    departure
}
