// SPDX-License-Identifier: Apache-2.0
//! Raw IPv6 sockets (RFC 3542): what the header of a packet said, which such a socket does not give with the payload.

use std::io;
use std::mem::size_of;
use std::net::Ipv6Addr;
use std::os::fd::{AsRawFd as _, BorrowedFd};

/// The payload of one packet, and what its header says.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct RawIpv6Message {
    /// Octets of the payload in the buffer; a longer one is cut.
    pub length: usize,
    /// The source address.
    pub source: Ipv6Addr,
    /// The destination address; `None` where the socket was not [told](receive_destination_v6) to say it.
    pub destination: Option<Ipv6Addr>,
    /// The hop limit that it came with; `None` where the socket does not have `IPV6_RECVHOPLIMIT`.
    pub hop_limit: Option<u8>,
}

/// Room for `IPV6_HOPLIMIT` and `IPV6_PKTINFO`, aligned as the kernel wants it.
#[repr(C, align(8))]
struct Control([u8; 128]);

/// From now on messages come with their destination (`IPV6_RECVPKTINFO`, RFC 3542 §6.1).
///
/// # Errors
/// What `setsockopt` reports: the descriptor is no socket of IPv6, or is closed.
pub fn receive_destination_v6(socket: BorrowedFd<'_>) -> io::Result<()> {
    let on: libc::c_int = 1;
    // SAFETY: the descriptor is open for the length of the borrow; the kernel reads one int, which lives until then.
    let status = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_IPV6,
            libc::IPV6_RECVPKTINFO,
            (&raw const on).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    if status < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Takes the next message. Of ICMPv6 the checksum is right, since the kernel drops others.
///
/// # Errors
/// What `recvmsg` reports; [`io::ErrorKind::WouldBlock`] where the socket does not block and no message is there.
pub fn receive_raw_ipv6(socket: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<RawIpv6Message> {
    // SAFETY: all zeroes is a value of these structures of integers and null pointers.
    let (mut name, mut header) = unsafe { (std::mem::zeroed::<libc::sockaddr_in6>(), std::mem::zeroed::<libc::msghdr>()) };
    let mut control = Control([0; 128]);
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
    let mut message = RawIpv6Message { length, source: Ipv6Addr::from(name.sin6_addr.s6_addr), destination: None, hop_limit: None };
    take_control(&header, &mut message);
    Ok(message)
}

fn take_control(header: &libc::msghdr, message: &mut RawIpv6Message) {
    // SAFETY: the kernel filled in the header of the caller; the macros stay within `msg_controllen` octets of it.
    let mut next = unsafe { libc::CMSG_FIRSTHDR(header) };
    while !next.is_null() {
        // SAFETY: as above; a message of such a level and type carries one int or one `in6_pktinfo`, which may not be aligned.
        unsafe {
            match ((*next).cmsg_level, (*next).cmsg_type) {
                (libc::IPPROTO_IPV6, libc::IPV6_HOPLIMIT) => {
                    message.hop_limit = u8::try_from(libc::CMSG_DATA(next).cast::<libc::c_int>().read_unaligned()).ok();
                }
                (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
                    let info = libc::CMSG_DATA(next).cast::<libc::in6_pktinfo>().read_unaligned();
                    message.destination = Some(Ipv6Addr::from(info.ipi6_addr.s6_addr));
                }
                _ => {}
            }
            next = libc::CMSG_NXTHDR(header, next);
        }
    }
}
