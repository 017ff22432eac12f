// SPDX-License-Identifier: Apache-2.0
//! What is made of what a peer tells, and what is left of it when its session is lost.

mod rfc7313;
mod rfc9494;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::LazyLock;

use bytes::Bytes;

use super::*;
use crate::identity::{Asn, HoldTime};
use crate::prefix::Prefix;
use crate::rib::PeerId;
use crate::wire::{AsPath, AsPathSegment, BgpRole, Flags, GracefulRestart, NextHop, Origin};

static EPOCH: LazyLock<Instant> = LazyLock::new(
    #[expect(clippy::disallowed_methods, reason = "an instant cannot be made of a number: a virtual clock has to start somewhere")]
    Instant::now,
);

const LOCAL: LocalAddresses = LocalAddresses { ipv4: Some(Ipv4Addr::new(10, 0, 0, 1)), ipv6: None, ..LocalAddresses::NONE };

fn asn(number: u32) -> Asn {
    Asn::new(number).unwrap()
}

fn identifier(number: u32) -> BgpIdentifier {
    BgpIdentifier::new(number).unwrap()
}

fn at(seconds: u64) -> Instant {
    *EPOCH + Duration::from_secs(seconds)
}

fn nlri(last: u8) -> Nlri {
    Prefix::host(IpAddr::V4(Ipv4Addr::new(192, 0, 2, last))).into()
}

fn negotiated(remote_asn: u32) -> Negotiated {
    Negotiated {
        families: Family::ALL.into(),
        hold_time: HoldTime::from_secs(9).unwrap(),
        remote_asn: asn(remote_asn),
        internal: remote_asn == 65001,
        ..Negotiated::before_open(asn(65001))
    }
}

/// The peer asks for 60 s, keeps its forwarding state, and for an hour more in IPv4.
fn restarting(long_lived: u32) -> Negotiated {
    let families = Family::ALL.map(|family| (family, true)).into();
    let graceful_restart = Some(GracefulRestart { restarting: true, notification: true, restart_time: 60, families });
    let long_lived = [(Family::Ipv4Unicast, LongLivedFamily { forwarding: true, stale_time: long_lived })].into();
    Negotiated { graceful_restart, long_lived, ..negotiated(65001) }
}

/// An Adj-RIB-In, and what it has handed out.
struct Bench {
    adj_rib_in: AdjRibIn,
    negotiated: Negotiated,
    local: LocalAddresses,
    used: BTreeMap<Nlri, Arc<Route>>,
}

impl Bench {
    fn new(negotiated: Negotiated) -> Self {
        Self::with(Import::default(), negotiated)
    }

    fn with(import: Import, negotiated: Negotiated) -> Self {
        Self { adj_rib_in: AdjRibIn::new(import, identifier(1), identifier(0xC1)), negotiated, local: LOCAL, used: BTreeMap::new() }
    }

    fn take(&mut self, learnt: Vec<Learnt>) {
        for (nlri, route) in learnt {
            match route {
                Some(route) => drop(self.used.insert(nlri, route)),
                None => assert!(self.used.remove(&nlri).is_some(), "taken back, but never handed out"),
            }
        }
        let eligible: BTreeMap<_, _> = self
            .adj_rib_in
            .routes()
            .filter(|(_, held)| held.ineligible.is_none())
            .map(|(nlri, held)| (nlri, Arc::clone(&held.route)))
            .collect();
        assert_eq!(self.used, eligible);
        let told = self.adj_rib_in.routes().filter(|(_, held)| !held.stale).map(|(nlri, _)| nlri.prefix);
        let told: BTreeSet<Prefix> = told.filter(|prefix| prefix.family() == Family::Ipv4Unicast).collect();
        let counted = if self.adj_rib_in.import.max_prefixes.contains_key(&Family::Ipv4Unicast) { told.len() } else { 0 };
        assert_eq!(self.adj_rib_in.told(Family::Ipv4Unicast), u32::try_from(counted).unwrap());
        let of_ipv4 = self.adj_rib_in.routes().filter(|(nlri, _)| nlri.prefix.family() == Family::Ipv4Unicast).count();
        assert_eq!(self.adj_rib_in.count(Family::Ipv4Unicast), u32::try_from(of_ipv4).unwrap());
    }

