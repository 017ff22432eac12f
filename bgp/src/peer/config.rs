// SPDX-License-Identifier: Apache-2.0
//! What an operator decides about one neighbour, and the OPEN that says so.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use crate::identity::{Asn, BgpIdentifier, HoldTime};
use crate::prefix::Family;
use crate::rib::{AdjRibIn, Export, Import, PeerId, Target};
use crate::wire::{AddPathMode, BgpRole, Capability, GracefulRestart, LongLivedFamily, Open};

/// What an operator decides about one neighbour.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct PeerConfig {
    /// The name of the peer among all peers of this speaker.
    pub id: PeerId,
    /// The peer's address: the last resort where its routes compete with those of others.
    pub address: IpAddr,
    /// Our AS on this session.
    pub local_asn: Asn,
    /// The AS that the peer must be in (RFC 4271 §6.2).
    pub remote_asn: Asn,
    /// Our BGP Identifier.
    pub identifier: BgpIdentifier,
    /// Our wish; the smaller of both sides' counts.
    pub hold_time: HoldTime,
    /// How long a connection may last on which the peer has not sent its OPEN, and not the KEEPALIVE after it where no hold time is agreed on (RFC 4271
    /// §8.2.2, OpenSent, which wants a large value).
    pub open_hold_time: Duration,
    /// How long the peer's TCP may acknowledge nothing more while something is outstanding; `None` for eight minutes, or twice the hold time where that is more (RFC 9687 §5).
    /// Below one second it counts as one second.
    pub send_hold_time: Option<Duration>,
    /// ConnectRetryTime: from one attempt to connect to the next, before jitter. Below one second it counts as one second.
    pub connect_retry: Duration,
    /// The peer dials us and is never dialled. After the loss of a connection it may come back at once, whatever ConnectRetryTime is.
    pub passive: bool,
    /// The families to offer.
    pub families: BTreeSet<Family>,
    /// With what routes are announced.
    pub export: Export,
    /// What the peer may tell; `None` where its UPDATEs are counted and nothing of them is kept.
    pub import: Option<Import>,
    /// We are the peer's route reflector (RFC 4456 §4).
    pub client: bool,
    /// Our cluster; `None` for our BGP Identifier (RFC 4456 §7).
    pub cluster_id: Option<BgpIdentifier>,
    /// What the peer is asked to do while we restart, and what we do while it restarts; `None` for nothing.
    pub graceful_restart: Option<RestartConfig>,
    /// Several paths to one destination (RFC 7911).
    pub add_path: BTreeMap<Family, AddPathMode>,
    /// Messages of up to 65,535 octets (RFC 8654).
    pub extended_messages: bool,
    /// IPv4 routes with IPv6 next hops (RFC 8950).
    pub extended_next_hop: bool,
    /// Next hops that are a link-local address alone (draft-ietf-idr-linklocal-capability).
    pub link_local_next_hop: bool,
    /// What we are to the peer, where it is an external one (RFC 9234).
    pub role: Option<RoleConfig>,
    /// The name of this host, with its domain where it has one, for display at the peer.
    pub host_name: Option<String>,
    /// This software, for display at the peer.
    pub software_version: Option<String>,
}

/// Graceful restart (RFC 4724, RFC 8538, RFC 9494).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct RestartConfig {
    /// Seconds within which we are back; at most 4095.
    pub restart_time: u16,
    /// This process has restarted: the peer may hold routes of the one before. Holds until the first set is told, or the restart time is over.
    pub restarting: bool,
    /// Of which families forwarding state was kept over that restart (F). Once a set is told it is kept over the sessions of this process.
    pub forwarding_preserved: Forwarding,
    /// Routes are kept after a NOTIFICATION too (N, RFC 8538 §2).
    pub notification: bool,
    /// Seconds for which stale routes are kept beyond the restart time; 0 for not at all (RFC 9494 §3).
    pub long_lived_stale_time: u32,
}

impl Default for RestartConfig {
    /// Back within two minutes; not restarting; also after a NOTIFICATION; not long-lived.
    fn default() -> Self {
        Self { restart_time: 120, restarting: false, forwarding_preserved: Forwarding::ALL, notification: true, long_lived_stale_time: 0 }
    }
}

/// Of which families something is forwarded (RFC 4724 §3).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Forwarding {
    /// IPv4 unicast.
    pub ipv4: bool,
    /// IPv6 unicast.
    pub ipv6: bool,
}

impl Forwarding {
    /// Of both.
    pub const ALL: Self = Self { ipv4: true, ipv6: true };
    /// Of neither.
    pub const NONE: Self = Self { ipv4: false, ipv6: false };

    const fn of(self, family: Family) -> bool {
        match family {
            Family::Ipv4Unicast => self.ipv4,
            Family::Ipv6Unicast => self.ipv6,
        }
    }
}

/// BGP roles on one session (RFC 9234 §4).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct RoleConfig {
    /// What we are to the peer.
    pub local: BgpRole,
    /// The peer must say what it is (RFC 9234 §4.2, strict mode).
    pub strict: bool,
}

