// SPDX-License-Identifier: Apache-2.0
//! How fast routes get to a router: `make bench`.
//!
//! Every sender announces the same /32 to a BIRD that has just started, each in a namespace of its own. Time is from the last look at BIRD without the session
//! to the first at which it has every route, so it is never too short, and at most one look (below a millisecond) too long. Two senders give the
//! scale: BIRD itself, and a plain TCP sender that replays octets made beforehand, which is as fast as the receiver can be. The second part measures one
//! change, from the call to the octets at a peer. Output: two tables, in Markdown.
#![allow(clippy::unwrap_used, clippy::disallowed_macros, reason = "a benchmark ends where it cannot go on, and prints")]

#[path = "../tests/common/mod.rs"]
mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use bgp::wire::{AsPath, AsPathSegment, Capability, KEEPALIVE, Message, Negotiated, Open, Origin, PathAttribute, Update};
use bgp::{Asn, BgpIdentifier, Family, HoldTime, Prefix};
use common::{Namespace, Process, wait_until};
use tempfile::TempDir;
use vipherald::desired::{DesiredBgp, DesiredExport, DesiredPeer, PeerAddress, Transport};
use vipherald::driver::bgp::Speaker;

const PATIENCE: Duration = Duration::from_secs(60);
const SENDER: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 1);
const RECEIVER: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 2);
const SENDER_AS: u32 = 65001;
const RECEIVER_AS: u32 = 65000;
/// The argument with which this program is a sender of so many routes.
const AS_SENDER: &str = "sender";
/// Routes, and how often they are sent.
const ROUNDS: [(u32, usize); 3] = [(1_000, 9), (10_000, 7), (100_000, 5)];
/// Routes that are there, and how many changes are made.
const CHANGES: [(u32, usize); 2] = [(1_000, 200), (100_000, 50)];

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    if let [_, mode, count] = arguments.as_slice()
        && mode == AS_SENDER
    {
        send(count.parse().unwrap());
    }
    println!("| routes | sender | median ms | min–max ms | CPU in the session, ms | CPU in all, ms | peak RSS, MiB |");
    println!("|---:|---|---:|---:|---:|---:|---:|");
    for (count, runs) in ROUNDS {
        for sender in [Sender::Vipherald, Sender::Bird, Sender::Canned] {
            let mut results: Vec<Run> = (0..runs).map(|_| announce(sender, count)).collect();
            println!("| {count} | {sender:?} | {}", row(&mut results));
        }
    }
    println!("\n| routes there | change | median ms | p99 ms | of that in the call, median ms |\n|---:|---|---:|---:|---:|");
    for (count, changes) in CHANGES {
        Namespace::new("change").run(|| one_change(count, changes));
    }
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Sender {
    Vipherald,
    Bird,
    Canned,
}

/// What one run took.
struct Run {
    wall: Duration,
    /// Of the sender from Established on, and since its start.
    session: Duration,
    whole: Duration,
    peak_kib: u64,
}

fn row(runs: &mut [Run]) -> String {
    let ms = |duration: Duration| duration.as_secs_f64() * 1e3;
    runs.sort_by_key(|run| run.wall);
    let (least, median, most) = (&runs[0], &runs[runs.len() / 2], &runs[runs.len() - 1]);
    let middle = |value: &dyn Fn(&Run) -> Duration| {
        let mut values: Vec<Duration> = runs.iter().map(value).collect();
        values.sort();
        ms(values[values.len() / 2])
    };
    let (session, whole) = (middle(&|run| run.session), middle(&|run| run.whole));
    let peak = runs.iter().map(|run| run.peak_kib).max().unwrap_or_default();
    let of_process = if peak == 0 {
        "| |".to_owned()
    } else {
        format!("{session:.1} | {whole:.1} | {:.1}", f64::from(u32::try_from(peak).unwrap()) / 1024.0)
    };
    format!("{:.1} | {:.1}–{:.1} | {of_process} |", ms(median.wall), ms(least.wall), ms(most.wall))
}

