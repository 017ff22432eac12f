// SPDX-License-Identifier: Apache-2.0
//! The routes of one neighbour for a reader: what it was told with which attributes, or what it has told and is kept.
//!
//! Input: an Adj-RIB-Out or Adj-RIB-In as values. Output: one [`RouteDetails`] for each path, in the order of destinations. The work is in proportion to
//! the routes, and is done outside the speaker's thread.

use std::net::{IpAddr, Ipv4Addr};

use bgp::rib::{Advertisement, Held, Learned, Outgoing, Progress, Withheld};
use bgp::wire::{Aggregator, AsPath, AsPathSegment, NextHop, Nlri, Origin, PathAttribute, community};
use bgp::{Asn, Prefix};
use serde::{Deserialize, Serialize};

use super::capability::hexadecimal;

/// The routes of one neighbour.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PeerRoutesStatus {
    /// The neighbour.
    pub peer: String,
    /// What a reader should know of the list: why it is empty, or not complete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// The routes.
    pub routes: Vec<RouteDetails>,
}

/// One path with its attributes (RFC 4271 §5).
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RouteDetails {
    /// The destination.
    pub prefix: String,
    /// Its family.
    pub family: String,
    /// Path Identifier, where the session has those (RFC 7911).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path_id: Option<u32>,
    /// Where it stands.
    pub state: RouteStanding,
    /// Why it is not announced, or not used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Where packets go.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_hop: Option<IpAddr>,
    /// The same on the link itself (RFC 2545).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub link_local_next_hop: Option<IpAddr>,
    /// ORIGIN.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub origin: Option<String>,
    /// AS_PATH, the nearest AS first; sets in braces, segments of a confederation in parentheses or brackets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub as_path: Option<String>,
    /// MULTI_EXIT_DISC.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub med: Option<u32>,
    /// LOCAL_PREF.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub local_preference: Option<u32>,
    /// COMMUNITIES.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub communities: Vec<String>,
    /// LARGE_COMMUNITY.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub large_communities: Vec<String>,
    /// Extended Communities, in hexadecimal but for the bandwidth of a link.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub extended_communities: Vec<String>,
    /// ORIGINATOR_ID.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub originator_id: Option<Ipv4Addr>,
    /// CLUSTER_LIST.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cluster_list: Vec<Ipv4Addr>,
    /// ATOMIC_AGGREGATE.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub atomic_aggregate: bool,
    /// AGGREGATOR, AS and address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub aggregator: Option<String>,
    /// ONLY_TO_CUSTOMER.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub only_to_customer: Option<u32>,
    /// Attributes that this speaker does not know: type and value in hexadecimal.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unknown: Vec<String>,
}

/// Where a path stands.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub enum RouteStanding {
    /// The peer was told.
    #[default]
    Advertised,
    /// It is about to be told, for the first time or of a change.
    Pending,
    /// It is about to be told to forget it.
    Withdrawing,
    /// It is not told.
    Withheld,
    /// The peer has told it, and it is kept.
    Held,
    /// The same, and it could not be used.
    Ineligible,
    /// The same, from a session that is over, or not told again yet.
    Stale,
}

/// What a peer was told: `None` without a session.
pub(crate) fn advertised(peer: &str, routes: Option<&[Advertisement]>, withheld: &[(Prefix, Withheld)]) -> PeerRoutesStatus {
    let mut details: Vec<(Nlri, RouteDetails)> =
        routes.unwrap_or_default().iter().map(|route| (route.nlri, of_advertisement(route))).collect();
    details.extend(withheld.iter().map(|(prefix, why)| {
        let nlri = Nlri::from(*prefix);
        (nlri, RouteDetails { reason: Some(why.to_string()), ..destination(nlri, RouteStanding::Withheld) })
    }));
    details.sort_by_key(|(nlri, _)| *nlri);
    let note = routes.is_none().then(|| "there is no session, so the peer was told nothing".to_owned());
    PeerRoutesStatus { peer: peer.to_owned(), note, routes: details.into_iter().map(|(_, details)| details).collect() }
}

/// What a peer has told: `None` where nothing of it is kept. `omitted` announcements were not kept for want of room.
pub(crate) fn received(peer: &str, routes: Option<&[(Nlri, Held)]>, announced: u64, omitted: u64) -> PeerRoutesStatus {
    let note = match routes {
        None => Some(format!(
            "routes of this peer are counted, not kept ({announced} announcements so far); bgp.peers[].keepReceived keeps some to be looked at"
        )),
        Some(_) if omitted > 0 => Some(format!("{omitted} more announcements were not kept: bgp.peers[].keepReceived bounds how many are")),
        Some(_) => None,
    };
    let routes = routes.unwrap_or_default().iter().map(|(nlri, held)| of_held(*nlri, held)).collect();
    PeerRoutesStatus { peer: peer.to_owned(), note, routes }
}

fn destination(nlri: Nlri, state: RouteStanding) -> RouteDetails {
    RouteDetails {
        prefix: nlri.prefix.to_string(),
        family: nlri.prefix.family().to_string(),
        path_id: (nlri.path_id != 0).then_some(nlri.path_id),
        state,
        ..RouteDetails::default()
    }
}

fn of_advertisement(route: &Advertisement) -> RouteDetails {
    let state = match route.progress {
        Progress::Told => RouteStanding::Advertised,
        Progress::ToBeTold => RouteStanding::Pending,
        Progress::ToBeWithdrawn => RouteStanding::Withdrawing,
    };
    let mut details = destination(route.nlri, state);
    if let Some(Outgoing { attributes, next_hop }) = route.outgoing.as_deref() {
        details.set_next_hop(*next_hop);
        attributes.iter().for_each(|attribute| details.take(attribute));
    }
    details
}

