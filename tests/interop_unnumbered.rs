// SPDX-License-Identifier: Apache-2.0
//! Sessions with peers whose address nobody configured, beyond what each router can: links and addresses that change, several routers on one link, keys,
//! and the default gateway. What works with which peer is the matrix in `interop/`.

#![allow(clippy::unwrap_used, reason = "a failed test says where")]

mod common;
#[path = "interop/peers/mod.rs"]
mod peers;
#[path = "interop/rig.rs"]
mod rig;
#[path = "interop/features/unnumbered.rs"]
mod unnumbered;

use std::net::IpAddr;
use std::sync::Arc;

use bgp::peer::State;
use common::{Namespace, wait_until};
use peers::{Router, Software};
use rig::{PATIENCE, Rig};
use unnumbered::{
    dialled_by_the_peer, is_up_with, leaf, link_local, neighbour, routes_come_and_go, speaker_of, start, unnumbered, wait_for,
    wait_for_route,
};
use vipherald::desired::{DesiredBgp, PeerAddress};
use vipherald::driver::bgp::PeerStatus;

#[test]
fn frr_and_we_dial_each_other() {
    let rig = Rig::new("both");
    let both = DesiredBgp { listen: dialled_by_the_peer().listen, ..speaker_of(unnumbered()) };
    let _router = Router::start_with(Software::Frr, &rig.theirs, &Software::Frr.unnumbered(None));
    let speaker = start(&rig, both);
    wait_for("the session is up", &speaker, is_up_with(link_local(&rig.theirs)));
    routes_come_and_go(&rig, &speaker);
}

/// The key is that of an address that is learned, on either way.
#[test]
fn frr_with_a_password() {
    let rig = Rig::new("password");
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("key");
    std::fs::write(&file, "secret\n").unwrap();
    let password = format!("{} neighbor eth0 password secret\n", Software::Frr.unnumbered(None));
    let _router = Router::start_with(Software::Frr, &rig.theirs, &password);
    let address = link_local(&rig.theirs);
    let signed = |mut desired: DesiredBgp| {
        desired.peers.values_mut().for_each(|peer| peer.transport.password_file = Some(file.clone()));
        desired
    };
    let speaker = start(&rig, signed(speaker_of(unnumbered())));
    wait_for("the session is up", &speaker, is_up_with(address));
    speaker.configure(Arc::new(signed(dialled_by_the_peer())), None);
    let dialled = |peer: &PeerStatus| is_up_with(address)(peer) && peer.counters.established == 1;
    wait_until("the old session is over", PATIENCE, || leaf(&speaker.status()).is_some_and(|peer| !is_up_with(address)(peer)));
    wait_for("the peer has dialled us", &speaker, dialled);
    routes_come_and_go(&rig, &speaker);
}

/// The router gets another card: its link-local address is another one.
#[test]
fn frr_with_a_new_link_local_address_is_found_again() {
    let rig = Rig::new("moved");
    let _router = Router::start_with(Software::Frr, &rig.theirs, &Software::Frr.unnumbered(None));
    let speaker = start(&rig, speaker_of(unnumbered()));
    let old = link_local(&rig.theirs);
    wait_for("the session is up", &speaker, is_up_with(old));
    rig.theirs.ip("link set eth0 down");
    rig.theirs.ip("link set eth0 address 02:00:00:00:00:77");
    rig.theirs.ip("link set eth0 up");
    let new = link_local(&rig.theirs);
    assert_ne!(old, new);
    wait_for("the session is up with the new address", &speaker, is_up_with(new));
    routes_come_and_go(&rig, &speaker);
}

