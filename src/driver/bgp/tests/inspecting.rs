// SPDX-License-Identifier: Apache-2.0
//! What an operator sees of a neighbour, and the reset that keeps the session, with a scripted neighbour.

use bgp::rib::Progress;
use bgp::wire::{AsPath, AsPathSegment, NextHop, Origin, RouteRefresh, Update};

use super::fake_peer::Conversation;
use super::*;
use crate::driver::bgp::{Direction, Notified, PeerRoutes, Question, RoutesOf};

fn soft(speaker: &Speaker, name: &str, direction: Direction) -> Result<String, String> {
    operate(speaker, name, Operation::SoftReset { direction })
}

fn routes(speaker: &Speaker, name: &str, of: RoutesOf, only: Option<Prefix>) -> PeerRoutes {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(speaker.operator().routes(name, Question { of, only })).unwrap()
}

/// A session in which the peer has these capabilities besides those of every fake peer.
fn establish(fake: &FakePeer, more: Vec<Capability>) -> Conversation {
    let mut conversation = fake.accept();
    let theirs = conversation.expect_open();
    let mut ours = open(OUR_AS);
    ours.capabilities.extend(more);
    conversation.establish_as(&ours, &theirs);
    conversation
}

fn announcement<'a>(addresses: impl IntoIterator<Item = &'a str>) -> Message {
    let attributes = vec![
        PathAttribute::Origin(Origin::Igp),
        PathAttribute::AsPath(AsPath(Vec::new())),
        PathAttribute::NextHop(Ipv4Addr::new(192, 0, 2, 77)),
        PathAttribute::LocalPref(100),
    ];
    Message::Update(Update { attributes, announced: addresses.into_iter().map(|one| prefix(one).into()).collect(), ..Update::default() })
}

#[test]
fn rfc2918_a_soft_reset_tells_everything_again_and_asks_for_everything() {
    let fake = FakePeer::listening();
    let speaker = Speaker::spawn("vipherald", 1).unwrap();
    speaker.advertise(set(["10.0.0.7"]));
    speaker.configure(desired([("tor", neighbour(fake.address()))]), None);
    let mut conversation = fake.establish(OUR_AS);
    assert_eq!(conversation.expect_update().announced, [prefix("10.0.0.7").into()]);
    conversation.expect_empty_table();
    let since = peer(&wait_for(&speaker, |status| is_up(status, "tor")), "tor").established_since;

    assert_eq!(soft(&speaker, "tor", Direction::Out).unwrap(), "is told all of ipv4-unicast and ipv6-unicast again");
    assert_eq!(conversation.expect_update().announced, [prefix("10.0.0.7").into()]);
    let asked = "is asked for all of ipv4-unicast and ipv6-unicast (ROUTE-REFRESH, RFC 2918)";
    assert_eq!(soft(&speaker, "tor", Direction::In).unwrap(), asked);
    let expect_requests = |conversation: &mut Conversation| {
        for family in Family::ALL {
            assert_eq!(conversation.next(), Some(Message::RouteRefresh(RouteRefresh::request(family))));
        }
    };
    expect_requests(&mut conversation);
    assert_eq!(soft(&speaker, "tor", Direction::Both).unwrap(), format!("is told all of ipv4-unicast and ipv6-unicast again; {asked}"));
    // What is told again waits for its turn, and the request does not.
    expect_requests(&mut conversation);
    assert_eq!(conversation.expect_update().announced, [prefix("10.0.0.7").into()]);
    let status = speaker.status();
    assert_eq!((peer(&status, "tor").established_since, peer(&status, "tor").counters.established), (since, 1));
    assert_eq!(soft(&speaker, "rot", Direction::In).unwrap_err(), "there is no peer 'rot'; there is tor");
    assert_eq!(soft(&speaker, "tro", Direction::In).unwrap_err(), "there is no peer 'tro'; did you mean 'tor'?");
}

