// SPDX-License-Identifier: Apache-2.0
//! An API server that cannot be written to changes nothing on the node; what cannot be written is told there, and is written when it can be.

use std::time::{Duration, Instant};

use crate::api_proxy::{Fault, Requests, Verb};
use crate::cluster::{Cluster, LIMIT, NFTABLES, OBJECTS, RouterNode, stays};
use crate::common::wait_until;

const VIPS: [&str; 3] = ["10.0.0.7", "10.0.0.8", "10.0.0.9"];
const SERVED: [&str; 3] = ["True=Accepted", "True=Programmed", "True=Announced"];
const UNSERVED: [&str; 3] = ["True=Accepted", "False=NoEndpoints", "False=NoEndpoints"];

fn serving(cluster: &Cluster) -> RouterNode {
    cluster.apply(OBJECTS);
    let mut node = RouterNode::new(cluster, "n1", NFTABLES);
    node.start();
    cluster.until_conditions("ericingress", "eric", SERVED);
    node
}

/// Longer than the holder of the Lease may go on without a renewal; an hour where `VIPHERALD_SOAK` is set.
fn outage() -> Duration {
    Duration::from_secs(if std::env::var_os("VIPHERALD_SOAK").is_some() { 3600 } else { 12 })
}

#[test]
fn an_api_server_that_is_away_leaves_the_dataplane_alone() {
    let cluster = Cluster::new();
    let node = serving(&cluster);
    node.until_learned(&VIPS);
    let updates = node.tor.updates();
    node.proxy.go_away();
    stays("all VIPs are announced, and none was told again", outage(), || node.tor.updates() == updates && node.tor.withdrawals() == 0);
    let said = node.said();
    assert!(said.contains("status: cannot") && said.contains("source: Stale for "), "{said}");
    node.until_learned(&VIPS);
    node.proxy.come_back();
    wait_until("it is followed again", Duration::from_secs(5), || !node.said().contains("source: "));
    cluster.server.kubectl(&["--namespace=enm", "delete", "endpointslice", "web-1"], "");
    cluster.until_conditions("ericingress", "eric", UNSERVED);
    wait_until("nothing is wrong any more", LIMIT, || !node.said().contains("status: "));
}

#[test]
fn what_is_refused_is_tried_again_ever_more_rarely_and_told() {
    let cluster = Cluster::new();
    let node = serving(&cluster);
    let faults = [
        (Fault::Status(409), None),
        (Fault::Status(500), Some("answers 500")),
        (Fault::TooManyRequests { retry_after: 3 }, Some("answers 429")),
        (Fault::Status(403), Some("may not patch ericingresses/status.routing.ericingress.ericsson.com")),
    ];
    for (index, (fault, told)) in faults.into_iter().enumerate() {
        let patches = Requests::verb(Verb::Patch).of("ericingresses/status");
        node.proxy.fault(patches.clone(), fault.clone());
        let began = Instant::now();
        let (slice, expected) = if index % 2 == 0 { ("delete", UNSERVED) } else { ("apply", SERVED) };
        match slice {
            "delete" => drop(cluster.server.kubectl(&["--namespace=enm", "delete", "endpointslice", "web-1"], "")),
            _ => cluster.apply(OBJECTS),
        }
        wait_until(&format!("{fault:?} is met"), LIMIT, || node.asked(began, &patches) > 0);
        if let Some(told) = told {
            wait_until(&format!("{told} is told"), LIMIT, || node.said().contains(told));
        }
        stays("the daemon runs", Duration::from_secs(10), || node.daemon.as_ref().unwrap().is_running());
        let tries = node.asked(began, &patches);
        assert!((1..=8).contains(&tries), "{fault:?}: {tries} times in {:?}", began.elapsed());
        if told.is_some_and(|told| told.starts_with("may not")) {
            // All else is written.
            cluster.until_conditions("lvsingress", "lvs", expected);
        }
        node.proxy.heal();
        cluster.until_conditions("ericingress", "eric", expected);
        wait_until("nothing is wrong any more", LIMIT, || !node.said().contains("status: "));
    }
}
