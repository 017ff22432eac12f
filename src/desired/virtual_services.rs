// SPDX-License-Identifier: Apache-2.0
//! The virtual services that this node is to have, and the real servers behind each.
//!
//! Input: a port that an object has of a VIP, and who stands behind the object's Service. Output: a [`DesiredVirtualService`], or a rejection where the
//! forwarding method cannot do what is asked. Invariants: real servers are of the family of the VIP and in canonical order, which is the same on every
//! router node; a protocol without connections has no quiesced ones.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use bgp::Prefix;
use ipvs::{SyncDaemon, SyncRole, Timeouts, Weight};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::claims::ClaimedPort;
use super::dispatch::translated;
use super::endpoints::Behind;
use super::{BalancerKind, Rejection, RejectionReason, Rules, Subject};
use crate::api::{ForwardingMethod, ObjectRef, PortRange, Protocol, Scheduler, parse_prefix};
use crate::config::Config;

/// What a virtual service takes in: packets to these ports of a VIP. Prints as `TCP 10.0.0.7:80`.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ServiceKey {
    /// The VIP.
    pub vip: IpAddr,
    /// TCP, UDP or SCTP.
    pub protocol: Protocol,
    /// Its ports: one, or a range that is balanced as one, for which the kernel needs a firewall mark.
    pub ports: PortRange,
}

impl ServiceKey {
    /// Whether it is a range of ports, which the kernel knows by a firewall mark.
    pub(crate) fn is_range(self) -> bool {
        self.ports.count() > 1
    }

    /// Those of these that take in packets which this one takes in too.
    pub(crate) fn overlapping(self, keys: &BTreeSet<Self>) -> impl Iterator<Item = &Self> {
        self.overlapping_among(keys.range(self.lowest()..))
    }

    /// As [`Self::overlapping`], of the keys of a map.
    pub(crate) fn overlapping_in<V>(self, map: &BTreeMap<Self, V>) -> impl Iterator<Item = &Self> {
        self.overlapping_among(map.range(self.lowest()..).map(|(key, _)| key))
    }

    /// The least that has its VIP and protocol.
    const fn lowest(self) -> Self {
        Self { ports: PortRange::LOWEST, ..self }
    }

    /// As [`Self::overlapping`], of keys in order from the lowest on.
    fn overlapping_among<'a>(self, keys: impl Iterator<Item = &'a Self>) -> impl Iterator<Item = &'a Self> {
        let of_vip =
            keys.take_while(move |key| (key.vip, key.protocol) == (self.vip, self.protocol) && key.ports.start() <= self.ports.end());
        of_vip.filter(move |key| key.ports.overlaps(self.ports))
    }
}

impl fmt::Display for ServiceKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { vip, protocol, ports } = self;
        let protocol = protocol.word().to_uppercase();
        match vip {
            IpAddr::V4(vip) => write!(f, "{protocol} {vip}:{ports}"),
            IpAddr::V6(vip) => write!(f, "{protocol} [{vip}]:{ports}"),
        }
    }
}

/// What this node balances itself.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct DesiredBalancing {
    /// The virtual services of all VIPs, also of those that nobody stands behind.
    pub services: BTreeMap<ServiceKey, DesiredVirtualService>,
    /// What nft does beside it.
    pub rules: Rules,
    /// Whether we may set kernel settings; else they are only reported.
    pub set_sysctls: bool,
    /// How long idle connections are remembered; 0 is as the kernel has it.
    pub timeouts: Timeouts,
    /// The UDP port of real servers with forwarding method `gue`.
    pub gue_port: u16,
    /// The daemons of the kernel that tell other routers of connections, or are told.
    pub sync: BTreeMap<SyncRole, SyncDaemon>,
    /// Where routers and clients are; `None` for the interfaces with a default route.
    pub external_interface: Option<String>,
}

impl DesiredBalancing {
    /// The virtual services of one VIP.
    pub fn of(&self, vip: IpAddr) -> impl Iterator<Item = ServiceKey> {
        let first = ServiceKey { vip, protocol: Protocol::Tcp, ports: PortRange::LOWEST };
        self.services.range(first..).map(|(key, _)| *key).take_while(move |key| key.vip == vip)
    }

