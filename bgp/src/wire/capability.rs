// SPDX-License-Identifier: Apache-2.0
//! Capabilities of an OPEN (RFC 5492), to and from octets.
//!
//! A family that this speaker does not have is left out of a capability that lists families. One of the three oldest capabilities with a wrong length
//! is an error of the OPEN; of any other the whole capability counts as one that this speaker does not know.

use std::collections::{BTreeMap, BTreeSet};

use bytes::{BufMut, Bytes};

use super::notification::printable;
use super::octets::{Reader, set};
use crate::{Asn, Family};

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
    /// Code 5: routes of these families may have IPv6 next hops (RFC 8950 §4). Only IPv4 unicast has use for it.
    ExtendedNextHop(BTreeSet<Family>),
    /// Code 6: messages of up to 65,535 octets are understood (RFC 8654 §3).
    ExtendedMessage,
    /// Code 9: what the sender is to the receiver (RFC 9234 §4.1).
    Role(BgpRole),
    /// Code 64: how the sender restarts (RFC 4724 §3, RFC 8538 §2).
    GracefulRestart(GracefulRestart),
    /// Code 65: AS numbers take four octets (RFC 6793 §3). Its value is [`Open::asn`](super::Open::asn).
    FourOctetAs,
    /// Code 69: several paths to one destination (RFC 7911 §4).
    AddPath(BTreeMap<Family, AddPathMode>),
    /// Code 70: the beginning and the end of a refresh are marked (RFC 7313 §3.1).
    EnhancedRouteRefresh,
    /// Code 71: for how long routes are kept beyond the restart time (RFC 9494 §3).
    LongLivedGracefulRestart(BTreeMap<Family, LongLivedFamily>),
    /// Code 73: the sender's name, for display (draft-walton-bgp-hostname-capability). Received texts are escaped.
    Fqdn {
        /// The name of the host.
        host: String,
        /// The domain that it is in; often empty.
        domain: String,
    },
    /// Code 75: the sender's software, for display (draft-ietf-idr-bgp-software-version). A received text is escaped.
    SoftwareVersion(String),
    /// Code 77: a next hop can be a link-local address alone (draft-ietf-idr-linklocal-capability).
    LinkLocalNextHop,
    /// A capability, or a family of code 1, that this speaker does not have: ignored (RFC 5492 §3).
    Unknown {
        /// Capability Code.
        code: u8,
        /// Capability Value, at most 255 octets.
        value: Bytes,
    },
}

/// What a speaker is to the other one (RFC 9234 §4.1).
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum BgpRole {
    /// 0: it sells the other transit.
    Provider,
    /// 1: it is a route server of which the other is a client.
    RouteServer,
    /// 2: it is a client of a route server.
    RouteServerClient,
    /// 3: it buys transit from the other.
    Customer,
    /// 4: both exchange routes of their own and of their customers.
    Peer,
    /// A number without a meaning, which matches no role.
    Unassigned(u8),
}

impl BgpRole {
    /// Whether a speaker of this role can have a neighbour of the role `remote` (RFC 9234 §4.2, Table 2).
    #[must_use]
    pub const fn matches(self, remote: Self) -> bool {
        matches!(
            (self, remote),
            (Self::Provider, Self::Customer)
                | (Self::Customer, Self::Provider)
                | (Self::RouteServer, Self::RouteServerClient)
                | (Self::RouteServerClient, Self::RouteServer)
                | (Self::Peer, Self::Peer)
        )
    }

    const fn from_number(number: u8) -> Self {
        match number {
            0 => Self::Provider,
            1 => Self::RouteServer,
            2 => Self::RouteServerClient,
            3 => Self::Customer,
            4 => Self::Peer,
            _ => Self::Unassigned(number),
        }
    }

    const fn number(self) -> u8 {
        match self {
            Self::Provider => 0,
            Self::RouteServer => 1,
            Self::RouteServerClient => 2,
            Self::Customer => 3,
            Self::Peer => 4,
            Self::Unassigned(number) => number,
        }
    }
}

