// SPDX-License-Identifier: Apache-2.0
//! What the kernel counts of one TCP connection (`TCP_INFO`, tcp(7)).

use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd};

/// Where `tcpi_segs_in` is in `struct tcp_info` of linux/tcp.h, which only grows at its end: eight octets, 24 numbers of four, four of eight, `tcpi_segs_out`.
const SEGMENTS_IN: usize = 8 + 24 * 4 + 4 * 8 + 4;

/// Up to the end of that.
const LENGTH: usize = SEGMENTS_IN + size_of::<u32>();

/// How many segments of the peer the connection has taken (RFC 4898, `tcpEStatsPerfSegsIn`), without data too. One whose signature is wrong is dropped before it is counted.
///
/// # Errors
/// What `getsockopt` reports: the descriptor is no TCP socket, or the kernel does not count (before Linux 4.2).
pub fn segments_received(socket: BorrowedFd<'_>) -> io::Result<u32> {
    let mut info = [0_u8; LENGTH];
    let mut length = LENGTH as libc::socklen_t;
    // SAFETY: the descriptor is open for the length of the borrow; the kernel writes at most `length` octets, which are there.
    let status =
        unsafe { libc::getsockopt(socket.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_INFO, info.as_mut_ptr().cast(), &raw mut length) };
    if status < 0 {
        return Err(io::Error::last_os_error());
    }
    if length as usize != LENGTH {
        return Err(io::ErrorKind::Unsupported.into());
    }
    let [.., a, b, c, d] = info;
    Ok(u32::from_ne_bytes([a, b, c, d]))
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd as _;
    use std::time::{Duration, Instant};

    use super::*;
    use crate::set_tcp_md5_key;

    #[test]
    fn what_is_signed_with_another_key_is_not_counted() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        set_tcp_md5_key(listener.as_fd(), address.ip(), 32, b"one").unwrap();
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
        set_tcp_md5_key(socket.as_fd(), address.ip(), 32, b"one").unwrap();
        socket.connect(&address.into()).unwrap();
        let mut client = TcpStream::from(socket);
        let (mut server, _) = listener.accept().unwrap();
        let grows = |client: &TcpStream, server: &mut TcpStream, time: Duration| {
            let before = segments_received(client.as_fd()).unwrap();
            server.write_all(b"segment").unwrap();
            let deadline = Instant::now() + time;
            while Instant::now() < deadline {
                if segments_received(client.as_fd()).unwrap() > before {
                    return true;
                }
                std::thread::sleep(Duration::from_millis(1));
            }
            false
        };
        assert!(grows(&client, &mut server, Duration::from_secs(10)));
        set_tcp_md5_key(client.as_fd(), address.ip(), 32, b"two").unwrap();
        client.write_all(b"nobody takes this").unwrap();
        assert!(!grows(&client, &mut server, Duration::from_secs(1)));
        set_tcp_md5_key(server.as_fd(), client.local_addr().unwrap().ip(), 32, b"two").unwrap();
        assert!(grows(&client, &mut server, Duration::from_secs(10)));
    }

    #[test]
    fn refused_on_a_file() {
        let file = std::fs::File::open("/dev/null").unwrap();
        assert!(segments_received(file.as_fd()).is_err());
    }
}
