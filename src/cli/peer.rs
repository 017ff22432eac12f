// SPDX-License-Identifier: Apache-2.0
//! `vipherald peer`: an operator's orders about one BGP neighbour. They hold until the next order, or until the neighbour leaves the configuration, and none outlives the daemon.

use clap::builder::NonEmptyStringValueParser;
use clap::{Args, Subcommand, ValueEnum};

use super::show::{Daemon, PATIENCE};
use super::{Failure, block_on, print};
use crate::admin::{self, PeerOrder};
use crate::driver::bgp::{Direction, Operation};

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
    /// Close the session and open it again; with --soft, exchange all routes anew in the session that there is
    Reset {
        #[command(flatten)]
        peer: Peer,
        /// Keep the session: send our routes again (out), ask the peer for its own (in), or both
        #[arg(long, value_name = "DIRECTION", num_args = 0..=1, require_equals = true, default_missing_value = "both")]
        soft: Option<SoftDirection>,
    },
}

/// Whose routes are exchanged anew.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum SoftDirection {
    /// Those of the peer
    In,
    /// Ours
    Out,
    /// All
    Both,
}

#[derive(Args, Debug)]
pub(super) struct Peer {
    /// Its name, as `show peers` has it
    #[arg(value_parser = NonEmptyStringValueParser::new())]
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
    let (peer, operation) = match verb {
        PeerVerb::Shutdown { peer, message } => (peer, Operation::Shutdown { message }),
        PeerVerb::Start { peer } => (peer, Operation::Start),
        PeerVerb::Reset { peer, soft: None } => (peer, Operation::Reset),
        PeerVerb::Reset { peer, soft: Some(direction) } => {
            let direction = match direction {
                SoftDirection::In => Direction::In,
                SoftDirection::Out => Direction::Out,
                SoftDirection::Both => Direction::Both,
            };
            (peer, Operation::SoftReset { direction })
        }
    };
    let Peer { name, daemon } = peer;
    let order = PeerOrder { peer: name, operation };
    let ordered = block_on("peer", admin::order(&daemon.socket(), PATIENCE, &order))?;
    let done = ordered.map_err(|error| Failure::Daemon { verb: "peer", source: error })?;
    print(&format!("{} {done}\n", order.peer))
}
