// SPDX-License-Identifier: Apache-2.0
//! Where the peers are whose address is not configured: the default gateway of the node, and the routers heard on a link.
//!
//! Input: which of them are wanted; routes, links and addresses of the node as they change; Router Advertisements. Output: for each what was found, or
//! why nothing was. A session that is up does not depend on it.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::sync::Arc;
use std::time::Duration;

use futures_util::{FutureExt as _, StreamExt as _};
use rtnetlink::MulticastGroup;
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinHandle, JoinSet};
use tokio::time::{sleep, timeout};

use super::addresses::{AddressError, Netlink};
use super::discovery::{self, Link};
use super::{fatal_panics, gateway, links, words};
use crate::desired::PeerAddress;
use crate::telemetry::chain;

/// From a change to reading: bursts become one.
const SETTLE: Duration = Duration::from_millis(50);

/// Between two attempts, where the kernel refuses a socket.
const RETRY: Duration = Duration::from_secs(1);

/// How long a configuration waits for the first look.
const PATIENCE: Duration = Duration::from_secs(1);

/// What was found for each that is wanted, or why nothing was.
pub(super) type Whereabouts = BTreeMap<PeerAddress, Result<Vec<Found>, Arc<str>>>;

/// An address at which a peer may be.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) struct Found {
    pub(super) address: IpAddr,
    /// The index of the interface, where the address is good on one link only; 0 where the configuration names the interface.
    pub(super) scope: u32,
}

impl Found {
    /// A link-local address on this interface, or any other one.
    pub(super) fn new(address: IpAddr, interface: u32) -> Self {
        Self { address, scope: if is_link_local(address) { interface } else { 0 } }
    }

    /// Where a connection comes from.
    pub(super) fn of(remote: SocketAddr) -> Self {
        match remote {
            SocketAddr::V4(remote) => Self::new((*remote.ip()).into(), 0),
            SocketAddr::V6(remote) => Self::new((*remote.ip()).into(), remote.scope_id()),
        }
    }

    pub(super) fn socket_address(self, port: u16) -> SocketAddr {
        match self.address {
            IpAddr::V4(_) => SocketAddr::new(self.address, port),
            IpAddr::V6(address) => SocketAddrV6::new(address, port, 0, self.scope).into(),
        }
    }
}

pub(super) fn is_link_local(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(address) if address.is_unicast_link_local())
}

/// Where a peer is, as far as it is known. The first is the one that was heard first.
pub(super) fn candidates(address: &PeerAddress, whereabouts: &Whereabouts) -> Result<Vec<Found>, Arc<str>> {
    match address {
        PeerAddress::Known(address) => Ok(vec![Found::new(*address, 0)]),
        PeerAddress::Gateway | PeerAddress::Unnumbered(_) => {
            whereabouts.get(address).cloned().unwrap_or_else(|| Err("it is not looked for yet".into()))
        }
    }
}

/// The task that looks for them.
pub(super) struct Locator {
    wanted: watch::Sender<BTreeSet<PeerAddress>>,
    whereabouts: watch::Receiver<Arc<Whereabouts>>,
    task: JoinHandle<()>,
}

impl Locator {
    /// Needs a runtime. The seed spreads the advertisements.
    pub(super) fn new(seed: u64) -> Self {
        let wanted = watch::Sender::new(BTreeSet::new());
        let (publish, whereabouts) = watch::channel(Arc::default());
        let task = tokio::spawn(fatal_panics(run(wanted.subscribe(), publish, seed)));
        Self { wanted, whereabouts, task }
    }

    /// Looks for these from now on, and waits until it has looked once, but not for ever.
    pub(super) async fn follow(&mut self, wanted: BTreeSet<PeerAddress>) {
        self.wanted.send_if_modified(|current| {
            let changed = *current != wanted;
            current.clone_from(&wanted);
            changed
        });
        let looked = self.whereabouts.wait_for(|found| wanted.iter().all(|address| found.contains_key(address)));
        if timeout(PATIENCE, looked).await.is_err() {
            tracing::warn!("the node's links and routes cannot be read in time; peers without an address wait for them");
        }
    }

    /// As it is now.
    pub(super) fn whereabouts(&self) -> Arc<Whereabouts> {
        Arc::clone(&self.whereabouts.borrow())
    }

    /// Wakes its holder when something is somewhere else.
    pub(super) fn subscribe(&self) -> watch::Receiver<Arc<Whereabouts>> {
        self.whereabouts.clone()
    }
}

