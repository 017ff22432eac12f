// SPDX-License-Identifier: Apache-2.0
//! Who claims which VIP, and who has it where several do.
//!
//! Input: the objects of a snapshot. Output: [`Claimant`]s, and for each VIP those that have it. Claimants share a VIP while their ports differ; where
//! two want the same port, the older object has the VIP and the other one does not. Age is `metadata.creationTimestamp`; an object without one is
//! younger than all that have one, and among equals namespace, name and kind decide.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use k8s_openapi::api::core::v1::{Service, ServiceSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};

use super::endpoints::ServicePort;
use super::{Rejection, RejectionReason, Subject};
use crate::api::{IngressSpec, Kind, ObjectRef, POLICY_KEY, PortRange, Protocol, parse_address};
use crate::config::Dataplane;
use crate::source::Snapshot;

/// An object that wants VIPs.
pub(super) struct Claimant<'a> {
    pub(super) object: &'a ObjectRef,
    pub(super) created: Option<&'a Time>,
    /// The VIPs it wants, and the field that says so.
    pub(super) vips: BTreeMap<IpAddr, String>,
    /// The ports it wants of each.
    ports: Vec<(Protocol, PortRange)>,
    pub(super) balanced: Balanced<'a>,
    /// The policy that it asks for.
    pub(super) policy: Option<&'a str>,
}

/// Who balances what comes in.
pub(super) enum Balanced<'a> {
    /// Somebody else, over the endpoints of this Service.
    Elsewhere(&'a Service, Vec<ServicePort<'a>>),
    /// Nobody with this dataplane.
    Nowhere,
}

/// All objects that want a VIP, in order.
pub(super) fn claimants<'a>(snapshot: &'a Snapshot, dataplane: Dataplane, rejections: &mut Vec<Rejection>) -> Vec<Claimant<'a>> {
    let mut claimants: Vec<_> =
        snapshot.services.iter().filter_map(|(name, service)| of_service(name, service, dataplane, rejections)).collect();
    for (name, ingress) in &snapshot.eric_ingresses {
        check_service(snapshot, name, "spec.backends.name", &ingress.spec, rejections);
        claimants.push(of_ingress(name, &ingress.metadata, &ingress.spec));
    }
    for (name, ingress) in &snapshot.lvs_ingresses {
        check_service(snapshot, name, "spec.backendService.serviceName", &ingress.spec, rejections);
        claimants.push(of_ingress(name, &ingress.metadata, &ingress.spec));
    }
    claimants
}

fn of_service<'a>(
    name: &'a ObjectRef,
    service: &'a Service,
    dataplane: Dataplane,
    rejections: &mut Vec<Rejection>,
) -> Option<Claimant<'a>> {
    let spec = service.spec.as_ref()?;
    let external_ips = spec.external_ips.as_ref().filter(|ips| !ips.is_empty())?;
    let mut reject = |message| rejections.push(Rejection::object(name, RejectionReason::Invalid, message));
    if is_external_name(spec) {
        reject(format!("spec.type: an ExternalName Service has no endpoints; {USE_SLICES}"));
        return None;
    }
    let ports = service_ports(spec, &mut reject);
    if ports.is_empty() {
        reject("spec.ports: there is no port to serve".into());
        return None;
    }
    let mut vips = BTreeMap::new();
    for (index, text) in external_ips.iter().enumerate() {
        let field = format!("spec.externalIPs[{index}]");
        match parse_address(text) {
            Ok(vip) => drop(vips.entry(vip).or_insert(field)),
            Err(message) => reject(format!("{field}: {message}")),
        }
    }
    let claimed =
        ports.iter().filter_map(|port| Some((port.protocol, PortRange::new(port.number.into(), port.number.into()).ok()?))).collect();
    let balanced = match dataplane {
        // kube-proxy leaves headless Services alone, whatever external IPs they have.
        Dataplane::KubeProxy if spec.cluster_ip.as_deref() == Some("None") => Balanced::Nowhere,
        Dataplane::KubeProxy => Balanced::Elsewhere(service, ports),
        Dataplane::None => Balanced::Nowhere,
    };
    Some(Claimant {
        object: name,
        created: service.metadata.creation_timestamp.as_ref(),
        vips,
        ports: claimed,
        balanced,
        policy: policy(&service.metadata),
    })
}

const USE_SLICES: &str = "use a Service without selector and an EndpointSlice with the addresses";

fn is_external_name(spec: &ServiceSpec) -> bool {
    spec.type_.as_deref() == Some("ExternalName")
}

fn service_ports<'a>(spec: &'a ServiceSpec, reject: &mut impl FnMut(String)) -> Vec<ServicePort<'a>> {
    let mut ports = Vec::new();
    for (index, port) in spec.ports.iter().flatten().enumerate() {
        let number = PortRange::new(port.port.into(), port.port.into()).map_err(|error| format!("port: {error}"));
        let protocol = port.protocol.as_deref().unwrap_or("TCP").to_lowercase().parse().map_err(|error| format!("protocol: {error}"));
        match (number, protocol) {
            (Ok(number), Ok(protocol)) => {
                ports.push(ServicePort { name: port.name.as_deref().unwrap_or_default(), protocol, number: number.start() });
            }
            (Err(message), _) | (_, Err(message)) => reject(format!("spec.ports[{index}].{message}")),
        }
    }
    ports
}

