// SPDX-License-Identifier: Apache-2.0
//! A reflector and its clients, on a virtual clock: links break, clients crash and change their routes; in the end each holds what it should.
//!
//! Each run is a function of its seed. What a client should hold is worked out from the routes alone, without any state of the reflector.

use std::collections::{BTreeMap, VecDeque};

use super::*;
use crate::rib::{Changes, Path, Reflector, Route, best_path};
use crate::wire::AddPathMode;

const CLIENTS: usize = 3;
/// The address of the reflector.
const REFLECTOR: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 100);

/// One end of a link.
struct End {
    peer: Peer,
    /// What is on the way to it; `None` is the end of the connection.
    inbox: VecDeque<Option<Bytes>>,
    connected: bool,
    received: u64,
}

/// A client, and the link to it.
struct Client {
    end: End,
    at_reflector: End,
    originates: BTreeMap<Prefix, Arc<Route>>,
}

struct Star {
    now: Instant,
    dice: Jitter,
    reflector: Reflector,
    own: BTreeMap<Prefix, Arc<Route>>,
    clients: Vec<Client>,
    seed: u64,
}

const fn address(client: usize) -> Ipv4Addr {
    if client == 0 {
        Ipv4Addr::new(10, 0, 0, 1)
    } else if client == 1 {
        Ipv4Addr::new(10, 0, 0, 2)
    } else {
        Ipv4Addr::new(10, 0, 0, 3)
    }
}

fn configuration(local: Ipv4Addr, remote: Ipv4Addr, id: usize, seed: u64) -> PeerConfig {
    let at_reflector = local == REFLECTOR;
    // The last client takes all paths.
    let all_paths = if at_reflector { AddPathMode::Both } else { AddPathMode::Receive };
    let add_path = if id == CLIENTS { Family::ALL.map(|family| (family, all_paths)).into() } else { BTreeMap::new() };
    PeerConfig {
        client: at_reflector,
        import: Some(Import::default()),
        graceful_restart: seed.is_multiple_of(2).then(|| RestartConfig { restart_time: 10, ..RestartConfig::default() }),
        add_path,
        hold_time: seconds(9),
        connect_retry: Duration::from_secs(5),
        ..PeerConfig::new(
            PeerId(u32::try_from(id).unwrap()),
            remote.into(),
            asn(65001),
            asn(65001),
            BgpIdentifier::try_from(local).unwrap(),
        )
    }
}

impl End {
    fn new(config: PeerConfig, seed: u64) -> Self {
        Self { peer: Peer::new(config, seed), inbox: VecDeque::new(), connected: false, received: 0 }
    }
}

impl Star {
    fn new(seed: u64) -> Self {
        let clients = (0..CLIENTS).map(|client| Client {
            end: End::new(configuration(address(client), REFLECTOR, client + 1, seed), seed * 10 + client as u64),
            at_reflector: End::new(configuration(REFLECTOR, address(client), client + 1, seed), seed * 10 + 5 + client as u64),
            originates: BTreeMap::new(),
        });
        let mut star = Self {
            now: *EPOCH,
            dice: Jitter::new(seed),
            reflector: Reflector::default(),
            own: BTreeMap::new(),
            clients: clients.collect(),
            seed,
        };
        for client in 0..CLIENTS {
            star.event(client, true, Event::Routes(star.reflector.loc_rib()));
            star.event(client, true, Event::Start);
            star.start(client);
        }
        star
    }

    fn below(&mut self, limit: usize) -> usize {
        let spread = Duration::from_secs(1 << 20);
        usize::try_from((spread - self.dice.apply(spread)).as_nanos() / 7).unwrap() % limit
    }

    fn end(&mut self, client: usize, at_reflector: bool) -> &mut End {
        let client = &mut self.clients[client];
        if at_reflector { &mut client.at_reflector } else { &mut client.end }
    }

