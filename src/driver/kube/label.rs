// SPDX-License-Identifier: Apache-2.0
//! Keeps the address of the external interface on the Node of this daemon, as its label `externalIP`.
//!
//! Inputs: `node.labelExternalIP`, `node.externalInterface`, the Node, the interface. Output: the label, written where it is not there or another one. A label value
//! cannot be an IPv6 address, so it is the first IPv4 address of the interface that is no VIP; where no interface is named, the Node's `ExternalIP`, else its
//! `InternalIP`. Invariants: an address that is not known takes no label away; nothing is written where the label is switched off, for which
//! the right to write may be missing. Several releases may want the same label of one Node: each applies it once (Server-Side Apply), whether it is there or
//! not, so that it stays until the last of them takes it back.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Node;
use nix::ifaddrs::getifaddrs;
use serde_json::json;

use super::pace::Pace;
use super::request::{ApiServer, Place, RequestError};
use crate::config::Config;
use crate::telemetry::chain;

/// The label.
const LABEL: &str = "externalIP";

/// The addresses of an interface are looked at so often.
const LOOK: Duration = Duration::from_secs(30);

/// See the module.
pub(super) struct NodeLabel {
    /// Who writes it.
    manager: String,
    pace: Pace,
    /// What this process has applied, and to which Node, by its UID.
    applied: Option<(String, Ipv4Addr)>,
    look_at: Instant,
    trouble: Option<String>,
    denied: Option<String>,
}

impl NodeLabel {
    pub(super) fn new(instance: &str, seed: u64) -> Self {
        let now = Instant::now();
        Self { manager: instance.to_owned(), pace: Pace::new(now, seed), applied: None, look_at: now, trouble: None, denied: None }
    }

    /// When [`Self::turn`] has something to do though nothing has changed.
    pub(super) const fn deadline(&self) -> Instant {
        self.look_at
    }

    /// Why the label is not as it should be.
    pub(super) fn trouble(&self) -> Option<&str> {
        self.trouble.as_deref()
    }

    /// The right that is missing, if it is.
    pub(super) fn denied(&self) -> Option<&str> {
        self.denied.as_deref()
    }

    /// Writes the label where it differs; `is_vip` tells which addresses are VIPs.
    pub(super) async fn turn(&mut self, server: &ApiServer, config: &Config, node: Option<&Node>, is_vip: impl Fn(&IpAddr) -> bool) {
        let now = Instant::now();
        self.look_at = now + LOOK;
        let Some(node) = node.filter(|_| config.label_external_ip) else {
            (self.trouble, self.denied) = (None, None);
            return;
        };
        let wanted = match &config.external_interface {
            Some(interface) => of_interface(interface, is_vip),
            None => Ok(of_node(node)),
        };
        let result = match wanted {
            Ok(Some(address)) if !(is_labelled(node, address) && self.has_applied(node, address)) => {
                if self.pace.next() > now {
                    self.look_at = self.pace.next();
                    return;
                }
                self.write(server, node, Some(address)).await
            }
            Ok(_) => Ok(()),
            Err(trouble) => {
                self.complain(trouble);
                return;
            }
        };
        self.denied = result.as_ref().err().and_then(RequestError::missing_right);
        match result {
            Ok(()) => self.trouble = None,
            Err(error) => {
                self.pace.failed(Instant::now(), error.retry_after());
                self.look_at = self.pace.next();
                self.complain(format!("label {LABEL}: {}", chain(&error)));
            }
        }
    }

    /// Takes the label away, where it is ours: this node leaves for good.
    pub(super) async fn remove(&mut self, server: &ApiServer, config: &Config, node: Option<&Node>) {
        let labelled = |node: &&Node| node.metadata.labels.as_ref().is_some_and(|labels| labels.contains_key(LABEL));
        let Some(node) = node.filter(|_| config.label_external_ip).filter(labelled) else { return };
        if let Err(error) = self.write(server, node, None).await {
            tracing::warn!(error = chain(&error), "the label {LABEL} of the Node stays behind");
        }
    }

