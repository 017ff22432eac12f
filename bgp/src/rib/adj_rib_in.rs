// SPDX-License-Identifier: Apache-2.0
//! What one peer has told (RFC 4271 §3.2, Adj-RIBs-In), which of it can be used, and for how long it outlives its session.
//!
//! Input: UPDATEs, the marks of a refresh, the loss and the return of sessions, and time. Output: [`Learnt`] changes for the [`Reflector`](super::Reflector).
//! Routes that cannot be used are kept for display, with the reason. Nothing here reaches a kernel.
//!
//! Invariant: what was handed out and not taken back is exactly the eligible routes that are held.
//!
//! Supported standards: RFC 4271 §6.3, §9.1.2; RFC 4456 §8 (loops); RFC 4724 §4.2, RFC 8538, RFC 9494 (stale routes); RFC 7313 (refresh with marks);
//! RFC 7606 (treat-as-withdraw); RFC 8326 §4; RFC 9234 §5.

mod import;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{Learnt, LocalAddresses, Route, Source};
use crate::identity::BgpIdentifier;
use crate::prefix::{Family, Prefix};
use crate::wire::{ErrorHandling, LongLivedFamily, Negotiated, Nlri, PathAttribute, Update, community};

pub use import::{Import, Ineligible};

/// The routes of one peer. It outlives sessions where graceful restart says so.
#[derive(Debug)]
pub struct AdjRibIn {
    import: Import,
    /// Our own identifier and cluster: a route that has passed them has come back.
    identifier: BgpIdentifier,
    cluster_id: BgpIdentifier,
    routes: BTreeMap<Nlri, Held>,
    counts: BTreeMap<Family, u32>,
    /// Destinations with a route that is not stale, of the families that have a limit.
    told: BTreeMap<Family, u32>,
    omitted: BTreeMap<Family, u64>,
    /// The families of which nothing was told in this session before this was there, or the peer was asked to tell it again.
    heard: BTreeSet<Family>,
    restarts: BTreeMap<Family, Restart>,
    /// The families of which a peer with graceful restart still owes the End-of-RIB of this session.
    unfinished: BTreeSet<Family>,
    /// The families that the peer tells anew between the marks of a refresh.
    refreshing: BTreeSet<Family>,
}

/// The session in which an UPDATE came.
#[derive(Clone, Copy, Debug)]
pub struct Session<'a> {
    /// Who told it.
    pub source: &'a Arc<Source>,
    /// What was agreed on.
    pub negotiated: &'a Negotiated,
    /// Our addresses on the connection.
    pub local: &'a LocalAddresses,
}

/// One route of the peer.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Held {
    /// What the peer says of it.
    pub route: Arc<Route>,
    /// Why it is not used.
    pub ineligible: Option<Ineligible>,
    /// The session that told it is lost, or the peer has begun to tell everything anew: it goes unless it is told again.
    pub stale: bool,
}

/// The peer of a family restarts: its routes are kept for a while (RFC 4724 §4.2).
#[derive(Clone, Copy, Debug)]
struct Restart {
    lost: Instant,
    /// Stale routes go at this instant, or become long-lived.
    until: Option<Instant>,
    long_lived: Phase,
    /// The Long-lived Stale Time that has begun is over at this instant, whatever sessions come and go before the peer has told everything.
    stale_until: Option<Instant>,
}

/// What comes after the restart time (RFC 9494 §4.2).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Phase {
    /// Nothing, or it is running.
    Last,
    /// Stale routes are kept as the last resort for so long.
    Then(Duration),
}

impl Restart {
    /// A loss at `now`: stale routes are kept for the peer's restart time, 0 where it does not list the family there, and then for its Long-lived
    /// Stale Time, or for what is left of one that has begun (RFC 9494 §4.2). `None` where the peer asks for nothing.
    fn new(family: Family, negotiated: &Negotiated, stale_until: Option<Instant>, now: Instant) -> Option<Self> {
        let restart = negotiated.graceful_restart.as_ref().filter(|_| negotiated.families.contains(&family))?;
        let restart_time = restart.families.contains_key(&family).then(|| Duration::from_secs(restart.restart_time.into()));
        let stale_time = negotiated.long_lived.get(&family).map(stale_time).filter(|time| !time.is_zero());
        if restart_time.is_none() && stale_time.is_none() && stale_until.is_none() {
            return None;
        }
        let until = now.checked_add(restart_time.unwrap_or_default());
        let stale_time = match stale_until {
            Some(end) => until.and_then(|until| end.checked_duration_since(until)).filter(|left| !left.is_zero()),
            None => stale_time,
        };
        let until = if stale_until.is_some() && stale_time.is_none() { stale_until } else { until };
        Some(Self { lost: now, until, long_lived: stale_time.map_or(Phase::Last, Phase::Then), stale_until })
    }
}

