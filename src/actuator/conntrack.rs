// SPDX-License-Identifier: Apache-2.0
//! Makes the kernel forget connections that a virtual service has sent to a real server which is gone, so that their clients are reset, or get another
//! server with the next datagram, instead of hanging; and those that nobody has translated, as packets make while no virtual service is there.
//!
//! Input: what the connections were made to, and which real server answers them, or which do not. Output: how many entries of the connection table were deleted.
//! Invariants: only entries are deleted that were made to the VIP, and that the real server answers, or none of those that stay; an entry that another connection
//! has replaced meanwhile stays, since the kernel is told the number of the one that was meant.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, SocketAddr};

use netlink_packet_core::{
    DefaultNla, Emitable as _, NLA_F_NESTED, NLM_F_ACK, NLM_F_DUMP, NLM_F_REQUEST, NLMSG_DONE, NLMSG_ERROR, NetlinkBuffer, NlasIterator,
};
use netlink_sys::constants::NETLINK_NETFILTER;
use netlink_sys::{AsyncSocket as _, AsyncSocketExt as _, SocketAddr as NetlinkAddress, TokioSocket};
use nix::errno::Errno;

use crate::api::{PortRange, Protocol};
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
const CTA_FILTER_F_CTA_PROTO_NUM: u32 = 1 << 3;
/// More than the kernel puts in one datagram.
const DATAGRAM: usize = 1 << 16;
/// Deletions that go in one datagram.
const WINDOW: usize = 128;

/// The connections that a virtual service has sent to one host.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Flows {
    /// What they were made to.
    pub service: ServiceKey,
    /// Who answers them.
    pub host: IpAddr,
    /// From which port of it.
    pub port: ServerPort,
}

/// A port of the host that answers a connection.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum ServerPort {
    /// Any.
    Any,
    /// The one of the VIP to which the connection was made.
    AsOfVip,
    /// This one.
    Is(u16),
}

/// Deletes the entries of these connections, but not of those that are `kept`, in the network namespace of the thread, and says how many there were. Needs a Tokio runtime with I/O, and the right
/// CAP_NET_ADMIN. Entries of connections that are made meanwhile may stay.
///
/// # Errors
/// The connection table could not be read, or an entry not be deleted; others may have been.
pub async fn forget(flows: &BTreeSet<Flows>, kept: &BTreeSet<Flows>) -> io::Result<usize> {
    let mut deleted = 0;
    for family in [family_of(true), family_of(false)] {
        let is_of_it = |flows: &&Flows| family_of(flows.service.vip.is_ipv4()) == family;
        let of_family: BTreeSet<Flows> = flows.iter().filter(is_of_it).copied().collect();
        let services = of_family.iter().map(|flows| flows.service).collect();
        let is_kept = |connection: &Connection| kept.iter().any(|flows| flows.have(connection));
        let is_meant = |connection: &Connection| of_family.iter().any(|flows| flows.have(connection)) && !is_kept(connection);
        deleted += forget_those(family, &services, is_meant).await?;
    }
    Ok(deleted)
}

/// As [`forget`], for connections to these virtual services that none of their real servers answers: who does is gone, or it is the VIP itself, since nobody has
/// translated them. Port 0 of a real server stands for the port of the VIP.
///
/// # Errors
/// As of [`forget`].
pub async fn forget_strays(services: &BTreeMap<ServiceKey, BTreeSet<SocketAddr>>) -> io::Result<usize> {
    let mut deleted = 0;
    for family in [family_of(true), family_of(false)] {
        let of_family = services.iter().filter(|(service, _)| family_of(service.vip.is_ipv4()) == family);
        let of_family: BTreeMap<ServiceKey, &BTreeSet<SocketAddr>> = of_family.map(|(service, servers)| (*service, servers)).collect();
        let is_meant = |connection: &Connection| {
            let Connection { protocol, vip, server } = *connection;
            let Ok(ports) = PortRange::new(vip.port().into(), vip.port().into()) else { return false };
            let made_to = ServiceKey { vip: vip.ip(), protocol, ports };
            let mut covering = made_to.overlapping_in(&of_family).filter_map(|service| of_family.get(service)).peekable();
            let at_port_of_vip = SocketAddr::new(server.ip(), 0);
            let keeps_port = server.port() == vip.port();
            covering.peek().is_some()
                && !covering.any(|servers| servers.contains(&server) || (keeps_port && servers.contains(&at_port_of_vip)))
        };
        deleted += forget_those(family, &of_family.keys().copied().collect(), is_meant).await?;
    }
    Ok(deleted)
}

