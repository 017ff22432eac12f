// SPDX-License-Identifier: Apache-2.0
//! Objects from a real API server, with the rights of the chart and no others: what arrives, what stays when the server fails, what it refuses itself.
//!
//! Needs `make apiserver` once, or `KUBEBUILDER_ASSETS`; fails without. Each test has an API server of its own, since all of a cluster is followed.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test fails by a panic")]

#[path = "common/accounts.rs"]
mod accounts;
#[path = "common/api_proxy.rs"]
mod api_proxy;
#[path = "common/apiserver.rs"]
mod apiserver;
#[path = "common/certificates.rs"]
mod certificates;
mod common;
#[path = "kubernetes_source/definitions.rs"]
mod definitions;
#[path = "kubernetes_source/faults.rs"]
mod faults;
#[path = "kubernetes_source/following.rs"]
mod following;
#[path = "common/port.rs"]
mod port;
#[path = "kubernetes_source/rights.rs"]
mod rights;
#[path = "kubernetes_source/scene.rs"]
mod scene;
