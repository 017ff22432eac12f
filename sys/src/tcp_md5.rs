// SPDX-License-Identifier: Apache-2.0
//! TCP-MD5 (RFC 2385): which key signs and checks the segments from and to a range of addresses.

use std::io;
use std::mem::size_of;
use std::net::IpAddr;
use std::os::fd::{AsRawFd as _, BorrowedFd};

/// The longest key that Linux takes, in octets.
pub const LONGEST_KEY: usize = libc::TCP_MD5SIG_MAXKEYLEN;

/// `tcpm_prefixlen` counts.
const TCP_MD5SIG_FLAG_PREFIX: u8 = 1;

/// `struct tcp_md5sig` of `linux/tcp.h`.
#[repr(C)]
struct TcpMd5Sig {
    address: libc::sockaddr_storage,
    flags: u8,
    prefix_length: u8,
    key_length: u16,
    interface: libc::c_int,
    key: [u8; LONGEST_KEY],
}

/// From now on segments from and to the addresses of this prefix need a signature by this key; an empty key takes the demand back. On a listener it
/// counts for connections that are made from now on; on a connection for all later segments. Of a link-local address the address alone counts,
/// whatever its interface. The longest prefix that fits decides.
///
/// # Errors
/// The kernel has no TCP-MD5, or refuses: then nothing is signed, and the socket must not be used. A key longer than [`LONGEST_KEY`], or a prefix
/// longer than the address, is [`io::ErrorKind::InvalidInput`].
pub fn set_tcp_md5_key(socket: BorrowedFd<'_>, address: IpAddr, prefix_length: u8, key: &[u8]) -> io::Result<()> {
    let longest = if address.is_ipv4() { 32 } else { 128 };
    let length = u16::try_from(key.len()).ok().filter(|_| key.len() <= LONGEST_KEY);
    let (Some(key_length), true) = (length, prefix_length <= longest) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let mut octets = [0; LONGEST_KEY];
    octets.iter_mut().zip(key).for_each(|(to, from)| *to = *from);
    let signature =
        TcpMd5Sig { address: storage(address), flags: TCP_MD5SIG_FLAG_PREFIX, prefix_length, key_length, interface: 0, key: octets };
    // SAFETY: the descriptor is open for the length of the borrow; the kernel reads `size_of::<TcpMd5Sig>()` octets of a value that lives until then.
    let status = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_MD5SIG_EXT,
            (&raw const signature).cast(),
            size_of::<TcpMd5Sig>() as libc::socklen_t,
        )
    };
    if status < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// The address without a port.
pub(crate) fn storage(address: IpAddr) -> libc::sockaddr_storage {
    // SAFETY: all zeroes is a value of this structure of integers.
    let mut storage: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
    match address {
        IpAddr::V4(address) => {
            let sin_addr = libc::in_addr { s_addr: u32::from_ne_bytes(address.octets()) };
            let value = libc::sockaddr_in { sin_family: libc::AF_INET as libc::sa_family_t, sin_port: 0, sin_addr, sin_zero: [0; 8] };
            // SAFETY: sockaddr_storage is larger than, and aligned for, every socket address.
            unsafe { (&raw mut storage).cast::<libc::sockaddr_in>().write(value) };
        }
        IpAddr::V6(address) => {
            let value = libc::sockaddr_in6 {
                sin6_family: libc::AF_INET6 as libc::sa_family_t,
                sin6_port: 0,
                sin6_flowinfo: 0,
                sin6_addr: libc::in6_addr { s6_addr: address.octets() },
                sin6_scope_id: 0,
            };
            // SAFETY: as above.
            unsafe { (&raw mut storage).cast::<libc::sockaddr_in6>().write(value) };
        }
    }
    storage
}

#[cfg(test)]
mod tests {
    use std::net::{SocketAddr, TcpListener, TcpStream};
    use std::os::fd::AsFd as _;
    use std::time::Duration;

    use socket2::{Domain, Socket, Type};

    use super::*;

    /// Whether a client with this key reaches a listener that demands one for the prefix.
    fn connects(listen: &str, prefix: (&str, u8), demanded: &[u8], given: &[u8]) -> bool {
        let listener = TcpListener::bind(listen).unwrap();
        let address: SocketAddr = listener.local_addr().unwrap();
        set_tcp_md5_key(listener.as_fd(), prefix.0.parse().unwrap(), prefix.1, demanded).unwrap();
        let client = Socket::new(Domain::for_address(address), Type::STREAM, None).unwrap();
        if !given.is_empty() {
            set_tcp_md5_key(client.as_fd(), address.ip(), if address.is_ipv4() { 32 } else { 128 }, given).unwrap();
        }
        client.connect_timeout(&address.into(), Duration::from_millis(300)).is_ok()
    }

    #[test]
    fn rfc2385_only_the_same_key_connects() {
        for (listen, prefix) in [("127.0.0.1:0", ("127.0.0.0", 8)), ("127.0.0.1:0", ("127.0.0.1", 32)), ("[::1]:0", ("::", 0))] {
            assert!(connects(listen, prefix, b"secret", b"secret"), "{listen}");
            assert!(!connects(listen, prefix, b"secret", b"Secret"), "{listen}");
            assert!(!connects(listen, prefix, b"secret", b""), "{listen}");
        }
        assert!(!connects("127.0.0.1:0", ("192.0.2.0", 24), b"secret", b"secret"), "the key is for others");
        assert!(connects("127.0.0.1:0", ("127.0.0.1", 32), &[7; LONGEST_KEY], &[7; LONGEST_KEY]));
    }

    #[test]
    fn an_empty_key_takes_the_demand_back() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let ours: IpAddr = "127.0.0.1".parse().unwrap();
        set_tcp_md5_key(listener.as_fd(), ours, 32, b"secret").unwrap();
        set_tcp_md5_key(listener.as_fd(), ours, 32, b"").unwrap();
        TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let ours: IpAddr = "127.0.0.1".parse().unwrap();
        for (length, key) in [(32, &[7; LONGEST_KEY + 1][..]), (33, b"secret")] {
            assert_eq!(set_tcp_md5_key(listener.as_fd(), ours, length, key).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        }
        let file = std::fs::File::open("/dev/null").unwrap();
        assert!(set_tcp_md5_key(file.as_fd(), ours, 32, b"secret").is_err());
    }
}
