// SPDX-License-Identifier: Apache-2.0
//! `vipherald peer`: an operator's orders about one BGP neighbour. They hold until the daemon ends, or the next order.

use clap::{Args, Subcommand};

use super::show::{Daemon, PATIENCE};
use super::{Failure, block_on, print};
use crate::admin::{self, PeerOrder};
use crate::driver::bgp::Operation;

/// The longest text that a NOTIFICATION carries (RFC 9003 §2).
const LONGEST_MESSAGE: usize = 255;

#[derive(Debug, Subcommand)]
pub(super) enum PeerVerb {
    /// Close the session and keep it closed
    Shutdown {
        #[command(flatten)]
        peer: Peer,
        /// A text for the operator of the peer, 255 octets at most
        #[arg(long, value_name = "TEXT", value_parser = message)]
        message: Option<String>,
    },
    /// End a shutdown
    Start {
        #[command(flatten)]
        peer: Peer,
    },
    /// Close the session and open it again
    Reset {
        #[command(flatten)]
        peer: Peer,
    },
}

#[derive(Args, Debug)]
pub(super) struct Peer {
    /// Its name, as `show peers` has it
    name: String,
    #[command(flatten)]
    daemon: Daemon,
}

fn message(text: &str) -> Result<String, String> {
    match text.len() {
        0..=LONGEST_MESSAGE => Ok(text.to_owned()),
        length => Err(format!("it has {length} octets; a NOTIFICATION carries {LONGEST_MESSAGE} at most (RFC 9003)")),
    }
}

pub(super) fn peer(verb: PeerVerb) -> Result<(), Failure> {
    let (peer, operation, done) = match verb {
        PeerVerb::Shutdown { peer, message } => (peer, Operation::Shutdown { message }, "is shut down"),
        PeerVerb::Start { peer } => (peer, Operation::Start, "is started"),
        PeerVerb::Reset { peer } => (peer, Operation::Reset, "is reset"),
    };
    let Peer { name, daemon } = peer;
    let order = PeerOrder { peer: name, operation };
    let ordered = block_on("peer", admin::order(&daemon.socket(), PATIENCE, &order))?;
    ordered.map_err(|error| Failure::Daemon { verb: "peer", source: error })?;
    print(&format!("{} {done}\n", order.peer))
}
