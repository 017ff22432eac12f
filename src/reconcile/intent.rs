// SPDX-License-Identifier: Apache-2.0
//! The intent in force: what the newest snapshot and configuration compile to, or the last good one while no snapshot has come.
//!
//! Inputs: the watch channels of source and configuration, and the state directory's copy of the last good intent. Output: an [`Arc<Compiled>`]
//! that is replaced only when its value changed. Invariant: before the first snapshot there is no intent at all until `startup.patience` has passed;
//! then it is the last good one, marked incomplete, so that nothing is removed on its word.

use std::collections::BTreeMap;
use std::future::pending;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use bgp::Prefix;
use tokio::sync::watch;

use super::purpose::Purpose;
use crate::config::{Config, DataplaneType, InForce, NodeLabels};
use crate::desired::{
    self, Compiled, Desired, DesiredVirtualService, DrainTimes, KnownPeers, LastGood, Lifecycle, NodeDrain, ServiceKey, Termination,
    VirtualRouting, cache,
};
use crate::source::{Snapshot, Snapshots};
use crate::telemetry::chain;

/// What was followed is not any more; its log lines say why.
#[derive(Debug, thiserror::Error)]
#[error("{0} is no longer followed")]
pub(super) struct NotFollowed(&'static str);

/// See the module.
pub(super) struct Intent {
    config: watch::Receiver<Arc<InForce>>,
    snapshots: Snapshots,
    /// Whether VIPs leave the node while it goes on.
    node_drain: watch::Receiver<NodeDrain>,
    /// What of that the state directory has.
    kept_drain: NodeDrain,
    /// From where the other nodes advertise.
    peers: watch::Receiver<KnownPeers>,
    /// What of that the state directory has.
    kept_peers: KnownPeers,
    /// The labels of our Node as they were known last, which tell what peers it has.
    labels: Option<NodeLabels>,
    /// What of that the state directory has.
    kept_labels: Option<NodeLabels>,
    purpose: Purpose,
    state_dir: PathBuf,
    /// The last good intent of an earlier process that has not withdrawn everything; `None` once it was taken.
    former: Option<Desired>,
    patience_ends: Instant,
    lifecycle: Lifecycle,
    in_force: Option<Arc<Compiled>>,
    /// What objects said that are refused as they are.
    last_good: LastGood,
    /// What it was compiled from; `None` where it is that of an earlier run.
    basis: Option<(Arc<Snapshot>, Config)>,
    cached: bool,
    /// Why there is no IPVS, or nothing where there is; `None` where that was not needed yet.
    ipvs: Option<Result<(), String>>,
    /// The intent in force is complete, and the state directory does not hold it yet.
    unsaved: bool,
}

impl Intent {
    pub(super) fn new(
        config: watch::Receiver<Arc<InForce>>,
        snapshots: Snapshots,
        (node_drain, peers): (watch::Receiver<NodeDrain>, watch::Receiver<KnownPeers>),
        purpose: Purpose,
        last_good: LastGood,
        started: Instant,
    ) -> Self {
        let Config { state_dir, startup_patience, .. } = (*config.borrow().config).clone();
        let labels = cache::load_labels(&state_dir);
        let former = cache::load(&state_dir, &config.borrow().config).filter(|desired| desired.lifecycle == Lifecycle::Run);
        Self {
            config,
            snapshots,
            kept_drain: cache::load_drain(&state_dir),
            node_drain,
            kept_peers: cache::load_peers(&state_dir),
            peers,
            labels: labels.clone(),
            kept_labels: labels,
            purpose,
            state_dir,
            former,
            patience_ends: started + startup_patience,
            lifecycle: Lifecycle::Run,
            in_force: None,
            last_good,
            basis: None,
            cached: false,
            ipvs: None,
            unsaved: false,
        }
    }

    /// The intent in force, compiled again where an input changed. `None` while there is none to act on.
    pub(super) fn current(&mut self, now: Instant) -> Option<Arc<Compiled>> {
        let stale = self.config.has_changed().unwrap_or(false)
            || self.snapshots.has_changed().unwrap_or(false)
            || self.node_drain.has_changed().unwrap_or(false)
            || self.peers.has_changed().unwrap_or(false);
        if self.in_force.is_none() || stale {
            self.compile(now);
        }
        self.in_force.clone()
    }

    /// The intent in force, as it was compiled last.
    pub(super) fn in_force(&self) -> Option<Arc<Compiled>> {
        self.in_force.clone()
    }

    /// What a newer snapshot changes of the real servers behind the intent in force, where that can be told without compiling the whole.
    pub(super) fn churn(&self) -> BTreeMap<ServiceKey, DesiredVirtualService> {
        if self.config.has_changed().unwrap_or(true) || !self.snapshots.has_changed().unwrap_or(false) {
            return BTreeMap::new();
        }
        let latest = self.snapshots.borrow().clone();
        match (&self.basis, latest, &self.in_force) {
            (Some((snapshot, config)), Some(latest), Some(in_force)) => desired::churn(snapshot, &latest, in_force, config),
            _ => BTreeMap::new(),
        }
    }

    /// Whether the configuration needs to know if the kernel has IPVS, and nobody has looked yet.
    pub(super) fn asks_for_ipvs(&self) -> bool {
        let kind = self.config.borrow().config.dataplane.kind;
        self.ipvs.is_none() && matches!(kind, DataplaneType::Auto | DataplaneType::Ipvs)
    }

    /// Whether the kernel has IPVS. The answer holds as long as this process: virtual services do not move because a module was loaded.
    pub(super) fn answer(&mut self, found: Result<(), ipvs::client::Error>) {
        let kind = self.config.borrow().config.dataplane.kind;
        self.ipvs = Some(found.map_err(|error| chain(&error)));
        match (kind, self.chosen_dataplane(), &self.ipvs) {
            (DataplaneType::Auto, Some(chosen), _) => tracing::info!("dataplane.type auto: {chosen}"),
            (DataplaneType::Ipvs, _, Some(Err(error))) => tracing::error!(
                error,
                "dataplane.type is ipvs; load or install the modules ip_vs and ip_vs_mh, with nf_conntrack, or use nftables or auto; until then no VIP is served"
            ),
            _ => {}
        }
    }

    /// What `dataplane.type: auto` stands for, and why.
    pub(super) fn chosen_dataplane(&self) -> Option<String> {
        let is_auto = self.config.borrow().config.dataplane.kind == DataplaneType::Auto;
        match self.ipvs.as_ref().filter(|_| is_auto)? {
            Ok(()) => Some("ipvs, which the kernel has".to_owned()),
            Err(error) => Some(format!("nftables, since {error}")),
        }
    }

    /// The configuration, with what `auto` stands for, of the dataplane and of peers, and with the peers of this node.
    fn settled(&mut self) -> Config {
        let config = (*self.config.borrow_and_update().config).clone();
        let mut config = config.with_peers(&self.peers.borrow_and_update()).on_node(self.labels.as_ref());
        if config.dataplane.kind == DataplaneType::Auto {
            config.dataplane.kind = if matches!(self.ipvs, Some(Err(_))) { DataplaneType::Nftables } else { DataplaneType::Ipvs };
        }
        config
    }

    /// Where what may be lost is kept.
    pub(super) fn state_dir(&self) -> &Path {
        &self.state_dir
    }

    /// Whether it is the one of an earlier run.
    pub(super) const fn is_cached(&self) -> bool {
        self.cached
    }

    /// From now on the node leaves, in the way that is returned.
    pub(super) async fn leave(&mut self) -> Termination {
        let config = Arc::clone(&self.config.borrow().config);
        let snapshot = self.snapshots.borrow().clone();
        let termination = self.purpose.of_stop(&config, snapshot.as_deref()).await;
        let now = Instant::now();
        self.lifecycle = termination.lifecycle;
        self.patience_ends = now;
        self.compile(now);
        termination
    }

    /// What an earlier process wanted that has not withdrawn everything. It is large, and asked for once.
    pub(super) const fn take_former(&mut self) -> Option<Desired> {
        self.former.take()
    }

    /// The virtual routers of the configuration in force.
    pub(super) fn virtual_routing(&self) -> VirtualRouting {
        self.config.borrow().config.vrrp.clone().with_peers(&self.peers.borrow())
    }

    /// The times of a drain, once there is an intent.
    pub(super) fn drain_times(&self) -> Option<DrainTimes> {
        Some(self.in_force.as_ref()?.desired.drain)
    }

    /// The aggregates of the configuration in force.
    pub(super) fn aggregates(&self) -> Vec<Prefix> {
        self.config.borrow().config.routing.aggregates.keys().copied().collect()
    }

    /// Whether VIPs leave the node while it goes on, and why, as of the intent in force.
    pub(super) fn node_drain(&self) -> NodeDrain {
        self.node_drain.borrow().clone()
    }

    pub(super) fn is_leaving(&self) -> bool {
        self.lifecycle != Lifecycle::Run
    }

    /// Resolves when [`Self::current`] may have something new. Cancel safe.
    ///
    /// # Errors
    /// Source or configuration are no longer followed: a task of theirs panicked.
    pub(super) async fn changed(&mut self) -> Result<(), NotFollowed> {
        let patience = self.in_force.is_none().then_some(self.patience_ends);
        let impatient = async move {
            match patience {
                Some(end) => tokio::time::sleep_until(end.into()).await,
                None => pending().await,
            }
        };
        tokio::select! {
            changed = self.config.changed() => {
                changed.map_err(|_closed| NotFollowed("the configuration file"))?;
                self.config.mark_changed();
            }
            changed = self.snapshots.changed() => {
                changed.map_err(|_closed| NotFollowed("the source"))?;
                self.snapshots.mark_changed();
            }
            // Nobody decides about it any more where that is an error.
            Ok(()) = self.node_drain.changed() => self.node_drain.mark_changed(),
            Ok(()) = self.peers.changed() => self.peers.mark_changed(),
            () = impatient => {}
        }
        Ok(())
    }

    /// Whether all stays for the next process.
    pub(super) fn is_kept(&self) -> bool {
        self.lifecycle == Lifecycle::Keep
    }

    /// The node has left as it was to. Where that was a drain, the next process is told.
    pub(super) fn has_left(&mut self) {
        self.unsaved = self.lifecycle == Lifecycle::Drain && self.in_force.as_ref().is_some_and(|compiled| compiled.desired.complete);
        self.save();
    }

    /// Keeps the last good intent for a start without a source. Called when there is nothing more urgent to do.
    pub(super) fn save(&mut self) {
        if let Some(compiled) = self.in_force.as_ref().filter(|_| self.unsaved)
            && let Err(error) = cache::save(&self.state_dir, &compiled.desired)
        {
            tracing::warn!(%error, "the last good intent cannot be kept: a start without a source will have an older one, or none");
        }
        self.unsaved = false;
        if let Err(error) = self.last_good.save(&self.state_dir) {
            tracing::warn!(%error, "the last good contents cannot be kept: a start with a refused object will have what can be had of it as it is");
        }
        let drain = self.node_drain.borrow().clone();
        if drain != self.kept_drain {
            if let Err(error) = cache::save_drain(&self.state_dir, &drain) {
                tracing::warn!(%error, "it cannot be kept whether the node is drained: a start without a source may serve again");
            }
            self.kept_drain = drain;
        }
        let peers = self.peers.borrow().clone();
        if peers != self.kept_peers {
            if let Err(error) = cache::save_peers(&self.state_dir, &peers) {
                tracing::warn!(%error, "it cannot be kept who the peers of virtual routers are: a start without the API server may wait for it");
            }
            self.kept_peers = peers;
        }
        if self.labels != self.kept_labels
            && let Some(labels) = &self.labels
        {
            if let Err(error) = cache::save_labels(&self.state_dir, labels) {
                tracing::warn!(%error, "the labels of the Node cannot be kept: a start without the API server may be without the peers that depend on them");
            }
            self.kept_labels.clone_from(&self.labels);
        }
    }

    fn compile(&mut self, now: Instant) {
        let snapshot = self.snapshots.borrow_and_update().clone();
        // A Node that is away for a while has the peers that it had.
        let labels = snapshot.as_deref().and_then(|snapshot| snapshot.labels_of_node(&self.config.borrow().config.node_name));
        self.labels = labels.or_else(|| self.labels.take());
        let config = self.settled();
        let mut compiled = match &snapshot {
            Some(snapshot) => self.last_good.compile(snapshot, &config),
            None if now >= self.patience_ends => last_good(&self.state_dir, &config),
            None => return,
        };
        self.basis = snapshot.map(|snapshot| (snapshot, config));
        self.cached = self.snapshots.borrow().is_none();
        let drained = matches!(*self.node_drain.borrow_and_update(), NodeDrain::Drained { .. });
        compiled.desired.lifecycle = if drained && self.lifecycle == Lifecycle::Run { Lifecycle::Standby } else { self.lifecycle };
        if self.in_force.as_deref() != Some(&compiled) {
            self.unsaved = compiled.desired.complete && self.lifecycle == Lifecycle::Run;
            self.in_force = Some(Arc::new(compiled));
        }
    }
}

/// The intent of the last run; without one nothing is wanted, and nothing removed.
fn last_good(state_dir: &Path, config: &Config) -> Compiled {
    match cache::load(state_dir, config) {
        Some(desired) => {
            tracing::warn!(vips = desired.vips.len(), "no source has been read in time; the last good intent is in force");
            Compiled { desired, rejections: Vec::new(), kept: Default::default(), slices: Default::default() }
        }
        None => {
            tracing::warn!("no source has been read in time, and there is no last good intent");
            let compiled = desired::compile(&Snapshot::default(), config);
            Compiled { desired: Desired { complete: false, ..compiled.desired }, ..compiled }
        }
    }
}
