// SPDX-License-Identifier: Apache-2.0
//! Restarts of ours and of the peer: what OPENs say, how a session ends, and what is kept.

use super::*;
use crate::rib::{Learnt, Route};
use crate::wire::{Capability, GracefulRestart, Message, Update};

fn restart() -> RestartConfig {
    RestartConfig { restart_time: 60, ..RestartConfig::default() }
}

fn graceful(restart: RestartConfig) -> PeerConfig {
    PeerConfig { graceful_restart: Some(restart), import: Some(Import::default()), ..config() }
}

/// The OPEN of a peer with graceful restart.
fn open_of_peer(notification: bool) -> Open {
    let restart = RestartConfig { notification, ..restart() };
    Open { identifier: peer_open().identifier, ..graceful(restart).open() }
}

fn established(restart: RestartConfig, open: &Open) -> Bench {
    let mut bench = Bench::new(graceful(restart));
    bench.event(Event::Start);
    bench.establish(Role::Active, open);
    bench
}

/// The capability of the OPEN in a reply.
fn capability(actions: &[Action]) -> GracefulRestart {
    let open = actions.iter().find_map(|action| if let Action::Send { bytes, .. } = action { Some(bytes.clone()) } else { None });
    let mut deframer = crate::wire::Deframer::default();
    deframer.push(&open.unwrap());
    let Ok(Some(Message::Open(open))) = deframer.next(&Negotiated::before_open(asn(65001))) else { panic!("no OPEN") };
    let mut capabilities = open.capabilities.into_iter();
    capabilities.find_map(|capability| if let Capability::GracefulRestart(restart) = capability { Some(restart) } else { None }).unwrap()
}

fn learned(actions: &[Action]) -> Vec<&Learnt> {
    let all = actions.iter().filter_map(|action| if let Action::Learned(learnt) = action { Some(learnt) } else { None });
    all.flatten().collect()
}

/// All that was sent is read by the peer's host.
fn acknowledge(bench: &mut Bench) {
    bench.event(Event::Writable { role: Role::Active });
    bench.event(Event::Acknowledged { role: Role::Active, octets: u64::MAX });
}

fn prefixes(addresses: &[&str]) -> BTreeSet<Prefix> {
    addresses.iter().map(|address| host(address)).collect()
}

#[test]
fn rfc4724_section_3_the_bits_say_what_is_true_and_only_until_the_first_set_is_told() {
    let half = Forwarding { ipv4: true, ipv6: false };
    for (restarting, forwarding_preserved) in [(false, Forwarding::ALL), (true, Forwarding::ALL), (true, half), (true, Forwarding::NONE)] {
        let mut bench = Bench::new(graceful(RestartConfig { restarting, forwarding_preserved, ..restart() }));
        bench.event(Event::Start);
        let first = capability(&bench.connected(Role::Active));
        let Forwarding { ipv4, ipv6 } = forwarding_preserved;
        let families = [(Family::Ipv4Unicast, ipv4), (Family::Ipv6Unicast, ipv6)].into();
        assert_eq!(first, GracefulRestart { restarting, notification: true, restart_time: 60, families });
        bench.receive(Role::Active, open_of_peer(true).encode());
        bench.keepalive(Role::Active);
        bench.event(Event::Routes(rib(&["10.0.0.1"])));
        bench.event(Event::Closed { role: Role::Active });
        bench.pass_to_deadline();
        let second = capability(&bench.connected(Role::Active));
        assert_eq!((second.restarting, second.families), (false, Family::ALL.map(|family| (family, true)).into()));
    }
}

#[test]
fn rfc4724_section_4_1_the_restart_is_over_after_the_restart_time() {
    let mut bench = Bench::new(graceful(RestartConfig { restarting: true, forwarding_preserved: Forwarding::NONE, ..restart() }));
    bench.event(Event::Start);
    bench.event(Event::ConnectFailed { role: Role::Active });
    bench.pass(Duration::from_secs(60));
    let late = capability(&bench.connected(Role::Active));
    assert_eq!((late.restarting, late.families.values().any(|kept| *kept)), (false, false));
}

