// SPDX-License-Identifier: Apache-2.0
//! What a peer holds after the octets it was sent, against what it was meant to hold.

mod next_hop;
mod policy;

use std::net::{IpAddr, Ipv4Addr};

use proptest::prelude::*;

use super::*;
use crate::identity::{Asn, BgpIdentifier, HoldTime};
use crate::rib::receiver::Receiver;
use crate::rib::{NextHopPolicy, Path, PeerId};
use crate::wire::{AsPath, AsPathSegment, MAX_MESSAGE_LENGTH, NextHop, Origin, PathAttribute};

const NO_LIMIT: usize = usize::MAX;
const LOCAL: LocalAddresses = LocalAddresses {
    ipv4: Some(Ipv4Addr::new(10, 211, 1, 2)),
    ipv6: Some(std::net::Ipv6Addr::new(0xfd00, 0, 0, 1, 0, 0, 0, 2)),
    link_local: Some(std::net::Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 2)),
    ..LocalAddresses::NONE
};

const TARGET: Target = Target {
    peer: PeerId(9),
    address: IpAddr::V4(Ipv4Addr::new(10, 211, 1, 9)),
    client: false,
    cluster_id: BgpIdentifier::new(5).unwrap(),
};

fn asn(number: u32) -> Asn {
    Asn::new(number).unwrap()
}

fn negotiated(remote_asn: u32, families: &[Family]) -> Negotiated {
    Negotiated {
        four_octet_as: true,
        families: families.iter().copied().collect(),
        route_refresh: true,
        hold_time: HoldTime::from_secs(9).unwrap(),
        remote_asn: asn(remote_asn),
        internal: remote_asn == 65001,
        ..Negotiated::before_open(asn(65001))
    }
}

fn internal() -> Negotiated {
    negotiated(65001, &Family::ALL)
}

fn export() -> Export {
    Export::default()
}

fn prefix(text: &str) -> Prefix {
    Prefix::host(text.parse().unwrap())
}

fn rib(addresses: &[&str]) -> Arc<LocRib> {
    Arc::new(LocRib::originated(addresses.iter().map(|text| prefix(text))))
}

fn all(prefixes: impl Iterator<Item = Prefix>) -> BTreeSet<Prefix> {
    prefixes.collect()
}

/// An Adj-RIB-Out and the peer that reads it.
struct Pair {
    sender: AdjRibOut,
    receiver: Receiver,
    position: u64,
}

impl Pair {
    fn new(export: Export, negotiated: Negotiated, local: LocalAddresses) -> Self {
        Self { receiver: Receiver::new(&negotiated), sender: AdjRibOut::new(export, TARGET, negotiated, local), position: 0 }
    }

    fn internal() -> Self {
        Self::new(export(), internal(), LOCAL)
    }

    /// Writes what is pending, and returns the UPDATEs as the peer reads them.
    fn flush(&mut self) -> Vec<Update> {
        let known = self.receiver.updates.len();
        let batch = self.sender.next(self.position, NO_LIMIT);
        self.position += batch.octets.len() as u64;
        self.receiver.receive(&batch.octets);
        let new = self.receiver.updates[known..].to_vec();
        assert_eq!(batch.updates, new.len() as u64);
        new
    }

    fn set(&mut self, addresses: &[&str]) -> Vec<Update> {
        self.sender.set(&rib(addresses));
        self.flush()
    }
}

#[test]
fn rfc4271_section_5_1_external_peer_gets_our_as_once_and_no_local_pref() {
    let mut pair = Pair::new(Export { med: Some(7), ..export() }, negotiated(65000, &Family::ALL), LOCAL);
    pair.set(&["10.0.0.1", "2001:db8::1"]);
    let attributes = vec![
        PathAttribute::Origin(Origin::Igp),
        PathAttribute::AsPath(AsPath(vec![AsPathSegment::Sequence(vec![asn(65001)])])),
        PathAttribute::MultiExitDisc(7),
    ];
    let v6 = NextHop::V6 { global: LOCAL.ipv6.unwrap(), link_local: LOCAL.link_local };
    assert_eq!(pair.receiver.routes[&prefix("10.0.0.1")], (attributes.clone(), NextHop::V4(LOCAL.ipv4.unwrap())));
    assert_eq!(pair.receiver.routes[&prefix("2001:db8::1")], (attributes, v6));
}

