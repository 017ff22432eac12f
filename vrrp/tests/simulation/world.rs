// SPDX-License-Identifier: Apache-2.0
//! The link, its neighbours and the clock; and what must hold of the routers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use vrrp::group::MemberId;
use vrrp::router::{Action, Config, Event, Preempt, State};
use vrrp::wire::Datagram;
use vrrp::{Family, Priority};

use crate::dice::Dice;
use crate::node::Node;
use crate::scenario::{Scenario, Trouble};

/// Where virtual clocks start.
static EPOCH: LazyLock<Instant> = LazyLock::new(
    #[expect(clippy::disallowed_methods, reason = "an instant cannot be made of a number: a virtual clock has to start somewhere")]
    Instant::now,
);

/// Hosts that keep what they were told last of where the addresses are.
const NEIGHBOURS: usize = 3;

const SHORTEST_DELAY: Duration = Duration::from_micros(5);

enum Happening {
    Start(usize),
    Deliver(usize, Datagram),
    /// A neighbour hears that the addresses of a family are at a node.
    Told(usize, Family, usize),
    Begin(Trouble),
    End(Trouble),
}

pub(crate) struct World {
    scenario: Scenario,
    now: Duration,
    queue: BTreeMap<(Duration, u64), Happening>,
    sequence: u64,
    dice: Dice,
    nodes: Vec<Node>,
    troubles: BTreeSet<Trouble>,
    caches: BTreeMap<(usize, Family), usize>,
    /// Since when nothing has changed from outside.
    settled: Duration,
    /// Since when the link and the processes have been well.
    well: Duration,
    /// Those that are Active, and since when it is those.
    active: (Vec<usize>, Duration),
    transitions: u64,
}

impl World {
    pub(crate) fn new(scenario: Scenario) -> Self {
        let mut world = Self {
            now: Duration::ZERO,
            queue: BTreeMap::new(),
            sequence: 0,
            dice: Dice::new(scenario.seed.rotate_left(32)),
            nodes: scenario.nodes.iter().cloned().map(Node::new).collect(),
            troubles: BTreeSet::new(),
            caches: BTreeMap::new(),
            settled: Duration::ZERO,
            well: Duration::ZERO,
            active: (vec![], Duration::ZERO),
            transitions: 0,
            scenario,
        };
        for node in 0..world.nodes.len() {
            let at = world.dice.between(Duration::ZERO, world.scenario.longest_interval);
            world.at(at, Happening::Start(node));
        }
        for (begins, ends, trouble) in world.scenario.troubles.clone() {
            world.at(begins, Happening::Begin(trouble));
            world.at(ends, Happening::End(trouble));
        }
        world
    }

    pub(crate) fn run(mut self) {
        let quiet = self.scenario.quiet_after();
        self.run_until(quiet + self.time_to_recover());
        let transitions = self.transitions;
        self.check_end();
        self.run_until(self.now + self.scenario.longest_interval * 20);
        assert_eq!(self.transitions, transitions, "it does not stay so");
        self.check_end();
    }

    fn at(&mut self, at: Duration, happening: Happening) {
        self.sequence += 1;
        self.queue.insert((at, self.sequence), happening);
    }

    fn instant(&self) -> Instant {
        *EPOCH + self.now
    }

    fn run_until(&mut self, end: Duration) {
        loop {
            let tick = (0..self.nodes.len()).filter_map(|node| Some((self.nodes[node].deadline()? - *EPOCH, node))).min();
            let happens = self.queue.keys().next().map(|(at, _)| *at);
            let next = happens.into_iter().chain(tick.map(|(at, _)| at)).min().filter(|at| *at <= end);
            let Some(next) = next else { break };
            self.check_until(next);
            self.now = next.max(self.now);
            match tick {
                // What has come in is read before a tick.
                Some((at, node)) if happens.is_none_or(|happens| at < happens) => {
                    let now = self.instant();
                    let actions = self.nodes[node].event(now, Event::Tick);
                    self.carry_out(node, actions);
                    assert!(self.nodes[node].deadline().is_none_or(|at| at > now), "a driver would turn without end");
                }
                _ => {
                    let Some((_, happening)) = self.queue.pop_first() else { break };
                    self.happen(happening);
                }
            }
            self.note_active();
        }
        self.check_until(end);
        self.now = end;
    }

    fn happen(&mut self, happening: Happening) {
        let now = self.instant();
        match happening {
            Happening::Start(node) => {
                self.settled = self.now;
                if !self.troubles.contains(&Trouble::Kill(node)) && !self.troubles.contains(&Trouble::Crash(node)) {
                    let actions = self.nodes[node].start(now);
                    self.carry_out(node, actions);
                }
            }
            Happening::Deliver(node, datagram) => {
                let actions = self.nodes[node].receive(now, datagram);
                self.carry_out(node, actions);
            }
            Happening::Told(neighbour, family, node) => {
                self.caches.insert((neighbour, family), node);
            }
            Happening::Begin(trouble) => {
                self.troubles.insert(trouble);
                self.disturb(trouble, true);
            }
            Happening::End(trouble) => {
                self.troubles.remove(&trouble);
                self.disturb(trouble, false);
            }
        }
    }

