// SPDX-License-Identifier: Apache-2.0
//! What the tests of Kubernetes stand on: a real control plane, and the proxy that makes its API server misbehave.
//!
//! Needs `make apiserver` once, or `KUBEBUILDER_ASSETS`; fails without.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test fails by a panic")]

#[path = "common/api_proxy.rs"]
mod api_proxy;
#[path = "common/apiserver.rs"]
mod apiserver;
#[path = "common/certificates.rs"]
mod certificates;
mod common;
#[path = "kubernetes_api/control_plane.rs"]
mod control_plane;
#[path = "common/port.rs"]
mod port;
#[path = "kubernetes_api/proxy.rs"]
mod proxy;
