// SPDX-License-Identifier: Apache-2.0
//! What a session depends on, and what of it may change while the session goes on.
//!
//! Input: the configuration. Output: the same for the core ([`PeerConfig`]), and whether a session of one configuration can go on with another one.

use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use bgp::peer::{Forwarding, Import, PeerConfig, PeerId, RestartConfig};
use bgp::rib::{Export, NextHopPolicy};
use bgp::{Asn, BgpIdentifier};

use super::socket::Way;
use super::{Inheritance, admission};
use crate::desired::{AoKey, DesiredBgp, DesiredImport, DesiredPeer, DesiredRestart, PeerAddress, Transport};

/// What we are, for display.
const SOFTWARE_VERSION: &str = concat!("vipherald/", env!("CARGO_PKG_VERSION"));

/// All that a session depends on.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Settings {
    pub(super) asn: Asn,
    pub(super) identifier: BgpIdentifier,
    pub(super) peer: DesiredPeer,
    /// It is one of a prefix, and forgotten when it goes.
    pub(super) dynamic: bool,
    /// Our cluster (RFC 4456 §7), on a speaker that reflects.
    pub(super) cluster: Option<BgpIdentifier>,
    /// For display at the neighbour.
    host_name: Option<String>,
    send_software_version: bool,
}

/// What of the settings may change while the session goes on.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Adjustable {
    pub(super) export: Export,
    pub(super) import: Option<Import>,
    pub(super) connect_retry: Duration,
    pub(super) send_hold_time: Option<Duration>,
    pub(super) ao_keys: Vec<AoKey>,
}

impl Settings {
    pub(super) fn new(desired: &DesiredBgp, identifier: BgpIdentifier, peer: DesiredPeer, dynamic: bool) -> Self {
        let cluster = desired.reflects().then(|| desired.cluster_id.unwrap_or(identifier));
        let DesiredBgp { asn, send_software_version, .. } = *desired;
        // On an unnumbered link nothing else can be a next hop, whether that is written down or not.
        let extended_next_hop = peer.extended_next_hop || matches!(peer.address, PeerAddress::Unnumbered(_));
        let peer = DesiredPeer { extended_next_hop, ..peer };
        Self { asn, identifier, peer, dynamic, cluster, host_name: desired.host_name.clone(), send_software_version }
    }

    /// The way to the peer.
    pub(super) fn way(&self) -> Way {
        let peer = &self.peer;
        let transport = Transport { interface: peer.interface().map(ToOwned::to_owned), ..peer.transport.clone() };
        Way { port: peer.port, external: peer.asn != self.asn, transport }
    }

    /// Whether the link of the session has no addresses but link-local ones.
    pub(super) const fn is_unnumbered(&self) -> bool {
        matches!(self.peer.address, PeerAddress::Unnumbered(_))
    }

    /// With what routes are announced.
    fn export(&self, name: &str) -> Export {
        let export = &self.peer.export;
        Export {
            name: name.to_owned(),
            local_preference: export.local_preference,
            med: export.med,
            prepend: export.prepend,
            communities: export.communities.clone(),
            large_communities: export.large_communities.clone(),
            extended_communities: export.extended_communities.clone(),
            link_bandwidth: export.link_bandwidth,
            next_hop_ipv4: self.next_hop(export.next_hop_ipv4),
            next_hop_ipv6: self.next_hop(export.next_hop_ipv6),
        }
    }

    /// What the neighbour may tell. Routes of internal peers of a speaker that reflects are used; others are kept where they are to be counted.
    fn import(&self) -> Option<Import> {
        let DesiredImport { max_prefixes, restart_delay } = self.peer.import.clone();
        let keep = self.peer.keep_received;
        let reflected = self.cluster.is_some() && self.peer.asn == self.asn;
        let wanted = reflected || keep > 0 || !max_prefixes.is_empty();
        let held_at_most = if reflected { None } else { usize::try_from(keep).ok() };
        // Of what is only looked at, it is told too whether it could be used.
        let accept = reflected || (self.cluster.is_none() && keep > 0);
        wanted.then(|| Import { accept, max_prefixes, held_at_most, restart_delay, ..Import::default() })
    }

    pub(super) fn adjustable(&self, name: &str) -> Adjustable {
        Adjustable {
            export: self.export(name),
            import: self.import(),
            connect_retry: self.peer.connect_retry,
            send_hold_time: self.peer.send_hold_time,
            ao_keys: self.peer.transport.ao_keys.clone(),
        }
    }

