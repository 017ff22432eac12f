// SPDX-License-Identifier: Apache-2.0
//! What one VIP more costs the slow loop, whose thread nobody waits for: `stamp` and `plan` on a node that serves all others already.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bgp::{Asn, Prefix};
use vipherald::desired::{Desired, DesiredBgp, DesiredVip, DrainTimes, Lifecycle, RouteSet, Routing, VipIntent};
use vipherald::observed::{ADDRESS_PROTOCOL, InterfaceState, KernelState, Observed, ObservedAddress, ObservedSpeaker, Record, stamp};
use vipherald::plan::plan;

use crate::announce::FIRST_ROUTE;
use crate::light::routes;
use crate::table::{median, ms};

const VIPS: [u32; 3] = [1_000, 5_000, 100_000];
const PASSES: usize = 15;

pub(crate) fn compare() {
    println!("\n| VIPs there | stamp, median ms | plan, median ms |\n|---:|---:|---:|");
    for count in VIPS {
        let [stamped, planned] = one_more(count);
        println!("| {count} | {} | {} |", ms(stamped), ms(planned));
    }
}

fn one_more(count: u32) -> [Duration; 2] {
    let addresses: Vec<IpAddr> = routes(FIRST_ROUTE, count).map(|prefix| prefix.address()).collect();
    let bgp = DesiredBgp::new(Asn::new(65001).unwrap());
    let vip = DesiredVip { owners: BTreeSet::new(), intent: VipIntent::Serve { without_endpoints: false }, policy: None };
    let new = IpAddr::from(Ipv4Addr::new(192, 0, 2, 7));
    let desired = Desired {
        complete: true,
        lifecycle: Lifecycle::Run,
        vips: addresses.iter().copied().chain([new]).map(|address| (address, vip.clone())).collect(),
        found: Vec::new(),
        bgp: bgp.clone(),
        routing: Routing::default(),
        drain: DrainTimes { graceful_shutdown: Duration::ZERO, fabric_delay: Duration::from_secs(1), timeout: Duration::from_secs(25) },
    };
    let ours = ObservedAddress { prefix_length: 32, protocol: Some(ADDRESS_PROTOCOL) };
    let kernel = KernelState {
        interface: InterfaceState::Up,
        addresses: addresses.iter().copied().chain([new]).map(|address| (address, ours)).collect(),
        address_protocols: true,
        elsewhere: BTreeSet::from([IpAddr::from([192, 0, 2, 1])]),
        record: Record { exists: true, pending: BTreeSet::new(), confirmed: addresses.iter().copied().chain([new]).collect() },
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
