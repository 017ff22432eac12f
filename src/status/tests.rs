// SPDX-License-Identifier: Apache-2.0
//! A node with everything on it, and the story of one VIP.

mod leaving;

use std::time::{Duration, Instant, UNIX_EPOCH};

use bgp::peer::Timers;
use bgp::wire::{Capability, GracefulRestart, Negotiated, Open};

use super::*;
use crate::api::Kind;
use crate::desired::{
    Aggregate, DesiredBgp, DesiredPeer, DesiredVip, DrainTimes, Policy, RejectionReason, RouteSet, Routing, Subject, Transport, VipIntent,
    VirtualRouting, WithholdReason,
};
use crate::observed::Failure;
use crate::plan::StepKey;

/// All inputs in one hand.
pub(crate) struct Node {
    pub(crate) desired: Option<Desired>,
    pub(crate) node_drain: NodeDrain,
    pub(crate) observed: Observed,
    pub(crate) rejections: Vec<Rejection>,
    pub(crate) placements: BTreeMap<IpAddr, Ownership>,
    found: BTreeSet<IpAddr>,
    last_resorts: BTreeMap<Prefix, SystemTime>,
    pub(crate) obstacles: BTreeMap<IpAddr, Obstacle>,
    pub(crate) speaker: SpeakerView,
    pub(crate) vrrp: Vec<VrrpGroupStatus>,
    pub(crate) source: SourceStatus,
    pub(crate) config: ConfigStatus,
    pub(crate) now: SystemTime,
}

pub(crate) fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn prefix(text: &str) -> Prefix {
    Prefix::host(ip(text))
}

fn seconds(seconds: u64) -> SystemTime {
    // 2026-11-28 00:00:00 UTC.
    UNIX_EPOCH + Duration::from_secs(1_795_824_000 + seconds)
}

fn service(name: &str) -> ObjectRef {
    ObjectRef { kind: Kind::Service, namespace: "default".to_owned(), name: name.to_owned() }
}

impl Node {
    /// One neighbour with a session, one VIP that is served.
    pub(crate) fn serving() -> Self {
        let bgp = DesiredBgp { peers: BTreeMap::from([("rr1".to_owned(), neighbour())]), ..DesiredBgp::new(Asn::new(65_001).unwrap()) };
        let drain =
            DrainTimes { graceful_shutdown: Duration::ZERO, fabric_delay: Duration::from_secs(1), timeout: Duration::from_secs(25) };
        let desired = Desired {
            complete: true,
            lifecycle: Lifecycle::Run,
            vips: BTreeMap::new(),
            balancing: None,
            found: Vec::new(),
            bgp,
            routing: Routing::default(),
            vrrp: VirtualRouting::default(),
            real_server_drain: Duration::ZERO,
            drain,
        };
        let mut node = Self {
            desired: Some(desired),
            node_drain: NodeDrain::None,
            observed: Observed::default(),
            rejections: Vec::new(),
            found: BTreeSet::new(),
            last_resorts: BTreeMap::new(),
            placements: BTreeMap::new(),
            obstacles: BTreeMap::new(),
            speaker: SpeakerView { router_id: BgpIdentifier::new(0x0ad3_0102), started: true, ..SpeakerView::default() },
            vrrp: Vec::new(),
            source: SourceStatus {
                state: SourceState::Complete,
                message: "/etc/vipherald/manifests".to_owned(),
                api_stale_seconds: None,
                troubles: Vec::new(),
                unwritten: Vec::new(),
            },
            config: ConfigStatus {
                file: "/etc/vipherald/config.yaml".to_owned(),
                since: seconds(0).into(),
                error: None,
                waiting_for_restart: Vec::new(),
                peers_elsewhere: BTreeMap::new(),
                dataplane: None,
            },
            now: seconds(60),
        };
        node.speaker.peers.insert("rr1".to_owned(), established("10.211.1.1"));
        node.want("10.0.0.7", VipIntent::Serve { without_endpoints: false });
        node.place("10.0.0.7", Ownership::Ours);
        node.tell(&["10.0.0.7"]);
        node
    }