impl AdjRibIn {
    /// One that holds nothing.
    #[must_use]
    pub const fn new(import: Import, identifier: BgpIdentifier, cluster_id: BgpIdentifier) -> Self {
        Self {
            import,
            identifier,
            cluster_id,
            routes: BTreeMap::new(),
            counts: BTreeMap::new(),
            told: BTreeMap::new(),
            omitted: BTreeMap::new(),
            heard: BTreeSet::new(),
            restarts: BTreeMap::new(),
            unfinished: BTreeSet::new(),
            refreshing: BTreeSet::new(),
        }
    }

    /// What is held of one destination, or all, in the order of destinations, in values of their own.
    #[must_use]
    pub fn held(&self, only: Option<Prefix>) -> Vec<(Nlri, Held)> {
        let owned = |(nlri, held): (&Nlri, &Held)| (*nlri, held.clone());
        match only {
            Some(prefix) => self.routes.range(paths_to(prefix)).map(owned).collect(),
            None => self.routes.iter().map(owned).collect(),
        }
    }

    /// What is held, in the order of destinations.
    pub fn routes(&self) -> impl Iterator<Item = (Nlri, &Held)> {
        self.routes.iter().map(|(nlri, held)| (*nlri, held))
    }

    /// When [`expire`](Self::expire) has something to do.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        self.restarts.values().filter_map(|restart| restart.until).min()
    }

    /// The family of which the peer tells more destinations than it may, with the limit (RFC 4486 §4). Those that are not used count as well; what an
    /// earlier session told, or what the peer has yet to tell anew, does not.
    #[must_use]
    pub fn exceeded(&self) -> Option<(Family, u32)> {
        self.import.max_prefixes.iter().map(|(family, limit)| (*family, *limit)).find(|(family, limit)| self.told(*family) > *limit)
    }

    fn told(&self, family: Family) -> u32 {
        self.told.get(&family).copied().unwrap_or(0)
    }

    /// Whether the peer has told this destination and has not begun anew since.
    fn tells(&self, prefix: Prefix) -> bool {
        self.routes.range(paths_to(prefix)).any(|(_, held)| !held.stale)
    }

    /// How many routes of a family are held.
    #[must_use]
    pub fn count(&self, family: Family) -> u32 {
        self.counts.get(&family).copied().unwrap_or(0)
    }

    /// How many announcements of a family were not kept for want of room, in this session or since the last refresh with marks. A destination counts
    /// each time that it is announced.
    #[must_use]
    pub fn omitted(&self, family: Family) -> u64 {
        self.omitted.get(&family).copied().unwrap_or(0)
    }

    /// Whether all is held that the peer has told of a family in this session, so that a limit which is new can be held against it.
    #[must_use]
    pub fn is_whole(&self, family: Family) -> bool {
        self.heard.contains(&family) && self.omitted(family) == 0
    }

    /// The peer is asked to tell all of a family again.
    pub fn refresh_requested(&mut self, family: Family) {
        self.heard.insert(family);
    }

    /// Other limits. Routes are judged by them when they are told again.
    pub fn set_import(&mut self, import: Import) {
        self.import = import;
        self.told.clear();
        let mut last = None;
        for (Nlri { prefix, .. }, _) in self.routes.iter().filter(|(_, held)| !held.stale) {
            let family = prefix.family();
            if last.replace(*prefix) != Some(*prefix) && self.import.max_prefixes.contains_key(&family) {
                *self.told.entry(family).or_default() += 1;
            }
        }
    }

    /// Takes an UPDATE of an Established session.
    pub fn update(&mut self, update: &Update, session: &Session<'_>) -> Vec<Learnt> {
        let mut learnt = Vec::new();
        for nlri in &update.withdrawn {
            self.withdraw(*nlri, &mut learnt);
        }
        for attribute in &update.attributes {
            if let PathAttribute::MpUnreach(unreach) = attribute {
                unreach.withdrawn.iter().for_each(|nlri| self.withdraw(*nlri, &mut learnt));
            }
        }
        let as_withdraw = update.handling() == Some(ErrorHandling::TreatAsWithdraw);
        for (next_hop, announced) in import::announced(update) {
            let route = match next_hop {
                Some(next_hop) if !as_withdraw && !announced.is_empty() => import::route(update, next_hop, session),
                _ => {
                    announced.iter().for_each(|nlri| self.withdraw(*nlri, &mut learnt));
                    continue;
                }
            };
            let ineligible = self.import.judge(&route, session, self.identifier, self.cluster_id);
            let route = Arc::new(route);
            for nlri in announced {
                self.announce(*nlri, Held { route: Arc::clone(&route), ineligible, stale: false }, &mut learnt);
            }
        }
        if let Some(family) = update.is_end_of_rib() {
            self.unfinished.remove(&family);
            learnt.extend(self.end_of_rib(family));
        }
        learnt
    }

    /// The peer begins to tell everything of a family anew (RFC 7313 §4). One with graceful restart must not before its End-of-RIB, and is not heard.
    pub fn refresh_begins(&mut self, family: Family) {
        if !self.unfinished.contains(&family) {
            self.omitted.remove(&family);
            self.refreshing.insert(family);
            self.make_stale(family);
        }
    }

    /// It has told everything; nothing of it where it had not begun.
    pub fn refresh_ends(&mut self, family: Family) -> Vec<Learnt> {
        if self.refreshing.remove(&family) { self.drop_stale(family) } else { Vec::new() }
    }

    /// The session is lost. Of the families that the peer keeps on forwarding for, routes stay, as stale ones, for its restart time, and where both
    /// sides agreed on that, longer (RFC 4724 §4.2, RFC 9494 §4.2); all others go. What was stale already has had its chance, but for what is kept
    /// for a Long-lived Stale Time that is not over.
    pub fn session_lost(&mut self, kept: Option<&Negotiated>, now: Instant) -> Vec<Learnt> {
        self.refreshing.clear();
        let mut learnt = Vec::new();
        for family in Family::ALL {
            let stale_until = self.restarts.get(&family).and_then(|restart| restart.stale_until).filter(|end| *end > now);
            if stale_until.is_none() {
                learnt.extend(self.end_of_rib(family));
            }
            if let Some(restart) = kept.and_then(|negotiated| Restart::new(family, negotiated, stale_until, now)) {
                self.make_stale(family);
                self.restarts.insert(family, restart);
            } else {
                self.restarts.remove(&family);
                learnt.extend(self.drop_all(family));
            }
        }
        learnt.extend(self.expire(now));
        learnt
    }

    /// A new session is Established. Stale routes of families for which the peer has not kept its forwarding state go (RFC 4724 §4.2); the others wait
    /// for End-of-RIB, from the loss on no longer than [`Import::stale_time`] or the times that run already.
    pub fn session_returned(&mut self, negotiated: &Negotiated) -> Vec<Learnt> {
        self.heard = Family::ALL.into();
        self.unfinished = negotiated.graceful_restart.iter().flat_map(|_| negotiated.families.iter().copied()).collect();
        let mut learnt = Vec::new();
        for family in self.restarts.keys().copied().collect::<Vec<_>>() {
            let restart = negotiated.graceful_restart.as_ref().and_then(|restart| restart.families.get(&family));
            let long_lived = negotiated.long_lived.get(&family);
            let forwarding = restart == Some(&true) || long_lived.is_some_and(|family| family.forwarding);
            if !(forwarding && negotiated.families.contains(&family)) {
                learnt.extend(self.end_of_rib(family));
            } else if let Some(restart) = self.restarts.get_mut(&family) {
                let bound = restart.until.max(restart.lost.checked_add(self.import.stale_time));
                restart.until = restart.stale_until.or(bound);
                restart.long_lived = Phase::Last;
            }
        }
        learnt
    }

    /// Takes away what has been stale for too long.
    pub fn expire(&mut self, now: Instant) -> Vec<Learnt> {
        let due = |restart: &Restart| restart.until.is_some_and(|until| until <= now);
        let mut learnt = Vec::new();
        while let Some((family, restart)) =
            self.restarts.iter().find(|(_, restart)| due(restart)).map(|(family, restart)| (*family, *restart))
        {
            match restart.long_lived {
                Phase::Last => learnt.extend(self.end_of_rib(family)),
                Phase::Then(time) => {
                    learnt.extend(self.begin_long_lived(family));
                    let until = restart.until.and_then(|until| until.checked_add(time));
                    self.restarts.insert(family, Restart { until, long_lived: Phase::Last, stale_until: until, ..restart });
                }
            }
        }
        learnt
    }

    /// Nothing is left of it.
    pub fn clear(&mut self) -> Vec<Learnt> {
        self.restarts.clear();
        Family::ALL.into_iter().flat_map(|family| self.drop_all(family)).collect()
    }

    /// The first set of a session is complete: what is still stale is gone.
    fn end_of_rib(&mut self, family: Family) -> Vec<Learnt> {
        match self.restarts.remove(&family) {
            Some(_) => self.drop_stale(family),
            None => Vec::new(),
        }
    }

    /// Stale routes become the last resort, but for those that are not to be kept so long (RFC 9494 §4.2).
    fn begin_long_lived(&mut self, family: Family) -> Vec<Learnt> {
        let mut learnt = self.drop_if(family, |held| held.stale && held.route.communities.contains(&community::NO_LLGR));
        // Routes of one UPDATE stay one route.
        let mut tagged: BTreeMap<*const Route, Arc<Route>> = BTreeMap::new();
        for (nlri, held) in self.routes.iter_mut().filter(|(nlri, held)| nlri.prefix.family() == family && held.stale) {
            let route = tagged.entry(Arc::as_ptr(&held.route)).or_insert_with(|| {
                let mut route = Route::clone(&held.route);
                route.communities.insert(community::LLGR_STALE);
                Arc::new(route)
            });
            held.route = Arc::clone(route);
            if held.ineligible.is_none() {
                learnt.push((*nlri, Some(Arc::clone(route))));
            }
        }
        learnt
    }

    fn announce(&mut self, nlri: Nlri, held: Held, learnt: &mut Vec<Learnt>) {
        // What a limit still allows is held, so that the limit can be found exceeded.
        let family = nlri.prefix.family();
        let limit = self.import.max_prefixes.get(&family).copied().filter(|_| !self.tells(nlri.prefix));
        let allowed = limit.is_some_and(|limit| self.told(family) <= limit);
        let full = !allowed && self.import.held_at_most.is_some_and(|most| self.routes.len() >= most);
        if full && !self.routes.contains_key(&nlri) {
            *self.omitted.entry(family).or_default() += 1;
            return;
        }
        let route = held.ineligible.is_none().then(|| Arc::clone(&held.route));
        if limit.is_some() {
            *self.told.entry(family).or_default() += 1;
        }
        let before = self.routes.insert(nlri, held);
        if before.is_none() {
            *self.counts.entry(family).or_default() += 1;
        }
        let before = before.filter(|before| before.ineligible.is_none());
        if before.as_ref().map(|before| &before.route) != route.as_ref() {
            learnt.push((nlri, route));
        }
    }

    fn withdraw(&mut self, nlri: Nlri, learnt: &mut Vec<Learnt>) {
        let Some(held) = self.routes.remove(&nlri) else { return };
        self.dropped(nlri.prefix.family(), 1);
        if self.import.max_prefixes.contains_key(&nlri.prefix.family()) && !held.stale && !self.tells(nlri.prefix) {
            subtract(&mut self.told, nlri.prefix.family(), 1);
        }
        if held.ineligible.is_none() {
            learnt.push((nlri, None));
        }
    }

    fn make_stale(&mut self, family: Family) {
        self.told.remove(&family);
        self.routes.iter_mut().filter(|(nlri, _)| nlri.prefix.family() == family).for_each(|(_, held)| held.stale = true);
    }

    fn drop_stale(&mut self, family: Family) -> Vec<Learnt> {
        self.drop_if(family, |held| held.stale)
    }

    fn drop_all(&mut self, family: Family) -> Vec<Learnt> {
        self.omitted.remove(&family);
        self.told.remove(&family);
        self.drop_if(family, |_| true)
    }

    fn drop_if(&mut self, family: Family, gone: impl Fn(&Held) -> bool) -> Vec<Learnt> {
        let dropped: Vec<_> = self.routes.extract_if(.., |nlri, held| nlri.prefix.family() == family && gone(held)).collect();
        self.dropped(family, u32::try_from(dropped.len()).unwrap_or(u32::MAX));
        dropped.into_iter().filter(|(_, held)| held.ineligible.is_none()).map(|(nlri, _)| (nlri, None)).collect()
    }

    fn dropped(&mut self, family: Family, count: u32) {
        subtract(&mut self.counts, family, count);
    }

    /// Whether no End-of-RIB of the session is to come from a peer that sends one (RFC 4724 §4.1).
    pub fn is_finished(&self) -> bool {
        self.unfinished.is_empty()
    }

    /// The families whose routes outlive their session now.
    #[must_use]
    pub fn restarting(&self) -> BTreeSet<Family> {
        self.restarts.keys().copied().collect()
    }
}

/// All paths to a destination, by any identifier.
const fn paths_to(prefix: Prefix) -> RangeInclusive<Nlri> {
    Nlri { prefix, path_id: 0 }..=Nlri { prefix, path_id: u32::MAX }
}

fn subtract(counts: &mut BTreeMap<Family, u32>, family: Family, count: u32) {
    if let Some(counted) = counts.get_mut(&family) {
        *counted = counted.saturating_sub(count);
    }
}

fn stale_time(family: &LongLivedFamily) -> Duration {
    Duration::from_secs(family.stale_time.into())
}

#[cfg(test)]
mod tests;
