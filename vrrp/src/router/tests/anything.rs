// SPDX-License-Identifier: Apache-2.0
//! Any events in any order: what a driver may rely on.

use proptest::prelude::*;

use super::*;

/// What may happen, and how long after the last.
#[derive(Clone, Debug)]
enum Happening {
    Event(Event),
    Configure(u8, Preempt),
    /// At the deadline, and so much later.
    Lapse(u64),
}

fn received() -> impl Strategy<Value = Event> {
    let source = prop_oneof![Just("10.9.0.1"), Just("10.9.0.2"), Just("10.9.0.3")];
    let number = prop_oneof![Just(0_u8), Just(50), Just(100), Just(150), Just(255)];
    let sent = (source, number, prop_oneof![Just(1_u16), Just(100), Just(4095)]).prop_map(|(source, number, centiseconds)| {
        from(source, &Advertisement { interval: interval(centiseconds), ..advertisement(&config(), number) })
    });
    let garbage = proptest::collection::vec(any::<u8>(), 0..24).prop_map(|octets| {
        let endpoints = Endpoints::new(ip("10.9.0.3"), ip("224.0.0.18")).unwrap();
        Event::Received(Datagram { endpoints, ttl: 255, octets })
    });
    prop_oneof![9 => sent, 1 => garbage]
}

fn happening() -> impl Strategy<Value = Happening> {
    let preempt = prop_oneof![Just(Preempt::Never), Just(Preempt::After(Duration::ZERO)), Just(Preempt::After(ms(2500)))];
    prop_oneof![
        3 => Just(Happening::Event(Event::Start)),
        1 => Just(Happening::Event(Event::Stop)),
        3 => Just(Happening::Event(Event::Serving)),
        1 => Just(Happening::Event(Event::NotServing)),
        1 => Just(Happening::Event(Event::Suspend)),
        3 => Just(Happening::Event(Event::InterfaceUp)),
        1 => Just(Happening::Event(Event::InterfaceDown)),
        3 => Just(Happening::Event(Event::Tick)),
        12 => received().prop_map(Happening::Event),
        2 => (prop_oneof![Just(1_u8), Just(100), Just(150), Just(255)], preempt).prop_map(|(number, preempt)| Happening::Configure(number, preempt)),
        6 => prop_oneof![Just(0_u64), 0..50_u64, Just(5000)].prop_map(Happening::Lapse),
    ]
}

/// What a driver has done.
#[derive(Default)]
struct Driver {
    holding: Option<Holding>,
    state: Option<State>,
}

impl Driver {
    fn carry_out(&mut self, router: &VirtualRouter, actions: &[Action]) {
        let before = self.state.unwrap_or(State::Initialize);
        for (index, action) in actions.iter().enumerate() {
            match action {
                Action::Send { octets, .. } => {
                    let resigns = octets[2] == 0;
                    assert!(before == State::Active || router.state() == State::Active, "only an Active Router speaks");
                    assert_eq!(resigns, router.state() != State::Active, "the last word is priority 0");
                }
                Action::Addresses(holding) => {
                    assert_ne!(self.holding, Some(*holding), "said before");
                    self.holding = Some(*holding);
                }
                Action::Announce => assert_eq!((self.holding, router.state()), (Some(Holding::Held), State::Active)),
                Action::Transition { from, to } => {
                    assert_eq!((*from, *to, index + 1), (before, router.state(), actions.len()));
                    self.state = Some(*to);
                }
                Action::Discarded { .. } | Action::AddressesDiffer { .. } => {}
            }
        }
        assert_eq!(self.state.unwrap_or(State::Initialize), router.state(), "each transition is told");
        assert_eq!(self.holding, router.holding());
        match router.state() {
            State::Initialize => assert_ne!(self.holding, Some(Holding::Held)),
            State::Backup => assert!(matches!(self.holding, Some(Holding::Silent | Holding::Released))),
            State::Active => assert_eq!(self.holding, Some(Holding::Held)),
        }
        assert_eq!(router.state() == State::Initialize, router.hindrances().next().is_some());
    }
}

proptest! {
    #[test]
    fn a_driver_can_rely_on_it(happenings in proptest::collection::vec(happening(), 1..60)) {
        let mut router = VirtualRouter::new(config()).unwrap();
        let (mut now, mut driver) = (*EPOCH, Driver::default());
        for happening in happenings {
            let actions = match happening {
                Happening::Event(event) => router.handle(now, event),
                Happening::Configure(number, preempt) => {
                    let next = Config { priority: priority(number), preempt, ..router.config().clone() };
                    router.configure(now, next).unwrap()
                }
                Happening::Lapse(later) => {
                    now = router.deadline().unwrap_or(now).max(now) + ms(later);
                    router.handle(now, Event::Tick)
                }
            };
            driver.carry_out(&router, &actions);
            let again = router.handle(now, Event::Tick);
            driver.carry_out(&router, &again);
            prop_assert!(router.deadline().is_none_or(|at| at > now), "a driver would turn without end");
            prop_assert_eq!(router.deadline().is_some(), router.state() != State::Initialize || router.timers().handover.is_some());
        }
    }
}
