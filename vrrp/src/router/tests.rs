// SPDX-License-Identifier: Apache-2.0
//! A virtual router under test, and what is common to the tests of the state machine.

mod announcing;
mod anything;
mod config;
mod handover;
mod late;
mod receiving;
mod rfc3768;
mod rfc9568;
mod table;

use std::sync::LazyLock;

use super::*;
use crate::identity::Vrid;

/// Where virtual clocks start.
static EPOCH: LazyLock<Instant> = LazyLock::new(
    #[expect(clippy::disallowed_methods, reason = "an instant cannot be made of a number: a virtual clock has to start somewhere")]
    Instant::now,
);

const fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

const SECOND: Duration = ms(1000);
const HOUR: Duration = Duration::from_secs(3600);

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn addresses(texts: &[&str]) -> Addresses {
    Addresses::new(&texts.iter().map(|text| ip(text)).collect::<Vec<_>>()).unwrap()
}

fn priority(number: u8) -> Priority {
    Priority::new(number).unwrap()
}

fn interval(centiseconds: u16) -> Interval {
    Interval::from_centiseconds(centiseconds).unwrap()
}

/// Us: 10.9.0.2 with priority 100 and the address 10.9.0.100. Neighbours are told twice, a second apart.
fn config() -> Config {
    Config {
        announcing: Announcing { times: 2, spacing: SECOND, refresh: None },
        ..Config::new(Vrid::new(51).unwrap(), ip("10.9.0.2"), addresses(&["10.9.0.100"]))
    }
}

fn unicast(peers: &[&str]) -> Transport {
    Transport::Unicast { peers: peers.iter().map(|peer| ip(peer)).collect(), single: false }
}

/// What a router of this configuration advertises; priority 0 resigns.
fn advertisement(config: &Config, number: u8) -> Advertisement {
    Advertisement {
        version: config.version,
        vrid: config.vrid,
        priority: Priority::new(number),
        interval: config.interval,
        addresses: config.addresses.listed(),
    }
}

/// An advertisement of another router, to the group.
fn from(source: &str, advertisement: &Advertisement) -> Event {
    let source = ip(source);
    let endpoints = Endpoints::new(source, advertisement.addresses.family().multicast_group()).unwrap();
    Event::Received(Datagram { endpoints, ttl: 255, octets: advertisement.encode(endpoints, ChecksumForm::MessageOnly) })
}

fn to(from: State, to: State) -> Action {
    Action::Transition { from, to }
}

/// A virtual router, and the time that it is told.
struct Bench {
    router: VirtualRouter,
    now: Instant,
}

impl Bench {
    fn new(config: Config) -> Self {
        Self { router: VirtualRouter::new(config).unwrap(), now: *EPOCH }
    }

    /// With nothing left of an earlier process.
    fn backup(config: Config) -> Self {
        let mut bench = Self::new(config);
        bench.up();
        bench.event(Event::InterfaceDown);
        bench.event(Event::InterfaceUp);
        assert_eq!(bench.router.state(), State::Backup);
        bench
    }

    fn active(config: Config) -> Self {
        let mut bench = Self::backup(config);
        bench.pass_to_deadline();
        assert_eq!(bench.router.state(), State::Active);
        bench
    }

    /// With nothing in its way, not even what was there.
    fn up(&mut self) -> Vec<Action> {
        [Event::InterfaceUp, Event::Start].into_iter().flat_map(|event| self.event(event)).collect()
    }

    fn event(&mut self, event: Event) -> Vec<Action> {
        let actions = self.router.handle(self.now, event);
        assert_eq!(self.router.handle(self.now, Event::Tick), [], "what is due was not done at once");
        actions
    }

    fn hear(&mut self, source: &str, number: u8) -> Vec<Action> {
        let advertisement = advertisement(self.router.config(), number);
        self.event(from(source, &advertisement))
    }

    fn configure(&mut self, change: impl FnOnce(&mut Config)) -> Vec<Action> {
        let mut config = self.router.config().clone();
        change(&mut config);
        self.router.configure(self.now, config).unwrap()
    }

    fn pass(&mut self, time: Duration) -> Vec<Action> {
        self.now += time;
        self.event(Event::Tick)
    }

    /// Lets time pass to the next deadline.
    fn pass_to_deadline(&mut self) -> Vec<Action> {
        self.now = self.router.deadline().expect("no timer runs");
        self.event(Event::Tick)
    }

    /// Lets time pass with a tick at each deadline; what was done, and how long after now.
    fn run(&mut self, time: Duration) -> Vec<(Duration, Action)> {
        let start = self.now;
        let mut done = vec![];
        while let Some(at) = self.router.deadline().filter(|at| *at <= start + time) {
            self.now = at;
            done.extend(self.event(Event::Tick).into_iter().map(|action| (at - start, action)));
        }
        self.now = start + time;
        done
    }

    /// How long until the next deadline.
    fn wait(&self) -> Duration {
        self.router.deadline().unwrap() - self.now
    }

    /// The advertisement of the router, to all that are to have it.
    fn sent(&self, number: u8) -> Vec<Action> {
        let config = self.router.config();
        let destinations = config.transport.destinations(config.addresses.family());
        destinations.into_iter().map(|destination| sent(config, number, destination, ChecksumForm::MessageOnly)).collect()
    }
}

fn sent(config: &Config, number: u8, destination: IpAddr, form: ChecksumForm) -> Action {
    let endpoints = Endpoints::new(config.primary, destination).unwrap();
    Action::Send { endpoints, octets: advertisement(config, number).encode(endpoints, form) }
}

/// How long after the start of a run an action of this kind was done.
fn when(done: &[(Duration, Action)], is: impl Fn(&Action) -> bool) -> Vec<Duration> {
    done.iter().filter(|(_, action)| is(action)).map(|(at, _)| *at).collect()
}

fn is_send(action: &Action) -> bool {
    matches!(action, Action::Send { .. })
}
