// SPDX-License-Identifier: Apache-2.0
//! Which endpoints get new connections, for every combination of conditions, traffic policy and place.
//!
//! [`TABLE`] is written from Kubernetes' rules, not from ours: `externalTrafficPolicy` chooses the candidates, all endpoints or those of the node; of them the
//! ready ones are used and, only where no candidate is ready, those that are serving while they terminate (KEP-1669, KEP-1672). An endpoint is of one
//! of three classes: it is ready; it is serving and terminating, and not ready; or neither, and never used.

use std::net::SocketAddr;

use super::*;

/// Ready, serving, terminating: all that there are of each class. `publishNotReadyAddresses` gives what is ready and not serving, or terminating.
const READY_ONES: &[[bool; 3]] = &[[true, true, false], [true, true, true], [true, false, false], [true, false, true]];
const LEAVING_ONES: &[[bool; 3]] = &[[false, true, true]];
const DEAD_ONES: &[[bool; 3]] = &[[false, true, false], [false, false, false], [false, false, true]];

/// The policy, the endpoint on this node, the one on another node, and who gets new connections.
const TABLE: &str = "
    policy   here     there    used
    Cluster  ready    ready    both
    Cluster  ready    leaving  here
    Cluster  ready    dead     here
    Cluster  ready    none     here
    Cluster  leaving  ready    there
    Cluster  leaving  leaving  both
    Cluster  leaving  dead     here
    Cluster  leaving  none     here
    Cluster  dead     ready    there
    Cluster  dead     leaving  there
    Cluster  dead     dead     NoEndpoints
    Cluster  dead     none     NoEndpoints
    Cluster  none     ready    there
    Cluster  none     leaving  there
    Cluster  none     dead     NoEndpoints
    Cluster  none     none     NoEndpoints
    Local    ready    ready    here
    Local    ready    leaving  here
    Local    ready    dead     here
    Local    ready    none     here
    Local    leaving  ready    here
    Local    leaving  leaving  here
    Local    leaving  dead     here
    Local    leaving  none     here
    Local    dead     ready    NoLocalEndpoints
    Local    dead     leaving  NoLocalEndpoints
    Local    dead     dead     NoEndpoints
    Local    dead     none     NoEndpoints
    Local    none     ready    NoLocalEndpoints
    Local    none     leaving  NoLocalEndpoints
    Local    none     dead     NoEndpoints
    Local    none     none     NoEndpoints
";

const HERE: &str = "10.233.1.1";
const THERE: &str = "10.233.2.1";

/// All conditions of a class; one endpoint that is not there is none.
fn members(class: &str) -> Vec<Option<[bool; 3]>> {
    match class {
        "ready" => READY_ONES.iter().copied().map(Some).collect(),
        "leaving" => LEAVING_ONES.iter().copied().map(Some).collect(),
        "dead" => DEAD_ONES.iter().copied().map(Some).collect(),
        "none" => vec![None],
        other => panic!("{other} is no class"),
    }
}

/// The intent, and the real servers with whether they get new connections.
fn found(policy: &str, here: Option<[bool; 3]>, there: Option<[bool; 3]>) -> (VipIntent, Vec<(SocketAddr, bool)>) {
    let endpoint = |conditions: Option<[bool; 3]>, address: &str, node: &str| {
        conditions.map(|[ready, serving, terminating]| {
            format!(
                "{{addresses: [{address}], nodeName: {node}, conditions: {{ready: {ready}, serving: {serving}, terminating: {terminating}}}}}"
            )
        })
    };
    let endpoints: Vec<String> = [endpoint(here, HERE, "node1"), endpoint(there, THERE, "node2")].into_iter().flatten().collect();
    let manifests = service("a", "10.0.0.7", &format!("externalTrafficPolicy: {policy}")) + &slice("a", "IPv4", &endpoints.join(", "));
    let balancing = Config { dataplane: Dataplane { kind: DataplaneType::Nftables, ..config().dataplane }, ..config() };
    let desired = compile(&snapshot_of(&manifests), &balancing).desired;
    let intent = desired.vips.into_values().map(|vip| vip.intent).next().unwrap();
    let services = desired.balancing.unwrap().services;
    let servers = services.into_values().flat_map(|service| service.real_servers);
    (intent, servers.map(|(server, weight)| (server, !weight.is_quiesced())).collect())
}

#[test]
fn each_combination_of_conditions_policy_and_place_is_used_as_kubernetes_has_it() {
    let mut tried = 0;
    for row in TABLE.lines().skip(2).filter(|row| !row.trim().is_empty()) {
        let [policy, here_class, there_class, used]: [&str; 4] = row.split_whitespace().collect::<Vec<_>>().try_into().unwrap();
        for here in members(here_class) {
            for there in members(there_class) {
                tried += 1;
                let (intent, servers) = found(policy, here, there);
                let withheld = match used {
                    "NoEndpoints" => Some(WithholdReason::NoEndpoints),
                    "NoLocalEndpoints" => Some(WithholdReason::NoLocalEndpoints),
                    _ => None,
                };
                let expected = withheld.map_or(VipIntent::Serve { without_endpoints: false }, VipIntent::Withhold);
                assert_eq!(intent, expected, "{row}: {here:?} {there:?}");
                let gets_new = |address: &str| servers.contains(&(format!("{address}:8080").parse().unwrap(), true));
                let expected = [matches!(used, "here" | "both"), matches!(used, "there" | "both")];
                assert_eq!([gets_new(HERE), gets_new(THERE)], expected, "{row}: {here:?} {there:?}: {servers:?}");
                // Connections that are there go on where the policy has them: such a server has weight 0.
                let candidates = usize::from(here.is_some()) + usize::from(there.is_some() && policy == "Cluster");
                assert!(withheld.is_some() || servers.len() == candidates, "{row}: {servers:?}");
            }
        }
    }
    assert_eq!(tried, 2 * 9 * 9, "each of eight, or none, here and there, with two policies");
}
