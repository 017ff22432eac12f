// SPDX-License-Identifier: Apache-2.0
//! The whole product, as its operator meets it: the real binary on a node, a real BIRD as its ToR, each in a network namespace of its own.
//!
//! What is promised is checked from outside: addresses and record in the kernel, routes in BIRD and in the ToR's kernel, what the command line says.
//! Needs root, and the packages of `tests/packages.txt`.
#![allow(clippy::disallowed_macros, clippy::expect_used, clippy::unwrap_used, reason = "a test fails by a panic, and prints its figures")]

#[path = "system/admin.rs"]
mod admin;
#[path = "system/churn.rs"]
mod churn;
#[path = "system/claim.rs"]
mod claim;
mod common;
#[path = "system/crash.rs"]
mod crash;
#[path = "system/drain.rs"]
mod drain;
#[path = "system/failing.rs"]
mod failing;
#[path = "system/inspect.rs"]
mod inspect;
#[path = "system/keep.rs"]
mod keep;
#[path = "system/key.rs"]
mod key;
#[path = "system/loss.rs"]
mod loss;
#[path = "system/peers.rs"]
mod peers;
#[path = "system/policy.rs"]
mod policy;
#[path = "system/renamed.rs"]
mod renamed;
#[path = "system/rig.rs"]
mod rig;
#[path = "system/served.rs"]
mod served;
#[path = "system/termination.rs"]
mod termination;
#[path = "common/tor.rs"]
mod tor;
#[path = "system/trouble.rs"]
mod trouble;
