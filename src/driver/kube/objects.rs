// SPDX-License-Identifier: Apache-2.0
//! Writes what is said on the objects that all nodes share, while this node holds the Lease.
//!
//! Inputs: the objects and what this node makes of them, what all nodes report, the configuration. Output: status subresources in the API, and Events of
//! what changed. Invariants: what the API server holds already is not written again; what is to be written is never queued, but found anew by comparing, so that
//! it is bounded by the number of objects and always the newest; an address is given only after everything that was given before has been read.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::pin::pin;
use std::time::{Duration, Instant, SystemTime};

use futures_util::{StreamExt as _, stream};
use serde_json::{Value, json};

use super::events::News;
use super::request::{ApiServer, Place, RequestError};
use crate::api::{Kind, ObjectRef};
use crate::config::Config;
use crate::desired::allocation::{Records, allocate};
use crate::desired::{Compiled, Rejection, Subject, recorded_addresses};
use crate::source::Snapshot;
use crate::status::{Difference, Facts, KINDS, ObjectStatus, Reports, Stored, Time, Truth, Verdict, difference, object_statuses};
use crate::telemetry::chain;

/// What the API server holds is read again so often: somebody else may have written it.
const RESYNC: Duration = Duration::from_secs(600);

/// After somebody else wrote in between, or has what looks like ours, it is read again so soon.
const REREAD: Duration = Duration::from_secs(5);

/// Where it is read in vain, each time after twice as long, so many times.
const LONGEST_DOUBT: u32 = 6;

/// What a right is missing for, or a field of the definition, is tried again so often.
const DENIED_PAUSE: Duration = Duration::from_secs(60);

/// So many requests are under way at most: the server has others to serve.
const AT_A_TIME: usize = 8;

/// After so long of writing it is looked for what has changed meanwhile.
const STRETCH: Duration = Duration::from_secs(1);

/// All that is to be said now.
pub(super) struct Wanted<'a> {
    pub(super) snapshot: &'a Snapshot,
    pub(super) compiled: &'a Compiled,
    pub(super) config: &'a Config,
    pub(super) reports: &'a Reports,
}

/// How a pass ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Pass {
    /// All is as it is to be, as far as rights go.
    Done,
    /// There is more to write.
    More,
}

/// See the module.
pub(super) struct ObjectWriter {
    instance: String,
    node: String,
    /// What the API server holds; read again after this.
    stored: BTreeMap<ObjectRef, Stored>,
    stale_at: Instant,
    /// How often it was read while the snapshot had other addresses.
    doubts: u32,
    /// The objects of the last pass.
    seen: BTreeMap<ObjectRef, Seen>,
    /// Rights that are missing, and when they are tried again.
    denied: BTreeMap<String, Instant>,
    /// Resources whose definitions are older than this program, what the API server says of that, and when they are tried again.
    outdated: BTreeMap<String, (String, Instant)>,
    /// Objects that cannot be written as they are, and what was tried: nothing else is tried again before all is read again.
    refused: BTreeMap<ObjectRef, Option<ObjectStatus>>,
    /// Rejections on objects that have no status of ours, which were told.
    told: BTreeSet<Rejection>,
}

impl ObjectWriter {
    pub(super) fn new(instance: &str, node: &str) -> Self {
        Self {
            instance: instance.to_owned(),
            node: node.to_owned(),
            stored: BTreeMap::new(),
            stale_at: Instant::now(),
            doubts: 0,
            seen: BTreeMap::new(),
            denied: BTreeMap::new(),
            outdated: BTreeMap::new(),
            refused: BTreeMap::new(),
            told: BTreeSet::new(),
        }
    }

    /// The rights that are missing, in words.
    pub(super) fn denied(&self) -> Vec<String> {
        self.denied.keys().cloned().collect()
    }

    /// Which definitions have no field for what is to be said.
    pub(super) fn outdated(&self) -> Vec<String> {
        self.outdated.values().map(|(message, _)| message.clone()).collect()
    }

    /// When the next pass is due though nothing has changed.
    pub(super) fn deadline(&self) -> Instant {
        let held = self.denied.values().chain(self.outdated.values().map(|(_, until)| until));
        held.copied().chain([self.stale_at]).min().unwrap_or(self.stale_at)
    }

