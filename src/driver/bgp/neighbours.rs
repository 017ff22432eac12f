// SPDX-License-Identifier: Apache-2.0
//! The set of sessions: one task for each neighbour of the configuration.
//!
//! Input: the target, as a whole value. Output: tasks started and told to stop, so that what runs becomes what is configured. It is level-triggered: on
//! each change of the target and each end of a task the two are compared. A neighbour whose settings changed is stopped, and started again once its
//! old session is closed, unless only what is [`Adjustable`] changed, which its session takes over; one whose settings are the same notices nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use bgp::peer::{Import, PeerConfig, PeerId, RestartConfig, Stop};
use bgp::rib::{Export, NextHopPolicy};
use bgp::{Asn, BgpIdentifier, Prefix};
use nix::net::if_::if_nametoindex;
use tokio::net::TcpStream;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::timeout_at;

use super::gate::Gate;
use super::keyring::{Keyring, Keys};
use super::listener::{Listener, RangeKeys};
use super::location::{self, Location};
use super::orders::{Operation, OperatorError, Order, Request};
use super::rib::Rib;
use super::session::{Command, Feed, Inputs, Session};
use super::signature::Signature;
use super::socket::Way;
use super::status::Board;
use super::whereabouts::{Found, Locator, Whereabouts, candidates, is_link_local};
use super::{Inheritance, Routes, Target, addresses, fatal_panics};
use crate::desired::{AoKey, DesiredBgp, DesiredImport, DesiredPeer, DesiredRestart, PeerAddress, Transport};
use crate::telemetry::chain;

/// Between two looks at the node's addresses while none gives a router id.
const ROUTER_ID_RETRY: Duration = Duration::from_secs(1);

/// What we are, for display.
const SOFTWARE_VERSION: &str = concat!("vipherald/", env!("CARGO_PKG_VERSION"));

/// Connections and orders that wait for a neighbour's task.
const COMMANDS: usize = 8;

/// All that a session depends on.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Settings {
    pub(super) asn: Asn,
    pub(super) identifier: BgpIdentifier,
    pub(super) peer: DesiredPeer,
    /// It is one of a prefix, and forgotten when it goes.
    pub(super) dynamic: bool,
    /// Our cluster (RFC 4456 §7), on a speaker that reflects.
    pub(super) cluster: Option<BgpIdentifier>,
    /// For display at the neighbour.
    host_name: Option<String>,
    send_software_version: bool,
}

/// What of the settings may change while the session goes on.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Adjustable {
    pub(super) export: Export,
    pub(super) import: Option<Import>,
    pub(super) connect_retry: Duration,
    pub(super) send_hold_time: Option<Duration>,
    pub(super) ao_keys: Vec<AoKey>,
}

impl Settings {
    fn new(desired: &DesiredBgp, identifier: BgpIdentifier, peer: DesiredPeer, dynamic: bool) -> Self {
        let cluster = desired.reflects().then(|| desired.cluster_id.unwrap_or(identifier));
        let DesiredBgp { asn, send_software_version, .. } = *desired;
        Self { asn, identifier, peer, dynamic, cluster, host_name: desired.host_name.clone(), send_software_version }
    }

    /// The way to the peer.
    pub(super) fn way(&self) -> Way {
        let peer = &self.peer;
        let transport = Transport { interface: peer.interface().map(ToOwned::to_owned), ..peer.transport.clone() };
        Way { port: peer.port, external: peer.asn != self.asn, transport }
    }

    /// Whether the link of the session has no addresses but link-local ones.
    pub(super) const fn is_unnumbered(&self) -> bool {
        matches!(self.peer.address, PeerAddress::Unnumbered(_))
    }

    /// With what routes are announced.
    fn export(&self, name: &str) -> Export {
        let export = &self.peer.export;
        Export {
            name: name.to_owned(),
            local_preference: export.local_preference,
            med: export.med,
            prepend: export.prepend,
            communities: export.communities.clone(),
            large_communities: export.large_communities.clone(),
            extended_communities: export.extended_communities.clone(),
            link_bandwidth: export.link_bandwidth,
            next_hop_ipv4: self.next_hop(export.next_hop_ipv4),
            next_hop_ipv6: self.next_hop(export.next_hop_ipv6),
        }
    }

