// SPDX-License-Identifier: Apache-2.0
//! The script of the init container, run as it is in a network namespace. Modules are not loaded for a test: a `modprobe` of its own stands for that.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use tempfile::TempDir;

use crate::chart::chart;
use crate::common::Namespace;

/// A node with two uplinks, of which only one has a default route, and a `modprobe` that knows all modules but one.
struct Node {
    namespace: Namespace,
    programs: TempDir,
}

impl Node {
    fn new() -> Self {
        let namespace = Namespace::new("setup");
        for (device, address) in [("eth1", "192.0.2.1/24"), ("eth2", "198.51.100.1/24")] {
            namespace.ip(&format!("link add {device} type veth peer name far-{device}"));
            namespace.ip(&format!("link set far-{device} up"));
            namespace.ip(&format!("link set {device} up"));
            namespace.ip(&format!("addr add {address} dev {device}"));
        }
        namespace.ip("route add default via 192.0.2.254");
        for name in ["all/rp_filter", "eth2/rp_filter", "all/arp_ignore", "all/arp_announce"] {
            namespace.sysctl(&format!("net/ipv4/conf/{name}"), "0");
        }
        namespace.sysctl("net/ipv4/conf/eth1/rp_filter", "1");
        namespace.sysctl("net/ipv4/ip_forward", "0");
        let programs = tempfile::tempdir().unwrap();
        let modprobe = programs.path().join("modprobe");
        fs::write(&modprobe, format!("#!/bin/sh\necho \"$1\" >>{}/loaded\n[ \"$1\" != ip_vs_nq ]\n", programs.path().display())).unwrap();
        fs::set_permissions(&modprobe, fs::Permissions::from_mode(0o755)).unwrap();
        Self { namespace, programs }
    }

    /// Runs the script with these variables; what it says on standard error.
    fn setup(&self, modules: &str, interface: &str, sysctls: &str) -> String {
        let path = format!("{}:{}", self.programs.path().display(), std::env::var("PATH").unwrap());
        let mut command = self.namespace.command("sh");
        command.arg(chart().join("files/node-setup.sh")).env("PATH", path);
        let output = command.env("MODULES", modules).env("INTERFACE", interface).env("SYSCTLS", sysctls).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success(), "{said}");
        said
    }

    fn value(&self, name: &str) -> String {
        self.namespace.run(|| fs::read_to_string(format!("/proc/sys/net/ipv4/{name}"))).unwrap().trim().to_owned()
    }
}

#[test]
fn a_node_is_set_up_where_its_default_route_is() {
    let node = Node::new();
    node.namespace.ip("link add eth2.7 type veth peer name far-7");
    let said = node.setup("nf_conntrack ip_vs_nq", "", "net.ipv4.tcp_fin_timeout=31\nnet.ipv4.conf.eth2/7.arp_announce=1\n");
    assert_eq!(node.value("conf/eth2.7/arp_announce"), "1");
    assert_eq!(fs::read_to_string(node.programs.path().join("loaded")).unwrap(), "nf_conntrack\nip_vs_nq\n");
    assert!(said.contains("the kernel has no module ip_vs_nq"), "{said}");
    let names = ["ip_forward", "tcp_fin_timeout", "conf/eth1/arp_ignore", "conf/eth1/arp_announce", "conf/eth1/rp_filter"];
    assert_eq!(names.map(|name| node.value(name)), ["1", "31", "1", "2", "2"]);
    let others = ["conf/all/rp_filter", "conf/all/arp_ignore", "conf/eth2/arp_ignore", "conf/eth2/arp_announce", "conf/eth2/rp_filter"];
    assert_eq!(others.map(|name| node.value(name)), ["0"; 5], "no interface that nobody named");
}

#[test]
fn a_named_interface_is_set_up_and_what_is_stricter_stays() {
    let node = Node::new();
    node.namespace.sysctl("net/ipv4/conf/all/arp_ignore", "2");
    let said = node.setup("", "eth2", "net.ipv4.there_is_none=1\n");
    assert!(said.contains("the kernel has no net.ipv4.there_is_none"), "{said}");
    let names = ["conf/eth2/arp_ignore", "conf/eth2/arp_announce", "conf/eth2/rp_filter", "conf/eth1/rp_filter", "conf/eth1/arp_announce"];
    assert_eq!(names.map(|name| node.value(name)), ["0", "2", "0", "1", "0"], "2 of all holds for eth2, and rp_filter of 0 stays 0");
}
