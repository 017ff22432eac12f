// SPDX-License-Identifier: Apache-2.0
//! CZ.NIC's BIRD 2: a protocol for each neighbour, asked through its control socket.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv6Addr};
use std::process::Command;

use bgp::Prefix;

use super::{Host, Implementation, Learned, Setup, lines_with, numbers};
use crate::common::Process;

pub(super) struct Bird;

impl Implementation for Bird {
    fn version(&self) -> [&'static str; 2] {
        ["bird", "--version"]
    }

    fn configuration(&self, _: &Host, setup: &Setup) -> String {
        let mut text =
            format!("router id {};\nlog stderr all;\nprotocol device {{}}\nprotocol direct {{ ipv4; ipv6; }}\n", setup.router_id);
        for (family, ipv4) in [("ipv4", true), ("ipv6", false)] {
            let routes: String = setup.announced(ipv4).map(|prefix| format!("route {prefix} blackhole; ")).collect();
            text += &format!("protocol static {{ {family}; {routes}}}\n");
        }
        if setup.forwards {
            text += "protocol kernel { learn; ipv4 { import all; export all; }; }\nprotocol kernel { learn; ipv6 { import all; export all; }; }\n";
        }
        let mut options = setup.password.map(|key| format!("password \"{key}\"; ")).unwrap_or_default();
        options += &match (setup.ttl_security, setup.multihop) {
            (Some(1), _) => "direct; ttl security on;".to_owned(),
            (Some(hops), _) => format!("multihop {hops}; ttl security on;"),
            (None, Some(hops)) => format!("multihop {hops};"),
            (None, None) => "direct;".to_owned(),
        };
        if let Some(role) = setup.role {
            options += &format!(" local role {};{}", role.name, if role.strict { " require roles on;" } else { "" });
        }
        options += if setup.extended_messages { " enable extended messages on;" } else { "" };
        options += if setup.long_lived { " graceful restart on; long lived graceful restart on;" } else { "" };
        let next_hops = if setup.extended_next_hop { " extended next hop on;" } else { "" };
        let (clients, sources) = if setup.reflects { (" rr client;", "[RTS_STATIC, RTS_BGP]") } else { ("", "[RTS_STATIC]") };
        let paths = if setup.add_paths { " add paths on;" } else { "" };
        for neighbour in &setup.neighbours {
            text += &format!(
                "protocol bgp {name} {{ debug all; local as {asn}; neighbor {neighbour} as {neighbour_asn}; {options}{clients} hold time 9; \
                 connect delay time 1; connect retry time 1; error wait time 1, 4; \
                 ipv4 {{ import all; export where source ~ {sources};{paths}{next_hops} }}; ipv6 {{ import all; export where source ~ {sources};{paths} }}; }}\n",
                name = protocol(*neighbour),
                asn = setup.asn,
                neighbour_asn = setup.neighbour_asn,
            );
        }
        text
    }

    fn launch(&self, host: &Host, configuration: &str) -> Vec<Process> {
        host.write("bird.conf", configuration);
        let mut command = host.command("bird");
        command.arg("-f").arg("-c").arg(host.path("bird.conf")).arg("-s").arg(host.path("bird.ctl")).arg("-P").arg(host.path("bird.pid"));
        vec![Process::start(&mut command)]
    }

    fn probe(&self, host: &Host) -> Option<Command> {
        Some(birdc(host, "show status"))
    }

    fn announce(&self, host: &Host, setup: &Setup, before: &BTreeSet<Prefix>) {
        if setup.announced != *before {
            host.write("bird.conf", &self.configuration(host, setup));
            ask(host, "configure");
        }
    }

    fn paths(&self, host: &Host, neighbour: IpAddr, prefix: Prefix) -> Vec<Learned> {
        let output = ask(host, &format!("show route all {prefix} protocol {}", protocol(neighbour)));
        // Each path begins with its type: what stands before the first is the head of the table.
        output.split("Type: BGP").skip(1).filter_map(learned).collect()
    }

    /// "2 of 5 routes for 5 networks in table master4", for each table.
    fn count(&self, host: &Host, neighbour: IpAddr) -> usize {
        let output = ask(host, &format!("show route protocol {} count", protocol(neighbour)));
        output.lines().filter_map(|line| line.split_once(" of ")?.0.parse::<usize>().ok()).sum()
    }

    fn end_of_ribs(&self, _: &Host, log: &str, neighbour: IpAddr) -> usize {
        lines_with(log, &[&format!("{}: Got END-OF-RIB", protocol(neighbour))]).len()
    }

