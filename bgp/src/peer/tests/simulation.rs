// SPDX-License-Identifier: Apache-2.0
//! Two speakers on a virtual clock, with a network that delays, stalls, goes dark and breaks, and hosts that crash.
//!
//! Each run is a function of its seed. While it runs, what a speaker holds of the other must be known to the other as advertised or being withdrawn;
//! some time after the last disturbance there must be one connection, one session, and at each end exactly the routes of the other.

use std::collections::BTreeMap;

use super::*;
use crate::rib::receiver::changes;
use crate::wire::{Deframer, Message};

const fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

/// Nothing disturbs the speakers after this.
const QUIET_AFTER: Duration = Duration::from_secs(40);
/// A dead session is found (9 s), and at worst some attempts fail (5 s each), as when the other speaker still rests.
const TIME_TO_RECOVER: Duration = Duration::from_secs(25);

/// Seconds for which the speakers of every second run keep stale routes.
const RESTART_TIME: u16 = 10;

/// Chance, of a seed.
struct Dice(Jitter);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        // 75 % to 100 % of a period that is long against the limit.
        let spread = Duration::from_secs(1 << 20);
        let nanoseconds = u64::try_from((spread - self.0.apply(spread)).as_nanos()).unwrap();
        nanoseconds / 7 % limit
    }

    fn between(&mut self, from: Duration, to: Duration) -> Duration {
        from + Duration::from_micros(self.below(u64::try_from((to - from).as_micros()).unwrap() + 1))
    }

    fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }
}

/// What is to happen, apart from ticks.
#[derive(Clone, Debug)]
enum Happening {
    Start(usize),
    Syn(usize),
    SynAck(usize),
    Refused(usize),
    /// On a wire, towards a host.
    Data(usize, usize, Bytes),
    Fin(usize, usize),
    Reset(usize, usize),
    Ack(usize, usize, u64),
    Writable(usize, usize),
    Disturb,
}

/// One end of a connection.
#[derive(Default)]
struct End {
    /// The driver of this host reports events of it.
    open: bool,
    /// When the last octets or the end come here.
    last_arrival: Duration,
    /// Octets that came here.
    arrived: u64,
    deframer: Deframer,
    opened: bool,
    /// What this host holds of the other.
    held: BTreeSet<Prefix>,
    ends_of_rib: BTreeSet<Family>,
    /// Code and subcode of the NOTIFICATIONs sent from here.
    notified: Vec<(u8, u8)>,
    /// The host has crashed and knows nothing of it.
    forgotten: bool,
}

/// One TCP connection, from the SYN on.
struct Wire {
    dialler: usize,
    ends: [End; 2],
    accepted: bool,
    connected: bool,
    /// Nothing comes through any more, and nobody is told.
    dark: bool,
}

struct Host {
    config: PeerConfig,
    peer: Option<Peer>,
    /// The wires of the roles that the driver has a socket for.
    sockets: BTreeMap<Role, usize>,
    routes: Arc<LocRib>,
    /// What the peer has reported as learned and not as gone.
    learned: BTreeSet<Prefix>,
    /// Nobody here remembers any more what the other may hold of us.
    forgot: bool,
}

struct World {
    now: Duration,
    queue: BTreeMap<(Duration, u64), Happening>,
    sequence: u64,
    dice: Dice,
    hosts: [Host; 2],
    wires: Vec<Wire>,
    longest_delay: Duration,
    /// A connection went dark before both OPENs had come: the speakers have to wait for the large hold timer of OpenSent.
    dark_in_open_sent: bool,
}

const fn other(host: usize) -> usize {
    1 - host
}

const fn local(host: usize) -> LocalAddresses {
    if host == 0 {
        LOCAL
    } else {
        LocalAddresses {
            ipv4: Some(Ipv4Addr::new(10, 211, 1, 9)),
            ipv6: Some(Ipv6Addr::new(0xfd00, 0, 0, 1, 0, 0, 0, 9)),
            link_local: None,
            ..LocalAddresses::NONE
        }
    }
}

