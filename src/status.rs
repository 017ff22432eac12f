// SPDX-License-Identifier: Apache-2.0
//! What the node says of itself: every VIP with its state, why it is in it and since when; peers, routes, rejections, and where intent comes from.
//!
//! Inputs: [`Inputs`], plain values of all other modules, and the status before, for the times. Output: a [`NodeStatus`], which `show`, the admin
//! socket and the metrics print. Pure: it decides nothing and asks nobody.

mod balancer;
mod capability;
mod condition;
mod details;
mod envelope;
mod failure;
mod notes;
mod objects;
mod peer;
mod reports;
mod route;
mod routed;
mod router_node;
mod stored;
mod time;
mod vip;
mod virtual_router;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::SystemTime;

use bgp::{Asn, BgpIdentifier, Family, HoldTime, Prefix};
use serde::{Deserialize, Serialize};

use crate::api::ObjectRef;
use crate::desired::{Desired, Lifecycle, Mode, NodeDrain, Rejection, RouteSet};
use crate::observed::Observed;
use crate::plan::Ownership;

pub(crate) use balancer::ipvs_status;
pub use balancer::{
    Claim, IpvsReader, IpvsStatus, PersistenceStatus, RealServerStatus, SyncDaemonStatus, TrafficStatus, VirtualServiceStatus,
};
pub use capability::CapabilityStatus;
pub(crate) use capability::exchange;
pub use condition::Verdict;
pub(crate) use details::{Clock, by_name, self_description};
pub use details::{ConnectionStatus, FailureCounts, PeerDetails, RestartOffer, RestartStatus, TimerStatus, TransportStatus};
pub use envelope::{Answer, Envelope};
pub use failure::FailureStatus;
use failure::failure_status;
pub use objects::{ACCEPTED, Facts, KINDS, ObjectStatus, is_heard, object_statuses};
pub use peer::{PeerStatus, RouteState, RouteStatus};
pub use reports::Reports;
pub use route::{PeerRoutesStatus, RouteDetails, RouteStanding};
pub(crate) use route::{advertised, received};
pub use router_node::{announced, announces, is_drained, router_node_status};
pub use stored::{Difference, Ingress, Stored, difference};
pub use time::Time;
pub(crate) use vip::KUBE_PROXY_IN_IPVS_MODE;
pub(crate) use virtual_router::groups;
pub use virtual_router::{OtherRouterStatus, VirtualRouterStatus, VrrpGroupStatus};

/// The version of the form in which a [`NodeStatus`] is written.
pub const API_VERSION: &str = "vipherald.io/v1alpha1";

/// All that a status is made of.
#[derive(Clone, Copy, Debug)]
pub struct Inputs<'a> {
    /// What is wanted; `None` before the first compile.
    pub desired: Option<&'a Desired>,
    /// Whether the Node asks for its VIPs to leave, and what comes of that.
    pub node_drain: &'a NodeDrain,
    /// What was observed last.
    pub observed: &'a Observed,
    /// What takes no part.
    pub rejections: &'a [Rejection],
    /// Whose each address of `vips.interface` is.
    pub placements: &'a BTreeMap<IpAddr, Ownership>,
    /// VIPs that are to be served and that this node cannot carry.
    pub obstacles: &'a BTreeMap<IpAddr, Obstacle>,
    /// Addresses that are announced as somebody else placed them.
    pub found: &'a BTreeSet<IpAddr>,
    /// Prefixes that are announced as the last resort before they are withdrawn (RFC 8326), and when that will be.
    pub last_resorts: &'a BTreeMap<Prefix, SystemTime>,
    /// The speaker.
    pub speaker: &'a SpeakerView,
    /// The groups of virtual routers.
    pub vrrp: &'a [VrrpGroupStatus],
    /// Who this is.
    pub identity: &'a Identity,
    /// Where intent comes from.
    pub source: &'a SourceStatus,
    /// The configuration file.
    pub config: &'a ConfigStatus,
    /// Now.
    pub now: SystemTime,
}

/// Why a VIP cannot be carried, as the planner sees it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Obstacle {
    /// A CamelCase word.
    pub reason: String,
    /// For a person.
    pub message: String,
}

/// The speaker in plain values.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SpeakerView {
    /// Our BGP Identifier, once there is one.
    pub router_id: Option<BgpIdentifier>,
    /// Whether it was given a configuration and not stopped since: sessions may come up.
    pub started: bool,
    /// Why nothing is listened to though the configuration asks for it.
    pub listen_error: Option<String>,
    /// That there are as many dynamic peers as may be, and who was refused last.
    pub dynamic_full: Option<String>,
    /// Connections that were refused for that reason.
    pub dynamic_refused: u64,
    /// The set it advertises; `None` before the first.
    pub advertised: Option<Arc<RouteSet>>,
    /// What is withdrawn and perhaps still held by some peer.
    pub withdrawing: BTreeSet<Prefix>,
    /// The neighbours by name.
    pub peers: BTreeMap<String, PeerView>,
}

