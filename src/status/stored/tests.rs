// SPDX-License-Identifier: Apache-2.0
use std::collections::BTreeSet;
use std::time::{Duration, UNIX_EPOCH};

use super::*;
use crate::status::Truth;

fn at(seconds: u64) -> Time {
    Time::from(UNIX_EPOCH + Duration::from_secs(seconds))
}

fn wanted(accepted: Truth, addresses: Option<&[&str]>) -> ObjectStatus {
    ObjectStatus {
        uid: Some("u1".into()),
        generation: Some(4),
        verdicts: [
            Verdict::new("Accepted", accepted, "Because", "a person can act on this"),
            Verdict::new("Programmed", Truth::True, "Programmed", ""),
            Verdict::new("Advertised", Truth::True, "Announced", ""),
        ],
        announcing: BTreeSet::from(["n1".to_owned(), "n2".to_owned()]),
        addresses: addresses.map(|all| all.iter().map(|one| one.parse().unwrap()).collect()),
    }
}

/// The object once this was applied to it, by this manager.
fn applied_by(manager: &str, kind: Kind, difference: &Difference) -> Stored {
    let names = difference.status.as_object().unwrap().keys();
    let fields: Map<_, _> = names.map(|name| (format!("f:{name}"), json!({}))).collect();
    let entry = json!({"manager": manager, "operation": "Apply", "subresource": "status", "fieldsV1": {"f:status": fields}});
    Stored::read(kind, &json!({"metadata": {"uid": "u1", "managedFields": [entry]}, "status": difference.status}), "vipherald")
}

fn applied(kind: Kind, difference: &Difference) -> Stored {
    applied_by("vipherald", kind, difference)
}

#[test]
fn what_was_written_is_not_written_again() {
    for (kind, addresses) in [
        (Kind::Service, Some(&["10.0.0.7", "2001:db8::7"][..])),
        (Kind::Service, None),
        (Kind::EricIngress, None),
        (Kind::LvsIngress, None),
    ] {
        let wanted = wanted(Truth::True, addresses);
        let first = difference(kind, &Stored::default(), Some(&wanted), "Proxy", at(0)).unwrap();
        assert_eq!(first.transitions.len(), 3);
        assert_eq!(difference(kind, &applied(kind, &first), Some(&wanted), "Proxy", at(9)), None, "{kind:?}");
    }
}

#[test]
fn a_transition_is_what_changed() {
    let first = difference(Kind::EricIngress, &Stored::default(), Some(&wanted(Truth::True, None)), "", at(0)).unwrap();
    let mut other = wanted(Truth::False, None);
    other.verdicts[1].message = "on n1".into();
    let second = difference(Kind::EricIngress, &applied(Kind::EricIngress, &first), Some(&other), "", at(9)).unwrap();
    assert_eq!(second.transitions, [other.verdicts[0].clone()]);
    let times: Vec<_> = second.status["conditions"].as_array().unwrap().iter().map(|one| one["lastTransitionTime"].clone()).collect();
    assert_eq!(times, ["1970-01-01T00:00:09Z", "1970-01-01T00:00:00Z", "1970-01-01T00:00:00Z"]);
    assert_eq!(second.status["conditions"][0]["observedGeneration"], 4);
}

#[test]
fn on_services_only_what_is_ours_is_touched() {
    let object = json!({"status": {
        "conditions": [{"type": "example.org/Other", "status": "True"}],
        "loadBalancer": {"ingress": [{"hostname": "lb.example.org"}]},
    }});
    let stored = Stored::read(Kind::Service, &object, "vipherald");
    assert_eq!(stored.conditions, []);
    assert_eq!(difference(Kind::Service, &stored, None, "VIP", at(0)), None, "nothing of ours is there");
    let written = difference(Kind::Service, &stored, Some(&wanted(Truth::True, None)), "VIP", at(0)).unwrap().status;
    assert_eq!(written.get("loadBalancer"), None);
    let kinds: Vec<_> = written["conditions"].as_array().unwrap().iter().map(|one| one["type"].clone()).collect();
    assert_eq!(kinds, ["vipherald.io/Accepted", "vipherald.io/Programmed", "vipherald.io/Advertised"]);
}

