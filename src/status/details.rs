// SPDX-License-Identifier: Apache-2.0
//! What there is to know of one neighbour beyond the state of its session: ends, timers, what both sides offered and agreed on, how it restarts.
//!
//! Input: the OPENs, timers and settings as the speaker has them, and the time. Output: values to be written. Texts of the peer are escaped already.

use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime};

use bgp::peer::Timers;
use bgp::wire::{Capability, GracefulRestart, Negotiated, Open};
use bgp::{Family, HoldTime};
use serde::{Deserialize, Serialize};

use super::Time;
use super::capability::CapabilityStatus;
use crate::desired::{DesiredPeer, Ttl};

/// See the module.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PeerDetails {
    /// The TCP port that we dial.
    pub port: u16,
    /// Whether the peer is in our AS.
    pub internal: bool,
    /// Both ends of the connection, while there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connection: Option<ConnectionStatus>,
    /// How the connection is made.
    pub transport: TransportStatus,
    /// The peer's BGP Identifier, once it has said so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub router_id: Option<String>,
    /// Its name, if it says so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_name: Option<String>,
    /// Its software, if it says so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub software_version: Option<String>,
    /// What is configured and agreed on, and what runs.
    pub timers: TimerStatus,
    /// What both sides offered, and what of it counts, in the order of codes.
    pub capability_exchange: Vec<CapabilityStatus>,
    /// How both sides restart.
    pub graceful_restart: RestartStatus,
    /// How often an Established session was lost.
    pub resets: u64,
    /// How often a session or an attempt ended, by who ended it.
    pub failures: FailureCounts,
    /// So many of its routes are kept at most, to be looked at; 0 for none. Where it is reflected, all are.
    pub keep_received: u32,
    /// How many announcements were not kept because so many were already, by family.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub omitted: BTreeMap<String, u64>,
}

/// Both ends of a connection, each as address and port.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ConnectionStatus {
    /// Ours.
    pub local: String,
    /// The peer's.
    pub remote: String,
}

/// How the connection is made.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TransportStatus {
    /// Segments are signed (RFC 2385).
    pub tcp_md5: bool,
    /// Segments are signed with TCP-AO (RFC 5925).
    #[serde(default)]
    pub tcp_ao: bool,
    /// Packets from farther away than so many hops are dropped (RFC 5082).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttl_security_hops: Option<u8>,
    /// The TTL of our packets, where it is not the system's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttl: Option<u8>,
    /// The peer dials us, we never dial it.
    pub passive: bool,
    /// Our configured address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// The configured interface.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
}

/// Times of a session, in seconds.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TimerStatus {
    /// The hold time that we offer; 0 is off.
    pub configured_hold_seconds: u16,
    /// The hold time that the peer offers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remote_hold_seconds: Option<u16>,
    /// The smaller of both (RFC 4271 §4.2).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hold_seconds: Option<u16>,
    /// Between two KEEPALIVEs, before jitter (RFC 4271 §4.4).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keepalive_seconds: Option<u16>,
    /// How long the peer may leave unread what we send (RFC 9687).
    pub send_hold_seconds: u64,
    /// From one attempt to connect to the next, before jitter.
    pub connect_retry_seconds: u64,
    /// Until the session ends for want of a message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hold_expires_in_seconds: Option<u64>,
    /// Until our next KEEPALIVE.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keepalive_in_seconds: Option<u64>,
    /// Until the session ends because the peer reads nothing; while something is unread.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub send_hold_expires_in_seconds: Option<u64>,
    /// Until the next attempt to connect.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connect_retry_in_seconds: Option<u64>,
    /// Until the rest in Idle is over.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle_hold_expires_in_seconds: Option<u64>,
    /// When the last message came.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_received: Option<Time>,
    /// When the last message went out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_sent: Option<Time>,
}

/// How both sides restart (RFC 4724).
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RestartStatus {
    /// Both sides have the capability.
    pub negotiated: bool,
    /// Routes are kept after a NOTIFICATION too (RFC 8538).
    pub notification: bool,
    /// What we say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub local: Option<RestartOffer>,
    /// What the peer says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remote: Option<RestartOffer>,
    /// Until when the peer may hold routes of ours from a session that is over.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub routes_kept_until: Option<Time>,
}

/// The capability of one side.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RestartOffer {
    /// R: it has restarted.
    pub restarting: bool,
    /// N: it keeps routes after a NOTIFICATION too.
    pub notification: bool,
    /// Within so long it is back.
    pub restart_time_seconds: u16,
    /// The families for which it can keep forwarding, and F: whether it did.
    pub forwarding: BTreeMap<String, bool>,
}

/// How often sessions and attempts ended, since the peer was configured.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FailureCounts {
    /// By a NOTIFICATION of ours.
    pub sent: u64,
    /// By a NOTIFICATION of the peer.
    pub received: u64,
    /// Without a NOTIFICATION: no connection, or it broke.
    pub transport: u64,
}

/// Now, on both clocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    pub(crate) instant: Instant,
    pub(crate) wall: SystemTime,
}

impl Clock {
    pub(crate) fn now() -> Self {
        Self { instant: Instant::now(), wall: SystemTime::now() }
    }