    /// A node on which nearly everything that can happen has happened.
    pub(crate) fn eventful() -> Self {
        let mut node = Self::serving();
        node.want("2001:db8:7::7", VipIntent::Serve { without_endpoints: true });
        node.place("2001:db8:7::7", Ownership::Used);
        node.want("10.0.0.8", VipIntent::Withhold(WithholdReason::NoEndpoints));
        node.want("10.0.0.9", VipIntent::Serve { without_endpoints: false });
        node.tell(&["10.0.0.7", "2001:db8:7::7"]);
        node.place("10.0.0.30", Ownership::Unclaimed);
        node.place("10.0.0.40", Ownership::Ours);
        node.speaker.withdrawing.insert(prefix("10.0.0.40"));
        node.fail("10.0.0.9", "the kernel says no");
        node.vrrp = vec![virtual_routers()];
        let rr1 = node.speaker.peers.get_mut("rr1").unwrap();
        rr1.withdrawing = Arc::new(BTreeSet::from([prefix("10.0.0.40")]));
        rr1.last_error = Some(LastError {
            reason: "received NOTIFICATION Cease/Administrative Shutdown: new line card".to_owned(),
            at: seconds(5).into(),
            count: 1,
            notification: Some(NotificationStatus {
                direction: MessageDirection::Received,
                code: 6,
                subcode: 2,
                name: "Cease/Administrative Shutdown".to_owned(),
                communication: Some("new line card".to_owned()),
            }),
        });
        rr1.established_count = 2;
        rr1.held = BTreeMap::from([(Family::Ipv4Unicast, 2)]);
        let tor = PeerView {
            state: "Connect".to_owned(),
            established_since: None,
            established_count: 0,
            local_address: None,
            hold_time: None,
            families: BTreeSet::new(),
            told: BTreeSet::new(),
            received: MessageCounts::default(),
            sent: MessageCounts::default(),
            last_error: Some(LastError {
                reason: "sent NOTIFICATION OPEN Message Error/Bad Peer AS: the peer is in AS 65009, not in 65001 as configured".to_owned(),
                at: seconds(20).into(),
                count: 1,
                notification: Some(NotificationStatus {
                    direction: MessageDirection::Sent,
                    code: 2,
                    subcode: 2,
                    name: "OPEN Message Error/Bad Peer AS".to_owned(),
                    communication: None,
                }),
            }),
            last_attempt_error: Some(LastError {
                reason: "connection refused".to_owned(),
                at: seconds(55).into(),
                count: 7,
                notification: None,
            }),
            next_hops: BTreeMap::new(),
            details: PeerDetails {
                port: 179,
                failures: FailureCounts { sent: 1, transport: 7, ..FailureCounts::default() },
                ..PeerDetails::default()
            },
            ..established("2001:db8:211:1::254")
        };
        node.speaker.peers.insert("tor".to_owned(), tor);
        let object = ObjectRef { kind: Kind::EricIngress, namespace: "enm".to_owned(), name: "mscm".to_owned() };
        node.rejections = vec![
            Rejection {
                subject: Subject::Object { object, vip: Some(ip("10.9.9.9")) },
                reason: RejectionReason::NotAllowed,
                message: "10.9.9.9 is in no prefix of vips.allow".to_owned(),
            },
            Rejection {
                subject: Subject::File { file: "web.yaml".to_owned(), document: Some(2) },
                reason: RejectionReason::Malformed,
                message: "line 7: not YAML; the last good content stays in force".to_owned(),
            },
        ];
        node.source = SourceStatus {
            state: SourceState::Incomplete,
            message: "web.yaml cannot be read".to_owned(),
            api_stale_seconds: None,
            troubles: Vec::new(),
            unwritten: Vec::new(),
        };
        node.config.error = Some("config.yaml:1:1: bgp.asn: this key is missing".to_owned());
        node.config.waiting_for_restart = vec!["http.address".to_owned()];
        node
    }

