// SPDX-License-Identifier: Apache-2.0
//! Who claims which VIP, and who has it where several do.
//!
//! Input: the objects of a snapshot. Output: [`Claimant`]s, and for each VIP those that have it. Claimants share a VIP while their ports differ; where
//! two want the same port, the older object has the VIP and the other one does not; load balancers share one only where both say so. Age is `metadata.creationTimestamp`; an object without one is
//! younger than all that have one, and among equals namespace, name and kind decide.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use bgp::Prefix;
use k8s_openapi::api::core::v1::{Service, ServiceSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};

use super::endpoints::Target;
use super::honoured::not_honoured;
use super::load_balancer::LoadBalancer;
use super::{Rejection, RejectionReason, Scheduling, Subject, ports};
use crate::api::{
    ForwardingMethod, IngressSpec, Kind, ObjectRef, POLICY_KEY, PRESERVE_CLIENT_KEY, PortRange, Protocol, SHARING_KEY, parse_address,
    parse_prefix, quoted,
};
use crate::config::{Config, Dataplane, DataplaneType};
use crate::source::Snapshot;

/// An object that wants VIPs.
pub(super) struct Claimant<'a> {
    pub(super) object: &'a ObjectRef,
    pub(super) created: Option<&'a Time>,
    /// The VIPs it wants, and the field that says so.
    pub(super) vips: BTreeMap<IpAddr, String>,
    /// Those of them that it does not share with other load balancers, unless both have its key.
    pub(super) as_load_balancer: Option<AsLoadBalancer<'a>>,
    /// The ports it wants of each, and where they go.
    pub(super) ports: Vec<ClaimedPort<'a>>,
    pub(super) balanced: Balanced<'a>,
    /// The policy that it asks for.
    pub(super) policy: Option<&'a str>,
}

/// What a Service has as a load balancer.
pub(super) struct AsLoadBalancer<'a> {
    vips: BTreeSet<IpAddr>,
    sharing_key: Option<&'a str>,
}

/// Ports of a VIP that an object wants.
pub(super) struct ClaimedPort<'a> {
    pub(super) protocol: Protocol,
    pub(super) ports: PortRange,
    /// The range that the object has written, of which this is one port or the whole.
    pub(super) written: PortRange,
    pub(super) target: Target<'a>,
    pub(super) scheduling: Scheduling,
    pub(super) forwarding: ForwardingMethod,
    /// Real servers are to see the address of the client, and their way back leads through this router.
    pub(super) preserves_client: bool,
    /// Which clients may come; `None` for all.
    pub(super) sources: Option<Arc<[Prefix]>>,
}

impl ClaimedPort<'_> {
    /// Whether real servers see the address of the client, wherever they are.
    pub(super) fn shows_client(&self) -> bool {
        self.preserves_client || self.forwarding != ForwardingMethod::Masquerade
    }
}

/// Over whose endpoints traffic is balanced, by us or by somebody else.
pub(super) enum Balanced<'a> {
    /// Those of this Service.
    Over(ObjectRef, &'a Service),
    /// Nobody's: the Service has none by its nature.
    OverNone,
    /// Those of a Service that is not there.
    OverMissing,
    /// Nobody balances it with this dataplane.
    Nowhere,
}

/// All objects of this release that want a VIP, in order.
pub(super) fn claimants<'a>(snapshot: &'a Snapshot, config: &Config, rejections: &mut Vec<Rejection>) -> Vec<Claimant<'a>> {
    let services = snapshot.services.iter().filter(|(name, service)| config.scope.covers(name, &service.metadata, snapshot));
    let mut claimants: Vec<_> = services.filter_map(|(name, service)| of_service(name, service, &config.dataplane, rejections)).collect();
    let ingresses = ingresses(snapshot).filter(|ingress| ingress.is_covered(snapshot, config));
    claimants.extend(ingresses.map(|ingress| of_ingress(snapshot, ingress, &config.dataplane, rejections)));
    claimants
}

