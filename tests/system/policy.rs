// SPDX-License-Identifier: Apache-2.0
//! With what routes are announced: policies of VIPs, aggregates, and the last resort of a node that leaves, as a ToR sees them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use nix::sys::signal::Signal;
use serde_json::json;

use crate::common::{Namespace, wait_until};
use crate::inspect;
use crate::rig::{Daemon, Monitor, PATIENCE, Rig, Settings, addresses, endpoints, now, service, vips, wait_until_equal};
use crate::tor::{Tor, assert_no_loss, ping};

const POLICIES: &str = "  policies:
    - {name: inside, prefixes: [10.1.0.2/32], communities: [NO_EXPORT]}
    - {name: gold, localPreference: 200, communities: ['65001:200']}
";
const OTHER_POLICIES: &str = "  policies:
    - {name: inside, prefixes: [10.1.0.2/32], communities: [NO_EXPORT, '65001:1']}
    - {name: gold, med: 7}
";
const AGGREGATE: &str = "  policies: [{name: whole, communities: ['65001:24']}]
  aggregates: [{prefix: 10.1.0.0/24, policy: whole, vips: suppress}]
";

/// What BIRD has of each prefix.
fn told<const COUNT: usize>(routes: [(&str, &str); COUNT]) -> BTreeMap<String, String> {
    routes.into_iter().map(|(prefix, attributes)| (prefix.to_owned(), attributes.to_owned())).collect()
}

/// Makes these VIPs those of a Service that names this policy, and 10.1.0.2 that of another one.
fn publish(rig: &Rig, policy: &str) {
    let named = format!("metadata: {{annotations: {{vipherald.io/bgp-policy: {policy}}}, name: web}}");
    let web = service("web", &vips(["10.1.0.1", "2001:db8:7::1"]));
    let web = if policy.is_empty() { web } else { web.replace("metadata: {name: web}", &named) };
    let other = service("other", &vips(["10.1.0.2"]));
    rig.daemon.replace("manifests/vips.yaml", &(web + &endpoints("web") + &other + &endpoints("other")));
}

#[test]
fn the_policy_of_a_vip_follows_its_object_and_nothing_else_is_told_again() {
    let mut rig = Rig::new("policy");
    rig.daemon = Daemon::new(Settings { routing: POLICIES, ..Settings::default() });
    publish(&rig, "");
    rig.daemon.start(&rig.node);
    let inside = "community (65535,65281) ";
    let without = told([("10.1.0.1/32", ""), ("10.1.0.2/32", inside), ("2001:db8:7::1/128", "")]);
    wait_until_equal("routes of BIRD", &without, || rig.tor.routes("node"));
    let session = rig.session();
    assert_eq!(rig.tor.updates(), 3);

    publish(&rig, "gold");
    let gold = "local_pref 200 community (65001,200) ";
    let with = told([("10.1.0.1/32", gold), ("10.1.0.2/32", inside), ("2001:db8:7::1/128", gold)]);
    wait_until_equal("routes of BIRD", &with, || rig.tor.routes("node"));
    assert_eq!(rig.tor.updates(), 5, "two routes are told again");
    assert_eq!(rig.daemon.vip("10.1.0.1".parse().unwrap())["message"], "announced to tor with policy gold");

    rig.daemon.settings.routing = OTHER_POLICIES;
    rig.daemon.write_config();
    let other = told([("10.1.0.1/32", "med 7 "), ("10.1.0.2/32", "community (65001,1) (65535,65281) "), ("2001:db8:7::1/128", "med 7 ")]);
    wait_until_equal("routes of BIRD", &other, || rig.tor.routes("node"));
    assert_eq!(rig.tor.updates(), 8);

    publish(&rig, "gulden");
    wait_until("it is refused", PATIENCE, || {
        let (shown, _) = rig.daemon.show("rejections");
        shown["rejections"].as_array().unwrap().iter().filter(|rejection| rejection["reason"] == "PolicyNotFound").count() == 2
    });
    assert_eq!(rig.tor.routes("node"), other, "what is in force stays");
    publish(&rig, "");
    wait_until_equal("updates", &10, || rig.tor.updates());
    assert_eq!((rig.tor.withdrawals(), rig.session()), (0, session));
}