    pub(crate) fn want(&mut self, vip: &str, intent: VipIntent) {
        let owners = BTreeSet::from([service("nginx")]);
        self.desired.as_mut().unwrap().vips.insert(ip(vip), DesiredVip { owners, intent, policy: None });
    }

    fn place(&mut self, vip: &str, placement: Ownership) {
        self.placements.insert(ip(vip), placement);
    }

    /// Makes this the advertised set, and what rr1 was told.
    fn tell(&mut self, vips: &[&str]) {
        let set: BTreeSet<Prefix> = vips.iter().map(|vip| prefix(vip)).collect();
        self.speaker.advertised = Some(Arc::new(set.iter().copied().collect()));
        self.rr1().told = set;
    }

    fn rr1(&mut self) -> &mut PeerView {
        self.speaker.peers.get_mut("rr1").unwrap()
    }

    fn fail(&mut self, vip: &str, error: &str) {
        let failure = Failure { error: error.to_owned(), count: 3, since: Instant::now(), last: Instant::now() };
        self.observed.failures.insert(StepKey::Address(ip(vip)), failure);
    }

    pub(crate) fn status(&self, previous: Option<&NodeStatus>) -> NodeStatus {
        let identity = Identity {
            instance: "vipherald".to_owned(),
            node: "node-1".to_owned(),
            interface: "lo".to_owned(),
            version: "1.2.3".to_owned(),
            started: seconds(0).into(),
        };
        let inputs = Inputs {
            desired: self.desired.as_ref(),
            node_drain: &self.node_drain,
            observed: &self.observed,
            rejections: &self.rejections,
            placements: &self.placements,
            obstacles: &self.obstacles,
            found: &self.found,
            last_resorts: &self.last_resorts,
            speaker: &self.speaker,
            vrrp: &self.vrrp,
            identity: &identity,
            source: &self.source,
            config: &self.config,
            now: self.now,
        };
        node_status(&inputs, previous)
    }

    /// What it says of 10.0.0.7: state, reason and message, and the three conditions.
    fn seven(&self) -> (String, String) {
        let status = self.status(None);
        let vip = status.vips.iter().find(|vip| vip.address == ip("10.0.0.7")).unwrap();
        let conditions: Vec<String> = vip.conditions.iter().map(|one| format!("{:?}={:?}/{}", one.kind, one.status, one.reason)).collect();
        (format!("{} {}: {}", vip.state.as_str(), vip.reason, vip.message), conditions.join(" "))
    }
}

/// A group whose router of IPv4 is Active, beside a router of somebody else's; that of IPv6 is on its way there.
fn virtual_routers() -> VrrpGroupStatus {
    let router = |family: &str, state: &str, source: &str, addresses: &[&str]| VirtualRouterStatus {
        family: family.to_owned(),
        state: state.to_owned(),
        since: seconds(10).into(),
        hindrances: Vec::new(),
        version: 3,
        priority: 100,
        interval_milliseconds: 100,
        source: ip(source),
        active_router: None,
        addresses: addresses.iter().map(|address| ip(address)).collect(),
        placed: BTreeSet::new(),
        foreign: BTreeSet::new(),
        checksums: BTreeMap::new(),
        others: Vec::new(),
        sent: 0,
        sent_priority_zero: 0,
        received: 0,
        received_priority_zero: 0,
        became_active: 0,
        discarded: BTreeMap::new(),
    };
    let stranger = OtherRouterStatus {
        address: ip("10.9.0.9"),
        priority: Some(90),
        lists: vec![ip("10.9.0.200")],
        problem: Some("it lists other addresses: it may be of another virtual router".to_owned()),
        discards: 3,
    };
    let ipv4 = router("IPv4", "Active", "10.9.0.2", &["10.9.0.100", "10.9.0.101", "10.9.0.102", "10.9.0.103"]);
    let ipv4 = VirtualRouterStatus {
        active_router: Some(ip("10.9.0.2")),
        placed: ipv4.addresses.iter().copied().collect(),
        checksums: BTreeMap::from([(ip("224.0.0.18"), "message-only".to_owned())]),
        others: vec![stranger],
        sent: 500,
        received: 7,
        received_priority_zero: 1,
        became_active: 2,
        discarded: BTreeMap::from([("ttl".to_owned(), 3)]),
        ..ipv4
    };
    let ipv6 = router("IPv6", "Initialize", "fe80::2", &["2001:db8:9::100"]);
    let ipv6 = VirtualRouterStatus { hindrances: vec!["the interface is down".to_owned()], ..ipv6 };
    VrrpGroupStatus {
        name: "reflector".to_owned(),
        interface: "eth1".to_owned(),
        virtual_router_id: 106,
        state: "Initialize".to_owned(),
        leaving: false,
        problems: Vec::new(),
        routers: vec![ipv4, ipv6],
    }
}

