// SPDX-License-Identifier: Apache-2.0
//! What a Service of `type: LoadBalancer` and our `loadBalancerClass` asks for.
//!
//! Input: one Service. Output: a [`LoadBalancer`], and a message for each field that cannot be read. Services of other classes, and of none, are
//! no concern of ours.
//!
//! What a Service asks for by name (`vipherald.io/ips`, or else `spec.loadBalancerIP`) is its VIPs, as with `spec.externalIPs`. Without that its VIPs are
//! those that `status.loadBalancer.ingress` records: which address of a pool it gets is [`allocation`](super::allocation)'s to say, and only what is
//! written down there holds, so that no two nodes ever have different opinions, and a restart of all of them moves nothing.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;

use k8s_openapi::api::core::v1::{Service, ServiceSpec};

use crate::api::{IPS_KEY, LOAD_BALANCER_CLASS, POOL_KEY, SHARING_KEY, parse_address};

/// A word of `spec.ipFamilies`.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) enum IpFamily {
    Ipv4,
    Ipv6,
}

impl IpFamily {
    const ALL: [Self; 2] = [Self::Ipv4, Self::Ipv6];

    pub(super) const fn of(address: IpAddr) -> Self {
        if address.is_ipv4() { Self::Ipv4 } else { Self::Ipv6 }
    }
}

impl fmt::Display for IpFamily {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ipv4 => "IPv4",
            Self::Ipv6 => "IPv6",
        })
    }
}

/// See the module.
pub(super) struct LoadBalancer<'a> {
    /// Of which families it wants an address, in its order.
    pub(super) families: Vec<IpFamily>,
    /// Whether one family will do.
    pub(super) prefers_dual_stack: bool,
    /// What it asks for by name, each with the field that says so. Where this is not empty, it gets nothing else.
    pub(super) requested: BTreeMap<IpAddr, String>,
    /// Whether it asks for something by name, be it readable or not.
    pub(super) by_name: bool,
    /// What it was given, each with the field that says so.
    pub(super) recorded: BTreeMap<IpAddr, String>,
    /// Services of its namespace with the same key may have the same VIP.
    pub(super) sharing_key: Option<&'a str>,
    /// The only pool from which it may be given an address.
    pub(super) pool: Option<&'a str>,
}

/// Whether it is ours to give addresses to.
pub(crate) fn is_ours(spec: &ServiceSpec) -> bool {
    spec.type_.as_deref() == Some("LoadBalancer") && spec.load_balancer_class.as_deref() == Some(LOAD_BALANCER_CLASS)
}

impl<'a> LoadBalancer<'a> {
    /// Of a Service of our class.
    pub(super) fn new(service: &'a Service, reject: &mut impl FnMut(String)) -> Option<Self> {
        let spec = service.spec.as_ref().filter(|spec| is_ours(spec))?;
        let families = families(spec);
        let annotation = |key: &str| service.metadata.annotations.as_ref()?.get(key).map(String::as_str);
        let (field, texts) = match annotation(IPS_KEY) {
            Some(text) => (format!("metadata.annotations[{IPS_KEY}]"), text.split(',').map(str::trim).collect()),
            None => {
                let ip = spec.load_balancer_ip.as_deref().filter(|ip| !ip.is_empty());
                ("spec.loadBalancerIP".to_owned(), ip.into_iter().collect::<Vec<_>>())
            }
        };
        let mut requested = BTreeMap::new();
        for text in &texts {
            match parse_address(text) {
                Ok(address) if families.contains(&IpFamily::of(address)) => drop(requested.insert(address, field.clone())),
                Ok(address) => reject(format!("{field}: {address} is not of spec.ipFamilies, so that no endpoint could answer")),
                Err(message) => reject(format!("{field}: {message}")),
            }
        }
        Some(Self {
            families,
            prefers_dual_stack: spec.ip_family_policy.as_deref() == Some("PreferDualStack"),
            requested,
            by_name: !texts.is_empty(),
            recorded: recorded(service),
            sharing_key: annotation(SHARING_KEY).filter(|key| !key.is_empty()),
            pool: annotation(POOL_KEY),
        })
    }

    /// Its VIPs, each with the field that says so.
    pub(super) fn vips(&self) -> &BTreeMap<IpAddr, String> {
        if self.by_name { &self.requested } else { &self.recorded }
    }
}

/// The addresses in `status.loadBalancer.ingress`, in its order.
pub(crate) fn recorded_addresses(service: &Service) -> Vec<IpAddr> {
    let ingress = service.status.iter().filter_map(|status| status.load_balancer.as_ref()?.ingress.as_ref()).flatten();
    ingress.filter_map(|ingress| ingress.ip.as_ref()?.parse().ok()).collect()
}

/// `status.loadBalancer.ingress`: the addresses in it, each with its field.
fn recorded(service: &Service) -> BTreeMap<IpAddr, String> {
    let ingress = service.status.iter().filter_map(|status| status.load_balancer.as_ref()?.ingress.as_ref()).flatten();
    let addresses = ingress.enumerate().filter_map(|(index, ingress)| Some((index, ingress.ip.as_ref()?.parse().ok()?)));
    addresses.map(|(index, address)| (address, format!("status.loadBalancer.ingress[{index}].ip"))).collect()
}

/// What an API server sets. A Service of a manifest directory may say nothing of it: then it has what it asks for, or IPv4.
fn families(spec: &ServiceSpec) -> Vec<IpFamily> {
    let Some(families) = spec.ip_families.as_ref().filter(|families| !families.is_empty()) else {
        return match spec.ip_family_policy.as_deref() {
            Some("SingleStack") => vec![IpFamily::Ipv4],
            _ => IpFamily::ALL.to_vec(),
        };
    };
    let mut known: Vec<IpFamily> = Vec::new();
    for text in families {
        let family = match text.as_str() {
            "IPv4" => IpFamily::Ipv4,
            "IPv6" => IpFamily::Ipv6,
            _ => continue,
        };
        if !known.contains(&family) {
            known.push(family);
        }
    }
    known
}
