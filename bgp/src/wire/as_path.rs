// SPDX-License-Identifier: Apache-2.0
//! AS_PATH (RFC 4271 §4.3 b and §5.1.2, RFC 5065 §3), with two-octet and with four-octet numbers (RFC 6793 §4.2).

use bytes::BufMut;

use super::octets::Reader;
use crate::Asn;

/// The ASes that a route has passed, the nearest first. Empty where it was originated in the AS (RFC 4271 §5.1.2).
#[derive(Clone, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub struct AsPath(pub Vec<AsPathSegment>);

/// A part of an AS_PATH. One without any AS is not sent.
///
/// ```text
/// +-------------------------------+
/// | Path Segment Type (1 octet)   |
/// +-------------------------------+
/// | Path Segment Length (1 octet) |  in ASes
/// +-------------------------------+
/// | Path Segment Value (variable) |  two or four octets for each
/// +-------------------------------+
/// ```
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum AsPathSegment {
    /// Type 1, AS_SET: in no order.
    Set(Vec<Asn>),
    /// Type 2, AS_SEQUENCE: the nearest first.
    Sequence(Vec<Asn>),
    /// Type 3, AS_CONFED_SEQUENCE: ASes inside the confederation, the nearest first (RFC 5065 §3).
    ConfedSequence(Vec<Asn>),
    /// Type 4, AS_CONFED_SET (RFC 5065 §3).
    ConfedSet(Vec<Asn>),
}

impl AsPath {
    /// The attribute value, with numbers of four octets or of two; the error says what is wrong with it (RFC 7606 §7.2, RFC 7607 §2).
    pub(super) fn decode(value: &[u8], four_octet: bool) -> Result<Self, &'static str> {
        let mut reader = Reader::new(value);
        let mut segments = Vec::with_capacity(1);
        while let Some(segment_type) = reader.u8() {
            let count = usize::from(reader.u8().ok_or("a segment of the path has no length")?);
            if count == 0 {
                return Err("a segment of the path is empty");
            }
            let octets = reader.take(count * if four_octet { 4 } else { 2 }).ok_or("a segment of the path is cut")?;
            let ases = if four_octet { ases(octets, u32::from_be_bytes) } else { ases(octets, |two| u16::from_be_bytes(two).into()) };
            let ases = ases.ok_or("AS 0 is in the path")?;
            segments.push(match segment_type {
                1 => AsPathSegment::Set(ases),
                2 => AsPathSegment::Sequence(ases),
                3 => AsPathSegment::ConfedSequence(ases),
                4 => AsPathSegment::ConfedSet(ases),
                _ => return Err("a segment of the path is of an unknown type"),
            });
        }
        Ok(Self(segments))
    }

    /// Appends the attribute value. In two octets a number that does not fit is AS_TRANS (RFC 6793 §4.2.2).
    pub(super) fn encode(&self, four_octet: bool, out: &mut Vec<u8>) {
        for segment in &self.0 {
            for ases in segment.ases().chunks(u8::MAX.into()) {
                out.put_u8(segment.type_number());
                out.put_u8(u8::try_from(ases.len()).unwrap_or(u8::MAX));
                for asn in ases {
                    if four_octet { out.put_u32(asn.number()) } else { out.put_u16(asn.two_octet()) }
                }
            }
        }
    }

    /// Whether a segment is an AS_SET or AS_CONFED_SET, which nobody is to send any more (RFC 9774 §3).
    pub(super) fn has_set(&self) -> bool {
        self.0.iter().any(|segment| matches!(segment, AsPathSegment::Set(_) | AsPathSegment::ConfedSet(_)))
    }

    /// Whether a segment is of a confederation.
    pub(super) fn has_confederation(&self) -> bool {
        self.0.iter().any(AsPathSegment::is_confederation)
    }

    /// The path without the segments of a confederation.
    pub(crate) fn without_confederation(&self) -> Self {
        Self(self.0.iter().filter(|segment| !segment.is_confederation()).cloned().collect())
    }

    /// What AS4_PATH tells a two-octet speaker; `None` where every number fits two octets (RFC 6793 §4.2.2).
    pub(super) fn as4_path(&self) -> Option<Self> {
        let path = self.without_confederation();
        path.0.iter().flat_map(AsPathSegment::ases).any(|asn| asn.number() > u16::MAX.into()).then_some(path)
    }

    /// How many ASes count: one for a set, none of a confederation (RFC 4271 §9.1.2.2 a, RFC 5065 §5.3).
    #[must_use]
    pub fn length(&self) -> usize {
        self.0
            .iter()
            .map(|segment| match segment {
                AsPathSegment::Sequence(ases) => ases.len(),
                AsPathSegment::Set(_) => 1,
                AsPathSegment::ConfedSequence(_) | AsPathSegment::ConfedSet(_) => 0,
            })
            .sum()
    }

    /// The path of a two-octet speaker completed from its AS4_PATH: the leading ASes that `as4_path` lacks, then `as4_path` (RFC 6793 §4.2.3).
    pub(super) fn merged_with(self, as4_path: Self) -> Self {
        let Some(mut lacking) = self.length().checked_sub(as4_path.length()) else { return self };
        let mut segments = Vec::with_capacity(self.0.len());
        for segment in self.0 {
            match segment {
                AsPathSegment::ConfedSequence(_) | AsPathSegment::ConfedSet(_) => segments.push(segment),
                _ if lacking == 0 => break,
                AsPathSegment::Set(_) => {
                    lacking -= 1;
                    segments.push(segment);
                }
                AsPathSegment::Sequence(mut ases) => {
                    let whole = ases.len() <= lacking;
                    ases.truncate(lacking);
                    lacking -= ases.len();
                    segments.push(AsPathSegment::Sequence(ases));
                    if !whole {
                        break;
                    }
                }
            }
        }
        for segment in as4_path.0 {
            match (segments.last_mut(), segment) {
                (Some(AsPathSegment::Sequence(leading)), AsPathSegment::Sequence(ases)) => leading.extend(ases),
                (_, segment) => segments.push(segment),
            }
        }
        Self(segments)
    }
}

impl AsPathSegment {
    /// The ASes of the segment.
    #[must_use]
    pub fn ases(&self) -> &[Asn] {
        match self {
            Self::Set(ases) | Self::Sequence(ases) | Self::ConfedSequence(ases) | Self::ConfedSet(ases) => ases,
        }
    }

    const fn type_number(&self) -> u8 {
        match self {
            Self::Set(_) => 1,
            Self::Sequence(_) => 2,
            Self::ConfedSequence(_) => 3,
            Self::ConfedSet(_) => 4,
        }
    }

    const fn is_confederation(&self) -> bool {
        matches!(self, Self::ConfedSequence(_) | Self::ConfedSet(_))
    }
}

/// Numbers of `N` octets each; `None` where one is 0.
fn ases<const N: usize>(octets: &[u8], number: impl Fn([u8; N]) -> u32) -> Option<Vec<Asn>> {
    let (numbers, _) = octets.as_chunks::<N>();
    numbers.iter().map(|octets| Asn::new(number(*octets))).collect()
}

#[cfg(test)]
mod tests;
