// SPDX-License-Identifier: Apache-2.0
//! Makes the kernel forget connections that a virtual service has sent to a real server which is gone, so that their clients are reset, or get another
//! server with the next datagram, instead of hanging.
//!
//! Input: what the connections were made to, and which real server answers them. Output: how many entries of the connection table were deleted.
//! Invariants: only entries are deleted that were made to the VIP, and that the real server answers; an entry that another connection has replaced
//! meanwhile stays, since the kernel is told the number of the one that was meant.

use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use netlink_packet_core::{
    DefaultNla, Emitable as _, NLA_F_NESTED, NLM_F_ACK, NLM_F_DUMP, NLM_F_REQUEST, NLMSG_DONE, NLMSG_ERROR, NetlinkBuffer, NlasIterator,
};
use netlink_sys::constants::NETLINK_NETFILTER;
use netlink_sys::{AsyncSocket as _, AsyncSocketExt as _, SocketAddr as NetlinkAddress, TokioSocket};
use nix::errno::Errno;

use crate::api::Protocol;
use crate::desired::ServiceKey;

const NFNL_SUBSYS_CTNETLINK: u16 = 1;
const IPCTNL_MSG_CT_GET: u16 = NFNL_SUBSYS_CTNETLINK << 8 | 1;
const IPCTNL_MSG_CT_DELETE: u16 = NFNL_SUBSYS_CTNETLINK << 8 | 2;
const NLMSG_HEADER: usize = 16;
/// Family, version and resource of nfnetlink.
const NFGENMSG: usize = 4;
const CTA_TUPLE_ORIG: u16 = 1;
const CTA_TUPLE_REPLY: u16 = 2;
const CTA_ID: u16 = 12;
const CTA_ZONE: u16 = 18;
const CTA_FILTER: u16 = 25;
const CTA_TUPLE_IP: u16 = 1;
const CTA_TUPLE_PROTO: u16 = 2;
const CTA_IP_V4_SRC: u16 = 1;
const CTA_IP_V4_DST: u16 = 2;
const CTA_IP_V6_SRC: u16 = 3;
const CTA_IP_V6_DST: u16 = 4;
const CTA_PROTO_NUM: u16 = 1;
const CTA_PROTO_SRC_PORT: u16 = 2;
const CTA_PROTO_DST_PORT: u16 = 3;
const CTA_FILTER_ORIG_FLAGS: u16 = 1;
const CTA_FILTER_REPLY_FLAGS: u16 = 2;
const CTA_FILTER_F_CTA_IP_DST: u32 = 1 << 1;
/// More than the kernel puts in one datagram.
const DATAGRAM: usize = 1 << 16;
/// Deletions that go in one datagram.
const WINDOW: usize = 128;

/// The connections that a virtual service has sent to one real server. Port 0 stands for each.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Flows {
    /// What they were made to.
    pub service: ServiceKey,
    /// Who answers them.
    pub server: SocketAddr,
}

/// Deletes the entries of these connections, in the network namespace of the thread, and says how many there were. Needs a Tokio runtime with I/O, and the right
/// CAP_NET_ADMIN. Entries of connections that are made meanwhile may stay.
///
/// # Errors
/// The connection table could not be read, or an entry not be deleted; others may have been.
pub async fn forget(flows: &BTreeSet<Flows>) -> io::Result<usize> {
    let mut deleted = 0;
    for family in [family_of(true), family_of(false)] {
        let is_of_it = |flows: &&Flows| family_of(flows.service.vip.is_ipv4()) == family;
        let of_family: BTreeSet<Flows> = flows.iter().filter(is_of_it).copied().collect();
        if of_family.is_empty() {
            continue;
        }
        let mut socket = open()?;
        for chunk in entries(&mut socket, family, &of_family).await?.chunks(WINDOW) {
            deleted += delete(&mut socket, family, chunk).await?;
        }
    }
    Ok(deleted)
}

/// What names one entry to the kernel: its attributes as they were read.
type Entry = Vec<DefaultNla>;

