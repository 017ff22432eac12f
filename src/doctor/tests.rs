// SPDX-License-Identifier: Apache-2.0
//! Nodes and what is found on them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use ipvs::{Protocol, ServiceAddress};

use super::*;
use crate::actuator::Abandoned;
use crate::config::Environment;
use crate::sysctl::{InterfaceSetting, Sysctl};

fn address(text: &str, protocol: Option<u8>) -> InterfaceAddress {
    let (address, length) = text.split_once('/').unwrap();
    InterfaceAddress { address: address.parse().unwrap(), prefix_length: length.parse().unwrap(), protocol }
}

fn interface(name: &str, addresses: &[InterfaceAddress]) -> Interface {
    Interface { name: name.to_owned(), up: true, addresses: addresses.to_vec() }
}

/// A node on which everything is as it should be.
fn good() -> Node {
    let kernel = Some(1);
    let lo = [address("127.0.0.1/8", kernel), address("::1/128", kernel), address("10.0.0.7/32", Some(118))];
    let eth0 = [address("192.0.2.11/24", None), address("2001:db8:99::b/64", Some(3)), address("fe80::1/64", Some(3))];
    Node {
        kernel: "6.12.0".to_owned(),
        sysctls: Sysctl::ALL
            .into_iter()
            .chain(Sysctl::FOR_MOVED_FLOWS)
            .map(|setting| (setting, Setting { value: Some(setting.wanted().to_owned()), writable: true }))
            .collect(),
        external: external([1, 2, 2], true),
        ipv6_forwarding: Some("1".to_owned()),
        ipvs: IpvsModule::Loaded,
        missing_schedulers: BTreeSet::new(),
        sync_daemons: Ok(Vec::new()),
        virtual_services: Ok(vec![service("10.0.0.7:80")]),
        nft: Ok("nftables v1.0.6 (Lester Gooch #5)".to_owned()),
        capabilities: Ok(BTreeSet::from(Capability::ALL)),
        tcp_md5: Ok(true),
        tcp_ao: Ok(true),
        interfaces: Ok(vec![interface("lo", &lo), interface("eth0", &eth0)]),
        abandoned: Ok(Vec::new()),
        unreadable_keys: BTreeMap::new(),
    }
}

fn external(values: [u8; 3], writable: bool) -> BTreeMap<(String, InterfaceSetting), Setting> {
    let setting = |(setting, value): (_, u8)| (("eth0".to_owned(), setting), Setting { value: Some(value.to_string()), writable });
    InterfaceSetting::ALL.into_iter().zip(values).map(setting).collect()
}

/// One on which little is.
fn bad() -> Node {
    let lo = [address("127.0.0.1/8", None), address("10.0.0.7/32", None)];
    let mut sysctls = good().sysctls;
    sysctls.insert(Sysctl::Ipv4Forward, Setting { value: Some("0".to_owned()), writable: false });
    sysctls.insert(Sysctl::VsConntrack, Setting { value: Some("0".to_owned()), writable: true });
    sysctls.insert(Sysctl::VsSnatReroute, Setting::default());
    Node {
        kernel: "5.14.21".to_owned(),
        sysctls,
        external: external([0, 2, 1], false),
        ipv6_forwarding: Some("0".to_owned()),
        missing_schedulers: BTreeSet::from(["ip_vs_mh".to_owned(), "ip_vs_ovf".to_owned()]),
        virtual_services: Ok(vec![service("10.0.0.7:80"), service("10.96.0.1:443"), service("10.96.0.10:53")]),
        nft: Err("there is no command nft in PATH (Debian package nftables)".to_owned()),
        capabilities: Ok(BTreeSet::from([Capability::NetRaw])),
        tcp_md5: Ok(false),
        tcp_ao: Ok(false),
        interfaces: Ok(vec![
            interface("lo", &lo),
            interface("eth0", &[address("fe80::1/64", None)]),
            interface("kube-ipvs0", &[]),
            interface("bpfin.cali", &[]),
        ]),
        unreadable_keys: BTreeMap::from([("/etc/keys/tor".into(), "No such file or directory (os error 2)".to_owned())]),
        ..good()
    }
}

fn service(address: &str) -> ServiceAddress {
    ServiceAddress::transport(Protocol::TCP, address.parse::<SocketAddr>().unwrap())
}

