// SPDX-License-Identifier: Apache-2.0
//! One path of one session: what the peer holds of it, as far as UPDATEs were written, and what it is to hold.
//!
//! Input: what is wanted, and what was written. Output: whether something is pending. Most entries of most tables are told and wanted with the same route,
//! which costs one reference to it.

use std::mem;
use std::sync::Arc;

use crate::rib::Route;

/// What the peer holds, and is to hold. `again`: to be announced once more, though nothing changed.
#[derive(Debug, Default)]
pub(super) enum Entry {
    /// It neither holds it nor is to. No table keeps such entries.
    #[default]
    Nothing,
    /// It is to hold this, and holds nothing.
    New(Arc<Route>),
    /// It holds this, or what is told with the same octets, and is to.
    Told { route: Arc<Route>, again: bool },
    /// It holds one, and is to hold another.
    Changed { routes: Box<Routes>, again: bool },
    /// It holds this, and is to hold nothing.
    Leaving { route: Arc<Route>, again: bool },
}

/// Two routes that differ.
#[derive(Debug)]
pub(super) struct Routes {
    told: Arc<Route>,
    wanted: Arc<Route>,
}

/// What the peer has of a path.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Standing {
    Other,
    /// It holds it, and is to hold it.
    Advertised,
    /// It holds one that another peer told, and is to hold it or one in its place.
    Reflected,
    /// It holds a route that starts here, and is to hold it no longer.
    Leaving,
}

impl Entry {
    /// What the peer holds.
    pub(super) fn told(&self) -> Option<&Arc<Route>> {
        match self {
            Self::Told { route, .. } | Self::Leaving { route, .. } => Some(route),
            Self::Changed { routes, .. } => Some(&routes.told),
            Self::Nothing | Self::New(_) => None,
        }
    }

    /// What it is to hold.
    pub(super) fn wanted(&self) -> Option<&Arc<Route>> {
        match self {
            Self::New(route) | Self::Told { route, .. } => Some(route),
            Self::Changed { routes, .. } => Some(&routes.wanted),
            Self::Nothing | Self::Leaving { .. } => None,
        }
    }

    pub(super) const fn is_again(&self) -> bool {
        match self {
            Self::Told { again, .. } | Self::Changed { again, .. } | Self::Leaving { again, .. } => *again,
            Self::Nothing | Self::New(_) => false,
        }
    }

    pub(super) const fn is_nothing(&self) -> bool {
        matches!(self, Self::Nothing)
    }

    pub(super) const fn is_to_be_withdrawn(&self) -> bool {
        matches!(self, Self::Leaving { .. })
    }

    pub(super) const fn is_to_be_announced(&self) -> bool {
        matches!(self, Self::New(_) | Self::Changed { .. } | Self::Told { again: true, .. })
    }

    pub(super) const fn is_pending(&self) -> bool {
        self.is_to_be_withdrawn() || self.is_to_be_announced()
    }

    /// Whether the peer holds a route that starts here.
    pub(super) fn is_ours_told(&self) -> bool {
        self.told().is_some_and(|route| route.learned.is_none())
    }

    /// Whether the peer holds a route that starts here, and is to hold it no longer.
    pub(super) fn is_leaving(&self) -> bool {
        self.standing() == Standing::Leaving
    }

    pub(super) fn standing(&self) -> Standing {
        let (told, leaves) = match self {
            Self::Nothing | Self::New(_) => return Standing::Other,
            Self::Told { route, .. } => (route, false),
            Self::Changed { routes, .. } => (&routes.told, routes.wanted.learned.is_some()),
            Self::Leaving { route, .. } => (route, true),
        };
        match (told.learned.is_some(), leaves, self.is_to_be_withdrawn()) {
            (false, true, _) => Standing::Leaving,
            (false, false, _) => Standing::Advertised,
            (true, _, false) => Standing::Reflected,
            (true, _, true) => Standing::Other,
        }
    }

    /// From now on the peer is to hold this.
    pub(super) fn want(&mut self, wanted: Option<&Arc<Route>>) {
        *self = match (mem::take(self), wanted) {
            (Self::Nothing | Self::New(_), None) => Self::Nothing,
            (Self::Nothing | Self::New(_), Some(wanted)) => Self::New(Arc::clone(wanted)),
            (Self::Told { route, again } | Self::Leaving { route, again }, None) => Self::Leaving { route, again },
            (Self::Changed { routes, again }, None) => Self::Leaving { route: routes.told, again },
            (Self::Told { route, again } | Self::Leaving { route, again }, Some(wanted)) if route == *wanted => Self::Told { route, again },
            (Self::Changed { routes, again }, Some(wanted)) if routes.told == *wanted => Self::Told { route: routes.told, again },
            (Self::Told { route: told, again } | Self::Leaving { route: told, again }, Some(wanted)) => {
                Self::Changed { routes: Box::new(Routes { told, wanted: Arc::clone(wanted) }), again }
            }
            (Self::Changed { mut routes, again }, Some(wanted)) => {
                routes.wanted = Arc::clone(wanted);
                Self::Changed { routes, again }
            }
        }
    }

    /// What the peer holds, if anything, is told again even if nothing changes.
    pub(super) const fn tell_again(&mut self) {
        if let Self::Told { again, .. } | Self::Changed { again, .. } | Self::Leaving { again, .. } = self {
            *again = true;
        }
    }

    /// What is wanted, if anything, is written, or told already with the same octets.
    pub(super) fn is_written(&mut self) {
        *self = match mem::take(self) {
            Self::New(route) | Self::Told { route, .. } => Self::Told { route, again: false },
            Self::Changed { routes, .. } => Self::Told { route: routes.wanted, again: false },
            entry => entry,
        }
    }
}

/// Where there are many routes, most of the memory of a session is entries.
const _: () = assert!(size_of::<Entry>() <= 16);
