// SPDX-License-Identifier: Apache-2.0
//! The planner's virtual services in a world that does not cooperate: steps fail before, after or halfway through their effect, the process dies between
//! any two of them, nft and the kernel take turns as they like, others make, change and remove virtual services, take rules, marks, settings or the whole
//! record away, IPVS comes and goes, clients come and stay, intent changes at any time. The world is read anew for each plan.
//!
//! The world keeps the truth that the planner cannot see (who really made a virtual service, who is let in), and checks each plan and each step against
//! it. When the trouble ends, repeated planning must come to rest in exactly the state that the intent asks for.
//!
//! What no program can decide is left out: a virtual service that somebody else makes while we do not look where ours was just there, or where our entry
//! stands and this process ends before it has taken that out. Whose addresses are is the matter of `convergence.rs`: here others only remove them.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "balancing_model/checks.rs"]
mod checks;
#[path = "balancing_model/node.rs"]
mod node;
#[path = "balancing_model/ranges.rs"]
mod ranges;
#[path = "common/story.rs"]
mod story;
#[path = "balancing_model/world.rs"]
mod world;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use bgp::Prefix;
use ipvs::Weight;
use proptest::prelude::*;
use vipherald::api::{ForwardingMethod, Kind, ObjectRef, PortRange, Protocol, Scheduler};
use vipherald::desired::{DesiredVirtualService, Filter, Lifecycle, Scheduling, ServiceKey, VipIntent, WithholdReason};
use vipherald::sysctl::Sysctl;

use self::story::tell;
use self::world::World;

const VIPS: [&str; 3] = ["10.0.0.1", "10.0.0.2", "2001:db8::1"];
/// Of these, four are long ranges of ports, of which one has ports in common with two others, and a single port is in two of them: only one of those with a port
/// in common is wanted at a time.
const SERVICES: [(&str, Protocol, i64, i64); 10] = [
    ("10.0.0.1", Protocol::Tcp, 80, 80),
    ("10.0.0.1", Protocol::Udp, 53, 53),
    ("10.0.0.1", Protocol::Tcp, 1000, 1999),
    ("10.0.0.2", Protocol::Tcp, 443, 443),
    ("10.0.0.2", Protocol::Tcp, 444, 444),
    ("2001:db8::1", Protocol::Tcp, 80, 80),
    ("2001:db8::1", Protocol::Udp, 5000, 5999),
    ("10.0.0.1", Protocol::Tcp, 1500, 2499),
    ("10.0.0.1", Protocol::Tcp, 1600, 1600),
    ("10.0.0.1", Protocol::Tcp, 1000, 1499),
];
const SERVERS: usize = 4;
const SCHEDULERS: [Scheduler; 4] =
    [Scheduler::RoundRobin, Scheduler::WeightedLeastConnection, Scheduler::SourceHashing, Scheduler::MaglevHashing];
/// Clients come from the first two of these, and from elsewhere.
const CLIENTS: [[&str; 2]; 3] = [["192.0.2.1", "2001:db8:2::1"], ["198.51.100.1", "2001:db8:3::1"], ["203.0.113.1", "2001:db8:4::1"]];
const FIRST_MARKS: [u32; 2] = [64, 2048];
const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);

#[test]
fn no_step_breaks_the_promise_and_planning_comes_to_rest() {
    let expected = [
        "add",
        "advertise",
        "change",
        "change early",
        "close",
        "close what is given up",
        "confirm",
        "connections over",
        "crash between steps",
        "disowned",
        "drop",
        "failed",
        "failed after effect",
        "failed halfway",
        "filtered",
        "foreign at rest",
        "given up",
        "handed over",
        "handed on",
        "hashed at rest",
        "left behind without proof",
        "lost while planned",
        "mark of others passed by",
        "marked",
        "merge",
        "move",
        "nft last",
        "open",
        "pending",
        "place",
        "remade with another mark",
        "retire",
        "retired",
        "remove after the address",
        "repair",
        "repair that waits",
        "rules",
        "rules halfway",
        "rules that hand over",
        "split",
        "sysctl",
        "taken over",
        "waived",
        "withdraw",
        "without IPVS at rest",
    ];
    let story = prop::collection::vec(op(), 1..45);
    tell(&story, 2492, &expected, |ops| {
        let mut world = World::new();
        for op in ops {
            world.happen(op);
        }
        world.come_to_rest_in_every_lifecycle();
        world.seen
    });
}