/// Of a session that was once lost.
fn details() -> PeerDetails {
    let open = |identifier, hold_time, mut capabilities: Vec<Capability>| {
        capabilities.extend([Capability::Multiprotocol(Family::Ipv4Unicast), Capability::RouteRefresh, Capability::FourOctetAs]);
        let (asn, identifier) = (Asn::new(65_001).unwrap(), BgpIdentifier::new(identifier).unwrap());
        Open { asn, hold_time: HoldTime::from_secs(hold_time).unwrap(), identifier, capabilities }
    };
    let restart = |restart_time, forwarding| {
        let families = BTreeMap::from([(Family::Ipv4Unicast, forwarding)]);
        Capability::GracefulRestart(GracefulRestart { restarting: false, notification: true, restart_time, families })
    };
    let local = open(0x0ad3_0102, 9, vec![restart(120, false), Capability::EnhancedRouteRefresh]);
    let said = vec![restart(180, true), Capability::Fqdn { host: "rr1".to_owned(), domain: String::new() }];
    let remote = open(0x0ad3_0101, 180, [said, vec![Capability::SoftwareVersion("ExampleOS 7.1".to_owned())]].concat());
    let remote = (remote.clone(), Negotiated::new(&local, &remote));
    let clock = Clock { instant: Instant::now(), wall: seconds(60) };
    let after = |milliseconds| Some(clock.instant + Duration::from_millis(milliseconds));
    let timers = Timers { hold: after(7500), keepalive: after(1200), last_received: after(0), last_sent: after(0), ..Timers::default() };
    let transport =
        Transport { password_file: Some("/key".into()), ttl: crate::desired::Ttl::Security { hops: 1 }, ..Transport::default() };
    let settings = DesiredPeer { transport, ..neighbour() };
    let (host_name, software_version) = self_description(&remote.0);
    PeerDetails {
        port: 179,
        internal: true,
        connection: Some(ConnectionStatus { local: "10.211.1.2:40001".to_owned(), remote: "10.211.1.1:179".to_owned() }),
        transport: TransportStatus::new(&settings, true),
        router_id: Some(remote.0.identifier.to_string()),
        host_name,
        software_version,
        timers: TimerStatus::new(&settings, Some(&remote), Duration::from_secs(480), timers, clock),
        capability_exchange: exchange(&local, Some(&remote)),
        graceful_restart: RestartStatus::new(&local, Some(&remote), None),
        resets: 1,
        failures: FailureCounts { sent: 0, received: 1, transport: 2 },
        keep_received: 100,
        omitted: BTreeMap::from([("ipv4-unicast".to_owned(), 5)]),
    }
}

fn neighbour() -> DesiredPeer {
    DesiredPeer::new(ip("10.211.1.1"), Asn::new(65_001).unwrap())
}