/// One neighbour in plain values.
#[derive(Clone, Debug, PartialEq)]
pub struct PeerView {
    /// Its address; `None` while it is not known.
    pub address: Option<IpAddr>,
    /// Its AS.
    pub asn: Asn,
    /// Where the state machine is, in the words of RFC 4271 §8.2.2.
    pub state: String,
    /// Since when it has been in that state.
    pub since: SystemTime,
    /// Since when the session has been Established, while it is.
    pub established_since: Option<SystemTime>,
    /// How often the session came up.
    pub established_count: u64,
    /// Our address on the connection, while there is one.
    pub local_address: Option<IpAddr>,
    /// The session's hold time, once negotiated.
    pub hold_time: Option<HoldTime>,
    /// The session's families, once negotiated.
    pub families: BTreeSet<Family>,
    /// The other capabilities that both sides have, once negotiated.
    pub capabilities: Vec<&'static str>,
    /// The next hops with which it is told routes that start here, by family.
    pub next_hops: BTreeMap<Family, IpAddr>,
    /// Prefixes that the peer was told and holds; without a session it holds none.
    pub told: BTreeSet<Prefix>,
    /// Whether its task has the set that is in force: else what it was told of a prefix may be what was in force before.
    pub is_current: bool,
    /// How many routes of other peers it was told, by family.
    pub reflected: BTreeMap<Family, usize>,
    /// Prefixes that are withdrawn and whose UPDATE the peer's host has not acknowledged.
    pub withdrawing: Arc<BTreeSet<Prefix>>,
    /// Prefixes of the set that this peer is not told, and why.
    pub withheld: BTreeMap<Prefix, String>,
    /// Messages that came from it.
    pub received: MessageCounts,
    /// Messages that went to it.
    pub sent: MessageCounts,
    /// What its UPDATEs said of each family.
    pub prefixes: BTreeMap<Family, PrefixCounts>,
    /// How many of its routes are kept, in each family; none where nothing is imported.
    pub held: BTreeMap<Family, u32>,
    /// What its UPDATEs had wrong.
    pub malformed: MalformedCounts,
    /// What is wrong, or was before the session that is up.
    pub last_error: Option<LastError>,
    /// How attempts since then have ended, which says less.
    pub last_attempt_error: Option<LastError>,
    /// Whether an operator has shut it down.
    pub shut: bool,
    /// What an operator should mend though the session may be up.
    pub warning: Option<String>,
    /// All else.
    pub details: PeerDetails,
}

/// Messages by type, since the peer was configured.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MessageCounts {
    /// OPEN.
    pub open: u64,
    /// UPDATE.
    pub update: u64,
    /// NOTIFICATION.
    pub notification: u64,
    /// KEEPALIVE.
    pub keepalive: u64,
    /// ROUTE-REFRESH.
    pub route_refresh: u64,
}

/// Destinations in UPDATEs of a peer, since it was configured. They are counted, not kept.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PrefixCounts {
    /// Announced, again or for the first time.
    pub announced: u64,
    /// Withdrawn, with or without need.
    pub withdrawn: u64,
}

/// What was wrong in UPDATEs of a peer and did not end the session (RFC 7606), since it was configured.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MalformedCounts {
    /// UPDATEs whose routes counted as withdrawn.
    pub treated_as_withdraw: u64,
    /// Attributes that were left out.
    pub attributes_discarded: u64,
}

/// Why a session or an attempt ended.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LastError {
    /// In words.
    pub reason: String,
    /// When last.
    pub at: Time,
    /// How often for this reason since a session was last up, with none that says as much in between.
    pub count: u64,
    /// The NOTIFICATION that ended it, if one did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub notification: Option<NotificationStatus>,
}

/// A NOTIFICATION (RFC 4271 §4.5).
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NotificationStatus {
    /// Whether we sent it, or the peer.
    pub direction: MessageDirection,
    /// Error code.
    pub code: u8,
    /// Error subcode.
    pub subcode: u8,
    /// Both in words.
    pub name: String,
    /// The text for the operator (RFC 9003), escaped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub communication: Option<String>,
}

/// Which way a message went.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum MessageDirection {
    /// To the peer.
    Sent,
    /// From the peer.
    Received,
}

