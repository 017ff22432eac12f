// SPDX-License-Identifier: Apache-2.0
//! rtnetlink without a runtime: the kernel answers within the call, so that a thread which has timers of milliseconds needs nothing between.
//!
//! Input: an interface, changes of its addresses. Output: what the kernel has, the outcome of each change, and hints of what others have changed.
//! Invariants: an address is added with `NLM_F_EXCL`; a dump that is not whole is an error; a notification that was lost counts as a change.

use std::collections::BTreeSet;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_DUMP_INTR, NLM_F_EXCL, NLM_F_REQUEST, NetlinkBuffer, NetlinkHeader, NetlinkMessage,
    NetlinkPayload,
};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::address::{AddressHeaderFlags, AddressMessage};
use netlink_packet_route::link::{
    AfSpecInet, AfSpecInet6, AfSpecUnspec, In6AddrGenMode, InetDevConf, InfoKind, LinkAttribute, LinkFlags, LinkInfo, LinkMessage,
    MacVlanMode,
};
use netlink_sys::constants::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};
use nix::errno::Errno;
use rtnetlink::{LinkMacVlan, MulticastGroup};

use super::placement::{Change, Present};
use super::virtual_link::VirtualLink;
use crate::actuator::address::{host_address, local_address, marked_host_address, protocol};

const RTM_NEWLINK: u16 = 16;
const RTM_DELLINK: u16 = 17;
const RTM_NEWADDR: u16 = 20;
const RTM_DELADDR: u16 = 21;
/// Where the messages of links and of addresses have the index of the interface (rtnetlink(7)).
const INDEX: std::ops::Range<usize> = 4..8;
/// A dump is read again where things changed meanwhile, so many times.
const ATTEMPTS: u32 = 20;
/// Datagrams of notifications that are taken in one go.
const COLLECTED: usize = 1000;
/// Room for a burst of notifications, in octets.
const RECEIVE_BUFFER: i32 = 1 << 20;
const DATAGRAM: usize = 1 << 16;

/// An interface now; another one may have its index later.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Link {
    pub(super) index: u32,
    /// Up, with a carrier.
    pub(super) running: bool,
    /// Up, with a carrier or without.
    pub(super) up: bool,
    /// Its Ethernet address.
    pub(super) mac: Option<[u8; 6]>,
    /// The index of the interface that it is on, where it is on one.
    pub(super) parent: Option<u32>,
    /// By its alias this instance has made it.
    pub(super) ours: bool,
}

/// The connection for requests.
pub(super) struct Netlink {
    socket: Socket,
    /// Our netlink port.
    port: u32,
    sequence: u32,
    /// The alias of links that are ours; `None` where none is.
    alias: Option<String>,
}

