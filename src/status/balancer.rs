// SPDX-License-Identifier: Apache-2.0
//! The table of IPVS for a reader: each virtual service with its real servers, as `ipvsadm -Ln` prints them and in typed fields, and whose it is.
//!
//! Inputs: what the kernel shows, who claims which service, and which daemons of connection synchronisation are ours. Output: an [`IpvsStatus`]. Pure. Invariant: lines stand in the order of `ipvsadm`.

use std::net::IpAddr;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use ipvs::list::{ServerLine, ServiceLine, in_order, scheduler_flags};
use ipvs::{
    AddressFamily, Encapsulation, ForwardingMethod, Info, Netmask, ServerEntry, ServiceAddress, ServiceEntry, ServiceFlags, Statistics,
    SyncDaemon, TableEntry,
};
use serde::{Deserialize, Serialize};

use crate::api::ObjectRef;

/// The table.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct IpvsStatus {
    /// Version of IPVS in the kernel.
    pub version: String,
    /// Buckets of the kernel's table of connections.
    pub connection_table_size: u32,
    /// The virtual services, of whomever.
    pub services: Vec<VirtualServiceStatus>,
    /// The daemons of connection synchronisation, of whomever.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub daemons: Vec<SyncDaemonStatus>,
}

/// A daemon of the kernel that tells other routers of connections, or is told.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SyncDaemonStatus {
    /// As `ipvsadm -L --daemon` prints it.
    pub line: String,
    /// `master` or `backup`.
    pub role: String,
    /// Where it speaks.
    pub interface: String,
    /// Those of another number are not listened to.
    pub sync_id: u32,
    /// Somebody else started it; it is never touched.
    pub foreign: bool,
}

/// A virtual service.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct VirtualServiceStatus {
    /// As `ipvsadm -Ln` prints it.
    pub line: String,
    /// What it takes in; a range of ports instead of its firewall mark, where it is ours.
    pub service: String,
    /// The firewall mark, where that is what it takes in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub firewall_mark: Option<u32>,
    /// `IPv4` or `IPv6`.
    pub family: String,
    /// The scheduler.
    pub scheduler: String,
    /// What the scheduler is told, and `ops` for one-packet scheduling.
    pub flags: Vec<String>,
    /// Whether clients come back to their real server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub persistence: Option<PersistenceStatus>,
    /// The object that asks for it; absent where none does any more, and where it is foreign.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<ObjectRef>,
    /// Somebody else made it; it is never touched.
    pub foreign: bool,
    /// What it took.
    pub statistics: TrafficStatus,
    /// The real servers.
    pub real_servers: Vec<RealServerStatus>,
}

/// Persistence of a virtual service.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PersistenceStatus {
    /// How long after its last connection a client is remembered.
    pub timeout_seconds: u32,
    /// Which clients count as one: a mask of IPv4, a length of IPv6.
    pub netmask: String,
    /// What tells clients apart by what their packets carry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engine: Option<String>,
}

/// A real server.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RealServerStatus {
    /// As `ipvsadm -Ln` prints it.
    pub line: String,
    /// Its address.
    pub address: IpAddr,
    /// Its port; 0 where packets keep theirs.
    pub port: u16,
    /// `nat`, `dr`, `tun`, `local`, `bypass`, or a number.
    pub forwarding: String,
    /// What packets are wrapped in, with `tun`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encapsulation: Option<String>,
    /// Its share of new connections; 0 is quiesced.
    pub weight: u32,
    /// Established connections.
    pub active_connections: u32,
    /// Connections in any other state; of UDP all of them.
    pub inactive_connections: u32,
    /// Clients that are bound to it.
    pub persistent_connections: u32,
    /// No new connections from here on; 0 is no bound.
    pub upper_threshold: u32,
    /// New connections again below this.
    pub lower_threshold: u32,
    /// What it was sent.
    pub statistics: TrafficStatus,
}

/// Counters since the service or the server was added.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TrafficStatus {
    /// Connections that were scheduled.
    pub connections: u64,
    /// Packets from clients.
    pub incoming_packets: u64,
    /// Packets to clients.
    pub outgoing_packets: u64,
    /// Octets from clients.
    pub incoming_octets: u64,
    /// Octets to clients.
    pub outgoing_octets: u64,
}

/// Whose a virtual service is.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Claim {
    /// It is none of ours.
    pub foreign: bool,
    /// The object that asks for it.
    pub owner: Option<ObjectRef>,
    /// What it takes in, where the kernel knows it by a firewall mark.
    pub takes: Option<String>,
}