    fn event(&mut self, client: usize, at_reflector: bool, event: Event) {
        let now = self.now;
        let role = if at_reflector { Role::Passive } else { Role::Active };
        let peer = &mut self.end(client, at_reflector).peer;
        let mut actions = peer.handle(now, event);
        if peer.is_to_tell() {
            actions.extend(peer.handle(now, Event::Tell));
        }
        for action in actions {
            match action {
                // The reflector is dialled and does not dial.
                Action::Connect if at_reflector => {}
                Action::Connect => self.connect(client),
                Action::Send { bytes, .. } => {
                    self.end(client, !at_reflector).inbox.push_back(Some(bytes));
                    self.event(client, at_reflector, Event::Writable { role });
                }
                Action::Close { role: of } | Action::Abort { role: of } if of == role => self.hang_up(client, at_reflector),
                Action::Learned(learnt) if at_reflector => {
                    let changes = self.reflector.learn(PeerId(u32::try_from(client + 1).unwrap()), &learnt);
                    self.tell(changes);
                }
                Action::Close { .. } | Action::Abort { .. } | Action::Transition { .. } | Action::Down(_) | Action::Learned(_) => {}
            }
        }
    }

    fn tell(&mut self, changes: Changes) {
        let changes = Arc::new(changes);
        for client in 0..CLIENTS {
            let (changes, rib) = (Arc::clone(&changes), self.reflector.loc_rib());
            self.event(client, true, Event::Changes { changes, rib });
        }
    }