    /// Those that take in packets which this one takes in too.
    pub(crate) fn overlapping(&self, key: ServiceKey) -> impl Iterator<Item = &ServiceKey> {
        key.overlapping_in(&self.services)
    }

    /// Whether some connections can go on where the fabric moves them to this node in their middle: all nodes choose the same real server, which answers
    /// the client itself. With nat the real server would see another peer, and reset them.
    #[must_use]
    pub fn keeps_moved_flows(&self) -> bool {
        let keeps = |(key, service): (&ServiceKey, &DesiredVirtualService)| {
            key.protocol == Protocol::Tcp && service.forwarding != ForwardingMethod::Masquerade && service.scheduling.hashes_client()
        };
        self.services.iter().any(keeps)
    }

    /// These services, as the configuration says.
    pub(super) fn new(services: BTreeMap<ServiceKey, DesiredVirtualService>, config: &Config) -> Self {
        let dataplane = &config.dataplane;
        let listen = config.bgp.listen.iter().filter(|listen| !listen.address.is_unspecified());
        Self {
            services,
            rules: Rules {
                balancer: dataplane.balancer(),
                unserved_ports: dataplane.unserved_ports,
                first_mark: dataplane.first_mark,
                except: dataplane.not_masqueraded.clone(),
                mss_clamp: dataplane.mss_clamp,
                hands_over: false,
                listeners: listen.map(|listen| SocketAddr::new(listen.address, listen.port)).collect(),
            },
            set_sysctls: dataplane.set_sysctls,
            timeouts: dataplane.timeouts,
            gue_port: dataplane.gue_port,
            sync: match (dataplane.balancer(), &dataplane.connection_sync) {
                (BalancerKind::Ipvs, Some(sync)) => sync.daemons(),
                _ => BTreeMap::new(),
            },
            external_interface: config.external_interface.clone(),
        }
    }
}

/// A virtual service as it is to be.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DesiredVirtualService {
    /// The object that asks for it.
    pub owner: ObjectRef,
    /// Who gets the next connection.
    pub scheduling: Scheduling,
    /// How a packet gets to its real server.
    pub forwarding: ForwardingMethod,
    /// The real servers in canonical order. One with port 0 gets packets on the port to which they came.
    pub real_servers: BTreeMap<SocketAddr, Weight>,
    /// What nft does with its packets.
    pub filter: Filter,
}

/// What nft does with the packets of one virtual service, other than with those of all.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Filter {
    /// Only clients in these, of which none is inside another, are let in; `None` for all clients.
    #[serde(serialize_with = "write_prefixes", deserialize_with = "read_prefixes")]
    pub sources: Option<BTreeSet<Prefix>>,
    /// Packets are not masqueraded, so that real servers see the client's address.
    pub preserves_client: bool,
}

impl Filter {
    /// Lets everybody in, and hides the clients.
    pub const NONE: Self = Self { sources: None, preserves_client: false };
}

fn write_prefixes<S: Serializer>(prefixes: &Option<BTreeSet<Prefix>>, serializer: S) -> Result<S::Ok, S::Error> {
    let texts: Option<Vec<String>> = prefixes.as_ref().map(|prefixes| prefixes.iter().map(ToString::to_string).collect());
    texts.serialize(serializer)
}

fn read_prefixes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<BTreeSet<Prefix>>, D::Error> {
    let texts: Option<Vec<String>> = Option::deserialize(deserializer)?;
    let read = |text: &String| parse_prefix(text).map_err(de::Error::custom);
    texts.map(|texts| texts.iter().map(read).collect()).transpose()
}

impl DesiredVirtualService {
    /// The filter as the record has it: whether the real servers of a range of ports see the client is told by its mark.
    #[must_use]
    pub fn recorded_filter(&self, key: ServiceKey) -> Filter {
        Filter { preserves_client: self.filter.preserves_client && key.ports.count() == 1, ..self.filter.clone() }
    }

