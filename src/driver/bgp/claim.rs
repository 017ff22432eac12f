// SPDX-License-Identifier: Apache-2.0
//! Whose a session between two addresses is. A peer can't tell two speakers at one address apart: to it, the second one is the first that has restarted.
//!
//! Input: the two ends of a session that is to be. Output: a claim on it, kept in the [`Registry`] of the process, or who has it. A claim is the name of an
//! abstract Unix socket in the network namespace, so that the kernel grants it once, whatever container asks, and takes it back when its process ends in any
//! way. A second socket tells who has the first. Invariants: nothing is sent to a peer before the claim is held; it is kept while the neighbour is
//! configured, with or without a session, until an operator shuts it down.
//!
//! Within the process a neighbour that follows another one waits for its claim. A session that another instance was seen to have is left to it for
//! the restart time after its claim is free, since it may be restarting, and the peer keep its routes; an instance that leaves a session for good says so to those that wait, by the
//! same sockets.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr as Name, UnixDatagram};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bgp::peer::Role;
use socket2::{Domain, SockAddr, Socket, Type};
use tokio::sync::watch;
use tokio::time::timeout_at;

use super::addresses::AddressError;
use super::socket::Way;
use super::vrf::Vrfs;
use super::whereabouts::Found;

/// A neighbour that ends has closed its connections, and so left its claim, within two seconds.
const PATIENCE: Duration = Duration::from_secs(5);

