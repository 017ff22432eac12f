// SPDX-License-Identifier: Apache-2.0
//! What goldens cannot show well: times at their limits, doubtful input, and many VIPs. The rules themselves are under `tests/plan`.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};

use bgp::Asn;
use ipvs::{Timeouts, Weight};

use super::*;
use crate::api::{ForwardingMethod, Kind, ObjectRef, PortRange, Protocol, Scheduler};
use crate::desired::{Aggregate, DesiredBalancing, DesiredBgp, DesiredVip, DrainTimes, Routing, Scheduling, VirtualRouting};
use crate::observed::{
    ADDRESS_PROTOCOL, Failure, InterfaceState, IpvsAvailability, KernelState, ObservedAddress, ObservedRealServer, ObservedSpeaker,
    ObservedVirtualService, Record, ServiceMode,
};

const FABRIC_DELAY: Duration = Duration::from_secs(1);
const TIMEOUT: Duration = Duration::from_secs(25);

/// An intent without VIPs and peers.
pub(super) fn desired() -> Desired {
    Desired {
        complete: true,
        lifecycle: Lifecycle::Run,
        vips: BTreeMap::new(),
        balancing: None,
        found: Vec::new(),
        bgp: DesiredBgp::new(Asn::new(65001).unwrap()),
        routing: Routing::default(),
        vrrp: VirtualRouting::default(),
        real_server_drain: Duration::ZERO,
        drain: DrainTimes { graceful_shutdown: Duration::ZERO, fabric_delay: FABRIC_DELAY, timeout: TIMEOUT },
    }
}

/// An observation of nothing but the kernel.
pub(super) fn of_kernel(kernel: KernelState) -> Observed {
    Observed { kernel, ..Observed::default() }
}

/// Adds a VIP to be served.
pub(super) fn serve(desired: &mut Desired, vip: IpAddr) {
    let intent = VipIntent::Serve { without_endpoints: false };
    desired.vips.insert(vip, DesiredVip { owners: BTreeSet::new(), intent, policy: None });
}

/// The VIP of this number.
fn vip(number: u32) -> IpAddr {
    IpAddr::V4(Ipv4Addr::from_bits(0x0a00_0000 | number))
}

/// A node that serves these VIPs, with everything in place since `started`.
fn serving(vips: &[IpAddr], desired: &Desired, started: Instant) -> Observed {
    let speaker = ObservedSpeaker {
        advertised: Some(Arc::new(vips.iter().copied().map(Prefix::host).collect())),
        configured: Some(Arc::new(desired.bgp.clone())),
        ..ObservedSpeaker::default()
    };
    Observed {
        kernel: KernelState {
            interface: InterfaceState::Up,
            addresses: vips.iter().map(|vip| (*vip, ObservedAddress { prefix_length: 32, protocol: Some(ADDRESS_PROTOCOL) })).collect(),
            address_protocols: true,
            claimed_by_others: BTreeSet::new(),
            gateways: BTreeSet::new(),
            unusable: BTreeSet::new(),
            elsewhere: BTreeSet::from([IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1))]),
            record: Record { exists: true, pending: BTreeSet::new(), confirmed: vips.iter().copied().collect(), ..Record::default() },
            ..KernelState::default()
        },
        speaker,
        announcements: vips.iter().map(|vip| (Prefix::host(*vip), Since { value: Announcement::Advertised, since: started })).collect(),
        started: Some(started),
        ..Observed::default()
    }
}

/// One address of ours that nobody wants, its withdrawal in this state.
fn leaving(value: Announcement, since: Instant) -> Observed {
    let mut observed = serving(&[vip(1)], &desired(), since);
    observed.speaker.advertised = Some(Arc::default());
    observed.announcements.insert(Prefix::host(vip(1)), Since { value, since });
    observed
}

