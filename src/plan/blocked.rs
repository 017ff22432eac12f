// SPDX-License-Identifier: Apache-2.0
//! What keeps a VIP that is to be served off this node: things that only the node itself shows.
//!
//! Inputs: [`Desired`] and [`Observed`]. Output: a [`BlockReason`] or none. A blocked VIP is neither placed nor announced; one that we placed before it
//! was blocked leaves like any other, except where only the interface is down.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use super::StepKey;
use super::ownership::{Ownership, ownership};
use crate::desired::{BalancerKind, Desired, Mode};
use crate::observed::{InterfaceState, IpvsAvailability, KernelState, Observed};
use crate::sysctl::Sysctl;

/// Why a VIP that is to be served cannot be placed on this node.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd, Serialize, Deserialize)]
pub enum BlockReason {
    /// Virtual routers have VIPs, and no group of them this one.
    NoVirtualRouter,
    /// `vips.interface` is not there.
    InterfaceMissing,
    /// `vips.interface` is down: the kernel delivers nothing to its addresses.
    InterfaceDown,
    /// It is the next hop of one of the node's routes: the node would cut itself off.
    Gateway,
    /// Another interface of the node carries the address.
    OnOtherInterface,
    /// Virtual routers have VIPs, and somebody else has put it on an interface of the node, which answers for it beside the Active Router.
    PlacedByOthers,
    /// Somebody put it on the interface, and duplicate address detection has failed or still runs (RFC 4862 §5.4).
    DuplicateAddress,
    /// The node has no IPv4 address of its own, so that the kernel would take the VIP as the source of the node's own connections.
    NoOwnIpv4Address,
    /// Likewise for IPv6: a deprecated address is still taken where there is no other (RFC 6724 §5 rule 3).
    NoOwnIpv6Address,
    /// The kernel has no IPVS, or cannot load it.
    NoIpvs,
    /// A kernel setting without which no VIP is served is not what it must be.
    SysctlMissing,
    /// It asks for a policy that is not there, and is not announced now: what the policy is to keep inside would get out.
    PolicyNotFound,
}

impl BlockReason {
    /// Whether it is for what else is on this node, so that another one may have the VIP. Where a node can have none at all, its groups have no addresses.
    pub(super) const fn is_of_the_node(self) -> bool {
        matches!(self, Self::PlacedByOthers | Self::NoOwnIpv4Address | Self::NoOwnIpv6Address)
    }

    /// Whether an address that is there already stays: it serves again as soon as the interface is up.
    pub(super) const fn keeps_address(self) -> bool {
        matches!(self, Self::InterfaceDown | Self::SysctlMissing)
    }
}

/// What keeps VIPs off the node; one that nothing keeps off is not among them.
#[must_use]
pub fn blocked(desired: &Desired, observed: &Observed) -> BTreeMap<IpAddr, BlockReason> {
    let node = OfNode::of(desired, observed);
    desired.vips.keys().filter_map(|vip| Some((*vip, reason(*vip, desired, observed, &node)?))).collect()
}

/// What keeps this VIP off the node, if anything.
pub(super) fn reason(vip: IpAddr, desired: &Desired, observed: &Observed, node: &OfNode) -> Option<BlockReason> {
    let KernelState { addresses, elsewhere, .. } = &observed.kernel;
    let is_by_routers = desired.vrrp.mode == Mode::Vrrp;
    let routers = &observed.virtual_routers;
    // What their record says is read soon after a start.
    let may_be_routed = || routers.has_recorded(vip) || (routers.recorded.is_none() && !desired.vrrp.vips.is_empty());
    let is_theirs = || elsewhere.contains(&vip) && !addresses.contains_key(&vip) && !may_be_routed();
    // Where virtual routers have VIPs, nothing goes by `vips.interface`, nor by the policies of BGP.
    match observed.kernel.interface {
        _ if is_by_routers && desired.vrrp.group_of(vip).is_none() => Some(BlockReason::NoVirtualRouter),
        InterfaceState::Missing if !is_by_routers => Some(BlockReason::InterfaceMissing),
        _ if observed.kernel.gateways.contains(&vip) => Some(BlockReason::Gateway),
        _ if !node.has_family_of(vip, desired, observed) => {
            Some(if vip.is_ipv4() { BlockReason::NoOwnIpv4Address } else { BlockReason::NoOwnIpv6Address })
        }
        _ if is_theirs() => Some(if is_by_routers { BlockReason::PlacedByOthers } else { BlockReason::OnOtherInterface }),
        _ if observed.kernel.unusable.contains(&vip) => Some(BlockReason::DuplicateAddress),
        InterfaceState::Down if !is_by_routers => Some(BlockReason::InterfaceDown),
        _ if !is_by_routers && lacks_policy(vip, desired, observed) => Some(BlockReason::PolicyNotFound),
        _ => node.no_balancing,
    }
}