    /// When by the clock on the wall that instant is or was; `None` beyond the end of time.
    pub(crate) fn time(self, at: Instant) -> Option<Time> {
        let later = self.wall.checked_add(at.saturating_duration_since(self.instant))?;
        later.checked_sub(self.instant.saturating_duration_since(at)).map(Time::from)
    }

    /// Seconds until then, begun ones counted.
    fn remaining(self, at: Instant) -> u64 {
        let left = at.saturating_duration_since(self.instant);
        left.as_secs() + u64::from(left.subsec_nanos() > 0)
    }
}

impl TimerStatus {
    /// Of these settings, agreements and timers.
    pub(crate) fn new(
        settings: &DesiredPeer,
        remote: Option<&(Open, Negotiated)>,
        send_hold: Duration,
        timers: Timers,
        clock: Clock,
    ) -> Self {
        let remaining = |at: Option<Instant>| at.map(|at| clock.remaining(at));
        let hold = remote.map(|(_, negotiated)| negotiated.hold_time);
        Self {
            configured_hold_seconds: settings.hold_time.secs(),
            remote_hold_seconds: remote.map(|(open, _)| open.hold_time.secs()),
            hold_seconds: hold.map(HoldTime::secs),
            keepalive_seconds: hold.map(|hold| hold.secs() / 3),
            send_hold_seconds: send_hold.as_secs(),
            connect_retry_seconds: settings.connect_retry.as_secs(),
            hold_expires_in_seconds: remaining(timers.hold),
            keepalive_in_seconds: remaining(timers.keepalive),
            send_hold_expires_in_seconds: remaining(timers.send_hold),
            connect_retry_in_seconds: remaining(timers.connect_retry),
            idle_hold_expires_in_seconds: remaining(timers.idle_hold),
            last_received: timers.last_received.and_then(|at| clock.time(at)),
            last_sent: timers.last_sent.and_then(|at| clock.time(at)),
        }
    }
}

impl TransportStatus {
    /// Of these settings, towards an external peer or an internal one.
    pub(crate) fn new(settings: &DesiredPeer, internal: bool) -> Self {
        let transport = &settings.transport;
        let (ttl_security_hops, ttl) = match transport.ttl {
            Ttl::Security { hops } => (Some(hops), Some(u8::MAX)),
            Ttl::Multihop(hops) => (None, Some(hops)),
            Ttl::Customary => (None, (!internal).then_some(Ttl::EXTERNAL)),
        };
        Self {
            tcp_md5: transport.password_file.is_some(),
            tcp_ao: !transport.ao_keys.is_empty(),
            ttl_security_hops,
            ttl,
            passive: transport.passive,
            source: transport.source.map(|source| source.to_string()),
            interface: transport.interface.clone(),
        }
    }
}

impl RestartStatus {
    /// Of these OPENs.
    pub(crate) fn new(local: &Open, remote: Option<&(Open, Negotiated)>, routes_kept_until: Option<Time>) -> Self {
        let negotiated = remote.map(|(_, negotiated)| negotiated);
        Self {
            negotiated: negotiated.is_some_and(|negotiated| negotiated.graceful_restart.is_some()),
            notification: negotiated.is_some_and(|negotiated| negotiated.graceful_notification),
            local: offer(local),
            remote: remote.and_then(|(open, _)| offer(open)),
            routes_kept_until,
        }
    }
}

/// The last instance counts (RFC 4724 §3).
fn offer(open: &Open) -> Option<RestartOffer> {
    open.capabilities.iter().rev().find_map(|capability| match capability {
        Capability::GracefulRestart(GracefulRestart { restarting, notification, restart_time, families }) => Some(RestartOffer {
            restarting: *restarting,
            notification: *notification,
            restart_time_seconds: *restart_time,
            forwarding: by_name(families.iter().map(|(family, forwarding)| (*family, *forwarding))),
        }),
        _ => None,
    })
}

/// The host and the software that a peer says it is.
pub(crate) fn self_description(open: &Open) -> (Option<String>, Option<String>) {
    let host = open.capabilities.iter().find_map(|capability| match capability {
        Capability::Fqdn { host, domain } if domain.is_empty() => Some(host.clone()),
        Capability::Fqdn { host, domain } => Some(format!("{host}.{domain}")),
        _ => None,
    });
    let software = open.capabilities.iter().find_map(|capability| match capability {
        Capability::SoftwareVersion(version) => Some(version.clone()),
        _ => None,
    });
    (host, software)
}

/// What is known by family, by the name of the family.
pub(crate) fn by_name<T>(values: impl IntoIterator<Item = (Family, T)>) -> BTreeMap<String, T> {
    values.into_iter().map(|(family, value)| (family.to_string(), value)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instant_is_told_by_the_clock_on_the_wall() {
        let clock = Clock { instant: Instant::now() + Duration::from_secs(1000), wall: SystemTime::UNIX_EPOCH + Duration::from_secs(100) };
        let at = |seconds: u64| clock.time(clock.instant - Duration::from_secs(50) + Duration::from_secs(seconds)).unwrap().seconds();
        assert_eq!([at(0), at(50), at(60)], [50, 100, 110]);
        assert_eq!(clock.remaining(clock.instant + Duration::from_millis(1001)), 2);
        assert_eq!(clock.remaining(clock.instant), 0);
        assert_eq!(clock.remaining(clock.instant - Duration::from_secs(7)), 0, "it is over");
    }
}
