// SPDX-License-Identifier: Apache-2.0
//! Peers that follow from what the cluster says: of virtual routers the other router nodes of the instance, of the speaker those for this Node.

use std::time::Duration;

use serde_json::json;

use crate::cluster::{Cluster, LIMIT, NFTABLES, OBJECTS, RouterNode, stays};
use crate::common::wait_until;

const VIPS: [&str; 3] = ["10.0.0.7", "10.0.0.8", "10.0.0.9"];

const VRRP: &str = "dataplane: {type: nftables}\nmode: vrrp\nvrrp:\n  groups:\n  - {name: vips, interface: eth1, virtualRouterId: 106, vips: [10.0.0.0/24], \
                    peers: auto, preempt: false, advertisementInterval: 100ms}";

/// How many VIPs the node has on the link.
fn held(node: &RouterNode) -> usize {
    let addresses = node.namespace.ip("-o address show dev eth1");
    VIPS.iter().filter(|vip| addresses.contains(&format!(" {vip}/32 "))).count()
}

#[test]
fn peers_are_the_other_nodes_of_the_instance_and_follow_them() {
    let cluster = Cluster::new();
    cluster.apply(OBJECTS);
    let [mut first, mut second] = ["n1", "n2"].map(|name| RouterNode::new(&cluster, name, VRRP));
    first.namespace.veth("eth1", &second.namespace, "eth1");
    for (node, last) in [(&first, 1), (&second, 2)] {
        node.namespace.ip(&format!("address add 10.98.0.{last}/24 dev eth1"));
    }
    first.start();
    let lone = || first.said();
    wait_until("it waits for peers", LIMIT, || lone().matches("Initialize").count() == VIPS.len());
    assert_eq!(held(&first), 0, "nobody may be Active who does not know whom else there is");
    second.start();
    wait_until("one is Active", LIMIT, || held(&first) + held(&second) == VIPS.len());
    for kind in ["service web", "ericingress eric", "lvsingress lvs"] {
        let (kind, name) = kind.split_once(' ').unwrap();
        cluster.until_conditions(kind, name, ["True=Accepted", "True=Programmed", "True=Announced"]);
    }
    let has = if held(&first) > 0 { "n1" } else { "n2" };
    wait_until("the object says where the VIP is", LIMIT, || cluster.get("ericingress", "eric")["status"]["announcing"] == json!([has]));
    let status = |node: &str| cluster.get("routernode", &format!("vipherald-{node}"))["status"].clone();
    assert_eq!(status("n1")["mode"], "vrrp");
    assert_eq!(status("n1")["virtualRouters"], json!([{"virtualRouterId": 106, "addresses": ["10.98.0.1"]}]));
    first.until_learned(&[]);

    // The one that has them is killed: the other one follows, and has them when that is back, though the API server does not tell it of anybody.
    let (active, backup) = if held(&first) > 0 { (&mut first, &mut second) } else { (&mut second, &mut first) };
    active.kill();
    wait_until("the other one follows", LIMIT, || held(backup) == VIPS.len());
    active.proxy.go_away();
    active.start();
    wait_until("it is Backup by what it knew last", LIMIT, || active.said().matches("Backup").count() == VIPS.len());
    assert_eq!((held(active), held(backup)), (0, VIPS.len()));
}

#[test]
fn a_node_has_the_peers_that_its_labels_choose() {
    let cluster = Cluster::new();
    cluster.apply(OBJECTS);
    let mut node = RouterNode::new(&cluster, "n1", NFTABLES);
    node.peer_keys = ", nodeSelector: rack=a";
    node.start();
    wait_until("it says that it has no peer", LIMIT, || node.said().matches("NoPeers").count() == VIPS.len());
    let label = |label: &str| cluster.try_kubectl(&["label", "--overwrite", "node", "n1", label]);
    label("rack=a");
    node.until_learned(&VIPS);

    // Whatever it is that hides the Node, it is in its rack.
    let all = VIPS.iter().map(|vip| vip.parse().unwrap()).collect();
    cluster.try_kubectl(&["delete", "node", "n1"]);
    stays("it announces though its Node is away", Duration::from_secs(2), || node.tor.learned() == all);
    node.proxy.go_away();
    node.kill();
    node.until_learned(&[]);
    node.start();
    node.until_learned(&VIPS);
    node.proxy.come_back();
    cluster.apply("apiVersion: v1\nkind: Node\nmetadata: {name: n1, labels: {rack: a}}\n");
    stays("it announces when its Node is back", Duration::from_secs(2), || node.tor.learned() == all);
    label("rack=b");
    node.until_learned(&[]);
    wait_until("it says again that it has no peer", LIMIT, || node.said().contains("NoPeers"));
}
