// SPDX-License-Identifier: Apache-2.0
//! Nodes that are cordoned or tainted: their VIPs leave, one node after the other, never from the last one, and come back.

use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime};

use serde_json::Value;

use crate::api_proxy::Verb;
use crate::cluster::{Cluster, LIMIT, NFTABLES, OBJECTS, RouterNode, stays};
use crate::common::wait_until;

const VIPS: [&str; 3] = ["10.0.0.7", "10.0.0.8", "10.0.0.9"];

/// Dedicated router nodes that run, and serve all.
fn routers<const N: usize>(cluster: &Cluster, names: [&str; N]) -> [RouterNode; N] {
    cluster.apply(OBJECTS);
    names.map(|name| {
        let mut node = RouterNode::new(cluster, name, NFTABLES);
        cluster.server.kubectl(&["taint", "node", name, "node=routing:NoSchedule"], "");
        node.start();
        node.until_learned(&VIPS);
        until_ready(cluster, name, "True=Serving");
        node
    })
}

fn cordon(cluster: &Cluster, name: &str) {
    cluster.server.kubectl(&["cordon", name], "");
}

fn uncordon(cluster: &Cluster, name: &str) {
    cluster.server.kubectl(&["uncordon", name], "");
}

/// The condition Ready of the RouterNode.
fn ready(cluster: &Cluster, name: &str) -> Value {
    let object = cluster.get("routernode", &format!("vipherald-{name}"));
    let conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
    conditions.into_iter().find(|condition| condition["type"] == "Ready").unwrap_or_default()
}

fn until_ready(cluster: &Cluster, name: &str, expected: &str) {
    let words =
        |ready: &Value| format!("{}={}", ready["status"].as_str().unwrap_or_default(), ready["reason"].as_str().unwrap_or_default());
    let deadline = Instant::now() + LIMIT;
    loop {
        let found = ready(cluster, name);
        if words(&found) == expected {
            return;
        }
        assert!(Instant::now() < deadline, "{name} is {found}, not {expected}");
    }
}

fn message(cluster: &Cluster, name: &str) -> String {
    ready(cluster, name)["message"].as_str().unwrap_or_default().to_owned()
}

/// When a node began to withdraw its VIPs, by its log.
fn began_to_leave(node: &RouterNode) -> SystemTime {
    let log = node.daemon.as_ref().unwrap().log();
    let line = log.lines().find(|line| line.contains("drained: VIPs leave this node")).unwrap_or_else(|| panic!("not in\n{log}"));
    humantime::parse_rfc3339(line.split_whitespace().next().unwrap()).unwrap()
}

/// When a node last wrote the Lease of drains: gave it up, where that is over.
fn gave_up(node: &RouterNode) -> SystemTime {
    let of_drains = |name: &Option<String>| name.as_deref() == Some("vipherald.drain");
    let seen = node.proxy.seen().into_iter();
    let last = seen.filter(|seen| seen.verb == Verb::Patch && seen.resource == "leases" && of_drains(&seen.name)).map(|seen| seen.at).max();
    SystemTime::now() - last.expect("it had the Lease").elapsed()
}

