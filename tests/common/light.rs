// SPDX-License-Identifier: Apache-2.0
//! A BGP speaker of a few lines, which costs next to nothing: it sends octets made beforehand, and counts what it is told.
//!
//! Input: addresses and routes. Output: sessions that are Established. It sends a KEEPALIVE after the first only where it is asked to.
#![allow(dead_code, reason = "each program uses a part of it")]
#![allow(clippy::unwrap_used, reason = "a failed test says where")]

use std::collections::{BTreeMap, HashSet};
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use bgp::wire::{
    AddPathMode, AsPath, AsPathSegment, Capability, Deframer, KEEPALIVE, Message, Negotiated, NextHop, Nlri, Open, Origin, PathAttribute,
    Update, encode_announcement, encode_withdrawal,
};
use bgp::{Asn, BgpIdentifier, Family, HoldTime, Prefix};
use socket2::{Domain, Socket, Type};

/// How long a router may take to come up.
const PATIENCE: Duration = Duration::from_secs(120);
/// How long a router may say nothing while a session comes up.
const SILENCE: Duration = Duration::from_secs(60);
/// Longer than anything lasts.
const HOLD_TIME: u16 = 600;

/// A session that is Established.
pub(crate) struct Light {
    stream: TcpStream,
    deframer: Deframer,
    negotiated: Negotiated,
}

impl Light {
    /// Dials a router, as often as it takes.
    pub(crate) fn dial(from: Ipv4Addr, to: SocketAddr, asn: u32, add_path: bool) -> Self {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(established) = connect(from, to).and_then(|stream| Self::establish(stream, from, asn, add_path)) {
                return established;
            }
            assert!(Instant::now() < deadline, "{to} takes no session from {from}");
            thread::sleep(Duration::from_millis(100));
        }
    }

    /// Goes up to Established; `None` where the router does not.
    pub(crate) fn establish(stream: TcpStream, identifier: Ipv4Addr, asn: u32, add_path: bool) -> Option<Self> {
        Self::establish_as(stream, &open(identifier, asn, add_path))
    }

    /// The same with a hold time in seconds.
    pub(crate) fn establish_within(stream: TcpStream, identifier: Ipv4Addr, asn: u32, hold_time: u16) -> Option<Self> {
        Self::establish_as(stream, &Open { hold_time: HoldTime::from_secs(hold_time).unwrap(), ..open(identifier, asn, false) })
    }

    fn establish_as(stream: TcpStream, ours: &Open) -> Option<Self> {
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(SILENCE)).unwrap();
        let negotiated = Negotiated::before_open(ours.asn);
        let mut light = Self { stream, deframer: Deframer::default(), negotiated };
        light.send(&Message::Open(ours.clone()).encode(&light.negotiated).unwrap())?;
        let Some(Message::Open(theirs)) = light.next() else { return None };
        light.negotiated = Negotiated::new(ours, &theirs);
        light.send(&KEEPALIVE)?;
        (light.next() == Some(Message::Keepalive)).then_some(light)
    }

    pub(crate) fn send(&mut self, octets: &[u8]) -> Option<()> {
        self.stream.write_all(octets).ok()
    }

    /// The next message; `None` once the router has closed, or stays silent.
    pub(crate) fn next(&mut self) -> Option<Message> {
        let mut buffer = [0; 65_536];
        loop {
            if let Some(message) = self.deframer.next(&self.negotiated).unwrap() {
                return Some(message);
            }
            match self.stream.read(&mut buffer) {
                Ok(count @ 1..) => self.deframer.push(&buffer[..count]),
                _ => return None,
            }
        }
    }

    /// The socket, to write to while another thread reads.
    pub(crate) fn writer(&self) -> TcpStream {
        self.stream.try_clone().unwrap()
    }

    /// Reads and forgets until nothing comes for a while.
    pub(crate) fn drain(&mut self) {
        self.stream.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
        while self.next().is_some() {}
        self.stream.set_read_timeout(Some(SILENCE)).unwrap();
    }

    /// Sends a KEEPALIVE at this interval, on a thread of its own, until the router closes.
    pub(crate) fn keep_alive(&self, interval: Duration) {
        let mut writer = self.writer();
        thread::spawn(move || {
            while writer.write_all(&KEEPALIVE).is_ok() {
                thread::sleep(interval);
            }
        });
    }

    /// Reads and forgets, on a thread of its own, until the router closes.
    pub(crate) fn forget(self) {
        self.stream.set_read_timeout(None).unwrap();
        let mut stream = self.stream;
        thread::spawn(move || while stream.read(&mut [0; 65_536]).is_ok_and(|count| count > 0) {});
    }

    /// Counts, on a thread of its own, the paths that it holds.
    pub(crate) fn count(mut self) -> Holder {
        self.stream.set_read_timeout(None).unwrap();
        let established = Instant::now();
        let seen = Arc::new(Mutex::new(Seen { held: 0, since: established, heard: established, silence: Duration::ZERO }));
        let holder = Holder { established, seen: Arc::clone(&seen) };
        thread::spawn(move || {
            let mut held: HashSet<Nlri> = HashSet::new();
            while let Some(message) = self.next() {
                seen.lock().unwrap().hear();
                if let Message::Update(Update { withdrawn, announced, .. }) = message {
                    for nlri in &withdrawn {
                        held.remove(nlri);
                    }
                    held.extend(announced);
                    let mut seen = seen.lock().unwrap();
                    (seen.held, seen.since) = (held.len(), Instant::now());
                }
            }
        });
        holder
    }
}