/// How a speaker restarts (RFC 4724 §3, RFC 8538 §2).
///
/// ```text
/// +--------------------------------------------------+
/// | Restart Flags (4 bits: R, N)                     |
/// +--------------------------------------------------+
/// | Restart Time in seconds (12 bits)                |
/// +--------------------------------------------------+
/// | Address Family Identifier (16 bits)              |  for each family
/// +--------------------------------------------------+
/// | Subsequent Address Family Identifier (8 bits)    |
/// +--------------------------------------------------+
/// | Flags for Address Family (8 bits: F)             |
/// +--------------------------------------------------+
/// ```
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct GracefulRestart {
    /// R: the sender has restarted; its peer is not to wait for an End-of-RIB.
    pub restarting: bool,
    /// N: routes are kept after a NOTIFICATION too, but for a Hard Reset (RFC 8538 §2).
    pub notification: bool,
    /// Seconds within which the session comes back; 12 bits.
    pub restart_time: u16,
    /// The families whose forwarding state the sender can keep, and F: whether it did keep it over this restart.
    pub families: BTreeMap<Family, bool>,
}

impl GracefulRestart {
    /// The longest Restart Time in seconds.
    pub const MAX_RESTART_TIME: u16 = 0x0FFF;
    const RESTARTING: u16 = 0x8000;
    const NOTIFICATION: u16 = 0x4000;
    const FORWARDING: u8 = 0x80;

    fn decode(value: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(value);
        let flags_and_time = reader.u16()?;
        let mut families = BTreeMap::new();
        while !reader.is_empty() {
            let (family, flags) = (Family::from_numbers(reader.u16()?, reader.u8()?), reader.u8()?);
            families.extend(family.map(|family| (family, flags & Self::FORWARDING != 0)));
        }
        Some(Self {
            restarting: flags_and_time & Self::RESTARTING != 0,
            notification: flags_and_time & Self::NOTIFICATION != 0,
            restart_time: flags_and_time & Self::MAX_RESTART_TIME,
            families,
        })
    }

    fn encode(&self, out: &mut Vec<u8>) {
        let flag = |set, flag| if set { flag } else { 0 };
        let flags = flag(self.restarting, Self::RESTARTING) | flag(self.notification, Self::NOTIFICATION);
        out.put_u16(flags | self.restart_time.min(Self::MAX_RESTART_TIME));
        for (family, forwarding) in &self.families {
            put_family(out, *family);
            out.put_u8(if *forwarding { Self::FORWARDING } else { 0 });
        }
    }
}

/// For how long routes of a family are kept beyond the restart time (RFC 9494 §3).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct LongLivedFamily {
    /// F: forwarding state was kept over this restart.
    pub forwarding: bool,
    /// Long-lived Stale Time in seconds; 24 bits.
    pub stale_time: u32,
}

impl LongLivedFamily {
    /// The longest Long-lived Stale Time in seconds.
    pub const MAX_STALE_TIME: u32 = 0x00FF_FFFF;
}

/// What a speaker does with several paths to one destination (RFC 7911 §4).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u8)]
pub enum AddPathMode {
    /// It can receive them.
    Receive = 1,
    /// It can send them.
    Send = 2,
    /// Both.
    Both = 3,
}

impl AddPathMode {
    /// Whether it can send them.
    #[must_use]
    pub const fn sends(self) -> bool {
        matches!(self, Self::Send | Self::Both)
    }

    /// Whether it can receive them.
    #[must_use]
    pub const fn receives(self) -> bool {
        matches!(self, Self::Receive | Self::Both)
    }

    const fn from_number(number: u8) -> Option<Self> {
        Some(match number {
            1 => Self::Receive,
            2 => Self::Send,
            3 => Self::Both,
            _ => return None,
        })
    }
}