#[test]
fn rfc7313_section_4_a_refresh_initiated_locally_is_marked() {
    let fake = FakePeer::listening();
    let speaker = Speaker::spawn("vipherald", 1).unwrap();
    speaker.advertise(set(["10.0.0.7"]));
    let v4 = DesiredPeer { families: BTreeSet::from([Family::Ipv4Unicast]), ..neighbour(fake.address()) };
    speaker.configure(desired([("tor", v4)]), None);
    let mut conversation = establish(&fake, vec![Capability::EnhancedRouteRefresh]);
    conversation.expect_update();
    assert_eq!(conversation.expect_update().is_end_of_rib(), Some(Family::Ipv4Unicast));
    let told = soft(&speaker, "tor", Direction::Out).unwrap();
    assert_eq!(told, "is told all of ipv4-unicast again, between BoRR and EoRR (RFC 7313)");
    assert_eq!(conversation.next(), Some(Message::RouteRefresh(RouteRefresh::beginning(Family::Ipv4Unicast))));
    assert_eq!(conversation.expect_update().announced, [prefix("10.0.0.7").into()]);
    assert_eq!(conversation.next(), Some(Message::RouteRefresh(RouteRefresh::end(Family::Ipv4Unicast))));
}

#[test]
fn a_soft_reset_that_cannot_be_says_what_is_missing() {
    let fake = FakePeer::closed();
    let speaker = Speaker::spawn("vipherald", 1).unwrap();
    speaker.advertise(set([]));
    speaker.configure(desired([("tor", neighbour(fake.address()))]), None);
    wait_for(&speaker, |status| last_error(status, "tor") == "connection refused" && peer(status, "tor").state == State::Active);
    let refused = soft(&speaker, "tor", Direction::Both).unwrap_err();
    assert!(refused.starts_with("it has no session that could be reset softly: it is in "), "{refused}");
    assert!(refused.ends_with(" (connection refused)"), "{refused}");

    fake.listen();
    let mut conversation = fake.accept();
    let theirs = conversation.expect_open();
    let mut ours = open(OUR_AS);
    ours.capabilities.retain(|capability| *capability != Capability::RouteRefresh);
    conversation.establish_as(&ours, &theirs);
    conversation.expect_empty_table();
    wait_for(&speaker, |status| is_up(status, "tor"));
    let refused = soft(&speaker, "tor", Direction::In).unwrap_err();
    assert!(refused.starts_with("it cannot be asked for its routes: its OPEN has no Route Refresh capability (RFC 2918)"), "{refused}");
    let half = soft(&speaker, "tor", Direction::Both).unwrap_err();
    assert!(half.starts_with("it is told all of ipv4-unicast and ipv6-unicast again; but it cannot be asked"), "{half}");
    assert!(conversation.is_silent_for(Duration::from_millis(100)), "there was nothing to be told, and it must not be asked");
    operate(&speaker, "tor", Operation::Shutdown { message: None }).unwrap();
    assert!(soft(&speaker, "tor", Direction::Out).unwrap_err().contains("there is no session to reset"));
}

#[test]
fn routes_are_shown_as_they_were_sent() {
    let fake = FakePeer::listening();
    let speaker = Speaker::spawn("vipherald", 1).unwrap();
    speaker.advertise(set(["10.0.0.7", "10.0.0.8", "2001:db8:7::7"]));
    let mut tor = neighbour(fake.address());
    tor.export = DesiredExport { med: Some(7), communities: BTreeSet::from([0xFDE9_0064]), ..tor.export };
    speaker.configure(desired([("tor", tor)]), None);
    assert_eq!(routes(&speaker, "tor", RoutesOf::Advertised, None), PeerRoutes::Advertised(None, Vec::new()), "no session");
    let mut conversation = fake.establish(OUR_AS);
    let update = conversation.expect_update();
    conversation.expect_empty_table();
    let PeerRoutes::Advertised(Some(advertised), withheld) = routes(&speaker, "tor", RoutesOf::Advertised, None) else {
        panic!("no session")
    };
    assert_eq!(withheld, [(prefix("2001:db8:7::7"), Withheld::NoNextHop(Family::Ipv6Unicast))]);
    assert_eq!(advertised.iter().map(|route| route.nlri).collect::<Vec<_>>(), update.announced);
    for route in &advertised {
        let outgoing = route.outgoing.as_deref().unwrap();
        assert_eq!((route.progress, outgoing.next_hop), (Progress::Told, NextHop::V4(Ipv4Addr::new(192, 0, 2, 1))));
        let sent: Vec<_> = update.attributes.iter().filter(|attribute| !matches!(attribute, PathAttribute::NextHop(_))).cloned().collect();
        assert_eq!(outgoing.attributes, sent);
    }
    let one = routes(&speaker, "tor", RoutesOf::Advertised, Some(prefix("10.0.0.8")));
    assert!(matches!(one, PeerRoutes::Advertised(Some(routes), withheld) if routes.len() == 1 && withheld.is_empty()));
    let status = speaker.status();
    assert_eq!(peer(&status, "tor").next_hops, BTreeMap::from([(Family::Ipv4Unicast, NextHop::V4(Ipv4Addr::new(192, 0, 2, 1)))]));
}