#[test]
fn addresses_of_a_load_balancer_are_written_and_taken_back() {
    let first = difference(Kind::Service, &Stored::default(), Some(&wanted(Truth::True, Some(&["10.0.0.7"]))), "VIP", at(0)).unwrap();
    assert_eq!(first.status["loadBalancer"], json!({"ingress": [{"ip": "10.0.0.7", "ipMode": "VIP"}]}));
    let stored = applied(Kind::Service, &first);
    assert_eq!(stored.addresses(), ["10.0.0.7".parse::<IpAddr>().unwrap()]);
    let moved = difference(Kind::Service, &stored, Some(&wanted(Truth::True, Some(&["10.0.0.7"]))), "Proxy", at(0)).unwrap();
    assert_eq!(moved.status["loadBalancer"]["ingress"][0]["ipMode"], "Proxy", "the dataplane has changed");
    let external = difference(Kind::Service, &stored, Some(&wanted(Truth::True, None)), "VIP", at(0)).unwrap();
    assert_eq!(external.status.get("loadBalancer"), None, "it is no load balancer any more, but has external IPs");
    assert_eq!(difference(Kind::Service, &stored, None, "VIP", at(0)).unwrap().status, json!({}), "it has no VIP any more");
}

#[test]
fn what_others_wrote_is_left_to_them() {
    for kind in [Kind::Service, Kind::EricIngress, Kind::LvsIngress] {
        let first = difference(kind, &Stored::default(), Some(&wanted(Truth::True, None)), "VIP", at(0)).unwrap();
        assert_eq!(difference(kind, &applied_by("other", kind, &first), None, "VIP", at(0)), None, "{kind:?} of another release");
        assert!(difference(kind, &applied(kind, &first), None, "VIP", at(0)).is_some(), "{kind:?} that was of this one");
    }
    let mut other =
        applied(Kind::Service, &difference(Kind::Service, &Stored::default(), Some(&wanted(Truth::True, None)), "", at(0)).unwrap());
    other.ingress = vec![ingress("192.0.2.1".parse().unwrap(), "VIP")];
    assert_eq!(difference(Kind::Service, &other, Some(&wanted(Truth::True, None)), "", at(0)), None, "an address of another class");
}

#[test]
fn that_nothing_is_known_yet_is_no_news() {
    let mut unknown = wanted(Truth::True, None);
    unknown.verdicts[1].status = Truth::Unknown;
    let first = difference(Kind::EricIngress, &Stored::default(), Some(&unknown), "", at(0)).unwrap();
    assert_eq!(first.transitions.len(), 2);
    let second = difference(Kind::EricIngress, &applied(Kind::EricIngress, &first), Some(&wanted(Truth::True, None)), "", at(1)).unwrap();
    assert_eq!(second.transitions.len(), 1);
}

#[test]
fn the_change_id_is_the_generation_in_force() {
    let first = difference(Kind::LvsIngress, &Stored::default(), Some(&wanted(Truth::True, None)), "", at(0)).unwrap();
    assert_eq!((&first.status["changeId"], &first.status["announcing"]), (&json!(4), &json!(["n1", "n2"])));
    let mut refused = wanted(Truth::False, None);
    refused.generation = Some(5);
    let second = difference(Kind::LvsIngress, &applied(Kind::LvsIngress, &first), Some(&refused), "", at(0)).unwrap();
    assert_eq!(second.status["changeId"], 4);
    assert_eq!(difference(Kind::LvsIngress, &Stored::default(), Some(&refused), "", at(0)).unwrap().status.get("changeId"), None);
}
