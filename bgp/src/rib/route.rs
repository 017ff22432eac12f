// SPDX-License-Identifier: Apache-2.0
//! One route: what is known of the way to a destination, before the policy of any session is applied to it.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, Ipv6Addr};

use crate::identity::Asn;
use crate::wire::{AsPath, Origin};

/// What is known of the way to a destination (RFC 4271 §3.1). Two that are equal are announced together.
///
/// What is `None` or empty here is as the policy of each peer says.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Route {
    /// How it came into BGP (RFC 4271 §5.1.1).
    pub origin: Origin,
    /// The ASes that it has passed, without ours (RFC 4271 §5.1.2).
    pub as_path: AsPath,
    /// How often our AS is put in front once more, towards external peers.
    pub prepend: u8,
    /// Where packets go, where that is not us.
    pub next_hop: NextHops,
    /// MULTI_EXIT_DISC (RFC 4271 §5.1.4).
    pub med: Option<u32>,
    /// LOCAL_PREF, for internal peers (RFC 4271 §5.1.5).
    pub local_preference: Option<u32>,
    /// COMMUNITIES (RFC 1997).
    pub communities: BTreeSet<u32>,
    /// LARGE_COMMUNITY (RFC 8092).
    pub large_communities: BTreeSet<[u32; 3]>,
    /// Extended Communities (RFC 4360); one of them may be a [`link_bandwidth`].
    pub extended_communities: BTreeSet<u64>,
}

/// A next hop for each family.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub struct NextHops {
    /// Of IPv4 routes.
    pub ipv4: Option<Ipv4Addr>,
    /// Of IPv6 routes.
    pub ipv6: Option<Ipv6Addr>,
}

impl Route {
    /// A route that starts here: origin IGP, empty path.
    #[must_use]
    pub const fn originated() -> Self {
        Self {
            origin: Origin::Igp,
            as_path: AsPath(Vec::new()),
            prepend: 0,
            next_hop: NextHops { ipv4: None, ipv6: None },
            med: None,
            local_preference: None,
            communities: BTreeSet::new(),
            large_communities: BTreeSet::new(),
            extended_communities: BTreeSet::new(),
        }
    }
}

/// Communities that every speaker knows.
pub mod well_known {
    /// GRACEFUL_SHUTDOWN (RFC 8326 §2).
    pub const GRACEFUL_SHUTDOWN: u32 = 0xFFFF_0000;
    /// LLGR_STALE (RFC 9494 §3.2).
    pub const LLGR_STALE: u32 = 0xFFFF_0006;
    /// NO_LLGR (RFC 9494 §3.3).
    pub const NO_LLGR: u32 = 0xFFFF_0007;
    /// NO_EXPORT (RFC 1997).
    pub const NO_EXPORT: u32 = 0xFFFF_FF01;
    /// NO_ADVERTISE (RFC 1997).
    pub const NO_ADVERTISE: u32 = 0xFFFF_FF02;
    /// NO_EXPORT_SUBCONFED (RFC 1997).
    pub const NO_EXPORT_SUBCONFED: u32 = 0xFFFF_FF03;
}

/// Type and sub-type of the Link Bandwidth Extended Community (draft-ietf-idr-link-bandwidth §2).
const LINK_BANDWIDTH: u64 = 0x4004 << 48;

/// The Link Bandwidth Extended Community: what an AS can carry to the destination, in octets per second. An AS number over two octets is AS_TRANS.
///
/// ```text
///  0                   1                   2                   3
///  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// |     0x40      |     0x04      |           AS Number           |
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// |               Bandwidth (IEEE floating point)                 |
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// ```
#[must_use]
pub fn link_bandwidth(asn: Asn, octets_per_second: f32) -> u64 {
    LINK_BANDWIDTH | u64::from(asn.two_octet()) << 32 | u64::from(octets_per_second.to_bits())
}

/// Whether an extended community is a [`link_bandwidth`].
pub(super) const fn is_link_bandwidth(community: u64) -> bool {
    community & (0xFFFF << 48) == LINK_BANDWIDTH
}
