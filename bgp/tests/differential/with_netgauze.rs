// SPDX-License-Identifier: Apache-2.0
//! netgauze-bgp-pkt as the other codec.

use bgp::wire::Message;
use netgauze_bgp_pkt::BgpMessage;
use netgauze_bgp_pkt::path_attribute::{Aggregator, AsPath, AsPathSegmentType, MpReach, MpUnreach, PathAttributeValue};
use netgauze_bgp_pkt::update::BgpUpdateMessage;
use netgauze_bgp_pkt::wire::deserializer::BgpParsingContext;
use netgauze_iana::address_family::AddressType;
use netgauze_parse_utils::WritablePdu as _;
use netgauze_parse_utils::reader::SliceReader;
use netgauze_parse_utils::traits::ParseFromWithOneInput as _;
use proptest::prelude::*;

use crate::generate::{any_open, any_other_message, any_update, config, session};
use crate::{Facts, decode, facts, path_fact, unknown_fact};

fn read(octets: &[u8], add_path: bool) -> BgpMessage {
    let mut context = BgpParsingContext::default();
    for family in [AddressType::Ipv4Unicast, AddressType::Ipv6Unicast] {
        context.add_path_mut().insert(family, add_path);
    }
    BgpMessage::parse(&mut SliceReader::new(octets), &mut context).unwrap()
}

fn write(message: &BgpMessage) -> Vec<u8> {
    let mut octets = Vec::new();
    message.write(&mut octets).unwrap();
    octets
}

/// What an UPDATE says according to netgauze.
fn their_facts(update: &BgpUpdateMessage) -> Facts {
    let route =
        |what: &str, network: &dyn std::fmt::Display, path_id: Option<u32>| format!("{what} {network} path {}", path_id.unwrap_or(0));
    let mut facts = Facts::new();
    facts.extend(update.withdraw_routes().iter().map(|nlri| route("withdrawn", &nlri.network().address(), nlri.path_id())));
    facts.extend(update.nlri().iter().map(|nlri| route("announced", &nlri.network().address(), nlri.path_id())));
    for attribute in update.path_attributes() {
        match attribute.value() {
            PathAttributeValue::MpReach(MpReach::Ipv4Unicast { next_hop, next_hop_local, nlri }) => {
                facts.insert(format!("next hop {next_hop} {next_hop_local:?}"));
                facts.extend(nlri.iter().map(|nlri| route("announced", &nlri.network().address(), nlri.path_id())));
            }
            PathAttributeValue::MpReach(MpReach::Ipv6Unicast { next_hop_global, next_hop_local, nlri }) => {
                facts.insert(format!("next hop {next_hop_global} {next_hop_local:?}"));
                facts.extend(nlri.iter().map(|nlri| route("announced", &nlri.network().address(), nlri.path_id())));
            }
            PathAttributeValue::MpUnreach(MpUnreach::Ipv6Unicast { nlri }) => {
                facts.extend(nlri.iter().map(|nlri| route("withdrawn", &nlri.network().address(), nlri.path_id())));
            }
            value => drop(facts.insert(their_attribute(value))),
        }
    }
    facts
}

fn their_attribute(value: &PathAttributeValue) -> String {
    match value {
        PathAttributeValue::Origin(origin) => format!("origin {}", *origin as u8),
        PathAttributeValue::AsPath(AsPath::As4PathSegments(segments)) => {
            path_fact(segments.iter().map(|segment| (segment.segment_type() == AsPathSegmentType::AsSet, segment.as_numbers().to_vec())))
        }
        PathAttributeValue::NextHop(next_hop) => format!("NEXT_HOP {}", next_hop.next_hop()),
        PathAttributeValue::MultiExitDiscriminator(metric) => format!("metric {}", metric.metric()),
        PathAttributeValue::LocalPreference(preference) => format!("preference {}", preference.metric()),
        PathAttributeValue::AtomicAggregate(_) => "atomic aggregate".to_owned(),
        PathAttributeValue::Aggregator(Aggregator::As4Aggregator(by)) => format!("aggregator {} {}", by.asn(), by.origin()),
        PathAttributeValue::Communities(communities) => {
            format!("communities {:?}", communities.communities().iter().map(|community| community.value()).collect::<Vec<_>>())
        }
        PathAttributeValue::Originator(originator) => format!("originator {}", originator.id()),
        PathAttributeValue::ClusterList(clusters) => {
            format!("clusters {:?}", clusters.cluster_list().iter().map(|cluster| cluster.id()).collect::<Vec<_>>())
        }
        PathAttributeValue::LargeCommunities(communities) => {
            let numbers = communities.communities().iter().map(|large| [large.global_admin(), large.local_data1(), large.local_data2()]);
            format!("large communities {:?}", numbers.collect::<Vec<_>>())
        }
        PathAttributeValue::OnlyToCustomer(only) => format!("only to customer {}", only.asn()),
        PathAttributeValue::ExtendedCommunities(_) => "type 16".to_owned(),
        PathAttributeValue::ExtendedCommunitiesIpv6(_) => "type 25".to_owned(),
        PathAttributeValue::UnknownAttribute(unknown) => unknown_fact(unknown.code(), unknown.value()),
        other => format!("{other:?}"),
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn updates((add_path, update) in any::<bool>().prop_flat_map(|add_path| (Just(add_path), any_update(add_path)))) {
        let negotiated = session(add_path);
        let octets = Message::Update(update.clone()).encode(&negotiated).unwrap();
        let theirs = read(&octets, add_path);
        let BgpMessage::Update(their_update) = &theirs else { panic!("{theirs:?}") };
        prop_assert_eq!(their_facts(their_update), facts(&update));
        prop_assert_eq!(decode(&write(&theirs), &negotiated), Message::Update(update));
    }

    #[test]
    fn opens(open in any_open()) {
        let theirs = read(&open.encode(), false);
        let BgpMessage::Open(their_open) = &theirs else { panic!("{theirs:?}") };
        prop_assert_eq!(their_open.my_asn4(), open.asn.number());
        prop_assert_eq!(their_open.hold_time(), open.hold_time.secs());
        prop_assert_eq!(u32::from(their_open.bgp_id()), open.identifier.number());
        prop_assert_eq!(their_open.capabilities().len(), open.capabilities.len());
    }

    #[test]
    fn other_messages(message in any_other_message()) {
        let negotiated = session(false);
        let octets = message.encode(&negotiated).unwrap();
        prop_assert_eq!(decode(&write(&read(&octets, false)), &negotiated), message);
    }
}
