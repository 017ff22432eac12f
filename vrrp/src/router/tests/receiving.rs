// SPDX-License-Identifier: Apache-2.0
//! What is received: RFC 9568 §7.1 as far as it depends on the virtual router, forms of checksum, lists of addresses.

use super::*;
use crate::identity::Family;
use crate::wire::DecodeError;

/// An advertisement of priority 200, as sent from one address to another.
fn datagram(source: &str, destination: &str, form: ChecksumForm, change: impl FnOnce(&mut Advertisement)) -> Datagram {
    let mut advertisement = advertisement(&config(), 200);
    change(&mut advertisement);
    let endpoints = Endpoints::new(ip(source), ip(destination)).unwrap();
    Datagram { endpoints, ttl: 255, octets: advertisement.encode(endpoints, form) }
}

fn multicast() -> Datagram {
    datagram("10.9.0.9", "224.0.0.18", ChecksumForm::MessageOnly, |_| {})
}

/// That the datagram is discarded for this reason, counted there, and has no other effect.
fn assert_discarded(bench: &mut Bench, datagram: Datagram, reason: Discard, counted: impl Fn(&mut Discards) -> &mut u64) {
    let (timers, mut expected) = (bench.router.timers(), bench.router.counters().discarded);
    let source = datagram.endpoints.source();
    assert_eq!(bench.event(Event::Received(datagram)), [Action::Discarded { source, reason }]);
    *counted(&mut expected) += 1;
    assert_eq!((bench.router.timers(), bench.router.counters().discarded), (timers, expected));
    assert_eq!((bench.router.counters().received, bench.router.heard()), (0, None));
}

#[test]
fn rfc9568_section_7_1_what_does_not_pass_a_check_is_discarded_and_counted() {
    let mut bench = Bench::backup(config());
    bench.pass(SECOND);
    let octets = |change: fn(&mut Vec<u8>)| {
        let mut datagram = multicast();
        change(&mut datagram.octets);
        datagram
    };
    let malformed = |error| Discard::Malformed(error);
    let far = Datagram { ttl: 1, ..multicast() };
    assert_discarded(&mut bench, far, malformed(DecodeError::Ttl { received: 1, least: 255 }), |counted| &mut counted.ttl);
    let version = DecodeError::Version { received: 2, expected: Version::V3 };
    assert_discarded(&mut bench, octets(|octets| octets[0] = 0x21), malformed(version), |counted| &mut counted.version);
    assert_discarded(&mut bench, octets(|octets| octets[0] = 0x33), malformed(DecodeError::Type(3)), |counted| &mut counted.message_type);
    let length = DecodeError::Length { received: 11, expected: 12 };
    assert_discarded(&mut bench, octets(|octets| octets.truncate(11)), malformed(length), |counted| &mut counted.length);
    assert_discarded(&mut bench, octets(|octets| octets[3] = 0), malformed(DecodeError::NoAddress), |counted| &mut counted.no_address);
    let sum = u16::from_be_bytes([multicast().octets[6], multicast().octets[7]]);
    let checksum = DecodeError::Checksum { received: sum, expected: sum.wrapping_sub(1) };
    assert_discarded(&mut bench, octets(|octets| octets[11] += 1), malformed(checksum), |counted| &mut counted.checksum);
    let other = datagram("10.9.0.9", "224.0.0.18", ChecksumForm::MessageOnly, |sent| sent.vrid = Vrid::new(52).unwrap());
    let vrid = Discard::Vrid { received: Vrid::new(52).unwrap(), expected: Vrid::new(51).unwrap() };
    assert_discarded(&mut bench, other, vrid, |counted| &mut counted.vrid);
    let endpoints = Endpoints::new(ip("fe80::9"), Family::Ipv6.multicast_group()).unwrap();
    let ipv6 = Datagram { endpoints, ..multicast() };
    assert_discarded(&mut bench, ipv6, Discard::Family(Family::Ipv4), |counted| &mut counted.family);
    let own = datagram("10.9.0.2", "224.0.0.18", ChecksumForm::MessageOnly, |_| {});
    assert_discarded(&mut bench, own, Discard::OwnAddress, |counted| &mut counted.own_address);
    let destination = datagram("10.9.0.9", "10.9.0.2", ChecksumForm::MessageOnly, |_| {});
    assert_discarded(&mut bench, destination, Discard::Destination(ip("10.9.0.2")), |counted| &mut counted.destination);
}

#[test]
fn rfc9568_section_7_1_the_owner_listens_to_nobody() {
    let mut bench = Bench::new(Config { priority: Priority::OWNER, ..config() });
    bench.up();
    let owner = datagram("10.9.0.9", "224.0.0.18", ChecksumForm::MessageOnly, |sent| sent.priority = Some(Priority::OWNER));
    assert_discarded(&mut bench, owner, Discard::Owner, |counted| &mut counted.owner);
    assert_eq!(bench.router.state(), State::Active);
}

