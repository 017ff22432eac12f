// SPDX-License-Identifier: Apache-2.0
//! `vipherald show vrrp`: each virtual router on a line.

use super::age;
use crate::cli::table::table;
use crate::status::{NodeStatus, VirtualRouterStatus, VrrpGroupStatus};

/// So many addresses are on a line that is not wide.
const SHOWN: usize = 3;

pub(super) fn text(status: &NodeStatus, wide: bool) -> String {
    let mut headings = vec!["GROUP", "VRID", "INTERFACE", "FAMILY", "STATE", "FOR", "PRIORITY", "ACTIVE ROUTER", "ADDRESSES"];
    if wide {
        headings.extend(["SOURCE", "VERSION", "INTERVAL", "SENT", "RECEIVED", "DISCARDED", "OTHER ROUTERS"]);
    }
    headings.push("REASON");
    let rows = status.vrrp.iter().flat_map(|group| rows(status, group, wide));
    table(&headings, &rows.collect::<Vec<_>>())
}

fn rows(status: &NodeStatus, group: &VrrpGroupStatus, wide: bool) -> Vec<Vec<String>> {
    let head = || vec![group.name.clone(), group.virtual_router_id.to_string(), group.interface.clone()];
    if group.routers.is_empty() {
        let mut row = head();
        row.extend([String::new(), group.state.clone()]);
        row.resize(if wide { 16 } else { 9 }, String::new());
        row.push(group.problems.join("; "));
        return vec![row];
    }
    let row = |router: &VirtualRouterStatus| {
        let mut row = head();
        let state = if group.leaving { format!("{} (handing over)", router.state) } else { router.state.clone() };
        row.extend([router.family.clone(), state, age(router.since, status.observed_at), router.priority.to_string()]);
        row.push(router.active_router.map(|address| address.to_string()).unwrap_or_default());
        row.push(addresses(router, wide));
        if wide {
            row.extend([router.source.to_string(), router.version.to_string(), format!("{}ms", router.interval_milliseconds)]);
            row.extend([router.sent, router.received, router.discarded.values().sum()].map(|count| count.to_string()));
            row.push(router.others.iter().map(|other| other.address.to_string()).collect::<Vec<_>>().join(","));
        }
        row.push(reason(group, router));
        row
    };
    group.routers.iter().map(row).collect()
}

fn addresses(router: &VirtualRouterStatus, wide: bool) -> String {
    let all = &router.addresses;
    let shown = if wide { all.len() } else { SHOWN };
    let text = all.iter().take(shown).map(ToString::to_string).collect::<Vec<_>>().join(",");
    if all.len() > shown { format!("{text} and {} more", all.len() - shown) } else { text }
}

/// What is wrong, of the group, of this router, and of others on the link.
fn reason(group: &VrrpGroupStatus, router: &VirtualRouterStatus) -> String {
    let others = router.others.iter().filter_map(|other| Some(format!("router {}: {}", other.address, other.problem.as_ref()?)));
    let foreign = router.foreign.iter().map(|address| format!("{address} was placed by somebody else"));
    group.problems.iter().chain(&router.hindrances).cloned().chain(foreign).chain(others).collect::<Vec<_>>().join("; ")
}
