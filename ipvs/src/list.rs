// SPDX-License-Identifier: Apache-2.0
//! The table as `ipvsadm -Ln` prints it, character by character.
//!
//! Input: what the kernel shows. Output: text. Invariant: services and servers are sorted as there, whatever order they come in; a server's name that is too
//! long is cut to its column.

use std::fmt::{self, Display, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use crate::entry::{ServerEntry, TableEntry};
use crate::scheduler::Scheduler;
use crate::server::ForwardingMethod;
use crate::service::{AddressFamily, Netmask, Persistence, Protocol, ServiceAddress, ServiceFlags, VirtualService};
use crate::settings::Info;

/// Width of a server's name.
const NAME: usize = 28;

/// The table with its heading.
pub fn list(info: &Info, table: &[TableEntry]) -> String {
    let (major, minor, patch) = info.version;
    let mut text = format!(
        "IP Virtual Server version {major}.{minor}.{patch} (size={})\n\
         Prot LocalAddress:Port Scheduler Flags\n\
         \x20 -> RemoteAddress:Port           Forward Weight ActiveConn InActConn\n",
        info.connection_table_size
    );
    let mut sorted: Vec<_> = table.iter().collect();
    sorted.sort_by_key(|entry| order(&entry.service.service.address));
    for TableEntry { service, servers } in sorted {
        // Writing to a String cannot fail.
        let _ok = writeln!(text, "{}", ServiceLine(&service.service));
        let mut servers: Vec<_> = servers.iter().collect();
        servers.sort_by_key(|entry| (entry.server.address.family(), entry.server.address.address, entry.server.address.port));
        for server in servers {
            let _ok = writeln!(text, "{}", ServerLine(server));
        }
    }
    text
}

/// Services of an address before those of a mark.
fn order(address: &ServiceAddress) -> (u32, AddressFamily, u16, Option<IpAddr>, u16) {
    match *address {
        ServiceAddress::Transport { protocol, address: ip, port } => (0, address.family(), protocol.number(), Some(ip), port),
        ServiceAddress::Fwmark { mark, family } => (mark.get(), family, 0, None, 0),
    }
}

/// A service as one line of `ipvsadm -Ln`, without its end.
#[derive(Clone, Copy, Debug)]
pub struct ServiceLine<'a>(pub &'a VirtualService);

impl Display for ServiceLine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let VirtualService { address, scheduler, flags, persistence, persistence_engine } = self.0;
        match *address {
            ServiceAddress::Transport { protocol: Protocol::SCTP, address, port } => write!(f, "SCTP {}", SocketAddr::new(address, port))?,
            ServiceAddress::Transport { protocol, address, port } => write!(f, "{protocol}  {}", SocketAddr::new(address, port))?,
            ServiceAddress::Fwmark { mark, family: AddressFamily::Ipv4 } => write!(f, "FWM  {mark}")?,
            ServiceAddress::Fwmark { mark, family: AddressFamily::Ipv6 } => write!(f, "FWM  {mark} IPv6")?,
        }
        write!(f, " {scheduler}")?;
        write_scheduler_flags(f, scheduler, *flags)?;
        if let Some(Persistence { timeout, netmask }) = persistence {
            write!(f, " persistent {timeout}")?;
            match netmask {
                Netmask::Ipv4(Ipv4Addr::BROADCAST) | Netmask::Ipv6(128) => {}
                Netmask::Ipv4(mask) => write!(f, " mask {mask}")?,
                Netmask::Ipv6(length) => write!(f, " mask {length}")?,
            }
        }
        if let Some(engine) = persistence_engine {
            write!(f, " pe {engine}")?;
        }
        if flags.contains(ServiceFlags::ONE_PACKET) { f.write_str(" ops") } else { Ok(()) }
    }
}

/// Their names depend on the scheduler.
fn write_scheduler_flags(f: &mut fmt::Formatter<'_>, scheduler: &Scheduler, flags: ServiceFlags) -> fmt::Result {
    let names = match scheduler {
        Scheduler::Sh => ["sh-fallback", "sh-port", "flag-3"],
        Scheduler::Mh => ["mh-fallback", "mh-port", "flag-3"],
        _ => ["flag-1", "flag-2", "flag-3"],
    };
    let bits = [ServiceFlags::SH_FALLBACK, ServiceFlags::SH_PORT, ServiceFlags::SCHEDULER_3];
    let set: Vec<_> = names.into_iter().zip(bits).filter(|(_, bit)| flags.contains(*bit)).map(|(name, _)| name).collect();
    if set.is_empty() { Ok(()) } else { write!(f, " ({})", set.join(",")) }
}

/// A server as one line of `ipvsadm -Ln`, without its end.
#[derive(Clone, Copy, Debug)]
pub struct ServerLine<'a>(pub &'a ServerEntry);

impl Display for ServerLine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ServerEntry { server, active_connections, inactive_connections, .. } = self.0;
        let name = server.address.to_string();
        let method = method_word(server.forwarding);
        write!(f, "  -> {name:<NAME$.NAME$} {method:<7} {:<6} {active_connections:<10} {inactive_connections:<10}", server.weight)
    }
}

const fn method_word(forwarding: ForwardingMethod) -> &'static str {
    match forwarding {
        ForwardingMethod::Masquerade => "Masq",
        ForwardingMethod::LocalNode => "Local",
        ForwardingMethod::Tunnel(_) => "Tunnel",
        ForwardingMethod::DirectRouting => "Route",
        ForwardingMethod::Bypass => "Bypass",
        ForwardingMethod::Other(_) => "?",
    }
}
