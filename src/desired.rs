// SPDX-License-Identifier: Apache-2.0
//! What this node should do: compiled from a whole snapshot and the configuration, from scratch, each time.
//!
//! Input: a [`Snapshot`] and the [`Config`]. Output: a [`Desired`] and the [`Rejection`]s of everything that takes no part in it. Pure, total and
//! deterministic: equal inputs give equal outputs, and one bad object never hurts another.

mod addresses;
pub mod allocation;
pub mod cache;
mod churn;
mod claims;
mod dispatch;
mod endpoints;
mod honoured;
mod last_good;
mod load_balancer;
mod node_drain;
mod ports;
mod route_set;
pub(crate) mod routing;
mod rules;
mod scope;
mod speaker;
mod termination;
mod virtual_routers;
mod virtual_services;

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::iter;
use std::net::IpAddr;
use std::time::Duration;

use bgp::Prefix;
use serde::{Deserialize, Serialize};

pub(crate) use self::addresses::unfit;
use self::addresses::{Reserved, not_allowed};
pub use self::churn::churn;
use self::claims::{Balanced, Claimant, ClaimedPort, claimants, settle_conflicts, wanted};
pub use self::dispatch::BalancerKind;
pub(crate) use self::dispatch::translated;
use self::endpoints::{Availability, Behind, SliceNames, Slices};
pub(crate) use self::last_good::Contents;
pub use self::last_good::LastGood;
pub(crate) use self::load_balancer::{is_ours as is_load_balancer_of_ours, recorded_addresses};
pub use self::node_drain::{Asked, NodeDrain, asked};
pub(crate) use self::rules::digest;
pub use self::rules::{Chain, MssClamp, Rule, Rules, Turn, UnservedPorts};
pub use self::scope::Scope;
pub use self::speaker::{
    AoAlgorithm, AoKey, DesiredBgp, DesiredExport, DesiredImport, DesiredListen, DesiredPeer, DesiredRestart, PeerAddress, Transport, Ttl,
};
pub use self::termination::{Termination, termination};
pub use self::virtual_routers::{DesiredGroup, DesiredTransport, DesiredVrrp, KnownPeers, Mode, NodeTrouble, VirtualRouting};
pub use self::virtual_services::{DesiredBalancing, DesiredVirtualService, Filter, Scheduling, ServiceKey};
use self::virtual_services::{admits_nobody, refusals, virtual_service};
use crate::api::{EXCLUDED_LABEL, ObjectRef, POLICY_KEY, PRESERVE_CLIENT_KEY, quoted};
use crate::config::{Config, DataplaneType, WithoutEndpoints};
use crate::source::Snapshot;

pub use self::route_set::{RouteSet, attributes};
pub use self::routing::{Aggregate, Policy, Router, Routing};

/// The whole intent for this node. Equal values wake nobody.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Desired {
    /// Whether every source is complete; while it is not, no stray is removed.
    pub complete: bool,
    /// Run, or leave in order.
    pub lifecycle: Lifecycle,
    /// Each VIP that some accepted object asks for.
    pub vips: BTreeMap<IpAddr, DesiredVip>,
    /// What we balance ourselves; `None` where others do, or nobody.
    pub balancing: Option<DesiredBalancing>,
    /// Speaker-only use: addresses inside these prefixes are announced while somebody else has them on `vips.interface`.
    pub found: Vec<Prefix>,
    /// The speaker and its neighbours.
    pub bgp: DesiredBgp,
    /// With what routes are announced to every neighbour, and which of them are aggregated.
    pub routing: Routing,
    /// How packets to VIPs get here, and the virtual routers.
    pub vrrp: VirtualRouting,
    /// How long steps on the way out may take.
    pub drain: DrainTimes,
    /// How long connections to a real server that is gone may go on, or to those of a dataplane that another one has succeeded.
    pub real_server_drain: Duration,
}

/// Whether the node serves or leaves.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Lifecycle {
    /// Serve all VIPs.
    #[default]
    Run,
    /// Withdraw and remove all, as for a drain, and stay: the sessions and what else is prepared, so that all comes back when the node serves again.
    Standby,
    /// Leave all as it is for the next start; only the sessions are closed, so that peers with graceful restart go on using the routes.
    Keep,
    /// Withdraw everything, wait, remove everything of ours, stop the speaker.
    Drain,
}

