// SPDX-License-Identifier: Apache-2.0
//! Netlink attributes: values in the host's byte order unless a name says otherwise, padded to four octets. A reader never reads past its end; a writer
//! fills in lengths that are known only afterwards.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use netlink_packet_core::{NLA_F_NESTED, NLA_TYPE_MASK, NlasIterator};

use super::DecodeError;
use crate::entry::Attribute;
use crate::service::AddressFamily;

const HEADER: usize = 4;
const ALIGNMENT: usize = 4;

/// One attribute as it came.
#[derive(Clone, Copy, Debug)]
pub(super) struct Raw<'a> {
    kind: u16,
    value: &'a [u8],
}

/// The attributes in these octets.
pub(super) fn attributes(octets: &[u8]) -> impl Iterator<Item = Result<Raw<'_>, DecodeError>> {
    NlasIterator::new(octets).map(|attribute| {
        let attribute = attribute.map_err(DecodeError::Framing)?;
        let octets = attribute.into_inner();
        let (header, value) = octets.split_at_checked(HEADER).ok_or(DecodeError::Short)?;
        let [length, kind] =
            [header.first_chunk(), header.last_chunk()].map(|two: Option<&[u8; 2]>| two.map_or(0, |two| u16::from_ne_bytes(*two)));
        let value = value.get(..usize::from(length).saturating_sub(HEADER)).ok_or(DecodeError::Short)?;
        Ok(Raw { kind, value })
    })
}

impl<'a> Raw<'a> {
    /// Its type, without flags.
    pub(super) const fn kind(&self) -> u16 {
        self.kind & NLA_TYPE_MASK
    }

    /// Its value.
    pub(super) const fn value(&self) -> &'a [u8] {
        self.value
    }

    /// To be kept as it is.
    pub(super) fn unknown(&self) -> Attribute {
        Attribute { kind: self.kind, value: self.value.to_vec() }
    }

    pub(super) fn u8(&self, name: &'static str) -> Result<u8, DecodeError> {
        self.exactly(name).map(|[octet]| octet)
    }

    pub(super) fn u16(&self, name: &'static str) -> Result<u16, DecodeError> {
        self.exactly(name).map(u16::from_ne_bytes)
    }

    pub(super) fn u16_be(&self, name: &'static str) -> Result<u16, DecodeError> {
        self.exactly(name).map(u16::from_be_bytes)
    }

    pub(super) fn u32(&self, name: &'static str) -> Result<u32, DecodeError> {
        self.exactly(name).map(u32::from_ne_bytes)
    }

    pub(super) fn u64(&self, name: &'static str) -> Result<u64, DecodeError> {
        self.exactly(name).map(u64::from_ne_bytes)
    }

    pub(super) fn exactly<const N: usize>(&self, name: &'static str) -> Result<[u8; N], DecodeError> {
        self.value.try_into().map_err(|_not_so_long: std::array::TryFromSliceError| self.wrong(name))
    }

    pub(super) fn family(&self, name: &'static str) -> Result<AddressFamily, DecodeError> {
        match i32::from(self.u16(name)?) {
            libc::AF_INET => Ok(AddressFamily::Ipv4),
            libc::AF_INET6 => Ok(AddressFamily::Ipv6),
            _ => Err(self.wrong(name)),
        }
    }

    /// An address in the union of both families.
    pub(super) fn address(&self, family: AddressFamily, name: &'static str) -> Result<IpAddr, DecodeError> {
        let address = match family {
            AddressFamily::Ipv4 => self.value.first_chunk().map(|octets: &[u8; 4]| Ipv4Addr::from(*octets).into()),
            AddressFamily::Ipv6 => self.value.first_chunk().map(|octets: &[u8; 16]| Ipv6Addr::from(*octets).into()),
        };
        address.ok_or_else(|| self.wrong(name))
    }

    /// Text up to its first zero octet.
    pub(super) fn text(&self, name: &'static str) -> Result<&'a str, DecodeError> {
        let text = self.value.split(|octet| *octet == 0).next().unwrap_or_default();
        std::str::from_utf8(text).map_err(|_not_utf8| self.wrong(name))
    }

    /// The error of a value that this attribute cannot have.
    pub(super) fn wrong(&self, name: &'static str) -> DecodeError {
        DecodeError::Value { name, value: self.value.to_vec() }
    }
}

/// Appends an attribute.
pub(super) fn put(buffer: &mut Vec<u8>, kind: u16, value: &[u8]) {
    let at = open(buffer, kind);
    buffer.extend_from_slice(value);
    close(buffer, at);
}

/// Appends text with its closing zero octet.
pub(super) fn put_text(buffer: &mut Vec<u8>, kind: u16, text: &str) {
    let at = open(buffer, kind);
    buffer.extend_from_slice(text.as_bytes());
    buffer.push(0);
    close(buffer, at);
}

/// Appends an address in the union of both families.
pub(super) fn put_address(buffer: &mut Vec<u8>, kind: u16, address: IpAddr) {
    let mut union = [0; 16];
    match address {
        IpAddr::V4(address) => union.iter_mut().zip(address.octets()).for_each(|(to, from)| *to = from),
        IpAddr::V6(address) => union = address.octets(),
    }
    put(buffer, kind, &union);
}

/// Appends `AF_INET` or `AF_INET6`.
pub(super) fn put_family(buffer: &mut Vec<u8>, kind: u16, family: AddressFamily) {
    let number: u16 = match family {
        AddressFamily::Ipv4 => 2,
        AddressFamily::Ipv6 => 10,
    };
    put(buffer, kind, &number.to_ne_bytes());
}

/// Appends what was kept.
pub(super) fn put_unknown(buffer: &mut Vec<u8>, unknown: &[Attribute]) {
    for Attribute { kind, value } in unknown {
        put(buffer, *kind, value);
    }
}

/// Appends an attribute that holds those which `fill` appends.
pub(super) fn nest(buffer: &mut Vec<u8>, kind: u16, fill: impl FnOnce(&mut Vec<u8>)) {
    let at = open(buffer, kind | NLA_F_NESTED);
    fill(buffer);
    close(buffer, at);
}

fn open(buffer: &mut Vec<u8>, kind: u16) -> usize {
    let at = buffer.len();
    buffer.extend_from_slice(&[0; 2]);
    buffer.extend_from_slice(&kind.to_ne_bytes());
    at
}

/// Writes the length of what begins at `at`, and pads it. A value that is too long for an attribute is cut: the kernel refuses what is left of it.
fn close(buffer: &mut Vec<u8>, at: usize) {
    buffer.truncate(at + usize::from(u16::MAX) - ALIGNMENT);
    let length = u16::try_from(buffer.len() - at).unwrap_or(u16::MAX);
    if let Some(field) = buffer.get_mut(at..at + 2) {
        field.copy_from_slice(&length.to_ne_bytes());
    }
    buffer.resize(buffer.len().next_multiple_of(ALIGNMENT), 0);
}
