// SPDX-License-Identifier: Apache-2.0
//! Each VIP in words: where it is between nothing and the fabric, and why it is not further.
//!
//! Invariant: a VIP is called Announced only while it is in the advertised set, its address is there and some peer was told, or while an Active Router has it.

use std::collections::BTreeSet;
use std::net::IpAddr;

use bgp::Prefix;

use super::routed::{Routed, routed};
use super::{Condition, ConditionKind, GracefulShutdownStatus, Inputs, NodeStatus, Ownership, PeerView, Time, Truth, VipState, VipStatus};
use crate::desired::{DesiredVip, Lifecycle, Mode, NodeDrain, Rejection, RejectionReason, Subject, VipIntent, WithholdReason};
use crate::plan::{self, Lack, StepKey, Unreachable};

/// What to do about kube-proxy where it manages IPVS too.
pub(crate) const KUBE_PROXY_IN_IPVS_MODE: &str = ". kube-proxy runs in IPVS mode here (interface kube-ipvs0): give the Services the label \
    service.kubernetes.io/service-proxy-name, and kube-proxy --ipvs-exclude-cidrs with the VIPs (ipvs.excludeCIDRs)";

/// All VIPs that are wanted, on the interface as ours, or known to the fabric.
pub(super) fn statuses(inputs: &Inputs<'_>, previous: Option<&NodeStatus>) -> Vec<VipStatus> {
    let wanted = inputs.desired.iter().flat_map(|desired| desired.vips.keys());
    let ours = inputs.placements.iter().filter(|(_, placement)| **placement == Ownership::Ours).map(|(address, _)| address);
    let advertised = inputs.speaker.advertised.iter();
    let prefixes = advertised.clone().flat_map(|set| set.prefixes()).chain(inputs.speaker.withdrawing.iter().copied());
    let hosts = prefixes.filter(|prefix| *prefix == Prefix::host(prefix.address())).map(|prefix| prefix.address());
    let covered = advertised.flat_map(|set| &set.covered);
    let mut addresses: BTreeSet<IpAddr> = wanted.chain(ours).chain(inputs.found).chain(covered).copied().collect();
    addresses.extend(hosts);
    let routed = routed(inputs.vrrp);
    let before = |address| previous?.vips.iter().find(|vip| vip.address == address);
    addresses
        .into_iter()
        .map(|address| Facts::new(address, inputs, routed.get(&address).copied()).status(inputs.now.into(), before(address)))
        .collect()
}

/// A word for machines and a sentence for persons.
#[derive(Clone, Debug)]
pub(super) struct Why {
    reason: String,
    message: String,
}

impl Why {
    pub(super) fn new(reason: &str, message: impl Into<String>) -> Self {
        Self { reason: reason.to_owned(), message: message.into() }
    }
}

/// What is known of one VIP.
struct Facts<'a> {
    address: IpAddr,
    inputs: &'a Inputs<'a>,
    wanted: Option<&'a DesiredVip>,
    placement: Option<Ownership>,
    /// By which it is announced: its own, or an aggregate's.
    prefix: Prefix,
    /// In the speaker's set.
    in_set: bool,
    /// Out of it, and some peer may not know.
    withdrawing: bool,
    /// Announced as somebody else placed it.
    found: bool,
    /// The peers that were told.
    told: Vec<&'a str>,
    /// The virtual router of which it is an address.
    routed: Option<Routed<'a>>,
}

impl<'a> Facts<'a> {
    fn new(address: IpAddr, inputs: &'a Inputs<'a>, routed: Option<Routed<'a>>) -> Self {
        let speaker = inputs.speaker;
        let host = Prefix::host(address);
        let announced = speaker.advertised.as_ref().and_then(|set| Some(set.announces(address)?.0));
        // The last VIP of an aggregate waits for it to be withdrawn.
        let leaving = || {
            let mut aggregates = inputs.desired?.routing.aggregates.keys();
            aggregates.find(|prefix| prefix.contains(address) && speaker.withdrawing.contains(prefix)).copied()
        };
        let prefix = announced.or_else(|| (!speaker.withdrawing.contains(&host)).then(leaving).flatten()).unwrap_or(host);
        let told = speaker.peers.iter().filter(|(_, peer)| peer.established_since.is_some() && peer.told.contains(&prefix));
        Self {
            address,
            inputs,
            wanted: inputs.desired.and_then(|desired| desired.vips.get(&address)),
            placement: inputs.placements.get(&address).copied(),
            found: inputs.found.contains(&address),
            prefix,
            in_set: announced.is_some(),
            withdrawing: speaker.withdrawing.contains(&prefix),
            told: told.map(|(name, _)| name.as_str()).collect(),
            routed,
        }
    }

