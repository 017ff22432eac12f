// SPDX-License-Identifier: Apache-2.0
//! Reads the RouterNode objects of an instance, and follows them while this node holds the Lease.
//!
//! Input: the API server. Output: [`Reported`]: the status of each by the name of its Node, `None` before the first list. Errors take nothing away; after one
//! the list is read again.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::StreamExt as _;
use http::Request;
use kube::core::WatchEvent;
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::timeout;

use super::node::router_nodes;
use super::pace::Pace;
use super::request::{ApiServer, RequestError, of_client};
use crate::api::{INSTANCE_LABEL, RouterNodeStatus};
use crate::source::kube::Access;
use crate::telemetry::chain;

/// The server ends a watch after so long; one that is silent for longer is broken.
const WATCH_TIME: Duration = Duration::from_secs(45);
const GRACE: Duration = Duration::from_secs(5);

/// A server that ends watches at once is not asked more often.
const SHORTEST_TURN: Duration = Duration::from_secs(2);

/// By Node.
pub(super) type NodeReports = BTreeMap<String, RouterNodeStatus>;

/// What is known.
#[derive(Clone, Debug, Default)]
pub(super) struct Reported {
    /// `None` before the first list.
    pub(super) nodes: Option<Arc<NodeReports>>,
    /// Why they cannot be read; those before are used.
    pub(super) trouble: Option<String>,
}

/// Follows them until nobody takes part any more.
pub(super) async fn follow(access: Access, instance: String, reported: watch::Sender<Reported>, seed: u64) {
    let server = ApiServer::new(access);
    let mut pace = Pace::new(Instant::now(), seed);
    loop {
        let began = Instant::now();
        match once(&server, &instance, &reported).await {
            Ok(()) => {
                pace.succeeded();
                pace.not_before(began + SHORTEST_TURN);
            }
            Err(error) => {
                let trouble = Some(chain(&error));
                if reported.borrow().trouble != trouble {
                    tracing::warn!(error = trouble, "the reports of other nodes cannot be read; those before are used");
                    reported.send_modify(|reported| reported.trouble = trouble);
                }
                pace.failed(Instant::now(), error.retry_after());
            }
        }
        tokio::select! {
            () = tokio::time::sleep_until(pace.next().into()) => {}
            () = reported.closed() => return,
        }
    }
}

/// All as they are now, read with a quorum, and the version of the list.
pub(super) async fn read(server: &ApiServer, instance: &str) -> Result<(NodeReports, String), RequestError> {
    let (reports, version) = server.list(&router_nodes(), &selector(instance), report).await?;
    Ok((reports.into_iter().collect(), version))
}

/// Those of this instance.
fn selector(instance: &str) -> String {
    format!("&labelSelector={}%3D{instance}", INSTANCE_LABEL.replace('/', "%2F"))
}

/// A list, and one watch from there.
async fn once(server: &ApiServer, instance: &str, reported: &watch::Sender<Reported>) -> Result<(), RequestError> {
    let (place, selector) = (router_nodes(), selector(instance));
    let (mut reports, version) = read(server, instance).await?;
    let tell = |reports: &NodeReports, trouble: Option<String>| {
        reported.send_replace(Reported { nodes: Some(Arc::new(reports.clone())), trouble });
    };
    // Whether it can be watched is not known yet.
    let trouble = reported.borrow().trouble.clone();
    tell(&reports, trouble);
    let client = server.client("watch", &place.resource).await?;
    let uri = format!("{}?watch=true&timeoutSeconds={}&resourceVersion={version}{selector}", place.path, WATCH_TIME.as_secs());
    let refused = |error| of_client(error, "watch", place.resource.clone());
    let request = Request::get(uri).body(Vec::new());
    let request =
        request.map_err(|source| RequestError::Unreachable { verb: "watch", resource: place.resource.clone(), source: source.into() })?;
    let mut events = Box::pin(client.request_events::<Value>(request).await.map_err(refused)?);
    tell(&reports, None);
    while let Ok(Some(event)) = timeout(WATCH_TIME + GRACE, events.next()).await {
        match event.map_err(refused)? {
            WatchEvent::Added(object) | WatchEvent::Modified(object) => reports.extend(report(&object)),
            WatchEvent::Deleted(object) => drop(report(&object).and_then(|(node, _)| reports.remove(&node))),
            WatchEvent::Bookmark(_) => continue,
            WatchEvent::Error(status) => return Err(refused(kube::Error::Api(status))),
        }
        tell(&reports, None);
    }
    Ok(())
}

/// The name of the Node and what is said of it; nothing before it says something.
fn report(object: &Value) -> Option<(String, RouterNodeStatus)> {
    let status: RouterNodeStatus = serde_json::from_value(object.get("status")?.clone()).ok()?;
    (!status.node.is_empty()).then(|| (status.node.clone(), status))
}
