// SPDX-License-Identifier: Apache-2.0
//! Sessions inside a VRF: the router there has the same address as one outside, and neither is taken for the other. Needs a kernel with `CONFIG_NET_VRF`,
//! and BIRD.

#![allow(clippy::unwrap_used, reason = "a failed test says where")]

mod common;

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bgp::peer::State;
use bgp::{Asn, BgpIdentifier, HoldTime, Prefix};
use common::{Namespace, Process, wait_until};
use tempfile::TempDir;
use vipherald::desired::{DesiredBgp, DesiredListen, DesiredPeer, RouteSet, Transport, Ttl};
use vipherald::driver::bgp::{PeerStatus, Speaker};

const PATIENCE: Duration = Duration::from_secs(60);

const AS: u32 = 65001;
/// The router outside the VRF, and the one inside.
const OUTSIDE: (&str, u32) = ("outside", 65010);
const INSIDE: (&str, u32) = ("inside", 65020);

/// Addresses of the node and of both routers.
const FAMILIES: [[&str; 2]; 2] = [["10.99.0.1", "10.99.0.2"], ["2001:db8:99::1", "2001:db8:99::2"]];

/// A host with BIRD at the far end of one of the node's links.
struct Router {
    _bird: Process,
    files: TempDir,
    host: Namespace,
}

impl Router {
    /// Speaks with the node's first address of the family; more of its protocol may be said.
    fn start(host: Namespace, asn: u32, family: [&str; 2], more: &str) -> Self {
        let [node, own] = family;
        let files = TempDir::new().unwrap();
        let path = |name: &str| files.path().join(name);
        let configuration = format!(
            "router id 192.0.2.2;\nlog stderr all;\nprotocol device {{}}\nprotocol direct {{ ipv4; ipv6; }}\nprotocol bgp node {{\n\
             \x20 local {own} as {asn};\n  neighbor {node} as {AS};\n  connect delay time 1;\n  error wait time 1, 1;\n{more}\n\
             \x20 ipv4 {{ import all; export none; }};\n  ipv6 {{ import all; export none; }};\n}}\n"
        );
        std::fs::write(path("bird.conf"), configuration).unwrap();
        let mut command = host.command("bird");
        command.arg("-f").arg("-c").arg(path("bird.conf")).arg("-s").arg(path("bird.ctl")).arg("-P").arg(path("bird.pid"));
        let bird = host.spawn(&mut command);
        Self { _bird: bird, files, host }
    }

    /// All that it knows of a route.
    fn route(&self, prefix: &str) -> String {
        let control = self.files.path().join("bird.ctl");
        let output = self.host.command("birdc").arg("-s").arg(control).args(["show", "route", "for", prefix, "all"]).output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    }
}

/// The node with a link to either router: `eth0`, and `eth1` in the VRF `red`. Its IPv6 addresses differ, those of IPv4 do not.
struct Rig {
    node: Namespace,
    keys: TempDir,
}

impl Rig {
    /// With hosts for the routers.
    fn new() -> (Self, Namespace, Namespace) {
        let node = Namespace::new("vrf-n");
        let hosts = [Namespace::new("vrf-out"), Namespace::new("vrf-in")];
        for (device, host) in [("eth0", &hosts[0]), ("eth1", &hosts[1])] {
            node.veth(device, host, "eth0");
            for [_, theirs] in FAMILIES {
                host.ip(&format!("address add {theirs}/{} dev eth0", length(theirs)));
            }
        }
        let rig = Self { node, keys: TempDir::new().unwrap() };
        rig.make_vrf();
        for [ours, _] in FAMILIES {
            rig.node.ip(&format!("address add {ours}/{} dev eth0", length(ours)));
        }
        let [outside, inside] = hosts;
        (rig, outside, inside)
    }

    /// Its addresses come with it: those of IPv6 go when an interface changes its VRF.
    fn make_vrf(&self) {
        self.node.ip("link add red type vrf table 100");
        self.node.ip("link set red up");
        self.node.ip("link set eth1 master red");
        for [ours, _] in FAMILIES {
            self.node.ip(&format!("address replace {ours}/{} dev eth1", length(ours)));
        }
    }

    /// Each router has a key of its own.
    fn key(&self, name: &str) -> Transport {
        let file = self.keys.path().join(name);
        std::fs::write(&file, name).unwrap();
        Transport { password_file: Some(file), ..Transport::default() }
    }

