// SPDX-License-Identifier: Apache-2.0

use super::*;
use crate::wire::tests::{asn, hex};

fn decode(digits: &str) -> Option<Capability> {
    let octets = hex(digits);
    assert_eq!(usize::from(octets[1]), octets.len() - 2, "{digits}");
    Capability::decode(octets[0], &octets[2..])
}

fn encode(capability: &Capability) -> Vec<u8> {
    let mut out = Vec::new();
    capability.encode(asn(65001), &mut out);
    out
}

fn unknown(digits: &str) -> Capability {
    let octets = hex(digits);
    Capability::Unknown { code: octets[0], value: octets[2..].to_vec().into() }
}

#[test]
fn capabilities_and_their_octets() {
    let restart = GracefulRestart {
        restarting: true,
        notification: true,
        restart_time: 120,
        families: BTreeMap::from([(Family::Ipv4Unicast, true), (Family::Ipv6Unicast, false)]),
    };
    let long_lived = LongLivedFamily { forwarding: true, stale_time: 86_400 };
    let cases = [
        ("01 04 0002 00 01", Capability::Multiprotocol(Family::Ipv6Unicast)),
        ("02 00", Capability::RouteRefresh),
        ("05 06 0001 0001 0002", Capability::ExtendedNextHop(BTreeSet::from([Family::Ipv4Unicast]))),
        ("06 00", Capability::ExtendedMessage),
        ("09 01 00", Capability::Role(BgpRole::Provider)),
        ("09 01 01", Capability::Role(BgpRole::RouteServer)),
        ("09 01 02", Capability::Role(BgpRole::RouteServerClient)),
        ("09 01 03", Capability::Role(BgpRole::Customer)),
        ("09 01 04", Capability::Role(BgpRole::Peer)),
        ("09 01 FF", Capability::Role(BgpRole::Unassigned(255))),
        ("40 02 0000", Capability::GracefulRestart(GracefulRestart::default())),
        ("40 0A C078 0001 01 80 0002 01 00", Capability::GracefulRestart(restart)),
        ("41 04 0000FDE9", Capability::FourOctetAs),
        (
            "45 08 0001 01 03 0002 01 01",
            Capability::AddPath(BTreeMap::from([(Family::Ipv4Unicast, AddPathMode::Both), (Family::Ipv6Unicast, AddPathMode::Receive)])),
        ),
        ("46 00", Capability::EnhancedRouteRefresh),
        ("47 07 0001 01 80 015180", Capability::LongLivedGracefulRestart(BTreeMap::from([(Family::Ipv4Unicast, long_lived)]))),
        ("49 0B 05 6E6F646531 04 6C61622E", Capability::Fqdn { host: "node1".into(), domain: "lab.".into() }),
        ("4B 05 04 612F3162", Capability::SoftwareVersion("a/1b".into())),
        ("4D 00", Capability::LinkLocalNextHop),
        ("B7 02 0102", unknown("B7 02 0102")),
    ];
    for (digits, capability) in cases {
        assert_eq!(decode(digits).as_ref(), Some(&capability), "{digits}");
        assert_eq!(encode(&capability), hex(digits), "{capability:?}");
    }
}

#[test]
fn b62_rfc4724_3_the_restart_time_has_12_bits() {
    let restart = GracefulRestart { restart_time: u16::MAX, ..GracefulRestart::default() };
    assert_eq!(encode(&Capability::GracefulRestart(restart)), hex("40 02 0FFF"));
    let Some(Capability::GracefulRestart(restart)) = decode("40 02 3FFF") else { panic!() };
    assert_eq!(restart, GracefulRestart { restart_time: 4095, ..GracefulRestart::default() }, "reserved flags do not count");
}

#[test]
fn b69_rfc9494_3_the_stale_time_has_24_bits() {
    let long_lived = LongLivedFamily { forwarding: false, stale_time: u32::MAX };
    let capability = Capability::LongLivedGracefulRestart(BTreeMap::from([(Family::Ipv6Unicast, long_lived)]));
    assert_eq!(encode(&capability), hex("47 07 0002 01 00 FFFFFF"));
}

#[test]
fn b72_rfc7911_4_a_family_of_an_undefined_mode_is_left_out() {
    for mode in ["00", "04", "FF"] {
        let families = BTreeMap::from([(Family::Ipv6Unicast, AddPathMode::Send)]);
        assert_eq!(decode(&format!("45 08 0001 01 {mode} 0002 01 02")), Some(Capability::AddPath(families)));
    }
}

#[test]
fn families_of_others_are_left_out() {
    assert_eq!(
        decode("40 06 0078 0019 46 80"),
        Some(Capability::GracefulRestart(GracefulRestart { restart_time: 120, ..GracefulRestart::default() }))
    );
    assert_eq!(decode("45 04 0001 80 03"), Some(Capability::AddPath(BTreeMap::new())));
    assert_eq!(decode("47 07 0001 80 80 000001"), Some(Capability::LongLivedGracefulRestart(BTreeMap::new())));
    // RFC 8950 §4: of VPN routes; with next hops that are IPv4; of IPv6, which needs none; of a SAFI over 255.
    for family in ["0001 0080 0002", "0001 0001 0001", "0002 0001 0002", "0001 0101 0002"] {
        assert_eq!(decode(&format!("05 06 {family}")), Some(Capability::ExtendedNextHop(BTreeSet::new())));
    }
}

#[test]
fn b09_rfc5492_3_a_malformed_capability_is_ignored_like_an_unknown_one() {
    let cases = [
        "05 05 0001 0001 00",
        "06 01 00",
        "09 00",
        "09 02 0000",
        "40 00",
        "40 01 00",
        "40 05 0078 0001 01",
        "45 03 0001 01",
        "45 05 0001 01 03 00",
        "46 01 00",
        "47 06 0001 01 80 0151",
        "49 00",
        "49 02 05 6E",
        "49 02 01 6E",
        "49 04 01 6E 00 00",
        "4B 00",
        "4B 02 02 61",
        "4B 03 01 61 62",
        "4D 01 00",
    ];
    for digits in cases {
        assert_eq!(decode(digits), Some(unknown(digits)), "{digits}");
    }
}

#[test]
fn texts_are_escaped_when_received_and_cut_when_sent() {
    assert_eq!(decode("4B 06 05 1B5B C328 0A"), Some(Capability::SoftwareVersion("\\u{1b}[\u{FFFD}(\\n".into())));
    let long = encode(&Capability::Fqdn { host: "ü".repeat(100), domain: String::new() });
    assert_eq!((long[1], long[2], long.len()), (66, 64, 68));
}

#[test]
fn b54_rfc9234_4_2_pairs_of_roles() {
    use BgpRole::{Customer, Peer, Provider, RouteServer, RouteServerClient, Unassigned};
    let roles = [Provider, RouteServer, RouteServerClient, Customer, Peer, Unassigned(5)];
    let allowed =
        [(Provider, Customer), (Customer, Provider), (RouteServer, RouteServerClient), (RouteServerClient, RouteServer), (Peer, Peer)];
    for (local, remote) in roles.into_iter().flat_map(|local| roles.map(|remote| (local, remote))) {
        assert_eq!(local.matches(remote), allowed.contains(&(local, remote)), "{local:?} {remote:?}");
    }
}
