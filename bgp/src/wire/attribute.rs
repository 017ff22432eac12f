// SPDX-License-Identifier: Apache-2.0
//! Path attributes (RFC 4271 §5 and later RFCs): one attribute's flags and value, to and from octets.
//!
//! Decoding says of a malformed attribute what RFC 7606 §7 makes of it. What concerns several attributes of an UPDATE is not known here.

use std::net::Ipv4Addr;

use bytes::{BufMut, Bytes};

use super::error::Malformed;
use super::multiprotocol::is_host;
use super::notification::UpdateError;
use super::octets::{Reader, set, set_u16, with_length_u16};
use super::{AsPath, MpReach, MpUnreach, Negotiated};
use crate::Asn;

/// Attribute Flags (RFC 4271 §4.3).
///
/// ```text
///  0 1 2 3 4 5 6 7
/// +-+-+-+-+-+-+-+-+
/// |O|T|P|E| unused|
/// +-+-+-+-+-+-+-+-+
/// ```
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Flags(pub u8);

impl Flags {
    /// O: not every speaker knows the attribute.
    pub const OPTIONAL: Self = Self(0x80);
    /// T: a speaker that does not know it passes it on.
    pub const TRANSITIVE: Self = Self(0x40);
    /// P: a speaker on the way did not know it.
    pub const PARTIAL: Self = Self(0x20);
    /// E: the length of the attribute takes two octets.
    pub const EXTENDED_LENGTH: Self = Self(0x10);

    pub(super) const OPTIONAL_TRANSITIVE: Self = Self(Self::OPTIONAL.0 | Self::TRANSITIVE.0);

    /// Whether all of `flags` are set.
    #[must_use]
    pub const fn contains(self, flags: Self) -> bool {
        self.0 & flags.0 == flags.0
    }

    pub(super) const fn with(self, flags: Self) -> Self {
        Self(self.0 | flags.0)
    }

    /// Without those that say nothing of the attribute but how it was written.
    const fn of_attribute(self) -> Self {
        Self(self.0 & (Self::OPTIONAL.0 | Self::TRANSITIVE.0 | Self::PARTIAL.0))
    }

    /// Whether these can be the flags of an attribute that is specified with `specified`. A conflict in Optional or Transitive is an error (RFC
    /// 7606 §3 a); so is Partial but on what is optional and transitive (RFC 4271 §4.3), though the routes of MP_REACH_NLRI and
    /// MP_UNREACH_NLRI are not given up for it.
    fn conform_to(self, specified: Self, type_code: u8) -> bool {
        let own = Self(self.0 & Self::OPTIONAL_TRANSITIVE.0);
        let multiprotocol = [PathAttribute::MP_REACH_NLRI, PathAttribute::MP_UNREACH_NLRI].contains(&type_code);
        own == specified && (!self.contains(Self::PARTIAL) || specified == Self::OPTIONAL_TRANSITIVE || multiprotocol)
    }
}

/// How a route came into BGP (RFC 4271 §4.3 a).
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
#[repr(u8)]
pub enum Origin {
    /// It is interior to the AS that originated it.
    Igp = 0,
    /// It was learnt by EGP (RFC 904).
    Egp = 1,
    /// It was learnt otherwise.
    Incomplete = 2,
}

/// The value of an attribute that is optional and transitive, and whether a speaker on the way did not know it: then Partial is sent on with it
/// (RFC 4271 §5).
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub struct Transitive<T> {
    /// What the attribute says.
    pub value: T,
    /// The Partial bit.
    pub partial: bool,
}

impl<T> From<T> for Transitive<T> {
    /// As its originator sends it.
    fn from(value: T) -> Self {
        Self { value, partial: false }
    }
}

/// Who made an aggregate of routes (RFC 4271 §5.1.7).
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Aggregator {
    /// The AS that aggregated.
    pub asn: Asn,
    /// The speaker that aggregated.
    pub address: Ipv4Addr,
}

