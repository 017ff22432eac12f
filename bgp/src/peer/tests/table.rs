// SPDX-License-Identifier: Apache-2.0
//! RFC 4271 §8.2.2: the whole reply to every event in every state.

use super::*;

/// The states, with both kinds of Idle. The connection is one that we dialled.
#[derive(Clone, Copy, Debug)]
enum Situation {
    Stopped,
    Resting,
    Connect,
    Active,
    OpenSent,
    OpenConfirm,
    Established,
}

use Situation as S;

impl Situation {
    const ALL: [Self; 7] =
        [Self::Stopped, Self::Resting, Self::Connect, Self::Active, Self::OpenSent, Self::OpenConfirm, Self::Established];

    fn reach(self) -> Bench {
        let mut bench = Bench::new(config());
        if matches!(self, Self::Stopped) {
            return bench;
        }
        bench.event(Event::Start);
        match self {
            Self::Stopped | Self::Connect => {}
            Self::Active => drop(bench.event(Event::ConnectFailed { role: Role::Active })),
            Self::Resting | Self::OpenSent | Self::OpenConfirm | Self::Established => drop(bench.connected(Role::Active)),
        }
        if matches!(self, Self::Resting) {
            bench.receive(Role::Active, Notification::cease(Cease::AdministrativeShutdown).encode());
        }
        if matches!(self, Self::OpenConfirm | Self::Established) {
            bench.receive(Role::Active, peer_open().encode());
        }
        if matches!(self, Self::Established) {
            bench.keepalive(Role::Active);
        }
        assert_eq!(bench.peer.state(), self.state());
        bench
    }

