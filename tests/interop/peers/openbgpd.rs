// SPDX-License-Identifier: Apache-2.0
//! OpenBSD's bgpd in its portable form, asked through bgpctl.

use std::collections::BTreeSet;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, TcpListener};
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use bgp::Prefix;
use serde_json::Value;

use super::{Host, Implementation, Learned, START, Setup, community, items, json, large_community, lines_with, number, numbers, parsed};
use crate::common::{Process, inside, run, wait_until};

pub(super) struct OpenBgpd;

impl Implementation for OpenBgpd {
    fn version(&self) -> [&'static str; 2] {
        ["bgpd", "-V"]
    }

    fn configuration(&self, _: &Host, setup: &Setup) -> String {
        let mut text = format!(
            "AS {}\nrouter-id {}\nlog updates\nfib-update no\nholdtime 9\nconnect-retry 1\nallow from any\nallow to any\n",
            setup.asn, setup.router_id
        );
        for neighbour in &setup.neighbours {
            text += &format!("neighbor {neighbour} {{\nremote-as {}\nannounce IPv4 unicast\nannounce IPv6 unicast\n", setup.neighbour_asn);
            for (wanted, line) in [
                (!setup.dials, "passive\n"),
                (setup.reflects, "route-reflector\n"),
                (setup.add_paths, "announce add-path recv yes\nannounce add-path send all\n"),
                (setup.ttl_security.is_some(), "ttl-security yes\n"),
            ] {
                text += if wanted { line } else { "" };
            }
            if let Some(role) = setup.role {
                text += &format!("announce policy {}{}\n", role.name, if role.strict { " enforce" } else { "" });
            }
            text += &setup.password.map(|key| format!("tcp md5sig password \"{key}\"\n")).unwrap_or_default();
            text += &setup.multihop.filter(|_| !setup.is_internal()).map(|hops| format!("multihop {hops}\n")).unwrap_or_default();
            text += "}\n";
        }
        text
    }

    fn launch(&self, host: &Host, configuration: &str) -> Vec<Process> {
        host.write("bgpd.conf", &format!("socket \"{}\"\n{configuration}", host.path("bgpd.sock").display()));
        // After a kill its listener lives on for a moment, in another process.
        let is_free = || inside(&host.namespace, || TcpListener::bind((Ipv4Addr::UNSPECIFIED, 179)).is_ok());
        wait_until("port 179 is free", START, is_free);
        // It refuses a file that others could write.
        fs::set_permissions(host.path("bgpd.conf"), fs::Permissions::from_mode(0o600)).unwrap();
        // Its processes go into the home of their user, which only a service manager would make.
        let mut command = host.with_mounts("mount -t tmpfs -o mode=755 none /run && mkdir -m 755 /run/openbgpd", "/usr/sbin/bgpd");
        command.arg("-d").arg("-v").arg("-f").arg(host.path("bgpd.conf"));
        vec![Process::start(&mut command)]
    }

    fn probe(&self, host: &Host) -> Option<Command> {
        Some(client(host, &["show", "summary"]))
    }

    fn announce(&self, host: &Host, setup: &Setup, before: &BTreeSet<Prefix>) {
        for prefix in setup.announced.difference(before) {
            // Left alone, it takes ::1 for the next hop of IPv6 over an IPv4 session.
            run(&mut client(host, &["network", "add", &prefix.to_string(), "nexthop", &host.next_hop(*prefix).to_string()]));
        }
        for prefix in before.difference(&setup.announced) {
            run(&mut client(host, &["network", "delete", &prefix.to_string()]));
        }
    }

    fn paths(&self, host: &Host, neighbour: IpAddr, prefix: Prefix) -> Vec<Learned> {
        let output = ask(host, &["show", "rib", "neighbor", &neighbour.to_string(), "in", "detail"]);
        let wanted = prefix.to_string();
        items(&output["rib"]).filter(|route| route["prefix"] == wanted.as_str()).filter_map(learned).collect()
    }

    fn count(&self, host: &Host, neighbour: IpAddr) -> usize {
        items(&ask(host, &["show", "rib", "neighbor", &neighbour.to_string(), "in"])["rib"]).count()
    }

    fn end_of_ribs(&self, _: &Host, log: &str, neighbour: IpAddr) -> usize {
        lines_with(log, &[&format!("neighbor {neighbour}: received "), "EOR marker"]).len()
    }

    fn updates(&self, host: &Host, neighbour: IpAddr) -> u64 {
        let output = ask(host, &["show", "neighbor", &neighbour.to_string()]);
        output["neighbors"][0]["stats"]["message"]["received"]["updates"].as_u64().unwrap_or_else(|| panic!("{output}"))
    }

    fn ask_for_refresh(&self, host: &Host, neighbour: IpAddr) {
        run(&mut client(host, &["neighbor", &neighbour.to_string(), "refresh"]));
    }

    fn farewell(&self, _: &Host, log: &str, neighbour: IpAddr) -> Option<String> {
        lines_with(log, &[&format!("neighbor {neighbour}: received shutdown reason: ")]).pop()
    }

    fn deletions(&self, _: &Host, log: &str) -> Vec<String> {
        let words = [": withdraw ", ": flush "];
        words.iter().flat_map(|word| lines_with(log, &["Rib Loc-RIB: neighbor", word])).collect()
    }
}

fn learned(route: &Value) -> Option<Learned> {
    let attribute = |name: &str| items(&route["attributes"]).find(|attribute| attribute["type"] == name);
    Some(Learned {
        next_hop: parsed(&route["exit_nexthop"])?,
        link_local: None,
        as_path: numbers(route["aspath"].as_str().unwrap_or_default()),
        is_igp: route["origin"] == "IGP",
        local_preference: number(&route["localpref"]),
        med: number(&route["metric"]),
        communities: items(&route["communities"]).filter_map(Value::as_str).map(community).collect(),
        large_communities: items(&route["large_communities"]).filter_map(Value::as_str).map(large_community).collect(),
        originator: attribute("Originator Id").and_then(|attribute| parsed(&attribute["originator"])),
        clusters: attribute("Cluster Id List")
            .into_iter()
            .flat_map(|attribute| items(&attribute["cluster_list"]))
            .filter_map(parsed)
            .collect(),
        only_to_customer: attribute("OTC").and_then(|attribute| number(&attribute["as"])),
    })
}

fn ask(host: &Host, words: &[&str]) -> Value {
    json(&run(&mut client(host, words)))
}

fn client(host: &Host, words: &[&str]) -> Command {
    let mut command = Command::new("bgpctl");
    command.arg("-s").arg(host.path("bgpd.sock")).arg("-j").args(words);
    command
}
