// SPDX-License-Identifier: Apache-2.0
//! The Kubernetes objects that the product reads, how they are named, and the two kinds that it offers.
//!
//! Input: objects as somebody wrote them. Output: typed ones of which every field has been checked; [`EricIngress`] and [`LvsIngress`] cannot hold
//! a value that could not be honoured by some dataplane. Unknown fields are ignored here, as an API server prunes them; a source that stands in
//! for an API server reports them.
//!
//! Supported: `EricIngress` (`routing.ericingress.ericsson.com/v1alpha1`), `LvsIngress` (`routing.lvsingress.ericsson.com/v1alpha1`).

pub mod crd;
mod ingress;
pub(crate) mod raw;
mod router_node;
mod selector;

use std::fmt;
use std::net::IpAddr;

use bgp::Prefix;
use ipnetwork::IpNetwork;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Serialize};

pub use ingress::{
    FieldError, ForwardingMethod, IngressSpec, InvalidFields, PortMapping, PortRange, PortRangeError, Protocol, Scheduler, UnknownWord,
};
pub use selector::LabelSelector;
pub(crate) use selector::{is_label_key, is_label_value};

pub use router_node::{
    INSTANCE_LABEL, ObjectCondition, RouterNodePeer, RouterNodeStatus, RouterNodeVirtualRouter, VipGroup, router_node_name,
};

/// The annotation, or else the label, by which an object names the policy of its VIPs.
pub const POLICY_KEY: &str = "vipherald.io/bgp-policy";

/// The annotation by which an object says whether its real servers see the address of the client, `true` or `false`.
pub const PRESERVE_CLIENT_KEY: &str = "vipherald.io/preserve-client-address";

/// The annotation by which a Service asks kube-proxy to prefer endpoints that are near.
pub const TOPOLOGY_MODE_KEY: &str = "service.kubernetes.io/topology-mode";

/// The `loadBalancerClass` of the Services of `type: LoadBalancer` that get their addresses here.
pub const LOAD_BALANCER_CLASS: &str = "vipherald.io/vip";

/// The annotation by which such a Service asks for addresses, with commas between them.
pub const IPS_KEY: &str = "vipherald.io/ips";

/// The annotation by which such a Service asks for a pool of `vips.pools`.
pub const POOL_KEY: &str = "vipherald.io/pool";

/// The annotation with which such Services of one namespace say that they may have an address together.
pub const SHARING_KEY: &str = "vipherald.io/sharing-key";

/// The label of Kubernetes with which a Node says that no load balancer is to send traffic to it. It counts whatever its value is.
pub const EXCLUDED_LABEL: &str = "node.kubernetes.io/exclude-from-external-load-balancers";

/// The label by which an object, or a namespace for all in it, says to which domain it belongs.
pub const DOMAIN_LABEL: &str = "vipherald.io/domain";

/// The kinds that are read.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize, Deserialize)]
pub enum Kind {
    /// `v1` Service.
    Service,
    /// `discovery.k8s.io/v1` EndpointSlice.
    EndpointSlice,
    /// `v1` Node.
    Node,
    /// `v1` Namespace, for its labels.
    Namespace,
    /// `apps/v1` DaemonSet.
    DaemonSet,
    /// `apps/v1` StatefulSet.
    StatefulSet,
    /// EricIngress.
    EricIngress,
    /// LvsIngress.
    LvsIngress,
}

impl Kind {
    /// All kinds that are read.
    pub const ALL: [Self; 8] = [
        Self::Service,
        Self::EndpointSlice,
        Self::Node,
        Self::Namespace,
        Self::DaemonSet,
        Self::StatefulSet,
        Self::EricIngress,
        Self::LvsIngress,
    ];

    /// Its name in `kind`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Service => "Service",
            Self::EndpointSlice => "EndpointSlice",
            Self::Node => "Node",
            Self::Namespace => "Namespace",
            Self::DaemonSet => "DaemonSet",
            Self::StatefulSet => "StatefulSet",
            Self::EricIngress => "EricIngress",
            Self::LvsIngress => "LvsIngress",
        }
    }

    /// The one `apiVersion` in which it is read.
    #[must_use]
    pub const fn api_version(self) -> &'static str {
        match self {
            Self::Service | Self::Node | Self::Namespace => "v1",
            Self::EndpointSlice => "discovery.k8s.io/v1",
            Self::DaemonSet | Self::StatefulSet => "apps/v1",
            Self::EricIngress => "routing.ericingress.ericsson.com/v1alpha1",
            Self::LvsIngress => "routing.lvsingress.ericsson.com/v1alpha1",
        }
    }

    /// Whether its objects live in a namespace.
    #[must_use]
    pub const fn is_namespaced(self) -> bool {
        !matches!(self, Self::Node | Self::Namespace)
    }

    /// Whether it is a CustomResourceDefinition that `vipherald crds apply` installs.
    #[must_use]
    pub const fn is_installed_by_us(self) -> bool {
        matches!(self, Self::EricIngress | Self::LvsIngress)
    }
}

