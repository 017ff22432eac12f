// SPDX-License-Identifier: Apache-2.0
//! Sessions with peers whose address nobody configured: routers on a link that has only link-local addresses, and the default gateway.

#![allow(clippy::unwrap_used, reason = "a failed test says where")]

mod common;
#[path = "common/daemons.rs"]
mod daemons;

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

use bgp::peer::State;
use bgp::{Asn, BgpIdentifier, Prefix};
use common::{Namespace, wait_until};
use daemons::{Router, Software};
use vipherald::desired::{DesiredBgp, DesiredListen, DesiredPeer, PeerAddress, RouteSet, Transport};
use vipherald::driver::bgp::{PeerStatus, Speaker, SpeakerStatus};

/// How long anything may take, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

const FRR: &str = "
router bgp 65000
 bgp router-id 192.0.2.1
 no bgp ebgp-requires-policy
 no bgp network import-check
 neighbor eth0 interface remote-as external
 neighbor eth0 timers 3 9
 neighbor eth0 timers connect 1
 address-family ipv4 unicast
  network 198.51.100.0/24
  neighbor eth0 activate
 exit-address-family
 address-family ipv6 unicast
  network 2001:db8:51::/48
  neighbor eth0 activate
 exit-address-family
";

/// Our node and a router, on one link on which nobody has an address but link-local ones.
struct Rig {
    ours: Namespace,
    theirs: Namespace,
}

impl Rig {
    fn new(tag: &str) -> Self {
        let rig = Self { ours: Namespace::new(&format!("{tag}-n")), theirs: Namespace::new(&format!("{tag}-r")) };
        rig.ours.veth("eth0", &rig.theirs, "eth0");
        rig
    }

    fn speaker(&self) -> Speaker {
        self.ours.run(|| Speaker::spawn(7)).unwrap()
    }
}

/// The link-local address of `eth0`.
fn link_local(namespace: &Namespace) -> Ipv6Addr {
    let mut found = None;
    wait_until("eth0 has a link-local address", PATIENCE, || {
        let lines = namespace.ip("-6 -o address show dev eth0 scope link");
        found = lines.split_whitespace().find_map(|word| word.split('/').next()?.parse().ok());
        found.is_some()
    });
    found.unwrap()
}

fn neighbour(address: PeerAddress) -> DesiredPeer {
    let base = DesiredPeer::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), Asn::new(65000).unwrap());
    DesiredPeer { address, connect_retry: Duration::from_secs(1), ..base }
}

fn unnumbered() -> DesiredPeer {
    neighbour(PeerAddress::Unnumbered("eth0".to_owned()))
}

fn speaker_of(peer: DesiredPeer) -> DesiredBgp {
    DesiredBgp {
        router_id: BgpIdentifier::try_from(Ipv4Addr::new(192, 0, 2, 2)).ok(),
        peers: [("leaf".to_owned(), peer)].into(),
        ..DesiredBgp::new(Asn::new(65001).unwrap())
    }
}

/// The peer dials us, and we never dial it.
fn dialled_by_the_peer() -> DesiredBgp {
    let peer = DesiredPeer { transport: Transport { passive: true, ..Transport::default() }, ..unnumbered() };
    let listen =
        DesiredListen { address: Ipv6Addr::UNSPECIFIED.into(), port: 179, prefixes: BTreeSet::new(), limit: 1, template: peer.clone() };
    DesiredBgp { listen: Some(listen), ..speaker_of(peer) }
}

fn set<'a>(addresses: impl IntoIterator<Item = &'a str>) -> Arc<RouteSet> {
    Arc::new(addresses.into_iter().map(|address| Prefix::host(address.parse().unwrap())).collect())
}

fn leaf(status: &SpeakerStatus) -> Option<&PeerStatus> {
    status.peers.get("leaf").map(AsRef::as_ref)
}

