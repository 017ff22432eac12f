// SPDX-License-Identifier: Apache-2.0
//! Capabilities (RFC 5492), and what two OPENs agree on.

use std::collections::BTreeSet;

use bytes::{BufMut, Bytes};

use super::Open;
use super::octets::Reader;
use crate::{Asn, Family, HoldTime};

/// One capability of an OPEN (RFC 5492 §4).
///
/// ```text
///  0                   1
///  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5
/// +-------------------------------+
/// | Capability Code (1 octet)     |
/// +-------------------------------+
/// | Capability Length (1 octet)   |
/// +-------------------------------+
/// | Capability Value (variable)   |
/// +-------------------------------+
/// ```
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Capability {
    /// Code 1: routes of this family can be exchanged (RFC 4760 §8).
    Multiprotocol(Family),
    /// Code 2: ROUTE-REFRESH is understood (RFC 2918 §2).
    RouteRefresh,
    /// Code 65: AS numbers take four octets (RFC 6793 §3). Its value is [`Open::asn`].
    FourOctetAs,
    /// A capability, or a family of code 1, that this speaker does not have: ignored (RFC 5492 §3).
    Unknown {
        /// Capability Code.
        code: u8,
        /// Capability Value, at most 255 octets.
        value: Bytes,
    },
}

impl Capability {
    /// Capability Code of Multiprotocol Extensions, whatever the family.
    pub(super) const MULTIPROTOCOL: u8 = 1;
    const ROUTE_REFRESH: u8 = 2;
    const FOUR_OCTET_AS: u8 = 65;

    /// Capability Code.
    pub(super) const fn code(&self) -> u8 {
        match self {
            Self::Multiprotocol(_) => Self::MULTIPROTOCOL,
            Self::RouteRefresh => Self::ROUTE_REFRESH,
            Self::FourOctetAs => Self::FOUR_OCTET_AS,
            Self::Unknown { code, .. } => *code,
        }
    }

    /// The capability of this code and value; `None` where the value has not the length that the code asks for.
    pub(super) fn decode(code: u8, value: &[u8]) -> Option<Self> {
        let unknown = || Self::Unknown { code, value: Bytes::copy_from_slice(value) };
        let mut reader = Reader::new(value);
        let capability = match code {
            Self::MULTIPROTOCOL => {
                let (afi, _reserved, safi) = (reader.u16()?, reader.u8()?, reader.u8()?);
                Family::from_numbers(afi, safi).map_or_else(unknown, Self::Multiprotocol)
            }
            Self::ROUTE_REFRESH => Self::RouteRefresh,
            Self::FOUR_OCTET_AS => {
                reader.u32()?;
                Self::FourOctetAs
            }
            _ => return Some(unknown()),
        };
        reader.is_empty().then_some(capability)
    }

    /// Appends the capability of a speaker in the AS `asn`. A value over 255 octets is cut.
    pub(super) fn encode(&self, asn: Asn, out: &mut Vec<u8>) {
        out.put_u8(self.code());
        match self {
            Self::Multiprotocol(family) => {
                out.put_u8(4);
                out.put_u16(family.afi());
                out.put_u8(0);
                out.put_u8(family.safi());
            }
            Self::RouteRefresh => out.put_u8(0),
            Self::FourOctetAs => {
                out.put_u8(4);
                out.put_u32(asn.number());
            }
            Self::Unknown { value, .. } => {
                let length = u8::try_from(value.len()).unwrap_or(u8::MAX);
                out.put_u8(length);
                out.put_slice(value.get(..length.into()).unwrap_or_default());
            }
        }
    }
}

/// What both OPENs agree on; governs encoding and decoding from then on.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Negotiated {
    /// AS numbers take four octets in AS_PATH and AGGREGATOR (RFC 6793 §4.1).
    pub four_octet_as: bool,
    /// The families that both sides have (RFC 4760 §8).
    pub families: BTreeSet<Family>,
    /// Both sides understand ROUTE-REFRESH (RFC 2918 §3).
    pub route_refresh: bool,
    /// The smaller of both hold times (RFC 4271 §4.2).
    pub hold_time: HoldTime,
    /// Our AS.
    pub local_asn: Asn,
    /// The peer's AS.
    pub remote_asn: Asn,
    /// Both are in one AS: the peer is an internal one (RFC 4271 §1.1).
    pub internal: bool,
}

impl Negotiated {
    /// What `local`, the OPEN sent, and `remote`, the one received, agree on.
    #[must_use]
    pub fn new(local: &Open, remote: &Open) -> Self {
        let both = |capability| local.capabilities.contains(capability) && remote.capabilities.contains(capability);
        Self {
            four_octet_as: both(&Capability::FourOctetAs),
            families: local.families().intersection(&remote.families()).copied().collect(),
            route_refresh: both(&Capability::RouteRefresh),
            hold_time: local.hold_time.min(remote.hold_time),
            local_asn: local.asn,
            remote_asn: remote.asn,
            internal: local.asn == remote.asn,
        }
    }

    /// The family of these numbers where both sides have it.
    pub(super) fn family(&self, afi: u16, safi: u8) -> Option<Family> {
        Family::from_numbers(afi, safi).filter(|family| self.families.contains(family))
    }

    /// What holds before OPENs are exchanged: no capability.
    #[must_use]
    pub const fn before_open(local_asn: Asn) -> Self {
        Self {
            four_octet_as: false,
            families: BTreeSet::new(),
            route_refresh: false,
            hold_time: HoldTime::ZERO,
            local_asn,
            remote_asn: local_asn,
            internal: true,
        }
    }
}