#[test]
fn what_moves_between_the_policy_of_vips_and_that_of_a_peer_is_not_told_again() {
    let mut rig = Rig::new("moved");
    // A second VIP shows when a reload has come to the peer.
    let by_vips = |mark: u32| {
        format!(
            "  policies:
    - {{name: inside, prefixes: [10.1.0.1/32], communities: [NO_EXPORT], localPreference: 200}}
    - {{name: mark, prefixes: [10.1.0.2/32], communities: [NO_EXPORT], localPreference: 200, med: {mark}}}
"
        )
    };
    let by_peer = |mark: u32| format!("  policies: [{{name: mark, prefixes: [10.1.0.2/32], med: {mark}}}]\n");
    rig.daemon = Daemon::new(Settings { routing: by_vips(0).leak(), ..Settings::default() });
    rig.daemon.replace("manifests/vips.yaml", &(service("web", &vips(["10.1.0.1", "10.1.0.2"])) + &endpoints("web")));
    rig.daemon.start(&rig.node);
    let inside = "local_pref 200 community (65535,65281) ";
    let with = |mark: u32| told([("10.1.0.1/32", inside), ("10.1.0.2/32", &format!("med {mark} {inside}"))]);
    wait_until_equal("routes of BIRD", &with(0), || rig.tor.routes("node"));
    let (session, before) = (rig.session(), rig.tor.updates());
    for mark in 1..=10 {
        let to_peer = mark % 2 == 1;
        rig.daemon.settings.of_peers = if to_peer { ", export: {communities: [NO_EXPORT], localPreference: 200}" } else { "" };
        rig.daemon.settings.routing = if to_peer { by_peer(mark) } else { by_vips(mark) }.leak();
        rig.daemon.write_config();
        wait_until_equal("routes of BIRD", &with(mark), || rig.tor.routes("node"));
        assert_eq!(rig.tor.updates() - before, u64::from(mark), "one route is another one, and the other is not told again");
    }
    assert_eq!((rig.tor.withdrawals(), rig.session()), (0, session));
}

#[test]
fn a_policy_may_be_for_some_peers_only() {
    let both = vips(["10.1.0.1", "10.1.0.2"]);
    let mut rig = Rig::new("some");
    let second = Tor::new("some", &rig.node, 1);
    rig.daemon.settings.peers.push(("second".to_owned(), second.address()));
    rig.daemon.write_config();
    rig.daemon.publish(&both);
    rig.daemon.start(&rig.node);
    rig.wait_until_exact(&both);
    wait_until_equal("routes of the second", &both, || second.learned());

    rig.daemon.settings.routing = "  policies: [{name: local, prefixes: [10.1.0.1/32], peers: [tor]}]\n";
    rig.daemon.write_config();
    wait_until_equal("routes of the second", &vips(["10.1.0.2"]), || second.learned());
    let message = "announced to tor; not to second: its policy names other peers";
    wait_until("it is said", PATIENCE, || rig.daemon.vip("10.1.0.1".parse().unwrap())["message"] == message);
    rig.wait_until_exact(&both);
    assert_eq!(rig.tor.withdrawals(), 0);

    rig.daemon.settings.routing = "";
    rig.daemon.write_config();
    wait_until_equal("routes of the second", &both, || second.learned());
}

#[test]
fn an_aggregate_comes_with_its_first_vip_and_its_last_vip_waits_for_it() {
    let mut rig = Rig::new("aggregate");
    rig.daemon = Daemon::new(Settings { routing: AGGREGATE, fabric_delay: "1s", ..Settings::default() });
    rig.daemon.publish(&vips(["2001:db8:7::1"]));
    rig.daemon.start(&rig.node);
    let (other, aggregate) = (("2001:db8:7::1/128", ""), ("10.1.0.0/24", "community (65001,24) "));
    wait_until_equal("routes of BIRD", &told([other]), || rig.tor.routes("node"));

    rig.daemon.publish(&vips(["10.1.0.1", "10.1.0.2", "2001:db8:7::1"]));
    wait_until_equal("routes of BIRD", &told([other, aggregate]), || rig.tor.routes("node"));
    let part = || rig.daemon.vip("10.1.0.2".parse().unwrap())["message"] == "announced to tor as part of 10.1.0.0/24";
    wait_until("it is said", PATIENCE, part);
    let ping = ping(&rig.tor.namespace, "10.1.0.1");
    rig.daemon.publish(&vips(["10.1.0.1", "2001:db8:7::1"]));
    wait_until_equal("addresses", &vips(["10.1.0.1", "2001:db8:7::1"]), || addresses(&rig.node, "lo"));
    assert_eq!(rig.tor.routes("node"), told([other, aggregate]));

    // The VIP gets a route of its own, and loses it again: nothing is lost on the way.
    rig.daemon.settings.routing = "";
    rig.daemon.write_config();
    wait_until_equal("routes of BIRD", &told([other, ("10.1.0.1/32", "")]), || rig.tor.routes("node"));
    rig.daemon.settings.routing = AGGREGATE;
    rig.daemon.write_config();
    wait_until_equal("routes of BIRD", &told([other, aggregate]), || rig.tor.routes("node"));
    assert_no_loss(&ping);

    let (node, tor) = (Monitor::start(&rig.node, "address"), Monitor::start(&rig.tor.namespace, "route"));
    rig.daemon.publish(&vips(["2001:db8:7::1"]));
    wait_until_equal("routes of BIRD", &told([other]), || rig.tor.routes("node"));
    wait_until_equal("addresses", &vips(["2001:db8:7::1"]), || addresses(&rig.node, "lo"));
    wait_until("the kernels have told it", PATIENCE, || !tor.removals().is_empty() && !node.removals().is_empty());
    let (withdrawn, removed) = (tor.events("Deleted 10.1.0.0/24 "), node.removals());
    let ([(withdrawn, _)], [(removed, _)]) = (&withdrawn[..], &removed[..]) else { panic!("{withdrawn:?} {removed:?}") };
    assert!(removed - withdrawn >= 0.9, "the VIP left the node at {removed} and the aggregate the ToR at {withdrawn}");
}

