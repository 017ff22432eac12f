// SPDX-License-Identifier: Apache-2.0
//! Virtual services: which packets IPVS takes, and how it spreads them. Plain values that compare by what an administrator can set; what the kernel
//! counts is in [`crate::entry`]. Invariant: settings that change nothing are not held, so that two services compare equal where the kernel does the
//! same for them.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::num::NonZeroU32;
use std::ops::BitOr;

use crate::scheduler::Scheduler;

/// A virtual service, without its real servers.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct VirtualService {
    /// Which packets are taken; the key of the kernel's table.
    pub address: ServiceAddress,
    /// How a new connection finds its real server.
    pub scheduler: Scheduler,
    /// One-packet scheduling, and what the scheduler is told.
    pub flags: ServiceFlags,
    /// Whether the connections of one client go to one real server.
    pub persistence: Option<Persistence>,
    /// A persistence engine, such as `sip`, that tells clients apart by what their packets carry.
    pub persistence_engine: Option<String>,
}

impl VirtualService {
    /// A service with no flags and no persistence.
    pub const fn new(address: ServiceAddress, scheduler: Scheduler) -> Self {
        Self { address, scheduler, flags: ServiceFlags::NONE, persistence: None, persistence_engine: None }
    }
}

/// What a virtual service takes: one port of one address, or whatever carries a firewall mark.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum ServiceAddress {
    /// Packets to this port.
    Transport {
        /// Transport protocol.
        protocol: Protocol,
        /// The VIP.
        address: IpAddr,
        /// The VIP's port. Port 0 is every port, which the kernel takes together with persistence only.
        port: u16,
    },
    /// Packets of one family whose whole mark equals this one; the kernel applies no mask.
    Fwmark {
        /// The mark.
        mark: NonZeroU32,
        /// The family of the packets.
        family: AddressFamily,
    },
}

impl ServiceAddress {
    /// Packets of `protocol` to `address`.
    pub const fn transport(protocol: Protocol, address: SocketAddr) -> Self {
        Self::Transport { protocol, address: address.ip(), port: address.port() }
    }

    /// The family of the packets it takes.
    pub const fn family(&self) -> AddressFamily {
        match self {
            Self::Transport { address, .. } => AddressFamily::of(*address),
            Self::Fwmark { family, .. } => *family,
        }
    }
}

impl fmt::Display for ServiceAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Transport { protocol, address, port } => write!(f, "{protocol} {}", SocketAddr::new(*address, *port)),
            Self::Fwmark { mark, family: AddressFamily::Ipv4 } => write!(f, "fwmark {mark}"),
            Self::Fwmark { mark, family: AddressFamily::Ipv6 } => write!(f, "fwmark {mark} IPv6"),
        }
    }
}

/// IPv4 or IPv6.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum AddressFamily {
    /// `AF_INET`
    Ipv4,
    /// `AF_INET6`
    Ipv6,
}

impl AddressFamily {
    /// The family of an address.
    pub const fn of(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(_) => Self::Ipv4,
            IpAddr::V6(_) => Self::Ipv6,
        }
    }
}

/// Transport protocol of a virtual service, by its IP protocol number.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Protocol(u16);

impl Protocol {
    /// TCP
    pub const TCP: Self = Self(6);
    /// UDP
    pub const UDP: Self = Self(17);
    /// SCTP
    pub const SCTP: Self = Self(132);

    /// The protocol of this number, whether IPVS balances it or not.
    pub const fn from_number(number: u16) -> Self {
        Self(number)
    }

    /// Its IP protocol number.
    pub const fn number(self) -> u16 {
        self.0
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::TCP => f.write_str("TCP"),
            Self::UDP => f.write_str("UDP"),
            Self::SCTP => f.write_str("SCTP"),
            Self(number) => write!(f, "protocol {number}"),
        }
    }
}

/// Flags of a service that an administrator can set, apart from persistence. Bits this crate has no name for are kept.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct ServiceFlags(u32);

impl ServiceFlags {
    /// No flag.
    pub const NONE: Self = Self(0);
    /// Each datagram of UDP is scheduled for itself.
    pub const ONE_PACKET: Self = Self(0x0004);
    /// `sh`: a source whose server has weight 0 or too many connections gets another one.
    pub const SH_FALLBACK: Self = Self(0x0008);
    /// `sh`: the source port is hashed too.
    pub const SH_PORT: Self = Self(0x0010);
    /// `mh`: a source whose server has weight 0 or too many connections gets another one.
    pub const MH_FALLBACK: Self = Self(0x0008);
    /// `mh`: the source port is hashed too.
    pub const MH_PORT: Self = Self(0x0010);
    /// The third flag that a scheduler may give a meaning to; none does yet.
    pub const SCHEDULER_3: Self = Self(0x0020);

    const PERSISTENT: u32 = 0x0001;
    /// The service is in the kernel's hash table; the kernel's own business.
    const HASHED: u32 = 0x0002;

    /// These bits, without those of persistence and of the kernel's own.
    pub const fn from_bits(bits: u32) -> Self {
        Self(bits & !(Self::PERSISTENT | Self::HASHED))
    }

    /// As the kernel's header numbers them.
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// Whether all flags of `other` are set.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

impl BitOr for ServiceFlags {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// Connections of one client, or of one network of clients, go to the same real server.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Persistence {
    /// How long after its last connection a client is remembered, in seconds.
    pub timeout: u32,
    /// Which clients count as one.
    pub netmask: Netmask,
}

/// Which part of a client's address tells it from others.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Netmask {
    /// As a mask, which the kernel does not require to be contiguous.
    Ipv4(Ipv4Addr),
    /// As a prefix length, 1 to 128.
    Ipv6(u32),
}

impl Netmask {
    /// Every client is one for itself.
    pub const fn host(family: AddressFamily) -> Self {
        match family {
            AddressFamily::Ipv4 => Self::Ipv4(Ipv4Addr::BROADCAST),
            AddressFamily::Ipv6 => Self::Ipv6(128),
        }
    }
}