    fn disturb(&mut self, trouble: Trouble, begins: bool) {
        let now = self.instant();
        self.settled = self.now;
        if trouble.is_of_the_link() {
            self.well = self.now;
        }
        let (node, actions) = match trouble {
            Trouble::Cut(..) | Trouble::Filter(..) | Trouble::Loss => return,
            Trouble::Pause(node) if begins => {
                self.nodes[node].pause(now);
                return;
            }
            Trouble::Pause(node) => {
                let heard = self.has_been_told_in_a_pause(node);
                let actions = self.nodes[node].wake(now, self.scenario.tick_first);
                let claims = actions.iter().any(|(_, action)| matches!(action, Action::Transition { to: State::Active, .. }));
                assert!(!(claims && heard), "router {node} wakes at {:?} and claims what it has yet to read is taken", self.now);
                (node, actions)
            }
            Trouble::Kill(node) | Trouble::Crash(node) if begins => {
                if trouble == Trouble::Crash(node) {
                    self.nodes[node].crash();
                } else {
                    self.nodes[node].kill();
                }
                return;
            }
            Trouble::Kill(node) | Trouble::Crash(node) => {
                let at = self.now;
                self.at(at, Happening::Start(node));
                return;
            }
            Trouble::LinkDown(node) => (node, self.nodes[node].set_link(now, !begins)),
            Trouble::NotServing(node) => (node, self.nodes[node].set_serving(now, !begins)),
            Trouble::Stopped(node) => (node, self.nodes[node].set_stopped(now, begins)),
            Trouble::Unwell(node) => {
                let configured = self.scenario.nodes[node].clone();
                let configs = if begins { configured.into_iter().map(unwell).collect() } else { configured };
                (node, self.nodes[node].configure(now, configs))
            }
        };
        self.carry_out(node, actions);
    }

    fn carry_out(&mut self, node: usize, actions: Vec<(MemberId, Action)>) {
        for (id, action) in actions {
            match action {
                Action::Send { endpoints, octets } => {
                    let datagram = Datagram { endpoints, ttl: 255, octets };
                    for other in (0..self.nodes.len()).filter(|other| *other != node) {
                        self.send(node, other, &datagram);
                    }
                }
                Action::Addresses(holding) => self.nodes[node].carry_out(id.family, holding),
                Action::Announce => self.announce(node, id.family),
                Action::Transition { from, to } => {
                    self.transitions += 1;
                    self.check_transition(node, from, to);
                }
                Action::Discarded { source, reason } => panic!("{source} was discarded: {reason}"),
                Action::AddressesDiffer { .. } => panic!("the addresses are the same"),
            }
        }
        self.nodes[node].check();
    }

    /// Whether a packet goes through now.
    fn goes_through(&mut self, from: usize) -> bool {
        self.nodes[from].is_link_up() && !(self.troubles.contains(&Trouble::Loss) && self.dice.one_in(5))
    }

    fn send(&mut self, from: usize, to: usize, datagram: &Datagram) {
        let destination = datagram.endpoints.destination();
        let is_for = destination.is_multicast() || self.nodes[to].configs().iter().any(|config| config.primary == destination);
        let cut = [Trouble::Cut(from, to), Trouble::Filter(from, to, datagram.endpoints.family())];
        if is_for && !cut.iter().any(|trouble| self.troubles.contains(trouble)) && self.goes_through(from) {
            let at = self.now + self.dice.between(SHORTEST_DELAY, self.scenario.longest_delay);
            self.at(at, Happening::Deliver(to, datagram.clone()));
        }
    }

    fn announce(&mut self, node: usize, family: Family) {
        for neighbour in 0..NEIGHBOURS {
            if self.goes_through(node) {
                let at = self.now + self.dice.between(SHORTEST_DELAY, self.scenario.longest_delay);
                self.at(at, Happening::Told(neighbour, family, node));
            }
        }
    }

    /// Whether one that does not mind others was suspended for so long that its timers have lapsed long since, while another was Active and heard.
    fn has_been_told_in_a_pause(&self, node: usize) -> bool {
        let suspended = self.nodes[node].paused().map_or(Duration::ZERO, |since| self.instant() - since);
        let others =
            self.active.0.iter().any(|other| *other != node && self.nodes[*other].paused().is_none() && self.nodes[*other].is_serving());
        let heard = others && self.is_well() && self.now - self.active.1 > self.scenario.longest_interval * 2;
        heard && self.scenario.preempt == Preempt::Never && suspended > self.scenario.longest_interval * 6
    }

