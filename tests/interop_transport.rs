// SPDX-License-Identifier: Apache-2.0
//! What the packets of a session have: keys of neighbours with link-local addresses, the same on two links, and the TTL of connections that are refused.
//! Needs root, and BIRD.

#![allow(clippy::unwrap_used, reason = "a failed test says where")]

mod common;

use std::collections::BTreeSet;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, SocketAddrV6, TcpStream};
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::time::Duration;

use bgp::peer::State;
use bgp::wire::{Capability, KEEPALIVE, Message, Negotiated, Open};
use bgp::{Asn, BgpIdentifier, Family, HoldTime, Prefix};
use common::{Namespace, Process, wait_until};
use nix::net::if_::if_nametoindex;
use socket2::{Domain, Socket, Type};
use tempfile::TempDir;
use vipherald::desired::{DesiredBgp, DesiredListen, DesiredPeer, PeerAddress, RouteSet, Transport, Ttl};
use vipherald::driver::bgp::{Operation, PeerStatus, Speaker};

const PATIENCE: Duration = Duration::from_secs(60);

const AS: u32 = 65001;
/// Both routers have the same address, each on its own link of ours.
const LEFT: (&str, u32) = ("eth0", 65010);
const RIGHT: (&str, u32) = ("eth1", 65020);

const OURS: &str = "fe80::1";
const THEIRS: &str = "fe80::2";

/// The node with a router on each of two links, and the files with keys.
struct Rig {
    node: Namespace,
    routers: [Namespace; 2],
    files: TempDir,
}

impl Rig {
    fn new() -> Self {
        let node = Namespace::new("tr-n");
        let routers = [Namespace::new("tr-l"), Namespace::new("tr-r")];
        for ((device, _), router) in [LEFT, RIGHT].into_iter().zip(&routers) {
            node.veth(device, router, "eth0");
            node.ip(&format!("address add {OURS}/64 dev {device}"));
            router.ip(&format!("address add {THEIRS}/64 dev eth0"));
        }
        node.ip("address add 10.99.0.1/24 dev eth0");
        routers[0].ip("address add 10.99.0.2/24 dev eth0");
        Self { node, routers, files: TempDir::new().unwrap() }
    }

    fn write_key(&self, device: &str, key: &str) {
        std::fs::write(self.files.path().join(device), key).unwrap();
    }

    /// The router on this link, from our address there, with the key of the link.
    fn peer(&self, (device, asn): (&str, u32), passive: bool) -> DesiredPeer {
        DesiredPeer {
            transport: Transport {
                source: Some(OURS.parse().unwrap()),
                interface: Some(device.to_owned()),
                passive,
                password_file: Some(self.files.path().join(device)),
                ..Transport::default()
            },
            ..neighbour(THEIRS, asn)
        }
    }

    fn start(&self, desired: DesiredBgp) -> Speaker {
        let speaker = self.node.run(|| Speaker::spawn("vipherald", 7)).unwrap();
        speaker.advertise(Arc::new([Prefix::host("2001:db8:7::7".parse().unwrap())].into_iter().collect::<RouteSet>()));
        speaker.configure(Arc::new(desired), None);
        speaker
    }

    /// BIRD on the router of this number.
    fn bird(&self, number: usize, asn: u32, neighbour: &str, options: &str) -> Process {
        let path = |name: &str| self.files.path().join(format!("{number}-{name}"));
        let configuration = format!(
            "router id 192.0.2.2;\nlog stderr all;\nprotocol device {{}}\nprotocol bgp node {{\n  debug {{ states, events, routes }};\n  local as {asn};\n\
             \x20 neighbor {neighbour} as {AS};\n  direct;\n  connect delay time 1;\n  error wait time 1, 1;\n  {options}\n\
             \x20 ipv6 {{ import all; export none; }};\n  ipv4 {{ import all; export none; }};\n}}\n"
        );
        std::fs::write(path("bird.conf"), configuration).unwrap();
        let mut command = self.routers[number].command("bird");
        command.arg("-f").arg("-c").arg(path("bird.conf")).arg("-s").arg(path("bird.ctl")).arg("-P").arg(path("bird.pid"));
        self.routers[number].spawn(&mut command)
    }

