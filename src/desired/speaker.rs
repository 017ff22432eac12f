// SPDX-License-Identifier: Apache-2.0
//! The speaker and its neighbours as they are to be: plain values, all from the configuration.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;
use std::time::Duration;

use bgp::peer::RoleConfig;
use bgp::wire::AddPathMode;
use bgp::{Asn, BgpIdentifier, Family, HoldTime, Prefix};

/// The speaker of this node.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct DesiredBgp {
    /// Our AS.
    pub asn: Asn,
    /// Our BGP Identifier; `None` lets the driver take one from the node's addresses.
    pub router_id: Option<BgpIdentifier>,
    /// Our cluster, as a route reflector (RFC 4456 §7); our BGP Identifier where absent.
    pub cluster_id: Option<BgpIdentifier>,
    /// The name of this node, for display at the neighbours; not told where absent.
    pub host_name: Option<String>,
    /// The neighbours are told what software this is, for display.
    pub send_software_version: bool,
    /// Where neighbours may dial us; nothing listens where absent.
    pub listen: Option<DesiredListen>,
    /// Neighbours by name.
    pub peers: BTreeMap<String, DesiredPeer>,
}

impl DesiredBgp {
    /// A speaker of this AS with nobody to speak to.
    #[must_use]
    pub const fn new(asn: Asn) -> Self {
        Self { asn, router_id: None, cluster_id: None, host_name: None, send_software_version: false, listen: None, peers: BTreeMap::new() }
    }

    /// The number of no AS (RFC 6793 §9).
    const NONE: Asn = match Asn::new(Asn::TRANS as u32) {
        Some(asn) => asn,
        None => panic!(),
    };

    /// A speaker that has nobody to speak to, and so no need of an AS.
    #[must_use]
    pub const fn nobody() -> Self {
        Self::new(Self::NONE)
    }

    /// Whether it is of an AS.
    #[must_use]
    pub fn has_as(&self) -> bool {
        self.asn != Self::NONE
    }

    /// Whether we are the route reflector of some neighbour, or of one that may come.
    #[must_use]
    pub fn reflects(&self) -> bool {
        let dynamic = self.listen.as_ref().is_some_and(|listen| !listen.prefixes.is_empty() && listen.template.reflector_client);
        dynamic || self.peers.values().any(|peer| peer.reflector_client)
    }
}

/// A listening socket, and the dynamic neighbours that may come by it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct DesiredListen {
    /// Our address, unspecified for all of its family.
    pub address: IpAddr,
    /// Our TCP port.
    pub port: u16,
    /// Who comes from an address of these is a dynamic neighbour, where no configured one has the address.
    pub prefixes: BTreeSet<Prefix>,
    /// So many dynamic neighbours at most.
    pub limit: u32,
    /// What every dynamic neighbour is like, but for its address.
    pub template: DesiredPeer,
}

impl DesiredListen {
    /// What a neighbour at this address is, if one may come from there. `link`: where a link-local address is good.
    #[must_use]
    pub fn dynamic_peer(&self, address: IpAddr, link: Option<&str>) -> Option<DesiredPeer> {
        let contained = self.prefixes.iter().any(|prefix| prefix.contains(address));
        let transport = || Transport { interface: link.map(ToOwned::to_owned), ..self.template.transport.clone() };
        contained.then(|| DesiredPeer { address: PeerAddress::Known(address), transport: transport(), ..self.template.clone() })
    }
}

/// Where a neighbour is. Prints as a person would name it.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum PeerAddress {
    /// At this address.
    Known(IpAddr),
    /// It is the default gateway of the node, whichever that is.
    Gateway,
    /// It is the router on the link of this interface; its link-local address is learned from its Router Advertisements (RFC 4861).
    Unnumbered(String),
}

impl PeerAddress {
    /// The address, where it is configured.
    #[must_use]
    pub const fn known(&self) -> Option<IpAddr> {
        match self {
            Self::Known(address) => Some(*address),
            Self::Gateway | Self::Unnumbered(_) => None,
        }
    }
}