    /// What the neighbour may tell. Routes of internal peers of a speaker that reflects are used; others are kept where they are to be counted.
    fn import(&self) -> Option<Import> {
        let DesiredImport { max_prefixes, restart_delay } = self.peer.import.clone();
        let keep = self.peer.keep_received;
        let reflected = self.cluster.is_some() && self.peer.asn == self.asn;
        let wanted = reflected || keep > 0 || !max_prefixes.is_empty();
        let held_at_most = if reflected { None } else { usize::try_from(keep).ok() };
        // Of what is only looked at, it is told too whether it could be used.
        let accept = reflected || (self.cluster.is_none() && keep > 0);
        wanted.then(|| Import { accept, max_prefixes, held_at_most, restart_delay, ..Import::default() })
    }

    fn adjustable(&self, name: &str) -> Adjustable {
        Adjustable {
            export: self.export(name),
            import: self.import(),
            connect_retry: self.peer.connect_retry,
            send_hold_time: self.peer.send_hold_time,
            ao_keys: self.peer.transport.ao_keys.clone(),
        }
    }

    fn restart_config(&self, restart: DesiredRestart, beginning: &Beginning) -> RestartConfig {
        let DesiredRestart { restart_time, notification, long_lived_stale_time } = restart;
        let (restarting, forwarding_preserved) = match beginning {
            Beginning::First => (false, false),
            Beginning::Inherited(inheritance) => {
                let in_time = inheritance.at.elapsed() < Duration::from_secs(restart_time.into());
                (in_time, in_time && inheritance.forwarding)
            }
            Beginning::Another => (false, true),
        };
        RestartConfig { restart_time, restarting, forwarding_preserved, notification, long_lived_stale_time }
    }

    /// Whether a session of these settings can go on with those.
    fn is_same_session(&self, other: &Self) -> bool {
        let ao_keys = if self.peer.transport.ao_keys.is_empty() || other.peer.transport.ao_keys.is_empty() {
            self.peer.transport.ao_keys.clone()
        } else {
            // RFC 5925 §3.1: keys come and go while a connection is up.
            other.peer.transport.ao_keys.clone()
        };
        let adjusted = DesiredPeer {
            transport: Transport { ao_keys, ..self.peer.transport.clone() },
            export: other.peer.export.clone(),
            import: other.peer.import.clone(),
            connect_retry: other.peer.connect_retry,
            send_hold_time: other.peer.send_hold_time,
            ..self.peer.clone()
        };
        *other == Self { peer: adjusted, ..self.clone() }
    }

    /// The same for the core.
    pub(super) fn peer_config(&self, name: &str, id: PeerId, beginning: &Beginning) -> PeerConfig {
        let peer = &self.peer;
        let Adjustable { export, import, connect_retry, send_hold_time, ao_keys: _ } = self.adjustable(name);
        // It only decides between routes of peers that are equal otherwise.
        let address = peer.address.known().unwrap_or(IpAddr::V6(Ipv6Addr::UNSPECIFIED));
        PeerConfig {
            hold_time: peer.hold_time,
            send_hold_time,
            connect_retry,
            passive: peer.transport.passive,
            families: peer.families.clone(),
            export,
            graceful_restart: peer.graceful_restart.map(|restart| self.restart_config(restart, beginning)),
            import,
            extended_messages: peer.extended_messages,
            // On an unnumbered link nothing else can be a next hop.
            extended_next_hop: peer.extended_next_hop || self.is_unnumbered(),
            role: peer.role,
            host_name: self.host_name.clone(),
            software_version: self.send_software_version.then(|| SOFTWARE_VERSION.to_owned()),
            client: peer.reflector_client,
            cluster_id: self.cluster,
            add_path: peer.add_path.into_iter().flat_map(|mode| peer.families.iter().map(move |family| (*family, mode))).collect(),
            link_local_next_hop: self.is_unnumbered(),
            ..PeerConfig::new(id, address, self.asn, peer.asn, self.identifier)
        }
    }

