// SPDX-License-Identifier: Apache-2.0
//! Hosts on one link, for virtual routers: ours, another router, and a client that sees where an address is.
#![allow(dead_code, reason = "each test file uses a part of it")]

use std::net::IpAddr;
use std::time::Duration;

use super::{Namespace, wait_until};

/// How long anything may take, on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// See the module.
pub(crate) struct Link {
    pub(crate) ours: Namespace,
    pub(crate) theirs: Namespace,
    pub(crate) client: Namespace,
    pub(crate) switch: Namespace,
}

impl Link {
    /// Host 1 is ours, 2 the other router, 3 the client; each with an address of either family.
    pub(crate) fn new(tag: &str) -> Self {
        let [switch, ours, theirs, client] = ["sw", "n", "r", "c"].map(|side| Namespace::new(&format!("{tag}-{side}")));
        switch.ip("link add br0 type bridge mcast_snooping 0");
        switch.ip("link set br0 up");
        let link = Self { ours, theirs, client, switch };
        for (host, namespace) in [(1, &link.ours), (2, &link.theirs), (3, &link.client)] {
            link.replug(host, namespace);
        }
        link
    }

    /// Gives a host a card that it does not have.
    pub(crate) fn replug(&self, host: u8, namespace: &Namespace) {
        self.switch.veth(&format!("port{host}"), namespace, "eth0");
        self.switch.ip(&format!("link set port{host} master br0"));
        namespace.ip(&format!("address add 10.97.0.{host}/24 dev eth0"));
        namespace.ip(&format!("address add 2001:db8:97::{host}/64 dev eth0 nodad"));
    }

    /// Takes the cable of a host out, or puts it in again.
    pub(crate) fn plug(&self, host: u8, is_in: bool) {
        self.switch.ip(&format!("link set port{host} {}", if is_in { "up" } else { "down" }));
    }

    /// Lets nothing from one host to another through any more, or all of it again.
    pub(crate) fn cut(&self, from: u8, to: u8, is_cut: bool) {
        self.switch.nft(
            "add table bridge cut\nadd chain bridge cut forward { type filter hook forward priority 0; }\nflush chain bridge cut forward",
        );
        if is_cut {
            self.switch.nft(&format!("add rule bridge cut forward iifname port{from} oifname port{to} drop"));
        }
    }

    /// The switch forgets where it has seen whom.
    pub(crate) fn forget_macs(&self) {
        self.switch.ip("link set br0 type bridge fdb_flush");
    }

    /// Whether the switch knows by what it has seen that this Ethernet address is at a host.
    pub(crate) fn has_learned(&self, mac: &str, host: u8) -> bool {
        self.switch.output(&["bridge", "fdb", "show", "br", "br0"]).contains(&format!("{mac} dev port{host} "))
    }

    /// Waits until the client finds the address at this host, by what it knows, without asking.
    pub(crate) fn wait_until_known_at(&self, address: IpAddr, host: &Namespace) {
        let mac = mac(host);
        wait_until(&format!("the client knows {address} at {mac}"), PATIENCE, || {
            self.client.ip(&format!("neigh show {address} dev eth0")).contains(&mac)
        });
    }

    /// The client asks where the address is, and is answered.
    pub(crate) fn ping(&self, address: IpAddr) {
        self.client.output(&["ping", "-n", "-c", "1", "-W", "10", &address.to_string()]);
    }
}

/// The Ethernet address of a host.
pub(crate) fn mac(host: &Namespace) -> String {
    let link = host.ip("-o link show eth0");
    link.split_whitespace().skip_while(|word| *word != "link/ether").nth(1).unwrap().to_owned()
}

/// The link-local address of a host.
pub(crate) fn link_local(host: &Namespace) -> IpAddr {
    let words = host.ip("-6 -o address show dev eth0 scope link");
    let address = words.split_whitespace().skip_while(|word| *word != "inet6").nth(1).unwrap();
    address.split('/').next().unwrap().parse().unwrap()
}

/// The macvlans of a host, each with whether it is up.
pub(crate) fn macvlans(host: &Namespace) -> Vec<(String, bool)> {
    let links = host.ip("-o link show type macvlan");
    let of_line = |line: &str| {
        let name = line.split_whitespace().nth(1)?.split('@').next()?.to_owned();
        Some((name, line.contains(",UP") || line.contains("<UP")))
    };
    links.lines().filter_map(of_line).collect()
}

/// The name of the interface of the host that has the address.
pub(crate) fn device_of(host: &Namespace, address: IpAddr) -> Option<String> {
    let shown = host.ip(&format!("-o address show to {address}"));
    shown.split_whitespace().nth(1).map(str::to_owned)
}

/// Hosts ask for neighbours in the name of the address that they have on that link, as the daemon sets it on external interfaces.
pub(crate) fn announce_own_address(hosts: [&Namespace; 2]) {
    hosts.into_iter().for_each(|host| host.sysctl("net/ipv4/conf/eth0/arp_announce", "2"));
}

/// Whether the address is on `eth0` of the host.
pub(crate) fn has(host: &Namespace, address: IpAddr) -> bool {
    host.ip(&format!("-o address show dev eth0 to {address}")).contains(&address.to_string())
}
