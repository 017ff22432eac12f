// SPDX-License-Identifier: Apache-2.0
//! The speaker against a scripted neighbour, over loopback TCP.

mod changes;
mod claiming;
mod dialling_each_other;
mod ending;
mod fake_peer;
mod inspecting;
mod limits;
mod listening;
mod not_reading;
mod policy;
mod reflecting;
mod reflecting_restart;
mod refreshing;
mod shutting;
mod signing;
mod silent;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::process::ExitStatusExt as _;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bgp::peer::{Forwarding, State};
use bgp::rib::Withheld;
use bgp::wire::{Capability, Cease, GracefulRestart, Message, Notification, Open, PathAttribute, Transitive};
use bgp::{Asn, BgpIdentifier, Family, HoldTime, Prefix};

use super::{Operation, PeerStatus, Speaker, SpeakerStatus};
use crate::desired::{DesiredBgp, DesiredExport, DesiredPeer, DesiredRestart, RouteSet, Transport, Ttl};
use fake_peer::{FakePeer, PATIENCE, open};

const OUR_AS: u32 = 65001;

fn neighbour(address: SocketAddr) -> DesiredPeer {
    DesiredPeer {
        port: address.port(),
        connect_retry: Duration::from_secs(1),
        // A loopback address is nobody's next hop.
        export: DesiredExport { next_hop_ipv4: Some(Ipv4Addr::new(192, 0, 2, 1)), ..DesiredExport::default() },
        ..DesiredPeer::new(address.ip(), Asn::new(OUR_AS).unwrap())
    }
}

fn desired<'a>(peers: impl IntoIterator<Item = (&'a str, DesiredPeer)>) -> Arc<DesiredBgp> {
    Arc::new(DesiredBgp {
        router_id: BgpIdentifier::new(0xC000_0201),
        peers: peers.into_iter().map(|(name, peer)| (name.to_owned(), peer)).collect(),
        ..DesiredBgp::new(Asn::new(OUR_AS).unwrap())
    })
}

fn set<'a>(prefixes: impl IntoIterator<Item = &'a str>) -> Arc<RouteSet> {
    Arc::new(prefixes.into_iter().map(prefix).collect())
}

fn prefixes<'a>(addresses: impl IntoIterator<Item = &'a str>) -> BTreeSet<Prefix> {
    addresses.into_iter().map(prefix).collect()
}

fn prefix(address: &str) -> Prefix {
    Prefix::host(address.parse().unwrap())
}

/// `count` VIPs.
fn many(count: u32) -> Arc<RouteSet> {
    let address = |number: u32| IpAddr::from((0x0A00_0000 + number).to_be_bytes());
    Arc::new((0..count).map(|number| Prefix::host(address(number))).collect())
}

/// Waits until the status is as wanted; wakes only when the speaker says that there is news.
fn wait_for(speaker: &Speaker, wanted: impl Fn(&SpeakerStatus) -> bool) -> Arc<SpeakerStatus> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let mut status = speaker.subscribe();
    runtime.block_on(async {
        match tokio::time::timeout(PATIENCE, status.wait_for(|status| wanted(status))).await {
            Ok(status) => Arc::clone(&status.unwrap()),
            Err(_) => panic!("in vain: {:#?}", speaker.status()),
        }
    })
}