impl fmt::Display for PeerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Known(address) => address.fmt(f),
            Self::Gateway => f.write_str("the default gateway"),
            Self::Unnumbered(interface) => f.write_str(interface),
        }
    }
}

/// One neighbour.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct DesiredPeer {
    /// Where it is.
    pub address: PeerAddress,
    /// Its TCP port, 179 by default.
    pub port: u16,
    /// Its AS.
    pub asn: Asn,
    /// How the connection to it is made.
    pub transport: Transport,
    /// What the session carries.
    pub families: BTreeSet<Family>,
    /// The hold time that we offer.
    pub hold_time: HoldTime,
    /// How long it may take nothing of what we send (RFC 9687 §5); the core's own default where absent.
    pub send_hold_time: Option<Duration>,
    /// Between two attempts to connect.
    pub connect_retry: Duration,
    /// What it is asked to do while we restart (RFC 4724); nothing where absent.
    pub graceful_restart: Option<DesiredRestart>,
    /// What it may tell us.
    pub import: DesiredImport,
    /// With what routes are announced to it.
    pub export: DesiredExport,
    /// We are its route reflector (RFC 4456 §4).
    pub reflector_client: bool,
    /// Several paths to one destination (RFC 7911), in every family; only one where absent.
    pub add_path: Option<AddPathMode>,
    /// So many of its routes at most are kept, only to be looked at.
    pub keep_received: u32,
    /// What we are to it, where it is an external one (RFC 9234).
    pub role: Option<RoleConfig>,
    /// Messages of up to 65,535 octets (RFC 8654).
    pub extended_messages: bool,
    /// IPv4 routes with IPv6 next hops, where we have no IPv4 address on the link (RFC 8950).
    pub extended_next_hop: bool,
}

/// What a neighbour is asked to do with our routes while we restart.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct DesiredRestart {
    /// Seconds for which it is to keep them (RFC 4724 §3).
    pub restart_time: u16,
    /// It keeps them after a NOTIFICATION too, but for a Hard Reset (RFC 8538 §2).
    pub notification: bool,
    /// Seconds beyond that for which it is to keep them as the last resort (RFC 9494 §3); 0 for not at all.
    pub long_lived_stale_time: u32,
}

/// What a neighbour may tell us. A change of it needs no new session.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct DesiredImport {
    /// How many prefixes of a family at most; no limit where there is none.
    pub max_prefixes: BTreeMap<Family, u32>,
    /// How long it has to stay away after it told more.
    pub restart_delay: Duration,
}

impl Default for DesiredImport {
    /// No limit, and a minute for one that is set.
    fn default() -> Self {
        Self { max_prefixes: BTreeMap::new(), restart_delay: Duration::from_secs(60) }
    }
}

impl DesiredPeer {
    /// The TCP port of BGP.
    pub const PORT: u16 = 179;
    /// The hold time that we offer, where none is configured.
    pub const HOLD_TIME: HoldTime = match HoldTime::from_secs(9) {
        Some(hold_time) => hold_time,
        None => HoldTime::DEFAULT,
    };
    /// Between two attempts to connect, where nothing is configured.
    pub const CONNECT_RETRY: Duration = Duration::from_secs(5);

    /// A neighbour of which nothing else is configured.
    #[must_use]
    pub fn new(address: IpAddr, asn: Asn) -> Self {
        Self {
            address: PeerAddress::Known(address),
            port: Self::PORT,
            asn,
            transport: Transport::default(),
            families: BTreeSet::from(Family::ALL),
            hold_time: Self::HOLD_TIME,
            send_hold_time: None,
            connect_retry: Self::CONNECT_RETRY,
            graceful_restart: None,
            import: DesiredImport::default(),
            export: DesiredExport::default(),
            reflector_client: false,
            add_path: None,
            keep_received: 0,
            role: None,
            extended_messages: false,
            extended_next_hop: false,
        }
    }
}

