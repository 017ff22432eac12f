// SPDX-License-Identifier: Apache-2.0
//! Two or three routers and their neighbours on a virtual clock, on a link that delays, reorders, loses and is cut, even in one direction; with
//! processes that crash, are suspended, stopped and started, and hosts that lose their link or do not serve.
//!
//! Each run is a function of its seed. While the link is well, there is one Active Router within the times of RFC 9568, and the neighbours know which;
//! some time after the last trouble there is one for good: the one that the priorities say, or, without preemption, the one that was.
#![expect(clippy::unwrap_used, reason = "a test ends there")]

mod dice;
mod node;
mod scenario;
mod world;

use scenario::Scenario;
use world::World;

/// Each seed by itself, so that a failure names it.
fn run(seeds: std::ops::Range<u64>, scenario: impl Fn(u64) -> Scenario) {
    for seed in seeds {
        let scenario = scenario(seed);
        let troubles = format!("{:?}", scenario.troubles);
        let outcome = std::panic::catch_unwind(|| World::new(scenario).run());
        if let Err(panic) = outcome {
            let text = panic.downcast_ref::<String>().map_or("a panic", |text| text);
            panic!("seed {seed}: {text}; troubles {troubles}");
        }
    }
}

#[test]
fn routers_recover_from_everything_and_agree() {
    run(0..3000, |seed| Scenario::new(seed, 1));
}

#[test]
fn groups_recover_from_everything_and_agree() {
    run(0..3000, |seed| Scenario::new(seed, 2));
}

#[test]
fn routers_of_which_some_are_suspended_never_have_two_active_for_long() {
    run(0..1000, Scenario::of_pauses);
}

#[test]
fn processes_that_are_killed_and_restarted_never_take_the_addresses_away() {
    run(0..1000, Scenario::of_kills);
}

#[test]
fn routers_that_start_together_agree_at_once() {
    run(0..500, Scenario::without_trouble);
}

#[test]
fn who_does_not_serve_is_active_only_where_nobody_else_can_be() {
    run(0..1000, Scenario::of_health);
}
