// SPDX-License-Identifier: Apache-2.0
//! One neighbour's part of the status.

use std::net::IpAddr;

use bgp::{Family, Prefix};

use super::{PeerStatus, PeerView, RouteState, RouteStatus};
use crate::desired::{Desired, DesiredPeer};

pub(super) fn status(name: &str, view: &PeerView, desired: Option<&Desired>) -> PeerStatus {
    let configured = desired.and_then(|desired| desired.bgp.peers.get(name));
    let route = |prefix: &Prefix, state, message| RouteStatus {
        prefix: prefix.to_string(),
        family: prefix.family().to_string(),
        next_hop: if state == RouteState::Advertised { next_hop(prefix.family(), view, configured) } else { None },
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
        shut: view.shut,
        warning: view.warning.clone(),
    }
}

/// The configured one, else our address on the session where it is of this family; the driver chooses the other family's on its own.
fn next_hop(family: Family, view: &PeerView, configured: Option<&DesiredPeer>) -> Option<IpAddr> {
    let explicit = configured.and_then(|peer| match family {
        Family::Ipv4Unicast => peer.export.next_hop_ipv4.map(IpAddr::V4),
        Family::Ipv6Unicast => peer.export.next_hop_ipv6.map(IpAddr::V6),
    });
    explicit.or_else(|| view.local_address.filter(|address| address.is_ipv4() == (family == Family::Ipv4Unicast)))
}