#[test]
fn retries_are_spaced_twice_as_far_each_time_up_to_30_seconds() {
    let start = Instant::now();
    let mut desired = desired();
    serve(&mut desired, vip(1));
    let mut observed = serving(&[], &desired, start);
    observed.kernel.record.confirmed.insert(vip(1));
    for (count, wait) in [(0, 100), (1, 100), (2, 200), (3, 400), (8, 12_800), (9, 25_600), (10, 30_000), (u32::MAX, 30_000)] {
        observed.failures.insert(StepKey::Address(vip(1)), Failure { error: String::new(), count, since: start, last: start });
        let due = start + Duration::from_millis(wait);
        let early = plan(&desired, &observed, due - Duration::from_millis(1));
        assert_eq!(early, Plan { wake_at: Some(due), ..Plan::default() }, "after {count} failures");
        assert_eq!(plan(&desired, &observed, due).steps, [Step::AddAddress(vip(1))], "after {count} failures");
    }
}

#[test]
fn a_change_that_the_kernel_refused_holds_up_no_other() {
    let start = Instant::now();
    let service = ServiceKey { vip: vip(1), protocol: Protocol::Tcp, ports: PortRange::new(80, 80).unwrap() };
    let server = |number: u32| SocketAddr::new(vip(1_000 + number), 80);
    let wanted = |servers: &[u32]| {
        let mut desired = desired();
        serve(&mut desired, vip(1));
        let of_service = DesiredVirtualService {
            owner: ObjectRef { kind: Kind::Service, namespace: "default".to_owned(), name: "web".to_owned() },
            scheduling: Scheduling::of(Scheduler::RoundRobin),
            forwarding: ForwardingMethod::Masquerade,
            real_servers: servers.iter().map(|number| (server(*number), Weight::default())).collect(),
            filter: Filter::NONE,
        };
        desired.balancing = Some(DesiredBalancing {
            services: [(service, of_service)].into(),
            rules: Rules::default(),
            set_sysctls: true,
            timeouts: Timeouts::default(),
            gue_port: 6080,
            sync: BTreeMap::new(),
            external_interface: None,
        });
        desired
    };
    let mut observed = serving(&[vip(1)], &wanted(&[1]), start);
    observed.kernel.balancer.availability = IpvsAvailability::Available;
    observed.kernel.record.confirmed_services.insert(service);
    observed.kernel.record.rules = Rules::default().fingerprint();
    observed.kernel.sysctls = Sysctl::ALL.into_iter().map(|setting| (setting, setting.wanted().to_owned())).collect();
    let real_server = ObservedRealServer {
        address: server(1),
        forwarding: Some(ForwardingMethod::Masquerade),
        weight: Weight::default(),
        connections: 0,
    };
    let mode = ServiceMode { scheduling: Scheduling::of(Scheduler::RoundRobin), fallback: false };
    observed.kernel.balancer.services.insert(service, ObservedVirtualService { mode: Some(mode), real_servers: vec![real_server] });

    let changes = |servers: &[u32], observed: &Observed, now| -> Vec<Step> {
        let steps = plan(&wanted(servers), observed, now).steps;
        steps.into_iter().filter(|step| matches!(step, Step::ChangeVirtualService(..))).collect()
    };
    let refused = changes(&[1, 2], &observed, start);
    observed.refuse(&refused[0], &std::io::Error::other("no"), start);
    assert!(changes(&[1, 2], &observed, start).is_empty(), "it waits");
    assert_eq!(changes(&[1, 2], &observed, start + Duration::from_millis(100)), refused);
    assert_eq!(changes(&[1, 2, 3], &observed, start).len(), 1, "another change does not");
    assert_eq!(changes(&[3], &observed, start).len(), 1);

    let mut unwanted = wanted(&[1]);
    unwanted.balancing.as_mut().unwrap().services.clear();
    let remove = Step::RemoveVirtualService(service);
    observed.kernel.record.closed.insert(service);
    assert!(plan(&unwanted, &observed, start).steps.contains(&remove), "nor its removal");
    observed.refuse(&remove, &std::io::Error::other("no"), start);
    assert!(!plan(&unwanted, &observed, start).steps.contains(&remove), "it waits");
}

