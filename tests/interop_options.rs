// SPDX-License-Identifier: Apache-2.0
//! Options of a session with real routers that have them too: what both agree on, and what comes of it at the router, up to its kernel.

#![allow(clippy::unwrap_used, reason = "a failed test says where")]

mod common;
#[path = "common/daemons.rs"]
mod daemons;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

use bgp::peer::{RoleConfig, State};
use bgp::rib::Withheld;
use bgp::wire::BgpRole;
use bgp::{Asn, Family, Prefix};
use common::{Namespace, wait_until};
use daemons::{Router, Software};
use vipherald::desired::{DesiredBgp, DesiredExport, DesiredImport, DesiredPeer, DesiredRestart, RouteSet, Transport};
use vipherald::driver::bgp::{Operation, PeerStatus, Speaker, SpeakerStatus};

/// How long anything may take, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

const OURS_V4: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 1);
const THEIRS_V4: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 2);
const OURS_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0x99, 0, 0, 0, 0, 1);
const THEIRS_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0x99, 0, 0, 0, 0, 2);
/// Addresses that are on no link.
const OUR_LOOPBACK: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0xff, 0, 0, 0, 0, 1);
const THEIR_LOOPBACK: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0xff, 0, 0, 0, 0, 2);

const OUR_AS: u32 = 65001;
const THEIR_AS: u32 = 65002;

const VIPS: [&str; 2] = ["10.0.0.7", "2001:db8:7::7"];

/// Our node, which has the VIPs, and the router's, side by side on one link.
struct Rig {
    ours: Namespace,
    theirs: Namespace,
}

impl Rig {
    fn new(tag: &str, ipv4: bool) -> Self {
        let rig = Self { ours: Namespace::new(&format!("{tag}-n")), theirs: Namespace::new(&format!("{tag}-r")) };
        rig.ours.veth("eth0", &rig.theirs, "eth0");
        for (namespace, v4, v6) in [(&rig.ours, OURS_V4, OURS_V6), (&rig.theirs, THEIRS_V4, THEIRS_V6)] {
            if ipv4 {
                namespace.ip(&format!("address add {v4}/24 dev eth0"));
            }
            namespace.ip(&format!("address add {v6}/64 dev eth0"));
        }
        for vip in VIPS {
            rig.ours.ip(&format!("address add {vip} dev lo"));
        }
        rig
    }

    /// A speaker that has told both VIPs to a router.
    fn speaker(&self, peer: DesiredPeer) -> Speaker {
        let speaker = self.ours.run(|| Speaker::spawn(7)).unwrap();
        speaker.advertise(set(&VIPS));
        speaker.configure(speaker_of(peer));
        speaker
    }

    /// The route to a VIP in the router's kernel.
    fn kernel_route(&self, vip: &str) -> String {
        let family = if vip.contains(':') { "-6" } else { "-4" };
        self.theirs.ip(&format!("{family} route show {vip}"))
    }

    /// Waits until the router's kernel sends packets for the VIP where it answers.
    fn wait_until_reached(&self, vip: &str) {
        wait_until(&format!("{vip} is in the kernel of the router"), PATIENCE, || !self.kernel_route(vip).is_empty());
        self.theirs.output(&["ping", "-n", "-c", "1", "-W", "10", vip]);
    }
}

fn set(vips: &[&str]) -> Arc<RouteSet> {
    Arc::new(vips.iter().map(|vip| prefix(vip)).collect())
}

fn prefix(vip: &str) -> Prefix {
    Prefix::host(vip.parse().unwrap())
}

fn neighbour(address: impl Into<IpAddr>) -> DesiredPeer {
    DesiredPeer { connect_retry: Duration::from_secs(1), ..DesiredPeer::new(address.into(), Asn::new(THEIR_AS).unwrap()) }
}

fn speaker_of(peer: DesiredPeer) -> Arc<DesiredBgp> {
    let peers = BTreeMap::from([("tor".to_owned(), peer)]);
    Arc::new(DesiredBgp { peers, ..DesiredBgp::new(Asn::new(OUR_AS).unwrap()) })
}

fn tor(status: &SpeakerStatus) -> Option<&PeerStatus> {
    status.peers.get("tor").map(AsRef::as_ref)
}

fn is_up(status: &SpeakerStatus) -> bool {
    tor(status).is_some_and(|tor| tor.state == State::Established)
}

fn wait_for(what: &str, speaker: &Speaker, wanted: impl Fn(&SpeakerStatus) -> bool) -> Arc<SpeakerStatus> {
    wait_until(what, PATIENCE, || wanted(&speaker.status()));
    speaker.status()
}

