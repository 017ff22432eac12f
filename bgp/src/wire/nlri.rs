// SPDX-License-Identifier: Apache-2.0
//! Network Layer Reachability Information: prefixes as a sequence of length and address (RFC 4271 §4.3, RFC 4760 §5), each with a path identifier
//! where both sides agreed on that (RFC 7911 §3).

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use bytes::BufMut;

use super::octets::Reader;
use crate::{Family, Prefix};

/// One route in an UPDATE: its destination, and which of the paths to it (RFC 7911 §3). Ordered by destination.
///
/// ```text
/// +--------------------------------+
/// | Path Identifier (4 octets)     |  with ADD-PATH only
/// +--------------------------------+
/// | Length (1 octet)               |
/// +--------------------------------+
/// | Prefix (variable)              |
/// +--------------------------------+
/// ```
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Nlri {
    /// The destination.
    pub prefix: Prefix,
    /// The sender's name for the path among those to this destination. 0, and not on the wire, where the session has no path identifiers for the
    /// family in this direction.
    pub path_id: u32,
}

impl From<Prefix> for Nlri {
    /// The only path to a destination.
    fn from(prefix: Prefix) -> Self {
        Self { prefix, path_id: 0 }
    }
}

impl fmt::Display for Nlri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.path_id {
            0 => self.prefix.fmt(f),
            path_id => write!(f, "{} (path {path_id})", self.prefix),
        }
    }
}

/// Why octets are no sequence of routes (RFC 7606 §5.3).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum NlriError {
    /// A length is over that of the family's addresses.
    Length,
    /// The last route ends after the field.
    Cut,
}

/// All routes of a field, with path identifiers or without.
pub(super) fn decode_nlri(octets: &[u8], family: Family, add_path: bool) -> Result<Vec<Nlri>, NlriError> {
    let address_octets = match family {
        Family::Ipv4Unicast => 4,
        Family::Ipv6Unicast => 16,
    };
    let mut reader = Reader::new(octets);
    let mut routes = Vec::with_capacity(octets.len() / (1 + address_octets));
    while !reader.is_empty() {
        let path_id = if add_path { reader.u32().ok_or(NlriError::Cut)? } else { 0 };
        let length = reader.u8().ok_or(NlriError::Cut)?;
        let significant = usize::from(length).div_ceil(8);
        if significant > address_octets {
            return Err(NlriError::Length);
        }
        let significant = reader.take(significant).ok_or(NlriError::Cut)?;
        let address: IpAddr = match family {
            Family::Ipv4Unicast => Ipv4Addr::from(padded(significant)).into(),
            Family::Ipv6Unicast => Ipv6Addr::from(padded(significant)).into(),
        };
        let prefix = Prefix::truncated(address, length).ok().ok_or(NlriError::Length)?;
        routes.push(Nlri { prefix, path_id });
    }
    Ok(routes)
}

fn padded<const N: usize>(octets: &[u8]) -> [u8; N] {
    let mut address = [0; N];
    address.iter_mut().zip(octets).for_each(|(to, from)| *to = *from);
    address
}

/// How many octets a route takes.
pub(super) fn encoded_length(route: &Nlri, add_path: bool) -> usize {
    let path_id = if add_path { 4 } else { 0 };
    path_id + 1 + usize::from(route.prefix.length()).div_ceil(8)
}

/// Appends a route, its prefix with as few octets as its length takes.
pub(super) fn put_nlri(out: &mut Vec<u8>, route: &Nlri, add_path: bool) {
    if add_path {
        out.put_u32(route.path_id);
    }
    let significant = usize::from(route.prefix.length()).div_ceil(8);
    out.put_u8(route.prefix.length());
    match route.prefix.address() {
        IpAddr::V4(address) => out.extend(address.octets().iter().take(significant)),
        IpAddr::V6(address) => out.extend(address.octets().iter().take(significant)),
    }
}