#[test]
fn times_are_met_to_the_moment() {
    let start = Instant::now();
    for (value, delay) in [(Announcement::Withdrawn, FABRIC_DELAY), (Announcement::Withdrawing, TIMEOUT)] {
        let mut observed = leaving(value, start);
        if value == Announcement::Withdrawing {
            observed.speaker.withdrawing.insert(Prefix::host(vip(1)));
        }
        let early = plan(&desired(), &observed, start + delay - Duration::from_nanos(1));
        assert_eq!(early, Plan { wake_at: Some(start + delay), ..Plan::default() });
        let due = plan(&desired(), &observed, start + delay);
        assert_eq!(due.steps, [Step::RemoveAddress(vip(1))]);
        assert_eq!(due.forced.contains(&vip(1)), value == Announcement::Withdrawing);
    }
}

#[test]
fn a_delay_beyond_all_time_never_comes() {
    let start = Instant::now();
    let mut desired = desired();
    desired.drain = DrainTimes { graceful_shutdown: Duration::ZERO, fabric_delay: Duration::MAX, timeout: Duration::MAX };
    for value in [Announcement::Withdrawn, Announcement::Withdrawing] {
        assert_eq!(plan(&desired, &leaving(value, start), start), Plan::default());
    }
}

#[test]
fn where_speaker_and_times_disagree_the_address_stays() {
    let start = Instant::now();
    let later = start + 2 * TIMEOUT;
    let mut observed = leaving(Announcement::Withdrawn, start);
    assert_eq!(plan(&desired(), &observed, later).steps, [Step::RemoveAddress(vip(1))]);
    observed.speaker.withdrawing.insert(Prefix::host(vip(1)));
    assert_eq!(plan(&desired(), &observed, later), Plan { wake_at: Some(later + TIMEOUT), ..Plan::default() });
    observed.speaker.advertised = Some(Arc::new(RouteSet::from_iter([Prefix::host(vip(1))])));
    assert_eq!(plan(&desired(), &observed, later).steps, [Step::Advertise(Arc::default())]);
    let observed = leaving(Announcement::Advertised, start);
    assert_eq!(plan(&desired(), &observed, later), Plan::default());
    let mut observed = serving(&[vip(1)], &desired(), start);
    observed.announcements.clear();
    observed.speaker.advertised = Some(Arc::default());
    observed.started = None;
    assert_eq!(plan(&desired(), &observed, later), Plan { wake_at: Some(later + FABRIC_DELAY), ..Plan::default() });
}

#[test]
fn what_takes_over_from_a_route_is_told_to_every_neighbour_first() {
    let start = Instant::now();
    let around = Prefix::new(Ipv4Addr::new(10, 0, 0, 0).into(), 24).unwrap();
    let [mut alone, mut suppressed] = [desired(), desired()];
    [&mut alone, &mut suppressed].into_iter().for_each(|desired| serve(desired, vip(1)));
    suppressed.routing.aggregates.insert(around, Aggregate { policy: None, suppress: true });
    let set = |prefixes: &[Prefix], covered: &[IpAddr]| RouteSet {
        covered: covered.iter().copied().collect(),
        ..prefixes.iter().copied().collect()
    };
    let both = set(&[around, Prefix::host(vip(1))], &[]);
    for (wanted, end) in [(alone, set(&[Prefix::host(vip(1))], &[])), (suppressed, set(&[around], &[vip(1)]))] {
        let mut observed = serving(&[vip(1)], &wanted, start);
        observed.speaker.advertised = Some(Arc::new(both.clone()));
        observed.speaker.behind = true;
        assert_eq!(plan(&wanted, &observed, start).steps, [], "some neighbour has not heard of both");
        observed.speaker.behind = false;
        assert_eq!(plan(&wanted, &observed, start).steps, [Step::Advertise(Arc::new(end))]);
    }
}