/// One path attribute of an UPDATE.
///
/// ```text
///  0                   1
///  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// |  Attr. Flags  |Attr. Type Code|
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// | Attribute Length: 1 octet, or 2 with flag E |
/// +---------------------------------------------+
/// | Attribute Value (variable)                  |
/// +---------------------------------------------+
/// ```
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum PathAttribute {
    /// ORIGIN (RFC 4271 §5.1.1).
    Origin(Origin),
    /// AS_PATH (RFC 4271 §5.1.2), completed from AS4_PATH where the peer sends two-octet numbers (RFC 6793 §4.2.3).
    AsPath(AsPath),
    /// NEXT_HOP, of IPv4 unicast only (RFC 4271 §5.1.3).
    NextHop(Ipv4Addr),
    /// MULTI_EXIT_DISC (RFC 4271 §5.1.4).
    MultiExitDisc(u32),
    /// LOCAL_PREF, inside an AS only (RFC 4271 §5.1.5).
    LocalPref(u32),
    /// ATOMIC_AGGREGATE (RFC 4271 §5.1.6).
    AtomicAggregate,
    /// AGGREGATOR (RFC 4271 §5.1.7), or AS4_AGGREGATOR where that one counts (RFC 6793 §4.2.3).
    Aggregator(Transitive<Aggregator>),
    /// COMMUNITIES (RFC 1997).
    Communities(Transitive<Vec<u32>>),
    /// ORIGINATOR_ID, inside an AS only (RFC 4456 §8).
    OriginatorId(Ipv4Addr),
    /// CLUSTER_LIST, inside an AS only (RFC 4456 §8).
    ClusterList(Vec<Ipv4Addr>),
    /// MP_REACH_NLRI (RFC 4760 §3).
    MpReach(MpReach),
    /// MP_UNREACH_NLRI (RFC 4760 §4).
    MpUnreach(MpUnreach),
    /// Extended Communities (RFC 4360 §2).
    ExtendedCommunities(Transitive<Vec<u64>>),
    /// IPv6 Address Specific Extended Communities (RFC 5701 §2).
    Ipv6ExtendedCommunities(Transitive<Vec<[u8; 20]>>),
    /// LARGE_COMMUNITY (RFC 8092 §3).
    LargeCommunities(Transitive<Vec<[u32; 3]>>),
    /// ONLY_TO_CUSTOMER: the AS that sent the route down or sideways (RFC 9234 §5).
    OnlyToCustomer(Transitive<Asn>),
    /// An optional attribute that this speaker does not know, or MP_REACH_NLRI or MP_UNREACH_NLRI of a family that is not negotiated.
    Unknown {
        /// Optional, Transitive and Partial as received.
        flags: Flags,
        /// Attribute Type Code.
        type_code: u8,
        /// Attribute Value.
        value: Bytes,
    },
}

impl PathAttribute {
    pub(super) const ORIGIN: u8 = 1;
    pub(super) const AS_PATH: u8 = 2;
    pub(super) const NEXT_HOP: u8 = 3;
    const MULTI_EXIT_DISC: u8 = 4;
    const LOCAL_PREF: u8 = 5;
    const ATOMIC_AGGREGATE: u8 = 6;
    pub(super) const AGGREGATOR: u8 = 7;
    const COMMUNITIES: u8 = 8;
    const ORIGINATOR_ID: u8 = 9;
    const CLUSTER_LIST: u8 = 10;
    pub(super) const MP_REACH_NLRI: u8 = 14;
    pub(super) const MP_UNREACH_NLRI: u8 = 15;
    const EXTENDED_COMMUNITIES: u8 = 16;
    pub(super) const AS4_PATH: u8 = 17;
    pub(super) const AS4_AGGREGATOR: u8 = 18;
    const IPV6_EXTENDED_COMMUNITIES: u8 = 25;
    const LARGE_COMMUNITY: u8 = 32;
    const ONLY_TO_CUSTOMER: u8 = 35;

