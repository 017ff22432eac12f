// SPDX-License-Identifier: Apache-2.0
//! Entries of the kernel's table as it has them, and as we call them: where a virtual service is, how it chooses, and its real servers.
//!
//! Invariant: an entry that we would never make has no name here, or no mode, or no forwarding method; it is never taken for one that we would make.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU32;
use std::time::Duration;

use ::ipvs::{
    AddressFamily, Encapsulation, EncapsulationFlags, ForwardingMethod as Forwarding, Netmask, Persistence, ServerEntry, ServiceAddress,
    ServiceFlags, TableEntry, VirtualService,
};

use super::Marks;
use crate::api::{ForwardingMethod, PortRange, Protocol, Scheduler};
use crate::desired::{Scheduling, ServiceKey};
use crate::observed::{ObservedRealServer, ObservedVirtualService, RetiredRange, ServiceMode};

/// Where the kernel has the service; a range of ports by its mark.
pub(super) fn address(key: ServiceKey, marks: &Marks) -> Option<ServiceAddress> {
    if key.ports.count() == 1 {
        return Some(ServiceAddress::transport(protocol(key.protocol), SocketAddr::new(key.vip, key.ports.start())));
    }
    let mark = NonZeroU32::new(*marks.get(&key)?)?;
    Some(ServiceAddress::Fwmark { mark, family: AddressFamily::of(key.vip) })
}

/// Where the kernel has one that has no ports any more.
pub(crate) fn retired_address(range: RetiredRange) -> Option<ServiceAddress> {
    Some(ServiceAddress::Fwmark { mark: NonZeroU32::new(range.mark)?, family: AddressFamily::of(range.vip) })
}

/// Which range of ports each mark stands for; one of IPv4 and one of IPv6 may share it.
pub(crate) fn by_mark(marks: &Marks) -> BTreeMap<(u32, bool), ServiceKey> {
    marks.iter().map(|(key, mark)| ((*mark, key.vip.is_ipv4()), *key)).collect()
}

/// What a service takes in, as we call it; `None` for what we would never make.
pub(crate) fn service_key(address: &ServiceAddress, by_mark: &BTreeMap<(u32, bool), ServiceKey>) -> Option<ServiceKey> {
    match *address {
        ServiceAddress::Transport { protocol, address, port } => {
            let protocol = *Protocol::ALL.iter().find(|known| self::protocol(**known) == protocol)?;
            Some(ServiceKey { vip: address, protocol, ports: PortRange::new(port.into(), port.into()).ok()? })
        }
        ServiceAddress::Fwmark { mark, family } => by_mark.get(&(mark.get(), family == AddressFamily::Ipv4)).copied(),
    }
}

/// The mark of a service that is not ours.
pub(super) fn foreign_mark(address: &ServiceAddress, by_mark: &BTreeMap<(u32, bool), ServiceKey>) -> Option<u32> {
    match *address {
        ServiceAddress::Fwmark { mark, .. } => Some(mark.get()).filter(|_| service_key(address, by_mark).is_none()),
        ServiceAddress::Transport { .. } => None,
    }
}

const fn protocol(protocol: Protocol) -> ::ipvs::Protocol {
    match protocol {
        Protocol::Tcp => ::ipvs::Protocol::TCP,
        Protocol::Udp => ::ipvs::Protocol::UDP,
        Protocol::Sctp => ::ipvs::Protocol::SCTP,
    }
}

/// A service with these settings.
pub(super) fn service(address: ServiceAddress, mode: ServiceMode) -> VirtualService {
    let Scheduling { scheduler, by_port, persistence } = mode.scheduling;
    let (port, fallback) = match scheduler {
        Scheduler::MaglevHashing => (ServiceFlags::MH_PORT, ServiceFlags::MH_FALLBACK),
        Scheduler::SourceHashing => (ServiceFlags::SH_PORT, ServiceFlags::SH_FALLBACK),
        _ => (ServiceFlags::NONE, ServiceFlags::NONE),
    };
    let flag = |on, flag| if on { flag } else { ServiceFlags::NONE };
    VirtualService {
        flags: flag(by_port, port) | flag(mode.fallback, fallback),
        persistence: persistence.map(|time| Persistence {
            timeout: u32::try_from(time.as_secs()).unwrap_or(u32::MAX),
            netmask: Netmask::host(address.family()),
        }),
        ..VirtualService::new(address, ::ipvs::Scheduler::named(scheduler.word()))
    }
}

pub(super) fn observed(entry: &TableEntry, gue_port: u16) -> ObservedVirtualService {
    let shown = &entry.service.service;
    let scheduler = Scheduler::ALL.iter().find(|scheduler| scheduler.word() == shown.scheduler.name());
    let modes = scheduler.into_iter().flat_map(|scheduler| {
        let persistence = shown.persistence.map(|persistence| Duration::from_secs(persistence.timeout.into()));
        let all = [(false, false), (false, true), (true, false), (true, true)];
        all.map(|(by_port, fallback)| ServiceMode { scheduling: Scheduling { scheduler: *scheduler, by_port, persistence }, fallback })
    });
    // One that no mode of ours would make is none of them.
    let mode = modes.into_iter().find(|mode| service(shown.address, *mode) == *shown);
    ObservedVirtualService { mode, real_servers: entry.servers.iter().map(|server| real_server(server, gue_port)).collect() }
}

fn real_server(entry: &ServerEntry, gue_port: u16) -> ObservedRealServer {
    let server = &entry.server;
    let plain = server.thresholds == ::ipvs::Thresholds::default();
    let forwarding = match server.forwarding {
        // The kernel says so of a target that is one of this node's own addresses.
        Forwarding::Masquerade | Forwarding::LocalNode => Some(ForwardingMethod::Masquerade),
        Forwarding::DirectRouting => Some(ForwardingMethod::DirectRouting),
        Forwarding::Tunnel(Encapsulation::Ipip) => Some(ForwardingMethod::Tunnel),
        Forwarding::Tunnel(Encapsulation::Gue { port, flags: EncapsulationFlags::NO_CHECKSUM }) if port == gue_port => {
            Some(ForwardingMethod::Gue)
        }
        Forwarding::Tunnel(_) | Forwarding::Bypass | Forwarding::Other(_) => None,
    };
    let address: IpAddr = server.address.address;
    ObservedRealServer {
        address: SocketAddr::new(address, server.address.port),
        forwarding: forwarding.filter(|_| plain),
        weight: server.weight,
        connections: u64::from(entry.active_connections) + u64::from(entry.inactive_connections),
    }
}