/// Waits for what wakes nobody.
fn poll(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !done() {
        assert!(Instant::now() < deadline, "in vain: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn peer<'a>(status: &'a SpeakerStatus, name: &str) -> &'a PeerStatus {
    status.peers.get(name).unwrap()
}

fn is_up(status: &SpeakerStatus, name: &str) -> bool {
    status.peers.get(name).is_some_and(|peer| peer.state == State::Established)
}

/// Why the last session or attempt ended.
fn last_error(status: &SpeakerStatus, name: &str) -> String {
    let errors = status.peers.get(name).into_iter().flat_map(|peer| peer.last_error.iter().chain(&peer.last_attempt_error));
    errors.max_by_key(|error| error.at.instant).map_or_else(String::new, |error| error.reason.clone())
}

#[test]
fn opens_a_session_and_tells_an_empty_table() {
    let fake = FakePeer::listening();
    let speaker = Speaker::spawn("vipherald", 1).unwrap();
    speaker.advertise(set([]));
    speaker.configure(desired([("tor", neighbour(fake.address()))]), None);

    let mut conversation = fake.accept();
    let theirs = conversation.expect_open();
    assert_eq!((theirs.asn.number(), theirs.hold_time.secs(), theirs.identifier.to_string().as_str()), (OUR_AS, 9, "192.0.2.1"));
    assert_eq!(theirs.families(), BTreeSet::from(Family::ALL));
    drop(conversation);

    let mut conversation = fake.establish(OUR_AS);
    conversation.expect_empty_table();
    let status = wait_for(&speaker, |status| is_up(status, "tor"));
    let tor = peer(&status, "tor");
    assert_eq!(tor.local_address, Some("127.0.0.1".parse().unwrap()));
    assert_eq!(tor.families, BTreeSet::from(Family::ALL));
    assert_eq!((tor.hold_time, tor.open_sockets), (Some(HoldTime::ZERO), 1));
    assert!(tor.established_since.is_some());
    assert_eq!(status.configured, Some(desired([("tor", neighbour(fake.address()))])));
    assert_eq!((&tor.last_error, &tor.last_attempt_error), (&None, &None), "that the peer hung up once is of no interest any more");
}

#[test]
fn nothing_is_told_before_the_first_set_not_even_end_of_rib() {
    let fake = FakePeer::listening();
    let speaker = Speaker::spawn("vipherald", 1).unwrap();
    speaker.configure(desired([("tor", neighbour(fake.address()))]), None);
    let mut conversation = fake.establish(OUR_AS);
    wait_for(&speaker, |status| is_up(status, "tor"));
    assert!(conversation.is_silent_for(Duration::from_millis(100)));
    speaker.advertise(set([]));
    conversation.expect_empty_table();
}

#[test]
fn advertises_and_withdraws_until_acknowledged() {
    let fake = FakePeer::listening();
    let speaker = Speaker::spawn("vipherald", 1).unwrap();
    speaker.advertise(set(["10.0.0.7", "10.0.0.8", "2001:db8:7::7"]));
    speaker.configure(desired([("tor", neighbour(fake.address()))]), None);
    let mut conversation = fake.establish(OUR_AS);
    let update = conversation.expect_update();
    assert_eq!(update.announced, [prefix("10.0.0.7").into(), prefix("10.0.0.8").into()]);
    assert!(update.attributes.contains(&PathAttribute::NextHop(Ipv4Addr::new(192, 0, 2, 1))));
    conversation.expect_empty_table();

    let status = wait_for(&speaker, |status| is_up(status, "tor") && peer(status, "tor").advertised == 2);
    let withheld = BTreeMap::from([(prefix("2001:db8:7::7"), Withheld::NoNextHop(Family::Ipv6Unicast))]);
    assert_eq!(*peer(&status, "tor").withheld, withheld);
    assert_eq!(status.told(peer(&status, "tor")).collect::<Vec<_>>(), [prefix("10.0.0.7"), prefix("10.0.0.8")]);

    speaker.advertise(set(["10.0.0.8"]));
    assert!(speaker.status().withdrawing().contains(&prefix("10.0.0.7")) || peer(&speaker.status(), "tor").advertised == 1);
    assert_eq!(conversation.expect_update().withdrawn, [prefix("10.0.0.7").into()]);
    let status = wait_for(&speaker, |status| status.withdrawing().is_empty());
    assert_eq!(peer(&status, "tor").advertised, 1);
    assert_eq!(status.advertised, Some(set(["10.0.0.8"])));
}

#[test]
fn withdrawal_is_not_done_while_a_peer_that_does_not_read_may_not_know() {
    let fake = FakePeer::listening();
    fake.shrink_receive_buffer();
    let speaker = Speaker::spawn("vipherald", 1).unwrap();
    speaker.advertise(many(100_000));
    speaker.configure(desired([("tor", neighbour(fake.address()))]), None);
    let mut conversation = fake.establish(OUR_AS);
    wait_for(&speaker, |status| is_up(status, "tor"));

    let mut fewer = (*many(100_000)).clone();
    fewer.routes.remove(&prefix("10.0.0.0"));
    speaker.advertise(Arc::new(fewer));
    let watched = Instant::now();
    while watched.elapsed() < Duration::from_millis(300) {
        assert_eq!(speaker.status().withdrawing(), BTreeSet::from([prefix("10.0.0.0")]));
        std::thread::sleep(Duration::from_millis(1));
    }

    while conversation.expect_update().withdrawn.is_empty() {}
    wait_for(&speaker, |status| status.withdrawing().is_empty());
}

#[test]
fn a_large_table_needs_few_messages_and_all_of_it_arrives() {
    let fake = FakePeer::listening();
    let speaker = Speaker::spawn("vipherald", 1).unwrap();
    speaker.advertise(many(100_000));
    speaker.configure(desired([("tor", neighbour(fake.address()))]), None);
    let mut conversation = fake.establish(OUR_AS);
    let (mut prefixes, mut messages) = (0, 0);
    loop {
        let update = conversation.expect_update();
        if update.is_end_of_rib().is_some() {
            break;
        }
        prefixes += update.announced.len();
        messages += 1;
    }
    assert_eq!(prefixes, 100_000);
    assert!(messages <= 130, "{messages}");
    wait_for(&speaker, |status| is_up(status, "tor") && peer(status, "tor").advertised == 100_000);
}

#[test]
fn stop_delivers_administrative_shutdown_and_then_everything_is_closed() {
    let fake = FakePeer::listening();
    let speaker = Speaker::spawn("vipherald", 1).unwrap();
    speaker.advertise(set(["10.0.0.7"]));
    speaker.configure(desired([("tor", neighbour(fake.address()))]), None);
    let mut conversation = fake.establish(OUR_AS);
    wait_for(&speaker, |status| is_up(status, "tor"));
    // Unread octets of the peer must not turn the close into a reset that overtakes the NOTIFICATION.
    for _ in 0..1000 {
        conversation.send(&Message::Keepalive);
    }
    speaker.stop();
    let status = wait_for(&speaker, |status| status.configured.is_none());
    assert_eq!(status.open_sessions(), 1, "the peer has not closed its side yet");
    let mut last = None;
    while let Some(message) = conversation.next() {
        last = Some(message);
    }
    assert_eq!(last, Some(Message::Notification(Notification::cease(Cease::AdministrativeShutdown))));
    drop(conversation);
    wait_for(&speaker, |status| status.open_sessions() == 0 && status.peers.is_empty());
}

/// Graceful restart as the OPEN says it: whether we restart, for how long, and whether both families were served meanwhile.
fn restart_of(open: &Open) -> Option<(bool, u16, bool)> {
    open.capabilities.iter().find_map(|capability| match capability {
        Capability::GracefulRestart(restart) => {
            let served: BTreeSet<bool> = restart.families.values().copied().collect();
            assert_eq!((restart.families.len(), served.len()), (2, 1), "{restart:?}");
            Some((restart.restarting, restart.restart_time, served.contains(&true)))
        }
        _ => None,
    })
}

fn restartable(fake: &FakePeer) -> DesiredPeer {
    let restart = DesiredRestart { restart_time: 60, notification: true, long_lived_stale_time: 0 };
    DesiredPeer { graceful_restart: Some(restart), ..neighbour(fake.address()) }
}

/// An OPEN of a neighbour that keeps our routes while we restart.
fn keeping_open() -> Open {
    let mut open = open(OUR_AS);
    let families = Family::ALL.into_iter().map(|family| (family, false)).collect();
    let restart = GracefulRestart { restarting: false, notification: false, restart_time: 60, families };
    open.capabilities.push(Capability::GracefulRestart(restart));
    open
}

#[test]
fn rfc4724_4_release_closes_without_a_word_where_the_peer_keeps_the_routes() {
    let (keeping, other) = (FakePeer::listening(), FakePeer::listening());
    let speaker = Speaker::spawn("vipherald", 1).unwrap();
    speaker.advertise(set(["10.0.0.7"]));
    speaker.configure(desired([("keeping", restartable(&keeping)), ("other", restartable(&other))]), None);
    let mut conversation = keeping.accept();
    let theirs = conversation.expect_open();
    assert_eq!(restart_of(&theirs), Some((false, 60, false)), "nothing was before this process");
    conversation.establish_as(&keeping_open(), &theirs);
    let mut without = other.establish(OUR_AS);
    for conversation in [&mut conversation, &mut without] {
        assert_eq!(conversation.expect_update().announced, [prefix("10.0.0.7").into()]);
        conversation.expect_empty_table();
    }
    speaker.release();
    assert_eq!(conversation.next(), None);
    assert_eq!(without.next(), Some(Message::Notification(Notification::cease(Cease::AdministrativeShutdown))));
    drop((conversation, without));
    wait_for(&speaker, |status| status.configured.is_none() && status.open_sessions() == 0 && status.peers.is_empty());
}

#[test]
fn rfc4724_4_1_what_an_earlier_process_announced_is_withdrawing_until_the_peer_knows_better() {
    let fake = FakePeer::listening();
    let speaker = Speaker::spawn("vipherald", 1).unwrap();
    speaker.inherit(prefixes(["10.0.0.7", "10.0.0.8"]), Forwarding::ALL);
    assert_eq!(speaker.status().withdrawing(), prefixes(["10.0.0.7", "10.0.0.8"]));
    speaker.advertise(set(["10.0.0.7"]));
    speaker.configure(desired([("tor", restartable(&fake))]), None);
    let mut conversation = fake.accept();
    let theirs = conversation.expect_open();
    assert_eq!(restart_of(&theirs), Some((true, 60, true)));
    let status = wait_for(&speaker, |status| status.peers.contains_key("tor") && status.configured.is_some());
    assert_eq!(status.withdrawing(), prefixes(["10.0.0.8"]));
    conversation.establish_as(&keeping_open(), &theirs);
    assert_eq!(conversation.expect_update().announced, [prefix("10.0.0.7").into()]);
    conversation.expect_empty_table();
    wait_for(&speaker, |status| is_up(status, "tor") && status.withdrawing().is_empty());

    // The restart is over with that, and what is told from now on is served.
    drop(conversation);
    assert_eq!(restart_of(&fake.accept().expect_open()), Some((false, 60, true)));
}

#[test]
fn a_neighbour_that_is_configured_later_holds_nothing_of_an_earlier_process() {
    let [tor, late] = [FakePeer::listening(), FakePeer::listening()];
    let speaker = Speaker::spawn("vipherald", 1).unwrap();
    speaker.inherit(prefixes(["10.0.0.7", "10.0.0.8"]), Forwarding::ALL);
    speaker.advertise(set(["10.0.0.7"]));
    speaker.configure(desired([("tor", restartable(&tor))]), None);
    let mut conversation = tor.accept();
    let theirs = conversation.expect_open();
    conversation.establish_as(&keeping_open(), &theirs);
    wait_for(&speaker, |status| is_up(status, "tor") && status.withdrawing().is_empty());
    speaker.configure(desired([("tor", restartable(&tor)), ("late", restartable(&late))]), None);
    assert_eq!(restart_of(&late.accept().expect_open()), Some((false, 60, false)));
    let status = wait_for(&speaker, |status| status.peers.contains_key("late"));
    assert_eq!(status.withdrawing(), prefixes([]));
}

#[test]
fn rfc4724_4_1_the_forwarding_bit_is_clear_where_the_node_did_not_go_on_serving() {
    let fake = FakePeer::listening();
    let speaker = Speaker::spawn("vipherald", 1).unwrap();
    speaker.inherit(prefixes(["10.0.0.7"]), Forwarding::NONE);
    speaker.advertise(set(["10.0.0.7"]));
    speaker.configure(desired([("tor", restartable(&fake))]), None);
    assert_eq!(restart_of(&fake.accept().expect_open()), Some((true, 60, false)));
}

#[test]
fn without_graceful_restart_nothing_of_an_earlier_process_is_left_at_a_peer() {
    let fake = FakePeer::listening();
    let speaker = Speaker::spawn("vipherald", 1).unwrap();
    speaker.inherit(prefixes(["10.0.0.7"]), Forwarding::ALL);
    speaker.advertise(set([]));
    assert_eq!(speaker.status().withdrawing(), prefixes(["10.0.0.7"]));
    speaker.configure(desired([("tor", neighbour(fake.address()))]), None);
    assert_eq!(restart_of(&fake.accept().expect_open()), None);
    wait_for(&speaker, |status| status.configured.is_some() && status.withdrawing().is_empty());
}

#[test]
fn closes_after_two_seconds_though_the_peer_does_not() {
    let fake = FakePeer::listening();
    let speaker = Speaker::spawn("vipherald", 1).unwrap();
    speaker.configure(desired([("tor", neighbour(fake.address()))]), None);
    let _conversation = fake.establish(OUR_AS);
    wait_for(&speaker, |status| is_up(status, "tor"));
    let stopped = Instant::now();
    speaker.stop();
    wait_for(&speaker, |status| status.configured.is_none() && status.open_sessions() == 0);
    assert!(stopped.elapsed() >= Duration::from_secs(2));
}

#[test]
fn dials_a_silent_port_once_a_retry_period_and_is_up_soon_after_it_opens() {
    let fake = FakePeer::closed();
    let speaker = Speaker::spawn("vipherald", 1).unwrap();
    speaker.advertise(set(["10.0.0.7"]));
    speaker.configure(desired([("tor", neighbour(fake.address()))]), None);
    let configured = Instant::now();
    let status = wait_for(&speaker, |status| {
        status.peers.get("tor").and_then(|tor| tor.last_attempt_error.as_ref()).is_some_and(|error| error.count == 4)
    });
    assert_eq!(last_error(&status, "tor"), "connection refused");
    // Jitter shortens a period to three quarters at most.
    assert!(configured.elapsed() >= Duration::from_millis(2250), "{:?}", configured.elapsed());
    assert_eq!(status.open_sessions(), 0);

    fake.listen();
    let opened = Instant::now();
    let mut conversation = fake.establish(OUR_AS);
    assert_eq!(conversation.expect_update().announced, [prefix("10.0.0.7").into()]);
    // One retry period, and a busy machine.
    assert!(opened.elapsed() < Duration::from_secs(4), "{:?}", opened.elapsed());
}

#[test]
fn a_configuration_touches_only_the_sessions_that_it_changes() {
    let (kept, changed, removed) = (FakePeer::listening(), FakePeer::listening(), FakePeer::listening());
    let speaker = Speaker::spawn("vipherald", 1).unwrap();
    speaker.advertise(set([]));
    speaker.configure(
        desired([
            ("changed", neighbour(changed.address())),
            ("kept", neighbour(kept.address())),
            ("removed", neighbour(removed.address())),
        ]),
        None,
    );
    let mut conversations = [&kept, &changed, &removed].map(|fake| fake.establish(OUR_AS));
    for conversation in &mut conversations {
        conversation.expect_empty_table();
    }
    let [mut kept_conversation, mut changed_conversation, mut removed_conversation] = conversations;
    let status = wait_for(&speaker, |status| ["kept", "changed", "removed"].iter().all(|name| is_up(status, name)));
    let since = peer(&status, "kept").established_since;

    let new = DesiredPeer { families: BTreeSet::from([Family::Ipv4Unicast]), ..neighbour(changed.address()) };
    let next = desired([("changed", new), ("kept", neighbour(kept.address()))]);
    speaker.configure(Arc::clone(&next), None);
    let cease = |cease| Some(Message::Notification(Notification::cease(cease)));
    assert_eq!(removed_conversation.next(), cease(Cease::PeerDeconfigured));
    assert_eq!(changed_conversation.next(), cease(Cease::OtherConfigurationChange));
    drop((removed_conversation, changed_conversation));
    let mut changed_conversation = changed.establish(OUR_AS);
    assert_eq!(changed_conversation.expect_update().is_end_of_rib(), Some(Family::Ipv4Unicast));

    let status = wait_for(&speaker, |status| is_up(status, "changed") && !status.peers.contains_key("removed"));
    assert_eq!(status.configured, Some(next));
    assert_eq!(peer(&status, "kept").established_since, since);
    assert!(kept_conversation.is_silent_for(Duration::from_millis(100)));
    assert!(removed.accept_within(Duration::from_millis(1500)).is_none());
}

#[test]
fn an_equal_configuration_changes_nothing() {
    let fake = FakePeer::listening();
    let speaker = Speaker::spawn("vipherald", 1).unwrap();
    speaker.advertise(set(["10.0.0.7"]));
    speaker.configure(desired([("tor", neighbour(fake.address()))]), None);
    let mut conversation = fake.establish(OUR_AS);
    conversation.expect_update();
    conversation.expect_empty_table();
    let status = wait_for(&speaker, |status| is_up(status, "tor") && peer(status, "tor").advertised == 1);
    speaker.configure(desired([("tor", neighbour(fake.address()))]), None);
    speaker.advertise(set(["10.0.0.7"]));
    assert!(conversation.is_silent_for(Duration::from_millis(100)));
    assert_eq!(peer(&speaker.status(), "tor").since, peer(&status, "tor").since);
}

#[test]
fn a_peer_of_the_wrong_as_never_comes_up_and_the_status_says_why() {
    let fake = FakePeer::listening();
    let speaker = Speaker::spawn("vipherald", 1).unwrap();
    speaker.configure(desired([("tor", neighbour(fake.address()))]), None);
    let mut conversation = fake.accept();
    conversation.expect_open();
    conversation.send(&Message::Open(open(65099)));
    let refusal = conversation.next();
    assert!(matches!(&refusal, Some(Message::Notification(Notification { code: 2, subcode: 2, .. }))), "{refusal:?}");
    let status = wait_for(&speaker, |status| last_error(status, "tor").contains("65099"));
    assert!(last_error(&status, "tor").contains("Bad Peer AS"), "{}", last_error(&status, "tor"));
    assert_eq!(peer(&status, "tor").established_since, None);
}

#[test]
fn the_words_of_a_notification_are_kept_though_the_peer_closes_at_once() {
    let fake = FakePeer::listening();
    let speaker = Speaker::spawn("vipherald", 1).unwrap();
    speaker.configure(desired([("tor", neighbour(fake.address()))]), None);
    let mut conversation = fake.accept();
    conversation.send(&Message::Notification(Notification::bad_peer_as()));
    drop(conversation);
    let status = wait_for(&speaker, |status| !last_error(status, "tor").is_empty());
    assert_eq!(last_error(&status, "tor"), "the peer refused our OPEN: OPEN Message Error/Bad Peer AS");
}

#[test]
fn a_session_from_a_vip_is_given_up() {
    let fake = FakePeer::listening();
    let speaker = Speaker::spawn("vipherald", 1).unwrap();
    speaker.advertise(set(["127.0.0.1"]));
    speaker.configure(desired([("tor", neighbour(fake.address()))]), None);
    let status = wait_for(&speaker, |status| !last_error(status, "tor").is_empty());
    assert!(last_error(&status, "tor").contains("the VIP 127.0.0.1"), "{}", last_error(&status, "tor"));
    assert_eq!(fake.accept().next(), None, "closed before any message");
}

#[test]
fn hold_timer_runs_out_on_a_silent_peer_while_keepalives_go_out() {
    let fake = FakePeer::listening();
    let speaker = Speaker::spawn("vipherald", 1).unwrap();
    let three_seconds = DesiredPeer { hold_time: HoldTime::from_secs(3).unwrap(), ..neighbour(fake.address()) };
    speaker.configure(desired([("tor", three_seconds)]), None);
    let mut conversation = fake.accept();
    conversation.expect_open();
    conversation.send(&Message::Open(Open { hold_time: HoldTime::from_secs(90).unwrap(), ..open(OUR_AS) }));
    conversation.send(&Message::Keepalive);
    let mut keepalives = 0;
    let last = loop {
        match conversation.next() {
            Some(Message::Keepalive) => keepalives += 1,
            other => break other,
        }
    };
    assert_eq!(last, Some(Message::Notification(Notification::hold_timer_expired())));
    assert!(keepalives >= 2, "{keepalives}");
    let status = wait_for(&speaker, |status| !is_up(status, "tor"));
    assert!(last_error(&status, "tor").contains("Hold Timer Expired"), "{}", last_error(&status, "tor"));
}

#[test]
fn a_restarted_neighbour_is_told_everything_again() {
    let fake = FakePeer::listening();
    let speaker = Speaker::spawn("vipherald", 1).unwrap();
    speaker.advertise(set(["10.0.0.7"]));
    speaker.configure(desired([("tor", neighbour(fake.address()))]), None);
    for _ in 0..3 {
        let mut conversation = fake.establish(OUR_AS);
        assert_eq!(conversation.expect_update().announced, [prefix("10.0.0.7").into()]);
        conversation.expect_empty_table();
    }
    let status = speaker.status();
    assert_eq!(peer(&status, "tor").counters.received.open, 3);
}

/// Gives an order, as the admin socket does.
fn operate(speaker: &Speaker, name: &str, operation: Operation) -> Result<String, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(speaker.operator().operate(name, operation)).map_err(|error| error.to_string())
}

#[test]
fn an_operator_shuts_a_session_down_starts_and_resets_it() {
    let (fake, other) = (FakePeer::listening(), FakePeer::listening());
    let speaker = Speaker::spawn("vipherald", 1).unwrap();
    speaker.advertise(set([]));
    let configuration = desired([("other", neighbour(other.address())), ("tor", neighbour(fake.address()))]);
    speaker.configure(Arc::clone(&configuration), None);
    let (mut conversation, mut untouched) = (fake.establish(OUR_AS), other.establish(OUR_AS));
    conversation.expect_empty_table();
    untouched.expect_empty_table();
    assert_eq!(operate(&speaker, "spine", Operation::Reset).unwrap_err(), "there is no peer 'spine'; there is other, tor");

    operate(&speaker, "tor", Operation::Reset).unwrap();
    assert_eq!(conversation.next(), Some(Message::Notification(Notification::cease(Cease::AdministrativeReset))));
    drop(conversation);
    let mut conversation = fake.establish(OUR_AS);
    conversation.expect_empty_table();

    operate(&speaker, "tor", Operation::Shutdown { message: Some("new line card".to_owned()) }).unwrap();
    let Some(Message::Notification(last)) = conversation.next() else { panic!("no NOTIFICATION") };
    assert_eq!((last.code, last.subcode, last.communication().as_deref()), (6, 2, Some("new line card")));
    drop(conversation);
    let status = wait_for(&speaker, |status| peer(status, "tor").state == State::Idle && status.open_sessions() == 1);
    assert!(peer(&status, "tor").shut);
    operate(&speaker, "tor", Operation::Reset).unwrap_err();
    assert!(fake.accept_within(Duration::from_millis(1500)).is_none(), "a reset ends no shutdown");

    // Nor does another configuration of it.
    let changed = DesiredPeer { connect_retry: Duration::from_secs(2), ..neighbour(fake.address()) };
    speaker.configure(desired([("other", neighbour(other.address())), ("tor", changed)]), None);
    assert!(fake.accept_within(Duration::from_millis(1500)).is_none());
    assert!(peer(&speaker.status(), "tor").shut);

    operate(&speaker, "tor", Operation::Start).unwrap();
    fake.establish(OUR_AS).expect_empty_table();
    assert!(!peer(&speaker.status(), "tor").shut);
    assert!(untouched.is_silent_for(Duration::from_millis(100)));
}

fn signed(fake: &FakePeer, file: &std::path::Path) -> DesiredPeer {
    let transport = Transport { password_file: Some(file.to_owned()), ..Transport::default() };
    DesiredPeer { transport, ..neighbour(fake.address()) }
}

#[test]
fn rfc2385_a_session_comes_up_with_the_key_of_the_file_and_with_no_other() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("key");
    let fake = FakePeer::listening();
    fake.demand_key(b"secret");
    let speaker = Speaker::spawn("vipherald", 1).unwrap();
    speaker.configure(desired([("tor", signed(&fake, &file))]), None);
    let status = wait_for(&speaker, |status| !last_error(status, "tor").is_empty());
    let reason = format!("no TCP-MD5 key in {}: No such file or directory (os error 2)", file.display());
    assert_eq!(last_error(&status, "tor"), reason);
    assert_eq!(peer(&status, "tor").warning.as_deref(), Some(reason.as_str()));

    std::fs::write(&file, "Secret\n").unwrap();
    let status = wait_for(&speaker, |status| last_error(status, "tor").contains("did not answer"));
    assert!(last_error(&status, "tor").contains("TCP-MD5"), "{}", last_error(&status, "tor"));
    assert_eq!((peer(&status, "tor").counters.established, peer(&status, "tor").warning.as_ref()), (0, None));

    std::fs::write(&file, "secret\n").unwrap();
    let _conversation = fake.establish(OUR_AS);
    wait_for(&speaker, |status| is_up(status, "tor"));
}

