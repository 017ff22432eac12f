// SPDX-License-Identifier: Apache-2.0
//! Who of several nodes writes what all share, and what each says of itself.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde_json::json;

use crate::api_proxy::{Requests, Verb};
use crate::cluster::{Cluster, LIMIT, NFTABLES, OBJECTS, RouterNode, controllers};
use crate::common::wait_until;

/// A record counts as given up after 15 seconds without a change, and is looked at every 5.
const TAKEOVER: Duration = Duration::from_secs(21);

const SERVED: [&str; 3] = ["True=Accepted", "True=Programmed", "True=Announced"];

/// Two nodes that run, and serve all.
fn two(cluster: &Cluster) -> [RouterNode; 2] {
    cluster.apply(OBJECTS);
    ["n1", "n2"].map(|name| {
        let mut node = RouterNode::new(cluster, name, NFTABLES);
        node.start();
        node.until_learned(&["10.0.0.7", "10.0.0.8", "10.0.0.9"]);
        node
    })
}

fn until_announcing(cluster: &Cluster, nodes: &[&str]) {
    wait_until(&format!("eric is announced by {nodes:?}"), LIMIT, || {
        cluster.get("ericingress", "eric")["status"]["announcing"] == json!(nodes)
    });
}

#[test]
fn only_the_holder_of_the_lease_writes_and_is_followed_by_another() {
    let cluster = Cluster::new();
    let began = Instant::now();
    let [mut first, mut second] = two(&cluster);
    until_announcing(&cluster, &["n1", "n2"]);
    cluster.until_conditions("ericingress", "eric", SERVED);
    assert_eq!(cluster.holder(), "n1", "it came first");
    assert_eq!(second.statuses_written(began), 0);
    assert!(first.statuses_written(began) > 0);

    first.kill();
    let killed = Instant::now();
    wait_until("the other one has the Lease", LIMIT, || cluster.holder() == "n2");
    assert!(killed.elapsed() < TAKEOVER, "{:?}", killed.elapsed());
    cluster.server.kubectl(&["--namespace=enm", "delete", "endpointslice", "web-1"], "");
    wait_until("it writes", LIMIT, || second.statuses_written(killed) > 0);
    second.until_learned(&[]);

    // One that comes again is not asked for; one that leaves in order gives it up.
    first.start();
    wait_until("it has come again", LIMIT, || first.asked(killed, &Requests::verb(Verb::Get).of("leases")) > 0);
    assert_eq!(cluster.holder(), "n2");
    second.daemon.as_ref().unwrap().signal(Signal::SIGTERM);
    let left = Instant::now();
    wait_until("the first one has it again", LIMIT, || cluster.holder() == "n1");
    assert!(left.elapsed() < TAKEOVER, "{:?}", left.elapsed());
    second.daemon.take().unwrap().wait(LIMIT);
}

#[test]
fn each_node_has_a_router_node_that_goes_with_it() {
    let cluster = Cluster::new();
    let _controllers = controllers(&cluster);
    let [_first, second] = two(&cluster);
    until_announcing(&cluster, &["n1", "n2"]);
    let uid = |kind: &str, name: &str| cluster.get(kind, name)["metadata"]["uid"].clone();
    for node in ["n1", "n2"] {
        let name = format!("vipherald-{node}");
        wait_until(&format!("{name} says that all is well"), LIMIT, || {
            let status = cluster.get("routernode", &name)["status"].clone();
            let conditions = status["conditions"].as_array().into_iter().flatten();
            conditions.filter(|condition| condition["status"] == "True").count() == 6 && status["announcedCount"] == 3
        });
        let object = cluster.get("routernode", &name);
        assert_eq!(object["metadata"]["ownerReferences"][0]["uid"], uid("node", node), "{object}");
        assert_eq!(object["status"]["peers"][0]["established"], true);
        assert_eq!(object["status"]["vips"].as_array().unwrap().len(), 1, "VIPs of which the same is to be said are one entry: {object}");
    }
    let before = uid("routernode", "vipherald-n2");
    cluster.server.kubectl(&["delete", "node", "n2"], "");
    until_announcing(&cluster, &["n1"]);
    wait_until("its RouterNode is gone", LIMIT, || uid("routernode", "vipherald-n2") != before);

    cluster.apply("apiVersion: v1\nkind: Node\nmetadata: {name: n2}\n");
    until_announcing(&cluster, &["n1", "n2"]);
    let again = cluster.get("routernode", "vipherald-n2");
    assert_eq!(again["metadata"]["ownerReferences"][0]["uid"], uid("node", "n2"), "the Node that came again owns it anew");
    second.until_learned(&["10.0.0.7", "10.0.0.8", "10.0.0.9"]);
}
