// SPDX-License-Identifier: Apache-2.0
//! `vipherald doctor` on a kernel with IPVS: before there is a daemon, beside one, and where kube-proxy balances by IPVS too.
//!
//! Runs in the guest that `tests/uml` boots, on the stage of `tests/common/stage.rs`.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;
#[path = "common/stage.rs"]
mod stage;

use std::collections::BTreeMap;

use common::Namespace;
use stage::{Stage, VIP, eric, service, slice};

/// What `vipherald doctor` finds in this namespace, and whether it calls any of it a problem.
fn doctor(router: &Namespace, more: &[&str]) -> (BTreeMap<String, (String, String)>, bool) {
    let mut command = router.command(env!("CARGO_BIN_EXE_vipherald"));
    let output = command.args(["doctor", "-o", "json"]).args(more).output().unwrap();
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let word = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
    let findings = document["findings"].as_array().unwrap().iter();
    let findings: BTreeMap<_, _> = findings.map(|found| (word(&found["check"]), (word(&found["state"]), word(&found["detail"])))).collect();
    let problem = findings.values().any(|(state, _)| state == "problem");
    assert_eq!(output.status.code(), Some(i32::from(problem)), "{output:?}");
    (findings, problem)
}

#[test]
fn doctor_sees_settings_ipvs_and_kube_proxy() {
    let mut stage = Stage::new("doctor", &["192.168.1.1"]);
    let (found, problem) = doctor(&stage.router, &[]);
    assert!(!problem, "{found:#?}");
    let state = |check: &str| found.get(check).map(|(state, detail)| (state.as_str(), detail.as_str())).unwrap();
    assert_eq!(state("IPVS"), ("ok", "it is in the kernel"));
    assert_eq!(state("TCP-AO"), ("ok", "the kernel has it"));
    assert_eq!(state("own IPv4 address").0, "ok");
    let unset = "0, and the daemon sets it to 1: nft sees, and masquerades, what IPVS translates";
    assert_eq!(state("sysctl net.ipv4.vs.conntrack"), ("ok", unset));
    assert!(!found.contains_key("foreign services"));
    // A daemon that serves, then kube-proxy beside it.
    stage.publish("pods", &(service("pods", "{port: 80}") + &slice("pods", "{port: 80}", &["192.168.1.1"])));
    stage.publish("web", &eric("web", VIP, "pods", &[("80", "80", "algo: rr")]));
    stage.start("");
    stage.wait_for_vip(VIP, true);
    let file = stage.path("vipherald.yaml").display().to_string();
    let (found, problem) = doctor(&stage.router, &["--config", &file]);
    assert!(!problem && !found.contains_key("foreign services"), "{found:#?}");
    assert_eq!(found["sysctl net.ipv4.vs.conntrack"].1, "1: nft sees, and masquerades, what IPVS translates");
    stage.router.ip("link add kube-ipvs0 type veth peer name kube-other");
    assert!(stage.router.command("ipvsadm").args(["-A", "-t", "10.96.0.1:443", "-s", "rr"]).status().unwrap().success());
    let (found, problem) = doctor(&stage.router, &["--config", &file]);
    assert!(problem);
    assert_eq!(found["kube-proxy"].0, "problem");
    let foreign = "1 virtual services are of addresses that we have not placed, TCP 10.96.0.1:443 among them; they are never touched";
    assert_eq!(found["foreign services"], ("warning".to_owned(), foreign.to_owned()));
}
