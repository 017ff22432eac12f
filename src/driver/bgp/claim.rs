// SPDX-License-Identifier: Apache-2.0
//! Whose a session between two addresses is. A peer can't tell two speakers at one address apart: to it, the second one is the first that has restarted.
//!
//! Input: the two ends of a session that is to be. Output: a [`Claim`] on it, or which instance has it. A claim is the name of an abstract Unix socket in
//! the network namespace, so that the kernel grants it once, whatever container asks, and takes it back when its process ends in any way. A second socket
//! tells who has the first. Invariant: nothing is sent to a peer before the claim is held; it is kept while the neighbour is configured, with or
//! without a session, until an operator shuts it down.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr as Name, UnixDatagram};
use std::sync::{Arc, Mutex, PoisonError};

use bgp::peer::Role;
use socket2::{Domain, SockAddr, Socket, Type};

use super::addresses::AddressError;
use super::socket::Way;
use super::vrf::Vrfs;
use super::whereabouts::Found;

/// The two ends of a session, in their routing domain.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Pair {
    local: IpAddr,
    remote: Found,
    /// Where the peer listens.
    port: u16,
    /// The index of the VRF; 0 outside of all.
    vrf: u32,
}

/// Why a session is not ours.
#[derive(Debug, thiserror::Error)]
pub(super) enum ClaimError {
    /// Another process has it.
    #[error("{}", taken(pair, owner.as_deref(), instance))]
    Taken {
        /// The session.
        pair: Pair,
        /// The instance that has it, where that is known.
        owner: Option<String>,
        /// This instance.
        instance: Arc<str>,
    },
    /// It cannot be found out.
    #[error("the session {pair} cannot be claimed")]
    Socket {
        /// The session.
        pair: Pair,
        #[source]
        source: io::Error,
    },
    /// Nor in which VRF it would be.
    #[error("the VRF of the session is not known")]
    Vrf(#[from] AddressError),
}

/// The claims of one neighbour.
#[derive(Clone, Debug)]
pub(super) struct Claims {
    instance: Arc<str>,
    held: Arc<Mutex<BTreeMap<Role, Claim>>>,
}

/// A session that no other process has.
#[derive(Clone, Debug)]
struct Claim {
    pair: Pair,
    _sockets: Arc<[UnixDatagram; 2]>,
}

impl Pair {
    /// The session from this address of ours.
    pub(super) async fn new(local: IpAddr, remote: Found, way: &Way) -> Result<Self, AddressError> {
        let vrf = match way.transport.interface.as_deref() {
            Some(interface) => Vrfs::read().await?.domain(Some(interface)).map_or(0, |vrf| vrf.index),
            None => 0,
        };
        // The configuration may name the link of a link-local address by the interface.
        let remote = way.remote(remote).map_or(remote, Found::of);
        Ok(Self { local, remote, port: way.port, vrf })
    }

    /// Short enough for a name of 107 octets.
    fn name(&self) -> String {
        let Self { local, remote: Found { address, scope }, port, vrf } = self;
        format!("vipherald/{local}>{address}%{scope:x}:{port}/{vrf:x}")
    }
}

impl fmt::Display for Pair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "from {} to {}", self.local, self.remote.address)
    }
}

fn taken(pair: &Pair, owner: Option<&str>, instance: &str) -> String {
    match owner {
        Some(owner) if owner == instance => {
            format!("another process of this instance has the session {pair}; it is tried again until that process has ended")
        }
        Some(owner) => format!(
            "the instance {owner} has the session {pair}: the peer cannot tell two at one address apart; \
             give one of the instances another source address"
        ),
        None => format!("another process has the session {pair}: the peer cannot tell two at one address apart"),
    }
}

impl Claims {
    /// None yet.
    pub(super) fn new(instance: Arc<str>) -> Self {
        Self { instance, held: Arc::default() }
    }

