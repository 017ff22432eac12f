// SPDX-License-Identifier: Apache-2.0
//! The slow loop: observe, plan, execute, and again, until the plan is empty; then sleep until something changes.
//!
//! Inputs: the intent in force, what kernel and speaker report, signals. Outputs: steps carried out, and a view of every pass for status, admin and
//! metrics. Invariants: every decision is the planner's; a step that fails is counted and planned again; the loop ends only by an ordered drain, or by a
//! second signal.

mod answers;
mod cleanup;
mod daemon;
mod dry_run;
mod intent;
mod obstacle;
mod purpose;
mod quiesced;
mod table;
mod view;
mod virtual_routers;

use std::collections::BTreeSet;
use std::error::Error;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bgp::Prefix;
use bgp::peer::Forwarding;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;

pub use self::cleanup::cleanup;
pub use self::daemon::{Objects, RunOptions, run};
pub use self::dry_run::dry_run;
use self::intent::{Intent, NotFollowed};
use self::quiesced::Leaving;
use crate::actuator::{self, Kernel};
use crate::admin::Pulse;
use crate::desired::{Compiled, Desired, Lifecycle, Mode, NodeDrain, Termination};
use crate::driver::bgp::{Speaker, SpeakerStatus};
use crate::driver::vrrp::{VirtualRouters, VrrpStatus};
use crate::observed::{self, InterfaceState, KernelState, Observed, ObservedSpeaker};
use crate::plan::{self, Step, StepKey};
use crate::telemetry::{Metrics, chain};

/// The kernel is read again at least this often, though nothing hints at a change: notifications are hints, a resync is the truth.
const RESYNC: Duration = Duration::from_secs(10);

/// So many plans in a row without rest mean that somebody undoes what we do; from then on there is a pause between them.
const BUSY_ROUNDS: u32 = 64;
const BUSY_PAUSE: Duration = Duration::from_millis(100);

/// What a drain may take beyond the times of `drain:`, for the kernel and the last messages to the peers.
const DRAIN_SLACK: Duration = Duration::from_secs(20);

/// How long the speaker may take to take a whole set; it does so in microseconds unless it cannot.
const SPEAKER_PATIENCE: Duration = Duration::from_secs(1);