    fn status(&self, now: Time, before: Option<&VipStatus>) -> VipStatus {
        let (state, why) = self.state();
        let since = before.filter(|vip| vip.state == state && vip.reason == why.reason).map_or(now, |vip| vip.since);
        let conditions = [
            (ConditionKind::Accepted, self.accepted()),
            (ConditionKind::Programmed, self.programmed()),
            (ConditionKind::Advertised, self.advertised(state, &why)),
        ];
        let condition = |(kind, (status, why)): (ConditionKind, (Truth, Why))| {
            let same = before.and_then(|vip| vip.conditions.iter().find(|condition| condition.kind == kind && condition.status == status));
            Condition { kind, status, reason: why.reason, message: why.message, since: same.map_or(now, |condition| condition.since) }
        };
        VipStatus {
            address: self.address,
            owners: self.wanted.map(|vip| vip.owners.iter().cloned().collect()).unwrap_or_default(),
            state,
            reason: why.reason,
            message: why.message,
            since,
            placement: self.placement,
            conditions: conditions.into_iter().map(condition).collect(),
            peers: self.told.iter().map(|name| (*name).to_owned()).collect(),
            graceful_shutdown: self.graceful_shutdown(),
        }
    }

    /// The first stage of a drain (RFC 8326 §4), while it lasts.
    fn graceful_shutdown(&self) -> Option<GracefulShutdownStatus> {
        let withdrawn = *self.inputs.last_resorts.get(&self.prefix).filter(|_| self.in_set)?;
        let is_current = |name: &str| self.inputs.speaker.peers.get(name).is_some_and(|peer| peer.is_current);
        let (peers, waiting): (Vec<&str>, Vec<&str>) = self.told.iter().partition(|name| is_current(name));
        let owned = |names: Vec<&str>| names.into_iter().map(ToOwned::to_owned).collect();
        let left = withdrawn.duration_since(self.inputs.now).unwrap_or_default();
        Some(GracefulShutdownStatus {
            peers: owned(peers),
            waiting: owned(waiting),
            withdrawn_at: withdrawn.into(),
            withdrawn_in_seconds: left.as_secs() + u64::from(left.subsec_nanos() > 0),
        })
    }

    fn state(&self) -> (VipState, Why) {
        let hindrance = self.hindrance();
        if hindrance.is_none()
            && !(self.in_set || self.withdrawing || self.routed.is_some())
            && let Some(why) = self.unbacked()
        {
            return (VipState::Pending, why);
        }
        let (state, mut why) = if self.is_by_routers() { self.routing(hindrance) } else { self.standing(hindrance) };
        if let Some(routed) = self.routed.filter(|_| !self.is_by_routers()) {
            why.message.push_str(&format!("; {} goes on having it until a peer is told", routed.name()));
        }
        let unserved = self.unserved();
        if !unserved.is_empty() && matches!(state, VipState::Announced | VipState::Pending) {
            why.message.push_str(&format!("; not all of it is served: {}", unserved.join("; ")));
        }
        for (service, server, unreachable) in
            self.inputs.desired.map(|desired| plan::left_out(self.address, desired, self.inputs.observed)).unwrap_or_default()
        {
            let owner =
                self.inputs.desired.and_then(|desired| desired.balancing.as_ref()?.services.get(&service)).map(|service| &service.owner);
            let owner = owner.map(|owner| format!(" of {owner}")).unwrap_or_default();
            why.message.push_str(&match unreachable {
                Unreachable::Distant => format!(
                    "; {service}{owner} does without {server}, which is behind a next hop: forwarding dr needs it on a link of this node"
                ),
                Unreachable::Broadcast => {
                    format!("; {service}{owner} does without {server}, which is no host but the broadcast address of a link of this node")
                }
            });
        }
        (state, why)
    }

