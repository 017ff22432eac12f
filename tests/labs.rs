// SPDX-License-Identifier: Apache-2.0
//! The labs, whole, with real routers around the binary under test. Each checks its own expectations and fails with a plain reason; here they are
//! only started. Needs root, the packages of `labs/packages.txt`, and `make apiserver`.

use std::process::Command;
use std::sync::Mutex;

/// One lab at a time: they measure, and share two cores.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn run(lab: &str, router: &str) {
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let output = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/labs/run"))
        .arg(lab)
        .env("ROUTER", router)
        .env("VIPHERALD", env!("CARGO_BIN_EXE_vipherald"))
        .output()
        .unwrap_or_else(|error| panic!("labs/run does not start (it needs Python 3 and PyYAML): {error}"));
    let (shown, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "labs/run {lab} with {router}: {}\n{shown}\n{errors}", output.status);
    assert!(shown.contains("all as expected"), "labs/run {lab} with {router} ended early:\n{shown}\n{errors}");
}

#[test]
fn single_rack_with_bird() {
    run("single-rack", "bird");
}

#[test]
fn single_rack_with_frr() {
    run("single-rack", "frr");
}

#[test]
fn multi_rack_with_bird() {
    run("multi-rack", "bird");
}

#[test]
fn multi_rack_with_frr() {
    run("multi-rack", "frr");
}

#[test]
fn route_reflector_with_bird() {
    run("route-reflector", "bird");
}

#[test]
fn route_reflector_with_frr() {
    run("route-reflector", "frr");
}

#[test]
fn dual_tor_with_bird() {
    run("dual-tor", "bird");
}

#[test]
fn dual_tor_with_frr() {
    run("dual-tor", "frr");
}

#[test]
fn cni_coexistence_with_bird() {
    run("cni-coexistence", "bird");
}

#[test]
fn cni_coexistence_with_frr() {
    run("cni-coexistence", "frr");
}

#[test]
fn vrrp_pair_with_bird() {
    run("vrrp-pair", "bird");
}

#[test]
fn vrrp_pair_with_frr() {
    run("vrrp-pair", "frr");
}

#[test]
fn kubernetes_with_bird() {
    run("kubernetes", "bird");
}

#[test]
fn kubernetes_with_frr() {
    run("kubernetes", "frr");
}
