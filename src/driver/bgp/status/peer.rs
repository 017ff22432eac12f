// SPDX-License-Identifier: Apache-2.0
//! What one neighbour's task reports.
//!
//! Input: what the core and the connections say. Output: values that every reader may keep.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use bgp::peer::{Counters, State, Timers};
use bgp::rib::Withheld;
use bgp::wire::{Negotiated, NextHop, Notification, Open};
use bgp::{Asn, BgpIdentifier, Family, HoldTime, Prefix};

use crate::desired::DesiredPeer;
use crate::driver::bgp::report::LowTtlDrops;

/// One neighbour at one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct PeerStatus {
    /// Its address; `None` while it is not known.
    pub address: Option<IpAddr>,
    /// Its AS.
    pub asn: Asn,
    /// Our AS towards it.
    pub local_asn: Asn,
    /// Our BGP Identifier towards it.
    pub local_identifier: BgpIdentifier,
    /// Where the state machine is.
    pub state: State,
    /// Since when it has been in that state.
    pub since: Moment,
    /// Since when the session has been Established, while it is.
    pub established_since: Option<Moment>,
    /// Our address on the connection, while there is one.
    pub local_address: Option<IpAddr>,
    /// The session's hold time, once both OPENs are there.
    pub hold_time: Option<HoldTime>,
    /// Both ends of the connection, ours first, while there is one.
    pub endpoints: Option<(SocketAddr, SocketAddr)>,
    /// What both sides say of themselves.
    pub opens: Arc<Opens>,
    /// What the neighbour is configured to be, but for the policy, which may be another one by now.
    pub settings: Arc<DesiredPeer>,
    /// What the kernel had dropped before the peer was dialled, or dialled us, where `ttlSecurity` drops packets.
    pub low_ttl_drops: LowTtlDrops,
    /// When its timers expire.
    pub timers: Timers,
    /// How long it may leave unread what we send (RFC 9687).
    pub send_hold_time: Duration,
    /// Until when it may hold routes of a session that is over (RFC 4724).
    pub stale_until: Option<Instant>,
    /// The next hops with which it is told routes that start here and name none, while there is a session.
    pub next_hops: BTreeMap<Family, NextHop>,
    /// The families that both sides have, once both OPENs are there.
    pub families: BTreeSet<Family>,
    /// The other capabilities that both sides have, once both OPENs are there, in words.
    pub capabilities: Vec<&'static str>,
    /// How many prefixes the peer was told and holds.
    pub advertised: usize,
    /// How many of those other peers have told, by family.
    pub reflected: BTreeMap<Family, usize>,
    /// How many routes of the peer are kept, in each family; none where nothing is imported.
    pub held: BTreeMap<Family, u32>,
    /// How many announcements of the peer were not kept because so many were already.
    pub omitted: BTreeMap<Family, u64>,
    /// Prefixes that are withdrawn, but whose UPDATE the peer's host has not acknowledged.
    pub withdrawing: Arc<BTreeSet<Prefix>>,
    /// Prefixes that this peer is not told, and why.
    pub withheld: Arc<BTreeMap<Prefix, Withheld>>,
    /// Messages in both directions.
    pub counters: Counters,
    /// What is wrong, as far as the end of the last session and of attempts has said, or what was before the session that is up: a NOTIFICATION, say.
    pub last_error: Option<LastError>,
    /// How attempts since then have ended, which says less: that the peer refuses connections, say. None while a session is up.
    pub last_attempt_error: Option<LastError>,
    /// How often a session or an attempt ended.
    pub failures: Failures,
    /// What an operator should mend though the session may be up.
    pub warning: Option<String>,
    /// Whether an operator has shut the session down.
    pub shut: bool,
    /// Connections that are not closed yet.
    pub open_sockets: usize,
    /// The number of the set that the neighbour's task has taken last.
    pub(in crate::driver::bgp) taken: u64,
    /// The number of the set of which it has told the core everything.
    pub(in crate::driver::bgp) generation: u64,
}

impl PeerStatus {
    /// Whether more than a counter or a timer differs.
    pub(super) fn is_news(&self, old: &Self) -> bool {
        *old != Self { counters: old.counters.clone(), omitted: old.omitted.clone(), timers: old.timers, taken: old.taken, ..self.clone() }
    }
}

/// Why a session or an attempt ended.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct LastError {
    /// In words.
    pub reason: String,
    /// When last.
    pub at: Moment,
    /// How often for this very reason, with none that says as much in between, since a session was last up.
    pub count: u64,
    /// The NOTIFICATION that ended it, if one did.
    pub notification: Option<Notified>,
}

/// A NOTIFICATION and its direction.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Notified {
    /// We sent it.
    Sent(Notification),
    /// The peer did.
    Received(Notification),
}

/// How often sessions and attempts ended, by who ended them.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Failures {
    /// We did, with a NOTIFICATION.
    pub sent: u64,
    /// The peer did, with a NOTIFICATION.
    pub received: u64,
    /// Nobody said a word: no connection, or it broke, or was left without one.
    pub transport: u64,
}

/// What both sides say of themselves.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Opens {
    /// Our OPEN.
    pub local: Open,
    /// The peer's, once it is accepted, and what both agree on.
    pub remote: Option<(Open, Negotiated)>,
}

/// A moment on both clocks: one to show, one to measure with.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Moment {
    /// By the clock that never goes back.
    pub instant: Instant,
    /// By the clock on the wall.
    pub wall: SystemTime,
}

impl Moment {
    /// This moment.
    #[must_use]
    pub fn now() -> Self {
        Self { instant: Instant::now(), wall: SystemTime::now() }
    }
}
