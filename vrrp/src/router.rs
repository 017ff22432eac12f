// SPDX-License-Identifier: Apache-2.0
//! One virtual router: the state machine of RFC 9568 §6.4 as a value.
//!
//! Input: [`Event`]s of a driver that owns sockets, addresses and a clock, and its [`Config`], which may change at any time. Output: [`Action`]s for that
//! driver, in the order in which they are to be carried out, and the [deadline](VirtualRouter::deadline) of the next [`Event::Tick`]. A tick that comes
//! early does nothing. **What has been received is given before a tick**: a driver reads its socket empty first.
//!
//! Invariants: the addresses are answered for in Active only; a router is Active only while it is started and its interface is up; it leaves Active by itself only with an advertisement of priority 0, unless its interface is down. Nothing is done twice for one lapse of a timer,
//! however late the tick comes.
//!
//! Beyond the standard:
//! - **Late ticks.** A process that was suspended finds timers that have lapsed long ago, while what others said meanwhile waits in its socket. A Backup
//!   Router whose tick is late by more than an advertisement interval waits for one Active_Down_Interval more, once. An Active Router that was silent for so long
//!   that others may have followed it advertises at once, but claims the caches of its neighbours only an interval later, if it is Active still.
//! - **Hand-over.** A router that is [stopped](Event::Stop) while Active keeps its addresses, without answering for them, until it hears the new Active
//!   Router, or until there will be none. One that is stopped [for the next process](Event::Suspend) has them answered for again then.
//! - **Leftovers.** What a process that was killed has left on the interface goes on serving without being answered for, until another router is heard to be
//!   Active, or this one is: else a restart would cut off what the others have not noticed.
//! - **Health.** A router whose node [does not serve](Event::NotServing) resigns, and takes part with the [lowest priority](Priority::LOWEST) from then on: anybody else
//!   is better, and it is better than nobody. A router of that priority is preempted without delay, whatever [`Preempt`] says: else what was healed could not help.
//! - **Delay of preemption**, as [`Preempt`] says.
//! - **Contention.** An Active Router that hears one of lower priority tells the neighbours again where the addresses are: they may have been told
//!   otherwise.
//!
//! Supported standards: RFC 9568 §6, §7.1, §8.2; RFC 3768 §6 (version 2). The shares of IPv4 and IPv6 are two virtual routers.
#![warn(clippy::wildcard_enum_match_arm)]

mod announcing;
mod config;
mod election;
mod member;
mod receive;
mod status;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::{Duration, Instant};

use crate::identity::{Addresses, Interval, Priority, Version};
use crate::wire::{Advertisement, ChecksumForm, Datagram, Endpoints};

pub use config::{Announcing, ChecksumChoice, Config, ConfigError, Preempt, Transport};
pub use receive::Discard;
pub use status::{Counters, Discards, Heard, Hindrance, State, Timers};

use announcing::Announcements;
use election::Backup;
pub(crate) use member::Ties;

/// What happened.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Event {
    /// Take part (RFC 9568 §6.4.1, Startup).
    Start,
    /// Take part no longer (§6.4.2, §6.4.3, Shutdown), and hand over.
    Stop,
    /// Likewise, for the next process of this node: where nobody follows, it finds the addresses as they are.
    Suspend,
    /// The node does what the addresses are there for, as is taken for granted before it is told: the router has its own priority.
    Serving,
    /// It does not, or for one more reason: what it attracts may be lost. Where there are others, an Active Router resigns; from then on it has the lowest priority.
    NotServing,
    /// The interface is up. Not so before the first time.
    InterfaceUp,
    /// The interface is down, or gone.
    InterfaceDown,
    /// The deadline may have come.
    Tick,
    /// A datagram of protocol 112 came in on the interface.
    Received(Datagram),
}

/// What becomes of the virtual addresses.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Holding {
    /// On the interface, and ARP and ND answered for them.
    Held,
    /// Left on the interface as far as they are there, for what comes yet; ARP and ND are not answered.
    Silent,
    /// As they are, answered for as far as they are there: nobody follows, and the next process goes on with them.
    Left,
    /// Not on the interface: neither what this process has put there, nor what an earlier one of this node has left.
    Released,
}

/// What the driver is to do.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Action {
    /// Send this as payload of protocol 112 with TTL or Hop Limit 255.
    Send {
        /// Source and destination.
        endpoints: Endpoints,
        /// The payload.
        octets: Vec<u8>,
    },
    /// This becomes of [`VirtualRouter::addresses`]. It is said again where those have changed.
    Addresses(Holding),
    /// Tell the neighbours where the addresses are: gratuitous ARP or unsolicited Neighbor Advertisement for each of [`VirtualRouter::addresses`].
    Announce,
    /// The state has changed. It comes last.
    Transition {
        /// From this.
        from: State,
        /// To this.
        to: State,
    },
    /// A datagram was not taken for an advertisement. For a log that limits its rate.
    Discarded {
        /// Who sent it.
        source: IpAddr,
        /// Why.
        reason: Discard,
    },
    /// Another router lists other addresses for this virtual router: told once until it lists others again. It may be a foreign one with the same VRID.
    AddressesDiffer {
        /// The other router.
        source: IpAddr,
        /// What it lists.
        listed: Addresses,
    },
}