impl Netlink {
    pub(super) fn open() -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        let port = socket.bind_auto()?.port_number();
        socket.connect(&SocketAddr::new(0, 0))?;
        // Where the kernel cannot (before 4.20), dumps hold more than was asked for.
        let _unknown_to_old_kernels = socket.set_netlink_get_strict_chk(true);
        Ok(Self { socket, port, sequence: 0, alias: None })
    }

    /// Likewise; links with this alias are ours.
    pub(super) fn open_with_alias(alias: String) -> io::Result<Self> {
        Ok(Self { alias: Some(alias), ..Self::open()? })
    }

    /// Our netlink port, which notifications of our own changes name.
    pub(super) const fn port(&self) -> u32 {
        self.port
    }

    /// The interface of that name; `None` where there is none.
    pub(super) fn link(&mut self, name: &str) -> io::Result<Option<Link>> {
        let mut message = LinkMessage::default();
        message.attributes.push(LinkAttribute::IfName(name.to_owned()));
        self.send(&[(RouteNetlinkMessage::GetLink(message), NLM_F_ACK)])?;
        let mut found = None;
        loop {
            for response in self.receive()? {
                match response.payload {
                    NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewLink(link)) => found = Some(self.read_link(&link)),
                    NetlinkPayload::Error(error) if error.raw_code() == -(Errno::ENODEV as i32) => return Ok(None),
                    NetlinkPayload::Error(error) if error.code.is_some() => return Err(error.to_io()),
                    NetlinkPayload::Error(_) => return found.map(Some).ok_or_else(|| io::ErrorKind::InvalidData.into()),
                    _ => {}
                }
            }
        }
    }

    /// The macvlans that there are, by their names.
    pub(super) fn macvlans(&mut self) -> io::Result<Vec<(String, Link)>> {
        let mut message = LinkMessage::default();
        message.attributes.push(LinkAttribute::LinkInfo(vec![LinkInfo::Kind(InfoKind::MacVlan)]));
        let read = self.dump(&RouteNetlinkMessage::GetLink(message))?;
        let named = read.iter().filter_map(|message| {
            let RouteNetlinkMessage::NewLink(link) = message else { return None };
            let name = link.attributes.iter().find_map(|attribute| match attribute {
                LinkAttribute::IfName(name) => Some(name.clone()),
                _ => None,
            });
            Some((name?, self.read_link(link)))
        });
        Ok(named.collect())
    }

    /// Every address of the interface with this index, of all lengths.
    pub(super) fn addresses(&mut self, index: u32) -> io::Result<Vec<(IpAddr, Present)>> {
        let mut message = AddressMessage::default();
        message.header.index = index;
        let read = self.dump(&RouteNetlinkMessage::GetAddress(message))?;
        let of_interface = read.iter().filter_map(|message| match message {
            RouteNetlinkMessage::NewAddress(message) if message.header.index == index => {
                local_address(message).map(|address| (address, read_address(message)))
            }
            _ => None,
        });
        Ok(of_interface.collect())
    }

    /// All that a request for several answers.
    fn dump(&mut self, request: &RouteNetlinkMessage) -> io::Result<Vec<RouteNetlinkMessage>> {
        for _ in 0..ATTEMPTS {
            if let Some(whole) = self.dump_once(request.clone())? {
                return Ok(whole);
            }
        }
        Err(io::Error::new(io::ErrorKind::Interrupted, "there were changes during each attempt to read"))
    }

    fn dump_once(&mut self, request: RouteNetlinkMessage) -> io::Result<Option<Vec<RouteNetlinkMessage>>> {
        self.send(&[(request, NLM_F_DUMP)])?;
        let (mut read, mut interrupted) = (Vec::new(), false);
        loop {
            for response in self.receive()? {
                interrupted |= response.header.flags & NLM_F_DUMP_INTR != 0;
                match response.payload {
                    NetlinkPayload::InnerMessage(message) => read.push(message),
                    NetlinkPayload::Done(done) if done.code < 0 => return Err(io::Error::from_raw_os_error(-done.code)),
                    NetlinkPayload::Done(_) => return Ok((!interrupted).then_some(read)),
                    NetlinkPayload::Error(error) => return Err(error.to_io()),
                    _ => {}
                }
            }
        }
    }

    /// Makes these changes on the interface with this index; the outcome of each, in their order. The errors are the kernel's.
    pub(super) fn change(&mut self, index: u32, changes: &[Change]) -> io::Result<Vec<io::Result<()>>> {
        let requests: Vec<_> = changes.iter().map(|change| request(index, *change)).collect();
        self.carry_out(&requests)
    }

    /// Makes a link with a virtual router MAC, which is down. The kernel carries out both requests before anything can end this process, so that there is none
    /// without its alias.
    pub(super) fn add_link(&mut self, link: VirtualLink) -> io::Result<()> {
        let mut ipv4 = InetDevConf::default();
        // Packets from clients come here, and the way back to them is the interface: loose, whatever counts for all interfaces (RFC 3704 §2.4).
        (ipv4.rp_filter, ipv4.arp_ignore) = (2, 1);
        let own = vec![
            AfSpecUnspec::Inet(vec![AfSpecInet::DevConfRequest(ipv4)]),
            AfSpecUnspec::Inet6(vec![AfSpecInet6::AddrGenMode(In6AddrGenMode::None)]),
        ];
        // In no other mode would the interface hear another router that is Active too: what comes from the MAC of a link would be for that link alone.
        let kind = LinkMacVlan::new(&link.name(), link.parent, MacVlanMode::Bridge);
        let made = kind.address(link.mac().to_vec()).build();
        // A link that is being made has no settings yet.
        let mut set = LinkMessage::default();
        set.attributes.extend([LinkAttribute::IfName(link.name()), LinkAttribute::AfSpecUnspec(own)]);
        set.attributes.extend(self.alias.clone().map(LinkAttribute::IfAlias));
        let requests =
            [(RouteNetlinkMessage::NewLink(made), NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL), (RouteNetlinkMessage::SetLink(set), NLM_F_ACK)];
        let outcomes = self.carry_out(&requests)?;
        if let [Ok(()), Err(_)] = outcomes.as_slice()
            && let Some(incomplete) = self.link(&link.name())?
        {
            self.remove_link(incomplete.index)?;
        }
        outcomes.into_iter().collect()
    }

    /// Lets packets in and out, or not.
    pub(super) fn set_up(&mut self, index: u32, up: bool) -> io::Result<()> {
        let mut message = LinkMessage::default();
        message.header.index = index;
        message.header.change_mask = LinkFlags::Up;
        message.header.flags = if up { LinkFlags::Up } else { LinkFlags::empty() };
        self.acknowledged(RouteNetlinkMessage::SetLink(message))
    }

    /// Removes a link, and what is on it, where it is there.
    pub(super) fn remove_link(&mut self, index: u32) -> io::Result<()> {
        let mut message = LinkMessage::default();
        message.header.index = index;
        self.acknowledged(RouteNetlinkMessage::DelLink(message))
            .or_else(|error| if error.raw_os_error() == Some(Errno::ENODEV as i32) { Ok(()) } else { Err(error) })
    }

    fn acknowledged(&mut self, request: RouteNetlinkMessage) -> io::Result<()> {
        self.carry_out(&[(request, NLM_F_ACK)])?.into_iter().collect()
    }

    /// The outcome of each request, in their order. The errors are the kernel's.
    fn carry_out(&mut self, requests: &[(RouteNetlinkMessage, u16)]) -> io::Result<Vec<io::Result<()>>> {
        let first = self.send(requests)?;
        let mut outcomes: Vec<Option<io::Result<()>>> = requests.iter().map(|_| None).collect();
        while outcomes.iter().any(Option::is_none) {
            for response in self.receive()? {
                let NetlinkPayload::Error(error) = &response.payload else { continue };
                let at = usize::try_from(response.header.sequence_number.wrapping_sub(first)).unwrap_or(usize::MAX);
                if let Some(outcome) = outcomes.get_mut(at) {
                    *outcome = Some(if error.code.is_some() { Err(error.to_io()) } else { Ok(()) });
                }
            }
        }
        Ok(outcomes.into_iter().flatten().collect())
    }

    /// Sends requests as one; the number of the first.
    fn send(&mut self, requests: &[(RouteNetlinkMessage, u16)]) -> io::Result<u32> {
        let first = self.sequence.wrapping_add(1);
        let mut octets = Vec::new();
        for (message, flags) in requests {
            self.sequence = self.sequence.wrapping_add(1);
            let mut header = NetlinkHeader::default();
            header.flags = NLM_F_REQUEST | flags;
            header.sequence_number = self.sequence;
            let mut message = NetlinkMessage::new(header, NetlinkPayload::from(message.clone()));
            message.finalize();
            let at = octets.len();
            octets.resize(at + message.buffer_len().next_multiple_of(4), 0);
            message.serialize(octets.get_mut(at..).unwrap_or_default());
        }
        self.socket.send(&octets, 0)?;
        Ok(first)
    }

    fn read_link(&self, link: &LinkMessage) -> Link {
        let mac = link.attributes.iter().find_map(|attribute| match attribute {
            LinkAttribute::Address(octets) => <[u8; 6]>::try_from(octets.as_slice()).ok(),
            _ => None,
        });
        let parent = link.attributes.iter().find_map(|attribute| match attribute {
            LinkAttribute::Link(index) => Some(*index),
            _ => None,
        });
        let alias = link.attributes.iter().find_map(|attribute| match attribute {
            LinkAttribute::IfAlias(alias) => Some(alias),
            _ => None,
        });
        let flags = link.header.flags;
        let (running, up) = (flags.contains(LinkFlags::Up | LinkFlags::Running), flags.contains(LinkFlags::Up));
        Link { index: link.header.index, running, up, mac, parent, ours: alias.is_some() && alias == self.alias.as_ref() }
    }

    fn receive(&self) -> io::Result<Vec<NetlinkMessage<RouteNetlinkMessage>>> {
        let (datagram, _) = self.socket.recv_from_full()?;
        let mut messages = Vec::new();
        for octets in split(&datagram) {
            let message = NetlinkMessage::deserialize(octets).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
            messages.push(message);
        }
        Ok(messages)
    }
}