    /// Writes what differs, as long as `may_write` and not for longer than a [`STRETCH`].
    pub(super) async fn pass(
        &mut self,
        server: &ApiServer,
        wanted: &Wanted<'_>,
        may_write: impl Fn() -> bool,
    ) -> Result<Pass, RequestError> {
        let began = Instant::now();
        self.denied.retain(|_, until| *until > began);
        self.outdated.retain(|_, (_, until)| *until > began);
        if self.stale_at <= began {
            self.read_all(server).await?;
        }
        self.compare_with(wanted.snapshot);
        let now = Time::from(SystemTime::now());
        let orders: Vec<Order> = self.differences(wanted, now).into_iter().filter_map(|differing| self.order(differing)).collect();
        let goes_on = || may_write() && began.elapsed() <= STRETCH;
        if self.write(server, orders, goes_on).await? == Pass::More {
            return Ok(Pass::More);
        }
        self.tell(server, &wanted.compiled.rejections, &may_write).await?;
        Ok(Pass::Done)
    }

    /// What is gone since the last pass, or is another object of the same name by now, holds nothing any more. An address of a load balancer that somebody
    /// else has written or taken away is a reason to read what is there.
    fn compare_with(&mut self, snapshot: &Snapshot) {
        let objects = objects(snapshot);
        self.stored.retain(|object, stored| match (objects.get(object), self.seen.get(object)) {
            (Some(now), _) => now.uid.is_none() || stored.uid.is_none() || now.uid == stored.uid,
            (None, seen) => seen.is_none(),
        });
        let differs =
            |(object, now): (&ObjectRef, &Seen)| self.stored.get(object).is_some_and(|stored| stored.addresses() != now.addresses);
        if objects.iter().any(differs) {
            // It may also be the snapshot that is behind.
            self.read_again_in(REREAD.saturating_mul(1 << self.doubts.min(LONGEST_DOUBT)));
        } else {
            self.doubts = 0;
        }
        self.seen = objects;
    }

    fn read_again_in(&mut self, pause: Duration) {
        self.stale_at = self.stale_at.min(Instant::now() + pause);
    }

    async fn read_all(&mut self, server: &ApiServer) -> Result<(), RequestError> {
        let mut stored = BTreeMap::new();
        for kind in KINDS {
            let read = |item: &Value| Some((name(kind, item)?, Stored::read(kind, item, &self.instance)));
            match server.list(&Place::list(kind), "", read).await {
                Ok((items, _)) => stored.extend(items),
                // Its CRD is not there.
                Err(error) if error.is_absent() => {}
                Err(error) => return Err(self.deny(error)),
            }
        }
        self.stored = stored;
        self.doubts += 1;
        self.stale_at = Instant::now() + RESYNC;
        self.refused.clear();
        Ok(())
    }

    /// What has to be written, in the order of the objects.
    fn differences(&self, wanted: &Wanted<'_>, now: Time) -> Vec<(ObjectRef, Option<ObjectStatus>, Difference)> {
        let Wanted { snapshot, compiled, config, reports } = *wanted;
        // The snapshot may be older than what was written a moment ago.
        let services = self.stored.iter().filter(|(object, _)| object.kind == Kind::Service);
        let records: Records = services.map(|(object, stored)| (object.clone(), stored.addresses())).collect();
        let in_force = snapshot.with(&compiled.kept);
        let mut assignments = allocate(&in_force, config, compiled, &records);
        if !snapshot.complete {
            // Who is not known may have what looks free.
            for (object, assignment) in &mut assignments {
                let had = records.get(object).map(Vec::as_slice).unwrap_or_default();
                assignment.addresses.retain(|address| had.contains(address));
            }
        }
        let mut statuses = object_statuses(&Facts { snapshot, scope: &config.scope, compiled, assignments: &assignments, reports });
        let ip_mode = if config.dataplane.balances() { "Proxy" } else { "VIP" };
        let nothing = Stored::default();
        let names: BTreeSet<&ObjectRef> = statuses.keys().chain(self.stored.keys()).collect();
        let differing = names.into_iter().filter_map(|object| {
            let stored = self.stored.get(object).unwrap_or(&nothing);
            // What is gone, or another object of this name since, has nothing to be written on.
            let wanted = statuses.get(object);
            let is_there = wanted.is_some() || (snapshot.complete && self.seen.contains_key(object));
            let difference = is_there.then(|| difference(object.kind, stored, wanted, ip_mode, now)).flatten()?;
            (self.refused.get(object).map(Option::as_ref) != Some(wanted)).then(|| (object.clone(), difference))
        });
        let differing: Vec<_> = differing.collect();
        differing.into_iter().map(|(object, difference)| (object.clone(), statuses.remove(&object), difference)).collect()
    }