/// The entries of these connections.
async fn entries(socket: &mut TokioSocket, family: u8, flows: &BTreeSet<Flows>) -> io::Result<Vec<Entry>> {
    let vips: BTreeSet<IpAddr> = flows.iter().map(|flows| flows.service.vip).collect();
    // Kernels before 5.8 do not know the filter, and show everything; with an IPv6 address they show what does not match it.
    let filter = match (vips.first(), vips.len()) {
        (Some(IpAddr::V4(vip)), 1) => made_to(*vip),
        _ => Vec::new(),
    };
    let mut request = Vec::new();
    push(&mut request, IPCTNL_MSG_CT_GET, NLM_F_REQUEST | NLM_F_DUMP, 0, family, &filter);
    socket.send(&request).await?;
    let mut found = Vec::new();
    let mut datagram = Vec::with_capacity(DATAGRAM);
    loop {
        datagram.clear();
        socket.recv(&mut datagram).await?;
        for message in messages(&datagram) {
            match message.message_type() {
                NLMSG_DONE => return Ok(found),
                NLMSG_ERROR => outcome(message.payload())?,
                _ => found.extend(entry(message.payload(), flows)),
            }
        }
    }
}

/// Deletes entries, and says how many were there still.
async fn delete(socket: &mut TokioSocket, family: u8, entries: &[Entry]) -> io::Result<usize> {
    let mut request = Vec::new();
    for (number, entry) in entries.iter().enumerate() {
        push(&mut request, IPCTNL_MSG_CT_DELETE, NLM_F_REQUEST | NLM_F_ACK, u32::try_from(number).unwrap_or(0), family, entry);
    }
    socket.send(&request).await?;
    let (mut answered, mut deleted) = (0, 0);
    let mut failure = Ok(());
    let mut datagram = Vec::with_capacity(DATAGRAM);
    while answered < entries.len() {
        datagram.clear();
        socket.recv(&mut datagram).await?;
        for message in messages(&datagram).filter(|message| message.message_type() == NLMSG_ERROR) {
            answered += 1;
            match outcome(message.payload()) {
                Ok(()) => deleted += 1,
                Err(error) if error.raw_os_error() == Some(Errno::ENOENT as i32) => {}
                Err(error) => failure = Err(error),
            }
        }
    }
    failure.map(|()| deleted)
}

/// The entry of a message, if it is one of these connections.
fn entry(payload: &[u8], flows: &BTreeSet<Flows>) -> Option<Entry> {
    let (mut original, mut reply, mut name) = (Tuple::default(), Tuple::default(), Entry::new());
    for attribute in NlasIterator::new(payload.get(NFGENMSG..)?).map_while(Result::ok) {
        match attribute.kind() {
            CTA_TUPLE_ORIG => original = tuple(attribute.value()),
            CTA_TUPLE_REPLY => reply = tuple(attribute.value()),
            CTA_ID | CTA_ZONE => {}
            _ => continue,
        }
        if attribute.kind() != CTA_TUPLE_REPLY {
            let nested = if attribute.kind() == CTA_TUPLE_ORIG { NLA_F_NESTED } else { 0 };
            name.push(DefaultNla::new(attribute.kind() | nested, attribute.value().to_vec()));
        }
    }
    let (vip, server) = (original.destination?, reply.source?);
    let is_meant = |flows: &&Flows| {
        let Flows { service, server: gone } = flows;
        let by_port = gone.port() == 0 || gone.port() == server.port();
        let of_service = service.vip == vip.ip() && service.ports.contains(vip.port());
        of_service && original.protocol == Some(number(service.protocol)) && gone.ip() == server.ip() && by_port
    };
    flows.iter().any(|flows| is_meant(&flows)).then_some(name)
}

/// One direction of a connection, as far as it matters here.
#[derive(Default)]
struct Tuple {
    protocol: Option<u8>,
    source: Option<SocketAddr>,
    destination: Option<SocketAddr>,
}

