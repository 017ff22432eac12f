// SPDX-License-Identifier: Apache-2.0
//! The decisions about what the node shares with others: the timeouts of IPVS, and the settings of external interfaces.
//!
//! Inputs: intent and observation. Output: steps. Invariants: a timeout is given once, and then again where somebody lowers it; one that somebody has
//! raised since stays, so that two instances of which each wants its own do not take turns. Nothing is put back at the end: others live by it too.

use std::collections::{BTreeMap, BTreeSet};

use ipvs::Timeouts;

use super::{Planner, Step};
use crate::sysctl::InterfaceSetting;

impl Planner<'_> {
    pub(super) fn settings(&mut self) -> Vec<Step> {
        if !self.desired.lifecycle.goes_on() {
            return Vec::new();
        }
        let steps: Vec<Step> = self.interfaces().into_iter().chain(self.timeouts()).collect();
        steps.into_iter().filter(|step| self.ready(step.key())).collect()
    }

    fn interfaces(&self) -> Option<Step> {
        self.desired.balancing.as_ref().filter(|balancing| balancing.set_sysctls)?;
        let bad = |settings: &BTreeMap<InterfaceSetting, u8>| -> BTreeSet<InterfaceSetting> {
            settings.iter().filter(|(setting, value)| !setting.is_good(**value)).map(|(setting, _)| *setting).collect()
        };
        let interfaces = self.observed.kernel.external.iter().map(|(interface, settings)| (interface.clone(), bad(settings)));
        let wrong: BTreeMap<_, _> = interfaces.filter(|(_, bad)| !bad.is_empty()).collect();
        (!wrong.is_empty()).then_some(Step::SetInterfaces(wrong))
    }

    fn timeouts(&self) -> Option<Step> {
        let wanted = self.desired.balancing.as_ref()?.timeouts;
        let balancer = &self.observed.kernel.balancer;
        let (found, given) = (balancer.timeouts?, balancer.given_timeouts);
        let missing = |wanted: u32, given: u32, found: u32| {
            let lacks = if given == wanted { found < wanted } else { found != wanted };
            if wanted != 0 && lacks { wanted } else { 0 }
        };
        let missing = Timeouts {
            tcp: missing(wanted.tcp, given.tcp, found.tcp),
            tcp_fin: missing(wanted.tcp_fin, given.tcp_fin, found.tcp_fin),
            udp: missing(wanted.udp, given.udp, found.udp),
        };
        (missing != Timeouts::default()).then_some(Step::SetTimeouts(missing))
    }
}
