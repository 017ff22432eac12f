// SPDX-License-Identifier: Apache-2.0
//! `vipherald uninstall`: takes an instance out of a cluster, its nodes first.
//!
//! Input: a client, the instance and its workload. Output: a line for each step that is done. The workload is deleted in the foreground, so that it is there,
//! marked, until the last of its pods has ended: each daemon reads of that why it is stopped, and drains its node. Only then what the instance has written goes:
//! its RouterNodes and its Leases. Invariants: what is gone already is no error, so that it may be done again; nothing is deleted by force.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use http::{Method, Request, header};
use kube::Client;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::install::is_passing;
use crate::api::INSTANCE_LABEL;

const PAUSE: Duration = Duration::from_millis(250);

/// The DaemonSet or StatefulSet of an instance. Reads and prints as `DaemonSet/NAMESPACE/NAME`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Workload {
    kind: &'static str,
    plural: &'static str,
    namespace: String,
    name: String,
}

/// Why a text is no workload.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("expected DaemonSet/NAMESPACE/NAME or StatefulSet/NAMESPACE/NAME")]
pub struct NoWorkload;

impl FromStr for Workload {
    type Err = NoWorkload;

    fn from_str(text: &str) -> Result<Self, NoWorkload> {
        let is_name = |name: &&str| !name.is_empty() && name.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.'));
        let mut parts = text.split('/');
        let (kind, plural) = match parts.next() {
            Some("DaemonSet") => ("DaemonSet", "daemonsets"),
            Some("StatefulSet") => ("StatefulSet", "statefulsets"),
            _ => return Err(NoWorkload),
        };
        let namespace = parts.next().filter(is_name).ok_or(NoWorkload)?.to_owned();
        let name = parts.next().filter(is_name).ok_or(NoWorkload)?.to_owned();
        if parts.next().is_some() { Err(NoWorkload) } else { Ok(Self { kind, plural, namespace, name }) }
    }
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.kind, self.namespace, self.name)
    }
}

/// Why an instance is not out of the cluster.
#[derive(Debug, thiserror::Error)]
pub enum UninstallError {
    /// The API server does not do it, or is not there.
    #[error("{what}")]
    Refused {
        /// Which step.
        what: String,
        /// What it says.
        #[source]
        source: Box<kube::Error>,
    },
    /// Pods have not ended. A node that is gone for good says nothing of them any more.
    #[error("{workload}: not ended within {}: {pods}; a pod whose node is gone for good is deleted by kubectl delete pod --force", humantime::format_duration(*patience))]
    StillThere {
        /// Of the instance.
        workload: Workload,
        /// How long was waited.
        patience: Duration,
        /// Each with its node.
        pods: String,
    },
}

/// Takes the instance out; `tell` gets a line for each step.
///
/// # Errors
/// The API server refuses a step, or pods have not ended within `patience`. What was told before is done.
pub async fn uninstall(
    client: &Client,
    instance: &str,
    workload: &Workload,
    patience: Duration,
    mut tell: impl FnMut(&str),
) -> Result<(), UninstallError> {
    let deadline = Instant::now() + patience;
    let Workload { plural, namespace, name, .. } = workload;
    let path = format!("/apis/apps/v1/namespaces/{namespace}/{plural}/{name}");
    delete(client, &path, "Foreground", &format!("delete {workload}"), deadline).await?;
    while ask(client, Method::GET, &path, None, &format!("read {workload}"), deadline).await?.is_some() {
        if Instant::now() >= deadline {
            let pods = pods(client, instance, namespace).await;
            return Err(UninstallError::StillThere { workload: workload.clone(), patience, pods });
        }
        sleep(PAUSE).await;
    }
    tell(&format!("{workload}: all of its pods have ended"));
    let selected = format!("/apis/vipherald.io/v1alpha1/routernodes?labelSelector={}%3D{instance}", INSTANCE_LABEL.replace('/', "%2F"));
    delete(client, &selected, "Background", "delete RouterNodes", deadline).await?;
    tell(&format!("RouterNodes of {instance}: deleted"));
    for lease in [instance.to_owned(), format!("{instance}.drain")] {
        let path = format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{lease}");
        delete(client, &path, "Background", &format!("delete Lease {namespace}/{lease}"), deadline).await?;
        tell(&format!("Lease {namespace}/{lease}: deleted"));
    }
    Ok(())
}

async fn delete(client: &Client, path: &str, propagation: &str, what: &str, deadline: Instant) -> Result<(), UninstallError> {
    let options = json!({"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": propagation});
    ask(client, Method::DELETE, path, Some(&options), what, deadline).await.map(drop)
}

/// Asks until there is an answer; `None` where there is no such thing.
async fn ask(
    client: &Client,
    method: Method,
    path: &str,
    body: Option<&Value>,
    what: &str,
    deadline: Instant,
) -> Result<Option<Value>, UninstallError> {
    loop {
        match once(client, &method, path, body).await {
            Ok(answer) => return Ok(Some(answer)),
            Err(kube::Error::Api(status)) if status.code == 404 => return Ok(None),
            Err(error) if is_passing(&error) && Instant::now() < deadline => sleep(PAUSE).await,
            Err(source) => return Err(UninstallError::Refused { what: what.to_owned(), source: source.into() }),
        }
    }
}

async fn once(client: &Client, method: &Method, path: &str, body: Option<&Value>) -> Result<Value, kube::Error> {
    let request = Request::builder().method(method).uri(path).header(header::CONTENT_TYPE, "application/json");
    let request = request.body(body.map(|body| body.to_string().into_bytes()).unwrap_or_default());
    client.request(request.map_err(kube::Error::HttpError)?).await
}

/// Which pods of an instance are there, and where. For an error that is on its way already, so that its own are no matter.
async fn pods(client: &Client, instance: &str, namespace: &str) -> String {
    let path = format!("/api/v1/namespaces/{namespace}/pods?labelSelector={}%3D{instance}", INSTANCE_LABEL.replace('/', "%2F"));
    let Ok(list) = once(client, &Method::GET, &path, None).await else { return "its pods cannot be read".to_owned() };
    let text = |value: Option<&Value>| value.and_then(Value::as_str).unwrap_or("no node").to_owned();
    let pod = |pod: &Value| {
        let name = text(pod.get("metadata").and_then(|metadata| metadata.get("name")));
        format!("{name} on {}", text(pod.get("spec").and_then(|spec| spec.get("nodeName"))))
    };
    let pods: Vec<String> = list.get("items").and_then(Value::as_array).into_iter().flatten().map(pod).collect();
    if pods.is_empty() { "it has no pods any more, and no garbage collector has noticed".to_owned() } else { pods.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_workload_is_read_as_it_prints() {
        for text in ["DaemonSet/networking/vipherald", "StatefulSet/a/b.c-0"] {
            assert_eq!(text.parse::<Workload>().map(|workload| workload.to_string()), Ok(text.to_owned()));
        }
        for text in ["", "DaemonSet", "DaemonSet/a", "DaemonSet/a/", "DaemonSet/a/b/c", "Deployment/a/b", "DaemonSet/a/b?x", "DaemonSet//b"]
        {
            assert_eq!(text.parse::<Workload>(), Err(NoWorkload), "{text}");
        }
    }
}