    /// What is to be asked of the server; `None` where the right to is missing.
    fn order(&self, (object, wanted, difference): (ObjectRef, Option<ObjectStatus>, Difference)) -> Option<Order> {
        let place = Place::object(&object).status();
        if self.denied.contains_key(&format!("may not patch {}", place.resource)) || self.outdated.contains_key(&place.resource) {
            return None;
        }
        let uid = wanted.as_ref().and_then(|wanted| wanted.uid.clone());
        let mut metadata = json!({"name": object.name, "namespace": object.namespace});
        if let (Some(uid), Some(fields)) = (&uid, metadata.as_object_mut()) {
            // Refused where another object has the name by now.
            fields.insert("uid".to_owned(), json!(uid));
        }
        let mut body = json!({"apiVersion": object.kind.api_version(), "kind": object.kind.name(), "metadata": metadata});
        if let Some(fields) = body.as_object_mut().filter(|_| !difference.status.is_null()) {
            fields.insert("status".to_owned(), difference.status);
        }
        let may_tell = !self.denied.contains_key(&format!("may not create {}", News::RESOURCE));
        let transitions = difference.transitions.iter().filter(|_| may_tell);
        let news = transitions.map(|verdict| news(&object, uid.clone(), verdict)).collect();
        Some(Order { object, wanted, place, body, news })
    }

    /// Carries orders out, some at a time, as long as it `goes_on` and the server takes what it is given.
    async fn write(&mut self, server: &ApiServer, orders: Vec<Order>, goes_on: impl Fn() -> bool) -> Result<Pass, RequestError> {
        let (instance, node) = (self.instance.clone(), self.node.clone());
        let (count, refused) = (orders.len(), Cell::new(false));
        let orders = orders.into_iter().take_while(|_| !refused.get() && goes_on());
        let answers = stream::iter(orders).map(async |order| {
            let answer = order.carry_out(server, &instance, &node).await;
            (order, answer)
        });
        let mut answers = pin!(answers.buffer_unordered(AT_A_TIME));
        let (mut done, mut failure) = (0, None);
        while let Some((order, answer)) = answers.next().await {
            match self.settle(order, answer) {
                Ok(true) => done += 1,
                Ok(false) => refused.set(true),
                Err(error) => {
                    refused.set(true);
                    failure = Some(error);
                }
            }
        }
        failure.map_or(Ok(if done == count { Pass::Done } else { Pass::More }), Err)
    }

    /// Keeps what the server has now. False where a right is missing, or a field of the definition.
    fn settle(&mut self, order: Order, answer: Answer) -> Result<bool, RequestError> {
        let Order { object, wanted, .. } = order;
        match answer {
            Ok((stored, told)) => {
                self.stored.insert(object.clone(), Stored::read(object.kind, &stored, &self.instance));
                self.refused.remove(&object);
                told.map(|()| true).or_else(|error| self.survive(error).map(|()| false))
            }
            Err(error) if error.is_about_the_object() => {
                if error.is_conflict() {
                    self.read_again_in(REREAD);
                } else if error.is_absent() {
                    self.stored.remove(&object);
                } else {
                    tracing::warn!(%object, error = %chain(&error), "its status cannot be written as it is to be");
                }
                self.refused.insert(object, wanted);
                Ok(true)
            }
            Err(error) => self.survive(error).map(|()| false),
        }
    }

    /// Events of what takes no part and has no status of ours to say so.
    async fn tell(&mut self, server: &ApiServer, rejections: &[Rejection], may_write: impl Fn() -> bool) -> Result<(), RequestError> {
        self.told.retain(|told| rejections.contains(told));
        for rejection in rejections {
            let Subject::Object { object, .. } = &rejection.subject else { continue };
            if self.seen.contains_key(object) || !may_write() || !self.told.insert(rejection.clone()) {
                continue;
            }
            let news = News {
                object: object.clone(),
                uid: None,
                is_warning: true,
                action: "Rejected".to_owned(),
                reason: format!("{:?}", rejection.reason),
                note: rejection.message.clone(),
            };
            self.announce(server, &news, "").await?;
        }
        Ok(())
    }

