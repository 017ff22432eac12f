// SPDX-License-Identifier: Apache-2.0
//! What a host on a link is told of where addresses are, whether it asked or not: ARP (RFC 826) and Neighbor Discovery (RFC 4861).
//!
//! Output: for each address the Ethernet addresses at which somebody says it is, and those from which that was said.
#![allow(dead_code, reason = "each test file uses a part of it")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, BTreeSet};
use std::io::{ErrorKind, Read as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use socket2::{Domain, Protocol, Socket, Type};

use crate::common::Namespace;

const ARP: u16 = 0x0806;
const IPV6: u16 = 0x86DD;
const ICMPV6: u8 = 58;
const SOLICITATION: u8 = 135;
const ADVERTISEMENT: u8 = 136;
/// Whatever is on its way has come after that.
const LATEST: Duration = Duration::from_millis(200);

/// Where addresses are, by what was told.
pub(crate) type Told = BTreeMap<IpAddr, BTreeSet<String>>;

/// Listens on `eth0` of a host.
pub(crate) struct Listener {
    over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Told>>,
}

impl Listener {
    pub(crate) fn start(host: &Namespace) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let open = |ethertype: u16| {
            let socket = Socket::new(Domain::PACKET, Type::RAW, Some(Protocol::from(i32::from(ethertype.to_be())))).unwrap();
            socket.set_recv_buffer_size(1 << 20).unwrap();
            socket.set_read_timeout(Some(LATEST)).unwrap();
            socket
        };
        let sockets = host.run(|| [ARP, IPV6].map(open));
        let listen = |socket| {
            let over = Arc::clone(&over);
            thread::spawn(move || listen(&socket, &over))
        };
        let threads = sockets.map(listen).into();
        Self { over, threads }
    }

    /// Once what is on its way has come.
    pub(crate) fn end(self) -> Told {
        self.over.store(true, Ordering::Relaxed);
        self.threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    }
}

fn listen(mut socket: &Socket, over: &AtomicBool) -> Told {
    let mut told = Told::new();
    let mut buffer = [0; 2048];
    let mut until = None;
    loop {
        match socket.read(&mut buffer) {
            Ok(length) => {
                if let Some((address, macs)) = read(buffer.get(..length).unwrap_or_default()) {
                    told.entry(address).or_default().extend(macs.map(|mac| mac.map(|octet| format!("{octet:02x}")).join(":")));
                }
            }
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock, "{error}"),
        }
        if over.load(Ordering::Relaxed) && *until.get_or_insert_with(|| Instant::now() + LATEST) <= Instant::now() {
            return told;
        }
    }
}

/// Which address is at which Ethernet address by this frame, and the Ethernet address that it comes from.
fn read(frame: &[u8]) -> Option<(IpAddr, [[u8; 6]; 2])> {
    let mac = |at: usize| frame.get(at..)?.first_chunk::<6>().copied();
    let ipv6 = |at: usize| Some(Ipv6Addr::from(*frame.get(at..)?.first_chunk::<16>()?));
    let from = mac(6)?;
    match u16::from_be_bytes(*frame.get(12..)?.first_chunk()?) {
        ARP => Some((Ipv4Addr::from(*frame.get(28..)?.first_chunk::<4>()?).into(), [from, mac(22)?])),
        IPV6 if *frame.get(20)? == ICMPV6 => {
            // The option with the link-layer address is the only one.
            let address = match *frame.get(54)? {
                SOLICITATION => ipv6(22)?,
                ADVERTISEMENT => ipv6(62)?,
                _ => return None,
            };
            Some((address.into(), [from, mac(80).unwrap_or(from)]))
        }
        _ => None,
    }
}