/// A router of a virtual router (RFC 9568 §6.4).
///
/// ```text
///                      +------------+
///        +-----------> | Initialize | <-------------+
///        |             +------------+               |
///        | Stop,          |      | Start, with      | Stop:
///        | interface down |      | priority 255     | priority 0 is sent;
///        |                |      |                  | interface down
///        |                v      v                  |
///   +--------+    Active_Down_Timer         +--------+
///   | Backup | ---------------------------> | Active |
///   |        | <--------------------------- |        |
///   +--------+   a better one was heard;    +--------+
///                not serving: priority 0 is sent
/// ```
#[derive(Debug)]
pub struct VirtualRouter {
    config: Config,
    hindrances: BTreeSet<Hindrance>,
    /// The node does what the addresses are there for.
    serving: bool,
    /// It was stopped for the next process.
    suspended: bool,
    mode: Mode,
    /// `None`: nobody knows, as an earlier process may have held them.
    holding: Option<Holding>,
    heard: Option<Heard>,
    /// What that one listed.
    listed: Option<Addresses>,
    /// The forms of the checksum that the peers send, and the last one of anybody.
    forms: BTreeMap<IpAddr, ChecksumForm>,
    last_form: Option<ChecksumForm>,
    /// Lists that were reported to differ from ours.
    differing: BTreeMap<IpAddr, Addresses>,
    ties: Ties,
    counters: Counters,
}

#[derive(Debug)]
enum Mode {
    Initialize {
        /// Until then the addresses are kept for the router that follows.
        handover_until: Option<Instant>,
    },
    Backup(Backup),
    Active(Active),
}

#[derive(Debug)]
struct Active {
    /// Adver_Timer.
    adver_timer: Instant,
    announcements: Announcements,
    /// When a contender was last answered.
    answered: Option<Instant>,
    /// When a contender was last heard.
    contended: Option<Instant>,
}

/// One call of [`VirtualRouter::handle`].
#[derive(Debug)]
pub(crate) struct Turn {
    now: Instant,
    before: State,
    pub(crate) actions: Vec<Action>,
}

impl Turn {
    fn push(&mut self, action: Action) {
        self.actions.push(action);
    }
}

/// How a router leaves Active for Initialize.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Leave {
    /// Another one is told to follow; until it does, what comes is still served.
    HandOver,
    /// Another one is told to follow; what comes is not served.
    Resign,
    /// Nobody can be told.
    Drop,
}

impl VirtualRouter {
    /// A virtual router that waits for [`Event::Start`] and [`Event::InterfaceUp`].
    ///
    /// # Errors
    /// The configuration contradicts itself, or the standard.
    pub fn new(config: Config) -> Result<Self, ConfigError> {
        config.check()?;
        Ok(Self::of(config))
    }

    /// Of a configuration that was checked.
    pub(crate) fn of(config: Config) -> Self {
        let mut hindrances = BTreeSet::from([Hindrance::Stopped, Hindrance::InterfaceDown]);
        hindrances.extend(config.transport.is_without_peers().then_some(Hindrance::NoPeers));
        Self {
            config,
            hindrances,
            serving: true,
            suspended: false,
            mode: Mode::Initialize { handover_until: None },
            holding: None,
            heard: None,
            listed: None,
            forms: BTreeMap::new(),
            last_form: None,
            differing: BTreeMap::new(),
            ties: Ties::Lost,
            counters: Counters::default(),
        }
    }

    /// Takes one event, and says what to do about it.
    pub fn handle(&mut self, now: Instant, event: Event) -> Vec<Action> {
        let mut turn = self.turn(now);
        self.take(&mut turn, event);
        self.settle(&mut turn);
        turn.actions
    }

    /// Another configuration from now on: the same virtual router goes on with it, in its state.
    ///
    /// # Errors
    /// The configuration contradicts itself or the standard, or is that of another virtual router. That which was in force stays so.
    pub fn configure(&mut self, now: Instant, config: Config) -> Result<Vec<Action>, ConfigError> {
        self.config.check_change(&config)?;
        let mut turn = self.turn(now);
        self.adopt(&mut turn, config);
        self.settle(&mut turn);
        Ok(turn.actions)
    }

    pub(crate) const fn turn(&self, now: Instant) -> Turn {
        Turn { now, before: self.state(), actions: vec![] }
    }

