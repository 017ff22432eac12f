// SPDX-License-Identifier: Apache-2.0
//! Packet sockets (packet(7)): whole Ethernet frames out of an interface.

use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};

/// A socket that sends whole frames, does not block, and takes none.
///
/// # Errors
/// What `socket` reports: the right `CAP_NET_RAW` is missing.
pub fn frame_socket() -> io::Result<OwnedFd> {
    // SAFETY: no memory is involved. Protocol 0 receives nothing.
    let socket = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC, 0) };
    if socket < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor was just made, and nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(socket) })
}

/// Sends a frame, with its Ethernet header, out of the interface of this index.
///
/// # Errors
/// What `sendto` reports; [`io::ErrorKind::WouldBlock`] or `ENOBUFS` where its queue is full.
pub fn send_frame(socket: BorrowedFd<'_>, interface: u32, frame: &[u8]) -> io::Result<()> {
    // SAFETY: all zeroes is a value of this structure of integers.
    let mut to = unsafe { std::mem::zeroed::<libc::sockaddr_ll>() };
    to.sll_family = libc::AF_PACKET as _;
    to.sll_ifindex = i32::try_from(interface).unwrap_or(0);
    // The Ethernet type, as in the frame, in network order.
    to.sll_protocol = frame.get(12..14).map_or(0, |octets| u16::from_ne_bytes([octets[0], octets[1]]));
    // SAFETY: the descriptor is open for the length of the borrow; the kernel reads the frame and the address, which live until then.
    let sent = unsafe {
        libc::sendto(
            socket.as_raw_fd(),
            frame.as_ptr().cast(),
            frame.len(),
            0,
            (&raw const to).cast(),
            size_of::<libc::sockaddr_ll>() as libc::socklen_t,
        )
    };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd as _;

    use super::*;

    #[test]
    fn a_frame_leaves_by_the_interface_that_is_named() {
        let socket = frame_socket().expect("this test needs a packet socket: run it as root");
        // To nobody, of an experimental type (IEEE 802), through lo, which has index 1 everywhere.
        let mut frame = [0; 60];
        frame[12..14].copy_from_slice(&[0x88, 0xB5]);
        send_frame(socket.as_fd(), 1, &frame).unwrap();
        assert_eq!(send_frame(socket.as_fd(), 0x7FFF_FFFF, &frame).unwrap_err().raw_os_error(), Some(libc::ENXIO));
    }

    #[test]
    fn refused_on_a_file() {
        let file = std::fs::File::open("/dev/null").unwrap();
        assert!(send_frame(file.as_fd(), 1, &[0; 60]).is_err());
    }
}