/// Names one object. Prints as `Service default/nginx`, or `Node node-1` where there is no namespace.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize, Deserialize)]
pub struct ObjectRef {
    /// Its kind.
    pub kind: Kind,
    /// Its namespace; empty for cluster-scoped kinds.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl fmt::Display for ObjectRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.namespace.is_empty() {
            write!(f, "{} {}", self.kind.name(), self.name)
        } else {
            write!(f, "{} {}/{}", self.kind.name(), self.namespace, self.name)
        }
    }
}

/// A VIP whose ports go to the Service of `spec.backends`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "raw::EricIngress", into = "raw::EricIngress")]
pub struct EricIngress {
    /// Name, namespace and the like.
    pub metadata: ObjectMeta,
    /// What is wanted, checked.
    pub spec: IngressSpec,
}

/// The older form of [`EricIngress`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "raw::LvsIngress", into = "raw::LvsIngress")]
pub struct LvsIngress {
    /// Name, namespace and the like.
    pub metadata: ObjectMeta,
    /// What is wanted, checked. Its [`ForwardingMethod`] is always `Masquerade`, which is all that this kind can say.
    pub spec: IngressSpec,
    /// What the controller reported.
    pub status: Option<LvsIngressStatus>,
}

/// What the controller says of an LvsIngress.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LvsIngressStatus {
    /// The generation of the object that is in force.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub change_id: Option<i64>,
}

/// Reads an address as it stands in a field: no prefix length, no zone, no leading zeros.
///
/// # Errors
/// In words, without the name of the field.
pub(crate) fn parse_address(text: &str) -> Result<IpAddr, String> {
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    let found = quoted(text);
    Err(match text.split_once('/') {
        Some((address, _)) if address.parse::<IpAddr>().is_ok() => format!("{found} has a prefix length; write {address} only"),
        _ if text.contains('%') => format!("{found} has a zone; a VIP is valid everywhere"),
        _ if text.trim().parse::<IpAddr>().is_ok() => format!("{found} has spaces around the address"),
        _ => format!("{found} is no IPv4 or IPv6 address"),
    })
}

/// Reads a range of addresses such as `10.0.0.0/8`. As an API server does, it overlooks spaces around it and bits behind the prefix.
///
/// # Errors
/// In words, without the name of the field.
pub(crate) fn parse_prefix(text: &str) -> Result<Prefix, String> {
    let network = text.contains('/').then(|| text.trim().parse::<IpNetwork>().ok()).flatten();
    let prefix = network.and_then(|network| Prefix::new(network.network(), network.prefix()).ok());
    prefix.ok_or_else(|| format!("{} is no range of addresses such as 10.0.0.0/8 or 2001:db8::/32", quoted(text)))
}

/// Somebody else's text for a message: quoted, escaped, and cut where it is long.
pub(crate) fn quoted(text: &str) -> String {
    const LONGEST: usize = 80;
    match text.char_indices().nth(LONGEST) {
        None => format!("{text:?}"),
        Some((end, _)) => format!("{:?}...", text.get(..end).unwrap_or_default()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_in_their_plain_form_only() {
        assert_eq!(parse_address("10.0.0.7").unwrap().to_string(), "10.0.0.7");
        assert_eq!(parse_address("2001:DB8:7:0::7").unwrap().to_string(), "2001:db8:7::7");
        for (text, message) in [
            ("10.0.0.7/32", r#""10.0.0.7/32" has a prefix length; write 10.0.0.7 only"#),
            ("fe80::1%eth0", r#""fe80::1%eth0" has a zone; a VIP is valid everywhere"#),
            (" 10.0.0.7", r#"" 10.0.0.7" has spaces around the address"#),
            ("10.0.0.007", r#""10.0.0.007" is no IPv4 or IPv6 address"#),
            ("10.0.0.256", r#""10.0.0.256" is no IPv4 or IPv6 address"#),
            ("", r#""" is no IPv4 or IPv6 address"#),
            ("www.example.org", r#""www.example.org" is no IPv4 or IPv6 address"#),
        ] {
            assert_eq!(parse_address(text).unwrap_err(), message);
        }
    }

    #[test]
    fn long_and_unprintable_text_is_cut_and_escaped() {
        assert_eq!(quoted("a\nb"), r#""a\nb""#);
        assert_eq!(quoted(&"é".repeat(200)), format!("\"{}\"...", "é".repeat(80)));
    }
}