impl Drop for Locator {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn run(mut wanted: watch::Receiver<BTreeSet<PeerAddress>>, publish: watch::Sender<Arc<Whereabouts>>, seed: u64) {
    loop {
        let addresses = wanted.borrow_and_update().clone();
        if addresses.is_empty() {
            publish.send_modify(|found| *found = Arc::default());
            if wanted.changed().await.is_err() {
                return;
            }
            continue;
        }
        let Err(error) = look(&mut wanted, &publish, seed).await else { continue };
        let reason: Arc<str> = chain(&error).into();
        tracing::warn!(%reason, "looking for peers without an address fails; trying again each second");
        for address in addresses {
            put(&publish, address, Err(Arc::clone(&reason)));
        }
        sleep(RETRY).await;
    }
}

/// Looks for what is wanted, until nothing is.
async fn look(
    wanted: &mut watch::Receiver<BTreeSet<PeerAddress>>,
    publish: &watch::Sender<Arc<Whereabouts>>,
    seed: u64,
) -> Result<(), AddressError> {
    let groups = [MulticastGroup::Link, MulticastGroup::Ipv6Ifaddr, MulticastGroup::Ipv4Route, MulticastGroup::Ipv6Route];
    let (connection, _handle, mut notifications) = rtnetlink::new_multicast_connection(&groups).map_err(AddressError::Socket)?;
    let _connection = AbortOnDrop(tokio::spawn(connection).abort_handle());
    let mut listeners = Listeners { running: BTreeMap::new(), tasks: JoinSet::new(), seed };
    loop {
        let addresses = wanted.borrow_and_update().clone();
        if addresses.is_empty() {
            return Ok(());
        }
        publish.send_if_modified(|found| {
            let before = found.len();
            Arc::make_mut(found).retain(|address, _| addresses.contains(address));
            before != found.len()
        });
        listeners.running.retain(|name, _| addresses.contains(&PeerAddress::Unnumbered(name.clone())));
        let netlink = Netlink::open()?;
        let links = if addresses.iter().any(|address| matches!(address, PeerAddress::Unnumbered(_))) {
            links::read(&netlink).await?
        } else {
            BTreeMap::new()
        };
        for address in addresses {
            match &address {
                PeerAddress::Known(_) => {}
                PeerAddress::Gateway => {
                    let found = gateway::read(&netlink).await?;
                    put(publish, address, found.map(|found| vec![found]).ok_or_else(|| "the node has no default gateway".into()));
                }
                PeerAddress::Unnumbered(name) => listeners.follow(name, links.get(name), publish),
            }
        }
        tokio::select! {
            changed = wanted.changed() => if changed.is_err() { return Ok(()) },
            _change = notifications.next() => {
                sleep(SETTLE).await;
                while notifications.next().now_or_never().flatten().is_some() {}
            }
        }
    }
}

/// Router discovery on each interface that is up.
struct Listeners {
    running: BTreeMap<String, (Link, AbortOnDrop)>,
    tasks: JoinSet<()>,
    seed: u64,
}

impl Listeners {
    /// Listens on the interface as it is now.
    fn follow(&mut self, name: &str, link: Option<&Result<Link, &'static str>>, publish: &watch::Sender<Arc<Whereabouts>>) {
        while self.tasks.try_join_next().is_some() {}
        let address = PeerAddress::Unnumbered(name.to_owned());
        let nothing = |why: &str| Err(Arc::from(why));
        match link {
            None => {
                self.running.remove(name);
                put(publish, address, nothing(&format!("there is no interface {name}")));
            }
            Some(Err(why)) => {
                self.running.remove(name);
                put(publish, address, nothing(&format!("{name} {why}")));
            }
            Some(Ok(link)) if self.running.get(name).is_some_and(|(running, _)| running == link) => {}
            Some(Ok(link)) => {
                put(publish, address, silence(name));
                let mut seed = DefaultHasher::new();
                (self.seed, name, link.index).hash(&mut seed);
                let task = listen(name.to_owned(), link.clone(), seed.finish(), publish.clone());
                let task = AbortOnDrop(self.tasks.spawn(fatal_panics(task)));
                self.running.insert(name.to_owned(), (link.clone(), task));
            }
        }
    }
}

fn silence(name: &str) -> Result<Vec<Found>, Arc<str>> {
    Err(format!("no router has been heard on {name}").into())
}

/// Listens on one interface for ever.
async fn listen(name: String, link: Link, seed: u64, publish: watch::Sender<Arc<Whereabouts>>) {
    let address = PeerAddress::Unnumbered(name.clone());
    let found = |routers: &[Ipv6Addr]| {
        let found = routers.iter().map(|router| Found::new((*router).into(), link.index));
        put(&publish, address.clone(), if routers.is_empty() { silence(&name) } else { Ok(found.collect()) });
    };
    loop {
        let error = discovery::listen(&name, &link, seed, found).await;
        let reason = format!("router discovery on {name} fails: {}", words::io_error(&error));
        tracing::warn!(%reason, "trying again each second");
        put(&publish, address.clone(), Err(reason.into()));
        sleep(RETRY).await;
    }
}

fn put(publish: &watch::Sender<Arc<Whereabouts>>, address: PeerAddress, found: Result<Vec<Found>, Arc<str>>) {
    publish.send_if_modified(|whereabouts| {
        let changed = whereabouts.get(&address) != Some(&found);
        if changed {
            Arc::make_mut(whereabouts).insert(address, found);
        }
        changed
    });
}

/// A task that does not outlive its holder.
struct AbortOnDrop(AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}