impl Capability {
    /// Capability Code of Multiprotocol Extensions, whatever the family.
    pub(super) const MULTIPROTOCOL: u8 = 1;
    const ROUTE_REFRESH: u8 = 2;
    const EXTENDED_NEXT_HOP: u8 = 5;
    const EXTENDED_MESSAGE: u8 = 6;
    const ROLE: u8 = 9;
    const GRACEFUL_RESTART: u8 = 64;
    const FOUR_OCTET_AS: u8 = 65;
    const ADD_PATH: u8 = 69;
    const ENHANCED_ROUTE_REFRESH: u8 = 70;
    const LONG_LIVED_GRACEFUL_RESTART: u8 = 71;
    const FQDN: u8 = 73;
    const SOFTWARE_VERSION: u8 = 75;
    const LINK_LOCAL_NEXT_HOP: u8 = 77;

    /// Capability Code.
    #[must_use]
    pub const fn code(&self) -> u8 {
        match self {
            Self::Multiprotocol(_) => Self::MULTIPROTOCOL,
            Self::RouteRefresh => Self::ROUTE_REFRESH,
            Self::ExtendedNextHop(_) => Self::EXTENDED_NEXT_HOP,
            Self::ExtendedMessage => Self::EXTENDED_MESSAGE,
            Self::Role(_) => Self::ROLE,
            Self::GracefulRestart(_) => Self::GRACEFUL_RESTART,
            Self::FourOctetAs => Self::FOUR_OCTET_AS,
            Self::AddPath(_) => Self::ADD_PATH,
            Self::EnhancedRouteRefresh => Self::ENHANCED_ROUTE_REFRESH,
            Self::LongLivedGracefulRestart(_) => Self::LONG_LIVED_GRACEFUL_RESTART,
            Self::Fqdn { .. } => Self::FQDN,
            Self::SoftwareVersion(_) => Self::SOFTWARE_VERSION,
            Self::LinkLocalNextHop => Self::LINK_LOCAL_NEXT_HOP,
            Self::Unknown { code, .. } => *code,
        }
    }

    /// The capability of this code and value; `None` where the OPEN is malformed, because the value has not the length that the code asks for.
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
            _ => return Some(Self::decode_lenient(code, value).unwrap_or_else(unknown)),
        };
        reader.is_empty().then_some(capability)
    }

    /// A capability that can do without; `None` where it is unknown or malformed.
    fn decode_lenient(code: u8, value: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(value);
        let capability = match code {
            Self::EXTENDED_NEXT_HOP => return decode_extended_next_hop(value).map(Self::ExtendedNextHop),
            Self::EXTENDED_MESSAGE => Self::ExtendedMessage,
            Self::ROLE => Self::Role(BgpRole::from_number(reader.u8()?)),
            Self::GRACEFUL_RESTART => return GracefulRestart::decode(value).map(Self::GracefulRestart),
            Self::ADD_PATH => return decode_add_path(value).map(Self::AddPath),
            Self::ENHANCED_ROUTE_REFRESH => Self::EnhancedRouteRefresh,
            Self::LONG_LIVED_GRACEFUL_RESTART => return decode_long_lived(value).map(Self::LongLivedGracefulRestart),
            Self::FQDN => Self::Fqdn { host: decode_text(&mut reader)?, domain: decode_text(&mut reader)? },
            Self::SOFTWARE_VERSION => Self::SoftwareVersion(decode_text(&mut reader)?),
            Self::LINK_LOCAL_NEXT_HOP => Self::LinkLocalNextHop,
            _ => return None,
        };
        reader.is_empty().then_some(capability)
    }

    /// Appends the capability of a speaker in the AS `asn`. A value over 255 octets is cut.
    pub(super) fn encode(&self, asn: Asn, out: &mut Vec<u8>) {
        out.put_slice(&[self.code(), 0]);
        let start = out.len();
        self.put_value(asn, out);
        let length = u8::try_from(out.len() - start).unwrap_or(u8::MAX);
        out.truncate(start + usize::from(length));
        set(out, start - 1, &[length]);
    }

    fn put_value(&self, asn: Asn, out: &mut Vec<u8>) {
        match self {
            Self::Multiprotocol(family) => {
                out.put_u16(family.afi());
                out.put_u8(0);
                out.put_u8(family.safi());
            }
            Self::RouteRefresh | Self::ExtendedMessage | Self::EnhancedRouteRefresh | Self::LinkLocalNextHop => {}
            Self::ExtendedNextHop(families) => families.iter().for_each(|family| {
                out.put_u16(family.afi());
                out.put_u16(family.safi().into());
                out.put_u16(Family::Ipv6Unicast.afi());
            }),
            Self::Role(role) => out.put_u8(role.number()),
            Self::GracefulRestart(restart) => restart.encode(out),
            Self::FourOctetAs => out.put_u32(asn.number()),
            Self::AddPath(families) => families.iter().for_each(|(family, mode)| {
                put_family(out, *family);
                out.put_u8(*mode as u8);
            }),
            Self::LongLivedGracefulRestart(families) => families.iter().for_each(|(family, long_lived)| {
                put_family(out, *family);
                out.put_u8(if long_lived.forwarding { GracefulRestart::FORWARDING } else { 0 });
                let [_, stale_time @ ..] = long_lived.stale_time.min(LongLivedFamily::MAX_STALE_TIME).to_be_bytes();
                out.put_slice(&stale_time);
            }),
            Self::Fqdn { host, domain } => [host, domain].into_iter().for_each(|text| put_text(out, text)),
            Self::SoftwareVersion(text) => put_text(out, text),
            Self::Unknown { value, .. } => out.put_slice(value),
        }
    }
}

