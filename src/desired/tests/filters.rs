// SPDX-License-Identifier: Apache-2.0
//! Which clients a Service admits, whether real servers see them, and what `externalTrafficPolicy: Local` makes of that.

use super::*;
use crate::desired::Filter;

const FOUR: &str = "10.0.0.7";
const SIX: &str = "2001:db8:7::7";

fn balancing(change: fn(&mut Dataplane)) -> Config {
    let mut config = config();
    config.dataplane.kind = DataplaneType::Ipvs;
    change(&mut config.dataplane);
    config
}

/// The filters of all virtual services, and the rejections.
fn filters(config: &Config, manifests: &[String]) -> (Vec<(String, Filter)>, Vec<String>) {
    let compiled = compile(&snapshot_of(&manifests.concat()), config);
    let rejections = outcome(&compiled).1;
    let services = compiled.desired.balancing.unwrap().services;
    (services.into_iter().map(|(key, service)| (key.to_string(), service.filter)).collect(), rejections)
}

fn sources(prefixes: &[(&str, u8)]) -> Option<BTreeSet<Prefix>> {
    Some(prefixes.iter().map(|(address, length)| Prefix::new(address.parse().unwrap(), *length).unwrap()).collect())
}

fn of_ranges(ranges: &str) -> (Vec<Option<BTreeSet<Prefix>>>, Vec<String>) {
    let service = service("a", &format!("{FOUR}, \"{SIX}\""), &format!("loadBalancerSourceRanges: {ranges}"));
    let (filters, mut rejections) = filters(&balancing(|_| {}), &[service]);
    // That a VIP is left with nobody is told besides.
    rejections.retain(|rejection| !rejection.contains("so that nobody is let in to "));
    (filters.into_iter().map(|(_, filter)| filter.sources).collect(), rejections)
}

#[test]
fn source_ranges_go_by_family_and_never_admit_more_than_they_say() {
    assert_eq!(of_ranges("[]"), (vec![None, None], vec![]));
    let (four, six) = (sources(&[("10.1.0.0", 16), ("192.0.2.1", 32)]), sources(&[("2001:db8::", 32)]));
    // Those inside others say nothing; spaces and host bits are overlooked, as an API server does.
    let ranges = "[10.1.0.0/16, 10.1.2.0/24, 192.0.2.1/32, \" 2001:db8::1/32 \", \"2001:db8:1::/48\"]";
    assert_eq!(of_ranges(ranges), (vec![four, six], vec![]));
    assert_eq!(of_ranges("[10.1.0.0/16]"), (vec![sources(&[("10.1.0.0", 16)]), sources(&[])], vec![]));
    assert_eq!(of_ranges("[0.0.0.0/0, 10.1.0.0/16]"), (vec![None, sources(&[])], vec![]));
    let bad = |index: usize, text: &str, rest: &str| {
        format!(
            "Service default/a Invalid spec.loadBalancerSourceRanges[{index}]: {text:?} is no range of addresses such as 10.0.0.0/8 or 2001:db8::/32; {rest}"
        )
    };
    let rest = "only the other ranges are let in";
    assert_eq!(
        of_ranges("[10.1.0.0/33, 10.1.0.0/16, 10.1.0.1]"),
        (vec![sources(&[("10.1.0.0", 16)]), sources(&[])], vec![bad(0, "10.1.0.0/33", rest), bad(2, "10.1.0.1", rest)])
    );
    assert_eq!(of_ranges("[all]"), (vec![sources(&[]), sources(&[])], vec![bad(0, "all", "nobody is let in")]));
}

#[test]
fn objects_say_whether_real_servers_see_the_client_and_else_the_configuration_does() {
    let preserving = |manifest: &str, value: &str| {
        with_metadata(manifest, &format!("annotations: {{vipherald.io/preserve-client-address: \"{value}\"}}"))
    };
    let plain = || [service("a", FOUR, ""), eric("e", "10.0.0.8", "a", 80)];
    let seen = |config: &Config, manifests: &[String]| -> Vec<bool> {
        filters(config, manifests).0.into_iter().map(|(_, filter)| filter.preserves_client).collect()
    };
    let (no, yes) = (balancing(|_| {}), balancing(|dataplane| dataplane.preserves_client = true));
    assert_eq!(seen(&no, &plain()), [false, false]);
    assert_eq!(seen(&yes, &plain()), [true, true]);
    assert_eq!(seen(&no, &plain().map(|manifest| preserving(&manifest, "true"))), [true, true]);
    assert_eq!(seen(&yes, &plain().map(|manifest| preserving(&manifest, "false"))), [false, false]);
    // There is nothing to leave alone where nothing is masqueraded.
    let direct = balancing(|dataplane| (dataplane.preserves_client, dataplane.forwarding) = (true, ForwardingMethod::DirectRouting));
    assert_eq!(seen(&direct, &plain()[..1]), [false]);
    let (_, rejections) = filters(&yes, &plain().map(|manifest| preserving(&manifest, "yes")));
    let message = "Invalid metadata.annotations[vipherald.io/preserve-client-address]: \"yes\" is neither true nor false; what the configuration says is used";
    assert_eq!(rejections, [format!("Service default/a {message}"), format!("EricIngress default/e {message}")]);
}

#[test]
fn local_services_are_served_everywhere_where_real_servers_see_the_client() {
    let manifests = |more: &str| {
        let service = with_metadata(&service("a", FOUR, "externalTrafficPolicy: Local"), more);
        [service, slice("a", "IPv4", "{addresses: [10.233.1.1], nodeName: node2}").replace("8080", "80")]
    };
    let hidden = "Service default/a 10.0.0.7 Invalid 80/tcp: externalTrafficPolicy is Local, and with forwarding nat the endpoints of other nodes would not \
                  see the client; only those on this node are used. Use dr or tun, or the annotation vipherald.io/preserve-client-address where the \
                  endpoints answer through this router";
    let everywhere = balancing(|dataplane| dataplane.local = LocalPolicy::PreserveSource);
    assert_compiles(&everywhere, &manifests("labels: {a: b}"), &["10.0.0.7 NoLocalEndpoints"], &[hidden]);
    let preserving = "annotations: {vipherald.io/preserve-client-address: \"true\"}";
    for more in [preserving, "annotations: {vipherald.io/forwarding: dr}", "annotations: {vipherald.io/forwarding: tun}"] {
        assert_compiles(&everywhere, &manifests(more), &["10.0.0.7 Serve"], &[]);
    }
    // Where nobody asked for that, and where others balance, it is as Kubernetes says.
    assert_compiles(&balancing(|_| {}), &manifests(preserving), &["10.0.0.7 NoLocalEndpoints"], &[]);
    let elsewhere = balancing(|dataplane| (dataplane.kind, dataplane.local) = (DataplaneType::KubeProxy, LocalPolicy::PreserveSource));
    let unknown = "Service default/a NotHonoured metadata.annotations[vipherald.io/preserve-client-address]: \"true\" is not honoured: kube-proxy \
                   balances, and does not know it; use dataplane ipvs or nftables";
    assert_compiles(&elsewhere, &manifests(preserving), &["10.0.0.7 NoLocalEndpoints"], &[unknown]);
}