    async fn announce(&mut self, server: &ApiServer, news: &News, moment: &str) -> Result<(), RequestError> {
        if self.denied.contains_key(&format!("may not create {}", News::RESOURCE)) {
            return Ok(());
        }
        announce(server, news, &self.instance, &self.node, moment).await.or_else(|error| self.survive(error))
    }

    /// A right that is missing, or a definition that is too old, keeps nothing else from being written.
    fn survive(&mut self, error: RequestError) -> Result<(), RequestError> {
        match error {
            RequestError::Forbidden { .. } => {
                drop(self.deny(error));
                Ok(())
            }
            RequestError::Outdated { ref resource, .. } => {
                let message = chain(&error);
                if self.outdated.insert(resource.clone(), (message.clone(), Instant::now() + DENIED_PAUSE)).is_none() {
                    tracing::error!(error = message, "a definition is too old; all else goes on");
                }
                Ok(())
            }
            error => Err(error),
        }
    }

    fn deny(&mut self, error: RequestError) -> RequestError {
        if let Some(right) = error.missing_right()
            && self.denied.insert(right, Instant::now() + DENIED_PAUSE).is_none()
        {
            tracing::error!(error = %chain(&error), "a right is missing; all else goes on");
        }
        error
    }
}

/// What is to be written on one object.
struct Order {
    object: ObjectRef,
    /// What is said of it then.
    wanted: Option<ObjectStatus>,
    place: Place,
    body: Value,
    /// What is new in that.
    news: Vec<News>,
}

/// What the server holds then, and whether what is new could be told.
type Answer = Result<(Value, Result<(), RequestError>), RequestError>;

impl Order {
    async fn carry_out(&self, server: &ApiServer, instance: &str, node: &str) -> Answer {
        let stored = server.apply(&self.place, instance, &self.body).await?;
        let version = stored.pointer("/metadata/resourceVersion").and_then(Value::as_str).unwrap_or_default();
        let mut told = Ok(());
        for news in &self.news {
            if told.is_ok() {
                told = announce(server, news, instance, node, version).await;
            }
        }
        Ok((stored, told))
    }
}

async fn announce(server: &ApiServer, news: &News, instance: &str, node: &str, moment: &str) -> Result<(), RequestError> {
    match server.create(&news.place(), &news.event(instance, node, moment)).await {
        Ok(_) => Ok(()),
        // It was told already, or the namespace is on its way out.
        Err(error) if error.is_about_the_object() => Ok(()),
        Err(error) => Err(error),
    }
}

/// What a snapshot has of an object on which something may be said.
struct Seen {
    uid: Option<String>,
    /// `status.loadBalancer` of a Service.
    addresses: Vec<IpAddr>,
}

fn objects(snapshot: &Snapshot) -> BTreeMap<ObjectRef, Seen> {
    let services = snapshot.services.iter().map(|(name, service)| (name, &service.metadata, recorded_addresses(service)));
    let ericingresses = snapshot.eric_ingresses.iter().map(|(name, ingress)| (name, &ingress.metadata, Vec::new()));
    let lvsingresses = snapshot.lvs_ingresses.iter().map(|(name, ingress)| (name, &ingress.metadata, Vec::new()));
    let all = services.chain(ericingresses).chain(lvsingresses);
    all.map(|(name, metadata, addresses)| (name.clone(), Seen { uid: metadata.uid.clone(), addresses })).collect()
}

fn name(kind: Kind, object: &Value) -> Option<ObjectRef> {
    let word = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).map(ToOwned::to_owned);
    Some(ObjectRef { kind, namespace: word("/metadata/namespace").unwrap_or_default(), name: word("/metadata/name")? })
}

fn news(object: &ObjectRef, uid: Option<String>, verdict: &Verdict) -> News {
    News {
        object: object.clone(),
        uid,
        is_warning: verdict.status == Truth::False,
        action: verdict.kind.to_owned(),
        reason: verdict.reason.clone(),
        note: verdict.message.clone(),
    }
}
