// SPDX-License-Identifier: Apache-2.0
//! Reading and writing octets in network order. A [`Reader`] never reads past its end; the writers fill in lengths that are known only afterwards.

use bytes::BufMut;

/// What is left to read of a field whose length is known.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(super) const fn new(octets: &'a [u8]) -> Self {
        Self(octets)
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many octets are left.
    pub(super) const fn len(&self) -> usize {
        self.0.len()
    }

    /// Everything that is left, without reading it.
    pub(super) const fn rest(&self) -> &'a [u8] {
        self.0
    }

    /// The next `length` octets; `None`, reading nothing, where fewer are left.
    pub(super) const fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        match self.0.split_at_checked(length) {
            Some((taken, rest)) => {
                self.0 = rest;
                Some(taken)
            }
            None => None,
        }
    }

    /// The next `N` octets; `None`, reading nothing, where fewer are left.
    pub(super) const fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        match self.0.split_first_chunk() {
            Some((taken, rest)) => {
                self.0 = rest;
                Some(*taken)
            }
            None => None,
        }
    }

    pub(super) fn u8(&mut self) -> Option<u8> {
        self.array().map(u8::from_be_bytes)
    }

    pub(super) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }
}

/// Writes a two-octet length, then what `write` appends, and fills in the length of that. Over 65,535 octets the length is
/// wrong: the caller checks the size of the message.
pub(super) fn with_length_u16(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    let at = out.len();
    out.put_u16(0);
    write(out);
    let length = out.len() - at - 2;
    set_u16(out, at, length);
}

/// Writes `value` over the two octets at `at`.
pub(super) fn set_u16(out: &mut [u8], at: usize, value: usize) {
    set(out, at, &u16::try_from(value).unwrap_or(u16::MAX).to_be_bytes());
}

/// Writes `octets` over those at `at`, which are there.
pub(super) fn set(out: &mut [u8], at: usize, octets: &[u8]) {
    if let Some(field) = out.get_mut(at..at + octets.len()) {
        field.copy_from_slice(octets);
    }
}