fn of_held(nlri: Nlri, Held { route, ineligible, stale }: &Held) -> RouteDetails {
    let state = match (stale, ineligible) {
        (true, _) => RouteStanding::Stale,
        (false, Some(_)) => RouteStanding::Ineligible,
        (false, None) => RouteStanding::Held,
    };
    let mut details = RouteDetails {
        reason: ineligible.map(|why| why.to_string()),
        origin: Some(origin(route.origin)),
        as_path: Some(as_path(&route.as_path)),
        med: route.med,
        local_preference: route.local_preference,
        communities: route.communities.iter().map(|community| community_name(*community)).collect(),
        large_communities: route.large_communities.iter().map(large_community).collect(),
        extended_communities: route.extended_communities.iter().map(|community| extended_community(*community)).collect(),
        ..destination(nlri, state)
    };
    if let Some(learned) = &route.learned {
        details.take_learned(learned);
    }
    details
}

impl RouteDetails {
    fn set_next_hop(&mut self, next_hop: NextHop) {
        match next_hop {
            NextHop::V4(address) => self.next_hop = Some(address.into()),
            NextHop::V6 { global, link_local } => {
                self.next_hop = Some(global.into());
                self.link_local_next_hop = link_local.map(IpAddr::V6);
            }
        }
    }

    fn take_learned(&mut self, learned: &Learned) {
        self.set_next_hop(learned.next_hop);
        self.atomic_aggregate = learned.atomic_aggregate;
        self.aggregator = learned.aggregator.as_ref().map(aggregator);
        self.originator_id = learned.originator_id;
        self.cluster_list.clone_from(&learned.cluster_list);
        self.only_to_customer = learned.only_to_customer.map(Asn::number);
        self.extended_communities.extend(learned.ipv6_extended_communities.iter().map(|community| hexadecimal(community)));
        self.unknown = learned.unknown.iter().map(|unknown| unknown_attribute(unknown.type_code, &unknown.value)).collect();
    }

    fn take(&mut self, attribute: &PathAttribute) {
        match attribute {
            PathAttribute::Origin(value) => self.origin = Some(origin(*value)),
            PathAttribute::AsPath(path) => self.as_path = Some(as_path(path)),
            PathAttribute::MultiExitDisc(med) => self.med = Some(*med),
            PathAttribute::LocalPref(preference) => self.local_preference = Some(*preference),
            PathAttribute::AtomicAggregate => self.atomic_aggregate = true,
            PathAttribute::Aggregator(value) => self.aggregator = Some(aggregator(&value.value)),
            PathAttribute::Communities(values) => self.communities = values.value.iter().map(|value| community_name(*value)).collect(),
            PathAttribute::LargeCommunities(values) => self.large_communities = values.value.iter().map(large_community).collect(),
            PathAttribute::ExtendedCommunities(values) => {
                self.extended_communities.extend(values.value.iter().map(|value| extended_community(*value)));
            }
            PathAttribute::Ipv6ExtendedCommunities(values) => {
                self.extended_communities.extend(values.value.iter().map(|value| hexadecimal(value)));
            }
            PathAttribute::OriginatorId(originator) => self.originator_id = Some(*originator),
            PathAttribute::ClusterList(clusters) => self.cluster_list.clone_from(clusters),
            PathAttribute::OnlyToCustomer(asn) => self.only_to_customer = Some(asn.value.number()),
            PathAttribute::Unknown { type_code, value, .. } => self.unknown.push(unknown_attribute(*type_code, value)),
            PathAttribute::NextHop(_) | PathAttribute::MpReach(_) | PathAttribute::MpUnreach(_) => {}
        }
    }
}

fn origin(origin: Origin) -> String {
    match origin {
        Origin::Igp => "IGP",
        Origin::Egp => "EGP",
        Origin::Incomplete => "INCOMPLETE",
    }
    .to_owned()
}

fn as_path(path: &AsPath) -> String {
    let segments = path.0.iter().map(|segment| {
        let numbers = segment.ases().iter().map(Asn::to_string).collect::<Vec<_>>().join(" ");
        match segment {
            AsPathSegment::Sequence(_) => numbers,
            AsPathSegment::Set(_) => format!("{{{numbers}}}"),
            AsPathSegment::ConfedSequence(_) => format!("({numbers})"),
            AsPathSegment::ConfedSet(_) => format!("[{numbers}]"),
        }
    });
    segments.collect::<Vec<_>>().join(" ")
}

/// As the configuration has it.
fn community_name(value: u32) -> String {
    let name = match value {
        community::NO_EXPORT => "NO_EXPORT",
        community::NO_ADVERTISE => "NO_ADVERTISE",
        community::NO_EXPORT_SUBCONFED => "NO_EXPORT_SUBCONFED",
        community::GRACEFUL_SHUTDOWN => "GRACEFUL_SHUTDOWN",
        community::LLGR_STALE => "LLGR_STALE",
        community::NO_LLGR => "NO_LLGR",
        community::BLACKHOLE => "BLACKHOLE",
        _ => return format!("{}:{}", value >> 16, value & 0xFFFF),
    };
    name.to_owned()
}

fn large_community([global, first, second]: &[u32; 3]) -> String {
    format!("{global}:{first}:{second}")
}

fn extended_community(value: u64) -> String {
    match community::as_link_bandwidth(value) {
        Some((asn, octets_per_second)) => format!("bandwidth:{asn}:{octets_per_second} B/s"),
        None => format!("{value:016X}"),
    }
}

fn aggregator(aggregator: &Aggregator) -> String {
    format!("{} {}", aggregator.asn, aggregator.address)
}

fn unknown_attribute(type_code: u8, value: &[u8]) -> String {
    format!("{type_code}: {}", hexadecimal(value))
}
