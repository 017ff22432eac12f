// SPDX-License-Identifier: Apache-2.0
//! What is written to the Kubernetes API: the RouterNode of this node and, on the node that holds the Lease of the instance, the status of what all nodes share.
//! Nodes that are to drain take turns here, too.
//!
//! Inputs: the way to the API server, and what the loop makes of objects and kernel. Output: objects in the API. Invariants: it runs on a thread of its own
//! and nobody waits for it; what it says may lag; an API server that is away, or refuses, changes nothing on the node.

mod drain;
mod election;
mod events;
mod label;
mod lease;
mod node;
mod objects;
mod pace;
mod reports;
mod request;

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use k8s_openapi::api::core::v1::Node;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::{sleep_until, timeout};

use self::drain::Drainer;
use self::label::NodeLabel;
use self::lease::Lease;
use self::node::{NodeWriter, OwnWords};
use self::objects::{ObjectWriter, Pass, Wanted};
use self::pace::Pace;
use self::reports::{NodeReports, Reported, follow};
use self::request::{ApiServer, RequestError};
use crate::api::{Kind, ObjectRef, RouterNodeVirtualRouter};
use crate::config::InForce;
use crate::desired::{Asked, Compiled, DesiredTransport, KnownPeers, NodeDrain, asked};
use crate::driver::vrrp::sources;
use crate::source::kube::Access;
use crate::source::{Snapshot, Snapshots};
use crate::status::{NodeStatus, Phase, Reports, SourceState, Time, VipState, is_heard};
use crate::telemetry::chain;

/// Changes that come together are written together.
const SETTLE: Duration = Duration::from_millis(200);

/// What this node says of itself is looked at so often though nothing has changed: somebody may have deleted it.
const RESYNC: Duration = Duration::from_secs(300);

/// The API server counts as lost in what this node says of itself once it has been for so long. Where a definition is changed the server ends its watches, and
/// is not ready for new ones for some seconds.
const LOST: Duration = Duration::from_secs(10);

/// The last words of a node that leaves.
const FAREWELL: Duration = Duration::from_secs(5);

/// What the loop makes of objects and kernel.
#[derive(Clone, Debug)]
pub struct NodeView {
    /// The intent in force; `None` before the first.
    pub compiled: Option<Arc<Compiled>>,
    /// All that this node says of itself.
    pub status: Arc<NodeStatus>,
}

/// What a [`Publisher`] is made of.
#[derive(Debug)]
pub struct Sources {
    /// The way to the API server.
    pub access: Access,
    /// The namespace of the Lease.
    pub namespace: String,
    /// The configuration in force.
    pub config: watch::Receiver<Arc<InForce>>,
    /// The objects.
    pub snapshots: Snapshots,
    /// What the loop makes of them; `None` before it has looked.
    pub view: watch::Receiver<Option<NodeView>>,
    /// What is told of all that.
    pub told: Told,
    /// For jitter.
    pub seed: u64,
}

/// What a [`Publisher`] tells the daemon.
#[derive(Debug)]
pub struct Told {
    /// What cannot be written, and why, for who asks this node.
    pub troubles: watch::Sender<Arc<Vec<String>>>,
    /// Whether VIPs leave this node while it goes on, for the loop.
    pub node_drain: watch::Sender<NodeDrain>,
    /// From where the other nodes advertise as virtual routers, as was known last, for the loop.
    pub peers: watch::Sender<KnownPeers>,
}

/// The running thread.
#[derive(Debug)]
pub struct Publisher {
    stop: Option<oneshot::Sender<()>>,
    stopped: oneshot::Receiver<()>,
}

impl Publisher {
    /// Starts it.
    ///
    /// # Errors
    /// The system has no thread left.
    pub fn spawn(sources: Sources) -> io::Result<Self> {
        let (stop, stopping) = oneshot::channel();
        let (done, stopped) = oneshot::channel();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        thread::Builder::new().name("kube-writer".to_owned()).spawn(move || {
            runtime.block_on(Task::new(sources).run(stopping));
            drop(done);
        })?;
        Ok(Self { stop: Some(stop), stopped })
    }

    /// Says that this node leaves, and gives the Lease up; does not wait long for an API server that does not answer.
    pub async fn stop(mut self) {
        drop(self.stop.take());
        if timeout(FAREWELL, &mut self.stopped).await.is_err() {
            tracing::warn!("the API server was not told that this node leaves");
        }
    }
}