/// One run: a receiver and a sender that have just started.
fn announce(sender: Sender, count: u32) -> Run {
    let (ours, theirs, directory) = (Namespace::new("bench-s"), Namespace::new("bench-r"), TempDir::new().unwrap());
    ours.veth("eth0", &theirs, "eth0");
    ours.ip(&format!("address add {SENDER}/24 dev eth0"));
    theirs.ip(&format!("address add {RECEIVER}/24 dev eth0"));
    let receiver = format!(
        "router id {RECEIVER};\nprotocol device {{}}\nprotocol direct {{ ipv4; }}\nprotocol bgp peer {{ local as {RECEIVER_AS}; neighbor {SENDER} as {SENDER_AS}; \
         passive; direct; ipv4 {{ import all; export none; }}; }}\n"
    );
    let _receiver = bird(&theirs, directory.path(), "receiver", &receiver);
    let mut monitor = Monitor::connect(&directory.path().join("receiver.ctl"));
    let start = Instant::now();
    match sender {
        Sender::Canned => {
            let octets = canned(count);
            thread::scope(|scope| {
                let stream = scope.spawn(|| ours.run(|| replay(&octets)));
                let run = watch(&mut monitor, start, count, None, None);
                drop(stream.join().unwrap());
                run
            })
        }
        Sender::Vipherald => {
            let mut command = ours.command(std::env::current_exe().unwrap().to_str().unwrap());
            let process = Process::start(command.args([AS_SENDER, &count.to_string()]));
            watch(&mut monitor, start, count, Some(&process), None)
        }
        Sender::Bird => {
            let process = bird(&ours, directory.path(), "sender", &announcing_bird(count));
            let mut poke = Monitor::connect(&directory.path().join("sender.ctl"));
            watch(&mut monitor, start, count, Some(&process), Some(&mut poke))
        }
    }
}

/// Looks at the receiver without pause until it has all routes. The sender has been started after `start`. A sender of BIRD's make is asked something each time, since one that has nothing else to do
/// leaves its last octets for three seconds.
fn watch(monitor: &mut Monitor, mut start: Instant, count: u32, process: Option<&Process>, mut poke: Option<&mut Monitor>) -> Run {
    let deadline = Instant::now() + PATIENCE;
    let mut used = Duration::ZERO;
    loop {
        let (before, used_before) = (Instant::now(), process.map(processor_time).unwrap_or_default());
        assert!(before < deadline, "the receiver does not have {count} routes within {PATIENCE:?}");
        match monitor.routes() {
            None => (start, used) = (before, used_before),
            Some(routes) if routes >= count => break,
            Some(_) => {}
        }
        if let Some(poke) = &mut poke {
            poke.ask("show status");
        }
    }
    let wall = start.elapsed();
    let whole = process.map(processor_time).unwrap_or_default();
    Run { wall, session: whole.saturating_sub(used), whole, peak_kib: process.map(peak_memory).unwrap_or_default() }
}

/// The control socket of a BIRD.
struct Monitor(BufReader<UnixStream>);

impl Monitor {
    fn connect(path: &Path) -> Self {
        let mut monitor = Self(BufReader::new(UnixStream::connect(path).unwrap()));
        monitor.answer();
        monitor
    }

    fn ask(&mut self, words: &str) -> String {
        self.0.get_mut().write_all(format!("{words}\n").as_bytes()).unwrap();
        self.answer()
    }

    /// Lines up to one with a code and a space.
    fn answer(&mut self) -> String {
        let mut text = String::new();
        loop {
            let start = text.len();
            assert!(self.0.read_line(&mut text).unwrap() > 0, "BIRD has closed its socket");
            let line = &text.as_bytes()[start..];
            if line.len() > 4 && line[..4].iter().all(u8::is_ascii_digit) && line[4] == b' ' {
                return text;
            }
        }
    }

