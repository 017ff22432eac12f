// SPDX-License-Identifier: Apache-2.0
//! What a [group](crate::group) makes its members do.

use std::time::Instant;

use super::election::Backup;
use super::{Action, Hindrance, Holding, Leave, Mode, Turn, VirtualRouter};

/// What becomes of a tie: another router of the same priority, with a higher address, while this one is Active.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Ties {
    /// It is lost (RFC 9568 §6.4.3).
    Lost,
    /// The group decides; this is whether there was one since it asked.
    Left(bool),
}

impl VirtualRouter {
    /// Whether nothing keeps it in Initialize but its group.
    pub(crate) fn is_able(&self) -> bool {
        self.hindrances().all(|hindrance| hindrance == Hindrance::Group)
    }

    /// Another member cannot be Active.
    pub(crate) fn hold_back(&mut self, turn: &mut Turn) {
        if !self.hindrances.contains(&Hindrance::Group) {
            self.hinder(turn, Hindrance::Group, Leave::HandOver);
        }
    }

    /// All members can be Active.
    pub(crate) fn let_go(&mut self, turn: &Turn) {
        self.unhinder(turn, Hindrance::Group);
    }

    /// Leaves Active because another member has: other routers are told to follow, and what comes is served until they do.
    pub(crate) fn resign(&mut self, turn: &mut Turn) {
        self.send(turn, None);
        self.hold(turn, Holding::Silent);
        self.mode = Mode::Backup(Backup::new(turn.now, self.config.interval));
    }

    /// It is a member no longer: others are told to follow, and what comes is not served.
    pub(crate) fn withdraw(&mut self, now: Instant) -> Vec<Action> {
        let mut turn = self.turn(now);
        self.hinder(&mut turn, Hindrance::Stopped, Leave::Resign);
        self.conclude(&mut turn);
        turn.actions
    }

    /// Leaves Active to the router that was heard last.
    pub(crate) fn give_way(&mut self, turn: &mut Turn) {
        let interval = self.heard.map_or(self.config.interval, |heard| heard.interval);
        self.yield_to(turn, interval);
    }

    pub(crate) const fn set_ties(&mut self, ties: Ties) {
        self.ties = ties;
    }

    /// Whether there was a tie since this was asked.
    pub(crate) const fn take_tie(&mut self) -> bool {
        let tied = matches!(self.ties, Ties::Left(true));
        if tied {
            self.ties = Ties::Left(false);
        }
        tied
    }

    /// When a router was heard last that is to give way to this one, which is Active.
    pub(crate) const fn contended(&self) -> Option<Instant> {
        match &self.mode {
            Mode::Active(active) => active.contended,
            Mode::Initialize { .. } | Mode::Backup(_) => None,
        }
    }
}
