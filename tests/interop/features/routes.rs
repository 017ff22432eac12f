// SPDX-License-Identifier: Apache-2.0
//! Routes of both families, both ways, over sessions of both families.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use bgp::rib::Route;
use bgp::{Family, Prefix};
use vipherald::desired::{DesiredBgp, DesiredPeer, DesiredRestart, RouteSet};
use vipherald::driver::bgp::{Direction, Operation, Speaker, SpeakerStatus};

use crate::common::wait_until;
use crate::peers::{Learned, Router, Software};
use crate::rig::{
    AS, OURS, OURS_V4, OURS_V6, PATIENCE, Rig, SESSIONS, both_sessions, neighbour, operate, peer, peer_of, prefix, reason, set, v4,
    wait_for, wait_until_up,
};

const FOUR: [&str; 4] = ["10.0.0.7", "10.0.0.8", "2001:db8:7::7", "2001:db8:7::8"];

/// IPv4 routes with our IPv4 address as the next hop, over either session.
pub(crate) fn ipv4(software: Software) {
    family(software, ["10.0.0.7", "10.0.0.8"], OURS_V4.into());
}

/// IPv6 routes with our IPv6 address as the next hop, over either session.
pub(crate) fn ipv6(software: Software) {
    family(software, ["2001:db8:7::7", "2001:db8:7::8"], OURS_V6.into());
}

fn family(software: Software, addresses: [&str; 2], next_hop: IpAddr) {
    let rig = Rig::dual_stack("routes");
    let router = Router::start(software, &rig.theirs, peer_of(AS, AS));
    let speaker = rig.speaker();
    speaker.advertise(set([addresses[0]]));
    speaker.configure(both_sessions(AS, AS), None);
    wait_until_up(&speaker);
    let wait_until_learned = |address: &str| {
        for ours in OURS {
            wait_until(&format!("{address} is learned from {ours}"), PATIENCE, || !router.paths(ours, prefix(address)).is_empty());
            let learned = router.learned(ours, prefix(address)).unwrap();
            assert_eq!((learned.next_hop, learned.as_path, learned.is_igp), (next_hop, vec![], true), "{address} from {ours}");
        }
    };
    wait_until_learned(addresses[0]);
    // One that comes later is told alone.
    speaker.advertise(set(addresses));
    wait_until_learned(addresses[1]);
    assert!(OURS.iter().all(|ours| router.count(*ours) == 2));
}

/// The peer, us, and our status once it has learned all of [`FOUR`] over both sessions.
fn four_learned(software: Software, rig: &Rig) -> (Router, Speaker, Arc<SpeakerStatus>) {
    let router = Router::start(software, &rig.theirs, peer_of(AS, AS));
    let speaker = rig.speaker();
    speaker.advertise(set(FOUR));
    speaker.configure(both_sessions(AS, AS), None);
    let before = wait_until_up(&speaker);
    wait_until("all is learned", PATIENCE, || OURS.iter().all(|ours| router.count(*ours) == 4));
    (router, speaker, before)
}

/// A route that leaves the set leaves the peer, the others stay, and the session with them.
pub(crate) fn withdraw(software: Software) {
    let rig = Rig::dual_stack("withdraw");
    let (router, speaker, before) = four_learned(software, &rig);
    assert_eq!(router.deletions(), [""; 0]);

    let left = ["10.0.0.7", "2001:db8:7::7"];
    speaker.advertise(set(left));
    wait_for("the withdrawals are acknowledged", &speaker, |status| status.withdrawing().is_empty());
    wait_until("exactly two routes are left", PATIENCE, || OURS.iter().all(|ours| router.count(*ours) == 2));
    for address in left {
        assert!(OURS.iter().all(|ours| router.learned(*ours, prefix(address)).is_some()), "{address}");
    }
    wait_until("it tells of the two that went", PATIENCE, || {
        let deletions = router.deletions();
        ["10.0.0.8", "2001:db8:7::8"].iter().all(|gone| deletions.iter().any(|line| line.contains(gone)))
    });
    let kept = router.deletions().into_iter().filter(|line| left.iter().any(|address| line.contains(&prefix(address).to_string())));
    assert_eq!(kept.collect::<Vec<_>>(), [""; 0]);
    for (name, _) in SESSIONS {
        assert_eq!(peer(&speaker.status(), name).established_since, peer(&before, name).established_since);
    }
}