    /// Holds this session from now on for connections of this role, instead of another one.
    ///
    /// # Errors
    /// Another process holds it; what was held before is still held.
    pub(super) fn hold(&self, role: Role, pair: Pair) -> Result<(), ClaimError> {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let claim = match held.values().find(|claim| claim.pair == pair) {
            Some(claim) => claim.clone(),
            None => self.claim(pair)?,
        };
        held.insert(role, claim);
        Ok(())
    }

    /// Leaves the sessions to others.
    pub(super) fn release(&self) {
        self.held.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    fn claim(&self, pair: Pair) -> Result<Claim, ClaimError> {
        let name = pair.name();
        match bind(&name) {
            Ok(lock) => {
                let owner = inode(&lock).and_then(|inode| bind(&format!("{}{}", owner_prefix(inode), self.instance)));
                match owner {
                    Ok(owner) => Ok(Claim { pair, _sockets: Arc::new([lock, owner]) }),
                    Err(source) => Err(ClaimError::Socket { pair, source }),
                }
            }
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                Err(ClaimError::Taken { pair, owner: owner(&name), instance: Arc::clone(&self.instance) })
            }
            Err(source) => Err(ClaimError::Socket { pair, source }),
        }
    }
}

/// The address of ours that the kernel would choose for a connection to the peer; `None` where it has no route, so that no connection would come up.
pub(super) fn source(way: &Way, peer: Found) -> Option<IpAddr> {
    way.transport.source.or_else(|| {
        let remote = way.remote(peer).ok()?;
        // Nothing is sent: connecting a datagram socket looks the route up.
        let probe = Socket::new(Domain::for_address(remote), Type::DGRAM.cloexec(), None).ok()?;
        if let Some(interface) = &way.transport.interface {
            probe.bind_device(Some(interface.as_bytes())).ok()?;
        }
        probe.connect(&SockAddr::from(remote)).ok()?;
        probe.local_addr().ok()?.as_socket().map(|local: SocketAddr| local.ip())
    })
}

fn bind(name: &str) -> io::Result<UnixDatagram> {
    UnixDatagram::bind_addr(&Name::from_abstract_name(name)?)
}

fn inode(socket: &UnixDatagram) -> io::Result<u64> {
    Ok(nix::sys::stat::fstat(socket)?.st_ino)
}

fn owner_prefix(inode: u64) -> String {
    format!("vipherald-owner/{inode}/")
}

/// Who has the socket of this name, as it says itself.
fn owner(name: &str) -> Option<String> {
    owner_in(&std::fs::read_to_string("/proc/thread-self/net/unix").ok()?, name)
}

