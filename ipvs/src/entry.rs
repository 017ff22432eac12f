// SPDX-License-Identifier: Apache-2.0
//! What the kernel shows of a service or a server: the settings, and beside them connections, statistics, and attributes that this crate has no name
//! for. The kernel sums statistics up every two seconds. Invariant: an order is the kernel's; it prepends each new server, and `sh` and `mh` depend on
//! the order.

use crate::server::RealServer;
use crate::service::VirtualService;

/// One virtual service with its real servers, in the kernel's order.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct TableEntry {
    /// The service.
    pub service: ServiceEntry,
    /// Its servers, the one that was added last first.
    pub servers: Vec<ServerEntry>,
}

/// A virtual service as the kernel shows it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ServiceEntry {
    /// What was set.
    pub service: VirtualService,
    /// What it took.
    pub statistics: Statistics,
    /// Attributes of newer kernels.
    pub unknown: Vec<Attribute>,
}

/// A real server as the kernel shows it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ServerEntry {
    /// What was set.
    pub server: RealServer,
    /// Established connections.
    pub active_connections: u32,
    /// Connections in any other state; of UDP all of them.
    pub inactive_connections: u32,
    /// Clients that are bound to it.
    pub persistent_connections: u32,
    /// What it was sent.
    pub statistics: Statistics,
    /// Attributes of newer kernels.
    pub unknown: Vec<Attribute>,
}

/// Counters since the service or the server was added, or zeroed; rates are of the last seconds.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Statistics {
    /// Connections that were scheduled.
    pub connections: u64,
    /// Packets from clients.
    pub incoming_packets: u64,
    /// Packets to clients; none with direct routing and tunnels.
    pub outgoing_packets: u64,
    /// Octets from clients.
    pub incoming_octets: u64,
    /// Octets to clients.
    pub outgoing_octets: u64,
    /// New connections per second.
    pub connections_per_second: u64,
    /// Packets from clients per second.
    pub incoming_packets_per_second: u64,
    /// Packets to clients per second.
    pub outgoing_packets_per_second: u64,
    /// Octets from clients per second.
    pub incoming_octets_per_second: u64,
    /// Octets to clients per second.
    pub outgoing_octets_per_second: u64,
}

/// An attribute as it came, without a name.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Attribute {
    /// Its type, with the flags of nesting and byte order.
    pub kind: u16,
    /// Its value, without padding.
    pub value: Vec<u8>,
}