/// We keep what an internal peer announces where we are somebody's route reflector, and forget what it withdraws.
pub(crate) fn from_it(software: Software) {
    let rig = Rig::dual_stack("its-routes");
    let announced = |addresses: &[&str]| addresses.iter().map(|address| prefix(address)).collect::<BTreeSet<Prefix>>();
    let mut router = Router::start(software, &rig.theirs, peer_of(AS, AS));
    router.announce(announced(&["10.1.0.1", "10.1.0.2", "2001:db8:8::1"]));
    let speaker = rig.speaker();
    speaker.advertise(set([]));
    speaker.configure(reflector(), None);
    let wait_until_held = |what: &str, ipv4: u32, ipv6: u32| {
        let expected = BTreeMap::from([(Family::Ipv4Unicast, ipv4), (Family::Ipv6Unicast, ipv6)]);
        wait_for(what, &speaker, |status| {
            SESSIONS.iter().all(|(name, _)| status.peers.get(*name).is_some_and(|peer| peer.held == expected))
        })
    };
    let before = wait_until_held("its first routes are held", 2, 1);
    router.announce(announced(&["10.1.0.1", "2001:db8:8::1", "2001:db8:8::2", "2001:db8:8::3"]));
    wait_until_held("its new routes are held, one is forgotten", 1, 3);
    router.announce(announced(&["2001:db8:8::3"]));
    let after = wait_until_held("the last one is held", 0, 1);
    for (name, _) in SESSIONS {
        assert_eq!(peer(&after, name).established_since, peer(&before, name).established_since);
    }
}

/// A reflector whose only client is not there.
fn reflector() -> Arc<DesiredBgp> {
    let mut desired = DesiredBgp::clone(&both_sessions(AS, AS));
    desired.peers.insert("absent".to_owned(), DesiredPeer { reflector_client: true, ..neighbour(v4(77).into(), AS) });
    Arc::new(desired)
}

/// RFC 2918: it asks for everything again, and gets it in the session that there is.
pub(crate) fn refresh_by_it(software: Software) {
    let rig = Rig::dual_stack("refresh");
    let router = Router::start(software, &rig.theirs, peer_of(AS, AS));
    let speaker = rig.speaker();
    speaker.advertise(set(FOUR));
    speaker.configure(both_sessions(AS, AS), None);
    wait_until_up(&speaker);
    wait_until("all is learned", PATIENCE, || OURS.iter().all(|ours| router.count(*ours) == 4));
    let before = speaker.status();
    for ours in OURS {
        router.ask_for_refresh(ours);
    }
    for (name, _) in SESSIONS {
        let old = peer(&before, name);
        let status = wait_for("the refresh is answered", &speaker, |status| {
            let counters = &peer(status, name).counters;
            counters.received.route_refresh >= 2 && counters.sent.update >= old.counters.sent.update + 2
        });
        assert_eq!(peer(&status, name).established_since, old.established_since);
    }
    wait_until("the routes are still there", PATIENCE, || OURS.iter().all(|ours| router.count(*ours) == 4));
}

/// It is asked for everything again, and tells it in the session that there is.
pub(crate) fn refresh_by_us(software: Software) {
    let rig = Rig::dual_stack("ask");
    let mut router = Router::start(software, &rig.theirs, peer_of(AS, AS));
    router.announce(["10.1.0.1", "2001:db8:8::1"].map(prefix).into());
    // FRR 8.4 does not answer before it has heard an End-of-RIB, which it counts only with graceful restart.
    let restart = DesiredRestart { restart_time: 60, notification: false, long_lived_stale_time: 0 };
    let restart = (software == Software::Frr).then_some(restart);
    let mut desired = DesiredBgp::clone(&reflector());
    desired.peers.values_mut().for_each(|peer| peer.graceful_restart = restart);
    let speaker = rig.speaker();
    speaker.advertise(set(FOUR));
    speaker.configure(Arc::new(desired), None);
    let expected = BTreeMap::from(Family::ALL.map(|family| (family, 1)));
    let before = wait_for("its routes are held", &speaker, |status| {
        SESSIONS.iter().all(|(name, _)| status.peers.get(*name).is_some_and(|peer| peer.held == expected))
    });
    wait_until("it has heard all of us", PATIENCE, || OURS.iter().all(|ours| router.end_of_ribs(*ours) == Family::ALL.len()));
    for (name, _) in SESSIONS {
        operate(&speaker, name, Operation::SoftReset { direction: Direction::In });
    }
    for (name, _) in SESSIONS {
        let announced = |status: &_| peer(status, name).counters.prefixes.values().map(|counts| counts.announced).sum::<u64>();
        let status = wait_for("all is told again", &speaker, |status| announced(status) >= announced(&before) + 2);
        assert_eq!(peer(&status, name).established_since, peer(&before, name).established_since, "{}", reason(&status, name));
        assert_eq!(peer(&status, name).held, expected);
    }
}