#[test]
fn rfc4271_section_5_1_internal_peer_gets_an_empty_path_and_local_pref() {
    let mut pair = Pair::new(Export { local_preference: 150, ..export() }, internal(), LOCAL);
    pair.set(&["10.0.0.1"]);
    let attributes = vec![PathAttribute::Origin(Origin::Igp), PathAttribute::AsPath(AsPath::default()), PathAttribute::LocalPref(150)];
    assert_eq!(pair.receiver.routes[&prefix("10.0.0.1")], (attributes, NextHop::V4(LOCAL.ipv4.unwrap())));
}

#[test]
fn rfc4271_section_4_3_withdrawal_carries_no_attribute() {
    let mut pair = Pair::internal();
    pair.set(&["10.0.0.1", "2001:db8::1"]);
    pair.sender.set(&rib(&[]));
    let octets = pair.sender.next(0, NO_LIMIT).octets;
    let marker = [0xff_u8; 16];
    let v4 = [&marker[..], &[0, 28, 2, 0, 5, 32, 10, 0, 0, 1, 0, 0]].concat();
    let v6_prefix = [128, 0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
    assert_eq!(octets[..28], v4);
    let v6 = &octets[28..];
    assert_eq!(v6[v6.len() - 17..], v6_prefix);
    assert_eq!(v6[18..21], [2, 0, 0], "no IPv4 route is withdrawn");
    pair.receiver.receive(&octets);
    let last = pair.receiver.updates.last().unwrap();
    assert!(matches!(last.attributes[..], [PathAttribute::MpUnreach(_)]), "RFC 4760 §4: nothing but MP_UNREACH_NLRI, got {last:?}");
}

#[test]
fn rfc4724_section_2_end_of_rib_follows_the_first_set_of_each_family_once() {
    let mut pair = Pair::internal();
    assert_eq!(pair.flush(), vec![], "nothing is known yet, so nothing is complete");
    assert!(!pair.sender.is_synced());
    let updates = pair.set(&["10.0.0.1", "2001:db8::1"]);
    let kinds: Vec<_> = updates.iter().map(Update::is_end_of_rib).collect();
    assert_eq!(kinds, [None, Some(Family::Ipv4Unicast), None, Some(Family::Ipv6Unicast)]);
    pair.set(&["10.0.0.2"]);
    pair.sender.refresh(Family::Ipv4Unicast);
    pair.sender.begin_refreshes();
    pair.flush();
    assert_eq!(pair.receiver.ends_of_rib().len(), 2);
}

#[test]
fn rfc4724_section_2_end_of_rib_of_an_empty_table() {
    let mut pair = Pair::internal();
    pair.sender.set(&rib(&[]));
    let octets = pair.sender.next(0, NO_LIMIT).octets;
    let marker = [0xff_u8; 16];
    let expected = [&marker[..], &[0, 0x17, 2, 0, 0, 0, 0], &marker, &[0, 0x1e, 2, 0, 0, 0, 7, 0x90, 0x0f, 0, 3, 0, 2, 1]].concat();
    assert_eq!(octets, expected);
    assert!(!pair.sender.is_synced(), "not yet acknowledged");
    pair.sender.acknowledged(octets.len() as u64);
    assert!(pair.sender.is_synced());

    let mut only_v6 = Pair::new(export(), negotiated(65001, &[Family::Ipv6Unicast]), LOCAL);
    only_v6.set(&[]);
    assert_eq!(only_v6.receiver.ends_of_rib(), [Family::Ipv6Unicast]);
}

#[test]
fn rfc4271_section_9_2_an_unchanged_route_is_not_sent_again() {
    let mut pair = Pair::internal();
    pair.set(&["10.0.0.1", "2001:db8::1"]);
    assert_eq!(pair.set(&["2001:db8::1", "10.0.0.1"]), vec![], "an equal set, built anew");
    let only_new = pair.set(&["10.0.0.1", "10.0.0.2", "2001:db8::1"]);
    assert_eq!(only_new.len(), 1);
    assert_eq!(only_new[0].announced, [prefix("10.0.0.2").into()]);
}

#[test]
fn changes_that_cancel_out_before_they_are_written_cost_nothing() {
    let mut pair = Pair::internal();
    pair.set(&["10.0.0.1"]);
    pair.sender.set(&rib(&["10.0.0.1", "10.0.0.2"]));
    pair.sender.set(&rib(&[]));
    assert_eq!(all(pair.sender.withdrawing()), all([prefix("10.0.0.1")].into_iter()));
    pair.sender.set(&rib(&["10.0.0.1"]));
    assert_eq!(pair.flush(), vec![]);
    assert_eq!(all(pair.sender.advertised()), all([prefix("10.0.0.1")].into_iter()));
    assert_eq!(pair.sender.withdrawing().count(), 0);
}

#[test]
fn rfc4271_section_9_2_withdrawals_come_first() {
    let mut pair = Pair::internal();
    pair.set(&["10.0.0.1", "2001:db8::1"]);
    let updates = pair.set(&["10.0.0.2", "2001:db8::2"]);
    let withdrawn: Vec<_> = updates.iter().map(|update| crate::rib::receiver::changes(update).1).collect();
    assert_eq!(withdrawn, [vec![prefix("10.0.0.1")], vec![prefix("2001:db8::1")], vec![], vec![]]);
}

#[test]
fn rfc4271_section_9_1_3_withdrawals_overtake_announcements_that_wait() {
    let mut pair = Pair::internal();
    pair.set(&["10.0.0.1"]);
    let many = (0..5000).map(|n| Prefix::host(IpAddr::V4(Ipv4Addr::from_bits(0x0b00_0000 + n))));
    pair.sender.set(&Arc::new(LocRib::originated(many.clone().chain([prefix("10.0.0.1")]))));
    assert_eq!(pair.sender.next(0, MAX_MESSAGE_LENGTH).updates, 1);
    pair.sender.set(&Arc::new(LocRib::originated(many)));
    let batch = pair.sender.next(0, MAX_MESSAGE_LENGTH);
    assert_eq!(batch.octets.len(), 28, "the one withdrawal leaves no room for a whole message");
}

#[test]
fn rfc4271_section_5_1_3_next_hop_is_an_address_of_ours_or_the_route_is_withheld() {
    let no_address = LocalAddresses { ipv6: None, ..LOCAL };
    let mut pair = Pair::new(export(), internal(), no_address);
    pair.set(&["10.0.0.1", "2001:db8::1"]);
    assert_eq!(pair.receiver.held(), all([prefix("10.0.0.1")].into_iter()));
    assert_eq!(pair.receiver.ends_of_rib(), Family::ALL);
    let reason = Withheld::NoNextHop(Family::Ipv6Unicast);
    assert_eq!(*pair.sender.withheld(), BTreeMap::from([(prefix("2001:db8::1"), reason)]));
    assert_eq!(reason.to_string(), "there is no local address to be the next hop of ipv6-unicast");
    pair.sender.acknowledged(pair.position);
    assert!(pair.sender.is_synced(), "a withheld route is not pending");
}

#[test]
fn rfc4271_section_6_3_an_address_that_is_no_next_hop_is_never_sent() {
    for (v4, v6) in [("0.0.0.0", "::"), ("224.0.0.1", "ff02::1"), ("255.255.255.255", "::ffff:10.0.0.1"), ("0.0.0.0", "fe80::1")] {
        let (v4, v6): (Ipv4Addr, std::net::Ipv6Addr) = (v4.parse().unwrap(), v6.parse().unwrap());
        let local = LocalAddresses { ipv4: Some(v4), ipv6: Some(v6), ..LocalAddresses::NONE };
        let fixed =
            Export { next_hop_ipv4: NextHopPolicy::Address(v4.into()), next_hop_ipv6: NextHopPolicy::Address(v6.into()), ..export() };
        // On a link without other addresses a link-local one is what there is.
        let own = (!v6.is_unicast_link_local()).then(|| (export(), local));
        for (export, local) in own.into_iter().chain([(fixed, LOCAL)]) {
            let mut pair = Pair::new(export, internal(), local);
            pair.set(&["10.0.0.1", "2001:db8::1"]);
            assert_eq!(pair.receiver.held(), BTreeSet::new(), "{v4} {v6}");
            assert_eq!(pair.sender.withheld().len(), 2);
        }
    }
}

#[test]
fn next_hop_of_the_configuration_replaces_ours_in_its_own_family_only() {
    let other: IpAddr = "10.9.9.9".parse().unwrap();
    let policy = NextHopPolicy::Address(other);
    let mut pair = Pair::new(Export { next_hop_ipv4: policy, next_hop_ipv6: policy, ..export() }, internal(), LOCAL);
    pair.set(&["10.0.0.1", "2001:db8::1"]);
    assert_eq!(pair.receiver.routes[&prefix("10.0.0.1")].1, NextHop::V4("10.9.9.9".parse().unwrap()));
    assert_eq!(*pair.sender.withheld(), BTreeMap::from([(prefix("2001:db8::1"), Withheld::NoNextHop(Family::Ipv6Unicast))]));
}

#[test]
fn rfc4760_section_8_a_family_that_was_not_negotiated_is_withheld() {
    let mut pair = Pair::new(export(), negotiated(65001, &[Family::Ipv4Unicast]), LOCAL);
    pair.set(&["10.0.0.1", "2001:db8::1"]);
    assert_eq!(pair.receiver.held(), all([prefix("10.0.0.1")].into_iter()));
    assert_eq!(pair.receiver.ends_of_rib(), [Family::Ipv4Unicast]);
    assert_eq!(*pair.sender.withheld(), BTreeMap::from([(prefix("2001:db8::1"), Withheld::FamilyNotNegotiated(Family::Ipv6Unicast))]));
}

/// A route whose AS_PATH alone takes the given number of four-octet AS numbers.
fn long_route(numbers: usize) -> Arc<Route> {
    let segments = vec![asn(64512); numbers].chunks(255).map(|chunk| AsPathSegment::Sequence(chunk.to_vec())).collect();
    Arc::new(Route { as_path: AsPath(segments), ..Route::originated() })
}

#[test]
fn rfc4271_section_9_2_a_route_that_does_not_fit_is_withdrawn_and_withheld() {
    let mut pair = Pair::internal();
    pair.set(&["10.0.0.1", "10.0.0.2"]);
    let short = Arc::new(Route::originated());
    let mixed = |route: &Arc<Route>| {
        Arc::new(LocRib::from_iter([(prefix("10.0.0.1"), Arc::clone(route)), (prefix("10.0.0.2"), Arc::clone(&short))]))
    };
    pair.sender.set(&mixed(&long_route(1100)));
    pair.flush();
    assert_eq!(pair.receiver.held(), all([prefix("10.0.0.2")].into_iter()));
    assert_eq!(*pair.sender.withheld(), BTreeMap::from([(prefix("10.0.0.1"), Withheld::TooLong)]));
    pair.sender.acknowledged(pair.position);
    assert!(pair.sender.is_synced());
    pair.sender.set(&mixed(&long_route(900)));
    pair.flush();
    assert_eq!(pair.receiver.held().len(), 2);
    assert_eq!(*pair.sender.withheld(), BTreeMap::new());
}

#[test]
fn rfc4271_section_9_2_a_changed_route_replaces_the_old_one() {
    let mut pair = Pair::internal();
    pair.set(&["10.0.0.1", "10.0.0.2"]);
    let changed = Arc::new(Route { origin: Origin::Incomplete, ..Route::originated() });
    pair.sender.set(&Arc::new(LocRib::from_iter([(prefix("10.0.0.1"), changed), (prefix("10.0.0.2"), Arc::new(Route::originated()))])));
    let updates = pair.flush();
    assert_eq!(updates.len(), 1);
    assert_eq!((&updates[0].withdrawn, &updates[0].announced), (&vec![], &vec![prefix("10.0.0.1").into()]));
    assert_eq!(pair.receiver.routes[&prefix("10.0.0.1")].0[0], PathAttribute::Origin(Origin::Incomplete));
}

#[test]
fn rfc2918_section_4_refresh_sends_the_whole_family_again_and_nothing_else() {
    let mut pair = Pair::internal();
    pair.set(&["10.0.0.1", "10.0.0.2", "2001:db8::1"]);
    pair.sender.refresh(Family::Ipv4Unicast);
    pair.sender.begin_refreshes();
    let updates = pair.flush();
    assert_eq!(updates.len(), 1);
    assert_eq!(updates[0].announced, [prefix("10.0.0.1").into(), prefix("10.0.0.2").into()]);
    assert_eq!(pair.flush(), vec![]);
}

#[test]
fn rfc2918_section_4_a_refresh_survives_changes_that_come_before_it_is_answered() {
    let mut pair = Pair::internal();
    pair.set(&["10.0.0.1", "10.0.0.2"]);
    pair.sender.refresh(Family::Ipv4Unicast);
    pair.sender.begin_refreshes();
    let updates = pair.set(&["10.0.0.2", "10.0.0.3"]);
    assert_eq!(updates.len(), 2);
    assert_eq!(updates[0].withdrawn, [prefix("10.0.0.1").into()]);
    assert_eq!(updates[1].announced, [prefix("10.0.0.2").into(), prefix("10.0.0.3").into()]);
}

#[test]
fn rfc2918_section_4_refresh_of_a_family_that_was_not_negotiated_is_ignored() {
    let mut pair = Pair::new(export(), negotiated(65001, &[Family::Ipv4Unicast]), LOCAL);
    pair.set(&["10.0.0.1", "2001:db8::1"]);
    pair.sender.refresh(Family::Ipv6Unicast);
    pair.sender.begin_refreshes();
    assert_eq!(pair.flush(), vec![]);
}

#[test]
fn withdrawing_ends_with_the_acknowledgement_of_the_very_update() {
    let mut pair = Pair::internal();
    pair.set(&["10.0.0.1", "10.0.0.2", "2001:db8::1"]);
    pair.sender.set(&rib(&["10.0.0.2"]));
    let gone = all([prefix("10.0.0.1"), prefix("2001:db8::1")].into_iter());
    assert_eq!(all(pair.sender.withdrawing()), gone, "still to be written");
    assert_eq!(all(pair.sender.advertised()), all([prefix("10.0.0.2")].into_iter()));
    let before = pair.position;
    pair.flush();
    assert_eq!(all(pair.sender.withdrawing()), gone, "written");
    pair.sender.acknowledged(before + 27);
    assert_eq!(all(pair.sender.withdrawing()), gone, "all but one octet of the first UPDATE");
    pair.sender.acknowledged(before + 28);
    assert_eq!(all(pair.sender.withdrawing()), all([prefix("2001:db8::1")].into_iter()));
    pair.sender.acknowledged(pair.position - 1);
    assert_eq!(pair.sender.withdrawing().count(), 1);
    assert!(!pair.sender.is_synced());
    pair.sender.acknowledged(pair.position);
    assert_eq!(pair.sender.withdrawing().count(), 0);
    assert!(pair.sender.is_synced());
    pair.sender.acknowledged(0);
    assert!(pair.sender.is_synced(), "an acknowledgement never goes back");
}

#[test]
fn a_destination_announced_again_is_no_longer_withdrawing() {
    let mut pair = Pair::internal();
    pair.set(&["10.0.0.1"]);
    pair.set(&[]);
    let first_end = pair.position;
    pair.sender.set(&rib(&["10.0.0.1"]));
    assert_eq!(pair.sender.withdrawing().count(), 1, "not yet announced, and the peer may still hold it");
    pair.flush();
    assert_eq!((pair.sender.withdrawing().count(), pair.sender.advertised().count()), (0, 1));
    pair.set(&[]);
    pair.sender.acknowledged(first_end);
    assert_eq!(pair.sender.withdrawing().count(), 1, "the second withdrawal is not acknowledged with the first");
    pair.sender.acknowledged(pair.position);
    assert_eq!(pair.sender.withdrawing().count(), 0);
}

#[test]
fn rfc4271_section_4_3_routes_that_share_attributes_share_updates() {
    let many = |first: u32| (0..100_000).map(move |n| Prefix::host(IpAddr::V4(Ipv4Addr::from_bits(first + n))));
    let mut pair = Pair::internal();
    pair.sender.set(&Arc::new(LocRib::originated(many(0x0a00_0000))));
    let mut updates = 0;
    while let batch @ Batch { updates: 1.., .. } = pair.sender.next(pair.position, 64 * 1024) {
        assert!(batch.octets.len() <= 64 * 1024);
        pair.receiver.receive(&batch.octets);
        pair.position += batch.octets.len() as u64;
        updates += batch.updates;
    }
    assert!(updates <= 130, "{updates} UPDATEs");
    assert_eq!(pair.receiver.held(), many(0x0a00_0000).collect());
    pair.sender.set(&Arc::new(LocRib::default()));
    assert!(pair.flush().len() <= 125);
    assert_eq!(pair.sender.withdrawing().count(), 100_000);
    pair.sender.acknowledged(pair.position);
    assert_eq!(pair.sender.withdrawing().count(), 0);
}

/// What may happen to an Adj-RIB-Out.
#[derive(Clone, Debug)]
enum Step {
    /// For each destination of the universe: none, or one of two routes.
    Set(Vec<Option<bool>>),
    Refresh(bool),
    /// Another MED for all that have none, perhaps with another set.
    Export(bool, Option<Vec<Option<bool>>>),
    /// For one destination of the universe: none, or one of two routes.
    Change(usize, Option<bool>),
    /// So many messages' worth of octets.
    Write(usize),
    /// This share of what was written and not acknowledged, in 16ths.
    Acknowledge(u64),
}

fn choice() -> impl Strategy<Value = Vec<Option<bool>>> {
    proptest::collection::vec(proptest::option::of(any::<bool>()), UNIVERSE)
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => choice().prop_map(Step::Set),
        1 => any::<bool>().prop_map(Step::Refresh),
        2 => (any::<bool>(), proptest::option::of(choice())).prop_map(|(med, choice)| Step::Export(med, choice)),
        3 => (0..UNIVERSE, proptest::option::of(any::<bool>())).prop_map(|(at, route)| Step::Change(at, route)),
        4 => (0..4_usize).prop_map(Step::Write),
        3 => (0..=16_u64).prop_map(Step::Acknowledge),
    ]
}