#[test]
fn rfc4724_section_4_1_end_of_rib_follows_the_first_set_without_waiting_for_the_peer() {
    let mut bench = established(RestartConfig { restarting: true, ..restart() }, &open_of_peer(true));
    let mut receiver = crate::rib::receiver::Receiver::new(bench.peer.negotiated().unwrap());
    for action in bench.event(Event::Routes(rib(&["10.0.0.1"]))) {
        let Action::Send { bytes, .. } = action else { panic!() };
        receiver.receive(&bytes);
    }
    assert_eq!(receiver.ends_of_rib(), Family::ALL);
}

#[test]
fn rfc4724_section_4_a_stop_that_keeps_routes_closes_without_a_notification() {
    for notification in [true, false] {
        let mut bench = established(restart(), &open_of_peer(notification));
        let actions = bench.event(Event::Stop(Stop::Keep));
        let role = Role::Active;
        assert_eq!(actions, [Action::Close { role }, Action::Down(DownReason::Kept), to(State::Established, State::Idle)]);
        assert_eq!(bench.event(Event::Tick), [], "down until Start");
    }
    let mut bench = Bench::established();
    assert_eq!(notified(&bench.event(Event::Stop(Stop::Keep))), Some((6, 2)), "a peer without graceful restart is told");
}

#[test]
fn rfc8538_section_3_1_an_end_for_good_is_a_hard_reset_where_both_keep_routes_after_a_notification() {
    let shutdown = || Event::Stop(Stop::AdministrativeShutdown { communication: None });
    assert_eq!(notified(&established(restart(), &open_of_peer(true)).event(shutdown())), Some((6, 9)));
    assert_eq!(notified(&established(restart(), &open_of_peer(false)).event(shutdown())), Some((6, 2)));
    assert_eq!(
        notified(&established(RestartConfig { notification: false, ..restart() }, &open_of_peer(true)).event(shutdown())),
        Some((6, 2))
    );
    for stop in [Stop::Deconfigured, Stop::ConfigurationChange] {
        let cease = stop.notification();
        let mut bench = established(restart(), &open_of_peer(true));
        bench.event(Event::Routes(rib(&["10.0.0.1"])));
        let actions = bench.event(Event::Stop(stop));
        let Some(DownReason::Sent { notification, .. }) = down(&actions) else { panic!("{actions:?}") };
        assert_eq!((notification.is_hard_reset(), notification.hard_reset_reason()), (true, Some(cease)));
        assert_eq!(bench.peer.stale_until(), None, "nothing of ours is left there");
    }
}

#[test]
fn rfc8538_section_5_1_a_reset_keeps_the_routes_and_what_the_peer_may_hold_is_known() {
    let mut bench = established(restart(), &open_of_peer(true));
    bench.event(Event::Routes(rib(&["10.0.0.1", "10.0.0.2"])));
    assert_eq!(notified(&bench.event(Event::Stop(Stop::AdministrativeReset))), Some((6, 4)));
    bench.event(Event::Routes(rib(&["10.0.0.2"])));
    assert_eq!(bench.peer.withdrawing(), prefixes(&["10.0.0.1"]));
    bench.pass_to_deadline();
    assert!(capability(&bench.connected(Role::Active)).families.values().all(|kept| *kept), "the peer is to keep them");
}

#[test]
fn rfc4724_section_4_2_after_a_loss_the_peer_may_hold_our_routes_for_hold_time_and_restart_time() {
    let mut bench = established(restart(), &open_of_peer(true));
    bench.event(Event::Routes(rib(&["10.0.0.1", "10.0.0.2"])));
    acknowledge(&mut bench);
    assert_eq!(bench.peer.stale_until(), None);
    bench.event(Event::Closed { role: Role::Active });
    assert_eq!(bench.peer.stale_until(), Some(bench.now + Duration::from_secs(69)));
    assert_eq!(bench.peer.withdrawing(), prefixes(&[]), "all of it is still wanted");
    bench.event(Event::Routes(rib(&["10.0.0.2"])));
    assert_eq!(bench.peer.withdrawing(), prefixes(&["10.0.0.1"]));
    bench.event(Event::Stop(Stop::AdministrativeShutdown { communication: None }));
    assert_eq!(bench.peer.deadline(), Some(bench.now + Duration::from_secs(69)));
    bench.pass_to_deadline();
    assert_eq!((bench.peer.stale_until(), bench.peer.withdrawing()), (None, prefixes(&[])));
}

