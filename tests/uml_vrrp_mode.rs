// SPDX-License-Identifier: Apache-2.0
//! VIPs of a virtual router where IPVS balances. Runs in the guest that `tests/uml` boots; who wins an election, and how fast, is `tests/vrrp_mode.rs`.
#![allow(clippy::unwrap_used, reason = "a failed test says where")]

mod common;
#[path = "common/link.rs"]
mod link;
#[path = "common/site.rs"]
mod site;
#[path = "common/stage.rs"]
mod stage;

use std::net::{IpAddr, Ipv4Addr};

use common::{Namespace, wait_until};
use link::{PATIENCE, has};
use site::Site;

const VIP: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 97, 0, 100));

#[test]
fn ipvs_balances_for_a_virtual_router_and_for_bgp_again() {
    let site = Site::new("ipvs", "ipvs");
    let node = site.node(1, "vrrp", "peers: []");
    node.publish("web", &[VIP]);
    let running = node.run();
    let says = |reason: &str| node.vip(VIP).is_some_and(|vip| vip["state"] == "Announced" && vip["reason"] == reason);
    for _ in 0..2 {
        wait_until("the virtual router has it", PATIENCE, || says("Active") && site.learned().is_empty());
        assert!(has(node.host, VIP));
        wait_until("it answers", PATIENCE, || site.asks(VIP));
        let table = node.host.output(&["ipvsadm", "-Ln"]);
        assert!(table.contains("TCP  10.97.0.100:80 rr") && table.contains("UDP  10.97.0.100:7 rr"), "{table}");
        node.switch(&running, "bgp");
        wait_until("BGP has it", PATIENCE, || says("Served") && site.learned() == [VIP] && !has(node.host, VIP));
        assert!(site.asks(VIP));
        node.switch(&running, "vrrp");
    }
}
