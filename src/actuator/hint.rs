// SPDX-License-Identifier: Apache-2.0
//! Notifications of the kernel, as hints that it is time to read again.
//!
//! Input: two multicast netlink sockets, one for links and addresses, one for nftables. Output: whether something of ours may have changed, and
//! whether the record may have been changed by somebody else, or that of another instance. What exactly changed is never taken from here. Invariant: a
//! notification that was lost counts as a change.

use std::collections::BTreeSet;
use std::io;

use netlink_packet_core::{NetlinkBuffer, NlasIterator};
use netlink_sys::constants::{NETLINK_NETFILTER, NETLINK_ROUTE};
use netlink_sys::{AsyncSocket as _, AsyncSocketExt as _, SocketAddr, TokioSocket};
use rtnetlink::MulticastGroup;

use super::record::PLACED;

const NFNLGRP_NFTABLES: u32 = 7;
const RTM_NEWLINK: u16 = 16;
const RTM_DELLINK: u16 = 17;
const RTM_NEWADDR: u16 = 20;
const RTM_DELADDR: u16 = 21;
const IFLA_IFNAME: u16 = 3;
const LINK_HEADER: usize = 16;
const NFNL_SUBSYS_NFTABLES: u16 = 10;
const NFT_MSG_NEWGEN: u16 = 15;
const NFT_MSG_NEWSET: u16 = 9;
/// The attribute that names the table, the same number in every message but `NFT_MSG_NEWGEN`.
const NFTA_TABLE: u16 = 1;
const NFTA_SET_NAME: u16 = 2;
const NFPROTO_INET: u8 = 1;
const NFGENMSG: usize = 4;
/// Room for a burst, in octets. The kernel may grant less; what overflows is a change all the same.
const RECEIVE_BUFFER: i32 = 1 << 20;
const DATAGRAM: usize = 1 << 16;
/// Datagrams of a socket that are taken in one go, so that a flood cannot hold up the caller; the rest are hints for the next time.
const COLLECTED: usize = 20_000;

/// The subscriptions, and what they told since the last reading.
pub(super) struct Hints {
    route: TokioSocket,
    nft: TokioSocket,
    interface: String,
    table: String,
    /// Index of the interface when it was last seen, so that its renaming is noticed.
    pub(super) index: Option<u32>,
    /// An address or our interface changed.
    kernel: bool,
    /// Netlink ports from which our table was changed.
    ports: BTreeSet<u32>,
    /// The tables of other instances.
    others: BTreeSet<String>,
    /// One of them changed.
    others_changed: bool,
    /// Notifications of nftables were lost.
    lost: bool,
}

/// What the notifications told.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Told {
    /// An address or our interface changed.
    pub(super) kernel: bool,
    /// Somebody else changed our table.
    pub(super) record: bool,
    /// The record of another instance changed.
    pub(super) others: bool,
}

impl Hints {
    /// Subscribes in the current network namespace.
    pub(super) fn subscribe(interface: &str, table: &str) -> io::Result<Self> {
        let groups = [MulticastGroup::Link, MulticastGroup::Ipv4Ifaddr, MulticastGroup::Ipv6Ifaddr];
        Ok(Self {
            route: multicast(NETLINK_ROUTE, &groups.map(|group| group as u32))?,
            nft: multicast(NETLINK_NETFILTER, &[NFNLGRP_NFTABLES])?,
            interface: interface.to_owned(),
            table: table.to_owned(),
            index: None,
            kernel: false,
            ports: BTreeSet::new(),
            others: BTreeSet::new(),
            others_changed: false,
            lost: false,
        })
    }

    /// These tables are of other instances, as are those that get a set of our layout from now on.
    pub(super) fn follow(&mut self, others: &BTreeSet<String>) {
        self.others.extend(others.iter().cloned());
    }

    /// Waits until something is told that was not drained; what comes from one of the netlink ports `own` is no news. While those are not known
    /// (`None`), changes of the table are kept to be judged later. Cancel safe.
    pub(super) async fn told(&mut self, own: Option<&BTreeSet<u32>>) {
        while !(self.kernel || self.is_record_told(own) || self.are_others_told(own)) {
            let (mut route, mut nft) = (Vec::with_capacity(DATAGRAM), Vec::with_capacity(DATAGRAM));
            tokio::select! {
                received = self.route.recv_from(&mut route) => self.take_route(received.map(|_| route.as_slice())),
                received = self.nft.recv_from(&mut nft) => self.take_nft(received.map(|_| nft.as_slice())),
            }
        }
    }

