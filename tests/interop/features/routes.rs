// SPDX-License-Identifier: Apache-2.0
//! Routes of both families, both ways, over sessions of both families.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use bgp::{Family, Prefix};
use vipherald::desired::{DesiredBgp, DesiredPeer};

use crate::common::wait_until;
use crate::peers::{Router, Software};
use crate::rig::{
    AS, OURS, OURS_V4, OURS_V6, PATIENCE, Rig, SESSIONS, both_sessions, neighbour, peer, peer_of, prefix, set, v4, wait_for, wait_until_up,
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
    speaker.configure(both_sessions(AS, AS));
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

/// A route that leaves the set leaves the peer, the others stay, and the session with them.
pub(crate) fn withdraw(software: Software) {
    let rig = Rig::dual_stack("withdraw");
    let router = Router::start(software, &rig.theirs, peer_of(AS, AS));
    let speaker = rig.speaker();
    speaker.advertise(set(FOUR));
    speaker.configure(both_sessions(AS, AS));
    let before = wait_until_up(&speaker);
    wait_until("all is learned", PATIENCE, || OURS.iter().all(|ours| router.count(*ours) == 4));
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
    speaker.configure(reflector());
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
    speaker.configure(both_sessions(AS, AS));
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
