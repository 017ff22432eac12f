// SPDX-License-Identifier: Apache-2.0
//! An UPDATE from its octets. Input: the message, its header checked, and what was negotiated. Output: an [`Update`] of which every route could be
//! read, or the end of the session. Errors of one attribute come from [`PathAttribute`]; here they are weighed together (RFC 7606 §3 to §5).

use bytes::Bytes;

use super::Update;
use crate::wire::attribute::{Aggregator, Flags, PathAttribute, decode_aggregator, decode_as4_path};
use crate::wire::error::Malformed;
use crate::wire::nlri::{NlriError, decode_nlri};
use crate::wire::notification::UpdateError;
use crate::wire::octets::Reader;
use crate::wire::{AsPath, AttributeError, Error, ErrorHandling, HEADER_LENGTH, Negotiated, Nlri, Notification};
use crate::{Asn, Family};

impl Update {
    /// The whole message.
    pub(in crate::wire) fn decode(message: &[u8], negotiated: &Negotiated) -> Result<Self, Error> {
        let fields = Fields::split(message.get(HEADER_LENGTH..).unwrap_or_default())?;
        let mut withdrawn = decode_routes(fields.withdrawn, negotiated)?;
        let mut announced = decode_routes(fields.announced, negotiated)?;
        let has_nlri = !announced.is_empty();
        let mut read = Attributes::read(fields.attributes, negotiated)?;
        read.overlook_needless_next_hop(has_nlri);
        read.merge_as4();
        read.require_mandatory(has_nlri);
        read.require_routes(has_nlri)?;

        let mut ignored = take_multicast(&mut announced);
        for attribute in &mut read.attributes {
            if let PathAttribute::MpReach(reach) = attribute {
                ignored.append(&mut take_multicast(&mut reach.announced));
            }
        }
        if !negotiated.families.contains(&Family::Ipv4Unicast) {
            withdrawn.clear();
            announced.clear();
        }
        let malformed = if read.errors.is_empty() { Bytes::new() } else { Bytes::copy_from_slice(message) };
        Ok(Self { withdrawn, attributes: read.attributes, announced, errors: read.errors, ignored, malformed })
    }
}

/// The three fields of an UPDATE.
struct Fields<'a> {
    withdrawn: &'a [u8],
    attributes: &'a [u8],
    announced: &'a [u8],
}

impl<'a> Fields<'a> {
    /// Cuts the body by its two lengths, which must fit (RFC 4271 §6.3, RFC 7606 §4).
    fn split(body: &'a [u8]) -> Result<Self, Error> {
        let malformed = |reason| Error::new(Notification::update_error(UpdateError::MalformedAttributeList, Bytes::new()), reason);
        let mut reader = Reader::new(body);
        let mut field = |reason| {
            let length = reader.u16().ok_or_else(|| malformed(reason))?;
            reader.take(length.into()).ok_or_else(|| malformed(reason))
        };
        let withdrawn = field("the withdrawn routes end after the message")?;
        let attributes = field("the path attributes end after the message")?;
        Ok(Self { withdrawn, attributes, announced: reader.rest() })
    }
}

/// The routes of a field of IPv4 unicast (RFC 4271 §6.3, RFC 7606 §3 i and §5.3).
fn decode_routes(octets: &[u8], negotiated: &Negotiated) -> Result<Vec<Nlri>, Error> {
    let family = Family::Ipv4Unicast;
    decode_nlri(octets, family, negotiated.add_path_receive.contains(&family)).map_err(|error| {
        let reason = match error {
            NlriError::Length => "a prefix is longer than an address",
            NlriError::Cut => "the last prefix of the field is cut",
        };
        Error::new(Notification::update_error(UpdateError::InvalidNetworkField, Bytes::new()), reason)
    })
}

/// Takes the routes out whose destinations are not unicast ones.
fn take_multicast(routes: &mut Vec<Nlri>) -> Vec<Nlri> {
    routes.extract_if(.., |route| route.prefix.address().is_multicast()).collect()
}

/// The attributes of an UPDATE, as far as they are read.
#[derive(Default)]
struct Attributes {
    attributes: Vec<PathAttribute>,
    errors: Vec<AttributeError>,
    seen: TypeCodes,
    /// MP_REACH_NLRI, of whatever family, has routes.
    multiprotocol_routes: bool,
    /// From a peer with two-octet numbers only.
    as4_path: Option<AsPath>,
    /// From a peer with two-octet numbers only.
    as4_aggregator: Option<Aggregator>,
}

