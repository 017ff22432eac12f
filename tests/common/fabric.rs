// SPDX-License-Identifier: Apache-2.0
//! A client, a ToR, routers side by side and real servers; all but the client are on one link.
//!
//! Input: how many of each, and how packets get to real servers. Output: routers that are to be started, and a ToR that sends packets to the VIP by those
//! of them that it is told. It needs a kernel with IPVS.
#![allow(dead_code, reason = "each test file uses a part of it")]

use crate::common::Namespace;
use crate::router::{Router, VIP, VIP6, become_target};

/// Routers are `192.168.0.11` and `2001:db8:1::11` and up, real servers `192.168.1.1` and `2001:db8:1::21` and up, the client is `10.99.0.2` and
/// `2001:db8:99::2`.
pub(crate) struct Fabric {
    pub(crate) client: Namespace,
    pub(crate) tor: Namespace,
    pub(crate) routers: Vec<Router>,
    pub(crate) servers: Vec<Namespace>,
}

impl Fabric {
    /// With real servers that take packets of this forwarding method, those of `dr` where it is `tun`; the closure starts what answers on each, by number.
    pub(crate) fn new(tag: &str, routers: usize, servers: usize, forwarding: &str, answer: impl Fn(usize, &Namespace)) -> Self {
        let [client, tor] = ["client", "tor"].map(|name| Namespace::new(&format!("{tag}-{name}")));
        client.veth("eth0", &tor, "front");
        for (host, device, last) in [(&tor, "front", 1), (&client, "eth0", 2)] {
            host.ip(&format!("addr add 10.99.0.{last}/24 dev {device}"));
            host.ip(&format!("addr add 2001:db8:99::{last}/64 dev {device}"));
        }
        client.ip("route add default via 10.99.0.1");
        client.ip("-6 route add default via 2001:db8:99::1");
        tor.ip("link add lan type bridge");
        tor.ip("link set lan up");
        tor.ip("addr add 192.168.0.1/16 dev lan");
        tor.ip("addr add 2001:db8:1::1/64 dev lan");
        for (setting, value) in [("ipv4/ip_forward", "1"), ("ipv6/conf/all/forwarding", "1"), ("ipv4/fib_multipath_hash_policy", "1")] {
            tor.sysctl(&format!("net/{setting}"), value);
        }
        let attach = |host: &Namespace, port: &str, four: &str, six: &str| {
            tor.veth(port, host, "eth0");
            tor.ip(&format!("link set {port} master lan"));
            host.ip(&format!("addr add {four}/16 dev eth0"));
            host.ip(&format!("addr add {six}/64 dev eth0"));
            host.ip("route add default via 192.168.0.1");
            host.ip("-6 route add default via 2001:db8:1::1");
            // Packets come and leave by the same link here; nobody is to take a shorter way.
            for device in ["all", "eth0"] {
                host.sysctl(&format!("net/ipv4/conf/{device}/send_redirects"), "0");
            }
        };
        let router = |number| {
            let connect = |host: &Namespace| {
                attach(host, &format!("r{number}"), &format!("192.168.0.1{number}"), &format!("2001:db8:1::1{number}"));
                host.sysctl("net/ipv6/conf/all/forwarding", "1");
            };
            Router::new(&format!("{tag}-router{number}"), connect)
        };
        let server = |number| {
            let host = Namespace::new(&format!("{tag}-server{number}"));
            attach(&host, &format!("s{number}"), &format!("192.168.1.{number}"), &format!("2001:db8:1::2{number}"));
            if forwarding != "nat" {
                become_target(&host, forwarding);
            }
            answer(number, &host);
            host
        };
        let (routers, servers) = ((1..=routers).map(router).collect(), (1..=servers).map(server).collect());
        Self { client, tor, routers, servers }
    }

    /// The ToR has these routers for next hops, counted from 1.
    pub(crate) fn route(&self, routers: &[usize]) {
        for (vip, prefix) in [(format!("{VIP}/32"), "192.168.0.1"), (format!("{VIP6}/128"), "2001:db8:1::1")] {
            let hops: String = routers.iter().map(|number| format!(" nexthop via {prefix}{number}")).collect();
            self.tor.ip(&format!("route replace {vip}{hops}"));
        }
    }
}
