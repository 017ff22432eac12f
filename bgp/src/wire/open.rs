// SPDX-License-Identifier: Apache-2.0
//! OPEN: who the sender is and what it can do (RFC 4271 §4.2, RFC 5492, RFC 6286, RFC 6793, RFC 7607, RFC 9072).
//!
//! Checked here is what the message alone tells; whether it is the peer that was expected is for the state machine to say.

use std::collections::BTreeSet;

use bytes::{BufMut, Bytes};

use super::header::{MessageType, encode_message};
use super::octets::{Reader, with_length_u16};
use super::{BgpRole, Capability, Error, HEADER_LENGTH, MAX_MESSAGE_LENGTH, Notification};
use crate::{Asn, BgpIdentifier, Family, HoldTime};

/// The version of the protocol.
pub(super) const VERSION: u8 = 4;
/// Parameter Type of Capabilities (RFC 5492 §4).
const CAPABILITIES: u8 = 2;
/// The parameter type, and the length, that stand for extended lengths (RFC 9072 §2).
const EXTENDED: u8 = 255;
/// Octets before the optional parameters, with the header.
const FIXED_LENGTH: usize = HEADER_LENGTH + 10;

/// The first message of a connection (RFC 4271 §4.2).
///
/// ```text
///  0                   1                   2                   3
///  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
/// +-+-+-+-+-+-+-+-+
/// |    Version    |
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// |     My Autonomous System      |
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// |           Hold Time           |
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// |                         BGP Identifier                        |
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// | Opt Parm Len  |
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// |             Optional Parameters (variable)                    |
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// ```
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Open {
    /// The sender's AS: from capability 65 where it is there, else from the two-octet field (RFC 6793 §4.1).
    pub asn: Asn,
    /// The sender's wish; the smaller of both sides' counts.
    pub hold_time: HoldTime,
    /// The sender's BGP Identifier.
    pub identifier: BgpIdentifier,
    /// In the order received.
    pub capabilities: Vec<Capability>,
}

impl Open {
    /// The families that the sender has: IPv4 unicast where it speaks of none (RFC 4760 §8).
    #[must_use]
    pub fn families(&self) -> BTreeSet<Family> {
        if !self.capabilities.iter().any(|capability| capability.code() == Capability::MULTIPROTOCOL) {
            return BTreeSet::from([Family::Ipv4Unicast]);
        }
        self.capabilities
            .iter()
            .filter_map(|capability| if let Capability::Multiprotocol(family) = capability { Some(*family) } else { None })
            .collect()
    }

    /// What the sender says it is to the receiver. More than one is a mismatch (RFC 9234 §4.2).
    #[must_use]
    pub fn roles(&self) -> BTreeSet<BgpRole> {
        let role = |capability: &Capability| if let Capability::Role(role) = capability { Some(*role) } else { None };
        self.capabilities.iter().filter_map(role).collect()
    }

    /// The whole message, with all capabilities in one parameter (RFC 5492 §4), of extended length where they need it (RFC 9072 §2).
    /// A capability that does not fit the message is left out; those of this speaker always do.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        const EXTENDED_OVERHEAD: usize = 6;
        let mut capabilities = Vec::with_capacity(32);
        for capability in &self.capabilities {
            let fits = capabilities.len();
            capability.encode(self.asn, &mut capabilities);
            if FIXED_LENGTH + EXTENDED_OVERHEAD + capabilities.len() > MAX_MESSAGE_LENGTH {
                capabilities.truncate(fits);
            }
        }
        encode_message(MessageType::Open, |out| {
            out.put_u8(VERSION);
            out.put_u16(self.asn.two_octet());
            out.put_u16(self.hold_time.secs());
            out.put_u32(self.identifier.number());
            put_parameters(out, &capabilities);
        })
    }

    /// The body of the message, which has all fixed fields: its length was checked.
    pub(super) fn decode(body: &[u8]) -> Result<Self, Error> {
        let mut reader = Reader::new(body);
        let unspecific = |reason| Error::new(Notification::open_unspecific(), reason);
        if reader.u8() != Some(VERSION) {
            return Err(Error::new(Notification::unsupported_version_number(), "the version of BGP is not 4"));
        }
        let (Some(two_octet_as), Some(hold_time), Some(identifier)) = (reader.u16(), reader.u16(), reader.u32()) else {
            return Err(unspecific("the OPEN is cut"));
        };
        let hold_time = HoldTime::from_secs(hold_time)
            .ok_or_else(|| Error::new(Notification::unacceptable_hold_time(), "the hold time is 1 or 2 seconds"))?;
        let identifier =
            BgpIdentifier::new(identifier).ok_or_else(|| Error::new(Notification::bad_bgp_identifier(), "the BGP Identifier is 0"))?;
        let mut advertised = Advertised::default();
        decode_parameters(&mut reader, &mut advertised)?;
        // RFC 7607 §2: neither of the two may be 0.
        let asn = Asn::new(advertised.four_octet_as.unwrap_or_else(|| two_octet_as.into()))
            .filter(|_| two_octet_as != 0)
            .ok_or_else(|| Error::new(Notification::bad_peer_as(), "the AS number is 0"))?;
        Ok(Self { asn, hold_time, identifier, capabilities: advertised.capabilities })
    }
}

