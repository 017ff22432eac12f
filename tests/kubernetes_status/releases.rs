// SPDX-License-Identifier: Apache-2.0
//! Two releases in one cluster: each writes on its own objects and leaves those of the other alone. And a Node that is excluded.

use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::cluster::{Cluster, LIMIT, NFTABLES, OBJECTS, RouterNode, stays};
use crate::common::{POLL, wait_until};

const SERVED: [&str; 3] = ["True=Accepted", "True=Programmed", "True=Announced"];

/// Who wrote the status of an object, by server-side apply.
fn writers(cluster: &Cluster, kind: &str, name: &str) -> Vec<String> {
    let object = cluster.get(kind, name);
    let entries = object["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
    let of_status = entries.iter().filter(|entry| entry["subresource"] == "status");
    of_status.map(|entry| entry["manager"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn two_releases_leave_each_other_alone_and_hand_over_what_changes_its_domain() {
    let cluster = Cluster::new();
    cluster.apply(OBJECTS);
    let mut ours = RouterNode::new(&cluster, "n1", NFTABLES);
    let mut theirs = RouterNode::new(&cluster, "n2", "dataplane: {type: nftables}\ninstance: other\ndomain: other");
    ours.start();
    theirs.start();
    let all = [("service", "web"), ("ericingress", "eric"), ("lvsingress", "lvs")];
    for (kind, name) in all {
        cluster.until_conditions(kind, name, SERVED);
        assert_eq!(writers(&cluster, kind, name), ["vipherald"]);
    }
    let began = Instant::now();
    wait_until("both have a Lease", LIMIT, || {
        let leases = cluster.try_kubectl(&["get", "lease", "--namespace=vip", "--output=name"]);
        leases == "lease.coordination.k8s.io/other\nlease.coordination.k8s.io/vipherald\n"
    });
    stays("the other one writes nothing on what is not its", Duration::from_secs(5), || theirs.statuses_written(began) == 0);

    for (kind, name) in all {
        cluster.server.kubectl(&["--namespace=enm", "label", kind, name, "vipherald.io/domain=other"], "");
    }
    theirs.until_learned(&["10.0.0.7", "10.0.0.8", "10.0.0.9"]);
    ours.until_learned(&[]);
    for (kind, name) in all {
        let deadline = Instant::now() + Duration::from_secs(20);
        while writers(&cluster, kind, name) != ["other"] {
            assert!(Instant::now() < deadline, "{name}: {:?} {}", cluster.get(kind, name), theirs.said());
            sleep(POLL);
        }
        cluster.until_conditions(kind, name, SERVED);
    }
    wait_until("the other one is named", LIMIT, || cluster.get("ericingress", "eric")["status"]["announcing"] == serde_json::json!(["n2"]));
    let moved = Instant::now();
    stays("nobody writes at rest", Duration::from_secs(5), || ours.statuses_written(moved) + theirs.statuses_written(moved) == 0);
}

#[test]
fn a_node_that_is_excluded_announces_nothing_until_it_no_longer_is() {
    const LABEL: &str = "node.kubernetes.io/exclude-from-external-load-balancers";
    let cluster = Cluster::new();
    cluster.apply(OBJECTS);
    let mut node = RouterNode::new(&cluster, "n1", NFTABLES);
    node.start();
    cluster.until_conditions("ericingress", "eric", SERVED);
    cluster.server.kubectl(&["label", "node", "n1", &format!("{LABEL}=")], "");
    node.until_learned(&[]);
    cluster.until_conditions("ericingress", "eric", ["True=Accepted", "False=NodeExcluded", "False=NodeExcluded"]);
    wait_until("its addresses are gone", LIMIT, || !node.namespace.ip("-4 address show dev lo").contains("10.0.0."));
    assert_eq!(node.tor.sessions(), 1, "the session stays up");
    cluster.server.kubectl(&["label", "node", "n1", &format!("{LABEL}-")], "");
    cluster.until_conditions("ericingress", "eric", SERVED);
    node.until_learned(&["10.0.0.7", "10.0.0.8", "10.0.0.9"]);
}
