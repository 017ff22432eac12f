// SPDX-License-Identifier: Apache-2.0
//! Router discovery on one link (RFC 4861), by which the two ends of an unnumbered session learn each other's link-local address.
//!
//! Input: what arrives on the link, and time. Output: which message is to be sent now, and which routers are heard, as a pure value. We advertise
//! ourselves with a Router Lifetime of 0, so that no host takes us for its default router (RFC 4861 §6.2.3), and solicit the routers of the link.

mod message;
mod socket;

use std::collections::BTreeMap;
use std::net::Ipv6Addr;
use std::time::{Duration, Instant};

pub(super) use socket::{Link, listen};

/// RFC 4861 §10, MIN_DELAY_BETWEEN_RAS; also between the first advertisements on a link.
const LEAST_INTERVAL: Duration = Duration::from_secs(3);
/// So many advertisements come at the least interval: a router that comes up together with us may miss the first (RFC 4861 §10,
/// MAX_INITIAL_RTR_ADVERTISEMENTS).
const INITIAL_ADVERTISEMENTS: u32 = 3;
/// MaxRtrAdvInterval (RFC 4861 §6.2.1), and the jitter taken from it: MinRtrAdvInterval is three quarters.
const INTERVAL: Duration = Duration::from_secs(10);
const INTERVAL_JITTER: Duration = Duration::from_millis(2500);
/// RFC 4861 §10, MAX_RA_DELAY_TIME: the answer to a solicitation comes within.
const ANSWER_DELAY: Duration = Duration::from_millis(500);
/// The first interval between two solicitations, and the longest (RFC 7559 §2: IRT, MRT).
const FIRST_SOLICITATION: Duration = Duration::from_secs(4);
const LONGEST_SOLICITATION: Duration = Duration::from_secs(3600);
/// A router that is silent for so long is asked whether it is there, and forgotten some time later.
const ASK: Duration = Duration::from_secs(40);
const FORGET: Duration = Duration::from_secs(60);
/// No link of a session has more; somebody who invents routers is not to fill the memory.
const MOST_ROUTERS: usize = 8;
const MOST_ANSWERS: usize = 8;

/// What happens on the link.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Event {
    /// The deadline may have come.
    Tick,
    /// A valid Router Advertisement of this router.
    Advertisement(Ipv6Addr),
    /// A valid Router Solicitation; of nobody where its source is unspecified.
    Solicitation(Option<Ipv6Addr>),
}

/// What is to be sent.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Action {
    /// A Router Advertisement to this host, or to all nodes.
    Advertise(Option<Ipv6Addr>),
    /// A Router Solicitation to all routers.
    Solicit,
}

/// One link.
#[derive(Debug)]
struct Discovery {
    jitter: Jitter,
    /// The first heard first.
    routers: Vec<Router>,
    /// The next advertisement to all.
    advertisement: Instant,
    advertised: u32,
    last_advertisement: Option<Instant>,
    /// Advertisements to hosts that have asked.
    answers: BTreeMap<Ipv6Addr, Instant>,
    /// The next solicitation while no router is known, and the interval after it.
    solicitation: Instant,
    interval: Duration,
}

#[derive(Debug)]
struct Router {
    address: Ipv6Addr,
    heard: Instant,
    /// It was asked whether it is still there.
    asked: bool,
}

impl Discovery {
    fn new(now: Instant, seed: u64) -> Self {
        Self {
            jitter: Jitter(seed),
            routers: Vec::new(),
            advertisement: now,
            advertised: 0,
            last_advertisement: None,
            answers: BTreeMap::new(),
            solicitation: now,
            interval: FIRST_SOLICITATION,
        }
    }

    /// The routers of the link.
    fn routers(&self) -> Vec<Ipv6Addr> {
        self.routers.iter().map(|router| router.address).collect()
    }

    fn handle(&mut self, now: Instant, event: Event) -> Vec<Action> {
        match event {
            Event::Tick => {}
            Event::Advertisement(address) => self.heard(address, now),
            Event::Solicitation(asker) => self.asked(asker, now),
        }
        let mut actions = Vec::new();
        self.advertise(now, &mut actions);
        self.solicit(now, &mut actions);
        actions
    }

