// SPDX-License-Identifier: Apache-2.0
//! Our restart, as the peer meets it (RFC 4724): it never deletes a route.

use std::collections::BTreeSet;

use bgp::Family;

use crate::common::wait_until;
use crate::node::Node;
use crate::peers::{Router, Setup, Software};
use crate::rig::{AS, OURS, PATIENCE, Rig, SESSIONS, peer_of, prefix};

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
        let mut node = Node::start(&rig.ours, session, &vips);
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
