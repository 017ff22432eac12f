// SPDX-License-Identifier: Apache-2.0
//! Another policy of a peer, alone and with the routes that change with it.

use bgp::rib::Route;
use bgp::wire::community;

use super::*;

/// These routes with NO_EXPORT and a LOCAL_PREF, or without.
fn routes(prefixes: &RouteSet, tagged: bool) -> Arc<RouteSet> {
    let mut route = Route::originated();
    if tagged {
        route.communities.insert(community::NO_EXPORT);
        route.local_preference = Some(50);
    }
    let route = Arc::new(route);
    Arc::new(RouteSet { routes: prefixes.prefixes().map(|prefix| (prefix, Arc::clone(&route))).collect(), ..RouteSet::default() })
}

/// The same of a peer.
fn policy(tagged: bool) -> DesiredExport {
    let plain = DesiredExport { next_hop_ipv4: Some(Ipv4Addr::new(192, 0, 2, 1)), ..DesiredExport::default() };
    if tagged { DesiredExport { communities: BTreeSet::from([community::NO_EXPORT]), local_preference: 50, ..plain } } else { plain }
}

#[test]
fn what_moves_between_the_routes_and_the_policy_of_a_peer_is_told_to_nobody() {
    for count in [1, 5_000] {
        let (fake, other) = (FakePeer::listening(), FakePeer::listening());
        let speaker = Speaker::spawn("vipherald", 1).unwrap();
        let prefixes = many(count);
        let configuration = |tagged| {
            let peer = |fake: &FakePeer| DesiredPeer { export: policy(tagged), ..neighbour(fake.address()) };
            desired([("tor", peer(&fake)), ("other", peer(&other))])
        };
        speaker.advertise(routes(&prefixes, true));
        speaker.configure(configuration(false), None);
        let mut conversations = [fake.establish(OUR_AS), other.establish(OUR_AS)];
        for conversation in &mut conversations {
            while conversation.expect_update().is_end_of_rib() != Some(Family::Ipv6Unicast) {}
        }
        let before = wait_for(&speaker, |status| is_up(status, "tor") && is_up(status, "other"));
        for round in 0..20 {
            let of_peer = round % 2 == 0;
            let (next, set) = (configuration(of_peer), routes(&prefixes, !of_peer));
            speaker.configure(Arc::clone(&next), Some(set));
            wait_for(&speaker, |status| {
                status.configured.as_ref() == Some(&next) && status.peers.values().all(|peer| status.is_current(peer))
            });
        }
        // What comes next is the next that they hear.
        let one = set(["192.0.2.77"]);
        let mut more = RouteSet::clone(&routes(&prefixes, true));
        more.routes.extend(one.routes.clone());
        speaker.advertise(Arc::new(more));
        for conversation in &mut conversations {
            let update = conversation.expect_update();
            assert_eq!(
                (update.announced.as_slice(), update.withdrawn.as_slice()),
                ([prefix("192.0.2.77").into()].as_slice(), [].as_slice())
            );
        }
        let status = speaker.status();
        assert!(["tor", "other"].iter().all(|name| peer(&status, name).established_since == peer(&before, name).established_since));
    }
}

#[test]
fn a_set_that_waits_for_its_configuration_does_not_bring_back_what_is_withdrawn_meanwhile() {
    let fake = FakePeer::listening();
    let speaker = Speaker::spawn("vipherald", 1).unwrap();
    speaker.advertise(set(["10.0.0.7", "10.0.0.8"]));
    let configuration = |tagged| desired([("tor", DesiredPeer { export: policy(tagged), ..neighbour(fake.address()) })]);
    speaker.configure(configuration(false), None);
    let mut conversation = fake.establish(OUR_AS);
    conversation.expect_update();
    conversation.expect_empty_table();
    for round in 0..50 {
        speaker.configure(configuration(round % 2 == 0), Some(set(["10.0.0.7", "10.0.0.8", "10.0.0.9"])));
        speaker.advertise(set(["10.0.0.7", "10.0.0.9"]));
        let status = wait_for(&speaker, |status| status.peers.values().all(|peer| status.is_current(peer)));
        assert_eq!(status.told(peer(&status, "tor")).collect::<BTreeSet<_>>(), prefixes(["10.0.0.7", "10.0.0.9"]));
        speaker.advertise(set(["10.0.0.7", "10.0.0.8"]));
        wait_for(&speaker, |status| status.peers.values().all(|peer| status.is_current(peer)));
    }
}

#[test]
fn another_policy_is_told_in_the_session_that_there_is() {
    let (fake, other) = (FakePeer::listening(), FakePeer::listening());
    let speaker = Speaker::spawn("vipherald", 1).unwrap();
    speaker.advertise(set(["10.0.0.7"]));
    let configuration = |tor: DesiredPeer| desired([("other", neighbour(other.address())), ("tor", tor)]);
    speaker.configure(configuration(neighbour(fake.address())), None);
    let (mut conversation, mut untouched) = (fake.establish(OUR_AS), other.establish(OUR_AS));
    for conversation in [&mut conversation, &mut untouched] {
        assert_eq!(conversation.expect_update().announced, [prefix("10.0.0.7").into()]);
        conversation.expect_empty_table();
    }
    let before = wait_for(&speaker, |status| is_up(status, "tor") && is_up(status, "other"));

    let export = DesiredExport {
        local_preference: 50,
        med: Some(7),
        communities: BTreeSet::from([65_001 << 16 | 100]),
        large_communities: BTreeSet::from([[65_001, 1, 2]]),
        ..neighbour(fake.address()).export
    };
    let next = configuration(DesiredPeer { export: export.clone(), ..neighbour(fake.address()) });
    speaker.configure(Arc::clone(&next), None);
    let update = conversation.expect_update();
    assert_eq!((update.announced.as_slice(), update.withdrawn.as_slice()), ([prefix("10.0.0.7").into()].as_slice(), [].as_slice()));
    for attribute in [
        PathAttribute::LocalPref(50),
        PathAttribute::MultiExitDisc(7),
        PathAttribute::Communities(Transitive { value: vec![65_001 << 16 | 100], partial: false }),
        PathAttribute::LargeCommunities(Transitive { value: vec![[65_001, 1, 2]], partial: false }),
    ] {
        assert!(update.attributes.contains(&attribute), "{attribute:?} is not in {update:?}");
    }
    let status = wait_for(&speaker, |status| status.configured.as_ref() == Some(&next));
    assert_eq!(peer(&status, "tor").established_since, peer(&before, "tor").established_since);

    // Without a next hop the route cannot be announced any more.
    let export = DesiredExport { next_hop_ipv4: None, ..export };
    speaker.configure(configuration(DesiredPeer { export, ..neighbour(fake.address()) }), None);
    assert_eq!(conversation.expect_update().withdrawn, [prefix("10.0.0.7").into()]);
    let status = wait_for(&speaker, |status| !peer(status, "tor").withheld.is_empty());
    assert_eq!(peer(&status, "tor").established_since, peer(&before, "tor").established_since);
    assert!(untouched.is_silent_for(Duration::from_millis(100)));

    // A session of later begins with it.
    speaker.configure(next, None);
    conversation.expect_update();
    drop(conversation);
    let update = fake.establish(OUR_AS).expect_update();
    assert!(update.attributes.contains(&PathAttribute::MultiExitDisc(7)), "{update:?}");
}
