// SPDX-License-Identifier: Apache-2.0
//! Which virtual services get other real servers where nothing but EndpointSlices changed: known before the whole intent is compiled again.
//!
//! Inputs: the snapshot that the intent in force was compiled from and the one that followed, that intent, and the configuration. Output: some virtual
//! services as [`compile`](super::compile) will have them. It is a part of that answer, told early and made by the same functions; nothing is kept of it,
//! and the whole is compiled all the same.
//!
//! Invariants: each service is to the letter what compiling the later snapshot gives; somebody stands behind it before and after, so that no VIP is
//! served or withheld, won or lost by it; in doubt a service is left out.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use k8s_openapi::api::discovery::v1::EndpointSlice;

use super::claims::{Balanced, claimants_over};
use super::endpoints::{Slices, service_of};
use super::virtual_services::virtual_service;
use super::{Compiled, DesiredVirtualService, ServiceKey, Subject};
use crate::api::{Kind, ObjectRef, parse_address};
use crate::config::Config;
use crate::source::Snapshot;

/// The virtual services that `after` gives other real servers than `compiled` has, which is what `before` compiles to with this configuration.
#[must_use]
pub fn churn(before: &Snapshot, after: &Snapshot, compiled: &Compiled, config: &Config) -> BTreeMap<ServiceKey, DesiredVirtualService> {
    let Some(in_force) = compiled.desired.balancing.as_ref().filter(|_| differ_in_slices_only(before, after)) else {
        return BTreeMap::new();
    };
    let after = &*after.with(&compiled.kept);
    let changed = changed_slices(before, after);
    if changed.iter().any(|(_, slice)| touches_claims(slice, compiled)) {
        return BTreeMap::new();
    }
    let services: BTreeSet<ObjectRef> = changed.iter().filter_map(|(name, slice)| balanced_over(name, slice)).collect();
    let before = services.iter().filter_map(|service| compiled.slices.get(service)).flatten();
    let names: BTreeSet<&ObjectRef> = before.chain(changed.iter().map(|(name, _)| *name)).collect();
    let slices = names.into_iter().filter_map(|name| after.endpoint_slices.get_key_value(name));
    let slices = Slices::of(slices, &config.node_name, config.dataplane.local_policy());
    let mut told_later = Vec::new();
    let mut found = BTreeMap::new();
    for claimant in claimants_over(after, &services, config) {
        let Balanced::Over(name, service) = &claimant.balanced else { continue };
        let behind = slices.behind(name, service, &|address| compiled.desired.vips.contains_key(address), &mut told_later);
        let pairs = claimant.vips.keys().flat_map(|vip| claimant.ports.iter().map(move |port| (*vip, port)));
        let services = pairs
            .map(|(vip, port)| virtual_service(claimant.object, vip, port, Some(&behind), config.dataplane.balancer()))
            .map(|(key, service, _)| (key, service));
        // Who has a VIP is as it was: what has another owner there was claimed in vain.
        found.extend(services.filter(|(key, service)| {
            in_force.services.get(key).is_some_and(|in_force| {
                in_force.owner == service.owner && in_force.is_backed() && service.is_backed() && in_force != service
            })
        }));
    }
    found
}

/// An object that did not change is the same in memory, as sources hand them out.
fn differ_in_slices_only(before: &Snapshot, after: &Snapshot) -> bool {
    same(&before.services, &after.services)
        && same(&before.nodes, &after.nodes)
        && same(&before.namespaces, &after.namespaces)
        && same(&before.eric_ingresses, &after.eric_ingresses)
        && same(&before.lvs_ingresses, &after.lvs_ingresses)
}

fn same<T>(before: &BTreeMap<ObjectRef, Arc<T>>, after: &BTreeMap<ObjectRef, Arc<T>>) -> bool {
    before.len() == after.len() && before.values().zip(after.values()).all(|(before, after)| Arc::ptr_eq(before, after))
}

/// Both contents of each slice that changed, and the one of each that came or went.
fn changed_slices<'a>(before: &'a Snapshot, after: &'a Snapshot) -> Vec<(&'a ObjectRef, &'a EndpointSlice)> {
    let (mut old, mut new) = (before.endpoint_slices.iter().peekable(), after.endpoint_slices.iter().peekable());
    let mut changed = Vec::new();
    loop {
        let lowest = match (old.peek(), new.peek()) {
            (None, None) => return changed,
            (Some((_, before)), Some((_, after))) if Arc::ptr_eq(before, after) => {
                old.next();
                new.next();
                continue;
            }
            (Some((before, _)), Some((after, _))) => *before.min(after),
            (Some((name, _)), None) | (None, Some((name, _))) => *name,
        };
        let slices = [old.next_if(|(name, _)| *name == lowest), new.next_if(|(name, _)| *name == lowest)];
        changed.extend(slices.into_iter().flatten().map(|(name, slice)| (name, slice.as_ref())));
    }
}

/// Whether an endpoint has an address that somebody claims as a VIP: then the slice may decide who has that.
fn touches_claims(slice: &EndpointSlice, compiled: &Compiled) -> bool {
    let refused = |address: IpAddr| {
        let of_address = |subject: &Subject| matches!(subject, Subject::Object { vip: Some(vip), .. } if *vip == address);
        compiled.rejections.iter().any(|rejection| of_address(&rejection.subject))
    };
    let texts = slice.endpoints.iter().flat_map(|endpoint| &endpoint.addresses);
    let mut addresses = texts.filter_map(|text| parse_address(text).ok());
    addresses.any(|address| compiled.desired.vips.contains_key(&address) || refused(address))
}

/// The Service that the slice of this name belongs to.
fn balanced_over(name: &ObjectRef, slice: &EndpointSlice) -> Option<ObjectRef> {
    Some(ObjectRef { kind: Kind::Service, namespace: name.namespace.clone(), name: service_of(slice)?.to_owned() })
}
