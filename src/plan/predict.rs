// SPDX-License-Identifier: Apache-2.0
//! What would be observed were a step to succeed: for `vipherald plan`, which carries out none.
//!
//! Input: [`Observed`] and a [`Step`]. Output: the observation after it, in a world in which nobody else changes anything and every peer acknowledges
//! at once.

use std::sync::Arc;
use std::time::Instant;

use super::Step;
use crate::observed::{ADDRESS_PROTOCOL, Observed, ObservedAddress, stamp};

/// The observation after all of these steps succeeded.
#[must_use]
pub fn predict(observed: &Observed, steps: &[Step], now: Instant) -> Observed {
    let mut kernel = observed.kernel.clone();
    let mut speaker = observed.speaker.clone();
    for step in steps {
        match step {
            Step::Advertise(set) => speaker.advertised = Some(Arc::clone(set)),
            Step::RecordPending(addresses) => {
                kernel.record.exists = true;
                kernel.record.pending.extend(addresses);
            }
            Step::AddAddress(address) => {
                let prefix_length = bgp::Prefix::host(*address).length();
                kernel.addresses.entry(*address).or_insert(ObservedAddress { prefix_length, protocol: Some(ADDRESS_PROTOCOL) });
            }
            Step::RecordConfirmed(addresses) => {
                kernel.record.exists = true;
                kernel.record.pending.retain(|address| !addresses.contains(address));
                kernel.record.confirmed.extend(addresses);
            }
            Step::RemoveAddress(address) => {
                kernel.addresses.remove(address);
            }
            Step::RecordRemoved(addresses) => {
                kernel.record.pending.retain(|address| !addresses.contains(address));
                kernel.record.confirmed.retain(|address| !addresses.contains(address));
            }
            Step::ConfigureSpeaker(desired) => speaker.configured = Some(Arc::clone(desired)),
            Step::StopSpeaker | Step::ReleaseSpeaker => (speaker.configured, speaker.open_sessions) = (None, 0),
            Step::DropRecord => kernel.record = crate::observed::Record::default(),
        }
    }
    stamp(observed, kernel, speaker, now)
}
