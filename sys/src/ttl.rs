// SPDX-License-Identifier: Apache-2.0
//! The generalised TTL security mechanism (RFC 5082): packets that come from too far away are not taken.

use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd as _, BorrowedFd};

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
    fn refused_on_a_file() {
        let file = std::fs::File::open("/dev/null").unwrap();
        assert!(set_least_ttl_v4(file.as_fd(), 255).is_err());
    }
}