fn wait_until_up(speaker: &Speaker) {
    wait_for("the session is up", speaker, is_up);
}

fn wait_for_error(speaker: &Speaker, words: &str) {
    let error = |status: &SpeakerStatus| tor(status).and_then(|tor| tor.last_error.as_ref()).map(|error| error.reason.clone());
    wait_for(words, speaker, |status| error(status).is_some_and(|reason| reason.contains(words)));
}

fn operate(speaker: &Speaker, operation: Operation) {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(speaker.operator().operate("tor", operation)).unwrap();
}

/// BIRD with one neighbour, which puts what it learns into its kernel.
fn bird(ours: impl Into<IpAddr>, theirs: impl Into<IpAddr>, options: &str, ipv4: &str) -> String {
    let (ours, theirs) = (ours.into(), theirs.into());
    let kernel = |family| format!("protocol kernel {{ {family} {{ import none; export all; }}; }}\n");
    format!(
        "router id {THEIRS_V4};\nlog stderr all;\nprotocol device {{}}\nprotocol direct {{ ipv4; ipv6; }}\n{}{}\
         protocol static {{ ipv4; route 198.51.100.1/32 blackhole; route 198.51.100.2/32 blackhole; route 198.51.100.3/32 blackhole; }}\n\
         protocol bgp from_{name} {{ debug {{ states, events }}; local {theirs} as {THEIR_AS}; neighbor {ours} as {OUR_AS}; {options} hold time 9; \
         error wait time 1, 4; ipv4 {{ import all; export where source = RTS_STATIC; {ipv4} }}; ipv6 {{ import all; export none; }}; }}\n",
        kernel("ipv4"),
        kernel("ipv6"),
        name = ours.to_string().replace(['.', ':'], "_"),
    )
}

/// FRR with one neighbour; zebra puts what it learns into its kernel.
fn frr(ours: impl Into<IpAddr>, router: &[&str], options: &[&str]) -> String {
    let ours = ours.into();
    let mut text =
        format!("router bgp {THEIR_AS}\n bgp router-id {THEIRS_V4}\n no bgp ebgp-requires-policy\n no bgp default ipv4-unicast\n");
    router.iter().for_each(|line| writeln!(text, " {line}").unwrap());
    for line in [&[&*format!("remote-as {OUR_AS}"), "timers 3 9", "timers connect 1"], options].concat() {
        writeln!(text, " neighbor {ours} {line}").unwrap();
    }
    for family in ["ipv4", "ipv6"] {
        write!(text, " address-family {family} unicast\n  neighbor {ours} activate\n exit-address-family\n").unwrap();
    }
    text
}

fn start(software: Software, rig: &Rig, configuration: &str) -> Router {
    Router::start_with(software, &rig.theirs, configuration)
}

fn role(local: BgpRole, strict: bool) -> DesiredPeer {
    DesiredPeer { role: Some(RoleConfig { local, strict }), ..neighbour(THEIRS_V4) }
}

/// RFC 9234 §4.2: the router is our provider. `seen`: whether it has a route with our AS in ONLY_TO_CUSTOMER.
fn roles(rig: &Rig, configuration: impl Fn(&str, bool) -> (Software, String), only_to_customer: impl Fn(&Router) -> Option<u32>) {
    let start_as = |role: &str, strict| {
        let (software, configuration) = configuration(role, strict);
        start(software, rig, &configuration)
    };
    let router = start_as("provider", true);
    let speaker = rig.speaker(neighbour(THEIRS_V4));
    wait_for_error(&speaker, "Role Mismatch");
    speaker.configure(speaker_of(role(BgpRole::Peer, false)));
    wait_for_error(&speaker, "Role Mismatch");
    speaker.configure(speaker_of(role(BgpRole::Customer, true)));
    wait_until_up(&speaker);
    rig.wait_until_reached("10.0.0.7");
    assert_eq!(only_to_customer(&router), None, "our routes may go up");
    drop((speaker, router));

    let router = start_as("peer", false);
    let speaker = rig.speaker(role(BgpRole::Peer, true));
    wait_until_up(&speaker);
    rig.wait_until_reached("10.0.0.7");
    assert_eq!(only_to_customer(&router), Some(OUR_AS));
}

#[test]
fn rfc9234_roles_with_bird() {
    let configuration = |role: &str, strict: bool| {
        let strict = if strict { "require roles on;" } else { "" };
        (Software::Bird, bird(OURS_V4, THEIRS_V4, &format!("local role {role}; {strict}"), ""))
    };
    roles(&Rig::new("role-bird", true), configuration, |router| {
        let value = router.bird_attribute(OURS_V4.into(), prefix("10.0.0.7"), "BGP.otc");
        value.map(|value| value.parse().unwrap())
    });
}