#[test]
fn rfc4724_section_4_2_a_new_session_that_has_told_all_ends_what_the_peer_held_before() {
    let mut bench = established(restart(), &open_of_peer(true));
    bench.event(Event::Routes(rib(&["10.0.0.1", "10.0.0.2"])));
    bench.event(Event::Closed { role: Role::Active });
    bench.event(Event::Routes(rib(&["10.0.0.2"])));
    bench.pass_to_deadline();
    bench.establish(Role::Active, &open_of_peer(true));
    assert_eq!(bench.peer.withdrawing(), prefixes(&["10.0.0.1"]), "End-of-RIB is not acknowledged");
    acknowledge(&mut bench);
    assert_eq!((bench.peer.withdrawing(), bench.peer.stale_until()), (prefixes(&[]), None));
}

#[test]
fn rfc8538_section_4_what_the_peer_drops_is_not_withdrawing() {
    for (notification, received, kept) in [
        (true, Notification::cease(Cease::AdministrativeReset), true),
        (true, Notification::cease(Cease::AdministrativeReset).into_hard_reset(), false),
        (false, Notification::cease(Cease::AdministrativeReset), false),
        (true, Notification::hold_timer_expired(), true),
        (false, Notification::hold_timer_expired(), false),
    ] {
        let mut bench = established(restart(), &open_of_peer(notification));
        bench.event(Event::Routes(rib(&["10.0.0.1"])));
        bench.receive(Role::Active, update());
        let actions = bench.receive(Role::Active, received.encode());
        assert_eq!(bench.peer.stale_until().is_some(), kept, "{received} {notification}");
        assert_eq!(learned(&actions).is_empty(), kept, "the same for the peer's routes");
    }
    let mut bench = established(restart(), &open_of_peer(true));
    bench.event(Event::Routes(rib(&["10.0.0.1"])));
    bench.event(Event::Stop(Stop::AdministrativeShutdown { communication: None }));
    assert_eq!(bench.peer.stale_until(), None, "a Hard Reset");
}

#[test]
fn rfc4724_section_4_2_routes_of_a_peer_that_restarts_are_learned_once() {
    let mut bench = established(restart(), &open_of_peer(true));
    let actions = bench.receive(Role::Active, update());
    assert_eq!(learned(&actions).len(), 1);
    assert_eq!(learned(&bench.event(Event::Closed { role: Role::Active })), Vec::<&Learnt>::new());
    bench.pass_to_deadline();
    bench.connected(Role::Active);
    bench.receive(Role::Active, open_of_peer(true).encode());
    bench.keepalive(Role::Active);
    assert_eq!(learned(&bench.receive(Role::Active, update())), Vec::<&Learnt>::new(), "told again, and the same");
    bench.event(Event::Closed { role: Role::Active });
    let mut gone = Vec::new();
    for _ in 0..40 {
        gone.extend(learned(&bench.pass_to_deadline()).into_iter().cloned());
    }
    assert_eq!(gone, [(host("10.9.0.0").into(), None)]);
    assert!(bench.peer.is_forgotten());
}

#[test]
fn rfc4724_section_4_2_a_peer_without_the_capability_is_forgotten_at_once() {
    let mut bench = established(restart(), &peer_open());
    bench.receive(Role::Active, update());
    assert_eq!(learned(&bench.event(Event::Closed { role: Role::Active })), [&(host("10.9.0.0").into(), None)]);
}