/// What ends the loop before the node has left in order.
#[derive(Debug, thiserror::Error)]
enum RunError {
    #[error(transparent)]
    NotFollowed(#[from] NotFollowed),
    #[error("the drain is given up after {}; what is left stays, and the next start goes on from there: {failing}", humantime::format_duration(*bound))]
    DrainOverdue { bound: Duration, failing: String },
}

/// A whole set that the speaker cannot take yet.
#[derive(Debug, thiserror::Error)]
#[error("the speaker has not taken it yet: {0}")]
struct NotTaken(String);

/// One pass of the loop, for those who show it.
#[derive(Clone, Debug, Default)]
struct View {
    /// The intent in force and what takes no part in it; `None` before the first.
    compiled: Option<Arc<Compiled>>,
    /// Whether that is the intent of an earlier run.
    cached: bool,
    /// Whether VIPs leave the node while it goes on.
    node_drain: NodeDrain,
    /// What balances where the configuration leaves that to the kernel, and why.
    dataplane: Option<String>,
    /// What was read.
    observed: Arc<Observed>,
}

/// The loop and what it owns.
struct Reconciler {
    intent: Intent,
    kernel: Kernel,
    kernel_state: KernelState,
    speaker: Speaker,
    speaker_status: watch::Receiver<Arc<SpeakerStatus>>,
    routers: Arc<VirtualRouters>,
    router_status: watch::Receiver<Arc<VrrpStatus>>,
    observed: Arc<Observed>,
    views: watch::Sender<View>,
    signals: Signals,
    metrics: Metrics,
    pulse: Pulse,
    leaving_since: Option<Instant>,
    /// Whether the speaker knows what an earlier process has left.
    inherited: bool,
    /// What of the observation the state directory has.
    kept_leaving: Leaving,
    /// Why VIPs could not be moved to another `vips.interface`, as told last.
    unmoved: Option<String>,
    /// From then on the next reading trusts nothing that was read before.
    audit_at: Instant,
    /// Plans in a row that changed something.
    rounds: u32,
    /// The last pass has read the kernel, and changed nothing.
    at_rest: bool,
}

impl Reconciler {
    /// Runs until the node has left in order, or a second signal says not to wait for that.
    ///
    /// # Errors
    /// It cannot follow its inputs any more, or not end a drain. It leaves everything as it is: a restart goes on from there.
    async fn run(mut self) -> Result<Left, RunError> {
        loop {
            let now = Instant::now();
            self.pulse.beat();
            if self.intent.asks_for_ipvs() {
                self.intent.answer(actuator::probe_ipvs().await);
            }
            self.hurry(now).await;
            let compiled = self.intent.current(now);
            if compiled.is_none() {
                self.route_before_intent();
            }
            let balancing = compiled.as_ref().and_then(|compiled| compiled.desired.balancing.as_ref());
            self.kernel.balance(balancing.map(|balancing| balancing.rules.balancer));
            self.kernel.adapt(balancing);
            let readable = self.observe(now).await;
            let plan = compiled.as_ref().map(|compiled| plan::plan(&compiled.desired, &self.observed, now)).unwrap_or_default();
            self.views.send_replace(View {
                compiled: compiled.clone(),
                cached: self.intent.is_cached(),
                node_drain: self.intent.node_drain(),
                dataplane: self.intent.chosen_dataplane(),
                observed: Arc::clone(&self.observed),
            });
            // Virtual routers that are to resign do not wait for the kernel.
            let is_possible = |step: &&Step| readable || step.key() == StepKey::VirtualRouters;
            let is_free = |step: &&Step| !(self.kernel.is_busy() && self.kernel.takes_nft(step));
            let steps: Vec<&Step> = plan.steps.iter().filter(is_possible).filter(is_free).collect();
            if !steps.is_empty() {
                self.execute(&steps, &plan.forced).await;
                self.metrics.count_pass(now.elapsed());
                self.rest_when_busy().await;
                continue;
            }
            self.rounds = 0;
            self.at_rest = readable;
            // What nft still does may be what has to be taken back.
            let settled = readable && !self.kernel.is_busy();
            if settled && compiled.is_some_and(|compiled| plan::has_left(&compiled.desired, &self.observed)) {
                self.intent.has_left();
                return Ok(if self.intent.is_kept() { Left::ForTheNext } else { Left::InOrder });
            }
            if let Some(late) = self.overdue(now) {
                return Err(late);
            }
            self.intent.save();
            self.keep_leaving();
            if self.sleep(plan.wake_at, now).await? == Wake::Leave {
                return Ok(Left::AtOnce);
            }
        }
    }

    /// Where only endpoints came and went since a pass that changed nothing, the kernel gets the real servers before all else is read and decided again.
    async fn hurry(&mut self, now: Instant) {
        if !std::mem::take(&mut self.at_rest) || self.kernel.is_busy() {
            return;
        }
        let churn = self.intent.churn();
        let Some(compiled) = self.intent.in_force().filter(|_| !churn.is_empty()) else { return };
        let steps = plan::plan_churn(&churn, &compiled.desired, &self.observed, now);
        if !steps.is_empty() {
            self.execute(&steps.iter().collect::<Vec<_>>(), &BTreeSet::new()).await;
            // What goes on beside this task, as nft does, starts before the whole is compiled.
            tokio::task::yield_now().await;
        }
    }