fn request(index: u32, change: Change) -> (RouteNetlinkMessage, u16) {
    match change {
        Change::Add(address) => {
            (RouteNetlinkMessage::NewAddress(marked_host_address(index, address)), NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL)
        }
        Change::Remove(address) => (RouteNetlinkMessage::DelAddress(host_address(index, address)), NLM_F_ACK),
    }
}

fn read_address(message: &AddressMessage) -> Present {
    let flags = message.header.flags;
    Present {
        prefix_length: message.header.prefix_len,
        protocol: protocol(message),
        usable: !flags.intersects(AddressHeaderFlags::Tentative | AddressHeaderFlags::Dadfailed),
        lasting: !(flags.contains(AddressHeaderFlags::Deprecated) || is_ipv6(message) && flags.contains(AddressHeaderFlags::Secondary)),
    }
}

fn is_ipv6(message: &AddressMessage) -> bool {
    local_address(message).is_some_and(|address| address.is_ipv6())
}

/// The messages of one datagram.
fn split(datagram: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = datagram;
    std::iter::from_fn(move || {
        let length = usize::try_from(NetlinkBuffer::new_checked(rest).ok()?.length()).ok()?;
        let message = rest.get(..length)?;
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some(message)
    })
}

/// What others have changed since it was asked last.
#[derive(Debug, Default, Eq, PartialEq)]
pub(super) struct Told {
    /// Some interface.
    pub(super) links: bool,
    /// Addresses of the interfaces with these indices.
    pub(super) addresses: BTreeSet<u32>,
    /// Anything: notifications were lost.
    pub(super) lost: bool,
}