/// Appends Opt Parm Len and the one parameter that holds `capabilities`.
fn put_parameters(out: &mut Vec<u8>, capabilities: &[u8]) {
    const PARAMETER_OVERHEAD: usize = 2;
    match u8::try_from(capabilities.len() + PARAMETER_OVERHEAD) {
        _ if capabilities.is_empty() => out.put_u8(0),
        Ok(length) if length < EXTENDED => {
            out.put_slice(&[length, CAPABILITIES, length - PARAMETER_OVERHEAD as u8]);
            out.put_slice(capabilities);
        }
        _ => {
            out.put_slice(&[EXTENDED, EXTENDED]);
            with_length_u16(out, |out| {
                out.put_u8(CAPABILITIES);
                with_length_u16(out, |out| out.put_slice(capabilities));
            });
        }
    }
}

/// What the optional parameters tell.
#[derive(Default)]
struct Advertised {
    capabilities: Vec<Capability>,
    /// The value of capability 65, which can be 0.
    four_octet_as: Option<u32>,
}

/// Reads Opt Parm Len and the parameters (RFC 4271 §4.2), or the extended form of both (RFC 9072 §2):
///
/// ```text
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// |Non-Ext OP Len.|Non-Ext OP Type|  Extended Opt. Parm. Length   |
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// |  Parm. Type   |        Parameter Length       |  Value        |
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// ```
fn decode_parameters(reader: &mut Reader<'_>, advertised: &mut Advertised) -> Result<(), Error> {
    let wrong = |reason| Error::new(Notification::open_unspecific(), reason);
    let mut length = reader.u8().map(usize::from);
    let extended = length != Some(0) && reader.rest().first() == Some(&EXTENDED);
    if extended {
        reader.u8();
        length = reader.u16().map(usize::from);
    }
    if length != Some(reader.len()) {
        return Err(wrong("the length of the optional parameters is not that of the message"));
    }
    while !reader.is_empty() {
        let parameter_type = reader.u8();
        let length = if extended { reader.u16().map(usize::from) } else { reader.u8().map(usize::from) };
        let value = length.and_then(|length| reader.take(length)).ok_or_else(|| wrong("an optional parameter ends after the message"))?;
        if parameter_type != Some(CAPABILITIES) {
            let notification = Notification::unsupported_optional_parameter();
            return Err(Error::new(notification, "an optional parameter is not Capabilities"));
        }
        decode_capabilities(value, advertised)?;
    }
    Ok(())
}

/// Reads the capabilities of one parameter.
fn decode_capabilities(octets: &[u8], advertised: &mut Advertised) -> Result<(), Error> {
    let wrong = |reason| Error::new(Notification::open_unspecific(), reason);
    let mut reader = Reader::new(octets);
    while let Some(code) = reader.u8() {
        let value = reader
            .u8()
            .and_then(|length| reader.take(length.into()))
            .ok_or_else(|| wrong("a capability ends after its optional parameter"))?;
        let capability = Capability::decode(code, value).ok_or_else(|| wrong("a capability has not the length of its kind"))?;
        if capability == Capability::FourOctetAs && advertised.four_octet_as.is_none() {
            advertised.four_octet_as = Reader::new(value).u32();
        }
        advertised.capabilities.push(capability);
    }
    Ok(())
}

#[cfg(test)]
mod tests;
