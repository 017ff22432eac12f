// SPDX-License-Identifier: Apache-2.0
//! What the speaker reports: immutable snapshots, and the board on which its tasks post them.
//!
//! Input: whole statuses of single neighbours. Output: one [`SpeakerStatus`], whose waiters wake when more than a counter changed.
//!
//! Invariant: a prefix that left the advertised set is in [`SpeakerStatus::withdrawing`] without a gap from that very moment until no peer may hold it
//! any more; a reader never sees it in neither.

mod peer;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bgp::{BgpIdentifier, Prefix};
use tokio::sync::watch;

use super::Routes;
use crate::desired::{DesiredBgp, RouteSet};

pub use peer::{Failures, LastError, Moment, Notified, Opens, PeerStatus};

/// The speaker at one moment.
#[derive(Clone, Debug, Default)]
pub struct SpeakerStatus {
    /// The set that is advertised; `None` before the first.
    pub advertised: Option<Arc<RouteSet>>,
    /// The configuration in force; `None` before the first, and after the speaker was stopped.
    pub configured: Option<Arc<DesiredBgp>>,
    /// Our BGP Identifier; `None` before the first configuration, and while none can be taken from the node's addresses.
    pub router_id: Option<BgpIdentifier>,
    /// Why the configuration that was given is not in force yet.
    pub problem: Option<String>,
    /// Why nothing is listened to though the configuration asks for it.
    pub listen_error: Option<String>,
    /// That there are as many dynamic neighbours as may be, and who was refused last; `None` while there is room for one more.
    pub dynamic_full: Option<String>,
    /// Connections that were refused for that reason, since the speaker began.
    pub dynamic_refused: u64,
    /// The neighbours by name, with those that are about to close.
    pub peers: BTreeMap<String, Arc<PeerStatus>>,
    /// Prefixes that came into the set or left it, of which some neighbour's task has not heard yet.
    moved: Arc<BTreeMap<Prefix, Moved>>,
    /// What an earlier process has announced, until the neighbours' tasks know of it, and those that have no task yet may not hold it any more.
    inherited: Arc<BTreeSet<Prefix>>,
    /// Counts the sets given.
    generation: u64,
}

impl SpeakerStatus {
    /// Prefixes that are withdrawn while some peer has not acknowledged the UPDATE: it may still hold them.
    #[must_use]
    pub fn withdrawing(&self) -> BTreeSet<Prefix> {
        let of_peers = self.peers.values().flat_map(|peer| peer.withdrawing.iter());
        let wanted = |prefix: &Prefix| self.advertised.as_ref().is_some_and(|set| set.contains(prefix));
        let inherited = self.inherited.iter().filter(|prefix| !wanted(prefix));
        let leaving = self.moved.keys().filter(|prefix| !wanted(prefix));
        leaving.chain(of_peers).chain(inherited).copied().collect()
    }

    /// The prefixes that this peer is told: all of the set, less what its task has not heard of yet, and what is withheld from it.
    pub fn told(&self, peer: &PeerStatus) -> impl Iterator<Item = Prefix> {
        let heard = |prefix: &Prefix| self.moved.get(prefix).is_none_or(|moved| moved.came <= peer.generation);
        let prefixes = self.advertised.iter().filter(|_| peer.generation > 0).flat_map(|set| set.prefixes());
        prefixes.filter(move |prefix| heard(prefix) && !peer.withheld.contains_key(prefix))
    }

    /// Whether the task of this peer has the set that is advertised, whole.
    #[must_use]
    pub const fn is_current(&self, peer: &PeerStatus) -> bool {
        peer.generation == self.generation
    }

    /// Sessions that still have a socket, even if only to deliver their last message.
    #[must_use]
    pub fn open_sessions(&self) -> usize {
        self.peers.values().map(|peer| peer.open_sockets).sum()
    }

