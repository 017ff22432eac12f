// SPDX-License-Identifier: Apache-2.0
//! Two reflectors, three clients of both, and an external peer at each, on a virtual clock: links break, speakers crash, operators interfere.
//!
//! ```text
//!   upstream 5 -- reflector 0 ------- reflector 1 -- upstream 6
//!                     \  \  \       /  /  /
//!                      2   3   4 (clients of both)
//! ```
//!
//! Each run is a function of its seed. While it runs, the rest of a speaker has heard exactly the eligible routes of each peer. Once it is quiet, what
//! each speaker holds of another is what a session that starts anew would tell, its paths are those that its peers' routes make, nobody holds a path
//! that nobody originates, and everybody reaches what they may.

use std::collections::{BTreeMap, VecDeque};

use super::*;
use crate::rib::{Reflector, Route, Session, best_path};
use crate::wire::{AddPathMode, BgpRole, Deframer, Message};

const SPEAKERS: usize = 7;
/// The second of the two is dialled.
const LINKS: [(usize, usize); 9] = [(2, 0), (3, 0), (4, 0), (2, 1), (3, 1), (4, 1), (0, 1), (5, 0), (6, 1)];
const UPSTREAMS: [usize; 2] = [5, 6];
const STEP: Duration = Duration::from_millis(50);

struct Speaker {
    reflector: Reflector,
    own: BTreeMap<Prefix, Arc<Route>>,
}

/// One end of a link.
struct End {
    peer: Peer,
    export: Export,
    /// What is on the way to it; `None` is the end of the connection.
    inbox: VecDeque<Option<Bytes>>,
    connected: bool,
    received: u64,
    /// The routes that the rest of the speaker has heard of.
    heard: BTreeMap<crate::wire::Nlri, Arc<Route>>,
}

struct Mesh {
    now: Instant,
    dice: Jitter,
    seed: u64,
    speakers: Vec<Speaker>,
    links: Vec<[End; 2]>,
}

const fn address(speaker: usize) -> Ipv4Addr {
    Ipv4Addr::from_bits(0x0a00_0001 + speaker as u32)
}

const fn ipv6_address(speaker: usize) -> Ipv6Addr {
    Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1 + speaker as u16)
}

const fn local(speaker: usize) -> LocalAddresses {
    LocalAddresses { ipv4: Some(address(speaker)), ipv6: Some(ipv6_address(speaker)), ..LocalAddresses::NONE }
}

fn as_of(speaker: usize) -> Asn {
    asn(if UPSTREAMS.contains(&speaker) { 65010 + u32::try_from(speaker).unwrap() } else { 65001 })
}

const fn role_of(side: usize) -> Role {
    if side == 0 { Role::Active } else { Role::Passive }
}

/// A number below the limit, the same for the same seed and purpose.
const fn choice(seed: u64, purpose: u64, limit: u64) -> u64 {
    (seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (8 * purpose)) % limit
}

fn configuration(link: usize, side: usize, seed: u64) -> PeerConfig {
    let ends = [LINKS[link].0, LINKS[link].1];
    let (us, other) = (ends[side], ends[1 - side]);
    let external = as_of(us) != as_of(other);
    let local_role = if UPSTREAMS.contains(&us) { BgpRole::Provider } else { BgpRole::Customer };
    let long_lived_stale_time = if choice(seed, 1, 3) == 0 { 4 } else { 0 };
    let restart =
        RestartConfig { restart_time: 6, notification: choice(seed, 2, 2) == 0, long_lived_stale_time, ..RestartConfig::default() };
    let reflects = us < 2 && (2..5).contains(&other);
    PeerConfig {
        client: reflects,
        cluster_id: (us < 2 && choice(seed, 3, 2) == 0).then(|| BgpIdentifier::new(0xC1).unwrap()),
        import: Some(Import::default()),
        graceful_restart: (choice(seed, 0, 3) != 0).then_some(restart),
        add_path: if choice(seed, 4, 3) == link as u64 % 3 {
            Family::ALL.map(|it| (it, AddPathMode::Both)).into()
        } else {
            BTreeMap::new()
        },
        role: external.then_some(RoleConfig { local: local_role, strict: false }),
        hold_time: seconds(9),
        connect_retry: Duration::from_secs(3),
        ..PeerConfig::new(
            PeerId(u32::try_from(link).unwrap()),
            address(other).into(),
            as_of(us),
            as_of(other),
            BgpIdentifier::try_from(address(us)).unwrap(),
        )
    }
}

impl End {
    fn new(config: PeerConfig, seed: u64) -> Self {
        let export = config.export.clone();
        Self { peer: Peer::new(config, seed), export, inbox: VecDeque::new(), connected: false, received: 0, heard: BTreeMap::new() }
    }
}