#[test]
fn received_routes_are_kept_to_be_looked_at_where_asked_for_and_no_more_than_that() {
    let (keeping, plain) = (FakePeer::listening(), FakePeer::listening());
    let speaker = Speaker::spawn("vipherald", 1).unwrap();
    speaker.advertise(set([]));
    let two = DesiredPeer { keep_received: 2, ..neighbour(keeping.address()) };
    speaker.configure(desired([("keeping", two), ("plain", neighbour(plain.address()))]), None);
    let (mut teller, mut counted) = (keeping.establish(OUR_AS), plain.establish(OUR_AS));
    teller.expect_empty_table();
    counted.expect_empty_table();
    teller.send(&announcement(["10.0.0.7", "10.0.0.8", "10.0.0.9"]));
    counted.send(&announcement(["10.0.0.7"]));
    let held = || match routes(&speaker, "keeping", RoutesOf::Received, None) {
        PeerRoutes::Received { routes: Some(routes), announced, omitted } => {
            (routes.iter().map(|(nlri, _)| nlri.prefix).collect::<Vec<_>>(), announced, omitted)
        }
        other => panic!("{other:?}"),
    };
    poll("two of three are kept", || held() == (vec![prefix("10.0.0.7"), prefix("10.0.0.8")], 3, 1));
    assert_eq!(peer(&speaker.status(), "keeping").held.get(&Family::Ipv4Unicast), Some(&2));
    let nothing = PeerRoutes::Received { routes: None, announced: 1, omitted: 0 };
    poll("the other's is counted", || routes(&speaker, "plain", RoutesOf::Received, None) == nothing);
    assert!(counted.is_silent_for(Duration::from_millis(100)), "it is not passed on");

    teller.send(&Message::Update(Update { withdrawn: vec![prefix("10.0.0.7").into()], ..Update::default() }));
    teller.send(&announcement(["10.0.0.9"]));
    poll("there is room again", || held() == (vec![prefix("10.0.0.8"), prefix("10.0.0.9")], 4, 1));
    assert!(status_withdraws_nothing(&speaker));
    drop(teller);
    poll("they go with the session", || held().0.is_empty());
}

