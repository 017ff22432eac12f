// SPDX-License-Identifier: Apache-2.0
//! Transport errors in words for an operator: the same words for the same cause, so that repetitions can be told from news.

use std::io;

/// Why a connection cannot be used any more.
#[derive(Debug)]
pub(super) struct Loss {
    /// In words.
    pub(super) reason: String,
    /// The peer's host acknowledged nothing of what it was sent.
    pub(super) timed_out: bool,
}

impl From<&io::Error> for Loss {
    fn from(error: &io::Error) -> Self {
        Self { reason: io_error(error), timed_out: error.kind() == io::ErrorKind::TimedOut }
    }
}

/// An I/O error without its number.
pub(super) fn io_error(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => "connection refused".to_owned(),
        io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => "the peer reset the connection".to_owned(),
        io::ErrorKind::HostUnreachable => "no route to host".to_owned(),
        io::ErrorKind::NetworkUnreachable => "network is unreachable".to_owned(),
        io::ErrorKind::TimedOut => "connection timed out".to_owned(),
        _ => error.to_string(),
    }
}
