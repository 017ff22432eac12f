// SPDX-License-Identifier: Apache-2.0
//! The configuration file from the outside: what is accepted, what each mistake is answered with, and that documents and code agree.
#![expect(clippy::unwrap_used, reason = "a test ends there")]

#[path = "config/effect.rs"]
mod effect;
#[path = "config/keys.rs"]
mod keys;
#[path = "config/mistakes.rs"]
mod mistakes;

use std::path::{Path, PathBuf};

use vipherald::config::{Config, Environment, load};

fn root(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn environment() -> Environment {
    let variables = [("NODE_NAME", "node-1"), ("ASN", "65001"), ("YAML", "a: {b: c}"), ("EMPTY", "")];
    variables.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

/// What `load` says of a file with this text, its path left out.
fn read(text: &str) -> Result<Config, String> {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("c.yaml");
    std::fs::write(&file, text).unwrap();
    load(&file, &environment()).map_err(|error| error.to_string().replace(&format!("{}/", directory.path().display()), ""))
}
