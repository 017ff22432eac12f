// SPDX-License-Identifier: Apache-2.0
//! Virtual routers whose peers are the other router nodes of the instance.

use serde_json::json;

use crate::cluster::{Cluster, LIMIT, OBJECTS, RouterNode};
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
