// SPDX-License-Identifier: Apache-2.0
//! Stamps: when each observed value came to be.

use std::io;

use super::*;
use crate::api::{PortRange, Protocol};

const VIP: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 7));

fn vips<S: FromIterator<Prefix>>(vips: &[IpAddr]) -> S {
    vips.iter().copied().map(Prefix::host).collect()
}

fn on_the_interface(vips: &[IpAddr]) -> KernelState {
    let address = ObservedAddress { prefix_length: 32, protocol: Some(ADDRESS_PROTOCOL) };
    KernelState { addresses: vips.iter().map(|vip| (*vip, address)).collect(), ..KernelState::default() }
}

fn confirmed(vips: &[IpAddr]) -> KernelState {
    KernelState {
        record: Record { exists: true, confirmed: vips.iter().copied().collect(), ..Record::default() },
        ..KernelState::default()
    }
}

fn nowhere() -> KernelState {
    KernelState::default()
}

fn advertising(advertised: &[IpAddr], withdrawing: &[IpAddr]) -> ObservedSpeaker {
    ObservedSpeaker { advertised: Some(Arc::new(vips(advertised))), withdrawing: vips(withdrawing), ..ObservedSpeaker::default() }
}

/// Stamps a sequence of readings, one a second, and tells of the VIP after each: its announcement and the second in which that began.
fn history(readings: Vec<(KernelState, ObservedSpeaker)>) -> Vec<Option<(Announcement, u64)>> {
    let start = Instant::now();
    let mut observed = Observed::default();
    let mut told = Vec::new();
    for (second, (kernel, speaker)) in (0..).zip(readings) {
        observed = stamp(&observed, kernel, speaker, start + Duration::from_secs(second));
        assert_eq!(observed.started, Some(start));
        told.push(observed.announcements.get(&Prefix::host(VIP)).map(|since| (since.value, since.since.duration_since(start).as_secs())));
    }
    told
}

#[test]
fn since_changes_only_when_the_value_does() {
    use Announcement::{Advertised, Withdrawing, Withdrawn};
    let told = history(vec![
        (on_the_interface(&[VIP]), ObservedSpeaker::default()),
        (on_the_interface(&[VIP]), advertising(&[VIP], &[])),
        (on_the_interface(&[VIP]), advertising(&[VIP], &[])),
        (on_the_interface(&[VIP]), advertising(&[], &[VIP])),
        (on_the_interface(&[VIP]), advertising(&[], &[VIP])),
        (on_the_interface(&[VIP]), advertising(&[], &[])),
        (on_the_interface(&[VIP]), advertising(&[], &[])),
        (on_the_interface(&[VIP]), advertising(&[VIP], &[])),
    ]);
    let expected = [
        (Withdrawn, 0),
        (Advertised, 1),
        (Advertised, 1),
        (Withdrawing, 3),
        (Withdrawing, 3),
        (Withdrawn, 5),
        (Withdrawn, 5),
        (Advertised, 7),
    ];
    assert_eq!(told, expected.map(Some));
}

#[test]
fn what_was_never_announced_is_withdrawn_since_the_start() {
    let told = history(vec![
        (nowhere(), advertising(&[], &[])),
        (nowhere(), advertising(&[], &[])),
        (on_the_interface(&[VIP]), advertising(&[], &[])),
        (confirmed(&[VIP]), advertising(&[], &[])),
        (nowhere(), advertising(&[], &[])),
    ]);
    let withdrawn = Some((Announcement::Withdrawn, 0));
    assert_eq!(told, [None, None, withdrawn, withdrawn, None]);
}

#[test]
fn a_vip_advertised_again_while_it_is_being_withdrawn_is_advertised() {
    let told = history(vec![(nowhere(), advertising(&[VIP], &[VIP]))]);
    assert_eq!(told, [Some((Announcement::Advertised, 0))]);
}

#[test]
fn a_delay_goes_on_while_the_vip_is_nowhere() {
    use Announcement::{Advertised, Withdrawn};
    let told = history(vec![
        (on_the_interface(&[VIP]), advertising(&[], &[])),
        (on_the_interface(&[VIP]), advertising(&[VIP], &[])),
        (nowhere(), advertising(&[], &[])),
        (nowhere(), advertising(&[], &[])),
        (on_the_interface(&[VIP]), advertising(&[], &[])),
    ]);
    assert_eq!(told, [(Withdrawn, 0), (Advertised, 1), (Withdrawn, 2), (Withdrawn, 2), (Withdrawn, 2)].map(Some));
}

