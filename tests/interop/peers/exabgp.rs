// SPDX-License-Identifier: Apache-2.0
//! ExaBGP 4, which keeps no table of routes: a helper of ours writes down the JSON lines in which it tells what it hears, and passes commands on to it.
//! What it holds is what those lines come to, and the end of a session empties it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write as _;
use std::net::IpAddr;
use std::path::Path;
use std::process::Command;

use bgp::Prefix;
use serde_json::Value;

use super::{Host, Implementation, Learned, Setup, items, lines_with, number, parsed};
use crate::common::Process;

/// What it tells, as lines of JSON.
const HEARD: &str = "heard";
/// What it is told, as lines of commands.
const TOLD: &str = "told";

pub(super) struct ExaBgp;

impl Implementation for ExaBgp {
    fn version(&self) -> [&'static str; 2] {
        ["exabgp", "--version"]
    }

    fn configuration(&self, host: &Host, setup: &Setup) -> String {
        let mut text = format!("process helper {{ run /bin/sh {}; encoder json; }}\n", host.path("helper.sh").display());
        for neighbour in &setup.neighbours {
            let local = host.address_towards(*neighbour);
            text += &format!(
                "neighbor {neighbour} {{\n router-id {};\n local-address {local};\n local-as {};\n peer-as {};\n hold-time 9;\n listen 179;\n",
                setup.router_id, setup.asn, setup.neighbour_asn
            );
            text += if setup.dials { "" } else { " passive;\n" };
            text += &setup.multihop.map(|hops| format!(" outgoing-ttl {hops};\n")).unwrap_or_default();
            text += &setup.password.map(|key| format!(" md5-password \"{key}\";\n")).unwrap_or_default();
            text += " api { processes [ helper ]; receive { parsed; update; notification; } neighbor-changes; }\n";
            text += if setup.extended_next_hop { " nexthop { ipv4 unicast ipv6; }\n" } else { "" };
            let paths = if setup.add_paths { " add-path send/receive;" } else { "" };
            let next_hops = if setup.extended_next_hop { " nexthop;" } else { "" };
            text += &format!(" capability {{ route-refresh;{paths}{next_hops} }}\n");
            text += " family { ipv4 unicast; ipv6 unicast; }\n}\n";
        }
        text
    }

    fn launch(&self, host: &Host, configuration: &str) -> Vec<Process> {
        host.write(HEARD, "");
        host.write(TOLD, "");
        // It writes down what it reads, and passes on what is appended to a file. Both end with ExaBGP: with the input, and with the parent.
        let (heard, told) = (host.path(HEARD), host.path(TOLD));
        let script = format!("exec 3<&0\ncat <&3 >{} &\nexec tail --pid=$PPID -n +1 -f {}\n", heard.display(), told.display());
        host.write("helper.sh", &script);
        host.write("exabgp.conf", configuration);
        vec![Process::start(&mut with_settings(host.command("exabgp"), &host.path("exabgp.conf")))]
    }

    fn probe(&self, _: &Host) -> Option<Command> {
        None
    }

    fn announce(&self, host: &Host, setup: &Setup, before: &BTreeSet<Prefix>) {
        let paths: &[&str] = if setup.add_paths { &[" path-information 0.0.0.1", " path-information 0.0.0.2"] } else { &[""] };
        let route = |prefix: &Prefix, path: &str| format!("route {prefix}{path} next-hop {}", host.next_hop(*prefix));
        for path in paths {
            setup.announced.difference(before).for_each(|prefix| tell(host, &format!("announce {}", route(prefix, path))));
            before.difference(&setup.announced).for_each(|prefix| tell(host, &format!("withdraw {}", route(prefix, path))));
        }
    }

    fn paths(&self, host: &Host, neighbour: IpAddr, prefix: Prefix) -> Vec<Learned> {
        let wanted = prefix.to_string();
        held(host, neighbour).into_iter().filter(|((destination, _), _)| *destination == wanted).map(|(_, path)| path).collect()
    }

    fn count(&self, host: &Host, neighbour: IpAddr) -> usize {
        held(host, neighbour).len()
    }

    fn end_of_ribs(&self, host: &Host, _: &str, neighbour: IpAddr) -> usize {
        heard(host, neighbour).iter().filter(|line| line["message"]["eor"].is_object()).count()
    }

