// SPDX-License-Identifier: Apache-2.0
//! Routes (RFC 4271 §3.2), in the order in which they flow: [`AdjRibIn`], what one peer told; [`Reflector`], all paths; [`LocRib`], the same by
//! destination, the best first; and [`AdjRibOut`], what one peer was told of them. A speaker that reflects nothing has the last two only.
//!
//! Input: whole sets of routes, UPDATEs, what a session negotiated, the policy of a peer, the addresses of its connection, time, and TCP's
//! acknowledgements. Output: UPDATEs in octets, and which destinations the peer may hold. No route of a peer reaches a kernel.
//!
//! Invariants: a destination of ours that the peer may hold is either advertised or being withdrawn, never neither and never both. What is told to a
//! peer ends with its session.
//!
//! Supported standards: RFC 4271 §5, §9.1.3, §9.2; RFC 1997, 4360, 8092 (communities); RFC 4724 §2 (End-of-RIB); RFC 2545, RFC 4760 (IPv6 unicast);
//! RFC 2918 §4, RFC 7313 (answer to a refresh); RFC 4456 (reflection); RFC 4724 §4.2, RFC 9494 (stale routes); RFC 7911 (several paths); RFC 8326
//! (graceful shutdown); RFC 8654 (long messages); RFC 8950 (IPv6 next hops of IPv4); RFC 9234 §5 (ONLY_TO_CUSTOMER).

mod adj_rib_in;
mod adj_rib_out;
mod best_path;
mod export;
mod loc_rib;
#[cfg(test)]
pub(crate) mod receiver;
mod reflector;
mod route;

pub use adj_rib_in::{AdjRibIn, Held, Import, Ineligible, Session};
pub use adj_rib_out::{AdjRibOut, Advertisement, Batch, Outgoing, Progress};
pub use best_path::best_path;
pub use export::{Export, LocalAddresses, NextHopPolicy, Target, Withheld};
pub use loc_rib::{Changes, LocRib, Path};
pub use reflector::{Learnt, Reflector};
pub use route::{Learned, NextHops, PeerId, Route, Source, UnknownAttribute};
