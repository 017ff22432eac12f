// SPDX-License-Identifier: Apache-2.0
use super::*;
use crate::config::{Allowed, Pool};
use crate::desired::compile;
use crate::desired::tests::config;
use crate::source::dir::snapshot_of;

/// A load balancer of our class; `second` is when it was created.
fn balancer(name: &str, second: u32, annotations: &str, spec: &str, recorded: &[&str]) -> String {
    let ingress: Vec<String> = recorded.iter().map(|ip| format!("{{ip: '{ip}'}}")).collect();
    format!(
        "---\napiVersion: v1\nkind: Service\nmetadata: {{name: {name}, creationTimestamp: '2026-01-01T00:00:{second:02}Z', annotations: {{{annotations}}}}}\n\
         spec:\n  type: LoadBalancer\n  loadBalancerClass: vipherald.io/vip\n  {spec}\nstatus: {{loadBalancer: {{ingress: [{}]}}}}\n",
        ingress.join(", ")
    )
}

fn v4(name: &str, second: u32, annotations: &str, port: u16, recorded: &[&str]) -> String {
    balancer(name, second, annotations, &format!("ipFamilies: [IPv4]\n  ports: [{{port: {port}}}]"), recorded)
}

fn dual(name: &str, second: u32, recorded: &[&str]) -> String {
    balancer(name, second, "", "ipFamilies: [IPv6, IPv4]\n  ports: [{port: 80}]", recorded)
}

fn with_pools(pools: &[(&str, &[&str])]) -> Config {
    let prefix = |text: &&str| crate::api::parse_prefix(text).unwrap();
    let pools = pools.iter().map(|(name, prefixes)| Pool { name: (*name).into(), prefixes: prefixes.iter().map(prefix).collect() });
    let mut config = config();
    config.vips.pools = pools.collect();
    config
}

/// `name: addresses (reason)` of each Service.
fn allocated(config: &Config, manifests: &[String], records: &[(&str, &str)]) -> Vec<String> {
    let snapshot = snapshot_of(&manifests.concat());
    let compiled = compile(&snapshot, config);
    let record = |(name, address): &(&str, &str)| {
        let object = ObjectRef { kind: crate::api::Kind::Service, namespace: "default".into(), name: (*name).into() };
        (object, vec![address.parse().unwrap()])
    };
    let allocated = allocate(&snapshot, config, &compiled, &records.iter().map(record).collect());
    let words = |(object, assignment): (ObjectRef, Assignment)| {
        let addresses: Vec<String> = assignment.addresses.iter().map(ToString::to_string).collect();
        let lacking = assignment.lacking.map(|lacking| format!(" {}", lacking.reason)).unwrap_or_default();
        format!("{}: {}{lacking}", object.name, addresses.join(" "))
    };
    allocated.into_iter().map(words).collect()
}

#[test]
fn the_oldest_gets_the_lowest_address_after_all_that_is_recorded() {
    let config = with_pools(&[("a", &["10.0.0.8/30"]), ("b", &["10.0.1.0/24", "2001:db8::/64"])]);
    let services = [v4("a", 3, "", 80, &[]), v4("b", 2, "", 80, &[]), v4("c", 4, "", 80, &["10.0.0.8"]), dual("d", 5, &["10.0.0.11"])];
    assert_eq!(allocated(&config, &services, &[]), ["a: 10.0.0.10", "b: 10.0.0.9", "c: 10.0.0.8", "d: 2001:db8:: 10.0.0.11"]);
    let more = [
        services.concat(),
        v4("e", 6, "", 80, &[]),
        v4("f", 7, "vipherald.io/pool: a", 80, &[]),
        v4("g", 8, "vipherald.io/pool: c", 80, &[]),
    ];
    let last = allocated(&config, &more, &[]).split_off(4);
    assert_eq!(last, ["e: 10.0.1.0", "f:  PoolExhausted", "g:  NoPool"]);
}

#[test]
fn what_is_recorded_stays_whatever_becomes_of_the_pool() {
    let config = with_pools(&[("a", &["10.9.0.0/24"])]);
    let services = [v4("a", 1, "", 80, &["10.0.0.8"]), v4("b", 2, "", 80, &["192.0.2.1", "2001:db8::1"])];
    assert_eq!(allocated(&config, &services, &[]), ["a: 10.0.0.8", "b: 192.0.2.1"], "but for what is of another family");
    assert_eq!(allocated(&self::config(), &services, &[]), ["a: 10.0.0.8", "b: 192.0.2.1"]);
}