#[test]
fn an_interface_may_come_later_and_come_back() {
    let rig = Rig::unlinked("later");
    let speaker = start(&rig, speaker_of(unnumbered()));
    let warning = |text: &'static str| move |peer: &PeerStatus| peer.warning.as_deref() == Some(text);
    let peer = wait_for("the interface is missed", &speaker, warning("there is no interface eth0"));
    assert_eq!((peer.state, peer.address, peer.last_error), (State::Active, None, None));
    rig.ours.ip(&format!("link add eth0 type veth peer name eth0 netns {}", rig.theirs.name()));
    wait_for("it is down", &speaker, warning("eth0 is down"));
    rig.ours.ip("link set eth0 up");
    wait_for("the other end is down", &speaker, warning("eth0 has no carrier"));
    rig.theirs.ip("link set eth0 up");
    wait_for("nobody is there", &speaker, warning("no router has been heard on eth0"));
    let _router = Router::start_with(Software::Frr, &rig.theirs, &Software::Frr.unnumbered(None));
    wait_for("the session is up", &speaker, is_up_with(link_local(&rig.theirs)));
    routes_come_and_go(&rig, &speaker);

    rig.ours.ip("link set eth0 down");
    wait_for("it is down again", &speaker, |peer| peer.state != State::Established && warning("eth0 is down")(peer));
    rig.ours.ip("link set eth0 up");
    let again = |peer: &PeerStatus| peer.counters.established > 1 && peer.state == State::Established && peer.warning.is_none();
    wait_for("the session is up again", &speaker, again);
    wait_for_route(&rig.theirs, "10.0.0.7", Some(link_local(&rig.ours)));
}

#[test]
fn of_two_routers_on_the_link_the_one_of_the_configured_as_is_kept() {
    let names = ["two-s", "two-n", "two-a", "two-b"];
    let [switch, ours, other, right] = names.map(Namespace::new);
    switch.ip("link add br0 type bridge");
    switch.ip("link set br0 up");
    for (number, host) in [&ours, &other, &right].into_iter().enumerate() {
        switch.veth(&format!("port{number}"), host, "eth0");
        switch.ip(&format!("link set port{number} master br0"));
    }
    let _other = Router::start_with(Software::Frr, &other, &Software::Frr.unnumbered(None).replace("router bgp 65000", "router bgp 65009"));
    let rig = Rig::of(ours, other);
    let speaker = start(&rig, speaker_of(unnumbered()));
    let refused = |peer: &PeerStatus| peer.last_error.as_ref().is_some_and(|error| error.reason.contains("the peer is in AS 65009"));
    wait_for("the router of another AS is refused", &speaker, refused);
    // FRR has one neighbour on a link, and would take the other router for it.
    let _right = Router::start_with(Software::Bird, &right, &Software::Bird.unnumbered(None));
    let peer = wait_for("the session is up", &speaker, is_up_with(link_local(&right)));
    let warning = peer.warning.unwrap();
    assert!(warning.starts_with("2 routers are heard on eth0: fe80::"), "{warning}");
    wait_for_route(&right, "10.0.0.7", Some(link_local(&rig.ours)));
}

#[test]
fn a_session_with_the_default_gateway_follows_it() {
    let rig = Rig::new("gateway");
    rig.ours.ip("address add 10.99.0.1/24 dev eth0");
    for gateway in ["10.99.0.2", "10.99.0.3"] {
        rig.theirs.ip(&format!("address add {gateway}/24 dev eth0"));
    }
    let configuration = "
router bgp 65000
 bgp router-id 192.0.2.1
 no bgp ebgp-requires-policy
 neighbor 10.99.0.1 remote-as 65001
 neighbor 10.99.0.1 passive
";
    let _router = Router::start_with(Software::Frr, &rig.theirs, configuration);
    let speaker = start(&rig, speaker_of(neighbour(PeerAddress::Gateway)));
    let at = |address: [u8; 4]| move |peer: &PeerStatus| peer.state == State::Established && peer.address == Some(IpAddr::from(address));
    wait_for("there is none", &speaker, |peer| peer.warning.as_deref() == Some("the node has no default gateway"));
    rig.ours.ip("route add default via 10.99.0.2");
    wait_for("the session is up", &speaker, at([10, 99, 0, 2]));
    rig.ours.ip("route replace default via 10.99.0.3");
    wait_for("the session has moved", &speaker, at([10, 99, 0, 3]));
    rig.ours.ip("route del default");
    let peer = wait_for("the gateway is gone", &speaker, |peer| peer.warning.is_some());
    assert!(at([10, 99, 0, 3])(&peer), "{peer:?}");
}
