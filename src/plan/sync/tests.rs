// SPDX-License-Identifier: Apache-2.0
//! What becomes of a daemon in each state of kernel and record.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use super::*;
use crate::desired::{DesiredBalancing, Rules};
use crate::plan::plan;

fn daemon(sync_id: u32) -> SyncDaemon {
    SyncDaemon { role: SyncRole::Master, interface: "eth1".into(), sync_id, max_length: None, group: None, port: None, ttl: None }
}

/// What the kernel makes of it.
fn shown(sync_id: u32) -> SyncDaemon {
    SyncDaemon { max_length: Some(1472), group: "224.0.0.81".parse().ok(), port: Some(8848), ttl: Some(1), ..daemon(sync_id) }
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Entry {
    None,
    Pending,
    Confirmed,
}

fn observed(found: Option<u32>, entry: Entry, balancing: &DesiredBalancing) -> Observed {
    let mut observed = Observed::default();
    let kernel = &mut observed.kernel;
    kernel.record.exists = true;
    kernel.record.rules = balancing.rules.fingerprint();
    kernel.balancer.availability = IpvsAvailability::Available;
    kernel.balancer.daemons = found.map(|id| (SyncRole::Master, shown(id))).into_iter().collect::<BTreeMap<_, _>>();
    let role = BTreeSet::from([SyncRole::Master]);
    match entry {
        Entry::None => {}
        Entry::Pending => kernel.record.pending_daemons = role,
        Entry::Confirmed => kernel.record.confirmed_daemons = role,
    }
    observed
}

fn balancing(wanted: Option<u32>) -> DesiredBalancing {
    DesiredBalancing {
        services: BTreeMap::new(),
        rules: Rules::default(),
        set_sysctls: true,
        timeouts: ipvs::Timeouts::default(),
        gue_port: 6080,
        sync: wanted.map(|id| (SyncRole::Master, daemon(id))).into_iter().collect(),
        external_interface: None,
    }
}

fn steps(wanted: Option<u32>, found: Option<u32>, entry: Entry, started: bool, lifecycle: Lifecycle) -> Vec<String> {
    let balancing = balancing(wanted);
    let mut observed = observed(found, entry, &balancing);
    if started {
        observed.kernel.balancer.started_daemons.insert(SyncRole::Master);
    }
    steps_of(balancing, &observed, lifecycle)
}

fn steps_of(balancing: DesiredBalancing, observed: &Observed, lifecycle: Lifecycle) -> Vec<String> {
    let desired = Desired { lifecycle, balancing: Some(balancing), ..crate::plan::tests::desired() };
    let all = plan(&desired, observed, Instant::now()).steps;
    all.iter().map(ToString::to_string).filter(|step| step.contains("sync daemon") || step.contains("drop the record")).collect()
}

#[test]
fn a_daemon_is_recorded_started_recorded_as_ours_and_goes_with_the_node() {
    use Entry::{Confirmed, None as Unrecorded, Pending};
    use Lifecycle::{Drain, Run};
    let start = "start the master sync daemon (mcast=eth1, syncid=7)";
    let [pending, ours, removed, stop] = [
        "record as pending master sync daemon",
        "record as ours master sync daemon",
        "take out of the record master sync daemon",
        "stop the master sync daemon",
    ];
    for (wanted, found, entry, started, lifecycle, expected) in [
        (Some(7), None, Unrecorded, false, Run, vec![pending]),
        (Some(7), None, Pending, false, Run, vec![start]),
        (Some(7), Some(7), Pending, false, Run, vec![ours]),
        (Some(7), Some(7), Confirmed, false, Run, vec![]),
        // Somebody stopped it.
        (Some(7), None, Confirmed, false, Run, vec![start]),
        // Somebody else's, even where it is what we would start.
        (Some(7), Some(7), Unrecorded, false, Run, vec![]),
        (Some(7), Some(8), Unrecorded, false, Run, vec![]),
        (None, Some(8), Unrecorded, false, Run, vec![]),
        (None, Some(8), Unrecorded, false, Drain, vec!["drop the record"]),
        // Somebody was faster.
        (Some(7), Some(8), Pending, false, Run, vec![removed]),
        // The record is lost, and this process knows.
        (Some(7), Some(7), Unrecorded, true, Run, vec![ours]),
        (None, Some(7), Unrecorded, true, Run, vec![stop]),
        // Another configuration.
        (Some(7), Some(8), Confirmed, false, Run, vec![stop]),
        (None, Some(7), Confirmed, false, Run, vec![stop]),
        (None, Some(7), Pending, false, Run, vec![removed]),
        (None, None, Confirmed, false, Run, vec![removed]),
        (None, None, Pending, false, Run, vec![removed]),
        // The node leaves.
        (Some(7), Some(7), Confirmed, false, Drain, vec![stop]),
        (Some(7), None, Confirmed, false, Drain, vec![removed]),
        (Some(7), None, Unrecorded, false, Drain, vec!["drop the record"]),
    ] {
        let found_steps = steps(wanted, found, entry, started, lifecycle);
        assert_eq!(found_steps, expected, "{wanted:?} {found:?} {entry:?} {started} {lifecycle:?}");
    }
}

#[test]
fn a_daemon_that_has_taken_the_place_of_ours_is_left_alone_and_the_record_tells_of_it_no_more() {
    for (wanted, lifecycle) in [(Some(7), Lifecycle::Run), (None, Lifecycle::Run), (Some(7), Lifecycle::Drain)] {
        let balancing = balancing(wanted);
        let mut observed = observed(Some(8), Entry::Confirmed, &balancing);
        observed.kernel.balancer.foreign_daemons.insert(SyncRole::Master);
        let found_steps = steps_of(balancing, &observed, lifecycle);
        assert_eq!(found_steps, ["take out of the record master sync daemon"], "{wanted:?} {lifecycle:?}");
    }
}
