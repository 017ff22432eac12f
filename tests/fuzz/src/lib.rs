// SPDX-License-Identifier: Apache-2.0
//! The decoders of BGP under arbitrary input, one function for each. Input: octets, of which the first chooses the session where that matters. A
//! function panics where the decoder does, or where what it decoded does not survive being sent on. The fuzz targets call them, and so does the test
//! that replays the corpus.

use std::collections::{BTreeMap, BTreeSet};

use bgp::wire::{AddPathMode, Capability, Deframer, ErrorHandling, Message, Negotiated, Notification, Open, Update};
use bgp::{Asn, BgpIdentifier, Family, HoldTime};

/// What a connection carries, in pieces of a size that the second octet chooses.
pub fn stream(input: &[u8]) {
    let [choice, size, octets @ ..] = input else { return };
    let negotiated = session(*choice);
    let mut deframer = Deframer::default();
    for piece in octets.chunks(usize::from(*size).max(1)) {
        deframer.push(piece);
        loop {
            match deframer.next(&negotiated) {
                Ok(Some(message)) => sent_on(&message, &negotiated),
                Ok(None) => break,
                Err(error) => return drop(error.to_string()),
            }
        }
    }
}

/// The body of an OPEN.
pub fn open(input: &[u8]) {
    let negotiated = session(0);
    if let Some(Message::Open(open)) = decode(1, input, &negotiated) {
        let agreed = Negotiated::new(&open, &open);
        assert_eq!(agreed.families, open.families());
        sent_on(&Message::Open(open), &negotiated);
    }
}

/// The body of an UPDATE.
pub fn update(input: &[u8]) {
    let [choice, body @ ..] = input else { return };
    let negotiated = session(*choice);
    if let Some(message) = decode(2, body, &negotiated) {
        sent_on(&message, &negotiated);
    }
}

/// The body of a NOTIFICATION.
pub fn notification(input: &[u8]) {
    let negotiated = session(0);
    if let Some(Message::Notification(notification)) = decode(3, input, &negotiated) {
        let shown = notification.to_string();
        assert!(shown.chars().all(|character| !character.is_control()), "{shown:?}");
        let hard = notification.clone().into_hard_reset();
        assert_eq!(hard.hard_reset_reason(), Some(notification.clone()));
        sent_on(&Message::Notification(notification), &negotiated);
    }
}

/// A session by its bits: internal, two-octet AS numbers, path identifiers, IPv6 next hops of IPv4 and link-local ones, extended messages.
fn session(choice: u8) -> Negotiated {
    let bit = |at: u8| choice >> at & 1 == 1;
    let mut capabilities: Vec<_> = Family::ALL.into_iter().map(Capability::Multiprotocol).collect();
    capabilities.extend([Capability::RouteRefresh, Capability::EnhancedRouteRefresh]);
    capabilities.extend((!bit(1)).then_some(Capability::FourOctetAs));
    if bit(2) {
        capabilities.push(Capability::AddPath(BTreeMap::from(Family::ALL.map(|family| (family, AddPathMode::Both)))));
    }
    if bit(3) {
        capabilities.extend([Capability::ExtendedNextHop(BTreeSet::from([Family::Ipv4Unicast])), Capability::LinkLocalNextHop]);
    }
    capabilities.extend(bit(4).then_some(Capability::ExtendedMessage));
    let open = |number| Open {
        asn: Asn::new(number).unwrap(),
        hold_time: HoldTime::ZERO,
        identifier: BgpIdentifier::new(number).unwrap(),
        capabilities: capabilities.clone(),
    };
    Negotiated::new(&open(65001), &open(if bit(0) { 65001 } else { 65002 }))
}

/// The message of this body.
fn decode(message_type: u8, body: &[u8], negotiated: &Negotiated) -> Option<Message> {
    let length = u16::try_from(19 + body.len()).ok()?;
    let octets = [&[0xFF; 16][..], &length.to_be_bytes(), &[message_type], body].concat();
    let mut deframer = Deframer::default();
    deframer.push(&octets);
    deframer.next(negotiated).ok()?
}

/// What was decoded can be encoded, unless the peer does not take it, and then says the same without an error.
fn sent_on(message: &Message, negotiated: &Negotiated) {
    if let Message::Update(update) = message
        && update.handling() == Some(ErrorHandling::TreatAsWithdraw)
    {
        return;
    }
    let Ok(octets) = message.encode(negotiated) else { return };
    let mut deframer = Deframer::default();
    deframer.push(&octets);
    let again = deframer.next(negotiated).unwrap().unwrap();
    match (message, &again) {
        (Message::Update(update), Message::Update(again)) => assert_same_routes(update, again),
        (Message::Open(open), Message::Open(again)) => {
            assert_eq!((open.asn, open.hold_time, open.identifier), (again.asn, again.hold_time, again.identifier));
        }
        // Data over the limit are cut.
        (Message::Notification(Notification { code, subcode, .. }), Message::Notification(again)) => {
            assert_eq!((code, subcode), (&again.code, &again.subcode));
        }
        _ => assert_eq!(message, &again),
    }
}

fn assert_same_routes(update: &Update, again: &Update) {
    assert!(again.errors.is_empty(), "{:?}", again.errors);
    assert_eq!((&update.announced, &update.withdrawn), (&again.announced, &again.withdrawn));
}