/// Destinations in the property test: half of them IPv4.
const UNIVERSE: usize = 8;

fn universe() -> impl Iterator<Item = Prefix> {
    let half = u32::try_from(UNIVERSE / 2).unwrap();
    let v4 = (0..half).map(|n| IpAddr::V4(Ipv4Addr::from_bits(0x0a00_0001 + n)));
    let v6 = (0..half).map(|n| IpAddr::V6(std::net::Ipv6Addr::from_bits((0xfd_u128 << 120) + u128::from(n))));
    v4.chain(v6).map(Prefix::host)
}

/// The states in which the peer may be: one for each message boundary from the acknowledged octet on.
struct Possible {
    pair: Pair,
    acknowledged: u64,
    states: Vec<(u64, BTreeSet<Prefix>)>,
}

impl Possible {
    fn write(&mut self, limit: usize) {
        self.pair.sender.begin_refreshes();
        let batch = self.pair.sender.next(self.pair.position, limit);
        let mut rest = &batch.octets[..];
        while !rest.is_empty() {
            let (message, others) = rest.split_at(usize::from(u16::from_be_bytes([rest[16], rest[17]])));
            self.pair.receiver.receive(message);
            self.pair.position += message.len() as u64;
            self.states.push((self.pair.position, self.pair.receiver.held()));
            rest = others;
        }
    }

