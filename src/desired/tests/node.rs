// SPDX-License-Identifier: Apache-2.0
//! What the Node of this daemon says about all VIPs.

use super::*;

fn node(name: &str, labels: &str) -> String {
    format!("---\napiVersion: v1\nkind: Node\nmetadata: {{name: {name}, labels: {{{labels}}}}}\n")
}

#[test]
fn a_node_that_is_excluded_serves_nothing_and_any_other_does() {
    let balancing = Config { dataplane: Dataplane { kind: DataplaneType::Nftables, ..config().dataplane }, ..config() };
    let served = [service("a", "10.0.0.7", ""), slice("a", "IPv4", READY)].concat();
    let intent = |nodes: &str| {
        let Desired { vips, balancing, .. } = compile(&snapshot_of(&(served.clone() + nodes)), &balancing).desired;
        (vips.into_values().map(|vip| vip.intent).collect::<Vec<_>>(), balancing.unwrap().services.len())
    };
    let serves = (vec![VipIntent::Serve { without_endpoints: false }], 1);
    let label = "node.kubernetes.io/exclude-from-external-load-balancers";
    for value in ["\"\"", "\"true\"", "\"false\""] {
        let excluded = (vec![VipIntent::Withhold(WithholdReason::NodeExcluded)], 0);
        assert_eq!(intent(&node("node1", &format!("{label}: {value}"))), excluded, "it counts whatever its value is: {value}");
    }
    assert_eq!(intent(&node("node1", "")), serves);
    assert_eq!(intent(&node("node2", &format!("{label}: \"\""))), serves, "another node");
    assert_eq!(intent(""), serves, "a node that is not known");
}

#[test]
fn a_node_that_is_excluded_announces_nothing_that_it_finds_either() {
    let allow = Some(vec![Allowed { prefix: crate::api::parse_prefix("10.0.0.0/24").unwrap(), namespaces: Vec::new() }]);
    let speaker = Config {
        dataplane: Dataplane { kind: DataplaneType::None, ..config().dataplane },
        vips: Vips { allow, ..config().vips },
        ..config()
    };
    let found = |labels: &str| compile(&snapshot_of(&node("node1", labels)), &speaker).desired.found.len();
    assert_eq!(found(""), 1);
    assert_eq!(found("node.kubernetes.io/exclude-from-external-load-balancers: \"\""), 0);
}
