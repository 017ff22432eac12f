// SPDX-License-Identifier: Apache-2.0
//! IP Virtual Server, the layer-4 balancer of the Linux kernel: its words, its generic-netlink family, a client of it.
//!
//! The tour, in the order in which data flows:
//!
//! - [`service`], [`server`], [`scheduler`]: what an administrator says: virtual services and the real servers behind them.
//! - [`settings`]: what holds for the whole table: timeouts, the daemons that synchronise connections, the version.
//! - [`command`]: one change of the table, and why the kernel refused it.
//! - [`entry`]: what the kernel shows: the same services and servers, with connections and statistics.
//! - [`wire`]: all of it to and from octets. Pure.
//! - [`client`]: the socket.
//! - [`list`]: the table as `ipvsadm -Ln` prints it.
//!
//! The names are those of LVS; the kernel's headers say *destination* for a real server.
#![forbid(unsafe_code)]

pub mod client;
pub mod command;
pub mod entry;
pub mod list;
pub mod scheduler;
pub mod server;
pub mod service;
pub mod settings;
pub mod wire;

pub use client::{Client, Error};
pub use command::{Command, Refusal};
pub use entry::{Attribute, ServerEntry, ServiceEntry, Statistics, TableEntry};
pub use scheduler::{Scheduler, UnknownScheduler};
pub use server::{Encapsulation, EncapsulationFlags, ForwardingMethod, RealServer, ServerAddress, Thresholds, Weight};
pub use service::{AddressFamily, Netmask, Persistence, Protocol, ServiceAddress, ServiceFlags, VirtualService};
pub use settings::{Info, SyncDaemon, SyncRole, Timeouts};