    fn receive(&mut self, update: &Update) {
        let internal = self.negotiated.internal;
        let address = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 9));
        let source = Arc::new(Source { peer: PeerId(9), address, identifier: identifier(9), internal, client: true });
        let learnt = self.adj_rib_in.update(update, &Session { source: &source, negotiated: &self.negotiated, local: &self.local });
        self.take(learnt);
    }

    fn announce(&mut self, last: impl IntoIterator<Item = u8>) {
        self.receive(&Update { announced: last.into_iter().map(nlri).collect(), attributes: attributes(), ..Update::default() });
    }

    /// What is made of one route with these attributes beside the usual ones, or in their place.
    fn judge(&mut self, more: Vec<PathAttribute>) -> Option<Ineligible> {
        let mut attributes = attributes();
        attributes.retain(|usual| !more.iter().any(|other| other.type_code() == usual.type_code()));
        attributes.extend(more);
        self.receive(&Update { announced: vec![nlri(1)], attributes, ..Update::default() });
        self.adj_rib_in.routes().next().unwrap().1.ineligible
    }

    fn lose(&mut self, seconds: u64) {
        let kept = self.negotiated.clone();
        let learnt = self.adj_rib_in.session_lost(Some(&kept), at(seconds));
        self.take(learnt);
    }

    fn expire(&mut self, seconds: u64) {
        let learnt = self.adj_rib_in.expire(at(seconds));
        self.take(learnt);
    }

    fn come_back(&mut self, negotiated: Negotiated) {
        let learnt = self.adj_rib_in.session_returned(&negotiated);
        self.take(learnt);
        self.negotiated = negotiated;
    }

    fn used(&self) -> Vec<u8> {
        self.used.keys().map(|nlri| if let IpAddr::V4(address) = nlri.prefix.address() { address.octets()[3] } else { 0 }).collect()
    }
}

fn sequence(ases: &[u32]) -> PathAttribute {
    PathAttribute::AsPath(AsPath(vec![AsPathSegment::Sequence(ases.iter().map(|number| asn(*number)).collect())]))
}

fn attributes() -> Vec<PathAttribute> {
    vec![PathAttribute::Origin(Origin::Igp), PathAttribute::AsPath(AsPath::default()), PathAttribute::NextHop(Ipv4Addr::new(10, 0, 0, 9))]
}

#[test]
fn rfc4271_section_9_1_2_a_path_with_our_as_is_kept_and_not_used() {
    let mut bench = Bench::new(negotiated(65001));
    assert_eq!(bench.judge(vec![sequence(&[7, 65001, 8])]), Some(Ineligible::OwnAs));
    assert_eq!(bench.used(), []);
    assert_eq!(bench.judge(vec![sequence(&[7, 8])]), None);
    assert_eq!(bench.used(), [1]);
}

#[test]
fn rfc4271_section_6_3_an_external_peer_puts_its_own_as_in_front() {
    let mut bench = Bench::new(negotiated(65002));
    assert_eq!(bench.judge(vec![sequence(&[7, 65002])]), Some(Ineligible::FirstAs));
    assert_eq!(bench.judge(vec![]), Some(Ineligible::FirstAs));
    assert_eq!(bench.judge(vec![sequence(&[65002, 7])]), None);
    let mut lenient = Bench::with(Import { enforce_first_as: false, ..Import::default() }, negotiated(65002));
    assert_eq!(lenient.judge(vec![sequence(&[7])]), None);
}

#[test]
fn rfc4456_section_8_what_passed_us_before_is_not_used() {
    let mut bench = Bench::new(negotiated(65001));
    let list = |last| PathAttribute::ClusterList(vec![Ipv4Addr::from_bits(7), Ipv4Addr::from_bits(last)]);
    assert_eq!(bench.judge(vec![PathAttribute::OriginatorId(Ipv4Addr::from_bits(1))]), Some(Ineligible::OriginatorId));
    assert_eq!(bench.judge(vec![list(0xC1)]), Some(Ineligible::ClusterList));
    assert_eq!(bench.judge(vec![PathAttribute::OriginatorId(Ipv4Addr::from_bits(2)), list(0xC2)]), None);
}

