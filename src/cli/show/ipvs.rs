// SPDX-License-Identifier: Apache-2.0
//! `vipherald show ipvs`: the table of IPVS with columns to the right of what `ipvsadm -Ln` prints: whose each line is, and what went through it.
//!
//! Below it are the daemons of connection synchronisation, where any run, as `ipvsadm -L --daemon` prints them.
//!
//! Invariant: each line begins with that of `ipvsadm`, character by character.

use ipvs::list::heading;

use super::super::table::printable;
use super::super::{Failure, Output, block_on, complain, print};
use super::{Daemon, PATIENCE, write};
use crate::admin;
use crate::status::{Answer, IpvsStatus, TrafficStatus, VirtualServiceStatus};

/// A line of `ipvsadm`, and our cells.
type Row = (String, Vec<String>);

/// Between two columns of ours.
const GAP: &str = "  ";

pub(super) fn show(output: Option<Output>, daemon: &Daemon) -> Result<(), Failure> {
    let asked = block_on("show", admin::fetch_ipvs(&daemon.socket(), PATIENCE))?;
    let Answer { envelope, content } = asked.map_err(|source| Failure::Daemon { verb: "show", source })?;
    complain(&envelope.warnings);
    print(&match output {
        None | Some(Output::Wide) => text(&content, output.is_some()),
        Some(form) => write(envelope, content, form)?,
    })
}

fn text(table: &IpvsStatus, wide: bool) -> String {
    let heading = heading(&table.version, table.connection_table_size);
    let mut lines: Vec<Row> = heading.lines().map(|line| (line.to_owned(), Vec::new())).collect();
    if let Some((_, cells)) = lines.last_mut() {
        cells.extend(wide.then_some(["Conns", "InPkts", "OutPkts", "InBytes", "OutBytes"]).into_iter().flatten().map(ToOwned::to_owned));
        cells.push("Owner".to_owned());
    }
    for service in &table.services {
        let owner = owner(service);
        let takes = if service.firewall_mark.is_some() && !service.foreign { format!(" ({})", service.service) } else { String::new() };
        lines.push((service.line.clone(), cells(&service.statistics, wide, format!("{owner}{takes}"))));
        lines.extend(service.real_servers.iter().map(|server| (server.line.clone(), cells(&server.statistics, wide, owner.clone()))));
    }
    let mut text = aligned(&lines);
    for daemon in &table.daemons {
        let owner = if daemon.foreign { "foreign" } else { "ours" };
        text.push_str(&format!("{}{GAP}{owner}\n", printable(&daemon.line)));
    }
    text
}

fn owner(service: &VirtualServiceStatus) -> String {
    match &service.owner {
        _ if service.foreign => "foreign".to_owned(),
        Some(owner) => printable(&owner.to_string()),
        None => "-".to_owned(),
    }
}

fn cells(statistics: &TrafficStatus, wide: bool, owner: String) -> Vec<String> {
    let TrafficStatus { connections, incoming_packets, outgoing_packets, incoming_octets, outgoing_octets } = statistics;
    let counters = [connections, incoming_packets, outgoing_packets, incoming_octets, outgoing_octets];
    counters.into_iter().filter(|_| wide).map(ToString::to_string).chain([owner]).collect()
}