    /// When it has something to do next.
    fn deadline(&self) -> Instant {
        let routers = self.routers.iter().map(|router| router.heard + if router.asked { FORGET } else { ASK });
        let solicitation = self.routers.is_empty().then_some(self.solicitation);
        let times = routers.chain(solicitation).chain(self.answers.values().copied());
        times.fold(self.advertisement, Instant::min)
    }

    fn heard(&mut self, address: Ipv6Addr, now: Instant) {
        if let Some(router) = self.routers.iter_mut().find(|router| router.address == address) {
            (router.heard, router.asked) = (now, false);
        } else if self.routers.len() < MOST_ROUTERS {
            self.routers.push(Router { address, heard: now, asked: false });
        }
    }

    /// RFC 4861 §6.2.6: the answer comes after a random time, to the host that asked; to all, not too soon after the last one, where it has no address yet.
    fn asked(&mut self, asker: Option<Ipv6Addr>, now: Instant) {
        let at = now + self.jitter.up_to(ANSWER_DELAY);
        match asker {
            Some(host) if self.answers.len() < MOST_ANSWERS => {
                self.answers.entry(host).or_insert(at);
            }
            _ => {
                let earliest = self.last_advertisement.map_or(at, |last| at.max(last + LEAST_INTERVAL));
                self.advertisement = self.advertisement.min(earliest);
            }
        }
    }

    fn advertise(&mut self, now: Instant, actions: &mut Vec<Action>) {
        if self.advertisement <= now {
            actions.push(Action::Advertise(None));
            self.advertised = self.advertised.saturating_add(1);
            self.last_advertisement = Some(now);
            let interval =
                if self.advertised < INITIAL_ADVERTISEMENTS { LEAST_INTERVAL } else { INTERVAL - self.jitter.up_to(INTERVAL_JITTER) };
            self.advertisement = now + interval;
        }
        self.answers.retain(|host, at| {
            let due = *at <= now;
            if due {
                actions.push(Action::Advertise(Some(*host)));
            }
            !due
        });
    }

    /// Asks for routers while there is none, ever more seldom (RFC 7559 §2), and once when one has been silent for long.
    fn solicit(&mut self, now: Instant, actions: &mut Vec<Action>) {
        let before = self.routers.len();
        self.routers.retain(|router| now < router.heard + FORGET);
        if before > 0 && self.routers.is_empty() {
            (self.solicitation, self.interval) = (now, FIRST_SOLICITATION);
        }
        let mut silent = false;
        for router in self.routers.iter_mut().filter(|router| !router.asked && router.heard + ASK <= now) {
            router.asked = true;
            silent = true;
        }
        if self.routers.is_empty() && self.solicitation <= now {
            self.solicitation = now + self.interval - self.interval / 10 + self.jitter.up_to(self.interval / 5);
            self.interval = (self.interval * 2).min(LONGEST_SOLICITATION);
            actions.push(Action::Solicit);
        } else if silent {
            actions.push(Action::Solicit);
        }
    }
}

/// Pseudo-random times (SplitMix64).
#[derive(Debug)]
struct Jitter(u64);

impl Jitter {
    fn up_to(&mut self, longest: Duration) -> Duration {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        longest * u32::from((bits >> 48) as u16) / u32::from(u16::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0xa);
    const B: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0xb);

    /// Runs it alone until `until`; what it does, with the milliseconds since the start.
    fn alone(discovery: &mut Discovery, start: Instant, until: Duration) -> Vec<(u128, Action)> {
        let mut done = Vec::new();
        while discovery.deadline() <= start + until {
            let now = discovery.deadline();
            let at = now.duration_since(start).as_millis();
            done.extend(discovery.handle(now, Event::Tick).into_iter().map(|action| (at, action)));
        }
        done
    }

    fn times(done: &[(u128, Action)], wanted: Action) -> Vec<u128> {
        done.iter().filter(|(_, action)| *action == wanted).map(|(at, _)| *at).collect()
    }

