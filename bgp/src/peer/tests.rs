// SPDX-License-Identifier: Apache-2.0
//! A peer under test, and what is common to the tests of the state machine.

mod anything;
mod collision;
mod deferral;
mod imported;
mod mesh;
mod open;
mod reflection;
mod restart;
mod rfc4724;
mod session;
mod simulation;
mod table;
mod timers;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::LazyLock;

use std::collections::BTreeSet;
use std::time::Duration;

use super::*;
use crate::identity::{Asn, BgpIdentifier, HoldTime};
use crate::prefix::Prefix;
use crate::wire::{KEEPALIVE, NextHop, Origin, PathAttribute, RouteRefresh, encode_announcement};

/// Where virtual clocks start.
static EPOCH: LazyLock<Instant> = LazyLock::new(
    #[expect(clippy::disallowed_methods, reason = "an instant cannot be made of a number: a virtual clock has to start somewhere")]
    Instant::now,
);

const LOCAL: LocalAddresses = LocalAddresses {
    ipv4: Some(Ipv4Addr::new(10, 211, 1, 2)),
    ipv6: Some(Ipv6Addr::new(0xfd00, 0, 0, 1, 0, 0, 0, 2)),
    ..LocalAddresses::NONE
};

fn asn(number: u32) -> Asn {
    Asn::new(number).unwrap()
}

fn seconds(seconds: u16) -> HoldTime {
    HoldTime::from_secs(seconds).unwrap()
}

/// Us: 10.0.0.5 in AS 65001, with a peer in the same AS.
fn config() -> PeerConfig {
    let peer = IpAddr::V4(Ipv4Addr::new(10, 211, 1, 9));
    PeerConfig {
        hold_time: seconds(9),
        connect_retry: Duration::from_secs(5),
        ..PeerConfig::new(PeerId(9), peer, asn(65001), asn(65001), BgpIdentifier::new(0x0a00_0005).unwrap())
    }
}

/// The OPEN of that peer, whose identifier is higher than ours.
fn peer_open() -> Open {
    Open { identifier: BgpIdentifier::new(0x0a00_0009).unwrap(), ..config().open() }
}

fn update() -> Vec<u8> {
    let mut octets = Vec::new();
    let attributes =
        [PathAttribute::Origin(Origin::Igp), PathAttribute::AsPath(crate::wire::AsPath::default()), PathAttribute::LocalPref(100)];
    let negotiated = Negotiated::new(&config().open(), &peer_open());
    encode_announcement(
        &attributes,
        NextHop::V4(Ipv4Addr::new(10, 0, 0, 9)),
        Family::Ipv4Unicast,
        &[host("10.9.0.0").into()],
        &negotiated,
        &mut octets,
    )
    .unwrap();
    octets
}

fn host(address: &str) -> Prefix {
    Prefix::host(address.parse().unwrap())
}

fn rib(addresses: &[&str]) -> Arc<LocRib> {
    Arc::new(LocRib::originated(addresses.iter().map(|address| host(address))))
}

/// As many IPv4 routes.
fn many(count: u32) -> Arc<LocRib> {
    Arc::new(LocRib::originated((0..count).map(|n| Prefix::host(IpAddr::V4(Ipv4Addr::from_bits(0x0b00_0000 + n))))))
}

fn send(role: Role, bytes: impl Into<Bytes>) -> Action {
    Action::Send { role, bytes: bytes.into() }
}

fn keepalive(role: Role) -> Action {
    send(role, Bytes::from_static(&KEEPALIVE))
}

fn to(from: State, to: State) -> Action {
    Action::Transition { from, to }
}

/// A peer, and the time that it is told.
struct Bench {
    peer: Peer,
    now: Instant,
}

impl Bench {
    fn new(config: PeerConfig) -> Self {
        Self { peer: Peer::new(config, 1), now: *EPOCH }
    }

    /// With a dial under way.
    fn connecting() -> Self {
        let mut bench = Self::new(config());
        bench.event(Event::Start);
        bench
    }

    fn established() -> Self {
        let mut bench = Self::connecting();
        bench.establish(Role::Active, &peer_open());
        bench
    }

    fn event(&mut self, event: Event) -> Vec<Action> {
        let actions = self.event_at_last(event);
        assert_eq!(self.peer.handle(self.now, Event::Tick), [], "what is due was not done at once");
        actions
    }

    fn pass(&mut self, time: Duration) -> Vec<Action> {
        self.now += time;
        self.event_at_last(Event::Tick)
    }

    /// Lets time pass to the next deadline.
    fn pass_to_deadline(&mut self) -> Vec<Action> {
        self.now = self.peer.deadline().expect("no timer runs");
        self.event_at_last(Event::Tick)
    }

    fn event_at_last(&mut self, event: Event) -> Vec<Action> {
        let mut actions = self.peer.handle(self.now, event);
        while self.peer.is_to_tell() {
            actions.extend(self.peer.handle(self.now, Event::Tell));
        }
        actions
    }

    fn connected(&mut self, role: Role) -> Vec<Action> {
        self.event(Event::Connected { role, local: LOCAL })
    }

    fn receive(&mut self, role: Role, bytes: impl Into<Bytes>) -> Vec<Action> {
        self.event(Event::Received { role, bytes: bytes.into() })
    }

    fn keepalive(&mut self, role: Role) -> Vec<Action> {
        self.receive(role, Bytes::from_static(&KEEPALIVE))
    }

    /// Brings a new connection to Established.
    fn establish(&mut self, role: Role, open: &Open) {
        self.connected(role);
        self.receive(role, open.encode());
        self.keepalive(role);
        assert_eq!(self.peer.state(), State::Established);
    }
}

/// The reason why the peer went down, in a reply that has one.
fn down(actions: &[Action]) -> Option<&DownReason> {
    let mut reasons = actions.iter().filter_map(|action| if let Action::Down(reason) = action { Some(reason) } else { None });
    let reason = reasons.next();
    assert_eq!(reasons.next(), None, "one cause, one report");
    reason
}

/// Code and subcode of the NOTIFICATION that a reply sends.
fn notified(actions: &[Action]) -> Option<(u8, u8)> {
    actions.iter().find_map(|action| match action {
        Action::Send { bytes, .. } if bytes.get(18) == Some(&3) => Some((bytes[19], bytes[20])),
        Action::Send { .. }
        | Action::Connect
        | Action::Close { .. }
        | Action::Abort { .. }
        | Action::Transition { .. }
        | Action::Learned(_)
        | Action::Down(_) => None,
    })
}