    /// Whether this is [`Self::recorded_filter`].
    #[must_use]
    pub fn is_filtered_by(&self, key: ServiceKey, recorded: Option<&Filter>) -> bool {
        let recorded = recorded.unwrap_or(&Filter::NONE);
        recorded.sources == self.filter.sources && recorded.preserves_client == (self.filter.preserves_client && key.ports.count() == 1)
    }

    /// Whether somebody stands behind it who takes new connections.
    #[must_use]
    pub fn is_backed(&self) -> bool {
        self.real_servers.values().any(|weight| !weight.is_quiesced())
    }
}

/// How a virtual service chooses among its real servers.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Scheduling {
    /// The scheduler.
    pub scheduler: Scheduler,
    /// A scheduler that hashes the client's address hashes its port too.
    pub by_port: bool,
    /// A client that comes back within this time gets the real server that it had.
    pub persistence: Option<Duration>,
}

impl Scheduling {
    /// What the name of a scheduler stands for: `mh` spreads the connections of one client, `sh` keeps them together.
    #[must_use]
    pub const fn of(scheduler: Scheduler) -> Self {
        Self { scheduler, by_port: matches!(scheduler, Scheduler::MaglevHashing), persistence: None }
    }

    /// Whether the client's address decides, so that all router nodes choose alike as long as they have the real servers in the same order.
    #[must_use]
    pub const fn hashes_client(self) -> bool {
        matches!(self.scheduler, Scheduler::MaglevHashing | Scheduler::SourceHashing)
    }
}

/// The virtual service of one port of a VIP, and why it gets no real servers, where it cannot be had.
pub(super) fn virtual_service(
    owner: &ObjectRef,
    vip: IpAddr,
    port: &ClaimedPort<'_>,
    behind: Option<&Behind<'_>>,
    balancer: BalancerKind,
) -> (ServiceKey, DesiredVirtualService, Vec<Objection>) {
    let key = ServiceKey { vip, protocol: port.protocol, ports: port.ports };
    let mut real_servers = behind.map(|behind| behind.real_servers(vip, port)).unwrap_or_default();
    if port.protocol == Protocol::Udp {
        real_servers.retain(|_, weight| !weight.is_quiesced());
    }
    let mut objections = Vec::new();
    let mut scheduling = port.scheduling;
    if balancer == BalancerKind::Nftables {
        match translated(scheduling, port.forwarding) {
            Ok(by_nft) => scheduling = by_nft,
            Err(message) => objections.push(Objection::Translation(message)),
        }
    } else if port.forwarding != ForwardingMethod::Masquerade
        && let Some(elsewhere) = other_ports(&real_servers, port.ports)
    {
        objections.push(Objection::KeepsPort { forwarding: port.forwarding, elsewhere });
    }
    if port.ports.count() > 1
        && let Some((from, to)) = behind.and_then(|behind| behind.moved_port(vip, port.protocol, port.ports))
    {
        objections.push(Objection::MovedPort { from, to });
    }
    if !objections.is_empty() {
        real_servers.clear();
    }
    let service = DesiredVirtualService {
        owner: owner.clone(),
        scheduling,
        forwarding: port.forwarding,
        real_servers,
        filter: Filter {
            sources: port.sources.as_deref().and_then(|sources| admitted(vip, sources)),
            preserves_client: port.preserves_client && port.forwarding == ForwardingMethod::Masquerade,
        },
    };
    (key, service, objections)
}

/// Why a port of a VIP cannot be had.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Objection {
    /// nft cannot do it, for this reason.
    Translation(String),
    /// Real servers have this other port, which is not asked for with this forwarding method.
    KeepsPort {
        /// The forwarding method.
        forwarding: ForwardingMethod,
        /// The port of real servers.
        elsewhere: u16,
    },
    /// The Service moves a port inside of a range that is balanced as one.
    MovedPort {
        /// The port of the Service.
        from: u16,
        /// That of its endpoints.
        to: u16,
    },
}