#[test]
fn rfc1122_the_broadcast_address_of_the_link_is_no_next_hop_and_the_status_says_so() {
    let vip = vips(["10.1.0.1"]);
    let next_hop = ", export: {nextHop: {ipv4: 10.99.0.255}}";
    let mut rig = Rig::running("no-host", Settings { of_peers: next_hop, ..Settings::default() }, &vip);
    let no_host = "its next hop would be 10.99.0.255, which is no host: it is the network or the broadcast address of 10.99.0.0/24, the link to the peer";
    wait_until("the reason", PATIENCE, || {
        let told = rig.daemon.show_as("vips", "json").stdout;
        String::from_utf8_lossy(&told).contains(&format!("no peer can be told: tor: {no_host}"))
    });
    assert!(inspect::told(&rig, "show routes").contains(no_host));
    assert_eq!(rig.tor.routes("node"), BTreeMap::new());
    rig.daemon.settings.of_peers = ", export: {nextHop: {ipv4: 10.99.0.1}}";
    rig.daemon.write_config();
    rig.wait_until_exact(&vip);
}

#[test]
fn rfc8326_the_tor_moves_to_another_node_before_this_one_withdraws() {
    let vip = vips(["10.1.0.1"]);
    let rig = Rig::serving("graceful", Settings { graceful_shutdown: "10s", fabric_delay: "500ms", ..Settings::default() }, &vip);
    let another = Namespace::new("graceful-other");
    rig.tor.link(&another, 1);
    let peers = vec![("tor".to_owned(), IpAddr::from([10, 99, 1, 2]))];
    let mut daemon = Daemon::new(Settings { peers, ..Settings::default() });
    daemon.publish(&vip);
    daemon.start(&another);
    wait_until_equal("routes of BIRD from the other node", &told([("10.1.0.1/32", "")]), || rig.tor.routes("another"));
    let ping = ping(&rig.tor.namespace, "10.1.0.1");

    let node = Monitor::start(&rig.node, "address");
    let start = now();
    rig.daemon.process().signal(Signal::SIGTERM);
    let last_resort = told([("10.1.0.1/32", "local_pref 0 community (65535,0) ")]);
    wait_until_equal("routes of BIRD from the node that leaves", &last_resort, || rig.tor.routes("node"));
    wait_until("the ToR sends to the other node", PATIENCE, || {
        rig.tor.namespace.output(&["ip", "route", "show", "10.1.0.1"]).contains("via 10.99.1.1 ")
    });
    let shown = rig.daemon.vip("10.1.0.1".parse().unwrap());
    assert_eq!((&shown["state"], &shown["reason"]), (&"Withdrawing".into(), &"NodeDrains".into()), "{shown}");
    let stage = &shown["gracefulShutdown"];
    assert_eq!((&stage["peers"], &stage["waiting"]), (&json!(["tor"]), &json!([])), "{shown}");
    let left = stage["withdrawnInSeconds"].as_u64().unwrap();
    assert!((1..=10).contains(&left), "{shown}");
    let table = inspect::told(&rig, "show vips -o wide");
    assert!(table.contains("Withdrawing (GRACEFUL_SHUTDOWN, ") && table.contains("s left)") && table.contains("so told: tor"), "{table}");
    let routes = inspect::told(&rig, "show routes");
    assert!(routes.contains("the last resort, about to be withdrawn: GRACEFUL_SHUTDOWN (RFC 8326)"), "{routes}");
    assert_eq!((rig.tor.withdrawals(), addresses(&rig.node, "lo")), (0, vip));
    assert_eq!(rig.daemon.process().wait(PATIENCE).code(), Some(0));
    wait_until_equal("routes of BIRD from the node that left", &BTreeMap::new(), || rig.tor.routes("node"));
    wait_until("the kernel has told it", PATIENCE, || !node.removals().is_empty());
    let removals = node.removals();
    let [(removed, _)] = &removals[..] else { panic!("{removals:?}") };
    assert!(removed - start >= 10.5, "the VIP left the node after {} s", removed - start);
    assert_no_loss(&ping);
    assert_eq!(addresses(&rig.node, "lo"), BTreeSet::new());
}
