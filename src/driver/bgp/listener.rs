// SPDX-License-Identifier: Apache-2.0
//! The listening socket, where the configuration asks for one.
//!
//! Input: where to listen, and the key of each range of addresses. Output: connections, whoever dialled them. A socket that cannot be had is tried
//! again every second; sessions that are up do not depend on it.

use std::collections::BTreeMap;
use std::future::pending;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use bgp::Prefix;
use socket2::{Domain, SockAddr, Socket, Type};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, sleep_until};

use super::signature::Signature;
use super::socket::OptionError;
use super::words;
use crate::telemetry::chain;

/// Between two attempts to listen, and after an accept that failed for want of resources.
const RETRY: Duration = Duration::from_secs(1);

/// Connections that wait to be accepted.
const BACKLOG: i32 = 64;

/// So that a peer with TTL security hears the answer to its SYN (RFC 5082); the TTL of the session follows once it is known whose it is.
const TTL: u32 = 255;

/// What the kernel signs and checks for each range of addresses.
pub(super) type RangeKeys = BTreeMap<Prefix, Signature>;

/// The socket and what it is to become.
#[derive(Default)]
pub(super) struct Listener {
    address: Option<SocketAddr>,
    socket: Option<TcpListener>,
    keys: RangeKeys,
    retry: Option<Instant>,
    error: Option<String>,
}

impl Listener {
    /// Listens here from now on; on nothing where absent. A socket that stays the same is not touched.
    pub(super) fn listen(&mut self, address: Option<SocketAddr>) {
        if self.address == address {
            return;
        }
        *self = Self { address, keys: std::mem::take(&mut self.keys), ..Self::default() };
        self.open();
    }

    /// Demands these keys from now on.
    pub(super) fn demand(&mut self, keys: RangeKeys) {
        if keys == self.keys {
            return;
        }
        let old = std::mem::replace(&mut self.keys, keys);
        let Some(socket) = &self.socket else { return };
        for (range, signature) in old.iter().filter(|(range, _)| !self.keys.contains_key(range)) {
            report(*range, signature.release(socket, *range));
        }
        for (range, signature) in self.keys.iter().filter(|(range, key)| old.get(range) != Some(*key)) {
            report(*range, signature.demand(socket, *range, old.get(range)));
        }
    }

    /// Why nothing is listened to though it should be.
    pub(super) const fn error(&self) -> Option<&String> {
        self.error.as_ref()
    }

    /// The next connection, or `None` when the listener's state has changed. Cancelling the wait loses nothing.
    pub(super) async fn accept(&mut self) -> Option<(TcpStream, SocketAddr)> {
        if let Some(at) = self.retry {
            sleep_until(at).await;
            self.retry = None;
            if self.socket.is_none() {
                self.open();
                return None;
            }
        }
        let Some(socket) = &self.socket else { return pending().await };
        match socket.accept().await {
            Ok(accepted) => Some(accepted),
            Err(error) => {
                tracing::warn!(%error, "a BGP connection cannot be accepted");
                self.retry = Some(Instant::now() + RETRY);
                None
            }
        }
    }

    fn open(&mut self) {
        let Some(address) = self.address else { return };
        match bind(address) {
            Ok(socket) => {
                tracing::info!(%address, "listening for BGP connections");
                self.keys.iter().for_each(|(range, signature)| report(*range, signature.demand(&socket, *range, None)));
                self.socket = Some(socket);
                self.error = None;
            }
            Err(error) => {
                let reason = format!("cannot listen on {address}: {}", words::io_error(&error));
                if self.error.as_ref() != Some(&reason) {
                    tracing::error!(%reason, "trying again each second; sessions that we dial are not concerned");
                }
                self.error = Some(reason);
                self.retry = Some(Instant::now() + RETRY);
            }
        }
    }
}

fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM.nonblocking().cloexec(), None)?;
    // Connections of an earlier process that still linger do not keep the port.
    socket.set_reuse_address(true)?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
        socket.set_unicast_hops_v6(TTL)?;
    } else {
        socket.set_ttl_v4(TTL)?;
    }
    socket.bind(&SockAddr::from(address))?;
    socket.listen(BACKLOG)?;
    TcpListener::from_std(socket.into())
}

/// Where the kernel refuses, the sessions of these addresses do too: each connection is looked at, or signed again, before it is used.
fn report(range: Prefix, done: Result<(), OptionError>) {
    if let Err(error) = done {
        tracing::warn!(%range, error = %chain(&error), "the keys of the listener; these peers cannot dial us");
    }
}
