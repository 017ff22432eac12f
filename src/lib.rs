// SPDX-License-Identifier: Apache-2.0
//! vipherald: puts VIPs on a router node, keeps them served, and announces them by BGP while they are.
//!
//! The tour, in the order in which data flows. [`cli`] is the command line; [`config`] the typed node configuration; [`api`] the Kubernetes
//! objects; [`source`] reads them into a whole [`Snapshot`](source::Snapshot); [`desired`] compiles that into [`Desired`](desired::Desired) and
//! rejections; [`observed`] is what kernel and speaker say; [`plan`](mod@plan) compares both and decides, as data; [`reconcile`] repeats
//! observe, plan, execute; [`actuator`] changes the kernel; [`driver`] runs the protocol cores; [`status`] explains each VIP; [`admin`] and
//! [`telemetry`] show it. Beside that way, [`doctor`] looks at a node without a daemon, and [`target`] is for the other end: a pod that answers clients
//! itself.
#![forbid(unsafe_code)]

pub mod actuator;
pub mod admin;
pub mod api;
pub mod cli;
pub mod config;
pub mod desired;
pub mod doctor;
pub mod driver;
pub mod observed;
pub mod plan;
pub mod reconcile;
pub mod source;
mod spelling;
pub mod status;
pub mod sysctl;
pub mod target;
pub mod telemetry;