#[test]
fn rfc9234_roles_with_frr() {
    let configuration = |role: &str, strict: bool| {
        let strict = if strict { " strict-mode" } else { "" };
        (Software::Frr, frr(OURS_V4, &[], &[&format!("local-role {role}{strict}")]))
    };
    roles(&Rig::new("role-frr", true), configuration, |router| {
        let route = router.vtysh("show bgp ipv4 unicast 10.0.0.7/32 json");
        route["paths"][0]["otc"].as_u64().map(|asn| u32::try_from(asn).unwrap())
    });
}

/// RFC 8654: a route with 1,500 communities fits where both sides take long messages.
fn extended_messages(software: Software, rig: &Rig, configuration: &str) {
    let router = start(software, rig, configuration);
    let communities: BTreeSet<u32> = (1..=1500).collect();
    let export = DesiredExport { communities, ..DesiredExport::default() };
    let with = |extended_messages| DesiredPeer { extended_messages, export: export.clone(), ..neighbour(THEIRS_V4) };
    let speaker = rig.speaker(with(false));
    let status = wait_for("the session is up", &speaker, |status| is_up(status) && tor(status).unwrap().withheld.len() == 2);
    assert!(tor(&status).unwrap().withheld.values().all(|reason| *reason == Withheld::TooLong));
    speaker.configure(speaker_of(with(true)));
    VIPS.iter().for_each(|vip| rig.wait_until_reached(vip));
    assert_eq!(tor(&speaker.status()).unwrap().advertised, 2);
    drop(router);
}

#[test]
fn rfc8654_extended_messages_with_bird() {
    extended_messages(Software::Bird, &Rig::new("long-bird", true), &bird(OURS_V4, THEIRS_V4, "enable extended messages on;", ""));
}

#[test]
fn rfc8654_extended_messages_with_frr() {
    extended_messages(Software::Frr, &Rig::new("long-frr", true), &frr(OURS_V4, &[], &[]));
}

/// A link without IPv4. Answers to a ping come from some IPv4 address of the router.
fn without_ipv4(tag: &str) -> Rig {
    let rig = Rig::new(tag, false);
    rig.theirs.ip("address add 192.0.2.2/32 dev lo");
    rig.ours.ip(&format!("route add 192.0.2.2/32 via inet6 {THEIRS_V6} dev eth0"));
    rig
}

/// RFC 8950: packets for an IPv4 VIP go to our IPv6 address.
fn wait_until_reached_over_ipv6(rig: &Rig) {
    VIPS.iter().for_each(|vip| rig.wait_until_reached(vip));
    assert!(rig.kernel_route("10.0.0.7").contains("via inet6"), "{}", rig.kernel_route("10.0.0.7"));
}

fn extended() -> DesiredPeer {
    let transport = Transport { source: Some(OURS_V6.into()), ..Transport::default() };
    DesiredPeer { extended_next_hop: true, transport, ..neighbour(THEIRS_V6) }
}

#[test]
fn rfc8950_ipv4_over_ipv6_with_bird() {
    let rig = without_ipv4("xnh-bird");
    let _router = start(Software::Bird, &rig, &bird(OURS_V6, THEIRS_V6, "", "extended next hop on;"));
    let speaker = rig.speaker(neighbour(THEIRS_V6));
    let status = wait_for("the session is up", &speaker, |status| is_up(status) && tor(status).unwrap().withheld.len() == 1);
    assert_eq!(tor(&status).unwrap().withheld.get(&prefix("10.0.0.7")), Some(&Withheld::NoNextHop(Family::Ipv4Unicast)));
    speaker.configure(speaker_of(extended()));
    wait_until_reached_over_ipv6(&rig);
}

/// With this capability FRR sends router advertisements, so that the node has an address more, from which it must not dial.
#[test]
fn rfc8950_ipv4_over_ipv6_with_frr() {
    let rig = without_ipv4("xnh-frr");
    let _router = start(Software::Frr, &rig, &frr(OURS_V6, &[], &["capability extended-nexthop"]));
    let _speaker = rig.speaker(extended());
    wait_until_reached_over_ipv6(&rig);
}