    /// A reflector is not on the way of the packets.
    fn next_hop(&self, configured: Option<impl Into<IpAddr>>) -> NextHopPolicy {
        match (configured, self.cluster) {
            (Some(address), _) => NextHopPolicy::Address(address.into()),
            (None, Some(_)) => NextHopPolicy::Unchanged,
            (None, None) => NextHopPolicy::SelfAddress,
        }
    }
}

/// What was before a neighbour's task.
pub(super) enum Beginning {
    /// Nothing.
    First,
    /// An earlier process.
    Inherited(Inheritance),
    /// Another task of this process.
    Another,
}

/// Each neighbour and range of dynamic neighbours, with how it connects.
fn transports_by_range<'a>(desired: &'a DesiredBgp, whereabouts: &'a Whereabouts) -> impl Iterator<Item = (Prefix, &'a Transport)> {
    let dynamic = desired.listen.iter().flat_map(|listen| listen.prefixes.iter().map(|prefix| (*prefix, &listen.template)));
    let configured = desired.peers.values().flat_map(|peer| {
        let found = candidates(&peer.address, whereabouts).unwrap_or_default();
        found.into_iter().map(move |found| (Prefix::host(found.address), peer))
    });
    dynamic.chain(configured).map(|(range, peer)| (range, &peer.transport))
}

fn key_files(desired: &DesiredBgp) -> BTreeSet<PathBuf> {
    let peers = desired.listen.iter().map(|listen| &listen.template).chain(desired.peers.values());
    peers.flat_map(|peer| peer.transport.key_files().cloned()).collect()
}

/// The peers that have to be looked for.
fn unknown_addresses(desired: &DesiredBgp) -> BTreeSet<PeerAddress> {
    desired.peers.values().map(|peer| peer.address.clone()).filter(|address| address.known().is_none()).collect()
}

/// What the listener is to demand, as far as it takes the family. A file without a key demands nothing: its neighbours are refused one by one.
fn range_keys(desired: &DesiredBgp, keys: &Keys, whereabouts: &Whereabouts) -> RangeKeys {
    let Some(listen) = &desired.listen else { return RangeKeys::new() };
    let ranges = transports_by_range(desired, whereabouts).filter(|(range, _)| range.address().is_ipv4() == listen.address.is_ipv4());
    ranges.filter_map(|(range, transport)| Some((range, Signature::demanded(transport, keys).ok()??))).collect()
}

/// What a dynamic neighbour at this address is to be, if one may come from there.
fn dynamic_settings(desired: &DesiredBgp, identifier: BgpIdentifier, address: IpAddr) -> Option<Settings> {
    let peer = desired.listen.as_ref()?.dynamic_peer(address)?;
    Some(Settings::new(desired, identifier, peer, true))
}

/// The tasks and what they are to become.
pub(super) struct Neighbours {
    seed: u64,
    /// Counts the tasks, so that each has a number of its own.
    started: u32,
    rib: Rib,
    /// Whether neighbours are told what others have told.
    reflects: bool,
    target: watch::Receiver<Target>,
    requests: mpsc::Receiver<Request>,
    routes: watch::Receiver<Option<Routes>>,
    inheritance: Arc<OnceLock<Inheritance>>,
    /// Until then dynamic neighbours that have no task may hold what was inherited.
    held_until: Option<Instant>,
    /// Neighbours that have had a task.
    begun: BTreeSet<String>,
    board: Board,
    /// For the long steps of all sessions.
    gate: Gate,
    /// The node's addresses, followed once there is a neighbour.
    location: Option<watch::Receiver<Location>>,
    listener: Listener,
    running: BTreeMap<String, Running>,
    tasks: JoinSet<String>,
    /// Neighbours that an operator has shut down, whether they run or not.
    shut: BTreeSet<String>,
    /// The router id taken from the node's addresses, kept for the life of the process.
    automatic: Option<BgpIdentifier>,
    complained: bool,
}

struct Running {
    settings: Settings,
    end: watch::Sender<Option<Stop>>,
    adjustable: watch::Sender<Adjustable>,
    commands: mpsc::Sender<Command>,
}

/// What the set of tasks waits for.
enum Input {
    Target(bool),
    Ended(String),
    Keys,
    Whereabouts,
    Accepted(TcpStream, SocketAddr),
    Listener,
    Request(Request),
    Time,
}