    fn restart_config(&self, restart: DesiredRestart, beginning: &Beginning) -> RestartConfig {
        let DesiredRestart { restart_time, notification, long_lived_stale_time } = restart;
        let (restarting, forwarding_preserved) = match beginning {
            Beginning::First => (false, Forwarding::NONE),
            Beginning::Inherited(inheritance) => {
                let in_time = inheritance.at.elapsed() < Duration::from_secs(restart_time.into());
                (in_time, if in_time { inheritance.forwarding } else { Forwarding::NONE })
            }
            Beginning::Another => (false, Forwarding::ALL),
        };
        RestartConfig { restart_time, restarting, forwarding_preserved, notification, long_lived_stale_time }
    }

    /// For so long the peer keeps the routes of a speaker that restarts.
    pub(super) fn restart_time(&self) -> Duration {
        Duration::from_secs(self.peer.graceful_restart.map_or(0, |restart| restart.restart_time).into())
    }

    /// Whether a session of these settings can go on with those.
    pub(super) fn is_same_session(&self, other: &Self) -> bool {
        let ao_keys = if self.peer.transport.ao_keys.is_empty() || other.peer.transport.ao_keys.is_empty() {
            self.peer.transport.ao_keys.clone()
        } else {
            // RFC 5925 §3.1: keys come and go while a connection is up.
            other.peer.transport.ao_keys.clone()
        };
        let adjusted = DesiredPeer {
            transport: Transport { ao_keys, ..self.peer.transport.clone() },
            export: other.peer.export.clone(),
            import: other.peer.import.clone(),
            connect_retry: other.peer.connect_retry,
            send_hold_time: other.peer.send_hold_time,
            ..self.peer.clone()
        };
        *other == Self { peer: adjusted, ..self.clone() }
    }

    /// The same for the core.
    pub(super) fn peer_config(&self, name: &str, id: PeerId, beginning: &Beginning) -> PeerConfig {
        let peer = &self.peer;
        let Adjustable { export, import, connect_retry, send_hold_time, ao_keys: _ } = self.adjustable(name);
        // It only decides between routes of peers that are equal otherwise.
        let address = peer.address.known().unwrap_or(IpAddr::V6(Ipv6Addr::UNSPECIFIED));
        PeerConfig {
            hold_time: peer.hold_time,
            open_hold_time: if self.dynamic { admission::OPEN_HOLD_TIME } else { PeerConfig::OPEN_HOLD_TIME },
            send_hold_time,
            connect_retry,
            passive: peer.transport.passive,
            families: peer.families.clone(),
            export,
            graceful_restart: peer.graceful_restart.map(|restart| self.restart_config(restart, beginning)),
            import,
            extended_messages: peer.extended_messages,
            extended_next_hop: peer.extended_next_hop,
            role: peer.role,
            host_name: self.host_name.clone(),
            software_version: self.send_software_version.then(|| SOFTWARE_VERSION.to_owned()),
            client: peer.reflector_client,
            cluster_id: self.cluster,
            add_path: peer.add_path.into_iter().flat_map(|mode| peer.families.iter().map(move |family| (*family, mode))).collect(),
            link_local_next_hop: self.is_unnumbered(),
            ..PeerConfig::new(id, address, self.asn, peer.asn, self.identifier)
        }
    }

    /// A reflector is not on the way of the packets.
    fn next_hop(&self, configured: Option<impl Into<IpAddr>>) -> NextHopPolicy {
        match (configured, self.cluster) {
            (Some(address), _) => NextHopPolicy::Address(address.into()),
            (None, Some(_)) => NextHopPolicy::Unchanged,
            (None, None) => NextHopPolicy::SelfAddress,
        }
    }
}

/// What was before a neighbour's task.
pub(super) enum Beginning {
    /// Nothing.
    First,
    /// An earlier process.
    Inherited(Inheritance),
    /// Another task of this process.
    Another,
}

/// What a dynamic neighbour at this address, on this link where it is link-local, is to be, if one may come from there.
pub(super) fn dynamic_settings(desired: &DesiredBgp, identifier: BgpIdentifier, address: IpAddr, link: Option<&str>) -> Option<Settings> {
    let peer = desired.listen.as_ref()?.dynamic_peer(address, link)?;
    Some(Settings::new(desired, identifier, peer, true))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_to_the_same_needs_no_new_session() {
        let asn = Asn::new(65_001).unwrap();
        let desired = DesiredBgp::new(asn);
        let settings = |address: PeerAddress, extended_next_hop| {
            let peer = DesiredPeer { address, extended_next_hop, ..DesiredPeer::new(Ipv6Addr::LOCALHOST.into(), asn) };
            Settings::new(&desired, BgpIdentifier::new(1).unwrap(), peer, false)
        };
        let same = |address: PeerAddress| settings(address.clone(), true).is_same_session(&settings(address, false));
        assert!(same(PeerAddress::Unnumbered("eth1".to_owned())), "it has IPv6 next hops anyway");
        assert!(!same(PeerAddress::Gateway));
    }
}