/// Few of the stories above come to this.
#[test]
fn connections_have_their_time_where_somebody_else_balances_from_now_on() {
    let key = services()[3];
    let mut world = World::new();
    serve(&mut world, key, &[0], Filter::NONE);
    (0..6).for_each(|_| world.happen(Op::Plan(Trouble::default())));
    world.happen(Op::Connect(key.vip));
    world.happen(Op::Balancing(false));
    world.come_to_rest_in_every_lifecycle();
    assert!(world.seen.contains("handed over with connections"), "{:?}", world.seen);
}

#[test]
fn connections_have_their_time_where_their_real_server_goes() {
    let key = services()[3];
    let mut world = World::new();
    serve(&mut world, key, &[0, 1], Filter::NONE);
    (0..6).for_each(|_| world.happen(Op::Plan(Trouble::default())));
    world.happen(Op::Connect(key.vip));
    world.happen(Op::Server(key, 1, None));
    world.come_to_rest_in_every_lifecycle();
    assert!(world.seen.contains("connections outlast the bound"), "{:?}", world.seen);
}

#[test]
fn connections_have_their_time_where_a_single_port_is_taken_out_of_a_range() {
    let (range, single) = (services()[2], services()[8]);
    let mut world = World::new();
    serve(&mut world, range, &[0, 1], Filter::NONE);
    (0..6).for_each(|_| world.happen(Op::Plan(Trouble::default())));
    world.happen(Op::Connect(range.vip));
    serve(&mut world, single, &[0, 1], Filter::NONE);
    world.come_to_rest_in_every_lifecycle();
    assert!(world.seen.contains("handed on with connections"), "{:?}", world.seen);
}

#[test]
fn a_change_that_somebody_else_overtakes_is_refused_and_planned_anew() {
    let key = services()[3];
    let mut world = World::new();
    serve(&mut world, key, &[0, 1], Filter::NONE);
    (0..6).for_each(|_| world.happen(Op::Plan(Trouble::default())));
    world.happen(Op::Server(key, 1, Some(3)));
    let overtaken = Some((0, Outside::RemoveServer(key, 1)));
    world.happen(Op::Plan(Trouble { outside_before: overtaken, ..Trouble::default() }));
    world.come_to_rest_in_every_lifecycle();
    assert!(world.seen.contains("refused"), "{:?}", world.seen);
}

/// A range of ports is split, and the parts become one again, with connections in each.
#[test]
fn ranges_that_are_split_and_joined_keep_their_connections() {
    let vip = services()[2].vip;
    for halfway in [None, Some(Fault::WithoutEffect), Some(Fault::AfterEffect)] {
        let mut world = World::new();
        world.happen(Op::Ranges(vec![2], vec![0, 1]));
        (0..8).for_each(|_| world.happen(Op::Plan(Trouble::default())));
        for ranges in [vec![9, 7], vec![2]] {
            world.happen(Op::Connect(vip));
            world.happen(Op::Ranges(ranges.clone(), vec![0, 1]));
            for _ in 0..8 {
                let faults = halfway.into_iter().chain([Fault::None, Fault::None]).collect();
                world.happen(Op::Plan(Trouble { faults, ..Trouble::default() }));
                world.happen(Op::AdvanceToWake);
            }
            world.settle(60);
            let services = services();
            let wanted: BTreeSet<ServiceKey> = ranges.iter().map(|range| services[*range]).collect();
            assert_eq!(world.node.record.confirmed_services, wanted);
        }
        world.come_to_rest_in_every_lifecycle();
        for event in ["split", "merge", "retire", "retired with connections"] {
            assert!(world.seen.contains(event), "{event}: {:?}", world.seen);
        }
    }
}

