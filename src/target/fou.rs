// SPDX-License-Identifier: Apache-2.0
//! The kernel's receivers of tunnels over UDP: its generic-netlink family `fou`, of which three commands are needed.
//!
//! Input: a UDP port and a family. Output: whether a receiver of Generic UDP Encapsulation is there, or one more or less. The kernel hands what it
//! unwraps to the protocol that the packet names: IP in IP, and so to the tunnel device.

use std::io;

use netlink_packet_route::AddressFamily;
use netlink_sys::protocols::NETLINK_GENERIC;
use netlink_sys::{Socket, SocketAddr};
use nix::errno::Errno;

/// `linux/genetlink.h`: the family that tells the numbers of all others.
const CONTROL: u16 = 16;
const GET_FAMILY: u8 = 3;
const FAMILY_ID: u16 = 1;
const FAMILY_NAME: u16 = 2;

/// `linux/fou.h`.
const ADD: u8 = 1;
const DELETE: u8 = 2;
const GET: u8 = 3;
const PORT: u16 = 1;
const FAMILY: u16 = 2;
const TYPE: u16 = 4;
const GUE: u8 = 2;

const REQUEST: u16 = 1;
const ACK: u16 = 4;
const ERROR: u16 = 2;
/// Of a netlink message, and with that of a generic one.
const HEADER: usize = 16;
const HEADERS: usize = 20;

/// Whether tunnels to this port are taken.
pub(super) fn is_open(port: u16, ipv6: bool) -> io::Result<bool> {
    match request(GET, port, ipv6) {
        Ok(()) => Ok(true),
        Err(error) if error.raw_os_error() == Some(Errno::ESRCH as i32) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Takes them from now on.
pub(super) fn open(port: u16, ipv6: bool) -> io::Result<()> {
    request(ADD, port, ipv6)
}

/// Takes no more.
pub(super) fn close(port: u16, ipv6: bool) -> io::Result<()> {
    request(DELETE, port, ipv6)
}

fn request(command: u8, port: u16, ipv6: bool) -> io::Result<()> {
    let mut socket = Socket::new(NETLINK_GENERIC)?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    let name = attribute(FAMILY_NAME, b"fou\0");
    let answer = ask(&socket, CONTROL, GET_FAMILY, &name)?;
    let family = number_of_family(&answer).ok_or_else(|| io::Error::from(Errno::ENOENT))?;
    let address_family = u8::from(if ipv6 { AddressFamily::Inet6 } else { AddressFamily::Inet });
    let of_port = [attribute(PORT, &port.to_be_bytes()), attribute(FAMILY, &[address_family]), attribute(TYPE, &[GUE])].concat();
    ask(&socket, family, command, &of_port).map(drop)
}

/// The payload of the answer; empty where the kernel only says that all is well.
fn ask(socket: &Socket, family: u16, command: u8, attributes: &[u8]) -> io::Result<Vec<u8>> {
    let length = u32::try_from(HEADERS + attributes.len()).map_err(io::Error::other)?;
    let mut message = length.to_ne_bytes().to_vec();
    message.extend(family.to_ne_bytes());
    message.extend((REQUEST | ACK).to_ne_bytes());
    message.extend([1, 0, 0, 0, 0, 0, 0, 0]);
    message.extend([command, 1, 0, 0]);
    message.extend(attributes);
    socket.send(&message, 0)?;
    let mut answer = Vec::new();
    loop {
        let (datagram, _) = socket.recv_from_full()?;
        let mut rest = datagram.as_slice();
        while let Some((message, next)) = next_message(rest) {
            rest = next;
            if message.get(4..6) != Some(&ERROR.to_ne_bytes()[..]) {
                answer = message.get(HEADERS..).unwrap_or_default().to_vec();
                continue;
            }
            let code = message.get(HEADER..).and_then(|payload| payload.first_chunk()).map_or(0, |code| i32::from_ne_bytes(*code));
            return if code == 0 { Ok(answer) } else { Err(io::Error::from_raw_os_error(-code)) };
        }
    }
}

/// The first message of a datagram, and what follows it.
fn next_message(datagram: &[u8]) -> Option<(&[u8], &[u8])> {
    let length = usize::try_from(u32::from_ne_bytes(*datagram.first_chunk()?)).ok()?;
    let message = datagram.get(..length).filter(|message| message.len() >= HEADER)?;
    Some((message, datagram.get(length.next_multiple_of(4)..).unwrap_or_default()))
}

fn number_of_family(attributes: &[u8]) -> Option<u16> {
    let mut rest = attributes;
    loop {
        let (length, kind) = (u16::from_ne_bytes(*rest.first_chunk()?), u16::from_ne_bytes(*rest.get(2..)?.first_chunk()?));
        if kind == FAMILY_ID {
            return Some(u16::from_ne_bytes(*rest.get(4..)?.first_chunk()?));
        }
        rest = rest.get(usize::from(length.max(4)).next_multiple_of(4)..)?;
    }
}

fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let length = u16::try_from(4 + value.len()).unwrap_or_default();
    let mut attribute = [length.to_ne_bytes(), kind.to_ne_bytes()].concat();
    attribute.extend(value);
    attribute.resize(attribute.len().next_multiple_of(4), 0);
    attribute
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_padded_and_found() {
        assert_eq!(attribute(FAMILY, &[2]), [&5_u16.to_ne_bytes()[..], &2_u16.to_ne_bytes(), &[2, 0, 0, 0]].concat());
        let answer = [attribute(FAMILY_NAME, b"fou\0"), attribute(FAMILY_ID, &33_u16.to_ne_bytes())].concat();
        assert_eq!(number_of_family(&answer), Some(33));
        for end in 0..answer.len() - 4 {
            assert_eq!(number_of_family(answer.get(..end).unwrap()), None);
        }
    }

    #[test]
    fn messages_of_a_datagram_are_taken_apart() {
        let message = |length: u32| [&length.to_ne_bytes()[..], &[0; 16]].concat();
        let datagram = [message(20), message(20)].concat();
        let (first, rest) = next_message(&datagram).unwrap();
        assert_eq!((first.len(), rest.len()), (20, 20));
        assert_eq!(next_message(&message(21)), None);
        assert_eq!(next_message(&message(3)), None);
        assert_eq!(next_message(&[]), None);
    }
}