#[test]
fn a_configuration_that_came_into_force_late_holds_up_no_vip() {
    let start = Instant::now();
    let mut wanted = desired();
    serve(&mut wanted, vip(1));
    let mut observed = serving(&[vip(1)], &wanted, start);
    observed.speaker.advertised = Some(Arc::default());
    observed.failures.insert(StepKey::Speaker, Failure { error: String::new(), count: 20, since: start, last: start });
    let set = Some(Arc::new(RouteSet::from_iter([Prefix::host(vip(1))])));
    assert_eq!(plan(&wanted, &observed, start).steps, [Step::ConfigureSpeaker(Arc::new(wanted.bgp.clone()), set)]);
}

#[test]
fn many_vips_take_no_time_to_speak_of() {
    const MANY: u32 = 20_000;
    let start = Instant::now();
    let vips: Vec<IpAddr> = (1..=MANY).map(vip).collect();
    let mut wanted = desired();
    for vip in &vips {
        serve(&mut wanted, *vip);
    }
    let set: BTreeSet<IpAddr> = vips.iter().copied().collect();
    let started = Instant::now();
    assert_eq!(plan(&wanted, &serving(&vips, &wanted, start), start), Plan::default());
    assert_eq!(plan(&wanted, &serving(&[], &wanted, start), start).steps, [Step::RecordPending(set.into())]);
    assert_eq!(plan(&desired(), &serving(&vips, &desired(), start), start).steps, [Step::Advertise(Arc::default())]);
    let mut gone = serving(&vips, &desired(), start);
    gone.speaker.advertised = Some(Arc::default());
    gone.announcements.clear();
    assert_eq!(plan(&desired(), &gone, start + FABRIC_DELAY).steps.len(), vips.len());
    // A quadratic planner takes minutes for this.
    assert!(started.elapsed() < Duration::from_secs(10), "{:?}", started.elapsed());
}

#[test]
fn failures_are_counted_under_what_a_step_is_about() {
    let keys = [
        (Step::Advertise(Arc::default()), StepKey::Advertise),
        (Step::RecordPending(BTreeSet::new().into()), StepKey::Record),
        (Step::RecordConfirmed(BTreeSet::new().into()), StepKey::Record),
        (Step::RecordRemoved(BTreeSet::new().into()), StepKey::Record),
        (Step::DropRecord, StepKey::Record),
        (Step::AddAddress(vip(1)), StepKey::Address(vip(1))),
        (Step::RemoveAddress(vip(1)), StepKey::Address(vip(1))),
        (Step::ConfigureSpeaker(Arc::new(desired().bgp), None), StepKey::Speaker),
        (Step::StopSpeaker, StepKey::Speaker),
        (Step::ReleaseSpeaker, StepKey::Speaker),
        (Step::ConfigureVirtualRouters(Arc::default()), StepKey::VirtualRouters),
        (Step::StopVirtualRouters, StepKey::VirtualRouters),
        (Step::SuspendVirtualRouters, StepKey::VirtualRouters),
    ];
    for (step, key) in keys {
        assert_eq!(step.key(), key, "{step}");
    }
}

#[test]
fn to_keep_is_to_close_the_sessions_and_nothing_else() {
    let start = Instant::now();
    let mut desired = Desired { lifecycle: Lifecycle::Keep, ..desired() };
    serve(&mut desired, vip(2));
    let mut observed = serving(&[vip(1)], &desired, start);
    assert_eq!(plan(&desired, &observed, start + TIMEOUT).steps, [Step::ReleaseSpeaker]);
    observed.speaker.configured = None;
    observed.speaker.open_sessions = 1;
    assert_eq!(plan(&desired, &observed, start + TIMEOUT), Plan::default());
    assert!(!has_left(&desired, &observed), "a session is still open");
    observed.speaker.open_sessions = 0;
    assert!(has_left(&desired, &observed));
    desired.lifecycle = Lifecycle::Drain;
    assert!(!has_left(&desired, &observed), "the address is still there");
    desired.lifecycle = Lifecycle::Run;
    assert!(!has_left(&desired, &observed));
}