#[test]
fn rfc4271_section_6_3_a_next_hop_is_an_address_of_another_host() {
    let mut bench = Bench::new(negotiated(65001));
    for (address, usable) in
        [("10.0.0.1", false), ("0.0.0.0", false), ("127.0.0.1", false), ("224.0.0.5", false), ("240.0.0.1", false), ("10.0.0.8", true)]
    {
        let ineligible = bench.judge(vec![PathAttribute::NextHop(address.parse().unwrap())]);
        assert_eq!(ineligible, (!usable).then_some(Ineligible::NextHop), "{address}");
    }
}

#[test]
fn rfc1122_section_3_2_1_3_the_first_and_the_last_address_of_the_link_are_no_host() {
    let mut bench = Bench::new(negotiated(65001));
    let judged = |bench: &mut Bench, last| bench.judge(vec![PathAttribute::NextHop(Ipv4Addr::new(10, 0, 0, last))]);
    assert_eq!((judged(&mut bench, 0), judged(&mut bench, 127)), (None, None), "nobody knows");
    bench.local.shared_ipv4 = Prefix::new(Ipv4Addr::new(10, 0, 0, 0).into(), 25).ok();
    assert_eq!([0, 127, 126, 128].map(|last| judged(&mut bench, last)), [Some(Ineligible::NextHop), Some(Ineligible::NextHop), None, None]);
}

#[test]
fn rfc9234_section_5_a_leaked_route_is_not_used_and_one_from_above_is_marked() {
    let otc = |number| vec![sequence(&[65002]), PathAttribute::OnlyToCustomer(asn(number).into())];
    for (role, otc_of, expected) in [
        (BgpRole::Provider, 7, Some(Ineligible::Leaked)),
        (BgpRole::RouteServer, 7, Some(Ineligible::Leaked)),
        (BgpRole::Peer, 7, Some(Ineligible::Leaked)),
        (BgpRole::Peer, 65002, None),
        (BgpRole::Customer, 7, None),
        (BgpRole::RouteServerClient, 7, None),
    ] {
        let mut bench = Bench::new(Negotiated { local_role: Some(role), ..negotiated(65002) });
        assert_eq!(bench.judge(otc(otc_of)), expected, "{role:?}");
        assert_eq!(bench.judge(vec![sequence(&[65002])]), None);
        let marked = bench.used[&nlri(1)].learned.as_ref().unwrap().only_to_customer;
        let from_above = matches!(role, BgpRole::Customer | BgpRole::Peer | BgpRole::RouteServerClient);
        assert_eq!(marked, from_above.then(|| asn(65002)), "{role:?}");
    }
}

#[test]
fn rfc8326_section_4_graceful_shutdown_of_an_external_peer_is_the_last_resort() {
    let shutdown = || PathAttribute::Communities(vec![community::GRACEFUL_SHUTDOWN].into());
    let mut external = Bench::new(negotiated(65002));
    external.judge(vec![sequence(&[65002]), shutdown()]);
    assert_eq!(external.used[&nlri(1)].local_preference, Some(0));
    let mut internal = Bench::new(negotiated(65001));
    internal.judge(vec![PathAttribute::LocalPref(100), shutdown()]);
    assert_eq!(internal.used[&nlri(1)].local_preference, Some(100));
}

#[test]
fn rfc4271_section_9_unknown_attributes_go_on_only_where_they_are_transitive() {
    let mut bench = Bench::new(negotiated(65001));
    let unknown = |flags: u8, type_code| PathAttribute::Unknown { flags: Flags(flags), type_code, value: Bytes::from_static(b"x") };
    bench.judge(vec![unknown(0xC0, 99), unknown(0x80, 98)]);
    let learned = bench.used[&nlri(1)].learned.clone().unwrap();
    assert_eq!(learned.unknown.iter().map(|unknown| unknown.type_code).collect::<Vec<_>>(), [99]);
}

