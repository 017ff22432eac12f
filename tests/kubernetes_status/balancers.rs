// SPDX-License-Identifier: Apache-2.0
//! Services of `type: LoadBalancer` and our class: which addresses they get, and that these never move.

use crate::cluster::{Cluster, LIMIT, NFTABLES, RouterNode};
use crate::common::wait_until;

/// A load balancer with this name, these annotations and this port.
fn balancer(name: &str, annotations: &str, port: u16, more: &str) -> String {
    format!(
        "---\napiVersion: v1\nkind: Service\nmetadata: {{name: {name}, namespace: enm, annotations: {{{annotations}}}}}\n\
         spec: {{type: LoadBalancer, loadBalancerClass: vipherald.io/vip, ports: [{{port: {port}}}]{more}}}\n{}",
        slice(name)
    )
}

fn slice(name: &str) -> String {
    format!(
        "---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {{name: {name}-1, namespace: enm, labels: {{kubernetes.io/service-name: {name}}}}}\n\
         addressType: IPv4\nports: [{{port: 8080}}]\nendpoints: [{{addresses: [10.244.1.2]}}]\n"
    )
}

fn running(cluster: &Cluster, more: &'static str) -> RouterNode {
    let mut node = RouterNode::new(cluster, "n1", more);
    node.start();
    node
}

fn until_accepted(cluster: &Cluster, name: &str, expected: &str, words: &str) {
    wait_until(&format!("{name} is {expected}"), LIMIT, || {
        cluster.conditions("service", name).get("Accepted").is_some_and(|said| said == expected)
    });
    let object = cluster.get("service", name);
    let conditions = object["status"]["conditions"].as_array().unwrap();
    let accepted = conditions.iter().find(|condition| condition["type"] == "vipherald.io/Accepted").unwrap();
    assert!(accepted["message"].as_str().unwrap().contains(words), "{accepted}");
}

#[test]
fn addresses_come_from_the_pool_or_by_name_and_never_move() {
    let cluster = Cluster::new();
    // What was given by whoever was before is taken in first: here the lowest address of the pool.
    cluster.apply(&balancer("old", "", 80, ""));
    let given = r#"{"status": {"loadBalancer": {"ingress": [{"ip": "10.0.0.64", "ipMode": "VIP"}]}}}"#;
    cluster.server.kubectl(&["--namespace=enm", "patch", "service", "old", "--subresource=status", "--type=merge", "--patch", given], "");
    cluster.apply(&balancer("new", "", 80, ""));
    let mut node = running(&cluster, NFTABLES);
    cluster.until_ingress("old", &["10.0.0.64 Proxy"]);
    cluster.until_ingress("new", &["10.0.0.65 Proxy"]);
    cluster.apply(&balancer("named", "vipherald.io/ips: 10.0.0.200", 80, ""));
    cluster.until_ingress("named", &["10.0.0.200 Proxy"]);
    node.until_learned(&["10.0.0.64", "10.0.0.65", "10.0.0.200"]);
    cluster.until_conditions("service", "new", ["True=Accepted", "True=Programmed", "True=Announced"]);

    // Neither a restart moves anything, nor an older one that leaves room.
    node.kill();
    cluster.server.kubectl(&["--namespace=enm", "delete", "service", "old"], "");
    node.start();
    node.until_learned(&["10.0.0.65", "10.0.0.200"]);
    cluster.apply(&balancer("next", "", 80, ""));
    cluster.until_ingress("next", &["10.0.0.64 Proxy"]);
    assert_eq!(cluster.ingress("new"), ["10.0.0.65 Proxy"]);

    // Two more are in the pool; then it is used up, and says so.
    for (name, address) in [("third", "10.0.0.66 Proxy"), ("fourth", "10.0.0.67 Proxy")] {
        cluster.apply(&balancer(name, "", 80, ""));
        cluster.until_ingress(name, &[address]);
    }
    cluster.apply(&balancer("fifth", "", 80, ""));
    until_accepted(&cluster, "fifth", "False=PoolExhausted", "no IPv4 address is free in any pool");
    cluster.server.kubectl(&["--namespace=enm", "delete", "service", "next"], "");
    cluster.until_ingress("fifth", &["10.0.0.64 Proxy"]);
}

#[test]
fn one_address_is_shared_by_those_who_ask_and_whose_ports_differ() {
    let cluster = Cluster::new();
    let node = running(&cluster, NFTABLES);
    let key = "vipherald.io/sharing-key: a";
    cluster.apply(&balancer("one", key, 80, ""));
    cluster.until_ingress("one", &["10.0.0.64 Proxy"]);
    cluster.apply(&balancer("two", key, 443, ""));
    cluster.until_ingress("two", &["10.0.0.64 Proxy"]);
    cluster.apply(&balancer("same-port", key, 80, ""));
    cluster.until_ingress("same-port", &["10.0.0.65 Proxy"]);
    cluster.apply(&balancer("stranger", "vipherald.io/ips: 10.0.0.64", 8080, ""));
    until_accepted(&cluster, "stranger", "False=Conflict", "10.0.0.64");
    assert_eq!(cluster.ingress("stranger"), [""; 0]);
    node.until_learned(&["10.0.0.64", "10.0.0.65"]);
}

#[test]
fn what_somebody_else_takes_away_is_given_back_and_what_is_no_load_balancer_any_more_loses_it() {
    let cluster = Cluster::new();
    let node = running(&cluster, NFTABLES);
    cluster.apply(&balancer("web", "", 80, ""));
    cluster.until_ingress("web", &["10.0.0.64 Proxy"]);
    node.until_learned(&["10.0.0.64"]);
    let emptied = r#"{"status": {"loadBalancer": {"ingress": null}}}"#;
    cluster.server.kubectl(&["--namespace=enm", "patch", "service", "web", "--subresource=status", "--type=merge", "--patch", emptied], "");
    wait_until("it is noticed", LIMIT, || cluster.ingress("web") == ["10.0.0.64 Proxy"]);
    node.until_learned(&["10.0.0.64"]);
    let patch = r#"{"spec": {"type": "ClusterIP", "loadBalancerClass": null}}"#;
    cluster.server.kubectl(&["--namespace=enm", "patch", "service", "web", "--type=merge", "--patch", patch], "");
    wait_until("it has no condition of ours", LIMIT, || cluster.conditions("service", "web").is_empty());
    assert_eq!(cluster.ingress("web"), [""; 0]);
    node.until_learned(&[]);
}

#[test]
fn with_kube_proxy_pods_go_to_it() {
    let cluster = Cluster::new();
    let _node = running(&cluster, "dataplane: {type: kube-proxy}");
    cluster.apply(&balancer("web", "", 80, ""));
    cluster.until_ingress("web", &["10.0.0.64 VIP"]);
    cluster.until_conditions("service", "web", ["True=Accepted", "Unknown=BalancedElsewhere", "True=Announced"]);
}
