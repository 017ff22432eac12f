// SPDX-License-Identifier: Apache-2.0
//! Tells many stories to a world, and makes sure that they were worth it.
//!
//! Inputs: how stories are made, what a world makes of one and what it saw on the way, and what some story has to come to. Invariants: the same stories
//! each time, unless PROPTEST_RNG_SEED or PROPTEST_CASES ask for others.

use std::cell::RefCell;
use std::collections::BTreeSet;

use proptest::prelude::*;
use proptest::test_runner::{RngSeed, TestRunner};

/// How many there are by default.
const CASES: u32 = 2_000;

/// Lets a world live through each story.
pub(crate) fn tell<S: Strategy>(story: &S, seed: u64, expected: &[&str], live: impl Fn(S::Value) -> BTreeSet<&'static str>) {
    let mut config = ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(CASES) };
    if config.rng_seed == RngSeed::Random {
        config.rng_seed = RngSeed::Fixed(seed);
    }
    if let Some(cases) = std::env::var("PROPTEST_CASES").ok().and_then(|text| text.parse().ok()) {
        config.cases = cases;
    }
    let seen = RefCell::new(BTreeSet::new());
    TestRunner::new(config)
        .run(story, |value| {
            seen.borrow_mut().append(&mut live(value));
            Ok(())
        })
        .unwrap_or_else(|error| panic!("{error}"));
    let seen = seen.into_inner();
    for event in expected {
        assert!(seen.contains(event), "no case came to {event}: this test shows less than it says; seen: {seen:?}");
    }
}