impl Mesh {
    fn new(seed: u64) -> Self {
        let speakers = (0..SPEAKERS).map(|_| Speaker { reflector: Reflector::default(), own: BTreeMap::new() });
        let links = (0..LINKS.len())
            .map(|link| [0, 1].map(|side| End::new(configuration(link, side, seed), seed * 100 + link as u64 * 2 + side as u64)));
        let mut mesh = Self { now: *EPOCH, dice: Jitter::new(seed), seed, speakers: speakers.collect(), links: links.collect() };
        (0..SPEAKERS).for_each(|speaker| mesh.start(speaker));
        mesh
    }

    fn below(&mut self, limit: usize) -> usize {
        let spread = Duration::from_secs(1 << 20);
        usize::try_from((spread - self.dice.apply(spread)).as_nanos() / 7).unwrap() % limit
    }

    fn speaker(link: usize, side: usize) -> usize {
        if side == 0 { LINKS[link].0 } else { LINKS[link].1 }
    }

    fn ends_of(speaker: usize) -> impl Iterator<Item = (usize, usize)> {
        (0..LINKS.len()).flat_map(|link| [(link, 0), (link, 1)]).filter(move |(link, side)| Self::speaker(*link, *side) == speaker)
    }

    fn start(&mut self, speaker: usize) {
        self.choose(speaker);
        for (link, side) in Self::ends_of(speaker) {
            self.event(link, side, Event::Routes(self.speakers[speaker].reflector.loc_rib()));
            self.event(link, side, Event::Start);
        }
    }

    fn event(&mut self, link: usize, side: usize, event: Event) {
        let (now, role) = (self.now, role_of(side));
        let peer = &mut self.links[link][side].peer;
        let mut actions = peer.handle(now, event);
        if peer.is_to_tell() {
            actions.extend(peer.handle(now, Event::Tell));
        }
        for action in actions {
            match action {
                // Who is dialled does not dial.
                Action::Connect if side == 1 => {}
                Action::Connect => self.connect(link),
                Action::Send { role: of, bytes } if of == role => {
                    self.links[link][1 - side].inbox.push_back(Some(bytes));
                    self.event(link, side, Event::Writable { role });
                }
                Action::Close { role: of } | Action::Abort { role: of } if of == role => self.hang_up(link, side),
                Action::Learned(learnt) => self.learn(link, side, &learnt),
                Action::Send { .. } => panic!("there is no such connection"),
                Action::Close { .. } | Action::Abort { .. } | Action::Transition { .. } | Action::Down(_) => {}
            }
        }
    }

    fn learn(&mut self, link: usize, side: usize, learnt: &[Learnt]) {
        for (nlri, route) in learnt {
            let heard = &mut self.links[link][side].heard;
            match route {
                Some(route) => drop(heard.insert(*nlri, Arc::clone(route))),
                None => drop(heard.remove(nlri)),
            }
        }
        let speaker = Self::speaker(link, side);
        let changes = self.speakers[speaker].reflector.learn(PeerId(u32::try_from(link).unwrap()), learnt);
        self.tell(speaker, changes);
    }

    fn tell(&mut self, speaker: usize, changes: Changes) {
        let changes = Arc::new(changes);
        for (link, side) in Self::ends_of(speaker) {
            let (changes, rib) = (Arc::clone(&changes), self.speakers[speaker].reflector.loc_rib());
            self.event(link, side, Event::Changes { changes, rib });
        }
    }

    fn connect(&mut self, link: usize) {
        if !self.links[link][1].peer.accepts() {
            return self.event(link, 0, Event::ConnectFailed { role: Role::Active });
        }
        for end in &mut self.links[link] {
            (end.connected, end.received) = (true, 0);
            end.inbox.clear();
        }
        for side in [1, 0] {
            self.event(link, side, Event::Connected { role: role_of(side), local: local(Self::speaker(link, side)) });
        }
    }

    fn hang_up(&mut self, link: usize, side: usize) {
        self.links[link][side].connected = false;
        self.links[link][1 - side].inbox.push_back(None);
    }

    /// Lets the next octets arrive.
    fn deliver(&mut self, link: usize, side: usize) {
        let end = &mut self.links[link][side];
        let Some(item) = end.inbox.pop_front() else { return };
        match item {
            _ if !end.connected => {}
            Some(bytes) => {
                end.received += bytes.len() as u64;
                let octets = end.received;
                self.event(link, side, Event::Received { role: role_of(side), bytes });
                if self.links[link][1 - side].connected {
                    self.event(link, 1 - side, Event::Acknowledged { role: role_of(1 - side), octets });
                }
            }
            None => {
                end.connected = false;
                self.event(link, side, Event::Closed { role: role_of(side) });
            }
        }
    }