fn tuple(octets: &[u8]) -> Tuple {
    let nested = |octets, kind: u16| {
        let mut attributes = NlasIterator::new(octets).map_while(Result::ok);
        attributes.find(|attribute| attribute.kind() == kind).map(|attribute| attribute.value().to_vec()).unwrap_or_default()
    };
    let (addresses, transport) = (nested(octets, CTA_TUPLE_IP), nested(octets, CTA_TUPLE_PROTO));
    let address = |v4, v6| {
        let four = <[u8; 4]>::try_from(nested(&addresses, v4)).map(IpAddr::from);
        four.or_else(|_other_family| <[u8; 16]>::try_from(nested(&addresses, v6)).map(IpAddr::from)).ok()
    };
    let port = |kind| <[u8; 2]>::try_from(nested(&transport, kind)).map(u16::from_be_bytes).ok();
    let end = |v4, v6, kind| Some(SocketAddr::new(address(v4, v6)?, port(kind)?));
    Tuple {
        protocol: nested(&transport, CTA_PROTO_NUM).first().copied(),
        source: end(CTA_IP_V4_SRC, CTA_IP_V6_SRC, CTA_PROTO_SRC_PORT),
        destination: end(CTA_IP_V4_DST, CTA_IP_V6_DST, CTA_PROTO_DST_PORT),
    }
}

/// Attributes by which the kernel shows only connections that were made to this VIP.
fn made_to(vip: Ipv4Addr) -> Vec<DefaultNla> {
    let address = DefaultNla::new(CTA_IP_V4_DST, vip.octets().to_vec());
    let flags = |kind, flags: u32| DefaultNla::new(kind, flags.to_ne_bytes().to_vec());
    vec![
        nest(CTA_TUPLE_ORIG, &[nest(CTA_TUPLE_IP, &[address])]),
        nest(CTA_FILTER, &[flags(CTA_FILTER_ORIG_FLAGS, CTA_FILTER_F_CTA_IP_DST), flags(CTA_FILTER_REPLY_FLAGS, 0)]),
    ]
}

fn nest(kind: u16, attributes: &[DefaultNla]) -> DefaultNla {
    let mut octets = vec![0; attributes.buffer_len()];
    attributes.emit(&mut octets);
    DefaultNla::new(kind | NLA_F_NESTED, octets)
}

/// Appends one message.
fn push(datagram: &mut Vec<u8>, kind: u16, flags: u16, sequence: u32, family: u8, attributes: &[DefaultNla]) {
    let mut octets = vec![0; attributes.buffer_len()];
    attributes.emit(&mut octets);
    let length = NLMSG_HEADER + NFGENMSG + octets.len();
    datagram.extend(u32::try_from(length).unwrap_or(u32::MAX).to_ne_bytes());
    datagram.extend(kind.to_ne_bytes());
    datagram.extend(flags.to_ne_bytes());
    datagram.extend(sequence.to_ne_bytes());
    datagram.extend([0; 4]);
    datagram.extend([family, 0, 0, 0]);
    datagram.extend(octets);
}

/// The messages of a datagram, up to the first that is cut short.
fn messages(datagram: &[u8]) -> impl Iterator<Item = NetlinkBuffer<&[u8]>> {
    let mut rest = datagram;
    std::iter::from_fn(move || {
        let message = NetlinkBuffer::new_checked(rest).ok()?;
        let length = usize::try_from(message.length()).ok()?.next_multiple_of(4);
        rest = rest.get(length..).unwrap_or_default();
        Some(message)
    })
}

/// What an acknowledgement says: 0, or a negative error number.
fn outcome(payload: &[u8]) -> io::Result<()> {
    match payload.first_chunk().map(|number| i32::from_ne_bytes(*number)) {
        Some(0) => Ok(()),
        Some(number) => Err(io::Error::from_raw_os_error(number.saturating_neg())),
        None => Err(io::ErrorKind::InvalidData.into()),
    }
}

fn open() -> io::Result<TokioSocket> {
    let mut socket = TokioSocket::new(NETLINK_NETFILTER)?;
    let inner = socket.socket_mut();
    inner.bind_auto()?;
    inner.connect(&NetlinkAddress::new(0, 0))?;
    inner.set_cap_ack(true)?;
    Ok(socket)
}

const fn family_of(ipv4: bool) -> u8 {
    const AF_INET: u8 = 2;
    const AF_INET6: u8 = 10;
    if ipv4 { AF_INET } else { AF_INET6 }
}

const fn number(protocol: Protocol) -> u8 {
    match protocol {
        Protocol::Tcp => 6,
        Protocol::Udp => 17,
        Protocol::Sctp => 132,
    }
}
