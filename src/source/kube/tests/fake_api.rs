// SPDX-License-Identifier: Apache-2.0
//! A small API server for tests of faults: lists and watches of the kinds that are read, and every way to fail at it.
//!
//! Inputs: objects, and the [`Fault`] of the moment. Output: HTTP on a port of the loopback interface, and a kubeconfig for it. Watches begin at a version as
//! the real one's do, send the changes since, and break when told to.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::watch;

use crate::api::Kind;
use crate::source::kube::object::path;

/// What goes wrong.
#[derive(Clone, Copy, Debug)]
pub(super) enum Fault {
    /// Every request is answered so.
    Status(u16, &'static str),
    /// 429 and when to come again, in seconds.
    RetryAfter(u64),
    /// The answer breaks off.
    Close,
    /// Watches begin, then say this; lists are answered with 500.
    ErrorEvent(u16),
    /// Answers are no JSON.
    Garbage,
    /// Versions are forgotten, and lists are empty.
    EmptyLists,
}

#[derive(Default)]
struct Objects {
    version: u64,
    current: BTreeMap<(Kind, String), Value>,
    /// Every change: version, kind, type, object.
    log: Vec<(u64, Kind, &'static str, Value)>,
    /// Watches from before this version are gone.
    forgotten: u64,
    fault: Option<Fault>,
    faults: BTreeMap<Kind, Fault>,
}

struct Shared {
    objects: Mutex<Objects>,
    /// The version, and how often watches were broken.
    changed: watch::Sender<(u64, u64)>,
    events: AtomicU64,
    /// Answers that were wrong.
    failed: AtomicU64,
}

/// See the module.
pub(super) struct FakeApi {
    shared: Arc<Shared>,
    directory: TempDir,
}

impl FakeApi {
    pub(super) async fn start() -> Self {
        let shared = Arc::new(Shared {
            objects: Mutex::default(),
            changed: watch::channel((0, 0)).0,
            events: AtomicU64::new(0),
            failed: AtomicU64::new(0),
        });
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = format!("http://{}", listener.local_addr().unwrap());
        let router = Router::new().fallback(answer).with_state(Arc::clone(&shared));
        tokio::spawn(async move { axum::serve(listener, router).await });
        let directory = tempfile::tempdir().unwrap();
        let kubeconfig = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{"name": "c", "cluster": {"server": server}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "users": [{"name": "u", "user": {}}],
        });
        std::fs::write(directory.path().join("kubeconfig"), kubeconfig.to_string()).unwrap();
        Self { shared, directory }
    }

    pub(super) fn kubeconfig(&self) -> PathBuf {
        self.directory.path().join("kubeconfig")
    }

    pub(super) fn put(&self, kind: Kind, object: Value) {
        self.change(|objects| {
            let mut object = object;
            let name = object["metadata"]["name"].as_str().unwrap().to_owned();
            object["metadata"]["resourceVersion"] = json!(objects.version.to_string());
            let event = if objects.current.insert((kind, name), object.clone()).is_some() { "MODIFIED" } else { "ADDED" };
            objects.log.push((objects.version, kind, event, object));
        });
    }

    pub(super) fn remove(&self, kind: Kind, name: &str) {
        self.change(|objects| {
            let mut object = objects.current.remove(&(kind, name.to_owned())).unwrap();
            object["metadata"]["resourceVersion"] = json!(objects.version.to_string());
            objects.log.push((objects.version, kind, "DELETED", object));
        });
    }

    /// Removes all objects of a kind behind the back of every watch.
    pub(super) fn forget(&self, kind: Kind) {
        self.change(|objects| {
            objects.current.retain(|(other, _), _| *other != kind);
            objects.forgotten = objects.version;
        });
        self.break_watches();
    }

    pub(super) fn fail(&self, fault: Option<Fault>) {
        let mut objects = self.shared.objects.lock().unwrap();
        objects.fault = fault;
        if matches!(fault, Some(Fault::EmptyLists)) {
            objects.version += 1;
            objects.forgotten = objects.version;
        }
    }

    pub(super) fn fail_kind(&self, kind: Kind, fault: Option<Fault>) {
        let mut objects = self.shared.objects.lock().unwrap();
        match fault {
            Some(fault) => drop(objects.faults.insert(kind, fault)),
            None => drop(objects.faults.remove(&kind)),
        }
    }

    pub(super) fn break_watches(&self) {
        self.shared.changed.send_modify(|(_, broken)| *broken += 1);
    }

    /// Until watches have been sent so many events.
    pub(super) async fn until_sent(&self, events: u64) {
        until(&self.shared.events, events, "the events are not asked for").await;
    }

