// SPDX-License-Identifier: Apache-2.0
//! The routes of this speaker in one place: the one owner of the [`Reflector`].
//!
//! Input: the set that starts here, and, on a speaker that reflects (RFC 4456), what each neighbour's task has learned. Output: for each [`Member`] what
//! it has not heard of yet, as events of the core. Nothing is queued: what several neighbours tell at the same time a member hears as one change, and one that
//! is far behind is given the whole instead of the steps to it. The members share the routes; a change costs each of them in proportion to itself.
//!
//! Invariants: what a member has learned is gone with the member; before the first set that starts here a member is told nothing.

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bgp::peer::{Event, PeerId};
use bgp::rib::{Changes, Learnt, LocRib, Reflector};
use tokio::sync::watch;
use tokio::task::yield_now;

use super::Routes;
use super::gate::MANY;
use crate::desired::RouteSet;

/// So many changed destinations are remembered for members that are behind.
const REMEMBERED: usize = 16_384;

/// A member lets all others go first so often before it is told something: once for them, and once in place of what it has heard itself meanwhile.
const YIELDS: u8 = 2;

/// What all members share.
#[derive(Clone, Debug, Default)]
pub(super) struct Rib(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    table: Mutex<Table>,
    /// Wakes the members.
    version: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct Table {
    reflector: Reflector,
    /// The set that starts here, and its number; 0 before the first.
    set: Arc<RouteSet>,
    generation: u64,
    /// Counts the changes.
    version: u64,
    /// The last of them, the newest last.
    recent: VecDeque<Arc<Changes>>,
    /// Destinations in all of those.
    remembered: usize,
    /// Destinations in all changes there ever were.
    total: usize,
    /// All that has changed since a version: members that are equally far behind share it.
    summary: Option<(u64, Parts)>,
    /// Who is waited for after a restart.
    awaited: Awaited,
}

/// Neighbours that knew an earlier process, and have yet to tell everything again (RFC 4724 §4.1).
#[derive(Debug, Default)]
struct Awaited {
    peers: BTreeSet<PeerId>,
    /// There may be others that nobody can name.
    unnamed: bool,
}

impl Awaited {
    fn is_over(&self) -> bool {
        self.peers.is_empty() && !self.unnamed
    }
}

/// One neighbour's share in it.
#[derive(Debug)]
pub(super) struct Member {
    rib: Rib,
    peer: PeerId,
    /// What the neighbour was told last; nothing so far where `None`.
    heard: Option<Heard>,
    /// The rest of a large change, of which it is told a part at a time.
    rest: Option<Rest>,
    /// Whether it was told that nobody is waited for.
    selected: bool,
    /// How often it has let the others go first since it was told last.
    yielded: u8,
    version: watch::Receiver<u64>,
}

/// How far a member has heard.
#[derive(Debug)]
struct Heard {
    version: u64,
    total: usize,
    rib: Arc<LocRib>,
}

/// A change in parts of about [`MANY`] destinations, in order.
type Parts = Arc<[Arc<Changes>]>;

/// What is left of a change.
#[derive(Debug)]
struct Rest {
    parts: Parts,
    /// So many of them are told.
    told: usize,
    rib: Arc<LocRib>,
}

impl Rib {
    /// A neighbour; no two of them have the same number.
    pub(super) fn join(&self, peer: PeerId) -> Member {
        Member { rib: self.clone(), peer, heard: None, rest: None, selected: false, yielded: 0, version: self.0.version.subscribe() }
    }

    /// Besides those that join and are [awaited](Member::is_awaited), neighbours may come back that are not known yet.
    pub(super) fn await_unnamed(&self) {
        self.table().awaited.unnamed = true;
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut Table) -> Changes) {
        let mut table = self.table();
        let changes = change(&mut table);
        if !changes.is_empty() {
            table.remember(changes);
            self.0.version.send_replace(table.version);
        }
    }
}

