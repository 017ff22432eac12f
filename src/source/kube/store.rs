// SPDX-License-Identifier: Apache-2.0
//! What is believed of one kind of objects.
//!
//! Inputs: what lists and watches say, the names that the last good intent of this node rested on, the time. Output: the [`Changes`] of what is believed.
//! Pure. Invariants: an object that cannot be read keeps its last good content and is rejected; one that came again as it was keeps its `Arc`; a list that
//! would remove more than half of what is known is believed only when several of them over [`WINDOW`] agree and no request has failed meanwhile. What
//! a watch says was deleted was deleted.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use crate::api::{Kind, ObjectRef};
use crate::desired::{Rejection, RejectionReason};
use crate::source::Object;

/// For so long lists have to agree that most objects are gone.
pub(super) const WINDOW: Duration = Duration::from_secs(8);
/// Between two such lists.
pub(super) const RECHECK: Duration = Duration::from_secs(2);
/// So many of them at least.
const READS: u32 = 4;

/// An object as far as it could be read.
pub(super) type Read = Result<Object, Unreadable>;

/// An object that cannot be read.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Unreadable {
    /// Which one it is, whatever its name.
    pub(super) uid: Option<String>,
    /// Why it cannot be read.
    pub(super) message: String,
}

/// What is different.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Changes {
    /// Objects with new content, or `None` where they are gone.
    pub(super) objects: Vec<(ObjectRef, Option<Object>)>,
    /// All rejections, where they are different.
    pub(super) rejections: Option<Vec<Rejection>>,
}

