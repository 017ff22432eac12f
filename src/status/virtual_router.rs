// SPDX-License-Identifier: Apache-2.0
//! The virtual routers' part of the status.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Instant;

use serde::{Deserialize, Serialize};
use vrrp::Addresses;
use vrrp::router::{Discards, State};
use vrrp::wire::ChecksumForm;

use super::Time;
use crate::driver::vrrp as driver;

/// What is said of a router that lists other addresses.
const FOREIGN: &str = "it lists other addresses: it may be of another virtual router";

/// One group of virtual routers.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct VrrpGroupStatus {
    /// Its name in the configuration.
    pub name: String,
    /// Where it is.
    pub interface: String,
    /// Its VRID.
    pub virtual_router_id: u8,
    /// Initialize, Backup or Active (RFC 9568 §6.3); of all its routers.
    pub state: String,
    /// It is to be no more, and hands over.
    #[serde(default)]
    pub leaving: bool,
    /// Why it is not as it is configured to be, or what is lost.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<String>,
    /// Those of IPv4 and IPv6; none before they can be configured for the first time.
    pub routers: Vec<VirtualRouterStatus>,
}

/// One virtual router.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct VirtualRouterStatus {
    /// IPv4 or IPv6.
    pub family: String,
    /// Initialize, Backup or Active.
    pub state: String,
    /// Since when.
    pub since: Time,
    /// What keeps it in Initialize.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hindrances: Vec<String>,
    /// 2 or 3.
    pub version: u8,
    /// Our priority now: the lowest while this node does not do what the addresses are there for.
    pub priority: u8,
    /// Our advertisement interval.
    pub interval_milliseconds: u64,
    /// From where we advertise.
    pub source: IpAddr,
    /// The router that has the addresses, as far as we know: ourselves, or the one that was heard last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub active_router: Option<IpAddr>,
    /// The virtual addresses.
    pub addresses: Vec<IpAddr>,
    /// Those of them that are on our interface.
    pub placed: BTreeSet<IpAddr>,
    /// Those of these that somebody else has placed: they are never removed.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub foreign: BTreeSet<IpAddr>,
    /// The form of the checksum that each destination is sent, of version 3 and IPv4.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub checksums: BTreeMap<IpAddr, String>,
    /// Other routers with this VRID on the link.
    pub others: Vec<OtherRouterStatus>,
    /// Advertisements sent.
    pub sent: u64,
    /// Those that resign.
    pub sent_priority_zero: u64,
    /// Advertisements received and taken.
    pub received: u64,
    /// Those that resign.
    pub received_priority_zero: u64,
    /// How often it became Active.
    pub became_active: u64,
    /// Datagrams that were not taken, by the check that they did not pass.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub discarded: BTreeMap<String, u64>,
}

/// Another router with the same VRID.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OtherRouterStatus {
    /// From where it advertises.
    pub address: IpAddr,
    /// Its priority; 0 where it resigned last, absent where nothing of it was taken.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<u8>,
    /// What it lists, where that is not what we do.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lists: Vec<IpAddr>,
    /// What is wrong with it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// How many of its datagrams were not taken.
    pub discards: u64,
}

/// Of the driver, as it is now.
pub(crate) fn groups(status: &driver::VrrpStatus, now: Instant) -> Vec<VrrpGroupStatus> {
    let group = |group: &driver::GroupStatus| VrrpGroupStatus {
        name: group.name.clone(),
        interface: group.interface.clone(),
        virtual_router_id: group.vrid.number(),
        state: group.state().to_string(),
        leaving: group.leaving,
        problems: [&group.problem, &group.unserving, &group.send_error, &status.record_problem].into_iter().flatten().cloned().collect(),
        routers: group.routers.values().map(|status| router(status, now)).collect(),
    };
    status.groups.iter().map(group).collect()
}

fn router(router: &driver::RouterStatus, now: Instant) -> VirtualRouterStatus {
    let config = &router.config;
    let has_forms = config.version == vrrp::Version::V3 && config.addresses.family() == vrrp::Family::Ipv4;
    let form = |form: &ChecksumForm| match form {
        ChecksumForm::MessageOnly => "message-only".to_owned(),
        ChecksumForm::PseudoHeader => "pseudo-header".to_owned(),
    };
    let checksums = router.checksums.iter().filter(|_| has_forms).map(|(destination, used)| (*destination, form(used)));
    VirtualRouterStatus {
        family: config.addresses.family().to_string(),
        state: router.state.to_string(),
        since: router.since.into(),
        hindrances: router.hindrances.iter().map(ToString::to_string).collect(),
        version: config.version.number(),
        priority: router.priority.number(),
        interval_milliseconds: u64::from(config.interval.centiseconds()) * 10,
        source: config.primary,
        active_router: match router.state {
            State::Active => Some(config.primary),
            State::Backup | State::Initialize => router.heard_lately(now).map(|heard| heard.source),
        },
        addresses: config.addresses.iter().collect(),
        placed: router.placed.clone(),
        foreign: router.foreign.clone(),
        checksums: checksums.collect(),
        others: router.others.iter().map(|(address, router)| other(*address, router)).collect(),
        sent: router.counters.sent,
        sent_priority_zero: router.counters.sent_priority_zero,
        received: router.counters.received,
        received_priority_zero: router.counters.received_priority_zero,
        became_active: router.counters.became_active,
        discarded: by_reason(router.counters.discarded)
            .into_iter()
            .filter(|(_, count)| *count > 0)
            .map(|(reason, count)| (reason.to_owned(), count))
            .collect(),
    }
}

fn other(address: IpAddr, router: &driver::OtherRouter) -> OtherRouterStatus {
    let discarded = router.discarded.map(|reason| reason.to_string());
    OtherRouterStatus {
        address,
        priority: router.heard.map(|heard| heard.priority.map_or(0, vrrp::Priority::number)),
        lists: router.lists.as_ref().map(Addresses::iter).into_iter().flatten().collect(),
        problem: router.lists.as_ref().map(|_| FOREIGN.to_owned()).or(discarded),
        discards: router.discards,
    }
}

/// Each check with how many datagrams did not pass it.
const fn by_reason(discards: Discards) -> [(&'static str, u64); 14] {
    [
        ("family", discards.family),
        ("ttl", discards.ttl),
        ("version", discards.version),
        ("type", discards.message_type),
        ("length", discards.length),
        ("no-address", discards.no_address),
        ("checksum", discards.checksum),
        ("vrid", discards.vrid),
        ("authentication", discards.authentication),
        ("interval", discards.interval),
        ("owner", discards.owner),
        ("own-address", discards.own_address),
        ("not-a-peer", discards.not_a_peer),
        ("destination", discards.destination),
    ]
}