/// Cells in columns right of all lines that have any.
fn aligned(lines: &[Row]) -> String {
    let beside = || lines.iter().filter(|(_, cells)| !cells.is_empty());
    let left = beside().map(|(line, _)| line.len()).max().unwrap_or(0);
    let columns = beside().map(|(_, cells)| cells.len()).max().unwrap_or(0);
    let width = |column: usize| beside().filter_map(|(_, cells)| cells.get(column)).map(String::len).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for (line, cells) in lines {
        if cells.is_empty() {
            text.push_str(line);
        } else {
            let padded = cells.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
            text.push_str(format!("{line:<left$}{GAP}{}", padded.collect::<Vec<_>>().join(GAP)).trim_end());
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, SocketAddr};
    use std::num::NonZeroU32;

    use ::ipvs::{
        AddressFamily, ForwardingMethod, Info, Netmask, Persistence, Protocol, RealServer, Scheduler, ServerEntry, ServiceAddress,
        ServiceEntry, ServiceFlags, Statistics, SyncDaemon, SyncRole, TableEntry, VirtualService, Weight,
    };

    use super::*;
    use crate::api::{Kind, ObjectRef};
    use crate::status::{Claim, ipvs_status};

    const INFO: Info = Info { version: (1, 2, 1), connection_table_size: 4096 };

    fn entry(service: VirtualService, servers: &[&str]) -> TableEntry {
        let statistics = Statistics { connections: 12, incoming_packets: 345, incoming_octets: 67_890, ..Statistics::default() };
        let server = |text: &&str| ServerEntry {
            server: RealServer::new(text.parse().unwrap(), ForwardingMethod::Masquerade, Weight(1)),
            active_connections: 3,
            inactive_connections: 4,
            persistent_connections: 0,
            statistics,
            unknown: Vec::new(),
        };
        let service = ServiceEntry { service, statistics, unknown: Vec::new() };
        TableEntry { service, servers: servers.iter().map(server).collect() }
    }

    fn transport(protocol: Protocol, address: &str, scheduler: Scheduler) -> VirtualService {
        VirtualService::new(ServiceAddress::transport(protocol, address.parse::<SocketAddr>().unwrap()), scheduler)
    }

    /// All that differs from line to line: families, marks, flags, persistence, owners.
    fn table() -> Vec<TableEntry> {
        let persistent =
            |service: VirtualService, netmask| VirtualService { persistence: Some(Persistence { timeout: 300, netmask }), ..service };
        let hashed = VirtualService {
            flags: ServiceFlags::MH_PORT | ServiceFlags::MH_FALLBACK,
            ..transport(Protocol::TCP, "10.0.0.7:80", Scheduler::Mh)
        };
        let once = VirtualService { flags: ServiceFlags::ONE_PACKET, ..transport(Protocol::UDP, "[2001:db8::7]:162", Scheduler::Rr) };
        let mark = ServiceAddress::Fwmark { mark: NonZeroU32::new(64).unwrap(), family: AddressFamily::Ipv4 };
        vec![
            entry(hashed, &["192.168.1.2:8080", "192.168.1.1:8080"]),
            entry(once, &["[2001:db8:1::1]:162"]),
            entry(persistent(VirtualService::new(mark, Scheduler::Lc), Netmask::Ipv4([255, 255, 255, 0].into())), &["192.168.1.1:0"]),
            entry(transport(Protocol::TCP, "10.9.9.9:1", Scheduler::Wlc), &[]),
            entry(transport(Protocol::TCP, "10.0.0.8:80", Scheduler::Rr), &[]),
        ]
    }

    fn status() -> IpvsStatus {
        let owner = ObjectRef { kind: Kind::EricIngress, namespace: "default".to_owned(), name: "web".to_owned() };
        let foreign: IpAddr = "10.9.9.9".parse().unwrap();
        let leaving: IpAddr = "10.0.0.8".parse().unwrap();
        let claim = |address: &ServiceAddress| match address {
            ServiceAddress::Transport { address, .. } if *address == foreign => Claim { foreign: true, ..Claim::default() },
            ServiceAddress::Transport { address, .. } if *address == leaving => Claim::default(),
            ServiceAddress::Transport { .. } => Claim { owner: Some(owner.clone()), ..Claim::default() },
            ServiceAddress::Fwmark { .. } => {
                Claim { owner: Some(owner.clone()), takes: Some("TCP 10.0.0.7:20000-20999".to_owned()), foreign: false }
            }
        };
        ipvs_status(&INFO, &table(), claim, &[])
    }

    #[test]
    fn daemons_stand_below_the_table_and_say_whose_they_are() {
        let daemon = |role| SyncDaemon {
            role,
            interface: "eth1".to_owned(),
            sync_id: 7,
            max_length: Some(1472),
            group: Some("224.0.0.81".parse().unwrap()),
            port: Some(8848),
            ttl: Some(1),
        };
        let daemons = [(daemon(SyncRole::Master), true), (daemon(SyncRole::Backup), false)];
        let shown = text(&ipvs_status(&INFO, &[], |_| Claim::default(), &daemons), false);
        let last: Vec<&str> = shown.lines().skip(3).collect();
        let settings = "(mcast=eth1, syncid=7, maxlen=1472, group=224.0.0.81, port=8848, ttl=1)";
        assert_eq!(last, [format!("master sync daemon {settings}  ours"), format!("backup sync daemon {settings}  foreign")]);
    }

    #[test]
    fn each_line_begins_with_that_of_ipvsadm() {
        let theirs = ipvs::list::list(&INFO, &table());
        for wide in [false, true] {
            let ours = text(&status(), wide);
            assert_eq!(ours.lines().count(), theirs.lines().count());
            for (ours, theirs) in ours.lines().zip(theirs.lines()) {
                assert!(ours.starts_with(theirs), "{ours:?} does not begin with {theirs:?}");
            }
        }
    }

    #[test]
    fn the_document_shows_real_output() {
        let narrow = text(&status(), false);
        let document = include_str!("../../../docs/show.md");
        assert!(document.contains(&format!("```text\n{narrow}```")), "docs/show.md lacks:\n{narrow}");
        insta::assert_snapshot!(text(&status(), true));
    }

    #[test]
    fn documents_have_typed_fields() {
        insta::assert_snapshot!(serde_saphyr::to_string(&status()).unwrap());
    }
}
