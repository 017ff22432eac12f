// SPDX-License-Identifier: Apache-2.0
//! How much is said where something is refused: one line for what is one mistake, in the order of its numbers, and of which content it is said.

use std::sync::Arc;

use super::*;
use crate::api::Kind;

const VIP: &str = "10.0.0.8";

fn balancing(kind: DataplaneType) -> Config {
    let mut config = config();
    config.dataplane.kind = kind;
    config
}

/// An EricIngress of the Service `b` with these mappings, each from ports of the VIP to ports of the Service.
fn ranges(mappings: &[(&str, &str, &str)]) -> String {
    let range = |text: &str| {
        let (start, end) = text.split_once('-').unwrap_or((text, text));
        format!("{{start: {start}, end: {end}}}")
    };
    let mapping = |(vip, service, more): &(&str, &str, &str)| {
        format!("    - {{portRange: {{vipPortRange: {}, svcPortRange: {}}}{more}}}\n", range(vip), range(service))
    };
    format!(
        "---\napiVersion: routing.ericingress.ericsson.com/v1alpha1\nkind: EricIngress\nmetadata: {{name: e}}\nspec:\n  virtualServiceIP: {VIP}\n  \
         backends:\n    name: b\n    config:\n{}",
        mappings.iter().map(mapping).collect::<String>()
    )
}

fn pods() -> String {
    service("b", "", "clusterIP: None") + &slice("b", "IPv4", READY)
}

#[test]
fn a_vip_is_withheld_for_its_missing_service_unless_another_object_has_one() {
    let ipvs = balancing(DataplaneType::Ipvs);
    let missing = "EricIngress default/e ServiceNotFound spec.backends.name: there is no Service default/a";
    assert_compiles(&ipvs, &[eric("e", "10.0.0.8", "a", 80)], &["10.0.0.8 ServiceNotFound"], &[missing]);
    let beside = service("b", "10.0.0.8", "").replace("port: 80", "port: 81");
    assert_compiles(&ipvs, &[eric("e", "10.0.0.8", "a", 80), beside], &["10.0.0.8 NoEndpoints"], &[missing]);
}

#[test]
fn one_mistake_in_a_range_is_one_rejection_and_the_vip_has_its_reason() {
    let nft = balancing(DataplaneType::Nftables);
    let lc = |ports: &str| {
        format!(
            "EricIngress default/e {VIP} Invalid TCP {VIP}:{ports}: scheduler lc needs IPVS, which dataplane nftables does without, since nft does not count \
             connections; use rr, wrr, sh or mh, or dataplane.type ipvs"
        )
    };
    let refused = format!("{VIP} Invalid");
    let mappings = [("100-110", "100-110", ", algo: lc"), ("9-20", "9-20", ", algo: lc"), ("1000-1999", "1000-1999", ", algo: lc")];
    let rejections = [lc("9-20"), lc("100-110"), lc("1000-1999")];
    assert_compiles(&nft, &[ranges(&mappings), pods()], &[&refused], &rejections.each_ref().map(String::as_str));
    // What can be had is had, and who stands behind it counts.
    let mixed = [("9-20", "9-20", ", algo: lc"), ("80", "80", "")];
    assert_compiles(&nft, &[ranges(&mixed), pods()], &["10.0.0.8 Serve"], &[&lc("9-20")]);
    let nobody = service("b", "", "clusterIP: None");
    assert_compiles(&nft, &[ranges(&mixed), nobody.clone()], &["10.0.0.8 NoEndpoints"], &[&lc("9-20")]);
    assert_compiles(&nft, &[ranges(&mixed[..1]), nobody], &[&refused], &[&lc("9-20")]);
    // Nothing of the object is left where it has nothing but a long range that changes the port.
    let offset = "EricIngress default/e 10.0.0.8 Invalid 211 ports, 90-300 to 91-301: a range of more than 64 ports cannot change the port; make both ranges equal, \
                  or divide it";
    assert_compiles(&nft, &[ranges(&[("90-300", "91-301", "")]), pods()], &[&refused], &[offset]);
    // Of a Service likewise.
    let ldap = "vipherald.io/scheduler: lc";
    let service = with_metadata(&service("b", VIP, ""), &format!("annotations: {{{ldap}}}"));
    assert_compiles(
        &nft,
        &[service, slice("b", "IPv4", READY)],
        &[&refused],
        &[&lc("80").replace("EricIngress default/e", "Service default/b")],
    );
}

#[test]
fn ports_of_a_range_that_are_refused_for_their_own_are_told_as_far_as_they_are_neighbours() {
    let ipvs = balancing(DataplaneType::Ipvs);
    let keeps = |ports: &str, have: &str| {
        format!(
            "EricIngress default/e {VIP} Invalid TCP {VIP}:{ports}: with forwarding dr a packet keeps its port, but the endpoints have {have}; make both \
             equal, or use nat"
        )
    };
    // Port 80 of the Service is 8080 of the endpoints, all others are as they are.
    let same = [("79-82", "79-82", ", mode: dr")];
    assert_compiles(&ipvs, &[ranges(&same), pods()], &["10.0.0.8 Serve"], &[&keeps("80 of 79-82", "8080")]);
    let moved = [("9-12", "109-112", ", mode: dr")];
    assert_compiles(&ipvs, &[ranges(&moved), pods()], &["10.0.0.8 Invalid"], &[&keeps("9-12", "109 for 9")]);
}