#[test]
fn rfc7606_section_2_treat_as_withdraw_takes_the_route_back() {
    let mut bench = Bench::new(negotiated(65001));
    bench.announce([1, 2]);
    let octets =
        [&[0xFF; 16][..], &[0, 42, 2, 0, 0, 0, 14, 0x40, 1, 1, 9, 0x40, 2, 0, 0x40, 3, 4, 10, 0, 0, 9], &[32, 192, 0, 2, 1]].concat();
    let mut deframer = crate::wire::Deframer::default();
    deframer.push(&octets);
    let Ok(Some(crate::wire::Message::Update(update))) = deframer.next(&bench.negotiated) else { panic!("no UPDATE") };
    assert_eq!(update.handling(), Some(ErrorHandling::TreatAsWithdraw));
    bench.receive(&update);
    assert_eq!(bench.used(), [2]);
}

#[test]
fn rfc4486_section_4_the_limit_counts_what_is_not_used_too() {
    let import = Import { max_prefixes: [(Family::Ipv4Unicast, 2)].into(), ..Import::default() };
    let mut bench = Bench::with(import, negotiated(65001));
    bench.announce([1, 2]);
    bench.announce([1, 2]);
    assert_eq!(bench.adj_rib_in.exceeded(), None);
    bench.receive(&Update {
        announced: vec![nlri(3)],
        attributes: [attributes(), vec![PathAttribute::OriginatorId(Ipv4Addr::from_bits(1))]].concat(),
        ..Update::default()
    });
    assert_eq!(bench.adj_rib_in.exceeded(), Some((Family::Ipv4Unicast, 2)));
}

#[test]
fn rfc4486_section_4_the_limit_counts_destinations_and_not_paths() {
    let import = Import { max_prefixes: [(Family::Ipv4Unicast, 1)].into(), held_at_most: Some(2), ..Import::default() };
    let mut bench = Bench::with(import, negotiated(65001));
    let path = |path_id| Nlri { path_id, ..nlri(1) };
    bench.receive(&Update { announced: vec![path(1), path(2), path(3)], attributes: attributes(), ..Update::default() });
    assert_eq!((bench.adj_rib_in.exceeded(), bench.adj_rib_in.omitted(Family::Ipv4Unicast)), (None, 1), "nor do paths without number stay");
    bench.receive(&Update { withdrawn: vec![path(1)], ..Update::default() });
    bench.receive(&Update { announced: vec![path(1)], attributes: attributes(), ..Update::default() });
    assert_eq!(bench.adj_rib_in.exceeded(), None);
    bench.announce([2]);
    assert_eq!(bench.adj_rib_in.exceeded(), Some((Family::Ipv4Unicast, 1)));
}

#[test]
fn rfc4486_section_4_a_limit_that_comes_later_counts_what_is_told_already() {
    let mut bench = Bench::with(Import::default(), restarting(0));
    let path = |path_id| Nlri { path_id, ..nlri(1) };
    bench.announce([1, 2, 3]);
    bench.lose(0);
    bench.receive(&Update { announced: vec![path(1), path(2), nlri(2)], attributes: attributes(), ..Update::default() });
    bench.adj_rib_in.set_import(Import { max_prefixes: [(Family::Ipv4Unicast, 2)].into(), ..Import::default() });
    assert_eq!(bench.adj_rib_in.exceeded(), None, "two paths to one, and one that is stale");
    bench.adj_rib_in.set_import(Import { max_prefixes: [(Family::Ipv4Unicast, 1)].into(), ..Import::default() });
    assert_eq!(bench.adj_rib_in.exceeded(), Some((Family::Ipv4Unicast, 1)));
}

