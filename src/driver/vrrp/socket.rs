// SPDX-License-Identifier: Apache-2.0
//! The raw sockets of one virtual router: protocol 112 on one interface (RFC 9568 §5.1).
//!
//! Input: the family, the interface, and how advertisements travel. Output: [`Datagram`]s as they came in, with what their headers say; packets with the
//! source, and the TTL or Hop Limit 255, that are wanted. What is sent has its header from us: the kernel chooses nothing of it.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddrV4, SocketAddrV6, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use socket2::{Domain, Protocol, SockRef, Socket, Type};
use vrrp::Family;
use vrrp::wire::{Datagram, Endpoints, PROTOCOL, TTL, multicast_frame};

/// Precedence "internetwork control" (RFC 791 §3.1), as routing protocols have it.
const TRAFFIC_CLASS: u8 = 0xC0;
/// `IPPROTO_RAW`: of this protocol nothing comes in, and headers are part of what is sent (raw(7)).
const IPPROTO_RAW: i32 = 255;
const IPV4_HEADER: usize = 20;
/// No advertisement is longer.
const LONGEST: usize = 2048;

/// See the module.
pub(super) struct RouterSocket {
    family: Family,
    index: u32,
    multicast: bool,
    receiver: UdpSocket,
    sender: Socket,
    /// Sends what goes to the group from the virtual router MAC.
    frames: Option<(OwnedFd, [u8; 6])>,
}

impl RouterSocket {
    /// Opens both on the interface of this name and index; `multicast` also takes what is sent to the group, and sends to it from `mac`, where that is
    /// not the MAC of the interface.
    pub(super) fn open(family: Family, name: &str, index: u32, multicast: bool, mac: Option<[u8; 6]>) -> io::Result<Self> {
        let domain = match family {
            Family::Ipv4 => Domain::IPV4,
            Family::Ipv6 => Domain::IPV6,
        };
        let kind = Type::RAW.nonblocking().cloexec();
        let receiver = Socket::new(domain, kind, Some(Protocol::from(i32::from(PROTOCOL))))?;
        receiver.bind_device(Some(name.as_bytes()))?;
        let sender = Socket::new(domain, kind, Some(Protocol::from(IPPROTO_RAW)))?;
        sender.bind_device(Some(name.as_bytes()))?;
        match family {
            Family::Ipv4 => {
                sender.set_multicast_loop_v4(false)?;
            }
            Family::Ipv6 => {
                sender.set_multicast_loop_v6(false)?;
                sender.set_multicast_if_v6(index)?;
                receiver.set_recv_hoplimit_v6(true)?;
                sys::receive_destination_v6(receiver.as_fd())?;
            }
        }
        if multicast {
            match family.multicast_group() {
                IpAddr::V4(group) => receiver.join_multicast_v4_n(&group, &socket2::InterfaceIndexOrAddress::Index(index))?,
                IpAddr::V6(group) => receiver.join_multicast_v6(&group, index)?,
            }
        }
        let frames = mac.map(|mac| Ok::<_, io::Error>((sys::frame_socket()?, mac))).transpose()?;
        Ok(Self { family, index, multicast, receiver: OwnedFd::from(receiver).into(), sender, frames })
    }

    /// Whether it takes what is sent to the group.
    pub(super) const fn is_multicast(&self) -> bool {
        self.multicast
    }

    /// The next packet; `None` while there is none.
    pub(super) fn receive(&self) -> io::Result<Option<Datagram>> {
        let mut buffer = [0; LONGEST];
        loop {
            let received = match self.family {
                Family::Ipv4 => self.receiver.recv(&mut buffer).map(|length| read_v4(buffer.get(..length).unwrap_or_default())),
                Family::Ipv6 => sys::receive_raw_ipv6(self.receiver.as_fd(), &mut buffer).map(|message| read_v6(&message, &buffer)),
            };
            match received {
                Ok(Some(datagram)) => return Ok(Some(datagram)),
                Ok(None) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(error) => return Err(error),
            }
        }
    }

    /// Sends a payload of protocol 112.
    pub(super) fn send(&self, endpoints: Endpoints, octets: &[u8]) -> io::Result<()> {
        let frame = self.frames.as_ref().and_then(|(frames, mac)| Some((frames, multicast_frame(*mac, endpoints, octets)?)));
        if let Some((frames, frame)) = frame {
            return sys::send_frame(frames.as_fd(), self.index, &frame);
        }
        let (packet, to) = match endpoints {
            Endpoints::V4 { source, destination } => (packet_v4(source, destination, octets), SocketAddrV4::new(destination, 0).into()),
            Endpoints::V6 { source, destination } => {
                (packet_v6(source, destination, octets), SocketAddrV6::new(destination, 0, 0, self.index).into())
            }
        };
        SockRef::from(&self.sender).send_to(&packet, &to).map(drop)
    }
}