    /// Attribute Type Code.
    #[must_use]
    pub const fn type_code(&self) -> u8 {
        match self {
            Self::Origin(_) => Self::ORIGIN,
            Self::AsPath(_) => Self::AS_PATH,
            Self::NextHop(_) => Self::NEXT_HOP,
            Self::MultiExitDisc(_) => Self::MULTI_EXIT_DISC,
            Self::LocalPref(_) => Self::LOCAL_PREF,
            Self::AtomicAggregate => Self::ATOMIC_AGGREGATE,
            Self::Aggregator(_) => Self::AGGREGATOR,
            Self::Communities(_) => Self::COMMUNITIES,
            Self::OriginatorId(_) => Self::ORIGINATOR_ID,
            Self::ClusterList(_) => Self::CLUSTER_LIST,
            Self::MpReach(_) => Self::MP_REACH_NLRI,
            Self::MpUnreach(_) => Self::MP_UNREACH_NLRI,
            Self::ExtendedCommunities(_) => Self::EXTENDED_COMMUNITIES,
            Self::Ipv6ExtendedCommunities(_) => Self::IPV6_EXTENDED_COMMUNITIES,
            Self::LargeCommunities(_) => Self::LARGE_COMMUNITY,
            Self::OnlyToCustomer(_) => Self::ONLY_TO_CUSTOMER,
            Self::Unknown { type_code, .. } => *type_code,
        }
    }

    /// The flags with which a type is specified; `None` for a type that this speaker does not know.
    const fn specified_flags(type_code: u8) -> Option<Flags> {
        Some(match type_code {
            Self::ORIGIN | Self::AS_PATH | Self::NEXT_HOP | Self::LOCAL_PREF | Self::ATOMIC_AGGREGATE => Flags::TRANSITIVE,
            Self::MULTI_EXIT_DISC | Self::ORIGINATOR_ID | Self::CLUSTER_LIST | Self::MP_REACH_NLRI | Self::MP_UNREACH_NLRI => {
                Flags::OPTIONAL
            }
            Self::AGGREGATOR
            | Self::COMMUNITIES
            | Self::EXTENDED_COMMUNITIES
            | Self::AS4_PATH
            | Self::AS4_AGGREGATOR
            | Self::IPV6_EXTENDED_COMMUNITIES
            | Self::LARGE_COMMUNITY
            | Self::ONLY_TO_CUSTOMER => Flags::OPTIONAL_TRANSITIVE,
            _ => return None,
        })
    }

    /// What an external peer must not send and what is overlooked if it does (RFC 7606 §7.5, §7.9, §7.10).
    const fn is_internal_only(type_code: u8) -> bool {
        matches!(type_code, Self::LOCAL_PREF | Self::ORIGINATOR_ID | Self::CLUSTER_LIST)
    }

    /// Checks an attribute's flags, and whether this peer may send it, before the value is looked at.
    pub(super) fn check_flags(type_code: u8, flags: Flags, negotiated: &Negotiated) -> Result<(), Malformed> {
        let Some(specified) = Self::specified_flags(type_code) else {
            let well_known = !flags.contains(Flags::OPTIONAL);
            let unrecognized =
                Malformed::session_reset(UpdateError::UnrecognizedWellKnownAttribute, "a well-known attribute of an unknown type");
            return if well_known { Err(unrecognized) } else { Ok(()) };
        };
        if Self::is_internal_only(type_code) && !negotiated.internal {
            return Err(Malformed::attribute_discard(UpdateError::MalformedAttributeList, "an external peer must not send this attribute"));
        }
        if flags.conform_to(specified, type_code) {
            return Ok(());
        }
        let conflict = "the flags conflict with the type";
        Err(match type_code {
            Self::MP_REACH_NLRI | Self::MP_UNREACH_NLRI => Malformed::session_reset(UpdateError::AttributeFlags, conflict),
            _ => Malformed::treat_as_withdraw(UpdateError::AttributeFlags, conflict),
        })
    }