fn of_ingress<'a>(name: &'a ObjectRef, metadata: &'a ObjectMeta, spec: &IngressSpec) -> Claimant<'a> {
    Claimant {
        object: name,
        created: metadata.creation_timestamp.as_ref(),
        vips: BTreeMap::from([(spec.vip, "spec.virtualServiceIP".to_owned())]),
        ports: spec.ports.iter().map(|mapping| (mapping.protocol, mapping.vip_ports)).collect(),
        balanced: Balanced::Nowhere,
        policy: policy(metadata),
    }
}

/// The policy that an object asks for, by annotation or else by label.
fn policy(metadata: &ObjectMeta) -> Option<&str> {
    let said = [&metadata.annotations, &metadata.labels].into_iter().flatten().find_map(|said| said.get(POLICY_KEY));
    said.map(String::as_str)
}

/// Rejects an ingress object of which the Service is not there, or has no endpoints by its nature. Its VIP stays listed.
fn check_service(snapshot: &Snapshot, name: &ObjectRef, field: &str, spec: &IngressSpec, rejections: &mut Vec<Rejection>) {
    let service = ObjectRef { kind: Kind::Service, namespace: name.namespace.clone(), name: spec.service.clone() };
    match snapshot.services.get(&service) {
        None => rejections.push(Rejection::object(name, RejectionReason::ServiceNotFound, format!("{field}: there is no {service}"))),
        Some(found) if found.spec.as_ref().is_some_and(is_external_name) => {
            let message = format!("{field}: {service} is an ExternalName Service, which has no endpoints; {USE_SLICES}");
            rejections.push(Rejection::object(name, RejectionReason::Invalid, message));
        }
        Some(_) => {}
    }
}

impl Claimant<'_> {
    /// Refuses it one of its VIPs, for a reason that follows the name of the field.
    pub(super) fn refuse(&mut self, vip: IpAddr, reason: RejectionReason, message: &str, rejections: &mut Vec<Rejection>) {
        if let Some(field) = self.vips.remove(&vip) {
            let subject = Subject::Object { object: self.object.clone(), vip: Some(vip) };
            rejections.push(Rejection { subject, reason, message: format!("{field}: {message}") });
        }
    }

    pub(super) fn age(&self) -> (bool, Option<&Time>, &str, &str, Kind) {
        (self.created.is_none(), self.created, &self.object.namespace, &self.object.name, self.object.kind)
    }

    /// The first port that both want.
    fn common_port(&self, other: &Self) -> Option<(Protocol, u16)> {
        let pairs = self.ports.iter().flat_map(|mine| other.ports.iter().map(move |theirs| (mine, theirs)));
        let common = pairs.filter(|((protocol, mine), (other, theirs))| protocol == other && mine.overlaps(*theirs));
        common.map(|((protocol, mine), (_, theirs))| (*protocol, mine.start().max(theirs.start()))).min()
    }
}

/// Leaves each VIP to the oldest of those that want the same port of it.
pub(super) fn settle_conflicts(claimants: &mut [Claimant<'_>], rejections: &mut Vec<Rejection>) {
    let mut by_vip: BTreeMap<IpAddr, Vec<usize>> = BTreeMap::new();
    for (index, claimant) in claimants.iter().enumerate() {
        claimant.vips.keys().for_each(|vip| by_vip.entry(*vip).or_default().push(index));
    }
    let mut refused = Vec::new();
    for (vip, indices) in by_vip.iter().filter(|(_, indices)| indices.len() > 1) {
        let mut rivals: Vec<_> = indices.iter().filter_map(|index| Some((*index, claimants.get(*index)?))).collect();
        rivals.sort_by_key(|(_, claimant)| claimant.age());
        let mut winners: Vec<&Claimant<'_>> = Vec::new();
        for (index, claimant) in rivals {
            match winners.iter().find_map(|winner| Some((winner, winner.common_port(claimant)?))) {
                None => winners.push(claimant),
                Some((winner, (protocol, port))) => {
                    let why = if winner.created == claimant.created { "comes first by namespace and name" } else { "is older" };
                    refused.push((index, *vip, format!("{port}/{protocol} of {vip} belongs to {}, which {why}", winner.object)));
                }
            }
        }
    }
    for (index, vip, message) in refused {
        if let Some(claimant) = claimants.get_mut(index) {
            claimant.refuse(vip, RejectionReason::Conflict, &message, rejections);
        }
    }
}

/// The VIPs that somebody wants.
pub(super) fn wanted(claimants: &[Claimant<'_>]) -> BTreeSet<IpAddr> {
    claimants.iter().flat_map(|claimant| claimant.vips.keys()).copied().collect()
}
