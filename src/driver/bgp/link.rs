// SPDX-License-Identifier: Apache-2.0
//! The connections of one neighbour: at most one that we dial, and one that the neighbour dials.
//!
//! Input: dials, accepted connections, and what the core says of them. Output: what happens on either, with its role.

use std::future::{Future, pending};
use std::pin::Pin;
use std::time::Instant;

use bgp::peer::Role;

use super::connection::{Connection, Happening};
use super::dial::{DialError, Dialled};

/// A connection on its way.
pub(super) type Opening = Pin<Box<dyn Future<Output = Result<Dialled, DialError>> + Send>>;

/// One of the two.
#[derive(Default)]
pub(super) enum Link {
    #[default]
    Down,
    /// It is dialled; or was accepted, and its addresses are looked up.
    Opening(Opening),
    Up(Connection),
}

/// What happened on a link.
pub(super) enum News {
    Opened(Box<Result<Dialled, DialError>>),
    Happened(Happening),
}

/// Both.
#[derive(Default)]
pub(super) struct Links {
    active: Link,
    passive: Link,
}

impl Links {
    pub(super) const fn get_mut(&mut self, role: Role) -> &mut Link {
        match role {
            Role::Active => &mut self.active,
            Role::Passive => &mut self.passive,
        }
    }

    /// Puts this link in the place of another one, which ends.
    pub(super) fn set(&mut self, role: Role, link: Link) -> Link {
        std::mem::replace(self.get_mut(role), link)
    }

    /// Those that can be written to, with their roles.
    pub(super) fn up(&mut self) -> impl Iterator<Item = (Role, &mut Connection)> {
        [(Role::Active, &mut self.active), (Role::Passive, &mut self.passive)].into_iter().filter_map(|(role, link)| match link {
            Link::Up(connection) => Some((role, connection)),
            Link::Down | Link::Opening(_) => None,
        })
    }

    pub(super) const fn are_down(&self) -> bool {
        matches!((&self.active, &self.passive), (Link::Down, Link::Down))
    }

    /// Whether one is on its way.
    pub(super) const fn are_opening(&self) -> bool {
        matches!((&self.active, &self.passive), (Link::Opening(_), _) | (_, Link::Opening(_)))
    }

    /// When the kernel is asked next how much is acknowledged.
    pub(super) fn poll_at(&mut self) -> Option<Instant> {
        self.up().filter_map(|(_, connection)| connection.poll_at()).min()
    }

    /// What happens next. Cancelling the wait loses nothing.
    pub(super) async fn next(&mut self) -> (Role, News) {
        tokio::select! {
            news = self.active.next() => (Role::Active, news),
            news = self.passive.next() => (Role::Passive, news),
        }
    }
}

impl Link {
    async fn next(&mut self) -> News {
        match self {
            Self::Down => pending().await,
            Self::Opening(opening) => News::Opened(Box::new(opening.await)),
            Self::Up(connection) => News::Happened(connection.next().await),
        }
    }
}