impl Lifecycle {
    /// Whether the node goes on, serving or not.
    #[must_use]
    pub const fn goes_on(self) -> bool {
        matches!(self, Self::Run | Self::Standby)
    }
}

/// One VIP and who wants it.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DesiredVip {
    /// The objects that claim it; never empty.
    pub owners: BTreeSet<ObjectRef>,
    /// Whether it can be served here.
    pub intent: VipIntent,
    /// The policy that the oldest of its owners which asks for one asks for; there may be none of that name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
}

/// What is to be done with an accepted VIP.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum VipIntent {
    /// Place the address and announce it once it is read back.
    Serve {
        /// Nobody stands behind it now, and `vips.withoutEndpoints: announce` waives that.
        without_endpoints: bool,
    },
    /// Neither placed nor announced, for this reason.
    Withhold(WithholdReason),
}

/// Why an accepted VIP is not served on this node.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd, Serialize, Deserialize)]
pub enum WithholdReason {
    /// Every port that is asked for is rejected, for the reason [`RejectionReason::Invalid`].
    Invalid,
    /// The Service that an EricIngress or LvsIngress names is not there.
    ServiceNotFound,
    /// No endpoint of its Services is usable.
    NoEndpoints,
    /// `externalTrafficPolicy: Local`, and no usable endpoint is on this node.
    NoLocalEndpoints,
    /// Only EricIngress or LvsIngress objects, or headless Services, ask for it, and with this dataplane nobody balances those.
    NeedsDataplane,
    /// The Node is excluded from external load balancers, by [`EXCLUDED_LABEL`].
    NodeExcluded,
}

impl fmt::Display for WithholdReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Invalid => "every port that is asked for is rejected",
            Self::ServiceNotFound => "the Service that it names is not there",
            Self::NoEndpoints => "no endpoint of its Services is usable",
            Self::NoLocalEndpoints => "externalTrafficPolicy is Local and no usable endpoint is on this node",
            Self::NeedsDataplane => {
                "nobody balances it: dataplane kube-proxy serves only Services with a cluster IP, dataplane none serves no object"
            }
            Self::NodeExcluded => {
                "the Node has the label node.kubernetes.io/exclude-from-external-load-balancers; take that away to announce it here again"
            }
        })
    }
}

/// Times of the way out.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct DrainTimes {
    /// From the announcement of all as the last resort (RFC 8326) to the withdrawal; 0 where there is no such announcement.
    pub graceful_shutdown: Duration,
    /// From the acknowledged withdrawal to the removal of the address: how long the fabric needs to move the flows.
    pub fabric_delay: Duration,
    /// After this a peer that does not acknowledge no longer holds up the removal.
    pub timeout: Duration,
}

/// Something that takes no part, and why. Shown on the object, in an Event and in `vipherald show vips`.
/// In order of what is refused; of the same, numbers in their messages count as numbers.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Rejection {
    /// What is refused: an object, or a place in a file.
    pub subject: Subject,
    /// A CamelCase word for machines.
    pub reason: RejectionReason,
    /// For the person who has to mend it: what was found, what was expected, what stays in force.
    pub message: String,
}

impl Rejection {
    /// A rejection of a whole object, or of some part of it that the message names.
    #[must_use]
    pub fn object(object: &ObjectRef, reason: RejectionReason, message: impl Into<String>) -> Self {
        Self { subject: Subject::Object { object: object.clone(), vip: None }, reason, message: message.into() }
    }
}

impl Ord for Rejection {
    fn cmp(&self, other: &Self) -> Ordering {
        let by_numbers = || runs(&self.message).cmp(runs(&other.message)).then_with(|| self.message.cmp(&other.message));
        (&self.subject, self.reason).cmp(&(&other.subject, other.reason)).then_with(by_numbers)
    }
}

