// SPDX-License-Identifier: Apache-2.0
//! How fast routes get to routers, and through a route reflector, beside other speakers in the same run: `make bench`.
//!
//! Input: the parts to run (`announce`, `change`, `plan`, `endpoint`, `reflect`, `balance-nft`, `failover`, `cluster`), all where none is named, and `balance`, which needs IPVS.
//! Output: one table for each, in Markdown. `check` measures this speaker only, and fails where a figure is ten times what it was: what `make test` does;
//! `check balance` likewise what needs IPVS. Every measurement has fresh processes in network namespaces
//! of its own.
#![allow(clippy::unwrap_used, clippy::disallowed_macros, reason = "a benchmark ends where it cannot go on, and prints")]

#[path = "../tests/common/accounts.rs"]
mod accounts;
#[path = "../tests/common/apiserver.rs"]
mod apiserver;
#[path = "../tests/common/certificates.rs"]
mod certificates;
#[path = "../tests/common/mod.rs"]
mod common;
#[path = "../tests/interop_vrrp/keepalived.rs"]
mod keepalived;
#[path = "../tests/common/link.rs"]
mod link;
#[path = "../tests/common/passage.rs"]
mod passage;
#[path = "../tests/common/port.rs"]
mod port;
#[path = "../tests/common/stream.rs"]
mod stream;

mod announce;
mod balance;
mod change;
mod cluster;
mod failover;
#[path = "../tests/common/light.rs"]
mod light;
mod objects;
mod plan;
mod reflect;
mod router;
mod table;
mod topology;

use std::time::Duration;

use common::{Namespace, wait_until};

/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(120);

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        [failover::AS_ROUTER, priority, centiseconds, addresses] => failover::serve(priority, centiseconds, addresses),
        ["check"] => {
            [announce::check, change::check, reflect::check, balance::check_nft, failover::check].into_iter().for_each(|check| check())
        }
        ["check", "cluster"] => cluster::check(),
        ["check", "failover"] => failover::check(),
        ["check", "reflect"] => reflect::check(),
        ["check", "balance"] => balance::check(),
        ["check", "balance-nft"] => balance::check_nft(),
        [] => ["announce", "change", "plan", "endpoint", "reflect", "balance-nft", "failover", "cluster"].into_iter().for_each(part),
        parts => parts.iter().copied().for_each(part),
    }
}

fn part(name: &str) {
    match name {
        "announce" => announce::compare(),
        "balance" => balance::compare(),
        "balance-nft" => balance::compare_nft(),
        "change" => change::compare(),
        "cluster" => cluster::compare(),
        "plan" => plan::compare(),
        "endpoint" => plan::compare_endpoint(),
        "reflect" => reflect::compare(),
        "failover" => failover::compare(),
        other => {
            panic!("there is no part '{other}': announce, balance, balance-nft, change, cluster, endpoint, failover, plan, reflect, check")
        }
    }
}
