// SPDX-License-Identifier: Apache-2.0
//! A route reflector between eight clients and two receivers, and two that come late.
//!
//! Each client has 1,000 routes of its own and 1,000 that all of them have. *burst*: all release theirs at once on sessions that stand, until both
//! receivers hold everything. *join*: two sessions more, from the later Established until both hold everything. *withdraw*: all withdraw all, until
//! no receiver holds anything. Clients and receivers are light speakers in one process, so that what is measured is the reflector.

use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use bgp::Prefix;

use crate::PATIENCE;
use crate::common::Namespace;
use crate::light::{Holder, Light, announcement, routes, withdrawal};
use crate::router::{Neighbour, Router, Software};
use crate::table::{in_turns, median, mib, ms, spread};
use crate::topology::{
    self, ADD_PATH, CLIENTS, LATECOMERS, PLAIN, RECEIVERS, REFLECTOR, SENDER_AS, address, clients, hosts, several_paths,
};

const ROUTES: u32 = 1_000;
const RUNS: usize = 5;
const REFLECTORS: [Software; 5] = [Software::Vipherald, Software::Bird, Software::Frr, Software::OpenBgpd, Software::GoBgp];

pub(crate) fn compare() {
    println!(
        "\n| reflector | paths | burst, median ms | min–max ms | CPU ms | join, median ms | min–max ms | CPU ms | withdraw, median ms | min–max ms | CPU ms | RSS idle → peak, MiB | of it anonymous at the peak |"
    );
    println!("|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|");
    for mode in [PLAIN, ADD_PATH] {
        for (software, runs) in in_turns(&REFLECTORS, RUNS, |software| reflect(software, mode)) {
            let phase = |of: fn(&Run) -> Phase| {
                let (walls, processor) = (spread(runs.iter().map(|run| of(run).wall)).1, median(runs.iter().map(|run| of(run).processor)));
                format!("{walls} | {}", ms(processor))
            };
            let (burst, join, withdraw) = (phase(|run| run.burst), phase(|run| run.join), phase(|run| run.withdraw));
            let idle = runs.iter().map(|run| run.idle_kib).max().unwrap_or_default();
            let peak = runs.iter().map(|run| run.peak_kib).max().unwrap_or_default();
            let anonymous = runs.iter().map(|run| run.anonymous_kib).max().unwrap_or_default();
            println!("| {software:?} | {mode} | {burst} | {join} | {withdraw} | {} → {} | {} |", mib(idle), mib(peak), mib(anonymous));
        }
    }
}

/// Both modes, this speaker only.
pub(crate) fn check() {
    const BOUNDS: [Duration; 3] = [Duration::from_millis(600), Duration::from_millis(150), Duration::from_millis(400)];
    for mode in [PLAIN, ADD_PATH] {
        let runs: Vec<Run> = (0..3).map(|_| reflect(Software::Vipherald, mode)).collect();
        let phases: [fn(&Run) -> Phase; 3] = [|run| run.burst, |run| run.join, |run| run.withdraw];
        for ((what, phase), bound) in ["a burst", "a join", "a withdrawal"].into_iter().zip(phases).zip(BOUNDS) {
            let least = runs.iter().map(|run| phase(run).wall).min().unwrap();
            println!("{what} through the reflector, {mode}: {} ms", ms(least));
            assert!(least < bound, "{what} must not take {bound:?}");
        }
    }
}

#[derive(Clone, Copy)]
struct Phase {
    wall: Duration,
    processor: Duration,
}

struct Run {
    burst: Phase,
    join: Phase,
    withdraw: Phase,
    idle_kib: u64,
    peak_kib: u64,
    anonymous_kib: u64,
}

/// What a client has: its own and those of all.
fn routes_of(client: u8) -> impl Iterator<Item = Prefix> {
    routes(Ipv4Addr::new(11, client, 0, 0), ROUTES).chain(routes(Ipv4Addr::new(12, 0, 0, 0), ROUTES))
}

fn reflect(software: Software, mode: &str) -> Run {
    let (ours, rack) = (Namespace::new("bench-rr"), Namespace::new("bench-rack"));
    ours.veth("eth0", &rack, "eth0");
    ours.ip(&format!("address add {REFLECTOR}/24 dev eth0"));
    for host in hosts() {
        rack.ip(&format!("address add {}/24 dev eth0", address(host)));
    }
    let router = if software == Software::Vipherald {
        Router::ourselves(&ours, &[topology::AS_REFLECTOR, mode])
    } else {
        let neighbour = |host| Neighbour { address: address(host), asn: SENDER_AS, add_path: several_paths(mode, host) };
        Router::with_neighbours(software, &ours, REFLECTOR, SENDER_AS, &hosts().map(neighbour).collect::<Vec<_>>())
    };
    rack.run(|| measure(&router, mode))
}

fn measure(router: &Router, mode: &str) -> Run {
    let dial = |host: u8, add_path: bool| Light::dial(address(host), SocketAddr::from((REFLECTOR, 179)), SENDER_AS, add_path);
    let receive = |host: u8| dial(host, mode == ADD_PATH).count();
    let receivers = RECEIVERS.map(receive);
    let writers: Vec<(u8, TcpStream)> = clients()
        .map(|host| {
            let light = dial(host, false);
            let writer = light.writer();
            light.forget();
            (host, writer)
        })
        .collect();
    router.settle();
    let idle_kib = router.resident_kib();
    let everything =
        usize::try_from(if mode == PLAIN { ROUTES * (u32::from(CLIENTS) + 1) } else { ROUTES * u32::from(CLIENTS) * 2 }).unwrap();

    let octets: Vec<_> = writers.iter().map(|(host, _)| announcement(routes_of(*host), address(*host), None)).collect();
    let burst = phase(router, || write_all(&writers, &octets), |start| until(router, &receivers, everything) - start);
    router.settle();
    let join = phase(
        router,
        || LATECOMERS.map(receive),
        |late| until(router, &late, everything).saturating_duration_since(late.iter().map(|holder| holder.established).max().unwrap()),
    );
    router.settle();
    let (peak_kib, anonymous_kib) = (router.peak_kib(), router.anonymous_kib());
    let octets: Vec<_> = writers.iter().map(|(host, _)| withdrawal(routes_of(*host))).collect();
    let withdraw = phase(router, || write_all(&writers, &octets), |start| until(router, &receivers, 0) - start);
    Run { burst, join, withdraw, idle_kib, peak_kib, anonymous_kib }
}

fn phase<T>(router: &Router, begin: impl FnOnce() -> T, end: impl FnOnce(T) -> Duration) -> Phase {
    let before = router.processor_time();
    let wall = end(begin());
    Phase { wall, processor: router.processor_time().saturating_sub(before) }
}

/// All at once; returns when that was.
fn write_all(writers: &[(u8, TcpStream)], octets: &[Vec<u8>]) -> Instant {
    let start = Instant::now();
    thread::scope(|scope| {
        for ((_, writer), octets) in writers.iter().zip(octets) {
            scope.spawn(move || (&mut &*writer).write_all(octets).unwrap());
        }
    });
    start
}

/// When the last of them came to hold so many paths.
fn until(router: &Router, holders: &[Holder], count: usize) -> Instant {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let last: Vec<_> = holders.iter().map(Holder::last).collect();
        if last.iter().all(|(held, _)| *held == count) {
            return last.iter().map(|(_, since)| *since).max().unwrap();
        }
        assert!(Instant::now() < deadline, "the receivers hold {last:?} paths instead of {count}");
        router.poke();
        thread::sleep(Duration::from_micros(200));
    }
}
