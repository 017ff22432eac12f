// SPDX-License-Identifier: Apache-2.0
//! `kill -9` at any moment, then a start: the node carries what is desired now, and what others had put there.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use nix::sys::signal::Signal;

use crate::rig::{Monitor, Random, Rig, many, vips};

const ROUNDS: u32 = 20;

/// Within this time after a start or a change, most of what the daemon does about it happens.
const SPAN: Duration = Duration::from_millis(300);

#[test]
fn kill_9_at_random_points() {
    let mut random = Random::new();
    let mut rig = Rig::new("crash");
    let pool = many(12);
    // Two that no object asks for, and two that are VIPs from time to time.
    let foreign = vips(["192.0.2.77", "2001:db8:f::77", "10.1.0.3", "2001:db8:7::3"]);
    for address in &foreign {
        rig.node.ip(&format!("address add {address} dev lo"));
    }
    let monitor = Monitor::start(&rig.node, "address");
    rig.daemon.publish(&random.subset(&pool, 50));
    rig.daemon.start(&rig.node);

    let mut desired = BTreeSet::new();
    for round in 1..=ROUNDS {
        desired = interrupted(&mut rig, &mut random, &pool);
        let changed = random.coin();
        if changed {
            desired = random.subset(&pool, 50);
            rig.daemon.publish(&desired);
        }
        println!("round {round}: {} VIPs, changed while it was down: {changed}", desired.len());
        rig.daemon.start(&rig.node);
        rig.wait_until_exact_beside(&desired, &foreign);
    }
    for (_, event) in monitor.removals() {
        assert!(!foreign.iter().any(|address| event.contains(&format!(" {address}/"))), "a foreign address was removed: {event}");
    }
    assert!(!monitor.removals().is_empty() && !desired.is_empty());
}

/// Kills the daemon in the middle of something; gives what it was to do.
fn interrupted(rig: &mut Rig, random: &mut Random, pool: &[IpAddr]) -> BTreeSet<IpAddr> {
    let mut desired = random.subset(pool, 50);
    match random.below(3) {
        0 => {
            println!("killed after a change");
            rig.daemon.publish(&desired);
        }
        1 => {
            println!("killed after a start and a change");
            rig.daemon.kill();
            rig.daemon.publish(&desired);
            rig.daemon.start(&rig.node);
            random.pause(SPAN / 2);
            desired = random.subset(pool, 50);
            rig.daemon.publish(&desired);
        }
        _ => {
            println!("killed in a drain");
            rig.daemon.publish(&desired);
            random.pause(SPAN / 2);
            rig.daemon.process().signal(Signal::SIGTERM);
        }
    }
    random.pause(SPAN);
    rig.daemon.kill();
    desired
}
