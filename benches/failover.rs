// SPDX-License-Identifier: Apache-2.0
//! How long a VIP answers nobody when its Active Router goes, beside keepalived in the same run: a question every millisecond through the VIP to a real server, by nft on both nodes.
//! And how long it takes until all neighbours were told of a thousand addresses.

use std::collections::BTreeSet;
use std::io::Read as _;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{SigSet, Signal};
use socket2::{Domain, Protocol, Socket, Type};
use vipherald::desired::{DesiredGroup, DesiredVrrp};
use vipherald::driver::vrrp::VirtualRouters;
use vrrp::router::{ChecksumChoice, Preempt, State};
use vrrp::wire::ChecksumForm;
use vrrp::{Interval, Priority, Vrid};

use crate::PATIENCE;
use crate::common::{Namespace, Process, wait_until};
use crate::keepalived::{Keepalived, Setup};
use crate::link::{Link, has};
use crate::stream::Stream;
use crate::table::{in_turns, median, ms, spread};

/// The command line with which this program is a virtual router: priority, interval in hundredths of a second, and how many addresses it has.
pub(crate) const AS_ROUTER: &str = "virtual-router";

const VIP: Ipv4Addr = Ipv4Addr::new(10, 97, 0, 100);
const GROUP: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 18);
const VRID: u8 = 106;
const PORT: u16 = 7;
/// The interval in hundredths of a second, and how many runs. What has passed of it when the cable goes out is as long as what is compared: each run has its own part.
const INTERVALS: [(u16, u16); 3] = [(100, 3), (10, 15), (1, 15)];
const RUNS: usize = 3;
const MANY: u16 = 1_000;
/// To one of our processes: resign, and go on.
const DRAIN: Signal = Signal::SIGUSR1;
/// Of the EtherType of ARP (RFC 826).
const ARP: u16 = 0x0806;

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Software {
    Vipherald,
    Keepalived,
}

#[derive(Clone, Copy)]
enum Loss {
    Cable,
    Sigterm,
    Sigkill,
    Drain,
}

impl Loss {
    const ALL: [Self; 4] = [Self::Cable, Self::Sigterm, Self::Sigkill, Self::Drain];

    const fn words(self) -> &'static str {
        match self {
            Self::Cable => "its cable is out",
            Self::Sigterm => "SIGTERM",
            Self::Sigkill => "SIGKILL",
            Self::Drain => "it is drained",
        }
    }
}

pub(crate) fn compare() {
    println!(
        "\n| the Active Router | interval | software | median ms | min–max ms | questions lost, median |\n|---|---:|---|---:|---:|---:|"
    );
    for loss in Loss::ALL {
        for (centiseconds, runs) in INTERVALS {
            let number = AtomicU16::new(0);
            let run = |software| {
                let turn = number.fetch_add(1, Ordering::Relaxed) / 2;
                fail(software, loss, centiseconds, (f64::from(turn) + 0.5) / f64::from(runs))
            };
            for (software, outcomes) in in_turns(&[Software::Vipherald, Software::Keepalived], runs.into(), run) {
                let (_, figures) = spread(outcomes.iter().map(|(longest, _)| *longest));
                let mut lost: Vec<u64> = outcomes.iter().map(|(_, lost)| *lost).collect();
                lost.sort_unstable();
                println!(
                    "| {} | {} ms | {software:?} | {figures} | {} |",
                    loss.words(),
                    u32::from(centiseconds) * 10,
                    lost[usize::from(runs / 2)]
                );
            }
        }
    }
    let (_, figures) = spread((0..RUNS).map(|_| take_over_many()));
    println!(
        "\n| addresses | from SIGTERM of the Active Router until all were told by the next, median ms | min–max ms |\n|---:|---:|---:|\n| {MANY} | {figures} |"
    );
}

/// A cable at 10 ms, and a thousand addresses.
pub(crate) fn check() {
    const CUT: Duration = Duration::from_millis(400);
    const TOLD: Duration = Duration::from_secs(2);
    let cut = median([0.2, 0.5, 0.8].into_iter().map(|part| fail(Software::Vipherald, Loss::Cable, 1, part).0));
    println!("at 10 ms a VIP whose cable is out answers again within {} ms", ms(cut));
    assert!(cut < CUT, "it must not take {CUT:?}");
    let told = take_over_many();
    println!("{MANY} addresses are told of within {} ms", ms(told));
    assert!(told < TOLD, "it must not take {TOLD:?}");
}

