// SPDX-License-Identifier: Apache-2.0
//! Helm, the values files of the chart, and what comes of them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

use crate::common::run;

/// The chart.
pub(crate) fn chart() -> PathBuf {
    root("charts/vipherald")
}

/// A path in the checkout.
pub(crate) fn root(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// Whether goldens are to be written, not compared.
pub(crate) fn update() -> bool {
    std::env::var_os("UPDATE_GOLDENS").is_some()
}

/// The values files, by the name of what they are for.
pub(crate) fn values_files() -> Vec<(String, PathBuf)> {
    let entries = fs::read_dir(chart().join("ci")).unwrap().map(|entry| entry.unwrap().path());
    let name = |path: &Path| path.file_name().unwrap().to_str().unwrap().strip_suffix("-values.yaml").unwrap().to_owned();
    let mut files: Vec<_> = entries.map(|path| (name(&path), path)).collect();
    files.sort();
    files
}

/// `helm` with nothing of this machine's own.
pub(crate) fn helm() -> Command {
    let directory = run(Command::new(root("tests/helm/build")).arg("--find"));
    let mut helm = Command::new(Path::new(directory.trim_end()).join("helm"));
    for name in ["HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME"] {
        helm.env(name, "/nonexistent");
    }
    helm.env_remove("KUBECONFIG");
    helm
}

/// The Kubernetes for which is rendered where no API server is asked.
pub(crate) const KUBERNETES: &str = "--kube-version=1.33.0";

/// `helm template` of the chart, as the release `vipherald` of the namespace `routing`, with these words more.
pub(crate) fn template(words: &[&str]) -> Output {
    helm().args(["template", "vipherald"]).arg(chart()).args(["--namespace=routing", KUBERNETES]).args(words).output().unwrap()
}

/// What it renders of a values file, with these words more.
pub(crate) fn render(values: &Path, words: &[&str]) -> String {
    let output = template(&[&["--values", values.to_str().unwrap()], words].concat());
    assert!(output.status.success(), "{}: {}", values.display(), String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// What it says where it refuses these values, which it must.
pub(crate) fn refusal(words: &[&str]) -> String {
    let output = template(words);
    assert!(!output.status.success(), "{words:?} is not refused");
    String::from_utf8(output.stderr).unwrap()
}

/// The objects of a text.
pub(crate) fn objects(text: &str) -> Vec<Value> {
    let documents: Vec<Value> = serde_saphyr::from_multiple(text).unwrap();
    documents.into_iter().filter(|document| !document.is_null()).collect()
}

/// The only object of this kind.
pub(crate) fn only<'a>(objects: &'a [Value], kind: &str) -> &'a Value {
    let mut found = objects.iter().filter(|object| object["kind"] == kind);
    let object = found.next().unwrap_or_else(|| panic!("no {kind}"));
    assert!(found.next().is_none(), "more than one {kind}");
    object
}

/// The ConfigMap that pods follow.
pub(crate) fn config_map(objects: &[Value]) -> &Value {
    let name = &workload(objects)["metadata"]["name"];
    objects.iter().find(|object| object["kind"] == "ConfigMap" && object["metadata"]["name"] == *name).unwrap()
}

/// The DaemonSet, or StatefulSet.
pub(crate) fn workload(objects: &[Value]) -> &Value {
    let is_workload = |object: &&Value| ["DaemonSet", "StatefulSet"].contains(&object["kind"].as_str().unwrap());
    let mut found = objects.iter().filter(is_workload);
    let workload = found.next().unwrap();
    assert!(found.next().is_none(), "two workloads");
    workload
}

/// The elements of a list, none where there is none.
pub(crate) fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}