/// One attribute, cut out of its list.
struct RawAttribute<'a> {
    flags: Flags,
    type_code: u8,
    value: &'a [u8],
    /// All of it, from the flags on.
    octets: &'a [u8],
}

impl Attributes {
    /// Reads the list. What cannot be cut into attributes any further ends it (RFC 7606 §4).
    fn read(octets: &[u8], negotiated: &Negotiated) -> Result<Self, Error> {
        let mut read = Self::default();
        let mut reader = Reader::new(octets);
        while !reader.is_empty() {
            let rest = reader.rest();
            match RawAttribute::cut(&mut reader) {
                Some(raw) => read.take(&raw, negotiated)?,
                None => {
                    read.take_truncated(rest)?;
                    break;
                }
            }
        }
        Ok(read)
    }

    /// Takes one attribute in, or the error that it is.
    fn take(&mut self, raw: &RawAttribute<'_>, negotiated: &Negotiated) -> Result<(), Error> {
        if !self.seen.insert(raw.type_code) {
            return self.take_repeated(raw);
        }
        match self.decode(raw, negotiated) {
            Ok(None) => Ok(()),
            Ok(Some(malformed)) | Err(malformed) => self.report(raw, malformed),
        }
    }

    /// Decodes one attribute and keeps it. What is wrong with it is told beside where it is kept nevertheless.
    fn decode(&mut self, raw: &RawAttribute<'_>, negotiated: &Negotiated) -> Result<Option<Malformed>, Malformed> {
        let as4 = [PathAttribute::AS4_PATH, PathAttribute::AS4_AGGREGATOR].contains(&raw.type_code);
        if as4 && negotiated.four_octet_as {
            let reason = "a peer with four-octet AS numbers must not send this attribute";
            return Err(Malformed::attribute_discard(UpdateError::OptionalAttribute, reason));
        }
        PathAttribute::check_flags(raw.type_code, raw.flags, negotiated)?;
        match raw.type_code {
            PathAttribute::AS4_PATH => self.as4_path = Some(decode_as4_path(raw.value)?),
            PathAttribute::AS4_AGGREGATOR => self.as4_aggregator = Some(decode_aggregator(raw.value, true)?),
            _ => {
                let (attribute, malformed) = PathAttribute::decode(raw.type_code, raw.flags, raw.value, negotiated)?;
                self.multiprotocol_routes |= match &attribute {
                    PathAttribute::MpReach(reach) => !reach.announced.is_empty(),
                    PathAttribute::Unknown { type_code, .. } => *type_code == PathAttribute::MP_REACH_NLRI,
                    _ => false,
                };
                self.attributes.push(attribute);
                return Ok(malformed);
            }
        }
        Ok(None)
    }

    /// A second attribute of one type: of multiprotocol routes it ends the session, any other does not count (RFC 7606 §3 g).
    fn take_repeated(&mut self, raw: &RawAttribute<'_>) -> Result<(), Error> {
        let reason = "an attribute of this type was there before";
        let malformed = if raw.is_multiprotocol() { Malformed::session_reset } else { Malformed::attribute_discard };
        self.report(raw, malformed(UpdateError::MalformedAttributeList, reason))
    }

    /// What is left when it makes no whole attribute (RFC 7606 §4). Where it is the routes that are cut, the session ends (§3 j).
    fn take_truncated(&mut self, octets: &[u8]) -> Result<(), Error> {
        let mut reader = Reader::new(octets);
        let (flags, type_code) = (Flags(reader.u8().unwrap_or_default()), reader.u8().unwrap_or_default());
        let raw = RawAttribute { flags, type_code, value: &[], octets };
        self.seen.insert(type_code);
        let malformed = if raw.is_multiprotocol() { Malformed::session_reset } else { Malformed::treat_as_withdraw };
        self.report(&raw, malformed(UpdateError::MalformedAttributeList, "the attribute ends after the list of attributes"))
    }

    fn report(&mut self, raw: &RawAttribute<'_>, malformed: Malformed) -> Result<(), Error> {
        let Malformed { handling, subcode, reason } = malformed;
        let octets = Bytes::copy_from_slice(raw.octets);
        let Some(handling) = handling else { return Err(Error::new(Notification::update_error(subcode, octets), reason)) };
        self.errors.push(AttributeError { type_code: raw.type_code, flags: raw.flags.0, handling, reason, octets, subcode });
        Ok(())
    }