    /// Other routes start at a speaker: of a few that several share, or of an upstream's own.
    fn choose(&mut self, speaker: usize) {
        let mut own = BTreeMap::new();
        for last in 1..=4_usize {
            let med = (self.below(2) == 0).then_some(u32::try_from(self.below(3)).unwrap());
            let route = Arc::new(Route { med, ..Route::originated() });
            if self.below(2) == 0 {
                let subnet = if UPSTREAMS.contains(&speaker) { speaker } else { 0 };
                let v4 = host(&format!("192.0.{subnet}.{last}"));
                own.insert(if self.below(2) == 0 { v4 } else { host(&format!("2001:db8:{subnet}::{last}")) }, route);
            }
        }
        let gone = std::mem::replace(&mut self.speakers[speaker].own, own.clone()).into_keys().map(|prefix| (prefix, None));
        let own = own.into_iter().map(|(prefix, route)| (prefix, Some(route)));
        let changes = self.speakers[speaker].reflector.originate(gone.chain(own).collect::<BTreeMap<_, _>>());
        self.tell(speaker, changes);
    }

    /// The speaker knows nothing any more; it may be back before anybody has noticed.
    fn crash(&mut self, speaker: usize) {
        self.speakers[speaker] = Speaker { reflector: Reflector::default(), own: BTreeMap::new() };
        for (link, side) in Self::ends_of(speaker) {
            let mut config = configuration(link, side, self.seed);
            if let Some(restart) = &mut config.graceful_restart {
                restart.restarting = true;
            }
            let seed = self.below(1 << 30) as u64;
            // One that waits for an OPEN would do so for four minutes.
            let other = &mut self.links[link][1 - side];
            if choice(self.seed, 5, 2) == 0 || other.peer.state() == State::OpenSent {
                other.inbox.push_back(None);
            } else {
                other.inbox.clear();
            }
            self.links[link][side] = End::new(config, seed);
        }
        self.start(speaker);
    }

    fn disturb(&mut self) {
        let (link, side, speaker) = (self.below(LINKS.len()), self.below(2), self.below(SPEAKERS));
        match self.below(10) {
            0 => {
                for end in &mut self.links[link] {
                    end.inbox.clear();
                    end.inbox.push_back(None);
                }
            }
            1 => self.crash(speaker),
            2 => self.event(link, side, Event::Stop(Stop::AdministrativeReset)),
            3 => {
                self.event(link, side, Event::Stop(Stop::AdministrativeShutdown { communication: None }));
                self.event(link, side, Event::Start);
            }
            4 => {
                let family = Family::ALL[self.below(2)];
                self.event(link, side, Event::Refresh(family));
            }
            5 => {
                let export = &mut self.links[link][side].export;
                export.med = export.med.xor(Some(7));
                let export = export.clone();
                self.event(link, side, Event::Export { export, routes: None });
            }
            6 => {
                let max_prefixes = if self.below(3) == 0 { [(Family::Ipv4Unicast, 2)].into() } else { BTreeMap::new() };
                self.event(link, side, Event::Import(Some(Import { max_prefixes, ..Import::default() })));
            }
            _ => self.choose(speaker),
        }
    }

    fn run(&mut self, steps: usize, disturbances: bool) {
        for _ in 0..steps {
            self.now += STEP;
            for (link, side) in (0..LINKS.len()).flat_map(|link| [(link, 0), (link, 1)]) {
                if self.links[link][side].peer.deadline().is_some_and(|at| at <= self.now) {
                    self.event(link, side, Event::Tick);
                }
            }
            for _ in 0..40 {
                let (link, side) = (self.below(LINKS.len()), self.below(2));
                self.deliver(link, side);
            }
            if disturbances && self.below(15) == 0 {
                self.disturb();
            }
            self.check_heard();
        }
    }

    /// Holds at every moment.
    fn check_heard(&self) {
        for end in self.links.iter().flatten() {
            let eligible = end.peer.adj_rib_in().unwrap().routes().filter(|(_, held)| held.ineligible.is_none());
            let same = end.heard.iter().map(|(nlri, route)| (*nlri, route)).eq(eligible.map(|(nlri, held)| (nlri, &held.route)));
            assert!(same, "seed {}: {:?}", self.seed, end.heard);
        }
    }

