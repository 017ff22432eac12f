// SPDX-License-Identifier: Apache-2.0
//! RFC 9568 §6.4: the whole reply to every event in every situation.

use super::*;

#[derive(Clone, Copy, Debug)]
enum Situation {
    /// Made, and told nothing.
    New,
    /// Everything is there but the order to start.
    Stopped,
    /// Stopped while Active.
    HandingOver,
    Backup,
    /// The Active Router has resigned.
    BackupInSkewTime,
    /// A router of lower priority is Active.
    BackupPreempting,
    Active,
}

use Situation as S;

impl Situation {
    const ALL: [Self; 7] =
        [Self::New, Self::Stopped, Self::HandingOver, Self::Backup, Self::BackupInSkewTime, Self::BackupPreempting, Self::Active];

    fn reach(self) -> Bench {
        let mut bench = Bench::new(config());
        match self {
            Self::New => return bench,
            Self::Stopped => drop(bench.event(Event::InterfaceUp)),
            Self::HandingOver | Self::Backup | Self::BackupInSkewTime | Self::BackupPreempting | Self::Active => drop(bench.up()),
        }
        match self {
            Self::New | Self::Stopped | Self::Backup => {}
            Self::BackupInSkewTime => drop(bench.hear("10.9.0.9", 0)),
            Self::BackupPreempting => drop(bench.hear("10.9.0.9", 50)),
            Self::Active => drop(bench.pass_to_deadline()),
            Self::HandingOver => {
                bench.pass_to_deadline();
                bench.event(Event::Stop);
            }
        }
        assert_eq!(bench.router.state(), self.state());
        bench
    }