#[test]
fn rfc4724_section_4_2_stale_routes_do_not_count_against_the_limit() {
    let import = Import { max_prefixes: [(Family::Ipv4Unicast, 2)].into(), ..Import::default() };
    let mut bench = Bench::with(import, restarting(0));
    bench.announce([1, 2]);
    bench.lose(0);
    bench.announce([2, 3]);
    assert_eq!((bench.adj_rib_in.exceeded(), bench.adj_rib_in.count(Family::Ipv4Unicast)), (None, 3));
    bench.announce([4]);
    assert_eq!(bench.adj_rib_in.exceeded(), Some((Family::Ipv4Unicast, 2)));
}

#[test]
fn rfc7911_section_3_paths_are_told_apart_by_the_identifiers_of_the_peer() {
    let mut bench = Bench::new(negotiated(65001));
    let path = |path_id| Nlri { path_id, ..nlri(1) };
    bench.receive(&Update { announced: vec![path(7), path(8)], attributes: attributes(), ..Update::default() });
    bench.receive(&Update { withdrawn: vec![path(7)], ..Update::default() });
    assert_eq!(bench.used.keys().collect::<Vec<_>>(), [&path(8)]);
}

#[test]
fn rfc7313_section_4_2_what_is_not_told_between_the_marks_is_gone() {
    let mut bench = Bench::new(negotiated(65001));
    bench.announce([1, 2, 3]);
    bench.adj_rib_in.refresh_begins(Family::Ipv4Unicast);
    assert_eq!(bench.used(), [1, 2, 3], "used until the end");
    bench.announce([1, 3]);
    let learnt = bench.adj_rib_in.refresh_ends(Family::Ipv4Unicast);
    bench.take(learnt);
    assert_eq!(bench.used(), [1, 3]);
}

#[test]
fn rfc4724_section_4_2_without_the_capability_all_goes_with_the_session() {
    let mut bench = Bench::new(negotiated(65001));
    bench.announce([1, 2]);
    bench.lose(0);
    assert_eq!(bench.used(), []);
    assert_eq!(bench.adj_rib_in.deadline(), None);
}

#[test]
fn rfc4724_section_4_2_stale_routes_are_used_for_the_restart_time() {
    let mut bench = Bench::new(restarting(0));
    bench.announce([1, 2]);
    bench.lose(100);
    assert_eq!(bench.used(), [1, 2]);
    assert_eq!(bench.adj_rib_in.deadline(), Some(at(160)));
    bench.expire(159);
    assert_eq!(bench.used(), [1, 2]);
    bench.expire(160);
    assert_eq!(bench.used(), []);
    assert_eq!(bench.adj_rib_in.deadline(), None);
}

#[test]
fn rfc4724_section_4_2_end_of_rib_takes_what_was_not_told_again() {
    let mut bench = Bench::new(restarting(0));
    bench.announce([1, 2, 3]);
    bench.lose(0);
    bench.come_back(restarting(0));
    bench.announce([1, 4]);
    assert_eq!(bench.used(), [1, 2, 3, 4]);
    bench.receive(&Update::end_of_rib(Family::Ipv4Unicast));
    assert_eq!(bench.used(), [1, 4]);
    bench.receive(&Update::end_of_rib(Family::Ipv6Unicast));
    assert_eq!(bench.adj_rib_in.deadline(), None);
}

#[test]
fn rfc4724_section_4_2_forwarding_that_was_not_kept_ends_stale_routes_at_once() {
    let not_kept = |families: &[(Family, bool)]| {
        let graceful_restart =
            GracefulRestart { families: families.iter().copied().collect(), restart_time: 60, ..GracefulRestart::default() };
        Negotiated { graceful_restart: Some(graceful_restart), ..negotiated(65001) }
    };
    let only_v6 = [(Family::Ipv6Unicast, true)];
    let without = [(Family::Ipv4Unicast, false), (Family::Ipv6Unicast, true)];
    for back in [not_kept(&only_v6), not_kept(&without), negotiated(65001)] {
        let mut bench = Bench::new(restarting(0));
        bench.announce([1, 2]);
        bench.lose(0);
        bench.come_back(back);
        assert_eq!(bench.used(), []);
    }
}

