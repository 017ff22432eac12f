// SPDX-License-Identifier: Apache-2.0
//! 100,000 routes and peers that do not read what they are told: the other peers do not suffer, and memory stays bounded.
//!
//! It is a program of its own, so that the memory of the process is that of the speaker.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a failed test says where")]

#[path = "common/light.rs"]
mod light;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use bgp::peer::State;
use bgp::{Asn, BgpIdentifier, Family, HoldTime};
use light::{Light, routes};
use socket2::{Domain, Socket, Type};
use vipherald::desired::{DesiredBgp, DesiredExport, DesiredPeer, RouteSet};
use vipherald::driver::bgp::Speaker;

const OUR_AS: u32 = 65001;
const THEIR_AS: u32 = 65000;
/// Peers that never read.
const DEAF: usize = 8;
/// The hold time of one that reads, in seconds.
const SHORT_HOLD: u16 = 3;
const ROUTES: u32 = 100_000;
/// Whole sets, each with a tenth of the routes others than the one before.
const SETS: usize = 20;
/// After so many of them the sockets are full.
const SETTLED: usize = 5;
/// What the process may take, in MiB: 24 for each peer, and as much for what they share and for the test itself.
const MEMORY: usize = 24 * (DEAF + 4);
/// By how much it may grow after that, in MiB. With withdrawals remembered that wait in sockets of the kernel's own measure it was ten for each set.
const GROWTH: usize = 3 * (DEAF + 2);
/// On a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A port on which a peer waits to be dialled.
fn port() -> TcpListener {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap()
}

/// As [`port`], with little room for what the peer does not read. Who reads would get it in small pieces, with pauses of TCP's persist timer between them.
fn narrow_port() -> TcpListener {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    socket.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into()).unwrap();
    socket.listen(8).unwrap();
    socket.into()
}

fn neighbour(port: &TcpListener) -> DesiredPeer {
    let address = port.local_addr().unwrap();
    DesiredPeer {
        port: address.port(),
        families: BTreeSet::from([Family::Ipv4Unicast]),
        hold_time: HoldTime::from_secs(90).unwrap(),
        connect_retry: Duration::from_secs(1),
        export: DesiredExport { next_hop_ipv4: Some(Ipv4Addr::new(192, 0, 2, 1)), ..DesiredExport::default() },
        ..DesiredPeer::new(address.ip(), Asn::new(THEIR_AS).unwrap())
    }
}

fn set(number: u32) -> Arc<RouteSet> {
    Arc::new(routes(Ipv4Addr::from_bits(0x0B00_0000 + number * ROUTES / 10), ROUTES).collect())
}

/// What the process has in memory, in MiB.
fn memory() -> usize {
    let text = std::fs::read_to_string("/proc/self/status").unwrap();
    let kib = text.lines().find_map(|line| line.strip_prefix("VmRSS:")?.split_whitespace().next()?.parse::<usize>().ok());
    kib.unwrap() / 1024
}

fn established(port: &TcpListener, number: u8, hold_time: u16) -> Light {
    let (stream, _) = port.accept().unwrap();
    Light::establish_within(stream, Ipv4Addr::new(192, 0, 2, number), THEIR_AS, hold_time).expect("the session comes up")
}

#[test]
fn peers_that_do_not_read_cost_no_other_session_and_memory_is_bounded() {
    let (reader, brisk, deaf) = (port(), port(), [(); DEAF].map(|()| narrow_port()));
    let mut peers = BTreeMap::from([("reader".to_owned(), neighbour(&reader)), ("brisk".to_owned(), neighbour(&brisk))]);
    peers.extend(deaf.iter().enumerate().map(|(number, port)| (format!("deaf{number}"), neighbour(port))));
    let speaker = Speaker::spawn("vipherald", 1).unwrap();
    speaker.advertise(set(0));
    speaker.configure(Arc::new(DesiredBgp { router_id: BgpIdentifier::new(1), peers, ..DesiredBgp::new(Asn::new(OUR_AS).unwrap()) }), None);

    // Without a hold time nobody gives up a peer that is silent too.
    let deaf: Vec<Light> = deaf.iter().zip(10..).map(|(port, number)| established(port, number, 0)).collect();
    let brisk = established(&brisk, 1, SHORT_HOLD);
    brisk.keep_alive(Duration::from_secs(1));
    let (brisk, reader) = (brisk.count(), established(&reader, 2, 0).count());

    let everything_is_told = || {
        let (deadline, everything) = (Instant::now() + PATIENCE, usize::try_from(ROUTES).unwrap());
        while [&brisk, &reader].iter().any(|holder| holder.last().0 != everything) {
            let held = [brisk.last().0, reader.last().0];
            assert!(Instant::now() < deadline, "held: {held:?}, {:?}", speaker.status().peers["brisk"].last_error);
            thread::sleep(Duration::from_millis(20));
        }
    };
    let mut memories = Vec::new();
    for number in 1..=SETS {
        speaker.advertise(set(number.try_into().unwrap()));
        // Longer than the hold time in all.
        thread::sleep(Duration::from_secs(1));
        // On a busy machine the first sets may not have been taken yet.
        if number == SETTLED {
            everything_is_told();
        }
        memories.push(memory());
    }
    everything_is_told();
    let silence = brisk.longest_silence();
    assert!(silence < Duration::from_secs(SHORT_HOLD.into()), "a hold timer would have expired: nothing was heard for {silence:?}");
    for (name, peer) in &speaker.status().peers {
        assert_eq!((peer.state, peer.counters.established), (State::Established, 1), "{name}: {:?}", peer.last_error);
    }
    assert!(memories.iter().all(|used| *used < MEMORY), "{memories:?} MiB, of which {MEMORY} are allowed");
    let (settled, last) = (memories.iter().take(SETTLED).max().unwrap(), memories.last().unwrap());
    assert!(*last <= settled + GROWTH, "each change costs memory: {memories:?} MiB");
    drop(deaf);
}