    const fn state(self) -> State {
        match self {
            Self::New | Self::Stopped | Self::HandingOver => State::Initialize,
            Self::Backup | Self::BackupInSkewTime | Self::BackupPreempting => State::Backup,
            Self::Active => State::Active,
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Input {
    Start,
    Stop,
    Serving,
    NotServing,
    InterfaceUp,
    InterfaceDown,
    SpuriousTick,
    TickAtDeadline,
    TickAfterAnHour,
    Higher,
    EqualFromHigherAddress,
    EqualFromLowerAddress,
    Lower,
    PriorityZero,
    Malformed,
}

fn started(situation: Situation) -> Vec<Action> {
    match situation {
        // Whatever an earlier process has left serves on.
        S::Stopped => vec![SILENT, to(State::Initialize, State::Backup)],
        S::HandingOver => vec![to(State::Initialize, State::Backup)],
        S::New | S::Backup | S::BackupInSkewTime | S::BackupPreempting | S::Active => vec![],
    }
}

fn claimed() -> Vec<Action> {
    let advertised = sent(&config(), 100, ip("224.0.0.18"), ChecksumForm::MessageOnly);
    vec![advertised, Action::Addresses(Holding::Held), Action::Announce, to(State::Backup, State::Active)]
}

fn advertised(number: u8) -> Action {
    sent(&config(), number, ip("224.0.0.18"), ChecksumForm::MessageOnly)
}

const SILENT: Action = Action::Addresses(Holding::Silent);
const RELEASED: Action = Action::Addresses(Holding::Released);

impl Input {
    const ALL: [Self; 15] = [
        Self::Start,
        Self::Stop,
        Self::Serving,
        Self::NotServing,
        Self::InterfaceUp,
        Self::InterfaceDown,
        Self::SpuriousTick,
        Self::TickAtDeadline,
        Self::TickAfterAnHour,
        Self::Higher,
        Self::EqualFromHigherAddress,
        Self::EqualFromLowerAddress,
        Self::Lower,
        Self::PriorityZero,
        Self::Malformed,
    ];

    fn give(self, bench: &mut Bench) -> Vec<Action> {
        match self {
            Self::Start => bench.event(Event::Start),
            Self::Stop => bench.event(Event::Stop),
            Self::Serving => bench.event(Event::Serving),
            Self::NotServing => bench.event(Event::NotServing),
            Self::InterfaceUp => bench.event(Event::InterfaceUp),
            Self::InterfaceDown => bench.event(Event::InterfaceDown),
            Self::SpuriousTick => bench.event(Event::Tick),
            Self::TickAtDeadline => {
                bench.now = bench.router.deadline().unwrap_or(bench.now);
                bench.event(Event::Tick)
            }
            Self::TickAfterAnHour => bench.pass(HOUR),
            Self::Higher => bench.hear("10.9.0.1", 101),
            Self::EqualFromHigherAddress => bench.hear("10.9.0.3", 100),
            Self::EqualFromLowerAddress => bench.hear("10.9.0.1", 100),
            Self::Lower => bench.hear("10.9.0.3", 99),
            Self::PriorityZero => bench.hear("10.9.0.3", 0),
            Self::Malformed => {
                let Event::Received(datagram) = from("10.9.0.3", &advertisement(&config(), 200)) else { unreachable!() };
                bench.event(Event::Received(Datagram { ttl: 254, ..datagram }))
            }
        }
    }

    fn expected(self, situation: Situation) -> Vec<Action> {
        match self {
            Self::Start => match situation {
                S::Stopped | S::HandingOver => started(situation),
                S::New | S::Backup | S::BackupInSkewTime | S::BackupPreempting | S::Active => vec![],
            },
            Self::InterfaceUp | Self::SpuriousTick | Self::Serving => vec![],
            Self::Stop => match situation {
                S::New | S::Stopped | S::HandingOver => vec![],
                S::Backup | S::BackupInSkewTime => vec![RELEASED, to(State::Backup, State::Initialize)],
                S::BackupPreempting => vec![to(State::Backup, State::Initialize)],
                S::Active => vec![advertised(0), SILENT, to(State::Active, State::Initialize)],
            },
            Self::NotServing => match situation {
                S::New | S::Stopped | S::HandingOver | S::Backup | S::BackupInSkewTime | S::BackupPreempting => vec![],
                S::Active => vec![advertised(0), SILENT, to(State::Active, State::Backup)],
            },
            Self::InterfaceDown => match situation {
                S::New | S::Stopped => vec![],
                S::HandingOver => vec![RELEASED],
                S::Backup | S::BackupInSkewTime => vec![RELEASED, to(State::Backup, State::Initialize)],
                S::BackupPreempting => vec![to(State::Backup, State::Initialize)],
                S::Active => vec![RELEASED, to(State::Active, State::Initialize)],
            },
            Self::TickAtDeadline => match situation {
                S::New | S::Stopped => vec![],
                S::HandingOver => vec![RELEASED],
                S::Backup | S::BackupInSkewTime | S::BackupPreempting => claimed(),
                S::Active => vec![advertised(100), Action::Announce],
            },
            Self::TickAfterAnHour => match situation {
                S::New | S::Stopped => vec![],
                S::HandingOver => vec![RELEASED],
                // It was suspended, and has yet to read what was said.
                S::Backup | S::BackupInSkewTime | S::BackupPreempting => vec![],
                S::Active => vec![advertised(100)],
            },
            Self::Higher | Self::EqualFromHigherAddress => match situation {
                S::New | S::Stopped | S::HandingOver | S::Backup | S::BackupInSkewTime => vec![RELEASED],
                S::BackupPreempting => vec![],
                S::Active => vec![RELEASED, to(State::Active, State::Backup)],
            },
            Self::EqualFromLowerAddress | Self::Lower => match situation {
                S::New | S::Stopped | S::HandingOver | S::Backup | S::BackupInSkewTime => vec![RELEASED],
                S::BackupPreempting => vec![],
                // The neighbours were told just now: again, but not yet.
                S::Active => vec![advertised(100)],
            },
            Self::PriorityZero => match situation {
                S::Active => vec![advertised(100)],
                S::New | S::Stopped | S::HandingOver | S::Backup | S::BackupInSkewTime | S::BackupPreempting => vec![],
            },
            Self::Malformed => {
                let reason = Discard::Malformed(crate::wire::DecodeError::Ttl { received: 254, least: 255 });
                vec![Action::Discarded { source: ip("10.9.0.3"), reason }]
            }
        }
    }

    /// How long Active_Down_Timer runs after the event, where it does.
    const fn active_down_timer(self, situation: Situation) -> Option<u64> {
        /// 3 s and a skew time of 156/256 s, or 255/256 s, in nanoseconds.
        const WHOLE: u64 = 3_609_375_000;
        const SKEW: u64 = 609_375_000;
        const WHOLE_OF_LOWEST: u64 = 3_996_093_750;
        const SKEW_OF_LOWEST: u64 = 996_093_750;
        match (self, situation) {
            (Self::Start, S::Stopped | S::HandingOver) => Some(WHOLE),
            (Self::Higher | Self::EqualFromHigherAddress, S::Active) => Some(WHOLE),
            (Self::NotServing, S::Active | S::Backup | S::BackupPreempting) => Some(WHOLE_OF_LOWEST),
            (Self::NotServing, S::BackupInSkewTime) => Some(SKEW_OF_LOWEST),
            (Self::Stop | Self::InterfaceDown | Self::TickAtDeadline, _) => None,
            (_, S::New | S::Stopped | S::HandingOver | S::Active) => None,
            (Self::Higher | Self::EqualFromHigherAddress | Self::EqualFromLowerAddress | Self::TickAfterAnHour, _) => Some(WHOLE),
            (Self::PriorityZero, _) | (_, S::BackupInSkewTime) => Some(SKEW),
            (_, S::Backup | S::BackupPreempting) => Some(WHOLE),
        }
    }
}

#[test]
fn every_event_in_every_situation() {
    for situation in Situation::ALL {
        for input in Input::ALL {
            let mut bench = situation.reach();
            let actions = input.give(&mut bench);
            assert_eq!(actions, input.expected(situation), "{input:?} in {situation:?}");
            let timer = bench.router.timers().active_down.map(|at| at - bench.now);
            assert_eq!(timer, input.active_down_timer(situation).map(Duration::from_nanos), "{input:?} in {situation:?}");
            let active = bench.router.state() == State::Active;
            assert_eq!(bench.router.holding() == Some(Holding::Held), active, "{input:?} in {situation:?}");
        }
    }
}