/// It is told everything again, in the session that there is.
pub(crate) fn told_again(software: Software) {
    let rig = Rig::dual_stack("again");
    let (router, speaker, before) = four_learned(software, &rig);
    let heard = OURS.map(|ours| router.updates(ours));
    for (name, _) in SESSIONS {
        operate(&speaker, name, Operation::SoftReset { direction: Direction::Out });
    }
    for ((name, _), (ours, heard)) in SESSIONS.into_iter().zip(OURS.into_iter().zip(heard)) {
        wait_until("it has heard of both families again", PATIENCE, || router.updates(ours) >= heard + 2);
        assert_eq!(router.count(ours), 4);
        assert_eq!(peer(&speaker.status(), name).established_since, peer(&before, name).established_since);
    }
    assert_eq!(router.deletions(), [""; 0]);
}

/// Each VIP has what its own policy says, and goes to the peers that it says; a change for one changes no other.
pub(crate) fn policy(software: Software) {
    const COMMUNITY: u32 = AS << 16 | 7;
    let rig = Rig::dual_stack("policy");
    let router = Router::start(software, &rig.theirs, peer_of(AS, AS));
    let special = |med| {
        let route = Route {
            med: Some(med),
            local_preference: Some(300),
            communities: BTreeSet::from([COMMUNITY]),
            large_communities: BTreeSet::from([[AS, 1, 7]]),
            ..Route::originated()
        };
        let only_over_ipv4 = Route { peers: Some(Arc::new(BTreeSet::from([SESSIONS[0].0.to_owned()]))), ..Route::originated() };
        let routes = [("10.0.0.7", route), ("10.0.0.8", Route::originated()), ("10.0.0.9", only_over_ipv4)];
        let routes = routes.into_iter().map(|(vip, route)| (prefix(vip), Arc::new(route))).collect();
        Arc::new(RouteSet { routes, ..RouteSet::default() })
    };
    let speaker = rig.speaker();
    speaker.advertise(special(7));
    speaker.configure(both_sessions(AS, AS), None);
    wait_until_up(&speaker);
    let learned = |ours, vip| router.learned(ours, prefix(vip));
    for med in [7, 8] {
        speaker.advertise(special(med));
        for ours in OURS {
            wait_until("its own policy is seen", PATIENCE, || learned(ours, "10.0.0.7").is_some_and(|path| path.med == Some(med)));
            let wanted = Learned {
                med: Some(med),
                local_preference: Some(300),
                communities: BTreeSet::from([COMMUNITY]),
                large_communities: BTreeSet::from([[AS, 1, 7]]),
                ..Learned::by(OURS_V4.into())
            };
            assert_eq!(learned(ours, "10.0.0.7"), Some(wanted));
            wait_until("the other VIP is learned", PATIENCE, || learned(ours, "10.0.0.8").is_some());
            let of_the_session = Learned { med: Some(50), local_preference: Some(200), ..Learned::by(OURS_V4.into()) };
            assert_eq!(learned(ours, "10.0.0.8"), Some(of_the_session));
        }
    }
    wait_until("the last VIP is learned", PATIENCE, || learned(OURS[0], "10.0.0.9").is_some());
    assert_eq!((router.count(OURS[0]), router.count(OURS[1])), (3, 2));
}