impl Table {
    fn remember(&mut self, changes: Changes) {
        self.version += 1;
        self.summary = None;
        self.total = self.total.wrapping_add(changes.len());
        self.remembered += changes.len();
        self.recent.push_back(Arc::new(changes));
        while self.remembered > REMEMBERED
            && let Some(oldest) = self.recent.pop_front()
        {
            self.remembered -= oldest.len();
        }
    }

    /// What has changed from that version to this one, unless some of it is forgotten.
    fn since(&mut self, version: u64) -> Option<Parts> {
        if let Some((_, summary)) = self.summary.as_ref().filter(|(since, _)| *since == version) {
            return Some(Arc::clone(summary));
        }
        let steps = usize::try_from(self.version.saturating_sub(version)).ok()?;
        let first = self.recent.len().checked_sub(steps)?;
        let summary = match self.recent.back() {
            Some(last) if steps == 1 => Arc::clone(last),
            // Of several changes of one destination the last one stays.
            _ => Arc::new(
                self.recent.range(first..).flat_map(|changes| changes.iter()).map(|(to, paths)| (*to, Arc::clone(paths))).collect(),
            ),
        };
        Some(self.summarise(version, summary))
    }

    /// The same where some of it is forgotten.
    fn compare(&mut self, heard: &Heard) -> Parts {
        let changes = heard.rib.changes_to(&self.reflector.loc_rib());
        self.summarise(heard.version, Arc::new(changes))
    }

    fn summarise(&mut self, since: u64, changes: Arc<Changes>) -> Parts {
        let parts = parts_of(changes);
        self.summary = Some((since, Arc::clone(&parts)));
        parts
    }

    fn originate(&mut self, routes: &Routes) -> Changes {
        if self.generation >= routes.generation {
            return Changes::new();
        }
        let follows = self.generation + 1 == routes.generation;
        let changed = match routes.changed.as_ref().filter(|_| follows) {
            Some(changed) => Arc::clone(changed),
            None => self.set.differences(&routes.set).into(),
        };
        self.generation = routes.generation;
        self.set = Arc::clone(&routes.set);
        self.reflector.originate(changed.iter().map(|prefix| (*prefix, routes.set.routes.get(prefix).cloned())))
    }
}

/// The same change in parts that are about equal: none is longer than one and a half of [`MANY`].
fn parts_of(changes: Arc<Changes>) -> Parts {
    let number = ((changes.len() + MANY / 2) / MANY).max(1);
    if number == 1 {
        return Arc::new([changes]);
    }
    let each = changes.len().div_ceil(number);
    let mut left = changes.iter().map(|(prefix, paths)| (*prefix, Arc::clone(paths))).peekable();
    std::iter::from_fn(|| left.peek().is_some().then(|| Arc::new(left.by_ref().take(each).collect()))).collect()
}

impl Member {
    /// The set that starts here, if it is newer than what is known.
    pub(super) fn originate(&self, routes: &Routes) {
        self.rib.change(|table| table.originate(routes));
    }

    /// What the neighbour has told.
    pub(super) fn learn(&self, learnt: &[Learnt]) {
        self.rib.change(|table| table.reflector.learn(self.peer, learnt));
    }

    /// The neighbour knew an earlier process: the others wait for what it tells again.
    pub(super) fn is_awaited(&self) {
        self.rib.table().awaited.peers.insert(self.peer);
    }

    /// The neighbour has told everything again, or never will.
    pub(super) fn has_told_everything(&self) {
        let mut table = self.rib.table();
        if table.awaited.peers.remove(&self.peer) && table.awaited.is_over() {
            self.rib.0.version.send_replace(table.version);
        }
    }

    /// How many destinations there are to hear of besides what it is [amid](Self::is_amid), those counted twice that have changed twice.
    pub(super) fn behind(&self) -> usize {
        let table = self.rib.table();
        self.heard.as_ref().map_or_else(|| table.reflector.loc_rib().len(), |heard| table.total.wrapping_sub(heard.total))
    }

