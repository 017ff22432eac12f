// SPDX-License-Identifier: Apache-2.0
//! Peers that come and go with the configuration, while the sessions of the others go on.

use std::collections::BTreeSet;

use crate::common::wait_until;
use crate::rig::{PATIENCE, Rig, Settings, vips, wait_until_equal};
use crate::tor::Tor;

#[test]
fn a_peer_comes_and_goes_and_the_other_does_not_notice() {
    let both = vips(["10.1.0.1", "2001:db8:7::1"]);
    let mut rig = Rig::serving("peers", Settings::default(), &both);
    let second = Tor::new("peers", &rig.node, 1);
    let session = rig.session();
    for round in 1..=2 {
        rig.daemon.settings.peers.push(("second".to_owned(), second.address()));
        rig.daemon.write_config();
        wait_until_equal("routes of the second", &both, || second.learned());
        let vip = rig.daemon.vip("10.1.0.1".parse().unwrap());
        assert_eq!(vip["peers"], serde_json::json!(["second", "tor"]), "{vip}");

        rig.daemon.settings.peers.pop();
        rig.daemon.write_config();
        wait_until_equal("routes of the second", &BTreeSet::new(), || second.learned());
        wait_until("the second is told why", PATIENCE, || second.notifications().len() == round);
        assert!(
            second.notifications().iter().all(|line| line.contains("node: Received: Peer de-configured")),
            "{:?}",
            second.notifications()
        );
        wait_until("it is no longer shown", PATIENCE, || rig.daemon.peer("second").is_null());
        assert_eq!(second.sessions(), round);
        assert_eq!(rig.session(), session);
    }
    // The last peer goes, and comes back.
    let peers = std::mem::take(&mut rig.daemon.settings.peers);
    rig.daemon.write_config();
    wait_until_equal("routes of BIRD", &BTreeSet::new(), || rig.tor.learned());
    wait_until("it is said that there is no peer", PATIENCE, || rig.daemon.vip("10.1.0.1".parse().unwrap())["reason"] == "NoPeers");
    assert_eq!(rig.tor.sessions(), 1);
    rig.daemon.settings.peers = peers;
    rig.daemon.write_config();
    rig.wait_until_exact(&both);
}
