// SPDX-License-Identifier: Apache-2.0
//! Reads `malformed_attributes.txt`. Input: the table. Output: its lines, in order. A line that is not of its form ends the test.

const TABLE: &str = include_str!("../malformed_attributes.txt");

/// One line of the table.
pub(crate) struct Case<'a> {
    /// Attribute Type Code (RFC 4271 §4.3).
    pub(crate) type_code: u8,
    /// Attribute Flags.
    pub(crate) flags: u8,
    /// Attribute Value.
    pub(crate) value: Vec<u8>,
    /// What becomes of the UPDATE of an external peer: `keep`, `discard`, `withdraw` or `reset`.
    pub(crate) external: &'a str,
    /// What becomes of the UPDATE of an internal peer.
    pub(crate) internal: &'a str,
    /// What is the matter, in words.
    pub(crate) what: &'a str,
}

impl<'a> Case<'a> {
    fn parse(line: &'a str) -> Self {
        let mut fields = line.splitn(3, ' ');
        let (type_code, flags, rest) = (fields.next().unwrap(), fields.next().unwrap(), fields.next().unwrap());
        let (value, rest) = rest.split_once(' ').unwrap();
        let (external, rest) = rest.trim_start().split_once(' ').unwrap();
        let (internal, what) = rest.trim_start().split_once(' ').unwrap();
        let value = if value == "-" { Vec::new() } else { octets(value) };
        Self { type_code: octets(type_code)[0], flags: octets(flags)[0], value, external, internal, what: what.trim() }
    }
}

/// All lines.
pub(crate) fn cases() -> Vec<Case<'static>> {
    TABLE.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).map(Case::parse).collect()
}

/// The octets of a row of hexadecimal digits.
pub(crate) fn octets(digits: &str) -> Vec<u8> {
    assert!(digits.len().is_multiple_of(2), "{digits}");
    (0..digits.len()).step_by(2).map(|at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap()).collect()
}