    /// What a session that starts anew would tell the end of a link.
    fn told_anew(&self, link: usize, side: usize) -> BTreeMap<crate::wire::Nlri, (Arc<Route>, bool)> {
        let [sender, receiver] = [1 - side, side].map(|side| &self.links[link][side].peer);
        let sender_config = &sender.config;
        let mut out = AdjRibOut::new(
            self.links[link][1 - side].export.clone(),
            sender_config.target(),
            sender.negotiated().unwrap().clone(),
            local(Self::speaker(link, 1 - side)),
        );
        out.set(&self.speakers[Self::speaker(link, 1 - side)].reflector.loc_rib());
        let negotiated = receiver.negotiated().unwrap();
        let mut adj_rib_in = AdjRibIn::new(Import::default(), receiver.config.identifier, receiver.config.cluster_id());
        let mut deframer = Deframer::default();
        deframer.push(&out.next(0, usize::MAX).octets);
        let source = receiver.source(receiver.remote_open().unwrap());
        let local = local(Self::speaker(link, side));
        while let Some(Message::Update(update)) = deframer.next(negotiated).unwrap() {
            adj_rib_in.update(&update, &Session { source: &source, negotiated, local: &local });
        }
        adj_rib_in.routes().map(|(nlri, held)| (nlri, (Arc::clone(&held.route), held.ineligible.is_some()))).collect()
    }

    /// Holds when all is quiet.
    fn check(&self) {
        let seed = self.seed;
        for (link, side) in (0..LINKS.len()).flat_map(|link| [(link, 0), (link, 1)]) {
            let peer = &self.links[link][side].peer;
            assert_eq!(peer.state(), State::Established, "seed {seed} link {link} {side}: {:?}", peer.last_error());
            let adj_rib_in = peer.adj_rib_in().unwrap();
            assert!(adj_rib_in.routes().all(|(_, held)| !held.stale) && adj_rib_in.restarting().is_empty(), "seed {seed}");
            assert_eq!((peer.stale_until(), peer.withdrawing()), (None, BTreeSet::new()), "seed {seed}");
            let held: BTreeMap<_, _> =
                adj_rib_in.routes().map(|(nlri, held)| (nlri, (Arc::clone(&held.route), held.ineligible.is_some()))).collect();
            assert_eq!(held, self.told_anew(link, side), "seed {seed} link {link} {side}");
        }
        (0..SPEAKERS).for_each(|speaker| self.check_speaker(speaker));
    }

    fn check_speaker(&self, speaker: usize) {
        let seed = self.seed;
        let mut anew = Reflector::default();
        anew.originate(self.speakers[speaker].own.iter().map(|(prefix, route)| (*prefix, Some(Arc::clone(route)))));
        for (link, side) in Self::ends_of(speaker) {
            let learnt: Vec<_> = self.links[link][side].heard.iter().map(|(nlri, route)| (*nlri, Some(Arc::clone(route)))).collect();
            anew.learn(PeerId(u32::try_from(link).unwrap()), &learnt);
        }
        let (known, anew) = (self.speakers[speaker].reflector.loc_rib(), anew.loc_rib());
        let paths = |rib: &LocRib| -> BTreeMap<Prefix, BTreeSet<Arc<Route>>> {
            let routes = |paths: &[crate::rib::Path]| paths.iter().map(|path| Arc::clone(&path.route)).collect();
            rib.destinations().map(|(prefix, paths)| (prefix, routes(paths))).collect()
        };
        assert_eq!(paths(&known), paths(&anew), "seed {seed} speaker {speaker}");
        assert!(known.destinations().all(|(_, paths)| best_path(paths) == Some(0)), "seed {seed} speaker {speaker}");
        for (prefix, path) in known.destinations().flat_map(|(prefix, paths)| paths.iter().map(move |path| (prefix, path))) {
            let Some(learned) = &path.route.learned else { continue };
            let originates = |other: usize| self.speakers[other].own.contains_key(&prefix);
            let next_hop =
                (0..SPEAKERS).find(|other| learned.next_hop.is(address(*other).into()) || learned.next_hop.is(ipv6_address(*other).into()));
            let known_to =
                next_hop.is_some_and(|other| if UPSTREAMS.contains(&speaker) { (0..SPEAKERS).any(originates) } else { originates(other) });
            assert!(known_to, "seed {seed} speaker {speaker}: nobody originates {prefix} {path:?}");
        }
        for other in 0..SPEAKERS {
            // RFC 9234: what one upstream told is not told the other.
            let may = !(UPSTREAMS.contains(&speaker) && UPSTREAMS.contains(&other) && speaker != other);
            for prefix in self.speakers[other].own.keys() {
                assert_eq!(known.contains(prefix), may, "seed {seed} speaker {speaker}: {prefix} of {other}");
            }
        }
    }
}

#[test]
fn rfc4456_two_reflectors_and_rfc9234_two_upstreams_agree_whatever_happens() {
    for seed in 0..SEEDS {
        let mut mesh = Mesh::new(seed);
        mesh.run(600, true);
        for (link, side) in (0..LINKS.len()).flat_map(|link| [(link, 0), (link, 1)]) {
            mesh.event(link, side, Event::Import(Some(Import::default())));
        }
        mesh.run(800, false);
        mesh.check();
    }
}

const SEEDS: u64 = 40;
