// SPDX-License-Identifier: Apache-2.0
//! The decision which connections are forgotten: those that a client goes on with, as one of UDP does with one socket, while its virtual service is away.
//!
//! A packet that finds nobody to translate it, and is forwarded or refused, leaves an entry in the connection table that says so. As long as the client sends
//! on, the entry lives; and as long as it lives, neither nft nor IPVS translates the packets that belong to it, whoever serves by then.
//!
//! Input: what is observed. Output: one step for all virtual services that have begun to serve. Invariants: it comes only after everything by which
//! packets get there was read back, so that no such entry is made any more; each start of a process, and each change of the rules, counts as a beginning; for TCP and SCTP nothing is forgotten, since
//! their clients begin anew by themselves.

use std::collections::BTreeSet;

use super::{Planner, Step, StepKey};
use crate::api::Protocol;
use crate::desired::ServiceKey;
use crate::observed::{KernelState, Observed};

impl Planner<'_> {
    pub(super) fn forget_connections(&mut self) -> Option<Step> {
        let Observed { kernel, forgotten, virtual_routers, .. } = self.observed;
        let KernelState { balancer, .. } = kernel;
        let balances = self.desired.balancing.is_some() && self.desired.lifecycle.goes_on();
        if !balances || self.balanced.unruly || self.balanced.handing_over {
            return None;
        }
        let begins =
            |key: &&ServiceKey| key.protocol == Protocol::Udp && !forgotten.contains(**key) && kernel.serves(**key, virtual_routers);
        let is_ours = |key: &&ServiceKey| !balancer.foreign.contains(*key);
        let services: BTreeSet<ServiceKey> = balancer.services.keys().filter(begins).filter(is_ours).copied().collect();
        (!services.is_empty() && self.ready(StepKey::Connections)).then_some(Step::ForgetConnections(services))
    }
}