    /// Whether a record of other instances changed, once nothing of ours is under way that reads them.
    const fn are_others_told(&self, own: Option<&BTreeSet<u32>>) -> bool {
        own.is_some() && self.others_changed
    }

    fn is_record_told(&self, own: Option<&BTreeSet<u32>>) -> bool {
        own.is_some_and(|own| self.lost || !self.ports.is_subset(own))
    }

    /// Takes what the kernel told of all that was done before this call, unless that is very much.
    pub(super) fn collect(&mut self) {
        let mut datagram = Vec::with_capacity(DATAGRAM);
        for _ in 0..COLLECTED {
            let Some(received) = receive_now(&self.route, &mut datagram) else { break };
            self.take_route(received.map(|()| datagram.as_slice()));
        }
        for _ in 0..COLLECTED {
            let Some(received) = receive_now(&self.nft, &mut datagram) else { break };
            self.take_nft(received.map(|()| datagram.as_slice()));
        }
    }

    /// What was told since the last time, with what is there now.
    pub(super) fn drain(&mut self, own: Option<&BTreeSet<u32>>) -> Told {
        self.collect();
        let (record, others) = (self.is_record_told(own), self.are_others_told(own));
        let told = Told { kernel: std::mem::take(&mut self.kernel), record, others };
        if own.is_some() {
            self.ports.clear();
            (self.lost, self.others_changed) = (false, false);
        }
        told
    }

    fn take_route(&mut self, datagram: io::Result<&[u8]>) {
        let Ok(datagram) = datagram else {
            self.kernel = true;
            return;
        };
        for message in messages(datagram) {
            self.kernel |= match message.message_type() {
                RTM_NEWADDR | RTM_DELADDR => true,
                RTM_NEWLINK | RTM_DELLINK => is_link(message.payload(), &self.interface, self.index),
                _ => false,
            };
        }
    }

    fn take_nft(&mut self, datagram: io::Result<&[u8]>) {
        let Ok(datagram) = datagram else {
            (self.lost, self.others_changed) = (true, true);
            return;
        };
        for message in messages(datagram) {
            let Some(table) = table_of(&message) else { continue };
            if table == self.table {
                self.ports.insert(message.port_number());
            } else if self.others.contains(&table) {
                self.others_changed |= is_of_record(&message);
            } else if makes_a_record(&message) {
                self.others.insert(table);
                self.others_changed = true;
            }
        }
    }
}

fn multicast(protocol: isize, groups: &[u32]) -> io::Result<TokioSocket> {
    let mut socket = TokioSocket::new(protocol)?;
    let inner = socket.socket_mut();
    inner.bind(&SocketAddr::new(0, 0))?;
    inner.set_rx_buf_sz(RECEIVE_BUFFER)?;
    for group in groups {
        inner.add_membership(*group)?;
    }
    Ok(socket)
}