    /// Whether a change has begun of which more is to be heard.
    pub(super) const fn is_amid(&self) -> bool {
        self.rest.is_some()
    }

    /// What the neighbour is to be told: at first everything, then what has changed, so much of it that the others need not wait long, and once that
    /// nobody is waited for. `stuck`: its peer takes nothing; then of many changes it is given the whole, which costs more time and less memory.
    pub(super) fn catch_up(&mut self, stuck: bool) -> Vec<Event> {
        self.version.mark_unchanged();
        self.yielded = 0;
        if let Some(rest) = self.rest.take() {
            return vec![self.part_of(rest)];
        }
        let rib = self.rib.clone();
        let mut table = rib.table();
        if table.generation == 0 {
            return Vec::new();
        }
        let mut events = Vec::new();
        if self.heard.as_ref().is_none_or(|heard| heard.version != table.version) {
            events.push(self.news(&mut table, stuck));
        }
        if !self.selected && self.rest.is_none() && table.awaited.is_over() {
            self.selected = true;
            events.push(Event::Selected);
        }
        events
    }

    /// All that the neighbour is to be told from now on, in place of what it has yet to hear; `None` where there is nothing of that.
    pub(super) fn whole(&mut self) -> Option<Arc<LocRib>> {
        let rib = self.rib.clone();
        let table = rib.table();
        let is_behind = self.rest.is_some() || self.heard.as_ref().is_none_or(|heard| heard.version != table.version);
        if table.generation == 0 || !is_behind {
            return None;
        }
        self.rest = None;
        let all = table.reflector.loc_rib();
        self.heard = Some(Heard { version: table.version, total: table.total, rib: Arc::clone(&all) });
        Some(all)
    }

    fn news(&mut self, table: &mut Table, stuck: bool) -> Event {
        let rib = table.reflector.loc_rib();
        let all = Heard { version: table.version, total: table.total, rib: Arc::clone(&rib) };
        let Some(heard) = self.heard.replace(all) else { return Event::Routes(rib) };
        if stuck && table.total.wrapping_sub(heard.total) > MANY {
            return Event::Routes(rib);
        }
        let parts = table.since(heard.version).unwrap_or_else(|| table.compare(&heard));
        self.part_of(Rest { parts, told: 0, rib })
    }

    /// The next part of it; the rest is kept.
    fn part_of(&mut self, Rest { parts, told, rib }: Rest) -> Event {
        let changes = parts.get(told).map(Arc::clone).unwrap_or_default();
        let told = told + 1;
        self.rest = (told < parts.len()).then(|| Rest { parts, told, rib: Arc::clone(&rib) });
        Event::Changes { changes, rib }
    }

