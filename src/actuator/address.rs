// SPDX-License-Identifier: Apache-2.0
//! Addresses by rtnetlink: read all of them, add one, remove one.
//!
//! Inputs: an interface, an address. Output: the kernel's state, or its errno. Invariants: an address is added with `NLM_F_EXCL`, so that one which is
//! there already keeps its setter and its attributes; what is not the /32 or /128 is never removed; a dump that is not whole is an error.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use futures_util::{Stream, StreamExt as _};
use netlink_packet_core::{
    NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_DUMP_INTR, NLM_F_EXCL, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::address::{AddressAttribute, AddressHeaderFlags, AddressMessage, AddressProtocol, CacheInfo};
use netlink_packet_route::link::{LinkAttribute, LinkFlags, LinkMessage};
use nix::errno::Errno;
use rtnetlink::{AddressMessageBuilder, Handle};

use crate::observed::{ADDRESS_PROTOCOL, ObservedAddress};

/// Opens the connection that all requests share. A task of the current runtime serves it until the last handle is dropped.
pub(crate) fn connect() -> io::Result<Handle> {
    let (mut connection, handle, _unsolicited) = rtnetlink::new_connection()?;
    // Without these an answer that broke off looks like one that is complete.
    connection.set_forward_ack(true);
    connection.set_forward_done(true);
    tokio::spawn(connection);
    Ok(handle)
}

/// What an interface is now; another one may have its index later.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Interface {
    /// Its index.
    pub(crate) index: u32,
    /// Whether it is up, as an administrator sets it (`IFF_UP`).
    pub(crate) up: bool,
}

/// The interface of that name; `None` where there is none.
pub(crate) async fn find_interface(handle: &Handle, name: &str) -> io::Result<Option<Interface>> {
    let mut message = LinkMessage::default();
    message.attributes.push(LinkAttribute::IfName(name.to_owned()));
    let mut responses = request(handle, RouteNetlinkMessage::GetLink(message), NLM_F_ACK)?;
    let mut found = None;
    while let Some(response) = responses.next().await {
        match response.payload {
            NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewLink(link)) => {
                found = Some(Interface { index: link.header.index, up: link.header.flags.contains(LinkFlags::Up) });
            }
            NetlinkPayload::Error(error) if error.raw_code() == -(Errno::ENODEV as i32) => return Ok(None),
            NetlinkPayload::Error(error) if error.code.is_some() => return Err(error.to_io()),
            NetlinkPayload::Error(_) => return found.map(Some).ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData)),
            _ => {}
        }
    }
    Err(closed())
}

/// Every address of the node.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Addresses {
    /// On the interface asked for, without loopback and link-local ones.
    pub(crate) here: BTreeMap<IpAddr, ObservedAddress>,
    /// On interfaces that were asked for besides, with their indices.
    pub(crate) former: Vec<(u32, IpAddr, ObservedAddress)>,
    /// On all others.
    pub(crate) elsewhere: BTreeSet<IpAddr>,
    /// Those whose duplicate address detection has failed or still runs (RFC 4862 §5.4): the kernel delivers nothing to them.
    pub(crate) unusable: BTreeSet<IpAddr>,
    /// Whether any carries a protocol, as those of `lo` do from kernel 5.18 on.
    pub(crate) protocols: bool,
}

impl Addresses {
    fn insert(&mut self, message: &AddressMessage, interface: Option<u32>, former: &BTreeSet<u32>) {
        let Some(address) = local_address(message) else { return };
        self.protocols |= protocol(message).is_some();
        if message.header.flags.intersects(AddressHeaderFlags::Tentative | AddressHeaderFlags::Dadfailed) {
            self.unusable.insert(address);
        }
        let is_former = former.contains(&message.header.index);
        if Some(message.header.index) != interface && !is_former {
            self.elsewhere.insert(address);
            return;
        }
        if address.is_loopback() || is_link_local(address) {
            return;
        }
        let found = ObservedAddress { prefix_length: message.header.prefix_len, protocol: protocol(message) };
        if is_former {
            self.former.push((message.header.index, address, found));
            return;
        }
        let entry = self.here.entry(address).or_insert(found);
        // IPv4 allows the same address with several lengths; the longest is the one that a host address of ours would be.
        if found.prefix_length > entry.prefix_length {
            *entry = found;
        }
    }
}

/// Reads all addresses, those of the interface with this index apart, and those of the `former` ones.
pub(crate) async fn dump(handle: &Handle, interface: Option<u32>, former: &BTreeSet<u32>) -> io::Result<Addresses> {
    const ATTEMPTS: u32 = 20;
    for _ in 0..ATTEMPTS {
        if let Some(addresses) = dump_once(handle, interface, former).await? {
            return Ok(addresses);
        }
    }
    Err(io::Error::new(io::ErrorKind::Interrupted, "addresses changed during each attempt to read them"))
}