/// A daemon is killed between two transactions of the rules, each of them in turn, on the way to somebody else and back.
#[test]
fn what_an_end_between_two_transactions_leaves_is_ended_by_the_next_process() {
    let key = services()[3];
    for transactions in 0..3 {
        let mut world = World::new();
        serve(&mut world, key, &[0], Filter::NONE);
        (0..8).for_each(|_| world.happen(Op::Plan(Trouble::default())));
        world.transactions = transactions;
        for balances in [false, true] {
            world.happen(Op::Connect(key.vip));
            world.happen(Op::Balancing(balances));
            for crash_before in 1..4 {
                world.happen(Op::Plan(Trouble { faults: vec![Fault::Halfway; 3], crash_before: Some(crash_before), ..Trouble::default() }));
                world.happen(Op::AdvanceToWake);
            }
            world.happen(Op::Crash);
            world.happen(Op::Session(true));
            (0..12).for_each(|_| world.happen(Op::Plan(Trouble::default())));
        }
        world.come_to_rest_in_every_lifecycle();
        assert!(world.seen.contains("rules halfway"), "{:?}", world.seen);
    }
}

/// After the crash nothing tells that nobody else balances the VIP of the range of ports; rules wait for the filter to go that the other service had.
#[test]
fn a_vip_that_somebody_else_may_balance_has_virtual_services_once_there_are_rules() {
    let (filtered, range) = (services()[3], services()[6]);
    let mut world = World::new();
    serve(&mut world, filtered, &[], Filter::NONE);
    serve(&mut world, range, &[3], Filter::NONE);
    (0..6).for_each(|_| world.happen(Op::Plan(Trouble::default())));
    world.happen(Op::Filter(filtered, nobody()));
    world.happen(Op::Outside(Outside::FlushRecord));
    world.happen(Op::Plan(Trouble::default()));
    world.happen(Op::Crash);
    world.come_to_rest_in_every_lifecycle();
}

#[test]
fn a_vip_waits_for_rules_that_look_at_who_comes() {
    for complete in [true, false] {
        let key = services()[0];
        let mut world = World::new();
        serve(&mut world, key, &[], nobody());
        (0..6).for_each(|_| world.happen(Op::Plan(Trouble::default())));
        world.happen(Op::Outside(Outside::Rules(RulesOf::Somebody)));
        world.happen(Op::Balancing(false));
        world.happen(Op::Complete(complete));
        world.happen(Op::Plan(Trouble { nft_last: true, ..Trouble::default() }));
        world.come_to_rest_in_every_lifecycle();
    }
}

/// A single port that a crash and the loss of the record have left without proof, and that is not wanted any more, is no sign that we balance its VIP.
#[test]
fn what_nobody_knows_to_be_ours_is_somebody_elses() {
    let (single, range) = (services()[8], services()[7]);
    let mut world = World::new();
    world.happen(Op::Plan(Trouble::default()));
    serve(&mut world, single, &[], nobody());
    world.happen(Op::Vip(single.vip, Some(VipIntent::Serve { without_endpoints: true })));
    world.happen(Op::Plan(Trouble { faults: vec![Fault::AfterEffect], ..Trouble::default() }));
    world.happen(Op::Plan(Trouble::default()));
    world.happen(Op::Outside(Outside::MakeService(single)));
    world.happen(Op::Plan(Trouble { crash_before: Some(0), ..Trouble::default() }));
    world.happen(Op::Vip(services()[3].vip, Some(VipIntent::Serve { without_endpoints: false })));
    world.happen(Op::Flush(2));
    serve(&mut world, range, &[2], Filter::NONE);
    world.happen(Op::Vip(single.vip, Some(VipIntent::Serve { without_endpoints: true })));
    world.happen(Op::Outside(Outside::Unset(Sysctl::Ipv4Forward)));
    world.come_to_rest_in_every_lifecycle();
}

