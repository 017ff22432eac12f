// SPDX-License-Identifier: Apache-2.0
//! Any events in any order: what a driver may rely on.

use proptest::prelude::*;

use super::*;

/// Octets that a peer may send, sensible or not.
fn octets() -> impl Strategy<Value = Vec<u8>> {
    let messages = [
        peer_open().encode().to_vec(),
        Open { identifier: BgpIdentifier::new(1).unwrap(), ..peer_open() }.encode().to_vec(),
        Open { asn: asn(7), ..peer_open() }.encode().to_vec(),
        Open { identifier: peer_open().identifier, ..PeerConfig { graceful_restart: Some(RestartConfig::default()), ..config() }.open() }
            .encode()
            .to_vec(),
        Open { hold_time: HoldTime::ZERO, capabilities: vec![], ..peer_open() }.encode().to_vec(),
        KEEPALIVE.to_vec(),
        update(),
        RouteRefresh::request(Family::Ipv4Unicast).encode().to_vec(),
        Notification::cease(Cease::ConnectionCollisionResolution).encode().to_vec(),
        Notification::bad_peer_as().encode().to_vec(),
    ];
    prop_oneof![
        6 => proptest::sample::select(messages[..].to_vec()),
        3 => Just([peer_open().encode().to_vec(), KEEPALIVE.to_vec()].concat()),
        1 => proptest::collection::vec(any::<u8>(), 0..40),
    ]
}

fn event() -> impl Strategy<Value = Event> {
    let role = || prop_oneof![Just(Role::Active), Just(Role::Passive)];
    prop_oneof![
        2 => Just(Event::Start),
        1 => Just(Event::Stop(Stop::AdministrativeReset)),
        1 => Just(Event::Stop(Stop::Deconfigured)),
        1 => Just(Event::Stop(Stop::Keep)),
        1 => Just(Event::Refresh(Family::Ipv4Unicast)),
        1 => Just(Event::Readvertise(Family::Ipv6Unicast)),
        1 => Just(Event::Tell),
        1 => Just(Event::Selected),
        1 => Just(Event::Import(None)),
        1 => (0..2_u32).prop_map(|limit| {
            Event::Import(Some(Import { accept: limit > 0, max_prefixes: [(Family::Ipv4Unicast, limit)].into(), ..Import::default() }))
        }),
        1 => (0..9_u64).prop_map(|seconds| {
            let time = Duration::from_secs(seconds);
            Event::Timers { connect_retry: time, send_hold_time: Some(time) }
        }),
        6 => Just(Event::Tick),
        1 => Just(Event::Reachable),
        1 => Just(Event::Redialled),
        1 => role().prop_map(|role| Event::Probe { role }),
        6 => role().prop_map(|role| Event::Connected { role, local: LOCAL }),
        2 => role().prop_map(|role| Event::ConnectFailed { role }),
        12 => (role(), octets()).prop_map(|(role, octets)| Event::Received { role, bytes: octets.into() }),
        2 => role().prop_map(|role| Event::Closed { role }),
        2 => role().prop_map(|role| Event::Writable { role }),
        2 => (role(), any::<u64>()).prop_map(|(role, octets)| Event::Acknowledged { role, octets }),
        3 => (0..3_u32).prop_map(|count| Event::Routes(many(count * count * 1000))),
        1 => any::<Option<u32>>().prop_map(|med| Event::Export { export: Export { med, ..Export::default() }, routes: None }),
    ]
}

/// The sockets of a driver, as told by events and actions.
#[derive(Debug, Default)]
struct Sockets {
    dialling: bool,
    up: BTreeSet<Role>,
    updates: usize,
}

impl Sockets {
    /// Whether a driver could report this now.
    fn allow(&self, event: &Event, accepts: bool) -> bool {
        match event {
            Event::Connected { role: Role::Active, .. } | Event::ConnectFailed { role: Role::Active } => self.dialling,
            Event::Connected { role: Role::Passive, .. } => !self.up.contains(&Role::Passive) || accepts,
            Event::ConnectFailed { role: Role::Passive } => false,
            Event::Received { role, .. }
            | Event::Closed { role }
            | Event::Writable { role }
            | Event::Acknowledged { role, .. }
            | Event::Local { role, .. } => self.up.contains(role),
            Event::Start
            | Event::Stop(_)
            | Event::Tick
            | Event::Reachable
            | Event::Redialled
            | Event::Probe { .. }
            | Event::Routes(_)
            | Event::Changes { .. }
            | Event::Export { .. }
            | Event::Import(_)
            | Event::Selected
            | Event::Timers { .. }
            | Event::Refresh(_)
            | Event::Readvertise(_)
            | Event::Tell => true,
        }
    }