/// Those of them that want it for one of these Services, with all VIPs that they want.
pub(super) fn claimants_over<'a>(snapshot: &'a Snapshot, services: &BTreeSet<ObjectRef>, config: &Config) -> Vec<Claimant<'a>> {
    let mut told_elsewhere = Vec::new();
    let named = services.iter().filter_map(|service| snapshot.services.get_key_value(service));
    let named = named.filter(|(name, service)| config.scope.covers(name, &service.metadata, snapshot));
    let mut claimants: Vec<_> =
        named.filter_map(|(name, service)| of_service(name, service, &config.dataplane, &mut told_elsewhere)).collect();
    let meant = |ingress: &Ingress<'_>| {
        services.iter().any(|service| service.namespace == ingress.name.namespace && service.name == ingress.spec.service)
    };
    let meant = ingresses(snapshot).filter(meant).filter(|ingress| ingress.is_covered(snapshot, config));
    claimants.extend(meant.map(|ingress| of_ingress(snapshot, ingress, &config.dataplane, &mut told_elsewhere)));
    claimants
}

/// An EricIngress or LvsIngress.
struct Ingress<'a> {
    name: &'a ObjectRef,
    metadata: &'a ObjectMeta,
    spec: &'a IngressSpec,
    /// The field that names the Service.
    field: &'static str,
}

impl Ingress<'_> {
    /// Whether it is of this release.
    fn is_covered(&self, snapshot: &Snapshot, config: &Config) -> bool {
        config.scope.covers(self.name, self.metadata, snapshot)
    }
}

/// Those of all releases.
fn ingresses(snapshot: &Snapshot) -> impl Iterator<Item = Ingress<'_>> {
    let ingresses = snapshot.eric_ingresses.iter().map(|(name, ingress)| (name, &ingress.metadata, &ingress.spec, "spec.backends.name"));
    let older_form = snapshot.lvs_ingresses.iter();
    let older_form = older_form.map(|(name, ingress)| (name, &ingress.metadata, &ingress.spec, "spec.backendService.serviceName"));
    ingresses.chain(older_form).map(|(name, metadata, spec, field)| Ingress { name, metadata, spec, field })
}

fn of_service<'a>(
    name: &'a ObjectRef,
    service: &'a Service,
    dataplane: &Dataplane,
    rejections: &mut Vec<Rejection>,
) -> Option<Claimant<'a>> {
    let spec = service.spec.as_ref()?;
    let external_ips = spec.external_ips.as_deref().unwrap_or_default();
    let load_balancer =
        LoadBalancer::new(service, &mut |message| rejections.push(Rejection::object(name, RejectionReason::Invalid, message)));
    if external_ips.is_empty() && load_balancer.is_none() {
        return None;
    }
    for message in not_honoured(service, spec, dataplane) {
        rejections.push(Rejection::object(name, RejectionReason::NotHonoured, message));
    }
    let mut reject = |message| rejections.push(Rejection::object(name, RejectionReason::Invalid, message));
    if is_external_name(spec) {
        reject(format!("spec.type: an ExternalName Service has no endpoints; {USE_SLICES}"));
        return None;
    }
    let preserves_client = preserves_client(&service.metadata, dataplane, &mut reject);
    let mut ports = ports::of_service(service, spec, dataplane, preserves_client, &mut reject);
    let sources = sources(spec, &mut reject);
    ports.iter_mut().for_each(|port| port.sources.clone_from(&sources));
    if ports.is_empty() {
        reject("spec.ports: there is no port to serve".into());
        return None;
    }
    let mut vips = load_balancer.as_ref().map(|load_balancer| load_balancer.vips().clone()).unwrap_or_default();
    let as_load_balancer =
        load_balancer.map(|load_balancer| AsLoadBalancer { vips: vips.keys().copied().collect(), sharing_key: load_balancer.sharing_key });
    for (index, text) in external_ips.iter().enumerate() {
        let field = format!("spec.externalIPs[{index}]");
        match parse_address(text) {
            Ok(vip) => drop(vips.entry(vip).or_insert(field)),
            Err(message) => reject(format!("{field}: {message}")),
        }
    }
    let balanced = match dataplane.kind {
        // kube-proxy leaves headless Services alone, whatever external IPs they have.
        DataplaneType::KubeProxy if spec.cluster_ip.as_deref() == Some("None") => Balanced::Nowhere,
        DataplaneType::KubeProxy | DataplaneType::Auto | DataplaneType::Ipvs | DataplaneType::Nftables => {
            Balanced::Over(name.clone(), service)
        }
        DataplaneType::None => Balanced::Nowhere,
    };
    Some(Claimant {
        object: name,
        created: service.metadata.creation_timestamp.as_ref(),
        vips,
        as_load_balancer,
        ports,
        balanced,
        policy: policy(&service.metadata),
    })
}