impl World {
    /// Both speakers start within `spread` of each other.
    fn new(seed: u64, spread: Duration, disturbances: u64) -> Self {
        let mut dice = Dice(Jitter::new(seed));
        let external = dice.one_in(2);
        let graceful = dice.one_in(2);
        let higher = usize::try_from(dice.below(2)).unwrap();
        let hosts = [0, 1].map(|host| {
            let number = |host: usize| asn(65001 + if external { u32::try_from(host).unwrap() } else { 0 });
            let identifier = BgpIdentifier::new(if host == higher { 9 } else { 5 }).unwrap();
            let config = PeerConfig {
                address: local(other(host)).ipv4.unwrap().into(),
                local_asn: number(host),
                remote_asn: number(other(host)),
                identifier,
                graceful_restart: graceful.then(|| RestartConfig {
                    restart_time: RESTART_TIME,
                    notification: !seed.is_multiple_of(3),
                    ..RestartConfig::default()
                }),
                import: Some(Import::default()),
                ..config()
            };
            Host { config, peer: None, sockets: BTreeMap::new(), routes: Arc::default(), learned: BTreeSet::new(), forgot: false }
        });
        let longest_delay = [ms(1), ms(5), ms(50), ms(300)][usize::try_from(dice.below(4)).unwrap()];
        let mut world = Self {
            now: Duration::ZERO,
            queue: BTreeMap::new(),
            sequence: 0,
            dice,
            hosts,
            wires: vec![],
            longest_delay,
            dark_in_open_sent: false,
        };
        for host in [0, 1] {
            let at = world.dice.between(Duration::ZERO, spread);
            world.after(at, Happening::Start(host));
        }
        for _ in 0..disturbances {
            let at = world.dice.between(ms(1), QUIET_AFTER - ms(1));
            world.after(at, Happening::Disturb);
        }
        world
    }

    fn after(&mut self, delay: Duration, happening: Happening) {
        self.sequence += 1;
        self.queue.insert((self.now + delay, self.sequence), happening);
    }

    fn delay(&mut self) -> Duration {
        self.dice.between(Duration::from_micros(20), self.longest_delay)
    }

    /// In the order in which they were sent, as TCP does.
    fn towards(&mut self, wire: usize, host: usize, happening: Happening) {
        let delay = self.delay();
        let end = &mut self.wires[wire].ends[host];
        end.last_arrival = end.last_arrival.max(self.now + delay);
        let delay = end.last_arrival - self.now;
        if !self.wires[wire].dark {
            self.after(delay, happening);
        }
    }

    fn run_until(&mut self, end: Duration) {
        loop {
            let ticks = [0, 1].map(|host| self.hosts[host].peer.as_ref().and_then(Peer::deadline).map(|at| at - *EPOCH));
            let tick = ticks.iter().flatten().min().copied();
            let next = self.queue.first_key_value().map(|((at, _), _)| *at);
            let Some(at) = tick.into_iter().chain(next).min().filter(|at| *at <= end) else { break };
            self.now = at;
            if next == Some(at) {
                let (_, happening) = self.queue.pop_first().unwrap();
                self.happen(happening);
            } else {
                let host = usize::from(ticks[0] != tick);
                self.event(host, Event::Tick);
            }
            self.check();
            self.check_stale();
        }
        self.now = end;
    }

    fn event(&mut self, host: usize, event: Event) {
        if let Some(peer) = &mut self.hosts[host].peer {
            let mut actions = peer.handle(*EPOCH + self.now, event);
            if peer.is_to_tell() {
                actions.extend(peer.handle(*EPOCH + self.now, Event::Tell));
            }
            for action in actions {
                self.act(host, action);
            }
        }
    }

    /// What the driver of a host does.
    fn act(&mut self, host: usize, action: Action) {
        match action {
            Action::Connect => {
                assert!(!self.hosts[host].sockets.contains_key(&Role::Active), "dialled twice");
                let wire = self.wires.len();
                self.wires.push(Wire { dialler: host, ends: Default::default(), accepted: false, connected: false, dark: false });
                self.hosts[host].sockets.insert(Role::Active, wire);
                self.towards(wire, other(host), Happening::Syn(wire));
            }
            Action::Send { role, bytes } => {
                let wire = self.hosts[host].sockets[&role];
                self.wires[wire].ends[host].notified.extend(notified(&[send(role, bytes.clone())]));
                self.towards(wire, other(host), Happening::Data(wire, other(host), bytes));
                let delay = self.dice.between(Duration::ZERO, ms(3));
                self.after(delay, Happening::Writable(wire, host));
            }
            Action::Close { role } => self.release(host, role, Happening::Fin),
            Action::Abort { role } => self.release(host, role, Happening::Reset),
            Action::Learned(learnt) => {
                let learned = &mut self.hosts[host].learned;
                for (nlri, route) in learnt {
                    let known = if route.is_some() { learned.insert(nlri.prefix) } else { learned.remove(&nlri.prefix) };
                    assert!(known || route.is_some(), "gone, but never learned");
                }
            }
            Action::Transition { .. } | Action::Down(_) => {}
        }
    }