fn wait_for(what: &str, speaker: &Speaker, wanted: impl Fn(&PeerStatus) -> bool) -> PeerStatus {
    wait_until(what, PATIENCE, || leaf(&speaker.status()).is_some_and(&wanted));
    leaf(&speaker.status()).unwrap().clone()
}

fn is_up_with(address: Ipv6Addr) -> impl Fn(&PeerStatus) -> bool {
    move |peer| peer.state == State::Established && peer.address == Some(IpAddr::V6(address))
}

/// The router's kernel sends what is for this VIP to us over the link, or does not.
fn wait_for_route(router: &Namespace, vip: &str, next_hop: Option<Ipv6Addr>) {
    let family = if vip.contains(':') { "-6" } else { "-4" };
    let mut found = String::new();
    let expected = next_hop.map(|address| format!("{} {address} dev eth0", if family == "-4" { "via inet6" } else { "via" }));
    let what = format!("the route to {vip} is {expected:?}");
    wait_until(&what, PATIENCE, || {
        found = router.ip(&format!("{family} route show {vip}"));
        expected.as_ref().map_or_else(|| found.is_empty(), |expected| found.contains(expected.as_str()))
    });
}

/// Announces and withdraws, once the session is up.
fn routes_come_and_go(rig: &Rig, speaker: &Speaker) {
    let next_hop = link_local(&rig.ours);
    for vip in ["10.0.0.7", "10.0.0.8", "2001:db8:7::7", "2001:db8:7::8"] {
        wait_for_route(&rig.theirs, vip, Some(next_hop));
    }
    speaker.advertise(set(["10.0.0.7", "2001:db8:7::7"]));
    for vip in ["10.0.0.8", "2001:db8:7::8"] {
        wait_for_route(&rig.theirs, vip, None);
    }
    for vip in ["10.0.0.7", "2001:db8:7::7"] {
        wait_for_route(&rig.theirs, vip, Some(next_hop));
    }
    let peer = wait_for("the peer's routes are read", speaker, |peer| peer.counters.received.update >= 2);
    assert_eq!(peer.counters.treated_as_withdraw, 0, "{peer:?}");
    assert!(peer.withheld.is_empty(), "{peer:?}");
}

fn start(rig: &Rig, desired: DesiredBgp) -> Speaker {
    let speaker = rig.speaker();
    speaker.advertise(set(["10.0.0.7", "10.0.0.8", "2001:db8:7::7", "2001:db8:7::8"]));
    speaker.configure(Arc::new(desired));
    speaker
}

#[test]
fn frr_that_is_dialled() {
    let rig = Rig::new("dial");
    let _router = Router::start_with(Software::Frr, &rig.theirs, &FRR.replace("eth0 timers 3 9", "eth0 passive"));
    let speaker = start(&rig, speaker_of(unnumbered()));
    wait_for("the session is up", &speaker, is_up_with(link_local(&rig.theirs)));
    routes_come_and_go(&rig, &speaker);
}

#[test]
fn frr_that_dials() {
    let rig = Rig::new("dialled");
    let speaker = start(&rig, dialled_by_the_peer());
    let _router = Router::start_with(Software::Frr, &rig.theirs, FRR);
    wait_for("the session is up", &speaker, is_up_with(link_local(&rig.theirs)));
    routes_come_and_go(&rig, &speaker);
}

#[test]
fn frr_and_we_dial_each_other() {
    let rig = Rig::new("both");
    let both = DesiredBgp { listen: dialled_by_the_peer().listen, ..speaker_of(unnumbered()) };
    let _router = Router::start_with(Software::Frr, &rig.theirs, FRR);
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
    let password = format!("{FRR} neighbor eth0 password secret\n");
    let _router = Router::start_with(Software::Frr, &rig.theirs, &password);
    let address = link_local(&rig.theirs);
    let signed = |mut desired: DesiredBgp| {
        desired.peers.values_mut().for_each(|peer| peer.transport.password_file = Some(file.clone()));
        desired
    };
    let speaker = start(&rig, signed(speaker_of(unnumbered())));
    wait_for("the session is up", &speaker, is_up_with(address));
    speaker.configure(Arc::new(signed(dialled_by_the_peer())));
    let dialled = |peer: &PeerStatus| is_up_with(address)(peer) && peer.counters.established == 1;
    wait_until("the old session is over", PATIENCE, || leaf(&speaker.status()).is_some_and(|peer| !is_up_with(address)(peer)));
    wait_for("the peer has dialled us", &speaker, dialled);
    routes_come_and_go(&rig, &speaker);
}