    /// Where it stands between nothing and the fabric.
    fn standing(&self, hindrance: Option<Why>) -> (VipState, Why) {
        match (hindrance, self.placed()) {
            (None, true) if self.in_set => match self.untold() {
                None => (VipState::Announced, self.announced()),
                Some(why) => (VipState::Pending, why),
            },
            (None, true) => (VipState::Pending, Why::new("Announcing", "its address is in place; it is about to be announced")),
            (None, false) if self.in_set || self.withdrawing => (VipState::Withdrawing, self.lost()),
            (None, false) => (VipState::Pending, self.placing()),
            (Some(why), _) if self.in_set || self.withdrawing => (VipState::Withdrawing, self.leaving(why)),
            (Some(why), _) if self.placement == Some(Ownership::Ours) => (VipState::Draining, self.draining(why)),
            (Some(why), _) => (VipState::Withheld, why),
        }
    }

    fn is_by_routers(&self) -> bool {
        self.inputs.desired.is_some_and(|desired| desired.vrrp.mode == Mode::Vrrp)
    }

    /// Where it stands between nothing and the Active Router.
    fn routing(&self, hindrance: Option<Why>) -> (VipState, Why) {
        match (hindrance, self.routed) {
            (Some(why), _) if self.in_set || self.withdrawing => (VipState::Withdrawing, self.leaving(why)),
            (Some(why), _) if self.placement == Some(Ownership::Ours) => (VipState::Draining, self.draining(why)),
            (Some(why), Some(routed)) => {
                (VipState::Draining, Why { message: format!("{}; {} gives it up", why.message, routed.name()), ..why })
            }
            (Some(why), None) => (VipState::Withheld, why),
            (None, None) => (VipState::Pending, self.unrouted()),
            (None, Some(routed)) => {
                let (state, mut why) = routed.standing(self.address);
                if self.in_set {
                    why.message.push_str("; until then it is announced by BGP as before");
                }
                (state, why)
            }
        }
    }

    /// Why it is not an address of a virtual router yet.
    fn unrouted(&self) -> Why {
        let failures = &self.inputs.observed.failures;
        let group = self.inputs.desired.and_then(|desired| desired.vrrp.group_of(self.address));
        let group = self.inputs.vrrp.iter().find(|shown| Some(shown.name.as_str()) == group && !shown.problems.is_empty());
        if let Some(group) = group {
            return Why::new("Initialize", format!("group {} takes no part in it here: {}", group.name, group.problems.join("; ")));
        }
        match failures.get(&StepKey::Record).or_else(|| failures.get(&StepKey::VirtualRouters)) {
            Some(failure) => {
                Why::new("StepFailed", format!("no virtual router can have it: {} (tried {} times)", failure.error, failure.count))
            }
            None => Why::new("Routing", "it is about to be an address of a virtual router"),
        }
    }

    /// Whether the address is on the interface and may be announced.
    fn placed(&self) -> bool {
        self.found || matches!(self.placement, Some(Ownership::Ours | Ownership::Used))
    }

    /// Why it is not to be served here and now.
    fn hindrance(&self) -> Option<Why> {
        let interface = &self.inputs.identity.interface;
        if self.inputs.desired.is_some_and(|desired| desired.lifecycle == Lifecycle::Drain) {
            return Some(Why::new("NodeDrains", "the node is leaving"));
        }
        if self.inputs.desired.is_some_and(|desired| desired.lifecycle == Lifecycle::Standby) {
            return Some(self.drained());
        }
        if self.found {
            return None;
        }
        let Some(wanted) = self.wanted else {
            return Some(match self.inputs.desired {
                Some(_) => Why::new("NotRequested", "no object asks for it any more"),
                None => Why::new("SourceNotRead", "what is wanted is not known yet"),
            });
        };
        match wanted.intent {
            VipIntent::Withhold(WithholdReason::Invalid) => Some(self.refused(wanted)),
            VipIntent::Withhold(reason) => Some(Why::new(&format!("{reason:?}"), reason.to_string())),
            VipIntent::Serve { .. } => {
                let obstacle = self.inputs.obstacles.get(&self.address)?;
                let place = if self.is_by_routers() { "served".to_owned() } else { format!("on {interface}") };
                Some(Why::new(&obstacle.reason, format!("it cannot be {place}: {}", obstacle.message)))
            }
        }
    }

