// SPDX-License-Identifier: Apache-2.0
//! The virtual routers of this node as they are to be (RFC 9568): plain values.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use bgp::Prefix;
use serde::{Deserialize, Serialize};
use vrrp::router::{Announcing, ChecksumChoice, Preempt};
use vrrp::{Family, Interval, Priority, Version, Vrid};

/// How packets to VIPs get to a node.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Every node that serves a VIP has it on `vips.interface`, and announces it by BGP.
    #[default]
    Bgp,
    /// One node has it on the link of a virtual router, which others take over. Every node balances.
    Vrrp,
}

impl Mode {
    /// As it is written.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Bgp => "bgp",
            Self::Vrrp => "vrrp",
        }
    }

    /// Whether it is what is meant where nothing is said.
    pub(crate) fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// What the intent says of virtual routers: their groups, and which of them have VIPs.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct VirtualRouting {
    /// How packets to VIPs get here.
    pub mode: Mode,
    /// All groups by name. Those with VIPs have no addresses here.
    pub groups: BTreeMap<String, DesiredGroup>,
    /// The groups that have VIPs where the mode is [`Mode::Vrrp`], and the prefixes of those. No prefix is there twice.
    pub vips: BTreeMap<String, BTreeSet<Prefix>>,
}

impl VirtualRouting {
    /// The group of a VIP: the one with the longest prefix around it. `None` where there is none, or where that can have no virtual router of its family: version 2 has
    /// IPv4 only, and so may be all of its unicast peers.
    #[must_use]
    pub fn group_of(&self, vip: IpAddr) -> Option<&str> {
        let around =
            |prefixes: &BTreeSet<Prefix>| prefixes.iter().filter(|prefix| prefix.contains(vip)).map(|prefix| prefix.length()).max();
        let candidates = self.vips.iter().filter_map(|(name, prefixes)| Some((around(prefixes)?, name)));
        let (_, name) = candidates.max_by_key(|(length, _)| *length)?;
        self.groups.get(name).filter(|group| group.has_routers_of(Family::of(vip))).map(|_| name.as_str())
    }

    /// Whether some group speaks to whoever is known as another node of the instance.
    #[must_use]
    pub fn needs_peers(&self) -> bool {
        self.groups.values().any(|group| group.transport == DesiredTransport::AUTO)
    }

    /// With these peers, for the groups that speak to whoever is known.
    #[must_use]
    pub fn with_peers(mut self, known: &KnownPeers) -> Self {
        for group in self.groups.values_mut().filter(|group| group.transport == DesiredTransport::AUTO) {
            let peers = known.get(&group.vrid.number()).cloned().unwrap_or_default();
            group.transport = DesiredTransport::Unicast { peers, single: false };
        }
        self
    }

    /// The groups that have addresses of their own.
    pub fn with_addresses(&self) -> impl Iterator<Item = (&String, &DesiredGroup)> {
        self.groups.iter().filter(|(name, _)| !self.vips.contains_key(*name))
    }
}

/// All virtual routers of this node.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct DesiredVrrp {
    /// Groups by name.
    pub groups: BTreeMap<String, DesiredGroup>,
    /// These are all: what an earlier process has left of others goes. Until then it stays as it is, unanswered for.
    pub complete: bool,
}

impl DesiredVrrp {
    /// Whether it is an address of one of them.
    #[must_use]
    pub fn has(&self, address: IpAddr) -> bool {
        self.groups.values().any(|group| group.addresses.contains(&address))
    }

    /// Whether each address of the other one is an address of the same group here.
    #[must_use]
    pub fn covers(&self, other: &Self) -> bool {
        other.groups.iter().all(|(name, group)| {
            let here = self.groups.get(name).map(|group| &group.addresses);
            group.addresses.iter().all(|address| here.is_some_and(|here| here.contains(address)))
        })
    }
}

impl DesiredVrrp {
    /// Whether something is wrong for a group that was not in the other one.
    #[must_use]
    pub fn is_in_more_trouble_than(&self, other: &Self) -> bool {
        let before = |name: &String| other.groups.get(name).map(|group| &group.troubles);
        self.groups
            .iter()
            .any(|(name, group)| !group.troubles.is_empty() && before(name).is_none_or(|before| !group.troubles.is_subset(before)))
    }
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
    /// Whether the addresses are behind the virtual router MAC (RFC 9568 §7.3) instead of that of the interface.
    pub virtual_mac: bool,
    /// The virtual addresses of both families, in the order in which they are listed.
    pub addresses: Vec<IpAddr>,
    /// What keeps this node from doing what the addresses are there for: then the group hands over, and has the lowest priority.
    pub troubles: BTreeSet<NodeTrouble>,
}