fn established(address: &str) -> PeerView {
    PeerView {
        address: Some(ip(address)),
        asn: Asn::new(65_001).unwrap(),
        state: "Established".to_owned(),
        since: seconds(10),
        established_since: Some(seconds(10)),
        established_count: 1,
        local_address: Some(ip("10.211.1.2")),
        hold_time: HoldTime::from_secs(9),
        families: BTreeSet::from(Family::ALL),
        capabilities: vec!["four-octet-as", "route-refresh"],
        prefixes: BTreeMap::from([(Family::Ipv4Unicast, PrefixCounts { announced: 3, withdrawn: 1 })]),
        held: BTreeMap::new(),
        malformed: MalformedCounts { treated_as_withdraw: 0, attributes_discarded: 1 },
        next_hops: BTreeMap::from([(Family::Ipv4Unicast, ip("10.211.1.2")), (Family::Ipv6Unicast, ip("2001:db8:211:1::2"))]),
        told: BTreeSet::new(),
        is_current: true,
        withdrawing: Arc::default(),
        withheld: BTreeMap::new(),
        reflected: BTreeMap::new(),
        received: MessageCounts { open: 1, update: 4, notification: 0, keepalive: 17, route_refresh: 1 },
        sent: MessageCounts { open: 1, update: 2, notification: 0, keepalive: 18, route_refresh: 0 },
        shut: false,
        warning: None,
        last_error: None,
        last_attempt_error: None,
        details: details(),
    }
}

#[track_caller]
fn says(node: &Node, words: &str, conditions: &str) {
    assert_eq!(node.seven(), (words.to_owned(), conditions.to_owned()));
}

#[test]
fn policy_and_aggregate_are_told() {
    let mut node = Node::serving();
    node.desired.as_mut().unwrap().vips.get_mut(&ip("10.0.0.7")).unwrap().policy = Some("gold".to_owned());
    let says = |node: &Node, words: &str| assert_eq!(node.seven().0, words);
    says(&node, "Announced Served: announced to rr1 as before, since there is no policy gold");
    let gold = Policy { prefixes: BTreeSet::new(), route: bgp::rib::Route::originated() };
    node.desired.as_mut().unwrap().routing.policies.insert("gold".to_owned(), gold);
    says(&node, "Announced Served: announced to rr1 with policy gold");

    node.desired.as_mut().unwrap().vips.get_mut(&ip("10.0.0.7")).unwrap().policy = None;
    let aggregate = Prefix::new(ip("10.0.0.0"), 24).unwrap();
    node.desired.as_mut().unwrap().routing.aggregates.insert(aggregate, Aggregate { policy: None, suppress: true });
    let mut set: RouteSet = [aggregate].into_iter().collect();
    set.covered.insert(ip("10.0.0.7"));
    node.speaker.advertised = Some(Arc::new(set));
    node.rr1().told = BTreeSet::from([aggregate]);
    says(&node, "Announced Served: announced to rr1 as part of 10.0.0.0/24");
    assert_eq!(node.status(None).vips.len(), 1, "an aggregate is no VIP");

    node.desired.as_mut().unwrap().vips.clear();
    node.speaker.advertised = Some(Arc::default());
    node.speaker.withdrawing.insert(aggregate);
    node.rr1().withdrawing = Arc::new(BTreeSet::from([aggregate]));
    says(&node, "Withdrawing NotRequested: no object asks for it any more; rr1 has not acknowledged the withdrawal");
}

#[test]
fn the_way_in() {
    let mut node = Node::serving();
    node.placements.clear();
    node.tell(&[]);
    says(
        &node,
        "Pending Placing: its address is on its way onto lo",
        "Accepted=True/Accepted Programmed=False/Placing Advertised=False/Placing",
    );
    node.fail("10.0.0.7", "no such device");
    says(
        &node,
        "Pending StepFailed: its address cannot be placed on lo: no such device (tried 3 times)",
        "Accepted=True/Accepted Programmed=False/StepFailed Advertised=False/StepFailed",
    );
    node.observed.failures.clear();
    node.place("10.0.0.7", Ownership::Ours);
    says(
        &node,
        "Pending Announcing: its address is in place; it is about to be announced",
        "Accepted=True/Accepted Programmed=Unknown/BalancedElsewhere Advertised=False/Announcing",
    );
    node.tell(&["10.0.0.7"]);
    says(&node, "Announced Served: announced to rr1", "Accepted=True/Accepted Programmed=Unknown/BalancedElsewhere Advertised=True/Served");
    node.place("10.0.0.7", Ownership::Used);
    says(
        &node,
        "Announced Served: announced to rr1; its address was placed by somebody else and will not be removed",
        "Accepted=True/Accepted Programmed=Unknown/BalancedElsewhere Advertised=True/Served",
    );
}