    /// Why the node keeps all VIPs away though it goes on.
    fn drained(&self) -> Why {
        match self.inputs.node_drain {
            NodeDrain::Drained { reason } => Why::new("NodeDrained", reason),
            // It is about to come back.
            NodeDrain::None | NodeDrain::Waiting { .. } => Why::new("NodeDrained", "the Node was cordoned or tainted"),
        }
    }

    /// Why all that is asked of it is rejected: the first of these rejections, and where to find the others. One of a port names the VIP; one that does not
    /// may be of content that is not in force.
    fn refused(&self, wanted: &DesiredVip) -> Why {
        let about = |rejection: &Rejection, about: Option<IpAddr>| match &rejection.subject {
            Subject::Object { object, vip } => wanted.owners.contains(object) && *vip == about,
            Subject::File { .. } => false,
        };
        let invalid = || self.inputs.rejections.iter().filter(|rejection| rejection.reason == RejectionReason::Invalid);
        let mut refusals: Vec<&Rejection> = invalid().filter(|rejection| about(rejection, Some(self.address))).collect();
        if refusals.is_empty() {
            refusals = invalid().filter(|rejection| about(rejection, None)).collect();
        }
        let first = refusals.first().map(|rejection| format!(": {}", rejection.message)).unwrap_or_default();
        let more = match refusals.len().saturating_sub(1) {
            0 => String::new(),
            count => format!("; and {count} more, see 'vipherald show rejections'"),
        };
        Why::new("Invalid", format!("every port that is asked for is rejected{first}{more}"))
    }

    /// Why no peer was told of a VIP that is in the set; `None` where one was.
    fn untold(&self) -> Option<Why> {
        if !self.told.is_empty() {
            return None;
        }
        let peers = &self.inputs.speaker.peers;
        let established: Vec<(&String, &PeerView)> = peers.iter().filter(|(_, peer)| peer.established_since.is_some()).collect();
        let reasons = self.withheld_by();
        Some(if !self.inputs.speaker.started {
            match self.inputs.observed.failures.get(&StepKey::Speaker) {
                Some(failure) => Why::new("SpeakerNotStarted", failure.error.clone()),
                None => Why::new("SpeakerNotStarted", "BGP sessions start once the first plan is carried out"),
            }
        } else if peers.is_empty() {
            Why::new("NoPeers", "no peer in bgp.peers is for this node")
        } else if established.is_empty() {
            Why::new("NoSession", "no peer has an established session")
        } else if established.len() == reasons.len() {
            Why::new("NotExportable", format!("no peer can be told: {}", reasons.join("; ")))
        } else {
            Why::new("Sending", "the peers are about to be told")
        })
    }

    /// Each peer with a session that is not told, and why.
    fn withheld_by(&self) -> Vec<String> {
        let established = self.inputs.speaker.peers.iter().filter(|(_, peer)| peer.established_since.is_some());
        established.filter_map(|(name, peer)| peer.withheld.get(&self.prefix).map(|reason| format!("{name}: {reason}"))).collect()
    }

    fn announced(&self) -> Why {
        let mut message = format!("announced to {}", self.told.join(", "));
        if self.prefix != Prefix::host(self.address) {
            message.push_str(&format!(" as part of {}", self.prefix));
        }
        if let (Some(policy), Some(desired)) = (self.wanted.and_then(|wanted| wanted.policy.as_ref()), self.inputs.desired) {
            let missing = !desired.routing.policies.contains_key(policy);
            message.push_str(&if missing {
                format!(" as before, since there is no policy {policy}")
            } else {
                format!(" with policy {policy}")
            });
        }
        let withheld = self.withheld_by();
        if !withheld.is_empty() {
            message.push_str(&format!("; not to {}", withheld.join("; ")));
        }
        if self.placement == Some(Ownership::Used) {
            message.push_str("; its address was placed by somebody else and will not be removed");
        }
        match self.wanted.map(|vip| &vip.intent) {
            _ if self.found => Why::new("FoundOnInterface", format!("another program placed it: {message}")),
            Some(VipIntent::Serve { without_endpoints: true }) => {
                Why::new("WithoutEndpoints", format!("no endpoint stands behind it, and vips.withoutEndpoints keeps it: {message}"))
            }
            _ => Why::new("Served", message),
        }
    }