#[test]
fn what_is_nowhere_is_forgotten_in_the_end() {
    let start = Instant::now();
    let observed = stamp(&Observed::default(), nowhere(), advertising(&[VIP], &[]), start);
    let gone = stamp(&observed, nowhere(), advertising(&[], &[]), start + Duration::from_secs(1));
    assert!(gone.announcements.contains_key(&Prefix::host(VIP)));
    let later = stamp(&gone, nowhere(), advertising(&[], &[]), start + Duration::from_secs(1) + FORGET_AFTER);
    assert!(later.announcements.is_empty());
    let held = stamp(&gone, confirmed(&[VIP]), advertising(&[], &[]), start + Duration::from_secs(1) + FORGET_AFTER);
    assert_eq!(held.announcements, gone.announcements, "one that is in the record is not forgotten");
}

#[test]
fn an_aggregate_and_the_vip_that_it_stands_for_have_an_announcement_each() {
    let aggregate = Prefix::new("10.0.0.0".parse().unwrap(), 24).unwrap();
    let told = |covered: bool, shutting_down: bool| {
        let mut set: RouteSet = [aggregate].into_iter().collect();
        set.covered.extend(covered.then_some(VIP));
        if shutting_down {
            set.routes.iter_mut().for_each(|(_, route)| *route = Arc::new(route.shutting_down()));
        }
        let speaker = ObservedSpeaker { advertised: Some(Arc::new(set)), ..ObservedSpeaker::default() };
        let observed = stamp(&Observed::default(), on_the_interface(&[VIP]), speaker, Instant::now());
        [aggregate, Prefix::host(VIP)].map(|prefix| observed.announcements[&prefix].value)
    };
    assert_eq!(told(true, false), [Announcement::Advertised; 2]);
    assert_eq!(told(false, false), [Announcement::Advertised, Announcement::Withdrawn]);
    assert_eq!(told(true, true), [Announcement::ShuttingDown, Announcement::Advertised]);
}

#[test]
fn failures_count_until_success_and_go_with_their_address() {
    let start = Instant::now();
    let mut observed = stamp(&Observed::default(), confirmed(&[VIP]), ObservedSpeaker::default(), start);
    let error = io::Error::other(Outer(io::Error::other("the reason")));
    observed.fail(StepKey::Address(VIP), &error, start);
    observed.fail(StepKey::Address(VIP), &error, start + Duration::from_secs(1));
    observed.fail(StepKey::Record, &error, start);
    let failure = Failure { error: "outer: the reason".to_owned(), count: 2, since: start, last: start + Duration::from_secs(1) };
    assert_eq!(observed.failures.get(&StepKey::Address(VIP)), Some(&failure));

    let kept = stamp(&observed, confirmed(&[VIP]), ObservedSpeaker::default(), start);
    assert_eq!(kept.failures, observed.failures);
    let gone = stamp(&observed, nowhere(), ObservedSpeaker::default(), start);
    assert_eq!(gone.failures.keys().collect::<Vec<_>>(), [&StepKey::Record]);
    observed.succeed(StepKey::Address(VIP));
    assert_eq!(observed.failures.keys().collect::<Vec<_>>(), [&StepKey::Record]);
}

#[test]
fn what_we_removed_ourselves_is_no_loss() {
    let port = PortRange::new(80, 80).unwrap();
    let service = ServiceKey { vip: VIP, protocol: Protocol::Tcp, ports: port };
    let kernel = |there: bool| {
        let mut kernel = KernelState { record: Record { confirmed_services: [service].into(), ..confirmed(&[VIP]).record }, ..nowhere() };
        if there {
            kernel.addresses = on_the_interface(&[VIP]).addresses;
            kernel.balancer.services.insert(service, ObservedVirtualService { mode: None, real_servers: Vec::new() });
        }
        kernel
    };
    let start = Instant::now();
    let read = |previous: &Observed, there| stamp(previous, kernel(there), ObservedSpeaker::default(), start);
    let mut observed = read(&Observed::default(), true);
    assert_eq!(read(&observed, false).losses.len(), 1, "somebody else did");
    for step in [Step::RemoveAddress(VIP), Step::RemoveVirtualService(service)] {
        observed.complete(&step);
    }
    let gone = read(&read(&observed, false), false);
    assert_eq!((gone.losses.len(), gone.removed.len()), (0, 2));
    let back = read(&gone, true);
    assert!(back.removed.is_empty());
    assert_eq!(read(&back, false).losses.len(), 1, "this time it was somebody else");
}

#[derive(Debug, thiserror::Error)]
#[error("outer")]
struct Outer(#[source] io::Error);

/// RFC 4724 §4: the end of a process may come between the announcement and the confirmation in the record.
#[test]
fn what_was_placed_and_not_yet_confirmed_is_left_behind_too() {
    let [confirmed, placed, planned] = [1, 2, 3].map(|number| IpAddr::from([10, 0, 0, number]));
    let state = KernelState {
        record: Record { exists: true, pending: [placed, planned].into(), confirmed: [confirmed].into(), ..Record::default() },
        ..on_the_interface(&[placed])
    };
    assert_eq!(state.left_behind(), BTreeSet::from([confirmed, placed]));
}
