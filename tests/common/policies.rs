// SPDX-License-Identifier: Apache-2.0
//! Policies and aggregates in the cases of the planner.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bgp::rib::Route;
use serde::Deserialize;
use vipherald::desired::{Aggregate, Policy, Routing};

use super::prefix;

/// Attributes, and what they are for.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct PolicyInput {
    community: u32,
    prefixes: Vec<String>,
    /// Where given, the only ones that are told.
    peers: Option<BTreeSet<String>>,
}

pub(crate) fn routing(policies: BTreeMap<String, PolicyInput>, aggregates: &BTreeMap<String, String>) -> Routing {
    let policies = policies.into_iter().map(|(name, PolicyInput { community, prefixes, peers })| {
        let route = Route { communities: BTreeSet::from([community]), peers: peers.map(Arc::new), ..Route::originated() };
        (name, Policy { prefixes: prefixes.iter().map(|text| prefix(text)).collect(), route })
    });
    let aggregates = aggregates.iter().map(|(text, words)| {
        let (vips, policy) = words.split_once(' ').map_or((words.as_str(), None), |(vips, policy)| (vips, Some(policy.to_owned())));
        (prefix(text), Aggregate { policy, suppress: vips == "suppress" })
    });
    Routing { policies: policies.collect(), aggregates: aggregates.collect() }
}