#[test]
fn unicast_is_sent_to_each_peer_and_accepted_from_peers_alone() {
    let config = Config { transport: unicast(&["10.9.0.1", "10.9.0.3"]), ..config() };
    let mut bench = Bench::backup(config.clone());
    assert_discarded(&mut bench, multicast(), Discard::Destination(ip("224.0.0.18")), |counted| &mut counted.destination);
    let stranger = datagram("10.9.0.9", "10.9.0.2", ChecksumForm::MessageOnly, |_| {});
    assert_discarded(&mut bench, stranger, Discard::NotAPeer, |counted| &mut counted.not_a_peer);

    let actions = bench.pass_to_deadline();
    let to = |peer| sent(&config, 100, ip(peer), ChecksumForm::MessageOnly);
    assert_eq!(actions[..2], [to("10.9.0.1"), to("10.9.0.3")]);
    assert_eq!(bench.router.counters().sent, 1);
    let peer = datagram("10.9.0.3", "10.9.0.2", ChecksumForm::MessageOnly, |_| {});
    bench.event(Event::Received(peer));
    assert_eq!(bench.router.state(), State::Backup);
}

#[test]
fn a_peer_is_answered_in_its_own_form_of_checksum() {
    let config = Config { transport: unicast(&["10.9.0.1", "10.9.0.3"]), ..config() };
    let mut bench = Bench::active(config.clone());
    let lower = |source, form| {
        let datagram = datagram(source, "10.9.0.2", form, |sent| sent.priority = Some(priority(50)));
        Event::Received(datagram)
    };
    let forms = |actions: &[Action]| {
        let sent = ["10.9.0.1", "10.9.0.3"].map(|peer| {
            let of_form = |form| actions.contains(&sent(&config, 100, ip(peer), form));
            [ChecksumForm::MessageOnly, ChecksumForm::PseudoHeader].into_iter().find(|form| of_form(*form)).unwrap()
        });
        (sent[0], sent[1])
    };
    let (alone, pseudo) = (ChecksumForm::MessageOnly, ChecksumForm::PseudoHeader);
    assert_eq!(forms(&bench.pass_to_deadline()), (alone, alone), "as RFC 9568 has it");
    bench.event(lower("10.9.0.3", pseudo));
    assert_eq!(forms(&bench.pass(SECOND)), (pseudo, pseudo), "a peer that was not heard is like others that were");
    bench.event(lower("10.9.0.1", alone));
    assert_eq!(forms(&bench.pass(SECOND)), (alone, pseudo));
    bench.configure(|config| config.checksum = ChecksumChoice::Always(alone));
    assert_eq!(forms(&bench.pass(SECOND)), (alone, alone));
    assert_eq!(bench.router.checksum_form(ip("10.9.0.3")), alone);
}

#[test]
fn the_group_is_answered_in_the_form_heard_last() {
    let mut bench = Bench::backup(config());
    bench.event(Event::Received(datagram("10.9.0.9", "224.0.0.18", ChecksumForm::PseudoHeader, |_| {})));
    let actions = bench.pass_to_deadline();
    assert_eq!(actions[0], sent(&config(), 100, ip("224.0.0.18"), ChecksumForm::PseudoHeader));
    assert_eq!(bench.router.checksum_form(ip("224.0.0.18")), ChecksumForm::PseudoHeader);
}

#[test]
fn another_list_of_addresses_is_told_once_and_changes_nothing() {
    let mut bench = Bench::backup(config());
    let with = |list: &[&str]| datagram("10.9.0.9", "224.0.0.18", ChecksumForm::MessageOnly, |sent| sent.addresses = addresses(list));
    let told = |list: &[&str]| vec![Action::AddressesDiffer { source: ip("10.9.0.9"), listed: addresses(list) }];
    let two = ["10.9.0.100", "10.9.0.101"];
    bench.pass(SECOND);
    assert_eq!(bench.event(Event::Received(with(&two))), told(&two));
    assert_eq!(bench.wait(), Duration::from_micros(3_609_375));
    assert_eq!(bench.event(Event::Received(with(&two))), []);
    assert_eq!(bench.event(Event::Received(with(&["10.9.0.101"]))), told(&["10.9.0.101"]));
    assert_eq!(bench.event(Event::Received(with(&["10.9.0.100"]))), []);
    assert_eq!(bench.event(Event::Received(with(&two))), told(&two), "again, after it was right");
    // The order does not matter.
    bench.configure(|config| config.addresses = addresses(&["10.9.0.101", "10.9.0.100"]));
    assert_eq!(bench.event(Event::Received(with(&two))), []);
}

#[test]
fn what_is_heard_is_known_in_every_state() {
    let mut bench = Bench::new(config());
    bench.event(Event::Received(multicast()));
    let heard = Heard { source: ip("10.9.0.9"), priority: Some(priority(200)), interval: interval(100), at: bench.now };
    assert_eq!((bench.router.heard(), bench.router.state()), (Some(heard), State::Initialize));
    assert_eq!(bench.router.counters().received, 1);
}

#[test]
fn more_addresses_than_a_packet_carries_are_held_and_not_listed() {
    let many: Vec<_> = (0..300_u32).map(|n| IpAddr::V4(std::net::Ipv4Addr::from_bits(0x0A08_0000 + n))).collect();
    let mut bench = Bench::active(Config { addresses: Addresses::new(&many).unwrap(), ..config() });
    assert_eq!(bench.router.addresses().len(), 300);
    let Action::Send { octets, .. } = &bench.pass_to_deadline()[0] else { panic!("it advertises") };
    assert_eq!(usize::from(octets[3]), 255);
    // Another one that has as many is not told to differ.
    let peer = advertisement(bench.router.config(), 50);
    assert!(!bench.event(from("10.9.0.1", &peer)).iter().any(|action| matches!(action, Action::AddressesDiffer { .. })));
}