/// What one node says of itself.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeStatus {
    /// [`API_VERSION`].
    pub api_version: String,
    /// Who this is.
    pub identity: Identity,
    /// When this status was made.
    pub observed_at: Time,
    /// Whether the node serves or leaves; absent before the first intent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lifecycle: Option<Phase>,
    /// How packets to VIPs get here; absent where that is by BGP.
    #[serde(default, skip_serializing_if = "Mode::is_default")]
    pub mode: Mode,
    /// Whether the Node asks for its VIPs to leave, and what comes of that.
    #[serde(default)]
    pub node_drain: NodeDrain,
    /// Where intent comes from.
    pub source: SourceStatus,
    /// The configuration file.
    pub config: ConfigStatus,
    /// The speaker.
    pub speaker: SpeakerStatus,
    /// Each VIP that is wanted or still on its way out.
    pub vips: Vec<VipStatus>,
    /// Addresses that look like ours and that nothing proves to be: kept, and to be looked at by a person.
    pub unclaimed: Vec<IpAddr>,
    /// What somebody else has done to the node that an operator should know of, though nothing fails.
    #[serde(default)]
    pub notes: Vec<String>,
    /// Objects and files that take no part.
    pub rejections: Vec<Rejection>,
    /// The neighbours by name.
    pub peers: Vec<PeerStatus>,
    /// The groups of virtual routers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub vrrp: Vec<VrrpGroupStatus>,
    /// Steps that fail and are tried again.
    pub failures: Vec<FailureStatus>,
}

/// Who a status is about.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Identity {
    /// `instance`.
    pub instance: String,
    /// `node.name`.
    pub node: String,
    /// `vips.interface`.
    pub interface: String,
    /// Of this program.
    pub version: String,
    /// When the process started.
    pub started: Time,
}

/// [`Lifecycle`] as it is shown.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub enum Phase {
    /// All VIPs are served.
    Serving,
    /// The sessions close; all else stays as it is for the next start.
    Leaving,
    /// The node withdraws everything and leaves.
    Draining,
    /// VIPs are withdrawn and removed until what asks for that goes.
    Standby,
}

/// Where intent comes from.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SourceStatus {
    /// How much of it is known.
    pub state: SourceState,
    /// For a person.
    pub message: String,
    /// For how long the API server has not been followed, in seconds; 0 while it is. Absent where there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_stale_seconds: Option<u64>,
    /// What is wrong with the API server, by kind of objects.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub troubles: Vec<String>,
    /// What cannot be written to it, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unwritten: Vec<String>,
}

/// How much of the intent is known.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd, Serialize, Deserialize)]
pub enum SourceState {
    /// Nothing was read yet.
    Waiting,
    /// The last good intent of an earlier run is used.
    Cached,
    /// A part cannot be read; its last good content is used and no stray is removed.
    Incomplete,
    /// All of it was read, and since then the API server has been lost.
    Stale,
    /// All of it.
    Complete,
}

/// The configuration file.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ConfigStatus {
    /// Where it is.
    pub file: String,
    /// Since when the configuration in force is.
    pub since: Time,
    /// Why the file as it is now is not in force.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Keys whose new value waits for a restart.
    pub waiting_for_restart: Vec<String>,
    /// What `dataplane.type: auto` stands for, and why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dataplane: Option<String>,
    /// Peers that this node does not have, with what their `nodeSelector` asks for.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub peers_elsewhere: BTreeMap<String, String>,
}

/// The speaker.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SpeakerStatus {
    /// Our AS; absent before the first intent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub asn: Option<u32>,
    /// Our BGP Identifier, once there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub router_id: Option<String>,
    /// Whether sessions may come up.
    pub started: bool,
    /// Why nothing is listened to though the configuration asks for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub listen_error: Option<String>,
    /// That there are as many dynamic peers as may be, and who was refused last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dynamic_full: Option<String>,
    /// Connections that were refused for that reason.
    #[serde(default)]
    pub dynamic_refused: u64,
}

/// One VIP and everything about it.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct VipStatus {
    /// The VIP.
    pub address: IpAddr,
    /// The objects that ask for it.
    pub owners: Vec<ObjectRef>,
    /// In one word.
    pub state: VipState,
    /// Why, for machines.
    pub reason: String,
    /// Why, for persons.
    pub message: String,
    /// Since when state and reason are these.
    pub since: Time,
    /// Whose the address on the interface is; absent where it is not there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub placement: Option<Ownership>,
    /// Accepted, Programmed and Advertised, in this order.
    pub conditions: Vec<Condition>,
    /// The peers that were told of it.
    pub peers: Vec<String>,
    /// How far the first stage of a drain has come, while it lasts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub graceful_shutdown: Option<GracefulShutdownStatus>,
}

/// A VIP that is announced as the last resort, with the community GRACEFUL_SHUTDOWN, before it is withdrawn (RFC 8326 §4).
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GracefulShutdownStatus {
    /// The peers that were told so.
    pub peers: Vec<String>,
    /// The peers that are about to be told so, and have the route as it was before.
    pub waiting: Vec<String>,
    /// When it is withdrawn.
    pub withdrawn_at: Time,
    /// Seconds until then, begun ones counted.
    pub withdrawn_in_seconds: u64,
}

