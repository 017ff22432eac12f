// SPDX-License-Identifier: Apache-2.0
//! The speaker as a route reflector, between scripted neighbours.

use bgp::wire::{AddPathMode, AsPath, Capability, Nlri, Origin, Update};

use super::fake_peer::Conversation;
use super::*;

/// Where the client's packets go.
const NEXT_HOP: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 77);

fn client(fake: &FakePeer) -> DesiredPeer {
    DesiredPeer { reflector_client: true, ..neighbour(fake.address()) }
}

fn announcement(address: &str) -> Message {
    let attributes = vec![
        PathAttribute::Origin(Origin::Igp),
        PathAttribute::AsPath(AsPath(Vec::new())),
        PathAttribute::NextHop(NEXT_HOP),
        PathAttribute::LocalPref(100),
    ];
    Message::Update(Update { attributes, announced: vec![prefix(address).into()], ..Update::default() })
}

/// Reads on until this prefix is withdrawn.
fn expect_withdrawal(conversation: &mut Conversation, address: &str) {
    while !conversation.expect_update().withdrawn.contains(&prefix(address).into()) {}
}

#[test]
fn what_a_client_tells_reaches_the_others_and_goes_with_its_session_or_with_the_client() {
    let (first, second) = (FakePeer::listening(), FakePeer::listening());
    let speaker = Speaker::spawn("vipherald", 1).unwrap();
    speaker.advertise(set([]));
    speaker.configure(desired([("first", client(&first)), ("second", neighbour(second.address()))]), None);
    let mut teller = first.establish(OUR_AS);
    teller.expect_empty_table();
    let mut listener = second.establish(OUR_AS);
    listener.expect_empty_table();

    let mut expect_announcement = |teller: &mut Conversation| {
        teller.send(&announcement("10.0.0.7"));
        let update = listener.expect_update();
        assert_eq!(update.announced, [prefix("10.0.0.7").into()]);
        assert!(update.attributes.contains(&PathAttribute::NextHop(NEXT_HOP)), "{update:?}");
        assert!(update.attributes.iter().any(|attribute| matches!(attribute, PathAttribute::OriginatorId(_))), "{update:?}");
    };
    expect_announcement(&mut teller);
    assert!(teller.is_silent_for(Duration::from_millis(100)), "it was told its own route");
    let status = wait_for(&speaker, |status| peer(status, "first").held.get(&Family::Ipv4Unicast) == Some(&1));
    assert!(status.withdrawing().is_empty());
    drop(teller);
    expect_withdrawal(&mut listener, "10.0.0.7");

    let mut teller = first.establish(OUR_AS);
    let mut expect_again = |address: &str| {
        teller.send(&announcement(address));
        assert_eq!(listener.expect_update().announced, [prefix(address).into()]);
    };
    expect_again("10.0.0.7");
    expect_again("10.0.0.8");
    let since = peer(&speaker.status(), "second").established_since;
    // Another client keeps the speaker a reflector.
    let third = FakePeer::closed();
    speaker.configure(desired([("second", neighbour(second.address())), ("third", client(&third))]), None);
    let update = listener.expect_update();
    assert_eq!(update.withdrawn, [prefix("10.0.0.7").into(), prefix("10.0.0.8").into()]);
    assert_eq!(peer(&speaker.status(), "second").established_since, since);
}

