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

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};
    use std::net::IpAddr;

    use super::*;
    use crate::api::{PortRange, Protocol};
    use crate::desired::{DesiredBalancing, Rules, ServiceKey};
    use crate::observed::ObservedVirtualService;
    use crate::status::tests::{Node, ip};

    const SERVED: &str = "10.0.0.7";

    fn key(vip: IpAddr, port: i64) -> ServiceKey {
        ServiceKey { vip, protocol: Protocol::Tcp, ports: PortRange::new(port, port).unwrap() }
    }

    /// A node that balances nothing, and these virtual services in its kernel.
    fn node(services: &[ServiceKey]) -> (Desired, Observed) {
        let Node { desired, mut observed, .. } = Node::serving();
        let balancing = DesiredBalancing {
            services: BTreeMap::new(),
            rules: Rules::default(),
            set_sysctls: true,
            timeouts: Timeouts::default(),
            gue_port: 6080,
            sync: BTreeMap::new(),
            external_interface: None,
        };
        observed.kernel.balancer.services = services.iter().map(|key| (*key, ObservedVirtualService::empty())).collect();
        (Desired { balancing: Some(balancing), ..desired.unwrap() }, observed)
    }

    #[test]
    fn a_virtual_service_that_may_be_ours_and_is_not_proved_to_be_is_told() {
        let (of_our_vip, recorded, of_nobody) = (key(ip(SERVED), 80), key(ip("10.0.0.50"), 80), key(ip("10.0.0.60"), 80));
        let (desired, mut observed) = node(&[of_our_vip, recorded, of_nobody]);
        observed.kernel.record.pending_services = BTreeSet::from([recorded]);
        let kept = |of: &str| format!("IPVS: TCP {of}:80 looks like ours and nothing proves it: kept");
        assert_eq!(notes(&desired, &observed), [kept(SERVED), kept("10.0.0.50")]);
    }

    #[test]
    fn what_is_ours_or_of_somebody_else_is_not_told() {
        let [confirmed, made, foreign, taken] = [80, 81, 82, 83].map(|port| key(ip(SERVED), port));
        let (desired, mut observed) = node(&[confirmed, made, foreign, taken]);
        observed.kernel.balancer.taken = BTreeSet::from([taken]);
        observed.kernel.record.confirmed_services = BTreeSet::from([confirmed]);
        observed.kernel.balancer.made = BTreeSet::from([made]);
        observed.kernel.balancer.foreign = BTreeSet::from([foreign]);
        assert_eq!(notes(&desired, &observed), [""; 0]);
    }

    #[test]
    fn a_timeout_that_somebody_raised_is_told_and_one_that_was_never_given_is_not() {
        let (mut desired, mut observed) = node(&[]);
        desired.balancing.as_mut().unwrap().timeouts = Timeouts { tcp: 1800, tcp_fin: 60, udp: 0 };
        observed.kernel.balancer.given_timeouts = Timeouts { tcp: 1800, tcp_fin: 0, udp: 0 };
        observed.kernel.balancer.timeouts = Some(Timeouts { tcp: 3600, tcp_fin: 120, udp: 300 });
        let raised = "dataplane.timeouts.tcp: somebody has raised it to 3600s; the configuration says 1800s, and the longer one stays";
        assert_eq!(notes(&desired, &observed), [raised]);
    }
}
