// SPDX-License-Identifier: Apache-2.0
//! One neighbour: the state machine of RFC 4271 §8 as a value.
//!
//! Input: [`Event`]s of a driver that owns sockets and a clock, and the whole set of routes to tell. Output: [`Action`]s for that driver, in the order in
//! which they are to be carried out, and the [deadline](Peer::deadline) of the next [`Event::Tick`]. A tick that comes early does nothing.
//!
//! Invariants: at most one connection of each [`Role`]; at most one of them is past OpenSent; UPDATEs leave only in Established, and no more of them
//! than the driver has asked for. The loss of a session clears everything that belonged to it, but for what graceful restart keeps.
//!
//! Supported standards: RFC 4271 §6.8, §8, §10; RFC 4486 (Cease, maximum of prefixes among them); RFC 6286 (identifiers); RFC 6608 (FSM errors); RFC
//! 2918, RFC 7313 (route refresh); RFC 4724, RFC 8538, RFC 9494 (graceful restart, restarting and helping); RFC 8203, RFC 9003 (shutdown communication);
//! RFC 9234 (roles); RFC 9687 (send hold timer). Of the options of RFC 4271 §8.1.1: IdleHoldTimer and DampPeerOscillations; neither DelayOpen nor
//! CollisionDetectEstablishedState. In its place, a session whose peer dials again is asked for a sign of life at once: see [`Event::Redialled`].
#![warn(clippy::wildcard_enum_match_arm)]

mod config;
mod connection;
mod dial;
mod restart;
mod session;
mod status;
mod timers;
mod timing;

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;

use crate::prefix::Family;
use crate::rib::{AdjRibIn, AdjRibOut, Changes, Learnt, LocRib};
use crate::wire::{Cease, Negotiated, Notification, Open};

pub use crate::rib::{Export, Import, LocalAddresses, NextHopPolicy, PeerId};
pub use config::{Forwarding, PeerConfig, RestartConfig, RoleConfig};
pub use status::{Counters, DownReason, MessageCounts, PrefixCounts, State};
pub use timers::Timers;

use connection::{Connection, Connections};
use dial::Dial;
use restart::Retained;
use timing::{Damping, Jitter};

/// Who dialled a connection; also its name towards the driver.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Role {
    /// We did.
    Active,
    /// The peer did.
    Passive,
}

impl Role {
    const BOTH: [Self; 2] = [Self::Active, Self::Passive];

    const fn other(self) -> Self {
        match self {
            Self::Active => Self::Passive,
            Self::Passive => Self::Active,
        }
    }
}

/// Why the peer is told to stop (RFC 4486).
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Stop {
    /// Down until the next Start.
    AdministrativeShutdown {
        /// A text for the operator of the peer (RFC 9003).
        communication: Option<String>,
    },
    /// Down and up again.
    AdministrativeReset,
    /// The neighbour is no longer configured: down until the next Start.
    Deconfigured,
    /// There is no room for the neighbour, which nobody has configured by itself: down until the next Start.
    Rejected,
    /// The neighbour's settings are others now, and another `Peer` will have them: down until the next Start.
    ConfigurationChange,
    /// This process ends and another one will take over: a peer that has agreed on graceful restart is not told, and keeps our routes (RFC 4724 §4);
    /// another one is told that this is an administrative shutdown. Down until the next Start.
    Keep,
}

impl Stop {
    fn notification(&self) -> Notification {
        match self {
            Self::AdministrativeShutdown { communication: Some(text) } => {
                Notification::cease(Cease::AdministrativeShutdown).with_communication(text)
            }
            Self::AdministrativeShutdown { communication: None } | Self::Keep => Notification::cease(Cease::AdministrativeShutdown),
            Self::AdministrativeReset => Notification::cease(Cease::AdministrativeReset),
            Self::Deconfigured => Notification::cease(Cease::PeerDeconfigured),
            Self::Rejected => Notification::cease(Cease::ConnectionRejected),
            Self::ConfigurationChange => Notification::cease(Cease::OtherConfigurationChange),
        }
    }