    /// How many requests have been answered wrongly.
    pub(super) fn failed(&self) -> u64 {
        self.shared.failed.load(Ordering::Relaxed)
    }

    /// Until so many have been.
    pub(super) async fn until_failed(&self, requests: u64) {
        until(&self.shared.failed, requests, "nobody asks").await;
    }

    fn change(&self, change: impl FnOnce(&mut Objects)) {
        let version = {
            let mut objects = self.shared.objects.lock().unwrap();
            objects.version += 1;
            change(&mut objects);
            objects.version
        };
        self.shared.changed.send_modify(|(current, _)| *current = version);
    }
}

async fn until(counter: &AtomicU64, count: u64, otherwise: &str) {
    let begun = std::time::Instant::now();
    while counter.load(Ordering::Relaxed) < count {
        assert!(begun.elapsed() < std::time::Duration::from_secs(20), "{otherwise}");
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
}

async fn answer(State(shared): State<Arc<Shared>>, uri: Uri) -> Response {
    let pairs = uri.query().unwrap_or_default().split('&').filter_map(|pair| pair.split_once('='));
    let query: BTreeMap<&str, &str> = pairs.collect();
    let Some(kind) = Kind::ALL.into_iter().find(|kind| path(*kind) == uri.path()) else {
        return status(404, "no such path");
    };
    let fault = {
        let objects = shared.objects.lock().unwrap();
        objects.faults.get(&kind).copied().or(objects.fault)
    };
    let watches = query.contains_key("watch");
    if fault.is_some_and(|fault| !watches || !matches!(fault, Fault::EmptyLists)) {
        shared.failed.fetch_add(1, Ordering::Relaxed);
    }
    match fault {
        Some(Fault::Status(code, message)) => status(code, message),
        Some(Fault::RetryAfter(seconds)) => ([("retry-after", seconds.to_string())], status(429, "busy")).into_response(),
        Some(Fault::Close) => {
            let parts = stream::iter([Ok(Bytes::from_static(b"{")), Err(std::io::Error::other("closed"))]);
            Body::from_stream(parts).into_response()
        }
        Some(Fault::ErrorEvent(code)) if watches => {
            let status = json!({"kind": "Status", "code": code, "message": "told in the watch"});
            format!("{}\n", json!({"type": "ERROR", "object": status})).into_response()
        }
        Some(Fault::ErrorEvent(_)) => status(500, "no list either"),
        Some(Fault::Garbage) => "<html>a proxy\n".into_response(),
        Some(Fault::EmptyLists) if !watches => list(&shared, kind, true),
        Some(Fault::EmptyLists) | None if watches => follow(shared, kind, query["resourceVersion"].parse().unwrap()),
        Some(Fault::EmptyLists) | None => list(&shared, kind, false),
    }
}

fn status(code: u16, message: &str) -> Response {
    let body = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "message": message});
    (StatusCode::from_u16(code).unwrap(), body.to_string()).into_response()
}

fn list(shared: &Shared, kind: Kind, empty: bool) -> Response {
    let objects = shared.objects.lock().unwrap();
    let items: Vec<&Value> = objects.current.iter().filter(|((found, _), _)| *found == kind && !empty).map(|(_, object)| object).collect();
    json!({"metadata": {"resourceVersion": objects.version.to_string()}, "items": items}).to_string().into_response()
}

/// The changes of a kind since a version, until watches are broken.
fn follow(shared: Arc<Shared>, kind: Kind, from: u64) -> Response {
    if from < shared.objects.lock().unwrap().forgotten {
        return status(410, "too old resource version");
    }
    let changed = shared.changed.subscribe();
    let broken = changed.borrow().1;
    let events = stream::unfold((shared, changed, from), move |(shared, mut changed, from)| async move {
        loop {
            if changed.borrow_and_update().1 != broken {
                return None;
            }
            let (text, version) = {
                let objects = shared.objects.lock().unwrap();
                let new = objects.log.iter().filter(|(version, found, ..)| *version > from && *found == kind);
                let lines: Vec<String> =
                    new.map(|(_, _, event, object)| format!("{}\n", json!({"type": event, "object": object}))).collect();
                shared.events.fetch_add(lines.len() as u64, Ordering::Relaxed);
                (lines.concat(), objects.version)
            };
            if !text.is_empty() {
                return Some((Ok::<_, Infallible>(Bytes::from(text)), (shared, changed, version)));
            }
            if changed.changed().await.is_err() {
                return None;
            }
        }
    });
    Body::from_stream(events).into_response()
}
