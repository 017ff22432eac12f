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

use tokio::sync::watch;

use super::view::Explainer;
use super::{Intent, Reconciler, Signals, View, table};
use crate::actuator::Kernel;
use crate::admin::{AdminSocket, Desk, Http, Pulse};
use crate::config::{self, Config, DataplaneType, Environment, InForce};
use crate::driver::bgp::{Speaker, SpeakerStatus};
use crate::observed::{KernelState, Observed};
use crate::source::{Snapshot, Snapshots, dir};
use crate::status::StatusReader;
use crate::telemetry::{Logging, Metrics};

/// Between two statuses that nobody asked for: how exact their times are.
const NOTE_INTERVAL: Duration = Duration::from_millis(100);

/// What `vipherald run` needs.
#[derive(Debug)]
pub struct RunOptions {
    /// Where the configuration was read from, to be followed.
    pub config_file: PathBuf,
    /// The configuration as read.
    pub config: Config,
    /// For the files that replace it.
    pub environment: Environment,
    /// The directory with Kubernetes YAML; none in speaker-only use.
    pub manifests: Option<PathBuf>,
    /// To apply `log:` when it changes.
    pub logging: Logging,
}

/// Runs until the node has left after SIGTERM.
///
/// # Errors
/// What keeps the daemon from starting, or from going on.
pub async fn run(options: RunOptions) -> Result<(), Box<dyn Error + Send + Sync>> {
    let RunOptions { config_file, config, environment, manifests, logging } = options;
    tracing::info!(instance = config.instance, node = config.node_name, version = env!("CARGO_PKG_VERSION"), "starting");
    let started = Instant::now();
    let signals = Signals::new()?;
    let admin = AdminSocket::bind(&config.state_dir, &config.instance)?;
    let listener = Http::bind(config.http_address).await?;
    let kernel = Kernel::new(&config.vips.interface, &config.instance).await?;
    let (snapshots, _source) = source(manifests, &config)?;
    let in_force = config::follow(&config_file, environment, config.clone())?;
    let speaker = Speaker::spawn(RandomState::new().hash_one(started))?;
    let (views, view) = watch::channel(View::default());
    let changes = view.clone();
    let ipvs = table::reader(view.clone());
    let explainer = Explainer::new(&config, config_file, view, in_force.clone(), speaker.subscribe());
    let status = explainer.reader();
    let metrics = Metrics::new(status.clone())?;
    let pulse = Pulse::new(speaker.liveness());
    let http = Http { metrics: metrics.clone(), status: status.clone(), pulse: pulse.clone() };
    let desk = Desk { status: status.clone(), ipvs, operator: speaker.operator() };
    let _tasks = [
        Task(tokio::spawn(note_changes(changes, speaker.subscribe(), status))),
        Task(tokio::spawn(async move { complain("admin socket", admin.serve(desk).await) })),
        Task(tokio::spawn(async move { complain("http.address", http.serve(listener).await) })),
        Task(tokio::spawn(apply_log_settings(in_force.clone(), logging))),
    ];
    let reconciler = Reconciler {
        intent: Intent::new(in_force, snapshots, started),
        kernel,
        kernel_state: KernelState::default(),
        speaker_status: speaker.subscribe(),
        speaker,
        observed: Arc::new(Observed::default()),
        views,
        signals,
        metrics,
        pulse,
        leaving_since: None,
        inherited: false,
        audit_at: started + super::RESYNC,
        rounds: 0,
        at_rest: false,
    };
    reconciler.run().await?;
    tracing::info!(after = %humantime::format_duration(Duration::from_secs(started.elapsed().as_secs())), "stopped");
    Ok(())
}

/// The directory, or without one a source that says for good that there are no objects.
fn source(manifests: Option<PathBuf>, config: &Config) -> Result<(Snapshots, Source), Box<dyn Error + Send + Sync>> {
    match manifests {
        Some(dir) => {
            let (snapshots, follower) = dir::follow(dir, Some(config.state_dir.clone()))?;
            Ok((snapshots, Source::Directory(follower)))
        }
        None if config.dataplane.kind == DataplaneType::None => {
            let (sender, snapshots) = watch::channel(Some(Arc::new(Snapshot { complete: true, ..Snapshot::default() })));
            Ok((snapshots, Source::Nothing(sender)))
        }
        None => Err("--manifests DIR is needed, unless dataplane.type is none".into()),
    }
}

/// What keeps the snapshots coming.
#[expect(dead_code, reason = "held, not used")]
enum Source {
    Directory(dir::Follower),
    Nothing(watch::Sender<Option<Arc<Snapshot>>>),
}

/// Ends with the daemon.
struct Task(tokio::task::JoinHandle<()>);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Makes a status soon after each change, so that its times are those of the changes and not of the questions.
async fn note_changes(mut views: watch::Receiver<View>, mut speaker: watch::Receiver<Arc<SpeakerStatus>>, status: StatusReader) {
    loop {
        tokio::select! {
            Ok(()) = views.changed() => {}
            Ok(()) = speaker.changed() => {}
            else => return,
        }
        drop(status.read());
        tokio::time::sleep(NOTE_INTERVAL).await;
    }
}

fn complain(what: &str, served: std::io::Result<()>) {
    if let Err(error) = served {
        tracing::error!(what, %error, "no longer served");
    }
}

async fn apply_log_settings(mut in_force: watch::Receiver<Arc<InForce>>, logging: Logging) {
    while in_force.changed().await.is_ok() {
        let log = in_force.borrow_and_update().config.log.clone();
        if let Err(error) = logging.apply(&log) {
            tracing::warn!(error = %crate::telemetry::chain(&error), "log: the old settings stay in force");
        }
    }
}