    /// Why IPVS does not serve it, where it is to and nobody stands behind any port of it.
    fn unbacked(&self) -> Option<Why> {
        self.wanted.filter(|wanted| wanted.intent == VipIntent::Serve { without_endpoints: false })?;
        let balancing = self.inputs.desired?.balancing.as_ref()?;
        let lacks = self.unserved();
        let none = lacks.len() == balancing.of(self.address).count();
        none.then(|| Why::new("NotProgrammed", format!("this node does not balance it yet: {}", lacks.join("; "))))
    }

    /// Its ports that IPVS does not serve, each with the reason.
    fn unserved(&self) -> Vec<String> {
        let observed = self.inputs.observed;
        let lacks = self.inputs.desired.map(|desired| plan::unserved(self.address, desired, observed)).unwrap_or_default();
        let words = |(service, lack)| match (observed.failures.get(&StepKey::VirtualService(service)), lack) {
            (_, Lack::TakenByOthers) => format!("{service} is a virtual service of somebody else, and is left alone{}", self.suspicion()),
            (_, Lack::Removed(times)) => {
                format!("somebody else removed {service} {times} times; it is made again after a while{}", self.suspicion())
            }
            (Some(failure), _) => format!("{service}: {} (tried {} times)", failure.error, failure.count),
            (None, Lack::Unreachable(server, Unreachable::Distant)) => format!(
                "{service}: forwarding dr sends frames to real servers over a link of this node, and {server} is behind a next hop; use tun, gue or nat"
            ),
            (None, Lack::Unreachable(server, Unreachable::Broadcast)) => {
                format!("{service}: {server} is no host but the broadcast address of a link of this node")
            }
            (None, Lack::Absent) => format!("{service} is about to be made"),
            (None, Lack::Nobody) => format!("{service} has no real server that takes connections"),
        };
        lacks.into_iter().map(words).collect()
    }