    /// Takes over the next set, in which these prefixes have come or are gone.
    fn moved(&mut self, came: &[Prefix], left: &[Prefix]) {
        let (generation, moved) = (self.generation, Arc::make_mut(&mut self.moved));
        for prefix in came {
            let since = moved.get(prefix).map_or(generation, |moved| moved.since);
            moved.insert(*prefix, Moved { since, came: generation, left: None });
        }
        for prefix in left {
            // What is not remembered came before any set that matters.
            let Moved { since, came, .. } = moved.get(prefix).copied().unwrap_or(Moved { since: 1, came: 1, left: None });
            moved.insert(*prefix, Moved { since, came, left: Some(generation) });
        }
        self.forget();
    }

    /// Forgets of what has moved all that no neighbour's task could be behind with. A set that no task has taken, or that all have left behind, is no reason
    /// to remember anything: what is remembered grows with the tasks and with the prefixes of a set, and not with the number of sets. Whether there was any.
    fn forget(&mut self) -> bool {
        let sets: BTreeSet<u64> = self.peers.values().flat_map(|peer| [peer.generation, peer.taken]).collect();
        let oldest = sets.first().copied().unwrap_or(u64::MAX);
        let matters = |Moved { since, came, left }: &Moved| match left {
            Some(left) => sets.range(*since..*left).next().is_some(),
            None => *came > oldest,
        };
        let forgets = !self.moved.values().all(matters);
        if forgets {
            Arc::make_mut(&mut self.moved).retain(|_, moved| matters(moved));
        }
        forgets
    }
}

/// When a prefix came into the set and left it, by the numbers of sets.
#[derive(Clone, Copy, Debug)]
struct Moved {
    /// It may have been in each set from here on: in between it may have left and come again.
    since: u64,
    /// It came last in this one.
    came: u64,
    /// It is not in this one any more; `None` where it is in the current one.
    left: Option<u64>,
}

/// Where the speaker's tasks post their status.
#[derive(Clone, Debug)]
pub(super) struct Board(Arc<watch::Sender<Arc<SpeakerStatus>>>);

impl Board {
    pub(super) fn new() -> Self {
        Self(Arc::new(watch::Sender::new(Arc::default())))
    }

    pub(super) fn read(&self) -> Arc<SpeakerStatus> {
        Arc::clone(&self.0.borrow())
    }

    pub(super) fn subscribe(&self) -> watch::Receiver<Arc<SpeakerStatus>> {
        self.0.subscribe()
    }

    /// Takes the next whole set, unless it is the one in force, or it was to follow the one of the number `after` and another came first. The neighbours'
    /// tasks find it in `routes` before any reader sees the new status.
    pub(super) fn advertise(&self, set: &Arc<RouteSet>, after: Option<u64>, routes: &watch::Sender<Option<Routes>>) {
        let mut decided = false;
        while !decided {
            // Large sets are compared while others post: a session that waits for this cannot send a KEEPALIVE.
            let before = self.read().advertised.clone();
            let changed: Option<Arc<[Prefix]>> = before.as_ref().map(|old| old.differences(set).into());
            if changed.as_ref().is_some_and(|changed| changed.is_empty()) && before.as_ref().is_some_and(|old| old.covered == set.covered) {
                return;
            }
            let was = |prefix: &Prefix| before.as_ref().is_some_and(|old| old.contains(prefix));
            let differing = || changed.iter().flat_map(|changed| changed.iter()).copied();
            let left: Vec<Prefix> = differing().filter(|prefix| !set.contains(prefix)).collect();
            let came: Vec<Prefix> = differing().filter(|prefix| !was(prefix)).collect();
            let taken = self.0.send_if_modified(|status| {
                let is_late = after.is_some_and(|after| after != status.generation);
                let is_before = before.as_ref().map(Arc::as_ptr) == status.advertised.as_ref().map(Arc::as_ptr);
                decided = is_late || is_before;
                if is_late || !is_before {
                    return false;
                }
                let status = Arc::make_mut(status);
                status.advertised = Some(Arc::clone(set));
                status.generation += 1;
                status.moved(&came, &left);
                let given = Routes { generation: status.generation, set: Arc::clone(set), changed };
                routes.send_if_modified(|routes| {
                    *routes = Some(given);
                    false
                });
                true
            });
            if taken {
                // A task that is woken asks for the status at once, which must be free by then.
                routes.send_modify(|_| ());
            }
        }
    }

