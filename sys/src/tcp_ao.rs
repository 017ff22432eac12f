// SPDX-License-Identifier: Apache-2.0
//! TCP-AO (RFC 5925, Linux 6.7 and newer): which keys sign and check the segments from and to a range of addresses.

use std::io;
use std::mem::size_of;
use std::net::{IpAddr, TcpListener};
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd};

use crate::tcp_md5::storage;

/// Options and sizes of `linux/tcp.h`.
const TCP_AO_ADD_KEY: libc::c_int = 38;
const TCP_AO_DEL_KEY: libc::c_int = 39;
const TCP_AO_INFO: libc::c_int = 40;
const TCP_AO_GET_KEYS: libc::c_int = 41;
const TCP_AO_MAXKEYLEN: usize = 80;

/// More keys than a socket of ours ever has.
const MOST_KEYS: usize = 300;

/// Bits of the first words of the structures, counted from their first member.
const SET_CURRENT: u32 = bit(0);
const SET_RNEXT: u32 = bit(1);
/// `get_all`, the third of 16.
const GET_ALL: u16 = if cfg!(target_endian = "little") { 1 << 2 } else { 1 << 13 };

const fn bit(number: u32) -> u32 {
    if cfg!(target_endian = "little") { 1 << number } else { 1 << (31 - number) }
}

/// How keys are derived and segments are signed (RFC 5926 §2.2), with 96 bits on the wire.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum TcpAoAlgorithm {
    /// HMAC-SHA-1-96.
    HmacSha1,
    /// AES-128-CMAC-96.
    Aes128Cmac,
}

impl TcpAoAlgorithm {
    /// As `crypto` of the kernel calls it.
    const fn name(self) -> &'static str {
        match self {
            Self::HmacSha1 => "hmac(sha1)",
            Self::Aes128Cmac => "cmac(aes128)",
        }
    }
}

/// The two numbers by which the ends name a master key tuple (RFC 5925 §3.1).
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct TcpAoKeyIds {
    /// KeyID of segments that we send.
    pub send: u8,
    /// KeyID of segments that we take.
    pub recv: u8,
}

/// A master key tuple without its addresses (RFC 5925 §3.1).
#[derive(Clone, Copy)]
pub struct TcpAoKey<'a> {
    /// Its numbers.
    pub ids: TcpAoKeyIds,
    /// How it signs.
    pub algorithm: TcpAoAlgorithm,
    /// The master key: 80 octets at most.
    pub key: &'a [u8],
}

#[repr(C, align(8))]
struct Add {
    address: libc::sockaddr_storage,
    algorithm: [u8; 64],
    interface: i32,
    flags: u32,
    reserved: u16,
    prefix_length: u8,
    send_id: u8,
    recv_id: u8,
    mac_length: u8,
    key_flags: u8,
    key_length: u8,
    key: [u8; TCP_AO_MAXKEYLEN],
}

#[repr(C, align(8))]
struct Delete {
    address: libc::sockaddr_storage,
    interface: i32,
    flags: u32,
    reserved: u16,
    prefix_length: u8,
    send_id: u8,
    recv_id: u8,
    current: u8,
    rnext: u8,
    key_flags: u8,
}

#[derive(Default)]
#[repr(C, align(8))]
struct Info {
    flags: u32,
    reserved: u16,
    current: u8,
    rnext: u8,
    counters: [u64; 5],
}

#[derive(Clone, Copy)]
#[repr(C, align(8))]
struct Listed {
    address: libc::sockaddr_storage,
    algorithm: [u8; 64],
    key: [u8; TCP_AO_MAXKEYLEN],
    count: u32,
    flags: u16,
    send_id: u8,
    recv_id: u8,
    prefix_length: u8,
    mac_length: u8,
    key_flags: u8,
    key_length: u8,
    interface: i32,
    good: u64,
    bad: u64,
}