impl Changes {
    pub(super) const fn is_empty(&self) -> bool {
        self.objects.is_empty() && self.rejections.is_none()
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct Store {
    objects: BTreeMap<ObjectRef, Object>,
    rejections: BTreeMap<ObjectRef, Rejection>,
    /// What the last intent rested on; asked until the first list is believed.
    expected: BTreeSet<ObjectRef>,
    /// What an earlier process has kept of objects, for those that the first lists have and that cannot be read.
    last_good: BTreeMap<ObjectRef, Object>,
    /// No list of this kind is empty while there is something to balance.
    never_empty: bool,
    believed: bool,
    doubt: Option<Doubt>,
}

#[derive(Debug)]
struct Doubt {
    missing: BTreeSet<ObjectRef>,
    since: Instant,
    reads: u32,
}

impl Store {
    /// Nothing is known yet but the objects that the last good intent rested on, and the last good content of some, of any kind.
    pub(super) fn new(kind: Kind, last_intent: &BTreeSet<ObjectRef>, last_good: &BTreeMap<ObjectRef, Object>) -> Self {
        Self {
            objects: BTreeMap::new(),
            rejections: BTreeMap::new(),
            expected: last_intent.iter().filter(|object| object.kind == kind).cloned().collect(),
            last_good: last_good
                .iter()
                .filter(|(name, _)| name.kind == kind)
                .map(|(name, object)| (name.clone(), object.clone()))
                .collect(),
            never_empty: matches!(kind, Kind::Service | Kind::EndpointSlice | Kind::Namespace) && !last_intent.is_empty(),
            believed: false,
            doubt: None,
        }
    }

    /// Whether some list was believed: from then on it is known of each object whether it is there.
    pub(super) const fn is_complete(&self) -> bool {
        self.believed
    }

    /// Whether every object on which the last intent rested, and that is there, could be read.
    pub(super) fn misses_nothing(&self) -> bool {
        let lost = |name: &ObjectRef| self.expected.contains(name) && !self.objects.contains_key(name);
        !self.rejections.keys().any(lost)
    }

    /// Objects that a list did not have, and that are kept until others agree.
    pub(super) fn doubted(&self) -> usize {
        self.doubt.as_ref().map_or(0, |doubt| doubt.missing.len().max(1))
    }

    /// A request has failed: the lists so far count for nothing.
    pub(super) fn distrust(&mut self, now: Instant) {
        if let Some(doubt) = &mut self.doubt {
            doubt.since = now;
            doubt.reads = 0;
        }
    }

    /// A whole list, read with a quorum.
    pub(super) fn list(&mut self, listed: Vec<(ObjectRef, Read)>, now: Instant) -> Changes {
        let present: BTreeSet<ObjectRef> = listed.iter().map(|(name, _)| name.clone()).collect();
        let mut changes = Changes::default();
        for (name, read) in listed {
            self.take(name, read, &mut changes);
        }
        let known = self.objects.keys().chain(self.rejections.keys());
        let mut known: BTreeSet<ObjectRef> = known.cloned().collect();
        if !self.believed {
            known.extend(self.expected.iter().cloned());
        }
        let missing: BTreeSet<ObjectRef> = known.difference(&present).cloned().collect();
        let incredible = missing.len() * 2 > known.len() || (present.is_empty() && self.never_empty && !self.believed);
        if incredible && !self.is_confirmed(&missing, now) {
            return changes;
        }
        self.doubt = None;
        self.believed = true;
        self.last_good.clear();
        for name in missing {
            self.remove(&name, &mut changes);
        }
        changes
    }

    /// One object that a watch says is there.
    pub(super) fn apply(&mut self, name: ObjectRef, read: Read) -> Changes {
        let mut changes = Changes::default();
        if let Some(doubt) = &mut self.doubt {
            doubt.missing.remove(&name);
        }
        self.take(name, read, &mut changes);
        changes
    }

    /// One object that a watch says was deleted.
    pub(super) fn delete(&mut self, name: &ObjectRef) -> Changes {
        let mut changes = Changes::default();
        if let Some(doubt) = &mut self.doubt {
            doubt.missing.remove(name);
        }
        self.remove(name, &mut changes);
        changes
    }

    /// Counts a list without these objects; whether enough of them agree.
    fn is_confirmed(&mut self, missing: &BTreeSet<ObjectRef>, now: Instant) -> bool {
        let doubt = self.doubt.get_or_insert_with(|| Doubt { missing: missing.clone(), since: now, reads: 0 });
        if !missing.is_subset(&doubt.missing) {
            (doubt.since, doubt.reads) = (now, 0);
        }
        doubt.missing.clone_from(missing);
        doubt.reads += 1;
        doubt.reads >= READS && now.saturating_duration_since(doubt.since) >= WINDOW
    }

    fn take(&mut self, name: ObjectRef, read: Read, changes: &mut Changes) {
        match read {
            Ok(object) => {
                if self.rejections.remove(&name).is_some() {
                    self.note_rejections(changes);
                }
                if self.objects.get(&name) != Some(&object) {
                    self.objects.insert(name.clone(), object.clone());
                    changes.objects.push((name, Some(object)));
                }
            }
            Err(Unreadable { uid, message }) => {
                self.forget_another(&name, uid.as_deref(), changes);
                if !self.objects.contains_key(&name)
                    && let Some(object) = self.last_good.remove(&name)
                {
                    self.objects.insert(name.clone(), object.clone());
                    changes.objects.push((name.clone(), Some(object)));
                }
                let in_force = if self.objects.contains_key(&name) { "its last good content stays in force" } else { "it takes no part" };
                let rejection = Rejection::object(&name, RejectionReason::Invalid, format!("{message}; {in_force}"));
                if self.rejections.get(&name) != Some(&rejection) {
                    self.rejections.insert(name, rejection);
                    self.note_rejections(changes);
                }
            }
        }
    }

    /// One that has the name of an object which is gone does not get its content.
    fn forget_another(&mut self, name: &ObjectRef, uid: Option<&str>, changes: &mut Changes) {
        let is_another = |objects: &BTreeMap<ObjectRef, Object>| objects.get(name).is_some_and(|object| !object.is_that_of(uid));
        if is_another(&self.last_good) {
            self.last_good.remove(name);
            self.expected.remove(name);
        }
        if is_another(&self.objects) {
            self.remove(name, changes);
            self.expected.remove(name);
        }
    }

    fn remove(&mut self, name: &ObjectRef, changes: &mut Changes) {
        if self.objects.remove(name).is_some() {
            changes.objects.push((name.clone(), None));
        }
        if self.rejections.remove(name).is_some() {
            self.note_rejections(changes);
        }
    }

    fn note_rejections(&self, changes: &mut Changes) {
        changes.rejections = Some(self.rejections.values().cloned().collect());
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use k8s_openapi::api::core::v1::{Service, ServiceSpec};
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

    use super::*;

    fn name(name: &str) -> ObjectRef {
        ObjectRef { kind: Kind::Service, namespace: "default".into(), name: name.into() }
    }

    fn service(external_ip: &str) -> Object {
        let spec = ServiceSpec { external_ips: Some(vec![external_ip.into()]), ..ServiceSpec::default() };
        Object::Service(Arc::new(Service { spec: Some(spec), ..Service::default() }))
    }

    fn unreadable(message: &str, uid: &str) -> Read {
        Err(Unreadable { uid: Some(uid.into()), message: message.into() })
    }

    fn with_uid(external_ip: &str, uid: &str) -> Object {
        let Object::Service(service) = service(external_ip) else { unreachable!() };
        let metadata = ObjectMeta { uid: Some(uid.into()), ..ObjectMeta::default() };
        Object::Service(Arc::new(Service { metadata, ..Arc::unwrap_or_clone(service) }))
    }

    fn listed(names: &[&str]) -> Vec<(ObjectRef, Read)> {
        names.iter().map(|found| (name(found), Ok(service("10.0.0.7")))).collect()
    }

    fn gone(changes: &Changes) -> Vec<&str> {
        changes.objects.iter().filter(|(_, object)| object.is_none()).map(|(name, _)| name.name.as_str()).collect()
    }

    fn fresh() -> Store {
        Store::new(Kind::Service, &BTreeSet::new(), &BTreeMap::new())
    }

    #[test]
    fn the_first_list_is_believed_and_what_is_equal_changes_nothing() {
        let (mut store, now) = (fresh(), Instant::now());
        assert!(!store.is_complete());
        assert_eq!(store.list(listed(&["a", "b"]), now).objects.len(), 2);
        assert!(store.is_complete());
        assert!(store.list(listed(&["a", "b"]), now).is_empty());
        assert!(store.apply(name("a"), Ok(service("10.0.0.7"))).is_empty(), "as it was");
        assert_eq!(store.apply(name("a"), Ok(service("10.0.0.8"))).objects.len(), 1);
        assert_eq!(gone(&store.delete(&name("a"))), ["a"]);
        assert!(store.delete(&name("a")).is_empty());
    }

    #[test]
    fn a_list_without_half_of_them_is_believed_at_once() {
        let (mut store, now) = (fresh(), Instant::now());
        store.list(listed(&["a", "b"]), now);
        assert_eq!(gone(&store.list(listed(&["b"]), now)), ["a"]);
    }

    #[test]
    fn a_list_without_most_of_them_needs_several_that_agree() {
        let (mut store, start) = (fresh(), Instant::now());
        store.list(listed(&["a", "b", "c"]), start);
        let mut at = start;
        while at - start < WINDOW {
            assert!(store.list(listed(&["c"]), at).is_empty());
            assert_eq!(store.doubted(), 2);
            at += RECHECK;
        }
        assert_eq!(gone(&store.list(listed(&["c"]), at)), ["a", "b"]);
        assert_eq!(store.doubted(), 0);
    }

    #[test]
    fn time_alone_or_lists_alone_do_not_convince() {
        let (mut store, start) = (fresh(), Instant::now());
        store.list(listed(&["a"]), start);
        for _ in 0..20 {
            assert!(store.list(Vec::new(), start).is_empty());
        }
        let mut store = fresh();
        store.list(listed(&["a"]), start);
        store.list(Vec::new(), start);
        assert!(store.list(Vec::new(), start + WINDOW * 10).is_empty());
    }

    #[test]
    fn a_failed_request_or_another_missing_object_begins_the_doubt_anew() {
        let (mut store, start) = (fresh(), Instant::now());
        store.list(listed(&["a", "b", "c"]), start);
        for step in 0..4 {
            assert!(store.list(listed(&["c"]), start + RECHECK * step).is_empty());
        }
        store.distrust(start + WINDOW);
        assert!(store.list(listed(&["c"]), start + WINDOW).is_empty());
        assert!(store.list(Vec::new(), start + WINDOW * 2).is_empty(), "c is missing as well");
        assert_eq!(store.doubted(), 3);
        assert_eq!(gone(&store.list(listed(&["a", "b"]), start + WINDOW * 3)), ["c"]);
    }

    #[test]
    fn a_watch_is_believed_and_takes_names_out_of_doubt() {
        let (mut store, start) = (fresh(), Instant::now());
        store.list(listed(&["a", "b", "c"]), start);
        store.list(Vec::new(), start);
        store.apply(name("a"), Ok(service("10.0.0.7")));
        assert_eq!(gone(&store.delete(&name("b"))), ["b"]);
        assert_eq!(store.doubted(), 1);
        assert!(store.list(listed(&["a"]), start).objects.iter().map(|(name, _)| name.name.as_str()).eq(["c"]), "one of two");
    }

    #[test]
    fn what_the_last_intent_rested_on_is_missed_at_the_start() {
        let now = Instant::now();
        let expected = BTreeSet::from([name("a"), name("b"), name("c")]);
        let mut store = Store::new(Kind::Service, &expected, &BTreeMap::new());
        store.list(listed(&["z"]), now);
        assert!(!store.is_complete(), "most of what there was is not there");
        store.list(listed(&["a", "b"]), now);
        assert!(store.is_complete());
        let mut slices = Store::new(Kind::EndpointSlice, &expected, &BTreeMap::new());
        slices.list(Vec::new(), now);
        assert!(!slices.is_complete(), "something stood behind the Services");
        let mut ingresses = Store::new(Kind::EricIngress, &expected, &BTreeMap::new());
        ingresses.list(Vec::new(), now);
        assert!(ingresses.is_complete());
    }

    #[test]
    fn an_object_that_cannot_be_read_keeps_its_last_good_content() {
        let (mut store, now) = (fresh(), Instant::now());
        store.list(listed(&["a"]), now);
        let changes = store.apply(name("a"), unreadable("spec.x: is wrong", "1"));
        assert_eq!(changes.objects, []);
        let rejections = changes.rejections.unwrap();
        assert_eq!(rejections[0].message, "spec.x: is wrong; its last good content stays in force");
        assert!(store.apply(name("a"), unreadable("spec.x: is wrong", "1")).is_empty());
        assert_eq!(store.apply(name("a"), Ok(service("10.0.0.7"))).rejections, Some(Vec::new()));
        store.apply(name("a"), unreadable("spec.x: is wrong", "1"));
        let changes = store.delete(&name("a"));
        assert_eq!((gone(&changes), &changes.rejections), (vec!["a"], &Some(Vec::new())));
    }

    #[test]
    fn one_that_was_in_force_and_cannot_be_read_at_the_start_is_missed() {
        let now = Instant::now();
        let mut store = Store::new(Kind::Service, &BTreeSet::from([name("a")]), &BTreeMap::new());
        store.list(vec![(name("a"), unreadable("bad", "1")), (name("b"), unreadable("bad", "1"))], now);
        assert!(store.is_complete() && !store.misses_nothing());
        store.apply(name("a"), Ok(service("10.0.0.7")));
        assert!(store.misses_nothing(), "b was not in force before");
    }

    #[test]
    fn one_that_cannot_be_read_at_the_start_has_what_an_earlier_process_kept() {
        let now = Instant::now();
        let kept = BTreeMap::from([(name("a"), service("10.0.0.7")), (name("gone"), service("10.0.0.8"))]);
        let mut store = Store::new(Kind::Service, &BTreeSet::from([name("a")]), &kept);
        let changes = store.list(vec![(name("a"), unreadable("spec.x: is wrong", "1")), (name("b"), Ok(service("10.0.0.9")))], now);
        assert_eq!(changes.objects, [(name("a"), Some(service("10.0.0.7"))), (name("b"), Some(service("10.0.0.9")))]);
        assert_eq!(changes.rejections.unwrap()[0].message, "spec.x: is wrong; its last good content stays in force");
        assert!(store.is_complete() && store.misses_nothing());
        // Later ones of a name are other objects.
        assert_eq!(store.apply(name("gone"), unreadable("bad", "1")).objects, []);
    }

    #[test]
    fn one_that_was_made_anew_under_a_name_does_not_get_what_the_former_one_had() {
        let now = Instant::now();
        for (uid, stays) in [("1", true), ("2", false)] {
            let kept = BTreeMap::from([(name("a"), with_uid("10.0.0.7", "1"))]);
            let mut restarted = Store::new(Kind::Service, &BTreeSet::from([name("a")]), &kept);
            let changes = restarted.list(vec![(name("a"), unreadable("bad", uid))], now);
            assert_eq!(changes.objects.len(), usize::from(stays), "while the process was away: {:?}", changes.objects);
            assert!(restarted.is_complete() && restarted.misses_nothing());
            let mut running = fresh();
            running.list(vec![(name("a"), Ok(with_uid("10.0.0.7", "1")))], now);
            let changes = running.list(vec![(name("a"), unreadable("bad", uid))], now);
            assert_eq!(gone(&changes).is_empty(), stays, "while nothing was heard of the server");
        }
    }
}
