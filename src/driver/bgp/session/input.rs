// SPDX-License-Identifier: Apache-2.0
//! What a session waits for. Input: its connections, orders and whatever else it listens to. Output: the next [`Input`].

use std::future::pending;

use bgp::peer::Role;
use tokio::task::JoinSet;

use super::{Command, Inputs};
use crate::driver::bgp::admission::Seat;
use crate::driver::bgp::link::{Links, News};

/// What a session waits for.
pub(super) enum Input {
    Time,
    /// There are other routes, or there is room for more of those that are to be told.
    Routes,
    End,
    Adjust,
    Keys,
    Location,
    Whereabouts,
    Command(Command),
    Link(Role, News),
    Closed,
    /// A dynamic neighbour has said nothing, and others dial.
    Dismissed,
}

/// The next of it. `stuck`: the peer takes nothing at present; `resumes`: there is room for more of what it is to be told. Cancelling the wait loses nothing.
pub(super) async fn next_input(links: &mut Links, closing: &mut JoinSet<()>, inputs: &mut Inputs, stuck: bool, resumes: bool) -> Input {
    tokio::select! {
        Ok(()) = inputs.end.changed() => Input::End,
        Some(command) = inputs.commands.recv() => Input::Command(command),
        Ok(()) = inputs.adjustable.changed() => Input::Adjust,
        Ok(()) = inputs.keys.changed() => Input::Keys,
        Ok(()) = inputs.location.changed() => Input::Location,
        Ok(()) = inputs.whereabouts.changed() => Input::Whereabouts,
        () = inputs.feed.next(stuck && !resumes, resumes) => Input::Routes,
        Some(_) = closing.join_next() => Input::Closed,
        () = dismissed(inputs.seat.as_deref()) => Input::Dismissed,
        (role, news) = links.next() => Input::Link(role, news),
    }
}

/// Only a dynamic neighbour can be.
async fn dismissed(seat: Option<&Seat>) {
    match seat {
        Some(seat) => seat.dismissed().await,
        None => pending().await,
    }
}
