// SPDX-License-Identifier: Apache-2.0
//! Real servers: where a connection may go, and how its packets get there. Plain values that compare by what an administrator can set. Invariant:
//! settings that change nothing, such as the encapsulation of a server that is not reached through a tunnel, are not held.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use crate::service::AddressFamily;

/// One real server of a virtual service.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct RealServer {
    /// The key within the service.
    pub address: ServerAddress,
    /// How packets get there.
    pub forwarding: ForwardingMethod,
    /// Its share of new connections.
    pub weight: Weight,
    /// How many connections it is given at most.
    pub thresholds: Thresholds,
}

impl RealServer {
    /// A server without thresholds.
    pub const fn new(address: SocketAddr, forwarding: ForwardingMethod, weight: Weight) -> Self {
        Self { address: ServerAddress::new(address), forwarding, weight, thresholds: Thresholds { upper: 0, lower: 0 } }
    }
}

/// Address and port of a real server. The family may differ from the service's where packets go through a tunnel.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct ServerAddress {
    /// Its address.
    pub address: IpAddr,
    /// Its port; 0 keeps the packet's port, which services of every port and of a firewall mark need.
    pub port: u16,
}

impl ServerAddress {
    /// Without an IPv6 scope or flow label, which IPVS does not know.
    pub const fn new(address: SocketAddr) -> Self {
        Self { address: address.ip(), port: address.port() }
    }

    /// The family of the address.
    pub const fn family(&self) -> AddressFamily {
        AddressFamily::of(self.address)
    }
}

impl fmt::Display for ServerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        SocketAddr::new(self.address, self.port).fmt(f)
    }
}

/// How packets reach a real server.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum ForwardingMethod {
    /// The destination is translated; answers pass this router again. LVS-NAT.
    Masquerade,
    /// The frame goes to the server unchanged, which has the VIP itself. LVS-DR.
    DirectRouting,
    /// The packet is wrapped and sent to the server, which has the VIP itself. LVS-TUN.
    Tunnel(Encapsulation),
    /// The server is this host; the kernel chooses it by itself for a local address.
    LocalNode,
    /// The packet goes where it was going; a cache that is down is passed by.
    Bypass,
    /// A number that this crate has no name for, 5 to 7.
    Other(u8),
}

/// What a packet is wrapped in on its way through a tunnel.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum Encapsulation {
    /// IP in IP.
    #[default]
    Ipip,
    /// Generic UDP encapsulation.
    Gue {
        /// UDP port of the other end; the kernel refuses 0.
        port: u16,
        /// Checksums.
        flags: EncapsulationFlags,
    },
    /// Generic routing encapsulation.
    Gre {
        /// Checksums.
        flags: EncapsulationFlags,
    },
    /// A type that this crate has no name for.
    Other {
        /// Its number.
        kind: u8,
        /// As the kernel shows it.
        port: u16,
        /// As the kernel shows them.
        flags: EncapsulationFlags,
    },
}

/// Checksums in an outer header. Bits this crate has no name for are kept.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct EncapsulationFlags(pub u16);

impl EncapsulationFlags {
    /// No checksum.
    pub const NO_CHECKSUM: Self = Self(0);
    /// A checksum.
    pub const CHECKSUM: Self = Self(1);
    /// Remote checksum offload; GUE only.
    pub const REMOTE_CHECKSUM: Self = Self(2);
}

/// A server's share of new connections. 0 quiesces it: what it has is kept, nothing new comes. `ipvsadm` takes up to 65,535.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Weight(pub u32);

impl Weight {
    /// Keeps its connections and gets no new ones.
    pub const QUIESCE: Self = Self(0);

    /// Whether it gets no new connections.
    pub const fn is_quiesced(self) -> bool {
        self.0 == 0
    }
}

impl Default for Weight {
    fn default() -> Self {
        Self(1)
    }
}

impl fmt::Display for Weight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Bounds on connections. Above `upper` the server gets no new ones until it is below `lower`. 0 is no bound.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct Thresholds {
    /// No new connections from here on.
    pub upper: u32,
    /// New connections again below this; where 0, below three quarters of `upper`.
    pub lower: u32,
}