#[test]
fn rfc4486_section_4_too_many_prefixes_end_the_session_and_a_higher_limit_brings_it_back() {
    for (notification, told) in [(false, (6, 1)), (true, (6, 9))] {
        let mut bench = Bench::new(PeerConfig { import: Some(limit(0)), ..graceful(restart()) });
        bench.event(Event::Start);
        bench.establish(Role::Active, &open_of_peer(notification));
        let actions = bench.receive(Role::Active, update());
        assert_eq!(notified(&actions), Some(told), "RFC 8538 §5.1");
        assert!(learned(&actions).iter().all(|(_, route)| route.is_none()));
        assert_eq!(bench.peer.adj_rib_in().unwrap().routes().count(), 0, "nothing is kept, not even as stale");
        after_too_many(bench);
    }
}

const RETRY: Duration = Duration::from_secs(5);

fn limit(limit: u32) -> Import {
    Import { max_prefixes: [(Family::Ipv4Unicast, limit)].into(), ..Import::default() }
}

/// A peer that rests because it has told one prefix where it may tell none.
fn after_too_many(mut bench: Bench) {
    assert_eq!(bench.peer.state(), State::Idle);
    let delay = bench.peer.deadline().unwrap() - bench.now;
    assert!(delay > Duration::from_secs(45) && delay <= Duration::from_secs(60), "{delay:?}");
    assert!(!bench.peer.is_forgotten() && !bench.peer.accepts(), "it stays away for so long, whoever dials");
    assert_eq!(bench.event(Event::Import(Some(limit(0)))), []);
    assert_eq!(bench.event(Event::Import(Some(limit(1))))[0], Action::Connect);
    bench.establish(Role::Active, &open_of_peer(true));
    assert_eq!(learned(&bench.receive(Role::Active, update())).len(), 1);
    assert_eq!(notified(&bench.event(Event::Import(Some(limit(0))))), Some((6, 9)), "a lower limit counts at once");
}

#[test]
fn rfc4486_section_4_only_another_limit_lets_a_peer_back_that_has_told_too_much() {
    let delay = |seconds| Import { restart_delay: Duration::from_secs(seconds), ..limit(0) };
    let mut bench = Bench::new(PeerConfig { import: Some(delay(600)), ..config() });
    bench.event(Event::Start);
    bench.establish(Role::Active, &peer_open());
    assert_eq!(notified(&bench.receive(Role::Active, update())), Some((6, 1)));
    let away = bench.peer.deadline();
    assert!(away.unwrap() - bench.now >= Duration::from_secs(450));
    for import in [delay(3600), Import { held_at_most: Some(7), ..delay(3600) }, Import { accept: false, ..delay(3600) }] {
        assert_eq!(bench.event(Event::Import(Some(import))), []);
        assert_eq!((bench.peer.state(), bench.peer.deadline()), (State::Idle, away), "neither shorter nor longer");
    }
    for connect_retry in [RETRY * 9, RETRY] {
        bench.event(Event::Timers { connect_retry, send_hold_time: None });
        assert_eq!(bench.peer.deadline(), away, "it does not go by ConnectRetryTime");
    }
    assert_eq!(bench.event(Event::Import(Some(delay(60)))), []);
    let left = bench.peer.deadline().unwrap() - bench.now;
    assert!(left > Duration::from_secs(45) && left <= Duration::from_secs(60), "a shorter delay ends one that is longer: {left:?}");
    bench.pass(Duration::from_secs(40));
    let away = bench.peer.deadline();
    assert_eq!(bench.event(Event::Import(Some(delay(50)))), []);
    assert_eq!(bench.peer.deadline(), away, "what is left of it is shorter");
    assert_eq!(bench.event(Event::Import(None))[0], Action::Connect, "no limit is another one");
}

