// SPDX-License-Identifier: Apache-2.0
//! Puts the loop's view, the speaker's status and the configuration together to a [`NodeStatus`], when somebody asks.
//!
//! Inputs: watch channels of all three. Output: a [`StatusReader`]. It never waits for the loop and the loop never for it.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Instant, SystemTime};

use bgp::Prefix;
use bgp::peer;
use bgp::wire::NextHop;
use tokio::sync::watch;

use super::View;
use super::obstacle::obstacles;
use crate::api::{LabelSelector, ObjectRef};
use crate::config::{Config, InForce};
use crate::desired::{Compiled, Desired, Lifecycle, Rejection, RejectionReason};
use crate::driver::bgp as driver;
use crate::driver::vrrp::VrrpStatus;
use crate::observed::{Announcement, Observed};
use crate::plan::{Ownership, endpoints_without_host, found, ownership};
use crate::source::kube::ApiHealth;
use crate::status::{
    Clock, ConfigStatus, ConnectionStatus, FailureCounts, Identity, Inputs, LastError, MalformedCounts, MessageCounts, MessageDirection,
    NodeStatus, NotificationStatus, PeerDetails, PeerView, PrefixCounts, RestartStatus, SourceState, SourceStatus, SpeakerView,
    StatusReader, TimerStatus, TransportStatus, by_name, exchange, groups, node_status, self_description,
};

/// How well the API server is followed, and what cannot be written to it.
type ApiView = (watch::Receiver<Arc<ApiHealth>>, watch::Receiver<Arc<Vec<String>>>);

/// See the module.
pub(super) struct Explainer {
    identity: Identity,
    config_file: PathBuf,
    view: watch::Receiver<View>,
    in_force: watch::Receiver<Arc<InForce>>,
    speaker: watch::Receiver<Arc<driver::SpeakerStatus>>,
    virtual_routers: watch::Receiver<Arc<VrrpStatus>>,
    /// How well the API server is followed, where one is, and what cannot be written to it.
    api: Option<ApiView>,
    /// The status given last: times of what did not change since are taken from it.
    previous: Mutex<Option<Arc<NodeStatus>>>,
}

impl Explainer {
    pub(super) fn new(
        config: &Config,
        config_file: PathBuf,
        view: watch::Receiver<View>,
        in_force: watch::Receiver<Arc<InForce>>,
        (speaker, virtual_routers): (watch::Receiver<Arc<driver::SpeakerStatus>>, watch::Receiver<Arc<VrrpStatus>>),
        api: Option<ApiView>,
    ) -> Self {
        let identity = Identity {
            instance: config.instance.clone(),
            node: config.node_name.clone(),
            interface: config.vips.interface.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            started: SystemTime::now().into(),
        };
        Self { identity, config_file, view, in_force, speaker, virtual_routers, api, previous: Mutex::new(None) }
    }

    pub(super) fn reader(self) -> StatusReader {
        StatusReader::new(move || self.explain())
    }

    fn explain(&self) -> Arc<NodeStatus> {
        let View { compiled, cached, node_drain, observed, .. } = self.view.borrow().clone();
        let desired = compiled.as_deref().map(|compiled| &compiled.desired);
        let rejections = compiled.as_deref().map(|compiled| all_rejections(compiled, &observed)).unwrap_or_default();
        let speaker = speaker_view(&self.speaker.borrow().clone());
        let vrrp = groups(&self.virtual_routers.borrow().clone(), Instant::now());
        let mut previous = self.previous.lock().unwrap_or_else(PoisonError::into_inner);
        let inputs = Inputs {
            desired,
            node_drain: &node_drain,
            observed: &observed,
            rejections: &rejections,
            placements: &desired.map(|desired| placements(desired, &observed)).unwrap_or_default(),
            obstacles: &desired.map(|desired| obstacles(desired, &observed)).unwrap_or_default(),
            found: &desired.map(|desired| found_addresses(desired, &observed)).unwrap_or_default(),
            last_resorts: &desired.map(|desired| last_resorts(desired, &observed, Clock::now())).unwrap_or_default(),
            speaker: &speaker,
            vrrp: &vrrp,
            identity: &self.identity,
            source: &self.source_status(desired, cached),
            config: &self.config_status(),
            now: SystemTime::now(),
        };
        let status = Arc::new(node_status(&inputs, previous.as_deref()));
        *previous = Some(Arc::clone(&status));
        status
    }

