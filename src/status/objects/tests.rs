// SPDX-License-Identifier: Apache-2.0
//! One table: objects, what the nodes report, and what is said.

use super::*;
use crate::api::{RouterNodeStatus, VipGroup};
use crate::config::Config;
use crate::desired::allocation::{Records, allocate};
use crate::desired::compile;
use crate::desired::tests::config;
use crate::source::dir::snapshot_of;

fn service(name: &str, spec: &str) -> String {
    format!("---\napiVersion: v1\nkind: Service\nmetadata: {{name: {name}, uid: u1}}\nspec: {{ports: [{{port: 80}}], {spec}}}\n")
}

fn eric(name: &str, vip: &str) -> String {
    format!(
        "---\napiVersion: routing.ericingress.ericsson.com/v1alpha1\nkind: EricIngress\nmetadata: {{name: {name}, generation: 3}}\nspec:\n  \
         virtualServiceIP: {vip}\n  backends:\n    name: web\n    config: [{{portRange: {{vipPortRange: {{start: 80, end: 80}}, svcPortRange: {{start: 80, \
         end: 80}}}}}}]\n"
    )
}

fn group(state: &str, programmed: &str, reason: &str, vips: &[&str]) -> VipGroup {
    VipGroup {
        state: state.into(),
        programmed: programmed.into(),
        reason: reason.into(),
        message: format!("as {reason}"),
        peers: if state == "Announced" { vec!["rr1".into()] } else { Vec::new() },
        addresses: vips.iter().map(|vip| vip.parse().unwrap()).collect(),
    }
}

fn announced(vips: &[&str]) -> VipGroup {
    group("Announced", "True", "Served", vips)
}

/// What these nodes report; one without groups is not heard.
fn reports(nodes: &[(&str, Option<Vec<VipGroup>>)]) -> Reports {
    let node = |(name, vips): &(&str, Option<Vec<VipGroup>>)| {
        ((*name).to_owned(), vips.clone().map(|vips| RouterNodeStatus { vips, ..RouterNodeStatus::default() }))
    };
    Reports::new(nodes.iter().map(node).collect())
}

fn statuses(config: &Config, manifests: &[String], reports: &Reports) -> BTreeMap<ObjectRef, ObjectStatus> {
    let snapshot = snapshot_of(&manifests.concat());
    let compiled = compile(&snapshot, config);
    let assignments = allocate(&snapshot, config, &compiled, &Records::new());
    object_statuses(&Facts { snapshot: &snapshot, scope: &config.scope, compiled: &compiled, assignments: &assignments, reports })
}

/// `Kind=status reason: message` of each condition of the first object of this name.
fn said(statuses: &BTreeMap<ObjectRef, ObjectStatus>, name: &str) -> Vec<String> {
    let (_, status) = statuses.iter().find(|(object, _)| object.name == name).unwrap();
    let verdict = |verdict: &Verdict| format!("{}={} {}: {}", verdict.kind, verdict.status.as_str(), verdict.reason, verdict.message);
    status.verdicts.iter().map(verdict).collect()
}

#[track_caller]
fn assert_says(config: &Config, manifests: &[String], reports: &Reports, name: &str, expected: &[&str]) {
    assert_eq!(said(&statuses(config, manifests, reports), name), expected);
}

#[test]
fn a_vip_that_all_nodes_announce() {
    let nodes = reports(&[("n1", Some(vec![announced(&["10.0.0.7"])])), ("n2", Some(vec![announced(&["10.0.0.7"])]))]);
    let manifests = [service("web", "externalIPs: [10.0.0.7]")];
    let expected = [
        "Accepted=True Accepted: VIP 10.0.0.7",
        "Programmed=True Programmed: 10.0.0.7: on n1, n2 (2 of 2 nodes)",
        "Advertised=True Announced: 10.0.0.7: announced by n1, n2 (2 of 2 nodes)",
    ];
    assert_says(&config(), &manifests, &nodes, "web", &expected);
    let status = statuses(&config(), &manifests, &nodes).into_values().next().unwrap();
    assert_eq!((status.uid.as_deref(), status.generation, status.addresses), (Some("u1"), None, None));
    assert_eq!(status.announcing.into_iter().collect::<Vec<_>>(), ["n1", "n2"]);
}

