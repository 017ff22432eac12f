// SPDX-License-Identifier: Apache-2.0
//! Which policy a VIP has, and who decides that.

use super::*;

fn policies(compiled: &Compiled) -> Vec<(String, Option<&str>)> {
    compiled.desired.vips.iter().map(|(vip, desired)| (vip.to_string(), desired.policy.as_deref())).collect()
}

#[test]
fn an_object_names_the_policy_of_its_vips_by_annotation_or_else_by_label() {
    let (annotation, label) = ("annotations: {vipherald.io/bgp-policy: gold}", "labels: {vipherald.io/bgp-policy: silver}");
    let a = with_metadata(&service("a", "10.0.0.7", ""), annotation);
    let b = with_metadata(&eric("b", "10.0.0.8", "a", 80), label);
    let c = with_metadata(&with_metadata(&eric("c", "10.0.0.9", "a", 80), label), annotation);
    let compiled = compile(&snapshot_of(&[a, b, c, eric("d", "10.0.0.10", "a", 80)].concat()), &with_policies(&["gold", "silver"]));
    let expected = [("10.0.0.7", Some("gold")), ("10.0.0.8", Some("silver")), ("10.0.0.9", Some("gold")), ("10.0.0.10", None)];
    assert_eq!(policies(&compiled), expected.map(|(vip, policy)| (vip.to_owned(), policy)));
    assert_eq!(compiled.rejections, []);
}

#[test]
fn of_two_objects_that_want_different_policies_for_one_vip_the_older_one_has_its_way() {
    let asks = |manifest: String, policy: &str, second: u32| {
        let more = format!("creationTimestamp: '2026-01-01T00:00:0{second}Z', annotations: {{vipherald.io/bgp-policy: {policy}}}");
        with_metadata(&manifest, &more)
    };
    let silent = with_metadata(&eric("oldest", "10.0.0.7", "a", 82), "creationTimestamp: '2026-01-01T00:00:01Z'");
    let older = asks(eric("z", "10.0.0.7", "a", 81), "silver", 2);
    let same = asks(eric("same", "10.0.0.7", "a", 83), "silver", 3);
    let younger = asks(service("a", "10.0.0.7", ""), "gold", 4);
    let compiled = compile(&snapshot_of(&[silent, younger, same, older].concat()), &with_policies(&["gold", "silver"]));
    assert_eq!(policies(&compiled), [("10.0.0.7".to_owned(), Some("silver"))]);
    let rejected = "Service default/a 10.0.0.7 Conflict vipherald.io/bgp-policy: EricIngress default/z asks for policy \"silver\" of 10.0.0.7, and comes first";
    assert_eq!(outcome(&compiled).1, [rejected]);
}

#[test]
fn a_policy_that_is_not_there_is_told_and_takes_nothing_away() {
    let manifest = with_metadata(&service("a", "10.0.0.7", ""), "annotations: {vipherald.io/bgp-policy: gulden}");
    let told = |known: &str| {
        format!(
            "Service default/a 10.0.0.7 PolicyNotFound vipherald.io/bgp-policy: there is no policy \"gulden\" in bgp.policies, which has {known}; 10.0.0.7 stays announced as it is, and is not announced anew"
        )
    };
    let manifests = [manifest, slice("a", "IPv4", READY)];
    assert_compiles(&with_policies(&["gold", "silver"]), &manifests, &["10.0.0.7 Serve"], &[&told("gold, silver")]);
    assert_compiles(&config(), &manifests, &["10.0.0.7 Serve"], &[&told("none")]);
}
