// SPDX-License-Identifier: Apache-2.0
//! The fields of a Service with VIPs that ask for something which nobody does with this dataplane.
//!
//! Input: a Service and the dataplane. Output: a message for each such field, which names it. Pure. All that is not in [`FIELDS`] is honoured, or no
//! concern of a VIP; docs/kubernetes.md says of each field of a Service which of these it is.

use k8s_openapi::api::core::v1::{Service, ServiceSpec};

use super::load_balancer::is_ours;
use super::ports::{FORWARDING, SCHEDULER};
use crate::api::{IPS_KEY, POOL_KEY, PRESERVE_CLIENT_KEY, SHARING_KEY, TOPOLOGY_MODE_KEY, quoted};
use crate::config::{Dataplane, DataplaneType};

/// One field, or one reason why it is not honoured.
struct Field {
    /// Its path in the object.
    path: &'static str,
    /// What it asks for; `None` where it asks for nothing.
    asks: fn(&Service, &ServiceSpec) -> Option<String>,
    /// Whether this dataplane leaves it undone.
    undone: fn(&Dataplane) -> bool,
    /// Why, and what helps.
    message: &'static str,
}

const ALIKE: &str = "all usable endpoints get traffic alike";
const BY_KUBE_PROXY: &str = "kube-proxy balances, and does not know it; use dataplane ipvs or nftables";

/// See the module.
const FIELDS: &[Field] = &[
    Field {
        path: "spec.trafficDistribution",
        asks: |_, spec| spec.traffic_distribution.clone(),
        undone: Dataplane::balances,
        message: ALIKE,
    },
    Field {
        path: TOPOLOGY_MODE_KEY,
        asks: |service, _| annotation(service, TOPOLOGY_MODE_KEY).filter(|mode| mode.to_lowercase() != "disabled"),
        undone: Dataplane::balances,
        message: ALIKE,
    },
    Field {
        path: "spec.loadBalancerSourceRanges",
        asks: |_, spec| source_ranges(spec).filter(|_| spec.external_ips.as_ref().is_some_and(|ips| !ips.is_empty())),
        undone: is_kube_proxy,
        message: "kube-proxy does not apply it to spec.externalIPs: everybody is let in there; use type LoadBalancer, or dataplane ipvs or nftables",
    },
    Field {
        path: "spec.loadBalancerSourceRanges",
        asks: |_, spec| source_ranges(spec),
        undone: is_none,
        message: "dataplane none filters nothing: everybody is let in, unless another program on the nodes sees to it",
    },
    Field {
        path: "spec.externalTrafficPolicy",
        asks: |_, spec| spec.external_traffic_policy.clone().filter(|policy| policy == "Local"),
        undone: is_none,
        message: "dataplane none knows no endpoints: nodes without one announce the VIP too",
    },
    Field { path: SCHEDULER, asks: |service, _| annotation(service, SCHEDULER), undone: is_kube_proxy, message: BY_KUBE_PROXY },
    Field { path: FORWARDING, asks: |service, _| annotation(service, FORWARDING), undone: is_kube_proxy, message: BY_KUBE_PROXY },
    Field {
        path: PRESERVE_CLIENT_KEY,
        asks: |service, _| annotation(service, PRESERVE_CLIENT_KEY).filter(|said| said == "true"),
        undone: is_kube_proxy,
        message: BY_KUBE_PROXY,
    },
    Field { path: IPS_KEY, asks: |service, spec| of_no_balancer(service, spec, IPS_KEY), undone: always, message: NO_BALANCER },
    Field { path: POOL_KEY, asks: |service, spec| of_no_balancer(service, spec, POOL_KEY), undone: always, message: NO_BALANCER },
    Field { path: SHARING_KEY, asks: |service, spec| of_no_balancer(service, spec, SHARING_KEY), undone: always, message: NO_BALANCER },
    Field {
        path: POOL_KEY,
        asks: |service, spec| {
            let by_name = annotation(service, IPS_KEY).or_else(|| spec.load_balancer_ip.clone().filter(|ip| !ip.is_empty()));
            annotation(service, POOL_KEY).filter(|_| is_ours(spec) && by_name.is_some())
        },
        undone: always,
        message: "the Service asks for its addresses by name",
    },
];

const NO_BALANCER: &str = "addresses are given to Services of type LoadBalancer with loadBalancerClass vipherald.io/vip only";

/// See the module.
pub(super) fn not_honoured(service: &Service, spec: &ServiceSpec, dataplane: &Dataplane) -> Vec<String> {
    let undone = FIELDS.iter().filter(|field| (field.undone)(dataplane));
    let asked = undone.filter_map(|field| Some((field, (field.asks)(service, spec)?)));
    let message = |(field, value): (&Field, String)| {
        let path = if field.path.starts_with("spec.") { field.path.to_owned() } else { format!("metadata.annotations[{}]", field.path) };
        format!("{path}: {} is not honoured: {}", quoted(&value), field.message)
    };
    asked.map(message).collect()
}

fn annotation(service: &Service, key: &str) -> Option<String> {
    service.metadata.annotations.as_ref()?.get(key).cloned()
}

fn source_ranges(spec: &ServiceSpec) -> Option<String> {
    spec.load_balancer_source_ranges.as_ref().filter(|ranges| !ranges.is_empty()).map(|ranges| ranges.join(","))
}

/// What a Service that gets no addresses from us asks for by this annotation.
fn of_no_balancer(service: &Service, spec: &ServiceSpec, key: &str) -> Option<String> {
    annotation(service, key).filter(|_| !is_ours(spec))
}

fn is_kube_proxy(dataplane: &Dataplane) -> bool {
    dataplane.kind == DataplaneType::KubeProxy
}

fn is_none(dataplane: &Dataplane) -> bool {
    dataplane.kind == DataplaneType::None
}

const fn always(_: &Dataplane) -> bool {
    true
}

#[cfg(test)]
mod tests;
