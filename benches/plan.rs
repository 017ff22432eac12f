// SPDX-License-Identifier: Apache-2.0
//! What a change costs the slow loop, whose thread the sessions do not wait for, on a node that serves all else already: one VIP more, and one endpoint
//! more or less of a node that balances.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bgp::{Asn, Prefix};
use vipherald::desired::{
    BalancerKind, Desired, DesiredBgp, DesiredVip, DrainTimes, Lifecycle, RouteSet, Routing, VipIntent, VirtualRouting, churn, compile,
};
use vipherald::observed::{ADDRESS_PROTOCOL, InterfaceState, KernelState, Observed, ObservedAddress, ObservedSpeaker, Record, stamp};
use vipherald::plan::{plan, plan_churn, predict};
use vipherald::sysctl::Sysctl;

use crate::light::routes;
use crate::objects::{self, PORTS, VIPS};
use crate::table::{median, ms};
use crate::topology::FIRST_ROUTE;

const COUNTS: [u32; 3] = [1_000, 5_000, 100_000];
const PASSES: usize = 15;

pub(crate) fn compare() {
    println!("\n| VIPs there | stamp, median ms | plan, median ms |\n|---:|---:|---:|");
    for count in COUNTS {
        let [stamped, planned] = one_more(count);
        println!("| {count} | {} | {} |", ms(stamped), ms(planned));
    }
}

/// One endpoint more or less on a node that balances.
pub(crate) fn compare_endpoint() {
    println!("\n| virtual services there | first steps, median ms | then compile | stamp | plan |\n|---:|---:|---:|---:|---:|");
    let [hurried, compiled, stamped, planned] = one_endpoint();
    println!("| {} | {} | {} | {} | {} |", VIPS * u32::from(PORTS), ms(hurried), ms(compiled), ms(stamped), ms(planned));
}

/// The node as its daemon leaves it, by what the planner predicts of the kernel.
fn one_endpoint() -> [Duration; 4] {
    let (config, mut snapshot, now) = (objects::config(BalancerKind::Ipvs), objects::snapshot(VIPS), Instant::now());
    let kernel = KernelState {
        elsewhere: BTreeSet::from([IpAddr::from([192, 0, 2, 1])]),
        address_protocols: true,
        sysctls: Sysctl::ALL.map(|setting| (setting, setting.wanted().to_owned())).into(),
        ..KernelState::default()
    };
    let mut observed = stamp(&Observed::default(), kernel, ObservedSpeaker::default(), now);
    let mut times = [Vec::new(), Vec::new(), Vec::new(), Vec::new()];
    let (mut before, mut in_force) = (snapshot.clone(), compile(&snapshot, &config));
    for number in 0..=PASSES {
        let start = Instant::now();
        let churn = churn(&before, &snapshot, &in_force, &config);
        let hurried = plan_churn(&churn, &in_force.desired, &observed, now);
        times[0].push(start.elapsed());
        let start = Instant::now();
        in_force = compile(&snapshot, &config);
        let desired = &in_force.desired;
        times[1].push(start.elapsed());
        let (kernel, speaker, start) = (observed.kernel.clone(), observed.speaker.clone(), Instant::now());
        observed = stamp(&observed, kernel, speaker, now);
        times[2].push(start.elapsed());
        let start = Instant::now();
        let mut steps = plan(desired, &observed, now).steps;
        times[3].push(start.elapsed());
        assert!(number == 0 || steps.len() == usize::from(PORTS), "each port of one VIP has an endpoint more or less");
        assert!(number == 0 || steps == hurried, "the first steps are all of them");
        while !steps.is_empty() {
            observed = predict(&observed, &steps, now);
            steps = plan(desired, &observed, now).steps;
        }
        before = snapshot.clone();
        objects::change(&mut snapshot, VIPS, number);
    }
    // The first one is the start.
    times.map(|times| median(times.into_iter().skip(1)))
}

fn one_more(count: u32) -> [Duration; 2] {
    let addresses: Vec<IpAddr> = routes(FIRST_ROUTE, count).map(|prefix| prefix.address()).collect();
    let bgp = DesiredBgp::new(Asn::new(65001).unwrap());
    let vip = DesiredVip { owners: BTreeSet::new(), intent: VipIntent::Serve { without_endpoints: false }, policy: None };
    let new = IpAddr::from(Ipv4Addr::new(192, 0, 2, 7));
    let desired = Desired {
        balancing: None,
        complete: true,
        lifecycle: Lifecycle::Run,
        vips: addresses.iter().copied().chain([new]).map(|address| (address, vip.clone())).collect(),
        found: Vec::new(),
        bgp: bgp.clone(),
        routing: Routing::default(),
        vrrp: VirtualRouting::default(),
        real_server_drain: Duration::from_secs(30),
        drain: DrainTimes { graceful_shutdown: Duration::ZERO, fabric_delay: Duration::from_secs(1), timeout: Duration::from_secs(25) },
    };
    let ours = ObservedAddress { prefix_length: 32, protocol: Some(ADDRESS_PROTOCOL) };
    let kernel = KernelState {
        interface: InterfaceState::Up,
        addresses: addresses.iter().copied().chain([new]).map(|address| (address, ours)).collect(),
        address_protocols: true,
        elsewhere: BTreeSet::from([IpAddr::from([192, 0, 2, 1])]),
        record: Record {
            exists: true,
            pending: BTreeSet::new(),
            confirmed: addresses.iter().copied().chain([new]).collect(),
            ..Record::default()
        },
        ..KernelState::default()
    };
    let speaker = ObservedSpeaker {
        advertised: Some(Arc::new(addresses.iter().copied().map(Prefix::host).collect::<RouteSet>())),
        configured: Some(Arc::new(bgp)),
        ..ObservedSpeaker::default()
    };
    let now = Instant::now();
    let mut observed = stamp(&Observed::default(), kernel.clone(), speaker.clone(), now);
    let mut times = [Vec::new(), Vec::new()];
    for _ in 0..PASSES {
        let (kernel, speaker, start) = (kernel.clone(), speaker.clone(), Instant::now());
        observed = stamp(&observed, kernel, speaker, now);
        times[0].push(start.elapsed());
        let start = Instant::now();
        assert_eq!(plan(&desired, &observed, now).steps.len(), 1, "one set to advertise");
        times[1].push(start.elapsed());
    }
    times.map(median)
}
