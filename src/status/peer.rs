// SPDX-License-Identifier: Apache-2.0
//! One neighbour's part of the status.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::SystemTime;

use bgp::{Family, Prefix};
use serde::{Deserialize, Serialize};

use super::{LastError, MalformedCounts, MessageCounts, PeerDetails, PeerView, PrefixCounts, Time};

/// One neighbour.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PeerStatus {
    /// Its name in the configuration.
    pub name: String,
    /// Its address; absent while it is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<IpAddr>,
    /// Its AS.
    pub asn: u32,
    /// Where the state machine is.
    pub state: String,
    /// Since when.
    pub since: Time,
    /// Since when the session has been Established, while it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub established_since: Option<Time>,
    /// How often the session came up.
    pub established_count: u64,
    /// Our address on the connection.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub local_address: Option<IpAddr>,
    /// The negotiated hold time in seconds; 0 is off.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hold_seconds: Option<u16>,
    /// The negotiated families.
    pub families: Vec<String>,
    /// The other capabilities that both sides have.
    #[serde(default)]
    pub capabilities: Vec<String>,
    /// What it was told, is to forget, and is not told.
    pub routes: Vec<RouteStatus>,
    /// How many routes of other peers it was told, by family; those are not in the list.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub reflected: BTreeMap<String, usize>,
    /// Messages that came from it.
    pub received: MessageCounts,
    /// Messages that went to it.
    pub sent: MessageCounts,
    /// What its UPDATEs said, by family.
    #[serde(default)]
    pub prefixes: BTreeMap<String, PrefixCounts>,
    /// How many of its routes are kept, by family; none where it is not reflected (RFC 4456).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub held: BTreeMap<String, u32>,
    /// What its UPDATEs had wrong.
    #[serde(default)]
    pub malformed: MalformedCounts,
    /// What is wrong, as far as the end of the last session and of attempts has said, or what was before the session that is up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error: Option<LastError>,
    /// How attempts since then have ended, which says less: that the peer refuses connections, say. None while a session is up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_attempt_error: Option<LastError>,
    /// Whether an operator has shut it down.
    #[serde(default)]
    pub shut: bool,
    /// What an operator should mend though the session may be up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warning: Option<String>,
    /// All else.
    #[serde(flatten)]
    pub details: PeerDetails,
}

/// One prefix towards one peer.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RouteStatus {
    /// The prefix.
    pub prefix: String,
    /// Its family.
    pub family: String,
    /// The next hop of its UPDATE.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_hop: Option<IpAddr>,
    /// Whether the peer has it.
    pub state: RouteState,
    /// Why it is withheld, or that it is the last resort.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// Whether a peer has a prefix.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd, Serialize, Deserialize)]
pub enum RouteState {
    /// It was told.
    Advertised,
    /// It is told to forget it, and may not have heard.
    Withdrawing,
    /// It is not told.
    Withheld,
}

/// In words, that a peer was told a route as the last resort.
const LAST_RESORT: &str = "the last resort, about to be withdrawn: GRACEFUL_SHUTDOWN (RFC 8326)";

/// `last_resorts`: the prefixes that are announced with GRACEFUL_SHUTDOWN.
pub(super) fn status(name: &str, view: &PeerView, last_resorts: &BTreeMap<Prefix, SystemTime>) -> PeerStatus {
    let route = |prefix: &Prefix, state, message| RouteStatus {
        prefix: prefix.to_string(),
        family: prefix.family().to_string(),
        next_hop: view.next_hops.get(&prefix.family()).filter(|_| state == RouteState::Advertised).copied(),
        state,
        message,
    };
    let is_last_resort = |prefix: &Prefix| view.is_current && last_resorts.contains_key(prefix);
    let note = |prefix: &Prefix| is_last_resort(prefix).then(|| LAST_RESORT.to_owned());
    let told = view.told.iter().map(|prefix| route(prefix, RouteState::Advertised, note(prefix)));
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
        reflected: view.reflected.iter().map(|(family, count)| (family.to_string(), *count)).collect(),
        received: view.received,
        sent: view.sent,
        last_error: view.last_error.clone(),
        last_attempt_error: view.last_attempt_error.clone(),
        shut: view.shut,
        warning: view.warning.clone(),
        details: view.details.clone(),
    }
}