    fn updates(&self, host: &Host, neighbour: IpAddr) -> u64 {
        heard(host, neighbour).iter().filter(|line| line["message"]["update"]["announce"].is_object()).count().try_into().unwrap()
    }

    fn ask_for_refresh(&self, host: &Host, neighbour: IpAddr) {
        for family in ["ipv4", "ipv6"] {
            tell(host, &format!("neighbor {neighbour} announce route-refresh {family} unicast"));
        }
    }

    fn farewell(&self, _: &Host, _: &str, _: IpAddr) -> Option<String> {
        panic!("ExaBGP fails on the text of a shutdown")
    }

    fn deletions(&self, host: &Host, _: &str) -> Vec<String> {
        let text = fs::read_to_string(host.path(HEARD)).unwrap_or_default();
        lines_with(&text, &["\"withdraw\""])
    }
}

/// The command with the environment in which ExaBGP reads this file, in the foreground and as root.
pub(crate) fn with_settings(mut command: Command, file: &Path) -> Command {
    command.arg(file);
    let settings =
        [("api.cli", "false"), ("api.ack", "false"), ("daemon.drop", "false"), ("daemon.user", "root"), ("log.destination", "stdout")];
    for (name, value) in settings {
        command.env(format!("exabgp.{name}"), value);
    }
    command
}

fn tell(host: &Host, line: &str) {
    let mut file = fs::OpenOptions::new().append(true).open(host.path(TOLD)).unwrap();
    writeln!(file, "{line}").unwrap();
}

/// What it told of one neighbour, in order.
fn heard(host: &Host, neighbour: IpAddr) -> Vec<Value> {
    let from = neighbour.to_string();
    let text = fs::read_to_string(host.path(HEARD)).unwrap_or_default();
    let lines = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    lines.map(|mut line| line["neighbor"].take()).filter(|line| line["address"]["peer"] == from.as_str()).collect()
}

/// What the neighbour has told it and not withdrawn, by destination and path identifier.
fn held(host: &Host, neighbour: IpAddr) -> BTreeMap<(String, String), Learned> {
    let key = |nlri: &Value| (nlri["nlri"].as_str().unwrap_or_default().to_owned(), nlri["path-information"].to_string());
    let mut held = BTreeMap::new();
    for line in heard(host, neighbour) {
        if line["state"] == "down" {
            held.clear();
        }
        let update = &line["message"]["update"];
        let families =
            |what: &str| update[what].as_object().into_iter().flat_map(|families| families.values()).cloned().collect::<Vec<_>>();
        for nlri in families("withdraw").iter().flat_map(items) {
            held.remove(&key(nlri));
        }
        for (next_hop, destinations) in families("announce").iter().filter_map(Value::as_object).flatten() {
            let Ok(next_hop) = next_hop.parse::<IpAddr>() else { panic!("no next hop in {line}") };
            // It tells a route with two next hops twice: with the global one, and with the link-local one, in the order of their text.
            if let IpAddr::V6(link_local) = next_hop
                && link_local.is_unicast_link_local()
            {
                for nlri in items(destinations) {
                    held.entry(key(nlri)).and_modify(|path: &mut Learned| path.link_local = Some(link_local));
                }
                continue;
            }
            held.extend(items(destinations).map(|nlri| (key(nlri), learned(&update["attribute"], next_hop))));
        }
    }
    held
}

fn learned(attributes: &Value, next_hop: IpAddr) -> Learned {
    let tuples =
        |name: &str| items(&attributes[name]).map(|tuple| items(tuple).filter_map(number).collect::<Vec<u32>>()).collect::<Vec<_>>();
    Learned {
        next_hop,
        link_local: None,
        as_path: items(&attributes["as-path"]).filter_map(number).collect(),
        is_igp: attributes["origin"] == "igp",
        local_preference: number(&attributes["local-preference"]),
        med: number(&attributes["med"]),
        communities: tuples("community").iter().map(|tuple| tuple[0] << 16 | tuple[1]).collect(),
        large_communities: tuples("large-community").into_iter().map(|tuple| tuple.try_into().unwrap()).collect(),
        originator: parsed(&attributes["originator-id"]),
        clusters: items(&attributes["cluster-list"]).filter_map(parsed).collect(),
        only_to_customer: None,
    }
}