    /// Dials us from the first router, as a neighbour with TTL security (RFC 5082 §3): what has a lower TTL than 255 is not heard.
    fn dial(&self, ours: IpAddr, key: &[u8]) -> std::io::Result<TcpStream> {
        self.routers[0].run(|| {
            let socket = Socket::new(if ours.is_ipv4() { Domain::IPV4 } else { Domain::IPV6 }, Type::STREAM, None)?;
            let scope = if_nametoindex("eth0")?;
            let at = |address: IpAddr, port| match address {
                IpAddr::V4(_) => SocketAddr::new(address, port),
                IpAddr::V6(address) => SocketAddrV6::new(address, port, 0, scope).into(),
            };
            if ours.is_ipv4() {
                socket.set_ttl_v4(255)?;
                sys::set_least_ttl_v4(socket.as_fd(), 255)?;
            } else {
                socket.bind(&at(THEIRS.parse().unwrap(), 0).into())?;
                socket.set_unicast_hops_v6(255)?;
                sys::set_least_hop_limit_v6(socket.as_fd(), 255)?;
            }
            if !key.is_empty() {
                sys::set_tcp_md5_key(socket.as_fd(), ours, if ours.is_ipv4() { 32 } else { 128 }, key)?;
            }
            socket.connect_timeout(&at(ours, 179).into(), Duration::from_secs(1))?;
            socket.set_read_timeout(Some(PATIENCE))?;
            Ok(socket.into())
        })
    }

    /// As [`dial`](Self::dial) of somebody without a key, as soon as we listen.
    fn dial_at_last(&self, ours: IpAddr) -> TcpStream {
        let mut stream = None;
        wait_until("somebody listens", PATIENCE, || {
            stream = self.dial(ours, b"").ok();
            stream.is_some()
        });
        stream.unwrap()
    }
}

fn neighbour(address: &str, asn: u32) -> DesiredPeer {
    DesiredPeer {
        hold_time: HoldTime::from_secs(9).unwrap(),
        connect_retry: Duration::from_secs(1),
        ..DesiredPeer::new(address.parse().unwrap(), Asn::new(asn).unwrap())
    }
}

fn speaker_of<'a>(peers: impl IntoIterator<Item = (&'a str, DesiredPeer)>, listen: Option<&str>) -> DesiredBgp {
    let template = neighbour("192.0.2.9", AS);
    let listen =
        listen.map(|address| DesiredListen { address: address.parse().unwrap(), port: 179, prefixes: BTreeSet::new(), limit: 1, template });
    DesiredBgp {
        router_id: BgpIdentifier::new(0xC000_0201),
        listen,
        peers: peers.into_iter().map(|(name, peer)| (name.to_owned(), peer)).collect(),
        ..DesiredBgp::new(Asn::new(AS).unwrap())
    }
}

fn status(speaker: &Speaker, name: &str) -> Option<PeerStatus> {
    speaker.status().peers.get(name).map(|peer| (**peer).clone())
}

fn wait_until_up(speaker: &Speaker, name: &str) {
    let is_up = || status(speaker, name).is_some_and(|peer| peer.state == State::Established);
    wait_until(&format!("the session {name} is up"), PATIENCE, is_up);
}

fn wait_for_route(bird: &Process) {
    wait_until("BIRD has the route", PATIENCE, || bird.log().lines().any(|line| line.contains("added [best] 2001:db8:7::7/128")));
}

