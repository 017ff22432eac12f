// SPDX-License-Identifier: Apache-2.0
//! What somebody else has done to IPVS on this node, or a crash has left there, that an operator should know of though nothing fails.
//!
//! Inputs: intent and observation. Output: sentences. Pure.

use ipvs::Timeouts;

use crate::desired::Desired;
use crate::observed::Observed;
use crate::plan::{daemons_of_others, unclaimed_services};

pub(super) fn notes(desired: &Desired, observed: &Observed) -> Vec<String> {
    let daemons = daemons_of_others(desired, observed);
    let daemons = daemons
        .into_iter()
        .map(|daemon| format!("dataplane.connectionSync: the {daemon} is somebody else's and is left alone; ours starts when it is gone"));
    let unclaimed = unclaimed_services(desired, observed).into_iter();
    let unclaimed = unclaimed.map(|service| format!("IPVS: {service} looks like ours and nothing proves it: kept"));
    raised_timeouts(desired, observed).chain(daemons).chain(unclaimed).collect()
}

/// Those that were set as the configuration says, and are longer now.
fn raised_timeouts(desired: &Desired, observed: &Observed) -> impl Iterator<Item = String> {
    let balancer = &observed.kernel.balancer;
    let wanted = desired.balancing.as_ref().map(|balancing| balancing.timeouts).unwrap_or_default();
    let Timeouts { tcp, tcp_fin, udp } = balancer.timeouts.unwrap_or_default();
    let given = balancer.given_timeouts;
    let all =
        [("tcp", wanted.tcp, given.tcp, tcp), ("tcpFin", wanted.tcp_fin, given.tcp_fin, tcp_fin), ("udp", wanted.udp, given.udp, udp)];
    let raised = all.into_iter().filter(|(_, wanted, given, found)| *wanted != 0 && given == wanted && found > wanted);
    raised.map(|(name, wanted, _, found)| {
        format!("dataplane.timeouts.{name}: somebody has raised it to {found}s; the configuration says {wanted}s, and the longer one stays")
    })
}
