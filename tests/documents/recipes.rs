// SPDX-License-Identifier: Apache-2.0
//! Examples of docs/client-address.md: objects and configuration give what the page says.

use std::path::Path;

use vipherald::config::{Environment, load};
use vipherald::desired::{Compiled, compile};
use vipherald::source::dir::follow;

use super::ROOT;

fn compiled(configuration: &str) -> Compiled {
    let environment: Environment = [("NODE_NAME".to_owned(), "node-01-002".to_owned())].into();
    let config = load(&Path::new(ROOT).join("examples/config").join(configuration), &environment).unwrap();
    let (snapshots, _follower) = follow(Path::new(ROOT).join("examples/client-address"), None).unwrap();
    let snapshot = snapshots.borrow().clone().unwrap();
    compile(&snapshot, &config)
}

/// Which ports show their clients to all endpoints, as `VIP:PORT`.
fn shown(compiled: &Compiled) -> Vec<String> {
    let services = &compiled.desired.balancing.as_ref().unwrap().services;
    let shows = services.iter().filter(|(_, service)| service.filter.preserves_client && !service.real_servers.is_empty());
    shows.map(|(key, _)| key.to_string()).collect()
}

/// The node has no endpoint: with `localPolicy: endpointNodes` it would not announce the collector.
#[test]
fn endpoints_of_the_examples_see_their_clients() {
    let compiled = compiled("client-address.yaml");
    assert_eq!(compiled.rejections, []);
    let all = ["UDP 10.0.0.20:162", "UDP 10.0.0.20:514", "TCP 10.0.0.21:179", "TCP 10.0.0.21:11019"];
    assert_eq!(shown(&compiled), all);
}

#[test]
fn a_configuration_without_the_policy_serves_the_collector_on_its_own_node_only() {
    let compiled = compiled("balancing.yaml");
    assert_eq!(shown(&compiled), ["UDP 10.0.0.20:162", "UDP 10.0.0.20:514"]);
}
