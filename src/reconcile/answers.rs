// SPDX-License-Identifier: Apache-2.0
//! What is done for those who look on, on a thread of its own: answers on the admin socket and on `http.address`, the status that others write down, and the log.
//!
//! Inputs: the loop's view, the speaker, the virtual routers, and what they ask. Invariant: the loop waits for none of it, however many VIPs a status tells of.

use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::{oneshot, watch};

use super::View;
use crate::admin::{AdminSocket, Desk, Http};
use crate::config::InForce;
use crate::driver::bgp::SpeakerStatus;
use crate::driver::kube::NodeView;
use crate::driver::vrrp::VrrpStatus;
use crate::source::kube::ApiHealth;
use crate::status::StatusReader;
use crate::telemetry::Logging;

/// Between two statuses that nobody asked for: how exact their times are.
const NOTE_INTERVAL: Duration = Duration::from_millis(100);

/// The thread. It ends when this is dropped.
#[derive(Debug)]
pub(super) struct Answers {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// What it has to do.
pub(super) struct Duties {
    pub(super) news: News,
    pub(super) status: StatusReader,
    /// Where the status goes when something has changed.
    pub(super) noted: watch::Sender<Option<NodeView>>,
    pub(super) admin: (AdminSocket, Desk),
    pub(super) http: (TcpListener, Http),
    pub(super) log: (watch::Receiver<Arc<InForce>>, Logging),
}

/// What makes another status.
pub(super) struct News {
    pub(super) views: watch::Receiver<View>,
    pub(super) speaker: watch::Receiver<Arc<SpeakerStatus>>,
    pub(super) virtual_routers: watch::Receiver<Arc<VrrpStatus>>,
    /// How well the API server is followed, where one is.
    pub(super) health: Option<watch::Receiver<Arc<ApiHealth>>>,
}

impl Answers {
    /// Starts it.
    ///
    /// # Errors
    /// The system has no thread left.
    pub(super) fn spawn(duties: Duties) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (stop, stopped) = oneshot::channel::<()>();
        let thread = std::thread::Builder::new().name("answers".to_owned()).spawn(move || {
            runtime.block_on(async {
                tokio::select! {
                    () = duties.carry_out() => {}
                    _ = stopped => {}
                }
            });
            runtime.shutdown_background();
        })?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Answers {
    fn drop(&mut self) {
        drop(self.stop.take());
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the thread that answers ended in a panic");
        }
    }
}

impl Duties {
    async fn carry_out(self) {
        let Self { news, status, noted, admin: (admin, desk), http: (listener, http), log: (in_force, logging) } = self;
        tokio::join!(
            note_changes(news, status, noted),
            async { complain("admin socket", admin.serve(desk).await) },
            async { complain("http.address", http.serve(listener).await) },
            apply_log_settings(in_force, logging),
        );
    }
}

/// Makes a status soon after each change, so that its times are those of the changes and not of the questions.
async fn note_changes(mut news: News, status: StatusReader, noted: watch::Sender<Option<NodeView>>) {
    loop {
        let of_health = async {
            match &mut news.health {
                Some(health) => health.changed().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            Ok(()) = news.views.changed() => {}
            Ok(()) = news.speaker.changed() => {}
            Ok(()) = news.virtual_routers.changed() => {}
            Ok(()) = of_health => {}
            else => return,
        }
        let compiled = news.views.borrow_and_update().compiled.clone();
        noted.send_replace(Some(NodeView { compiled, status: status.read() }));
        tokio::time::sleep(NOTE_INTERVAL).await;
    }
}

fn complain(what: &str, served: io::Result<()>) {
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