    /// In words.
    const fn reason(&self) -> &'static str {
        match self {
            Self::Rejected => "there are as many peers as may be",
            Self::AdministrativeShutdown { .. }
            | Self::AdministrativeReset
            | Self::Deconfigured
            | Self::ConfigurationChange
            | Self::Keep => "as the operator decided",
        }
    }

    /// Whether the peer is to drop our routes even where it keeps them after a NOTIFICATION (RFC 8538 §3.1). After a reset the same `Peer` comes back,
    /// which knows what the peer may still hold; after a change of the configuration another one does, which does not (RFC 8538 §5.1 leaves both to us).
    /// Who is rejected had no session.
    const fn is_final(&self) -> bool {
        !matches!(self, Self::AdministrativeReset | Self::Rejected)
    }
}

/// What happened. The driver reports nothing more of a connection once it was told to close or abort it.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// Bring the session up and keep it up (RFC 4271 §8.1.2, Events 1 and 3). Does nothing unless stopped.
    Start,
    /// Take the session down (Events 2 and 8).
    Stop(Stop),
    /// The deadline may have come.
    Tick,
    /// The peer may be reached now, or elsewhere than before: a dial that waits for its time is made at once, one that is under way is made again.
    Reachable,
    /// A TCP connection is up (Events 16 and 17). There must be none of this role, but for what [`Peer::accepts`] says.
    Connected {
        /// Who dialled.
        role: Role,
        /// Our addresses on it.
        local: LocalAddresses,
    },
    /// The peer dials while [`Peer::accepts`] says no. Without CollisionDetectEstablishedState the new connection has to go (RFC 4271 §6.8); but a peer
    /// that dials has most likely lost what we take for its session, by a crash of its host that nothing has told us of. So it is sent a KEEPALIVE: a host
    /// that knows nothing of the connection resets it, and the new one can be taken at once and not only after the hold time. The new one waits while
    /// [`Peer::is_challenged`].
    Redialled,
    /// A sign of life of this connection is wanted, whatever the KeepaliveTimer says: a KEEPALIVE leaves at once, from OpenConfirm on.
    Probe {
        /// Which connection.
        role: Role,
    },
    /// The dial failed (Event 18).
    ConnectFailed {
        /// Who dialled: us.
        role: Role,
    },
    /// The next octets of a connection, in any pieces.
    Received {
        /// Which connection.
        role: Role,
        /// The octets.
        bytes: Bytes,
    },
    /// The connection ended: FIN, RST or an error of the socket (Event 18). The answer has an [`Action::Abort`].
    Closed {
        /// Which connection.
        role: Role,
    },
    /// All that was sent is in the kernel: more may be sent.
    Writable {
        /// Which connection.
        role: Role,
    },
    /// How far TCP has acknowledged what was sent. While [`Timers::send_hold`] runs it is to be looked at every now and then, and before that expires: it
    /// runs anew from when it is told that there is more.
    Acknowledged {
        /// Which connection.
        role: Role,
        /// All octets since the connection came up.
        octets: u64,
    },
    /// The whole set of routes that the peer is to hold from now on; it outlives sessions.
    Routes(Arc<LocRib>),
    /// Some destinations have other paths than in that set. Ignored before the first one.
    Changes {
        /// Their paths.
        changes: Arc<Changes>,
        /// The whole set with them.
        rib: Arc<LocRib>,
    },
    /// The policy of the peer from now on; the session stays, and only what changes is told again.
    Export {
        /// The policy.
        export: Export,
        /// The whole set of routes that it is meant for, where that is another one too: what both change together is told once, and not at all where
        /// they make up for each other.
        routes: Option<Arc<LocRib>>,
    },
    /// Our addresses on a connection are others now: the next hops that change by it are told again, in the same session.
    Local {
        /// The connection.
        role: Role,
        /// What "self" stands for in each family.
        local: LocalAddresses,
    },
    /// What the peer may tell from now on; the session stays. Where its routes have not been kept so far and are to be, or are judged otherwise, it is
    /// asked for all of them.
    Import(Option<Import>),
    /// Other times from now on, in the same session. A dial that waits, waits no longer than the new ConnectRetryTime, and a shorter one
    /// ends a rest that is longer, but for that of a peer that has told too much.
    Timers {
        /// As `PeerConfig::connect_retry`.
        connect_retry: Duration,
        /// As `PeerConfig::send_hold_time`. Where the peer takes nothing, it counts from when it last took something, and may be over: the next
        /// [`Event::Tick`] ends the session then.
        send_hold_time: Option<Duration>,
    },
    /// All that are waited for after our restart have told everything: End-of-RIB may go (RFC 4724 §4.1).
    Selected,
    /// Ask the peer for all its routes of a family (RFC 2918). Ignored where it does not understand that.
    Refresh(Family),
    /// Tell the peer all routes of a family again, between marks where the peer takes those (RFC 7313 §4, a route refresh initiated locally).
    /// Ignored where the session does not carry the family.
    Readvertise(Family),
    /// Begin what [takes long](Peer::is_to_tell): one pass over all routes.
    Tell,
}

