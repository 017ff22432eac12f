// SPDX-License-Identifier: Apache-2.0
//! Virtual routers that are Active together or not at all, as those of IPv4 and IPv6 for the VIPs of one node.
//!
//! Input: the [`Event`]s of its members, and the whole set of their configurations, which may change at any time. Output: their [`Action`]s, and the
//! deadline of the next tick. No standard knows groups: on the wire each member is a virtual router of RFC 9568.
//!
//! Invariants: all members that count are Active, or none is. One that cannot be Active holds all in Initialize; they claim only when the timers of all
//! have lapsed; where one leaves Active, the others leave it with an advertisement of priority 0 each.
//!
//! - **Joining.** A member that joins while the group is Active does not count until it is Active itself, which it becomes by its own timer, or until the group
//!   leaves Active. Until then it pulls nothing down.
//! - **Ties.** Of routers with equal priorities the higher address wins, and that may be another one in each family: with each of two groups losing in one
//!   family, both would step down, and again. So the first member, by VRID and then IPv4 before IPv6, decides ties for the group. Another member that
//!   loses one gives way only after an Active_Down_Interval in which the first one met no contender that it beat: then those two do not
//!   hear each other, and the group can but go by the family in which they do.
//!
//! All routers of a virtual router should be in groups of the same members. Where one has only some of them Active, a group takes over none.

use std::collections::BTreeMap;
use std::time::Instant;

use crate::identity::{Family, Vrid};
use crate::router::{Action, Config, ConfigError, Event, State, Ties, Turn, VirtualRouter};

/// A member: no two virtual routers on a link have both in common.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct MemberId {
    /// Its VRID.
    pub vrid: Vrid,
    /// Its family.
    pub family: Family,
}

impl MemberId {
    /// Of the virtual router with this configuration.
    #[must_use]
    pub const fn of(config: &Config) -> Self {
        Self { vrid: config.vrid, family: config.addresses.family() }
    }
}

impl std::fmt::Display for MemberId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} of VRID {}", self.family, self.vrid)
    }
}

/// Why these cannot be a group.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum GroupError {
    /// There is no member.
    #[error("a group needs at least one virtual router")]
    Empty,
    /// Two have VRID and family in common.
    #[error("{0} is there twice")]
    Twice(MemberId),
    /// They would not be elected together.
    #[error("{0} differs from the first router of the group in priority, interval, version or preemption")]
    Unequal(MemberId),
    /// A member cannot be a virtual router, or not this one.
    #[error("{id} cannot be configured so")]
    Member {
        /// The member.
        id: MemberId,
        /// Why.
        #[source]
        error: ConfigError,
    },
}

/// Virtual routers that move together.
#[derive(Debug)]
pub struct Group {
    members: BTreeMap<MemberId, Member>,
    /// What all members have been told, for those that join.
    told: Told,
    /// Ties that the first member knows nothing of.
    tie: Option<Tie>,
}

#[derive(Debug)]
struct Member {
    router: VirtualRouter,
    /// Joined while the group is Active, and not Active so far: it does not count.
    joining: bool,
}

/// When another member than the first heard a router that it loses to by its address alone.
#[derive(Clone, Copy, Debug)]
struct Tie {
    since: Instant,
    last: Instant,
}

#[derive(Debug, Default)]
struct Told {
    start: bool,
    not_serving: bool,
    interface_up: bool,
}

/// The turn of each member in one call of [`Group::handle`], or of another function.
type Turns = BTreeMap<MemberId, Turn>;

impl Group {
    /// A group whose members wait for [`Event::Start`] and [`Event::InterfaceUp`].
    ///
    /// # Errors
    /// There is none, one is there twice, they differ in what the election goes by, or one cannot be configured so.
    pub fn new(configs: Vec<Config>) -> Result<Self, GroupError> {
        let mut group = Self { members: BTreeMap::new(), told: Told::default(), tie: None };
        group.check(&configs)?;
        configs.into_iter().for_each(|config| group.join(config));
        group.lead();
        Ok(group)
    }

