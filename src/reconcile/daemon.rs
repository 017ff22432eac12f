// SPDX-License-Identifier: Apache-2.0
//! `vipherald run`: makes all parts, connects them, and runs the loop until the node has left.
//!
//! Inputs: the configuration as read, and where it and the manifests are. Output: a daemon that explains itself on its admin socket and on
//! `http.address`. Invariant: whatever cannot work is an error here, before anything on the node is changed.

use std::error::Error;
use std::hash::{BuildHasher as _, RandomState};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::signal::unix::Signal;
use tokio::sync::watch;

use super::answers::{Answers, Duties, News};
use super::purpose::Purpose;
use super::view::Explainer;
use super::{Intent, Left, Reconciler, RunError, Signals, View, quiesced, table, virtual_routers};
use crate::actuator::{Kernel, abandoned};
use crate::admin::{AdminSocket, Desk, Http, Pulse};
use crate::config::{self, Config, Environment, InForce, Origin};
use crate::desired::{LastGood, NodeDrain, cache};
use crate::driver::bgp::Speaker;
use crate::driver::kube::{NodeView, Publisher, Sources, Told};
use crate::driver::vrrp::VirtualRouters;
use crate::observed::KernelState;
use crate::source::kube::{Access, ApiHealth};
use crate::source::{Snapshot, Snapshots, dir, kube};
use crate::telemetry::{Logging, Metrics};

/// What `vipherald run` needs.
#[derive(Debug)]
pub struct RunOptions {
    /// Where the configuration was read from, to be followed.
    pub config_file: PathBuf,
    /// The configuration as read.
    pub config: Config,
    /// SIGHUP, received since before the file was read: the file is read again.
    pub hangup: Signal,
    /// For the files that replace it.
    pub environment: Environment,
    /// Where objects come from.
    pub origin: Objects,
    /// To apply `log:` when it changes.
    pub logging: Logging,
}

/// Runs until the node has left after SIGTERM.
///
/// # Errors
/// What keeps the daemon from starting, or from going on.
pub async fn run(options: RunOptions) -> Result<(), Box<dyn Error + Send + Sync>> {
    let RunOptions { config_file, config, hangup, environment, origin, logging } = options;
    tracing::info!(instance = config.instance, node = config.node_name, version = env!("CARGO_PKG_VERSION"), "starting");
    let started = Instant::now();
    let signals = Signals::new()?;
    let admin = AdminSocket::bind(&config.state_dir, &config.instance)?;
    let listener = Http::bind(config.http_address).await?;
    let kernel = Kernel::new(&config.vips.interface, &config.instance).await?;
    tell_of_abandoned().await;
    let kind = origin.origin();
    let access = origin.access();
    let purpose = Purpose { access: access.clone() };
    let last_good = LastGood::load(&config.state_dir);
    let (snapshots, source) = source(origin, &config, &last_good).await?;
    let in_force = config::follow(&config_file, environment, config.clone(), kind, hangup)?;
    let speaker = Speaker::spawn(&config.instance, RandomState::new().hash_one(started))?;
    let virtual_routers = Arc::new(VirtualRouters::spawn(&config.instance)?);
    let (views, view) = watch::channel(View::default());
    let changes = view.clone();
    let ipvs = table::reader(view.clone());
    let (troubles, unwritten) = watch::channel(Arc::default());
    let api = source.health().map(|health| (health, unwritten));
    let explainer = Explainer::new(&config, config_file, view, in_force.clone(), (speaker.subscribe(), virtual_routers.subscribe()), api);
    let status = explainer.reader();
    let metrics = Metrics::new(status.clone())?;
    let pulse = Pulse::new(speaker.liveness());
    let http = Http { metrics: metrics.clone(), status: status.clone(), pulse: pulse.clone() };
    let desk = Desk { status: status.clone(), ipvs, operator: speaker.operator() };
    let (noted, node_view) = watch::channel(None);
    let cluster = access.is_some();
    let before = if cluster { cache::load_drain(&config.state_dir) } else { NodeDrain::None };
    let (node_drain, drain_ordered) = watch::channel(before);
    let (peers, known_peers) = watch::channel(cache::load_peers(&config.state_dir));
    let publisher = publisher(access, &in_force, &snapshots, node_view, Told { troubles, node_drain, peers }).await?;
    let news = News { views: changes, speaker: speaker.subscribe(), virtual_routers: virtual_routers.subscribe(), health: source.health() };
    let _answers =
        Answers::spawn(Duties { news, status, noted, admin: (admin, desk), http: (listener, http), log: (in_force.clone(), logging) })?;
    let kept_leaving = quiesced::load(&config.state_dir);
    let reconciler = Reconciler {
        intent: Intent::new(in_force, snapshots, (drain_ordered, known_peers), purpose, last_good, started),
        kernel,
        kernel_state: KernelState::default(),
        speaker_status: speaker.subscribe(),
        speaker,
        router_status: virtual_routers.subscribe(),
        routers: Arc::clone(&virtual_routers),
        observed: Arc::new(kept_leaving.observed()),
        kept_leaving,
        views,
        signals,
        metrics,
        pulse,
        leaving_since: None,
        inherited: false,
        unmoved: None,
        audit_at: started + super::RESYNC,
        rounds: 0,
        at_rest: false,
    };
    let left = reconciler.run().await;
    // In a drain that is given up they have had their time.
    if !matches!(left, Ok(Left::AtOnce) | Err(RunError::DrainOverdue { .. })) {
        virtual_routers::leave(&virtual_routers, matches!(left, Ok(Left::ForTheNext))).await;
    }
    if let Some(publisher) = publisher {
        publisher.stop().await;
    }
    left?;
    tracing::info!(after = %humantime::format_duration(Duration::from_secs(started.elapsed().as_secs())), "stopped");
    Ok(())
}