/// The two writers and when each may write.
struct Task {
    sources: Sources,
    server: ApiServer,
    lease: Lease,
    node: NodeWriter,
    node_pace: Pace,
    node_due: bool,
    node_resync: Instant,
    node_trouble: Option<String>,
    /// Since when the API server is not followed, as far as was seen here.
    lost_since: Option<Instant>,
    /// Whether that counts.
    is_lost: bool,
    drainer: Drainer,
    label: NodeLabel,
    /// From where this node advertises as a virtual router.
    routers: Vec<RouterNodeVirtualRouter>,
    /// While somebody has to know of the other nodes.
    following: Option<Following>,
    /// While the Lease is held.
    objects: Option<Office>,
}

/// What the other nodes say.
struct Following {
    reports: watch::Receiver<Reported>,
    follower: JoinHandle<()>,
}

impl Drop for Following {
    fn drop(&mut self) {
        self.follower.abort();
    }
}

/// What the holder of the Lease has.
struct Office {
    writer: ObjectWriter,
    pace: Pace,
    due: bool,
    trouble: Option<String>,
}

impl Task {
    fn new(sources: Sources) -> Self {
        let config = Arc::clone(&sources.config.borrow().config);
        let now = Instant::now();
        Self {
            server: ApiServer::new(sources.access.clone()),
            lease: Lease::new(&sources.namespace, &config.instance, &config.node_name),
            node: NodeWriter::new(&config.instance, &config.node_name),
            node_pace: Pace::new(now, sources.seed),
            node_due: true,
            node_resync: now + RESYNC,
            node_trouble: None,
            lost_since: None,
            is_lost: false,
            drainer: Drainer::new(&sources.namespace, &config.instance, &config.node_name, sources.told.node_drain.clone()),
            label: NodeLabel::new(&config.instance, sources.seed),
            routers: Vec::new(),
            following: None,
            objects: None,
            sources,
        }
    }

    async fn run(mut self, mut stopping: oneshot::Receiver<()>) {
        while !self.sleep(&mut stopping).await {
            if self.lease.deadline() <= Instant::now() {
                self.lease.turn(&self.server).await;
            }
            self.take_or_leave_office();
            self.follow_peers();
            self.look_for_loss();
            self.write_node().await;
            self.write_objects().await;
            self.drain().await;
            self.label_node().await;
            self.tell_troubles();
        }
        self.objects = None;
        self.lease.release(&self.server).await;
        self.drainer.release(&self.server).await;
        self.node_pace = Pace::new(Instant::now(), self.sources.seed);
        self.node_due = true;
        self.write_node().await;
        let leaves = self.sources.view.borrow().as_ref().is_some_and(|view| view.status.lifecycle == Some(Phase::Draining));
        if leaves {
            let config = Arc::clone(&self.sources.config.borrow().config);
            let node = self.own_node();
            self.label.remove(&self.server, &config, node.as_deref()).await;
        }
    }

    /// Until something is to be done. True where that is to stop.
    async fn sleep(&mut self, stopping: &mut oneshot::Receiver<()>) -> bool {
        let now = Instant::now();
        let node_at = if self.node_due { self.node_pace.next() } else { self.node_resync };
        let objects_at = self.objects.as_ref().map(|office| {
            let due = if office.due { now } else { office.writer.deadline() };
            due.max(office.pace.next())
        });
        let lost_at = self.lost_since.filter(|_| !self.is_lost).map(|since| since + LOST);
        let at = [Some(self.lease.deadline()), Some(node_at), objects_at, self.drainer.deadline(), Some(self.label.deadline()), lost_at]
            .into_iter()
            .flatten()
            .min()
            .unwrap_or(now);
        let reported = async {
            match &mut self.following {
                Some(following) => drop(following.reports.changed().await),
                None => std::future::pending().await,
            }
        };
        let (node_changed, objects_changed) = tokio::select! {
            _ = stopping => return true,
            () = sleep_until(at.into()) => (false, false),
            Ok(()) = self.sources.view.changed() => (true, true),
            Ok(()) = self.sources.snapshots.changed() => (true, true),
            Ok(()) = self.sources.config.changed() => (true, true),
            () = reported => (false, true),
        };
        let settled = Instant::now() + SETTLE;
        if node_changed && !std::mem::replace(&mut self.node_due, true) {
            self.node_pace.not_before(settled);
        }
        if let Some(office) = &mut self.objects
            && objects_changed
            && !std::mem::replace(&mut office.due, true)
        {
            office.pace.not_before(settled);
        }
        false
    }

    fn take_or_leave_office(&mut self) {
        match (self.lease.is_held(), &self.objects) {
            (true, None) => {
                let config = Arc::clone(&self.sources.config.borrow().config);
                let writer = ObjectWriter::new(&config.instance, &config.node_name);
                let pace = Pace::new(Instant::now(), self.sources.seed);
                self.objects = Some(Office { writer, pace, due: true, trouble: None });
            }
            (false, Some(_)) => self.objects = None,
            (true, Some(_)) | (false, None) => {}
        }
    }

