// SPDX-License-Identifier: Apache-2.0
//! Routes to a router that has just started.
//!
//! Every sender announces the same /32 to a BIRD, each in a namespace of its own. Time is from the last look at BIRD without the session to the first at
//! which it has every route, so it is never too short, and at most one look (below a millisecond) too long. `Canned` replays octets made beforehand:
//! as fast as the receiver can be. This speaker and BIRD have the routes of themselves; the others have learned them on another
//! session before, since loading by configuration takes some of them minutes; that is not in the time.

use std::fmt::Write as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::thread;
use std::time::{Duration, Instant};

use crate::PATIENCE;
use crate::common::Namespace;
use crate::light::{Light, announcement, routes};
use crate::router::{Monitor, Neighbour, Router, Software};
use crate::table::{in_turns, median, mib, ms, spread};
use crate::topology::{self, FIRST_ROUTE, RECEIVER, RECEIVER_AS, SENDER, SENDER_AS};

const FEEDER_AS: u32 = 65002;
/// Both ends of the link on which a sender has learned its routes before.
const FED: Ipv4Addr = Ipv4Addr::new(10, 98, 0, 1);
const FEEDER: Ipv4Addr = Ipv4Addr::new(10, 98, 0, 2);
/// Routes, and how often they are sent.
const ROUNDS: [(u32, usize); 3] = [(1_000, 7), (10_000, 5), (100_000, 5)];
/// `None` replays octets.
const SENDERS: [Option<Software>; 6] =
    [Some(Software::Vipherald), Some(Software::Bird), Some(Software::OpenBgpd), Some(Software::Frr), Some(Software::GoBgp), None];

pub(crate) fn compare() {
    println!("| routes | sender | median ms | min–max ms | CPU in the session, ms | peak RSS, MiB | of it anonymous |");
    println!("|---:|---|---:|---:|---:|---:|---:|");
    for (count, runs) in ROUNDS {
        for (sender, results) in in_turns(&SENDERS, runs, |sender| announce(sender, count)) {
            let name = sender.map_or_else(|| "Canned".to_owned(), |software| format!("{software:?}"));
            println!("| {count} | {name} | {}", row(&results));
        }
    }
}

/// 100,000 routes.
pub(crate) fn check() {
    const BOUND: Duration = Duration::from_millis(300);
    let runs: Vec<Run> = (0..3).map(|_| announce(Some(Software::Vipherald), 100_000)).collect();
    let (wall, peak) = (runs.iter().map(|run| run.wall).min().unwrap(), runs[0].peak_kib);
    println!("100,000 routes are at a router within {} ms, with {} MiB", ms(wall), mib(peak));
    assert!(wall < BOUND, "100,000 routes must not take {BOUND:?}");
    assert!(peak < 40 * 1024, "100,000 routes must not take 40 MiB");
}

/// What one run took.
struct Run {
    wall: Duration,
    /// Of the sender, from Established on.
    processor: Duration,
    peak_kib: u64,
    anonymous_kib: u64,
}

fn row(runs: &[Run]) -> String {
    let peak = runs.iter().map(|run| run.peak_kib).max().unwrap_or_default();
    let anonymous = runs.iter().map(|run| run.anonymous_kib).max().unwrap_or_default();
    let processor = ms(median(runs.iter().map(|run| run.processor)));
    let of_process = if peak == 0 { "| | |".to_owned() } else { format!("{processor} | {} | {} |", mib(peak), mib(anonymous)) };
    format!("{} | {of_process}", spread(runs.iter().map(|run| run.wall)).1)
}