/// The subscription to notifications.
pub(super) struct Monitor {
    socket: Socket,
}

impl Monitor {
    pub(super) fn subscribe() -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.bind_auto()?;
        socket.set_non_blocking(true)?;
        socket.set_rx_buf_sz(RECEIVE_BUFFER)?;
        for group in [MulticastGroup::Link, MulticastGroup::Ipv4Ifaddr, MulticastGroup::Ipv6Ifaddr] {
            socket.add_membership(group as u32)?;
        }
        Ok(Self { socket })
    }

    /// What was told since the last call; what comes from the netlink port `own` is no news.
    pub(super) fn told(&self, own: u32) -> Told {
        let mut told = Told::default();
        let mut datagram = Vec::with_capacity(DATAGRAM);
        for _ in 0..COLLECTED {
            datagram.clear();
            match self.socket.recv(&mut datagram, 0) {
                Ok(_) => split(&datagram).for_each(|message| told.take(message, own)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(_) => told.lost = true,
            }
        }
        told
    }
}

impl Told {
    fn take(&mut self, message: &[u8], own: u32) {
        let Ok(buffer) = NetlinkBuffer::new_checked(message) else { return };
        match buffer.message_type() {
            RTM_NEWLINK | RTM_DELLINK => self.links = true,
            RTM_NEWADDR | RTM_DELADDR if buffer.port_number() != own => {
                let index = buffer.payload().get(INDEX).and_then(|octets| <[u8; 4]>::try_from(octets).ok());
                self.addresses.extend(index.map(u32::from_ne_bytes));
            }
            _ => {}
        }
    }
}

impl AsFd for Monitor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