impl PeerConfig {
    /// The send hold time where none is configured: this, or twice the hold time where that is more (RFC 9687 §5).
    pub const SEND_HOLD_TIME: Duration = Duration::from_secs(480);

    /// How long a peer may take for its OPEN as the RFC suggests (RFC 4271 §8.2.2, OpenSent).
    pub const OPEN_HOLD_TIME: Duration = Duration::from_secs(240);

    /// A peer with all that RFC 4271 asks for and nothing beyond: hold time 90 s, and four minutes for its OPEN, ConnectRetryTime 120 s, both families, nothing imported.
    #[must_use]
    pub fn new(id: PeerId, address: IpAddr, local_asn: Asn, remote_asn: Asn, identifier: BgpIdentifier) -> Self {
        Self {
            id,
            address,
            local_asn,
            remote_asn,
            identifier,
            hold_time: HoldTime::DEFAULT,
            open_hold_time: Self::OPEN_HOLD_TIME,
            send_hold_time: None,
            connect_retry: Duration::from_secs(120),
            passive: false,
            families: Family::ALL.into(),
            export: Export::default(),
            import: None,
            client: false,
            cluster_id: None,
            graceful_restart: None,
            add_path: BTreeMap::new(),
            extended_messages: false,
            extended_next_hop: false,
            link_local_next_hop: false,
            role: None,
            host_name: None,
            software_version: None,
        }
    }

    /// What the peer tells, before it has told anything; `None` where nothing is kept.
    pub(super) fn adj_rib_in(&self) -> Option<AdjRibIn> {
        Some(AdjRibIn::new(self.import.clone()?, self.identifier, self.cluster_id()))
    }

    pub(super) fn cluster_id(&self) -> BgpIdentifier {
        self.cluster_id.unwrap_or(self.identifier)
    }

    pub(super) fn target(&self) -> Target {
        Target { peer: self.id, address: self.address, client: self.client, cluster_id: self.cluster_id() }
    }

    pub(super) fn is_external(&self) -> bool {
        self.local_asn != self.remote_asn
    }

    /// How long the peer may take nothing of what we send, in a session of this hold time (RFC 9687 §5).
    pub(super) fn send_hold_time(&self, hold_time: HoldTime) -> Duration {
        let twice = hold_time.duration().unwrap_or_default() * 2;
        self.send_hold_time.map_or_else(|| Self::SEND_HOLD_TIME.max(twice), |time| time.max(Duration::from_secs(1)))
    }

    /// The OPEN of this configuration.
    pub(super) fn open(&self) -> Open {
        let mut capabilities: Vec<_> = self.families.iter().map(|family| Capability::Multiprotocol(*family)).collect();
        capabilities.extend([Capability::RouteRefresh, Capability::EnhancedRouteRefresh, Capability::FourOctetAs]);
        if self.extended_next_hop {
            capabilities.push(Capability::ExtendedNextHop(BTreeSet::from([Family::Ipv4Unicast])));
        }
        if self.extended_messages {
            capabilities.push(Capability::ExtendedMessage);
        }
        if let Some(role) = self.role.filter(|_| self.is_external()) {
            capabilities.push(Capability::Role(role.local));
        }
        capabilities.extend(self.graceful_restart.iter().flat_map(|restart| self.restart_capabilities(restart)));
        if !self.add_path.is_empty() {
            capabilities.push(Capability::AddPath(self.add_path.clone()));
        }
        if self.link_local_next_hop {
            capabilities.push(Capability::LinkLocalNextHop);
        }
        capabilities.extend(self.host_name.as_deref().map(fqdn));
        capabilities.extend(self.software_version.clone().map(Capability::SoftwareVersion));
        Open { asn: self.local_asn, hold_time: self.hold_time, identifier: self.identifier, capabilities }
    }

    fn restart_capabilities(&self, restart: &RestartConfig) -> Vec<Capability> {
        let families = self.families.iter();
        let graceful = GracefulRestart {
            restarting: restart.restarting,
            notification: restart.notification,
            restart_time: restart.restart_time,
            families: families.clone().map(|family| (*family, restart.forwarding_preserved.of(*family))).collect(),
        };
        let mut capabilities = vec![Capability::GracefulRestart(graceful)];
        if restart.long_lived_stale_time > 0 {
            let long_lived = |family: &Family| LongLivedFamily {
                forwarding: restart.forwarding_preserved.of(*family),
                stale_time: restart.long_lived_stale_time.min(LongLivedFamily::MAX_STALE_TIME),
            };
            capabilities.push(Capability::LongLivedGracefulRestart(families.map(|family| (*family, long_lived(family))).collect()));
        }
        capabilities
    }
}

/// A name and its domain. A domain of over 64 octets, which the capability has no room for, is left out (draft-walton-bgp-hostname-capability §3).
fn fqdn(name: &str) -> Capability {
    const LONGEST: usize = 64;
    let (host, domain) = name.split_once('.').unwrap_or((name, ""));
    let domain = if domain.len() > LONGEST { "" } else { domain };
    Capability::Fqdn { host: host.to_owned(), domain: domain.to_owned() }
}
