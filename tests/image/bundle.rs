// SPDX-License-Identifier: Apache-2.0
//! The bundle for sites without a registry: what it holds can be read by those who are to, and is what it says.
//!
//! Needs root, `make build`, `make helm`, `make tools`, and the packages of tests/packages.txt.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use serde_json::Value;
use tempfile::TempDir;

use crate::common::run;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Made once for all tests here.
static BUNDLE: LazyLock<TempDir> = LazyLock::new(make);

fn make() -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    run(Command::new(Path::new(ROOT).join("image/bundle")).arg(directory.path()).env("HELM", helm()));
    directory
}

fn helm() -> PathBuf {
    let found = Command::new(Path::new(ROOT).join("tests/helm/build")).arg("--find").output().unwrap();
    assert!(found.status.success(), "{}", String::from_utf8_lossy(&found.stderr));
    Path::new(String::from_utf8(found.stdout).unwrap().trim()).join("helm")
}

/// The file of the bundle whose name ends so.
fn file(ending: &str) -> PathBuf {
    let mut files = fs::read_dir(BUNDLE.path()).unwrap().map(|entry| entry.unwrap().path());
    files.find(|path| path.to_str().unwrap().ends_with(ending)).unwrap_or_else(|| panic!("no {ending} in the bundle"))
}

fn archive() -> String {
    format!("oci-archive:{}:{VERSION}", file(".tar").display())
}

#[test]
fn every_file_has_its_checksum() {
    run(Command::new("sha256sum").args(["--check", "--strict", "SHA256SUMS"]).current_dir(BUNDLE.path()));
    let sums = fs::read_to_string(BUNDLE.path().join("SHA256SUMS")).unwrap();
    let listed: BTreeSet<_> = sums.lines().filter_map(|line| line.split_once("  ")).map(|(_, name)| name.to_owned()).collect();
    let there = fs::read_dir(BUNDLE.path()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let there: BTreeSet<_> = there.filter(|name| name != "SHA256SUMS").collect();
    assert_eq!(listed, there);
    assert_eq!(there.len(), 4, "{there:?}");
}

#[test]
fn twice_the_same_octets() {
    let again = make();
    let sums = |directory: &Path| fs::read_to_string(directory.join("SHA256SUMS")).unwrap();
    assert_eq!(sums(BUNDLE.path()), sums(again.path()));
}

#[test]
fn a_registry_takes_the_image_and_the_daemon_is_in_it() {
    let inspect =
        |words: &[&str]| -> Value { serde_json::from_str(&run(Command::new("skopeo").arg("inspect").args(words).arg(archive()))).unwrap() };
    let image = inspect(&[]);
    assert_eq!(image["Labels"]["org.opencontainers.image.version"], VERSION);
    let revision = run(Command::new("git").args(["-C", ROOT, "rev-parse", "HEAD"]));
    assert_eq!(image["Labels"]["org.opencontainers.image.revision"], revision.trim());
    assert_eq!(image["Layers"].as_array().unwrap().len(), 1);
    let config = inspect(&["--config"]);
    assert_eq!(config["config"]["Entrypoint"], serde_json::json!(["/usr/bin/vipherald"]));

    let work = tempfile::tempdir().unwrap();
    let (copy, root) = (work.path().join("copy"), work.path().join("root"));
    run(Command::new("skopeo").args(["copy", "--quiet"]).arg(archive()).arg(format!("dir:{}", copy.display())));
    fs::create_dir(&root).unwrap();
    let layer = image["Layers"][0].as_str().unwrap().trim_start_matches("sha256:").to_owned();
    run(Command::new("tar").arg("--extract").arg("--file").arg(copy.join(layer)).arg("--directory").arg(&root));
    assert_eq!(run(Command::new("chroot").arg(&root).args(["/usr/bin/vipherald", "--version"])), format!("vipherald {VERSION}\n"));
    assert!(run(Command::new("chroot").arg(&root).args(["/usr/sbin/nft", "--version"])).starts_with("nftables v"));
}

#[test]
fn the_chart_renders_as_that_of_the_checkout() {
    let render = |chart: &Path| {
        let values = Path::new(ROOT).join("charts/vipherald/ci/single-rack-values.yaml");
        let mut command = Command::new(helm());
        // What the user of this machine has of Helm is none of the test's.
        command.env("HELM_CONFIG_HOME", "/nonexistent").env("HELM_DATA_HOME", "/nonexistent").env("HELM_CACHE_HOME", "/nonexistent");
        run(command.args(["template", "vipherald", "--kube-version", "1.30.0"]).arg(chart).arg("--values").arg(values))
    };
    let rendered = render(&file(".tgz"));
    assert_eq!(rendered, render(&Path::new(ROOT).join("charts/vipherald")));
    assert!(rendered.contains(&format!("image: registry.example.com/vipherald/vipherald:{VERSION}")), "{rendered}");
}

/// The crates that the binary is made of, by name and version.
fn crates() -> BTreeSet<(String, String)> {
    let words = ["tree", "--locked", "--package", "vipherald", "--edges", "normal", "--prefix", "none", "--format", "{p}"];
    let tree = run(Command::new(env!("CARGO")).args(words).current_dir(ROOT));
    let package = |line: &str| {
        let mut words = line.split_whitespace();
        Some((words.next()?.to_owned(), words.next()?.trim_start_matches('v').to_owned()))
    };
    tree.lines().filter_map(package).collect()
}

#[test]
fn the_list_of_components_has_every_crate_of_the_binary() {
    let list: Value = serde_json::from_str(&fs::read_to_string(file(".cdx.json")).unwrap()).unwrap();
    assert_eq!((list["bomFormat"].as_str(), list["metadata"]["component"]["name"].as_str()), (Some("CycloneDX"), Some("vipherald")));
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut listed = BTreeMap::new();
    for component in list["components"].as_array().unwrap() {
        listed.insert((text(&component["name"]), text(&component["version"])), component);
    }
    let crates = crates();
    assert!(crates.len() > 100, "only {} crates", crates.len());
    for (name, version) in crates.iter().filter(|(name, _)| name != "vipherald") {
        let component = listed.get(&(name.clone(), version.clone())).unwrap_or_else(|| panic!("{name} {version} is not listed"));
        assert!(text(&component["purl"]).starts_with(&format!("pkg:cargo/{name}@{version}")), "{component}");
        assert!(component["licenses"].as_array().is_some_and(|licences| !licences.is_empty()), "{name} has no licence");
    }
    let path = std::env::temp_dir();
    assert!(!list.to_string().contains(&format!("file://{}", path.display())), "it names a directory of this machine");
}

#[test]
fn the_licences_name_every_crate_of_the_binary() {
    let text = fs::read_to_string(file(".txt")).unwrap();
    let (list, texts) = text.split_once("\n\n").unwrap();
    let named: BTreeMap<&str, &str> = list.lines().filter_map(|line| line.split_once(": ")).collect();
    for (name, version) in crates() {
        let crate_ = format!("{name} {version}");
        assert!(named.get(crate_.as_str()).is_some_and(|licence| !licence.is_empty()), "{crate_} has no licence there");
        assert!(texts.contains(&crate_), "{crate_} has no text there");
    }
    for words in ["Permission is hereby granted, free of charge", "TERMS AND CONDITIONS FOR USE, REPRODUCTION, AND DISTRIBUTION"] {
        assert!(texts.contains(words), "{words}");
    }
}
