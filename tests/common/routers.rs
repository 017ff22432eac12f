// SPDX-License-Identifier: Apache-2.0
//! Virtual routers in the cases and the world of the planner.
#![allow(dead_code, reason = "each test file uses a part of it")]

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use bgp::Prefix;
use serde::Deserialize;
use vipherald::desired::{Desired, DesiredGroup, DesiredVrrp, Mode, NodeTrouble, VirtualRouting};
use vipherald::observed::ObservedVirtualRouters;

const GROUP: &str = "main";

/// A group that has VIPs of 10.0.0.0/8 and of IPv6, where there is a mode.
pub(crate) fn routing(mode: Option<&str>) -> VirtualRouting {
    let Some(mode) = mode else { return VirtualRouting::default() };
    let prefix = |address: IpAddr, length| Prefix::new(address, length).unwrap();
    let prefixes = [prefix(Ipv4Addr::new(10, 0, 0, 0).into(), 8), prefix(Ipv6Addr::UNSPECIFIED.into(), 0)];
    VirtualRouting {
        mode: match mode {
            "bgp" => Mode::Bgp,
            "vrrp" => Mode::Vrrp,
            other => panic!("{other} is no mode"),
        },
        groups: [(GROUP.to_owned(), DesiredGroup::new("eth1".to_owned(), vrrp::Vrid::new(106).unwrap(), Vec::new()))].into(),
        vips: [(GROUP.to_owned(), prefixes.into())].into(),
    }
}

/// What the virtual routers report.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RoutersInput {
    /// The addresses that they were told.
    configured: Option<Vec<IpAddr>>,
    /// What is wrong with this node, as they were told.
    troubles: BTreeSet<String>,
    /// What an earlier process has left stays.
    incomplete: bool,
    stopping: bool,
    /// That which they were told, where it is not said.
    recorded: Option<BTreeSet<IpAddr>>,
    settled: BTreeSet<IpAddr>,
}

impl RoutersInput {
    pub(crate) fn typed(self, desired: &Desired) -> ObservedVirtualRouters {
        let recorded = self.recorded.or_else(|| Some(self.configured.clone()?.into_iter().collect()));
        let configured = self.configured.map(|addresses| {
            let groups = desired.vrrp.groups.iter().filter(|_| !addresses.is_empty());
            let troubles: BTreeSet<NodeTrouble> = self.troubles.iter().map(|text| trouble(text)).collect();
            let told = |group: &DesiredGroup| DesiredGroup { addresses: addresses.clone(), troubles: troubles.clone(), ..group.clone() };
            let groups = groups.map(|(name, group)| (name.clone(), told(group)));
            Arc::new(DesiredVrrp { groups: groups.collect(), complete: !self.incomplete })
        });
        ObservedVirtualRouters { configured, stopping: self.stopping, recorded, settled: self.settled }
    }
}

fn trouble(text: &str) -> NodeTrouble {
    match text {
        "unreadable" => NodeTrouble::Unreadable,
        "not programmed" => NodeTrouble::NotProgrammed,
        "blocked" => NodeTrouble::Blocked,
        other => panic!("{other} is no trouble of a node"),
    }
}
