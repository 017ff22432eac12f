// SPDX-License-Identifier: Apache-2.0
//! The listening sockets, where the configuration asks for them: one for each routing domain that somebody is to dial us from.
//!
//! Input: where to listen, and in each domain the key of each range of addresses. Output: connections, whoever dialled them, and what was demanded of them. A
//! socket that cannot be had is tried again every second; sessions that are up do not depend on it. An address that the node has not may come, as that of a
//! virtual router does (RFC 9568): it is listened to before, so that nobody is refused at the moment in which it has come.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::future::pending;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd as _;
use std::time::Duration;

use bgp::Prefix;
use futures_util::future::select_all;
use socket2::{Domain as SocketDomain, SockAddr, SockRef, Socket, Type};
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

/// A connection that somebody has dialled.
#[derive(Debug)]
pub(super) struct Arrival {
    pub(super) stream: TcpStream,
    /// What the kernel has demanded of it from its first segment on.
    pub(super) demanded: Option<Signature>,
}

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
    /// Ranges whose key the kernel has refused.
    unkeyed: BTreeSet<Prefix>,
    /// Connections that were accepted earlier than they were asked for.
    early: VecDeque<(TcpStream, SocketAddr)>,
    retry: Option<Instant>,
    /// When it is looked next whether the node has the address, which it has not had at times.
    absent: Option<Instant>,
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
    pub(super) async fn accept(&mut self) -> Option<(Arrival, SocketAddr)> {
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
        self.unkeyed.retain(|range| old.get(range) == self.keys.get(range));
        let changed: Vec<Prefix> = self.keys.iter().filter(|(range, key)| old.get(range) != Some(*key)).map(|(range, _)| *range).collect();
        for range in &changed {
            if let Some(signature) = self.keys.get(range)
                && !report(*range, signature.demand(socket, *range, old.get(range)))
            {
                self.unkeyed.insert(*range);
            }
        }
        self.give_up_earlier(&changed);
    }

    /// Connections from these ranges that wait to be accepted began before the key was demanded, and may have been dialled without.
    fn give_up_earlier(&mut self, ranges: &[Prefix]) {
        let Some(socket) = self.socket.as_ref().filter(|_| !ranges.is_empty()) else { return };
        self.early.retain(|(_, remote)| !ranges.iter().any(|range| range.contains(remote.ip())));
        // What comes beyond these came after that.
        for _ in 0..=BACKLOG {
            let Ok((connection, remote)) = SockRef::from(socket).accept() else { return };
            let Some(remote) = remote.as_socket().filter(|remote| !ranges.iter().any(|range| range.contains(remote.ip()))) else {
                continue;
            };
            if connection.set_nonblocking(true).is_ok()
                && let Ok(stream) = TcpStream::from_std(connection.into())
            {
                self.early.push_back((stream, remote));
            }
        }
    }

    /// What the kernel demands of who dials from there: that of the longest prefix.
    fn demanded(&self, address: IpAddr) -> Option<&Signature> {
        let ranges = self.keys.iter().filter(|(range, _)| range.contains(address) && !self.unkeyed.contains(range));
        ranges.max_by_key(|(range, _)| range.length()).map(|(_, signature)| signature)
    }

    fn arrival(&self, (stream, remote): (TcpStream, SocketAddr)) -> (Arrival, SocketAddr) {
        (Arrival { stream, demanded: self.demanded(remote.ip()).cloned() }, remote)
    }

    async fn accept(&mut self, address: SocketAddr, domain: &Domain) -> Option<(Arrival, SocketAddr)> {
        if let Some(early) = self.early.pop_front() {
            return Some(self.arrival(early));
        }
        if let Some(at) = self.retry {
            sleep_until(at).await;
            self.retry = None;
            if self.socket.is_none() {
                self.open(address, domain);
                return None;
            }
        }
        let Some(socket) = &self.socket else { return pending().await };
        let look = async {
            match self.absent {
                Some(at) => sleep_until(at).await,
                None => pending().await,
            }
        };
        let accepted = tokio::select! {
            accepted = socket.accept() => accepted,
            () = look => {
                self.look_for(address, domain);
                return None;
            }
        };
        match accepted {
            Ok(accepted) => Some(self.arrival(accepted)),
            Err(error) => {
                tracing::warn!(%error, "a BGP connection cannot be accepted");
                self.retry = Some(Instant::now() + RETRY);
                None
            }
        }
    }

    fn open(&mut self, address: SocketAddr, domain: &Domain) {
        match self.bind(address, domain) {
            Ok(socket) => {
                self.socket = Some(socket);
                self.look_for(address, domain);
            }
            Err(error) => {
                let reason = format!("cannot listen on {}: {}", name(address, domain), words::io_error(&error));
                if self.error.as_ref() != Some(&reason) {
                    tracing::error!(%reason, "trying again each second; sessions that we dial are not concerned");
                }
                self.error = Some(reason);
                self.retry = Some(Instant::now() + RETRY);
            }
        }
    }

    /// Says whether the node has the address that is listened to.
    fn look_for(&mut self, address: SocketAddr, domain: &Domain) {
        let place = name(address, domain);
        let is_here = is_here(address.ip(), domain);
        let reason = (!is_here).then(|| format!("nobody reaches {place}, on which we listen: the node does not have the address"));
        match &reason {
            Some(reason) if self.error.as_ref() != Some(reason) => tracing::info!(%reason, "waiting for the address"),
            None if self.absent.is_none() || self.error.is_some() => tracing::info!(address = %place, "listening for BGP connections"),
            _ => {}
        }
        self.absent = (!is_here || self.absent.is_some()).then(|| Instant::now() + RETRY);
        self.error = reason;
    }

    /// A socket that listens, and has not before it had its keys.
    fn bind(&mut self, address: SocketAddr, domain: &Domain) -> io::Result<TcpListener> {
        let socket = bind(address, domain)?;
        let refused = self.keys.iter().filter(|(range, signature)| !report(**range, signature.demand(&socket, **range, None)));
        self.unkeyed = refused.map(|(range, _)| *range).collect();
        socket.listen(BACKLOG)?;
        TcpListener::from_std(socket.into())
    }
}