    fn note(&mut self, event: &Event) {
        match event {
            Event::Connected { role, .. } => {
                self.dialling &= *role == Role::Passive;
                self.up.insert(*role);
            }
            Event::ConnectFailed { .. } => self.dialling = false,
            Event::Writable { .. } => self.updates = 0,
            Event::Start
            | Event::Stop(_)
            | Event::Tick
            | Event::Reachable
            | Event::Redialled
            | Event::Probe { .. }
            | Event::Received { .. }
            | Event::Closed { .. }
            | Event::Acknowledged { .. }
            | Event::Routes(_)
            | Event::Changes { .. }
            | Event::Export { .. }
            | Event::Local { .. }
            | Event::Import(_)
            | Event::Selected
            | Event::Timers { .. }
            | Event::Refresh(_)
            | Event::Readvertise(_)
            | Event::Tell => {}
        }
    }

    fn carry_out(&mut self, action: &Action) {
        match action {
            Action::Connect => {
                assert!(!self.dialling && !self.up.contains(&Role::Active), "a connection was not ended before the next dial");
                self.dialling = true;
            }
            Action::Send { role, bytes } => {
                assert!(self.up.contains(role), "nothing to send on");
                if bytes[18] == 2 {
                    self.updates += bytes.len();
                    assert!(self.updates <= 64 * 1024);
                }
            }
            Action::Close { role } => {
                assert!(self.up.remove(role));
                self.updates = 0;
            }
            Action::Abort { role } => {
                let dialling = *role == Role::Active && std::mem::take(&mut self.dialling);
                assert!(self.up.remove(role) || dialling);
                self.updates = 0;
            }
            Action::Transition { .. } | Action::Down(_) | Action::Learned(_) => {}
        }
    }
}

proptest! {
    #[test]
    fn rfc4271_section_8_any_events_keep_the_promises_to_the_driver(
        events in proptest::collection::vec((event(), 0..20_000_u64), 1..80),
        connect_retry in 0..10_u64,
        graceful in any::<bool>(),
        hold_time in prop_oneof![Just(0), Just(3), Just(9)],
    ) {
        let graceful_restart = graceful.then(RestartConfig::default);
        let config = PeerConfig { graceful_restart, import: Some(Import::default()), connect_retry: Duration::from_secs(connect_retry), hold_time: seconds(hold_time), ..config() };
        let mut peer = Peer::new(config, connect_retry);
        let mut sockets = Sockets::default();
        let mut now = *EPOCH;
        let mut state = State::Idle;
        let mut learned = BTreeSet::new();
        for (event, milliseconds) in events {
            if !sockets.allow(&event, peer.accepts()) {
                continue;
            }
            if event == Event::Tick {
                now += Duration::from_millis(milliseconds);
            }
            sockets.note(&event);
            let counters = peer.counters().clone();
            let tick = event == Event::Tick;
            for action in peer.handle(now, event) {
                sockets.carry_out(&action);
                if let Action::Learned(learnt) = &action {
                    for (nlri, route) in learnt {
                        if route.is_some() { learned.insert(*nlri); } else { learned.remove(nlri); }
                    }
                }
                if let Action::Transition { from, to } = action {
                    prop_assert_eq!(from, state);
                    prop_assert_ne!(from, to);
                    state = to;
                }
            }
            let held: BTreeSet<_> = peer.adj_rib_in().into_iter().flat_map(AdjRibIn::routes).filter(|(_, held)| held.ineligible.is_none()).map(|(nlri, _)| nlri).collect();
            prop_assert_eq!(&held, &learned);
            prop_assert_eq!(peer.state(), state);
            prop_assert!(!tick || peer.deadline().is_none_or(|at| at > now), "a tick leaves nothing due");
            prop_assert_eq!(peer.established_since().is_some(), state == State::Established);
            prop_assert_eq!(peer.adj_rib_out().is_some(), state == State::Established);
            prop_assert!(peer.counters().established >= counters.established);
            let past_open_sent = Role::BOTH.iter().filter(|role| peer.connections.get(**role).is_some_and(|connection| connection.negotiated().is_some()));
            prop_assert!(past_open_sent.count() <= 1);
            prop_assert_eq!(Role::BOTH.iter().filter(|role| peer.connections.get(**role).is_some()).count(), sockets.up.len());
        }
    }
}