/// `None` where nothing is there now.
fn receive_now(socket: &TokioSocket, datagram: &mut Vec<u8>) -> Option<io::Result<()>> {
    datagram.clear();
    match socket.socket_ref().recv_from(datagram, 0) {
        Ok(_) => Some(Ok(())),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => None,
        Err(error) => Some(Err(error)),
    }
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

/// Whether a link message is about the interface of that name, or the one that had it.
fn is_link(payload: &[u8], name: &str, index: Option<u32>) -> bool {
    let its_index = payload.get(4..8).and_then(|octets| octets.try_into().ok()).map(u32::from_ne_bytes);
    (index.is_some() && its_index == index) || names(payload, LINK_HEADER, IFLA_IFNAME, name)
}

/// The table of nft in which a message is about something.
fn table_of(message: &NetlinkBuffer<&[u8]>) -> Option<String> {
    let (subsystem, kind) = (message.message_type() >> 8, message.message_type() & 0xff);
    let is_of_nft = subsystem == NFNL_SUBSYS_NFTABLES && kind != NFT_MSG_NEWGEN;
    text(message.payload(), NFGENMSG, NFTA_TABLE).filter(|_| is_of_nft)
}

/// Whether its table is of the family of records.
fn is_of_record(message: &NetlinkBuffer<&[u8]>) -> bool {
    message.payload().first() == Some(&NFPROTO_INET)
}

/// Whether it tells of a set that only a record has.
fn makes_a_record(message: &NetlinkBuffer<&[u8]>) -> bool {
    let is_set = message.message_type() & 0xff == NFT_MSG_NEWSET;
    is_set && is_of_record(message) && names(message.payload(), NFGENMSG, NFTA_SET_NAME, PLACED.v4)
}

/// Whether the attribute behind a header of that length is this string.
fn names(payload: &[u8], header: usize, attribute: u16, name: &str) -> bool {
    text(payload, header, attribute).is_some_and(|text| text == name)
}

/// The string of an attribute behind a header of that length.
fn text(payload: &[u8], header: usize, attribute: u16) -> Option<String> {
    let attributes = payload.get(header..).unwrap_or_default();
    let found = NlasIterator::new(attributes).map_while(Result::ok).find(|nla| nla.kind() == attribute)?;
    String::from_utf8(found.value().split(|octet| *octet == 0).next()?.to_vec()).ok()
}

#[cfg(test)]
mod tests {
    use netlink_packet_core::{NLM_F_CREATE, NetlinkHeader, NetlinkMessage, NetlinkPayload};
    use netlink_packet_route::RouteNetlinkMessage;
    use netlink_packet_route::link::{LinkAttribute, LinkMessage};

    use super::*;

    fn link(index: u32, name: &str) -> Vec<u8> {
        let mut link = LinkMessage::default();
        link.header.index = index;
        link.attributes.push(LinkAttribute::IfName(name.to_owned()));
        let mut message = NetlinkMessage::new(NetlinkHeader::default(), NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewLink(link)));
        message.finalize();
        let mut octets = vec![0; message.buffer_len()];
        message.serialize(&mut octets);
        octets
    }

    fn nft(kind: u16, port: u32, table: &str) -> Vec<u8> {
        let name = [table.as_bytes(), &[0]].concat();
        let mut attribute = [u16::try_from(4 + name.len()).unwrap().to_ne_bytes(), NFTA_TABLE.to_ne_bytes()].concat();
        attribute.extend(&name);
        attribute.resize(attribute.len().next_multiple_of(4), 0);
        let mut octets = Vec::new();
        octets.extend(u32::try_from(20 + attribute.len()).unwrap().to_ne_bytes());
        octets.extend((NFNL_SUBSYS_NFTABLES << 8 | kind).to_ne_bytes());
        octets.extend(NLM_F_CREATE.to_ne_bytes());
        octets.extend([0; 4]);
        octets.extend(port.to_ne_bytes());
        octets.extend([1, 0, 0, 0]);
        octets.extend(attribute);
        octets
    }

    fn told(datagram: &[u8], index: Option<u32>) -> bool {
        messages(datagram).any(|message| is_link(message.payload(), "eth1", index))
    }

    #[test]
    fn a_link_counts_by_its_name_or_its_last_index() {
        assert!(told(&link(7, "eth1"), None));
        assert!(told(&link(7, "eth2"), Some(7)), "it was renamed");
        assert!(!told(&link(7, "eth10"), Some(8)));
        assert!(!told(&link(7, "eth"), None));
        assert!(told(&[link(7, "eth2"), link(8, "eth1")].concat(), None), "the second message of a datagram");
    }

    #[test]
    fn only_the_table_of_the_instance_counts() {
        let counts = |octets: &[u8]| messages(octets).any(|message| table_of(&message).is_some_and(|table| table == "vipherald"));
        assert!(counts(&nft(12, 1, "vipherald")));
        assert!(!counts(&nft(12, 1, "vipherald-2")));
        assert!(!counts(&nft(NFT_MSG_NEWGEN, 1, "vipherald")));
        assert!(!counts(&link(7, "vipherald")));
    }

    #[test]
    fn what_is_cut_short_is_read_up_to_there() {
        let whole = [link(7, "eth2"), link(8, "eth1")].concat();
        for end in 0..whole.len() {
            let _no_panic = told(&whole[..end], Some(9));
        }
        assert!(!told(&whole[..whole.len() - 8], None));
    }
}