/// Whether this kernel has TCP-AO.
///
/// # Errors
/// No socket can be made.
pub fn has_tcp_ao() -> io::Result<bool> {
    let socket = TcpListener::bind(("127.0.0.1", 0)).or_else(|_| TcpListener::bind(("::1", 0)))?;
    Ok(info(socket.as_fd()).err().is_some_and(|error| error.raw_os_error() == Some(libc::ENOENT)))
}

/// Adds a key for the addresses of this prefix. On a listener it counts for connections that are made from now on; a fresh socket signs with the first
/// key that was added, unless a `preferred` one comes.
///
/// # Errors
/// The kernel has no TCP-AO ([`libc::ENOPROTOOPT`]), or refuses: then nothing is signed, and the socket must not be used. A key that is too long, or a
/// prefix longer than the address, is [`io::ErrorKind::InvalidInput`]; [`io::ErrorKind::AlreadyExists`] where one of its numbers is taken.
pub fn add_tcp_ao_key(socket: BorrowedFd<'_>, address: IpAddr, prefix_length: u8, key: &TcpAoKey<'_>, preferred: bool) -> io::Result<()> {
    let longest = if address.is_ipv4() { 32 } else { 128 };
    let length = u8::try_from(key.key.len()).ok().filter(|_| key.key.len() <= TCP_AO_MAXKEYLEN);
    let (Some(key_length), true) = (length, prefix_length <= longest) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let mut add = Add {
        address: storage(address),
        algorithm: [0; 64],
        interface: 0,
        flags: if preferred { SET_CURRENT | SET_RNEXT } else { 0 },
        reserved: 0,
        prefix_length,
        send_id: key.ids.send,
        recv_id: key.ids.recv,
        mac_length: 12,
        key_flags: 0,
        key_length,
        key: [0; TCP_AO_MAXKEYLEN],
    };
    add.algorithm.iter_mut().zip(key.algorithm.name().bytes()).for_each(|(to, from)| *to = from);
    add.key.iter_mut().zip(key.key).for_each(|(to, from)| *to = *from);
    set(socket, TCP_AO_ADD_KEY, &add)
}

/// Takes a key away. Where the connection uses it, `instead` is used from then on.
///
/// # Errors
/// There is none of these numbers, or it is in use and nothing is to be used instead ([`io::ErrorKind::ResourceBusy`]).
pub fn remove_tcp_ao_key(
    socket: BorrowedFd<'_>,
    address: IpAddr,
    prefix_length: u8,
    ids: TcpAoKeyIds,
    instead: Option<TcpAoKeyIds>,
) -> io::Result<()> {
    let delete = Delete {
        address: storage(address),
        interface: 0,
        flags: if instead.is_some() { SET_CURRENT | SET_RNEXT } else { 0 },
        reserved: 0,
        prefix_length,
        send_id: ids.send,
        recv_id: ids.recv,
        current: instead.map_or(0, |ids| ids.send),
        rnext: instead.map_or(0, |ids| ids.recv),
        key_flags: 0,
    };
    set(socket, TCP_AO_DEL_KEY, &delete)
}

/// Asks the peer of a connection to sign with the key of this RecvID from now on (RNextKeyID, RFC 5925 §7.5); it goes on as before where it has none.
///
/// # Errors
/// The connection has no such key, or no TCP-AO.
pub fn request_tcp_ao_key(socket: BorrowedFd<'_>, recv_id: u8) -> io::Result<()> {
    set(socket, TCP_AO_INFO, &Info { flags: SET_RNEXT, rnext: recv_id, ..Info::default() })
}

/// The numbers of the keys that the connection signs with now and asks for; `None` where it is not one of TCP-AO, or never will be.
#[must_use]
pub fn tcp_ao_in_use(socket: BorrowedFd<'_>) -> Option<TcpAoKeyIds> {
    let info = info(socket).ok()?;
    (info.flags & SET_CURRENT != 0 && info.flags & SET_RNEXT != 0).then_some(TcpAoKeyIds { send: info.current, recv: info.rnext })
}