/// The longest silence, and how many questions were lost, where this part of an interval has passed since the last advertisement.
fn fail(software: Software, loss: Loss, centiseconds: u16, part: f64) -> (Duration, u64) {
    let link = Link::new("failover");
    let server = Namespace::new("failover-s");
    link.replug(4, &server);
    answer(&server);
    [&link.ours, &link.theirs].into_iter().for_each(forward);
    let active = Router::start(software, &link.ours, 150, centiseconds);
    wait_until("it is Active", PATIENCE, || has(&link.ours, VIP.into()));
    let backup = Router::start(software, &link.theirs, 100, centiseconds);
    backup.wait_until_backup();
    let stream = Stream::start(&link.client, SocketAddr::from((VIP, PORT)));
    let advertisements = listen(&link.client);
    next_of(&advertisements);
    thread::sleep(Duration::from_millis(10).mul_f64(f64::from(centiseconds) * part));
    match loss {
        Loss::Cable => link.plug(1, false),
        Loss::Sigterm => active.end(),
        Loss::Sigkill => active.crash(),
        Loss::Drain => active.drain(),
    }
    wait_until("the other one follows", PATIENCE, || has(&link.theirs, VIP.into()));
    stream.goes_on();
    let outcome = stream.end();
    (outcome.longest, outcome.lost)
}

