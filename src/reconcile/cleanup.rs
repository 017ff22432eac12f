// SPDX-License-Identifier: Apache-2.0
//! `vipherald cleanup`: takes away what an instance that does not run any more has left in the kernel, as its own drain would have done.
//!
//! Inputs: the instance's name, its record, the kernel. Output: one line for each step, once it is carried out. Invariants: the planner decides, with an
//! intent to leave and no speaker, so that what others placed, and what another instance has as well, stays; nothing is done while the instance runs, and it
//! cannot start meanwhile.

use std::collections::BTreeMap;
use std::error::Error;
use std::time::{Duration, Instant};

use crate::actuator::{Kernel, abandoned};
use crate::admin::{AdminError, InstanceLock};
use crate::desired::{Desired, DesiredBalancing, DesiredBgp, DrainTimes, Lifecycle, Routing, Rules, VirtualRouting};
use crate::driver::vrrp::VirtualRouters;
use crate::observed::{self, KernelState, Observed, ObservedSpeaker};
use crate::plan::{self, Step, StepKey, predict};

/// More plans than any way out takes.
const MOST_ROUNDS: u32 = 64;

/// Where the record does not say where the addresses are, it has none.
const NO_INTERFACE: &str = "lo";

/// `nft` is given up before that.
const PATIENCE: Duration = Duration::from_secs(30);

/// Why nothing, or not all, was taken away.
#[derive(Debug, thiserror::Error)]
enum CleanupError {
    #[error("instance {0} runs on this node, and takes away what it has when it is stopped to drain; stop it first")]
    Running(String),
    #[error("the addresses of virtual routers cannot be read: {0}")]
    Record(String),
    #[error("something is left that cannot be taken away now")]
    Left,
}

/// Takes it away, or with `dry_run` only says what would be done. `tell` gets a line for each step.
///
/// # Errors
/// The instance runs, or the kernel refuses a step; what was told before is done.
pub async fn cleanup(instance: &str, dry_run: bool, mut tell: impl FnMut(&str)) -> Result<(), Box<dyn Error + Send + Sync>> {
    let _lock = InstanceLock::take(instance).map_err(|error| match error {
        AdminError::InstanceRunning { instance } => CleanupError::Running(instance).into(),
        error => Box::<dyn Error + Send + Sync>::from(error),
    })?;
    leave_virtual_routers(instance, dry_run, &mut tell).await?;
    let left = abandoned().await?;
    let interfaces = left.into_iter().find(|left| left.instance == instance).map(|left| left.interfaces).unwrap_or_default();
    let interface = interfaces.first().map_or(NO_INTERFACE, String::as_str);
    let mut kernel = Kernel::new(interface, instance).await?;
    let mut state = kernel.observe_fresh().await?;
    let desired = leaving(&mut kernel, &state);
    if desired.balancing.is_some() {
        state = kernel.observe_fresh().await?;
    }
    let mut observed = observed::stamp(&Observed::default(), state, ObservedSpeaker::default(), Instant::now());
    for _ in 0..MOST_ROUNDS {
        let now = Instant::now();
        let plan = plan::plan(&desired, &observed, now);
        let steps: Vec<Step> = plan.steps.into_iter().filter(is_of_kernel).collect();
        if steps.is_empty() {
            let done = plan::has_left(&desired, &observed);
            return if done { Ok(()) } else { Err(CleanupError::Left.into()) };
        }
        for step in &steps {
            if !dry_run {
                kernel.execute(step).await?;
            }
            tell(&step.to_string());
        }
        observed = if dry_run {
            predict(&observed, &steps, now)
        } else {
            observed::stamp(&observed, kernel.observe_fresh().await?, ObservedSpeaker::default(), now)
        };
    }
    Err(CleanupError::Left.into())
}

/// Takes away what virtual routers of the instance have left.
async fn leave_virtual_routers(instance: &str, dry_run: bool, tell: &mut impl FnMut(&str)) -> Result<(), Box<dyn Error + Send + Sync>> {
    let routers = VirtualRouters::spawn(instance)?;
    let mut status = routers.subscribe();
    let read = tokio::time::timeout(PATIENCE, status.wait_for(|status| status.recorded.is_some() || status.record_problem.is_some())).await;
    let recorded = read.map_err(|_elapsed| CleanupError::Left)??.clone();
    if let Some(problem) = &recorded.record_problem {
        return Err(CleanupError::Record(problem.clone()).into());
    }
    if !dry_run {
        routers.stop();
        tokio::time::timeout(PATIENCE, status.wait_for(|status| status.stopped)).await.map_err(|_elapsed| CleanupError::Left)??;
    }
    for (interface, addresses) in recorded.recorded.iter().flatten() {
        for address in addresses {
            tell(&format!("remove {address} of a virtual router from {interface}"));
        }
    }
    for link in &recorded.links {
        tell(&format!("remove {link}, a link with a virtual router MAC"));
    }
    Ok(())
}

const fn is_of_kernel(step: &Step) -> bool {
    !matches!(step.key(), StepKey::Advertise | StepKey::Speaker | StepKey::VirtualRouters)
}

/// The intent to have nothing. What balances, if anything, is what the record tells of.
fn leaving(kernel: &mut Kernel, state: &KernelState) -> Desired {
    let record = &state.record;
    let balances = !record.rules.is_empty() || !record.confirmed_services.is_empty() || !record.pending_services.is_empty();
    let balancing = balances.then(|| DesiredBalancing {
        services: BTreeMap::new(),
        rules: Rules { balancer: kernel.balancer(), ..Rules::default() },
        set_sysctls: false,
        timeouts: ipvs::Timeouts::default(),
        gue_port: 0,
        sync: BTreeMap::new(),
        external_interface: None,
    });
    kernel.balance(balancing.as_ref().map(|balancing| balancing.rules.balancer));
    Desired {
        complete: true,
        lifecycle: Lifecycle::Drain,
        vips: BTreeMap::new(),
        balancing,
        found: Vec::new(),
        bgp: DesiredBgp::nobody(),
        routing: Routing::default(),
        drain: DrainTimes { graceful_shutdown: Duration::ZERO, fabric_delay: Duration::ZERO, timeout: Duration::ZERO },
        vrrp: VirtualRouting::default(),
        real_server_drain: Duration::ZERO,
    }
}
