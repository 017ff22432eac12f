// SPDX-License-Identifier: Apache-2.0
//! One neighbour's part of the status.

use bgp::{Family, Prefix};

use super::{PeerStatus, PeerView, RouteState, RouteStatus};

pub(super) fn status(name: &str, view: &PeerView) -> PeerStatus {
    let route = |prefix: &Prefix, state, message| RouteStatus {
        prefix: prefix.to_string(),
        family: prefix.family().to_string(),
        next_hop: view.next_hops.get(&prefix.family()).filter(|_| state == RouteState::Advertised).copied(),
        state,
        message,
    };
    let told = view.told.iter().map(|prefix| route(prefix, RouteState::Advertised, None));
    let withdrawing = view.withdrawing.iter().map(|prefix| route(prefix, RouteState::Withdrawing, None));
    let withheld = view.withheld.iter().map(|(prefix, reason)| route(prefix, RouteState::Withheld, Some(reason.clone())));
    PeerStatus {
        name: name.to_owned(),
        address: view.address,
        asn: view.asn.number(),
        state: view.state.clone(),
        since: view.since.into(),
        established_since: view.established_since.map(Into::into),
        established_count: view.established_count,
        local_address: view.local_address,
        hold_seconds: view.hold_time.map(|hold| hold.secs()),
        families: view.families.iter().map(Family::to_string).collect(),
        capabilities: view.capabilities.iter().map(|name| (*name).to_owned()).collect(),
        prefixes: view.prefixes.iter().map(|(family, counts)| (family.to_string(), *counts)).collect(),
        held: view.held.iter().map(|(family, count)| (family.to_string(), *count)).collect(),
        malformed: view.malformed,
        routes: told.chain(withdrawing).chain(withheld).collect(),
        received: view.received,
        sent: view.sent,
        last_error: view.last_error.clone(),
        last_attempt_error: view.last_attempt_error.clone(),
        shut: view.shut,
        warning: view.warning.clone(),
        details: view.details.clone(),
    }
}