/// What the driver is to do.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Action {
    /// Dial the peer; the connection is [`Role::Active`].
    Connect,
    /// Write these octets: whole messages.
    Send {
        /// On which connection.
        role: Role,
        /// The octets.
        bytes: Bytes,
    },
    /// Write what was sent, shut down the sending side, read until the peer has closed too (bounded), then close: a NOTIFICATION arrives.
    Close {
        /// Which connection.
        role: Role,
    },
    /// Give up the dial, or drop the connection, at once; nothing to do where it is gone already.
    Abort {
        /// Which connection.
        role: Role,
    },
    /// The state has changed.
    Transition {
        /// From this.
        from: State,
        /// To this.
        to: State,
    },
    /// A session was lost or an attempt failed, and why: once for each.
    Down(DownReason),
    /// Of these routes the peer has told something else than before, in this order; comes last, and once. For [`Reflector::learn`](crate::rib::Reflector::learn).
    Learned(Vec<Learnt>),
}

/// One neighbour (RFC 4271 §8.2.2).
///
/// ```text
///                 Start; rest over
///     +--------+ -------------------> +---------+ <---- ConnectRetryTimer ---- +--------+
///     |  Idle  |                      | Connect |                              | Active |
///     +--------+                      +---------+ ---- the dial failed ------> +--------+
///         ^                                |                                      |   ^
///         |                                | TCP is up: OPEN                 TCP is up: OPEN
///         |                                v                                      |   |
///         |  error, Cease            +----------+ <-------------------------------+   |
///         +------------------------- | OpenSent | ----- TCP lost ---------------------+
///         |                          +----------+
///         |                                | OPEN received: KEEPALIVE
///         |                                v
///         |  error, Cease, TCP lost  +-------------+
///         +------------------------- | OpenConfirm |
///         |                          +-------------+
///         |                                | KEEPALIVE received: UPDATEs
///         |                                v
///         |  error, Cease, TCP lost  +-------------+
///         +------------------------- | Established |
///                                    +-------------+
/// ```
///
/// Stop leads from every state to Idle. In Idle the peer rests, refusing connections, before it is dialled again: for one ConnectRetryTime, or a second
/// after a session that had been stable or with a peer that is never dialled; while protocol errors repeat, twice as long each time, up to twelve ConnectRetryTimes.
///
/// While an own dial and a connection of the peer exist together, the state is that of the one that is further on.
#[derive(Debug)]
pub struct Peer {
    config: PeerConfig,
    open: Open,
    jitter: Jitter,
    damping: Damping,
    dial: Dial,
    connections: Connections,
    routes: Option<Arc<LocRib>>,
    adj_rib_in: Option<AdjRibIn>,
    /// Our routes of a former session, as far as the peer may keep them.
    retained: Option<Retained>,
    /// Until then a session that the peer has dialled anew may show that its host knows nothing of it.
    challenged_until: Option<Instant>,
    /// Until then our OPEN says that we have restarted.
    restart_until: Option<Instant>,
    /// Until then End-of-RIB waits for what other peers have yet to tell.
    deferred_until: Option<Instant>,
    counters: Counters,
    last_error: Option<DownReason>,
    established_since: Option<Instant>,
    last_received: Option<Instant>,
    last_sent: Option<Instant>,
    state: State,
}