    /// Without others that it depends on, a router claims when it may.
    fn settle(&mut self, turn: &mut Turn) {
        if self.is_willing() {
            self.claim(turn);
        }
        self.conclude(turn);
    }

    /// Reports the transition that came of the turn. A Backup Router answers for nothing, whatever an earlier process has left.
    pub(crate) fn conclude(&mut self, turn: &mut Turn) {
        let (from, to) = (turn.before, self.state());
        if to == State::Backup && matches!(self.holding, None | Some(Holding::Left)) {
            self.hold(turn, Holding::Silent);
        }
        if from != to {
            turn.push(Action::Transition { from, to });
        }
    }

    /// Takes one event, and leaves a claim to be made.
    pub(crate) fn take(&mut self, turn: &mut Turn, event: Event) {
        match event {
            Event::Start => {
                self.suspended = false;
                self.unhinder(turn, Hindrance::Stopped);
            }
            Event::Stop => self.stop(turn, false),
            Event::Suspend => self.stop(turn, true),
            Event::Serving => self.set_serving(true),
            Event::NotServing => self.stop_serving(turn),
            Event::InterfaceUp => self.unhinder(turn, Hindrance::InterfaceDown),
            Event::InterfaceDown => self.hinder(turn, Hindrance::InterfaceDown, Leave::Drop),
            Event::Tick => self.tick(turn),
            Event::Received(datagram) => self.receive(turn, &datagram),
        }
    }

    pub(crate) fn adopt(&mut self, turn: &mut Turn, config: Config) {
        let before = std::mem::replace(&mut self.config, config);
        if let Mode::Backup(backup) = &mut self.mode {
            backup.preempt_at = None;
        }
        if before.addresses != self.config.addresses {
            self.differing.clear();
            if let Some(holding) = self.holding.filter(|holding| *holding != Holding::Released) {
                turn.push(Action::Addresses(holding));
            }
        }
        let interval = self.config.interval.duration();
        if let Mode::Active(active) = &mut self.mode {
            active.adver_timer = active.adver_timer.min(turn.now + interval);
            if before.addresses != self.config.addresses {
                active.announcements.restart(turn.now, &self.config.announcing);
            }
        }
        self.announce_if_due(turn);
        self.forms.retain(|peer, _| self.config.transport.has(*peer));
        // A router that runs is not stopped by the loss of its peers: that may be trouble of those who know them.
        if !self.config.transport.is_without_peers() {
            self.unhinder(turn, Hindrance::NoPeers);
        } else if self.state() == State::Initialize {
            self.hindrances.insert(Hindrance::NoPeers);
        }
    }

    fn unhinder(&mut self, turn: &Turn, hindrance: Hindrance) {
        if self.hindrances.remove(&hindrance) && self.hindrances.is_empty() {
            self.start_up(turn);
        }
    }

    fn hinder(&mut self, turn: &mut Turn, hindrance: Hindrance, leave: Leave) {
        self.hindrances.insert(hindrance);
        let handing_over = matches!(self.mode, Mode::Initialize { handover_until: Some(_) });
        match (&self.mode, leave) {
            (Mode::Active(_), Leave::HandOver) if self.config.transport.has_others() => {
                self.send(turn, None);
                let handover_until = turn.now + self.longest_active_down_interval();
                self.mode = Mode::Initialize { handover_until: Some(handover_until) };
                self.hold(turn, Holding::Silent);
            }
            (Mode::Active(_), Leave::HandOver) => {
                self.send(turn, None);
                self.leave_as_is(turn);
            }
            (Mode::Active(_), Leave::Resign) => {
                self.send(turn, None);
                self.initialize(turn);
            }
            (Mode::Active(_), Leave::Drop) | (Mode::Backup(_), _) => self.initialize(turn),
            (Mode::Initialize { .. }, Leave::Resign | Leave::Drop) if handing_over => self.initialize(turn),
            (Mode::Initialize { .. }, _) => {}
        }
    }

    fn initialize(&mut self, turn: &mut Turn) {
        self.mode = Mode::Initialize { handover_until: None };
        self.hold(turn, Holding::Released);
    }

    fn stop(&mut self, turn: &mut Turn, suspended: bool) {
        self.suspended = suspended;
        // What nobody was heard to have is for the next process.
        let is_left = suspended && self.holding != Some(Holding::Released) && !matches!(self.mode, Mode::Active(_));
        match self.mode {
            Mode::Backup(_) if is_left => {
                self.hindrances.insert(Hindrance::Stopped);
                self.leave_as_is(turn);
            }
            Mode::Initialize { handover_until: None } if !suspended && self.holding == Some(Holding::Left) => self.initialize(turn),
            Mode::Initialize { .. } | Mode::Backup(_) | Mode::Active(_) => self.hinder(turn, Hindrance::Stopped, Leave::HandOver),
        }
    }