/// Hears what goes to the multicast group.
fn listen(client: &Namespace) -> Socket {
    let protocol = Protocol::from(i32::from(vrrp::wire::PROTOCOL));
    let socket = client.run(|| Socket::new(Domain::IPV4, Type::RAW, Some(protocol)).unwrap());
    socket.join_multicast_v4(&GROUP, &Ipv4Addr::new(10, 97, 0, 3)).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

fn next_of(mut advertisements: &Socket) {
    assert!(advertisements.read(&mut [0; 256]).unwrap() > 0);
}

/// Questions to the VIP go to the real server by this node.
fn forward(node: &Namespace) {
    node.sysctl("net/ipv4/ip_forward", "1");
    node.nft(&format!(
        "table ip nat {{\nchain pre {{ type nat hook prerouting priority -100; ip daddr {VIP} udp dport {PORT} dnat to 10.97.0.4; }}\n\
         chain post {{ type nat hook postrouting priority 100; ip daddr 10.97.0.4 masquerade; }}\n}}"
    ));
}

fn answer(server: &Namespace) {
    let socket = server.run(|| UdpSocket::bind((Ipv4Addr::UNSPECIFIED, PORT)).unwrap());
    thread::spawn(move || {
        let mut octets = [0; 64];
        while let Ok((length, client)) = socket.recv_from(&mut octets) {
            socket.send_to(&octets[..length], client).ok();
        }
    });
}

/// From the signal until the client has heard of the last one.
fn take_over_many() -> Duration {
    let link = Link::new("many");
    let active = ourselves(&link.ours, 150, 1, MANY);
    let last = address(MANY - 1);
    wait_until("it has all addresses", PATIENCE, || has(&link.ours, last));
    let backup = Router::Vipherald(ourselves(&link.theirs, 100, 1, MANY));
    backup.wait_until_backup();
    let socket = link.client.run(|| Socket::new(Domain::PACKET, Type::RAW, Some(Protocol::from(i32::from(ARP.to_be())))).unwrap());
    let other = hardware_address(&link.theirs);
    socket.set_recv_buffer_size(1 << 20).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let begun = Instant::now();
    active.signal(Signal::SIGTERM);
    let mut told = BTreeSet::new();
    let mut octets = [0; 128];
    while told.len() < usize::from(MANY) {
        let length = (&socket).read(&mut octets).unwrap();
        // Sender's addresses of an ARP packet for Ethernet and IPv4 (RFC 826).
        if length >= 32 && octets.get(22..28) == Some(&other) {
            told.insert(<[u8; 4]>::try_from(&octets[28..32]).unwrap());
        }
    }
    begun.elapsed()
}

fn hardware_address(host: &Namespace) -> [u8; 6] {
    let octets: Vec<u8> = crate::link::mac(host).split(':').map(|octet| u8::from_str_radix(octet, 16).unwrap()).collect();
    octets.try_into().unwrap()
}

fn address(number: u16) -> IpAddr {
    let [high, low] = number.to_be_bytes();
    Ipv4Addr::new(10, 96, high, low).into()
}

/// A process that is a virtual router.
enum Router {
    Vipherald(Process),
    Keepalived(Keepalived),
}

impl Router {
    fn start(software: Software, host: &Namespace, priority: u8, centiseconds: u16) -> Self {
        match software {
            Software::Vipherald => Self::Vipherald(ourselves(host, priority, centiseconds, 1)),
            Software::Keepalived => {
                let setup = Setup { priority, centiseconds, ..Setup::new(VRID, vec![VIP.into()]) };
                Self::Keepalived(Keepalived::start(host, &setup))
            }
        }
    }

    /// And has heard the Active Router.
    fn wait_until_backup(&self) {
        match self {
            Self::Vipherald(process) => wait_until("it is Backup", PATIENCE, || process.log().contains("it hears")),
            Self::Keepalived(keepalived) => keepalived.wait_until_backup(),
        }
    }

    fn end(&self) {
        match self {
            Self::Vipherald(process) => {
                process.signal(Signal::SIGTERM);
                process.wait(PATIENCE);
            }
            Self::Keepalived(keepalived) => keepalived.end(),
        }
    }

    /// It goes on, and leaves its address to the other one.
    fn drain(&self) {
        match self {
            Self::Vipherald(process) => process.signal(DRAIN),
            Self::Keepalived(keepalived) => keepalived.lower_priority(),
        }
    }

    fn crash(&self) {
        match self {
            Self::Vipherald(process) => process.kill(),
            Self::Keepalived(keepalived) => keepalived.crash(),
        }
    }
}

fn ourselves(host: &Namespace, priority: u8, centiseconds: u16, addresses: u16) -> Process {
    let mut command = host.command(std::env::current_exe().unwrap().to_str().unwrap());
    command.args([AS_ROUTER, &priority.to_string(), &centiseconds.to_string(), &addresses.to_string()]);
    host.spawn(&mut command)
}

/// As another process of the benchmark: until SIGTERM. It says when it hears the Active Router.
pub(crate) fn serve(priority: &str, centiseconds: &str, addresses: &str) {
    let signals: SigSet = [Signal::SIGTERM, DRAIN].into_iter().collect();
    signals.thread_block().unwrap();
    let addresses = match addresses.parse().unwrap() {
        1 => vec![VIP.into()],
        count => (0..count).map(address).collect(),
    };
    let group = DesiredGroup {
        priority: Priority::new(priority.parse().unwrap()).unwrap(),
        interval: Interval::from_centiseconds(centiseconds.parse().unwrap()).unwrap(),
        preempt: Preempt::After(Duration::ZERO),
        checksum: ChecksumChoice::Always(ChecksumForm::PseudoHeader),
        ..DesiredGroup::new("eth0".to_owned(), Vrid::new(VRID).unwrap(), addresses)
    };
    let routers = Arc::new(VirtualRouters::spawn("vipherald").unwrap());
    routers.configure(Arc::new(DesiredVrrp { groups: [("main".to_owned(), group)].into(), complete: true }));
    let watched = Arc::clone(&routers);
    thread::spawn(move || {
        let hears = || {
            let status = watched.status();
            let group = status.group("main");
            group.is_some_and(|group| {
                group.state() == State::Backup
                    && group.routers.values().any(|router| router.heard.is_some_and(|heard| heard.priority.is_some()))
            })
        };
        wait_until("it is Backup, or Active", Duration::from_secs(86_400), hears);
        println!("it hears the Active Router");
    });
    while signals.wait().unwrap() == DRAIN {
        routers.stop();
    }
    routers.stop();
    wait_until("it has handed over", PATIENCE, || routers.status().stopped);
    std::process::exit(0);
}