    /// NEXT_HOP is of the NLRI field; beside MP_REACH_NLRI alone it does not count, whatever it is (RFC 4760 §3).
    fn overlook_needless_next_hop(&mut self, has_nlri: bool) {
        if !has_nlri && self.seen.contains(PathAttribute::MP_REACH_NLRI) {
            self.attributes.retain(|attribute| !matches!(attribute, PathAttribute::NextHop(_)));
            self.errors.retain(|error| error.type_code != PathAttribute::NEXT_HOP);
        }
    }

    /// Completes AS_PATH and AGGREGATOR of a two-octet speaker (RFC 6793 §4.2.3).
    fn merge_as4(&mut self) {
        let (mut as4_path, mut as4_aggregator) = (self.as4_path.take(), self.as4_aggregator.take());
        for attribute in &mut self.attributes {
            let PathAttribute::Aggregator(aggregator) = attribute else { continue };
            match as4_aggregator.take() {
                Some(as4) if aggregator.value.asn.number() == Asn::TRANS.into() => aggregator.value = as4,
                // A two-octet speaker has aggregated since: both AS4 attributes tell of routes before that.
                Some(_) => as4_path = None,
                None => {}
            }
        }
        for attribute in &mut self.attributes {
            if let PathAttribute::AsPath(path) = attribute
                && let Some(as4_path) = as4_path.take()
            {
                *path = std::mem::take(path).merged_with(as4_path);
            }
        }
    }

    /// Announced routes have ORIGIN and AS_PATH, and those of the NLRI field NEXT_HOP, or count as withdrawn (RFC 7606 §3 d).
    fn require_mandatory(&mut self, has_nlri: bool) {
        let mandatory = [
            (PathAttribute::ORIGIN, has_nlri || self.multiprotocol_routes),
            (PathAttribute::AS_PATH, has_nlri || self.multiprotocol_routes),
            (PathAttribute::NEXT_HOP, has_nlri),
        ];
        for (type_code, required) in mandatory {
            if required && !self.seen.contains(type_code) {
                self.errors.push(AttributeError {
                    type_code,
                    flags: 0,
                    handling: ErrorHandling::TreatAsWithdraw,
                    reason: "a mandatory attribute is missing",
                    octets: Bytes::new(),
                    subcode: UpdateError::MissingWellKnownAttribute,
                });
            }
        }
    }

    /// Routes can be treated as withdrawn only where there are routes; else some may have been missed, and the session ends (RFC 7606 §5.2).
    fn require_routes(&self, has_nlri: bool) -> Result<(), Error> {
        let unsure = !has_nlri && !self.multiprotocol_routes;
        match self.errors.iter().find(|error| error.handling == ErrorHandling::TreatAsWithdraw) {
            Some(error) if unsure => Err(error.session_reset()),
            _ => Ok(()),
        }
    }
}

impl<'a> RawAttribute<'a> {
    /// Cuts the next attribute off; `None` where what is left does not hold it.
    fn cut(reader: &mut Reader<'a>) -> Option<Self> {
        let rest = reader.rest();
        let (flags, type_code) = (Flags(reader.u8()?), reader.u8()?);
        let length = if flags.contains(Flags::EXTENDED_LENGTH) { reader.u16()?.into() } else { reader.u8()?.into() };
        let value = reader.take(length)?;
        let octets = rest.get(..rest.len() - reader.len())?;
        Some(Self { flags, type_code, value, octets })
    }

    fn is_multiprotocol(&self) -> bool {
        [PathAttribute::MP_REACH_NLRI, PathAttribute::MP_UNREACH_NLRI].contains(&self.type_code)
    }
}

/// A set of Attribute Type Codes.
#[derive(Default)]
struct TypeCodes([u128; 2]);

impl TypeCodes {
    /// Whether the type was not there before.
    const fn insert(&mut self, type_code: u8) -> bool {
        let new = !self.contains(type_code);
        let [low, high] = &mut self.0;
        let (half, bit) = if type_code < 128 { (low, type_code) } else { (high, type_code - 128) };
        *half |= 1 << bit;
        new
    }

    const fn contains(&self, type_code: u8) -> bool {
        let [low, high] = self.0;
        if type_code < 128 { low >> type_code & 1 == 1 } else { high >> (type_code - 128) & 1 == 1 }
    }
}
