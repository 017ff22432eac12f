// SPDX-License-Identifier: Apache-2.0
//! Many routes of one attribute set, in as few UPDATEs as they take. Each message is as full as can be and holds one kind of routes only
//! (RFC 7606 §5.1): withdrawn or announced, in the fields of IPv4 unicast or in MP_REACH_NLRI and MP_UNREACH_NLRI.

use bytes::BufMut;

use super::attribute::{Flags, PathAttribute, put_attribute};
use super::header::{MessageType, append_message};
use super::nlri::{encoded_length, put_prefix};
use super::octets::with_length_u16;
use super::update::put_attributes;
use super::{EncodeError, HEADER_LENGTH, MAX_MESSAGE_LENGTH, MpReach, MpUnreach, Negotiated, NextHop};
use crate::{Family, Prefix};

/// Octets of an UPDATE without attributes and routes.
const EMPTY_UPDATE_LENGTH: usize = HEADER_LENGTH + 4;
/// Octets before the value of MP_REACH_NLRI or MP_UNREACH_NLRI.
const ATTRIBUTE_HEADER_LENGTH: usize = 4;

/// Appends to `out` one UPDATE that announces the leading `prefixes` with `attributes` and `next_hop`: as many as fit. Returns how many of
/// `prefixes` are done with; repeated with the rest it tells all. Prefixes of another family than `family` are passed over, and so are
/// NEXT_HOP, MP_REACH_NLRI and MP_UNREACH_NLRI in `attributes`.
///
/// # Errors
/// Nothing is appended where a single prefix with these attributes does not fit, or the next hop cannot be sent for `family`.
pub fn encode_announcement(
    attributes: &[PathAttribute],
    next_hop: NextHop,
    family: Family,
    prefixes: &[Prefix],
    negotiated: &Negotiated,
    out: &mut Vec<u8>,
) -> Result<usize, EncodeError> {
    if !next_hop.can_be_sent_for(family) {
        return Err(EncodeError::NextHop { next_hop, family });
    }
    let in_nlri_field = match (family, next_hop) {
        (Family::Ipv4Unicast, NextHop::V4(address)) => Some(PathAttribute::NextHop(address)),
        _ => None,
    };
    let mut common = Vec::with_capacity(128);
    let without_routes = attributes
        .iter()
        .filter(|attribute| !matches!(attribute, PathAttribute::NextHop(_) | PathAttribute::MpReach(_) | PathAttribute::MpUnreach(_)));
    put_attributes(without_routes.chain(&in_nlri_field), negotiated, &mut common);

    let multiprotocol = if in_nlri_field.is_some() { 0 } else { ATTRIBUTE_HEADER_LENGTH + MpReach::fixed_length(next_hop) };
    let leading = Leading::of(prefixes, family, EMPTY_UPDATE_LENGTH + multiprotocol + common.len());
    if !leading.has_routes {
        let all = leading.taken == prefixes.len();
        return if all { Ok(leading.taken) } else { Err(EncodeError::TooLong { length: leading.too_long }) };
    }
    let routes = leading.routes(prefixes, family);
    append_message(out, MessageType::Update, |out| {
        out.put_u16(0);
        if in_nlri_field.is_some() {
            with_length_u16(out, |out| out.put_slice(&common));
            routes.for_each(|prefix| put_prefix(out, prefix));
        } else {
            with_length_u16(out, |out| {
                put_multiprotocol(out, PathAttribute::MP_REACH_NLRI, |out| MpReach::encode(family, next_hop, routes, out));
                out.put_slice(&common);
            });
        }
    });
    Ok(leading.taken)
}

/// Appends to `out` one UPDATE that withdraws the leading `prefixes`: as many as fit. Returns how many of `prefixes` are done with; repeated with
/// the rest it tells all. Prefixes of another family than `family` are passed over.
pub fn encode_withdrawal(family: Family, prefixes: &[Prefix], out: &mut Vec<u8>) -> usize {
    let in_withdrawn_field = family == Family::Ipv4Unicast;
    let multiprotocol = if in_withdrawn_field { 0 } else { ATTRIBUTE_HEADER_LENGTH + MpUnreach::FIXED_LENGTH };
    let leading = Leading::of(prefixes, family, EMPTY_UPDATE_LENGTH + multiprotocol);
    let routes = leading.routes(prefixes, family);
    if leading.has_routes {
        append_message(out, MessageType::Update, |out| {
            if in_withdrawn_field {
                with_length_u16(out, |out| routes.for_each(|prefix| put_prefix(out, prefix)));
                out.put_u16(0);
            } else {
                out.put_u16(0);
                with_length_u16(out, |out| {
                    put_multiprotocol(out, PathAttribute::MP_UNREACH_NLRI, |out| MpUnreach::encode(family, routes, out));
                });
            }
        });
    }
    leading.taken
}

/// The leading prefixes that go into one message.
struct Leading {
    /// How many, those passed over among them.
    taken: usize,
    /// Whether one of them is of the family.
    has_routes: bool,
    /// The length of the message that would have one more.
    too_long: usize,
}

impl Leading {
    /// As many as fit beside `fixed` octets of the message.
    fn of(prefixes: &[Prefix], family: Family, fixed: usize) -> Self {
        let mut leading = Self { taken: 0, has_routes: false, too_long: fixed };
        for prefix in prefixes {
            if prefix.family() == family {
                leading.too_long += encoded_length(prefix);
                if leading.too_long > MAX_MESSAGE_LENGTH {
                    break;
                }
                leading.has_routes = true;
            }
            leading.taken += 1;
        }
        leading
    }

    fn routes<'a>(&self, prefixes: &'a [Prefix], family: Family) -> impl Iterator<Item = &'a Prefix> {
        prefixes.iter().take(self.taken).filter(move |prefix| prefix.family() == family)
    }
}

fn put_multiprotocol(out: &mut Vec<u8>, type_code: u8, write_value: impl FnOnce(&mut Vec<u8>)) {
    put_attribute(out, Flags::OPTIONAL.with(Flags::EXTENDED_LENGTH), type_code, write_value);
}

#[cfg(test)]
mod tests;