    /// Waits for a change, and then for all neighbours to be heard that have something to say at the same time, this one too: it is told together.
    /// Cancelling the wait loses nothing.
    pub(super) async fn changed(&mut self) {
        if self.rest.is_some() {
            return;
        }
        // The sender lives as long as the member.
        self.version.changed().await.ok();
        self.version.mark_changed();
        while self.yielded < YIELDS {
            self.yielded += 1;
            yield_now().await;
        }
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.has_told_everything();
        self.rib.change(|table| table.reflector.forget(self.peer));
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use bgp::Prefix;
    use bgp::rib::Route;
    use bgp::wire::Nlri;
    use futures_util::FutureExt as _;

    use super::*;
    use crate::desired::RouteSet;

    fn prefix(number: u32) -> Prefix {
        Prefix::host(IpAddr::from((0x0A00_0000 + number).to_be_bytes()))
    }

    fn routes(generation: u64, numbers: impl IntoIterator<Item = u32>) -> Routes {
        let set: RouteSet = numbers.into_iter().map(prefix).collect();
        Routes { generation, set: Arc::new(set), changed: None }
    }

    fn learnt(numbers: impl IntoIterator<Item = u32>) -> Vec<Learnt> {
        let route = Arc::new(Route { med: Some(1), ..Route::originated() });
        numbers.into_iter().map(|number| (Nlri::from(prefix(number)), Some(Arc::clone(&route)))).collect()
    }

    /// The table of a neighbour that is told these events, and whether it got all of it anew.
    fn heard(table: &mut LocRib, events: Vec<Event>) -> bool {
        let mut whole = false;
        for event in events {
            match event {
                Event::Routes(rib) => {
                    whole = true;
                    *table = LocRib::clone(&rib);
                }
                Event::Changes { changes, rib } => {
                    table.apply(&changes);
                    assert_eq!(*table, *rib);
                }
                Event::Selected => {}
                other => panic!("{other:?}"),
            }
        }
        whole
    }

    #[test]
    fn members_hear_of_each_other_once_and_of_the_set_that_starts_here() {
        let rib = Rib::default();
        let (mut a, b) = (rib.join(PeerId(1)), rib.join(PeerId(2)));
        b.learn(&learnt([1]));
        assert_eq!(a.catch_up(false), [], "there is no set that starts here yet");
        let mut table = LocRib::default();
        a.originate(&routes(1, [1, 2]));
        assert!(heard(&mut table, a.catch_up(false)));
        assert_eq!(table.destinations().map(|(_, paths)| paths.len()).collect::<Vec<_>>(), [2, 1]);
        assert_eq!(a.catch_up(false), []);
        b.originate(&routes(1, [1, 2]));
        assert_eq!(a.catch_up(false), [], "the set is known already");
        b.originate(&routes(2, [2]));
        b.learn(&learnt([3]));
        assert!(!heard(&mut table, a.catch_up(false)));
        assert_eq!(table, *rib.table().reflector.loc_rib());
        assert_eq!(table.len(), 3);
        let removed = Routes { changed: Some([prefix(2)].into()), ..routes(3, []) };
        b.originate(&removed);
        b.learn(&learnt([4]));
        assert!(!heard(&mut table, a.catch_up(false)), "several steps come together");
        assert_eq!(table.len(), 3);
        a.originate(&routes(1, [7]));
        assert_eq!(a.catch_up(false), [], "an old set changes nothing");
    }

    #[test]
    fn what_a_member_has_learned_goes_with_it() {
        let rib = Rib::default();
        let (mut a, b) = (rib.join(PeerId(1)), rib.join(PeerId(2)));
        a.originate(&routes(1, []));
        a.learn(&learnt([1]));
        b.learn(&learnt([1, 2]));
        let mut table = LocRib::default();
        heard(&mut table, a.catch_up(false));
        drop(b);
        assert!(!heard(&mut table, a.catch_up(false)));
        assert_eq!(table.destinations().map(|(_, paths)| paths.len()).collect::<Vec<_>>(), [1]);
    }

    #[test]
    fn who_is_far_behind_is_told_in_parts_and_memory_stays_bounded() {
        let rib = Rib::default();
        let (mut behind, busy) = (rib.join(PeerId(1)), rib.join(PeerId(2)));
        let mut table = LocRib::default();
        behind.originate(&routes(1, []));
        heard(&mut table, behind.catch_up(false));
        for round in 0..4 {
            busy.learn(&learnt(round * 10_000..(round + 1) * 10_000));
            assert!(rib.table().remembered <= REMEMBERED);
        }
        let mut parts = 0;
        let is_up_to_date =
            |member: &Member| !member.is_amid() && member.heard.as_ref().is_some_and(|heard| heard.version == rib.table().version);
        while !is_up_to_date(&behind) {
            let events = behind.catch_up(false);
            let [Event::Changes { changes, .. }] = events.as_slice() else { panic!("{events:?}") };
            table.apply(changes);
            parts += 1;
            assert!(changes.len() <= MANY * 3 / 2 && behind.is_amid() == (table.len() < 40_000));
        }
        assert_eq!((table.len(), parts), (40_000, 5));
        assert_eq!(table, *rib.table().reflector.loc_rib());
        busy.learn(&learnt([50_000]));
        assert!(!heard(&mut table, behind.catch_up(false)));
        assert_eq!(table.len(), 40_001);
    }

    #[test]
    fn members_that_lag_keep_one_generation_each_whatever_the_churn() {
        let rib = Rib::default();
        let mut members = [2, 3, 4].map(|number| rib.join(PeerId(number)));
        let source = rib.join(PeerId(1));
        let (mut sets, mut ribs) = (Vec::new(), Vec::new());
        for generation in 1..=100 {
            let first = u32::try_from(generation * 3000).unwrap();
            let routes = routes(generation, first..first + 10_000);
            source.originate(&routes);
            sets.push(Arc::downgrade(&routes.set));
            ribs.push(Arc::downgrade(&rib.table().reflector.loc_rib()));
            // Each of them takes a step now and then, and none in the end.
            if let Some(member) = members.get_mut(usize::try_from(generation / 10).unwrap()) {
                member.catch_up(generation % 2 == 0);
            }
        }
        let alive = ribs.iter().filter(|rib| rib.strong_count() > 0).count();
        assert!(alive <= members.len() + 1, "{alive} generations");
        assert_eq!(sets.iter().filter(|set| set.strong_count() > 0).count(), 1);
        assert!(rib.table().remembered <= REMEMBERED);
    }

    #[test]
    fn rfc4724_4_1_all_wait_until_each_that_is_awaited_has_told_everything_or_is_gone() {
        let selected = |member: &mut Member| member.catch_up(false).contains(&Event::Selected);
        let rib = Rib::default();
        let (mut a, b, mut c) = (rib.join(PeerId(1)), rib.join(PeerId(2)), rib.join(PeerId(3)));
        a.originate(&routes(1, []));
        a.is_awaited();
        b.is_awaited();
        assert!(!selected(&mut a) && !selected(&mut c));
        a.has_told_everything();
        assert!(!selected(&mut a) && !c.version.has_changed().unwrap());
        drop(b);
        assert!(c.version.has_changed().unwrap());
        assert!(selected(&mut a) && selected(&mut c) && !selected(&mut a));

        let rib = Rib::default();
        rib.await_unnamed();
        let mut a = rib.join(PeerId(1));
        a.originate(&routes(1, []));
        a.is_awaited();
        a.has_told_everything();
        assert!(!selected(&mut a), "the time decides");
    }

    #[tokio::test]
    async fn what_several_tell_at_the_same_time_is_told_together() {
        let rib = Rib::default();
        let (mut a, b, c) = (rib.join(PeerId(1)), rib.join(PeerId(2)), rib.join(PeerId(3)));
        a.originate(&routes(1, []));
        a.catch_up(false);
        b.learn(&learnt([1, 2]));
        let (mut table, mut told) = (LocRib::default(), 0);
        tokio::select! {
            biased;
            () = a.changed() => panic!("it lets the others go first"),
            () = std::future::ready(()) => c.learn(&learnt([2, 3])),
        }
        a.changed().await;
        for event in a.catch_up(false) {
            let Event::Changes { changes, .. } = event else { panic!("{event:?}") };
            told += 1;
            table.apply(&changes);
        }
        assert_eq!((told, table.len(), table.paths(&prefix(2)).len()), (1, 3, 2));
        c.learn(&learnt([4]));
        let waits = (0..10).take_while(|_| a.changed().now_or_never().is_none()).count();
        assert_eq!(waits, usize::from(YIELDS), "a neighbour that never pauses is told something nevertheless");
    }

    #[tokio::test]
    async fn a_change_wakes_the_other_members() {
        let rib = Rib::default();
        let (mut a, mut b) = (rib.join(PeerId(1)), rib.join(PeerId(2)));
        a.originate(&routes(1, [1]));
        assert_eq!(a.catch_up(false), [Event::Routes(rib.table().reflector.loc_rib()), Event::Selected]);
        b.changed().await;
        assert_eq!(b.catch_up(false).len(), 2);
        assert!(!a.version.has_changed().unwrap() && !b.version.has_changed().unwrap());
    }
}