#[test]
fn in_the_set_is_not_announced_until_a_peer_was_told() {
    const CONDITIONS: &str = "Accepted=True/Accepted Programmed=Unknown/BalancedElsewhere Advertised=False/";
    let mut node = Node::serving();
    node.rr1().told.clear();
    says(&node, "Pending Sending: the peers are about to be told", &format!("{CONDITIONS}Sending"));
    node.rr1().withheld.insert(prefix("10.0.0.7"), "no IPv4 next hop".to_owned());
    says(&node, "Pending NotExportable: no peer can be told: rr1: no IPv4 next hop", &format!("{CONDITIONS}NotExportable"));
    node.rr1().established_since = None;
    node.rr1().told.insert(prefix("10.0.0.7"));
    says(&node, "Pending NoSession: no peer has an established session", &format!("{CONDITIONS}NoSession"));
    node.speaker.peers.clear();
    says(&node, "Pending NoPeers: no peer in bgp.peers is for this node", &format!("{CONDITIONS}NoPeers"));
    node.speaker.started = false;
    says(
        &node,
        "Pending SpeakerNotStarted: BGP sessions start once the first plan is carried out",
        &format!("{CONDITIONS}SpeakerNotStarted"),
    );
}

/// Of a newer content it is told what is wrong with it; the VIP is withheld for the one that is in force.
#[test]
fn a_vip_is_withheld_for_the_content_that_is_in_force() {
    let mut node = Node::serving();
    node.want("10.0.0.7", VipIntent::Withhold(WithholdReason::Invalid));
    let owner = node.desired.as_ref().unwrap().vips[&ip("10.0.0.7")].owners.first().unwrap().clone();
    let refusal = |vip: Option<&str>, message: &str| Rejection {
        subject: Subject::Object { object: owner.clone(), vip: vip.map(ip) },
        reason: RejectionReason::Invalid,
        message: message.to_owned(),
    };
    node.rejections =
        vec![refusal(None, "spec.x: of the newer one"), refusal(Some("10.0.0.8"), "other"), refusal(Some("10.0.0.7"), "TCP 80")];
    let message = |node: &Node| node.status(None).vips.iter().find(|vip| vip.address == ip("10.0.0.7")).unwrap().message.clone();
    assert!(message(&node).starts_with("every port that is asked for is rejected: TCP 80;"), "{}", message(&node));
    node.rejections.truncate(1);
    assert!(message(&node).starts_with("every port that is asked for is rejected: spec.x: of the newer one;"), "{}", message(&node));
}

#[test]
fn a_waiver_and_a_peer_left_out_are_visible() {
    let mut node = Node::serving();
    node.want("10.0.0.7", VipIntent::Serve { without_endpoints: true });
    let mut other = established("10.211.1.9");
    other.withheld.insert(prefix("10.0.0.7"), "no IPv4 next hop".to_owned());
    node.speaker.peers.insert("rr2".to_owned(), other);
    says(
        &node,
        "Announced WithoutEndpoints: no endpoint stands behind it, and vips.withoutEndpoints keeps it: announced to rr1; not to rr2: no IPv4 next hop",
        "Accepted=True/Accepted Programmed=Unknown/BalancedElsewhere Advertised=True/WithoutEndpoints",
    );
}

