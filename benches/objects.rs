// SPDX-License-Identifier: Apache-2.0
//! The objects of a node with many virtual services: Services, 5,000 of them where not fewer are asked for, each with a VIP, three ports and four endpoints.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Service, ServicePort, ServiceSpec};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointConditions, EndpointPort, EndpointSlice};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use vipherald::api::{Kind, ObjectRef};
use vipherald::config::{self, Config};
use vipherald::desired::BalancerKind;
use vipherald::source::Snapshot;

pub(crate) const VIPS: u32 = 5_000;
pub(crate) const PORTS: u16 = 3;
pub(crate) const ENDPOINTS: u32 = 4;

/// A node that balances them.
pub(crate) fn config(balancer: BalancerKind) -> Config {
    let kind = match balancer {
        BalancerKind::Ipvs => "ipvs",
        BalancerKind::Nftables => "nftables",
    };
    let text =
        format!("node: {{name: node-1}}\nbgp: {{asn: 65001}}\nvips: {{allow: [{{prefix: 11.0.0.0/8}}]}}\ndataplane: {{type: {kind}}}\n");
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), text).unwrap();
    config::load(file.path(), &BTreeMap::new()).unwrap()
}

pub(crate) fn vip(number: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(0x0B00_0001 + number)
}

pub(crate) fn endpoint(service: u32, number: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(0x0A40_0001 + service * ENDPOINTS + number)
}

fn named(kind: Kind, number: u32) -> ObjectRef {
    ObjectRef { kind, namespace: "default".to_owned(), name: format!("s{number}") }
}

pub(crate) fn snapshot(vips: u32) -> Snapshot {
    let mut snapshot = Snapshot { complete: true, ..Snapshot::default() };
    for number in 0..vips {
        snapshot.services.insert(named(Kind::Service, number), Arc::new(service(number)));
        snapshot.endpoint_slices.insert(named(Kind::EndpointSlice, number), Arc::new(slice(number, ENDPOINTS)));
    }
    snapshot
}

/// One endpoint of one Service more or less.
pub(crate) fn change(snapshot: &mut Snapshot, vips: u32, number: usize) {
    let endpoints = if number.is_multiple_of(2) { ENDPOINTS - 1 } else { ENDPOINTS };
    snapshot.endpoint_slices.insert(named(Kind::EndpointSlice, vips / 2), Arc::new(slice(vips / 2, endpoints)));
}

fn service(number: u32) -> Service {
    let port = |port: u16| ServicePort {
        name: Some(format!("p{port}")),
        port: i32::from(80 + port),
        protocol: Some("UDP".to_owned()),
        ..ServicePort::default()
    };
    let spec = ServiceSpec {
        external_ips: Some(vec![vip(number).to_string()]),
        ports: Some((0..PORTS).map(port).collect()),
        ..ServiceSpec::default()
    };
    Service { metadata: metadata(number), spec: Some(spec), ..Service::default() }
}

fn slice(number: u32, endpoints: u32) -> EndpointSlice {
    let ready = EndpointConditions { ready: Some(true), ..EndpointConditions::default() };
    let endpoint =
        |of| Endpoint { addresses: vec![endpoint(number, of).to_string()], conditions: Some(ready.clone()), ..Endpoint::default() };
    let port = |port: u16| EndpointPort {
        name: Some(format!("p{port}")),
        port: Some(i32::from(8080 + port)),
        protocol: Some("UDP".to_owned()),
        ..EndpointPort::default()
    };
    let mut metadata = metadata(number);
    metadata.labels = Some(BTreeMap::from([("kubernetes.io/service-name".to_owned(), format!("s{number}"))]));
    EndpointSlice {
        metadata,
        address_type: "IPv4".to_owned(),
        endpoints: (0..endpoints).map(endpoint).collect(),
        ports: Some((0..PORTS).map(port).collect()),
    }
}

fn metadata(number: u32) -> ObjectMeta {
    ObjectMeta { namespace: Some("default".to_owned()), name: Some(format!("s{number}")), ..ObjectMeta::default() }
}