impl PartialOrd for Rejection {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The numbers of a text and what is between them, so that they compare as a person reads them: a number by its length first.
fn runs(text: &str) -> impl Iterator<Item = (bool, usize, &str)> {
    let is_digit = |char: &char| char.is_ascii_digit();
    let mut rest = text;
    iter::from_fn(move || {
        let digits = rest.starts_with(|char: char| char.is_ascii_digit());
        let end = rest.char_indices().find(|(_, char)| is_digit(char) != digits).map_or(rest.len(), |(place, _)| place);
        let (run, after) = rest.split_at(end);
        rest = after;
        let number = run.trim_start_matches('0');
        (!run.is_empty()).then_some(if digits { (false, number.len(), number) } else { (true, 0, run) })
    })
}

/// What a rejection is about. Prints as `Service default/nginx 10.0.0.7` or `nginx.yaml document 2`.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Subject {
    /// A whole object or, with a VIP, one address of it.
    Object {
        /// The object.
        object: ObjectRef,
        /// The address refused, where it is not the whole object.
        vip: Option<IpAddr>,
    },
    /// A document of a manifest file, counted from 1; without one the whole file.
    File {
        /// Path below the manifest directory.
        file: String,
        /// Which document.
        document: Option<usize>,
    },
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Object { object, vip: None } => write!(f, "{object}"),
            Self::Object { object, vip: Some(vip) } => write!(f, "{object} {vip}"),
            Self::File { file, document: None } => f.write_str(file),
            Self::File { file, document: Some(document) } => write!(f, "{file} document {document}"),
        }
    }
}

/// The machine's word for a rejection. More appear with what they are about.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd, Serialize, Deserialize)]
pub enum RejectionReason {
    /// The file or the directory cannot be read.
    Unreadable,
    /// The file or document is not YAML, or not an object of its kind.
    Malformed,
    /// Two documents of the same kind, namespace and name.
    Duplicate,
    /// A field holds what this version cannot honour.
    Invalid,
    /// `vips.allow` does not cover the address.
    NotAllowed,
    /// The address is one of a node, pod, Service, peer or gateway, or one that no VIP may be.
    ReservedAddress,
    /// An older object has the same VIP and port.
    Conflict,
    /// The object names a Service that is not there.
    ServiceNotFound,
    /// The object names a policy that is not in `bgp.policies`.
    PolicyNotFound,
    /// A field asks for something that nobody does here; all else of the object is in force.
    NotHonoured,
}

impl RejectionReason {
    /// Whether the object would be good if its author wrote something else, and is not served as it asks until then. What is merely not done is not among
    /// that, nor a policy that is unknown: these do no harm to a VIP.
    pub(crate) const fn is_of_content(self) -> bool {
        match self {
            Self::Invalid | Self::NotAllowed | Self::ReservedAddress | Self::Conflict | Self::ServiceNotFound => true,
            Self::Unreadable | Self::Malformed | Self::Duplicate | Self::PolicyNotFound | Self::NotHonoured => false,
        }
    }
}

/// What [`compile`] makes of a snapshot.
#[derive(Clone, Debug, PartialEq)]
pub struct Compiled {
    /// What this node should do.
    pub desired: Desired,
    /// What takes no part in it, in order and without repetition; those of the source are among them.
    pub rejections: Vec<Rejection>,
    /// The last good contents that are in force in place of refused ones.
    pub(crate) kept: Contents,
    /// The EndpointSlices of each Service that has some.
    pub(crate) slices: SliceNames,
}

/// Compiles the intent for this node.
#[must_use]
pub fn compile(snapshot: &Snapshot, config: &Config) -> Compiled {
    let mut rejections = snapshot.rejections.clone();
    let mut claimants = claimants(snapshot, config, &mut rejections);
    refuse_addresses(&mut claimants, snapshot, config, &mut rejections);
    settle_conflicts(&mut claimants, &mut rejections);
    let slices = Slices::of(&snapshot.endpoint_slices, &config.node_name, config.dataplane.local_policy());
    let (mut vips, mut services) = serving(&claimants, &slices, config, &mut rejections);
    choose_policies(&claimants, &config.routing, &mut vips, &mut rejections);
    let excluded = is_excluded(snapshot, config);
    if excluded {
        vips.values_mut().for_each(|vip| vip.intent = VipIntent::Withhold(WithholdReason::NodeExcluded));
        services.clear();
    }
    let of_source = snapshot.rejections.len();
    rejections.iter_mut().skip(of_source).for_each(|rejection| name_content(rejection, snapshot));
    rejections.sort();
    rejections.dedup();
    let desired = Desired {
        complete: snapshot.complete,
        lifecycle: Lifecycle::Run,
        vips,
        balancing: config.dataplane.balances().then(|| DesiredBalancing::new(services, config)),
        found: if excluded { Vec::new() } else { found(config) },
        bgp: config.bgp.clone(),
        routing: config.routing.clone(),
        vrrp: config.vrrp.clone(),
        drain: config.drain,
        real_server_drain: config.dataplane.drain_timeout,
    };
    Compiled { desired, rejections, kept: Contents::new(), slices: slices.names() }
}