    fn acknowledge(&mut self, octets: u64) {
        self.acknowledged = octets;
        self.pair.sender.acknowledged(octets);
        let certain = self.states.iter().rposition(|(end, _)| *end <= octets).unwrap();
        self.states.drain(..certain);
    }

    /// The peer may hold exactly what is advertised or being withdrawn, and nothing is both.
    fn check(&self) {
        let advertised = all(self.pair.sender.advertised());
        let withdrawing = all(self.pair.sender.withdrawing());
        assert_eq!(withdrawing.len(), self.pair.sender.withdrawing().count());
        assert_eq!(advertised.len(), self.pair.sender.advertised_count());
        assert!(advertised.is_disjoint(&withdrawing));
        let held: BTreeSet<_> = self.states.iter().flat_map(|(_, held)| held).copied().collect();
        assert_eq!(&advertised | &withdrawing, held);
    }
}

proptest! {
    #[test]
    fn whatever_happens_the_peer_ends_with_the_last_set_and_nothing_is_lost_sight_of(steps in proptest::collection::vec(step(), 1..40)) {
        let routes = [Arc::new(Route::originated()), Arc::new(Route { med: Some(7), ..Route::originated() })];
        let choose = |choice: Vec<Option<bool>>| {
            let chosen = universe().zip(choice).filter_map(|(prefix, route)| Some((prefix, Arc::clone(&routes[usize::from(route?)]))));
            Arc::new(chosen.collect::<LocRib>())
        };
        let mut possible = Possible { pair: Pair::internal(), acknowledged: 0, states: vec![(0, BTreeSet::new())] };
        let mut last = Arc::new(LocRib::default());
        let mut last_export = export();
        possible.pair.sender.set(&last);
        for step in steps {
            match step {
                Step::Set(choice) => {
                    last = choose(choice);
                    possible.pair.sender.set(&last);
                }
                Step::Refresh(v4) => possible.pair.sender.refresh(if v4 { Family::Ipv4Unicast } else { Family::Ipv6Unicast }),
                Step::Export(med, choice) => {
                    last = choice.map_or(last, choose);
                    last_export = Export { med: med.then_some(7), ..export() };
                    possible.pair.sender.set_export(last_export.clone(), &last);
                }
                Step::Change(at, route) => {
                    let paths: Vec<_> = route.iter().map(|&route| Path::originated(Arc::clone(&routes[usize::from(route)]))).collect();
                    let changes = Changes::from([(universe().nth(at).unwrap(), paths.into())]);
                    Arc::make_mut(&mut last).apply(&changes);
                    possible.pair.sender.apply(&changes);
                }
                Step::Write(messages) => possible.write(messages * MAX_MESSAGE_LENGTH),
                Step::Acknowledge(share) => possible.acknowledge(possible.acknowledged + (possible.pair.position - possible.acknowledged) * share / 16),
            }
            possible.check();
        }
        possible.write(NO_LIMIT);
        possible.check();
        if possible.pair.sender.is_to_refresh() {
            // It was asked for during the one before.
            possible.write(NO_LIMIT);
            possible.check();
        }
        possible.acknowledge(possible.pair.position);
        possible.check();
        prop_assert!(possible.pair.sender.is_synced());
        let mut fresh = Pair::new(last_export, internal(), LOCAL);
        fresh.sender.set(&last);
        fresh.flush();
        prop_assert_eq!(&possible.pair.receiver.routes, &fresh.receiver.routes);
        prop_assert!(last.routes().map(|(prefix, _)| prefix).eq(fresh.receiver.routes.keys().copied()));
        prop_assert_eq!(possible.pair.receiver.ends_of_rib().len(), 2);
    }
}

