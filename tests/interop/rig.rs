// SPDX-License-Identifier: Apache-2.0
//! The stage: our node and a peer's, each in a network namespace of its own, and what our speaker is to do there.
//!
//! Input: how the nodes are linked. Output: namespaces with addresses, a speaker in one of them, and words to wait for what it says of itself.
#![allow(dead_code, reason = "each test file uses a part of it")]

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use bgp::peer::State;
use bgp::{Asn, Prefix};
use vipherald::desired::{DesiredBgp, DesiredExport, DesiredListen, DesiredPeer, RouteSet, Transport};
use vipherald::driver::bgp::{Operation, PeerStatus, Speaker, SpeakerStatus};

use crate::common::{Namespace, POLL, wait_until};
use crate::peers::Setup;

/// How long anything may take, on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Our AS, and that of an internal peer.
pub(crate) const AS: u32 = 65001;
/// That of an external peer.
pub(crate) const THEIR_AS: u32 = 65000;
/// Our AS towards external peers where it is to take four octets.
pub(crate) const LARGE_AS: u32 = 4_200_000_001;

pub(crate) const OURS_V4: Ipv4Addr = v4(1);
pub(crate) const THEIRS_V4: Ipv4Addr = v4(2);
pub(crate) const OURS_V6: Ipv6Addr = v6(1);
pub(crate) const THEIRS_V6: Ipv6Addr = v6(2);
/// Our ends of the two sessions.
pub(crate) const OURS: [IpAddr; 2] = [IpAddr::V4(OURS_V4), IpAddr::V6(OURS_V6)];

/// The sessions over either family, by our names for them.
pub(crate) const SESSIONS: [(&str, IpAddr); 2] = [("v4", IpAddr::V4(THEIRS_V4)), ("v6", IpAddr::V6(THEIRS_V6))];

/// The addresses of a host.
pub(crate) const fn v4(host: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 99, 0, host)
}

/// As [`v4`].
pub(crate) const fn v6(host: u8) -> Ipv6Addr {
    Ipv6Addr::new(0x2001, 0xdb8, 0x99, 0, 0, 0, 0, host as u16)
}

/// Our node and the peer's, side by side on one link unless said otherwise.
pub(crate) struct Rig {
    pub(crate) ours: Namespace,
    pub(crate) theirs: Namespace,
    /// A router on the way.
    between: Option<Namespace>,
}

impl Rig {
    /// Both without a link.
    pub(crate) fn unlinked(tag: &str) -> Self {
        Self::of(Namespace::new(&format!("{tag}-n")), Namespace::new(&format!("{tag}-r")))
    }

    /// Two hosts that there are.
    pub(crate) const fn of(ours: Namespace, theirs: Namespace) -> Self {
        Self { ours, theirs, between: None }
    }

    /// Both without addresses.
    pub(crate) fn new(tag: &str) -> Self {
        let rig = Self::unlinked(tag);
        rig.ours.veth("eth0", &rig.theirs, "eth0");
        rig
    }

    /// Both with an address of either family.
    pub(crate) fn dual_stack(tag: &str) -> Self {
        let rig = Self::new(tag);
        for (namespace, host) in [(&rig.ours, 1), (&rig.theirs, 2)] {
            number(namespace, host);
        }
        rig
    }

    /// Both with an address of IPv6 alone.
    pub(crate) fn ipv6_only(tag: &str) -> Self {
        let rig = Self::new(tag);
        for (namespace, host) in [(&rig.ours, 1), (&rig.theirs, 2)] {
            namespace.ip(&format!("address add {}/64 dev eth0 nodad", v6(host)));
        }
        rig
    }

    /// As [`Self::dual_stack`], with a router on the way.
    pub(crate) fn two_hops(tag: &str) -> Self {
        let [ours, theirs, between] = ["n", "r", "b"].map(|side| Namespace::new(&format!("{tag}-{side}")));
        between.sysctl("net/ipv4/ip_forward", "1");
        between.sysctl("net/ipv6/conf/all/forwarding", "1");
        for (namespace, near, far) in [(&ours, 1_u8, 2_u8), (&theirs, 2, 1)] {
            let port = format!("eth{near}");
            namespace.veth("eth0", &between, &port);
            between.ip(&format!("address add 10.98.{near}.254/24 dev {port}"));
            between.ip(&format!("address add 2001:db8:98:{near}::fe/64 dev {port} nodad"));
            for words in [
                format!("address add {}/32 dev eth0", v4(near)),
                format!("address add {}/128 dev eth0 nodad", v6(near)),
                format!("address add 10.98.{near}.1/24 dev eth0"),
                format!("address add 2001:db8:98:{near}::1/64 dev eth0 nodad"),
                format!("route add {} via 10.98.{near}.254 src {}", v4(far), v4(near)),
                format!("route add {} via 2001:db8:98:{near}::fe src {}", v6(far), v6(near)),
            ] {
                namespace.ip(&words);
            }
            between.ip(&format!("route add {} via 10.98.{near}.1", v4(near)));
            between.ip(&format!("route add {} via 2001:db8:98:{near}::1", v6(near)));
        }
        Self { ours, theirs, between: Some(between) }
    }

    /// A speaker on our node.
    pub(crate) fn speaker(&self) -> Speaker {
        self.ours.run(|| Speaker::spawn("vipherald", 7)).unwrap()
    }

    /// Our node answers at these VIPs.
    pub(crate) fn put_vips(&self, vips: &[&str]) {
        vips.iter().for_each(|vip| drop(self.ours.ip(&format!("address add {vip} dev lo"))));
    }

    /// The route to a VIP in the peer's kernel.
    pub(crate) fn kernel_route(&self, vip: &str) -> String {
        let family = if vip.contains(':') { "-6" } else { "-4" };
        self.theirs.ip(&format!("{family} route show {vip}"))
    }

