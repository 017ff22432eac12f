// SPDX-License-Identifier: Apache-2.0
//! Raw ICMPv6 sockets (RFC 3542 §3): which types of messages they take, and how far a message has come.

use std::io;
use std::mem::size_of;
use std::net::Ipv6Addr;
use std::os::fd::{AsRawFd as _, BorrowedFd};

/// `ICMPV6_FILTER` of `linux/icmpv6.h`.
const ICMPV6_FILTER: libc::c_int = 1;

/// One message and where it comes from.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Icmpv6Message {
    /// Octets of the message in the buffer; a longer one is cut.
    pub length: usize,
    /// The source address.
    pub source: Ipv6Addr,
    /// The hop limit that it came with; `None` where the socket does not have `IPV6_RECVHOPLIMIT`.
    pub hop_limit: Option<u8>,
}

/// Room for `IPV6_HOPLIMIT`, aligned as the kernel wants it.
#[repr(C, align(8))]
struct Control([u8; 64]);

/// From now on the socket takes messages of these types only (RFC 3542 §3.2).
///
/// # Errors
/// What `setsockopt` reports: the descriptor is no raw ICMPv6 socket, or is closed.
pub fn take_only_icmpv6_types(socket: BorrowedFd<'_>, types: &[u8]) -> io::Result<()> {
    // A bit that is set blocks its type.
    let mut filter = [u32::MAX; 8];
    for message_type in types {
        if let Some(word) = filter.get_mut(usize::from(message_type >> 5)) {
            *word &= !(1 << (message_type & 31));
        }
    }
    // SAFETY: the descriptor is open for the length of the borrow; the kernel reads `struct icmp6_filter`, eight words that live until then.
    let status = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_ICMPV6,
            ICMPV6_FILTER,
            (&raw const filter).cast(),
            size_of::<[u32; 8]>() as libc::socklen_t,
        )
    };
    if status < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Takes the next message; its ICMPv6 checksum is right, since the kernel drops others.
///
/// # Errors
/// What `recvmsg` reports; [`io::ErrorKind::WouldBlock`] where the socket does not block and no message is there.
pub fn receive_icmpv6(socket: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<Icmpv6Message> {
    // SAFETY: all zeroes is a value of these structures of integers and null pointers.
    let (mut name, mut header) = unsafe { (std::mem::zeroed::<libc::sockaddr_in6>(), std::mem::zeroed::<libc::msghdr>()) };
    let mut control = Control([0; 64]);
    let mut part = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    header.msg_name = (&raw mut name).cast();
    header.msg_namelen = size_of::<libc::sockaddr_in6>() as libc::socklen_t;
    header.msg_iov = &raw mut part;
    header.msg_iovlen = 1;
    header.msg_control = (&raw mut control.0).cast();
    header.msg_controllen = control.0.len() as _;
    // SAFETY: the descriptor is open for the length of the borrow; the header describes memory that is ours to write and lives until then.
    let length = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut header, 0) };
    let length = usize::try_from(length).map_err(|_negative| io::Error::last_os_error())?;
    Ok(Icmpv6Message { length, source: Ipv6Addr::from(name.sin6_addr.s6_addr), hop_limit: hop_limit(&header) })
}

fn hop_limit(header: &libc::msghdr) -> Option<u8> {
    // SAFETY: the kernel filled in the header of the caller; the macros stay within `msg_controllen` octets of it.
    let mut next = unsafe { libc::CMSG_FIRSTHDR(header) };
    while !next.is_null() {
        // SAFETY: as above; a message of this level and type carries one int, which may not be aligned.
        unsafe {
            if (*next).cmsg_level == libc::IPPROTO_IPV6 && (*next).cmsg_type == libc::IPV6_HOPLIMIT {
                return u8::try_from(libc::CMSG_DATA(next).cast::<libc::c_int>().read_unaligned()).ok();
            }
            next = libc::CMSG_NXTHDR(header, next);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddrV6;
    use std::os::fd::AsFd as _;
    use std::time::Duration;

    use socket2::{Domain, Protocol, Socket, Type};

    use super::*;

    const ECHO_REQUEST: u8 = 128;
    const ROUTER_SOLICITATION: u8 = 133;

    fn socket() -> Socket {
        Socket::new(Domain::IPV6, Type::RAW, Some(Protocol::ICMPV6)).expect("this test needs a raw socket: run it as root")
    }

    #[test]
    fn rfc3542_3_messages_of_the_wanted_types_arrive_with_their_hop_limit() {
        let (receiver, sender) = (socket(), socket());
        receiver.set_recv_hoplimit_v6(true).unwrap();
        receiver.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        take_only_icmpv6_types(receiver.as_fd(), &[ROUTER_SOLICITATION]).unwrap();
        let to = SocketAddrV6::new(Ipv6Addr::LOCALHOST, 0, 0, 0).into();
        sender.send_to(&[ECHO_REQUEST, 0, 0, 0, 0, 0, 0, 0], &to).unwrap();
        sender.set_unicast_hops_v6(77).unwrap();
        sender.send_to(&[ROUTER_SOLICITATION, 0, 0, 0, 0, 0, 0, 9], &to).unwrap();
        let mut buffer = [0; 64];
        let message = receive_icmpv6(receiver.as_fd(), &mut buffer).unwrap();
        assert_eq!(message, Icmpv6Message { length: 8, source: Ipv6Addr::LOCALHOST, hop_limit: Some(77) });
        assert_eq!((buffer[0], buffer[7]), (ROUTER_SOLICITATION, 9));
        receiver.set_nonblocking(true).unwrap();
        assert_eq!(receive_icmpv6(receiver.as_fd(), &mut buffer).unwrap_err().kind(), io::ErrorKind::WouldBlock, "the echo was not wanted");
    }

    #[test]
    fn refused_on_a_file() {
        let file = std::fs::File::open("/dev/null").unwrap();
        assert!(take_only_icmpv6_types(file.as_fd(), &[]).is_err());
        assert!(receive_icmpv6(file.as_fd(), &mut [0; 8]).is_err());
    }
}
