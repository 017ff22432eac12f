// SPDX-License-Identifier: Apache-2.0
//! What the daemon says in the Kubernetes API: conditions, addresses of load balancers, Events, RouterNodes and the Lease, with a real API server, the
//! rights of the chart and no others, a real kernel and a real ToR.
//!
//! Needs root, `make apiserver` once or `KUBEBUILDER_ASSETS`, and the packages of `tests/packages.txt`; fails without.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test fails by a panic")]

#[path = "common/accounts.rs"]
mod accounts;
#[path = "common/api_proxy.rs"]
mod api_proxy;
#[path = "common/apiserver.rs"]
mod apiserver;
#[path = "kubernetes_status/balancers.rs"]
mod balancers;
#[path = "kubernetes_status/beside.rs"]
mod beside;
#[path = "common/certificates.rs"]
mod certificates;
#[path = "common/client.rs"]
mod client;
#[path = "kubernetes_status/cluster.rs"]
mod cluster;
mod common;
#[path = "kubernetes_status/conditions.rs"]
mod conditions;
#[path = "kubernetes_status/endpoints.rs"]
mod endpoints;
#[path = "kubernetes_status/faults.rs"]
mod faults;
#[path = "kubernetes_status/label.rs"]
mod label;
#[path = "kubernetes_status/lease.rs"]
mod lease;
#[path = "kubernetes_status/maintenance.rs"]
mod maintenance;
#[path = "common/passage.rs"]
mod passage;
#[path = "kubernetes_status/peers.rs"]
mod peers;
#[path = "common/port.rs"]
mod port;
#[path = "kubernetes_status/releases.rs"]
mod releases;
#[path = "kubernetes_status/rights.rs"]
mod rights;
#[path = "common/tor.rs"]
mod tor;