    fn release(&mut self, host: usize, role: Role, last: fn(usize, usize) -> Happening) {
        if let Some(wire) = self.hosts[host].sockets.remove(&role) {
            self.wires[wire].ends[host].open = false;
            if self.wires[wire].accepted {
                self.towards(wire, other(host), last(wire, other(host)));
            }
        }
    }

    fn role(&self, wire: usize, host: usize) -> Role {
        if self.wires[wire].dialler == host { Role::Active } else { Role::Passive }
    }

    fn has(&self, wire: usize, host: usize) -> bool {
        self.hosts[host].sockets.get(&self.role(wire, host)) == Some(&wire)
    }

    fn happen(&mut self, happening: Happening) {
        match happening {
            Happening::Start(host) => self.start(host),
            Happening::Syn(wire) => self.syn(wire),
            Happening::SynAck(wire) => {
                let host = self.wires[wire].dialler;
                if self.has(wire, host) {
                    self.wires[wire].connected = true;
                    self.wires[wire].ends[host].open = true;
                    self.event(host, Event::Connected { role: Role::Active, local: local(host) });
                } else {
                    self.towards(wire, other(host), Happening::Reset(wire, other(host)));
                }
            }
            Happening::Refused(wire) => {
                let host = self.wires[wire].dialler;
                if self.has(wire, host) {
                    self.hosts[host].sockets.remove(&Role::Active);
                    self.event(host, Event::ConnectFailed { role: Role::Active });
                }
            }
            Happening::Data(wire, host, bytes) => self.data(wire, host, &bytes),
            Happening::Fin(wire, host) | Happening::Reset(wire, host) => {
                if self.has(wire, host) && self.wires[wire].ends[host].open {
                    self.event(host, Event::Closed { role: self.role(wire, host) });
                } else if self.has(wire, host) {
                    self.happen(Happening::Refused(wire));
                }
            }
            Happening::Ack(wire, host, octets) if self.has(wire, host) => {
                self.event(host, Event::Acknowledged { role: self.role(wire, host), octets });
            }
            Happening::Writable(wire, host) if self.has(wire, host) => self.event(host, Event::Writable { role: self.role(wire, host) }),
            Happening::Ack(..) | Happening::Writable(..) => {}
            Happening::Disturb => self.disturb(),
        }
    }

    fn start(&mut self, host: usize) {
        if self.hosts[host].peer.is_none() {
            let seed = self.dice.below(u64::MAX);
            self.hosts[host].peer = Some(Peer::new(self.hosts[host].config.clone(), seed));
            if self.dice.one_in(2) {
                self.event(host, Event::Start);
                self.set_routes(host);
            } else {
                self.set_routes(host);
                self.event(host, Event::Start);
            }
        }
    }

    fn set_routes(&mut self, host: usize) {
        let chosen: Vec<_> = (0..self.dice.below(6)).map(|_| self.destination(host)).collect();
        self.hosts[host].routes = Arc::new(LocRib::originated(chosen));
        let routes = Arc::clone(&self.hosts[host].routes);
        self.event(host, Event::Routes(routes));
    }

    fn destination(&mut self, host: usize) -> Prefix {
        let last = 1 + u8::try_from(self.dice.below(6)).unwrap();
        let subnet = u8::try_from(host).unwrap();
        Prefix::host(if self.dice.one_in(2) {
            Ipv4Addr::new(10, 0, subnet, last).into()
        } else {
            Ipv6Addr::new(0xfd00, 0, 0, subnet.into(), 0, 0, 0, last.into()).into()
        })
    }

    fn syn(&mut self, wire: usize) {
        let host = other(self.wires[wire].dialler);
        let occupied = self.hosts[host].sockets.contains_key(&Role::Passive);
        let Some(peer) = self.hosts[host].peer.as_ref().filter(|peer| !occupied || peer.accepts()) else {
            self.towards(wire, other(host), Happening::Refused(wire));
            return;
        };
        if peer.state() == State::Idle {
            // It rests: the driver says so and closes (RFC 4486 §4).
            self.wires[wire].accepted = true;
            let dialler = other(host);
            let cease = Notification::cease(Cease::ConnectionRejected).encode();
            self.towards(wire, dialler, Happening::SynAck(wire));
            self.towards(wire, dialler, Happening::Data(wire, dialler, cease));
            self.towards(wire, dialler, Happening::Fin(wire, dialler));
            return;
        }
        let replaces = peer.may_have_restarted(Role::Passive);
        assert!(!occupied || peer.state() == State::OpenSent || self.hosts[host].sockets.len() == 2 || replaces);
        self.release(host, Role::Passive, Happening::Reset);
        self.hosts[host].sockets.insert(Role::Passive, wire);
        self.wires[wire].accepted = true;
        self.wires[wire].ends[host].open = true;
        self.towards(wire, other(host), Happening::SynAck(wire));
        self.event(host, Event::Connected { role: Role::Passive, local: local(host) });
    }

