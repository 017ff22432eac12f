// SPDX-License-Identifier: Apache-2.0
//! The rules of the dataplane `nftables` that hand new connections to the chain of their virtual service.
//!
//! Input: an address family as nft names it. Output: chains of the table of that family, the same for every VIP: which addresses and ports are meant is in
//! two maps, one for single ports and one for ranges. Invariant: they come before those that bind a connection to the VIP for IPVS, which never see what is
//! translated here; and so before kube-proxy.

use super::rules::{Chain, Rule, Turn};
use super::{Rules, Scheduling, ServiceKey};
use crate::api::{ForwardingMethod, Scheduler};

/// Who balances, where we do.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum BalancerKind {
    /// IPVS.
    #[default]
    Ipvs,
    /// Destination NAT by nft.
    Nftables,
}

/// How nft chooses where an object asks for this, or why it cannot. To remember a client is to hash its address.
pub(crate) fn translated(scheduling: Scheduling, forwarding: ForwardingMethod) -> Result<Scheduling, String> {
    if forwarding != ForwardingMethod::Masquerade {
        return Err(format!("forwarding {forwarding} needs IPVS, which dataplane nftables does without; use nat, or dataplane.type ipvs"));
    }
    match scheduling.scheduler {
        Scheduler::RoundRobin | Scheduler::WeightedRoundRobin if scheduling.persistence.is_some() => {
            Ok(Scheduling::of(Scheduler::SourceHashing))
        }
        Scheduler::RoundRobin | Scheduler::WeightedRoundRobin | Scheduler::SourceHashing | Scheduler::MaglevHashing => Ok(scheduling),
        other => Err(format!(
            "scheduler {other} needs IPVS, which dataplane nftables does without, since nft does not count connections; use rr, wrr, sh or mh, or \
             dataplane.type ipvs"
        )),
    }
}

impl Rules {
    /// The maps from VIP, protocol and port to the chain of the virtual service: of single ports, and of ranges.
    pub const DISPATCH_MAPS: [&'static str; 2] = ["services", "ranges"];

    /// The chains that look there: for connections that come in, and for those that the node makes itself.
    pub const DISPATCH_CHAINS: [&'static str; 2] = ["balance", "balance-local"];

    /// The map that has this service.
    #[must_use]
    pub fn dispatch_map(service: ServiceKey) -> &'static str {
        let [services, ranges] = Self::DISPATCH_MAPS;
        if service.ports.count() == 1 { services } else { ranges }
    }

    /// Whether nft balances.
    #[must_use]
    pub const fn translates(&self) -> bool {
        matches!(self.balancer, BalancerKind::Nftables)
    }

    /// The chains of the table of this family (`ip` or `ip6`).
    #[must_use]
    pub fn dispatch(ip: &str) -> Vec<Chain> {
        let rules = || {
            let [services, ranges] = Self::DISPATCH_MAPS;
            // Some kernels refuse `meta l4proto` where a map has ranges.
            let protocol = if ip == "ip" { "ip protocol" } else { "ip6 nexthdr" };
            vec![
                Rule::new("virtual services", format!("{ip} daddr . meta l4proto . th dport vmap @{services}")),
                Rule::new("virtual services of ranges of ports", format!("{ip} daddr . {protocol} . th dport vmap @{ranges}")),
            ]
        };
        let [incoming, local] = Self::DISPATCH_CHAINS;
        vec![
            Chain { name: incoming, hook: "type nat hook prerouting priority -111;", turn: Turn::Dispatches, rules: rules() },
            Chain { name: local, hook: "type nat hook output priority -111;", turn: Turn::Dispatches, rules: rules() },
        ]
    }

    /// The comments of these rules of both families, each after family and chain.
    #[must_use]
    pub fn dispatch_fingerprint() -> Vec<String> {
        ["ip", "ip6"].into_iter().flat_map(Self::comments).collect()
    }

    /// Whether the rules of a family are among those of which these are the comments.
    #[must_use]
    pub fn dispatches(ip: &str, comments: &[String]) -> bool {
        Self::comments(ip).iter().all(|comment| comments.contains(comment))
    }

    fn comments(ip: &str) -> Vec<String> {
        let of_chain = |chain: Chain| {
            let comments = chain.rules.iter().map(|rule| format!("{ip} {}: {}", chain.name, rule.comment()));
            comments.collect::<Vec<_>>()
        };
        Self::dispatch(ip).into_iter().flat_map(of_chain).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn nft_does_what_needs_no_count_of_connections() {
        let nat = ForwardingMethod::Masquerade;
        for scheduler in Scheduler::ALL {
            let translated = translated(Scheduling::of(*scheduler), nat);
            match scheduler {
                Scheduler::RoundRobin | Scheduler::WeightedRoundRobin | Scheduler::SourceHashing | Scheduler::MaglevHashing => {
                    assert_eq!(translated, Ok(Scheduling::of(*scheduler)));
                }
                _ => assert!(translated.unwrap_err().starts_with(&format!("scheduler {scheduler} needs IPVS"))),
            }
        }
        for forwarding in [ForwardingMethod::DirectRouting, ForwardingMethod::Tunnel] {
            assert!(translated(Scheduling::of(Scheduler::MaglevHashing), forwarding).unwrap_err().contains("use nat"));
        }
    }

    #[test]
    fn a_client_that_is_to_be_remembered_is_hashed() {
        let remembered = Scheduling { persistence: Some(Duration::from_secs(10)), ..Scheduling::of(Scheduler::RoundRobin) };
        assert_eq!(translated(remembered, ForwardingMethod::Masquerade), Ok(Scheduling::of(Scheduler::SourceHashing)));
    }

    #[test]
    fn rules_of_one_family_alone_dispatch_that_one_only() {
        let four: Vec<String> = Rules::dispatch_fingerprint().into_iter().filter(|comment| comment.starts_with("ip ")).collect();
        assert!(Rules::dispatches("ip", &four) && !Rules::dispatches("ip6", &four) && !Rules::dispatches("ip", &four[1..]));
    }
}