/// `spec.loadBalancerSourceRanges`: who may come, which is nobody where none of them can be read.
fn sources(spec: &ServiceSpec, reject: &mut impl FnMut(String)) -> Option<Arc<[Prefix]>> {
    let ranges = spec.load_balancer_source_ranges.as_ref().filter(|ranges| !ranges.is_empty())?;
    let mut good = Vec::new();
    let mut bad = Vec::new();
    for (index, text) in ranges.iter().enumerate() {
        match parse_prefix(text) {
            Ok(prefix) => good.push(prefix),
            Err(message) => bad.push(format!("spec.loadBalancerSourceRanges[{index}]: {message}")),
        }
    }
    let rest = if good.is_empty() { "nobody is let in" } else { "only the other ranges are let in" };
    bad.into_iter().for_each(|message| reject(format!("{message}; {rest}")));
    Some(good.into())
}

/// Whether real servers are to see the address of the client: what the object says, or else the configuration.
fn preserves_client(metadata: &ObjectMeta, dataplane: &Dataplane, reject: &mut impl FnMut(String)) -> bool {
    let said = metadata.annotations.as_ref().and_then(|annotations| annotations.get(PRESERVE_CLIENT_KEY));
    match said.map(String::as_str) {
        None => dataplane.preserves_client,
        Some("true") => true,
        Some("false") => false,
        Some(other) => {
            reject(format!(
                "metadata.annotations[{PRESERVE_CLIENT_KEY}]: {} is neither true nor false; what the configuration says is used",
                quoted(other)
            ));
            dataplane.preserves_client
        }
    }
}

const USE_SLICES: &str = "use a Service without selector and an EndpointSlice with the addresses";

fn is_external_name(spec: &ServiceSpec) -> bool {
    spec.type_.as_deref() == Some("ExternalName")
}

fn of_ingress<'a>(
    snapshot: &'a Snapshot,
    Ingress { name, metadata, spec, field }: Ingress<'a>,
    dataplane: &Dataplane,
    rejections: &mut Vec<Rejection>,
) -> Claimant<'a> {
    let balanced = service_of_ingress(snapshot, name, field, spec, rejections);
    let service = if let Balanced::Over(_, service) = &balanced { Some(*service) } else { None };
    let mut reject = |message| rejections.push(Rejection::object(name, RejectionReason::Invalid, message));
    let preserves_client = preserves_client(metadata, dataplane, &mut reject);
    let mut ports = ports::of_ingress(name, spec, service, preserves_client, rejections);
    for port in &mut ports {
        port.forwarding = dataplane.tunnelled(port.forwarding);
    }
    Claimant {
        object: name,
        created: metadata.creation_timestamp.as_ref(),
        vips: BTreeMap::from([(spec.vip, "spec.virtualServiceIP".to_owned())]),
        as_load_balancer: None,
        ports,
        balanced: if dataplane.balances() { balanced } else { Balanced::Nowhere },
        policy: policy(metadata),
    }
}

