// SPDX-License-Identifier: Apache-2.0
//! UPDATE: routes announced and withdrawn (RFC 4271 §4.3), decoded with the error handling of RFC 7606 and the AS numbers of RFC 6793.

mod decode;

use bytes::{BufMut, Bytes};

use super::attribute::{Aggregator, Flags, PathAttribute, Transitive, put_attribute};
use super::header::{MessageType, append_message};
use super::nlri::put_nlri;
use super::octets::with_length_u16;
use super::{AttributeError, EncodeError, ErrorHandling, MpUnreach, Negotiated, NextHop, Nlri};
use crate::Family;

/// Routes that are withdrawn, and routes that are announced with one set of attributes.
///
/// ```text
/// +-----------------------------------------------------+
/// |   Withdrawn Routes Length (2 octets)                |
/// +-----------------------------------------------------+
/// |   Withdrawn Routes (variable)                       |
/// +-----------------------------------------------------+
/// |   Total Path Attribute Length (2 octets)            |
/// +-----------------------------------------------------+
/// |   Path Attributes (variable)                        |
/// +-----------------------------------------------------+
/// |   Network Layer Reachability Information (variable) |
/// +-----------------------------------------------------+
/// ```
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Update {
    /// Withdrawn Routes: IPv4 unicast. Empty where that family is not negotiated.
    pub withdrawn: Vec<Nlri>,
    /// The attributes that count, in the order received.
    pub attributes: Vec<PathAttribute>,
    /// Network Layer Reachability Information: IPv4 unicast. Empty where that family is not negotiated.
    pub announced: Vec<Nlri>,
    /// The attributes that were malformed or missing.
    pub errors: Vec<AttributeError>,
    /// Destinations announced that are not unicast ones: to be logged, and in no other field (RFC 4271 §6.3).
    pub ignored: Vec<Nlri>,
    /// The whole message where `errors` has any, for the log (RFC 7606 §8); else empty.
    pub malformed: Bytes,
}

impl Update {
    /// The worst of `errors`. With [`ErrorHandling::TreatAsWithdraw`] every route that is announced here counts as withdrawn.
    #[must_use]
    pub fn handling(&self) -> Option<ErrorHandling> {
        self.errors.iter().map(|error| error.handling).max()
    }

    /// End-of-RIB: the first set of routes of this family is complete (RFC 4724 §2).
    #[must_use]
    pub fn end_of_rib(family: Family) -> Self {
        let attributes = match family {
            Family::Ipv4Unicast => Vec::new(),
            Family::Ipv6Unicast => vec![PathAttribute::MpUnreach(MpUnreach { family, withdrawn: Vec::new() })],
        };
        Self { attributes, ..Self::default() }
    }

    /// The family of which this is the End-of-RIB.
    #[must_use]
    pub fn is_end_of_rib(&self) -> Option<Family> {
        let Self { withdrawn, attributes, announced, errors, ignored, malformed: _ } = self;
        if !(withdrawn.is_empty() && announced.is_empty() && errors.is_empty() && ignored.is_empty()) {
            return None;
        }
        match attributes.as_slice() {
            [] => Some(Family::Ipv4Unicast),
            [PathAttribute::MpUnreach(MpUnreach { family, withdrawn })] if withdrawn.is_empty() => Some(*family),
            _ => None,
        }
    }

    /// Appends the whole message.
    ///
    /// # Errors
    /// Nothing is appended where the message would be too long, or a next hop cannot be sent.
    pub(super) fn encode(&self, negotiated: &Negotiated, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        for attribute in &self.attributes {
            let (family, next_hop) = match attribute {
                PathAttribute::NextHop(address) => (Family::Ipv4Unicast, NextHop::V4(*address)),
                PathAttribute::MpReach(reach) => (reach.family, reach.next_hop),
                _ => continue,
            };
            if !next_hop.can_be_sent_for(family, negotiated) {
                return Err(EncodeError::NextHop { next_hop, family });
            }
        }
        let start = out.len();
        let add_path = negotiated.add_path_send.contains(&Family::Ipv4Unicast);
        let length = append_message(out, MessageType::Update, |out| {
            with_length_u16(out, |out| self.withdrawn.iter().for_each(|route| put_nlri(out, route, add_path)));
            with_length_u16(out, |out| put_attributes(&self.attributes, negotiated, out));
            self.announced.iter().for_each(|route| put_nlri(out, route, add_path));
        });
        let limit = negotiated.max_send_length;
        if length > limit {
            out.truncate(start);
            return Err(EncodeError::TooLong { length, limit });
        }
        Ok(())
    }
}

/// Appends path attributes: MP_REACH_NLRI and MP_UNREACH_NLRI first (RFC 7606 §5.1), the others in the order of their types (RFC 4271 §5), for a
/// peer with two-octet numbers with what it cannot read of them beside (RFC 6793 §4.2.2).
pub(super) fn put_attributes<'a>(attributes: impl IntoIterator<Item = &'a PathAttribute>, negotiated: &Negotiated, out: &mut Vec<u8>) {
    let mut attributes: Vec<_> = attributes.into_iter().collect();
    attributes.sort_by_key(|attribute| {
        let type_code = attribute.type_code();
        (![PathAttribute::MP_REACH_NLRI, PathAttribute::MP_UNREACH_NLRI].contains(&type_code), type_code)
    });
    if negotiated.four_octet_as {
        return attributes.iter().for_each(|attribute| attribute.encode(negotiated, out));
    }
    let behind = attributes.partition_point(|attribute| attribute.type_code() < PathAttribute::AS4_PATH);
    let (before, behind) = attributes.split_at(behind);
    before.iter().for_each(|attribute| attribute.encode(negotiated, out));
    put_as4_attributes(&attributes, out);
    behind.iter().for_each(|attribute| attribute.encode(negotiated, out));
}

/// Appends AS4_PATH and AS4_AGGREGATOR where AS_PATH and AGGREGATOR have numbers that do not fit two octets (RFC 6793 §4.2.2).
fn put_as4_attributes(attributes: &[&PathAttribute], out: &mut Vec<u8>) {
    let flags = Flags::OPTIONAL_TRANSITIVE;
    for attribute in attributes {
        if let PathAttribute::AsPath(path) = attribute
            && let Some(path) = path.as4_path()
        {
            put_attribute(out, flags, PathAttribute::AS4_PATH, |out| path.encode(true, out));
        }
    }
    for attribute in attributes {
        if let PathAttribute::Aggregator(Transitive { value: Aggregator { asn, address }, .. }) = attribute
            && asn.number() > u16::MAX.into()
        {
            put_attribute(out, flags, PathAttribute::AS4_AGGREGATOR, |out| {
                out.put_u32(asn.number());
                out.put_slice(&address.octets());
            });
        }
    }
}

#[cfg(test)]
mod tests;