#[test]
fn a_session_takes_a_new_key_and_outlives_the_loss_of_the_file() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("key");
    std::fs::write(&file, "secret\n").unwrap();
    let fake = FakePeer::listening();
    fake.demand_key(b"secret");
    let speaker = Speaker::spawn("vipherald", 1).unwrap();
    speaker.advertise(set([]));
    speaker.configure(desired([("tor", signed(&fake, &file))]), None);
    let mut conversation = fake.establish(OUR_AS);
    conversation.expect_empty_table();
    let since = peer(&wait_for(&speaker, |status| is_up(status, "tor")), "tor").established_since;

    let changed = Instant::now();
    std::fs::write(&file, "other\n").unwrap();
    conversation.change_key(b"other");
    speaker.advertise(set(["10.0.0.7"]));
    assert_eq!(conversation.expect_update().announced, [prefix("10.0.0.7").into()]);
    assert!(changed.elapsed() < Duration::from_secs(5), "{:?}", changed.elapsed());

    std::fs::remove_file(&file).unwrap();
    wait_for(&speaker, |status| peer(status, "tor").warning.is_some());
    speaker.advertise(set(["10.0.0.7", "10.0.0.8"]));
    assert_eq!(conversation.expect_update().announced, [prefix("10.0.0.8").into()]);
    assert_eq!(peer(&speaker.status(), "tor").established_since, since);

    drop(conversation);
    let status = wait_for(&speaker, |status| last_error(status, "tor").contains("no TCP-MD5 key"));
    assert!(!is_up(&status, "tor"));
}