impl Neighbours {
    pub(super) fn new(
        seed: u64,
        target: watch::Receiver<Target>,
        requests: mpsc::Receiver<Request>,
        routes: watch::Receiver<Option<Routes>>,
        inheritance: Arc<OnceLock<Inheritance>>,
        board: Board,
    ) -> Self {
        Self {
            seed,
            started: 0,
            rib: Rib::default(),
            reflects: false,
            target,
            requests,
            routes,
            inheritance,
            held_until: None,
            begun: BTreeSet::new(),
            board,
            gate: Gate::default(),
            location: None,
            listener: Listener::default(),
            running: BTreeMap::new(),
            tasks: JoinSet::new(),
            shut: BTreeSet::new(),
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
        loop {
            let target = self.target.borrow_and_update().clone();
            let settled = match &target {
                Target::Nothing => true,
                Target::Run(desired) => self.converge(desired, &mut keyring, &mut locator).await,
                Target::Stop => {
                    self.stop_all(&Stop::AdministrativeShutdown { communication: None });
                    true
                }
                Target::Release => {
                    self.stop_all(&Stop::Keep);
                    true
                }
                Target::Quit => return,
            };
            self.board.set_listen_error(self.listener.error());
            // Who was given a configuration and then asks means the neighbours that are in it.
            if let Some(request) = request.take() {
                self.operate(request, &target).await;
            }
            let wake = if settled { self.held_until } else { Instant::now().checked_add(ROUTER_ID_RETRY) };
            let input = self.next(&mut keys, &mut whereabouts);
            let input = match wake {
                Some(wake) => timeout_at(wake.into(), input).await.unwrap_or(Input::Time),
                None => input.await,
            };
            match input {
                Input::Target(true) | Input::Keys | Input::Whereabouts | Input::Listener | Input::Time => {}
                Input::Target(false) => return,
                Input::Ended(name) => {
                    self.running.remove(&name);
                    self.board.remove(&name);
                }
                Input::Accepted(stream, remote) => self.accept(stream, remote, &target, &keyring, &locator),
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
            accepted = self.listener.accept() => accepted.map_or(Input::Listener, |(stream, remote)| Input::Accepted(stream, remote)),
            Some(request) = self.requests.recv() => Input::Request(request),
        }
    }

    /// Brings the tasks closer to the configuration. False where the router id is not known yet.
    async fn converge(&mut self, desired: &Arc<DesiredBgp>, keyring: &mut Keyring, locator: &mut Locator) -> bool {
        let Some(identifier) = self.identifier(desired).await else {
            return false;
        };
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
        self.listener.listen(desired.listen.as_ref().map(|listen| SocketAddr::new(listen.address, listen.port)));
        self.listener.demand(range_keys(desired, &keyring.keys(), &locator.whereabouts()));
        for (name, running) in &mut self.running {
            let wanted = match desired.peers.get(name) {
                Some(peer) => Some(Settings::new(desired, identifier, peer.clone(), false)),
                None if running.settings.dynamic => {
                    running.dynamic_address().and_then(|address| dynamic_settings(desired, identifier, address))
                }
                None => None,
            };
            match wanted {
                None => running.order(Stop::Deconfigured),
                Some(settings) if running.settings.is_same_session(&settings) => running.adjust(name, settings),
                Some(_) => running.order(Stop::ConfigurationChange),
            }
        }
        for (name, peer) in &desired.peers {
            if !self.running.contains_key(name) {
                let settings = Settings::new(desired, identifier, peer.clone(), false);
                self.start(name, settings, keyring, locator, None);
            }
        }
        self.board.set_problem(None);
        self.held_until = self.held_by_dynamic_until(desired);
        self.board.set_configured(Some(desired), Some(identifier), self.held_until.is_some());
        true
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
        self.listener.listen(None);
        for running in self.running.values() {
            running.order(stop.clone());
        }
        self.held_until = None;
        self.board.set_configured(None, self.automatic, false);
    }

    fn start(&mut self, name: &str, settings: Settings, keyring: &Keyring, locator: &Locator, first: Option<TcpStream>) {
        self.started = self.started.wrapping_add(1);
        let id = PeerId(self.started);
        let mut seed = DefaultHasher::new();
        (self.seed, name, self.started).hash(&mut seed);
        let (end, ended) = watch::channel(None);
        let (adjustable, adjusted) = watch::channel(settings.adjustable(name));
        let (commands, received) = mpsc::channel(COMMANDS);
        let location = self.location.get_or_insert_with(location::follow).clone();
        let feed = Feed { routes: self.routes.clone(), rib: self.rib.join(id), turn: self.gate.turn() };
        let inputs = Inputs {
            end: ended,
            adjustable: adjusted,
            commands: received,
            keys: keyring.subscribe(),
            location,
            whereabouts: locator.subscribe(),
            feed,
        };
        let beginning = match (self.begun.insert(name.to_owned()), self.inheritance.get()) {
            (false, _) => Beginning::Another,
            (true, Some(inheritance)) => Beginning::Inherited(inheritance.clone()),
            (true, None) => Beginning::First,
        };
        let session = Session::new(name, id, &settings, &beginning, seed.finish(), inputs, self.board.clone());
        let shut = self.shut.contains(name);
        let name = name.to_owned();
        self.running.insert(name.clone(), Running { settings, end, adjustable, commands });
        self.tasks.spawn(fatal_panics(async move {
            session.run(shut, first).await;
            name
        }));
    }

    /// Somebody has dialled us: a configured neighbour, a new dynamic one, or nobody we know; then the connection is closed without a word.
    fn accept(&mut self, stream: TcpStream, remote: SocketAddr, target: &Target, keyring: &Keyring, locator: &Locator) {
        let Target::Run(desired) = target else { return };
        let address = remote.ip();
        let whereabouts = locator.whereabouts();
        if let Some(running) = self.running.values().find(|running| running.is_at(remote, &whereabouts)) {
            // Where its task is far behind, the neighbour will dial again.
            running.commands.try_send(Command::Accept(stream)).ok();
            return;
        }
        let name = format!("dynamic:{address}");
        let limit = desired.listen.as_ref().map_or(0, |listen| listen.limit);
        let dynamic = self.running.values().filter(|running| running.settings.dynamic).count();
        let settings = self.board.router_id().and_then(|identifier| dynamic_settings(desired, identifier, address));
        match settings {
            None => tracing::debug!(%remote, "a connection of nobody we know is closed"),
            Some(_) if self.shut.contains(&name) || self.running.contains_key(&name) => {}
            Some(_) if u32::try_from(dynamic).is_ok_and(|count| count >= limit) => {
                tracing::warn!(%remote, limit, "a connection is closed: there are as many dynamic neighbours as bgp.listen.limit allows");
            }
            Some(settings) => self.start(&name, settings, keyring, locator, Some(stream)),
        }
    }

    /// Does what an operator wants.
    async fn operate(&mut self, Request { name, order }: Request, target: &Target) {
        let configured = match target {
            Target::Run(desired) => desired.peers.keys().cloned().collect(),
            Target::Nothing | Target::Stop | Target::Release | Target::Quit => BTreeSet::new(),
        };
        let known: BTreeSet<String> = configured.into_iter().chain(self.running.keys().cloned()).chain(self.shut.iter().cloned()).collect();
        if !known.contains(&name) {
            order.refuse(OperatorError::Unknown { name, known: known.into_iter().collect() });
            return;
        }
        if let Order::Operate(operation, _) = &order {
            tracing::info!(peer = %name, ?operation, "an operator's order");
            match operation {
                Operation::Shutdown { .. } => drop(self.shut.insert(name.clone())),
                Operation::Start => drop(self.shut.remove(&name)),
                Operation::Reset | Operation::SoftReset { .. } => {}
            }
        }
        match self.running.get(&name) {
            Some(running) => {
                // A task that has just ended has nothing left to do.
                if let Err(unsent) = running.commands.send(Command::Obey(order)).await
                    && let Command::Obey(order) = unsent.0
                {
                    order.idle();
                }
            }
            None => order.idle(),
        }
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
        let problem = format!("no router id can be chosen ({problem}); set bgp.routerId, or give the node an address");
        self.board.set_problem(Some(&problem));
        if !self.complained {
            self.complained = true;
            tracing::warn!(%problem, "trying again each second");
        }
        None
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