#[test]
fn rfc4486_section_4_a_limit_counts_where_nothing_is_used_and_may_come_and_go_in_a_session() {
    let counted = |max| Import { accept: false, ..limit(max) };
    let mut bench = Bench::established();
    bench.receive(Role::Active, update());
    let refresh = |family| send(Role::Active, RouteRefresh::request(family).encode());
    assert_eq!(bench.event(Event::Import(Some(counted(1)))), Family::ALL.map(refresh), "what was told so far was not kept");
    assert_eq!(bench.receive(Role::Active, update()), [], "nothing is learned");
    let held: Vec<_> = bench.peer.adj_rib_in().unwrap().routes().map(|(_, held)| held.ineligible).collect();
    assert_eq!(held, [Some(crate::rib::Ineligible::NotImported)]);
    assert_eq!(bench.event(Event::Import(Some(counted(2)))), [], "what is held is enough to count");
    assert_eq!(bench.event(Event::Import(None)), []);
    assert!(bench.peer.adj_rib_in().is_none());
    bench.event(Event::Import(Some(counted(0))));
    assert_eq!(notified(&bench.receive(Role::Active, update())), Some((6, 1)));
}

#[test]
fn other_timers_need_no_other_session_and_shorten_a_wait() {
    let timers = |seconds| Event::Timers { connect_retry: Duration::from_secs(seconds), send_hold_time: Some(Duration::from_secs(20)) };
    let mut bench = Bench::new(PeerConfig { connect_retry: Duration::from_secs(3600), ..config() });
    bench.event(Event::Start);
    bench.event(Event::ConnectFailed { role: Role::Active });
    assert_eq!(bench.event(timers(3600)), []);
    assert!(bench.peer.deadline().unwrap() - bench.now >= Duration::from_secs(2700));
    assert_eq!(bench.event(timers(4)), []);
    assert!(bench.peer.deadline().unwrap() - bench.now <= Duration::from_secs(4));
    assert_eq!(bench.pass_to_deadline()[0], Action::Connect);
    bench.establish(Role::Active, &Open { hold_time: HoldTime::ZERO, ..peer_open() });
    assert_eq!(bench.event(timers(5)), []);
    bench.event(Event::Routes(rib(&["10.0.0.1"])));
    assert_eq!(bench.peer.deadline(), Some(bench.now + Duration::from_secs(20)), "RFC 9687 §4");
}

#[test]
fn a_peer_that_may_hold_routes_of_ours_is_not_forgotten() {
    let mut bench = established(restart(), &open_of_peer(true));
    bench.event(Event::Routes(rib(&["10.0.0.1"])));
    bench.event(Event::Closed { role: Role::Active });
    assert!(!bench.peer.is_forgotten());
    bench.event(Event::Stop(Stop::Deconfigured));
    bench.pass_to_deadline();
    assert!(bench.peer.is_forgotten(), "hold time and restart time are over");
}

#[test]
fn the_name_of_the_host_is_told_with_its_domain() {
    for (name, host, domain) in
        [("node-1", "node-1", ""), ("node-1.rack.example", "node-1", "rack.example"), (&*format!("n.{:065}", 0), "n", "")]
    {
        let open = PeerConfig { host_name: Some(name.to_owned()), ..config() }.open();
        assert!(open.capabilities.contains(&Capability::Fqdn { host: host.to_owned(), domain: domain.to_owned() }), "{name}: {open:?}");
    }
}

#[test]
fn rfc2918_section_3_a_refresh_is_asked_only_of_a_peer_that_understands() {
    let mut bench = established(restart(), &open_of_peer(true));
    let request = || Event::Refresh(Family::Ipv4Unicast);
    assert_eq!(bench.event(request()), [send(Role::Active, RouteRefresh::request(Family::Ipv4Unicast).encode())]);
    let mut plain = established(restart(), &Open { capabilities: vec![], ..peer_open() });
    assert_eq!(plain.event(request()), []);
}

