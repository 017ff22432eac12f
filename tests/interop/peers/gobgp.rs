// SPDX-License-Identifier: Apache-2.0
//! GoBGP, asked through its own client, which talks to the daemon inside the namespace.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::process::Command;

use bgp::{Family, Prefix};
use serde_json::Value;

use super::{Host, Implementation, LLGR_STALE, Learned, START, Setup, items, json, lines_with, number, parsed};
use crate::common::{Process, run, wait_until};

pub(super) struct GoBgp;

impl Implementation for GoBgp {
    fn version(&self) -> [&'static str; 2] {
        ["gobgpd", "--version"]
    }

    fn configuration(&self, _: &Host, setup: &Setup) -> String {
        let mut text = format!("[global.config]\nas = {}\nrouter-id = \"{}\"\n", setup.asn, setup.router_id);
        for neighbour in &setup.neighbours {
            text += &format!("[[neighbors]]\n[neighbors.config]\nneighbor-address = \"{neighbour}\"\npeer-as = {}\n", setup.neighbour_asn);
            text += &setup.password.map(|key| format!("auth-password = \"{key}\"\n")).unwrap_or_default();
            text += "[neighbors.timers.config]\nhold-time = 9.0\nkeepalive-interval = 3.0\nidle-hold-time-after-reset = 1.0\nconnect-retry = 5.0\n";
            text += &format!("[neighbors.transport.config]\npassive-mode = {}\n", !setup.dials);
            text += "[neighbors.graceful-restart.config]\nenabled = true\n";
            text += if setup.long_lived { "restart-time = 20\nlong-lived-enabled = true\n" } else { "helper-only = true\n" };
            if let Some(hops) = setup.ttl_security {
                text += &format!("[neighbors.ttl-security.config]\nenabled = true\nttl-min = {}\n", 256 - u16::from(hops));
            }
            if let Some(hops) = setup.multihop {
                text += &format!("[neighbors.ebgp-multihop.config]\nenabled = true\nmultihop-ttl = {hops}\n");
            }
            if setup.reflects {
                text += &format!(
                    "[neighbors.route-reflector.config]\nroute-reflector-client = true\nroute-reflector-cluster-id = \"{}\"\n",
                    setup.router_id
                );
            }
            for family in Family::ALL {
                text += &format!("[[neighbors.afi-safis]]\n[neighbors.afi-safis.config]\nafi-safi-name = \"{family}\"\n");
                text += "[neighbors.afi-safis.mp-graceful-restart.config]\nenabled = true\n";
                if setup.long_lived {
                    text += "[neighbors.afi-safis.long-lived-graceful-restart.config]\nenabled = true\nrestart-time = 600\n";
                }
                if setup.add_paths {
                    text += "[neighbors.afi-safis.add-paths.config]\nreceive = true\nsend-max = 8\n";
                }
            }
        }
        text
    }

    fn launch(&self, host: &Host, configuration: &str) -> Vec<Process> {
        host.write("gobgpd.toml", configuration);
        let mut command = host.command("gobgpd");
        command.arg("-f").arg(host.path("gobgpd.toml")).args(["-l", "debug", "-p", "--pprof-disable", "--api-hosts", "127.0.0.1:50051"]);
        vec![Process::start(&mut command)]
    }

    fn probe(&self, host: &Host) -> Option<Command> {
        Some(client(host, &["global"]))
    }

    fn announce(&self, host: &Host, setup: &Setup, before: &BTreeSet<Prefix>) {
        for prefix in setup.announced.difference(before) {
            let next_hop = host.next_hop(*prefix).to_string();
            let words = ["global", "rib", "add", "-a", family(prefix.family()), &prefix.to_string(), "origin", "igp", "nexthop", &next_hop];
            run(&mut client(host, &words));
        }
        for prefix in before.difference(&setup.announced) {
            run(&mut client(host, &["global", "rib", "del", "-a", family(prefix.family()), &prefix.to_string()]));
        }
    }