    /// Follows the other nodes while that is of use, and tells from where they advertise. What is not known takes no peer away.
    fn follow_peers(&mut self) {
        let config = Arc::clone(&self.sources.config.borrow().config);
        let needs_peers = config.vrrp.needs_peers();
        if !needs_peers && self.objects.is_none() {
            self.following = None;
        } else if self.following.is_none() {
            let (sender, reports) = watch::channel(Reported::default());
            let follower = tokio::spawn(follow(self.sources.access.clone(), config.instance.clone(), sender, self.sources.seed));
            self.following = Some(Following { reports, follower });
        }
        let nodes = self.following.as_ref().and_then(|following| following.reports.borrow().nodes.clone());
        if let Some(nodes) = nodes.filter(|_| needs_peers) {
            let known = peers(&nodes, &config.node_name);
            self.sources.told.peers.send_if_modified(|told| *told != known && std::mem::replace(told, known.clone()) != known);
        }
        let compiled = self.sources.view.borrow().as_ref().and_then(|view| view.compiled.clone());
        let vips: Vec<IpAddr> = compiled.iter().flat_map(|compiled| compiled.desired.vips.keys()).copied().collect();
        let groups = config.vrrp.groups.values().filter(|group| group.transport == DesiredTransport::AUTO);
        let found: io::Result<Vec<_>> = groups.map(|group| Ok((group.vrid.number(), sources(group, &vips)?))).collect();
        let Ok(found) = found.inspect_err(|error| tracing::warn!(%error, "it cannot be read from where virtual routers advertise")) else {
            return;
        };
        let router = |(virtual_router_id, addresses)| RouterNodeVirtualRouter { virtual_router_id, addresses };
        let routers: Vec<_> = found.into_iter().map(router).collect();
        self.node_due |= routers != self.routers;
        self.routers = routers;
    }

    /// Notices that the API server is lost for long enough to be said, or followed again.
    fn look_for_loss(&mut self) {
        let now = Instant::now();
        let is_stale = self.sources.view.borrow().as_ref().is_some_and(|view| view.status.source.state == SourceState::Stale);
        self.lost_since = is_stale.then(|| self.lost_since.unwrap_or(now));
        let is_lost = self.lost_since.is_some_and(|since| since + LOST <= now);
        self.node_due |= is_lost != std::mem::replace(&mut self.is_lost, is_lost);
    }

    async fn write_node(&mut self) {
        let now = Instant::now();
        if self.node_resync <= now {
            self.node_resync = now + RESYNC;
            self.node.forget();
            self.node_due = true;
        }
        if !self.node_due || self.node_pace.next() > now {
            return;
        }
        // What comes amid other work wakes the next sleep, for the objects too.
        let view = self.sources.view.borrow().clone();
        let Some(view) = view else {
            self.node_due = false;
            return;
        };
        let owner = self.own_uid();
        let mut denied = self.objects.as_ref().map(|office| office.writer.denied()).unwrap_or_default();
        denied.extend(self.lease.denied().map(ToOwned::to_owned));
        denied.extend(self.drainer.denied());
        denied.extend(self.label.denied().map(ToOwned::to_owned));
        let time = Time::from(SystemTime::now());
        let said = OwnWords { status: &view.status, routers: &self.routers, is_lost: self.is_lost, denied: &denied };
        match self.node.write(&self.server, &said, owner.as_deref(), time).await {
            Ok(written) => {
                self.node_due = false;
                self.node_trouble = None;
                self.node_pace.succeeded();
                if written {
                    self.node_pace.written(Instant::now());
                }
            }
            Err(error) => {
                complain(&mut self.node_trouble, &error, "the RouterNode of this node cannot be written; it is tried again");
                self.node_pace.failed(Instant::now(), error.retry_after());
            }
        }
    }

    /// Whether the node drains, waits for that, or serves again.
    async fn drain(&mut self) {
        let config = Arc::clone(&self.sources.config.borrow().config);
        let snapshot = self.sources.snapshots.borrow().clone();
        let asked = asked(&config, snapshot.as_deref());
        let reported = self.node.stored().filter(|_| !self.node_due);
        let is_asked = matches!(asked, Asked::Leave(_));
        let status = self.sources.view.borrow().as_ref().filter(|_| is_asked).map(|view| Arc::clone(&view.status));
        let vips = status.iter().flat_map(|status| &status.vips);
        let announced: Vec<IpAddr> = vips.filter(|vip| vip.state == VipState::Announced).map(|vip| vip.address).collect();
        self.drainer.turn(&self.server, asked, snapshot.as_deref(), reported, &announced).await;
    }