/// The VIP is to be served, with this virtual service.
fn serve(world: &mut World, key: ServiceKey, servers: &[usize], filter: Filter) {
    world.happen(Op::Service(key, Some(by_turns(key, servers, filter))));
    world.happen(Op::Vip(key.vip, Some(VipIntent::Serve { without_endpoints: false })));
}

fn by_turns(key: ServiceKey, servers: &[usize], filter: Filter) -> DesiredVirtualService {
    DesiredVirtualService {
        owner: ObjectRef { kind: Kind::EricIngress, namespace: "default".to_owned(), name: "a".to_owned() },
        scheduling: Scheduling::of(Scheduler::RoundRobin),
        forwarding: ForwardingMethod::Masquerade,
        real_servers: servers.iter().map(|server| (address(key, *server), Weight(1))).collect(),
        filter,
    }
}

/// Nobody may come.
const fn nobody() -> Filter {
    Filter { sources: Some(BTreeSet::new()), preserves_client: false }
}

#[derive(Clone, Debug)]
enum Op {
    Vip(IpAddr, Option<VipIntent>),
    Service(ServiceKey, Option<DesiredVirtualService>),
    /// These of the services are the ranges of ports of the VIP that has several, with these real servers.
    Ranges(Vec<usize>, Vec<usize>),
    /// One real server comes, changes its weight, or goes.
    Server(ServiceKey, usize, Option<u32>),
    Filter(ServiceKey, Filter),
    Balancing(bool),
    FirstMark(u32),
    Complete(bool),
    Lifecycle(Lifecycle),
    Plan(Trouble),
    Advance(u64),
    AdvanceToWake,
    Acknowledge,
    Session(bool),
    Connect(IpAddr),
    Disconnect(ServiceKey),
    Outside(Outside),
    /// Somebody flushes the record, and one of the next steps has no effect.
    Flush(usize),
    /// Somebody removes a virtual service again and again.
    Fight(ServiceKey),
    Crash,
}