impl AsFd for RouterSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.receiver.as_fd()
    }
}

/// A raw socket of IPv4 gives the header, too (RFC 791 §3.1).
fn read_v4(packet: &[u8]) -> Option<Datagram> {
    let (header, _) = packet.split_first_chunk::<IPV4_HEADER>()?;
    let length = usize::from(header[0] & 0x0F) * 4;
    let address = |at: usize| Some(Ipv4Addr::from_octets(*packet.get(at..)?.first_chunk()?));
    let endpoints = Endpoints::V4 { source: address(12)?, destination: address(16)? };
    Some(Datagram { endpoints, ttl: header[8], octets: packet.get(length..)?.to_vec() })
}

fn read_v6(message: &sys::RawIpv6Message, buffer: &[u8]) -> Option<Datagram> {
    let endpoints = Endpoints::V6 { source: message.source, destination: message.destination? };
    Some(Datagram { endpoints, ttl: message.hop_limit?, octets: buffer.get(..message.length)?.to_vec() })
}

/// RFC 791 §3.1; the kernel fills in total length, identification and checksum.
fn packet_v4(source: Ipv4Addr, destination: Ipv4Addr, payload: &[u8]) -> Vec<u8> {
    let header = [0x45, TRAFFIC_CLASS, 0, 0, 0, 0, 0, 0, TTL, PROTOCOL, 0, 0];
    [&header[..], &source.octets(), &destination.octets(), payload].concat()
}

/// RFC 8200 §3.
fn packet_v6(source: Ipv6Addr, destination: Ipv6Addr, payload: &[u8]) -> Vec<u8> {
    let length = u16::try_from(payload.len()).unwrap_or(u16::MAX).to_be_bytes();
    let header = [0x60 | TRAFFIC_CLASS >> 4, TRAFFIC_CLASS << 4, 0, 0, length[0], length[1], PROTOCOL, TTL];
    [&header[..], &source.octets(), &destination.octets(), payload].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rfc9568_5_1_what_is_sent_is_read_as_it_was() {
        let (source, destination) = (Ipv4Addr::new(10, 9, 0, 1), Ipv4Addr::new(224, 0, 0, 18));
        let datagram = read_v4(&packet_v4(source, destination, &[1, 2, 3])).unwrap();
        assert_eq!(datagram, Datagram { endpoints: Endpoints::V4 { source, destination }, ttl: 255, octets: vec![1, 2, 3] });
        let source = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);
        let packet = packet_v6(source, Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0x12), &[1, 2, 3]);
        assert_eq!(packet[..8], [0x6C, 0x00, 0, 0, 0, 3, 112, 255]);
        assert_eq!((&packet[8..24], &packet[40..]), (&source.octets()[..], &[1, 2, 3][..]));
    }

    #[test]
    fn rfc9568_5_1_what_is_sent_in_a_frame_is_read_alike() {
        let (source, destination) = (Ipv4Addr::new(10, 9, 0, 1), Ipv4Addr::new(224, 0, 0, 18));
        let endpoints = Endpoints::V4 { source, destination };
        let frame = multicast_frame([0; 6], endpoints, &[1, 2, 3]).unwrap();
        assert_eq!(read_v4(&frame[14..]), read_v4(&packet_v4(source, destination, &[1, 2, 3])));
        let (source, destination) = (Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1), Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0x12));
        let frame = multicast_frame([0; 6], Endpoints::V6 { source, destination }, &[1, 2, 3]).unwrap();
        assert_eq!(frame[14..], packet_v6(source, destination, &[1, 2, 3]));
    }

    #[test]
    fn options_are_not_taken_for_payload_and_what_is_cut_short_is_dropped() {
        let mut packet = packet_v4(Ipv4Addr::new(10, 9, 0, 1), Ipv4Addr::new(10, 9, 0, 2), &[0, 0, 0, 0, 7]);
        packet[0] = 0x46;
        assert_eq!(read_v4(&packet).unwrap().octets, [7]);
        packet[0] = 0x4F;
        assert_eq!((read_v4(&packet), read_v4(&packet[..19])), (None, None));
    }
}