#[test]
fn rfc7313_section_4_the_answer_to_a_refresh_is_marked_and_comes_after_end_of_rib() {
    let mut bench = established(restart(), &open_of_peer(true));
    assert_eq!(bench.receive(Role::Active, RouteRefresh::request(Family::Ipv4Unicast).encode()), [], "nothing is known yet");
    let types = |actions: &[Action]| {
        let mut deframer = crate::wire::Deframer::default();
        for action in actions {
            let Action::Send { bytes, .. } = action else { panic!("{action:?}") };
            deframer.push(bytes);
        }
        let negotiated = Negotiated::new(&open_of_peer(true), &graceful(restart()).open());
        let messages = std::iter::from_fn(|| deframer.next(&negotiated).unwrap());
        let types = messages.map(|message| match message {
            Message::Update(update) if update.is_end_of_rib() == Some(Family::Ipv4Unicast) => "end of v4",
            Message::Update(update) if update.is_end_of_rib().is_some() => "end of v6",
            Message::Update(Update { announced, .. }) if !announced.is_empty() => "route",
            Message::RouteRefresh(mark) if mark.begun().is_some() => "begin",
            Message::RouteRefresh(mark) if mark.ended().is_some() => "end",
            other @ (Message::Open(_) | Message::Update(_) | Message::Notification(_) | Message::Keepalive | Message::RouteRefresh(_)) => {
                panic!("{other:?}")
            }
        });
        types.collect::<Vec<_>>()
    };
    assert_eq!(types(&bench.event(Event::Routes(rib(&["10.0.0.1"])))), ["route", "end of v4", "end of v6", "begin", "route", "end"]);
    let again = bench.receive(Role::Active, RouteRefresh::request(Family::Ipv4Unicast).encode());
    assert_eq!(types(&again), ["begin", "route", "end"]);
    assert_eq!(bench.peer.counters().sent.route_refresh, 4);
}

#[test]
fn rfc9687_section_4_a_peer_that_reads_nothing_is_given_up_and_an_idle_one_is_not() {
    let send_hold_time = Some(Duration::from_secs(20));
    let mut bench = Bench::new(PeerConfig { send_hold_time, hold_time: HoldTime::ZERO, ..config() });
    bench.event(Event::Start);
    bench.establish(Role::Active, &peer_open());
    assert_eq!(bench.peer.timers().send_hold, Some(bench.now + Duration::from_secs(20)), "our OPEN and KEEPALIVE are outstanding");
    acknowledge(&mut bench);
    assert_eq!(bench.pass(Duration::from_secs(3600)), [], "nothing is outstanding");
    bench.event(Event::Routes(rib(&["10.0.0.1"])));
    bench.pass(Duration::from_secs(19));
    acknowledge(&mut bench);
    assert_eq!(bench.pass(Duration::from_secs(3600)), [], "all is taken");
    bench.event(Event::Routes(rib(&["10.0.0.2"])));
    assert_eq!(bench.peer.timers().send_hold, Some(bench.now + Duration::from_secs(20)));
    bench.pass(Duration::from_secs(5));
    bench.event(Event::Writable { role: Role::Active });
    bench.event(Event::Probe { role: Role::Active });
    assert_eq!(
        bench.peer.deadline(),
        Some(bench.now + Duration::from_secs(15)),
        "what the kernel takes and what is added count for nothing"
    );
    let actions = bench.pass_to_deadline();
    assert_eq!(actions[..2], [Action::Abort { role: Role::Active }, Action::Down(DownReason::SendHoldTimerExpired)]);
    assert_eq!(config().send_hold_time(seconds(90)), Duration::from_secs(480));
    assert_eq!(config().send_hold_time(seconds(600)), Duration::from_secs(1200));
}

#[test]
fn rfc9687_section_3_3_a_peer_that_takes_a_little_within_each_send_hold_time_is_kept() {
    let mut bench = Bench::new(PeerConfig { send_hold_time: Some(Duration::from_secs(20)), hold_time: HoldTime::ZERO, ..config() });
    bench.event(Event::Start);
    bench.establish(Role::Active, &peer_open());
    acknowledge(&mut bench);
    let before = bench.peer.connections.get(Role::Active).unwrap().sent;
    bench.event(Event::Routes(many(1000)));
    for octets in 1..=30 {
        assert_eq!(bench.pass(Duration::from_secs(19)), []);
        bench.event(Event::Acknowledged { role: Role::Active, octets: before + octets });
        assert_eq!(bench.peer.deadline(), Some(bench.now + Duration::from_secs(20)));
    }
    bench.pass(Duration::from_secs(10));
    bench.event(Event::Acknowledged { role: Role::Active, octets: before + 30 });
    assert_eq!(bench.peer.deadline(), Some(bench.now + Duration::from_secs(10)), "no more than before");
    assert_eq!(down(&bench.pass_to_deadline()), Some(&DownReason::SendHoldTimerExpired));
}