    /// The attribute of this value, the flags of which were checked; and what is wrong with it, where it is kept nevertheless. AS4_PATH and
    /// AS4_AGGREGATOR are no attributes of their own and not for this function.
    pub(super) fn decode(
        type_code: u8,
        flags: Flags,
        value: &[u8],
        negotiated: &Negotiated,
    ) -> Result<(Self, Option<Malformed>), Malformed> {
        let unknown = || Self::Unknown { flags: flags.of_attribute(), type_code, value: Bytes::copy_from_slice(value) };
        let partial = flags.contains(Flags::PARTIAL);
        let attribute = match type_code {
            Self::ORIGIN => Self::Origin(decode_origin(value)?),
            Self::AS_PATH => Self::AsPath(decode_as_path(value, negotiated)?),
            Self::NEXT_HOP => Self::NextHop(decode_next_hop(value)?),
            Self::MULTI_EXIT_DISC => Self::MultiExitDisc(u32::from_be_bytes(fixed(value, "MULTI_EXIT_DISC has not 4 octets")?)),
            Self::LOCAL_PREF => Self::LocalPref(u32::from_be_bytes(fixed(value, "LOCAL_PREF has not 4 octets")?)),
            Self::ATOMIC_AGGREGATE if value.is_empty() => Self::AtomicAggregate,
            Self::ATOMIC_AGGREGATE => {
                return Err(Malformed::attribute_discard(UpdateError::AttributeLength, "ATOMIC_AGGREGATE is not empty"));
            }
            Self::AGGREGATOR => Self::Aggregator(Transitive { value: decode_aggregator(value, negotiated.four_octet_as)?, partial }),
            Self::COMMUNITIES => {
                let value = many(value, "COMMUNITIES has not a multiple of 4 octets", u32::from_be_bytes)?;
                Self::Communities(Transitive { value, partial })
            }
            Self::ORIGINATOR_ID => Self::OriginatorId(fixed::<4>(value, "ORIGINATOR_ID has not 4 octets")?.into()),
            Self::CLUSTER_LIST => {
                Self::ClusterList(many(value, "CLUSTER_LIST has not a multiple of 4 octets", |four: [u8; 4]| four.into())?)
            }
            Self::MP_REACH_NLRI => {
                let (reach, wrong) = MpReach::decode(value, negotiated)?;
                return Ok((reach.map_or_else(unknown, Self::MpReach), wrong));
            }
            Self::MP_UNREACH_NLRI => MpUnreach::decode(value, negotiated)?.map_or_else(unknown, Self::MpUnreach),
            Self::EXTENDED_COMMUNITIES => {
                let value = many(value, "Extended Communities has not a multiple of 8 octets", u64::from_be_bytes)?;
                Self::ExtendedCommunities(Transitive { value, partial })
            }
            Self::IPV6_EXTENDED_COMMUNITIES => {
                let reason = "IPv6 Address Specific Extended Communities has not a multiple of 20 octets";
                Self::Ipv6ExtendedCommunities(Transitive { value: many(value, reason, |twenty| twenty)?, partial })
            }
            Self::LARGE_COMMUNITY => {
                let value = many(value, "LARGE_COMMUNITY has not a multiple of 12 octets", large_community)?;
                Self::LargeCommunities(Transitive { value, partial })
            }
            Self::ONLY_TO_CUSTOMER => Self::OnlyToCustomer(Transitive { value: decode_only_to_customer(value)?, partial }),
            _ => unknown(),
        };
        Ok((attribute, None))
    }

    /// Whether the Partial bit goes with it.
    const fn is_partial(&self) -> bool {
        match self {
            Self::Aggregator(attribute) => attribute.partial,
            Self::Communities(attribute) => attribute.partial,
            Self::ExtendedCommunities(attribute) => attribute.partial,
            Self::Ipv6ExtendedCommunities(attribute) => attribute.partial,
            Self::LargeCommunities(attribute) => attribute.partial,
            Self::OnlyToCustomer(attribute) => attribute.partial,
            _ => false,
        }
    }

