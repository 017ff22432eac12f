// SPDX-License-Identifier: Apache-2.0
//! The only `unsafe` of the project: system calls that no safe library offers, each behind one safe function.
#![allow(unsafe_code, reason = "this crate exists to hold the unsafe calls of the project")]

mod hosts;
mod icmpv6;
mod packet;
mod raw_ipv6;
mod tcp_ao;
mod tcp_info;
mod tcp_md5;
mod ttl;

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

pub use hosts::look_up_hosts_by_files_and_dns;
pub use icmpv6::take_only_icmpv6_types;
pub use packet::{frame_socket, send_frame};
pub use raw_ipv6::{RawIpv6Message, receive_destination_v6, receive_raw_ipv6};
pub use tcp_ao::{
    TcpAoAlgorithm, TcpAoKey, TcpAoKeyIds, add_tcp_ao_key, has_tcp_ao, remove_tcp_ao_key, request_tcp_ao_key, tcp_ao_in_use, tcp_ao_keys,
};
pub use tcp_info::segments_received;
pub use tcp_md5::{LONGEST_KEY, set_tcp_md5_key};
pub use ttl::{keep_syns, set_least_hop_limit_v6, set_least_ttl_v4, ttl_of_syn};

/// Octets in the TCP send queue that the peer has not acknowledged yet (`SIOCOUTQ`, tcp(7)).
///
/// # Errors
/// What `ioctl` reports: the descriptor is not a TCP socket, or is closed.
pub fn unacknowledged_octets(socket: BorrowedFd<'_>) -> io::Result<u32> {
    let mut octets: libc::c_int = 0;
    // SAFETY: the descriptor is open for the length of the borrow; TIOCOUTQ (= SIOCOUTQ) writes one int.
    let status = unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut octets) };
    if status < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(u32::try_from(octets).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd as _;

    use super::*;

    #[test]
    fn acknowledged_when_the_peer_has_it() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        client.write_all(b"hello").unwrap();
        let mut got = [0; 5];
        server.read_exact(&mut got).unwrap();
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(5);
        while unacknowledged_octets(client.as_fd()).unwrap() != 0 {
            assert!(std::time::Instant::now() < deadline, "never acknowledged");
            std::thread::yield_now();
        }
    }

    #[test]
    fn refused_on_a_file() {
        let file = std::fs::File::open("/dev/null").unwrap();
        assert!(unacknowledged_octets(file.as_fd()).is_err());
    }
}