fn config(text: &str) -> Config {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("c.yaml");
    std::fs::write(&file, text).unwrap();
    crate::config::load(&file, &Environment::from([("NODE_NAME".to_owned(), "node-1".to_owned())])).unwrap()
}

const DEMANDING: &str = "
vips: {allow: [{prefix: 10.0.0.0/24}, {prefix: 192.0.2.128/25}, {prefix: '2001:db8:7::/64'}]}
dataplane: {type: ipvs, setSysctls: true}
bgp:
  asn: 65001
  listen: {address: 192.0.2.11, prefixes: [192.0.2.0/24], gracefulRestart: {restartTime: 60s}, timers: {hold: 0s}}
  peers:
  - {name: tor, address: 192.0.2.1, asn: 65000, passwordFile: /etc/keys/tor, gracefulRestart: {restartTime: 120s, longLivedStaleTime: 1h}}
  - {name: leaf, interface: eth1, asn: 65000, tcpAo: {keys: [{sendId: 1, passwordFile: /etc/keys/leaf}]}}
";

fn text(findings: &[Finding]) -> String {
    let line = |finding: &Finding| {
        let remedy = finding.remedy.as_ref().map(|remedy| format!("\n    -> {remedy}")).unwrap_or_default();
        format!("{}: {}: {}{remedy}\n", finding.state.as_str(), finding.check, finding.detail)
    };
    findings.iter().map(line).collect()
}

#[test]
fn a_good_node() {
    insta::assert_snapshot!(text(&examine(&good(), None)));
}

#[test]
fn a_good_node_and_a_demanding_configuration() {
    insta::assert_snapshot!(text(&examine(&good(), Some(&config(DEMANDING)))));
}

#[test]
fn a_bad_node() {
    insta::assert_snapshot!(text(&examine(&bad(), None)));
}

#[test]
fn a_bad_node_and_a_demanding_configuration() {
    insta::assert_snapshot!(text(&examine(&bad(), Some(&config(DEMANDING)))));
}

/// What is not needed, or not seen, is no problem.
#[test]
fn a_node_that_shows_nothing_and_needs_little() {
    let unseen = || Err("Permission denied (os error 13)".to_owned());
    let node = Node {
        ipvs: IpvsModule::Missing,
        nft: unseen(),
        capabilities: Ok(BTreeSet::from([Capability::NetAdmin])),
        virtual_services: Err("the kernel does not show its table".to_owned()),
        tcp_md5: unseen_bool(),
        tcp_ao: unseen_bool(),
        interfaces: Err("cannot open an rtnetlink socket".to_owned()),
        ..good()
    };
    let findings = examine(&node, Some(&config("vips: {allow: [{prefix: 10.0.0.0/24}]}\ndataplane: {type: none}\nbgp: {asn: 1}\n")));
    assert!(findings.iter().all(|finding| finding.state == State::Ok), "{}", text(&findings));
    assert!(!findings.iter().any(|finding| finding.check.starts_with("sysctl") || finding.check == "IPVS"), "nobody balances here");
}

fn unseen_bool() -> Result<bool, String> {
    Err("Too many open files (os error 24)".to_owned())
}

#[test]
fn ipvs_that_is_not_loaded() {
    let settings: BTreeMap<Sysctl, Setting> = good().sysctls.into_keys().map(|setting| (setting, Setting::default())).collect();
    let of = |ipvs| examine(&Node { ipvs, sysctls: settings.clone(), ..good() }, None);
    let state = |findings: &[Finding], check: &str| findings.iter().find(|finding| finding.check == check).unwrap().state;
    assert_eq!(state(&of(IpvsModule::Loadable), "IPVS"), State::Ok);
    assert_eq!(state(&of(IpvsModule::Unseen), "IPVS"), State::Warning);
    assert_eq!(state(&of(IpvsModule::Missing), "IPVS"), State::Warning, "nobody says that it is needed");
    assert_eq!(state(&of(IpvsModule::Loadable), "sysctl net.ipv4.vs.conntrack"), State::Ok, "it comes with IPVS");
    let needed = examine(&Node { ipvs: IpvsModule::Missing, ..good() }, Some(&config(DEMANDING)));
    assert_eq!(state(&needed, "IPVS"), State::Problem);

    let with =
        |kind: &str, ipvs| examine(&Node { ipvs, ..good() }, Some(&config(&format!("dataplane: {{type: {kind}}}\nbgp: {{asn: 1}}\n"))));
    let auto = with("auto", IpvsModule::Missing);
    assert_eq!(state(&auto, "IPVS"), State::Warning, "nft balances");
    assert!(!auto.iter().any(|finding| finding.check.starts_with("sysctl net.ipv4.vs.")), "{}", text(&auto));
    assert_eq!(state(&with("auto", IpvsModule::Loaded), "sysctl net.ipv4.vs.conntrack"), State::Ok);
    let nft = with("nftables", IpvsModule::Missing);
    assert!(nft.iter().all(|finding| finding.check != "IPVS") && state(&nft, "sysctl net.ipv4.ip_forward") == State::Ok, "{}", text(&nft));
}