    fn paths(&self, host: &Host, neighbour: IpAddr, prefix: Prefix) -> Vec<Learned> {
        let mut command = client(host, &["neighbor", &neighbour.to_string(), "adj-in", "-a", family(prefix.family())]);
        let output = command.output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        // It has no table of a neighbour without a session.
        if text.contains("BGP session is not established") {
            return Vec::new();
        }
        assert!(output.status.success(), "{command:?}: {text}");
        let output = json(&text);
        items(&output[prefix.to_string()]).filter_map(learned).collect()
    }

    fn count(&self, host: &Host, neighbour: IpAddr) -> usize {
        let output = ask(host, &["neighbor", &neighbour.to_string()]);
        let counts = items(&output["afi_safis"]).filter_map(|family| number(&family["state"]["received"]));
        counts.map(|count| usize::try_from(count).unwrap()).sum()
    }

    fn end_of_ribs(&self, _: &Host, log: &str, neighbour: IpAddr) -> usize {
        lines_with(log, &["EOR received", &key(neighbour)]).len()
    }

    fn updates(&self, host: &Host, neighbour: IpAddr) -> u64 {
        let output = ask(host, &["neighbor", &neighbour.to_string()]);
        output["state"]["messages"]["received"]["update"].as_u64().unwrap_or_default()
    }

    fn ask_for_refresh(&self, _: &Host, _: IpAddr) {
        panic!("GoBGP has no command that sends a ROUTE-REFRESH");
    }

    fn farewell(&self, _: &Host, log: &str, neighbour: IpAddr) -> Option<String> {
        lines_with(log, &["received notification", &key(neighbour)]).pop()
    }

    /// It marks the route in its table, not in what the neighbour told.
    fn is_stale(&self, host: &Host, _: IpAddr, prefix: Prefix) -> bool {
        let rib = ask(host, &["global", "rib", "-a", family(prefix.family()), &prefix.to_string()]);
        items(&rib[prefix.to_string()]).filter_map(learned).any(|path| path.communities.contains(&LLGR_STALE))
    }

    fn deletions(&self, _: &Host, log: &str) -> Vec<String> {
        lines_with(log, &["Removing withdrawals"])
    }
}

/// How its log lines name a neighbour.
fn key(neighbour: IpAddr) -> String {
    if neighbour.is_ipv4() { format!("Key={neighbour} ") } else { format!("Key=\"{neighbour}\" ") }
}

const fn family(family: Family) -> &'static str {
    match family {
        Family::Ipv4Unicast => "ipv4",
        Family::Ipv6Unicast => "ipv6",
    }
}

fn learned(path: &Value) -> Option<Learned> {
    let attribute = |code: u32| items(&path["attrs"]).find(|attribute| number(&attribute["type"]) == Some(code));
    let value = |code: u32| attribute(code).map_or(&Value::Null, |attribute| &attribute["value"]);
    let large = |value: &Value| Some([number(&value["ASN"])?, number(&value["LocalData1"])?, number(&value["LocalData2"])?]);
    Some(Learned {
        next_hop: parsed(&attribute(3).or_else(|| attribute(14))?["nexthop"])?,
        link_local: None,
        as_path: items(&attribute(2)?["as_paths"]).flat_map(|segment| items(&segment["asns"])).filter_map(number).collect(),
        is_igp: number(value(1)) == Some(0),
        local_preference: number(value(5)),
        med: attribute(4).and_then(|attribute| number(&attribute["metric"])),
        communities: attribute(8).into_iter().flat_map(|attribute| items(&attribute["communities"])).filter_map(number).collect(),
        large_communities: items(value(32)).filter_map(large).collect(),
        originator: parsed(value(9)),
        clusters: items(value(10)).filter_map(parsed).collect(),
        only_to_customer: None,
    })
}

/// What it answers. On a busy machine its client gives up within a second.
fn ask(host: &Host, words: &[&str]) -> Value {
    let mut answer = None;
    wait_until(&format!("gobgp answers {words:?}"), START, || {
        let output = client(host, words).output().unwrap();
        answer = output.status.success().then_some(output.stdout);
        answer.is_some()
    });
    json(&String::from_utf8(answer.unwrap_or_default()).unwrap())
}

fn client(host: &Host, words: &[&str]) -> Command {
    let mut command = host.command("gobgp");
    command.arg("-j").args(words);
    command
}