impl DesiredPeer {
    /// The only interface, or VRF, that the session uses.
    #[must_use]
    pub fn interface(&self) -> Option<&str> {
        match &self.address {
            PeerAddress::Unnumbered(interface) => Some(interface),
            PeerAddress::Known(_) | PeerAddress::Gateway => self.transport.interface.as_deref(),
        }
    }
}

/// With what routes are announced to a neighbour. A change of it needs no new session.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct DesiredExport {
    /// LOCAL_PREF towards an internal peer.
    pub local_preference: u32,
    /// MULTI_EXIT_DISC; not sent where absent.
    pub med: Option<u32>,
    /// How often our AS stands in the path once more, towards an external peer.
    pub prepend: u8,
    /// COMMUNITIES (RFC 1997).
    pub communities: BTreeSet<u32>,
    /// LARGE_COMMUNITY (RFC 8092).
    pub large_communities: BTreeSet<[u32; 3]>,
    /// Extended Communities (RFC 4360).
    pub extended_communities: BTreeSet<u64>,
    /// The bandwidth of the link, in octets per second; not sent where absent.
    pub link_bandwidth: Option<u64>,
    /// Next hop of IPv4 routes; the session's own address where absent.
    pub next_hop_ipv4: Option<Ipv4Addr>,
    /// Next hop of IPv6 routes; the node's own global address where absent.
    pub next_hop_ipv6: Option<Ipv6Addr>,
}

impl Default for DesiredExport {
    /// LOCAL_PREF 100, as is customary; RFC 4271 §5.1.5 leaves it to us.
    fn default() -> Self {
        Self {
            local_preference: 100,
            med: None,
            prepend: 0,
            communities: BTreeSet::new(),
            large_communities: BTreeSet::new(),
            extended_communities: BTreeSet::new(),
            link_bandwidth: None,
            next_hop_ipv4: None,
            next_hop_ipv6: None,
        }
    }
}

/// How the TCP connection to a peer is made.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Transport {
    /// Our address on it; the kernel chooses where absent.
    pub source: Option<IpAddr>,
    /// The only interface, or VRF, that it uses; routing decides where absent. That of an unnumbered peer is part of its address.
    pub interface: Option<String>,
    /// How far away the peer may be.
    pub ttl: Ttl,
    /// The peer dials us, we never dial it.
    pub passive: bool,
    /// The file with the TCP-MD5 key (RFC 2385); segments are not signed where absent.
    pub password_file: Option<PathBuf>,
    /// The keys of TCP-AO (RFC 5925), the preferred one first; not together with TCP-MD5. Segments are not signed where there is none.
    pub ao_keys: Vec<AoKey>,
}

impl Transport {
    /// The files with the keys of the connection.
    pub fn key_files(&self) -> impl Iterator<Item = &PathBuf> {
        self.password_file.iter().chain(self.ao_keys.iter().map(|key| &key.password_file))
    }
}

/// A master key tuple (RFC 5925 §3.1).
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct AoKey {
    /// SendID: the KeyID of our segments.
    pub send_id: u8,
    /// RecvID: the KeyID of the peer's.
    pub recv_id: u8,
    /// How segments are signed.
    pub algorithm: AoAlgorithm,
    /// The file with the master key.
    pub password_file: PathBuf,
}

/// How segments are signed with TCP-AO (RFC 5926 §2.2).
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum AoAlgorithm {
    /// HMAC-SHA-1-96.
    #[default]
    HmacSha1,
    /// AES-128-CMAC-96.
    Aes128Cmac,
}

/// How far away a peer may be.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Ttl {
    /// An external peer on a common link, TTL 1; an internal peer anywhere, the TTL of the system.
    #[default]
    Customary,
    /// So many hops: our packets have this TTL.
    Multihop(u8),
    /// At most so many hops, and packets from farther away are dropped: ours have TTL 255 (RFC 5082).
    Security {
        /// 1 on a common link.
        hops: u8,
    },
}

impl Ttl {
    /// That of our packets to an external peer, which is on the same link unless the configuration says otherwise.
    pub const EXTERNAL: u8 = 1;
}
