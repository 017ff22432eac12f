// SPDX-License-Identifier: Apache-2.0
//! What the attribute `IPVS_CMD_ATTR_DEST` holds: the key of a real server within its service, its settings, and in what the kernel shows its
//! connections and statistics.

use super::attribute::{Raw, attributes, nest, put, put_address, put_family, put_unknown};
use super::{DecodeError, statistics};
use crate::entry::{Attribute, ServerEntry, Statistics};
use crate::server::{Encapsulation, EncapsulationFlags, ForwardingMethod, RealServer, ServerAddress, Thresholds, Weight};
use crate::service::AddressFamily;

const ADDR: u16 = 1;
const PORT: u16 = 2;
const FWD_METHOD: u16 = 3;
const WEIGHT: u16 = 4;
const U_THRESH: u16 = 5;
const L_THRESH: u16 = 6;
const ACTIVE_CONNS: u16 = 7;
const INACT_CONNS: u16 = 8;
const PERSIST_CONNS: u16 = 9;
const STATS: u16 = 10;
const ADDR_FAMILY: u16 = 11;
const STATS64: u16 = 12;
const TUN_TYPE: u16 = 13;
const TUN_PORT: u16 = 14;
const TUN_FLAGS: u16 = 15;

/// Writes the key.
pub(super) fn encode_address(buffer: &mut Vec<u8>, server: &ServerAddress) {
    put_family(buffer, ADDR_FAMILY, server.family());
    put_address(buffer, ADDR, server.address);
    put(buffer, PORT, &server.port.to_be_bytes());
}

/// Writes the key and the settings.
pub(super) fn encode(buffer: &mut Vec<u8>, server: &RealServer) {
    encode_address(buffer, &server.address);
    let (method, encapsulation) = method_number(server.forwarding);
    put(buffer, FWD_METHOD, &method.to_ne_bytes());
    put(buffer, WEIGHT, &server.weight.0.to_ne_bytes());
    let (kind, port, EncapsulationFlags(flags)) = encapsulation_numbers(encapsulation);
    put(buffer, TUN_TYPE, &[kind]);
    put(buffer, TUN_PORT, &port.to_be_bytes());
    put(buffer, TUN_FLAGS, &flags.to_ne_bytes());
    put(buffer, U_THRESH, &server.thresholds.upper.to_ne_bytes());
    put(buffer, L_THRESH, &server.thresholds.lower.to_ne_bytes());
}

/// Writes what the kernel shows.
pub(super) fn encode_entry(buffer: &mut Vec<u8>, entry: &ServerEntry) {
    encode(buffer, &entry.server);
    put(buffer, ACTIVE_CONNS, &entry.active_connections.to_ne_bytes());
    put(buffer, INACT_CONNS, &entry.inactive_connections.to_ne_bytes());
    put(buffer, PERSIST_CONNS, &entry.persistent_connections.to_ne_bytes());
    nest(buffer, STATS64, |buffer| statistics::encode(buffer, &entry.statistics));
    put_unknown(buffer, &entry.unknown);
}

/// Reads what the kernel shows.
pub(super) fn decode(nested: Raw<'_>) -> Result<ServerEntry, DecodeError> {
    let mut parts = Parts::default();
    for attribute in attributes(nested.value()) {
        parts.take(attribute?)?;
    }
    parts.into_entry()
}

/// The attributes of one server, in whatever order they come.
#[derive(Default)]
struct Parts<'a> {
    family: Option<AddressFamily>,
    address: Option<Raw<'a>>,
    port: Option<u16>,
    method: Option<u32>,
    weight: Option<u32>,
    thresholds: Thresholds,
    encapsulation: (u8, u16, EncapsulationFlags),
    active: u32,
    inactive: u32,
    persistent: u32,
    statistics: Option<Statistics>,
    statistics64: Option<Statistics>,
    unknown: Vec<Attribute>,
}

