// SPDX-License-Identifier: Apache-2.0
//! The transactions of nft by which new connections pass from the rules of somebody else to ours, and back.
//!
//! Inputs: the rules that are there, and those that are to be. Output: what goes before the transaction that leaves nothing but these. Each rests on how
//! the kernel changes rules under packets that are under way:
//!
//! - A packet goes from hook to hook, and meets in each what is in force then: former rules in the first ones and new ones in those after them, never the
//!   other way round.
//! - The rules of a chain that stays change at once. A chain that is deleted keeps its rules until the kernel takes it off its hook, one after the other,
//!   while the elements of sets and maps that go with it count no more: for 100 µs and longer, what was to come before it does nothing, and it still acts.
//!
//! Invariants: a packet that any of these transactions overtakes is balanced by us, with its marks and its masquerading, or by somebody else; no rule binds
//! it to a VIP on whose ports nobody listens, nor drops it. Chains and tables are deleted only when there is nothing in them to be met.

use crate::desired::{BalancerKind, Chain, Rules, Turn};

/// One transaction.
pub(super) struct Stage {
    /// Chains beside the record, with the rules that they are to have from now on.
    pub(super) chains: Vec<Chain>,
    /// Whether new connections are dispatched in the tables of services from now on; `None` where that stays as it is.
    pub(super) dispatches: Option<bool>,
}

/// What goes before the transaction that puts these rules in the place of those of which `before` are the comments. Nothing where we balance before and
/// after it, or neither.
pub(super) fn stages(before: &[String], wanted: Option<&Rules>) -> Vec<Stage> {
    let balances = |rules: &&Rules| !rules.hands_over;
    let balanced = !before.is_empty() && !Rules::are_handing_over(before);
    match (balanced, wanted.filter(balances)) {
        (false, Some(rules)) => {
            // Those of the last turn come with the last transaction.
            let turns = [Turn::Attends, Turn::Dispatches];
            turns.into_iter().filter_map(|turn| stage(turn, rules, Some(rules))).collect()
        }
        (true, None) => {
            let translated = ["ip", "ip6"].into_iter().any(|ip| Rules::dispatches(ip, before));
            let balancer = if translated { BalancerKind::Nftables } else { BalancerKind::Ipvs };
            let former = Rules { balancer, ..Rules::default() };
            Turn::ALL.into_iter().rev().filter_map(|turn| stage(turn, &former, wanted)).collect()
        }
        _ => Vec::new(),
    }
}

/// What is listed of the rules after each transaction but the last of those that put these rules in the place of those of which `before` are the comments: what a
/// process leaves whose end comes between two of them.
#[must_use]
pub fn left_between(before: &[String], wanted: Option<&Rules>) -> Vec<Vec<String>> {
    let mut listed = before.to_vec();
    let mut after_each = Vec::new();
    for Stage { chains, dispatches } in stages(before, wanted) {
        for chain in &chains {
            listed.retain(|rule| !rule.starts_with(&format!("{}: ", chain.name)));
            listed.extend(chain.rules.iter().map(|rule| format!("{}: {}", chain.name, rule.comment())));
        }
        let of_dispatch = Rules::dispatch_fingerprint();
        if let Some(dispatches) = dispatches {
            listed.retain(|rule| !of_dispatch.contains(rule));
            listed.extend(of_dispatch.into_iter().filter(|_| dispatches));
        }
        // As a listing has them.
        let place =
            |rule: &String| Rules::CHAINS.iter().position(|name| rule.starts_with(&format!("{name}: "))).unwrap_or(Rules::CHAINS.len());
        listed.sort_by_key(place);
        after_each.push(listed.clone());
    }
    after_each
}

