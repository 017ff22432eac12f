// SPDX-License-Identifier: Apache-2.0
//! FRRouting's zebra and bgpd, asked through vtysh. What bgpd learns goes through zebra into the namespace's kernel.

use std::collections::BTreeSet;
use std::fs;
use std::net::{IpAddr, Ipv6Addr};
use std::process::Command;

use bgp::{Family, Prefix};
use serde_json::Value;

use super::{Host, Implementation, Learned, START, Setup, community, items, large_community, lines_with, number, numbers, parsed};
use crate::common::{Process, run, wait_until};

pub(super) struct Frr;

impl Implementation for Frr {
    fn version(&self) -> [&'static str; 2] {
        ["/usr/lib/frr/bgpd", "--version"]
    }

    fn configuration(&self, _: &Host, setup: &Setup) -> String {
        let asn = setup.asn;
        let mut text = format!(
            "debug bgp zebra\nrouter bgp {asn}\n bgp router-id {}\n no bgp ebgp-requires-policy\n no bgp default ipv4-unicast\n \
             no bgp network import-check\n bgp log-neighbor-changes\n coalesce-time 0\n timers bgp 3 9\n",
            setup.router_id
        );
        let each = |line: &str| -> String { setup.neighbours.iter().map(|neighbour| format!(" neighbor {neighbour} {line}\n")).collect() };
        text += &each(&format!("remote-as {}", setup.neighbour_asn));
        text += &each("timers connect 1");
        if let Some(key) = setup.password {
            text += &each(&format!("password {key}"));
        }
        if let Some(hops) = setup.ttl_security {
            text += &each(&format!("ttl-security hops {hops}"));
        }
        if let Some(hops) = setup.multihop {
            text += &each(&format!("ebgp-multihop {hops}"));
        }
        if let Some(role) = setup.role {
            text += &each(&format!("local-role {}{}", role.name, if role.strict { " strict-mode" } else { "" }));
        }
        text += &if setup.extended_next_hop { each("capability extended-nexthop") } else { String::new() };
        text += if setup.long_lived { " bgp long-lived-graceful-restart stale-time 600\n" } else { "" };
        for family in Family::ALL {
            text += &format!(" address-family {}\n{}", self::family(family), each("activate"));
            for (wanted, line) in [(setup.reflects, "route-reflector-client"), (setup.add_paths, "addpath-tx-all-paths")] {
                text += &if wanted { each(line) } else { String::new() };
            }
            text += " exit-address-family\n";
        }
        text
    }

    fn launch(&self, host: &Host, configuration: &str) -> Vec<Process> {
        drop(fs::remove_file(host.path("zserv.api")));
        host.write("zebra.conf", "");
        host.write("bgpd.conf", configuration);
        run(Command::new("chown").arg("-R").arg("frr:frrvty").arg(host.directory.path()));
        let daemon = |name: &str| {
            // Its buffers of log lines would outlive it.
            let mut command = host.with_mounts("mount -t tmpfs -o mode=1777 none /var/tmp", &format!("/usr/lib/frr/{name}"));
            command.arg("-f").arg(host.path(&format!("{name}.conf"))).arg("-i").arg(host.path(&format!("{name}.pid")));
            command.arg("-z").arg(host.path("zserv.api")).arg("--vty_socket").arg(host.directory.path());
            command.args(["-u", "frr", "-g", "frr", "-P", "0", "--log", "stdout", "--log-level", "debug"]);
            Process::start(&mut command)
        };
        let zebra = daemon("zebra");
        wait_until("zebra has its socket", START, || host.path("zserv.api").exists());
        vec![daemon("bgpd"), zebra]
    }

    fn probe(&self, host: &Host) -> Option<Command> {
        Some(vtysh_command(host, &["show bgp summary json"]))
    }

    fn announce(&self, host: &Host, setup: &Setup, before: &BTreeSet<Prefix>) {
        let added = setup.announced.difference(before).map(|prefix| (prefix, "network"));
        let removed = before.difference(&setup.announced).map(|prefix| (prefix, "no network"));
        let mut lines = vec!["configure terminal".to_owned(), format!("router bgp {}", setup.asn)];
        for (prefix, words) in added.chain(removed) {
            lines.extend([
                format!("address-family {}", family(prefix.family())),
                format!("{words} {prefix}"),
                "exit-address-family".to_owned(),
            ]);
        }
        run(&mut vtysh_command(host, &lines.iter().map(String::as_str).collect::<Vec<_>>()));
    }