/// Says of what is refused of an object that it is said of its last good content, where there is a newer one, of which the source tells what is wrong.
fn name_content(rejection: &mut Rejection, snapshot: &Snapshot) {
    let Subject::Object { object, .. } = &rejection.subject else { return };
    if snapshot.kept.contains(object) {
        let generation = snapshot.generation(object).map(|generation| format!(", generation {generation}")).unwrap_or_default();
        rejection.message.push_str(&format!(" (in its last good content{generation}, which is in force)"));
    }
}

/// Whether our Node says so; one that is not known does not.
fn is_excluded(snapshot: &Snapshot, config: &Config) -> bool {
    snapshot.labels_of_node(&config.node_name).is_some_and(|labels| labels.contains_key(EXCLUDED_LABEL))
}

/// What is announced as it is found: with dataplane `none`, what `vips.allow` gives to every namespace.
fn found(config: &Config) -> Vec<Prefix> {
    match config.dataplane.kind {
        DataplaneType::Auto | DataplaneType::Ipvs | DataplaneType::Nftables | DataplaneType::KubeProxy => Vec::new(),
        DataplaneType::None => {
            let allowed = config.vips.allow.iter().flatten();
            allowed.filter(|allowed| allowed.namespaces.is_empty()).map(|allowed| allowed.prefix).collect()
        }
    }
}

