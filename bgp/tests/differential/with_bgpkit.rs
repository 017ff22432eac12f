// SPDX-License-Identifier: Apache-2.0
//! bgpkit-parser as the other codec.

use bgp::wire::{Capability, Message};
use bgpkit_parser::models::{
    AsPathSegment, AsnLength, AttributeValue, BgpMessage, BgpUpdateMessage, Community, NetworkPrefix, NextHopAddress,
};
use bgpkit_parser::parser::bgp::parse_bgp_message;
use bytes::Bytes;
use proptest::prelude::*;

use crate::generate::{any_open, any_other_message, any_update, config, session};
use crate::{Facts, decode, facts, path_fact, unknown_fact};

fn read(mut octets: Bytes, add_path: bool) -> BgpMessage {
    parse_bgp_message(&mut octets, add_path, &AsnLength::Bits32).unwrap()
}

/// What an UPDATE says according to bgpkit.
fn their_facts(update: &BgpUpdateMessage) -> Facts {
    let route = |what: &str, prefix: &NetworkPrefix| format!("{what} {} path {}", prefix.prefix, prefix.path_id.unwrap_or(0));
    let mut facts = Facts::new();
    facts.extend(update.withdrawn_prefixes.iter().map(|prefix| route("withdrawn", prefix)));
    facts.extend(update.announced_prefixes.iter().map(|prefix| route("announced", prefix)));
    for value in update.attributes.iter() {
        match value {
            AttributeValue::MpReachNlri(nlri) => {
                facts.extend(nlri.prefixes.iter().map(|prefix| route("announced", prefix)));
                facts.insert(match &nlri.next_hop {
                    Some(NextHopAddress::Ipv4(address)) => format!("next hop {address} None"),
                    Some(NextHopAddress::Ipv6(address)) => format!("next hop {address} None"),
                    Some(NextHopAddress::Ipv6LinkLocal(global, link_local)) => format!("next hop {global} {:?}", Some(link_local)),
                    other => format!("next hop {other:?}"),
                });
            }
            AttributeValue::MpUnreachNlri(nlri) => facts.extend(nlri.prefixes.iter().map(|prefix| route("withdrawn", prefix))),
            value => drop(facts.insert(their_attribute(value))),
        }
    }
    facts
}

fn their_attribute(value: &AttributeValue) -> String {
    match value {
        AttributeValue::Origin(origin) => format!("origin {}", *origin as u8),
        AttributeValue::AsPath(path) => path_fact(path.segments.iter().map(|segment| match segment {
            AsPathSegment::AsSet(ases) => (true, ases.iter().map(|asn| asn.to_u32()).collect()),
            AsPathSegment::AsSequence(ases) => (false, ases.iter().map(|asn| asn.to_u32()).collect()),
            other => panic!("{other:?}"),
        })),
        AttributeValue::NextHop(address) => format!("NEXT_HOP {address}"),
        AttributeValue::MultiExitDiscriminator(metric) => format!("metric {metric}"),
        AttributeValue::LocalPreference(preference) => format!("preference {preference}"),
        AttributeValue::AtomicAggregate => "atomic aggregate".to_owned(),
        AttributeValue::Aggregator { asn, id } => format!("aggregator {} {id}", asn.to_u32()),
        AttributeValue::Communities(communities) => {
            let number = |community: &Community| match community {
                Community::NoExport => 0xFFFF_FF01,
                Community::NoAdvertise => 0xFFFF_FF02,
                Community::NoExportSubConfed => 0xFFFF_FF03,
                Community::Custom(asn, value) => asn.to_u32() << 16 | u32::from(*value),
            };
            format!("communities {:?}", communities.iter().map(number).collect::<Vec<u32>>())
        }
        AttributeValue::OriginatorId(identifier) => format!("originator {identifier}"),
        AttributeValue::Clusters(clusters) => {
            format!("clusters {:?}", clusters.iter().map(|cluster| std::net::Ipv4Addr::from_bits(*cluster)).collect::<Vec<_>>())
        }
        AttributeValue::LargeCommunities(communities) => {
            let numbers = communities.iter().map(|large| [large.global_admin, large.local_data[0], large.local_data[1]]);
            format!("large communities {:?}", numbers.collect::<Vec<_>>())
        }
        AttributeValue::OnlyToCustomer(asn) => format!("only to customer {}", asn.to_u32()),
        AttributeValue::ExtendedCommunities(_) => "type 16".to_owned(),
        AttributeValue::Ipv6AddressSpecificExtendedCommunities(_) => "type 25".to_owned(),
        AttributeValue::Unknown(raw) => unknown_fact(raw.code, &raw.bytes),
        other => format!("{other:?}"),
    }
}

/// bgpkit does not have the N bit (RFC 8538).
fn without_notification_bit(mut message: Message) -> Message {
    if let Message::Open(open) = &mut message {
        for capability in &mut open.capabilities {
            if let Capability::GracefulRestart(restart) = capability {
                restart.notification = false;
            }
        }
    }
    message
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn updates((add_path, update) in any::<bool>().prop_flat_map(|add_path| (Just(add_path), any_update(add_path)))) {
        let negotiated = session(add_path);
        let octets = Message::Update(update.clone()).encode(&negotiated).unwrap();
        let theirs = read(octets, add_path);
        let BgpMessage::Update(their_update) = &theirs else { panic!("{theirs:?}") };
        prop_assert_eq!(their_facts(their_update), facts(&update));
        let again = theirs.encode(AsnLength::Bits32).unwrap();
        prop_assert_eq!(decode(&again, &negotiated), Message::Update(update));
    }

    #[test]
    fn opens(open in any_open()) {
        let theirs = read(open.encode(), false);
        let BgpMessage::Open(their_open) = &theirs else { panic!("{theirs:?}") };
        prop_assert_eq!(their_open.hold_time, open.hold_time.secs());
        prop_assert_eq!(u32::from(their_open.bgp_identifier), open.identifier.number());
    }

    #[test]
    fn other_messages(message in any_other_message()) {
        let negotiated = session(false);
        let octets = message.encode(&negotiated).unwrap();
        let again = read(octets, false).encode(AsnLength::Bits32).unwrap();
        prop_assert_eq!(without_notification_bit(decode(&again, &negotiated)), without_notification_bit(message));
    }
}