    /// How many routes came over the session; `None` while it is not up.
    fn routes(&mut self) -> Option<u32> {
        let text = self.ask("show protocols all peer");
        let imported = text.lines().find_map(|line| line.trim().strip_prefix("Routes:")?.split_whitespace().next()?.parse().ok());
        text.contains("Established").then(|| imported.unwrap_or_default())
    }
}

fn bird(namespace: &Namespace, directory: &Path, name: &str, configuration: &str) -> Process {
    let path = |extension: &str| directory.join(format!("{name}.{extension}"));
    fs::write(path("conf"), configuration).unwrap();
    let mut command = namespace.command("bird");
    command.arg("-f").arg("-c").arg(path("conf")).arg("-s").arg(path("ctl")).arg("-P").arg(path("pid"));
    let process = Process::start(&mut command);
    wait_until("BIRD answers", PATIENCE, || UnixStream::connect(path("ctl")).is_ok());
    process
}

fn announcing_bird(count: u32) -> String {
    let mut text = format!(
        "router id {SENDER};\nprotocol device {{}}\nprotocol direct {{ ipv4; }}\nprotocol bgp peer {{ local as {SENDER_AS}; neighbor {RECEIVER} as {RECEIVER_AS}; direct; \
         connect delay time 1; ipv4 {{ import none; export where source = RTS_STATIC; next hop self; }}; }}\nprotocol static {{ ipv4;\n"
    );
    for prefix in routes(count) {
        writeln!(text, "route {prefix} blackhole;").unwrap();
    }
    text + "}\n"
}

/// CPU time of all threads.
fn processor_time(process: &Process) -> Duration {
    let tasks = fs::read_dir(format!("/proc/{}/task", process.id())).unwrap();
    let nanoseconds = tasks.filter_map(|task| {
        let text = fs::read_to_string(task.ok()?.path().join("schedstat")).ok()?;
        text.split_whitespace().next()?.parse::<u64>().ok()
    });
    Duration::from_nanos(nanoseconds.sum())
}

fn peak_memory(process: &Process) -> u64 {
    let text = fs::read_to_string(format!("/proc/{}/status", process.id())).unwrap();
    text.lines().find_map(|line| line.strip_prefix("VmHWM:")?.split_whitespace().next()?.parse().ok()).unwrap()
}

fn routes(count: u32) -> BTreeSet<Prefix> {
    (0..count).map(|number| Prefix::host(Ipv4Addr::from_bits(0x0B00_0000 + number).into())).collect()
}

fn speaker_of(peer: SocketAddr, asn: u32) -> Arc<DesiredBgp> {
    let peer = DesiredPeer {
        address: PeerAddress::Known(peer.ip()),
        port: peer.port(),
        transport: Transport::default(),
        asn: Asn::new(asn).unwrap(),
        families: BTreeSet::from([Family::Ipv4Unicast]),
        hold_time: HoldTime::from_secs(90).unwrap(),
        connect_retry: Duration::from_secs(1),
        restart_time: None,
        export: DesiredExport { next_hop_ipv4: Some(SENDER), ..DesiredExport::default() },
        reflector_client: false,
        add_path: None,
        keep_received: 0,
    };
    let peers = BTreeMap::from([("peer".to_owned(), peer)]);
    Arc::new(DesiredBgp {
        asn: Asn::new(SENDER_AS).unwrap(),
        router_id: BgpIdentifier::try_from(SENDER).ok(),
        cluster_id: None,
        listen: None,
        peers,
    })
}

/// Announces so many routes until it is killed.
fn send(count: u32) -> ! {
    let speaker = Speaker::spawn(1).unwrap();
    speaker.advertise(Arc::new(routes(count)));
    speaker.configure(speaker_of(SocketAddr::from((RECEIVER, 179)), RECEIVER_AS));
    loop {
        thread::park();
    }
}

fn open(asn: u32) -> Open {
    let capabilities = vec![Capability::Multiprotocol(Family::Ipv4Unicast), Capability::FourOctetAs];
    Open { asn: Asn::new(asn).unwrap(), hold_time: HoldTime::ZERO, identifier: BgpIdentifier::new(asn).unwrap(), capabilities }
}

