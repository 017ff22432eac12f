// SPDX-License-Identifier: Apache-2.0
//! A TCP port of 127.0.0.1 that stays the test's own while nobody listens on it.
//!
//! Output: an address to which connections are refused until a listener of ours, or of a program that sets SO_REUSEPORT, is there; and again
//! afterwards. Invariant: the kernel gives the port to nobody else as long as the value lives.
#![allow(dead_code, reason = "each test file uses a part of it")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::net::{Ipv4Addr, SocketAddr, TcpListener};

use socket2::{Domain, Socket, Type};

/// The port. Holds a socket that is bound and does not listen.
pub(crate) struct Port {
    address: SocketAddr,
    _bound: Socket,
}

impl Port {
    /// Takes a free one.
    pub(crate) fn reserve() -> Self {
        let bound = bind((Ipv4Addr::LOCALHOST, 0).into());
        Self { address: bound.local_addr().unwrap().as_socket().unwrap(), _bound: bound }
    }

    /// Its address.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Listens on it until the listener is dropped; does not block.
    pub(crate) fn listen(&self) -> TcpListener {
        let socket = bind(self.address);
        socket.listen(128).unwrap();
        socket.set_nonblocking(true).unwrap();
        socket.into()
    }
}

fn bind(address: SocketAddr) -> Socket {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.set_reuse_address(true).unwrap();
    socket.set_reuse_port(true).unwrap();
    socket.bind(&address.into()).unwrap();
    socket
}