    #[test]
    fn rfc4861_6_2_4_the_first_advertisements_come_fast_and_then_with_jitter() {
        for seed in 0..50 {
            let start = Instant::now();
            let done = alone(&mut Discovery::new(start, seed), start, Duration::from_secs(60));
            let times = times(&done, Action::Advertise(None));
            assert_eq!(times[..3], [0, 3000, 6000]);
            assert!(times.windows(2).skip(2).all(|pair| (7500..=10_000).contains(&(pair[1] - pair[0]))), "{times:?}");
        }
    }

    #[test]
    fn rfc7559_2_solicitations_go_on_ever_more_seldom_while_no_router_is_heard() {
        let start = Instant::now();
        let mut discovery = Discovery::new(start, 1);
        let times = times(&alone(&mut discovery, start, Duration::from_secs(100)), Action::Solicit);
        assert_eq!(times[0], 0);
        for (pair, expected) in times.windows(2).zip([4000, 8000, 16_000, 32_000]) {
            assert!((expected * 9 / 10..=expected * 11 / 10).contains(&(pair[1] - pair[0])), "{times:?}");
        }
        discovery.interval = Duration::from_secs(3000);
        alone(&mut discovery, start, Duration::from_secs(4000));
        assert_eq!(discovery.interval, LONGEST_SOLICITATION);
    }

    #[test]
    fn a_router_is_kept_while_it_is_heard_asked_when_it_falls_silent_and_then_forgotten() {
        let start = Instant::now();
        let mut discovery = Discovery::new(start, 1);
        discovery.handle(start, Event::Advertisement(A));
        discovery.handle(start, Event::Advertisement(B));
        assert_eq!(discovery.routers(), [A, B]);
        let later = start + Duration::from_secs(30);
        discovery.handle(later, Event::Advertisement(B));
        let done = alone(&mut discovery, start, Duration::from_secs(69));
        assert_eq!(times(&done, Action::Solicit), [40_000], "for A; B is heard again");
        assert_eq!(discovery.routers(), [B]);
        let done = alone(&mut discovery, start, Duration::from_secs(91));
        assert_eq!(times(&done, Action::Solicit), [70_000, 90_000], "asked, forgotten, and looked for again");
        assert_eq!(discovery.routers(), [Ipv6Addr::UNSPECIFIED; 0]);
    }

    #[test]
    fn rfc4861_6_2_6_a_solicitation_is_answered_to_the_host_within_half_a_second() {
        let start = Instant::now();
        let mut discovery = Discovery::new(start, 3);
        discovery.handle(start, Event::Tick);
        discovery.handle(start, Event::Solicitation(Some(A)));
        discovery.handle(start, Event::Solicitation(Some(A)));
        let done = alone(&mut discovery, start, Duration::from_millis(500));
        assert_eq!(times(&done, Action::Advertise(Some(A))).len(), 1);
        for number in 0..100 {
            discovery.handle(start, Event::Solicitation(Some(Ipv6Addr::from_bits(number))));
        }
        assert_eq!(discovery.answers.len(), MOST_ANSWERS);
    }

    #[test]
    fn rfc4861_6_2_6_advertisements_to_all_nodes_keep_their_distance() {
        let start = Instant::now();
        let mut discovery = Discovery::new(start, 3);
        alone(&mut discovery, start, Duration::from_secs(7));
        let asked = start + Duration::from_secs(7);
        discovery.handle(asked, Event::Solicitation(None));
        let done = alone(&mut discovery, start, Duration::from_secs(10));
        assert_eq!(times(&done, Action::Advertise(None)), [9000], "three seconds after the one before");
    }

    #[test]
    fn invented_routers_do_not_fill_the_memory() {
        let start = Instant::now();
        let mut discovery = Discovery::new(start, 3);
        for number in 0..1000 {
            discovery.handle(start, Event::Advertisement(Ipv6Addr::from_bits(number)));
        }
        assert_eq!(discovery.routers().len(), MOST_ROUTERS);
    }
}