#[test]
fn who_may_take_packets_before_nft_and_ipvs_is_told_where_we_balance() {
    let interfaces = Ok(vec![interface("lo", &[]), interface("cilium_host", &[])]);
    let node = Node { interfaces, ..good() };
    let told = |kind: &str| {
        let findings = examine(&node, Some(&config(&format!("dataplane: {{type: {kind}}}\nbgp: {{asn: 1}}\n"))));
        findings.iter().filter(|finding| finding.check == "eBPF").map(|finding| (finding.state, finding.detail.clone())).collect::<Vec<_>>()
    };
    let detail = "interface cilium_host is there: where Cilium replaces kube-proxy, its eBPF programs take packets to external IPs of Services before nft and \
                  IPVS see them";
    for kind in ["ipvs", "nftables", "auto"] {
        assert_eq!(told(kind), [(State::Warning, detail.to_owned())], "{kind}");
    }
    assert_eq!(told("kube-proxy"), []);
}

/// Which objects ask for it is not known without the cluster: it says when the setting is made, and by whom.
#[test]
fn sloppy_tcp_is_told_as_what_some_objects_need() {
    let told = |dataplane: &str, writable| {
        let mut node = good();
        node.sysctls.insert(Sysctl::VsSloppyTcp, Setting { value: Some("0".to_owned()), writable });
        let findings = examine(&node, Some(&config(&format!("dataplane: {{type: ipvs{dataplane}}}\nbgp: {{asn: 1}}\n"))));
        let finding = findings.into_iter().find(|finding| finding.check == "sysctl net.ipv4.vs.sloppy_tcp").unwrap();
        let words = finding.detail.split_once(": with dr").unwrap().0.to_owned();
        (finding.state, words, finding.remedy.is_some())
    };
    let once = "once a TCP port is served with dr, tun or gue, and by mh or sh";
    let sets = (State::Ok, format!("0; the daemon sets it to 1 {once}"), false);
    assert_eq!(told("", true), sets);
    assert_eq!(told(", forwarding: dr", true), sets);
    let cannot = format!("0; must be 1 {once}, and it cannot be set from here");
    assert_eq!(told("", false), (State::Ok, cannot.clone(), false));
    assert_eq!(told(", forwarding: dr", false), (State::Warning, cannot.clone(), true));
    assert_eq!(told(", forwarding: dr, scheduler: rr", false), (State::Ok, cannot, false));
    let may_not = format!("0; must be 1 {once}, and dataplane.setSysctls is false");
    assert_eq!(told(", setSysctls: false", true), (State::Ok, may_not, false));
}

#[test]
fn what_another_instance_has_left_is_told_with_the_way_out() {
    let left = |name: &str| Abandoned {
        instance: name.to_owned(),
        addresses: BTreeSet::from(["10.0.0.7".parse().unwrap()]),
        interfaces: BTreeSet::from(["lo".to_owned()]),
        services: 2,
    };
    let node = Node { abandoned: Ok(vec![left("old"), left("vipherald")]), ..good() };
    let told = |config: Option<&Config>| {
        let findings = examine(&node, config).into_iter().filter(|finding| finding.check.starts_with("instance "));
        findings.map(|finding| (finding.check, finding.detail, finding.remedy.unwrap())).collect::<Vec<_>>()
    };
    let remedy = "start it, or give the one that follows it its name, or take it away: vipherald cleanup --instance old";
    let detail = "it does not run, and has left 10.0.0.7 on lo, 2 virtual services, table inet old";
    let expected = ("instance old".to_owned(), detail.to_owned(), remedy.to_owned());
    assert_eq!(told(Some(&config("bgp: {asn: 1}\n"))), [expected], "what is its own is no news");
    assert_eq!(told(None), [], "which is meant to run is not known");
}