#[test]
fn rfc9687_section_5_another_send_hold_time_holds_for_a_peer_that_takes_nothing_already() {
    let timers = |seconds| Event::Timers { connect_retry: RETRY, send_hold_time: Some(Duration::from_secs(seconds)) };
    let mut bench = Bench::new(PeerConfig { hold_time: HoldTime::ZERO, ..config() });
    bench.event(Event::Start);
    bench.establish(Role::Active, &peer_open());
    acknowledge(&mut bench);
    bench.event(timers(100));
    assert_eq!(bench.peer.timers().send_hold, None, "nothing is outstanding");
    let before = bench.peer.connections.get(Role::Active).unwrap().sent;
    bench.event(Event::Routes(many(10)));
    let stuck = bench.now;
    bench.pass(Duration::from_secs(10));
    bench.event(Event::Probe { role: Role::Active });
    for time in [100, 60, 200] {
        assert_eq!(bench.event(timers(time)), []);
        assert_eq!(bench.peer.timers().send_hold, Some(stuck + Duration::from_secs(time)), "from when it last took something");
    }
    bench.event(Event::Timers { connect_retry: RETRY, send_hold_time: Some(Duration::MAX) });
    assert_eq!(bench.peer.timers().send_hold, None, "beyond the end of time");
    assert_eq!(bench.event_at_last(timers(5)), [], "what it may have taken meanwhile is to be looked at before");
    assert_eq!(bench.peer.deadline(), Some(stuck + Duration::from_secs(5)), "it is due");
    bench.event(Event::Acknowledged { role: Role::Active, octets: before + 1 });
    assert_eq!(bench.peer.timers().send_hold, Some(bench.now + Duration::from_secs(5)));
    bench.pass(Duration::from_secs(4));
    bench.event_at_last(timers(3));
    assert_eq!(down(&bench.pass(Duration::ZERO)), Some(&DownReason::SendHoldTimerExpired));
}

#[test]
fn rfc9234_section_4_2_roles_must_match_and_strict_mode_wants_one() {
    use crate::wire::BgpRole::{Customer, Peer as Sideways, Provider};
    let ours = |strict| PeerConfig { remote_asn: asn(65002), role: Some(RoleConfig { local: Provider, strict }), ..config() };
    for (roles, strict, refused) in [
        (vec![Customer], true, false),
        (vec![Provider], false, true),
        (vec![Sideways], false, true),
        (vec![], false, false),
        (vec![], true, true),
        (vec![Customer, Customer], true, false),
        (vec![Customer, Sideways], false, true),
    ] {
        let mut open = Open { asn: asn(65002), ..peer_open() };
        open.capabilities.extend(roles.iter().map(|role| Capability::Role(*role)));
        let mut bench = Bench::new(ours(strict));
        bench.event(Event::Start);
        bench.connected(Role::Active);
        let actions = bench.receive(Role::Active, open.encode());
        assert_eq!(notified(&actions), refused.then_some((2, 11)), "{roles:?} {strict}");
    }
    let internal = PeerConfig { remote_asn: asn(65001), ..ours(true) };
    assert!(!internal.open().capabilities.contains(&Capability::Role(Provider)));
}