/// `None` where addresses changed meanwhile, so that some may be missing.
async fn dump_once(handle: &Handle, interface: Option<u32>, former: &BTreeSet<u32>) -> io::Result<Option<Addresses>> {
    let mut addresses = Addresses::default();
    let whole = each(handle, RouteNetlinkMessage::GetAddress(AddressMessage::default()), |message| {
        if let RouteNetlinkMessage::NewAddress(message) = message {
            addresses.insert(&message, interface, former);
        }
    });
    Ok(whole.await?.then_some(addresses))
}

/// Gives every message of a dump; false where things changed meanwhile, so that some may be missing (`NLM_F_DUMP_INTR`).
pub(super) async fn each(handle: &Handle, dump: RouteNetlinkMessage, mut take: impl FnMut(RouteNetlinkMessage)) -> io::Result<bool> {
    let mut responses = request(handle, dump, NLM_F_DUMP)?;
    let mut interrupted = false;
    while let Some(response) = responses.next().await {
        interrupted |= response.header.flags & NLM_F_DUMP_INTR != 0;
        match response.payload {
            NetlinkPayload::InnerMessage(message) => take(message),
            NetlinkPayload::Error(error) => return Err(error.to_io()),
            NetlinkPayload::Done(done) if done.code < 0 => return Err(io::Error::from_raw_os_error(-done.code)),
            NetlinkPayload::Done(_) => return Ok(!interrupted),
            NetlinkPayload::Overrun(_) => return Err(io::Error::from(Errno::ENOBUFS)),
            _ => {}
        }
    }
    Err(closed())
}

/// Adds the address as /32 or /128 with global scope, marked as ours where the kernel can. The errno is the kernel's.
pub(crate) async fn add(handle: &Handle, interface: u32, address: IpAddr) -> io::Result<()> {
    let message = RouteNetlinkMessage::NewAddress(marked_host_address(interface, address));
    acknowledged(handle, message, NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL).await
}

/// What is said to add an address of ours.
pub(crate) fn marked_host_address(interface: u32, address: IpAddr) -> AddressMessage {
    let mut message = host_address(interface, address);
    message.attributes.push(AddressAttribute::Protocol(AddressProtocol::Other(ADDRESS_PROTOCOL)));
    if address.is_ipv6() {
        // Never the source of a connection of the node's own (RFC 6724 §5 rule 3), and nobody to detect a duplicate of: all routers have it.
        message.header.flags |= AddressHeaderFlags::Nodad;
        let mut lifetimes = CacheInfo::default();
        lifetimes.ifa_preferred = 0;
        lifetimes.ifa_valid = u32::MAX;
        message.attributes.push(AddressAttribute::CacheInfo(lifetimes));
    }
    message
}

/// Removes the /32 or /128 of the address. The errno is the kernel's.
pub(crate) async fn remove(handle: &Handle, interface: u32, address: IpAddr) -> io::Result<()> {
    acknowledged(handle, RouteNetlinkMessage::DelAddress(host_address(interface, address)), NLM_F_ACK).await
}

/// Sets an interface up or down.
pub(crate) async fn set_state(handle: &Handle, interface: u32, up: bool) -> io::Result<()> {
    let mut message = LinkMessage::default();
    message.header.index = interface;
    message.header.change_mask = LinkFlags::Up;
    message.header.flags = if up { LinkFlags::Up } else { LinkFlags::empty() };
    acknowledged(handle, RouteNetlinkMessage::SetLink(message), NLM_F_ACK).await
}

/// The /32 or /128 of an address.
pub(crate) fn host_address(interface: u32, address: IpAddr) -> AddressMessage {
    match address {
        IpAddr::V4(v4) => AddressMessageBuilder::<Ipv4Addr>::new().index(interface).address(v4, 32).build(),
        IpAddr::V6(v6) => AddressMessageBuilder::<Ipv6Addr>::new().index(interface).address(v6, 128).build(),
    }
}

async fn acknowledged(handle: &Handle, message: RouteNetlinkMessage, flags: u16) -> io::Result<()> {
    let mut responses = request(handle, message, flags)?;
    while let Some(response) = responses.next().await {
        if let NetlinkPayload::Error(error) = response.payload {
            return if error.code.is_some() { Err(error.to_io()) } else { Ok(()) };
        }
    }
    Err(closed())
}

fn request(
    handle: &Handle,
    message: RouteNetlinkMessage,
    flags: u16,
) -> io::Result<impl Stream<Item = NetlinkMessage<RouteNetlinkMessage>> + use<>> {
    let mut header = NetlinkHeader::default();
    header.flags = NLM_F_REQUEST | flags;
    handle.clone().request(NetlinkMessage::new(header, NetlinkPayload::InnerMessage(message))).map_err(|_unsent| closed())
}