/// All UPDATEs with the routes, and End-of-RIB.
fn canned(count: u32) -> Vec<u8> {
    /// As many as fit into 4,096 octets.
    const IN_ONE: usize = 800;
    let negotiated = Negotiated::new(&open(SENDER_AS), &open(RECEIVER_AS));
    let attributes = vec![
        PathAttribute::Origin(Origin::Igp),
        PathAttribute::AsPath(AsPath(vec![AsPathSegment::Sequence(vec![Asn::new(SENDER_AS).unwrap()])])),
        PathAttribute::NextHop(SENDER),
    ];
    let all: Vec<_> = routes(count).into_iter().map(Into::into).collect();
    let updates = all.chunks(IN_ONE).map(|some| Update { announced: some.to_vec(), attributes: attributes.clone(), ..Update::default() });
    updates.chain([Update::default()]).flat_map(|update| Message::Update(update).encode(&negotiated).unwrap()).collect()
}

/// Says what a session needs, and then the octets.
fn replay(octets: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect((RECEIVER, 179)).unwrap();
    stream.set_nodelay(true).unwrap();
    greet(&mut stream, SENDER_AS);
    stream.write_all(octets).unwrap();
    stream
}

/// Our OPEN and the peer's, our KEEPALIVE and the peer's.
fn greet(stream: &mut TcpStream, asn: u32) {
    let negotiated = Negotiated::before_open(Asn::new(asn).unwrap());
    stream.write_all(&Message::Open(open(asn)).encode(&negotiated).unwrap()).unwrap();
    skip_message(stream);
    stream.write_all(&KEEPALIVE).unwrap();
    skip_message(stream);
}

fn skip_message(stream: &mut TcpStream) {
    let mut header = [0; 19];
    stream.read_exact(&mut header).unwrap();
    let length = usize::from(u16::from_be_bytes([header[16], header[17]]));
    stream.read_exact(&mut vec![0; length - header.len()]).unwrap();
}

/// One route more, one route less, and so on, with `count` routes there: from the call to the first octet at the peer.
fn one_change(count: u32, changes: usize) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let fewer = Arc::new(routes(count));
    let mut more = (*fewer).clone();
    more.insert(Prefix::host(IpAddr::from([192, 0, 2, 7])));
    let more = Arc::new(more);
    let speaker = Speaker::spawn(1).unwrap();
    speaker.advertise(Arc::clone(&fewer));
    speaker.configure(speaker_of(listener.local_addr().unwrap(), RECEIVER_AS));
    let (mut stream, _) = listener.accept().unwrap();
    greet(&mut stream, RECEIVER_AS);
    drain(&mut stream);
    let (mut took, mut calls) = ([Vec::new(), Vec::new()], [Vec::new(), Vec::new()]);
    for number in 0..changes * 2 {
        let set = Arc::clone(if number.is_multiple_of(2) { &more } else { &fewer });
        let start = Instant::now();
        speaker.advertise(set);
        calls[number % 2].push(start.elapsed().as_secs_f64() * 1e3);
        skip_message(&mut stream);
        took[number % 2].push(start.elapsed().as_secs_f64() * 1e3);
        // The next change comes to a speaker at rest.
        thread::sleep(Duration::from_millis(5));
    }
    for (what, (times, calls)) in ["announced", "withdrawn"].into_iter().zip(took.iter_mut().zip(&mut calls)) {
        times.sort_by(f64::total_cmp);
        calls.sort_by(f64::total_cmp);
        println!("| {count} | {what} | {:.3} | {:.3} | {:.3} |", times[changes / 2], times[changes * 99 / 100], calls[changes / 2]);
    }
}

/// Reads until nothing comes for a while.
fn drain(stream: &mut TcpStream) {
    stream.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    while stream.read(&mut [0; 65_536]).is_ok_and(|read| read > 0) {}
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
}
