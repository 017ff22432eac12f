// SPDX-License-Identifier: Apache-2.0
//! Communities whose values mean something to every speaker: the well-known ones, and the bandwidth of a link.

/// Routes may not leave the AS, or the confederation (RFC 1997).
pub const NO_EXPORT: u32 = 0xFFFF_FF01;
/// Routes may not be told to any peer (RFC 1997).
pub const NO_ADVERTISE: u32 = 0xFFFF_FF02;
/// Routes may not be told to external peers, those inside the confederation included (RFC 1997).
pub const NO_EXPORT_SUBCONFED: u32 = 0xFFFF_FF03;
/// The route is about to be withdrawn: it is to be the last resort (RFC 8326 §4).
pub const GRACEFUL_SHUTDOWN: u32 = 0xFFFF_0000;
/// The route is stale, and was kept beyond the restart time (RFC 9494 §4.3).
pub const LLGR_STALE: u32 = 0xFFFF_0006;
/// The route is not to be kept beyond the restart time (RFC 9494 §4.3).
pub const NO_LLGR: u32 = 0xFFFF_0007;
/// Traffic to the destination is to be dropped (RFC 7999 §5).
pub const BLACKHOLE: u32 = 0xFFFF_029A;

/// Type and subtype of the bandwidth of a link: not transitive, of a two-octet AS (draft-ietf-idr-link-bandwidth §2).
const LINK_BANDWIDTH: u64 = 0x4004;

/// The Extended Community that says how much bandwidth the way to a destination has, in octets per second (draft-ietf-idr-link-bandwidth §2).
/// `asn` is the two-octet number of the AS that says so.
#[must_use]
pub fn link_bandwidth(asn: u16, octets_per_second: f32) -> u64 {
    LINK_BANDWIDTH << 48 | u64::from(asn) << 32 | u64::from(octets_per_second.to_bits())
}

/// What [`link_bandwidth`] was made of; `None` where the community is another one, or its bandwidth is negative or no number.
#[must_use]
pub fn as_link_bandwidth(community: u64) -> Option<(u16, f32)> {
    let [kind, subtype, high, low, bandwidth @ ..] = community.to_be_bytes();
    let octets_per_second = f32::from_be_bytes(bandwidth);
    let is_one = u64::from(u16::from_be_bytes([kind, subtype])) == LINK_BANDWIDTH && octets_per_second >= 0.0;
    is_one.then_some((u16::from_be_bytes([high, low]), octets_per_second))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draft_ietf_idr_link_bandwidth_2_ten_gigabits() {
        let community = link_bandwidth(65001, 1.25e9);
        assert_eq!(community, 0x4004_FDE9_4E95_02F9);
        assert_eq!(as_link_bandwidth(community), Some((65001, 1.25e9)));
    }

    #[test]
    fn other_communities_are_no_bandwidth() {
        for community in [0, 0x0004_FDE9_4E95_02F9, 0x4004_FDE9_FFC0_0000, 0x4004_FDE9_BF80_0000, 0x0002_FDE9_0000_0064] {
            assert_eq!(as_link_bandwidth(community), None, "{community:016X}");
        }
    }
}