impl Objection {
    /// Whether both are made for the same reason, be it with other numbers.
    fn is_alike(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Translation(one), Self::Translation(other)) => one == other,
            _ => std::mem::discriminant(self) == std::mem::discriminant(other),
        }
    }

    /// For ports that begin with `first`, of which there are more where `several`.
    fn words(&self, first: u16, several: bool) -> String {
        match self {
            Self::Translation(message) => message.clone(),
            Self::KeepsPort { forwarding, elsewhere } => {
                let port = if several { format!(" for {first}") } else { String::new() };
                format!(
                    "with forwarding {forwarding} a packet keeps its port, but the endpoints have {elsewhere}{port}; make both equal, or use nat"
                )
            }
            Self::MovedPort { from, to } => format!(
                "in a range of this length a packet keeps its port, but the endpoints have {to} for {from}; take {from} out of the range"
            ),
        }
    }
}

/// The rejections of ports of one object and VIP: one for all neighbours inside of a range as it is written to which the same is objected.
pub(super) fn refusals(owner: &ObjectRef, vip: IpAddr, objections: &[(&ClaimedPort<'_>, Objection)]) -> Vec<Rejection> {
    let are_neighbours = |one: &ClaimedPort<'_>, next: &ClaimedPort<'_>| {
        one.protocol == next.protocol && one.written == next.written && one.ports.end().checked_add(1) == Some(next.ports.start())
    };
    let of_one_kind = objections.chunk_by(|(one, objection), (next, other)| objection.is_alike(other) && are_neighbours(one, next));
    let refusals = of_one_kind.filter_map(|run| {
        let ((first, objection), (last, _)) = (run.first()?, run.last()?);
        let ports = PortRange::new(first.ports.start().into(), last.ports.end().into()).ok()?;
        let within = if ports == first.written { String::new() } else { format!(" of {}", first.written) };
        let key = ServiceKey { vip, protocol: first.protocol, ports };
        let message = format!("{key}{within}: {}", objection.words(ports.start(), run.len() > 1));
        let subject = Subject::Object { object: owner.clone(), vip: Some(vip) };
        Some(Rejection { subject, reason: RejectionReason::Invalid, message })
    });
    refusals.collect()
}

/// What is to be told where a Service that names the clients which may come to a VIP has none of its family. Where it can be read it is in force, since a former
/// content would let in whom it shuts out.
pub(super) fn admits_nobody(vip: IpAddr, sources: &[Prefix]) -> Option<(RejectionReason, String)> {
    admitted(vip, sources).filter(BTreeSet::is_empty)?;
    let (family, example, all) = if vip.is_ipv4() { ("IPv4", "192.0.2.0/24", "0.0.0.0/0") } else { ("IPv6", "2001:db8::/32", "::/0") };
    let (reason, why) = if sources.is_empty() {
        (RejectionReason::Invalid, "no range can be read".to_owned())
    } else {
        (RejectionReason::NotHonoured, format!("no range is of {family}"))
    };
    let message = format!(
        "spec.loadBalancerSourceRanges: {why}, so that nobody is let in to {vip}; add the clients, such as {example}, or {all} for everybody"
    );
    Some((reason, message))
}

/// Those of the prefixes that are of the family of the VIP, without what is inside another one; `None` where that is everybody.
fn admitted(vip: IpAddr, sources: &[Prefix]) -> Option<BTreeSet<Prefix>> {
    let of_family: Vec<Prefix> = sources.iter().filter(|prefix| prefix.address().is_ipv4() == vip.is_ipv4()).copied().collect();
    if of_family.iter().any(|prefix| prefix.length() == 0) {
        return None;
    }
    let around = |inner: &Prefix| of_family.iter().any(|outer| outer.length() < inner.length() && outer.contains(inner.address()));
    Some(of_family.iter().filter(|prefix| !around(prefix)).copied().collect())
}

/// A port of real servers that is not that of the VIP.
fn other_ports(real_servers: &BTreeMap<SocketAddr, Weight>, ports: PortRange) -> Option<u16> {
    let found: BTreeSet<u16> = real_servers.keys().map(SocketAddr::port).collect();
    found.into_iter().find(|port| *port != 0 && *port != ports.start())
}