    /// Nobody follows.
    fn leave_as_is(&mut self, turn: &mut Turn) {
        if self.suspended {
            self.mode = Mode::Initialize { handover_until: None };
            self.hold(turn, Holding::Left);
        } else {
            self.initialize(turn);
        }
    }

    /// RFC 9568 §6.4.1. The owner of the addresses is willing at once.
    fn start_up(&mut self, turn: &Turn) {
        self.mode = Mode::Backup(Backup::new(turn.now, self.config.interval));
        if self.priority().is_owner() {
            self.set_willing();
        }
    }

    /// It goes by another priority from now on.
    const fn set_serving(&mut self, serving: bool) {
        if self.serving != serving
            && let Mode::Backup(backup) = &mut self.mode
        {
            backup.preempt_at = None;
        }
        self.serving = serving;
    }

    fn stop_serving(&mut self, turn: &mut Turn) {
        self.set_serving(false);
        if matches!(self.mode, Mode::Active(_)) && self.config.transport.has_others() {
            self.resign(turn);
        }
    }

    /// Becomes the Active Router (RFC 9568 §6.4.1, §6.4.2).
    pub(crate) fn claim(&mut self, turn: &mut Turn) {
        self.send(turn, Some(self.priority()));
        self.hold(turn, Holding::Held);
        self.mode = Mode::Active(Active {
            adver_timer: turn.now + self.config.interval.duration(),
            announcements: Announcements::new(turn.now, &self.config.announcing),
            answered: None,
            contended: None,
        });
        self.counters.became_active += 1;
        self.announce_if_due(turn);
    }

    /// Leaves Active to a better router, which advertises at this interval (RFC 9568 §6.4.3).
    fn yield_to(&mut self, turn: &mut Turn, interval: Interval) {
        self.hold(turn, Holding::Released);
        self.mode = Mode::Backup(Backup::new(turn.now, interval));
    }

    fn hold(&mut self, turn: &mut Turn, holding: Holding) {
        if self.holding != Some(holding) {
            self.holding = Some(holding);
            turn.push(Action::Addresses(holding));
        }
    }

    /// Sends an advertisement to all that are to have it; `None` resigns.
    fn send(&mut self, turn: &mut Turn, priority: Option<Priority>) {
        let Config { version, vrid, interval, primary, .. } = self.config;
        let advertisement = Advertisement { version, vrid, priority, interval, addresses: self.config.addresses.listed() };
        for destination in self.config.transport.destinations(self.config.addresses.family()) {
            if let Some(endpoints) = Endpoints::new(primary, destination) {
                let octets = advertisement.encode(endpoints, self.checksum_form(destination));
                turn.push(Action::Send { endpoints, octets });
            }
        }
        self.counters.sent += 1;
        self.counters.sent_priority_zero += u64::from(priority.is_none());
    }

    fn tick(&mut self, turn: &mut Turn) {
        match self.mode {
            Mode::Initialize { handover_until: Some(until) } if turn.now >= until => self.leave_as_is(turn),
            Mode::Initialize { .. } => {}
            Mode::Backup(_) => self.judge_silence(turn.now),
            Mode::Active(_) => self.advertise_if_due(turn),
        }
    }

    fn advertise_if_due(&mut self, turn: &mut Turn) {
        let interval = self.config.interval.duration();
        let Mode::Active(active) = &mut self.mode else { return };
        let late = turn.now.saturating_duration_since(active.adver_timer);
        if turn.now >= active.adver_timer {
            active.adver_timer = next(active.adver_timer, interval, turn.now);
            // Silent for 3 intervals and more: others may have followed.
            if late > interval * 2 {
                active.announcements.postpone(turn.now + interval, &self.config.announcing);
            }
            self.send(turn, Some(self.priority()));
        }
        self.announce_if_due(turn);
    }

    fn announce_if_due(&mut self, turn: &mut Turn) {
        if let Mode::Active(active) = &mut self.mode
            && active.announcements.is_due(turn.now, &self.config.announcing)
        {
            turn.push(Action::Announce);
        }
    }

    /// The longest that a Backup Router of any priority waits that has learned our interval.
    pub(crate) fn longest_active_down_interval(&self) -> Duration {
        match self.config.version {
            Version::V2 => self.config.interval.duration() * 3 + Duration::from_secs(1),
            Version::V3 => self.config.interval.duration() * 4,
        }
    }
}

/// When a timer lapses again that has lapsed: not later for a late tick, and only once for a very late one.
fn next(lapsed: Instant, period: Duration, now: Instant) -> Instant {
    let regular = lapsed + period;
    if regular > now { regular } else { now + period }
}

#[cfg(test)]
mod tests;
