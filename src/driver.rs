// SPDX-License-Identifier: Apache-2.0
//! The drivers: each runs a protocol core on sockets and a clock, on a thread of its own.
//!
//! A driver makes no choices. It feeds its core what happened, carries out the actions that come back in their order, and sleeps until the core's
//! deadline. The slow loop never holds one up: whole desired sets come in, immutable snapshots go out.

pub mod bgp;
pub mod kube;
pub mod vrrp;
