// SPDX-License-Identifier: Apache-2.0
//! MP_REACH_NLRI and MP_UNREACH_NLRI: routes of every family (RFC 4760), with the next hops of IPv6 (RFC 2545), of IPv4 over IPv6 (RFC 8950) and of
//! a link without global addresses (draft-ietf-idr-linklocal-capability).

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use bytes::BufMut;

use super::Negotiated;
use super::error::Malformed;
use super::nlri::{Nlri, NlriError, decode_nlri, put_nlri};
use super::notification::UpdateError;
use super::octets::Reader;
use crate::Family;

/// Where packets to a route's destination go.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum NextHop {
    /// An IPv4 address.
    V4(Ipv4Addr),
    /// An IPv6 address (RFC 2545 §3), of IPv4 routes too where both sides agreed on that (RFC 8950 §4).
    V6 {
        /// The global address; on a link that has none the link-local one.
        global: Ipv6Addr,
        /// The address on the link, where this speaker, the peer and the next hop share one.
        link_local: Option<Ipv6Addr>,
    },
}

/// Routes announced (RFC 4760 §3).
///
/// ```text
/// +---------------------------------------------------------+
/// | Address Family Identifier (2 octets)                    |
/// +---------------------------------------------------------+
/// | Subsequent Address Family Identifier (1 octet)          |
/// +---------------------------------------------------------+
/// | Length of Next Hop Network Address (1 octet)            |
/// +---------------------------------------------------------+
/// | Network Address of Next Hop (variable)                  |
/// +---------------------------------------------------------+
/// | Reserved (1 octet)                                      |
/// +---------------------------------------------------------+
/// | Network Layer Reachability Information (variable)       |
/// +---------------------------------------------------------+
/// ```
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct MpReach {
    /// Address family and subsequent address family.
    pub family: Family,
    /// Network Address of Next Hop.
    pub next_hop: NextHop,
    /// Network Layer Reachability Information.
    pub announced: Vec<Nlri>,
}

/// Routes withdrawn (RFC 4760 §4).
///
/// ```text
/// +---------------------------------------------------------+
/// | Address Family Identifier (2 octets)                    |
/// +---------------------------------------------------------+
/// | Subsequent Address Family Identifier (1 octet)          |
/// +---------------------------------------------------------+
/// | Withdrawn Routes (variable)                             |
/// +---------------------------------------------------------+
/// ```
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct MpUnreach {
    /// Address family and subsequent address family.
    pub family: Family,
    /// Withdrawn Routes.
    pub withdrawn: Vec<Nlri>,
}

impl MpReach {
    /// Octets of an attribute value without routes.
    pub(super) const fn fixed_length(next_hop: NextHop) -> usize {
        5 + next_hop.length()
    }

    /// The attribute value, `None` where its family is not negotiated; and what is wrong with its next hop, where the routes can still be read.
    pub(super) fn decode(value: &[u8], negotiated: &Negotiated) -> Result<(Option<Self>, Option<Malformed>), Malformed> {
        const MIN_LENGTH: usize = 5;
        let reset = |reason| Malformed::session_reset(UpdateError::OptionalAttribute, reason);
        let mut reader = Reader::new(value);
        let (Some(afi), Some(safi), true) = (reader.u16(), reader.u8(), value.len() >= MIN_LENGTH) else {
            return Err(reset("MP_REACH_NLRI is shorter than 5 octets"));
        };
        let Some(family) = negotiated.family(afi, safi) else { return Ok((None, None)) };
        let next_hop = reader.u8().and_then(|length| reader.take(length.into())).ok_or_else(|| reset("the next hop is cut"))?;
        let (next_hop, wrong) = NextHop::decode(family, next_hop, negotiated)?;
        let _reserved = reader.u8().ok_or_else(|| reset("MP_REACH_NLRI ends after its next hop"))?;
        let announced = decode_routes(reader.rest(), family, negotiated)?;
        Ok((Some(Self { family, next_hop, announced }), wrong))
    }

    /// Appends the attribute value.
    pub(super) fn encode<'a>(
        family: Family,
        next_hop: NextHop,
        announced: impl IntoIterator<Item = &'a Nlri>,
        add_path: bool,
        out: &mut Vec<u8>,
    ) {
        put_family(out, family);
        next_hop.encode(out);
        out.put_u8(0);
        announced.into_iter().for_each(|route| put_nlri(out, route, add_path));
    }
}

impl MpUnreach {
    /// Octets of an attribute value without routes.
    pub(super) const FIXED_LENGTH: usize = 3;

    /// The attribute value; `None` where its family is not negotiated.
    pub(super) fn decode(value: &[u8], negotiated: &Negotiated) -> Result<Option<Self>, Malformed> {
        let mut reader = Reader::new(value);
        let (Some(afi), Some(safi)) = (reader.u16(), reader.u8()) else {
            return Err(Malformed::session_reset(UpdateError::OptionalAttribute, "MP_UNREACH_NLRI is shorter than 3 octets"));
        };
        let Some(family) = negotiated.family(afi, safi) else { return Ok(None) };
        let withdrawn = decode_routes(reader.rest(), family, negotiated)?;
        Ok(Some(Self { family, withdrawn }))
    }