fn name(address: SocketAddr, domain: &Domain) -> String {
    domain.as_ref().map_or_else(|| address.to_string(), |vrf| format!("{address} in VRF {}", vrf.name))
}

/// Whether the node has the address. Where that cannot be told it is taken for so.
fn is_here(address: IpAddr, domain: &Domain) -> bool {
    let is_bound = || {
        let address = SocketAddr::new(address, 0);
        let socket = Socket::new(SocketDomain::for_address(address), Type::DGRAM.cloexec(), None)?;
        if let Some(vrf) = domain {
            socket.bind_device(Some(vrf.name.as_bytes()))?;
        }
        socket.bind(&address.into())
    };
    !matches!(is_bound(), Err(error) if error.kind() == io::ErrorKind::AddrNotAvailable)
}

fn bind(address: SocketAddr, domain: &Domain) -> io::Result<Socket> {
    let socket = Socket::new(SocketDomain::for_address(address), Type::STREAM.nonblocking().cloexec(), None)?;
    // Connections of an earlier process that still linger do not keep the port.
    socket.set_reuse_address(true)?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
        socket.set_freebind_v6(true)?;
        socket.set_unicast_hops_v6(TTL)?;
    } else {
        socket.set_freebind_v4(true)?;
        socket.set_ttl_v4(TTL)?;
    }
    // From how far a connection comes is known by it (RFC 5082 §3).
    sys::keep_syns(socket.as_fd())?;
    if let Some(vrf) = domain {
        socket.bind_device(Some(vrf.name.as_bytes()))?;
    }
    socket.bind(&SockAddr::from(address))?;
    Ok(socket)
}

/// Whether it is done. Where the kernel refuses, the sessions of these addresses do too: what was demanded of a connection is looked at before it is used.
fn report(range: Prefix, done: Result<(), OptionError>) -> bool {
    if let Err(error) = &done {
        tracing::warn!(%range, error = %chain(error), "the keys of the listener; these peers cannot dial us");
    }
    done.is_ok()
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use tokio::time::timeout;

    use super::super::keyring::Key;
    use super::*;

    /// Dials without a key from there.
    fn dial(from: [u8; 4], to: SocketAddr) -> std::net::TcpStream {
        let socket = Socket::new(SocketDomain::IPV4, Type::STREAM, None).unwrap();
        socket.bind(&SocketAddr::from((from, 0)).into()).unwrap();
        socket.connect(&to.into()).unwrap();
        socket.into()
    }

    #[tokio::test]
    async fn rfc2385_who_was_there_before_its_key_is_not_taken_and_all_others_are() {
        let mut place = Place::default();
        place.open(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), &None);
        let address = place.socket.as_ref().unwrap().local_addr().unwrap();
        let _clients = [[127, 0, 0, 1], [127, 0, 1, 2], [127, 0, 0, 3]].map(|from| dial(from, address));
        let range = Prefix::new([127, 0, 1, 0].into(), 24).unwrap();
        let signature = Signature::Md5(Key::of_a_test("secret"));
        place.demand([(range, signature.clone())].into());
        for expected in [[127, 0, 0, 1], [127, 0, 0, 3]] {
            let accepted = timeout(Duration::from_secs(10), place.accept(address, &None)).await.unwrap();
            let (arrival, remote) = accepted.unwrap();
            assert_eq!((remote.ip(), arrival.demanded), (IpAddr::from(expected), None));
        }
        let _later = dial([127, 0, 0, 4], address);
        let (_, remote) = timeout(Duration::from_secs(10), place.accept(address, &None)).await.unwrap().unwrap();
        assert_eq!(remote.ip(), IpAddr::from([127, 0, 0, 4]));
        assert_eq!(place.demanded([127, 0, 1, 2].into()), Some(&signature));
    }

    #[test]
    fn what_is_demanded_is_the_key_of_the_longest_prefix_that_the_kernel_has() {
        let range = |address: [u8; 4], length| Prefix::new(address.into(), length).unwrap();
        let [wide, narrow] = ["wide", "narrow"].map(|key| Signature::Md5(Key::of_a_test(key)));
        let keys = [(range([127, 0, 0, 0], 8), wide.clone()), (range([127, 0, 1, 0], 24), narrow.clone())].into();
        let mut place = Place { keys, ..Place::default() };
        let demanded = |place: &Place| [[10, 0, 0, 1], [127, 0, 0, 1], [127, 0, 1, 1]].map(|from| place.demanded(from.into()).cloned());
        assert_eq!(demanded(&place), [None, Some(wide.clone()), Some(narrow)]);
        place.unkeyed.insert(range([127, 0, 1, 0], 24));
        assert_eq!(demanded(&place), [None, Some(wide.clone()), Some(wide)]);
    }
}
