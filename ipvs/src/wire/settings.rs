// SPDX-License-Identifier: Apache-2.0
//! Timeouts, version and synchronisation daemons.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::DecodeError;
use super::attribute::{Raw, attributes, put, put_text};
use crate::settings::{Info, SyncDaemon, SyncRole, Timeouts};

const TIMEOUT_TCP: u16 = 4;
const TIMEOUT_TCP_FIN: u16 = 5;
const TIMEOUT_UDP: u16 = 6;

const INFO_VERSION: u16 = 1;
const INFO_CONN_TAB_SIZE: u16 = 2;

const DAEMON_STATE: u16 = 1;
const DAEMON_MCAST_IFN: u16 = 2;
const DAEMON_SYNC_ID: u16 = 3;
const DAEMON_SYNC_MAXLEN: u16 = 4;
const DAEMON_MCAST_GROUP: u16 = 5;
const DAEMON_MCAST_GROUP6: u16 = 6;
const DAEMON_MCAST_PORT: u16 = 7;
const DAEMON_MCAST_TTL: u16 = 8;

/// Writes attributes of the first level.
pub(super) fn encode_timeouts(buffer: &mut Vec<u8>, timeouts: &Timeouts) {
    put(buffer, TIMEOUT_TCP, &timeouts.tcp.to_ne_bytes());
    put(buffer, TIMEOUT_TCP_FIN, &timeouts.tcp_fin.to_ne_bytes());
    put(buffer, TIMEOUT_UDP, &timeouts.udp.to_ne_bytes());
}

/// Reads attributes of the first level. What the kernel leaves out, for lack of the protocol, is 0.
pub(super) fn decode_timeouts(octets: &[u8]) -> Result<Timeouts, DecodeError> {
    let mut timeouts = Timeouts::default();
    for attribute in attributes(octets) {
        let attribute = attribute?;
        match attribute.kind() {
            TIMEOUT_TCP => timeouts.tcp = attribute.u32("TCP timeout")?,
            TIMEOUT_TCP_FIN => timeouts.tcp_fin = attribute.u32("TCP FIN timeout")?,
            TIMEOUT_UDP => timeouts.udp = attribute.u32("UDP timeout")?,
            _ => {}
        }
    }
    Ok(timeouts)
}

/// Writes attributes of the first level.
pub(super) fn encode_info(buffer: &mut Vec<u8>, info: &Info) {
    let (major, minor, patch) = info.version;
    put(buffer, INFO_VERSION, &u32::from_be_bytes([0, major, minor, patch]).to_ne_bytes());
    put(buffer, INFO_CONN_TAB_SIZE, &info.connection_table_size.to_ne_bytes());
}

/// Reads attributes of the first level.
pub(super) fn decode_info(octets: &[u8]) -> Result<Info, DecodeError> {
    let (mut version, mut size) = (None, None);
    for attribute in attributes(octets) {
        let attribute = attribute?;
        match attribute.kind() {
            INFO_VERSION => version = Some(attribute.u32("version")?),
            INFO_CONN_TAB_SIZE => size = Some(attribute.u32("connection table size")?),
            _ => {}
        }
    }
    let [_, major, minor, patch] = version.ok_or(DecodeError::Missing("version"))?.to_be_bytes();
    let connection_table_size = size.ok_or(DecodeError::Missing("connection table size"))?;
    Ok(Info { version: (major, minor, patch), connection_table_size })
}

/// Writes what `IPVS_CMD_ATTR_DAEMON` holds.
pub(super) fn encode_daemon(buffer: &mut Vec<u8>, daemon: &SyncDaemon) {
    encode_role(buffer, daemon.role);
    put_text(buffer, DAEMON_MCAST_IFN, &daemon.interface);
    put(buffer, DAEMON_SYNC_ID, &daemon.sync_id.to_ne_bytes());
    if let Some(length) = daemon.max_length {
        put(buffer, DAEMON_SYNC_MAXLEN, &length.to_ne_bytes());
    }
    if let Some(port) = daemon.port {
        put(buffer, DAEMON_MCAST_PORT, &port.to_ne_bytes());
    }
    if let Some(ttl) = daemon.ttl {
        put(buffer, DAEMON_MCAST_TTL, &[ttl]);
    }
    match daemon.group {
        Some(IpAddr::V4(group)) => put(buffer, DAEMON_MCAST_GROUP, &group.octets()),
        Some(IpAddr::V6(group)) => put(buffer, DAEMON_MCAST_GROUP6, &group.octets()),
        None => {}
    }
}

/// Writes the key of a daemon.
pub(super) fn encode_role(buffer: &mut Vec<u8>, role: SyncRole) {
    let state: u32 = match role {
        SyncRole::Master => 1,
        SyncRole::Backup => 2,
    };
    put(buffer, DAEMON_STATE, &state.to_ne_bytes());
}

/// Reads what `IPVS_CMD_ATTR_DAEMON` holds.
pub(super) fn decode_daemon(nested: Raw<'_>) -> Result<SyncDaemon, DecodeError> {
    let (mut role, mut interface, mut sync_id) = (None, None, 0);
    let (mut max_length, mut group, mut port, mut ttl) = (None, None, None, None);
    for attribute in attributes(nested.value()) {
        let attribute = attribute?;
        match attribute.kind() {
            DAEMON_STATE => role = Some(decode_role(attribute)?),
            DAEMON_MCAST_IFN => interface = Some(attribute.text("multicast interface")?.to_owned()),
            DAEMON_SYNC_ID => sync_id = attribute.u32("synchronisation number")?,
            DAEMON_SYNC_MAXLEN => max_length = Some(attribute.u16("longest message")?),
            DAEMON_MCAST_GROUP => group = Some(Ipv4Addr::from(attribute.exactly::<4>("multicast group")?).into()),
            DAEMON_MCAST_GROUP6 => group = Some(Ipv6Addr::from(attribute.exactly::<16>("multicast group")?).into()),
            DAEMON_MCAST_PORT => port = Some(attribute.u16("multicast port")?),
            DAEMON_MCAST_TTL => ttl = Some(attribute.u8("multicast TTL")?),
            _ => {}
        }
    }
    let role = role.ok_or(DecodeError::Missing("daemon state"))?;
    let interface = interface.ok_or(DecodeError::Missing("multicast interface"))?;
    Ok(SyncDaemon { role, interface, sync_id, max_length, group, port, ttl })
}

fn decode_role(attribute: Raw<'_>) -> Result<SyncRole, DecodeError> {
    match attribute.u32("daemon state")? {
        1 => Ok(SyncRole::Master),
        2 => Ok(SyncRole::Backup),
        _ => Err(attribute.wrong("daemon state")),
    }
}