#[test]
fn rfc4724_section_4_2_a_second_loss_before_end_of_rib_ends_what_was_stale() {
    let mut bench = Bench::new(restarting(0));
    bench.announce([1, 2]);
    bench.lose(0);
    bench.come_back(restarting(0));
    bench.announce([2, 3]);
    bench.lose(10);
    assert_eq!(bench.used(), [2, 3]);
}

#[test]
fn rfc4724_section_4_2_a_peer_that_never_ends_its_first_set_is_bound_from_the_loss_on() {
    let mut bench = Bench::new(restarting(0));
    bench.announce([1, 2]);
    bench.lose(0);
    bench.come_back(restarting(0));
    bench.announce([2]);
    assert_eq!(bench.adj_rib_in.deadline(), Some(at(360)));
    bench.expire(360);
    assert_eq!(bench.used(), [2]);
}

#[test]
fn rfc9494_section_4_2_long_lived_stale_routes_are_tagged_and_last_longer() {
    let mut bench = Bench::new(restarting(3600));
    bench.announce([1, 2]);
    bench.receive(&Update {
        announced: vec![nlri(3)],
        attributes: [attributes(), vec![PathAttribute::Communities(vec![community::NO_LLGR].into())]].concat(),
        ..Update::default()
    });
    bench.lose(0);
    bench.expire(60);
    assert_eq!(bench.used(), [1, 2], "NO_LLGR");
    assert!(bench.used.values().all(|route| route.is_long_lived_stale()));
    assert_eq!(bench.adj_rib_in.deadline(), Some(at(3660)));
    bench.expire(3660);
    assert_eq!(bench.used(), []);
}

#[test]
fn rfc9494_section_4_2_a_peer_that_comes_back_late_is_fresh_again() {
    let mut bench = Bench::new(restarting(3600));
    bench.announce([1, 2]);
    bench.lose(0);
    bench.expire(60);
    bench.come_back(restarting(3600));
    bench.announce([1]);
    assert!(!bench.used[&nlri(1)].is_long_lived_stale() && bench.used[&nlri(2)].is_long_lived_stale());
    bench.receive(&Update::end_of_rib(Family::Ipv4Unicast));
    assert_eq!(bench.used(), [1]);
}

#[test]
fn rfc2545_section_3_ipv6_routes_come_with_their_own_next_hop() {
    let mut bench = Bench::new(negotiated(65001));
    let global = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 9);
    let next_hop = NextHop::V6 { global, link_local: None };
    let prefix = Prefix::host("2001:db8::1".parse().unwrap());
    let reach = PathAttribute::MpReach(crate::wire::MpReach { family: Family::Ipv6Unicast, next_hop, announced: vec![prefix.into()] });
    bench.receive(&Update {
        attributes: vec![reach, PathAttribute::Origin(Origin::Igp), PathAttribute::AsPath(AsPath::default())],
        ..Update::default()
    });
    assert_eq!(bench.used[&Nlri::from(prefix)].learned.as_ref().unwrap().next_hop, next_hop);
}

#[test]
fn no_more_is_held_than_may_be_and_what_is_not_is_counted() {
    let mut bench = Bench::with(Import { held_at_most: Some(2), ..Import::default() }, negotiated(65001));
    bench.announce([1, 2, 3, 1, 3]);
    let v4 = Family::Ipv4Unicast;
    assert_eq!((bench.used(), bench.adj_rib_in.count(v4), bench.adj_rib_in.omitted(v4)), (vec![1, 2], 2, 2));
    assert_eq!(bench.adj_rib_in.held(None).len(), 2);
    let one = bench.adj_rib_in.held(Some(nlri(2).prefix));
    assert_eq!(one.iter().map(|(nlri, _)| *nlri).collect::<Vec<_>>(), [nlri(2)]);
    assert_eq!(bench.adj_rib_in.held(Some(nlri(3).prefix)), []);
    bench.adj_rib_in.refresh_begins(v4);
    assert_eq!(bench.adj_rib_in.omitted(v4), 0, "the peer tells everything again");
    bench.announce([3]);
    bench.lose(0);
    assert_eq!((bench.adj_rib_in.count(v4), bench.adj_rib_in.omitted(v4)), (0, 0));
}
