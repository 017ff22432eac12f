// SPDX-License-Identifier: Apache-2.0
//! What can be told of a virtual router: its state, what holds it back, its timers, whom it hears, and what it counted.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::time::Instant;

use super::{Config, Discard, Holding, Mode, VirtualRouter};
use crate::identity::{Addresses, Interval, Priority};
use crate::wire::DecodeError;

/// The states of RFC 9568 §6.3.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum State {
    /// It takes no part.
    Initialize,
    /// It watches the Active Router.
    Backup,
    /// It has the addresses.
    Active,
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Initialize => "Initialize",
            Self::Backup => "Backup",
            Self::Active => "Active",
        })
    }
}

/// What keeps a virtual router in Initialize.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Hindrance {
    /// It is not started, or was stopped.
    Stopped,
    /// The interface is down.
    InterfaceDown,
    /// No peers are known yet, and it is not said that there are none.
    NoPeers,
    /// Another member of its group is held back.
    Group,
}

impl fmt::Display for Hindrance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Stopped => "stopped",
            Self::InterfaceDown => "the interface is down",
            Self::NoPeers => "no peers are known yet",
            Self::Group => "another router of the group is held back",
        })
    }
}

/// The last advertisement of another router.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Heard {
    /// The other router.
    pub source: IpAddr,
    /// Its priority; `None` where it resigned.
    pub priority: Option<Priority>,
    /// Its interval.
    pub interval: Interval,
    /// When.
    pub at: Instant,
}

/// When the timers that run lapse.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Timers {
    /// Active_Down_Timer: the Active Router is taken for gone.
    pub active_down: Option<Instant>,
    /// A router of lower priority is preempted.
    pub preempt: Option<Instant>,
    /// Adver_Timer: the next advertisement.
    pub adver: Option<Instant>,
    /// The neighbours are told again where the addresses are.
    pub announce: Option<Instant>,
    /// The addresses are released though nobody has followed.
    pub handover: Option<Instant>,
}

/// What was counted of a virtual router since it was made.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Counters {
    /// Advertisements sent, however many routers each was sent to.
    pub sent: u64,
    /// Those of priority 0.
    pub sent_priority_zero: u64,
    /// Advertisements received and taken.
    pub received: u64,
    /// Those of priority 0.
    pub received_priority_zero: u64,
    /// Transitions to Active.
    pub became_active: u64,
    /// Datagrams that were not taken.
    pub discarded: Discards,
}

/// Datagrams by the check that they did not pass.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Discards {
    /// Of the other address family.
    pub family: u64,
    /// TTL or Hop Limit.
    pub ttl: u64,
    /// Version.
    pub version: u64,
    /// Type.
    pub message_type: u64,
    /// Length.
    pub length: u64,
    /// No address.
    pub no_address: u64,
    /// Checksum.
    pub checksum: u64,
    /// VRID.
    pub vrid: u64,
    /// Authentication.
    pub authentication: u64,
    /// Interval.
    pub interval: u64,
    /// Sent to the owner of the addresses.
    pub owner: u64,
    /// From the own address.
    pub own_address: u64,
    /// Not from a peer.
    pub not_a_peer: u64,
    /// To somebody else.
    pub destination: u64,
}

impl Discards {
    pub(super) const fn count(&mut self, reason: &Discard) {
        *match reason {
            Discard::Family(_) => &mut self.family,
            Discard::Malformed(DecodeError::Ttl { .. }) => &mut self.ttl,
            Discard::Malformed(DecodeError::Version { .. }) => &mut self.version,
            Discard::Malformed(DecodeError::Type(_)) => &mut self.message_type,
            Discard::Malformed(DecodeError::Length { .. }) => &mut self.length,
            Discard::Malformed(DecodeError::NoAddress) => &mut self.no_address,
            Discard::Malformed(DecodeError::Checksum { .. }) => &mut self.checksum,
            Discard::Malformed(DecodeError::Vrid) | Discard::Vrid { .. } => &mut self.vrid,
            Discard::Malformed(DecodeError::Authentication(_)) => &mut self.authentication,
            Discard::Malformed(DecodeError::Interval) | Discard::Interval { .. } => &mut self.interval,
            Discard::Owner => &mut self.owner,
            Discard::OwnAddress => &mut self.own_address,
            Discard::NotAPeer => &mut self.not_a_peer,
            Discard::Destination(_) => &mut self.destination,
        } += 1;
    }
}

impl VirtualRouter {
    /// The state of RFC 9568 §6.3.
    #[must_use]
    pub const fn state(&self) -> State {
        match self.mode {
            Mode::Initialize { .. } => State::Initialize,
            Mode::Backup(_) => State::Backup,
            Mode::Active(_) => State::Active,
        }
    }

    /// What keeps it in Initialize.
    pub fn hindrances(&self) -> impl Iterator<Item = Hindrance> {
        self.hindrances.iter().copied()
    }

    /// What is to be with the addresses; `None` until that has been said.
    #[must_use]
    pub const fn holding(&self) -> Option<Holding> {
        self.holding
    }

    /// All addresses of the virtual router.
    #[must_use]
    pub const fn addresses(&self) -> &Addresses {
        &self.config.addresses
    }

    /// Whether its node is told to do what the addresses are there for: else it has the lowest priority.
    #[must_use]
    pub const fn is_serving(&self) -> bool {
        self.serving
    }

    /// The configuration in force.
    #[must_use]
    pub const fn config(&self) -> &Config {
        &self.config
    }

    /// Whether packets to the addresses are taken for the node's own (RFC 9568 §6.4.3, Accept_Mode).
    #[must_use]
    pub fn accepts(&self) -> bool {
        self.state() == State::Active && (self.config.accept || self.priority().is_owner())
    }

    /// The last advertisement of another router, in any state.
    #[must_use]
    pub const fn heard(&self) -> Option<Heard> {
        self.heard
    }

    /// What it listed: a part of its addresses, where they are as many as a message [can list](crate::Family::most_listed).
    #[must_use]
    pub const fn listed(&self) -> Option<&Addresses> {
        self.listed.as_ref()
    }

    /// The other routers that listed other addresses for this virtual router when they were heard last, and what they listed.
    #[must_use]
    pub const fn differing(&self) -> &BTreeMap<IpAddr, Addresses> {
        &self.differing
    }

    /// Active_Adver_Interval of a Backup Router: what it goes by.
    #[must_use]
    pub const fn active_adver_interval(&self) -> Option<Interval> {
        match &self.mode {
            Mode::Backup(backup) => Some(backup.interval()),
            Mode::Initialize { .. } | Mode::Active(_) => None,
        }
    }

    /// What was counted.
    #[must_use]
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The timers as they run.
    #[must_use]
    pub fn timers(&self) -> Timers {
        match &self.mode {
            Mode::Initialize { handover_until } => Timers { handover: *handover_until, ..Timers::default() },
            Mode::Backup(backup) => Timers {
                active_down: backup.deadline(self.standing()).map(|_| backup.active_down_timer(self.standing())),
                preempt: backup.preempt_at,
                ..Timers::default()
            },
            Mode::Active(active) => {
                Timers { adver: Some(active.adver_timer), announce: active.announcements.deadline(), ..Timers::default() }
            }
        }
    }

    /// When the next [`Tick`](super::Event::Tick) is due.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        match &self.mode {
            Mode::Backup(backup) => backup.deadline(self.standing()),
            Mode::Active(_) | Mode::Initialize { .. } => {
                let Timers { adver, announce, handover, .. } = self.timers();
                [adver, announce, handover].into_iter().flatten().min()
            }
        }
    }
}