    /// Takes one event of all members. A datagram goes to the one that it is for, or is nobody's.
    pub fn handle(&mut self, now: Instant, event: Event) -> Vec<(MemberId, Action)> {
        self.told.note(&event);
        if let Event::Received(datagram) = &event {
            let Some(vrid) = datagram.vrid() else { return vec![] };
            return self.handle_member(now, MemberId { vrid, family: datagram.endpoints.family() }, event);
        }
        let mut turns = self.turns(now);
        for (member, turn) in with(&mut turns, &mut self.members) {
            member.router.take(turn, event.clone());
        }
        self.settle(now, turns)
    }

    /// Takes one event of one member. Nothing happens where there is no such member.
    pub fn handle_member(&mut self, now: Instant, id: MemberId, event: Event) -> Vec<(MemberId, Action)> {
        let mut turns = self.turns(now);
        if let (Some(member), Some(turn)) = (self.members.get_mut(&id), turns.get_mut(&id)) {
            member.router.take(turn, event);
        }
        self.settle(now, turns)
    }

    /// Other members, or other configurations of them, from now on. Those that stay go on in their state; those that are gone resign.
    ///
    /// # Errors
    /// As [`new`](Self::new); or a member that is there cannot change in this way. That which was in force stays so.
    pub fn configure(&mut self, now: Instant, configs: Vec<Config>) -> Result<Vec<(MemberId, Action)>, GroupError> {
        self.check(&configs)?;
        let mut actions = vec![];
        let leaving: Vec<_> = self.members.keys().copied().filter(|id| configs.iter().all(|config| MemberId::of(config) != *id)).collect();
        for id in leaving {
            if let Some(mut member) = self.members.remove(&id) {
                actions.extend(member.router.withdraw(now).into_iter().map(|action| (id, action)));
            }
        }
        let mut turns = self.turns(now);
        for config in configs {
            let id = MemberId::of(&config);
            if let (Some(member), Some(turn)) = (self.members.get_mut(&id), turns.get_mut(&id)) {
                member.router.adopt(turn, config);
            } else {
                self.join(config);
                self.introduce(now, id, &mut turns);
            }
        }
        actions.extend(self.settle(now, turns));
        Ok(actions)
    }

    /// The members, the first one of which decides ties.
    pub fn members(&self) -> impl Iterator<Item = (MemberId, &VirtualRouter)> {
        self.members.iter().map(|(id, member)| (*id, &member.router))
    }

