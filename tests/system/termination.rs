// SPDX-License-Identifier: Apache-2.0
//! Which stop SIGTERM is with `drain.onTermination: auto`, as the objects of the source say.

use std::collections::BTreeSet;
use std::net::IpAddr;

use nix::sys::signal::Signal;

use crate::common::wait_until;
use crate::drain::assert_nothing_is_left;
use crate::rig::{PATIENCE, Rig, Settings, addresses, vips};

const NODE: &str = "apiVersion: v1\nkind: Node\nmetadata: {name: node-1}\n";
const CORDONED: &str = "apiVersion: v1\nkind: Node\nmetadata: {name: node-1}\nspec: {unschedulable: true}\n";
const DAEMON_SET: &str = "apiVersion: apps/v1\nkind: DaemonSet\nmetadata: {name: vipherald, namespace: vip}\n\
                          spec: {selector: {matchLabels: {app: vipherald}}, template: {spec: {containers: []}}}\n";

/// Ends the daemon after its source had these objects beside its VIPs, and gives what it said.
fn end_with(rig: &mut Rig, node: &str, workload: &str, vips: &BTreeSet<IpAddr>) -> String {
    rig.daemon.replace("manifests/node.yaml", node);
    rig.daemon.replace("manifests/workload.yaml", workload);
    // What comes after them is read with them.
    rig.daemon.publish(vips);
    rig.wait_until_exact(vips);
    rig.daemon.process().signal(Signal::SIGTERM);
    assert_eq!(rig.daemon.process().wait(PATIENCE).code(), Some(0));
    let said = [rig.daemon.logged("all stays as it is for the next start"), rig.daemon.logged("draining: withdraw")].concat();
    let [line] = &said[..] else { panic!("{said:?}") };
    serde_json::from_str::<serde_json::Value>(line).unwrap()["reason"].as_str().unwrap().to_owned()
}

#[test]
fn auto_keeps_for_the_next_start_and_drains_where_the_node_or_its_workload_goes() {
    let settings =
        || Settings { restart_time: Some("60s"), on_termination: "auto, workload: DaemonSet/vip/vipherald", ..Settings::default() };
    let (two, three) = (vips(["10.1.0.1", "2001:db8:7::1"]), vips(["10.1.0.1", "10.1.0.2", "2001:db8:7::1"]));
    let mut rig = Rig::serving("auto", settings(), &two);

    let reason = end_with(&mut rig, NODE, DAEMON_SET, &three);
    assert_eq!(reason, "DaemonSet vip/vipherald is to start it again on this node");
    assert_eq!((addresses(&rig.node, "lo"), rig.record().placed), (three.clone(), three.clone()));
    wait_until("BIRD keeps the routes", PATIENCE, || rig.tor.log().contains("Neighbor graceful restart detected"));
    assert_eq!(rig.tor.kernel_routes(), three);

    let another = DAEMON_SET.replace("name: vipherald,", "name: another,");
    for (node, workload, expected) in [
        (CORDONED, DAEMON_SET, "Node node-1 is cordoned (spec.unschedulable)"),
        (NODE, another.as_str(), "there is no DaemonSet vip/vipherald any more"),
    ] {
        rig.daemon.start(&rig.node);
        rig.wait_until_exact(&three);
        let reason = end_with(&mut rig, node, workload, &two);
        assert_eq!(reason, expected);
        assert_nothing_is_left(&rig);
        wait_until("BIRD has no route", PATIENCE, || rig.tor.kernel_routes().is_empty());
        rig.daemon.replace("manifests/node.yaml", NODE);
        rig.daemon.replace("manifests/workload.yaml", DAEMON_SET);
        rig.daemon.publish(&three);
    }
}
