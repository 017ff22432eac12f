// SPDX-License-Identifier: Apache-2.0
//! One change of the table, and why the kernel refused it. A change is one message and takes effect at once or not at all; several of them are no
//! transaction.

use std::io;

use crate::scheduler::Scheduler;
use crate::server::{RealServer, ServerAddress};
use crate::service::{ServiceAddress, VirtualService};
use crate::settings::{SyncDaemon, SyncRole, Timeouts};

/// One change of the table.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Command {
    /// Adds a service.
    AddService(VirtualService),
    /// Replaces the settings of the service with this address, in place: connections and servers stay.
    EditService(VirtualService),
    /// Removes a service with its servers.
    DeleteService(ServiceAddress),
    /// Adds a server, in front of the others.
    AddServer(ServiceAddress, RealServer),
    /// Replaces the settings of the server with this address, in place: connections and order stay.
    EditServer(ServiceAddress, RealServer),
    /// Removes a server. Its connections end with their next packet where `net.ipv4.vs.expire_nodest_conn` is set, else they starve.
    /// For two minutes the kernel keeps it aside and looks it up whenever a server is added: tables that are rebuilt again and again become slow.
    DeleteServer(ServiceAddress, ServerAddress),
    /// Sets the counters of a service and its servers to zero; of all services where none is named.
    Zero(Option<ServiceAddress>),
    /// Removes all services.
    Flush,
    /// Sets the timeouts that are not 0.
    SetTimeouts(Timeouts),
    /// Starts a daemon of connection synchronisation.
    StartDaemon(SyncDaemon),
    /// Stops the daemon of this role.
    StopDaemon(SyncRole),
}

/// Why the kernel refused a command, in words for an operator.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// A service, server or daemon is there already.
    #[error("it exists already")]
    AlreadyExists,
    /// There is no such service.
    #[error("there is no such virtual service")]
    NoSuchService,
    /// The service has no such server.
    #[error("the virtual service has no such real server")]
    NoSuchServer,
    /// No daemon of this role runs.
    #[error("no synchronisation daemon of this role runs")]
    NotRunning,
    /// The kernel lacks the scheduler, or the service's persistence engine.
    #[error("the kernel has no scheduler '{scheduler}' (module ip_vs_{scheduler}){}", engine_too(.engine.as_ref()))]
    MissingModule {
        /// The scheduler that was asked for.
        scheduler: Scheduler,
        /// The persistence engine that was asked for; the kernel does not say which of them is missing.
        engine: Option<String>,
    },
    /// A weight or threshold that the kernel does not take.
    #[error("a weight or threshold is out of range, or the lower threshold is above the upper one")]
    OutOfRange,
    /// A combination that the kernel does not take.
    #[error(
        "the kernel takes no such combination (a server's address is unicast; one of another family needs a tunnel and no synchronisation daemon; GUE needs a port, port 0 persistence)"
    )]
    Invalid,
    /// The right is missing.
    #[error("not permitted: CAP_NET_ADMIN is needed in the network namespace's user namespace")]
    NotPermitted,
    /// Anything else.
    #[error("the kernel refused")]
    Other(#[source] io::Error),
}

impl Refusal {
    /// Whether what was to be removed is gone already.
    pub const fn is_already_gone(&self) -> bool {
        matches!(self, Self::NoSuchService | Self::NoSuchServer | Self::NotRunning)
    }
}

fn engine_too(engine: Option<&String>) -> String {
    engine.map_or_else(String::new, |engine| format!(", or no persistence engine '{engine}'"))
}
