// SPDX-License-Identifier: Apache-2.0
//! Router discovery on the wire: the raw ICMPv6 socket of one interface.
//!
//! Input: an interface that is up and has a link-local address. Output: the routers that are heard on it, whenever they change. No option of the node is
//! touched: neither forwarding nor what the kernel itself makes of advertisements.

use std::io;
use std::net::{Ipv6Addr, SocketAddrV6};
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::Instant;

use socket2::{Domain, Protocol, SockRef, Socket, Type};
use tokio::io::Interest;
use tokio::net::UdpSocket;
use tokio::time::sleep_until;

use super::message::{self, ROUTER_ADVERTISEMENT, ROUTER_SOLICITATION};
use super::{Action, Discovery, Event};

/// RFC 4861 §6.1: any other hop limit may come from beyond the link.
const HOP_LIMIT: u32 = 255;

const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
const ALL_ROUTERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 2);

/// Longer than any message of which we read something: options that do not fit make it invalid.
const LONGEST: usize = 2048;

/// An interface that is up.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(in super::super) struct Link {
    pub(in super::super) index: u32,
    /// Its Ethernet address.
    pub(in super::super) link_layer: Option<[u8; 6]>,
    /// Our address on it.
    pub(in super::super) address: Ipv6Addr,
}

/// Advertises us and listens on the interface of this name, until an error of the socket; calls `heard` with all routers whenever they change.
pub(in super::super) async fn listen(name: &str, link: &Link, seed: u64, mut heard: impl FnMut(&[Ipv6Addr])) -> io::Error {
    let socket = match open(name, link).and_then(waiting) {
        Ok(socket) => socket,
        Err(error) => return error,
    };
    let mut discovery = Discovery::new(Instant::now(), seed);
    let mut known = Vec::new();
    loop {
        let event = tokio::select! {
            // What arrives without pause must not keep the clock out.
            biased;
            () = sleep_until(discovery.deadline().into()) => Event::Tick,
            received = receive(&socket, link) => match received {
                Ok(event) => event,
                Err(error) => return error,
            },
        };
        for action in discovery.handle(Instant::now(), event) {
            if let Err(error) = send(&socket, link, action) {
                tracing::debug!(interface = %name, %error, ?action, "a message of router discovery cannot be sent; the next one will be tried");
            }
        }
        let routers = discovery.routers();
        if routers != known {
            tracing::info!(interface = %name, ?routers, "routers heard on the link");
            heard(&routers);
            known = routers;
        }
    }
}

fn open(name: &str, link: &Link) -> io::Result<Socket> {
    let socket = Socket::new(Domain::IPV6, Type::RAW.nonblocking().cloexec(), Some(Protocol::ICMPV6))?;
    sys::take_only_icmpv6_types(socket.as_fd(), &[ROUTER_SOLICITATION, ROUTER_ADVERTISEMENT])?;
    socket.bind_device(Some(name.as_bytes()))?;
    socket.set_recv_hoplimit_v6(true)?;
    socket.set_unicast_hops_v6(HOP_LIMIT)?;
    socket.set_multicast_hops_v6(HOP_LIMIT)?;
    socket.set_multicast_loop_v6(false)?;
    socket.join_multicast_v6(&ALL_ROUTERS, link.index)?;
    // RFC 4861 §4.2: the source is link-local.
    socket.bind(&SocketAddrV6::new(link.address, 0, 0, link.index).into())?;
    Ok(socket)
}

/// The socket in the form in which the runtime waits for any that takes whole messages.
fn waiting(socket: Socket) -> io::Result<UdpSocket> {
    UdpSocket::from_std(OwnedFd::from(socket).into())
}

/// The next valid message of somebody else.
async fn receive(socket: &UdpSocket, link: &Link) -> io::Result<Event> {
    let mut buffer = [0; LONGEST];
    loop {
        let received = socket.async_io(Interest::READABLE, || sys::receive_raw_ipv6(socket.as_fd(), &mut buffer)).await?;
        let octets = buffer.get(..received.length).unwrap_or_default();
        if received.source != link.address
            && let Some(event) = message::read(octets, received.source, received.hop_limit)
        {
            return Ok(event);
        }
    }
}

fn send(socket: &UdpSocket, link: &Link, action: Action) -> io::Result<()> {
    let (octets, to) = match action {
        Action::Advertise(host) => (message::advertisement(link.link_layer), host.unwrap_or(ALL_NODES)),
        Action::Solicit => (message::solicitation(link.link_layer), ALL_ROUTERS),
    };
    SockRef::from(socket).send_to(&octets, &SocketAddrV6::new(to, 0, 0, link.index).into()).map(drop)
}