    fn data(&mut self, wire: usize, host: usize, bytes: &Bytes) {
        self.wires[wire].ends[host].arrived += bytes.len() as u64;
        let arrived = self.wires[wire].ends[host].arrived;
        if self.has(wire, host) && self.wires[wire].ends[host].open {
            self.towards(wire, other(host), Happening::Ack(wire, other(host), arrived));
            self.read(wire, host, bytes);
            let role = self.role(wire, host);
            let cut = usize::try_from(self.dice.below(bytes.len() as u64 + 1)).unwrap();
            self.event(host, Event::Received { role, bytes: bytes.slice(..cut) });
            if self.has(wire, host) {
                self.event(host, Event::Received { role, bytes: bytes.slice(cut..) });
            }
        } else if self.wires[wire].ends[host].forgotten {
            self.towards(wire, other(host), Happening::Reset(wire, other(host)));
        }
    }

    /// What a host learns from octets, told from the octets alone.
    fn read(&mut self, wire: usize, host: usize, bytes: &[u8]) {
        let [remote, local] = [other(host), host].map(|host| self.hosts[host].config.open());
        let end = &mut self.wires[wire].ends[host];
        let negotiated = if end.opened { Negotiated::new(&local, &remote) } else { Negotiated::before_open(local.asn) };
        end.deframer.push(bytes);
        while let Some(message) = end.deframer.next(&negotiated).unwrap() {
            match message {
                Message::Open(_) => end.opened = true,
                Message::Update(update) => {
                    assert_eq!(update.errors, []);
                    let (announced, withdrawn) = changes(&update);
                    end.held.retain(|prefix| !withdrawn.contains(prefix));
                    end.held.extend(announced.iter().map(|(prefix, _)| *prefix));
                    end.ends_of_rib.extend(update.is_end_of_rib());
                }
                Message::Notification(_) | Message::Keepalive | Message::RouteRefresh(_) => {}
            }
        }
    }

    fn disturb(&mut self) {
        let host = usize::try_from(self.dice.below(2)).unwrap();
        match self.dice.below(8) {
            0 => self.crash(host),
            1 => self.break_wires(),
            2 => (0..self.wires.len()).for_each(|wire| self.darken(wire)),
            3 => self.event(host, Event::Stop(Stop::AdministrativeReset)),
            4 => {
                self.hosts[host].forgot = true;
                self.event(host, Event::Stop(Stop::AdministrativeShutdown { communication: None }));
                self.event(host, Event::Start);
            }
            // Everything under way comes late.
            5 => {
                let late = self.dice.between(ms(1), ms(4000));
                for end in self.wires.iter_mut().flat_map(|wire| &mut wire.ends) {
                    end.last_arrival = end.last_arrival.max(self.now) + late;
                }
            }
            _ => self.set_routes(host),
        }
    }

    /// The peer sees nothing of it before it sends something.
    fn crash(&mut self, host: usize) {
        self.hosts[host].peer = None;
        self.hosts[host].learned.clear();
        self.hosts[host].forgot = true;
        if let Some(restart) = &mut self.hosts[host].config.graceful_restart {
            restart.restarting = true;
        }
        self.hosts[host].sockets.clear();
        let down_for = self.dice.between(ms(1), ms(3000));
        self.after(down_for, Happening::Start(host));
        for wire in 0..self.wires.len() {
            let end = &mut self.wires[wire].ends;
            end[host].open = false;
            end[host].forgotten = true;
            if end[other(host)].open && self.dice.one_in(2) {
                self.towards(wire, other(host), Happening::Reset(wire, other(host)));
            } else {
                self.darken(wire);
            }
        }
    }

    fn darken(&mut self, wire: usize) {
        let wire = &mut self.wires[wire];
        wire.dark = true;
        self.dark_in_open_sent |= wire.ends.iter().any(|end| end.open && !end.opened);
    }

    fn break_wires(&mut self) {
        for wire in 0..self.wires.len() {
            for host in [0, 1] {
                self.towards(wire, host, Happening::Reset(wire, host));
            }
        }
    }