/// The router gets another card: its link-local address is another one.
#[test]
fn frr_with_a_new_link_local_address_is_found_again() {
    let rig = Rig::new("moved");
    let _router = Router::start_with(Software::Frr, &rig.theirs, FRR);
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
    let (ours, theirs) = (Namespace::new("later-n"), Namespace::new("later-r"));
    let rig = Rig { ours, theirs };
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
    let _router = Router::start_with(Software::Frr, &rig.theirs, FRR);
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
    let _other = Router::start_with(Software::Frr, &other, &FRR.replace("router bgp 65000", "router bgp 65009"));
    let rig = Rig { ours, theirs: other };
    let speaker = start(&rig, speaker_of(unnumbered()));
    let refused = |peer: &PeerStatus| peer.last_error.as_ref().is_some_and(|error| error.reason.contains("the peer is in AS 65009"));
    wait_for("the router of another AS is refused", &speaker, refused);
    // FRR has one neighbour on a link, and would take the other router for it.
    let _right = Router::start_with(Software::Bird, &right, &bird(BIRD_IS_DIALLED));
    let peer = wait_for("the session is up", &speaker, is_up_with(link_local(&right)));
    let warning = peer.warning.unwrap();
    assert!(warning.starts_with("2 routers are heard on eth0: fe80::"), "{warning}");
    wait_for_route(&right, "10.0.0.7", Some(link_local(&rig.ours)));
}

const BIRD_IS_DIALLED: &str = "neighbor range fe80::/10 as 65001; interface \"eth0\"; dynamic name \"node\";";

/// BIRD with its own advertisements; the BGP protocol is what the test makes of it.
fn bird(protocol: &str) -> String {
    format!(
        "log stderr all;
router id 192.0.2.1;
protocol device {{ scan time 1; }}
protocol kernel {{ scan time 1; ipv4 {{ export all; import none; }}; }}
protocol kernel {{ scan time 1; ipv6 {{ export all; import none; }}; }}
protocol static {{ ipv4; route 198.51.100.0/24 blackhole; }}
protocol static {{ ipv6; route 2001:db8:51::/48 blackhole; }}
protocol radv {{ interface \"eth0\" {{ min ra interval 3; max ra interval 4; default lifetime 0; }}; }}
protocol bgp {{
  local as 65000;
  {protocol}
  connect delay time 1;
  connect retry time 1;
  ipv4 {{ import all; export where source = RTS_STATIC; extended next hop on; }};
  ipv6 {{ import all; export where source = RTS_STATIC; }};
}}
"
    )
}

#[test]
fn bird_that_is_dialled() {
    let rig = Rig::new("bird");
    let _router = Router::start_with(Software::Bird, &rig.theirs, &bird(BIRD_IS_DIALLED));
    let speaker = start(&rig, speaker_of(unnumbered()));
    wait_for("the session is up", &speaker, is_up_with(link_local(&rig.theirs)));
    routes_come_and_go(&rig, &speaker);
}

#[test]
fn bird_that_dials() {
    let rig = Rig::new("birds");
    let speaker = start(&rig, dialled_by_the_peer());
    let protocol = format!("neighbor {}%'eth0' as 65001;", link_local(&rig.ours));
    let _router = Router::start_with(Software::Bird, &rig.theirs, &bird(&protocol));
    wait_for("the session is up", &speaker, is_up_with(link_local(&rig.theirs)));
    routes_come_and_go(&rig, &speaker);
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