    const fn state(self) -> State {
        match self {
            Self::Stopped | Self::Resting => State::Idle,
            Self::Connect => State::Connect,
            Self::Active => State::Active,
            Self::OpenSent => State::OpenSent,
            Self::OpenConfirm => State::OpenConfirm,
            Self::Established => State::Established,
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Input {
    Start,
    Shutdown,
    Reset,
    Deconfigured,
    ConfigurationChange,
    SpuriousTick,
    TickAtDeadline,
    TickAfterAnHour,
    Reachable,
    Redialled,
    Probe,
    ConnectedActive,
    ConnectedPassive,
    ConnectFailedActive,
    ConnectFailedPassive,
    Open,
    OpenOfOtherAs,
    Keepalive,
    Update,
    RouteRefresh,
    Notification,
    MalformedHeader,
    HalfAMessage,
    Closed,
    Writable,
    Acknowledged,
    Routes,
}

use Input as I;

impl Input {
    const ALL: [Self; 27] = [
        Self::Start,
        Self::Shutdown,
        Self::Reset,
        Self::Deconfigured,
        Self::ConfigurationChange,
        Self::SpuriousTick,
        Self::TickAtDeadline,
        Self::TickAfterAnHour,
        Self::Reachable,
        Self::Redialled,
        Self::Probe,
        Self::ConnectedActive,
        Self::ConnectedPassive,
        Self::ConnectFailedActive,
        Self::ConnectFailedPassive,
        Self::Open,
        Self::OpenOfOtherAs,
        Self::Keepalive,
        Self::Update,
        Self::RouteRefresh,
        Self::Notification,
        Self::MalformedHeader,
        Self::HalfAMessage,
        Self::Closed,
        Self::Writable,
        Self::Acknowledged,
        Self::Routes,
    ];

    fn give(self, bench: &mut Bench) -> Vec<Action> {
        let role = Role::Active;
        match self {
            Self::Start => bench.event(Event::Start),
            Self::Shutdown => bench.event(Event::Stop(Stop::AdministrativeShutdown { communication: None })),
            Self::Reset => bench.event(Event::Stop(Stop::AdministrativeReset)),
            Self::Deconfigured => bench.event(Event::Stop(Stop::Deconfigured)),
            Self::ConfigurationChange => bench.event(Event::Stop(Stop::ConfigurationChange)),
            Self::SpuriousTick => bench.event(Event::Tick),
            Self::TickAtDeadline => {
                bench.now = bench.peer.deadline().unwrap_or(bench.now);
                bench.event_at_last(Event::Tick)
            }
            Self::TickAfterAnHour => bench.pass(Duration::from_secs(3600)),
            Self::Reachable => bench.event(Event::Reachable),
            Self::Redialled => bench.event(Event::Redialled),
            Self::Probe => bench.event(Event::Probe { role }),
            Self::ConnectedActive => bench.connected(role),
            Self::ConnectedPassive => bench.connected(Role::Passive),
            Self::ConnectFailedActive => bench.event(Event::ConnectFailed { role }),
            Self::ConnectFailedPassive => bench.event(Event::ConnectFailed { role: Role::Passive }),
            Self::Open => bench.receive(role, peer_open().encode()),
            Self::OpenOfOtherAs => bench.receive(role, Open { asn: asn(65009), ..peer_open() }.encode()),
            Self::Keepalive => bench.keepalive(role),
            Self::Update => bench.receive(role, update()),
            Self::RouteRefresh => bench.receive(role, RouteRefresh::request(Family::Ipv4Unicast).encode()),
            Self::Notification => bench.receive(role, Notification::cease(Cease::AdministrativeReset).encode()),
            Self::MalformedHeader => bench.receive(role, vec![0; 19]),
            Self::HalfAMessage => bench.receive(role, Bytes::from_static(&KEEPALIVE[..9])),
            Self::Closed => bench.event(Event::Closed { role }),
            Self::Writable => bench.event(Event::Writable { role }),
            Self::Acknowledged => bench.event(Event::Acknowledged { role, octets: 10 }),
            Self::Routes => bench.event(Event::Routes(rib(&["10.0.0.1"]))),
        }
    }

    fn expected(self, situation: Situation) -> Vec<Action> {
        match self {
            Self::Start => match situation {
                S::Stopped => vec![Action::Connect, to(State::Idle, State::Connect)],
                S::Resting | S::Connect | S::Active | S::OpenSent | S::OpenConfirm | S::Established => vec![],
            },
            Self::Shutdown => stopped(situation, Cease::AdministrativeShutdown),
            Self::Reset => stopped(situation, Cease::AdministrativeReset),
            Self::Deconfigured => stopped(situation, Cease::PeerDeconfigured),
            Self::ConfigurationChange => stopped(situation, Cease::OtherConfigurationChange),
            Self::SpuriousTick => vec![],
            Self::TickAtDeadline => match situation {
                S::Stopped => vec![],
                S::Resting => vec![Action::Connect, to(State::Idle, State::Connect)],
                S::Connect => connect_timed_out(),
                S::Active => vec![Action::Connect, to(State::Active, State::Connect)],
                S::OpenSent => hold_timer_expired(situation),
                S::OpenConfirm | S::Established => vec![keepalive(Role::Active)],
            },
            Self::TickAfterAnHour => match situation {
                S::Stopped => vec![],
                S::Resting => vec![Action::Connect, to(State::Idle, State::Connect)],
                S::Connect => connect_timed_out(),
                S::Active => vec![Action::Connect, to(State::Active, State::Connect)],
                S::OpenSent | S::OpenConfirm | S::Established => hold_timer_expired(situation),
            },
            Self::Reachable => match situation {
                S::Connect => vec![Action::Abort { role: Role::Active }, Action::Connect],
                S::Active => vec![Action::Connect, to(State::Active, State::Connect)],
                S::Stopped | S::Resting | S::OpenSent | S::OpenConfirm | S::Established => vec![],
            },
            Self::ConnectedActive => match situation {
                S::Stopped | S::Resting | S::Active => vec![Action::Abort { role: Role::Active }],
                S::Connect => vec![send(Role::Active, config().open().encode()), to(State::Connect, State::OpenSent)],
                S::OpenSent | S::OpenConfirm | S::Established => vec![],
            },
            Self::ConnectedPassive => match situation {
                S::Stopped | S::Resting => vec![Action::Abort { role: Role::Passive }],
                S::Connect | S::Active => vec![send(Role::Passive, config().open().encode()), to(situation.state(), State::OpenSent)],
                S::OpenSent | S::OpenConfirm => vec![send(Role::Passive, config().open().encode())],
                S::Established => vec![send(Role::Passive, config().open().encode()), keepalive(Role::Active)],
            },
            Self::ConnectFailedActive => match situation {
                S::Connect => vec![Action::Down(DownReason::ConnectFailed), to(State::Connect, State::Active)],
                S::Stopped | S::Resting | S::Active | S::OpenSent | S::OpenConfirm | S::Established => vec![],
            },
            Self::Open => match situation {
                S::OpenSent => vec![keepalive(Role::Active), to(State::OpenSent, State::OpenConfirm)],
                S::Stopped | S::Resting | S::Connect | S::Active | S::OpenConfirm | S::Established => unexpected(situation, 1),
            },
            Self::OpenOfOtherAs => match situation {
                S::OpenSent => failed(situation, Notification::bad_peer_as(), "the peer is in AS 65009, not in 65001 as configured"),
                S::Stopped | S::Resting | S::Connect | S::Active | S::OpenConfirm | S::Established => unexpected(situation, 1),
            },
            Self::Keepalive => match situation {
                S::OpenConfirm => vec![to(State::OpenConfirm, State::Established)],
                S::Established => vec![],
                S::Stopped | S::Resting | S::Connect | S::Active | S::OpenSent => unexpected(situation, 4),
            },
            Self::Update => match situation {
                S::Established => vec![],
                S::Stopped | S::Resting | S::Connect | S::Active | S::OpenSent | S::OpenConfirm => unexpected(situation, 2),
            },
            Self::RouteRefresh => match situation {
                S::Established => vec![],
                S::Stopped | S::Resting | S::Connect | S::Active | S::OpenSent | S::OpenConfirm => unexpected(situation, 5),
            },
            Self::Notification => match situation {
                S::Stopped | S::Resting | S::Connect | S::Active => vec![],
                S::OpenSent | S::OpenConfirm | S::Established => {
                    let reason = DownReason::Received(Notification::cease(Cease::AdministrativeReset));
                    vec![Action::Close { role: Role::Active }, Action::Down(reason), to(situation.state(), State::Idle)]
                }
            },
            Self::MalformedHeader => match situation {
                S::Stopped | S::Resting | S::Connect | S::Active => vec![],
                S::OpenSent | S::OpenConfirm | S::Established => {
                    failed(situation, Notification { code: 1, subcode: 1, data: Bytes::new() }, MARKER_REASON)
                }
            },
            Self::Closed => match situation {
                S::Stopped | S::Resting | S::Connect | S::Active => vec![],
                S::OpenSent => closed(situation, State::Active),
                S::OpenConfirm | S::Established => closed(situation, State::Idle),
            },
            Self::Routes => match situation {
                S::Established => vec![send(Role::Active, first_routes())],
                S::Stopped | S::Resting | S::Connect | S::Active | S::OpenSent | S::OpenConfirm => vec![],
            },
            // The peer has dialled nothing before.
            Self::Redialled => vec![],
            Self::Probe => match situation {
                S::OpenConfirm | S::Established => vec![keepalive(Role::Active)],
                S::Stopped | S::Resting | S::Connect | S::Active | S::OpenSent => vec![],
            },
            Self::ConnectFailedPassive | Self::HalfAMessage | Self::Writable | Self::Acknowledged => vec![],
        }
    }
}

const MARKER_REASON: &str = "the marker is not all ones";

fn first_routes() -> Vec<u8> {
    let negotiated = Negotiated::new(&config().open(), &peer_open());
    let mut adj_rib_out = AdjRibOut::new(config().export, config().target(), negotiated, LOCAL);
    adj_rib_out.set(&rib(&["10.0.0.1"]));
    let batch = adj_rib_out.next(0, usize::MAX);
    assert_eq!(batch.updates, 3, "the route, and End-of-RIB of both families");
    batch.octets
}

fn connect_timed_out() -> Vec<Action> {
    vec![Action::Abort { role: Role::Active }, Action::Down(DownReason::ConnectTimedOut), Action::Connect]
}

fn hold_timer_expired(situation: Situation) -> Vec<Action> {
    failed(situation, Notification::hold_timer_expired(), "nothing was heard within the hold time")
}

fn closed(situation: Situation, state: State) -> Vec<Action> {
    vec![Action::Abort { role: Role::Active }, Action::Down(DownReason::ConnectionClosed), to(situation.state(), state)]
}

fn stopped(situation: Situation, cease: Cease) -> Vec<Action> {
    match situation {
        S::Stopped | S::Resting => vec![],
        S::Connect => vec![Action::Abort { role: Role::Active }, to(State::Connect, State::Idle)],
        S::Active => vec![to(State::Active, State::Idle)],
        S::OpenSent | S::OpenConfirm | S::Established => failed(situation, Notification::cease(cease), "as the operator decided"),
    }
}

/// RFC 6608 §3. Without a connection there is nobody to hear it.
fn unexpected(situation: Situation, message_type: u8) -> Vec<Action> {
    let subcode = match situation {
        S::Stopped | S::Resting | S::Connect | S::Active => return vec![],
        S::OpenSent => 1,
        S::OpenConfirm => 2,
        S::Established => 3,
    };
    let reason = format!("message type {message_type} is not expected in {}", situation.state());
    failed(situation, Notification { code: 5, subcode, data: vec![message_type].into() }, &reason)
}

fn failed(situation: Situation, notification: Notification, reason: &str) -> Vec<Action> {
    vec![
        send(Role::Active, notification.encode()),
        Action::Close { role: Role::Active },
        Action::Down(DownReason::Sent { notification, reason: reason.to_owned().into() }),
        to(situation.state(), State::Idle),
    ]
}

#[test]
fn rfc4271_section_8_2_2_every_event_in_every_state() {
    for situation in Situation::ALL {
        for input in Input::ALL {
            let mut bench = situation.reach();
            let before = bench.peer.counters().clone();
            let actions = input.give(&mut bench);
            assert_eq!(actions, input.expected(situation), "{input:?} in {situation:?}");
            let transition =
                actions.iter().rev().find_map(|action| if let Action::Transition { to, .. } = action { Some(*to) } else { None });
            assert_eq!(bench.peer.state(), transition.unwrap_or_else(|| situation.state()), "{input:?} in {situation:?}");
            assert_eq!(bench.peer.established_since().is_some(), bench.peer.state() == State::Established);
            assert_eq!(bench.peer.adj_rib_out().is_some(), bench.peer.state() == State::Established);
            assert_eq!(bench.peer.negotiated().is_some(), bench.peer.state() >= State::OpenConfirm);
            assert!(bench.peer.counters().received.open >= before.received.open);
            if let Some(reason) = down(&actions) {
                assert_eq!(bench.peer.last_error(), Some(reason));
            }
        }
    }
}

#[test]
fn rfc4271_section_8_2_2_only_a_stopped_peer_has_no_timer() {
    for situation in Situation::ALL {
        for (input, restarts) in [(I::Shutdown, false), (I::Deconfigured, false), (I::Reset, !matches!(situation, S::Stopped))] {
            let mut bench = situation.reach();
            assert_eq!(bench.peer.deadline().is_some(), !matches!(situation, S::Stopped));
            input.give(&mut bench);
            assert_eq!(bench.peer.deadline().is_some(), restarts, "{input:?} in {situation:?}");
        }
    }
}