    /// Appends the attribute as this session has it.
    pub(super) fn encode(&self, negotiated: &Negotiated, out: &mut Vec<u8>) {
        let four_octet = negotiated.four_octet_as;
        let add_path = |family| negotiated.add_path_send.contains(&family);
        let type_code = self.type_code();
        let flags = match self {
            Self::Unknown { flags, .. } => flags.of_attribute(),
            // The length of these often takes two octets; End-of-RIB is known in the field with two (RFC 4724 §2).
            Self::MpReach(_) | Self::MpUnreach(_) => Flags::OPTIONAL.with(Flags::EXTENDED_LENGTH),
            _ => Self::specified_flags(type_code).unwrap_or(Flags::OPTIONAL),
        };
        let flags = if self.is_partial() { flags.with(Flags::PARTIAL) } else { flags };
        put_attribute(out, flags, type_code, |out| match self {
            Self::Origin(origin) => out.put_u8(*origin as u8),
            Self::AsPath(path) => path.encode(four_octet, out),
            Self::NextHop(address) | Self::OriginatorId(address) => out.put_slice(&address.octets()),
            Self::MultiExitDisc(number) | Self::LocalPref(number) => out.put_u32(*number),
            Self::AtomicAggregate => {}
            Self::Aggregator(Transitive { value: Aggregator { asn, address }, .. }) => {
                if four_octet {
                    out.put_u32(asn.number())
                } else {
                    out.put_u16(asn.two_octet())
                }
                out.put_slice(&address.octets());
            }
            Self::Communities(communities) => communities.value.iter().for_each(|community| out.put_u32(*community)),
            Self::ClusterList(clusters) => clusters.iter().for_each(|cluster| out.put_slice(&cluster.octets())),
            Self::MpReach(reach) => MpReach::encode(reach.family, reach.next_hop, &reach.announced, add_path(reach.family), out),
            Self::MpUnreach(unreach) => MpUnreach::encode(unreach.family, &unreach.withdrawn, add_path(unreach.family), out),
            Self::ExtendedCommunities(communities) => communities.value.iter().for_each(|community| out.put_u64(*community)),
            Self::Ipv6ExtendedCommunities(communities) => communities.value.iter().for_each(|community| out.put_slice(community)),
            Self::LargeCommunities(communities) => communities.value.iter().flatten().for_each(|number| out.put_u32(*number)),
            Self::OnlyToCustomer(asn) => out.put_u32(asn.value.number()),
            Self::Unknown { value, .. } => out.put_slice(value),
        });
    }
}

/// Appends an attribute of which `write_value` appends the value. The length takes two octets where the flags say so or the value needs it.
pub(super) fn put_attribute(out: &mut Vec<u8>, flags: Flags, type_code: u8, write_value: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.put_u8(flags.0);
    out.put_u8(type_code);
    if flags.contains(Flags::EXTENDED_LENGTH) {
        return with_length_u16(out, write_value);
    }
    let at = out.len();
    out.put_u8(0);
    write_value(out);
    let length = out.len() - at - 1;
    match u8::try_from(length) {
        Ok(length) => set(out, at, &[length]),
        Err(_) => {
            out.insert(at, 0);
            set_u16(out, at, length);
            set(out, start, &[flags.with(Flags::EXTENDED_LENGTH).0]);
        }
    }
}

/// Why a path with a set is none (RFC 9774 §3, RFC 7606 §7.2).
const AS_SET: &str = "an AS_SET or AS_CONFED_SET is in the path, which RFC 9774 has deprecated";

/// AS4_PATH of a two-octet peer; sequences of a confederation in it do not count (RFC 6793 §6).
pub(super) fn decode_as4_path(value: &[u8]) -> Result<AsPath, Malformed> {
    let malformed = |reason| Malformed::attribute_discard(UpdateError::OptionalAttribute, reason);
    if value.is_empty() {
        return Err(malformed("AS4_PATH is empty"));
    }
    let path = AsPath::decode(value, true).map_err(malformed)?;
    if path.has_set() {
        return Err(Malformed::treat_as_withdraw(UpdateError::MalformedAsPath, AS_SET));
    }
    Ok(path.without_confederation())
}