#[test]
fn several_paths_of_one_peer_are_passed_on_each_by_itself() {
    let (first, second) = (FakePeer::listening(), FakePeer::listening());
    let speaker = Speaker::spawn("vipherald", 1).unwrap();
    speaker.advertise(set(["10.0.0.7"]));
    speaker.configure(
        desired([
            ("first", DesiredPeer { add_path: Some(AddPathMode::Receive), ..client(&first) }),
            ("second", DesiredPeer { add_path: Some(AddPathMode::Send), ..neighbour(second.address()) }),
        ]),
        None,
    );
    let establish = |fake: &FakePeer, mode| {
        let mut conversation = fake.accept();
        let theirs = conversation.expect_open();
        let mut ours = open(OUR_AS);
        ours.capabilities.push(Capability::AddPath(BTreeMap::from([(Family::Ipv4Unicast, mode)])));
        conversation.answer(&ours, &theirs);
        assert_eq!(conversation.next(), Some(Message::Keepalive));
        conversation.send(&Message::Keepalive);
        conversation
    };
    let mut teller = establish(&first, AddPathMode::Send);
    let mut listener = establish(&second, AddPathMode::Receive);
    let path = |path_id| Nlri { path_id, prefix: prefix("10.0.0.7") };
    assert_eq!(listener.expect_update().announced, [path(1)], "ours");
    listener.expect_empty_table();
    let mut told = Vec::new();
    for (path_id, med) in [(70, 1), (80, 2)] {
        let Message::Update(mut update) = announcement("10.0.0.7") else { unreachable!() };
        update.announced = vec![path(path_id)];
        update.attributes.push(PathAttribute::MultiExitDisc(med));
        teller.send(&Message::Update(update));
        let update = listener.expect_update();
        assert!(update.attributes.contains(&PathAttribute::MultiExitDisc(med)), "{update:?}");
        told.extend(update.announced);
    }
    assert_eq!(told, [path(2), path(3)]);
    teller.send(&Message::Update(Update { withdrawn: vec![path(70)], ..Update::default() }));
    assert_eq!(listener.expect_update().withdrawn, [path(2)]);
    speaker.advertise(set([]));
    assert_eq!(listener.expect_update().withdrawn, [path(1)]);
    wait_for(&speaker, |status| status.withdrawing().is_empty());
}

#[test]
fn without_a_client_nothing_is_kept_and_the_first_one_resets_all_sessions() {
    let (first, second) = (FakePeer::listening(), FakePeer::listening());
    let speaker = Speaker::spawn("vipherald", 1).unwrap();
    speaker.advertise(set([]));
    speaker.configure(desired([("first", neighbour(first.address())), ("second", neighbour(second.address()))]), None);
    let (mut teller, mut listener) = (first.establish(OUR_AS), second.establish(OUR_AS));
    teller.send(&announcement("10.0.0.7"));
    // A counter wakes nobody.
    let deadline = Instant::now() + PATIENCE;
    let counted = || peer(&speaker.status(), "first").counters.prefixes.values().map(|prefixes| prefixes.announced).sum::<u64>();
    while counted() == 0 {
        assert!(Instant::now() < deadline, "in vain: {:#?}", speaker.status());
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(peer(&speaker.status(), "first").held, BTreeMap::new());
    listener.expect_empty_table();
    assert!(listener.is_silent_for(Duration::from_millis(100)));

    speaker.configure(desired([("first", client(&first)), ("second", neighbour(second.address()))]), None);
    let cease = Some(Message::Notification(Notification::cease(Cease::OtherConfigurationChange)));
    assert_eq!(listener.next(), cease);
}

#[test]
fn withdrawal_is_not_done_while_a_client_that_does_not_read_may_not_know() {
    let (deaf, busy) = (FakePeer::listening(), FakePeer::listening());
    deaf.shrink_receive_buffer();
    let speaker = Speaker::spawn("vipherald", 1).unwrap();
    speaker.advertise(many(100_000));
    speaker.configure(desired([("busy", client(&busy)), ("deaf", client(&deaf))]), None);
    let mut deaf = deaf.establish(OUR_AS);
    let mut busy = busy.establish(OUR_AS);
    while busy.expect_update().is_end_of_rib().is_none() {}
    wait_for(&speaker, |status| is_up(status, "deaf"));

    let mut fewer = (*many(100_000)).clone();
    fewer.routes.remove(&prefix("10.0.0.0"));
    speaker.advertise(Arc::new(fewer));
    let watched = Instant::now();
    let mut told = 0;
    while watched.elapsed() < Duration::from_millis(300) {
        // The same destination comes and goes elsewhere meanwhile.
        busy.send(&announcement("10.0.0.0"));
        busy.send(&announcement(&format!("10.9.0.{}", told % 200)));
        told += 1;
        assert_eq!(speaker.status().withdrawing(), BTreeSet::from([prefix("10.0.0.0")]));
        std::thread::sleep(Duration::from_millis(1));
    }
    let reader = std::thread::spawn(move || {
        while !deaf.expect_update().attributes.contains(&PathAttribute::NextHop(NEXT_HOP)) {}
        deaf
    });
    wait_for(&speaker, |status| status.withdrawing().is_empty());
    drop(reader.join().unwrap());
}
