// SPDX-License-Identifier: Apache-2.0
//! One change, from the call that gives the speaker its new set to the first octet of the UPDATE at a peer at rest; and what the machine needs for that in any case.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use bgp::Prefix;
use vipherald::desired::RouteSet;
use vipherald::driver::bgp::Speaker;

use crate::common::Namespace;
use crate::light::{Light, routes};
use crate::table::ms;
use crate::topology::{FIRST_ROUTE, RECEIVER_AS, speaker_of};

/// Routes that are there, and how many changes are made.
const CHANGES: [(u32, usize); 3] = [(1_000, 200), (10_000, 200), (100_000, 100)];

/// Before a change: it comes to a speaker at rest, and to caches that others have used meanwhile.
const REST: Duration = Duration::from_millis(5);

pub(crate) fn compare() {
    let floor = floor(200);
    println!(
        "\nA thread that passes one octet on, from a channel to a TCP connection: median {} ms, p99 {} ms.",
        ms(floor[100]),
        ms(floor[198])
    );
    println!(
        "\n| routes there | rest, ms | change | median ms | p99 ms | of that in the call, median ms |\n|---:|---:|---|---:|---:|---:|"
    );
    for (count, changes) in CHANGES {
        for rest in [REST, Duration::ZERO] {
            let both = Namespace::new("change").run(|| one_change(count, changes, rest));
            for (what, [wire, call]) in ["announced", "withdrawn"].into_iter().zip(both) {
                let [median, p99, call] = [wire[changes / 2], wire[changes * 99 / 100], call[changes / 2]].map(ms);
                println!("| {count} | {} | {what} | {median} | {p99} | {call} |", rest.as_millis());
            }
        }
    }
}

/// One change with 100,000 routes there.
pub(crate) fn check() {
    const BOUND: Duration = Duration::from_millis(8);
    let changes = 20;
    for [wire, _] in Namespace::new("change").run(|| one_change(100_000, changes, REST)) {
        println!("one change among 100,000 routes is on the wire within {} ms", ms(wire[changes / 2]));
        assert!(wire[changes / 2] < BOUND, "a change must not take {BOUND:?}");
    }
}

/// What a thread at rest takes that has nothing to do but to pass an octet on, sorted: how fast the machine wakes threads up.
fn floor(times: usize) -> Vec<Duration> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let mut there = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    there.set_nodelay(true).unwrap();
    let (mut here, _) = listener.accept().unwrap();
    let (sender, orders) = channel::<u8>();
    let passing = thread::spawn(move || orders.iter().for_each(|octet| there.write_all(&[octet]).unwrap()));
    let mut took: Vec<Duration> = (0..times)
        .map(|_| {
            thread::sleep(REST);
            let start = Instant::now();
            sender.send(7).unwrap();
            here.read_exact(&mut [0]).unwrap();
            start.elapsed()
        })
        .collect();
    drop(sender);
    passing.join().unwrap();
    took.sort();
    took
}

/// One route more, one route less, and so on: of each kind how long it took to the wire, and the call alone, sorted.
fn one_change(count: u32, changes: usize, rest: Duration) -> [[Vec<Duration>; 2]; 2] {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let fewer: Arc<RouteSet> = Arc::new(routes(FIRST_ROUTE, count).collect());
    let mut more = RouteSet::clone(&fewer);
    let route = fewer.routes.values().next().cloned().unwrap();
    more.routes.insert(Prefix::host(Ipv4Addr::new(192, 0, 2, 7).into()), route);
    let more = Arc::new(more);
    let speaker = Speaker::spawn("vipherald", 1).unwrap();
    speaker.advertise(Arc::clone(&fewer));
    let SocketAddr::V4(address) = listener.local_addr().unwrap() else { unreachable!() };
    speaker.configure(speaker_of(*address.ip(), address.port(), RECEIVER_AS), None);
    let (stream, _) = listener.accept().unwrap();
    let mut peer = Light::establish(stream, Ipv4Addr::new(192, 0, 2, 1), RECEIVER_AS, false).unwrap();
    peer.drain();
    let mut took = [[Vec::new(), Vec::new()], [Vec::new(), Vec::new()]];
    for number in 0..changes * 2 {
        let set = Arc::clone(if number.is_multiple_of(2) { &more } else { &fewer });
        let start = Instant::now();
        speaker.advertise(set);
        took[number % 2][1].push(start.elapsed());
        peer.next().unwrap();
        took[number % 2][0].push(start.elapsed());
        thread::sleep(rest);
    }
    took.iter_mut().flatten().for_each(|times| times.sort());
    took
}