fn put_family(out: &mut Vec<u8>, family: Family) {
    out.put_u16(family.afi());
    out.put_u8(family.safi());
}

/// Families with IPv6 next hops; IPv6 ones have them anyway, and are left out (RFC 8950 §4).
fn decode_extended_next_hop(value: &[u8]) -> Option<BTreeSet<Family>> {
    let mut reader = Reader::new(value);
    let mut families = BTreeSet::new();
    while !reader.is_empty() {
        let (afi, safi, next_hop_afi) = (reader.u16()?, reader.u16()?, reader.u16()?);
        let family = u8::try_from(safi).ok().and_then(|safi| Family::from_numbers(afi, safi));
        families.extend(family.filter(|family| *family == Family::Ipv4Unicast && next_hop_afi == Family::Ipv6Unicast.afi()));
    }
    Some(families)
}

/// Families with their modes; one of an undefined mode is left out (RFC 7911 §4).
fn decode_add_path(value: &[u8]) -> Option<BTreeMap<Family, AddPathMode>> {
    let mut reader = Reader::new(value);
    let mut families = BTreeMap::new();
    while !reader.is_empty() {
        let family = Family::from_numbers(reader.u16()?, reader.u8()?);
        families.extend(family.zip(AddPathMode::from_number(reader.u8()?)));
    }
    Some(families)
}

/// Families with the times for which their routes are kept (RFC 9494 §3).
fn decode_long_lived(value: &[u8]) -> Option<BTreeMap<Family, LongLivedFamily>> {
    let mut reader = Reader::new(value);
    let mut families = BTreeMap::new();
    while !reader.is_empty() {
        let (family, flags) = (Family::from_numbers(reader.u16()?, reader.u8()?), reader.u8()?);
        let [high, middle, low] = reader.array()?;
        let stale_time = u32::from_be_bytes([0, high, middle, low]);
        let forwarding = flags & GracefulRestart::FORWARDING != 0;
        families.extend(family.map(|family| (family, LongLivedFamily { forwarding, stale_time })));
    }
    Some(families)
}

/// A text after its length, fit to be shown.
fn decode_text(reader: &mut Reader<'_>) -> Option<String> {
    let length = reader.u8()?;
    Some(printable(&String::from_utf8_lossy(reader.take(length.into())?)))
}

/// Appends a text after its length, cut between two characters to what every receiver takes.
fn put_text(out: &mut Vec<u8>, text: &str) {
    const MAX_LENGTH: usize = 64;
    let text = text.get(..text.floor_char_boundary(MAX_LENGTH)).unwrap_or_default();
    out.put_u8(u8::try_from(text.len()).unwrap_or_default());
    out.put_slice(text.as_bytes());
}

#[cfg(test)]
mod tests;
