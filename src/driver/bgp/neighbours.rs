// SPDX-License-Identifier: Apache-2.0
//! The set of sessions: one task for each neighbour of the configuration.
//!
//! Input: the target, as a whole value. Output: tasks started and told to stop, so that what runs becomes what is configured. It is level-triggered: on
//! each change of the target and each end of a task the two are compared. A neighbour whose settings changed is stopped, and started again once its
//! old session is closed; one whose settings are the same notices nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bgp::peer::{PeerConfig, Stop};
use bgp::rib::{Export, NextHopPolicy};
use bgp::{Asn, BgpIdentifier};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::keyring::Keyring;
use super::session::Session;
use super::socket::Way;
use super::status::Board;
use super::{Routes, Target, addresses, fatal_panics, words};
use crate::desired::{DesiredBgp, DesiredPeer};

/// Between two looks at the node's addresses while none gives a router id.
const ROUTER_ID_RETRY: Duration = Duration::from_secs(1);

/// All that a session depends on.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Settings {
    pub(super) asn: Asn,
    pub(super) identifier: BgpIdentifier,
    pub(super) peer: DesiredPeer,
}

impl Settings {
    /// The way to the peer.
    pub(super) fn way(&self) -> Way {
        let peer = &self.peer;
        Way { address: peer.address, port: peer.port, external: peer.asn != self.asn, transport: peer.transport.clone() }
    }

    /// The same for the core.
    pub(super) fn peer_config(&self) -> PeerConfig {
        let peer = &self.peer;
        PeerConfig {
            local_asn: self.asn,
            remote_asn: peer.asn,
            identifier: self.identifier,
            hold_time: peer.hold_time,
            connect_retry: peer.connect_retry,
            families: peer.families.clone(),
            export: Export {
                local_preference: peer.local_preference,
                med: peer.med,
                next_hop_ipv4: next_hop(peer.next_hop_ipv4),
                next_hop_ipv6: next_hop(peer.next_hop_ipv6),
            },
        }
    }
}

/// The files with the keys of these neighbours.
fn key_files(desired: &DesiredBgp) -> BTreeSet<PathBuf> {
    desired.peers.values().filter_map(|peer| peer.transport.password_file.clone()).collect()
}

fn next_hop(configured: Option<impl Into<IpAddr>>) -> NextHopPolicy {
    configured.map_or(NextHopPolicy::SelfAddress, |address| NextHopPolicy::Address(address.into()))
}

/// The tasks and what they are to become.
pub(super) struct Neighbours {
    seed: u64,
    started: u64,
    target: watch::Receiver<Target>,
    routes: watch::Receiver<Option<Routes>>,
    board: Board,
    running: BTreeMap<String, Running>,
    tasks: JoinSet<String>,
    /// The router id taken from the node's addresses, kept for the life of the process.
    automatic: Option<BgpIdentifier>,
    complained: bool,
}

struct Running {
    settings: Settings,
    stop: watch::Sender<Option<Stop>>,
}

impl Neighbours {
    pub(super) fn new(seed: u64, target: watch::Receiver<Target>, routes: watch::Receiver<Option<Routes>>, board: Board) -> Self {
        Self {
            seed,
            started: 0,
            target,
            routes,
            board,
            running: BTreeMap::new(),
            tasks: JoinSet::new(),
            automatic: None,
            complained: false,
        }
    }

    /// Runs until the target is to quit; the tasks and their connections end with it.
    pub(super) async fn run(mut self) {
        let mut keyring = Keyring::new();
        loop {
            let target = self.target.borrow_and_update().clone();
            let settled = match target {
                Target::Nothing => true,
                Target::Run(desired) => self.converge(&desired, &mut keyring).await,
                Target::Stop => {
                    self.stop_all();
                    true
                }
                Target::Quit => return,
            };
            let changed = async {
                tokio::select! {
                    changed = self.target.changed() => changed.is_ok(),
                    Some(ended) = self.tasks.join_next() => {
                        if let Ok(name) = ended {
                            self.running.remove(&name);
                            self.board.remove(&name);
                        }
                        true
                    }
                }
            };
            let alive = if settled { changed.await } else { timeout(ROUTER_ID_RETRY, changed).await.unwrap_or(true) };
            if !alive {
                return;
            }
        }
    }

    /// Brings the tasks closer to the configuration. False where the router id is not known yet.
    async fn converge(&mut self, desired: &Arc<DesiredBgp>, keyring: &mut Keyring) -> bool {
        let Some(identifier) = self.identifier(desired).await else {
            return false;
        };
        keyring.follow(key_files(desired)).await;
        let wanted = |name: &str| {
            let peer = desired.peers.get(name)?;
            Some(Settings { asn: desired.asn, identifier, peer: peer.clone() })
        };
        for (name, running) in &self.running {
            match wanted(name) {
                None => running.order(Stop::Deconfigured),
                Some(settings) if settings != running.settings => running.order(Stop::ConfigurationChange),
                Some(_) => {}
            }
        }
        for name in desired.peers.keys() {
            if let Some(settings) = wanted(name)
                && !self.running.contains_key(name)
            {
                self.start(name, settings, keyring);
            }
        }
        self.board.set_configured(Some(desired), Some(identifier));
        true
    }

    fn stop_all(&self) {
        for running in self.running.values() {
            running.order(Stop::AdministrativeShutdown { communication: None });
        }
        self.board.set_configured(None, self.automatic);
    }

    fn start(&mut self, name: &str, settings: Settings, keyring: &Keyring) {
        self.started += 1;
        let mut seed = DefaultHasher::new();
        (self.seed, name, self.started).hash(&mut seed);
        let (stop, order) = watch::channel(None);
        let session = Session::new(name, &settings, seed.finish(), order, self.routes.clone(), keyring.subscribe(), self.board.clone());
        let name = name.to_owned();
        self.running.insert(name.clone(), Running { settings, stop });
        self.tasks.spawn(fatal_panics(async move {
            session.run().await;
            name
        }));
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
            Err(error) => words::with_causes(&error),
        };
        if !self.complained {
            self.complained = true;
            tracing::warn!(%problem, "no router id can be chosen; set bgp.routerId, or give the node an address: trying again each second");
        }
        None
    }
}

impl Running {
    /// Tells the task to end its session; the first order counts.
    fn order(&self, stop: Stop) {
        self.stop.send_if_modified(|order| {
            let first = order.is_none();
            order.get_or_insert(stop);
            first
        });
    }
}
