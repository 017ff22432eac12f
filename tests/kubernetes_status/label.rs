// SPDX-License-Identifier: Apache-2.0
//! The label `externalIP` of Nodes: which address it holds, when it goes, and that nothing is written without it.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::api_proxy::{Requests, Verb};
use crate::cluster::{Cluster, LIMIT, NFTABLES, OBJECTS, RouterNode, stays};
use crate::common::wait_until;

const VIPS: [&str; 3] = ["10.0.0.7", "10.0.0.8", "10.0.0.9"];

fn label(cluster: &Cluster, node: &str) -> Value {
    cluster.get("node", node)["metadata"]["labels"]["externalIP"].clone()
}

fn until_label(cluster: &Cluster, node: &str, expected: &str) {
    wait_until(&format!("{node} has the label externalIP={expected}"), LIMIT, || label(cluster, node) == expected);
}

fn give_address(cluster: &Cluster, node: &str, kind: &str, address: &str) {
    let patch = format!(r#"{{"status": {{"addresses": [{{"type": "{kind}", "address": "{address}"}}]}}}}"#);
    cluster.server.kubectl(&["patch", "node", node, "--subresource=status", "--type=merge", "--patch", &patch], "");
}

#[test]
fn a_node_is_labelled_with_its_external_address_until_it_leaves() {
    let cluster = Cluster::new();
    cluster.apply(OBJECTS);
    let [mut by_node, mut by_interface] = ["n1", "n2"].map(|name| RouterNode::new(&cluster, name, NFTABLES));
    by_interface.node_keys = ", externalInterface: eth0";
    for (node, name) in [(&mut by_node, "n1"), (&mut by_interface, "n2")] {
        give_address(&cluster, name, "InternalIP", "192.0.2.11");
        node.start();
    }
    until_label(&cluster, "n1", "192.0.2.11");
    until_label(&cluster, "n2", "10.99.0.1");
    give_address(&cluster, "n1", "ExternalIP", "198.51.100.11");
    until_label(&cluster, "n1", "198.51.100.11");
    by_node.until_learned(&VIPS);
    let began = Instant::now();
    let patches = Requests::verb(Verb::Patch).of("nodes");
    stays("nothing is written that is there", Duration::from_secs(4), || by_node.asked(began, &patches) == 0);

    // Somebody writes over it; a Node joins again under the same name.
    cluster.server.kubectl(&["label", "--overwrite", "node", "n1", "externalIP=203.0.113.1"], "");
    until_label(&cluster, "n1", "198.51.100.11");
    cluster.server.kubectl(&["delete", "node", "n2"], "");
    cluster.apply("apiVersion: v1\nkind: Node\nmetadata: {name: n2}\n");
    until_label(&cluster, "n2", "10.99.0.1");

    // A crash is a restart; a drain is for good.
    by_interface.kill();
    by_node.daemon.as_ref().unwrap().signal(Signal::SIGTERM);
    by_node.daemon.take().unwrap().wait(LIMIT);
    assert_eq!(label(&cluster, "n1"), Value::Null);
    assert_eq!(label(&cluster, "n2"), "10.99.0.1");
}

#[test]
fn without_the_label_the_right_to_patch_nodes_is_not_needed() {
    let cluster = Cluster::new();
    cluster.apply(OBJECTS);
    cluster.server.kubectl(&["delete", "clusterrolebinding", "vipherald-node-label"], "");
    wait_until("Nodes may not be patched", LIMIT, || !cluster.may("patch", "nodes"));
    let mut node = RouterNode::new(&cluster, "n1", NFTABLES);
    node.node_keys = ", labelExternalIP: false";
    give_address(&cluster, "n1", "InternalIP", "192.0.2.11");
    cluster.server.kubectl(&["label", "node", "n1", "externalIP=192.0.2.1"], "");
    let began = Instant::now();
    node.start();
    node.until_learned(&VIPS);
    cluster.until_conditions("ericingress", "eric", ["True=Accepted", "True=Programmed", "True=Announced"]);
    assert!(!node.said().contains("nodes"), "{}", node.said());
    node.daemon.as_ref().unwrap().signal(Signal::SIGTERM);
    node.daemon.take().unwrap().wait(LIMIT);
    assert_eq!(node.asked(began, &Requests::verb(Verb::Patch).of("nodes")), 0);
    assert_eq!(label(&cluster, "n1"), "192.0.2.1", "it is somebody else's");
}
