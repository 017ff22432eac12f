// SPDX-License-Identifier: Apache-2.0
//! Many routes of one attribute set, in as few UPDATEs as they take. Each message is as full as can be and holds one kind of routes only
//! (RFC 7606 §5.1): withdrawn or announced, in the fields of IPv4 unicast or in MP_REACH_NLRI and MP_UNREACH_NLRI.

use bytes::BufMut;

use super::attribute::{Flags, PathAttribute, put_attribute};
use super::header::{MessageType, append_message};
use super::nlri::{Nlri, encoded_length, put_nlri};
use super::octets::with_length_u16;
use super::update::put_attributes;
use super::{EncodeError, HEADER_LENGTH, MpReach, MpUnreach, Negotiated, NextHop};
use crate::Family;

/// Octets of an UPDATE without attributes and routes.
const EMPTY_UPDATE_LENGTH: usize = HEADER_LENGTH + 4;
/// Octets before the value of MP_REACH_NLRI or MP_UNREACH_NLRI.
const ATTRIBUTE_HEADER_LENGTH: usize = 4;

/// Appends to `out` one UPDATE that announces the leading `routes` with `attributes` and `next_hop`: as many as fit. Returns how many of `routes`
/// are done with; repeated with the rest it tells all. Routes of another family than `family` are passed over, and so are NEXT_HOP, MP_REACH_NLRI
/// and MP_UNREACH_NLRI in `attributes`.
///
/// # Errors
/// Nothing is appended where a single route with these attributes does not fit, or the next hop cannot be sent for `family`.
pub fn encode_announcement(
    attributes: &[PathAttribute],
    next_hop: NextHop,
    family: Family,
    routes: &[Nlri],
    negotiated: &Negotiated,
    out: &mut Vec<u8>,
) -> Result<usize, EncodeError> {
    if !next_hop.can_be_sent_for(family, negotiated) {
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
    let leading = Leading::of(routes, family, EMPTY_UPDATE_LENGTH + multiprotocol + common.len(), negotiated);
    if !leading.has_routes {
        let all = leading.taken == routes.len();
        let too_long = EncodeError::TooLong { length: leading.too_long, limit: negotiated.max_send_length };
        return if all { Ok(leading.taken) } else { Err(too_long) };
    }
    let (routes, add_path) = (leading.routes(routes, family), leading.add_path);
    append_message(out, MessageType::Update, |out| {
        out.put_u16(0);
        if in_nlri_field.is_some() {
            with_length_u16(out, |out| out.put_slice(&common));
            routes.for_each(|route| put_nlri(out, route, add_path));
        } else {
            with_length_u16(out, |out| {
                put_multiprotocol(out, PathAttribute::MP_REACH_NLRI, |out| MpReach::encode(family, next_hop, routes, add_path, out));
                out.put_slice(&common);
            });
        }
    });
    Ok(leading.taken)
}

/// Appends to `out` one UPDATE that withdraws the leading `routes`: as many as fit. Returns how many of `routes` are done with; repeated with the
/// rest it tells all. Routes of another family than `family` are passed over.
pub fn encode_withdrawal(family: Family, routes: &[Nlri], negotiated: &Negotiated, out: &mut Vec<u8>) -> usize {
    let in_withdrawn_field = family == Family::Ipv4Unicast;
    let multiprotocol = if in_withdrawn_field { 0 } else { ATTRIBUTE_HEADER_LENGTH + MpUnreach::FIXED_LENGTH };
    let leading = Leading::of(routes, family, EMPTY_UPDATE_LENGTH + multiprotocol, negotiated);
    let (routes, add_path) = (leading.routes(routes, family), leading.add_path);
    if leading.has_routes {
        append_message(out, MessageType::Update, |out| {
            if in_withdrawn_field {
                with_length_u16(out, |out| routes.for_each(|route| put_nlri(out, route, add_path)));
                out.put_u16(0);
            } else {
                out.put_u16(0);
                with_length_u16(out, |out| {
                    put_multiprotocol(out, PathAttribute::MP_UNREACH_NLRI, |out| MpUnreach::encode(family, routes, add_path, out));
                });
            }
        });
    }
    leading.taken
}

/// The leading routes that go into one message.
struct Leading {
    /// How many, those passed over among them.
    taken: usize,
    /// Whether one of them is of the family.
    has_routes: bool,
    /// The length of the message that would have one more.
    too_long: usize,
    /// Whether path identifiers go with them.
    add_path: bool,
}

impl Leading {
    /// As many as fit beside `fixed` octets of the message.
    fn of(routes: &[Nlri], family: Family, fixed: usize, negotiated: &Negotiated) -> Self {
        let add_path = negotiated.add_path_send.contains(&family);
        let mut leading = Self { taken: 0, has_routes: false, too_long: fixed, add_path };
        for route in routes {
            if route.prefix.family() == family {
                leading.too_long += encoded_length(route, add_path);
                if leading.too_long > negotiated.max_send_length {
                    break;
                }
                leading.has_routes = true;
            }
            leading.taken += 1;
        }
        leading
    }

    fn routes<'a>(&self, routes: &'a [Nlri], family: Family) -> impl Iterator<Item = &'a Nlri> {
        routes.iter().take(self.taken).filter(move |route| route.prefix.family() == family)
    }
}

fn put_multiprotocol(out: &mut Vec<u8>, type_code: u8, write_value: impl FnOnce(&mut Vec<u8>)) {
    put_attribute(out, Flags::OPTIONAL.with(Flags::EXTENDED_LENGTH), type_code, write_value);
}

#[cfg(test)]
mod tests;