impl Flows {
    fn have(&self, connection: &Connection) -> bool {
        let Self { service, host, port } = self;
        let Connection { protocol, vip, server } = connection;
        let from_port = match port {
            ServerPort::Any => true,
            ServerPort::AsOfVip => server.port() == vip.port(),
            ServerPort::Is(port) => server.port() == *port,
        };
        let of_service = service.vip == vip.ip() && service.protocol == *protocol && service.ports.contains(vip.port());
        of_service && *host == server.ip() && from_port
    }
}

/// What an entry tells.
struct Connection {
    protocol: Protocol,
    /// What it was made to.
    vip: SocketAddr,
    /// Who answers it.
    server: SocketAddr,
}

/// Deletes the entries of those connections to these virtual services, all of one family, which are meant.
async fn forget_those(family: u8, services: &BTreeSet<ServiceKey>, is_meant: impl Fn(&Connection) -> bool) -> io::Result<usize> {
    if services.is_empty() {
        return Ok(0);
    }
    let mut socket = open()?;
    let mut deleted = 0;
    for chunk in entries(&mut socket, family, services, is_meant).await?.chunks(WINDOW) {
        deleted += delete(&mut socket, family, chunk).await?;
    }
    Ok(deleted)
}

/// What names one entry to the kernel: its attributes as they were read.
type Entry = Vec<DefaultNla>;

/// The entries of those connections to these virtual services which are meant.
async fn entries(
    socket: &mut TokioSocket,
    family: u8,
    services: &BTreeSet<ServiceKey>,
    is_meant: impl Fn(&Connection) -> bool,
) -> io::Result<Vec<Entry>> {
    let filter = shown(services);
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
                _ => found.extend(entry(message.payload(), &is_meant)),
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

/// The entry of a message, if its connection is meant.
fn entry(payload: &[u8], is_meant: &impl Fn(&Connection) -> bool) -> Option<Entry> {
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
    let protocol = Protocol::ALL.iter().copied().find(|protocol| original.protocol == Some(number(*protocol)))?;
    let connection = Connection { protocol, vip: original.destination?, server: reply.source? };
    is_meant(&connection).then_some(name)
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

/// Attributes by which the kernel shows less than everything, where these virtual services have a VIP or a protocol in common. Kernels before 5.8 do not
/// know the filter, and show everything; by an IPv6 address they show what does not match it.
fn shown(services: &BTreeSet<ServiceKey>) -> Vec<DefaultNla> {
    let vips: BTreeSet<IpAddr> = services.iter().map(|service| service.vip).collect();
    let protocols: BTreeSet<Protocol> = services.iter().map(|service| service.protocol).collect();
    let (mut tuple, mut fields) = (Vec::new(), 0_u32);
    if let (Some(IpAddr::V4(vip)), 1) = (vips.first(), vips.len()) {
        tuple.push(nest(CTA_TUPLE_IP, &[DefaultNla::new(CTA_IP_V4_DST, vip.octets().to_vec())]));
        fields |= CTA_FILTER_F_CTA_IP_DST;
    }
    if let (Some(protocol), 1) = (protocols.first(), protocols.len()) {
        tuple.push(nest(CTA_TUPLE_PROTO, &[DefaultNla::new(CTA_PROTO_NUM, vec![number(*protocol)])]));
        fields |= CTA_FILTER_F_CTA_PROTO_NUM;
    }
    if tuple.is_empty() {
        return Vec::new();
    }
    let flags = |kind, flags: u32| DefaultNla::new(kind, flags.to_ne_bytes().to_vec());
    vec![nest(CTA_TUPLE_ORIG, &tuple), nest(CTA_FILTER, &[flags(CTA_FILTER_ORIG_FLAGS, fields), flags(CTA_FILTER_REPLY_FLAGS, 0)])]
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
