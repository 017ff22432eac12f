// SPDX-License-Identifier: Apache-2.0
//! The generalised TTL security mechanism (RFC 5082): packets that come from too far away are not taken, and what the first packet of a connection that was
//! taken had is told.

use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd as _, BorrowedFd};

/// More than the headers of a SYN have: 40 octets of IPv6 or 60 of IPv4, extension headers, and 60 of TCP.
const SYN_HEADERS: usize = 1024;

/// From now on the socket takes no IPv4 packet with a TTL below this one (`IP_MINTTL`, ip(7)).
///
/// # Errors
/// What `setsockopt` reports: the descriptor is no IP socket, or is closed.
pub fn set_least_ttl_v4(socket: BorrowedFd<'_>, ttl: u8) -> io::Result<()> {
    set(socket, libc::IPPROTO_IP, libc::IP_MINTTL, ttl)
}

/// From now on the socket takes no IPv6 packet with a hop limit below this one (`IPV6_MINHOPCOUNT`).
///
/// # Errors
/// As of [`set_least_ttl_v4`].
pub fn set_least_hop_limit_v6(socket: BorrowedFd<'_>, hop_limit: u8) -> io::Result<()> {
    set(socket, libc::IPPROTO_IPV6, libc::IPV6_MINHOPCOUNT, hop_limit)
}

/// Lets the listening socket keep the headers of each SYN for the connection that comes of it (`TCP_SAVE_SYN`).
///
/// # Errors
/// What `setsockopt` reports: the descriptor is no TCP socket, or is closed.
pub fn keep_syns(listener: BorrowedFd<'_>) -> io::Result<()> {
    set(listener, libc::IPPROTO_TCP, libc::TCP_SAVE_SYN, 1)
}

/// The TTL or hop limit with which the SYN of an accepted connection came (`TCP_SAVED_SYN`). The kernel forgets it as it is read. `None` where it has none: it was
/// read before, the listener did not [`keep_syns`], or the connection came of a SYN cookie.
///
/// # Errors
/// What `getsockopt` reports: the descriptor is no TCP socket, or is closed.
pub fn ttl_of_syn(connection: BorrowedFd<'_>) -> io::Result<Option<u8>> {
    let mut headers = [0_u8; SYN_HEADERS];
    let mut length = headers.len() as libc::socklen_t;
    let (level, option) = (libc::IPPROTO_TCP, libc::TCP_SAVED_SYN);
    // SAFETY: the descriptor is open for the length of the borrow; the kernel writes at most `length` octets, which are there.
    let status = unsafe { libc::getsockopt(connection.as_raw_fd(), level, option, headers.as_mut_ptr().cast(), &raw mut length) };
    if status < 0 {
        return Err(io::Error::last_os_error());
    }
    let headers = headers.get(..length as usize).unwrap_or_default();
    // RFC 791 §3.1, RFC 8200 §3.
    Ok(match headers.first().map(|octet| octet >> 4) {
        Some(4) => headers.get(8).copied(),
        Some(6) => headers.get(7).copied(),
        _ => None,
    })
}

fn set(socket: BorrowedFd<'_>, level: libc::c_int, option: libc::c_int, value: u8) -> io::Result<()> {
    let value = libc::c_int::from(value);
    // SAFETY: the descriptor is open for the length of the borrow; the kernel reads one int that lives until then.
    let status = unsafe {
        libc::setsockopt(socket.as_raw_fd(), level, option, (&raw const value).cast(), size_of::<libc::c_int>() as libc::socklen_t)
    };
    if status < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use std::net::{SocketAddr, TcpListener};
    use std::os::fd::AsFd as _;
    use std::time::Duration;

    use socket2::{Domain, Socket, Type};

    use super::*;

    fn connects(listen: &str, ttl: u32) -> bool {
        let listener = TcpListener::bind(listen).unwrap();
        let address: SocketAddr = listener.local_addr().unwrap();
        let client = Socket::new(Domain::for_address(address), Type::STREAM, None).unwrap();
        if address.is_ipv4() {
            set_least_ttl_v4(listener.as_fd(), 254).unwrap();
            client.set_ttl_v4(ttl).unwrap();
        } else {
            set_least_hop_limit_v6(listener.as_fd(), 254).unwrap();
            client.set_unicast_hops_v6(ttl).unwrap();
        }
        client.connect_timeout(&address.into(), Duration::from_millis(300)).is_ok()
    }

    #[test]
    fn rfc5082_3_what_comes_from_too_far_is_dropped() {
        for listen in ["127.0.0.1:0", "[::1]:0"] {
            assert!(connects(listen, 255), "{listen}");
            assert!(connects(listen, 254), "{listen}");
            assert!(!connects(listen, 253), "{listen}");
        }
    }

    #[test]
    fn what_the_syn_had_is_told_once_whatever_came_later() {
        for (listen, ttl) in [("127.0.0.1:0", 255), ("127.0.0.1:0", 64), ("[::1]:0", 255), ("[::1]:0", 7)] {
            let listener = TcpListener::bind(listen).unwrap();
            keep_syns(listener.as_fd()).unwrap();
            let address: SocketAddr = listener.local_addr().unwrap();
            let client = Socket::new(Domain::for_address(address), Type::STREAM, None).unwrap();
            let set = |ttl| if address.is_ipv4() { client.set_ttl_v4(ttl) } else { client.set_unicast_hops_v6(ttl) };
            set(ttl).unwrap();
            client.connect(&address.into()).unwrap();
            set(128).unwrap();
            client.send(b"later").unwrap();
            let (accepted, _) = listener.accept().unwrap();
            assert_eq!(ttl_of_syn(accepted.as_fd()).unwrap().map(u32::from), Some(ttl), "{listen}");
            assert_eq!(ttl_of_syn(accepted.as_fd()).unwrap(), None, "{listen}");
        }
    }

    #[test]
    fn an_ipv4_syn_that_an_ipv6_socket_takes_has_its_own_header() {
        let listener = Socket::new(Domain::IPV6, Type::STREAM, None).unwrap();
        listener.set_only_v6(false).unwrap();
        listener.bind(&SocketAddr::from(([0_u16; 8], 0)).into()).unwrap();
        listener.listen(1).unwrap();
        keep_syns(listener.as_fd()).unwrap();
        let port = listener.local_addr().unwrap().as_socket().unwrap().port();
        let client = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        client.set_ttl_v4(33).unwrap();
        client.connect(&SocketAddr::from(([127, 0, 0, 1], port)).into()).unwrap();
        assert_eq!(ttl_of_syn(listener.accept().unwrap().0.as_fd()).unwrap(), Some(33));
    }

    #[test]
    fn refused_on_a_file() {
        let file = std::fs::File::open("/dev/null").unwrap();
        assert!(keep_syns(file.as_fd()).is_err() && ttl_of_syn(file.as_fd()).is_err());
        assert!(set_least_ttl_v4(file.as_fd(), 255).is_err());
    }
}