    fn source_status(&self, desired: Option<&Desired>, cached: bool) -> SourceStatus {
        let SourceStatus { mut state, mut message, .. } = source_status(desired, cached);
        let Some((api, unwritten)) = &self.api else {
            return SourceStatus { state, message, api_stale_seconds: None, troubles: Vec::new(), unwritten: Vec::new() };
        };
        let (api, unwritten) = (Arc::clone(&api.borrow()), unwritten.borrow().to_vec());
        let stale = api.lost_since().map_or(0, |since| since.elapsed().as_secs());
        if state == SourceState::Complete && api.lost_since().is_some() {
            state = SourceState::Stale;
            message = "the API server is not followed; what it said last is in force".to_owned();
        }
        SourceStatus { state, message, api_stale_seconds: Some(stale), troubles: api.troubles(), unwritten }
    }

    fn config_status(&self) -> ConfigStatus {
        let in_force = self.in_force.borrow();
        let view = self.view.borrow();
        let elsewhere = |(name, selector): (&String, &LabelSelector)| {
            let ours = &view.compiled.as_ref()?.desired.bgp.peers;
            (!ours.contains_key(name)).then(|| (name.clone(), selector.to_string()))
        };
        ConfigStatus {
            file: self.config_file.display().to_string(),
            since: in_force.since.into(),
            error: in_force.fault.clone(),
            waiting_for_restart: in_force.waiting.clone(),
            dataplane: view.dataplane.clone(),
            peers_elsewhere: in_force.config.peer_selectors.iter().filter_map(elsewhere).collect(),
        }
    }
}

/// What takes no part, also for what only this node shows.
fn all_rejections<'a>(compiled: &'a Compiled, observed: &Observed) -> Cow<'a, [Rejection]> {
    let refused = endpoints_without_host(&compiled.desired, observed);
    let mut rejections = Cow::Borrowed(compiled.rejections.as_slice());
    if !refused.is_empty() {
        let refusal = |(object, server): (ObjectRef, IpAddr)| {
            let message = format!(
                "its endpoint {server} is the broadcast address of a link of this node, which no host has; the endpoint is not used"
            );
            Rejection::object(&object, RejectionReason::Invalid, message)
        };
        rejections.to_mut().extend(refused.into_iter().map(refusal));
        rejections.to_mut().sort();
    }
    rejections
}

fn placements(desired: &Desired, observed: &Observed) -> BTreeMap<IpAddr, Ownership> {
    let whose = |address: &IpAddr| Some((*address, ownership(*address, desired, observed)?));
    observed.kernel.addresses.keys().filter_map(whose).collect()
}

fn found_addresses(desired: &Desired, observed: &Observed) -> BTreeSet<IpAddr> {
    observed.kernel.addresses.keys().filter(|address| found(**address, desired, observed)).copied().collect()
}

/// Prefixes that a drain has announced as the last resort, and when each is withdrawn (RFC 8326 §4).
fn last_resorts(desired: &Desired, observed: &Observed, clock: Clock) -> BTreeMap<Prefix, SystemTime> {
    if desired.lifecycle == Lifecycle::Run {
        return BTreeMap::new();
    }
    let withdrawn = |since: Instant| {
        let at = since.checked_add(desired.drain.graceful_shutdown)?;
        clock.wall.checked_add(at.saturating_duration_since(clock.instant))
    };
    let announcements = observed.announcements.iter().filter(|(_, announcement)| announcement.value == Announcement::ShuttingDown);
    announcements.filter_map(|(prefix, announcement)| Some((*prefix, withdrawn(announcement.since)?))).collect()
}

fn source_status(desired: Option<&Desired>, cached: bool) -> SourceStatus {
    let (state, message) = match desired {
        None => (SourceState::Waiting, "no source has been read yet; nothing on the node is changed"),
        Some(_) if cached => (SourceState::Cached, "no source has been read yet; the last good intent is in force and nothing is removed"),
        Some(desired) if !desired.complete => {
            (SourceState::Incomplete, "a part cannot be read (see rejections); its last good content is in force and no stray is removed")
        }
        Some(_) => (SourceState::Complete, "everything has been read"),
    };
    SourceStatus { state, message: message.to_owned(), api_stale_seconds: None, troubles: Vec::new(), unwritten: Vec::new() }
}

fn speaker_view(status: &driver::SpeakerStatus) -> SpeakerView {
    let clock = Clock::now();
    SpeakerView {
        router_id: status.router_id,
        started: status.configured.is_some(),
        listen_error: status.listen_error.clone(),
        dynamic_full: status.dynamic_full.clone(),
        dynamic_refused: status.dynamic_refused,
        advertised: status.advertised.clone(),
        withdrawing: status.withdrawing(),
        peers: status.peers.iter().map(|(name, peer)| (name.clone(), peer_view(status, peer, clock))).collect(),
    }
}