    /// Holds at every moment.
    fn check(&self) {
        for (index, wire) in self.wires.iter().enumerate() {
            for host in [0, 1].into_iter().filter(|host| wire.ends[other(*host)].open && self.has(index, *host)) {
                let Some(adj_rib_out) = self.hosts[host].peer.as_ref().and_then(Peer::adj_rib_out) else { continue };
                let known: BTreeSet<_> = adj_rib_out.advertised().chain(adj_rib_out.withdrawing()).collect();
                let established = self.hosts[host].peer.as_ref().is_some_and(|peer| peer.is_established_on(self.role(index, host)));
                assert!(!established || wire.ends[other(host)].held.is_subset(&known), "the peer holds what nobody remembers telling");
            }
        }
    }

    /// With graceful restart: what a speaker uses of the other is wanted there, or known to be held.
    fn check_stale(&mut self) {
        for host in [0, 1] {
            let (Some(peer), Some(user)) = (&self.hosts[host].peer, &self.hosts[other(host)].peer) else { continue };
            if peer.adj_rib_out().is_some_and(AdjRibOut::is_synced) {
                self.hosts[host].forgot = false;
            }
            let host = &self.hosts[host];
            if host.forgot || host.config.graceful_restart.is_none() {
                continue;
            }
            let known = peer.withdrawing();
            let used = user.adj_rib_in().unwrap().routes().map(|(nlri, _)| nlri.prefix);
            let lost: Vec<_> = used.filter(|prefix| !host.routes.contains(prefix) && !known.contains(prefix)).collect();
            assert_eq!(lost, [], "the peer uses what nobody remembers telling, at {:?}", self.now);
        }
    }

    /// Holds when all is quiet.
    fn check_end(&self, seed: u64) {
        let live: Vec<_> = (0..self.wires.len()).filter(|wire| self.has(*wire, 0) || self.has(*wire, 1)).collect();
        assert_eq!(live.len(), 1, "seed {seed}: not one connection");
        for host in [0, 1] {
            assert!(self.has(live[0], host), "seed {seed}: half a connection");
            let peer = self.hosts[host].peer.as_ref().unwrap();
            assert_eq!(peer.state(), State::Established, "seed {seed}");
            let end = &self.wires[live[0]].ends[other(host)];
            let wanted: BTreeSet<_> = self.hosts[host].routes.routes().map(|(prefix, _)| prefix).collect();
            assert_eq!(end.held, wanted, "seed {seed}");
            assert_eq!(self.hosts[other(host)].learned, wanted, "seed {seed}");
            assert_eq!((peer.stale_until(), peer.withdrawing()), (None, BTreeSet::new()), "seed {seed}");
            assert_eq!(peer.adj_rib_in().unwrap().restarting(), BTreeSet::new(), "seed {seed}");
            assert_eq!(end.ends_of_rib, Family::ALL.into(), "seed {seed}");
            let adj_rib_out = peer.adj_rib_out().unwrap();
            assert_eq!(adj_rib_out.advertised().collect::<BTreeSet<_>>(), wanted, "seed {seed}");
            assert_eq!(adj_rib_out.withdrawing().count(), 0, "seed {seed}");
            assert!(adj_rib_out.is_synced(), "seed {seed}");
        }
    }
}

impl Peer {
    fn is_established_on(&self, role: Role) -> bool {
        self.connections.get(role).is_some_and(|connection| connection.adj_rib_out().is_some())
    }
}

#[test]
fn speakers_recover_from_everything_and_agree() {
    for seed in 0..2000 {
        let mut world = World::new(seed, Duration::from_secs(3), seed % 8);
        world.run_until(QUIET_AFTER);
        let longer = if world.dark_in_open_sent { PeerConfig::OPEN_HOLD_TIME } else { Duration::ZERO };
        world.run_until(QUIET_AFTER + TIME_TO_RECOVER + longer);
        world.check_end(seed);
    }
}

#[test]
fn rfc4271_section_6_8_speakers_that_start_together_are_up_within_two_retry_times() {
    for seed in 0..500 {
        let mut world = World::new(seed, if seed % 2 == 0 { Duration::ZERO } else { ms(5) }, 0);
        world.run_until(Duration::from_secs(10));
        world.check_end(seed);
        for (index, wire) in world.wires.iter().enumerate().filter(|(_, wire)| wire.connected && wire.ends.iter().all(|end| end.opened)) {
            let told = wire.ends.iter().any(|end| end.notified.contains(&(6, 7)));
            assert!(world.has(index, 0) || told, "seed {seed}: the loser was not told why");
        }
    }
}