    /// Reads kernel and speaker. False where the kernel could not be read: then nothing may be concluded from it.
    async fn observe(&mut self, now: Instant) -> bool {
        if self.audit_at <= now {
            self.kernel.distrust();
            self.audit_at = now + RESYNC;
        }
        self.move_addresses().await;
        let read = self.kernel.observe().await;
        for (step, outcome) in self.kernel.outcomes() {
            self.account(&step, outcome.as_ref().err().map(|error| error as &dyn Error));
        }
        let readable = read.is_ok();
        match read {
            Ok(state) => {
                self.kernel_state = state;
                if !std::mem::replace(&mut self.inherited, true) {
                    self.inherit();
                }
            }
            Err(error) => tracing::error!(error = %chain(&error), "the kernel cannot be read; nothing is changed until it can"),
        }
        let status = self.speaker_status.borrow_and_update().clone();
        let speaker = ObservedSpeaker {
            advertised: status.advertised.clone(),
            configured: status.configured.clone(),
            withdrawing: status.withdrawing(),
            open_sessions: status.open_sessions(),
            behind: !status.peers.values().all(|peer| status.is_current(peer)),
            established: status.peers.values().any(|peer| peer.established_since.is_some()),
        };
        let mut observed = observed::stamp(&self.observed, self.kernel_state.clone(), speaker, now);
        observed.unreadable_since =
            if readable { self.kernel.unreadable_since() } else { Some(self.observed.unreadable_since.unwrap_or(now)) };
        observed.virtual_routers = virtual_routers::observed(&self.router_status.borrow_and_update().clone(), now);
        self.observed = Arc::new(observed);
        readable
    }

    /// Keeps since when real servers are quiesced and ranges without ports, for the next process.
    fn keep_leaving(&mut self) {
        if self.kept_leaving.is_of(&self.observed) {
            return;
        }
        let leaving = Leaving::from(&*self.observed);
        let saved = quiesced::Clock::read().and_then(|clock| quiesced::save(self.intent.state_dir(), &leaving, &clock));
        if let Err(error) = saved {
            tracing::warn!(%error, "it cannot be kept since when real servers are quiesced: after a restart they get their time anew");
        }
        self.kept_leaving = leaving;
    }

    /// Where `vips.interface` was another one for an earlier process, what that has placed follows, before anything else is decided.
    async fn move_addresses(&mut self) {
        if !self.kernel.has_to_move() {
            return;
        }
        let problem = self.kernel.move_addresses().await.err().map(|error| chain(&error));
        if let Some(error) = problem.as_ref().filter(|_| problem != self.unmoved) {
            tracing::warn!(error, "VIPs on the former vips.interface cannot be moved; they stay there until they can");
        }
        self.unmoved = problem;
    }

    /// What the record tells of at the start was announced by a process that did not drain, since the record goes with a drain and with the kernel: peers
    /// may have kept it. So may they what others have placed and an earlier process wanted to announce, which is in no record, and what it has reflected.
    fn inherit(&mut self) {
        let former = self.intent.take_former();
        let by_routers = self.intent.virtual_routing().mode == Mode::Vrrp;
        let KernelState { interface, addresses, .. } = &self.kernel_state;
        let was_wanted = |address: &IpAddr| {
            let of_former =
                |Desired { vips, found, .. }: &Desired| vips.contains_key(address) || found.iter().any(|prefix| prefix.contains(*address));
            former.as_ref().is_some_and(of_former)
        };
        let placed_by_others = addresses.keys().copied().filter(was_wanted);
        let left = self.kernel_state.left_behind().into_iter().chain(placed_by_others);
        // What virtual routers have is in the record too, and was announced only while it was on the interface.
        let is_announced = |vip: &IpAddr| !by_routers || addresses.contains_key(vip);
        let left: BTreeSet<IpAddr> = left.filter(is_announced).collect();
        if !left.is_empty() || former.is_some() {
            let around = |prefix: &Prefix| left.iter().any(|vip| prefix.contains(*vip));
            let aggregates = self.intent.aggregates().into_iter().filter(around);
            let served = |is_of_family: fn(&IpAddr) -> bool| {
                let mut of_family = left.iter().filter(|address| is_of_family(address));
                *interface == InterfaceState::Up && of_family.all(|address| addresses.contains_key(address))
            };
            let forwarding = Forwarding { ipv4: served(IpAddr::is_ipv4), ipv6: served(IpAddr::is_ipv6) };
            let prefixes = left.iter().copied().map(Prefix::host).chain(aggregates).collect();
            tracing::info!(
                vips = left.len(),
                ipv4 = forwarding.ipv4,
                ipv6 = forwarding.ipv6,
                "goes on from an earlier process, whose state of these families was kept"
            );
            self.speaker.inherit(prefixes, forwarding);
        }
    }

