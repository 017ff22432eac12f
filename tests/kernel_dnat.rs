// SPDX-License-Identifier: Apache-2.0
//! Virtual services of nft on a real kernel, in a namespace: what one process writes, another reads, to the letter. Needs root, `ip` and `nft`.
#![allow(clippy::disallowed_macros, clippy::expect_used, clippy::unwrap_used, reason = "a test fails by a panic, and prints its figures")]

mod common;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use common::Namespace;
use ipvs::Weight;
use vipherald::actuator::Kernel;
use vipherald::api::{ForwardingMethod, PortRange, Protocol, Scheduler};
use vipherald::desired::{BalancerKind, Rules, Scheduling, ServiceKey};
use vipherald::observed::{ObservedVirtualService, ServiceMode};
use vipherald::plan::{Entries, RealServerChange, Step, VirtualServiceChange};

fn rules() -> Rules {
    Rules { balancer: BalancerKind::Nftables, first_mark: 64, ..Rules::default() }
}

type Services = BTreeMap<ServiceKey, ObservedVirtualService>;

async fn kernel() -> Kernel {
    let mut kernel = Kernel::new("lo", "vipherald").await.unwrap();
    kernel.balance(Some(BalancerKind::Nftables));
    kernel.observe().await.unwrap();
    kernel
}

async fn all_ok(kernel: &mut Kernel, steps: &[Step]) {
    for (step, result) in steps.iter().zip(kernel.execute_all(steps).await) {
        result.unwrap_or_else(|error| panic!("{step}: {error}: {:?}", std::error::Error::source(&error)));
    }
}

/// What a process that starts now reads.
async fn read_anew() -> Services {
    kernel().await.observe().await.unwrap().balancer.services
}

fn key(vip: &str, protocol: Protocol, ports: (i64, i64)) -> ServiceKey {
    ServiceKey { vip: vip.parse().unwrap(), protocol, ports: PortRange::new(ports.0, ports.1).unwrap() }
}

fn change(scheduler: Scheduler, fallback: bool, servers: &[(&str, u32)]) -> VirtualServiceChange {
    let add = |(server, weight): &(&str, u32)| RealServerChange::Add(server.parse::<SocketAddr>().unwrap(), Weight(*weight));
    VirtualServiceChange {
        mode: Some(ServiceMode { scheduling: Scheduling::of(scheduler), fallback }),
        forwarding: ForwardingMethod::Masquerade,
        real_servers: servers.iter().map(add).collect(),
    }
}

#[test]
fn what_is_written_is_read_by_the_next_process_and_changes_nothing_else() {
    let namespace = Namespace::new("dnat");
    namespace.enter(|| async {
        let mut writer = kernel().await;
        all_ok(&mut writer, &[Step::WriteRules(Some(rules()))]).await;
        let (four, six) = ("10.232.35.199", "2001:db8:7::1");
        let schedulers = [Scheduler::RoundRobin, Scheduler::WeightedRoundRobin, Scheduler::SourceHashing, Scheduler::MaglevHashing];
        let mut steps = Vec::new();
        for (number, scheduler) in (1..).zip(schedulers) {
            for protocol in [Protocol::Tcp, Protocol::Udp, Protocol::Sctp] {
                let servers = [("10.1.0.1:80", 3), ("10.1.0.2:80", 1), ("10.1.0.3:80", 0)];
                steps.push(Step::AddVirtualService(key(four, protocol, (number, number)), change(scheduler, true, &servers)));
                let servers = [("[2001:db8:1::1]:80", 1), ("[2001:db8:1::2]:8080", 2)];
                steps.push(Step::AddVirtualService(key(six, protocol, (number, number)), change(scheduler, false, &servers)));
                let range = (number * 1000, number * 1000 + 99);
                steps.push(Step::AddVirtualService(
                    key(four, protocol, range),
                    change(scheduler, false, &[("10.1.0.1:0", 1), ("10.1.0.2:0", 1)]),
                ));
                steps.push(Step::AddVirtualService(key(six, protocol, range), change(scheduler, false, &[("[2001:db8:1::1]:0", 1)])));
            }
        }
        let nobody = key(four, Protocol::Tcp, (9, 9));
        steps.push(Step::AddVirtualService(nobody, change(Scheduler::RoundRobin, false, &[])));
        steps.push(Step::AddVirtualService(
            key(four, Protocol::Tcp, (10, 10)),
            change(Scheduler::MaglevHashing, true, &[("10.1.0.1:80", 0)]),
        ));
        all_ok(&mut writer, &steps).await;
        let known = writer.observe().await.unwrap();
        assert_eq!(known.balancer.services.len(), steps.len());
        assert!(known.balancer.services.values().all(|service| service.mode.is_some()));
        assert_eq!(read_anew().await, known.balancer.services);
        // To write the same again is no change of what is read.
        all_ok(&mut writer, &steps).await;
        assert_eq!(read_anew().await, known.balancer.services);
        let weigh = VirtualServiceChange {
            mode: None,
            forwarding: ForwardingMethod::Masquerade,
            real_servers: vec![RealServerChange::Weigh("10.1.0.2:80".parse().unwrap(), Weight(0))],
        };
        all_ok(&mut writer, &[Step::ChangeVirtualService(key(four, Protocol::Tcp, (4, 4)), weigh), Step::RemoveVirtualService(nobody)])
            .await;
        let after = writer.observe().await.unwrap();
        assert_eq!(after.balancer.services.len(), steps.len() - 1);
        assert_eq!(read_anew().await, after.balancer.services);
        assert_eq!(after.record.rules, rules().fingerprint());
        all_ok(&mut writer, &[Step::WriteRules(None)]).await;
        assert!(read_anew().await.is_empty());
    });
    assert!(!namespace.output(&["nft", "list", "tables"]).contains("table ip"));
}