/// Why this node cannot balance, if so.
fn no_balancing(kernel: &KernelState, balancer: BalancerKind) -> Option<BlockReason> {
    match kernel.balancer.availability {
        IpvsAvailability::Missing if balancer == BalancerKind::Ipvs => Some(BlockReason::NoIpvs),
        IpvsAvailability::Missing | IpvsAvailability::NotNeeded | IpvsAvailability::Available => {
            Sysctl::ALL.iter().any(|setting| is_unset(setting, kernel, balancer)).then_some(BlockReason::SysctlMissing)
        }
    }
}

/// Whether this node cannot balance yet for no more than settings that are about to be set: they may be, they are there, and nothing has failed about them.
pub(super) fn is_about_to_balance(desired: &Desired, observed: &Observed) -> bool {
    let Some(balancing) = desired.balancing.as_ref().filter(|balancing| balancing.set_sysctls) else { return false };
    let kernel = &observed.kernel;
    let settable = |setting: &Sysctl| kernel.sysctls.contains_key(setting) && !observed.failures.contains_key(&StepKey::Sysctl(*setting));
    no_balancing(kernel, balancing.rules.balancer) == Some(BlockReason::SysctlMissing)
        && Sysctl::ALL.iter().filter(|setting| is_unset(setting, kernel, balancing.rules.balancer)).all(settable)
}

fn is_unset(setting: &Sysctl, kernel: &KernelState, balancer: BalancerKind) -> bool {
    let counts = setting.is_required() && setting.is_for(balancer);
    counts && kernel.sysctls.get(setting).is_none_or(|value| value != setting.wanted())
}

fn lacks_policy(vip: IpAddr, desired: &Desired, observed: &Observed) -> bool {
    let policy = desired.vips.get(&vip).and_then(|desired| desired.policy.as_ref());
    let missing = policy.is_some_and(|policy| !desired.routing.policies.contains_key(policy));
    missing && !observed.speaker.advertised.as_ref().is_some_and(|set| set.serves(vip))
}

/// What of the node is the same for all VIPs.
#[derive(Debug)]
pub(super) struct OfNode {
    /// Of which families it has a global address that was not placed by us: there source address selection has something better to take than a VIP. Looked
    /// for where it is asked about: among many VIPs that takes long.
    ipv4: OnceCell<bool>,
    ipv6: OnceCell<bool>,
    no_balancing: Option<BlockReason>,
}

impl OfNode {
    pub(super) fn of(desired: &Desired, observed: &Observed) -> Self {
        Self {
            ipv4: OnceCell::new(),
            ipv6: OnceCell::new(),
            no_balancing: desired.balancing.as_ref().and_then(|balancing| no_balancing(&observed.kernel, balancing.rules.balancer)),
        }
    }

    fn has_family_of(&self, vip: IpAddr, desired: &Desired, observed: &Observed) -> bool {
        let (known, family): (_, fn(&IpAddr) -> bool) =
            if vip.is_ipv4() { (&self.ipv4, IpAddr::is_ipv4) } else { (&self.ipv6, IpAddr::is_ipv6) };
        *known.get_or_init(|| has_own(family, desired, observed))
    }
}

/// Whether the node has an address of its own of a family. One of another interface is the node's, whoever claims it as a VIP.
fn has_own(family: fn(&IpAddr) -> bool, desired: &Desired, observed: &Observed) -> bool {
    let KernelState { addresses, elsewhere, record, .. } = &observed.kernel;
    let recorded = |address: &IpAddr| record.confirmed.contains(address) || record.pending.contains(address);
    let foreign = |address: &IpAddr| ownership(*address, desired, observed) == Some(Ownership::Foreign);
    let elsewhere = elsewhere.iter().filter(|address| !recorded(address));
    let here = addresses.keys().filter(|address| !desired.vips.contains_key(address) && foreign(address));
    elsewhere.chain(here).any(|address| family(address) && is_global(*address))
}

