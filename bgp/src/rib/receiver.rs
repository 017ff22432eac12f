// SPDX-License-Identifier: Apache-2.0
//! The other end of a session as tests see it: octets in, the routes that a speaker would hold out.

use std::collections::{BTreeMap, BTreeSet};

use crate::prefix::{Family, Prefix};
use crate::wire::{Deframer, Message, MpReach, Negotiated, NextHop, PathAttribute, RouteRefresh, Update};

/// A speaker that takes UPDATEs.
#[derive(Debug)]
pub(crate) struct Receiver {
    deframer: Deframer,
    negotiated: Negotiated,
    /// What it holds: attributes in ascending order of type, without those of the next hop and destinations.
    pub(crate) routes: BTreeMap<Prefix, (Vec<PathAttribute>, NextHop)>,
    /// What a refresh has not told again yet.
    stale: BTreeSet<Prefix>,
    /// Every UPDATE, in order.
    pub(crate) updates: Vec<Update>,
}

impl Receiver {
    /// `negotiated` is that of the sender.
    pub(crate) fn new(negotiated: &Negotiated) -> Self {
        let mut negotiated = negotiated.clone();
        std::mem::swap(&mut negotiated.local_asn, &mut negotiated.remote_asn);
        std::mem::swap(&mut negotiated.add_path_send, &mut negotiated.add_path_receive);
        negotiated.max_receive_length = negotiated.max_send_length;
        Self { deframer: Deframer::default(), negotiated, routes: BTreeMap::new(), stale: BTreeSet::new(), updates: Vec::new() }
    }

    /// Takes octets: UPDATEs, of which none may be malformed.
    pub(crate) fn receive(&mut self, octets: &[u8]) {
        self.deframer.push(octets);
        while let Some(message) = self.deframer.next(&self.negotiated).unwrap() {
            let update = match message {
                Message::Update(update) => update,
                Message::RouteRefresh(mark) => {
                    self.mark(&mark);
                    continue;
                }
                other => panic!("neither an UPDATE nor a mark: {other:?}"),
            };
            assert_eq!((&update.errors, &update.ignored), (&vec![], &vec![]));
            self.apply(&update);
            self.updates.push(update);
        }
    }

    /// RFC 7313 §4.2: what is not told between the marks is gone.
    fn mark(&mut self, mark: &RouteRefresh) {
        if let Some(family) = mark.begun() {
            self.stale.extend(self.routes.keys().filter(|prefix| prefix.family() == family));
        } else {
            let family = mark.ended().unwrap();
            self.routes.retain(|prefix, _| prefix.family() != family || !self.stale.remove(prefix));
        }
    }

    /// The destinations held.
    pub(crate) fn held(&self) -> BTreeSet<Prefix> {
        self.routes.keys().copied().collect()
    }

    /// The families of which the End-of-RIB came, in order.
    pub(crate) fn ends_of_rib(&self) -> Vec<Family> {
        self.updates.iter().filter_map(Update::is_end_of_rib).collect()
    }

    fn apply(&mut self, update: &Update) {
        let (announced, withdrawn) = changes(update);
        for prefix in withdrawn {
            self.routes.remove(&prefix);
        }
        for (prefix, next_hop) in announced {
            let attributes = update.attributes.iter().filter(|attribute| !carries_routes(attribute)).cloned().collect();
            self.stale.remove(&prefix);
            self.routes.insert(prefix, (attributes, next_hop));
        }
    }
}

/// What an UPDATE announces and withdraws.
pub(crate) fn changes(update: &Update) -> (Vec<(Prefix, NextHop)>, Vec<Prefix>) {
    let mut announced = Vec::new();
    let mut withdrawn: Vec<_> = update.withdrawn.iter().map(|route| route.prefix).collect();
    for attribute in &update.attributes {
        match attribute {
            PathAttribute::NextHop(address) => announced.extend(update.announced.iter().map(|route| (route.prefix, NextHop::V4(*address)))),
            PathAttribute::MpReach(MpReach { next_hop, announced: more, .. }) => {
                announced.extend(more.iter().map(|route| (route.prefix, *next_hop)))
            }
            PathAttribute::MpUnreach(unreach) => withdrawn.extend(unreach.withdrawn.iter().map(|route| route.prefix)),
            _ => {}
        }
    }
    (announced, withdrawn)
}

fn carries_routes(attribute: &PathAttribute) -> bool {
    matches!(attribute, PathAttribute::NextHop(_) | PathAttribute::MpReach(_) | PathAttribute::MpUnreach(_))
}