    /// Carries out a plan. Its steps do not depend on one another, so each runs, whatever becomes of the others.
    async fn execute(&mut self, steps: &[&Step], forced: &BTreeSet<IpAddr>) {
        for address in forced {
            tracing::warn!(%address, "a peer has not acknowledged the withdrawal in time; the address is removed all the same");
        }
        let is_of_routers = |step: &&&Step| step.key() == StepKey::VirtualRouters;
        let resigns_first = steps.first().is_some_and(|step| is_of_routers(&step));
        let withdraws_first = steps.iter().find(|step| !is_of_routers(step)).is_some_and(|step| matches!(step, Step::Advertise(_)));
        let (mut of_nft, mut of_kernel, mut of_speaker, mut of_routers) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for step in steps {
            let list = match step.key() {
                _ if self.kernel.takes_nft(step) => &mut of_nft,
                StepKey::Record
                | StepKey::Address(_)
                | StepKey::VirtualService(_)
                | StepKey::Retired(_)
                | StepKey::Sysctl(_)
                | StepKey::Interfaces
                | StepKey::Timeouts
                | StepKey::Daemon(_)
                | StepKey::Connections => &mut of_kernel,
                StepKey::Advertise | StepKey::Speaker => &mut of_speaker,
                StepKey::VirtualRouters => &mut of_routers,
            };
            list.push((*step).clone());
        }
        if resigns_first {
            self.execute_on_routers(&of_routers).await;
        }
        if withdraws_first {
            self.execute_on_speaker(&of_speaker).await;
        }
        if !of_nft.is_empty() {
            self.kernel.begin(of_nft);
        }
        let results = self.kernel.execute_all(&of_kernel).await;
        for (step, result) in of_kernel.iter().zip(results) {
            self.account(step, result.as_ref().err().map(|error| error as &dyn Error));
        }
        if !resigns_first {
            self.execute_on_routers(&of_routers).await;
        }
        if !withdraws_first {
            self.execute_on_speaker(&of_speaker).await;
        }
    }

    async fn execute_on_speaker(&mut self, steps: &[Step]) {
        for step in steps {
            let taken = match step {
                Step::Advertise(set) => {
                    self.speaker.advertise(Arc::clone(set));
                    self.speaker_shows(|status| status.advertised.as_ref() == Some(set)).await
                }
                Step::ConfigureSpeaker(desired, set) => {
                    self.speaker.configure(Arc::clone(desired), set.clone());
                    let is_told = |status: &SpeakerStatus| set.is_none() || status.advertised == *set;
                    self.speaker_shows(|status| status.configured.as_ref() == Some(desired) && is_told(status)).await
                }
                Step::StopSpeaker => {
                    self.speaker.stop();
                    self.speaker_shows(|status| status.configured.is_none()).await
                }
                Step::ReleaseSpeaker => {
                    self.speaker.release();
                    self.speaker_shows(|status| status.configured.is_none()).await
                }
                Step::RecordPending(_)
                | Step::AddAddress(_)
                | Step::RecordConfirmed(_)
                | Step::RemoveAddress(_)
                | Step::RecordRemoved(_)
                | Step::ClosePorts(_)
                | Step::OpenPorts(_)
                | Step::MoveRanges(_)
                | Step::WriteFilters(_)
                | Step::WriteRules(_)
                | Step::SetSysctl(_)
                | Step::SetInterfaces(_)
                | Step::SetTimeouts(_)
                | Step::StartDaemon(_)
                | Step::StopDaemon(_)
                | Step::AddVirtualService(..)
                | Step::ChangeVirtualService(..)
                | Step::RemoveVirtualService(_)
                | Step::RemoveFormer(_)
                | Step::RemoveRetired(_)
                | Step::ForgetConnections(_)
                | Step::ConfigureVirtualRouters(_)
                | Step::StopVirtualRouters
                | Step::SuspendVirtualRouters
                | Step::DropRecord => continue,
            };
            let problem = self.speaker_status.borrow().problem.clone().unwrap_or_else(|| "it is busy".to_owned());
            self.account(step, (!taken).then_some(&NotTaken(problem) as &dyn Error));
        }
    }