    fn connect(&mut self, client: usize) {
        if !self.clients[client].at_reflector.peer.accepts() || self.clients[client].at_reflector.connected {
            return self.event(client, false, Event::ConnectFailed { role: Role::Active });
        }
        for at_reflector in [true, false] {
            let end = self.end(client, at_reflector);
            (end.connected, end.received) = (true, 0);
            end.inbox.clear();
        }
        for (at_reflector, role, local) in [(true, Role::Passive, REFLECTOR), (false, Role::Active, address(client))] {
            let ipv6 = Some(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, local.octets()[3].into()));
            let local = LocalAddresses { ipv4: Some(local), ipv6, ..LocalAddresses::NONE };
            self.event(client, at_reflector, Event::Connected { role, local });
        }
    }

    fn hang_up(&mut self, client: usize, at_reflector: bool) {
        self.end(client, at_reflector).connected = false;
        self.end(client, !at_reflector).inbox.push_back(None);
    }

    /// Lets the next octets of a link arrive.
    fn deliver(&mut self, client: usize, at_reflector: bool) {
        let role = if at_reflector { Role::Passive } else { Role::Active };
        let end = self.end(client, at_reflector);
        let Some(item) = end.inbox.pop_front() else { return };
        match item {
            _ if !end.connected => {}
            Some(bytes) => {
                end.received += bytes.len() as u64;
                let octets = end.received;
                self.event(client, at_reflector, Event::Received { role, bytes });
                let other = role.other();
                if self.end(client, !at_reflector).connected {
                    self.event(client, !at_reflector, Event::Acknowledged { role: other, octets });
                }
            }
            None => {
                end.connected = false;
                self.event(client, at_reflector, Event::Closed { role });
            }
        }
    }

    fn start(&mut self, client: usize) {
        let routes = self.clients[client].originates.clone();
        self.event(client, false, Event::Routes(Arc::new(routes.into_iter().collect())));
        self.event(client, false, Event::Start);
    }

    fn choose(&mut self) -> BTreeMap<Prefix, Arc<Route>> {
        let mut routes = BTreeMap::new();
        for last in 1..=4_u8 {
            let route = Route { med: Some(u32::try_from(self.below(3)).unwrap()), ..Route::originated() };
            let v4 = host(&format!("192.0.2.{last}"));
            let v6 = host(&format!("2001:db8::{last}"));
            if self.below(2) == 0 {
                routes.insert(if self.below(2) == 0 { v4 } else { v6 }, Arc::new(route));
            }
        }
        routes
    }

    fn disturb(&mut self) {
        let client = self.below(CLIENTS);
        match self.below(7) {
            0 => {
                for at_reflector in [true, false] {
                    self.end(client, at_reflector).inbox.clear();
                    self.end(client, at_reflector).inbox.push_back(None);
                }
            }
            1 => {
                let seed = self.below(1 << 30) as u64;
                let mut config = configuration(address(client), REFLECTOR, client + 1, self.seed);
                if let Some(restart) = &mut config.graceful_restart {
                    restart.restarting = true;
                }
                self.clients[client].end = End::new(config, seed);
                self.clients[client].at_reflector.inbox.push_back(None);
                self.start(client);
            }
            2 => {
                let at_reflector = self.below(2) == 0;
                self.event(client, at_reflector, Event::Stop(Stop::AdministrativeReset));
            }
            3 => {
                let gone: Vec<_> = std::mem::take(&mut self.own).into_keys().map(|prefix| (prefix, None)).collect();
                self.own = self.choose();
                let own = self.own.iter().map(|(prefix, route)| (*prefix, Some(Arc::clone(route))));
                let changes = self.reflector.originate(gone.into_iter().chain(own).collect::<BTreeMap<_, _>>());
                self.tell(changes);
            }
            4 => self.event(client, false, Event::Refresh(Family::Ipv4Unicast)),
            _ => {
                self.clients[client].originates = self.choose();
                let routes = self.clients[client].originates.clone();
                self.event(client, false, Event::Routes(Arc::new(routes.into_iter().collect())));
            }
        }
    }

    fn run(&mut self, steps: usize, disturbances: bool) {
        for _ in 0..steps {
            self.now += Duration::from_millis(25);
            for (client, at_reflector) in (0..CLIENTS).flat_map(|client| [(client, false), (client, true)]) {
                if self.end(client, at_reflector).peer.deadline().is_some_and(|at| at <= self.now) {
                    self.event(client, at_reflector, Event::Tick);
                }
            }
            for _ in 0..12 {
                let (client, at_reflector) = (self.below(CLIENTS), self.below(2) == 0);
                self.deliver(client, at_reflector);
            }
            if disturbances && self.below(40) == 0 {
                self.disturb();
            }
        }
    }

    /// The last octets of the identifiers of those whose paths to a destination a client should hold; 100 is the reflector.
    fn expected(&self, client: usize, prefix: Prefix) -> BTreeSet<u8> {
        let of_clients = (0..CLIENTS).filter_map(|other| Some((other, self.clients[other].originates.get(&prefix)?)));
        let candidates: Vec<_> = self
            .own
            .get(&prefix)
            .map(|_| (usize::MAX, Path::originated(Arc::new(Route::originated()))))
            .into_iter()
            .chain(of_clients.map(|(other, route)| {
                let source = crate::rib::Source {
                    peer: PeerId(0),
                    address: address(other).into(),
                    identifier: BgpIdentifier::try_from(address(other)).unwrap(),
                    internal: true,
                    client: true,
                };
                let learned = crate::rib::Learned::new(Arc::new(source), NextHop::V4(address(other)));
                (
                    other,
                    Path {
                        id: 2,
                        received: Some((PeerId(0), 0)),
                        route: Arc::new(Route { learned: Some(learned), ..Route::clone(route) }),
                    },
                )
            }))
            .collect();
        let paths: Vec<_> = candidates.iter().map(|(_, path)| path.clone()).collect();
        let best = best_path(&paths);
        let told =
            candidates.iter().enumerate().filter(|(place, (other, _))| *other != client && (client + 1 == CLIENTS || Some(*place) == best));
        told.map(|(_, (other, _))| if *other == usize::MAX { 100 } else { address(*other).octets()[3] }).collect()
    }

    fn check(&self) {
        for (number, client) in self.clients.iter().enumerate() {
            assert_eq!(client.end.peer.state(), State::Established, "seed {}", self.seed);
            let adj_rib_in = client.end.peer.adj_rib_in().unwrap();
            let mut held: BTreeMap<Prefix, BTreeSet<u8>> = BTreeMap::new();
            for (nlri, route) in adj_rib_in.routes() {
                assert!(!route.stale && route.ineligible.is_none(), "seed {}: {route:?}", self.seed);
                let last = match route.route.learned.as_ref().unwrap().next_hop {
                    NextHop::V4(address) => address.octets()[3],
                    NextHop::V6 { global, .. } => global.octets()[15],
                };
                assert!(held.entry(nlri.prefix).or_default().insert(last), "seed {}: one path twice", self.seed);
            }
            let prefixes: BTreeSet<_> =
                self.clients.iter().flat_map(|client| client.originates.keys()).chain(self.own.keys()).copied().collect();
            let expected =
                prefixes.into_iter().map(|prefix| (prefix, self.expected(number, prefix))).filter(|(_, paths)| !paths.is_empty());
            assert_eq!(held, expected.collect(), "seed {}: client {number}", self.seed);
        }
    }
}

#[test]
fn rfc4456_section_6_whatever_happens_each_client_ends_with_the_best_or_all_paths_of_the_others() {
    for seed in 0..400 {
        let mut star = Star::new(seed);
        star.run(1200, true);
        star.run(1200, false);
        star.check();
    }
}