/// RFC 2545 §3: on a shared link, over either family, the next hop has our link-local address beside the global one; otherwise it has not. The router's
/// kernel gets a route that works each time.
fn link_local_next_hop(
    software: Software,
    configuration: impl Fn(IpAddr, IpAddr, bool) -> String,
    link_local: impl Fn(&Router, IpAddr) -> bool,
) {
    for (ours, theirs) in
        [(OURS_V4.into(), THEIRS_V4.into()), (OURS_V6.into(), THEIRS_V6.into()), (OUR_LOOPBACK.into(), THEIR_LOOPBACK.into())]
    {
        let far = ours == IpAddr::from(OUR_LOOPBACK);
        let rig = Rig::new("rfc2545", true);
        rig.ours.ip(&format!("address add {OUR_LOOPBACK} dev lo"));
        rig.theirs.ip(&format!("address add {THEIR_LOOPBACK} dev lo"));
        rig.ours.ip(&format!("route add {THEIR_LOOPBACK} via {THEIRS_V6}"));
        rig.theirs.ip(&format!("route add {OUR_LOOPBACK} via {OURS_V6}"));
        let router = start(software, &rig, &configuration(ours, theirs, far));
        let transport = Transport {
            source: Some(ours),
            ttl: if far { vipherald::desired::Ttl::Multihop(2) } else { vipherald::desired::Ttl::Customary },
            ..Transport::default()
        };
        let speaker = rig.speaker(DesiredPeer { transport, ..neighbour(theirs) });
        wait_until_up(&speaker);
        rig.wait_until_reached("2001:db8:7::7");
        assert_eq!(link_local(&router, ours), !far, "over {ours}");
    }
}

#[test]
fn rfc2545_3_next_hops_with_bird() {
    let configuration = |ours, theirs, far| {
        let options = if far { "multihop 2;" } else { "direct;" };
        let text = bird(ours, theirs, options, "");
        // A next hop that is not on a link is reached by a route of the kernel.
        text.replace("ipv6 { import none;", "learn; ipv6 { import all;")
    };
    link_local_next_hop(Software::Bird, configuration, |router, ours| {
        let next_hop = router.bird_attribute(ours, prefix("2001:db8:7::7"), "BGP.next_hop").unwrap();
        next_hop.contains("fe80:")
    });
}

#[test]
fn rfc2545_3_next_hops_with_frr() {
    let configuration = |ours, theirs, far| {
        let source = format!("update-source {theirs}");
        let options = ["ebgp-multihop 2", &source];
        frr(ours, &[], if far { &options } else { &[] })
    };
    link_local_next_hop(Software::Frr, configuration, |router, _| {
        let route = router.vtysh("show bgp ipv6 unicast 2001:db8:7::7/128 json");
        route["paths"][0]["nexthops"].as_array().unwrap().iter().any(|next_hop| next_hop["scope"] == "link-local")
    });
}

fn restartable(restart: DesiredRestart) -> DesiredPeer {
    DesiredPeer { graceful_restart: Some(restart), ..neighbour(THEIRS_V4) }
}

#[test]
fn rfc8538_with_frr_a_reset_keeps_the_routes_and_a_hard_reset_does_not() {
    let rig = Rig::new("nbit-frr", true);
    let router = start(Software::Frr, &rig, &frr(OURS_V4, &["bgp graceful-restart", "bgp graceful-restart notification"], &[]));
    let speaker = rig.speaker(restartable(DesiredRestart { restart_time: 60, notification: true, long_lived_stale_time: 0 }));
    wait_until_up(&speaker);
    rig.wait_until_reached("10.0.0.7");
    let monitor = rig.theirs.spawn(rig.theirs.command("ip").args(["monitor", "route"]));
    operate(&speaker, Operation::Reset);
    wait_for("the session comes back", &speaker, |status| is_up(status) && tor(status).unwrap().counters.established == 2);
    wait_until("FRR has heard all", PATIENCE, || router.log().matches("rcvd End-of-RIB for IPv4 Unicast").count() == 2);
    assert!(!monitor.log().contains("Deleted 10.0.0.7"), "{}", monitor.log());

    operate(&speaker, Operation::Shutdown { message: None });
    wait_until("the route is gone", PATIENCE, || rig.kernel_route("10.0.0.7").is_empty());
    assert!(monitor.log().contains("Deleted 10.0.0.7"));
}