    /// The task of a neighbour takes the set that is in force now, if any, as `routes` gives it.
    pub(super) fn take(&self, name: &str, routes: impl FnOnce() -> Option<Routes>) -> Option<Routes> {
        let mut taken = None;
        // No set comes in between: what this one has that the next one has not is remembered from now on.
        self.0.send_if_modified(|status| {
            taken = routes();
            let status = Arc::make_mut(status);
            if let (Some(peer), Some(routes)) = (status.peers.get_mut(name), &taken) {
                Arc::make_mut(peer).taken = routes.generation;
            }
            false
        });
        taken
    }

    /// There are tasks for all neighbours of this configuration. `inherited`: some that have none may still hold what an earlier process has announced.
    pub(super) fn set_configured(&self, configured: Option<&Arc<DesiredBgp>>, router_id: Option<BgpIdentifier>, inherited: bool) {
        self.0.send_if_modified(|status| {
            let forget = !inherited && !status.inherited.is_empty();
            if status.configured.as_ref() == configured && status.router_id == router_id && !forget {
                return false;
            }
            let status = Arc::make_mut(status);
            status.configured = configured.cloned();
            status.router_id = router_id;
            if forget {
                status.inherited = Arc::default();
            }
            true
        });
    }

    pub(super) fn set_problem(&self, problem: Option<&str>) {
        self.0.send_if_modified(|status| {
            let changed = status.problem.as_deref() != problem;
            if changed {
                Arc::make_mut(status).problem = problem.map(ToOwned::to_owned);
            }
            changed
        });
    }

    /// What peers may hold before there are tasks that know.
    pub(super) fn inherit(&self, prefixes: &Arc<BTreeSet<Prefix>>) {
        self.0.send_modify(|status| Arc::make_mut(status).inherited = Arc::clone(prefixes));
    }

    /// The number of the set in force; 0 before the first.
    pub(super) fn generation(&self) -> u64 {
        self.0.borrow().generation
    }

    pub(super) fn router_id(&self) -> Option<BgpIdentifier> {
        self.0.borrow().router_id
    }

    pub(super) fn set_listen_error(&self, error: Option<&String>) {
        self.0.send_if_modified(|status| {
            let changed = status.listen_error.as_ref() != error;
            if changed {
                Arc::make_mut(status).listen_error = error.cloned();
            }
            changed
        });
    }

    /// One more dynamic neighbour was refused. Says whether that is the first since there was room.
    pub(super) fn refuse_dynamic(&self, reason: String) -> bool {
        let mut first = false;
        self.0.send_if_modified(|status| {
            let status = Arc::make_mut(status);
            status.dynamic_refused = status.dynamic_refused.saturating_add(1);
            first = status.dynamic_full.replace(reason).is_none();
            first
        });
        first
    }

    /// There is room for another dynamic neighbour.
    pub(super) fn admit_dynamic(&self) {
        self.0.send_if_modified(|status| {
            let full = status.dynamic_full.is_some();
            if full {
                Arc::make_mut(status).dynamic_full = None;
            }
            full
        });
    }

    /// Posts the status of one neighbour.
    pub(super) fn post(&self, name: &str, peer: PeerStatus) {
        self.0.send_if_modified(|status| {
            let status = Arc::make_mut(status);
            let old = status.peers.insert(name.to_owned(), Arc::new(peer.clone()));
            let goes_on = old.as_ref().is_none_or(|old| (old.taken, old.generation) != (peer.taken, peer.generation));
            goes_on && status.forget() || old.is_none_or(|old| peer.is_news(&old))
        });
    }

    /// A neighbour whose task has ended.
    pub(super) fn remove(&self, name: &str) {
        self.0.send_if_modified(|status| {
            let status = Arc::make_mut(status);
            let known = status.peers.remove(name).is_some();
            status.forget() || known
        });
    }
}

#[cfg(test)]
mod tests;