#[test]
fn rfc2385_routers_with_the_same_link_local_address_are_dialled_each_with_its_key() {
    let rig = Rig::new();
    rig.write_key(LEFT.0, "left");
    rig.write_key(RIGHT.0, "left");
    let speaker = rig.start(speaker_of([LEFT, RIGHT].map(|router| (router.0, rig.peer(router, false))), None));
    let neighbour = format!("{OURS}%'eth0'");
    let left = rig.bird(0, LEFT.1, &neighbour, "passive; password \"left\";");
    let right = rig.bird(1, RIGHT.1, &neighbour, "passive; password \"right\";");
    wait_until_up(&speaker, LEFT.0);
    wait_for_route(&left);
    // The wrong key: the router is silent.
    let silent =
        |peer: PeerStatus| peer.last_error.into_iter().chain(peer.last_attempt_error).any(|error| error.reason.contains("another key"));
    wait_until("it is dialled in vain", PATIENCE, || status(&speaker, RIGHT.0).is_some_and(silent));
    assert_eq!(status(&speaker, RIGHT.0).unwrap().counters.sent.open, 0);
    rig.write_key(RIGHT.0, "right");
    wait_until_up(&speaker, RIGHT.0);
    wait_for_route(&right);
    assert_eq!(status(&speaker, LEFT.0).unwrap().counters.established, 1);
}

#[test]
fn rfc2385_a_router_with_a_link_local_address_needs_the_key_to_dial_us() {
    let rig = Rig::new();
    let ours: IpAddr = OURS.parse().unwrap();
    for device in [LEFT.0, RIGHT.0] {
        rig.write_key(device, "secret");
    }
    let speaker = rig.start(speaker_of([LEFT, RIGHT].map(|router| (router.0, rig.peer(router, true))), Some("::")));
    wait_until("who has the key is heard", PATIENCE, || rig.dial(ours, b"secret").is_ok());
    for wrong in [&b""[..], b"other"] {
        assert_eq!(rig.dial(ours, wrong).unwrap_err().kind(), ErrorKind::TimedOut);
    }
    let neighbour = format!("{OURS}%'eth0'");
    let birds = [(0, LEFT.1), (1, RIGHT.1)].map(|(number, asn)| rig.bird(number, asn, &neighbour, "password \"secret\";"));
    for ((device, _), bird) in [LEFT, RIGHT].into_iter().zip(&birds) {
        wait_until_up(&speaker, device);
        wait_for_route(bird);
    }
}

/// Where the neighbour has not been heard the kernel cannot know from whom it is to demand the key.
#[test]
fn rfc4007_6_dynamic_routers_with_the_same_link_local_address_on_two_links_are_two() {
    let rig = Rig::new();
    let mut desired = speaker_of([], Some("::"));
    let listen = desired.listen.as_mut().unwrap();
    (listen.prefixes, listen.limit) = (BTreeSet::from([Prefix::new("fe80::".parse().unwrap(), 64).unwrap()]), 2);
    listen.template.asn = Asn::new(LEFT.1).unwrap();
    listen.template.transport.passive = true;
    let speaker = rig.start(desired);
    let birds = [0, 1].map(|number| rig.bird(number, LEFT.1, &format!("{OURS}%'eth0'"), ""));
    let names = [LEFT, RIGHT].map(|(device, _)| format!("dynamic:{THEIRS}%{device}"));
    names.iter().for_each(|name| wait_until_up(&speaker, name));
    birds.iter().for_each(wait_for_route);
    assert_eq!(speaker.status().peers.len(), 2);

    // An order is about one of them.
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let operate = |operation| runtime.block_on(speaker.operator().operate(&names[0], operation)).unwrap();
    operate(Operation::Shutdown { message: None });
    speaker.configure(speaker.status().configured.clone().unwrap(), None);
    wait_until("it is over", PATIENCE, || status(&speaker, &names[0]).is_some_and(|peer| peer.shut && peer.state == State::Idle));
    assert_eq!(status(&speaker, &names[1]).unwrap().counters.established, 1);
    wait_until_up(&speaker, &names[1]);
    operate(Operation::Start);
    wait_until_up(&speaker, &names[0]);
}