/// One run: a receiver and a sender that have just started.
fn announce(sender: Option<Software>, count: u32) -> Run {
    let (ours, theirs) = (Namespace::new("bench-s"), Namespace::new("bench-r"));
    ours.veth("eth0", &theirs, "eth0");
    ours.ip(&format!("address add {SENDER}/24 dev eth0"));
    theirs.ip(&format!("address add {RECEIVER}/24 dev eth0"));
    match sender {
        None => {
            let receiver = receiver(&theirs, "passive");
            let octets = [announcement(routes(FIRST_ROUTE, count), SENDER, Some(SENDER_AS)), END_OF_RIB.to_vec()].concat();
            thread::scope(|scope| {
                let stream = scope.spawn(|| {
                    ours.run(|| {
                        let mut light = Light::dial(SENDER, SocketAddr::from((RECEIVER, 179)), SENDER_AS, false);
                        light.send(&octets).unwrap();
                        light
                    })
                });
                let run = watch(&receiver, count, None);
                drop(stream.join().unwrap());
                run
            })
        }
        Some(Software::Vipherald) => {
            let receiver = receiver(&theirs, "passive");
            watch(&receiver, count, Some(&Router::ourselves(&ours, &[topology::AS_SENDER, &count.to_string()])))
        }
        Some(Software::Bird) => {
            let receiver = receiver(&theirs, "passive");
            watch(&receiver, count, Some(&Router::start(Software::Bird, &ours, &announcing_bird(count))))
        }
        Some(software) => {
            let feeder = Namespace::new("bench-f");
            ours.veth("eth1", &feeder, "eth0");
            ours.ip(&format!("address add {FED}/24 dev eth1"));
            feeder.ip(&format!("address add {FEEDER}/24 dev eth0"));
            let neighbours =
                [(RECEIVER, RECEIVER_AS), (FEEDER, FEEDER_AS)].map(|(address, asn)| Neighbour { address, asn, add_path: false });
            let router = Router::with_neighbours(software, &ours, SENDER, SENDER_AS, &neighbours);
            let octets = announcement(routes(FIRST_ROUTE, count), FEEDER, Some(FEEDER_AS));
            feeder.run(|| {
                let light = Light::dial(FEEDER, SocketAddr::from((FED, 179)), FEEDER_AS, false);
                let mut writer = light.writer();
                light.forget();
                std::io::Write::write_all(&mut writer, &octets).unwrap();
                router.settle();
            });
            watch(&receiver(&theirs, "connect delay time 1"), count, Some(&router))
        }
    }
}

/// An UPDATE without anything (RFC 4724 §2).
const END_OF_RIB: [u8; 23] = {
    let mut octets = [0xFF; 23];
    (octets[16], octets[17], octets[18]) = (0, 23, 2);
    (octets[19], octets[20], octets[21], octets[22]) = (0, 0, 0, 0);
    octets
};

/// A BIRD with one neighbour, the sender.
pub(crate) fn receiver(namespace: &Namespace, option: &str) -> Router {
    let text = format!(
        "router id {RECEIVER};\nprotocol device {{}}\nprotocol direct {{ ipv4; }}\nprotocol bgp peer {{ local {RECEIVER} as {RECEIVER_AS}; \
         neighbor {SENDER} as {SENDER_AS}; {option}; direct; ipv4 {{ import all; export none; }}; }}\n"
    );
    Router::start(Software::Bird, namespace, &text)
}

/// Looks at the receiver without pause until it has all routes. A sender of BIRD's make is asked something each time, since one that has nothing else
/// to do leaves its last octets for three seconds.
fn watch(receiver: &Router, count: u32, sender: Option<&Router>) -> Run {
    let mut monitor = Monitor::connect(&receiver.control());
    let mut start = Instant::now();
    let deadline = start + PATIENCE;
    let mut used = Duration::ZERO;
    loop {
        let (before, used_before) = (Instant::now(), sender.map(Router::processor_time).unwrap_or_default());
        assert!(before < deadline, "the receiver does not have {count} routes within {PATIENCE:?}");
        match monitor.routes() {
            None => (start, used) = (before, used_before),
            Some(routes) if routes >= count => break,
            Some(_) => {}
        }
        if let Some(sender) = sender {
            sender.poke();
        }
    }
    let wall = start.elapsed();
    let processor = sender.map(Router::processor_time).unwrap_or_default().saturating_sub(used);
    let (peak_kib, anonymous_kib) = sender.map(|sender| (sender.peak_kib(), sender.anonymous_kib())).unwrap_or_default();
    Run { wall, processor, peak_kib, anonymous_kib }
}

fn announcing_bird(count: u32) -> String {
    let mut text = format!(
        "router id {SENDER};\nprotocol device {{}}\nprotocol direct {{ ipv4; }}\nprotocol bgp peer {{ local as {SENDER_AS}; neighbor {RECEIVER} as {RECEIVER_AS}; direct; \
         connect delay time 1; ipv4 {{ import none; export where source = RTS_STATIC; next hop self; }}; }}\nprotocol static {{ ipv4;\n"
    );
    for prefix in routes(FIRST_ROUTE, count) {
        writeln!(text, "route {prefix} blackhole;").unwrap();
    }
    text + "}\n"
}