    fn peer(&self, (name, asn): (&str, u32), address: &str, passive: bool) -> DesiredPeer {
        let interface = (name == INSIDE.0).then(|| "red".to_owned());
        DesiredPeer {
            transport: Transport { interface, passive, ttl: Ttl::Security { hops: 1 }, ..self.key(name) },
            hold_time: HoldTime::from_secs(9).unwrap(),
            connect_retry: Duration::from_secs(1),
            ..DesiredPeer::new(address.parse().unwrap(), Asn::new(asn).unwrap())
        }
    }

    fn start(&self, desired: DesiredBgp) -> Speaker {
        let speaker = self.node.run(|| Speaker::spawn("vipherald", 7)).unwrap();
        let vips = ["10.1.0.7", "2001:db8:7::7"].map(|vip| Prefix::host(vip.parse().unwrap()));
        speaker.advertise(Arc::new(vips.into_iter().collect::<RouteSet>()));
        speaker.configure(Arc::new(desired), None);
        speaker
    }
}

fn length(address: &str) -> u8 {
    if address.contains(':') { 64 } else { 24 }
}

/// What BIRD is told of a key, as the peer that dials or the one that waits.
fn protected(name: &str, passive: bool) -> String {
    format!("  password \"{name}\";\n  ttl security on;\n  direct;\n  {}", if passive { "passive;" } else { "" })
}

fn speaker_of<'a>(peers: impl IntoIterator<Item = (&'a str, DesiredPeer)>, listen: Option<DesiredListen>) -> DesiredBgp {
    DesiredBgp {
        router_id: BgpIdentifier::new(0xC000_0201),
        listen,
        peers: peers.into_iter().map(|(name, peer)| (name.to_owned(), peer)).collect(),
        ..DesiredBgp::new(Asn::new(AS).unwrap())
    }
}

fn listen(address: &str, template: DesiredPeer, prefixes: BTreeSet<Prefix>) -> DesiredListen {
    DesiredListen { address: address.parse().unwrap(), port: 179, prefixes, limit: 8, template }
}

fn status(speaker: &Speaker, name: &str) -> Option<PeerStatus> {
    speaker.status().peers.get(name).map(|peer| (**peer).clone())
}

fn wait_until_up(speaker: &Speaker, name: &str) {
    let is_up = || status(speaker, name).is_some_and(|peer| peer.state == State::Established);
    wait_until(&format!("the session {name} is up"), PATIENCE, is_up);
}

fn wait_for_route(router: &Router, prefix: &str, next_hop: &str) {
    wait_until(&format!("{prefix} via {next_hop}"), PATIENCE, || {
        let told = router.route(prefix);
        let via = format!("BGP.next_hop: {next_hop}");
        told.lines().any(|line| line.trim() == via || line.trim().starts_with(&format!("{via} ")))
    });
}

#[test]
fn routers_of_the_same_address_are_dialled_each_in_its_domain() {
    for family in FAMILIES {
        let (rig, outside, inside) = Rig::new();
        // The next hop of the other family is of the same link.
        rig.node.ip("address del 2001:db8:99::1/64 dev eth0");
        rig.node.ip("address add 2001:db8:98::1/64 dev eth0");
        if family[0].contains(':') {
            rig.node.ip("address add 2001:db8:99::1/64 dev eth0");
        }
        let outside = Router::start(outside, OUTSIDE.1, family, &protected(OUTSIDE.0, true));
        let inside = Router::start(inside, INSIDE.1, family, &protected(INSIDE.0, true));
        let speaker = rig.start(speaker_of([OUTSIDE, INSIDE].map(|router| (router.0, rig.peer(router, family[1], false))), None));
        for (name, router) in [(OUTSIDE.0, &outside), (INSIDE.0, &inside)] {
            wait_until_up(&speaker, name);
            wait_for_route(router, "10.1.0.7/32", "10.99.0.1");
        }
        wait_for_route(&inside, "2001:db8:7::7/128", "2001:db8:99::1");
    }
}

/// Either router dials us, and is the only one to.
fn both_dial_us(shared: bool) {
    for family in FAMILIES {
        let (rig, outside, inside) = Rig::new();
        rig.node.sysctl("net/ipv4/tcp_l3mdev_accept", if shared { "1" } else { "0" });
        let mut peers = [OUTSIDE, INSIDE].map(|router| (router.0, rig.peer(router, family[1], true)));
        let mut key_of_inside = INSIDE.0;
        if shared {
            // One socket has one key for an address.
            key_of_inside = OUTSIDE.0;
            peers[1].1.transport.password_file = peers[0].1.transport.password_file.clone();
        }
        let any = if family[0].contains(':') { "::" } else { "0.0.0.0" };
        let template = peers[0].1.clone();
        let speaker = rig.start(speaker_of(peers, Some(listen(any, template, BTreeSet::new()))));
        let outside = Router::start(outside, OUTSIDE.1, family, &protected(OUTSIDE.0, false));
        let inside = Router::start(inside, INSIDE.1, family, &protected(key_of_inside, false));
        for (name, router) in [(OUTSIDE.0, &outside), (INSIDE.0, &inside)] {
            wait_until_up(&speaker, name);
            wait_for_route(router, "10.1.0.7/32", "10.99.0.1");
        }
        let errors = speaker.status().listen_error.clone();
        assert_eq!(errors, None);
        for name in [OUTSIDE.0, INSIDE.0] {
            let peer = status(&speaker, name).unwrap();
            assert_eq!((peer.counters.established, peer.last_error), (1, None), "{name}");
        }
    }
}

