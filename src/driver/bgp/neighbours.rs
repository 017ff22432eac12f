// SPDX-License-Identifier: Apache-2.0
//! The set of sessions: one task for each neighbour of the configuration.
//!
//! Input: the target, as a whole value. Output: tasks started and told to stop, so that what runs becomes what is configured. It is level-triggered: on
//! each change of the target and each end of a task the two are compared. A neighbour whose settings changed is stopped, and started again once its
//! old session is closed, unless only what is [`Adjustable`] changed, which its session takes over; one whose settings are the same notices nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::future::pending;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use bgp::BgpIdentifier;
use bgp::peer::{PeerId, Stop};
use bgp::wire::Cease;
use nix::net::if_::{if_indextoname, if_nametoindex};
use socket2::SockRef;
use tokio::net::TcpStream;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::timeout_at;

use super::admission::{Admission, Seat};
use super::claim::{Claims, Registry};
use super::connection;
use super::gate::Gate;
use super::keyring::{Keyring, Keys};
use super::listener::{Arrival, Listener};
use super::location::{self, Location};
use super::orders::{Operation, OperatorError, Order, Request};
use super::report::Complaints;
use super::rib::Rib;
use super::session::{Command, Feed, Inputs, Session};
use super::settings::{Adjustable, Beginning, Settings, dynamic_settings};
use super::shut::{Place, Shut};
use super::socket;
use super::status::Board;
use super::vrf::{self, Domain, Vrfs};
use super::whereabouts::{Found, Locator, Whereabouts, candidates, is_link_local};
use super::{Inheritance, Routes, Successor, Target, addresses, fatal_panics, listening};
use crate::desired::{DesiredBgp, DesiredPeer, PeerAddress};
use crate::telemetry::chain;

/// Between two looks at the node's addresses while none gives a router id.
const ROUTER_ID_RETRY: Duration = Duration::from_secs(1);

/// Connections and orders that wait for a neighbour's task.
const COMMANDS: usize = 8;

fn key_files(desired: &DesiredBgp) -> BTreeSet<PathBuf> {
    let peers = desired.listen.iter().map(|listen| &listen.template).chain(desired.peers.values());
    peers.flat_map(|peer| peer.transport.key_files().cloned()).collect()
}

/// The peers that have to be looked for.
fn unknown_addresses(desired: &DesiredBgp) -> BTreeSet<PeerAddress> {
    desired.peers.values().map(|peer| peer.address.clone()).filter(|address| address.known().is_none()).collect()
}

/// The tasks and what they are to become.
pub(super) struct Neighbours {
    /// Which sessions this process has.
    registry: Arc<Registry>,
    seed: u64,
    /// Counts the tasks, so that each has a number of its own.
    started: u32,
    rib: Rib,
    /// Whether neighbours are told what others have told.
    reflects: bool,
    target: watch::Receiver<Target>,
    requests: mpsc::Receiver<Request>,
    routes: watch::Sender<Option<Routes>>,
    inheritance: Arc<OnceLock<Inheritance>>,
    /// Until then dynamic neighbours that have no task may hold what was inherited.
    held_until: Option<Instant>,
    /// The neighbours of the first configuration have their tasks: those that come later knew no earlier process.
    converged: bool,
    /// Neighbours that have had a task.
    begun: BTreeSet<String>,
    board: Board,
    complaints: Complaints,
    /// How many dynamic neighbours there may be.
    admission: Admission,
    /// For the long steps of all sessions.
    gate: Gate,
    /// The node's addresses, followed once there is a neighbour.
    location: Option<watch::Receiver<Location>>,
    listener: Listener,
    /// Read anew, once somebody is listened for, whenever links have changed.
    vrfs: Vrfs,
    links: Option<watch::Receiver<()>>,
    running: BTreeMap<String, Running>,
    tasks: JoinSet<String>,
    /// Connections of others than those, which are about to end.
    refused: JoinSet<()>,
    /// Neighbours that an operator has shut down, whether they run or not.
    shut: Shut,
    /// The router id taken from the node's addresses, kept for the life of the process.
    automatic: Option<BgpIdentifier>,
    complained: bool,
}

