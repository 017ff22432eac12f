// SPDX-License-Identifier: Apache-2.0
//! Raw ICMPv6 sockets (RFC 3542 §3): which types of messages they take.

use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd as _, BorrowedFd};

/// `ICMPV6_FILTER` of `linux/icmpv6.h`.
const ICMPV6_FILTER: libc::c_int = 1;

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

#[cfg(test)]
mod tests {
    use std::net::{Ipv6Addr, SocketAddrV6};
    use std::os::fd::AsFd as _;
    use std::time::Duration;

    use socket2::{Domain, Protocol, Socket, Type};

    use super::*;
    use crate::raw_ipv6::{RawIpv6Message, receive_destination_v6, receive_raw_ipv6};

    const ECHO_REQUEST: u8 = 128;
    const ROUTER_SOLICITATION: u8 = 133;

    fn socket() -> Socket {
        Socket::new(Domain::IPV6, Type::RAW, Some(Protocol::ICMPV6)).expect("this test needs a raw socket: run it as root")
    }

    #[test]
    fn rfc3542_3_messages_of_the_wanted_types_arrive_with_hop_limit_and_destination() {
        let (receiver, sender) = (socket(), socket());
        receiver.set_recv_hoplimit_v6(true).unwrap();
        receive_destination_v6(receiver.as_fd()).unwrap();
        receiver.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        take_only_icmpv6_types(receiver.as_fd(), &[ROUTER_SOLICITATION]).unwrap();
        let to = SocketAddrV6::new(Ipv6Addr::LOCALHOST, 0, 0, 0).into();
        sender.send_to(&[ECHO_REQUEST, 0, 0, 0, 0, 0, 0, 0], &to).unwrap();
        sender.set_unicast_hops_v6(77).unwrap();
        sender.send_to(&[ROUTER_SOLICITATION, 0, 0, 0, 0, 0, 0, 9], &to).unwrap();
        let mut buffer = [0; 64];
        let message = receive_raw_ipv6(receiver.as_fd(), &mut buffer).unwrap();
        assert_eq!(
            message,
            RawIpv6Message { length: 8, source: Ipv6Addr::LOCALHOST, destination: Some(Ipv6Addr::LOCALHOST), hop_limit: Some(77) }
        );
        assert_eq!((buffer[0], buffer[7]), (ROUTER_SOLICITATION, 9));
        receiver.set_nonblocking(true).unwrap();
        assert_eq!(
            receive_raw_ipv6(receiver.as_fd(), &mut buffer).unwrap_err().kind(),
            io::ErrorKind::WouldBlock,
            "the echo was not wanted"
        );
    }

    #[test]
    fn refused_on_a_file() {
        let file = std::fs::File::open("/dev/null").unwrap();
        assert!(take_only_icmpv6_types(file.as_fd(), &[]).is_err());
        assert!(receive_raw_ipv6(file.as_fd(), &mut [0; 8]).is_err());
        assert!(receive_destination_v6(file.as_fd()).is_err());
    }
}