#[test]
fn routers_of_the_same_address_dial_us_each_in_its_domain() {
    both_dial_us(false);
}

#[test]
fn where_all_sockets_take_connections_from_vrfs_one_is_enough() {
    both_dial_us(true);
}

#[test]
fn who_has_the_address_of_a_neighbour_inside_and_dials_from_outside_is_not_that_neighbour() {
    let family = FAMILIES[0];
    let (rig, outside, inside) = Rig::new();
    // Our address in the VRF is on no other interface.
    rig.node.ip("address del 10.99.0.1/24 dev eth0");
    rig.node.ip("address add 10.99.0.9/24 dev eth0");
    let peer = rig.peer(INSIDE, family[1], true);
    let template = DesiredPeer { transport: Transport { passive: true, ..Transport::default() }, ..peer.clone() };
    let only = |address| speaker_of([(INSIDE.0, peer.clone())], Some(listen(address, template.clone(), BTreeSet::new())));
    let speaker = rig.start(only("10.99.0.1"));
    let inside = Router::start(inside, INSIDE.1, family, &protected(INSIDE.0, false));
    wait_until_up(&speaker, INSIDE.0);
    wait_for_route(&inside, "10.1.0.7/32", "10.99.0.1");
    let refused = || outside.run(|| std::net::TcpStream::connect("10.99.0.9:179")).unwrap_err().kind();
    assert_eq!(refused(), std::io::ErrorKind::ConnectionRefused, "nobody outside is listened for");

    // As a dynamic neighbour it may come.
    let prefixes = BTreeSet::from([Prefix::new("10.99.0.0".parse().unwrap(), 24).unwrap()]);
    let template = DesiredPeer { asn: Asn::new(OUTSIDE.1).unwrap(), ..template };
    speaker.configure(Arc::new(speaker_of([(INSIDE.0, peer)], Some(listen("0.0.0.0", template, prefixes)))), None);
    let outside = Router::start(outside, OUTSIDE.1, ["10.99.0.9", family[1]], "  direct;");
    wait_until_up(&speaker, "dynamic:10.99.0.2");
    wait_for_route(&outside, "10.1.0.7/32", "10.99.0.9");
    wait_until_up(&speaker, INSIDE.0);
    let address = |name: &str| status(&speaker, name).unwrap().local_address;
    assert_eq!(address(INSIDE.0), Some(IpAddr::from([10, 99, 0, 1])));
    assert_eq!(address("dynamic:10.99.0.2"), Some(IpAddr::from([10, 99, 0, 9])));
}

#[test]
fn a_vrf_may_come_later_and_be_made_anew() {
    let family = FAMILIES[0];
    let (rig, _outside, inside) = Rig::new();
    rig.node.ip("link del red");
    rig.node.ip("address del 10.99.0.1/24 dev eth0");
    // By the name of the interface, which is in the VRF.
    let mut peer = rig.peer(INSIDE, family[1], true);
    peer.transport.interface = Some("eth1".to_owned());
    let template = peer.clone();
    let speaker = rig.start(speaker_of([(INSIDE.0, peer)], Some(listen("10.99.0.1", template, BTreeSet::new()))));
    let router = Router::start(inside, INSIDE.1, family, &protected(INSIDE.0, false));
    for count in 1..=2 {
        rig.make_vrf();
        wait_until(&format!("session {count} is up"), PATIENCE, || {
            status(&speaker, INSIDE.0).is_some_and(|peer| peer.state == State::Established && peer.counters.established == count)
        });
        wait_for_route(&router, "10.1.0.7/32", "10.99.0.1");
        rig.node.ip("link del red");
        rig.node.ip("address flush dev eth1");
        wait_until("it is down", PATIENCE, || status(&speaker, INSIDE.0).is_some_and(|peer| peer.state != State::Established));
    }
}
