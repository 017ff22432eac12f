// SPDX-License-Identifier: Apache-2.0
//! RFC 7606: `malformed_attributes.txt`, line by line, from an external and from an internal peer. The same file is what an interoperation test sends.
#![expect(clippy::unwrap_used, reason = "a test ends there")]

#[path = "malformed_attributes/table.rs"]
mod table;

use std::fmt::Write as _;

use bgp::wire::{Capability, Deframer, ErrorHandling, Message, Negotiated, Open};
use bgp::{Asn, BgpIdentifier, Family, HoldTime};
use table::{Case, cases, octets};

/// 10.1.0.0/24, the route of the UPDATE.
const NLRI: &[u8] = &[24, 10, 1, 0];

/// The whole UPDATE: mandatory attributes, this one in its place or behind them, and the route.
fn update(case: &Case<'_>) -> Vec<u8> {
    let own = [&[case.flags, case.type_code, u8::try_from(case.value.len()).unwrap()], &case.value[..]].concat();
    let mandatory = ["40010100", "40020602010000FDEA", "4003040A000002"].map(octets);
    let others = mandatory.into_iter().filter(|attribute| attribute[1] != case.type_code);
    let attributes = others.chain([own]).collect::<Vec<_>>().concat();
    let length = |length: usize| u16::try_from(length).unwrap().to_be_bytes();
    let total = length(19 + 4 + attributes.len() + NLRI.len());
    [&[0xFF; 16][..], &total, &[2, 0, 0], &length(attributes.len()), &attributes, NLRI].concat()
}

/// The session of the table with a peer in this AS.
fn session(remote: u32) -> Negotiated {
    let open = |asn| Open {
        asn: Asn::new(asn).unwrap(),
        hold_time: HoldTime::ZERO,
        identifier: BgpIdentifier::new(asn).unwrap(),
        capabilities: Family::ALL.map(Capability::Multiprotocol).into_iter().chain([Capability::FourOctetAs]).collect(),
    };
    Negotiated::new(&open(65001), &open(remote))
}

fn outcome(update: &[u8], negotiated: &Negotiated) -> &'static str {
    let mut deframer = Deframer::default();
    deframer.push(update);
    match deframer.next(negotiated) {
        Err(_) => "reset",
        Ok(Some(Message::Update(update))) => {
            assert_eq!(update.announced.len(), 1, "the route is read in any case");
            match update.handling() {
                None => "keep",
                Some(ErrorHandling::AttributeDiscard) => "discard",
                Some(ErrorHandling::TreatAsWithdraw) => "withdraw",
            }
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn rfc7606_every_malformed_attribute_has_its_outcome() {
    let (external, internal) = (session(65002), session(65001));
    let mut wrong = String::new();
    for case in cases() {
        let update = update(&case);
        let outcomes = (outcome(&update, &external), outcome(&update, &internal));
        if outcomes != (case.external, case.internal) {
            let Case { type_code, flags, value, external, internal, what } = case;
            writeln!(wrong, "{type_code:02X} {flags:02X} {value:02X?} ({what}): {outcomes:?}, not {:?}", (external, internal)).unwrap();
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
}

#[test]
fn the_table_is_complete_and_without_repetition() {
    let cases = cases();
    assert!(cases.iter().filter(|case| case.external != "keep").count() >= 90);
    let distinct: std::collections::BTreeSet<_> = cases.iter().map(|case| (case.type_code, case.flags, &case.value)).collect();
    assert_eq!(distinct.len(), cases.len());
}