#[test]
fn received_routes_that_are_kept_to_be_looked_at_reach_no_other_peer() {
    const OUTSIDE: u32 = 65002;
    let (inside, outside) = (FakePeer::listening(), FakePeer::listening());
    let speaker = Speaker::spawn("vipherald", 1).unwrap();
    speaker.advertise(set([]));
    let keeping = |fake: &FakePeer, asn| DesiredPeer { keep_received: 10, asn: Asn::new(asn).unwrap(), ..neighbour(fake.address()) };
    speaker.configure(desired([("inside", keeping(&inside, OUR_AS)), ("outside", keeping(&outside, OUTSIDE))]), None);
    let (mut internal, mut external) = (inside.establish(OUR_AS), outside.establish(OUTSIDE));
    internal.expect_empty_table();
    external.expect_empty_table();
    internal.send(&announcement(["10.0.0.7"]));
    let attributes = vec![
        PathAttribute::Origin(Origin::Igp),
        PathAttribute::AsPath(AsPath(vec![AsPathSegment::Sequence(vec![Asn::new(OUTSIDE).unwrap()])])),
        PathAttribute::NextHop(Ipv4Addr::new(192, 0, 2, 78)),
    ];
    external.send(&Message::Update(Update { attributes, announced: vec![prefix("10.0.0.8").into()], ..Update::default() }));
    for name in ["inside", "outside"] {
        poll("it is kept", || peer(&speaker.status(), name).held.get(&Family::Ipv4Unicast) == Some(&1));
    }
    // What is told on purpose comes first, and alone.
    speaker.advertise(set(["10.0.0.9"]));
    for conversation in [&mut internal, &mut external] {
        assert_eq!(conversation.expect_update().announced, [prefix("10.0.0.9").into()]);
        assert!(conversation.is_silent_for(Duration::from_millis(100)), "what another peer told is passed on");
    }
}

#[test]
fn the_status_tells_the_time_between_two_attempts_that_is_in_force() {
    let fake = FakePeer::listening();
    let speaker = Speaker::spawn("vipherald", 1).unwrap();
    speaker.advertise(set([]));
    speaker.configure(desired([("tor", neighbour(fake.address()))]), None);
    let mut conversation = fake.establish(OUR_AS);
    conversation.expect_empty_table();
    let changed = DesiredPeer { connect_retry: Duration::from_secs(7), ..neighbour(fake.address()) };
    speaker.configure(desired([("tor", changed)]), None);
    let status = wait_for(&speaker, |status| peer(status, "tor").settings.connect_retry == Duration::from_secs(7));
    assert!(is_up(&status, "tor"), "it is a change that needs no reset");
}

fn status_withdraws_nothing(speaker: &Speaker) -> bool {
    speaker.status().withdrawing().is_empty()
}

#[test]
fn the_status_tells_of_both_ends_both_opens_timers_and_how_it_ended() {
    let fake = FakePeer::listening();
    let speaker = Speaker::spawn("vipherald", 1).unwrap();
    speaker.advertise(set([]));
    speaker.configure(desired([("tor", neighbour(fake.address()))]), None);
    let mut conversation = fake.accept();
    let theirs = conversation.expect_open();
    let ours = Open { hold_time: HoldTime::from_secs(30).unwrap(), ..open(OUR_AS) };
    conversation.establish_as(&ours, &theirs);
    conversation.expect_empty_table();
    let status = wait_for(&speaker, |status| is_up(status, "tor"));
    let tor = peer(&status, "tor");
    assert_eq!(tor.endpoints.map(|(_, remote)| remote), Some(fake.address()));
    assert_eq!(tor.opens.local, theirs);
    assert_eq!(tor.opens.remote.as_ref().map(|(open, _)| open), Some(&ours));
    assert_eq!(tor.hold_time, HoldTime::from_secs(9));
    let until_hold = tor.timers.hold.unwrap().saturating_duration_since(tor.timers.last_received.unwrap());
    assert_eq!(until_hold, Duration::from_secs(9));
    assert!(tor.timers.last_sent.is_some() && tor.timers.keepalive.is_some() && tor.timers.connect_retry.is_none());

    let shutdown = Notification::cease(Cease::AdministrativeShutdown).with_communication("good bye \u{1b}[2J");
    conversation.send(&Message::Notification(shutdown.clone()));
    drop(conversation);
    let status = wait_for(&speaker, |status| peer(status, "tor").last_error.is_some());
    let tor = peer(&status, "tor");
    assert_eq!(tor.last_error.as_ref().unwrap().notification, Some(Notified::Received(shutdown)));
    assert_eq!((tor.failures.received, tor.failures.sent), (1, 0));
    assert!(!tor.last_error.as_ref().unwrap().reason.chars().any(char::is_control));
    assert!(tor.opens.remote.is_none() && tor.endpoints.is_none());
}