struct Running {
    settings: Settings,
    end: watch::Sender<Option<Stop>>,
    adjustable: watch::Sender<Adjustable>,
    commands: mpsc::Sender<Command>,
    /// That of a dynamic neighbour among those.
    seat: Option<Arc<Seat>>,
}

/// What the set of tasks waits for.
enum Input {
    Target(bool),
    Ended(String),
    Keys,
    Whereabouts,
    Links,
    Accepted(Arrival, SocketAddr),
    Listener,
    Request(Request),
    Time,
}

impl Neighbours {
    pub(super) fn new(
        instance: Arc<str>,
        seed: u64,
        target: watch::Receiver<Target>,
        requests: mpsc::Receiver<Request>,
        routes: watch::Sender<Option<Routes>>,
        inheritance: Arc<OnceLock<Inheritance>>,
        board: Board,
    ) -> Self {
        Self {
            registry: Registry::new(instance),
            seed,
            started: 0,
            rib: Rib::default(),
            reflects: false,
            target,
            requests,
            routes,
            inheritance,
            held_until: None,
            converged: false,
            begun: BTreeSet::new(),
            admission: Admission::new(board.clone()),
            board,
            complaints: Complaints::default(),
            gate: Gate::default(),
            location: None,
            listener: Listener::default(),
            vrfs: Vrfs::default(),
            links: None,
            running: BTreeMap::new(),
            tasks: JoinSet::new(),
            refused: JoinSet::new(),
            shut: Shut::default(),
            automatic: None,
            complained: false,
        }
    }

    /// Runs until the target is to quit; the tasks and their connections end with it.
    pub(super) async fn run(mut self) {
        let mut keyring = Keyring::new();
        let mut keys = keyring.subscribe();
        let mut locator = Locator::new(self.seed);
        let mut whereabouts = locator.subscribe();
        let mut request = None;
        let (mut is_due, mut wake) = (true, None);
        loop {
            let (target, is_new) = {
                let target = self.target.borrow_and_update();
                (target.clone(), target.has_changed())
            };
            let settled = match &target {
                _ if !is_due && !is_new => None,
                Target::Nothing => Some(true),
                Target::Run { desired, with } => Some(self.converge(desired, with.as_ref(), &mut keyring, &mut locator).await),
                Target::Stop => {
                    self.stop_all(&Stop::AdministrativeShutdown { communication: None });
                    Some(true)
                }
                Target::Release => {
                    self.stop_all(&Stop::Keep);
                    Some(true)
                }
                Target::Quit => return,
            };
            self.board.set_listen_error(self.listener.error().as_ref());
            // Who was given a configuration and then asks means the neighbours that are in it.
            if let Some(request) = request.take() {
                self.operate(request, &target).await;
            }
            if let Some(settled) = settled {
                wake = if settled { self.held_until } else { Instant::now().checked_add(ROUTER_ID_RETRY) };
            }
            let input = self.next(&mut keys, &mut whereabouts);
            let input = match wake {
                Some(wake) => timeout_at(wake.into(), input).await.unwrap_or(Input::Time),
                None => input.await,
            };
            // Who dials changes nothing of what is to run.
            is_due = !matches!(input, Input::Accepted(..));
            match input {
                Input::Target(true) | Input::Keys | Input::Whereabouts | Input::Links | Input::Listener | Input::Time => {}
                Input::Target(false) => return,
                Input::Ended(name) => {
                    self.running.remove(&name);
                    self.board.remove(&name);
                }
                Input::Accepted(arrival, remote) => self.accept(arrival, remote, &target, &keyring, &locator),
                Input::Request(given) => request = Some(given),
            }
        }
    }

