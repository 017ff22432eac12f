// SPDX-License-Identifier: Apache-2.0
//! Replays what fuzzing is given, and what it found: every file of `tests/fuzz/corpus/` through the function of its directory.
#![expect(clippy::unwrap_used, reason = "a test ends there")]

use std::fs;
use std::path::Path;

#[path = "../../tests/fuzz/src/lib.rs"]
#[expect(unreachable_pub, reason = "the fuzz targets call them from another crate")]
mod targets;

fn replay(target: &str, run: fn(&[u8])) {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fuzz/corpus").join(target);
    let files: Vec<_> = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(files.len() >= 4, "{target} has a corpus");
    for file in files {
        let input = fs::read(&file).unwrap();
        // Whole, and cut at every place.
        (0..=input.len()).for_each(|end| run(&input[..end]));
    }
}

#[test]
fn stream() {
    replay("stream", targets::stream);
}

#[test]
fn open() {
    replay("open", targets::open);
}

#[test]
fn update() {
    replay("update", targets::update);
}

#[test]
fn notification() {
    replay("notification", targets::notification);
}
