// SPDX-License-Identifier: Apache-2.0
//! The table as `ipvsadm -Ln` prints it, character by character.
//!
//! Input: what the kernel shows. Output: text. Invariant: services and servers stand in the order in which `ipvsadm` sorts them.

use std::array;
use std::cmp::Ordering;
use std::fmt::{self, Display, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use crate::entry::{ServerEntry, ServiceEntry, TableEntry};
use crate::scheduler::Scheduler;
use crate::server::{ForwardingMethod, ServerAddress};
use crate::service::{AddressFamily, Netmask, Persistence, Protocol, ServiceAddress, ServiceFlags, VirtualService};
use crate::settings::Info;

/// The table with its heading.
pub fn list(info: &Info, table: &[TableEntry]) -> String {
    let (major, minor, patch) = info.version;
    let mut text = heading(format_args!("{major}.{minor}.{patch}"), info.connection_table_size);
    for (service, servers) in in_order(table) {
        // Writing to a String cannot fail.
        let _ok = writeln!(text, "{}", ServiceLine(&service.service));
        for server in servers {
            let _ok = writeln!(text, "{}", ServerLine(server));
        }
    }
    text
}

/// The three lines above the table: version and size are those of [`Info`].
pub fn heading(version: impl Display, connection_table_size: u32) -> String {
    format!(
        "IP Virtual Server version {version} (size={connection_table_size})\n\
         Prot LocalAddress:Port Scheduler Flags\n\
         \x20 -> RemoteAddress:Port           Forward Weight ActiveConn InActConn\n"
    )
}

/// Services and the servers of each, as `ipvsadm` sorts them.
pub fn in_order(table: &[TableEntry]) -> Vec<(&ServiceEntry, Vec<&ServerEntry>)> {
    let services =
        sorted(table.iter().collect(), &|one: &&TableEntry, other| order(&one.service.service.address, &other.service.service.address));
    let mut ordered = Vec::with_capacity(services.len());
    for TableEntry { service, servers } in services {
        let servers =
            sorted(servers.iter().collect(), &|one: &&ServerEntry, other| order_of_servers(&one.server.address, &other.server.address));
        ordered.push((service, servers));
    }
    ordered
}

/// The order of services.
fn order(one: &ServiceAddress, other: &ServiceAddress) -> Ordering {
    let key = |address: &ServiceAddress| match *address {
        ServiceAddress::Transport { protocol, address, port } => (0, protocol.number(), words(address), port),
        ServiceAddress::Fwmark { mark, .. } => (mark.get(), 0, [0; 4], 0),
    };
    let ((mark, protocol, address, port), (mark2, protocol2, address2, port2)) = (key(one), key(other));
    difference(mark, mark2)
        .then(one.family().cmp(&other.family()))
        .then(protocol.cmp(&protocol2))
        .then_with(|| differences(address, address2))
        .then(port.cmp(&port2))
}

fn order_of_servers(one: &ServerAddress, other: &ServerAddress) -> Ordering {
    one.family().cmp(&other.family()).then_with(|| differences(words(one.address), words(other.address))).then(one.port.cmp(&other.port))
}

fn words(address: IpAddr) -> [u32; 4] {
    match address {
        IpAddr::V4(address) => [address.to_bits(), 0, 0, 0],
        IpAddr::V6(address) => {
            array::from_fn(|at| u32::try_from(address.to_bits() >> (96 - 32 * at) & u128::from(u32::MAX)).unwrap_or_default())
        }
    }
}

fn differences(one: [u32; 4], other: [u32; 4]) -> Ordering {
    one.into_iter().zip(other).map(|(one, other)| difference(one, other)).find(|ordering| ordering.is_ne()).unwrap_or(Ordering::Equal)
}

/// `ipvsadm` compares by the sign of a 32-bit difference: 192.168.0.1 is before 10.0.0.1. That is no total order.
const fn difference(one: u32, other: u32) -> Ordering {
    match one.wrapping_sub(other).cast_signed() {
        0 => Ordering::Equal,
        i32::MIN..0 => Ordering::Less,
        1.. => Ordering::Greater,
    }
}

/// The merge sort of the C library, which gives the same result as there where the order is none.
fn sorted<T>(mut items: Vec<T>, order: &impl Fn(&T, &T) -> Ordering) -> Vec<T> {
    if items.len() < 2 {
        return items;
    }
    let upper = items.split_off(items.len() / 2);
    let (lower, upper) = (sorted(items, order), sorted(upper, order));
    let mut merged = Vec::with_capacity(lower.len() + upper.len());
    let (mut lower, mut upper) = (lower.into_iter().peekable(), upper.into_iter().peekable());
    while let (Some(one), Some(other)) = (lower.peek(), upper.peek()) {
        merged.extend(if order(one, other).is_gt() { upper.next() } else { lower.next() });
    }
    merged.extend(lower);
    merged.extend(upper);
    merged
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
            ServiceAddress::Fwmark { mark, family: AddressFamily::Ipv4 } => write!(f, "FWM  {}", mark.get().cast_signed())?,
            ServiceAddress::Fwmark { mark, family: AddressFamily::Ipv6 } => write!(f, "FWM  {} IPv6", mark.get().cast_signed())?,
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

fn write_scheduler_flags(f: &mut fmt::Formatter<'_>, scheduler: &Scheduler, flags: ServiceFlags) -> fmt::Result {
    let set: Vec<_> = scheduler_flags(scheduler, flags).collect();
    if set.is_empty() { Ok(()) } else { write!(f, " ({})", set.join(",")) }
}

/// What the scheduler is told, in the words of `ipvsadm`, which depend on the scheduler.
pub fn scheduler_flags(scheduler: &Scheduler, flags: ServiceFlags) -> impl Iterator<Item = &'static str> + use<> {
    let names = match scheduler {
        Scheduler::Sh => ["sh-fallback", "sh-port", "flag-3"],
        Scheduler::Mh => ["mh-fallback", "mh-port", "flag-3"],
        _ => ["flag-1", "flag-2", "flag-3"],
    };
    let bits = [ServiceFlags::SH_FALLBACK, ServiceFlags::SH_PORT, ServiceFlags::SCHEDULER_3];
    names.into_iter().zip(bits).filter(move |(_, bit)| flags.contains(*bit)).map(|(name, _)| name)
}

/// A server as one line of `ipvsadm -Ln`, without its end.
#[derive(Clone, Copy, Debug)]
pub struct ServerLine<'a>(pub &'a ServerEntry);

impl Display for ServerLine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ServerEntry { server, active_connections, inactive_connections, .. } = self.0;
        let name = server.address.to_string();
        let method = method_word(server.forwarding);
        write!(f, "  -> {name:<28} {method:<7} {:<6} {active_connections:<10} {inactive_connections:<10}", server.weight)
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