#[test]
fn a_reader_sees_what_was_told_what_waits_and_what_goes() {
    let mut pair = Pair::internal();
    pair.sender.set(&rib(&["10.0.0.1", "10.0.0.2"]));
    let progress = |sender: &AdjRibOut| sender.advertisements(None).iter().map(|one| one.progress).collect::<Vec<_>>();
    assert_eq!(progress(&pair.sender), [Progress::ToBeTold; 2]);
    pair.flush();
    assert_eq!(progress(&pair.sender), [Progress::Told; 2]);
    let advertisements = pair.sender.advertisements(Some(prefix("10.0.0.2")));
    let outgoing = advertisements[0].outgoing.as_deref().unwrap();
    let (attributes, next_hop) = &pair.receiver.routes[&prefix("10.0.0.2")];
    assert_eq!((advertisements.len(), &outgoing.attributes, outgoing.next_hop), (1, attributes, *next_hop));
    assert_eq!(pair.sender.own_next_hop(Family::Ipv4Unicast), Some(*next_hop));

    pair.sender.set(&rib(&["10.0.0.2"]));
    pair.sender.set_export(Export { med: Some(7), ..export() }, &rib(&["10.0.0.2"]));
    let advertisements = pair.sender.advertisements(None);
    assert_eq!((advertisements[0].progress, &advertisements[0].outgoing), (Progress::ToBeWithdrawn, &None));
    assert_eq!(advertisements[1].progress, Progress::ToBeTold);
    assert!(advertisements[1].outgoing.as_deref().unwrap().attributes.contains(&PathAttribute::MultiExitDisc(7)));
    let elsewhere = Pair::new(export(), internal(), LocalAddresses::default());
    assert_eq!(elsewhere.sender.own_next_hop(Family::Ipv4Unicast), None);
}