    async fn next(&mut self, keys: &mut watch::Receiver<Arc<Keys>>, whereabouts: &mut watch::Receiver<Arc<Whereabouts>>) -> Input {
        tokio::select! {
            changed = self.target.changed() => Input::Target(changed.is_ok()),
            Some(ended) = self.tasks.join_next() => ended.map_or(Input::Time, Input::Ended),
            Ok(()) = keys.changed() => Input::Keys,
            Ok(()) = whereabouts.changed() => Input::Whereabouts,
            Ok(()) = changed(self.links.as_mut()) => Input::Links,
            accepted = self.listener.accept() => accepted.map_or(Input::Listener, |(arrival, remote)| Input::Accepted(arrival, remote)),
            Some(request) = self.requests.recv() => Input::Request(request),
        }
    }

    /// Brings the tasks closer to the configuration, and gives them the set `with` it. False where the router id is not known yet.
    async fn converge(
        &mut self,
        desired: &Arc<DesiredBgp>,
        with: Option<&Successor>,
        keyring: &mut Keyring,
        locator: &mut Locator,
    ) -> bool {
        let Some(identifier) = self.identifier(desired).await else {
            return false;
        };
        self.shut.retain(desired);
        if self.reflects != desired.reflects() {
            // What it has gathered ends with the last session that reflects.
            self.rib = Rib::default();
            self.reflects = desired.reflects();
        }
        if desired.listen.as_ref().is_some_and(|listen| !listen.prefixes.is_empty()) && self.inheritance.get().is_some() {
            self.rib.await_unnamed();
        }
        keyring.follow(key_files(desired)).await;
        locator.follow(unknown_addresses(desired)).await;
        self.look_for_vrfs(desired).await;
        self.admission.configure(desired.listen.as_ref());
        let address = desired.listen.as_ref().map(|listen| SocketAddr::new(listen.address, listen.port));
        let shared = !self.vrfs.is_empty() && listening::is_shared();
        let domains = listening::domains(desired, &keyring.keys(), &locator.whereabouts(), &self.vrfs, shared);
        self.listener.listen(address, domains);
        let configured = self.configured_outside(desired, &locator.whereabouts());
        for (name, running) in &mut self.running {
            let wanted = match desired.peers.get(name) {
                Some(peer) => Some(Settings::new(desired, identifier, peer.clone(), false)),
                None if running.settings.dynamic => running
                    .dynamic_address()
                    .filter(|address| !configured.contains(address))
                    .and_then(|address| dynamic_settings(desired, identifier, address, running.settings.peer.interface())),
                None => None,
            };
            let stop = match wanted {
                None => Stop::Deconfigured,
                Some(settings) if running.settings.is_same_session(&settings) => {
                    running.adjust(name, settings);
                    continue;
                }
                Some(_) => Stop::ConfigurationChange,
            };
            running.order(stop);
            self.registry.ends(name);
        }
        for (name, peer) in &desired.peers {
            if !self.running.contains_key(name) {
                let settings = Settings::new(desired, identifier, peer.clone(), false);
                self.start(name, settings, keyring, locator, None);
            }
        }
        for peer in self.shut.dynamic(desired) {
            let name = dynamic_name(&peer);
            if !self.running.contains_key(&name) {
                self.start(&name, Settings::new(desired, identifier, peer, true), keyring, locator, None);
            }
        }
        self.converged = true;
        // No task has had its turn since the first of them was given its settings.
        if let Some(Successor { after, set }) = with {
            self.board.advertise(set, Some(*after), &self.routes);
        }
        self.board.set_problem(None);
        self.held_until = self.held_by_dynamic_until(desired);
        self.board.set_configured(Some(desired), Some(identifier), self.held_until.is_some());
        true
    }

    /// Where the configured neighbours outside of VRFs are: no dynamic one comes from there.
    fn configured_outside(&self, desired: &DesiredBgp, whereabouts: &Whereabouts) -> BTreeSet<IpAddr> {
        let outside = desired.peers.values().filter(|peer| self.vrfs.domain(peer.interface()).is_none());
        outside.filter_map(|peer| candidates(&peer.address, whereabouts).ok()).flatten().map(|found| found.address).collect()
    }

