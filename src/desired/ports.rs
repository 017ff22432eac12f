// SPDX-License-Identifier: Apache-2.0
//! The ports of a VIP that an object asks for, each with where it goes and how it is balanced.
//!
//! Input: a Service, or an ingress object and its Service. Output: [`ClaimedPort`]s, and a rejection of each port that cannot be had.
//!
//! A short range of an ingress object becomes one virtual service for each of its ports; one of more than [`LONGEST_EXPANDED`] ports becomes a single
//! one, for which the kernel cannot change the port. `svcPort` names a port of the Service: real servers have the number that their EndpointSlice
//! gives to it. A number that the Service does not have is itself the port of the real servers.

use std::fmt::Display;
use std::str::FromStr;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Service, ServiceSpec};

use super::claims::ClaimedPort;
use super::endpoints::{ServicePort, Target};
use super::{Rejection, RejectionReason, Scheduling, Subject};
use crate::api::{IngressSpec, ObjectRef, PortMapping, PortRange, Scheduler};
use crate::config::Dataplane;

/// The longest range that becomes one virtual service a port.
const LONGEST_EXPANDED: u32 = 64;

/// How long a client stays with its real server where a Service asks for that and does not say how long.
const CLIENT_IP_TIMEOUT: Duration = Duration::from_secs(10_800);

/// What a Service asks for by annotation, where not what the configuration says.
pub(super) const SCHEDULER: &str = "vipherald.io/scheduler";
pub(super) const FORWARDING: &str = "vipherald.io/forwarding";

/// The ports of a Service.
pub(super) fn of_service<'a>(
    service: &'a Service,
    spec: &'a ServiceSpec,
    dataplane: &Dataplane,
    preserves_client: bool,
    reject: &mut impl FnMut(String),
) -> Vec<ClaimedPort<'a>> {
    let scheduler = annotated(service, SCHEDULER, reject).unwrap_or(dataplane.scheduler);
    let forwarding = annotated(service, FORWARDING, reject).unwrap_or(dataplane.forwarding);
    let forwarding = dataplane.tunnelled(forwarding);
    let scheduling = with_affinity(spec, scheduler);
    let mut claimed = Vec::new();
    for port in service_ports(spec, reject) {
        if let Ok(ports) = PortRange::new(port.number.into(), port.number.into()) {
            let target = Target::Port(port);
            let written = ports;
            claimed.push(ClaimedPort {
                protocol: port.protocol,
                ports,
                written,
                target,
                scheduling,
                forwarding,
                preserves_client,
                sources: None,
            });
        }
    }
    claimed
}

/// The ports of an ingress object, whose Service may not be there.
pub(super) fn of_ingress<'a>(
    name: &ObjectRef,
    spec: &IngressSpec,
    service: Option<&'a Service>,
    preserves_client: bool,
    rejections: &mut Vec<Rejection>,
) -> Vec<ClaimedPort<'a>> {
    let known = service.map(known).unwrap_or_default();
    let mut claimed = Vec::new();
    for mapping in &spec.ports {
        if mapping.vip_ports.count() <= LONGEST_EXPANDED {
            claimed.extend(expanded(mapping, &known, preserves_client));
        } else if mapping.vip_ports == mapping.service_ports {
            claimed.push(whole(mapping, preserves_client));
        } else {
            let message = format!(
                "{} ports, {} to {}: a range of more than {LONGEST_EXPANDED} ports cannot change the port; make both ranges equal, or \
                 divide it",
                mapping.vip_ports.count(),
                mapping.vip_ports,
                mapping.service_ports
            );
            let subject = Subject::Object { object: name.clone(), vip: Some(spec.vip) };
            rejections.push(Rejection { subject, reason: RejectionReason::Invalid, message });
        }
    }
    claimed
}

/// One virtual service for each port.
fn expanded<'a>(mapping: &PortMapping, known: &[ServicePort<'a>], preserves_client: bool) -> impl Iterator<Item = ClaimedPort<'a>> {
    let pairs = (mapping.vip_ports.start()..=mapping.vip_ports.end()).zip(mapping.service_ports.start()..=mapping.service_ports.end());
    pairs.filter_map(move |(vip_port, service_port)| {
        let of_service = known.iter().find(|port| port.protocol == mapping.protocol && port.number == service_port);
        Some(ClaimedPort {
            protocol: mapping.protocol,
            ports: PortRange::new(vip_port.into(), vip_port.into()).ok()?,
            written: mapping.vip_ports,
            target: of_service.map_or(Target::Number(service_port), |port| Target::Port(*port)),
            scheduling: Scheduling::of(mapping.scheduler),
            forwarding: mapping.forwarding,
            preserves_client,
            sources: None,
        })
    })
}

/// One virtual service for all of them.
const fn whole<'a>(mapping: &PortMapping, preserves_client: bool) -> ClaimedPort<'a> {
    ClaimedPort {
        protocol: mapping.protocol,
        ports: mapping.vip_ports,
        written: mapping.vip_ports,
        target: Target::Number(0),
        scheduling: Scheduling::of(mapping.scheduler),
        forwarding: mapping.forwarding,
        preserves_client,
        sources: None,
    }
}

fn annotated<T: FromStr<Err: Display>>(service: &Service, annotation: &str, reject: &mut impl FnMut(String)) -> Option<T> {
    let text = service.metadata.annotations.as_ref()?.get(annotation)?;
    text.parse().map_err(|error| reject(format!("metadata.annotations[{annotation}]: {error}; what the configuration says is used"))).ok()
}

/// `sessionAffinity: ClientIP`: a scheduler that hashes the client's address leaves its port out of it, any other remembers the client.
fn with_affinity(spec: &ServiceSpec, scheduler: Scheduler) -> Scheduling {
    let scheduling = Scheduling::of(scheduler);
    if spec.session_affinity.as_deref() != Some("ClientIP") {
        return scheduling;
    }
    if scheduling.hashes_client() {
        return Scheduling { by_port: false, ..scheduling };
    }
    let configured = spec.session_affinity_config.as_ref().and_then(|config| config.client_ip.as_ref()?.timeout_seconds);
    let timeout = configured.and_then(|seconds| u64::try_from(seconds).ok()).filter(|seconds| *seconds > 0);
    Scheduling { persistence: Some(timeout.map_or(CLIENT_IP_TIMEOUT, Duration::from_secs)), ..scheduling }
}

/// The good ports of a Service; what is wrong with others is told where the Service itself is read.
pub(super) fn known(service: &Service) -> Vec<ServicePort<'_>> {
    service.spec.as_ref().map(|spec| service_ports(spec, &mut |_| {})).unwrap_or_default()
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