/// The chains of one turn that `all` has, with no other rules than `wanted` has there.
fn stage(turn: Turn, all: &Rules, wanted: Option<&Rules>) -> Option<Stage> {
    let of_wanted = || wanted.map(Rules::chains).unwrap_or_default();
    let chains = all.chains().into_iter().filter(|chain| chain.turn == turn);
    let chains: Vec<Chain> = chains
        .map(|chain| {
            let rules = of_wanted().into_iter().find(|other| other.name == chain.name).map(|other| other.rules);
            Chain { rules: rules.unwrap_or_default(), ..chain }
        })
        .collect();
    let dispatches = (turn == Turn::Dispatches && all.translates()).then(|| wanted.is_some_and(Rules::translates));
    (!chains.is_empty() || dispatches.is_some()).then_some(Stage { chains, dispatches })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Chains that have rules, and such that are emptied, of each stage.
    fn shown(before: Option<&Rules>, wanted: Option<&Rules>) -> Vec<String> {
        let before = before.map(Rules::fingerprint).unwrap_or_default();
        let chain = |chain: &Chain| format!("{}{}", if chain.rules.is_empty() { "-" } else { "+" }, chain.name);
        let words = |Stage { chains, dispatches }: Stage| {
            let dispatches = dispatches.map(|dispatches| format!("{}balance", if dispatches { "+" } else { "-" }));
            chains.iter().map(chain).chain(dispatches).collect::<Vec<_>>().join(" ")
        };
        stages(&before, wanted).into_iter().map(words).collect()
    }

    fn rules(balancer: BalancerKind) -> Rules {
        Rules { balancer, first_mark: 64, ..Rules::default() }
    }

    const COME: &str = "+served +passed +to-mark +answers +from-mark";

    #[test]
    fn what_claims_comes_after_what_it_relies_on() {
        let handing_over = Rules::handing_over();
        for before in [None, Some(&handing_over)] {
            assert_eq!(shown(before, Some(&rules(BalancerKind::Nftables))), [COME, "+balance"]);
            assert_eq!(shown(before, Some(&rules(BalancerKind::Ipvs))), [COME]);
        }
    }

    #[test]
    fn what_claims_goes_first_and_who_may_come_is_looked_at_all_the_while() {
        let (handing_over, claims) = (Rules::handing_over(), "-unserved -claim -claim-local");
        let left = "+served -passed -to-mark -answers -from-mark";
        assert_eq!(shown(Some(&rules(BalancerKind::Nftables)), Some(&handing_over)), [claims, "-balance", left]);
        assert_eq!(shown(Some(&rules(BalancerKind::Ipvs)), Some(&handing_over)), [claims, left]);
        let none = left.replace('+', "-");
        assert_eq!(shown(Some(&rules(BalancerKind::Nftables)), None), [claims, "-balance", &none]);
    }

    #[test]
    fn what_an_end_halfway_leaves_is_neither_what_was_there_nor_what_is_to_be() {
        let (handing_over, ours) = (Rules::handing_over(), rules(BalancerKind::Nftables));
        for (before, wanted) in [(&handing_over, &ours), (&ours, &handing_over)] {
            let left = left_between(&before.fingerprint(), Some(wanted));
            assert_eq!(left.len(), stages(&before.fingerprint(), Some(wanted)).len());
            assert!(left.iter().all(|left| *left != before.fingerprint() && !left.is_empty()), "{left:?}");
        }
        // The last transaction of the way out takes empty chains away, and leaves the same rules.
        assert_eq!(left_between(&ours.fingerprint(), Some(&handing_over)).pop(), Some(handing_over.fingerprint()));
        assert_eq!(left_between(&ours.fingerprint(), None).pop(), Some(Vec::new()));
    }

    #[test]
    fn where_we_balance_before_and_after_or_neither_one_transaction_does() {
        let (nft, ipvs, handing_over) = (rules(BalancerKind::Nftables), rules(BalancerKind::Ipvs), Rules::handing_over());
        for (before, wanted) in [
            (Some(&nft), Some(&ipvs)),
            (Some(&ipvs), Some(&nft)),
            (Some(&nft), Some(&Rules { first_mark: 96, ..nft.clone() })),
            (Some(&handing_over), Some(&handing_over)),
            (None, Some(&handing_over)),
            (Some(&handing_over), None),
            (None, None),
        ] {
            assert_eq!(shown(before, wanted), [""; 0], "{before:?} {wanted:?}");
        }
    }
}
