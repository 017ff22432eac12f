// SPDX-License-Identifier: Apache-2.0
//! The ownership record in the worlds of the planner: what a step about addresses leaves in it.

use vipherald::observed::Record;
use vipherald::plan::Step;

/// Carries out what a step does to the addresses of the record; a step about something else is a mistake.
pub(crate) fn carry_out(record: &mut Record, step: &Step) {
    match step {
        Step::RecordPending(entries) => {
            record.exists = true;
            record.pending.extend(&entries.addresses);
        }
        Step::RecordConfirmed(entries) => {
            record.exists = true;
            record.pending = &record.pending - &entries.addresses;
            record.confirmed.extend(&entries.addresses);
        }
        Step::RecordRemoved(entries) => {
            record.pending = &record.pending - &entries.addresses;
            record.confirmed = &record.confirmed - &entries.addresses;
        }
        Step::DropRecord => *record = Record::default(),
        other => panic!("not about the addresses of the record: {other}"),
    }
}
