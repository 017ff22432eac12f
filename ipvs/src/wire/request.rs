// SPDX-License-Identifier: Apache-2.0
//! What is sent to the kernel: commands and queries as netlink messages, appended to a buffer so that many of them go in one datagram.

use netlink_packet_core::{NLM_F_ACK, NLM_F_DUMP, NLM_F_REQUEST, NLMSG_NOOP};

use super::attribute::{nest, put_text};
use super::{VERSION, command, server, service, settings, top};
use crate::command::Command;
use crate::service::ServiceAddress;

/// Family of the generic-netlink controller, which knows the numbers of all others (`linux/genetlink.h`).
const CONTROLLER: u16 = 0x10;
const CTRL_CMD_GETFAMILY: u8 = 3;
const CTRL_ATTR_FAMILY_NAME: u16 = 2;
const CONTROLLER_VERSION: u8 = 2;

/// Something to be read.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Query {
    /// All services, without their servers.
    Services,
    /// One service.
    Service(ServiceAddress),
    /// The servers of a service; none where there is no such service.
    Servers(ServiceAddress),
    /// The synchronisation daemons that run.
    Daemons,
    /// The timeouts.
    Timeouts,
    /// The version.
    Info,
}

impl Query {
    /// Whether the answer is any number of messages, closed by one that says so. A socket answers one such query at a time.
    pub const fn is_dump(&self) -> bool {
        matches!(self, Self::Services | Self::Servers(_) | Self::Daemons)
    }
}

/// Appends the message of a command, which is answered only where the kernel refuses it.
pub fn encode_command(buffer: &mut Vec<u8>, family: u16, sequence: u32, request: &Command) {
    message(buffer, Header { family, flags: NLM_F_REQUEST, sequence, command: command_number(request), version: VERSION }, |buffer| {
        match request {
            Command::AddService(service) | Command::EditService(service) => {
                nest(buffer, top::SERVICE, |buffer| service::encode(buffer, service));
            }
            Command::DeleteService(address) | Command::Zero(Some(address)) => key(buffer, address),
            Command::AddServer(address, server) | Command::EditServer(address, server) => {
                key(buffer, address);
                nest(buffer, top::DEST, |buffer| server::encode(buffer, server));
            }
            Command::DeleteServer(address, server) => {
                key(buffer, address);
                nest(buffer, top::DEST, |buffer| server::encode_address(buffer, server));
            }
            Command::Zero(None) | Command::Flush => {}
            Command::SetTimeouts(timeouts) => settings::encode_timeouts(buffer, timeouts),
            Command::StartDaemon(daemon) => nest(buffer, top::DAEMON, |buffer| settings::encode_daemon(buffer, daemon)),
            Command::StopDaemon(role) => nest(buffer, top::DAEMON, |buffer| settings::encode_role(buffer, *role)),
        }
    });
}

/// Appends the message of a query.
pub fn encode_query(buffer: &mut Vec<u8>, family: u16, sequence: u32, query: &Query) {
    let command = match query {
        Query::Services | Query::Service(_) => command::GET_SERVICE,
        Query::Servers(_) => command::GET_DEST,
        Query::Daemons => command::GET_DAEMON,
        Query::Timeouts => command::GET_CONFIG,
        Query::Info => command::GET_INFO,
    };
    let flags = NLM_F_REQUEST | if query.is_dump() { NLM_F_DUMP } else { 0 };
    message(buffer, Header { family, flags, sequence, command, version: VERSION }, |buffer| match query {
        Query::Service(address) | Query::Servers(address) => key(buffer, address),
        Query::Services | Query::Daemons | Query::Timeouts | Query::Info => {}
    });
}

/// Appends a message that does nothing and is acknowledged once all before it are done. An acknowledgement of the last command would not do: the kernel sends
/// none for a daemon that is stopped before its thread ran, as it takes that error (`EINTR`) for the sign of a dump.
pub fn encode_barrier(buffer: &mut Vec<u8>, sequence: u32) {
    buffer.extend_from_slice(&16_u32.to_ne_bytes());
    buffer.extend_from_slice(&NLMSG_NOOP.to_ne_bytes());
    buffer.extend_from_slice(&(NLM_F_REQUEST | NLM_F_ACK).to_ne_bytes());
    buffer.extend_from_slice(&sequence.to_ne_bytes());
    buffer.extend_from_slice(&[0; 4]);
}

/// Appends the question which number the family has in this kernel.
pub fn encode_family_query(buffer: &mut Vec<u8>, sequence: u32) {
    let header = Header { family: CONTROLLER, flags: NLM_F_REQUEST, sequence, command: CTRL_CMD_GETFAMILY, version: CONTROLLER_VERSION };
    message(buffer, header, |buffer| put_text(buffer, CTRL_ATTR_FAMILY_NAME, "IPVS"));
}

struct Header {
    family: u16,
    flags: u16,
    sequence: u32,
    command: u8,
    version: u8,
}

/// Appends a message with both headers around what `fill` appends.
fn message(buffer: &mut Vec<u8>, header: Header, fill: impl FnOnce(&mut Vec<u8>)) {
    let at = buffer.len();
    let Header { family, flags, sequence, command, version } = header;
    buffer.extend_from_slice(&[0; 4]);
    buffer.extend_from_slice(&family.to_ne_bytes());
    buffer.extend_from_slice(&flags.to_ne_bytes());
    buffer.extend_from_slice(&sequence.to_ne_bytes());
    buffer.extend_from_slice(&[0; 4]);
    buffer.extend_from_slice(&[command, version, 0, 0]);
    fill(buffer);
    let length = u32::try_from(buffer.len() - at).unwrap_or(u32::MAX);
    if let Some(field) = buffer.get_mut(at..at + 4) {
        field.copy_from_slice(&length.to_ne_bytes());
    }
}

fn key(buffer: &mut Vec<u8>, address: &ServiceAddress) {
    nest(buffer, top::SERVICE, |buffer| service::encode_address(buffer, address));
}

const fn command_number(command: &Command) -> u8 {
    match command {
        Command::AddService(_) => command::NEW_SERVICE,
        Command::EditService(_) => command::SET_SERVICE,
        Command::DeleteService(_) => command::DEL_SERVICE,
        Command::AddServer(..) => command::NEW_DEST,
        Command::EditServer(..) => command::SET_DEST,
        Command::DeleteServer(..) => command::DEL_DEST,
        Command::Zero(_) => command::ZERO,
        Command::Flush => command::FLUSH,
        Command::SetTimeouts(_) => command::SET_CONFIG,
        Command::StartDaemon(_) => command::NEW_DAEMON,
        Command::StopDaemon(_) => command::DEL_DAEMON,
    }
}