const fn is_global(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => !v4.is_loopback() && !v4.is_link_local(),
        IpAddr::V6(v6) => !v6.is_loopback() && !v6.is_unicast_link_local(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::observed::{ADDRESS_PROTOCOL, KernelState, ObservedAddress, Record};
    use crate::plan::tests::{desired, of_kernel, serve};

    fn blocked(vip: IpAddr, desired: &Desired, observed: &Observed) -> Option<BlockReason> {
        reason(vip, desired, observed, &OfNode::of(desired, observed))
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn on_interface(text: &str, protocol: Option<u8>) -> BTreeMap<IpAddr, ObservedAddress> {
        BTreeMap::from([(ip(text), ObservedAddress { prefix_length: 32, protocol })])
    }

    fn block(elsewhere: &[&str], addresses: BTreeMap<IpAddr, ObservedAddress>, vip: &str) -> Option<BlockReason> {
        let mut desired = desired();
        serve(&mut desired, ip("10.0.0.1"));
        serve(&mut desired, ip("2001:db8::1"));
        let elsewhere = elsewhere.iter().map(|address| ip(address)).collect();
        blocked(ip(vip), &desired, &of_kernel(KernelState { addresses, elsewhere, address_protocols: true, ..KernelState::default() }))
    }

    #[test]
    fn only_elsewhere_is_blocked_both_is_not() {
        let both = on_interface("10.0.0.1", Some(ADDRESS_PROTOCOL));
        assert_eq!(block(&["192.0.2.1", "10.0.0.1"], BTreeMap::new(), "10.0.0.1"), Some(BlockReason::OnOtherInterface));
        assert_eq!(block(&["2001:db8::1"], BTreeMap::new(), "2001:db8::1"), Some(BlockReason::OnOtherInterface));
        assert_eq!(block(&["192.0.2.1", "10.0.0.1"], both, "10.0.0.1"), None);
    }

    #[test]
    fn a_claim_of_the_nodes_only_address_hurts_no_other_vip() {
        let mut desired = desired();
        let own = ip("192.0.2.1");
        serve(&mut desired, own);
        serve(&mut desired, ip("10.0.0.1"));
        let observed = of_kernel(KernelState { elsewhere: BTreeSet::from([own]), ..KernelState::default() });
        assert_eq!(blocked(own, &desired, &observed), Some(BlockReason::OnOtherInterface));
        assert_eq!(blocked(ip("10.0.0.1"), &desired, &observed), None);
    }

    #[test]
    fn an_address_that_another_host_may_have_is_not_served() {
        let vip = ip("2001:db8::1");
        let elsewhere = BTreeSet::from([ip("2001:db8:1::1")]);
        let observed = of_kernel(KernelState { addresses: on_interface("2001:db8::1", None), elsewhere, ..KernelState::default() });
        assert_eq!(blocked(vip, &desired(), &observed), None);
        let observed = of_kernel(KernelState { unusable: BTreeSet::from([vip]), ..observed.kernel });
        assert_eq!(blocked(vip, &desired(), &observed), Some(BlockReason::DuplicateAddress));
    }

    #[test]
    fn a_gateway_is_never_a_vip() {
        let gateways = BTreeSet::from([ip("10.0.0.1")]);
        let observed = of_kernel(KernelState { elsewhere: BTreeSet::from([ip("192.0.2.1")]), gateways, ..KernelState::default() });
        assert_eq!(blocked(ip("10.0.0.1"), &desired(), &observed), Some(BlockReason::Gateway));
        assert_eq!(blocked(ip("10.0.0.2"), &desired(), &observed), None);
    }

    #[test]
    fn ipv4_needs_an_address_of_the_nodes_own() {
        let none = Some(BlockReason::NoOwnIpv4Address);
        assert_eq!(block(&["192.0.2.1"], BTreeMap::new(), "10.0.0.1"), None);
        assert_eq!(block(&[], on_interface("192.0.2.1", None), "10.0.0.1"), None, "a foreign address on the interface serves as well");
        assert_eq!(block(&["127.0.0.1", "169.254.1.1", "2001:db8::9"], BTreeMap::new(), "10.0.0.1"), none);
        let elsewhere = Some(BlockReason::OnOtherInterface);
        assert_eq!(block(&["10.0.0.1"], BTreeMap::new(), "10.0.0.1"), elsewhere, "claiming the node's own address does not take it away");
        assert_eq!(block(&[], on_interface("10.0.0.1", None), "10.0.0.1"), none, "nor is one that somebody else placed");
        assert_eq!(block(&[], on_interface("10.0.0.2", Some(ADDRESS_PROTOCOL)), "10.0.0.1"), none, "nor a stray of ours");
        assert_eq!(block(&["192.0.2.1", "fe80::1"], BTreeMap::new(), "2001:db8::1"), Some(BlockReason::NoOwnIpv6Address));
        assert_eq!(block(&["2001:db8:1::1"], BTreeMap::new(), "2001:db8::1"), None);
    }

    #[test]
    fn an_interface_that_does_not_deliver_blocks_all() {
        let observed = |interface| {
            of_kernel(KernelState {
                interface,
                elsewhere: BTreeSet::from(["192.0.2.1", "2001:db8:1::1"].map(ip)),
                ..KernelState::default()
            })
        };
        for vip in ["10.0.0.1", "2001:db8::1"].map(ip) {
            assert_eq!(blocked(vip, &desired(), &observed(InterfaceState::Missing)), Some(BlockReason::InterfaceMissing));
            assert_eq!(blocked(vip, &desired(), &observed(InterfaceState::Down)), Some(BlockReason::InterfaceDown));
            assert_eq!(blocked(vip, &desired(), &observed(InterfaceState::Up)), None);
        }
    }

    #[test]
    fn a_stray_in_the_record_is_not_the_nodes_own_either() {
        let stray = ip("10.0.0.2");
        let observed = of_kernel(KernelState {
            addresses: on_interface("10.0.0.2", None),
            record: Record { exists: true, pending: BTreeSet::from([stray]), confirmed: BTreeSet::new(), ..Record::default() },
            ..KernelState::default()
        });
        assert_eq!(blocked(ip("10.0.0.1"), &desired(), &observed), Some(BlockReason::NoOwnIpv4Address));
    }
}
