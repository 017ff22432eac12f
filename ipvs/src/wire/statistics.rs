// SPDX-License-Identifier: Apache-2.0
//! Statistics of a service or a server. Each comes twice, in the form of old kernels, with 32-bit counters of packets and with rates cut to 32 bits, and in
//! 64 bits; the second counts where it is there.

use super::DecodeError;
use super::attribute::{Raw, attributes, put};
use crate::entry::Statistics;

/// Reads the nested attribute of either form.
pub(super) fn decode(nested: Raw<'_>) -> Result<Statistics, DecodeError> {
    let mut statistics = Statistics::default();
    for attribute in attributes(nested.value()) {
        let attribute = attribute?;
        let Some(field) = fields(&mut statistics).into_iter().nth(usize::from(attribute.kind().wrapping_sub(1))) else { continue };
        *field = match attribute.value().len() {
            4 => attribute.u32("statistics")?.into(),
            _ => attribute.u64("statistics")?,
        };
    }
    Ok(statistics)
}

/// Writes the 64-bit form.
pub(super) fn encode(buffer: &mut Vec<u8>, statistics: &Statistics) {
    let mut statistics = *statistics;
    for (kind, field) in (1..).zip(fields(&mut statistics)) {
        put(buffer, kind, &field.to_ne_bytes());
    }
}

/// By attribute type, from 1.
const fn fields(statistics: &mut Statistics) -> [&mut u64; 10] {
    [
        &mut statistics.connections,
        &mut statistics.incoming_packets,
        &mut statistics.outgoing_packets,
        &mut statistics.incoming_octets,
        &mut statistics.outgoing_octets,
        &mut statistics.connections_per_second,
        &mut statistics.incoming_packets_per_second,
        &mut statistics.outgoing_packets_per_second,
        &mut statistics.incoming_octets_per_second,
        &mut statistics.outgoing_octets_per_second,
    ]
}