/// Makes the status of this table.
pub(crate) fn ipvs_status(
    info: &Info,
    table: &[TableEntry],
    claim: impl Fn(&ServiceAddress) -> Claim,
    daemons: &[(SyncDaemon, bool)],
) -> IpvsStatus {
    let (major, minor, patch) = info.version;
    let services = in_order(table).into_iter().map(|(service, servers)| of_service(service, &servers, claim(&service.service.address)));
    IpvsStatus {
        version: format!("{major}.{minor}.{patch}"),
        connection_table_size: info.connection_table_size,
        services: services.collect(),
        daemons: daemons.iter().map(|(daemon, is_ours)| of_daemon(daemon, *is_ours)).collect(),
    }
}

fn of_daemon(daemon: &SyncDaemon, is_ours: bool) -> SyncDaemonStatus {
    SyncDaemonStatus {
        line: daemon.to_string(),
        role: daemon.role.to_string(),
        interface: daemon.interface.clone(),
        sync_id: daemon.sync_id,
        foreign: !is_ours,
    }
}

fn of_service(entry: &ServiceEntry, servers: &[&ServerEntry], Claim { foreign, owner, takes }: Claim) -> VirtualServiceStatus {
    let service = &entry.service;
    let one_packet = service.flags.contains(ServiceFlags::ONE_PACKET).then_some("ops");
    let persistence = service.persistence.map(|persistence| PersistenceStatus {
        timeout_seconds: persistence.timeout,
        netmask: match persistence.netmask {
            Netmask::Ipv4(mask) => mask.to_string(),
            Netmask::Ipv6(length) => length.to_string(),
        },
        engine: service.persistence_engine.clone(),
    });
    VirtualServiceStatus {
        line: ServiceLine(service).to_string(),
        service: takes.unwrap_or_else(|| service.address.to_string()),
        firewall_mark: match service.address {
            ServiceAddress::Fwmark { mark, .. } => Some(mark.get()),
            ServiceAddress::Transport { .. } => None,
        },
        family: match service.address.family() {
            AddressFamily::Ipv4 => "IPv4".to_owned(),
            AddressFamily::Ipv6 => "IPv6".to_owned(),
        },
        scheduler: service.scheduler.to_string(),
        flags: scheduler_flags(&service.scheduler, service.flags).chain(one_packet).map(ToOwned::to_owned).collect(),
        persistence,
        owner,
        foreign,
        statistics: traffic(&entry.statistics),
        real_servers: servers.iter().map(|server| of_server(server)).collect(),
    }
}

fn of_server(entry: &ServerEntry) -> RealServerStatus {
    let server = &entry.server;
    let (forwarding, encapsulation) = match server.forwarding {
        ForwardingMethod::Masquerade => ("nat".to_owned(), None),
        ForwardingMethod::DirectRouting => ("dr".to_owned(), None),
        ForwardingMethod::Tunnel(encapsulation) => ("tun".to_owned(), Some(encapsulation_word(encapsulation))),
        ForwardingMethod::LocalNode => ("local".to_owned(), None),
        ForwardingMethod::Bypass => ("bypass".to_owned(), None),
        ForwardingMethod::Other(number) => (number.to_string(), None),
    };
    RealServerStatus {
        line: ServerLine(entry).to_string(),
        address: server.address.address,
        port: server.address.port,
        forwarding,
        encapsulation,
        weight: server.weight.0,
        active_connections: entry.active_connections,
        inactive_connections: entry.inactive_connections,
        persistent_connections: entry.persistent_connections,
        upper_threshold: server.thresholds.upper,
        lower_threshold: server.thresholds.lower,
        statistics: traffic(&entry.statistics),
    }
}

fn encapsulation_word(encapsulation: Encapsulation) -> String {
    match encapsulation {
        Encapsulation::Ipip => "ipip".to_owned(),
        Encapsulation::Gue { port, .. } => format!("gue to port {port}"),
        Encapsulation::Gre { .. } => "gre".to_owned(),
        Encapsulation::Other { kind, .. } => format!("type {kind}"),
    }
}

const fn traffic(statistics: &Statistics) -> TrafficStatus {
    let Statistics { connections, incoming_packets, outgoing_packets, incoming_octets, outgoing_octets, .. } = *statistics;
    TrafficStatus { connections, incoming_packets, outgoing_packets, incoming_octets, outgoing_octets }
}

/// Reads the table whenever somebody asks; gives words for a person where it cannot.
#[derive(Clone)]
pub struct IpvsReader(Arc<dyn Fn() -> BoxFuture<'static, Result<IpvsStatus, String>> + Send + Sync>);

impl IpvsReader {
    /// Of this function.
    #[must_use]
    pub fn new(read: impl Fn() -> BoxFuture<'static, Result<IpvsStatus, String>> + Send + Sync + 'static) -> Self {
        Self(Arc::new(read))
    }

    /// The table now.
    ///
    /// # Errors
    /// There is none to be shown, for this reason.
    pub async fn read(&self) -> Result<IpvsStatus, String> {
        (self.0)().await
    }
}

impl std::fmt::Debug for IpvsReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("IpvsReader")
    }
}