#[test]
fn what_was_recorded_since_the_snapshot_counts_as_well() {
    let config = with_pools(&[("a", &["10.0.0.0/24"])]);
    let services = [v4("a", 1, "", 80, &[]), v4("b", 2, "", 80, &[])];
    assert_eq!(allocated(&config, &services, &[("b", "10.0.0.0"), ("unheard", "10.0.0.1")]), ["a: 10.0.0.2", "b: 10.0.0.0"]);
}

#[test]
fn an_address_that_anybody_wants_or_has_is_not_given() {
    let config = with_pools(&[("a", &["10.0.0.0/24"])]);
    let external = "---\napiVersion: v1\nkind: Service\nmetadata: {name: x}\nspec: {externalIPs: [10.0.0.0], clusterIP: 10.0.0.2, ports: [{port: 1}]}\n";
    let node = "---\napiVersion: v1\nkind: Node\nmetadata: {name: node1}\nspec: {podCIDR: 10.0.0.4/30}\nstatus: {addresses: [{type: InternalIP, address: 10.0.0.3}]}\n";
    let other = v4("other", 1, "vipherald.io/ips: 10.0.0.1", 80, &[]);
    let services = [v4("a", 2, "", 80, &[]), other, external.into(), node.into()];
    assert_eq!(allocated(&config, &services, &[]), ["a: 10.0.0.8", "other: 10.0.0.1"]);
}

#[test]
fn a_namespace_gets_what_it_is_allowed() {
    let mut config = with_pools(&[("a", &["10.0.0.0/8", "2001:db8::/32"])]);
    let allow = |prefix, namespaces: &[&str]| Allowed {
        prefix: crate::api::parse_prefix(prefix).unwrap(),
        namespaces: namespaces.iter().map(|name| (*name).to_owned()).collect(),
    };
    config.vips.allow = Some(vec![allow("10.7.0.0/30", &["enm"]), allow("10.8.0.0/16", &["default"]), allow("192.0.2.0/24", &[])]);
    assert_eq!(allocated(&config, &[v4("a", 1, "", 80, &[]), dual("b", 2, &[])], &[]), ["a: 10.8.0.0", "b: 10.8.0.1 NoPool"]);
}

#[test]
fn an_address_is_shared_where_both_ask_for_it_and_ports_differ() {
    let config = with_pools(&[("a", &["10.0.0.0/24"])]);
    let key = "vipherald.io/sharing-key: web";
    let services = [
        v4("a", 1, key, 80, &[]),
        v4("b", 2, key, 443, &[]),
        v4("c", 3, key, 443, &[]),
        v4("d", 4, "vipherald.io/sharing-key: other", 25, &[]),
        v4("e", 5, "", 26, &[]),
    ];
    assert_eq!(allocated(&config, &services, &[]), ["a: 10.0.0.0", "b: 10.0.0.0", "c: 10.0.0.1", "d: 10.0.0.2", "e: 10.0.0.3"]);
}

#[test]
fn what_is_asked_for_by_name_is_recorded_once_it_is_accepted() {
    let config = with_pools(&[("a", &["10.0.0.0/24"])]);
    let services = [
        v4("a", 1, "vipherald.io/ips: 10.9.0.1", 80, &["10.0.0.77"]),
        v4("b", 2, "vipherald.io/ips: '10.9.0.1, 10.9.0.2'", 81, &[]),
        v4("c", 3, "vipherald.io/ips: 10.9.0.1", 82, &[]),
        v4("d", 4, "vipherald.io/ips: nonsense", 82, &[]),
    ];
    assert_eq!(allocated(&config, &services, &[]), ["a: 10.9.0.1", "b: 10.9.0.2", "c:  RequestRefused", "d:  RequestRefused"]);
}

#[test]
fn the_end_of_all_addresses_is_the_end_of_a_pool() {
    let config = with_pools(&[("a", &["255.255.255.252/30"])]);
    let services = [v4("a", 1, "", 80, &[]), v4("b", 2, "", 80, &[]), v4("c", 3, "", 80, &[]), v4("d", 4, "", 80, &[])];
    let expected = ["a: 255.255.255.252", "b: 255.255.255.253", "c: 255.255.255.254", "d:  PoolExhausted"];
    assert_eq!(allocated(&config, &services, &[]), expected, "the broadcast address names no host");
}