    async fn speaker_shows(&mut self, condition: impl FnMut(&Arc<SpeakerStatus>) -> bool) -> bool {
        let shown = self.speaker_status.wait_for(condition);
        matches!(tokio::time::timeout(SPEAKER_PATIENCE, shown).await, Ok(Ok(_)))
    }

    fn account(&mut self, step: &Step, error: Option<&dyn Error>) {
        self.metrics.count_step(step, error.is_none());
        if let Step::AddAddress(address) = step
            && error.is_none()
            && self.observed.kernel.record.confirmed.contains(address)
            && !self.observed.removed.contains(&step.key())
            && !self.observed.virtual_routers.has_recorded(*address)
        {
            tracing::warn!(%address, "it was ours, and somebody took it off the interface; it is back");
            self.metrics.count_repair();
        }
        let observed = Arc::make_mut(&mut self.observed);
        match error {
            None => {
                tracing::debug!(%step, "done");
                observed.complete(step);
            }
            Some(error) => {
                tracing::warn!(%step, error = %chain(error), "failed; it is planned again");
                observed.refuse(step, error, Instant::now());
            }
        }
    }

    /// Somebody may undo each of our steps at once: repair, but not in a race.
    async fn rest_when_busy(&mut self) {
        self.rounds = self.rounds.saturating_add(1);
        if self.rounds == BUSY_ROUNDS {
            tracing::warn!("{BUSY_ROUNDS} plans in a row changed something: does another program change the same addresses?");
        }
        if self.rounds >= BUSY_ROUNDS {
            tokio::time::sleep(BUSY_PAUSE).await;
        }
    }

    /// Why a drain that cannot end is given up: each wait in it is bounded, but what only others can mend may fail for ever.
    fn overdue(&self, now: Instant) -> Option<RunError> {
        let (bound, at) = self.drain_bound()?;
        let late = at <= now;
        let failing = self.observed.failures.values().map(|failure| failure.error.clone()).collect::<Vec<_>>().join("; ");
        late.then_some(RunError::DrainOverdue { bound, failing })
    }

    /// How long the drain under way may take, and when that is over.
    fn drain_bound(&self) -> Option<(Duration, Instant)> {
        let times = self.intent.drain_times()?;
        let hand_over = virtual_routers::longest_hand_over(&self.router_status.borrow());
        let bound = times.graceful_shutdown + times.timeout + times.fabric_delay + hand_over + DRAIN_SLACK;
        Some((bound, self.leaving_since? + bound))
    }

    async fn sleep(&mut self, wake_at: Option<Instant>, now: Instant) -> Result<Wake, RunError> {
        // A step that fails again and again is retried later than that.
        let give_up_at = self.drain_bound().map(|(_, at)| at);
        let wake = wake_at.into_iter().chain(give_up_at).fold(self.audit_at.max(now), Instant::min);
        tokio::select! {
            changed = self.intent.changed() => changed?,
            () = self.kernel.changed() => {}
            Ok(()) = self.speaker_status.changed() => {}
            Ok(()) = self.router_status.changed() => {}
            () = tokio::time::sleep_until(wake.into()) => {}
            name = self.signals.next() => {
                if self.intent.is_leaving() {
                    tracing::warn!(
                        signal = name,
                        "second signal: leaving at once; addresses, nft tables, virtual services and settings stay as they are: \
                         the next start takes them over, and a drain after it removes them"
                    );
                    return Ok(Wake::Leave);
                }
                self.leaving_since = Some(Instant::now());
                let Termination { lifecycle, reason } = self.intent.leave().await;
                match lifecycle {
                    Lifecycle::Keep => tracing::info!(signal = name, reason, "leaving: all stays as it is for the next start"),
                    Lifecycle::Run | Lifecycle::Standby | Lifecycle::Drain => {
                        tracing::info!(signal = name, reason, "draining: withdraw, wait for the peers and the fabric, remove");
                    }
                }
            }
        }
        Ok(Wake::Look)
    }
}

/// How the loop has ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Left {
    InOrder,
    /// In order, and the next process goes on from there.
    ForTheNext,
    /// A second signal has said not to wait for that.
    AtOnce,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Wake {
    Look,
    Leave,
}

/// The signals that ask the node to leave.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn new() -> std::io::Result<Self> {
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }
}