/// What goes wrong while a plan is carried out.
#[derive(Clone, Debug, Default)]
struct Trouble {
    faults: Vec<Fault>,
    crash_before: Option<usize>,
    outside_before: Option<(usize, Outside)>,
    /// nft is slower than the kernel; else it is faster.
    nft_last: bool,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Fault {
    None,
    WithoutEffect,
    AfterEffect,
    /// Of a batch only the first half is carried out.
    Halfway,
}

/// What others do to the node.
#[derive(Clone, Debug)]
enum Outside {
    MakeService(ServiceKey),
    MakeMark(u32, bool),
    RemoveService(ServiceKey),
    RemoveTheirs,
    SetScheduler(ServiceKey, Scheduler),
    Weigh(ServiceKey, usize, u32),
    AddServer(ServiceKey, usize),
    RemoveServer(ServiceKey, usize),
    RemoveAddress(IpAddr),
    FlushRecord,
    Rules(RulesOf),
    RemoveMark(ServiceKey),
    Ipvs(bool),
    Unset(Sysctl),
    /// Whether one of the real servers is on a link of this node.
    OnLink(bool),
}

/// What others leave of our rules.
#[derive(Clone, Copy, Debug)]
enum RulesOf {
    Nobody,
    Somebody,
}

fn op() -> impl Strategy<Value = Op> {
    let serve = |without_endpoints| Some(VipIntent::Serve { without_endpoints });
    let intent = one_of(&[(None, 1), (serve(false), 6), (serve(true), 1), (Some(VipIntent::Withhold(WithholdReason::NoEndpoints)), 1)]);
    let lifecycle = one_of(&[(Lifecycle::Run, 8), (Lifecycle::Drain, 2), (Lifecycle::Standby, 1)]);
    let server = (service(), 0..SERVERS, prop::option::weighted(0.7, weight()));
    // What comes first costs least to make.
    prop_oneof![
        10 => any::<bool>().prop_map(|nft_last| Op::Plan(Trouble { nft_last, ..Trouble::default() })),
        12 => trouble().prop_map(Op::Plan),
        5 => (vip(), intent).prop_map(|(vip, intent)| Op::Vip(vip, intent)),
        8 => wish().prop_map(|(key, wish)| Op::Service(key, wish)),
        3 => ranges(),
        4 => server.prop_map(|(key, server, weight)| Op::Server(key, server, weight)),
        2 => (service(), filter()).prop_map(|(key, filter)| Op::Filter(key, filter)),
        1 => prop::bool::weighted(0.8).prop_map(Op::Balancing),
        1 => prop::sample::select(FIRST_MARKS.to_vec()).prop_map(Op::FirstMark),
        1 => prop::bool::weighted(0.7).prop_map(Op::Complete),
        1 => lifecycle.prop_map(Op::Lifecycle),
        2 => (1_u64..5_000).prop_map(Op::Advance),
        4 => Just(Op::AdvanceToWake),
        2 => Just(Op::Acknowledge),
        3 => prop::bool::weighted(0.8).prop_map(Op::Session),
        6 => vip().prop_map(Op::Connect),
        1 => service().prop_map(Op::Disconnect),
        7 => outside().prop_map(Op::Outside),
        1 => (0_usize..3).prop_map(Op::Flush),
        1 => service().prop_map(Op::Fight),
        1 => Just(Op::Crash),
    ]
}

fn trouble() -> impl Strategy<Value = Trouble> {
    let fault = one_of(&[(Fault::None, 12), (Fault::WithoutEffect, 1), (Fault::AfterEffect, 1), (Fault::Halfway, 1)]);
    let faults = prop::collection::vec(fault, 0..8);
    let crash = prop::option::weighted(0.05, 0_usize..6);
    let outside = prop::option::weighted(0.25, (0_usize..4, outside()));
    (faults, crash, outside, any::<bool>()).prop_map(|(faults, crash_before, outside_before, nft_last)| Trouble {
        faults,
        crash_before,
        outside_before,
        nft_last,
    })
}

fn outside() -> impl Strategy<Value = Outside> {
    let scheduler = prop::sample::select(SCHEDULERS.to_vec());
    let rules = prop::sample::select(vec![RulesOf::Nobody, RulesOf::Somebody]);
    prop_oneof![
        3 => service().prop_map(Outside::MakeService),
        2 => (64_u32..67, any::<bool>()).prop_map(|(mark, v4)| Outside::MakeMark(mark, v4)),
        5 => service().prop_map(Outside::RemoveService),
        1 => Just(Outside::RemoveTheirs),
        1 => (service(), scheduler).prop_map(|(key, scheduler)| Outside::SetScheduler(key, scheduler)),
        1 => (service(), 0..SERVERS, weight()).prop_map(|(key, server, weight)| Outside::Weigh(key, server, weight)),
        1 => (service(), 0..SERVERS).prop_map(|(key, server)| Outside::AddServer(key, server)),
        2 => (service(), 0..SERVERS).prop_map(|(key, server)| Outside::RemoveServer(key, server)),
        1 => vip().prop_map(Outside::RemoveAddress),
        2 => Just(Outside::FlushRecord),
        2 => rules.prop_map(Outside::Rules),
        1 => service().prop_map(Outside::RemoveMark),
        1 => prop::bool::weighted(0.6).prop_map(Outside::Ipvs),
        1 => prop::sample::select(Sysctl::ALL.to_vec()).prop_map(Outside::Unset),
        1 => any::<bool>().prop_map(Outside::OnLink),
    ]
}

fn ranges() -> impl Strategy<Value = Op> {
    let ranges = one_of(&[(vec![2], 3), (vec![9, 7], 3), (vec![9], 1), (vec![7], 1), (vec![9, 8], 1)]);
    let servers = one_of(&[(vec![0, 1], 4), (vec![1, 2, 3], 1), (vec![], 1)]);
    (ranges, servers).prop_map(|(ranges, servers)| Op::Ranges(ranges, servers))
}

/// A virtual service, or that there is to be none.
fn wish() -> impl Strategy<Value = (ServiceKey, Option<DesiredVirtualService>)> {
    let scheduler = prop::sample::select(SCHEDULERS.to_vec());
    let forwarding = one_of(&[(ForwardingMethod::Masquerade, 3), (ForwardingMethod::DirectRouting, 1)]);
    let weights: [_; SERVERS] = std::array::from_fn(|_| one_of(&[(None, 4), (Some(0), 1), (Some(1), 4), (Some(3), 1)]));
    (service(), prop::bool::weighted(0.85), scheduler, forwarding, weights, filter()).prop_map(
        |(key, there, scheduler, forwarding, weights, filter)| {
            let servers = weights.into_iter().enumerate();
            let servers = servers.filter_map(|(server, weight)| Some((address(key, server), Weight(weight?))));
            let mut wish = DesiredVirtualService {
                owner: ObjectRef { kind: Kind::EricIngress, namespace: "default".to_owned(), name: "a".to_owned() },
                scheduling: Scheduling::of(scheduler),
                forwarding,
                real_servers: servers.collect(),
                filter,
            };
            make_possible(key, &mut wish);
            (key, there.then_some(wish))
        },
    )
}

/// A protocol without connections has no quiesced real servers.
fn make_possible(key: ServiceKey, wish: &mut DesiredVirtualService) {
    if key.protocol == Protocol::Udp {
        wish.real_servers.retain(|_, weight| !weight.is_quiesced());
    }
}

fn weight() -> impl Strategy<Value = u32> {
    one_of(&[(0, 1), (1, 3), (3, 1)])
}

/// One of these values, each as often as it says: costs a single draw, where `prop_oneof` costs one for each.
fn one_of<T: Clone + std::fmt::Debug + 'static>(values: &[(T, usize)]) -> impl Strategy<Value = T> + use<T> {
    prop::sample::select(values.iter().flat_map(|(value, times)| std::iter::repeat_n(value.clone(), *times)).collect::<Vec<T>>())
}

