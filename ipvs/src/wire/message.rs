// SPDX-License-Identifier: Apache-2.0
//! What the kernel shows, one thing a message. Its messages bear the commands that would set the same.

use super::attribute::{attributes, nest};
use super::{DecodeError, VERSION, command, server, service, settings, top};
use crate::entry::{ServerEntry, ServiceEntry};
use crate::settings::{Info, SyncDaemon, Timeouts};

/// One thing that the kernel shows.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Message {
    /// A virtual service.
    Service(ServiceEntry),
    /// A real server of the service that was asked for.
    Server(ServerEntry),
    /// A daemon that runs.
    Daemon(SyncDaemon),
    /// The timeouts.
    Timeouts(Timeouts),
    /// The version.
    Info(Info),
    /// A command that this crate does not expect in an answer.
    Other(u8),
}

impl Message {
    /// Reads a generic-netlink message, its header included.
    pub fn decode(octets: &[u8]) -> Result<Self, DecodeError> {
        let ([kind, _version, _, _], body) = octets.split_first_chunk().ok_or(DecodeError::Short)?;
        Ok(match *kind {
            command::NEW_SERVICE => Self::Service(service::decode(nested(body, top::SERVICE, "service")?)?),
            command::NEW_DEST => Self::Server(server::decode(nested(body, top::DEST, "destination")?)?),
            command::NEW_DAEMON => Self::Daemon(settings::decode_daemon(nested(body, top::DAEMON, "daemon")?)?),
            command::SET_CONFIG => Self::Timeouts(settings::decode_timeouts(body)?),
            command::SET_INFO => Self::Info(settings::decode_info(body)?),
            other => Self::Other(other),
        })
    }

    /// Writes it as the kernel does, without the statistics of old kernels.
    pub fn encode(&self) -> Vec<u8> {
        let kind = match self {
            Self::Service(_) => command::NEW_SERVICE,
            Self::Server(_) => command::NEW_DEST,
            Self::Daemon(_) => command::NEW_DAEMON,
            Self::Timeouts(_) => command::SET_CONFIG,
            Self::Info(_) => command::SET_INFO,
            Self::Other(kind) => *kind,
        };
        let mut octets = vec![kind, VERSION, 0, 0];
        match self {
            Self::Service(entry) => nest(&mut octets, top::SERVICE, |octets| service::encode_entry(octets, entry)),
            Self::Server(entry) => nest(&mut octets, top::DEST, |octets| server::encode_entry(octets, entry)),
            Self::Daemon(daemon) => nest(&mut octets, top::DAEMON, |octets| settings::encode_daemon(octets, daemon)),
            Self::Timeouts(timeouts) => settings::encode_timeouts(&mut octets, timeouts),
            Self::Info(info) => settings::encode_info(&mut octets, info),
            Self::Other(_) => {}
        }
        octets
    }
}

fn nested<'a>(body: &'a [u8], kind: u16, name: &'static str) -> Result<super::attribute::Raw<'a>, DecodeError> {
    for attribute in attributes(body) {
        let attribute = attribute?;
        if attribute.kind() == kind {
            return Ok(attribute);
        }
    }
    Err(DecodeError::Missing(name))
}
