// SPDX-License-Identifier: Apache-2.0
//! The decision which connections are forgotten: those that a client goes on with, as one of UDP does with one socket, while nobody is there who answers.
//!
//! A packet that finds nobody to translate it, and is forwarded or refused, leaves an entry in the connection table that says so. One that nft or somebody else has
//! translated leaves an entry that leads to its real server, whether that is still there or not. As long as the client sends on, the entry lives; and as long
//! as it lives, neither nft nor IPVS translates the packets that belong to it, whoever serves by then.
//!
//! Input: what is observed. Output: one step for all virtual services that have begun to serve, or of which a real server has gone. Invariants: it comes only after
//! everything by which packets get there was read back, so that no such entry is made any more; each start of a process, and each change of the rules, counts as a
//! beginning, so that what an earlier process has left undone is done; for TCP and SCTP nothing is forgotten, since their clients begin anew by themselves.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use super::{Planner, Step, StepKey};
use crate::api::Protocol;
use crate::desired::ServiceKey;
use crate::observed::{KernelState, Observed, ObservedVirtualService};

impl Planner<'_> {
    pub(super) fn forget_connections(&mut self) -> Option<Step> {
        let Observed { kernel, forgotten, virtual_routers, .. } = self.observed;
        let KernelState { balancer, .. } = kernel;
        let balances = self.desired.balancing.is_some() && self.desired.lifecycle.goes_on();
        if !balances || self.balanced.unruly || self.balanced.handing_over {
            return None;
        }
        let begins = |key: &ServiceKey| key.protocol == Protocol::Udp && !forgotten.contains(*key) && kernel.serves(*key, virtual_routers);
        let is_ours = |key: &ServiceKey| !balancer.foreign.contains(key);
        let servers = |service: &ObservedVirtualService| service.real_servers.iter().map(|server| server.address).collect();
        let services: BTreeMap<ServiceKey, BTreeSet<SocketAddr>> = balancer
            .services
            .iter()
            .filter(|(key, _)| begins(key) && is_ours(key))
            .map(|(key, service)| (*key, servers(service)))
            .collect();
        (!services.is_empty() && self.ready(StepKey::Connections)).then_some(Step::ForgetConnections(services))
    }
}