/// Where virtual routers have VIPs, the node that has one is named.
#[test]
fn a_vip_of_a_virtual_router_is_where_it_is_active() {
    let says = |reason| Some(vec![group("Announced", "True", reason, &["10.0.0.7"])]);
    let manifests = [service("web", "externalIPs: [10.0.0.7]")];
    let programmed = "Programmed=True Programmed: 10.0.0.7: on n1, n2 (2 of 2 nodes)";
    let nodes = reports(&[("n1", says("Backup")), ("n2", says("Active"))]);
    let expected =
        ["Accepted=True Accepted: VIP 10.0.0.7", programmed, "Advertised=True Announced: 10.0.0.7: announced by n2 (1 of 2 nodes)"];
    assert_says(&config(), &manifests, &nodes, "web", &expected);
    let announcing: Vec<Vec<String>> =
        statuses(&config(), &manifests, &nodes).values().map(|status| status.announcing.iter().cloned().collect()).collect();
    assert_eq!(announcing, [["n2"]]);
    let elsewhere = reports(&[("n1", says("Backup")), ("n2", says("Backup"))]);
    let expected = ["Accepted=True Accepted: VIP 10.0.0.7", programmed, "Advertised=True Announced: 10.0.0.7: as Backup"];
    assert_says(&config(), &manifests, &elsewhere, "web", &expected);
}

#[test]
fn one_node_is_enough_and_the_others_are_told() {
    let nodes = reports(&[
        ("n1", Some(vec![announced(&["10.0.0.7"])])),
        ("n2", Some(vec![group("Withheld", "False", "NoLocalEndpoints", &["10.0.0.7"])])),
        ("n3", Some(vec![group("Withheld", "False", "NoLocalEndpoints", &["10.0.0.7"])])),
        ("n4", Some(Vec::new())),
        ("n5", None),
    ]);
    let expected = [
        "Accepted=True Accepted: VIP 10.0.0.7",
        "Programmed=True ProgrammedOnSome: 10.0.0.7: on n1 (1 of 5 nodes); n2, n3: NoLocalEndpoints, as NoLocalEndpoints; n5 is not Ready, and not counted",
        "Advertised=True AnnouncedBySome: 10.0.0.7: announced by n1 (1 of 5 nodes); n2, n3: NoLocalEndpoints, as NoLocalEndpoints; n5 is not Ready, and not counted",
    ];
    assert_says(&config(), &[service("web", "externalIPs: [10.0.0.7]")], &nodes, "web", &expected);
}