    /// An interface that a neighbour is to dial by may be in a VRF.
    async fn look_for_vrfs(&mut self, desired: &DesiredBgp) {
        if desired.listen.is_none() || desired.peers.values().all(|peer| peer.interface().is_none()) {
            return;
        }
        self.links.get_or_insert_with(vrf::follow).mark_unchanged();
        match Vrfs::read().await {
            Ok(vrfs) => self.vrfs = vrfs,
            Err(error) => tracing::warn!(error = %chain(&error), "the VRFs of the node cannot be read; those read before count"),
        }
    }

    /// Until when dynamic neighbours that have not come back may hold what an earlier process has announced; `None` where that is over.
    fn held_by_dynamic_until(&self, desired: &DesiredBgp) -> Option<Instant> {
        let template = desired.listen.as_ref().filter(|listen| !listen.prefixes.is_empty()).map(|listen| &listen.template)?;
        let (restart, inheritance) = (template.graceful_restart?, self.inheritance.get()?);
        let kept = Duration::from_secs(u64::from(restart.restart_time) + u64::from(restart.long_lived_stale_time));
        let until = inheritance.at.checked_add(kept + template.hold_time.duration().unwrap_or_default())?;
        Some(until).filter(|until| *until > Instant::now())
    }

    fn stop_all(&mut self, stop: &Stop) {
        self.listener.listen(None, BTreeMap::new());
        for (name, running) in &self.running {
            running.order(stop.clone());
            self.registry.ends(name);
        }
        self.held_until = None;
        self.board.set_configured(None, self.automatic, false);
    }

    fn start(&mut self, name: &str, settings: Settings, keyring: &Keyring, locator: &Locator, first: Option<Arrival>) {
        self.started = self.started.wrapping_add(1);
        let id = PeerId(self.started);
        let mut seed = DefaultHasher::new();
        (self.seed, name, self.started).hash(&mut seed);
        let (end, ended) = watch::channel(None);
        let (adjustable, adjusted) = watch::channel(settings.adjustable(name));
        let (commands, received) = mpsc::channel(COMMANDS);
        let location = self.location.get_or_insert_with(location::follow).clone();
        let address = settings.peer.address.known().filter(|_| settings.dynamic);
        let seat = address.map(|address| self.admission.seat(address));
        let feed = Feed { routes: self.routes.subscribe(), rib: self.rib.join(id), turn: self.gate.turn() };
        let inputs = Inputs {
            end: ended,
            adjustable: adjusted,
            commands: received,
            keys: keyring.subscribe(),
            location,
            whereabouts: locator.subscribe(),
            feed,
            claims: Claims::new(Arc::clone(&self.registry), name, settings.restart_time()),
            complaints: self.complaints.clone(),
            seat: seat.clone(),
        };
        let beginning = self.begin(name, settings.dynamic);
        let session = Session::new(name, id, &settings, &beginning, seed.finish(), inputs, self.board.clone());
        let shut = self.shut.contains(&settings.peer);
        let name = name.to_owned();
        self.running.insert(name.clone(), Running { settings, end, adjustable, commands, seat });
        self.tasks.spawn(fatal_panics(async move {
            session.run(shut, first).await;
            name
        }));
    }

    /// What was before the task of this neighbour.
    fn begin(&mut self, name: &str, dynamic: bool) -> Beginning {
        if !self.begun.insert(name.to_owned()) {
            return Beginning::Another;
        }
        let knew_another = if dynamic { self.held_until.is_some() } else { !self.converged };
        match self.inheritance.get().filter(|_| knew_another) {
            Some(inheritance) => Beginning::Inherited(inheritance.clone()),
            None => Beginning::First,
        }
    }

