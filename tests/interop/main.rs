// SPDX-License-Identifier: Apache-2.0
//! Our speaker with real peers, each in a network namespace of its own: a test for each feature with each peer, and the table of the results.
//!
//! To add a peer: a file in `peers/` and its line in `Software`. To add a feature: a function in `features/` and its row in `matrix.rs`. The table in
//! `docs/interoperability.md` is what a whole run has seen, and a run that sees something else fails; `UPDATE_GOLDENS=1` writes it anew, unless a test failed.
//! The harness is not the usual one, since tests come from two lists and most of their time is waiting: more of them run at once than there are cores.
#![allow(clippy::disallowed_macros, clippy::unwrap_used, reason = "a failed test says where")]

#[path = "../common/mod.rs"]
mod common;
mod features;
mod matrix;
mod node;
mod peers;
mod rig;

use std::fs;
use std::path::Path;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};

use libtest_mimic::{Arguments, Trial};
use matrix::{Passed, cells, table};

/// Tests at once, unless the command line says otherwise.
const THREADS: usize = 8;

/// Where the table begins and ends.
const MARKS: (&str, &str) = ("<!-- The table: written by tests/interop. -->\n", "<!-- The end of the table. -->\n");

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(THREADS);
    let passed = Arc::new(Mutex::new(Passed::new()));
    let trials = cells().map(|(feature, software)| {
        let passed = Arc::clone(&passed);
        Trial::test(format!("{}::{}", software.name().to_lowercase(), feature.name), move || {
            (feature.test)(software);
            passed.lock().unwrap_or_else(PoisonError::into_inner).insert((feature.name, software));
            Ok(())
        })
    });
    let conclusion = libtest_mimic::run(&arguments, trials.collect());
    let passed = passed.lock().unwrap_or_else(PoisonError::into_inner);
    if conclusion.has_failed() {
        return ExitCode::from(101);
    }
    // A part of the matrix says nothing of the table.
    let is_whole = !arguments.list && conclusion.num_filtered_out + conclusion.num_ignored == 0;
    if is_whole && !document_is(&table(&passed)) {
        return ExitCode::from(101);
    }
    ExitCode::SUCCESS
}

/// Whether the table in the documents is this one; it is put there where that is wanted.
fn document_is(table: &str) -> bool {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/interoperability.md");
    let text = fs::read_to_string(&path).unwrap();
    let (head, rest) = text.split_once(MARKS.0).unwrap_or_else(|| panic!("{}: there is no mark where the table begins", path.display()));
    let (found, tail) = rest.split_once(MARKS.1).unwrap_or_else(|| panic!("{}: there is no mark where the table ends", path.display()));
    if found == table {
        return true;
    }
    if std::env::var_os("UPDATE_GOLDENS").is_some() {
        fs::write(&path, format!("{head}{}{table}{}{tail}", MARKS.0, MARKS.1)).unwrap();
        return true;
    }
    eprintln!("{}: the table is not what this run has seen (UPDATE_GOLDENS=1 accepts it):\n{table}", path.display());
    false
}
