// SPDX-License-Identifier: Apache-2.0
//! Which addresses may be VIPs. Whoever may write a Service must not be able to draw the traffic of others to it (CVE-2020-8554).
//!
//! Input: an address, who claims it, the configuration and the snapshot. Output: why it is refused, if it is.
//!
//! Refused always: what names no single host of the network, the addresses of Nodes, of their pods (by `podCIDRs`), of Services inside the cluster, and
//! of BGP peers, those that virtual routers hold, and from where they and their peers advertise. Endpoints have their addresses where their EndpointSlice is older than the claim, so that neither can take an address from the other; a
//! slice never takes the VIP of its own Service. What an endpoint is said to be does not matter: `targetRef` is a name that whoever writes the slice gives
//! it, and proves no Pod.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use bgp::Prefix;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::endpoints::service_of;
use super::{DesiredGroup, Rejection, RejectionReason};
use crate::api::{Kind, ObjectRef, parse_address, quoted};
use crate::config::{Config, Vips};
use crate::source::Snapshot;

/// Why no host of the network has this address, if so.
pub(crate) fn unfit(address: IpAddr) -> Option<&'static str> {
    let rules: &[(bool, &str)] = match address {
        IpAddr::V4(address) => &[
            (address.octets().first() == Some(&0), "is in 0.0.0.0/8, which names no host"),
            (address.is_loopback(), "is a loopback address"),
            (address.is_link_local(), "is a link-local address"),
            (address.is_multicast(), "is a multicast address"),
            (address.is_broadcast(), "is the broadcast address"),
        ],
        IpAddr::V6(address) => &[
            (address.is_unspecified(), "is the unspecified address"),
            (address.is_loopback(), "is the loopback address"),
            (address.is_unicast_link_local(), "is a link-local address"),
            (address.is_multicast(), "is a multicast address"),
            (address.to_ipv4_mapped().is_some(), "is an IPv4 address in IPv6 form"),
        ],
    };
    rules.iter().find(|(applies, _)| *applies).map(|(_, why)| *why)
}

/// Why the configuration does not let this namespace have the VIP, if so.
pub(super) fn not_allowed(vip: IpAddr, namespace: &str, vips: &Vips) -> Option<String> {
    let allowed = vips.allow.as_ref()?;
    let covering: Vec<_> = allowed.iter().filter(|entry| entry.prefix.contains(vip)).collect();
    if covering.iter().any(|entry| entry.namespaces.is_empty() || entry.namespaces.iter().any(|allowed| allowed == namespace)) {
        return None;
    }
    if covering.is_empty() {
        let prefixes: Vec<_> = allowed.iter().map(|entry| entry.prefix.to_string()).collect();
        return Some(format!(
            "{vip} is outside of vips.allow, which has {}",
            if prefixes.is_empty() { "none".into() } else { prefixes.join(", ") }
        ));
    }
    let namespaces: BTreeSet<_> = covering.iter().flat_map(|entry| &entry.namespaces).map(String::as_str).collect();
    let namespaces = namespaces.into_iter().collect::<Vec<_>>().join(", ");
    Some(format!("vips.allow gives {vip} to the namespaces {namespaces}, not to {namespace}"))
}

/// Whether an address is one of those that it is about.
pub(super) type Claimed<'c> = &'c dyn Fn(IpAddr) -> bool;

/// Who has the addresses that are claimed.
pub(super) struct Reserved<'a> {
    /// Nodes, Services and peers, in words.
    holders: BTreeMap<IpAddr, String>,
    pod_networks: Vec<(Prefix, &'a ObjectRef)>,
    endpoints: BTreeMap<IpAddr, Vec<EndpointHolder<'a>>>,
}

/// A slice that has an address among its endpoints.
struct EndpointHolder<'a> {
    slice: &'a ObjectRef,
    service: Option<&'a str>,
    created: Option<&'a Time>,
}