    /// Waits until the peer's kernel sends packets for the VIP where it answers.
    pub(crate) fn wait_until_reached(&self, vip: &str) {
        wait_until(&format!("{vip} is in the kernel of the peer"), PATIENCE, || !self.kernel_route(vip).is_empty());
        self.theirs.output(&["ping", "-n", "-c", "1", "-W", "10", vip]);
    }
}

/// Hosts side by side on one switch.
pub(crate) struct Rack {
    hosts: BTreeMap<u8, Namespace>,
    _switch: Namespace,
}

impl Rack {
    pub(crate) fn new(tag: &str, hosts: &[u8]) -> Self {
        let switch = Namespace::new(&format!("{tag}-sw"));
        switch.ip("link add rack type bridge");
        switch.ip("link set rack up");
        let host = |host: &u8| {
            let namespace = Namespace::new(&format!("{tag}-{host}"));
            let port = format!("port{host}");
            namespace.veth("eth0", &switch, &port);
            switch.ip(&format!("link set {port} master rack"));
            number(&namespace, *host);
            (*host, namespace)
        };
        Self { hosts: hosts.iter().map(host).collect(), _switch: switch }
    }

    pub(crate) fn host(&self, host: u8) -> &Namespace {
        self.hosts.get(&host).unwrap_or_else(|| panic!("there is no host {host}"))
    }

    pub(crate) fn speaker(&self, host: u8) -> Speaker {
        self.host(host).run(|| Speaker::spawn("vipherald", host.into())).unwrap()
    }
}

fn number(namespace: &Namespace, host: u8) {
    namespace.ip(&format!("address add {}/24 dev eth0", v4(host)));
    namespace.ip(&format!("address add {}/64 dev eth0 nodad", v6(host)));
}

/// A peer on the other node with both sessions.
pub(crate) fn peer_of(asn: u32, neighbour_asn: u32) -> Setup {
    Setup::new(asn, THEIRS_V4, neighbour_asn, OURS)
}

pub(crate) fn neighbour(address: IpAddr, asn: u32) -> DesiredPeer {
    DesiredPeer {
        connect_retry: Duration::from_secs(1),
        export: DesiredExport { local_preference: 200, med: Some(50), ..DesiredExport::default() },
        ..DesiredPeer::new(address, Asn::new(asn).unwrap())
    }
}

pub(crate) fn speaker_of<'a>(asn: u32, peers: impl IntoIterator<Item = (&'a str, DesiredPeer)>) -> Arc<DesiredBgp> {
    Arc::new(DesiredBgp {
        peers: peers.into_iter().map(|(name, peer)| (name.to_owned(), peer)).collect(),
        ..DesiredBgp::new(Asn::new(asn).unwrap())
    })
}

/// Sessions named after the family of their transport.
pub(crate) fn both_sessions(asn: u32, their_asn: u32) -> Arc<DesiredBgp> {
    speaker_of(asn, SESSIONS.map(|(name, address)| (name, neighbour(address, their_asn))))
}

/// As [`both_sessions`] with an external peer, each over this transport.
pub(crate) fn both_sessions_over(transport: &Transport) -> Arc<DesiredBgp> {
    let peer = |address| DesiredPeer { transport: transport.clone(), ..neighbour(address, THEIR_AS) };
    speaker_of(AS, SESSIONS.map(|(name, address)| (name, peer(address))))
}

/// We are dialled by whom we know, and by dynamic peers like this one from these prefixes.
pub(crate) fn listening(address: IpAddr, prefixes: impl IntoIterator<Item = Prefix>, template: DesiredPeer) -> Option<DesiredListen> {
    Some(DesiredListen { address, port: 179, prefixes: prefixes.into_iter().collect(), limit: 8, template })
}

pub(crate) fn prefix(address: &str) -> Prefix {
    Prefix::host(address.parse().unwrap())
}

pub(crate) fn set<'a>(addresses: impl IntoIterator<Item = &'a str>) -> Arc<RouteSet> {
    Arc::new(addresses.into_iter().map(prefix).collect())
}

pub(crate) fn peer<'a>(status: &'a SpeakerStatus, name: &str) -> &'a PeerStatus {
    status.peers.get(name).unwrap_or_else(|| panic!("no peer {name}: {status:#?}"))
}

pub(crate) fn is_up(status: &SpeakerStatus, name: &str) -> bool {
    status.peers.get(name).is_some_and(|peer| peer.state == State::Established)
}

/// Why the last session or attempt ended.
pub(crate) fn reason<'a>(status: &'a SpeakerStatus, name: &str) -> &'a str {
    let errors = status.peers.get(name).into_iter().flat_map(|peer| peer.last_error.iter().chain(&peer.last_attempt_error));
    errors.max_by_key(|error| error.at.instant).map_or("", |error| error.reason.as_str())
}

/// Gives an order for one session.
pub(crate) fn operate(speaker: &Speaker, name: &str, operation: Operation) {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(speaker.operator().operate(name, operation)).unwrap();
}

/// Waits until the speaker says so of itself; fails with what it does say.
pub(crate) fn wait_for(what: &str, speaker: &Speaker, wanted: impl Fn(&SpeakerStatus) -> bool) -> Arc<SpeakerStatus> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let status = speaker.status();
        if wanted(&status) {
            return status;
        }
        assert!(Instant::now() < deadline, "not within {PATIENCE:?}: {what}: {:#?}", status.peers);
        thread::sleep(POLL);
    }
}

pub(crate) fn wait_until_up(speaker: &Speaker) -> Arc<SpeakerStatus> {
    wait_for("both sessions are up", speaker, |status| SESSIONS.iter().all(|(name, _)| is_up(status, name)))
}