    /// Somebody has dialled us: a configured neighbour, a new dynamic one, or nobody we know; then the connection is closed without a word.
    fn accept(&mut self, arrival: Arrival, remote: SocketAddr, target: &Target, keyring: &Keyring, locator: &Locator) {
        let Target::Run { desired, .. } = target else { return };
        let address = remote.ip();
        let whereabouts = locator.whereabouts();
        let domain = self.domain(&arrival.stream);
        let here = |running: &&Running| self.vrfs.domain(running.settings.peer.interface()) == domain;
        let mut there = self.running.values().filter(here).filter(|running| running.is_at(remote, &whereabouts));
        // Of two, one is about to end.
        if let Some(running) = there.clone().find(|running| !running.is_ending()).or_else(|| there.next()) {
            // Where its task is far behind, the neighbour will dial again.
            running.commands.try_send(Command::Accept(arrival)).ok();
            return;
        }
        let link = link_of(remote);
        let identifier = self.board.router_id().filter(|_| domain.is_none());
        let settings = identifier.and_then(|identifier| dynamic_settings(desired, identifier, address, link.as_deref()));
        let settings = settings.map(|settings| (dynamic_name(&settings.peer), settings));
        match settings {
            None => tracing::debug!(%remote, "a connection of nobody we know is closed"),
            Some((name, _)) if self.running.contains_key(&name) => {}
            Some((name, settings)) => match socket::is_near(&arrival.stream, settings.peer.transport.ttl) {
                Err(error) => self.too_far(&name, &chain(&error)),
                Ok(()) if self.admission.is_full() => {
                    self.admission.refuse(address);
                    self.refuse(arrival);
                }
                Ok(()) => {
                    self.make_room();
                    self.start(&name, settings, keyring, locator, Some(arrival));
                }
            },
        }
    }

    /// Who might be a dynamic neighbour is told that it is not wanted (RFC 4486 §4).
    fn refuse(&mut self, arrival: Arrival) {
        while self.refused.try_join_next().is_some() {}
        connection::refuse(&mut self.refused, arrival.stream, Cease::ConnectionRejected);
    }

    /// Who would be a dynamic neighbour dials from too far away.
    fn too_far(&self, name: &str, reason: &str) {
        if self.complaints.is_news(name, reason) {
            tracing::warn!(peer = %name, reason, "a connection of a dynamic peer is refused");
        } else {
            tracing::debug!(peer = %name, reason, "a connection of a dynamic peer is refused again");
        }
    }

    /// Of those that have said nothing the one that dialled first goes, where there are as many as may be.
    fn make_room(&self) {
        let silent =
            || self.running.iter().filter_map(|(name, running)| Some((name, running.seat.as_ref().filter(|seat| seat.is_silent())?)));
        if silent().count() >= self.admission.most_silent()
            && let Some((name, seat)) = silent().min_by_key(|(_, seat)| seat.since())
        {
            tracing::debug!(peer = %name, "a connection on which nothing was said is closed for the sake of another");
            seat.dismiss();
        }
    }

    /// Where a connection was dialled: the kernel binds it to the VRF that it came by.
    fn domain(&self, stream: &TcpStream) -> Domain {
        let device = SockRef::from(stream).device().ok().flatten()?;
        self.vrfs.domain(std::str::from_utf8(&device).ok())
    }

    /// Does what an operator wants.
    async fn operate(&mut self, Request { name, order }: Request, target: &Target) {
        let mut known = self.known(target);
        let Some(peer) = known.remove(&name) else {
            order.refuse(OperatorError::Unknown { name, known: known.into_keys().collect() });
            return;
        };
        let shut = self.shut.contains(&peer);
        if let Order::Operate(operation, _) = &order {
            tracing::info!(peer = %name, ?operation, "an operator's order");
            match operation {
                Operation::Shutdown { .. } => self.shut.set(&peer, true),
                Operation::Start => self.shut.set(&peer, false),
                Operation::Reset | Operation::SoftReset { .. } => {}
            }
        }
        // Where the name has gone to another neighbour, the one that had it is about to end.
        match self.running.get(&name).filter(|running| Place::of(&running.settings.peer) == Place::of(&peer)) {
            Some(running) => {
                // A task that has just ended has nothing left to do.
                if let Err(unsent) = running.commands.send(Command::Obey(order)).await
                    && let Command::Obey(order) = unsent.0
                {
                    order.idle(shut);
                }
            }
            None => order.idle(shut),
        }
    }

    /// The neighbours that an order may be about, by name: those configured, and those that have a task.
    fn known(&self, target: &Target) -> BTreeMap<String, DesiredPeer> {
        let mut known: BTreeMap<String, DesiredPeer> =
            self.running.iter().map(|(name, running)| (name.clone(), running.settings.peer.clone())).collect();
        if let Target::Run { desired, .. } = target {
            known.extend(desired.peers.clone());
        }
        known
    }