    fn paths(&self, host: &Host, neighbour: IpAddr, prefix: Prefix) -> Vec<Learned> {
        let output = vtysh(host, &format!("show bgp {} {prefix} json", family(prefix.family())));
        let from = neighbour.to_string();
        items(&output["paths"]).filter(|path| path["peer"]["peerId"] == from.as_str()).filter_map(learned).collect()
    }

    fn count(&self, host: &Host, neighbour: IpAddr) -> usize {
        let output = vtysh(host, &format!("show bgp neighbors {neighbour} json"));
        let families = output[neighbour.to_string()]["addressFamilyInfo"].as_object();
        let counts =
            families.into_iter().flat_map(|families| families.values()).filter_map(|family| number(&family["acceptedPrefixCounter"]));
        counts.map(|count| usize::try_from(count).unwrap()).sum()
    }

    fn end_of_ribs(&self, _: &Host, log: &str, neighbour: IpAddr) -> usize {
        lines_with(log, &["rcvd End-of-RIB for ", &format!(" from {neighbour} ")]).len()
    }

    fn updates(&self, host: &Host, neighbour: IpAddr) -> u64 {
        let output = vtysh(host, &format!("show bgp neighbors {neighbour} json"));
        output[neighbour.to_string()]["messageStats"]["updatesRecv"].as_u64().unwrap()
    }

    fn ask_for_refresh(&self, host: &Host, neighbour: IpAddr) {
        for each in Family::ALL {
            run(&mut vtysh_command(host, &[&format!("clear bgp {} {neighbour} soft in", family(each))]));
        }
    }

    fn farewell(&self, _: &Host, log: &str, neighbour: IpAddr) -> Option<String> {
        lines_with(log, &[&format!("%NOTIFICATION: received from neighbor {neighbour} 6/2 ")]).pop()
    }

    fn deletions(&self, _: &Host, log: &str) -> Vec<String> {
        lines_with(log, &["bgp_zebra_withdraw"]).into_iter().chain(lines_with(log, &["Tx route delete"])).collect()
    }

    fn unnumbered(&self, _: Option<Ipv6Addr>) -> String {
        UNNUMBERED.to_owned()
    }
}

/// It finds out who is on the link, and dials him.
const UNNUMBERED: &str = "
router bgp 65000
 bgp router-id 192.0.2.1
 no bgp ebgp-requires-policy
 no bgp network import-check
 neighbor eth0 interface remote-as external
 neighbor eth0 timers 3 9
 neighbor eth0 timers connect 1
 address-family ipv4 unicast
  network 198.51.100.0/24
  neighbor eth0 activate
 exit-address-family
 address-family ipv6 unicast
  network 2001:db8:51::/48
  neighbor eth0 activate
 exit-address-family
";

const fn family(family: Family) -> &'static str {
    match family {
        Family::Ipv4Unicast => "ipv4 unicast",
        Family::Ipv6Unicast => "ipv6 unicast",
    }
}

fn learned(path: &Value) -> Option<Learned> {
    let global = items(&path["nexthops"]).find(|next_hop| next_hop["scope"] != "link-local")?;
    let as_path = path["aspath"]["string"].as_str()?;
    Some(Learned {
        next_hop: parsed(&global["ip"])?,
        link_local: items(&path["nexthops"])
            .find(|next_hop| next_hop["scope"] == "link-local")
            .and_then(|next_hop| parsed(&next_hop["ip"])),
        as_path: if as_path == "Local" { Vec::new() } else { numbers(as_path) },
        is_igp: path["origin"] == "IGP",
        local_preference: number(&path["locPrf"]),
        med: number(&path["metric"]),
        communities: items(&path["community"]["list"]).filter_map(Value::as_str).map(community).collect(),
        large_communities: items(&path["largeCommunity"]["list"]).filter_map(Value::as_str).map(large_community).collect(),
        originator: parsed(&path["originatorId"]),
        clusters: items(&path["clusterList"]["list"]).filter_map(parsed).collect(),
        only_to_customer: number(&path["otc"]),
    })
}

pub(super) fn vtysh(host: &Host, line: &str) -> Value {
    serde_json::from_str(&run(&mut vtysh_command(host, &[line]))).unwrap_or(Value::Null)
}

fn vtysh_command(host: &Host, lines: &[&str]) -> Command {
    let mut command = Command::new("vtysh");
    // It would write what it was asked into the history of the user.
    command.env("HOME", host.directory.path()).env("VTYSH_HISTFILE", "/dev/null").arg("--vty_socket").arg(host.directory.path());
    for line in lines {
        command.arg("-c").arg(line);
    }
    command
}