#[test]
fn numbers_in_messages_count_as_numbers() {
    let subject = Subject::Object { object: ObjectRef { kind: Kind::Service, namespace: "a".into(), name: "a".into() }, vip: None };
    let rejection = |message: &str| Rejection { subject: subject.clone(), reason: RejectionReason::Invalid, message: message.into() };
    let ordered = ["", "a", "a2", "a02", "a2b", "a10", "a10.9", "a10.10", "a99999999999999999999999", "b1", "ä"];
    let mut found: Vec<Rejection> = ordered.iter().rev().map(|message| rejection(message)).collect();
    found.sort();
    let found: Vec<&str> = found.iter().map(|rejection| rejection.message.as_str()).collect();
    assert_eq!(found, ["", "a", "a02", "a2", "a2b", "a10", "a10.9", "a10.10", "a99999999999999999999999", "b1", "ä"]);
}

#[test]
fn a_vip_that_nobody_may_come_to_is_told() {
    let with = |vip: &str, family: &str, ranges: &str| {
        let endpoint = if family == "IPv4" { READY } else { "{addresses: [\"2001:db8:1::1\"]}" };
        [service("a", vip, &format!("loadBalancerSourceRanges: {ranges}")), slice("a", family, endpoint)]
    };
    let ipvs = balancing(DataplaneType::Ipvs);
    let four = "Service default/a 10.0.0.7 NotHonoured spec.loadBalancerSourceRanges: no range is of IPv4, so that nobody is let in to 10.0.0.7; add the clients, \
                such as 192.0.2.0/24, or 0.0.0.0/0 for everybody";
    assert_compiles(&ipvs, &with("10.0.0.7", "IPv4", "[\"fd00::/8\"]"), &["10.0.0.7 Serve"], &[four]);
    let six = "Service default/a 2001:db8:7::7 NotHonoured spec.loadBalancerSourceRanges: no range is of IPv6, so that nobody is let in to 2001:db8:7::7; add the \
               clients, such as 2001:db8::/32, or ::/0 for everybody";
    assert_compiles(&ipvs, &with("\"2001:db8:7::7\"", "IPv6", "[10.0.0.0/8]"), &["2001:db8:7::7 Serve"], &[six]);
    let unreadable = "Service default/a Invalid spec.loadBalancerSourceRanges[0]: \"all\" is no range of addresses such as 10.0.0.0/8 or 2001:db8::/32; nobody \
                      is let in";
    let nobody = four.replace("NotHonoured", "Invalid").replace("no range is of IPv4", "no range can be read");
    assert_compiles(&ipvs, &with("10.0.0.7", "IPv4", "[all]"), &["10.0.0.7 Serve"], &[unreadable, &nobody]);
    assert_compiles(&ipvs, &with("10.0.0.7", "IPv4", "[10.0.0.0/8]"), &["10.0.0.7 Serve"], &[]);
    // Where others balance, the ranges are theirs to keep.
    let theirs = "Service default/a NotHonoured spec.loadBalancerSourceRanges: \"fd00::/8\" is not honoured: kube-proxy does not apply it to \
                  spec.externalIPs: everybody is let in there; use type LoadBalancer, or dataplane ipvs or nftables";
    assert_compiles(&config(), &with("10.0.0.7", "IPv4", "[\"fd00::/8\"]"), &["10.0.0.7 Serve"], &[theirs]);
}

#[test]
fn what_is_said_of_the_last_good_content_says_so() {
    let config = balancing(DataplaneType::Nftables);
    let mut snapshot = snapshot_of(&[ranges(&[("9-20", "9-20", ", algo: lc")]), pods()].concat());
    let object = ObjectRef { kind: Kind::EricIngress, namespace: "default".into(), name: "e".into() };
    let newer = Rejection::object(&object, RejectionReason::Invalid, "spec: is wrong; its last good content stays in force");
    snapshot.rejections.push(newer.clone());
    snapshot.kept.insert(object);
    let messages = |snapshot: &Snapshot| {
        let rejections = compile(snapshot, &config).rejections;
        rejections.into_iter().filter(|rejection| *rejection != newer).map(|rejection| rejection.message).collect::<Vec<_>>()
    };
    let [message] = &messages(&snapshot)[..] else { panic!() };
    assert!(message.ends_with("dataplane.type ipvs (in its last good content, which is in force)"), "{message}");
    for ingress in snapshot.eric_ingresses.values_mut() {
        Arc::make_mut(ingress).metadata.generation = Some(7);
    }
    let [message] = &messages(&snapshot)[..] else { panic!() };
    assert!(message.ends_with("dataplane.type ipvs (in its last good content, generation 7, which is in force)"), "{message}");
    snapshot.kept.clear();
    let [message] = &messages(&snapshot)[..] else { panic!() };
    assert!(message.ends_with("dataplane.type ipvs"), "{message}");
}
