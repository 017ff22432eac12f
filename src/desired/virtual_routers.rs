// SPDX-License-Identifier: Apache-2.0
//! The virtual routers of this node as they are to be (RFC 9568): plain values.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use vrrp::router::{Announcing, ChecksumChoice, Preempt};
use vrrp::{Interval, Priority, Version, Vrid};

/// All virtual routers of this node.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct DesiredVrrp {
    /// Groups by name.
    pub groups: BTreeMap<String, DesiredGroup>,
}

/// The virtual routers of IPv4 and IPv6 with one VRID on one interface, which are Active together or not at all.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct DesiredGroup {
    /// Where advertisements go and come, and where the addresses are while the group is Active.
    pub interface: String,
    /// Virtual Router Identifier, of both families.
    pub vrid: Vrid,
    /// The protocol; version 2 knows IPv4 only.
    pub version: Version,
    /// Priority.
    pub priority: Priority,
    /// Advertisement_Interval.
    pub interval: Interval,
    /// Preempt_Mode.
    pub preempt: Preempt,
    /// How advertisements travel.
    pub transport: DesiredTransport,
    /// The sources of advertisements, by family. Where there is none, an address of the interface that is not virtual is taken.
    pub source_ipv4: Option<Ipv4Addr>,
    /// As [`source_ipv4`](Self::source_ipv4).
    pub source_ipv6: Option<Ipv6Addr>,
    /// Of version 3 and IPv4.
    pub checksum: ChecksumChoice,
    /// How the neighbours are told where the addresses are.
    pub announcing: Announcing,
    /// The least TTL or Hop Limit that is accepted.
    pub least_ttl: u8,
    /// The virtual addresses of both families, in the order in which they are listed.
    pub addresses: Vec<IpAddr>,
    /// Whether the node does what the addresses are there for; a group that does not serve is not Active.
    pub serving: bool,
}

impl DesiredGroup {
    /// With everything else as the standard has it, but that packets to the addresses are accepted.
    #[must_use]
    pub const fn new(interface: String, vrid: Vrid, addresses: Vec<IpAddr>) -> Self {
        Self {
            interface,
            vrid,
            version: Version::V3,
            priority: Priority::DEFAULT,
            interval: Interval::DEFAULT,
            preempt: Preempt::After(std::time::Duration::ZERO),
            transport: DesiredTransport::Multicast,
            source_ipv4: None,
            source_ipv6: None,
            checksum: ChecksumChoice::AsHeard,
            announcing: Announcing::DEFAULT,
            least_ttl: vrrp::wire::TTL,
            addresses,
            serving: true,
        }
    }
}

/// How advertisements travel.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum DesiredTransport {
    /// To the multicast group of the family.
    Multicast,
    /// To each of these, and from them alone.
    Unicast {
        /// The other routers, by their addresses of either family.
        peers: BTreeSet<IpAddr>,
        /// Whether it starts without peers of a family: there are none.
        single: bool,
    },
}