/// One call of [`Peer::handle`].
struct Turn {
    now: Instant,
    actions: Vec<Action>,
    /// What the peer has told, reported together.
    learnt: Vec<Learnt>,
}

impl Turn {
    fn push(&mut self, action: Action) {
        self.actions.push(action);
    }
}

impl Peer {
    /// A peer that waits for [`Event::Start`]. The seed spreads its timers; give each peer of each node another one.
    #[must_use]
    pub fn new(config: PeerConfig, seed: u64) -> Self {
        Self {
            open: config.open(),
            jitter: Jitter::new(seed),
            damping: Damping::new(config.connect_retry, config.passive),
            dial: Dial::Stopped,
            connections: Connections::default(),
            routes: None,
            adj_rib_in: config.adj_rib_in(),
            retained: None,
            challenged_until: None,
            restart_until: None,
            deferred_until: None,
            counters: Counters::default(),
            last_error: None,
            established_since: None,
            last_received: None,
            last_sent: None,
            state: State::Idle,
            config,
        }
    }

    /// Takes one event, and says what to do about it.
    pub fn handle(&mut self, now: Instant, event: Event) -> Vec<Action> {
        let mut turn = Turn { now, actions: Vec::new(), learnt: Vec::new() };
        match event {
            Event::Start => self.start(&mut turn),
            Event::Stop(stop) => self.stop(&stop, &mut turn),
            Event::Tick => self.tick(&mut turn),
            Event::Reachable => self.reachable(&mut turn),
            Event::Connected { role, local } => self.connected(role, local, &mut turn),
            Event::Redialled => self.challenge(Role::Passive, &mut turn),
            Event::Probe { role } => self.probe(role, &mut turn),
            Event::ConnectFailed { role } => self.connect_failed(role, &mut turn),
            Event::Received { role, bytes } => self.received(role, &bytes, &mut turn),
            Event::Closed { role } => self.closed(role, &mut turn),
            Event::Writable { role } => self.writable(role, &mut turn),
            Event::Acknowledged { role, octets } => self.acknowledged(role, octets, &turn),
            Event::Import(import) => self.set_import(import, &mut turn),
            Event::Selected => self.selected(&mut turn),
            Event::Timers { connect_retry, send_hold_time } => self.set_timers(connect_retry, send_hold_time, &turn),
            Event::Refresh(family) => self.request_refresh(family, &mut turn),
            Event::Readvertise(family) => self.refresh(family),
            Event::Tell => self.tell(&mut turn),
            Event::Routes(rib) => self.set_routes(rib, &mut turn),
            Event::Changes { changes, rib } => self.change_routes(&changes, rib, &mut turn),
            Event::Export { export, routes } => self.set_export(export, routes, &mut turn),
            Event::Local { role, local } => self.set_local(role, local, &mut turn),
        }
        self.settle(&mut turn);
        if !turn.learnt.is_empty() {
            turn.actions.push(Action::Learned(turn.learnt));
        }
        turn.actions
    }