#[test]
fn rfc5082_3_a_peer_whose_packets_come_from_too_far_is_not_heard() {
    let fake = FakePeer::listening();
    fake.set_ttl(253);
    let speaker = Speaker::spawn("vipherald", 1).unwrap();
    let within = |hops| {
        let transport = Transport { ttl: Ttl::Security { hops }, ..Transport::default() };
        desired([("tor", DesiredPeer { transport, ..neighbour(fake.address()) })])
    };
    speaker.configure(within(2), None);
    wait_for(&speaker, |status| last_error(status, "tor").contains("did not answer"));
    speaker.configure(within(3), None);
    let _conversation = fake.establish(OUR_AS);
    wait_for(&speaker, |status| is_up(status, "tor"));
}

#[test]
fn a_panic_in_a_task_ends_the_process() {
    const CHILD: &str = "VIPHERALD_TEST_PANICS";
    if std::env::var_os(CHILD).is_some() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let task = tokio::spawn(super::fatal_panics(async { panic!("on purpose") }));
            assert!(task.await.is_ok(), "the panic was survived");
        });
        return;
    }
    let name = "driver::bgp::tests::a_panic_in_a_task_ends_the_process";
    let output = Command::new(std::env::current_exe().unwrap()).args(["--exact", name]).env(CHILD, "1").output().unwrap();
    assert_eq!(output.status.signal(), Some(nix::sys::signal::Signal::SIGABRT as i32), "{output:?}");
}