impl<'a> Parts<'a> {
    fn take(&mut self, attribute: Raw<'a>) -> Result<(), DecodeError> {
        match attribute.kind() {
            ADDR => self.address = Some(attribute),
            PORT => self.port = Some(attribute.u16_be("server port")?),
            FWD_METHOD => self.method = Some(attribute.u32("forwarding method")?),
            WEIGHT => self.weight = Some(attribute.u32("weight")?),
            U_THRESH => self.thresholds.upper = attribute.u32("upper threshold")?,
            L_THRESH => self.thresholds.lower = attribute.u32("lower threshold")?,
            ACTIVE_CONNS => self.active = attribute.u32("active connections")?,
            INACT_CONNS => self.inactive = attribute.u32("inactive connections")?,
            PERSIST_CONNS => self.persistent = attribute.u32("persistent connections")?,
            ADDR_FAMILY => self.family = Some(attribute.family("server address family")?),
            TUN_TYPE => self.encapsulation.0 = attribute.u8("tunnel type")?,
            TUN_PORT => self.encapsulation.1 = attribute.u16_be("tunnel port")?,
            TUN_FLAGS => self.encapsulation.2 = EncapsulationFlags(attribute.u16("tunnel flags")?),
            STATS => self.statistics = Some(statistics::decode(attribute)?),
            STATS64 => self.statistics64 = Some(statistics::decode(attribute)?),
            _ => self.unknown.push(attribute.unknown()),
        }
        Ok(())
    }

    fn into_entry(self) -> Result<ServerEntry, DecodeError> {
        let family = self.family.ok_or(DecodeError::Missing("server address family"))?;
        let address = self.address.ok_or(DecodeError::Missing("server address"))?.address(family, "server address")?;
        let port = self.port.ok_or(DecodeError::Missing("server port"))?;
        let method = self.method.ok_or(DecodeError::Missing("forwarding method"))?;
        Ok(ServerEntry {
            server: RealServer {
                address: ServerAddress { address, port },
                forwarding: forwarding(method, self.encapsulation),
                weight: Weight(self.weight.ok_or(DecodeError::Missing("weight"))?),
                thresholds: self.thresholds,
            },
            active_connections: self.active,
            inactive_connections: self.inactive,
            persistent_connections: self.persistent,
            statistics: self.statistics64.or(self.statistics).unwrap_or_default(),
            unknown: self.unknown,
        })
    }
}

/// `IP_VS_CONN_F_*` of the method, and how it wraps packets.
fn method_number(forwarding: ForwardingMethod) -> (u32, Encapsulation) {
    match forwarding {
        ForwardingMethod::Masquerade => (0, Encapsulation::Ipip),
        ForwardingMethod::LocalNode => (1, Encapsulation::Ipip),
        ForwardingMethod::Tunnel(encapsulation) => (2, encapsulation),
        ForwardingMethod::DirectRouting => (3, Encapsulation::Ipip),
        ForwardingMethod::Bypass => (4, Encapsulation::Ipip),
        ForwardingMethod::Other(number) => (number.into(), Encapsulation::Ipip),
    }
}

/// The method is in the lowest three bits.
const fn forwarding(number: u32, (kind, port, flags): (u8, u16, EncapsulationFlags)) -> ForwardingMethod {
    match number & 7 {
        0 => ForwardingMethod::Masquerade,
        1 => ForwardingMethod::LocalNode,
        2 => ForwardingMethod::Tunnel(match kind {
            0 => Encapsulation::Ipip,
            1 => Encapsulation::Gue { port, flags },
            2 => Encapsulation::Gre { flags },
            kind => Encapsulation::Other { kind, port, flags },
        }),
        3 => ForwardingMethod::DirectRouting,
        4 => ForwardingMethod::Bypass,
        other => ForwardingMethod::Other(other.to_le_bytes()[0]),
    }
}

const fn encapsulation_numbers(encapsulation: Encapsulation) -> (u8, u16, EncapsulationFlags) {
    match encapsulation {
        Encapsulation::Ipip => (0, 0, EncapsulationFlags::NO_CHECKSUM),
        Encapsulation::Gue { port, flags } => (1, port, flags),
        Encapsulation::Gre { flags } => (2, 0, flags),
        Encapsulation::Other { kind, port, flags } => (kind, port, flags),
    }
}