/// Where a VIP is between nothing and the fabric.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd, Serialize, Deserialize)]
pub enum VipState {
    /// Wanted here, and not there for this reason.
    Withheld,
    /// On its way in.
    Pending,
    /// The fabric knows: at least one peer was told, or an Active Router has it.
    Announced,
    /// On its way out: some peer may still know.
    Withdrawing,
    /// No peer knows any more; the address stays for the flows that are left.
    Draining,
}

impl VipState {
    /// All states.
    pub const ALL: [Self; 5] = [Self::Withheld, Self::Pending, Self::Announced, Self::Withdrawing, Self::Draining];

    /// Its name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Withheld => "Withheld",
            Self::Pending => "Pending",
            Self::Announced => "Announced",
            Self::Withdrawing => "Withdrawing",
            Self::Draining => "Draining",
        }
    }
}

/// A condition as Kubernetes has them.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// Which one.
    #[serde(rename = "type")]
    pub kind: ConditionKind,
    /// Whether it holds.
    pub status: Truth,
    /// A CamelCase word for machines.
    pub reason: String,
    /// For persons.
    pub message: String,
    /// Since when the status is this.
    pub since: Time,
}

/// The conditions of a VIP.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd, Serialize, Deserialize)]
pub enum ConditionKind {
    /// Some object asks for it, and may.
    Accepted,
    /// The node takes its packets: the address is there, and somebody balances.
    Programmed,
    /// Some peer was told, or an Active Router has it.
    Advertised,
}

/// Whether a condition holds.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd, Serialize, Deserialize)]
pub enum Truth {
    /// It does.
    True,
    /// It does not.
    False,
    /// We cannot see it.
    Unknown,
}

impl Truth {
    /// Its name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }
}

/// Makes a status. Times of what did not change are taken from `previous`.
#[must_use]
pub fn node_status(inputs: &Inputs<'_>, previous: Option<&NodeStatus>) -> NodeStatus {
    let unclaimed = inputs.placements.iter().filter(|(_, placement)| **placement == Ownership::Unclaimed);
    NodeStatus {
        api_version: API_VERSION.to_owned(),
        identity: inputs.identity.clone(),
        observed_at: inputs.now.into(),
        lifecycle: inputs.desired.map(|desired| match desired.lifecycle {
            Lifecycle::Run => Phase::Serving,
            Lifecycle::Keep => Phase::Leaving,
            Lifecycle::Drain => Phase::Draining,
            Lifecycle::Standby => Phase::Standby,
        }),
        mode: inputs.desired.map(|desired| desired.vrrp.mode).unwrap_or_default(),
        node_drain: inputs.node_drain.clone(),
        source: inputs.source.clone(),
        config: inputs.config.clone(),
        speaker: SpeakerStatus {
            asn: inputs.desired.map(|desired| &desired.bgp).filter(|bgp| bgp.has_as()).map(|bgp| bgp.asn.number()),
            router_id: inputs.speaker.router_id.map(|id| id.to_string()),
            started: inputs.speaker.started,
            listen_error: inputs.speaker.listen_error.clone(),
            dynamic_full: inputs.speaker.dynamic_full.clone(),
            dynamic_refused: inputs.speaker.dynamic_refused,
        },
        vips: vip::statuses(inputs, previous),
        unclaimed: unclaimed.map(|(address, _)| *address).collect(),
        notes: inputs.desired.map(|desired| notes::notes(desired, inputs.observed)).unwrap_or_default(),
        rejections: inputs.rejections.to_vec(),
        peers: inputs.speaker.peers.iter().map(|(name, view)| peer::status(name, view, inputs.last_resorts)).collect(),
        vrrp: inputs.vrrp.to_vec(),
        failures: inputs.observed.failures.iter().map(|(key, failure)| failure_status(*key, failure)).collect(),
    }
}

/// Makes a fresh status whenever somebody asks.
#[derive(Clone)]
pub struct StatusReader(Arc<dyn Fn() -> Arc<NodeStatus> + Send + Sync>);

impl StatusReader {
    /// Of this function.
    #[must_use]
    pub fn new(read: impl Fn() -> Arc<NodeStatus> + Send + Sync + 'static) -> Self {
        Self(Arc::new(read))
    }

    /// The status now.
    #[must_use]
    pub fn read(&self) -> Arc<NodeStatus> {
        (self.0)()
    }
}

impl std::fmt::Debug for StatusReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("StatusReader")
    }
}

#[cfg(test)]
pub(crate) mod tests;