    /// Who it may be that meddles with virtual services.
    const fn suspicion(&self) -> &'static str {
        if self.inputs.observed.kernel.kube_proxy_in_ipvs_mode { KUBE_PROXY_IN_IPVS_MODE } else { "" }
    }

    fn placing(&self) -> Why {
        let interface = &self.inputs.identity.interface;
        let failures = &self.inputs.observed.failures;
        let failure = failures.get(&StepKey::Address(self.address)).or_else(|| failures.get(&StepKey::Record));
        match failure {
            Some(failure) => Why::new(
                "StepFailed",
                format!("its address cannot be placed on {interface}: {} (tried {} times)", failure.error, failure.count),
            ),
            None => Why::new("Placing", format!("its address is on its way onto {interface}")),
        }
    }

    fn lost(&self) -> Why {
        let interface = &self.inputs.identity.interface;
        Why::new("AddressLost", format!("its address is gone from {interface}: withdrawn, to be placed and announced again"))
    }

    fn leaving(&self, why: Why) -> Why {
        let times = self.inputs.desired.filter(|desired| desired.lifecycle != Lifecycle::Run).map(|desired| desired.drain);
        if let Some(times) = times.filter(|times| self.in_set && !times.graceful_shutdown.is_zero()) {
            let time = humantime::format_duration(times.graceful_shutdown);
            let told = match self.graceful_shutdown() {
                Some(GracefulShutdownStatus { peers, waiting, .. }) => {
                    let list = |words: &str, names: &[String]| {
                        if names.is_empty() { String::new() } else { format!("{words} {}", names.join(", ")) }
                    };
                    list("; so told:", &peers) + &list("; about to be told:", &waiting)
                }
                None => String::new(),
            };
            let message =
                format!("{}; for {time} it is announced as the last resort (GRACEFUL_SHUTDOWN), then withdrawn{told}", why.message);
            return Why { message, ..why };
        }
        let waits = self.inputs.speaker.peers.iter().filter(|(_, peer)| peer.withdrawing.contains(&self.prefix));
        let waits: Vec<&str> = waits.map(|(name, _)| name.as_str()).collect();
        let message = if waits.is_empty() {
            format!("{}; it is being withdrawn", why.message)
        } else {
            format!("{}; {} has not acknowledged the withdrawal", why.message, waits.join(", "))
        };
        Why { message, ..why }
    }

    fn draining(&self, why: Why) -> Why {
        let failure = self.inputs.observed.failures.get(&StepKey::Address(self.address));
        let stays = match (failure, self.inputs.desired) {
            (Some(failure), _) => format!("its address cannot be removed: {} (tried {} times)", failure.error, failure.count),
            (None, Some(desired)) if desired.complete || desired.lifecycle != Lifecycle::Run => {
                let delay = humantime::format_duration(desired.drain.fabric_delay);
                format!("withdrawn; its address stays for {delay} after that, until the fabric has moved its flows")
            }
            (None, _) => "its address stays until the source is complete".to_owned(),
        };
        Why { message: format!("{}; {stays}", why.message), ..why }
    }

    fn accepted(&self) -> (Truth, Why) {
        let interface = &self.inputs.identity.interface;
        match (self.wanted, self.inputs.desired) {
            _ if self.found => (Truth::True, Why::new("FoundOnInterface", format!("it is on {interface}, and vips.allow covers it"))),
            (Some(vip), _) => {
                let owners: Vec<String> = vip.owners.iter().map(ToString::to_string).collect();
                (Truth::True, Why::new("Accepted", format!("{} asks for it", owners.join(", "))))
            }
            (None, Some(_)) => (Truth::False, Why::new("NotRequested", "no object asks for it any more")),
            (None, None) => (Truth::Unknown, Why::new("SourceNotRead", "what is wanted is not known yet")),
        }
    }

    fn programmed(&self) -> (Truth, Why) {
        let is_routed = self.is_by_routers() && self.routed.is_some();
        match (self.hindrance(), self.placed() || is_routed) {
            (Some(why), _) => (Truth::False, why),
            (None, false) if self.is_by_routers() => (Truth::False, self.unrouted()),
            (None, false) => (Truth::False, if self.in_set || self.withdrawing { self.lost() } else { self.placing() }),
            (None, true) if self.found => (Truth::True, Why::new("FoundOnInterface", "another program placed it, and serves it")),
            (None, true) if self.is_balanced_here() => self.balanced(),
            (None, true) => {
                let message = format!("{}; kube-proxy, or another program, balances it", self.place());
                (Truth::Unknown, Why::new("BalancedElsewhere", message))
            }
        }
    }

    /// How far its address is where it is to be.
    fn place(&self) -> &'static str {
        if self.is_by_routers() { "a virtual router has its address" } else { "its address is in place" }
    }

    fn is_balanced_here(&self) -> bool {
        self.inputs.desired.is_some_and(|desired| desired.balancing.is_some())
    }

    /// Its address is in place, and we balance.
    fn balanced(&self) -> (Truth, Why) {
        let place = self.place();
        let unserved = self.unserved();
        let ports =
            self.inputs.desired.iter().filter_map(|desired| desired.balancing.as_ref()).flat_map(|balancing| balancing.of(self.address));
        if unserved.is_empty() {
            (Truth::True, Why::new("Programmed", format!("{place}, and all of its ports are balanced")))
        } else if unserved.len() < ports.count() {
            (Truth::True, Why::new("PartlyProgrammed", format!("{place}; not all of it is served: {}", unserved.join("; "))))
        } else {
            (Truth::False, Why::new("NotProgrammed", format!("{place}; nothing of it is served: {}", unserved.join("; "))))
        }
    }

    fn advertised(&self, state: VipState, why: &Why) -> (Truth, Why) {
        let status = if state == VipState::Announced { Truth::True } else { Truth::False };
        (status, why.clone())
    }
}
