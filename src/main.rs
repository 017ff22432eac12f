// SPDX-License-Identifier: Apache-2.0
//! The binary: everything is in the library.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    vipherald::cli::main()
}
