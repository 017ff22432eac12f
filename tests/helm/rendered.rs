// SPDX-License-Identifier: Apache-2.0
//! What comes of the values files: goldens, plain manifests, and a configuration that the daemon takes.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::chart::{KUBERNETES, chart, config_map, helm, list, objects, refusal, render, root, update, values_files, workload};

/// Compares with a file, or writes it.
fn golden(path: &Path, text: &str, failed: &mut Vec<String>) {
    if update() {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    } else if fs::read_to_string(path).unwrap_or_default() != text {
        failed.push(path.display().to_string());
    }
}

#[test]
fn every_values_file_renders_as_written() {
    let files = values_files();
    assert!(files.len() >= 6, "{files:?}");
    let mut failed = Vec::new();
    for (name, values) in files {
        golden(&root("tests/helm/golden").join(format!("{name}.yaml")), &render(&values, &[]), &mut failed);
    }
    assert!(failed.is_empty(), "what the chart renders is not as written (UPDATE_GOLDENS=1 accepts it): {failed:?}");
}

/// Without Helm nothing runs hooks, and the definitions are a file.
#[test]
fn plain_manifests_are_what_the_chart_renders() {
    let mut failed = Vec::new();
    for name in ["single-rack", "kube-proxy"] {
        let values = chart().join("ci").join(format!("{name}-values.yaml"));
        let text = render(&values, &["--no-hooks"]);
        assert!(!text.contains("helm.sh/hook"), "{name}");
        golden(&root("examples/kubernetes").join(format!("{name}.yaml")), &text, &mut failed);
    }
    let definitions = crate::common::run(Command::new(env!("CARGO_BIN_EXE_vipherald")).arg("crds"));
    golden(&root("examples/kubernetes/definitions.yaml"), &definitions, &mut failed);
    assert!(failed.is_empty(), "the plain manifests are not as written (UPDATE_GOLDENS=1 accepts them): {failed:?}");
}

#[test]
fn helm_has_nothing_to_complain_about() {
    for (name, values) in values_files() {
        let output = helm().args(["lint", "--strict", "--quiet", KUBERNETES]).arg(chart()).arg("--values").arg(values).output().unwrap();
        assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stdout));
    }
}

/// The configuration file in a rendered release.
fn configuration(objects: &[Value]) -> String {
    config_map(objects)["data"]["vipherald.yaml"].as_str().unwrap().to_owned()
}

/// Asks the daemon, with the variables of its pod.
fn check(objects: &[Value]) -> Result<(), String> {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), configuration(objects)).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_vipherald"));
    command.args(["config", "check"]).arg(file.path()).env_clear();
    let workload = workload(objects);
    let pod = format!("{}-0", workload["metadata"]["name"].as_str().unwrap());
    for variable in list(&workload["spec"]["template"]["spec"]["containers"][0]["env"]) {
        let value = match variable["valueFrom"]["fieldRef"]["fieldPath"].as_str() {
            Some("status.hostIP") => "192.0.2.1",
            Some("metadata.name") => &pod,
            Some(_) => "node-1",
            None => variable["value"].as_str().unwrap(),
        };
        command.env(variable["name"].as_str().unwrap(), value);
    }
    let output = command.output().unwrap();
    if output.status.success() { Ok(()) } else { Err(String::from_utf8(output.stderr).unwrap()) }
}

#[test]
fn the_daemon_takes_every_rendered_configuration() {
    for (name, values) in values_files() {
        let objects = objects(&render(&values, &[]));
        assert_eq!(check(&objects), Ok(()), "{name}");
    }
}

/// The examples of configurations, as the value `config`.
#[test]
fn every_configuration_passes_the_chart_unchanged() {
    let mut passed = 0;
    for entry in fs::read_dir(root("examples/config")).unwrap() {
        let path = entry.unwrap().path();
        let mut config: Value = serde_saphyr::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
        if config["vips"]["allow"].is_null() {
            continue;
        }
        let values = tempfile::Builder::new().suffix(".json").tempfile().unwrap();
        fs::write(values.path(), json!({"config": config}).to_string()).unwrap();
        let objects = objects(&render(values.path(), &[]));
        assert_eq!(check(&objects), Ok(()), "{}", path.display());
        // What the chart adds.
        for (section, key, value) in [(None, "instance", "vipherald"), (Some("drain"), "workload", "DaemonSet/routing/vipherald")] {
            let section = match section {
                Some(section) => &mut config[section],
                None => &mut config,
            };
            if section[key].is_null() {
                section[key] = value.into();
            }
        }
        let rendered: Value = serde_saphyr::from_str(&configuration(&objects)).unwrap();
        assert_eq!(rendered, config, "{}", path.display());
        passed += 1;
    }
    assert!(passed >= 3, "only {passed} examples say which VIPs are allowed");
}

#[test]
fn the_grace_period_covers_a_drain() {
    let allow = "config.vips.allow[0].prefix=10.0.0.0/24";
    let grace = |words: &[&str]| {
        let values = chart().join("values.yaml");
        let objects = objects(&render(&values, &[&["--set", allow], words].concat()));
        workload(&objects)["spec"]["template"]["spec"]["terminationGracePeriodSeconds"].as_u64().unwrap()
    };
    assert_eq!(grace(&[]), 46, "1 s and 25 s of a drain, and 20 s");
    assert_eq!(grace(&["--set", "config.drain.gracefulShutdown=1m 30s,config.drain.timeout=2m,config.drain.fabricDelay=500ms"]), 231);
    assert_eq!(grace(&["--set", "terminationGracePeriodSeconds=300"]), 300);
    let short = refusal(&["--set", allow, "--set", "terminationGracePeriodSeconds=45"]);
    assert!(short.contains("terminationGracePeriodSeconds: expected 46 or more"), "{short}");
    let unknown = refusal(&["--set", allow, "--set", "config.drain.timeout=${TIMEOUT}"]);
    assert!(unknown.contains("config.drain.timeout: expected a time"), "{unknown}");
}

/// Probes reach the daemon where it listens.
#[test]
fn probes_follow_the_address_of_the_daemon() {
    let probe = |address: &str| {
        let set = format!("config.http.address={address}");
        let values = chart().join("values.yaml");
        let objects = objects(&render(&values, &["--set-json", "config.vips.allow=[]", "--set", &set]));
        let container = &workload(&objects)["spec"]["template"]["spec"]["containers"][0];
        assert_eq!(container["ports"][0]["containerPort"], container["ports"][0]["hostPort"]);
        let port = container["ports"][0]["containerPort"].as_u64().unwrap();
        let hosts = ["startupProbe", "livenessProbe", "readinessProbe"].map(|probe| container[probe]["httpGet"]["host"].clone());
        assert!(hosts.iter().all(|host| *host == hosts[0]));
        (hosts[0].as_str().map(str::to_owned), port)
    };
    let at = |host: &str, port| (Some(host.to_owned()), port);
    assert_eq!(probe("0.0.0.0:9479"), (None, 9479));
    assert_eq!(probe("[::]:80"), (None, 80));
    assert_eq!(probe("${NODE_IP}:9480"), (None, 9480));
    assert_eq!(probe("127.0.0.1:9481"), at("127.0.0.1", 9481));
    assert_eq!(probe("[::1]:9482"), at("::1", 9482));
    let no_port = refusal(&["--set", "config.vips.allow[0].prefix=10.0.0.0/24,config.http.address=0.0.0.0"]);
    assert!(no_port.contains("config.http.address"), "{no_port}");
}
