// SPDX-License-Identifier: Apache-2.0
//! What is told early is what compiling the whole gives, after any change of any object.

use std::cell::Cell;
use std::sync::Arc;

use super::*;
use crate::api::{Kind, ObjectRef};
use crate::source::Snapshot;

const VIPS: [&str; 3] = ["10.0.0.1", "10.0.0.2", "10.0.0.1, 10.0.0.3"];
/// Two real servers that come and go, one that leaves, and one that is a VIP.
const ENDPOINTS: [&str; 4] = [
    "{addresses: [10.1.0.1]}",
    "{addresses: [10.1.0.2], nodeName: node1}",
    "{addresses: [10.1.0.3], conditions: {ready: false, serving: true, terminating: true}}",
    "{addresses: [10.0.0.2]}",
];
const ROUNDS: usize = 12;

/// An object with a new content, or gone.
#[derive(Clone, Debug)]
enum Change {
    Service { number: u8, content: Option<(usize, bool, bool)> },
    Ingress { content: Option<(usize, u8, u16)> },
    Slice { number: u8, content: Option<(u8, u8)> },
}

fn change() -> impl Strategy<Value = Change> {
    let service = (0..VIPS.len(), any::<bool>(), any::<bool>());
    // Three of four times an endpoint that is a VIP is left out.
    let endpoints = (0_u8..8, prop::bool::weighted(0.25)).prop_map(|(set, vip)| set | (u8::from(vip) << 3));
    prop_oneof![
        2 => (0_u8..3, prop::option::weighted(0.8, service)).prop_map(|(number, content)| Change::Service { number, content }),
        1 => prop::option::weighted(0.8, (0..2_usize, 0_u8..3, 80_u16..82)).prop_map(|content| Change::Ingress { content }),
        6 => (0_u8..4, prop::option::weighted(0.9, (0_u8..3, endpoints))).prop_map(|(number, content)| Change::Slice { number, content }),
    ]
}

/// The object of a change, and the text that makes it.
fn object(change: &Change) -> (ObjectRef, Option<String>) {
    let named = |kind, name: String| ObjectRef { kind, namespace: "default".to_owned(), name };
    match change {
        Change::Service { number, content } => {
            let text = content.map(|(vips, local, udp)| {
                let policy = if local { "externalTrafficPolicy: Local" } else { "" };
                let text = service(&format!("s{number}"), VIPS[vips], policy);
                if udp { text.replace("{port: 80}", "{port: 80, protocol: UDP}") } else { text }
            });
            (named(Kind::Service, format!("s{number}")), text)
        }
        Change::Ingress { content } => {
            let text = content.map(|(vip, number, port)| eric("e", VIPS[vip], &format!("s{number}"), port));
            (named(Kind::EricIngress, "e".to_owned()), text)
        }
        Change::Slice { number, content } => {
            let text = content.map(|(of, set)| {
                let endpoints = ENDPOINTS.iter().enumerate().filter(|(index, _)| set >> index & 1 == 1).map(|(_, text)| *text);
                let text = slice(&format!("s{of}"), "IPv4", &endpoints.collect::<Vec<_>>().join(", "));
                let both = "ports: [{port: 8080}, {port: 8080, protocol: UDP}]";
                text.replace(&format!("name: s{of}-ipv4"), &format!("name: x{number}")).replace("ports: [{port: 8080}]", both)
            });
            (named(Kind::EndpointSlice, format!("x{number}")), text)
        }
    }
}

fn after(before: &Snapshot, change: &Change) -> Snapshot {
    let mut after = before.clone();
    let (name, text) = object(change);
    let made = text.map(|text| snapshot_of(&text)).unwrap_or_default();
    fn put<T: Clone>(all: &mut BTreeMap<ObjectRef, Arc<T>>, made: BTreeMap<ObjectRef, Arc<T>>, name: &ObjectRef) {
        all.remove(name);
        all.extend(made);
    }
    put(&mut after.services, made.services, &name);
    put(&mut after.eric_ingresses, made.eric_ingresses, &name);
    put(&mut after.endpoint_slices, made.endpoint_slices, &name);
    after
}

/// All services that have other real servers, and somebody behind them before and after.
fn expected(before: &Compiled, after: &Compiled) -> BTreeMap<ServiceKey, DesiredVirtualService> {
    let (before, after) = (before.desired.balancing.as_ref().unwrap(), after.desired.balancing.as_ref().unwrap());
    let changed = after.services.iter().filter(|(key, service)| {
        before
            .services
            .get(key)
            .is_some_and(|before| before != *service && before.owner == service.owner && before.is_backed() && service.is_backed())
    });
    changed.map(|(key, service)| (*key, service.clone())).collect()
}

#[test]
fn what_is_told_early_is_what_compiling_gives() {
    let told = Cell::new(0);
    let everything_changes = prop::collection::vec(change(), ROUNDS);
    proptest!(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(400) }, |(changes in everything_changes, nft in any::<bool>())| {
        let kind = if nft { DataplaneType::Nftables } else { DataplaneType::Ipvs };
        let config = Config { dataplane: Dataplane { kind, ..config().dataplane }, ..config() };
        // Somebody is there from the start, so that most changes are churn.
        let mut snapshot = Snapshot { complete: true, ..Snapshot::default() };
        for (number, set) in [(0, 3), (1, 1)] {
            snapshot = after(&snapshot, &Change::Service { number, content: Some((number.into(), false, false)) });
            snapshot = after(&snapshot, &Change::Slice { number, content: Some((number, set)) });
        }
        for change in changes {
            let next = after(&snapshot, &change);
            let (old, new) = (compile(&snapshot, &config), compile(&next, &config));
            let churn = churn(&snapshot, &next, &old, &config);
            let touches_vip = |snapshot: &Snapshot| {
                let slice = snapshot.endpoint_slices.get(&object(&change).0).map(|slice| format!("{slice:?}")).unwrap_or_default();
                slice.contains("\"10.0.0.2\"")
            };
            let endpoints_only = matches!(change, Change::Slice { .. }) && !touches_vip(&snapshot) && !touches_vip(&next);
            if endpoints_only || !churn.is_empty() {
                prop_assert_eq!(&churn, &expected(&old, &new), "{:?}", change);
                told.set(told.get() + churn.len());
                for key in churn.keys() {
                    prop_assert_eq!(old.desired.vips.get(&key.vip), new.desired.vips.get(&key.vip));
                }
            }
            snapshot = next;
        }
    });
    assert!(told.get() > 300, "only {} services were told early: this test shows less than it says", told.get());
}