/// What is wrong with this node, and need not be with another one, that the VIPs of a group depend on.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum NodeTrouble {
    /// The kernel cannot be read, so that nothing can be changed.
    Unreadable,
    /// What VIPs need in the kernel cannot be made as it is to be.
    NotProgrammed,
    /// A VIP cannot be had here for what else is on the node.
    Blocked,
}

impl fmt::Display for NodeTrouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unreadable => "its kernel cannot be read",
            Self::NotProgrammed => "its dataplane is not programmed as it is to be",
            Self::Blocked => "a VIP cannot be had there",
        })
    }
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
            virtual_mac: false,
            addresses,
            troubles: BTreeSet::new(),
        }
    }

    /// Whether it can have a virtual router of this family. As long as no peers are known, of either.
    fn has_routers_of(&self, family: Family) -> bool {
        let has_peers = match &self.transport {
            DesiredTransport::Multicast => true,
            DesiredTransport::Unicast { peers, .. } => peers.is_empty() || peers.iter().any(|peer| Family::of(*peer) == family),
        };
        has_peers && (self.version == Version::V3 || family == Family::Ipv4)
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

impl DesiredTransport {
    /// To the other nodes of the instance, which are not known yet.
    pub const AUTO: Self = Self::Unicast { peers: BTreeSet::new(), single: false };

    /// The other routers, as far as they are known.
    pub fn peers(&self) -> impl Iterator<Item = IpAddr> {
        let peers = match self {
            Self::Multicast => None,
            Self::Unicast { peers, .. } => Some(peers),
        };
        peers.into_iter().flatten().copied()
    }
}

/// From where the other nodes of the instance advertise, by VRID.
pub type KnownPeers = BTreeMap<u8, BTreeSet<IpAddr>>;

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn prefix(address: &str, length: u8) -> Prefix {
        Prefix::new(ip(address), length).unwrap()
    }

    fn routing(groups: &[(&str, Version, DesiredTransport, &[Prefix])]) -> VirtualRouting {
        let mut routing = VirtualRouting { mode: Mode::Vrrp, ..VirtualRouting::default() };
        for (vrid, (name, version, transport, prefixes)) in (1..).zip(groups) {
            let group = DesiredGroup::new("eth1".to_owned(), Vrid::new(vrid).unwrap(), Vec::new());
            let group = DesiredGroup { version: *version, transport: transport.clone(), ..group };
            routing.groups.insert((*name).to_owned(), group);
            routing.vips.insert((*name).to_owned(), prefixes.iter().copied().collect());
        }
        routing
    }

    fn unicast(peers: &[&str]) -> DesiredTransport {
        DesiredTransport::Unicast { peers: peers.iter().map(|peer| ip(peer)).collect(), single: peers.is_empty() }
    }

    #[test]
    fn a_vip_is_of_the_group_with_the_longest_prefix_that_can_have_it() {
        let all = [prefix("0.0.0.0", 0), prefix("::", 0)];
        let routing = routing(&[
            ("all", Version::V3, DesiredTransport::Multicast, &all),
            ("few", Version::V3, unicast(&["10.9.0.2"]), &[prefix("10.0.0.0", 24), prefix("2001:db8::", 64)]),
            ("old", Version::V2, unicast(&[]), &[prefix("10.0.0.0", 28), prefix("2001:db8:1::", 64)]),
        ]);
        for (vip, group) in [
            ("192.0.2.1", Some("all")),
            ("2001:db8:2::1", Some("all")),
            ("10.0.0.77", Some("few")),
            ("10.0.0.7", Some("old")),
            ("2001:db8::7", None),
            ("2001:db8:1::7", None),
        ] {
            assert_eq!(routing.group_of(ip(vip)), group, "{vip}");
        }
    }

    #[test]
    fn groups_that_speak_to_whoever_is_known_get_those_of_their_vrid() {
        let all = [prefix("0.0.0.0", 0)];
        let known = KnownPeers::from([(1, BTreeSet::from([ip("10.9.0.2")])), (2, BTreeSet::from([ip("10.9.0.3")]))]);
        let before = routing(&[("a", Version::V3, DesiredTransport::AUTO, &all), ("b", Version::V3, unicast(&["10.9.0.9"]), &[])]);
        assert!(before.needs_peers());
        let after = before.clone().with_peers(&known);
        let expected = DesiredTransport::Unicast { peers: BTreeSet::from([ip("10.9.0.2")]), single: false };
        assert_eq!((&after.groups["a"].transport, &after.groups["b"].transport), (&expected, &unicast(&["10.9.0.9"])));
        assert_eq!(before.clone().with_peers(&KnownPeers::new()), before, "as long as none is known");
    }
}