/// A crash may come between making a service and confirming it, and no service is confirmed that is not wanted any more by then.
#[test]
fn what_is_in_our_own_tables_is_ours_whatever_the_record_says() {
    let namespace = Namespace::new("dnat-ours");
    namespace.enter(|| async {
        let mut writer = kernel().await;
        all_ok(&mut writer, &[Step::WriteRules(Some(rules()))]).await;
        let [recorded, unrecorded] = [80, 81].map(|port| key("10.232.35.199", Protocol::Tcp, (port, port)));
        let pending = Entries { services: [recorded].into(), ..Entries::default() };
        let made = |key| Step::AddVirtualService(key, change(Scheduler::RoundRobin, false, &[("10.1.0.1:80", 1)]));
        all_ok(&mut writer, &[Step::RecordPending(pending), made(recorded), made(unrecorded)]).await;
        for mut process in [writer, kernel().await] {
            let balancer = process.observe().await.unwrap().balancer;
            assert_eq!((balancer.made, balancer.foreign), ([recorded, unrecorded].into(), [].into()));
        }
    });
}

/// One endpoint more or less must not cost what all services cost.
#[test]
fn one_change_beside_a_thousand_services() {
    let namespace = Namespace::new("dnat-many");
    namespace.enter(|| async {
        let mut writer = kernel().await;
        all_ok(&mut writer, &[Step::WriteRules(Some(rules()))]).await;
        let servers = [("10.1.0.1:80", 1), ("10.1.0.2:80", 1), ("10.1.0.3:80", 1), ("10.1.0.4:80", 1)];
        let made = |number: u16| key(&format!("10.232.{}.{}", number / 250, number % 250 + 1), Protocol::Tcp, (80, 80));
        let steps: Vec<Step> =
            (0..1_000).map(|number| Step::AddVirtualService(made(number), change(Scheduler::MaglevHashing, true, &servers))).collect();
        let since = Instant::now();
        all_ok(&mut writer, &steps).await;
        let all = since.elapsed();
        let mut fastest = Duration::MAX;
        for weight in [0, 1, 0, 1, 0] {
            let real_servers = vec![RealServerChange::Weigh("10.1.0.2:80".parse().unwrap(), Weight(weight))];
            let step = Step::ChangeVirtualService(
                made(500),
                VirtualServiceChange { mode: None, forwarding: ForwardingMethod::Masquerade, real_servers },
            );
            let since = Instant::now();
            all_ok(&mut writer, &[step]).await;
            fastest = fastest.min(since.elapsed());
        }
        let since = Instant::now();
        assert_eq!(read_anew().await, writer.observe().await.unwrap().balancer.services);
        eprintln!("1,000 services: made in {all:?}, one changed in {fastest:?}, read in {:?}", since.elapsed());
        // Ten times what it takes on an idle machine.
        assert!(fastest < Duration::from_millis(300), "{fastest:?}");
    });
}