fn peer_view(status: &driver::SpeakerStatus, peer: &driver::PeerStatus, clock: Clock) -> PeerView {
    PeerView {
        address: peer.address,
        asn: peer.asn,
        state: peer.state.to_string(),
        since: peer.since.wall,
        established_since: peer.established_since.map(|moment| moment.wall),
        established_count: peer.counters.established,
        local_address: peer.local_address,
        hold_time: peer.hold_time,
        families: peer.families.clone(),
        capabilities: peer.capabilities.clone(),
        prefixes: peer.counters.prefixes.iter().map(|(family, counts)| (*family, prefix_counts(counts))).collect(),
        held: peer.held.clone(),
        malformed: MalformedCounts {
            treated_as_withdraw: peer.counters.treated_as_withdraw,
            attributes_discarded: peer.counters.attributes_discarded,
        },
        told: if peer.established_since.is_some() { status.told(peer).collect() } else { Default::default() },
        is_current: status.is_current(peer),
        reflected: peer.reflected.clone(),
        withdrawing: Arc::clone(&peer.withdrawing),
        withheld: peer.withheld.iter().map(|(prefix, why)| (*prefix, why.to_string())).collect(),
        received: message_counts(&peer.counters.received),
        sent: message_counts(&peer.counters.sent),
        shut: peer.shut,
        warning: peer.warning.clone().or_else(|| silence(peer, clock)),
        last_error: peer.last_error.as_ref().map(last_error),
        last_attempt_error: peer.last_attempt_error.as_ref().map(last_error),
        next_hops: peer.next_hops.iter().map(|(family, next_hop)| (*family, address(*next_hop))).collect(),
        details: details(peer, clock),
    }
}

/// What the configuration, the OPENs and the timers say.
fn details(peer: &driver::PeerStatus, clock: Clock) -> PeerDetails {
    let driver::Opens { local, remote } = &*peer.opens;
    let internal = peer.asn == peer.local_asn;
    let (host_name, software_version) = remote.as_ref().map(|(open, _)| self_description(open)).unwrap_or_default();
    let up = u64::from(peer.established_since.is_some());
    let connection = peer.endpoints.map(|(local, remote)| ConnectionStatus { local: local.to_string(), remote: remote.to_string() });
    PeerDetails {
        port: peer.settings.port,
        internal,
        connection,
        transport: TransportStatus::new(&peer.settings, internal),
        router_id: remote.as_ref().map(|(open, _)| open.identifier.to_string()),
        host_name,
        software_version,
        timers: TimerStatus::new(&peer.settings, remote.as_ref(), peer.send_hold_time, peer.timers, clock),
        capability_exchange: exchange(local, remote.as_ref()),
        graceful_restart: RestartStatus::new(local, remote.as_ref(), peer.stale_until.and_then(|at| clock.time(at))),
        resets: peer.counters.established.saturating_sub(up),
        failures: FailureCounts { sent: peer.failures.sent, received: peer.failures.received, transport: peer.failures.transport },
        keep_received: peer.settings.keep_received,
        omitted: by_name(peer.omitted.iter().filter(|(_, count)| **count > 0).map(|(family, count)| (*family, *count))),
    }
}

/// What to check of a peer that does not answer our OPEN.
fn silence(peer: &driver::PeerStatus, clock: Clock) -> Option<String> {
    let since = clock.instant.saturating_duration_since(peer.since.instant);
    (peer.state == peer::State::OpenSent).then(|| driver::silence(&peer.settings.transport, since, peer.low_ttl_drops)).flatten()
}

fn last_error(error: &driver::LastError) -> LastError {
    LastError {
        reason: error.reason.clone(),
        at: error.at.wall.into(),
        count: error.count,
        notification: error.notification.as_ref().map(notification),
    }
}

fn notification(notified: &driver::Notified) -> NotificationStatus {
    let (direction, notification) = match notified {
        driver::Notified::Sent(notification) => (MessageDirection::Sent, notification),
        driver::Notified::Received(notification) => (MessageDirection::Received, notification),
    };
    // A Hard Reset says why inside (RFC 8538 §3.1).
    let inside = notification.hard_reset_reason();
    NotificationStatus {
        direction,
        code: notification.code,
        subcode: notification.subcode,
        name: notification.name(),
        communication: inside.as_ref().unwrap_or(notification).communication(),
    }
}

const fn address(next_hop: NextHop) -> IpAddr {
    match next_hop {
        NextHop::V4(address) => IpAddr::V4(address),
        NextHop::V6 { global, .. } => IpAddr::V6(global),
    }
}

const fn prefix_counts(counts: &peer::PrefixCounts) -> PrefixCounts {
    PrefixCounts { announced: counts.announced, withdrawn: counts.withdrawn }
}

const fn message_counts(counts: &peer::MessageCounts) -> MessageCounts {
    MessageCounts {
        open: counts.open,
        update: counts.update,
        notification: counts.notification,
        keepalive: counts.keepalive,
        route_refresh: counts.route_refresh,
    }
}
