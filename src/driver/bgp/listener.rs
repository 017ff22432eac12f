// SPDX-License-Identifier: Apache-2.0
//! The listening sockets, where the configuration asks for them: one for each routing domain that somebody is to dial us from.
//!
//! Input: where to listen, and in each domain the key of each range of addresses. Output: connections, whoever dialled them. A socket that cannot be had
//! is tried again every second; sessions that are up do not depend on it.

use std::collections::BTreeMap;
use std::future::pending;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd as _;
use std::time::Duration;

use bgp::Prefix;
use futures_util::future::select_all;
use socket2::{Domain as SocketDomain, SockAddr, Socket, Type};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, sleep_until};

use super::signature::Signature;
use super::socket::OptionError;
use super::vrf::Domain;
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

/// The sockets and what they are to become.
#[derive(Default)]
pub(super) struct Listener {
    address: Option<SocketAddr>,
    places: BTreeMap<Domain, Place>,
}

/// One socket.
#[derive(Default)]
struct Place {
    socket: Option<TcpListener>,
    keys: RangeKeys,
    retry: Option<Instant>,
    error: Option<String>,
}

impl Listener {
    /// Listens here in these domains from now on, with these keys; on nothing where there is no address. A socket that stays the same is not touched.
    pub(super) fn listen(&mut self, address: Option<SocketAddr>, domains: BTreeMap<Domain, RangeKeys>) {
        if self.address != address {
            *self = Self { address, ..Self::default() };
        }
        let Some(address) = address else { return };
        self.places.retain(|domain, _| domains.contains_key(domain));
        for (domain, keys) in domains {
            match self.places.get_mut(&domain) {
                Some(place) => place.demand(keys),
                None => {
                    let mut place = Place { keys, ..Place::default() };
                    place.open(address, &domain);
                    self.places.insert(domain, place);
                }
            }
        }
    }

    /// Why nothing is listened to though it should be.
    pub(super) fn error(&self) -> Option<String> {
        let errors: Vec<&str> = self.places.values().filter_map(|place| place.error.as_deref()).collect();
        if errors.is_empty() { None } else { Some(errors.join("; ")) }
    }

    /// The next connection, or `None` when the listener's state has changed. Cancelling the wait loses nothing.
    pub(super) async fn accept(&mut self) -> Option<(TcpStream, SocketAddr)> {
        let Some(address) = self.address.filter(|_| !self.places.is_empty()) else { return pending().await };
        select_all(self.places.iter_mut().map(|(domain, place)| Box::pin(place.accept(address, domain)))).await.0
    }
}

impl Place {
    /// Demands these keys from now on.
    fn demand(&mut self, keys: RangeKeys) {
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

    async fn accept(&mut self, address: SocketAddr, domain: &Domain) -> Option<(TcpStream, SocketAddr)> {
        if let Some(at) = self.retry {
            sleep_until(at).await;
            self.retry = None;
            if self.socket.is_none() {
                self.open(address, domain);
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

    fn open(&mut self, address: SocketAddr, domain: &Domain) {
        let place = domain.as_ref().map_or_else(|| address.to_string(), |vrf| format!("{address} in VRF {}", vrf.name));
        match bind(address, domain) {
            Ok(socket) => {
                tracing::info!(address = %place, "listening for BGP connections");
                self.keys.iter().for_each(|(range, signature)| report(*range, signature.demand(&socket, *range, None)));
                self.socket = Some(socket);
                self.error = None;
            }
            Err(error) => {
                let reason = format!("cannot listen on {place}: {}", words::io_error(&error));
                if self.error.as_ref() != Some(&reason) {
                    tracing::error!(%reason, "trying again each second; sessions that we dial are not concerned");
                }
                self.error = Some(reason);
                self.retry = Some(Instant::now() + RETRY);
            }
        }
    }
}

fn bind(address: SocketAddr, domain: &Domain) -> io::Result<TcpListener> {
    let socket = Socket::new(SocketDomain::for_address(address), Type::STREAM.nonblocking().cloexec(), None)?;
    // Connections of an earlier process that still linger do not keep the port.
    socket.set_reuse_address(true)?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
        socket.set_unicast_hops_v6(TTL)?;
    } else {
        socket.set_ttl_v4(TTL)?;
    }
    // From how far a connection comes is known by it (RFC 5082 §3).
    sys::keep_syns(socket.as_fd())?;
    if let Some(vrf) = domain {
        socket.bind_device(Some(vrf.name.as_bytes()))?;
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
