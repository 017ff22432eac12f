// SPDX-License-Identifier: Apache-2.0
//! Why a VIP that is to be served on this node cannot be, in words that say what to do.
//!
//! Input: what is wanted, and the node as it was read. Output: the planner's reasons, each with a remedy.

use std::collections::BTreeMap;
use std::net::IpAddr;

use crate::desired::Desired;
use crate::observed::Observed;
use crate::plan::{BlockReason, blocked};
use crate::status::{KUBE_PROXY_IN_IPVS_MODE, Obstacle};
use crate::sysctl::Sysctl;

/// Of each VIP that is to be served here and cannot be.
pub(super) fn obstacles(desired: &Desired, observed: &Observed) -> BTreeMap<IpAddr, Obstacle> {
    let obstacle = |(vip, reason): (IpAddr, BlockReason)| {
        let message = match reason {
            BlockReason::NoVirtualRouter => {
                "no group of vrrp.groups has it in its vips, with version 3 where it is an IPv6 address, and with peers of its family where there are any"
            }
            BlockReason::InterfaceMissing => "there is no such interface",
            BlockReason::InterfaceDown => "the interface is down, so the kernel delivers nothing to it",
            BlockReason::Gateway => "it is the next hop of a route of this node, which would cut itself off",
            BlockReason::DuplicateAddress => {
                "another host on the link has it too, or that is still being found out; the kernel delivers nothing to it"
            }
            BlockReason::PolicyNotFound => "it asks for a policy that is not in bgp.policies, and is not announced without it",
            BlockReason::OnOtherInterface => {
                let hint = if observed.kernel.kube_proxy_in_ipvs_mode { KUBE_PROXY_IN_IPVS_MODE } else { "" };
                let message = format!("another interface of the node has the address{hint}");
                return (vip, Obstacle { reason: format!("{reason:?}"), message });
            }
            BlockReason::PlacedByOthers => {
                "somebody else has put it on an interface of the node, which answers for it there, and it may be at another node too; take it away: no virtual router of ours places or removes it"
            }
            BlockReason::NoOwnIpv4Address => {
                "the node has no IPv4 address of its own, so the kernel would take the VIP as the source of the node's own connections; give the node one"
            }
            BlockReason::NoOwnIpv6Address => {
                "the node has no IPv6 address of its own but link-local ones, so the kernel would take the VIP as the source of the node's own connections; give the node one"
            }
            BlockReason::NoIpvs => {
                "the kernel has no IPVS, and cannot load it: load or install its modules ip_vs and ip_vs_mh, with nf_conntrack; dataplane.type nftables, or auto, does without"
            }
            BlockReason::SysctlMissing => return (vip, unset_sysctls(desired, observed)),
        };
        (vip, Obstacle { reason: format!("{reason:?}"), message: message.to_owned() })
    };
    blocked(desired, observed).into_iter().map(obstacle).collect()
}

/// Which kernel settings keep VIPs from being served, and what each is for.
fn unset_sysctls(desired: &Desired, observed: &Observed) -> Obstacle {
    let found = |setting: Sysctl| observed.kernel.sysctls.get(&setting).map_or("absent", String::as_str);
    let balancer = desired.balancing.as_ref().map(|balancing| balancing.rules.balancer).unwrap_or_default();
    let counts = |setting: &Sysctl| setting.is_required() && setting.is_for(balancer);
    let unset = Sysctl::ALL.into_iter().filter(|setting| counts(setting) && found(*setting) != setting.wanted());
    let words = |setting: Sysctl| format!("{setting} is {} and must be {}: {}", found(setting), setting.wanted(), setting.reason());
    Obstacle { reason: "SysctlMissing".to_owned(), message: unset.map(words).collect::<Vec<_>>().join("; ") }
}