/// What an instance has left that does not run now, as one does that was renamed: as long as it is there, its virtual services are nobody else's.
async fn tell_of_abandoned() {
    match abandoned().await {
        Ok(left) => left.iter().for_each(|left| {
            tracing::warn!(
                instance = left.instance,
                %left,
                "an instance that does not run has left something on this node; to go on as that instance, give this one its name; to take it away: vipherald cleanup --instance {}",
                left.instance
            );
        }),
        Err(error) => tracing::debug!(error = %crate::telemetry::chain(&error), "it cannot be read what other instances have left"),
    }
}

/// Where objects come from.
#[derive(Clone, Debug)]
pub enum Objects {
    /// An API server.
    Cluster(Access),
    /// A directory of Kubernetes YAML.
    Directory(PathBuf),
    /// Nowhere: speaker-only use.
    Nowhere,
}

impl Objects {
    /// The way to the API server, where they come from one.
    fn access(&self) -> Option<Access> {
        match self {
            Self::Cluster(access) => Some(access.clone()),
            Self::Directory(_) | Self::Nowhere => None,
        }
    }

    /// The same for the configuration.
    #[must_use]
    pub const fn origin(&self) -> Origin {
        match self {
            Self::Cluster(_) => Origin::Cluster,
            Self::Directory(_) => Origin::Directory,
            Self::Nowhere => Origin::Nowhere,
        }
    }
}

/// Who writes to the API server, where there is one.
async fn publisher(
    access: Option<Access>,
    config: &watch::Receiver<Arc<InForce>>,
    snapshots: &Snapshots,
    view: watch::Receiver<Option<NodeView>>,
    told: Told,
) -> Result<Option<Publisher>, Box<dyn Error + Send + Sync>> {
    let Some(access) = access else { return Ok(None) };
    let namespace = access.client().await?.default_namespace().to_owned();
    let seed = RandomState::new().hash_one(Instant::now());
    let sources = Sources { access, namespace, config: config.clone(), snapshots: snapshots.clone(), view, told, seed };
    Ok(Some(Publisher::spawn(sources)?))
}

/// Begins to follow the objects. Nowhere is a source that says for good that there are none.
async fn source(objects: Objects, config: &Config, last_good: &LastGood) -> Result<(Snapshots, Source), Box<dyn Error + Send + Sync>> {
    match objects {
        Objects::Directory(dir) => {
            let (snapshots, follower) = dir::follow(dir, Some(config.state_dir.clone()))?;
            Ok((snapshots, Source::Directory(follower)))
        }
        Objects::Cluster(access) => {
            let last_intent = cache::load(&config.state_dir, config).map(|desired| desired.vips).unwrap_or_default();
            let owners = last_intent.into_values().flat_map(|vip| vip.owners).collect();
            let (snapshots, following) = kube::follow(access, owners, last_good).await?;
            Ok((snapshots, Source::Cluster(following)))
        }
        Objects::Nowhere => {
            let (sender, snapshots) = watch::channel(Some(Arc::new(Snapshot { complete: true, ..Snapshot::default() })));
            Ok((snapshots, Source::Nowhere(sender)))
        }
    }
}

/// What keeps the snapshots coming.
enum Source {
    Cluster(kube::Following),
    #[expect(dead_code, reason = "held, not used")]
    Directory(dir::Follower),
    #[expect(dead_code, reason = "held, not used")]
    Nowhere(watch::Sender<Option<Arc<Snapshot>>>),
}

impl Source {
    /// How well an API server is followed, where one is.
    fn health(&self) -> Option<watch::Receiver<Arc<ApiHealth>>> {
        match self {
            Self::Cluster(following) => Some(following.health.clone()),
            Self::Directory(_) | Self::Nowhere(_) => None,
        }
    }
}