/// A node and what it reports, if it is heard.
type Node = (&'static str, Option<Vec<VipGroup>>);

#[test]
fn what_no_node_does_is_false_and_what_none_has_said_is_unknown() {
    let manifests = [service("web", "externalIPs: [10.0.0.7]")];
    let cases: [(&[Node], &str, &str); 4] = [
        (&[], "Unknown NotReported: 10.0.0.7: there is no router node", "Unknown NotReported: 10.0.0.7: there is no router node"),
        (
            &[("n1", None)],
            "Unknown NotReported: 10.0.0.7: no router node can be asked: n1 is not Ready",
            "Unknown NotReported: 10.0.0.7: no router node can be asked: n1 is not Ready",
        ),
        (
            &[("n1", Some(Vec::new()))],
            "Unknown NotReported: 10.0.0.7: n1 has not reported it yet",
            "Unknown NotReported: 10.0.0.7: n1 has not reported it yet",
        ),
        (
            &[("n1", Some(vec![group("Withheld", "False", "NoEndpoints", &["10.0.0.7"])]))],
            "False NoEndpoints: 10.0.0.7: on no node; n1: NoEndpoints, as NoEndpoints",
            "False NoEndpoints: 10.0.0.7: announced by no node; n1: NoEndpoints, as NoEndpoints",
        ),
    ];
    for (nodes, programmed, advertised) in cases {
        let expected =
            ["Accepted=True Accepted: VIP 10.0.0.7".to_owned(), format!("Programmed={programmed}"), format!("Advertised={advertised}")];
        assert_eq!(said(&statuses(&config(), &manifests, &reports(nodes)), "web"), expected);
    }
}

#[test]
fn where_kube_proxy_balances_nobody_can_see_it() {
    let nodes = reports(&[("n1", Some(vec![group("Announced", "Unknown", "Served", &["10.0.0.7"])]))]);
    let expected = [
        "Accepted=True Accepted: VIP 10.0.0.7",
        "Programmed=Unknown BalancedElsewhere: 10.0.0.7: in place; kube-proxy, or another program, balances it",
        "Advertised=True Announced: 10.0.0.7: announced by n1 (1 of 1 nodes)",
    ];
    assert_says(&config(), &[service("web", "externalIPs: [10.0.0.7]")], &nodes, "web", &expected);
}

#[test]
fn of_several_vips_the_worst_counts() {
    let nodes = reports(&[("n1", Some(vec![announced(&["10.0.0.7"]), group("Pending", "False", "StepFailed", &["10.0.0.8"])]))]);
    let expected = [
        "Accepted=True Accepted: VIP 10.0.0.7, 10.0.0.8",
        "Programmed=False StepFailed: 10.0.0.8: on no node; n1: StepFailed, as StepFailed; 10.0.0.7: on n1 (1 of 1 nodes)",
        "Advertised=False StepFailed: 10.0.0.8: announced by no node; n1: StepFailed, as StepFailed; 10.0.0.7: announced by n1 (1 of 1 nodes)",
    ];
    assert_says(&config(), &[service("web", "externalIPs: [10.0.0.7, 10.0.0.8]")], &nodes, "web", &expected);
}

#[test]
fn refusals_say_what_to_mend() {
    let nodes = reports(&[("n1", Some(vec![announced(&["10.0.0.7"])]))]);
    // Without times of creation the name decides.
    let manifests = [service("a", "externalIPs: [10.0.0.7, 127.0.0.1]"), eric("mscm", "10.0.0.7").replace("web", "a")];
    assert_eq!(
        said(&statuses(&config(), &manifests, &nodes), "a")[0],
        "Accepted=False ReservedAddress: VIP 10.0.0.7; spec.externalIPs[1]: 127.0.0.1 is a loopback address"
    );
    let expected = [
        "Accepted=False Conflict: it has no VIP; spec.virtualServiceIP: 80/tcp of 10.0.0.7 belongs to Service default/a, which comes first by namespace and name",
        "Programmed=False NotAccepted: it has no VIP; see Accepted",
        "Advertised=False NotAccepted: it has no VIP; see Accepted",
    ];
    assert_eq!(said(&statuses(&config(), &manifests, &nodes), "mscm"), expected);
    let alone = [eric("mscm", "10.0.0.7")];
    assert_eq!(
        said(&statuses(&config(), &alone, &nodes), "mscm")[0],
        "Accepted=False ServiceNotFound: VIP 10.0.0.7; spec.backends.name: there is no Service default/web"
    );
    assert_eq!(statuses(&config(), &alone, &nodes).into_values().next().unwrap().generation, Some(3));
}

#[test]
fn what_is_not_honoured_is_named_and_the_rest_is_in_force() {
    let nodes = reports(&[]);
    let manifest = service("web", "externalIPs: [10.0.0.7], loadBalancerSourceRanges: [10.0.0.0/8]");
    let accepted = said(&statuses(&config(), &[manifest], &nodes), "web").remove(0);
    assert!(
        accepted.starts_with("Accepted=True PartlyHonoured: VIP 10.0.0.7; spec.loadBalancerSourceRanges: \"10.0.0.0/8\" is not honoured: "),
        "{accepted}"
    );
}

#[test]
fn load_balancers_are_told_what_they_get() {
    let balancer = |name: &str, more: &str| service(name, &format!("type: LoadBalancer, loadBalancerClass: vipherald.io/vip, {more}"));
    let nodes = reports(&[]);
    let mut config = config();
    let pooled = balancer("web", "ipFamilies: [IPv4]");
    let accepted = |config: &Config, manifest: &String| said(&statuses(config, std::slice::from_ref(manifest), &nodes), "web").remove(0);
    assert_eq!(
        accepted(&config, &pooled),
        "Accepted=False NoPool: it has no VIP; there is no pool in vips.pools; configure one, or ask for an address by the annotation vipherald.io/ips"
    );
    config.vips.pools = vec![crate::config::Pool { name: "a".into(), prefixes: vec![crate::api::parse_prefix("10.0.0.0/24").unwrap()] }];
    assert_eq!(accepted(&config, &pooled), "Accepted=True Accepted: VIP 10.0.0.0", "as soon as it is given");
    let both = balancer("web", "ipFamilies: [IPv4, IPv6], ipFamilyPolicy: RequireDualStack");
    let lacks = "VIP 10.0.0.0; no pool of vips.pools has IPv6 addresses that vips.allow lets namespace default have";
    assert_eq!(accepted(&config, &both), format!("Accepted=False NoPool: {lacks}"));
    assert_eq!(accepted(&config, &both.replace("Require", "Prefer")), format!("Accepted=True PartlyHonoured: {lacks}"));
    let status = statuses(&config, &[pooled, service("other", "type: LoadBalancer")], &nodes);
    assert_eq!(status.len(), 1, "no other class");
    assert_eq!(status.into_values().next().unwrap().addresses, Some(vec!["10.0.0.0".parse().unwrap()]));
}

#[test]
fn a_node_is_heard_while_it_is_there_and_ready() {
    let node = |status: &str| {
        snapshot_of(&format!("---\napiVersion: v1\nkind: Node\nmetadata: {{name: n1}}\n{status}")).nodes.into_values().next()
    };
    assert!(!is_heard(None));
    assert!(is_heard(node("").as_deref()));
    for (word, heard) in [("True", true), ("False", false), ("Unknown", false)] {
        assert_eq!(is_heard(node(&format!("status: {{conditions: [{{type: Ready, status: '{word}'}}]}}\n")).as_deref()), heard);
    }
}

#[test]
fn an_object_whose_last_good_content_is_in_force_is_not_accepted_as_it_is() {
    let mut last_good = crate::desired::LastGood::default();
    let mut compile = |vip: &str| {
        let snapshot = snapshot_of(&[service("web", "clusterIP: None"), eric("e", vip)].concat());
        let compiled = last_good.compile(&snapshot, &config());
        (snapshot, compiled)
    };
    drop(compile("10.0.0.7"));
    let (snapshot, compiled) = compile("127.0.0.9");
    let reports = reports(&[("n1", Some(vec![announced(&["10.0.0.7"])]))]);
    let assignments = BTreeMap::new();
    let facts = Facts { snapshot: &snapshot, scope: &config().scope, compiled: &compiled, assignments: &assignments, reports: &reports };
    let expected = [
        "Accepted=False ReservedAddress: VIP 10.0.0.7; spec.virtualServiceIP: 127.0.0.9 is a loopback address; its last good content, generation 3, stays in \
         force instead",
        "Programmed=True Programmed: 10.0.0.7: on n1 (1 of 1 nodes)",
        "Advertised=True Announced: 10.0.0.7: announced by n1 (1 of 1 nodes)",
    ];
    assert_eq!(said(&object_statuses(&facts), "e"), expected);
}