fn filter() -> impl Strategy<Value = Filter> {
    let sources = one_of(&[(None, 4), (Some(0), 1), (Some(1), 2), (Some(2), 1)]);
    let sources =
        sources.prop_map(|count| count.map(|count| CLIENTS[..count].iter().flatten().map(|client| Prefix::host(ip(client))).collect()));
    (sources, prop::bool::weighted(0.2)).prop_map(|(sources, preserves_client)| Filter { sources, preserves_client })
}

fn vip() -> impl Strategy<Value = IpAddr> {
    prop::sample::select(VIPS.map(ip).to_vec())
}

fn service() -> impl Strategy<Value = ServiceKey> {
    prop::sample::select(services())
}

fn services() -> Vec<ServiceKey> {
    let key = |(vip, protocol, first, last)| ServiceKey { vip: ip(vip), protocol, ports: PortRange::new(first, last).unwrap() };
    SERVICES.map(key).into()
}

fn shares_ports(one: ServiceKey, other: ServiceKey) -> bool {
    (one.vip, one.protocol) == (other.vip, other.protocol) && one.ports.overlaps(other.ports)
}

fn is_range(key: ServiceKey) -> bool {
    key.ports.count() > 1
}

/// A real server of this service. In a range of ports a packet keeps its port.
fn address(key: ServiceKey, server: usize) -> SocketAddr {
    let host = if key.vip.is_ipv4() { format!("10.1.0.{}", server + 1) } else { format!("2001:db8:1::{}", server + 1) };
    SocketAddr::new(ip(&host), if is_range(key) { 0 } else { 8080 })
}

/// Which of the clients these sources admit.
fn admitted(vip: IpAddr, sources: Option<&BTreeSet<Prefix>>) -> BTreeSet<usize> {
    let family = usize::from(!vip.is_ipv4());
    let admits = |client: &usize| sources.is_none_or(|sources| sources.iter().any(|prefix| prefix.contains(ip(CLIENTS[*client][family]))));
    (0..CLIENTS.len()).filter(admits).collect()
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

type Wishes = BTreeMap<ServiceKey, DesiredVirtualService>;