    /// When the next [`Tick`](Event::Tick) is due.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        self.members().filter_map(|(_, router)| router.deadline()).min()
    }

    fn check(&self, configs: &[Config]) -> Result<(), GroupError> {
        let first = configs.first().ok_or(GroupError::Empty)?;
        let election = |config: &Config| (config.priority, config.interval, config.version, config.preempt);
        for (index, config) in configs.iter().enumerate() {
            let id = MemberId::of(config);
            let checked = match self.members.get(&id) {
                Some(member) => member.router.config().check_change(config),
                None => config.check(),
            };
            checked.map_err(|error| GroupError::Member { id, error })?;
            if election(config) != election(first) {
                return Err(GroupError::Unequal(id));
            }
            if configs.iter().take(index).any(|other| MemberId::of(other) == id) {
                return Err(GroupError::Twice(id));
            }
        }
        Ok(())
    }

    /// Of a configuration that was checked.
    fn join(&mut self, config: Config) {
        let joining = self.counting().any(|member| member.router.state() == State::Active);
        self.members.insert(MemberId::of(&config), Member { router: VirtualRouter::of(config), joining });
    }

    /// Tells a new member what the others know.
    fn introduce(&mut self, now: Instant, id: MemberId, turns: &mut Turns) {
        let Some(member) = self.members.get_mut(&id) else { return };
        let turn = turns.entry(id).or_insert_with(|| member.router.turn(now));
        for event in self.told.events() {
            member.router.take(turn, event);
        }
    }

    fn turns(&self, now: Instant) -> Turns {
        self.members.iter().map(|(id, member)| (*id, member.router.turn(now))).collect()
    }

    fn counting(&self) -> impl Iterator<Item = &Member> {
        self.members.values().filter(|member| !member.joining)
    }

    /// The first member that counts.
    fn first(&self) -> Option<MemberId> {
        self.members.iter().find(|(_, member)| !member.joining).map(|(id, _)| *id)
    }

    /// Whether the group is Active as a whole.
    fn is_active(&self) -> bool {
        self.first().is_some() && self.counting().all(|member| member.router.state() == State::Active)
    }

    /// Makes the members agree after one of them, or all, have taken an event.
    fn settle(&mut self, now: Instant, mut turns: Turns) -> Vec<(MemberId, Action)> {
        self.decide_ties(now, &mut turns);
        if !self.is_active() {
            self.members.values_mut().for_each(|member| member.joining = false);
            self.leave_together(&mut turns);
        }
        self.claim_together(&mut turns);
        self.lead();
        with(&mut turns, &mut self.members).for_each(|(member, turn)| member.router.conclude(turn));
        turns.into_iter().flat_map(|(id, turn)| turn.actions.into_iter().map(move |action| (id, action))).collect()
    }

    /// One that cannot be Active holds all back; one that is not leaves none Active.
    fn leave_together(&mut self, turns: &mut Turns) {
        let unable = self.members.values().filter(|member| !member.router.is_able()).count();
        for (member, turn) in with(turns, &mut self.members) {
            let others = unable - usize::from(!member.router.is_able());
            if others > 0 {
                member.router.hold_back(turn);
            } else if unable == 0 && member.router.state() == State::Active {
                member.router.resign(turn);
            } else {
                member.router.let_go(turn);
            }
        }
    }

    /// Claims for all where all are willing, and for one that joins an Active group as soon as it is.
    fn claim_together(&mut self, turns: &mut Turns) {
        let all = self.counting().all(|member| member.router.is_willing());
        let active = self.is_active();
        for (member, turn) in with(turns, &mut self.members) {
            if member.router.is_willing() && (all || active && member.joining) {
                member.router.claim(turn);
                member.joining = false;
            }
        }
    }

    /// The first member decides ties; another one only where the first does not meet the contender.
    fn decide_ties(&mut self, now: Instant, turns: &mut Turns) {
        let tied: Vec<_> = self.members.iter_mut().filter_map(|(id, member)| member.router.take_tie().then_some(*id)).collect();
        if tied.is_empty() {
            return;
        }
        let Some(first) = self.first().and_then(|id| self.members.get(&id)) else { return };
        let patience = first.router.longest_active_down_interval();
        let running = self.tie.take().filter(|tie| now.saturating_duration_since(tie.last) < patience);
        let since = running.map_or(now, |tie| tie.since);
        if first.router.contended().is_some_and(|at| at >= since) {
            return;
        }
        if now.saturating_duration_since(since) < patience {
            self.tie = Some(Tie { since, last: now });
            return;
        }
        for id in tied {
            if let (Some(member), Some(turn)) = (self.members.get_mut(&id), turns.get_mut(&id)) {
                member.router.give_way(turn);
            }
        }
    }

    /// The first member decides ties, the others leave them to it.
    fn lead(&mut self) {
        let first = self.first();
        for (id, member) in &mut self.members {
            member.router.set_ties(if first == Some(*id) { Ties::Lost } else { Ties::Left(false) });
        }
    }
}

/// Each member with its turn: both are of the same members.
fn with<'a>(turns: &'a mut Turns, members: &'a mut BTreeMap<MemberId, Member>) -> impl Iterator<Item = (&'a mut Member, &'a mut Turn)> {
    members.values_mut().zip(turns.values_mut())
}

impl Told {
    fn note(&mut self, event: &Event) {
        match event {
            Event::Start => self.start = true,
            Event::Stop | Event::Suspend => self.start = false,
            Event::Serving => self.not_serving = false,
            Event::NotServing => self.not_serving = true,
            Event::InterfaceUp => self.interface_up = true,
            Event::InterfaceDown => self.interface_up = false,
            Event::Tick | Event::Received(_) => {}
        }
    }

    fn events(&self) -> impl Iterator<Item = Event> {
        let told = [(self.start, Event::Start), (self.not_serving, Event::NotServing), (self.interface_up, Event::InterfaceUp)];
        told.into_iter().filter(|(told, _)| *told).map(|(_, event)| event)
    }
}

#[cfg(test)]
mod tests;