    /// Applies it to the very Node that is known: to one that came again under the same name, and is not known yet, it is nobody's.
    async fn write(&mut self, server: &ApiServer, node: &Node, address: Option<Ipv4Addr>) -> Result<(), RequestError> {
        let name = node.metadata.name.as_deref().unwrap_or_default();
        let labels: BTreeMap<&str, String> = address.iter().map(|address| (LABEL, address.to_string())).collect();
        let metadata = json!({"name": name, "uid": node.metadata.uid, "labels": labels});
        let body = json!({"apiVersion": "v1", "kind": "Node", "metadata": metadata});
        server.apply(&Place::other(format!("/api/v1/nodes/{name}"), "nodes"), &self.manager, &body).await?;
        self.applied = address.map(|address| (uid(node).to_owned(), address));
        self.pace.written(Instant::now());
        Ok(())
    }

    fn has_applied(&self, node: &Node, address: Ipv4Addr) -> bool {
        self.applied.as_ref().is_some_and(|(to, applied)| to == uid(node) && *applied == address)
    }

    fn complain(&mut self, trouble: String) {
        if self.trouble.as_ref() != Some(&trouble) {
            tracing::warn!(trouble, "the label of the Node is not as it should be; it is tried again");
        }
        self.trouble = Some(trouble);
    }
}

fn uid(node: &Node) -> &str {
    node.metadata.uid.as_deref().unwrap_or_default()
}

fn is_labelled(node: &Node, address: Ipv4Addr) -> bool {
    node.metadata.labels.as_ref().and_then(|labels| labels.get(LABEL)).is_some_and(|value| *value == address.to_string())
}

/// The first IPv4 address that hosts on its link can use, and that is no VIP.
fn of_interface(interface: &str, is_vip: impl Fn(&IpAddr) -> bool) -> Result<Option<Ipv4Addr>, String> {
    let all = getifaddrs().map_err(|error| format!("label {LABEL}: the addresses of {interface} cannot be read: {error}"))?;
    let of_it = all.filter(|entry| entry.interface_name == interface).filter_map(|entry| Some(entry.address?.as_sockaddr_in()?.ip()));
    let mut fit = of_it.filter(|address| !(address.is_link_local() || address.is_loopback() || is_vip(&IpAddr::V4(*address))));
    fit.next().map(Some).ok_or_else(|| format!("label {LABEL}: node.externalInterface {interface} has no IPv4 address; it stays as it is"))
}

/// The first IPv4 address of the best type that the Node has.
fn of_node(node: &Node) -> Option<Ipv4Addr> {
    let addresses = || node.status.iter().flat_map(|status| status.addresses.iter().flatten());
    let of_type = |wanted: &str| addresses().filter(|address| address.type_ == wanted).find_map(|address| address.address.parse().ok());
    of_type("ExternalIP").or_else(|| of_type("InternalIP"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::dir::snapshot_of;

    #[test]
    fn the_external_address_of_a_node_comes_before_the_internal_one_and_is_ipv4() {
        for (addresses, expected) in [
            ("", None),
            ("{type: InternalIP, address: 192.0.2.1}", Some("192.0.2.1")),
            ("{type: InternalIP, address: 192.0.2.1}, {type: ExternalIP, address: 198.51.100.1}", Some("198.51.100.1")),
            ("{type: ExternalIP, address: '2001:db8::1'}, {type: InternalIP, address: 192.0.2.1}", Some("192.0.2.1")),
            ("{type: Hostname, address: 192.0.2.9}, {type: InternalIP, address: '2001:db8::1'}", None),
        ] {
            let text = format!("apiVersion: v1\nkind: Node\nmetadata: {{name: n1}}\nstatus: {{addresses: [{addresses}]}}\n");
            let snapshot = snapshot_of(&text);
            let node = snapshot.nodes.values().next().unwrap();
            assert_eq!(of_node(node), expected.map(|text| text.parse().unwrap()), "{addresses}");
        }
    }

    #[test]
    fn an_interface_without_a_fit_address_is_named() {
        let none = |interface: &str| of_interface(interface, |_| false).unwrap_err();
        assert_eq!(none("absent0"), "label externalIP: node.externalInterface absent0 has no IPv4 address; it stays as it is");
        assert!(none("lo").contains("lo has no IPv4 address"), "127.0.0.1 is nobody's external address");
    }
}
