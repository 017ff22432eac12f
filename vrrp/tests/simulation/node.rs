// SPDX-License-Identifier: Apache-2.0
//! A host with its process: what a driver does of what a group says.

use std::collections::BTreeMap;
use std::time::Instant;

use vrrp::Family;
use vrrp::group::{Group, MemberId};
use vrrp::router::{Action, Config, Event, Holding, State};
use vrrp::wire::Datagram;

pub(crate) struct Node {
    configs: Vec<Config>,
    group: Option<Group>,
    /// Since when the process is suspended.
    paused: Option<Instant>,
    link_up: bool,
    serving: bool,
    stopped: bool,
    /// What came in while the process was suspended.
    waiting: Vec<Datagram>,
    /// What has become of the addresses, whoever did it.
    holding: BTreeMap<Family, Holding>,
}

impl Node {
    pub(crate) const fn new(configs: Vec<Config>) -> Self {
        Self { configs, group: None, paused: None, link_up: true, serving: true, stopped: false, waiting: vec![], holding: BTreeMap::new() }
    }

    pub(crate) fn configs(&self) -> &[Config] {
        &self.configs
    }

    pub(crate) fn start(&mut self, now: Instant) -> Vec<(MemberId, Action)> {
        self.group = Some(Group::new(self.configs.clone()).unwrap());
        self.waiting.clear();
        let events = [(!self.stopped, Event::Start), (!self.serving, Event::NotServing), (self.link_up, Event::InterfaceUp)];
        events.into_iter().filter(|(is, _)| *is).flat_map(|(_, event)| self.event(now, event)).collect()
    }

    pub(crate) fn kill(&mut self) {
        self.group = None;
    }

    pub(crate) fn crash(&mut self) {
        self.group = None;
        self.holding.clear();
    }

    pub(crate) const fn pause(&mut self, now: Instant) {
        self.paused = Some(now);
    }

    pub(crate) const fn paused(&self) -> Option<Instant> {
        self.paused
    }

    pub(crate) fn wake(&mut self, now: Instant, tick_first: bool) -> Vec<(MemberId, Action)> {
        self.paused = None;
        let mut actions = vec![];
        if tick_first {
            actions.extend(self.event(now, Event::Tick));
        }
        for datagram in std::mem::take(&mut self.waiting) {
            actions.extend(self.event(now, Event::Received(datagram)));
        }
        actions.extend(self.tell(now));
        // Whether it serves may have changed, too.
        let told = self.group.iter().flat_map(Group::members).any(|(_, router)| !router.is_serving());
        if told == self.serving {
            actions.extend(self.set_serving(now, self.serving));
        }
        actions.extend(self.event(now, Event::Tick));
        actions
    }

    /// All that may have changed while the process did not run.
    fn tell(&mut self, now: Instant) -> Vec<(MemberId, Action)> {
        let events =
            [if self.stopped { Event::Stop } else { Event::Start }, if self.link_up { Event::InterfaceUp } else { Event::InterfaceDown }];
        events.into_iter().flat_map(|event| self.event(now, event)).collect()
    }

    pub(crate) fn set_link(&mut self, now: Instant, up: bool) -> Vec<(MemberId, Action)> {
        self.link_up = up;
        self.tell(now)
    }

    pub(crate) fn set_serving(&mut self, now: Instant, serving: bool) -> Vec<(MemberId, Action)> {
        self.serving = serving;
        self.event(now, if serving { Event::Serving } else { Event::NotServing })
    }

    pub(crate) const fn is_serving(&self) -> bool {
        self.serving
    }

    pub(crate) fn set_stopped(&mut self, now: Instant, stopped: bool) -> Vec<(MemberId, Action)> {
        self.stopped = stopped;
        self.tell(now)
    }

    pub(crate) fn configure(&mut self, now: Instant, configs: Vec<Config>) -> Vec<(MemberId, Action)> {
        self.configs = configs;
        let configs = self.configs.clone();
        match &mut self.group {
            Some(group) => group.configure(now, configs).unwrap(),
            None => vec![],
        }
    }

    pub(crate) fn receive(&mut self, now: Instant, datagram: Datagram) -> Vec<(MemberId, Action)> {
        if !self.link_up {
            vec![]
        } else if self.paused.is_some() {
            self.waiting.push(datagram);
            vec![]
        } else {
            self.event(now, Event::Received(datagram))
        }
    }

    pub(crate) fn event(&mut self, now: Instant, event: Event) -> Vec<(MemberId, Action)> {
        match &mut self.group {
            Some(group) if self.paused.is_none() => group.handle(now, event),
            Some(_) | None => vec![],
        }
    }

    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.group.as_ref().filter(|_| self.paused.is_none()).and_then(Group::deadline)
    }

    pub(crate) fn carry_out(&mut self, family: Family, holding: Holding) {
        self.holding.insert(family, holding);
    }

    /// On the interface, whether answered for or not.
    pub(crate) fn has(&self, family: Family) -> bool {
        self.holding.get(&family).is_some_and(|holding| *holding != Holding::Released)
    }

    pub(crate) const fn is_link_up(&self) -> bool {
        self.link_up
    }

    /// Whether it can be Active.
    pub(crate) const fn is_able(&self) -> bool {
        self.group.is_some() && self.link_up && !self.stopped
    }

    pub(crate) fn is_active(&self) -> bool {
        let states = self.group.iter().flat_map(Group::members).map(|(_, router)| router.state());
        let active: Vec<_> = states.map(|state| state == State::Active).collect();
        assert!(active.iter().all(|one| *one == active[0]), "the members of a group disagree");
        active.first().copied().unwrap_or_default()
    }

    /// A router is Active exactly where it holds the addresses.
    pub(crate) fn check(&self) {
        for (_, router) in self.group.iter().flat_map(Group::members) {
            let held = self.holding.get(&router.addresses().family()) == Some(&Holding::Held);
            let active = router.state() == State::Active;
            assert!(router.state() == State::Initialize || held == active, "the addresses are not where the router is Active");
        }
    }
}
