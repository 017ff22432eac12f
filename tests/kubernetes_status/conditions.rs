// SPDX-License-Identifier: Apache-2.0
//! What is said on objects, once, and nothing at rest.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::api_proxy::{Requests, Verb};
use crate::cluster::{Cluster, LIMIT, NFTABLES, OBJECTS, RouterNode, stays};
use crate::common::wait_until;

const SERVED: [&str; 3] = ["True=Accepted", "True=Programmed", "True=Announced"];
const ALL: [(&str, &str); 3] = [("service", "web"), ("ericingress", "eric"), ("lvsingress", "lvs")];

/// Waits until the node has written nothing for a while.
fn until_at_rest(node: &RouterNode) {
    let quiet = Duration::from_secs(5);
    let mut since = Instant::now();
    wait_until("nothing more is written", LIMIT, || {
        if let Some(last) = node.written(since).last() {
            since = last.at + Duration::from_nanos(1);
        }
        since.elapsed() > quiet
    });
}

#[test]
fn objects_say_that_they_are_served_by_whom_and_nothing_twice() {
    let cluster = Cluster::new();
    cluster.apply(OBJECTS);
    let mut node = RouterNode::new(&cluster, "n1", NFTABLES);
    node.start();
    for (kind, name) in ALL {
        cluster.until_conditions(kind, name, SERVED);
        let object = cluster.get(kind, name);
        for condition in object["status"]["conditions"].as_array().unwrap() {
            // Neither has one where the server does not count the generations of a kind.
            assert_eq!(condition["observedGeneration"], object["metadata"]["generation"], "{condition}");
            assert!(condition["message"].as_str().unwrap().contains("10.0.0."), "{condition}");
        }
    }
    let eric = cluster.get("ericingress", "eric");
    let message = |index: usize| eric["status"]["conditions"][index]["message"].as_str().unwrap();
    assert_eq!([message(0), message(2)], ["VIP 10.0.0.8", "10.0.0.8: announced by n1 (1 of 1 nodes)"], "{}", eric["status"]);
    assert_eq!(eric["status"]["announcing"], json!(["n1"]));
    let lvs = cluster.get("lvsingress", "lvs");
    assert_eq!((&lvs["status"]["changeId"], &lvs["status"]["observedGeneration"]), (&json!(1), &json!(1)));
    node.until_learned(&["10.0.0.7", "10.0.0.8", "10.0.0.9"]);

    until_at_rest(&node);
    let events = cluster.events("eric");
    for event in ["Accepted Accepted", "Programmed Programmed", "Advertised Announced"] {
        assert!(events.iter().any(|told| told == event), "{events:?}");
    }
    let versions = || ALL.map(|(kind, name)| cluster.get(kind, name)["metadata"]["resourceVersion"].clone());
    let (since, before) = (Instant::now(), versions());
    // What changes nothing of what is said.
    cluster.apply("apiVersion: v1\nkind: Service\nmetadata: {name: other, namespace: enm}\nspec: {ports: [{port: 80}]}\n");
    cluster.server.kubectl(&["label", "node", "n1", "a=b"], "");
    stays("nothing is written at rest", Duration::from_secs(8), || node.written(since).is_empty());
    assert_eq!(versions(), before);

    // One change: one write each, and one Event of each condition that changed.
    cluster.server.kubectl(&["--namespace=enm", "delete", "endpointslice", "web-1"], "");
    cluster.until_conditions("ericingress", "eric", ["True=Accepted", "False=NoEndpoints", "False=NoEndpoints"]);
    cluster.until_conditions("service", "web", ["True=Accepted", "False=NoEndpoints", "False=NoEndpoints"]);
    wait_until("the change is told", LIMIT, || cluster.events("eric").iter().filter(|event| event.ends_with(" NoEndpoints")).count() == 2);
    until_at_rest(&node);
    assert_eq!(cluster.events("eric").iter().filter(|event| event.ends_with(" NoEndpoints")).count(), 2);
}

/// What is refused, each in its own way.
const REFUSED: &str = r#"
apiVersion: v1
kind: Service
metadata: {name: foreign, namespace: enm}
spec: {externalIPs: [192.0.2.7], ports: [{port: 80}]}
---
apiVersion: routing.ericingress.ericsson.com/v1alpha1
kind: EricIngress
metadata: {name: orphan, namespace: enm}
spec:
  virtualServiceIP: 10.0.0.20
  backends: {name: missing, config: [{portRange: {vipPortRange: {start: 80, end: 80}, svcPortRange: {start: 80, end: 80}}}]}