#[test]
fn cordoned_nodes_drain_one_after_the_other_and_the_last_one_stays() {
    let cluster = Cluster::new();
    let [first_node, second, third] = routers(&cluster, ["n1", "n2", "n3"]);
    cordon(&cluster, "n1");
    cordon(&cluster, "n2");
    first_node.until_learned(&[]);
    second.until_learned(&[]);
    for name in ["n1", "n2"] {
        // As the documents have it.
        let reason = r#"--for=jsonpath={.status.conditions[?(@.type=="Ready")].reason}=NodeDrained"#;
        cluster.server.kubectl(&["wait", &format!("routernode/vipherald-{name}"), "--timeout=90s", reason], "");
        assert_eq!(message(&cluster, name), "the Node is cordoned: VIPs are withdrawn and removed until that is over");
    }
    // Whoever is second begins only when the first one has given the Lease up, having said that it is drained.
    wait_until("both have given the Lease up", LIMIT, || {
        cluster.try_kubectl(&["get", "lease", "vipherald.drain", "--namespace=vip", "--output=jsonpath={.spec.holderIdentity}"]).is_empty()
    });
    let mut turns = [&first_node, &second].map(|node| (began_to_leave(node), gave_up(node)));
    turns.sort();
    let [(_, first_end), (second_begin, _)] = turns;
    assert!(second_begin > first_end, "{turns:?}");
    let addresses = |node: &RouterNode| node.namespace.ip("-4 address show dev lo");
    wait_until("their addresses are gone", LIMIT, || !(addresses(&first_node) + &addresses(&second)).contains("10.0.0."));
    assert_eq!((first_node.tor.sessions(), second.tor.sessions()), (1, 1), "the sessions stay up");
    assert!(first_node.said().contains("drain: the Node is cordoned: VIPs are withdrawn"), "{}", first_node.said());
    third.until_learned(&VIPS);

    cordon(&cluster, "n3");
    until_ready(&cluster, "n3", "True=DrainWaits");
    assert!(
        message(&cluster, "n3").starts_with("the Node is cordoned; VIPs stay all the same: it is the last one"),
        "{}",
        message(&cluster, "n3")
    );
    assert!(third.said().contains("it is the last one"), "{}", third.said());
    stays("the last one serves", Duration::from_secs(8), || third.tor.withdrawals() == 0);

    uncordon(&cluster, "n1");
    first_node.until_learned(&VIPS);
    third.until_learned(&[]);
    until_ready(&cluster, "n3", "False=NodeDrained");
    uncordon(&cluster, "n2");
    uncordon(&cluster, "n3");
    for node in [&first_node, &second, &third] {
        node.until_learned(&VIPS);
    }
}

/// When the ToR got the last UPDATE, by its log.
fn last_update(node: &RouterNode) -> SystemTime {
    let log = node.tor.log();
    let line = log.lines().rfind(|line| line.ends_with("node: Got UPDATE")).unwrap();
    humantime::parse_rfc3339_weak(line.split(" <").next().unwrap()).unwrap()
}

#[test]
fn rfc8326_the_routes_of_a_cordoned_node_are_the_last_resort_before_they_leave_and_come_back_as_they_were() {
    let cluster = Cluster::new();
    cluster.apply(OBJECTS);
    let [node, _other] = ["n1", "n2"].map(|name| {
        let mut node = RouterNode::new(&cluster, name, NFTABLES);
        node.drain_keys = ", onCordon: always, gracefulShutdown: 2s";
        node.start();
        node.until_learned(&VIPS);
        until_ready(&cluster, name, "True=Serving");
        node
    });
    let each = |attributes: &str| VIPS.map(|vip| (format!("{vip}/32"), attributes.to_owned())).into_iter().collect::<BTreeMap<_, _>>();
    let counts = || (node.tor.updates(), node.tor.withdrawals(), node.tor.sessions());
    assert_eq!(node.tor.routes("node"), each(""));
    let told = node.tor.updates();

    cordon(&cluster, "n1");
    wait_until("every route is one of last resort", LIMIT, || {
        let routes = node.tor.routes("node");
        assert_eq!(routes.len(), VIPS.len(), "withdrawn without a word");
        routes == each("local_pref 0 community (65535,0) ")
    });
    assert_eq!(counts(), (told + 3, 0, 1));
    node.until_learned(&[]);
    assert_eq!(counts(), (told + 3, 3, 1));
    let lasted = last_update(&node).duration_since(began_to_leave(&node)).unwrap();
    assert!(lasted >= Duration::from_secs(2), "withdrawn after {lasted:?}");
    until_ready(&cluster, "n1", "False=NodeDrained");

    uncordon(&cluster, "n1");
    node.until_learned(&VIPS);
    assert_eq!(node.tor.routes("node"), each(""));
    assert_eq!(counts(), (told + 6, 3, 1), "the session stays up");
    until_ready(&cluster, "n1", "True=Serving");
}

