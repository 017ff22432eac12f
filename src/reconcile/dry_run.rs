// SPDX-License-Identifier: Apache-2.0
//! `vipherald plan`: what a daemon that starts now would do on this node, all the way to rest; nothing is changed.
//!
//! Inputs: the objects, the configuration, and the kernel as it is. Output: text, a paragraph for each plan, the rejections, and the VIPs that are not served in the end, with the reasons.

use std::error::Error;
use std::fmt::Write as _;
use std::time::Instant;

use super::Objects;
use super::obstacle::obstacles;
use crate::actuator::{Kernel, probe_ipvs};
use crate::config::{Config, DataplaneType};
use crate::desired::{Compiled, DesiredVip, LastGood, Rejection, VipIntent, cache};
use crate::observed::{self, Observed, ObservedSpeaker};
use crate::plan::{plan, predict};
use crate::source::{dir, kube};
use crate::status::Obstacle;

/// More plans than any way to rest takes.
const MOST_ROUNDS: u32 = 64;

/// What a daemon that starts now would do, in words.
///
/// # Errors
/// Objects or kernel cannot be read.
pub async fn dry_run(mut config: Config, objects: Objects) -> Result<String, Box<dyn Error + Send + Sync>> {
    let snapshot = match objects {
        Objects::Directory(dir) => dir::read(dir, &config.state_dir)?,
        Objects::Cluster(access) => Some(kube::read(access).await?),
        Objects::Nowhere => None,
    };
    if config.dataplane.kind == DataplaneType::Auto {
        config.dataplane.kind = if probe_ipvs().await.is_ok() { DataplaneType::Ipvs } else { DataplaneType::Nftables };
    }
    let snapshot = snapshot.unwrap_or_default();
    let labels = snapshot.labels_of_node(&config.node_name).or_else(|| cache::load_labels(&config.state_dir));
    let config = config.on_node(labels.as_ref());
    let Compiled { desired, rejections, .. } = LastGood::load(&config.state_dir).compile(&snapshot, &config);
    let mut kernel = Kernel::new(&config.vips.interface, &config.instance).await?;
    let mut now = Instant::now();
    kernel.balance(desired.balancing.as_ref().map(|balancing| balancing.rules.balancer));
    kernel.adapt(desired.balancing.as_ref());
    let state = kernel.observe().await?;
    let mut observed = observed::stamp(&Observed::default(), state, ObservedSpeaker::default(), now);
    let mut text = String::new();
    for Rejection { subject, reason, message } in &rejections {
        writeln!(text, "rejected: {subject}: {reason:?}: {message}")?;
    }
    for round in 1..=MOST_ROUNDS {
        let next = plan(&desired, &observed, now);
        if !next.steps.is_empty() {
            writeln!(text, "{round}:")?;
            for line in next.display(now).to_string().lines() {
                writeln!(text, "  {line}")?;
            }
        } else if next.wake_at.is_none() {
            writeln!(text, "{}", if round == 1 { "nothing to do" } else { "then nothing is left to do" })?;
            break;
        }
        if let (true, Some(wake_at)) = (next.steps.is_empty(), next.wake_at) {
            now = wake_at;
        }
        observed = predict(&observed, &next.steps, now);
    }
    let obstacles = obstacles(&desired, &observed);
    for (vip, DesiredVip { intent, .. }) in &desired.vips {
        match (intent, obstacles.get(vip)) {
            (VipIntent::Withhold(reason), _) => writeln!(text, "not served here: {vip}: {reason:?}: {reason}")?,
            (VipIntent::Serve { .. }, Some(Obstacle { reason, message })) => writeln!(text, "not served here: {vip}: {reason}: {message}")?,
            (VipIntent::Serve { .. }, None) => {}
        }
    }
    Ok(text)
}
