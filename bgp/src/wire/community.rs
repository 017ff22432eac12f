// SPDX-License-Identifier: Apache-2.0
//! Communities whose values mean something to every speaker: the well-known ones, and the bandwidth of a link.

use crate::identity::Asn;

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

/// The communities that have a name, of those that a speaker may put on its own routes.
pub const NAMES: [(&str, u32); 6] = [
    ("NO_EXPORT", NO_EXPORT),
    ("NO_ADVERTISE", NO_ADVERTISE),
    ("NO_EXPORT_SUBCONFED", NO_EXPORT_SUBCONFED),
    ("GRACEFUL_SHUTDOWN", GRACEFUL_SHUTDOWN),
    ("NO_LLGR", NO_LLGR),
    ("BLACKHOLE", BLACKHOLE),
];

/// Type and subtype of the bandwidth of a link, of a two-octet AS (draft-ietf-idr-link-bandwidth §2).
const LINK_BANDWIDTH: u64 = 0x0004;
/// The bit of the type that keeps a community inside the AS (RFC 4360 §2).
const NOT_TRANSITIVE: u64 = 0x4000;

/// The Extended Community that says how much bandwidth the way to a destination has, which is sent as a float (draft-ietf-idr-link-bandwidth §2).
/// `asn` is the AS that says so; AS_TRANS stands for one of four octets.
#[must_use]
pub fn link_bandwidth(transitive: bool, asn: Asn, octets_per_second: u64) -> u64 {
    let kind = if transitive { LINK_BANDWIDTH } else { LINK_BANDWIDTH | NOT_TRANSITIVE };
    kind << 48 | u64::from(asn.two_octet()) << 32 | u64::from((octets_per_second as f32).to_bits())
}

/// The AS and the octets per second of a [`link_bandwidth`]; `None` where the community is another one, or its bandwidth is negative or no number.
#[must_use]
pub fn as_link_bandwidth(community: u64) -> Option<(u16, f32)> {
    let [kind, subtype, high, low, bandwidth @ ..] = community.to_be_bytes();
    let octets_per_second = f32::from_be_bytes(bandwidth);
    let kind = u64::from(u16::from_be_bytes([kind, subtype])) & !NOT_TRANSITIVE;
    (kind == LINK_BANDWIDTH && octets_per_second >= 0.0).then_some((u16::from_be_bytes([high, low]), octets_per_second))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draft_ietf_idr_link_bandwidth_2_ten_gigabits() {
        let asn = Asn::new(65001).unwrap();
        assert_eq!(link_bandwidth(false, asn, 1_250_000_000), 0x4004_FDE9_4E95_02F9);
        assert_eq!(link_bandwidth(true, asn, 1_250_000_000), 0x0004_FDE9_4E95_02F9);
    }

    #[test]
    fn draft_ietf_idr_link_bandwidth_2_as_trans_stands_for_a_long_as_number() {
        assert_eq!(link_bandwidth(false, Asn::new(4_200_000_001).unwrap(), 1_250_000_000), 0x4004_5BA0_4E95_02F9);
    }

    #[test]
    fn a_bandwidth_of_either_type_is_read() {
        for community in [0x4004_FDE9_4E95_02F9, 0x0004_FDE9_4E95_02F9] {
            assert_eq!(as_link_bandwidth(community), Some((65001, 1.25e9)));
        }
        for community in [0, 0x4004_FDE9_FFC0_0000, 0x4004_FDE9_BF80_0000, 0x0002_FDE9_0000_0064] {
            assert_eq!(as_link_bandwidth(community), None, "{community:016X}");
        }
    }
}