impl<'a> Reserved<'a> {
    /// Looks for holders of the addresses that are `claimed`.
    pub(super) fn new(snapshot: &'a Snapshot, config: &Config, claimed: Claimed<'_>, rejections: &mut Vec<Rejection>) -> Self {
        let mut reserved = Self { holders: BTreeMap::new(), pod_networks: Vec::new(), endpoints: BTreeMap::new() };
        reserved.add_nodes(snapshot, claimed, rejections);
        for (name, service) in &snapshot.services {
            let spec = service.spec.iter();
            for text in spec.flat_map(|spec| spec.cluster_ip.iter().chain(spec.cluster_ips.iter().flatten())) {
                reserved.hold(claimed, text, || format!("is the cluster IP of {name}"));
            }
        }
        for (name, peer) in &config.bgp.peers {
            if let Some(address) = peer.address.known().filter(|address| claimed(*address)) {
                reserved.holders.entry(address).or_insert_with(|| format!("is the address of the BGP peer {name}"));
            }
        }
        for (name, group) in &config.vrrp.groups {
            let DesiredGroup { addresses, source_ipv4, source_ipv6, .. } = group;
            let sources = source_ipv4.map(IpAddr::V4).into_iter().chain(source_ipv6.map(IpAddr::V6));
            let theirs = addresses.iter().map(|address| (*address, "an address"));
            let sources = sources.map(|address| (address, "the source of advertisements"));
            let peers = group.transport.peers().map(|address| (address, "the address of a peer"));
            for (address, what) in theirs.chain(sources).chain(peers).filter(|(address, _)| claimed(*address)) {
                reserved.holders.entry(address).or_insert_with(|| format!("is {what} of the virtual router {name} (vrrp.groups)"));
            }
        }
        reserved.add_endpoints(snapshot, claimed);
        reserved
    }

    /// Who has the address that `object` of this age claims, in words, if anybody has.
    pub(super) fn holder(&self, vip: IpAddr, object: &ObjectRef, created: Option<&Time>) -> Option<String> {
        if let Some(holder) = self.holders.get(&vip) {
            return Some(holder.clone());
        }
        if let Some((prefix, node)) = self.pod_networks.iter().find(|(prefix, _)| prefix.contains(vip)) {
            return Some(format!("is in the pod network {prefix} of {node}"));
        }
        let endpoint = self.endpoints.get(&vip)?.iter().find(|endpoint| endpoint.outranks(object, created))?;
        Some(format!("is an endpoint in {}", endpoint.slice))
    }

    fn hold(&mut self, claimed: Claimed<'_>, text: &str, holder: impl FnOnce() -> String) {
        if let Ok(address) = text.parse()
            && claimed(address)
        {
            self.holders.entry(address).or_insert_with(holder);
        }
    }

    fn add_nodes(&mut self, snapshot: &'a Snapshot, claimed: Claimed<'_>, rejections: &mut Vec<Rejection>) {
        for (name, node) in &snapshot.nodes {
            let status = node.status.iter();
            for address in status.flat_map(|status| status.addresses.iter().flatten()) {
                self.hold(claimed, &address.address, || format!("is an address of {name}"));
            }
            let spec = node.spec.iter();
            let networks: BTreeSet<_> = spec.flat_map(|spec| spec.pod_cidr.iter().chain(spec.pod_cidrs.iter().flatten())).collect();
            for text in networks {
                match prefix(text) {
                    Some(prefix) => self.pod_networks.push((prefix, name)),
                    None => {
                        let message = format!("spec.podCIDRs: {} is no prefix; VIPs in it are not refused", quoted(text));
                        rejections.push(Rejection::object(name, RejectionReason::Invalid, message));
                    }
                }
            }
        }
    }

    fn add_endpoints(&mut self, snapshot: &'a Snapshot, claimed: Claimed<'_>) {
        for (name, slice) in &snapshot.endpoint_slices {
            for endpoint in &slice.endpoints {
                for address in endpoint.addresses.iter().filter_map(|text| parse_address(text).ok()).filter(|address| claimed(*address)) {
                    let created = slice.metadata.creation_timestamp.as_ref();
                    let holder = EndpointHolder { slice: name, service: service_of(slice), created };
                    self.endpoints.entry(address).or_default().push(holder);
                }
            }
        }
    }
}

impl EndpointHolder<'_> {
    /// Whether the slice keeps the address from the claim of this object. As among claims, what tells no age is younger than what does.
    fn outranks(&self, object: &ObjectRef, created: Option<&Time>) -> bool {
        let own = object.kind == Kind::Service && object.namespace == self.slice.namespace && self.service == Some(object.name.as_str());
        !own && (self.created.is_none(), self.created) < (created.is_none(), created)
    }
}

fn prefix(text: &str) -> Option<Prefix> {
    let (address, length) = text.split_once('/')?;
    Prefix::truncated(address.parse().ok()?, length.parse().ok()?).ok()
}