/// The two ends of a session, in their routing domain.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
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
    /// Another instance had it, and may be restarting.
    #[error(
        "{} had the session {pair}; it may come back within {}s",
        owner.as_ref().map_or_else(|| "another process".to_owned(), |owner| format!("the instance {owner}")),
        within.as_secs()
    )]
    Awaited {
        /// The session.
        pair: Pair,
        /// The instance that had it, where that is known.
        owner: Option<String>,
        /// For so long after its end it is waited for.
        within: Duration,
    },
    /// Another neighbour of this process has it.
    #[error("the peer {peer} has the session {pair}")]
    OtherPeer {
        /// The session.
        pair: Pair,
        /// The other neighbour.
        peer: Arc<str>,
        /// It is about to leave it.
        ending: bool,
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

/// The claims of this process.
#[derive(Debug)]
pub(super) struct Registry {
    instance: Arc<str>,
    sessions: Mutex<Sessions>,
    /// Wakes neighbours that wait for what another one of this process has.
    released: watch::Sender<()>,
}

#[derive(Debug, Default)]
struct Sessions {
    held: BTreeMap<Pair, Held>,
    /// Those that other instances were seen to have.
    elsewhere: BTreeMap<Pair, Elsewhere>,
}

/// A session that no other process has.
#[derive(Debug)]
struct Held {
    /// The neighbour that has it.
    peer: Arc<str>,
    /// It was told to end.
    ending: bool,
    lock: UnixDatagram,
    _owner: UnixDatagram,
}

/// A session that another instance has or had.
#[derive(Debug)]
struct Elsewhere {
    owner: Option<String>,
    /// The socket that was its claim.
    inode: Option<u64>,
    /// Where it says that it leaves the session for good.
    farewell: Option<UnixDatagram>,
    /// Since when its claim is known to be free.
    free: Option<Instant>,
}

/// The claims of one neighbour.
#[derive(Clone, Debug)]
pub(super) struct Claims {
    registry: Arc<Registry>,
    peer: Arc<str>,
    /// For so long the peer may keep the routes of another instance that restarts.
    restart_time: Duration,
    held: Arc<Mutex<BTreeMap<Role, Arc<Claim>>>>,
}

/// One of them.
#[derive(Debug)]
struct Claim {
    pair: Pair,
    registry: Arc<Registry>,
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

impl Registry {
    /// Of a process of this instance; it has none yet.
    pub(super) fn new(instance: Arc<str>) -> Arc<Self> {
        Arc::new(Self { instance, sessions: Mutex::default(), released: watch::Sender::new(()) })
    }

    /// This neighbour is told to end: others may wait for what it has.
    pub(super) fn ends(&self, peer: &str) {
        self.sessions().held.values_mut().filter(|held| *held.peer == *peer).for_each(|held| held.ending = true);
    }

    fn sessions(&self) -> MutexGuard<'_, Sessions> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Claims {
    /// None yet.
    pub(super) fn new(registry: Arc<Registry>, peer: &str, restart_time: Duration) -> Self {
        Self { registry, peer: peer.into(), restart_time, held: Arc::default() }
    }

    /// Holds this session from now on for connections of this role, instead of another one. Waits where another neighbour of this process is about to
    /// leave it.
    ///
    /// # Errors
    /// Somebody else holds it, or may come back to it; what was held before is still held.
    pub(super) async fn hold(&self, role: Role, pair: Pair) -> Result<(), ClaimError> {
        let mut released = self.registry.released.subscribe();
        let deadline = tokio::time::Instant::now() + PATIENCE;
        loop {
            released.mark_unchanged();
            match self.try_hold(role, &pair) {
                Err(error @ ClaimError::OtherPeer { ending: true, .. }) => {
                    if timeout_at(deadline, released.changed()).await.is_err() {
                        return Err(error);
                    }
                }
                done => return done,
            }
        }
    }

    /// Leaves the sessions to others for good, and says so to those that wait.
    pub(super) fn release(&self) {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let sessions = self.registry.sessions();
        held.values().filter_map(|claim| sessions.held.get(&claim.pair)).for_each(Held::say_farewell);
        drop(sessions);
        held.clear();
    }

    fn try_hold(&self, role: Role, pair: &Pair) -> Result<(), ClaimError> {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let claim = match held.values().find(|claim| claim.pair == *pair) {
            Some(claim) => Arc::clone(claim),
            None => {
                self.registry.sessions().claim(pair, self)?;
                Arc::new(Claim { pair: pair.clone(), registry: Arc::clone(&self.registry) })
            }
        };
        held.insert(role, claim);
        Ok(())
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.registry.sessions().held.remove(&self.pair);
        self.registry.released.send_replace(());
    }
}

impl Sessions {
    fn claim(&mut self, pair: &Pair, claims: &Claims) -> Result<(), ClaimError> {
        if let Some(Held { peer, ending, .. }) = self.held.get(pair) {
            return Err(ClaimError::OtherPeer { pair: pair.clone(), peer: Arc::clone(peer), ending: *ending });
        }
        let (name, instance) = (pair.name(), &claims.registry.instance);
        // Not by taking it for a moment: who restarts would be refused.
        if let Some(elsewhere) = self.elsewhere.get_mut(pair)
            && is_free(&name)
            && !elsewhere.is_over(claims.restart_time)
        {
            return Err(ClaimError::Awaited { pair: pair.clone(), owner: elsewhere.owner.clone(), within: claims.restart_time });
        }
        let failed = |source| ClaimError::Socket { pair: pair.clone(), source };
        match bind(&name) {
            Ok(lock) => {
                let owner = inode(&lock).and_then(|inode| bind(&format!("{}{instance}", owner_prefix(inode)))).map_err(failed)?;
                self.elsewhere.remove(pair);
                self.held.insert(pair.clone(), Held { peer: Arc::clone(&claims.peer), ending: false, lock, _owner: owner });
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                let (inode, owner) = owner(&name);
                self.is_elsewhere(pair, inode, owner.clone(), instance);
                Err(ClaimError::Taken { pair: pair.clone(), owner, instance: Arc::clone(instance) })
            }
            Err(source) => Err(failed(source)),
        }
    }

    /// Remembers who has a session, but for a process of the same instance.
    fn is_elsewhere(&mut self, pair: &Pair, inode: Option<u64>, owner: Option<String>, instance: &str) {
        if owner.as_deref() == Some(instance) {
            self.elsewhere.remove(pair);
        } else if self.elsewhere.get(pair).is_none_or(|elsewhere| elsewhere.free.is_some() || elsewhere.inode != inode) {
            // Where it cannot be told, its end is taken for a restart.
            let farewell = inode.and_then(|inode| await_farewell(&pair.name(), inode, instance).ok());
            self.elsewhere.insert(pair.clone(), Elsewhere { owner, inode, farewell, free: None });
        }
    }
}

impl Held {
    /// Tells those that have said that they wait.
    fn say_farewell(&self) {
        if self.lock.set_nonblocking(true).is_ok() {
            while let Ok((_, waiting)) = self.lock.recv_from(&mut [0]) {
                // It may have gone.
                self.lock.send_to_addr(&[], &waiting).ok();
            }
        }
    }
}

impl Elsewhere {
    /// Whether nobody comes back to the session, whose claim is free.
    fn is_over(&mut self, restart_time: Duration) -> bool {
        let left = self.farewell.as_ref().is_some_and(|farewell| farewell.recv(&mut [0]).is_ok());
        let free = *self.free.get_or_insert_with(Instant::now);
        left || free.elapsed() >= restart_time
    }
}

/// Says to the owner of this claim that it is waited for. A datagram comes when it is left for good.
fn await_farewell(name: &str, inode: u64, instance: &str) -> io::Result<UnixDatagram> {
    let socket = bind(&format!("vipherald-waits/{inode}/{instance}"))?;
    socket.set_nonblocking(true)?;
    socket.send_to_addr(&[], &Name::from_abstract_name(name)?)?;
    Ok(socket)
}

/// Whether nobody has the name.
fn is_free(name: &str) -> bool {
    let connected = Name::from_abstract_name(name).and_then(|name| UnixDatagram::unbound()?.connect_addr(&name));
    connected.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
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

/// The socket of this name, and who has it, as it says itself.
fn owner(name: &str) -> (Option<u64>, Option<String>) {
    std::fs::read_to_string("/proc/thread-self/net/unix").map_or((None, None), |listing| owner_in(&listing, name))
}

/// The same, from the kernel's list of sockets: columns, of which the last two are the inode and the name.
fn owner_in(listing: &str, name: &str) -> (Option<u64>, Option<String>) {
    let sockets = || {
        listing.lines().filter_map(|line| {
            let mut columns = line.split_whitespace().skip(6);
            Some((columns.next()?, columns.next()?.strip_prefix('@')?))
        })
    };
    let inode = sockets().find(|(_, of)| *of == name).and_then(|(inode, _)| inode.parse().ok());
    let prefix = inode.map(owner_prefix);
    let owner = prefix.and_then(|prefix| sockets().find_map(|(_, of)| of.strip_prefix(&prefix)).map(ToOwned::to_owned));
    (inode, owner)
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

    /// A neighbour in a process of this instance.
    fn claims(instance: &str, restart_time: Duration) -> Claims {
        Claims::new(Registry::new(instance.into()), "tor", restart_time)
    }

    async fn refusal(claims: &Claims, role: Role, pair: Pair) -> String {
        let pattern = format!(" from {} to ", pair.local);
        claims.hold(role, pair).await.unwrap_err().to_string().replace(&pattern, " from X to ")
    }

    #[tokio::test]
    async fn a_session_is_granted_once_until_it_is_released() {
        let [first, second, restarted] = ["a", "b", "a"].map(|instance| claims(instance, Duration::ZERO));
        first.hold(Role::Active, pair(1)).await.unwrap();
        first.hold(Role::Passive, pair(1)).await.expect("it is the same session, whoever dials");
        second.hold(Role::Active, pair(2)).await.expect("it is another one");
        let refused = refusal(&second, Role::Active, pair(1)).await;
        assert!(refused.starts_with("the instance a has the session from X"), "{refused}");
        assert!(second.hold(Role::Passive, pair(2)).await.is_ok(), "what was held is still held");
        let refused = refusal(&restarted, Role::Active, pair(1)).await;
        assert!(refused.starts_with("another process of this instance has the session from X"), "{refused}");
        first.hold(Role::Active, pair(3)).await.unwrap();
        second.hold(Role::Active, pair(1)).await.expect_err("the other role has it still");
        first.release();
        restarted.hold(Role::Active, pair(1)).await.unwrap();
        drop(restarted);
        second.hold(Role::Active, pair(1)).await.expect("nothing is kept for who has no restart time");
    }

    #[tokio::test]
    async fn within_a_process_who_follows_waits_and_has_it_at_once() {
        let registry = Registry::new("a".into());
        let [old, new] = ["old", "new"].map(|peer| Claims::new(Arc::clone(&registry), peer, Duration::ZERO));
        old.hold(Role::Active, pair(4)).await.unwrap();
        let refused = new.hold(Role::Active, pair(4)).await.unwrap_err().to_string();
        assert!(refused.starts_with("the peer old has the session from 127."), "{refused}");
        registry.ends("old");
        let waiting = new.hold(Role::Active, pair(4));
        tokio::pin!(waiting);
        assert!(tokio::time::timeout(Duration::from_millis(50), &mut waiting).await.is_err(), "it did not wait");
        drop(old);
        waiting.await.unwrap();
    }

    #[tokio::test]
    async fn a_session_that_another_instance_had_is_left_to_it_for_the_restart_time() {
        let owner = claims("a", Duration::ZERO);
        let patient = claims("b", Duration::from_secs(60));
        owner.hold(Role::Active, pair(5)).await.unwrap();
        assert!(refusal(&patient, Role::Active, pair(5)).await.starts_with("the instance a has"));
        drop(owner);
        let awaited = "the instance a had the session from X to 127.0.0.1; it may come back within 60s";
        assert_eq!(refusal(&patient, Role::Active, pair(5)).await, awaited);
        let owner = claims("a", Duration::from_secs(60));
        owner.hold(Role::Active, pair(5)).await.expect("it is its own");
        assert!(refusal(&patient, Role::Active, pair(5)).await.starts_with("the instance a has"));
        drop(owner);
        assert_eq!(refusal(&patient, Role::Active, pair(5)).await, awaited);
        let after = Claims { restart_time: Duration::from_nanos(1), ..patient.clone() };
        after.hold(Role::Active, pair(5)).await.expect("the time is over");
    }

    #[tokio::test]
    async fn a_session_that_is_left_for_good_is_had_at_once() {
        let [owner, patient, another] = ["a", "b", "c"].map(|instance| claims(instance, Duration::from_secs(60)));
        owner.hold(Role::Active, pair(6)).await.unwrap();
        for waiting in [&patient, &another, &patient] {
            assert!(refusal(waiting, Role::Active, pair(6)).await.starts_with("the instance a has"));
        }
        owner.release();
        patient.hold(Role::Active, pair(6)).await.unwrap();
        assert!(refusal(&another, Role::Active, pair(6)).await.starts_with("the instance b has"));
        patient.release();
        another.hold(Role::Active, pair(6)).await.unwrap();
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
        assert_eq!(owner_in(&listing, "a"), (Some(7), Some("vip-b".to_owned())));
        assert_eq!(owner_in(&listing, "c"), (Some(9), None));
        assert_eq!(owner_in(&listing, "absent"), (None, None));
        assert_eq!(owner_in("", "a"), (None, None));
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