    /// Appends the attribute value.
    pub(super) fn encode<'a>(family: Family, withdrawn: impl IntoIterator<Item = &'a Nlri>, add_path: bool, out: &mut Vec<u8>) {
        put_family(out, family);
        withdrawn.into_iter().for_each(|route| put_nlri(out, route, add_path));
    }
}

impl NextHop {
    /// Whether it can be sent as the next hop of `family`: an unspecified address never, an IPv6 one of IPv4 routes only where that was agreed on
    /// (RFC 8950 §4), and so a link-local one alone (draft-ietf-idr-linklocal-capability §3); in both places it always can.
    pub(super) fn can_be_sent_for(self, family: Family, negotiated: &Negotiated) -> bool {
        match self {
            Self::V4(address) => family == Family::Ipv4Unicast && !address.is_unspecified(),
            Self::V6 { global, link_local } => {
                let lonely = global.is_unicast_link_local() && link_local.is_none();
                let agreed = family == Family::Ipv6Unicast || negotiated.extended_next_hop.contains(&family);
                agreed && !global.is_unspecified() && (!lonely || negotiated.link_local_next_hop)
            }
        }
    }

    /// The address; a length that the family does not have ends the session, as the routes after it cannot be found (RFC 7606 §7.11).
    fn decode(family: Family, octets: &[u8], negotiated: &Negotiated) -> Result<(Self, Option<Malformed>), Malformed> {
        let mut reader = Reader::new(octets);
        let ipv6 = family == Family::Ipv6Unicast || negotiated.extended_next_hop.contains(&family);
        let next_hop = match (family, octets.len()) {
            (Family::Ipv4Unicast, 4) => reader.array::<4>().map(|address| Self::V4(address.into())),
            (_, 16 | 32) if ipv6 => reader.array::<16>().map(|address| {
                let link_local = reader.array::<16>().map(Ipv6Addr::from);
                Self::V6 { global: address.into(), link_local }
            }),
            _ => None,
        };
        let length = "the next hop has not the length of its family";
        let next_hop = next_hop.ok_or_else(|| Malformed::session_reset(UpdateError::OptionalAttribute, length))?;
        Ok(next_hop.checked())
    }

    /// A second address that is not link-local does not count (RFC 2545 §3); with a first one that is no host's the routes are not usable.
    fn checked(self) -> (Self, Option<Malformed>) {
        let unusable = || Some(Malformed::treat_as_withdraw(UpdateError::OptionalAttribute, "the next hop is not a host's address"));
        match self {
            Self::V4(address) if !is_host(address) => (self, unusable()),
            Self::V4(_) => (self, None),
            Self::V6 { global, link_local: Some(second) } if !second.is_unicast_link_local() => {
                let (next_hop, wrong) = Self::V6 { global, link_local: None }.checked();
                let overlooked = Malformed::attribute_discard(UpdateError::OptionalAttribute, "the second next hop is not link-local");
                (next_hop, wrong.or(Some(overlooked)))
            }
            Self::V6 { global, .. } if global.is_multicast() || global.is_loopback() => (self, unusable()),
            Self::V6 { global, link_local: None } if global.is_unspecified() => (self, unusable()),
            Self::V6 { .. } => (self, None),
        }
    }

    /// Whether it is this address.
    pub(crate) fn is(self, address: IpAddr) -> bool {
        match self {
            Self::V4(own) => own == address,
            Self::V6 { global, link_local } => global == address || link_local.is_some_and(|own| own == address),
        }
    }

    const fn length(self) -> usize {
        match self {
            Self::V4(_) => 4,
            Self::V6 { link_local: None, .. } => 16,
            Self::V6 { link_local: Some(_), .. } => 32,
        }
    }

    /// Appends length and address.
    fn encode(self, out: &mut Vec<u8>) {
        match self {
            Self::V4(address) => {
                out.put_u8(4);
                out.put_slice(&address.octets());
            }
            Self::V6 { global, link_local } => {
                out.put_u8(if link_local.is_some() { 32 } else { 16 });
                out.put_slice(&global.octets());
                if let Some(link_local) = link_local {
                    out.put_slice(&link_local.octets());
                }
            }
        }
    }
}

impl fmt::Display for NextHop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::V4(address) => address.fmt(f),
            Self::V6 { global, link_local: None } => global.fmt(f),
            Self::V6 { global, link_local: Some(link_local) } => write!(f, "{global} ({link_local})"),
        }
    }
}

/// Whether the address can be that of a host on the way: not of "this" network, loopback, multicast or reserved (RFC 4271 §6.3).
pub(super) const fn is_host(address: Ipv4Addr) -> bool {
    !matches!(address.octets(), [0 | 127 | 224..=255, ..])
}

fn put_family(out: &mut Vec<u8>, family: Family) {
    out.put_u16(family.afi());
    out.put_u8(family.safi());
}

/// The routes of an attribute; without them the session cannot go on (RFC 7606 §5.3 and §3 j).
fn decode_routes(octets: &[u8], family: Family, negotiated: &Negotiated) -> Result<Vec<Nlri>, Malformed> {
    decode_nlri(octets, family, negotiated.add_path_receive.contains(&family)).map_err(|error| match error {
        NlriError::Length => Malformed::session_reset(UpdateError::InvalidNetworkField, "a prefix is longer than an address"),
        NlriError::Cut => Malformed::session_reset(UpdateError::OptionalAttribute, "the last prefix of the attribute is cut"),
    })
}