/// The same, from the kernel's list of sockets: columns, of which the last two are the inode and the name.
fn owner_in(listing: &str, name: &str) -> Option<String> {
    let sockets = || {
        listing.lines().filter_map(|line| {
            let mut columns = line.split_whitespace().skip(6);
            Some((columns.next()?, columns.next()?.strip_prefix('@')?))
        })
    };
    let (inode, _) = sockets().find(|(_, of)| *of == name)?;
    let prefix = owner_prefix(inode.parse().ok()?);
    sockets().find_map(|(_, of)| of.strip_prefix(&prefix)).map(ToOwned::to_owned)
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use super::*;
    use crate::desired::Transport;

    fn pair(port: u16) -> Pair {
        // The port is one that no other test of this machine has at the same time, by the address.
        let local = Ipv4Addr::from(0x7F00_0000 | (std::process::id() & 0xFF_FFFF)).into();
        Pair { local, remote: Found::new(Ipv4Addr::LOCALHOST.into(), 0), port, vrf: 0 }
    }

    #[test]
    fn a_session_is_granted_once_until_it_is_released() {
        let (first, second, restarted) = (Claims::new("a".into()), Claims::new("b".into()), Claims::new("a".into()));
        first.hold(Role::Active, pair(1)).unwrap();
        first.hold(Role::Passive, pair(1)).expect("it is the same session, whoever dials");
        second.hold(Role::Active, pair(2)).expect("it is another one");
        let refused = second.hold(Role::Active, pair(1)).unwrap_err().to_string();
        assert!(refused.starts_with("the instance a has the session from 127."), "{refused}");
        assert!(second.hold(Role::Passive, pair(2)).is_ok(), "what was held is still held");
        let refused = restarted.hold(Role::Active, pair(1)).unwrap_err().to_string();
        assert!(refused.starts_with("another process of this instance has the session from 127."), "{refused}");
        first.hold(Role::Active, pair(3)).unwrap();
        second.hold(Role::Active, pair(1)).expect_err("the other role has it still");
        first.release();
        restarted.hold(Role::Active, pair(1)).unwrap();
        drop(restarted);
        second.hold(Role::Active, pair(1)).unwrap();
    }

    #[tokio::test]
    async fn the_same_link_local_addresses_on_another_link_are_another_session() {
        let router: IpAddr = "fe80::1".parse().unwrap();
        let transport = Transport { interface: Some("lo".to_owned()), ..Transport::default() };
        let way = Way { port: 179, external: false, transport };
        let configured = Pair::new(router, Found::new(router, 0), &way).await.unwrap();
        let loopback = nix::net::if_::if_nametoindex("lo").unwrap();
        let on = |link| Pair { local: router, remote: Found::new(router, link), port: 179, vrf: 0 };
        assert_eq!(configured, on(loopback), "the peer that dials us has the link in its address");
        assert_ne!(configured.name(), on(loopback + 1).name());
    }

    #[test]
    fn the_longest_name_is_one() {
        let longest: Ipv6Addr = "fdff:ffff:ffff:ffff:ffff:ffff:ffff:ffff".parse().unwrap();
        let pair = Pair { local: longest.into(), remote: Found { address: longest.into(), scope: 0 }, port: u16::MAX, vrf: u32::MAX };
        assert!(Name::from_abstract_name(pair.name()).is_ok(), "{}", pair.name().len());
        let link: Ipv6Addr = "fe80::ffff:ffff:ffff:ffff".parse().unwrap();
        let pair = Pair { local: link.into(), remote: Found { address: link.into(), scope: u32::MAX }, port: u16::MAX, vrf: u32::MAX };
        assert!(Name::from_abstract_name(pair.name()).is_ok(), "{}", pair.name().len());
    }

    #[test]
    fn an_owner_that_does_not_say_so_is_not_known() {
        let line = |inode: u32, name: &str| format!("ffff0000: 00000002 00000000 00000000 0002 01 {inode} {name}\n");
        let header = "Num       RefCount Protocol Flags    Type St Inode Path\n";
        let listing = format!("{header}{}{}{}", line(7, "@a"), line(8, "@vipherald-owner/7/vip-b"), line(9, "@c"));
        assert_eq!(owner_in(&listing, "a").as_deref(), Some("vip-b"));
        assert_eq!(owner_in(&listing, "c"), None);
        assert_eq!(owner_in(&listing, "absent"), None);
        assert_eq!(owner_in("", "a"), None);
    }

    #[test]
    fn the_source_is_the_configured_one_or_the_kernels() {
        let peer = Found::new(Ipv4Addr::new(127, 0, 0, 9).into(), 0);
        let way = |source| Way { port: 179, external: false, transport: Transport { source, ..Transport::default() } };
        assert_eq!(source(&way(None), peer), Some(Ipv4Addr::LOCALHOST.into()));
        let configured = Some(Ipv4Addr::new(127, 0, 0, 5).into());
        assert_eq!(source(&way(configured), peer), configured);
        let elsewhere = Transport { interface: Some("nowhere0".to_owned()), ..Transport::default() };
        assert_eq!(source(&Way { port: 179, external: false, transport: elsewhere }, peer), None);
    }
}