/// The connection ended with the request unanswered.
fn closed() -> io::Error {
    io::Error::new(io::ErrorKind::NotConnected, "the netlink connection is closed")
}

/// The node's own side: on a point-to-point link `IFA_ADDRESS` is the peer's.
pub(crate) fn local_address(message: &AddressMessage) -> Option<IpAddr> {
    let mut local = None;
    for attribute in &message.attributes {
        match attribute {
            AddressAttribute::Local(address) => return Some(*address),
            AddressAttribute::Address(address) => local = Some(*address),
            _ => {}
        }
    }
    local
}

/// Who set it, where the kernel tells.
pub(crate) fn protocol(message: &AddressMessage) -> Option<u8> {
    message.attributes.iter().find_map(|attribute| match attribute {
        AddressAttribute::Protocol(protocol) => Some(u8::from(*protocol)),
        _ => None,
    })
}

fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(interface: u32, address: &str, prefix_length: u8, protocol: Option<u8>) -> AddressMessage {
        let mut message = host_address(interface, address.parse().unwrap());
        message.header.prefix_len = prefix_length;
        message.attributes.extend(protocol.map(|protocol| AddressAttribute::Protocol(protocol.into())));
        message
    }

    #[test]
    fn addresses_are_sorted_by_interface() {
        let mut addresses = Addresses::default();
        for (interface, address, length) in [
            (1, "127.0.0.1", 8),
            (1, "::1", 128),
            (1, "10.0.0.7", 32),
            (1, "fe80::1", 64),
            (1, "169.254.0.1", 32),
            (2, "192.0.2.1", 24),
            (2, "fe80::2", 64),
        ] {
            addresses.insert(&message(interface, address, length, None), Some(1), &BTreeSet::new());
        }
        assert_eq!(addresses.here.keys().map(ToString::to_string).collect::<Vec<_>>(), ["10.0.0.7"]);
        assert_eq!(addresses.elsewhere.iter().map(ToString::to_string).collect::<Vec<_>>(), ["192.0.2.1", "fe80::2"]);
    }

    #[test]
    fn of_several_lengths_the_longest_counts() {
        let ours = message(1, "10.0.0.7", 32, Some(ADDRESS_PROTOCOL));
        let foreign = message(1, "10.0.0.7", 24, None);
        for order in [[&ours, &foreign], [&foreign, &ours]] {
            let mut addresses = Addresses::default();
            order.iter().for_each(|message| addresses.insert(message, Some(1), &BTreeSet::new()));
            let expected = ObservedAddress { prefix_length: 32, protocol: Some(ADDRESS_PROTOCOL) };
            assert_eq!(addresses.here.values().collect::<Vec<_>>(), [&expected]);
        }
    }

    #[test]
    fn on_a_point_to_point_link_the_own_side_counts() {
        let mut message = AddressMessage::default();
        message.attributes.push(AddressAttribute::Address("192.0.2.2".parse().unwrap()));
        assert_eq!(local_address(&message), Some("192.0.2.2".parse().unwrap()));
        message.attributes.push(AddressAttribute::Local("192.0.2.1".parse().unwrap()));
        assert_eq!(local_address(&message), Some("192.0.2.1".parse().unwrap()));
    }

    #[tokio::test]
    async fn an_interface_is_found_by_name() {
        let handle = connect().unwrap();
        assert!(find_interface(&handle, "lo").await.unwrap().is_some());
        assert_eq!(find_interface(&handle, "not-there").await.unwrap(), None);
    }

    #[tokio::test]
    async fn a_connection_that_is_closed_is_no_empty_answer() {
        let (connection, handle, _unsolicited) = rtnetlink::new_connection().unwrap();
        drop(connection);
        assert_eq!(find_interface(&handle, "lo").await.unwrap_err().kind(), io::ErrorKind::NotConnected);
        assert_eq!(dump(&handle, None, &BTreeSet::new()).await.unwrap_err().kind(), io::ErrorKind::NotConnected);
        assert_eq!(remove(&handle, 1, IpAddr::V4(Ipv4Addr::LOCALHOST)).await.unwrap_err().kind(), io::ErrorKind::NotConnected);
    }

    #[tokio::test]
    async fn a_connection_that_breaks_off_is_no_empty_answer() {
        let (connection, handle, _unsolicited) = rtnetlink::new_connection().unwrap();
        let asked = tokio::spawn(async move { dump(&handle, None, &BTreeSet::new()).await });
        tokio::task::yield_now().await;
        drop(connection);
        assert_eq!(asked.await.unwrap().unwrap_err().kind(), io::ErrorKind::NotConnected);
    }
}