    fn updates(&self, host: &Host, neighbour: IpAddr) -> u64 {
        let text = ask(host, &format!("show protocols all {}", protocol(neighbour)));
        let counts = text.lines().filter_map(|line| line.trim().strip_prefix("Import updates:"));
        counts.map(|counts| counts.split_whitespace().next().unwrap().parse::<u64>().unwrap()).sum()
    }

    fn ask_for_refresh(&self, host: &Host, neighbour: IpAddr) {
        ask(host, &format!("reload in {}", protocol(neighbour)));
    }

    fn farewell(&self, _: &Host, log: &str, neighbour: IpAddr) -> Option<String> {
        lines_with(log, &[&format!("{}: Received: Administrative shutdown", protocol(neighbour))]).pop()
    }

    fn deletions(&self, _: &Host, log: &str) -> Vec<String> {
        lines_with(log, &["<TRACE> from_", " > removed"])
    }

    fn unnumbered(&self, ours: Option<Ipv6Addr>) -> String {
        let neighbour = ours.map_or_else(
            || "neighbor range fe80::/10 as 65001; interface \"eth0\"; dynamic name \"node\";".to_owned(),
            |ours| format!("neighbor {ours}%'eth0' as 65001;"),
        );
        format!(
            "log stderr all;
router id 192.0.2.1;
protocol device {{ scan time 1; }}
protocol kernel {{ scan time 1; ipv4 {{ export all; import none; }}; }}
protocol kernel {{ scan time 1; ipv6 {{ export all; import none; }}; }}
protocol static {{ ipv4; route 198.51.100.0/24 blackhole; }}
protocol static {{ ipv6; route 2001:db8:51::/48 blackhole; }}
protocol radv {{ interface \"eth0\" {{ min ra interval 3; max ra interval 4; default lifetime 0; }}; }}
protocol bgp {{
  local as 65000;
  {neighbour}
  connect delay time 1;
  connect retry time 1;
  ipv4 {{ import all; export where source = RTS_STATIC; extended next hop on; }};
  ipv6 {{ import all; export where source = RTS_STATIC; }};
}}
"
        )
    }
}

/// The protocol of a neighbour.
fn protocol(neighbour: IpAddr) -> String {
    format!("from_{}", neighbour.to_string().replace(['.', ':'], "_"))
}

/// One path of `show route all`.
fn learned(path: &str) -> Option<Learned> {
    let field = |name: &str| path.lines().find_map(|line| line.trim().strip_prefix(name)?.strip_prefix(':').map(str::trim));
    let number = |name| field(name).map(|value| value.parse().unwrap());
    let words = |name| field(name).unwrap_or_default();
    Some(Learned {
        // BIRD shows the link-local address behind the global one.
        next_hop: field("BGP.next_hop")?.split_whitespace().next()?.parse().unwrap(),
        link_local: words("BGP.next_hop").split_whitespace().nth(1).map(|address| address.parse().unwrap()),
        as_path: numbers(words("BGP.as_path")),
        is_igp: field("BGP.origin") == Some("IGP"),
        local_preference: number("BGP.local_pref"),
        med: number("BGP.med"),
        communities: tuples::<2>(words("BGP.community")).map(|[high, low]| high << 16 | low).collect(),
        large_communities: tuples(words("BGP.large_community")).collect(),
        originator: field("BGP.originator_id").map(|identifier| identifier.parse().unwrap()),
        clusters: words("BGP.cluster_list").split_whitespace().map(|identifier| identifier.parse().unwrap()).collect(),
        only_to_customer: number("BGP.otc"),
    })
}

/// `(65001,100) (65535,0)`.
fn tuples<const N: usize>(text: &str) -> impl Iterator<Item = [u32; N]> {
    text.split('(').skip(1).map(|tuple| {
        let parts: Vec<u32> = tuple.trim_end_matches([')', ' ']).split(',').map(|part| part.trim().parse().unwrap()).collect();
        parts.try_into().unwrap()
    })
}

/// What BIRD answers. "Network not found" is an answer too, though birdc reports it as a failure.
fn ask(host: &Host, words: &str) -> String {
    let output = birdc(host, words).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() || text.contains("Network not found"), "birdc {words}: {text}{errors}");
    text
}

fn birdc(host: &Host, words: &str) -> Command {
    let mut command = Command::new("birdc");
    command.arg("-s").arg(host.path("bird.ctl")).args(words.split_whitespace());
    command
}
