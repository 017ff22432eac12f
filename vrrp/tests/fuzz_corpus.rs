// SPDX-License-Identifier: Apache-2.0
//! Replays what fuzzing is given, and what it found: every file of `tests/fuzz/corpus/vrrp/`.
#![expect(clippy::unwrap_used, reason = "a test ends there")]

use std::fs;
use std::path::Path;

#[path = "../../tests/fuzz/src/vrrp.rs"]
#[expect(unreachable_pub, reason = "the fuzz target calls it from another crate")]
mod targets;

#[test]
fn advertisement() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fuzz/corpus/vrrp");
    let files: Vec<_> = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(files.len() >= 4, "there is a corpus");
    for file in files {
        let input = fs::read(&file).unwrap();
        // Whole, and cut at every place.
        (0..=input.len()).for_each(|end| targets::advertisement(&input[..end]));
    }
}