    /// Our BGP Identifier: the configured one, or one of the node's addresses.
    async fn identifier(&mut self, desired: &DesiredBgp) -> Option<BgpIdentifier> {
        if desired.router_id.is_some() {
            return desired.router_id;
        }
        if self.automatic.is_some() {
            return self.automatic;
        }
        let advertised = self.routes.borrow().as_ref().map(|routes| Arc::clone(&routes.set)).unwrap_or_default();
        let problem = match addresses::router_id(&advertised).await {
            Ok(Some(identifier)) => {
                tracing::info!(router_id = %identifier, "took the router id from the node's addresses");
                self.automatic = Some(identifier);
                return self.automatic;
            }
            Ok(None) => "no interface has a global address".to_owned(),
            Err(error) => chain(&error),
        };
        // Sessions have begun with it.
        if let Some(identifier) = self.board.router_id() {
            tracing::warn!(router_id = %identifier, %problem, "no router id can be chosen; the one that was configured stays");
            self.automatic = Some(identifier);
            return self.automatic;
        }
        let problem = format!("no router id can be chosen ({problem}); set bgp.routerId, or give the node an address");
        self.board.set_problem(Some(&problem));
        if !self.complained {
            self.complained = true;
            tracing::warn!(%problem, "trying again each second");
        }
        None
    }
}

/// What a dynamic neighbour is called: by its address, as RFC 4007 §11 writes it where it is good on one link only.
fn dynamic_name(peer: &DesiredPeer) -> String {
    peer.interface().map_or_else(|| format!("dynamic:{}", peer.address), |link| format!("dynamic:{}%{link}", peer.address))
}

/// The link on which the address is good; `None` where it is good everywhere, or the link has just gone.
fn link_of(remote: SocketAddr) -> Option<String> {
    let SocketAddr::V6(remote) = remote else { return None };
    let name = if_indextoname(remote.scope_id()).ok().filter(|_| remote.ip().is_unicast_link_local())?;
    name.into_string().ok()
}

/// Waits for ever where there is nothing to wait for.
async fn changed(links: Option<&mut watch::Receiver<()>>) -> Result<(), watch::error::RecvError> {
    match links {
        Some(links) => links.changed().await,
        None => pending().await,
    }
}

impl Running {
    /// Tells the task to end its session; the first order counts.
    fn order(&self, stop: Stop) {
        self.end.send_if_modified(|order| {
            let first = order.is_none();
            order.get_or_insert(stop);
            first
        });
    }

    /// Whether it was told so.
    fn is_ending(&self) -> bool {
        self.end.borrow().is_some()
    }

    /// Hands a session the settings that it can go on with.
    fn adjust(&mut self, name: &str, settings: Settings) {
        if settings != self.settings {
            self.adjustable.send_replace(settings.adjustable(name));
            self.settings = settings;
        }
    }

    /// The address by which a dynamic neighbour is known.
    const fn dynamic_address(&self) -> Option<IpAddr> {
        self.settings.peer.address.known()
    }

    /// Whether a connection from there is of the neighbour. A link-local address is good on one link only; who dials us by the link of an unnumbered
    /// neighbour that has not been heard yet is that neighbour.
    fn is_at(&self, remote: SocketAddr, whereabouts: &Whereabouts) -> bool {
        let from = Found::of(remote);
        let by = |name: &str| from.scope == 0 || if_nametoindex(name).is_ok_and(|index| index == from.scope);
        match (&self.settings.peer.address, candidates(&self.settings.peer.address, whereabouts)) {
            (PeerAddress::Known(address), _) => *address == from.address && self.settings.peer.interface().is_none_or(by),
            (_, Ok(found)) => found.contains(&from),
            (PeerAddress::Unnumbered(name), Err(_)) => is_link_local(from.address) && by(name),
            (PeerAddress::Gateway, Err(_)) => false,
        }
    }
}