#[test]
fn what_keeps_a_vip_off() {
    let mut node = Node::serving();
    node.placements.clear();
    node.tell(&[]);
    node.want("10.0.0.7", VipIntent::Withhold(WithholdReason::NeedsDataplane));
    says(
        &node,
        "Withheld NeedsDataplane: nobody balances it: dataplane kube-proxy serves only Services with a cluster IP, dataplane none serves no object",
        "Accepted=True/Accepted Programmed=False/NeedsDataplane Advertised=False/NeedsDataplane",
    );
    node.want("10.0.0.7", VipIntent::Withhold(WithholdReason::NoLocalEndpoints));
    says(
        &node,
        "Withheld NoLocalEndpoints: externalTrafficPolicy is Local and no usable endpoint is on this node",
        "Accepted=True/Accepted Programmed=False/NoLocalEndpoints Advertised=False/NoLocalEndpoints",
    );
    node.want("10.0.0.7", VipIntent::Serve { without_endpoints: false });
    let obstacle = Obstacle { reason: "OnOtherInterface".to_owned(), message: "another interface of the node has it".to_owned() };
    node.obstacles.insert(ip("10.0.0.7"), obstacle);
    says(
        &node,
        "Withheld OnOtherInterface: it cannot be on lo: another interface of the node has it",
        "Accepted=True/Accepted Programmed=False/OnOtherInterface Advertised=False/OnOtherInterface",
    );
    node.desired.as_mut().unwrap().lifecycle = Lifecycle::Drain;
    says(
        &node,
        "Withheld NodeDrains: the node is leaving",
        "Accepted=True/Accepted Programmed=False/NodeDrains Advertised=False/NodeDrains",
    );
}

#[test]
fn a_lost_address_is_told() {
    let mut node = Node::serving();
    node.placements.clear();
    says(
        &node,
        "Withdrawing AddressLost: its address is gone from lo: withdrawn, to be placed and announced again",
        "Accepted=True/Accepted Programmed=False/AddressLost Advertised=False/AddressLost",
    );
}

#[test]
fn before_the_first_intent() {
    let mut node = Node::serving();
    node.desired = None;
    node.speaker.advertised = None;
    node.speaker.peers.clear();
    says(
        &node,
        "Draining SourceNotRead: what is wanted is not known yet; its address stays until the source is complete",
        "Accepted=Unknown/SourceNotRead Programmed=False/SourceNotRead Advertised=False/SourceNotRead",
    );
    assert_eq!((node.status(None).lifecycle, node.status(None).speaker.asn), (None, None));
}

#[test]
fn times_are_those_of_the_last_change() {
    let mut node = Node::serving();
    let first = node.status(None);
    node.now = seconds(120);
    let second = node.status(Some(&first));
    assert_eq!(second, NodeStatus { observed_at: seconds(120).into(), ..first.clone() });

    node.rr1().told.clear();
    node.now = seconds(180);
    let third = node.status(Some(&second));
    assert_eq!(third.vips[0].since, seconds(180).into());
    let since: Vec<Time> = third.vips[0].conditions.iter().map(|condition| condition.since).collect();
    assert_eq!(since, [first.observed_at, first.observed_at, seconds(180).into()], "only Advertised has changed");
}

#[test]
fn it_survives_json() {
    let status = Node::eventful().status(None);
    let json = serde_json::to_string_pretty(&status).unwrap();
    assert_eq!(serde_json::from_str::<NodeStatus>(&json).unwrap(), status);
    insta::assert_snapshot!(json);
}

#[test]
fn an_address_that_was_found_is_announced_without_an_owner() {
    let mut node = Node::serving();
    node.place("10.0.0.60", Ownership::Foreign);
    node.found.insert(ip("10.0.0.60"));
    node.tell(&["10.0.0.60"]);
    let status = node.status(None);
    let vip = status.vips.iter().find(|vip| vip.address == ip("10.0.0.60")).unwrap();
    assert_eq!((vip.state, vip.reason.as_str()), (VipState::Announced, "FoundOnInterface"));
    let truths: Vec<(Truth, &str)> = vip.conditions.iter().map(|condition| (condition.status, condition.reason.as_str())).collect();
    assert_eq!(truths, [(Truth::True, "FoundOnInterface"); 3]);
}
