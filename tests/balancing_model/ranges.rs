// SPDX-License-Identifier: Apache-2.0
//! What must hold where ranges of ports become others. Input: the world, which knows what the planner cannot see.

use vipherald::observed::{Record, RetiredRange};
use vipherald::plan::{Plan, RangeMove};

use super::*;

impl World {
    /// These, and no others, are the ranges of ports of the VIP that may have several.
    pub(super) fn ask_for(&mut self, ranges: &[usize], servers: &[usize]) {
        let services = services();
        let vip = services[2].vip;
        self.wishes.retain(|key, _| !services.iter().any(|range| is_range(*range) && range.vip == vip && shares_ports(*range, *key)));
        for range in ranges {
            self.wishes.insert(services[*range], by_turns(services[*range], servers, Filter::NONE));
        }
        self.happen(Op::Vip(vip, Some(VipIntent::Serve { without_endpoints: false })));
    }

    /// Ports that are wanted before and after lead somewhere, nobody comes whom their range does not admit, and no packet comes to the node.
    pub(super) fn check_move(&mut self, change: &RangeMove, made: &Plan, record: &Record) -> &'static str {
        let arriving: BTreeSet<ServiceKey> = change.moved.values().chain(change.made.keys()).copied().collect();
        let leaving: BTreeSet<ServiceKey> = change.moved.keys().chain(change.retired.keys()).copied().collect();
        for from in &leaving {
            assert!(self.node.is_ours(*from) && record.confirmed_services.contains(from), "{from} is not there and ours: {made}");
            assert!(!self.wishes.contains_key(from), "{from} is wanted, and becomes something else: {made}");
            let group = self.group_of(*from).unwrap_or_else(|| panic!("{from} becomes what is not wanted: {made}"));
            let missing = group.arriving.iter().find(|to| !arriving.contains(to) && self.is_awaited(**to));
            assert_eq!(missing, None, "is still to come where {from} goes: {made}");
            let is_closed = |port: u16| {
                record.closed.iter().any(|part| part.vip == from.vip && part.protocol == from.protocol && part.ports.contains(port))
            };
            let single: Vec<ServiceKey> = services()
                .into_iter()
                .filter(|key| !is_range(*key) && (self.wishes.contains_key(key) || record.has_service(*key)))
                .collect();
            let is_served = |port: u16| arriving.iter().chain(&single).any(|to| shares_ports(*to, *from) && to.ports.contains(port));
            let open = (from.ports.start()..=from.ports.end()).find(|port| !is_served(*port) && !is_closed(*port));
            assert_eq!(open, None, "packets to a port that {from} gives up come to the node: {made}");
        }
        for to in &arriving {
            assert_eq!(
                change.filters.get(to),
                self.wishes.get(to).map(|wish| wish.recorded_filter(*to)).as_ref(),
                "who comes to {to}: {made}"
            );
        }
        for (from, to) in &change.moved {
            let wish = self.desired_of(*to).unwrap();
            let fits = |mark: &u32| self.rules().marks_of_ranges(wish.filter.preserves_client).contains(mark);
            assert!(shares_ports(*from, *to) && record.marks.get(from).is_some_and(fits), "{from} becomes {to}: {made}");
        }
        for to in change.made.keys() {
            let is_pending = record.pending_services.contains(to) && self.node.is_ours(*to);
            assert!(is_pending && self.desired_of(*to).is_some_and(|wish| self.is_in_place(*to, &wish)), "{to} is not there: {made}");
        }
        let events = [
            (leaving.len() == 1 && arriving.len() == 1 && !change.moved.is_empty(), "move"),
            (arriving.len() > 1, "split"),
            (leaving.len() > 1, "merge"),
        ];
        self.seen.extend(events.into_iter().filter(|(is_so, _)| *is_so).map(|(_, event)| event));
        if change.retired.is_empty() { "moved" } else { "retire" }
    }

    /// What has no ports any more goes with its VIP, or once its connections are over, or have had their time.
    pub(super) fn check_end_of(&self, retired: RetiredRange, made: &Plan) -> &'static str {
        let service = self.node.retired().remove(&retired).unwrap_or_else(|| panic!("{retired} is not there: {made}")).clone();
        assert!(service.ours, "{retired} is somebody else's: {made}");
        let connections: u64 = service.seen.real_servers.iter().map(|server| server.connections).sum();
        let over = self.retired.get(&retired).is_some_and(|since| self.now >= *since + DRAIN_TIMEOUT);
        if self.wanted(retired.vip) {
            assert!(connections == 0 || over, "{retired} is removed with {connections} connections: {made}");
            return if connections > 0 { "retired with connections" } else { "retired" };
        }
        assert!(
            over || connections == 0 || !self.advertised_vips().contains(&retired.vip),
            "{retired} is removed while packets still come: {made}"
        );
        "retired with its VIP"
    }

    /// What the range of ports is to be that this one becomes, if that is one other.
    pub(super) fn successor_of(&self, key: ServiceKey) -> Option<DesiredVirtualService> {
        let group = self.group_of(key)?;
        let to = group.arriving.first().copied().filter(|_| group.leaving.len() + group.arriving.len() == 2)?;
        self.desired_of(to).filter(|wish| self.is_in_place(key, wish) && !self.node.record.has_service(to))
    }

    /// The ranges of ports that change together with this one, which goes.
    pub(super) fn group_of(&self, key: ServiceKey) -> Option<Ranges> {
        let record = &self.node.record;
        let of_ranges = || services().into_iter().filter(|other| is_range(*other) && other.vip == key.vip);
        let alone = |from: &ServiceKey| {
            let others = of_ranges().any(|other| other != *from && shares_ports(*from, other) && record.has_service(other));
            record.confirmed_services.contains(from) || !others
        };
        let goes = |from: &ServiceKey| {
            let is_there = record.has_service(*from) && self.node.is_ours(*from) && !record.closed.contains(from);
            is_there && !self.wishes.contains_key(from) && alone(from)
        };
        let comes = |to: &ServiceKey| self.wishes.contains_key(to) && !record.confirmed_services.contains(to);
        if !self.is_complete() || !self.wanted(key.vip) || !self.balancing || !is_range(key) || !goes(&key) {
            return None;
        }
        let mut group = Ranges { leaving: [key].into(), arriving: BTreeSet::new() };
        loop {
            let before = group.leaving.len() + group.arriving.len();
            group.arriving.extend(of_ranges().filter(|to| comes(to) && group.leaving.iter().any(|from| shares_ports(*from, *to))));
            group.leaving.extend(of_ranges().filter(|from| goes(from) && group.arriving.iter().any(|to| shares_ports(*from, *to))));
            if group.leaving.len() + group.arriving.len() == before {
                break;
            }
        }
        let fits = |from: &ServiceKey, to: &ServiceKey| self.desired_of(*to).is_some_and(|wish| self.is_in_place(*from, &wish));
        let is_free = |to: &ServiceKey| !record.has_service(*to);
        if is_one_each(&group) {
            let becomes = group.leaving.iter().zip(&group.arriving).all(|(from, to)| fits(from, to) && is_free(to));
            return (becomes || record.confirmed_services.contains(&key)).then_some(group).filter(|group| {
                let hopeful = |to: &ServiceKey| !self.is_hopeless(*to);
                becomes || group.arriving.iter().any(hopeful)
            });
        }
        group.leaving.retain(|from| record.confirmed_services.contains(from));
        let goes_on =
            group.leaving.iter().any(|from| group.arriving.iter().any(|to| fits(from, to) && is_free(to) && shares_ports(*from, *to)));
        let hopeful = |to: &ServiceKey| !self.is_hopeless(*to);
        let has_others = goes_on || group.arriving.iter().any(hopeful);
        Some(group).filter(|group| group.leaving.contains(&key) && has_others)
    }

    /// Whether somebody stands behind a range of ports that is to become several, or one of several that are to become others.
    pub(super) fn is_backed_by_ranges(&self, vip: IpAddr) -> bool {
        let is_wish_backed = |to: &ServiceKey| self.wishes.get(to).is_some_and(DesiredVirtualService::is_backed);
        let stays = |key: ServiceKey| self.group_of(key).is_some_and(|group| group.arriving.iter().any(is_wish_backed));
        let mut of_vip = services().into_iter().filter(|key| key.vip == vip);
        of_vip.any(|key| self.node.takes_connections(key) && self.successor_of(key).is_none() && stays(key))
    }
}

/// Ranges of ports that change together.
pub(super) struct Ranges {
    leaving: BTreeSet<ServiceKey>,
    arriving: BTreeSet<ServiceKey>,
}

fn is_one_each(group: &Ranges) -> bool {
    group.leaving.len() == 1 && group.arriving.len() == 1
}
