// SPDX-License-Identifier: Apache-2.0
//! Prefixes as a sequence of length and address (RFC 4271 §4.3, RFC 4760 §5).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use bytes::BufMut;

use super::octets::Reader;
use crate::{Family, Prefix};

/// Why octets are no sequence of prefixes (RFC 7606 §5.3).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum NlriError {
    /// A length is over that of the family's addresses.
    Length,
    /// The last prefix ends after the field.
    Cut,
}

/// All prefixes of a field:
///
/// ```text
/// +---------------------------+
/// |   Length (1 octet)        |
/// +---------------------------+
/// |   Prefix (variable)       |
/// +---------------------------+
/// ```
pub(super) fn decode_prefixes(octets: &[u8], family: Family) -> Result<Vec<Prefix>, NlriError> {
    let address_octets = match family {
        Family::Ipv4Unicast => 4,
        Family::Ipv6Unicast => 16,
    };
    let mut reader = Reader::new(octets);
    let mut prefixes = Vec::with_capacity(octets.len() / (1 + address_octets));
    while let Some(length) = reader.u8() {
        let significant = usize::from(length).div_ceil(8);
        if significant > address_octets {
            return Err(NlriError::Length);
        }
        let significant = reader.take(significant).ok_or(NlriError::Cut)?;
        let address: IpAddr = match family {
            Family::Ipv4Unicast => Ipv4Addr::from(padded(significant)).into(),
            Family::Ipv6Unicast => Ipv6Addr::from(padded(significant)).into(),
        };
        prefixes.push(Prefix::truncated(address, length).ok().ok_or(NlriError::Length)?);
    }
    Ok(prefixes)
}

fn padded<const N: usize>(octets: &[u8]) -> [u8; N] {
    let mut address = [0; N];
    address.iter_mut().zip(octets).for_each(|(to, from)| *to = *from);
    address
}

/// How many octets a prefix takes.
pub(super) fn encoded_length(prefix: &Prefix) -> usize {
    1 + usize::from(prefix.length()).div_ceil(8)
}

/// Appends a prefix with as few octets as its length takes.
pub(super) fn put_prefix(out: &mut Vec<u8>, prefix: &Prefix) {
    let significant = usize::from(prefix.length()).div_ceil(8);
    out.put_u8(prefix.length());
    match prefix.address() {
        IpAddr::V4(address) => out.extend(address.octets().iter().take(significant)),
        IpAddr::V6(address) => out.extend(address.octets().iter().take(significant)),
    }
}