/// Takes from each claimant the VIPs that it may not have.
fn refuse_addresses(claimants: &mut [Claimant<'_>], snapshot: &Snapshot, config: &Config, rejections: &mut Vec<Rejection>) {
    let claimed = wanted(claimants);
    let reserved = Reserved::new(snapshot, config, &|address| claimed.contains(&address), rejections);
    for claimant in claimants {
        for vip in claimant.vips.keys().copied().collect::<Vec<_>>() {
            let holder = || reserved.holder(vip, claimant.object, claimant.created);
            if let Some(why) = unfit(vip).map(Into::into).or_else(holder) {
                claimant.refuse(vip, RejectionReason::ReservedAddress, &format!("{vip} {why}"), rejections);
            } else if let Some(why) = not_allowed(vip, &claimant.object.namespace, &config.vips) {
                claimant.refuse(vip, RejectionReason::NotAllowed, &why, rejections);
            }
        }
    }
}

/// The intent for each VIP that some claimant has, and the virtual services of those that are served.
fn serving(
    claimants: &[Claimant<'_>],
    slices: &Slices<'_>,
    config: &Config,
    rejections: &mut Vec<Rejection>,
) -> (BTreeMap<IpAddr, DesiredVip>, BTreeMap<ServiceKey, DesiredVirtualService>) {
    let ours = wanted(claimants);
    let mut owners: BTreeMap<IpAddr, BTreeSet<ObjectRef>> = BTreeMap::new();
    let mut available: BTreeMap<IpAddr, Availability> = BTreeMap::new();
    let mut services = BTreeMap::new();
    for claimant in claimants.iter().filter(|claimant| !claimant.vips.is_empty()) {
        let behind = match &claimant.balanced {
            Balanced::Over(name, service) => Some(slices.behind(name, service, &|address| ours.contains(address), rejections)),
            Balanced::OverNone | Balanced::OverMissing | Balanced::Nowhere => None,
        };
        for vip in claimant.vips.keys() {
            owners.entry(*vip).or_default().insert(claimant.object.clone());
            if matches!(claimant.balanced, Balanced::Nowhere) {
                continue;
            }
            let found = serving_ports(claimant, *vip, behind.as_ref(), config, &mut services, rejections);
            let best = available.entry(*vip).or_insert(found);
            *best = found.max(*best);
        }
    }
    let intent = |vip| match available.get(&vip).map(|available| available.reason()) {
        None => VipIntent::Withhold(WithholdReason::NeedsDataplane),
        Some(None) => VipIntent::Serve { without_endpoints: false },
        Some(Some(_)) if config.vips.without_endpoints == WithoutEndpoints::Announce => VipIntent::Serve { without_endpoints: true },
        Some(Some(reason)) => VipIntent::Withhold(reason),
    };
    let vips = owners.into_iter().map(|(vip, owners)| (vip, DesiredVip { owners, intent: intent(vip), policy: None })).collect();
    (vips, services)
}

/// The virtual services of one VIP of a claimant, and whether somebody stands behind one of them, by us or by somebody else.
fn serving_ports(
    claimant: &Claimant<'_>,
    vip: IpAddr,
    behind: Option<&Behind<'_>>,
    config: &Config,
    services: &mut BTreeMap<ServiceKey, DesiredVirtualService>,
    rejections: &mut Vec<Rejection>,
) -> Availability {
    let mut best = Availability::Refused;
    let mut objections = Vec::new();
    for port in &claimant.ports {
        let nobody = || if matches!(claimant.balanced, Balanced::OverMissing) { Availability::Missing } else { Availability::Nobody };
        let mut found = behind.map_or_else(nobody, |behind| behind.availability(vip, port));
        if config.dataplane.balances() {
            let (key, service, refused) = virtual_service(claimant.object, vip, port, behind, config.dataplane.balancer());
            if !refused.is_empty() {
                found = Availability::Refused;
            } else if found == Availability::Usable && !service.is_backed() {
                found = Availability::Nobody;
            }
            objections.extend(refused.into_iter().map(|objection| (port, objection)));
            services.insert(key, service);
        }
        best = found.max(best);
    }
    rejections.extend(refusals(claimant.object, vip, &objections));
    let hiding = claimant.ports.iter().find(|port| behind.is_some_and(|behind| behind.wants_to_show_client(port)));
    let sources = claimant.ports.iter().find_map(|port| port.sources.as_deref()).filter(|_| config.dataplane.balances());
    let hiding = hiding.map(|port| (RejectionReason::Invalid, hides_client(port)));
    let told = [hiding, sources.and_then(|sources| admits_nobody(vip, sources))];
    let subject = || Subject::Object { object: claimant.object.clone(), vip: Some(vip) };
    rejections.extend(told.into_iter().flatten().map(|(reason, message)| Rejection { subject: subject(), reason, message }));
    best
}

fn hides_client(port: &ClaimedPort<'_>) -> String {
    let (ports, protocol) = (port.ports, port.protocol);
    format!(
        "{ports}/{protocol}: externalTrafficPolicy is Local, and with forwarding nat the endpoints of other nodes would not see the client; only those on \
         this node are used. Use dr or tun, or the annotation {PRESERVE_CLIENT_KEY} where the endpoints answer through this router"
    )
}

/// Gives each VIP the policy that its oldest claimant asks for which asks for any.
fn choose_policies(
    claimants: &[Claimant<'_>],
    routing: &Routing,
    vips: &mut BTreeMap<IpAddr, DesiredVip>,
    rejections: &mut Vec<Rejection>,
) {
    let mut asking: Vec<_> = claimants.iter().filter_map(|claimant| Some((claimant, claimant.policy?))).collect();
    asking.sort_by_key(|(claimant, _)| claimant.age());
    let mut chosen: BTreeMap<IpAddr, &Claimant<'_>> = BTreeMap::new();
    for (claimant, policy) in asking {
        for vip in claimant.vips.keys() {
            let Some(desired) = vips.get_mut(vip) else { continue };
            let winner = *chosen.entry(*vip).or_insert(claimant);
            let subject = Subject::Object { object: claimant.object.clone(), vip: Some(*vip) };
            let asked = desired.policy.get_or_insert_with(|| policy.to_owned());
            if asked != policy {
                let message = format!("{POLICY_KEY}: {} asks for policy {} of {vip}, and comes first", winner.object, quoted(asked));
                rejections.push(Rejection { subject, reason: RejectionReason::Conflict, message });
            } else if !routing.policies.contains_key(policy) {
                let message = unknown_policy(policy, *vip, routing);
                rejections.push(Rejection { subject, reason: RejectionReason::PolicyNotFound, message });
            }
        }
    }
}

fn unknown_policy(policy: &str, vip: IpAddr, routing: &Routing) -> String {
    let known: Vec<&str> = routing.policies.keys().map(String::as_str).collect();
    let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
    format!(
        "{POLICY_KEY}: there is no policy {} in bgp.policies, which has {known}; {vip} stays announced as it is, and is not announced anew",
        quoted(policy)
    )
}

#[cfg(test)]
pub(crate) mod tests;
