// SPDX-License-Identifier: Apache-2.0
//! VRRP as a value: datagrams, news of the node and time go in, datagrams and what is to become of the virtual addresses come out.
//!
//! No socket, clock, task, channel or source of randomness is in this crate; a driver owns those. The tour, in the order in which data flows:
//!
//! - [`wire`]: advertisements to and from octets (RFC 9568 §5, §7.1; RFC 3768 for version 2), gratuitous ARP and unsolicited Neighbor Advertisements.
//! - [`router`]: one virtual router: the state machine of RFC 9568 §6.4, its timers as deadlines.
//! - [`group`]: virtual routers that are Active together or not at all, as those of IPv4 and IPv6 of one node.
//! - [`identity`]: the numbers and addresses that all of them speak of.
#![forbid(unsafe_code)]

pub mod group;
pub mod identity;
pub mod router;
pub mod wire;

pub use identity::{Addresses, Family, Interval, Priority, Version, Vrid};