    /// Keeps the label of our Node.
    async fn label_node(&mut self) {
        let config = Arc::clone(&self.sources.config.borrow().config);
        let compiled = self.sources.view.borrow().as_ref().and_then(|view| view.compiled.clone());
        // Which addresses are VIPs is not known before.
        let Some(compiled) = compiled else { return };
        let node = self.own_node();
        self.label.turn(&self.server, &config, node.as_deref(), |address| compiled.desired.vips.contains_key(address)).await;
    }

    fn tell_troubles(&self) {
        let office = self.objects.as_ref();
        let denied = office.map(|office| office.writer.denied()).unwrap_or_default();
        let outdated = office.map(|office| office.writer.outdated()).unwrap_or_default();
        let failing =
            [self.lease.trouble(), self.node_trouble.as_deref(), self.label.trouble(), office.and_then(|office| office.trouble.as_deref())];
        let unread = self.following.as_ref().and_then(|following| following.reports.borrow().trouble.clone());
        let mut troubles: Vec<String> = failing
            .into_iter()
            .flatten()
            .map(ToOwned::to_owned)
            .chain(unread)
            .chain(denied)
            .chain(outdated)
            .chain(self.drainer.denied())
            .collect();
        troubles.dedup();
        self.sources.told.troubles.send_if_modified(|told| {
            let differs = **told != troubles;
            if differs {
                *told = Arc::new(troubles);
            }
            differs
        });
    }

    /// The UID of our Node, as far as the snapshot has it.
    fn own_uid(&self) -> Option<String> {
        self.own_node()?.metadata.uid.clone()
    }

    /// Our Node, likewise.
    fn own_node(&self) -> Option<Arc<Node>> {
        let name = ObjectRef { kind: Kind::Node, namespace: String::new(), name: self.sources.config.borrow().config.node_name.clone() };
        self.sources.snapshots.borrow().as_ref()?.nodes.get(&name).map(Arc::clone)
    }

    async fn write_objects(&mut self) {
        let Some(office) = &mut self.objects else { return };
        let now = Instant::now();
        if office.writer.deadline() <= now {
            office.due = true;
        }
        if !office.due || office.pace.next() > now {
            return;
        }
        let nodes = self.following.as_ref().and_then(|following| following.reports.borrow().nodes.clone());
        let denied = office.writer.denied();
        match write_objects(&self.sources, &self.server, &self.lease, (office, nodes)).await {
            Ok(pass) => {
                office.due = pass == Pass::More;
                office.trouble = None;
                office.pace.succeeded();
            }
            Err(error) => {
                complain(&mut office.trouble, &error, "the status of objects cannot be written; it is tried again");
                office.pace.failed(Instant::now(), error.retry_after());
            }
        }
        self.node_due |= office.writer.denied() != denied;
    }
}

/// Remembers a failure, and logs it where the one before said something else.
fn complain(trouble: &mut Option<String>, error: &RequestError, consequence: &str) {
    let error = chain(error);
    if trouble.as_ref() != Some(&error) {
        tracing::warn!(error, "{consequence}");
    }
    *trouble = Some(error);
}

/// One pass, once all that it needs is known.
async fn write_objects(
    sources: &Sources,
    server: &ApiServer,
    lease: &Lease,
    (office, nodes): (&mut Office, Option<Arc<NodeReports>>),
) -> Result<Pass, RequestError> {
    office.pace.not_before(Instant::now() + SETTLE);
    let snapshot = sources.snapshots.borrow().clone();
    let compiled = sources.view.borrow().as_ref().and_then(|view| view.compiled.clone());
    let (Some(snapshot), Some(compiled), Some(nodes)) = (snapshot, compiled, nodes) else { return Ok(Pass::Done) };
    let config = (*sources.config.borrow().config).clone().with_peers(&sources.told.peers.borrow());
    let wanted = Wanted { snapshot: &snapshot, compiled: &compiled, config: &config, reports: &heard(&nodes, &snapshot) };
    office.writer.pass(server, &wanted, || lease.is_held()).await
}

/// From where the other nodes advertise, whether they are Ready or not: who is away comes again.
fn peers(nodes: &NodeReports, own: &str) -> KnownPeers {
    let mut known = KnownPeers::new();
    for router in nodes.iter().filter(|(node, _)| *node != own).flat_map(|(_, status)| &status.virtual_routers) {
        known.entry(router.virtual_router_id).or_default().extend(&router.addresses);
    }
    known
}

/// What counts of the reports: those of Nodes that are there and Ready.
fn heard(nodes: &NodeReports, snapshot: &Snapshot) -> Reports {
    let node = |name: &String| ObjectRef { kind: Kind::Node, namespace: String::new(), name: name.clone() };
    let counted = |name: &String| is_heard(snapshot.nodes.get(&node(name)).map(AsRef::as_ref));
    Reports::new(nodes.iter().map(|(name, status)| (name.clone(), counted(name).then(|| status.clone()))).collect())
}
