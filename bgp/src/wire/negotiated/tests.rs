// SPDX-License-Identifier: Apache-2.0

use super::*;
use crate::BgpIdentifier;
use crate::wire::tests::asn;

fn open(capabilities: Vec<Capability>) -> Open {
    let families = Family::ALL.map(Capability::Multiprotocol);
    let identifier = BgpIdentifier::new(1).unwrap();
    let capabilities = families.into_iter().chain(capabilities).collect();
    Open { asn: asn(65001), hold_time: HoldTime::ZERO, identifier, capabilities }
}

fn negotiated(local: &[Capability], remote: &[Capability]) -> Negotiated {
    Negotiated::new(&open(local.to_vec()), &open(remote.to_vec()))
}

/// Capability 69 of both families.
fn add_path(ipv4: AddPathMode, ipv6: AddPathMode) -> Capability {
    Capability::AddPath(BTreeMap::from([(Family::Ipv4Unicast, ipv4), (Family::Ipv6Unicast, ipv6)]))
}

#[test]
fn b72_rfc7911_4_path_identifiers_by_family_and_direction() {
    use AddPathMode::{Both, Receive, Send};
    let (v4, v6) = (BTreeSet::from([Family::Ipv4Unicast]), BTreeSet::from([Family::Ipv6Unicast]));
    let (all, none) = (BTreeSet::from(Family::ALL), BTreeSet::new());
    let cases = [
        ((Both, Both), (Both, Both), &all, &all),
        ((Send, Receive), (Receive, Send), &v4, &v6),
        ((Send, Receive), (Both, Both), &v4, &v6),
        ((Send, Send), (Send, Send), &none, &none),
        ((Receive, Receive), (Receive, Both), &none, &v6),
    ];
    for (ours, theirs, send, receive) in cases {
        let negotiated = negotiated(&[add_path(ours.0, ours.1)], &[add_path(theirs.0, theirs.1)]);
        assert_eq!((&negotiated.add_path_send, &negotiated.add_path_receive), (send, receive), "{ours:?} {theirs:?}");
    }
    assert_eq!(negotiated(&[add_path(Both, Both)], &[]).add_path_send, none);
    // Only of families that both sides have.
    let ipv6_only = Open { capabilities: vec![Capability::Multiprotocol(Family::Ipv6Unicast), add_path(Both, Both)], ..open(vec![]) };
    assert_eq!(Negotiated::new(&ipv6_only, &open(vec![add_path(Both, Both)])).add_path_send, v6);
}

#[test]
fn b09_rfc5492_4_repeated_capabilities() {
    use AddPathMode::{Both, Receive, Send};
    let of = |family, mode| Capability::AddPath(BTreeMap::from([(family, mode)]));
    let twice = [of(Family::Ipv4Unicast, Send), of(Family::Ipv6Unicast, Both), of(Family::Ipv4Unicast, Receive)];
    let agreed = negotiated(&[add_path(Both, Both)], &twice);
    assert_eq!(agreed.add_path_send, BTreeSet::from(Family::ALL));
    assert_eq!(agreed.add_path_receive, BTreeSet::from([Family::Ipv6Unicast]));

    // RFC 4724 §3: of several instances the last counts.
    let restart = |restart_time| Capability::GracefulRestart(GracefulRestart { restart_time, ..GracefulRestart::default() });
    let agreed = negotiated(&[restart(1)], &[restart(10), restart(20)]);
    assert_eq!(agreed.graceful_restart.unwrap().restart_time, 20);
}

#[test]
fn b38_rfc8654_4_the_lengths_of_messages() {
    let extended = [Capability::ExtendedMessage];
    let lengths = |local: &[_], remote: &[_]| {
        let negotiated = negotiated(local, remote);
        (negotiated.max_send_length, negotiated.max_receive_length)
    };
    assert_eq!(lengths(&[], &[]), (4096, 4096));
    assert_eq!(lengths(&extended, &[]), (4096, 65_535));
    assert_eq!(lengths(&[], &extended), (4096, 4096));
    assert_eq!(lengths(&extended, &extended), (65_535, 65_535));
}

#[test]
fn b59_rfc8950_4_ipv6_next_hops_of_ipv4() {
    let capability = [Capability::ExtendedNextHop(BTreeSet::from([Family::Ipv4Unicast]))];
    assert_eq!(negotiated(&capability, &capability).extended_next_hop, BTreeSet::from([Family::Ipv4Unicast]));
    assert_eq!(negotiated(&capability, &[]).extended_next_hop, BTreeSet::new());
    assert_eq!(negotiated(&[], &capability).extended_next_hop, BTreeSet::new());
}

#[test]
fn b62_rfc4724_and_b65_rfc8538_graceful_restart() {
    let restart = |notification, restart_time| {
        Capability::GracefulRestart(GracefulRestart { notification, restart_time, ..GracefulRestart::default() })
    };
    let agreed = |local: &[_], remote: &[_]| {
        let negotiated = negotiated(local, remote);
        (negotiated.graceful_restart.map(|restart| restart.restart_time), negotiated.graceful_notification)
    };
    assert_eq!(agreed(&[restart(true, 1)], &[restart(true, 2)]), (Some(2), true));
    assert_eq!(agreed(&[restart(false, 1)], &[restart(true, 2)]), (Some(2), false));
    assert_eq!(agreed(&[restart(true, 1)], &[restart(false, 2)]), (Some(2), false));
    assert_eq!(agreed(&[restart(true, 1)], &[]), (None, false));
    assert_eq!(agreed(&[], &[restart(true, 2)]), (None, false));
}

#[test]
fn b69_rfc9494_4_2_long_lived_graceful_restart_goes_with_the_short_one() {
    let restart = Capability::GracefulRestart(GracefulRestart::default());
    let long_lived = |stale_time| {
        let family = LongLivedFamily { forwarding: false, stale_time };
        Capability::LongLivedGracefulRestart(BTreeMap::from([(Family::Ipv4Unicast, family)]))
    };
    let theirs = [restart.clone(), long_lived(9)];
    let agreed =
        |local: &[_], remote: &[_]| negotiated(local, remote).long_lived.values().map(|family| family.stale_time).collect::<Vec<_>>();
    assert_eq!(agreed(&[restart.clone(), long_lived(1)], &theirs), [9]);
    assert_eq!(agreed(&[long_lived(1)], &theirs), []);
    assert_eq!(agreed(std::slice::from_ref(&restart), &theirs), []);
    assert_eq!(agreed(&[restart, long_lived(1)], &[long_lived(9)]), []);
}

#[test]
fn b54_rfc9234_4_1_roles() {
    let role = |role| [Capability::Role(role)];
    let agreed = negotiated(&role(BgpRole::Customer), &role(BgpRole::Provider));
    assert_eq!((agreed.local_role, agreed.remote_role), (Some(BgpRole::Customer), Some(BgpRole::Provider)));
    assert_eq!(negotiated(&role(BgpRole::Peer), &[]).remote_role, None);
    let several = [Capability::Role(BgpRole::Peer), Capability::Role(BgpRole::Customer), Capability::Role(BgpRole::Peer)];
    assert_eq!(open(several.to_vec()).roles(), BTreeSet::from([BgpRole::Peer, BgpRole::Customer]));
}

#[test]
fn rfc7313_3_1_enhanced_route_refresh() {
    let capability = [Capability::EnhancedRouteRefresh];
    assert!(negotiated(&capability, &capability).enhanced_route_refresh);
    assert!(!negotiated(&capability, &[]).enhanced_route_refresh);
}
