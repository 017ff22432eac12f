// SPDX-License-Identifier: Apache-2.0
//! BGP-4 as a value: bytes, routes and time go in, bytes and events come out.
//!
//! No socket, clock, task, channel or source of randomness is in this crate; a driver owns those. The tour, in the order in which data flows:
//!
//! - [`wire`]: messages to and from octets (RFC 4271 §4, RFC 4760, RFC 5492, RFC 6793, RFC 2918, RFC 7606).
//! - [`peer`]: one neighbour: the state machine of RFC 4271 §8, its timers as deadlines, and collision by value (§6.8).
//! - [`rib`]: [`LocRib`](rib::LocRib), the routes this speaker has, and [`AdjRibOut`](rib::AdjRibOut), what one peer was told of them.
//! - [`identity`], [`prefix`]: the numbers and prefixes that all of them speak of.
#![forbid(unsafe_code)]

pub mod identity;
pub mod peer;
pub mod prefix;
pub mod rib;
pub mod wire;

pub use identity::{Asn, BgpIdentifier, HoldTime};
pub use prefix::{Family, Prefix};