#[test]
fn rfc8654_section_4_long_messages_go_only_where_both_sides_take_them() {
    let communities: BTreeSet<_> = (0..2000).collect();
    let long = Arc::new(Route { communities, ..Route::originated() });
    let routes = Arc::new(LocRib::from_iter([(host("10.0.0.1"), long)]));
    for (ours, theirs, fits) in [(true, true, true), (true, false, false), (false, true, false)] {
        let open = |extended_messages| PeerConfig { extended_messages, ..config() };
        let mut bench = Bench::new(open(ours));
        bench.event(Event::Start);
        bench.establish(Role::Active, &Open { identifier: peer_open().identifier, ..open(theirs).open() });
        bench.event(Event::Routes(Arc::clone(&routes)));
        let adj_rib_out = bench.peer.adj_rib_out().unwrap();
        assert_eq!((adj_rib_out.advertised().count(), adj_rib_out.withheld().len()), if fits { (1, 0) } else { (0, 1) });
    }
}

#[test]
fn both_opens_are_there_for_inspection() {
    let bench = established(restart(), &open_of_peer(true));
    assert_eq!(bench.peer.remote_open(), Some(&open_of_peer(true)));
    assert_eq!(*bench.peer.local_open(), graceful(restart()).open());
}

#[test]
fn a_change_of_policy_tells_all_again_in_the_same_session() {
    let mut bench = Bench::established();
    bench.event(Event::Routes(rib(&["10.0.0.1"])));
    let export = Export { med: Some(7), ..Export::default() };
    assert_eq!(bench.event(Event::Export { export: export.clone(), routes: None }).len(), 1);
    assert_eq!(bench.event(Event::Export { export, routes: None }), []);
    assert_eq!((bench.peer.state(), bench.peer.counters().established), (State::Established, 1));
}

#[test]
fn next_hops_follow_our_own_addresses_in_the_same_session() {
    let mut bench = Bench::established();
    bench.event(Event::Routes(rib(&["10.0.0.1", "2001:db8::1"])));
    let withheld = |bench: &Bench| bench.peer.adj_rib_out().unwrap().withheld().keys().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(withheld(&bench), [] as [&str; 0]);
    bench.event(Event::Writable { role: Role::Active });
    let without = LocalAddresses { ipv6: None, ..LOCAL };
    let told = bench.event(Event::Local { role: Role::Active, local: without });
    assert_eq!(told.len(), 1, "the IPv6 route is withdrawn: {told:?}");
    assert_eq!(withheld(&bench), ["2001:db8::1/128"]);
    assert_eq!(bench.event(Event::Local { role: Role::Active, local: without }), []);
    bench.event(Event::Writable { role: Role::Active });
    assert_eq!(bench.event(Event::Local { role: Role::Active, local: LOCAL }).len(), 1);
    assert_eq!((withheld(&bench), bench.peer.counters().established), (vec![], 1));
}

#[test]
fn rfc4724_section_4_1_what_an_earlier_process_told_counts_until_a_session_has_told_all_or_its_time_is_over() {
    let mut bench = inheriting();
    assert_eq!((bench.peer.withdrawing(), bench.peer.stale_until()), (prefixes(&["10.0.0.8"]), Some(bench.now + Duration::from_secs(69))));
    bench.establish(Role::Active, &open_of_peer(false));
    acknowledge(&mut bench);
    assert_eq!((bench.peer.withdrawing(), bench.peer.stale_until()), (prefixes(&[]), None));

    let mut bench = inheriting();
    bench.now += Duration::from_secs(69);
    bench.event(Event::Tick);
    assert_eq!((bench.peer.withdrawing(), bench.peer.stale_until()), (prefixes(&[]), None));

    let mut bench = Bench::new(config());
    bench.peer.inherit(bench.now, prefixes(&["10.0.0.8"]));
    assert_eq!(bench.peer.withdrawing(), prefixes(&[]), "without graceful restart");
}

/// A peer that may hold two prefixes of an earlier process, of which one is to be announced again.
fn inheriting() -> Bench {
    let mut bench = Bench::new(graceful(RestartConfig { restarting: true, ..restart() }));
    bench.peer.inherit(bench.now, prefixes(&["10.0.0.7", "10.0.0.8"]));
    bench.event(Event::Start);
    bench.event(Event::Routes(Arc::new(LocRib::originated(prefixes(&["10.0.0.7"])))));
    bench
}
