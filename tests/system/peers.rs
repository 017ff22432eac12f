// SPDX-License-Identifier: Apache-2.0
//! Peers that come and go with the configuration, while the sessions of the others go on.

use std::collections::BTreeSet;
use std::net::TcpStream;

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

/// As the address of a route reflector that a virtual router has: who dials it is not refused in the moment in which it has come.
#[test]
fn an_address_that_the_node_has_not_yet_is_listened_to() {
    const LATER: &str = "10.99.0.77";
    let both = vips(["10.1.0.1", "2001:db8:7::1"]);
    let rig = Rig::serving("later", Settings { routing: "  listen: {address: 10.99.0.77}\n", ..Settings::default() }, &both);
    let told = || rig.daemon.show("vips").1;
    let absent = "bgp.listen: nobody reaches 10.99.0.77:179, on which we listen: the node does not have the address";
    wait_until("it is told", PATIENCE, || told().contains(absent));
    rig.tor.namespace.ip(&format!("route add {LATER}/32 via 10.99.0.1"));
    let dial = || rig.tor.namespace.run(|| TcpStream::connect((LATER, 179)));
    for _ in 0..3 {
        rig.node.ip(&format!("address add {LATER}/32 dev lo"));
        dial().unwrap();
        wait_until("it is told no more", PATIENCE, || !told().contains(absent));
        rig.node.ip(&format!("address del {LATER}/32 dev lo"));
        wait_until("it is told again", PATIENCE, || told().contains(absent));
    }
    rig.wait_until_exact(&both);
}
