// SPDX-License-Identifier: Apache-2.0
//! Our restart, as the peer meets it: it never deletes a route (RFC 4724). And our end: it hears of it before, or keeps routes as the last resort.

use std::collections::BTreeSet;
use std::net::IpAddr;

use bgp::wire::community::GRACEFUL_SHUTDOWN;
use bgp::{Family, Prefix};
use vipherald::desired::{DesiredPeer, DesiredRestart};

use crate::common::wait_until;
use crate::node::Node;
use crate::peers::{Router, Setup, Software};
use crate::rig::{
    AS, OURS, OURS_V4, PATIENCE, Rig, SESSIONS, THEIR_AS, THEIRS_V4, is_up, neighbour, peer_of, prefix, set, speaker_of, wait_for,
};

/// SIGTERM with `onTermination: keep`, and a start.
pub(crate) fn keep(software: Software) {
    unnoticed(software, |node| node.terminate());
}

/// `kill -9`, and a start.
pub(crate) fn kill(software: Software) {
    unnoticed(software, |node| node.kill());
}

/// Ends the daemon like this and starts it again, twice, over either session alone: with both, the path of one would hide that the other's is deleted. That
/// the peer would tell of a deletion is shown in the end.
fn unnoticed(software: Software, end: impl Fn(&mut Node<'_>)) {
    let vips = ["10.0.0.7", "2001:db8:7::7"].map(prefix).into();
    for (session, ours) in SESSIONS.into_iter().zip(OURS) {
        let rig = Rig::dual_stack("restart");
        let router = Router::start(software, &rig.theirs, Setup { neighbours: vec![ours], ..peer_of(AS, AS) });
        let mut node = Node::start(&rig.ours, session, &vips, "onTermination: keep");
        let all_are_there = || router.count(ours) == vips.len();
        let wait_for_end_of_ribs = |sessions: usize| {
            let markers = sessions * Family::ALL.len();
            wait_until("it has heard all of us", PATIENCE, || router.end_of_ribs(ours) == markers);
        };
        wait_for_end_of_ribs(1);
        wait_until("the routes are learned", PATIENCE, all_are_there);
        assert_eq!(router.deletions(), [""; 0]);
        for restarts in 1..=2 {
            end(&mut node);
            assert!(all_are_there(), "it has lost routes while we are away");
            node.run();
            wait_for_end_of_ribs(1 + restarts);
            assert!(all_are_there());
            assert_eq!(router.deletions(), [""; 0]);
        }

        node.publish(&BTreeSet::from([prefix("10.0.0.7")]));
        wait_until("it tells of the route that is not wanted any more", PATIENCE, || {
            router.deletions().iter().any(|line| line.contains("2001:db8:7::7"))
        });
    }
}

/// RFC 8326 §4.2: with `drain.gracefulShutdown` each route is one of last resort for a while before it is withdrawn.
pub(crate) fn graceful_shutdown(software: Software) {
    let vips = ["10.0.0.7", "2001:db8:7::7"].map(prefix);
    let rig = Rig::dual_stack("last-resort");
    let router = Router::start(software, &rig.theirs, Setup { neighbours: vec![OURS_V4.into()], ..peer_of(AS, AS) });
    let mut node = Node::start(&rig.ours, SESSIONS[0], &vips.into(), "onTermination: drain, gracefulShutdown: 5s");
    let path = |vip: Prefix| router.learned(OURS_V4.into(), vip);
    for vip in vips {
        wait_until("the route is learned", PATIENCE, || path(vip).is_some());
        assert_eq!(path(vip).unwrap().communities, BTreeSet::new());
    }
    node.signal_end();
    for vip in vips {
        wait_until("the route is one of last resort", PATIENCE, || {
            let path = path(vip).unwrap_or_else(|| panic!("{vip} was withdrawn without a word"));
            path.communities.contains(&GRACEFUL_SHUTDOWN) && path.local_preference == Some(0)
        });
    }
    wait_until("the routes are withdrawn", PATIENCE, || router.count(OURS_V4.into()) == 0);
    node.wait_for_end();
}

/// RFC 9494: after the restart time it goes on using our route as the last resort.
pub(crate) fn long_lived(software: Software) {
    let ours = IpAddr::from(OURS_V4);
    let rig = Rig::dual_stack("long-lived");
    let router = Router::start(software, &rig.theirs, Setup { neighbours: vec![ours], long_lived: true, ..peer_of(THEIR_AS, AS) });
    let restart = DesiredRestart { restart_time: 1, notification: true, long_lived_stale_time: 600 };
    let peer = DesiredPeer { graceful_restart: Some(restart), ..neighbour(THEIRS_V4.into(), THEIR_AS) };
    let speaker = rig.speaker();
    speaker.advertise(set(["10.0.0.7"]));
    speaker.configure(speaker_of(AS, [("v4", peer)]), None);
    wait_for("the session is up", &speaker, |status| is_up(status, "v4"));
    wait_until("the route is learned", PATIENCE, || router.learned(ours, prefix("10.0.0.7")).is_some());
    assert!(!router.is_stale(ours, prefix("10.0.0.7")));
    drop(speaker);
    wait_until("the route is a stale one", PATIENCE, || router.is_stale(ours, prefix("10.0.0.7")));
}