/// AGGREGATOR, or AS4_AGGREGATOR with `four_octet` (RFC 7606 §7.7, RFC 7607 §2, RFC 6793 §6).
pub(super) fn decode_aggregator(value: &[u8], four_octet: bool) -> Result<Aggregator, Malformed> {
    let malformed = |reason| Malformed::attribute_discard(UpdateError::OptionalAttribute, reason);
    let mut reader = Reader::new(value);
    let number = if four_octet { reader.u32() } else { reader.u16().map(u32::from) };
    let (Some(number), Some(address), true) = (number, reader.array::<4>(), reader.is_empty()) else {
        return Err(malformed("the aggregator has not the length of an AS number and an address"));
    };
    let asn = Asn::new(number).ok_or_else(|| malformed("the aggregator is in AS 0"))?;
    Ok(Aggregator { asn, address: address.into() })
}

/// RFC 7606 §7.1.
fn decode_origin(value: &[u8]) -> Result<Origin, Malformed> {
    Ok(match fixed::<1>(value, "ORIGIN has not 1 octet")? {
        [0] => Origin::Igp,
        [1] => Origin::Egp,
        [2] => Origin::Incomplete,
        _ => return Err(Malformed::treat_as_withdraw(UpdateError::InvalidOrigin, "ORIGIN has an undefined value")),
    })
}

/// RFC 7606 §7.2. Sets make a path useless (RFC 9774 §3). Segments of a confederation cannot come from outside it (RFC 5065 §5).
fn decode_as_path(value: &[u8], negotiated: &Negotiated) -> Result<AsPath, Malformed> {
    let malformed = |reason| Malformed::treat_as_withdraw(UpdateError::MalformedAsPath, reason);
    let path = AsPath::decode(value, negotiated.four_octet_as).map_err(malformed)?;
    if path.has_set() {
        return Err(malformed(AS_SET));
    }
    if path.has_confederation() && !negotiated.internal {
        return Err(malformed("an external peer sends a segment of a confederation"));
    }
    Ok(path)
}

/// RFC 7606 §7.3, RFC 4271 §6.3.
fn decode_next_hop(value: &[u8]) -> Result<Ipv4Addr, Malformed> {
    let address = fixed::<4>(value, "NEXT_HOP has not 4 octets")?.into();
    if is_host(address) {
        return Ok(address);
    }
    Err(Malformed::treat_as_withdraw(UpdateError::InvalidNextHop, "NEXT_HOP is not a host's address"))
}

/// RFC 9234 §5: of another length, or of AS 0 (RFC 7607 §2), the routes count as withdrawn.
fn decode_only_to_customer(value: &[u8]) -> Result<Asn, Malformed> {
    let number = u32::from_be_bytes(fixed(value, "ONLY_TO_CUSTOMER has not 4 octets")?);
    Asn::new(number).ok_or_else(|| Malformed::treat_as_withdraw(UpdateError::OptionalAttribute, "ONLY_TO_CUSTOMER is of AS 0"))
}

fn large_community(octets: [u8; 12]) -> [u32; 3] {
    let mut reader = Reader::new(&octets);
    [(); 3].map(|()| reader.u32().unwrap_or_default())
}

/// A value of exactly `N` octets; of another length, the routes count as withdrawn.
fn fixed<const N: usize>(value: &[u8], reason: &'static str) -> Result<[u8; N], Malformed> {
    value.as_array().copied().ok_or_else(|| Malformed::treat_as_withdraw(UpdateError::AttributeLength, reason))
}

/// A value of one or more items of `N` octets each; of another length, the routes count as withdrawn.
fn many<const N: usize, T>(value: &[u8], reason: &'static str, item: impl Fn([u8; N]) -> T) -> Result<Vec<T>, Malformed> {
    match value.as_chunks::<N>() {
        (chunks, []) if !chunks.is_empty() => Ok(chunks.iter().map(|chunk| item(*chunk)).collect()),
        _ => Err(Malformed::treat_as_withdraw(UpdateError::AttributeLength, reason)),
    }
}

#[cfg(test)]
mod tests;
