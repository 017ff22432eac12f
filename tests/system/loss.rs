// SPDX-License-Identifier: Apache-2.0
//! What somebody else takes away: addresses, the record, the peer, the interface. It is put right at once, and nothing else is touched.

use std::collections::BTreeSet;
use std::net::IpAddr;

use crate::common::wait_until;
use crate::rig::{Monitor, PATIENCE, Record, Rig, Settings, addresses, get, vips, wait_until_equal};

fn four() -> BTreeSet<IpAddr> {
    vips(["10.1.0.1", "10.1.0.2", "2001:db8:7::1", "2001:db8:7::2"])
}

#[test]
fn a_lost_address_is_repaired_within_a_second() {
    let rig = Rig::serving("lost", Settings::default(), &four());
    let monitor = Monitor::start(&rig.node, "address");
    let session = rig.session();
    let mut times = Vec::new();
    for losses in 1..=10 {
        for vip in ["10.1.0.1", "2001:db8:7::1"] {
            let line = format!(" {vip}/");
            rig.node.ip(&format!("address delete {vip} dev lo"));
            wait_until("the address is back", PATIENCE, || monitor.events(&line).len() >= 2 * losses);
            let events = monitor.events(&line);
            let [.., (gone, removal), (back, addition)] = &events[..] else { panic!("{events:?}") };
            assert!(events.len() == 2 * losses && removal.contains("Deleted") && !addition.contains("Deleted"), "{events:?}");
            assert!(back - gone < 1.0, "{events:?}");
            times.push(format!("{:.1} ms", (back - gone) * 1e3));
            rig.wait_until_exact(&four());
        }
    }
    // A repair can be so quick that there is nothing to tell any more when the speaker gets to it.
    let withdrawals = rig.tor.withdrawals();
    println!("from the loss to the repair: {}; {withdrawals} of 20 were withdrawn meanwhile", times.join(", "));
    assert!(withdrawals <= 20, "{withdrawals}");
    let metrics = get(&rig.node, 9479, "/metrics").unwrap().1;
    assert!(metrics.contains("\nvipherald_repairs_total 20\n"), "{metrics}");
    assert_eq!(rig.session(), session);
}

#[test]
fn what_cannot_be_repaired_is_withdrawn_until_it_can() {
    let rig = Rig::serving("beyond", Settings::default(), &four());
    let session = rig.session();
    rig.node.sysctl("net/ipv6/conf/lo/disable_ipv6", "1");
    wait_until_equal("routes of BIRD", &vips(["10.1.0.1", "10.1.0.2"]), || rig.tor.learned());
    for vip in ["2001:db8:7::1", "2001:db8:7::2"] {
        let told =
            || rig.daemon.vip(vip.parse().unwrap())["message"].as_str().is_some_and(|message| message.contains("IPv6 is disabled on lo"));
        wait_until(&format!("it is told why {vip} is not there"), PATIENCE, told);
    }
    assert_eq!(rig.tor.withdrawals(), 2);
    rig.node.sysctl("net/ipv6/conf/lo/disable_ipv6", "0");
    rig.wait_until_exact(&four());
    assert_eq!((rig.session(), rig.tor.withdrawals()), (session, 2));
}

#[test]
fn a_lost_record_is_written_again_and_nothing_is_removed() {
    let rig = Rig::serving("record", Settings::default(), &four());
    let monitor = Monitor::start(&rig.node, "address");
    let session = rig.session();
    let whole = Record { placed: four(), pending: BTreeSet::new() };
    for script in [
        "flush ruleset",
        "delete table inet vipherald",
        "flush set inet vipherald placed4",
        "delete element inet vipherald placed6 { 2001:db8:7::1 }",
        "delete table inet vipherald; add table inet vipherald",
    ] {
        rig.node.nft(script);
        wait_until_equal(script, &whole, || rig.record());
        rig.wait_until_exact(&four());
    }
    assert_eq!(monitor.removals(), []);
    assert_eq!((rig.session(), rig.tor.withdrawals()), (session, 0));

    // What became ours by the new record leaves by it.
    let fewer = vips(["10.1.0.1", "2001:db8:7::1"]);
    rig.daemon.publish(&fewer);
    rig.wait_until_exact(&fewer);
}

#[test]
fn a_restarted_router_learns_everything_again() {
    let mut rig = Rig::serving("router", Settings::default(), &four());
    let monitor = Monitor::start(&rig.node, "address");
    for established in 2..=3 {
        rig.tor.restart();
        wait_until("the session is up again", PATIENCE, || rig.daemon.peer("tor")["establishedCount"] == established);
        rig.wait_until_exact(&four());
    }
    assert_eq!(monitor.removals(), []);
}

#[test]
fn an_interface_that_is_down_or_gone_carries_nothing_until_it_is_back() {
    let mut rig = Rig::new("interface");
    make_interface(&rig);
    rig.daemon = crate::rig::Daemon::new(Settings { interface: "vip0".to_owned(), ..Settings::default() });
    rig.daemon.publish(&four());
    rig.daemon.start(&rig.node);
    rig.wait_until_exact(&four());
    let session = rig.session();

    let reason = |word: &str| {
        let vips = four();
        wait_until(&format!("all are {word}"), PATIENCE, || vips.iter().all(|vip| rig.daemon.vip(*vip)["reason"] == word));
        wait_until_equal("routes of BIRD", &BTreeSet::new(), || rig.tor.learned());
    };
    rig.node.ip("link set vip0 down");
    reason("InterfaceDown");
    // The kernel keeps the IPv4 addresses of an interface that is down.
    assert!(addresses(&rig.node, "vip0").is_superset(&vips(["10.1.0.1", "10.1.0.2"])));
    rig.node.ip("link set vip0 up");
    rig.wait_until_exact(&four());

    rig.node.ip("link delete vip0");
    reason("InterfaceMissing");
    make_interface(&rig);
    rig.wait_until_exact(&four());
    assert_eq!(rig.session(), session);
}

fn make_interface(rig: &Rig) {
    rig.node.ip("link add vip0 type veth peer name vip1");
    rig.node.ip("link set vip1 up");
    rig.node.ip("link set vip0 up");
}