    fn note_active(&mut self) {
        let active: Vec<_> = (0..self.nodes.len()).filter(|node| self.nodes[*node].is_active()).collect();
        if active != self.active.0 {
            let calm = self.is_well() && self.now - self.settled > self.scenario.longest_delay * 2;
            assert!(!(calm && active.is_empty()), "all have given way at {:?}", self.now);
            self.active = (active, self.now);
        }
        if self.scenario.never_lost {
            let lost = self.caches.keys().find(|(_, family)| !self.nodes.iter().any(|node| node.has(*family)));
            assert_eq!(lost, None, "nobody has the addresses at {:?}", self.now);
        }
    }

    fn is_well(&self) -> bool {
        !self.troubles.iter().any(|trouble| trouble.is_of_the_link())
    }

    /// The longest Active_Down_Interval, and the time that a packet may take, with a little more for what is under way.
    fn longest_silence(&self) -> Duration {
        self.scenario.longest_interval * 4 + self.scenario.longest_delay * 2
    }

    /// Nothing changes until then: what is so now must be allowed to last so long.
    fn check_until(&self, until: Duration) {
        if !self.is_well() {
            return;
        }
        let lasts = until - self.settled.max(self.active.1).min(until);
        match self.active.0[..] {
            [] => {
                let able = self.nodes.iter().any(Node::is_able);
                assert!(!able || lasts <= self.longest_silence(), "no Active Router for {lasts:?} until {until:?}");
            }
            [node] => {
                let healthy = || self.nodes.iter().any(|other| other.is_able() && other.is_serving() && other.paused().is_none());
                if !self.nodes[node].is_serving() && lasts > self.longest_silence() * 2 {
                    assert!(!healthy(), "router {node} is Active for {lasts:?} until {until:?}, does not serve, and another one would");
                }
                let told = self.told_within();
                if lasts > told {
                    let lost: Vec<_> = self.caches.iter().filter(|(_, at)| **at != node).collect();
                    assert_eq!(lost, [], "router {node} is Active for {lasts:?} until {until:?}, and these neighbours do not know");
                }
            }
            [_, _, ..] => {
                let longest = self.scenario.longest_interval + self.scenario.longest_delay * 2;
                assert!(lasts <= longest, "{:?} are Active for {lasts:?} until {until:?}", self.active.0);
            }
        }
    }

    /// How long an Active Router may take to tell all neighbours, whatever they were told before.
    fn told_within(&self) -> Duration {
        let refresh = self.scenario.nodes[0][0].announcing.refresh.unwrap_or_default();
        refresh + self.scenario.longest_interval * 2 + self.scenario.longest_delay + Duration::from_millis(100)
    }

    /// Without preemption, who is Active stays so while it is heard.
    fn check_transition(&self, node: usize, from: State, to: State) {
        let heard = self.is_well() && self.now - self.well > self.longest_silence();
        if self.scenario.preempt == Preempt::Never && (from, to) == (State::Backup, State::Active) && heard {
            let others =
                self.active.0.iter().filter(|other| **other != node && self.nodes[**other].is_active() && self.nodes[**other].is_serving());
            let (longest, since) = (self.longest_silence(), self.now - self.active.1);
            assert!(others.count() == 0 || since < longest, "router {node} preempts at {:?}", self.now);
        }
    }

    /// Until there is one Active Router for good: it is found, may be preempted after the delay, and has told the neighbours.
    fn time_to_recover(&self) -> Duration {
        let delay = match self.scenario.preempt {
            Preempt::Never => Duration::ZERO,
            Preempt::After(delay) => delay,
        };
        self.longest_silence() * 3 + delay + self.told_within()
    }

    /// Holds when all is quiet.
    fn check_end(&self) {
        let [node] = self.active.0[..] else { panic!("Active at the end: {:?}", self.active.0) };
        let priority = |node: usize| self.nodes[node].configs()[0].priority;
        if self.scenario.preempt != Preempt::Never {
            let highest = (0..self.nodes.len()).map(priority).max();
            assert_eq!(Some(priority(node)), highest, "a router of lower priority is Active at the end");
        }
        for config in &self.scenario.nodes[node] {
            let family = config.addresses.family();
            let holders: Vec<_> = (0..self.nodes.len()).filter(|node| self.nodes[*node].has(family)).collect();
            assert_eq!(holders, [node], "who has the addresses");
            for neighbour in 0..NEIGHBOURS {
                assert_eq!(
                    self.caches.get(&(neighbour, family)),
                    Some(&node),
                    "neighbour {neighbour} does not know where the addresses are"
                );
            }
        }
    }
}

fn unwell(config: Config) -> Config {
    Config { priority: Priority::new(config.priority.number() / 2).unwrap(), ..config }
}