/// What a session holds.
pub(crate) struct Holder {
    /// When its session came up.
    pub(crate) established: Instant,
    seen: Arc<Mutex<Seen>>,
}

struct Seen {
    held: usize,
    since: Instant,
    /// When the last message came.
    heard: Instant,
    silence: Duration,
}

impl Seen {
    fn hear(&mut self) {
        self.silence = self.longest_silence();
        self.heard = Instant::now();
    }

    fn longest_silence(&self) -> Duration {
        self.silence.max(self.heard.elapsed())
    }
}

impl Holder {
    /// How many paths it holds, and since when.
    pub(crate) fn last(&self) -> (usize, Instant) {
        let seen = self.seen.lock().unwrap();
        (seen.held, seen.since)
    }

    /// The longest time without a message so far.
    pub(crate) fn longest_silence(&self) -> Duration {
        self.seen.lock().unwrap().longest_silence()
    }
}

fn connect(from: Ipv4Addr, to: SocketAddr) -> Option<TcpStream> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::from((from, 0)).into()).unwrap();
    socket.connect_timeout(&to.into(), Duration::from_secs(2)).ok()?;
    Some(socket.into())
}

fn open(identifier: Ipv4Addr, asn: u32, add_path: bool) -> Open {
    let mut capabilities = vec![Capability::Multiprotocol(Family::Ipv4Unicast), Capability::FourOctetAs];
    if add_path {
        capabilities.push(Capability::AddPath(BTreeMap::from([(Family::Ipv4Unicast, AddPathMode::Receive)])));
    }
    let identifier = BgpIdentifier::try_from(identifier).unwrap();
    Open { asn: Asn::new(asn).unwrap(), hold_time: HoldTime::from_secs(HOLD_TIME).unwrap(), identifier, capabilities }
}

/// So many /32 from this address on.
pub(crate) fn routes(from: Ipv4Addr, count: u32) -> impl Iterator<Item = Prefix> {
    (0..count).map(move |number| Prefix::host(Ipv4Addr::from_bits(from.to_bits() + number).into()))
}

/// UPDATEs that announce these, from an external peer in this AS, or from an internal one.
pub(crate) fn announcement(routes: impl IntoIterator<Item = Prefix>, next_hop: Ipv4Addr, external: Option<u32>) -> Vec<u8> {
    let path = external.map(|asn| AsPathSegment::Sequence(vec![Asn::new(asn).unwrap()]));
    let mut attributes = vec![PathAttribute::Origin(Origin::Igp), PathAttribute::AsPath(AsPath(path.into_iter().collect()))];
    if external.is_none() {
        attributes.push(PathAttribute::LocalPref(100));
    }
    all(routes, |rest, negotiated, out| {
        encode_announcement(&attributes, NextHop::V4(next_hop), Family::Ipv4Unicast, rest, negotiated, out).unwrap()
    })
}

/// UPDATEs that withdraw these.
pub(crate) fn withdrawal(routes: impl IntoIterator<Item = Prefix>) -> Vec<u8> {
    all(routes, |rest, negotiated, out| encode_withdrawal(Family::Ipv4Unicast, rest, negotiated, out))
}

fn all(routes: impl IntoIterator<Item = Prefix>, encode: impl Fn(&[Nlri], &Negotiated, &mut Vec<u8>) -> usize) -> Vec<u8> {
    let routes: Vec<Nlri> = routes.into_iter().map(Nlri::from).collect();
    let both = open(Ipv4Addr::LOCALHOST, 1, false);
    let negotiated = Negotiated::new(&both, &both);
    let (mut rest, mut octets) = (routes.as_slice(), Vec::new());
    while !rest.is_empty() {
        rest = &rest[encode(rest, &negotiated, &mut octets)..];
    }
    octets
}
