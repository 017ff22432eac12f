// SPDX-License-Identifier: Apache-2.0
//! The chart, by the real Helm: what it renders of each values file in `charts/vipherald/ci`, what it refuses, and how it lives in a real API server.
//!
//! Needs `make helm` and `make apiserver` once, and root; fails without. `UPDATE_GOLDENS=1` writes what is rendered, and the schema of the configuration, anew.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test fails by a panic")]

#[path = "common/accounts.rs"]
mod accounts;
#[path = "common/apiserver.rs"]
mod apiserver;
#[path = "common/certificates.rs"]
mod certificates;
#[path = "helm/chart.rs"]
mod chart;
#[path = "helm/cluster.rs"]
mod cluster;
mod common;
#[path = "helm/kubelet.rs"]
mod kubelet;
#[path = "helm/node_setup.rs"]
mod node_setup;
#[path = "helm/parts.rs"]
mod parts;
#[path = "common/passage.rs"]
mod passage;
#[path = "helm/policy.rs"]
mod policy;
#[path = "common/port.rs"]
mod port;
#[path = "helm/rendered.rs"]
mod rendered;
#[path = "helm/schema.rs"]
mod schema;
#[path = "common/tor.rs"]
mod tor;