/// The numbers of all keys of a socket; none where it has no TCP-AO.
///
/// # Errors
/// The kernel has no TCP-AO, or the descriptor is no TCP socket.
pub fn tcp_ao_keys(socket: BorrowedFd<'_>) -> io::Result<Vec<TcpAoKeyIds>> {
    // SAFETY: all zeroes is a value of this structure of integers.
    let mut listed = vec![unsafe { std::mem::zeroed::<Listed>() }; MOST_KEYS];
    if let Some(first) = listed.first_mut() {
        first.count = MOST_KEYS as u32;
        first.flags = GET_ALL;
    }
    let mut length = size_of::<Listed>() as libc::socklen_t;
    // SAFETY: the descriptor is open for the length of the borrow; the kernel reads the first element, and writes `count` of them at most, each of the
    // length that is given.
    let status =
        unsafe { libc::getsockopt(socket.as_raw_fd(), libc::IPPROTO_TCP, TCP_AO_GET_KEYS, listed.as_mut_ptr().cast(), &raw mut length) };
    if status < 0 {
        let error = io::Error::last_os_error();
        return if error.raw_os_error() == Some(libc::ENOENT) { Ok(Vec::new()) } else { Err(error) };
    }
    let count = listed.first().map_or(0, |first| usize::try_from(first.count).unwrap_or(MOST_KEYS));
    Ok(listed.iter().take(count).map(|key| TcpAoKeyIds { send: key.send_id, recv: key.recv_id }).collect())
}

fn info(socket: BorrowedFd<'_>) -> io::Result<Info> {
    let mut info = Info::default();
    let mut length = size_of::<Info>() as libc::socklen_t;
    // SAFETY: the descriptor is open for the length of the borrow; the kernel reads and writes `length` octets of a value that is ours.
    let status = unsafe { libc::getsockopt(socket.as_raw_fd(), libc::IPPROTO_TCP, TCP_AO_INFO, (&raw mut info).cast(), &raw mut length) };
    if status < 0 { Err(io::Error::last_os_error()) } else { Ok(info) }
}

fn set<T>(socket: BorrowedFd<'_>, option: libc::c_int, value: &T) -> io::Result<()> {
    // SAFETY: the descriptor is open for the length of the borrow; the kernel reads `size_of::<T>()` octets of a value that lives until then.
    let status = unsafe {
        libc::setsockopt(socket.as_raw_fd(), libc::IPPROTO_TCP, option, std::ptr::from_ref(value).cast(), size_of::<T>() as libc::socklen_t)
    };
    if status < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    fn key(id: u8, key: &[u8]) -> TcpAoKey<'_> {
        TcpAoKey { ids: TcpAoKeyIds { send: id, recv: id }, algorithm: TcpAoAlgorithm::HmacSha1, key }
    }

    #[test]
    fn sizes_are_those_of_the_kernel() {
        assert_eq!((size_of::<Add>(), size_of::<Delete>(), size_of::<Info>(), size_of::<Listed>()), (288, 144, 48, 304));
    }

    #[test]
    fn a_kernel_without_it_says_so() {
        let socket = TcpListener::bind((HERE, 0)).unwrap();
        let added = add_tcp_ao_key(socket.as_fd(), HERE, 32, &key(1, b"secret"), false);
        let refusal = added.err().and_then(|error| error.raw_os_error());
        assert_eq!(refusal, if has_tcp_ao().unwrap() { None } else { Some(libc::ENOPROTOOPT) });
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let socket = TcpListener::bind((HERE, 0)).unwrap();
        for (length, octets) in [(32, &[7; TCP_AO_MAXKEYLEN + 1][..]), (33, b"secret")] {
            let added = add_tcp_ao_key(socket.as_fd(), HERE, length, &key(1, octets), false);
            assert_eq!(added.unwrap_err().kind(), io::ErrorKind::InvalidInput);
        }
    }
}
