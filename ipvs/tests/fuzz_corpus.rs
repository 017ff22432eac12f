// SPDX-License-Identifier: Apache-2.0
//! Replays what fuzzing is given, and what it found: every file of `tests/fuzz/corpus/ipvs/`.

use std::fs;
use std::path::Path;

#[path = "../../tests/fuzz/src/ipvs.rs"]
#[expect(unreachable_pub, reason = "the fuzz target calls it from another crate")]
mod targets;

#[test]
fn datagram() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fuzz/corpus/ipvs");
    let files: Vec<_> = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(files.len() >= 4, "there is a corpus");
    for file in files {
        let input = fs::read(&file).unwrap();
        // Whole, and cut at every place.
        (0..=input.len()).for_each(|end| targets::datagram(&input[..end]));
    }
}