/// RFC 9494: after the restart time the router goes on using our route as the last resort.
fn long_lived(software: Software, rig: &Rig, configuration: &str, stale: impl Fn(&Router) -> bool) {
    let router = start(software, rig, configuration);
    let speaker = rig.speaker(restartable(DesiredRestart { restart_time: 1, notification: true, long_lived_stale_time: 600 }));
    wait_until_up(&speaker);
    wait_until("the route is learned", PATIENCE, || router.learned(OURS_V4.into(), prefix("10.0.0.7")).is_some());
    assert!(!stale(&router));
    drop(speaker);
    wait_until("the route is a stale one", PATIENCE, || stale(&router));
    assert!(router.learned(OURS_V4.into(), prefix("10.0.0.7")).is_some());
}

#[test]
fn rfc9494_long_lived_stale_routes_with_bird() {
    let options = "graceful restart on; long lived graceful restart on;";
    let rig = Rig::new("llgr-bird", true);
    long_lived(Software::Bird, &rig, &bird(OURS_V4, THEIRS_V4, options, ""), |router| {
        let communities = router.bird_attribute(OURS_V4.into(), prefix("10.0.0.7"), "BGP.community");
        communities.is_some_and(|communities| communities.contains("(65535,6)"))
    });
}

#[test]
fn rfc9494_long_lived_stale_routes_with_gobgp() {
    let mut text = format!(
        "[global.config]\nas = {THEIR_AS}\nrouter-id = \"{THEIRS_V4}\"\n[[neighbors]]\n[neighbors.config]\nneighbor-address = \"{OURS_V4}\"\n\
         peer-as = {OUR_AS}\n[neighbors.timers.config]\nhold-time = 9.0\nkeepalive-interval = 3.0\n[neighbors.transport.config]\n\
         passive-mode = true\n[neighbors.graceful-restart.config]\nenabled = true\nrestart-time = 20\nlong-lived-enabled = true\n"
    );
    for family in Family::ALL {
        write!(
            text,
            "[[neighbors.afi-safis]]\n[neighbors.afi-safis.config]\nafi-safi-name = \"{family}\"\n\
             [neighbors.afi-safis.mp-graceful-restart.config]\nenabled = true\n\
             [neighbors.afi-safis.long-lived-graceful-restart.config]\nenabled = true\nrestart-time = 600\n"
        )
        .unwrap();
    }
    long_lived(Software::GoBgp, &Rig::new("llgr-gobgp", true), &text, |router| {
        let rib = router.gobgp(&["global", "rib", "-a", "ipv4", "10.0.0.7/32"]);
        rib.to_string().contains("4294901766")
    });
}

#[test]
fn rfc4486_4_bird_is_told_that_it_announced_too_much() {
    let rig = Rig::new("limit-bird", true);
    let router = start(Software::Bird, &rig, &bird(OURS_V4, THEIRS_V4, "", ""));
    let limited = |limit| {
        let import =
            DesiredImport { max_prefixes: BTreeMap::from([(Family::Ipv4Unicast, limit)]), restart_delay: Duration::from_secs(3600) };
        speaker_of(DesiredPeer { import, ..neighbour(THEIRS_V4) })
    };
    let speaker = rig.speaker(neighbour(THEIRS_V4));
    wait_until_up(&speaker);
    wait_for("all is told", &speaker, |status| tor(status).unwrap().counters.prefixes.values().any(|counts| counts.announced == 3));
    speaker.configure(limited(2));
    wait_for_error(&speaker, "more than 2 prefixes of ipv4-unicast");
    wait_until("BIRD was told why", PATIENCE, || router.log().contains("Received: Maximum number of prefixes reached"));
    assert!(!is_up(&speaker.status()));
    speaker.configure(limited(3));
    wait_for("the session is back", &speaker, |status| is_up(status) && tor(status).unwrap().held.get(&Family::Ipv4Unicast) == Some(&3));
}

#[test]
fn names_for_display_are_shown_by_frr_and_harm_nobody() {
    for software in [Software::Frr, Software::Bird] {
        let rig = Rig::new("names", true);
        let configuration = if software == Software::Frr { frr(OURS_V4, &[], &[]) } else { bird(OURS_V4, THEIRS_V4, "", "") };
        let router = start(software, &rig, &configuration);
        let speaker = rig.ours.run(|| Speaker::spawn(7)).unwrap();
        let named = DesiredBgp {
            host_name: Some("node-7.rack.example".to_owned()),
            send_software_version: true,
            ..(*speaker_of(neighbour(THEIRS_V4))).clone()
        };
        speaker.configure(Arc::new(named));
        wait_until_up(&speaker);
        if software == Software::Frr {
            let neighbour = router.vtysh(&format!("show bgp neighbors {OURS_V4} json"));
            assert_eq!(neighbour[OURS_V4.to_string()]["hostname"], "node-7", "{neighbour:#}");
        }
    }
}