---
apiVersion: v1
kind: Service
metadata: {name: near, namespace: enm}
spec: {externalIPs: [10.0.0.21], trafficDistribution: PreferClose, ports: [{port: 80}]}
"#;

#[test]
fn what_is_refused_says_why_and_what_is_no_longer_ours_says_nothing() {
    let cluster = Cluster::new();
    cluster.apply(OBJECTS);
    let mut node = RouterNode::new(&cluster, "n1", NFTABLES);
    node.start();
    cluster.until_conditions("service", "web", SERVED);
    // Younger by at least a second, which is what counts.
    std::thread::sleep(Duration::from_millis(1100));
    cluster.apply(REFUSED);
    cluster.apply(
        "apiVersion: v1\nkind: Service\nmetadata: {name: twin, namespace: enm}\nspec: {externalIPs: [10.0.0.7], ports: [{port: 80}]}\n",
    );
    let accepted = |kind: &str, name: &str, expected: &str, words: &str| {
        wait_until(&format!("{name} is {expected}: {:?}", cluster.conditions(kind, name)), LIMIT, || {
            cluster.conditions(kind, name).get("Accepted").is_some_and(|said| said == expected)
        });
        let object = cluster.get(kind, name);
        let message = object["status"]["conditions"][0]["message"].as_str().unwrap();
        assert!(message.contains(words), "{name}: {message}");
    };
    accepted("service", "foreign", "False=NotAllowed", "192.0.2.7");
    accepted("service", "twin", "False=Conflict", "belongs to Service enm/web, which is older");
    accepted("ericingress", "orphan", "False=ServiceNotFound", "there is no Service enm/missing");
    accepted("service", "near", "True=PartlyHonoured", "spec.trafficDistribution: \"PreferClose\" is not honoured");

    let patch = r#"{"spec": {"virtualServiceIP": "192.0.2.9"}}"#;
    cluster.server.kubectl(&["--namespace=enm", "patch", "lvsingress", "lvs", "--type=merge", "--patch", patch], "");
    accepted("lvsingress", "lvs", "False=NotAllowed", "192.0.2.9");
    let status = cluster.get("lvsingress", "lvs")["status"].clone();
    assert_eq!((&status["changeId"], &status["observedGeneration"]), (&json!(1), &json!(2)), "the generation in force stays");

    cluster
        .server
        .kubectl(&["--namespace=enm", "patch", "service", "web", "--type=merge", "--patch", r#"{"spec": {"externalIPs": null}}"#], "");
    wait_until("the Service has no condition of ours", LIMIT, || cluster.conditions("service", "web").is_empty());
    cluster.until_conditions("service", "twin", ["True=Accepted", "False=NoEndpoints", "False=NoEndpoints"]);
}

/// Definitions may be older than the daemon, where somebody else installs them.
#[test]
fn a_definition_of_an_older_version_holds_up_nothing_else_and_is_told_until_it_is_upgraded() {
    const UNSERVED: [&str; 3] = ["True=Accepted", "False=NoEndpoints", "False=NoEndpoints"];
    let cluster = Cluster::new();
    cluster.apply(OBJECTS);
    let mut node = RouterNode::new(&cluster, "n1", NFTABLES);
    node.start();
    for (kind, name) in ALL {
        cluster.until_conditions(kind, name, SERVED);
    }
    cluster.take_announcing("ericingress", "eric");
    node.kill();
    let began = Instant::now();
    node.start();
    node.until_learned(&["10.0.0.7", "10.0.0.8", "10.0.0.9"]);
    cluster.server.kubectl(&["--namespace=enm", "delete", "endpointslice", "web-1"], "");
    for (kind, name) in [ALL[0], ALL[2]] {
        cluster.until_conditions(kind, name, UNSERVED);
    }
    wait_until("it is told, with the remedy", LIMIT, || {
        let said = node.said();
        said.contains(".status.announcing: field not declared in schema") && said.contains("'vipherald crds apply'")
    });
    stays("the daemon runs", Duration::from_secs(8), || node.daemon.as_ref().unwrap().is_running());
    let tries = node.asked(began, &Requests::verb(Verb::Patch).of("ericingresses/status"));
    assert!(u64::try_from(tries).unwrap() <= 1 + began.elapsed().as_secs() / 60, "{tries} times in {:?}", began.elapsed());

    cluster.apply_definitions();
    cluster.until_conditions("ericingress", "eric", UNSERVED);
    wait_until("nothing is wrong any more", LIMIT, || !node.said().contains("status: "));
}