    /// When the next [`Event::Tick`] is due.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        let timers = Role::BOTH.iter().filter_map(|role| self.connections.get(*role)?.deadline());
        timers.chain(self.dial.deadline()).chain(self.restart_deadline()).chain(self.challenged_until).min()
    }

    /// Whether a connection that the peer dials now is taken. While there is one of [`Role::Passive`] already, the driver asks before it accepts: where
    /// the answer is yes, the new one takes its place, because a peer that dials again has given up the first; where it is no, the new one is refused.
    /// A peer with graceful restart may have restarted without a word, and so replaces a session too (RFC 4724 §5).
    #[must_use]
    pub fn accepts(&self) -> bool {
        match self.connections.get(Role::Passive).map(Connection::state) {
            Some(State::Established) => self.may_have_restarted(Role::Passive),
            Some(state) => state == State::OpenSent,
            None => !self.dial.is_idle(),
        }
    }

    /// Whether a new connection of the peer waits for what becomes of the one that is there: [`Event::Redialled`].
    #[must_use]
    pub const fn is_challenged(&self) -> bool {
        self.challenged_until.is_some()
    }

    /// The state of the session.
    #[must_use]
    pub const fn state(&self) -> State {
        self.state
    }

    /// What both sides agreed on, from OpenConfirm on.
    #[must_use]
    pub fn negotiated(&self) -> Option<&Negotiated> {
        Role::BOTH.iter().find_map(|role| self.connections.get(*role)?.negotiated())
    }

    /// The OPEN that the peer has sent on the connection that is furthest: its identifier, its hold time, its capabilities.
    #[must_use]
    pub fn remote_open(&self) -> Option<&Open> {
        Role::BOTH.iter().find_map(|role| self.connections.get(*role)?.remote_open.as_ref())
    }

    /// The OPEN that a connection begins with.
    #[must_use]
    pub const fn local_open(&self) -> &Open {
        &self.open
    }

    /// What was counted since the peer was made; never falls.
    #[must_use]
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Why the last session or attempt ended.
    #[must_use]
    pub const fn last_error(&self) -> Option<&DownReason> {
        self.last_error.as_ref()
    }

    /// Since when the session is up.
    #[must_use]
    pub const fn established_since(&self) -> Option<Instant> {
        self.established_since
    }

    /// What the peer was told; `None` unless Established.
    #[must_use]
    pub fn adj_rib_out(&self) -> Option<&AdjRibOut> {
        Role::BOTH.iter().find_map(|role| self.connections.get(*role)?.adj_rib_out())
    }

    /// What "self" stands for on this connection, if there is one.
    #[must_use]
    pub fn local_addresses(&self, role: Role) -> Option<LocalAddresses> {
        self.connections.get(role).map(|connection| connection.local)
    }

    /// Whether what was sent last was as much as may be sent at once: there is probably more to tell, and the next [`Event::Writable`] is a long step.
    #[must_use]
    pub fn is_behind(&self) -> bool {
        Role::BOTH.iter().filter_map(|role| self.connections.get(*role)).any(Connection::is_spent)
    }

    /// Whether a pass over all routes waits for [`Event::Tell`]: the first whole set of a session, or what the peer asked to hear again, once for all that
    /// it asked until then.
    #[must_use]
    pub fn is_to_tell(&self) -> bool {
        let first = self.routes.is_some();
        let to_tell = |adj_rib_out: &AdjRibOut| adj_rib_out.is_to_refresh() || first && !adj_rib_out.is_complete();
        Role::BOTH.iter().filter_map(|role| self.connections.get(*role)?.adj_rib_out()).any(to_tell)
    }

    /// Reports the state where it has changed.
    fn settle(&mut self, turn: &mut Turn) {
        let connected = Role::BOTH.iter().filter_map(|role| self.connections.get(*role)).map(Connection::state).max();
        let to = connected.unwrap_or_else(|| self.dial.state());
        if to != self.state {
            turn.push(Action::Transition { from: self.state, to });
            self.state = to;
        }
    }

    /// Reports the end of a session or of an attempt.
    fn down(&mut self, reason: DownReason, turn: &mut Turn) {
        self.last_error = Some(reason.clone());
        turn.push(Action::Down(reason));
    }
}

#[cfg(test)]
mod tests;
