// SPDX-License-Identifier: Apache-2.0
//! Rows of the table of endpoint rules (`src/desired/tests/endpoint_rules.rs`) that decide most, as two nodes read them from an API server.

use crate::cluster::{Cluster, NFTABLES, RouterNode};

/// The endpoint on each of two nodes: ready, serving, terminating.
fn objects(policy: &str, endpoints: [[bool; 3]; 2]) -> String {
    let [first, second] = endpoints
        .map(|[ready, serving, terminating]| format!("conditions: {{ready: {ready}, serving: {serving}, terminating: {terminating}}}"));
    format!(
        "apiVersion: v1\nkind: Service\nmetadata: {{name: web, namespace: enm}}\n\
         spec: {{externalIPs: [10.0.0.7], type: NodePort, externalTrafficPolicy: {policy}, ports: [{{name: http, port: 80}}]}}\n---\n\
         apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {{name: web-1, namespace: enm, labels: {{kubernetes.io/service-name: web}}}}\n\
         addressType: IPv4\nports: [{{name: http, port: 8080}}]\nendpoints:\n\
         - {{addresses: [10.244.1.2], nodeName: n1, {first}}}\n- {{addresses: [10.244.2.2], nodeName: n2, {second}}}\n"
    )
}

#[test]
fn endpoints_that_terminate_serve_while_none_is_ready() {
    const READY: [bool; 3] = [true, true, false];
    const LEAVING: [bool; 3] = [false, true, true];
    const DEAD: [bool; 3] = [false, false, true];
    let cluster = Cluster::new();
    cluster.apply(&objects("Cluster", [READY, READY]));
    let nodes = ["n1", "n2"].map(|name| {
        let mut node = RouterNode::new(&cluster, name, NFTABLES);
        node.start();
        node
    });
    for (policy, endpoints, announced) in [
        ("Cluster", [READY, LEAVING], [true, true]),
        ("Cluster", [LEAVING, LEAVING], [true, true]),
        ("Cluster", [DEAD, DEAD], [false, false]),
        ("Local", [READY, DEAD], [true, false]),
        ("Local", [LEAVING, READY], [true, true]),
        ("Local", [DEAD, DEAD], [false, false]),
    ] {
        cluster.apply(&objects(policy, endpoints));
        for (node, announced) in nodes.iter().zip(announced) {
            node.until_learned(if announced { &["10.0.0.7"] } else { &[] });
        }
    }
}