/// The policy that an object asks for, by annotation or else by label.
fn policy(metadata: &ObjectMeta) -> Option<&str> {
    let said = [&metadata.annotations, &metadata.labels].into_iter().flatten().find_map(|said| said.get(POLICY_KEY));
    said.map(String::as_str)
}

/// Over what an ingress object is balanced. It is rejected where its Service is not there, or has no endpoints by its nature. Its VIP stays listed.
fn service_of_ingress<'a>(
    snapshot: &'a Snapshot,
    name: &ObjectRef,
    field: &str,
    spec: &IngressSpec,
    rejections: &mut Vec<Rejection>,
) -> Balanced<'a> {
    let service = ObjectRef { kind: Kind::Service, namespace: name.namespace.clone(), name: spec.service.clone() };
    match snapshot.services.get(&service) {
        None => {
            rejections.push(Rejection::object(name, RejectionReason::ServiceNotFound, format!("{field}: there is no {service}")));
            Balanced::OverMissing
        }
        Some(found) if found.spec.as_ref().is_some_and(is_external_name) => {
            let message = format!("{field}: {service} is an ExternalName Service, which has no endpoints; {USE_SLICES}");
            rejections.push(Rejection::object(name, RejectionReason::Invalid, message));
            Balanced::OverNone
        }
        Some(found) => Balanced::Over(service, found.as_ref()),
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
        let common = pairs.filter(|(mine, theirs)| mine.protocol == theirs.protocol && mine.ports.overlaps(theirs.ports));
        common.map(|(mine, theirs)| (mine.protocol, mine.ports.start().max(theirs.ports.start()))).min()
    }

    /// Whether both are load balancers that offer to share a VIP with each other, and can.
    pub(super) fn shares_with(&self, other: &Self) -> bool {
        let balancers = self.as_load_balancer.as_ref().zip(other.as_load_balancer.as_ref());
        let same_key = balancers.is_some_and(|(mine, theirs)| mine.sharing_key.is_some() && mine.sharing_key == theirs.sharing_key);
        same_key && self.object.namespace == other.object.namespace && self.common_port(other).is_none()
    }

    /// Why both cannot have this VIP, if so: a VIP that load balancers share is one that both offer to share, and nobody but their namespace can.
    pub(super) fn collision(&self, other: &Self, vip: IpAddr) -> Option<Collision> {
        let balancers = self.as_load_balancer.as_ref().zip(other.as_load_balancer.as_ref());
        let both_as_balancers = balancers.is_some_and(|(mine, theirs)| mine.vips.contains(&vip) && theirs.vips.contains(&vip));
        match self.common_port(other) {
            Some((protocol, port)) => Some(Collision::Port(protocol, port)),
            None => (both_as_balancers && !self.shares_with(other)).then_some(Collision::NotShared),
        }
    }
}

/// Why two objects cannot have the same VIP.
pub(super) enum Collision {
    /// Both want this port.
    Port(Protocol, u16),
    /// Both are load balancers, and not both say that they share it.
    NotShared,
}

impl Collision {
    fn message(&self, vip: IpAddr, winner: &Claimant<'_>, why: &str) -> String {
        let winner = winner.object;
        match self {
            Self::Port(protocol, port) => format!("{port}/{protocol} of {vip} belongs to {winner}, which {why}"),
            Self::NotShared => format!(
                "{vip} belongs to {winner}, which {why}; Services of one namespace share it where their ports differ and both have the same \
                 annotation {SHARING_KEY}"
            ),
        }
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
            match winners.iter().find_map(|winner| Some((winner, winner.collision(claimant, *vip)?))) {
                None => winners.push(claimant),
                Some((winner, collision)) => {
                    let why = if winner.created == claimant.created { "comes first by namespace and name" } else { "is older" };
                    refused.push((index, *vip, collision.message(*vip, winner, why)));
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
