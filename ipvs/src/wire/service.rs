// SPDX-License-Identifier: Apache-2.0
//! What the attribute `IPVS_CMD_ATTR_SERVICE` holds: the key of a service, its settings, and in what the kernel shows its statistics.

use std::net::Ipv4Addr;
use std::num::NonZeroU32;

use super::attribute::{Raw, attributes, nest, put, put_address, put_family, put_text, put_unknown};
use super::{DecodeError, statistics};
use crate::entry::{ServiceEntry, Statistics};
use crate::scheduler::Scheduler;
use crate::service::{AddressFamily, Netmask, Persistence, Protocol, ServiceAddress, ServiceFlags, VirtualService};

const AF: u16 = 1;
const PROTOCOL: u16 = 2;
const ADDR: u16 = 3;
const PORT: u16 = 4;
const FWMARK: u16 = 5;
const SCHED_NAME: u16 = 6;
const FLAGS: u16 = 7;
const TIMEOUT: u16 = 8;
const NETMASK: u16 = 9;
const STATS: u16 = 10;
const PE_NAME: u16 = 11;
const STATS64: u16 = 12;

/// `IP_VS_SVC_F_PERSISTENT`
const PERSISTENT: u32 = 0x0001;

/// Writes the key.
pub(super) fn encode_address(buffer: &mut Vec<u8>, address: &ServiceAddress) {
    put_family(buffer, AF, address.family());
    match address {
        ServiceAddress::Fwmark { mark, .. } => put(buffer, FWMARK, &mark.get().to_ne_bytes()),
        ServiceAddress::Transport { protocol, address, port } => {
            put(buffer, PROTOCOL, &protocol.number().to_ne_bytes());
            put_address(buffer, ADDR, *address);
            put(buffer, PORT, &port.to_be_bytes());
        }
    }
}

/// Writes the key and the settings. The mask of the flags says that all of them are meant.
pub(super) fn encode(buffer: &mut Vec<u8>, service: &VirtualService) {
    let VirtualService { address, scheduler, flags, persistence, persistence_engine } = service;
    encode_address(buffer, address);
    put_text(buffer, SCHED_NAME, scheduler.name());
    if let Some(engine) = persistence_engine {
        put_text(buffer, PE_NAME, engine);
    }
    let flags = flags.bits() | if persistence.is_some() { PERSISTENT } else { 0 };
    put(buffer, FLAGS, &[flags.to_ne_bytes(), u32::MAX.to_ne_bytes()].concat());
    let Persistence { timeout, netmask } =
        persistence.unwrap_or_else(|| Persistence { timeout: 0, netmask: Netmask::host(address.family()) });
    put(buffer, TIMEOUT, &timeout.to_ne_bytes());
    let netmask = match netmask {
        Netmask::Ipv4(mask) => mask.octets(),
        Netmask::Ipv6(length) => length.to_ne_bytes(),
    };
    put(buffer, NETMASK, &netmask);
}

/// Writes what the kernel shows.
pub(super) fn encode_entry(buffer: &mut Vec<u8>, entry: &ServiceEntry) {
    encode(buffer, &entry.service);
    nest(buffer, STATS64, |buffer| statistics::encode(buffer, &entry.statistics));
    put_unknown(buffer, &entry.unknown);
}

/// Reads what the kernel shows.
pub(super) fn decode(nested: Raw<'_>) -> Result<ServiceEntry, DecodeError> {
    let mut parts = Parts::default();
    for attribute in attributes(nested.value()) {
        parts.take(attribute?)?;
    }
    parts.into_entry()
}

/// The attributes of one service, in whatever order they come.
#[derive(Default)]
struct Parts<'a> {
    family: Option<AddressFamily>,
    protocol: Option<Protocol>,
    address: Option<Raw<'a>>,
    port: Option<u16>,
    mark: Option<NonZeroU32>,
    scheduler: Option<Scheduler>,
    flags: u32,
    timeout: u32,
    netmask: Option<[u8; 4]>,
    engine: Option<String>,
    statistics: Option<Statistics>,
    statistics64: Option<Statistics>,
    unknown: Vec<crate::entry::Attribute>,
}

impl<'a> Parts<'a> {
    fn take(&mut self, attribute: Raw<'a>) -> Result<(), DecodeError> {
        match attribute.kind() {
            AF => self.family = Some(attribute.family("service address family")?),
            PROTOCOL => self.protocol = Some(Protocol::from_number(attribute.u16("service protocol")?)),
            ADDR => self.address = Some(attribute),
            PORT => self.port = Some(attribute.u16_be("service port")?),
            FWMARK => self.mark = NonZeroU32::new(attribute.u32("fwmark")?),
            SCHED_NAME => self.scheduler = Some(Scheduler::named(attribute.text("scheduler")?)),
            FLAGS => {
                let [a, b, c, d, ..] = attribute.exactly::<8>("service flags")?;
                self.flags = u32::from_ne_bytes([a, b, c, d]);
            }
            TIMEOUT => self.timeout = attribute.u32("persistence timeout")?,
            NETMASK => self.netmask = Some(attribute.exactly("persistence netmask")?),
            PE_NAME => self.engine = Some(attribute.text("persistence engine")?.to_owned()),
            STATS => self.statistics = Some(statistics::decode(attribute)?),
            STATS64 => self.statistics64 = Some(statistics::decode(attribute)?),
            _ => self.unknown.push(attribute.unknown()),
        }
        Ok(())
    }

    fn into_entry(self) -> Result<ServiceEntry, DecodeError> {
        let family = self.family.ok_or(DecodeError::Missing("service address family"))?;
        let address = match self.mark {
            Some(mark) => ServiceAddress::Fwmark { mark, family },
            None => ServiceAddress::Transport {
                protocol: self.protocol.ok_or(DecodeError::Missing("service protocol"))?,
                address: self.address.ok_or(DecodeError::Missing("service address"))?.address(family, "service address")?,
                port: self.port.ok_or(DecodeError::Missing("service port"))?,
            },
        };
        let persistence =
            (self.flags & PERSISTENT != 0).then(|| Persistence { timeout: self.timeout, netmask: netmask(address, self.netmask) });
        Ok(ServiceEntry {
            service: VirtualService {
                address,
                scheduler: self.scheduler.ok_or(DecodeError::Missing("scheduler"))?,
                flags: ServiceFlags::from_bits(self.flags),
                persistence,
                persistence_engine: self.engine.filter(|engine| !engine.is_empty()),
            },
            statistics: self.statistics64.or(self.statistics).unwrap_or_default(),
            unknown: self.unknown,
        })
    }
}

fn netmask(address: ServiceAddress, octets: Option<[u8; 4]>) -> Netmask {
    match (address.family(), octets) {
        (AddressFamily::Ipv4, Some(octets)) => Netmask::Ipv4(Ipv4Addr::from(octets)),
        (AddressFamily::Ipv6, Some(octets)) => Netmask::Ipv6(u32::from_ne_bytes(octets)),
        (family, None) => Netmask::host(family),
    }
}
