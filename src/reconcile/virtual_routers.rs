// SPDX-License-Identifier: Apache-2.0
//! Which virtual routers there are to be: those of the configuration while the node serves, none while it leaves or stands by.
//!
//! Input: configuration and lifecycle. Output: the whole set, for [`VirtualRouters`], which nobody waits for but the end of the daemon.

use std::sync::Arc;
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use super::View;
use crate::config::InForce;
use crate::desired::{DesiredVrrp, Lifecycle, NodeDrain};
use crate::driver::vrrp::{VirtualRouters, VrrpStatus};

/// What a hand-over may take beyond the longest that any router waits for another one.
const SLACK: Duration = Duration::from_secs(5);

/// Keeps them so while the daemon runs. Until the loop has looked at the node for the first time nothing is known of its lifecycle.
pub(super) async fn follow(routers: Arc<VirtualRouters>, mut config: watch::Receiver<Arc<InForce>>, mut views: watch::Receiver<View>) {
    if views.changed().await.is_err() {
        return;
    }
    loop {
        match wanted(&config.borrow_and_update().config.vrrp, &views.borrow_and_update()) {
            Some(desired) => routers.configure(Arc::new(desired)),
            None => routers.stop(),
        }
        tokio::select! {
            Ok(()) = config.changed() => {}
            Ok(()) = views.changed() => {}
            else => return,
        }
    }
}

/// `None` where they are to hand over.
fn wanted(configured: &DesiredVrrp, view: &View) -> Option<DesiredVrrp> {
    // Before the first intent, what an earlier process knew of the Node counts.
    let stands_by = matches!(view.node_drain, NodeDrain::Drained { .. });
    let unknown = if stands_by { Lifecycle::Standby } else { Lifecycle::Run };
    match view.compiled.as_ref().map_or(unknown, |compiled| compiled.desired.lifecycle) {
        Lifecycle::Run => Some(configured.clone()),
        Lifecycle::Standby | Lifecycle::Keep | Lifecycle::Drain => None,
    }
}

/// Hands over, and waits until that is done; a signal says not to.
pub(super) async fn leave(routers: &VirtualRouters) {
    let mut status = routers.subscribe();
    routers.stop();
    let bound = longest_hand_over(&status.borrow()) + SLACK;
    let Ok(mut terminate) = signal(SignalKind::terminate()) else { return };
    tokio::select! {
        stopped = tokio::time::timeout(bound, status.wait_for(|status| status.stopped)) => {
            if !matches!(stopped, Ok(Ok(_))) {
                tracing::warn!(after = ?bound, "virtual routers have not left in time; what is left of their addresses the next start takes away");
            }
        }
        _ = terminate.recv() => {
            tracing::warn!("second signal: leaving at once: addresses of virtual routers stay as they are; the next start takes them over");
        }
    }
}

/// The longest that another router waits before it takes over (RFC 9568 §6.1; RFC 3768 §6.1 adds up to a second).
fn longest_hand_over(status: &VrrpStatus) -> Duration {
    let intervals = status.groups.iter().flat_map(|group| group.routers.values()).map(|router| router.config.interval.duration());
    intervals.max().unwrap_or_default() * 4
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::desired::compile;
    use crate::desired::tests::config;
    use crate::source::Snapshot;

    #[test]
    fn there_are_none_while_the_node_leaves_or_stands_by() {
        let configured = DesiredVrrp::default();
        let drained = NodeDrain::Drained { reason: "it is cordoned".to_owned() };
        let of = |lifecycle: Option<Lifecycle>, node_drain: &NodeDrain| {
            let mut compiled = compile(&Snapshot::default(), &config());
            compiled.desired.lifecycle = lifecycle.unwrap_or(Lifecycle::Run);
            let compiled = lifecycle.map(|_| Arc::new(compiled));
            wanted(&configured, &View { compiled, node_drain: node_drain.clone(), ..View::default() }).is_some()
        };
        assert!(of(Some(Lifecycle::Run), &NodeDrain::None));
        for lifecycle in [Lifecycle::Standby, Lifecycle::Keep, Lifecycle::Drain] {
            assert!(!of(Some(lifecycle), &NodeDrain::None), "{lifecycle:?}");
        }
        assert!(of(None, &NodeDrain::None), "nobody is waited for to know whom to serve");
        assert!(!of(None, &drained), "but a node that was drained stays so");
    }
}