#[test]
fn a_node_stays_that_is_the_last_one_for_a_single_vip() {
    let local = |node: &str| {
        format!(
            "apiVersion: v1\nkind: Service\nmetadata: {{name: here, namespace: enm}}\n\
             spec: {{externalIPs: [10.0.0.20], externalTrafficPolicy: Local, ports: [{{port: 80}}]}}\n---\n\
             apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {{name: here-1, namespace: enm, labels: {{kubernetes.io/service-name: here}}}}\n\
             addressType: IPv4\nports: [{{port: 8080}}]\nendpoints: [{{addresses: [10.244.1.3], nodeName: {node}, conditions: {{ready: true}}}}]\n"
        )
    };
    let more: Vec<&str> = VIPS.into_iter().chain(["10.0.0.20"]).collect();
    let cluster = Cluster::new();
    let [first_node, second] = routers(&cluster, ["n1", "n2"]);
    cluster.apply(&local("n1"));
    first_node.until_learned(&more);
    cordon(&cluster, "n1");
    until_ready(&cluster, "n1", "True=DrainWaits");
    wait_until("it says for which", LIMIT, || message(&cluster, "n1").contains(": it is the last one for 10.0.0.20: no other "));
    stays("all its VIPs stay", Duration::from_secs(6), || first_node.tor.withdrawals() == 0);
    cluster.apply(&local("n2"));
    second.until_learned(&more);
    first_node.until_learned(&[]);
    until_ready(&cluster, "n1", "False=NodeDrained");
}

#[test]
fn an_api_server_that_is_away_neither_drains_a_node_nor_brings_it_back() {
    let cluster = Cluster::new();
    let [mut drained, serving] = routers(&cluster, ["n1", "n2"]);
    cordon(&cluster, "n1");
    drained.until_learned(&[]);
    until_ready(&cluster, "n1", "False=NodeDrained");

    drained.proxy.go_away();
    serving.proxy.go_away();
    uncordon(&cluster, "n1");
    cordon(&cluster, "n2");
    drained.kill();
    drained.start();
    wait_until("it goes on with what it knew before", LIMIT, || drained.said().contains("10.0.0.7") && drained.tor.sessions() == 2);
    assert!(drained.said().contains("drain: the Node is cordoned: "), "{}", drained.said());
    stays("nothing changes", Duration::from_secs(8), || drained.tor.learned().is_empty() && serving.tor.withdrawals() == 0);

    drained.proxy.come_back();
    drained.until_learned(&VIPS);
    serving.proxy.come_back();
    serving.until_learned(&[]);
}

#[test]
fn taints_drain_a_node_that_is_not_dedicated_and_one_that_is_not_ready_counts_for_nobody() {
    let cluster = Cluster::new();
    cluster.apply(OBJECTS);
    let [node, other] = ["n1", "n2"].map(|name| {
        let mut node = RouterNode::new(&cluster, name, NFTABLES);
        node.start();
        node.until_learned(&VIPS);
        until_ready(&cluster, name, "True=Serving");
        node
    });
    let not_ready = |name: &str, status: &str| {
        let patch = format!(r#"{{"status": {{"conditions": [{{"type": "Ready", "status": "{status}"}}]}}}}"#);
        cluster.server.kubectl(&["patch", "node", name, "--subresource=status", "--type=merge", "--patch", &patch], "");
    };
    cordon(&cluster, "n1");
    not_ready("n1", "False");
    not_ready("n2", "Unknown");
    stays("neither a cordon nor that it is not Ready takes its VIPs away", Duration::from_secs(3), || {
        node.tor.withdrawals() + other.tor.withdrawals() == 0
    });

    cluster.server.kubectl(&["taint", "node", "n1", "maintenance=disk:NoSchedule"], "");
    until_ready(&cluster, "n1", "True=DrainWaits");
    stays("the other one may be dead", Duration::from_secs(6), || node.tor.withdrawals() == 0);
    not_ready("n2", "True");
    node.until_learned(&[]);
    until_ready(&cluster, "n1", "False=NodeDrained");
    assert!(message(&cluster, "n1").starts_with("the Node has the taint maintenance=disk:NoSchedule: "), "{}", message(&cluster, "n1"));
    cluster.until_conditions("ericingress", "eric", ["True=Accepted", "True=Programmed", "True=Announced"]);

    // A Node that is gone says nothing; the one that joins again under its name does.
    cluster.server.kubectl(&["delete", "node", "n1"], "");
    stays("it stays drained", Duration::from_secs(3), || node.tor.learned().is_empty());
    cluster.apply("apiVersion: v1\nkind: Node\nmetadata: {name: n1}\n");
    node.until_learned(&VIPS);
}
