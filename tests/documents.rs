// SPDX-License-Identifier: Apache-2.0
//! Every command that the documents show, run as it is shown: a reader must not stumble.
//!
//! The commands of `sh` blocks in README.md and docs/ are run in the checkout, one after another, in a namespace of their own. `run` goes on in the
//! background, as it would in another terminal. Of `make` it is checked that there is such a target; what the targets do is tested elsewhere.

#![allow(clippy::unwrap_used, reason = "a test fails where it cannot go on")]

mod common;
#[path = "documents/quotes.rs"]
mod quotes;
#[path = "documents/recipes.rs"]
mod recipes;
#[path = "documents/routers.rs"]
mod routers;

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::Namespace;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// The commands of the `sh` blocks of a document, without comments.
fn commands(document: &str) -> Vec<String> {
    let mut inside = false;
    let mut commands = Vec::new();
    for line in document.lines() {
        if line.starts_with("```") {
            inside = line == "```sh";
        } else if inside {
            let command = line.split(" #").next().unwrap_or_default().trim();
            commands.extend((!command.is_empty()).then(|| command.to_owned()));
        }
    }
    commands
}

/// A script that runs them with strict rules, and stops the daemon in the end.
fn script(commands: &[String]) -> String {
    let mut script =
        "set -euo pipefail\nmount -t tmpfs none /run\nexport NODE_NAME=node-1\ndaemon=\ntrap '[ -z \"$daemon\" ] || kill $daemon' EXIT\n"
            .to_owned();
    for command in commands {
        writeln!(script, "echo '$ {command}'").unwrap();
        match command.split_whitespace().next() {
            Some("make") => writeln!(script, "make -n {}", command.trim_start_matches("make")).unwrap(),
            Some("vipherald") if command.starts_with("vipherald run") => {
                writeln!(script, "{command} & daemon=$!").unwrap();
                // A reader is slower than a start: the sessions have begun before the next command.
                writeln!(script, "until vipherald show peers -o json 2>&1 | grep -q '\"state\"'; do kill -0 $daemon; done").unwrap();
            }
            Some("vipherald") => writeln!(script, "{command}").unwrap(),
            _ => panic!("no test runs the command '{command}' of a document: teach tests/documents.rs"),
        }
    }
    script.push_str("[ -z \"$daemon\" ] || { kill $daemon; wait $daemon; daemon=; }\n");
    script
}

fn documents() -> Vec<PathBuf> {
    let docs = fs::read_dir(Path::new(ROOT).join("docs")).unwrap().map(|entry| entry.unwrap().path());
    let mut documents: Vec<PathBuf> = docs.filter(|path| path.extension().is_some_and(|extension| extension == "md")).collect();
    documents.push(Path::new(ROOT).join("README.md"));
    documents.sort();
    documents
}

#[test]
fn every_command_of_the_documents_works() {
    let namespace = Namespace::new("documents");
    namespace.ip("link add eth1 type veth peer name far");
    namespace.ip("link set eth1 up");
    namespace.ip("link set far up");
    namespace.ip("addr add 10.211.1.2/24 dev eth1");
    let binaries = Path::new(env!("CARGO_BIN_EXE_vipherald")).parent().unwrap().to_owned();
    let mut seen = 0;
    for document in documents() {
        let commands = commands(&fs::read_to_string(&document).unwrap());
        seen += commands.len();
        let mut shell = namespace.command("unshare");
        shell.args(["--mount", "bash", "-c", &script(&commands)]).current_dir(ROOT);
        shell.env("PATH", format!("{}:{}", binaries.display(), std::env::var("PATH").unwrap()));
        let output = shell.output().unwrap();
        let (text, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{}: {}\n{text}\n{errors}", document.display(), output.status);
    }
    assert!(seen >= 9, "only {seen} commands found in the documents");
}

#[test]
fn every_file_that_the_documents_link_to_is_there() {
    let more = ["ARCHITECTURE.md", "CONTRIBUTING.md", "labs/README.md"].map(|name| Path::new(ROOT).join(name));
    for document in documents().into_iter().chain(more) {
        let text = fs::read_to_string(&document).unwrap();
        for target in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let file = target.split('#').next().unwrap_or_default();
            if !file.is_empty() && !file.starts_with("http") {
                assert!(document.parent().unwrap().join(file).exists(), "{}: there is no {file}", document.display());
            }
        }
    }
}

#[test]
fn labs_that_the_documents_name_exist() {
    let check = Command::new(Path::new(ROOT).join("labs/run")).arg("--check").output().unwrap();
    let known = String::from_utf8_lossy(&check.stdout).into_owned();
    assert!(check.status.success(), "{known}");
    for document in [Path::new(ROOT).join("README.md"), Path::new(ROOT).join("labs/README.md")] {
        let text = fs::read_to_string(&document).unwrap();
        for name in text.split("labs/run ").skip(1).filter_map(|rest| rest.split([' ', '`', '\n', ',']).next()) {
            let verb = ["down", "exec", "LAB"].contains(&name) || name.starts_with('-') || name.starts_with('[');
            assert!(verb || known.contains(&format!("{name} with ")), "{}: there is no lab '{name}'", document.display());
        }
    }
}