#[test]
fn rfc2385_who_dials_without_the_key_before_the_neighbour_was_heard_gets_no_session() {
    let rig = Rig::new();
    rig.write_key(LEFT.0, "secret");
    let transport = Transport { passive: true, password_file: Some(rig.files.path().join(LEFT.0)), ..Transport::default() };
    let peer = DesiredPeer { address: PeerAddress::Unnumbered(LEFT.0.to_owned()), transport, ..neighbour(THEIRS, LEFT.1) };
    let speaker = rig.start(speaker_of([("left", peer)], Some("::")));
    wait_until("somebody listens", PATIENCE, || rig.dial(OURS.parse().unwrap(), b"").is_ok());
    let mut stream = rig.dial(OURS.parse().unwrap(), b"").unwrap();
    // All that a session needs, before a key on our socket could keep it out.
    let asn = Asn::new(LEFT.1).unwrap();
    let capabilities = vec![Capability::Multiprotocol(Family::Ipv6Unicast), Capability::FourOctetAs];
    let open = Open { asn, hold_time: HoldTime::ZERO, identifier: BgpIdentifier::new(7).unwrap(), capabilities };
    let mut octets = Message::Open(open).encode(&Negotiated::before_open(asn)).unwrap().to_vec();
    octets.extend_from_slice(&KEEPALIVE);
    // It may be closed already.
    stream.write_all(&octets).ok();
    let ended = stream.read(&mut [0]);
    assert!(ended.as_ref().map_or_else(|error| error.kind() == ErrorKind::ConnectionReset, |count| *count == 0), "{ended:?}");
    let left = status(&speaker, "left").unwrap();
    assert_eq!((left.counters.sent.open, left.counters.established), (0, 0));
}

/// The code and subcode of the NOTIFICATION that comes at last, if one does before the connection is closed.
fn farewell(mut stream: TcpStream) -> Option<(u8, u8)> {
    let mut octets = Vec::new();
    stream.read_to_end(&mut octets).unwrap();
    let mut rest = octets.as_slice();
    let mut notification = None;
    while let [.., _] = rest {
        let length = usize::from(u16::from_be_bytes([rest[16], rest[17]]));
        if rest[18] == 3 {
            notification = Some((rest[19], rest[20]));
        }
        rest = &rest[length..];
    }
    notification
}

#[test]
fn rfc5082_3_what_refuses_a_connection_has_the_highest_ttl_too() {
    for (ours, theirs, listen) in [("10.99.0.1", "10.99.0.2", "0.0.0.0"), (OURS, THEIRS, "::")] {
        let rig = Rig::new();
        let at: IpAddr = ours.parse().unwrap();
        let mut peer = neighbour(theirs, LEFT.1);
        peer.transport =
            Transport { interface: Some(LEFT.0.to_owned()), passive: true, ttl: Ttl::Security { hops: 1 }, ..Transport::default() };
        let another = neighbour(if at.is_ipv4() { "10.99.0.7" } else { "fe80::7" }, LEFT.1);
        let another = DesiredPeer { transport: peer.transport.clone(), ..another };
        let speaker = rig.start(speaker_of([("other", another)], Some(listen)));
        assert_eq!(farewell(rig.dial_at_last(at)), None, "nobody we know is told nothing, but that it is over");

        speaker.configure(Arc::new(speaker_of([("tor", peer)], Some(listen))), None);
        wait_until("the neighbour is there", PATIENCE, || status(&speaker, "tor").is_some());
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let operate = |operation| runtime.block_on(speaker.operator().operate("tor", operation)).unwrap();
        operate(Operation::Shutdown { message: None });
        assert_eq!(farewell(rig.dial_at_last(at)), Some((6, 5)), "RFC 4486 §4: Connection Rejected");

        operate(Operation::Start);
        let neighbour = if at.is_ipv4() { ours.to_owned() } else { format!("{OURS}%'eth0'") };
        let _bird = rig.bird(0, LEFT.1, &neighbour, "ttl security on;");
        wait_until_up(&speaker, "tor");
        assert_eq!(farewell(rig.dial_at_last(at)), Some((6, 7)), "RFC 4271 §6.8: Connection Collision Resolution");
        operate(Operation::Shutdown { message: None });
        wait_until("it is over", PATIENCE, || status(&speaker, "tor").is_some_and(|peer| peer.state == State::Idle));
    }
}
